//! When requests fall due in the open model: pure arithmetic from the load's start, free of drift.
//!
//! Request k falls due at Λ⁻¹(k), where Λ(t) is the number of requests called for by time t: the integral of the rate,
//! which is constant or piecewise linear ([`crate::schedule::level`]; a ramp is one stage). Poisson arrivals are the
//! same with k replaced by the sum of k unit exponentials (time change of a Poisson process). A thread of n takes every
//! n-th request of the *same* sequence, so the shares of n threads add up to the whole for every n.

pub mod level;
pub mod share;
pub mod think;

use loadlab_record::spec::schedule::Arrivals;

use self::level::Level;
use crate::random::Random;

/// One thread's share of a schedule, in order of due time.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate: Level,
    /// The piece of `rate` that the next request is in, or an earlier one.
    piece: usize,
    arrivals: Arrivals,
    /// Number of the next request in the whole sequence.
    next: u64,
    threads: u64,
    /// No request falls due at or after this.
    end_ns: u64,
    /// No request has this number or a higher one.
    end_number: u64,
    /// Poisson: position of request `drawn - 1` in unit-rate time.
    place: f64,
    drawn: u64,
    random: Random,
    peeked: Option<u64>,
}

impl Schedule {
    /// All requests at a rate.
    pub fn new(rate: Level, arrivals: Arrivals, seed: u64) -> Self {
        let mut schedule = Schedule {
            rate,
            piece: 0,
            arrivals,
            next: 0,
            threads: 1,
            end_ns: u64::MAX,
            end_number: u64::MAX,
            place: 0.0,
            drawn: 0,
            random: Random::new(seed ^ 0x5eed_0001),
            peeked: None,
        };
        schedule.peeked = schedule.compute();
        schedule
    }

    /// Keeps only requests that fall due before `end_ns`, and only the first `end_number` of the whole sequence.
    pub fn until(mut self, end_ns: u64, end_number: u64) -> Self {
        (self.end_ns, self.end_number) = (end_ns, end_number);
        self.rewind()
    }

    /// Keeps every `threads`-th request, starting with number `thread`.
    pub fn share(mut self, thread: u64, threads: u64) -> Self {
        (self.next, self.threads) = (thread, threads);
        self.rewind()
    }

    /// Keeps only requests that fall due at `from_ns` or later.
    pub fn not_before(mut self, from_ns: u64) -> Self {
        while self.peeked.is_some_and(|due| due < from_ns) {
            self.take();
        }
        self
    }

    fn rewind(mut self) -> Self {
        self.peeked = self.compute();
        self
    }

    /// When the next request falls due, if there is one.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.peeked
    }

    /// Takes the next request: its number in the whole sequence and when it falls due.
    #[inline]
    pub fn take(&mut self) -> Option<(u64, u64)> {
        let due = self.peeked?;
        let number = self.next;
        self.next += self.threads;
        self.peeked = self.compute();
        Some((number, due))
    }

    /// Ends the schedule: nothing falls due any more.
    pub fn stop(&mut self) {
        self.peeked = None;
        self.end_number = 0;
    }

    fn compute(&mut self) -> Option<u64> {
        if self.next >= self.end_number {
            return None;
        }
        let due = match self.arrivals {
            Arrivals::Constant => self.rate.due_ns(self.next, &mut self.piece),
            Arrivals::Poisson => {
                while self.drawn <= self.next {
                    self.place += self.random.exponential();
                    self.drawn += 1;
                }
                self.rate.due_ns_at(self.place, &mut self.piece)
            }
        };
        due.filter(|due| *due < self.end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_record::spec::schedule::Stage;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn all(mut s: Schedule) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| s.take()).collect()
    }

    fn ramped(rate: f64, ramp_ns: u64) -> Schedule {
        Schedule::new(Level::ramp(rate, ramp_ns), Arrivals::Constant, 1)
    }

    #[test]
    fn a_constant_rate_is_free_of_drift() {
        let due = all(ramped(1000.0, 0).until(10 * S, u64::MAX));
        assert_eq!(due.len(), 10_000);
        assert!(due.iter().all(|(k, ns)| *ns == k * 1_000_000));
        // three a second for a year: still exact
        assert_eq!(Level::ramp(3.0, 0).due_ns(3 * 31_536_000, &mut 0), Some(31_536_000 * S));
    }

    #[test]
    fn a_ramp_sends_half_of_what_the_full_rate_would() {
        let due = all(ramped(1000.0, 2 * S).until(4 * S, u64::MAX));
        assert_eq!(due.len(), 3000);
        let in_first_half = due.iter().filter(|(_, ns)| *ns < S).count();
        assert_eq!(in_first_half, 250);
        assert!(due.windows(2).all(|w| w[0].1 <= w[1].1));
    }

    #[test]
    fn stages_send_the_area_under_them() {
        let stages = [
            Stage { from: 0.0, to: 1000.0, over_ns: 10 * S },
            Stage { from: 1000.0, to: 1000.0, over_ns: 2 * S },
            Stage { from: 0.0, to: 0.0, over_ns: 3 * S },
            Stage { from: 500.0, to: 0.0, over_ns: 4 * S },
            Stage { from: 10.0, to: 10.0, over_ns: S },
        ];
        let whole = Schedule::new(Level::of(&stages), Arrivals::Constant, 1).until(20 * S, u64::MAX);
        let due = all(whole);
        let within =
            |from: u64, to: u64| due.iter().filter(|(_, at)| (from * S..to * S).contains(at)).count();
        assert_eq!([within(0, 10), within(10, 12), within(12, 15)], [5000, 2000, 0]);
        assert_eq!([within(15, 19), within(19, 20)], [1000, 10]);
        // on a slope request k is due at √(2kT/R), to the nanosecond
        assert_eq!(due[50], (50, S));
        assert_eq!(due[4999].1, 9_998_999_949);
        // where the rate is constant, evenly
        assert!(due[5000..7000].iter().all(|(k, at)| *at == 10 * S + (k - 5000) * 1_000_000));
        // after a time at zero the next one comes when the rate is positive again
        assert_eq!(due[7000].1, 15 * S);
    }

    /// Kolmogorov–Smirnov against 1 − e^−x at the 0.1 % level.
    fn are_exponential(mut gaps: Vec<f64>) -> bool {
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let truth = 1.0 - (-x).exp();
                (truth - i as f64 / n).abs().max((truth - (i + 1) as f64 / n).abs())
            })
            .fold(0.0, f64::max);
        distance < 1.95 / n.sqrt()
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let s = Schedule::new(Level::ramp(1000.0, 0), Arrivals::Poisson, 7).until(u64::MAX, 20_000);
        let due = all(s);
        assert!(are_exponential(due.windows(2).map(|w| (w[1].1 - w[0].1) as f64 / 1e6).collect()));
    }

    #[test]
    fn poisson_gaps_are_exponential_by_the_area_between_them() {
        let stages = [
            Stage { from: 0.0, to: 2000.0, over_ns: 10 * S },
            Stage { from: 2000.0, to: 200.0, over_ns: 10 * S },
        ];
        let s = Schedule::new(Level::of(&stages), Arrivals::Poisson, 7).until(20 * S, u64::MAX);
        let due = all(s);
        assert!((due.len() as f64 - 21_000.0).abs() < 4.0 * 21_000f64.sqrt(), "{}", due.len());
        let area = |at: u64| area_by(&stages, at);
        assert!(are_exponential(due.windows(2).map(|w| area(w[1].1) - area(w[0].1)).collect()));
    }

    /// Requests called for by a time, integrated in steps of a 20,000th of each stage (the middle of each step, which
    /// is exact for straight lines but for rounding).
    fn area_by(stages: &[Stage], at_ns: u64) -> f64 {
        let (mut area, mut before_ns) = (0.0, 0);
        for stage in stages {
            let length = stage.over_ns.min(at_ns.saturating_sub(before_ns)) as f64 / 1e9;
            let steps = 200;
            let step = length / f64::from(steps);
            let level = |x: f64| stage.from + (stage.to - stage.from) * x / (stage.over_ns as f64 / 1e9);
            if length > 0.0 {
                area += (0..steps).map(|i| level((f64::from(i) + 0.5) * step) * step).sum::<f64>();
            }
            before_ns += stage.over_ns;
        }
        area
    }

    fn some_stages() -> impl Strategy<Value = Vec<Stage>> {
        let level = || prop_oneof![Just(0.0), (0u64..2_000_000_000).prop_map(|n| n as f64 / 1e6)];
        let over = prop_oneof![Just(0), 1u64..3 * S];
        prop::collection::vec((level(), level(), over, any::<bool>()), 1..8).prop_map(|list| {
            let mut stages: Vec<Stage> = Vec::new();
            for (from, to, over_ns, joined) in list {
                // Most stages begin where the previous one ended.
                let before = stages.last().map_or(0.0, |s| s.to);
                stages.push(Stage { from: if joined { before } else { from }, to, over_ns });
            }
            stages
        })
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_whole(
            stages in some_stages(), threads in 1u64..7, seed: u64, poisson: bool, number in 0u64..500, tail: bool
        ) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Constant };
            let end_ns = if tail { 30 * S } else { stages.iter().map(|s| s.over_ns).sum() };
            let whole = Schedule::new(Level::of(&stages), arrivals, seed).until(end_ns, number);
            let mut parts: Vec<_> =
                (0..threads).flat_map(|thread| all(whole.clone().share(thread, threads))).collect();
            parts.sort_unstable();
            prop_assert_eq!(parts, all(whole));
        }

        #[test]
        fn as_many_are_due_as_integration_says(stages in some_stages()) {
            let end_ns: u64 = stages.iter().map(|s| s.over_ns).sum();
            let due = all(Schedule::new(Level::of(&stages), Arrivals::Constant, 1).until(end_ns, u64::MAX));
            prop_assert!(due.windows(2).all(|w| w[0].1 <= w[1].1 && w[0].0 + 1 == w[1].0));
            prop_assert!((due.len() as f64 - area_by(&stages, end_ns)).abs() <= 1.0 + 1e-6);
            for (k, at) in due.iter().step_by(1 + due.len() / 50) {
                // At most k requests by then, and at least k a nanosecond later.
                let (by_then, just_after) = (area_by(&stages, *at), area_by(&stages, at + 1));
                prop_assert!(by_then <= *k as f64 + 1e-6, "{k} at {at}: {by_then}");
                prop_assert!(just_after >= *k as f64 - 1e-6, "{k} at {at}: {just_after}");
            }
        }
    }
}
