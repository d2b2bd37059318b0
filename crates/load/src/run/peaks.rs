//! Peaks of requests in flight and of connections open, over all load threads or over all parts of a load.
//!
//! Each thread or part reports its maximum in each tenth of a second. Maxima are summed per tenth, not over the whole
//! load: threads seldom peak at the same time. Within a tenth the sum is an upper bound, and also over a longer
//! interval that is reported in one piece. A tenth is summed once all have reported it, so the order of reports does
//! not matter.

use std::collections::VecDeque;
use std::ops::Range;

use crate::measure::delta::DELTA_NS;

/// Requests in flight, connections open.
pub(super) type Levels = (u64, u64);

/// Maxima reported for tenths of a second.
pub(super) struct Peaks {
    /// Number of the first tenth that is not complete.
    first: u64,
    /// From tenth `first` on, what each worker reported: its maximum, and its level at the end.
    tenths: VecDeque<Vec<Option<(Levels, Levels)>>>,
    /// Each worker's level at the end of the last complete tenth that it reported.
    levels: Vec<Levels>,
    /// For each worker, the number of the first tenth that it has not fully reported.
    reported: Vec<u64>,
}

impl Peaks {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Self {
        let (levels, reported) = (vec![(0, 0); workers], vec![0; workers]);
        Peaks { first: 0, tenths: VecDeque::new(), levels, reported }
    }

    /// Adds a worker's maximum over an interval, and its level at the end.
    pub fn add(&mut self, worker: usize, ns: Range<u64>, most: Levels, end: Levels) {
        let first = (ns.start / DELTA_NS).max(self.first);
        let last = (ns.end.max(ns.start + 1) - 1) / DELTA_NS;
        for number in first..=last {
            let at = (number - self.first) as usize;
            while self.tenths.len() <= at {
                self.tenths.push_back(vec![None; self.levels.len()]);
            }
            let of = &mut self.tenths[at][worker];
            *of = Some((of.map_or(most, |(before, _)| larger(before, most)), end));
        }
        self.reported[worker] = self.reported[worker].max(ns.end / DELTA_NS);
    }

    /// Marks a worker as ended: it reports nothing more.
    pub fn ended(&mut self, worker: usize) {
        self.reported[worker] = u64::MAX;
    }

    /// The next tenth that all workers have reported: its number, and the sum of their maxima. A worker that skipped it
    /// has kept its level.
    pub fn complete(&mut self) -> Option<(u64, Levels)> {
        let all = self.reported.iter().min()?;
        let tenth = self.tenths.pop_front_if(|_| self.first < *all)?;
        let mut sum = (0, 0);
        for (level, reported) in self.levels.iter_mut().zip(tenth) {
            let (most, end) = reported.unwrap_or((*level, *level));
            sum = (sum.0 + most.0, sum.1 + most.1);
            *level = end;
        }
        self.first += 1;
        Some((self.first - 1, sum))
    }
}

/// The larger of each level.
pub(super) fn larger(a: Levels, b: Levels) -> Levels {
    (a.0.max(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenth(number: u64) -> Range<u64> {
        number * DELTA_NS..(number + 1) * DELTA_NS
    }

    fn most(peaks: &mut Peaks) -> Levels {
        std::iter::from_fn(|| peaks.complete()).fold((0, 0), |most, (_, sum)| larger(most, sum))
    }

    #[test]
    fn threads_that_are_busy_at_different_times_are_not_added_up() {
        let mut peaks = Peaks::new(2);
        for number in 0..10 {
            let busy = |at: bool| if at { (50, 60) } else { (1, 10) };
            peaks.add(0, tenth(number), busy(number == 3), (1, 10));
            peaks.add(1, tenth(number), busy(number == 7), (1, 10));
        }
        assert_eq!(most(&mut peaks), (51, 70));
        // One worker reports a tenth late, another skips some: its level stays as it was.
        peaks.add(0, tenth(10), (40, 40), (30, 30));
        peaks.add(0, tenth(14), (30, 30), (30, 30));
        assert_eq!(peaks.complete(), None);
        peaks.add(1, tenth(10), (2, 20), (2, 20));
        assert_eq!((peaks.complete(), peaks.complete()), (Some((10, (42, 60))), None));
        peaks.add(1, tenth(14), (40, 50), (2, 20));
        assert_eq!(peaks.complete(), Some((11, (32, 50))));
        assert_eq!(most(&mut peaks), (70, 80));
        // One worker reports several tenths at once: its peak may be in any of them.
        peaks.add(0, tenth(20), (1, 1), (1, 1));
        peaks.add(0, tenth(24), (60, 60), (1, 1));
        peaks.add(1, 20 * DELTA_NS..25 * DELTA_NS, (50, 50), (2, 20));
        assert_eq!(most(&mut peaks), (110, 110));
        // One worker ends; the other's level still counts.
        peaks.add(0, 25 * DELTA_NS..25 * DELTA_NS + 7, (9, 9), (0, 0));
        peaks.ended(0);
        peaks.add(1, tenth(25), (8, 8), (8, 8));
        peaks.add(1, tenth(26), (7, 7), (7, 7));
        assert_eq!(most(&mut peaks), (17, 17));
        assert_eq!(peaks.complete(), None);
    }

    proptest! {
        /// The sums do not depend on the order in which workers report.
        #[test]
        fn the_order_of_reports_does_not_matter(
            reports in prop::collection::vec((0usize..3, 0u64..50, 0u64..50), 1..60), turns in prop::collection::vec(0usize..3, 200)
        ) {
            let mut own: Vec<VecDeque<(Range<u64>, Levels, Levels)>> = vec![VecDeque::new(); 3];
            let mut next = [0u64; 3];
            for (worker, most, end) in reports {
                own[worker].push_back((tenth(next[worker]), (most.max(end), most.max(end)), (end, end)));
                // Every fifth is skipped.
                next[worker] += 1 + u64::from(most.is_multiple_of(5));
            }
            let sums = |order: &mut dyn Iterator<Item = usize>| {
                let (mut peaks, mut left, mut sums) = (Peaks::new(3), own.clone(), Vec::new());
                for worker in order {
                    match left[worker].pop_front() {
                        Some((ns, most, end)) => peaks.add(worker, ns, most, end),
                        None => peaks.ended(worker),
                    }
                    sums.extend(std::iter::from_fn(|| peaks.complete()));
                }
                sums
            };
            let in_turn = sums(&mut (0..3 * 61).map(|i| i % 3));
            let at_random = sums(&mut turns.into_iter().chain((0..3 * 61).map(|i| i / 61)));
            prop_assert_eq!(in_turn, at_random);
        }
    }
}
