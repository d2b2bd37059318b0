//! A tier of a planted system: the standard library, one thread per connection. Options set what a request costs, and
//! whether one waits for another: `--name value`. Requests have no body.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

struct Tier {
    options: HashMap<String, String>,
    /// Locked during the tier's own work, with `--locked yes`.
    ledger: Mutex<u64>,
    body: Vec<u8>,
}

impl Tier {
    fn number(&self, name: &str) -> u64 {
        self.options.get(name).map_or(0, |text| text.parse().expect("a number"))
    }

    fn own_work(&self) {
        let _held = self.options.contains_key("locked").then(|| {
            let mut ledger = self.ledger.lock().expect("nobody panics in it");
            *ledger += 1;
            ledger
        });
        match self.number("sleep-us") {
            0 => {}
            us => thread::sleep(Duration::from_micros(us)),
        }
        compute(self.number("rounds"));
    }

    fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut to = stream.try_clone()?;
        let mut from = BufReader::new(stream);
        let mut upstream = None;
        while read_head(&mut from)?.is_some() {
            self.own_work();
            let answered = match self.options.get("upstream") {
                Some(address) => ask(&mut upstream, address),
                None => Ok(()),
            };
            match answered {
                Ok(()) => {
                    let mut answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", self.body.len())
                            .into_bytes();
                    answer.extend(&self.body);
                    to.write_all(&answer)?;
                }
                Err(_) => to.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")?,
            }
        }
        Ok(())
    }
}

/// CPU work: a chain of this many steps, each of which takes a nanosecond or two.
fn compute(rounds: u64) {
    let mut x = rounds | 1;
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x);
}

/// Reads a request's or response's headers. Returns the length of the body that follows, or `None` at the end of the
/// connection.
fn read_head(from: &mut impl BufRead) -> Result<Option<usize>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let text = line.trim_end().to_ascii_lowercase();
        if text.is_empty() {
            return Ok(Some(length));
        }
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
}

/// Sends a request to the next tier, on the thread's own connection.
fn ask(upstream: &mut Option<BufReader<TcpStream>>, address: &str) -> Result<()> {
    if upstream.is_none() {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        *upstream = Some(BufReader::new(stream));
    }
    let Some(stream) = upstream.as_mut() else { return Ok(()) };
    let mut exchange = || {
        stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: upstream\r\n\r\n")?;
        let length = read_head(stream)?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        std::io::copy(&mut stream.take(length as u64), &mut std::io::sink())?;
        Ok(())
    };
    let asked = exchange();
    if asked.is_err() {
        *upstream = None;
    }
    asked
}

/// A JSON document with this many rows.
fn json(rows: usize) -> String {
    let row = |id: usize| format!("{{\"id\": {id}, \"name\": \"row {id}\", \"tags\": [\"a\", \"b\"]}}");
    format!("{{\"rows\": [{}], \"count\": {rows}}}", (0..rows).map(row).collect::<Vec<_>>().join(", "))
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options: HashMap<String, String> =
        words.chunks(2).map(|pair| (pair[0].trim_start_matches("--").to_owned(), pair[1].clone())).collect();
    let listener = TcpListener::bind(&options["listen"])?;
    let body = match options.get("json-rows").map(|rows| rows.parse().expect("a number")) {
        Some(rows) => json(rows),
        None => "ok\n".to_owned(),
    };
    let body = body.into_bytes();
    let tier = Arc::new(Tier { options, ledger: Mutex::new(0), body });
    for stream in listener.incoming() {
        let (tier, stream) = (Arc::clone(&tier), stream?);
        thread::spawn(move || tier.serve(stream));
    }
    Ok(())
}
