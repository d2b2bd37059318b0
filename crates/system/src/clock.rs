//! The kernel's monotonic clock, the one clock of this crate, and a trial's place on it.
//!
//! Nothing here reads the wall clock: samples, deaths and durations must line up with the load's ticks even if the date
//! is changed.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU time that this thread has used so far.
pub(crate) fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// A trial's clock: 0 is the first load's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialClock {
    /// The first load's start, nanoseconds of `CLOCK_MONOTONIC`. It may lie in the future.
    pub origin_ns: u64,
}

impl TrialClock {
    /// Seconds on the trial's clock; negative before the first load's start.
    pub fn at_s(&self, ns: u64) -> f64 {
        (i128::from(ns) - i128::from(self.origin_ns)) as f64 / 1e9
    }

    /// The first whole interval of the trial's clock that does not lie before `ns`: its number and its time.
    pub(crate) fn next_tick(&self, ns: u64, interval_ns: u64) -> (i64, u64) {
        let (since_ns, interval_ns) =
            (i128::from(ns) - i128::from(self.origin_ns), i128::from(interval_ns.max(1)));
        let k = -(-since_ns).div_euclid(interval_ns);
        let at_ns = i128::from(self.origin_ns) + k * interval_ns;
        (k as i64, at_ns.max(0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_do_not_drift_and_begin_before_the_origin() {
        let clock = TrialClock { origin_ns: 5_300_000_000 };
        for (ns, k, at_ns) in [
            (5_300_000_000, 0, 5_300_000_000),
            (5_300_000_001, 1, 6_300_000_000),
            (6_300_000_000, 1, 6_300_000_000),
            (4_400_000_000, 0, 5_300_000_000),
            (4_300_000_000, -1, 4_300_000_000),
            (4_299_999_999, -1, 4_300_000_000),
            (1_005_300_000_001, 1001, 1_006_300_000_000),
        ] {
            assert_eq!(clock.next_tick(ns, 1_000_000_000), (k, at_ns), "{ns}");
        }
        assert_eq!(clock.next_tick(5_300_000_001, 250_000_000), (1, 5_550_000_000));
        assert_eq!(clock.at_s(4_800_000_000), -0.5);
    }
}
