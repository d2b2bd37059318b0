//! When a load begins: agreed on by its threads, some of which may never arrive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::io::epoll::now_ns;
use crate::measure::own_usage;

/// Time for all threads to return once their connections are open.
const LEAD_NS: u64 = 5_000_000;

/// The moment a load begins, agreed on by its threads: as planned, or once all of them have opened the connections to
/// be held.
pub struct Start<'a> {
    at_ns: AtomicU64,
    /// First id of the load's requests.
    pub first_id: u64,
    opening: Option<Meeting>,
    /// Returns when the load begins; called once all threads are ready. Without it, the load begins as soon as they
    /// are.
    agree: Option<&'a (dyn Fn() -> u64 + Sync)>,
    /// When opening began, and resident memory at that time.
    before: (u64, u64),
    /// How long opening took, nanoseconds, and by how many bytes memory grew.
    pub opened: OnceLock<(u64, u64)>,
}

impl<'a> Start<'a> {
    /// A start planned for `start_ns`, on the clock of [`now_ns`]. If connections are to be held, `opening` threads
    /// open them first.
    pub fn new(start_ns: u64, first_id: u64, opening: Option<usize>) -> Self {
        Start {
            at_ns: AtomicU64::new(start_ns),
            first_id,
            opening: opening.map(Meeting::of),
            agree: None,
            before: (now_ns(), own_usage::rss_bytes()),
            opened: OnceLock::new(),
        }
    }

    /// A start decided by `agree`, which one of the threads calls once this many are ready.
    pub fn agreed(first_id: u64, threads: usize, agree: &'a (dyn Fn() -> u64 + Sync)) -> Self {
        Start { agree: Some(agree), ..Start::new(0, first_id, Some(threads)) }
    }

    /// A thread's place among those that open connections.
    pub fn seat(&self) -> StartGuard<'_> {
        StartGuard(Some(self))
    }

    /// The start time, as far as it is agreed on.
    pub fn at_ns(&self) -> u64 {
        self.at_ns.load(Ordering::Acquire)
    }

    /// Stops waiting for `threads` threads: they could not be started, or ended before opening their connections.
    pub fn without(&self, threads: usize) {
        if let Some(meeting) = &self.opening {
            meeting.without(threads, || self.all_opened());
        }
    }

    /// Called once every thread has opened its connections.
    fn all_opened(&self) {
        let (began_ns, rss) = self.before;
        let grown = own_usage::rss_bytes().saturating_sub(rss);
        let _ = self.opened.set((now_ns().saturating_sub(began_ns), grown));
        match self.agree {
            Some(agree) => self.at_ns.store(agree(), Ordering::Release),
            None => drop(self.at_ns.fetch_max(now_ns() + LEAD_NS, Ordering::AcqRel)),
        }
    }
}

/// A rendezvous of threads, some of which may never arrive: a barrier would hang.
struct Meeting {
    /// Threads still expected.
    missing: Mutex<usize>,
    all: Condvar,
}

impl Meeting {
    fn of(threads: usize) -> Meeting {
        Meeting { missing: Mutex::new(threads), all: Condvar::new() }
    }

    fn missing(&self) -> MutexGuard<'_, usize> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the others; the last to arrive runs `last` before any continues.
    fn wait(&self, last: impl FnOnce()) {
        self.without(1, last);
        let all = self.all.wait_while(self.missing(), |missing| *missing > 0);
        drop(all.unwrap_or_else(PoisonError::into_inner));
    }

    fn without(&self, threads: usize, last: impl FnOnce()) {
        let mut missing = self.missing();
        let before = *missing;
        *missing = before.saturating_sub(threads);
        if before > 0 && *missing == 0 {
            last();
            self.all.notify_all();
        }
    }
}

/// A thread's place in the meeting, released however the thread ends.
pub struct StartGuard<'s>(Option<&'s Start<'s>>);

impl StartGuard<'_> {
    /// Waits until every thread has opened its connections (or failed to).
    pub fn agree(mut self) {
        if let Some(start) = self.0.take()
            && let Some(meeting) = &start.opening
        {
            meeting.wait(|| start.all_opened());
        }
    }
}

impl Drop for StartGuard<'_> {
    fn drop(&mut self) {
        if let Some(start) = self.0 {
            start.without(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that arrive continue together, even if others never do.
    #[test]
    fn nobody_waits_for_threads_that_never_come() {
        let start = Start::new(0, 0, Some(5));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| start.seat().agree())).collect();
            // One leaves silently, one panics, one could not be started.
            drop(start.seat());
            let broke = scope.spawn(|| {
                let _seat = start.seat();
                std::panic::resume_unwind(Box::new("broke"));
            });
            assert!(broke.join().is_err());
            start.without(1);
            threads.into_iter().for_each(|t| t.join().expect("it goes on"));
        });
        assert!(start.opened.get().is_some() && start.at_ns() > 0);
    }

    #[test]
    fn a_load_that_holds_nothing_begins_as_planned() {
        let start = Start::new(77, 0, None);
        start.seat().agree();
        assert_eq!((start.at_ns(), start.opened.get()), (77, None));
    }
}
