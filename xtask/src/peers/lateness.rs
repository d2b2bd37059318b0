//! How late requests of the open model begin: by the generator's own account where it gives one, and for all of them
//! by the stub's log. A bare timer loop takes turns with them, so that what the machine is to blame for is known.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use super::measure::measure;
use super::open::{OPEN_TOOLS, OpenOrder, OpenReport, OpenTool, Percentiles};
use super::order::built;
use super::stub::Stub;
use super::table::{median, thousands};
use super::targets::Check;
use crate::command::program;

/// Which rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// 1,000/s.
    Thousand,
    /// Half of what loadlab reaches with 50 users against the same stub.
    Half,
}

/// The rows, with their names for `--case`.
pub const RATES: &[(&str, Rate)] = &[("late-1000", Rate::Thousand), ("late-half", Rate::Half)];

/// What loadlab is held to: its p99 divided by the bare timer's, and at 1,000/s never more than this.
const MOST_RATIO: f64 = 1.5;
const MOST_US: f64 = 150.0;
/// The stub's log may differ from what fell due by this share: a request more or less at either end.
const MISSING: f64 = 0.01;

/// One run.
struct Late {
    tool: &'static str,
    round: u64,
    seen: Result<Seen>,
}

/// Milliseconds.
struct Seen {
    reported: Percentiles,
    by_stub: Option<Percentiles>,
}

/// Runs a row: its table and its targets; whether a run failed.
///
/// # Errors
/// The stub does not come up.
pub fn row(bench: &Bench, rate: Rate) -> Result<(String, Vec<Check>, bool)> {
    let rate_per_s = match rate {
        Rate::Thousand => 1000.0,
        Rate::Half => half_of_most(bench)?,
    };
    let title = format!("open model, {}/s", thousands(rate_per_s));
    let tools: Vec<_> = bench.open_tools().filter(|t| t.even).collect();
    let mut runs = Vec::new();
    for round in 0..bench.rounds {
        for turn in 0..tools.len() {
            let tool = tools[(turn + round as usize) % tools.len()];
            let seen = one(bench, tool, (rate_per_s, bench.seconds, None)).map(|(reported, stub)| {
                let whole = is_whole(&stub, rate_per_s * bench.seconds as f64);
                Seen { reported: reported.late, by_stub: whole.then(|| Percentiles::of(&stub["late_ms"])) }
            });
            match &seen {
                Ok(seen) => println!(
                    "{title}, round {}: {}: late p99 {}, as the stub saw it {}",
                    round + 1,
                    tool.name,
                    us(seen.reported.p99),
                    us(seen.by_stub.and_then(|s| s.p99))
                ),
                Err(error) => println!("{title}, round {}: {}: {error:#}", round + 1, tool.name),
            }
            runs.push(Late { tool: tool.name, round, seen });
        }
    }
    let failed = runs.iter().any(|r| r.seen.is_err());
    let names: Vec<_> = tools.iter().map(|t| t.name).collect();
    Ok((lines(&title, &names, &runs), checks(&title, rate, &runs), failed))
}

/// Heads the lines of all rates.
pub const HEADING: &str = "| open model | tool | late p50 | late p99 | largest | the stub saw p50 | p99 | largest |\n\
    |---|---|---:|---:|---:|---:|---:|---:|\n";

fn lines(title: &str, tools: &[&str], runs: &[Late]) -> String {
    let mut out = String::new();
    for tool in tools {
        let mine = || runs.iter().filter(|r| r.tool == *tool);
        if let Some(error) = mine().find_map(|r| r.seen.as_ref().err()) {
            let text = error.to_string().lines().next().unwrap_or_default().replace('|', "/");
            let _ = writeln!(out, "| {title} | {tool} | error: {text} | | | | | |");
            continue;
        }
        let over = |pick: &dyn Fn(&Seen) -> Option<f64>| {
            us(median(mine().filter_map(|r| pick(r.seen.as_ref().ok()?)).collect()))
        };
        let reported = |pick: fn(&Percentiles) -> Option<f64>| over(&|s| pick(&s.reported));
        let by_stub = |pick: fn(&Percentiles) -> Option<f64>| over(&|s| pick(s.by_stub.as_ref()?));
        let _ = writeln!(
            out,
            "| {title} | {tool} | {} | {} | {} | {} | {} | {} |",
            reported(|p| p.p50),
            reported(|p| p.p99),
            reported(|p| p.max),
            by_stub(|p| p.p50),
            by_stub(|p| p.p99),
            by_stub(|p| p.max)
        );
    }
    out
}

fn checks(title: &str, rate: Rate, runs: &[Late]) -> Vec<Check> {
    let p99 = |tool: &str, round: u64| {
        runs.iter().find(|r| r.tool == tool && r.round == round)?.seen.as_ref().ok()?.reported.p99
    };
    let rounds: Vec<u64> = runs.iter().filter(|r| r.tool == "loadlab").map(|r| r.round).collect();
    let ratios = rounds.iter().filter_map(|r| Some(p99("loadlab", *r)? / p99("bare-timer", *r)?));
    let ratio = median(ratios.collect());
    let mut checks = vec![Check {
        case: title.to_owned(),
        what: "loadlab, lateness p99".to_owned(),
        target: format!("≤ {MOST_RATIO} × bare-timer"),
        measured: ratio.map(|r| format!("{r:.3}")),
        reached: ratio.is_some_and(|r| r <= MOST_RATIO),
    }];
    if rate == Rate::Thousand {
        // Never is in no round.
        let worst = rounds.iter().filter_map(|r| p99("loadlab", *r)).reduce(f64::max);
        checks.push(Check {
            case: title.to_owned(),
            what: "loadlab, lateness p99 of the worst round".to_owned(),
            target: format!("≤ {MOST_US:.0} µs"),
            measured: worst.map(|ms| us(Some(ms))),
            reached: worst.is_some_and(|ms| ms * 1e3 <= MOST_US),
        });
    }
    checks
}

/// One run of one tool against a stub of its own, which may stand still: what both tell.
///
/// # Errors
/// Either fails.
pub fn one(
    bench: &Bench,
    tool: &OpenTool,
    (rate_per_s, seconds, freeze): (f64, u64, Option<(f64, f64)>),
) -> Result<(OpenReport, Value)> {
    let stub = Stub::start(&bench.cores, rate_per_s, freeze)?;
    let order = OpenOrder {
        rate_per_s,
        seconds,
        url: stub.url(),
        server: stub.address.clone(),
        core: bench.cores.generator,
        scratch: &bench.scratch,
    };
    let ran =
        measure(tool.command(&order)?, &bench.cores, &bench.scratch, Duration::from_secs(seconds + 60))?;
    // 4: loadlab itself calls the measurement invalid, as it must where it was late. The figures are reported.
    let good = ran.status.success() || (tool.name == "loadlab" && ran.status.code() == Some(4));
    ensure!(good, "{}: {}\n{}{}", tool.name, ran.status, ran.stdout, ran.stderr);
    Ok((tool.reported(&order, &ran.stdout)?, stub.end()?))
}

/// Whether the stub got what fell due: only then its k-th arrival is that of the k-th request.
pub fn is_whole(stub: &Value, due: f64) -> bool {
    stub["requests"].as_f64().is_some_and(|n| (n - due).abs() <= due * MISSING)
}

/// Half of what loadlab reaches against the stub, in whole thousands.
fn half_of_most(bench: &Bench) -> Result<f64> {
    let stub = Stub::start(&bench.cores, 1000.0, None)?;
    let mut command = program(built("loadlab"));
    command.args(["bench", &stub.url(), "--json", "--quiet", "-t", "1", "-c", "50", "-d", "1s"]);
    command.args(["--cpus", &bench.cores.generator.to_string()]);
    let ran = measure(command, &bench.cores, &bench.scratch, Duration::from_secs(60))?;
    let json: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())?;
    let most = json["rate_per_s"]["ok"].as_f64().context("loadlab tells no rate")?;
    println!("loadlab's maximum rate against the stub: {}/s", thousands(most));
    Ok((most / 2000.0).floor().max(1.0) * 1000.0)
}

/// Milliseconds as microseconds.
fn us(ms: Option<f64>) -> String {
    ms.map_or("–".to_owned(), |ms| format!("{} µs", thousands((ms * 1e3).round())))
}

impl Bench {
    /// Generators for the open model that are here and asked for.
    pub fn open_tools(&self) -> impl Iterator<Item = &'static OpenTool> {
        OPEN_TOOLS.iter().filter(|t| t.path().is_some() && self.asks(t.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tool: &'static str, round: u64, p99: f64) -> Late {
        let reported = Percentiles { p50: Some(p99 / 2.0), p99: Some(p99), ..Percentiles::default() };
        Late { tool, round, seen: Ok(Seen { reported, by_stub: None }) }
    }

    #[test]
    fn ratios_are_of_a_round_and_the_worst_round_counts() {
        let mut runs = vec![run("loadlab", 0, 0.06), run("bare-timer", 0, 0.05)];
        let reached = |runs: &[Late]| {
            checks("t", Rate::Thousand, runs).into_iter().map(|c| (c.measured, c.reached)).collect::<Vec<_>>()
        };
        assert_eq!(reached(&runs), [(Some("1.200".to_owned()), true), (Some("60 µs".to_owned()), true)]);
        runs.extend([run("loadlab", 1, 0.16), run("bare-timer", 1, 0.1)]);
        assert_eq!(reached(&runs), [(Some("1.400".to_owned()), true), (Some("160 µs".to_owned()), false)]);
        assert_eq!(reached(&runs[1..2]), [(None, false), (None, false)]);
        assert_eq!(checks("t", Rate::Half, &runs).len(), 1);
        assert_eq!(lines("t", &["loadlab"], &runs), "| t | loadlab | 55 µs | 110 µs | – | – | – | – |\n");
    }

    #[test]
    fn a_log_with_gaps_is_not_whole() {
        assert!(is_whole(&serde_json::json!({"requests": 9950}), 10_000.0));
        assert!(!is_whole(&serde_json::json!({"requests": 9160}), 10_000.0));
    }
}
