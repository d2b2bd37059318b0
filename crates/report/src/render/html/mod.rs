//! A document as one HTML file: no network, light and dark, from phone to print, readable without JavaScript.
//!
//! Everything is inlined: style, script, the chart library and the data. A content security policy forbids all
//! loading and every script but these two (by hash), so that a name or a body from the system under test that slipped
//! through the escaping would still not run.

mod blocks;
mod cases;
mod flame;
mod pack;
mod plane;
mod plot;
mod system;

use std::fmt::Write;

use loadlab_record::documents::summary::Verdict;

use self::plot::Charts;
use super::verdict_word;
use crate::assets::{SCRIPT, STYLE, UPLOT_LICENCE, UPLOT_SCRIPT, UPLOT_STYLE, policy};
use crate::document::{Document, Section, Weight};
use crate::markup::escaped;
use crate::terminal::harmless;

/// With more cases than this a reader picks one at a time.
const PICK_FROM: usize = 4;

/// The document as an HTML file.
pub fn html(document: &Document) -> String {
    let mut out = String::with_capacity(200_000);
    let title = escape(&document.title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title} – loadlab</title>\n<style>{UPLOT_STYLE}\n{STYLE}</style>\n</head>\n<body>\n",
        policy(&[&UPLOT_SCRIPT, &SCRIPT])
    );
    let charts = Charts::of(document);
    header(&mut out, document);
    out.push_str("<main>\n");
    let cases = document.sections.iter().filter(|s| s.case.is_some()).count();
    let mut picker = (cases >= PICK_FROM).then(|| self::picker(document));
    for section in &document.sections {
        if section.case.is_some() {
            out.push_str(&picker.take().unwrap_or_default());
        }
        self::section(&mut out, &charts, section);
    }
    out.push_str("</main>\n");
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"data\">{}</script>\n\
         {UPLOT_LICENCE}<script>{UPLOT_SCRIPT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        charts.data()
    );
    out
}

fn header(out: &mut String, document: &Document) {
    let _ = write!(
        out,
        "<header>\n<h1>{}{}</h1>\n<p class=\"sub\">{}</p>\n<dl class=\"answer\">\n",
        escape(&document.title),
        if document.cases.is_empty() { String::new() } else { badge(document.verdict) },
        escape(&document.subtitle)
    );
    for fact in &document.answer {
        let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&fact.name), escape(&fact.text));
    }
    out.push_str("</dl>\n");
    // If there is more than a screenful, a table of contents.
    if document.sections.len() > 2 && !document.cases.is_empty() {
        out.push_str("<nav class=\"contents\" aria-label=\"Contents\"><ul>\n");
        for section in document.sections.iter().filter(|s| s.case.is_none() && !s.title.is_empty()) {
            let _ = writeln!(out, "<li><a href=\"#{}\">{}</a></li>", section.id, escape(&section.title));
        }
        out.push_str("</ul></nav>\n");
    }
    out.push_str("</header>\n");
}

/// A verdict with a mark, a word and a colour: any one of them suffices.
fn badge(verdict: Verdict) -> String {
    let (class, mark) = match verdict {
        Verdict::Pass => ("good", "✔"),
        Verdict::Fail => ("bad", "✘"),
        Verdict::Invalid => ("bad", "⚠"),
        Verdict::Undecided => ("doubtful", "?"),
        Verdict::None => ("none", "–"),
    };
    format!(
        " <span class=\"badge {class}\"><span aria-hidden=\"true\">{mark}</span> {}</span>",
        verdict_word(verdict)
    )
}

/// The picker of a case, hidden until its script has run.
fn picker(document: &Document) -> String {
    let mut out = String::from(
        "<nav class=\"picker\" id=\"picker\" aria-label=\"Case shown\" hidden>\n\
         <button type=\"button\" data-step=\"-1\" aria-label=\"Previous case\">‹</button>\n\
         <label>Case <select>\n<option value=\"\">all, one after the other</option>\n",
    );
    for case in &document.cases {
        let _ = writeln!(
            out,
            "<option value=\"{}\">{} – {}</option>",
            case.section,
            escape(&case.name),
            verdict_word(case.verdict)
        );
    }
    out.push_str("</select></label>\n<button type=\"button\" data-step=\"1\" aria-label=\"Next case\">›</button>\n</nav>\n");
    out
}

fn section(out: &mut String, charts: &Charts<'_>, section: &Section) {
    let class = if section.case.is_some() { " class=\"case\"" } else { "" };
    let badge = section.case.map(badge).unwrap_or_default();
    let _ = writeln!(
        out,
        "<section id=\"{0}\"{class} aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\" tabindex=\"-1\">{1}{badge}</h2>",
        section.id,
        escape(&section.title)
    );
    if section.is_folded {
        let _ = writeln!(out, "<details class=\"folded\">\n<summary>Show</summary>");
    }
    for block in &section.blocks {
        blocks::block(out, charts, block);
    }
    out.push_str(if section.is_folded { "</details>\n</section>\n" } else { "</section>\n" });
}

fn class_of(weight: Weight) -> &'static str {
    match weight {
        Weight::Plain => "",
        Weight::Good => "good",
        Weight::Doubtful => "doubtful",
        Weight::Bad => "bad",
    }
}

/// Escapes text for content and quoted attributes.
fn escape(text: &str) -> String {
    escaped(&harmless(text))
}
