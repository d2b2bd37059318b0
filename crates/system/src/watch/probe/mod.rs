//! Probes: numbers the system reports about itself, such as a queue's depth or the rows it has stored.
//!
//! A probe knows where its number comes from: a URL with JSON or Prometheus metrics, a Redis server, a command's
//! output, or the lines of a component's log. A probe that cannot be read reports the reason each time.

pub(crate) mod prometheus;
mod redis;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use loadlab_record::sync::lock;
use serde_json::Value;

use crate::clock;
use crate::http::{self, HttpError, Url};
use crate::logs::LineCounter;
use crate::process::output::OutputCommand;

/// Time limit of a reading, nanoseconds.
const READ_TIMEOUT_NS: u64 = 5_000_000_000;
/// Time limit of a reading that no moment of the load depends on, nanoseconds: the system may still be catching up.
pub const UNHURRIED_READ_TIMEOUT_NS: u64 = 30_000_000_000;
/// Maximum output of a command, in bytes.
const OUTPUT_BYTES: u64 = 64 << 10;

/// A named number reported by the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Its name in samples and expressions.
    pub name: String,
    /// Where its number comes from.
    pub source: ProbeSource,
}

/// Where a probe's number comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeSource {
    /// A GET of a URL.
    Http {
        /// `http://…`.
        url: String,
        /// Where the number is in the JSON body: a JSON pointer (RFC 6901) such as `/queues/0/depth`. `None`: the whole
        /// body is the number.
        json: Option<String>,
    },
    /// A page in Prometheus' text format; the sum of the samples that match.
    Prometheus {
        /// `http://…/metrics`.
        url: String,
        /// The metric's name.
        metric: String,
        /// Labels the samples must have.
        labels: Vec<(String, String)>,
    },
    /// A Redis command whose answer is a number.
    Redis {
        /// `HOST:PORT`.
        address: String,
        /// The words of the command, such as `LLEN`, `queue`.
        words: Vec<String>,
    },
    /// A command that prints a number in its last line.
    Command(OutputCommand),
    /// How many lines of some logs contain a text.
    Log {
        /// Paths of the logs.
        paths: Vec<PathBuf>,
        /// The text to find within a line.
        contains: String,
    },
}

impl ProbeSpec {
    /// A number at an HTTP URL.
    pub fn http(name: &str, url: &str, json: Option<&str>) -> ProbeSpec {
        let source = ProbeSource::Http { url: url.to_owned(), json: json.map(str::to_owned) };
        ProbeSpec { name: name.to_owned(), source }
    }
}

/// A probe whose URL and pointer are valid. Clones are the same probe.
#[derive(Clone, Debug)]
pub struct Probe {
    spec: ProbeSpec,
    /// The parsed URL, if the source has one.
    url: Option<Url>,
    /// How far each log has been counted.
    counted: Arc<Mutex<Vec<LineCounter>>>,
}

/// Why a probe has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The JSON pointer is invalid.
    #[error(
        "probe `{probe}`: `{pointer}` is not a JSON pointer\nhint: a pointer is empty or begins with `/`, such \
         as `/stats/stored`; `~1` stands for `/` in a name, `~0` for `~`"
    )]
    Pointer {
        /// The probe's name.
        probe: String,
        /// The pointer, as given.
        pointer: String,
    },
    /// The endpoint did not respond.
    #[error("probe `{probe}`: GET {url}: {source}")]
    Http {
        /// The probe's name.
        probe: String,
        /// The URL that was read.
        url: String,
        /// The HTTP error.
        source: HttpError,
    },
    /// The answer is not a number.
    #[error("probe `{probe}`: {asked}: {why}")]
    Value {
        /// The probe's name.
        probe: String,
        /// What was read, in words.
        asked: String,
        /// What came instead, in words.
        why: String,
    },
}

impl Probe {
    /// Checks URL and pointer. A log counts from its current end.
    pub fn new(spec: ProbeSpec) -> Result<Probe, ProbeError> {
        let mut counted = Vec::new();
        let url = match &spec.source {
            ProbeSource::Http { json: Some(pointer), .. } if !is_pointer(pointer) => {
                return Err(ProbeError::Pointer { probe: spec.name, pointer: pointer.clone() });
            }
            ProbeSource::Http { url, .. } | ProbeSource::Prometheus { url, .. } => Some(url.clone()),
            ProbeSource::Log { paths, .. } => {
                counted.extend(paths.iter().map(|path| LineCounter::from_now(path)));
                None
            }
            ProbeSource::Redis { .. } | ProbeSource::Command(_) => None,
        };
        let url = match url.map(|url| Url::parse(&url).map_err(|source| (url, source))).transpose() {
            Ok(url) => url,
            Err((url, source)) => return Err(ProbeError::Http { probe: spec.name, url, source }),
        };
        Ok(Probe { spec, url, counted: Arc::new(Mutex::new(counted)) })
    }

    /// The probe's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Reads the probe now; blocks for at most 5 s.
    pub fn read_now(&self) -> Result<f64, ProbeError> {
        self.read(&mut || false)
    }

    /// Reads the probe now; `stop` is checked every 20 ms and ends the attempt.
    pub fn read(&self, stop: &mut dyn FnMut() -> bool) -> Result<f64, ProbeError> {
        self.read_within(READ_TIMEOUT_NS, stop)
    }

    /// As [`Probe::read`], with another time limit.
    pub fn read_within(&self, timeout_ns: u64, stop: &mut dyn FnMut() -> bool) -> Result<f64, ProbeError> {
        let until_ns = clock::now_ns() + timeout_ns;
        let value = match &self.spec.source {
            ProbeSource::Http { json, .. } => {
                let body = self.get(until_ns, stop)?;
                body.and_then(|body| value_in(&body, json.as_deref()))
            }
            ProbeSource::Prometheus { metric, labels, .. } => {
                let body = self.get(until_ns, stop)?;
                body.and_then(|body| prometheus::value_in(&String::from_utf8_lossy(&body), metric, labels))
            }
            ProbeSource::Redis { address, words } => redis::ask(address, words, until_ns, stop),
            ProbeSource::Command(command) => {
                command.run(until_ns, OUTPUT_BYTES, stop).and_then(|output| last_number(&output))
            }
            ProbeSource::Log { contains, .. } => {
                let mut counted = lock(&self.counted);
                counted.iter_mut().map(|log| log.count(contains).map(|n| n as f64)).sum()
            }
        };
        value.map_err(|why| ProbeError::Value { probe: self.spec.name.clone(), asked: self.asked(), why })
    }

    /// The body of a successful answer; the inner error describes a bad status.
    fn get(
        &self,
        until_ns: u64,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Result<Vec<u8>, String>, ProbeError> {
        let Some(url) = &self.url else { return Ok(Err("it has no URL".into())) };
        let response = http::fetch(url, until_ns, stop).map_err(|source| ProbeError::Http {
            probe: self.spec.name.clone(),
            url: url.to_string(),
            source,
        })?;
        Ok(match response.status {
            200..300 => Ok(response.body),
            status => Err(format!("answered with status {status}")),
        })
    }

    /// What the probe reads, in words.
    fn asked(&self) -> String {
        match &self.spec.source {
            ProbeSource::Http { url, .. } | ProbeSource::Prometheus { url, .. } => format!("GET {url}"),
            ProbeSource::Redis { address, words } => format!("{} at {address}", words.join(" ")),
            ProbeSource::Command(command) => format!("`{}`", command.command),
            ProbeSource::Log { contains, .. } => format!("lines with `{contains}`"),
        }
    }
}

/// The number in the last line of a command's output.
fn last_number(output: &[u8]) -> Result<f64, String> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let line = line.ok_or_else(|| "it printed nothing".to_owned())?;
    let number = line.parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or_else(|| format!("its last line is not a number but `{}`", short(line)))
}

/// Whether the text is valid by RFC 6901: empty, or `/` before every name, with `~` only in `~0` and `~1`.
fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escapes
}

fn value_in(body: &[u8], pointer: Option<&str>) -> Result<f64, String> {
    let Some(pointer) = pointer else {
        let text = String::from_utf8_lossy(body);
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        return number.ok_or_else(|| format!("the body is not a number but `{}`", short(text.trim())));
    };
    let document: Value = serde_json::from_slice(body).map_err(|e| format!("the body is not JSON: {e}"))?;
    match document.pointer(pointer) {
        Some(Value::Number(number)) => number.as_f64().ok_or_else(|| format!("{number} is out of range")),
        Some(other) => Err(format!("`{pointer}` is not a number but `{}`", short(&other.to_string()))),
        None => Err(format!("there is nothing at `{pointer}` in `{}`", short(&document.to_string()))),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let body = r#"{"stored": 12, "a/b": {"m~n": [1, 2.5]}, "name": "x", "none": null}"#;
        for (pointer, expect) in [
            ("/stored", Ok(12.0)),
            ("/a~1b/m~0n/1", Ok(2.5)),
            ("/name", Err("`/name` is not a number but `\"x\"`")),
            ("/none", Err("`/none` is not a number but `null`")),
            ("/a~1b/m~0n/7", Err("there is nothing at `/a~1b/m~0n/7`")),
            ("", Err("`` is not a number but `{\"stored\":12,")),
        ] {
            match (value_in(body.as_bytes(), Some(pointer)), expect) {
                (Ok(value), Ok(expect)) => assert_eq!(value, expect, "{pointer}"),
                (Err(why), Err(expect)) => assert!(why.starts_with(expect), "{pointer}: {why}"),
                (got, _) => panic!("{pointer}: {got:?}"),
            }
        }
        assert_eq!(value_in(b" 7\n", None), Ok(7.0));
        assert_eq!(value_in(b"nan", None).unwrap_err(), "the body is not a number but `nan`");
        assert!(value_in(b"{", Some("/x")).unwrap_err().starts_with("the body is not JSON"));
    }

    #[test]
    fn pointers_are_checked_before_the_run() {
        for (pointer, valid) in [
            ("", true),
            ("/", true),
            ("/a/0", true),
            ("/a~0~1", true),
            ("a", false),
            ("/a~", false),
            ("/~2", false),
        ] {
            assert_eq!(is_pointer(pointer), valid, "{pointer}");
        }
        let spec = ProbeSpec::http("stored", "http://127.0.0.1/", Some("stored"));
        insta::assert_snapshot!(Probe::new(spec).unwrap_err(), @r"
        probe `stored`: `stored` is not a JSON pointer
        hint: a pointer is empty or begins with `/`, such as `/stats/stored`; `~1` stands for `/` in a name, `~0` for `~`
        ");
    }

    #[test]
    fn the_last_line_of_a_command_counts() {
        for (output, expect) in [
            ("7\n", Ok(7.0)),
            ("  count\n-----\n 12.5 \n\n", Ok(12.5)),
            ("", Err("it printed nothing")),
            ("seven\n", Err("its last line is not a number but `seven`")),
        ] {
            assert_eq!(last_number(output.as_bytes()), expect.map_err(str::to_owned), "{output:?}");
        }
    }

    #[test]
    fn a_failure_names_the_probe_and_what_it_asked() {
        let probe = |source| {
            let probe = Probe::new(ProbeSpec { name: "p".into(), source }).unwrap();
            // A busy machine may not even start a command within the time limit of a reading.
            let is_late = |read: &Result<f64, ProbeError>| {
                read.as_ref().is_err_and(|error| error.to_string().ends_with("it did not finish in time"))
            };
            (0..12).map(|_| probe.read_now()).find(|read| !is_late(read)).expect("a minute is enough")
        };
        let command = |line: &str| {
            let command = crate::spec::Command::Shell(line.into());
            ProbeSource::Command(OutputCommand {
                command,
                dir: "/".into(),
                env: Vec::new(),
                secrets: loadlab_record::Secrets::default(),
            })
        };
        assert_eq!(probe(command("echo 5; echo 6")).unwrap(), 6.0);
        let error = probe(command("exit 4")).unwrap_err().to_string();
        assert_eq!(error, "probe `p`: `exit 4`: it failed with exit status: 4: it printed no error");
        let gone = ProbeSource::Log { paths: vec!["/nonexistent/x.out".into()], contains: "x".into() };
        let error = probe(gone).unwrap_err().to_string();
        assert!(error.starts_with("probe `p`: lines with `x`: cannot read /nonexistent/x.out: "), "{error}");
    }
}
