//! State of connections that carry streams: each one's HTTP/2 session, and the requests waiting for it.
//!
//! Slots share connections in groups, and each group has one connection to each host.

use std::ops::Range;

use loadlab_record::counts::example::{HEAD_BYTES, RESPONSE_BYTES};
use loadlab_record::counts::outcome::Failure;

use crate::io::ConnId;
use crate::journey::response::write_field;
use crate::protocol::http1::BodySink;
use crate::protocol::http2::{Code, Event, HEAD_TOO_LARGE, Session};
use crate::spec::LoadSpec;
use crate::worker::state::SlotId;
use crate::worker::state::slots::{Fact, Slots};

/// All connections of one worker that carry streams. A load that does not use HTTP/2 has none, and nothing is
/// allocated for it.
pub struct Streams {
    /// Most streams per connection: this many slots share one.
    pub per_connection: u32,
    /// Number of hosts of the load.
    hosts: u32,
    /// State by connection.
    pub by_conn: Vec<Http2Connection>,
    /// Bytes to be written on the current connection.
    pub out: Vec<u8>,
    /// The connection being read: everything sent on it meanwhile goes out together afterwards.
    pub at_hand: Option<ConnId>,
    /// Exchanges that ended while it was read.
    pub ended: Vec<StreamOutcome>,
}

/// One connection that carries streams.
#[derive(Default)]
pub struct Http2Connection {
    pub session: Option<Box<Session>>,
    /// Number of bytes that have not gone out.
    pub unsent: usize,
    /// When connecting began, on the backend's clock.
    pub since_ns: u64,
    /// Exchanges waiting for this connection.
    pub waiting: Vec<SlotId>,
}

/// An exchange that has ended, or must be sent again.
pub enum StreamOutcome {
    Complete(u32),
    Failed(u32, Failure, &'static str),
    /// The server did not process the request.
    Again(u32),
}

impl Streams {
    pub fn new(spec: &LoadSpec) -> Self {
        Streams {
            per_connection: spec.http2.as_ref().map_or(1, |http2| http2.streams.max(1)),
            hosts: spec.hosts.len().max(1) as u32,
            by_conn: Vec::new(),
            out: Vec::new(),
            at_hand: None,
            ended: Vec::new(),
        }
    }

    /// The connection to a host that a slot shares.
    pub fn connection_of(&self, place: u32, host: u16) -> ConnId {
        self.connections_of(place).start + u32::from(host)
    }

    /// All connections that a slot shares, one to each host.
    pub fn connections_of(&self, place: u32) -> Range<ConnId> {
        let first = place / self.per_connection * self.hosts;
        first..first + self.hosts
    }

    /// Whether nothing is open on the connection or waits for it, and the server has sent no GOAWAY.
    pub fn is_at_rest(&self, conn: ConnId) -> bool {
        let Some(entry) = self.by_conn.get(conn as usize) else { return false };
        entry.waiting.is_empty() && entry.session.as_ref().is_some_and(|s| s.open() == 0 && !s.is_ending())
    }

    /// Records when connecting began, on the backend's clock.
    pub fn begin_connecting(&mut self, conn: ConnId, at_ns: u64) {
        self.entry(conn).since_ns = at_ns;
    }

    /// When connecting began, on the backend's clock.
    pub fn connecting_since(&self, conn: ConnId) -> Option<u64> {
        self.by_conn.get(conn as usize).map(|entry| entry.since_ns)
    }

    /// Bytes that had to wait have gone out.
    #[inline]
    pub fn sent(&mut self, conn: ConnId, bytes: usize) {
        let Some(Http2Connection { session, unsent, .. }) = self.by_conn.get_mut(conn as usize) else {
            return;
        };
        *unsent = unsent.saturating_sub(bytes);
        if let Some(session) = session.as_mut().filter(|_| *unsent == 0) {
            session.all_gone();
        }
    }

    /// Whether the server has left no window to send the whole request of an exchange.
    pub fn is_held_up(&self, conn: ConnId, id: SlotId) -> bool {
        let entry = self.by_conn.get(conn as usize);
        entry.and_then(|entry| entry.session.as_ref()).is_some_and(|session| session.is_held_up(id))
    }

    /// Takes the session of a connection that is handed over, if it has one.
    pub fn hand_over(&mut self, conn: ConnId) -> Option<Box<Session>> {
        self.by_conn.get_mut(conn as usize)?.session.take()
    }

    /// Installs the session of a connection that was opened or taken over.
    pub fn install(&mut self, conn: ConnId, session: Box<Session>) {
        let entry = self.entry(conn);
        entry.session = Some(session);
        entry.unsent = 0;
    }

    /// The state of a connection, added if it is new: only for connections that carry streams.
    pub fn entry(&mut self, conn: ConnId) -> &mut Http2Connection {
        let index = conn as usize;
        if self.by_conn.len() <= index {
            self.by_conn.resize_with(index + 1, Http2Connection::default);
        }
        &mut self.by_conn[index]
    }
}

/// Applies a session's events to the slots they are for.
pub struct EventApplier<'a> {
    pub slots: &'a mut Slots,
    pub ended: &'a mut Vec<StreamOutcome>,
}

impl EventApplier<'_> {
    #[inline]
    pub fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Head { token, status, end } => self.head(token, status, end),
            Event::Data { token, bytes, end } => self.data(token, bytes, end),
            Event::Field { token, name, value } => self.field(token, name, value),
            Event::GoAway { .. } | Event::SettingsChanged { .. } => {}
            Event::Reset { token, code: Code::REFUSED_STREAM } | Event::Unprocessed { token } => {
                self.ended.push(StreamOutcome::Again(token));
            }
            Event::Reset { token, .. } => {
                let message = "the server reset the stream";
                let has_bytes = self.slots.exchanges[token as usize].is(Fact::HasResponseBytes);
                let failure = if has_bytes { Failure::Truncated } else { Failure::Reset };
                self.ended.push(StreamOutcome::Failed(token, failure, message));
            }
            Event::Malformed { token, message } => {
                self.ended.push(StreamOutcome::Failed(token, Failure::Protocol, message));
            }
            Event::HeadTooLarge { token } => {
                let message = HEAD_TOO_LARGE.message;
                self.ended.push(StreamOutcome::Failed(token, Failure::TooLarge, message));
            }
        }
    }

    #[inline]
    fn head(&mut self, token: u32, status: u16, end: bool) {
        let exchange = &mut self.slots.exchanges[token as usize];
        exchange.set(Fact::HasResponseBytes, true);
        exchange.status = status;
        if let Some(kept) = &mut exchange.buffered {
            kept.end_head();
        }
        if let Some(stash) = self.slots.stash_of(token) {
            stash.bytes.extend_from_slice(b"\r\n");
            stash.head_end = Some(stash.bytes.len());
        }
        if end {
            self.ended.push(StreamOutcome::Complete(token));
        }
    }

    #[inline]
    fn data(&mut self, token: u32, bytes: &[u8], end: bool) {
        let exchange = &mut self.slots.exchanges[token as usize];
        if let Some(kept) = &mut exchange.buffered {
            BodySink::body(&mut **kept, bytes);
        }
        if let Some(stash) = self.slots.stash_of(token) {
            let room = RESPONSE_BYTES.saturating_sub(stash.bytes.len());
            stash.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if end {
            self.ended.push(StreamOutcome::Complete(token));
        }
    }

    /// Keeps a field of a response's head if it is read later, by the journey or in an example. Trailers come after the
    /// head and are not kept.
    fn field(&mut self, token: u32, name: &[u8], value: &[u8]) {
        let exchange = &mut self.slots.exchanges[token as usize];
        if exchange.is(Fact::HasResponseBytes) {
            return;
        }
        if let Some(kept) = &mut exchange.buffered {
            return kept.field(name, value);
        }
        let fails = name == b":status" && value.first().is_some_and(|b| *b >= b'4');
        let stash = if fails { self.slots.reserve_stash(token) } else { self.slots.stash_of(token) };
        if let Some(stash) = stash.filter(|stash| stash.bytes.len() < HEAD_BYTES) {
            write_field(name, value, &mut stash.bytes);
        }
    }
}
