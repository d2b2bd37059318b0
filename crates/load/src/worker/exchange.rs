//! The life of a request: `begin` → `transmit` → `received` → `complete` or `fail` → `finish`. If it needs a
//! connection first, [`crate::worker::connect`] comes in between; what its slot does next is in
//! [`crate::worker::dispatch`].

use loadlab_record::counts::example::RESPONSE_BYTES;
use loadlab_record::counts::outcome::{Failure, Outcome};

use crate::io::{ConnId, Event, Ops, Sink};
use crate::journey::failure::StepFailure;
use crate::journey::response::{BufferedResponse, Ended};
use crate::journey::users::Users;
use crate::measure::examples::{Ending, Reason, ResponseBytes};
use crate::measure::recorder::Times;
use crate::measure::redact::{self, Hidden};
use crate::protocol::http1::{Fed, Http1Error};
use crate::spec::Model;
use crate::spec::request::Request;
use crate::worker::Worker;
use crate::worker::state::connections::ConnPhase;
use crate::worker::state::slots::{Exchange, Fact};
use crate::worker::state::tls::put;
use crate::worker::state::{Mode, NONE, SlotId};

/// Bytes of a connection as received.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'b> {
    pub bytes: &'b [u8],
    /// The peer sends nothing after them.
    pub last: bool,
}

/// How a request ended.
pub(crate) struct RequestEnd<'b> {
    pub outcome: Outcome,
    /// What went wrong, if anything.
    pub error: Option<Reason>,
    pub response: ResponseBytes<'b>,
}

impl<'b> RequestEnd<'b> {
    /// With a complete response, judged.
    #[inline]
    pub fn judged(outcome: Outcome, failure: Option<StepFailure>, response: ResponseBytes<'b>) -> Self {
        RequestEnd { outcome, error: failure.map(Reason::Script), response }
    }

    /// Without a response.
    #[inline]
    pub fn failed(failure: Failure, reason: Reason) -> Self {
        let response = ResponseBytes::default();
        RequestEnd { outcome: Outcome::Failed(failure), error: Some(reason), response }
    }
}

impl<'r> Worker<'r> {
    /// Performs the first action for a request.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: SlotId,
        index: u32,
        due_ns: u64,
        noticed_ns: u64,
    ) {
        // Where users send as soon as they are free, the clock has just been read.
        let now = if self.sends_when_free { noticed_ns } else { self.now(ops) };
        let request = &self.spec.requests[index as usize];
        self.measure.recorder.started(request, due_ns, noticed_ns, now);
        if self.conns.round_robin.is_some() {
            self.slots.exchanges[id as usize].conn = self.conns.take_turn();
        }
        if let Some(journey) = &mut self.journey {
            journey.begin_request(id);
        }
        let host = self.journey.as_ref().and_then(|j| j.redirected_to(id)).unwrap_or(request.host);
        // Only a part of a conversation may have a timeout of its own: other requests are spared the lookup.
        let is_websocket = self.mode == Mode::WebSocket;
        let timeout_ns = if is_websocket { self.spec.timeout_of(index) } else { self.spec.timeout_ns };
        self.slots.begin(id, index, due_ns, now, timeout_ns);
        match self.mode {
            Mode::Http1 => self.begin_exchange(ops, id, host, now),
            Mode::Http2 => self.begin_stream(ops, id, host, now),
            Mode::WebSocket => {
                if !self.continue_conversation(ops, id, now) {
                    self.begin_exchange(ops, id, host, now);
                }
            }
        }
    }

    /// Sends a request that has a connection to itself, now or once the connection is open.
    #[inline]
    fn begin_exchange(&mut self, ops: &mut impl Ops<'r>, id: SlotId, host: u16, now: u64) {
        let exchange = &self.slots.exchanges[id as usize];
        let (index, conn) = (exchange.request, exchange.conn);
        let state = &self.conns.table[conn as usize];
        let shares = |to: u16| self.spec.proxy.as_ref().is_some_and(|p| p.shares(to, host));
        let (phase, elsewhere) = (state.phase(), state.host() != host && !shares(state.host()));
        let is_idle = phase == ConnPhase::Idle && !elsewhere;
        if !is_idle && !self.try_out_step(id, index, now) {
            return;
        }
        let state = &mut self.conns.table[conn as usize];
        state.assign(id);
        match phase {
            ConnPhase::Idle if !elsewhere => {
                state.reuse();
                self.transmit(ops, conn);
            }
            ConnPhase::Closed => self.connect(ops, conn, host, now),
            // A held connection still being opened: the request goes out once it is open.
            ConnPhase::Connecting | ConnPhase::Securing if !elsewhere => {}
            _ => {
                self.close(ops, conn);
                self.connect(ops, conn, host, now);
            }
        }
    }

    /// Whether a step can be written; if not, it fails in the next turn, and no connection is opened or closed for it.
    pub(crate) fn try_out_step(&mut self, id: SlotId, index: u32, now: u64) -> bool {
        let Some(journey) = &mut self.journey else { return true };
        match journey.try_out(id, index, now) {
            Ok(()) => true,
            Err(fault) => {
                let failure = StepFailure::Unwritten(fault);
                self.slots.unwritten.push(self.slots.exchanges[id as usize].unwritten(id, failure));
                false
            }
        }
    }

    /// Sends the request assigned to a connection.
    #[inline]
    pub(crate) fn transmit(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let state = &mut self.conns.table[conn as usize];
        state.become_busy();
        let exchange = &mut self.slots.exchanges[state.exchange() as usize];
        if self.journey.is_some() {
            return self.transmit_step(ops, conn);
        }
        let bytes: &'r [u8] = &self.spec.requests[exchange.request as usize].bytes;
        let (length, sent) = match self.conns.tls {
            None => (bytes.len(), ops.send(conn, bytes)),
            Some(_) => put(&mut self.conns.tls, ops, conn, bytes),
        };
        exchange.begin_sending(length, sent);
        self.measure.recorder.sent(sent);
    }

    /// As `transmit`, for a step of a journey, which may have to be written first.
    fn transmit_step(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let now = self.now(ops);
        if self.mode == Mode::WebSocket {
            self.open_conversation(conn);
        }
        let user = self.conns.table[conn as usize].exchange();
        let Some(journey) = &mut self.journey else { return };
        let exchange = &mut self.slots.exchanges[user as usize];
        let written = journey.script(exchange.request).message.is_some();
        let has_late_buffer = match self.mode {
            Mode::WebSocket => {
                journey.provide_buffer(exchange.request, &mut exchange.buffered);
                false
            }
            _ => journey.provide_early_buffer(user, exchange.request, &mut exchange.buffered),
        };
        let (length, sent) = if written {
            match journey.write(user, exchange.request, now) {
                Ok(bytes) => {
                    if let Some(kept) = &mut exchange.buffered {
                        kept.keep_request(bytes);
                    }
                    let put = put(&mut self.conns.tls, ops, conn, bytes);
                    exchange.set(Fact::HasId, journey.last_id().is_some());
                    put
                }
                Err(fault) => {
                    // Nothing was sent on the connection.
                    self.conns.table[conn as usize].become_idle();
                    let failure = StepFailure::Unwritten(fault);
                    return self.slots.unwritten.push(exchange.unwritten(user, failure));
                }
            }
        } else {
            let bytes: &'r [u8] = &self.spec.requests[exchange.request as usize].bytes;
            match self.conns.tls {
                None => (bytes.len(), ops.send(conn, bytes)),
                Some(_) => put(&mut self.conns.tls, ops, conn, bytes),
            }
        };
        exchange.begin_sending(length, sent);
        exchange.set(Fact::LateBuffer, has_late_buffer);
        self.measure.recorder.sent(sent);
    }

    fn sent(&mut self, conn: ConnId, bytes: usize) {
        self.measure.recorder.sent(bytes);
        match self.mode {
            Mode::Http1 => {}
            Mode::Http2 => return self.streams.sent(conn, bytes),
            Mode::WebSocket => self.conversation_sent(conn, bytes),
        }
        let exchange = self.conns.table[conn as usize].exchange();
        if let Some(exchange) = self.slots.exchanges.get_mut(exchange as usize) {
            exchange.sent(bytes);
        }
    }

    #[inline]
    fn received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, chunk: Chunk<'_>) {
        let now = self.now(ops);
        self.measure.recorder.roll(now);
        self.measure.recorder.received(chunk.bytes.len());
        if self.conns.waits_for_tunnel(conn) {
            return self.tunnel_received(ops, conn, chunk, now);
        }
        self.host_received(ops, conn, chunk, now);
    }

    /// Handles bytes from the host, under TLS or not.
    #[inline]
    pub(crate) fn host_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, chunk: Chunk<'_>, now: u64) {
        match self.conns.tls {
            None => self.plain_received(ops, conn, chunk, now),
            Some(_) => self.tls_received(ops, conn, chunk, now),
        }
    }

    /// Handles bytes of the application's protocol.
    #[inline]
    pub(crate) fn plain_received(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        chunk: Chunk<'_>,
        now: u64,
    ) {
        match self.mode {
            Mode::Http1 => self.http1_received(ops, conn, chunk, now),
            Mode::Http2 => self.streams_received(ops, conn, chunk.bytes, now),
            Mode::WebSocket => {
                if !self.conversation_received(ops, conn, chunk.bytes, now) {
                    self.http1_received(ops, conn, chunk, now);
                }
            }
        }
    }

    /// Handles bytes of an HTTP/1 response.
    #[inline]
    fn http1_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, chunk: Chunk<'_>, now: u64) {
        let Chunk { bytes, last } = chunk;
        let state = &self.conns.table[conn as usize];
        if state.phase() != ConnPhase::Busy {
            // Unsolicited bytes: the connection cannot be trusted with the response to the next request.
            return self.close(ops, conn);
        }
        let exchange_id = state.exchange();
        let exchange = &mut self.slots.exchanges[exchange_id as usize];
        exchange.set(Fact::HasResponseBytes, true);
        let request: &'r Request = &self.spec.requests[exchange.request as usize];
        if exchange.is(Fact::LateBuffer) {
            exchange.provide_late_buffer(exchange_id, &mut self.journey);
        }
        match self.slots.feed(exchange_id, bytes, request.response_has_no_body) {
            Ok(Fed { done: true, used, head_end, head: Some(head) }) => {
                let whole = &bytes[..used];
                if self.slots.exchanges[exchange_id as usize].is(Fact::HasStash) {
                    self.slots.stash(exchange_id, whole, None);
                }
                let clean = used == bytes.len() && !last;
                let may_continue = clean && head.keep_alive;
                self.complete(ops, conn, now, may_continue, ResponseBytes { bytes: whole, head_end });
            }
            Ok(fed) => self.slots.stash(exchange_id, bytes, fed.head_end),
            Err(fault) => {
                self.slots.stash(exchange_id, bytes, None);
                let failure = match fault {
                    Http1Error::HeadTooLarge => Failure::TooLarge,
                    Http1Error::Malformed(_) => Failure::Protocol,
                };
                self.fail(ops, exchange_id, failure, Reason::Text(fault.describe()));
            }
        }
    }

    /// Handles a complete response. `may_continue`: as far as the response shows, the connection may be reused.
    #[inline]
    fn complete(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        now: u64,
        may_continue: bool,
        response: ResponseBytes<'_>,
    ) {
        let state = &mut self.conns.table[conn as usize];
        let exchange_id = state.exchange();
        let exchange = &self.slots.exchanges[exchange_id as usize];
        let status = exchange.status;
        if may_continue && self.spec.keep_alive && exchange.is_sent() {
            state.become_idle();
        } else {
            self.close(ops, conn);
        }
        self.measure.recorder.count_status(status);
        let (outcome, failure) = self.judge(exchange_id, status, now);
        self.finish(ops, exchange_id, now, RequestEnd::judged(outcome, failure, response));
    }

    /// Judges whether a complete response, or a message, is a success, captures from it what its user needs, and counts
    /// captured numbers.
    #[inline]
    pub(crate) fn judge(&mut self, id: SlotId, status: u16, now: u64) -> (Outcome, Option<StepFailure>) {
        let exchange = &mut self.slots.exchanges[id as usize];
        let Some(journey) = &mut self.journey else {
            return (self.spec.requests[exchange.request as usize].judge(status), None);
        };
        let ended = Ended { status, time_ns: now.saturating_sub(exchange.started_ns), now_ns: now };
        let judged = journey.judge(id, exchange.request, exchange.buffered.as_deref_mut(), ended);
        for (index, value) in journey.numbers.drain(..) {
            self.measure.recorder.number(index, value, exchange.due_ns);
        }
        judged
    }

    /// The connection ended during a request, or while it was idle.
    pub(crate) fn connection_ended(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        error: Option<i32>,
        reason: Reason,
    ) {
        let state = &self.conns.table[conn as usize];
        let (phase, rested, host, exchange_id) =
            (state.phase(), state.rested(), state.host(), state.exchange());
        let exchange = match self.slots.exchanges.get(exchange_id as usize) {
            Some(exchange) if phase == ConnPhase::Busy => exchange,
            // No request is in flight on it, or the request could not be written.
            _ => return self.close_if_open(ops, conn),
        };
        let now = self.now(ops);
        let whole = error.is_none() && exchange.ends_with_connection();
        if whole && self.conns.tls.as_ref().is_some_and(|tls| tls.is_cut(conn)) {
            let reason = Reason::Text("the connection ended without a TLS close_notify");
            return self.fail(ops, exchange_id, Failure::Truncated, reason);
        }
        if whole {
            self.measure.recorder.roll(now);
            return self.complete(ops, conn, now, false, ResponseBytes::default());
        }
        let has_response_bytes = exchange.is(Fact::HasResponseBytes);
        let unread = is_unread(exchange, error);
        let request = &self.spec.requests[exchange.request as usize];
        if rested && exchange.may_resend(request, unread) && ops.unseen(conn) {
            self.close(ops, conn);
            match unread {
                // The server had closed the idle connection before it saw the request.
                true => self.measure.recorder.resent(),
                false => self.measure.recorder.resent_after_reset(),
            }
            self.slots.exchanges[exchange_id as usize].set(Fact::Resent, true);
            return self.connect(ops, conn, host, now);
        }
        let failure = if has_response_bytes { Failure::Truncated } else { Failure::Reset };
        self.fail(ops, exchange_id, failure, reason);
    }

    /// Fails a request that has no complete response.
    pub(crate) fn fail(&mut self, ops: &mut impl Ops<'r>, id: SlotId, failure: Failure, reason: Reason) {
        let now = self.now(ops);
        self.measure.recorder.roll(now);
        let conn = self.slots.exchanges[id as usize].conn;
        let is_unwritten = matches!(reason, Reason::Script(StepFailure::Unwritten(_)));
        let is_talking = self.mode == Mode::WebSocket && self.has_conversation(id);
        match self.mode {
            Mode::Http2 => self.cancel_stream(ops, id),
            // Nothing was sent on the connection.
            Mode::Http1 if is_unwritten => {}
            Mode::WebSocket if is_unwritten && !is_talking => {}
            Mode::Http1 | Mode::WebSocket => self.close_if_open(ops, conn),
        }
        self.finish(ops, id, now, RequestEnd::failed(failure, reason));
        if self.mode == Mode::Http2 {
            // It may have been the last one before the connection is replaced. Its example has the old one's address.
            self.end_quietly(ops, conn);
        }
    }

    /// Counts the exchange, keeps it if wanted, then continues with its slot.
    #[inline]
    pub(crate) fn finish(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64, end: RequestEnd<'_>) {
        let RequestEnd { outcome, error, response } = end;
        // A conversation part that began meanwhile may end with bytes that arrived before it began.
        let now = now.max(self.slots.exchanges[id as usize].started_ns);
        self.slots.end(id, now);
        let exchange = &self.slots.exchanges[id as usize];
        let conn = exchange.conn;
        let request: &'r Request = &self.spec.requests[exchange.request as usize];
        let times = Times { due_ns: exchange.due_ns, started_ns: exchange.started_ns, end_ns: now };
        let status = Some(exchange.status).filter(|status| *status > 0);
        self.measure.recorder.ended(request, times, outcome);
        if exchange.is(Fact::HasId)
            && let Some(journey) = self.journey.as_ref().filter(|j| !j.follows_redirect(id))
        {
            self.measure.recorder.id(journey.id_of(id), outcome);
        }
        if self.measure.examples.wants(request, outcome, now - times.due_ns) {
            self.keep(
                id,
                Ending {
                    request,
                    address: self.conns.address_of(conn),
                    times,
                    outcome,
                    error,
                    error_text: None,
                    written: None,
                    user: matches!(self.spec.model, Model::Closed { .. }).then(|| self.share.number_of(id)),
                    status,
                    response,
                    shown: None,
                },
            );
        }
        self.slots.unstash(id);
        if self.journey.is_some() {
            self.end_step(id, outcome, error);
        }
        if self.mode == Mode::WebSocket {
            self.end_conversation_if_over(ops, id);
        }
        self.conns.table[conn as usize].release(id);
        if self.conns.round_robin.is_some() {
            self.slots.exchanges[id as usize].conn = NONE;
        }
        self.next(ops, id, now);
    }

    #[cold]
    fn keep(&mut self, id: SlotId, ending: Ending<'_>) {
        let stash = self.slots.take_stash(id);
        let exchange = &mut self.slots.exchanges[id as usize];
        if exchange.is(Fact::LateBuffer) {
            exchange.provide_late_buffer(id, &mut self.journey);
        }
        let exchange = &self.slots.exchanges[id as usize];
        let kept = exchange.buffered.as_deref();
        let given = &self.spec.secrets;
        let is_whole = redact::is_complete(ending.outcome);
        let (secrets, is_known) = match &self.journey {
            Some(journey) => journey.secrets(id, exchange.request, kept, is_whole, given),
            None => (given.clone(), true),
        };
        // HTTP/2 has no raw response bytes: its fields were written out as text.
        let rendered = kept.filter(|k| self.mode == Mode::Http2 && !k.head().is_empty());
        let redacts = !secrets.is_empty() || !is_known;
        let body = |k: &BufferedResponse| {
            // Secrets are searched for in the body as received.
            let body = if redacts { k.received() } else { k.body() };
            body[..body.len().min(RESPONSE_BYTES)].to_vec()
        };
        let rendered = rendered.map(|k| ([k.head(), &body(k)].concat(), k.head().len()));
        let response = match (&rendered, &stash) {
            (Some((bytes, head)), _) => ResponseBytes { bytes, head_end: Some(*head) },
            (None, Some(stash)) => ResponseBytes { bytes: &stash.bytes, head_end: stash.head_end },
            (None, None) => ending.response,
        };
        let error_text = match (ending.error, &self.journey) {
            (Some(Reason::Script(failure)), Some(journey)) => {
                let Times { started_ns, end_ns, .. } = ending.times;
                let status = ending.status.unwrap_or(0);
                let ended = Ended { status, time_ns: end_ns - started_ns, now_ns: end_ns };
                Some(journey.script(exchange.request).describe(failure, kept, ended, &secrets))
            }
            (Some(Reason::Tls), _) => self.conns.tls.as_ref().map(|tls| tls.last_error.clone()),
            (Some(Reason::Proxy), _) => self.conns.tunnels.as_ref().map(|tunnels| tunnels.last_error.clone()),
            (Some(Reason::WebSocket), _) => Some(self.conversations.last_error.clone()),
            _ => None,
        };
        let fixed_head = self.spec.http2.as_ref().and_then(|h| h.heads.get(exchange.request as usize));
        let written = kept.map(|k| k.request.as_slice()).filter(|r| !r.is_empty());
        let written = written.or(fixed_head.map(|head| head.text().as_bytes()));
        let number = exchange.request as usize;
        let is_user = |j: &Users<'_>| j.has_sessions() || matches!(self.spec.model, Model::Closed { .. });
        let shown = self.journey.as_ref().map(|j| j.shown(id, exchange.request, is_user(j), &secrets));
        let ending =
            Ending { response, error_text: error_text.as_deref(), written, shown: shown.as_ref(), ..ending };
        let hidden = redacts.then(|| Hidden::of(&ending, &secrets, is_known));
        let ending = hidden.as_ref().map_or(ending, |hidden| hidden.instead_of(ending));
        if let Some(example) = self.measure.examples.keep(&ending, number) {
            self.measure.recorder.example(example);
        }
        if let Some(stash) = stash {
            self.slots.give_back_stash(stash);
        }
    }
}

/// Whether the end of the connection shows that the server did not read the request, if none of it was acknowledged.
///
/// A peer that closes in good order sends its FIN before it resets late data (EPIPE, if a send is reported first). A
/// bare reset does not show what the peer had read: it looks the same whether its kernel discarded the request unread,
/// in a race with the close, or its program read it and gave up before anything was acknowledged.
fn is_unread(exchange: &Exchange, error: Option<i32>) -> bool {
    let closed_first = matches!(error, None | Some(libc::EPIPE));
    closed_first || !exchange.is(Fact::PartlySent)
}

impl<'r, O: Ops<'r>> Sink<O> for Worker<'r> {
    #[inline]
    fn event(&mut self, ops: &mut O, event: Event<'_>) {
        match event {
            Event::Received { conn, bytes, last } => self.received(ops, conn, Chunk { bytes, last }),
            Event::Connected(conn) => self.on_connected(ops, conn),
            Event::Sent(conn, bytes) => self.sent(conn, bytes),
            Event::Closed(conn) => self.on_end(ops, conn, None),
            Event::Failed(conn, error) => self.on_end(ops, conn, Some(error)),
        }
    }
}
