//! The plan language as a page of the book, made from the table of keys that the reader and the schema use: it lists
//! exactly the keys that exist. Text out, nothing else.

use std::fmt::Write;

use crate::keys::{self, Key, Section, Shape};

/// The page, in Markdown: a table for each map of a plan, with links between them.
pub fn reference() -> String {
    let mut out = String::from(
        "# Every key of a plan\n\n<!-- Made from the table of keys in crates/plan. `UPDATE_REFERENCE=1 cargo \
         test -p loadlab-plan --test all reference` regenerates it. -->\n\nThis page is made from the table \
         that loadlab reads plans with, and so is the JSON Schema (`loadlab schema`). [The plan](plan.md) \
         explains what the keys are for, with examples. Keys in **bold** are required. A value may contain \
         `${…}` wherever it depends on a case or a component.\n",
    );
    for section in keys::SECTIONS {
        map(&mut out, section);
    }
    out
}

fn map(out: &mut String, section: &Section) {
    let _ = write!(out, "\n## {}\n\n{}", heading(section), section.doc);
    let at = places(section);
    if !at.is_empty() {
        let _ = write!(out, " Found at {}.", at.join(", "));
    }
    out.push_str("\n\n| key | value | |\n|---|---|---|\n");
    for key in section.keys {
        let name = match section.required.contains(&key.name) {
            true => format!("**`{}`**", key.name),
            false => format!("`{}`", key.name),
        };
        let _ = writeln!(out, "| {name} | {} | {} |", cell(&value(&key.shape)), cell(key.doc));
    }
    rules(out, section);
}

/// The rules between keys.
fn rules(out: &mut String, section: &Section) {
    let listed = |keys: &[&str], word: &str| {
        let quoted: Vec<String> = keys.iter().map(|k| format!("`{k}`")).collect();
        match quoted.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} {word} {last}", others.join(", ")),
            None => String::new(),
        }
    };
    let mut lines = Vec::new();
    for group in section.groups {
        lines.push(format!("One of {}: {}.", listed(group.keys, "or"), group.why));
    }
    for need in section.needs {
        lines.push(format!("`{}` goes with {}: {}.", need.key, listed(need.needs, "or"), need.hint));
    }
    if !lines.is_empty() {
        let _ = write!(out, "\n- {}\n", lines.join("\n- "));
    }
}

/// Where a map is used as a value: `load.journey`.
fn places(section: &Section) -> Vec<String> {
    let holds = |key: &&Key| inside(&key.shape).is_some_and(|s| s.id == section.id);
    let of = |outer: &'static Section| {
        outer
            .keys
            .iter()
            .filter(holds)
            .map(move |key| format!("[`{}.{}`](#{})", outer.id, key.name, heading(outer)))
    };
    keys::SECTIONS.iter().flat_map(|s| of(s)).collect()
}

/// The map inside a value.
fn inside(shape: &Shape) -> Option<&'static Section> {
    match shape {
        Shape::In(section)
        | Shape::SomeOf(section)
        | Shape::TextOr(section)
        | Shape::RateOr(section)
        | Shape::BoolOr(section)
        | Shape::CountOr(.., section) => Some(section),
        Shape::Think => Some(&keys::THINK),
        Shape::Body => Some(&keys::BODY),
        Shape::Expect => Some(&keys::EXPECT),
        Shape::Message => Some(&keys::WEBSOCKET_SEND),
        Shape::Matrix => Some(&keys::AXES),
        Shape::ListOf(inner) | Shape::MapOf(_, inner) => inside(inner),
        _ => None,
    }
}

fn heading(section: &Section) -> String {
    section.id.to_owned()
}

fn link(section: &Section) -> String {
    format!("[{}](#{})", section.id, heading(section))
}

/// A value's shape, in words.
fn value(shape: &Shape) -> String {
    let text = |text: &str| text.to_owned();
    match shape {
        Shape::Version => text("`1`"),
        Shape::Text => text("text"),
        Shape::Duration => text("duration: `300ms` `1m30s`"),
        Shape::DurationOrAuto => text("duration, or `auto`"),
        Shape::Think => format!("duration, or {}", link(&keys::THINK)),
        Shape::Between => text("shortest and longest duration: `[1s, 3s]`"),
        Shape::LevelRange => text("lowest and highest level: `1..500`"),
        Shape::Level => text("users: `50`, or a rate: `100/s`"),
        Shape::Size => text("size: `15MiB` `30kB`, or `none`"),
        Shape::Cpu => text("CPU: `50%` of a core, `1.5` cores, or `none`"),
        Shape::DurationOrNone => text("duration, or `none`"),
        Shape::ShareOrNone => text("share: `1%`, or `none`"),
        Shape::Share => text("share: `2%`"),
        Shape::CountOrNone => text("count from 1, or `none`"),
        Shape::ByteRate => text("bytes per second: `1MiB/s`, or `none`"),
        Shape::RateOrNone => text("rate: `1000/s` `30/m`, or `none`"),
        Shape::Rate => text("rate: `1000/s` `30/m`"),
        Shape::Count(least, most) => range(*least, *most),
        Shape::Bool => text("`true` or `false`"),
        Shape::Isolation => text("`true`, `false` or `shared`"),
        Shape::True => text("`true`"),
        Shape::OneOf(all) => all.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "),
        Shape::Port => text("port, or `auto`"),
        Shape::Command => text("shell line, or list of words"),
        Shape::Commands => text("shell line, or list of commands"),
        Shape::Status => text("status, or list of them"),
        Shape::Body => format!("text, or {}", link(&keys::BODY)),
        Shape::Any => text("anything"),
        Shape::Scalar => text("text, number or flag"),
        Shape::Matrix => format!("list of named cases, or {}", link(&keys::AXES)),
        Shape::Profile => text("values by path: `load.duration: 5s`"),
        Shape::In(section) | Shape::SomeOf(section) => link(section),
        Shape::TextOr(section) => format!("text, or {}", link(section)),
        Shape::Texts => text("text, or list of them"),
        Shape::Expect => format!("value, or {}", link(&keys::EXPECT)),
        Shape::RateOr(section) => format!("rate: `1000/s`, or {}", link(section)),
        Shape::BoolOr(section) => format!("`true`, `false`, or {}", link(section)),
        Shape::CountOr(least, most, section) => format!("{}, or {}", range(*least, *most), link(section)),
        Shape::Message => format!("text, or {}", link(&keys::WEBSOCKET_SEND)),
        Shape::ListOf(inner) => format!("list: {}", value(inner)),
        Shape::MapOf(_, inner) => format!("by name: {}", value(inner)),
    }
}

fn range(least: u64, most: u64) -> String {
    match most > 10_000_000 {
        true => format!("count from {least}"),
        false => format!("count, {least} to {most}"),
    }
}

/// A text that stays within its table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
