//! Peak memory: of loadlab in a short and a long run, which must be the same, and of all with many connections.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::Bench;
use super::cases::{CASES, Case};
use super::closed::one;
use super::server::Server;
use super::targets::Check;
use super::tools::{TOOLS, Tool};

/// For `--case`: loadlab with few connections for a long time, and all with many.
pub const NAMES: &[&str] = &["memory-50", "memory-10000"];
/// Lengths of the short and the long run with few connections.
const SHORT_LONG_S: [u64; 2] = [5, 60];
const MANY_S: u64 = 5;
/// What they may take, in bytes.
const FEW_BYTES: f64 = 10e6;
const MANY_BYTES: f64 = 20e6;
/// A peak that is larger by more than this has grown: a share, and pages that come and go.
const GROWTH_SHARE: f64 = 0.03;
const GROWTH_BYTES: f64 = 256.0 * 1024.0;
/// Those that would hold the row up, with a thread for each connection.
const SPARED: &[&str] = &["loadlab-epoll", "bare-epoll", "bare-uring", "siege", "k6"];

const MANY: Case = Case {
    name: "memory-10000",
    title: "10,000 connections",
    connections: 10_000,
    spared: SPARED,
    targets: &[],
    ..CASES[0]
};

/// Heads the lines of both.
pub const HEADING: &str = "| memory | tool | peak |\n|---|---|---:|\n";

/// loadlab with 50 connections for 5 s and for 60 s.
///
/// # Errors
/// nginx does not come up.
pub fn few(bench: &Bench) -> Result<(String, Vec<Check>, bool)> {
    let tool = TOOLS.iter().find(|t| t.name == "loadlab").context("no loadlab among the tools")?;
    let server = Server::start(&bench.cores, &bench.scratch)?;
    let mut out = String::new();
    let mut peaks = Vec::new();
    for seconds in SHORT_LONG_S {
        let title = format!("50 connections, {seconds} s");
        let peak = peak_of(tool, &CASES[0], bench, (seconds, &server));
        out.push_str(&line(&title, tool.name, &peak));
        peaks.push(peak.ok());
    }
    let failed = peaks.contains(&None);
    Ok((out, few_checks(peaks[0], peaks[1]), failed))
}

fn few_checks(short: Option<f64>, long: Option<f64>) -> Vec<Check> {
    let grown = short.zip(long).map(|(short, long)| long - short);
    let may = GROWTH_BYTES.max(short.unwrap_or(0.0) * GROWTH_SHARE);
    vec![
        most("50 connections, 60 s", long, FEW_BYTES),
        Check {
            case: "50 connections".to_owned(),
            what: "loadlab, growth from 5 s to 60 s".to_owned(),
            target: "none".to_owned(),
            measured: grown.map(|g| format!("{:.2} MB", g / 1e6)),
            reached: grown.is_some_and(|g| g <= may),
        },
    ]
}

/// All with 10,000 connections.
///
/// # Errors
/// nginx does not come up.
pub fn many(bench: &Bench, tools: &[&'static Tool]) -> Result<(String, Vec<Check>, bool)> {
    let server = Server::start(&bench.cores, &bench.scratch)?;
    let (mut out, mut ours, mut failed) = (String::new(), None, false);
    for tool in tools.iter().filter(|t| MANY.asks(t.name)) {
        let peak = peak_of(tool, &MANY, bench, (MANY_S, &server));
        out.push_str(&line(MANY.title, tool.name, &peak));
        failed |= peak.is_err();
        if tool.name == "loadlab" {
            ours = peak.ok();
        }
    }
    Ok((out, vec![most(MANY.title, ours, MANY_BYTES)], failed))
}

fn peak_of(tool: &Tool, case: &Case, bench: &Bench, how: (u64, &Server)) -> Result<f64> {
    let figures = one(tool, case, bench, how);
    match &figures {
        Ok(figures) => println!("{}, {} s: {}", case.title, how.0, figures.line(tool.name)),
        Err(error) => println!("{}, {} s: {}: {error:#}", case.title, how.0, tool.name),
    }
    figures.map(|f| f.used.peak_bytes as f64)
}

fn line(title: &str, tool: &str, peak: &Result<f64>) -> String {
    let mut out = String::new();
    let _ = match peak {
        Ok(peak) => writeln!(out, "| {title} | {tool} | {:.1} MB |", peak / 1e6),
        Err(error) => {
            let text = error.to_string().lines().next().unwrap_or_default().replace('|', "/");
            writeln!(out, "| {title} | {tool} | error: {text} |")
        }
    };
    out
}

fn most(case: &str, peak: Option<f64>, bytes: f64) -> Check {
    Check {
        case: case.to_owned(),
        what: "loadlab, peak memory".to_owned(),
        target: format!("≤ {:.0} MB", bytes / 1e6),
        measured: peak.map(|p| format!("{:.1} MB", p / 1e6)),
        reached: peak.is_some_and(|p| p <= bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_is_no_growth_and_what_is_not_known_is_not_reached() {
        let reached = |short: Option<f64>, long: Option<f64>| {
            few_checks(short, long).iter().map(|c| c.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(Some(7.7e6), Some(7.9e6)), [true, true]);
        assert_eq!(reached(Some(7.7e6), Some(8.7e6)), [true, false]);
        assert_eq!(reached(Some(11e6), Some(10.5e6)), [false, true]);
        assert_eq!(reached(None, Some(7e6)), [true, false]);
    }
}
