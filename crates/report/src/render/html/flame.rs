//! A flame graph: its controls, its legend and its data, from which `flame.js` draws it, and a table for readers
//! without scripts. The whole is at the bottom, as in every flame graph, directly above the line that describes a
//! function; the graph scrolls in its own box, so that a deep one does not stretch a long page.
//!
//! Names come from the programs that were sampled: nothing in them becomes markup, and nothing malformed in the tree
//! reaches the script.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::plot::unbreakable;
use super::{escape, pack};
use crate::document::{Flame, FlameNode, FlameUnit};
use crate::figures;
use crate::terminal::harmless;

/// At most this many nodes reach the page: those with most samples. The rest would be narrower than a pixel anyway.
const MOST_NODES: usize = 5000;
/// Data longer than this is packed.
const PACK_FROM_BYTES: usize = 16 << 10;

/// The graph with `table` below it. Without scripts only the table shows, unfolded.
pub(super) fn flame(out: &mut String, flame: &Flame, table: impl FnOnce(&mut String)) {
    let whole = rooted(flame, |_| true);
    let nodes = match threshold(&whole) {
        Some(least) => rooted(flame, |at| at <= least),
        None => whole.clone(),
    };
    let _ = writeln!(
        out,
        "<figure class=\"flame\" id=\"{}\">\n<figcaption>{}</figcaption>",
        escape(&flame.id),
        escape(&flame.title)
    );
    let nodes: Vec<FlameNode> = nodes.into_iter().map(|(_, node)| node).collect();
    if !nodes.is_empty() {
        stage(out, flame, &nodes, whole.len() - nodes.len());
    }
    out.push_str("<details open>\n<summary>As a table</summary>\n");
    table(out);
    out.push_str("</details>\n");
    if let Some(note) = &flame.note {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    out.push_str("</figure>\n");
}

/// A node's place in the order of those with most samples: a caller always precedes what it calls.
type Rank = (Reverse<u64>, usize);

/// The nodes that satisfy `wanted`, with their ranks. A node without samples, without a name or without a caller is
/// left out with all that it calls.
fn rooted(flame: &Flame, wanted: impl Fn(Rank) -> bool) -> Vec<(Rank, FlameNode)> {
    let mut deepest = 0;
    let mut kept = Vec::new();
    for (i, node) in flame.nodes.iter().enumerate() {
        let rank = (Reverse(node.samples), i);
        let is_named = flame.names.get(node.name as usize).is_some();
        let has_caller = node.depth <= deepest && (node.depth == 0) == kept.is_empty();
        if is_named && has_caller && node.samples > 0 && wanted(rank) {
            deepest = node.depth.saturating_add(1);
            kept.push((rank, *node));
        } else {
            deepest = deepest.min(node.depth);
        }
    }
    kept
}

/// The last rank that is drawn, if not all are.
fn threshold(nodes: &[(Rank, FlameNode)]) -> Option<Rank> {
    let mut ranks: Vec<Rank> = nodes.iter().map(|(rank, _)| *rank).collect();
    (ranks.len() > MOST_NODES).then(|| *ranks.select_nth_unstable(MOST_NODES - 1).1)
}

/// The element that the script draws on, hidden until then.
fn stage(out: &mut String, flame: &Flame, nodes: &[FlameNode], left_out: usize) {
    let rows = nodes.iter().map(|n| n.depth).max().unwrap_or(0).saturating_add(1);
    let is_compared = nodes.iter().any(|n| n.before.is_some());
    let _ = writeln!(
        out,
        "<div class=\"stage\" hidden>\n<div class=\"tools\"><label>Search <input type=\"search\" spellcheck=\"false\" \
         autocomplete=\"off\"></label>\n<button type=\"button\" disabled>Whole graph</button>\n\
         <output class=\"found\"></output></div>"
    );
    legend(out, flame, nodes, is_compared);
    let _ = writeln!(
        out,
        "<div class=\"frames\" role=\"tree\" aria-label=\"{}\" style=\"--rows:{rows}\"></div>\n\
         <output class=\"on\" aria-live=\"off\">Point at a function, or move with the arrow keys. A click or Enter \
         zooms in, Escape shows the whole.</output>",
        escape(&format!(
            "{}. Arrow up moves to what a function calls, arrow down to its caller, left and right to its neighbours; \
             Enter zooms in, Escape shows the whole.",
            flame.title
        ))
    );
    if left_out > 0 {
        let _ = writeln!(
            out,
            "<p class=\"note\">Without {} with the fewest samples, in the search too.</p>",
            figures::plural(left_out as u64, "frame", "frames")
        );
    }
    let _ = writeln!(
        out,
        "</div>\n<script type=\"application/json\">{}</script>",
        data(flame, nodes, is_compared)
    );
}

/// What the tints mean. Each meaning is also in words: in the names, or as a sign in front of them.
fn legend(out: &mut String, flame: &Flame, nodes: &[FlameNode], is_compared: bool) {
    out.push_str("<ul class=\"legend\">");
    let mut item = |class: &str, text: &str| {
        let _ = write!(out, "<li><span class=\"tint {class}\"></span>{text}</li>");
    };
    if is_compared {
        item("less l3", "− a smaller share than before");
        item("same", "within 5 %");
        item("more l3", "+ a larger share than before");
    } else {
        let is_any =
            |kind: &str| nodes.iter().skip(1).any(|n| kind_of(&flame.names[n.name as usize]) == kind);
        for (kind, text) in
            [("user", "program"), ("kernel", "[kernel]"), ("other", "[unknown] or [incomplete]")]
        {
            if is_any(kind) {
                item(kind, text);
            }
        }
    }
    out.push_str("</ul>\n");
}

/// The tint of a function, as `flame.js` chooses it.
fn kind_of(name: &str) -> &'static str {
    match name {
        "[incomplete]" | "[unknown]" => "other",
        name if name.ends_with(" [kernel]") => "kernel",
        _ => "user",
    }
}

/// Depth, name, samples and, if it is compared, samples before (-1 if unknown) of each node in one list, and the names;
/// as JSON that no name can end or break out of.
fn data(flame: &Flame, nodes: &[FlameNode], is_compared: bool) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    let mut numbers: Vec<i64> = Vec::new();
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    for node in nodes {
        let place = *places.entry(node.name).or_insert_with(|| {
            names.push(harmless(&flame.names[node.name as usize]));
            names.len() - 1
        });
        numbers.extend([i64::from(node.depth), place as i64, number(node.samples)]);
        if is_compared {
            numbers.push(node.before.map_or(-1, number));
        }
    }
    let is_time = flame.unit == FlameUnit::Waits;
    let json =
        json!({ "names": names, "nodes": numbers, "compared": is_compared, "time": is_time }).to_string();
    let packed = if json.len() > PACK_FROM_BYTES { pack::pack(&json, std::iter::empty()) } else { None };
    packed.map_or_else(|| unbreakable(&json), |packed| format!("\"{packed}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Table;

    fn of(nodes: &[(u32, u32, u64)]) -> Flame {
        let hottest =
            Table { caption: String::new(), head: vec![], text_columns: vec![], rows: vec![], note: None };
        let node = |&(depth, name, samples)| FlameNode { depth, name, samples, before: None };
        Flame {
            id: "f".into(),
            title: "t".into(),
            unit: FlameUnit::Samples,
            names: ["all", "a", "b"].map(str::to_owned).to_vec(),
            nodes: nodes.iter().map(node).collect(),
            hottest,
            note: None,
        }
    }

    #[test]
    fn nodes_that_hang_in_the_air_are_left_out() {
        let check = |nodes: &[(u32, u32, u64)], expect: &[(u32, u32, u64)]| {
            let kept = rooted(&of(nodes), |_| true);
            let kept: Vec<_> = kept.iter().map(|(_, n)| (n.depth, n.name, n.samples)).collect();
            assert_eq!(kept, expect, "{nodes:?}");
        };
        check(&[], &[]);
        check(&[(1, 0, 5)], &[]);
        check(&[(0, 9, 5), (1, 1, 5)], &[]);
        check(&[(0, 0, 5), (2, 1, 5), (1, 2, 5)], &[(0, 0, 5), (1, 2, 5)]);
        // what a nameless one calls belongs to nobody else
        check(&[(0, 0, 9), (1, 1, 4), (1, 7, 3), (2, 2, 3), (1, 2, 1)], &[(0, 0, 9), (1, 1, 4), (1, 2, 1)]);
        check(&[(0, 0, 9), (0, 1, 4), (1, 2, 4)], &[(0, 0, 9)]);
        check(&[(0, 0, 9), (1, 1, 0), (1, 2, 1)], &[(0, 0, 9), (1, 2, 1)]);
        check(&[(0, 0, 9), (u32::MAX, 1, 4)], &[(0, 0, 9)]);
    }

    #[test]
    fn of_many_nodes_those_with_most_samples_are_drawn() {
        let mut nodes = vec![(0, 0, 1_000_000)];
        nodes.extend((0..9000).map(|i| (1 + i % 3, 1, 100 - u64::from(i % 3) * 10)));
        let mut out = String::new();
        flame(&mut out, &of(&nodes), |_| ());
        assert!(out.contains("Without 4,001 frames with the fewest samples"), "{out}");
    }
}
