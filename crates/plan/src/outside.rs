//! What a plan takes from outside: `${env.NAME}` and `${file:PATH}`, secret unless marked `public:`.
//!
//! This crate reads neither environment nor files. [`crate::Plan::asks_for`] lists what a plan asks for, the caller gives the
//! values in [`Outside`], and the reader puts them in. A secret's value goes into requests and commands only: wherever a
//! text is shown it keeps its name.

use std::collections::BTreeMap;
use std::fmt;

use loadlab_record::secrets::LEAST_BYTES;

use crate::credentials;
use crate::error::Problem;
use crate::journey::{Escape, target};
use crate::node::{Kind, Node, shorten};
use crate::reader::{Reader, Resolved, Scope, When};
use crate::source::Span;
use crate::template::{Piece, pieces};

/// Most bytes of a value.
pub const MOST_BYTES: usize = 64 * 1024;

/// What a plan asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// `${env.NAME}`: an environment variable.
    Env(String),
    /// `${file:PATH}`: a file's content, the path starting in the plan's folder unless it is absolute.
    File(String),
}

/// As the plan has it, without braces.
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
    /// It is not UTF-8.
    NotText,
    /// It has more than [`MOST_BYTES`].
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
    /// Gives a value, or says why there is none. A file's content loses one newline at its end.
    pub fn give(&mut self, reference: Reference, value: Result<String, Missing>) {
        let value = value.map(|text| match reference {
            Reference::Env(_) => text,
            Reference::File(_) => without_newline(text),
        });
        self.values.insert(reference, value);
    }

    fn get(&self, reference: &Reference) -> Result<&str, &Missing> {
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

/// A name in a text that stands for something outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub reference: Reference,
    pub is_public: bool,
    /// `raw(…)`: put in without escaping.
    pub is_raw: bool,
}

/// What a name between `${` and `}` asks for from outside; `None` when it is another kind of name, and message and hint
/// when it is written wrongly.
pub(crate) fn asked(name: &str) -> Option<Result<Asked, (String, String)>> {
    let inner = name.strip_prefix("raw").and_then(|n| n.trim_start().strip_prefix('(')?.strip_suffix(')'));
    let is_raw = inner.is_some();
    let inner = inner.unwrap_or(name).trim();
    let public = inner.strip_prefix("public:").map(str::trim_start);
    let is_public = public.is_some();
    let inner = public.unwrap_or(inner);
    let shown = shorten(name);
    let wrong = |message: String, hint: &str| Some(Err((message, hint.to_owned())));
    const FORMS: &str = "`${env.NAME}` or `${file:PATH}`, and `${public:env.NAME}` for what is no secret";
    let reference = if let Some(variable) = inner.strip_prefix("env.") {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let head = variable.chars().next().is_some_and(|c| !c.is_ascii_digit());
        if !head || !variable.chars().all(word) {
            let message = format!("`{}` is not the name of an environment variable", shorten(variable));
            return wrong(message, "letters, digits and `_`, no digit in front");
        }
        Reference::Env(variable.to_owned())
    } else if let Some(path) = inner.strip_prefix("file:") {
        let path = path.trim();
        if path.is_empty() || path.contains(char::is_control) {
            return wrong(format!("`${{{shown}}}` names no file"), "`${file:PATH}`");
        }
        Reference::File(path.to_owned())
    } else if is_public {
        return wrong(format!("`${{{shown}}}` takes nothing from outside"), FORMS);
    } else if inner == "env" || inner == "file" || inner.starts_with("env:") || inner.starts_with("file.") {
        return wrong(format!("`${{{shown}}}` is not how a value from outside is written"), FORMS);
    } else {
        return None;
    };
    Some(Ok(Asked { reference, is_public, is_raw }))
}

/// Whether a text has names in it and all of them ask for something outside.
pub(crate) fn is_outside_only(text: &str) -> bool {
    let names = |piece: &Piece<'_>| match piece {
        Piece::Text(_) => true,
        Piece::Name(name) => asked(name).is_some(),
    };
    pieces(text).is_ok_and(|list| list.iter().all(names))
}

/// Adds what a text asks for; what is written wrongly is told when it is read.
pub(crate) fn collect(text: &str, found: &mut Vec<Reference>) {
    for piece in pieces(text).unwrap_or_default() {
        let Piece::Name(name) = piece else { continue };
        if let Some(Ok(Asked { reference, .. })) = asked(name)
            && !found.contains(&reference)
        {
            found.push(reference);
        }
    }
}

/// Where in a text a name stands.
pub(crate) struct Spot<'s> {
    /// The text.
    pub node: &'s Node,
    /// What is between the braces.
    pub name: &'s str,
    pub when: When,
    /// In the matrix, if the case brings the name in.
    pub origin: Option<Span>,
    /// An `@` follows: at the beginning of a URL it is user or password.
    pub is_user: bool,
}

impl Reader<'_> {
    /// Puts in what a name asks for from outside.
    pub fn put_outside(
        &mut self,
        asked: Result<Asked, (String, String)>,
        spot: &Spot<'_>,
        out: &mut Resolved,
    ) {
        out.kind = Kind::Text;
        let value = asked.map_err(Some).and_then(|asked| {
            let value = self.outside_value(&asked, spot)?;
            Ok((asked, value))
        });
        match value {
            Ok((asked, value)) => {
                let escape = escape_at(spot, &out.template.sample().0);
                let escape = if asked.is_raw { escape.raw() } else { escape };
                let value = escape.written(&value);
                match (spot.when, asked.is_public) {
                    // What is needed now becomes part of the plan, and is masked where that is shown.
                    (When::Now, _) | (When::Run | When::Url, true) => out.template.push_text(&value),
                    (_, is_public) => {
                        out.template.push_given(value, (!is_public).then(|| spot.name.to_owned()));
                    }
                }
            }
            Err(wrong) => {
                out.whole = false;
                if let Some((message, hint)) = wrong {
                    self.wrong_outside(spot, message, hint);
                }
            }
        }
    }

    /// The value; `Err(None)` where nobody has to be told that there is none.
    fn outside_value(&mut self, asked: &Asked, spot: &Spot<'_>) -> Result<String, Option<(String, String)>> {
        let Asked { reference, is_public, .. } = asked;
        let outside = self.outside;
        let value = match outside.get(reference) {
            Ok(value) => value,
            // A profile that nobody has chosen may ask for what is not here.
            Err(_) if self.is_lenient => return Err(None),
            Err(missing) => return Err(Some(missing_words(reference, missing))),
        };
        let is_header = matches!(spot.when, When::Request(Escape::Header));
        let bad = |c: char| if is_header { c.is_control() && c != '\t' } else { c == '\0' };
        if value.contains(bad) {
            let message = format!("the value of `${{{reference}}}` holds a line break or control character");
            let what =
                if is_header { "a header field is one line" } else { "a NUL character cannot stand here" };
            return Err(Some((message, what.to_owned())));
        }
        if *is_public {
            return Ok(value.to_owned());
        }
        if value.len() < LEAST_BYTES {
            let bytes = value.len();
            let message = format!(
                "the value of `${{{reference}}}` has {bytes} bytes: a secret has at least {LEAST_BYTES}, since it is masked wherever it appears"
            );
            return Err(Some((message, format!("if it is no secret, write `${{public:{reference}}}`"))));
        }
        self.used_secret = Some(spot.node.span);
        self.secrets.extend(credentials::parts(value));
        Ok(value.to_owned())
    }

    fn wrong_outside(&mut self, spot: &Spot<'_>, message: String, hint: String) {
        let here = self.inner_span(spot.node, spot.name);
        let problem = match (spot.origin, self.scope) {
            (Some(origin), Scope::Case(case)) => Problem::new(origin, message)
                .related(format!("used here, in case `{}`", case.name), spot.node.span),
            _ => Problem::new(here, message),
        };
        self.push(problem.hint(hint));
    }
}

fn missing_words(reference: &Reference, missing: &Missing) -> (String, String) {
    let what = match reference {
        Reference::Env(name) => format!("the environment variable `{}`", shorten(name)),
        Reference::File(path) => format!("the file `{}`", shorten(path)),
    };
    match (missing, reference) {
        (Missing::Unset, Reference::Env(name)) => {
            (format!("{what} is not set"), format!("set it for loadlab: `export {}=…`", shorten(name)))
        }
        (Missing::Unset, Reference::File(_)) => {
            (format!("{what} was not read"), "values of files are given from outside".to_owned())
        }
        (Missing::NotText, _) => {
            (format!("{what} is not UTF-8 text"), "encode it, in base64 for example".to_owned())
        }
        (Missing::TooLong, _) => {
            let message = format!("{what} has more than {} KiB", MOST_BYTES / 1024);
            (message, "a body from a file is `body: { file: PATH }`".to_owned())
        }
        (Missing::Unreadable(why), _) => {
            (format!("cannot read {what}: {why}"), "the path starts in the plan's folder".to_owned())
        }
    }
}

/// What a place does to a value. The beginning of a URL takes it as it is, since it may be all of it, but for user and
/// password.
fn escape_at(spot: &Spot<'_>, so_far: &str) -> Escape {
    match spot.when {
        When::Now | When::Run => Escape::Raw,
        When::Url | When::Request(Escape::Url | Escape::UrlRaw) if !target::has_path(so_far) => {
            if spot.is_user && so_far.contains("://") { Escape::Url } else { Escape::Raw }
        }
        When::Url => Escape::Url,
        When::Request(escape) => escape,
    }
}

impl Escape {
    /// The same place for a value that is put in as it is.
    pub(crate) fn raw(self) -> Escape {
        match self {
            Escape::Url => Escape::UrlRaw,
            Escape::Json | Escape::Form => Escape::Raw,
            other => other,
        }
    }

    /// A value as its place wants it.
    fn written(self, value: &str) -> String {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        match self {
            Escape::Raw | Escape::Header => value.to_owned(),
            Escape::Url => percent(value, unreserved),
            Escape::UrlRaw | Escape::UrlTarget => percent(value, |b| b > b' ' && b < 0x7f && b != b'#'),
            Escape::Json => crate::system::escaped(value),
            Escape::Form => crate::journey::body::form_encoded(value),
        }
    }
}

fn percent(value: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let one = |b: u8| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    value.bytes().map(one).collect()
}
