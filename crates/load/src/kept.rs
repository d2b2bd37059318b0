//! Connections that outlive their load: at its end those at rest are handed over, and the next load to the same
//! addresses takes up as many as it can use. A search goes from level to level this way without every user connecting
//! anew.
//!
//! They change hands as sockets of their own, so that it does not matter which thread, or which backend, had them.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustix::process::{Resource, getrlimit};
use rustix::time::Timespec;

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

/// A connection at rest. One that is dropped says TLS's goodbye, as one that a load closes.
struct Spare {
    /// Which host of the load it leads to, and by which address.
    host: u16,
    address: Address,
    /// There until somebody takes it.
    socket: Option<OwnedFd>,
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
        Kept::sharing(1)
    }
}

impl Kept {
    /// One of so many that share what a process may have open.
    pub fn sharing(number: usize) -> Kept {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / FILES_LEFT_OF;
        let most = usize::try_from(files).unwrap_or(usize::MAX) / number.max(1);
        Kept { lanes: Mutex::default(), most }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lanes().iter().map(Vec::len).sum()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes all of them.
    pub fn clear(&self) {
        self.trim(0);
    }

    /// Closes what so many users, spread over the same threads, have no use for.
    pub fn trim(&self, users: usize) {
        let mut lanes = self.lanes();
        let each = users.div_ceil(lanes.len().max(1));
        lanes.iter_mut().for_each(|lane| lane.truncate(each));
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
        let Some(socket) = &self.socket else { return false };
        // An end behind what was said last, such as TLS's goodbye, is not seen by looking at the bytes.
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut asked = [PollFd::new(socket, ended)];
        if !matches!(poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0)) {
            return false;
        }
        match net::recv(socket, &mut [0u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => true,
            // Streams and TLS have things to say between requests.
            Ok((said, _)) => said > 0 && (self.session.is_some() || self.tls.is_some()),
            Err(_) => false,
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let (Some(socket), Some(tls)) = (&self.socket, &mut self.tls) {
            let mut goodbye = Vec::new();
            tls.close(&mut goodbye);
            // Nobody waits for whether it arrives.
            let _ = net::send(socket, &goodbye, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

impl<'r> Worker<'r> {
    /// What connections come from and go to. A WebSocket is its user's, and so is the connection of one who leaves after
    /// a journey.
    fn kept(&self) -> Option<&'r Kept> {
        let leave = self.journey.as_ref().is_some_and(|j| j.has_sessions());
        self.spec.kept.as_deref().filter(|_| self.talks.is_none() && !leave)
    }

    /// Takes up what the load before has left. To be called before the load begins.
    pub(crate) fn take_up(&mut self, ops: &mut impl Ops<'r>) {
        let Some(kept) = self.kept() else { return };
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

    fn take_up_one(
        &mut self,
        ops: &mut impl Ops<'r>,
        (id, address): (ConnId, u32),
        mut spare: Spare,
    ) -> bool {
        let Some(socket) = spare.socket.take() else { return false };
        if !ops.take(id, &spare.address, socket) {
            return false;
        }
        let (host, tls, session) = (spare.host, spare.tls.take(), spare.session.take());
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

    /// Leaves connections at rest to the load that comes next. This is after the load, and in none of its figures.
    pub(crate) fn hand_over(&mut self, ops: &mut impl Ops<'r>) {
        let Some(kept) = self.kept() else { return };
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
            kept.put(self.lane(), Spare { host, address, socket: Some(socket), tls, session });
        }
        for id in 0..self.conns.len() as u32 {
            self.close(ops, id);
        }
    }

    /// The connection stands, and nothing is under way on it.
    fn is_at_rest(&mut self, id: ConnId) -> bool {
        let conn = &self.conns[id as usize];
        let is_idle = conn.phase == Phase::Idle && conn.exchange == NONE;
        is_idle && self.multiplex.as_mut().is_none_or(|m| m.is_at_rest(id))
    }
}

/// The load is over: connections are closed, so that the server sees an orderly end, but for those that may be left to the
/// next one. On these what was said last goes out.
///
/// # Errors
/// The backend's.
pub fn settle<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<()> {
    let keeps = worker.kept().is_some();
    for id in 0..worker.conns.len() as u32 {
        if !keeps || !worker.is_at_rest(id) {
            worker.close(io.ops(), id);
        }
    }
    let until_ns = io.ops().now() + LAST_WORDS_NS;
    while keeps && io.ops().now() < until_ns {
        io.poll(Wait::until(until_ns), worker)?;
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
