//! Runs the README's commands unchanged: each block fenced as `sh`, from the repository's folder, in the order of the
//! page. [`crate::book::commands`] runs the book's commands.

use std::fs;

use anyhow::{Context, ensure};

use crate::blocks::blocks;
use crate::command::{path_with, program, shown};
use crate::root::{root, target};
use crate::steps::Outcome;

/// This very command: it is already running when the README says to run it.
const THIS: &str = "cargo xtask test";

/// Runs all commands of the README.
///
/// # Errors
/// There is no README, it has no block to run, or a block fails.
pub fn run_all() -> Outcome {
    let text = fs::read_to_string(root().join("README.md")).context("README.md")?;
    // Lets the README say `loadlab`.
    let path = path_with(&[target().join("release")])?;
    let (mut ran, mut left_out) = (0, 0);
    for block in blocks(&text) {
        let lines: Vec<_> = block.text.lines().filter(|l| !l.trim_start().starts_with(THIS)).collect();
        if lines.iter().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) {
            continue;
        }
        if block.not_run.is_some() {
            left_out += 1;
            continue;
        }
        let script = lines.join("\n");
        let mut command = program("bash");
        command.args(["-euo", "pipefail", "-c", &script]).env("PATH", &path);
        // `cargo install` must not touch the user's own programs.
        command.env("CARGO_INSTALL_ROOT", target().join("xtask/installed"));
        let done = shown(&mut command)?;
        ensure!(done.status.success(), "README.md:{}: {}\n{script}", block.line, done.status);
        ran += 1;
    }
    ensure!(ran > 0, "README.md has no block fenced as sh to run");
    Ok(format!("{ran} blocks run, {left_out} left out with a reason"))
}
