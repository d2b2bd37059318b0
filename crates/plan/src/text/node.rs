//! A plan as a tree: scalars, lists and maps, each with its place in the text.
//!
//! Scalars keep their text as written (`1.0`, `1%`, `010`), because units and names are read from it; YAML's
//! interpretation is only noted beside it. The tree knows nothing of plans.

use crate::text::shorten::shorten;
use crate::text::span::Span;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub span: Span,
    pub value: Value,
}

/// A node's content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Scalar(ScalarKind, String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// YAML's interpretation of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Null,
    Bool,
    Number,
    Text,
}

/// A key of a map with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

impl Node {
    /// The value under a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// The entries of a map; none for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(ScalarKind::Null, _))
    }

    /// A description of what it is, for messages.
    pub fn called(&self) -> String {
        match &self.value {
            Value::Scalar(ScalarKind::Null, _) => "nothing".to_owned(),
            Value::Scalar(_, text) => format!("`{}`", shorten(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// Number of nodes in this tree.
    pub fn size(&self) -> usize {
        match &self.value {
            Value::Scalar(..) => 1,
            Value::List(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Value::Map(entries) => 1 + entries.iter().map(|e| e.value.size()).sum::<usize>(),
        }
    }

    /// Calls `f` with every scalar's text.
    pub fn each_text(&self, f: &mut dyn FnMut(&str)) {
        match &self.value {
            Value::Scalar(_, text) => f(text),
            Value::List(items) => items.iter().for_each(|n| n.each_text(f)),
            Value::Map(entries) => entries.iter().for_each(|e| e.value.each_text(f)),
        }
    }
}
