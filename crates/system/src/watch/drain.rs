//! Waits, after the load, until the system's work is done.
//!
//! The caller defines "done": a condition over probes, which it evaluates itself.

use crate::cancel::Cancel;
use crate::clock;

/// How often the condition is evaluated.
pub const POLL_INTERVAL_NS: u64 = 100_000_000;

/// Evaluates the condition every 100 ms until it holds, `at_most_ns` have passed, or `cancel` is triggered; returns
/// whether it held. `None` (not known yet, or a probe failed) counts as "not yet". The condition is evaluated at least
/// once.
pub fn drain(condition: &mut dyn FnMut() -> Option<bool>, at_most_ns: u64, cancel: &Cancel) -> bool {
    let begun_ns = clock::now_ns();
    let until_ns = begun_ns.saturating_add(at_most_ns);
    for k in 1u64.. {
        let done = condition() == Some(true);
        if done || clock::now_ns() >= until_ns || cancel.is_cancelled() {
            return done;
        }
        // On a grid from the start; a condition slower than the grid is evaluated again at once.
        cancel.wait_until(until_ns.min(begun_ns + k * POLL_INTERVAL_NS));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_the_condition_the_time_or_the_token() {
        let mut answers = [None, Some(false), Some(true)].into_iter();
        let mut asked = 0;
        let drained = drain(
            &mut || {
                asked += 1;
                answers.next().flatten()
            },
            u64::MAX,
            &Cancel::new(),
        );
        assert!(drained && asked == 3, "{asked}");

        assert!(!drain(&mut || None, 1, &Cancel::new()));
        assert!(drain(&mut || Some(true), 0, &Cancel::new()));

        let cancel = Cancel::new();
        cancel.cancel();
        assert!(!drain(&mut || Some(false), u64::MAX, &cancel));
    }
}
