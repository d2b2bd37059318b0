//! Heads of requests, compressed before the load starts.
//!
//! A request is sent many times on many connections, so its fields are encoded once, in two forms. The first time a
//! connection sends a field, the field goes out as a literal that enters the peer's table; from then on it is one byte.
//! The table is filled while there is room and never evicts, so indices stay valid: a request costs a copy of a few
//! bytes and no search. Fields that differ from one request to the next are encoded with [`Head::plain`], or one by one
//! with an [`Outline`], and never enter the table.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fields::is_of_connection;
use super::hpack::{DEFAULT_TABLE, ENTRY_OVERHEAD, STATIC, write_integer, write_string};
use crate::protocol::http1::is_token;
use crate::protocol::redirect_headers::OmittedHeaders;

/// Most fields of a load that may enter a table, not counting paths.
const MOST_FIELDS: usize = 64;
/// Most paths of a load that may enter a table: a long list of URLs would push out the fields that every request
/// shares.
const MOST_PATHS: usize = 32;
/// No field, or one that is not in the table yet.
const NONE: u8 = u8::MAX;

/// The contents of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct HeadParts<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host, and port unless it is the scheme's. A header `host` takes precedence.
    pub authority: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Headers in order; names in any case.
    pub headers: &'a [(String, String)],
}

/// A head that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// A method that is not a token.
    #[error("`{0}` is not an HTTP method\nhint: use one such as GET, POST or DELETE")]
    Method(String),
    /// A method that opens a tunnel.
    #[error("CONNECT opens a tunnel, which a load cannot use\nhint: give the URL of the server itself")]
    Connect,
    /// A path that contains spaces or control characters, or is empty.
    #[error(
        "the path `{0}` is empty or contains spaces or control characters\nhint: percent-encode them (`%20` for \
         a space)"
    )]
    Path(String),
    /// A header name that is not a token.
    #[error("`{0}` is not a header name")]
    HeaderName(String),
    /// A header value with a line break or another control character.
    #[error(
        "the value of header `{0}` contains a control character\nhint: headers are single lines; send bytes in the body"
    )]
    HeaderValue(String),
    /// A header that HTTP/2 forbids.
    #[error("HTTP/2 has no header `{0}`\nhint: leave it out, or send the request over HTTP/1.1")]
    OfConnection(String),
}

/// The heads of one load, and the fields they share. A session may send heads of one `Heads` only, since it numbers
/// their fields.
#[derive(Debug, Default)]
pub struct Heads {
    numbers: HashMap<(String, String), u8>,
    paths: usize,
}

/// An encoded head.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: Box<[u8]>,
    pieces: Box<[Run]>,
    /// The response to this method never has a body, whatever its head says (HEAD).
    pub response_has_no_body: bool,
    /// The head for display: `:method GET`, `accept: */*`, each with its line end.
    text: Box<str>,
}

/// A request's head whose path and some fields are written anew each time.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Method, scheme and authority; the path follows.
    pub front: Head,
    /// The fields that are always the same: all of them, and the subsets sent to the target of a redirect.
    backs: [Head; 4],
    /// Names of the variable fields, in the order given.
    pub names: Vec<Name>,
}

impl Outline {
    /// The fields that are always the same, without those omitted.
    pub fn back(&self, omitted: OmittedHeaders) -> &Head {
        &self.backs[usize::from(omitted.credentials) + 2 * usize::from(omitted.body)]
    }
}

/// The name of a field whose value is written anew each time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    text: Cow<'static, str>,
    /// Its index in the static table, from 1; 0 if it has none.
    index: usize,
    /// Whether intermediaries must never put it into a table (RFC 7541 §7.1.3).
    is_secret: bool,
}

/// `:method`.
pub static METHOD: Name = Name::known(":method", 2, false);
/// `:scheme`.
pub static SCHEME: Name = Name::known(":scheme", 6, false);
/// `:authority`.
pub static AUTHORITY: Name = Name::known(":authority", 1, false);
/// `:path`.
pub static PATH: Name = Name::known(":path", 4, false);
/// `content-length`.
pub static CONTENT_LENGTH: Name = Name::known("content-length", 28, false);
/// `cookie`.
pub static COOKIE: Name = Name::known("cookie", 32, true);

/// A piece of a head assembled for one request.
#[derive(Clone, Copy, Debug)]
pub enum HeadPart<'a> {
    /// Fields encoded in advance.
    Packed(&'a Head),
    /// A field and its value.
    Field(&'a Name, &'a [u8]),
}

/// A run of a head's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Number of its field, or [`NONE`]: `plain` is then sent as is.
    field: u8,
    /// Size of the field in a table.
    size: u32,
    /// Ranges of its encoded forms in the head's bytes: the plain one, then the one that enters the table.
    start: u32,
    plain_end: u32,
    entering_end: u32,
}

impl Heads {
    /// Encodes a head.
    ///
    /// # Errors
    /// HTTP/2 cannot represent the head.
    pub fn add(&mut self, parts: &HeadParts<'_>) -> Result<Head, HeadError> {
        pack(parts, |name, value| self.number(name, value))
    }

    /// Encodes the fixed parts of a head whose path and `varying` fields change; the path of `parts` is left out.
    ///
    /// # Errors
    /// HTTP/2 cannot represent the head.
    pub fn outline(&mut self, parts: &HeadParts<'_>, varying: &[&str]) -> Result<Outline, HeadError> {
        let is_head = parts.method == "HEAD";
        let mut fields = fields_of(parts)?;
        fields.retain(|(name, _)| name != PATH.text());
        let back = fields.split_off(fields.iter().take_while(|(name, _)| name.starts_with(':')).count());
        let mut pack = |fields| packed(fields, is_head, |name, value| self.number(name, value));
        let front = pack(fields);
        let backs =
            [(false, false), (true, false), (false, true), (true, true)].map(|(credentials, body)| {
                let omitted = OmittedHeaders { credentials, body };
                pack(back.iter().filter(|(name, _)| !omitted.contains(name.as_bytes())).cloned().collect())
            });
        let names = varying.iter().map(|name| Name::new(name)).collect::<Result<_, _>>()?;
        Ok(Outline { front, backs, names })
    }

    /// The number of a field, or [`NONE`] if there are too many.
    fn number(&mut self, name: &str, value: &str) -> u8 {
        if let Some(number) = self.numbers.get(&(name.to_owned(), value.to_owned())) {
            return *number;
        }
        let is_path = name == ":path";
        let fits = name.len() + value.len() + ENTRY_OVERHEAD <= DEFAULT_TABLE / 4;
        let room =
            if is_path { self.paths < MOST_PATHS } else { self.numbers.len() - self.paths < MOST_FIELDS };
        if !fits || !room {
            return NONE;
        }
        let number = self.numbers.len() as u8;
        self.paths += usize::from(is_path);
        self.numbers.insert((name.to_owned(), value.to_owned()), number);
        number
    }
}

impl Head {
    /// Encodes a head none of whose fields enters a table, for a head that is sent once.
    ///
    /// # Errors
    /// HTTP/2 cannot represent the head.
    pub fn plain(parts: &HeadParts<'_>) -> Result<Head, HeadError> {
        pack(parts, |_, _| NONE)
    }

    /// The head for display: one field per line, those whose names begin with a colon as `:method GET`.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Name {
    const fn known(text: &'static str, index: usize, is_secret: bool) -> Name {
        Name { text: Cow::Borrowed(text), index, is_secret }
    }

    /// A field name, given in any case.
    ///
    /// # Errors
    /// It is not a field name, or one that HTTP/2 forbids.
    pub fn new(name: &str) -> Result<Name, HeadError> {
        if !is_token(name) {
            return Err(HeadError::HeaderName(name.to_owned()));
        }
        let text = name.to_ascii_lowercase();
        if is_of_connection(text.as_bytes()) || text == "host" {
            return Err(HeadError::OfConnection(name.to_owned()));
        }
        let index = STATIC.iter().position(|(known, _)| *known == text).map_or(0, |index| index + 1);
        let is_secret = matches!(&*text, "authorization" | "cookie" | "proxy-authorization");
        Ok(Name { text: Cow::Owned(text), index, is_secret })
    }

    /// The name in lower case.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn pack(parts: &HeadParts<'_>, number: impl FnMut(&str, &str) -> u8) -> Result<Head, HeadError> {
    Ok(packed(fields_of(parts)?, parts.method == "HEAD", number))
}

fn packed(
    fields: Vec<(String, String)>,
    response_has_no_body: bool,
    mut number: impl FnMut(&str, &str) -> u8,
) -> Head {
    let mut text = String::new();
    for (name, value) in &fields {
        let sign = if name.starts_with(':') { "" } else { ":" };
        text.push_str(&format!("{name}{sign} {value}\r\n"));
    }
    let (mut bytes, mut pieces) = (Vec::new(), Vec::<Run>::new());
    for (name, value) in &fields {
        let start = bytes.len() as u32;
        let whole = STATIC.iter().position(|entry| *entry == (name, value));
        let field = match whole {
            Some(index) => {
                write_integer(&mut bytes, 0x80, 7, index + 1);
                NONE
            }
            None => {
                let field = number(name, value);
                write_literal(&mut bytes, 0, 4, name, value);
                field
            }
        };
        let plain_end = bytes.len() as u32;
        if field != NONE {
            write_literal(&mut bytes, 0x40, 6, name, value);
        }
        let entering_end = bytes.len() as u32;
        match pieces.last_mut() {
            Some(last) if last.field == NONE && field == NONE => {
                (last.plain_end, last.entering_end) = (plain_end, entering_end);
            }
            _ => pieces.push(Run {
                field,
                size: (name.len() + value.len() + ENTRY_OVERHEAD) as u32,
                start,
                plain_end,
                entering_end,
            }),
        }
    }
    Head { bytes: bytes.into(), pieces: pieces.into(), response_has_no_body, text: text.into() }
}

/// Writes a literal with these upper bits, and the length of its index's prefix.
fn write_literal(out: &mut Vec<u8>, upper: u8, prefix: u32, name: &str, value: &str) {
    let index = STATIC.iter().position(|(n, _)| *n == name).map_or(0, |index| index + 1);
    write_integer(out, upper, prefix, index);
    if index == 0 {
        write_string(out, name.as_bytes());
    }
    write_string(out, value.as_bytes());
}

/// Checks the parts and puts them in order, names in lower case.
fn fields_of(parts: &HeadParts<'_>) -> Result<Vec<(String, String)>, HeadError> {
    if !is_token(parts.method) {
        return Err(HeadError::Method(parts.method.to_owned()));
    }
    if parts.method == "CONNECT" {
        return Err(HeadError::Connect);
    }
    if parts.path.is_empty() || parts.path.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(HeadError::Path(parts.path.to_owned()));
    }
    let mut authority = parts.authority.to_owned();
    let mut regular = Vec::new();
    for (name, value) in parts.headers {
        if !is_token(name) {
            return Err(HeadError::HeaderName(name.clone()));
        }
        if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
            return Err(HeadError::HeaderValue(name.clone()));
        }
        let lower = name.to_ascii_lowercase();
        // The RFC forbids blanks around values; they carry no meaning in HTTP/1 either.
        let value = value.trim_matches([' ', '\t']).to_owned();
        if is_of_connection(lower.as_bytes()) || (lower == "te" && value != "trailers") {
            return Err(HeadError::OfConnection(name.clone()));
        }
        if lower == "host" {
            authority = value;
        } else {
            regular.push((lower, value));
        }
    }
    let pseudo = [
        (":method", parts.method),
        (":scheme", parts.scheme),
        (":authority", &authority),
        (":path", parts.path),
    ];
    let mut fields: Vec<_> = pseudo.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    fields.retain(|(name, value)| name != ":authority" || !value.is_empty());
    fields.append(&mut regular);
    Ok(fields)
}

/// The contents of one peer's table: this side's half of the HPACK state.
#[derive(Debug)]
pub(super) struct Encoder {
    /// By field number: the field's position in order of entry, or [`NONE`].
    places: Vec<u8>,
    entered: u8,
    size: usize,
    limit: usize,
    /// Whether the limit has changed and the peer must be informed.
    resized: bool,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder { places: Vec::new(), entered: 0, size: 0, limit: DEFAULT_TABLE, resized: false }
    }
}

impl Encoder {
    /// The peer allows a table of this many bytes; at most the default is used.
    pub(super) fn allow(&mut self, bytes: u32) {
        let limit = (bytes as usize).min(DEFAULT_TABLE);
        if limit != self.limit {
            self.limit = limit;
            self.resized = true;
            // Emptying the table is simpler than tracking which entries would stay, and it happens once.
            self.places.clear();
            (self.entered, self.size) = (0, 0);
        }
    }

    /// Appends a block assembled from parts. Fields whose names begin with a colon come first.
    #[inline]
    pub(super) fn write_parts<'a>(&mut self, parts: impl Iterator<Item = HeadPart<'a>>, out: &mut Vec<u8>) {
        self.write_size_update(out);
        for part in parts {
            match part {
                HeadPart::Packed(head) => self.write(head, out),
                HeadPart::Field(name, value) => {
                    // Without indexing: the next request has a different value.
                    write_integer(out, if name.is_secret { 0x10 } else { 0 }, 4, name.index);
                    if name.index == 0 {
                        write_string(out, name.text.as_bytes());
                    }
                    write_string(out, value);
                }
            }
        }
    }

    /// Writes the table's new size: the next block after a change must begin with it.
    #[inline]
    fn write_size_update(&mut self, out: &mut Vec<u8>) {
        if self.resized {
            self.resized = false;
            write_integer(out, 0x20, 5, 0);
            write_integer(out, 0x20, 5, self.limit);
        }
    }

    /// Appends the block of a head.
    #[inline]
    pub(super) fn write(&mut self, head: &Head, out: &mut Vec<u8>) {
        self.write_size_update(out);
        for piece in &head.pieces {
            let range = match self.places.get(usize::from(piece.field)).copied() {
                _ if piece.field == NONE => piece.start..piece.plain_end,
                Some(entered) if entered != NONE => {
                    // The newest entry comes first after the static ones.
                    let index = STATIC.len() + usize::from(self.entered - entered);
                    write_integer(out, 0x80, 7, index);
                    continue;
                }
                _ if self.enter(piece) => piece.plain_end..piece.entering_end,
                _ => piece.start..piece.plain_end,
            };
            out.extend_from_slice(&head.bytes[range.start as usize..range.end as usize]);
        }
    }

    /// Enters a field into the table, if there is room.
    #[cold]
    fn enter(&mut self, piece: &Run) -> bool {
        let size = piece.size as usize;
        if self.size + size > self.limit {
            return false;
        }
        let at = usize::from(piece.field);
        if self.places.len() <= at {
            self.places.resize(at + 1, NONE);
        }
        self.places[at] = self.entered;
        self.entered += 1;
        self.size += size;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::hpack::Decoder;
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    fn parts<'a>(path: &'a str, headers: &'a [(String, String)]) -> HeadParts<'a> {
        HeadParts { method: "GET", scheme: "http", authority: "localhost:8080", path, headers }
    }

    /// Both ends of a connection's HPACK state.
    struct Pair {
        encoder: Encoder,
        decoder: Decoder,
    }

    impl Pair {
        fn new() -> Self {
            Pair { encoder: Encoder::default(), decoder: Decoder::new(4096, 100_000) }
        }

        /// The length of a head's block, and its fields.
        fn send(&mut self, head: &Head) -> (usize, String) {
            let (mut block, mut text) = (Vec::new(), String::new());
            self.encoder.write(head, &mut block);
            let result = self.decoder.decode(&block, |name, value| {
                let utf8 = |b| std::str::from_utf8(b).unwrap();
                text.push_str(&format!("{}: {}\n", utf8(name), utf8(value)));
            });
            assert!(result.is_ok(), "{result:?}");
            (block.len(), text)
        }
    }

    #[test]
    fn a_field_is_one_byte_from_its_second_use_on() {
        let given = headers(&[("User-Agent", "loadlab"), ("Accept", " */* "), ("HOST", "a.example")]);
        let head = Heads::default().add(&parts("/index?a=1", &given)).unwrap();
        let mut pair = Pair::new();
        let text = ":method: GET\n:scheme: http\n:authority: a.example\n:path: /index?a=1\nuser-agent: loadlab\naccept: */*\n";
        assert_eq!(pair.send(&head), (33, text.to_owned()));
        for _ in 0..3 {
            assert_eq!(pair.send(&head), (6, text.to_owned()));
        }
    }

    #[test]
    fn many_heads_share_what_they_share_and_never_evict() {
        let mut heads = Heads::default();
        let paths: Vec<String> =
            (0..200).map(|i| format!("/a/rather/long/path/of/page/number/{i}")).collect();
        let shared = headers(&[("x-shared", "of all of them")]);
        let all: Vec<Head> = paths.iter().map(|p| heads.add(&parts(p, &shared)).unwrap()).collect();
        let mut pair = Pair::new();
        for round in 0..3 {
            for (head, path) in all.iter().zip(&paths) {
                let (length, text) = pair.send(head);
                let expect = format!(
                    ":method: GET\n:scheme: http\n:authority: localhost:8080\n:path: {path}\nx-shared: of all of them\n"
                );
                assert_eq!(text, expect);
                if round > 0 {
                    assert!(length == 5 || length > 25, "{length}");
                }
            }
        }
        assert_eq!(heads.paths, MOST_PATHS);
        assert!(pair.encoder.size <= DEFAULT_TABLE);
    }

    #[test]
    fn a_table_that_the_peer_shrinks_starts_anew() {
        let mut heads = Heads::default();
        let head = heads.add(&parts("/a", &[])).unwrap();
        let mut pair = Pair::new();
        let (first, text) = pair.send(&head);
        assert_eq!(pair.send(&head).0, 4);
        // Room for one of the two fields; then for none; then for more than the default.
        pair.encoder.allow(60);
        assert_eq!(pair.send(&head), (first + 3, text.clone()));
        let one = pair.send(&head);
        assert!(one.0 > 4 && one.0 < first, "{one:?}");
        pair.encoder.allow(0);
        assert_eq!(pair.send(&head), (first + 2, text.clone()));
        assert_eq!(pair.send(&head), (first, text.clone()));
        pair.encoder.allow(1 << 20);
        assert_eq!(pair.send(&head).1, text);
        assert_eq!(pair.send(&head), (4, text));
    }

    #[test]
    fn plain_heads_leave_the_table_alone() {
        let head = Head::plain(&parts("/once/7", &[])).unwrap();
        let mut pair = Pair::new();
        let first = pair.send(&head);
        assert_eq!(pair.send(&head), first);
        assert_eq!(pair.encoder.entered, 0);
        assert!(Head::plain(&HeadParts { method: "HEAD", ..parts("/", &[]) }).unwrap().response_has_no_body);
    }

    #[test]
    fn a_head_of_which_a_part_is_written_anew() {
        let given = headers(&[("User-Agent", "loadlab")]);
        let mut heads = Heads::default();
        let outline = heads.outline(&parts("/", &given), &["Authorization", "x-round"]).unwrap();
        assert_eq!(
            (outline.front.text(), outline.back(OmittedHeaders::default()).text()),
            (":method GET\r\n:scheme http\r\n:authority localhost:8080\r\n", "user-agent: loadlab\r\n")
        );
        let mut pair = Pair::new();
        let mut lengths = Vec::new();
        for round in 0..3 {
            let (path, value) = (format!("/a/{round}"), format!("Bearer {round}"));
            let parts = [
                HeadPart::Packed(&outline.front),
                HeadPart::Field(&PATH, path.as_bytes()),
                HeadPart::Packed(outline.back(OmittedHeaders::default())),
                HeadPart::Field(&outline.names[0], value.as_bytes()),
                HeadPart::Field(&outline.names[1], b"7"),
            ];
            let (mut block, mut text) = (Vec::new(), String::new());
            pair.encoder.write_parts(parts.into_iter(), &mut block);
            let result = pair.decoder.decode(&block, |name, value| {
                let utf8 = |b| std::str::from_utf8(b).unwrap();
                text.push_str(&format!("{}: {}\n", utf8(name), utf8(value)));
            });
            assert!(result.is_ok(), "{result:?}");
            let expect = format!(
                ":method: GET\n:scheme: http\n:authority: localhost:8080\n:path: /a/{round}\nuser-agent: loadlab\nauthorization: Bearer {round}\nx-round: 7\n"
            );
            assert_eq!(text, expect);
            lengths.push(block.len());
        }
        // A fixed field takes one byte from its second use on; nothing else enters the table.
        assert!(lengths[1] < lengths[0] && lengths[2] == lengths[1], "{lengths:?}");
        assert_eq!(pair.encoder.entered, 2);
        for (name, text) in [
            (&METHOD, ":method"),
            (&SCHEME, ":scheme"),
            (&AUTHORITY, ":authority"),
            (&PATH, ":path"),
            (&CONTENT_LENGTH, "content-length"),
            (&COOKIE, "cookie"),
        ] {
            assert_eq!((name.text(), STATIC[name.index - 1].0), (text, text));
        }
        assert_eq!(Name::new("Connection"), Err(HeadError::OfConnection("Connection".into())));
    }

    #[test]
    fn what_http2_cannot_say() {
        let bad = |method: &str, path: &str, pairs: &[(&str, &str)]| {
            let given = headers(pairs);
            Head::plain(&HeadParts { method, path, ..parts("/", &given) }).unwrap_err()
        };
        assert_eq!(bad("GE T", "/", &[]), HeadError::Method("GE T".into()));
        assert_eq!(bad("CONNECT", "/", &[]), HeadError::Connect);
        assert_eq!(bad("GET", "/a b", &[]), HeadError::Path("/a b".into()));
        assert_eq!(bad("GET", "", &[]), HeadError::Path(String::new()));
        assert_eq!(bad("GET", "/", &[("a:", "b")]), HeadError::HeaderName("a:".into()));
        assert_eq!(bad("GET", "/", &[("a", "b\r\nc")]), HeadError::HeaderValue("a".into()));
        for (name, value) in [("Connection", "close"), ("Transfer-Encoding", "chunked"), ("TE", "gzip")] {
            assert_eq!(bad("GET", "/", &[(name, value)]), HeadError::OfConnection(name.into()));
        }
        assert!(Head::plain(&parts("/", &headers(&[("TE", "trailers")]))).is_ok());
    }
}
