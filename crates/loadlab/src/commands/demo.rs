//! `loadlab demo`: a small web service to load, so that the first plan runs on any machine. It is a system under test:
//! it knows nothing of loads, and serves only examples and people who try loadlab out.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use loadlab_analysis::Exit;
use loadlab_record::sync::{self, lock};
use serde_json::{Value, json};

use crate::args::DemoArgs;
use crate::exit::{self, CommandEnd};

/// The longest head and the largest body that it reads, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// What its connections share.
struct Shop {
    /// Number of free workers; requests wait on `freed` for one.
    free: Mutex<u32>,
    freed: Condvar,
    work: Duration,
    wait: Duration,
    /// Ids of the messages stored so far.
    stored: Mutex<BTreeSet<u64>>,
}

/// Serves until it is killed.
pub fn command(args: &DemoArgs) -> CommandEnd {
    // The process behind the port is found under this name; `loadlab` is the one that loads it.
    let _ = rustix::thread::set_name(c"demo");
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)) {
        Ok(listener) => listener,
        Err(error) => {
            let hint = "another program may have that port; --port 0 takes a free one";
            let message = format!("cannot listen on 127.0.0.1:{}: {error}\nhint: {hint}", args.port);
            return CommandEnd::error(Exit::CouldNotRun, message);
        }
    };
    let port = listener.local_addr().map_or(args.port, |address| address.port());
    exit::line(&format!(
        "listening on http://127.0.0.1:{port}/ with {} workers; Ctrl-C ends it",
        args.workers
    ));
    let shop = Arc::new(Shop {
        free: Mutex::new(args.workers),
        freed: Condvar::new(),
        work: Duration::from_nanos(args.work),
        wait: Duration::from_nanos(args.wait),
        stored: Mutex::default(),
    });
    for stream in listener.incoming().flatten() {
        let shop = Arc::clone(&shop);
        // If no thread can be started, the connection is closed.
        let _ = std::thread::Builder::new().name("demo".to_owned()).stack_size(128 << 10).spawn(move || {
            // A client that goes away is not an error.
            let _ = shop.serve(stream);
        });
    }
    CommandEnd::with(Exit::Ok)
}

/// The parts of a request that matter here.
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
    bearer: Option<String>,
    /// The connection closes after the response.
    closes: bool,
    /// HTTP/1.0, where a connection stays open only if both sides ask for it, as `ab -k` does.
    is_old: bool,
}

impl Shop {
    /// Serves a connection until it ends.
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut out = stream.try_clone()?;
        let mut input = BufReader::new(stream);
        while let Some(request) = read(&mut input)? {
            let (status, body) = self.answer(&request);
            let text = format!("{body}\n");
            let length = text.len();
            let connection = match request {
                Request { closes: true, .. } => "connection: close\r\n",
                Request { is_old: true, .. } => "connection: keep-alive\r\n",
                _ => "",
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{connection}\r\n"
            );
            let text = if request.method == "HEAD" { "" } else { text.as_str() };
            out.write_all(format!("{head}{text}").as_bytes())?;
            if request.closes {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> (&'static str, Value) {
        let (path, _) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let item = path.strip_prefix("/items/").and_then(|id| id.parse::<u64>().ok());
        match (request.method.as_str(), path, item) {
            ("GET" | "HEAD", "/health", _) => ("200 OK", json!({ "healthy": true })),
            ("GET" | "HEAD", "/", _) => {
                self.work();
                ("200 OK", json!({ "hello": "world" }))
            }
            ("GET", _, Some(id)) => {
                self.work();
                ("200 OK", json!({ "id": id, "price": 10 + id % 90 }))
            }
            ("POST", "/login", _) => {
                self.work();
                ("200 OK", json!({ "token": format!("token-{}", request.body.len()) }))
            }
            ("POST", "/cart", _) if request.bearer.as_deref().is_none_or(|t| !t.starts_with("token-")) => {
                ("401 Unauthorized", json!({ "error": "log in first" }))
            }
            ("POST", "/cart", _) => {
                self.work();
                ("201 Created", json!({ "ok": true }))
            }
            ("POST", "/messages", _) => self.store(&request.body),
            ("GET", "/messages", _) => ("200 OK", json!({ "ids": *lock(&self.stored) })),
            ("GET", "/stats", _) => ("200 OK", json!({ "stored": lock(&self.stored).len() })),
            _ => ("404 Not Found", json!({ "error": "there is no such page" })),
        }
    }

    fn store(&self, body: &[u8]) -> (&'static str, Value) {
        let id = serde_json::from_slice::<Value>(body).ok().and_then(|message| message["id"].as_u64());
        let Some(id) = id else {
            return ("400 Bad Request", json!({ "error": "a message has an `id`" }));
        };
        self.work();
        lock(&self.stored).insert(id);
        ("201 Created", json!({ "id": id }))
    }

    /// Waits for a free worker, and does the work of a request.
    fn work(&self) {
        let mut free = lock(&self.free);
        while *free == 0 {
            free = sync::wait(&self.freed, free);
        }
        *free -= 1;
        drop(free);
        let begin = Instant::now();
        while begin.elapsed() < self.work {
            std::hint::spin_loop();
        }
        if !self.wait.is_zero() {
            wait(self.wait);
        }
        *lock(&self.free) += 1;
        self.freed.notify_one();
    }
}

#[expect(clippy::disallowed_methods, reason = "a service that waits for another is what is simulated")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// The next request; `None` at the end of the connection.
fn read(input: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut head = input.by_ref().take(MOST_BYTES);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_old = words.next().is_some_and(|version| version == "HTTP/1.0");
    let (mut length, mut bearer, mut closes) = (0u64, None, is_old);
    loop {
        let mut field = String::new();
        if head.read_line(&mut field)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = field.trim_end().split_once(':') else { break };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", value) => length = value.parse().unwrap_or(0),
            ("authorization", value) => bearer = value.strip_prefix("Bearer ").map(str::to_owned),
            ("connection", value) if value.eq_ignore_ascii_case("close") => closes = true,
            ("connection", value) if value.eq_ignore_ascii_case("keep-alive") => closes = false,
            _ => {}
        }
    }
    let mut body = Vec::new();
    input.by_ref().take(length.min(MOST_BYTES)).read_to_end(&mut body)?;
    let closes = closes || length > MOST_BYTES;
    Ok(Some(Request { method, path, body, bearer, closes, is_old }))
}
