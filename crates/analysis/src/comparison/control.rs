//! A comparison beside a control: the base once more, under another name. Any difference between the two is chance, so
//! no smaller difference is called.

use loadlab_record::documents::summary::Summary;

use crate::cases::case::TRIALS_FOR_DIFFERENCES;
use crate::cases::metric::Metric;
use crate::cases::parts::{parts_of, probes};
use crate::comparison::compare::{Comparison, Row, Side, read};
use crate::comparison::figures::Scale;
use crate::comparison::interval::{Call, Estimate, Method};

/// Note on a difference below the smallest visible one.
const HIDDEN: &str = "the difference is no larger than what the control has by chance";
/// Note if the smallest visible difference is unknown for lack of rounds.
const UNKNOWN: &str = "the control has too few rounds to show how small a difference is visible";
/// Note if the control has enough rounds, but the figure is missing in some.
const UNREPORTED: &str = "the figure is missing in some rounds of the case or its control, so the smallest visible difference is unknown";

/// Why a difference is not called, given the smallest visible one and the number of rounds of the control.
pub(crate) fn hidden(visible: Option<f64>, rounds: usize) -> &'static str {
    match visible.is_some_and(f64::is_finite) {
        true => HIDDEN,
        false if rounds < TRIALS_FOR_DIFFERENCES => UNKNOWN,
        false => UNREPORTED,
    }
}

impl Comparison {
    /// Adds the smallest visible difference of each figure: the far end of the interval between base and control, at
    /// the confidence of the figure's own. Smaller differences are not called.
    pub fn with_control(mut self, base: &Side<'_>, control: &Side<'_>) -> Comparison {
        let confidence = self.options.confidence;
        for row in self.rows.iter_mut().chain(&mut self.details) {
            hold(row, base, control, confidence);
        }
        let summaries: Vec<&Summary> = base.trials.iter().map(|trial| trial.1).collect();
        self.keep_parts_of_called(&summaries);
        self
    }

    /// Drops the parts of figures that are no longer called different.
    pub(crate) fn keep_parts_of_called(&mut self, trials: &[&Summary]) {
        // Parts were looked at because their figure differed, and probes because any did.
        let called = || self.rows.iter().filter(|row| is_called(row.call));
        let mut parts: Vec<Metric> = called().flat_map(|row| parts_of(&row.metric, trials)).collect();
        if called().next().is_some() {
            parts.extend(probes(trials));
        }
        self.details.retain(|row| parts.iter().any(|part| part.id == row.metric.id));
    }
}

fn hold(row: &mut Row, base: &Side<'_>, control: &Side<'_>, confidence: f64) {
    let interval = row.effect.and_then(|effect| effect.interval);
    let confidence = interval.map_or(confidence, |interval| interval.confidence);
    let furthest = furthest(row, base, control, confidence);
    let is_ratio = row.scale == Scale::Ratio;
    row.visible = Some(if is_ratio { furthest.exp_m1() } else { furthest });
    let size = row.effect.map_or(0.0, |e| if is_ratio { e.value.ln().abs() } else { e.value.abs() });
    if is_called(row.call) && size < furthest {
        row.call = Call::CannotTell;
        row.note = Some(hidden(row.visible, base.rounds_of(control).len()).to_owned());
    }
}

/// Whether a difference was found.
pub(crate) fn is_called(call: Call) -> bool {
    matches!(call, Call::Better | Call::Worse | Call::Changed)
}

/// How far base and control may be apart, on the scale of the comparison; infinite if that is not known.
fn furthest(row: &Row, base: &Side<'_>, control: &Side<'_>, confidence: f64) -> f64 {
    let (of_base, of_control) = (base.rounds_of(control), control.rounds_of(base));
    if of_base.len() < TRIALS_FOR_DIFFERENCES {
        return f64::INFINITY;
    }
    // A share that is zero throughout is the same in both.
    let Some(reported) = read(&row.metric, &of_base, &of_control) else { return 0.0 };
    let estimate = reported.samples.and_then(|samples| Estimate::of(&samples, Method::Paired));
    let judged = estimate.map(|estimate| estimate.at(confidence));
    judged.map_or(f64::INFINITY, |judged| judged.mean.abs() + judged.half)
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::summary::{Distribution, Requests, Verdict};

    use super::*;
    use crate::comparison::compare::{Options, compare};
    use crate::{TrialInput, summarise};

    /// A trial for each goodput, all with the same response times.
    fn trials(goodputs: &[f64]) -> Vec<Summary> {
        let of = |goodput: &f64| {
            let mut summary = summarise(TrialInput::default());
            (summary.doubts, summary.verdict) = (Vec::new(), Verdict::None);
            summary.requests = Requests { started: 1000, ok: 1000, ..Requests::default() };
            summary.rate_per_s.ok = *goodput;
            summary.response_ms =
                Distribution { count: 1000, p50: Some(goodput / 100.0), ..Distribution::default() };
            summary
        };
        goodputs.iter().map(of).collect()
    }

    fn side<'a>(name: &str, trials: &'a [Summary]) -> Side<'a> {
        Side::of(name, (1..).zip(trials).map(|(round, summary)| (round, Some(summary))))
    }

    /// The goodput of a case that is 4 % slower than the base, beside a control.
    fn goodput(control: &[f64]) -> Row {
        let base = trials(&[100.0, 101.0, 99.0, 100.0, 100.5, 99.5]);
        let other = trials(&[96.0, 97.0, 95.0, 96.1, 96.4, 95.6]);
        let control = trials(control);
        let (base, other, control) =
            (side("old", &base), side("new", &other), side("old (control)", &control));
        let found = compare(&base, &other, Method::Paired, &[], Options::default());
        assert_eq!(found.rows[0].call, Call::Worse, "without a control: {:?}", found.rows[0]);
        assert_eq!(found.rows[0].visible, None);
        found.with_control(&base, &control).rows.swap_remove(0)
    }

    #[test]
    fn a_difference_that_the_control_has_as_well_is_not_called() {
        let quiet = goodput(&[100.1, 100.9, 99.1, 99.9, 100.6, 99.4]);
        assert_eq!((quiet.call, &quiet.note), (Call::Worse, &None));
        assert!(quiet.visible.is_some_and(|visible| visible > 0.0 && visible < 0.01), "{quiet:?}");
        // The second name alone makes it 5 % slower: here, whatever is measured later is slower.
        let noisy = goodput(&[95.0, 96.0, 94.0, 95.1, 95.4, 94.6]);
        assert_eq!((noisy.call, noisy.note.as_deref()), (Call::CannotTell, Some(HIDDEN)));
        assert!(noisy.visible.is_some_and(|visible| visible > 0.05 && visible < 0.06), "{noisy:?}");
        assert_eq!(noisy.effect, quiet.effect);
    }

    #[test]
    fn a_control_with_too_few_rounds_shows_nothing() {
        let few = goodput(&[100.0, 101.0, 99.0, 100.0]);
        assert_eq!((few.call, few.visible), (Call::CannotTell, Some(f64::INFINITY)));
        assert_eq!(few.note.as_deref(), Some(UNKNOWN));
    }
}
