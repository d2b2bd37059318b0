//! Credentials that are written directly into a plan or a `--set`: where they are, so that the plan's text, options
//! and messages can be shown without them.
//!
//! Recognized by the names of their keys (`auth`, `password`, `Authorization` …) and by their place in a URL. A name
//! such as `${env.TOKEN}` is not a credential, but what is written beside it may be one.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::credentials::{self, is_secret_name, written_passwords_in};
use crate::text::node::{Node, ScalarKind, Value};
use crate::text::source::Sources;
use crate::text::span::Span;

/// Keys whose subkeys name what is searched for in answers, or cases.
const NOT_SENT: [&str; 6] = ["capture", "check", "expect", "matrix", "probes", "derive"];
/// Keys whose subkeys are names that the plan's author chooses: a component may be called `auth`.
const OF_NAMES: [&str; 2] = ["components", "loads"];

/// The credentials that were found.
#[derive(Default)]
pub(crate) struct Hidden {
    /// Values that must not be shown, wherever they appear.
    pub values: BTreeSet<String>,
    /// A scalar, and the parts of its text that are not shown.
    found: Vec<(Span, String, Vec<Range<usize>>)>,
}

/// A position in a tree.
#[derive(Clone, Copy)]
struct At<'k> {
    key: &'k str,
    /// Whether it is below `auth`.
    in_auth: bool,
    /// Whether names of keys have no meaning here.
    is_named: bool,
}

impl Hidden {
    /// Searches a tree at a path.
    pub fn find(&mut self, node: &Node, path: &str) {
        let at = path.split('.').fold(At { key: "", in_auth: false, is_named: true }, At::below);
        self.walk(node, at);
    }

    /// Hides a value that cannot be read, if it is where a credential belongs.
    pub fn hide_unread(&mut self, value: &str, span: Span, path: &str) {
        let at = path.split('.').fold(At { key: "", in_auth: false, is_named: true }, At::below);
        if at.is_secret() {
            self.found.push((span, value.to_owned(), std::iter::once(0..value.len()).collect()));
        }
    }

    fn walk(&mut self, node: &Node, at: At<'_>) {
        match &node.value {
            Value::Map(entries) => {
                for entry in entries {
                    // A profile's keys are paths.
                    self.walk(&entry.value, entry.key.split('.').fold(at, At::below));
                }
            }
            Value::List(items) => items.iter().for_each(|item| self.walk(item, at)),
            Value::Scalar(ScalarKind::Null | ScalarKind::Bool, _) => {}
            Value::Scalar(_, text) => self.scalar(node.span, text, at),
        }
    }

    fn scalar(&mut self, span: Span, text: &str, at: At<'_>) {
        let places = if !at.is_secret() || text.is_empty() {
            self.passwords(text, at.key)
        } else if credentials::has_names(text) {
            self.beside_names(text, at.key)
        } else {
            self.whole(text, at.key)
        };
        if !places.is_empty() {
            self.found.push((span, text.to_owned(), places));
        }
    }

    /// The passwords in a text's URLs.
    fn passwords(&mut self, text: &str, key: &str) -> Vec<Range<usize>> {
        let places = written_passwords_in(key, text);
        for place in &places {
            self.register(&text[place.clone()]);
        }
        places
    }

    /// A credential without names.
    fn whole(&mut self, text: &str, key: &str) -> Vec<Range<usize>> {
        let places = credentials::places(key, text);
        for place in &places {
            self.register(&text[place.clone()]);
        }
        for part in credentials::parts(text).iter().skip(1) {
            self.register(part);
        }
        places
    }

    /// What a credential has beside names. The plan is shown without any of it, but only what is likely to be secret by
    /// itself is masked everywhere. Of a URL, only passwords count.
    fn beside_names(&mut self, text: &str, key: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for place in credentials::places(key, text) {
            let value = &text[place.clone()];
            if value.contains("://") {
                let passwords = self.passwords(value, key).into_iter();
                found.extend(passwords.map(|at| place.start + at.start..place.start + at.end));
                continue;
            }
            for part in credentials::written_out(text, place) {
                if credentials::is_likely_secret(key, &text[part.clone()]) {
                    self.register(&text[part.clone()]);
                }
                found.push(part);
            }
        }
        // A plain scalar that began with asterisks would be an alias, so its names are hidden, too.
        match found.first() {
            Some(first) if first.start == 0 => std::iter::once(0..text.len()).collect(),
            _ => found,
        }
    }

    /// Masks a value wherever it appears: as written, and as sent, where a `$${` is a `${`.
    fn register(&mut self, value: &str) {
        if value.contains("$${") {
            self.values.insert(value.replace("$${", "${"));
        }
        self.values.insert(value.to_owned());
    }

    /// Spans of the sources that are not shown.
    pub fn spans(&self, sources: &Sources) -> Vec<Span> {
        let all = self
            .found
            .iter()
            .flat_map(|(span, text, places)| spans_of(sources.text(span.source), *span, text, places));
        all.collect()
    }
}

impl<'k> At<'k> {
    fn is_secret(self) -> bool {
        self.is_named && (is_secret_name(self.key) || self.in_auth && self.key != "user")
    }

    fn below(self, key: &'k str) -> At<'k> {
        let is_index = key.bytes().all(|b| b.is_ascii_digit());
        At {
            key: if is_index { self.key } else { key },
            in_auth: self.in_auth || key == "auth" && !OF_NAMES.contains(&self.key),
            is_named: self.is_named && !NOT_SENT.contains(&key),
        }
    }
}

/// Where places of a scalar's text are in the source. The scalar may be quoted, folded or a block, whose span is the
/// first line: if it is not there literally, its parts are searched for, those that are not found word by word, and if
/// even the words are missing, the whole span is hidden.
fn spans_of(source: &str, span: Span, text: &str, places: &[Range<usize>]) -> Vec<Span> {
    let mut from = span.start as usize;
    if let Some(at) = source.get(from..span.end as usize).and_then(|source| source.find(text)) {
        let here = |place: &Range<usize>| {
            let (start, end) = (from + at + place.start, from + at + place.end);
            Span { start: start as u32, end: end as u32, ..span }
        };
        return places.iter().map(here).collect();
    }
    let (mut found, mut last) = (Vec::new(), None);
    for place in places {
        let part = &text[place.clone()];
        // With what is before it in a URL, or since the last place: the same word may be the user's name, or part of
        // `${env.NAME}`.
        let since = text[..place.start].rfind("://").max(last).unwrap_or(place.start);
        let context = &text[since..place.end];
        last = Some(place.end);
        let rest = source.get(from..span.end as usize).unwrap_or_default();
        let in_context = rest.find(context).map(|at| at + context.len() - part.len());
        let within = in_context.or_else(|| rest.find(part));
        if let Some(at) = within {
            from += at;
            found.push(Span { start: from as u32, end: (from + part.len()) as u32, ..span });
            from += part.len();
            continue;
        }
        for word in part.split_whitespace() {
            match source.get(from..).and_then(|text| text.find(word)) {
                // A block's lines are consecutive: a match further away is something else.
                Some(at) if source[from..from + at].trim().len() <= 2 => {
                    let is_next = !source[from..from + at].contains('\n');
                    let end = (from + at + word.len()) as u32;
                    match found.last_mut() {
                        Some(last) if is_next && last.end as usize == from && at > 0 => last.end = end,
                        _ => found.push(Span { start: (from + at) as u32, end, ..span }),
                    }
                    from = end as usize;
                }
                _ => {
                    found.push(span);
                    break;
                }
            }
        }
    }
    found
}
