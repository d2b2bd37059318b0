//! When a response is good: checks of its status, head, body, size and time, and which one failed.
//!
//! Judging stops at the first check that fails. Its description is generated only on demand ([`Checks::describe`]),
//! since all failures are counted but few are shown.

use loadlab_record::Secrets;
use loadlab_record::spec::bound::Bound;
use memchr::memmem;

use crate::journey::capture::{header, number};
use crate::journey::json::{JsonKind, Pointer, Value};

/// A response as checks see it.
#[derive(Clone, Copy, Debug)]
pub struct CheckedResponse<'a> {
    /// Response status.
    pub status: u16,
    /// Response head, from the status line to the empty line.
    pub head: &'a [u8],
    /// Decoded body; may be empty unless [`Checks::needs_body`].
    pub body: &'a [u8],
    /// Length of the decoded body in bytes.
    pub size: u64,
    /// Time since the request was started, nanoseconds.
    pub time_ns: u64,
}

/// All checks of a step.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Statuses that are good; empty: any below 400.
    pub statuses: Vec<u16>,
    /// Checks of header fields: name, and what the value must be.
    pub headers: Vec<(Box<[u8]>, Expect)>,
    /// Texts that the body must contain.
    pub contains: Vec<Text>,
    /// Texts that the body must contain, written anew for each response.
    pub holds: Vec<Vec<u8>>,
    /// Checks of values in the JSON body.
    pub json: Vec<JsonCheck>,
    /// Bounds of the decoded body's length, bytes.
    pub size: Vec<Bound>,
    /// Bounds of the time since the start, nanoseconds.
    pub time: Vec<Bound>,
}

/// A check of a value in the JSON body.
#[derive(Clone, Debug)]
pub struct JsonCheck {
    /// The pointer as written in the plan, for messages.
    pub shown: Box<str>,
    /// Location of the value.
    pub pointer: Pointer,
    /// What the value must be.
    pub expect: Expect,
}

/// What a value must be.
#[derive(Clone, Debug)]
pub enum Expect {
    /// Whether it must exist, whatever its value.
    Exists(bool),
    /// This text; in a JSON body a string, not a number that looks like it.
    Text(Box<[u8]>),
    /// This text, written anew for each response. A JSON value is compared as it would be captured, so it may be a
    /// number.
    Same(Vec<u8>),
    /// A text that contains this one.
    Contains(Text),
    /// This number.
    Number(Decimal),
    /// `true` or `false`; JSON only.
    Bool(bool),
    /// `null`; JSON only.
    Null,
    /// A number within bounds.
    Within(Vec<Bound>),
}

/// A text to search for, prepared.
#[derive(Clone, Debug)]
pub struct Text(Box<memmem::Finder<'static>>);

impl Text {
    /// Prepares a text.
    pub fn new(text: &[u8]) -> Text {
        Text(Box::new(memmem::Finder::new(text).into_owned()))
    }

    #[inline]
    fn is_in(&self, bytes: &[u8]) -> bool {
        self.0.find(bytes).is_some()
    }
}

/// A number to compare with: integers are compared exactly, however long, since ids are integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decimal {
    /// A whole number.
    Whole(i128),
    /// Any other number.
    Real(f64),
}

impl Decimal {
    /// Parses a number.
    pub fn parse(text: &[u8]) -> Option<Decimal> {
        let whole = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).map(Decimal::Whole);
        whole.or_else(|| number(text).map(Decimal::Real))
    }

    fn real(self) -> f64 {
        match self {
            Decimal::Whole(n) => n as f64,
            Decimal::Real(n) => n,
        }
    }

    fn equals(self, other: Decimal) -> bool {
        match (self, other) {
            (Decimal::Whole(a), Decimal::Whole(b)) => a == b,
            (a, b) => a.real() == b.real(),
        }
    }
}

/// The check that failed, with its index among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The status.
    Status,
    /// One of [`Checks::headers`].
    Header(u16),
    /// One of [`Checks::contains`], or after them of [`Checks::holds`].
    Contains(u16),
    /// One of [`Checks::json`].
    Json(u16),
    /// One of [`Checks::size`].
    Size(u16),
    /// One of [`Checks::time`].
    Time(u16),
}

impl Checks {
    /// Whether the body has to be kept for these checks, not only counted.
    pub fn needs_body(&self) -> bool {
        !self.contains.is_empty() || !self.holds.is_empty() || !self.json.is_empty()
    }

    /// Whether the head has to be kept for these checks, not only its status.
    pub fn needs_head(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Whether the status alone is good. A bad status of 400 or above is counted by its status; one below 400, which only
    /// a plan can rule out, as a failed check.
    #[inline]
    pub fn status_is_good(&self, status: u16) -> bool {
        if self.statuses.is_empty() { status < 400 } else { self.statuses.contains(&status) }
    }

    /// Judges a response.
    ///
    /// # Errors
    /// The first check that fails: status, head, size, body, time.
    #[inline]
    pub fn judge(&self, response: &CheckedResponse<'_>) -> Result<(), Failed> {
        if !self.status_is_good(response.status) {
            return Err(Failed::Status);
        }
        let first = |at: Option<usize>, kind: fn(u16) -> Failed| at.map_or(Ok(()), |at| Err(kind(at as u16)));
        let header = |(name, expect): &(Box<[u8]>, Expect)| !expect.of_header(header(response.head, name));
        first(self.headers.iter().position(header), Failed::Header)?;
        first(self.size.iter().position(|b| !b.holds(response.size as f64)), Failed::Size)?;
        first(self.contains.iter().position(|t| !t.is_in(response.body)), Failed::Contains)?;
        let misses = |text: &Vec<u8>| memmem::find(response.body, text).is_none();
        let missing = self.holds.iter().position(misses).map(|at| self.contains.len() + at);
        first(missing, Failed::Contains)?;
        first(self.json.iter().position(|c| !c.holds(response.body)), Failed::Json)?;
        first(self.time.iter().position(|b| !b.holds(response.time_ns as f64)), Failed::Time)
    }

    /// Describes a failed check, with what the response had instead, and without secrets.
    #[cold]
    pub fn describe(&self, failed: Failed, response: &CheckedResponse<'_>, secrets: &Secrets) -> String {
        let quoted = |bytes: &[u8]| quoted(&secrets.mask_bytes(bytes));
        let missing = || "a check failed".to_owned();
        match failed {
            Failed::Status => format!("status {} is not {}", response.status, self.good_statuses()),
            Failed::Header(at) => self.headers.get(usize::from(at)).map_or_else(missing, |(name, expect)| {
                let found = header(response.head, name).map_or("not present".to_owned(), &quoted);
                format!("header `{}` {}: {found}", String::from_utf8_lossy(name), expect.describe(&quoted))
            }),
            Failed::Contains(at) => {
                let fixed = self.contains.iter().map(|text| text.0.needle());
                let mut all = fixed.chain(self.holds.iter().map(Vec::as_slice));
                let text = all.nth(usize::from(at));
                text.map_or_else(missing, |t| format!("the body does not contain {}", quoted(t)))
            }
            Failed::Json(at) => self.json.get(usize::from(at)).map_or_else(missing, |check| {
                let found = match check.pointer.find(response.body) {
                    Ok(Some(value)) => {
                        String::from_utf8_lossy(&secrets.mask_bytes(value.raw)).chars().take(60).collect()
                    }
                    Ok(None) => "not present".to_owned(),
                    Err(_) => "the body is not JSON".to_owned(),
                };
                format!("JSON `{}` {}: {found}", check.shown, check.expect.describe(&quoted))
            }),
            Failed::Size(at) => self.size.get(usize::from(at)).map_or_else(missing, |bound| {
                format!("size {} B is not {} {} B", response.size, bound.operator.sign(), bound.value)
            }),
            Failed::Time(at) => self.time.get(usize::from(at)).map_or_else(missing, |bound| {
                let ms = |ns: f64| loadlab_record::text::units::format_duration_ns(ns);
                let (sign, most) = (bound.operator.sign(), ms(bound.value));
                format!("time {} is not {sign} {most}", ms(response.time_ns as f64))
            }),
        }
    }

    fn good_statuses(&self) -> String {
        let all: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        if all.is_empty() { "below 400".to_owned() } else { all.join(" or ") }
    }
}

impl JsonCheck {
    #[inline]
    fn holds(&self, body: &[u8]) -> bool {
        match self.pointer.find(body) {
            Ok(found) => self.expect.of_json(found),
            Err(_) => false,
        }
    }
}

impl Expect {
    #[inline]
    fn of_header(&self, found: Option<&[u8]>) -> bool {
        let Some(value) = found else { return matches!(self, Expect::Exists(false)) };
        match self {
            Expect::Exists(wanted) => *wanted,
            Expect::Text(text) => value == &**text,
            Expect::Same(text) => value == text,
            Expect::Contains(text) => text.is_in(value),
            Expect::Number(expect) => Decimal::parse(value).is_some_and(|n| n.equals(*expect)),
            Expect::Within(bounds) => number(value).is_some_and(|n| bounds.iter().all(|b| b.holds(n))),
            Expect::Bool(_) | Expect::Null => false,
        }
    }

    #[inline]
    fn of_json(&self, found: Option<Value<'_>>) -> bool {
        let Some(value) = found else { return matches!(self, Expect::Exists(false)) };
        match self {
            Expect::Exists(wanted) => *wanted,
            Expect::Text(text) => value.is_text(text),
            Expect::Same(text) => value.is_text(text) || (value.kind != JsonKind::Text && value.raw == text),
            Expect::Contains(text) => value.kind == JsonKind::Text && contains(value, text),
            Expect::Number(expect) => {
                value.kind == JsonKind::Number && Decimal::parse(value.raw).is_some_and(|n| n.equals(*expect))
            }
            Expect::Within(bounds) => value.number().is_some_and(|n| bounds.iter().all(|b| b.holds(n))),
            Expect::Bool(expect) => value.raw == if *expect { &b"true"[..] } else { b"false" },
            Expect::Null => value.kind == JsonKind::Null,
        }
    }

    /// Describes what failed.
    fn describe(&self, quoted: &dyn Fn(&[u8]) -> String) -> String {
        match self {
            Expect::Exists(true) => "is missing".to_owned(),
            Expect::Exists(false) => "should not be present".to_owned(),
            Expect::Text(text) => format!("is not {}", quoted(text)),
            Expect::Same(text) => format!("is not {}", quoted(text)),
            Expect::Contains(text) => format!("does not contain {}", quoted(text.0.needle())),
            Expect::Number(Decimal::Whole(n)) => format!("is not {n}"),
            Expect::Number(Decimal::Real(n)) => format!("is not {n}"),
            Expect::Bool(expect) => format!("is not {expect}"),
            Expect::Null => "is not null".to_owned(),
            Expect::Within(bounds) => {
                let all: Vec<_> =
                    bounds.iter().map(|b| format!("{} {}", b.operator.sign(), b.value)).collect();
                format!("is not {}", all.join(" and "))
            }
        }
    }
}

/// Searches a JSON string: with escapes it has to be unescaped first, without any it is searched as is.
fn contains(value: Value<'_>, text: &Text) -> bool {
    if !value.raw.contains(&b'\\') {
        return text.is_in(&value.raw[1..value.raw.len() - 1]);
    }
    let mut plain = Vec::new();
    value.write_text(&mut plain).is_ok() && text.is_in(&plain)
}

/// Quotes at most 60 characters, in backquotes.
fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().nth(60).is_some() { "…" } else { "" };
    format!("`{line}{more}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_record::spec::bound::Operator;

    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nX-Count: 12\r\n\r\n";
    const BODY: &[u8] =
        br#"{"id":9007199254740993,"name":"a\/b","price":2.50,"on":true,"gone":null,"list":[1],"as_text":"3"}"#;

    fn judged(checks: Checks) -> String {
        let response = CheckedResponse {
            status: 200,
            head: HEAD,
            body: BODY,
            size: BODY.len() as u64,
            time_ns: 5_000_000,
        };
        match checks.judge(&response) {
            Ok(()) => "good".to_owned(),
            Err(failed) => checks.describe(failed, &response, &Secrets::default()),
        }
    }

    fn text(text: &str) -> Expect {
        Expect::Text(text.as_bytes().into())
    }

    fn contains(text: &str) -> Expect {
        Expect::Contains(Text::new(text.as_bytes()))
    }

    fn bound(operator: Operator, value: f64) -> Vec<Bound> {
        vec![Bound { operator, value }]
    }

    #[test]
    fn statuses() {
        assert_eq!(judged(Checks::default()), "good");
        assert_eq!(judged(Checks { statuses: vec![201, 200], ..Checks::default() }), "good");
        assert_eq!(
            judged(Checks { statuses: vec![201, 204], ..Checks::default() }),
            "status 200 is not 201 or 204"
        );
        assert!(!Checks::default().status_is_good(400));
    }

    #[test]
    fn headers() {
        for (name, expect, judgement) in [
            ("content-type", contains("json"), "good"),
            (
                "Content-Type",
                text("application/json"),
                "header `Content-Type` is not `application/json`: `application/json; charset=utf-8`",
            ),
            ("x-count", Expect::Number(Decimal::Whole(12)), "good"),
            ("x-count", Expect::Within(bound(Operator::Less, 10.0)), "header `x-count` is not < 10: `12`"),
            ("x-none", Expect::Exists(false), "good"),
            ("x-none", Expect::Exists(true), "header `x-none` is missing: not present"),
            ("x-none", contains("a"), "header `x-none` does not contain `a`: not present"),
            ("x-count", Expect::Exists(false), "header `x-count` should not be present: `12`"),
        ] {
            let headers = vec![(name.as_bytes().into(), expect)];
            assert_eq!(judged(Checks { headers, ..Checks::default() }), judgement, "{name}");
        }
    }

    #[test]
    fn json_values() {
        for (pointer, expect, judgement) in [
            ("/id", Expect::Number(Decimal::Whole(9_007_199_254_740_993)), "good"),
            (
                "/id",
                Expect::Number(Decimal::Whole(9_007_199_254_740_992)),
                "JSON `/id` is not 9007199254740992: 9007199254740993",
            ),
            ("/price", Expect::Number(Decimal::Real(2.5)), "good"),
            ("/price", Expect::Within(bound(Operator::AtLeast, 3.0)), "JSON `/price` is not >= 3: 2.50"),
            ("/name", text("a/b"), "good"),
            ("/name", contains("/b"), "good"),
            ("/name", text("a"), "JSON `/name` is not `a`: \"a\\/b\""),
            ("/as_text", Expect::Number(Decimal::Whole(3)), "JSON `/as_text` is not 3: \"3\""),
            ("/as_text", text("3"), "good"),
            ("/on", Expect::Bool(true), "good"),
            ("/on", Expect::Bool(false), "JSON `/on` is not false: true"),
            ("/gone", Expect::Null, "good"),
            ("/gone", Expect::Exists(true), "good"),
            ("/list/1", Expect::Exists(true), "JSON `/list/1` is missing: not present"),
            ("/list", Expect::Exists(false), "JSON `/list` should not be present: [1]"),
        ] {
            let check =
                JsonCheck { shown: pointer.into(), pointer: Pointer::parse(pointer).unwrap(), expect };
            assert_eq!(judged(Checks { json: vec![check], ..Checks::default() }), judgement, "{pointer}");
        }
        let check = JsonCheck {
            shown: "/a".into(),
            pointer: Pointer::parse("/a").unwrap(),
            expect: Expect::Exists(false),
        };
        let checks = Checks { json: vec![check], ..Checks::default() };
        let response = CheckedResponse { status: 200, head: b"", body: b"<html>", size: 6, time_ns: 0 };
        let failed = checks.judge(&response).unwrap_err();
        assert_eq!(
            checks.describe(failed, &response, &Secrets::default()),
            "JSON `/a` should not be present: the body is not JSON"
        );
    }

    #[test]
    fn bodies_sizes_and_times() {
        let with = |change: &dyn Fn(&mut Checks)| {
            let mut checks = Checks::default();
            change(&mut checks);
            judged(checks)
        };
        assert_eq!(with(&|c| c.contains = vec![Text::new(b"price"), Text::new(b"on")]), "good");
        assert_eq!(with(&|c| c.contains = vec![Text::new(b"nope")]), "the body does not contain `nope`");
        assert_eq!(with(&|c| c.size = bound(Operator::Greater, 10.0)), "good");
        assert_eq!(with(&|c| c.size = bound(Operator::Equal, 10.0)), "size 97 B is not == 10 B");
        assert_eq!(with(&|c| c.time = bound(Operator::AtMost, 5e6)), "good");
        assert_eq!(with(&|c| c.time = bound(Operator::Less, 2e6)), "time 5.00 ms is not < 2.00 ms");
        assert_eq!(with(&|c| c.time = bound(Operator::NotEqual, 2e6)), "good");
    }

    #[test]
    fn they_say_what_they_need() {
        let checks = Checks { contains: vec![Text::new(b"a")], ..Checks::default() };
        assert!(checks.needs_body() && !checks.needs_head());
        let checks = Checks { size: bound(Operator::Less, 1.0), ..Checks::default() };
        assert!(!checks.needs_body());
        let checks = Checks { headers: vec![(b"a"[..].into(), Expect::Exists(true))], ..Checks::default() };
        assert!(checks.needs_head() && !checks.needs_body());
    }
}
