//! The histogram every duration goes into: log-linear, fixed bounds, exact to merge.
//!
//! The layout is HdrHistogram's with three significant digits (values below 2,048 ns are kept exactly, above that
//! every power of two has 1,024 buckets, so a value is known to 1/1,024), over 1 ns to 2^45 ns (9.7 h). All histograms
//! share the same bounds, so merging is integer addition: associative, commutative, exact. It is not the
//! `hdrhistogram` crate because the engine needs a recorder without branches for auto-resizing, an exact sum, and a
//! reset that touches only what was used: the 288 KiB of counts stay unmapped until a value falls there, so a
//! histogram costs a few pages.

/// Buckets per power of two.
const SUB_BITS: u32 = 10;
const SUB: u64 = 1 << SUB_BITS;
const MAX_BITS: u32 = 45;
/// The largest distinguishable value; larger ones are counted in the last bucket (their exact maximum is kept).
pub const MAX_NS: u64 = (1 << MAX_BITS) - 1;
const BUCKETS: usize = (SUB as usize) * (MAX_BITS - SUB_BITS + 1) as usize;

/// Durations in nanoseconds, counted in buckets of at most 1/1,024 relative width.
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    /// Exact sum of all recorded values.
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Histogram {
    /// Touches only the buckets in use, as everything here does.
    fn clone(&self) -> Self {
        let mut new = Self::new();
        new.merge(self);
        new
    }
}

/// The bucket of a value.
#[inline]
fn index_of(value: u64) -> usize {
    let value = value.min(MAX_NS);
    // Values below 2·SUB map to themselves; above, the top SUB_BITS+1 bits select the bucket.
    let shift = (63 - (value | SUB).leading_zeros()) - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// The largest value of a bucket.
fn highest_of(index: usize) -> u64 {
    if index < 2 * SUB as usize {
        return index as u64;
    }
    let shift = (index >> SUB_BITS) as u32 - 1;
    let sub = (index & (SUB as usize - 1)) as u64 + SUB;
    ((sub + 1) << shift) - 1
}

/// The smallest value of a bucket.
fn lowest_of(index: usize) -> u64 {
    if index < 2 * SUB as usize {
        return index as u64;
    }
    let shift = (index >> SUB_BITS) as u32 - 1;
    ((index & (SUB as usize - 1)) as u64 + SUB) << shift
}

impl Histogram {
    /// An empty histogram. Its memory is reserved, not touched.
    pub fn new() -> Self {
        Histogram {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts one value in nanoseconds.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.record_n(value_ns, 1);
    }

    /// Counts a value `n` times.
    #[inline]
    pub fn record_n(&mut self, value_ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.counts[index_of(value_ns)] += n;
        self.count += n;
        self.sum_ns += u128::from(value_ns) * u128::from(n);
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// No value was counted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The exact smallest value, if any.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The exact largest value, if any.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The exact sum.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The exact mean, if any value was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The population standard deviation, from bucket middles (to 1/1,024 of each value).
    pub fn stdev_ns(&self) -> Option<f64> {
        let mean = self.mean_ns()?;
        let square: f64 = self.buckets().map(|b| (b.middle_ns() - mean).powi(2) * b.count as f64).sum();
        Some((square / self.count as f64).sqrt())
    }

    /// The share of values within one standard deviation of the mean.
    pub fn within_stdev(&self) -> Option<f64> {
        let (mean, stdev) = (self.mean_ns()?, self.stdev_ns()?);
        // Half a bucket of slack, so that a histogram of one value lies wholly within its own deviation of 0.
        let within: u64 = self
            .buckets()
            .filter(|b| (b.middle_ns() - mean).abs() <= stdev + (b.high_ns - b.low_ns) as f64 / 2.0 + 0.5)
            .map(|b| b.count)
            .sum();
        Some(within as f64 / self.count as f64)
    }

    /// The value at a rank counted from 1: the highest value of the bucket it falls in, within the exact
    /// minimum and maximum. `None` if the rank is 0 or above the count.
    pub fn at_rank(&self, rank: u64) -> Option<u64> {
        if rank == 0 || rank > self.count {
            return None;
        }
        let mut seen = 0;
        for bucket in self.buckets() {
            seen += bucket.count;
            if seen >= rank {
                return Some(bucket.high_ns.clamp(self.min_ns, self.max_ns));
            }
        }
        None
    }

    /// The value at a quantile in 0..=1 (nearest rank: the smallest value with at least that share at or below it).
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        self.at_rank(rank_of(quantile, self.count))
    }

    /// Adds every count of another. Exact.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        for i in index_of(other.min_ns)..=index_of(other.max_ns) {
            if other.counts[i] != 0 {
                self.counts[i] += other.counts[i];
            }
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Empties it, writing only to buckets that were used.
    pub fn clear(&mut self) {
        if self.count > 0 {
            for slot in &mut self.counts[index_of(self.min_ns)..=index_of(self.max_ns)] {
                if *slot != 0 {
                    *slot = 0;
                }
            }
        }
        self.count = 0;
        self.sum_ns = 0;
        self.min_ns = u64::MAX;
        self.max_ns = 0;
    }

    /// The non-empty buckets, in order of value.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts().map(|(i, count)| Bucket { low_ns: lowest_of(i), high_ns: highest_of(i), count })
    }
}

/// For the compact form.
impl Histogram {
    /// The non-empty buckets' positions and counts, in order.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let range = match self.count {
            0 => 0..0,
            _ => index_of(self.min_ns)..index_of(self.max_ns) + 1,
        };
        range.filter(|&i| self.counts[i] != 0).map(|i| (i, self.counts[i]))
    }

    /// Sets the contents from these counts, the sum and the extremes; `None`, and empty, if they contradict one
    /// another.
    pub(crate) fn set_counts(
        &mut self,
        counts: &[(usize, u64)],
        sum_ns: u128,
        min_ns: u64,
        max_ns: u64,
    ) -> Option<()> {
        self.clear();
        let ends = (counts.first()?.0, counts.last()?.0);
        if min_ns > max_ns || ends != (index_of(min_ns), index_of(max_ns)) {
            return None;
        }
        let all = counts.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count))?;
        let times = |ns: u64| u128::from(ns) * u128::from(all);
        let is_ordered = counts.is_sorted_by_key(|(index, _)| *index);
        if !is_ordered || !(times(min_ns)..=times(max_ns)).contains(&sum_ns) {
            return None;
        }
        // All indices are in bounds: they lie between the two ends, which exist.
        counts.iter().for_each(|(index, count)| self.counts[*index] += count);
        (self.count, self.sum_ns, self.min_ns, self.max_ns) = (all, sum_ns, min_ns, max_ns);
        Some(())
    }
}

/// The rank (from 1) of a quantile among `count` values. Rounded up; the small slack keeps 0.9 × 10 at 9.
pub fn rank_of(quantile: f64, count: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    let exact = quantile.clamp(0.0, 1.0) * count as f64;
    ((exact - 1e-9 * count as f64).ceil() as u64).clamp(1, count)
}

/// One non-empty bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its smallest value.
    pub low_ns: u64,
    /// Its largest value.
    pub high_ns: u64,
    /// How many values it holds.
    pub count: u64,
}

impl Bucket {
    fn middle_ns(self) -> f64 {
        (self.low_ns as f64 + self.high_ns as f64) / 2.0
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count
            && self.sum_ns == other.sum_ns
            && self.min_ns() == other.min_ns()
            && self.max_ns() == other.max_ns()
            && self.buckets().eq(other.buckets())
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram({} values, {:?}..{:?} ns)", self.count, self.min_ns(), self.max_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        values.iter().for_each(|v| h.record(*v));
        h
    }

    #[test]
    fn a_copy_is_the_same_and_its_own() {
        let mut one = Histogram::new();
        assert_eq!(one.clone(), one);
        one.record(77);
        one.record_n(5_000_000, 3);
        let mut copy = one.clone();
        assert_eq!(copy, one);
        assert_eq!((copy.sum_ns(), copy.min_ns(), copy.max_ns()), (15_000_077, Some(77), Some(5_000_000)));
        copy.record(1);
        assert_eq!((copy.count(), one.count()), (5, 4));
    }

    #[test]
    fn buckets_tile_the_range() {
        for i in 0..BUCKETS {
            assert_eq!(index_of(lowest_of(i)), i);
            assert_eq!(index_of(highest_of(i)), i);
            if i > 0 {
                assert_eq!(highest_of(i - 1) + 1, lowest_of(i));
            }
        }
        assert_eq!(highest_of(BUCKETS - 1), MAX_NS);
    }

    #[test]
    fn above_the_range_is_counted_and_the_maximum_kept() {
        let h = of(&[1, u64::MAX / 2]);
        assert_eq!((h.count(), h.max_ns()), (2, Some(u64::MAX / 2)));
        assert!(h.quantile_ns(1.0).unwrap() <= h.max_ns().unwrap());
    }

    #[test]
    fn ranks_are_nearest_rank() {
        let h = of(&[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
        assert_eq!(h.quantile_ns(0.5), Some(50));
        assert_eq!(h.quantile_ns(0.9), Some(90));
        assert_eq!(h.quantile_ns(0.91), Some(100));
        assert_eq!(h.quantile_ns(0.0), Some(10));
        assert_eq!(Histogram::new().quantile_ns(0.5), None);
    }

    #[test]
    fn one_value_is_within_its_deviation() {
        let h = of(&[123_456_789; 7]);
        assert_eq!(h.within_stdev(), Some(1.0));
    }

    proptest! {
        #[test]
        fn merge_of_shards_equals_one_recorder(values in prop::collection::vec(0u64..1 << 46, 1..400), shards in 1usize..8) {
            let mut parts = vec![Histogram::new(); shards];
            for (i, v) in values.iter().enumerate() {
                parts[i % shards].record(*v);
            }
            let mut merged = Histogram::new();
            parts.iter().rev().for_each(|p| merged.merge(p));
            prop_assert_eq!(&merged, &of(&values));
            merged.clear();
            prop_assert_eq!(merged, Histogram::new());
        }

        #[test]
        fn quantiles_are_within_one_part_in_a_thousand(mut values in prop::collection::vec(0u64..1 << 44, 1..400), q in 0.0f64..=1.0) {
            let h = of(&values);
            values.sort_unstable();
            let truth = values[rank_of(q, values.len() as u64) as usize - 1];
            let got = h.quantile_ns(q).unwrap();
            prop_assert!(got >= truth);
            prop_assert!(got - truth <= truth / 1000 + 1);
        }
    }
}
