//! How many requests were in flight, and connections open, at one time over all load threads.
//!
//! Each thread tells the most it had in each tenth of a second; those of one tenth are added up, not those of the
//! whole load: threads seldom have their most at the same time. Within a tenth the sum is an upper bound.

use std::collections::VecDeque;

use crate::recorder::BATCH_NS;

/// Tenths that are kept, since threads tell of the same one at different times.
const KEPT: usize = 64;

/// Requests in flight, connections open.
pub(super) type Levels = (u64, u64);

/// The most of both.
pub(super) struct Peaks {
    most: Levels,
    /// What each thread had when it told last.
    levels: Vec<Levels>,
    /// By number, the most that each thread had; of those that have not told, what they had before.
    tenths: VecDeque<(u64, Vec<Levels>)>,
}

impl Peaks {
    /// Of so many threads.
    pub fn new(threads: usize) -> Self {
        Peaks { most: (0, 0), levels: vec![(0, 0); threads], tenths: VecDeque::new() }
    }

    /// A thread tells the most it had in the tenth that began then, and what it had at its end.
    pub fn add(&mut self, thread: usize, from_ns: u64, most: Levels, end: Levels) {
        let number = from_ns / BATCH_NS;
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
        self.levels[thread] = end;
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

    #[test]
    fn threads_that_are_busy_at_different_times_are_not_added_up() {
        let mut peaks = Peaks::new(2);
        for tenth in 0..10 {
            let busy = |at: bool| if at { (50, 60) } else { (1, 10) };
            peaks.add(0, tenth * BATCH_NS, busy(tenth == 3), (1, 10));
            peaks.add(1, tenth * BATCH_NS, busy(tenth == 7), (1, 10));
        }
        assert_eq!(peaks.most(), (51, 70));
        // One tells late of a tenth, another passes some over: it had what it had.
        peaks.add(0, 10 * BATCH_NS, (40, 40), (30, 30));
        peaks.add(0, 14 * BATCH_NS, (30, 30), (30, 30));
        peaks.add(1, 10 * BATCH_NS, (2, 20), (2, 20));
        assert_eq!(peaks.most(), (51, 70));
        peaks.add(1, 14 * BATCH_NS, (40, 50), (2, 20));
        assert_eq!(peaks.most(), (70, 80));
    }
}
