//! The record of a run, read as a script would read it: by the names of the contract, without loadlab's code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Claims, Lab};

/// What a run left on disk.
pub struct Record {
    /// Its folder.
    pub dir: PathBuf,
    /// `manifest.json`.
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
    /// `summary.json`.
    pub summary: Value,
    ticks: Vec<Value>,
    samples: Vec<Value>,
    events: Vec<Value>,
    files: Vec<PathBuf>,
}

impl Trial {
    /// Its value for an axis.
    pub fn value(&self, axis: &str) -> &str {
        self.values.iter().find(|(name, _)| name == axis).map_or("", |(_, value)| value)
    }

    /// A program makes its load: requests are counted, and nothing else of them is known.
    pub fn is_command(&self) -> bool {
        self.summary.pointer("/load/model").and_then(Value::as_str) == Some("command")
    }

    /// The load was over before the first second was: on a fast machine a number of requests may be.
    pub fn is_brief(&self) -> bool {
        self.number("/elapsed_s") < 1.0
    }

    /// One before the load, one behind it, and those of most seconds between them: a busy machine may miss some. What
    /// was killed in the middle has fewer.
    fn fewest_samples(&self) -> usize {
        let elapsed_s = self.number("/elapsed_s");
        match (self.is_brief(), self.has_acted()) {
            (true, _) => 2,
            (false, true) => 3,
            (false, false) => 3.max(2 + (0.75 * elapsed_s) as usize),
        }
    }

    /// Something was done to a component in the middle of it.
    fn has_acted(&self) -> bool {
        self.events.iter().any(|e| e["event"] == "action")
    }

    /// How many commands of a name were run for it.
    pub fn commands(&self, name: &str) -> usize {
        self.events.iter().filter(|e| e["event"] == "command" && e["name"] == name).count()
    }

    /// A number of the summary, by JSON pointer; absent counts as not a number.
    pub fn number(&self, pointer: &str) -> f64 {
        self.summary.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

impl Record {
    /// Reads a run's folder.
    ///
    /// # Errors
    /// A file of the contract is missing or not JSON.
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

    /// What holds for every lab's quick run.
    pub fn check(&self, lab: &Lab, claims: &mut Claims) -> Result<()> {
        claims.same("manifest: name", text(&self.manifest, "/name"), lab.name.to_owned());
        claims.same("manifest: how it ended", text(&self.manifest, "/how"), "complete".to_owned());
        claims.claim(self.manifest["ended"].is_string(), || "manifest: no end".to_owned());
        claims.same("manifest: cases", array(&self.manifest, "/cases").len(), lab.cases);
        let trials = self.manifest["trials"].as_u64().unwrap_or(0) as usize;
        claims.same("trials on disk", self.trials.len(), lab.cases * trials);
        let plan = fs::read_to_string(lab.dir().join("plan.yaml"))?;
        claims.claim(self.manifest["plan_text"] == plan.as_str(), || {
            "manifest: another plan's text".to_owned()
        });
        for trial in &self.trials {
            trial.check_counts(lab, claims);
            trial.check_ticks(claims);
            trial.check_samples(&self.manifest, claims);
            trial.check_events(claims);
            trial.check_files(claims);
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

    /// due = started + dropped; started = ok + failed + in flight; failed = the sum of failures.
    fn check_counts(&self, lab: &Lab, claims: &mut Claims) {
        let case = &self.case;
        let n = |name: &str| self.number(&format!("/requests/{name}"));
        if let Some(requests) = lab.requests {
            claims.same(format!("{case}: due"), n("due"), requests as f64);
        }
        claims.same(format!("{case}: started + dropped"), n("started") + n("dropped"), n("due"));
        claims.same(
            format!("{case}: ok + failed + in flight"),
            n("ok") + n("failed") + n("in_flight"),
            n("started"),
        );
        claims.claim(n("failed") <= lab.failing * n("started"), || {
            format!("{case}: {} of {} failed", n("failed"), n("started"))
        });
        let failures = sum(&self.summary, "/failures");
        claims.same(format!("{case}: sum of failures"), failures, n("failed"));
        let verdict = text(&self.summary, "/verdict");
        claims.same(format!("{case}: verdict"), verdict, "pass".to_owned());
        if self.is_command() {
            claims.same(format!("{case}: response times"), self.number("/response_ms/count"), 0.0);
            return;
        }
        let failures = |kinds: &[&str]| -> f64 {
            kinds.iter().map(|kind| self.number(&format!("/failures/{kind}"))).sum()
        };
        let answered = n("ok") + failures(&["http_4xx", "http_5xx", "check"]);
        claims.same(format!("{case}: sum of statuses"), sum(&self.summary, "/statuses"), answered);
        let times = self.number("/response_ms/count");
        let known_or_cut_off = n("ok") + failures(&["timeout"]) + n("in_flight");
        claims.same(format!("{case}: response times"), times, known_or_cut_off);
        // Where unanswered requests are the longest, such a time is known to be at least their age.
        let at = |name: &str| self.number(&format!("/response_ms/{name}"));
        let or_at_least = |name: &str| {
            let known = at(name);
            if known.is_nan() { at(&format!("over_ms/{name}")) } else { known }
        };
        let (min, p50, max) = (at("min"), or_at_least("p50"), or_at_least("max"));
        let in_order = 0.0 < min && (min <= p50 || at("p50").is_nan()) && p50 <= max && min <= max;
        claims.claim(in_order, || format!("{case}: min {min}, p50 {p50}, max {max}"));
    }

    /// Ticks add up to the summary, and follow one another.
    fn check_ticks(&self, claims: &mut Claims) {
        let case = &self.case;
        claims.claim(!self.ticks.is_empty(), || format!("{case}: no ticks"));
        for name in ["due", "started", "dropped", "ok"] {
            let ticks: f64 = self.ticks.iter().filter_map(|t| t[name].as_f64()).sum();
            claims.same(
                format!("{case}: {name} of all ticks"),
                ticks,
                self.number(&format!("/requests/{name}")),
            );
        }
        for name in ["sent", "received"] {
            let ticks: f64 = self.ticks.iter().filter_map(|t| t["bytes"][name].as_f64()).sum();
            claims.same(
                format!("{case}: bytes {name} of all ticks"),
                ticks,
                self.number(&format!("/bytes/{name}")),
            );
        }
        let apart = self.ticks.windows(2).all(|t| t[0]["to_s"].as_f64() <= t[1]["from_s"].as_f64());
        claims.claim(apart, || format!("{case}: ticks overlap"));
    }

    /// Every component, the generator and the machine were watched, and used something.
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
            let mean = self.number(&format!("/components/{name}/memory_bytes/mean"));
            claims.claim(mean > 0.0 || self.is_brief(), || {
                format!("{case}: no mean memory of {name} in the summary")
            });
            let cpu_s = self.number(&format!("/components/{name}/cpu_s"));
            // A program may leave a part of the system alone.
            let used = cpu_s > 0.0 || self.is_command() && cpu_s == 0.0;
            claims.claim(used, || format!("{case}: no CPU time of {name} in the summary"));
        }
    }

    /// Up, ready, loaded, down, in this order.
    fn check_events(&self, claims: &mut Claims) {
        let names: Vec<_> = self.events.iter().filter_map(|e| e["event"].as_str()).collect();
        let mut rest = names.iter();
        // What was killed in the middle is down before the load's end.
        let last = (!self.has_acted()).then_some("down");
        for wanted in ["up", "ready", "load_started", "load_ended"].into_iter().chain(last) {
            let found = rest.any(|name| *name == wanted);
            claims.claim(found, || format!("{}: no `{wanted}` in its place among {names:?}", self.case));
        }
        for unwanted in ["died", "failed"] {
            claims.claim(!names.contains(&unwanted), || format!("{}: an event `{unwanted}`", self.case));
        }
    }

    fn check_files(&self, claims: &mut Claims) {
        for (ending, empty) in
            [("latency.hlog", false), ("examples.jsonl", false), (".out", true), (".err", true)]
        {
            let file = self.files.iter().find(|f| f.to_string_lossy().ends_with(ending));
            let bytes = file.and_then(|f| f.metadata().ok()).map(|m| m.len());
            let is_of_times = matches!(ending, "latency.hlog" | "examples.jsonl");
            let may_lack = self.is_command() && is_of_times;
            let good = may_lack || bytes.is_some_and(|bytes| empty || bytes > 0);
            claims.claim(good, || format!("{}: {ending} is missing or empty", self.case));
        }
    }
}

/// Text at a JSON pointer; empty when there is none.
pub fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn array<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn sum(value: &Value, pointer: &str) -> f64 {
    let object = value.pointer(pointer).and_then(Value::as_object);
    object.map_or(f64::NAN, |o| o.values().filter_map(Value::as_f64).sum())
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
