//! The life of a connection: `connect` → `on_connected` → tunnel → `on_host_reached` → TLS → `on_ready`; and how it ends.
//! Its use is in [`crate::worker::exchange`] and its neighbours.

use std::sync::atomic::Ordering;

use loadlab_record::counts::load::OwnLimit;
use loadlab_record::counts::outcome::Failure;
use loadlab_record::text::first_line;

use crate::io::{ConnId, Io, Ops, Wait};
use crate::measure::examples::Reason;
use crate::protocol::connect::{ConnectReply, read};
use crate::protocol::tls::TlsError;
use crate::worker::exchange::Chunk;
use crate::worker::state::connections::ConnPhase;
use crate::worker::state::{Mode, NONE};
use crate::worker::{RUN, Worker};

/// Most held connections that may be opening at one time.
const OPENING_AT_ONCE: u64 = 1024;

/// Opens the connections to be held, at their rate, before the load begins. Connections that cannot be opened now are
/// opened when a request needs them.
pub fn open_held<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<()> {
    let Some(held) = &worker.spec.held else { return Ok(()) };
    let rate_per_s = held.rate_per_s / worker.share.threads as f64;
    let begun_ns = io.ops().now();
    worker.start_ns = begun_ns;
    worker.measure.recorder.hold();
    let count = worker.conns.table.len() as u64;
    let mut next = 0u64;
    loop {
        let now = worker.now(io.ops());
        let due = |k: u64| (k as f64 * 1e9 / rate_per_s) as u64;
        while next < count && due(next) <= now && worker.conns.opening < OPENING_AT_ONCE {
            if worker.conns.table[next as usize].is_closed() {
                worker.conns.opening += 1;
                worker.connect(io.ops(), next as u32, 0, now);
            }
            next += 1;
        }
        let all = next == count;
        let late = all && now > due(next).saturating_add(worker.spec.timeout_ns);
        if (all && worker.conns.opening == 0) || late || worker.control.load(Ordering::Relaxed) != RUN {
            return Ok(());
        }
        let is_full = all || worker.conns.opening >= OPENING_AT_ONCE;
        let until = if is_full { now + 100_000_000 } else { due(next) };
        io.poll(Wait::until(begun_ns + until), worker)?;
    }
}

impl<'r> Worker<'r> {
    /// Starts connecting to a host, at its next address.
    pub(crate) fn connect(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, host: u16, now: u64) {
        let number = self.share.number_of(conn);
        let state = &mut self.conns.table[conn as usize];
        // Each connection cycles through all addresses, and neighbours start with different ones.
        let from = if state.host() == host { state.address() as usize + 1 } else { number as usize };
        let address = self.conns.addresses.choose(host, from, now) as u32;
        let since_ns = self.start_ns + now;
        state.begin_connecting(host, address, since_ns);
        if self.mode == Mode::Http2 {
            self.streams.begin_connecting(conn, since_ns);
        }
        let source = match self.spec.sources.as_slice() {
            [] => None,
            sources => Some(sources[self.share.turn_of(conn, sources.len())]),
        };
        let Some(address) = self.conns.address_of(conn) else { return };
        self.measure.recorder.connecting();
        ops.connect(conn, address, source);
    }

    /// TCP is connected: asks for a tunnel if the host needs one.
    pub(crate) fn on_connected(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        if self.mode != Mode::Http1 || self.conns.tls.is_some() {
            // One short send may follow another before a response. The kernel would hold it back until the first is
            // acknowledged, which may take 40 ms, and the system would be blamed.
            ops.no_delay(conn);
        }
        let host = self.conns.table[conn as usize].host();
        match self.conns.tunnels.as_mut().and_then(|tunnels| tunnels.ask(conn, host)) {
            Some(request) => self.measure.recorder.sent(ops.send(conn, request)),
            None => self.on_host_reached(ops, conn),
        }
    }

    /// The host is reached, through a tunnel if needed: starts TLS if the host needs it.
    fn on_host_reached(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let now = self.now(ops);
        let state = &mut self.conns.table[conn as usize];
        state.forget_refusals();
        let (host, exchange) = (state.host(), state.exchange());
        let took_ns = ops.now().saturating_sub(state.since_ns());
        if exchange != NONE || self.mode == Mode::Http2 {
            self.measure.recorder.roll(now);
        }
        self.measure.recorder.connected(self.due_of(conn), took_ns);
        let Some(tls) = &mut self.conns.tls else { return self.on_ready(ops, conn) };
        let Some(started) = tls.start(conn, host) else { return self.on_ready(ops, conn) };
        self.conns.table[conn as usize].begin_tls(ops.now());
        match started {
            Ok(hello) => self.measure.recorder.sent(ops.send_copy(conn, hello)),
            Err(error) => self.tls_failed(ops, conn, &error),
        }
    }

    /// A connection is ready for requests.
    fn on_ready(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        if self.mode == Mode::Http2 {
            return self.streams_open(ops, conn);
        }
        let state = &mut self.conns.table[conn as usize];
        if state.exchange() == NONE {
            state.become_idle();
            return self.conns.opened();
        }
        self.transmit(ops, conn);
    }

    /// The due time that a connection being opened is attributed to: that of its request or, if it is shared by
    /// several, when connecting began. A connection opened to be held belongs to the window.
    fn due_of(&self, conn: ConnId) -> u64 {
        let exchange = self.slots.exchanges.get(self.conns.table[conn as usize].exchange() as usize);
        let since_ns = self.streams.connecting_since(conn);
        let since_ns = since_ns.map(|since_ns| since_ns.saturating_sub(self.start_ns));
        exchange.map(|e| e.due_ns).or(since_ns).unwrap_or(u64::MAX)
    }

    /// Handles bytes on a connection that is waiting for its tunnel.
    pub(crate) fn tunnel_received(
        &mut self,
        ops: &mut impl Ops<'r>,
        conn: ConnId,
        chunk: Chunk<'_>,
        now: u64,
    ) {
        let Some(asked) = self.conns.tunnels.as_mut().map(|tunnels| tunnels.asked(conn)) else { return };
        let Some(mut response) = asked.take() else { return };
        response.extend_from_slice(chunk.bytes);
        match read(&response) {
            ConnectReply::Partial => *asked = Some(response),
            ConnectReply::Refused(message) => self.fail_tunnel(ops, conn, message),
            ConnectReply::Open(length) => {
                self.on_host_reached(ops, conn);
                // A server that speaks first may already have done so.
                let rest = &response[length..];
                let phase = self.conns.table[conn as usize].phase();
                let is_open = !matches!(phase, ConnPhase::Closed | ConnPhase::Connecting);
                if !rest.is_empty() && is_open {
                    self.host_received(ops, conn, Chunk { bytes: rest, ..chunk }, now);
                }
            }
        }
    }

    /// The tunnel failed: its request fails to connect.
    #[cold]
    fn fail_tunnel(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, message: String) {
        if let Some(tunnels) = &mut self.conns.tunnels {
            tunnels.last_error = message;
            tunnels.forget(conn);
        }
        self.fail_connection(ops, conn, Failure::Connect, Reason::Proxy);
    }

    /// Handles bytes on a TLS connection.
    pub(crate) fn tls_received(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, chunk: Chunk<'_>, now: u64) {
        let Some(tls) = &mut self.conns.tls else { return };
        if !tls.is_on(conn) {
            return self.plain_received(ops, conn, chunk, now);
        }
        let received = tls.receive(conn, chunk.bytes);
        let reply = tls.reply();
        if received.result.is_ok() && !reply.is_empty() {
            self.measure.recorder.sent(ops.send_copy(conn, reply));
        }
        if received.has_opened && received.result.is_ok() {
            self.tls_established(ops, conn);
        }
        // Handling the handshake may have closed the connection. If it failed, what came with it answers nothing.
        let is_on = |worker: &Self| worker.conns.tls.as_ref().is_some_and(|tls| tls.is_on(conn));
        let is_ready = self.conns.table[conn as usize].phase() != ConnPhase::Securing;
        if !received.plain.is_empty() && is_ready && is_on(self) {
            // Nothing more can be sent on a connection whose TLS broke.
            let last = chunk.last || received.result.is_err();
            self.plain_received(ops, conn, Chunk { bytes: &received.plain, last }, now);
        }
        if let Some(tls) = &mut self.conns.tls {
            tls.take_back(received.plain);
        }
        if let Err(error) = received.result
            && is_on(self)
        {
            self.tls_failed(ops, conn, &error);
        }
    }

    /// The TLS handshake is complete.
    fn tls_established(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let took_ns = ops.now().saturating_sub(self.conns.table[conn as usize].since_ns());
        self.measure.recorder.secured(self.due_of(conn), took_ns);
        if self.mode == Mode::Http2
            && self.conns.tls.as_ref().and_then(|tls| tls.protocol(conn)) != Some(&b"h2"[..])
        {
            return self.tls_failed(ops, conn, &TlsError::NoProtocol);
        }
        self.on_ready(ops, conn);
    }

    /// The TLS handshake failed, or an open TLS connection broke.
    #[cold]
    fn tls_failed(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, error: &TlsError) {
        if let Some(tls) = &mut self.conns.tls {
            tls.last_error = first_line(&error.to_string());
        }
        self.fail_connection(ops, conn, Failure::Tls, Reason::Tls);
    }

    /// A connection could not be made, or its TLS broke: everything that needs it fails.
    fn fail_connection(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, failure: Failure, reason: Reason) {
        if self.mode == Mode::Http2 {
            return self.streams_ended(ops, conn, Some((failure, reason)));
        }
        let state = &self.conns.table[conn as usize];
        match state.exchange() {
            NONE => {
                if state.is_being_made() {
                    self.conns.opened();
                }
                self.close(ops, conn);
            }
            exchange => self.fail(ops, exchange, failure, reason),
        }
    }

    /// The peer has closed its side (`None`), or the connection broke.
    pub(crate) fn on_end(&mut self, ops: &mut impl Ops<'r>, conn: ConnId, error: Option<i32>) {
        if self.conns.waits_for_tunnel(conn) {
            let message = match error {
                None => "the proxy closed the connection instead of answering CONNECT".to_owned(),
                Some(error) => format!("connection to the proxy lost: {}", Reason::Os(error)),
            };
            return self.fail_tunnel(ops, conn, message);
        }
        let reason = error.map_or(Reason::Text("connection closed by the server"), Reason::Os);
        match self.conns.table[conn as usize].phase() {
            ConnPhase::Connecting => {
                if let Some(limit) = error.and_then(own_limit) {
                    self.measure.recorder.own_limit(limit);
                }
                if !self.try_next_address(ops, conn) {
                    self.fail_connection(ops, conn, Failure::Connect, reason);
                }
            }
            ConnPhase::Securing => self.fail_connection(ops, conn, Failure::Tls, reason),
            ConnPhase::Closed | ConnPhase::Idle | ConnPhase::Busy => match self.mode {
                Mode::Http2 => self.streams_ended(ops, conn, Some((Failure::Reset, reason))),
                Mode::WebSocket => {
                    if !self.conversation_ended(ops, conn, error) {
                        self.connection_ended(ops, conn, error, reason);
                    }
                }
                Mode::Http1 => self.connection_ended(ops, conn, error, reason),
            },
        }
    }

    /// The address refused. Returns true if the connection is now being made to another address of its host.
    fn try_next_address(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) -> bool {
        let now = self.now(ops);
        let state = &mut self.conns.table[conn as usize];
        let (host, address) = (state.host(), state.address());
        let refused = state.count_refusal();
        self.conns.addresses.refused(host, address as usize, now);
        if refused as usize >= self.conns.addresses.count(host) {
            return false;
        }
        self.measure.recorder.roll(now);
        self.close(ops, conn);
        self.connect(ops, conn, host, now);
        true
    }

    /// Closes a connection if it is open.
    pub(crate) fn close_if_open(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        if !self.conns.table[conn as usize].is_closed() {
            self.close(ops, conn);
        }
    }

    /// Closes a connection, sending its protocols' final bytes first.
    pub(crate) fn close(&mut self, ops: &mut impl Ops<'r>, conn: ConnId) {
        let mut last = std::mem::take(&mut self.conns.scratch);
        last.clear();
        self.conversations.close(conn, &mut last);
        if let Some(tls) = &mut self.conns.tls {
            // A server that was asked for one response only closes after it.
            tls.leave(conn, &mut last, self.spec.keep_alive);
        }
        if let Some(tunnels) = &mut self.conns.tunnels {
            tunnels.forget(conn);
        }
        if last.is_empty() {
            ops.close(conn);
        } else {
            self.measure.recorder.sent(ops.close_with(conn, &last));
        }
        self.conns.scratch = last;
        self.conns.table[conn as usize].close();
        self.measure.recorder.connection_closed();
    }
}

/// The limit of this machine that a connect error indicates; `None` if the limit may be the system's.
fn own_limit(error: i32) -> Option<OwnLimit> {
    match error {
        libc::EMFILE | libc::ENFILE => Some(OwnLimit::OpenFiles),
        libc::EADDRNOTAVAIL => Some(OwnLimit::Ports),
        libc::ENOBUFS | libc::ENOMEM => Some(OwnLimit::Memory),
        _ => None,
    }
}
