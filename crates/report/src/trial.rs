//! One trial in words: the final output of `loadlab bench` on a terminal, headline first.
//!
//! Readable without colour, from 40 columns on. It renders what the summary contains and concludes nothing.

use std::fmt::Write;

use loadlab_analysis::trial::bottleneck::answer_of_watched;
use loadlab_record::Histogram;
use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::counts::load::Stragglers;
use loadlab_record::documents::summary::{Distribution, Doubt, Expectation, PERCENTILES, Summary};
use loadlab_record::text::units::estimate_text;

use crate::bins::{Bin, bins};
use crate::figures::{self, bytes, count, ms, percent, plural, rate, seconds};
use crate::terminal::{Paint, Tone, bar, cut, hanging, harmless, items, left, right, width_of};
use crate::wording::{
    describe_expectation, describe_generator, describe_load, example_text, has_coordinated_omission, thinks,
    verdict_and_tone,
};

/// Failed exchanges shown; the record keeps more.
const EXAMPLES: usize = 3;
/// Columns of a figure, including a space before it; wider with intervals, if there is room.
const FIGURE: usize = 14;
/// Columns of a row's name.
const NAME: usize = 9;

/// What a trial's text is made from.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// Its summary.
    pub summary: &'a Summary,
    /// Response times of ok outcomes, for the drawn histogram.
    pub ok_responses: &'a Histogram,
    /// Exchanges that were kept.
    pub examples: &'a [Example],
}

/// The text, for a terminal of this width in columns, with escape sequences for colour or without.
pub fn trial_text(trial: Trial<'_>, width: usize, colour: bool) -> String {
    let width = width.clamp(24, 400);
    let page = TrialPage { width, paint: Paint { colour } };
    let summary = trial.summary;
    let mut out = String::new();
    page.headline(&mut out, summary);
    page.times(&mut out, summary);
    page.histogram(&mut out, trial.ok_responses);
    page.outcomes(&mut out, summary);
    page.tags(&mut out, summary);
    page.numbers(&mut out, summary);
    page.traffic(&mut out, summary);
    page.components(&mut out, summary);
    page.examples(&mut out, trial.examples);
    page.doubts(&mut out, &summary.doubts);
    page.expectations(&mut out, &summary.expectations);
    out
}

struct TrialPage {
    width: usize,
    paint: Paint,
}

impl TrialPage {
    fn heading(&self, out: &mut String, text: &str) {
        let _ = writeln!(out, "\n{}", self.paint.tone(Tone::Strong, text));
    }

    fn headline(&self, out: &mut String, s: &Summary) {
        let (word, tone) = verdict_and_tone(s.verdict);
        let lead = if word.is_empty() { String::new() } else { format!("{word}  ") };
        let failed = match s.requests.failed {
            _ if s.load.is_command() => "failures not measured".to_owned(),
            0 if s.requests.started == 0 => "nothing was sent".to_owned(),
            0 if s.requests.ok == 0 && s.requests.in_flight > 0 => "none was answered".to_owned(),
            0 => "none failed".to_owned(),
            n => {
                format!("{} failed ({})", count(n), percent(n as f64 / s.started_by_loadlab().max(1) as f64))
            }
        };
        // If rates cover only a part, a reader who divides must know which.
        let window_s = s.window.length_s();
        let over = match (s.elapsed_s - window_s).abs() > 0.02 * s.elapsed_s {
            true => format!(" over {}", seconds(window_s)),
            false => String::new(),
        };
        let text = format!(
            "{} ok in {}: {}{over}, {failed}",
            plural(s.requests.ok, "request", "requests"),
            seconds(s.elapsed_s),
            rate(s.rate_per_s.ok),
        );
        let failed_tone = if s.requests.failed > 0 { Tone::Warn } else { Tone::Strong };
        let mut body = String::new();
        hanging(&mut body, &" ".repeat(width_of(&lead)), &text, self.width, |t| {
            self.paint.tone(failed_tone, t)
        });
        let body = body.split_at(width_of(&lead)).1;
        let _ = write!(out, "{}{body}", self.paint.tone(tone, &lead));
        items(out, &describe_load(&s.load), self.width);
        if let Some(text) = describe_stragglers(s) {
            hanging(out, "", &text, self.width, |t| t.to_owned());
        }
        if has_coordinated_omission(&s.load) {
            let users = s.load.users.map_or("these users".to_owned(), |n| plural(n, "user", "users"));
            let text = format!(
                "These response times hold for {users} only: each sends its next request when its last one \
                 has ended, which hides the waiting a slow answer would have caused. For a fixed rate: -r RATE."
            );
            hanging(out, "", &text, self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    /// Percentiles, one column for each kind of time that adds information.
    fn times(&self, out: &mut String, s: &Summary) {
        let columns = time_columns(s);
        let rows = ["min", "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max", "mean", "stdev"];
        // If there is no room for intervals, they go below.
        let widest = |d: &Distribution| rows.map(|row| width_of(&figures::figure(d, row))).into_iter().max();
        let column = columns.iter().filter_map(|(_, d)| widest(d)).max().unwrap_or(0).max(FIGURE - 1) + 1;
        let is_wide = NAME + column * columns.len() <= self.width;
        let (column, figure): (usize, fn(&Distribution, &str) -> String) =
            if is_wide { (column, figures::figure) } else { (FIGURE, figures::short_figure) };
        let per_block = ((self.width - NAME) / column).clamp(1, columns.len().max(1));
        for (i, block) in columns.chunks(per_block).enumerate() {
            let names: String = block.iter().map(|(name, _)| right(name, column)).collect();
            let head = if i == 0 { "Times" } else { "" };
            self.heading(out, &format!("{}{names}", left(head, NAME)));
            for row in rows {
                let cells: String = block.iter().map(|(_, d)| right(&figure(d, row), column)).collect();
                let label = left(&format!("  {}", figures::percentile_label(row)), NAME);
                let _ = writeln!(out, "{}{cells}", self.paint.tone(Tone::Faint, &label));
            }
        }
        if columns.iter().any(|(_, d)| !d.few.is_empty()) {
            let few = describe_few_samples(&s.response_ms, !is_wide);
            hanging(out, "  ", &few, self.width, |t| self.paint.tone(Tone::Faint, t));
        }
        let censored = s.response_ms.censored;
        if censored > 0 {
            let text = format!(
                "{} by timeout, drop or the end of the load and count as at least their age.",
                if censored == 1 {
                    "1 response time was cut off".into()
                } else {
                    format!("{} response times were cut off", count(censored))
                }
            );
            hanging(out, "  ", &text, self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    fn histogram(&self, out: &mut String, ok: &Histogram) {
        let bins = bins(ok);
        // A single bin is already described by min and max.
        if bins.len() < 2 {
            return;
        }
        self.heading(out, "Response times of ok outcomes");
        for line in histogram_lines(&bins, self.width) {
            let bar = self.paint.tone(Tone::Bar, &line.bar);
            let text = format!("  {}  {bar}{}", self.paint.tone(Tone::Faint, &line.label), line.tail);
            let _ = writeln!(out, "{}", text.trim_end());
        }
    }

    fn outcomes(&self, out: &mut String, s: &Summary) {
        self.heading(out, "Outcomes");
        let started = s.started_by_loadlab().max(1) as f64;
        let mut list = vec![format!("ok {}", count(s.requests.ok))];
        for (failure, n) in s.failures.nonzero() {
            list.push(format!("{} {} ({})", failure.name(), count(n), percent(n as f64 / started)));
        }
        for (name, n) in [("in flight at the end", s.requests.in_flight), ("dropped", s.requests.dropped)] {
            if n > 0 {
                list.push(format!("{name} {}", count(n)));
            }
        }
        let mut lines = String::new();
        items(&mut lines, &list, self.width - 2);
        if !s.statuses.is_empty() {
            let statuses: Vec<String> =
                s.statuses.iter().map(|(status, n)| format!("{status} × {}", count(*n))).collect();
            items(&mut lines, &statuses, self.width - 2);
        }
        indent(out, &lines);
    }

    fn tags(&self, out: &mut String, s: &Summary) {
        if s.by_tag.is_empty() {
            return;
        }
        let figures = ["p50", "p95", "p99"];
        let longest = s.by_tag.keys().map(|t| width_of(&harmless(t))).max().unwrap_or(0);
        let fixed = 10 + 9 + figures.len() * FIGURE;
        let name = longest.clamp(4, self.width.saturating_sub(fixed + 2).max(8));
        let narrow = name + fixed + 2 > self.width;
        let head = match narrow {
            true => String::new(),
            false => format!(
                "{}{}{}",
                right("requests", 10),
                right("failed", 9),
                figures.map(|f| right(f, FIGURE)).concat()
            ),
        };
        self.heading(out, &format!("{}{head}", left("By tag", name + 2)));
        for (tag, t) in &s.by_tag {
            let tag = harmless(tag);
            if narrow {
                let _ = writeln!(out, "  {}", cut(&tag, self.width - 2));
                let mut list = vec![
                    plural(t.requests.started, "request", "requests"),
                    format!("{} failed", count(t.requests.failed)),
                ];
                list.extend(figures.map(|f| format!("{f} {}", figures::figure(&t.response_ms, f))));
                let mut lines = String::new();
                items(&mut lines, &list, self.width - 4);
                lines.lines().for_each(|l| indent(out, &format!("  {l}\n")));
                continue;
            }
            let cells = figures.map(|f| right(&figures::short_figure(&t.response_ms, f), FIGURE)).concat();
            let (requests, failed) =
                (right(&count(t.requests.started), 10), right(&count(t.requests.failed), 9));
            let _ = writeln!(out, "  {}{requests}{failed}{cells}", left(&cut(&tag, name), name));
        }
    }

    /// Numbers that were captured from answers, a line each.
    fn numbers(&self, out: &mut String, s: &Summary) {
        if s.numbers.is_empty() {
            return;
        }
        self.heading(out, "Captured numbers");
        for (name, number) in &s.numbers {
            let format = |value: f64| figures::number(figures::round(value, 4));
            let shown = |figure: &str| {
                let estimate = || Some(estimate_text(number.few.of(figure)?, number.max, format));
                let text = number.figure(figure).flatten().map(format).or_else(estimate)?;
                Some(format!("{} {text}", figures::percentile_label(figure)))
            };
            let mut list = vec![format!("{}:", harmless(name)), plural(number.count, "value", "values")];
            list.extend(["mean", "min", "p50", "p90", "p95", "p99", "max"].into_iter().filter_map(shown));
            let mut lines = String::new();
            items(&mut lines, &list, self.width - 2);
            indent(out, &lines);
        }
    }

    fn traffic(&self, out: &mut String, s: &Summary) {
        let length_s = s.elapsed_s;
        let over = if s.has_tail() { format!(" over {}", seconds(length_s)) } else { String::new() };
        let per_s = |n: u64| match length_s > 0.0 {
            true => format!(" ({}/s{over})", bytes(n as f64 / length_s)),
            false => String::new(),
        };
        let mut lines = String::new();
        let mut list = vec![
            format!("received {}{}", bytes(s.bytes.received as f64), per_s(s.bytes.received)),
            format!("sent {}{}", bytes(s.bytes.sent as f64), per_s(s.bytes.sent)),
            format!("{} in flight on average", figures::number(figures::round(s.concurrency_mean, 3))),
        ];
        if s.load.is_command() {
            list = vec!["bytes and requests in flight: not measured".to_owned()];
        }
        if let (Some(stdev), Some(max)) = (s.rate_per_s.ok_stdev, s.rate_per_s.ok_max) {
            list.push(format!(
                "per second: stdev {}, most {}",
                figures::number(figures::round(stdev, 3)),
                figures::number(max)
            ));
        }
        if s.connections.requests_resent > 0 {
            let resent =
                plural(s.connections.requests_resent, "request was sent again", "requests were sent again");
            let after = match s.connections.resent_after_reset {
                0 => String::new(),
                n => format!(", {} of them after a reset", figures::number(n as f64)),
            };
            list.push(format!("{resent} on another connection{after}"));
        }
        if let Some(drain_s) = s.drain_s {
            list.push(format!("drained in {}", seconds(drain_s)));
        }
        self.heading(out, "Throughput");
        items(&mut lines, &list, self.width - 2);
        indent(out, &lines);
        self.heading(out, "Generator");
        lines.clear();
        items(&mut lines, &describe_generator(&s.generator, s.asked_s()), self.width - 2);
        indent(out, &lines);
    }

    fn examples(&self, out: &mut String, examples: &[Example]) {
        let failed: Vec<&Example> = examples.iter().filter(|e| e.kept == ExampleReason::Failed).collect();
        if failed.is_empty() {
            return;
        }
        self.heading(out, "What failed, for example");
        // One of each outcome first: ten refused connections are no more informative than one.
        let mut shown: Vec<&Example> = Vec::new();
        for example in &failed {
            if shown.iter().all(|s| s.outcome != example.outcome) {
                shown.push(example);
            }
        }
        for example in shown.into_iter().take(EXAMPLES) {
            hanging(out, "  ", &example_text(example), self.width, |t| t.to_owned());
            if let Some(body) =
                example.response_body.as_deref().map(harmless).filter(|b| !b.trim().is_empty())
            {
                let line = cut(body.trim(), self.width.saturating_sub(4));
                let _ = writeln!(out, "    {}", self.paint.tone(Tone::Faint, &line));
            }
        }
    }

    /// What was watched beside the load, and what held it back. If nothing was watched there is nothing to report; if
    /// something could not be seen there is.
    fn components(&self, out: &mut String, s: &Summary) {
        let Some(bottleneck) = answer_of_watched(s) else { return };
        self.heading(out, "First bottleneck");
        let mut evidence = bottleneck.evidence.iter().map(|text| harmless(text));
        if let Some(first) = evidence.next() {
            hanging(out, "  ", &first, self.width, |t| t.to_owned());
        }
        evidence
            .for_each(|text| hanging(out, "    ", &text, self.width, |t| self.paint.tone(Tone::Faint, t)));
        if !bottleneck.not_seen.is_empty() {
            let text = harmless(&bottleneck.not_seen.join("; "));
            hanging(out, "    not seen: ", &text, self.width, |t| self.paint.tone(Tone::Faint, t));
        }
        if s.components.is_empty() {
            return;
        }
        self.heading(out, "Components");
        let names = s.components.keys().map(|name| width_of(name)).max().unwrap_or(0).min(self.width / 3);
        for (name, c) in &s.components {
            let cpu = figures::or_nothing(c.cpu_percent.mean, |p| {
                format!("{} %", figures::number(figures::round(p, 2)))
            });
            let memory = figures::or_nothing(c.memory_bytes.max, bytes);
            let name = left(&cut(&harmless(name), names), names);
            let text = format!("CPU {cpu}, memory up to {memory}");
            hanging(out, &format!("  {name}  "), &text, self.width, |t| t.to_owned());
        }
    }

    fn doubts(&self, out: &mut String, doubts: &[Doubt]) {
        if doubts.is_empty() {
            return;
        }
        self.heading(out, "Doubts");
        for doubt in doubts {
            let (mark, tone) =
                if doubt.grave { ("  INVALID ", Tone::Bad) } else { ("  doubt   ", Tone::Warn) };
            let text = format!("{}: {}", doubt.kind, harmless(&doubt.evidence));
            let mut block = String::new();
            hanging(&mut block, mark, &text, self.width, |t| t.to_owned());
            out.push_str(&self.paint.tone(tone, mark));
            out.push_str(block.strip_prefix(mark).unwrap_or(&block));
            hanging(out, "          hint: ", &doubt.hint, self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    fn expectations(&self, out: &mut String, expectations: &[Expectation]) {
        if expectations.is_empty() {
            return;
        }
        self.heading(out, "Expectations");
        for e in expectations {
            let (mark, tone) = match e.holds {
                Some(true) => ("  ✔ holds   ", Tone::Good),
                Some(false) => ("  ✘ failed  ", Tone::Bad),
                None if e.is_undecided() => ("  ? undecided ", Tone::Warn),
                None => ("  ✘ unknown ", Tone::Bad),
            };
            let mut block = String::new();
            hanging(&mut block, mark, &describe_expectation(e), self.width, |t| t.to_owned());
            out.push_str(&self.paint.tone(tone, mark));
            out.push_str(block.strip_prefix(mark).unwrap_or(&block));
        }
    }
}

/// What is known of percentiles with too few samples, and how they are marked.
fn describe_few_samples(d: &Distribution, with_figures: bool) -> String {
    let shown = PERCENTILES.iter().filter(|(name, _)| d.few.of(name).is_some());
    let intervals =
        shown.map(|(name, _)| format!("{} {}", figures::percentile_label(name), figures::figure(d, name)));
    let widened = match d.few.widened {
        Some(n) if n >= 1.05 => format!(
            ", widened since slow requests came together: {} count as one",
            figures::number(figures::round(n, 2))
        ),
        _ => String::new(),
    };
    let intervals: Vec<String> = intervals.collect();
    match with_figures {
        true if intervals.is_empty() => {
            "~: estimated from few samples; `--json` has the intervals.".to_owned()
        }
        true => {
            format!("~: estimated from few samples. Response at 95 %: {}{widened}.", intervals.join(", "))
        }
        false => format!("Few samples: the estimate with its 95 % interval{widened}."),
    }
}

/// Indents every line by two columns.
fn indent(out: &mut String, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(out, "  {line}");
    }
}

/// What continued after the load was over; `None` if it was soon done.
fn describe_stragglers(s: &Summary) -> Option<String> {
    let Stragglers { ok, failed, tail_s } = s.stragglers;
    let who = match (ok, failed) {
        _ if !s.has_tail() => return None,
        (0, 0) => return None,
        (n, 0) => plural(n, "straggler", "stragglers"),
        (ok, failed) => {
            format!("{} ({} failed)", plural(ok + failed, "straggler", "stragglers"), count(failed))
        }
    };
    Some(format!(
        "{who} began in time and ended after the load was over, the last one {} later: their response times count, but no rate \
         includes them.",
        seconds(tail_s)
    ))
}

/// The kinds of time that add information, with a name each.
fn time_columns(s: &Summary) -> Vec<(&'static str, &Distribution)> {
    let mut columns = vec![("response", &s.response_ms)];
    let mut add = |wanted: bool, name, d| {
        if wanted {
            columns.push((name, d));
        }
    };
    add(s.response_ms.censored > 0, "ok", &s.ok_response_ms);
    add(s.failed_response_ms.count > 0, "failed", &s.failed_response_ms);
    add(s.service_ms != s.response_ms && s.service_ms.count > 0, "service", &s.service_ms);
    let own_due = !has_coordinated_omission(&s.load) || thinks(&s.load);
    add(own_due && s.late_ms.count > 0, "late", &s.late_ms);
    add(s.blocked_ms.max.is_some_and(|max| max >= 0.1), "blocked", &s.blocked_ms);
    add(s.connect_ms.count > 0, "connect", &s.connect_ms);
    add(s.tls_ms.count > 0, "tls", &s.tls_ms);
    columns
}

struct BarLine {
    label: String,
    bar: String,
    tail: String,
}

fn histogram_lines(bins: &[Bin], width: usize) -> Vec<BarLine> {
    let total: u64 = bins.iter().map(|b| b.count).sum();
    let most = bins.iter().map(|b| b.count).max().unwrap_or(1).max(1);
    let labels: Vec<String> = bins.iter().map(|b| format!("≤ {}", ms(b.to_ns / 1e6))).collect();
    let label = labels.iter().map(|l| width_of(l)).max().unwrap_or(0);
    let tails: Vec<String> = bins
        .iter()
        .map(|b| match b.count {
            0 => String::new(),
            n => format!(" {} {}", count(n), percent(n as f64 / total.max(1) as f64)),
        })
        .collect();
    let tail = tails.iter().map(|t| width_of(t)).max().unwrap_or(0);
    // Longer bars than this are no easier to compare.
    let columns = width.saturating_sub(4 + label + tail).clamp(4, 80);
    bins.iter()
        .zip(labels)
        .zip(tails)
        .map(|((b, text), tail)| BarLine {
            label: right(&text, label),
            bar: bar(b.count as f64 / most as f64, columns),
            tail,
        })
        .collect()
}
