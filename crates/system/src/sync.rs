//! Locks that do not care about panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks without caring whether another thread panicked meanwhile: all that is kept under locks here is valid
/// between any two statements, and taking down must go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
