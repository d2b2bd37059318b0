//! `cargo xtask long`: checks that take too long to run for every change, or depend on something that such a check must
//! not depend on, such as an external database. The results are in `docs/long.md`, with revision, machine and date.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{captured, cargo, program, shown};
use crate::licences::{CONFIG, workspaces};
use crate::peers;
use crate::planted;
use crate::root::{root, target};
use crate::steps::{Outcome, Steps};
use crate::test_programs::run_named;
use crate::{big_report, book, changes, dist, kubernetes, lab, rounds, swarm_figures};

/// The page with the results.
const PAGE: &str = "docs/long.md";
/// Markers around its table.
const BEGIN: &str = "<!-- written by cargo xtask long -->";
const END: &str = "<!-- end -->";
/// How a step reports that it could not check.
const NOT_CHECKED: &str = "NOT CHECKED";
/// Names of steps whose results are added to those of earlier calls.
const IDLE_ROUNDS: &str = "rounds on an idle machine";
const BUSY_ROUNDS: &str = "rounds beside busy loops";
/// Time limit of a command that only queries.
const QUICK: Duration = Duration::from_secs(60);
/// Time limit of cargo-deny, including the time to fetch its database.
const DENY: Duration = Duration::from_secs(600);

/// Options of `cargo xtask long`.
#[derive(clap::Args)]
pub struct Args {
    /// Only steps whose names contain this; the page keeps the rows of the others; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// How often all test programs run on an idle machine, and how often beside busy loops; the page adds them up
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: u32,
    /// How often each planted lever is checked
    #[arg(long, value_name = "N", default_value_t = 3)]
    sweeps: u32,
}

/// Runs the chosen steps.
///
/// # Errors
/// No step was chosen; the page cannot be written. Failures of steps are in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut steps = Steps::new(&args.only);
    let mut rows = Vec::new();
    let of = of_now()?;
    let (page, revision) = (fs::read_to_string(root().join(PAGE)).context(PAGE)?, revision()?);
    let rounds = |name: &str, busy_loops| {
        let earlier = rows_of(&page).find(|row| name_of(row) == Some(name)).and_then(found_in);
        rounds::run(args.rounds, busy_loops, earlier, &revision)
    };
    let idle_rounds = || rounds(IDLE_ROUNDS, 0);
    let busy_rounds = || rounds(BUSY_ROUNDS, rounds::BUSY_LOOPS);
    let levers = || planted::levers::long(args.sweeps);
    let all: [(&str, &dyn Fn() -> Outcome); 24] = [
        ("licences", &licences),
        ("advisories", &advisories),
        ("dist", &dist::check::long),
        ("source build", &source_build),
        ("book", &book),
        ("report", &big_report::long),
        ("planted bottlenecks", &planted::long),
        ("planted capacities", &planted::capacities::long),
        ("planted levers", &levers),
        ("planted levers that do not bind", &planted::levers::idle),
        ("planted hot functions", &planted::profiles::long),
        ("labs' faults", &lab::faults::long),
        ("labs, each form", &lab::profiles::long),
        ("labs in Compose", &lab::compose::long),
        ("swarm", &swarm_figures::long),
        ("agents of a lab", &lab::swarm::long),
        ("hour", &swarm_figures::hour),
        ("faults of a swarm", &faults),
        ("kubernetes", &kubernetes::long),
        ("simulated changes", &changes::simulated),
        ("equal servers", &changes::equal),
        ("bisect", &changes::searched),
        (IDLE_ROUNDS, &idle_rounds),
        (BUSY_ROUNDS, &busy_rounds),
    ];
    for (name, work) in all {
        steps.step(name, || {
            let began = Instant::now();
            let outcome = work();
            let found = match &outcome {
                Ok(found) => found.clone(),
                // Only the first line: the others may contain paths of this machine.
                Err(error) => format!("FAILED: {}", error.to_string().lines().next().unwrap_or_default()),
            };
            rows.push((name, format!("| {name} | {found} | {:.0} s |", began.elapsed().as_secs_f64())));
            outcome
        });
    }
    write_page(&rows, &of)?;
    steps.finish()
}

/// Faults in a swarm, at moments that differ from round to round: in agents, the coordinator, the NATS server, networks
/// and disks. Each test plants one fault, and checks that the server's own count and the record agree.
fn faults() -> Outcome {
    const TESTS: [&str; 12] = [
        "run_swarm::a_lost_agent_fails_the_trial",
        "run_swarm::a_nats_server_that_is_killed_and_started_again",
        "run_swarm::the_others_go_on_without_a_lost_agent",
        "run_swarm::another_agent_takes_the_place_of_a_lost_one",
        "run_swarm::agents_that_come_back_are_counted",
        "run_swarm::an_agent_whose_disk_is_full",
        "run_swarm::a_coordinator_that_was_killed_is_resumed",
        "run_resume::a_run_that_was_killed_goes_on",
        "run_swarm::a_stalled_nats_server_loses_no_agent_and_no_request",
        "run_swarm::an_agent_takes_the_place_that_it_lost",
        "run_swarm_outages::a_report_that_the_server_lost_is_sent_again",
        "run_swarm_outages::an_agent_that_was_given_up_stops",
    ];
    const ROUNDS: usize = 7;
    let mut failed = Vec::new();
    for round in 1..=ROUNDS {
        let ran = run_named(&TESTS, &[("LOADLAB_TEST_FAULTS", &round.to_string())])?;
        let passed = TESTS.iter().filter(|test| ran.stdout.contains(&format!("test {test} ... ok"))).count();
        if passed < TESTS.len() {
            failed.push(format!("round {round}: {passed} of {} passed", TESTS.len()));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(format!("{} faults at separate moments: every request accounted for", ROUNDS * TESTS.len()))
}

/// The age of the page's figures, as a step of `cargo xtask test`: it reports the age and does not judge it.
///
/// # Errors
/// The page cannot be read, or names no revision.
pub fn age() -> Outcome {
    let page = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
    let of = |row: &str| -> Option<String> {
        let name = name_of(row)?;
        let revision = row.split_once("revision ")?.1.split([',', ' ']).next()?;
        let mut command = program("git");
        let ran = captured(command.args(["rev-list", "--count", &format!("{revision}..HEAD")]), QUICK);
        Some(match ran.ok().filter(|ran| ran.status.success()) {
            Some(ran) => format!("{name}: {} commits ago", ran.stdout.trim()),
            None => format!("{name}: of {revision}, which this checkout does not have"),
        })
    };
    let ages: Vec<String> = rows_of(&page).filter_map(of).collect();
    ensure!(!ages.is_empty(), "{PAGE} names no revision");
    Ok(ages.join("; "))
}

/// Rows of the page's table of results.
fn rows_of(page: &str) -> impl Iterator<Item = &str> {
    let table =
        page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(table, _)| table);
    table.lines().filter(|line| line.starts_with("| ")).skip(1)
}

/// The step that a row belongs to.
fn name_of(row: &str) -> Option<&str> {
    row.strip_prefix("| ")?.split(" |").next()
}

/// What a row reports.
fn found_in(row: &str) -> Option<&str> {
    row.split(" | ").nth(1)
}

/// Measures how long it takes to build the program from a clone, as the README describes.
fn source_build() -> Outcome {
    let dir = target().join("xtask/source-build");
    let _ = fs::remove_dir_all(&dir);
    let began = Instant::now();
    let mut command = cargo(&["build", "--locked", "--release"]);
    let ran = shown(command.env("CARGO_TARGET_DIR", &dir))?;
    let took = began.elapsed();
    ensure!(ran.status.success(), "cargo build: {}", ran.status);
    fs::remove_dir_all(&dir)?;
    Ok(format!("`cargo build --release` from nothing, crates downloaded before: {} s", took.as_secs()))
}

/// Builds the book as a site.
fn book() -> Outcome {
    let site = book::site(&tool("mdbook")?)?;
    println!("the book: {}", site.index.display());
    Ok(format!("{} pages", site.pages))
}

/// Checks licence texts, sources, and crates in two versions, in all workspaces.
fn licences() -> Outcome {
    let deny = tool("cargo-deny")?;
    let workspaces = workspaces()?;
    for manifest in &workspaces {
        let ran = shown(&mut check_with(&deny, manifest, &["licenses", "bans", "sources"]))?;
        ensure!(ran.status.success(), "cargo deny of {manifest}: {}", ran.status);
    }
    Ok(format!("{} workspaces: licences, sources and duplicates", workspaces.len()))
}

/// Checks for known vulnerabilities, if the database is available.
fn advisories() -> Outcome {
    let deny = tool("cargo-deny")?;
    let workspaces = workspaces()?;
    for manifest in &workspaces {
        let ran = captured(&mut check_with(&deny, manifest, &["advisories"]), DENY)?;
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

/// Whether cargo-deny failed only because its database was unavailable.
fn is_out_of_reach(said: &str) -> bool {
    let has_found = said.contains("error[");
    !has_found && said.contains("failed to fetch advisory database")
}

fn check_with(deny: &Path, manifest: &str, checks: &[&str]) -> Command {
    let mut command = program(deny);
    command.args(["--manifest-path", manifest, "--locked", "--config"]);
    command.arg(root().join(CONFIG)).arg("check").args(checks);
    command
}

/// The installed program; if there is none, installs it below `target/`.
fn tool(name: &str) -> Result<PathBuf> {
    if let Some(found) = crate::command::find(name) {
        return Ok(found);
    }
    let root = target().join("xtask").join(name);
    let own = root.join("bin").join(name);
    if !own.is_file() {
        let mut command = cargo(&["install", "--locked", name, "--root"]);
        let ran = shown(command.arg(&root))?;
        ensure!(ran.status.success(), "cargo install {name}: {}", ran.status);
    }
    Ok(own)
}

/// Date, revision and machine, taken before anything is built.
fn of_now() -> Result<String> {
    Ok(format!(
        "{}, revision {}, {} with {} cores, {}",
        line("date", &["-u", "+%Y-%m-%d"])?,
        revision()?,
        peers::cpu_model(),
        std::thread::available_parallelism().map_or(1, usize::from),
        line("uname", &["-sr"])?
    ))
}

/// The present revision.
fn revision() -> Result<String> {
    // Ignore this page: an earlier step may have written it.
    let changed = line("git", &["status", "--porcelain", "--", ":/", &format!(":!{PAGE}")])?;
    let revision = line("git", &["rev-parse", "--short=12", "HEAD"])?;
    Ok(if changed.is_empty() { revision } else { format!("{revision} with uncommitted changes") })
}

/// What a command that only queries prints.
fn line(name: &str, args: &[&str]) -> Result<String> {
    Ok(captured(program(name).args(args), QUICK)?.ok(name)?.stdout.trim().to_owned())
}

/// Writes these rows to the page, and keeps the rows of other steps.
fn write_page(rows: &[(&str, String)], of: &str) -> Result<()> {
    let page = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
    let new: Vec<(&str, String)> = rows.iter().map(|(name, row)| (*name, format!("{row} {of} |"))).collect();
    peers::write_between(PAGE, (BEGIN, END), &format!("\n{}\n", table(&page, &new)))
}

/// The page's table, with these rows in place of older rows of the same steps.
fn table(page: &str, new: &[(&str, String)]) -> String {
    let is_new = |row: &&str| new.iter().any(|(name, _)| Some(*name) == name_of(row));
    let mut made = "| step | found | took | of |\n|---|---|---|---|\n".to_owned();
    let kept = rows_of(page).filter(|row| !is_new(row));
    kept.chain(new.iter().map(|(_, row)| row.as_str())).for_each(|row| made.push_str(&format!("{row}\n")));
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_did_not_run_keep_their_rows() {
        let page = format!(
            "| step |\n{BEGIN}\n\n| step | found |\n|---|---|\n| a | 1 | x |\n| b | 2 | y |\n\n{END}\n| c |\n"
        );
        let made = table(&page, &[("b", "| b | 3 | z |".to_owned())]);
        let rows: Vec<&str> = made.lines().skip(2).collect();
        assert_eq!(rows, ["| a | 1 | x |", "| b | 3 | z |"]);
        assert_eq!((name_of(rows[1]), found_in(rows[1])), (Some("b"), Some("3")));
    }

    #[test]
    fn failed_fetches_are_distinguished_from_findings() {
        let fetch = "[ERROR] failed to fetch advisory database https://github.com/rustsec/advisory-db";
        assert!(is_out_of_reach(fetch));
        assert!(!is_out_of_reach("error[vulnerability]: use after free\nadvisories FAILED"));
        assert!(!is_out_of_reach(&format!("{fetch}\nerror[vulnerability]: use after free")));
        assert!(!is_out_of_reach("error: failed to parse the configuration"));
    }
}
