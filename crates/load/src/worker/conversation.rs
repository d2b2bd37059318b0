//! The life of a request that is part of a conversation: WebSocket.
//!
//! A conversation is several requests of one user, one after another on one connection: the opening, each message (what
//! is sent, and the answer waited for), the close. Each is due, started and ended like any other request. Between them
//! the connection stays open with nothing in flight: pings are answered, messages are skipped or kept for a later part,
//! and if the connection ends meanwhile, the next part fails with that reason. A part that fails along with its
//! connection takes the rest of the conversation with it.

use loadlab_record::counts::outcome::{Failure, Outcome};

use crate::io::{ConnId, Ops};
use crate::journey::failure::StepFailure;
use crate::journey::script::ConversationAction;
use crate::measure::examples::{Reason, ResponseBytes};
use crate::protocol::websocket::NORMAL;
use crate::protocol::websocket::opening::OpeningError;
use crate::protocol::websocket::{Event, MessageType, WebSocketError};
use crate::worker::exchange::RequestEnd;
use crate::worker::state::SlotId;
use crate::worker::state::conversations::{
    Conversations, EndCause, EndedPart, Gone, WebSocketConnection, WebSocketState, describe_close,
};
use crate::worker::state::slots::Fact;
use crate::worker::state::tls::put;
use crate::worker::{NO_RESPONSE, Worker};

/// The response of a part that waits for no message.
const NO_MESSAGE: ResponseBytes<'static> = ResponseBytes { bytes: &[], head_end: Some(0) };

/// Most unsent bytes of replies to pings: a server that pings but never reads is cut off at this limit.
const MAX_UNSENT: usize = 256 * 1024;
/// Close code for a message that is too long (RFC 6455 §7.4.1).
const TOO_BIG: u16 = 1009;
/// A buffer for several messages is freed once it has grown beyond this.
const RECEIVED_KEPT: usize = 64 * 1024;

/// What is in flight on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartState {
    /// Nothing that a message could end.
    Nothing,
    /// A message is being sent, without waiting for an answer.
    Sending,
    Waiting,
    Closing,
}

impl<'r> Worker<'r> {
    /// The conversation part that an exchange is at.
    fn part(&self, id: SlotId) -> Option<&ConversationAction> {
        let exchange = self.slots.exchanges.get(id as usize).filter(|e| e.is(Fact::UnderWay))?;
        self.journey.as_ref()?.conversation(exchange.request).map(|conversation| &conversation.part)
    }

    fn part_state(&self, conn: ConnId) -> PartState {
        if self.conversations.part_has_ended(conn) {
            return PartState::Nothing;
        }
        match self.part(self.conns.table[conn as usize].exchange()) {
            None | Some(ConversationAction::Open { .. }) => PartState::Nothing,
            Some(ConversationAction::Message { wait: None, .. }) => PartState::Sending,
            Some(ConversationAction::Message { wait: Some(_), .. }) => PartState::Waiting,
            Some(ConversationAction::Close) => PartState::Closing,
        }
    }

    /// Whether an exchange's WebSocket is open.
    pub(crate) fn has_conversation(&mut self, id: SlotId) -> bool {
        let conn = self.slots.exchanges[id as usize].conn;
        self.conversations.open(conn).is_some()
    }

    /// Begins a request. Returns true if it continues a conversation and needs no connection; any other request ends
    /// its user's conversation.
    pub(crate) fn continue_conversation(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64) -> bool {
        let conn = self.slots.exchanges[id as usize].conn;
        let is_close = match self.part(id) {
            Some(ConversationAction::Close) => true,
            Some(ConversationAction::Message { .. }) => false,
            None | Some(ConversationAction::Open { .. }) => {
                self.end_conversation(ops, conn);
                return false;
            }
        };
        self.conns.table[conn as usize].continue_with(id);
        match self.conversations.get_mut(conn).map(|websocket| websocket.state) {
            Some(WebSocketState::Open) => {
                self.conns.table[conn as usize].become_busy();
                if is_close { self.send_close(ops, conn) } else { self.send_message(ops, id, now) }
            }
            Some(WebSocketState::Gone(Gone::Closed(None | Some(NORMAL)))) if is_close => {
                self.end_in_next_turn(id, EndCause::Done)
            }
            _ => self.end_in_next_turn(id, EndCause::NotOpen),
        }
        true
    }

    /// Prepares a connection for the opening of a conversation.
    pub(crate) fn open_conversation(&mut self, conn: ConnId) {
        let keeps = match self.part(self.conns.table[conn as usize].exchange()) {
            Some(ConversationAction::Open { keeps, .. }) => *keeps,
            _ => return,
        };
        let number = self.share.number_of(conn);
        self.conversations.begin(conn, keeps, number);
    }

    /// Sends a message, waits for one, or both.
    fn send_message(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64) {
        let exchange = &mut self.slots.exchanges[id as usize];
        let (conn, request) = (exchange.conn, exchange.request);
        let Some(journey) = &mut self.journey else { return };
        let part = journey.conversation(request).map(|t| &t.part);
        let Some(ConversationAction::Message { send, wait, .. }) = part else { return };
        let (kind, waits) = (send.as_ref().map(|(kind, _)| *kind), wait.is_some());
        let mut kept = journey.take_buffer(request, exchange.buffered.take());
        let Conversations { by_conn, out, buffers, .. } = &mut self.conversations;
        let Some(websocket) = &mut by_conn[conn as usize] else { return };
        websocket.skipped = 0;
        exchange.begin_sending(0, 0);
        let (mut result, mut is_open) = (Ok(()), true);
        let written = journey.write_message(id, request, now, &mut kept);
        match (written, kind) {
            (Err(fault), _) => result = Err(StepFailure::Unwritten(fault)),
            (Ok(text), Some(MessageType::Text)) if std::str::from_utf8(text).is_err() => {
                result = Err(StepFailure::NotText);
            }
            (Ok(text), Some(kind)) => {
                kept.keep_request(text);
                out.clear();
                // The answer before may have come together with a close frame.
                is_open = websocket.socket.send(kind, text, out);
                if is_open {
                    let (length, sent) = put(&mut self.conns.tls, ops, conn, out);
                    websocket.unsent += length - sent;
                    exchange.begin_sending(length, sent);
                    self.measure.recorder.sent(sent);
                }
            }
            (Ok(_), None) => {}
        }
        if waits && kind.is_some() && is_open {
            websocket.await_answer(buffers);
        }
        let all_gone = websocket.unsent == 0;
        let is_sent = kind.is_some() && result.is_ok() && is_open;
        exchange.set(Fact::HasId, is_sent && journey.last_id().is_some());
        exchange.buffered = Some(kept);
        match result {
            Err(failure) => self.slots.unwritten.push(exchange.unwritten(id, failure)),
            Ok(()) if !is_open => self.end_in_next_turn(id, EndCause::NotOpen),
            Ok(()) if !waits && all_gone => self.end_in_next_turn(id, EndCause::Done),
            Ok(()) if waits && kind.is_none() => self.check_inbox(id, now),
            Ok(()) => {}
        }
    }

    /// Checks messages kept earlier: the one waited for may have arrived already.
    fn check_inbox(&mut self, id: SlotId, now: u64) {
        let conn = self.slots.exchanges[id as usize].conn;
        while let Some(mut message) = self.conversations.get_mut(conn).and_then(WebSocketConnection::take) {
            let verdict = self.judge_message(id, &message, now);
            if verdict.is_some() {
                self.slots.unstash(id);
                self.slots.stash(id, &message, Some(0));
            }
            message.clear();
            self.conversations.buffers.take_back(&mut message);
            if let Some((outcome, failure)) = verdict {
                return self.end_in_next_turn(id, EndCause::Answered(outcome, failure));
            }
        }
    }

    fn send_close(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let Conversations { by_conn, out, .. } = &mut self.conversations;
        let Some(websocket) = &mut by_conn[conn as usize] else { return };
        out.clear();
        websocket.socket.close(NORMAL, out);
        let (length, sent) = put(&mut self.conns.tls, ops, conn, out);
        websocket.unsent += length - sent;
        self.measure.recorder.sent(sent);
    }

    fn end_in_next_turn(&mut self, id: SlotId, cause: EndCause) {
        let exchange = &self.slots.exchanges[id as usize];
        let part = EndedPart { id, request: exchange.request, started_ns: exchange.started_ns, cause };
        self.conversations.end_in_next_turn(exchange.conn, part);
    }

    /// Finishes parts that ended as soon as they began; in a separate turn, or users could continue endlessly within
    /// one.
    pub(crate) fn finish_ended_parts(&mut self, ops: &mut impl Ops<'r>) {
        if !self.conversations.has_ended_parts() {
            return;
        }
        let spare = std::mem::take(&mut self.conversations.spare);
        let mut all = std::mem::replace(&mut self.conversations.ended_parts, spare);
        for EndedPart { id, request, started_ns, cause } in all.drain(..) {
            let exchange = &self.slots.exchanges[id as usize];
            if !exchange.is(Fact::UnderWay)
                || (exchange.request, exchange.started_ns) != (request, started_ns)
            {
                continue;
            }
            let (conn, now) = (exchange.conn, self.now(ops));
            if let Some(websocket) = self.conversations.get_mut(conn) {
                websocket.part_has_ended = false;
            }
            self.measure.recorder.roll(now);
            let (outcome, failure) = match cause {
                EndCause::Done => (Outcome::Ok, None),
                EndCause::Answered(outcome, failure) => (outcome, failure),
                EndCause::NotOpen => {
                    self.fail_not_open(ops, id);
                    continue;
                }
            };
            self.end_part(ops, id, now, RequestEnd::judged(outcome, failure, NO_MESSAGE));
        }
        self.conversations.spare = all;
    }

    /// Ends a part whose conversation continues.
    fn end_part(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64, end: RequestEnd<'_>) {
        self.conns.table[self.slots.exchanges[id as usize].conn as usize].end_use();
        self.finish(ops, id, now, end);
    }

    /// Fails a part that begins after the WebSocket has ended.
    #[cold]
    fn fail_not_open(&mut self, ops: &mut impl Ops<'r>, id: SlotId) {
        let conn = self.slots.exchanges[id as usize].conn;
        let (failure, message) = match self.conversations.forget(conn).map(|websocket| websocket.state) {
            Some(WebSocketState::Gone(Gone::Closed(code))) => (Failure::Reset, describe_close(code)),
            Some(WebSocketState::Gone(Gone::Ended(Some(error)))) => {
                (Failure::Reset, Reason::Os(error).to_string())
            }
            Some(WebSocketState::Gone(Gone::Broken(failure, message))) => (failure, message.to_owned()),
            _ => (Failure::Reset, "the server ended the connection without a close frame".to_owned()),
        };
        self.fail_for(ops, id, failure, &format!("{message}, before this part began"));
    }

    #[cold]
    fn fail_for(&mut self, ops: &mut impl Ops<'r>, id: SlotId, failure: Failure, message: &str) {
        self.conversations.last_error.clear();
        self.conversations.last_error.push_str(message);
        self.fail(ops, id, failure, Reason::WebSocket);
    }

    /// Handles bytes of a connection; returns true if they belong to a conversation.
    pub(crate) fn conversation_received(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        bytes: &[u8],
        now: u64,
    ) -> bool {
        let waits = self.part_state(conn) == PartState::Waiting;
        let Some(mut websocket) = self.conversations.forget(conn) else { return false };
        if let WebSocketState::Opening = websocket.state {
            self.conversations.put_back(conn, websocket);
            self.opening_received(ops, conn, bytes, now);
            return true;
        }
        let Conversations { received, ends, out, buffers, .. } = &mut self.conversations;
        buffers.lend(&mut websocket.partial);
        received.clear();
        ends.clear();
        out.clear();
        let wants = waits || websocket.keeps;
        let WebSocketConnection { socket, partial, stale, skipped, .. } = &mut *websocket;
        let mut closed = None;
        let result = socket.receive(bytes, out, &mut |event| match event {
            Event::Message { end: false, .. } if !wants || *stale => {}
            Event::Message { bytes, end: false, .. } => partial.extend_from_slice(bytes),
            Event::Message { .. } if !wants || *stale => {
                *stale = false;
                partial.clear();
                *skipped += 1;
            }
            Event::Message { bytes, .. } => {
                received.extend_from_slice(partial);
                received.extend_from_slice(bytes);
                ends.push(received.len());
                partial.clear();
            }
            Event::Close { code, .. } => closed = Some(code),
            Event::Ping(_) | Event::Pong(_) => {}
        });
        buffers.take_back(&mut websocket.partial);
        let mut flooded = false;
        if !out.is_empty() {
            let (length, sent) = put(&mut self.conns.tls, ops, conn, out);
            websocket.unsent_pongs =
                if websocket.unsent == 0 { length - sent } else { websocket.unsent_pongs + length };
            websocket.unsent += length - sent;
            flooded = websocket.unsent_pongs > MAX_UNSENT;
            self.measure.recorder.sent(sent);
        }
        let (number, answers_awaited) = (websocket.number, websocket.answers_awaited);
        self.conversations.put_back(conn, websocket);
        self.take_messages(ops, conn, number, answers_awaited, now);
        if self.conversations.open(conn).is_some_and(|websocket| websocket.number == number) {
            const FLOOD: &str = "a flood of pings whose replies the server does not read";
            let broken = match result {
                Err(WebSocketError { code: TOO_BIG, message }) => Some((Failure::TooLarge, message)),
                Err(fault) => Some((Failure::Protocol, fault.message)),
                Ok(()) if flooded => Some((Failure::Protocol, FLOOD)),
                Ok(()) => None,
            };
            match (broken, closed) {
                (Some((failure, message)), _) => self.protocol_broken(ops, conn, failure, message),
                (None, Some(code)) => self.close_received(ops, conn, code, now),
                (None, None) => {}
            }
        }
        true
    }

    /// Handles messages that arrived together. They do not answer anything sent in between.
    fn take_messages(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        number: u64,
        answers_awaited: u64,
        now: u64,
    ) {
        if self.conversations.ends.is_empty() {
            return;
        }
        let mut received = std::mem::take(&mut self.conversations.received);
        let ends = std::mem::take(&mut self.conversations.ends);
        let mut from = 0;
        for to in &ends {
            let message = &received[from..*to];
            from = *to;
            let websocket = self.conversations.open(conn);
            if websocket.is_none_or(|w| (w.number, w.answers_awaited) != (number, answers_awaited)) {
                break;
            }
            self.message_received(ops, conn, message, now);
        }
        if received.capacity() > RECEIVED_KEPT {
            received = Vec::new();
        }
        self.conversations.received = received;
        self.conversations.ends = ends;
    }

    fn message_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, message: &[u8], now: u64) {
        let id = self.conns.table[conn as usize].exchange();
        if self.part_state(conn) != PartState::Waiting {
            self.conversations.store(conn, message);
        } else if let Some((outcome, failure)) = self.judge_message(id, message, now) {
            self.slots.unstash(id);
            let message = ResponseBytes { bytes: message, head_end: Some(0) };
            self.end_part(ops, id, now, RequestEnd::judged(outcome, failure, message));
        }
    }

    /// Judges whether a message is the one waited for, or decides the part otherwise; `None` if it is skipped.
    fn judge_message(
        &mut self,
        id: SlotId,
        message: &[u8],
        now: u64,
    ) -> Option<(Outcome, Option<StepFailure>)> {
        let exchange = &mut self.slots.exchanges[id as usize];
        let part = self.journey.as_ref()?.conversation(exchange.request).map(|t| &t.part);
        let Some(ConversationAction::Message { wait: Some(wait), .. }) = part else { return None };
        let (skips_unexpected, conn) = (wait.skips_unexpected, exchange.conn);
        let kept = exchange.buffered.as_deref_mut()?;
        kept.set_message(message);
        let (outcome, failure) = match kept.is_echo(message) {
            true => self.judge(id, 0, now),
            false => (Outcome::Failed(Failure::Check), Some(StepFailure::NoEcho)),
        };
        if !skips_unexpected || !matches!(failure, Some(StepFailure::Check(_) | StepFailure::NoEcho)) {
            return Some((outcome, failure));
        }
        if let Some(websocket) = self.conversations.get_mut(conn) {
            websocket.skipped += 1;
        }
        // The last message is shown if the part times out.
        self.slots.unstash(id);
        self.slots.stash(id, message, Some(0));
        None
    }

    /// Handles bytes of the response to an opening.
    fn opening_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, bytes: &[u8], now: u64) {
        let id = self.conns.table[conn as usize].exchange();
        let Some(exchange) = self.slots.exchanges.get_mut(id as usize) else { return self.close(ops, conn) };
        exchange.set(Fact::HasResponseBytes, true);
        let Some(journey) = &self.journey else { return };
        let part = journey.conversation(exchange.request).map(|t| &t.part);
        let Some(ConversationAction::Open { opening, .. }) = part else { return };
        let Some(websocket) = self.conversations.get_mut(conn) else { return };
        let received = opening.receive(&mut websocket.partial, &mut websocket.interim, bytes);
        // Interim responses are no part of it.
        let response = match received {
            Ok(None) => websocket.partial.clone(),
            _ => std::mem::take(&mut websocket.partial),
        };
        if let Some(kept) = &mut exchange.buffered {
            kept.set_head(&response);
        }
        self.slots.unstash(id);
        match received {
            Ok(None) => self.slots.stash(id, &response, None),
            Ok(Some(end)) => self.conversation_opened(ops, conn, &response, &bytes[end..], now),
            Err(OpeningError::Status(status)) => self.opening_refused(ops, conn, &response, status, now),
            Err(error) => {
                let too_large = error == OpeningError::HeadTooLarge;
                let failure = if too_large { Failure::TooLarge } else { Failure::Protocol };
                self.slots.stash(id, &response, None);
                self.fail_for(ops, id, failure, &error.to_string());
            }
        }
    }

    /// The WebSocket is open. Bytes after the response's head arrived before anything that is sent now.
    fn conversation_opened(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        head: &[u8],
        rest: &[u8],
        now: u64,
    ) {
        if let Some(websocket) = self.conversations.get_mut(conn) {
            websocket.state = WebSocketState::Open;
        }
        if !rest.is_empty() {
            self.conversation_received(ops, conn, rest, now);
        }
        let id = self.conns.table[conn as usize].exchange();
        let verdict = self.judge_opening(id, 101, now);
        self.conns.table[conn as usize].end_use();
        let (outcome, failure) = verdict;
        let head = ResponseBytes { bytes: head, head_end: Some(head.len()) };
        self.finish(ops, id, now, RequestEnd::judged(outcome, failure, head));
    }

    /// The server responded, but did not open the WebSocket.
    fn opening_refused(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, bytes: &[u8], status: u16, now: u64) {
        let id = self.conns.table[conn as usize].exchange();
        let (outcome, failure) = self.judge_opening(id, status, now);
        self.close(ops, conn);
        let head_end = memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4);
        self.finish(ops, id, now, RequestEnd::judged(outcome, failure, ResponseBytes { bytes, head_end }));
    }

    fn judge_opening(&mut self, id: SlotId, status: u16, now: u64) -> (Outcome, Option<StepFailure>) {
        self.measure.recorder.count_status(status);
        self.slots.exchanges[id as usize].status = status;
        self.judge(id, status, now)
    }

    /// The bytes received are not valid WebSocket, or beyond its limits; the server has been sent the reason.
    fn protocol_broken(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        failure: Failure,
        message: &'static str,
    ) {
        self.closed_by_server(ops, conn, Gone::Broken(failure, message), failure, Reason::Text(message));
    }

    /// The server sent a close frame, or answered one.
    fn close_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, code: Option<u16>, now: u64) {
        if self.part_state(conn) != PartState::Closing {
            self.conversations.last_error = describe_close(code);
            return self.closed_by_server(ops, conn, Gone::Closed(code), Failure::Reset, Reason::WebSocket);
        }
        let id = self.conns.table[conn as usize].exchange();
        self.close(ops, conn);
        self.finish(ops, id, now, RequestEnd::judged(Outcome::Ok, None, ResponseBytes::default()));
    }

    /// The connection ended. Returns true if it belonged to a conversation.
    pub(crate) fn conversation_ended(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        error: Option<i32>,
    ) -> bool {
        let Some(websocket) = self.conversations.open(conn) else { return false };
        let failure = if websocket.socket.is_inside() { Failure::Truncated } else { Failure::Reset };
        let message = "the server ended the connection without a close frame";
        let reason = error.map_or(Reason::Text(message), Reason::Os);
        self.closed_by_server(ops, conn, Gone::Ended(error), failure, reason);
        true
    }

    /// The WebSocket is over: the part in flight fails, or else the next one.
    fn closed_by_server(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        gone: Gone,
        failure: Failure,
        reason: Reason,
    ) {
        let idle = self.part_state(conn) == PartState::Nothing;
        let Some(mut websocket) = self.conversations.forget(conn) else { return };
        if !idle {
            return self.fail(ops, self.conns.table[conn as usize].exchange(), failure, reason);
        }
        self.close(ops, conn);
        websocket.end(gone);
        self.conversations.put_back(conn, websocket);
    }

    /// More bytes have gone out.
    pub(crate) fn conversation_sent(&mut self, conn: ConnId, bytes: usize) {
        let Some(websocket) = self.conversations.open(conn) else { return };
        websocket.unsent = websocket.unsent.saturating_sub(bytes);
        if websocket.unsent == 0 && self.part_state(conn) == PartState::Sending {
            self.end_in_next_turn(self.conns.table[conn as usize].exchange(), EndCause::Done);
        }
    }

    /// A request has ended: so has its conversation, unless its user's next request continues it.
    pub(crate) fn end_conversation_if_over(&mut self, ops: &mut impl Ops<'r>, id: SlotId) {
        if self.journey.as_ref().is_some_and(|j| j.in_conversation(id).is_none()) {
            self.end_conversation(ops, self.slots.exchanges[id as usize].conn);
        }
    }

    fn end_conversation(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        if self.conversations.open(conn).is_some() && !self.conns.table[conn as usize].is_closed() {
            return self.close(ops, conn);
        }
        self.conversations.forget(conn);
    }

    /// Reason why an exchange has timed out.
    #[cold]
    pub(crate) fn part_overdue(&mut self, id: SlotId) -> Reason {
        let exchange = &self.slots.exchanges[id as usize];
        let (conn, request) = (exchange.conn, exchange.request);
        if self.part_state(conn) != PartState::Waiting {
            return Reason::Text(NO_RESPONSE);
        }
        let within = loadlab_record::text::units::format_duration_ns(self.spec.timeout_of(request) as f64);
        let websocket = self.conversations.get_mut(conn);
        let (skipped, unkept) = websocket.map_or((0, 0), |w| (w.skipped, w.unkept));
        let mut message = match skipped {
            0 => format!("no message within {within}"),
            1 => format!("no message as expected within {within}; another one arrived"),
            _ => format!("no message as expected within {within}; {skipped} others arrived"),
        };
        if unkept > 0 {
            message.push_str(&format!("; {unkept} earlier messages did not fit in the buffer"));
        }
        self.conversations.last_error = message;
        Reason::WebSocket
    }
}
