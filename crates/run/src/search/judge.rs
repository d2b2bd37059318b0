//! Judges a measurement of a level: whether it met the expectations, and whether it must be longer to decide.

use loadlab_analysis::trial::doubts::drops_many;
use loadlab_record::documents::search::StepOutcome;
use loadlab_record::documents::summary::{Expectation, PERCENTILES, Requests, Summary, Verdict};
use loadlab_record::expr::{Expr, Known, NumberSource, SummaryNumbers, TrialPart};

/// A measurement that is too short is extended by this factor beyond what is needed: no two trials have the same rate.
pub(super) const LONGER_BY: f64 = 1.1;

/// The outcome of a measurement, and the reason.
pub(super) fn judge(summary: &Summary, expect: &[Expr], ended_early: bool) -> (StepOutcome, String) {
    if summary.verdict == Verdict::Invalid {
        let grave = summary.doubts.iter().find(|d| d.grave);
        return (
            StepOutcome::Invalid,
            grave.map_or("INVALID".to_owned(), |d| format!("{}: {}", d.kind, d.evidence)),
        );
    }
    if let Some((name, died)) = summary.components.iter().find_map(|(n, c)| Some((n, c.died.as_ref()?))) {
        return (StepOutcome::Missed, format!("{name} died: {died}"));
    }
    let numbers = SummaryNumbers::new(summary, &[]);
    let not_met = |(expr, said): &(&Expr, &Expectation)| {
        said.holds != Some(true) && expr.evaluate(&Slowest(&numbers)).holds != Some(true)
    };
    let not_met: Vec<_> = expect.iter().zip(&summary.expectations).filter(not_met).collect();
    if let Some((_, said)) = not_met.iter().find(|(_, said)| said.is_missed()) {
        return (StepOutcome::Missed, with_value(said));
    }
    if ended_early {
        let why = not_met.first().map_or_else(String::new, |(_, said)| format!(": {}", with_value(said)));
        return (StepOutcome::Missed, format!("ended early: it could no longer meet the expectations{why}"));
    }
    // The measurement cannot be extended further. An expectation not known to hold does not count as met.
    if let Some((_, said)) = not_met.first() {
        let why = format!("undecided: {}; a longer level duration decides it", with_value(said));
        return (StepOutcome::Undecided, why);
    }
    // Met for now, but not sustainable: a growing backlog does not show in the percentiles yet.
    if let Some(doubt) = summary.doubts.iter().find(|d| UNSTEADY.contains(&d.kind.as_str())) {
        return (StepOutcome::Missed, format!("not steady: {}", doubt.evidence));
    }
    if drops_many(summary) {
        let Requests { dropped, due, .. } = summary.requests;
        return (StepOutcome::Missed, format!("not steady: {dropped} of {due} requests due were never sent"));
    }
    let shown: Vec<String> = summary.expectations.iter().map(with_value).collect();
    (StepOutcome::Met, shown.join(", "))
}

/// Marks all expectations of a level that met them as holding, including percentiles with too few samples, where only
/// [`Slowest`] shows that they hold.
pub(super) fn all_met(summary: &mut Summary) {
    for open in summary.expectations.iter_mut().filter(|e| e.holds.is_none()) {
        (open.holds, open.undecided) = (Some(true), None);
        open.note = Some("too few samples for a number, but even the slowest response meets it".to_owned());
    }
}

/// Doubts that show that a level cannot be sustained.
const UNSTEADY: [&str; 2] = ["backlog", "latency_rising"];

/// An expectation with its value.
fn with_value(e: &Expectation) -> String {
    match (e.value, &e.note) {
        (Some(value), _) => {
            format!("{}: {} {}", e.expr, loadlab_record::text::units::significant(value, 3), e.unit)
                .trim_end()
                .to_owned()
        }
        (None, Some(note)) => format!("{}: {note}", e.expr),
        (None, None) => e.expr.clone(),
    }
}

/// A summary's numbers, with the slowest response in place of a percentile that has too few samples: if even the
/// slowest response meets an expectation, the percentile does.
struct Slowest<'a>(&'a SummaryNumbers<'a>);

impl NumberSource for Slowest<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        let (prefix, figure) = name.rsplit_once('.').map_or(("", name), |(p, f)| (p, f));
        match self.0.number(name, part) {
            Known::Unknown(_) | Known::Between(_) if PERCENTILES.iter().any(|(n, _)| *n == figure) => {
                let most = if prefix.is_empty() { "max".to_owned() } else { format!("{prefix}.max") };
                self.0.number(&most, part)
            }
            known => known,
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        self.0.steady(name, for_ns)
    }
}

/// The length of the next trial after one that was too short.
pub(super) fn grown(length_ns: u64, factor: f64, most_ns: u64) -> u64 {
    let wanted = (length_ns as f64 * factor).ceil() as u64;
    wanted.clamp(length_ns + 1, most_ns)
}

/// By what factor a trial must be longer for the expectation that lacks most samples; `None` if none lacks samples.
pub(super) fn longer(summary: &Summary, expect: &[Expr]) -> Option<f64> {
    let numbers = SummaryNumbers::new(summary, &[]);
    let unreported = expect
        .iter()
        .zip(&summary.expectations)
        .filter(|(expr, said)| said.holds.is_none() && expr.evaluate(&Slowest(&numbers)).holds != Some(true));
    let factors = unreported.flat_map(|(expr, _)| expr.names()).filter_map(|name| {
        let (prefix, figure) = name.text.rsplit_once('.').map_or(("", name.text.as_str()), |(p, f)| (p, f));
        let (_, quantile) = PERCENTILES.iter().find(|(n, _)| *n == figure)?;
        let count = match prefix.strip_prefix("tag.") {
            Some(tag) => summary.by_tag.get(tag)?.response_ms.count,
            None => summary.response_ms.count,
        };
        let needed = loadlab_record::counts::numbers::samples_needed(*quantile);
        (count > 0 && count < needed).then(|| needed as f64 / count as f64 * LONGER_BY)
    });
    factors.reduce(f64::max)
}
