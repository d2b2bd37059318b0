//! Checks that the output of `cargo xtask dist` works for users: the program alone, the package in a separate root, the
//! image in a separate engine, the action as a runner runs it. The machine is left unchanged.

mod action;
mod api;
mod container;
mod empty_root;
mod first_request;
mod foreign;
mod package;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Arch, Release, elf};
use crate::command::{captured, program};
use crate::peers::measure::Cores;
use crate::peers::server::Server;
use crate::root::target;
use crate::steps::{Outcome, Steps};

/// Requests in one check: enough to see that it works, few enough for an unoptimised program.
const REQUESTS: u64 = 200;

/// Builds the program for this machine with the dev profile: optimising takes minutes.
///
/// # Errors
/// The program cannot be built or packed.
pub fn build(install: bool) -> Outcome {
    let made = super::make(&[Arch::of_this_machine()?], "dev", &dir(), install)?;
    Ok(made.iter().map(|release| release.archive.display().to_string()).collect::<Vec<_>>().join(", "))
}

/// Adds the steps of `cargo xtask test` that check what [`build`] made.
pub fn steps(steps: &mut Steps) {
    let release = || Arch::of_this_machine().map(|arch| Release::of(&dir(), arch));
    steps.step("dist: program alone", || empty_root::check(&release()?));
    steps.step("dist: Debian package", || package::check(&release()?));
    steps.step("dist: container image", || container::check(&release()?));
    steps.step("dist: CI action", || action::check(&release()?));
}

/// Makes and checks everything that is published, in its final form, for all architectures.
///
/// # Errors
/// Something cannot be made, is too large, or does not work.
pub fn long() -> Outcome {
    let made = super::make(&Arch::ALL, super::PROFILE, &target().join("dist"), true)?;
    let mut found = Vec::new();
    for release in &made {
        elf::ensure_static(&release.program(), release.arch)?;
        let (bytes, name) = (release.program().metadata()?.len(), release.arch.name());
        ensure!(bytes <= super::LARGEST_BYTES, "{name}: {:.1} MB", bytes as f64 / 1e6);
        found.push(format!("{name}: {:.1} MB", bytes as f64 / 1e6));
        if Arch::of_this_machine()? == release.arch {
            found.push(empty_root::check(release)?);
            found.push(package::check(release)?);
            found.push(container::check(release)?);
            found.push(action::check(release)?);
            found.push(first_request::check(&release.program())?);
        } else {
            found.push(foreign::check(release)?);
        }
    }
    Ok(found.join("; "))
}

/// Folder of the release that the tests make: `target/dist` is left to the user.
fn dir() -> PathBuf {
    target().join("xtask/dist")
}

/// Starts nginx with its files in a folder.
fn server(dir: &Path) -> Result<Server> {
    Server::start(&Cores::choose()?, dir)
}

/// Runs a bench that prints JSON, and ensures that all its requests were answered.
fn answers_all(command: &mut Command) -> Result<()> {
    let ran = captured(command, super::QUICK)?.ok("bench")?;
    let summary: Value = serde_json::from_str(&ran.stdout).context("`bench --json` prints JSON")?;
    let ok = summary["requests"]["ok"].as_u64();
    ensure!(ok == Some(REQUESTS), "{ok:?} of {REQUESTS} requests were ok: {}{}", ran.stdout, ran.stderr);
    Ok(())
}

/// The arguments of such a bench.
fn bench_args(url: &str) -> Vec<String> {
    let requests = REQUESTS.to_string();
    ["bench", url, "-n", &requests, "-c", "4", "--json", "--insecure"].map(str::to_owned).to_vec()
}

/// A program run as root: directly if the caller is root, otherwise as root of a user namespace.
fn as_root(name: &str) -> Command {
    if rustix::process::geteuid().is_root() {
        return program(name);
    }
    let mut command = program("unshare");
    command.args(["--map-root-user", name]);
    command
}
