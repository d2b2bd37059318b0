//! `cargo xtask long`: what takes too long for every change, or needs what a check of every change may not count on, such
//! as a database of elsewhere. What came of it stands in `docs/long.md`, with revision, machine and date.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{captured, cargo, program, shown};
use crate::licences::{CONFIG, in_repository, workspaces};
use crate::peers;
use crate::root::target;
use crate::steps::{Outcome, Steps};

/// Where it is written down.
const PAGE: &str = "docs/long.md";
/// Its table stands between these.
const BEGIN: &str = "<!-- written by cargo xtask long -->";
const END: &str = "<!-- end -->";
/// How a step says that it could not look.
const NOT_CHECKED: &str = "NOT CHECKED";
/// A command that only asks takes no longer.
const QUICK: Duration = Duration::from_secs(60);
/// Nor does cargo-deny, with the time to fetch its database.
const DENY: Duration = Duration::from_secs(600);

/// Options of `cargo xtask long`.
#[derive(clap::Args)]
pub struct Args {
    /// Only steps whose names contain this, and nothing is written down; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
}

/// Runs all of it.
///
/// # Errors
/// No step was chosen; the page cannot be written. Failures of steps are in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut steps = Steps::new(&args.only);
    let mut rows = Vec::new();
    for (name, work) in [("licences", licences as fn() -> Outcome), ("advisories", advisories)] {
        steps.step(name, || {
            let began = Instant::now();
            let outcome = work();
            let found = match &outcome {
                Ok(found) => found.clone(),
                // Its first line: the others may name paths of this machine.
                Err(error) => format!("FAILED: {}", error.to_string().lines().next().unwrap_or_default()),
            };
            rows.push(format!("| {name} | {found} | {:.0} s |", began.elapsed().as_secs_f64()));
            outcome
        });
    }
    if args.only.is_empty() {
        write_page(&rows)?;
    }
    steps.finish()
}

/// Licences by their texts, sources, and crates in two versions, of all workspaces.
fn licences() -> Outcome {
    let deny = cargo_deny()?;
    let workspaces = workspaces()?;
    for manifest in &workspaces {
        let ran = shown(&mut deny.command(manifest, &["licenses", "bans", "sources"]))?;
        ensure!(ran.status.success(), "cargo deny of {manifest}: {}", ran.status);
    }
    Ok(format!("{} workspaces: licences, sources and duplicates", workspaces.len()))
}

/// Known vulnerabilities, where the database can be had.
fn advisories() -> Outcome {
    let deny = cargo_deny()?;
    let workspaces = workspaces()?;
    for manifest in &workspaces {
        let ran = captured(&mut deny.command(manifest, &["advisories"]), DENY)?;
        if ran.status.success() {
            continue;
        }
        let said = format!("{}{}", ran.stdout, ran.stderr);
        println!("{said}");
        if is_out_of_reach(&said) {
            println!("\n{NOT_CHECKED}: advisories. Their database cannot be fetched from here.");
            return Ok(format!("**{NOT_CHECKED}**: the database could not be fetched"));
        }
        bail!("cargo deny of {manifest}: {}", ran.status);
    }
    Ok(format!("{} workspaces: no advisory", workspaces.len()))
}

/// Whether cargo-deny failed for want of its database, and for nothing that it found.
fn is_out_of_reach(said: &str) -> bool {
    let has_found = said.contains("error[");
    !has_found && said.contains("failed to fetch advisory database")
}

/// cargo-deny, wherever it is.
struct CargoDeny(PathBuf);

impl CargoDeny {
    fn command(&self, manifest: &str, checks: &[&str]) -> std::process::Command {
        let mut command = program(&self.0);
        command.args(["--manifest-path", manifest, "--locked", "--config"]);
        command.arg(in_repository(CONFIG)).arg("check").args(checks);
        command
    }
}

/// The one that is installed, or one that is installed below `target/` now.
fn cargo_deny() -> Result<CargoDeny> {
    if let Some(found) = crate::command::find("cargo-deny") {
        return Ok(CargoDeny(found));
    }
    let root = target().join("xtask/cargo-deny");
    let own = root.join("bin/cargo-deny");
    if !own.is_file() {
        let mut command = cargo(&["install", "--locked", "cargo-deny", "--root"]);
        let ran = shown(command.arg(&root))?;
        ensure!(ran.status.success(), "cargo install cargo-deny: {}", ran.status);
    }
    Ok(CargoDeny(own))
}

fn write_page(rows: &[String]) -> Result<()> {
    let line = |name: &str, args: &[&str]| -> Result<String> {
        Ok(captured(program(name).args(args), QUICK)?.ok(name)?.stdout.trim().to_owned())
    };
    let mut made = format!(
        "Of {}, revision {}, on {} with {} cores, {}.\n\n",
        line("date", &["-u", "+%Y-%m-%d"])?,
        line("git", &["rev-parse", "--short=12", "HEAD"])?,
        peers::cpu_model(),
        std::thread::available_parallelism().map_or(1, usize::from),
        line("uname", &["-sr"])?
    );
    writeln!(made, "| step | found | took |\n|---|---|---|\n{}", rows.join("\n"))?;
    let path = in_repository(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    fs::write(&path, replaced(&page, &made)?).context(PAGE)
}

/// A page with other text between its marks.
fn replaced(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no `{BEGIN}`"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_fetched_is_told_from_what_was_found() {
        let fetch = "[ERROR] failed to fetch advisory database https://github.com/rustsec/advisory-db";
        assert!(is_out_of_reach(fetch));
        assert!(!is_out_of_reach("error[vulnerability]: use after free\nadvisories FAILED"));
        assert!(!is_out_of_reach(&format!("{fetch}\nerror[vulnerability]: use after free")));
        assert!(!is_out_of_reach("error: failed to parse the configuration"));
    }

    #[test]
    fn the_page_keeps_what_stands_around_the_table() {
        let page = format!("# Long\n\n{BEGIN}\nold\n{END}\n\nEnd.\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), format!("# Long\n\n{BEGIN}\n\nnew\n\n{END}\n\nEnd.\n"));
        assert!(replaced("# Long\n", "new").is_err());
    }
}
