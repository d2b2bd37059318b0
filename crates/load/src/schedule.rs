//! When requests fall due in the open model: pure arithmetic from the load's start, free of drift.
//!
//! Request k of a constant rate R falls due at Λ⁻¹(k), where Λ(t) is the number due by t: R·t, or with a ramp
//! over T, R·t²/2T until T and R·(t − T/2) after. Poisson arrivals are the same with k replaced by the sum of
//! k unit exponentials (time change of a Poisson process). A slot of n takes every n-th request of the *same*
//! sequence, so the shares of n slots add up to the whole for every n.

use crate::spec::Arrivals;

const MICRO: u128 = 1_000_000;

/// When request `k` (from 0) falls due, nanoseconds from the start, for a constant rate with a linear ramp.
///
/// Integer arithmetic beyond the ramp: exact to the nanosecond for any k, the rate taken to 1/1,000,000 per s.
pub fn due_ns(k: u64, rate_per_s: f64, ramp_ns: u64) -> u64 {
    let rate_micro = ((rate_per_s * 1e6).round() as u128).max(1);
    let k_micro = u128::from(k) * MICRO;
    // requests due within the ramp: R·T/2
    let in_ramp_micro = rate_micro * u128::from(ramp_ns) / 2_000_000_000;
    if k_micro < in_ramp_micro {
        let ramp = ramp_ns as f64;
        return (2.0 * k as f64 * ramp * 1e9 / rate_per_s).sqrt().floor() as u64;
    }
    ramp_ns.saturating_add(((k_micro - in_ramp_micro) * 1_000_000_000 / rate_micro) as u64)
}

/// The same for a fractional place in the sequence, as Poisson arrivals need it.
fn due_at(place: f64, rate_per_s: f64, ramp_ns: u64) -> u64 {
    let ramp = ramp_ns as f64;
    let in_ramp = rate_per_s * ramp / 2e9;
    if place < in_ramp {
        (2.0 * place * ramp * 1e9 / rate_per_s).sqrt() as u64
    } else {
        (ramp + (place - in_ramp) * 1e9 / rate_per_s) as u64
    }
}

/// One slot's share of a schedule, in order of due time.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate_per_s: f64,
    ramp_ns: u64,
    arrivals: Arrivals,
    /// Number of the next request in the whole sequence.
    next: u64,
    slots: u64,
    /// No request falls due at or after this.
    end_ns: u64,
    /// No request with this number or above.
    end_number: u64,
    /// Poisson: place of request `drawn - 1` in unit-rate time.
    place: f64,
    drawn: u64,
    random: Random,
    peeked: Option<u64>,
}

impl Schedule {
    /// The share of `slot` (from 0) among `slots`. `end_ns` and `end_number` bound the whole sequence.
    pub fn new(rate_per_s: f64, ramp_ns: u64, arrivals: Arrivals, seed: u64) -> Self {
        let mut schedule = Schedule {
            rate_per_s,
            ramp_ns,
            arrivals,
            next: 0,
            slots: 1,
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

    /// Only what falls due before `end_ns`, and only the first `end_number` of the whole sequence.
    pub fn until(mut self, end_ns: u64, end_number: u64) -> Self {
        (self.end_ns, self.end_number) = (end_ns, end_number);
        self.rewind()
    }

    /// Every `slots`-th request, from number `slot` on.
    pub fn share(mut self, slot: u64, slots: u64) -> Self {
        (self.next, self.slots) = (slot, slots);
        self.rewind()
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
        self.next += self.slots;
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
            Arrivals::Constant => due_ns(self.next, self.rate_per_s, self.ramp_ns),
            Arrivals::Poisson => {
                while self.drawn <= self.next {
                    self.place += self.random.exponential();
                    self.drawn += 1;
                }
                due_at(self.place, self.rate_per_s, self.ramp_ns)
            }
        };
        (due < self.end_ns).then_some(due)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, good enough for gaps and choices.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(mut s: Schedule) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| s.take()).collect()
    }

    #[test]
    fn a_constant_rate_is_free_of_drift() {
        let s = Schedule::new(1000.0, 0, Arrivals::Constant, 1).until(10_000_000_000, u64::MAX);
        let due = all(s);
        assert_eq!(due.len(), 10_000);
        assert!(due.iter().all(|(k, ns)| *ns == k * 1_000_000));
        // three a second for a year: still exact
        assert_eq!(due_ns(3 * 31_536_000, 3.0, 0), 31_536_000_000_000_000);
    }

    #[test]
    fn a_ramp_sends_half_of_what_the_full_rate_would() {
        let s = Schedule::new(1000.0, 2_000_000_000, Arrivals::Constant, 1).until(4_000_000_000, u64::MAX);
        let due = all(s);
        assert_eq!(due.len(), 3000);
        let in_first_half = due.iter().filter(|(_, ns)| *ns < 1_000_000_000).count();
        assert_eq!(in_first_half, 250);
        assert!(due.windows(2).all(|w| w[0].1 <= w[1].1));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let s = Schedule::new(1000.0, 0, Arrivals::Poisson, 7).until(u64::MAX, 20_000);
        let due = all(s);
        let mut gaps: Vec<f64> = due.windows(2).map(|w| (w[1].1 - w[0].1) as f64 / 1e6).collect();
        gaps.sort_by(f64::total_cmp);
        // Kolmogorov–Smirnov against 1 − e^−x at the 0.1 % level
        let n = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let truth = 1.0 - (-x).exp();
                (truth - i as f64 / n).abs().max((truth - (i + 1) as f64 / n).abs())
            })
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "{distance}");
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_whole(
            rate in 0.1f64..5000.0, ramp in 0u64..3_000_000_000, slots in 1u64..7, seed: u64, poisson: bool, number in 0u64..500
        ) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Constant };
            let whole = Schedule::new(rate, ramp, arrivals, seed).until(5_000_000_000, number);
            let mut parts: Vec<_> =
                (0..slots).flat_map(|slot| all(whole.clone().share(slot, slots))).collect();
            parts.sort_unstable();
            prop_assert_eq!(parts, all(whole));
        }
    }
}
