//! nginx in front of a test server: TLS, and optionally HTTP/2.

use crate::common::nginx::logged;
use crate::common::ports;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A running nginx, killed when dropped.
pub struct Front {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Front {
    /// Forwards to the server with this URL; connections end with a GOAWAY after this many requests.
    pub fn start(behind: &str, takes_http2: bool, goodbye_after: u32) -> Front {
        let dir = tempfile::tempdir().expect("a folder can be made");
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let file = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("a file can be written");
        };
        file("cert.pem", &made.cert.pem());
        file("key.pem", &made.signing_key.serialize_pem());
        let address = ports::unused();
        let (path, http2) = (dir.path().display(), if takes_http2 { "http2" } else { "" });
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {path}/{name};"))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr error;\nevents {{ worker_connections 500; }}\n\
             http {{ access_log {path}/log; {temporary} keepalive_requests {goodbye_after};\n\
             server {{ listen {address} ssl {http2}; ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;\n\
             location / {{ proxy_pass {behind}; proxy_http_version 1.1; }} }} }}\n"
        );
        file("nginx.conf", &config);
        let child = Command::new("nginx")
            .args(["-c", &dir.path().join("nginx.conf").display().to_string(), "-p", &path.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("nginx is installed (apt-get install nginx-light)");
        let mut front = Front { child, dir, address };
        let since = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(front.child.try_wait().expect("a child").is_none(), "nginx does not come up");
            assert!(since.elapsed() < TIMEOUT, "nginx does not listen");
            std::thread::yield_now();
        }
        front
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Path of its certificate, which is its own authority.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    /// Number of requests answered over this version of HTTP, by the log. nginx logs after it answers, so this waits
    /// for the expected number.
    pub fn answered(&self, version: &str, expected: u64) -> u64 {
        logged(&self.dir.path().join("log"), expected, |line| line.contains(version))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
