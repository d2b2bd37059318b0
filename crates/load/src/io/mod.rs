//! A worker's I/O, completion-shaped: it submits *connect, send, close*, and receives the events *connected, received,
//! sent, closed, failed*. Backends are chosen at start and dispatched statically.
//!
//! Nothing here knows about HTTP, schedules or counts. Receive buffers belong to the backend; connections have none.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use crate::target::Address;

pub mod epoll;
pub mod sim;
pub mod uring;

/// An unused argument of `prctl`. Variadic arguments are words: an `int` would leave half of one undefined.
const NONE: libc::c_ulong = 0;

/// Requests longer than this need TCP_NODELAY, or Nagle's algorithm holds back their last segment.
const ONE_SEGMENT: usize = 1400;

/// A connection's place in the worker's table; reused after a close.
pub type ConnId = u32;

/// What a backend reports.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The connection is open.
    Connected(ConnId),
    /// Bytes arrived; they are valid only during the call. If `last`, the peer has closed its side after them (and
    /// [`Event::Closed`] follows, unless the connection was closed in between).
    Received {
        /// The connection.
        conn: ConnId,
        /// The bytes received.
        bytes: &'a [u8],
        /// Whether these are the last bytes.
        last: bool,
    },
    /// More bytes went out of a send that did not complete at once.
    Sent(ConnId, usize),
    /// The peer has closed its side and will send no more.
    Closed(ConnId),
    /// Connecting, sending or receiving failed with this error number.
    Failed(ConnId, i32),
}

/// How long a turn may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When to stop waiting for the first event, on the clock of [`Ops::now`].
    pub until_ns: u64,
    /// With fewer events than this, the turn may wait for more.
    pub at_least: u32,
    /// How long it may wait for `at_least` events, nanoseconds. A backend need not wait.
    pub within_ns: u64,
}

impl Wait {
    /// Waits for one event.
    pub fn until(until_ns: u64) -> Wait {
        Wait { until_ns, at_least: 1, within_ns: 0 }
    }
}

/// Receives events.
pub trait Sink<O> {
    /// Handles one event; may submit more through `ops`.
    fn event(&mut self, ops: &mut O, event: Event<'_>);
}

/// What a worker may submit. `'r` is the lifetime of the requests' bytes. Failures come back as events, in a later
/// turn, never from within the call.
pub trait Ops<'r> {
    /// Monotonic time in nanoseconds.
    fn now(&self) -> u64;
    /// Opens a connection in a free place, from a source address if one is given (a Unix socket has none).
    fn connect(&mut self, conn: ConnId, address: &Address, source: Option<IpAddr>);
    /// Switches Nagle's algorithm off on an open connection: a short send then goes out at once, even if the peer has
    /// not acknowledged the one before.
    fn no_delay(&mut self, conn: ConnId);
    /// Sends all of these bytes, which stay valid as long as the backend. Returns how many went out at once;
    /// the rest is reported by [`Event::Sent`]. One send at a time.
    fn send(&mut self, conn: ConnId, bytes: &'r [u8]) -> usize;
    /// As `send`, for bytes valid only during the call: what does not go out at once is copied. Several such sends may
    /// be in flight; they go out in order.
    fn send_copy(&mut self, conn: ConnId, bytes: &[u8]) -> usize;
    /// Whether events that have happened are left for the next turn, which does not wait then.
    fn is_behind(&self) -> bool {
        false
    }
    /// Whether a connection received something that is left for the next turn.
    fn has_unreported(&self, _conn: ConnId) -> bool {
        false
    }
    /// Closes a connection and frees its place. No event for it follows.
    fn close(&mut self, conn: ConnId);
    /// Sends final bytes and closes, without waiting for their arrival. If another send is still going out, the final
    /// bytes are dropped, since they could end up in the middle of it. Returns how many of them go out.
    fn close_with(&mut self, conn: ConnId, last: &[u8]) -> usize {
        let sent = self.send_copy(conn, last);
        self.close(conn);
        sent
    }
    /// Removes a connection with nothing in flight from the backend, as a plain socket. Its place is then free, and no
    /// event for it follows. `None` if it cannot be removed; it then stays.
    fn give(&mut self, conn: ConnId) -> Option<OwnedFd>;
    /// Puts a socket from `give` into a free place: it is then open, as after [`Event::Connected`]. False if that is
    /// not possible; the socket is then closed.
    fn take(&mut self, conn: ConnId, address: &Address, socket: OwnedFd) -> bool;
    /// Whether the peer's kernel has acknowledged none of the last send's bytes. It then cannot have seen the request,
    /// and sending it again elsewhere duplicates nothing.
    fn unseen(&mut self, conn: ConnId) -> bool;
}

/// An I/O backend.
pub trait Io<'r> {
    /// The operations it accepts.
    type Ops: Ops<'r>;
    /// Its name in the record.
    const NAME: &'static str;
    /// How long a sleeping thread may take to run again, in nanoseconds: a wait for a request that falls due ends this
    /// much earlier, where such waits are rare. 0: waits end exactly.
    const WAKE_EARLY_NS: u64 = 1_000_000;
    /// For submitting outside of an event.
    fn ops(&mut self) -> &mut Self::Ops;
    /// Waits for an event or until the time is up, and reports events: all of them, unless that makes very many sends.
    fn poll(&mut self, wait: Wait, sink: &mut impl Sink<Self::Ops>) -> std::io::Result<()>;
}
