//! Changes to a plan from a profile or from `--set`: values by dotted path, put into the tree before it is read.
//!
//! They are then read and checked like everything else, so a mistake in one is shown where it was typed.

use std::collections::HashSet;

use crate::keys::{self, Section, Shape};
use crate::text::error::{Problem, Problems};
use crate::text::node::{Entry, Node, ScalarKind, Value};
use crate::text::shorten::shorten;
use crate::text::source::Sources;
use crate::text::span::Span;
use crate::text::{suggest, yaml};

/// Changes made so far, to distinguish what the plan contains from what was asked for.
#[derive(Default)]
pub(crate) struct Overrides {
    /// Paths set, dotted.
    set: HashSet<String>,
}

/// Adds the source of an option and reads its value. `path=value` is shown as typed.
pub(crate) fn read_option(
    sources: &mut Sources,
    option: &str,
    path: &str,
    value: &str,
) -> (Span, Result<Node, Problem>) {
    let typed = format!("{path}={value}");
    let name = if option == "--set" { format!("--set {}", shorten(&typed)) } else { option.to_owned() };
    let source = sources.add(&name, &typed);
    let path_span = Span { source, start: 0, end: path.len() as u32 };
    let node = yaml::parse(value, source, path.len() as u32 + 1).map(|mut node| {
        // No value was typed: the caret goes after the equals sign.
        if node.is_null() && value.is_empty() {
            node.span = Span { source, start: typed.len() as u32, end: typed.len() as u32 };
        }
        node
    });
    (path_span, node)
}

impl Overrides {
    /// Sets a value at a dotted path; `null` removes the key. `span` is where the path was typed.
    pub fn apply(&mut self, root: &mut Node, path: &str, span: Span, value: Node, problems: &mut Problems) {
        let segments: Vec<&str> = path.split('.').collect();
        if segments.iter().any(|s| s.is_empty()) || segments.len() > 20 {
            let message = format!("`{}` is not a path into the plan", shorten(path));
            problems.push(Problem::new(span, message).hint("separate keys with dots: `load.duration`"));
            return;
        }
        if matches!(segments[0], "profiles" | "loadlab") {
            problems.push(Problem::new(span, format!("`{}` cannot be overridden", segments[0])));
            return;
        }
        if segments[0] == "load" && root.get("load").is_none() && root.get("loads").is_some() {
            let names: Vec<String> = root
                .get("loads")
                .map_or(&[][..], Node::entries)
                .iter()
                .map(|e| format!("loads.{}.{}", e.key, segments[1..].join(".")))
                .collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let problem = Problem::new(span, "this plan has `loads`, not `load`");
            problems.push(problem.hint(format!("say which one: {}", suggest::listed(&names))));
            return;
        }
        match place(root, &segments, span, value) {
            Ok(()) => {
                self.make_room(root, &segments);
                self.set.insert(path.to_owned());
            }
            Err(problem) => problems.push(problem),
        }
    }

    /// An option for `requests` replaces the plan's `duration`: of keys that exclude each other, the requested one
    /// stays. Two requested ones both stay, and are refused later. A key that specifies more than the one that was set
    /// also stays (`stages` beside a `duration`): without it more would be missing.
    fn make_room(&self, root: &mut Node, segments: &[&str]) {
        let Some((last, parents)) = segments.split_last() else { return };
        let Some(section) = section_at(parents) else { return };
        let groups = |key: &str| section.groups.iter().filter(|g| g.keys.contains(&key)).count();
        let of_last: Vec<_> = section.groups.iter().filter(|g| g.keys.contains(last)).collect();
        let gives_way = |key: &str| {
            let shared = of_last.iter().filter(|g| g.keys.contains(&key)).count();
            shared > 0 && shared == groups(key)
        };
        let mut node = root;
        for segment in parents {
            match child(node, segment) {
                Some(next) => node = next,
                None => return,
            }
        }
        let Value::Map(entries) = &mut node.value else { return };
        if !entries.iter().any(|e| e.key == *last) {
            return;
        }
        entries.retain(|e| {
            let path = parents.iter().copied().chain([e.key.as_str()]).collect::<Vec<_>>().join(".");
            e.key == *last || !gives_way(&e.key) || self.set.contains(&path)
        });
    }
}

fn child<'n>(node: &'n mut Node, segment: &str) -> Option<&'n mut Node> {
    match &mut node.value {
        Value::Map(entries) => entries.iter_mut().find(|e| e.key == segment).map(|e| &mut e.value),
        Value::List(items) => segment.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
        Value::Scalar(..) => None,
    }
}

/// The section that a path leads to, if it leads to one.
fn section_at(segments: &[&str]) -> Option<&'static Section> {
    fn follow(shape: &'static Shape, rest: &[&str]) -> Option<&'static Section> {
        match shape {
            Shape::In(section) | Shape::SomeOf(section) => step(section, rest),
            Shape::ListOf(inner) | Shape::MapOf(_, inner) => follow(inner, rest.get(1..)?),
            Shape::Matrix => step(&keys::AXES, rest),
            _ => None,
        }
    }
    fn step(section: &'static Section, rest: &[&str]) -> Option<&'static Section> {
        match rest.split_first() {
            None => Some(section),
            Some((first, rest)) => follow(&section.key(first)?.shape, rest),
        }
    }
    step(&keys::PLAN, segments)
}

/// Walks to the last but one segment, creating maps as needed, and sets the last segment.
fn place(root: &mut Node, segments: &[&str], span: Span, value: Node) -> Result<(), Problem> {
    let mut node = root;
    let mut start = span.start;
    for (depth, segment) in segments.iter().enumerate() {
        // Keys that the option creates point at their part of the path.
        let part = Span { start, end: start + segment.len() as u32, ..span };
        let part = if part.end <= span.end { part } else { span };
        start += segment.len() as u32 + 1;
        let last = depth + 1 == segments.len();
        let above = segments[..depth].join(".");
        if node.is_null() {
            node.value = Value::Map(Vec::new());
        }
        node = match &mut node.value {
            Value::Scalar(..) => {
                let message = format!("`{above}` is a single value: it has no `{segment}`");
                return Err(Problem::new(part, message));
            }
            Value::List(items) => {
                let count = items.len();
                let item = segment.parse::<usize>().ok().and_then(|i| items.get_mut(i));
                let Some(item) = item else {
                    let message = format!("`{above}` is a list of {count}: it has no item `{segment}`");
                    let hint =
                        format!("items count from 0: `{above}.0`; or set the whole list: `{above}=[…]`");
                    return Err(Problem::new(part, message).hint(hint));
                };
                item
            }
            Value::Map(entries) => {
                let at = entries.iter().position(|e| e.key == *segment);
                if last && value.is_null() {
                    entries.retain(|e| e.key != *segment);
                    return Ok(());
                }
                let at = at.unwrap_or_else(|| {
                    let value = Node { span, value: Value::Map(Vec::new()) };
                    entries.push(Entry { key: (*segment).to_owned(), key_span: part, value });
                    entries.len() - 1
                });
                // A replaced value is reported under the path that was typed.
                if last {
                    entries[at].key_span = part;
                }
                &mut entries[at].value
            }
        };
    }
    *node = value;
    Ok(())
}

/// A profile's changes, applied in order.
pub(crate) fn apply_profile(
    root: &mut Node,
    profile: &Entry,
    overrides: &mut Overrides,
    problems: &mut Problems,
) {
    let Value::Map(entries) = &profile.value.value else {
        let message = format!("expected a map of paths to values for profile `{}`", shorten(&profile.key));
        let hint = "quick: { load.duration: 5s, trials: 1 }";
        problems.push(Problem::new(profile.key_span, message).hint(hint));
        return;
    };
    for entry in entries {
        overrides.apply(root, &entry.key, entry.key_span, entry.value.clone(), problems);
    }
}

/// The node of `--trials N`.
pub(crate) fn number(sources: &mut Sources, option: &str, number: u32) -> (Span, Node) {
    let text = number.to_string();
    let source = sources.add(&format!("{option} {number}"), &text);
    let span = Span { source, start: 0, end: text.len() as u32 };
    (span, Node { span, value: Value::Scalar(ScalarKind::Number, text) })
}

/// The node of a map that an option represents.
pub(crate) fn map<const N: usize>(span: Span, entries: [(&str, Node); N]) -> Node {
    let entry = |(key, value): (&str, Node)| Entry { key: key.to_owned(), key_span: span, value };
    Node { span, value: Value::Map(entries.map(entry).into()) }
}

/// The node of a list of texts.
pub(crate) fn texts<'t>(
    sources: &mut Sources,
    option: &str,
    texts: impl Iterator<Item = &'t String>,
) -> (Span, Node) {
    let texts: Vec<&str> = texts.map(String::as_str).collect();
    let all = texts.join(" ");
    let source = sources.add(&format!("{option} {all}"), &all);
    let mut start = 0;
    let mut item = |text: &&str| {
        let span = Span { source, start, end: start + text.len() as u32 };
        start = span.end + 1;
        Node { span, value: Value::Scalar(ScalarKind::Text, (*text).to_owned()) }
    };
    let items = texts.iter().map(&mut item).collect();
    let span = Span { source, start: 0, end: all.len() as u32 };
    (span, Node { span, value: Value::List(items) })
}
