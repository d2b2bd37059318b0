//! nginx for the comparison: one worker on a core of its own, on loopback, with files and settings in a folder of
//! this run. It counts its requests, so that nobody has to be believed.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cases::{Ask, Case, POSTED};
use super::measure::{Cores, start_on};
use crate::command::{captured, find, program};

/// Files that can be asked for, by size in bytes; each is named by it.
const FILES: &[usize] = &[128, 10_240, 1_048_576];
/// How long it may take to come up.
const READY: Duration = Duration::from_secs(10);

/// A running nginx; dropped, it is gone.
pub struct Server {
    child: Child,
    dir: PathBuf,
    address: SocketAddr,
    /// Where it speaks TLS 1.3.
    secure: SocketAddr,
    /// Where it speaks HTTP/2 to who knows.
    streams: SocketAddr,
}

impl Server {
    /// Starts it, with its files in a folder, and waits until it answers.
    ///
    /// # Errors
    /// It is not installed or does not come up.
    pub fn start(cores: &Cores, dir: &Path) -> Result<Server> {
        let dir = dir.to_path_buf();
        let files = dir.join("files");
        fs::create_dir_all(&files)?;
        for size in FILES {
            fs::write(files.join(size.to_string()), "x".repeat(*size))?;
        }
        fs::write(files.join("post"), "")?;
        fs::write(dir.join("body"), "y".repeat(POSTED))?;
        // Free now; that somebody takes it before nginx does would be reported by nginx.
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (address, secure, streams) = (free()?, free()?, free()?);
        let settings = dir.join("nginx.conf");
        certify(&dir)?;
        fs::write(&settings, config(&dir, address) + &config_of_layers(&dir, secure, streams))?;
        let mut command = program(find("nginx").context("nginx is not installed")?);
        command.arg("-p").arg(&dir).arg("-c").arg(&settings);
        command.stdout(Stdio::null()).stderr(fs::File::create(dir.join("nginx.err"))?);
        let child = start_on(cores.server, &mut command)?;
        let mut server = Server { child, dir, address, secure, streams };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Where it serves a case.
    pub fn url(&self, case: &Case) -> String {
        match case.ask {
            Ask::Streams => format!("http://{}{}", self.streams, case.path),
            ask if ask.is_secure() => format!("https://{}{}", self.secure, case.path),
            _ => format!("http://{}{}", self.address, case.path),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file with the body that is posted.
    pub fn body(&self) -> PathBuf {
        self.dir.join("body")
    }

    /// How many requests it has answered so far.
    ///
    /// # Errors
    /// It does not tell.
    pub fn requests(&self) -> Result<u64> {
        let page = self.get("/status").context("nginx does not answer")?;
        let numbers = page.lines().skip_while(|l| !l.starts_with("server accepts handled requests")).nth(1);
        let requests = numbers.and_then(|l| l.split_whitespace().nth(2)?.parse().ok());
        requests.with_context(|| format!("nginx does not count: {page}"))
    }

    fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(READY))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "GET {path}: {answer}");
        Ok(answer)
    }

    #[expect(clippy::disallowed_methods, reason = "between two looks, in a loop with an end")]
    fn wait_until_ready(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            let error = match self.get("/128") {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let ended = self.child.try_wait()?;
            if ended.is_some() || since.elapsed() > READY {
                let said = fs::read_to_string(self.dir.join("nginx.err")).unwrap_or_default();
                bail!("nginx does not come up: {error:#}\n{said}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM lets the master end its worker.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// One server for all rows. A POST is answered when its body has been read: a mirrored subrequest that goes nowhere
/// makes nginx read it, and what it would refuse (a file cannot be posted to) becomes 200 and 128 bytes.
fn config(dir: &Path, address: SocketAddr) -> String {
    let dir = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("    {name}_temp_path {dir}/{name};\n"))
        .collect();
    format!(
        "daemon off;\nworker_processes 1;\nworker_rlimit_nofile 20000;\npid {dir}/nginx.pid;\n\
         error_log stderr error;\nevents {{ worker_connections 16384; }}\nhttp {{\n    access_log off;\n{temporary}    \
         keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n    tcp_nodelay on;\n    sendfile on;\n    \
         open_file_cache max=100;\n    client_header_buffer_size 4k;\n    client_body_buffer_size 16k;\n    \
         server {{\n        listen {address} backlog=4096;\n        root {dir}/files;\n        \
         location = /status {{ stub_status; }}\n        \
         location = /post {{ mirror /read; error_page 405 =200 /128; }}\n        \
         location = /read {{ internal; return 204; }}\n{JOURNEY}    }}\n"
    )
}

/// What a journey asks for: a token for a user, and an item for who has one.
const JOURNEY: &str = "        location = /login { default_type application/json; return 200 '{\"user\":\"$arg_user\",\"token\":\"t-$arg_user\"}'; }\n        \
     location = /item { default_type application/json; if ($http_authorization !~ '^Bearer t-') { return 401; } \
     return 200 '{\"item\":\"$arg_id\",\"state\":\"ok\"}'; }\n";

/// The same files over TLS 1.3, where no session can be taken up again, and over HTTP/2; the end of the settings.
fn config_of_layers(dir: &Path, secure: SocketAddr, streams: SocketAddr) -> String {
    let dir = dir.display();
    format!(
        "    server {{\n        listen {secure} ssl backlog=4096;\n        root {dir}/files;\n        \
         ssl_certificate {dir}/cert.pem;\n        ssl_certificate_key {dir}/key.pem;\n        \
         ssl_protocols TLSv1.3;\n        ssl_session_tickets off;\n        ssl_session_cache off;\n    }}\n    \
         server {{\n        listen {streams} http2 backlog=4096;\n        root {dir}/files;\n    }}\n}}\n"
    )
}

/// A certificate that signs itself, made once for a folder.
fn certify(dir: &Path) -> Result<()> {
    let (key, certificate) = (dir.join("key.pem"), dir.join("cert.pem"));
    if certificate.exists() {
        return Ok(());
    }
    let mut command =
        program(find("openssl").context("openssl is not installed\nhint: apt-get install openssl")?);
    let kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let names =
        ["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"];
    command.args(kind).args(names).arg("-keyout").arg(key).arg("-out").arg(certificate);
    let ran = captured(&mut command, READY)?;
    ensure!(ran.status.success(), "openssl: {}", ran.stderr);
    Ok(())
}
