//! The book's commands: every block fenced as `sh` is run. The blocks of a page run in order, in a separate folder that
//! contains what a reader would have by then (see [`World`]).
//!
//! The check is that commands work (options exist, files exist, plans are valid), not what this machine measures: times
//! are shortened (`short.sh`), and a verdict is not a failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::world::World;
use crate::blocks::blocks;
use crate::command::{captured, program};
use crate::root::{files, root, target};
use crate::steps::Outcome;

/// Time limit of a block; times in it are shortened.
const LONGEST: Duration = Duration::from_secs(120);

/// Runs the commands of all pages with the release build.
///
/// # Errors
/// No page has a block to run, or a block fails.
pub fn run_all() -> Outcome {
    run_with(&target().join("release/loadlab"), "")
}

/// Runs the commands of pages whose path contains `only`, with the given binary.
///
/// # Errors
/// As [`run_all`].
pub fn run_with(loadlab: &Path, only: &str) -> Outcome {
    let began = Instant::now();
    let pages: Vec<(String, String)> = pages()?.into_iter().filter(|(path, _)| path.contains(only)).collect();
    let world = World::make(loadlab)?;
    let (mut ran, mut left_out) = (0, 0);
    for (path, text) in &pages {
        let all = blocks(text);
        if all.iter().all(|b| b.not_run.is_some()) {
            left_out += all.len();
            continue;
        }
        let folder = world.folder(path)?;
        println!("{path}");
        for block in all {
            if block.not_run.is_some() {
                left_out += 1;
                continue;
            }
            run_block(&world, &folder, &block.text).with_context(|| format!("{path}:{}", block.line))?;
            ran += 1;
        }
    }
    ensure!(ran > 0, "no page of the book has a block fenced as sh to run");
    let took_s = began.elapsed().as_secs_f64();
    Ok(format!(
        "{ran} blocks of {} pages run in {took_s:.0} s, {left_out} left out with a reason",
        pages.len()
    ))
}

fn run_block(world: &World, folder: &Path, text: &str) -> Result<()> {
    let script = world.here(text);
    let mut command = program("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(folder).env("PATH", world.path()?);
    command.env("NO_COLOR", "1");
    // A page shows output to its reader; only failures matter here.
    captured(&mut command, LONGEST)?.ok(&script)?;
    Ok(())
}

/// Pages of the book with their text.
///
/// # Errors
/// The folder cannot be read.
pub fn pages() -> Result<BTreeMap<String, String>> {
    let docs = root().join("docs");
    let found = files(&docs).context("docs/")?;
    let pages = found.into_iter().filter(|path| path.ends_with(".md"));
    pages
        .map(|path| {
            let text = fs::read_to_string(PathBuf::from(&docs).join(&path)).with_context(|| path.clone())?;
            Ok((format!("docs/{path}"), text))
        })
        .collect()
}
