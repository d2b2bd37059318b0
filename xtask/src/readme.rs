//! The README's commands, run as they stand: each block fenced as `sh`, from the repository's folder. A block
//! after a line `<!-- not run -->` (a reason may follow after a colon) is left out.

use std::ffi::OsString;
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::command::{program, shown};
use crate::root::{root, target};
use crate::steps::Outcome;

/// This very command: where the README tells to run it, it is running.
const THIS: &str = "cargo xtask test";

/// Runs them all.
///
/// # Errors
/// There is no README, no block to run in it, or a block fails.
pub fn run_all() -> Outcome {
    let text = fs::read_to_string(root().join("README.md")).context("README.md")?;
    let blocks = blocks(&text);
    let mut ran = 0;
    for block in &blocks {
        let lines: Vec<_> = block.text.lines().filter(|l| !l.trim_start().starts_with(THIS)).collect();
        if lines.iter().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) {
            continue;
        }
        let script = lines.join("\n");
        let mut command = program("bash");
        command.args(["-euo", "pipefail", "-c", &script]).env("PATH", path()?);
        // `cargo install` must leave the user's own programs alone.
        command.env("CARGO_INSTALL_ROOT", target().join("xtask/installed"));
        let done = shown(&mut command)?;
        ensure!(done.status.success(), "README.md:{}: {}\n{script}", block.line, done.status);
        ran += 1;
    }
    ensure!(ran > 0, "README.md has no block fenced as sh to run");
    Ok(format!("{ran} of {} blocks run, {} left out by a remark", blocks.len(), left_out(&text)))
}

/// With the release build in front, so that the README may say `loadlab`.
fn path() -> Result<OsString> {
    let old = env::var_os("PATH").unwrap_or_default();
    let own = target().join("release");
    Ok(env::join_paths(std::iter::once(own).chain(env::split_paths(&old)))?)
}

/// A fenced block.
#[derive(Debug, PartialEq)]
struct Block {
    /// The line of its fence, from 1.
    line: usize,
    text: String,
}

const REMARK: &str = "<!-- not run";

fn left_out(text: &str) -> usize {
    text.lines().filter(|l| l.trim_start().starts_with(REMARK)).count()
}

/// The blocks to run.
fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let Some(kind) = line.trim_start().strip_prefix("```") else {
            before = if line.trim().is_empty() { before } else { line };
            continue;
        };
        let body: Vec<_> =
            lines.by_ref().map(|(_, l)| l).take_while(|l| !l.trim_start().starts_with("```")).collect();
        if kind.trim() == "sh" && !before.trim_start().starts_with(REMARK) {
            found.push(Block { line: i + 1, text: body.join("\n") });
        }
        before = line;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_commands_are_found_and_remarks_heeded() {
        let text = "# A\n\n```sh\necho 1\necho 2\n```\n\n```yaml\na: 1\n```\n\n<!-- not run: an hour -->\n\n\
            ```sh\nsleep 3600\n```\ntext\n```sh\necho 3\n```\n";
        let expect =
            [Block { line: 3, text: "echo 1\necho 2".into() }, Block { line: 18, text: "echo 3".into() }];
        assert_eq!(blocks(text), expect);
        assert_eq!(left_out(text), 1);
    }
}
