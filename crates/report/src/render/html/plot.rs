//! Charts: a still picture in SVG for readers without JavaScript and for paper, and the data from which the script
//! draws the interactive one over it.

use std::collections::BTreeMap;
use std::fmt::Write;

use loadlab_analysis::cases::metric::Value;
use serde_json::{Map, Value as Json, json};

use super::{escape, pack};
use crate::document::{Along, Block, Chart, Document, Heat, Line, Mark, Multiples};
use crate::figures;
use crate::render::{line_figures, thinned};
use crate::terminal::harmless;

/// Size of the drawing's own coordinates; the page stretches them to its width.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;
/// Moments of a still picture; fewer if a report has many lines.
const MOMENTS: usize = 250;
const FEW_MOMENTS: usize = 48;
/// This many lines count as many.
const MANY_LINES: usize = 150;
/// Shades of a heat map's still picture.
const SHADES: usize = 5;
/// A group of charts with more values than this is packed.
const PACK_FROM_VALUES: usize = 4000;

/// What the charts of a document need to know about one another.
pub(super) struct Charts<'a> {
    all: Vec<&'a Chart>,
    extents: BTreeMap<&'a str, (f64, f64)>,
    moments: usize,
}

impl<'a> Charts<'a> {
    /// Collects the charts of a document.
    pub(super) fn of(document: &'a Document) -> Charts<'a> {
        let charts = document.sections.iter().flat_map(|s| &s.blocks).flat_map(|b| match b {
            Block::Chart(chart) => std::slice::from_ref(chart),
            Block::Multiples(part) => &part.charts,
            _ => &[],
        });
        let all: Vec<&Chart> = charts.collect();
        // First and last position over all charts of a group, so that they are aligned below one another.
        let mut extents = BTreeMap::new();
        for chart in &all {
            let (from, to) =
                extents.entry(chart.group.as_str()).or_insert((f64::INFINITY, f64::NEG_INFINITY));
            let span = chart.span.or_else(|| Some((*chart.at.first()?, *chart.at.last()?)));
            if let Some((first, last)) = span {
                (*from, *to) = (from.min(first), to.max(last));
            }
        }
        let many = all.iter().map(|c| c.lines.len()).sum::<usize>() > MANY_LINES;
        Charts { all, extents, moments: if many { FEW_MOMENTS } else { MOMENTS } }
    }

    fn extent(&self, chart: &Chart) -> (f64, f64) {
        self.extents.get(chart.group.as_str()).copied().unwrap_or((0.0, 1.0))
    }

    /// The charts of a part side by side, and the sentences for what is not worth one.
    pub(super) fn multiples(&self, out: &mut String, part: &Multiples) {
        let _ = writeln!(out, "<h4>{}</h4>", escape(&part.title));
        if !part.charts.is_empty() {
            out.push_str("<div class=\"multiples\">\n");
            part.charts.iter().for_each(|chart| self.chart(out, chart));
            out.push_str("</div>\n");
        }
        if !part.quiet.is_empty() {
            let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(&part.quiet.join(" ")));
        }
    }

    /// A chart: title, legend, still picture, and a place for the interactive one.
    pub(super) fn chart(&self, out: &mut String, chart: &Chart) {
        let (from, to) = self.extent(chart);
        let axes = Axes::of(from, to, chart);
        let _ = write!(
            out,
            "<figure class=\"chart\" data-chart=\"{}\" data-group=\"{}\">\n<figcaption>{}</figcaption>\n<ul class=\"legend\">",
            chart.id,
            chart.group,
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
        self.still(out, chart, &axes);
        for (at, text) in ticks(chart, &axes) {
            let _ = write!(
                out,
                "<span class=\"x\" style=\"left:{:.1}%\">{}</span>",
                axes.x(at) / WIDTH * 100.0,
                escape(&text)
            );
        }
        out.push_str("</div>\n<div class=\"live\"></div>\n");
        if let Some(note) = &chart.note {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
        }
        out.push_str("</figure>\n");
    }

    fn still(&self, out: &mut String, chart: &Chart, axes: &Axes) {
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
        if let Some(heat) = &chart.heat {
            still_heat(out, heat, chart, axes);
        }
        let step = chart.at.len().div_ceil(self.moments).max(1);
        let places: Vec<f64> = chart.at.iter().step_by(step).copied().collect();
        for line in &chart.lines {
            let class = if line.limit { "line limit" } else { "line" };
            let d = path(&places, &thinned(&line.values, self.moments), axes);
            if !d.is_empty() {
                let _ = write!(out, "<path class=\"{class} {}\" d=\"{d}\"/>", line.colour.classes());
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

    /// The data of all charts as JSON, by group, in a form that no text in it can end or break out of. A large group
    /// is a string packed by [`pack`], which the page unpacks when it comes into view.
    pub(super) fn data(&self) -> String {
        let mut groups: BTreeMap<&str, Vec<&Chart>> = BTreeMap::new();
        for chart in &self.all {
            groups.entry(&chart.group).or_default().push(chart);
        }
        let group = |(group, charts): (&str, Vec<&Chart>)| {
            let values = || charts.iter().flat_map(|c| &c.lines).map(|l| l.values.as_slice());
            let cells: usize =
                charts.iter().flat_map(|c| &c.heat).flat_map(|h| &h.columns).map(Vec::len).sum();
            let json = |packed: bool| {
                let of = |c: &&Chart| (c.id.clone(), self.data_of(c, packed));
                Json::Object(charts.iter().map(of).collect::<Map<String, Json>>()).to_string()
            };
            let large = values().map(<[_]>::len).sum::<usize>() + cells > PACK_FROM_VALUES;
            let packed = if large { pack::pack(&json(true), values()) } else { None };
            let name = Json::from(group);
            match packed {
                Some(packed) => format!("{name}:\"{packed}\""),
                None => format!("{name}:{}", unbreakable(&json(false))),
            }
        };
        format!("{{{}}}", groups.into_iter().map(group).collect::<Vec<_>>().join(","))
    }

    fn data_of(&self, chart: &Chart, packed: bool) -> Json {
        let (from, to) = self.extent(chart);
        let moments = |marks: &[Mark]| -> Vec<Json> {
            marks.iter().map(|m| json!([round(m.at_s), harmless(&m.text)])).collect()
        };
        let line = |l: &Line| {
            let of: Vec<String> = l.of.iter().map(|name| harmless(name)).collect();
            let values = if packed { json!(l.values.len()) } else { json!(rounded(&l.values)) };
            json!({ "name": harmless(&l.name), "colour": l.colour.name(), "dash": l.colour.dash(), "limit": l.limit, "of": of, "values": values })
        };
        let mut data = json!({
            "title": harmless(&chart.title),
            "unit": chart.unit.name(),
            "log": chart.logarithmic,
            "from": round(from),
            "to": round(to),
            "at": places(&chart.at),
            "lines": chart.lines.iter().map(line).collect::<Vec<_>>(),
            "marks": moments(&chart.marks),
            "turns": moments(&chart.turns),
            "bands": chart.bands.iter().map(|b| json!([round(b.from_s), round(b.to_s), harmless(&b.text)])).collect::<Vec<_>>(),
        });
        if chart.along == Along::Nines {
            data["nines"] = json!(true);
        }
        if let Some(heat) = &chart.heat {
            data["heat"] = heat_data(heat);
        }
        data
    }
}

/// Columns from their first non-empty row, that row's number before the counts.
fn heat_data(heat: &Heat) -> Json {
    let column = |counts: &Vec<u64>| match counts.iter().position(|c| *c > 0) {
        None => json!([]),
        Some(first) => {
            let last = counts.iter().rposition(|c| *c > 0).unwrap_or(first);
            json!(
                std::iter::once(first as u64).chain(counts[first..=last].iter().copied()).collect::<Vec<_>>()
            )
        }
    };
    let edges: Vec<Json> = heat.edges.iter().map(|v| round(figures::round(*v, 6))).collect();
    json!({ "edges": edges, "columns": heat.columns.iter().map(column).collect::<Vec<_>>() })
}

/// In JSON these characters occur only inside strings, where an escape means the same.
pub(super) fn unbreakable(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

fn legend(out: &mut String, chart: &Chart, line: &Line) {
    let class = if line.limit { "swatch limit" } else { "swatch" };
    let _ =
        write!(out, "<li><span class=\"{class} {}\"></span>{}", line.colour.classes(), escape(&line.name));
    if let (Some(f), false) = (line_figures(line), line.limit) {
        let most = figures::value(Value::Known(f.max), chart.unit);
        let described = figures::range(Some(f.min), Value::Known(f.max), chart.unit).unwrap_or(most);
        let _ = write!(out, " <output>{}</output>", escape(&described));
    }
    out.push_str("</li>");
}

/// Labels below a still picture: round moments, or the nines.
fn ticks(chart: &Chart, axes: &Axes) -> Vec<(f64, String)> {
    match chart.along {
        Along::Seconds => {
            round_moments(axes.from, axes.to).into_iter().map(|at| (at, figures::seconds(at))).collect()
        }
        Along::Nines => {
            let mut ticks = vec![(0.0, "fastest".to_owned()), (2f64.log10(), "p50".to_owned())];
            ticks.extend((1..=axes.to.floor() as usize).map(|nines| (nines as f64, nines_label(nines))));
            ticks
        }
    }
}

/// Steps between two labels of an axis in seconds.
const STEPS_S: [f64; 20] = [
    0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
    14400.0, 43200.0, 86400.0,
];
/// Labels that have room below a small chart.
const MOST_LABELS: f64 = 4.2;

/// A few round moments between two.
fn round_moments(from: f64, to: f64) -> Vec<f64> {
    let fits = |step: &f64| (to - from) / step <= MOST_LABELS;
    let step = STEPS_S.into_iter().find(fits).unwrap_or((to - from) / MOST_LABELS);
    if !(step.is_finite() && step > 0.0) {
        return vec![from];
    }
    let first = (from / step).ceil() * step;
    (0..=MOST_LABELS as usize).map(|i| first + i as f64 * step).filter(|at| *at <= to).collect()
}

/// `p90`, `p99`, `p99.9`.
fn nines_label(nines: usize) -> String {
    match nines {
        1 => "p90".to_owned(),
        2 => "p99".to_owned(),
        more => format!("p99.{}", "9".repeat(more - 2)),
    }
}

/// The values at the picture's edges.
struct Axes {
    from: f64,
    to: f64,
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axes {
    fn of(from: f64, to: f64, chart: &Chart) -> Axes {
        let edges = || chart.heat.iter().flat_map(|h| [h.edges.first(), h.edges.last()]).flatten().copied();
        let known = || chart.lines.iter().flat_map(|l| &l.values).flatten().copied().chain(edges());
        let high = known().fold(0.0, f64::max);
        let least = known().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let low = match chart.logarithmic && least.is_finite() {
            true => least,
            false => known().fold(0.0, f64::min),
        };
        Axes { from, to, low, high, logarithmic: chart.logarithmic }
    }

    fn x(&self, at: f64) -> f64 {
        (at - self.from) / (self.to - self.from).max(f64::MIN_POSITIVE) * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.logarithmic && self.low > 0.0 && self.high > self.low {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => {
                let low = self.low.min(0.0);
                (value - low) / (self.high - low).max(f64::MIN_POSITIVE)
            }
        };
        HEIGHT - share * (HEIGHT - 4.0) - 2.0
    }
}

/// A heat map as one path per shade. Neighbouring columns are added up until there are few enough.
fn still_heat(out: &mut String, heat: &Heat, chart: &Chart, axes: &Axes) {
    let across = heat.columns.len().div_ceil(FEW_MOMENTS).max(1);
    let (Some(first), Some(last)) = (chart.at.first(), chart.at.last()) else { return };
    let width = if chart.at.len() > 1 { (last - first) / (chart.at.len() - 1) as f64 } else { 1.0 };
    let sums: Vec<Vec<u64>> = heat
        .columns
        .chunks(across)
        .map(|group| (0..heat.edges.len() - 1).map(|row| group.iter().map(|c| c[row]).sum()).collect())
        .collect();
    let most = sums.iter().flatten().copied().max().unwrap_or(0);
    let mut paths = [const { String::new() }; SHADES];
    let shade_of = |column: usize, row: usize| match sums.get(column).map(|c| c[row]) {
        None | Some(0) => 0,
        Some(count) => ((Heat::strength(count, most) * SHADES as f64).ceil() as usize).clamp(1, SHADES),
    };
    let edge =
        |column: usize| axes.x(first - width / 2.0 + (column * across) as f64 * width).clamp(0.0, WIDTH);
    for row in 0..heat.edges.len() - 1 {
        let (top, bottom) = (axes.y(heat.edges[row + 1]), axes.y(heat.edges[row]));
        let mut from = 0;
        while from < sums.len() {
            let shade = shade_of(from, row);
            let to = (from..sums.len()).find(|c| shade_of(*c, row) != shade).unwrap_or(sums.len());
            if shade > 0 {
                let (left, right) = (edge(from), edge(to));
                let (wide, high) = (right - left, bottom - top);
                let _ = write!(paths[shade - 1], "M{left:.0} {top:.0}h{wide:.0}v{high:.0}h-{wide:.0}z");
            }
            from = to;
        }
    }
    for (shade, d) in paths.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let _ = write!(out, "<path class=\"heat h{}\" d=\"{d}\"/>", shade + 1);
    }
}

/// A path through the values, interrupted where nothing was read; each point relative to the one before.
fn path(places: &[f64], values: &[Option<f64>], axes: &Axes) -> String {
    let mut d = String::new();
    let mut before: Option<(i64, i64)> = None;
    for (at, value) in places.iter().zip(values) {
        let Some(value) = value else {
            before = None;
            continue;
        };
        let (x, y) = (axes.x(*at).round() as i64, axes.y(*value).round() as i64);
        match before {
            Some((from_x, from_y)) => {
                let space = if y < from_y { "" } else { " " };
                let _ = write!(d, "l{}{space}{}", x - from_x, y - from_y);
            }
            // A single moment is a point: a line of zero length with round ends.
            None => {
                let _ = write!(d, "M{x} {y}h0");
            }
        }
        before = Some((x, y));
    }
    d
}

/// Evenly spaced positions as the first, their distance and their number; others unchanged.
fn places(at: &[f64]) -> Json {
    if let [first, second, ..] = at {
        let step = second - first;
        let even = at.iter().enumerate().all(|(i, v)| (first + step * i as f64 - v).abs() < step * 1e-6);
        if even && step > 0.0 {
            return json!({ "first": first, "step": step, "count": at.len() });
        }
    }
    json!(at.iter().map(|v| round(*v)).collect::<Vec<_>>())
}

fn rounded(values: &[Option<f64>]) -> Vec<Json> {
    values.iter().map(|v| v.map_or(Json::Null, |v| round(figures::round(v, 4)))).collect()
}

/// Rounds to a thousandth, whole numbers without a point.
fn round(value: f64) -> Json {
    let value = if value.abs() >= 1.0 { (value * 1e3).round() / 1e3 } else { value };
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::cases::metric::Unit;

    use super::*;
    use crate::colour::Colour;

    #[test]
    fn what_is_negative_is_drawn_below_zero() {
        let heights = |values: [f64; 3]| {
            let line = Line {
                name: String::new(),
                values: values.map(Some).to_vec(),
                colour: Colour::Nth(0),
                limit: false,
                of: Vec::new(),
            };
            let chart = Chart {
                id: String::new(),
                title: String::new(),
                group: String::new(),
                along: Along::Seconds,
                unit: Unit::Number,
                logarithmic: false,
                span: None,
                at: vec![0.0, 1.0, 2.0],
                lines: vec![line],
                heat: None,
                marks: Vec::new(),
                turns: Vec::new(),
                bands: Vec::new(),
                note: None,
            };
            let axes = Axes::of(0.0, 2.0, &chart);
            values.map(|v| axes.y(v))
        };
        assert_eq!(heights([0.0, 5.0, 10.0]), [198.0, 100.0, 2.0]);
        assert_eq!(heights([-10.0, 0.0, 10.0]), [198.0, 100.0, 2.0]);
        assert_eq!(heights([-10.0, -5.0, 0.0]), [198.0, 100.0, 2.0]);
    }

    #[test]
    fn moments_are_round_and_few() {
        assert_eq!(round_moments(0.0, 9.55), [0.0, 5.0]);
        assert_eq!(round_moments(0.0, 3.05), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(round_moments(0.0, 3654.0), [0.0, 900.0, 1800.0, 2700.0, 3600.0]);
        assert_eq!(round_moments(7.0, 7.0), [7.0]);
        assert!(round_moments(0.0, 1e9).len() <= 5);
    }
}
