//! Percentiles, mean and extremes of durations. Some durations are censored: only a lower bound of them is known. A
//! percentile that falls among these has a lower bound and no value; one of too few samples has an interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counts::dependence::Dependence;
use crate::counts::histogram::{Histogram, rank_of};
use crate::counts::quantile::{Estimate, Estimates, PERCENTILES, ranks, samples_needed};

/// Durations in milliseconds. A percentile is `null` with fewer than 10 / (1 − q) samples, when `p99_estimate` and
/// `p99_interval` give what is known, or if it falls among censored samples, when `over_ms` has its lower bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Samples, censored ones included.
    pub count: u64,
    /// Censored samples: durations known only to be at least this long.
    pub censored: u64,
    /// Mean, with censored samples at their age.
    pub mean: Option<f64>,
    /// Standard deviation; `null` with censored samples, which may be near the mean or far from it.
    pub stdev: Option<f64>,
    /// Share within one standard deviation of the mean, likewise.
    pub within_stdev: Option<f64>,
    /// Smallest of the samples that are known; if all are censored, the smallest age.
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
    /// 99.99th percentile.
    pub p99_99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Lower bounds of values that are `null` or only known from below, by name.
    pub over_ms: BTreeMap<String, f64>,
    /// Estimates of percentiles that are `null` because there are too few samples.
    #[serde(flatten)]
    pub few: Estimates,
}

impl Distribution {
    /// From exact durations alone, each independent of the others.
    pub fn of(known: &Histogram) -> Self {
        Self::with_censored(known, &Histogram::new())
    }

    /// From exact durations and right-censored ones, each independent of the others.
    pub fn with_censored(known: &Histogram, censored: &Histogram) -> Self {
        Self::dependent(known, censored, Dependence::NONE)
    }

    /// From exact durations and right-censored ones with this autocorrelation.
    ///
    /// A quantile lies between two bounds: censored values taken at their age (`low`), and taken as endless (`high`).
    /// If the two differ by more than 1 %, the quantile is only known to be at least `low`; otherwise `high` is
    /// reported, which never flatters.
    pub fn dependent(known: &Histogram, censored: &Histogram, dependence: Dependence) -> Self {
        let mut all = known.clone();
        all.merge(censored);
        let ms = |ns: u64| ns as f64 / 1e6;
        let spread = censored.is_empty().then_some(known);
        let mut out = Distribution {
            count: all.count(),
            censored: censored.count(),
            mean: all.mean_ns().map(|v| v / 1e6),
            stdev: spread.and_then(Histogram::stdev_ns).map(|v| v / 1e6),
            within_stdev: spread.and_then(Histogram::within_stdev),
            // A censored request may take longer than any other, so its age is not the minimum if there is a real one.
            min: known.min_ns().or(all.min_ns()).map(ms),
            ..Distribution::default()
        };
        for (name, quantile) in PERCENTILES {
            if all.count() < samples_needed(quantile) {
                out.estimate(name, quantile, [known, &all], dependence);
                continue;
            }
            let rank = rank_of(quantile, all.count());
            match known_at(known, &all, rank) {
                Some(value) => *out.percentile_mut(name) = Some(value),
                None => {
                    out.over_ms.insert(name.to_owned(), ms(all.at_rank(rank).unwrap_or(0)));
                }
            }
        }
        match all.max_ns() {
            // However young a censored request is, it may have taken longer than any other.
            Some(max) if censored.is_empty() => out.max = Some(ms(max)),
            Some(max) => {
                out.over_ms.insert("max".to_owned(), ms(max));
            }
            None => {}
        }
        if let (Some(mean), true) = (out.mean, out.censored > 0) {
            out.over_ms.insert("mean".to_owned(), mean);
        }
        if let (Some(min), true) = (out.min, known.is_empty()) {
            out.over_ms.insert("min".to_owned(), min);
        }
        out
    }

    /// What too few samples show about a percentile. Censored values count at their age for the lower end, and as
    /// endless for the upper end. If all above the lower end are endless, the percentile falls among the censored.
    fn estimate(&mut self, name: &str, quantile: f64, [known, all]: [&Histogram; 2], dependence: Dependence) {
        if all.is_empty() {
            return;
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let inflation = dependence.inflation();
        let ranks = ranks(all.count(), quantile, inflation);
        if let Some(low) = ranks.low.filter(|low| known.at_rank(*low).is_none()) {
            self.over_ms.insert(name.to_owned(), ms(all.at_rank(low).unwrap_or(0)));
            return;
        }
        let estimate = Estimate {
            value: known_at(known, all, rank_of(quantile, all.count())),
            low: Some(ranks.low.and_then(|rank| all.at_rank(rank)).map_or(0.0, ms)),
            high: ranks.high.and_then(|rank| known.at_rank(rank)).map(ms),
        };
        self.few.set(name, estimate);
        self.few.widened = (inflation > 1.0).then_some(inflation);
    }

    /// The largest sample, censored or not: a percentile without an upper bound may be this or more.
    pub fn largest_seen(&self) -> Option<f64> {
        self.max.or_else(|| self.over_ms.get("max").copied())
    }

    fn percentile_mut(&mut self, name: &str) -> &mut Option<f64> {
        match name {
            "p50" => &mut self.p50,
            "p75" => &mut self.p75,
            "p90" => &mut self.p90,
            "p95" => &mut self.p95,
            "p99" => &mut self.p99,
            "p99_9" => &mut self.p99_9,
            "p99_99" => &mut self.p99_99,
            _ => unreachable!("only names of PERCENTILES"),
        }
    }

    /// A figure by its name (`p50` … `p99_99`, `max`, `min`, `mean`, `stdev`), if there is such a name.
    pub fn figure(&self, name: &str) -> Option<Option<f64>> {
        Some(match name {
            "p50" => self.p50,
            "p75" => self.p75,
            "p90" => self.p90,
            "p95" => self.p95,
            "p99" => self.p99,
            "p99_9" => self.p99_9,
            "p99_99" => self.p99_99,
            "max" => self.max,
            "min" => self.min,
            "mean" => self.mean,
            "stdev" => self.stdev,
            _ => return None,
        })
    }
}

/// The value at a rank in milliseconds, if it is the same to within 1 % whether censored values are taken at their age
/// or as endless; `None`: it never ended.
fn known_at(known: &Histogram, all: &Histogram, rank: u64) -> Option<f64> {
    let (low, high) = (all.at_rank(rank)?, known.at_rank(rank)?);
    (high as f64 <= low as f64 * 1.01).then(|| high as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hist(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut h = Histogram::new();
        values.into_iter().for_each(|v| h.record(v));
        h
    }

    #[test]
    fn percentiles_among_censored_are_null_with_a_bound() {
        // 60 answered in 1 ms, 40 abandoned after 1,000 ms
        let known = hist(std::iter::repeat_n(1_000_000, 60));
        let censored = hist(std::iter::repeat_n(1_000_000_000, 40));
        let d = Distribution::with_censored(&known, &censored);
        assert_eq!((d.count, d.censored), (100, 40));
        assert_eq!(d.p50, Some(1.0));
        assert_eq!((d.p75, d.over_ms["p75"]), (None, 1000.0));
        assert_eq!((d.max, d.over_ms["max"]), (None, 1000.0));
        // 100 samples support p90, not p95; but its lower end, too, is one that never ended
        assert_eq!((d.over_ms["p90"], d.over_ms["p95"], d.over_ms["p99_99"]), (1000.0, 1000.0, 1000.0));
        assert!(d.few.is_empty());
    }

    #[test]
    fn what_never_ended_leaves_the_spread_unknown() {
        let (known, none) = (hist([1_000_000, 3_000_000]), Histogram::new());
        let d = Distribution::of(&known);
        assert!(d.stdev.is_some() && d.within_stdev.is_some(), "{d:?}");
        // One abandoned after 500 µs might have taken as long as the others, or an hour.
        let d = Distribution::with_censored(&known, &hist([500_000]));
        assert_eq!((d.stdev, d.within_stdev, d.min), (None, None, Some(1.0)));
        assert!(d.over_ms.contains_key("mean") && !d.over_ms.contains_key("min"), "{d:?}");
        // Of samples that are all censored the smallest, too, is only known to be at least its age.
        let d = Distribution::with_censored(&none, &hist([500_000, 700_000]));
        assert_eq!((d.min, d.over_ms["min"], d.stdev), (Some(0.5), 0.5, None));
        assert!(Distribution::with_censored(&none, &none).over_ms.is_empty());
    }

    #[test]
    fn few_samples_with_censored_ones_are_open_above() {
        // 199 answered in 1 … 199 ms, one abandoned after 30 s: the upper end of p90 is known, those of p95 and above
        // are not.
        let known = hist((1..=199).map(|i| i * 1_000_000));
        let d = Distribution::with_censored(&known, &hist([30_000_000_000]));
        let near = |value: Option<f64>, expect: f64| (value.unwrap() - expect).abs() <= expect / 1000.0;
        assert!(near(d.p95, 190.0), "{d:?}");
        let p99 = d.few.of("p99").unwrap();
        assert!(near(p99.value, 198.0) && near(p99.low, 195.0) && p99.high.is_none(), "{p99:?}");
        // The slowest is the one that never ended: there is no estimate, but still a lower end.
        let p99_9 = d.few.of("p99_9").unwrap();
        assert!(p99_9.value.is_none() && near(p99_9.low, 199.0) && p99_9.high.is_none(), "{p99_9:?}");
        assert_eq!(d.largest_seen(), Some(30_000.0));
        // p99.99 lies above the 200th of 200 at 95 %: it is among those that never ended.
        assert_eq!(d.over_ms.keys().collect::<Vec<_>>(), ["max", "mean", "p99_99"]);
    }

    #[test]
    fn requests_that_hang_together_widen_and_are_said() {
        let known = hist((1..=90).map(|i| i * 1_000_000));
        let plain = Distribution::of(&known);
        let wide = Distribution::dependent(&known, &Histogram::new(), Dependence::known(3.0));
        let (a, b) = (plain.few.of("p90").unwrap(), wide.few.of("p90").unwrap());
        assert!(b.low < a.low && a.high.is_some() && b.high.is_none(), "{a:?} {b:?}");
        assert_eq!((plain.few.widened, wide.few.widened), (None, Some(3.0)));
        let json = serde_json::to_value(&wide).unwrap();
        assert_eq!(
            (&json["p90"], &json["p90_interval"][1]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
        assert_eq!(json["p90_interval"][0].as_f64(), b.low);
        assert_eq!(serde_json::from_value::<Distribution>(json).unwrap(), wide);
    }

    #[test]
    fn a_few_young_in_flight_ones_do_not_hide_the_median() {
        let known = hist((0..100_000).map(|i| 1_000_000 + i * 10));
        let censored = hist((0..50).map(|i| i * 20_000));
        let d = Distribution::with_censored(&known, &censored);
        assert!((d.p50.unwrap() - 1.5).abs() < 0.02, "{d:?}");
        // the censored hide the tail: 50 of 100,050 could be beyond p99.95
        assert_eq!(d.p99_99, None);
        assert!(d.over_ms["p99_99"] > 1.99);
    }

    #[test]
    fn too_few_samples_give_no_percentile() {
        let d = Distribution::of(&hist([1_000_000; 19]));
        assert_eq!((d.p50, d.max, d.mean), (None, Some(1.0), Some(1.0)));
        assert!(d.over_ms.is_empty());
        assert_eq!(samples_needed(0.5), 20);
        assert_eq!(samples_needed(0.9999), 100_000);
    }
}
