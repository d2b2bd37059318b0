//! A worker's I/O, completion-shaped: it submits *connect, send, close*, and receives the events *connected, received,
//! sent, closed, failed*. Backends are chosen at start and dispatched statically.
//!
//! Nothing here knows HTTP, schedules or counts. A backend has one receive buffer, connections none.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use crate::target::Address;

pub mod epoll;
pub mod sim;
pub mod uring;

/// An unused argument of `prctl`. Variadic arguments are words: an `int` would leave half of one undefined.
const NONE: libc::c_ulong = 0;

/// A connection's place in the worker's table; reused after a close.
pub type ConnId = u32;

/// What a backend reports.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The connection is open.
    Connected(ConnId),
    /// Bytes came, valid during the call only. If `last`, the peer has closed its side after them (and
    /// [`Event::Closed`] follows, unless the connection was closed in between).
    Received {
        /// Where.
        conn: ConnId,
        /// What.
        bytes: &'a [u8],
        /// Nothing will follow.
        last: bool,
    },
    /// More of a send that did not go out at once has gone out.
    Sent(ConnId, usize),
    /// The peer will send no more.
    Closed(ConnId),
    /// Connecting, sending or receiving failed with this error number.
    Failed(ConnId, i32),
}

/// How long a turn may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For the first event, until then on the clock of [`Ops::now`].
    pub until_ns: u64,
    /// If there are fewer events than this …
    pub at_least: u32,
    /// … it may wait this long for the others. A backend need not.
    pub within_ns: u64,
}

impl Wait {
    /// For one event.
    pub fn until(until_ns: u64) -> Wait {
        Wait { until_ns, at_least: 1, within_ns: 0 }
    }
}

/// Receives events.
pub trait Sink<O> {
    /// One event; may submit more through `ops`.
    fn event(&mut self, ops: &mut O, event: Event<'_>);
}

/// What a worker may submit. `'r` is the lifetime of the requests' bytes. Failures come back as events, in a later
/// turn, never from within the call.
pub trait Ops<'r> {
    /// Monotonic time in nanoseconds.
    fn now(&self) -> u64;
    /// Opens a connection in a free place, from a source address if one is given (a Unix socket has none).
    fn connect(&mut self, conn: ConnId, address: &Address, source: Option<IpAddr>);
    /// Sends all of these bytes, which stay valid as long as the backend. Returns how many went out at once;
    /// the rest is reported by [`Event::Sent`]. One send at a time.
    fn send(&mut self, conn: ConnId, bytes: &'r [u8]) -> usize;
    /// The same for bytes valid only during the call: what does not go out at once is copied. Several of these may be
    /// under way; they go out in order.
    fn send_copy(&mut self, conn: ConnId, bytes: &[u8]) -> usize;
    /// Closes a connection and frees its place. No event for it follows.
    fn close(&mut self, conn: ConnId);
    /// Sends final bytes and closes: nothing waits for their arrival. If something else is still going out, they are
    /// left out, since they could only end up in the middle of it. Returns how many of them go out.
    fn close_with(&mut self, conn: ConnId, last: &[u8]) -> usize {
        let sent = self.send_copy(conn, last);
        self.close(conn);
        sent
    }
    /// Removes a connection with nothing under way from the backend, as a plain socket. Its place is then free, and no
    /// event for it follows. `None`: it cannot be removed, and stays.
    fn give(&mut self, conn: ConnId) -> Option<OwnedFd>;
    /// Puts such a socket into a free place: it is then open, as after [`Event::Connected`]. False: it cannot, and the
    /// socket is closed.
    fn take(&mut self, conn: ConnId, address: &Address, socket: OwnedFd) -> bool;
    /// The peer's kernel has acknowledged none of the bytes of the last send: it cannot have seen the request, so
    /// sending it again elsewhere duplicates nothing.
    fn unseen(&mut self, conn: ConnId) -> bool;
}

/// A backend.
pub trait Io<'r> {
    /// What may be submitted to it.
    type Ops: Ops<'r>;
    /// Its name in the record.
    const NAME: &'static str;
    /// How long a sleeping thread may take to run again, in nanoseconds: a wait for a request that falls due ends this
    /// much earlier, where such waits are rare. 0: waits end exactly.
    const WAKE_EARLY_NS: u64 = 1_000_000;
    /// For submitting outside of an event.
    fn ops(&mut self) -> &mut Self::Ops;
    /// Waits until something happens or the time comes, and reports all of it.
    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()>;
}
