//! One simulated connection whose bytes travel in pieces, as between real sockets.
//!
//! [`crate::io`] defines what a backend may report, [`Like`] how `epoll` and `uring` differ. As with the kernel, bytes
//! that arrived before a reset can still be read.

use std::collections::VecDeque;

use super::network::{Direction, Like, TraceKind};
use super::{Event, Happening, Reply, Server, SimOps, Sink};
use crate::io::ConnId;

/// Requests up to this length go out without being reported, by `uring` and where `epoll` holds them back.
const SILENT: usize = 4096;

/// A simulated connection.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) generation: u32,
    /// Whether the worker holds it.
    pub(super) is_open: bool,
    /// Bytes that have not gone out yet, in order.
    out: VecDeque<u8>,
    /// How many of `out` the worker believes sent.
    silent: usize,
    /// Bytes that have gone out but are not reported yet: `uring` reports a send once all of it has gone out.
    unreported: usize,
    /// Whether a piece of `out` is scheduled.
    is_writing: bool,
    /// Bytes given to it before the last send, bytes that the server got, and all bytes given to it.
    before_last: u64,
    delivered: u64,
    given: u64,
    /// Replies that have arrived but are not read.
    came: VecDeque<Reply>,
    is_reading: bool,
    /// Whether the peer has closed its side.
    is_half_closed: bool,
    /// Whether the peer has dropped all its state.
    is_cut: bool,
    /// Whether this side knows that the peer has dropped its state.
    has_seen_reset: bool,
    /// Whether the worker knows, from what it received, that nothing follows.
    pub(super) had_last: bool,
}

impl Wire {
    /// Whether anything is waiting to go out.
    pub(super) fn has_more(&self) -> bool {
        !self.out.is_empty() || self.unreported > 0
    }

    /// Whether anything is waiting to go out that will be reported.
    pub(super) fn is_reported(&self) -> bool {
        self.out.len() > self.silent || self.unreported > 0
    }

    /// The same place with its connection closed.
    pub(super) fn closed(&self) -> Wire {
        Wire { generation: self.generation + 1, ..Wire::default() }
    }

    /// The same place with a new connection.
    pub(super) fn opened(&self) -> Wire {
        Wire { generation: self.generation, is_open: true, ..Wire::default() }
    }

    /// Whether no byte of the last send has reached the server.
    pub(super) fn is_unseen(&self) -> bool {
        self.delivered <= self.before_last
    }
}

impl<S: Server> SimOps<S> {
    /// Sends as much as the socket takes now; the rest follows later.
    pub(super) fn send_in_pieces(&mut self, conn: ConnId, bytes: &[u8], is_copy: bool) -> usize {
        let Some(network) = &mut self.network else { return 0 };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        let had_more = wire.has_more();
        if !had_more || !is_copy {
            wire.before_last = wire.given;
        }
        if wire.has_seen_reset {
            self.push(0, conn, Happening::Failed(libc::EPIPE));
            return 0;
        }
        wire.given += bytes.len() as u64;
        let holds = !is_copy && !wire.is_reported() && bytes.len() <= SILENT && network.holds_back();
        let now = match (had_more || holds, network.like()) {
            (true, _) | (_, Like::Uring) => 0,
            (false, Like::Epoll) => network.piece(bytes.len(), Direction::Written),
        };
        wire.out.extend(&bytes[now..]);
        wire.silent += if holds { bytes.len() } else { 0 };
        self.books.most_waiting = self.books.most_waiting.max(wire.out.len());
        if now > 0 {
            self.passes(conn, &bytes[..now]);
        }
        self.writes_later(conn, now == 0 && !had_more);
        if holds { bytes.len() } else { now }
    }

    /// Sends final bytes before a close: they go whole or break off, and nothing waits for them.
    pub(super) fn sends_at_once(&mut self, conn: ConnId, last: &[u8]) -> usize {
        self.note(TraceKind::Send, conn, last, last.len() as u64);
        self.books.sent += last.len() as u64;
        self.passes(conn, last);
        last.len()
    }

    /// Schedules the next piece: at once, or when the socket has room again.
    fn writes_later(&mut self, conn: ConnId, at_once: bool) {
        let (now_ns, reads) = (self.now_ns(), self.server.reads(self.peer(conn)));
        let Some(network) = &mut self.network else { return };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        if wire.is_writing || wire.out.is_empty() {
            return;
        }
        let pause = if at_once && network.like() == Like::Uring { Some(0) } else { network.pause_ns() };
        wire.is_writing = true;
        // Without a finite pause the server never reads again.
        if let Some(pause) = pause.filter(|_| reads) {
            self.push(now_ns + pause, conn, Happening::Writable);
        }
    }

    /// Sends a piece over the network: it arrives, or the connection breaks somewhere within it.
    fn passes(&mut self, conn: ConnId, bytes: &[u8]) {
        let now_ns = self.now_ns();
        let Some(network) = &mut self.network else { return };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        if wire.is_cut {
            return;
        }
        let (arrives, resets) = network.resets_within(bytes.len());
        let later = now_ns + network.short_ns();
        wire.delivered += arrives as u64;
        wire.is_cut |= resets;
        if arrives > 0 {
            self.deliver(conn, &bytes[..arrives]);
        }
        if resets {
            self.push(later, conn, Happening::Reply(Reply::Error(libc::ECONNRESET)));
        }
    }

    /// Continues with the pending bytes.
    pub(super) fn write_on(&mut self, conn: ConnId, sink: &mut impl Sink<Self>) {
        let Some(network) = &mut self.network else { return };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        wire.is_writing = false;
        if wire.has_seen_reset {
            wire.out.clear();
            return self.report(Event::Failed(conn, libc::EPIPE), sink);
        }
        let length = network.piece(wire.out.len(), Direction::Written).max(1);
        let piece: Vec<u8> = wire.out.drain(..length).collect();
        let silent = wire.silent.min(length);
        wire.silent -= silent;
        wire.unreported += length - silent;
        let reported = match network.like() {
            Like::Uring if !wire.out.is_empty() => 0,
            _ => std::mem::take(&mut wire.unreported),
        };
        let generation = wire.generation;
        self.passes(conn, &piece);
        if reported > 0 {
            self.report(Event::Sent(conn, reported), sink);
        }
        if self.wire(conn).generation == generation {
            self.writes_later(conn, false);
        }
    }

    /// Handles a reply that has arrived from the server.
    pub(super) fn take_in(&mut self, conn: ConnId, reply: Reply) {
        let Some(network) = &mut self.network else { return };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        if wire.has_seen_reset || (wire.is_half_closed && !matches!(reply, Reply::Error(_))) {
            return;
        }
        match reply {
            // Bytes in flight when the peer dropped the connection are followed by its reset.
            Reply::Bytes(bytes) => {
                let (arrives, resets) = network.resets_within(bytes.len());
                wire.came.push_back(Reply::Bytes(bytes[..arrives].to_vec()));
                if resets {
                    (wire.is_cut, wire.has_seen_reset) = (true, true);
                    wire.came.push_back(Reply::Error(libc::ECONNRESET));
                }
            }
            Reply::Fin => {
                wire.is_half_closed = true;
                wire.came.push_back(Reply::Fin);
            }
            Reply::Error(error) => {
                (wire.is_cut, wire.has_seen_reset) = (true, true);
                wire.came.push_back(Reply::Error(error));
            }
        }
        self.reads_later(conn, true);
    }

    fn reads_later(&mut self, conn: ConnId, at_once: bool) {
        let now_ns = self.now_ns();
        let Some(network) = &mut self.network else { return };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        if wire.is_reading || wire.came.is_empty() {
            return;
        }
        wire.is_reading = true;
        let pause = if at_once { Some(network.short_ns()) } else { network.pause_ns() };
        if let Some(pause) = pause {
            self.push(now_ns + pause, conn, Happening::Readable);
        }
    }

    /// Reads a piece of what has arrived, possibly spanning several responses.
    pub(super) fn read(&mut self, conn: ConnId, sink: &mut impl Sink<Self>) {
        let Some(network) = &mut self.network else { return };
        let wire = &mut self.threads[self.at].wires[conn as usize];
        wire.is_reading = false;
        let generation = wire.generation;
        let mut bytes = Vec::new();
        while let Some(Reply::Bytes(more)) = wire.came.front_mut() {
            bytes.append(more);
            wire.came.pop_front();
        }
        let length = network.piece(bytes.len(), Direction::Read);
        let rest = bytes.split_off(length.max(1).min(bytes.len()));
        if !rest.is_empty() {
            wire.came.push_front(Reply::Bytes(rest));
        }
        let ends = wire.came.front() == Some(&Reply::Fin);
        // `epoll` may know of the end by then, and reports it at once.
        let last = ends && !bytes.is_empty() && network.reports_last();
        let reports_end = last || bytes.is_empty();
        if !bytes.is_empty() {
            self.report(Event::Received { conn, bytes: &bytes, last }, sink);
        }
        if self.wire(conn).generation != generation {
            return;
        }
        if reports_end {
            match self.wire(conn).came.pop_front() {
                Some(Reply::Fin) => self.report(Event::Closed(conn), sink),
                Some(Reply::Error(error)) => self.report(Event::Failed(conn, error), sink),
                Some(Reply::Bytes(_)) | None => {}
            }
        }
        if self.wire(conn).generation == generation {
            self.reads_later(conn, false);
        }
    }
}
