//! The system, drawn: boxes in the order of a request's path, side by side if there is room and otherwise below one
//! another. The browser lays out the boxes, so that no text overlaps another.

use std::fmt::Write;

use super::escape;
use crate::document::{Drawing, Edge, Gauge, Node};

/// With more drawings than this a reader picks one from a list.
const MOST_TABS: usize = 8;

/// All drawings in order; the script of the page shows one at a time.
pub(super) fn drawings(out: &mut String, all: &[Drawing]) {
    out.push_str("<div class=\"drawings\">\n");
    if all.len() > 1 {
        out.push_str("<div class=\"tabs\" role=\"group\" aria-label=\"Case drawn\" hidden>");
        let is_list = all.len() > MOST_TABS;
        out.push_str(if is_list { "<select aria-label=\"Case drawn\">" } else { "" });
        for (i, drawing) in all.iter().enumerate() {
            let (tag, place) = match is_list {
                true => ("option", format!("value=\"{i}\"")),
                false => ("button", format!("type=\"button\" data-drawing=\"{i}\"")),
            };
            let _ = write!(out, "<{tag} {place}>{}</{tag}>", escape(&drawing.case));
        }
        out.push_str(if is_list { "</select></div>\n" } else { "</div>\n" });
    }
    for drawing in all {
        let _ = writeln!(out, "<figure class=\"drawing\">");
        if all.len() > 1 {
            let _ = writeln!(out, "<figcaption>{}</figcaption>", escape(&drawing.case));
        }
        out.push_str("<div class=\"way\">\n");
        for (i, layer) in drawing.layers.iter().enumerate() {
            if i > 0 {
                arrows(out, &drawing.edges, &drawing.layers[i - 1], layer);
            }
            out.push_str("<div class=\"layer\">");
            layer.iter().for_each(|node| self::node(out, node, i == 0));
            out.push_str("</div>\n");
        }
        out.push_str("</div>\n</figure>\n");
    }
    out.push_str("</div>\n");
}

/// The arrows into a layer. If they do not come from the only node before it, the source is named.
fn arrows(out: &mut String, edges: &[Edge], before: &[Node], layer: &[Node]) {
    let into: Vec<&Edge> = edges.iter().filter(|e| layer.iter().any(|n| n.name == e.to)).collect();
    let is_plain = before.len() == 1 && layer.len() == 1;
    let blamed = if into.iter().any(|e| e.is_bottleneck) { " blamed" } else { "" };
    let _ = write!(out, "<div class=\"arrows{blamed}\"><span class=\"arrow\" aria-hidden=\"true\"></span>");
    for edge in into.iter().take(6) {
        let who = match is_plain && edge.from == before[0].name {
            true => String::new(),
            false => format!("{} → {} ", edge.from, edge.to),
        };
        let _ = write!(out, "<small>{}</small>", escape(format!("{who}{}", edge.text).trim_end()));
    }
    out.push_str("</div>\n");
}

fn node(out: &mut String, node: &Node, is_generator: bool) {
    let classes = [(is_generator, "generator"), (node.is_bottleneck, "blamed"), (node.replicas > 1, "stack")];
    let classes: Vec<&str> = classes.iter().filter(|(is, _)| *is).map(|(_, class)| *class).collect();
    let _ = write!(out, "<div class=\"node {}\"><b>{}", classes.join(" "), escape(&node.name));
    if node.replicas > 1 {
        let _ = write!(out, " ×{}", node.replicas);
    }
    out.push_str("</b>");
    node.gauges.iter().for_each(|gauge| self::gauge(out, gauge));
    if let Some(note) = &node.note {
        let _ = write!(out, "<small>{}</small>", escape(note));
    }
    out.push_str("</div>");
}

fn gauge(out: &mut String, gauge: &Gauge) {
    let _ = write!(
        out,
        "<span class=\"gauge\"><span>{}</span><span class=\"bar-track\"><i style=\"width:{:.1}%\"></i></span><span>{}</span></span>",
        escape(&gauge.name),
        gauge.share * 100.0,
        escape(&gauge.text)
    );
}
