//! Metrics as Prometheus text (exposition format 0.0.4), served over HTTP. The live page's guard controls access: on
//! loopback, requests must name loopback as their host; pages of other sites are always refused.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use loadlab_analysis::Exit;
use loadlab_record::sync::lock;

use super::Known;
use super::families::{Family, MetricType, families};
use crate::exit::CommandEnd;
use crate::live::state::State;
use crate::serve::guard::{Host, Refusal, admit_without_token};
use crate::serve::{answer_each, read_head, refuse, write_answer};

/// Serves the current metrics on an address, until the program ends.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(address: SocketAddr, known: Arc<Mutex<Known>>) -> Result<(), CommandEnd> {
    let cannot = |e: std::io::Error| {
        CommandEnd::error(Exit::BadPlan, format!("--prometheus: cannot listen on {address}: {e}"))
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    if address.port() == 0 {
        let given = listener.local_addr().map_err(cannot)?;
        crate::exit::note(&format!("metrics on http://{given}/metrics"));
    }
    let hosts = if address.ip().is_loopback() { Host::OfThisMachine } else { Host::Any };
    answer_each(listener, "metrics", move |stream| answer(stream, hosts, &known)).map_err(cannot)
}

/// Answers every request with the metrics, whatever its path.
fn answer(mut stream: TcpStream, hosts: Host, known: &Mutex<Known>) -> std::io::Result<()> {
    let Some(head) = read_head(&mut stream)? else { return refuse(&mut stream, &Refusal::GARBLED) };
    let admitted = match admit_without_token(&head, hosts) {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(&mut stream, &refusal),
    };
    // Threads that report events wait for this lock: copy under it, and format afterwards.
    let state = lock(known).state.clone();
    let fields = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    write_answer(&mut stream, "200 OK", fields, &exposition(&state), admitted.is_head)
}

/// The current metrics as text.
fn exposition(state: &State) -> String {
    let mut out = String::new();
    for Family { name, suffix, kind, help, points, .. } in families(state) {
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
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

/// Escapes the value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
