//! Change points: where a figure changed for good, over runs of one plan, oldest first.
//!
//! A series is split where the energy distance between its two sides is largest (Székely and Rizzo 2013), and the
//! sides are split again as long as the difference is more than chance: e-divisive, Matteson and James 2014, which
//! Apache Otava uses for the same purpose. Chance is estimated by permuting the values within each segment. The unit
//! is the run: trials of one run share a day, and say nothing about other days.
//!
//! Assumption: without a change, runs could have come in any order. A slow drift is therefore found as a step or two.

use loadlab_record::random::{GAMMA, mixed};

/// Fewest runs on each side of a change: a single run may just be an outlier.
const MIN_RUNS: usize = 2;
/// Permutations to compare with: at least this many, and enough that `AS_EXTREME` of them may be as extreme.
const FEWEST_ORDERS: usize = 999;
const AS_EXTREME: f64 = 10.0;
const MOST_ORDERS: usize = 9_999;
/// Longer series are judged by their latest runs: the work grows with the cube of their number.
pub const MOST_RUNS: usize = 200;

/// A shift of the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// Index of the first run with the new value, from the oldest.
    pub at: usize,
    /// Mean from the previous change, or the beginning, up to this one.
    pub before: f64,
    /// Mean from this change up to the next, or the end.
    pub after: f64,
    /// Probability of such a change if there is none.
    pub chance: f64,
}

/// The changes in a series of finite values, oldest first, each significant at this level. Only the latest
/// [`MOST_RUNS`] are examined. `seed` draws the permutations; the same series always gives the same answer.
pub fn change_points(values: &[f64], level: f64, seed: u64) -> Vec<ChangePoint> {
    let skipped = values.len().saturating_sub(MOST_RUNS);
    let values = &values[skipped..];
    let orders =
        ((AS_EXTREME / level.max(f64::MIN_POSITIVE)).ceil() as usize).clamp(FEWEST_ORDERS, MOST_ORDERS);
    let mut random = Random(seed);
    // Ends of segments, each with the chance of the change there.
    let mut ends: Vec<(usize, f64)> = vec![(values.len(), 1.0)];
    loop {
        let segments = segments(&ends);
        let Some((at, distance)) = best(values, &segments) else { break };
        let mut shuffled = values.to_vec();
        let mut as_extreme = 1;
        for _ in 0..orders {
            for (from, to) in &segments {
                random.shuffle(&mut shuffled[*from..*to]);
            }
            as_extreme += usize::from(best(&shuffled, &segments).is_some_and(|(_, other)| other >= distance));
            // The chance can no longer drop to the level.
            if as_extreme as f64 > level * (orders + 1) as f64 {
                break;
            }
        }
        let chance = as_extreme as f64 / (orders + 1) as f64;
        if chance > level {
            break;
        }
        ends.push((at, chance));
        ends.sort_unstable_by_key(|(end, _)| *end);
    }
    let segments = segments(&ends);
    let mean = |(from, to): (usize, usize)| values[from..to].iter().sum::<f64>() / (to - from) as f64;
    let change = |(index, pair): (usize, &[(usize, usize)])| ChangePoint {
        at: skipped + pair[1].0,
        before: mean(pair[0]),
        after: mean(pair[1]),
        chance: ends[index].1,
    };
    segments.windows(2).enumerate().map(change).collect()
}

fn segments(ends: &[(usize, f64)]) -> Vec<(usize, usize)> {
    let starts = std::iter::once(0).chain(ends.iter().map(|(end, _)| *end));
    starts.zip(ends.iter().map(|(end, _)| *end)).collect()
}

/// Where the two sides of a segment differ most, over all segments, and by how much.
fn best(values: &[f64], segments: &[(usize, usize)]) -> Option<(usize, f64)> {
    let of = |(from, to): &(usize, usize)| divided(&values[*from..*to]).map(|(at, by)| (from + at, by));
    segments.iter().filter_map(of).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The best split of one segment. The right side may end before the segment does, so that each of several changes is
/// found.
fn divided(values: &[f64]) -> Option<(usize, f64)> {
    let count = values.len();
    if count < 2 * MIN_RUNS {
        return None;
    }
    // Sums of distances over all pairs within values[..i] × values[..j].
    let mut sums = vec![0.0; (count + 1) * (count + 1)];
    let at = |i: usize, j: usize| i * (count + 1) + j;
    for i in 0..count {
        for j in 0..count {
            let distance = (values[i] - values[j]).abs();
            sums[at(i + 1, j + 1)] = distance + sums[at(i, j + 1)] + sums[at(i + 1, j)] - sums[at(i, j)];
        }
    }
    let within = |from: usize, to: usize| {
        let all = sums[at(to, to)] - sums[at(from, to)] - sums[at(to, from)] + sums[at(from, from)];
        let pairs = ((to - from) * (to - from - 1)) as f64;
        all / pairs
    };
    let between = |cut: usize, to: usize| {
        let all = sums[at(cut, to)] - sums[at(cut, cut)];
        all / (cut * (to - cut)) as f64
    };
    let mut found: Option<(usize, f64)> = None;
    for cut in MIN_RUNS..=count - MIN_RUNS {
        for to in cut + MIN_RUNS..=count {
            let (left, right) = (cut as f64, (to - cut) as f64);
            let energy = 2.0 * between(cut, to) - within(0, cut) - within(cut, to);
            let scaled = left * right / (left + right) * energy;
            if found.is_none_or(|(_, most)| scaled > most) {
                found = Some((cut, scaled));
            }
        }
    }
    found
}

/// A generator of permutations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        let number = mixed(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// A number below `end`, which is small: the bias is far below what the number of permutations resolves.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    fn shuffle(&mut self, values: &mut [f64]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}
