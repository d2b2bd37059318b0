//! A cancel token: set once, it ends every wait at once.
//!
//! A flag plus an eventfd, so that one `poll` covers "cancelled", "the process ended" and "time is up" without
//! periodic wake-ups. It knows nothing of signals: the binary maps Ctrl-C to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::clock;

/// A cancel token; clones share one state.
#[derive(Clone, Debug)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cancelled: AtomicBool,
    /// Readable once cancelled, because it is never read. Absent when the process is out of descriptors; waits then
    /// check the flag every 20 ms.
    event: Option<OwnedFd>,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The descriptor became readable.
    Ready,
    /// The token was cancelled.
    Cancelled,
    /// The deadline passed.
    TimedOut,
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// A token that is not cancelled yet.
    pub fn new() -> Cancel {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        Cancel { shared: Arc::new(Shared { cancelled: AtomicBool::new(false), event }) }
    }

    /// Ends every wait on this token, now and later. Idempotent.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        if let Some(event) = &self.shared.event {
            // A full counter leaves the eventfd readable, so a failed write changes nothing.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Whether the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::SeqCst)
    }

    /// Waits until `until_ns` (of [`clock::now_ns`]); `true` if the token was cancelled first.
    pub fn wait_until(&self, until_ns: u64) -> bool {
        self.wait_for(None, until_ns) == WaitOutcome::Cancelled
    }

    /// Waits until the descriptor is readable, the token is cancelled, or `until_ns`.
    pub(crate) fn wait_for(&self, fd: Option<BorrowedFd<'_>>, until_ns: u64) -> WaitOutcome {
        loop {
            if self.is_cancelled() {
                return WaitOutcome::Cancelled;
            }
            let now_ns = clock::now_ns();
            let mut left_ns = until_ns.saturating_sub(now_ns);
            if self.shared.event.is_none() {
                left_ns = left_ns.min(20_000_000);
            }
            let mut fds = Vec::with_capacity(2);
            fds.extend(fd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
            fds.extend(
                self.shared.event.as_ref().map(|e| PollFd::from_borrowed_fd(e.as_fd(), PollFlags::IN)),
            );
            let timeout = Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            };
            let woken = poll(&mut fds, Some(&timeout));
            if self.is_cancelled() {
                return WaitOutcome::Cancelled;
            }
            if fd.is_some() && matches!(woken, Ok(n) if n > 0) && !fds[0].revents().is_empty() {
                return WaitOutcome::Ready;
            }
            if clock::now_ns() >= until_ns {
                return WaitOutcome::TimedOut;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_ends_a_wait_in_another_thread() {
        let cancel = Cancel::new();
        let other = cancel.clone();
        let waiter = std::thread::spawn(move || other.wait_until(u64::MAX));
        cancel.cancel();
        assert!(waiter.join().unwrap());
        assert!(cancel.is_cancelled() && cancel.wait_until(0));
    }

    #[test]
    fn time_ends_a_wait() {
        let until_ns = clock::now_ns() + 1_000_000;
        assert!(!Cancel::new().wait_until(until_ns));
        assert!(clock::now_ns() >= until_ns);
    }

    #[test]
    fn a_readable_descriptor_ends_a_wait() {
        let event = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        assert_eq!(Cancel::new().wait_for(Some(event.as_fd()), u64::MAX), WaitOutcome::Ready);
    }
}
