//! A document as Markdown: tables for pasting into a README or a merge request.

use std::fmt::Write;

use loadlab_analysis::cases::metric::Value;

use super::cases::{line_of, table_of, tables_of};
use super::text::{PLANE_COLUMNS, PLANE_ROWS};
use super::{HEAT_ROWS, line_figures, plane_lines, ratio_line, shades, thinned, verdict_word};
use crate::document::{
    Along, Block, Chart, Compare, Document, Multiples, Ratios, Remark, Section, Table, Weight,
};
use crate::figures;
use crate::markup::entity;
use crate::plane::Plane;
use crate::terminal::{harmless, sparkline};

/// Columns of a line drawn in blocks.
const SPARK: usize = 30;

/// The document as Markdown (CommonMark with tables).
pub fn markdown(document: &Document) -> String {
    let mut out = String::new();
    let verdict = match document.cases.is_empty() {
        true => String::new(),
        false => format!(" ({})", verdict_word(document.verdict)),
    };
    let _ = writeln!(out, "# {}{verdict}\n\n{}\n", escape(&document.title), escape(&document.subtitle));
    for fact in &document.answer {
        let _ = writeln!(out, "**{}.** {}\n", escape(&fact.name), escape(&fact.text));
    }
    for section in &document.sections {
        self::section(&mut out, section);
    }
    out
}

fn section(out: &mut String, section: &Section) {
    let verdict = section.case.map_or(String::new(), |v| format!(" ({})", verdict_word(v)));
    let _ = writeln!(out, "\n## {}{verdict}\n", escape(&section.title));
    for block in &section.blocks {
        match block {
            Block::Heading(text) => {
                let _ = writeln!(out, "### {}\n", escape(text));
            }
            Block::Paragraph(text) => {
                let _ = writeln!(out, "{}\n", escape(text));
            }
            Block::Facts(facts) => {
                for fact in facts {
                    let _ = writeln!(out, "- {}: {}", escape(&fact.name), escape(&fact.text));
                }
                out.push('\n');
            }
            Block::Remarks(remarks) => {
                remarks.iter().for_each(|r| remark(out, r));
                out.push('\n');
            }
            Block::Table(table) => self::table(out, table),
            Block::Cases(cases) => self::table(out, &table_of(cases, None)),
            Block::Grids(grids) => tables_of(grids).iter().for_each(|table| self::table(out, table)),
            Block::System(drawings) => {
                for drawing in drawings {
                    let _ = writeln!(out, "- {}: {}", escape(&drawing.case), escape(&line_of(drawing)));
                }
                out.push('\n');
            }
            Block::Compare(compare) => self::compare(out, compare),
            Block::Ratios(ratios) => self::ratios(out, ratios),
            Block::Plane(plane) => self::plane(out, plane),
            Block::Chart(chart) => self::chart(out, chart),
            Block::Multiples(part) => multiples(out, part),
            Block::Flame(flame) => self::table(out, &flame.as_table()),
            // The same cases are in a table or in grids.
            Block::Trends(_) => {}
            Block::Folded { title, text } => folded(out, title, text),
        }
    }
}

fn remark(out: &mut String, remark: &Remark) {
    let label = match remark.label.as_str() {
        "" => String::new(),
        label => format!("**{}** ", escape(label)),
    };
    let _ = write!(out, "- {label}{}", escape(&remark.text));
    if let Some(hint) = &remark.hint {
        let _ = write!(out, "  \n  {}", escape(hint));
    }
    out.push('\n');
}

fn table(out: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        let _ = writeln!(out, "**{}**\n", escape(&table.caption));
    }
    let head: Vec<String> = table.head.iter().map(|h| cell(h)).collect();
    let _ = writeln!(out, "| {} |", head.join(" | "));
    let align = |i: usize| if i == 0 || table.text_columns.contains(&i) { "---" } else { "---:" };
    let rule: Vec<&str> = (0..table.head.len()).map(align).collect();
    let _ = writeln!(out, "|{}|", rule.join("|"));
    for row in &table.rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(i, c)| {
                let text = cell(&c.text);
                let text =
                    if c.weight == Weight::Bad && !text.is_empty() { format!("**{text}**") } else { text };
                match &c.detail {
                    Some(detail) if i > 0 => format!("{text} ({})", cell(detail)),
                    _ => text,
                }
            })
            .collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    if let Some(note) = &table.note {
        let _ = writeln!(out, "{}\n", escape(note));
    }
}

/// A comparison's figures are in the table of figures; here they are drawn, one row per case.
fn compare(out: &mut String, compare: &Compare) {
    let _ = writeln!(out, "**{}**\n", escape(&compare.title));
    let _ = writeln!(
        out,
        "| case | {} | |",
        compare.figures.iter().map(|f| cell(f)).collect::<Vec<_>>().join(" | ")
    );
    let _ = writeln!(out, "|---|{}---|", "---:|".repeat(compare.figures.len()));
    let last = |points: &[crate::document::Point]| points.last().and_then(|p| p.drawn());
    let drawn = super::text::open_scale(compare.rows.iter().map(|(_, p)| last(p)), compare.logarithmic);
    for (name, points) in &compare.rows {
        let values: Vec<String> = points.iter().map(|p| figures::value(p.median, compare.unit)).collect();
        let bar = drawn.bar(last(points), SPARK);
        let _ = writeln!(out, "| {} | {} | {bar} |", cell(name), values.join(" | "));
    }
    out.push('\n');
}

fn ratios(out: &mut String, ratios: &Ratios) {
    let _ = writeln!(out, "**{}**\n\n| figure | | ratio | |\n|---|---|---:|---|", escape(&ratios.title));
    for row in &ratios.rows {
        let drawn = ratio_line(ratios, row, SPARK + 1).replace(' ', "\u{2007}");
        let _ = writeln!(
            out,
            "| {} | {} | {} | {drawn} |",
            cell(&row.name),
            cell(&row.call),
            cell(&row.described())
        );
    }
    out.push('\n');
    if let Some(note) = &ratios.note {
        let _ = writeln!(out, "{}\n", escape(note));
    }
}

fn plane(out: &mut String, plane: &Plane) {
    let _ = writeln!(out, "**{}**\n\n```text", escape(&plane.title));
    for line in plane_lines(plane, PLANE_COLUMNS, PLANE_ROWS) {
        // No name may end the fence.
        let _ = writeln!(out, "{}", line.replace('`', "'"));
    }
    out.push_str("```\n\n");
    if let Some(note) = &plane.note {
        let _ = writeln!(out, "{}\n", escape(note));
    }
}

fn multiples(out: &mut String, part: &Multiples) {
    let _ = writeln!(out, "#### {}\n", escape(&part.title));
    part.charts.iter().for_each(|c| chart(out, c));
    if !part.quiet.is_empty() {
        let _ = writeln!(out, "{}\n", escape(&part.quiet.join(" ")));
    }
}

fn chart(out: &mut String, chart: &Chart) {
    // Percentiles are in the tables.
    if chart.along == Along::Nines {
        return;
    }
    let _ = writeln!(out, "**{}**\n", escape(&chart.title));
    if let Some(heat) = &chart.heat {
        out.push_str("```text\n");
        for (edge, line) in shades(heat, 2 * SPARK, HEAT_ROWS) {
            let edge = crate::terminal::right(&figures::value(Value::Known(edge), chart.unit), 10);
            let _ = writeln!(out, "{}", format!("{edge}  {line}").trim_end());
        }
        out.push_str("```\n\n");
        if let Some(note) = &chart.note {
            let _ = writeln!(out, "{}\n", escape(note));
        }
        return;
    }
    let _ = writeln!(out, "| | over time | least | most |\n|---|---|---:|---:|");
    for line in &chart.lines {
        let value = |v: f64| figures::value(Value::Known(v), chart.unit);
        match line_figures(line) {
            Some(f) if !line.limit => {
                let spark = sparkline(&thinned(&line.values, SPARK));
                let _ =
                    writeln!(out, "| {} | {spark} | {} | {} |", cell(&line.name), value(f.min), value(f.max));
            }
            _ => {
                let _ = writeln!(out, "| {} | | | |", cell(&line.name));
            }
        }
    }
    out.push('\n');
    if let Some(note) = &chart.note {
        let _ = writeln!(out, "{}\n", escape(note));
    }
}

/// A fence longer than any run of backticks inside, so that the text cannot end it.
fn folded(out: &mut String, title: &str, text: &str) {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let text: String = text.split_inclusive('\n').map(|l| format!("{}\n", harmless(l.trim_end()))).collect();
    let _ = writeln!(
        out,
        "<details>\n<summary>{}</summary>\n\n{fence}text\n{text}{fence}\n\n</details>\n",
        escape(title)
    );
}

/// Escapes Markdown and HTML markup. A `_` within a word is not markup: names such as `elapsed_time` stay searchable.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = harmless(text);
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let within = before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric());
        before = c;
        match c {
            '_' if within => out.push('_'),
            '&' | '<' | '>' => out.extend(entity(c)),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_becomes_markup() {
        assert_eq!(escape("a|b <script> *x* [l](u)\nnext"), "a\\|b &lt;script&gt; \\*x\\* \\[l\\](u) next");
        assert_eq!(escape("elapsed_time _x_ a__b _"), "elapsed_time \\_x\\_ a\\_\\_b \\_");
    }

    #[test]
    fn a_fence_is_not_ended_from_inside() {
        let mut out = String::new();
        folded(&mut out, "t", "a\n````\nb");
        assert!(out.contains("\n`````text\na\n````\nb\n`````\n"), "{out}");
    }
}
