//! Planted levers: systems in which the limit that holds them back is known. `loadlab why` must rank it first, with an
//! interval apart from the second's, and its prediction must contain what raising the limit really brings.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::servers;
use crate::command::{LONGEST, captured, program, say};
use crate::packages::{FOR_PLANTED, ready};
use crate::steps::Outcome;

/// A system, and the lever that holds it back; `None` if nothing does.
struct Planted {
    plan: &'static str,
    case: &'static str,
    lever: Option<&'static str>,
    /// Length of a block, in seconds: shorter where a second is enough to see the effect.
    block_s: &'static str,
}

const fn planted(plan: &'static str, case: &'static str, lever: &'static str) -> Planted {
    Planted { plan, case, lever: Some(lever), block_s: "3" }
}

impl Planted {
    /// Name of its plan and case.
    fn name(&self) -> String {
        format!("{} {}", self.plan, self.case)
    }
}

const SYSTEMS: [Planted; 10] = [
    planted("tiers", "store", "store CPU"),
    planted("tiers", "mid", "mid CPU"),
    planted("tiers", "web", "web CPU"),
    planted("tiers", "store of two", "store CPU"),
    planted("tiers", "mid of two", "mid CPU"),
    planted("tiers", "busy thread", "store CPU"),
    planted("links", "store delay", "store delay"),
    planted("links", "web delay", "web delay"),
    planted("links", "store bandwidth", "store bandwidth"),
    // With blocks this short, the smallest raise fits into the budget of `cargo xtask test`.
    Planted { block_s: "2", ..planted("pool", "default", "pool") },
];

/// A system that nothing holds back.
const NOTHING: Planted = Planted { plan: "links", case: "nothing", lever: None, block_s: "2" };
/// Number of sessions with it, how many run at a time, and how many of them may report that a lever binds.
const IDLE_SESSIONS: usize = 40;
const IDLE_AT_A_TIME: usize = 4;
const MOST_CALLED: usize = 5;
/// Budget of each of these sessions.
const IDLE_BUDGET: [&str; 1] = ["70s"];

/// Cases that run at the same time: together they need a fraction of a core, and none of them depends on how fast that
/// is. `cargo xtask test` runs only these.
const QUICK: [&str; 4] = ["store delay", "web delay", "store bandwidth", "default"];
/// Budget of each of these, then the budgets to retry with while the answer is not certain: on a machine that stalls
/// now and then it takes more rounds, as the answer itself states. A wrong answer counts at once.
const QUICK_BUDGETS: [&str; 4] = ["66s", "2m", "4m", "8m"];
/// Budget of each in `cargo xtask long`: a minute less than the default of `loadlab why`.
const BUDGET: [&str; 1] = ["4m"];
/// The least share of answers that must be right, and of predictions that must contain what was measured.
const LEAST_RIGHT: f64 = 0.9;
const LEAST_PREDICTED: f64 = 0.9;

/// The answer of `loadlab why`.
struct Answer {
    name: String,
    is_right: bool,
    /// Whether it calls a lever that does not hold the system back.
    calls_another: bool,
    /// Whether the prediction contains what was measured; `None` if nothing was raised.
    is_predicted: Option<bool>,
    /// Half the width of the prediction, as a share of the goodput.
    half_width: Option<f64>,
    found: String,
}

/// Runs all systems, as a step of `cargo xtask long`.
///
/// # Errors
/// Something is missing, or too many answers are wrong.
pub fn long(sweeps: u32) -> Outcome {
    let tools = Tools::new()?;
    let mut answers = Vec::new();
    let (together_too, alone): (Vec<&Planted>, Vec<&Planted>) =
        SYSTEMS.iter().partition(|system| QUICK.contains(&system.case));
    for _ in 0..sweeps {
        answers.extend(together(together_too.len(), |number| {
            let system = together_too[number];
            tools.ask(system, &system.name(), &BUDGET)
        })?);
        for system in &alone {
            answers.push(tools.ask(system, &system.name(), &BUDGET)?);
        }
    }
    let right = answers.iter().filter(|answer| answer.is_right).count();
    let predicted: Vec<bool> = answers.iter().filter_map(|answer| answer.is_predicted).collect();
    let held = predicted.iter().filter(|held| **held).count();
    let wrong: Vec<String> = answers
        .iter()
        .filter(|answer| !answer.is_right)
        .map(|answer| format!("{} ({})", answer.name, answer.found))
        .collect();
    // A prediction that is wide enough for anything shows nothing.
    let mut widths: Vec<f64> = answers.iter().filter_map(|answer| answer.half_width).collect();
    widths.sort_by(f64::total_cmp);
    let width = widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN);
    let text = format!(
        "of {} answers {right} rank the planted lever first and apart from the second; {held} of {} predictions contain \
         what raising it brought, the median one within ± {:.1} %{}",
        answers.len(),
        predicted.len(),
        100.0 * width,
        if wrong.is_empty() { String::new() } else { format!("; wrong: {}", wrong.join(", ")) }
    );
    let is_enough = held as f64 >= LEAST_PREDICTED * predicted.len() as f64 && !predicted.is_empty();
    let is_right = right as f64 >= LEAST_RIGHT * answers.len() as f64 && !answers.is_empty();
    ensure!(is_right && is_enough, "{text}");
    Ok(text)
}

/// Runs sessions in which nothing holds the load back, as a step of `cargo xtask long`.
///
/// # Errors
/// Something is missing, or too many sessions report that a lever binds.
pub fn idle() -> Outcome {
    let tools = Tools::new()?;
    let mut answers = Vec::new();
    while answers.len() < IDLE_SESSIONS {
        answers.extend(together(IDLE_AT_A_TIME, |number| {
            tools.ask(&NOTHING, &format!("nothing {number}"), &IDLE_BUDGET)
        })?);
    }
    let called: Vec<&str> = answers.iter().filter(|a| a.calls_another).map(|a| a.found.as_str()).collect();
    // An answer without any lever shows nothing.
    let untried = answers.iter().filter(|a| !a.is_right && !a.calls_another).count();
    let text = format!(
        "{} of {} sessions in which nothing binds report that a lever binds, and {untried} tried none{}",
        called.len(),
        answers.len(),
        if called.is_empty() { String::new() } else { format!(": {}", called.join("; ")) }
    );
    ensure!(called.len() + untried <= MOST_CALLED, "{text}");
    Ok(text)
}

/// Asks this many questions at the same time, and returns the answers.
fn together(questions: usize, ask: impl Fn(usize) -> Result<Answer> + Sync) -> Result<Vec<Answer>> {
    thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = (0..questions).map(|number| scope.spawn(move || ask(number))).collect();
        asked.into_iter().map(|thread| thread.join().expect("a thread that does not panic")).collect()
    })
}

/// Runs a few systems, as a step of `cargo xtask test`: all answers must be right.
///
/// # Errors
/// Something is missing, or an answer is wrong.
pub fn quick() -> Outcome {
    let tools = Tools::new()?;
    let chosen: Vec<&Planted> = SYSTEMS.iter().filter(|system| QUICK.contains(&system.case)).collect();
    ensure!(chosen.len() == QUICK.len(), "{} of {} are there", chosen.len(), QUICK.len());
    let answers = together(chosen.len(), |number| {
        let system = chosen[number];
        tools.ask(system, &system.name(), &QUICK_BUDGETS)
    })?;
    let wrong: Vec<String> = answers
        .iter()
        .filter(|answer| !answer.is_right)
        .map(|answer| format!("{}: {}", answer.name, answer.found))
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    // Whether a prediction is right is partly chance; that something is raised is not.
    let raised = answers.iter().filter(|answer| answer.is_predicted.is_some()).count();
    ensure!(raised > 0, "nothing was raised");
    Ok(format!("{} systems, the planted lever first in all; {raised} raised", answers.len()))
}

/// The program that is asked, and the search path with the servers.
struct Tools {
    loadlab: std::path::PathBuf,
    path: std::ffi::OsString,
}

impl Tools {
    fn new() -> Result<Tools> {
        ready(FOR_PLANTED, false)?;
        let loadlab = servers::loadlab(None)?;
        servers::build()?;
        let path = servers::build_levers()?;
        Ok(Tools { loadlab, path })
    }

    /// Asks about a system; `name` names its record, and the system in messages. Retries with the next budget while the
    /// answer is not certain.
    fn ask(&self, system: &Planted, name: &str, budgets: &[&str]) -> Result<Answer> {
        let out = servers::out().join("levers").join(name.replace(' ', "-"));
        let plan = servers::sources().join(format!("levers/{}.yaml", system.plan));
        let mut longer = budgets.iter();
        let mut budget = longer.next().context("no budget")?;
        let answer = loop {
            let _ = fs::remove_dir_all(&out);
            let said =
                ask(self, system, &plan, budget, &out).with_context(|| format!("loadlab why, {name}"))?;
            let answer = judged(system, name.to_owned(), &said);
            match longer.next() {
                Some(next) if !answer.is_right && !answer.calls_another => budget = next,
                _ => break answer,
            }
        };
        let left = fs::read_dir(servers::sources().join("levers"))?.flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".log")).count();
        ensure!(
            left == 0 || system.case != "busy thread",
            "{name}: logs of Node are left in xtask/planted/levers"
        );
        let verdict = if answer.is_right { "right" } else { "WRONG" };
        let not_as_predicted = if answer.is_predicted == Some(false) { " (not as predicted)" } else { "" };
        say(&format!("{:<22} {verdict:<6} {}{not_as_predicted}", answer.name, answer.found));
        Ok(answer)
    }
}

/// Runs `loadlab why --json`, and returns what it prints.
fn ask(tools: &Tools, system: &Planted, plan: &Path, budget: &str, out: &Path) -> Result<Value> {
    let mut command = program(&tools.loadlab);
    command.arg("why").arg(plan).args(["--case", system.case, "--budget", budget, "--block", system.block_s]);
    command.args(["--json", "--quiet", "--out"]).arg(out).env("PATH", &tools.path).stdin(Stdio::null());
    let ran = captured(&mut command, LONGEST)?;
    // Exit code 4: the generator was too slow for a moment; 6: nothing was certain. The answer shows which.
    ensure!(matches!(ran.status.code(), Some(0 | 4 | 6)), "{}\n{}{}", ran.status, ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).with_context(|| ran.stdout.clone())
}

fn judged(system: &Planted, name: String, said: &Value) -> Answer {
    let why = &said["why"];
    let levers: Vec<&Value> = why["levers"].as_array().into_iter().flatten().collect();
    let is_called = |lever: &&&Value| lever["call"] == "binds";
    let is_right = match (system.lever, levers.first()) {
        (Some(wanted), Some(first)) => {
            first["name"] == wanted && first["call"] == "binds" && why["is_first_apart"] == true
        }
        (Some(_), None) => false,
        // Levers were tried, and none is called.
        (None, first) => first.is_some() && levers.iter().filter(is_called).count() == 0,
    };
    let raised = levers.first().map(|first| &first["raised"][0]);
    let end = |name: &str| raised?["predicted"][name].as_f64();
    let found = why["found"].as_str().or(said["trouble"].as_str()).unwrap_or("nothing");
    let calls_another =
        levers.iter().any(|lever| lever["call"] == "binds" && lever["name"].as_str() != system.lever);
    Answer {
        name,
        is_right,
        calls_another,
        is_predicted: raised.and_then(|raised| raised["is_as_predicted"].as_bool()),
        half_width: end("high").zip(end("low")).map(|(high, low)| (high - low) / 2.0),
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::root::root;

    #[test]
    fn every_system_has_its_case() {
        for system in SYSTEMS.iter().chain([&NOTHING]) {
            let plan = root().join(format!("xtask/planted/levers/{}.yaml", system.plan));
            let text = fs::read_to_string(plan).unwrap();
            assert!(
                system.case == "default" || text.contains(&format!("name: {},", system.case)),
                "{}",
                system.case
            );
        }
    }

    #[test]
    fn an_answer_is_right_only_if_the_planted_lever_is_first_binds_and_is_apart() {
        let planted = planted("tiers", "mid", "mid CPU");
        let said = |name: &str, call: &str, is_first_apart: bool| {
            let predicted = json!({ "value": 1.1, "low": 1.08, "high": 1.12 });
            let raised = json!([{ "is_as_predicted": true, "predicted": predicted }]);
            let levers = json!([{ "name": name, "call": call, "raised": raised }]);
            json!({ "why": { "levers": levers, "is_first_apart": is_first_apart, "found": "so" } })
        };
        let is_right = |said: &Value| judged(&planted, String::new(), said).is_right;
        assert!(is_right(&said("mid CPU", "binds", true)));
        assert!(!is_right(&said("web CPU", "binds", true)));
        assert!(!is_right(&said("mid CPU", "cannot_tell", true)));
        assert!(!is_right(&said("mid CPU", "binds", false)));
        assert!(!is_right(&json!({ "trouble": "it did not come up" })));
        let idle = |said: &Value| judged(&NOTHING, String::new(), said).is_right;
        assert!(idle(&said("mid CPU", "free", true)) && !idle(&said("mid CPU", "binds", true)));
        assert!(!judged(&NOTHING, String::new(), &json!({ "why": { "levers": [] } })).calls_another);
        let answer = judged(&planted, String::new(), &said("mid CPU", "binds", true));
        assert_eq!(answer.is_predicted, Some(true));
        assert!(answer.half_width.is_some_and(|half| (half - 0.02).abs() < 1e-9), "{:?}", answer.half_width);
    }
}
