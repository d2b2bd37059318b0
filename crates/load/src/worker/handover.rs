//! What a worker takes over from the previous load, and leaves to the next one.

use crate::io::{ConnId, Io, Ops, Wait};
use crate::pool::{ConnectionPool, PooledConnection};
use crate::worker::Worker;
use crate::worker::pacer::Pacer;
use crate::worker::state::connections::ConnPhase;
use crate::worker::state::{Mode, NONE};

/// How long the final bytes on a connection may take to go out.
const LINGER_NS: u64 = 1_000_000;

impl<'r> Worker<'r> {
    /// The pool that connections are taken from and left in; `None` for WebSockets, which belong to their user, and
    /// where users leave after a journey, since their connection also belongs to them.
    fn pool(&self) -> Option<&'r ConnectionPool> {
        let leave = self.journey.as_ref().is_some_and(|j| j.has_sessions());
        self.spec.pool.as_deref().filter(|_| self.mode != Mode::WebSocket && !leave)
    }

    /// Takes over connections that the previous load left. Call it before the load begins.
    pub(crate) fn take_up(&mut self, ops: &mut impl Ops<'r>) {
        let Some(pool) = self.pool() else { return };
        let shard = self.share.thread_after(self.spec.other_threads.before) as usize;
        let mut free_ids = self.free_ids();
        // Unneeded connections are closed: a server must not hold more than this load has.
        for spare in pool.take(shard) {
            if let (Some(address), Some(conn)) = (self.address_for(&spare), free_ids.next(spare.host))
                && spare.is_good()
                && self.take_up_one(ops, conn, address, spare)
            {
                free_ids.taken(conn);
            }
        }
    }

    /// Index of the address that a connection leads to, among its host's; `None` if this load would not have opened it.
    fn address_for(&self, spare: &PooledConnection) -> Option<u32> {
        let addresses = self.spec.hosts.get(usize::from(spare.host))?;
        let address = addresses.iter().position(|a| *a == spare.address)?;
        let is_secure = self.conns.tls.as_ref().is_some_and(|s| s.is_for(spare.host));
        let is_http2 = self.mode == Mode::Http2;
        let alike = is_secure == spare.tls.is_some() && is_http2 == spare.session.is_some();
        alike.then_some(address as u32)
    }

    /// Ids that have no connection yet.
    fn free_ids(&self) -> FreeIds {
        let hosts = if self.mode == Mode::Http2 { self.spec.hosts.len().max(1) } else { 1 };
        let most = u32::try_from(self.max_connections()).unwrap_or(u32::MAX);
        FreeIds { next: (0..hosts as u32).collect(), most }
    }

    /// Most connections this worker may have at one time.
    fn max_connections(&self) -> usize {
        match self.pacer {
            Pacer::Open(_) if self.conns.round_robin.is_none() => self.spec.connections_per_thread(),
            _ => self.conns.table.len(),
        }
    }

    fn take_up_one(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        address: u32,
        mut spare: PooledConnection,
    ) -> bool {
        let Some(socket) = spare.socket.take() else { return false };
        if !ops.take(conn, &spare.address, socket) {
            return false;
        }
        let (host, tls, session) = (spare.host, spare.tls.take(), spare.session.take());
        self.conns.reserve(conn);
        self.conns.table[conn as usize].take_over(host, address);
        if let (Some(secure), Some(tls)) = (&mut self.conns.tls, tls) {
            secure.take_up(conn, tls);
        }
        // Only a load over HTTP/2 is given one: `address_for` compares.
        if let Some(session) = session {
            self.streams.install(conn, session);
        }
        self.measure.recorder.reused();
        true
    }

    /// Leaves idle connections to the next load. This happens after the load, and is in none of its figures.
    pub(crate) fn hand_over(&mut self, ops: &mut impl Ops<'r>) {
        let Some(pool) = self.pool() else { return };
        let shard = self.share.thread_after(self.spec.other_threads.before) as usize;
        for conn in 0..self.conns.table.len() as u32 {
            if !self.is_at_rest(conn) {
                continue;
            }
            let host = self.conns.table[conn as usize].host();
            let Some(address) = self.conns.address_of(conn).cloned() else { continue };
            let Some(socket) = ops.give(conn) else { continue };
            self.conns.table[conn as usize].close();
            self.measure.recorder.connection_closed();
            let tls = self.conns.tls.as_mut().and_then(|s| s.hand_over(conn));
            let session = self.streams.hand_over(conn);
            pool.put(shard, PooledConnection { host, address, socket: Some(socket), tls, session });
        }
        for conn in 0..self.conns.table.len() as u32 {
            self.close_if_open(ops, conn);
        }
    }

    /// Whether the connection is open and nothing is in flight on it.
    fn is_at_rest(&self, conn: ConnId) -> bool {
        let state = &self.conns.table[conn as usize];
        let is_idle = state.phase() == ConnPhase::Idle && state.exchange() == NONE;
        is_idle && (self.mode != Mode::Http2 || self.streams.is_at_rest(conn))
    }
}

/// The load is over: closes connections, so that the server sees an orderly end, except those left to the next load. On
/// the latter the final bytes go out.
///
/// # Errors
/// The backend fails.
pub fn close_connections<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<()> {
    let keeps = worker.pool().is_some();
    for conn in 0..worker.conns.table.len() as u32 {
        if !keeps || !worker.is_at_rest(conn) {
            worker.close_if_open(io.ops(), conn);
        }
    }
    let until_ns = io.ops().now() + LINGER_NS;
    while keeps && io.ops().now() < until_ns {
        io.poll(Wait::until(until_ns), worker)?;
    }
    Ok(())
}

/// Ids that have no connection yet; where connections are shared, each host has its own.
struct FreeIds {
    next: Vec<ConnId>,
    most: u32,
}

impl FreeIds {
    fn next(&self, host: u16) -> Option<ConnId> {
        let next = self.next[usize::from(host) % self.next.len()];
        (next < self.most).then_some(next)
    }

    fn taken(&mut self, conn: ConnId) {
        let hosts = self.next.len();
        self.next[conn as usize % hosts] += hosts as u32;
    }
}
