//! A single HTTP/1.1 GET, for readiness checks and probes: small, blocking, bounded in time and size.
//!
//! Neither a load generator nor a general client: no TLS, no redirects, no keep-alive. It can be interrupted every 20
//! ms, since a caller that waits for a component also watches whether it is still alive.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use loadlab_record::text::url;

use crate::clock;

/// The longest response head, in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// The longest response body, in bytes.
pub const BODY_BYTES: usize = 4 << 20;
/// How long a read blocks before it checks whether to continue.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code, 200 to 599.
    pub status: u16,
    /// The body, decoded if it was chunked.
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Not a URL this client understands.
    #[error("`{url}` is not a URL such as `http://127.0.0.1:8080/health`: {why}")]
    Url {
        /// As given, without user and password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The host name does not resolve.
    #[error("cannot resolve `{host}`: {source}")]
    Resolve {
        /// Host and port.
        host: String,
        /// The resolver's error.
        source: std::io::Error,
    },
    /// The connection could not be established.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address that was tried.
        address: SocketAddr,
        /// The underlying I/O error.
        source: std::io::Error,
    },
    /// A Unix socket did not behave as a socket should.
    #[error("connection to {} lost: {source}", path.display())]
    Socket {
        /// The socket's path.
        path: std::path::PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("connection to {address} lost: {source}")]
    Broken {
        /// The peer's address.
        address: SocketAddr,
        /// The underlying I/O error.
        source: std::io::Error,
    },
    /// The peer closed the connection before the response was complete.
    #[error("the response ended after {bytes} bytes, before it was complete")]
    Truncated {
        /// Bytes received until then.
        bytes: usize,
    },
    /// The response is not HTTP.
    #[error("the response is not HTTP/1.1: {why}")]
    Protocol {
        /// What is wrong with it, in words.
        why: String,
    },
    /// The response's head or body is larger than allowed.
    #[error("the response's {part} is larger than {limit} bytes")]
    TooLarge {
        /// `head` or `body`.
        part: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The deadline passed.
    #[error("no complete response in time")]
    Timeout,
    /// The caller stopped waiting.
    #[error("interrupted")]
    Interrupted,
}

/// A parsed `http://` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Host and port, as in the `Host` header.
    pub authority: String,
    host: String,
    port: u16,
    /// Path and query.
    path: String,
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Url {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Url, HttpError> {
        let bad = |why: String| HttpError::Url { url: url::masked(text), why };
        let url = url::Url::parse(text).map_err(|error| bad(error.why))?;
        if url.is("https") {
            return Err(bad("readiness checks and probes support http, not https".to_owned()));
        }
        if !url.is("http") {
            return Err(bad("it must begin with `http://`".to_owned()));
        }
        let url::Authority { text: authority, host, port } = url.authority;
        let (authority, host) = (authority.to_owned(), host.to_owned());
        Ok(Url { authority, host, port: port.unwrap_or(80), path: url.path() })
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>, HttpError> {
        let failed = |source| HttpError::Resolve { host: format!("{}:{}", self.host, self.port), source };
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() { Err(failed(ErrorKind::NotFound.into())) } else { Ok(found) }
    }
}

/// Connects to the first address of a name that accepts: `localhost` may mean `::1` first, where few listen. Each
/// address gets at most `each`, and all of them together until `until_ns`. The error is that of the last one tried.
pub(crate) fn connect(
    addresses: &[SocketAddr],
    each: Duration,
    until_ns: u64,
) -> Result<(TcpStream, SocketAddr), HttpError> {
    let mut failed = HttpError::Timeout;
    for address in addresses {
        let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, left.min(each)) {
            Ok(stream) => return Ok((stream, *address)),
            Err(source) => failed = HttpError::Connect { address: *address, source },
        }
    }
    Err(failed)
}

/// GETs a URL. Fails at `until_ns` (of [`clock::now_ns`]) or when `stop` returns true.
pub fn get(url: &str, until_ns: u64, stop: &mut dyn FnMut() -> bool) -> Result<Response, HttpError> {
    fetch(&Url::parse(url)?, until_ns, stop)
}

/// GETs an already parsed URL.
pub(crate) fn fetch(url: &Url, until_ns: u64, stop: &mut dyn FnMut() -> bool) -> Result<Response, HttpError> {
    let (mut stream, address) = connect(&url.resolve()?, Duration::from_secs(1), until_ns)?;
    let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
    if left.is_zero() {
        return Err(HttpError::Timeout);
    }
    let broken = |source| HttpError::Broken { address, source };
    stream.set_read_timeout(Some(SLICE)).map_err(broken)?;
    stream.set_write_timeout(Some(left)).map_err(broken)?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: loadlab\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        url.path, url.authority
    );
    exchange(&mut stream, request.as_bytes(), until_ns, stop, &broken)
}

/// Sends a request over a stream that reads in slices of [`SLICE`], and reads the response.
pub(crate) fn exchange(
    stream: &mut (impl Read + Write),
    request: &[u8],
    until_ns: u64,
    stop: &mut dyn FnMut() -> bool,
    broken: &dyn Fn(std::io::Error) -> HttpError,
) -> Result<Response, HttpError> {
    stream.write_all(request).map_err(broken)?;
    receive(stream, until_ns, stop, broken)
}

fn receive(
    stream: &mut impl Read,
    until_ns: u64,
    stop: &mut dyn FnMut() -> bool,
    broken: &dyn Fn(std::io::Error) -> HttpError,
) -> Result<Response, HttpError> {
    let mut received = Vec::new();
    let mut chunk = [0u8; 16 << 10];
    loop {
        if stop() {
            return Err(HttpError::Interrupted);
        }
        if clock::now_ns() >= until_ns {
            return Err(HttpError::Timeout);
        }
        let closed = match stream.read(&mut chunk) {
            Ok(0) => true,
            Ok(n) => {
                received.extend_from_slice(&chunk[..n]);
                false
            }
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(e) => return Err(broken(e)),
        };
        if let Some(response) = parse(&received, closed)? {
            return Ok(response);
        }
        if closed {
            return Err(HttpError::Truncated { bytes: received.len() });
        }
    }
}

/// How the length of a body is known.
enum Length {
    Known(usize),
    Chunked,
    UntilClose,
}

/// Parses the response, if it is complete.
fn parse(mut bytes: &[u8], closed: bool) -> Result<Option<Response>, HttpError> {
    let mut before = 0;
    loop {
        match parse_one(bytes, closed)? {
            // `100 Continue` and the like precede the response: together they may be no larger than a head, or a server
            // that keeps sending them would never finish.
            Parsed::Informational { length } => {
                (bytes, before) = (&bytes[length..], before + length);
                if before > HEAD_BYTES {
                    return Err(HttpError::TooLarge { part: "head", limit: HEAD_BYTES });
                }
            }
            Parsed::Complete(response) => return Ok(Some(response)),
            Parsed::Partial => return Ok(None),
        }
    }
}

enum Parsed {
    Informational { length: usize },
    Complete(Response),
    Partial,
}

fn parse_one(bytes: &[u8], closed: bool) -> Result<Parsed, HttpError> {
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Response::new(&mut fields);
    let protocol = |why: String| HttpError::Protocol { why };
    let start = match head.parse(bytes).map_err(|e| protocol(e.to_string()))? {
        httparse::Status::Complete(start) => start,
        httparse::Status::Partial if bytes.len() > HEAD_BYTES => {
            return Err(HttpError::TooLarge { part: "head", limit: HEAD_BYTES });
        }
        httparse::Status::Partial => return Ok(Parsed::Partial),
    };
    let status = head.code.unwrap_or(0);
    if (100..200).contains(&status) {
        return Ok(Parsed::Informational { length: start });
    }
    let length = match status {
        204 | 304 => Length::Known(0),
        _ => length_of(head.headers).map_err(protocol)?,
    };
    let rest = &bytes[start..];
    let too_large = HttpError::TooLarge { part: "body", limit: BODY_BYTES };
    let body = match length {
        Length::Known(n) if n > BODY_BYTES => return Err(too_large),
        // Chunk sizes add to the length; the data itself is bounded below.
        _ if rest.len() > 2 * BODY_BYTES => return Err(too_large),
        Length::Known(n) => rest.get(..n).map(<[u8]>::to_vec),
        Length::Chunked => unchunk(rest).map_err(protocol)?,
        Length::UntilClose => closed.then(|| rest.to_vec()),
    };
    match body {
        Some(body) if body.len() > BODY_BYTES => Err(too_large),
        Some(body) => Ok(Parsed::Complete(Response { status, body })),
        None => Ok(Parsed::Partial),
    }
}

fn length_of(fields: &[httparse::Header<'_>]) -> Result<Length, String> {
    let all = |name: &str| {
        let name = name.to_owned();
        fields
            .iter()
            .filter(move |f| f.name.eq_ignore_ascii_case(&name))
            .map(|f| String::from_utf8_lossy(f.value).trim().to_ascii_lowercase())
    };
    if all("transfer-encoding").any(|v| v.ends_with("chunked")) {
        return Ok(Length::Chunked);
    }
    match all("content-length").next() {
        Some(digits) => digits.parse().map(Length::Known).map_err(|_| format!("content-length `{digits}`")),
        None => Ok(Length::UntilClose),
    }
}

/// The data of all chunks, if the last chunk has arrived.
fn unchunk(mut rest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let size = httparse::parse_chunk_size(rest).map_err(|_| "a chunk without a size".to_owned())?;
        let httparse::Status::Complete((start, size)) = size else { return Ok(None) };
        if size == 0 {
            return Ok(Some(body));
        }
        let Some(end) = usize::try_from(size).ok().and_then(|size| start.checked_add(size)) else {
            return Err(format!("a chunk of {size} bytes"));
        };
        let Some(data) = rest.get(start..end) else { return Ok(None) };
        body.extend_from_slice(data);
        match rest.get(end..end + 2) {
            Some(b"\r\n") => rest = &rest[end + 2..],
            Some(_) => return Err("a chunk longer than its size".to_owned()),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, expect) in [
            ("http://127.0.0.1:8080/a?b=c#d", Ok(("127.0.0.1", 8080, "/a?b=c"))),
            ("http://localhost", Ok(("localhost", 80, "/"))),
            ("HTTP://[::1]:9000?x", Ok(("::1", 9000, "/?x"))),
            ("https://a/", Err("readiness checks and probes support http, not https")),
            ("ftp://a/", Err("it must begin with `http://`")),
            ("a/b", Err("it must begin with `http://`")),
            ("http://:80/", Err("the host is missing")),
            ("http://a:99999/", Err("`99999` is not a port")),
            ("http://u:p@a/", Err("user and password in the URL are not supported")),
            ("http://a/b c", Err("a URL cannot contain spaces or control characters")),
            ("http://a/\r\nX: y", Err("a URL cannot contain spaces or control characters")),
            ("http://[::1", Err("`[::1` has no `]`")),
            ("http://[localhost]:1/", Err("`[localhost]` is not an IPv6 address")),
            ("http://a:1:2/", Err("`a:1:2` has a second port, `2`")),
        ] {
            let parsed = Url::parse(url);
            let parsed = match &parsed {
                Ok(u) => Ok((u.host.as_str(), u.port, u.path.as_str())),
                Err(HttpError::Url { why, .. }) => Err(why.as_str()),
                Err(e) => panic!("{e}"),
            };
            assert_eq!(parsed, expect, "{url}");
        }
    }

    #[test]
    fn all_addresses_of_a_name_are_tried() {
        use std::net::{Ipv4Addr, TcpListener};
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = listener.local_addr().unwrap();
        // Nothing listens on port 1.
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let until_ns = clock::now_ns() + 60_000_000_000;
        let to = |addresses: &[SocketAddr], until_ns| {
            connect(addresses, Duration::from_secs(60), until_ns).map(|(_, address)| address)
        };
        assert_eq!(to(&[nobody, there], until_ns).unwrap(), there);
        let refused = to(&[nobody, nobody], until_ns).unwrap_err();
        assert!(matches!(refused, HttpError::Connect { address, .. } if address == nobody), "{refused}");
        assert!(matches!(to(&[there], 0), Err(HttpError::Timeout)));
    }

    #[test]
    fn responses() {
        let ok = |status: u16, body: &str| Ok(Some(Response { status, body: body.into() }));
        for (text, closed, expect) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more", false, ok(200, "hi")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", true, Ok(None)),
            ("HTTP/1.0 503 No\r\n\r\nhi", true, ok(503, "hi")),
            ("HTTP/1.0 503 No\r\n\r\nhi", false, Ok(None)),
            ("HTTP/1.1 204 No\r\n\r\n", false, ok(204, "")),
            ("HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, ok(200, "")),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
                false,
                ok(200, "abcd"),
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false, Ok(None)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
                false,
                Err("longer than its size"),
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false, Err("without a size")),
            ("HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n", false, Err("content-length `two`")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", false, Err("body is larger")),
            ("SSH-2.0-OpenSSH\r\n", false, Err("not HTTP/1.1")),
        ] {
            match (parse(text.as_bytes(), closed), expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "{text}"),
                (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{text}: {e}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    /// Repeats its text up to a bound that no reader should reach.
    struct Endless {
        text: &'static [u8],
        read: usize,
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.read > 4 * HEAD_BYTES {
                return Err(std::io::Error::other("it reads on and on"));
            }
            into.iter_mut().enumerate().for_each(|(i, b)| *b = self.text[(self.read + i) % self.text.len()]);
            self.read += into.len();
            Ok(into.len())
        }
    }

    #[test]
    fn what_precedes_a_response_has_an_end() {
        for text in [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n"] {
            let mut endless = Endless { text, read: 0 };
            let broken = |source| HttpError::Socket { path: "/sock".into(), source };
            let ended = receive(&mut endless, u64::MAX, &mut || false, &broken).unwrap_err();
            assert!(matches!(ended, HttpError::TooLarge { part: "head", .. }), "{ended}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, chunked: bool, closed: bool) {
            let head: &[u8] =
                if chunked { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"HTTP/1.1 " };
            let _ = parse(&[head, &bytes].concat(), closed);
        }
    }
}
