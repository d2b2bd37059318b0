//! One connection and the exchange on it.

use crate::deadline::{Link, Links};
use crate::http1::Reader;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No socket.
    Closed,
    /// Connecting, for the exchange that waits on it.
    Connecting,
    /// Open, nothing under way.
    Idle,
    /// A request was sent, its response is not complete.
    Busy,
}

/// A connection. In the closed model it is also a user.
#[derive(Debug)]
pub struct Conn {
    /// Where it is.
    pub phase: Phase,
    /// Which host it is, or was last, connected to.
    pub host: u16,
    /// Which of the host's addresses.
    pub address: u32,
    /// The request under way.
    pub request: u32,
    /// It was sent before, on a connection that turned out to be closed.
    pub resent: bool,
    /// At least a byte of its response came.
    pub answered: bool,
    /// Responses completed on this connection.
    pub served: u32,
    /// Bytes of the request that have not gone out.
    pub unsent: usize,
    /// When the request fell due; times are on the load's clock.
    pub due_ns: u64,
    /// Its first action.
    pub started_ns: u64,
    /// When connecting began.
    pub connect_ns: u64,
    /// Requests this user has begun.
    pub begun: u64,
    /// The response, as far as it came.
    pub reader: Reader,
    /// Place among the deadlines.
    pub link: Link,
    /// Beginning of a response that came in pieces, for the examples.
    pub stash: Option<Box<Stash>>,
}

/// Beginning of a response.
#[derive(Debug, Default)]
pub struct Stash {
    /// Head and body as received, up to what examples keep.
    pub bytes: Vec<u8>,
    /// Where the head ends, if it is complete.
    pub head_end: Option<usize>,
}

impl Conn {
    /// No socket yet.
    pub fn new() -> Self {
        Conn {
            phase: Phase::Closed,
            host: 0,
            address: 0,
            request: 0,
            resent: false,
            answered: false,
            served: 0,
            unsent: 0,
            due_ns: 0,
            started_ns: 0,
            connect_ns: 0,
            begun: 0,
            reader: Reader::default(),
            link: Link::default(),
            stash: None,
        }
    }

    /// A request is under way.
    pub fn in_flight(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Busy)
    }
}

impl Links for Vec<Conn> {
    #[inline]
    fn link(&mut self, id: u32) -> &mut Link {
        &mut self[id as usize].link
    }
}
