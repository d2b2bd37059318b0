//! The life of a request that shares its connection with others: HTTP/2.
//!
//! It differs from [`crate::worker::exchange`] in how a request relates to its connection: it is one of many on it, and
//! a timeout or failure of one leaves the others alone. A request waits while its connection is being opened, has no
//! stream left, or is about to be closed by the server; that wait is part of its time.
//!
//! Slots share connections in groups, and each group has one connection to each host. A step of a journey is written
//! when its stream begins, since only its connection knows how to compress its head.

use loadlab_record::counts::outcome::Failure;

use crate::io::{ConnId, Ops};
use crate::journey::failure::StepFailure;
use crate::measure::examples::{Reason, ResponseBytes};
use crate::protocol::http2::{HEAD_TOO_LARGE, Session, Settings};
use crate::worker::Worker;
use crate::worker::exchange::RequestEnd;
use crate::worker::state::SlotId;
use crate::worker::state::connections::ConnPhase;
use crate::worker::state::slots::Fact;
use crate::worker::state::streams::{EventApplier, Http2Connection, StreamOutcome, Streams};
use crate::worker::state::tls::put;

/// Why requests failed that shared a connection with one whose response had too long a head.
const OTHER_HEAD_TOO_LARGE: &str =
    "the connection was closed because the head of another response is too long";

impl<'r> Worker<'r> {
    /// Performs the first action for a request: sends it, or lets it wait until it can be sent.
    pub(crate) fn begin_stream(&mut self, ops: &mut impl Ops<'r>, id: SlotId, host: u16, now: u64) {
        let conn = self.streams.connection_of(id, host);
        let exchange = &mut self.slots.exchanges[id as usize];
        exchange.conn = conn;
        let (index, is_closed) = (exchange.request, self.conns.table[conn as usize].is_closed());
        if is_closed && !self.try_out_step(id, index, now) {
            return;
        }
        self.streams.entry(conn).waiting.push(id);
        match self.conns.table[conn as usize].phase() {
            ConnPhase::Closed => {
                self.conns.table[conn as usize].forget_refusals();
                self.connect(ops, conn, host, now);
            }
            ConnPhase::Connecting | ConnPhase::Securing => {}
            ConnPhase::Idle | ConnPhase::Busy => self.send_waiting(ops, conn),
        }
    }

    /// The connection is open: sends the preface and the waiting requests.
    pub(crate) fn streams_open(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        self.conns.table[conn as usize].become_idle();
        let report_fields = self.journey.is_some();
        let settings = Settings { report_fields, report_failures: true, ..Settings::default() };
        let mut session = Box::new(Session::new(settings));
        session.start(&mut self.streams.out);
        self.streams.install(conn, session);
        self.send_waiting(ops, conn);
    }

    /// Sends as many of the waiting requests as there are streams for.
    fn send_waiting(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let now = if self.journey.is_some() { self.now(ops) } else { 0 };
        if self.streams.at_hand == Some(conn) {
            return;
        }
        let Some(http2) = &self.spec.http2 else { return };
        let Streams { by_conn, out, .. } = &mut self.streams;
        let Http2Connection { session: Some(session), waiting, .. } = &mut by_conn[conn as usize] else {
            return;
        };
        // A step that cannot be written needs no stream.
        while let ready @ 1.. = (session.free_streams() as usize).min(waiting.len()) {
            for id in waiting.drain(..ready) {
                let exchange = &mut self.slots.exchanges[id as usize];
                let request = &self.spec.requests[exchange.request as usize];
                if let Some(journey) = &mut self.journey {
                    journey.provide_buffer(exchange.request, &mut exchange.buffered);
                    if let Some(written) = http2.written(exchange.request) {
                        let step = match journey.write_http2(id, exchange.request, now, written) {
                            Ok(step) => step,
                            Err(fault) => {
                                self.slots
                                    .unwritten
                                    .push(exchange.unwritten(id, StepFailure::Unwritten(fault)));
                                continue;
                            }
                        };
                        let no_body = request.response_has_no_body;
                        let sent = session.send_parts(id, no_body, step.parts(), step.body, out);
                        exchange.set(Fact::HasId, step.id.is_some());
                        if let Some(kept) = &mut exchange.buffered {
                            kept.keep_request(step.text);
                            if sent == Ok(false) {
                                kept.unsent.extend_from_slice(step.body);
                            }
                        }
                        continue;
                    }
                }
                let body = &request.bytes[request.head_len..];
                // There is room, as checked above.
                let _ = session.send(id, &http2.heads[exchange.request as usize], body, out);
            }
        }
        self.write_out(ops, conn);
    }

    /// Writes the pending bytes, including bodies that may continue.
    fn write_out(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let Streams { by_conn, out, .. } = &mut self.streams;
        let Http2Connection { session: Some(session), unsent, .. } = &mut by_conn[conn as usize] else {
            return;
        };
        loop {
            if !out.is_empty() {
                let (length, sent) = put(&mut self.conns.tls, ops, conn, out);
                *unsent += length - sent;
                self.measure.recorder.sent(sent);
                out.clear();
            }
            if *unsent == 0 {
                session.all_gone();
            }
            if !session.wants_flush() {
                return;
            }
            let (exchanges, requests) = (&self.slots.exchanges, &self.spec.requests);
            let body_of = |id: SlotId| {
                let exchange = &exchanges[id as usize];
                match exchange.buffered.as_deref().filter(|kept| !kept.unsent.is_empty()) {
                    Some(kept) => kept.unsent.as_slice(),
                    None => {
                        let request = &requests[exchange.request as usize];
                        &request.bytes[request.head_len..]
                    }
                }
            };
            session.flush(body_of, out);
        }
    }

    /// Handles bytes of a connection that carries streams.
    pub(crate) fn streams_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, bytes: &[u8], now: u64) {
        let Some(mut session) = self.streams.entry(conn).session.take() else { return };
        self.streams.at_hand = Some(conn);
        let mut ended = std::mem::take(&mut self.streams.ended);
        let mut applier = EventApplier { slots: &mut self.slots, ended: &mut ended };
        let result = session.receive(bytes, &mut self.streams.out, &mut |event| applier.apply(event));
        self.streams.entry(conn).session = Some(session);
        if !self.streams.out.is_empty() {
            // What follows may send on other connections.
            self.write_out(ops, conn);
        }
        for outcome in ended.drain(..) {
            self.end_exchange(ops, outcome, now);
        }
        self.streams.ended = ended;
        self.streams.at_hand = None;
        if self.streams.entry(conn).session.is_none() {
            // The session's user has left, and closed the connection.
            return;
        }
        match result {
            Ok(()) => self.send_waiting(ops, conn),
            Err(fault) => {
                self.write_out(ops, conn);
                // The request whose head it is has ended by now: the others lose their connection.
                let message = if fault == HEAD_TOO_LARGE { OTHER_HEAD_TOO_LARGE } else { fault.message };
                self.streams_ended(ops, conn, Some((Failure::Protocol, Reason::Text(message))));
            }
        }
        self.end_quietly(ops, conn);
    }

    /// After the server's GOAWAY, closes a connection once nothing is open on it; requests waiting for it go to the
    /// next connection.
    pub(crate) fn end_quietly(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let entry = self.streams.entry(conn);
        if entry.session.take_if(|s| s.is_ending() && s.open() == 0).is_none() {
            return;
        }
        let waits = !entry.waiting.is_empty();
        self.close(ops, conn);
        if waits {
            let (now, host) = (self.now(ops), self.conns.table[conn as usize].host());
            self.connect(ops, conn, host, now);
        }
    }

    /// Ends an exchange, or lets it wait until it is sent again.
    fn end_exchange(&mut self, ops: &mut impl Ops<'r>, outcome: StreamOutcome, now: u64) {
        match outcome {
            StreamOutcome::Complete(id) => self.complete_stream(ops, id, now),
            StreamOutcome::Failed(id, failure, message) => {
                self.finish(ops, id, now, RequestEnd::failed(failure, Reason::Text(message)));
            }
            StreamOutcome::Again(id) if self.slots.exchanges[id as usize].is(Fact::Resent) => {
                let reason = Reason::Text("the server refused the stream twice");
                self.finish(ops, id, now, RequestEnd::failed(Failure::Reset, reason));
            }
            StreamOutcome::Again(id) => {
                let exchange = &mut self.slots.exchanges[id as usize];
                exchange.set(Fact::Resent, true);
                exchange.set(Fact::HasResponseBytes, false);
                exchange.status = 0;
                let conn = exchange.conn;
                self.measure.recorder.resent();
                if let Some(stash) = self.slots.stash_of(id) {
                    stash.bytes.clear();
                }
                self.streams.entry(conn).waiting.push(id);
            }
        }
    }

    fn complete_stream(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64) {
        let status = self.slots.exchanges[id as usize].status;
        self.measure.recorder.count_status(status);
        let (outcome, failure) = self.judge(id, status, now);
        self.finish(ops, id, now, RequestEnd::judged(outcome, failure, ResponseBytes::default()));
    }

    /// Abandons a request; its connection continues without it.
    pub(crate) fn cancel_stream(&mut self, ops: &mut impl Ops<'r>, id: SlotId) {
        let conn = self.slots.exchanges[id as usize].conn;
        self.streams.entry(conn).waiting.retain(|waiting| *waiting != id);
        let Streams { by_conn, out, .. } = &mut self.streams;
        if let Some(session) = &mut by_conn[conn as usize].session {
            session.cancel(id, out);
            self.write_out(ops, conn);
            // There may be room for another request.
            self.send_waiting(ops, conn);
        }
    }

    /// A request on this connection has timed out, perhaps waiting for it to open, which will never happen: a connection
    /// begun at least a timeout ago is abandoned, and other requests waiting for it get a new one.
    #[cold]
    pub(crate) fn replace_stuck(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, now: u64) {
        let state = &self.conns.table[conn as usize];
        let (is_being_made, host) = (state.is_being_made(), state.host());
        let age_ns = |since_ns| (self.start_ns + now).saturating_sub(since_ns);
        let entry = self.streams.entry(conn);
        if !is_being_made || age_ns(entry.since_ns) < self.spec.timeout_ns {
            return;
        }
        // Requests that have waited as long are abandoned next, and their users' next requests open their own
        // connection.
        let (exchanges, timeout_ns) = (&self.slots.exchanges, self.spec.timeout_ns);
        let expires_ns = |id: SlotId| exchanges[id as usize].started_ns.saturating_add(timeout_ns);
        let is_wanted = entry.waiting.iter().any(|waiting| expires_ns(*waiting) > now);
        self.close(ops, conn);
        if is_wanted {
            self.conns.table[conn as usize].forget_refusals();
            self.connect(ops, conn, host, now);
        }
    }

    /// A user leaves, closing the connections it does not share; shared ones stay open.
    pub(crate) fn leave_streams(&mut self, ops: &mut impl Ops<'r>, place: u32) {
        if self.streams.per_connection > 1 {
            return;
        }
        for conn in self.streams.connections_of(place) {
            self.streams.entry(conn).session = None;
            if !self.conns.table[conn as usize].is_closed() {
                self.close(ops, conn);
            }
        }
    }

    /// A connection is gone, with everything open on it. Requests that waited unsent go to the next connection, unless
    /// it cannot be opened.
    pub(crate) fn streams_ended(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        why: Option<(Failure, Reason)>,
    ) {
        let now = self.now(ops);
        let state = &self.conns.table[conn as usize];
        let (is_being_made, host) = (state.is_being_made(), state.host());
        let entry = self.streams.entry(conn);
        let session = entry.session.take();
        let open: Vec<SlotId> = session.iter().flat_map(|s| s.open_tokens()).collect();
        let waiting = std::mem::take(&mut entry.waiting);
        self.measure.recorder.roll(now);
        if !self.conns.table[conn as usize].is_closed() {
            self.close(ops, conn);
        }
        let closed = Reason::Text("connection closed by the server");
        let (failure, reason) = why.unwrap_or((Failure::Reset, closed));
        let mut failed = open;
        if is_being_made {
            failed.extend(&waiting);
        }
        for id in failed {
            let has_response_bytes = self.slots.exchanges[id as usize].is(Fact::HasResponseBytes);
            let failure =
                if failure == Failure::Reset && has_response_bytes { Failure::Truncated } else { failure };
            self.finish(ops, id, now, RequestEnd::failed(failure, reason));
        }
        if !is_being_made && !waiting.is_empty() {
            self.streams.entry(conn).waiting.extend(waiting);
            if self.conns.table[conn as usize].is_closed() {
                self.connect(ops, conn, host, now);
            }
        }
    }
}
