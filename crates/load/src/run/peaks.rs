//! Peaks of requests in flight and of connections open, over all load threads or over all parts of a load.
//!
//! Each thread or part reports its maximum in each tenth of a second. Maxima are summed per tenth, not over the whole
//! load: threads seldom peak at the same time. Within a tenth the sum is an upper bound, and also over a longer
//! interval that is reported in one piece. A tenth is summed once all have reported it, so the order of reports does
//! not matter.

use std::collections::VecDeque;
use std::ops::Range;

use crate::measure::delta::{DELTA_NS, Gauges};

/// What a worker reported of a tenth.
#[derive(Clone, Copy)]
struct Reported {
    /// Its maximum.
    peaks: Gauges,
    /// Its gauges at the end.
    end: Gauges,
}

/// A tenth that all workers have reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenth {
    /// Its number, from the load's start.
    pub number: u64,
    /// The sum of all workers' maxima.
    pub peaks: Gauges,
}

/// Maxima reported for tenths of a second.
pub(super) struct Peaks {
    /// Number of the first tenth that is not complete.
    first: u64,
    /// From tenth `first` on, what each worker reported.
    tenths: VecDeque<Vec<Option<Reported>>>,
    /// Each worker's gauges at the end of the last complete tenth that it reported.
    gauges: Vec<Gauges>,
    /// For each worker, the number of the first tenth that it has not fully reported.
    reported: Vec<u64>,
}

impl Peaks {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Self {
        let (gauges, reported) = (vec![Gauges::default(); workers], vec![0; workers]);
        Peaks { first: 0, tenths: VecDeque::new(), gauges, reported }
    }

    /// For a load that is joined at `ns`: tenths before are others'.
    pub fn starting_at(self, ns: u64) -> Self {
        Peaks { first: ns / DELTA_NS, ..self }
    }

    /// Adds a worker's maximum over an interval, and its gauges at the end.
    pub fn add(&mut self, worker: usize, ns: Range<u64>, interval_peaks: Gauges, end: Gauges) {
        let first = (ns.start / DELTA_NS).max(self.first);
        let last = (ns.end.max(ns.start + 1) - 1) / DELTA_NS;
        for number in first..=last {
            let at = (number - self.first) as usize;
            while self.tenths.len() <= at {
                self.tenths.push_back(vec![None; self.gauges.len()]);
            }
            let reported = &mut self.tenths[at][worker];
            let peaks = reported.map_or(interval_peaks, |before| before.peaks.larger(interval_peaks));
            *reported = Some(Reported { peaks, end });
        }
        self.reported[worker] = self.reported[worker].max(ns.end / DELTA_NS);
    }

    /// Marks a worker as ended: it reports nothing more.
    pub fn ended(&mut self, worker: usize) {
        self.reported[worker] = u64::MAX;
    }

    /// The next tenth that all workers have reported. The gauges of a worker that skipped it have not changed.
    pub fn complete(&mut self) -> Option<Tenth> {
        let all = self.reported.iter().min()?;
        let tenth = self.tenths.pop_front_if(|_| self.first < *all)?;
        let mut peaks = Gauges::default();
        for (gauges, reported) in self.gauges.iter_mut().zip(tenth) {
            let unchanged = Reported { peaks: *gauges, end: *gauges };
            let reported = reported.unwrap_or(unchanged);
            peaks = peaks.plus(reported.peaks);
            *gauges = reported.end;
        }
        self.first += 1;
        Some(Tenth { number: self.first - 1, peaks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenth(number: u64) -> Range<u64> {
        number * DELTA_NS..(number + 1) * DELTA_NS
    }

    fn gauges(in_flight: u64, open: u64) -> Gauges {
        Gauges { in_flight, open }
    }

    fn add(peaks: &mut Peaks, worker: usize, ns: Range<u64>, most: (u64, u64), end: (u64, u64)) {
        peaks.add(worker, ns, gauges(most.0, most.1), gauges(end.0, end.1));
    }

    fn complete(number: u64, in_flight: u64, open: u64) -> Option<Tenth> {
        Some(Tenth { number, peaks: gauges(in_flight, open) })
    }

    /// The maximum over all complete tenths.
    fn most(peaks: &mut Peaks) -> (u64, u64) {
        let tenths = std::iter::from_fn(|| peaks.complete());
        let most = tenths.fold(Gauges::default(), |most, tenth| most.larger(tenth.peaks));
        (most.in_flight, most.open)
    }

    #[test]
    fn threads_that_are_busy_at_different_times_are_not_added_up() {
        let mut peaks = Peaks::new(2);
        for number in 0..10 {
            let busy = |at: bool| if at { (50, 60) } else { (1, 10) };
            add(&mut peaks, 0, tenth(number), busy(number == 3), (1, 10));
            add(&mut peaks, 1, tenth(number), busy(number == 7), (1, 10));
        }
        assert_eq!(most(&mut peaks), (51, 70));
        // One worker reports a tenth late, another skips some: its gauges stay as they were.
        add(&mut peaks, 0, tenth(10), (40, 40), (30, 30));
        add(&mut peaks, 0, tenth(14), (30, 30), (30, 30));
        assert_eq!(peaks.complete(), None);
        add(&mut peaks, 1, tenth(10), (2, 20), (2, 20));
        assert_eq!((peaks.complete(), peaks.complete()), (complete(10, 42, 60), None));
        add(&mut peaks, 1, tenth(14), (40, 50), (2, 20));
        assert_eq!(peaks.complete(), complete(11, 32, 50));
        assert_eq!(most(&mut peaks), (70, 80));
        // One worker reports several tenths at once: its peak may be in any of them.
        add(&mut peaks, 0, tenth(20), (1, 1), (1, 1));
        add(&mut peaks, 0, tenth(24), (60, 60), (1, 1));
        add(&mut peaks, 1, 20 * DELTA_NS..25 * DELTA_NS, (50, 50), (2, 20));
        assert_eq!(most(&mut peaks), (110, 110));
        // One worker ends; the other's gauges still count.
        add(&mut peaks, 0, 25 * DELTA_NS..25 * DELTA_NS + 7, (9, 9), (0, 0));
        peaks.ended(0);
        add(&mut peaks, 1, tenth(25), (8, 8), (8, 8));
        add(&mut peaks, 1, tenth(26), (7, 7), (7, 7));
        assert_eq!(most(&mut peaks), (17, 17));
        assert_eq!(peaks.complete(), None);
    }

    proptest! {
        /// The sums do not depend on the order in which workers report.
        #[test]
        fn the_order_of_reports_does_not_matter(
            reports in prop::collection::vec((0usize..3, 0u64..50, 0u64..50), 1..60), turns in prop::collection::vec(0usize..3, 200)
        ) {
            let mut own: Vec<VecDeque<(Range<u64>, Gauges, Gauges)>> = vec![VecDeque::new(); 3];
            let mut next = [0u64; 3];
            for (worker, most, end) in reports {
                let most_of_both = gauges(most.max(end), most.max(end));
                own[worker].push_back((tenth(next[worker]), most_of_both, gauges(end, end)));
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
