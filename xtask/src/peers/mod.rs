//! `cargo xtask bench-peers`: loadlab and other load generators against one nginx, turn by turn, each on one
//! thread and one core. What counts is the work a generator gets out of its own CPU time, beside throughput,
//! median latency and memory; ratios are taken within a round, so that a machine that slows down slows all.
//!
//! A row more is a [`Case`] in [`CASES`] or a [`tools::Tool`] in [`tools::TOOLS`].

mod measure;
mod parse;
mod server;
mod table;
mod tools;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, find, shown};
use crate::packages::install_packages;
use measure::{Cores, Used, busy_share, measure};
use server::Server;
use table::Run;
use tools::{TOOLS, Tool};

/// Options of `cargo xtask bench-peers`.
#[derive(clap::Args)]
pub struct Args {
    /// How long each tool runs in each round
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How often every tool runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Only these tools (loadlab and wrk always run); may be repeated
    #[arg(long, value_name = "TOOL")]
    only: Vec<String>,
    /// Instead: loadlab's peak memory at 50 connections in runs of 5 s and 30 s, which must be the same
    #[arg(long)]
    memory: bool,
    /// Install the tools that Debian has and this machine has not
    #[arg(long)]
    install: bool,
}

/// What all tools are asked to do.
pub struct Case {
    /// For the table.
    pub name: &'static str,
    /// Path on the server.
    pub path: &'static str,
    /// Connections, each kept alive and used again as soon as it is answered.
    pub connections: u64,
}

/// The rows of the comparison.
pub const CASES: &[Case] = &[
    Case { name: "GET 128 B, 50 connections", path: "/128", connections: 50 },
    Case { name: "GET 128 B, 200 connections", path: "/128", connections: 200 },
];

/// Tables of shorter runs, or of some tools only, are not kept.
const KEPT_SECONDS: u64 = 5;
const KEPT_ROUNDS: u64 = 3;
/// A machine that is busier than this with other things is not quiet; how long it is looked at before.
const QUIET: f64 = 0.10;
const LOOK: Duration = Duration::from_secs(2);
/// Runs whose peaks are compared by `--memory`.
const MEMORY_SECONDS: [u64; 2] = [5, 30];
/// A peak that is larger by more than this has grown: a share, and pages that come and go.
const GROWTH_SHARE: f64 = 0.03;
const GROWTH_BYTES: f64 = 256.0 * 1024.0;

/// Runs it.
///
/// # Errors
/// loadlab cannot be built, or nginx or wrk is not there. A tool's failure is told in the table.
pub fn run(args: &Args) -> Result<ExitCode> {
    let absent: Vec<_> = TOOLS.iter().filter(|t| t.path().is_none() && t.name != "loadlab").collect();
    if args.install {
        let packages: Vec<_> = absent.iter().filter_map(|t| t.package).collect();
        install_packages(&packages)?;
    }
    let ran = shown(&mut cargo(&["build", "--locked", "--release"]))?;
    ensure!(ran.status.success(), "cargo build: {}", ran.status);
    ensure!(find("nginx").is_some(), "nginx is not installed\nhint: apt-get install nginx-light");
    let cores = Cores::choose()?;
    if let Some(remark) = cores.remark() {
        println!("{remark}");
    }
    let others = busy_share(LOOK)?;
    if others > QUIET {
        println!("this machine is {:.0} % busy with other things: figures are noise", others * 100.0);
    }
    let server = Server::start(&cores)?;
    if args.memory { memory(&server, &cores) } else { compare(args, others <= QUIET, &server, &cores) }
}

fn compare(args: &Args, quiet: bool, server: &Server, cores: &Cores) -> Result<ExitCode> {
    let tools = chosen(args)?;
    let mut runs = Vec::new();
    for case in CASES {
        for round in 0..args.rounds {
            for turn in 0..tools.len() {
                let tool = tools[(turn + round as usize) % tools.len()];
                let figures = one(tool, case, args.seconds, server, cores);
                match &figures {
                    Ok(f) => println!("{}, round {}: {}", case.name, round + 1, f.line(tool.name)),
                    Err(e) => println!("{}, round {}: {}: {e:#}", case.name, round + 1, tool.name),
                }
                runs.push(Run { tool: tool.name, case: case.name, round, figures });
            }
        }
    }
    let table = table::table(&tools, &runs);
    println!("\n{table}");
    if args.seconds >= KEPT_SECONDS && args.rounds >= KEPT_ROUNDS && args.only.is_empty() && quiet {
        let path = table::keep(&table, &tools, (args.seconds, args.rounds), cores)?;
        println!("kept in {path}");
    } else {
        println!(
            "not kept in {}: that takes all tools, {KEPT_SECONDS} s, {KEPT_ROUNDS} rounds and a quiet machine",
            table::PAGE
        );
    }
    let failed = runs.iter().filter(|r| r.figures.is_err()).count();
    println!("{} runs, {failed} failed", runs.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tools that are here and asked for; says which are not here.
fn chosen(args: &Args) -> Result<Vec<&'static Tool>> {
    for name in &args.only {
        ensure!(TOOLS.iter().any(|t| t.name == name), "there is no tool `{name}` in xtask's table");
    }
    let asked = |t: &&Tool| {
        args.only.is_empty() || matches!(t.name, "loadlab" | "wrk") || args.only.iter().any(|o| o == t.name)
    };
    let mut tools = Vec::new();
    for tool in TOOLS.iter().filter(asked) {
        match (tool.path(), tool.package) {
            (Some(_), _) => tools.push(tool),
            (None, Some(package)) => {
                println!("absent: {} (apt-get install {package}, or --install)", tool.name)
            }
            (None, None) => println!("absent: {} (not in Debian)", tool.name),
        }
    }
    ensure!(
        tools.iter().any(|t| t.name == "wrk"),
        "wrk is what all are compared with\nhint: apt-get install wrk"
    );
    Ok(tools)
}

/// What one run of one tool gave.
pub struct Figures {
    /// By its own account.
    pub told: parse::Told,
    /// By the kernel's.
    pub used: Used,
}

impl Figures {
    /// Requests per second of the generator's CPU time.
    pub fn per_cpu_s(&self) -> f64 {
        self.told.requests / self.used.cpu_s
    }

    fn line(&self, tool: &str) -> String {
        format!(
            "{tool}: {:.0} requests/CPU-s, {:.0}/s, p50 {}, {:.1} MB",
            self.per_cpu_s(),
            self.told.rate_per_s,
            self.told.p50,
            self.used.peak_bytes as f64 / 1e6
        )
    }
}

fn one(tool: &Tool, case: &Case, seconds: u64, server: &Server, cores: &Cores) -> Result<Figures> {
    let order = tools::Order {
        case,
        seconds,
        url: server.url(case.path),
        core: cores.generator,
        scratch: server.dir(),
    };
    let before = server.requests()?;
    let ran = measure((tool.command)(&order)?, cores, server.dir(), Duration::from_secs(seconds + 60))?;
    let after = server.requests()?;
    ensure!(ran.status.success(), "{}: {}\n{}{}", tool.name, ran.status, ran.stdout, ran.stderr);
    let told = (tool.parse)(&order, &ran.stdout)
        .with_context(|| format!("{}'s output cannot be read:\n{}", tool.name, ran.stdout))?;
    ensure!(told.requests > 0.0, "{}: not one request was answered", tool.name);
    // The server's own count says whether a tool counts what it did.
    let served = (after - before) as f64;
    let slack = served * 0.02 + 2.0 * case.connections as f64;
    let differ = (served - told.requests).abs();
    ensure!(differ <= slack, "{} tells of {} requests, nginx answered {served}", tool.name, told.requests);
    Ok(Figures { told, used: ran.used })
}

/// loadlab's peak memory does not depend on how long it runs.
fn memory(server: &Server, cores: &Cores) -> Result<ExitCode> {
    let tool = TOOLS.iter().find(|t| t.name == "loadlab").context("no loadlab among the tools")?;
    let mut peaks = Vec::new();
    for seconds in MEMORY_SECONDS {
        let figures = one(tool, &CASES[0], seconds, server, cores)?;
        let (peak, requests) = (figures.used.peak_bytes as f64, figures.told.requests);
        println!("{seconds:>3} s: peak {:.2} MB after {requests} requests", peak / 1e6);
        peaks.push(peak);
    }
    let (short, long) = (peaks[0], peaks[1]);
    let grown = long - short > GROWTH_BYTES.max(short * GROWTH_SHARE);
    println!("{}", if grown { "it grows with the length of the run" } else { "it does not grow" });
    Ok(if grown { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
