//! One case over its trials: which trials its figures are made from, and the value of each figure.

pub use loadlab_record::documents::manifest::TRIALS_FOR_DIFFERENCES;
use loadlab_record::documents::summary::{Ended, Summary, Verdict};
use loadlab_record::store::{CaseRecord, TrialRecord};

use crate::cases::metric::{Better, Metric, Value};
use crate::trial::bottleneck::Diagnosis;

/// Findings of one case.
#[derive(Clone, Debug)]
pub struct CaseFindings<'a> {
    /// The case.
    pub case: &'a CaseRecord,
    /// Its name in sentences: without the axes that do not vary.
    pub label: String,
    /// Planned trials in order, missing ones included.
    pub trials: Vec<TrialFindings<'a>>,
    /// The worst of its trials: INVALID before FAIL before PASS. A missing trial makes it at least FAIL.
    pub verdict: Verdict,
    /// What held it back: the diagnosis of a trial whose first suspect is the most frequent one among the trials that
    /// its figures are made from, the typical trial's if it is one of them; with the typical trial's connections. Empty
    /// if nothing was measured.
    pub diagnosis: Diagnosis,
    /// Number of the trial that the diagnosis is of, 0 for none.
    pub diagnosed_trial: u32,
    /// How many of these trials have this first suspect …
    pub agreeing: usize,
    /// … and how many have one at all.
    pub diagnosed: usize,
}

/// Findings of one trial.
#[derive(Clone, Debug)]
pub struct TrialFindings<'a> {
    /// Number of the trial, from 1.
    pub number: u32,
    /// Its summary: as written, or reconstructed if it was cut off. `None` if there is none.
    pub summary: Option<&'a Summary>,
    /// What was recorded; `None` if it never began.
    pub record: Option<&'a TrialRecord>,
    /// Why it failed or is missing, in words; `None` if it went as planned.
    pub trouble: Option<String>,
}

/// A figure over the trials of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The value of each trial, in order.
    pub values: Vec<Value>,
    /// The median; for an even number of trials the worse of the middle two, never an average.
    pub median: Value,
    /// The smallest known value.
    pub min: Option<f64>,
    /// The largest value; [`Value::Over`] if a censored one may lie beyond.
    pub max: Value,
}

impl CaseFindings<'_> {
    /// Whether this is a control, another case run once more: any difference between the two is chance.
    pub fn is_control(&self) -> bool {
        self.case.facts.control_of.is_some()
    }
}

/// The cases that are not controls.
pub fn without_controls<'c, 'a>(
    cases: &'c [CaseFindings<'a>],
) -> impl Iterator<Item = &'c CaseFindings<'a>> + Clone {
    cases.iter().filter(|case| !case.is_control())
}

impl Spread {
    /// The spread of the trials' values. A value known only as a lower bound sorts above all others, an estimate from
    /// few samples at its most likely value: trials with fewer requests are often the slower ones, and leaving them out
    /// would flatter. If the middle is an estimate, it represents all, without a range.
    pub fn of(values: Vec<Value>, better: Better) -> Spread {
        let key = |v: &Value| match v {
            Value::Known(v) => Some((0, *v)),
            Value::Between(few) if !few.is_unknown() => Some((0, few.likely())),
            Value::Over(v) => Some((1, *v)),
            Value::Between(_) | Value::Nothing => None,
        };
        let mut sorted: Vec<((u8, f64), Value)> = values.iter().filter_map(|v| Some((key(v)?, *v))).collect();
        sorted.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let middle = match better {
            Better::More => sorted.len().saturating_sub(1) / 2,
            Better::Less | Better::Neither => sorted.len() / 2,
        };
        // Of older records, only the number of samples is known.
        let unknown = || values.iter().find(|v| matches!(v, Value::Between(_))).copied();
        let median = sorted.get(middle).map(|(_, value)| *value).or_else(unknown).unwrap_or(Value::Nothing);
        if let Value::Between(_) = median {
            return Spread { median, min: None, max: median, values };
        }
        let mut reported = sorted.iter().map(|(_, value)| *value).filter(|v| !matches!(v, Value::Between(_)));
        Spread {
            median,
            min: reported.clone().find_map(Value::known),
            max: reported.next_back().unwrap_or(Value::Nothing),
            values,
        }
    }

    /// Number of trials that reported the figure.
    pub fn reported(&self) -> usize {
        self.values.iter().filter(|v| matches!(v, Value::Known(_) | Value::Over(_))).count()
    }
}

impl CaseFindings<'_> {
    /// Summaries of its trials, in order.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.trials.iter().filter_map(|t| t.summary)
    }

    /// The summaries its figures are made from: those of valid trials, which completed their load and can be trusted.
    /// Without any, those of completed trials; failing that, all. Reports state which.
    pub fn whole(&self) -> impl Iterator<Item = &Summary> {
        self.whole_trials().filter_map(|t| t.summary)
    }

    /// The trials of [`CaseFindings::whole`].
    pub fn whole_trials(&self) -> impl Iterator<Item = &TrialFindings<'_>> {
        let fitness = self.summaries().map(fitness).max().unwrap_or(0);
        self.trials.iter().filter(move |t| t.summary.is_some_and(|s| self::fitness(s) == fitness))
    }

    /// The trials left out of its figures, each with the reason in words.
    pub fn left_out(&self) -> Vec<String> {
        let fitness = self.summaries().map(fitness).max().unwrap_or(0);
        let why = |t: &TrialFindings<'_>| {
            let summary = t.summary.filter(|s| self::fitness(s) != fitness)?;
            Some(format!("trial {} of “{}” {}", t.number, self.label, why_left_out(Some(summary))?))
        };
        self.trials.iter().filter_map(why).collect()
    }

    /// A figure over its trials.
    pub fn spread(&self, metric: &Metric) -> Spread {
        Spread::of(self.whole().map(|s| metric.of(s)).collect(), metric.better())
    }

    /// A figure of one of its components over its trials.
    pub fn component_spread(
        &self,
        component: &str,
        read: fn(&loadlab_record::documents::summary::ComponentSummary) -> Option<f64>,
    ) -> Spread {
        let of = |s: &Summary| s.components.get(component).and_then(read).into();
        Spread::of(self.whole().map(of).collect(), Better::Less)
    }

    /// The trial to draw: the one with the median goodput. It is invalid only if no trial is valid.
    pub fn typical(&self) -> Option<&TrialFindings<'_>> {
        let mut reported: Vec<&TrialFindings<'_>> =
            self.whole_trials().filter(|t| t.record.is_some()).collect();
        let goodput = |t: &TrialFindings<'_>| t.summary.map_or(0.0, |s| s.rate_per_s.ok);
        reported.sort_by(|a, b| goodput(a).total_cmp(&goodput(b)).then(a.number.cmp(&b.number)));
        reported.get(reported.len().saturating_sub(1) / 2).copied()
    }
}

/// Why a trial is left out of figures and comparisons, in words after its name; `None` if it counts.
pub(crate) fn why_left_out(summary: Option<&Summary>) -> Option<&'static str> {
    match summary.map(fitness) {
        None => Some("was not measured"),
        Some(0) => Some("did not finish"),
        Some(1) => Some("is INVALID"),
        Some(_) => None,
    }
}

/// How suitable a trial is for figures: 2 is valid, 1 is complete but cannot be trusted, 0 has a different length than
/// planned.
fn fitness(summary: &Summary) -> u8 {
    match (summary.ended, summary.verdict) {
        (Ended::Partial | Ended::Interrupted | Ended::Broken, _) => 0,
        (_, Verdict::Invalid) => 1,
        _ => 2,
    }
}
