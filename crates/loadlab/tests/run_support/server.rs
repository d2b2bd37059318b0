//! The system under test of these tests: a small HTTP server that this test program becomes when it is started again
//! with `LAB_SERVER` set. It counts what it stores, and dies, hangs or uses up memory on request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Arguments that make the test program run only [`serve`].
pub const ARGS: [&str; 3] = ["--exact", "run_support::server::serve", "--nocapture"];

/// The server's behaviour, from the variable `LAB_SERVER`: JSON.
struct Ways {
    port: u16,
    name: String,
    /// Exits with status 7 on the request of this number, counted from 1.
    die_after: Option<u64>,
    /// Stores posted items this many milliseconds later.
    lag_ms: u64,
    /// Every n-th posted item is never stored.
    lose_every: Option<u64>,
    /// Answers `/health` with 503.
    never_ready: bool,
    /// URL to which requests for `/via` are forwarded.
    upstream: Option<String>,
    /// Takes this many milliseconds per request, without using the CPU.
    slow_ms: u64,
    /// Uses the CPU for this many microseconds per request.
    burn_us: u64,
    /// Works on this many requests at a time; the others wait.
    at_once: Option<u64>,
    /// Serves `/user/K` for this many users, and answers the others with 503.
    users: Option<u64>,
    /// Five times as slow at its first request, then less and less so over this many seconds.
    warm_s: f64,
    /// Listens on every address, not on loopback alone.
    everywhere: bool,
}

impl Ways {
    fn read(text: &str) -> Ways {
        let v: Value = serde_json::from_str(text).expect("LAB_SERVER is JSON");
        let text = |key: &str| v[key].as_str().map(str::to_owned);
        let number = |key: &str| v[key].as_u64();
        Ways {
            port: number("port").and_then(|p| u16::try_from(p).ok()).expect("LAB_SERVER has a port"),
            name: text("name").unwrap_or_default(),
            die_after: number("die_after"),
            lag_ms: number("lag_ms").unwrap_or(0),
            lose_every: number("lose_every"),
            never_ready: v["never_ready"].as_bool().unwrap_or(false),
            upstream: text("upstream"),
            slow_ms: number("slow_ms").unwrap_or(0),
            burn_us: number("burn_us").unwrap_or(0),
            at_once: number("at_once"),
            users: number("users"),
            warm_s: v["warm_s"].as_f64().unwrap_or(0.0),
            everywhere: v["everywhere"].as_bool().unwrap_or(false),
        }
    }
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    posted: AtomicU64,
    /// When each item becomes stored.
    due: Mutex<Vec<Instant>>,
    /// Ids of items posted as `/items/ID` and stored.
    ids: Mutex<Vec<u64>>,
    /// Whose turn it is, and the signal that a request is done.
    turns: (Mutex<Turns>, std::sync::Condvar),
    first: std::sync::OnceLock<Instant>,
}

/// Numbers of requests that have arrived and that are done, in order of arrival.
#[derive(Default)]
struct Turns {
    came: u64,
    done: u64,
}

/// A slot of the requests that are worked on at a time. Slots are given in order of arrival, as in pools: if a finished
/// worker could take the next request ahead of those that wait, the waiting time would be up to the scheduler.
struct Place<'a>(&'a Counts);

impl Place<'_> {
    fn wait<'a>(ways: &Ways, counts: &'a Counts) -> Option<Place<'a>> {
        let most = ways.at_once?;
        let (turns, done) = &counts.turns;
        let mut turns = turns.lock().expect("nobody panics with it");
        let mine = turns.came;
        turns.came += 1;
        drop(done.wait_while(turns, |t| mine >= t.done + most).expect("nobody panics with it"));
        Some(Place(counts))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (turns, done) = &self.0.turns;
        turns.lock().expect("nobody panics with it").done += 1;
        done.notify_all();
    }
}

/// Spends the time a request costs.
#[expect(clippy::disallowed_methods, reason = "a server that is slow: the delay is what is tested")]
fn work(ways: &Ways, counts: &Counts) {
    let until = Instant::now() + Duration::from_micros(ways.burn_us);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    if ways.slow_ms > 0 {
        let age_s = counts.first.get_or_init(Instant::now).elapsed().as_secs_f64();
        let cold = if age_s < ways.warm_s { 4.0 * (1.0 - age_s / ways.warm_s) } else { 0.0 };
        std::thread::sleep(Duration::from_millis(ways.slow_ms).mul_f64(1.0 + cold));
    }
}

/// Not a test: the server itself, when a plan of these tests starts this program with `LAB_SERVER`.
#[test]
fn serve() {
    let Ok(text) = std::env::var("LAB_SERVER") else { return };
    let ways = Arc::new(Ways::read(&text));
    let counts = Arc::new(Counts::default());
    let at = if ways.everywhere { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = TcpListener::bind((at, ways.port)).expect("the port is free");
    println!("{} is listening", ways.name);
    // Node leaves such a log if functions are to have names.
    if std::env::var("NODE_OPTIONS").is_ok_and(|options| options.contains("--perf-basic-prof")) {
        let log = format!("isolate-0x1-{}-v8.log", std::process::id());
        std::fs::write(log, "").expect("the component's folder can be written to");
    }
    for stream in listener.incoming().flatten() {
        let (ways, counts) = (ways.clone(), counts.clone());
        std::thread::spawn(move || while_open(stream, &ways, &counts));
    }
}

/// Serves one connection, in this process.
pub fn serve_one(listener: &TcpListener) {
    let ways = Ways::read(r#"{"port": 1}"#);
    if let Ok((stream, _)) = listener.accept() {
        while_open(stream, &ways, &Counts::default());
    }
}

fn while_open(stream: TcpStream, ways: &Ways, counts: &Counts) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut input = BufReader::new(stream);
    while let Some((method, path)) = request(&mut input) {
        let (status, body) = answer(&method, &path, ways, counts);
        let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", body.len());
        if out.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

/// Method and path of the next request, whose body is read and discarded.
fn request(input: &mut impl BufRead) -> Option<(String, String)> {
    let mut line = String::new();
    let mut length = 0;
    input.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    loop {
        let mut field = String::new();
        input.read_line(&mut field).ok().filter(|n| *n > 0)?;
        if field.trim().is_empty() {
            break;
        }
        if let Some(("content-length", n)) = field.to_ascii_lowercase().split_once(':') {
            length = n.trim().parse().ok()?;
        }
    }
    std::io::copy(&mut input.take(length), &mut std::io::sink()).ok()?;
    Some((method, path))
}

#[expect(clippy::print_stdout, clippy::exit, reason = "the test server is a program")]
fn answer(method: &str, path: &str, ways: &Ways, counts: &Counts) -> (u16, String) {
    if path == "/health" {
        return (if ways.never_ready { 503 } else { 200 }, String::new());
    }
    let _place = Place::wait(ways, counts);
    work(ways, counts);
    match (method, path) {
        ("GET", "/stats") => {
            let now = Instant::now();
            let due = counts.due.lock().expect("nobody panics with it");
            let stored = due.iter().filter(|at| **at <= now).count();
            (200, json!({ "stored": stored, "posted": counts.posted.load(Ordering::SeqCst) }).to_string())
        }
        ("GET", "/ids") => {
            (200, json!({ "ids": *counts.ids.lock().expect("nobody panics with it") }).to_string())
        }
        ("GET", "/metrics") => {
            let posted = counts.posted.load(Ordering::SeqCst);
            (200, format!("# TYPE posted counter\nposted{{to=\"{}\"}} {posted}\n", ways.name))
        }
        ("GET", "/via") => match ways.upstream.as_deref().map(get) {
            Some(Ok(body)) => (200, body),
            Some(Err(error)) => (502, error.to_string()),
            None => (404, "no upstream".to_owned()),
        },
        ("GET", path) if path.starts_with("/user/") => {
            let user: u64 = path["/user/".len()..].parse().unwrap_or(0);
            (if ways.users.is_some_and(|served| user >= served) { 503 } else { 200 }, String::new())
        }
        ("GET", path) if path.starts_with("/hog/") => {
            let mib: usize = path["/hog/".len()..].parse().unwrap_or(0);
            std::mem::forget(vec![1u8; mib << 20]);
            (200, String::new())
        }
        _ => {
            let number = counts.requests.fetch_add(1, Ordering::SeqCst) + 1;
            if ways.die_after.is_some_and(|last| number >= last) {
                println!("{} gives up at request {number}", ways.name);
                std::process::exit(7);
            }
            if method == "POST" {
                let number = counts.posted.fetch_add(1, Ordering::SeqCst) + 1;
                if ways.lose_every.is_none_or(|n| !number.is_multiple_of(n)) {
                    let at = Instant::now() + Duration::from_millis(ways.lag_ms);
                    counts.due.lock().expect("nobody panics with it").push(at);
                    if let Some(id) = path.strip_prefix("/items/").and_then(|id| id.parse().ok()) {
                        counts.ids.lock().expect("nobody panics with it").push(id);
                    }
                }
                return (201, String::new());
            }
            (200, format!("hello from {}", ways.name))
        }
    }
}

/// Fetches the body of `http://HOST:PORT/PATH`.
pub fn get(url: &str) -> std::io::Result<String> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(authority)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")?;
    let mut input = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut field = String::new();
        input.read_line(&mut field)?;
        if field.trim().is_empty() {
            break;
        }
        if let Some(("content-length", n)) = field.to_ascii_lowercase().split_once(':') {
            length = n.trim().parse().unwrap_or(0);
        }
    }
    let mut body = String::new();
    input.take(length).read_to_string(&mut body)?;
    Ok(body)
}
