//! The life of a request that is part of a conversation: WebSocket.
//!
//! A conversation is several requests of one user, one after another on one connection: the opening, each message (what
//! is said, and the answer that is waited for), the goodbye. Each is due, started and ended like any other request.
//! Between them the connection stands and nothing is under way: pings are answered, what comes is passed over or kept for a later
//! part, and if the connection ends meanwhile, the part that follows fails of it. A part that fails with its connection
//! takes the rest of the conversation with it.

mod links;

use loadlab_record::example::HEAD_BYTES;
use loadlab_record::outcome::{Failure, Outcome};

use crate::io::{ConnId, Ops};
use crate::journey::script::{Ended, Kept, Part, Trouble};
use crate::measure::examples::Reason;
use crate::protocol::websocket::opening::OpeningError;
use crate::protocol::websocket::{Event, Fault, Kind};
use crate::worker::Worker;
use crate::worker::slots::Phase;
use crate::worker::tls::put;

pub use links::Talks;
use links::{End, Gone, Link, Settled, State, closed_words};

/// Most bytes that wait to go out when pings are answered: a server that asks and never reads ends here.
const MAX_UNSENT: usize = 256 * 1024;
/// Code of a goodbye when all is well (RFC 6455 §7.4.1), and of a message that is too long.
pub(crate) const NORMAL: u16 = 1000;
const TOO_BIG: u16 = 1009;
/// Room for messages that came together, larger than this, is given back.
const HEARD_KEPT: usize = 64 * 1024;

/// What is under way on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Nothing that a message could end.
    Nothing,
    /// Something is said and no answer is waited for.
    Saying,
    Waiting,
    Leaving,
}

impl<'r> Worker<'r> {
    /// How long a request may take.
    pub(crate) fn within_ns(&self, request: u32) -> u64 {
        let talk = self.journey.as_ref().and_then(|j| j.talk(request));
        talk.and_then(|t| t.within_ns()).unwrap_or(self.spec.timeout_ns)
    }

    /// The part that an exchange is at.
    fn part(&self, id: u32) -> Option<&Part> {
        let exchange = self.exchanges.get(id as usize).filter(|e| e.under_way)?;
        self.journey.as_ref()?.talk(exchange.request).map(|talk| &talk.part)
    }

    fn doing(&self, conn: ConnId) -> Doing {
        if self.talks.as_ref().is_some_and(|talks| talks.settles(conn)) {
            return Doing::Nothing;
        }
        match self.part(self.conns[conn as usize].exchange) {
            None | Some(Part::Open { .. }) => Doing::Nothing,
            Some(Part::Say { wait: None, .. }) => Doing::Saying,
            Some(Part::Say { wait: Some(_), .. }) => Doing::Waiting,
            Some(Part::Goodbye) => Doing::Leaving,
        }
    }

    /// An exchange's WebSocket stands.
    pub(crate) fn talk_stands(&mut self, id: u32) -> bool {
        let conn = self.exchanges[id as usize].conn;
        self.talks.as_mut().is_some_and(|talks| talks.open(conn).is_some())
    }

    /// A request begins: true if it goes on with a conversation, and needs no connection. Whatever else begins ends
    /// the conversation that its user had.
    pub(crate) fn goes_on(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64) -> bool {
        let conn = self.exchanges[id as usize].conn;
        let is_goodbye = match self.part(id) {
            Some(Part::Goodbye) => true,
            Some(Part::Say { .. }) => false,
            None | Some(Part::Open { .. }) => {
                self.end_talk(ops, conn);
                return false;
            }
        };
        let state = &mut self.conns[conn as usize];
        (state.exchange, state.rested) = (id, false);
        let link = self.talks.as_mut().and_then(|talks| talks.link(conn));
        match link.map(|link| link.state) {
            Some(State::Open) => {
                self.conns[conn as usize].phase = Phase::Busy;
                if is_goodbye { self.says_goodbye(ops, conn) } else { self.says(ops, id, now) }
            }
            Some(State::Gone(Gone::Closed(None | Some(NORMAL)))) if is_goodbye => {
                self.ends_at_once(id, End::Done)
            }
            _ => self.ends_at_once(id, End::Lost),
        }
        true
    }

    /// The opening goes out on a connection.
    pub(crate) fn opens(&mut self, conn: ConnId) {
        let keeps = match self.part(self.conns[conn as usize].exchange) {
            Some(Part::Open { keeps, .. }) => *keeps,
            _ => return,
        };
        let number = self.number_of(conn);
        let Some(talks) = &mut self.talks else { return };
        let index = conn as usize;
        if talks.links.len() <= index {
            talks.links.resize_with(index + 1, || None);
        }
        talks.opened += 1;
        let seed = talks.seed ^ number.rotate_left(32);
        talks.links[index] = Some(Box::new(Link::new(talks.opened, keeps, seed)));
    }

    /// A message is sent, one is waited for, or both.
    fn says(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64) {
        let exchange = &mut self.exchanges[id as usize];
        let (conn, request) = (exchange.conn, exchange.request);
        let (Some(talks), Some(journey)) = (&mut self.talks, &mut self.journey) else { return };
        let Some(Part::Say { send, wait, .. }) = journey.talk(request).map(|t| &t.part) else { return };
        let (kind, waits) = (send.as_ref().map(|(kind, _)| *kind), wait.is_some());
        let mut kept = journey.room(request, exchange.kept.take());
        let Talks { links, out, rooms, .. } = talks;
        let Some(link) = &mut links[conn as usize] else { return };
        link.passed = 0;
        (exchange.length, exchange.unsent) = (0, 0);
        let mut result = Ok(());
        let said = journey.say(id, request, now, &mut kept);
        match (said, kind) {
            (Err(fault), _) => result = Err(Trouble::Unwritten(fault)),
            (Ok(text), Some(Kind::Text)) if std::str::from_utf8(text).is_err() => {
                result = Err(Trouble::NotText);
            }
            (Ok(text), Some(kind)) => {
                kept.request.extend_from_slice(&text[..text.len().min(HEAD_BYTES)]);
                out.clear();
                link.socket.send(kind, text, out);
                let (length, sent) = put(&mut self.secure, ops, conn, out);
                link.unsent += length - sent;
                (exchange.length, exchange.unsent) = (length, length - sent);
                self.recorder.sent(sent);
            }
            (Ok(_), None) => {}
        }
        if waits && kind.is_some() {
            link.asks(rooms);
        }
        let all_gone = link.unsent == 0;
        exchange.id = journey.last_id().filter(|_| kind.is_some() && result.is_ok());
        exchange.kept = Some(kept);
        match result {
            Err(trouble) => self.unwritten.push(exchange.unwritten(id, trouble)),
            Ok(()) if !waits && all_gone => self.ends_at_once(id, End::Done),
            Ok(()) if waits && kind.is_none() => self.looks_back(id, now),
            Ok(()) => {}
        }
    }

    /// What is waited for may have come before.
    fn looks_back(&mut self, id: u32, now: u64) {
        let conn = self.exchanges[id as usize].conn;
        while let Some(mut message) = self.talks.as_mut().and_then(|t| t.link(conn)).and_then(Link::take) {
            let verdict = self.judge_message(id, &message, now);
            if verdict.is_some() {
                self.unstash(id);
                self.stash(id, &message, Some(0));
            }
            message.clear();
            self.talks.iter_mut().for_each(|talks| talks.rooms.take_back(&mut message));
            if let Some((outcome, trouble)) = verdict {
                return self.ends_at_once(id, End::Heard(outcome, trouble));
            }
        }
    }

    fn says_goodbye(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let Some(talks) = &mut self.talks else { return };
        let Talks { links, out, .. } = talks;
        let Some(link) = &mut links[conn as usize] else { return };
        out.clear();
        link.socket.close(NORMAL, out);
        let (length, sent) = put(&mut self.secure, ops, conn, out);
        link.unsent += length - sent;
        self.recorder.sent(sent);
    }

    fn ends_at_once(&mut self, id: u32, end: End) {
        let exchange = &self.exchanges[id as usize];
        let settled = Settled { id, request: exchange.request, started_ns: exchange.started_ns, end };
        let conn = exchange.conn;
        if let Some(talks) = &mut self.talks {
            talks.settled.push(settled);
            if let Some(link) = talks.link(conn) {
                link.settling = true;
            }
        }
    }

    /// Finishes what ended as soon as it began; in a turn of its own, or users would go on without end within one.
    pub(crate) fn settle_talks(&mut self, ops: &mut impl Ops<'r>) {
        let Some(talks) = self.talks.as_mut().filter(|t| t.has_settled()) else { return };
        let spare = std::mem::take(&mut talks.spare);
        let mut all = std::mem::replace(&mut talks.settled, spare);
        for Settled { id, request, started_ns, end } in all.drain(..) {
            let exchange = &self.exchanges[id as usize];
            if !exchange.under_way || (exchange.request, exchange.started_ns) != (request, started_ns) {
                continue;
            }
            let (conn, now) = (exchange.conn, self.now(ops));
            if let Some(link) = self.talks.as_mut().and_then(|talks| talks.link(conn)) {
                link.settling = false;
            }
            self.recorder.roll(now);
            match end {
                End::Done => self.end_part(ops, id, now, (Outcome::Ok, None), &[]),
                End::Heard(outcome, trouble) => self.end_part(ops, id, now, (outcome, trouble), &[]),
                End::Lost => self.lost(ops, id),
            }
        }
        if let Some(talks) = &mut self.talks {
            talks.spare = all;
        }
    }

    /// A part has ended, and its conversation goes on.
    fn end_part(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: u32,
        now: u64,
        (outcome, trouble): (Outcome, Option<Trouble>),
        message: &[u8],
    ) {
        let conn = &mut self.conns[self.exchanges[id as usize].conn as usize];
        if conn.phase == Phase::Busy {
            conn.phase = Phase::Idle;
        }
        self.finish(ops, id, now, outcome, (trouble.map(Reason::Script), (message, Some(0))));
    }

    /// A part begins, and the WebSocket has ended before.
    #[cold]
    fn lost(&mut self, ops: &mut impl Ops<'r>, id: u32) {
        let conn = self.exchanges[id as usize].conn;
        let gone = self.talks.as_mut().and_then(|t| t.forget(conn)).map(|link| link.state);
        let (failure, words) = match gone {
            Some(State::Gone(Gone::Closed(code))) => (Failure::Reset, closed_words(code)),
            Some(State::Gone(Gone::Ended(Some(error)))) => (Failure::Reset, Reason::Os(error).to_string()),
            Some(State::Gone(Gone::Broken(failure, words))) => (failure, words.to_owned()),
            _ => (Failure::Reset, "the server ended the connection without a goodbye".to_owned()),
        };
        self.fail_for(ops, id, failure, &format!("{words}, before this was begun"));
    }

    #[cold]
    fn fail_for(&mut self, ops: &mut impl Ops<'r>, id: u32, failure: Failure, words: &str) {
        if let Some(talks) = &mut self.talks {
            talks.words.clear();
            talks.words.push_str(words);
        }
        self.fail(ops, id, failure, Reason::WebSocket);
    }

    /// Bytes of a connection: true if they belong to a conversation.
    pub(crate) fn talk_received(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        bytes: &[u8],
        now: u64,
    ) -> bool {
        let waits = self.doing(conn) == Doing::Waiting;
        let Some(talks) = &mut self.talks else { return false };
        let Some(mut link) = talks.forget(conn) else { return false };
        if let State::Opening = link.state {
            talks.put_back(conn, link);
            self.opening_received(ops, conn, bytes, now);
            return true;
        }
        let Talks { heard, ends, out, rooms, .. } = talks;
        rooms.lend(&mut link.partial);
        heard.clear();
        ends.clear();
        out.clear();
        let wants = waits || link.keeps;
        let Link { socket, partial, stale, passed, .. } = &mut *link;
        let mut closed = None;
        let result = socket.receive(bytes, out, &mut |event| match event {
            Event::Message { end: false, .. } if !wants || *stale => {}
            Event::Message { bytes, end: false, .. } => partial.extend_from_slice(bytes),
            Event::Message { .. } if !wants || *stale => {
                *stale = false;
                partial.clear();
                *passed += 1;
            }
            Event::Message { bytes, .. } => {
                heard.extend_from_slice(partial);
                heard.extend_from_slice(bytes);
                ends.push(heard.len());
                partial.clear();
            }
            Event::Close { code, .. } => closed = Some(code),
            Event::Ping(_) | Event::Pong(_) => {}
        });
        rooms.take_back(&mut link.partial);
        let mut flooded = false;
        if !out.is_empty() {
            let (length, sent) = put(&mut self.secure, ops, conn, out);
            link.answers = if link.unsent == 0 { length - sent } else { link.answers + length };
            link.unsent += length - sent;
            flooded = link.answers > MAX_UNSENT;
            self.recorder.sent(sent);
        }
        let (number, asked) = (link.number, link.asked);
        talks.put_back(conn, link);
        self.hear(ops, conn, (number, asked), now);
        if self.talks.as_mut().and_then(|t| t.open(conn)).is_some_and(|link| link.number == number) {
            match (result, closed) {
                (Err(Fault { code: TOO_BIG, words }), _) => self.broken(ops, conn, Failure::TooLarge, words),
                (Err(fault), _) => self.broken(ops, conn, Failure::Protocol, fault.words),
                (Ok(()), _) if flooded => {
                    self.broken(ops, conn, Failure::Protocol, "a flood of pings, whose answers nobody reads");
                }
                (Ok(()), Some(code)) => self.heard_goodbye(ops, conn, code, now),
                (Ok(()), None) => {}
            }
        }
        true
    }

    /// Takes the messages that came together. What is said meanwhile is not answered by them.
    fn hear(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, (number, asked): (u64, u64), now: u64) {
        let Some(talks) = self.talks.as_mut().filter(|t| !t.ends.is_empty()) else { return };
        let (mut heard, ends) = (std::mem::take(&mut talks.heard), std::mem::take(&mut talks.ends));
        let mut from = 0;
        for to in &ends {
            let message = &heard[from..*to];
            from = *to;
            let link = self.talks.as_mut().and_then(|talks| talks.open(conn));
            if link.is_none_or(|link| (link.number, link.asked) != (number, asked)) {
                break;
            }
            self.heard_one(ops, conn, message, now);
        }
        if heard.capacity() > HEARD_KEPT {
            heard = Vec::new();
        }
        if let Some(talks) = &mut self.talks {
            (talks.heard, talks.ends) = (heard, ends);
        }
    }

    fn heard_one(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, message: &[u8], now: u64) {
        let id = self.conns[conn as usize].exchange;
        if self.doing(conn) != Doing::Waiting {
            if let Some(talks) = &mut self.talks {
                talks.store(conn, message);
            }
        } else if let Some(verdict) = self.judge_message(id, message, now) {
            self.unstash(id);
            self.end_part(ops, id, now, verdict, message);
        }
    }

    /// Whether a message is what is waited for, or decides otherwise; `None` if it is passed over.
    fn judge_message(&mut self, id: u32, message: &[u8], now: u64) -> Option<(Outcome, Option<Trouble>)> {
        let exchange = &mut self.exchanges[id as usize];
        let journey = self.journey.as_mut()?;
        let Some(Part::Say { wait: Some(wait), .. }) = journey.talk(exchange.request).map(|t| &t.part) else {
            return None;
        };
        let passes_over = wait.passes_over;
        let kept: &mut Kept = exchange.kept.as_deref_mut()?;
        kept.hear(message);
        let ended = Ended { status: 0, time_ns: now.saturating_sub(exchange.started_ns), now_ns: now };
        let (outcome, trouble) = match kept.is_echo(message) {
            true => journey.judge(id, exchange.request, Some(kept), ended),
            false => (Outcome::Failed(Failure::Check), Some(Trouble::NoEcho)),
        };
        if !passes_over || !matches!(trouble, Some(Trouble::Check(_) | Trouble::NoEcho)) {
            return Some((outcome, trouble));
        }
        let conn = exchange.conn;
        if let Some(link) = self.talks.as_mut().and_then(|talks| talks.link(conn)) {
            link.passed += 1;
        }
        // The last one is shown if the time runs out.
        self.unstash(id);
        self.stash(id, message, Some(0));
        None
    }

    /// Bytes of the answer to an opening.
    fn opening_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, bytes: &[u8], now: u64) {
        let id = self.conns[conn as usize].exchange;
        let Some(exchange) = self.exchanges.get_mut(id as usize) else { return self.shut(ops, conn) };
        exchange.answered = true;
        let (Some(talks), Some(journey)) = (&mut self.talks, &self.journey) else { return };
        let talk = journey.talk(exchange.request).map(|t| &t.part);
        let (Some(link), Some(Part::Open { opening, .. })) = (talks.link(conn), talk) else { return };
        let received = opening.receive(&mut link.partial, bytes);
        let head = match &received {
            Ok(Some(end)) => &bytes[..*end],
            _ => bytes,
        };
        if let Some(kept) = &mut exchange.kept {
            kept.add_to_head(head);
        }
        let in_pieces = exchange.stash.is_some() || matches!(received, Ok(None));
        if in_pieces {
            let end = memchr::memmem::find(head, b"\r\n\r\n").map(|at| at + 4);
            self.stash(id, head, end);
        }
        match received {
            Ok(None) => {}
            Ok(Some(end)) => self.opened_talk(ops, conn, (bytes, end), now),
            Err(OpeningError::Status(status)) => self.refused(ops, conn, (bytes, status), now),
            Err(error) => {
                let too_large = error == OpeningError::HeadTooLarge;
                let failure = if too_large { Failure::TooLarge } else { Failure::Protocol };
                if !in_pieces {
                    self.stash(id, bytes, memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4));
                }
                self.fail_for(ops, id, failure, &error.to_string());
            }
        }
    }

    /// The WebSocket stands. What came behind the answer came before anything that is said now.
    fn opened_talk(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, (bytes, end): (&[u8], usize), now: u64) {
        if let Some(link) = self.talks.as_mut().and_then(|talks| talks.link(conn)) {
            (link.state, link.partial) = (State::Open, Vec::new());
        }
        if end < bytes.len() {
            self.talk_received(ops, conn, &bytes[end..], now);
        }
        let id = self.conns[conn as usize].exchange;
        let verdict = self.judge_opening(id, 101, now);
        let state = &mut self.conns[conn as usize];
        if state.phase == Phase::Busy {
            state.phase = Phase::Idle;
        }
        let (outcome, trouble) = verdict;
        self.finish(ops, id, now, outcome, (trouble.map(Reason::Script), (&bytes[..end], Some(end))));
    }

    /// The server answered, and opened nothing.
    fn refused(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, (bytes, status): (&[u8], u16), now: u64) {
        let id = self.conns[conn as usize].exchange;
        let (outcome, trouble) = self.judge_opening(id, status, now);
        self.shut(ops, conn);
        let head_end = memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4);
        self.finish(ops, id, now, outcome, (trouble.map(Reason::Script), (bytes, head_end)));
    }

    fn judge_opening(&mut self, id: u32, status: u16, now: u64) -> (Outcome, Option<Trouble>) {
        self.recorder.status(status);
        let exchange = &mut self.exchanges[id as usize];
        exchange.status = status;
        let Some(journey) = &mut self.journey else { return (Outcome::Ok, None) };
        let ended = Ended { status, time_ns: now.saturating_sub(exchange.started_ns), now_ns: now };
        journey.judge(id, exchange.request, exchange.kept.as_deref_mut(), ended)
    }

    /// What came is no WebSocket, or no bearable one; the server has been told.
    fn broken(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, failure: Failure, words: &'static str) {
        self.ends_by_server(ops, conn, Gone::Broken(failure, words), (failure, Reason::Words(words)));
    }

    /// The server said goodbye, or answered ours.
    fn heard_goodbye(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, code: Option<u16>, now: u64) {
        if self.doing(conn) != Doing::Leaving {
            if let Some(talks) = &mut self.talks {
                talks.words = closed_words(code);
            }
            return self.ends_by_server(ops, conn, Gone::Closed(code), (Failure::Reset, Reason::WebSocket));
        }
        let id = self.conns[conn as usize].exchange;
        self.shut(ops, conn);
        self.finish(ops, id, now, Outcome::Ok, (None, (&[], None)));
    }

    /// The connection ended: true if it was that of a conversation.
    pub(crate) fn talk_ended(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, error: Option<i32>) -> bool {
        let Some(link) = self.talks.as_mut().and_then(|talks| talks.open(conn)) else { return false };
        let failure = if link.socket.is_inside() { Failure::Truncated } else { Failure::Reset };
        let words = "the server ended the connection without a goodbye";
        let reason = error.map_or(Reason::Words(words), Reason::Os);
        self.ends_by_server(ops, conn, Gone::Ended(error), (failure, reason));
        true
    }

    /// The WebSocket is over: what is under way fails, or what begins next.
    fn ends_by_server(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        gone: Gone,
        (failure, reason): (Failure, Reason),
    ) {
        let idle = self.doing(conn) == Doing::Nothing;
        let Some(mut link) = self.talks.as_mut().and_then(|talks| talks.forget(conn)) else { return };
        if !idle {
            return self.fail(ops, self.conns[conn as usize].exchange, failure, reason);
        }
        self.shut(ops, conn);
        link.end(gone);
        if let Some(talks) = &mut self.talks {
            talks.put_back(conn, link);
        }
    }

    /// More has gone out.
    pub(crate) fn talk_sent(&mut self, conn: ConnId, bytes: usize) {
        let Some(link) = self.talks.as_mut().and_then(|talks| talks.open(conn)) else { return };
        link.unsent = link.unsent.saturating_sub(bytes);
        if link.unsent == 0 && self.doing(conn) == Doing::Saying {
            self.ends_at_once(self.conns[conn as usize].exchange, End::Done);
        }
    }

    /// A request has ended: the conversation is over unless its user's next request goes on with it.
    pub(crate) fn ends_talk(&mut self, ops: &mut impl Ops<'r>, id: u32) {
        if self.journey.as_ref().is_some_and(|j| j.in_conversation(id).is_none()) {
            self.end_talk(ops, self.exchanges[id as usize].conn);
        }
    }

    fn end_talk(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let Some(talks) = &mut self.talks else { return };
        if talks.open(conn).is_some() && self.conns[conn as usize].phase != Phase::Closed {
            return self.shut(ops, conn);
        }
        talks.forget(conn);
    }

    /// The time of an exchange has run out: why that is so.
    #[cold]
    pub(crate) fn too_late(&mut self, id: u32) -> Reason {
        let exchange = &self.exchanges[id as usize];
        let (conn, request) = (exchange.conn, exchange.request);
        let waits = self.doing(conn) == Doing::Waiting;
        let within = loadlab_record::units::format_duration_ns(self.within_ns(request) as f64);
        let Some(talks) = self.talks.as_mut().filter(|_| waits) else {
            return Reason::Words("no complete response within the timeout");
        };
        let (passed, unkept) = talks.link(conn).map_or((0, 0), |link| (link.passed, link.unkept));
        talks.words = match passed {
            0 => format!("no message within {within}"),
            1 => format!("no message as expected within {within}; one other came"),
            _ => format!("no message as expected within {within}; {passed} others came"),
        };
        if unkept > 0 {
            talks.words.push_str(&format!("; before it was waited for {unkept} more came than are kept"));
        }
        Reason::WebSocket
    }
}
