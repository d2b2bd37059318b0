//! How response times are distributed: percentile curves of every case, and the heat map of a trial over time.
//!
//! Each curve comes from one trial, the one with the median goodput: percentiles of several trials are never pooled.
//! What is unknown is not drawn: a curve ends where it would need more samples, or among requests that never ended.

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::cases::metric::Unit;
use loadlab_analysis::findings::Findings;
use loadlab_record::Histogram;
use loadlab_record::counts::histogram::rank_of;
use loadlab_record::counts::load::Series;
use loadlab_record::counts::numbers::samples_needed;
use loadlab_record::store::TrialRecord;

use super::readings::RATE_FROM_S;
use crate::colour::Colour;
use crate::document::{Along, Chart, Heat, Line};

/// Points of a curve between one nine and the next.
const STEPS_A_NINE: usize = 12;
/// No load has the samples for more nines.
const NINES: usize = 7;
/// The most columns of a heat map: narrower ones are not visible.
const COLUMNS: usize = 200;
/// Approximate number of rows of a heat map.
const ROWS: f64 = 32.0;
/// A percentile among censored ones may be off by this factor and is still reported, as in a summary.
const SLACK: f64 = 1.01;

/// Percentile curves, one line per case, from the fastest response to the rarest that can be known.
pub fn curves(findings: &Findings<'_>) -> Option<Chart> {
    let mut lines: Vec<Line> =
        findings.cases.iter().enumerate().filter_map(|(i, case)| curve(i, case)).collect();
    let longest = lines.iter().filter_map(|l| l.values.iter().rposition(Option::is_some)).max()?;
    if longest < STEPS_A_NINE {
        return None;
    }
    lines.iter_mut().for_each(|l| l.values.truncate(longest + 1));
    let known = || lines.iter().flat_map(|l| &l.values).flatten().copied().filter(|v| *v > 0.0);
    let spans_decades = known().fold(0.0, f64::max) > 5.0 * known().fold(f64::INFINITY, f64::min);
    let several = findings.cases.iter().any(|c| c.trials.len() > 1);
    let of =
        if several { " Each curve is from the trial with its case\u{2019}s median goodput." } else { "" };
    Some(Chart {
        id: "curves".into(),
        title: "Response times by percentile".into(),
        group: "curves".into(),
        along: Along::Nines,
        unit: Unit::Ms,
        logarithmic: spans_decades,
        span: None,
        at: (0..=longest).map(nines_at).collect(),
        lines,
        heat: None,
        marks: Vec::new(),
        turns: Vec::new(),
        bands: Vec::new(),
        note: Some(format!(
            "Each step to the right is ten times rarer. A curve ends where fewer than 10 responses lie beyond, or where \
             requests lie that never ended.{of}"
        )),
    })
}

/// A point's nines: -log10(1 - q).
fn nines_at(step: usize) -> f64 {
    step as f64 / STEPS_A_NINE as f64
}

fn curve(index: usize, case: &CaseFindings<'_>) -> Option<Line> {
    let series = &case.typical()?.record?.series;
    let values = percentiles(series);
    values.iter().any(Option::is_some).then(|| Line {
        name: case.case.facts.name.clone(),
        values,
        colour: Colour::Nth(index),
        limit: false,
        of: Vec::new(),
    })
}

/// Milliseconds at each point, as far as known.
fn percentiles(series: &Series) -> Vec<Option<f64>> {
    let known = Ranks::of(&series.response_ok);
    let mut all = series.response_ok.clone();
    all.merge(&series.response_censored);
    let all = Ranks::of(&all);
    let at = |step: usize| {
        let quantile = 1.0 - 10f64.powf(-nines_at(step));
        if all.count() < samples_needed(quantile) {
            return None;
        }
        let rank = rank_of(quantile, all.count()).max(1);
        let (low, high) = (all.at(rank)?, known.at(rank)?);
        (high as f64 <= low as f64 * SLACK).then(|| high as f64 / 1e6)
    };
    (0..=NINES * STEPS_A_NINE).map(at).collect()
}

/// Values of a histogram by rank, for repeated lookups.
struct Ranks(Vec<(u64, u64)>);

impl Ranks {
    fn of(histogram: &Histogram) -> Ranks {
        let (min, max) = (histogram.min_ns().unwrap_or(0), histogram.max_ns().unwrap_or(0));
        let mut seen = 0;
        let up_to = |bucket: loadlab_record::counts::histogram::Bucket| {
            seen += bucket.count;
            (seen, bucket.high_ns.clamp(min, max))
        };
        Ranks(histogram.buckets().map(up_to).collect())
    }

    fn count(&self) -> u64 {
        self.0.last().map_or(0, |(seen, _)| *seen)
    }

    fn at(&self, rank: u64) -> Option<u64> {
        self.0.get(self.0.partition_point(|(seen, _)| *seen < rank)).map(|(_, ns)| *ns)
    }
}

/// The middle of each column in seconds, and how many ok responses of the window took how long in it. `None` for a
/// trial too short to show any movement.
pub fn heat(record: &TrialRecord) -> Option<(Vec<f64>, Heat)> {
    let intervals = || record.intervals.iter().filter(|i| i.is("response"));
    let from_s = intervals().map(|i| i.from_s).fold(f64::INFINITY, f64::min).floor();
    // The few milliseconds of the last responses make no column.
    let to_s = (intervals().map(|i| i.to_s()).fold(f64::NEG_INFINITY, f64::max) - RATE_FROM_S).ceil();
    let counted: Vec<(f64, Vec<(u64, u64)>)> =
        intervals().map(|i| (i.from_s + i.length_s / 2.0, i.values().collect())).collect();
    // Values are ascending in each interval.
    let least = counted.iter().filter_map(|(_, values)| values.first()).map(|(ns, _)| (*ns).max(1)).min()?;
    let most = counted.iter().filter_map(|(_, values)| values.last()).map(|(ns, _)| (*ns).max(1)).max()?;
    let seconds = if to_s - from_s < 86_400.0 * 30.0 { (to_s - from_s) as usize } else { return None };
    if seconds < 2 {
        return None;
    }
    let step = seconds.div_ceil(COLUMNS);
    let LogGrid { first, per_decade, rows } = LogGrid::of(least as f64 / 1e6, most as f64 / 1e6);
    let mut columns = vec![vec![0u64; rows]; seconds.div_ceil(step)];
    for (middle_s, values) in counted {
        let at = ((middle_s - from_s) / step as f64).max(0.0) as usize;
        let at = at.min(columns.len() - 1);
        let column = &mut columns[at];
        for (ns, count) in values {
            let row = ((ns.max(1) as f64 / 1e6).log10() * per_decade).floor() - first;
            column[(row.max(0.0) as usize).min(rows - 1)] += count;
        }
    }
    let edge = |row: usize| 10f64.powf((first + row as f64) / per_decade);
    let at_s = (0..columns.len()).map(|i| from_s + (i as f64 + 0.5) * step as f64).collect();
    Some((at_s, Heat { edges: (0..=rows).map(edge).collect(), columns }))
}

/// Rows on a logarithmic grid.
struct LogGrid {
    /// Number of the first row, counted from the value 1.
    first: f64,
    per_decade: f64,
    rows: usize,
}

impl LogGrid {
    fn of(least: f64, most: f64) -> LogGrid {
        let decades = (most / least).log10().max(0.1);
        let per_decade = (ROWS / decades).floor().clamp(3.0, 48.0);
        let first = (least.log10() * per_decade).floor();
        let last = (most.log10() * per_decade).floor();
        LogGrid { first, per_decade, rows: (last - first) as usize + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_record::counts::hlog::Interval;

    fn histogram(values: impl IntoIterator<Item = (u64, u64)>) -> Histogram {
        let mut h = Histogram::new();
        values.into_iter().for_each(|(ms, n)| h.record_n(ms * 1_000_000, n));
        h
    }

    #[test]
    fn a_curve_ends_where_samples_do() {
        // 990 of 1 ms and 10 of 100 ms: p99 is known with 1,000 samples, p99.9 needs 10,000
        let series = Series { response_ok: histogram([(1, 990), (100, 10)]), ..Series::default() };
        let values = percentiles(&series);
        let ms = |step: usize| values[step].map(f64::round);
        assert_eq!((ms(STEPS_A_NINE), ms(2 * STEPS_A_NINE)), (Some(1.0), Some(1.0)), "p90 and p99");
        assert!(values[2 * STEPS_A_NINE + 1..].iter().all(Option::is_none));
    }

    #[test]
    fn a_curve_ends_among_those_that_never_ended() {
        let series = Series {
            response_ok: histogram([(1, 800)]),
            response_censored: histogram([(50, 200)]),
            ..Series::default()
        };
        let values = percentiles(&series);
        let last = values.iter().rposition(Option::is_some).map(nines_at);
        // p80 is 0.699 nines
        assert!(last.is_some_and(|nines| (0.6..0.7).contains(&nines)), "{last:?}");
    }

    #[test]
    fn a_heat_map_holds_every_response() {
        let mut record = TrialRecord::empty(1, std::path::PathBuf::new());
        for second in 0..1000 {
            let h = histogram([(1, 90), (2, 9), (10 + second, 1)]);
            record.intervals.push(Interval::of(Some("main"), "response", second as f64, 1.0, &h));
        }
        let (at_s, heat) = heat(&record).expect("a heat map");
        assert_eq!(at_s.len(), COLUMNS);
        assert_eq!((at_s[0], at_s[COLUMNS - 1]), (2.5, 997.5));
        assert_eq!(heat.columns.iter().flatten().sum::<u64>(), 100_000);
        assert_eq!(heat.edges.len(), heat.columns[0].len() + 1);
        assert!(heat.edges[0] <= 1.0 && heat.edges[heat.edges.len() - 1] >= 1009.0, "{:?}", heat.edges);
        assert_eq!(heat.most(), 90 * 5);
    }
}
