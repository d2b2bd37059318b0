//! Finds one value in a JSON document by its pointer (RFC 6901), without building a tree: the bytes are walked once, up
//! to the value, skipping everything else.
//!
//! Nothing after the value is read, so a document that breaks later still yields it. Of two members with the same name
//! the first counts. Skipped strings are not checked for control characters or broken UTF-8.

use memchr::memchr2;

/// Deepest nesting of skipped values.
const MAX_DEPTH: usize = 128;

/// Bytes are not JSON, as far as they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson {
    /// Offset of the byte at which this was noticed.
    pub at: usize,
}

/// A parsed pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    key: Box<[u8]>,
    /// The token read as a list index, if it is one.
    index: Option<usize>,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    Text,
    /// A list.
    List,
    /// A map.
    Map,
}

/// A value as written in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'b> {
    /// Its kind.
    pub kind: JsonKind,
    /// Its bytes as written, including a text's quotes.
    pub raw: &'b [u8],
}

impl Pointer {
    /// Parses a pointer: empty, or `/token/token…` with `~1` for `/` and `~0` for `~`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Pointer, &'static str> {
        let mut tokens = Vec::new();
        let Some(rest) = text.strip_prefix('/') else {
            let fault = "a JSON pointer starts with `/`";
            return if text.is_empty() { Ok(Pointer { tokens }) } else { Err(fault) };
        };
        for token in rest.split('/') {
            let mut after_tilde = token.split('~').skip(1);
            if after_tilde.any(|after| !after.starts_with(['0', '1'])) {
                return Err("in a JSON pointer `~` is written `~0`");
            }
            let key = token.replace("~1", "/").replace("~0", "~");
            let digits = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
            let index = if digits && (key == "0" || !key.starts_with('0')) { key.parse().ok() } else { None };
            tokens.push(Token { key: key.into_bytes().into_boxed_slice(), index });
        }
        Ok(Pointer { tokens })
    }

    /// A pointer to one member of the top-level map, whatever characters its name contains.
    pub fn to_member(name: &str) -> Pointer {
        Pointer { tokens: vec![Token { key: name.as_bytes().into(), index: None }] }
    }

    /// The value that the pointer leads to, or `None` if there is none.
    ///
    /// # Errors
    /// The document is not JSON, up to the value or the end of the part that was searched.
    #[inline]
    pub fn find<'b>(&self, document: &'b [u8]) -> Result<Option<Value<'b>>, NotJson> {
        let mut scan = Scan { bytes: document, at: 0 };
        scan.blanks();
        for token in &self.tokens {
            let there = match (scan.peek(), token.index) {
                (Some(b'{'), _) => scan.enter_member(&token.key)?,
                (Some(b'['), Some(index)) => scan.enter_item(index)?,
                _ => return scan.value().map(|_| None),
            };
            if !there {
                return Ok(None);
            }
        }
        scan.value().map(Some)
    }
}

/// Calls `f` with the name of every member of the top-level map, as written between its quotes, and its value.
///
/// # Errors
/// The document is not a JSON map, or something follows it.
pub fn members<'b>(document: &'b [u8], mut f: impl FnMut(&'b [u8], Value<'b>)) -> Result<(), NotJson> {
    let mut scan = Scan { bytes: document, at: 0 };
    scan.blanks();
    scan.expect(b'{')?;
    scan.blanks();
    if scan.peek() == Some(b'}') {
        scan.at += 1;
    } else {
        loop {
            let name = scan.name()?;
            f(name, scan.value()?);
            if !scan.next_of(b'}')? {
                break;
            }
        }
    }
    scan.blanks();
    if scan.at == document.len() { Ok(()) } else { Err(scan.wrong()) }
}

impl<'b> Value<'b> {
    /// Appends the value as text: a string without its quotes and escapes, anything else as written.
    ///
    /// # Errors
    /// An invalid escape.
    #[inline]
    pub fn write_text(&self, out: &mut Vec<u8>) -> Result<(), NotJson> {
        match self.inner() {
            Some(inner) => unescape(inner, |bytes| {
                out.extend_from_slice(bytes);
                true
            })
            .map(drop),
            None => {
                out.extend_from_slice(self.raw);
                Ok(())
            }
        }
    }

    /// Whether the value is this text.
    #[inline]
    pub fn is_text(&self, text: &[u8]) -> bool {
        self.inner().is_some_and(|inner| text_is(inner, text))
    }

    /// The value if it is a number; `None` for anything else.
    #[inline]
    pub fn number(&self) -> Option<f64> {
        if self.kind != JsonKind::Number {
            return None;
        }
        std::str::from_utf8(self.raw).ok()?.parse().ok().filter(|n: &f64| n.is_finite())
    }

    /// The characters between the quotes of a string.
    fn inner(&self) -> Option<&'b [u8]> {
        match self.kind {
            JsonKind::Text => self.raw.get(1..self.raw.len().saturating_sub(1)),
            _ => None,
        }
    }
}

/// Whether the characters between quotes, once unescaped, are this text.
#[inline]
pub fn text_is(inner: &[u8], text: &[u8]) -> bool {
    if !inner.contains(&b'\\') {
        return inner == text;
    }
    let mut rest = text;
    let whole = unescape(inner, |bytes| match rest.strip_prefix(bytes) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    });
    whole == Ok(true) && rest.is_empty()
}

/// Passes the characters between quotes to `emit` in unescaped pieces, until it returns false; returns whether it took
/// all. Half a surrogate pair becomes U+FFFD.
fn unescape(inner: &[u8], mut emit: impl FnMut(&[u8]) -> bool) -> Result<bool, NotJson> {
    let mut at = 0;
    while at < inner.len() {
        let plain = memchr::memchr(b'\\', &inner[at..]).map_or(inner.len(), |n| at + n);
        if plain > at && !emit(&inner[at..plain]) {
            return Ok(false);
        }
        at = plain;
        if at == inner.len() {
            break;
        }
        let byte: &[u8] = match inner.get(at + 1) {
            Some(b'"') => b"\"",
            Some(b'\\') => b"\\",
            Some(b'/') => b"/",
            Some(b'b') => b"\x08",
            Some(b'f') => b"\x0c",
            Some(b'n') => b"\n",
            Some(b'r') => b"\r",
            Some(b't') => b"\t",
            Some(b'u') => {
                let (c, len) = unicode(&inner[at..]).ok_or(NotJson { at })?;
                at += len;
                if !emit(c.encode_utf8(&mut [0; 4]).as_bytes()) {
                    return Ok(false);
                }
                continue;
            }
            _ => return Err(NotJson { at }),
        };
        if !emit(byte) {
            return Ok(false);
        }
        at += 2;
    }
    Ok(true)
}

/// The character of `\uXXXX`, or of a surrogate pair, and its length.
fn unicode(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize| -> Option<u32> {
        let digits = bytes.get(from..from + 4)?;
        digits.iter().try_fold(0, |sum, b| Some(sum * 16 + (*b as char).to_digit(16)?))
    };
    let first = unit(2)?;
    if (0xd800..0xdc00).contains(&first)
        && bytes.get(6..8) == Some(b"\\u")
        && let Some(second @ 0xdc00..0xe000) = unit(8)
    {
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12));
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6))
}

/// A position in a document.
struct Scan<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Scan<'b> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn wrong(&self) -> NotJson {
        NotJson { at: self.at }
    }

    #[inline]
    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.peek() != Some(byte) {
            return Err(self.wrong());
        }
        self.at += 1;
        Ok(())
    }

    /// Enters the map here, up to the value of this member; `false` if there is no such member.
    fn enter_member(&mut self, key: &[u8]) -> Result<bool, NotJson> {
        self.expect(b'{')?;
        self.blanks();
        if self.peek() == Some(b'}') {
            return Ok(false);
        }
        loop {
            let name = self.name()?;
            if text_is(name, key) {
                return Ok(true);
            }
            self.value()?;
            if !self.next_of(b'}')? {
                return Ok(false);
            }
        }
    }

    /// Enters the list here, up to this item; `false` if there is no such item.
    fn enter_item(&mut self, index: usize) -> Result<bool, NotJson> {
        self.expect(b'[')?;
        self.blanks();
        if self.peek() == Some(b']') {
            return Ok(false);
        }
        for _ in 0..index {
            self.value()?;
            if !self.next_of(b']')? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a member's name, as written between its quotes, and moves to its value.
    fn name(&mut self) -> Result<&'b [u8], NotJson> {
        let from = self.at + 1;
        if self.peek() != Some(b'"') {
            return Err(self.wrong());
        }
        self.text()?;
        let name = &self.bytes[from..self.at - 1];
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Ok(name)
    }

    /// After a value: moves to the next one, or past the end of the map or list (`false`).
    fn next_of(&mut self, close: u8) -> Result<bool, NotJson> {
        self.blanks();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.blanks();
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.wrong()),
        }
    }

    /// Reads the value here and moves past it.
    fn value(&mut self) -> Result<Value<'b>, NotJson> {
        let from = self.at;
        let kind = match self.peek() {
            Some(b'"') => self.text().map(|()| JsonKind::Text)?,
            Some(b'{') => self.nested().map(|()| JsonKind::Map)?,
            Some(b'[') => self.nested().map(|()| JsonKind::List)?,
            Some(b't') => self.word(b"true", JsonKind::Bool)?,
            Some(b'f') => self.word(b"false", JsonKind::Bool)?,
            Some(b'n') => self.word(b"null", JsonKind::Null)?,
            _ => self.number().map(|()| JsonKind::Number)?,
        };
        Ok(Value { kind, raw: &self.bytes[from..self.at] })
    }

    fn word(&mut self, word: &[u8], kind: JsonKind) -> Result<JsonKind, NotJson> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.wrong());
        }
        self.at += word.len();
        Ok(kind)
    }

    fn text(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            match memchr2(b'"', b'\\', rest) {
                None => {
                    self.at = self.bytes.len();
                    return Err(self.wrong());
                }
                Some(n) if rest[n] == b'"' => {
                    self.at += n + 1;
                    return Ok(());
                }
                // Whatever character is escaped, it does not end the string.
                Some(n) => self.at += n + 2,
            }
        }
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        let from = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > from { Ok(()) } else { Err(self.wrong()) }
    }

    fn number(&mut self) -> Result<(), NotJson> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Skips a map or list with everything in it: one bit per level records which of the two it is, so no stack is
    /// needed.
    fn nested(&mut self) -> Result<(), NotJson> {
        let (mut maps, mut depth) = (0u128, 0);
        loop {
            // At the beginning of a value.
            let open = self.peek();
            if matches!(open, Some(b'{' | b'[')) {
                if depth == MAX_DEPTH {
                    return Err(self.wrong());
                }
                let is_map = open == Some(b'{');
                maps = maps << 1 | u128::from(is_map);
                depth += 1;
                self.at += 1;
                self.blanks();
                if self.peek() != Some(if is_map { b'}' } else { b']' }) {
                    if is_map {
                        self.name()?;
                    }
                    continue;
                }
                self.at += 1;
                (maps, depth) = (maps >> 1, depth - 1);
            } else {
                self.value()?;
            }
            // After a value.
            while depth > 0 {
                let is_map = maps & 1 == 1;
                if self.next_of(if is_map { b'}' } else { b']' })? {
                    if is_map {
                        self.name()?;
                    }
                    break;
                }
                (maps, depth) = (maps >> 1, depth - 1);
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(document: &str, pointer: &str) -> String {
        match Pointer::parse(pointer).unwrap().find(document.as_bytes()) {
            Ok(Some(value)) => {
                let mut text = Vec::new();
                value.write_text(&mut text).unwrap();
                format!("{:?} {}", value.kind, String::from_utf8(text).unwrap())
            }
            Ok(None) => "nothing".to_owned(),
            Err(error) => format!("no JSON at {}", error.at),
        }
    }

    #[test]
    fn values_are_found() {
        let document = r#" { "a" : [ 1, {"b": "x\"\u00e9\ud83d\ude00\n"} , [] ], "c/d": {}, "~": null, "": true, "\u0061b": -1.5e3 } "#;
        for (pointer, expect) in [
            ("/a/0", "Number 1"),
            ("/a/1/b", "Text x\"é😀\n"),
            ("/a/2", "List []"),
            ("/a/3", "nothing"),
            ("/a/00", "nothing"),
            ("/a/b", "nothing"),
            ("/a/0/x", "nothing"),
            ("/c~1d", "Map {}"),
            ("/c~1d/x", "nothing"),
            ("/~0", "Null null"),
            ("/", "Bool true"),
            ("/ab", "Number -1.5e3"),
            ("/nowhere", "nothing"),
        ] {
            assert_eq!(found(document, pointer), expect, "{pointer}");
        }
        assert_eq!(found("[1,2]", ""), "List [1,2]");
        assert_eq!(found(r#"{"a":1,"a":2}"#, "/a"), "Number 1");
        assert_eq!(found(r#"{"a":1,"b":"#, "/a"), "Number 1");
    }

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        for (document, pointer, expect) in [
            ("", "", "no JSON at 0"),
            ("<html>", "/a", "no JSON at 0"),
            (r#"{"a":1,"#, "/b", "no JSON at 7"),
            (r#"{"a" 1}"#, "/b", "no JSON at 5"),
            (r#"{"a":[1}"#, "/b", "no JSON at 7"),
            (r#"{"a":"x"#, "/a", "no JSON at 7"),
            (r#"{"a":01}"#, "/b", "no JSON at 6"),
            (r#"{"a":tru}"#, "/b", "no JSON at 5"),
            ("{'a':1}", "/a", "no JSON at 1"),
        ] {
            assert_eq!(found(document, pointer), expect, "{document} {pointer}");
        }
        let deep = format!("{}1{}", "[".repeat(129), "]".repeat(129));
        assert!(Pointer::parse("").unwrap().find(deep.as_bytes()).is_err());
        let fits = format!("{}1{}", "[".repeat(128), "]".repeat(128));
        assert!(Pointer::parse("").unwrap().find(fits.as_bytes()).is_ok());
    }

    #[test]
    fn invalid_pointers_are_refused() {
        assert!(Pointer::parse("a").is_err());
        assert!(Pointer::parse("/a~").is_err());
        assert!(Pointer::parse("/a~2").is_err());
        assert!(Pointer::parse("").is_ok());
    }

    #[test]
    fn numbers_and_texts_are_compared() {
        let value = |text: &'static str| Pointer::parse("").unwrap().find(text.as_bytes()).unwrap().unwrap();
        assert_eq!(value("12.50").number(), Some(12.5));
        assert_eq!(value("\"12\"").number(), None);
        assert_eq!(value("1e999").number(), None);
        assert!(value(r#""a\/b""#).is_text(b"a/b"));
        assert!(!value(r#""a\/b""#).is_text(b"a/bc"));
        assert!(!value(r#""a\/b""#).is_text(b"a"));
        assert!(!value("12").is_text(b"12"));
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            (-1e12f64..1e12).prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            let key = prop_oneof!["[a-c0-3~/\"\\\\]{0,2}", any::<String>()];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec((key, inner), 0..5)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        })
    }

    /// Pointers to everything in a document, and to some things that are not there.
    fn pointers(value: &serde_json::Value, at: String, out: &mut Vec<String>) {
        out.push(format!("{at}/0"));
        out.push(format!("{at}/a"));
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(key, inner)| {
                pointers(inner, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }),
            serde_json::Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, inner)| pointers(inner, format!("{at}/{i}"), out));
            }
            _ => {}
        }
        out.push(at);
    }

    proptest! {
        #[test]
        fn finds_what_a_tree_finds(document in any_json(), pretty: bool) {
            let text = if pretty { serde_json::to_vec_pretty(&document) } else { serde_json::to_vec(&document) }.unwrap();
            let mut all = Vec::new();
            pointers(&document, String::new(), &mut all);
            for pointer in all {
                let found = Pointer::parse(&pointer).unwrap().find(&text).unwrap();
                let expect = document.pointer(&pointer);
                prop_assert_eq!(found.is_some(), expect.is_some(), "{}", pointer);
                let (Some(found), Some(expect)) = (found, expect) else { continue };
                prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(found.raw).unwrap(), expect);
                if let Some(text) = expect.as_str() {
                    let mut out = Vec::new();
                    found.write_text(&mut out).unwrap();
                    prop_assert_eq!(&out, text.as_bytes());
                    prop_assert!(found.is_text(text.as_bytes()));
                }
            }
        }

        #[test]
        fn members_are_those_of_a_tree(document in any_json()) {
            let text = serde_json::to_vec(&document).unwrap();
            let mut seen = Vec::new();
            let read = members(&text, |name, value| seen.push((name.to_vec(), value.raw.to_vec())));
            prop_assert_eq!(read.is_ok(), document.is_object());
            if let Some(map) = document.as_object() {
                prop_assert_eq!(seen.len(), map.len());
                for ((name, value), (key, expect)) in seen.iter().zip(map) {
                    prop_assert!(text_is(name, key.as_bytes()));
                    prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(value).unwrap(), expect);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(document: Vec<u8>, from in any_json(), cut: prop::sample::Index, pointer in "(/[a0]?){0,3}") {
            let pointer = Pointer::parse(&pointer).unwrap();
            let _ = pointer.find(&document);
            let text = serde_json::to_vec(&from).unwrap();
            let cut = &text[..cut.index(text.len() + 1)];
            if let Ok(Some(value)) = pointer.find(cut) {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(value.raw).is_ok() || value.kind == JsonKind::Number);
            }
        }
    }
}
