//! The record of a run, read as a script would read it: by the names of the contract, without loadlab's code.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::claims::number;
use super::{Claims, Lab};
use crate::root::root;

/// What a run left on disk.
pub struct Record {
    /// The record's folder.
    pub dir: PathBuf,
    /// Contents of `manifest.json`.
    pub manifest: Value,
    /// Every trial of every case, in the order of the manifest.
    pub trials: Vec<Trial>,
}

/// One trial's files.
pub struct Trial {
    /// The case's name, for messages.
    pub case: String,
    /// The case's values by axis.
    pub values: Vec<(String, String)>,
    /// Contents of `summary.json`.
    pub summary: Value,
    ticks: Vec<Value>,
    samples: Vec<Value>,
    events: Vec<Value>,
    files: Vec<PathBuf>,
}

impl Trial {
    /// The case's value for an axis; empty without one.
    pub fn value(&self, axis: &str) -> &str {
        self.values.iter().find(|(name, _)| name == axis).map_or("", |(_, value)| value)
    }

    /// One of the plan's figures, times in milliseconds. `None` if it has no value.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.summary["figures"][name]["value"].as_f64()
    }

    /// Whether a program makes the load: then only the number of its requests is known.
    pub fn is_command(&self) -> bool {
        self.summary.pointer("/load/model").and_then(Value::as_str) == Some("command")
    }

    /// Whether the load ended within its first second: on a fast machine a load with a number of requests may.
    pub fn is_brief(&self) -> bool {
        self.number("elapsed_s") < 1.0
    }

    /// The fewest samples of a component: one before the load, one after it, and one for most seconds in between, since
    /// a busy machine may miss some. A component killed midway has fewer.
    fn fewest_samples(&self) -> usize {
        let elapsed_s = self.number("elapsed_s");
        match (self.is_brief(), self.has_acted()) {
            (true, _) => 2,
            (false, true) => 3,
            (false, false) => 3.max(2 + (0.75 * elapsed_s) as usize),
        }
    }

    /// Whether the plan did something to a component during the trial.
    fn has_acted(&self) -> bool {
        self.events("action").next().is_some()
    }

    /// Events of a kind.
    pub fn events(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["event"] == kind)
    }

    /// Requests answered well in the seconds that began after an event of the plan; `None` if the load had ended before
    /// such a second was over.
    pub fn ok_after(&self, what: &str) -> Option<u64> {
        let done = self.events("action").find(|event| event["what"] == what);
        let done_s = done.and_then(|event| event["at_s"].as_f64())?;
        if done_s.ceil() + 1.0 > self.number("load/duration_s") {
            return None;
        }
        let later =
            self.ticks.iter().filter(|tick| tick["from_s"].as_f64().is_some_and(|from_s| from_s >= done_s));
        Some(later.filter_map(|tick| tick["ok"].as_u64()).sum())
    }

    /// A number of the summary, by its path; NaN if it is missing.
    pub fn number(&self, path: &str) -> f64 {
        number(&self.summary, path)
    }

    /// The least and the most memory of a component during a batch of the load and a second around it, by its samples.
    /// Batches are numbered from 1, in ticks from 0.
    pub fn memory_of_batch(&self, component: &str, batch: u64) -> RangeInclusive<f64> {
        let ticks = || self.ticks.iter().filter(|tick| tick["batch"].as_u64() == Some(batch - 1));
        let from = ticks().filter_map(|tick| tick["from_s"].as_f64()).fold(f64::INFINITY, f64::min) - 1.0;
        let to = ticks().filter_map(|tick| tick["to_s"].as_f64()).fold(0.0, f64::max) + 1.0;
        let is_within = |at_s: f64| (from..=to).contains(&at_s);
        let of = |sample: &&Value| {
            sample["component"] == component && sample["at_s"].as_f64().is_some_and(is_within)
        };
        let bytes = || self.samples.iter().filter(of).filter_map(|sample| sample["memory_bytes"].as_f64());
        bytes().fold(f64::INFINITY, f64::min)..=bytes().fold(0.0, f64::max)
    }

    /// A figure of the response times as reports show it: its lower bound, its value, or an estimate from too few.
    pub fn time_ms(&self, name: &str) -> f64 {
        self.number(&format!("response_ms/over_ms/{name}|response_ms/{name}|response_ms/{name}_estimate"))
    }

    /// Asserts something about numbers of the summary: see [`Claims::hold`].
    pub fn hold(&self, claims: &mut Claims, assertions: &[&str]) {
        for assertion in assertions {
            claims.hold(&self.case, &self.summary, assertion);
        }
    }
}

impl Record {
    /// Reads a run's folder.
    ///
    /// # Errors
    /// A file of the contract is missing or is not JSON.
    pub fn read(dir: &Path) -> Result<Record> {
        let manifest = json(&dir.join("manifest.json"))?;
        let mut trials = Vec::new();
        for case in array(&manifest, "/cases") {
            let case_dir = dir.join("cases").join(text(case, "/dir"));
            let numbers = fs::read_dir(&case_dir).with_context(|| case_dir.display().to_string())?;
            let mut folders: Vec<_> = numbers.filter_map(|e| Some(e.ok()?.path())).collect();
            folders.sort();
            for folder in folders {
                trials.push(Trial::read(case, &folder)?);
            }
        }
        Ok(Record { dir: dir.to_path_buf(), manifest, trials })
    }

    /// Name of a trial's case in tables: its value, if exactly one axis has several values.
    pub fn row<'t>(&self, trial: &'t Trial) -> &'t str {
        let varies = |(axis, value): &&(String, String)| self.trials.iter().any(|t| t.value(axis) != value);
        let mut values = trial.values.iter().filter(varies);
        match (values.next(), values.next()) {
            (Some((_, value)), None) => value,
            _ => &trial.case,
        }
    }

    /// Path of its plan: the lab's, or a copy's.
    fn plan(&self) -> PathBuf {
        root().join(text(&self.manifest, "/plan_path"))
    }

    /// Folder of its plan.
    pub fn lab(&self) -> PathBuf {
        self.plan().parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// Names of the plan's figures, and the factor that tables apply to each: shares are shown in percent.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let in_tables = |figure: &Value| if text(figure, "/kind") == "fraction" { 100.0 } else { 1.0 };
        array(&self.manifest, "/figures").iter().map(|f| (text(f, "/name"), in_tables(f))).collect()
    }

    /// Assertions for every lab's quick run.
    pub fn check(&self, lab: &Lab, claims: &mut Claims) -> Result<()> {
        claims.same("manifest: name", text(&self.manifest, "/name"), lab.name.to_owned());
        claims.same("manifest: how it ended", text(&self.manifest, "/how"), "complete".to_owned());
        claims.claim(self.manifest["ended"].is_string(), || "manifest: no end".to_owned());
        claims.same("manifest: cases", array(&self.manifest, "/cases").len(), lab.cases);
        let trials = self.manifest["trials"].as_u64().unwrap_or(0) as usize;
        claims.same("trials on disk", self.trials.len(), lab.cases * trials);
        let plan = fs::read_to_string(self.plan())?;
        claims.claim(self.manifest["plan_text"] == plan.as_str(), || {
            "manifest: another plan's text".to_owned()
        });
        let scratch = self.dir.join("scratch");
        claims.claim(!scratch.exists(), || format!("{} was left behind", scratch.display()));
        for (at, trial) in self.trials.iter().enumerate() {
            let brings_up = !lab.lives_on || at == 0;
            let takes_down = !lab.lives_on || at + 1 == self.trials.len();
            trial.adds_up(claims);
            trial.check_counts(lab, claims);
            trial.check_samples(&self.manifest, claims);
            trial.check_events(brings_up, takes_down, claims);
            trial.check_files(brings_up, claims);
        }
        Ok(())
    }
}

impl Trial {
    fn read(case: &Value, dir: &Path) -> Result<Trial> {
        let pair = |v: &Value| Some((v[0].as_str()?.to_owned(), v[1].as_str()?.to_owned()));
        let mut files = Vec::new();
        for folder in [dir.to_path_buf(), dir.join("logs")] {
            let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
            files.extend(entries.filter_map(|e| Some(e.ok()?.path())));
        }
        Ok(Trial {
            case: text(case, "/name"),
            values: array(case, "/values").iter().filter_map(pair).collect(),
            summary: json(&dir.join("summary.json"))?,
            ticks: lines(&dir.join("ticks.jsonl"))?,
            samples: lines(&dir.join("samples.jsonl"))?,
            events: lines(&dir.join("events.jsonl"))?,
            files,
        })
    }

    /// Every request is counted once, in the summary and in the ticks.
    pub fn adds_up(&self, claims: &mut Claims) {
        let all = [
            "requests/started + requests/dropped == requests/due",
            "requests/ok + requests/failed + requests/in_flight == requests/started",
            "failures/* == requests/failed",
        ];
        self.hold(claims, &all);
        self.check_ticks(claims);
    }

    fn check_counts(&self, lab: &Lab, claims: &mut Claims) {
        if let Some(requests) = lab.requests {
            self.hold(claims, &[&format!("requests/due == {requests}")]);
        }
        self.hold(claims, &[&format!("requests/failed <= {} * requests/started", lab.failing)]);
        // For a request resent after a bare reset, it is unknown whether the server had read the first one.
        let reset = "requests/failed + connections/resent_after_reset|0";
        if !self.is_command() && lab.failing < 1.0 {
            self.hold(claims, &[&format!("{reset} <= {} * requests/started", lab.failing)]);
        }
        claims.same(format!("{}: verdict", self.case), text(&self.summary, "/verdict"), "pass".to_owned());
        if self.is_command() {
            return self.hold(claims, &["response_ms/count == 0"]);
        }
        // If unanswered requests are the longest, the maximum is only known to be at least their age.
        let max = "response_ms/max|response_ms/over_ms/max";
        let times = [
            "statuses/* == requests/ok + failures/http_4xx + failures/http_5xx + failures/check",
            "response_ms/count == requests/ok + failures/timeout + requests/in_flight",
            "response_ms/min <= response_ms/p50|response_ms/min",
            &format!("0 < response_ms/min <= {max}"),
            &format!("response_ms/p50|response_ms/over_ms/p50 <= {max}"),
        ];
        self.hold(claims, &times);
    }

    /// Ticks add up to the summary, and do not overlap.
    fn check_ticks(&self, claims: &mut Claims) {
        claims.claim(!self.ticks.is_empty(), || format!("{}: no ticks", self.case));
        for (group, name) in [
            ("requests", "due"),
            ("requests", "started"),
            ("requests", "dropped"),
            ("requests", "ok"),
            ("bytes", "sent"),
            ("bytes", "received"),
        ] {
            let path = if group == "bytes" { format!("/bytes/{name}") } else { format!("/{name}") };
            let ticks: f64 = self.ticks.iter().filter_map(|t| t.pointer(&path)?.as_f64()).sum();
            self.hold(claims, &[&format!("{group}/{name} == {ticks}")]);
        }
        let apart = self.ticks.windows(2).all(|t| t[0]["to_s"].as_f64() <= t[1]["from_s"].as_f64());
        claims.claim(apart, || format!("{}: ticks overlap", self.case));
    }

    /// Every component, the generator and the host were watched, and used something.
    fn check_samples(&self, manifest: &Value, claims: &mut Claims) {
        let case = &self.case;
        let components = array(manifest, "/components").iter().map(|c| text(c, "/name"));
        let own: Vec<_> = components.collect();
        claims.claim(!own.is_empty(), || "manifest: no components".to_owned());
        for name in own.iter().map(String::as_str).chain(["loadlab", "host"]) {
            let of: Vec<_> = self.samples.iter().filter(|s| s["component"] == name).collect();
            let least = self.fewest_samples();
            claims.claim(of.len() >= least, || format!("{case}: {} samples of {name}", of.len()));
            let rising = |w: &[&Value]| w[0]["at_s"].as_f64() < w[1]["at_s"].as_f64();
            claims.claim(of.windows(2).all(rising), || format!("{case}: samples of {name} are not in order"));
            let highest = |key: &str| of.iter().filter_map(|s| s[key].as_f64()).fold(0.0, f64::max);
            claims.claim(highest("memory_bytes") > 0.0, || format!("{case}: {name} uses no memory"));
            claims.claim(highest("cpu_s") > 0.0, || format!("{case}: {name} uses no CPU"));
        }
        for name in &own {
            if !self.is_brief() {
                self.hold(claims, &[&format!("0 < components/{name}/memory_bytes/mean")]);
            }
            // A program that makes the load may leave a part of the system idle.
            let sign = if self.is_command() { "<=" } else { "<" };
            self.hold(claims, &[&format!("0 {sign} components/{name}/cpu_s")]);
        }
    }

    /// Up, ready, loaded, down, in this order; components that live on came up before, and go down later.
    fn check_events(&self, brings_up: bool, takes_down: bool, claims: &mut Claims) {
        let names: Vec<_> = self.events.iter().filter_map(|e| e["event"].as_str()).collect();
        let mut rest = names.iter();
        // A component killed midway is down before the load ends.
        let last = (takes_down && !self.has_acted()).then_some("down");
        let first = if brings_up { &["up", "ready"][..] } else { &[] };
        for wanted in first.iter().copied().chain(["load_started", "load_ended"]).chain(last) {
            let found = rest.any(|name| *name == wanted);
            claims.claim(found, || format!("{}: no `{wanted}` in its place among {names:?}", self.case));
        }
        for unwanted in ["died", "failed"] {
            claims.claim(!names.contains(&unwanted), || format!("{}: an event `{unwanted}`", self.case));
        }
    }

    fn check_files(&self, brings_up: bool, claims: &mut Claims) {
        let bytes_of = |name: &str| {
            let file = self.files.iter().find(|f| f.file_name().is_some_and(|of_file| of_file == name));
            file.and_then(|f| f.metadata().ok()).map(|m| m.len())
        };
        // Programs report numbers of requests, not their times.
        let of_times = if self.is_command() { &[][..] } else { &["latency.hlog", "examples.jsonl"] };
        for name in of_times {
            let is_there = bytes_of(name).is_some_and(|bytes| bytes > 0);
            claims.claim(is_there, || format!("{}: {name} is missing or empty", self.case));
        }
        // What lives on writes into the logs of the trial that brought it up, also after a restart.
        let before_load = |up: &&Value| up["at_s"].as_f64().is_some_and(|at_s| at_s < 0.0);
        let up = self.events("up").filter(|_| brings_up).filter(before_load);
        for component in up.map(|up| text(up, "/component")) {
            for ending in ["out", "err"] {
                let name = format!("{component}.{ending}");
                claims.claim(bytes_of(&name).is_some(), || format!("{}: {name} is missing", self.case));
            }
        }
    }
}

/// Text at a JSON pointer; empty if missing.
pub fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn array<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    ensure!(text.is_empty() || text.ends_with('\n'), "{}: the last line is torn", path.display());
    text.lines().map(|l| serde_json::from_str(l).with_context(|| path.display().to_string())).collect()
}
