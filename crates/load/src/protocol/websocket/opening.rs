//! The HTTP exchange that opens a WebSocket (RFC 6455 §4): headers of the request, and the check of the response.
//!
//! The request itself is an ordinary one, made from [`crate::spec::request::RequestParts`] with these headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::protocol::http1::{MAX_HEAD, MAX_INTERIM, TOO_MANY_INTERIM};

const MAX_HEADERS: usize = 256;
/// The GUID of RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why the WebSocket was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningError {
    /// The server responded with another status.
    #[error("the server answered {0} instead of opening a WebSocket")]
    Status(u16),
    /// The response is not HTTP/1.1.
    #[error("the server's response to the opening handshake is not HTTP/1.1")]
    Malformed,
    /// The response's head is too long.
    #[error("the head of the server's response is longer than 64 KiB")]
    HeadTooLarge,
    /// The server sends interim responses, and no final one.
    #[error("{TOO_MANY_INTERIM}")]
    TooManyInterim,
    /// A header is missing or has the wrong value.
    #[error("the server's response to the opening handshake has no correct `{0}` header")]
    Header(&'static str),
    /// The response uses an extension or a subprotocol that was not offered.
    #[error("the server chose a {0} that was not offered")]
    NotOffered(&'static str),
}

/// What a complete response head was.
enum OpeningHead {
    /// It opens the WebSocket.
    Opened,
    /// Another one follows.
    Interim,
}

/// The request of an opening handshake. It may serve any number of connections.
#[derive(Clone, Debug)]
pub struct Opening {
    key: String,
    accept: String,
    protocols: Vec<String>,
}

impl Opening {
    /// Made from sixteen random bytes, and the subprotocols to offer, best first.
    pub fn new(nonce: [u8; 16], protocols: Vec<String>) -> Self {
        let key = STANDARD.encode(nonce);
        let hash = Sha1::new().chain_update(&key).chain_update(GUID).finalize();
        Opening { accept: STANDARD.encode(hash), key, protocols }
    }

    /// Headers of the request, which is a GET.
    pub fn headers(&self) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Upgrade", "websocket".to_owned()),
            ("Connection", "Upgrade".to_owned()),
            ("Sec-WebSocket-Version", "13".to_owned()),
            ("Sec-WebSocket-Key", self.key.clone()),
        ];
        if !self.protocols.is_empty() {
            headers.push(("Sec-WebSocket-Protocol", self.protocols.join(", ")));
        }
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Takes the next bytes of the response; `partial` keeps the response, without interim ones before it, which are
    /// counted in `interim`. Once its head is complete, `partial` is that head, and the number of these bytes that
    /// belong to it or came before it is returned: the rest belongs to the WebSocket.
    ///
    /// # Errors
    /// The response does not open a WebSocket.
    pub fn receive(
        &self,
        partial: &mut Vec<u8>,
        interim: &mut u8,
        bytes: &[u8],
    ) -> Result<Option<usize>, OpeningError> {
        let before = partial.len();
        partial.extend_from_slice(bytes);
        let mut begin = 0;
        // The end of the head may lie across two pieces.
        let mut from = before.saturating_sub(3);
        loop {
            // Bytes other than HTTP have no end to wait for; nor may empty lines come first, which httparse would skip.
            let shown = (partial.len() - begin).min(5);
            if partial[begin..begin + shown] != b"HTTP/"[..shown] {
                return Err(OpeningError::Malformed);
            }
            let end = memchr::memmem::find(&partial[from..], b"\r\n\r\n").map(|at| from + at + 4);
            match end {
                Some(end) if end - begin <= MAX_HEAD => match self.check(&partial[begin..end]) {
                    Ok(OpeningHead::Interim) if *interim == MAX_INTERIM => {
                        partial.drain(..begin);
                        return Err(OpeningError::TooManyInterim);
                    }
                    Ok(OpeningHead::Interim) => {
                        *interim += 1;
                        (begin, from) = (end, end);
                    }
                    Ok(OpeningHead::Opened) => {
                        partial.truncate(end);
                        partial.drain(..begin);
                        return Ok(Some(end - before));
                    }
                    Err(error) => {
                        partial.drain(..begin);
                        return Err(error);
                    }
                },
                None if partial.len() - begin <= MAX_HEAD => {
                    partial.drain(..begin);
                    return Ok(None);
                }
                _ => return Err(OpeningError::HeadTooLarge),
            }
        }
    }

    fn check(&self, head: &[u8]) -> Result<OpeningHead, OpeningError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        if !response.parse(head).is_ok_and(|status| status.is_complete()) {
            return Err(OpeningError::Malformed);
        }
        match response.code {
            Some(101) => {}
            // More is to come (RFC 9110, section 15.2).
            Some(100..=199) => return Ok(OpeningHead::Interim),
            status => return Err(OpeningError::Status(status.unwrap_or(0))),
        }
        let all = |name: &str| {
            let of_name = response.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name));
            of_name.flat_map(|h| h.value.split(|b| *b == b',').map(<[u8]>::trim_ascii)).collect::<Vec<_>>()
        };
        let has = |name: &str, item: &[u8]| all(name).iter().any(|found| found.eq_ignore_ascii_case(item));
        if !has("upgrade", b"websocket") {
            return Err(OpeningError::Header("Upgrade"));
        }
        if !has("connection", b"upgrade") {
            return Err(OpeningError::Header("Connection"));
        }
        if all("sec-websocket-accept") != [self.accept.as_bytes()] {
            return Err(OpeningError::Header("Sec-WebSocket-Accept"));
        }
        if !all("sec-websocket-extensions").iter().all(|e| e.is_empty()) {
            return Err(OpeningError::NotOffered("WebSocket extension"));
        }
        match all("sec-websocket-protocol").as_slice() {
            [] => Ok(OpeningHead::Opened),
            [one] if self.protocols.iter().any(|p| p.as_bytes() == *one) => Ok(OpeningHead::Opened),
            _ => Err(OpeningError::NotOffered("WebSocket subprotocol")),
        }
    }
}
