//! State of conversations: each one's WebSocket, messages that arrived early, parts that ended at once.
//!
//! Nothing here sends or counts.

use std::collections::VecDeque;

use loadlab_record::counts::outcome::{Failure, Outcome};
use loadlab_record::random::GAMMA;

use crate::io::ConnId;
use crate::journey::failure::StepFailure;
use crate::journey::response::MAX_BODY;
use crate::protocol::websocket::{NORMAL, Socket};
use crate::worker::state::SlotId;
use crate::worker::state::buffers::BufferPool;

/// Most bytes, and most messages, kept for one user that is not waiting; further messages are skipped.
const INBOX_BYTES: usize = 64 * 1024;
const INBOX_MESSAGES: usize = 64;

/// All conversations of one worker. A load without WebSockets has none, and nothing is allocated for it.
pub struct Conversations {
    /// WebSockets by connection.
    pub by_conn: Vec<Option<Box<WebSocketConnection>>>,
    seed: u64,
    /// WebSockets opened so far: each has a unique number.
    opened: u64,
    /// Bytes to be written on the current connection.
    pub out: Vec<u8>,
    /// Messages that arrived together, end to end, and the end of each.
    pub received: Vec<u8>,
    pub ends: Vec<usize>,
    /// Buffers for messages that arrive in pieces, or too early.
    pub buffers: BufferPool,
    /// Parts that ended as soon as they began, to be finished in the next turn.
    pub ended_parts: Vec<EndedPart>,
    pub spare: Vec<EndedPart>,
    /// The last error, for examples.
    pub last_error: String,
}

/// One WebSocket.
pub struct WebSocketConnection {
    pub number: u64,
    pub state: WebSocketState,
    pub socket: Socket,
    /// Whether messages that arrive while no part waits are kept.
    pub keeps: bool,
    /// The message being received began before the last one sent, so it does not answer it.
    pub stale: bool,
    /// Beginning of a message that arrives in pieces; at first, of the response to the opening.
    pub partial: Vec<u8>,
    /// Number of interim responses to the opening.
    pub interim: u8,
    inbox: VecDeque<Vec<u8>>,
    inbox_bytes: usize,
    /// Number of bytes that have not gone out.
    pub unsent: usize,
    /// Bytes of pongs written since everything had last gone out.
    pub unsent_pongs: usize,
    /// The current part has ended, and will be finished in the next turn.
    pub part_has_ended: bool,
    /// Number of messages sent whose answer was awaited.
    pub answers_awaited: u64,
    /// Number of messages skipped since the current part began.
    pub skipped: u64,
    /// Number of messages that arrived too early and found no room.
    pub unkept: u64,
}

#[derive(Clone, Copy)]
pub enum WebSocketState {
    /// The opening was sent.
    Opening,
    Open,
    Gone(Gone),
}

/// How a WebSocket ended.
#[derive(Clone, Copy)]
pub enum Gone {
    /// The server sent a close frame with this code.
    Closed(Option<u16>),
    /// The connection ended, perhaps with this error.
    Ended(Option<i32>),
    /// The bytes received are not valid WebSocket.
    Broken(Failure, &'static str),
}

/// A part that has ended; to be finished only if its exchange is still at this part.
#[derive(Clone, Copy)]
pub struct EndedPart {
    pub id: SlotId,
    pub request: u32,
    pub started_ns: u64,
    pub cause: EndCause,
}

/// Why a part has ended.
#[derive(Clone, Copy)]
pub enum EndCause {
    /// Everything was sent.
    Done,
    /// The message waited for had already arrived.
    Answered(Outcome, Option<StepFailure>),
    /// The WebSocket is no longer open.
    NotOpen,
}

impl WebSocketConnection {
    fn new(number: u64, keeps: bool, seed: u64) -> WebSocketConnection {
        WebSocketConnection {
            number,
            state: WebSocketState::Opening,
            socket: Socket::new(MAX_BODY as u64, seed ^ number.wrapping_mul(GAMMA)),
            keeps,
            stale: false,
            partial: Vec::new(),
            interim: 0,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            unsent: 0,
            unsent_pongs: 0,
            part_has_ended: false,
            answers_awaited: 0,
            skipped: 0,
            unkept: 0,
        }
    }

    /// Keeps a message for later, if wanted and if there is room.
    fn store(&mut self, message: &[u8], buffers: &mut BufferPool) {
        let room = self.inbox.len() < INBOX_MESSAGES && self.inbox_bytes + message.len() <= INBOX_BYTES;
        if !self.keeps {
            return;
        }
        if !room {
            self.unkept += 1;
            return;
        }
        self.inbox_bytes += message.len();
        let mut kept = Vec::new();
        buffers.lend(&mut kept);
        kept.extend_from_slice(message);
        self.inbox.push_back(kept);
    }

    /// The first kept message; the caller returns its buffer.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.inbox.pop_front()?;
        self.inbox_bytes -= message.len();
        Some(message)
    }

    /// Starts a wait for an answer: messages kept so far, and the one being received, do not answer what is sent now.
    pub fn await_answer(&mut self, buffers: &mut BufferPool) {
        for mut message in self.inbox.drain(..) {
            message.clear();
            buffers.take_back(&mut message);
        }
        self.inbox_bytes = 0;
        self.unkept = 0;
        self.stale = self.socket.is_inside_message();
        self.partial.clear();
        self.answers_awaited += 1;
    }

    /// Discards everything but how it ended.
    pub fn end(&mut self, gone: Gone) {
        self.state = WebSocketState::Gone(gone);
        self.partial = Vec::new();
        self.inbox = VecDeque::new();
        self.inbox_bytes = 0;
    }
}

impl Conversations {
    /// No conversations yet; `seed` is the load's.
    pub fn new(seed: u64) -> Conversations {
        Conversations {
            by_conn: Vec::new(),
            seed,
            opened: 0,
            out: Vec::new(),
            received: Vec::new(),
            ends: Vec::new(),
            buffers: BufferPool::default(),
            ended_parts: Vec::new(),
            spare: Vec::new(),
            last_error: String::new(),
        }
    }

    /// Begins a conversation on a connection, whose number over all threads is `number`. `keeps`: messages that arrive
    /// while no part waits are kept.
    pub fn begin(&mut self, conn: ConnId, keeps: bool, number: u64) {
        let index = conn as usize;
        if self.by_conn.len() <= index {
            self.by_conn.resize_with(index + 1, || None);
        }
        self.opened += 1;
        let seed = self.seed ^ number.rotate_left(32);
        self.by_conn[index] = Some(Box::new(WebSocketConnection::new(self.opened, keeps, seed)));
    }

    /// Leaves a part that has ended as soon as it began to the next turn.
    pub fn end_in_next_turn(&mut self, conn: ConnId, part: EndedPart) {
        self.ended_parts.push(part);
        if let Some(websocket) = self.get_mut(conn) {
            websocket.part_has_ended = true;
        }
    }

    /// Whether parts have ended and wait to be finished.
    #[inline]
    pub fn has_ended_parts(&self) -> bool {
        !self.ended_parts.is_empty()
    }

    /// The WebSocket of a connection, if it has one.
    #[inline]
    pub fn get_mut(&mut self, conn: ConnId) -> Option<&mut WebSocketConnection> {
        self.by_conn.get_mut(conn as usize)?.as_deref_mut()
    }

    /// Keeps a message of a connection for later, if wanted.
    pub fn store(&mut self, conn: ConnId, message: &[u8]) {
        if let Some(Some(websocket)) = self.by_conn.get_mut(conn as usize) {
            websocket.store(message, &mut self.buffers);
        }
    }

    /// Whether the part that a connection is at has ended.
    #[inline]
    pub fn part_has_ended(&self, conn: ConnId) -> bool {
        self.by_conn.get(conn as usize).and_then(Option::as_ref).is_some_and(|w| w.part_has_ended)
    }

    #[inline]
    pub fn open(&mut self, conn: ConnId) -> Option<&mut WebSocketConnection> {
        self.get_mut(conn).filter(|w| matches!(w.state, WebSocketState::Open))
    }

    /// Before this side closes a connection: adds what to send to a server that still listens.
    #[inline]
    pub fn close(&mut self, conn: ConnId, last: &mut Vec<u8>) {
        if let Some(mut websocket) = self.forget(conn).filter(|w| matches!(w.state, WebSocketState::Open)) {
            websocket.socket.close(NORMAL, last);
        }
    }

    #[inline]
    pub fn forget(&mut self, conn: ConnId) -> Option<Box<WebSocketConnection>> {
        self.by_conn.get_mut(conn as usize)?.take()
    }

    pub fn put_back(&mut self, conn: ConnId, websocket: Box<WebSocketConnection>) {
        self.by_conn[conn as usize] = Some(websocket);
    }
}

/// Describes a server's close code.
#[cold]
pub fn describe_close(code: Option<u16>) -> String {
    let meaning = match code {
        None => return "the server closed the WebSocket, without a code".to_owned(),
        Some(1000) => "normal",
        Some(1001) => "going away",
        Some(1002) => "protocol error",
        Some(1003) => "unsupported data",
        Some(1007) => "not UTF-8",
        Some(1008) => "policy",
        Some(1009) => "too big",
        Some(1011) => "internal error",
        Some(1012) => "restart",
        Some(1013) => "try again later",
        Some(code) => return format!("the server closed the WebSocket with code {code}"),
    };
    format!("the server closed the WebSocket with code {} ({meaning})", code.unwrap_or(0))
}
