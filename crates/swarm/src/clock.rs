//! How far an agent's clock is from the coordinator's, and how certain that is.
//!
//! An agent asks the coordinator for the time. The agent notes when it asked and when the answer arrived, the
//! coordinator notes when the question arrived and when it answered. No message arrives before it was sent, so each
//! exchange bounds the offset from both sides, however unequal the two delays are; of several exchanges, the tightest
//! bounds apply. Nothing is assumed about the delays. (The bounds are those of D. L. Mills, *Network Time Protocol*,
//! RFC 5905 §8, without its assumption that both delays are equal.)
//!
//! Two clocks may run at different speeds, so an exchange's bounds widen with age.

/// Maximum difference in clock speed, in parts per million: as much as Linux lets NTP slew a clock.
pub const DRIFT_PPM: u64 = 500;

/// One exchange; each time is in nanoseconds on the clock of whoever noted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the agent asked.
    pub asked_ns: u64,
    /// When the question reached the coordinator.
    pub received_ns: u64,
    /// When the coordinator answered.
    pub answered_ns: u64,
    /// When the answer reached the agent.
    pub returned_ns: u64,
}

/// The coordinator's clock minus the agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The midpoint of the possible range.
    pub estimate_ns: i64,
    /// The true offset differs from the estimate by at most this.
    pub uncertainty_ns: u64,
}

/// The bounds known from all exchanges so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    known: Option<KnownRange>,
}

/// A range that holds the true offset.
#[derive(Clone, Copy, Debug)]
struct KnownRange {
    least_ns: i64,
    most_ns: i64,
    /// The time on the agent's clock at which it held.
    at_ns: u64,
}

impl Bounds {
    /// Adds an exchange. One that contradicts itself is ignored: a clock was set, or a message was forged.
    pub fn add(&mut self, exchange: Exchange) {
        let Exchange { asked_ns, received_ns, answered_ns, returned_ns } = exchange;
        if returned_ns < asked_ns || answered_ns < received_ns {
            return;
        }
        let (least, most) = (distance(answered_ns, returned_ns), distance(received_ns, asked_ns));
        if least > most {
            return;
        }
        let (least, most) = match self.widened(returned_ns) {
            // The tighter bound on each side. If the ranges do not overlap, a clock was set: only the newer range is
            // valid.
            Some((low, high)) if low.max(least) <= high.min(most) => (low.max(least), high.min(most)),
            _ => (least, most),
        };
        self.known = Some(KnownRange { least_ns: least, most_ns: most, at_ns: returned_ns });
    }

    /// The offset at a time on the agent's clock; `None` before the first exchange.
    pub fn at(&self, now_ns: u64) -> Option<Offset> {
        let (least, most) = self.widened(now_ns)?;
        let width = most.abs_diff(least);
        // The sum of the two bounds may overflow.
        let estimate_ns = least.saturating_add_unsigned(width / 2);
        Some(Offset { estimate_ns, uncertainty_ns: width.div_ceil(2) })
    }

    /// The bounds, widened by how far the clocks may have drifted apart since.
    fn widened(&self, now_ns: u64) -> Option<(i64, i64)> {
        let KnownRange { least_ns, most_ns, at_ns } = self.known?;
        let apart_ns = (u128::from(now_ns.abs_diff(at_ns)) * u128::from(DRIFT_PPM)).div_ceil(1_000_000);
        let apart_ns = i64::try_from(apart_ns).unwrap_or(i64::MAX);
        Some((least_ns.saturating_sub(apart_ns), most_ns.saturating_add(apart_ns)))
    }
}

impl Offset {
    /// Converts a time on the coordinator's clock to the agent's clock.
    pub fn here(self, there_ns: u64) -> u64 {
        there_ns.saturating_add_signed(self.estimate_ns.saturating_neg())
    }
}

fn distance(there_ns: u64, here_ns: u64) -> i64 {
    let apart = i128::from(there_ns) - i128::from(here_ns);
    apart.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    #[test]
    fn unequal_ways_are_within_the_uncertainty() {
        // The agent is 7 s behind; questions take 20 ms, answers take no time.
        let mut bounds = Bounds::default();
        bounds.add(Exchange {
            asked_ns: S,
            received_ns: 8 * S + 20 * MS,
            answered_ns: 8 * S + 20 * MS,
            returned_ns: S + 20 * MS,
        });
        let offset = bounds.at(S + 20 * MS).unwrap();
        assert_eq!(offset, Offset { estimate_ns: (7 * S + 10 * MS) as i64, uncertainty_ns: 10 * MS });
        assert_eq!(offset.here(20 * S), 13 * S - 10 * MS);
        assert_eq!(Bounds::default().at(0), None);
    }

    #[test]
    fn an_exchange_that_cannot_be_is_left_out_and_a_clock_that_was_set_is_followed() {
        let mut bounds = Bounds::default();
        let exchange = |asked_ns, received_ns, answered_ns, returned_ns| Exchange {
            asked_ns,
            received_ns,
            answered_ns,
            returned_ns,
        };
        bounds.add(exchange(100, 50, 40, 110));
        bounds.add(exchange(100, 50, 70, 90));
        bounds.add(exchange(100, 50, 90, 110));
        assert_eq!(bounds.at(100), None);
        bounds.add(exchange(100, 205, 205, 110));
        assert_eq!(bounds.at(110), Some(Offset { estimate_ns: 100, uncertainty_ns: 5 }));
        bounds.add(exchange(200, 1_205, 1_205, 210));
        assert_eq!(bounds.at(210), Some(Offset { estimate_ns: 1_000, uncertainty_ns: 5 }));
    }

    proptest! {
        /// Whatever the delays, the offset and the clock speeds, the true offset is within the stated bounds.
        #[test]
        fn the_truth_is_within_the_bounds(
            ahead_s in -500i64..=500,
            drift_ppm in -(DRIFT_PPM as i64)..=DRIFT_PPM as i64,
            exchanges in prop::collection::vec((0u64..50 * MS, 0u64..50 * MS, 0u64..MS, 0u64..3 * S), 1..20),
        ) {
            let began = 1_000 * S;
            // The coordinator's clock as a function of the agent's.
            let there = |here: u64| {
                let apart = i128::from(here - began) * i128::from(drift_ppm) / 1_000_000;
                (i128::from(here) + i128::from(ahead_s) * i128::from(S) + apart) as u64
            };
            let (mut bounds, mut now) = (Bounds::default(), began);
            for (question, answer, work, pause) in exchanges {
                let (asked, received) = (now, now + question);
                let (answered, returned) = (received + work, received + work + answer);
                bounds.add(Exchange {
                    asked_ns: asked,
                    received_ns: there(received),
                    answered_ns: there(answered),
                    returned_ns: returned,
                });
                now = returned + pause;
                let offset = bounds.at(now).expect("an exchange");
                let truth = there(now) as i64 - now as i64;
                // Two roundings.
                prop_assert!(truth.abs_diff(offset.estimate_ns) <= offset.uncertainty_ns + 2, "{:?} {}", offset, truth);
            }
        }
    }
}
