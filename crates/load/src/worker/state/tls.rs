//! Connections under TLS: between the backend's bytes and a request lies [`crate::protocol::tls`].
//!
//! What is counted as sent and received is what goes over the wire.

use crate::io::{ConnId, Ops};
use crate::protocol::tls::{Tls, TlsConfig, TlsError, TlsEvent};
use crate::spec::TlsSpec;
use crate::worker::state::buffers::Rooms;

/// All connections of one worker that are under TLS.
pub struct TlsTransport<'r> {
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
    /// What is sent to the server on a connection that failed (an alert).
    alert: Vec<u8>,
    /// What went wrong last, for examples.
    pub words: String,
}

/// What bytes of TLS meant.
pub struct Received {
    /// Bytes below it.
    pub plain: Vec<u8>,
    /// The handshake is done with them.
    pub has_opened: bool,
    /// Whether the connection goes on.
    pub result: Result<(), TlsError>,
}

impl<'r> TlsTransport<'r> {
    pub fn new(spec: &'r TlsSpec) -> Self {
        TlsTransport {
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

    /// Begins the handshake, where the host is reached by TLS: what is to be sent.
    pub fn start(&mut self, conn: ConnId, host: u16) -> Option<Result<&[u8], TlsError>> {
        let name = self.spec.names.get(usize::from(host))?.as_ref()?;
        let started = Tls::new(&self.config, name).and_then(|mut tls| {
            self.wire.clear();
            tls.start(&mut self.wire)?;
            Ok(tls)
        });
        Some(match started {
            Ok(tls) => {
                *self.link(conn) = Some(Box::new(tls));
                Ok(&self.wire)
            }
            Err(error) => Err(error),
        })
    }

    /// Takes bytes of a connection under TLS. What is to be sent for them is the [`answer`](Self::answer).
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) -> Received {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        self.wire.clear();
        self.input.clear();
        self.input.extend_from_slice(bytes);
        let mut has_opened = false;
        let Some(mut tls) = self.link(conn).take() else {
            return Received { plain, has_opened, result: Ok(()) };
        };
        self.rooms.lend(tls.room());
        let result = tls.receive(&mut self.input, &mut self.wire, &mut |event| match event {
            TlsEvent::Open => has_opened = true,
            TlsEvent::Plain(bytes) => plain.extend_from_slice(bytes),
            TlsEvent::Closed => {}
        });
        self.rooms.take_back(tls.room());
        *self.link(conn) = Some(tls);
        if result.is_err() {
            std::mem::swap(&mut self.alert, &mut self.wire);
        }
        Received { plain, has_opened, result }
    }

    /// What TLS itself sends for what was received last.
    pub fn answer(&self) -> &[u8] {
        &self.wire
    }

    /// Takes back the room of plain bytes.
    pub fn take_back(&mut self, plain: Vec<u8>) {
        self.plain = plain;
    }

    /// The connection is under TLS.
    pub fn is_on(&self, conn: ConnId) -> bool {
        self.links.get(conn as usize).is_some_and(Option::is_some)
    }

    /// What both ends agreed to speak (ALPN).
    pub fn protocol(&self, conn: ConnId) -> Option<&[u8]> {
        self.links.get(conn as usize)?.as_ref()?.handshake()?.alpn
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
    tls: &mut Option<TlsTransport<'r>>,
    ops: &mut impl Ops<'r>,
    conn: ConnId,
    bytes: &[u8],
) -> (usize, usize) {
    let Some(tls) = tls else { return (bytes.len(), ops.send_copy(conn, bytes)) };
    let TlsTransport { links, wire, .. } = tls;
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
