//! When a load begins: agreed on by its threads, some of which may never arrive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

use loadlab_record::sync::{lock, wait_while};

use crate::io::epoll::now_ns;
use crate::measure::own_usage;

/// Time for all threads to return once their connections are open.
const LEAD_NS: u64 = 5_000_000;

/// How the connections to be held were opened, before the load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectPhase {
    /// How long it took, nanoseconds.
    pub took_ns: u64,
    /// By how many bytes memory grew.
    pub grown_bytes: u64,
}

impl ConnectPhase {
    /// Both phases of two processes that open connections at the same time.
    pub(crate) fn merge_concurrent(self, other: ConnectPhase) -> ConnectPhase {
        ConnectPhase {
            took_ns: self.took_ns.max(other.took_ns),
            grown_bytes: self.grown_bytes + other.grown_bytes,
        }
    }
}

/// The moment a load begins, agreed on by its threads: as planned, or once all of them have opened the connections to
/// be held.
pub struct Start<'a> {
    at_ns: AtomicU64,
    /// First id of the load's requests.
    pub first_id: u64,
    opening: Option<Rendezvous>,
    /// Returns when the load begins; called once all threads are ready. Without it, the load begins as soon as they
    /// are.
    agree: Option<&'a (dyn Fn() -> u64 + Sync)>,
    /// When opening began.
    opening_began_ns: u64,
    /// Resident memory at that time.
    rss_before_bytes: u64,
    /// How the connections were opened.
    pub opened: OnceLock<ConnectPhase>,
}

impl<'a> Start<'a> {
    /// A start planned for `start_ns`, on the clock of [`now_ns`]. If connections are to be held, `opening` threads
    /// open them first.
    pub fn new(start_ns: u64, first_id: u64, opening: Option<usize>) -> Self {
        Start {
            at_ns: AtomicU64::new(start_ns),
            first_id,
            opening: opening.map(Rendezvous::of),
            agree: None,
            opening_began_ns: now_ns(),
            rss_before_bytes: own_usage::rss_bytes(),
            opened: OnceLock::new(),
        }
    }

    /// A start decided by `agree`, which one of the threads calls once this many are ready.
    pub fn agreed(first_id: u64, threads: usize, agree: &'a (dyn Fn() -> u64 + Sync)) -> Self {
        Start { agree: Some(agree), ..Start::new(0, first_id, Some(threads)) }
    }

    /// The guard of one of the threads that open connections. Once it is dropped, that thread is no longer waited for.
    pub fn guard(&self) -> StartGuard<'_> {
        StartGuard(Some(self))
    }

    /// The start time, as far as it is agreed on.
    pub fn at_ns(&self) -> u64 {
        self.at_ns.load(Ordering::Acquire)
    }

    /// Stops waiting for `threads` threads: they could not be started, or ended before opening their connections.
    pub fn without(&self, threads: usize) {
        if let Some(opening) = &self.opening {
            opening.without(threads, || self.all_opened());
        }
    }

    /// Called once every thread has opened its connections.
    fn all_opened(&self) {
        let grown_bytes = own_usage::rss_bytes().saturating_sub(self.rss_before_bytes);
        let took_ns = now_ns().saturating_sub(self.opening_began_ns);
        let _ = self.opened.set(ConnectPhase { took_ns, grown_bytes });
        match self.agree {
            Some(agree) => self.at_ns.store(agree(), Ordering::Release),
            None => drop(self.at_ns.fetch_max(now_ns() + LEAD_NS, Ordering::AcqRel)),
        }
    }
}

/// A rendezvous of threads, some of which may never arrive: a barrier would hang.
struct Rendezvous {
    /// Threads still expected.
    missing: Mutex<usize>,
    all: Condvar,
}

impl Rendezvous {
    fn of(threads: usize) -> Rendezvous {
        Rendezvous { missing: Mutex::new(threads), all: Condvar::new() }
    }

    fn missing(&self) -> MutexGuard<'_, usize> {
        lock(&self.missing)
    }

    /// Waits for the others; the last to arrive runs `last` before any continues.
    fn wait(&self, last: impl FnOnce()) {
        self.without(1, last);
        drop(wait_while(&self.all, self.missing(), |missing| *missing > 0));
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

/// One of the threads that open connections: however it ends, the others do not wait for it in vain.
pub struct StartGuard<'s>(Option<&'s Start<'s>>);

impl StartGuard<'_> {
    /// Waits until every thread has opened its connections (or failed to).
    pub fn agree(mut self) {
        if let Some(start) = self.0.take()
            && let Some(opening) = &start.opening
        {
            opening.wait(|| start.all_opened());
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
    fn the_others_do_not_wait_for_missing_threads() {
        let start = Start::new(0, 0, Some(5));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| start.guard().agree())).collect();
            // One leaves silently, one panics, one could not be started.
            drop(start.guard());
            let broke = scope.spawn(|| {
                let _guard = start.guard();
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
        start.guard().agree();
        assert_eq!((start.at_ns(), start.opened.get()), (77, None));
    }
}
