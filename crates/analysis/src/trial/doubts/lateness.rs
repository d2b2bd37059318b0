//! Whether the generator itself was late, and whether that, or another shortage of the generator, spoils what a run is
//! to show.

use loadlab_record::Histogram;
use loadlab_record::counts::histogram::rank_of;
use loadlab_record::counts::load::Series;
use loadlab_record::documents::figure::NumberKind;
use loadlab_record::documents::summary::{Doubt, LoadFacts, LoadModel, PERCENTILES, Summary};
use loadlab_record::expr::{Expr, built_in_kind};
use loadlab_record::text::units::format_duration_ns;

use super::{Grounds, doubt};
use crate::trial::doubt_kind;

/// Lateness below this changes no relevant figure, whatever the response times are: it is the order of one scheduling
/// hiccup.
const LATE_FLOOR_NS: f64 = 1e6;
/// Lateness above this share of a response time is visible in it.
const LATE_SHARE: f64 = 0.10;
/// Lateness that spoils a percentile, if it is also more than [`LATE_SHARE`] of the response time there. The rarer it
/// is, the more is tolerated: the usual request must leave on time, while one in a hundred may hit another task's
/// time slice (3 ms) on a shared core. So 1 ms on a median of 1 ms condemns a run if it is the rule, and is only
/// reported if it is the exception.
const LATE_SPOILS_NS: [(f64, f64); 3] = [(0.5, 0.5e6), (0.9, 1e6), (0.99, 3e6)];
/// More than one request in a hundred this late: the schedule sent was not the plan's.
const LATE_GRAVE_NS: f64 = 10e6;
/// At least this many requests must be that late: with few requests a single hiccup is their 99th percentile.
const LATE_REQUESTS: f64 = 10.0;

/// Whether requests have due times, which can be missed: the open model, a pace, or thinking. Then lateness decides
/// whether the generator kept up.
pub(crate) fn has_due_times(load: &LoadFacts) -> bool {
    load.model != LoadModel::Closed || load.pace_s.is_some() || load.think_s.is_some_and(|s| s > 0.0)
}

/// Requests were noticed later than they were due. Only if requests have due times.
///
/// Grave when the reported figures are materially the generator's doing ([`late_is_grave`]). Otherwise reported when
/// it shows in the tail.
pub(super) fn late(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    if !has_due_times(&summary.load) {
        return None;
    }
    late_so_far(&grounds.measured.series)
}

/// As [`late`], from the times alone, for a load whose requests have due times.
pub(crate) fn late_so_far(series: &Series) -> Option<Doubt> {
    let responses = responses(series);
    let grave = late_is_grave(series);
    let shown = [0.99, 0.999].into_iter().any(|q| {
        let enough = series.late.count() as f64 * (1.0 - q) >= 1.0;
        let late = quantile_ns(&series.late, q).unwrap_or(0.0);
        let response = quantile_ns(&responses, q).unwrap_or(0.0);
        enough && late > LATE_FLOOR_NS.max(LATE_SHARE * response)
    });
    if !grave && !shown {
        return None;
    }
    let figures = |of: &Histogram| {
        let figure = |(name, q)| {
            quantile_ns(of, q).map_or(String::new(), |ns| format!("{name} {}, ", format_duration_ns(ns)))
        };
        let most = format_duration_ns(of.max_ns().unwrap_or(0) as f64);
        format!("{}at most {most}", [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)].map(figure).concat())
    };
    doubt(
        doubt_kind::LATE,
        grave,
        format!(
            "requests left after they fell due: {}; response times, this included: {}",
            figures(&series.late),
            figures(&responses)
        ),
        "lower the rate, give loadlab more cores, or cores that are less busy (`--threads`, `--cpus`), or send the load from another machine",
    )
}

/// Whether more than [`LATE_SHARE`] of a percentile of the response times is the generator's own lateness, or the
/// schedule that was sent is not the plan's. Each percentile is compared with the same one of lateness: lateness of
/// one request in a hundred can move p99, and no percentile below it by more than a hundredth of the requests.
pub(crate) fn late_is_grave(series: &Series) -> bool {
    let late = &series.late;
    let count = late.count() as f64;
    if count < 2.0 * LATE_REQUESTS {
        return false;
    }
    let responses = responses(series);
    let at = |of: &Histogram, q: f64| quantile_ns(of, q.min(1.0 - LATE_REQUESTS / count)).unwrap_or(0.0);
    let spoiled = |(q, floor_ns): (f64, f64)| at(late, q) > floor_ns.max(LATE_SHARE * at(&responses, q));
    at(late, 0.99) > LATE_GRAVE_NS || LATE_SPOILS_NS.into_iter().any(spoiled)
}

/// Whether a generator that could not keep up spoils what this run is to show. If requests have due times, lateness
/// decides. Otherwise the throughput is a lower bound, which is only worth noting – unless an expectation depends on
/// response times, which include the generator's own queue, or a throughput was missed, for which the system would be
/// blamed.
pub(super) fn shortage_is_grave(summary: &Summary, grounds: &Grounds<'_>) -> bool {
    if has_due_times(&summary.load) {
        return late_is_grave(&grounds.measured.series);
    }
    summary.expectations.iter().any(|e| {
        let missed = e.holds != Some(true);
        figures_in(&e.expr, grounds)
            .iter()
            .any(|f| tail_of(f).is_some() || missed && RATES.contains(&f.as_str()))
    })
}

/// Figures of throughput in expressions.
const RATES: [&str; 2] = ["rate", "goodput"];

/// The figures of requests that an expression rests on, directly or by the plan's figures, without their prefix
/// (`tag.page.p99` and `service.p99` are `p99`). What a component used, a probe or a number of answers is no time of a
/// request, however its name ends.
pub(super) fn figures_in(expr: &str, grounds: &Grounds<'_>) -> Vec<String> {
    let Ok(expr) = Expr::parse(expr) else { return Vec::new() };
    let expr = expr.with_figures(&grounds.planned.figures);
    let figure = |name: &str| -> Option<String> {
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_of_requests = match name.split_once('.') {
            None => true,
            Some(("tag", _)) => true,
            Some(_) => built_in_kind(name) == Some(NumberKind::Duration),
        };
        is_of_requests.then(|| last.to_owned())
    };
    expr.names().iter().filter_map(|name| figure(&name.text)).collect()
}

/// For a figure that is a time: the share of requests that suffices to move it. `None` for others.
pub(super) fn tail_of(figure: &str) -> Option<f64> {
    let percentile = PERCENTILES.iter().find(|(name, _)| *name == figure).map(|(_, q)| 1.0 - q);
    percentile.or_else(|| ["max", "mean", "min", "stdev"].contains(&figure).then_some(0.0))
}

/// All responses, including censored and failed ones at their age.
pub(super) fn responses(series: &Series) -> Histogram {
    let mut all = series.response_ok.clone();
    all.merge(&series.response_censored);
    all.merge(&series.response_failed);
    all
}

pub(super) fn quantile_ns(histogram: &Histogram, quantile: f64) -> Option<f64> {
    histogram.at_rank(rank_of(quantile, histogram.count())).map(|ns| ns as f64)
}
