//! A real nginx for a test: listeners with and without TLS and on a Unix socket, and its own log.

use super::ports;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::server::TIMEOUT;

/// nginx with a page of 1000 bytes at `/page`; killed when dropped.
pub struct Nginx {
    child: Child,
    dir: tempfile::TempDir,
    /// HTTP/1.1 and HTTP/2 over TLS, with a certificate for `localhost` and 127.0.0.1.
    pub secure: SocketAddr,
    /// HTTP/1.1 without TLS.
    pub plain: SocketAddr,
}

impl Nginx {
    pub fn start() -> Nginx {
        let dir = tempfile::tempdir().unwrap();
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(dir.path().join("page"), "x".repeat(1000)).unwrap();
        let (secure, plain, path) = (ports::unused(), ports::unused(), dir.path().display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {path}/{name};"))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr error;\nevents {{ worker_connections 500; }}\n\
             http {{ log_format short '$server_protocol $status $uri'; log_format lone '$connection $server_protocol'; log_format user '$http_proxy_authorization'; access_log {path}/log short; access_log {path}/users user; access_log {path}/connections lone; keepalive_requests 1000000; {temporary}\n\
             server {{ listen {secure} ssl http2; listen {plain}; listen unix:{path}/sock; root {path};\n\
             ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem; }} }}\n"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
        let child = Command::new("nginx")
            .args(["-c", &dir.path().join("nginx.conf").display().to_string(), "-p", &path.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        let mut nginx = Nginx { child, dir, secure, plain };
        let since = Instant::now();
        while !nginx.listens() {
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

    /// Whether it listens on all of its addresses: it begins with one after the other.
    fn listens(&self) -> bool {
        let is_open = |address: SocketAddr| TcpStream::connect(address).is_ok();
        is_open(self.plain) && is_open(self.secure) && UnixStream::connect(self.socket()).is_ok()
    }

    /// Path of the Unix socket it listens on.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// Path of the certificate to trust.
    pub fn certificate(&self) -> String {
        self.dir.path().join("cert.pem").display().to_string()
    }

    /// Number of connections on which it answered requests of a protocol, such as `HTTP/2.0`.
    pub fn connections(&self, protocol: &str) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("connections")).unwrap();
        let lines = log.lines().filter(|line| line.ends_with(protocol));
        lines.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Number of requests by value of `Proxy-Authorization`; `-` means none.
    pub fn proxy_users(&self) -> BTreeMap<String, u64> {
        let log = std::fs::read_to_string(self.dir.path().join("users")).unwrap();
        let mut users = BTreeMap::new();
        log.lines().for_each(|line| *users.entry(line.to_owned()).or_default() += 1);
        users
    }

    /// Number of answers such as `HTTP/2.0 200 /page`. nginx logs after it answers, so this waits for the expected
    /// number.
    pub fn answered(&self, what: &str, expected: u64) -> u64 {
        logged(&self.dir.path().join("log"), expected, |line| line == what)
    }
}

/// Number of matching lines in a log, as soon as it reaches `expected`; otherwise the number when time runs out.
pub fn logged(log: &Path, expected: u64, is_meant: impl Fn(&str) -> bool) -> u64 {
    let until = Instant::now() + TIMEOUT;
    loop {
        let text = std::fs::read_to_string(log).expect("a log");
        let lines = text.lines().filter(|line| is_meant(line)).count() as u64;
        if lines >= expected || Instant::now() >= until {
            return lines;
        }
        std::thread::yield_now();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
