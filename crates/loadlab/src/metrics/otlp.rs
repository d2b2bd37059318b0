//! Metrics pushed to an OpenTelemetry collector: OTLP over HTTP or HTTPS with JSON (opentelemetry-proto 1,
//! `ExportMetricsServiceRequest`).
//!
//! One thread sends the queued documents, each on its own connection: a collector that is slow, refuses or is down
//! costs a push and disturbs nothing else. The first error is reported once. Sums are cumulative, so that the next push
//! makes up for a lost one.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use loadlab_analysis::Exit;
use loadlab_load::journey::redirect::Site;
use loadlab_load::spec::TlsSpec;
use loadlab_load::spec::request::RequestParts;
use loadlab_record::sync::lock;
use loadlab_record::text::first_line;
use loadlab_run::{TlsSettings, tls_spec};
use serde_json::{Value, json};

use super::Known;
use super::families::{Family, Labels, MetricType, families};
use crate::args::serving::{Collector, Endpoint};
use crate::exit::CommandEnd;
use crate::serve::Within;

/// Deadline for connecting, and again for a whole push including its answer, however slowly bytes arrive; [`TIMEOUT_VARIABLE`]
/// overrides it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// OpenTelemetry's environment variable for the timeout, in milliseconds.
const TIMEOUT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
/// How much longer than its deadlines the last push is waited for.
const MARGIN: Duration = Duration::from_secs(1);
/// How many pushes may be queued; beyond that the collector has fallen behind, and pushes are skipped.
const MAX_QUEUED: usize = 16;
/// The most bytes of a collector's answer that are read.
const MOST_ANSWER: u64 = 64 << 10;
/// Sends documents to a collector.
struct Sender {
    endpoint: Endpoint,
    every: Duration,
    /// The request without its body.
    request: RequestParts,
    tls: Option<Box<TlsSpec>>,
    timeout: Duration,
}

/// How long a push may take: [`TIMEOUT_VARIABLE`] if it is set, else [`DEFAULT_TIMEOUT`].
fn timeout() -> Result<Duration, String> {
    let Some(set) = std::env::var_os(TIMEOUT_VARIABLE).filter(|set| !set.is_empty()) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let ms = set.to_str().and_then(|text| text.parse().ok()).filter(|ms| (1..=600_000).contains(ms));
    ms.map(Duration::from_millis).ok_or_else(|| {
        format!("{TIMEOUT_VARIABLE}={}: it must be milliseconds, from 1 to 600000", set.display())
    })
}

impl Sender {
    fn new(collector: Collector) -> Result<Sender, String> {
        let Collector { endpoint, every, ca, headers } = collector;
        let host = endpoint.host.as_str();
        let site =
            Site { authority: host.into(), host: host.into(), is_secure: endpoint.is_secure, by_proxy: None };
        let settings = TlsSettings { ca, is_resumed: true, ..TlsSettings::default() };
        let tls = tls_spec(&settings, &[site], false).map_err(|e| e.to_string())?;
        let given = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let agent = concat!("loadlab/", env!("CARGO_PKG_VERSION"));
        let own = [("Content-Type", "application/json"), ("User-Agent", agent)];
        let own = own.into_iter().filter(|(name, _)| !given(name));
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = RequestParts {
            method: "POST".into(),
            host: format!("{host}:{}", endpoint.port),
            path: endpoint.path.clone(),
            headers: own.chain(headers.iter().cloned()).collect(),
            body: None,
            keep_alive: false,
        };
        request.clone().build().map_err(|e| e.to_string())?;
        Ok(Sender { endpoint, every, request, tls, timeout: timeout()? })
    }

    /// Sends one document.
    fn push(&self, body: &str) -> Result<(), String> {
        let host = self.endpoint.host.trim_start_matches('[').trim_end_matches(']');
        let addresses = (host, self.endpoint.port).to_socket_addrs().map_err(|e| self.describe(e))?;
        let mut stream = Err("the name has no address".to_owned());
        for address in addresses {
            stream = TcpStream::connect_timeout(&address, self.timeout).map_err(|e| self.describe(e));
            if stream.is_ok() {
                break;
            }
        }
        let stream = Within::new(stream?, self.timeout);
        let tls = self.tls.as_deref().and_then(|tls| Some((&tls.config, tls.names.first()?.as_ref()?)));
        match tls {
            None => self.exchange(stream, body),
            Some((config, name)) => {
                // Hints about a load's options do not help here.
                let secure = config.over(name, stream).map_err(|e| first_line(&e.to_string()))?;
                self.exchange(secure, body)
            }
        }
    }

    fn exchange(&self, mut stream: impl Read + Write, body: &str) -> Result<(), String> {
        let request = RequestParts { body: Some(body.into()), ..self.request.clone() };
        let request = request.build().map_err(|e| e.to_string())?;
        stream.write_all(&request.bytes).and_then(|()| stream.flush()).map_err(|e| self.describe(e))?;
        answer(stream, |e| self.describe(e))
    }

    fn describe(&self, error: io::Error) -> String {
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("not within {}", in_seconds(self.timeout))
            }
            _ => first_line(&error.to_string()),
        }
    }
}

fn in_seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Evaluates a collector's answer to a push.
fn answer(stream: impl Read, describe: impl Fn(io::Error) -> String) -> Result<(), String> {
    let mut reader = BufReader::new(stream.take(MOST_ANSWER));
    let (mut line, mut length) = (String::new(), None);
    reader.read_line(&mut line).map_err(|e| format!("no answer: {}", describe(e)))?;
    let status: u16 = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or("the answer is not HTTP")?;
    if !(200..300).contains(&status) {
        return Err(format!("it answered {}", line.trim().split_once(' ').map_or("", |(_, rest)| rest)));
    }
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).map_err(&describe)? == 0 || header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<u64>().ok();
        }
    }
    // Without a length, reading the body would mean waiting for the connection to close, and the status was good.
    let mut body = Vec::new();
    let _ = reader.take(length.unwrap_or(0)).read_to_end(&mut body);
    let reported: Value = serde_json::from_slice(&body).unwrap_or_default();
    let partial = &reported["partialSuccess"];
    let rejected = match &partial["rejectedDataPoints"] {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    };
    match rejected {
        0 => Ok(()),
        n => Err(format!(
            "it rejected {n} points: {}",
            partial["errorMessage"].as_str().unwrap_or("no reason given")
        )),
    }
}

/// A thread that pushes metrics to a collector.
pub struct Pusher {
    bodies: SyncSender<Message>,
    /// The last document.
    last: Arc<Mutex<Option<String>>>,
    /// Disconnected once the thread has ended.
    done: Mutex<Receiver<()>>,
    fault: Arc<Mutex<Fault>>,
    url: String,
    /// How long to wait for the last push.
    timeout: Duration,
}

enum Message {
    Push(String),
    /// The last document may be there.
    Look,
}

#[derive(Default)]
struct Fault {
    first: Option<String>,
    reported: bool,
}

impl Fault {
    /// Keeps what went wrong with the last push, if nothing went wrong before.
    fn of_last(fault: &Mutex<Fault>, url: &str, why: &str) {
        let mut fault = lock(fault);
        fault
            .first
            .get_or_insert_with(|| format!("--otlp: {url}: {why}; the collector may lack the last values"));
    }

    fn keep(fault: &Mutex<Fault>, url: &str, why: String) {
        let mut fault = lock(fault);
        fault.first.get_or_insert_with(|| {
            format!("--otlp: {url}: {why}; the run continues, and loadlab keeps pushing")
        });
    }
}

impl Pusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started; certificates cannot be read; an invalid header field.
    pub fn start(collector: Collector, known: Arc<Mutex<Known>>) -> Result<Pusher, CommandEnd> {
        let sender =
            Sender::new(collector).map_err(|e| CommandEnd::error(Exit::BadPlan, format!("--otlp: {e}")))?;
        let (bodies, taken) = sync_channel(MAX_QUEUED);
        let fault = Arc::new(Mutex::new(Fault::default()));
        let last = Arc::new(Mutex::new(None));
        let (faults, lasts, url) = (fault.clone(), last.clone(), sender.endpoint.url());
        let (ends, done) = sync_channel::<()>(0);
        // The push before may be under way, and then its own.
        let timeout = 2 * sender.timeout + MARGIN;
        std::thread::Builder::new()
            .name("otlp".into())
            .spawn(move || {
                loadlab_system::background::enter();
                push_all(&sender, &known, &taken, &lasts, &faults);
                drop(ends);
            })
            .map_err(|e| {
                CommandEnd::error(Exit::CouldNotRun, format!("--otlp: no thread can be started: {e}"))
            })?;
        Ok(Pusher { bodies, last, done: Mutex::new(done), fault, url, timeout })
    }

    /// Queues a push of the current values.
    pub fn push(&self, known: &Known) {
        // If the queue is full, the collector has fallen behind, and the thread reports the error.
        let _ = self.bodies.try_send(Message::Push(document(known, SystemTime::now())));
    }

    /// Queues the last push; [`Pusher::finish`] waits for it.
    pub fn push_last(&self, known: &Known) {
        let last = document(known, SystemTime::now());
        *lock(&self.last) = Some(last);
        // With a full queue the thread is busy, and finds the document once the queue is empty.
        let _ = self.bodies.try_send(Message::Look);
    }

    /// Briefly waits for the last push.
    pub fn finish(&self) {
        let ended = lock(&self.done).recv_timeout(self.timeout);
        if let Err(RecvTimeoutError::Timeout) = ended {
            let why = format!("no answer within {}", in_seconds(self.timeout));
            Fault::of_last(&self.fault, &self.url, &why);
        }
    }

    /// The first error; returned once.
    pub fn fault(&self) -> Option<String> {
        let mut fault = lock(&self.fault);
        let first = fault.first.clone().filter(|_| !fault.reported)?;
        fault.reported = true;
        Some(first)
    }
}

fn push_all(
    sender: &Sender,
    known: &Mutex<Known>,
    bodies: &Receiver<Message>,
    last: &Mutex<Option<String>>,
    fault: &Mutex<Fault>,
) {
    let keep = |why: String| Fault::keep(fault, &sender.endpoint.url(), why);
    loop {
        let next = match bodies.try_recv() {
            // The last document comes after all that are queued, which may be the last ones of their trials.
            Err(TryRecvError::Empty) => {
                if let Some(body) = lock(last).take() {
                    if let Err(why) = sender.push(&body) {
                        Fault::of_last(fault, &sender.endpoint.url(), &why);
                    }
                    return;
                }
                bodies.recv_timeout(sender.every)
            }
            Err(TryRecvError::Disconnected) => return,
            Ok(message) => Ok(message),
        };
        match next {
            Ok(Message::Push(body)) => sender.push(&body).unwrap_or_else(keep),
            Ok(Message::Look) => {}
            Err(RecvTimeoutError::Timeout) => {
                let body = document(&lock(known), SystemTime::now());
                sender.push(&body).unwrap_or_else(keep);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// `ExportMetricsServiceRequest` in its JSON mapping: 64-bit numbers as text, enumerations as numbers.
fn document(known: &Known, now: SystemTime) -> String {
    let (since, now) = (nanoseconds(known.since), nanoseconds(now));
    let metrics: Vec<Value> = families(&known.state).into_iter().map(|f| metric(&f, &since, &now)).collect();
    json!({
        "resourceMetrics": [{
            "resource": { "attributes": [
                attribute("service.name", "loadlab"),
                attribute("service.version", env!("CARGO_PKG_VERSION")),
                attribute("loadlab.run", &known.state.title),
            ] },
            "scopeMetrics": [{
                "scope": { "name": "loadlab", "version": env!("CARGO_PKG_VERSION") },
                "metrics": metrics,
            }],
        }],
    })
    .to_string()
}

fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// A counter is a monotonic sum, reported as its total since the trial began; of a component, since its first reading.
fn metric(family: &Family, since: &str, now: &str) -> Value {
    let points = |start: bool| -> Vec<Value> {
        let point = |(labels, value): &(Labels, f64)| {
            let attributes: Vec<Value> = labels.iter().map(|(name, text)| attribute(name, text)).collect();
            let mut point = json!({ "attributes": attributes, "timeUnixNano": now, "asDouble": value });
            if start {
                point["startTimeUnixNano"] = json!(since);
            }
            point
        };
        family.points.iter().map(point).collect()
    };
    let mut metric = json!({
        "name": format!("loadlab.{}", family.name.replacen("component_", "component.", 1)),
        "description": family.help,
        "unit": family.unit,
    });
    match family.kind {
        MetricType::Counter => {
            // 2: AGGREGATION_TEMPORALITY_CUMULATIVE
            metric["sum"] =
                json!({ "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": points(true) });
        }
        MetricType::Gauge => metric["gauge"] = json!({ "dataPoints": points(false) }),
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let check = |url: &str, expect: Result<&str, &str>| match (Endpoint::parse(url), expect) {
            (Ok(got), Ok(expect)) => assert_eq!(got.url(), expect),
            (Err(got), Err(expect)) => assert!(got.contains(expect), "{got}"),
            (got, expect) => panic!("{url}: {got:?}, not {expect:?}"),
        };
        check("http://127.0.0.1:4318", Ok("http://127.0.0.1:4318/v1/metrics"));
        check("http://collector/", Ok("http://collector:4318/v1/metrics"));
        check("http://[::1]:9/other/path", Ok("http://[::1]:9/other/path"));
        check("http://[::1]", Ok("http://[::1]:4318/v1/metrics"));
        check("https://collector", Ok("https://collector:443/v1/metrics"));
        check("https://collector:4318/otlp", Ok("https://collector:4318/otlp"));
        for url in [
            "collector:4318",
            "ftp://collector",
            "http://",
            "http://a:b",
            "http://a b",
            "http://u@h",
            "http://h/\r\nX: y",
        ] {
            check(url, Err("is not a URL"));
        }
    }
}
