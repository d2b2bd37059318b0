//! Points in a plane as a picture: curves and ranges in SVG that stretches with the page, points and words over it as
//! elements that do not. It is complete without JavaScript; `planes.js` makes the points navigable by keyboard.

use std::fmt::Write;

use super::escape;
use crate::document::Trends;
use crate::figures;
use crate::plane::RangedValue;
use crate::plane::{AxisScale, Curve, Group, Plane, PlaneMark, Spot};
use loadlab_record::documents::summary::Verdict;

/// Size of the drawing's own coordinates.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 280.0;
/// The distance between labels of points, as shares of the drawing.
const APART: (f64, f64) = (0.045, 0.07);

/// Maps values to positions in the drawing.
struct Frame {
    across: AxisScale,
    up: AxisScale,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        self.across.place(value) * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        (1.0 - self.up.place(value)) * HEIGHT
    }

    /// In per cent, for elements.
    fn left(&self, value: f64) -> f64 {
        self.across.place(value) * 100.0
    }

    fn top(&self, value: f64) -> f64 {
        (1.0 - self.up.place(value)) * 100.0
    }
}

/// Figures over an axis, side by side.
pub(super) fn trends(out: &mut String, trends: &Trends) {
    let _ = writeln!(out, "<h4>{}</h4>\n<div class=\"multiples\">", escape(&trends.title));
    trends.planes.iter().for_each(|p| plane(out, p));
    out.push_str("</div>\n");
    if let Some(note) = &trends.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
}

pub(super) fn plane(out: &mut String, plane: &Plane) {
    let (across, up) = plane.scales();
    let frame = Frame { across, up };
    let _ = writeln!(out, "<figure class=\"plane\">\n<figcaption>{}</figcaption>", escape(&plane.title));
    legend(out, plane);
    let _ = write!(
        out,
        "<div class=\"field\" data-label=\"{}\">\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escape(&format!("{}. Arrow keys move between points; {} has all values.", plane.title, plane.behind)),
        escape(&summary(plane))
    );
    let heights = frame.up.labels(&plane.up);
    for (at, _) in &heights {
        let _ = write!(out, "<path class=\"grid\" d=\"M0 {:.1}H{WIDTH}\"/>", frame.y(*at));
    }
    marks(out, plane, &frame);
    plane.curves.iter().for_each(|c| curve(out, c, &frame));
    plane.groups.iter().for_each(|g| ranges(out, g, &frame));
    out.push_str("</svg>\n");
    for (at, text) in &heights {
        let _ = write!(out, "<span class=\"y\" style=\"top:{:.2}%\">{}</span>", frame.top(*at), escape(text));
    }
    for (at, text) in frame.across.labels(&plane.across) {
        let _ =
            write!(out, "<span class=\"x\" style=\"left:{:.2}%\">{}</span>", frame.left(at), escape(&text));
    }
    describe(out, plane, &frame);
    for group in &plane.groups {
        group.spots.iter().for_each(|s| spot(out, plane, group, s, &frame));
    }
    labels(out, plane, &frame);
    out.push_str("\n</div>\n");
    axes(out, plane);
    if let Some(note) = &plane.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("</figure>\n");
}

/// The names of the axes. Over a numeric axis the titles contain them.
fn axes(out: &mut String, plane: &Plane) {
    if plane.across.is_numeric {
        if plane.up.logarithmic {
            out.push_str("<p class=\"axes\">logarithmic height</p>\n");
        }
        return;
    }
    let scales = match (plane.up.logarithmic, plane.across.logarithmic) {
        (true, true) => ", both logarithmic",
        (true, false) => ", the height logarithmic",
        (false, true) => ", left to right logarithmic",
        (false, false) => "",
    };
    let (up, across) = (escape(&plane.up.name), escape(&plane.across.name));
    let _ = writeln!(out, "<p class=\"axes\">{up} over {across}{scales}</p>");
}

/// The picture in a sentence: its contents, and where the values are.
fn summary(plane: &Plane) -> String {
    let spots = |g: &Group| figures::plural(g.spots.len() as u64, "point", "points");
    let groups: Vec<String> = plane.groups.iter().map(|g| format!("{} of {}", spots(g), g.name)).collect();
    let marks = plane.marks.iter().chain(&plane.heights).map(|m| format!(", {}", m.text)).collect::<String>();
    format!("{}: {}{marks}; {} has all values", plane.title, groups.join(", "), plane.behind)
}

fn legend(out: &mut String, plane: &Plane) {
    // The title already names it.
    if plane.groups.len() == 1 && plane.curves.is_empty() && plane.groups[0].name == plane.up.name {
        return;
    }
    out.push_str("<ul class=\"legend\">");
    for (i, group) in plane.groups.iter().enumerate() {
        let (colour, name) = (group.colour.name(), escape(&group.name));
        let _ = write!(out, "<li><span class=\"dot {} {colour}\"></span>{name}</li>", shape(i));
    }
    for curve in &plane.curves {
        let (colour, name) = (curve.colour.classes(), escape(&curve.name));
        let _ = write!(out, "<li><span class=\"swatch {colour}\"></span>{name}</li>");
    }
    out.push_str("</ul>\n");
}

/// Groups differ in shape as well as in colour.
fn shape(group: usize) -> &'static str {
    ["s0", "s1", "s2"][group % 3]
}

/// The interval a mark lies in as a band, and the mark.
fn marks(out: &mut String, plane: &Plane, frame: &Frame) {
    for mark in &plane.marks {
        if let Some((low, high)) = mark.between {
            let (from, to) = (frame.x(low), frame.x(high));
            let _ = write!(
                out,
                "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{HEIGHT}\"/>",
                to - from
            );
        }
        let _ = write!(out, "<path class=\"turn\" d=\"M{:.1} 0V{HEIGHT}\"/>", frame.x(mark.at));
    }
    for mark in &plane.heights {
        if let Some((low, high)) = mark.between {
            let (from, to) = (frame.y(high), frame.y(low));
            let _ = write!(
                out,
                "<rect class=\"band\" x=\"0\" y=\"{from:.1}\" width=\"{WIDTH}\" height=\"{:.1}\"/>",
                to - from
            );
        }
        let _ = write!(out, "<path class=\"turn\" d=\"M0 {:.1}H{WIDTH}\"/>", frame.y(mark.at));
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>, frame: &Frame) -> String {
    let mut d = String::new();
    for (i, (x, y)) in points.enumerate() {
        let _ = write!(d, "{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, frame.x(x), frame.y(y));
    }
    d
}

fn curve(out: &mut String, curve: &Curve, frame: &Frame) {
    let colour = curve.colour.classes();
    let end = |read: fn(RangedValue) -> f64| curve.line.iter().map(move |(x, v)| (*x, read(*v)));
    if curve.line.iter().any(|(_, v)| v.low < v.high) {
        let around = end(|v| v.high).chain(curve.line.iter().rev().map(|(x, v)| (*x, v.low)));
        let _ = write!(out, "<path class=\"around {colour}\" d=\"{}z\"/>", path(around, frame));
    }
    let _ = write!(out, "<path class=\"line {colour}\" d=\"{}\"/>", path(end(|v| v.value), frame));
}

/// The line that joins points, and the range of each.
fn ranges(out: &mut String, group: &Group, frame: &Frame) {
    let colour = group.colour.classes();
    if group.joined && group.spots.len() > 1 {
        let d = path(group.spots.iter().map(|s| (s.across.value, s.up.value)), frame);
        let _ = write!(out, "<path class=\"line joins {colour}\" d=\"{d}\"/>");
    }
    for Spot { across, up, .. } in &group.spots {
        if up.low < up.high {
            let (x, low, high) = (frame.x(across.value), frame.y(up.low), frame.y(up.high));
            let _ = write!(out, "<path class=\"line {colour}\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
        }
        if across.low < across.high {
            let (y, low, high) = (frame.y(up.value), frame.x(across.low), frame.x(across.high));
            let _ = write!(out, "<path class=\"line {colour}\" d=\"M{low:.1} {y:.1}H{high:.1}\"/>");
        }
    }
}

fn spot(out: &mut String, plane: &Plane, group: &Group, spot: &Spot, frame: &Frame) {
    let place = plane.groups.iter().position(|g| std::ptr::eq(g, group)).unwrap_or(0);
    let described = escape(&plane.described(group, spot));
    let open = if spot.is_open { " hollow" } else { "" };
    let ring = match spot.verdict {
        Verdict::Fail | Verdict::Invalid => " failed",
        Verdict::Pass | Verdict::Undecided | Verdict::None => "",
    };
    // Keys move between points, and a tab stop for each would be in the way.
    let (tag, link) = match &spot.section {
        Some(section) => ("a", format!(" href=\"#{}\" tabindex=\"-1\"", escape(section))),
        None => ("i", String::new()),
    };
    let _ = write!(
        out,
        "<{tag}{link} class=\"dot {} {}{open}{ring}\" data-group=\"{place}\" title=\"{described}\" style=\"left:{:.2}%;top:{:.2}%\"></{tag}>",
        shape(place),
        group.colour.name(),
        frame.left(spot.across.value),
        frame.top(spot.up.value)
    );
}

/// The labels of marks, at the top of the drawing, in rows if they are close together; on the side with more room.
fn describe(out: &mut String, plane: &Plane, frame: &Frame) {
    let word = |out: &mut String, class: &str, place: String, mark: &PlaneMark| {
        let _ = write!(out, "<span class=\"{class}\" style=\"{place}\">{}</span>", escape(&mark.text));
    };
    for (row, mark) in plane.marks.iter().enumerate() {
        let left = frame.left(mark.at);
        let (class, place) = match left > 60.0 {
            true => ("word before", format!("right:{:.2}%;top:{row}.1em", 100.0 - left)),
            false => ("word", format!("left:{left:.2}%;top:{row}.1em")),
        };
        word(out, class, place, mark);
    }
    for mark in &plane.heights {
        word(out, "word above", format!("left:0;top:{:.2}%", frame.top(mark.at)), mark);
    }
}

/// Words beside points, unless another is in the way.
fn labels(out: &mut String, plane: &Plane, frame: &Frame) {
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for spot in plane.groups.iter().flat_map(|g| &g.spots) {
        let Some(label) = &spot.label else { continue };
        let (x, y) = (frame.across.place(spot.across.value), frame.up.place(spot.up.value));
        if taken.iter().any(|(a, b)| (a - x).abs() < APART.0 && (b - y).abs() < APART.1) {
            continue;
        }
        taken.push((x, y));
        let _ = write!(
            out,
            "<span class=\"near\" style=\"left:{:.2}%;top:{:.2}%\">{}</span>",
            frame.left(spot.across.value),
            frame.top(spot.up.value),
            escape(label)
        );
    }
}
