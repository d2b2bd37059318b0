//! `loadlab bench --http2` against a real nginx with its own counts, and against servers that do not speak HTTP/2.

use crate::common::ports;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::common::server::{Server, Step, TIMEOUT, always, good};
use crate::common::{bench, failures, measured, n};
use crate::on_every_backend;

on_every_backend! {
    streams_share_connections_and_every_request_counts_once
    a_server_that_says_goodbye_loses_nothing
    bodies_go_out_whole
    a_rate_goes_over_streams_too
    an_http_1_server_is_a_protocol_failure
    silence_is_a_timeout_and_a_refusal_a_refusal
}

/// nginx with cleartext HTTP/2; killed when dropped.
struct Nginx {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
    /// HTTP/1.1 address at which nginx reports its counts.
    status: SocketAddr,
}

impl Nginx {
    /// Starts nginx; a connection ends with a GOAWAY after this many requests.
    fn start(keepalive_requests: u32) -> Nginx {
        let dir = tempfile::tempdir().unwrap();
        let (address, status, path) = (ports::unused(), ports::unused(), dir.path().display());
        std::fs::write(dir.path().join("page"), "x".repeat(1000)).unwrap();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {path}/{name};"))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr error;\nevents {{ worker_connections 500; }}\n\
             http {{ access_log {path}/log; {temporary} keepalive_requests {keepalive_requests}; client_max_body_size 10m;\n\
             server {{ listen {address} http2; root {path}; location /post {{ client_body_buffer_size 1m; \
             proxy_pass http://{status}/sink; }} }}\n\
             server {{ listen {status}; location /status {{ stub_status; }} location /sink {{ client_max_body_size 10m; return 204; }} }} }}\n"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
        let child = Command::new("nginx")
            .args(["-c", &dir.path().join("nginx.conf").display().to_string(), "-p", &path.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        let mut nginx = Nginx { child, dir, address, status };
        let since = Instant::now();
        while TcpStream::connect(nginx.address).is_err() || TcpStream::connect(nginx.status).is_err() {
            if nginx.child.try_wait().unwrap().is_some() || since.elapsed() > TIMEOUT {
                let mut said = String::new();
                let _ = nginx.child.kill();
                let _ = nginx.child.stderr.take().unwrap().read_to_string(&mut said);
                panic!("nginx does not come up: {said}");
            }
            std::thread::yield_now();
        }
        nginx
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests answered over HTTP/2, by the log. nginx logs after it answers, so this waits for the expected number.
    fn answered(&self, expected: u64) -> u64 {
        crate::common::nginx::logged(&self.dir.path().join("log"), expected, |line| line.contains("HTTP/2.0"))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn streams_share_connections_and_every_request_counts_once() {
    let nginx = Nginx::start(1_000_000);
    let url = nginx.url("/page");
    let (json, code) = measured(&[&url, "--http2", "--streams", "10", "-c", "25", "-n", "2000"]);
    assert_eq!(code, 0, "{json:#}");
    assert_eq!((n(&json, "requests.ok"), n(&json, "requests.due")), (2000, 2000));
    assert_eq!((n(&json, "connections.opened"), n(&json, "connections.peak")), (3, 3));
    assert_eq!(json["load"]["protocol"], "http/2");
    assert_eq!(json["statuses"]["200"], 2000);
    assert!(n(&json, "bytes.received") > 2000 * 1000);
    assert_eq!(nginx.answered(2000), 2000);
}

fn a_server_that_says_goodbye_loses_nothing() {
    let nginx = Nginx::start(50);
    let url = nginx.url("/page");
    let (json, code) = measured(&[&url, "--http2", "--streams", "7", "-c", "14", "-n", "3000"]);
    assert_eq!(code, 0, "{json:#}");
    assert_eq!((n(&json, "requests.ok"), n(&json, "requests.failed")), (3000, 0), "{json:#}");
    assert!(n(&json, "connections.opened") >= 3000 / 57, "{json:#}");
    assert_eq!(nginx.answered(3000), 3000);
}

fn bodies_go_out_whole() {
    let nginx = Nginx::start(1_000_000);
    let url = nginx.url("/post");
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    // Well beyond the server's windows.
    std::fs::write(&body, vec![b'x'; 700_000]).unwrap();
    let body = format!("@{}", body.display());
    let (json, _) = measured(&[&url, "--http2", "--streams", "3", "-c", "6", "-n", "60", "-b", &body]);
    assert_eq!((n(&json, "requests.ok"), n(&json, "requests.failed")), (60, 0), "{json:#}");
    assert!(n(&json, "bytes.sent") > 60 * 700_000);
    assert_eq!(json["statuses"]["204"], 60);
}

fn a_rate_goes_over_streams_too() {
    let nginx = Nginx::start(1_000_000);
    let url = nginx.url("/page");
    let limits = ["--max-in-flight", "40", "--streams", "20"];
    let mut args = vec![url.as_str(), "--http2", "-r", "400", "-n", "400"];
    args.extend(limits);
    let (json, _) = measured(&args);
    assert_eq!((n(&json, "requests.ok"), n(&json, "requests.due")), (400, 400), "{json:#}");
    assert!(n(&json, "connections.peak") <= 2);
    assert_eq!(nginx.answered(400), 400);
}

fn an_http_1_server_is_a_protocol_failure() {
    let server = Server::start(good);
    let url = server.url("/");
    let (json, _) = measured(&[&url, "--http2", "-c", "2", "-n", "6"]);
    assert_eq!(n(&json, "requests.failed"), 6, "{json:#}");
    let failures = failures(&json);
    assert!(failures.iter().all(|(k, _)| ["protocol", "reset"].contains(&k.as_str())), "{failures:?}");
}

fn silence_is_a_timeout_and_a_refusal_a_refusal() {
    let server = Server::start(always(vec![Step::Hang]));
    let url = server.url("/");
    let args = ["--http2", "--streams", "4", "-c", "4", "-n", "8", "--timeout", "1s"];
    let (json, _) = measured(&[&[url.as_str()], &args[..]].concat());
    assert_eq!(n(&json, "failures.timeout"), 8, "{json:#}");
    assert_eq!(n(&json, "connections.opened"), 1, "a timeout leaves the connection to the others");
    // A port that the kernel never assigns: one that was free a moment ago may belong to another test by now.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let url = format!("http://{nobody}/");
    let (json, _) = measured(&[&url, "--http2", "-c", "3", "-n", "5"]);
    assert_eq!(n(&json, "failures.connect"), 5, "{json:#}");
}

#[test]
fn what_does_not_go_together_is_said() {
    for (args, words) in [
        (["--http2", "--no-keep-alive"], "--no-keep-alive closes each connection"),
        (["--http2", "--connections=100"], "--streams says how many"),
        (["--streams=3", "--quiet"], "--http2"),
    ] {
        let ran = bench(&[&["http://127.0.0.1:9/"], &args[..]].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    }
}

/// Whether what a client has sent contains a whole HEADERS frame, after the preface.
fn has_head(bytes: &[u8]) -> bool {
    const PREFACE: usize = 24;
    let mut rest = bytes.get(PREFACE..).unwrap_or_default();
    while let [a, b, c, kind, ..] = *rest {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some(next) = rest.get(9 + length..) else { return false };
        if kind == 1 {
            return true;
        }
        rest = next;
    }
    false
}

/// A minimal server cuts a stream off in the middle of an answer: a head, some data, then the end of the connection.
#[test]
fn an_answer_that_is_cut_short_is_truncated() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            // A request that arrives after the end of its connection was not seen, and is sent again.
            let mut got = Vec::new();
            let mut chunk = [0; 4096];
            while !has_head(&got) {
                let read = stream.read(&mut chunk).unwrap();
                assert!(read > 0, "no request came: {got:?}");
                got.extend_from_slice(&chunk[..read]);
            }
            // SETTINGS; HEADERS of stream 1 with `:status: 200`; DATA of two bytes, without an end.
            let answer = [
                &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
                &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88],
                &[0, 0, 2, 0, 0, 0, 0, 0, 1, b'o', b'k'],
            ];
            let _ = stream.write_all(&answer.concat());
        }
    });
    let (json, _) = measured(&[&url, "--http2", "-c", "1", "-n", "3"]);
    server.join().unwrap();
    let failed = failures(&json);
    assert_eq!(failed.iter().map(|(_, n)| n).sum::<u64>(), 3, "{json:#}");
    assert!(failed.iter().all(|(k, _)| ["truncated", "reset"].contains(&k.as_str())), "{failed:?}");
}
