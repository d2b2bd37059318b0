//! Connections under TLS: [`crate::protocol::tls`] lies between the backend's bytes and a request.
//!
//! Bytes sent and received are counted as they go over the wire.

use crate::io::{ConnId, Ops};
use crate::protocol::tls::{Tls, TlsConfig, TlsError, TlsEvent};
use crate::spec::TlsSpec;
use crate::worker::state::buffers::BufferPool;

/// All connections of one worker that are under TLS.
pub struct TlsTransport<'r> {
    spec: &'r TlsSpec,
    /// Configuration of this thread, which has its own sessions to resume.
    config: TlsConfig,
    /// TLS sessions by connection.
    by_conn: Vec<Option<Box<Tls>>>,
    /// Received bytes, to be decrypted in place; the plain text; bytes to be sent.
    input: Vec<u8>,
    plain: Vec<u8>,
    wire: Vec<u8>,
    /// Buffers for records that arrive in pieces.
    buffers: BufferPool,
    /// The alert sent to the server on a connection that failed.
    alert: Vec<u8>,
    /// The last error, for examples.
    pub last_error: String,
}

/// The result of receiving bytes of TLS.
pub struct TlsReceived {
    /// Decrypted bytes.
    pub plain: Vec<u8>,
    /// Whether they completed the handshake.
    pub has_opened: bool,
    /// Whether the connection continues.
    pub result: Result<(), TlsError>,
}

impl<'r> TlsTransport<'r> {
    pub fn new(spec: &'r TlsSpec) -> Self {
        TlsTransport {
            spec,
            config: spec.config.for_thread(),
            by_conn: Vec::new(),
            input: Vec::new(),
            plain: Vec::new(),
            wire: Vec::new(),
            buffers: BufferPool::default(),
            alert: Vec::new(),
            last_error: String::new(),
        }
    }

    /// A connection's place in the table, added if it is new.
    fn entry(&mut self, conn: ConnId) -> &mut Option<Box<Tls>> {
        let index = conn as usize;
        if self.by_conn.len() <= index {
            self.by_conn.resize_with(index + 1, || None);
        }
        &mut self.by_conn[index]
    }

    /// Begins the handshake, if the host is reached by TLS: returns the bytes to send.
    pub fn start(&mut self, conn: ConnId, host: u16) -> Option<Result<&[u8], TlsError>> {
        let name = self.spec.names.get(usize::from(host))?.as_ref()?;
        let started = Tls::new(&self.config, name).and_then(|mut tls| {
            self.wire.clear();
            tls.start(&mut self.wire)?;
            Ok(tls)
        });
        Some(match started {
            Ok(tls) => {
                *self.entry(conn) = Some(Box::new(tls));
                Ok(&self.wire)
            }
            Err(error) => Err(error),
        })
    }

    /// Handles bytes of a connection under TLS. The reply to send is the [`reply`](Self::reply).
    pub fn receive(&mut self, conn: ConnId, bytes: &[u8]) -> TlsReceived {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        self.wire.clear();
        self.input.clear();
        self.input.extend_from_slice(bytes);
        let mut has_opened = false;
        let Some(mut tls) = self.entry(conn).take() else {
            return TlsReceived { plain, has_opened, result: Ok(()) };
        };
        self.buffers.lend(tls.record_buffer());
        let result = tls.receive(&mut self.input, &mut self.wire, &mut |event| match event {
            TlsEvent::Open => has_opened = true,
            TlsEvent::Plain(bytes) => plain.extend_from_slice(bytes),
            TlsEvent::Closed => {}
        });
        self.buffers.take_back(tls.record_buffer());
        *self.entry(conn) = Some(tls);
        if result.is_err() {
            std::mem::swap(&mut self.alert, &mut self.wire);
        }
        TlsReceived { plain, has_opened, result }
    }

    /// What TLS itself sends in reply to the bytes received last.
    pub fn reply(&self) -> &[u8] {
        &self.wire
    }

    /// Takes back the buffer of plain bytes.
    pub fn take_back(&mut self, plain: Vec<u8>) {
        self.plain = plain;
    }

    /// Whether the connection is under TLS.
    pub fn is_on(&self, conn: ConnId) -> bool {
        self.by_conn.get(conn as usize).is_some_and(Option::is_some)
    }

    /// The protocol that both ends agreed on (ALPN).
    pub fn protocol(&self, conn: ConnId) -> Option<&[u8]> {
        self.by_conn.get(conn as usize)?.as_ref()?.handshake()?.alpn
    }

    /// Before a connection is closed: encrypts the final plain bytes, followed by an alert, either the one for the
    /// error, or close_notify if this side ends the connection. To a server that closes by itself it would come too
    /// late, and be answered with a reset.
    pub fn leave(&mut self, conn: ConnId, last: &mut Vec<u8>, we_end_it: bool) {
        let Some(mut tls) = self.entry(conn).take() else { return };
        self.wire.clear();
        if !last.is_empty() {
            // Nothing more can be sent on a connection that has failed.
            let _ = tls.send(last, &mut self.wire);
        }
        self.wire.append(&mut self.alert);
        if we_end_it && !tls.is_ended() {
            tls.close(&mut self.wire);
        }
        std::mem::swap(last, &mut self.wire);
    }

    /// Takes the TLS state of a connection that is handed over.
    pub fn hand_over(&mut self, conn: ConnId) -> Option<Box<Tls>> {
        self.entry(conn).take()
    }

    /// Installs the TLS state of a connection that was taken over.
    pub fn take_up(&mut self, conn: ConnId, tls: Box<Tls>) {
        *self.entry(conn) = Some(tls);
    }

    /// Whether the host with this number is reached by TLS.
    pub fn is_for(&self, host: u16) -> bool {
        self.spec.names.get(usize::from(host)).is_some_and(Option::is_some)
    }

    /// Whether the connection is under TLS and the server has not sent close_notify: its end may have been cut off.
    pub fn is_cut(&self, conn: ConnId) -> bool {
        self.by_conn.get(conn as usize).and_then(Option::as_ref).is_some_and(|tls| !tls.is_ended())
    }
}

/// Sends bytes that are valid only during the call, under TLS if the connection is. Returns how many bytes that makes
/// on the wire, and how many of them went out at once.
pub fn put<'r>(
    tls: &mut Option<TlsTransport<'r>>,
    ops: &mut impl Ops<'r>,
    conn: ConnId,
    bytes: &[u8],
) -> (usize, usize) {
    let Some(tls) = tls else { return (bytes.len(), ops.send_copy(conn, bytes)) };
    let TlsTransport { by_conn, wire, .. } = tls;
    match by_conn.get_mut(conn as usize).and_then(Option::as_mut) {
        None => (bytes.len(), ops.send_copy(conn, bytes)),
        Some(tls) => {
            wire.clear();
            // The connection is open; exhausted keys show as a failure later.
            let _ = tls.send(bytes, wire);
            (wire.len(), ops.send_copy(conn, wire))
        }
    }
}
