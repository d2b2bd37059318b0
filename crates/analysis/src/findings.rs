//! What follows from a whole run, over cases and trials.
//!
//! Trials of a case are never pooled into one percentile. One rule makes every figure of a case: it is the figure's own
//! median over the valid trials (of an even number the worse of the middle two), with the smallest and the largest beside
//! it. Two figures of a case may therefore be of different trials. Whether two cases differ is not said here for a
//! quick run or for fewer than [`TRIALS_FOR_DIFFERENCES`] trials, and it is said why.

use std::borrow::Cow;

use loadlab_record::event::What;
use loadlab_record::manifest::RunEnded;
use loadlab_record::store::{CaseRecord, RunRecord, TrialRecord};
use loadlab_record::summary::{Ended, Summary, Verdict};

use crate::compare::{Comparison, Options};
use crate::derived::{self, Derived};
use crate::differences;
use crate::first::{Seen, Suspect, gave_first};
use crate::metric::{Better, Metric, Value};
use crate::partial::partial;
use crate::scalability::{Scalability, scalability};

/// With fewer trials, the spread between them is itself a guess: of four trials of two equal cases, one in
/// 35 orders all of one before all of the other by chance alone.
pub const TRIALS_FOR_DIFFERENCES: usize = 5;

/// Findings of a run.
#[derive(Clone, Debug)]
pub struct Findings<'a> {
    /// By case, in the manifest's order.
    pub cases: Vec<CaseFindings<'a>>,
    /// In words.
    pub statement: Statement,
    /// Why nothing is said about differences between cases; `None` where it may be.
    pub no_differences: Option<String>,
    /// Every other case against the base; empty where nothing may be said.
    pub comparisons: Vec<Comparison>,
    /// Throughput over users, where an axis varies them.
    pub scalability: Vec<Scalability>,
    /// What the plan works out of figures of its cases.
    pub derived: Vec<Derived>,
    /// Made for a first look.
    pub quick: bool,
}

/// Findings of one case.
#[derive(Clone, Debug)]
pub struct CaseFindings<'a> {
    /// The case.
    pub case: &'a CaseRecord,
    /// Planned trials in order, missing ones included.
    pub trials: Vec<TrialFindings<'a>>,
    /// The worst of its trials: INVALID before FAIL before PASS. A missing trial makes it at least FAIL.
    pub verdict: Verdict,
    /// What gave first in its typical trial, the first to be believed first; empty where nothing was measured.
    pub suspects: Vec<Suspect>,
    /// Of so many of its trials the same is said first.
    pub agreeing: usize,
}

/// Findings of one trial.
#[derive(Clone, Debug)]
pub struct TrialFindings<'a> {
    /// From 1.
    pub number: u32,
    /// Its summary: as written, or put together when it was cut off. `None`: there is nothing of it.
    pub summary: Option<Cow<'a, Summary>>,
    /// What was recorded; `None` when it never began.
    pub record: Option<&'a TrialRecord>,
    /// Why it failed or is missing, in words; `None` when it went as planned.
    pub trouble: Option<String>,
}

/// The run in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// What was tested.
    pub tested: String,
    /// What held and what did not.
    pub held: String,
    /// What gave first.
    pub gave: String,
    /// How sure that is.
    pub sure: String,
}

/// A figure over the trials of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Of each trial, in order.
    pub values: Vec<Value>,
    /// The middle one; of an even number the worse of the middle two, never an average.
    pub median: Value,
    /// The smallest known.
    pub min: Option<f64>,
    /// The largest; [`Value::Over`] when a censored one may be beyond.
    pub max: Value,
}

impl Spread {
    /// Of the figures of trials. A value that is only known from below sorts above all known ones.
    pub fn of(values: Vec<Value>, better: Better) -> Spread {
        let mut told: Vec<Value> =
            values.iter().copied().filter(|v| matches!(v, Value::Known(_) | Value::Over(_))).collect();
        let key = |v: &Value| match v {
            Value::Known(v) => (0, *v),
            Value::Over(v) => (1, *v),
            _ => (2, 0.0),
        };
        told.sort_by(|a, b| key(a).0.cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
        let untold = values.iter().copied().find(|v| matches!(v, Value::Needs(_))).unwrap_or(Value::Nothing);
        let middle = match better {
            Better::More => told.len().saturating_sub(1) / 2,
            Better::Less | Better::Neither => told.len() / 2,
        };
        Spread {
            median: told.get(middle).copied().unwrap_or(untold),
            min: told.iter().find_map(|v| v.known()),
            max: told.last().copied().unwrap_or(untold),
            values,
        }
    }

    /// Trials that told it.
    pub fn told(&self) -> usize {
        self.values.iter().filter(|v| matches!(v, Value::Known(_) | Value::Over(_))).count()
    }
}

impl CaseFindings<'_> {
    /// Summaries of its trials, in order.
    pub fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.trials.iter().filter_map(|t| t.summary.as_deref())
    }

    /// The summaries its figures are made from: of valid trials, which went to the end of their load and can be trusted.
    /// Where there is none, of those that went to the end, and where there is none of these either, of all: reports say so.
    pub fn whole(&self) -> impl Iterator<Item = &Summary> {
        let fitness = self.summaries().map(fitness).max().unwrap_or(0);
        self.summaries().filter(move |s| self::fitness(s) == fitness)
    }

    /// Trials that are left out of its figures, and why, in words.
    pub fn left_out(&self) -> Vec<String> {
        let fitness = self.summaries().map(fitness).max().unwrap_or(0);
        let why = |t: &TrialFindings<'_>| {
            let summary = t.summary.as_deref()?;
            let why = match self::fitness(summary) {
                fit if fit == fitness => return None,
                0 => "did not go to its end",
                _ => "is INVALID",
            };
            Some(format!("trial {} of “{}” {why}", t.number, self.case.facts.name))
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
        read: fn(&loadlab_record::summary::ComponentSummary) -> Option<f64>,
    ) -> Spread {
        let of = |s: &Summary| s.components.get(component).and_then(read).into();
        Spread::of(self.whole().map(of).collect(), Better::Less)
    }

    /// The trial whose goodput is the median: the one to draw. One that is not valid only if none is.
    pub fn typical(&self) -> Option<&TrialFindings<'_>> {
        let fitness = self.summaries().map(fitness).max().unwrap_or(0);
        let fit = |t: &&TrialFindings<'_>| {
            t.record.is_some() && t.summary.as_deref().is_some_and(|s| self::fitness(s) == fitness)
        };
        let mut told: Vec<&TrialFindings<'_>> = self.trials.iter().filter(fit).collect();
        let goodput = |t: &TrialFindings<'_>| t.summary.as_deref().map_or(0.0, |s| s.rate_per_s.ok);
        told.sort_by(|a, b| goodput(a).total_cmp(&goodput(b)).then(a.number.cmp(&b.number)));
        told.get(told.len().saturating_sub(1) / 2).copied()
    }
}

/// How fit a trial is to make figures of: 2 is a valid one, 1 went to its end and cannot be trusted, 0 is of another
/// length than was planned.
fn fitness(summary: &Summary) -> u8 {
    match (summary.ended, summary.verdict) {
        (Ended::Partial | Ended::Interrupted | Ended::Broken, _) => 0,
        (_, Verdict::Invalid) => 1,
        _ => 2,
    }
}

/// What follows from a run.
pub fn findings(run: &RunRecord) -> Findings<'_> {
    let cases: Vec<CaseFindings<'_>> = run.cases.iter().map(|case| case_findings(run, case)).collect();
    // Levels of a search differ by intent, and nobody asks whether.
    let is_search = run.manifest.search.is_some();
    let no_differences = if is_search { None } else { no_differences(run, &cases) };
    let statement = Statement {
        tested: tested(run),
        held: held(run, &cases),
        gave: gave(&cases),
        sure: sure(&cases, no_differences.as_deref()),
    };
    let scalability = scalability(&cases);
    let quick = run.manifest.quick;
    let derived = derived::derived(&run.manifest.derive, &cases, quick);
    let mut found =
        Findings { cases, statement, no_differences, comparisons: Vec::new(), scalability, derived, quick };
    if found.no_differences.is_none() && !is_search {
        found.comparisons = differences::within(&found, Options::default());
    }
    found
}

/// What gave first, case by case; cases of which the same is said stand together.
fn gave(cases: &[CaseFindings<'_>]) -> String {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for case in cases {
        let Some(first) = case.suspects.first() else { continue };
        match said.iter_mut().find(|(text, _)| *text == first.text) {
            Some((_, names)) => names.push(&case.case.facts.name),
            None => said.push((&first.text, vec![&case.case.facts.name])),
        }
    }
    let sentence = |(text, names): &(&str, Vec<&str>)| match cases.len() {
        1 => format!("{}.", capital(text)),
        _ => format!("{}: {text}.", listed(names)),
    };
    const MOST: usize = 4;
    let mut words: Vec<String> = said.iter().take(MOST).map(sentence).collect();
    if said.len() > MOST {
        words.push(match said.len() - MOST {
            1 => "One more is told at its case.".to_owned(),
            n => format!("{n} more are told at their cases."),
        });
    }
    if words.is_empty() { "Nothing was measured.".to_owned() } else { words.join(" ") }
}

/// The text with a capital, unless it begins with a name.
fn capital(text: &str) -> String {
    let starts = ["nothing", "requests", "the machine", "loadlab itself"].iter().any(|w| text.starts_with(w));
    match text.chars().next() {
        Some(c) if starts => c.to_uppercase().chain(text.chars().skip(1)).collect(),
        _ => text.to_owned(),
    }
}

/// Of each measured trial what gave first.
fn suspects_of(run: &RunRecord, trials: &[TrialFindings<'_>]) -> Vec<(u32, Vec<Suspect>)> {
    let order: Vec<String> = run.manifest.components.iter().map(|c| c.name.clone()).collect();
    let of = |trial: &TrialFindings<'_>| {
        let (summary, record) = (trial.summary.as_deref()?, trial.record?);
        let seen = Seen {
            summary,
            samples: &record.samples.unpacked(),
            ticks: &record.ticks,
            events: &record.events,
            order: &order,
            cores: run.manifest.host.cores,
        };
        Some((trial.number, gave_first(seen)))
    };
    trials.iter().filter_map(of).collect()
}

fn case_findings<'a>(run: &'a RunRecord, case: &'a CaseRecord) -> CaseFindings<'a> {
    let last = case.trials.iter().map(|t| t.number).max().unwrap_or(0).max(run.manifest.trials);
    let trials: Vec<TrialFindings<'_>> = (1..=last)
        .map(|number| {
            let record = case.trials.iter().find(|t| t.number == number);
            trial_findings(run, case, number, record)
        })
        .collect();
    let verdict = trials.iter().map(verdict_of).min_by_key(severity).unwrap_or(Verdict::None);
    let all = suspects_of(run, &trials);
    let mut found = CaseFindings { case, trials, verdict, suspects: Vec::new(), agreeing: 0 };
    let typical = found.typical().map(|t| t.number);
    let said = all.iter().find(|(n, _)| Some(*n) == typical).or(all.first());
    if let Some((_, suspects)) = said {
        let key = |s: &[Suspect]| s.first().map(|s| (s.kind, s.who.clone()));
        found.agreeing = all.iter().filter(|(_, s)| key(s) == key(suspects)).count();
        found.suspects.clone_from(suspects);
    }
    found
}

fn verdict_of(trial: &TrialFindings<'_>) -> Verdict {
    trial.summary.as_deref().map_or(Verdict::Fail, |s| s.verdict)
}

/// 0 is the worst.
fn severity(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Invalid => 0,
        Verdict::Fail => 1,
        Verdict::None => 2,
        Verdict::Pass => 3,
    }
}

fn trial_findings<'a>(
    run: &RunRecord,
    case: &CaseRecord,
    number: u32,
    record: Option<&'a TrialRecord>,
) -> TrialFindings<'a> {
    let Some(record) = record else {
        let why = match run.manifest.how {
            RunEnded::Interrupted => "never began: the run was interrupted before it",
            RunEnded::Partial => "never began: the run ended before it",
            _ => "never began",
        };
        return TrialFindings { number, summary: None, record: None, trouble: Some(why.to_owned()) };
    };
    let failed = record.events.iter().find_map(|e| match &e.what {
        What::Failed { text } => Some(text.clone()),
        _ => None,
    });
    let died = record.events.iter().find_map(|e| match &e.what {
        What::Died { component, status } => Some(format!("{component} died at {:.1} s: {status}", e.at_s)),
        _ => None,
    });
    // Without a second of load there is nothing to put a summary together from.
    let summary = match &record.summary {
        Some(summary) => Some(Cow::Borrowed(summary)),
        None if record.ticks.is_empty() => None,
        None => Some(Cow::Owned(partial(record, &case.facts))),
    };
    let ended = match summary.as_deref().map(|s| s.ended) {
        Some(Ended::Complete | Ended::Stopped) => None,
        Some(Ended::Interrupted) => Some("the load was interrupted".to_owned()),
        Some(Ended::Partial) => {
            Some("cut off: loadlab was killed, or could not write its summary; put together from what it had written".to_owned())
        }
        Some(Ended::Broken) => Some("the system broke".to_owned()),
        None => Some("ended before the load began".to_owned()),
    };
    let cut_off = ended.clone().filter(|_| summary.as_deref().is_some_and(|s| s.ended == Ended::Partial));
    let trouble = match (failed.or(died), cut_off) {
        (Some(what), Some(cut_off)) => Some(format!("{what}; {cut_off}")),
        (what, _) => what.or(ended),
    };
    TrialFindings { number, summary, record: Some(record), trouble }
}

fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Names in a row, the first few of them.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 4;
    let shown: Vec<String> = names.iter().take(MOST).map(|n| format!("“{n}”")).collect();
    match names.len() {
        n if n > MOST => format!("{} and {} more", shown.join(", "), n - MOST),
        _ => shown.join(", "),
    }
}

fn tested(run: &RunRecord) -> String {
    let m = &run.manifest;
    let mut text = match m.cases.len() {
        1 => "One case".to_owned(),
        n => format!("{n} cases"),
    };
    if !m.axes.is_empty() {
        text.push_str(&format!(" ({})", m.axes.join(" × ")));
    }
    text.push_str(&match m.trials {
        1 => ", one trial".to_owned(),
        n => format!(", {n} trials"),
    });
    text.push_str(if m.cases.len() > 1 { " each" } else { "" });
    if !m.components.is_empty() {
        text.push_str(&format!(", on a system of {}", plural(m.components.len(), "component", "components")));
    }
    text.push('.');
    match m.how {
        RunEnded::Complete => {}
        RunEnded::Broken => text.push_str(" Not every trial could be run to its end."),
        RunEnded::Interrupted => text.push_str(" The run was interrupted before its end."),
        RunEnded::Partial => {
            text.push_str(" The run has not ended, or loadlab was killed: this is what there is.")
        }
    }
    text
}

fn held(run: &RunRecord, cases: &[CaseFindings<'_>]) -> String {
    let with = |verdict: Verdict| -> Vec<&str> {
        cases.iter().filter(|c| c.verdict == verdict).map(|c| c.case.facts.name.as_str()).collect()
    };
    let (pass, fail, invalid) = (with(Verdict::Pass), with(Verdict::Fail), with(Verdict::Invalid));
    let mut parts = Vec::new();
    let expected = plural(run.manifest.expect.len(), "expectation", "expectations");
    if run.manifest.expect.is_empty() {
        parts.push("Nothing was expected, so nothing passed or failed.".to_owned());
    } else if pass.len() == cases.len() {
        parts.push(match run.manifest.expect.len() {
            1 => format!("The expectation `{}` held in every case.", run.manifest.expect[0]),
            _ => format!("All {expected} held in every case."),
        });
    } else if !pass.is_empty() {
        parts.push(format!(
            "All expectations held in {} of {}: {}.",
            pass.len(),
            plural(cases.len(), "case", "cases"),
            listed(&pass)
        ));
    }
    if !fail.is_empty() {
        parts.push(format!("Failed: {}{}", listed(&fail), missed(cases)));
    }
    if !invalid.is_empty() {
        parts.push(format!("Cannot be told (INVALID): {}.", listed(&invalid)));
    }
    parts.join(" ")
}

/// Which expectations were missed and which could not be told, each once.
fn missed(cases: &[CaseFindings<'_>]) -> String {
    let failed = || cases.iter().filter(|c| c.verdict == Verdict::Fail);
    let all = || failed().flat_map(|c| c.summaries()).flat_map(|s| &s.expectations);
    let exprs = |holds: Option<bool>| {
        let mut exprs: Vec<&str> = Vec::new();
        for e in all().filter(|e| e.holds == holds) {
            if !exprs.contains(&e.expr.as_str()) {
                exprs.push(&e.expr);
            }
        }
        exprs.join("; ")
    };
    let (missed, untold) = (exprs(Some(false)), exprs(None));
    match (missed.is_empty(), untold.is_empty()) {
        (true, true) => ".".to_owned(),
        (false, true) => format!(" (missed: {missed})."),
        (true, false) => format!(" (could not be told: {untold})."),
        (false, false) => format!(" (missed: {missed}; could not be told: {untold})."),
    }
}

fn sure(cases: &[CaseFindings<'_>], no_differences: Option<&str>) -> String {
    let trials = || cases.iter().flat_map(|c| &c.trials);
    let (all, measured) = (trials().count(), trials().filter(|t| t.summary.is_some()).count());
    let doubted = trials().filter(|t| t.summary.as_deref().is_some_and(|s| !s.doubts.is_empty())).count();
    let mut kinds: Vec<&str> = Vec::new();
    for doubt in trials().filter_map(|t| t.summary.as_deref()).flat_map(|s| &s.doubts).filter(|d| d.grave) {
        if !kinds.contains(&doubt.kind.as_str()) {
            kinds.push(&doubt.kind);
        }
    }
    let invalid =
        trials().filter(|t| t.summary.as_deref().is_some_and(|s| s.verdict == Verdict::Invalid)).count();
    let mut parts = Vec::new();
    if measured < all {
        parts.push(format!("{measured} of {} were measured.", plural(all, "trial", "trials")));
    }
    if invalid > 0 {
        parts.push(format!(
            "{} cannot be trusted ({}).",
            plural(invalid, "trial", "trials"),
            kinds.join(", ")
        ));
    }
    parts.push(match (doubted, measured) {
        (_, 0) => "Nothing was measured.".to_owned(),
        (0, 1) => "Nothing speaks against the measurement.".to_owned(),
        (0, _) => "Nothing speaks against any of the measurements.".to_owned(),
        (n, of) => format!("{} of {} with doubts, listed below.", n, plural(of, "trial", "trials")),
    });
    parts.extend(no_differences.map(str::to_owned));
    parts.join(" ")
}

fn no_differences(run: &RunRecord, cases: &[CaseFindings<'_>]) -> Option<String> {
    if cases.len() < 2 {
        return None;
    }
    if run.manifest.quick {
        return Some(
            "A quick run: it gives a first look and no verdict on differences between cases.".to_owned(),
        );
    }
    let fewest = cases.iter().map(|c| c.summaries().count()).min().unwrap_or(0);
    (fewest < TRIALS_FOR_DIFFERENCES).then(|| {
        format!(
            "{} a case: too few to tell a difference between cases from chance ({TRIALS_FOR_DIFFERENCES} are needed).",
            plural(fewest, "trial", "trials")
        )
    })
}
