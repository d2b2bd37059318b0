//! What follows from a whole run, over cases and trials.
//!
//! Trials of a case are never pooled into one percentile. One rule gives every figure of a case: its own median over
//! the valid trials (for an even number the worse of the middle two), together with the smallest and the largest. Two
//! figures of a case may therefore come from different trials. In a quick run, or with fewer than
//! [`TRIALS_FOR_DIFFERENCES`] trials, differences between cases are not judged, and the reason is reported.

use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::labels::Labels;
use loadlab_record::documents::manifest::RunEnded;
use loadlab_record::documents::summary::{Ended, Expectation, FewSamples, Verdict};
use loadlab_record::store::{CaseRecord, RunRecord, TrialRecord};
use loadlab_record::text::units::{format_duration_ns, plural};

use crate::cases::case::{CaseFindings, TRIALS_FOR_DIFFERENCES, TrialFindings, without_controls};
use crate::cases::groups::Groups;
use crate::cases::metric::{self, Metric};
use crate::cases::subset::subset_in_words;
use crate::comparison::compare::{Comparison, Options};
use crate::comparison::derived::{self, Derived};
use crate::comparison::design::Design;
use crate::comparison::differences::{self, Comparing};
use crate::comparison::pairs::pairs_among;
use crate::scaling::scalability::{Scalability, scalability};
use crate::trial::bottleneck::{BottleneckKind, Diagnosis, Suspect};
use crate::trial::diagnosed::DiagnosedRun;

/// Findings of a run.
#[derive(Clone, Debug)]
pub struct Findings<'a> {
    /// By case, in the manifest's order.
    pub cases: Vec<CaseFindings<'a>>,
    /// The run in words.
    pub statement: Statement,
    /// Why differences between cases are not judged; `None` if they are.
    pub no_differences: Option<String>,
    /// Every other case against the base; empty if differences are not judged.
    pub comparisons: Vec<Comparison>,
    /// Throughput over users, where an axis varies them.
    pub scalability: Vec<Scalability>,
    /// What the plan derives from figures of its cases.
    pub derived: Vec<Derived>,
    /// The figures that matter: those the plan names, or else the usual ones that the run has.
    pub figures: Vec<Metric>,
    /// Whether the plan names them.
    pub are_of_plan: bool,
    /// Whether the run was made for a first impression.
    pub quick: bool,
    /// Which cases are compared with which, see [`pairs_among`].
    pub pairs: Vec<(usize, usize)>,
    /// How cases are compared after every round, if trials continued until that was certain.
    pub design: Option<Design>,
    /// Which of its components are replicas.
    pub groups: Groups,
}

impl Findings<'_> {
    /// How its cases are compared.
    pub fn comparing(&self, options: Options) -> Comparing<'_> {
        let figures = if self.are_of_plan { self.figures.as_slice() } else { &[] };
        Comparing { figures, quick: self.quick, options, design: self.design.as_ref(), groups: &self.groups }
    }

    /// How to judge by default: the plan decides what counts as the same, if it says so.
    pub fn options(&self) -> Options {
        let usual = Options::default();
        let equivalence_margin = self.design.as_ref().map_or(usual.equivalence_margin, Design::within);
        Options { equivalence_margin, ..usual }
    }
}

/// The run in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// What was tested.
    pub tested: String,
    /// Which expectations held, and which did not.
    pub result: String,
    /// What saturated first, by case.
    pub first_bottleneck: String,
    /// How far the measurements can be trusted.
    pub confidence: String,
}

/// The findings of a run.
pub fn findings(run: &DiagnosedRun) -> Findings<'_> {
    let labels = Labels::of(run.cases.iter().map(|c| &c.facts), &run.manifest.axes);
    let groups = Groups::of(&run.manifest.components);
    let cases: Vec<CaseFindings<'_>> =
        run.cases.iter().map(|case| case_findings(run, case, &labels, &groups)).collect();
    // Parts of one question differ by intent, so differences are not judged.
    let is_one_question = run.manifest.is_one_question();
    let no_differences = if is_one_question { None } else { no_differences(run, &cases) };
    let statement = Statement {
        tested: tested(run),
        result: result(run, &cases, &labels),
        first_bottleneck: first_bottleneck(&cases, &labels, &groups),
        confidence: confidence(&cases, no_differences.as_deref()),
    };
    let scalability = scalability(&cases);
    let quick = run.manifest.quick;
    // Student's interval is not valid for a number of trials that depends on what they measured.
    let has_intervals = !quick && run.manifest.until_certain.is_none();
    let derived = derived::derived(&run.manifest.derive, &cases, has_intervals);
    let figures: Vec<Metric> = run.manifest.figures.iter().map(Metric::of_plan).collect();
    let are_of_plan = !figures.is_empty();
    let mut found = Findings {
        cases,
        statement,
        no_differences,
        comparisons: Vec::new(),
        scalability,
        derived,
        figures,
        are_of_plan,
        quick,
        pairs: pairs_among(&run.cases.iter().map(|c| &c.facts).collect::<Vec<_>>(), &run.manifest.revisions),
        design: Design::of(&run.manifest),
        groups,
    };
    if found.no_differences.is_none() && !is_one_question {
        found.comparisons = differences::within(&found.cases, &found.pairs, found.comparing(found.options()));
    }
    if !are_of_plan {
        found.figures =
            metric::usual(&found.cases.iter().flat_map(CaseFindings::summaries).collect::<Vec<_>>());
    }
    found
}

/// The first bottleneck of each case; cases with the same kind, of the same component or one like it, share a sentence.
fn first_bottleneck(cases: &[CaseFindings<'_>], labels: &Labels, groups: &Groups) -> String {
    let mut shared: Vec<Vec<(&CaseFindings<'_>, &Suspect)>> = Vec::new();
    // A control repeats its base, which is already listed.
    let own = without_controls(cases);
    for case in own.clone() {
        let Some(first) = case.diagnosis.suspects.first() else { continue };
        match shared.iter_mut().find(|alike| what_of(alike[0].1, groups) == what_of(first, groups)) {
            Some(alike) => alike.push((case, first)),
            None => shared.push(vec![(case, first)]),
        }
    }
    let number = own.count();
    const MAX_SENTENCES: usize = 4;
    let shown = shared.iter().take(MAX_SENTENCES);
    let mut sentences: Vec<String> =
        shown.map(|alike| shared_by(alike, cases, labels, groups, number)).collect();
    let left: usize = shared.iter().skip(MAX_SENTENCES).map(Vec::len).sum();
    if left > 0 {
        sentences.push(match left {
            1 => "One more case has a different one: see its section.".to_owned(),
            n => format!("{n} more cases have different ones: see their sections."),
        });
    }
    if sentences.is_empty() { "Nothing was measured.".to_owned() } else { sentences.join(" ") }
}

/// What a suspect is about, apart from its figures: replicas are alike.
fn what_of(suspect: &Suspect, groups: &Groups) -> (BottleneckKind, Option<String>) {
    (suspect.kind, suspect.component.as_deref().map(|component| groups.name_of_link(component)))
}

/// A sentence about those of `number` cases that have the same first bottleneck. If their figures differ, those of the
/// case where it held for longest stand for all.
fn shared_by(
    alike: &[(&CaseFindings<'_>, &Suspect)],
    cases: &[CaseFindings<'_>],
    labels: &Labels,
    groups: &Groups,
    number: usize,
) -> String {
    let (agreeing, diagnosed) =
        alike.iter().fold((0, 0), |sums, (case, _)| (sums.0 + case.agreeing, sums.1 + case.diagnosed));
    let some =
        if agreeing < diagnosed { format!(" (in {agreeing} of {diagnosed} trials)") } else { String::new() };
    let names: Vec<&str> = alike.iter().map(|(case, _)| case.label.as_str()).collect();
    let (kind, component) = what_of(alike[0].1, groups);
    // Of several with the same share, the first.
    let clearest = alike.iter().rev().max_by(|a, b| a.1.share.total_cmp(&b.1.share));
    let (case, clearest) = clearest.expect("there is a case");
    let text = match alike.iter().all(|(_, first)| first.text == clearest.text) {
        true => clearest.text.clone(),
        false => format!("{}; in “{}”, {}", kind.in_short(component.as_deref()), case.label, clearest.text),
    };
    match number {
        1 => format!("{}{some}.", capital(&text)),
        n if alike.len() == n => format!("Every case{some}: {text}."),
        _ => format!("{}{some}: {text}.", named(cases, labels, &names)),
    }
}

/// The text with a capital, unless it begins with a name.
fn capital(text: &str) -> String {
    let starts = ["nothing", "requests", "the machine", "loadlab itself", "one of the targets"]
        .iter()
        .any(|w| text.starts_with(w));
    match text.chars().next() {
        Some(c) if starts => c.to_uppercase().chain(text.chars().skip(1)).collect(),
        _ => text.to_owned(),
    }
}

fn case_findings<'a>(
    run: &'a DiagnosedRun,
    case: &'a CaseRecord,
    labels: &Labels,
    groups: &Groups,
) -> CaseFindings<'a> {
    let planned = run.manifest.trials_of_each().unwrap_or(0);
    let last = case.trials.iter().map(|t| t.number).max().unwrap_or(0).max(planned);
    let trials: Vec<TrialFindings<'_>> = (1..=last)
        .map(|number| {
            let record = case.trials.iter().find(|t| t.number == number);
            trial_findings(run, case, number, record)
        })
        .collect();
    let verdict = trials.iter().map(verdict_of).min_by_key(severity).unwrap_or(Verdict::None);
    let label = labels.name(&case.facts);
    let diagnosis = Diagnosis::default();
    let mut found = CaseFindings {
        case,
        label,
        trials,
        verdict,
        diagnosis,
        diagnosed_trial: 0,
        agreeing: 0,
        diagnosed: 0,
    };
    let diagnosis_of = |trial: &TrialFindings<'_>| {
        Some((trial.number, run.trial(&case.facts, trial.number)?.diagnosis.as_ref()?))
    };
    let all: Vec<(u32, &Diagnosis)> = found.whole_trials().filter_map(diagnosis_of).collect();
    let typical = found.typical().map(|t| t.number);
    if let Some((number, diagnosis, agreeing)) = most_frequent(&all, typical, groups) {
        // Drawn with the typical trial's figures.
        let pairs =
            all.iter().find(|(n, _)| Some(*n) == typical).map_or(diagnosis, |(_, of)| of).pairs.clone();
        found.diagnosis = Diagnosis { pairs, ..diagnosis.clone() };
        (found.diagnosed_trial, found.agreeing, found.diagnosed) = (number, agreeing, all.len());
    }
    found
}

/// The diagnosis with the most frequent first suspect, its trial's number, and how many trials have that suspect. It is
/// the typical trial's if that has it, or else the first one.
fn most_frequent<'d>(
    all: &[(u32, &'d Diagnosis)],
    typical: Option<u32>,
    groups: &Groups,
) -> Option<(u32, &'d Diagnosis, usize)> {
    let agreeing = |diagnosis: &Diagnosis| {
        let what = |of: &Diagnosis| of.suspects.first().map(|first| what_of(first, groups));
        all.iter().filter(|(_, other)| what(other) == what(diagnosis)).count()
    };
    let most = all.iter().map(|(_, diagnosis)| agreeing(diagnosis)).max()?;
    let with_most = || all.iter().filter(|(_, diagnosis)| agreeing(diagnosis) == most);
    let chosen = with_most().find(|(number, _)| Some(*number) == typical).or(with_most().next());
    chosen.map(|(number, diagnosis)| (*number, *diagnosis, most))
}

fn verdict_of(trial: &TrialFindings<'_>) -> Verdict {
    trial.summary.map_or(Verdict::Fail, |s| s.verdict)
}

/// Rank of a verdict; 0 is the worst.
pub fn severity(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Invalid => 0,
        Verdict::Fail => 1,
        Verdict::Undecided => 2,
        Verdict::None => 3,
        Verdict::Pass => 4,
    }
}

fn trial_findings<'a>(
    run: &'a DiagnosedRun,
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
        EventKind::Failed { text } => Some(text.clone()),
        _ => None,
    });
    let died = record.events.iter().find_map(|e| match &e.what {
        EventKind::Died { component, status } => {
            Some(format!("{component} died at {:.1} s: {status}", e.at_s))
        }
        _ => None,
    });
    let reconstructed = || run.trial(&case.facts, number)?.reconstructed.as_ref();
    let summary = record.summary.as_ref().or_else(reconstructed);
    let ended = match summary.map(|s| s.ended) {
        Some(Ended::Complete | Ended::Stopped) => None,
        Some(Ended::Interrupted) => Some("the load was interrupted".to_owned()),
        Some(Ended::Partial) => {
            Some("cut off: loadlab was killed, or could not write its summary; reconstructed from what it had written".to_owned())
        }
        Some(Ended::Broken) => Some(how_load_ended(record).unwrap_or("the system broke").to_owned()),
        None if record.is_search => Some("the search was cut off".to_owned()),
        None => Some("ended before the load began".to_owned()),
    };
    let cut_off = ended.clone().filter(|_| summary.is_some_and(|s| s.ended == Ended::Partial));
    let trouble = match (failed.or(died), cut_off) {
        (Some(what), Some(cut_off)) => Some(format!("{what}; {cut_off}")),
        (what, _) => what.or(ended),
    };
    TrialFindings { number, summary, record: Some(record), trouble }
}

/// How the load ended that did not end as planned.
fn how_load_ended(record: &TrialRecord) -> Option<&str> {
    record.events.iter().rev().find_map(|event| match &event.what {
        EventKind::LoadEnded { how, .. } if how != "complete" && !how.starts_with("stopped: ") => {
            Some(how.as_str())
        }
        _ => None,
    })
}

/// Some cases: what distinguishes them from the others, or their names.
fn named(cases: &[CaseFindings<'_>], labels: &Labels, names: &[&str]) -> String {
    let is_named = |case: &&CaseFindings<'_>| names.contains(&case.label.as_str());
    if cases.iter().filter(is_named).any(CaseFindings::is_control) {
        return listed(names);
    }
    let facts = without_controls(cases).map(|c| &c.case.facts);
    let is_meant =
        |facts: &loadlab_record::documents::manifest::CaseFacts| names.contains(&labels.name(facts).as_str());
    subset_in_words(facts, labels, &is_meant).unwrap_or_else(|| listed(names))
}

/// A list of names, limited to the first few.
fn listed(names: &[&str]) -> String {
    const MAX_NAMES: usize = 4;
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|n| format!("“{n}”")).collect();
    match names.len() {
        n if n > MAX_NAMES => format!("{} and {} more", shown.join(", "), n - MAX_NAMES),
        _ => shown.join(", "),
    }
}

fn tested(run: &RunRecord) -> String {
    let m = &run.manifest;
    let controls = m.cases.iter().filter(|case| case.control_of.is_some()).count();
    let mut text = match m.cases.len() - controls {
        n if m.why.is_some() => plural(n as u64, "load", "loads"),
        1 => "One case".to_owned(),
        n => format!("{n} cases"),
    };
    // Named cases differ by the values of their axes.
    let labels = Labels::of(run.cases.iter().map(|c| &c.facts), &m.axes);
    let varying = if labels.axes.is_empty() { &m.axes } else { &labels.heads };
    if !varying.is_empty() && m.cases.len() > 1 {
        text.push_str(&format!(" ({})", varying.join(" × ")));
    }
    text.push_str(&match m.trials_of_each() {
        _ if m.why.is_some() => String::new(),
        None => made(run),
        Some(1) => ", one trial".to_owned(),
        Some(n) => format!(", {n} trials"),
    });
    text.push_str(if m.cases.len() > 1 && m.why.is_none() { " each" } else { "" });
    text.push_str(&match controls {
        0 => String::new(),
        1 => ", beside a control".to_owned(),
        n => format!(", beside {n} controls"),
    });
    if !m.components.is_empty() {
        text.push_str(&format!(
            ", on a system of {}",
            plural(m.components.len() as u64, "component", "components")
        ));
    }
    text.push('.');
    match m.how {
        RunEnded::Complete => {}
        RunEnded::Broken => text.push_str(" Not every trial completed."),
        RunEnded::Interrupted => text.push_str(" The run was interrupted."),
        RunEnded::Partial => {
            text.push_str(" The run is still going, or loadlab was killed: results are partial.")
        }
    }
    text
}

/// `, 9 trials`, or `, 7 to 12 trials` if the number was not fixed.
fn made(run: &RunRecord) -> String {
    let counts = || run.cases.iter().map(|case| case.trials.len() as u64);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let from = if least < most { format!("{least} to ") } else { String::new() };
    format!(", {from}{}", plural(most, "trial", "trials"))
}

fn result(run: &RunRecord, cases: &[CaseFindings<'_>], labels: &Labels) -> String {
    let listed = |names: &[&str]| named(cases, labels, names);
    let own = without_controls(cases).count();
    // A control passes or fails with its base; it is news only if the control alone did not pass.
    let is_news = |control: &CaseFindings<'_>, verdict: Verdict| {
        let base = cases.iter().find(|c| control.case.facts.control_of.as_ref() == Some(&c.case.facts.name));
        verdict != Verdict::Pass && base.is_none_or(|base| base.verdict != verdict)
    };
    let with = |verdict: Verdict| -> Vec<&str> {
        let of = cases.iter().filter(|c| c.verdict == verdict && (!c.is_control() || is_news(c, verdict)));
        of.map(|c| c.label.as_str()).collect()
    };
    let (pass, fail, invalid) = (with(Verdict::Pass), with(Verdict::Fail), with(Verdict::Invalid));
    let mut parts = Vec::new();
    let expected = plural(run.manifest.expect.len() as u64, "expectation", "expectations");
    if run.manifest.expect.is_empty() {
        parts.push("Nothing was expected, so nothing passed or failed.".to_owned());
    } else if pass.len() == own {
        parts.push(match run.manifest.expect.len() {
            1 => format!("The expectation `{}` held in every case.", run.manifest.expect[0]),
            _ => format!("All {expected} held in every case."),
        });
    } else if !pass.is_empty() {
        parts.push(format!(
            "All expectations held in {} of {}: {}.",
            pass.len(),
            plural(own as u64, "case", "cases"),
            listed(&pass)
        ));
    }
    if !fail.is_empty() {
        parts.push(format!("Failed: {}{}", listed(&fail), missed(cases)));
    }
    let undecided = with(Verdict::Undecided);
    if !undecided.is_empty() {
        parts.push(format!("Undecided, too few samples: {}{}", listed(&undecided), open(cases)));
    }
    if !invalid.is_empty() {
        parts.push(format!("Unknown (INVALID): {}.", listed(&invalid)));
    }
    parts.join(" ")
}

/// Which expectations are undecided, each once, and how many samples would decide the one that needs most.
fn open(cases: &[CaseFindings<'_>]) -> String {
    let summaries = cases.iter().filter(|c| c.verdict == Verdict::Undecided).flat_map(|c| c.summaries());
    let mut open: Vec<(&str, FewSamples)> = Vec::new();
    for e in summaries.flat_map(|s| &s.expectations).filter(|e| e.is_undecided()) {
        let Some(few) = e.undecided else { continue };
        match open.iter_mut().find(|(expr, _)| *expr == e.expr) {
            Some((_, most)) if few.needed_s > most.needed_s => *most = few,
            Some(_) => {}
            None => open.push((&e.expr, few)),
        }
    }
    let takes = |few: &FewSamples| {
        few.needed_s.map_or(String::new(), |s| format!(", {} at this rate", format_duration_ns(s * 1e9)))
    };
    let texts = open.iter().map(|(expr, few)| {
        format!("{expr}: {} would decide it{}", plural(few.needed, "request", "requests"), takes(few))
    });
    format!(" ({}).", texts.collect::<Vec<_>>().join("; "))
}

/// Which expectations were missed, which are unknown and which undecided, each once.
fn missed(cases: &[CaseFindings<'_>]) -> String {
    let failed = || cases.iter().filter(|c| c.verdict == Verdict::Fail);
    let all = || failed().flat_map(|c| c.summaries()).flat_map(|s| &s.expectations);
    let exprs_with = |what: &str, is_one: fn(&Expectation) -> bool| {
        let mut exprs: Vec<&str> = Vec::new();
        for e in all().filter(|e| is_one(e)) {
            if !exprs.contains(&e.expr.as_str()) {
                exprs.push(&e.expr);
            }
        }
        (!exprs.is_empty()).then(|| format!("{what}: {}", exprs.join("; ")))
    };
    let lists = [
        exprs_with("missed", |e| e.holds == Some(false)),
        exprs_with("unknown", |e| e.holds.is_none() && e.undecided.is_none()),
        exprs_with("undecided", Expectation::is_undecided),
    ];
    let lists: Vec<String> = lists.into_iter().flatten().collect();
    if lists.is_empty() { ".".to_owned() } else { format!(" ({}).", lists.join("; ")) }
}

fn confidence(cases: &[CaseFindings<'_>], no_differences: Option<&str>) -> String {
    let trials = || cases.iter().flat_map(|c| &c.trials);
    let (all, measured) = (trials().count(), trials().filter(|t| t.summary.is_some()).count());
    if measured == 0 {
        return "Nothing was measured.".to_owned();
    }
    let doubted = trials().filter(|t| t.summary.is_some_and(|s| !s.doubts.is_empty())).count();
    let mut kinds: Vec<&str> = Vec::new();
    for doubt in trials().filter_map(|t| t.summary).flat_map(|s| &s.doubts).filter(|d| d.grave) {
        if !kinds.contains(&doubt.kind.as_str()) {
            kinds.push(&doubt.kind);
        }
    }
    let invalid = trials().filter(|t| t.summary.is_some_and(|s| s.verdict == Verdict::Invalid)).count();
    let mut parts = Vec::new();
    if measured < all {
        parts.push(format!("{measured} of {} were measured.", plural(all as u64, "trial", "trials")));
    }
    if invalid > 0 {
        parts.push(format!(
            "{} cannot be trusted ({}).",
            plural(invalid as u64, "trial", "trials"),
            kinds.join(", ")
        ));
    }
    parts.push(match (doubted, measured) {
        (0, 1) => "No doubts about the measurement.".to_owned(),
        (0, _) => "No doubts about any measurement.".to_owned(),
        (n, of) => format!("{} of {} raised doubts, listed below.", n, plural(of as u64, "trial", "trials")),
    });
    parts.extend(no_differences.map(str::to_owned));
    parts.join(" ")
}

fn no_differences(run: &RunRecord, cases: &[CaseFindings<'_>]) -> Option<String> {
    if cases.len() < 2 {
        return None;
    }
    if run.manifest.quick {
        return Some("A quick run: a first look, without a verdict on differences between cases.".to_owned());
    }
    let fewest = without_controls(cases).map(|c| c.summaries().count()).min().unwrap_or(0);
    let fewest = if run.manifest.until_certain.is_some() { TRIALS_FOR_DIFFERENCES } else { fewest };
    (fewest < TRIALS_FOR_DIFFERENCES).then(|| {
        format!(
            "{} per case: too few to distinguish cases from chance (at least {TRIALS_FOR_DIFFERENCES} are needed).",
            plural(fewest as u64, "trial", "trials")
        )
    })
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::manifest::CaseFacts;

    use super::*;

    #[test]
    fn the_case_where_it_held_for_longest_stands_for_all() {
        let records: Vec<CaseRecord> = ["10", "100", "200", "1000"]
            .map(|name| CaseRecord {
                facts: CaseFacts { name: name.to_owned(), ..CaseFacts::default() },
                trials: Vec::new(),
            })
            .to_vec();
        let cases: Vec<CaseFindings<'_>> = records
            .iter()
            .map(|case| CaseFindings {
                case,
                label: case.facts.name.clone(),
                trials: Vec::new(),
                verdict: Verdict::None,
                diagnosis: Diagnosis::default(),
                diagnosed_trial: 1,
                agreeing: 1,
                diagnosed: 1,
            })
            .collect();
        let suspect = |share: f64| Suspect {
            kind: BottleneckKind::CpuLimit,
            component: Some("app".to_owned()),
            at_s: None,
            text: format!("app used {} % of its CPU limit", share * 100.0),
            share,
            evidence: Vec::new(),
        };
        let suspects = [suspect(0.5), suspect(0.75), suspect(0.75)];
        let alike: Vec<_> = cases.iter().zip(&suspects).collect();
        let labels = Labels::of(records.iter().map(|case| &case.facts), &[]);
        assert_eq!(
            shared_by(&alike, &cases, &labels, &Groups::default(), 4),
            "“10”, “100”, “200”: app · CPU limit; in “100”, app used 75 % of its CPU limit."
        );
    }
}
