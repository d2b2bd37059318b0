//! Pieces of a section as HTML.

use std::fmt::Write;

use loadlab_analysis::cases::metric::Value;

use super::plot::Charts;
use super::{class_of, escape};
use crate::colour::Colour;
use crate::document::{Block, Cell, Compare, Fact, Point, Ratios, Remark, Table, Weight};
use crate::figures;
use crate::markup::escaped;
use crate::render::text::open_scale;
use crate::terminal::harmless;

pub(super) fn block(out: &mut String, charts: &Charts<'_>, block: &Block) {
    match block {
        Block::Heading(text) => {
            let _ = writeln!(out, "<h3>{}</h3>", escape(text));
        }
        Block::Paragraph(text) => {
            let _ = writeln!(out, "<p>{}</p>", escape(text));
        }
        Block::Facts(facts) => self::facts(out, facts),
        Block::Remarks(remarks) => self::remarks(out, remarks),
        Block::Table(table) => self::table(out, table),
        Block::Cases(table) => super::cases::cases(out, table),
        Block::Grids(grids) => super::cases::grids(out, grids),
        Block::System(drawings) => super::system::drawings(out, drawings),
        Block::Compare(compare) => self::compare(out, compare),
        Block::Ratios(ratios) => self::ratios(out, ratios),
        Block::Plane(plane) => super::plane::plane(out, plane),
        Block::Chart(chart) => charts.chart(out, chart),
        Block::Multiples(part) => charts.multiples(out, part),
        Block::Trends(trends) => super::plane::trends(out, trends),
        Block::Flame(flame) => super::flame::flame(out, flame, |out| table(out, &flame.hottest)),
        Block::Folded { title, text } => {
            let lines: Vec<String> = text.lines().map(harmless).collect();
            let _ = writeln!(
                out,
                "<details>\n<summary>{}</summary>\n<pre tabindex=\"0\">{}</pre>\n</details>",
                escape(title),
                escaped(&lines.join("\n"))
            );
        }
    }
}

fn facts(out: &mut String, facts: &[Fact]) {
    out.push_str("<dl class=\"facts\">\n");
    for fact in facts {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(&fact.name), escape(&fact.text));
    }
    out.push_str("</dl>\n");
}

fn remarks(out: &mut String, remarks: &[Remark]) {
    out.push_str("<ul class=\"remarks\">\n");
    for remark in remarks {
        let _ = write!(out, "<li class=\"{}\">", class_of(remark.weight));
        if !remark.label.is_empty() {
            let _ = write!(out, "<strong>{}</strong> ", escape(&remark.label));
        }
        let _ = write!(out, "<span>{}</span>", escape(&remark.text));
        if let Some(hint) = &remark.hint {
            let _ = write!(out, "<small>{}</small>", escape(hint));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

/// A table in a separate box that scrolls sideways, by keyboard too: the page never does.
fn table(out: &mut String, table: &Table) {
    let caption = match table.caption.as_str() {
        "" => String::new(),
        text => format!("<caption>{}</caption>\n", escape(text)),
    };
    let label = if table.caption.is_empty() { "table" } else { &table.caption };
    let _ = writeln!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{}\" tabindex=\"0\">\n<table>\n{caption}<thead><tr>",
        escape(label)
    );
    for (i, head) in table.head.iter().enumerate() {
        let class = if i == 0 || table.text_columns.contains(&i) { "" } else { " class=\"n\"" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(head));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            self::cell(out, cell, i, table.text_columns.contains(&i));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if let Some(note) = &table.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
}

fn cell(out: &mut String, cell: &Cell, column: usize, is_text: bool) {
    let (tag, scope) = if column == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
    let mut classes: Vec<&str> = Vec::new();
    if column > 0 && !is_text {
        classes.push("n");
    }
    if cell.weight != Weight::Plain {
        classes.push(class_of(cell.weight));
    }
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    let _ = write!(out, "<{tag}{scope}{class}>{}", escape(&cell.text));
    if let Some(detail) = &cell.detail {
        let _ = write!(out, "<small>{}</small>", escape(detail));
    }
    let _ = write!(out, "</{tag}>");
}

/// Figures of every case: a bar if there is one figure, points with their ranges if there are several.
fn compare(out: &mut String, compare: &Compare) {
    let _ = write!(out, "<figure class=\"compare\">\n<figcaption>{}", escape(&compare.title));
    if compare.figures.len() > 1 {
        out.push_str("<ul class=\"legend\">");
        for (i, name) in compare.figures.iter().enumerate() {
            let _ = write!(
                out,
                "<li><span class=\"dot {}\"></span>{}</li>",
                colour_of(i, compare.figures.len()),
                escape(name)
            );
        }
        out.push_str("</ul>");
    }
    out.push_str("</figcaption>\n<div class=\"rows\">\n");
    let ends = |p: &Point| {
        let most = match p.max {
            Value::Known(max) | Value::Over(max) => Some((max, false)),
            Value::Between(_) | Value::Nothing => None,
        };
        [p.drawn(), p.min.map(|min| (min, false)), most]
    };
    let all: Vec<_> = compare.rows.iter().flat_map(|(_, points)| points).flat_map(ends).collect();
    let scale = open_scale(all.iter().copied(), compare.logarithmic);
    let at = |value: f64| scale.share(value) * 100.0;
    for (name, points) in &compare.rows {
        let described: Vec<String> = points.iter().map(|p| figures::value(p.median, compare.unit)).collect();
        let _ = write!(
            out,
            "<div class=\"row\"><span class=\"name\">{}</span><span class=\"track\">",
            escape(name)
        );
        for (i, point) in points.iter().enumerate() {
            self::point(out, i, compare.figures.len(), point, &at);
        }
        let _ =
            writeln!(out, "</span><span class=\"readout\">{}</span></div>", escape(&described.join(" · ")));
    }
    out.push_str("</div>\n");
    let open =
        compare.rows.iter().flat_map(|(_, points)| points).any(|p| matches!(p.drawn(), Some((_, true))));
    let notes = [
        (compare.logarithmic, "Logarithmic scale."),
        (open, "Hatched: at least this (“>”); the true value may be higher."),
    ];
    let notes: Vec<&str> = notes.iter().filter(|(wanted, _)| *wanted).map(|(_, text)| *text).collect();
    if !notes.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", notes.join(" "));
    }
    out.push_str("</figure>\n");
}

/// Several figures are percentiles of one thing, in shades of one colour.
fn colour_of(i: usize, figures: usize) -> String {
    if figures == 1 { Colour::Nth(0).name() } else { Colour::Percentile { rank: i, load: 0 }.name() }
}

/// A figure of a case, the `i`-th of `figures`: a bar or a point, open from there on if it is only a lower bound, and
/// its range.
fn point(out: &mut String, i: usize, figures: usize, point: &Point, at: &dyn Fn(f64) -> f64) {
    let (mark, place) = if figures == 1 { ("bar", "width") } else { ("dot", "left") };
    let colour = colour_of(i, figures);
    if let Some((median, is_open)) = point.drawn() {
        let median = at(median);
        let _ = write!(out, "<i class=\"{mark} {colour}\" style=\"{place}:{median:.2}%\"></i>");
        if is_open {
            let _ = write!(out, "<i class=\"beyond {colour}\" style=\"left:{median:.2}%\"></i>");
        }
    }
    let most = match point.max {
        Value::Known(max) | Value::Over(max) => Some(max),
        Value::Between(_) | Value::Nothing => None,
    };
    if let (Some(min), Some(max)) = (point.min, most)
        && max > min
    {
        let (from, to) = (at(min), at(max));
        let _ =
            write!(out, "<i class=\"range {colour}\" style=\"left:{from:.2}%;width:{:.2}%\"></i>", to - from);
    }
}

/// Each ratio as a point in its interval, 1 in the middle of what counts as the same.
fn ratios(out: &mut String, ratios: &Ratios) {
    let _ = writeln!(
        out,
        "<figure class=\"compare ratios\">\n<figcaption>{}</figcaption>\n<div class=\"rows\">",
        escape(&ratios.title)
    );
    let at = |ratio: f64| ratios.place(ratio) * 100.0;
    let (from, to) = ratios.same();
    let (from, to) = (at(from), at(to));
    for row in &ratios.rows {
        let _ = write!(
            out,
            "<div class=\"row\"><span class=\"name\">{}</span><span class=\"track\"><i class=\"same\" \
             style=\"left:{from:.2}%;width:{:.2}%\"></i>",
            escape(&row.name),
            to - from
        );
        if let Some(v) = row.value {
            let (low, high) = (at(v.low), at(v.high));
            let class = class_of(row.weight);
            let (left, right) = (at(v.value.min(1.0)), at(v.value.max(1.0)));
            let _ = write!(
                out,
                "<i class=\"bar {class}\" style=\"left:{left:.2}%;width:{:.2}%\"></i>",
                right - left
            );
            let _ = write!(
                out,
                "<i class=\"range {class}\" style=\"left:{low:.2}%;width:{:.2}%\"></i><i class=\"dot {class}\" \
                 style=\"left:{:.2}%\"></i>",
                high - low,
                at(v.value)
            );
        }
        let _ = writeln!(
            out,
            "</span><span class=\"readout\"><b class=\"{}\">{}</b> · {}</span></div>",
            class_of(row.weight),
            escape(&row.call),
            escape(&row.described())
        );
    }
    out.push_str("<div class=\"scale\" aria-hidden=\"true\"><span></span><span class=\"ticks\">");
    for tick in ratios.ticks() {
        let text = figures::number(figures::round(tick, 3));
        let _ = write!(out, "<span style=\"left:{:.2}%\">{text} ×</span>", at(tick));
    }
    out.push_str("</span></div>\n</div>\n");
    if let Some(note) = &ratios.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("</figure>\n");
}
