//! Metrics as Prometheus text (exposition format 0.0.4), served over HTTP.
//!
//! One thread answers one request after the other: a scrape every few seconds is all that comes.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadlab_analysis::Exit;

use super::Known;
use super::families::{Family, Kind, families};
use crate::accept;
use crate::exit::Ended;
use crate::screen::state::State;

/// Whoever asks has to ask within this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves what is known on an address, until the program ends.
///
/// # Errors
/// It cannot be listened on.
pub fn serve(address: SocketAddr, known: Arc<Mutex<Known>>) -> Result<(), Ended> {
    let cannot = |e: std::io::Error| {
        Ended::error(Exit::BadPlan, format!("--prometheus: cannot listen on {address}: {e}"))
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    if address.port() == 0 {
        let given = listener.local_addr().map_err(cannot)?;
        crate::exit::note(&format!("metrics on http://{given}/metrics"));
    }
    let answering = move || {
        for stream in accept::connections(&listener) {
            let text = exposition(&known.lock().unwrap_or_else(PoisonError::into_inner).state);
            // One that went away misses its answer, and nothing else.
            let _ = answer(stream, &text);
        }
    };
    std::thread::Builder::new().name("metrics".into()).spawn(answering).map_err(cannot)?;
    Ok(())
}

/// The same answer to whatever is asked.
fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < 16 << 10 {
        match stream.read(&mut chunk)? {
            0 => break,
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())
}

/// What is known, as text.
fn exposition(state: &State) -> String {
    let mut out = String::new();
    for Family { name, suffix, kind, help, points, .. } in families(state) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(out, "# HELP loadlab_{name}{suffix} {help}\n# TYPE loadlab_{name}{suffix} {kind}");
        for (labels, value) in points {
            let _ = write!(out, "loadlab_{name}{suffix}{{run=\"{}\"", escape(&state.title));
            labels.iter().for_each(|(label, text)| {
                let _ = write!(out, ",{label}=\"{}\"", escape(text));
            });
            let _ = writeln!(out, "}} {value}");
        }
    }
    out
}

/// The value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
