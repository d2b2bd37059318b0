//! `cargo xtask bench-peers`: loadlab, other load generators and bare loops, in turn, each on one thread and one core.
//! The main figure is the work a generator gets out of its own CPU time; the others are throughput, latency, lateness
//! and memory. Ratios are taken within a round, so that a machine that slows down affects all tools. The server counts
//! the work, so that no tool's output has to be parsed for it. loadlab's targets are listed beside the measurements.
//!
//! To add a row, add a [`cases::Case`]; to add a generator, a [`tools::Tool`].

mod cases;
mod closed;
pub mod measure;
pub mod network;
mod open;
mod page;
pub mod server;
pub mod stub;
pub mod table;
mod tools;

pub use page::{cpu_model, write_between};

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::builder::PossibleValuesParser;

use crate::command::{cargo, find, shown};
use crate::root::target;
use cases::{CASES, Case};
use measure::{Cores, busy_share};
use table::{Check, Columns, REFERENCE, Run, checks_table, table};
use tools::{TOOLS, Tool};

/// Options of `cargo xtask bench-peers`.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds that each tool runs in each round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Number of rounds; every tool runs once in each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Only these tools; may be repeated
    #[arg(long, value_name = "TOOL", value_parser = tool_names())]
    only: Vec<String>,
    /// Only these rows; may be repeated
    #[arg(long, value_name = "NAME", value_parser = row_names())]
    case: Vec<String>,
    /// Also run this loadlab, of another revision, in turn, and report what has become faster or slower
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Also exit with 1 if a target is missed
    #[arg(long)]
    strict: bool,
    /// Install tools that Debian has and that are missing here
    #[arg(long)]
    install: bool,
}

/// The least seconds and rounds of a run whose tables are kept. Tables of only some tools or rows are never kept.
const KEPT_SECONDS: u64 = 3;
const KEPT_ROUNDS: u64 = 3;
/// The largest share of busy cores that counts as a quiet machine, and how long it is measured before the runs.
const QUIET: f64 = 0.10;
const LOOK: Duration = Duration::from_secs(2);

/// What all rows share.
pub struct Bench {
    /// Cores of the server and of the generator.
    pub cores: Cores,
    /// A folder for files; dropping this removes it.
    pub scratch: PathBuf,
    /// Whether this program is in its own network namespace, and may create others.
    pub own_network: bool,
    /// Seconds that each tool runs.
    pub seconds: u64,
    /// Number of rounds.
    pub rounds: u64,
    /// Available tools that were requested.
    pub tools: Vec<&'static Tool>,
    only: Vec<String>,
}

impl Bench {
    fn new(args: &Args) -> Result<Bench> {
        let scratch = target().join(format!("xtask/peers-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let own_network = match network::fresh()? {
            Ok(()) => true,
            Err(why) => {
                println!("{why}: connections share ports and firewall with the rest of this machine");
                false
            }
        };
        let cores = Cores::choose()?;
        let Args { seconds, rounds, ref only, .. } = *args;
        let mut bench =
            Bench { cores, scratch, own_network, seconds, rounds, tools: Vec::new(), only: only.clone() };
        let (here, absent): (Vec<_>, Vec<_>) =
            TOOLS.iter().filter(|t| bench.asks(t.name)).partition(|t| t.is_here());
        for tool in absent.iter().filter(|t| !t.get.is_empty()) {
            println!("absent: {} ({}, or --install)", tool.name, tool.get);
        }
        bench.tools = here;
        Ok(bench)
    }

    /// Whether a tool was requested.
    fn asks(&self, tool: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == tool)
    }

    /// Runs the tools of a row in turn, and prints each one's results. The order rotates by one after each round.
    fn take_turns(
        &self,
        title: &str,
        tools: &[&'static Tool],
        rounds: u64,
        columns: Columns,
        runs: &mut Vec<Run>,
        mut one: impl FnMut(&Tool) -> Result<Vec<Option<f64>>>,
    ) {
        for round in 0..rounds {
            for turn in 0..tools.len() {
                let tool = tools[(turn + round as usize) % tools.len()];
                let figures = one(tool);
                let shown = match &figures {
                    Ok(figures) => {
                        let all = columns.iter().zip(figures);
                        let shown =
                            all.map(|((heading, unit), value)| format!("{heading} {}", unit.text(*value)));
                        shown.collect::<Vec<_>>().join(", ")
                    }
                    Err(error) => format!("{error:#}"),
                };
                println!("{title}, round {}: {}: {shown}", round + 1, tool.name);
                runs.push(Run { title: title.to_owned(), tool: tool.name, round, figures });
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Best effort: leftovers below target/ do no harm.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Runs `cargo xtask bench-peers`.
///
/// # Errors
/// loadlab cannot be built, or nginx is missing. A tool's failure is reported in the table.
pub fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    if args.install {
        tools::install()?;
    }
    let build = ["build", "--locked", "--release", "-p", "loadlab", "-p", "loadlab-benches"];
    shown(&mut cargo(&build))?.ok("cargo build")?;
    ensure!(find("nginx").is_some(), "nginx is not installed\nhint: apt-get install nginx-light");
    tools::take_before(args.before.as_deref())?;
    raise_file_limit();
    let others = busy_share(LOOK)?;
    if others > QUIET {
        println!("this machine is {:.0} % busy with other things: figures are noise", others * 100.0);
    }
    let bench = Bench::new(args)?;
    if let Some(remark) = bench.cores.remark() {
        println!("{remark}");
    }
    let found = measure_all(&bench, args)?;
    let text = [&found.tables[..], &[checks_table(&found.checks)]].concat().join("\n");
    println!("\n{text}");
    let is_whole = found.checks.iter().all(|check| check.measured.is_some());
    let is_all = args.only.is_empty() && args.case.is_empty() && args.before.is_none();
    let is_long = args.seconds >= KEPT_SECONDS && args.rounds >= KEPT_ROUNDS;
    if is_all && others <= QUIET && is_long && is_whole {
        println!("kept in {}", page::keep(&text, &bench)?);
    } else {
        println!(
            "not kept in {}: that takes all tools and rows, something measured for each target, {KEPT_SECONDS} s, {KEPT_ROUNDS} rounds and a quiet machine",
            page::PAGE
        );
    }
    let missed = found.checks.iter().filter(|c| !c.reached).count();
    println!(
        "{} rows ran; {} targets, {missed} missed; {} in {:.0} s",
        found.rows,
        found.checks.len(),
        if found.failed { "something FAILED to run" } else { "all ran" },
        began.elapsed().as_secs_f64()
    );
    let bad = found.failed || (args.strict && missed > 0);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tool_names() -> PossibleValuesParser {
    TOOLS.iter().map(|t| t.name).collect::<Vec<_>>().into()
}

fn row_names() -> PossibleValuesParser {
    let open = open::RATES.iter().map(|r| r.0).chain([open::FREEZE]);
    let mut names: Vec<_> = CASES.iter().map(|c| c.name).chain(open).collect();
    names.dedup();
    names.into()
}

/// Raises the limit on open files for the generators: 10,000 connections are more than shells allow.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Tables, targets with their measurements, how many rows ran, and whether any of them failed to run.
#[derive(Default)]
struct Found {
    tables: Vec<String>,
    checks: Vec<Check>,
    rows: usize,
    failed: bool,
}

impl Found {
    /// Adds the runs of some rows, and their table.
    fn take(&mut self, first: &str, columns: Columns, reference: Option<&str>, runs: &[Run]) {
        let mut rows: Vec<_> = runs.iter().filter(|r| r.figures.is_ok()).map(|r| &r.title).collect();
        rows.sort_unstable();
        rows.dedup();
        self.rows += rows.len();
        self.failed |= runs.iter().any(|r| r.figures.is_err());
        if !runs.is_empty() {
            self.tables.push(table(first, columns, reference, runs));
        }
    }
}

fn measure_all(bench: &Bench, args: &Args) -> Result<Found> {
    let wants = |name: &str| args.case.is_empty() || args.case.iter().any(|case| case == name);
    let mut found = Found::default();
    let cases: Vec<&Case> = CASES.iter().filter(|c| wants(c.name)).collect();
    let runs = closed::rows(bench, &cases)?;
    found.take("case", closed::COLUMNS, Some(REFERENCE), &runs);
    found.tables.extend(closed::against_before(&runs));
    found.checks = closed::checks(bench, &cases, &runs);
    let mut late = Vec::new();
    for (_, rate) in open::RATES.iter().filter(|(name, _)| wants(name)) {
        let (runs, checks) = open::late(bench, *rate)?;
        late.extend(runs);
        found.checks.extend(checks);
    }
    found.take("open model", open::LATE, None, &late);
    if wants(open::FREEZE) && bench.asks("loadlab") {
        let (runs, checks) = open::freeze(bench);
        found.take("open model", open::FROZEN, None, &runs);
        found.checks.extend(checks);
    }
    Ok(found)
}
