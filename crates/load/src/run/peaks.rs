//! The most requests in flight, and connections open, at one time over all load threads.
//!
//! Each thread reports its maximum in each tenth of a second. Maxima are summed per tenth, not over the whole load:
//! threads seldom peak at the same time. Within a tenth the sum is an upper bound, and so it is over a longer interval
//! that a thread reports in one piece.

use std::collections::VecDeque;
use std::ops::Range;

use crate::measure::batch::BATCH_NS;

/// Tenths that are kept, since threads report the same one at different times.
const KEPT: usize = 64;

/// Requests in flight, connections open.
pub(super) type Levels = (u64, u64);

/// The most of both.
pub(super) struct Peaks {
    most: Levels,
    /// What each thread had when it reported last.
    levels: Vec<Levels>,
    /// By number, each thread's maximum; for threads that have not reported, the level they had before.
    tenths: VecDeque<(u64, Vec<Levels>)>,
}

impl Peaks {
    /// For `threads` threads.
    pub fn new(threads: usize) -> Self {
        Peaks { most: (0, 0), levels: vec![(0, 0); threads], tenths: VecDeque::new() }
    }

    /// A thread reports its maximum over the tenths of an interval, and its level at the end.
    pub fn add(&mut self, thread: usize, ns: Range<u64>, most: Levels, end: Levels) {
        let first = ns.start / BATCH_NS;
        let last = (ns.end.max(ns.start + 1) - 1) / BATCH_NS;
        // Earlier ones are not kept.
        for number in first.max((last + 1).saturating_sub(KEPT as u64))..=last {
            self.add_to_tenth(thread, number, most);
        }
        self.levels[thread] = end;
    }

    fn add_to_tenth(&mut self, thread: usize, number: u64, most: Levels) {
        let known = self.tenths.iter().rposition(|(n, _)| *n == number);
        let at = known.unwrap_or_else(|| {
            if self.tenths.len() == KEPT {
                self.tenths.pop_front();
            }
            self.tenths.push_back((number, self.levels.clone()));
            self.tenths.len() - 1
        });
        let of_tenth = &mut self.tenths[at].1;
        of_tenth[thread] = larger(of_tenth[thread], most);
        let sum = of_tenth.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        self.most = larger(self.most, sum);
    }

    /// The most at one time so far.
    pub fn most(&self) -> Levels {
        self.most
    }
}

fn larger(a: Levels, b: Levels) -> Levels {
    (a.0.max(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenth(number: u64) -> Range<u64> {
        number * BATCH_NS..(number + 1) * BATCH_NS
    }

    #[test]
    fn threads_that_are_busy_at_different_times_are_not_added_up() {
        let mut peaks = Peaks::new(2);
        for number in 0..10 {
            let busy = |at: bool| if at { (50, 60) } else { (1, 10) };
            peaks.add(0, tenth(number), busy(number == 3), (1, 10));
            peaks.add(1, tenth(number), busy(number == 7), (1, 10));
        }
        assert_eq!(peaks.most(), (51, 70));
        // One reports a tenth late, another skips some: its level stays as it was.
        peaks.add(0, tenth(10), (40, 40), (30, 30));
        peaks.add(0, tenth(14), (30, 30), (30, 30));
        peaks.add(1, tenth(10), (2, 20), (2, 20));
        assert_eq!(peaks.most(), (51, 70));
        peaks.add(1, tenth(14), (40, 50), (2, 20));
        assert_eq!(peaks.most(), (70, 80));
        // One reports several at once: its peak may be in any of them.
        peaks.add(0, tenth(20), (1, 1), (1, 1));
        peaks.add(0, tenth(24), (60, 60), (1, 1));
        peaks.add(1, 20 * BATCH_NS..25 * BATCH_NS, (50, 50), (2, 20));
        assert_eq!(peaks.most(), (110, 110));
    }
}
