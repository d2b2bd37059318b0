//! HTTP/1.1 responses: where they end, and whether the connection stays open. Bytes in, progress out.
//!
//! Only what a load generator needs is parsed: status, framing and whether the connection may be reused (RFC 9112 §6,
//! §7, §9.3). Head and body go to a [`BodySink`], and are not kept here. Ambiguity (two lengths, or length and
//! transfer-encoding together) is a fault, not a guess.

/// Longest response head, and longest trailer section.
pub const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 256;
/// Most interim responses (1xx) before the final one: a server that sends nothing else would be read forever.
pub const MAX_INTERIM: u8 = 100;
/// Message for a server that sends more than that.
pub const TOO_MANY_INTERIM: &str = "more than 100 interim responses (1xx), and no final one";
/// Longest chunk size line, including its extensions.
const MAX_CHUNK_LINE: u32 = 4096;

/// Why bytes are not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http1Error {
    /// The head does not follow the grammar, for this reason.
    Malformed(&'static str),
    /// The head (or trailers) is longer than [`MAX_HEAD`].
    HeadTooLarge,
}

impl Http1Error {
    /// The reason in words.
    pub fn describe(self) -> &'static str {
        match self {
            Http1Error::Malformed(message) => message,
            Http1Error::HeadTooLarge => "response head longer than 64 KiB",
        }
    }
}

/// What a response head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Whether the connection may be reused once the response is complete.
    pub keep_alive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    /// Before or inside the head.
    Head,
    /// In a body with this many bytes to come.
    Body(u64),
    /// Inside a chunked body.
    Chunked(ChunkState),
    /// In a body that ends with the connection.
    UntilClose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In a size: digits so far, and their value.
    Size {
        digits: u8,
        value: u64,
    },
    /// After the size, up to the end of the line: bytes so far.
    Extension {
        value: u64,
        seen: u32,
    },
    /// CR of the size line seen.
    SizeLf {
        value: u64,
    },
    /// In the data, with this many bytes to come.
    Data(u64),
    /// After the data: at its CR, then at its LF.
    DataCr,
    DataLf,
    /// In the trailers: bytes so far, and bytes of the current line.
    Trailer {
        seen: u32,
        line: u32,
    },
}

/// Reads one response on one connection, as far as received.
#[derive(Clone, Debug)]
pub struct Reader {
    state: ReaderState,
    head: Option<Head>,
    /// The beginning of the head, if it arrived in pieces. Few do: all the others need no room for it.
    #[expect(
        clippy::box_collection,
        reason = "few heads arrive in pieces: all the others need no room for it"
    )]
    partial: Option<Box<Vec<u8>>>,
    /// Number of interim responses so far.
    interim: u8,
}

/// The last head seen on any connection of a worker, and its meaning. Servers send the same head again and again
/// (except for `Date`, once a second): comparing it is several times cheaper than parsing it.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    bytes: Vec<u8>,
    no_body: bool,
    head: Option<(Head, Framing)>,
}

/// Receives the parts of a response as they arrive.
pub trait BodySink {
    /// The final head, whole, including its empty line.
    fn head(&mut self, bytes: &[u8]);
    /// A piece of the body, without its framing.
    fn body(&mut self, bytes: &[u8]);
}

/// Discards all parts.
impl BodySink for () {
    #[inline]
    fn head(&mut self, _: &[u8]) {}
    #[inline]
    fn body(&mut self, _: &[u8]) {}
}

/// The result of a call to [`Reader::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Whether the response is complete.
    pub done: bool,
    /// Number of bytes used; after `done`, bytes left over do not belong to the response.
    pub used: usize,
    /// Offset of the (final) head's end in the given bytes, if the head began and ended in them.
    pub head_end: Option<usize>,
    /// The head, once it is complete.
    pub head: Option<Head>,
}

impl Default for Reader {
    fn default() -> Self {
        Reader { state: ReaderState::Head, head: None, partial: None, interim: 0 }
    }
}

impl Reader {
    /// Prepares for the next response.
    #[inline]
    pub fn reset(&mut self) {
        self.state = ReaderState::Head;
        self.head = None;
        if let Some(partial) = &mut self.partial {
            partial.clear();
        }
        self.interim = 0;
    }

    /// The head, once it is complete.
    #[inline]
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// Whether the response ends with the connection, so that its end is not a fault.
    pub fn ends_with_connection(&self) -> bool {
        self.state == ReaderState::UntilClose
    }

    /// Takes the next bytes of the connection. `no_body`: the request was a HEAD.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8], no_body: bool, memo: &mut Memo) -> Result<Fed, Http1Error> {
        self.feed_to(bytes, no_body, memo, &mut ())
    }

    /// As `feed`; head and body go to `sink`.
    #[inline]
    pub fn feed_to(
        &mut self,
        bytes: &[u8],
        no_body: bool,
        memo: &mut Memo,
        sink: &mut impl BodySink,
    ) -> Result<Fed, Http1Error> {
        let mut fed = Fed { done: false, used: 0, head_end: None, head: None };
        if self.state == ReaderState::Head {
            match self.feed_head(bytes, no_body, memo, sink)? {
                None => {
                    fed.used = bytes.len();
                    return Ok(fed);
                }
                Some((used, whole)) => {
                    fed.used = used;
                    fed.head_end = whole.then_some(used);
                }
            }
        }
        let rest = &bytes[fed.used..];
        let (used, done) = match &mut self.state {
            ReaderState::Head => (0, false),
            ReaderState::Body(left) => {
                let take = (*left).min(rest.len() as u64);
                *left -= take;
                sink.body(&rest[..take as usize]);
                (take as usize, *left == 0)
            }
            ReaderState::Chunked(chunk) => feed_chunked(chunk, rest, sink)?,
            ReaderState::UntilClose => {
                sink.body(rest);
                (rest.len(), false)
            }
        };
        fed.used += used;
        fed.done = done;
        fed.head = self.head;
        Ok(fed)
    }

    /// Once the final head is complete: number of bytes used, and whether the whole head was in them.
    #[inline]
    fn feed_head(
        &mut self,
        bytes: &[u8],
        no_body: bool,
        memo: &mut Memo,
        sink: &mut impl BodySink,
    ) -> Result<Option<(usize, bool)>, Http1Error> {
        if self.partial.as_ref().is_none_or(|partial| partial.is_empty())
            && let Some((head, framing)) = memo.head
            && memo.no_body == no_body
            && bytes.starts_with(&memo.bytes)
        {
            self.begin_body(head, framing);
            sink.head(&memo.bytes);
            return Ok(Some((memo.bytes.len(), true)));
        }
        self.parse_heads(bytes, no_body, memo, sink)
    }

    #[cold]
    #[inline(never)]
    fn parse_heads(
        &mut self,
        bytes: &[u8],
        no_body: bool,
        memo: &mut Memo,
        sink: &mut impl BodySink,
    ) -> Result<Option<(usize, bool)>, Http1Error> {
        if let Some(mut partial) = self.partial.take() {
            let parsed = self.parse_after(&mut partial, bytes, no_body, memo, sink);
            self.partial = Some(partial);
            return parsed;
        }
        let mut partial = Vec::new();
        let parsed = self.parse_after(&mut partial, bytes, no_body, memo, sink);
        if !partial.is_empty() {
            self.partial = Some(Box::new(partial));
        }
        parsed
    }

    /// Parses heads in `bytes`, which follow the partial one.
    fn parse_after(
        &mut self,
        partial: &mut Vec<u8>,
        bytes: &[u8],
        no_body: bool,
        memo: &mut Memo,
        sink: &mut impl BodySink,
    ) -> Result<Option<(usize, bool)>, Http1Error> {
        let before = partial.len();
        let mut start = 0;
        loop {
            let parsed = if before > 0 && start == 0 {
                partial.extend_from_slice(bytes);
                let parsed = parse_head(partial, no_body);
                match parsed {
                    // An interim head ended within the kept bytes plus the new ones: continue after it.
                    Ok(Some(ParsedHead { head, used, .. })) if head.status < 200 => {
                        self.passes_over(head.status)?;
                        partial.drain(..used);
                        let rest = std::mem::take(partial);
                        // `used` extends past the kept bytes, or the head would have ended there before.
                        let offset = bytes.len() - rest.len();
                        let nested = self.parse_after(partial, &rest, no_body, memo, sink)?;
                        return Ok(nested.map(|(n, _)| (offset + n, false)));
                    }
                    Ok(Some(ParsedHead { head, framing, used })) => {
                        sink.head(&partial[..used]);
                        partial.clear();
                        self.begin_body(head, framing);
                        return Ok(Some((used - before, false)));
                    }
                    other => other,
                }
            } else {
                parse_head(&bytes[start..], no_body)
            };
            match parsed? {
                None => {
                    if before == 0 || start > 0 {
                        partial.clear();
                        partial.extend_from_slice(&bytes[start..]);
                    }
                    return if partial.len() > MAX_HEAD { Err(Http1Error::HeadTooLarge) } else { Ok(None) };
                }
                Some(ParsedHead { head, used, .. }) if head.status < 200 => {
                    self.passes_over(head.status)?;
                    start += used;
                }
                Some(ParsedHead { head, framing, used }) => {
                    memo.bytes.clear();
                    memo.bytes.extend_from_slice(&bytes[start..start + used]);
                    (memo.head, memo.no_body) = (Some((head, framing)), no_body);
                    self.begin_body(head, framing);
                    sink.head(&bytes[start..start + used]);
                    return Ok(Some((start + used, start == 0)));
                }
            }
        }
    }

    /// Counts an interim response.
    fn passes_over(&mut self, status: u16) -> Result<(), Http1Error> {
        self.interim += 1;
        match status {
            101 => Err(Http1Error::Malformed("status 101, although no upgrade was requested")),
            _ if self.interim > MAX_INTERIM => Err(Http1Error::Malformed(TOO_MANY_INTERIM)),
            _ => Ok(()),
        }
    }

    #[inline]
    fn begin_body(&mut self, head: Head, framing: Framing) {
        self.head = Some(head);
        self.state = match framing {
            Framing::Length(n) => ReaderState::Body(n),
            Framing::Chunked => ReaderState::Chunked(ChunkState::Size { digits: 0, value: 0 }),
            Framing::UntilClose => ReaderState::UntilClose,
        };
    }
}

/// A complete head.
struct ParsedHead {
    head: Head,
    /// How its body ends.
    framing: Framing,
    /// Its length in bytes.
    used: usize,
}

/// The head at the start of `bytes`; `None` if it is not complete.
fn parse_head(bytes: &[u8], no_body: bool) -> Result<Option<ParsedHead>, Http1Error> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let used = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Http1Error::Malformed(describe(error))),
    };
    if used > MAX_HEAD {
        return Err(Http1Error::HeadTooLarge);
    }
    let status = response.code.unwrap_or(0);
    let mut length: Option<u64> = None;
    let (mut encoded, mut chunked) = (false, false);
    let mut keep_alive = response.version == Some(1);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let n = content_length(header.value)?;
            if length.is_some_and(|l| l != n) {
                return Err(Http1Error::Malformed("content-length given twice with different values"));
            }
            length = Some(n);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            encoded = true;
            chunked = last_item_is(header.value, b"chunked");
        } else if header.name.eq_ignore_ascii_case("connection") {
            for item in header.value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                if item.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                } else if item.eq_ignore_ascii_case(b"keep-alive") && response.version == Some(0) {
                    keep_alive = true;
                }
            }
        }
    }
    if !(100..=999).contains(&status) {
        return Err(Http1Error::Malformed("status code out of range"));
    }
    let framing = if status < 200 || status == 204 || status == 304 || no_body {
        Framing::Length(0)
    } else if encoded && length.is_some() {
        return Err(Http1Error::Malformed("content-length and transfer-encoding both given"));
    } else if chunked {
        Framing::Chunked
    } else if encoded {
        Framing::UntilClose
    } else {
        length.map_or(Framing::UntilClose, Framing::Length)
    };
    let keep_alive = keep_alive && framing != Framing::UntilClose;
    Ok(Some(ParsedHead { head: Head { status, keep_alive }, framing, used }))
}

/// RFC 9110 §8.6: a number, or a list that repeats the same number.
fn content_length(value: &[u8]) -> Result<u64, Http1Error> {
    let mut length: Option<u64> = None;
    for item in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
        if item.is_empty() || !item.iter().all(u8::is_ascii_digit) {
            return Err(Http1Error::Malformed("content-length is not a number"));
        }
        let n = std::str::from_utf8(item)
            .ok()
            .and_then(|s| s.parse::<u64>().ok())
            .ok_or(Http1Error::Malformed("content-length overflows"))?;
        if length.is_some_and(|l| l != n) {
            return Err(Http1Error::Malformed("content-length given twice with different values"));
        }
        length = Some(n);
    }
    length.ok_or(Http1Error::Malformed("content-length is not a number"))
}

fn last_item_is(value: &[u8], item: &[u8]) -> bool {
    value.rsplit(|b| *b == b',').next().is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(item))
}

fn describe(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "invalid header name",
        httparse::Error::HeaderValue => "invalid header value",
        httparse::Error::NewLine => "invalid line ending in the head",
        httparse::Error::Status => "invalid status line",
        httparse::Error::Token => "invalid status line",
        httparse::Error::TooManyHeaders => "more than 256 headers",
        httparse::Error::Version => "not HTTP/1",
    }
}

/// Number of bytes used, and whether the body is complete.
fn feed_chunked(
    chunk: &mut ChunkState,
    bytes: &[u8],
    sink: &mut impl BodySink,
) -> Result<(usize, bool), Http1Error> {
    let mut i = 0;
    while i < bytes.len() {
        let b = bytes[i];
        match *chunk {
            ChunkState::Data(left) => {
                let take = left.min((bytes.len() - i) as u64);
                sink.body(&bytes[i..i + take as usize]);
                i += take as usize;
                *chunk = if take == left { ChunkState::DataCr } else { ChunkState::Data(left - take) };
                continue;
            }
            ChunkState::Size { digits, value } => *chunk = chunk_size(digits, value, b)?,
            ChunkState::Extension { value, seen } => {
                *chunk = match b {
                    b'\r' => ChunkState::SizeLf { value },
                    b'\n' => return Err(Http1Error::Malformed("invalid line ending in a chunk size")),
                    _ if seen >= MAX_CHUNK_LINE => {
                        return Err(Http1Error::Malformed("chunk size line too long"));
                    }
                    _ => ChunkState::Extension { value, seen: seen + 1 },
                }
            }
            ChunkState::SizeLf { value } => {
                if b != b'\n' {
                    return Err(Http1Error::Malformed("invalid line ending in a chunk size"));
                }
                *chunk = if value == 0 {
                    ChunkState::Trailer { seen: 0, line: 0 }
                } else {
                    ChunkState::Data(value)
                };
            }
            ChunkState::DataCr if b == b'\r' => *chunk = ChunkState::DataLf,
            ChunkState::DataLf if b == b'\n' => *chunk = ChunkState::Size { digits: 0, value: 0 },
            ChunkState::DataCr | ChunkState::DataLf => {
                return Err(Http1Error::Malformed("chunk longer than its size"));
            }
            ChunkState::Trailer { seen, line } => {
                if seen as usize >= MAX_HEAD {
                    return Err(Http1Error::HeadTooLarge);
                }
                match b {
                    b'\n' if line == 0 => return Ok((i + 1, true)),
                    b'\n' => *chunk = ChunkState::Trailer { seen: seen + 1, line: 0 },
                    b'\r' => *chunk = ChunkState::Trailer { seen: seen + 1, line },
                    _ => *chunk = ChunkState::Trailer { seen: seen + 1, line: line + 1 },
                }
            }
        }
        i += 1;
    }
    Ok((i, false))
}

fn chunk_size(digits: u8, value: u64, b: u8) -> Result<ChunkState, Http1Error> {
    let digit = match b {
        b'0'..=b'9' => b - b'0',
        b'a'..=b'f' => b - b'a' + 10,
        b'A'..=b'F' => b - b'A' + 10,
        _ if digits == 0 => return Err(Http1Error::Malformed("invalid chunk size")),
        b'\r' => return Ok(ChunkState::SizeLf { value }),
        b';' | b' ' | b'\t' => return Ok(ChunkState::Extension { value, seen: 0 }),
        _ => return Err(Http1Error::Malformed("invalid chunk size")),
    };
    if digits >= 16 || value >> 60 != 0 {
        return Err(Http1Error::Malformed("chunk size overflows"));
    }
    Ok(ChunkState::Size { digits: digits + 1, value: value << 4 | u64::from(digit) })
}

/// Whether it is a token of RFC 9110 §5.6.2.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default, PartialEq, Debug)]
    struct Kept(Vec<Vec<u8>>, Vec<u8>);

    impl BodySink for Kept {
        fn head(&mut self, bytes: &[u8]) {
            self.0.push(bytes.to_vec());
        }
        fn body(&mut self, bytes: &[u8]) {
            self.1.extend_from_slice(bytes);
        }
    }

    #[test]
    fn head_and_body_are_reported_without_framing_in_pieces_of_every_size() {
        let fixed = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let cases = [
            (fixed, format!("{fixed}helloX"), "hello"),
            (fixed, format!("HTTP/1.1 100 Continue\r\n\r\n{fixed}hello"), "hello"),
            (chunked, format!("{chunked}3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nT: r\r\n\r\n"), "hello"),
            ("HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nhello".to_owned(), "hello"),
        ];
        for (head, text, body) in cases {
            let expect = Kept(vec![head.into()], body.into());
            let mut memo = Memo::default();
            // In the second pass the head is already known.
            for piece in (1..=text.len()).chain(1..=text.len()) {
                let (mut reader, mut kept) = (Reader::default(), Kept::default());
                for part in text.as_bytes().chunks(piece) {
                    if reader.feed_to(part, false, &mut memo, &mut kept).unwrap().done {
                        break;
                    }
                }
                assert_eq!(kept, expect, "in pieces of {piece}: {text}");
            }
        }
    }

    /// Status and number of bytes used of a complete response, fed in pieces of every size.
    fn check(input: &[u8], no_body: bool, expect: Result<Option<(u16, usize)>, &str>) {
        for piece in 1..=input.len() {
            let mut reader = Reader::default();
            let mut memo = Memo::default();
            let mut at = 0;
            let mut result = Ok(None);
            for part in input.chunks(piece) {
                match reader.feed(part, no_body, &mut memo) {
                    Ok(fed) if fed.done => {
                        result = Ok(Some((reader.head().unwrap().status, at + fed.used)));
                        break;
                    }
                    Ok(fed) => assert_eq!(fed.used, part.len()),
                    Err(fault) => {
                        result = Err(fault.describe());
                        break;
                    }
                }
                at += part.len();
            }
            assert_eq!(result, expect, "in pieces of {piece}: {}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn framings() {
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloX", false, Ok(Some((200, 43))));
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", false, Ok(None));
        check(b"HTTP/1.1 204 No Content\r\n\r\n", false, Ok(Some((204, 27))));
        check(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false, Ok(Some((304, 48))));
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true, Ok(Some((200, 38))));
        check(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", false, Ok(None));
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc", false, Ok(Some((200, 44))));
    }

    #[test]
    fn chunked() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let of = |body: &str| format!("{head}{body}").into_bytes();
        let whole = |body: &str| Ok(Some((200, head.len() + body.len())));
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "5;a=b\r\nhello\r\n00\r\nX: y\r\nZ: w\r\n\r\n",
            "A\r\n0123456789\r\n0\r\n\r\n",
        ] {
            check(&of(body), false, whole(body));
        }
        check(&of("10000000000000000\r\n"), false, Err("chunk size overflows"));
        check(&of("fffffffffffffffff\r\n"), false, Err("chunk size overflows"));
        check(&of("x\r\n"), false, Err("invalid chunk size"));
        check(&of("\r\n"), false, Err("invalid chunk size"));
        check(&of("3\r\nhello\r\n"), false, Err("chunk longer than its size"));
        check(&of("-1\r\n"), false, Err("invalid chunk size"));
    }

    #[test]
    fn interim_responses_are_skipped() {
        let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
        check(input, false, Ok(Some((201, input.len()))));
        check(
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            false,
            Err("status 101, although no upgrade was requested"),
        );
    }

    #[test]
    fn interim_responses_without_end_are_bounded() {
        let most = usize::from(MAX_INTERIM);
        let hints = |count| b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(count);
        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
        for piece in [1, 7, 40, 1000, 100_000] {
            let mut memo = Memo::default();
            let fed = |bytes: &[u8], memo: &mut Memo| {
                let mut reader = Reader::default();
                bytes.chunks(piece).find_map(|part| match reader.feed(part, false, memo) {
                    Ok(fed) => fed.done.then_some(Ok(())),
                    Err(fault) => Some(Err(fault.describe())),
                })
            };
            // The limit starts over with the next response.
            for _ in 0..2 {
                assert_eq!(fed(&[&hints(most), &answer[..]].concat(), &mut memo), Some(Ok(())), "{piece}");
            }
            assert_eq!(fed(&hints(most + 1), &mut memo), Some(Err(TOO_MANY_INTERIM)), "{piece}");
        }
    }

    #[test]
    fn ambiguous_or_malformed_heads_are_faults() {
        for (input, message) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
                "content-length given twice with different values",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                "content-length and transfer-encoding both given",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "content-length is not a number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "content-length overflows"),
            ("SSH-2.0-OpenSSH_9.2\r\n", "not HTTP/1"),
            ("HTTP/1.1 abc\r\n\r\n", "invalid status line"),
        ] {
            let mut reader = Reader::default();
            let result = reader.feed(input.as_bytes(), false, &mut Memo::default());
            assert_eq!(result.unwrap_err().describe(), message, "{input}");
        }
    }

    #[test]
    fn a_head_without_end_is_bounded() {
        let mut reader = Reader::default();
        let mut memo = Memo::default();
        let mut fed = 0;
        assert!(reader.feed(b"HTTP/1.1 200 OK\r\n", false, &mut memo).is_ok());
        let fault = loop {
            match reader.feed(
                b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
                false,
                &mut memo,
            ) {
                Ok(_) => fed += 61,
                Err(fault) => break fault,
            }
            assert!(fed < 2 * MAX_HEAD);
        };
        assert_eq!(fault, Http1Error::HeadTooLarge);
    }

    #[test]
    fn connections_that_may_be_reused() {
        for (head, keep) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: upgrade, Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            let mut reader = Reader::default();
            assert!(reader.feed(head.as_bytes(), false, &mut Memo::default()).unwrap().done);
            assert_eq!(reader.head().unwrap().keep_alive, keep, "{head}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8), head: bool) {
            let mut reader = Reader::default();
            let mut memo = Memo::default();
            for part in parts {
                match reader.feed(&part, head, &mut memo) {
                    Ok(fed) => prop_assert!(fed.used <= part.len()),
                    Err(_) => break,
                }
            }
        }

        #[test]
        fn the_memo_changes_nothing(a in "[a-zA-Z0-9: ]{0,40}", n in 0u64..50, cut in 0usize..80, extra in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut input = format!("HTTP/1.1 200 OK\r\nX: {a}\r\nContent-Length: {n}\r\n\r\n").into_bytes();
            input.extend(&extra);
            let run = |memo: &mut Memo| {
                let mut reader = Reader::default();
                let cut = cut.min(input.len());
                let first = reader.feed(&input[..cut], false, memo);
                if first.is_ok_and(|f| f.done) || first.is_err() {
                    return vec![first];
                }
                vec![first, reader.feed(&input[cut..], false, memo)]
            };
            let mut warm = Memo::default();
            let mut reader = Reader::default();
            let _ = reader.feed(&input, false, &mut warm);
            let with: Vec<_> = run(&mut warm).into_iter().map(|r| r.map(|f| (f.done, f.used))).collect();
            let without: Vec<_> = run(&mut Memo::default()).into_iter().map(|r| r.map(|f| (f.done, f.used))).collect();
            prop_assert_eq!(with, without);
        }
    }
}
