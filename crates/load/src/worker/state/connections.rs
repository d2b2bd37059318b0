//! Connections: the state of each, the layers under it, and which address comes next. They are separate from the
//! requests on them because a load may hold many more connections than it has requests in flight: an idle one costs 24
//! bytes here.

use crate::io::ConnId;
use crate::spec::LoadSpec;
use crate::target::Address;
use crate::target::rotation::Addresses;
use crate::worker::state::timeouts::NONE;
use crate::worker::state::tls::TlsTransport;
use crate::worker::state::tunnels::Tunnels;

/// Marks a connection that has had no host yet.
pub const NOWHERE: u16 = u16::MAX;

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No socket.
    Closed,
    /// Being opened.
    Connecting,
    /// Open, with TLS being negotiated.
    Securing,
    /// Open, with nothing in flight.
    Idle,
    /// A request was sent on it, and the response is not complete.
    Busy,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    /// Its current phase.
    pub phase: Phase,
    /// Whether it was open before the current request.
    pub rested: bool,
    /// Index of the host it is, or was last, connected to; [`NOWHERE`] before the first.
    pub host: u16,
    /// Index of the address among the host's.
    pub address: u32,
    /// How many of the host's addresses have refused in a row.
    pub refused: u32,
    /// The exchange that uses it, or [`NONE`].
    pub exchange: u32,
    /// When connecting began, or TLS after it; on the backend's clock, since that may have been before the load began.
    pub since_ns: u64,
}

impl Conn {
    /// A connection without a socket.
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

/// The connections of one load thread.
pub struct Connections<'r> {
    /// Connections by number.
    pub table: Vec<Conn>,
    /// Addresses of the load's hosts.
    pub addresses: Addresses<'r>,
    /// The next connection in turn, where connections are held and shared. Otherwise each slot has its own.
    pub round_robin: Option<u32>,
    /// Number of held connections being opened.
    pub opening: u64,
    /// TLS, if any host is reached by it.
    pub tls: Option<TlsTransport<'r>>,
    /// Tunnels, if there is a proxy.
    pub tunnels: Option<Tunnels<'r>>,
    /// Buffer for the final bytes on a connection before it is closed.
    pub scratch: Vec<u8>,
}

impl<'r> Connections<'r> {
    /// `count` connections, none of them open.
    pub fn new(spec: &'r LoadSpec, count: u32) -> Self {
        Connections {
            table: (0..count).map(|_| Conn::new()).collect(),
            addresses: Addresses::new(&spec.hosts),
            round_robin: spec.held.as_ref().map(|_| 0),
            opening: 0,
            tls: spec.tls.as_deref().map(TlsTransport::new),
            tunnels: spec.proxy.as_deref().map(Tunnels::new),
            scratch: Vec::new(),
        }
    }

    /// Adds connections up to this number, keeping those that exist.
    pub fn reserve(&mut self, last: ConnId) {
        if self.table.len() <= last as usize {
            self.table.resize_with(last as usize + 1, Conn::new);
        }
    }

    /// The address that a connection leads to.
    pub fn address_of(&self, id: ConnId) -> Option<&'r Address> {
        let conn = self.table.get(id as usize)?;
        self.addresses.get(conn.host, conn.address as usize)
    }

    /// The next held connection without a request: there are at least as many connections as slots.
    pub fn take_turn(&mut self) -> ConnId {
        let count = self.table.len() as u32;
        let mut at = self.round_robin.unwrap_or(0);
        while self.table[at as usize].exchange != NONE {
            at = (at + 1) % count;
        }
        self.round_robin = Some((at + 1) % count);
        at
    }

    /// Counts a held connection as no longer opening: it is open, or cannot be opened.
    pub fn opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    /// Whether a proxy was asked for a tunnel on this connection and has not answered.
    pub fn waits_for_tunnel(&self, id: ConnId) -> bool {
        self.tunnels.as_ref().is_some_and(|t| t.is_asked(id))
    }
}
