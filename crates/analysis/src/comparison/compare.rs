//! Whether two cases differ, and by how much: better, worse, the same, or cannot tell.
//!
//! The trial is the unit: the thousands of requests in it share a start, a memory layout and a noisy neighbour, so
//! they are not independent. Each figure is one number per trial. Figures on a ratio scale are compared by their
//! logarithms, so that half and double are equally far from the same.
//!
//! - Trials of one run whose cases took turns are paired by round: a disturbance in a round affected both. The
//!   interval is Student's, over the differences within rounds.
//! - All others use Welch's interval (Welch 1947, with Satterthwaite's degrees of freedom), which does not assume
//!   equal variances.
//! - Looking at several figures finds a difference somewhere by chance alone. Holm's procedure (1979) keeps the
//!   chance of a single false alarm in a comparison at 5 %, however the figures depend on one another. The reported
//!   interval is the one the figure was judged by, so the report and the verdict never disagree.
//! - If a figure differs, the difference is looked for in the parts of the trial ([`crate::cases::parts`]): steps,
//!   loads, batches, components, probes. That is covered by the same 5 % ([`crate::statistics::hierarchy`]).
//!
//! It reads no record and draws nothing.

use loadlab_record::documents::summary::Summary;
use loadlab_record::store::TrialRecord;

use crate::cases::case::{Spread, TRIALS_FOR_DIFFERENCES, why_left_out};
use crate::cases::metric::{Better, Metric, Value};
use crate::cases::parts::{parts_of, probes};
use crate::comparison::figures::{Scale, compared, deciding, scale_of};
use crate::comparison::interval::{Call, EquivalenceBounds, Judged, Method, Samples, directed, judge_with};
use crate::statistics::student;
use crate::trial::profile::{self, CaseProfile};

/// How to judge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// An interval inside ± this share is "the same".
    pub equivalence_margin: f64,
    /// The probability that a comparison of two equal cases raises no alarm at all.
    pub confidence: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options { equivalence_margin: 0.02, confidence: student::CONFIDENCE }
    }
}

/// One of the two cases of a comparison.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// Its name.
    pub name: String,
    /// Its comparable trials, with the round they ran in.
    pub trials: Vec<(u32, &'a Summary)>,
    /// Trials that are not comparable, and why.
    pub left_out: Vec<String>,
}

impl<'a> Side<'a> {
    /// From the trials of a case; those that did not finish or cannot be trusted are left out.
    pub fn of(name: &str, trials: impl Iterator<Item = (u32, Option<&'a Summary>)>) -> Side<'a> {
        let mut side = Side { name: name.to_owned(), trials: Vec::new(), left_out: Vec::new() };
        for (round, summary) in trials {
            match why_left_out(summary) {
                None => side.trials.extend(summary.map(|summary| (round, summary))),
                Some(why) => side.left_out.push(format!("trial {round} of “{name}” {why}")),
            }
        }
        side
    }
}

impl<'a> Side<'a> {
    /// Its trials from rounds that the other side has as well.
    pub(crate) fn rounds_of(&self, with: &Side<'_>) -> Vec<(u32, &'a Summary)> {
        let both = |round: u32| with.trials.iter().any(|t| t.0 == round);
        self.trials.iter().copied().filter(|t| both(t.0)).collect()
    }
}

/// Two cases side by side. Every ratio is the other's over the base's.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The baseline.
    pub base: String,
    /// The case compared with it.
    pub other: String,
    /// How trials were matched.
    pub method: Method,
    /// Number of trials compared on each side; for paired ones the rounds, twice.
    pub trials: (usize, usize),
    /// A row for each figure that either of them has.
    pub rows: Vec<Row>,
    /// Where the cases differ in these figures: a row for each part of the trial that was tested.
    pub details: Vec<Row>,
    /// Why no difference can be shown whatever the figures are.
    pub why_not: Option<String>,
    /// Trials that were left out, in words.
    pub left_out: Vec<String>,
    /// In words, if most of the other's trials have a different bottleneck than most of the base's.
    pub moved: Option<String>,
    /// Where CPU time went in both, and where threads waited, if both were sampled.
    pub profiles: Option<Box<(CaseProfile, CaseProfile)>>,
    /// How it was judged.
    pub options: Options,
}

impl Comparison {
    /// Adds the profiles of both cases, from their trials.
    pub fn with_profiles<'a>(
        mut self,
        base: impl Iterator<Item = &'a TrialRecord>,
        other: impl Iterator<Item = &'a TrialRecord>,
    ) -> Comparison {
        self.profiles = profile::of_case(base).zip(profile::of_case(other)).map(Box::new);
        self
    }

    /// Whether any figure is worse.
    pub fn is_worse(&self) -> bool {
        self.rows.iter().any(|r| r.call == Call::Worse)
    }

    /// The parts of the trial in which the cases differ.
    pub fn differing_details(&self) -> impl Iterator<Item = &Row> {
        self.details.iter().filter(|row| matches!(row.call, Call::Better | Call::Worse | Call::Changed))
    }

    /// Rows with this verdict.
    pub fn called(&self, call: Call) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| r.call == call)
    }
}

/// A figure of both cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The figure.
    pub metric: Metric,
    /// How it was compared.
    pub scale: Scale,
    /// Its values over the base's trials.
    pub base: Spread,
    /// Its values over the other's trials.
    pub other: Spread,
    /// The result of the trials: a ratio, or a difference of shares. It comes from pairs of trials, or from means over
    /// them; it is not the ratio of the medians.
    pub effect: Option<Effect>,
    /// The verdict.
    pub call: Call,
    /// Whether the comparison is unsettled without it.
    pub decides: bool,
    /// Smaller differences are not called, since the control had such by chance: a share of the base, or, for shares,
    /// a difference. Infinite while it is unknown; `None` without a control.
    pub visible: Option<f64>,
    /// Why there is no verdict, or what else the reader should know.
    pub note: Option<String>,
    /// Trials of each case that would settle it, if they continue like these; `None` if it is settled or cannot be
    /// predicted.
    pub trials_needed: Option<u64>,
}

/// A ratio, or a difference of shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The estimate: of ratios the geometric mean.
    pub value: f64,
    /// Where it lies; `None` with fewer than [`TRIALS_FOR_DIFFERENCES`] trials: such an interval would only show how
    /// little they prove, in figures as wide as they are meaningless.
    pub interval: Option<ConfidenceInterval>,
}

/// An interval around an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The interval's own confidence, after Holm.
    pub confidence: f64,
    /// The probability of such a difference between equal cases; `None` where the test has none.
    pub chance: Option<f64>,
}

/// Compares two cases by the figures that the plan names and by the usual ones.
pub fn compare(
    base: &Side<'_>,
    other: &Side<'_>,
    method: Method,
    figures: &[Metric],
    options: Options,
) -> Comparison {
    let (base_trials, other_trials) = match method {
        Method::Welch => (base.trials.clone(), other.trials.clone()),
        Method::Paired | Method::Sequential => (base.rounds_of(other), other.rounds_of(base)),
    };
    let fewest = base_trials.len().min(other_trials.len());
    let why_not = (fewest < TRIALS_FOR_DIFFERENCES).then(|| too_few(fewest, method));
    let all = compared(figures);
    let decides = deciding(figures, &all);
    let both = |m: Metric| read(&m, &base_trials, &other_trials).map(|reported| (m, reported));
    let (figures, decides): (Vec<(Metric, Reported)>, Vec<bool>) =
        all.into_iter().zip(decides).filter_map(|(m, decides)| Some((both(m)?, decides))).unzip();
    let has_interval = why_not.is_none();
    let summaries: Vec<&Summary> = base_trials.iter().chain(&other_trials).map(|t| t.1).collect();
    let mut details: Vec<(Metric, Reported)> = Vec::new();
    let mut add = |parts: Vec<Metric>| -> Vec<usize> {
        let from = details.len();
        // Without an interval nothing differs, so there is nothing to look for.
        let known = parts.into_iter().filter(|_| has_interval).filter_map(both);
        details.extend(known.filter(|(_, r)| r.samples.is_some()));
        (from..details.len()).collect()
    };
    let details_of: Vec<Vec<usize>> = figures.iter().map(|(m, _)| add(parts_of(m, &summaries))).collect();
    let common = add(probes(&summaries));
    let samples: Vec<Option<Samples>> =
        figures.iter().chain(&details).map(|(_, t)| t.samples.clone()).collect();
    let mut judged = judge_with(&samples, &details_of, &common, method, options.confidence);
    let judged_details = judged.split_off(figures.len());
    let rows_of = |reported: Vec<(Metric, Reported)>, judged: Vec<Option<Judged>>| -> Vec<Row> {
        let both = reported.into_iter().zip(judged);
        both.map(|((m, t), judged)| row(&m, t, judged, has_interval, options)).collect()
    };
    let mut rows = rows_of(figures, judged);
    let details = rows_of(details, judged_details);
    for (row, decides) in rows.iter_mut().zip(decides) {
        row.decides = decides && row.effect.is_some();
    }
    let detail = |row: Row| Row { decides: false, trials_needed: None, ..row };
    let found = Comparison {
        base: base.name.clone(),
        other: other.name.clone(),
        method,
        trials: (base_trials.len(), other_trials.len()),
        rows,
        details: details.into_iter().filter(|row| row.effect.is_some()).map(detail).collect(),
        why_not,
        moved: None,
        left_out: base.left_out.iter().chain(&other.left_out).cloned().collect(),
        profiles: None,
        options,
    };
    found.without_unresolved(&base_trials, &other_trials)
}

fn too_few(trials: usize, method: Method) -> String {
    let what = match (method, trials) {
        (Method::Paired | Method::Sequential, 1) => "1 round in common",
        (Method::Paired | Method::Sequential, _) => "rounds in common",
        (Method::Welch, 1) => "1 trial per case",
        (Method::Welch, _) => "trials per case",
    };
    let count = if trials == 1 { String::new() } else { format!("{trials} ") };
    format!(
        "{count}{what}: too few for an interval or a verdict (at least {TRIALS_FOR_DIFFERENCES} are needed)"
    )
}

/// A figure as reported by the trials.
pub(crate) struct Reported {
    base: Spread,
    other: Spread,
    /// On the scale of the comparison (logarithms of ratios); `None` if a trial does not report it.
    pub(crate) samples: Option<Samples>,
    /// Whether only a lower bound of the base, or of the other, is known.
    bounds: (bool, bool),
    note: Option<String>,
}

/// `None`: no trial reports it, or it is a share that is zero everywhere.
pub(crate) fn read(
    measure: &Metric,
    base: &[(u32, &Summary)],
    other: &[(u32, &Summary)],
) -> Option<Reported> {
    let values =
        |trials: &[(u32, &Summary)]| -> Vec<Value> { trials.iter().map(|(_, s)| measure.of(s)).collect() };
    let scale = scale_of(measure);
    let (of_base, of_other) = (values(base), values(other));
    let is_known = |v: &Value| !matches!(v, Value::Nothing);
    let all = || of_base.iter().chain(&of_other);
    if !all().any(is_known) {
        return None;
    }
    if scale == Scale::Difference && all().all(|v| *v == Value::Known(0.0)) {
        return None;
    }
    let bound = |values: &[Value]| values.iter().any(|v| matches!(v, Value::Over(_)));
    let bounds = (bound(&of_base), bound(&of_other));
    let mut note = all().find_map(|v| match v {
        Value::Between(few) => {
            Some(format!("{} needs {} requests in each trial", measure.title(), few.needed))
        }
        Value::Nothing => Some(format!("{} is not reported by every trial", measure.title())),
        _ => None,
    });
    if bounds == (true, true) {
        note = Some("only a lower bound of both is known".to_owned());
    }
    let number = |v: &Value| match (v, scale) {
        (Value::Known(v) | Value::Over(v), Scale::Difference) => Some(*v),
        (Value::Known(v) | Value::Over(v), Scale::Ratio) if *v > 0.0 => Some(v.ln()),
        _ => None,
    };
    let numbers = |values: &[Value]| values.iter().map(number).collect::<Option<Vec<f64>>>();
    let samples = numbers(&of_base).zip(numbers(&of_other)).map(|(base, other)| Samples { base, other });
    if samples.is_none() && note.is_none() {
        note = Some(format!("{} is 0 in a trial, so there is no ratio", measure.title()));
    }
    let samples = samples.filter(|_| note.is_none());
    let (base, other) = (Spread::of(of_base, measure.better()), Spread::of(of_other, measure.better()));
    Some(Reported { base, other, samples, bounds, note })
}

fn row(
    measure: &Metric,
    reported: Reported,
    judged: Option<Judged>,
    has_interval: bool,
    options: Options,
) -> Row {
    let scale = scale_of(measure);
    let same = EquivalenceBounds::of(scale, options.equivalence_margin);
    let mut call = judged.map_or(Call::CannotTell, |j| j.call(same, measure.better() != Better::More));
    let mut note = reported.note;
    // A bound only shows where the truth is not: it supports one direction only.
    let unsupported = match reported.bounds {
        (false, false) => false,
        (true, false) => judged.is_none_or(|j| j.mean + j.half >= 0.0),
        (false, true) => judged.is_none_or(|j| j.mean - j.half <= 0.0),
        (true, true) => true,
    };
    // A bound near the other value shows nothing of what lies beyond it.
    let unsupported = unsupported || call == Call::Same && reported.bounds != (false, false);
    if reported.bounds != (false, false) {
        let of = if reported.bounds.0 { "the first" } else { "the second" };
        note.get_or_insert_with(|| format!("only a lower bound of {of} is known"));
        if unsupported {
            call = Call::CannotTell;
        }
    }
    if !has_interval {
        call = Call::CannotTell;
    }
    call = directed(call, measure);
    let settled = call != Call::CannotTell || unsupported && reported.bounds != (false, false);
    let trials_needed = judged.filter(|_| !settled && has_interval).and_then(|j| j.trials_needed(same));
    let reported_effect = |j: Judged| {
        let out = |v: f64| if scale == Scale::Ratio { v.exp() } else { v };
        let interval = ConfidenceInterval {
            low: out(j.mean - j.half),
            high: out(j.mean + j.half),
            confidence: j.confidence,
            chance: Some(j.chance),
        };
        Effect { value: out(j.mean), interval: has_interval.then_some(interval) }
    };
    Row {
        metric: measure.clone(),
        scale,
        base: reported.base,
        other: reported.other,
        effect: judged.map(reported_effect),
        call,
        decides: true,
        visible: None,
        note,
        trials_needed,
    }
}
