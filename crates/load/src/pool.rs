//! Connections that outlive their load: at its end the idle ones are handed over, and the next load to the same
//! addresses takes as many as it can use. This way a search moves from level to level without every user reconnecting.
//!
//! They are handed over as plain sockets, so it does not matter which thread, or which backend, had them.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use loadlab_record::sync::lock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustix::process::{Resource, getrlimit};
use rustix::time::Timespec;

use crate::protocol::http2::Session;
use crate::protocol::tls::Tls;
use crate::target::Address;

/// Between two loads each connection is an open file of this process. The pool may hold this fraction of the limit;
/// the rest is for everything else.
const FILES_LEFT_OF: u64 = 2;

/// Connections kept between two loads.
#[derive(Debug)]
pub struct ConnectionPool {
    /// By load thread: the same users on the same number of threads find as many connections again.
    shards: Mutex<Vec<Vec<PooledConnection>>>,
    most: usize,
}

/// An idle connection. Dropping it sends TLS's close_notify, as a load does when it closes one.
pub(crate) struct PooledConnection {
    /// Index of the host it leads to in the load, and the address it is connected to.
    pub host: u16,
    pub address: Address,
    /// Present until taken.
    pub socket: Option<OwnedFd>,
    pub tls: Option<Box<Tls>>,
    pub session: Option<Box<Session>>,
}

impl std::fmt::Debug for PooledConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PooledConnection")
            .field("host", &self.host)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Default for ConnectionPool {
    fn default() -> Self {
        ConnectionPool::sharing(1)
    }
}

impl ConnectionPool {
    /// One of `number` pools that share the process's limit on open files.
    pub fn sharing(number: usize) -> ConnectionPool {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / FILES_LEFT_OF;
        let most = usize::try_from(files).unwrap_or(usize::MAX) / number.max(1);
        ConnectionPool { shards: Mutex::default(), most }
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.shards().iter().map(Vec::len).sum()
    }

    /// Whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes all connections.
    pub fn clear(&self) {
        self.trim(0);
    }

    /// Closes the connections that `users` users, spread over the same threads, cannot use.
    pub fn trim(&self, users: usize) {
        let mut shards = self.shards();
        let each = users.div_ceil(shards.len().max(1));
        shards.iter_mut().for_each(|shard| shard.truncate(each));
    }

    fn shards(&self) -> MutexGuard<'_, Vec<Vec<PooledConnection>>> {
        // A panic leaves the list intact: entries are moved in and out in one step.
        lock(&self.shards)
    }

    pub(crate) fn put(&self, shard: usize, spare: PooledConnection) {
        let mut shards = self.shards();
        if shards.iter().map(Vec::len).sum::<usize>() < self.most {
            if shards.len() <= shard {
                shards.resize_with(shard + 1, Vec::new);
            }
            shards[shard].push(spare);
        }
    }

    pub(crate) fn take(&self, shard: usize) -> Vec<PooledConnection> {
        self.shards().get_mut(shard).map(std::mem::take).unwrap_or_default()
    }
}

impl PooledConnection {
    /// Whether the server still holds it and has sent nothing unsolicited.
    pub fn is_good(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        // Peeking at the bytes does not show a close after the last ones, such as after TLS's close_notify.
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut asked = [PollFd::new(socket, ended)];
        if !matches!(poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0)) {
            return false;
        }
        match net::recv(socket, &mut [0u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => true,
            // HTTP/2 sessions and TLS may send between requests.
            Ok((peeked, _)) => peeked > 0 && (self.session.is_some() || self.tls.is_some()),
            Err(_) => false,
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let (Some(socket), Some(tls)) = (&self.socket, &mut self.tls) {
            let mut goodbye = Vec::new();
            tls.close(&mut goodbye);
            // Whether it arrives does not matter.
            let _ = net::send(socket, &goodbye, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}
