//! Words that all forms of a report share: for a load, the generator, an example, an expectation and a verdict.

use std::fmt::Write;

use loadlab_record::counts::example::Example;
use loadlab_record::documents::summary::{Expectation, Generator, LoadFacts, LoadModel, ThinkFacts, Verdict};
use loadlab_record::text::units::significant;

use crate::figures::{self, bytes, ms, percent, plural, rate, seconds};
use crate::terminal::{Tone, harmless};

/// A verdict in one word, and its tone; empty if nothing was expected.
pub fn verdict_and_tone(verdict: Verdict) -> (&'static str, Tone) {
    match verdict {
        Verdict::Pass => ("PASS", Tone::Good),
        Verdict::Fail => ("FAIL", Tone::Bad),
        Verdict::Invalid => ("INVALID", Tone::Bad),
        Verdict::Undecided => ("UNDECIDED", Tone::Warn),
        Verdict::None => ("", Tone::Plain),
    }
}

/// Whether it is a closed model without pacing: no figure contains what a slow answer made its user miss (coordinated
/// omission).
pub fn has_coordinated_omission(load: &LoadFacts) -> bool {
    match load.loads.is_empty() {
        true => load.model == LoadModel::Closed && load.pace_s.is_none(),
        false => load.loads.values().any(has_coordinated_omission),
    }
}

/// Whether users pause after an answer.
pub fn thinks(load: &LoadFacts) -> bool {
    load.think_s.is_some_and(|s| s > 0.0)
}

/// What was requested, one item per fact.
pub fn describe_load(load: &LoadFacts) -> Vec<String> {
    let mut texts = Vec::new();
    if !load.url.is_empty() {
        texts.push(harmless(&load.url));
    }
    if load.is_command() {
        texts.push("made by this program".to_owned());
        texts.extend((load.start_s > 0.0).then(|| format!("from {} on", seconds(load.start_s))));
        texts.extend(load.requests.map(|n| plural(n, "request", "requests")));
        texts.push("counted by a probe; response times, failures and bytes: not measured".to_owned());
        return texts;
    }
    let up_to = if load.stages.is_empty() { "" } else { "up to " };
    match (load.users, load.rate_per_s) {
        (Some(users), _) if load.model == LoadModel::Closed => {
            texts.push(format!("{up_to}{}", plural(users, "user", "users")));
        }
        (_, Some(per_s)) if load.sessions => texts.push(format!("users arriving at {}", rate(per_s))),
        (_, Some(per_s)) => texts.push(format!("{up_to}{}", rate(per_s))),
        _ => texts.push(format!("{} model", load.model.word())),
    }
    texts.extend(load.pace_s.map(|s| format!("a step every {}", seconds(s))));
    texts.extend(think_text(load));
    texts.extend((load.ramp_s > 0.0).then(|| format!("ramp {}", seconds(load.ramp_s))));
    texts.extend(stages_text(load));
    texts.extend(load.duration_s.map(seconds));
    texts.extend((load.start_s > 0.0).then(|| format!("from {} on", seconds(load.start_s))));
    let (one, more) = if load.sessions { ("user", "users") } else { ("request", "requests") };
    texts.extend(load.requests.map(|n| plural(n, one, more)));
    texts.push(load.protocol.clone());
    texts.push(if load.keep_alive { "keep-alive" } else { "a connection per request" }.to_owned());
    texts.retain(|w| !w.is_empty());
    texts
}

fn think_text(load: &LoadFacts) -> Option<String> {
    let mean_s = load.think_s.filter(|s| *s > 0.0)?;
    Some(match load.think {
        Some(ThinkFacts::UniformS(low, high)) => format!("think {} to {}", seconds(low), seconds(high)),
        Some(ThinkFacts::ExponentialS(mean)) => format!("think {} on average (exponential)", seconds(mean)),
        Some(ThinkFacts::OfStepsS(mean)) => {
            format!("pauses of {} on average between requests", seconds(mean))
        }
        Some(ThinkFacts::ConstantS(_)) | None => format!("think {}", seconds(mean_s)),
    })
}

/// How many stages are spelled out.
const STAGES: usize = 12;

/// `stages: 0 → 100 over 10.0 s, 100 for 30.0 s`; the first few.
fn stages_text(load: &LoadFacts) -> Option<String> {
    let mut said: Vec<String> = stages(load).into_iter().take(STAGES).map(|(_, text)| text).collect();
    if load.stages.len() > STAGES {
        said.push(format!("and {} more", load.stages.len() - STAGES));
    }
    (!said.is_empty()).then(|| format!("stages: {}", said.join(", ")))
}

/// When each stage begins, seconds from the load's start, and what it does; including jumps.
pub(crate) fn stages(load: &LoadFacts) -> Vec<(f64, String)> {
    let level = |value: f64| match load.rate_per_s.is_some() {
        true => rate(value),
        false => figures::number(value),
    };
    let mut at_s = 0.0;
    let mut said = Vec::new();
    for stage in &load.stages {
        let over = seconds(stage.over_s);
        said.push(match () {
            () if stage.over_s == 0.0 => (at_s, format!("at once to {}", level(stage.to))),
            () if stage.from == stage.to => (at_s, format!("{} for {over}", level(stage.to))),
            () => (at_s, format!("{} → {} over {over}", level(stage.from), level(stage.to))),
        });
        at_s += stage.over_s;
    }
    said
}

/// What the generator used, one item per fact.
pub fn describe_generator(g: &Generator, length_s: f64) -> Vec<String> {
    if g.threads == 0 {
        return vec!["the load's own program, which is among the components".to_owned()];
    }
    let cpus: Vec<String> = g.cpus.iter().map(u64::to_string).collect();
    let bound = match cpus.len() {
        0 => String::new(),
        1 => format!(" on core {}", cpus[0]),
        _ => format!(" on cores {}", cpus.join(",")),
    };
    let mut texts = vec![format!("{}, {}{bound}", g.io, plural(g.threads, "thread", "threads"))];
    // Threads with little or no share of the load say nothing about the others.
    let is_mean = g.threads == 1 || g.busiest_cpu_s.is_none();
    let (busiest, most) = if is_mean { ("", "") } else { ("the busiest ", "at most ") };
    if let Some(cpu_s) = g.busiest_s().filter(|_| length_s > 0.0) {
        texts.push(format!("{busiest}{} busy", percent(figures::round(cpu_s / length_s, 3))));
        if let Some(delay_s) = g.longest_delay_s() {
            let share = percent(figures::round(delay_s / length_s, 2));
            texts.push(format!("waited for a core {most}{share}"));
        }
    }
    if let Some(throttled_s) = g.throttled_s.filter(|s| *s > 0.0) {
        texts.push(format!("stopped by a CPU limit for {}", seconds(throttled_s)));
    }
    if g.stalls.count > 0 {
        texts.push(format!("stalled for {}", seconds(g.stalls.total_s)));
    }
    if let Some(suspended_s) = g.suspended_s.filter(|s| *s >= 1e-3) {
        texts.push(format!("suspended for {}", seconds(suspended_s)));
    }
    texts.push(format!("{} at most", bytes(g.peak_rss_bytes as f64)));
    texts.push(format!("{} at most", plural(g.connections_peak, "connection", "connections")));
    texts
}

/// One kept exchange in a line.
pub fn example_text(e: &Example) -> String {
    let mut text = format!("{}: {}", e.outcome, harmless(&e.request));
    if let Some(status) = e.status {
        let _ = write!(text, " → {status}");
    }
    if let Some(error) = &e.error {
        let _ = write!(text, ", {}", harmless(error));
    }
    let whose = match (&e.step, e.user) {
        (Some(step), Some(user)) => format!("{} of user {user}, ", harmless(step)),
        (Some(step), None) => format!("{}, ", harmless(step)),
        (None, _) => String::new(),
    };
    let _ = write!(
        text,
        " ({whose}at {}, after {}, {})",
        seconds(e.due_s.max(0.0)),
        ms(e.response_ms),
        harmless(&e.address)
    );
    text
}

/// An expectation with what was measured.
pub fn describe_expectation(e: &Expectation) -> String {
    let mut text = harmless(&e.expr);
    if let Some(value) = e.value {
        let space = if matches!(e.unit.as_str(), "" | "/s") { "" } else { " " };
        let shown = match e.digits(figures::DIGITS) {
            figures::DIGITS => figures::number(value),
            more => significant(value, more),
        };
        let _ = write!(text, " (measured {shown}{space}{})", e.unit);
    }
    if let Some(note) = &e.note {
        let _ = write!(text, ": {}", harmless(note));
    }
    text
}

/// The text with a capital.
pub(crate) fn capital(text: &str) -> String {
    // `p99` stays unchanged.
    if text.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_value_close_to_its_limit_shows_on_which_side_it_is() {
        let described = |expr: &str, holds: bool, value: f64, unit: &str| {
            let (expr, unit) = (expr.to_owned(), unit.to_owned());
            let (holds, value) = (Some(holds), Some(value));
            describe_expectation(&Expectation { expr, holds, value, unit, note: None, undecided: None })
        };
        for (expr, holds, value, unit, expect) in [
            ("errors < 1%", true, 0.0, "%", "errors < 1% (measured 0 %)"),
            ("p99 < 2s", false, 2.5, "s", "p99 < 2s (measured 2.5 s)"),
            ("p99 < 50ms", false, 50.004, "ms", "p99 < 50ms (measured 50.004 ms)"),
            ("p99 < 50ms", true, 49.998, "ms", "p99 < 50ms (measured 49.998 ms)"),
            ("goodput >= 1000/s", false, 999.98, "/s", "goodput >= 1000/s (measured 999.98/s)"),
            ("goodput > 900/s", true, 12_345.6, "/s", "goodput > 900/s (measured 12,346/s)"),
            ("availability == 100%", false, 99.9996, "%", "availability == 100% (measured 99.9996 %)"),
        ] {
            assert_eq!(described(expr, holds, value, unit), expect);
        }
    }
}
