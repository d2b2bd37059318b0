//! Judges a measurement of a level: whether it met the expectations, and whether it must be longer to decide.

use loadlab_analysis::trial::doubt_kind;
use loadlab_analysis::trial::doubts::drops_many;
use loadlab_record::documents::search::StepOutcome;
use loadlab_record::documents::summary::{Expectation, PERCENTILES, Requests, Summary, Verdict};
use loadlab_record::expr::{Expr, Known, NameRef, NumberSource, SummaryNumbers, TrialPart};

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
    if let Some((expr, said)) = not_met.first() {
        let longer = if lacks_in_part(summary, expr) { "part" } else { "level duration" };
        let why = format!("undecided: {}; a longer {longer} decides it", with_value(said));
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
const UNSTEADY: [&str; 2] = [doubt_kind::BACKLOG, doubt_kind::LATENCY_RISING];

/// An expectation with its value.
fn with_value(e: &Expectation) -> String {
    match (e.value, &e.note) {
        (Some(value), _) => {
            let shown = loadlab_record::text::units::significant(value, e.digits(3));
            format!("{}: {shown} {}", e.expr, e.unit).trim_end().to_owned()
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
    let names = unreported.flat_map(|(expr, _)| expr.names());
    names.filter_map(|name| longer_for(summary, &name)).reduce(f64::max)
}

/// By what factor a trial must be longer for a percentile; `None` if that is none, or does not lack samples.
fn longer_for(summary: &Summary, name: &NameRef) -> Option<f64> {
    if is_of_part(name) {
        return None;
    }
    let (prefix, figure) = name.text.rsplit_once('.').map_or(("", name.text.as_str()), |(p, f)| (p, f));
    let (_, quantile) = PERCENTILES.iter().find(|(n, _)| *n == figure)?;
    let count = match prefix.strip_prefix("tag.") {
        Some(tag) => summary.by_tag.get(tag)?.response_ms.count,
        None => summary.response_ms.count,
    };
    let needed = loadlab_record::counts::numbers::samples_needed(*quantile);
    (count > 0 && count < needed).then(|| needed as f64 / count as f64 * LONGER_BY)
}

/// Whether a number is of a part that does not get longer with its trial. A level's only batch does.
fn is_of_part(name: &NameRef) -> bool {
    matches!(name.part, Some(TrialPart::Window(_) | TrialPart::Drain))
}

/// Whether it is a part of the trial that has too few samples for an expectation, not the trial.
fn lacks_in_part(summary: &Summary, expect: &Expr) -> bool {
    let names = expect.names();
    names.iter().any(is_of_part) && names.iter().all(|name| longer_for(summary, name).is_none())
}

/// What decides expectations that too few requests leave open.
pub(super) fn what_decides(expect: &[Expr]) -> &'static str {
    match expect.iter().flat_map(Expr::names).any(|name| is_of_part(&name)) {
        true => "a longer level duration, or a longer part,",
        false => "a longer level duration",
    }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::counts::quantile::FewSamples;

    use super::*;

    /// The levels of a search lie around the limit.
    #[test]
    fn a_reason_shows_on_which_side_of_the_limit_a_level_is() {
        let reason = |value: f64, holds: bool| {
            let (expr, unit) = ("p99 < 50ms".to_owned(), "ms".to_owned());
            let (holds, value) = (Some(holds), Some(value));
            with_value(&Expectation { expr, holds, value, unit, note: None, undecided: None })
        };
        assert_eq!(reason(41.234, true), "p99 < 50ms: 41.2 ms");
        assert_eq!(reason(49.97, true), "p99 < 50ms: 49.97 ms");
        assert_eq!(reason(50.03, false), "p99 < 50ms: 50.03 ms");
    }

    /// A level does not have more requests in its first seconds because it is longer.
    #[test]
    fn a_longer_level_does_not_decide_what_is_expected_of_a_part() {
        let check = |text: &str, count: u64, factor: Option<f64>, decides: &str| {
            let expr = Expr::parse(text).unwrap_or_else(|e| panic!("{e}"));
            let mut summary = summarise(TrialInput::default());
            (summary.verdict, summary.response_ms.count) = (Verdict::Undecided, count);
            let undecided = Some(FewSamples { samples: 10, needed: 1000, needed_s: None });
            let (value, unit, note) = (None, String::new(), None);
            let said = Expectation { expr: text.to_owned(), holds: None, value, unit, note, undecided };
            summary.expectations.push(said);
            let expect = [expr];
            assert_eq!(longer(&summary, &expect), factor, "{text}");
            let judged = judge(&summary, &expect, false);
            let why = format!("undecided: {text}; a longer {decides} decides it");
            assert_eq!(judged, (StepOutcome::Undecided, why), "{text}");
        };
        check("p99 < 5ms", 500, Some(2.0 * LONGER_BY), "level duration");
        check("p99[1s..2s] < 5ms", 500, None, "part");
        check("p99[1s..2s] < 2 * p50", 500, None, "part");
        // Both lack some.
        check("p99[1s..2s] < 2 * p99", 500, Some(2.0 * LONGER_BY), "level duration");
        // The only batch of a level is all of it.
        check("p99[batch 1] < 5ms", 500, Some(2.0 * LONGER_BY), "level duration");
    }
}
