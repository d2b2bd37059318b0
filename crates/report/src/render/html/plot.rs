//! Charts over time: a still picture in SVG for readers without JavaScript and for paper, and the data from
//! which the script draws the living one over it.

use std::fmt::Write;

use loadlab_analysis::metric::Value;
use serde_json::{Map, Value as Json, json};

use super::escape;
use crate::document::{Block, Chart, Document, Line};
use crate::figures;
use crate::render::{line_figures, thinned};
use crate::terminal::harmless;

/// Size of the drawing's own coordinates; the page stretches them to its width.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;
/// Moments of the still picture.
const MOMENTS: usize = 250;
/// Colours of the palette.
const COLOURS: usize = 8;

/// All charts of a document.
fn charts(document: &Document) -> impl Iterator<Item = &Chart> {
    document.sections.iter().flat_map(|s| &s.blocks).filter_map(|b| match b {
        Block::Chart(chart) => Some(chart),
        _ => None,
    })
}

/// First and last moment over all charts of a group, so that they stand below one another in step.
fn extent(document: &Document, group: &str) -> (f64, f64) {
    let ends = charts(document)
        .filter(|c| c.group == group)
        .flat_map(|c| c.at_s.first().into_iter().chain(c.at_s.last()));
    ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), at| (from.min(*at), to.max(*at)))
}

/// A chart: title, legend, still picture, and a place for the living one.
pub(super) fn chart(out: &mut String, document: &Document, chart: &Chart) {
    let axes = Axes::of(document, chart);
    let _ = write!(
        out,
        "<figure class=\"chart\" data-chart=\"{}\">\n<figcaption>{}</figcaption>\n<ul class=\"legend\">",
        chart.id,
        escape(&chart.title)
    );
    for line in &chart.lines {
        legend(out, chart, line);
    }
    out.push_str("</ul>\n<div class=\"still\">\n");
    let value = |v: f64| figures::value(Value::Known(v), chart.unit);
    let _ = writeln!(
        out,
        "<span class=\"y top\">{}</span><span class=\"y bottom\">{}</span>",
        escape(&value(axes.high)),
        escape(&value(axes.low))
    );
    still(out, chart, &axes);
    let _ = writeln!(
        out,
        "<span class=\"x from\">{}</span><span class=\"x to\">{}</span>\n</div>\n<div class=\"live\"></div>",
        escape(&figures::seconds(axes.from_s)),
        escape(&figures::seconds(axes.to_s))
    );
    if let Some(note) = &chart.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("</figure>\n");
}

fn legend(out: &mut String, chart: &Chart, line: &Line) {
    let class = if line.limit { "swatch limit" } else { "swatch" };
    let _ =
        write!(out, "<li><span class=\"{class} c{}\"></span>{}", line.colour % COLOURS, escape(&line.name));
    if let (Some(f), false) = (line_figures(line), line.limit) {
        let value = |v: f64| figures::value(Value::Known(v), chart.unit);
        let told =
            if f.min == f.max { value(f.max) } else { format!("{} … {}", value(f.min), value(f.max)) };
        let _ = write!(out, " <output>{}</output>", escape(&told));
    }
    out.push_str("</li>");
}

/// What the picture's edges stand for.
struct Axes {
    from_s: f64,
    to_s: f64,
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axes {
    fn of(document: &Document, chart: &Chart) -> Axes {
        let (from_s, to_s) = extent(document, &chart.group);
        let known = || chart.lines.iter().flat_map(|l| &l.values).flatten().copied();
        let high = known().fold(0.0, f64::max);
        let least = known().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let low = if chart.logarithmic && least.is_finite() { least } else { 0.0 };
        Axes { from_s, to_s, low, high, logarithmic: chart.logarithmic }
    }

    fn x(&self, at_s: f64) -> f64 {
        (at_s - self.from_s) / (self.to_s - self.from_s).max(f64::MIN_POSITIVE) * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.logarithmic && self.low > 0.0 && self.high > self.low {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high.max(f64::MIN_POSITIVE),
        };
        HEIGHT - share * (HEIGHT - 4.0) - 2.0
    }
}

fn still(out: &mut String, chart: &Chart, axes: &Axes) {
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escape(&chart.title)
    );
    for band in &chart.bands {
        let (from, to) = (axes.x(band.from_s).clamp(0.0, WIDTH), axes.x(band.to_s).clamp(0.0, WIDTH));
        let _ = write!(
            out,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{HEIGHT}\"><title>{}</title></rect>",
            (to - from).max(0.0),
            escape(&band.text)
        );
    }
    for quarter in 1..4 {
        let y = HEIGHT / 4.0 * f64::from(quarter);
        let _ = write!(out, "<path class=\"grid\" d=\"M0 {y}H{WIDTH}\"/>");
    }
    let step = chart.at_s.len().div_ceil(MOMENTS).max(1);
    let times: Vec<f64> = chart.at_s.iter().step_by(step).copied().collect();
    for line in &chart.lines {
        let class = if line.limit { "line limit" } else { "line" };
        let d = path(&times, &thinned(&line.values, MOMENTS), axes);
        if !d.is_empty() {
            let _ = write!(out, "<path class=\"{class} c{}\" d=\"{d}\"/>", line.colour % COLOURS);
        }
    }
    let turns = chart.turns.iter().map(|m| ("turn", m));
    for (class, mark) in turns.chain(chart.marks.iter().map(|m| ("mark", m))) {
        let x = axes.x(mark.at_s).clamp(0.0, WIDTH);
        let _ = write!(
            out,
            "<path class=\"{class}\" d=\"M{x:.1} 0V{HEIGHT}\"><title>{}</title></path>",
            escape(&mark.text)
        );
    }
    out.push_str("</svg>\n");
}

/// A path through the values, interrupted where nothing was read.
fn path(times: &[f64], values: &[Option<f64>], axes: &Axes) -> String {
    let mut d = String::new();
    let mut drawing = false;
    for (at_s, value) in times.iter().zip(values) {
        match value {
            Some(v) => {
                let command = if drawing { 'L' } else { 'M' };
                let _ = write!(d, "{command}{:.1} {:.1}", axes.x(*at_s), axes.y(*v));
                // A lone moment is a point: a line of no length with round ends.
                if !drawing {
                    d.push_str("h0");
                }
                drawing = true;
            }
            None => drawing = false,
        }
    }
    d
}

/// The data of all charts as JSON that no text in it can end or break out of.
pub(super) fn data(document: &Document) -> String {
    let mut charts_of = Map::new();
    for chart in charts(document) {
        let (from_s, to_s) = extent(document, &chart.group);
        let lines: Vec<Json> = chart
            .lines
            .iter()
            .map(|l| json!({ "name": harmless(&l.name), "colour": l.colour % COLOURS, "limit": l.limit, "values": rounded(&l.values) }))
            .collect();
        charts_of.insert(
            chart.id.clone(),
            json!({
                "group": chart.group,
                "unit": chart.unit.name(),
                "log": chart.logarithmic,
                "from": round(from_s),
                "to": round(to_s),
                "at": chart.at_s.iter().map(|v| round(*v)).collect::<Vec<_>>(),
                "lines": lines,
                "marks": chart.marks.iter().map(|m| json!([round(m.at_s), harmless(&m.text)])).collect::<Vec<_>>(),
                "turns": chart.turns.iter().map(|m| json!([round(m.at_s), harmless(&m.text)])).collect::<Vec<_>>(),
                "bands": chart.bands.iter().map(|b| json!([round(b.from_s), round(b.to_s), harmless(&b.text)])).collect::<Vec<_>>(),
            }),
        );
    }
    // In JSON these characters stand only inside of strings, where an escape means the same.
    let mut out = String::new();
    for c in Json::Object(charts_of).to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

fn rounded(values: &[Option<f64>]) -> Vec<Json> {
    values.iter().map(|v| v.map_or(Json::Null, |v| round(figures::round(v, 4)))).collect()
}

/// To a thousandth, whole numbers without a point.
fn round(value: f64) -> Json {
    let value = if value.abs() >= 1.0 { (value * 1e3).round() / 1e3 } else { value };
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}
