//! The client's half against a rustls server in memory, with certificates made for each fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection};

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn authority() -> Authority {
    static NTH: AtomicU32 = AtomicU32::new(0);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // With two authorities of the same name, the wrong one would be tried.
    params
        .distinguished_name
        .push(DnType::CommonName, format!("authority {}", NTH.fetch_add(1, Ordering::Relaxed)));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key()).unwrap()
}

fn leaf(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// A certificate with its key, signed by an authority.
fn signed(params: &CertificateParams, by: &Authority) -> (CertificateDer<'static>, KeyPair) {
    let key = key();
    let certificate = params.signed_by(&key, by).unwrap();
    (certificate.der().clone(), key)
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

/// A server's settings.
struct Served {
    certificate: (CertificateDer<'static>, KeyPair),
    versions: Versions,
    alpn: &'static [&'static str],
    wants_client_of: Option<Authority>,
}

impl Served {
    fn of(certificate: (CertificateDer<'static>, KeyPair)) -> Self {
        Served { certificate, versions: Versions::Both, alpn: &[], wants_client_of: None }
    }

    fn config(self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions: &[&SupportedProtocolVersion] = match self.versions {
            Versions::Both => rustls::ALL_VERSIONS,
            Versions::Only12 => &[&rustls::version::TLS12],
            Versions::Only13 => &[&rustls::version::TLS13],
        };
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
        let builder = match self.wants_client_of {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let (certificate, key) = self.certificate;
        let mut config = builder.with_single_cert(vec![certificate], private(&key)).unwrap();
        config.alpn_protocols = self.alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn parts(trusting: &Authority) -> TlsParts {
    TlsParts {
        trust: Trust::Authorities(trusting.pem().into_bytes()),
        identity: None,
        versions: Versions::Both,
        resumption: false,
        alpn: Vec::new(),
    }
}

fn client(parts: &TlsParts) -> TlsConfig {
    TlsConfig::new(parts).unwrap()
}

/// Events that the client reported on one connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    opened: usize,
    plain: Vec<u8>,
    closed: usize,
    error: Option<TlsError>,
}

/// Both ends, and the wire between them, cut into pieces.
struct Pair {
    client: Tls,
    server: ServerConnection,
    wire: Vec<u8>,
    seen: Seen,
    piece: usize,
    /// Whether the client sends a dot after each piece, once it may.
    chatty: bool,
}

impl Pair {
    fn new(config: &TlsConfig, server: &Arc<ServerConfig>, host: &str, piece: usize) -> Self {
        let mut pair = Pair {
            client: Tls::new(config, &server_name(host).unwrap()).unwrap(),
            server: ServerConnection::new(server.clone()).unwrap(),
            wire: Vec::new(),
            seen: Seen::default(),
            piece,
            chatty: false,
        };
        pair.client.start(&mut pair.wire).unwrap();
        pair
    }

    /// Carries bytes until both ends are silent; returns what the server read.
    fn carry(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        loop {
            let mut rest = std::mem::take(&mut self.wire);
            let mut from_client = rest.as_slice();
            while !from_client.is_empty() {
                self.server.read_tls(&mut from_client).unwrap();
                // A fault of this side would show as an error of the client; the server's own errors arrive as alerts.
                if let Ok(state) = self.server.process_new_packets() {
                    let mut plain = vec![0; state.plaintext_bytes_to_read()];
                    std::io::Read::read_exact(&mut self.server.reader(), &mut plain).unwrap();
                    read.extend(plain);
                } else {
                    break;
                }
            }
            rest.clear();
            while self.server.wants_write() {
                self.server.write_tls(&mut rest).unwrap();
            }
            for piece in rest.chunks_mut(self.piece) {
                if self.seen.error.is_some() {
                    break;
                }
                let seen = &mut self.seen;
                let result = self.client.receive(piece, &mut self.wire, &mut |event| match event {
                    TlsEvent::Open => seen.opened += 1,
                    TlsEvent::Plain(bytes) => seen.plain.extend_from_slice(bytes),
                    TlsEvent::Closed => seen.closed += 1,
                });
                self.seen.error = result.err();
                if self.chatty && self.client.is_open() {
                    self.client.send(b".", &mut self.wire).unwrap();
                }
            }
            if self.wire.is_empty() {
                return read;
            }
        }
    }

    fn answer(&mut self, plain: &[u8]) {
        std::io::Write::write_all(&mut self.server.writer(), plain).unwrap();
    }
}

const HUGE: usize = usize::MAX;

#[test]
fn bytes_go_both_ways_in_both_versions_and_any_pieces() {
    let authority = authority();
    let server = |versions| {
        let served = Served::of(signed(&leaf(&["a.example"]), &authority));
        Served { versions, alpn: &["h2", "http/1.1"], ..served }.config()
    };
    let config = client(&TlsParts { alpn: vec![b"http/1.1".to_vec()], ..parts(&authority) });
    for (versions, version) in [(Versions::Only12, "1.2"), (Versions::Only13, "1.3")] {
        let server = server(versions);
        for piece in [1, 2, 7, 100, 4096, HUGE] {
            let mut pair = Pair::new(&config, &server, "a.example", piece);
            assert!(!pair.client.is_open());
            assert_eq!(pair.client.send(b"early", &mut pair.wire), Err(TlsError::NotOpen));
            pair.carry();
            let agreed = Handshake { version, resumed: false, alpn: Some(b"http/1.1") };
            assert_eq!(pair.client.handshake(), Some(agreed), "in pieces of {piece}");
            let large = vec![7; 100_000];
            pair.client.send(b"hello ", &mut pair.wire).unwrap();
            pair.client.send(&large, &mut pair.wire).unwrap();
            assert_eq!(pair.carry(), [b"hello ", large.as_slice()].concat());
            pair.answer(b"good day");
            pair.carry();
            pair.answer(&large[..50_000]);
            pair.server.send_close_notify();
            pair.carry();
            let plain = [b"good day", &large[..50_000]].concat();
            assert_eq!(pair.seen, Seen { opened: 1, plain, closed: 1, error: None });
            // The client may keep sending, and sends close_notify too.
            pair.client.close(&mut pair.wire);
            assert!(!pair.wire.is_empty());
            assert_eq!(pair.client.send(b"late", &mut pair.wire), Err(TlsError::NotOpen));
            pair.carry();
            assert!(pair.client.record_buffer().is_empty(), "it holds none at rest");
        }
    }
}

#[test]
fn sending_while_records_arrive() {
    let authority = authority();
    for versions in [Versions::Only12, Versions::Only13] {
        let served = Served { versions, ..Served::of(signed(&leaf(&["a.example"]), &authority)) };
        let mut server = (*served.config()).clone();
        // Handshake messages, tickets above all, arrive in several records.
        server.max_fragment_size = Some(64);
        let config = client(&TlsParts { resumption: true, ..parts(&authority) });
        let server = Arc::new(server);
        for piece in [1, 3, 50, 90] {
            let mut pair = Pair::new(&config, &server, "a.example", piece);
            pair.chatty = true;
            let first = pair.carry();
            pair.answer(&[7; 1000]);
            let dots = [first, pair.carry()].concat();
            assert!(dots.len() > 10 && dots.iter().all(|b| *b == b'.'), "{} dots", dots.len());
            assert_eq!(pair.seen, Seen { opened: 1, plain: vec![7; 1000], closed: 0, error: None });
        }
    }
}

#[test]
fn sessions_are_resumed_if_configured() {
    let authority = authority();
    for versions in [Versions::Only12, Versions::Only13] {
        let server = Served { versions, ..Served::of(signed(&leaf(&["a.example"]), &authority)) }.config();
        for resumption in [true, false] {
            let config = client(&TlsParts { resumption, ..parts(&authority) });
            let connect = |config: &TlsConfig| {
                let mut pair = Pair::new(config, &server, "a.example", HUGE);
                pair.carry();
                pair.client.handshake().unwrap().resumed
            };
            assert_eq!([connect(&config), connect(&config)], [false, resumption]);
            // Another thread starts without sessions.
            let other = config.for_thread();
            assert_eq!([connect(&other), connect(&other)], [false, resumption]);
        }
    }
}

/// The client's error, independent of the pieces.
fn check(config: &TlsConfig, server: &Arc<ServerConfig>, host: &str) -> String {
    let errors = [1, 50, HUGE].map(|piece| {
        let mut pair = Pair::new(config, server, host, piece);
        pair.carry();
        // If the server refuses, a 1.3 connection may have been open for a moment.
        let error = pair.seen.error.expect("an error");
        assert_eq!(pair.client.receive(&mut [0x16], &mut Vec::new(), &mut |_| {}), Err(TlsError::NotOpen));
        error.to_string()
    });
    assert!(errors.iter().all(|e| *e == errors[0]), "{errors:?}");
    errors[0].clone()
}

#[test]
fn certificates_that_are_not_trusted() {
    let authority = authority();
    let config = client(&parts(&authority));
    let served = |params: &CertificateParams| Served::of(signed(params, &authority)).config();
    let mut old = leaf(&["a.example"]);
    old.not_after = date_time_ymd(2020, 1, 1);
    old.not_before = date_time_ymd(2019, 1, 1);
    let mut young = leaf(&["a.example"]);
    young.not_before = date_time_ymd(4000, 1, 1);
    let expect = "the server's certificate has expired\nhint: renew it, or use --insecure";
    assert_eq!(check(&config, &served(&old), "a.example"), expect);
    let expect = "the server's certificate is not valid yet\nhint: compare the clocks of both machines, or use --insecure";
    assert_eq!(check(&config, &served(&young), "a.example"), expect);
    let good = served(&leaf(&["a.example", "127.0.0.1"]));
    let expect = "the server's certificate is not for `b.example` but for a.example, 127.0.0.1\nhint: use a name that it covers, or --insecure";
    assert_eq!(check(&config, &good, "b.example"), expect);
    let expect = "the server's certificate is not for `::1` but for a.example, 127.0.0.1\nhint: use a name that it covers, or --insecure";
    assert_eq!(check(&config, &good, "[::1]"), expect);
    let unknown = "the server's certificate is self-signed, or signed by an unknown authority\nhint: pass that \
                   authority's certificate as CA file, or use --insecure";
    let stranger = client(&parts(&self::authority()));
    assert_eq!(check(&stranger, &good, "a.example"), unknown);
    let own = key();
    let alone = leaf(&["a.example"]).self_signed(&own).unwrap();
    let alone = Served::of((alone.der().clone(), own)).config();
    assert_eq!(check(&config, &alone, "a.example"), unknown);
    // Without verification, all of these certificates are accepted.
    let careless = client(&TlsParts { trust: Trust::Anyone, ..parts(&authority) });
    for server in [served(&old), served(&young), good, alone] {
        for host in ["b.example", "10.0.0.1", "[::1]"] {
            let mut pair = Pair::new(&careless, &server, host, HUGE);
            pair.carry();
            assert_eq!((pair.seen.opened, pair.seen.error), (1, None));
        }
    }
}

#[test]
fn servers_with_self_signed_certificates() {
    let made = |until| {
        let mut params = leaf(&["a.example"]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(until, 1, 1);
        let own: Authority = CertifiedIssuer::self_signed(params, key()).unwrap();
        let served = Served::of((own.der().clone(), KeyPair::from_pem(&own.key().serialize_pem()).unwrap()));
        (client(&parts(&own)), served.config())
    };
    let (config, server) = made(4000);
    let mut pair = Pair::new(&config, &server, "a.example", HUGE);
    pair.carry();
    assert_eq!((pair.seen.opened, pair.seen.error), (1, None));
    assert!(
        check(&config, &server, "b.example").starts_with("the server's certificate is not for `b.example`")
    );
    let stranger = client(&parts(&authority()));
    assert!(check(&stranger, &server, "a.example").starts_with("the server's certificate is self-signed"));
    let (config, server) = made(2020);
    assert!(check(&config, &server, "a.example").starts_with("the server's certificate has expired"));
}

#[test]
fn no_protocol_or_version_in_common() {
    let authority = authority();
    let served = || Served::of(signed(&leaf(&["a.example"]), &authority));
    let h2 = client(&TlsParts { alpn: vec![b"h2".to_vec()], ..parts(&authority) });
    let expect =
        "the server accepts none of the offered protocols (ALPN)\nhint: try without --http2, or with it";
    assert_eq!(check(&h2, &Served { alpn: &["http/1.1"], ..served() }.config(), "a.example"), expect);
    let old = client(&TlsParts { versions: Versions::Only12, ..parts(&authority) });
    let expect =
        "the server and loadlab have no TLS settings in common: it accepts none of the offered versions";
    assert_eq!(check(&old, &Served { versions: Versions::Only13, ..served() }.config(), "a.example"), expect);
    let new = client(&TlsParts { versions: Versions::Only13, ..parts(&authority) });
    let found = check(&new, &Served { versions: Versions::Only12, ..served() }.config(), "a.example");
    assert_eq!(found, expect);
}

#[test]
fn servers_that_require_client_certificates() {
    let authority = authority();
    let served = |versions| {
        let served = Served::of(signed(&leaf(&["a.example"]), &authority));
        Served { versions, wants_client_of: Some(self::authority()), ..served }
    };
    for versions in [Versions::Only12, Versions::Only13] {
        let expect = "the server asks for a client certificate, and none was sent\nhint: use one that the server trusts, with its key";
        assert_eq!(check(&client(&parts(&authority)), &served(versions).config(), "a.example"), expect);
        let identity = |by: &Authority| {
            let (certificate, key) = signed(&leaf(&["client"]), by);
            let certificates = pem(&certificate);
            Some(Identity { certificates, key: key.serialize_pem().into_bytes() })
        };
        let stranger = client(&TlsParts { identity: identity(&authority), ..parts(&authority) });
        let expect = "the server asks for a client certificate, and rejects the one sent\nhint: use one that the server trusts, with its key";
        assert_eq!(check(&stranger, &served(versions).config(), "a.example"), expect);
        let known = served(versions);
        let friend = identity(known.wants_client_of.as_ref().unwrap());
        let friend = client(&TlsParts { identity: friend, ..parts(&authority) });
        let mut pair = Pair::new(&friend, &known.config(), "a.example", HUGE);
        pair.carry();
        assert_eq!((pair.seen.opened, &pair.seen.error), (1, &None));
    }
}

fn pem(certificate: &CertificateDer<'_>) -> Vec<u8> {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").into_bytes()
}

#[test]
fn servers_that_do_not_speak_tls() {
    let authority = authority();
    let config = client(&parts(&authority));
    let start = || {
        let mut tls = Tls::new(&config, &server_name("a.example").unwrap()).unwrap();
        let mut wire = Vec::new();
        tls.start(&mut wire).unwrap();
        assert!(wire.starts_with(&[0x16, 3]));
        tls
    };
    for (answer, error) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], TlsError::NotTls),
        (b"SSH-2.0-OpenSSH\r\n", TlsError::NotTls),
        (b"\x15\x03\x03\0\x02\x02\x28", TlsError::Refused("HandshakeFailure".into())),
        (b"\x15\x03\x03\0\x02\x02\x50", TlsError::Refused("InternalError".into())),
        (
            b"\x15\x03\x03\0\x02\x02\x46",
            TlsError::Incompatible("it accepts none of the offered versions".into()),
        ),
    ] {
        for piece in 1..=answer.len() {
            let mut tls = start();
            let mut bytes = answer.to_vec();
            let mut results = bytes.chunks_mut(piece).map(|p| tls.receive(p, &mut Vec::new(), &mut |_| {}));
            assert_eq!(results.find_map(Result::err), Some(error.clone()), "{answer:?} in pieces of {piece}");
        }
    }
    let mut tls = start();
    let garbled = tls.receive(&mut b"\x16\x03\x03\0\x04\x02\0\0\0".to_vec(), &mut Vec::new(), &mut |_| {});
    assert!(matches!(garbled, Err(TlsError::Broken(_))), "{garbled:?}");
    assert_eq!(
        server_name("a b").unwrap_err().to_string(),
        "`a b` is not a name that a certificate can be issued for"
    );
}

#[test]
fn invalid_settings() {
    let authority = authority();
    let check = |change: &dyn Fn(&mut TlsParts)| {
        let mut parts = parts(&authority);
        change(&mut parts);
        TlsConfig::new(&parts).unwrap_err()
    };
    let trust = |pem: &[u8]| Trust::Authorities(pem.to_vec());
    assert_eq!(check(&|p| p.trust = trust(b"")), TlsConfigError::NoAuthority);
    assert_eq!(check(&|p| p.trust = trust(b"not PEM at all")), TlsConfigError::NoAuthority);
    let broken = trust(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(matches!(check(&|p| p.trust = broken.clone()), TlsConfigError::Authority(_)));
    let identity = |certificates: &[u8], key: &[u8]| {
        Some(Identity { certificates: certificates.to_vec(), key: key.to_vec() })
    };
    let own = authority.pem().into_bytes();
    let other = key().serialize_pem().into_bytes();
    assert!(matches!(check(&|p| p.identity = identity(b"", &other)), TlsConfigError::Certificate(_)));
    assert!(matches!(check(&|p| p.identity = identity(&own, b"")), TlsConfigError::Key(_)));
    assert!(matches!(check(&|p| p.identity = identity(&own, &other)), TlsConfigError::Identity(_)));
}

#[test]
fn a_wire_that_is_tampered_with() {
    let authority = authority();
    let config = client(&parts(&authority));
    let server = Served::of(signed(&leaf(&["a.example"]), &authority)).config();
    let mut pair = Pair::new(&config, &server, "a.example", HUGE);
    pair.carry();
    pair.answer(b"precious");
    let mut wire = Vec::new();
    pair.server.write_tls(&mut wire).unwrap();
    let last = wire.len() - 1;
    wire[last] ^= 1;
    let mut plain = 0;
    let mut out = Vec::new();
    let result = pair
        .client
        .receive(&mut wire, &mut out, &mut |e| plain += usize::from(matches!(e, TlsEvent::Plain(_))));
    assert_eq!((result, plain), (Err(TlsError::Broken("cannot decrypt peer's message".into())), 0));
    assert!(!out.is_empty(), "the server is sent an alert");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 1..6), record: bool) {
        let provider = TlsParts { trust: Trust::Anyone, identity: None, versions: Versions::Both, resumption: false, alpn: vec![] };
        let mut tls = Tls::new(&client(&provider), &server_name("a").unwrap()).unwrap();
        let mut out = Vec::new();
        tls.start(&mut out).unwrap();
        for part in parts {
            let mut bytes = if record { [&[0x16, 3, 3, 0, part.len() as u8], part.as_slice()].concat() } else { part };
            let _ = tls.receive(&mut bytes, &mut out, &mut |_| {});
            let _ = tls.send(b"x", &mut out);
        }
        prop_assert!(!tls.is_open());
    }
}
