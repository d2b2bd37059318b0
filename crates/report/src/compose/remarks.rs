//! Remarks: expectations, doubts, failed trials, events, and exchanges that were kept.

use std::collections::BTreeMap;

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::findings::Findings;
use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::{Doubt, Expectation};
use loadlab_record::text::split_hint;

use crate::document::{Block, Remark, Section, Weight};
use crate::figures;
use crate::wording::{describe_expectation, example_text};

/// Cases that a remark names one by one.
const NAMED: usize = 3;
/// Failed and slow exchanges shown of each outcome.
const EXAMPLES: usize = 3;

/// Every doubt of every trial: the same doubt in several trials is reported once, with its first evidence.
pub fn doubts(findings: &Findings<'_>) -> Option<Section> {
    let remarks = grouped_doubts(findings, true);
    if remarks.is_empty() {
        return None;
    }
    let intro = "A doubt is a reason not to trust a measurement; INVALID marks those that disqualify it.";
    let blocks = vec![Block::Paragraph(intro.into()), Block::Remarks(remarks)];
    Some(Section::new("doubts", "Doubts about the measurement", blocks))
}

/// Doubts by kind over all trials, INVALID first.
pub fn grouped_doubts(findings: &Findings<'_>, with_hints: bool) -> Vec<Remark> {
    struct RemarkGroup<'a> {
        doubt: &'a Doubt,
        trials: usize,
        cases: Vec<&'a str>,
    }
    let mut groups: BTreeMap<(bool, &str), RemarkGroup<'_>> = BTreeMap::new();
    let mut all = 0;
    for case in &findings.cases {
        let name = case.label.as_str();
        for summary in case.summaries() {
            all += 1;
            for doubt in &summary.doubts {
                let new = || RemarkGroup { doubt, trials: 0, cases: Vec::new() };
                let group = groups.entry((!doubt.grave, doubt.kind.as_str())).or_insert_with(new);
                group.trials += 1;
                if !group.cases.contains(&name) {
                    group.cases.push(name);
                }
            }
        }
    }
    let remark = |RemarkGroup { doubt, trials, cases }: RemarkGroup<'_>| {
        let of = match (cases.len(), findings.cases.len()) {
            _ if all == 1 => String::new(),
            (named, of) if named == of => format!("{trials} of {all} trials: "),
            (1, _) => format!("“{}”, {}: ", cases[0], figures::plural(trials as u64, "trial", "trials")),
            (named, _) if named <= NAMED => {
                let names: Vec<String> = cases.iter().map(|name| format!("“{name}”")).collect();
                format!("{}, {trials} of {all} trials: ", names.join(", "))
            }
            (named, of) => format!("{named} of {of} cases, {trials} of {all} trials: "),
        };
        Remark {
            weight: if doubt.grave { Weight::Bad } else { Weight::Doubtful },
            label: format!("{} {}", if doubt.grave { "INVALID" } else { "doubt" }, doubt.kind),
            text: format!("{of}{}", doubt.evidence),
            hint: with_hints.then(|| doubt.hint.clone()),
        }
    };
    groups.into_values().map(remark).collect()
}

/// Each expectation over all cases: where it held, and where it did not.
pub fn expected(findings: &Findings<'_>) -> Vec<Remark> {
    let mut by_expr: Vec<(&str, Vec<(&str, &Expectation)>)> = Vec::new();
    for case in &findings.cases {
        for e in case.summaries().flat_map(|s| &s.expectations) {
            let one = (case.label.as_str(), e);
            match by_expr.iter_mut().find(|(expr, _)| *expr == e.expr) {
                Some((_, list)) => list.push(one),
                None => by_expr.push((&e.expr, vec![one])),
            }
        }
    }
    let remark = |(expr, all): (&str, Vec<(&str, &Expectation)>)| {
        let missed = not_held(&all);
        let mut cases: Vec<&str> = Vec::new();
        for (case, _) in &missed {
            if !cases.contains(case) {
                cases.push(case);
            }
        }
        let Some((_, first)) = missed.first() else {
            let is_in = |case: &CaseFindings<'_>| all.iter().any(|(name, _)| *name == case.label);
            let everywhere = match findings.cases.iter().filter(|case| !is_in(case)).count() {
                _ if findings.cases.len() == 1 => String::new(),
                0 => " in every case".to_owned(),
                n => format!(" in {} of {} cases", findings.cases.len() - n, findings.cases.len()),
            };
            let measured =
                (findings.cases.len() == 1).then(|| all.first().map(|(_, e)| describe_expectation(e)));
            let text = measured.flatten().unwrap_or_else(|| format!("{expr}{everywhere}"));
            return Remark { weight: Weight::Good, label: "✔ holds".into(), text, hint: None };
        };
        let (weight, label) = label_of(first);
        let names = match cases.len() {
            _ if findings.cases.len() == 1 => String::new(),
            n if n <= NAMED => {
                let names: Vec<String> = cases.iter().map(|name| format!("“{name}”")).collect();
                format!(" in {}", names.join(", "))
            }
            n => format!(" in {n} of {} cases", findings.cases.len()),
        };
        let of = if all.len() > 1 && findings.cases.len() == 1 {
            format!("; in {} of {} trials", missed.len(), all.len())
        } else {
            String::new()
        };
        let text = format!("{}{names}{of}", describe_expectation(first));
        Remark { weight, label: label.into(), text, hint: None }
    };
    by_expr.into_iter().map(remark).collect()
}

/// The expectations that do not hold. Undecided in one trial and missed in another counts as missed.
fn not_held<'a, T>(all: &'a [(T, &'a Expectation)]) -> Vec<&'a (T, &'a Expectation)> {
    let mut found: Vec<&(T, &Expectation)> = all.iter().filter(|(_, e)| e.holds != Some(true)).collect();
    if found.iter().any(|(_, e)| e.is_missed()) {
        found.retain(|(_, e)| e.is_missed());
    }
    found
}

/// The weight and the label of an expectation that does not hold.
fn label_of(expectation: &Expectation) -> (Weight, &'static str) {
    match expectation {
        e if e.is_undecided() => (Weight::Doubtful, "? undecided"),
        e if e.holds.is_none() => (Weight::Bad, "✘ unknown"),
        _ => (Weight::Bad, "✘ failed"),
    }
}

/// Each expectation of a case over its trials: it holds when it held in every one.
pub fn expectations(case: &CaseFindings<'_>) -> Vec<Remark> {
    let mut by_expr: Vec<(&str, Vec<(u32, &Expectation)>)> = Vec::new();
    for trial in &case.trials {
        for e in trial.summary.iter().flat_map(|s| &s.expectations) {
            match by_expr.iter_mut().find(|(expr, _)| *expr == e.expr) {
                Some((_, list)) => list.push((trial.number, e)),
                None => by_expr.push((&e.expr, vec![(trial.number, e)])),
            }
        }
    }
    by_expr.into_iter().map(|(_, trials)| expectation(&trials)).collect()
}

fn expectation(trials: &[(u32, &Expectation)]) -> Remark {
    let missed = not_held(trials);
    let (weight, label) = match missed.first() {
        None => (Weight::Good, "✔ holds"),
        Some((_, e)) => label_of(e),
    };
    let shown =
        missed.first().copied().or(trials.first()).map(|(_, e)| describe_expectation(e)).unwrap_or_default();
    let text = match (trials.len(), missed.len()) {
        (1, _) | (_, 0) => shown,
        (of, n) => format!("{shown}; in {n} of {of} trials"),
    };
    Remark { weight, label: label.into(), text, hint: None }
}

/// Suspects of a case, the likeliest first, and what could not be seen.
pub fn suspects(case: &CaseFindings<'_>) -> Vec<Remark> {
    use loadlab_analysis::trial::bottleneck::BottleneckKind;
    let remark = |(place, s): (usize, &loadlab_analysis::trial::bottleneck::Suspect)| {
        let mut hints = s.evidence.clone();
        if place == 0 && case.diagnosed > 1 {
            hints.push(format!("the same comes first in {} of {} trials", case.agreeing, case.diagnosed));
            if case.typical().is_some_and(|typical| typical.number != case.diagnosed_trial) {
                hints.push(format!("these are the figures of trial {}", case.diagnosed_trial));
            }
        }
        Remark {
            weight: match s.kind {
                BottleneckKind::Latency | BottleneckKind::Nothing => Weight::Plain,
                _ => Weight::Doubtful,
            },
            label: format!("{}.", place + 1),
            text: match s.at_s {
                Some(at_s) => format!("{}, from {} on.", s.text, figures::seconds(at_s.max(0.0))),
                None => format!("{}.", s.text),
            },
            hint: (!hints.is_empty()).then(|| hints.join("; ")),
        }
    };
    let mut remarks: Vec<Remark> = case.diagnosis.suspects.iter().enumerate().map(remark).collect();
    let not_seen = case.diagnosis.bottleneck.iter().flat_map(|b| &b.not_seen);
    let not_seen: Vec<&str> = not_seen.map(String::as_str).collect();
    if !remarks.is_empty() && !not_seen.is_empty() {
        remarks.push(Remark {
            weight: Weight::Plain,
            label: "not seen".into(),
            text: format!("{}.", not_seen.join("; ")),
            hint: None,
        });
    }
    remarks
}

/// Every trial that failed, was cut off, or never began.
pub fn troubles(case: &CaseFindings<'_>) -> Vec<Remark> {
    troubles_of(case, false)
}

/// As [`troubles`], with the case's name if they are listed with those of other cases.
pub fn troubles_of(case: &CaseFindings<'_>, named: bool) -> Vec<Remark> {
    let trouble = |t: &loadlab_analysis::cases::case::TrialFindings<'_>| {
        let (text, hint) = split_hint(t.trouble.as_deref()?);
        let at = || format!("its logs and events: cases/{}/{}", case.case.facts.dir, t.number);
        let hints: Vec<String> = hint.map(str::to_owned).into_iter().chain(t.record.map(|_| at())).collect();
        Some(Remark {
            weight: Weight::Bad,
            label: match named {
                true => format!("{}, trial {}", case.label, t.number),
                false => format!("trial {}", t.number),
            },
            text: text.to_owned(),
            hint: (!hints.is_empty()).then(|| hints.join(" · ")),
        })
    };
    case.trials.iter().filter_map(trouble).collect()
}

/// What happened in the trial that is drawn, folded away: the history of one trial from start-up to shutdown.
pub fn events(case: &CaseFindings<'_>) -> Option<Block> {
    let record =
        case.typical().and_then(|t| t.record).or_else(|| case.trials.iter().find_map(|t| t.record))?;
    if record.events.is_empty() {
        return None;
    }
    let lines: Vec<String> =
        record.events.iter().map(|e| format!("{:>9.3} s  {}", e.at_s, describe_event(e))).collect();
    Some(Block::Folded { title: format!("Events of trial {}", record.number), text: lines.join("\n") })
}

/// An event in words.
fn describe_event(event: &Event) -> String {
    match &event.what {
        EventKind::Up { component, pid: Some(pid) } => format!("{component} started (process {pid})"),
        EventKind::Up { component, pid: None } => format!("{component} started"),
        EventKind::Ready { component, after_s } => {
            format!("{component} ready after {}", figures::seconds(*after_s))
        }
        EventKind::Unavailable { component, what, why } => {
            format!("{component}: {what} is not available: {why}")
        }
        EventKind::Command { name, command, exit, took_s } => {
            let exit = exit.map_or("still running".to_owned(), |code| format!("exit {code}"));
            format!("{name}: `{command}` ({exit}, {})", figures::seconds(*took_s))
        }
        EventKind::Planned { load } => format!("planned: {} model, {}", load.model.word(), load.protocol),
        EventKind::LoadStarted { load, batch } => format!("load {load} began (batch {})", batch + 1),
        EventKind::LoadEnded { load, batch, how } => {
            format!("load {load} ended (batch {}): {how}", batch + 1)
        }
        EventKind::DrainStarted { until } => format!("draining until {until}"),
        EventKind::Drained { took_s, done: true } => format!("drained in {}", figures::seconds(*took_s)),
        EventKind::Drained { took_s, done: false } => {
            format!("not drained within {}", figures::seconds(*took_s))
        }
        EventKind::Died { component, status } => format!("{component} died: {status}"),
        EventKind::Down { component, how } => format!("{component} down ({how})"),
        EventKind::Limited { component, limits } => {
            format!("{component} is limited to {} (read back)", limits.describe().join(", "))
        }
        EventKind::OutOfMemory { component, kills, limit_bytes } => {
            let limit = limit_bytes
                .map_or(String::new(), |n| format!(" at its limit of {}", figures::bytes(n as f64)));
            format!("the kernel killed a process of {component}: out of memory{limit} ({kills} so far)")
        }
        EventKind::Action { what, error: None, .. } => format!("event: {what}"),
        EventKind::Action { what, error: Some(why), .. } => format!("event: {what} failed: {why}"),
        EventKind::Compared { accepted, persisted, lost_max, missing } => {
            let ids: Vec<String> = missing.iter().map(u64::to_string).collect();
            let ids =
                if ids.is_empty() { String::new() } else { format!("; missing: {} …", ids.join(", ")) };
            format!("{accepted} accepted, {persisted} stored, {lost_max} lost{ids}")
        }
        EventKind::Skipped { events } => {
            format!("event: {} never happened, because the load had ended", events.join(", "))
        }
        EventKind::NameMoved { host, before, after } => {
            format!("{host} resolved to {} and now resolves to {}", before.join(", "), after.join(", "))
        }
        EventKind::Note { text } => text.clone(),
        EventKind::Failed { text } => format!("failed: {text}"),
    }
}

/// Exchanges that failed and exchanges that were slow, a few of each outcome.
pub fn examples(case: &CaseFindings<'_>) -> Vec<Block> {
    let of = |kept: ExampleReason| -> Vec<Remark> {
        let mut by_outcome: BTreeMap<&str, Vec<&Example>> = BTreeMap::new();
        let records = case.trials.iter().filter_map(|t| t.record);
        for example in records.flat_map(|r| &r.examples).filter(|e| e.kept == kept) {
            by_outcome.entry(&example.outcome).or_default().push(example);
        }
        let few = by_outcome.into_values().flat_map(|mut list| {
            if kept == ExampleReason::Slow {
                list.sort_by(|a, b| b.response_ms.total_cmp(&a.response_ms));
            }
            list.truncate(EXAMPLES);
            list
        });
        let mut shown: Vec<Remark> = Vec::new();
        for remark in few.map(|e| remark(e, kept)) {
            if !shown.contains(&remark) {
                shown.push(remark);
            }
        }
        shown
    };
    let mut blocks = Vec::new();
    for (kept, title) in
        [(ExampleReason::Failed, "Examples of failures"), (ExampleReason::Slow, "Examples of slow requests")]
    {
        let remarks = of(kept);
        if !remarks.is_empty() {
            blocks.push(Block::Heading(title.into()));
            blocks.push(Block::Remarks(remarks));
        }
    }
    blocks
}

fn remark(example: &Example, kept: ExampleReason) -> Remark {
    let body = example.response_body.as_deref().map(str::trim).filter(|b| !b.is_empty());
    let captured: Vec<String> =
        example.captured.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let captured = (!captured.is_empty()).then(|| format!("captured: {}", captured.join(", ")));
    let shown = |text: String| crate::terminal::cut(&crate::terminal::harmless(&text), 200);
    let hints: Vec<String> =
        captured.into_iter().chain(body.map(|b| format!("body: {b}"))).map(shown).collect();
    Remark {
        weight: if kept == ExampleReason::Failed { Weight::Bad } else { Weight::Doubtful },
        label: example.outcome.clone(),
        text: example_text(example).split_once(": ").map_or_else(String::new, |(_, text)| text.to_owned()),
        hint: (!hints.is_empty()).then(|| hints.join(" · ")),
    }
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::summary::FewSamples;

    use super::*;

    #[test]
    fn what_was_missed_comes_before_what_is_undecided() {
        let expectation = |holds: Option<bool>, is_open: bool| Expectation {
            expr: "p99 < 1s".to_owned(),
            holds,
            value: None,
            unit: String::new(),
            note: None,
            undecided: is_open.then_some(FewSamples { samples: 9, needed: 1000, needed_s: None }),
        };
        let (held, open) = (expectation(Some(true), false), expectation(None, true));
        let (missed, unknown) = (expectation(Some(false), false), expectation(None, false));
        let of = |all: &[&Expectation]| {
            let all: Vec<(u32, &Expectation)> = (1..).zip(all.iter().copied()).collect();
            let found = not_held(&all);
            (found.first().map(|(_, e)| label_of(e).1), found.len())
        };
        assert_eq!(of(&[&held, &held]), (None, 0));
        assert_eq!(of(&[&held, &open, &open]), (Some("? undecided"), 2));
        assert_eq!(of(&[&open, &missed, &held]), (Some("✘ failed"), 1));
        assert_eq!(of(&[&open, &unknown]), (Some("✘ unknown"), 1));
    }
}
