//! Connections, and the exchanges on them. They are apart because a load may hold many more connections than
//! it has requests under way: a connection at rest costs 24 bytes here.

use crate::journey::script::{Kept, Trouble};
use crate::protocol::http1::Reader;
use crate::worker::timeouts::{Link, Links, NONE};

/// No host.
pub const NOWHERE: u16 = u16::MAX;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No socket.
    Closed,
    /// Being made.
    Connecting,
    /// It stands, and TLS is being agreed on.
    Securing,
    /// Open, nothing under way.
    Idle,
    /// A request was sent on it, the response is not complete.
    Busy,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    /// Where it is.
    pub phase: Phase,
    /// It was open before the present request.
    pub rested: bool,
    /// Which host it is, or was last, connected to; [`NOWHERE`] before the first.
    pub host: u16,
    /// Which of the host's addresses.
    pub address: u32,
    /// How many of them have refused it in a row.
    pub refused: u32,
    /// The exchange it is for, or [`NONE`].
    pub exchange: u32,
    /// When connecting began, or TLS after it: on the backend's clock, since it may have been before the load began.
    pub since_ns: u64,
}

impl Conn {
    /// No socket yet.
    pub fn new() -> Self {
        Conn {
            phase: Phase::Closed,
            rested: false,
            host: NOWHERE,
            address: 0,
            refused: 0,
            exchange: NONE,
            since_ns: 0,
        }
    }
}

/// A request under way, or the place for one. In the closed model it is a user.
#[derive(Debug)]
pub struct Exchange {
    /// Its connection, or [`NONE`] while nothing is under way and connections are shared.
    pub conn: u32,
    /// The request.
    pub request: u32,
    /// It is under way.
    pub under_way: bool,
    /// It was sent before, on a connection that turned out to be closed.
    pub resent: bool,
    /// At least a byte of its response came.
    pub answered: bool,
    /// Status of its answer, where that is not the reader's to know.
    pub status: u16,
    /// The id that the request carries, if it carries one and was written.
    pub id: Option<u64>,
    /// Bytes of the request.
    pub length: usize,
    /// Bytes of the request that have not gone out.
    pub unsent: usize,
    /// When the request fell due; times are on the load's clock.
    pub due_ns: u64,
    /// Its first action.
    pub started_ns: u64,
    /// When the last of a paced user's requests fell due that it began, dropped or left out while nothing waited. What is
    /// under way may be another one: where it was redirected to, or what it does when it leaves.
    pub paced_ns: u64,
    /// Times behind it at which nothing fell due for a paced user, since what waited was all it had to do: the first and
    /// the last of each run, in order.
    pub left_out: Vec<(u64, u64)>,
    /// Requests begun or dropped in this place.
    pub begun: u64,
    /// Requests of a paced user that fell due while it was at an earlier one, and wait for it.
    pub waiting: u64,
    /// The response, as far as it came.
    pub reader: Reader,
    /// Place among the deadlines.
    pub link: Link,
    /// Beginning of a response that came in pieces, for the examples.
    pub stash: Option<Box<Stash>>,
    /// The whole answer, where it is judged by more than its status.
    pub kept: Option<Box<Kept>>,
}

/// An exchange whose request could not be written, and why. What began is known by its request and its start: the place
/// may be at another one when this is told.
#[derive(Debug)]
pub struct Unwritten {
    /// The exchange.
    pub id: u32,
    /// What it was at.
    pub request: u32,
    /// Since when.
    pub started_ns: u64,
    /// Why.
    pub trouble: Trouble,
}

/// Beginning of a response.
#[derive(Debug, Default)]
pub struct Stash {
    /// Head and body as received, up to what examples keep.
    pub bytes: Vec<u8>,
    /// Where the head ends, if it is complete.
    pub head_end: Option<usize>,
}

impl Exchange {
    /// Nothing under way.
    pub fn new(conn: u32) -> Self {
        Exchange {
            conn,
            request: 0,
            under_way: false,
            resent: false,
            answered: false,
            status: 0,
            id: None,
            length: 0,
            unsent: 0,
            due_ns: 0,
            started_ns: 0,
            paced_ns: 0,
            left_out: Vec::new(),
            begun: 0,
            waiting: 0,
            reader: Reader::default(),
            link: Link::default(),
            stash: None,
            kept: None,
        }
    }

    /// What it is at could not be written.
    pub fn unwritten(&self, id: u32, trouble: Trouble) -> Unwritten {
        Unwritten { id, request: self.request, started_ns: self.started_ns, trouble }
    }
}

impl Links for Vec<Exchange> {
    #[inline]
    fn link(&mut self, id: u32) -> &mut Link {
        &mut self[id as usize].link
    }

    #[inline]
    fn at_ns(&self, id: u32) -> u64 {
        self[id as usize].link.at_ns
    }
}
