//! Locks that are taken even if a thread panicked while it held them.
//!
//! The standard library poisons such a lock, since what it guards may be half changed. All that loadlab keeps under
//! locks is valid between any two statements, and other threads must go on whatever one of them did: systems are taken
//! down, records are completed, terminals are restored.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks a mutex.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification. It may return without one.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, for at most this long. It may return without one.
pub fn wait_timeout<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    at_most: Duration,
) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits until the condition no longer holds.
pub fn wait_while<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    changed.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_after_a_panic() {
        let (mutex, changed) = (Mutex::new(1), Condvar::new());
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let held = mutex.lock();
                assert!(held.is_err(), "on purpose");
            });
            assert!(panics.join().is_err());
        });
        assert!(mutex.is_poisoned());
        *lock(&mutex) += 1;
        let guard = wait_timeout(&changed, lock(&mutex), Duration::from_millis(1));
        assert_eq!(*wait_while(&changed, guard, |value| *value != 2), 2);
    }
}
