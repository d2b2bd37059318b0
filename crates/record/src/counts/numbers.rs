//! Numbers that a plan captures from answers: counted in buckets of fixed relative width, whatever they measure.
//!
//! Each power of two has 128 buckets, on either side of zero, so a value is known to within 1/256 of itself; values
//! below 2⁻³² count as zero, and values beyond 2⁶⁴ go into the last bucket. Buckets come in pages of one power of two
//! that are made when a value first falls there: memory is bounded by the range of the values and not by their number,
//! and after the first few values nothing is allocated. The smallest, the largest and the sum are exact. All have the
//! same bounds, so merging is integer addition.

use serde::{Deserialize, Serialize};

use crate::counts::dependence::Dependence;
use crate::counts::histogram::rank_of;
pub use crate::counts::quantile::samples_needed;
use crate::counts::quantile::{Estimate, Estimates, quantile_of, ranks};

/// Buckets per power of two.
const SUB: usize = 128;
/// Bits of the mantissa that select a bucket.
const SUB_BITS: u32 = 7;
/// The lowest distinguishable power of two, and the first beyond the range.
const FROM: i32 = -32;
const TO: i32 = 64;
/// Powers of two on one side of zero.
const PAGES: usize = (TO - FROM) as usize;

/// Counts of one power of two.
type Block = Option<Box<[u64; SUB]>>;

/// Numbers counted in buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Below zero and above it, by power of two; empty before the first number.
    below: Vec<Block>,
    above: Vec<Block>,
    zeros: u64,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

/// Page, and bucket within it; `None` for zero.
#[inline]
fn place_of(size: f64) -> Option<(usize, usize)> {
    let bits = size.to_bits();
    let power = ((bits >> 52) & 0x7ff) as i32 - 1023;
    if power < FROM {
        return None;
    }
    if power >= TO {
        return Some((PAGES - 1, SUB - 1));
    }
    Some(((power - FROM) as usize, (bits >> (52 - SUB_BITS)) as usize & (SUB - 1)))
}

/// The middle of a bucket.
fn middle_of(page: usize, bucket: usize) -> f64 {
    2f64.powi(page as i32 + FROM) * (1.0 + (bucket as f64 + 0.5) / SUB as f64)
}

#[cold]
fn make(pages: &mut Vec<Block>, page: usize) {
    if pages.is_empty() {
        pages.resize_with(PAGES, || None);
    }
    pages[page] = Some(Box::new([0; SUB]));
}

impl Numbers {
    /// Counts one value; non-finite values are ignored.
    #[inline]
    pub fn record(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        // Two values near the largest one would add up to infinity, which no reader accepts.
        self.sum = (self.sum + value).clamp(f64::MIN, f64::MAX);
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        let pages = if value < 0.0 { &mut self.below } else { &mut self.above };
        let Some((page, bucket)) = place_of(value.abs()) else {
            self.zeros += 1;
            return;
        };
        if !matches!(pages.get(page), Some(Some(_))) {
            make(pages, page);
        }
        if let Some(Some(counts)) = pages.get_mut(page) {
            counts[bucket] += 1;
        }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest, exactly.
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest, exactly.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The value at a rank from 1, to within 1/256 of itself.
    pub fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut left = rank.checked_sub(1).filter(|_| rank <= self.count)?;
        let mut passes = |count: u64| {
            let passes = left >= count;
            if passes {
                left -= count;
            }
            !passes
        };
        let within = |value: f64| value.clamp(self.min, self.max);
        for (page, counts) in self.below.iter().enumerate().rev() {
            let Some(counts) = counts else { continue };
            for (bucket, count) in counts.iter().enumerate().rev() {
                if passes(*count) {
                    return Some(within(-middle_of(page, bucket)));
                }
            }
        }
        if passes(self.zeros) {
            return Some(within(0.0));
        }
        for (page, counts) in self.above.iter().enumerate() {
            let Some(counts) = counts else { continue };
            for (bucket, count) in counts.iter().enumerate() {
                if passes(*count) {
                    return Some(within(middle_of(page, bucket)));
                }
            }
        }
        None
    }

    /// Adds another's values.
    pub fn merge(&mut self, other: &Numbers) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (other.min, other.max);
        }
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        self.count += other.count;
        self.sum = (self.sum + other.sum).clamp(f64::MIN, f64::MAX);
        self.zeros += other.zeros;
        for (mine, theirs) in [(&mut self.below, &other.below), (&mut self.above, &other.above)] {
            for (page, counts) in theirs.iter().enumerate() {
                let Some(counts) = counts else { continue };
                if !matches!(mine.get(page), Some(Some(_))) {
                    make(mine, page);
                }
                if let Some(Some(sums)) = mine.get_mut(page) {
                    sums.iter_mut().zip(counts.iter()).for_each(|(sum, count)| *sum += count);
                }
            }
        }
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        if self.count == 0 {
            return;
        }
        for pages in [&mut self.below, &mut self.above] {
            pages.iter_mut().flatten().for_each(|counts| counts.fill(0));
        }
        (self.zeros, self.count, self.sum, self.min, self.max) = (0, 0, 0.0, 0.0, 0.0);
    }
}

/// What is known exactly of [`Numbers`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactNumbers {
    /// How many are zero.
    pub zeros: u64,
    /// Their sum.
    pub sum: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// For the compact form.
impl Numbers {
    /// Positions and counts of the non-empty buckets: numbers above zero first.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        [&self.above, &self.below].into_iter().enumerate().flat_map(|(side, pages)| {
            let made = pages.iter().enumerate().filter_map(|(page, counts)| Some((page, counts.as_ref()?)));
            made.flat_map(move |(page, counts)| {
                let first = (side * PAGES + page) * SUB;
                counts.iter().enumerate().filter(|(_, n)| **n > 0).map(move |(i, n)| (first + i, *n))
            })
        })
    }

    /// What the buckets do not contain.
    pub(crate) fn exact(&self) -> ExactNumbers {
        ExactNumbers { zeros: self.zeros, sum: self.sum, min: self.min, max: self.max }
    }

    /// From what `counts` and `exact` return; `None` if they contradict one another.
    pub(crate) fn from_counts(counts: &[(usize, u64)], exact: ExactNumbers) -> Option<Numbers> {
        let ExactNumbers { zeros, sum, min, max } = exact;
        if ![sum, min, max].iter().all(|n| n.is_finite()) || min > max {
            return None;
        }
        let mut numbers = Numbers { zeros, count: zeros, sum, min, max, ..Numbers::default() };
        for (place, count) in counts {
            let (page, bucket) = (place / SUB, place % SUB);
            let (pages, page) = match page.checked_sub(PAGES) {
                None => (&mut numbers.above, page),
                Some(page) if page < PAGES => (&mut numbers.below, page),
                Some(_) => return None,
            };
            if !matches!(pages.get(page), Some(Some(_))) {
                make(pages, page);
            }
            if let Some(Some(counts)) = pages.get_mut(page) {
                counts[bucket] += count;
            }
            numbers.count = numbers.count.checked_add(*count)?;
        }
        Some(numbers)
    }
}

/// A captured number over a load, in its own unit. Percentiles are known to within 1/256 of themselves, and `null`
/// with fewer than 10 / (1 − q) values; `p99_estimate` and `p99_interval` then give what is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NumberSummary {
    /// Values captured from answers to requests that fell due in the window.
    pub count: u64,
    /// Mean.
    pub mean: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 75th percentile.
    pub p75: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Estimates of percentiles that are `null` because there are too few values.
    #[serde(flatten)]
    pub few: Estimates,
}

/// Percentiles of captured numbers; fewer than of times.
const OF_NUMBERS: [&str; 6] = ["p50", "p75", "p90", "p95", "p99", "p99_9"];

impl NumberSummary {
    /// From numbers whose requests have this autocorrelation.
    pub fn of(numbers: &Numbers, dependence: Dependence) -> Self {
        let count = numbers.count();
        let at = |quantile: f64| {
            let known = count >= samples_needed(quantile);
            numbers.at_rank(rank_of(quantile, count)).filter(|_| known)
        };
        let mut few = Estimates::default();
        let inflation = dependence.inflation();
        for (name, quantile) in OF_NUMBERS.into_iter().filter_map(|name| Some((name, quantile_of(name)?))) {
            if count > 0 && count < samples_needed(quantile) {
                let ranks = ranks(count, quantile, inflation);
                let value = numbers.at_rank(rank_of(quantile, count));
                let of = |rank: Option<u64>| numbers.at_rank(rank?);
                few.set(name, Estimate { value, low: of(ranks.low), high: of(ranks.high) });
                few.widened = (inflation > 1.0).then_some(inflation);
            }
        }
        NumberSummary {
            few,
            count,
            mean: numbers.mean(),
            min: numbers.min(),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            max: numbers.max(),
        }
    }
}

impl NumberSummary {
    /// Names of its figures, in the order of tables.
    pub const FIGURES: [&str; 10] =
        ["count", "mean", "min", "p50", "p75", "p90", "p95", "p99", "p99_9", "max"];

    /// A figure by its name; `None` if there is no such name.
    pub fn figure(&self, name: &str) -> Option<Option<f64>> {
        Some(match name {
            "count" => Some(self.count as f64),
            "mean" => self.mean,
            "min" => self.min,
            "p50" => self.p50,
            "p75" => self.p75,
            "p90" => self.p90,
            "p95" => self.p95,
            "p99" => self.p99,
            "p99_9" => self.p99_9,
            "max" => self.max,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f64]) -> Numbers {
        let mut numbers = Numbers::default();
        values.iter().for_each(|v| numbers.record(*v));
        numbers
    }

    #[test]
    fn numbers_of_all_kinds() {
        let numbers = of(&[9.5, -3.0, 0.0, 1e300, f64::NAN, f64::INFINITY, 1e-300, -1e-9]);
        assert_eq!((numbers.count(), numbers.min(), numbers.max()), (6, Some(-3.0), Some(1e300)));
        let near = |rank, expect: f64| {
            let got = numbers.at_rank(rank).unwrap();
            assert!((got - expect).abs() <= expect.abs() / 256.0, "{rank}: {got} is not {expect}");
        };
        near(1, -3.0);
        near(2, -1e-9);
        assert_eq!((numbers.at_rank(3), numbers.at_rank(4)), (Some(0.0), Some(0.0)));
        near(5, 9.5);
        // Beyond the distinguishable range.
        assert!(numbers.at_rank(6).unwrap() > 1e19);
        assert_eq!((numbers.at_rank(0), numbers.at_rank(7)), (None, None));
        assert_eq!((Numbers::default().min(), Numbers::default().mean()), (None, None));
        assert_eq!(of(&[2.0, 4.0]).mean(), Some(3.0));
        let large = of(&[f64::MAX, f64::MAX]);
        assert!(
            Numbers::from_counts(&[], large.exact()).is_some() && large.mean().is_some_and(f64::is_finite)
        );
    }

    proptest! {
        #[test]
        fn ranks_are_known_to_a_256th_and_merging_is_exact(
            mut values in prop::collection::vec(prop_oneof![-1e6f64..1e6, -1.0f64..1.0, Just(0.0)], 1..200),
            cut in 0usize..200,
        ) {
            let whole = of(&values);
            let cut = cut.min(values.len());
            let mut merged = of(&values[..cut]);
            merged.merge(&of(&values[cut..]));
            values.sort_by(f64::total_cmp);
            for (i, value) in values.iter().enumerate() {
                let got = whole.at_rank(i as u64 + 1).unwrap();
                prop_assert!((got - value).abs() <= value.abs() / 256.0 + 1e-9, "{got} is not {value}");
                prop_assert_eq!(merged.at_rank(i as u64 + 1), Some(got));
            }
            prop_assert_eq!((merged.count(), merged.min(), merged.max()), (whole.count(), whole.min(), whole.max()));
            merged.clear();
            prop_assert_eq!((merged.count(), merged.at_rank(1)), (0, None));
        }
    }
}
