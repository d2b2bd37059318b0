//! Planted systems: small systems of one to four tiers in five languages, each with one known weakness. `loadlab run`
//! must name it, component and kind, as the first suspect. This measures how far `bottleneck` can be trusted, so the
//! expectations describe what is planted and never what loadlab happens to report.

pub mod capacities;
pub mod levers;
pub mod profiles;
mod servers;
mod sweep;
mod systems;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::command::say;
use crate::engine::{Engine, ensure_compose};
use crate::steps::Outcome;
use sweep::{Tools, sweep};
use systems::{SYSTEMS, System};

/// Number of sweeps in `cargo xtask long`.
const SWEEPS: u32 = 5;
/// How many wrong answers a sweep may have.
const MOST_WRONG: usize = 2;

/// Options of `cargo xtask planted`.
#[derive(clap::Args)]
pub struct Args {
    /// Run only this system; may be repeated
    #[arg(long, value_name = "NAME", value_parser = known)]
    only: Vec<&'static System>,
    /// Run only the systems that `cargo xtask test` runs
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// How often all of them run
    #[arg(long, value_name = "N", default_value_t = 1)]
    sweeps: u32,
    /// Run this loadlab, instead of a release build of this repository
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

fn known(name: &str) -> Result<&'static System, String> {
    let names = || SYSTEMS.iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
    SYSTEMS.iter().find(|s| s.name == name).ok_or_else(|| format!("one of {}", names()))
}

/// Runs the systems, and prints a table for each sweep. If single systems were chosen, all answers must be right; in a
/// whole sweep, nearly all.
///
/// # Errors
/// Something is missing or does not build, too many answers are wrong, or an innocent component is named.
pub fn run(args: &Args) -> Result<ExitCode> {
    let is_whole = args.only.is_empty() && !args.quick;
    let chosen: Vec<&System> = match is_whole || args.quick {
        true => SYSTEMS.iter().filter(|s| !args.quick || s.is_quick).collect(),
        false => args.only.clone(),
    };
    let most_wrong = if is_whole { MOST_WRONG } else { 0 };
    println!("{}", sweeps(&chosen, args.sweeps, most_wrong, args.binary.as_deref())?);
    Ok(ExitCode::SUCCESS)
}

/// Builds all servers, as a step of `cargo xtask test`: the first build of a Go program compiles Go's libraries.
///
/// # Errors
/// A program is missing, or a server does not build.
pub fn build() -> Outcome {
    servers::build()?;
    servers::build_capacity()?;
    servers::build_levers()?;
    servers::build_hot()?;
    Ok("C, Go and Rust".to_owned())
}

/// Runs all systems several times, as a step of `cargo xtask long`.
///
/// # Errors
/// As for [`run`].
pub fn long() -> Outcome {
    sweeps(&SYSTEMS.iter().collect::<Vec<_>>(), SWEEPS, MOST_WRONG, None)
}

/// Runs a few systems once, as a step of `cargo xtask test`: all answers must be right.
///
/// # Errors
/// As for [`run`].
pub fn quick() -> Outcome {
    sweeps(&SYSTEMS.iter().filter(|s| s.is_quick).collect::<Vec<_>>(), 1, 0, None)
}

/// The image of two servers that the Compose files of planted systems name.
const IMAGE: &str = "planted-tiers";

/// Starts a container engine with the image. Without an engine, systems that are Compose projects are not checked,
/// which is reported and never counted as right.
fn engine() -> Result<Engine> {
    ensure_compose()?;
    let engine = Engine::start()?;
    let image = tempfile::tempdir()?;
    servers::static_servers(image.path())?;
    fs::write(image.path().join("Dockerfile"), "FROM scratch\nCOPY tier-c tier-go /bin/\n")?;
    engine.build(image.path(), IMAGE)?;
    Ok(engine)
}

fn sweeps(systems: &[&System], number: u32, most_wrong: usize, binary: Option<&std::path::Path>) -> Outcome {
    let loadlab = servers::loadlab(binary)?;
    let path = servers::build()?;
    let is_compose = systems.iter().any(|system| system.is_compose);
    let engine = is_compose.then(|| engine().map_err(|why| format!("{why:#}")));
    let tools = Tools { loadlab: &loadlab, path: &path, engine: engine.as_ref() };
    let (mut right, mut wrong, mut blamed, mut has_failed) = (Vec::new(), Vec::new(), 0, false);
    let mut not_checked = Vec::new();
    for round in 1..=number {
        say(&format!("\nsweep {round} of {number}"));
        let tally = sweep(systems, &tools)?;
        say(&format!("{} of {} right", tally.right, tally.all));
        has_failed |= tally.wrong.len() > most_wrong;
        // If single systems were requested, each must be checked.
        has_failed |= most_wrong == 0 && !tally.not_checked.is_empty();
        not_checked = tally.not_checked;
        blamed += tally.blamed;
        right.push(tally.right.to_string());
        wrong.extend(tally.wrong);
    }
    let found = format!(
        "{number} sweep{} of {} systems: {} right, an innocent component named {blamed} times",
        if number == 1 { "" } else { "s" },
        systems.len(),
        right.join(", "),
    );
    let list = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!("; {what}: {}", names.join(", ")),
    };
    let found = format!("{found}{}{}", list("wrong", &wrong), list("NOT CHECKED", &not_checked));
    ensure!(!has_failed && blamed == 0, "{found}");
    Ok(found)
}
