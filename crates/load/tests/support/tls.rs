//! A simulated TLS server: rustls around a plaintext server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server};
use loadlab_load::protocol::tls::{TlsConfig, TlsParts, Trust, Versions, server_name};
use loadlab_load::spec::TlsSpec;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection};

/// A server configuration for `sim` that offers these ALPN protocols.
pub fn config(alpn: &[&str]) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["sim".to_owned()]).expect("a name").self_signed(&key);
    let chain = vec![certificate.expect("a certificate").der().clone()];
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = builder.expect("versions").with_no_client_auth().with_single_cert(chain, private);
    let mut config = config.expect("its settings");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A client's TLS settings for this server: any certificate is accepted.
pub fn spec(alpn: &str) -> TlsSpec {
    let (trust, versions) = (Trust::Anyone, Versions::Both);
    let parts =
        TlsParts { trust, identity: None, versions, resumption: false, alpn: vec![alpn.as_bytes().to_vec()] };
    let names = vec![Some(server_name("sim").expect("a name"))];
    TlsSpec { config: TlsConfig::new(&parts).expect("settings"), names }
}

/// `inner` under TLS. The server's part of the handshake takes `handshake_ns`; the inner server must send its replies
/// in order of arrival.
pub struct Under<S> {
    pub inner: S,
    pub config: Arc<ServerConfig>,
    pub handshake_ns: u64,
    pub links: BTreeMap<ConnId, ServerConnection>,
}

impl<S> Under<S> {
    pub fn new(inner: S, config: Arc<ServerConfig>, handshake_ns: u64) -> Under<S> {
        Under { inner, config, handshake_ns, links: BTreeMap::new() }
    }
}

fn all_of(link: &mut ServerConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while link.wants_write() {
        link.write_tls(&mut out).expect("bytes in memory");
    }
    out
}

impl<S: Server> Server for Under<S> {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        self.links.insert(conn, ServerConnection::new(self.config.clone()).expect("a connection under TLS"));
        self.inner.connect(at_ns, conn)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, mut bytes: &[u8]) -> Vec<(u64, Reply)> {
        let link = self.links.get_mut(&conn).expect("a connection");
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            link.read_tls(&mut bytes).expect("bytes in memory");
            link.process_new_packets().expect("TLS");
            // An error is expected: nothing more has arrived.
            let _ = link.reader().read_to_end(&mut plain);
        }
        let own_ns = if link.is_handshaking() { at_ns + self.handshake_ns } else { at_ns };
        let mut replies = vec![(own_ns, Reply::Bytes(all_of(link)))];
        let answers = if plain.is_empty() { vec![] } else { self.inner.request(at_ns, conn, &plain) };
        for (at, answer) in answers {
            let under_tls = match answer {
                Reply::Bytes(bytes) => {
                    link.writer().write_all(&bytes).expect("room");
                    Reply::Bytes(all_of(link))
                }
                other => other,
            };
            replies.push((at, under_tls));
        }
        replies.retain(|(_, reply)| *reply != Reply::Bytes(vec![]));
        replies
    }

    fn closed(&mut self, at_ns: u64, conn: ConnId) {
        self.inner.closed(at_ns, conn);
    }
}
