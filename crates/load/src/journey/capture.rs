//! Values taken from responses, and where they are kept for later steps.
//!
//! A capture finds bytes in a response's head or body; [`CaptureSlots`] hold what was found, one slot per name. The
//! slots of `setup` are shared by all users, and a user's own come after them: [`Captured`] looks into both by number.

use regex::bytes::{CaptureLocations, Regex};

use crate::journey::json::Pointer;

/// Longest value that is kept, in bytes.
pub const MAX_VALUE: usize = 64 * 1024;

/// One value to take from a response.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Where the value is found.
    pub from: CaptureSource,
    /// Whether it must be a number; it then counts as a custom number of the load.
    pub is_number: bool,
}

/// Where a value is found.
#[derive(Clone, Debug)]
pub enum CaptureSource {
    /// In the JSON body.
    Json(Pointer),
    /// In a header field of this name; the first of several.
    Header(Box<[u8]>),
    /// In the body: the first group of the first match.
    Regex(Pattern),
    /// The whole body.
    Body,
}

/// A regular expression with space for its match, so that searching does not allocate.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    groups: CaptureLocations,
}

/// Why nothing was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureError {
    /// The value does not exist.
    Nothing,
    /// The body is not JSON.
    NotJson,
    /// The value is not a number but should be one.
    NotNumber,
    /// The value is longer than [`MAX_VALUE`].
    TooLong,
}

impl CaptureError {
    /// The reason in words.
    pub fn describe(self) -> &'static str {
        match self {
            CaptureError::Nothing => "there was nothing to capture",
            CaptureError::NotJson => "there was nothing to capture: the body is not JSON",
            CaptureError::NotNumber => "the value to capture is not a number",
            CaptureError::TooLong => "the value to capture is longer than 64 KiB",
        }
    }
}

impl Pattern {
    /// Compiles an expression that has a group. Give each thread its own clone: all users of a thread share its search
    /// state.
    ///
    /// # Errors
    /// What is wrong, in words; on several lines where the position is drawn.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let built = regex::bytes::RegexBuilder::new(text).size_limit(1 << 20).build();
        let regex = built.map_err(|error| error.to_string())?;
        if regex.captures_len() < 2 {
            return Err("it has no group: put `(…)` around the part to capture".to_owned());
        }
        let groups = regex.capture_locations();
        Ok(Pattern { regex, groups })
    }

    /// The first group of the first match.
    pub fn find<'b>(&mut self, body: &'b [u8]) -> Option<&'b [u8]> {
        self.regex.captures_read(&mut self.groups, body)?;
        let (from, to) = self.groups.get(1)?;
        body.get(from..to)
    }
}

impl Capture {
    /// Takes the value from a response and appends it to `out`. `head` is the response's head from its status line to
    /// the empty line; `body` is the decoded body.
    ///
    /// # Errors
    /// The value is missing, or not of the expected kind. The bytes appended are then of no use.
    #[inline]
    pub fn take(&mut self, head: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<(), CaptureError> {
        let from = out.len();
        match &mut self.from {
            CaptureSource::Json(pointer) => {
                let value =
                    pointer.find(body).map_err(|_| CaptureError::NotJson)?.ok_or(CaptureError::Nothing)?;
                if value.raw.len() > 6 * MAX_VALUE {
                    return Err(CaptureError::TooLong);
                }
                value.write_text(out).map_err(|_| CaptureError::NotJson)?;
            }
            CaptureSource::Header(name) => keep(header(head, name).ok_or(CaptureError::Nothing)?, out)?,
            CaptureSource::Regex(pattern) => keep(pattern.find(body).ok_or(CaptureError::Nothing)?, out)?,
            CaptureSource::Body => keep(body, out)?,
        }
        if out.len() - from > MAX_VALUE {
            return Err(CaptureError::TooLong);
        }
        if self.is_number && number(&out[from..]).is_none() {
            return Err(CaptureError::NotNumber);
        }
        Ok(())
    }

    /// Whether the body has to be kept for this capture.
    pub fn needs_body(&self) -> bool {
        !matches!(self.from, CaptureSource::Header(_))
    }
}

fn keep(value: &[u8], out: &mut Vec<u8>) -> Result<(), CaptureError> {
    if value.len() > MAX_VALUE {
        return Err(CaptureError::TooLong);
    }
    out.extend_from_slice(value);
    Ok(())
}

/// Parses a decimal number, as written in JSON, headers and pages.
#[inline]
pub fn number(value: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    let digits = text.bytes().next().is_some_and(|b| b.is_ascii_digit() || b"+-.".contains(&b));
    text.parse().ok().filter(|n: &f64| digits && n.is_finite())
}

/// The value of the first header field of this name, without surrounding blanks.
#[inline]
pub fn header<'h>(head: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    headers(head).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// All header fields, in order: name and value. The first line is skipped.
pub fn headers(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.split(|b| *b == b'\n').skip(1).filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// Captured values, by slot. Values keep their memory, so setting one again does not allocate in the long run.
#[derive(Clone, Debug, Default)]
pub struct CaptureSlots {
    values: Option<Box<[CapturePlace]>>,
}

#[derive(Clone, Debug, Default)]
struct CapturePlace {
    is_set: bool,
    value: Vec<u8>,
    before: Vec<u8>,
}

impl CaptureSlots {
    /// No slots.
    pub const EMPTY: CaptureSlots = CaptureSlots { values: None };

    /// `count` slots, none set; their values take no memory until set.
    pub fn new(count: u16) -> CaptureSlots {
        CaptureSlots { values: Some(vec![CapturePlace::default(); usize::from(count)].into_boxed_slice()) }
    }

    fn place(&self, slot: u16) -> Option<&CapturePlace> {
        self.values.as_deref()?.get(usize::from(slot))
    }

    fn place_mut(&mut self, slot: u16) -> Option<&mut CapturePlace> {
        self.values.as_deref_mut()?.get_mut(usize::from(slot))
    }

    /// Sets a slot.
    ///
    /// # Errors
    /// The value is longer than [`MAX_VALUE`]; the slot is then unset.
    pub fn set(&mut self, slot: u16, value: &[u8]) -> Result<(), CaptureError> {
        self.unset(slot);
        let Some(found) = self.place_mut(slot) else { return Ok(()) };
        keep(value, &mut found.value)?;
        found.is_set = true;
        Ok(())
    }

    /// Takes a value from a response into its slot.
    ///
    /// # Errors
    /// See [`Capture::take`]; the slot is then unset, so that no later step mistakes an old value for a new one.
    pub fn take(
        &mut self,
        slot: u16,
        capture: &mut Capture,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), CaptureError> {
        self.unset(slot);
        let Some(found) = self.place_mut(slot) else { return Ok(()) };
        capture.take(head, body, &mut found.value)?;
        found.is_set = true;
        Ok(())
    }

    /// Unsets a slot.
    pub fn unset(&mut self, slot: u16) {
        if let Some(found) = self.place_mut(slot) {
            if found.is_set {
                std::mem::swap(&mut found.value, &mut found.before);
            }
            found.is_set = false;
            found.value.clear();
        }
    }

    /// The slot's previous value, which was in the request that led to the current one; empty if there was none.
    pub fn before(&self, slot: u16) -> &[u8] {
        self.place(slot).map_or(&[], |s| s.before.as_slice())
    }

    /// A slot's value, if it has one.
    #[inline]
    pub fn get(&self, slot: u16) -> Option<&[u8]> {
        self.place(slot).filter(|s| s.is_set).map(|s| s.value.as_slice())
    }

    /// Number of slots.
    pub fn count(&self) -> u16 {
        self.values.as_deref().map_or(0, |values| values.len() as u16)
    }
}

/// All values that a user can see: first the slots of `setup`, then its own.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// Slots of `setup`, for all users; numbered from 0.
    pub shared: &'a CaptureSlots,
    /// The user's own slots, numbered after those.
    pub own: &'a CaptureSlots,
}

impl<'a> Captured<'a> {
    /// A slot's value, if it has one.
    #[inline]
    pub fn get(&self, slot: u16) -> Option<&'a [u8]> {
        match slot.checked_sub(self.shared.count()) {
            Some(own) => self.own.get(own),
            None => self.shared.get(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nlocation:   /next?a=1 \r\nX-Empty:\r\nLocation: /second\r\n\r\n";

    fn taken(from: CaptureSource, is_number: bool, body: &str) -> Result<String, CaptureError> {
        let mut slots = CaptureSlots::new(1);
        slots.set(0, b"old").unwrap();
        let result = slots.take(0, &mut Capture { from, is_number }, HEAD, body.as_bytes());
        assert_eq!(result.is_ok(), slots.get(0).is_some());
        result.map(|()| String::from_utf8_lossy(slots.get(0).unwrap()).into_owned())
    }

    #[test]
    fn values_are_taken() {
        let json = |p: &str| CaptureSource::Json(Pointer::parse(p).unwrap());
        let header = |n: &str| CaptureSource::Header(n.as_bytes().into());
        let regex = |p: &str| CaptureSource::Regex(Pattern::new(p).unwrap());
        let body = r#"{"token":"a\"b","price":12.5,"id=77&x":null}"#;
        for (from, is_number, expect) in [
            (json("/token"), false, Ok("a\"b")),
            (json("/price"), true, Ok("12.5")),
            (json("/token"), true, Err(CaptureError::NotNumber)),
            (json("/none"), false, Err(CaptureError::Nothing)),
            (header("Location"), false, Ok("/next?a=1")),
            (header("x-empty"), false, Ok("")),
            (header("cookie"), false, Err(CaptureError::Nothing)),
            (regex(r"id=(\d+)"), true, Ok("77")),
            (regex(r"(?:no)?(z)"), false, Err(CaptureError::Nothing)),
            (regex(r"token|(x)"), false, Err(CaptureError::Nothing)),
            (CaptureSource::Body, false, Ok(body)),
        ] {
            let shown = format!("{from:?}");
            assert_eq!(taken(from, is_number, body).as_deref(), expect.as_deref(), "{shown}");
        }
        assert_eq!(taken(json("/a"), false, "<html>"), Err(CaptureError::NotJson));
        assert_eq!(taken(CaptureSource::Body, false, &"x".repeat(MAX_VALUE + 1)), Err(CaptureError::TooLong));
        assert!(taken(CaptureSource::Body, false, &"x".repeat(MAX_VALUE)).is_ok());
    }

    #[test]
    fn a_pattern_needs_a_group() {
        assert!(Pattern::new("a").unwrap_err().contains("no group"));
        assert!(Pattern::new("(").unwrap_err().contains("unclosed"));
        assert!(Pattern::new("(?:a)").is_err());
        assert!(Pattern::new("(a){1000}{1000}").is_err());
    }

    #[test]
    fn numbers_are_decimal() {
        for (text, expect) in [
            ("1", Some(1.0)),
            (" -2.5e1 ", Some(-25.0)),
            ("inf", None),
            ("NaN", None),
            ("1e999", None),
            ("", None),
            ("0x1", None),
        ] {
            assert_eq!(number(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn slots_of_setup_come_first() {
        let (mut shared, mut own) = (CaptureSlots::new(2), CaptureSlots::new(1));
        shared.set(1, b"s").unwrap();
        own.set(0, b"o").unwrap();
        let captured = Captured { shared: &shared, own: &own };
        let seen: Vec<_> = (0..4).map(|slot| captured.get(slot)).collect();
        assert_eq!(seen, [None, Some(&b"s"[..]), Some(&b"o"[..]), None]);
    }

    proptest! {
        #[test]
        fn heads_of_any_bytes_are_searched(head: Vec<u8>, name in "[a-z-]{1,5}") {
            if let Some(value) = header(&head, name.as_bytes()) {
                prop_assert!(!value.contains(&b'\n'));
            }
        }

        #[test]
        fn a_header_that_is_there_is_found(before in "([A-Z][a-z]{1,6}: [ -~]{0,9}\r\n){0,4}", value in "[!-~]([ -~]{0,9}[!-~])?") {
            let head = format!("HTTP/1.1 200 OK\r\n{before}X-Wanted: {value}\r\n\r\n");
            prop_assert_eq!(header(head.as_bytes(), b"x-wanted"), Some(value.as_bytes()));
        }
    }
}
