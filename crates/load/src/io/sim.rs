//! A simulated network on a simulated clock: a load runs to its end in no time, the same way every time.
//!
//! The server is a function of what arrives and when. Sending costs nothing unless [`Sim::stalls`] says that
//! the generator itself stood still.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use super::{ConnId, Event, Io, Ops, Sink, Wait};
use crate::target::Address;

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

/// The other end.
pub trait Server {
    /// A connection is asked for: when it stands, or when it fails and with which error number.
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)>;
    /// A whole request arrives: what comes back, and when.
    fn request(&mut self, at_ns: u64, conn: ConnId, bytes: &[u8]) -> Vec<(u64, Reply)>;
    /// The worker closed a connection.
    fn closed(&mut self, _at_ns: u64, _conn: ConnId) {}
    /// Whether it saw the last request on this connection.
    fn saw(&self, _conn: ConnId) -> bool {
        true
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Connected,
    Reply(Reply),
}

/// When, in which order, for which connection and generation, what.
type Due = (u64, u64, ConnId, u32, Happening);

/// The backend.
pub struct Sim<S> {
    ops: SimOps<S>,
}

/// What can be submitted.
pub struct SimOps<S> {
    now_ns: u64,
    queue: BinaryHeap<Reverse<Due>>,
    sequence: u64,
    generations: Vec<u32>,
    /// Times at which the generator stands still, and for how long; in order.
    stalls: Vec<(u64, u64)>,
    /// What it costs the generator to open a connection.
    connect_ns: u64,
    server: S,
}

impl<S: Server> Sim<S> {
    /// A network to this server.
    pub fn new(server: S) -> Self {
        Sim {
            ops: SimOps {
                now_ns: 0,
                queue: BinaryHeap::new(),
                sequence: 0,
                generations: Vec::new(),
                stalls: Vec::new(),
                connect_ns: 0,
                server,
            },
        }
    }

    /// The other end, afterwards.
    pub fn into_server(self) -> S {
        self.ops.server
    }

    /// Looks at the other end.
    pub fn server(&self, look: impl FnOnce(&S)) {
        look(&self.ops.server);
    }

    /// The generator stands still at these times (from, for how long), in order.
    pub fn stalls(mut self, mut stalls: Vec<(u64, u64)>) -> Self {
        stalls.reverse();
        self.ops.stalls = stalls;
        self
    }

    /// The generator is busy for so long each time it opens a connection.
    pub fn connect_costs(mut self, ns: u64) -> Self {
        self.ops.connect_ns = ns;
        self
    }
}

impl<S: Server> SimOps<S> {
    fn push(&mut self, at_ns: u64, conn: ConnId, what: Happening) {
        let generation = self.generations[conn as usize];
        self.queue.push(Reverse((at_ns.max(self.now_ns), self.sequence, conn, generation, what)));
        self.sequence += 1;
    }

    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        while self.stalls.last().is_some_and(|(at, _)| *at <= self.now_ns) {
            if let Some((at, length)) = self.stalls.pop() {
                self.now_ns = self.now_ns.max(at + length);
            }
        }
    }
}

impl<'r, S: Server> Ops<'r> for SimOps<S> {
    fn now(&self) -> u64 {
        self.now_ns
    }

    fn connect(&mut self, conn: ConnId, _address: &Address, _source: Option<IpAddr>) {
        self.advance(self.now_ns + self.connect_ns);
        if self.generations.len() <= conn as usize {
            self.generations.resize(conn as usize + 1, 0);
        }
        match self.server.connect(self.now_ns, conn) {
            Ok(at) => self.push(at, conn, Happening::Connected),
            Err((at, error)) => self.push(at, conn, Happening::Reply(Reply::Error(error))),
        }
    }

    fn send(&mut self, conn: ConnId, bytes: &'r [u8]) -> usize {
        for (at, reply) in self.server.request(self.now_ns, conn, bytes) {
            self.push(at, conn, Happening::Reply(reply));
        }
        bytes.len()
    }

    fn send_copy(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        for (at, reply) in self.server.request(self.now_ns, conn, bytes) {
            self.push(at, conn, Happening::Reply(reply));
        }
        bytes.len()
    }

    fn close(&mut self, conn: ConnId) {
        self.generations[conn as usize] += 1;
        self.server.closed(self.now_ns, conn);
    }

    fn give(&mut self, _conn: ConnId) -> Option<OwnedFd> {
        // There are no sockets here.
        None
    }

    fn take(&mut self, _conn: ConnId, _address: &Address, _socket: OwnedFd) -> bool {
        false
    }

    fn unseen(&mut self, conn: ConnId) -> bool {
        !self.server.saw(conn)
    }
}

impl<'r, S: Server> Io<'r> for Sim<S> {
    type Ops = SimOps<S>;
    const NAME: &'static str = "sim";

    fn ops(&mut self) -> &mut Self::Ops {
        &mut self.ops
    }

    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()> {
        let until_ns = wait.until_ns;
        let next = self.ops.queue.peek().map(|Reverse(first)| first.0);
        match next {
            Some(at) if at <= until_ns.max(self.ops.now_ns) => self.ops.advance(at),
            _ => {
                self.ops.advance(until_ns);
                return Ok(());
            }
        }
        while let Some(Reverse(first)) = self.ops.queue.peek() {
            if first.0 > self.ops.now_ns {
                break;
            }
            let Some(Reverse((_, _, conn, generation, what))) = self.ops.queue.pop() else { break };
            if self.ops.generations[conn as usize] != generation {
                continue;
            }
            let event = match &what {
                Happening::Connected => Event::Connected(conn),
                Happening::Reply(Reply::Bytes(bytes)) => Event::Received { conn, bytes, last: false },
                Happening::Reply(Reply::Fin) => Event::Closed(conn),
                Happening::Reply(Reply::Error(error)) => Event::Failed(conn, *error),
            };
            sink.event(&mut self.ops, event);
        }
        Ok(())
    }
}
