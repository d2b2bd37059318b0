//! A service with a planted hot function: HTTP/1.1, one thread per connection. Three quarters of its work are in one
//! function, the rest in another.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

fn steps(count: u64) -> u64 {
    let mut x = count | 1;
    for _ in 0..count {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

#[inline(never)]
fn planted_hot() {
    black_box(steps(black_box(300_000)));
}

#[inline(never)]
fn planted_warm() {
    black_box(steps(black_box(100_000)));
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut from = BufReader::new(stream.try_clone()?);
    let mut to = stream;
    let mut line = String::new();
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            planted_warm();
            planted_hot();
            to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")?;
        }
    }
}

fn main() -> std::io::Result<()> {
    let port: u16 = std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("a port");
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}
