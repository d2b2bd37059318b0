//! Events of a run, a line of text each: for the plain view and for the list of events on screen and page.

use loadlab_analysis::cases::metric::{self, Metric};
use loadlab_analysis::comparison::interval::Call;
use loadlab_record::documents::bottleneck::BottleneckKind;
use loadlab_record::documents::figure::FigureValue;
use loadlab_record::documents::manifest::{FigureFacts, UntilEnded};
use loadlab_record::documents::summary::{Doubt, Summary, Verdict};
use loadlab_record::text::units::{format_bytes, format_count, format_duration_ns, plural};
use loadlab_report::figures;
use loadlab_run::{ComparisonProgress, FigureProgress, Recorded, RunEvent};

/// The text of an event; `None` for progress and other events that a view shows in its own way.
pub fn describe(event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::Recording { dir, count, of, at_most } => {
            let at_most = if *at_most { "at most " } else { "" };
            let count = *count as u64;
            let recorded = match of {
                Recorded::Trials => plural(count, "trial", "trials"),
                Recorded::Levels => plural(count, "level", "levels"),
                Recorded::Loads => plural(count, "load", "loads"),
            };
            format!("recording {at_most}{recorded} in {}", dir.display())
        }
        RunEvent::Building { what, command } => format!("{what}: {command}"),
        RunEvent::Built { what, took_s } => format!("{what}: done in {}", format_duration_ns(took_s * 1e9)),
        RunEvent::TrialStarted { case, trial, place, of, at_most, .. } => {
            format!("[{}] {case}, trial {trial}", place_text(*place, *of, *at_most))
        }
        RunEvent::RoundEnded { round, at_most, left_s, comparisons, ended } => {
            let mut lines = vec![describe_rounds(*round, *at_most, *left_s, *ended)];
            lines.extend(comparisons.iter().map(|c| format!("  {}", describe_settled(c))));
            lines.join("\n")
        }
        RunEvent::Ready { component, after_s } => {
            format!("  {component} ready after {}", format_duration_ns(after_s * 1e9))
        }
        RunEvent::Command { name, took_s } => {
            format!("  {name} done in {}", format_duration_ns(took_s * 1e9))
        }
        RunEvent::Draining { until } => format!("  draining until {until}"),
        RunEvent::Drained { took_s, done: true } => {
            format!("  drained in {}", format_duration_ns(took_s * 1e9))
        }
        RunEvent::Drained { took_s, done: false } => {
            format!("  not drained after {}", format_duration_ns(took_s * 1e9))
        }
        RunEvent::Acted { what, error: None } => format!("  event: {what}"),
        RunEvent::Acted { what, error: Some(why) } => format!("  event: {what} failed: {why}"),
        RunEvent::Died { component, status } => format!("  {component} died: {status}"),
        RunEvent::Doubt { doubt, .. } => format!("  {}", describe_doubt(doubt)),
        RunEvent::Note(text) => format!("  note: {text}"),
        RunEvent::TrialEnded { summary, failure, figures, .. } => {
            describe_trial(summary.as_deref(), failure.as_deref(), figures)
        }
        RunEvent::LoadStarted { .. }
        | RunEvent::Progress(_)
        | RunEvent::Figures { .. }
        | RunEvent::Second(_)
        | RunEvent::Agents { .. }
        | RunEvent::Watched(_)
        | RunEvent::LoadEnded { .. } => return None,
    })
}

/// `3/15`; `3/≤15` if there may be fewer.
pub fn place_text(place: usize, of: usize, at_most: bool) -> String {
    format!("{place}/{}{of}", if at_most { "≤" } else { "" })
}

/// Progress of trials that continue until it is certain how the cases differ.
pub fn describe_rounds(round: u32, at_most: u32, left_s: Option<f64>, ended: Option<UntilEnded>) -> String {
    let rounds = plural(u64::from(round), "round", "rounds");
    match (ended, left_s) {
        (Some(UntilEnded::Settled), _) => format!("settled after {rounds}"),
        (Some(UntilEnded::AtMost), _) => format!("not settled after {rounds}, the maximum"),
        (Some(UntilEnded::Budget), _) => {
            format!("not settled after {rounds}: another one would exceed the budget")
        }
        (Some(UntilEnded::NotMeasured), _) => {
            format!("not settled after {rounds}: a case cannot be measured")
        }
        (None, Some(left_s)) => {
            let (left, unit) = if left_s < 100.0 { (left_s.max(1.0), "s") } else { (left_s / 60.0, "min") };
            format!("round {round} of at most {at_most}, about {left:.0} {unit} left")
        }
        (None, None) => format!("round {round} of at most {at_most}"),
    }
}

/// `“new” against “old”: goodput worse (0.92 ×), p99 open (1.04 ×, about 3 more rounds)`.
pub fn describe_settled(comparison: &ComparisonProgress) -> String {
    let figure = |f: &FigureProgress| {
        let effect = f.effect.map(|effect| match f.is_ratio {
            true => format!("{} ×", figures::number(figures::round(effect, 3))),
            false => format!("{:+} points", figures::round(effect * 100.0, 2)),
        });
        let call = match f.call {
            Call::Better => "better",
            Call::Worse => "worse",
            Call::Same => "the same",
            Call::Changed => "changed",
            Call::CannotTell if f.is_open => "open",
            Call::CannotTell if f.is_unresolved => "differs by less than its readings resolve",
            Call::CannotTell => "unknown",
        };
        let more = f.more.map(|n| format!("about {}", plural(n as u64, "more round", "more rounds")));
        let details: Vec<String> = effect.into_iter().chain(more).collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        format!("{} {call}{details}", f.name)
    };
    let figures: Vec<String> = comparison.figures.iter().map(figure).collect();
    format!("“{}” against “{}”: {}", comparison.other, comparison.base, figures.join(", "))
}

/// A doubt in one line, worded as in the report, which also has the hint.
pub fn describe_doubt(doubt: &Doubt) -> String {
    format!("{} {}: {}", if doubt.grave { "INVALID" } else { "doubt" }, doubt.kind, doubt.evidence)
}

/// `, first bottleneck web (cpu_limit)`; empty if there is none.
pub fn bottleneck_text(summary: &Summary) -> String {
    let Some(bottleneck) = &summary.bottleneck else { return String::new() };
    match (&bottleneck.component, bottleneck.kind) {
        (_, BottleneckKind::Nothing) => ", nothing saturated".to_owned(),
        (Some(component), kind) => format!(", first bottleneck {component} ({})", kind.name()),
        (None, kind) => format!(", first bottleneck not located ({})", kind.name()),
    }
}

/// How many of the figures that matter a line of text has.
pub const IN_LINE: usize = 3;

/// The value of a figure that matters: an estimate if samples are few, `–` while nothing is known.
pub fn figure(facts: &FigureFacts, value: &FigureValue) -> String {
    figures::in_cell(metric::of_figure(value, facts.kind), &Metric::of_plan(facts)).0
}

/// The first figures that matter, each with its name; `None` if the plan names none.
pub fn first_figures(facts: &[FigureFacts], summary: &Summary) -> Option<String> {
    let nothing = FigureValue::default();
    let text_of = |f: &FigureFacts| {
        format!("{} {}", f.name, figure(f, summary.figures.get(&f.name).unwrap_or(&nothing)))
    };
    let texts: Vec<String> = facts.iter().take(IN_LINE).map(text_of).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// How a trial ended: with the first of the figures that matter, or else with the median and the largest memory.
fn describe_trial(summary: Option<&Summary>, failure: Option<&str>, figures: &[FigureFacts]) -> String {
    let Some(s) = summary else {
        return format!("  FAILED: {}", failure.unwrap_or("nothing was measured"));
    };
    let verdict = match s.verdict {
        Verdict::Pass => "pass: ",
        Verdict::Fail => "FAIL: ",
        Verdict::Invalid => "INVALID: ",
        Verdict::Undecided => "undecided: ",
        Verdict::None => "",
    };
    let named = first_figures(figures, s).map(|text| format!(", {text}"));
    let figures = named.unwrap_or_else(|| median_and_memory(s));
    let failed = match s.requests.failed {
        0 => String::new(),
        n => format!(", {} failed", format_count(n as f64)),
    };
    let spoiled = failure.map_or(String::new(), |f| format!("\n  {f}"));
    let goodput = format_count(s.rate_per_s.ok);
    let first = bottleneck_text(s);
    let ok = format_count(s.requests.ok as f64);
    format!("  {verdict}{ok} ok, {goodput}/s{failed}{figures}{first}{spoiled}")
}

/// `, p50 1.2 ms, web up to 12 MiB`.
fn median_and_memory(s: &Summary) -> String {
    let p50 = match s.response_ms.count {
        0 => String::new(),
        _ => format!(", p50 {}", figures::short_figure(&s.response_ms, "p50")),
    };
    let most = s.components.iter().filter_map(|(n, c)| Some((n, c.memory_bytes.max?)));
    let memory = most.max_by(|a, b| a.1.total_cmp(&b.1));
    let memory = memory.map_or(String::new(), |(n, b)| format!(", {n} up to {}", format_bytes(b)));
    format!("{p50}{memory}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_is_not_resolved_is_not_unknown() {
        let check = |call: Call, is_open: bool, is_unresolved: bool, expect: &str| {
            let (name, effect, is_ratio) = ("peak memory".to_owned(), Some(1.04), true);
            let figure = FigureProgress { name, call, is_open, is_unresolved, is_ratio, effect, more: None };
            let (base, other, figures) = ("old".to_owned(), "new".to_owned(), vec![figure]);
            let settled = ComparisonProgress { base, other, is_settled: !is_open, figures };
            let text = format!("“new” against “old”: peak memory {expect}");
            assert_eq!(describe_settled(&settled), text);
        };
        check(Call::Worse, false, false, "worse (1.04 ×)");
        check(Call::CannotTell, true, false, "open (1.04 ×)");
        check(Call::CannotTell, false, false, "unknown (1.04 ×)");
        check(Call::CannotTell, false, true, "differs by less than its readings resolve (1.04 ×)");
    }
}
