//! The labs end to end, as a user runs them: the plan's quick profile, from scratch to a report, then a check of
//! everything it left. The assertions here hold for every lab on any machine; assertions for a single lab are in the
//! file with its name. No figure is compared with a source document's.

mod claims;
pub mod compose;
mod edge_tiers;
pub mod faults;
pub mod figures;
mod index_page;
mod live_page;
mod message_inserts;
pub mod profiles;
mod record;
mod reports;
mod stair_stepper;
pub mod swarm;
mod tables;
mod trade_processor;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use claims::Claims;
pub use record::Record;

use crate::command::{LONGEST, captured, cargo, program, shown};
use crate::root::{self, target};
use crate::steps::Outcome;

/// What a lab's quick profile is expected to do.
#[derive(Clone, Copy)]
pub struct Lab {
    /// Name of its folder below `labs`.
    pub name: &'static str,
    /// Number of cases that its quick profile runs.
    pub cases: usize,
    /// Requests due in each case; `None` if the load ends by time.
    pub requests: Option<u64>,
    /// The largest share of requests that may fail, from 0 to 1: above zero only if limits make the system slow on
    /// purpose.
    pub failing: f64,
    /// No component is restarted between trials: only the first trial starts the system, and only the last stops it.
    pub lives_on: bool,
    /// Assertions about its record in addition to the common ones.
    own: fn(&Record, &mut Claims) -> Result<()>,
    /// Assertions about more than the record: it starts what they need.
    beside: fn(&Lab, &mut Claims) -> Result<()>,
}

/// One row for each lab.
pub const LABS: &[Lab] = &[
    Lab {
        name: "edge-tiers",
        cases: 6,
        requests: None,
        failing: 0.05,
        lives_on: false,
        own: edge_tiers::check,
        beside: nothing,
    },
    Lab {
        name: "message-inserts",
        cases: 18,
        requests: None,
        // Servers are killed on purpose: the lab itself checks which cases may fail.
        failing: 1.0,
        lives_on: false,
        own: message_inserts::check,
        beside: message_inserts::beside,
    },
    Lab {
        name: "index-page",
        cases: 6,
        requests: None,
        failing: 0.0,
        lives_on: false,
        own: index_page::check,
        beside: nothing,
    },
    Lab {
        name: "stair-stepper",
        cases: 3,
        requests: Some(stair_stepper::REQUESTS),
        failing: 0.0,
        lives_on: false,
        own: stair_stepper::check,
        beside: nothing,
    },
    Lab {
        name: "trade-processor",
        cases: 6,
        requests: None,
        // As in message-inserts.
        failing: 1.0,
        lives_on: false,
        own: trade_processor::check,
        beside: trade_processor::beside,
    },
];

/// For labs with nothing to check beside the record.
fn nothing(_: &Lab, _: &mut Claims) -> Result<()> {
    Ok(())
}

/// Runs the tests of a lab's service.
///
/// # Errors
/// The tests fail.
fn service_tests(file: &str, claims: &mut Claims) -> Result<()> {
    let mut tests = program("node");
    // The file is named: whether a folder is accepted depends on the version of Node.
    tests.args(["--test", "--test-reporter=tap", file]);
    let reported = captured(&mut tests, LONGEST)?.ok("the service's own tests")?.stdout;
    let passed = reported.lines().find_map(|line| line.strip_prefix("# pass ")?.trim().parse::<u32>().ok());
    claims.claim(passed > Some(0), || format!("{file}: none passed\n{reported}"));
    Ok(())
}

impl Lab {
    /// The lab's folder.
    pub fn dir(&self) -> PathBuf {
        root::root().join("labs").join(self.name)
    }

    /// Folder of its run's record, which stays there for inspection until the next run.
    pub fn record_dir(&self) -> PathBuf {
        target().join("xtask").join(self.name)
    }
}

/// Checks every plan of every lab with all its profiles, including plans for Docker, which nothing here runs.
///
/// # Errors
/// There is no plan, or a plan is invalid.
pub fn check_plans() -> Outcome {
    let files = root::files(&root::root().join("labs")).context("cannot read labs/")?;
    let is_plan = |f: &&String| f.ends_with("plan.yaml") && f.matches('/').count() == 1;
    let plans: Vec<_> = files.iter().filter(is_plan).map(|f| format!("labs/{f}")).collect();
    ensure!(!plans.is_empty(), "there is no labs/*/*plan.yaml");
    let mut wrong = Vec::new();
    for plan in &plans {
        let mut command = cargo(&["run", "--locked", "--release", "--quiet", "--", "check", plan]);
        if let Err(error) = captured(&mut command, LONGEST)?.ok(plan) {
            wrong.push(format!("{error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("{} plans", plans.len()))
}

/// The options of each build that a lab's plan makes of its service, so that everything is compiled before anything is
/// measured. A plan with other builds compiles them itself.
pub fn builds(lab: &str) -> Vec<Vec<&'static str>> {
    match lab {
        "stair-stepper" => stair_stepper::ALLOCATORS.map(|allocator| vec!["--features", allocator]).to_vec(),
        _ => vec![Vec::new()],
    }
}

/// Runs every lab and checks what it left.
///
/// # Errors
/// A lab has no row, a run fails, or an assertion fails.
pub fn run_all() -> Outcome {
    let folders = root::labs().context("cannot read labs/")?;
    let names: BTreeSet<_> =
        folders.iter().filter_map(|f| Some(f.file_name()?.display().to_string())).collect();
    let rows: BTreeSet<_> = LABS.iter().map(|lab| lab.name.to_owned()).collect();
    ensure!(names == rows, "labs/ holds {names:?}, and xtask's table of labs {rows:?}");
    built()?;
    // One failure does not hide the others.
    let (mut reported, mut wrong) = (Vec::new(), Vec::new());
    for lab in LABS {
        match run(lab) {
            Ok(text) => reported.push(text),
            Err(error) => wrong.push(format!("{}: {error:#}", lab.name)),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(reported.join(", "))
}

fn run(lab: &Lab) -> Outcome {
    let out = lab.record_dir();
    match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(target().join("xtask"))?,
    }
    let plan = format!("labs/{}/plan.yaml", lab.name);
    let before = left_behind(&out)?;
    // `cargo run` would set variables of its own for the builds of the plan. If these differ from those of `build of labs`,
    // crates such as ring are compiled once more, and with them the service.
    let mut command = program(loadlab());
    let ran = shown(command.args(["run", &plan, "--profile", "quick", "--out"]).arg(&out))?;
    ensure!(ran.status.success(), "loadlab run {plan}: {}", ran.status);
    let mut claims = Claims::default();
    let after = left_behind(&out)?;
    let new: Vec<_> = after.difference(&before).collect();
    claims.claim(new.is_empty(), || format!("the run left behind: {new:?}"));
    let record = Record::read(&out)?;
    record.check(lab, &mut claims)?;
    reports::check(&record, &ran.stdout, &mut claims)?;
    (lab.own)(&record, &mut claims)?;
    (lab.beside)(lab, &mut claims)?;
    claims.into_outcome(&format!("{} (record: {})", lab.name, out.display()))
}

/// Makes the release build, if it is older than its sources.
///
/// # Errors
/// The build fails.
pub fn built() -> Result<PathBuf> {
    let ran = shown(&mut cargo(&["build", "--locked", "--release", "--package", "loadlab"]))?;
    ensure!(ran.status.success(), "cargo build: {}", ran.status);
    Ok(loadlab())
}

/// Path of the release build.
pub fn loadlab() -> PathBuf {
    target().join("release/loadlab")
}

/// What `loadlab clean` would remove, and live processes of the run's system.
fn left_behind(out: &Path) -> Result<BTreeSet<String>> {
    let mut found: BTreeSet<String> = members(out)?.into_iter().collect();
    if loadlab().is_file() {
        let ran = captured(program(loadlab()).args(["clean", "--dry-run"]), Duration::from_secs(60))?;
        // Exit code 1: it found something that it could not remove. If that is new, it belongs to the run.
        let is_whole = matches!(ran.status.code(), Some(0 | 1));
        ensure!(is_whole, "loadlab clean --dry-run: {}\n{}{}", ran.status, ran.stdout, ran.stderr);
        let reported = ran.stdout.lines().chain(ran.stderr.lines());
        found.extend(
            reported.filter(|l| !l.starts_with("nothing") && !l.starts_with("error")).map(str::to_owned),
        );
    }
    Ok(found)
}

/// Processes of a run's system, except loadlab's own: the run's mark is in their environment, they are in one of its
/// cgroups, or its folder is their working directory or appears in their arguments or environment. Programs that
/// overwrite their environment with their title, like nginx, are found by the other signs. A process that has ended and
/// waits for its new parent to reap it, which is not loadlab's job, still has its cgroup's name and does not count.
fn members(out: &Path) -> Result<Vec<String>> {
    let dir = out.display().to_string();
    let name = out.file_name().context("a run has a name")?.display().to_string();
    let (mark, group) = (format!("LOADLAB_RUN={name}-"), format!("/loadlab/{name}-"));
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // A process that has ended meanwhile cannot be read.
        let of = |file: &str| {
            String::from_utf8_lossy(&fs::read(path.join(file)).unwrap_or_default()).replace('\0', " ")
        };
        let cwd = fs::read_link(path.join("cwd")).unwrap_or_default().display().to_string();
        let (words, variables) = (of("cmdline"), of("environ"));
        let is_own = variables.contains(&mark)
            || of("cgroup").contains(&group)
            || [&cwd, &words, &variables].into_iter().any(|text| text.contains(&dir));
        // After the last parenthesis: a program's name may contain anything.
        let stat = of("stat");
        let state = stat.rsplit_once(") ").map_or("gone", |(_, rest)| &rest[..rest.len().min(1)]);
        let has_ended = ["Z", "X", "gone"].contains(&state);
        if is_own && !has_ended && !words.contains("loadlab run") && !words.contains("/loadlab ") {
            found.push(format!("{} {state} {words}", path.display()));
        }
    }
    Ok(found)
}
