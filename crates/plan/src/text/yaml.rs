//! YAML text to [`Node`]: the only module that uses the YAML library.
//!
//! It refuses what no plan needs and what could make it explode: duplicate keys, application tags, several documents,
//! deep nesting, and aliases that multiply. Types are those of YAML 1.2 (`yes` and `on` are texts).

use std::fmt;

use serde::Deserialize;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, Spanned, options};

use crate::text::error::Problem;
use crate::text::node::{Entry, Node, ScalarKind, Value};
use crate::text::span::Span;

/// The longest text, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Maximum number of scalars, lists and maps in a plan, counting expanded aliases.
pub(crate) const MAX_NODES: usize = 50_000;

/// Maximum nesting of lists and maps.
const MAX_DEPTH: usize = 40;

/// Reads a text. Spans refer to `source` and are shifted by `offset` bytes, for a value inside a longer text.
pub(crate) fn parse(text: &str, source: u32, offset: u32) -> Result<Node, Problem> {
    let whole = Span { source, start: offset, end: offset };
    if text.len() > MAX_BYTES {
        let message = format!("the plan has {} bytes; at most {MAX_BYTES} are read", text.len());
        return Err(Problem::new(whole, message));
    }
    // Some characters (such as a byte order mark) are allowed only at the front; the text is kept whole, so offsets
    // stay right.
    let options = options! {
        budget: serde_saphyr::budget! {
            max_events: MAX_NODES * 4,
            max_nodes: MAX_NODES,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 2,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
            max_recorded_anchor_events: MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let read: Result<Spanned<Raw>, Error> = serde_saphyr::from_str_with_options(text, options);
    let maker = Maker { text, source, offset };
    match read {
        Ok(raw) => Ok(maker.node(raw)),
        Err(error) => Err(maker.problem(&error)),
    }
}

/// The library's output; scalars by type only, their text is taken from the source.
enum Raw {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<YamlKey>, Spanned<Raw>)>),
}

/// A key: any scalar, as text.
struct YamlKey(String);

impl<'de> Deserialize<'de> for YamlKey {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(YamlKey)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a map")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

/// Turns what was read into nodes with spans in our sources.
struct Maker<'a> {
    text: &'a str,
    source: u32,
    offset: u32,
}

impl Maker<'_> {
    fn node(&self, raw: Spanned<Raw>) -> Node {
        let span = self.span(raw.defined);
        let value = match raw.value {
            Raw::Null => Value::Scalar(ScalarKind::Null, String::new()),
            Raw::Bool(b) => Value::Scalar(ScalarKind::Bool, b.to_string()),
            Raw::Number(canonical) => Value::Scalar(ScalarKind::Number, self.as_written(span, canonical)),
            Raw::Text(text) => Value::Scalar(ScalarKind::Text, text),
            Raw::List(items) => Value::List(items.into_iter().map(|n| self.node(n)).collect()),
            Raw::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        key_span: self.span(key.defined),
                        key: key.value.0,
                        value: self.node(value),
                    })
                    .collect(),
            ),
        };
        Node { span, value }
    }

    /// `1.0` stays `1.0`: a number's text names cases and files.
    fn as_written(&self, span: Span, canonical: String) -> String {
        let start = (span.start - self.offset) as usize;
        let end = (span.end - self.offset) as usize;
        let written = self.text.get(start..end).unwrap_or("").trim();
        let numeric = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let is_number = !written.is_empty() && written.chars().all(numeric);
        if is_number { written.to_owned() } else { canonical }
    }

    fn span(&self, location: Location) -> Span {
        let bytes = location.span().byte_offset().zip(location.span().byte_len());
        let (start, end) = match bytes {
            Some((at, length)) => (at, at.saturating_add(length)),
            None => self.by_line(location),
        };
        let limit = self.text.len() as u64;
        let (start, end) = (start.min(limit), end.min(limit));
        // A plain scalar's span may extend to the comment or the line's end.
        let shown = self.text.get(start as usize..end as usize).unwrap_or("");
        let end = start + shown.trim_end().len() as u64;
        Span { source: self.source, start: self.offset + start as u32, end: self.offset + end as u32 }
    }

    /// The byte range of a location without byte offsets.
    fn by_line(&self, location: Location) -> (u64, u64) {
        let line = location.line().saturating_sub(1) as usize;
        let before: usize = self.text.split_inclusive('\n').take(line).map(str::len).sum();
        let column = location.column().saturating_sub(1) as usize;
        let within: usize =
            self.text[before..].chars().take(column).take_while(|c| *c != '\n').map(char::len_utf8).sum();
        ((before + within) as u64, (before + within) as u64)
    }

    fn problem(&self, error: &Error) -> Problem {
        let span = error
            .location()
            .map_or(Span { source: self.source, start: self.offset, end: self.offset }, |l| self.span(l));
        let mut error = error.without_snippet();
        while let Error::AliasError { error: inner, .. } = error {
            error = inner.without_snippet();
        }
        match error {
            Error::DuplicateMappingKey { key, .. } => {
                let key = key
                    .as_deref()
                    .map_or("a key".to_owned(), |k| format!("`{}`", crate::text::shorten::shorten(k)));
                Problem::new(span, format!("{key} appears twice in this map")).hint("remove one of the two")
            }
            Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. } => {
                let message = format!(
                    "the plan is too large or too deeply nested: at most {MAX_NODES} values with aliases replayed, {MAX_DEPTH} levels"
                );
                Problem::new(span, message)
            }
            Error::MultipleDocuments { .. } => {
                Problem::new(span, "a plan is one YAML document; a second one starts here")
                    .hint("remove the `---`")
            }
            Error::RecursiveReferencesRequireWeakTypes { .. } => {
                Problem::new(span, "an alias refers to a value that contains it")
            }
            other => {
                let message = format!("this is not YAML: {}", without_position(&other.to_string()));
                Problem::new(span, message).maybe_hint(self.brace_hint(span))
            }
        }
    }

    /// The most frequent mistake: `{ cpu: ${case.cpu} }` – there the inner braces are YAML's own.
    fn brace_hint(&self, span: Span) -> Option<String> {
        let at = ((span.start - self.offset) as usize).min(self.text.len());
        let from = self.text.as_bytes()[..at].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let line = self.text.get(from..)?.lines().next()?;
        let slip =
            line.find("${").is_some_and(|i| !line[..i].ends_with(['"', '\'']) && line[..i].contains('{'));
        slip.then(|| "inside `{` and `}`, put values with `${…}` in quotes".to_owned())
    }
}

/// The library's message without its position, which our message begins with.
fn without_position(message: &str) -> String {
    let line = message.lines().next().unwrap_or("");
    let line = line.find(" at line ").map_or(line, |i| &line[..i]);
    line.trim_end_matches('.').chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::source::Sources;

    fn shown(text: &str) -> String {
        let mut sources = Sources::default();
        let source = sources.add("plan.yaml", text);
        match parse(text, source, 0) {
            Ok(node) => draw(&node, &sources),
            Err(problem) => problem.render(&sources).to_string(),
        }
    }

    fn draw(node: &Node, sources: &Sources) -> String {
        let at = sources.slice(node.span).lines().next().unwrap_or("").to_owned();
        match &node.value {
            Value::Scalar(kind, text) => format!("{kind:?} {text:?} at {at:?}\n"),
            Value::List(items) => items.iter().map(|n| format!("- {}", draw(n, sources))).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|e| format!("{} at {:?}: {}", e.key, sources.slice(e.key_span), draw(&e.value, sources)))
                .collect(),
        }
    }

    #[test]
    fn scalars_keep_their_text_and_place() {
        let text = "a: 1.0 # why\nb: yes\nc: 'x: y'\nd: 1_000\ne: 1%\nf: 0x10\ng: ~\nh: true\ni: \"q\\\"ü\"\nj: |\n  two\n  lines\nk: &n 10s\nl: *n\nm: 007\nn: -3\no: !!str 5\np: .inf\n";
        insta::assert_snapshot!(shown(text), @r#"
        a at "a": Number "1.0" at "1.0"
        b at "b": Text "yes" at "yes"
        c at "c": Text "x: y" at "'x: y'"
        d at "d": Number "1_000" at "1_000"
        e at "e": Text "1%" at "1%"
        f at "f": Number "0x10" at "0x10"
        g at "g": Null "" at "~"
        h at "h": Bool "true" at "true"
        i at "i": Text "q\"ü" at "\"q\\\"ü\""
        j at "j": Text "two\nlines\n" at "two"
        k at "k": Text "10s" at "10s"
        l at "l": Text "10s" at "10s"
        m at "m": Number "007" at "007"
        n at "n": Number "-3" at "-3"
        o at "o": Text "5" at "5"
        p at "p": Text ".inf" at ".inf"
        "#);
    }

    #[test]
    fn broken_yaml() {
        insta::assert_snapshot!(shown("a: 1\na: 2\n"), @r"
        plan.yaml:2:1: `a` appears twice in this map
           |
         2 | a: 2
           | ^
          hint: remove one of the two
        ");
        insta::assert_snapshot!(shown("a: { cpu: ${case.cpu} }\n"), @r"
        plan.yaml:1:12: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}'
           |
         1 | a: { cpu: ${case.cpu} }
           |            ^
          hint: inside `{` and `}`, put values with `${…}` in quotes
        ");
        insta::assert_snapshot!(shown("a: [1, 2\nb: 3\n"), @r"
        plan.yaml:2:2: this is not YAML: illegal placement of ':' indicator
           |
         2 | b: 3
           |  ^
        ");
        insta::assert_snapshot!(shown("a: 1\n---\nb: 2\n"), @r"
        plan.yaml:3:1: a plan is one YAML document; a second one starts here
           |
         3 | b: 2
           | ^
          hint: remove the `---`
        ");
        insta::assert_snapshot!(shown("a: !thing 3\n"), @r"
        plan.yaml:1:11: this is not YAML: unsupported tag `!thing`
           |
         1 | a: !thing 3
           |           ^
        ");
        insta::assert_snapshot!(shown("a: *nowhere\n"), @r"
        plan.yaml:1:4: this is not YAML: alias references unknown anchor
           |
         1 | a: *nowhere
           |    ^
        ");
        insta::assert_snapshot!(shown("a: &a [*a]\n"), @r"
        plan.yaml:1:8: an alias refers to a value that contains it
           |
         1 | a: &a [*a]
           |        ^^
        ");
        insta::assert_snapshot!(shown("[a]: 1\n"), @r"
        plan.yaml:1:1: this is not YAML: expected string scalar
           |
         1 | [a]: 1
           | ^
        ");
        insta::assert_snapshot!(shown("\ta: 1\n"), @r#"a at "a": Number "1" at "1""#);
        insta::assert_snapshot!(shown(""), @r#"Null "" at """#);
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let p = i - 1;
            bomb.push_str(&format!("a{i}: &a{i} [*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p}]\n"));
        }
        assert!(shown(&bomb).contains("too large"), "{}", shown(&bomb));
        assert!(shown(&"[".repeat(10_000)).contains("plan.yaml:1:"));
        let deep: String = (0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(shown(&deep).contains("too deeply"), "{}", shown(&deep));
    }
}
