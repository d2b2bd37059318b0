//! What few samples show about a percentile: an estimate, and the interval that contains it at 95 %.
//!
//! The interval extends from one order statistic to another, and is valid whatever the distribution: how many of `n`
//! independent samples lie beyond the true quantile is binomial (G. J. Hahn and W. Q. Meeker, *Statistical Intervals*,
//! Wiley 1991, section 5.2). If the sample for its upper end does not exist, the interval is open. Autocorrelated
//! samples count as fewer ([`crate::counts::dependence`]).

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The percentiles of documents: name and quantile.
pub const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99_9", 0.999),
    ("p99_99", 0.9999),
];

/// Probability that a quantile lies beyond one end of its interval.
const BEYOND: f64 = 0.025;

/// How many samples a quantile needs before it is reported as a number: ten beyond it.
pub fn samples_needed(quantile: f64) -> u64 {
    (10.0 / (1.0 - quantile)).round() as u64
}

/// The percentile of that name (`p99_9`), if there is one.
pub fn quantile_of(name: &str) -> Option<f64> {
    PERCENTILES.iter().find(|(n, _)| *n == name).map(|(_, quantile)| *quantile)
}

/// How many samples there are for a percentile, and how many it needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FewSamples {
    /// Number of samples there are.
    pub samples: u64,
    /// Number of samples at which the percentile is reported as a number, which decides any expectation about it.
    pub needed: u64,
    /// Time that `needed` samples take at the measured rate, seconds; `null` if it is not known.
    pub needed_s: Option<f64>,
}

impl FewSamples {
    /// For this many samples, taken over this time.
    pub fn of(samples: u64, quantile: f64, lasted_s: f64) -> FewSamples {
        let needed = samples_needed(quantile);
        let takes_s = (samples > 0 && lasted_s > 0.0).then(|| lasted_s * needed as f64 / samples as f64);
        FewSamples { samples, needed, needed_s: takes_s }
    }
}

/// Ranks (from 1) of the two samples between which a quantile lies at 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// The lower one; `None`: there are too few samples below.
    pub low: Option<u64>,
    /// The upper one; `None`: there are too few samples above, and the quantile may lie beyond all of them.
    pub high: Option<u64>,
}

/// The ranks for a quantile (between 0 and 1) of `count` samples, not many more than [`samples_needed`], every
/// `inflation` of which count as one independent sample (1: all are). Never narrower than for independent ones.
pub fn ranks(count: u64, quantile: f64, inflation: f64) -> Ranks {
    let plain = independent(count, quantile);
    let fewer = ((count as f64 / inflation.max(1.0)).floor() as u64).max(1);
    if count == 0 || fewer >= count {
        return plain;
    }
    // Each of the fewer represents a group of samples, and its rank any rank in the group: the outermost is taken.
    let group = count as f64 / fewer as f64;
    let wide = independent(fewer, quantile);
    let low = wide.low.map(|rank| ((rank - 1) as f64 * group).floor() as u64 + 1);
    let high = wide.high.map(|rank| ((rank as f64 * group).ceil() as u64).min(count));
    Ranks {
        low: plain.low.zip(low).map(|(a, b)| a.min(b)),
        high: plain.high.zip(high).map(|(a, b)| a.max(b)),
    }
}

/// The ranks for independent samples. `beyond` of them lie above the quantile, binomially.
fn independent(count: u64, quantile: f64) -> Ranks {
    let (n, q) = (count as f64, quantile.clamp(1e-9, 1.0 - 1e-9));
    let mut chance = q.powf(n);
    let mut up_to = chance;
    let (mut beyond, mut fewest) = (0u64, None);
    // The largest number that is unlikely not to be exceeded, then the smallest that is hardly ever exceeded.
    while beyond < count {
        if up_to <= BEYOND {
            fewest = Some(beyond);
        }
        if up_to >= 1.0 - BEYOND {
            break;
        }
        chance *= (n - beyond as f64) / (beyond as f64 + 1.0) * (1.0 - q) / q;
        beyond += 1;
        up_to += chance;
    }
    Ranks { low: (beyond < count).then(|| count - beyond), high: fewest.map(|fewest| count - fewest) }
}

/// What few samples show about a percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The sample at the percentile's rank; `None`: it never ended.
    pub value: Option<f64>,
    /// At least this, at 95 %; `None`: no sample bounds it from below.
    pub low: Option<f64>,
    /// At most this, at 95 %; `None`: no sample bounds it from above, or that sample never ended.
    pub high: Option<f64>,
}

/// Estimates of the percentiles with too few samples; in documents `p99_estimate` and `p99_interval`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimates {
    /// In the order of [`PERCENTILES`].
    by_index: [Option<Estimate>; PERCENTILES.len()],
    /// This many requests count as one independent request; `None`: each does.
    pub widened: Option<f64>,
}

impl Estimates {
    /// The estimate of a percentile (`p99_9`); `None`: it is known as a number, or there is no sample.
    pub fn of(&self, name: &str) -> Option<Estimate> {
        let index = PERCENTILES.iter().position(|(n, _)| *n == name)?;
        self.by_index[index]
    }

    /// Sets the estimate of a percentile.
    pub fn set(&mut self, name: &str, estimate: Estimate) {
        if let Some(index) = PERCENTILES.iter().position(|(n, _)| *n == name) {
            self.by_index[index] = Some(estimate);
        }
    }

    /// Whether there are no estimates.
    pub fn is_empty(&self) -> bool {
        self.by_index.iter().all(Option::is_none)
    }
}

impl Serialize for Estimates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for ((name, _), estimate) in PERCENTILES.iter().zip(&self.by_index) {
            if let Some(estimate) = estimate {
                map.serialize_entry(&format!("{name}_estimate"), &estimate.value)?;
                map.serialize_entry(&format!("{name}_interval"), &(estimate.low, estimate.high))?;
            }
        }
        if let (Some(widened), false) = (self.widened, self.is_empty()) {
            map.serialize_entry("widened", &widened)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Estimates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Estimates;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("estimates of percentiles")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Estimates, A::Error> {
                let mut out = Estimates::default();
                while let Some(key) = map.next_key::<String>()? {
                    let (name, what) = key.rsplit_once('_').unwrap_or((&key, ""));
                    let mut estimate = out.of(name).unwrap_or_default();
                    match what {
                        _ if key == "widened" => out.widened = map.next_value()?,
                        _ if quantile_of(name).is_none() => drop(map.next_value::<IgnoredAny>()?),
                        "estimate" => {
                            estimate.value = map.next_value()?;
                            out.set(name, estimate);
                        }
                        "interval" => {
                            (estimate.low, estimate.high) = map.next_value()?;
                            out.set(name, estimate);
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_of_tables() {
        // These include the smallest numbers of samples that give an upper end, ln 0.025 / ln q.
        for (count, quantile, low, high) in [
            (0, 0.99, None, None),
            (1, 0.5, None, None),
            (5, 0.5, None, None),
            (6, 0.5, Some(1), Some(6)),
            (10, 0.5, Some(2), Some(9)),
            (19, 0.5, Some(5), Some(15)),
            (35, 0.9, Some(28), None),
            (36, 0.9, Some(29), Some(36)),
            (5, 0.99, Some(4), None),
            (300, 0.99, Some(293), None),
            (367, 0.99, Some(359), None),
            (368, 0.99, Some(360), Some(368)),
            (999, 0.99, Some(982), Some(996)),
            (99_999, 0.9999, Some(99_982), Some(99_996)),
        ] {
            assert_eq!(ranks(count, quantile, 1.0), Ranks { low, high }, "{count} at {quantile}");
        }
    }

    proptest! {
        #[test]
        fn an_interval_holds_the_estimate_and_wider_means_wider(
            count in 1u64..20_000, index in 0usize..7, inflation in 1.0f64..50.0, more in 1.0f64..3.0,
        ) {
            let quantile = PERCENTILES[index].1;
            let count = count.min(samples_needed(quantile));
            let rank = crate::counts::histogram::rank_of(quantile, count);
            let (plain, wide) = (ranks(count, quantile, 1.0), ranks(count, quantile, inflation));
            for r in [plain, wide] {
                prop_assert!(r.low.is_none_or(|low| 1 <= low && low <= rank), "{:?} of {}", r, rank);
                prop_assert!(r.high.is_none_or(|high| rank <= high && high <= count), "{:?} of {}", r, rank);
            }
            prop_assert!(wide.low.unwrap_or(0) <= plain.low.unwrap_or(0));
            prop_assert!(wide.high.unwrap_or(u64::MAX) >= plain.high.unwrap_or(u64::MAX));
            // For a higher percentile both ends are at least as high.
            if let Some((_, above)) = PERCENTILES.get(index + 1) {
                let next = ranks(count, *above, inflation);
                prop_assert!(next.low.unwrap_or(0) >= wide.low.unwrap_or(0), "{:?} {:?}", wide, next);
                prop_assert!(next.high.unwrap_or(u64::MAX) >= wide.high.unwrap_or(u64::MAX));
            }
            // An end that exists also exists with more samples.
            let larger = ranks(((count as f64 * more).ceil() as u64).min(samples_needed(quantile)), quantile, 1.0);
            prop_assert!(plain.high.is_none() || larger.high.is_some());
            prop_assert!(plain.low.is_none() || larger.low.is_some());
        }

        #[test]
        fn estimates_come_back_from_json(value in prop::option::of(0.0f64..1e6), low in 0.0f64..1e3, widened in 1.0f64..9.0) {
            let mut estimates = Estimates::default();
            prop_assert_eq!(serde_json::to_string(&estimates).unwrap(), "{}");
            estimates.set("p99_9", Estimate { value, low: Some(low), high: None });
            estimates.widened = Some(widened);
            let text = serde_json::to_string(&estimates).unwrap();
            let expect = format!("\"p99_9_interval\":[{},null]", serde_json::to_string(&low).unwrap());
            prop_assert!(text.contains(&expect), "{text}");
            prop_assert_eq!(serde_json::from_str::<Estimates>(&text).unwrap(), estimates);
        }
    }
}
