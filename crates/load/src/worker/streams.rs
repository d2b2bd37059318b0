//! The life of a request that shares its connection with others: HTTP/2.
//!
//! It differs from that in [`crate::worker::exchange`] in what a connection is to a request: one of many on it, and a timeout or a
//! failure of one leaves the others alone. A request waits where its connection is still being made, has no stream
//! left, or is about to be closed by the server; that wait is part of its time.
//!
//! Places share connections in groups, and each group has one connection to each host. A step of a journey is written
//! when its stream begins, since only its connection knows how its head is packed.

use std::ops::Range;

use loadlab_record::example::{BODY_BYTES, HEAD_BYTES};
use loadlab_record::outcome::{Failure, Outcome};

use crate::io::{ConnId, Ops};
use crate::journey::script::{Ended, Trouble, write_field};
use crate::measure::examples::Reason;
use crate::protocol::http2::{Code, Event, Session, Settings};
use crate::spec::Http2;
use crate::worker::Worker;
use crate::worker::exchange::STASHES;
use crate::worker::slots::{Conn, Exchange, Phase, Stash};
use crate::worker::tls::put;

/// All connections of one worker that carry streams.
pub struct Multiplex<'r> {
    spec: &'r Http2,
    /// Hosts of the load.
    hosts: u32,
    links: Vec<Link>,
    /// What is to be written on the connection at hand.
    out: Vec<u8>,
    /// The connection whose bytes are being taken: what is sent on it meanwhile goes out behind them, together.
    at_hand: Option<ConnId>,
    /// What came on it.
    told: Vec<Told>,
}

/// One connection.
#[derive(Default)]
struct Link {
    session: Option<Box<Session>>,
    /// Bytes on their way out.
    unsent: usize,
    /// When it was begun to be made, on the backend's clock.
    since_ns: u64,
    /// Exchanges that wait for it.
    waiting: Vec<u32>,
}

/// An exchange whose fate is known.
enum Told {
    Complete(u32),
    Failed(u32, Failure, &'static str),
    /// The server never looked at it.
    Again(u32),
}

impl<'r> Multiplex<'r> {
    pub fn new(spec: &'r Http2, hosts: usize) -> Self {
        let hosts = hosts.max(1) as u32;
        Multiplex { spec, hosts, links: Vec::new(), out: Vec::new(), at_hand: None, told: Vec::new() }
    }

    /// The connection to a host that a place shares.
    pub fn connection_of(&self, place: u32, host: u16) -> ConnId {
        self.connections_of(place).start + u32::from(host)
    }

    /// All connections that a place shares, one to each host.
    pub fn connections_of(&self, place: u32) -> Range<ConnId> {
        let first = place / self.spec.streams.max(1) * self.hosts;
        first..first + self.hosts
    }

    /// Nothing is open on the connection or waits for it, and the server has not said goodbye.
    pub fn is_at_rest(&mut self, conn: ConnId) -> bool {
        let Link { session, waiting, .. } = self.link(conn);
        waiting.is_empty() && session.as_ref().is_some_and(|s| s.open() == 0 && !s.is_ending())
    }

    /// The connection is being made now, on the backend's clock.
    pub fn connects(&mut self, conn: ConnId, at_ns: u64) {
        self.link(conn).since_ns = at_ns;
    }

    /// Since when it was being made, on the backend's clock.
    pub fn connecting_since(&self, conn: ConnId) -> Option<u64> {
        self.links.get(conn as usize).map(|link| link.since_ns)
    }

    /// What was said on a connection that goes on elsewhere.
    pub fn hand_over(&mut self, conn: ConnId) -> Option<Box<Session>> {
        self.link(conn).session.take()
    }

    /// The connection comes from elsewhere, and this was said on it.
    pub fn take_up(&mut self, conn: ConnId, session: Box<Session>) {
        let link = self.link(conn);
        (link.session, link.unsent) = (Some(session), 0);
    }

    fn link(&mut self, conn: ConnId) -> &mut Link {
        let index = conn as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, Link::default);
        }
        &mut self.links[index]
    }
}

impl<'r> Worker<'r> {
    /// The first action for a request: it goes out, or waits until it can.
    pub(crate) fn begin_stream(&mut self, ops: &mut impl Ops<'r>, id: u32, host: u16, now: u64) {
        let conn = self.exchanges[id as usize].conn;
        let Some(multiplex) = &mut self.multiplex else { return };
        multiplex.link(conn).waiting.push(id);
        match self.conns[conn as usize].phase {
            Phase::Closed => {
                self.conns[conn as usize].refused = 0;
                self.connect(ops, conn, host, now);
            }
            Phase::Connecting | Phase::Securing => {}
            Phase::Idle | Phase::Busy => self.send_waiting(ops, conn),
        }
    }

    /// The connection stands: it says hello, and what waits goes out.
    pub(crate) fn streams_open(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        self.conns[conn as usize].phase = Phase::Idle;
        let Some(multiplex) = &mut self.multiplex else { return };
        let tell_fields = self.journey.is_some();
        let settings = Settings { tell_fields, tell_failures: true, ..Settings::default() };
        let mut session = Box::new(Session::new(settings));
        session.start(&mut multiplex.out);
        let link = multiplex.link(conn);
        (link.session, link.unsent) = (Some(session), 0);
        self.send_waiting(ops, conn);
    }

    /// Sends as much of what waits as there are streams for.
    fn send_waiting(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let now = if self.journey.is_some() { self.now(ops) } else { 0 };
        let Some(multiplex) = &mut self.multiplex else { return };
        if multiplex.at_hand == Some(conn) {
            return;
        }
        let spec = multiplex.spec;
        let Multiplex { links, out, .. } = multiplex;
        let Link { session: Some(session), waiting, .. } = &mut links[conn as usize] else { return };
        let ready = (session.room() as usize).min(waiting.len());
        for id in waiting.drain(..ready) {
            let exchange = &mut self.exchanges[id as usize];
            let request = &self.spec.requests[exchange.request as usize];
            if let Some(journey) = &mut self.journey {
                journey.make_room(exchange.request, &mut exchange.kept);
                if let Some(written) = spec.written(exchange.request) {
                    let spoken = match journey.speak(id, exchange.request, now, written) {
                        Ok(spoken) => spoken,
                        Err(fault) => {
                            self.unwritten.push(exchange.unwritten(id, Trouble::Unwritten(fault)));
                            continue;
                        }
                    };
                    let stream = (id, request.answer_has_no_body);
                    let sent = session.send_parts(stream, spoken.parts(), spoken.body, out);
                    exchange.id = spoken.id;
                    if let Some(kept) = &mut exchange.kept {
                        let length = spoken.text.len().min(HEAD_BYTES);
                        kept.request.extend_from_slice(&spoken.text[..length]);
                        if sent == Ok(false) {
                            kept.unsent.extend_from_slice(spoken.body);
                        }
                    }
                    continue;
                }
            }
            let body = &request.bytes[request.head_len..];
            // There was room for it, as there was above.
            let _ = session.send(id, &spec.heads[exchange.request as usize], body, out);
        }
        self.write_out(ops, conn);
    }

    /// Hands over what is to be written, with the bodies that may go on.
    fn write_out(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let Some(multiplex) = &mut self.multiplex else { return };
        let Multiplex { links, out, .. } = multiplex;
        let Link { session: Some(session), unsent, .. } = &mut links[conn as usize] else { return };
        loop {
            if !out.is_empty() {
                let (length, sent) = put(&mut self.secure, ops, conn, out);
                *unsent += length - sent;
                self.recorder.sent(sent);
                out.clear();
            }
            if *unsent == 0 {
                session.all_gone();
            }
            if !session.wants_flush() {
                return;
            }
            let (exchanges, requests) = (&self.exchanges, &self.spec.requests);
            let body_of = |id: u32| {
                let exchange = &exchanges[id as usize];
                match exchange.kept.as_deref().filter(|kept| !kept.unsent.is_empty()) {
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

    /// Bytes that had to wait have gone out.
    #[inline]
    pub(crate) fn streams_sent(&mut self, conn: ConnId, bytes: usize) {
        let Some(Link { session, unsent, .. }) =
            self.multiplex.as_mut().and_then(|m| m.links.get_mut(conn as usize))
        else {
            return;
        };
        *unsent = unsent.saturating_sub(bytes);
        if let Some(session) = session.as_mut().filter(|_| *unsent == 0) {
            session.all_gone();
        }
    }

    /// Bytes of a connection that carries streams.
    pub(crate) fn streams_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, bytes: &[u8], now: u64) {
        let Some(multiplex) = &mut self.multiplex else { return };
        let Some(mut session) = multiplex.link(conn).session.take() else { return };
        multiplex.at_hand = Some(conn);
        let mut told = std::mem::take(&mut multiplex.told);
        let mut taking = Taking {
            exchanges: &mut self.exchanges,
            spare: &mut self.stashes,
            stashed: &mut self.stashed,
            told: &mut told,
        };
        let result = session.receive(bytes, &mut multiplex.out, &mut |event| taking.take(event));
        multiplex.link(conn).session = Some(session);
        if !multiplex.out.is_empty() {
            // What follows may send on other connections.
            self.write_out(ops, conn);
        }
        for one in told.drain(..) {
            self.settle(ops, one, now);
        }
        let Some(multiplex) = &mut self.multiplex else { return };
        (multiplex.told, multiplex.at_hand) = (told, None);
        if multiplex.link(conn).session.is_none() {
            // Its user has left, and taken it along.
            return;
        }
        match result {
            Ok(()) => self.send_waiting(ops, conn),
            Err(fault) => {
                self.write_out(ops, conn);
                self.streams_ended(ops, conn, Some((Failure::Protocol, Reason::Words(fault.words))));
            }
        }
        self.end_quietly(ops, conn);
    }

    /// A connection that the server has said goodbye on is closed when nothing is open on it; what waits for it goes
    /// to the next.
    fn end_quietly(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let Some(multiplex) = &mut self.multiplex else { return };
        let link = multiplex.link(conn);
        if !link.session.as_ref().is_some_and(|s| s.is_ending() && s.open() == 0) {
            return;
        }
        let waits = !link.waiting.is_empty();
        self.shut(ops, conn);
        if waits {
            let (now, host) = (self.now(ops), self.conns[conn as usize].host);
            self.recorder.resent();
            self.connect(ops, conn, host, now);
        }
    }

    fn settle(&mut self, ops: &mut impl Ops<'r>, told: Told, now: u64) {
        match told {
            Told::Complete(id) => self.complete_stream(ops, id, now),
            Told::Failed(id, failure, words) => {
                let outcome = Outcome::Failed(failure);
                self.finish(ops, id, now, outcome, (Some(Reason::Words(words)), (&[], None)));
            }
            Told::Again(id) if self.exchanges[id as usize].resent => {
                let words = "the server refused the stream, and again";
                let reason = (Some(Reason::Words(words)), (&[][..], None));
                self.finish(ops, id, now, Outcome::Failed(Failure::Reset), reason);
            }
            Told::Again(id) => {
                let exchange = &mut self.exchanges[id as usize];
                (exchange.resent, exchange.answered) = (true, false);
                if let Some(stash) = &mut exchange.stash {
                    stash.bytes.clear();
                }
                let conn = exchange.conn;
                if let Some(multiplex) = &mut self.multiplex {
                    multiplex.link(conn).waiting.push(id);
                }
            }
        }
    }

    fn complete_stream(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64) {
        let exchange = &mut self.exchanges[id as usize];
        let status = exchange.status;
        self.recorder.status(status);
        let (outcome, trouble) = match &mut self.journey {
            None => {
                (crate::worker::exchange::judge(&self.spec.requests[exchange.request as usize], status), None)
            }
            Some(journey) => {
                let ended = Ended { status, time_ns: now.saturating_sub(exchange.started_ns), now_ns: now };
                let judged = journey.judge(id, exchange.request, exchange.kept.as_deref_mut(), ended);
                for (place, value) in journey.numbers.drain(..) {
                    self.recorder.number(place, value, exchange.due_ns);
                }
                judged
            }
        };
        self.finish(ops, id, now, outcome, (trouble.map(Reason::Script), (&[], None)));
    }

    /// A request is given up; its connection goes on without it.
    pub(crate) fn cancel_stream(&mut self, ops: &mut impl Ops<'r>, id: u32) {
        let conn = self.exchanges[id as usize].conn;
        let Some(multiplex) = &mut self.multiplex else { return };
        multiplex.link(conn).waiting.retain(|waiting| *waiting != id);
        let Multiplex { links, out, .. } = multiplex;
        if let Some(session) = &mut links[conn as usize].session {
            session.cancel(id, out);
            self.write_out(ops, conn);
        }
    }

    /// A request has waited for too long, and perhaps for a connection that will never stand: one that was begun a
    /// timeout ago is given up, and others that wait for it get another.
    #[cold]
    pub(crate) fn replace_stuck(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64) {
        let conn = self.exchanges[id as usize].conn;
        let Conn { phase, host, .. } = self.conns[conn as usize];
        let age_ns = |since_ns| (self.place.start_ns + now).saturating_sub(since_ns);
        let Some(multiplex) = &mut self.multiplex else { return };
        let link = multiplex.link(conn);
        let is_making = matches!(phase, Phase::Connecting | Phase::Securing);
        if !is_making || age_ns(link.since_ns) < self.spec.timeout_ns {
            return;
        }
        link.waiting.retain(|waiting| *waiting != id);
        // Those that wait as long are given up next, and what they do then makes a connection of its own.
        let is_wanted = link.waiting.iter().any(|w| self.exchanges[*w as usize].link.at_ns > now);
        self.shut(ops, conn);
        if is_wanted {
            self.conns[conn as usize].refused = 0;
            self.connect(ops, conn, host, now);
        }
    }

    /// A user leaves, and takes along the connections that are its alone; those that users share stay.
    pub(crate) fn leave_streams(&mut self, ops: &mut impl Ops<'r>, place: u32) {
        let Some(multiplex) = &mut self.multiplex else { return };
        if multiplex.spec.streams > 1 {
            return;
        }
        for conn in multiplex.connections_of(place) {
            if let Some(multiplex) = &mut self.multiplex {
                multiplex.link(conn).session = None;
            }
            if self.conns[conn as usize].phase != Phase::Closed {
                self.shut(ops, conn);
            }
        }
    }

    /// What is said of a request that takes too long.
    #[cold]
    pub(crate) fn overdue_words(&self, id: u32) -> &'static str {
        let link =
            self.multiplex.as_ref().and_then(|m| m.links.get(self.exchanges[id as usize].conn as usize));
        match link.and_then(|l| l.session.as_ref()) {
            Some(session) if session.is_held_up(id) => {
                "no complete response within the timeout: the server gave no room to send the whole request"
            }
            _ => "no complete response within the timeout",
        }
    }

    /// A connection is gone, and with it all that was open on it. What waited and was not sent goes to the next one,
    /// unless there could be none.
    pub(crate) fn streams_ended(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        why: Option<(Failure, Reason)>,
    ) {
        let now = self.now(ops);
        let connecting = matches!(self.conns[conn as usize].phase, Phase::Connecting | Phase::Securing);
        let host = self.conns[conn as usize].host;
        let Some(multiplex) = &mut self.multiplex else { return };
        let link = multiplex.link(conn);
        let session = link.session.take();
        let open: Vec<u32> = session.iter().flat_map(|s| s.open_tokens()).collect();
        let waiting = std::mem::take(&mut link.waiting);
        self.recorder.roll(now);
        if self.conns[conn as usize].phase != Phase::Closed {
            self.shut(ops, conn);
        }
        let closed = Reason::Words("connection closed by the server");
        let (failure, reason) = why.unwrap_or((Failure::Reset, closed));
        let mut lost = open;
        if connecting {
            lost.extend(&waiting);
        }
        for id in lost {
            let answered = self.exchanges[id as usize].answered;
            let failure = if failure == Failure::Reset && answered { Failure::Truncated } else { failure };
            self.finish(ops, id, now, Outcome::Failed(failure), (Some(reason), (&[], None)));
        }
        if !connecting && !waiting.is_empty() {
            if let Some(multiplex) = &mut self.multiplex {
                multiplex.link(conn).waiting.extend(waiting);
            }
            if self.conns[conn as usize].phase == Phase::Closed {
                self.connect(ops, conn, host, now);
            }
        }
    }
}

/// What a session's events are put into.
struct Taking<'a> {
    exchanges: &'a mut Vec<Exchange>,
    // Boxes, since they wander into exchanges and back.
    #[allow(clippy::vec_box)]
    spare: &'a mut Vec<Box<Stash>>,
    stashed: &'a mut usize,
    told: &'a mut Vec<Told>,
}

impl Taking<'_> {
    #[inline]
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Head { token, status, end } => self.head(token, status, end),
            Event::Data { token, bytes, end } => self.data(token, bytes, end),
            Event::Field { token, name, value } => self.field(token, name, value),
            Event::GoAway { .. } | Event::SettingsChanged { .. } => {}
            Event::Reset { token, code: Code::REFUSED_STREAM } | Event::Unprocessed { token } => {
                self.told.push(Told::Again(token));
            }
            Event::Reset { token, .. } => {
                self.told.push(Told::Failed(token, Failure::Reset, "the server reset the stream"));
            }
            Event::Malformed { token, words } => {
                self.told.push(Told::Failed(token, Failure::Protocol, words));
            }
        }
    }

    #[inline]
    fn head(&mut self, token: u32, status: u16, end: bool) {
        let exchange = &mut self.exchanges[token as usize];
        (exchange.answered, exchange.status) = (true, status);
        if let Some(kept) = &mut exchange.kept {
            kept.end_head();
        }
        if let Some(stash) = &mut exchange.stash {
            stash.bytes.extend_from_slice(b"\r\n");
            stash.head_end = Some(stash.bytes.len());
        }
        if end {
            self.told.push(Told::Complete(token));
        }
    }

    #[inline]
    fn data(&mut self, token: u32, bytes: &[u8], end: bool) {
        let exchange = &mut self.exchanges[token as usize];
        if let Some(kept) = &mut exchange.kept {
            crate::protocol::http1::Keep::body(&mut **kept, bytes);
        }
        if let Some(stash) = &mut exchange.stash {
            let room = (HEAD_BYTES + BODY_BYTES).saturating_sub(stash.bytes.len());
            stash.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if end {
            self.told.push(Told::Complete(token));
        }
    }

    /// A field of a response's head, where somebody will look at it: the journey, or who reads an example. Trailers
    /// come behind the head, and nobody does.
    fn field(&mut self, token: u32, name: &[u8], value: &[u8]) {
        let exchange = &mut self.exchanges[token as usize];
        if exchange.answered {
            return;
        }
        if let Some(kept) = &mut exchange.kept {
            return kept.field(name, value);
        }
        let fails = name == b":status" && value.first().is_some_and(|b| *b >= b'4');
        if fails && exchange.stash.is_none() && *self.stashed < STASHES {
            *self.stashed += 1;
            exchange.stash = Some(self.spare.pop().unwrap_or_default());
        }
        if let Some(stash) = exchange.stash.as_mut().filter(|stash| stash.bytes.len() < HEAD_BYTES) {
            write_field(name, value, &mut stash.bytes);
        }
    }
}
