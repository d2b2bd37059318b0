//! `cargo xtask bench-peers`: loadlab, other load generators and bare loops, turn by turn, each on one thread and one
//! core. What counts is the work a generator gets out of its own CPU time, beside throughput, latency, lateness and
//! memory; ratios are taken within a round, so that a machine that slows down slows all. What loadlab is held to
//! stands beside what was measured.
//!
//! A row more is a [`cases::Case`], a generator more a [`tools::Tool`] or an [`open::OpenTool`].

mod cases;
mod closed;
mod freeze;
mod journeys;
mod lateness;
pub mod measure;
mod memory;
mod network;
mod open;
mod order;
mod page;
mod parse;
pub mod server;
mod stub;
pub mod table;
mod targets;
mod tools;

pub use page::cpu_model;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::command::{cargo, find, shown};
use crate::packages::install_packages;
use crate::root::target;
use cases::{CASES, Case};
use measure::{Cores, Used, busy_share};
use open::OPEN_TOOLS;
use targets::{Check, Figure};
use tools::{TOOLS, Tool};

/// Options of `cargo xtask bench-peers`.
#[derive(clap::Args)]
pub struct Args {
    /// How long each tool runs in each round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often every tool runs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Only these tools; may be repeated
    #[arg(long, value_name = "TOOL")]
    only: Vec<String>,
    /// Only these rows; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Run this loadlab of another revision as well, in turn, and say what has become faster or slower
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Exit with 1 if a target is missed as well
    #[arg(long)]
    strict: bool,
    /// Install the tools that Debian has and this machine has not
    #[arg(long)]
    install: bool,
}

/// Tables of shorter runs, or of some tools or rows only, are not kept.
const KEPT_SECONDS: u64 = 3;
const KEPT_ROUNDS: u64 = 3;
/// A machine that is busier than this with other things is not quiet; how long it is looked at before.
const QUIET: f64 = 0.10;
const LOOK: Duration = Duration::from_secs(2);

/// What all rows share.
pub struct Bench {
    /// Who runs where.
    pub cores: Cores,
    /// A folder for files; it goes with this.
    pub scratch: PathBuf,
    /// This program is in a network of its own, and may make others.
    pub own_network: bool,
    /// How long each tool runs.
    pub seconds: u64,
    /// How often.
    pub rounds: u64,
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
        Ok(Bench { cores, scratch, own_network, seconds, rounds, only: only.clone() })
    }

    /// Whether a tool was asked for.
    fn asks(&self, tool: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == tool)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Below target/: what stays does no harm.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Runs it.
///
/// # Errors
/// loadlab cannot be built, nginx is not there, or a name is unknown. A tool's failure is reported in the table.
pub fn run(args: &Args) -> Result<ExitCode> {
    let began = Instant::now();
    known(args)?;
    if args.install {
        let packages: Vec<_> =
            TOOLS.iter().filter(|t| t.path().is_none()).filter_map(|t| t.package).collect();
        install_packages(&packages)?;
        TOOLS.iter().filter(|t| t.path().is_none()).try_for_each(Tool::get)?;
    }
    let build = ["build", "--locked", "--release", "-p", "loadlab", "-p", "loadlab-benches"];
    let ran = shown(&mut cargo(&build))?;
    ensure!(ran.status.success(), "cargo build: {}", ran.status);
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
    let tools = here(&bench);
    let found = measure_all(&bench, args, &tools)?;
    let text = found.text();
    println!("\n{text}");
    let is_whole = found.checks.iter().all(|check| check.measured.is_some());
    let is_all = args.only.is_empty() && args.case.is_empty() && args.before.is_none();
    if is_all && others <= QUIET && args.is_long() && is_whole {
        let path = page::keep(&text, &tools, (args.seconds, args.rounds), &bench.cores)?;
        println!("kept in {path}");
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

impl Args {
    fn is_long(&self) -> bool {
        self.seconds >= KEPT_SECONDS && self.rounds >= KEPT_ROUNDS
    }

    fn wants(&self, case: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|name| name == case)
    }
}

/// Names of tools and rows are known.
fn known(args: &Args) -> Result<()> {
    let tools: Vec<_> = TOOLS.iter().map(|t| t.name).chain(OPEN_TOOLS.iter().map(|t| t.name)).collect();
    let closed = CASES.iter().map(|c| c.name).chain(lateness::RATES.iter().map(|r| r.0));
    let cases: Vec<_> = closed.chain([freeze::NAME]).chain(memory::NAMES.iter().copied()).collect();
    for (names, all, what) in [(&args.only, &tools, "tool"), (&args.case, &cases, "row")] {
        for name in names {
            ensure!(
                all.contains(&name.as_str()),
                "there is no {what} `{name}`\nhint: one of {}",
                all.join(", ")
            );
        }
    }
    Ok(())
}

/// As many open files as a generator may have: 10,000 connections are more than shells give.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The tools that are here and asked for; says which are not here.
fn here(bench: &Bench) -> Vec<&'static Tool> {
    let mut tools = Vec::new();
    for tool in TOOLS.iter().filter(|t| bench.asks(t.name)) {
        match (tool.path(), tool.package) {
            (Some(_), _) => tools.push(tool),
            (None, _) if tool.is_before() => {}
            (None, Some(package)) => {
                println!("absent: {} (apt-get install {package}, or --install)", tool.name);
            }
            (None, None) => println!("absent: {} ({}, or --install)", tool.name, tool.fetch.join(" ")),
        }
    }
    for tool in OPEN_TOOLS.iter().filter(|t| bench.asks(t.name) && t.path().is_none()) {
        if TOOLS.iter().all(|t| t.name != tool.name) {
            println!("absent: {} (not in Debian)", tool.name);
        }
    }
    tools
}

/// Tables, targets, how many rows ran, and whether something failed to run.
#[derive(Default)]
struct Found {
    tables: Vec<String>,
    rows: usize,
    checks: Vec<Check>,
    failed: bool,
}

impl Found {
    fn text(&self) -> String {
        let mut all = self.tables.clone();
        all.push(targets::table(&self.checks));
        all.join("\n")
    }

    /// A table whose lines come from several rows.
    fn take(&mut self, heading: &str, rows: Vec<(String, Vec<Check>, bool)>) {
        if rows.is_empty() {
            return;
        }
        let mut table = heading.to_owned();
        for (lines, checks, failed) in rows {
            table.push_str(&lines);
            self.checks.extend(checks);
            self.failed |= failed;
            self.rows += usize::from(!failed);
        }
        self.tables.push(table);
    }
}

fn measure_all(bench: &Bench, args: &Args, tools: &[&'static Tool]) -> Result<Found> {
    let mut found = Found::default();
    let cases: Vec<&Case> = CASES.iter().filter(|c| args.wants(c.name)).collect();
    if !cases.is_empty() {
        let runs = closed::compare(bench, &cases, tools)?;
        found.failed |= runs.iter().any(|r| r.figures.is_err());
        let ran = |case: &&&Case| runs.iter().any(|r| r.case == case.name && r.figures.is_ok());
        found.rows += cases.iter().filter(ran).count();
        found.checks.extend(table::checks(&cases, |tool| bench.asks(tool), &runs));
        found.tables.push(table::table(&cases, tools, &runs));
        found.tables.extend(table::against_before(&cases, &runs));
    }
    let late = lateness::RATES.iter().filter(|(name, _)| args.wants(name));
    let late = late.map(|(_, rate)| lateness::row(bench, *rate)).collect::<Result<_>>()?;
    found.take(lateness::HEADING, late);
    if args.wants(freeze::NAME) {
        found.take("", vec![freeze::row(bench)?]);
    }
    let mut memory = Vec::new();
    if args.wants(memory::NAMES[0]) && bench.asks("loadlab") {
        memory.push(memory::few(bench)?);
    }
    if args.wants(memory::NAMES[1]) {
        memory.push(memory::many(bench, tools)?);
    }
    found.take(memory::HEADING, memory);
    Ok(found)
}

/// What one run of one tool gave.
pub struct Figures {
    /// By its own account.
    pub reported: parse::Reported,
    /// By the kernel's.
    pub used: Used,
}

impl Figures {
    fn line(&self, tool: &str) -> String {
        format!(
            "{tool}: {:.0} requests/CPU-s, {:.0}/s, p50 {}, {:.1} MB",
            Figure::PerCpu.of(self).unwrap_or(0.0),
            self.reported.rate_per_s,
            self.reported.p50,
            self.used.peak_bytes as f64 / 1e6
        )
    }
}
