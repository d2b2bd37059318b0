//! A forward proxy that keeps its own records: tunnels for CONNECT, whole URLs for everything else. It knows nothing of
//! loadlab.
//!
//! One thread per connection and direction, blocking sockets, port 0.

use super::ports;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the proxy counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Tunnels opened, by HOST:PORT.
    pub tunnels: BTreeMap<String, u64>,
    /// Requests forwarded, by whole URL.
    pub asked: BTreeMap<String, u64>,
    /// Requests and tunnels refused because the credentials were wrong or missing.
    pub refused: u64,
    /// Credentials received with requests for URLs and tunnels, and how often each came.
    pub users: BTreeMap<String, u64>,
}

/// The proxy. Its threads end with the process and are never joined.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// The only `Proxy-Authorization` value that is let through.
    wants: Option<&'static str>,
    counts: Mutex<Counts>,
}

impl Proxy {
    /// Starts on a free port of 127.0.0.1.
    pub fn start(wants: Option<&'static str>) -> Proxy {
        let listener = ports::listener();
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared { wants, counts: Mutex::default() });
        let for_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                for_thread.books().connections += 1;
                let shared = for_thread.clone();
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        Proxy { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn counts(&self) -> Counts {
        self.shared.books().clone()
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves requests on one connection, until it ends or becomes a tunnel.
fn serve(shared: &Shared, mut client: TcpStream) -> Option<()> {
    let _ = client.set_nodelay(true);
    let mut servers: BTreeMap<String, TcpStream> = BTreeMap::new();
    let mut buffer = Vec::new();
    loop {
        let head = read_head(&mut client, &mut buffer)?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let fields: Vec<(&str, &str)> =
            lines.filter_map(|l| l.split_once(':').map(|(n, v)| (n.trim(), v.trim()))).collect();
        let field = |name: &str| fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| *v);
        let length: usize = field("content-length").map_or(Some(0), |l| l.parse().ok())?;
        let body = take(&mut client, &mut buffer, length)?;
        let user = field("proxy-authorization");
        if let Some(user) = user {
            *shared.books().users.entry(user.to_owned()).or_default() += 1;
        }
        if shared.wants.is_some() && shared.wants != user {
            shared.books().refused += 1;
            let answer = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n";
            client.write_all(answer.as_bytes()).ok()?;
            continue;
        }
        if method == "CONNECT" {
            let Ok(server) = TcpStream::connect(&target) else {
                client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").ok()?;
                continue;
            };
            *shared.books().tunnels.entry(target).or_default() += 1;
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
            return tunnel(client, server, &buffer);
        }
        *shared.books().asked.entry(target.clone()).or_default() += 1;
        let rest = target.strip_prefix("http://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !servers.contains_key(host) {
            servers.insert(host.to_owned(), TcpStream::connect(host).ok()?);
        }
        let server = servers.get_mut(host)?;
        let kept = fields.iter().filter(|(n, _)| !n.eq_ignore_ascii_case("proxy-authorization"));
        let kept: String = kept.map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        server.write_all(format!("{method} {path} HTTP/1.1\r\n{kept}\r\n").as_bytes()).ok()?;
        server.write_all(&body).ok()?;
        let mut answered = Vec::new();
        let answer = read_head(server, &mut answered)?;
        let length = answer.split("\r\n").find_map(|line| {
            line.split_once(':')
                .filter(|(n, _)| n.eq_ignore_ascii_case("content-length"))?
                .1
                .trim()
                .parse()
                .ok()
        });
        let body = take(server, &mut answered, length.unwrap_or(0))?;
        client.write_all(format!("{answer}\r\n\r\n").as_bytes()).ok()?;
        client.write_all(&body).ok()?;
    }
}

/// Reads a head, without its empty line.
fn read_head(from: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    let end = loop {
        match buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            Some(end) => break end,
            None => more(from, buffer)?,
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    Some(head)
}

fn take(from: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while buffer.len() < length {
        more(from, buffer)?;
    }
    Some(buffer.drain(..length).collect())
}

fn more(from: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 * 1024];
    let n = from.read(&mut bytes).ok().filter(|n| *n > 0)?;
    buffer.extend_from_slice(&bytes[..n]);
    Some(())
}

/// Copies both directions until both have ended.
fn tunnel(client: TcpStream, mut server: TcpStream, first: &[u8]) -> Option<()> {
    server.write_all(first).ok()?;
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    let (from, to) = (server.try_clone().ok()?, client.try_clone().ok()?);
    let back = std::thread::spawn(move || copy(from, to));
    copy(client, server);
    back.join().ok()
}
