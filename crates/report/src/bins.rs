//! A histogram of response times for display: a dozen bins with round edges, on a logarithmic scale.

use loadlab_record::Histogram;

/// One bin: values in `from_ns..=to_ns` that were not in the bin before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Lower edge, nanoseconds.
    pub from_ns: f64,
    /// Upper edge, nanoseconds.
    pub to_ns: f64,
    /// Values inside.
    pub count: u64,
}

/// More bins than this are not readable.
const MAX_BINS: usize = 14;

/// Edges within a decade, from fine to coarse (the E24, E12, E6 and E3 series of preferred numbers, with 1-2-5 for
/// the last): steps that look even on a logarithmic scale.
const SERIES: [&[f64]; 4] = [
    &[
        1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0, 2.2, 2.4, 2.7, 3.0, 3.3, 3.6, 3.9, 4.3, 4.7, 5.1, 5.6, 6.2,
        6.8, 7.5, 8.2, 9.1,
    ],
    &[1.0, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2],
    &[1.0, 1.5, 2.2, 3.3, 4.7, 6.8],
    &[1.0, 2.0, 5.0],
];

/// The bins of a histogram, including empty ones between its ends; none for an empty histogram. Values are binned by
/// the lower edge of their bucket, so a bin's count is exact to a bucket's width (0.1 %).
pub fn bins(histogram: &Histogram) -> Vec<Bin> {
    let (Some(min), Some(max)) = (histogram.min_ns(), histogram.max_ns()) else { return Vec::new() };
    let edges = edges(min.max(1) as f64, max.max(1) as f64);
    let mut bins: Vec<Bin> = edges.windows(2).map(|e| Bin { from_ns: e[0], to_ns: e[1], count: 0 }).collect();
    for bucket in histogram.buckets() {
        let value = bucket.low_ns.clamp(min, max) as f64;
        let at = bins.partition_point(|b| b.to_ns < value).min(bins.len() - 1);
        bins[at].count += bucket.count;
    }
    bins
}

/// At least two edges around `min..=max`, from the finest series that needs few enough bins.
fn edges(min: f64, max: f64) -> Vec<f64> {
    let mut found = Vec::new();
    for series in SERIES {
        found = edges_of(series, min, max);
        if found.len() <= MAX_BINS + 1 {
            return found;
        }
    }
    // Six decades and more: one bin per decade.
    let decades = edges_of(&[1.0], min, max);
    if decades.len() < found.len() { decades } else { found }
}

fn edges_of(series: &[f64], min: f64, max: f64) -> Vec<f64> {
    let first_decade = min.log10().floor() as i32 - 1;
    let last_decade = max.log10().ceil() as i32 + 1;
    let all: Vec<f64> = (first_decade..=last_decade)
        .flat_map(|decade| series.iter().map(move |step| step * 10f64.powi(decade)))
        .collect();
    let from = all.partition_point(|e| *e < min).saturating_sub(1);
    let to = all.partition_point(|e| *e < max).min(all.len() - 1);
    all[from..=to.max(from + 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values_us: &[u64], expect: &[(f64, f64, u64)]) {
        let mut h = Histogram::new();
        values_us.iter().for_each(|v| h.record(v * 1000));
        let got: Vec<_> = bins(&h)
            .iter()
            .map(|b| ((b.from_ns / 10.0).round() / 100.0, (b.to_ns / 10.0).round() / 100.0, b.count))
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn edges_are_round_and_cover_all() {
        check(&[], &[]);
        check(&[100], &[(91.0, 100.0, 1)]);
        check(&[140, 152, 159], &[(130.0, 150.0, 1), (150.0, 160.0, 2)]);
        check(
            &[10, 10_000],
            &[
                (5.0, 10.0, 1),
                (10.0, 20.0, 0),
                (20.0, 50.0, 0),
                (50.0, 100.0, 0),
                (100.0, 200.0, 0),
                (200.0, 500.0, 0),
                (500.0, 1000.0, 0),
                (1000.0, 2000.0, 0),
                (2000.0, 5000.0, 0),
                (5000.0, 10000.0, 1),
            ],
        );
    }

    #[test]
    fn nothing_is_lost_whatever_the_range() {
        let mut h = Histogram::new();
        (0..45).for_each(|bit| h.record_n(1 << bit, 3));
        h.record(0);
        let bins = bins(&h);
        assert!(bins.len() <= MAX_BINS + 4, "{}", bins.len());
        assert_eq!(bins.iter().map(|b| b.count).sum::<u64>(), h.count());
    }
}
