//! Connections: the state of each, the layers under it, and which address comes next. They are separate from the
//! requests on them because a load may hold many more connections than it has requests in flight: an idle one costs 24
//! bytes here.

use crate::io::ConnId;
use crate::spec::LoadSpec;
use crate::target::Address;
use crate::target::rotation::Addresses;
use crate::worker::state::NONE;
use crate::worker::state::tls::TlsTransport;
use crate::worker::state::tunnels::Tunnels;

/// Marks a connection that has had no host yet.
pub const NOWHERE: u16 = u16::MAX;

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnPhase {
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
    phase: ConnPhase,
    /// Whether it was open before the current request.
    rested: bool,
    /// Index of the host it is, or was last, connected to; [`NOWHERE`] before the first.
    host: u16,
    /// Index of the address among the host's.
    address: u32,
    /// How many of the host's addresses have refused in a row.
    refused: u32,
    /// The exchange that uses it, or [`NONE`].
    exchange: u32,
    /// When connecting began, or TLS after it; on the backend's clock, since that may have been before the load began.
    since_ns: u64,
}

impl Conn {
    /// A connection without a socket.
    pub fn new() -> Self {
        Conn {
            phase: ConnPhase::Closed,
            rested: false,
            host: NOWHERE,
            address: 0,
            refused: 0,
            exchange: NONE,
            since_ns: 0,
        }
    }

    /// Its current phase.
    #[inline]
    pub fn phase(&self) -> ConnPhase {
        self.phase
    }

    /// Whether it has no socket.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.phase == ConnPhase::Closed
    }

    /// Whether it is being opened, or TLS is being negotiated.
    #[inline]
    pub fn is_being_made(&self) -> bool {
        matches!(self.phase, ConnPhase::Connecting | ConnPhase::Securing)
    }

    /// Whether it was open before the current request.
    #[inline]
    pub fn rested(&self) -> bool {
        self.rested
    }

    /// Index of the host it is, or was last, connected to; [`NOWHERE`] before the first.
    #[inline]
    pub fn host(&self) -> u16 {
        self.host
    }

    /// Index of the address among the host's.
    #[inline]
    pub fn address(&self) -> u32 {
        self.address
    }

    /// The exchange that uses it, or [`NONE`].
    #[inline]
    pub fn exchange(&self) -> u32 {
        self.exchange
    }

    /// When connecting began, or TLS after it, on the backend's clock.
    #[inline]
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Begins to connect to a host, at one of its addresses.
    pub fn begin_connecting(&mut self, host: u16, address: u32, since_ns: u64) {
        self.host = host;
        self.address = address;
        self.phase = ConnPhase::Connecting;
        self.since_ns = since_ns;
        self.rested = false;
    }

    /// The host is reached: begins TLS.
    pub fn begin_tls(&mut self, since_ns: u64) {
        self.phase = ConnPhase::Securing;
        self.since_ns = since_ns;
    }

    /// Takes over an open connection that an earlier load left.
    pub fn take_over(&mut self, host: u16, address: u32) {
        self.phase = ConnPhase::Idle;
        self.host = host;
        self.address = address;
        self.rested = true;
    }

    /// Counts that the current address has refused; returns how many have in a row.
    pub fn count_refusal(&mut self) -> u32 {
        self.refused += 1;
        self.refused
    }

    /// The host was reached, or another request needs the connection: every address may be tried again.
    pub fn forget_refusals(&mut self) {
        self.refused = 0;
    }

    /// Assigns an exchange: the connection is its own until it ends.
    #[inline]
    pub fn assign(&mut self, exchange: u32) {
        self.exchange = exchange;
        self.refused = 0;
    }

    /// The assigned exchange is sent on the connection as it is: it was open before.
    #[inline]
    pub fn reuse(&mut self) {
        self.rested = true;
    }

    /// Assigns an exchange that continues the conversation on it: it is not sent again on another connection.
    pub fn continue_with(&mut self, exchange: u32) {
        self.exchange = exchange;
        self.rested = false;
    }

    /// An exchange has ended. One that could not be written never had the connection, which may serve another one by
    /// now.
    #[inline]
    pub fn release(&mut self, exchange: u32) {
        if self.exchange == exchange {
            self.exchange = NONE;
        }
    }

    /// A request is sent on it.
    #[inline]
    pub fn become_busy(&mut self) {
        self.phase = ConnPhase::Busy;
    }

    /// It is open, and nothing is in flight on it.
    #[inline]
    pub fn become_idle(&mut self) {
        self.phase = ConnPhase::Idle;
    }

    /// What was in flight on it has ended; it may have been closed meanwhile.
    pub fn end_use(&mut self) {
        if self.phase == ConnPhase::Busy {
            self.phase = ConnPhase::Idle;
        }
    }

    /// Its socket is gone.
    #[inline]
    pub fn close(&mut self) {
        self.phase = ConnPhase::Closed;
    }
}

/// The connections of one load thread.
pub struct Connections<'r> {
    /// Connections by number.
    pub table: Vec<Conn>,
    /// Addresses of the load's hosts.
    pub addresses: Addresses<'r>,
    /// The next connection in turn, where connections are held and shared. Otherwise each slot has its own.
    pub round_robin: Option<ConnId>,
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
    pub fn address_of(&self, conn: ConnId) -> Option<&'r Address> {
        let state = self.table.get(conn as usize)?;
        self.addresses.get(state.host, state.address as usize)
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
    pub fn waits_for_tunnel(&self, conn: ConnId) -> bool {
        self.tunnels.as_ref().is_some_and(|t| t.is_asked(conn))
    }
}
