//! An exchange as it may be shown: without secret values, however they are encoded in it.
//!
//! Texts are masked before they are cut to what an example keeps. If a text was cut earlier, on arrival, an end that
//! may be the beginning of a secret is left out. Bodies are searched in decoded form, without chunk framing; a body
//! that cannot be decoded is not shown. All this is done only for the few exchanges that are kept, and only if there
//! are secrets.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use loadlab_record::Secrets;
use loadlab_record::counts::example::{HEAD_BYTES, RESPONSE_BYTES};
use loadlab_record::counts::outcome::{Failure, Outcome};

use super::examples::{Ending, ResponseBytes, end_of_head};
use crate::journey::capture::header;

/// An exchange with its secrets redacted.
#[derive(Debug)]
pub struct Hidden {
    response: Vec<u8>,
    head_end: Option<usize>,
    written: Vec<u8>,
    error_text: Option<String>,
}

impl Hidden {
    /// Redacts `secrets` in an exchange. The body is left out unless these are known to be all the secrets it contains.
    pub fn of(ending: &Ending<'_>, secrets: &Secrets, is_known: bool) -> Hidden {
        let ResponseBytes { bytes, head_end } = ending.response;
        let head_end = head_end.or_else(|| end_of_head(bytes));
        let (head, body) = match head_end {
            Some(end) => bytes.split_at(end.min(bytes.len())),
            None => (&bytes[..bytes.len().min(HEAD_BYTES)], &[][..]),
        };
        let mut response = mask(secrets, head, head_end.is_some()).into_owned();
        let head_end = head_end.map(|_| response.len());
        let is_whole =
            is_complete(ending.outcome) && body.len() < RESPONSE_BYTES && bytes.len() != RESPONSE_BYTES;
        let readable = match is_known || body.is_empty() {
            true => readable(head, &body[..body.len().min(RESPONSE_BYTES)], is_whole),
            false => Readable::Not("[not shown: a secret is captured from it, and it is incomplete]"),
        };
        match readable {
            Readable::Text { note, bytes, is_whole } => {
                response.extend_from_slice(note.as_bytes());
                response.extend_from_slice(&mask(secrets, &bytes, is_whole));
            }
            Readable::Not(note) => response.extend_from_slice(note.as_bytes()),
        }
        let request = ending.request;
        let written = ending.written.unwrap_or(&request.bytes[..request.head_len]);
        let is_cut = ending.written.is_some() && written.len() >= HEAD_BYTES;
        let written = mask(secrets, written, !is_cut).into_owned();
        let error_text = ending.error_text.map(|t| secrets.mask(t).into_owned());
        Hidden { response, head_end, written, error_text }
    }

    /// The same exchange, with its secrets redacted.
    pub fn instead_of<'a>(&'a self, ending: Ending<'a>) -> Ending<'a> {
        let response = ResponseBytes { bytes: &self.response, head_end: self.head_end };
        Ending { response, error_text: self.error_text.as_deref(), written: Some(&self.written), ..ending }
    }
}

fn mask<'a>(secrets: &Secrets, bytes: &'a [u8], is_whole: bool) -> Cow<'a, [u8]> {
    if is_whole { secrets.mask_bytes(bytes) } else { secrets.mask_beginning(bytes) }
}

/// Whether the response was received completely.
pub fn is_complete(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Ok | Outcome::Failed(Failure::Http4xx | Failure::Http5xx | Failure::Check))
}

/// A decoded body.
enum Readable<'a> {
    Text {
        /// Note on how it was decoded.
        note: &'static str,
        bytes: Cow<'a, [u8]>,
        is_whole: bool,
    },
    /// Why the body is not shown.
    Not(&'static str),
}

fn readable<'a>(head: &[u8], body: &'a [u8], is_whole: bool) -> Readable<'a> {
    let is = |name: &[u8], known: &[&str]| {
        let value = header(head, name).unwrap_or_default();
        known.iter().any(|known| value.eq_ignore_ascii_case(known.as_bytes()))
    };
    let transfer = header(head, b"transfer-encoding").unwrap_or_default();
    let (body, is_whole) = match transfer {
        _ if body.is_empty() => {
            return Readable::Text { note: "", bytes: Cow::Borrowed(body), is_whole: true };
        }
        [] => (Cow::Borrowed(body), is_whole),
        _ if is(b"transfer-encoding", &["chunked", "identity, chunked"]) => {
            let (bytes, is_whole) = without_chunks(body);
            (Cow::Owned(bytes), is_whole)
        }
        _ => {
            return Readable::Not(
                "[not shown: its transfer-encoding is unknown, and it may contain a secret]",
            );
        }
    };
    let decoded = |bytes, note| match bytes {
        Some((bytes, is_whole)) => Readable::Text { note, bytes: Cow::Owned(bytes), is_whole },
        None => Readable::Not("[not shown: it cannot be decoded as its content-encoding says]"),
    };
    if is(b"content-encoding", &["", "identity"]) {
        Readable::Text { note: "", bytes: body, is_whole }
    } else if is(b"content-encoding", &["gzip", "x-gzip"]) {
        decoded(read(MultiGzDecoder::new(&*body)), "[gzip, decoded] ")
    } else if is(b"content-encoding", &["deflate"]) {
        // zlib by the standard (RFC 9110 §8.4.1.2), but some servers send raw deflate.
        let bytes = read(ZlibDecoder::new(&*body)).or_else(|| read(DeflateDecoder::new(&*body)));
        decoded(bytes, "[deflate, decoded] ")
    } else {
        Readable::Not("[not shown: its content-encoding is not supported, and it may contain a secret]")
    }
}

/// As much as can be decoded, and whether that is everything; `None` if nothing can.
fn read(mut decoder: impl Read) -> Option<(Vec<u8>, bool)> {
    let (mut bytes, mut block) = (Vec::new(), [0; 512]);
    loop {
        match decoder.read(&mut block) {
            Ok(0) => return Some((bytes, true)),
            Ok(n) => bytes.extend_from_slice(&block[..n]),
            Err(_) if bytes.is_empty() => return None,
            Err(_) => return Some((bytes, false)),
        }
        if bytes.len() >= RESPONSE_BYTES {
            return Some((bytes, false));
        }
    }
}

/// Data of the chunks, as far as they have arrived and are well-formed, and whether the last one has arrived.
fn without_chunks(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = String::from_utf8_lossy(&rest[..end]);
        let digits = line.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(digits, 16) else { break };
        if size == 0 {
            return (bytes, true);
        }
        rest = &rest[end + 1..];
        bytes.extend_from_slice(&rest[..size.min(rest.len())]);
        rest = rest.get(size..).unwrap_or_default();
        rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        rest = rest.strip_prefix(b"\n").unwrap_or(rest);
    }
    (bytes, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::recorder::Times;
    use crate::spec::request::{Request, RequestParts};
    use loadlab_record::counts::example::BODY_BYTES;
    use std::io::Write;

    const TOKEN: &str = "abc/def+ghi&jkl";

    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        secrets.add(TOKEN.as_bytes()).unwrap();
        secrets
    }

    fn request() -> Request {
        let parts = RequestParts {
            method: "GET".into(),
            host: "a".into(),
            path: "/".into(),
            ..RequestParts::default()
        };
        parts.build().unwrap()
    }

    fn ending<'a>(request: &'a Request, outcome: Outcome, response: ResponseBytes<'a>) -> Ending<'a> {
        Ending {
            request,
            address: None,
            times: Times { due_ns: 0, started_ns: 0, end_ns: 1 },
            outcome,
            error: None,
            error_text: None,
            written: None,
            user: None,
            status: None,
            response,
            shown: None,
        }
    }

    #[track_caller]
    fn check(head: &str, body: &[u8], outcome: Outcome, expect: &str) {
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
        let head_end = bytes.len();
        bytes.extend_from_slice(body);
        let request = request();
        let ending = ending(&request, outcome, ResponseBytes { bytes: &bytes, head_end: Some(head_end) });
        let hidden = Hidden::of(&ending, &secrets(), true);
        let ResponseBytes { bytes: shown, head_end } = hidden.instead_of(ending).response;
        assert_eq!(String::from_utf8_lossy(&shown[head_end.unwrap()..]), expect);
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_are_masked_in_decoded_form() {
        let page = format!("token={TOKEN}; fine");
        check("", page.as_bytes(), Outcome::Ok, "token=***; fine");
        check("Content-Encoding: gzip\r\n", &gzip(&page), Outcome::Ok, "[gzip, decoded] token=***; fine");
        check(
            "content-encoding: DEFLATE\r\n",
            &deflate(&page),
            Outcome::Ok,
            "[deflate, decoded] token=***; fine",
        );
        check(
            "Content-Encoding: br\r\n",
            b"anything",
            Outcome::Ok,
            "[not shown: its content-encoding is not supported, and it may contain a secret]",
        );
        check(
            "Content-Encoding: gzip\r\n",
            page.as_bytes(),
            Outcome::Ok,
            "[not shown: it cannot be decoded as its content-encoding says]",
        );
        let chunks = b"9\r\ntoken=abc\r\n5;x=y\r\n/def+\r\nd\r\nghi&jkl; fine\r\n0\r\n\r\n";
        check("Transfer-Encoding: chunked\r\n", chunks, Outcome::Ok, "token=***; fine");
        let (first, second) = (&gzip(&page)[..10], &gzip(&page)[10..]);
        let chunks =
            [b"a\r\n", first, format!("\r\n{:x}\r\n", second.len()).as_bytes(), second, b"\r\n0\r\n\r\n"]
                .concat();
        let head = "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n";
        check(head, &chunks, Outcome::Ok, "[gzip, decoded] token=***; fine");
    }

    #[test]
    fn a_secret_that_is_cut_is_not_shown() {
        let cut = Outcome::Failed(Failure::Truncated);
        check("", b"token=abc/def", cut, "token=");
        check("", b"token=abc%2Fd", cut, "token=");
        check("", b"token=abc/dx", cut, "token=abc/dx");
        check("", b"token=abc/def", Outcome::Ok, "token=abc/def");
        let long = [&vec![b'x'; RESPONSE_BYTES - 5], TOKEN.as_bytes()].concat();
        check("", &long, Outcome::Ok, &"x".repeat(RESPONSE_BYTES - 5));
        // the cut example was masked before it was cut
        let long = [&vec![b'x'; BODY_BYTES - 1], TOKEN.as_bytes()].concat();
        check("", &long, Outcome::Ok, &format!("{}***", "x".repeat(BODY_BYTES - 1)));
        let half = gzip(&format!("token={TOKEN}; {}", (0..9000).map(|i| i.to_string()).collect::<String>()));
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
        let head_end = bytes.len();
        bytes.extend_from_slice(&half[..half.len() / 2]);
        let request = request();
        let ending = ending(&request, cut, ResponseBytes { bytes: &bytes, head_end: Some(head_end) });
        let shown = Hidden::of(&ending, &secrets(), true).response;
        assert!(String::from_utf8_lossy(&shown).contains("[gzip, decoded] token=***; 0123"));
    }

    #[test]
    fn a_head_ends_whatever_its_lines_end_with() {
        for head in
            ["HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\nA: b\n\n", "HTTP/1.1 200 OK\nA: b\n\r\n"]
        {
            assert_eq!(end_of_head(format!("{head}body\n\n").as_bytes()), Some(head.len()), "{head:?}");
        }
        assert_eq!(end_of_head(b"HTTP/1.1 200 OK\nA: b\n"), None);
    }
}
