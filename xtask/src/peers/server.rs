//! nginx for the comparison: one worker on its own core, on loopback, with its files and settings in a folder of this
//! run. It counts its requests, so that no tool has to be trusted.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cases::{Ask, Case};
use super::measure::{Cores, start_on};
use crate::command::{captured, find, program, soon};

/// Files that can be requested, by size in bytes, which is also the file's name.
const FILES: &[usize] = &[128, 10_240, 1_048_576];
/// Time limit for nginx to start.
const READY: Duration = Duration::from_secs(10);

/// A running nginx; dropping it stops it.
pub struct Server {
    child: Child,
    dir: PathBuf,
    address: SocketAddr,
    /// Address for TLS 1.3.
    secure: SocketAddr,
    /// Address for HTTP/2 with prior knowledge.
    streams: SocketAddr,
    /// Address that answers everything with the same response.
    pub any: SocketAddr,
}

/// Free addresses of a host, no two of them the same.
fn free_addresses<const N: usize>(host: &str) -> std::io::Result<[SocketAddr; N]> {
    // All are held until each has been found: one that was given back could be found again.
    let mut held = Vec::with_capacity(N);
    let mut found = [SocketAddr::from(([0; 4], 0)); N];
    for address in &mut found {
        let listener = TcpListener::bind((host, 0))?;
        *address = listener.local_addr()?;
        held.push(listener);
    }
    Ok(found)
}

impl Server {
    /// Starts nginx, with its files in a folder, and waits until it answers.
    ///
    /// # Errors
    /// nginx is not installed, or does not start.
    pub fn start(cores: &Cores, dir: &Path) -> Result<Server> {
        Server::start_at("127.0.0.1", cores, dir)
    }

    /// As [`Server::start`], at another address of this machine.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start_at(host: &str, cores: &Cores, dir: &Path) -> Result<Server> {
        let dir = dir.to_path_buf();
        let files = dir.join("files");
        fs::create_dir_all(&files)?;
        for size in FILES {
            fs::write(files.join(size.to_string()), "x".repeat(*size))?;
        }
        fs::write(files.join("post"), "")?;
        // These ports are free now; if another program takes one before nginx does, nginx reports it.
        let [address, secure, streams, any] = free_addresses(host)?;
        let settings = dir.join("nginx.conf");
        certify(&dir)?;
        let text = include_str!("files/nginx.conf").replace("{dir}", &dir.display().to_string());
        let ports = [("{address}", address), ("{secure}", secure), ("{streams}", streams), ("{any}", any)];
        let text = ports.iter().fold(text, |text, (name, port)| text.replace(name, &port.to_string()));
        fs::write(&settings, text)?;
        let mut command = program(find("nginx").context("nginx is not installed")?);
        command.arg("-p").arg(&dir).arg("-c").arg(&settings);
        command.stdout(Stdio::null()).stderr(fs::File::create(dir.join("nginx.err"))?);
        let child = start_on(cores.server, &mut command)?;
        let mut server = Server { child, dir, address, secure, streams, any };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The URL of a case.
    pub fn url(&self, case: &Case) -> String {
        let (scheme, address) = match case.ask {
            Ask::Streams => ("http", self.streams),
            Ask::Secure | Ask::Handshake => ("https", self.secure),
            _ => ("http", self.address),
        };
        format!("{scheme}://{address}{}", case.path)
    }

    /// Address for plain HTTP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address for TLS 1.3, with a self-signed certificate.
    pub fn secure(&self) -> SocketAddr {
        self.secure
    }

    /// The number of requests answered so far, and how many of them with a status other than 200.
    ///
    /// # Errors
    /// nginx does not report its counts.
    pub fn counts(&self) -> Result<(u64, u64)> {
        let page = get(self.address, "/status").context("nginx does not answer")?;
        let numbers = page.lines().skip_while(|l| !l.starts_with("server accepts handled requests")).nth(1);
        let requests = numbers.and_then(|l| l.split_whitespace().nth(2)?.parse().ok());
        let wrong = fs::read(self.dir.join("wrong.log"))?.iter().filter(|b| **b == b'\n').count();
        Ok((requests.with_context(|| format!("nginx does not count: {page}"))?, wrong as u64))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let address = self.address;
        soon("nginx", READY, || {
            ensure!(self.child.try_wait()?.is_none(), "nginx has ended");
            Ok(TcpStream::connect(address).ok())
        })
        .and_then(|_| get(address, "/128"))
        .with_context(|| fs::read_to_string(self.dir.join("nginx.err")).unwrap_or_default())?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // On SIGTERM the master stops its worker.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// The response to a GET, headers and body; its status must be 200.
///
/// # Errors
/// There is no response, or it has another status.
pub fn get(address: impl ToSocketAddrs, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READY))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", stream.peer_addr()?)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "GET {path}: {answer}");
    Ok(answer)
}

/// Makes a self-signed certificate, once for a folder.
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
