//! Shared by the bare loops: the request, the length of its answer, the clock, and the one array their median comes
//! from. A bare loop is a load generator reduced to the minimum: it shows the limit that the kernel sets. It must not
//! grow features, or it is no longer a limit.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, Timespec, clock_gettime};

pub mod truth;

/// How long a server may take for the first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// Buckets of one microsecond each; anything longer is in the last one.
const BUCKETS: usize = 1 << 17;

/// What a closed loop is asked to do.
#[derive(Clone, Debug, clap::Parser)]
pub struct Asked {
    /// Server, as ADDRESS:PORT
    pub server: SocketAddrV4,
    /// Path on it
    pub path: String,
    /// Connections, each with one request at a time
    #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=30_000))]
    pub connections: u32,
    /// How long requests begin, in seconds
    #[arg(short, long, default_value_t = 3.0)]
    pub seconds: f64,
    /// So many requests instead
    #[arg(short = 'n', long)]
    pub requests: Option<u64>,
    /// A new connection for each request
    #[arg(long)]
    pub close: bool,
}

/// The end of each of these programs: prints its result on one line, or the error.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the end of each of these programs")]
pub fn tell(found: Result<serde_json::Value>) -> ExitCode {
    match found {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Asked {
    /// The request's bytes: what `loadlab bench` sends, with the same headers.
    pub fn request(&self) -> Vec<u8> {
        request(self.server, &self.path, self.close)
    }
}

/// As in the engine: take this fraction of the answers together, at most this many, and not for fewer …
const BATCH_SIZE_DIVISOR: usize = 3;
const MAX_BATCH_SIZE: usize = 20;
const MIN_BATCH_SIZE: usize = 5;
/// … within this fraction of the mean service time, and at most this long.
const BATCH_WAIT_DIVISOR: u64 = 12;
const MAX_BATCH_WAIT_NS: u64 = 50_000;

/// How many answers are taken together, as loadlab's engine does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Together {
    /// Moving mean.
    service_ns: u64,
}

impl Together {
    /// Records how long an answer took.
    #[inline]
    pub fn took(&mut self, ns: u64) {
        self.service_ns = self.service_ns - self.service_ns / 64 + ns / 64;
    }

    /// How many, and for how long at most; `None`: each at once.
    #[inline]
    pub fn of(&self, in_flight: usize) -> Option<(usize, Timespec)> {
        let most = (in_flight / BATCH_SIZE_DIVISOR).min(MAX_BATCH_SIZE);
        let within_ns = (self.service_ns / BATCH_WAIT_DIVISOR).min(MAX_BATCH_WAIT_NS);
        (most >= MIN_BATCH_SIZE).then_some((most, Timespec { tv_sec: 0, tv_nsec: within_ns as i64 }))
    }
}

/// A GET request as `loadlab bench` writes it.
pub fn request(server: SocketAddrV4, path: &str, close: bool) -> Vec<u8> {
    let end = if close { "Connection: close\r\n\r\n" } else { "\r\n" };
    format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{end}").into_bytes()
}

/// Sends a request once, and returns how many bytes its answer has: head and body. All later answers are assumed to
/// have that length, and are not inspected.
///
/// # Errors
/// No answer, one that is not 200, or one without a length.
pub fn learn(server: SocketAddrV4, request: &[u8]) -> Result<usize> {
    let mut stream = TcpStream::connect(server).with_context(|| format!("connect to {server}"))?;
    stream.set_read_timeout(Some(FIRST_ANSWER))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut piece = [0u8; 4096];
    let length = loop {
        let n = stream.read(&mut piece).context("the first answer")?;
        ensure!(n > 0, "the connection was closed before the head of the first answer ended");
        answer.extend_from_slice(&piece[..n]);
        if let Some(length) = length_of(&answer)? {
            break length;
        }
    };
    // To its end, so that closing does not reset the connection.
    while answer.len() < length {
        let n = stream.read(&mut piece).context("the first answer")?;
        ensure!(n > 0, "the first answer was cut off");
        answer.extend_from_slice(&piece[..n]);
    }
    Ok(length)
}

/// Bytes of a whole answer, from its head, once that is complete.
fn length_of(answer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).context("the first answer's head")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("the first answer is `{status}`");
    }
    let length = lines.filter_map(|line| line.split_once(':'));
    let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.next().context("the first answer has no Content-Length")?;
    Ok(Some(end + 4 + length.trim().parse::<usize>().context("Content-Length")?))
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline]
pub fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// A time in nanoseconds.
#[inline]
pub fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Lets timers fire when they are due: the kernel's default slack is 50 µs.
#[expect(unsafe_code, reason = "prctl, so that timers fire when they are due")]
pub fn fine_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// As many open files as this process may have.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What a closed loop counts, and when it ends.
pub struct Tally {
    times_us: Box<[u32]>,
    answered: u64,
    may_begin: u64,
    begun_ns: u64,
    end_ns: u64,
    last_ns: u64,
}

impl Tally {
    /// It begins now.
    pub fn begin(asked: &Asked) -> Tally {
        let begun_ns = now_ns();
        let (may_begin, end_ns) = match asked.requests {
            Some(requests) => (requests, u64::MAX),
            None => (u64::MAX, begun_ns + (asked.seconds * 1e9) as u64),
        };
        let times_us = vec![0; BUCKETS].into_boxed_slice();
        Tally { times_us, answered: 0, may_begin, begun_ns, end_ns, last_ns: begun_ns }
    }

    /// Whether a request begins at this time.
    #[inline]
    pub fn more(&mut self, now_ns: u64) -> bool {
        let more = now_ns < self.end_ns && self.may_begin > 0;
        self.may_begin -= u64::from(more);
        more
    }

    /// One was answered.
    #[inline]
    pub fn answered(&mut self, started_ns: u64, now_ns: u64) {
        self.answered += 1;
        self.last_ns = now_ns;
        let us = (now_ns - started_ns) as usize / 1000;
        self.times_us[us.min(BUCKETS - 1)] += 1;
    }

    /// The result.
    pub fn report(&self, backend: &str) -> serde_json::Value {
        let elapsed_s = (self.last_ns - self.begun_ns) as f64 / 1e9;
        serde_json::json!({
            "backend": backend,
            "requests": self.answered,
            "elapsed_s": elapsed_s,
            "rate_per_s": if elapsed_s > 0.0 { self.answered as f64 / elapsed_s } else { 0.0 },
            "p50_us": self.median_us(),
        })
    }

    /// The middle of its bucket.
    fn median_us(&self) -> Option<f64> {
        let mut left = self.answered.div_ceil(2);
        for (us, count) in self.times_us.iter().enumerate() {
            if left <= u64::from(*count) {
                return (left > 0).then_some(us as f64 + 0.5);
            }
            left -= u64::from(*count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_answer_is_reported_by_its_head() {
        let check = |text: &str| length_of(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"), Ok(None));
        assert_eq!(check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"), Ok(Some(40)));
        assert_eq!(
            check("HTTP/1.1 404 Not Found\r\n\r\n"),
            Err("the first answer is `HTTP/1.1 404 Not Found`".to_owned())
        );
        assert_eq!(
            check("HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
            Err("the first answer has no Content-Length".to_owned())
        );
    }

    #[test]
    fn a_tally_ends_by_number_and_has_the_median() {
        let asked = Asked {
            server: SocketAddrV4::new([127, 0, 0, 1].into(), 1),
            path: "/".to_owned(),
            connections: 1,
            seconds: 1.0,
            requests: Some(3),
            close: false,
        };
        let mut tally = Tally::begin(&asked);
        assert_eq!(tally.median_us(), None);
        for took_us in [5, 900_000, 7] {
            assert!(tally.more(u64::MAX - 1));
            tally.answered(tally.begun_ns, tally.begun_ns + took_us * 1000);
        }
        assert!(!tally.more(0));
        assert_eq!((tally.answered, tally.median_us()), (3, Some(7.5)));
    }
}
