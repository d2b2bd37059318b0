//! Planted capacities: servers with an exact capacity, each of which a plan with `find` searches. The answer must be
//! near the truth, and its interval must contain it.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::servers;
use crate::command::{LONGEST, captured, program, say};
use crate::packages::{FOR_PLANTED, ready};
use crate::steps::Outcome;

/// An answer is right if it is within this share of the truth.
const NEAR: f64 = 0.03;
/// The most levels that a search may measure.
const MOST_LEVELS: usize = 15;
/// How many of all answers must be right, and how many intervals must contain the truth.
const LEAST_RIGHT: usize = 15;
const LEAST_HELD: usize = 14;
/// Cases that `cargo xtask test` searches, in a third of the time, and how near the truth these answers must be.
const QUICK: [&str; 4] = ["pool of 3", "one place", "bucket of 170", "half a core"];
const NEAR_QUICK: f64 = 0.1;

/// What a search found.
struct Found {
    name: String,
    truth: f64,
    /// The answer, and the low and high ends of its interval; `None` if there is no answer.
    capacity: Option<[f64; 3]>,
    levels: usize,
}

impl Found {
    fn off(&self) -> f64 {
        self.capacity.map_or(f64::INFINITY, |[value, ..]| (value / self.truth - 1.0).abs())
    }

    fn is_held(&self) -> bool {
        self.capacity.is_some_and(|[_, low, high]| low <= self.truth && self.truth <= high)
    }

    fn line(&self) -> String {
        let found = match self.capacity {
            Some([value, low, high]) => format!("{value:.1} ({low:.1} … {high:.1})"),
            None => "nothing".to_owned(),
        };
        format!("{}: takes {}, found {found} in {} levels", self.name, self.truth, self.levels)
    }
}

/// Searches all servers, as a step of `cargo xtask long`.
///
/// # Errors
/// Something is missing, or too many answers are wrong.
pub fn long() -> Outcome {
    let found = search(None)?;
    let right = found.iter().filter(|one| one.off() <= NEAR).count();
    let held = found.iter().filter(|one| one.is_held()).count();
    let levels = found.iter().map(|one| one.levels).max().unwrap_or(0);
    let wrong: Vec<String> = found.iter().filter(|one| one.off() > NEAR).map(Found::line).collect();
    let missed: Vec<&str> = found.iter().filter(|one| !one.is_held()).map(|one| one.name.as_str()).collect();
    let list =
        |what: &str, names: String| if names.is_empty() { names } else { format!("; {what}: {names}") };
    let text = format!(
        "of {} servers {right} within {:.0} %, {held} within the 95 % interval, in at most {levels} levels{}{}",
        found.len(),
        NEAR * 100.0,
        list("wrong", wrong.join(", ")),
        list("outside", missed.join(", "))
    );
    ensure!(right >= LEAST_RIGHT && held >= LEAST_HELD && levels <= MOST_LEVELS, "{text}");
    Ok(text)
}

/// Searches a few servers, as a step of `cargo xtask test`: all answers must be near the truth.
///
/// # Errors
/// Something is missing, or an answer is wrong.
pub fn quick() -> Outcome {
    let found = search(Some(&QUICK))?;
    ensure!(found.len() == QUICK.len(), "{} of {} were searched", found.len(), QUICK.len());
    let wrong: Vec<String> = found
        .iter()
        .filter(|one| one.off() > NEAR_QUICK || one.levels > MOST_LEVELS)
        .map(Found::line)
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    let furthest = found.iter().map(Found::off).fold(0.0, f64::max);
    Ok(format!("{} servers, the answer off by at most {:.1} %", found.len(), furthest * 100.0))
}

/// Searches these cases, or all.
fn search(only: Option<&[&str]>) -> Result<Vec<Found>> {
    ready(FOR_PLANTED, false)?;
    let loadlab = servers::loadlab(None)?;
    let path = servers::build_capacity()?;
    let plan = servers::sources().join("capacities/plan.yaml");
    let runs: Vec<Option<&str>> = match only {
        Some(names) => names.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let mut found = Vec::new();
    for case in runs {
        let out = servers::out().join("capacities");
        let _ = fs::remove_dir_all(&out);
        let mut command = program(&loadlab);
        command.arg("run").arg(&plan).arg("--out").arg(&out).args(["--quiet"]).env("PATH", &path);
        if let Some(case) = case {
            command.args(["--profile", "short", "--case", case]);
        }
        let ran = captured(command.stdin(Stdio::null()), LONGEST)?;
        // A search that finds no capacity is a wrong answer, not an error.
        ensure!(out.join("manifest.json").is_file(), "loadlab run: {}\n{}", ran.status, ran.stderr);
        let all = read(&out).with_context(|| format!("{}\n{}", ran.status, ran.stderr))?;
        all.iter().for_each(|one| say(&one.line()));
        found.extend(all);
    }
    Ok(found)
}

/// What a run found, by case, read from its record.
fn read(out: &Path) -> Result<Vec<Found>> {
    let json = |path: &Path| -> Result<Value> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    };
    let manifest = json(&out.join("manifest.json"))?;
    let mut found = Vec::new();
    for case in manifest["cases"].as_array().context("no cases")? {
        let name = case["name"].as_str().context("a case without a name")?;
        let values = case["values"].as_array().context("no values")?;
        let takes = values.iter().find(|pair| pair[0] == "takes").and_then(|pair| pair[1].as_str());
        let truth = takes.and_then(|takes| takes.parse().ok()).context("no truth")?;
        let dir = out.join("cases").join(case["dir"].as_str().context("no folder")?).join("1");
        let search = match dir.join("summary.json") {
            path if path.is_file() => json(&path)?["search"].clone(),
            _ => Value::Null,
        };
        let capacity = ["value", "low", "high"].map(|of| search["capacity"][of].as_f64());
        found.push(Found {
            name: name.to_owned(),
            truth,
            capacity: match capacity {
                [Some(value), Some(low), Some(high)] => Some([value, low, high]),
                _ => None,
            },
            levels: search["path"].as_array().map_or(0, Vec::len),
        });
    }
    Ok(found)
}
