//! A simulated network on a simulated clock: a load runs without waiting in real time, and the same way every time.
//!
//! The server is a function of what arrives and when. Sending costs nothing unless [`Sim::stalls`] makes the generator
//! itself stall. Bytes go at once and whole, unless [`Sim::network`] makes them travel as between real sockets: then
//! everything may happen that `epoll` and `uring` may report.
//!
//! Each load thread's worker has its own clock; the driver always takes the thread whose clock is furthest behind, so
//! that all share one timeline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;

use super::{ConnId, Event, Io, Ops, Sink, Wait};
use crate::target::Address;

mod network;
mod wire;

pub use network::{Books, Like, Network};
use network::{Chance, TraceKind};
use wire::Wire;

/// Polls at one moment of the simulated clock after which a thread counts as stuck, as it would loop forever.
const MAX_POLLS_AT_ONE_TIME: u32 = 1_000_000;

/// What the simulated server does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// These bytes arrive.
    Bytes(Vec<u8>),
    /// The peer closes its side.
    Fin,
    /// The connection breaks with this error number.
    Error(i32),
}

/// The other end of the connections. Those of the n-th load thread have n in the first eight bits of their number.
pub trait Server {
    /// A connection is requested. Returns when it opens, or when and with which error number it fails.
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)>;
    /// The connection is open. Returns what the server sends unasked, and when.
    fn opened(&mut self, _at_ns: u64, _conn: ConnId) -> Vec<(u64, Reply)> {
        Vec::new()
    }
    /// A whole request arrives, or a part of one if the network cuts it. Returns what comes back, and when.
    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)>;
    /// The worker closed a connection.
    fn closed(&mut self, _at_ns: u64, _conn: ConnId) {}
    /// Whether the server saw the last request on this connection.
    fn saw(&self, _conn: ConnId) -> bool {
        true
    }
    /// Whether the server reads what is sent on this connection. Once it does not, bytes that have not left wait
    /// permanently, as there is no more room.
    fn reads(&self, _conn: ConnId) -> bool {
        true
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Connected,
    Reply(Reply),
    /// Bytes that have arrived can be read.
    Readable,
    /// Pending bytes can continue to go out.
    Writable,
    /// A send failed with this error number.
    Failed(i32),
}

/// Something that will happen on a connection. The order is by time, then by when it was scheduled.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at_ns: u64,
    /// How many were scheduled before.
    sequence: u64,
    conn: ConnId,
    /// The wire's generation when it was scheduled: it does not happen to a later connection in the same place.
    generation: u32,
    what: Happening,
}

/// The simulated backend.
pub struct Sim<S> {
    ops: SimOps<S>,
}

/// Operations that the backend accepts.
pub struct SimOps<S> {
    threads: Vec<SimThread>,
    /// Index of the thread being driven.
    at: usize,
    /// Stalls of the generator, as start and length; the earliest last.
    stalls: Vec<(u64, u64)>,
    /// How long opening a connection takes the generator.
    connect_ns: u64,
    /// When the collector does not run.
    uncollected: Range<u64>,
    network: Option<Chance>,
    books: Books,
    server: S,
}

/// State of one load thread.
#[derive(Default)]
struct SimThread {
    now_ns: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    wires: Vec<Wire>,
    stalls: Vec<(u64, u64)>,
    /// Number of polls at the current moment.
    polls: u32,
}

impl<S: Server> Sim<S> {
    /// A network with this server.
    pub fn new(server: S) -> Self {
        Sim {
            ops: SimOps {
                threads: vec![SimThread::default()],
                at: 0,
                stalls: Vec::new(),
                connect_ns: 0,
                uncollected: 0..0,
                network: None,
                books: Books::default(),
                server,
            },
        }
    }

    /// Returns the server after a load.
    pub fn into_server(self) -> S {
        self.ops.server
    }

    /// Inspects the server.
    pub fn server(&self, look: impl FnOnce(&S)) {
        look(&self.ops.server);
    }

    /// Totals of what went over the network.
    pub fn books(&self) -> &Books {
        &self.ops.books
    }

    /// Makes the generator stall at these times (start, length), in order.
    pub fn stalls(mut self, mut stalls: Vec<(u64, u64)>) -> Self {
        stalls.reverse();
        self.ops.threads[0].stalls.clone_from(&stalls);
        self.ops.stalls = stalls;
        self
    }

    /// Makes opening a connection keep the generator busy this long.
    pub fn connect_costs(mut self, ns: u64) -> Self {
        self.ops.connect_ns = ns;
        self
    }

    /// Suspends the collector between these times on the simulated clock.
    pub fn uncollected(mut self, from_ns: u64, until_ns: u64) -> Self {
        self.ops.uncollected = from_ns..until_ns;
        self
    }

    /// Whether the collector runs now.
    pub(crate) fn is_collected(&self) -> bool {
        !self.ops.uncollected.contains(&self.ops.now_ns())
    }

    /// Makes bytes travel as between real sockets: in pieces, late, or not at all.
    pub fn network(mut self, network: Network) -> Self {
        self.ops.network = Some(Chance::new(network));
        self
    }

    /// Assigns further submits and polls to this load thread, from 0.
    pub(crate) fn drive_thread(&mut self, index: usize) {
        let ops = &mut self.ops;
        if ops.threads.len() <= index {
            let stalls = ops.stalls.clone();
            let thread = || SimThread { stalls: stalls.clone(), ..SimThread::default() };
            ops.threads.resize_with(index + 1, thread);
        }
        ops.at = index;
    }

    /// When something happens next on a thread that waits until `until_ns`.
    pub(crate) fn next_ns(&self, index: usize, until_ns: u64) -> u64 {
        let thread = &self.ops.threads[index];
        let first_ns = thread.queue.peek().map_or(u64::MAX, |Reverse(first)| first.at_ns);
        first_ns.min(until_ns).max(thread.now_ns)
    }
}

impl<S: Server> SimOps<S> {
    fn thread(&mut self) -> &mut SimThread {
        &mut self.threads[self.at]
    }

    fn now_ns(&self) -> u64 {
        self.threads[self.at].now_ns
    }

    fn wire(&mut self, conn: ConnId) -> &mut Wire {
        &mut self.threads[self.at].wires[conn as usize]
    }

    /// A connection's number as the server sees it.
    fn peer(&self, conn: ConnId) -> ConnId {
        (self.at as u32) << 24 | conn
    }

    fn push(&mut self, at_ns: u64, conn: ConnId, what: Happening) {
        let thread = self.thread();
        let (at_ns, sequence) = (at_ns.max(thread.now_ns), thread.sequence);
        let generation = thread.wires[conn as usize].generation;
        thread.queue.push(Reverse(Scheduled { at_ns, sequence, conn, generation, what }));
        thread.sequence += 1;
    }

    fn schedule_replies(&mut self, conn: ConnId, replies: Vec<(u64, Reply)>) {
        for (at, reply) in replies {
            self.push(at, conn, Happening::Reply(reply));
        }
    }

    fn advance(&mut self, to_ns: u64) {
        let thread = self.thread();
        if to_ns > thread.now_ns {
            thread.polls = 0;
        }
        thread.now_ns = thread.now_ns.max(to_ns);
        while thread.stalls.last().is_some_and(|(at, _)| *at <= thread.now_ns) {
            if let Some((at, length)) = thread.stalls.pop() {
                thread.now_ns = thread.now_ns.max(at + length);
            }
        }
        let now_ns = thread.now_ns;
        if let Some(network) = &mut self.network {
            network.set_now(now_ns);
        }
    }

    /// Delivers bytes to the server.
    fn deliver(&mut self, conn: ConnId, bytes: &[u8]) {
        self.books.delivered += bytes.len() as u64;
        let (now_ns, peer) = (self.now_ns(), self.peer(conn));
        let replies = self.server.request(now_ns, peer, bytes);
        self.schedule_replies(conn, replies);
    }

    /// Sends bytes; the server gets at once as many as the network takes.
    fn give_out(&mut self, conn: ConnId, bytes: &[u8], is_copy: bool) -> usize {
        let sent = if self.network.is_some() {
            self.send_in_pieces(conn, bytes, is_copy)
        } else {
            self.deliver(conn, bytes);
            bytes.len()
        };
        self.note(TraceKind::Send, conn, bytes, sent as u64);
        self.books.sent += sent as u64;
        sent
    }

    /// Counts a send on a connection whose end is already known.
    fn note_late(&mut self, conn: ConnId) {
        self.books.after_last += u64::from(self.wire(conn).had_last);
    }

    /// Adds a submission or an event to the trace.
    fn note(&mut self, kind: TraceKind, conn: ConnId, bytes: &[u8], number: u64) {
        let (now_ns, peer) = (self.now_ns(), self.peer(conn));
        self.books.note(now_ns, kind, peer, bytes, number);
    }

    /// Reports an event to the worker.
    fn report(&mut self, event: Event<'_>, sink: &mut impl Sink<Self>) {
        match &event {
            Event::Connected(conn) => self.note(TraceKind::Connected, *conn, &[], 0),
            Event::Received { conn, bytes, last } => {
                self.books.received += bytes.len() as u64;
                self.wire(*conn).had_last |= *last;
                self.note(TraceKind::Received, *conn, bytes, u64::from(*last));
            }
            Event::Sent(conn, bytes) => {
                self.books.sent += *bytes as u64;
                self.note(TraceKind::Sent, *conn, &[], *bytes as u64);
            }
            Event::Closed(conn) => self.note(TraceKind::Ended, *conn, &[], 0),
            Event::Failed(conn, error) => self.note(TraceKind::Failed, *conn, &[], *error as u64),
        }
        sink.event(self, event);
    }

    /// Handles one event that has fallen due.
    fn happens(&mut self, conn: ConnId, what: Happening, sink: &mut impl Sink<Self>) {
        match what {
            Happening::Connected => {
                let (now_ns, peer) = (self.now_ns(), self.peer(conn));
                let greetings = self.server.opened(now_ns, peer);
                self.schedule_replies(conn, greetings);
                self.report(Event::Connected(conn), sink);
            }
            Happening::Reply(reply) if self.network.is_some() => self.take_in(conn, reply),
            Happening::Reply(Reply::Bytes(bytes)) => {
                self.report(Event::Received { conn, bytes: &bytes, last: false }, sink);
            }
            Happening::Reply(Reply::Fin) => self.report(Event::Closed(conn), sink),
            Happening::Reply(Reply::Error(error)) | Happening::Failed(error) => {
                self.report(Event::Failed(conn, error), sink);
            }
            Happening::Readable => self.read(conn, sink),
            Happening::Writable => self.write_on(conn, sink),
        }
    }
}

impl<'r, S: Server> Ops<'r> for SimOps<S> {
    fn now(&self) -> u64 {
        self.now_ns()
    }

    fn connect(&mut self, conn: ConnId, _address: &Address, _source: Option<IpAddr>) {
        self.advance(self.now_ns() + self.connect_ns);
        let thread = self.thread();
        if thread.wires.len() <= conn as usize {
            thread.wires.resize_with(conn as usize + 1, Wire::default);
        }
        let wire = self.wire(conn);
        debug_assert!(!wire.is_open, "a place is free before it is connected");
        *wire = wire.opened();
        self.books.connects += 1;
        self.note(TraceKind::Connect, conn, &[], 0);
        let (now_ns, peer) = (self.now_ns(), self.peer(conn));
        match self.server.connect(now_ns, peer) {
            Ok(at) => self.push(at, conn, Happening::Connected),
            Err((at, error)) => self.push(at, conn, Happening::Failed(error)),
        }
    }

    fn no_delay(&mut self, _conn: ConnId) {
        self.books.without_delay += 1;
    }

    fn send(&mut self, conn: ConnId, bytes: &'r [u8]) -> usize {
        debug_assert!(!self.wire(conn).is_reported(), "one send at a time");
        self.note_late(conn);
        self.give_out(conn, bytes, false)
    }

    fn send_copy(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.note_late(conn);
        self.give_out(conn, bytes, true)
    }

    fn close(&mut self, conn: ConnId) {
        self.note(TraceKind::Close, conn, &[], 0);
        self.books.closes += 1;
        let wire = self.wire(conn);
        debug_assert!(wire.is_open, "a connection is closed once");
        *wire = wire.closed();
        let (now_ns, peer) = (self.now_ns(), self.peer(conn));
        self.server.closed(now_ns, peer);
    }

    fn close_with(&mut self, conn: ConnId, last: &[u8]) -> usize {
        // The final bytes could end up in the middle of what is still going out.
        let sent = match (self.wire(conn).has_more(), self.network.as_ref().map(Chance::like)) {
            (true, _) => 0,
            (false, Some(Like::Uring)) => self.sends_at_once(conn, last),
            (false, _) => self.give_out(conn, last, true),
        };
        self.close(conn);
        sent
    }

    fn give(&mut self, _conn: ConnId) -> Option<OwnedFd> {
        // There are no sockets here.
        None
    }

    fn take(&mut self, _conn: ConnId, _address: &Address, _socket: OwnedFd) -> bool {
        false
    }

    fn unseen(&mut self, conn: ConnId) -> bool {
        let is_held_up = self.network.is_some() && self.wire(conn).is_unseen();
        is_held_up || !self.server.saw(self.peer(conn))
    }
}

impl<'r, S: Server> Io<'r> for Sim<S> {
    type Ops = SimOps<S>;
    const NAME: &'static str = "sim";
    const WAKE_EARLY_NS: u64 = 0;

    fn ops(&mut self) -> &mut Self::Ops {
        &mut self.ops
    }

    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()> {
        let ops = &mut self.ops;
        ops.thread().polls += 1;
        if ops.thread().polls > MAX_POLLS_AT_ONE_TIME {
            return Err(std::io::Error::other("the load goes on and on, and its clock does not advance"));
        }
        let next = ops.thread().queue.peek().map(|Reverse(first)| first.at_ns);
        match next {
            Some(at) if at <= wait.until_ns.max(ops.now_ns()) => {
                let to_ns = ops.network.as_mut().map_or(at, |network| network.wakes_at(at, wait));
                ops.advance(to_ns);
            }
            _ => {
                let now_ns = ops.now_ns();
                let network = ops.network.as_mut();
                let to_ns = network.map_or(wait.until_ns, |n| n.interrupt(now_ns, wait.until_ns));
                ops.advance(to_ns);
                return Ok(());
            }
        }
        while let Some(Reverse(first)) = ops.thread().queue.peek() {
            if first.at_ns > ops.now_ns() {
                break;
            }
            let Some(Reverse(happening)) = ops.thread().queue.pop() else { break };
            let Scheduled { conn, generation, what, .. } = happening;
            if ops.wire(conn).generation != generation {
                continue;
            }
            ops.happens(conn, what, sink);
            if ops.network.as_mut().is_some_and(Chance::ends_turn) {
                break;
            }
        }
        Ok(())
    }
}
