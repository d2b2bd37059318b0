//! Runs the closed-model rows: nginx, and every tool in turn.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cases::{CASES, Case, LONG, PEAK, SHORT};
use super::measure::measure;
use super::server::Server;
use super::table::{Check, Columns, Run, Unit, median_of, ratio_of, table};
use super::tools::{Order, Tool};
use super::{Bench, network};

/// Columns of these rows, in the order of the indices in [`cases`](super::cases).
pub const COLUMNS: Columns = &[
    ("requests per CPU-second", Unit::Whole),
    ("requests/s", Unit::Whole),
    ("p50", Unit::Ms),
    ("peak memory", Unit::Mb),
];
/// A peak has grown if it is larger by more than this: a share of it, or, if that is more, bytes for pages that come
/// and go.
const GROWTH_SHARE: f64 = 0.03;
const GROWTH_BYTES: f64 = 256.0 * 1024.0;

/// Runs these rows.
///
/// # Errors
/// nginx does not start. A tool's failure is in its run.
pub fn rows(bench: &Bench, cases: &[&Case]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for case in cases {
        let tools: Vec<_> = bench.tools.iter().copied().filter(|t| case.asks(t.name)).collect();
        let mut server = Some(Server::start(&bench.cores, &bench.scratch)?);
        let seconds = case.once_s.unwrap_or(bench.seconds);
        let rounds = case.once_s.map_or(bench.rounds, |_| 1);
        bench.take_turns(case.title, &tools, rounds, COLUMNS, &mut runs, |tool| {
            if case.ask.closes() && bench.own_network {
                server = None;
                network::fresh()?.map_err(anyhow::Error::msg)?;
                server = Some(Server::start(&bench.cores, &bench.scratch)?);
            }
            one(tool, case, bench, seconds, server.as_ref().context("no server")?)
        });
    }
    Ok(runs)
}

/// Runs one tool once: nginx reports its results, the kernel its resources.
fn one(tool: &Tool, case: &Case, bench: &Bench, seconds: u64, server: &Server) -> Result<Vec<Option<f64>>> {
    let order = Order {
        ask: case.ask,
        users: case.users,
        rate_per_s: 0.0,
        seconds,
        server: server.address().to_string(),
        url: server.url(case),
        path: case.path,
        core: bench.cores.generator,
        dir: &bench.scratch,
    };
    let before = server.counts()?;
    let longest = Duration::from_secs(seconds + 60);
    let (ran, used) = measure(tool.command(&order)?, &bench.cores, &bench.scratch, longest)?;
    let after = server.counts()?;
    // Not counting the status query itself.
    let (served, wrong) = ((after.0 - before.0 - 1) as f64, (after.1 - before.1) as f64);
    let ran = ran.ok(tool.name)?;
    // A few requests are cut off at the end, and counted on one side only.
    let slack = served * 0.02 + 2.0 * case.users as f64;
    ensure!(served > slack, "{}: nginx answered {served} requests", tool.name);
    ensure!(wrong <= slack, "{}: {wrong} of {served} responses were not 200", tool.name);
    let (p50_ms, counted) = tool
        .said(&ran.stdout)
        .with_context(|| format!("{}'s output cannot be read:\n{}{}", tool.name, ran.stdout, ran.stderr))?;
    if let Some(counted) = counted {
        let differ = (served - counted).abs();
        ensure!(differ <= slack, "{} counts {counted} requests, nginx answered {served}", tool.name);
    }
    let rate_per_s = served / seconds as f64;
    Ok(vec![Some(served / used.cpu_s), Some(rate_per_s), p50_ms, Some(used.peak_bytes as f64)])
}

/// The targets of the rows, with what was measured; only those for requested tools.
pub fn checks(bench: &Bench, cases: &[&Case], runs: &[Run]) -> Vec<Check> {
    let mut checks = Vec::new();
    for case in cases {
        let is_asked = |tool: &str| tool.is_empty() || bench.asks(tool);
        for target in case.targets.iter().filter(|t| is_asked(t.of) && is_asked(t.against)) {
            checks.push(Check::of(target, case.title, COLUMNS, runs));
        }
        if case.title == LONG && bench.asks("loadlab") {
            checks.push(growth(runs));
        }
    }
    checks
}

/// Target: loadlab's memory does not grow over time.
fn growth(runs: &[Run]) -> Check {
    let [short, long] = [SHORT, LONG].map(|title| median_of(runs, (title, "loadlab"), PEAK));
    let grown = long.zip(short).map(|(long, short)| long - short);
    Check {
        title: "50 connections".to_owned(),
        what: "loadlab, growth of peak memory from 5 s to 60 s".to_owned(),
        target: "none".to_owned(),
        measured: grown.map(|g| format!("{:.2} MB", g / 1e6)),
        reached: grown.is_some_and(|g| g <= GROWTH_BYTES.max(short.unwrap_or(0.0) * GROWTH_SHARE)),
    }
}

/// Figures of loadlab divided by those of its other revision; `None` if that did not run.
pub fn against_before(runs: &[Run]) -> Option<String> {
    let mut ratios = Vec::new();
    for case in CASES {
        for (tool, other) in [("loadlab", "before"), ("loadlab-epoll", "before-epoll")] {
            let figures: Vec<_> =
                (0..COLUMNS.len()).map(|i| ratio_of(runs, case.title, (tool, other), i)).collect();
            if figures[PEAK].is_some() {
                ratios.push(Run { title: case.title.to_owned(), tool, round: 0, figures: Ok(figures) });
            }
        }
    }
    let columns: Vec<_> = COLUMNS.iter().map(|(heading, _)| (*heading, Unit::Ratio)).collect();
    (!ratios.is_empty()).then(|| table("× before", &columns, None, &ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(title: &str, tool: &'static str, peak: f64) -> Run {
        Run {
            title: title.to_owned(),
            tool,
            round: 0,
            figures: Ok(vec![Some(2.0), Some(1.0), None, Some(peak)]),
        }
    }

    #[test]
    fn a_little_is_no_growth_and_what_is_not_known_is_not_reached() {
        let reached = |short: f64, long: f64| {
            growth(&[run(SHORT, "loadlab", short), run(LONG, "loadlab", long)]).reached
        };
        assert!(reached(7.7e6, 7.9e6) && reached(11e6, 10.5e6) && !reached(7.7e6, 8.7e6));
        assert!(!growth(&[run(LONG, "loadlab", 7e6)]).reached);
    }

    #[test]
    fn another_revision_is_compared_where_it_ran() {
        let title = CASES[0].title;
        assert_eq!(against_before(&[run(title, "loadlab", 1.0)]), None);
        let found = against_before(&[run(title, "loadlab", 1.0), run(title, "before", 2.0)]).unwrap();
        assert!(found.ends_with(&format!("| {title} | loadlab | 1.000 | 1.000 | – | 0.500 |\n")), "{found}");
    }
}
