//! Cases by their figures as HTML: a table with a bar in each cell, or grids.

use std::fmt::Write;

use super::{badge, class_of, escape};
use crate::document::{CaseRow, CaseTable, FigureCell, FigureHead, Grid, GridCell, Grids};

/// One row per case. On a narrow screen a row becomes a card, in which each figure has its name.
pub(super) fn cases(out: &mut String, table: &CaseTable) {
    out.push_str("<table class=\"figures\">\n<thead><tr>");
    for label in &table.labels {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(label));
    }
    if differ(table) {
        out.push_str("<th scope=\"col\">verdict</th>");
    }
    for figure in &table.figures {
        let log =
            if figure.is_logarithmic && figure.has_bars { " <span class=\"faint\">(log)</span>" } else { "" };
        let _ = write!(
            out,
            "<th scope=\"col\" title=\"{}\">{}{log}</th>",
            escape(&figure.about),
            escape(&figure.name)
        );
    }
    out.push_str("<th scope=\"col\">bottleneck</th></tr></thead>\n<tbody>\n");
    for row in &table.rows {
        self::row(out, row, table);
    }
    out.push_str("</tbody>\n</table>\n");
    if let Some(note) = &table.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
}

/// Whether verdicts differ; if all cases have the verdict of the run, the title shows it.
fn differ(table: &CaseTable) -> bool {
    table.rows.iter().any(|row| row.verdict != table.rows[0].verdict)
}

fn row(out: &mut String, row: &CaseRow, table: &CaseTable) {
    out.push_str("<tr>");
    for (i, (label, head)) in row.labels.iter().zip(&table.labels).enumerate() {
        let (tag, scope) = if i == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
        let link = match i {
            0 => format!("<a href=\"#{}\">{}</a>", row.section, escape(label)),
            _ => escape(label),
        };
        let base = if i == 0 && row.is_base { "<small>baseline</small>" } else { "" };
        let _ = write!(out, "<{tag}{scope} data-head=\"{}\">{link}{base}</{tag}>", escape(head));
    }
    if differ(table) {
        let _ = write!(out, "<td data-head=\"verdict\">{}</td>", badge(row.verdict).trim_start());
    }
    for (cell, head) in row.figures.iter().zip(&table.figures) {
        figure(out, cell, head);
    }
    let weight = if row.bottleneck == "none saturated" { "faint" } else { "culprit" };
    let _ = writeln!(
        out,
        "<td class=\"b\" data-head=\"bottleneck\"><span class=\"{weight}\">{}</span></td></tr>",
        escape(&row.bottleneck)
    );
}

fn figure(out: &mut String, cell: &FigureCell, head: &FigureHead) {
    let _ = write!(
        out,
        "<td class=\"f\" data-head=\"{}\"><span class=\"v\">{}</span>",
        escape(&head.name),
        escape(&cell.text)
    );
    if let (Some(share), true) = (cell.share, head.has_bars) {
        let open = if cell.is_open { " open" } else { "" };
        let _ = write!(
            out,
            "<span class=\"bar-track\"><i class=\"{open}\" style=\"width:{:.1}%\"></i></span>",
            share * 100.0
        );
    }
    if let Some(range) = &cell.range {
        let _ = write!(out, "<small>{}</small>", escape(range));
    }
    if let Some((text, weight)) = &cell.difference {
        let _ = write!(out, "<small class=\"{}\">{}</small>", class_of(*weight), escape(text));
    }
    out.push_str("</td>");
}

/// One grid for each figure and facet, each in a box that scrolls sideways.
pub(super) fn grids(out: &mut String, grids: &Grids) {
    out.push_str("<div class=\"grids\">\n");
    for grid in &grids.grids {
        self::grid(out, grid, grids);
    }
    out.push_str("</div>\n");
}

fn grid(out: &mut String, grid: &Grid, of: &Grids) {
    let facet = if grid.facet.is_empty() { String::new() } else { format!(", {}", grid.facet) };
    let caption = escape(&format!("{}{facet}", grid.figure));
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">\n<table class=\"grid-of\">\n\
         <caption>{caption}</caption>\n<thead><tr><th scope=\"col\">{} ↓ {} →</th>",
        escape(&of.down),
        escape(&of.across)
    );
    for column in &of.columns {
        let _ = write!(out, "<th scope=\"col\" class=\"n\">{}</th>", escape(column));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (name, cells) in of.rows.iter().zip(&grid.cells) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(name));
        for cell in cells {
            match cell {
                Some(cell) => grid_cell(out, cell),
                None => out.push_str("<td class=\"n\"></td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// A cell's shade shows its share of the maximum; a case that failed has a mark.
fn grid_cell(out: &mut String, cell: &GridCell) {
    use loadlab_record::documents::summary::Verdict;
    let mark = match cell.verdict {
        Verdict::Fail => " <b class=\"bad\" title=\"FAIL\">✘</b>",
        Verdict::Invalid => " <b class=\"bad\" title=\"INVALID\">⚠</b>",
        Verdict::Undecided => " <b class=\"doubtful\" title=\"UNDECIDED\">?</b>",
        Verdict::Pass | Verdict::None => "",
    };
    let _ = write!(
        out,
        "<td class=\"n\" style=\"--share:{:.2}\"><a href=\"#{}\">{}</a>{mark}",
        cell.share.unwrap_or(0.0),
        cell.section,
        escape(&cell.text)
    );
    if let Some(range) = &cell.range {
        let _ = write!(out, "<small>{}</small>", escape(range));
    }
    out.push_str("</td>");
}
