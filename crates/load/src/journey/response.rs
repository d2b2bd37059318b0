//! A buffered response: its head, and as much of its body as checks and captures need.

use std::borrow::Cow;

use loadlab_record::counts::example::{HEAD_BYTES, RESPONSE_BYTES};

use crate::journey::check::CheckedResponse;
use crate::journey::decode;
use crate::journey::template::{self, Template};
use crate::protocol::http1::BodySink;

/// Most bytes of a body that are kept for checks and captures. Further bytes are counted but not kept, and a check or
/// capture that needs the body fails with that reason.
pub const MAX_BODY: usize = 4 << 20;
/// Body buffers larger than this are freed.
const BODY_KEPT: usize = 64 * 1024;

/// How much of a body is kept until the response is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// Its beginning, for examples: checks and captures need the head at most.
    #[default]
    Beginning,
    /// All of it if it is encoded: a check is on the decoded size.
    IfEncoded,
    /// Up to [`MAX_BODY`]: a check or a capture reads it.
    All,
}

/// A response whose head, and as much of its body as needed, are kept until it is complete.
#[derive(Debug, Default)]
pub struct BufferedResponse {
    buffering: Buffering,
    head: Vec<u8>,
    body: Vec<u8>,
    size: u64,
    /// The decoded body, if it was encoded.
    decoded: Vec<u8>,
    is_decoded: bool,
    /// Beginning of the request, if it was written for this exchange.
    pub request: Vec<u8>,
    /// The request's body, if a part of it has to wait until the server has room.
    pub unsent: Vec<u8>,
    /// Texts that the response must contain, end to end, and the end of each.
    echoes: Vec<u8>,
    echo_ends: Vec<usize>,
}

impl BodySink for BufferedResponse {
    fn head(&mut self, bytes: &[u8]) {
        self.head.clear();
        self.head.extend_from_slice(bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.buffering == Buffering::IfEncoded && self.size == 0 {
            self.buffering =
                if decode::is_encoded(&self.head) { Buffering::All } else { Buffering::Beginning };
        }
        self.size += bytes.len() as u64;
        // What no check or capture reads is kept as far as an example shows it.
        let most = if self.buffering == Buffering::All { MAX_BODY } else { RESPONSE_BYTES };
        let room = most.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl BufferedResponse {
    /// Prepares for another response, of which this much is kept.
    pub fn begin(&mut self, buffering: Buffering) {
        self.clear();
        self.buffering = buffering;
    }

    /// Discards the response.
    pub fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.request.clear();
        self.unsent.clear();
        self.echoes.clear();
        self.echo_ends.clear();
        self.decoded.clear();
        (self.size, self.is_decoded) = (0, false);
        if self.decoded.capacity() > BODY_KEPT {
            self.decoded = Vec::new();
        }
        if self.body.capacity() > BODY_KEPT {
            self.body = Vec::new();
        }
        if self.unsent.capacity() > BODY_KEPT {
            self.unsent = Vec::new();
        }
    }

    /// Keeps the beginning of the request, as it was written for this exchange.
    pub fn keep_request(&mut self, bytes: &[u8]) {
        let beginning = &bytes[..bytes.len().min(HEAD_BYTES)];
        // Requests of a journey differ by a few bytes in length. A buffer that doubled each time would take twice what
        // it holds, and there may be thousands.
        let room = beginning.len().next_multiple_of(64);
        self.request.reserve_exact(room);
        self.request.extend_from_slice(beginning);
    }

    /// The body as received, as far as kept.
    pub fn received(&self) -> &[u8] {
        &self.body
    }

    /// The decoded body, even of a response that did not need to be read: as much of it as can be decoded, and whether
    /// that is all.
    #[cold]
    pub fn looked_into(&self) -> (Cow<'_, [u8]>, bool) {
        if self.is_decoded {
            return (Cow::Borrowed(&self.decoded), !self.is_cut());
        }
        let mut decoded = Vec::new();
        match decode::decode(&self.head, &self.body, MAX_BODY, &mut decoded) {
            Ok(false) => (Cow::Borrowed(&self.body), !self.is_cut()),
            Ok(true) => (Cow::Owned(decoded), !self.is_cut()),
            Err(_) => (Cow::Owned(decoded), false),
        }
    }

    /// Whether more was received than is kept.
    pub fn is_cut(&self) -> bool {
        self.size > self.body.len() as u64
    }

    /// Undoes the content encoding, if there is one.
    pub fn decode(&mut self) -> Result<(), decode::DecodeError> {
        self.is_decoded = decode::decode(&self.head, &self.body, MAX_BODY, &mut self.decoded)?;
        Ok(())
    }

    /// Writes a text that the response must contain.
    ///
    /// # Errors
    /// A value is missing.
    pub fn expect(
        &mut self,
        text: &Template,
        values: &mut template::Values<'_>,
    ) -> Result<(), template::TemplateError> {
        text.write(values, &mut self.echoes)?;
        self.echo_ends.push(self.echoes.len());
        Ok(())
    }

    /// Whether the response contains the expected texts.
    pub fn is_echo(&self, message: &[u8]) -> bool {
        let mut from = 0;
        self.echo_ends.iter().all(|to| {
            let text = &self.echoes[from..*to];
            from = *to;
            memchr::memmem::find(message, text).is_some()
        })
    }

    /// Keeps a head, replacing an earlier one.
    pub fn set_head(&mut self, bytes: &[u8]) {
        self.head.clear();
        self.head.extend_from_slice(bytes);
    }

    /// Keeps a whole message, replacing an earlier one.
    pub fn set_message(&mut self, message: &[u8]) {
        (self.size, self.is_decoded) = (0, false);
        self.body.clear();
        self.body(message);
    }

    /// The final head.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Adds a field of an HTTP/2 head. The status comes first and restarts the head: interim responses do not count.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if name == b":status" {
            self.head.clear();
        }
        write_field(name, value, &mut self.head);
    }

    /// Ends an HTTP/2 head after its last field.
    pub fn end_head(&mut self) {
        self.head.extend_from_slice(b"\r\n");
    }

    /// The decoded body, as far as it is known.
    pub fn body(&self) -> &[u8] {
        if self.is_decoded { &self.decoded } else { &self.body }
    }

    /// The response as checks and captures see it.
    pub fn checked(&self, ended: Ended) -> CheckedResponse<'_> {
        let (body, size) = match self.is_decoded {
            true => (self.decoded.as_slice(), self.decoded.len() as u64),
            false => (self.body.as_slice(), self.size),
        };
        CheckedResponse { status: ended.status, head: &self.head, body, size, time_ns: ended.time_ns }
    }

    /// The request's target: path and query, if the request was written for this exchange.
    pub fn target(&self) -> &[u8] {
        if let Some(rest) =
            memchr::memmem::find(&self.request, b"\r\n:path ").map(|at| &self.request[at + 8..])
        {
            return rest.split(|b| *b == b'\r').next().unwrap_or_default();
        }
        let target = self.request.split(|b| *b == b' ').nth(1).unwrap_or_default();
        // Requests to a proxy have an absolute URL.
        match target.strip_prefix(b"http://") {
            None => target,
            Some(rest) => rest.iter().position(|b| *b == b'/').map_or(&[], |at| &rest[at..]),
        }
    }
}

/// Writes a field of an HTTP/2 head as text: `:status 200`, `server: a`, with its line end.
pub fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(if name.starts_with(b":") { b" " } else { b": " });
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The response's status.
    pub status: u16,
    /// Time from the request's start to its end.
    pub time_ns: u64,
    /// When it ended, on the load's clock.
    pub now_ns: u64,
}
