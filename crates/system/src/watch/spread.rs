//! Schedules many readings: spread over the interval, a few at a time, and never when requests of a load are due.
//!
//! Rates are usually round, so requests are due at whole seconds of the load's clock and at even fractions of them.
//! Fifty readings in a row at those moments would delay the very requests they are meant to explain. This module only
//! computes the schedule; it waits for nothing and reads nothing.

use crate::clock::TrialClock;

/// How many targets are read in a row: read alone, each would pay for waking the thread and for cold caches, which
/// costs more than the reading itself; in a row they take a fraction of a millisecond.
const IN_A_ROW: u64 = 5;
/// Readings are on a grid with this step: requests of every rate that divides 100/s are due on its lines, and the
/// reading thread is not woken more often.
const STEP_NS: u64 = 10_000_000;
/// The offset behind a grid line: the golden ratio is no even fraction of anything, so higher rates are rarely hit
/// either.
const BEHIND_LINE_NS: u64 = 6_180_340;

/// The phases of the readings in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    interval_ns: u64,
    slots: u64,
}

impl Spread {
    /// For this number of targets, some of which share a slot.
    pub fn new(things: usize, interval_ns: u64) -> Spread {
        let interval_ns = interval_ns.max(STEP_NS);
        let slots = (things as u64).div_ceil(IN_A_ROW).clamp(1, Self::room(interval_ns));
        Spread { interval_ns, slots }
    }

    /// Steps available for readings. Both ends of the interval are left out, so that a slightly late reading still
    /// falls into its own second.
    fn room(interval_ns: u64) -> u64 {
        (interval_ns / STEP_NS * 17 / 20).max(1)
    }

    /// The slot of the n-th target.
    pub fn slot_of(self, n: usize) -> u64 {
        n as u64 % self.slots
    }

    /// A slot's offset from the start of an interval, nanoseconds.
    fn phase_ns(self, slot: u64) -> u64 {
        let first = self.interval_ns / STEP_NS / 20;
        let step = first + (2 * slot + 1) * Self::room(self.interval_ns) / (2 * self.slots);
        step * STEP_NS + BEHIND_LINE_NS
    }

    /// The first slot at or after `ns`, and its time.
    pub fn next(self, clock: TrialClock, ns: u64) -> (u64, u64) {
        let interval_ns = i128::from(self.interval_ns);
        let since_ns = i128::from(ns) - i128::from(clock.origin_ns);
        let (begin_ns, into_ns) =
            (since_ns.div_euclid(interval_ns) * interval_ns, since_ns.rem_euclid(interval_ns) as u64);
        let found = (0..self.slots).find(|slot| self.phase_ns(*slot) >= into_ns);
        let (slot, begin_ns) = found.map_or((0, begin_ns + interval_ns), |slot| (slot, begin_ns));
        let at_ns = i128::from(clock.origin_ns) + begin_ns + i128::from(self.phase_ns(slot));
        (slot, at_ns.max(0) as u64)
    }

    /// The slot to read after the one due at `due_ns`: the next one, so that a late thread skips nothing, except slots
    /// more than an interval old.
    pub fn after(self, clock: TrialClock, due_ns: u64, now_ns: u64) -> (u64, u64) {
        self.next(clock, (due_ns + 1).max(now_ns.saturating_sub(self.interval_ns)))
    }
}

/// The phase of the n-th reader with its own thread: all phases are apart from one another, however many there are.
pub(crate) fn phase_beside(n: usize, interval_ns: u64) -> u64 {
    const GOLDEN: f64 = 0.618_034;
    let all = Spread::new(usize::MAX, interval_ns);
    all.phase_ns(((n as f64 * GOLDEN).fract() * all.slots as f64) as u64)
}

/// The first moment at or after `ns` at which no request of a round rate is due.
pub(crate) fn off_line(clock: TrialClock, ns: u64) -> u64 {
    let into_ns = (i128::from(ns) - i128::from(clock.origin_ns)).rem_euclid(i128::from(STEP_NS)) as u64;
    if into_ns <= BEHIND_LINE_NS {
        ns - into_ns + BEHIND_LINE_NS
    } else {
        ns - into_ns + STEP_NS + BEHIND_LINE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_record::text::time::SECOND_NS;

    /// The moments at which slots are due on the clock, over some intervals.
    fn moments(spread: Spread, intervals: u64) -> Vec<(u64, u64)> {
        let clock = TrialClock { origin_ns: 7_300_000_000 };
        let mut all = Vec::new();
        let mut next = spread.next(clock, clock.origin_ns);
        for _ in 0..intervals * spread.slots {
            all.push((next.0, next.1 - clock.origin_ns));
            next = spread.after(clock, next.1, next.1);
        }
        all
    }

    #[test]
    fn readings_are_spread_and_never_at_whole_seconds() {
        for things in [1, 2, 3, 10, 52, 85, 200] {
            for interval_ns in [SECOND_NS, SECOND_NS / 2, SECOND_NS / 10] {
                let spread = Spread::new(things, interval_ns);
                let all = moments(spread, 3);
                // Each slot once per interval, in turn, and well apart.
                let slots: Vec<u64> = all.iter().map(|(slot, _)| *slot).collect();
                let turns: Vec<u64> = (0..3).flat_map(|_| 0..spread.slots).collect();
                assert_eq!(slots, turns, "{things} in {interval_ns}");
                assert!(all.windows(2).all(|w| w[1].1 - w[0].1 >= STEP_NS), "{things} in {interval_ns}");
                // No reading when requests of 1/s, 10/s or 100/s are due, or just before.
                let into_ns = |at_ns: u64| at_ns % (SECOND_NS / 100);
                assert!(all.iter().all(|(_, at_ns)| (3_000_000..7_000_000).contains(&into_ns(*at_ns))));
            }
        }
    }

    #[test]
    fn each_thing_keeps_its_phase_and_no_slot_is_crowded() {
        for (things, slots, most) in [(1, 1, 1), (5, 1, 5), (6, 2, 3), (52, 11, 5), (500, 85, 6)] {
            let spread = Spread::new(things, SECOND_NS);
            let crowd = |slot: u64| (0..things).filter(|n| spread.slot_of(*n) == slot).count();
            let crowds: Vec<usize> = (0..spread.slots).map(crowd).collect();
            assert_eq!((spread.slots, crowds.iter().max()), (slots, Some(&most)), "{things}: {crowds:?}");
        }
        let of_first: Vec<u64> = moments(Spread::new(50, SECOND_NS), 3)
            .iter()
            .filter(|(s, _)| *s == 0)
            .map(|(_, at)| *at)
            .collect();
        assert!(of_first.windows(2).all(|w| w[1] - w[0] == SECOND_NS), "{of_first:?}");
    }

    #[test]
    fn what_reads_by_itself_keeps_apart_as_well() {
        let mut phases: Vec<u64> = (1..20).map(|n| phase_beside(n, SECOND_NS)).collect();
        phases.sort_unstable();
        assert!(phases.windows(2).all(|w| w[1] - w[0] >= 2 * STEP_NS), "{phases:?}");
        assert!(phases.iter().all(|ns| ns % STEP_NS == BEHIND_LINE_NS && *ns < 910_000_000), "{phases:?}");
    }

    #[test]
    fn a_late_reader_skips_no_slot_but_does_not_repeat_whole_intervals() {
        let (clock, spread) = (TrialClock { origin_ns: 0 }, Spread::new(20, SECOND_NS));
        let (slot, due_ns) = spread.next(clock, 0);
        assert_eq!(slot, 0);
        // 600 ms late: the remaining slots of this second follow at once.
        assert_eq!(spread.after(clock, due_ns, due_ns + 600_000_000).0, 1);
        // 3 s late: continues with the slots of the last second.
        let (slot, at_ns) = spread.after(clock, due_ns, due_ns + 3 * SECOND_NS);
        assert_eq!((slot, at_ns), (0, due_ns + 2 * SECOND_NS));
        // Also before the clock's zero.
        let later = TrialClock { origin_ns: 5 * SECOND_NS };
        assert_eq!(spread.next(later, 2 * SECOND_NS + 1).1, 2 * SECOND_NS + due_ns);
    }
}
