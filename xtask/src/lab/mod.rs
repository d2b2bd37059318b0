//! The labs end to end, as a user runs them: the plan's quick profile from nothing to a report, then a look at
//! everything it left. What is asserted holds for every lab and any machine; what is a lab's own is in a file of
//! its name. No figure is compared with a source document's.

mod claims;
mod record;
mod reports;
mod stair_stepper;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use claims::Claims;
pub use record::Record;

use crate::command::{captured, cargo, program, shown};
use crate::root::{self, target};
use crate::steps::Outcome;

/// What is known of a lab's quick profile.
pub struct Lab {
    /// Its folder's name.
    pub name: &'static str,
    /// Cases that its quick profile runs.
    pub cases: usize,
    /// Requests that fall due in each of them.
    pub requests: u64,
    /// What must hold beside what holds for all.
    own: fn(&Lab, &Record, &mut Claims) -> Result<()>,
}

/// Every lab has its row.
pub const LABS: &[Lab] =
    &[Lab { name: "stair-stepper", cases: 3, requests: 2 * 128, own: stair_stepper::check }];

impl Lab {
    /// Its folder.
    pub fn dir(&self) -> PathBuf {
        root::root().join("labs").join(self.name)
    }

    /// Where its run is recorded: it stays there to be looked at, until the next one.
    pub fn record_dir(&self) -> PathBuf {
        target().join("xtask").join(self.name)
    }
}

/// Runs every lab and looks at what it left.
///
/// # Errors
/// A lab has no row, a run fails, or something does not hold.
pub fn run_all() -> Outcome {
    let folders = root::labs().context("cannot read labs/")?;
    let names: BTreeSet<_> =
        folders.iter().filter_map(|f| Some(f.file_name()?.display().to_string())).collect();
    let rows: BTreeSet<_> = LABS.iter().map(|lab| lab.name.to_owned()).collect();
    ensure!(names == rows, "labs/ holds {names:?}, and xtask's table of labs {rows:?}");
    let found: Result<Vec<_>> = LABS.iter().map(run).collect();
    Ok(found?.join(", "))
}

fn run(lab: &Lab) -> Outcome {
    let out = lab.record_dir();
    match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(target().join("xtask"))?,
    }
    let plan = format!("labs/{}/plan.yaml", lab.name);
    let before = left_behind(lab)?;
    let mut command =
        cargo(&["run", "--locked", "--release", "--", "run", &plan, "--profile", "quick", "--out"]);
    let ran = shown(command.arg(&out))?;
    ensure!(ran.status.success(), "loadlab run {plan}: {}", ran.status);
    let mut claims = Claims::default();
    let after = left_behind(lab)?;
    let new: Vec<_> = after.difference(&before).collect();
    claims.claim(new.is_empty(), || format!("the run left behind: {new:?}"));
    let record = Record::read(&out)?;
    record.check(lab, &mut claims)?;
    reports::check(&record, &ran.stdout, &mut claims)?;
    (lab.own)(lab, &record, &mut claims)?;
    claims.into_outcome(&format!("{} (record: {})", lab.name, out.display()))
}

/// The release build.
pub fn loadlab() -> PathBuf {
    target().join("release/loadlab")
}

/// What `loadlab clean` would remove, and processes of the lab's system that are alive.
fn left_behind(lab: &Lab) -> Result<BTreeSet<String>> {
    let mut found = processes_below(&lab.dir())?;
    if loadlab().is_file() {
        let ran = captured(program(loadlab()).args(["clean", "--dry-run"]), Duration::from_secs(60))?;
        let ran = ran.ok("loadlab clean --dry-run")?;
        found.extend(ran.stdout.lines().filter(|l| l.starts_with("would remove")).map(str::to_owned));
    }
    Ok(found)
}

/// Processes whose program lies in a folder.
fn processes_below(dir: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Processes of others and those just gone cannot be read.
        if let Ok(exe) = fs::read_link(path.join("exe"))
            && exe.starts_with(dir)
        {
            found.insert(format!("{} {}", path.display(), exe.display()));
        }
    }
    Ok(found)
}
