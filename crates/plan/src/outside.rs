//! A plan's inputs from outside: `${env.NAME}` and `${file:PATH}`, secret unless marked `public:`.
//!
//! This crate reads neither environment nor files. [`crate::Plan::asks_for`] lists what a plan asks for, the caller
//! provides the values in [`Outside`], and the reader puts them in. A secret's value goes into requests and commands
//! only: wherever a text is shown, the secret appears by its name.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::template::{Piece, pieces};
use crate::text::shorten::shorten;

/// Maximum length of a value, in bytes.
pub const MOST_BYTES: usize = 64 * 1024;

/// A value that a plan asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// `${env.NAME}`: an environment variable.
    Env(String),
    /// `${file:PATH}`: a file's content, the path relative to the plan's folder unless it is absolute.
    File(String),
}

/// As in the plan, without braces.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Env(name) => write!(f, "env.{name}"),
            Reference::File(path) => write!(f, "file:{path}"),
        }
    }
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The environment variable is not set.
    Unset,
    /// The value is not UTF-8.
    NotText,
    /// The value has more than [`MOST_BYTES`].
    TooLong,
    /// The file cannot be read, with the system's reason.
    Unreadable(String),
}

/// Values for what a plan asks for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Outside {
    values: BTreeMap<Reference, Result<String, Missing>>,
}

impl Outside {
    /// Provides a value, or the reason why there is none. One trailing newline of a file's content is removed.
    pub fn give(&mut self, reference: Reference, value: Result<String, Missing>) {
        let value = value.map(|text| match reference {
            Reference::Env(_) => text,
            Reference::File(_) => without_newline(text),
        });
        self.values.insert(reference, value);
    }

    pub(crate) fn get(&self, reference: &Reference) -> Result<&str, &Missing> {
        self.values.get(reference).map_or(Err(&Missing::Unset), |value| value.as_deref())
    }
}

/// Shows no value.
impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// A name in a text that refers to something outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutsideName {
    pub reference: Reference,
    pub is_public: bool,
    /// `raw(…)`: put in without escaping.
    pub is_raw: bool,
}

/// What a name between `${` and `}` asks for from outside; `None` if it is another kind of name, or message and hint
/// if it is malformed.
pub(crate) fn asked(name: &str) -> Option<Result<OutsideName, (String, String)>> {
    let inner = name.strip_prefix("raw").and_then(|n| n.trim_start().strip_prefix('(')?.strip_suffix(')'));
    let is_raw = inner.is_some();
    let inner = inner.unwrap_or(name).trim();
    let public = inner.strip_prefix("public:").map(str::trim_start);
    let is_public = public.is_some();
    let inner = public.unwrap_or(inner);
    let shown = shorten(name);
    let wrong = |message: String, hint: &str| Some(Err((message, hint.to_owned())));
    const FORMS: &str = "`${env.NAME}` or `${file:PATH}`, and `${public:env.NAME}` for what is not a secret";
    let reference = if let Some(variable) = inner.strip_prefix("env.") {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let head = variable.chars().next().is_some_and(|c| !c.is_ascii_digit());
        if !head || !variable.chars().all(word) {
            let message = format!("`{}` is not the name of an environment variable", shorten(variable));
            return wrong(message, "letters, digits and `_`, not starting with a digit");
        }
        Reference::Env(variable.to_owned())
    } else if let Some(path) = inner.strip_prefix("file:") {
        let path = path.trim();
        if path.is_empty() || path.contains(char::is_control) {
            return wrong(format!("`${{{shown}}}` does not name a file"), "`${file:PATH}`");
        }
        Reference::File(path.to_owned())
    } else if is_public {
        return wrong(format!("`${{{shown}}}` is neither an environment variable nor a file"), FORMS);
    } else if inner == "env" || inner == "file" || inner.starts_with("env:") || inner.starts_with("file.") {
        return wrong(
            format!("`${{{shown}}}` is not a valid reference to an environment variable or file"),
            FORMS,
        );
    } else {
        return None;
    };
    Some(Ok(OutsideName { reference, is_public, is_raw }))
}

/// Whether a text contains names and all of them ask for something outside.
pub(crate) fn is_outside_only(text: &str) -> bool {
    let names = |piece: &Piece<'_>| match piece {
        Piece::Text(_) => true,
        Piece::Name(name) => asked(name).is_some(),
    };
    pieces(text).is_ok_and(|list| list.iter().all(names))
}

/// Adds the values that a text takes from outside and marks as public, by what asks for them.
pub(crate) fn collect_public(text: &str, outside: &Outside, found: &mut BTreeMap<String, String>) {
    for piece in pieces(text).unwrap_or_default() {
        let Piece::Name(name) = piece else { continue };
        if let Some(Ok(OutsideName { reference, is_public: true, .. })) = asked(name)
            && let Ok(value) = outside.get(&reference)
        {
            found.insert(reference.to_string(), value.to_owned());
        }
    }
}

/// Adds what a text asks for; malformed names are reported when the text is read.
pub(crate) fn collect(text: &str, found: &mut Vec<Reference>) {
    for piece in pieces(text).unwrap_or_default() {
        let Piece::Name(name) = piece else { continue };
        if let Some(Ok(OutsideName { reference, .. })) = asked(name)
            && !found.contains(&reference)
        {
            found.push(reference);
        }
    }
}
