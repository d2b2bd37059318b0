//! Time from the start of `loadlab bench` to its first request, as the server sees it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::{Ends, program};
use crate::steps::Outcome;

/// Number of starts measured; the median counts.
const STARTS: usize = 15;
/// The promised maximum of the median.
const LONGEST: Duration = Duration::from_millis(30);

/// Measures the time to the first request.
///
/// # Errors
/// No request arrives, or the median is longer than promised.
pub fn check(loadlab: &Path) -> Outcome {
    let mut took = (0..STARTS).map(|_| one(loadlab)).collect::<Result<Vec<_>>>()?;
    took.sort();
    let (median, last) = (took[STARTS / 2], took[STARTS - 1]);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let text = format!("first request after {:.1} ms, {:.1} ms at most", ms(median), ms(last));
    ensure!(median <= LONGEST, "{text}: longer than {} ms", LONGEST.as_millis());
    Ok(text)
}

fn one(loadlab: &Path) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    let began = Instant::now();
    let mut command = program(loadlab);
    command.args(["bench", &url, "-c", "1", "-n", "1", "--quiet"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("loadlab")?;
    let mut child = Ends(child);
    let (mut stream, _) = listener.accept()?;
    let read = stream.read(&mut [0; 1024])?;
    let took = began.elapsed();
    ensure!(read > 0, "loadlab connects and sends nothing");
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    drop(stream);
    let ended = child.0.wait()?;
    ensure!(ended.success(), "loadlab bench: {ended}");
    Ok(took)
}
