//! TLS below a protocol: bytes of the wire in, plain bytes and bytes for the wire out.
//!
//! A thin layer over rustls, without sockets. It uses rustls' unbuffered interface: records are decrypted in place, and
//! an idle connection keeps no buffers of its own. Errors are reported in words that users know. Nothing here reads a
//! file or decides whether skipping verification is allowed.
//!
//! rustls itself allocates once per record, in both directions; nothing else in the loop does.

pub mod blocking;

use std::sync::Arc;

use rustls::client::ClientConnectionData;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;

pub use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, HandshakeKind,
    InvalidMessage, ProtocolVersion, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};

/// Sessions kept for resumption, over all servers.
const SESSIONS: usize = 256;
/// More than the longest record and the longest handshake message, which rustls bounds at 64 KiB.
const MAX_PARTIAL: usize = 256 * 1024;
/// The longest plain text of a record.
const MAX_PLAIN: usize = 16 * 1024;
/// Space tried first for a record; rustls reports if it needs more.
const ROOM: usize = 512;

/// Types of records; in TLS 1.3 encrypted records are typed as application data.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
const APPLICATION_DATA: u8 = 0x17;

/// The server certificates to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates signed by one of these authorities, PEM. They may be the system's.
    Authorities(Vec<u8>),
    /// Any certificate: names, dates and signers are not checked.
    Anyone,
}

/// TLS versions to offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// 1.2 and 1.3.
    #[default]
    Both,
    /// 1.2 alone.
    Only12,
    /// 1.3 alone.
    Only13,
}

/// A certificate to present when the server asks for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate and any intermediates, PEM.
    pub certificates: Vec<u8>,
    /// Its key, PEM.
    pub key: Vec<u8>,
}

/// Settings that a [`TlsConfig`] is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsParts {
    /// Certificates to trust.
    pub trust: Trust,
    /// Client certificate to present, if the server asks for one.
    pub identity: Option<Identity>,
    /// Versions to offer.
    pub versions: Versions,
    /// Whether later connections resume the sessions of earlier ones, as browsers do.
    pub resumption: bool,
    /// ALPN protocols to offer, best first: `h2`, `http/1.1`. Empty: none is negotiated.
    pub alpn: Vec<Vec<u8>>,
}

/// Why a [`TlsConfig`] cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsConfigError {
    /// The authorities contain no certificate.
    #[error(
        "the CA file contains no certificate\nhint: it must be PEM, with lines `-----BEGIN CERTIFICATE-----`"
    )]
    NoAuthority,
    /// An authority's certificate cannot be read.
    #[error("the CA file is not a PEM file of certificates: {0}")]
    Authority(String),
    /// The client's certificate cannot be read.
    #[error(
        "the client certificate cannot be read: {0}\nhint: it must be PEM, followed by the intermediate \
         certificates up to its CA"
    )]
    Certificate(String),
    /// The client certificate's key cannot be read.
    #[error("the key of the client certificate cannot be read: {0}\nhint: it must be PEM without a password")]
    Key(String),
    /// The client's certificate and key do not belong together, or the library does not accept them.
    #[error("client certificate and key do not match: {0}")]
    Identity(String),
    /// The library rejects the settings.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// TLS settings, shared by the connections of one load thread.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    client: Arc<ClientConfig>,
    resumption: bool,
}

impl TlsConfig {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// A certificate or key cannot be read, or they do not fit.
    pub fn new(parts: &TlsParts) -> Result<TlsConfig, TlsConfigError> {
        let setup = |e: Error| TlsConfigError::Setup(e.to_string());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let both = [&rustls::version::TLS13, &rustls::version::TLS12];
        let versions: &[&SupportedProtocolVersion] = match parts.versions {
            Versions::Both => &both,
            Versions::Only13 => &both[..1],
            Versions::Only12 => &both[1..],
        };
        let verifier: Arc<dyn ServerCertVerifier> = match &parts.trust {
            Trust::Anyone => Arc::new(Anyone(provider.clone())),
            Trust::Authorities(pem) => {
                let (roots, certificates) = authorities(pem)?;
                let built =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
                let webpki = built.map_err(|e| TlsConfigError::Setup(e.to_string()))?;
                Arc::new(Authorities { webpki, certificates })
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(setup)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut client = match &parts.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(&identity.certificates).collect();
                let chain = chain.map_err(|e| TlsConfigError::Certificate(e.to_string()))?;
                if chain.is_empty() {
                    return Err(TlsConfigError::Certificate("it contains no certificate".into()));
                }
                let key = PrivateKeyDer::from_pem_slice(&identity.key)
                    .map_err(|e| TlsConfigError::Key(e.to_string()))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|e| TlsConfigError::Identity(e.to_string()))?
            }
        };
        client.alpn_protocols.clone_from(&parts.alpn);
        client.resumption = resumption(parts.resumption);
        Ok(TlsConfig { client: Arc::new(client), resumption: parts.resumption })
    }

    /// The same settings with a separate session cache: the cache is behind a lock, which threads need not share.
    pub fn for_thread(&self) -> TlsConfig {
        let mut client = (*self.client).clone();
        client.resumption = resumption(self.resumption);
        TlsConfig { client: Arc::new(client), ..*self }
    }
}

fn resumption(on: bool) -> Resumption {
    if on { Resumption::in_memory_sessions(SESSIONS) } else { Resumption::disabled() }
}

fn authorities(pem: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsConfigError> {
    let (mut roots, mut all) = (RootCertStore::empty(), Vec::new());
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| TlsConfigError::Authority(e.to_string()))?;
        roots.add(certificate.clone()).map_err(|e| TlsConfigError::Authority(e.to_string()))?;
        all.push(certificate);
    }
    if all.is_empty() { Err(TlsConfigError::NoAuthority) } else { Ok((roots, all)) }
}

/// Trusts certificates signed by one of the authorities, and an authority that is the server itself:
/// `openssl req -x509` makes certificates marked as authorities, and most test servers use one.
#[derive(Debug)]
struct Authorities {
    webpki: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.webpki.verify_server_cert(certificate, between, name, ocsp, now) {
            // The dates were checked before this error; the name was not.
            Err(Error::InvalidCertificate(error))
                if is_authority_itself(&error) && self.certificates.contains(certificate) =>
            {
                let parsed = ParsedCertificate::try_from(certificate)?;
                verify_server_name(&parsed, name).map(|()| ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Whether the server's certificate is marked as an authority.
fn is_authority_itself(error: &CertificateError) -> bool {
    let CertificateError::Other(other) = error else { return false };
    other.0.downcast_ref::<webpki::Error>().is_some_and(|e| *e == webpki::Error::CaUsedAsEndEntity)
}

/// Accepts any certificate; whether the server has its key is still checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a TLS connection could not be opened, or broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The name in the URL is neither a host name nor an address.
    #[error("`{0}` is not a name that a certificate can be issued for")]
    Name(String),
    /// The server does not speak TLS.
    #[error(
        "the server does not speak TLS here\nhint: should the URL begin with http://, or is the port wrong?"
    )]
    NotTls,
    /// The certificate has expired.
    #[error("the server's certificate has expired\nhint: renew it, or use --insecure")]
    Expired,
    /// The certificate is not valid yet.
    #[error(
        "the server's certificate is not valid yet\nhint: compare the clocks of both machines, or use --insecure"
    )]
    NotYetValid,
    /// The certificate is for another host.
    #[error("the server's certificate is not for `{expected}`{}\nhint: use a name that it covers, or --insecure", presented_text(.presented))]
    WrongHost {
        /// The name that was requested.
        expected: String,
        /// The names that the certificate is for.
        presented: Vec<String>,
    },
    /// The certificate is not signed by a trusted authority.
    #[error(
        "the server's certificate is self-signed, or signed by an unknown authority\nhint: pass that \
         authority's certificate as CA file, or use --insecure"
    )]
    UnknownIssuer,
    /// Something else is wrong with the certificate.
    #[error("the server's certificate is not acceptable: {0}")]
    Certificate(String),
    /// The server supports none of the offered protocols.
    #[error("the server accepts none of the offered protocols (ALPN)\nhint: try without --http2, or with it")]
    NoProtocol,
    /// The server and this side share no TLS version, or no other setting.
    #[error("the server and loadlab have no TLS settings in common: {0}")]
    Incompatible(String),
    /// The server requires a client certificate.
    #[error(
        "the server asks for a client certificate, and {0}\nhint: use one that the server trusts, with its key"
    )]
    WantsCertificate(&'static str),
    /// The server ended the handshake or the connection, with this alert.
    #[error("the server refused: TLS alert {0}")]
    Refused(String),
    /// Bytes that are not TLS, after a valid beginning.
    #[error("the server broke the TLS protocol: {0}")]
    Broken(String),
    /// Plain bytes were sent before the handshake was complete, or after the end.
    #[error("cannot send on a TLS connection that is not open")]
    NotOpen,
}

fn presented_text(presented: &[String]) -> String {
    if presented.is_empty() { String::new() } else { format!(" but for {}", presented.join(", ")) }
}

impl TlsError {
    fn of(error: Error) -> TlsError {
        use AlertDescription as Alert;
        match error {
            Error::InvalidCertificate(error) => TlsError::of_certificate(error),
            Error::NoApplicationProtocol | Error::AlertReceived(Alert::NoApplicationProtocol) => {
                TlsError::NoProtocol
            }
            Error::AlertReceived(Alert::ProtocolVersion) => {
                TlsError::Incompatible("it accepts none of the offered versions".into())
            }
            Error::PeerIncompatible(error) => TlsError::Incompatible(format!("{error:?}")),
            Error::AlertReceived(Alert::CertificateRequired) => TlsError::WantsCertificate("none was sent"),
            Error::AlertReceived(
                Alert::BadCertificate
                | Alert::UnknownCA
                | Alert::CertificateExpired
                | Alert::CertificateUnknown,
            ) => TlsError::WantsCertificate("rejects the one sent"),
            Error::AlertReceived(alert) => TlsError::Refused(format!("{alert:?}")),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                TlsError::Broken("a record of unknown type".into())
            }
            other => TlsError::Broken(other.to_string()),
        }
    }

    fn of_certificate(error: CertificateError) -> TlsError {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsError::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                TlsError::NotYetValid
            }
            CertificateError::UnknownIssuer => TlsError::UnknownIssuer,
            error if is_authority_itself(&error) => TlsError::UnknownIssuer,
            CertificateError::NotValidForNameContext { expected, presented } => {
                // rustls formats names as `DnsName("a.example")`.
                let bare = |name: &String| {
                    let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
                    inner.trim_matches(['"', ')']).to_owned()
                };
                let presented = presented.iter().map(bare).collect();
                TlsError::WrongHost { expected: expected.to_str().into_owned(), presented }
            }
            CertificateError::BadSignature => {
                TlsError::Certificate("its signature is not from the authority it names".into())
            }
            other => TlsError::Certificate(other.to_string()),
        }
    }
}

/// The result of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake<'a> {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// Whether an earlier connection's session was resumed.
    pub resumed: bool,
    /// The application protocol that both speak, if one was negotiated.
    pub alpn: Option<&'a [u8]>,
}

/// Something that happened on a TLS connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsEvent<'a> {
    /// The handshake is complete: [`Tls::send`] may be called. See [`Tls::handshake`].
    Open,
    /// Plain bytes.
    Plain(&'a [u8]),
    /// The server sent close_notify. A connection that ends without it was cut off.
    Closed,
}

type Traffic<'a> = WriteTraffic<'a, ClientConnectionData>;

/// One TLS connection.
pub struct Tls {
    rustls: UnbufferedClientConnection,
    /// The beginning of an incomplete record.
    partial: Vec<u8>,
    phase: HandshakePhase,
    /// Whether the server has sent close_notify.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakePhase {
    /// Nothing has been received yet.
    New,
    /// In the handshake.
    Greeted,
    /// The handshake is complete.
    Open,
    /// The connection failed, or was closed from this side.
    Failed,
}

/// A name for [`Tls::new`], from a URL's host: a host name, or an address with or without brackets.
///
/// # Errors
/// [`TlsError::Name`].
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

impl Tls {
    /// A new connection.
    ///
    /// # Errors
    /// rustls rejects the settings.
    pub fn new(config: &TlsConfig, name: &ServerName<'static>) -> Result<Tls, TlsError> {
        let rustls =
            UnbufferedClientConnection::new(config.client.clone(), name.clone()).map_err(TlsError::of)?;
        Ok(Tls { rustls, partial: Vec::new(), phase: HandshakePhase::New, ended: false })
    }

    /// Writes the client's first message.
    ///
    /// # Errors
    /// rustls cannot write it.
    pub fn start(&mut self, wire: &mut Vec<u8>) -> Result<(), TlsError> {
        self.pump(&mut [], wire, &mut |_| {}).map(|_| ())
    }

    /// Whether plain bytes may be sent.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.phase == HandshakePhase::Open
    }

    /// Whether the server has sent close_notify.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The result of the handshake, once the connection is open.
    pub fn handshake(&self) -> Option<Handshake<'_>> {
        if !self.is_open() {
            return None;
        }
        Some(Handshake {
            version: if self.rustls.protocol_version() == Some(ProtocolVersion::TLSv1_2) {
                "1.2"
            } else {
                "1.3"
            },
            resumed: self.rustls.handshake_kind() == Some(HandshakeKind::Resumed),
            alpn: self.rustls.alpn_protocol(),
        })
    }

    /// The buffer for an incomplete record; it is lent before bytes are received, and returned when no partial record
    /// is left.
    #[inline]
    pub fn record_buffer(&mut self) -> &mut Vec<u8> {
        &mut self.partial
    }

    /// Takes the next bytes of the wire, which are overwritten: they are decrypted in place. Replies (handshake,
    /// alerts) are appended to `out`, even on failure.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(TlsEvent<'_>),
    ) -> Result<(), TlsError> {
        if self.phase == HandshakePhase::Failed {
            return Err(TlsError::NotOpen);
        }
        if let (HandshakePhase::New, Some(first)) = (self.phase, wire.first()) {
            // A server may begin only with an alert or a handshake.
            if !matches!(*first, ALERT | HANDSHAKE) {
                self.phase = HandshakePhase::Failed;
                return Err(TlsError::NotTls);
            }
            self.phase = HandshakePhase::Greeted;
        }
        let result = if self.partial.is_empty() {
            self.pump(wire, out, sink).map(|used| self.partial.extend_from_slice(&wire[used..]))
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(wire);
            let used = self.pump(&mut whole, out, sink);
            used.map(|used| {
                whole.drain(..used);
                self.partial = whole;
            })
        };
        if result.is_ok() && self.partial.len() > MAX_PARTIAL {
            self.phase = HandshakePhase::Failed;
            return Err(TlsError::Broken("a message without an end".into()));
        }
        result
    }

    /// Lets rustls work until it needs more bytes. Returns how many bytes were used.
    fn pump(
        &mut self,
        wire: &mut [u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(TlsEvent<'_>),
    ) -> Result<usize, TlsError> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.rustls.process_tls_records(&mut wire[used..]);
            let mut failed = None;
            let mut rests = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                sink(TlsEvent::Plain(record.payload));
                            }
                            Err(error) => failed = Some(error),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(|to| data.encode(to), out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {
                    self.ended = true;
                    sink(TlsEvent::Closed);
                }
                Ok(_) => rests = true,
                Err(error) => failed = Some(error),
            }
            used += discard;
            if let Some(error) = failed {
                self.phase = HandshakePhase::Failed;
                self.alert(&mut wire[used..], out);
                return Err(TlsError::of(error));
            }
            if self.phase != HandshakePhase::Open && !self.rustls.is_handshaking() {
                self.phase = HandshakePhase::Open;
                sink(TlsEvent::Open);
            }
            if rests {
                return Ok(used);
            }
        }
    }

    /// Writes what is sent to the server on a failure: an alert, possibly after a message that was ready. rustls may
    /// look at bytes that it has seen before: they are still there. rustls must not be called again after the alert,
    /// since it would then fail a second time.
    #[cold]
    fn alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        let mut sent = false;
        while !sent
            && let Ok(ConnectionState::EncodeTlsData(mut data)) = self.rustls.process_tls_records(rest).state
        {
            let start = out.len();
            encode(|to| data.encode(to), out);
            sent = matches!(out.get(start), None | Some(&(ALERT | APPLICATION_DATA)));
        }
    }

    /// Encrypts plain bytes.
    ///
    /// # Errors
    /// The connection is not open, or its keys are exhausted.
    pub fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.phase != HandshakePhase::Open {
            return Err(TlsError::NotOpen);
        }
        for piece in plain.chunks(MAX_PLAIN) {
            self.write(wire, |traffic, to| traffic.encrypt(piece, to))?;
        }
        Ok(())
    }

    /// Writes close_notify. Later sends fail.
    pub fn close(&mut self, wire: &mut Vec<u8>) {
        if self.phase == HandshakePhase::Open {
            // Best effort: if close_notify cannot be queued, there is no peer left to notify.
            let _ = self.write(wire, |traffic, to| traffic.queue_close_notify(to));
        }
        self.phase = HandshakePhase::Failed;
    }

    /// Writes a record once rustls has nothing else to write, such as a key update.
    fn write(
        &mut self,
        wire: &mut Vec<u8>,
        mut make: impl FnMut(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), TlsError> {
        loop {
            // rustls gets the bytes that it has not used up, since it remembers its position in them.
            match self.rustls.process_tls_records(&mut self.partial).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(|to| data.encode(to), wire),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let start = wire.len();
                    let mut room = ROOM;
                    let written = loop {
                        wire.resize(start + room, 0);
                        match make(&mut traffic, &mut wire[start..]) {
                            Err(EncryptError::InsufficientSize(error)) if error.required_size > room => {
                                room = error.required_size;
                            }
                            other => break other,
                        }
                    };
                    wire.truncate(start + written.as_ref().copied().unwrap_or(0));
                    return written.map(|_| ()).map_err(|e| TlsError::Broken(e.to_string()));
                }
                _ => return Err(TlsError::NotOpen),
            }
        }
    }
}

/// Appends the bytes that rustls has ready; their size is known after the first attempt.
fn encode(mut data: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(error)) = data(&mut []) {
        out.resize(start + error.required_size, 0);
        let written = data(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}

#[cfg(test)]
mod tests;
