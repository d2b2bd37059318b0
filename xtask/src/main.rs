//! The repository's chores: `cargo xtask test` runs everything CI checks, `cargo xtask long` what takes too long for
//! that, `cargo xtask house` the rules for the code, `cargo xtask bench-peers` the comparison with other load
//! generators, `cargo xtask bench-million` a million connections.
//!
//! It tests loadlab from outside, as a user would: it imports none of its crates.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

mod agents;
mod big_report;
mod blocks;
mod book;
#[expect(dead_code, reason = "the report's tests use the same driver")]
#[path = "../../crates/report/tests/support/browser.rs"]
mod browser;
mod changes;
mod command;
mod disk;
mod dist;
mod engine;
mod house;
mod in_browser;
mod kubernetes;
mod lab;
mod licences;
mod live_cost;
mod long;
mod million;
mod networks;
mod notices;
mod ordinary_user;
mod packages;
mod page;
mod peers;
mod planted;
mod readme;
mod root;
mod rounds;
mod steps;
mod swarm_figures;
mod test;
mod test_programs;
mod watch_cost;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of loadlab
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything CI checks
    Test(test::Args),
    /// Check what takes too long for every change, and record the results
    Long(long::Args),
    /// Build static programs and pack them, for users who do not build loadlab themselves
    Dist(dist::Args),
    /// Regenerate the third-party notices of the binary
    Notices,
    /// Keep the figures of a lab's run, and remake the tables of the labs' READMEs from all kept figures
    Figures(lab::figures::Args),
    /// Check only the house rules: imports, the book, links and so on
    House,
    /// Hold a million connections from one process, with one request answered on each
    BenchMillion(million::Args),
    /// Compare loadlab with the load generators installed here
    BenchPeers(peers::Args),
    /// Run systems with a planted weakness, and check whether `loadlab run` names it
    Planted(planted::Args),
    /// Run agents as pods of a Kubernetes cluster, which is built and started here
    Kubernetes(kubernetes::Args),
    /// Build the book, or run its commands
    Book(book::Args),
    /// Measure what the live screen and the live page cost in throughput
    LiveCost(live_cost::Args),
    /// Measure whether watching fifty components delays a load, and what it costs
    WatchCost(watch_cost::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Long(args) => long::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Notices => notices::write(),
        Task::Figures(args) => lab::figures::run(&args),
        Task::House => house::run(),
        Task::BenchMillion(args) => million::run(&args),
        Task::BenchPeers(args) => peers::run(&args),
        Task::Planted(args) => planted::run(&args),
        Task::Kubernetes(args) => kubernetes::run(&args),
        Task::Book(args) => book::run(&args),
        Task::LiveCost(args) => live_cost::run(&args),
        Task::WatchCost(args) => watch_cost::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
