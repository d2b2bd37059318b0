//! The life of a request: `begin` → `connect` → `connected` → `transmit` → `received` → `complete` or `fail` →
//! `next`. The functions are named after the step it is in.

use loadlab_record::example::{BODY_BYTES, HEAD_BYTES};
use loadlab_record::load::OwnLimit;
use loadlab_record::outcome::{Failure, Outcome};

use crate::io::{ConnId, Event, Ops, Sink};
use crate::journey::script::{Ended, Kept, Trouble};
use crate::journey::users::Users;
use crate::measure::examples::{Ending, Reason, end_of_head};
use crate::measure::recorder::Times;
use crate::measure::redact::{self, Hidden};
use crate::protocol::http1::Fault;
use crate::spec::Model;
use crate::spec::request::Request;
use crate::target::Address;
use crate::worker::Worker;
use crate::worker::slots::{Exchange, Phase};
use crate::worker::timeouts::NONE;
use crate::worker::tls::put;

/// Beginnings of responses kept at one time, in case they turn out slow or failed.
pub(crate) const STASHES: usize = 256;

impl<'r> Worker<'r> {
    /// The first action for a request.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: u32,
        index: u32,
        due_ns: u64,
        noticed_ns: u64,
    ) {
        // Where users are free at once the clock has just been read.
        let now = if self.as_due { noticed_ns } else { self.now(ops) };
        let request = &self.spec.requests[index as usize];
        self.recorder.started(request, due_ns, noticed_ns, now);
        if self.turn.is_some() {
            self.take_turn(id);
        }
        if let Some(journey) = &mut self.journey {
            journey.begins(id);
        }
        let host = self.journey.as_ref().and_then(|j| j.redirected_to(id)).unwrap_or(request.host);
        let exchange = &mut self.exchanges[id as usize];
        (exchange.request, exchange.due_ns, exchange.started_ns) = (index, due_ns, now);
        (exchange.resent, exchange.answered, exchange.under_way) = (false, false, true);
        (exchange.status, exchange.id) = (0, None);
        let timeout_ns = if self.talks.is_some() { self.within_ns(index) } else { self.spec.timeout_ns };
        self.deadlines.push(&mut self.exchanges, id, (now, timeout_ns));
        let exchange = &mut self.exchanges[id as usize];
        if let Some(multiplex) = &self.multiplex {
            exchange.conn = multiplex.connection_of(id, host);
            let is_closed = self.conns[exchange.conn as usize].phase == Phase::Closed;
            if is_closed && self.journey.is_some() && !self.can_be_written(id, index, now) {
                return;
            }
            return self.begin_stream(ops, id, host, now);
        }
        let conn_id = exchange.conn;
        if self.talks.is_some() && self.goes_on(ops, id, now) {
            return;
        }
        let conn = &self.conns[conn_id as usize];
        let shares = |to: u16| self.spec.proxy.as_ref().is_some_and(|p| p.shares(to, host));
        let (phase, elsewhere) = (conn.phase, conn.host != host && !shares(conn.host));
        let is_idle = phase == Phase::Idle && !elsewhere;
        if !is_idle && self.journey.is_some() && !self.can_be_written(id, index, now) {
            return;
        }
        let conn = &mut self.conns[conn_id as usize];
        (conn.exchange, conn.refused) = (id, 0);
        match phase {
            Phase::Idle if !elsewhere => {
                self.conns[conn_id as usize].rested = true;
                self.transmit(ops, conn_id);
            }
            Phase::Closed => self.connect(ops, conn_id, host, now),
            // Being opened to be held: the request goes out once it stands.
            Phase::Connecting | Phase::Securing if !elsewhere => {}
            _ => {
                self.shut(ops, conn_id);
                self.connect(ops, conn_id, host, now);
            }
        }
    }

    /// Whether a step can be written; else it fails in the next turn, and no connection is made or closed for it.
    fn can_be_written(&mut self, id: u32, index: u32, now: u64) -> bool {
        let Some(journey) = &mut self.journey else { return true };
        match journey.try_out(id, index, now) {
            Ok(()) => true,
            Err(fault) => {
                let trouble = Trouble::Unwritten(fault);
                self.unwritten.push(self.exchanges[id as usize].unwritten(id, trouble));
                false
            }
        }
    }

    /// Gives an exchange the next held connection that has none: there are at least as many as exchanges.
    fn take_turn(&mut self, id: u32) {
        let count = self.conns.len() as u32;
        let mut at = self.turn.unwrap_or(0);
        while self.conns[at as usize].exchange != NONE {
            at = (at + 1) % count;
        }
        self.exchanges[id as usize].conn = at;
        self.turn = Some((at + 1) % count);
    }

    pub(crate) fn connect(&mut self, ops: &mut impl Ops<'r>, id: ConnId, host: u16, now: u64) {
        let number = self.number_of(id);
        let conn = &mut self.conns[id as usize];
        // Each place goes through all addresses, and neighbours begin with different ones.
        let from = if conn.host == host { conn.address as usize + 1 } else { number as usize };
        conn.address = self.addresses.choose(host, from, now) as u32;
        let since_ns = self.place.start_ns + now;
        (conn.host, conn.phase, conn.since_ns, conn.rested) = (host, Phase::Connecting, since_ns, false);
        if let Some(multiplex) = &mut self.multiplex {
            multiplex.connects(id, since_ns);
        }
        let source = match self.spec.sources.as_slice() {
            [] => None,
            sources => Some(sources[(number % sources.len() as u64) as usize]),
        };
        let Some(address) = self.address_of(id) else { return };
        self.recorder.connecting();
        ops.connect(id, address, source);
    }

    fn address_of(&self, id: ConnId) -> Option<&'r Address> {
        let conn = self.conns.get(id as usize)?;
        self.addresses.get(conn.host, conn.address as usize)
    }

    fn connected(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        if self.tunnels.is_none() || !self.asks_for_tunnel(ops, id) {
            self.reached(ops, id);
        }
    }

    /// The connection stands, through a tunnel if it needed one.
    pub(crate) fn reached(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let now = self.now(ops);
        let conn = &self.conns[id as usize];
        let (exchange, took_ns) = (conn.exchange, ops.now().saturating_sub(conn.since_ns));
        let due_ns = self.due_of(id);
        if exchange != NONE || self.multiplex.is_some() {
            self.recorder.roll(now);
        }
        self.recorder.connected(due_ns, took_ns);
        if self.secure.is_some() && self.secures(ops, id) {
            return;
        }
        self.ready(ops, id);
    }

    /// Where in time a connection belongs that is being made: to the request it is for, or to when connecting began
    /// where it is for several. One that is opened to be held belongs to the window.
    pub(crate) fn due_of(&self, id: ConnId) -> u64 {
        let exchange = self.exchanges.get(self.conns[id as usize].exchange as usize);
        let shared = self.multiplex.as_ref().and_then(|m| m.connecting_since(id));
        let since_ns = shared.map(|since_ns| since_ns.saturating_sub(self.place.start_ns));
        exchange.map(|e| e.due_ns).or(since_ns).unwrap_or(u64::MAX)
    }

    /// Requests can go out on a connection.
    pub(crate) fn ready(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        if self.multiplex.is_some() {
            return self.streams_open(ops, id);
        }
        let conn = &mut self.conns[id as usize];
        if conn.exchange == NONE {
            conn.phase = Phase::Idle;
            return self.opened();
        }
        self.transmit(ops, id);
    }

    #[inline]
    fn transmit(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let conn = &mut self.conns[id as usize];
        conn.phase = Phase::Busy;
        let exchange = &mut self.exchanges[conn.exchange as usize];
        exchange.reader.reset();
        if self.journey.is_some() {
            return self.transmit_step(ops, id);
        }
        let bytes: &'r [u8] = &self.spec.requests[exchange.request as usize].bytes;
        let (length, sent) = match self.secure {
            None => (bytes.len(), ops.send(id, bytes)),
            Some(_) => put(&mut self.secure, ops, id, bytes),
        };
        (exchange.length, exchange.unsent) = (length, length - sent);
        self.recorder.sent(sent);
    }

    /// The same for a step of a journey, which may have to be written first.
    fn transmit_step(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let now = self.now(ops);
        if self.talks.is_some() {
            self.opens(id);
        }
        let user = self.conns[id as usize].exchange;
        let Some(journey) = &mut self.journey else { return };
        let exchange = &mut self.exchanges[user as usize];
        let written = journey.script(exchange.request).message.is_some();
        journey.make_room(exchange.request, &mut exchange.kept);
        let (length, sent) = if written {
            match journey.write(user, exchange.request, now) {
                Ok(bytes) => {
                    if let Some(kept) = &mut exchange.kept {
                        kept.request.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES)]);
                    }
                    let put = put(&mut self.secure, ops, id, bytes);
                    exchange.id = journey.last_id();
                    put
                }
                Err(fault) => {
                    // Nothing was said on it.
                    self.conns[id as usize].phase = Phase::Idle;
                    let trouble = Trouble::Unwritten(fault);
                    return self.unwritten.push(exchange.unwritten(user, trouble));
                }
            }
        } else {
            let bytes: &'r [u8] = &self.spec.requests[exchange.request as usize].bytes;
            match self.secure {
                None => (bytes.len(), ops.send(id, bytes)),
                Some(_) => put(&mut self.secure, ops, id, bytes),
            }
        };
        (exchange.length, exchange.unsent) = (length, length - sent);
        self.recorder.sent(sent);
    }

    fn sent(&mut self, id: ConnId, bytes: usize) {
        self.recorder.sent(bytes);
        if self.talks.is_some() {
            self.talk_sent(id, bytes);
        }
        if self.multiplex.is_some() {
            return self.streams_sent(id, bytes);
        }
        let exchange = self.conns[id as usize].exchange;
        if let Some(exchange) = self.exchanges.get_mut(exchange as usize) {
            exchange.unsent = exchange.unsent.saturating_sub(bytes);
        }
    }

    #[inline]
    fn received(&mut self, ops: &mut impl Ops<'r>, id: ConnId, bytes: &[u8], last: bool) {
        let now = self.now(ops);
        self.recorder.roll(now);
        self.recorder.received(bytes.len());
        if self.tunnels.as_ref().is_some_and(|t| t.is_asked(id)) {
            return self.tunnel_answered(ops, id, (bytes, last), now);
        }
        match self.secure {
            None => self.plain(ops, id, (bytes, last), now),
            Some(_) => self.secure_received(ops, id, (bytes, last), now),
        }
    }

    /// The same, plain.
    #[inline]
    pub(crate) fn plain(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: ConnId,
        (bytes, last): (&[u8], bool),
        now: u64,
    ) {
        if self.multiplex.is_some() {
            return self.streams_received(ops, id, bytes, now);
        }
        if self.talks.is_some() && self.talk_received(ops, id, bytes, now) {
            return;
        }
        let conn = &self.conns[id as usize];
        if conn.phase != Phase::Busy {
            // Bytes nobody asked for: the connection cannot be trusted to answer the next request.
            return self.shut(ops, id);
        }
        let exchange_id = conn.exchange;
        let exchange = &mut self.exchanges[exchange_id as usize];
        exchange.answered = true;
        let request: &'r Request = &self.spec.requests[exchange.request as usize];
        let fed = match &mut exchange.kept {
            None => exchange.reader.feed(bytes, request.answer_has_no_body, &mut self.memo),
            Some(kept) => {
                exchange.reader.feed_to(bytes, request.answer_has_no_body, &mut self.memo, &mut **kept)
            }
        };
        match fed {
            Ok(fed) if fed.done => {
                let clean = fed.used == bytes.len() && !last;
                let whole = &bytes[..fed.used];
                if exchange.stash.is_some() {
                    self.stash(exchange_id, whole, None);
                }
                self.complete(ops, id, now, clean, (whole, fed.head_end));
            }
            Ok(fed) => self.stash(exchange_id, bytes, fed.head_end),
            Err(fault) => {
                self.stash(exchange_id, bytes, None);
                let failure = match fault {
                    Fault::HeadTooLarge => Failure::TooLarge,
                    Fault::Malformed(_) => Failure::Protocol,
                };
                self.fail(ops, exchange_id, failure, Reason::Words(fault.words()));
            }
        }
    }

    /// The response is complete. `clean`: the connection may be used again, as far as its bytes say.
    #[inline]
    fn complete(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: ConnId,
        now: u64,
        clean: bool,
        response: (&[u8], Option<usize>),
    ) {
        let conn = &mut self.conns[id as usize];
        let exchange_id = conn.exchange;
        let exchange = &self.exchanges[exchange_id as usize];
        let request: &'r Request = &self.spec.requests[exchange.request as usize];
        let Some(head) = exchange.reader.head() else { return };
        if clean && head.keep_alive && self.spec.keep_alive && exchange.unsent == 0 {
            conn.phase = Phase::Idle;
        } else {
            self.shut(ops, id);
        }
        self.recorder.status(head.status);
        let (outcome, trouble) = match &mut self.journey {
            None => (judge(request, head.status), None),
            Some(journey) => {
                let exchange = &mut self.exchanges[exchange_id as usize];
                let time_ns = now.saturating_sub(exchange.started_ns);
                let ended = Ended { status: head.status, time_ns, now_ns: now };
                let kept = exchange.kept.as_deref_mut();
                let judged = journey.judge(exchange_id, exchange.request, kept, ended);
                for (place, value) in journey.numbers.drain(..) {
                    self.recorder.number(place, value, exchange.due_ns);
                }
                judged
            }
        };
        self.finish(ops, exchange_id, now, outcome, (trouble.map(Reason::Script), response));
    }

    /// The request ended otherwise.
    pub(crate) fn fail(&mut self, ops: &mut impl Ops<'r>, id: u32, failure: Failure, reason: Reason) {
        let now = self.now(ops);
        self.recorder.roll(now);
        let conn = self.exchanges[id as usize].conn;
        let is_unwritten = self.talks.is_none() && matches!(reason, Reason::Script(Trouble::Unwritten(_)));
        if self.multiplex.is_some() {
            self.cancel_stream(ops, id);
        } else if self.conns[conn as usize].phase != Phase::Closed && !is_unwritten {
            self.shut(ops, conn);
        }
        self.finish(ops, id, now, Outcome::Failed(failure), (Some(reason), (&[], None)));
    }

    /// Counts and keeps, then goes on.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: u32,
        now: u64,
        outcome: Outcome,
        (error, response): (Option<Reason>, (&[u8], Option<usize>)),
    ) {
        self.deadlines.remove(&mut self.exchanges, id);
        let exchange = &mut self.exchanges[id as usize];
        exchange.under_way = false;
        let conn = exchange.conn;
        let request: &'r Request = &self.spec.requests[exchange.request as usize];
        let times = Times { due_ns: exchange.due_ns, started_ns: exchange.started_ns, end_ns: now };
        let head = exchange.reader.head().filter(|_| exchange.answered);
        // Those of streams and WebSockets are told, not read here.
        let told = Some(exchange.status).filter(|status| *status > 0);
        let status = match self.multiplex {
            None => head.map(|h| h.status).or(told),
            Some(_) => told.filter(|_| exchange.answered),
        };
        self.service_ns = self.service_ns - self.service_ns / 64 + (now - times.started_ns) / 64;
        self.recorder.ended(request, times, outcome);
        if let Some(request_id) = exchange.id.take()
            && !self.journey.as_ref().is_some_and(|j| j.is_led_on(id))
        {
            self.recorder.id(request_id, outcome);
        }
        if self.keeper.wants(request, outcome, now - times.due_ns) {
            self.keep(
                id,
                Ending {
                    request,
                    address: self.address_of(conn),
                    times,
                    outcome,
                    error,
                    told: None,
                    written: None,
                    user: matches!(self.spec.model, Model::Closed { .. }).then(|| self.number_of(id)),
                    status,
                    response,
                    shown: None,
                },
            );
        }
        self.unstash(id);
        if self.journey.is_some() {
            self.end_step(id, outcome, error);
        }
        if self.talks.is_some() {
            self.ends_talk(ops, id);
        }
        self.conns[conn as usize].exchange = NONE;
        if self.turn.is_some() {
            self.exchanges[id as usize].conn = NONE;
        }
        self.next(ops, id, now);
    }

    #[cold]
    fn keep(&mut self, id: u32, ending: Ending<'_>) {
        let stash = self.exchanges[id as usize].stash.take();
        let exchange = &self.exchanges[id as usize];
        let kept = exchange.kept.as_deref();
        let given = &self.spec.secrets;
        let whole = (kept, redact::is_complete(ending.outcome));
        let (secrets, is_known) = match &self.journey {
            Some(journey) => journey.secrets((id, exchange.request), whole, given),
            None => (given.clone(), true),
        };
        // HTTP/2 has no bytes of a response: its fields were put into words.
        let worded = kept.filter(|k| self.multiplex.is_some() && !k.head().is_empty());
        // What is hidden in it is looked for as it came.
        let as_it_came = !secrets.is_empty() || !is_known;
        let body = |k: &Kept| {
            let body = if as_it_came { k.received() } else { k.body() };
            body[..body.len().min(HEAD_BYTES + BODY_BYTES)].to_vec()
        };
        let worded = worded.map(|k| ([k.head(), &body(k)].concat(), k.head().len()));
        let response = match (&worded, &stash) {
            (Some((bytes, head)), _) => (bytes.as_slice(), Some(*head)),
            (None, Some(stash)) => (stash.bytes.as_slice(), stash.head_end),
            (None, None) => ending.response,
        };
        let told = match (ending.error, &self.journey) {
            (Some(Reason::Script(trouble)), Some(journey)) => {
                let Times { started_ns, end_ns, .. } = ending.times;
                let status = ending.status.unwrap_or(0);
                let ended = Ended { status, time_ns: end_ns - started_ns, now_ns: end_ns };
                Some(journey.script(exchange.request).told(trouble, kept, ended, &secrets))
            }
            (Some(Reason::Tls), _) => self.secure.as_ref().map(|s| s.words.clone()),
            (Some(Reason::WebSocket), _) => self.talks.as_ref().map(|t| t.words.clone()),
            (Some(Reason::Proxy), _) => self.tunnels.as_ref().map(|t| t.words.clone()),
            _ => None,
        };
        let said = self.spec.http2.as_ref().and_then(|h| h.heads.get(exchange.request as usize));
        let written = kept.map(|k| k.request.as_slice()).filter(|r| !r.is_empty());
        let written = written.or(said.map(|head| head.text().as_bytes()));
        let number = exchange.request as usize;
        let is_somebody = |j: &Users<'_>| j.has_sessions() || matches!(self.spec.model, Model::Closed { .. });
        let shown = self.journey.as_ref().map(|j| j.shown(id, exchange.request, is_somebody(j), &secrets));
        let ending = Ending { response, told: told.as_deref(), written, shown: shown.as_ref(), ..ending };
        let hidden = as_it_came.then(|| Hidden::of(&ending, &secrets, is_known));
        let ending = hidden.as_ref().map_or(ending, |hidden| hidden.instead_of(ending));
        if let Some(example) = self.keeper.keep(&ending, number) {
            self.recorder.example(example);
        }
        self.exchanges[id as usize].stash = stash;
    }

    /// Keeps the beginning of a response that comes in pieces.
    pub(crate) fn stash(&mut self, id: u32, bytes: &[u8], head_end: Option<usize>) {
        let exchange = &mut self.exchanges[id as usize];
        if exchange.stash.is_none() {
            if self.stashed == STASHES {
                return;
            }
            self.stashed += 1;
            exchange.stash = Some(self.stashes.pop().unwrap_or_default());
        }
        let Some(stash) = &mut exchange.stash else { return };
        if stash.bytes.is_empty() {
            stash.head_end = head_end;
        }
        let room = (HEAD_BYTES + BODY_BYTES).saturating_sub(stash.bytes.len());
        if room == 0 {
            return;
        }
        stash.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if stash.head_end.is_none() {
            stash.head_end = end_of_head(&stash.bytes);
        }
    }

    pub(crate) fn unstash(&mut self, id: u32) {
        if let Some(mut stash) = self.exchanges[id as usize].stash.take() {
            stash.bytes.clear();
            stash.head_end = None;
            self.stashed -= 1;
            self.stashes.push(stash);
        }
    }

    /// The peer will send no more (`None`), or the connection broke.
    fn ended(&mut self, ops: &mut impl Ops<'r>, id: ConnId, error: Option<i32>) {
        let (phase, rested, exchange_id) = {
            let conn = &self.conns[id as usize];
            (conn.phase, conn.rested, conn.exchange)
        };
        let reason = error.map_or(Reason::Words("connection closed by the server"), Reason::Os);
        if self.tunnel_ended(ops, id, error) {
            return;
        }
        if phase == Phase::Connecting {
            if let Some(limit) = error.and_then(own_limit) {
                self.recorder.own_limit(limit);
            }
            if self.other_address(ops, id) {
                return;
            }
        }
        if self.talks.is_some() && self.talk_ended(ops, id, error) {
            return;
        }
        if self.multiplex.is_some() {
            let failure = match phase {
                Phase::Connecting => Failure::Connect,
                Phase::Securing => Failure::Tls,
                _ => Failure::Reset,
            };
            return self.streams_ended(ops, id, Some((failure, reason)));
        }
        let Some(exchange) = self.exchanges.get(exchange_id as usize) else {
            // Nothing is under way on it.
            match phase {
                Phase::Closed => {}
                Phase::Connecting | Phase::Securing => {
                    self.opened();
                    self.shut(ops, id);
                }
                Phase::Idle | Phase::Busy => self.shut(ops, id),
            }
            return;
        };
        let (answered, again) = (exchange.answered, rested && self.may_resend(exchange, error));
        let whole = error.is_none() && exchange.reader.ends_with_connection();
        match phase {
            Phase::Closed => {}
            // Its request could not be written.
            Phase::Idle => self.shut(ops, id),
            Phase::Connecting => self.fail(ops, exchange_id, Failure::Connect, reason),
            Phase::Securing => self.fail(ops, exchange_id, Failure::Tls, reason),
            Phase::Busy if whole && self.secure.as_ref().is_some_and(|s| s.is_cut(id)) => {
                let reason = Reason::Words("the connection ended without TLS's goodbye (close_notify)");
                self.fail(ops, exchange_id, Failure::Truncated, reason);
            }
            Phase::Busy if whole => {
                let now = self.now(ops);
                self.recorder.roll(now);
                self.complete(ops, id, now, false, (&[], None));
            }
            Phase::Busy if again && ops.unseen(id) => {
                // The server had closed the idle connection before it saw the request.
                let now = self.now(ops);
                self.shut(ops, id);
                self.recorder.resent();
                self.exchanges[exchange_id as usize].resent = true;
                let host = self.conns[id as usize].host;
                self.connect(ops, id, host, now);
            }
            Phase::Busy if answered => self.fail(ops, exchange_id, Failure::Truncated, reason),
            Phase::Busy => self.fail(ops, exchange_id, Failure::Reset, reason),
        }
    }

    /// The address refused: true if the connection is now being made to another one of its host.
    fn other_address(&mut self, ops: &mut impl Ops<'r>, id: ConnId) -> bool {
        let now = self.now(ops);
        let conn = &mut self.conns[id as usize];
        let host = conn.host;
        conn.refused += 1;
        self.addresses.refused(host, conn.address as usize, now);
        if conn.refused as usize >= self.addresses.count(host) {
            return false;
        }
        self.recorder.roll(now);
        self.shut(ops, id);
        self.connect(ops, id, host, now);
        true
    }

    /// Whether the request may go out again, if it met an idle connection that was being closed.
    ///
    /// A peer that closes in good order tells so before it resets what comes too late (EPIPE, if a send is told
    /// first). A bare reset says nothing of what the peer had read: it is the same whether its kernel threw the
    /// request away unread, in a race with the close, or its program read it and gave up before anything was
    /// acknowledged. Then only what is safe to do twice is sent again, as browsers do (RFC 9110 §9.2.2).
    fn may_resend(&self, exchange: &Exchange, error: Option<i32>) -> bool {
        let request = &self.spec.requests[exchange.request as usize];
        let closed_first = matches!(error, None | Some(libc::EPIPE));
        let nothing_sent = exchange.unsent == exchange.length;
        !exchange.answered && !exchange.resent && (closed_first || nothing_sent || request.safe)
    }

    pub(crate) fn shut(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let mut last = std::mem::take(&mut self.last);
        last.clear();
        if let Some(talks) = &mut self.talks {
            talks.hang_up(id, &mut last);
        }
        if let Some(secure) = &mut self.secure {
            // Who was asked for one answer only closes behind it.
            secure.leave(id, &mut last, self.spec.keep_alive);
        }
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.forget(id);
        }
        if last.is_empty() {
            ops.close(id);
        } else {
            self.recorder.sent(ops.close_with(id, &last));
        }
        self.last = last;
        self.conns[id as usize].phase = Phase::Closed;
        self.recorder.closed();
    }
}

/// The limit of this machine that an error of a connect tells of; `None` if it may be the system's.
fn own_limit(error: i32) -> Option<OwnLimit> {
    match error {
        libc::EMFILE | libc::ENFILE => Some(OwnLimit::OpenFiles),
        libc::EADDRNOTAVAIL => Some(OwnLimit::Ports),
        libc::ENOBUFS | libc::ENOMEM => Some(OwnLimit::Memory),
        _ => None,
    }
}

/// Ok or not, by its status.
#[inline]
pub(crate) fn judge(request: &Request, status: u16) -> Outcome {
    let ok = match request.ok_statuses.as_slice() {
        [] => status < 400,
        statuses => statuses.contains(&status),
    };
    match status {
        _ if ok => Outcome::Ok,
        500.. => Outcome::Failed(Failure::Http5xx),
        400.. => Outcome::Failed(Failure::Http4xx),
        _ => Outcome::Failed(Failure::Check),
    }
}

impl<'r, O: Ops<'r>> Sink<O> for Worker<'r> {
    #[inline]
    fn event(&mut self, ops: &mut O, event: Event<'_>) {
        match event {
            Event::Received { conn, bytes, last } => self.received(ops, conn, bytes, last),
            Event::Connected(conn) => self.connected(ops, conn),
            Event::Sent(conn, bytes) => self.sent(conn, bytes),
            Event::Closed(conn) => self.ended(ops, conn, None),
            Event::Failed(conn, error) => self.ended(ops, conn, Some(error)),
        }
    }
}
