//! The open model: how late requests begin, and how a frozen server affects response times. The server is the stub of
//! `benches/`, which logs what happened and computes the truth from it; loadlab's own figures are shown beside it. A
//! bare timer loop takes turns with the tools, to show how much lateness is due to the machine.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Bench;
use super::cases::Ask;
use super::measure::{measure, start_on};
use super::stub::Stub;
use super::table::{Bound, Check, Columns, Run, Unit, ratio_of, rounds, thousands};
use super::tools::{Order, TOOLS, Tool};

/// Rows of lateness, with their rates per second. `None` means half of the rate that loadlab reaches with 50 users
/// against the same stub.
pub const RATES: &[(&str, Option<f64>)] = &[("late-1000", Some(1000.0)), ("late-half", None)];
/// The tools that run these rows.
const ASKED: [&str; 5] = ["loadlab", "bare-timer", "vegeta", "k6", "oha"];
/// Name of the row in which the server is frozen.
pub const FREEZE: &str = "freeze";

/// Columns of lateness: first as our own generators report it, then as the stub saw it.
pub const LATE: Columns = &[
    ("late p50", Unit::Us),
    ("late p99", Unit::Us),
    ("largest", Unit::Us),
    ("the stub saw p50", Unit::Us),
    ("p99", Unit::Us),
    ("largest", Unit::Us),
];
/// Columns of a freeze.
pub const FROZEN: Columns =
    &[("p50", Unit::Ms), ("p90", Unit::Ms), ("p99", Unit::Ms), ("p99.9", Unit::Ms), ("largest", Unit::Ms)];
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99_9", "max"];

/// loadlab's targets: the largest ratio of its p99 to the bare timer's, and the largest p99 in milliseconds at 1,000/s.
const MOST_RATIO: f64 = 1.5;
const MOST_MS: f64 = 0.15;
/// The share by which the stub's log may differ from what was due: a request more or less at either end.
const MISSING: f64 = 0.01;

/// How the server is frozen; the rate; and the length of the load, in seconds.
const FREEZE_AT: Freeze = Freeze { at_s: 4.0, length_s: 1.5 };
const RATE_PER_S: f64 = 1000.0;
const SECONDS: u64 = 10;
/// More rounds add no information.
const MOST_ROUNDS: u64 = 3;
/// How far the median may be from that of an undisturbed run; how far other percentiles may be from the truth, in
/// milliseconds or as a share of the truth, whichever is more.
const P50_MS: f64 = 0.05;
const OFF_MS: f64 = 5.0;
const OFF_SHARE: f64 = 0.01;
/// Names of the lines in the table.
const REPORTED: &str = "loadlab";
const TRUTH: &str = "the truth";
const CALM: &str = "loadlab, nothing frozen";

/// A time in which the server is frozen, in seconds.
#[derive(Clone, Copy)]
struct Freeze {
    at_s: f64,
    length_s: f64,
}

/// What a stub is loaded with.
#[derive(Clone, Copy)]
struct StubLoad {
    ask: Ask,
    rate_per_s: f64,
    seconds: u64,
    freeze: Option<Freeze>,
}

/// Runs a row of lateness.
///
/// # Errors
/// The stub does not start.
pub fn late(bench: &Bench, rate_per_s: Option<f64>) -> Result<(Vec<Run>, Vec<Check>)> {
    let rate = match rate_per_s {
        Some(rate) => rate,
        None => half_of_most(bench)?,
    };
    let title = format!("open model, {}/s", thousands(rate));
    let tools: Vec<_> = bench.tools.iter().copied().filter(|t| ASKED.contains(&t.name)).collect();
    let mut runs = Vec::new();
    let load = StubLoad { ask: Ask::Rate, rate_per_s: rate, seconds: bench.seconds, freeze: None };
    bench.take_turns(&title, &tools, bench.rounds, LATE, &mut runs, |tool| {
        let (own, stub) = one(bench, tool, load)?;
        let is_whole = is_whole(&stub, rate * bench.seconds as f64);
        let stub = if is_whole { &stub["late_ms"] } else { &Value::Null };
        let all = [&own["late_ms"], stub].map(|from| ["p50", "p99", "max"].map(|name| from[name].as_f64()));
        Ok(all.as_flattened().to_vec())
    });
    let checks = late_checks(&title, rate_per_s.is_some(), &runs);
    Ok((runs, checks))
}

fn late_checks(title: &str, is_low: bool, runs: &[Run]) -> Vec<Check> {
    const P99: usize = 1;
    let what = "loadlab, lateness p99".to_owned();
    let ratio = ratio_of(runs, title, ("loadlab", "bare-timer"), P99);
    let bound = Bound::AtMost(MOST_RATIO);
    let mut checks = vec![Check::new(title, what, ratio, bound, " × bare-timer", |v| format!("{v:.3}"))];
    if is_low {
        // A percentile that is "never" is missing in its round.
        let worst = rounds(runs, (title, "loadlab"), P99).map(|(_, ms)| ms).reduce(f64::max);
        let what = "loadlab, lateness p99 of the worst round".to_owned();
        let bound = Bound::AtMost(MOST_MS);
        checks.push(Check::new(title, what, worst, bound, "", |ms| Unit::Us.text(Some(ms))));
    }
    checks
}

/// Freezes the server for a while, and compares what loadlab reports with the truth and with an undisturbed run.
pub fn freeze(bench: &Bench) -> (Vec<Run>, Vec<Check>) {
    let loadlab: Vec<_> = bench.tools.iter().copied().filter(|t| t.name == "loadlab").collect();
    let times = |from: &Value| PERCENTILES.map(|name| from["response_ms"][name].as_f64()).to_vec();
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    let title = format!("frozen {} s of {SECONDS} s, {}/s", FREEZE_AT.length_s, thousands(RATE_PER_S));
    let undisturbed = StubLoad { ask: Ask::Rate, rate_per_s: RATE_PER_S, seconds: SECONDS, freeze: None };
    let mut round = 0;
    bench.take_turns(&title, &loadlab, bench.rounds.min(MOST_ROUNDS), FROZEN, &mut runs, |tool| {
        let (calm, _) = one(bench, tool, undisturbed)?;
        let (own, stub) = one(bench, tool, StubLoad { freeze: Some(FREEZE_AT), ..undisturbed })?;
        ensure!(stub["froze"] == true, "the stub did not freeze");
        ensure!(
            is_whole(&stub, RATE_PER_S * SECONDS as f64),
            "{} requests reached the stub",
            stub["requests"]
        );
        for (tool, from) in [(TRUTH, &stub), (CALM, &calm)] {
            others.push(Run { title: title.clone(), tool, round, figures: Ok(times(from)) });
        }
        round += 1;
        Ok(times(&own))
    });
    runs.extend(others);
    let checks = freeze_checks(&title, &runs);
    (runs, checks)
}

fn freeze_checks(title: &str, runs: &[Run]) -> Vec<Check> {
    let check = |figure: usize, beside: &str, target: &str, may: &dyn Fn(f64) -> f64| {
        let reported = rounds(runs, (title, REPORTED), figure);
        let off = reported
            .zip(rounds(runs, (title, beside), figure))
            .map(|((_, a), (_, b))| ((a - b).abs(), may(b)));
        // The round that came closest to its limit, or exceeded it most.
        let worst = off.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        Check {
            title: title.to_owned(),
            what: format!("loadlab, {}, worst round", FROZEN[figure].0),
            target: target.to_owned(),
            measured: worst.map(|(off, _)| format!("{off:.3} ms off")),
            reached: worst.is_some_and(|(off, may)| off <= may),
        }
    };
    let mut checks = vec![check(0, CALM, "within 50 µs of an undisturbed run", &|_| P50_MS)];
    for figure in 1..=3 {
        let may = |truth: f64| OFF_MS.max(OFF_SHARE * truth);
        checks.push(check(figure, TRUTH, "within 5 ms or 1 % of the truth", &may));
    }
    checks
}

/// Runs one tool once against a stub that may freeze. Returns the output of loadlab or a bare loop (null for other
/// tools), and the stub's.
fn one(bench: &Bench, tool: &Tool, load: StubLoad) -> Result<(Value, Value)> {
    let (ran, stub) = run(bench, tool, load)?;
    if !tool.get.is_empty() {
        return Ok((Value::Null, stub));
    }
    let own: Value = serde_json::from_str(&ran).with_context(|| ran.clone())?;
    // Requests dropped at the end of the schedule were late for as long as they waited, and count as late.
    let failed = &own["requests"]["failed"];
    ensure!(failed.is_null() || *failed == 0, "{failed} requests failed");
    ensure!(own["late_ms"]["p50"].is_number(), "no late_ms: {ran}");
    Ok((own, stub))
}

/// Runs a tool against its own stub. Returns the tool's output and the stub's.
fn run(bench: &Bench, tool: &Tool, load: StubLoad) -> Result<(String, Value)> {
    let StubLoad { ask, rate_per_s, seconds, freeze } = load;
    let mut asked = vec!["--rate".to_owned(), rate_per_s.to_string()];
    if let Some(Freeze { at_s, length_s }) = freeze {
        asked.extend(["--freeze-at-s".into(), at_s.to_string(), "--freeze-s".into(), length_s.to_string()]);
    }
    let stub = Stub::start(|command| start_on(bench.cores.server, command), &asked)?;
    let order = Order {
        ask,
        users: if ask == Ask::Rate { 100 } else { 50 },
        rate_per_s,
        seconds,
        server: stub.address.clone(),
        url: format!("http://{}/", stub.address),
        path: "/",
        core: bench.cores.generator,
        dir: &bench.scratch,
    };
    let longest = Duration::from_secs(seconds + 60);
    let (ran, _) = measure(tool.command(&order)?, &bench.cores, &bench.scratch, longest)?;
    // Exit code 4: loadlab itself calls the measurement invalid, as it must if it was late. The figures are still
    // reported.
    let is_good = ran.status.success() || (tool.name == "loadlab" && ran.status.code() == Some(4));
    ensure!(is_good, "{}: {}\n{}{}", tool.name, ran.status, ran.stdout, ran.stderr);
    Ok((ran.stdout, stub.end()?))
}

/// Whether the stub received everything that was due: only then does its k-th arrival belong to the k-th request.
fn is_whole(stub: &Value, due: f64) -> bool {
    stub["requests"].as_f64().is_some_and(|n| (n - due).abs() <= due * MISSING)
}

/// Half of the requests that loadlab sends the stub in one second, in whole thousands.
fn half_of_most(bench: &Bench) -> Result<f64> {
    let loadlab = TOOLS.iter().find(|t| t.name == "loadlab").context("no loadlab")?;
    let load = StubLoad { ask: Ask::KeepAlive, rate_per_s: 1000.0, seconds: 1, freeze: None };
    let (_, stub) = run(bench, loadlab, load)?;
    let most = stub["requests"].as_f64().context("the stub counts nothing")?;
    println!("loadlab's maximum rate against the stub: {}/s", thousands(most));
    Ok((most / 2000.0).floor().max(1.0) * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tool: &'static str, round: u64, figures: &[f64]) -> Run {
        let figures = Ok(figures.iter().copied().map(Some).collect());
        Run { title: "t".to_owned(), tool, round, figures }
    }

    #[test]
    fn ratios_are_of_a_round_and_the_worst_round_counts() {
        let mut runs = vec![run("loadlab", 0, &[0.03, 0.06]), run("bare-timer", 0, &[0.02, 0.05])];
        let found = |runs: &[Run]| {
            late_checks("t", true, runs).into_iter().map(|c| (c.measured, c.reached)).collect::<Vec<_>>()
        };
        assert_eq!(found(&runs), [(Some("1.200".to_owned()), true), (Some("60 µs".to_owned()), true)]);
        runs.extend([run("loadlab", 1, &[0.03, 0.16]), run("bare-timer", 1, &[0.05, 0.1])]);
        assert_eq!(found(&runs), [(Some("1.400".to_owned()), true), (Some("160 µs".to_owned()), false)]);
        assert_eq!(found(&runs[1..2]), [(None, false), (None, false)]);
        assert_eq!(late_checks("t", false, &runs).len(), 1);
    }

    #[test]
    fn errors_are_taken_against_the_truth_and_an_undisturbed_run() {
        let times = |scale: f64| [0.1, 500.0, 1400.0].map(|ms| ms * scale);
        let reached = |runs: &[Run]| freeze_checks("t", runs).iter().map(|c| c.reached).collect::<Vec<_>>();
        let mut runs =
            vec![run(REPORTED, 0, &times(1.0)), run(TRUTH, 0, &times(1.009)), run(CALM, 0, &times(1.0))];
        assert_eq!(reached(&runs), [true, true, true, false], "what is not reported is not reached");
        runs.extend([run(REPORTED, 1, &times(1.0)), run(TRUTH, 1, &times(1.02)), run(CALM, 1, &times(2.0))]);
        assert_eq!(reached(&runs), [false; 4]);
    }

    #[test]
    fn a_log_with_gaps_is_not_whole() {
        assert!(is_whole(&serde_json::json!({"requests": 9950}), 10_000.0));
        assert!(!is_whole(&serde_json::json!({"requests": 9160}), 10_000.0));
    }
}
