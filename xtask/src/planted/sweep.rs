//! Runs each system once, and compares the answer with what is planted there.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::servers::{out, sources};
use super::systems::System;
use crate::command::{captured, program, say};
use crate::engine::Engine;

/// Time limit of a run: it takes seconds, so a longer one hangs.
const LONGEST: Duration = Duration::from_secs(120);

/// loadlab's answer about the bottleneck of a system.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    component: Option<String>,
    kind: String,
    evidence: Vec<String>,
    by_others: Option<f64>,
}

/// Whether an answer is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Component and kind are right.
    Right,
    /// One of them is wrong.
    Wrong,
    /// It names a component that is not the bottleneck.
    BlamesInnocent,
}

/// The result of a sweep.
#[derive(Default)]
pub struct Tally {
    /// Systems in the sweep.
    pub all: usize,
    /// Right answers.
    pub right: usize,
    /// Systems with wrong answers, as `name (COMPONENT KIND)`.
    pub wrong: Vec<String>,
    /// How many of these answers blame an innocent component.
    pub blamed: usize,
    /// Systems that could not run here, `name (why)`.
    pub not_checked: Vec<String>,
}

/// What a sweep runs with.
pub struct Tools<'a> {
    /// Path of the program.
    pub loadlab: &'a Path,
    /// The search path that finds the servers.
    pub path: &'a OsStr,
    /// The container engine, or why there is none; `None` if no system needs one.
    pub engine: Option<&'a Result<Engine, String>>,
}

impl Tools<'_> {
    /// Why a system cannot run here.
    fn lacks(&self, system: &System) -> Option<String> {
        match self.engine {
            Some(Ok(_)) => None,
            _ if !system.is_compose => None,
            Some(Err(why)) => {
                Some(format!("no container engine: {}", why.lines().collect::<Vec<_>>().join(" ")))
            }
            None => Some("no container engine was started".to_owned()),
        }
    }
}

/// Runs each system once, one after the other, and prints a table. Its column `others` shows the cores used by neither
/// the system nor loadlab.
///
/// # Errors
/// A record cannot be made or read. A failing run counts as a wrong answer.
pub fn sweep(systems: &[&System], tools: &Tools<'_>) -> Result<Tally> {
    let mut tally = Tally::default();
    say(&format!(
        "{:<20} {:<33} {:<27} {:<8} {:>5} {:>7}",
        "system", "planted", "bottleneck", "answer", "took", "others"
    ));
    for system in systems {
        let began = Instant::now();
        if let Some(why) = tools.lacks(system) {
            tally.all += 1;
            say(&format!("{:<20} NOT CHECKED: {why}", system.name));
            tally.not_checked.push(format!("{} ({why})", system.name));
            continue;
        }
        let got = ask(system, tools)?;
        let verdict = got.as_ref().map_or(Verdict::Wrong, |answer| judged(system, answer));
        tally.all += 1;
        let shown = match verdict {
            Verdict::Right => "right",
            Verdict::Wrong => "WRONG",
            Verdict::BlamesInnocent => "INNOCENT",
        };
        let expected = pair(system.component, &system.kinds.join(" or "));
        let said = match &got {
            Ok(answer) => pair(answer.component.as_deref(), &answer.kind),
            Err(_) => "–".to_owned(),
        };
        let took_s = began.elapsed().as_secs_f64();
        let others =
            got.as_ref().ok().and_then(|a| a.by_others).map_or("–".to_owned(), |n| format!("{n:.1}"));
        say(&format!("{:<20} {expected:<33} {said:<27} {shown:<8} {took_s:>3.0} s {others:>7}", system.name));
        if verdict == Verdict::Right {
            tally.right += 1;
            continue;
        }
        let lines = got.map_or_else(|why| why.lines().map(str::to_owned).collect(), |a| a.evidence);
        lines.iter().for_each(|line| say(&format!("    {line}")));
        tally.blamed += usize::from(verdict == Verdict::BlamesInnocent);
        tally.wrong.push(format!("{} ({said})", system.name));
    }
    Ok(tally)
}

/// Component and kind, such as `mid pool`.
fn pair(component: Option<&str>, kind: &str) -> String {
    format!("{} {kind}", component.unwrap_or("–"))
}

/// What `loadlab run` reports for a system, or why it reports nothing.
fn ask(system: &System, tools: &Tools<'_>) -> Result<Result<Answer, String>> {
    let runs = out().join("runs");
    let record = runs.join(system.name);
    match fs::remove_dir_all(&record) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(&runs)?,
    }
    let plan = sources().join("systems").join(format!("{}.yaml", system.name));
    let mut command = program(tools.loadlab);
    command.arg("run").arg(plan).args(["--quiet", "--out"]).arg(&record).env("PATH", tools.path);
    if let Some(Ok(engine)) = tools.engine {
        command.env("DOCKER_HOST", engine.host());
    }
    let ran = captured(&mut command, LONGEST)?;
    // Exit code 4: the generator was too slow, which is either planted or due to a busy machine. The answer shows
    // which.
    if !matches!(ran.status.code(), Some(0 | 4)) {
        return Ok(Err(format!("{}\n{}{}", ran.status, ran.stdout, ran.stderr)));
    }
    let trial = record.join("cases/default/1");
    let read = |name: &str| {
        let file = trial.join(name);
        fs::read_to_string(&file).with_context(|| file.display().to_string())
    };
    let summary = serde_json::from_str(&read("summary.json")?)?;
    let mut answer = answer(&summary)?;
    answer.by_others = by_others(&summary, &read("samples.jsonl")?);
    Ok(Ok(answer))
}

/// Cores that programs other than the system and loadlab used meanwhile: if they used most, an answer means little.
fn by_others(summary: &Value, samples: &str) -> Option<f64> {
    let host = samples
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|sample| sample["component"] == "host")
        .filter_map(|sample| Some((sample["at_s"].as_f64()?, sample["cpu_s"].as_f64()?)));
    let host: Vec<(f64, f64)> = host.collect();
    let ((from_s, before_s), (to_s, after_s)) = (*host.first()?, *host.last()?);
    let own_s: f64 = summary["components"].as_object()?.values().filter_map(|c| c["cpu_s"].as_f64()).sum();
    let own_s = own_s + summary["generator"]["cpu_s"].as_f64().unwrap_or(0.0);
    (to_s > from_s).then(|| ((after_s - before_s - own_s) / (to_s - from_s)).max(0.0))
}

/// The answer in a summary.
fn answer(summary: &Value) -> Result<Answer> {
    let bottleneck = &summary["bottleneck"];
    ensure!(bottleneck.is_object(), "the summary has no bottleneck");
    let evidence = bottleneck["evidence"].as_array().context("evidence")?;
    Ok(Answer {
        component: bottleneck["component"].as_str().map(str::to_owned),
        kind: bottleneck["kind"].as_str().context("kind")?.to_owned(),
        evidence: evidence.iter().filter_map(|line| Some(line.as_str()?.to_owned())).collect(),
        by_others: None,
    })
}

/// Compares an answer with what is planted. A link blames both of its ends.
fn judged(system: &System, answer: &Answer) -> Verdict {
    let named = answer.component.as_deref();
    if named == system.component && system.kinds.contains(&answer.kind.as_str()) {
        return Verdict::Right;
    }
    let blamed = named.unwrap_or_default().split('→').any(|end| system.innocents.contains(&end));
    if blamed { Verdict::BlamesInnocent } else { Verdict::Wrong }
}

#[cfg(test)]
mod tests {
    use super::super::systems::SYSTEMS;
    use super::*;

    #[test]
    fn what_cannot_run_is_not_right() {
        let system = SYSTEMS.iter().find(|s| s.is_compose).unwrap();
        let engine = Err("dockerd is not installed".to_owned());
        let tools = Tools { loadlab: Path::new("loadlab"), path: OsStr::new(""), engine: Some(&engine) };
        let tally = sweep(&[system], &tools).unwrap();
        assert_eq!((tally.all, tally.right, tally.wrong.len()), (1, 0, 0));
        let why = format!("{} (no container engine: dockerd is not installed)", system.name);
        assert_eq!(tally.not_checked, [why]);
    }

    #[test]
    fn component_and_kind_must_both_be_right() {
        let check = |name: &str, component: Option<&str>, kind: &str, expect: Verdict| {
            let system = SYSTEMS.iter().find(|s| s.name == name).unwrap();
            let answer = Answer {
                component: component.map(str::to_owned),
                kind: kind.to_owned(),
                evidence: Vec::new(),
                by_others: None,
            };
            assert_eq!(judged(system, &answer), expect, "{name}: {answer:?}");
        };
        check("pool-in-mid", Some("mid"), "pool", Verdict::Right);
        check("pool-in-mid", Some("mid"), "latency", Verdict::Wrong);
        check("pool-in-mid", Some("store"), "pool", Verdict::Wrong);
        check("names", Some("dns"), "latency", Verdict::Right);
        check("nothing", None, "nothing", Verdict::Right);
        check("nothing", Some("web"), "latency", Verdict::BlamesInnocent);
        check("idle-pool", Some("cache"), "pool", Verdict::BlamesInnocent);
        check("idle-pool", Some("web→cache"), "link", Verdict::BlamesInnocent);
        check("idle-pool", None, "nothing", Verdict::Wrong);
    }

    #[test]
    fn a_summary_has_an_answer_or_is_an_error() {
        let summary = serde_json::json!({
            "bottleneck": { "component": null, "kind": "nothing", "evidence": ["a", "b"], "confidence": "high" }
        });
        let expect = Answer {
            component: None,
            kind: "nothing".into(),
            evidence: vec!["a".into(), "b".into()],
            by_others: None,
        };
        assert_eq!(answer(&summary).unwrap(), expect);
        assert!(answer(&serde_json::json!({})).is_err());
    }

    #[test]
    fn what_others_used_is_what_is_left_of_the_machine() {
        let summary = serde_json::json!({
            "components": { "web": { "cpu_s": 2.0 }, "gone": { "cpu_s": null } }, "generator": { "cpu_s": 1.0 }
        });
        let samples = "{\"component\":\"host\",\"at_s\":0.0,\"cpu_s\":100.0}\n\
            {\"component\":\"web\",\"at_s\":1.0,\"cpu_s\":2.0}\n\
            {\"component\":\"host\",\"at_s\":4.0,\"cpu_s\":105.0}\n";
        assert_eq!(by_others(&summary, samples), Some(0.5));
        assert_eq!(by_others(&summary, ""), None);
    }
}
