//! Connections under TLS: between the backend's bytes and a request's life lies [`crate::protocol::tls`].
//!
//! What is counted as sent and received is what goes over the wire.

use loadlab_record::outcome::Failure;

use crate::io::{ConnId, Ops};
use crate::measure::examples::Reason;
use crate::protocol::tls::{Tls, TlsConfig, TlsError, TlsEvent};
use crate::spec::TlsSpec;
use crate::worker::Worker;
use crate::worker::buffers::Rooms;
use crate::worker::slots::Phase;
use crate::worker::timeouts::NONE;

/// All connections of one worker that are under TLS.
pub struct Secure<'r> {
    spec: &'r TlsSpec,
    /// Sessions to resume are this thread's own.
    config: TlsConfig,
    links: Vec<Option<Box<Tls>>>,
    /// What came, to be decrypted in place; what it was; what is to be sent.
    input: Vec<u8>,
    plain: Vec<u8>,
    wire: Vec<u8>,
    /// For records that come in pieces.
    rooms: Rooms,
    /// What the server is told of a connection that failed (an alert).
    alert: Vec<u8>,
    /// What went wrong last, for examples.
    pub words: String,
}

impl<'r> Secure<'r> {
    pub fn new(spec: &'r TlsSpec) -> Self {
        Secure {
            spec,
            config: spec.config.for_thread(),
            links: Vec::new(),
            input: Vec::new(),
            plain: Vec::new(),
            wire: Vec::new(),
            rooms: Rooms::default(),
            alert: Vec::new(),
            words: String::new(),
        }
    }

    fn link(&mut self, conn: ConnId) -> &mut Option<Box<Tls>> {
        let index = conn as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || None);
        }
        &mut self.links[index]
    }

    /// The connection is about to be closed. Plain bytes that are to be said last become those of the wire, with an
    /// alert behind them: of what went wrong, or close_notify where it is we who end it. To a server that closes on its
    /// own it would come too late, and be answered with a reset.
    pub fn leave(&mut self, conn: ConnId, last: &mut Vec<u8>, we_end_it: bool) {
        let Some(mut tls) = self.link(conn).take() else { return };
        self.wire.clear();
        if !last.is_empty() {
            // On a connection that has failed nothing more can be said.
            let _ = tls.send(last, &mut self.wire);
        }
        self.wire.append(&mut self.alert);
        if we_end_it && !tls.is_ended() {
            tls.close(&mut self.wire);
        }
        std::mem::swap(last, &mut self.wire);
    }

    /// What is agreed on with the server, where the connection goes on elsewhere.
    pub fn hand_over(&mut self, conn: ConnId) -> Option<Box<Tls>> {
        self.link(conn).take()
    }

    /// The connection comes from elsewhere, and this was agreed on.
    pub fn take_up(&mut self, conn: ConnId, tls: Box<Tls>) {
        *self.link(conn) = Some(tls);
    }

    /// Hosts of this number are reached by TLS.
    pub fn is_for(&self, host: u16) -> bool {
        self.spec.names.get(usize::from(host)).is_some_and(Option::is_some)
    }

    /// The connection is under TLS, and the server has not said that nothing follows: its end may have been cut off.
    pub fn is_cut(&self, conn: ConnId) -> bool {
        self.links.get(conn as usize).and_then(Option::as_ref).is_some_and(|tls| !tls.is_ended())
    }
}

/// Sends bytes that are there during the call only, under TLS where the connection is: how many there are to go over
/// the wire, and how many of them went at once.
pub fn put<'r>(
    secure: &mut Option<Secure<'r>>,
    ops: &mut impl Ops<'r>,
    conn: ConnId,
    bytes: &[u8],
) -> (usize, usize) {
    let Some(secure) = secure else { return (bytes.len(), ops.send_copy(conn, bytes)) };
    let Secure { links, wire, .. } = secure;
    match links.get_mut(conn as usize).and_then(Option::as_mut) {
        None => (bytes.len(), ops.send_copy(conn, bytes)),
        Some(tls) => {
            wire.clear();
            // It is open; keys that are used up show as a failure of what comes next.
            let _ = tls.send(bytes, wire);
            (wire.len(), ops.send_copy(conn, wire))
        }
    }
}

impl<'r> Worker<'r> {
    /// The TCP connection stands. True if it is to be made secure first.
    pub(crate) fn secures(&mut self, ops: &mut impl Ops<'r>, id: ConnId) -> bool {
        let host = self.conns[id as usize].host;
        let Some(secure) = &mut self.secure else { return false };
        let Some(name) = secure.spec.names.get(usize::from(host)).and_then(Option::as_ref) else {
            return false;
        };
        let begun = Tls::new(&secure.config, name).and_then(|mut tls| {
            secure.wire.clear();
            tls.start(&mut secure.wire)?;
            Ok(tls)
        });
        let conn = &mut self.conns[id as usize];
        (conn.phase, conn.since_ns) = (Phase::Securing, ops.now());
        match begun {
            Ok(tls) => {
                *secure.link(id) = Some(Box::new(tls));
                self.recorder.sent(ops.send_copy(id, &secure.wire));
            }
            Err(error) => self.insecure(ops, id, &error),
        }
        true
    }

    /// Bytes of the wire.
    pub(crate) fn secure_received(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: ConnId,
        (bytes, last): (&[u8], bool),
        now: u64,
    ) {
        let Some(secure) = &mut self.secure else { return };
        let Some(mut tls) = secure.link(id).take() else { return self.plain(ops, id, (bytes, last), now) };
        let mut plain = std::mem::take(&mut secure.plain);
        plain.clear();
        secure.wire.clear();
        secure.input.clear();
        secure.input.extend_from_slice(bytes);
        let mut opened = false;
        secure.rooms.lend(tls.room());
        let result = tls.receive(&mut secure.input, &mut secure.wire, &mut |event| match event {
            TlsEvent::Open => opened = true,
            TlsEvent::Plain(bytes) => plain.extend_from_slice(bytes),
            TlsEvent::Closed => {}
        });
        secure.rooms.take_back(tls.room());
        *secure.link(id) = Some(tls);
        if result.is_err() {
            std::mem::swap(&mut secure.alert, &mut secure.wire);
        } else if !secure.wire.is_empty() {
            self.recorder.sent(ops.send_copy(id, &secure.wire));
        }
        if opened && result.is_ok() {
            self.secured(ops, id);
        }
        let stands = |worker: &Self| worker.secure.as_ref().is_some_and(|s| s.links[id as usize].is_some());
        if !plain.is_empty() && stands(self) {
            self.plain(ops, id, (&plain, last), now);
        }
        if let Some(secure) = &mut self.secure {
            secure.plain = plain;
        }
        if let Err(error) = result
            && stands(self)
        {
            self.insecure(ops, id, &error);
        }
    }

    /// The handshake is done.
    fn secured(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let took_ns = ops.now().saturating_sub(self.conns[id as usize].since_ns);
        self.recorder.secured(self.due_of(id), took_ns);
        if self.multiplex.is_some() {
            let agreed = self.secure.as_ref().and_then(|s| s.links[id as usize].as_ref()?.handshake()?.alpn);
            if agreed != Some(b"h2") {
                return self.insecure(ops, id, &TlsError::NoProtocol);
            }
        }
        self.ready(ops, id);
    }

    /// There is no TLS connection, or no longer.
    #[cold]
    fn insecure(&mut self, ops: &mut impl Ops<'r>, id: ConnId, error: &TlsError) {
        if let Some(secure) = &mut self.secure {
            secure.words = error.to_string().lines().next().unwrap_or_default().to_owned();
        }
        if self.multiplex.is_some() {
            return self.streams_ended(ops, id, Some((Failure::Tls, Reason::Tls)));
        }
        match self.conns[id as usize].exchange {
            NONE => {
                if self.conns[id as usize].phase == Phase::Securing {
                    self.opened();
                }
                self.shut(ops, id);
            }
            exchange => self.fail(ops, exchange, Failure::Tls, Reason::Tls),
        }
    }
}
