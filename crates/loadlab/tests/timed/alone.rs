//! Tests that depend on timing, run one after the other.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// While the guard is held, no other such test of this program runs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
