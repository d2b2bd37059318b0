//! The true response times and lateness, from a server's own log: when each request arrived, when each was answered,
//! and the rate at which they were due. Pure: it works on given data and reads no clock.
//!
//! Request k of a constant rate R is due k/R after the schedule's start. The server does not know when that was; but
//! no request arrives before it is due, so the earliest one relative to its number shows it. Anything common to all
//! requests (the time of a send) is therefore not in these figures.

use serde_json::{Value, json};

/// A request, as the server saw it; times on one clock, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it could have been read.
    pub arrived_ns: u64,
    /// When its answer was about to be handed to the kernel.
    pub answered_ns: u64,
}

/// Lateness and response times by due time, sorted; nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// Arrival − due.
    pub late_ns: Vec<u64>,
    /// Answer − due.
    pub response_ns: Vec<u64>,
}

/// Computes it for requests that were due at a constant rate, with none missing: the k-th arrival is that of the k-th
/// request due, and the k-th answer is its answer. (If two swap places, their times swap too, and sums and high
/// percentiles stay the same.)
pub fn of(log: &[Seen], rate_per_s: f64) -> Truth {
    let sorted = |pick: fn(&Seen) -> u64| {
        let mut all: Vec<u64> = log.iter().map(pick).collect();
        all.sort_unstable();
        all
    };
    let (arrived, answered) = (sorted(|s| s.arrived_ns), sorted(|s| s.answered_ns));
    let due = |k: usize| (k as f64 * 1e9 / rate_per_s) as i128;
    let begin = arrived.iter().enumerate().map(|(k, at)| i128::from(*at) - due(k)).min().unwrap_or(0);
    let since_due = |times: &[u64]| {
        let after = |(k, at): (usize, &u64)| u64::try_from(i128::from(*at) - begin - due(k)).unwrap_or(0);
        let mut all: Vec<u64> = times.iter().enumerate().map(after).collect();
        all.sort_unstable();
        all
    };
    Truth { late_ns: since_due(&arrived), response_ns: since_due(&answered) }
}

/// The percentiles of sorted times, by nearest rank, in milliseconds; `null` if there are none.
pub fn percentiles_ms(sorted_ns: &[u64]) -> Value {
    let at = |share: f64| quantile(sorted_ns, share).map(|ns| ns as f64 / 1e6);
    json!({ "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": at(1.0) })
}

/// The value at a share of sorted values, by nearest rank.
pub fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(arrived_ns: u64, answered_ns: u64) -> Seen {
        Seen { arrived_ns, answered_ns }
    }

    #[test]
    fn a_freeze_has_its_full_weight() {
        // 1,000/s; the server freezes from 2 ms to 5 ms and then answers at once.
        let ms = 1_000_000;
        let log: Vec<Seen> =
            (0..8).map(|k| seen(k * ms, if (2..5).contains(&k) { 5 * ms } else { k * ms + 1000 })).collect();
        let truth = of(&log, 1000.0);
        assert_eq!(truth.late_ns, [0; 8]);
        assert_eq!(truth.response_ns, [1000, 1000, 1000, 1000, 1000, ms, 2 * ms, 3 * ms]);
        assert_eq!(quantile(&truth.response_ns, 0.9), Some(3 * ms));
        assert_eq!(
            percentiles_ms(&[]),
            serde_json::json!({"p50": null, "p90": null, "p99": null, "p99_9": null, "max": null})
        );
    }

    #[test]
    fn the_earliest_for_its_number_is_in_time() {
        let log = [seen(10_300, 10_400), seen(11_000, 11_100), seen(12_050, 12_200)];
        assert_eq!(of(&log, 1e6).late_ns, [0, 50, 300]);
    }

    proptest! {
        #[test]
        fn lateness_that_was_put_in_comes_out(late in prop::collection::vec(0u64..400, 1..50), start in 0u64..1 << 40) {
            // Below half of the gap, so that nothing is overtaken.
            let log: Vec<Seen> =
                late.iter().enumerate().map(|(k, l)| seen(start + k as u64 * 1000 + l, start + k as u64 * 1000 + l)).collect();
            let least = late.iter().min().unwrap();
            let mut expect: Vec<u64> = late.iter().map(|l| l - least).collect();
            expect.sort_unstable();
            prop_assert_eq!(of(&log, 1e6).late_ns, expect);
        }
    }
}
