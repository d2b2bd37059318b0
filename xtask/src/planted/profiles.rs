//! Planted hot functions: services in five languages, each with a function that does three quarters of its work. A
//! profile must name that function first. Likewise a lock that requests wait for, among threads that are idle. Also
//! measures what sampling costs, compared with seconds without it.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::servers;
use crate::command::{LONGEST, captured, program};
use crate::packages::{FOR_PLANTED, ready};
use crate::steps::Outcome;

/// The component in each language, and the name of its hot function.
const HOT: [(&str, &str); 5] = [
    ("c", "planted_hot"),
    ("rust", "hot::planted_hot"),
    ("go", "main.plantedHot"),
    ("node", "plantedHot"),
    ("java", "plantedHot"),
];
/// The least share of samples in the planted function: it does three quarters of the work, but the service does more
/// than that work.
const LEAST_SHARE: f64 = 0.5;
/// The most that sampling may cost, as a share of the goodput; the far end of the interval counts.
const MOST_COST: f64 = 0.02;

/// Checks that each profile names the planted function first, as a step of `cargo xtask test`.
///
/// # Errors
/// Something is missing, or another function is named first.
pub fn quick() -> Outcome {
    ready(FOR_PLANTED, false)?;
    let said = run("hot", &servers::build_hot()?)?;
    let left: Vec<String> = fs::read_dir(servers::sources().join("profiles"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".log"))
        .collect();
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    let components = said["cases"][0]["profile"]["components"].as_array().context("no profile")?;
    let mut shown = Vec::new();
    for (name, planted) in HOT {
        let of = components.iter().find(|component| component["component"] == name);
        let of = of.with_context(|| format!("no profile of {name}"))?;
        let first = &of["functions"][0];
        let (function, share) = (first["name"].as_str().unwrap_or_default(), share(first, of));
        ensure!(
            function.contains(planted) && share >= LEAST_SHARE,
            "{name}: {planted} is not first with half of the samples, but {function} with {share:.2}: {of:#}"
        );
        shown.push(format!("{name} {:.0} %", 100.0 * share));
    }
    shown.push(waits(&said["cases"][0]["profile"]["waits"])?);
    pprof("profile", "plantedHot")?;
    pprof("waits", "planted_lock")?;
    Ok(format!("the planted function first in all: {}", shown.join(", ")))
}

/// Checks that threads of the service with a lock wait for it most of the time, and that idle threads are left out.
fn waits(components: &Value) -> Result<String> {
    let components = components.as_array().context("no waits")?;
    let of =
        components.iter().find(|component| component["component"] == "lock").context("no waits of lock")?;
    let first = &of["functions"][0];
    let share = share(first, of);
    ensure!(
        first["name"] == "planted_lock" && share >= LEAST_SHARE,
        "lock: planted_lock is not first with half of the time, but {first:#} with {share:.2}: {of:#}"
    );
    let is_of_idle = |idle: &&Value| idle["why"].as_str().is_some_and(|why| why.contains("condition"));
    let idle = of["idle"].as_array().into_iter().flatten().find(is_of_idle);
    let idle = idle.and_then(|idle| idle["samples"].as_f64()).unwrap_or(0.0);
    // There are 64 idle threads, and at most 8 with work.
    ensure!(
        idle > of["samples"].as_f64().unwrap_or(f64::INFINITY),
        "threads without work are not left out: {of:#}"
    );
    Ok(format!("waits {:.0} %", 100.0 * share))
}

/// Checks that pprof can read the file in the record, and names the function.
fn pprof(file: &str, function: &str) -> Result<()> {
    let path = servers::out().join(format!("profiles/hot/cases/default/1/{file}.pb.gz"));
    let mut command = program("go");
    command.args(["tool", "pprof", "-top"]).arg(&path).env("GOTOOLCHAIN", "local").stdin(Stdio::null());
    let ran = captured(&mut command, LONGEST)?;
    ensure!(
        ran.status.success() && ran.stdout.contains(function),
        "{}: {}{}",
        path.display(),
        ran.stdout,
        ran.stderr
    );
    Ok(())
}

fn share(function: &Value, of: &Value) -> f64 {
    function["own"].as_f64().unwrap_or(0.0) / of["samples"].as_f64().unwrap_or(f64::INFINITY)
}

/// As [`quick`], and measures what sampling costs, as a step of `cargo xtask long`.
///
/// # Errors
/// As for [`quick`], or sampling costs too much.
pub fn long() -> Outcome {
    let hot = quick()?;
    let said = run("cost", &servers::build_hot()?)?;
    let cost = &said["cases"][0]["profile"]["cost"];
    let of = |name: &str| cost["goodput"][name].as_f64().with_context(|| format!("no {name}: {cost:#}"));
    let (value, low, high) = (of("value")?, of("low")?, of("high")?);
    let pairs = cost["pairs"].as_u64().unwrap_or(0);
    let text = format!(
        "{hot}; goodput of nginx with samples over that without: {value:.4} ({low:.4} … {high:.4}, 95 %), {pairs} pairs of \
         seconds"
    );
    ensure!(low > 1.0 - MOST_COST, "{text}");
    Ok(text)
}

/// Runs a plan, and returns what `loadlab report --format json` prints for it.
fn run(plan: &str, path: &std::ffi::OsString) -> Result<Value> {
    let loadlab = servers::loadlab(None)?;
    let out = servers::out().join("profiles").join(plan);
    let _ = fs::remove_dir_all(&out);
    let mut command = program(&loadlab);
    command.arg("run").arg(servers::sources().join(format!("profiles/{plan}.yaml")));
    command.args(["--quiet", "--out"]).arg(&out).env("PATH", path).stdin(Stdio::null());
    let ran = captured(&mut command, LONGEST)?;
    // Exit code 4: the generator was too slow for a moment. Only the profile counts here.
    ensure!(matches!(ran.status.code(), Some(0 | 4)), "{}\n{}{}", ran.status, ran.stdout, ran.stderr);
    let mut command = program(&loadlab);
    command.arg("report").arg(&out).args(["--format", "json"]).stdin(Stdio::null());
    let ran = captured(&mut command, LONGEST)?;
    ensure!(ran.status.success(), "{}\n{}", ran.status, ran.stderr);
    serde_json::from_str(&ran.stdout).with_context(|| ran.stdout.clone())
}
