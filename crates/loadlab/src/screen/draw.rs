//! The live screen as lines of text: nothing is wider than the terminal, and with few rows, less urgent things give
//! way to more urgent ones.

use std::collections::VecDeque;

use loadlab_record::text::units::format_count;
use loadlab_report::figures;
use loadlab_report::terminal::{bar, cut, hanging, harmless, is_harmful, left, right, sparkline, width_of};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::live::display::{self, clock, ms};
use crate::live::state::{Agent, Component, Figure, Load, State, Weight};
use crate::live::wording;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, state: &State, now_s: f64, colour: bool) {
    let area = frame.area();
    let page = Drawing { width: usize::from(area.width), colour };
    frame.render_widget(Paragraph::new(page.lines(state, now_s, usize::from(area.height))), area);
    disarm(frame.buffer_mut());
}

/// A safety net: nothing on the screen may control the terminal. A character without a column, such as an override of
/// the writing direction, shares a cell with the character before it.
fn disarm(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if cell.symbol().chars().any(is_harmful) {
            let kept: String = cell.symbol().chars().filter(|c| !is_harmful(*c)).collect();
            cell.set_symbol(if kept.is_empty() { " " } else { &kept });
        }
    }
}

struct Drawing {
    width: usize,
    colour: bool,
}

impl Drawing {
    /// The lines of the screen, at most `rows`.
    fn lines(&self, state: &State, now_s: f64, rows: usize) -> Vec<Line<'static>> {
        let mut lines = self.head(state, now_s);
        for load in &state.loads {
            lines.extend(self.load(load, state.loads.len() > 1));
        }
        let mut left_over = rows.saturating_sub(lines.len());
        // Events come last; if there are any, the sections above leave them four rows, including their heading.
        let events_need = if state.events.is_empty() { 0 } else { 4 };
        let done_need = if state.done.is_empty() { 0 } else { 3 };
        let mut section =
            |heading: &str, body: Vec<Line<'static>>, spared: usize, lines: &mut Vec<Line<'static>>| {
                let room = left_over.saturating_sub(spared + 1);
                if body.is_empty() || room == 0 {
                    return;
                }
                lines.push(self.heading(heading));
                let hidden = body.len().saturating_sub(room);
                let shown = if hidden > 0 { room - 1 } else { body.len() };
                lines.extend(body.into_iter().take(shown));
                if hidden > 0 {
                    lines.push(self.faint(&format!("… and {} more", hidden + 1)));
                }
                left_over = rows.saturating_sub(lines.len());
            };
        section("figures that matter", self.figures(state), events_need + done_need, &mut lines);
        section("components", self.components(&state.components), events_need + done_need, &mut lines);
        section("probes", self.probes(state), events_need + done_need, &mut lines);
        section("agents", self.agents(state), events_need + done_need, &mut lines);
        let settling =
            state.settling.iter().flat_map(|(weight, text)| self.wrapped(*weight, &harmless(text)));
        section("until certain", settling.collect(), events_need + done_need, &mut lines);
        let newest = |n: usize| n.saturating_sub(rows);
        let done = state.done.iter().skip(newest(state.done.len())).rev();
        let done = done.map(|(weight, text)| self.line(*weight, &harmless(text))).collect();
        section("trials done", done, events_need, &mut lines);
        let events = state.events.iter().skip(newest(state.events.len())).rev();
        let events = events.map(|event| {
            let at = right(&clock(event.at_s), 6);
            self.line(event.weight, &format!("{at}  {}", harmless(&event.text)))
        });
        section("events, newest first", events.collect(), 0, &mut lines);
        lines.truncate(rows);
        lines
    }

    fn head(&self, state: &State, now_s: f64) -> Vec<Line<'static>> {
        let place = state.place.as_ref().map_or(String::new(), |place| format!("  [{place}]"));
        let right_side = format!("{place}  {}", clock(now_s));
        let title = cut(&harmless(&state.title), self.width.saturating_sub(width_of(&right_side)));
        let gap = " ".repeat(self.width.saturating_sub(width_of(&title) + width_of(&right_side)));
        let strong = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::from(vec![
            Span::styled(format!("{title}{gap}"), strong),
            Span::styled(right_side, self.dim()),
        ])];
        let phase = format!("{} {}", state.phase, clock(now_s - state.phase_since_s));
        let text =
            if state.trial.is_empty() { phase } else { format!("{} · {phase}", harmless(&state.trial)) };
        lines.push(Line::from(cut(&text, self.width)));
        lines.extend(state.page.iter().map(|page| self.faint(&format!("the same in a browser: {page}"))));
        lines
    }

    /// A load's progress, its rate and response times with their last seconds, and how requests ended.
    fn load(&self, load: &Load, named: bool) -> Vec<Line<'static>> {
        let p = &load.progress;
        let mut lines = vec![self.far(load, named)];
        let rows = [
            ("ok", format!("{}/s", format_count(p.ok_per_s.round())), &load.ok_per_s),
            ("p50", ms(display::newest(load, &load.p50_ms, p.p50_ms)), &load.p50_ms),
            ("p99", ms(display::newest(load, &load.p99_ms, p.p99_ms)), &load.p99_ms),
        ];
        for (name, value, values) in rows {
            let lead = format!("  {} {}  ", left(name, 4), right(&value, 10));
            lines.push(self.with_spark(&lead, values));
        }
        let c = display::counts(load);
        let mut outcomes: Vec<String> = display::outcomes(&c)
            .into_iter()
            .map(|o| format!("{} {}", format_count(o.count as f64), o.name))
            .collect();
        outcomes.push(format!("{} connections", format_count(p.connections as f64)));
        outcomes.push(format!("so far p50 {}, p99 {}", ms(p.p50_ms), ms(p.p99_ms)));
        let mut text = String::from(" ");
        for (i, part) in outcomes.iter().enumerate() {
            let gap = if i == 0 { " " } else { " · " };
            if width_of(&text) + width_of(gap) + width_of(part) <= self.width {
                text.push_str(gap);
                text.push_str(part);
            }
        }
        let weight = if c.failed() + c.dropped > 0 { Weight::Doubtful } else { Weight::Plain };
        lines.push(self.line(weight, &text));
        lines
    }

    /// `main  batch 2/3  ██████░░░░ 12 s left`.
    fn far(&self, load: &Load, named: bool) -> Line<'static> {
        let mut lead = if named { format!("{}  ", harmless(&load.name)) } else { String::new() };
        if load.batch.1 > 1 {
            lead.push_str(&format!("batch {}/{}  ", load.batch.0 + 1, load.batch.1));
        }
        let lead = cut(&lead, self.width / 2);
        let (share, reported) = display::far(load);
        let Some(share) = share else { return Line::from(cut(&format!("{lead}{reported}"), self.width)) };
        let columns = self.width.saturating_sub(width_of(&lead) + width_of(&reported) + 2).min(60);
        let mut spans = vec![Span::raw(lead)];
        spans.extend(self.gauge(share.clamp(0.0, 1.0), columns, Weight::Plain));
        spans.push(Span::raw(format!("  {reported}")));
        Line::from(spans)
    }

    /// One row for each component: CPU against its limit, memory against its limit, and other signs of trouble.
    fn components(&self, components: &[Component]) -> Vec<Line<'static>> {
        let shown = display::shown(components);
        let names =
            shown.iter().map(|c| width_of(&harmless(&c.name))).max().unwrap_or(0).min(self.width / 4).max(7);
        let gauge = match self.width {
            0..60 => 0,
            60..100 => 6,
            100..160 => 14,
            _ => 24,
        };
        let of = |any: bool| if any { gauge } else { 0 };
        let cpu_gauge = of(shown.iter().any(|c| c.cpu_limit.is_some()));
        let memory_gauge = of(shown.iter().any(|c| c.memory_limit_bytes.is_some()));
        shown.iter().map(|c| self.component(c, names, cpu_gauge, memory_gauge)).collect()
    }

    fn component(&self, c: &Component, names: usize, cpu_gauge: usize, memory_gauge: usize) -> Line<'static> {
        let mut spans = vec![Span::raw(format!("  {}", left(&cut(&harmless(&c.name), names), names)))];
        spans.extend(self.used("CPU", &display::cpu(c), cpu_gauge));
        spans.extend(self.used("mem", &display::memory(c), memory_gauge));
        let used: usize = spans.iter().map(Span::width).sum();
        let mut room = self.width.saturating_sub(used);
        let stopped = display::stopped(c).map(|t| format!("  stopped {t}"));
        let net = display::net(c).map(|net| format!("  net {net}"));
        for (weight, text) in [(Weight::Doubtful, stopped), (Weight::Plain, net)] {
            if let Some(text) = text.filter(|t| width_of(t) <= room) {
                room -= width_of(&text);
                spans.push(self.span(weight, &text));
            }
        }
        Line::from(spans)
    }

    /// `  CPU ██████░░ 49.00 % of 50.00 %`.
    fn used(&self, label: &str, used: &display::Use, gauge: usize) -> Vec<Span<'static>> {
        let weight = display::weight_of(used.share);
        let mut spans = vec![Span::styled(format!("  {label} "), self.dim())];
        let now = used.text.as_deref().unwrap_or(figures::NOTHING);
        if gauge == 0 {
            spans.push(self.span(weight, &right(now, 8)));
            return spans;
        }
        match used.share {
            Some(share) => spans.extend(self.gauge(share, gauge, weight)),
            None => spans.push(Span::raw(" ".repeat(gauge))),
        }
        let limit = used.limit.as_ref().map_or(String::new(), |l| format!(" of {l}"));
        spans.push(self.span(weight, &left(&format!(" {}{limit}", right(now, 8)), 21)));
        spans
    }

    /// One row for each figure: its name, its current value, and its last seconds.
    fn figures(&self, state: &State) -> Vec<Line<'static>> {
        let name = |f: &Figure| harmless(&display::figure_name(state, f));
        let value = |f: &Figure| wording::figure(&f.facts, &f.value);
        let widest = |text: &dyn Fn(&Figure) -> String| {
            state.figures.iter().map(|f| width_of(&text(f))).max().unwrap_or(0)
        };
        let (names, values) = (widest(&name).min(self.width / 2), widest(&value).max(10));
        let line = |f: &Figure| {
            let name = left(&cut(&name(f), names), names);
            self.with_spark(&format!("  {name} {}  ", right(&value(f), values)), &f.values)
        };
        state.figures.iter().map(line).collect()
    }

    fn probes(&self, state: &State) -> Vec<Line<'static>> {
        let names =
            state.probes.iter().map(|p| width_of(&harmless(&p.name))).max().unwrap_or(0).min(self.width / 3);
        let line = |p: &crate::live::state::Probe| {
            let value =
                p.values.back().copied().flatten().map_or(figures::NOTHING.to_owned(), figures::number);
            let lead = format!("  {} {}  ", left(&cut(&harmless(&p.name), names), names), right(&value, 10));
            self.with_spark(&lead, &p.values)
        };
        state.probes.iter().map(line).collect()
    }

    /// One row for each agent: its name, its rate, failed requests if any agent has some, and its last seconds.
    fn agents(&self, state: &State) -> Vec<Line<'static>> {
        let shown = display::agents(state);
        let name = |a: &Agent| harmless(&display::agent_name(state, a));
        let failed = |a: &Agent| match a.now.counts.failed() {
            0 => String::new(),
            failed => format!("  {} failed", format_count(failed as f64)),
        };
        let widest =
            |text: &dyn Fn(&Agent) -> String| shown.iter().map(|a| width_of(&text(a))).max().unwrap_or(0);
        let (names, failures) = (widest(&name).min(self.width / 2), widest(&failed));
        let line = |a: &&Agent| {
            let name = left(&cut(&name(a), names), names);
            let lead =
                format!("  {name} {}{}", right(&display::agent_rate(a), 10), left(&failed(a), failures));
            if a.now.is_missing {
                return self.line(Weight::Bad, &lead);
            }
            self.with_spark(&format!("{lead}  "), &a.ok_per_s)
        };
        shown.iter().map(line).collect()
    }

    /// A line that is filled up with a sparkline: the last seconds that fit.
    fn with_spark(&self, lead: &str, values: &VecDeque<Option<f64>>) -> Line<'static> {
        let lead = cut(lead, self.width);
        let room = self.width.saturating_sub(width_of(&lead)).min(120);
        let shown: Vec<Option<f64>> =
            values.iter().skip(values.len().saturating_sub(room)).copied().collect();
        Line::from(vec![Span::raw(lead), Span::styled(sparkline(&shown), self.paint(Color::Cyan))])
    }

    fn gauge(&self, share: f64, columns: usize, weight: Weight) -> [Span<'static>; 2] {
        let filled = bar(share, columns);
        let rest = "░".repeat(columns.saturating_sub(width_of(&filled)));
        let style = match weight {
            Weight::Plain | Weight::Good => self.paint(Color::Cyan),
            Weight::Doubtful => self.paint(Color::Yellow),
            Weight::Bad => self.paint(Color::Red),
        };
        [Span::styled(filled, style), Span::styled(rest, self.dim())]
    }

    fn heading(&self, text: &str) -> Line<'static> {
        let rule = "─".repeat(self.width.saturating_sub(width_of(text) + 4));
        Line::from(Span::styled(cut(&format!("── {text} {rule}"), self.width), self.dim()))
    }

    fn faint(&self, text: &str) -> Line<'static> {
        Line::from(Span::styled(cut(&format!("  {text}"), self.width), self.dim()))
    }

    fn line(&self, weight: Weight, text: &str) -> Line<'static> {
        Line::from(self.span(weight, &cut(text, self.width)))
    }

    /// A text, wrapped to as many lines as it needs.
    fn wrapped(&self, weight: Weight, text: &str) -> Vec<Line<'static>> {
        let mut lines = String::new();
        hanging(&mut lines, "  ", text, self.width, str::to_owned);
        lines.lines().map(|line| self.line(weight, line)).collect()
    }

    fn span(&self, weight: Weight, text: &str) -> Span<'static> {
        let style = match weight {
            Weight::Plain => Style::new(),
            Weight::Good => self.paint(Color::Green),
            Weight::Doubtful => self.paint(Color::Yellow),
            Weight::Bad => self.paint(Color::Red).add_modifier(Modifier::BOLD),
        };
        Span::styled(text.to_owned(), style)
    }

    fn paint(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn dim(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

#[cfg(test)]
mod tests;
