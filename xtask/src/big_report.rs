//! The report of a large run: how long it takes to make, how much memory that needs, how large the page is, and how
//! soon it paints.
//!
//! A real run of twelve cases with ten components takes seconds here; its record is then stretched to an hour. Every
//! line of its seconds is repeated with a later time, and gauges vary a little from copy to copy, so that the data
//! compresses no better than that of a real hour.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use crate::command::{cargo, program, shown};
use crate::in_browser::in_a_browser;
use crate::peers::measure::measure_on_all;
use crate::root::target;
use crate::steps::Outcome;

const CASES: usize = 12;
const COMPONENTS: usize = 10;
/// Length of each real load, in seconds, and how often it is repeated: together an hour.
const REAL_S: u64 = 15;
const COPIES: u64 = 240;
/// Limits: seconds to make the report, peak memory in bytes, page size in bytes, milliseconds to first contentful
/// paint.
const MOST: (f64, u64, u64, f64) = (3.0, 300_000_000, 1_500_000, 300.0);
/// Time limit of each command.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs the plan, stretches its record, and measures its report.
///
/// # Errors
/// The plan cannot be run, or a limit is exceeded.
pub fn long() -> Outcome {
    shown(&mut cargo(&["build", "--locked", "--release"]))?.ok("cargo build")?;
    let loadlab = target().join("release/loadlab");
    let dir = target().join("xtask/big-report");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let (plan, record, page) = (dir.join("plan.yaml"), dir.join("record"), dir.join("page.html"));
    fs::write(&plan, plan_of(&loadlab))?;
    let mut run = program(&loadlab);
    run.arg("run").arg(&plan).arg("-o").arg(&record).arg("-q");
    shown(&mut run)?.ok("loadlab run")?;
    for trial in trials_of(&record)? {
        stretch(&trial).with_context(|| trial.display().to_string())?;
    }
    let mut report = program(&loadlab);
    report.arg("report").arg(&record).args(["--format", "html", "-o"]).arg(&page);
    let began = Instant::now();
    let (ran, used) = measure_on_all(report, &dir, LONGEST)?;
    let took_s = began.elapsed().as_secs_f64();
    ran.ok("loadlab report")?;
    let bytes = fs::metadata(&page)?.len();
    let (painted_ms, cases) = in_a_browser(|browser| {
        browser.screen((1280, 900), "light");
        browser.open(&page);
        let painted =
            "performance.getEntriesByType('paint').find((p) => p.name === 'first-contentful-paint')";
        browser.until(&format!("{painted} !== undefined"));
        let cases = browser.value("document.querySelectorAll('section.case').length");
        (browser.value(&format!("{painted}.startTime")), cases)
    })?;
    let painted_ms = painted_ms.as_f64().context("no first paint")?;
    ensure!(cases.as_u64() == Some(CASES as u64), "the page has {cases} cases");
    let found = format!(
        "{CASES} cases of an hour with {COMPONENTS} components: {took_s:.1} s, {:.0} MB, page {:.2} MB, first screen after {painted_ms:.0} ms",
        used.peak_bytes as f64 / 1e6,
        bytes as f64 / 1e6,
    );
    let (most_s, most_memory, most_bytes, most_ms) = MOST;
    let kept =
        took_s <= most_s && used.peak_bytes <= most_memory && bytes <= most_bytes && painted_ms <= most_ms;
    ensure!(kept, "{found}; at most {most_s} s, {most_memory} and {most_bytes} bytes, {most_ms} ms");
    Ok(found)
}

fn plan_of(loadlab: &Path) -> String {
    let users: Vec<String> = (1..=CASES).map(|n| n.to_string()).collect();
    format!(
        "loadlab: 1\nname: an hour\nsystem:\n  components:\n    node:\n      replicas: {COMPONENTS}\n      \
         run: [\"{}\", demo, --port, \"${{port}}\", --work, 200us]\n      port: auto\n      ready: {{ tcp: \"127.0.0.1:${{port}}\" }}\n\
         load:\n  users: ${{case.users}}\n  duration: {REAL_S}s\n  think: 20ms\n  journey:\n    \
         - {{ get: \"http://127.0.0.1:${{components.node1.port}}/\", tags: [page] }}\n    \
         - {{ get: \"http://127.0.0.1:${{components.node2.port}}/items/1\", tags: [item] }}\n\
         matrix: {{ axes: {{ users: [{}] }} }}\nexpect: [ \"p50 < 60s\" ]\n",
        loadlab.display(),
        users.join(", ")
    )
}

fn trials_of(record: &Path) -> Result<Vec<PathBuf>> {
    let cases = fs::read_dir(record.join("cases"))?.collect::<Result<Vec<_>, _>>()?;
    let trials: Vec<PathBuf> = cases.iter().map(|case| case.path().join("1")).collect();
    ensure!(trials.len() == CASES, "{} cases", trials.len());
    Ok(trials)
}

/// Stretches a trial's record to an hour.
fn stretch(trial: &Path) -> Result<()> {
    let length_s = REAL_S as f64;
    let end_s = length_s * COPIES as f64;
    for file in ["ticks.jsonl", "samples.jsonl", "evidence.jsonl"] {
        let path = trial.join(file);
        let lines = lines_of(&path)?;
        fs::write(&path, repeated(&lines, length_s))?;
    }
    let log = trial.join("latency.hlog");
    let text = fs::read_to_string(&log)?;
    fs::write(&log, repeated_log(&text, length_s))?;
    // Events after the load move behind the hour.
    let later = |object: &mut Map<String, Value>| {
        if let Some(at_s) = object.get("at_s").and_then(Value::as_f64).filter(|at| *at >= length_s - 0.5) {
            object.insert("at_s".into(), (at_s - length_s + end_s).into());
        }
    };
    let path = trial.join("events.jsonl");
    let mut events = lines_of(&path)?;
    for event in &mut events {
        later(event);
        if let Some(load) = event.get_mut("load").and_then(Value::as_object_mut) {
            load.insert("duration_s".into(), end_s.into());
        }
    }
    fs::write(&path, written(&events))?;
    let path = trial.join("summary.json");
    let mut summary: Value = serde_json::from_slice(&fs::read(&path)?)?;
    summary["elapsed_s"] = end_s.into();
    summary["window"]["to_s"] = end_s.into();
    summary["load"]["duration_s"] = end_s.into();
    fs::write(&path, summary.to_string())?;
    Ok(())
}

fn lines_of(path: &Path) -> Result<Vec<Map<String, Value>>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn written(lines: &[Map<String, Value>]) -> String {
    lines.iter().map(|line| Value::Object(line.clone()).to_string() + "\n").collect()
}

/// Repeats the lines recorded during the load, each copy later than the one before. Counters keep growing from copy to
/// copy; gauges vary a little.
fn repeated(lines: &[Map<String, Value>], length_s: f64) -> String {
    let at = |line: &Map<String, Value>| ["at_s", "from_s"].iter().find_map(|key| line.get(*key)?.as_f64());
    let name = |line: &Map<String, Value>| line.get("component").map(Value::to_string).unwrap_or_default();
    let within: Vec<_> =
        lines.iter().filter(|l| at(l).is_some_and(|at| at < length_s - 0.2)).cloned().collect();
    // The last line of each component.
    let last: BTreeMap<String, &Map<String, Value>> = within.iter().map(|line| (name(line), line)).collect();
    let mut text = String::new();
    for copy in 0..COPIES {
        let by_s = copy as f64 * length_s;
        let factor = 1.0 + 0.2 * ((copy * 7919 % 101) as f64 / 101.0 - 0.5);
        for line in &within {
            let mut line = line.clone();
            let end = last.get(&name(&line)).copied();
            for (key, value) in &mut line {
                let Some(number) = value.as_f64() else { continue };
                let grown = end.and_then(|end| end.get(key)?.as_f64()).unwrap_or(0.0) * copy as f64;
                let new = match key.as_str() {
                    "at_s" | "from_s" | "to_s" => number + by_s,
                    key if COUNTERS.contains(&key) => number + grown,
                    "memory_bytes" | "resident_bytes" => (number * factor).round(),
                    _ => continue,
                };
                *value = if value.is_u64() { (new as u64).into() } else { new.into() };
            }
            for key in ["response_ms", "late_ms", "blocked_ms"] {
                for value in
                    line.get_mut(key).and_then(Value::as_object_mut).into_iter().flat_map(|o| o.values_mut())
                {
                    if let Some(number) = value.as_f64().filter(|_| !value.is_u64()) {
                        *value = (number * factor).into();
                    }
                }
            }
            text.push_str(&Value::Object(line).to_string());
            text.push('\n');
        }
    }
    text
}

/// Fields that are counters: they only grow.
const COUNTERS: &[&str] = &[
    "cpu_user_s",
    "cpu_system_s",
    "cpu_s",
    "periods",
    "throttled_periods",
    "throttled_s",
    "minor_faults",
    "major_faults",
    "block_read_bytes",
    "block_written_bytes",
    "net_in_bytes",
    "net_out_bytes",
];

/// As [`repeated`], for the latency log: `Tag=…,START,LENGTH,MAX,HISTOGRAM`.
fn repeated_log(text: &str, length_s: f64) -> String {
    let is_interval =
        |line: &&str| line.starts_with("Tag=") || line.starts_with(|c: char| c.is_ascii_digit());
    let mut all: String = text.lines().filter(|l| !is_interval(l)).map(|line| format!("{line}\n")).collect();
    for copy in 0..COPIES {
        for line in text.lines().filter(is_interval) {
            let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
            let at = usize::from(line.starts_with("Tag="));
            let Some(start_s) = fields.get(at).and_then(|f| f.parse::<f64>().ok()) else { continue };
            if start_s < length_s - 0.2 {
                fields[at] = format!("{:.3}", start_s + copy as f64 * length_s);
                all.push_str(&fields.join(","));
                all.push('\n');
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_made_of_its_first_seconds() {
        let line =
            |at: f64, cpu: f64| serde_json::json!({ "at_s": at, "component": "a", "cpu_s": cpu, "pids": 3 });
        let lines: Vec<Map<String, Value>> = [line(0.5, 1.0), line(14.0, 8.0), line(15.1, 9.0)]
            .into_iter()
            .map(|v| v.as_object().expect("an object").clone())
            .collect();
        let text = repeated(&lines, 15.0);
        let all: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
        assert_eq!(all.len() as u64, 2 * COPIES);
        assert_eq!(
            (&all[2]["at_s"], &all[2]["cpu_s"], &all[2]["pids"]),
            (&15.5.into(), &9.0.into(), &3.into())
        );
        let last = &all[all.len() - 1];
        assert!(last["at_s"].as_f64() < Some(3600.0) && last["at_s"].as_f64() > Some(3590.0), "{last}");
        let log =
            repeated_log("#[a]\n\"StartTimestamp\"\nTag=x,1.000,1.000,2.0,QQ==\n15.0,1.0,2.0,QQ==\n", 15.0);
        assert_eq!(log.lines().count() as u64, 2 + COPIES);
        assert!(log.contains("\nTag=x,16.000,1.000,2.0,QQ==\n"), "{}", &log[..200]);
    }
}
