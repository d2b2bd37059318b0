//! A server that stands still for 1.5 s of 10 s, at 1,000 requests a second: what each generator tells of it, beside
//! the truth by the server's own log, and beside a run in which nothing stood still.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::Bench;
use super::lateness::{is_whole, one};
use super::open::{OpenTool, Percentiles};
use super::table::median;
use super::targets::Check;

/// For `--case`.
pub const NAME: &str = "freeze";
const RATE_PER_S: f64 = 1000.0;
const SECONDS: u64 = 10;
/// When it stands still, and for how long.
const FREEZE: (f64, f64) = (4.0, 1.5);
/// More rounds say no more.
const MOST_ROUNDS: u64 = 3;
/// How far a median may be from that of an undisturbed run.
const P50_MS: f64 = 0.05;
/// How far others may be from the truth: this, or this share of it.
const OFF_MS: f64 = 5.0;
const OFF_SHARE: f64 = 0.01;

/// What one round of one tool gave, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Frozen {
    /// It told with the freeze.
    reported: Percentiles,
    /// It told without.
    calm: Percentiles,
    /// By the stub's log, where that is whole.
    truth: Option<Percentiles>,
    /// Requests that reached the stub.
    requests: f64,
}

type Rounds = Vec<(&'static str, Result<Frozen>)>;

/// Runs it: the table and the targets; whether a run failed.
///
/// # Errors
/// None now; failures are in the table.
pub fn row(bench: &Bench) -> Result<(String, Vec<Check>, bool)> {
    let tools: Vec<_> = bench.open_tools().filter(|t| t.reports_response).collect();
    let mut runs: Rounds = Vec::new();
    for round in 0..bench.rounds.min(MOST_ROUNDS) {
        for tool in &tools {
            let frozen = both(bench, tool);
            match &frozen {
                Ok(f) => println!(
                    "freeze, round {}: {}: p50 {} (undisturbed {}), p99 {} (truth {})",
                    round + 1,
                    tool.name,
                    ms(f.reported.p50),
                    ms(f.calm.p50),
                    ms(f.reported.p99),
                    ms(f.truth.and_then(|t| t.p99))
                ),
                Err(error) => println!("freeze, round {}: {}: {error:#}", round + 1, tool.name),
            }
            runs.push((tool.name, frozen));
        }
    }
    let failed = runs.iter().any(|(_, frozen)| frozen.is_err());
    let names: Vec<_> = tools.iter().map(|t| t.name).collect();
    Ok((table(&names, &runs), checks(&runs), failed))
}

fn both(bench: &Bench, tool: &OpenTool) -> Result<Frozen> {
    let (calm, _) = one(bench, tool, (RATE_PER_S, SECONDS, None))?;
    let (reported, stub) = one(bench, tool, (RATE_PER_S, SECONDS, Some(FREEZE)))?;
    anyhow::ensure!(stub["froze"] == true, "the stub did not stand still");
    let whole = tool.even && is_whole(&stub, RATE_PER_S * SECONDS as f64);
    Ok(Frozen {
        reported: reported.response,
        calm: calm.response,
        truth: whole.then(|| Percentiles::of(&stub["response_ms"])),
        requests: stub["requests"].as_f64().context("the stub counts nothing")?,
    })
}

type Pick = fn(&Percentiles) -> Option<f64>;

const FIGURES: &[(&str, Pick)] =
    &[("p50", |p| p.p50), ("p90", |p| p.p90), ("p99", |p| p.p99), ("p99.9", |p| p.p99_9), ("max", |p| p.max)];

fn table(tools: &[&str], runs: &Rounds) -> String {
    let mut out = String::from(
        "| 1.5 s of 10 s frozen, 1,000/s | requests | p50 | p90 | p99 | p99.9 | largest |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut line = |name: &str, mine: &[&Frozen], pick: &dyn Fn(&Frozen) -> Option<Percentiles>| {
        let _ = write!(out, "| {name} | {}", mine.first().map_or(0.0, |f| f.requests));
        for (_, figure) in FIGURES {
            let values = mine.iter().filter_map(|f| figure(&pick(f)?)).collect();
            let _ = write!(out, " | {}", ms(median(values)));
        }
        out.push_str(" |\n");
    };
    for tool in tools {
        let mine: Vec<_> =
            runs.iter().filter(|(n, _)| n == tool).filter_map(|(_, f)| f.as_ref().ok()).collect();
        line(tool, &mine, &|f| Some(f.reported));
        line(&format!("{tool}: the truth"), &mine, &|f| f.truth);
        line(&format!("{tool}, nothing frozen"), &mine, &|f| Some(f.calm));
    }
    out
}

fn checks(runs: &Rounds) -> Vec<Check> {
    let mine: Vec<_> =
        runs.iter().filter(|(n, _)| *n == "loadlab").filter_map(|(_, f)| f.as_ref().ok()).collect();
    let check = |what: &str, target: String, off: Vec<(f64, f64)>| {
        // The round that used up most of what it may.
        let worst = off.into_iter().max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        Check {
            case: "frozen 1.5 s of 10 s".to_owned(),
            what: format!("loadlab, {what}, worst round"),
            target,
            measured: worst.map(|(off, _)| format!("{off:.3} ms off")),
            reached: worst.is_some_and(|(off, may)| off <= may),
        }
    };
    let calm = mine.iter().filter_map(|f| Some(((f.reported.p50? - f.calm.p50?).abs(), P50_MS)));
    let mut checks = vec![check("p50", "within 50 µs of an undisturbed run".to_owned(), calm.collect())];
    for (name, figure) in FIGURES.iter().filter(|(name, _)| matches!(*name, "p90" | "p99" | "p99.9")) {
        let off = mine.iter().filter_map(|f| {
            let (reported, truth) = (figure(&f.reported)?, figure(&f.truth?)?);
            Some(((reported - truth).abs(), OFF_MS.max(OFF_SHARE * truth)))
        });
        checks.push(check(name, "within 5 ms or 1 % of the truth".to_owned(), off.collect()));
    }
    checks
}

fn ms(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |ms| format!("{ms:.3} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_taken_against_the_truth_and_an_undisturbed_run() {
        let p = |scale: f64| Percentiles {
            p50: Some(0.1 * scale),
            p90: Some(500.0 * scale),
            p99: Some(1400.0 * scale),
            p99_9: None,
            max: Some(1500.0),
        };
        let good = Frozen { reported: p(1.0), calm: p(1.0), truth: Some(p(1.009)), requests: 10_000.0 };
        let bad = Frozen { reported: p(1.0), calm: p(2.0), truth: Some(p(1.02)), requests: 10_000.0 };
        let reached = |frozen: &[Frozen]| {
            let runs = frozen.iter().map(|f| ("loadlab", Ok(*f))).collect();
            checks(&runs).iter().map(|c| c.reached).collect::<Vec<_>>()
        };
        assert_eq!(reached(&[good]), [true, true, true, false], "what is not told is not reached");
        assert_eq!(reached(&[good, bad]), [false; 4]);
        let runs = vec![("loadlab", Ok(good))];
        assert_eq!(
            table(&["loadlab"], &runs).lines().nth(3),
            Some("| loadlab: the truth | 10000 | 0.101 ms | 504.500 ms | 1412.600 ms | – | 1500.000 ms |")
        );
    }
}
