//! One HTTP/2 connection, the client's half of RFC 9113.
//!
//! The caller identifies requests by tokens. It sends with [`Session::send`], passes received bytes to
//! [`Session::receive`], and writes whatever both appended to `out`. Responses are reported as [`Event`]s. A fault ends
//! the connection: it is permanent, and the requests still open are in [`Session::open_tokens`].
//!
//! **Bounds.** A frame is kept only until it is complete, and DATA never. A head has at most [`MAX_LIST`] bytes,
//! encoded and decoded, and [`MAX_CONTINUATIONS`] frames. Frames that do not advance a response (PING, SETTINGS, empty
//! DATA, interim heads, unknown ones, and more WINDOW_UPDATEs and frames for ended streams than this side caused) are
//! counted, and [`super::floods::MAX_IDLE_FRAMES`] of them beyond what responses offset are a flood. So are
//! [`super::floods::MAX_REPLIES`] replies to PING and SETTINGS that the server does not read.
//!
//! **What it does not do.** No pushes, no tunnels, no priorities. If a response ends before its request does, the
//! request is cut off with CANCEL: the response is known, and the rest of the body would change nothing.

use std::collections::VecDeque;

use super::error::{Http2Error, protocol, size};
use super::fields::Facts;
use super::floods::Floods;
use super::frame::{
    self, Code, DEFAULT_MAX_FRAME, FrameHead, HEAD_LEN, LARGEST_FRAME, MAX_31, flag, kind, setting,
};
use super::head::{Encoder, Head, HeadPart};
use super::hpack::{DEFAULT_TABLE, Decoder};
use super::streams::{ANY_LENGTH, Stream, StreamTable};

/// Longest head of a response: encoded in bytes, and decoded as RFC 9113 §6.5.2 counts.
pub const MAX_LIST: usize = 64 * 1024;
/// Most frames after a head's first.
pub const MAX_CONTINUATIONS: u32 = 128;
/// Bodies are not written beyond this many bytes of `out` at once; [`Session::flush`] continues.
pub const MAX_OUT: usize = 256 * 1024;
/// Scratch buffers larger than this are freed, so that an idle connection is small.
pub(super) const KEEP: usize = 1024;
/// Initial size of a window.
const DEFAULT_WINDOW: i64 = 65_535;
/// Streams a server is assumed to allow before its settings arrive: the least that RFC 9113 §6.5.2 recommends.
const STREAMS_BEFORE_HELLO: u32 = 100;
/// Heads up to this length are remembered.
pub(super) const MAX_MEMO: usize = 1024;

/// Settings of this side, some of which are announced to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of body that a stream may have in flight; 1 to 2³¹ − 1.
    pub stream_window: u32,
    /// Most bytes of body that the connection may have in flight; at least 65,535.
    pub connection_window: u32,
    /// Longest frame that the server may send, 16,384 to 2²⁴ − 1.
    pub max_frame: u32,
    /// Most streams to open at once, whatever the server would allow.
    pub max_streams: u32,
    /// Report every field of responses as [`Event::Field`], at the cost of decoding heads already seen.
    pub report_fields: bool,
    /// Report at least the fields of responses with a status from 400 on, and those of others where that costs nothing.
    pub report_failures: bool,
}

impl Default for Settings {
    /// Windows large enough not to stall: the load measures the server, not this side's flow control.
    fn default() -> Self {
        Settings {
            stream_window: 1 << 30,
            connection_window: 1 << 30,
            max_frame: DEFAULT_MAX_FRAME,
            max_streams: u32::MAX,
            report_fields: false,
            report_failures: false,
        }
    }
}

/// Something that happened on a connection. A request is over after `end`, `Reset`, `Malformed`, `HeadTooLarge` or
/// `Unprocessed`; its token may then be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A field of a head (including interim ones) or of trailers; reported before the `Head` it belongs to.
    Field {
        /// Token of the request.
        token: u32,
        /// Name of the field, including pseudo-headers.
        name: &'a [u8],
        /// Value of the field.
        value: &'a [u8],
    },
    /// The final head.
    Head {
        /// Token of the request.
        token: u32,
        /// Status code, 200 to 999.
        status: u16,
        /// Whether the response ends here.
        end: bool,
    },
    /// A piece of the body; empty if only the end is reported.
    Data {
        /// Token of the request.
        token: u32,
        /// The bytes, without padding.
        bytes: &'a [u8],
        /// Whether the response ends here.
        end: bool,
    },
    /// The server ended the stream. After REFUSED_STREAM the request may be sent again.
    Reset {
        /// Token of the request.
        token: u32,
        /// The server's reason.
        code: Code,
    },
    /// The response was malformed and its stream was ended from this side; the connection continues.
    Malformed {
        /// Token of the request.
        token: u32,
        /// What is malformed, in words.
        message: &'static str,
    },
    /// The response's head is longer than 64 KiB. The connection ends, since the heads after it cannot be decoded
    /// without it.
    HeadTooLarge {
        /// Token of the request.
        token: u32,
    },
    /// The server sent GOAWAY: no new request may be sent. Requests it has not processed follow as `Unprocessed`.
    GoAway {
        /// The last stream that the server may have processed.
        last_stream: u32,
        /// The server's reason.
        code: Code,
    },
    /// A request that the server had not processed before its GOAWAY: it may be sent again elsewhere.
    Unprocessed {
        /// Token of the request.
        token: u32,
    },
    /// The server's settings arrived: at the start, and when they change.
    SettingsChanged {
        /// Most streams that the server allows at once.
        max_streams: u32,
    },
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The maximum number of streams is open; see [`Session::free_streams`].
    Full,
    /// The server has sent GOAWAY.
    GoingAway,
    /// All stream identifiers are used up.
    Exhausted,
    /// The connection has a fault.
    Broken,
}

/// What the next received bytes belong to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// A frame's head, or a frame that is kept until it is whole.
    Frame,
    /// In a DATA frame.
    Data(Data),
    /// In a frame of unknown type, with this many bytes to skip.
    Skip(u32),
}

/// A DATA frame being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) stream: u32,
    /// Whether the length of its padding is still to come.
    pub(super) pad_to_come: bool,
    pub(super) left: u32,
    pub(super) padding: u32,
    pub(super) end: bool,
}

/// A head whose end is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenHead {
    pub(super) stream: u32,
    pub(super) end: bool,
    pub(super) continuations: u32,
}

/// The last head, and its meaning. Servers encode the same head again and again (except for `date`, once a second), and
/// comparing is several times cheaper than decoding. The memo is valid for a block that did not change the decoder's
/// table; if the block read the table, only while the table is unchanged.
#[derive(Debug, Default)]
pub(super) struct Memo {
    pub(super) block: Vec<u8>,
    pub(super) facts: Facts,
    /// Version of the table that the block read; `None` if it did not read the table.
    pub(super) table: Option<u64>,
}

/// One HTTP/2 connection.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Settings,
    pub(super) fault: Option<Http2Error>,
    // Reading.
    pub(super) reading: Reading,
    pub(super) partial: Vec<u8>,
    pub(super) head: Option<OpenHead>,
    pub(super) block: Vec<u8>,
    pub(super) decoder: Decoder,
    /// Counts changes of the decoder's table.
    pub(super) table: u64,
    pub(super) memo: Memo,
    pub(super) greeted: bool,
    pub(super) floods: Floods,
    pub(super) receive_window: i64,
    // Streams.
    pub(super) streams: StreamTable,
    pub(super) next_stream: u32,
    pub(super) going_away: Option<u32>,
    // Writing.
    pub(super) encoder: Encoder,
    pub(super) send_window: i64,
    pub(super) peer_window: i64,
    pub(super) peer_max_frame: u32,
    pub(super) peer_max_streams: u32,
    /// Streams with bodies waiting.
    pub(super) queue: VecDeque<u32>,
    pub(super) may_flush: bool,
}

impl Session {
    /// A new connection. Settings outside the protocol's limits are clamped.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings {
            stream_window: settings.stream_window.clamp(1, MAX_31),
            connection_window: settings.connection_window.clamp(DEFAULT_WINDOW as u32, MAX_31),
            max_frame: settings.max_frame.clamp(DEFAULT_MAX_FRAME, LARGEST_FRAME),
            ..settings
        };
        Session {
            settings,
            fault: None,
            reading: Reading::Frame,
            partial: Vec::new(),
            head: None,
            block: Vec::new(),
            decoder: Decoder::new(DEFAULT_TABLE, MAX_LIST),
            table: 0,
            memo: Memo::default(),
            greeted: false,
            floods: Floods::default(),
            receive_window: i64::from(settings.connection_window),
            streams: StreamTable::default(),
            next_stream: 1,
            going_away: None,
            encoder: Encoder::default(),
            send_window: DEFAULT_WINDOW,
            peer_window: DEFAULT_WINDOW,
            peer_max_frame: DEFAULT_MAX_FRAME,
            peer_max_streams: STREAMS_BEFORE_HELLO,
            queue: VecDeque::new(),
            may_flush: false,
        }
    }

    /// Writes the client's preface. Requests may follow at once.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(frame::PREFACE);
        let mut settings = [(0, 0); 4];
        let mut count = 0;
        let mut set = |id, value, needed| {
            if needed {
                settings[count] = (id, value);
                count += 1;
            }
        };
        set(setting::ENABLE_PUSH, 0, true);
        set(setting::INITIAL_WINDOW_SIZE, self.settings.stream_window, true);
        set(setting::MAX_FRAME_SIZE, self.settings.max_frame, self.settings.max_frame != DEFAULT_MAX_FRAME);
        set(setting::MAX_HEADER_LIST_SIZE, MAX_LIST as u32, true);
        frame::write_settings(out, &settings[..count]);
        let more = self.settings.connection_window - DEFAULT_WINDOW as u32;
        if more > 0 {
            frame::write_window_update(out, 0, more);
        }
    }

    /// Number of requests that may be sent now.
    #[inline]
    pub fn free_streams(&self) -> u32 {
        if self.going_away.is_some() || self.fault.is_some() || self.next_stream > MAX_31 {
            return 0;
        }
        let most = self.peer_max_streams.min(self.settings.max_streams);
        // A connection has a limited number of streams in all (RFC 9113, section 5.1.1).
        let left = (MAX_31 - self.next_stream) / 2 + 1;
        most.saturating_sub(self.streams.len() as u32).min(left)
    }

    /// Number of open requests.
    #[inline]
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// Tokens of the open requests, unordered: these fail with the connection.
    pub fn open_tokens(&self) -> impl Iterator<Item = u32> {
        self.streams.iter().map(|s| s.token)
    }

    /// Whether the connection is to be closed once nothing is open: the server has sent GOAWAY, there is a fault, or no
    /// stream identifier is left.
    pub fn is_ending(&self) -> bool {
        self.going_away.is_some() || self.fault.is_some() || self.next_stream > MAX_31
    }

    /// Sends a request: its head, and as much of its body as may go now. `token` must not be open. Returns false if a
    /// part of the body is left, which [`Session::flush`] sends.
    ///
    /// # Errors
    /// Nothing was sent.
    #[inline]
    pub fn send(&mut self, token: u32, head: &Head, body: &[u8], out: &mut Vec<u8>) -> Result<bool, NotSent> {
        self.send_parts(token, head.response_has_no_body, [HeadPart::Packed(head)].into_iter(), body, out)
    }

    /// As `send`, with a head assembled from parts. `no_body`: the response has no body, whatever its head says.
    ///
    /// # Errors
    /// Nothing was sent.
    #[inline]
    pub fn send_parts<'a>(
        &mut self,
        token: u32,
        no_body: bool,
        head: impl Iterator<Item = HeadPart<'a>>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, NotSent> {
        if self.free_streams() == 0 {
            return Err(self.why_not());
        }
        let id = self.next_stream;
        self.next_stream += 2;
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        self.encoder.write_parts(head, out);
        let len = (out.len() - start - HEAD_LEN) as u32;
        let end = if body.is_empty() { flag::END_STREAM } else { 0 };
        let first = FrameHead { len, kind: kind::HEADERS, flags: end | flag::END_HEADERS, stream: id };
        if len > self.peer_max_frame {
            continue_head(out, start, first, self.peer_max_frame);
        } else {
            out[start..start + HEAD_LEN].copy_from_slice(&first.bytes());
        }
        self.streams.insert(Stream {
            id,
            token,
            send_window: self.peer_window,
            sent: 0,
            left: ANY_LENGTH,
            receive_window: i64::from(self.settings.stream_window),
            all_sent: body.is_empty(),
            queued: false,
            interim: 0,
            head: false,
            no_body,
        });
        Ok(body.is_empty() || self.begin_body(id, body, out))
    }

    /// Whether a request is open whose body is not completely sent because the server has no room.
    pub fn is_held_up(&self, token: u32) -> bool {
        self.streams.of_token(token).is_some_and(|stream| !stream.all_sent)
    }

    #[cold]
    fn why_not(&self) -> NotSent {
        match (self.fault, self.going_away) {
            (Some(_), _) => NotSent::Broken,
            (_, Some(_)) => NotSent::GoingAway,
            _ if self.next_stream > MAX_31 => NotSent::Exhausted,
            _ => NotSent::Full,
        }
    }

    /// Writes as much of a body as may go at once; returns true if that was all of it.
    fn begin_body(&mut self, id: u32, body: &[u8], out: &mut Vec<u8>) -> bool {
        while self.write_data(id, body, out) == Wrote::Some {}
        let Some(stream) = self.streams.get(id).filter(|s| !s.all_sent) else { return true };
        stream.queued = true;
        self.queue.push_back(id);
        self.may_flush |= out.len() >= MAX_OUT;
        false
    }

    /// Writes one DATA frame of a body, if the windows and `out` have room.
    fn write_data(&mut self, id: u32, body: &[u8], out: &mut Vec<u8>) -> Wrote {
        let Some(stream) = self.streams.get(id) else { return Wrote::All };
        let rest = usize::try_from(stream.sent).ok().and_then(|sent| body.get(sent..)).unwrap_or_default();
        let window =
            self.send_window.min(stream.send_window).clamp(0, i64::from(self.peer_max_frame)) as usize;
        if (window == 0 && !rest.is_empty()) || out.len() >= MAX_OUT {
            return Wrote::None;
        }
        let piece = &rest[..rest.len().min(window)];
        stream.all_sent = piece.len() == rest.len();
        let flags = if stream.all_sent { flag::END_STREAM } else { 0 };
        frame::write(out, kind::DATA, flags, id, piece);
        stream.sent += piece.len() as u64;
        stream.send_window -= piece.len() as i64;
        self.floods.sent_body(piece.len());
        self.send_window -= piece.len() as i64;
        if stream.all_sent { Wrote::All } else { Wrote::Some }
    }

    /// Whether bodies wait and something has changed since they were blocked: call [`Session::flush`] once `out` is
    /// written.
    #[inline]
    pub fn wants_flush(&self) -> bool {
        self.may_flush && !self.queue.is_empty() && self.fault.is_none()
    }

    /// Writes more of the waiting bodies, in turn. `body_of` returns the body that a request was sent with.
    pub fn flush<'b>(&mut self, mut body_of: impl FnMut(u32) -> &'b [u8], out: &mut Vec<u8>) {
        let mut stuck = 0;
        self.may_flush = false;
        if self.fault.is_some() {
            return;
        }
        while stuck < self.queue.len() {
            if out.len() >= MAX_OUT {
                self.may_flush = true;
                return;
            }
            let Some(id) = self.queue.pop_front() else { return };
            let Some(token) = self.streams.get(id).map(|s| s.token) else { continue };
            match self.write_data(id, body_of(token), out) {
                Wrote::All => {
                    stuck = 0;
                    if let Some(stream) = self.streams.get(id) {
                        stream.queued = false;
                    }
                }
                Wrote::Some => {
                    stuck = 0;
                    self.queue.push_back(id);
                }
                Wrote::None => {
                    stuck += 1;
                    self.queue.push_back(id);
                }
            }
        }
    }

    /// Removes a stream.
    #[inline]
    pub(super) fn forget(&mut self, id: u32) -> Option<Stream> {
        let stream = self.streams.remove(id)?;
        if stream.queued {
            self.queue.retain(|queued| *queued != id);
        }
        Some(stream)
    }

    /// Abandons a request: whatever arrives for it later is ignored. Returns false if the request is not open.
    pub fn cancel(&mut self, token: u32, out: &mut Vec<u8>) -> bool {
        let Some(stream) = self.streams.of_token(token) else { return false };
        self.forget(stream.id);
        self.floods.gave_up();
        if self.fault.is_none() {
            frame::write_reset(out, stream.id, Code::CANCEL);
        }
        true
    }

    /// Everything written so far has gone out: the server is reading.
    #[inline]
    pub fn all_gone(&mut self) {
        self.floods.all_gone();
    }

    /// Takes the next bytes of the connection, writes replies into `out`, and reports events.
    ///
    /// # Errors
    /// The connection has ended. The GOAWAY for the server is in `out`; later calls return the same fault.
    #[inline]
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = match self.reading {
                Reading::Frame => self.read_frame(rest, out, sink),
                Reading::Data(data) => self.read_data(data, rest, out, sink),
                Reading::Skip(left) => {
                    let take = (left as usize).min(rest.len());
                    let left = left - take as u32;
                    self.reading = if left == 0 { Reading::Frame } else { Reading::Skip(left) };
                    Ok(take)
                }
            };
            match read {
                Ok(used) => rest = &rest[used..],
                Err(fault) => {
                    self.fault = Some(fault);
                    frame::write_goaway(out, fault.code);
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Reads a frame, or the next piece of one. Returns how many bytes were used.
    #[inline]
    fn read_frame(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<usize, Http2Error> {
        if !self.partial.is_empty() {
            return self.read_partial(bytes, out, sink);
        }
        let Some(head) = FrameHead::read(bytes) else {
            self.partial.extend_from_slice(bytes);
            return Ok(bytes.len());
        };
        if self.open_frame(head, out, sink)? {
            return Ok(HEAD_LEN);
        }
        let whole = HEAD_LEN + head.len as usize;
        let Some(payload) = bytes.get(HEAD_LEN..whole) else {
            self.partial.extend_from_slice(bytes);
            return Ok(bytes.len());
        };
        self.frame(head, payload, out, sink)?;
        Ok(whole)
    }

    /// As `read_frame`, for a frame whose beginning is kept.
    #[cold]
    fn read_partial(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<usize, Http2Error> {
        let mut used = HEAD_LEN.saturating_sub(self.partial.len()).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..used]);
        let Some(head) = FrameHead::read(&self.partial) else { return Ok(used) };
        if used > 0 && self.open_frame(head, out, sink)? {
            self.partial.clear();
            return Ok(used);
        }
        let missing = HEAD_LEN + head.len as usize - self.partial.len();
        let more = missing.min(bytes.len() - used);
        self.partial.extend_from_slice(&bytes[used..used + more]);
        used += more;
        if more == missing {
            let whole = std::mem::take(&mut self.partial);
            let result = self.frame(head, &whole[HEAD_LEN..], out, sink);
            self.partial = whole;
            self.partial.clear();
            slim(&mut self.partial);
            result?;
        }
        Ok(used)
    }

    /// Handles a frame's head. Returns true if its payload is read as it arrives.
    #[inline]
    fn open_frame(
        &mut self,
        head: FrameHead,
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<bool, Http2Error> {
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(no_http2(head));
        }
        if head.len > self.settings.max_frame {
            return Err(size("a frame longer than allowed"));
        }
        if self.head.is_some() && head.kind != kind::CONTINUATION {
            return Err(protocol("another frame inside a head"));
        }
        match head.kind {
            kind::DATA => self.open_data(head, out, sink)?,
            kind::HEADERS..=kind::CONTINUATION => return Ok(false),
            _ => {
                self.floods.idle()?;
                if head.len > 0 {
                    self.reading = Reading::Skip(head.len);
                }
            }
        }
        Ok(true)
    }

    /// Whether this side never opened the stream.
    #[inline]
    pub(super) fn is_unopened(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream >= self.next_stream
    }
}

/// The result of trying to write a body's next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    All,
    Some,
    None,
}

/// Frees an unusually large buffer.
#[inline]
pub(super) fn slim(scratch: &mut Vec<u8>) {
    if scratch.capacity() > KEEP {
        *scratch = Vec::new();
    }
}

/// The error if the first frame was not SETTINGS.
#[cold]
fn no_http2(head: FrameHead) -> Http2Error {
    let bytes = head.bytes();
    if bytes.starts_with(b"HTTP/") {
        protocol("the server speaks HTTP/1, not HTTP/2")
    } else if bytes[0] == 0x15 && bytes[1] == 3 {
        protocol("the server expects TLS")
    } else {
        protocol("the server does not start with the HTTP/2 preface")
    }
}

/// Splits a head that is longer than the server allows for a frame, which only a very long one is.
#[cold]
fn continue_head(out: &mut Vec<u8>, start: usize, first: FrameHead, max: u32) {
    let block = out.split_off(start + HEAD_LEN);
    out.truncate(start);
    let pieces = block.chunks(max as usize);
    let last = pieces.len().saturating_sub(1);
    for (i, piece) in pieces.enumerate() {
        let end = if i == last { flag::END_HEADERS } else { 0 };
        let (kind, flags) = match i {
            0 => (first.kind, (first.flags & !flag::END_HEADERS) | end),
            _ => (kind::CONTINUATION, end),
        };
        frame::write(out, kind, flags, first.stream, piece);
    }
}
