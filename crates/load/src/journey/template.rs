//! Compiled texts with variables, from which requests are written while the load runs.
//!
//! A template is a list of segments. Texts are already final; a variable is a number (which feed, which column, which
//! capture) and the way its value is escaped at that place. Writing a template appends to a buffer and looks up nothing
//! by name. It does not know what it writes: a path, a header field or a body.

use loadlab_record::spec::escape::{ControlCharacter, Escape};
use loadlab_record::spec::variable::{Unit, Variable};
use loadlab_record::text::time::Date;

use crate::journey::capture::Captured;
use crate::journey::rows::Rows;
use crate::random::Random;

/// Why a request cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// Nothing has been captured for this slot.
    Unset(u16),
    /// The user has no row of this feed: it ran out.
    NoRow(u16),
    /// A value for a header field contains a control character.
    ControlCharacter,
}

impl TemplateError {
    /// The reason in words.
    pub fn describe(self) -> &'static str {
        match self {
            TemplateError::Unset(_) => "a value it needs was not captured",
            TemplateError::NoRow(_) => "a data feed is exhausted",
            TemplateError::ControlCharacter => "a value for a header field contains a control character",
        }
    }
}

impl From<ControlCharacter> for TemplateError {
    fn from(_: ControlCharacter) -> TemplateError {
        TemplateError::ControlCharacter
    }
}

/// The values of variables in one request.
pub struct Values<'a> {
    /// The user's number over all threads, from 0.
    pub user: u64,
    /// Number of journeys that the user has made before.
    pub iteration: u64,
    /// The request's number over all threads.
    pub sequence: u64,
    /// The request's number over all loads and batches of the trial, counting only requests that have one.
    pub id: u64,
    /// Wall clock, nanoseconds since 1970.
    pub now_ns: u64,
    /// All feeds.
    pub feeds: &'a [Rows],
    /// The user's row in each feed; [`Rows::NONE`] where it has none.
    pub rows: &'a [u32],
    /// Values captured by `setup` and by this user.
    pub captured: Captured<'a>,
    /// Source of random values.
    pub random: &'a mut Random,
}

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Text(Box<[u8]>),
    Put(Variable, Escape),
    /// The inner template's output in base64: a user and a password.
    Base64(Template),
}

/// A compiled text with variables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    segments: Vec<Segment>,
}

impl Template {
    /// A text without variables.
    pub fn fixed(text: &[u8]) -> Self {
        Template { segments: vec![Segment::Text(text.into())] }
    }

    /// Appends a text, escaping it now.
    ///
    /// # Errors
    /// The text contains a control character, in a header field.
    pub fn push_text(&mut self, text: &[u8], escape: Escape) -> Result<(), TemplateError> {
        let mut bytes = match self.segments.last_mut() {
            Some(Segment::Text(last)) => std::mem::take(last).into_vec(),
            _ => {
                self.segments.push(Segment::Text(Box::default()));
                Vec::new()
            }
        };
        let outcome = escape.write(text, &mut bytes);
        if let Some(Segment::Text(last)) = self.segments.last_mut() {
            *last = bytes.into_boxed_slice();
        }
        Ok(outcome?)
    }

    /// Appends a variable.
    pub fn push(&mut self, variable: Variable, escape: Escape) {
        self.segments.push(Segment::Put(variable, escape));
    }

    /// Appends another template.
    pub fn append(&mut self, other: Template) {
        for segment in other.segments {
            match (self.segments.last_mut(), segment) {
                (Some(Segment::Text(last)), Segment::Text(text)) => {
                    *last = [&last[..], &text[..]].concat().into_boxed_slice();
                }
                (_, segment) => self.segments.push(segment),
            }
        }
    }

    /// Appends another template whose output is encoded in base64 (RFC 4648 §4).
    pub fn push_base64(&mut self, inner: Template) {
        self.segments.push(Segment::Base64(inner));
    }

    /// The text, if it has no variables.
    pub fn as_fixed(&self) -> Option<&[u8]> {
        match self.segments.as_slice() {
            [] => Some(b""),
            [Segment::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Its variables, in order.
    pub fn variables(&self) -> Vec<Variable> {
        let mut found = Vec::new();
        for segment in &self.segments {
            match segment {
                Segment::Put(variable, _) => found.push(*variable),
                Segment::Base64(inner) => found.extend(inner.variables()),
                Segment::Text(_) => {}
            }
        }
        found
    }

    /// Appends the text to `out`. After an error, the bytes appended so far are of no use.
    ///
    /// # Errors
    /// A value is missing, or not allowed in its place.
    #[inline]
    pub fn write(&self, values: &mut Values<'_>, out: &mut Vec<u8>) -> Result<(), TemplateError> {
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => out.extend_from_slice(text),
                Segment::Put(variable, escape) => put(*variable, *escape, values, out)?,
                Segment::Base64(inner) => {
                    let from = out.len();
                    inner.write(values, out)?;
                    to_base64(out, from);
                }
            }
        }
        Ok(())
    }
}

#[inline]
fn put(
    variable: Variable,
    escape: Escape,
    values: &mut Values<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TemplateError> {
    match variable {
        Variable::User => number(values.user, out),
        Variable::Iteration => number(values.iteration, out),
        Variable::Sequence => number(values.sequence, out),
        Variable::Id => number(values.id, out),
        Variable::Uuid => uuid(values.random, out),
        Variable::Now(unit) => now(values.now_ns, unit, escape, out),
        Variable::Random { low, high } => {
            let drawn = between(low, high, values.random);
            if drawn < 0 {
                out.push(b'-');
            }
            number(drawn.unsigned_abs(), out);
        }
        Variable::Feed { feed, column } => {
            let row = values.rows.get(usize::from(feed)).copied().unwrap_or(Rows::NONE);
            let rows = values.feeds.get(usize::from(feed)).ok_or(TemplateError::NoRow(feed))?;
            let cell = rows.cell(row, column).ok_or(TemplateError::NoRow(feed))?;
            escape.write(cell, out)?;
        }
        Variable::Capture { slot, .. } => {
            let value = values.captured.get(slot).ok_or(TemplateError::Unset(slot))?;
            escape.write(value, out)?;
        }
    }
    Ok(())
}

/// Appends a number in decimal.
#[inline]
pub fn number(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a number with at least `digits` digits, zero-padded.
fn padded(value: u64, digits: u32, out: &mut Vec<u8>) {
    let mut least = 10u64.pow(digits - 1);
    while value < least && least > 1 {
        out.push(b'0');
        least /= 10;
    }
    number(value, out);
}

/// A uniform draw from `low..=high`: the upper half of the product of a 64-bit draw and the number of values. The bias
/// is below one in 2^64 / (high − low).
#[inline]
fn between(low: i64, high: i64, random: &mut Random) -> i64 {
    let count = (i128::from(high) - i128::from(low) + 1).max(1) as u128;
    let drawn = (u128::from(random.next_u64()) * count) >> 64;
    (i128::from(low) + drawn as i128) as i64
}

/// Appends a UUID by RFC 9562 §5.4: 122 random bits, the version and the variant.
#[inline]
fn uuid(random: &mut Random, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    let bits = bits & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    for digit in 0..32 {
        if matches!(digit, 8 | 12 | 16 | 20) {
            out.push(b'-');
        }
        out.push(HEX[(bits >> (124 - 4 * digit)) as usize & 0xf]);
    }
}

fn now(now_ns: u64, unit: Unit, escape: Escape, out: &mut Vec<u8>) {
    match unit {
        Unit::Seconds => number(now_ns / 1_000_000_000, out),
        Unit::Millis => number(now_ns / 1_000_000, out),
        Unit::Micros => number(now_ns / 1_000, out),
        Unit::Nanos => number(now_ns, out),
        Unit::Rfc3339 => {
            // Of the characters written, only the colon may need escaping.
            let colon: &[u8] = if matches!(escape, Escape::Url | Escape::Form) { b"%3A" } else { b":" };
            let seconds = now_ns / 1_000_000_000;
            let Date { year, month, day } = Date::of_day(seconds / 86_400);
            padded(year, 4, out);
            out.push(b'-');
            padded(month, 2, out);
            out.push(b'-');
            padded(day, 2, out);
            out.push(b'T');
            padded(seconds / 3600 % 24, 2, out);
            out.extend_from_slice(colon);
            padded(seconds / 60 % 60, 2, out);
            out.extend_from_slice(colon);
            padded(seconds % 60, 2, out);
            out.push(b'.');
            padded(now_ns / 1_000_000 % 1000, 3, out);
            out.push(b'Z');
        }
    }
}

/// Converts the bytes of `out` from `from` on to base64, in place: from the end, so that no byte is overwritten before
/// it is read.
fn to_base64(out: &mut Vec<u8>, from: usize) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let len = out.len() - from;
    let groups = len.div_ceil(3);
    out.resize(from + 4 * groups, 0);
    for group in (0..groups).rev() {
        let here = (len - 3 * group).min(3);
        let mut bits = 0u32;
        for i in 0..3 {
            let byte = if i < here { out[from + 3 * group + i] } else { 0 };
            bits = (bits << 8) | u32::from(byte);
        }
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i)) as usize & 0x3f];
            out[from + 4 * group + i] = if i <= here { digit } else { b'=' };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journey::capture::CaptureSlots;
    use proptest::prelude::*;

    fn written(template: &Template, slots: &CaptureSlots, seed: u64) -> Result<String, TemplateError> {
        let feeds =
            [Rows::from_csv(b"name,mail\nAda,a@x\nB C,\"b,\"\"c\"\n", &["name".into(), "mail".into()])
                .unwrap()];
        let mut random = Random::new(seed);
        let mut values = Values {
            user: 7,
            iteration: 3,
            sequence: u64::MAX,
            id: 7,
            now_ns: 1_795_166_999_123_456_789,
            feeds: &feeds,
            rows: &[1],
            captured: Captured { shared: slots, own: slots },
            random: &mut random,
        };
        let mut out = b"> ".to_vec();
        template.write(&mut values, &mut out)?;
        Ok(String::from_utf8_lossy(&out[2..]).into_owned())
    }

    fn one(variable: Variable, escape: Escape) -> String {
        let mut template = Template::default();
        template.push(variable, escape);
        written(&template, &CaptureSlots::new(0), 1).unwrap()
    }

    #[test]
    fn variables_are_written() {
        let mail = Variable::Feed { feed: 0, column: 1 };
        for (variable, escape, expect) in [
            (Variable::User, Escape::Raw, "7"),
            (Variable::Iteration, Escape::Raw, "3"),
            (Variable::Sequence, Escape::Json, "18446744073709551615"),
            (Variable::Id, Escape::Url, "7"),
            (Variable::Now(Unit::Seconds), Escape::Raw, "1795166999"),
            (Variable::Now(Unit::Millis), Escape::Raw, "1795166999123"),
            (Variable::Now(Unit::Micros), Escape::Raw, "1795166999123456"),
            (Variable::Now(Unit::Nanos), Escape::Raw, "1795166999123456789"),
            (Variable::Now(Unit::Rfc3339), Escape::Json, "2026-11-20T09:29:59.123Z"),
            (Variable::Now(Unit::Rfc3339), Escape::Url, "2026-11-20T09%3A29%3A59.123Z"),
            (Variable::Random { low: 5, high: 5 }, Escape::Raw, "5"),
            (Variable::Random { low: -3, high: -3 }, Escape::Raw, "-3"),
            (mail, Escape::Raw, "b,\"c"),
            (mail, Escape::Url, "b%2C%22c"),
            (mail, Escape::Json, "b,\\\"c"),
            (Variable::Feed { feed: 0, column: 0 }, Escape::Form, "B+C"),
        ] {
            assert_eq!(one(variable, escape), expect, "{variable:?} {escape:?}");
        }
    }

    #[test]
    fn what_is_missing_is_a_fault() {
        let mut template = Template::default();
        template.push(Variable::Capture { slot: 0, is_number: false }, Escape::Raw);
        let mut slots = CaptureSlots::new(1);
        assert_eq!(written(&template, &slots, 1), Err(TemplateError::Unset(0)));
        slots.set(0, b"x y").unwrap();
        assert_eq!(written(&template, &slots, 1).as_deref(), Ok("x y"));
        let mut template = Template::default();
        template.push(Variable::Feed { feed: 1, column: 0 }, Escape::Raw);
        assert_eq!(written(&template, &slots, 1), Err(TemplateError::NoRow(1)));
    }

    #[test]
    fn adjacent_texts_are_joined_and_base64_nests() {
        let mut template = Template::fixed(b"a");
        template.push_text(b" b", Escape::Url).unwrap();
        template.append(Template::fixed(b"c"));
        assert_eq!(template.as_fixed(), Some(&b"a%20bc"[..]));
        assert_eq!(template.push_text(b"\n", Escape::Header), Err(TemplateError::ControlCharacter));
        let mut inner = Template::default();
        inner.push(Variable::Feed { feed: 0, column: 0 }, Escape::Raw);
        inner.push_text(b":secret", Escape::Raw).unwrap();
        let mut basic = Template::fixed(b"Basic ");
        basic.push_base64(inner);
        basic.push_text(b"!", Escape::Raw).unwrap();
        assert_eq!(written(&basic, &CaptureSlots::new(0), 1).as_deref(), Ok("Basic QiBDOnNlY3JldA==!"));
        assert_eq!(basic.variables(), [Variable::Feed { feed: 0, column: 0 }]);
        assert_eq!(basic.as_fixed(), None);
    }

    proptest! {
        #[test]
        fn random_numbers_are_within_their_bounds(a: i64, b: i64, seed: u64) {
            let (low, high) = (a.min(b), a.max(b));
            let drawn: i64 = {
                let mut random = Random::new(seed);
                between(low, high, &mut random)
            };
            prop_assert!((low..=high).contains(&drawn));
        }

        #[test]
        fn uuids_have_their_form(seed: u64) {
            let mut out = Vec::new();
            let mut random = Random::new(seed);
            uuid(&mut random, &mut out);
            let text = String::from_utf8(out).unwrap();
            let parts: Vec<usize> = text.split('-').map(str::len).collect();
            prop_assert_eq!(parts, [8, 4, 4, 4, 12]);
            prop_assert_eq!(text.as_bytes()[14], b'4');
            prop_assert!(b"89ab".contains(&text.as_bytes()[19]));
        }

        #[test]
        fn base64_equals_that_of_the_crate(before: Vec<u8>, value: Vec<u8>) {
            use base64::Engine;
            let mut out = [before.clone(), value.clone()].concat();
            to_base64(&mut out, before.len());
            let expect = base64::engine::general_purpose::STANDARD.encode(&value);
            prop_assert_eq!(&out[before.len()..], expect.as_bytes());
            prop_assert_eq!(&out[..before.len()], &before[..]);
        }
    }

    #[test]
    fn random_numbers_cover_their_range_evenly() {
        let mut random = Random::new(9);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[(between(1, 6, &mut random) - 1) as usize] += 1;
        }
        assert!(counts.iter().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
    }
}
