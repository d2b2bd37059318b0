//! Connections that outlive their load: at its end those at rest are handed over, and the next load to the same
//! addresses takes up as many as it can use. A search goes from level to level this way without every user connecting
//! anew.
//!
//! They change hands as sockets of their own, so that it does not matter which thread, or which backend, had them.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags};
use rustix::process::{Resource, getrlimit};

use crate::conn::Phase;
use crate::deadline::NONE;
use crate::http2::Session;
use crate::io::{ConnId, Io, Ops, Wait};
use crate::target::Address;
use crate::tls::Tls;
use crate::worker::Worker;

/// Between two loads a connection is a file of this process: this part of those it may have stays for all else.
const FILES_LEFT_OF: u64 = 2;

/// What was said last on a connection has so long to go out.
const LAST_WORDS_NS: u64 = 1_000_000;

/// Connections between two loads.
#[derive(Debug)]
pub struct Kept {
    /// By load thread: users that are spread over as many threads again find as many again.
    lanes: Mutex<Vec<Vec<Spare>>>,
    most: usize,
}

/// A connection at rest.
struct Spare {
    /// Which host of the load it leads to, and by which address.
    host: u16,
    address: Address,
    socket: OwnedFd,
    tls: Option<Box<Tls>>,
    session: Option<Box<Session>>,
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spare")
            .field("host", &self.host)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Default for Kept {
    fn default() -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(files / FILES_LEFT_OF).unwrap_or(usize::MAX);
        Kept { lanes: Mutex::default(), most }
    }
}

impl Kept {
    /// Closes all of them.
    pub fn clear(&self) {
        self.lanes().clear();
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Vec<Spare>>> {
        // Whoever panicked left the list whole: it is moved in and out at once.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, lane: usize, spare: Spare) {
        let mut lanes = self.lanes();
        if lanes.iter().map(Vec::len).sum::<usize>() < self.most {
            if lanes.len() <= lane {
                lanes.resize_with(lane + 1, Vec::new);
            }
            lanes[lane].push(spare);
        }
    }

    fn take(&self, lane: usize) -> Vec<Spare> {
        self.lanes().get_mut(lane).map(std::mem::take).unwrap_or_default()
    }
}

impl Spare {
    /// The server still holds it, and has said nothing that nobody asked for.
    fn is_good(&self) -> bool {
        match net::recv(&self.socket, &mut [0u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => true,
            // Streams and TLS have things to say between requests.
            Ok((said, _)) => said > 0 && (self.session.is_some() || self.tls.is_some()),
            Err(_) => false,
        }
    }
}

impl<'r> Worker<'r> {
    /// Takes up what the load before has left. To be called before the load begins.
    pub(crate) fn take_up(&mut self, ops: &mut impl Ops<'r>) {
        let Some(kept) = self.spec.kept.as_deref().filter(|_| self.talks.is_none()) else { return };
        let mut places = self.places();
        // Those for which there is no use are closed: a server must not hold more than this load has.
        for spare in kept.take(self.lane()) {
            if let (Some(address), Some(id)) = (self.address_for(&spare), places.next(spare.host))
                && spare.is_good()
                && self.take_up_one(ops, (id, address), spare)
            {
                places.taken(id);
            }
        }
    }

    /// Which of its host's addresses a connection leads to; `None` where this load would not have made it.
    fn address_for(&self, spare: &Spare) -> Option<u32> {
        let addresses = self.spec.hosts.get(usize::from(spare.host))?;
        let address = addresses.iter().position(|a| *a == spare.address)?;
        let is_secure = self.secure.as_ref().is_some_and(|s| s.is_for(spare.host));
        let alike = is_secure == spare.tls.is_some() && self.multiplex.is_some() == spare.session.is_some();
        alike.then_some(address as u32)
    }

    /// Places for connections, none of them taken.
    fn places(&self) -> Places {
        let hosts = self.multiplex.as_ref().map_or(1, |_| self.spec.hosts.len().max(1));
        let most = u32::try_from(self.most_connections()).unwrap_or(u32::MAX);
        Places { next: (0..hosts as u32).collect(), most }
    }

    fn take_up_one(&mut self, ops: &mut impl Ops<'r>, (id, address): (ConnId, u32), spare: Spare) -> bool {
        let Spare { host, socket, tls, session, address: to } = spare;
        if !ops.take(id, &to, socket) {
            return false;
        }
        self.make_places(id);
        let conn = &mut self.conns[id as usize];
        (conn.phase, conn.host, conn.address, conn.rested) = (Phase::Idle, host, address, true);
        if let (Some(secure), Some(tls)) = (&mut self.secure, tls) {
            secure.take_up(id, tls);
        }
        if let (Some(multiplex), Some(session)) = (&mut self.multiplex, session) {
            multiplex.take_up(id, session);
        }
        self.recorder.taken_over();
        true
    }

    /// Leaves connections at rest to the load that comes next, once what was said on them last is on its way.
    fn hand_over(&mut self, ops: &mut impl Ops<'r>, kept: &Kept) {
        for id in 0..self.conns.len() as u32 {
            if !self.is_at_rest(id) {
                continue;
            }
            let (host, address) = (self.conns[id as usize].host, self.conns[id as usize].address);
            let Some(address) = self.addresses.get(host, address as usize).cloned() else { continue };
            let Some(socket) = ops.give(id) else { continue };
            self.conns[id as usize].phase = Phase::Closed;
            self.recorder.closed();
            let tls = self.secure.as_mut().and_then(|s| s.hand_over(id));
            let session = self.multiplex.as_mut().and_then(|m| m.hand_over(id));
            kept.put(self.lane(), Spare { host, address, socket, tls, session });
        }
    }

    /// The connection stands, and nothing is under way on it.
    fn is_at_rest(&mut self, id: ConnId) -> bool {
        let conn = &self.conns[id as usize];
        let is_idle = conn.phase == Phase::Idle && conn.exchange == NONE;
        is_idle && self.multiplex.as_mut().is_none_or(|m| m.is_at_rest(id))
    }
}

/// The load is over: connections are left to the next one, or closed, so that the server sees an orderly end.
///
/// # Errors
/// The backend's.
pub fn leave<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<()> {
    // A WebSocket is its user's.
    if let Some(kept) = worker.spec.kept.as_deref().filter(|_| worker.talks.is_none()) {
        for id in 0..worker.conns.len() as u32 {
            if !worker.is_at_rest(id) {
                worker.close(io.ops(), id);
            }
        }
        let until_ns = io.ops().now() + LAST_WORDS_NS;
        io.poll(Wait::until(until_ns), worker)?;
        worker.hand_over(io.ops(), kept);
    }
    for id in 0..worker.conns.len() as u32 {
        worker.close(io.ops(), id);
    }
    Ok(())
}

/// Free places for connections, of each host those that are its own where connections are shared.
struct Places {
    next: Vec<u32>,
    most: u32,
}

impl Places {
    fn next(&self, host: u16) -> Option<ConnId> {
        let next = self.next[usize::from(host) % self.next.len()];
        (next < self.most).then_some(next)
    }

    fn taken(&mut self, id: ConnId) {
        let hosts = self.next.len();
        self.next[id as usize % hosts] += hosts as u32;
    }
}
