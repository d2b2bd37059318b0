//! Reads checks: statuses, header fields, texts and JSON values of the body, its size, the time.

use loadlab_record::spec::bound::{Bound, Operator};
use loadlab_record::spec::escape::Escape;
use loadlab_record::spec::variable::Variable;
use loadlab_record::text::units;

use crate::keys;
use crate::keys::journey::EXPECT;
use crate::model::journey::{Checks, Expect};
use crate::model::template::{Piece, Template, pieces};
use crate::read::journey::capture::check_pointer;
use crate::read::reader::{Fields, Reader, Resolved, Scalar, When};
use crate::read::values::whole_number;
use crate::text::error::Problem;
use crate::text::node::{Entry, Node, ScalarKind, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Reads a step's checks: good statuses, if given, and the others.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> (Option<Vec<u16>>, Checks) {
    let Some(node) = fields.get("check") else { return (None, Checks::default()) };
    let Some(fields) = r.fields(node, &keys::CHECK, fields.key_span("check")) else {
        return (None, Checks::default());
    };
    if let Value::Map(entries) = &node.value
        && entries.is_empty()
    {
        let problem = Problem::new(node.span, "`check` checks nothing");
        r.push(problem.hint("leave it out: every status below 400 is then ok"));
    }
    let statuses = fields.get("status").and_then(|n| read_statuses(r, n));
    (statuses, read_checks(r, &fields))
}

/// Reads the checks of a WebSocket message: it has no head, and its time limit is `within`. Texts with variables that
/// the message must contain are returned separately.
pub(crate) fn read_message(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<(Checks, Vec<Template>)> {
    let fields = r.fields(node, &keys::CHECK, at)?;
    if let Value::Map(entries) = &node.value
        && entries.is_empty()
    {
        r.push(Problem::new(node.span, "`expect` expects nothing").hint("leave it out"));
    }
    for key in ["status", "header", "time"] {
        if let Some(entry) = fields.entry(key) {
            let problem = Problem::new(entry.key_span, format!("a message has no `{key}`"));
            r.push(problem.hint("use `contains`, `json` or `size`"));
        }
    }
    let (texts, echoes) = match fields.get("contains") {
        Some(node) => read_echoes(r, node),
        None => (Vec::new(), Vec::new()),
    };
    let values = read_values(r, &fields);
    if values.json.iter().any(|(_, e)| matches!(e, Expect::Written(_))) {
        let problem = Problem::new(node.span, "values of messages cannot be compared with variables yet");
        r.push(problem.hint("`contains` may hold variables"));
    }
    Some((Checks { contains: texts, ..values }, echoes))
}

/// Reads the texts that a message must contain: those without variables, and those with.
fn read_echoes(r: &mut Reader<'_>, node: &Node) -> (Vec<String>, Vec<Template>) {
    let items = items_of(r, node);
    let (mut texts, mut echoes) = (Vec::new(), Vec::new());
    for item in items {
        let Some(text) = r.request_text(item, "a text", Escape::Raw) else { continue };
        match text.as_text() {
            Some("") => r.push(Problem::new(item.span, "every message contains an empty text")),
            Some(text) => texts.push(text.to_owned()),
            None => echoes.push(text),
        }
    }
    (texts, echoes)
}

/// The items of a list, or a single text.
fn items_of<'n>(r: &mut Reader<'_>, node: &'n Node) -> &'n [Node] {
    match &node.value {
        Value::List(items) if items.is_empty() => {
            r.push(Problem::new(node.span, "no text to look for"));
            items
        }
        Value::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}

fn read_checks(r: &mut Reader<'_>, fields: &Fields<'_>) -> Checks {
    let mut checks = read_values(r, fields);
    for item in fields.get("contains").map_or(&[][..], |node| items_of(r, node)) {
        if let Some(written) = written(r, item) {
            checks.contains_written.extend(written);
            continue;
        }
        let Some(text) = r.scalar(item, "a text") else { continue };
        if text.text.is_empty() {
            r.wrong(&text, "every body contains an empty text", None);
        } else {
            checks.contains.push(text.text);
        }
    }
    checks
}

/// Reads all checks but texts in the body.
fn read_values(r: &mut Reader<'_>, fields: &Fields<'_>) -> Checks {
    let mut checks = Checks::default();
    if let Some(node) = fields.get("header") {
        for entry in r.map(node, "a map of header fields") {
            let expect = read_header(r, entry);
            checks.headers.extend(expect.map(|e| (entry.key.clone(), e)));
        }
    }
    if let Some(node) = fields.get("json") {
        for entry in r.map(node, "a map of JSON pointers to values, such as `{ /id: 3 }`") {
            let (text, span) = (entry.key.clone(), entry.key_span);
            let pointer = Scalar { text, kind: ScalarKind::Text, span, origin: None };
            let expect = read_expect(r, entry);
            if check_pointer(r, &pointer) {
                checks.json.extend(expect.map(|e| (entry.key.clone(), e)));
            }
        }
    }
    checks.size = read_bounds(r, fields.get("size"), &SIZE);
    checks.time = read_bounds(r, fields.get("time"), &TIME);
    checks
}

/// Reads a text that varies from request to request; `None` if it does not vary, `Some(None)` if it is not allowed to.
fn written(r: &mut Reader<'_>, node: &Node) -> Option<Option<Template>> {
    let Value::Scalar(kind, text) = &node.value else { return None };
    let varies = pieces(text).ok()?.iter().any(|piece| match piece {
        Piece::Name(name) => !name.starts_with("case.") && *name != "plan.dir",
        Piece::Text(_) => false,
    });
    if !varies {
        return None;
    }
    let resolved = r.resolve(node, *kind, text, When::Request(Escape::Raw));
    let Some(Resolved { template, .. }) = resolved else { return Some(None) };
    let known = |v: &Variable| {
        matches!(v, Variable::User | Variable::Iteration | Variable::Feed { .. } | Variable::Capture { .. })
    };
    if !template.variables().all(|v| known(&v)) {
        let problem = Problem::new(node.span, "this variable has a different value here than in the request");
        r.push(problem.hint("compare with what was captured, a feed's column, `${user}` or `${iteration}`"));
        return Some(None);
    }
    Some(Some(template))
}

/// Reads the expected value of a header field. Such values are texts, whatever they look like.
fn read_header(r: &mut Reader<'_>, entry: &Entry) -> Option<Expect> {
    match &entry.value.value {
        Value::Scalar(ScalarKind::Null, text) => Some(Expect::Text(text.clone())),
        Value::Scalar(..) => match written(r, &entry.value) {
            Some(written) => written.map(Expect::Written),
            None => Some(Expect::Text(r.scalar(&entry.value, "a value")?.text)),
        },
        _ => read_expect(r, entry),
    }
}

fn read_expect(r: &mut Reader<'_>, entry: &Entry) -> Option<Expect> {
    let node = &entry.value;
    match &node.value {
        Value::Scalar(ScalarKind::Null, _) => return Some(Expect::Null),
        Value::Scalar(..) => {
            if let Some(written) = written(r, node) {
                return written.map(Expect::Written);
            }
            let scalar = r.scalar(node, "a value")?;
            return Some(match scalar.kind {
                ScalarKind::Number => Expect::Number(crate::text::encode::json_number(&scalar.text)),
                ScalarKind::Bool => Expect::Bool(scalar.text == "true"),
                _ => Expect::Text(scalar.text),
            });
        }
        Value::List(_) => {
            let message = "expected a value, or `{exists: …}` and the like, found a list";
            r.push(Problem::new(node.span, message).hint("check its items: `/list/0`"));
            return None;
        }
        Value::Map(_) => {}
    }
    let fields = r.fields(node, &EXPECT, entry.key_span)?;
    if let Some(exists) = r.flag(&fields, "exists") {
        return Some(Expect::Exists(exists));
    }
    if let Some(text) = r.text(&fields, "contains") {
        return Some(Expect::Contains(text));
    }
    let bounds = read_bounds(r, fields.get("number"), &NUMBER);
    (!bounds.is_empty()).then_some(Expect::Within(bounds))
}

fn read_statuses(r: &mut Reader<'_>, node: &Node) -> Option<Vec<u16>> {
    let items = match &node.value {
        Value::List(items) if items.is_empty() => {
            r.push(Problem::new(node.span, "an empty list accepts no status"));
            return None;
        }
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut statuses = Vec::new();
    for item in items {
        let Some(scalar) = r.scalar(item, "a status such as `200`") else { continue };
        match whole_number(&scalar.text) {
            Some(n @ 100..=599) => statuses.push(n as u16),
            _ => {
                let message =
                    format!("`{}` is not a status: a number from 100 to 599", shorten(&scalar.text));
                r.wrong(&scalar, message, None);
            }
        }
    }
    Some(statuses)
}

/// A quantity that is compared.
struct Measure {
    example: &'static str,
    read: fn(&str) -> Option<f64>,
}

const SIZE: Measure = Measure { example: "`< 10kB`", read: |t| units::parse_bytes(t).ok().map(|n| n as f64) };
const TIME: Measure =
    Measure { example: "`< 200ms`", read: |t| units::parse_duration_ns(t).ok().map(|n| n as f64) };
const NUMBER: Measure =
    Measure { example: "`> 3`", read: |t| t.parse().ok().filter(|n: &f64| n.is_finite()) };

/// Reads comparisons joined by `and`; empty if something is wrong.
fn read_bounds(r: &mut Reader<'_>, node: Option<&Node>, measure: &Measure) -> Vec<Bound> {
    let Some(node) = node else { return Vec::new() };
    let Some(scalar) = r.scalar(node, &format!("a comparison such as {}", measure.example)) else {
        return Vec::new();
    };
    let mut bounds = Vec::new();
    for part in scalar.text.split(" and ") {
        match bound(part.trim(), measure) {
            Ok(bound) => bounds.push(bound),
            Err((message, hint)) => {
                r.wrong(&scalar, message, Some(hint));
                return Vec::new();
            }
        }
    }
    bounds
}

fn bound(text: &str, measure: &Measure) -> Result<Bound, (String, String)> {
    let found = Operator::ALL
        .into_iter()
        .find_map(|(sign, op)| text.strip_prefix(sign).map(|rest| (op, rest.trim())));
    let Some((operator, rest)) = found else {
        let message = format!("`{}` is not a comparison such as {}", shorten(text), measure.example);
        let better = text.trim_start_matches('=').trim();
        let sign = if text.starts_with('=') { "==" } else { "<" };
        let usable = (measure.read)(better).is_some();
        return Err((
            message,
            if usable {
                format!("`{sign} {better}`?")
            } else {
                "start with one of `<` `<=` `>` `>=` `==` `!=`".to_owned()
            },
        ));
    };
    match (measure.read)(rest) {
        Some(value) => Ok(Bound { operator, value }),
        None => {
            let message = format!("cannot compare with `{}` here", shorten(rest));
            Err((message, format!("such as {}", measure.example)))
        }
    }
}
