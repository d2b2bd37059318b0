//! Generators that can send at a rate, whatever the server does: how they are asked for it on one thread, and what
//! they tell. The others cannot, and are not asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::order::built;
use super::parse::{duration_ms, word_after};
use super::tools::start;
use crate::command::{captured, find, program};

/// What one is asked for.
pub struct OpenOrder<'o> {
    /// Requests a second.
    pub rate_per_s: f64,
    /// How long.
    pub seconds: u64,
    /// Where to.
    pub url: String,
    /// The same as ADDRESS:PORT.
    pub server: String,
    /// The core it is started on.
    pub core: usize,
    /// A folder for its files.
    pub scratch: &'o Path,
}

/// What it tells, in milliseconds; nothing where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpenReport {
    /// Percentiles of the response time.
    pub response: Percentiles,
    /// The generator's own lateness, by its own account.
    pub late: Percentiles,
}

/// In milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// The median.
    pub p50: Option<f64>,
    /// 90 %.
    pub p90: Option<f64>,
    /// 99 %.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p99_9: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

impl Percentiles {
    /// Fields `p50`, `p90`, `p99`, `p99_9` and `max` of a JSON object.
    pub fn of(json: &Value) -> Percentiles {
        let at = |name: &str| json[name].as_f64();
        Percentiles { p50: at("p50"), p90: at("p90"), p99: at("p99"), p99_9: at("p99_9"), max: at("max") }
    }
}

/// A generator for the open model.
pub struct OpenTool {
    /// Its name.
    pub name: &'static str,
    /// Its response times run from when a request was due, at least as asked here.
    pub reports_response: bool,
    /// Requests fall due evenly spaced, so that a server's log tells how late they came.
    pub even: bool,
    command: fn(&OpenOrder) -> Result<Command>,
    parse: fn(&OpenOrder, &str) -> Result<OpenReport>,
}

/// All of them.
pub const OPEN_TOOLS: &[OpenTool] = &[
    OpenTool { name: "loadlab", reports_response: true, even: true, command: loadlab, parse: loadlab_report },
    OpenTool {
        name: "bare-timer",
        reports_response: false,
        even: true,
        command: bare_timer,
        parse: bare_report,
    },
    OpenTool { name: "wrk2", reports_response: true, even: false, command: wrk2, parse: wrk2_report },
    OpenTool { name: "vegeta", reports_response: true, even: true, command: vegeta, parse: vegeta_report },
    OpenTool { name: "k6", reports_response: true, even: true, command: k6, parse: k6_report },
    OpenTool { name: "oha", reports_response: true, even: true, command: oha, parse: oha_report },
];

impl OpenTool {
    /// Its program, if it is here.
    pub fn path(&self) -> Option<PathBuf> {
        match self.name {
            "loadlab" | "bare-timer" => Some(built(self.name)),
            name => find(name),
        }
    }

    /// The version of one that is here and that the closed rows do not tell of.
    pub fn reported_version(&self) -> Option<String> {
        let argument = match self.name {
            "wrk2" => "-v",
            "vegeta" => "-version",
            _ => return None,
        };
        let ran = captured(program(self.path()?).arg(argument), Duration::from_secs(10)).ok()?;
        let said = ran.stdout + &ran.stderr;
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Some(format!("{} {}", self.name, first.trim()))
    }

    /// Its command.
    ///
    /// # Errors
    /// Its files cannot be written.
    pub fn command(&self, order: &OpenOrder) -> Result<Command> {
        (self.command)(order)
    }

    /// What its output says.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn reported(&self, order: &OpenOrder, stdout: &str) -> Result<OpenReport> {
        (self.parse)(order, stdout)
            .with_context(|| format!("{}'s output cannot be read:\n{stdout}", self.name))
    }
}

fn loadlab(order: &OpenOrder) -> Result<Command> {
    let mut command = program(built("loadlab"));
    command.args(["bench", &order.url, "--json", "--quiet", "-t", "1", "--cpus", &order.core.to_string()]);
    command.args(["-r", &order.rate_per_s.to_string(), "-d", &format!("{}s", order.seconds)]);
    // As many as wrk2 and oha hold.
    command.args(["--connections", "100"]);
    Ok(command)
}

fn loadlab_report(_: &OpenOrder, text: &str) -> Result<OpenReport> {
    let json: Value = serde_json::from_str(text)?;
    // What it dropped at the end of its schedule was late for as long as it waited, and is among the late.
    let failed = &json["requests"]["failed"];
    ensure!(*failed == 0, "{failed} requests failed");
    let late = Percentiles::of(&json["late_ms"]);
    ensure!(late.p50.is_some(), "no late_ms");
    Ok(OpenReport { response: Percentiles::of(&json["response_ms"]), late })
}

fn bare_timer(order: &OpenOrder) -> Result<Command> {
    let mut command = program(built("bare-timer"));
    command.args(["--rate", &order.rate_per_s.to_string(), "-s", &order.seconds.to_string()]);
    // Connections enough that none is waited for.
    command.args(["--server", &order.server, "-c", "1000"]);
    Ok(command)
}

fn bare_report(_: &OpenOrder, text: &str) -> Result<OpenReport> {
    let json: Value = serde_json::from_str(text)?;
    let late = Percentiles::of(&json["late_ms"]);
    ensure!(late.p50.is_some(), "no late_ms");
    Ok(OpenReport { response: Percentiles::default(), late })
}

/// Connections enough for a freeze of a second and a half; those that it has are all used in turn.
fn wrk2(order: &OpenOrder) -> Result<Command> {
    let (duration, rate) = (format!("-d{}s", order.seconds), format!("-R{:.0}", order.rate_per_s));
    Ok(start("wrk2", &["-t1", "-c100", &duration, &rate, "--latency", &order.url]))
}

/// The table of the corrected latency, which comes first.
fn wrk2_report(_: &OpenOrder, text: &str) -> Result<OpenReport> {
    let at = |label: &str| duration_ms(word_after(text, label)?).map(Some);
    let response = Percentiles {
        p50: at(" 50.000%")?,
        p90: at(" 90.000%")?,
        p99: at(" 99.000%")?,
        p99_9: at(" 99.900%")?,
        max: at("100.000%")?,
    };
    Ok(OpenReport { response, ..OpenReport::default() })
}

fn vegeta(order: &OpenOrder) -> Result<Command> {
    let targets = order.scratch.join("vegeta.txt");
    fs::write(&targets, format!("GET {}\n", order.url))?;
    let text = format!(
        "vegeta attack -targets='{}' -rate={:.0}/1s -duration={}s | vegeta report -type=json",
        targets.display(),
        order.rate_per_s,
        order.seconds
    );
    let mut command = start("sh", &["-c", &text]);
    command.env("GOMAXPROCS", "1");
    Ok(command)
}

fn vegeta_report(_: &OpenOrder, text: &str) -> Result<OpenReport> {
    let json: Value = serde_json::from_str(text)?;
    ensure!(json["success"] == 1.0 || json["success"] == 1, "requests failed");
    let at = |name: &str| json["latencies"][name].as_f64().map(|ns| ns / 1e6);
    let response =
        Percentiles { p50: at("50th"), p90: at("90th"), p99: at("99th"), p99_9: None, max: at("max") };
    ensure!(response.p50.is_some(), "no latencies");
    Ok(OpenReport { response, ..OpenReport::default() })
}

fn k6_summary(order: &OpenOrder) -> PathBuf {
    order.scratch.join("k6-open.json")
}

fn k6(order: &OpenOrder) -> Result<Command> {
    let script = order.scratch.join("k6-open.js");
    let text = format!(
        "import http from 'k6/http';\nexport const options = {{\n  summaryTrendStats: ['med', 'p(90)', 'p(99)', 'p(99.9)', 'max'],\n  \
         scenarios: {{ open: {{ executor: 'constant-arrival-rate', rate: {:.0}, timeUnit: '1s', duration: '{}s',\n    \
         preAllocatedVUs: 100, maxVUs: 2000 }} }},\n}};\nexport default function () {{ http.get('{}'); }}\n",
        order.rate_per_s, order.seconds, order.url
    );
    fs::write(&script, text)?;
    let summary = k6_summary(order);
    let _ = fs::remove_file(&summary);
    let mut command = start("k6", &["run", "--quiet", "--summary-export"]);
    command.arg(summary).arg(script);
    command.env("GOMAXPROCS", "1").env("K6_NO_USAGE_REPORT", "true").env("HOME", order.scratch);
    Ok(command)
}

fn k6_report(order: &OpenOrder, _: &str) -> Result<OpenReport> {
    k6_of(&fs::read_to_string(k6_summary(order)).context("no summary")?)
}

fn k6_of(text: &str) -> Result<OpenReport> {
    let json: Value = serde_json::from_str(text)?;
    let at = |name: &str| json["metrics"]["http_req_duration"][name].as_f64();
    let response = Percentiles {
        p50: at("med"),
        p90: at("p(90)"),
        p99: at("p(99)"),
        p99_9: at("p(99.9)"),
        max: at("max"),
    };
    ensure!(response.p50.is_some(), "no http_req_duration");
    Ok(OpenReport { response, ..OpenReport::default() })
}

fn oha(order: &OpenOrder) -> Result<Command> {
    let (duration, rate) = (format!("{}s", order.seconds), format!("{:.0}", order.rate_per_s));
    let arguments =
        ["--no-tui", "-z", &duration, "-q", &rate, "-c", "100", "--latency-correction", &order.url];
    let mut command = start("oha", &arguments);
    command.env("TOKIO_WORKER_THREADS", "1").env("NO_COLOR", "1");
    Ok(command)
}

fn oha_report(_: &OpenOrder, text: &str) -> Result<OpenReport> {
    let at = |label: &str| {
        let rest = text.split_once(label)?.1;
        let mut words = rest.split_whitespace();
        let (value, unit) = (words.next()?, words.next()?);
        let unit = if unit.starts_with("sec") { "s" } else { unit };
        duration_ms(&format!("{value}{unit}")).ok()
    };
    let response = Percentiles {
        p50: at("50.00% in"),
        p90: at("90.00% in"),
        p99: at("99.00% in"),
        p99_9: at("99.90% in"),
        max: at("Slowest:"),
    };
    ensure!(response.p50.is_some(), "no `50.00% in`");
    Ok(OpenReport { response, ..OpenReport::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(name: &str, text: &str) -> Result<OpenReport> {
        let tool = OPEN_TOOLS.iter().find(|t| t.name == name).unwrap();
        let (url, server) = (String::new(), String::new());
        let scratch = Path::new("");
        tool.reported(&OpenOrder { rate_per_s: 1000.0, seconds: 1, url, server, core: 0, scratch }, text)
    }

    fn response(name: &str, text: &str) -> [Option<f64>; 5] {
        let Percentiles { p50, p90, p99, p99_9, max } = reported(name, text).unwrap().response;
        [p50, p90, p99, p99_9, max]
    }

    #[test]
    fn our_own() {
        let text = "{\"requests\": {\"failed\": 0}, \"response_ms\": {\"p50\": 0.1, \"p99_9\": null},\
            \"late_ms\": {\"p50\": 0.01, \"p99\": 0.05}}";
        let found = reported("loadlab", text).unwrap();
        assert_eq!((found.response.p50, found.response.p99_9, found.late.p99), (Some(0.1), None, Some(0.05)));
        assert!(reported("loadlab", &text.replace("\"failed\": 0", "\"failed\": 3")).is_err());
        let found =
            reported("bare-timer", "{\"due\": 10, \"late_ms\": {\"p50\": 0.01, \"p99\": 0.02}}").unwrap();
        assert_eq!((found.late.p99, found.response), (Some(0.02), Percentiles::default()));
        assert!(reported("bare-timer", "{}").is_err());
    }

    #[test]
    fn others() {
        let text = "  Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%    0.92ms\n 75.000%    1.30ms\n \
            90.000%  528.00ms\n 99.000%    1.40s \n 99.900%    1.49s \n 99.990%    1.50s \n100.000%    1.50s \n";
        assert_eq!(response("wrk2", text), [0.92, 528.0, 1400.0, 1490.0, 1500.0].map(Some));
        assert!(reported("wrk2", "Latency").is_err());
        let text = "{\"latencies\": {\"50th\": 100000, \"90th\": 526000000, \"99th\": 1412000000, \"max\": 1500000000},\
            \"success\": 1}";
        let expect = [Some(0.1), Some(526.0), Some(1412.0), None, Some(1500.0)];
        assert_eq!(response("vegeta", text), expect);
        assert!(reported("vegeta", &text.replace("\"success\": 1", "\"success\": 0.5")).is_err());
        let text = "{\"metrics\": {\"http_req_duration\": {\"med\": 0.1, \"p(90)\": 0.2, \"p(99)\": 1350, \
            \"p(99.9)\": 1490, \"max\": 1500}}}";
        assert_eq!(k6_of(text).unwrap().response.p99, Some(1350.0));
        let text = "  Slowest:\t1.5000 sec\n  50.00% in 0.0001 sec\n  90.00% in 516.0000 ms\n  99.00% in 1.4100 sec\n  \
            99.90% in 1.4900 sec\n";
        assert_eq!(response("oha", text), [0.1, 516.0, 1410.0, 1490.0, 1500.0].map(Some));
    }
}
