//! `cargo xtask bench-million`: one loadlab process, whose limit on open files is far lower, holds a given number of
//! connections at once. One request is answered on each, and the servers count them as well.
//!
//! It runs in a separate network namespace: with a firewall's connection tracking, the host's table would be full at a
//! quarter of that number. The servers are many stubs behind one port, because each of them does need a descriptor for
//! every connection.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::command::{cargo, program, shown};
use crate::peers::network;
use crate::peers::stub::Stub;
use crate::root::target;

/// The port that the servers listen on, in the namespace.
const PORT: u16 = 8080;
/// Connections that one server should have to hold, well below the usual limit of 20,000.
const PER_SERVER: u64 = 16_700;
/// Kernel memory of both ends of a connection, in bytes, with a margin.
const KERNEL_BYTES_EACH: u64 = 9_000;

/// Hold a million connections from one process
#[derive(clap::Args)]
pub struct Args {
    /// Number of connections
    #[arg(long, default_value_t = 1_000_000)]
    connections: u64,
    /// Users that cycle through them
    #[arg(long, default_value_t = 1000)]
    users: u64,
    /// Load threads of the process
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

/// Runs the benchmark.
///
/// # Errors
/// This machine lacks something that is needed, or loadlab or a server fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    lacking(args.connections)?;
    let build = ["build", "--locked", "--release", "-p", "loadlab", "-p", "loadlab-benches"];
    shown(&mut cargo(&build))?.ok("cargo build")?;
    network::fresh()?.map_err(anyhow::Error::msg)?;
    let asked = ["--port".to_owned(), PORT.to_string()];
    let servers = (0..args.connections.div_ceil(PER_SERVER).max(1))
        .map(|_| Stub::start(|command| command.spawn().context("cannot start the stub"), &asked))
        .collect::<Result<Vec<_>>>()?;
    let report = load(args)?;
    let mut counted = 0;
    for server in servers {
        counted += server.end()?["requests"].as_u64().context("a server's count")?;
    }
    Ok(tell(&report, args.connections, counted))
}

/// Fails if this machine lacks root or memory for it.
fn lacking(connections: u64) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a network namespace of its own needs root");
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let available = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let available =
        available.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024;
    let needed = connections * KERNEL_BYTES_EACH;
    ensure!(
        available >= needed,
        "{connections} connections need about {} MiB of kernel memory, and {} MiB are available",
        needed >> 20,
        available >> 20
    );
    Ok(())
}

fn load(args: &Args) -> Result<Value> {
    let output = program(target().join("release/loadlab"))
        .args(["bench", &format!("http://127.0.0.1:{PORT}/"), "--io", "uring", "--json", "--quiet"])
        .args(["--connections", &args.connections.to_string(), "-c", &args.users.to_string()])
        .args(["-n", &args.connections.to_string(), "--timeout", "60s"])
        .args(["--threads", &args.threads.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("target/release/loadlab")?;
    serde_json::from_slice(&output.stdout).context("loadlab's result")
}

fn tell(report: &Value, connections: u64, counted: u64) -> ExitCode {
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    println!("connections held at once   {}", number("/connections/peak"));
    println!("limit on open files        {limit}");
    println!("load threads               {}", number("/generator/threads"));
    println!("time to connect            {:.1} s", number("/connections/connect_phase_s"));
    println!("answered, one on each      {}", number("/requests/ok"));
    println!("counted by the servers     {counted}");
    println!("time for all requests      {:.1} s", number("/elapsed_s"));
    println!("loadlab's peak memory      {:.1} MB", number("/generator/peak_rss_bytes") / 1e6);
    println!("loadlab's memory for each  {:.0} bytes", number("/connections/bytes_per_connection"));
    let all = connections as f64;
    let done = number("/requests/ok") == all && number("/connections/peak") >= all && counted == connections;
    println!("{}", if done { "done" } else { "NOT DONE" });
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
