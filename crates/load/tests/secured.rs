//! TLS in simulated time, against a server built on rustls: what happens to requests when a connection is cut off,
//! refused or closed gracefully, and what the server receives last.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::protocol::tls::{TlsConfig, TlsParts, Trust, Versions, server_name};
use loadlab_load::run::simulate;
use loadlab_load::spec::TlsSpec;
use loadlab_load::{Control, LoadEvent, LoadResult, LoadSpec, Model, Until};
use loadlab_record::Failure;
use loadlab_record::counts::example::Example;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection};

use crate::support;

const MS: u64 = 1_000_000;

/// How an answer ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// After Content-Length bytes; the connection stays open.
    Length,
    /// With the connection, after a close_notify.
    Notified,
    /// With the connection, without a close_notify.
    Cut,
    /// The server stops after half a record.
    HalfARecord,
    /// After Content-Length bytes, with something that is no TLS behind them.
    Garbage,
}

/// Speaks TLS and answers each request 10 ms later.
struct Secret {
    config: Arc<ServerConfig>,
    end: End,
    links: BTreeMap<ConnId, ServerConnection>,
    handshakes: u64,
    requests: u64,
    /// Connections closed by the client: in total, and with its close_notify.
    closed: u64,
    notified: u64,
    /// Connections on which the client sent another alert.
    alerts: u64,
}

impl Secret {
    fn new(end: End) -> (Secret, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["sim".to_owned()]).unwrap().self_signed(&key).unwrap();
        let pem = certificate.pem().into_bytes();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let chain = vec![certificate.der().clone()];
        let config = builder.unwrap().with_no_client_auth().with_single_cert(chain, private).unwrap();
        let links = BTreeMap::new();
        let config = Arc::new(config);
        (Secret { config, end, links, handshakes: 0, requests: 0, closed: 0, notified: 0, alerts: 0 }, pem)
    }
}

fn all_of(link: &mut ServerConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while link.wants_write() {
        link.write_tls(&mut out).unwrap();
    }
    out
}

impl Server for Secret {
    fn connect(&mut self, at_ns: u64, conn: ConnId) -> Result<u64, (u64, i32)> {
        self.links.insert(conn, ServerConnection::new(self.config.clone()).unwrap());
        Ok(at_ns + MS)
    }

    fn request(&mut self, at_ns: u64, conn: ConnId, mut bytes: &[u8]) -> Vec<(u64, Reply)> {
        let link = self.links.get_mut(&conn).expect("a connection");
        let was_open = !link.is_handshaking();
        while !bytes.is_empty() {
            link.read_tls(&mut bytes).unwrap();
            if let Err(error) = link.process_new_packets() {
                assert!(matches!(error, rustls::Error::AlertReceived(_)), "{error}");
                self.alerts += 1;
                return Vec::new();
            }
        }
        self.handshakes += u64::from(!was_open && !link.is_handshaking());
        let mut request = Vec::new();
        let heard = link.reader().read_to_end(&mut request);
        // Running out of received bytes is either temporary or final.
        self.notified += u64::from(was_open && heard.is_ok());
        let mut replies = vec![(at_ns + MS, Reply::Bytes(all_of(link)))];
        if !request.is_empty() {
            self.requests += 1;
            let stays = matches!(self.end, End::Length | End::Garbage);
            let length = if stays { "Content-Length: 2\r\n" } else { "" };
            link.writer().write_all(format!("HTTP/1.1 200 OK\r\n{length}\r\nok").as_bytes()).unwrap();
            if self.end == End::Notified {
                link.send_close_notify();
            }
            let mut answer = all_of(link);
            if self.end == End::HalfARecord {
                answer.truncate(answer.len() / 2);
            }
            if self.end == End::Garbage {
                answer.extend_from_slice(&[0xff; 16]);
            }
            replies.push((at_ns + 10 * MS, Reply::Bytes(answer)));
            if !stays {
                replies.push((at_ns + 10 * MS, Reply::Fin));
            }
        }
        replies.retain(|(_, reply)| *reply != Reply::Bytes(Vec::new()));
        replies
    }

    fn closed(&mut self, _: u64, conn: ConnId) {
        self.closed += u64::from(self.links.remove(&conn).is_some());
    }
}

fn go(end: End, trusting: bool, keep_alive: bool) -> (LoadResult, Secret, Vec<Example>) {
    let (secret, pem) = Secret::new(end);
    let parts = TlsParts {
        trust: Trust::Authorities(if trusting { pem } else { Secret::new(end).1 }),
        identity: None,
        versions: Versions::Both,
        resumption: false,
        alpn: Vec::new(),
    };
    let tls =
        TlsSpec { config: TlsConfig::new(&parts).unwrap(), names: vec![Some(server_name("sim").unwrap())] };
    let plain = LoadSpec::new(
        Model::Closed { users: 1 },
        Until::Requests(5),
        vec![support::get()],
        support::address(),
    );
    let spec = LoadSpec { tls: Some(Box::new(tls)), keep_alive, ..plain };
    let mut sim = Sim::new(secret);
    let mut examples = Vec::new();
    let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Example(example) = event {
            examples.push(*example);
        }
    });
    let outcome = outcome.unwrap();
    outcome.measured.counts.balance().unwrap();
    (outcome, sim.into_server(), examples)
}

/// The number of ok answers, and the failures by kind.
fn ends(outcome: &LoadResult) -> (u64, Vec<(Failure, u64)>) {
    let counts = &outcome.measured.counts;
    (counts.ok, counts.failures.nonzero().collect())
}

#[test]
fn connections_end_with_close_notify() {
    let (outcome, secret, _) = go(End::Length, true, true);
    assert_eq!(ends(&outcome), (5, vec![]));
    assert_eq!((secret.requests, secret.handshakes, secret.closed, secret.notified), (5, 1, 1, 1));
    let (outcome, secret, _) = go(End::Length, true, false);
    assert_eq!(ends(&outcome), (5, vec![]));
    // A server that was asked to close does so itself: sending it a close_notify would only provoke a reset.
    assert_eq!((secret.requests, secret.handshakes, secret.closed, secret.notified), (5, 5, 5, 0));
}

#[test]
fn an_answer_that_ends_with_the_connection_is_whole_only_if_the_server_says_so() {
    let (outcome, secret, _) = go(End::Notified, true, true);
    assert_eq!((ends(&outcome), secret.requests), ((5, vec![]), 5));
    let (outcome, secret, examples) = go(End::Cut, true, true);
    assert_eq!((ends(&outcome), secret.requests), ((0, vec![(Failure::Truncated, 5)]), 5));
    let error = examples[0].error.clone().unwrap();
    assert_eq!(error, "the connection ended without a TLS close_notify");
    let (outcome, secret, _) = go(End::HalfARecord, true, true);
    assert_eq!((ends(&outcome), secret.requests), ((0, vec![(Failure::Reset, 5)]), 5));
}

/// A whole answer counts, and nothing is sent on a connection whose TLS broke behind it.
#[test]
fn an_answer_before_a_broken_record_is_the_last_of_its_connection() {
    let (outcome, secret, _) = go(End::Garbage, true, true);
    assert_eq!((ends(&outcome), secret.requests, secret.handshakes), ((5, vec![]), 5, 5));
}

#[test]
fn a_server_that_is_not_trusted_gets_no_request() {
    let (outcome, secret, examples) = go(End::Length, false, true);
    assert_eq!(ends(&outcome), (0, vec![(Failure::Tls, 5)]));
    assert_eq!((secret.requests, secret.closed, secret.notified, secret.alerts), (0, 5, 0, 5));
    let error = examples[0].error.clone().unwrap();
    assert!(error.contains("its signature is not from the authority it names"), "{error}");
}
