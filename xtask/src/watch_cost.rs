//! `cargo xtask watch-cost`: whether watching a system delays a load. The same load runs repeatedly, with fifty watched
//! components and with none, in turn, so that a change of the machine's speed affects both.
//!
//! At one request per second, each tick has one lateness, and only all rounds together have enough for a percentile; at
//! a hundred per second each round has enough. On a busy machine the figures are noise, and the command reports that.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{Ends, program, sooner_or_later};
use crate::live_cost::{SPARE, Setup};
use crate::peers::table::median;

/// The most by which lateness with components may differ from lateness without, as a share of the latter.
const MOST: f64 = 0.1;
/// The largest share of a core that watching fifty components may take.
const MOST_CPU: f64 = 0.01;
/// The prefix of the watcher's thread names.
const WATCHER: &str = "loadlab-watch";

/// Measure whether watching fifty components delays a load, and what it costs
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each load
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Rounds; each has one load with components and one without, at each rate
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Requests per second; may be repeated
    #[arg(long, value_name = "N", default_values_t = [1, 100])]
    rate: Vec<u64>,
    /// Number of components
    #[arg(long, default_value_t = 50)]
    components: usize,
    /// Measure this loadlab, instead of a release build of this repository
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Fail if lateness differs by more than 10 %, or the watcher takes more than 1 % of a core
    #[arg(long)]
    strict: bool,
}

/// The results of the loads at one rate, with or without components.
#[derive(Default)]
struct Seen {
    /// Lateness in milliseconds, of single requests or as percentiles of rounds.
    late_ms: Vec<f64>,
    /// The watcher's share of a core, for each round.
    cpu: Vec<f64>,
}

impl Seen {
    /// The 99th percentile of lateness: over all requests if there is one per second, otherwise in the median round.
    fn p99_ms(&self, rate: u64) -> f64 {
        if rate > 1 {
            return median(self.late_ms.clone()).unwrap_or(f64::NAN);
        }
        let mut all = self.late_ms.clone();
        all.sort_by(f64::total_cmp);
        let rank = (all.len() as f64 * 0.99).ceil() as usize;
        all.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

/// Runs the measurement.
///
/// # Errors
/// nginx or the build is missing, or a load fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    let setup = Setup::new("watch-cost", args.binary.as_deref())?;
    let mut seen: Vec<[Seen; 2]> = args.rate.iter().map(|_| Default::default()).collect();
    for round in 0..args.rounds {
        for (i, rate) in args.rate.iter().enumerate() {
            for step in 0..2 {
                let with = (round + step) % 2;
                let components = if with == 1 { args.components } else { 0 };
                let (late_ms, cpu) = once(args, &setup, &plan(&setup.url, *rate, args.seconds, components))?;
                println!(
                    "round {}, {rate}/s, {components} components: late at most {:.3} ms, watcher {:.2} % of a core",
                    round + 1,
                    late_ms.iter().copied().fold(0.0, f64::max),
                    cpu * 100.0
                );
                seen[i][with].late_ms.extend(late_ms);
                seen[i][with].cpu.push(cpu);
            }
        }
    }
    let (text, is_much) = table(&args.rate, &seen);
    println!("\n{text}");
    Ok(if args.strict && is_much { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The table, and whether the limits are exceeded.
fn table(rates: &[u64], seen: &[[Seen; 2]]) -> (String, bool) {
    let mut text = String::from(
        "| rate | late p99 without | late p99 with | with / without | watcher, of a core |\n|---|---|---|---|---|\n",
    );
    let mut is_much = false;
    for (rate, [without, with]) in rates.iter().zip(seen) {
        let (before, after) = (without.p99_ms(*rate), with.p99_ms(*rate));
        let cpu = median(with.cpu.clone()).unwrap_or(f64::NAN);
        is_much |= (after / before - 1.0).abs() > MOST || cpu > MOST_CPU;
        let _ = writeln!(
            text,
            "| {rate}/s | {before:.4} ms | {after:.4} ms | {:.3} | {:.2} % |",
            after / before,
            cpu * 100.0
        );
    }
    let _ = write!(
        text,
        "\nThe two may differ by {:.0} %, and the watcher may take {:.0} % of a core.",
        MOST * 100.0,
        MOST_CPU * 100.0
    );
    (text, is_much)
}

/// A plan with a load at a rate, and components that do nothing.
fn plan(url: &str, rate: u64, seconds: u64, components: usize) -> String {
    let system = match components {
        0 => String::new(),
        n => format!(
            "system: {{ components: {{ idle: {{ replicas: {n}, run: \"exec sleep 1000000\" }} }} }}\n"
        ),
    };
    format!(
        "loadlab: 1\nname: watch-cost\n{system}load:\n  rate: {rate}/s\n  duration: {seconds}s\n  journey: [{{ get: \"{url}\" }}]\n"
    )
}

/// Runs a plan once. Returns latenesses in milliseconds, and the watcher's share of a core.
fn once(args: &Args, setup: &Setup, plan: &str) -> Result<(Vec<f64>, f64)> {
    let dir = &setup.dir;
    let (path, out) = (dir.join("plan.yaml"), dir.join("record"));
    fs::write(&path, plan)?;
    let _ = fs::remove_dir_all(&out);
    let mut command = program(&setup.binary);
    command.args(["run", "--quiet", "--out"]).arg(&out).arg(&path);
    command.stdout(Stdio::null()).stderr(fs::File::create(dir.join("err"))?);
    let mut child = Ends(command.spawn().context("cannot start the load")?);
    // CPU time of the load's watcher. Starting and stopping take time as well.
    let mut cpu_ns = 0;
    let longest = Duration::from_secs(args.seconds) + 2 * SPARE;
    sooner_or_later("the end of a load", longest, Duration::from_millis(230), || {
        cpu_ns = cpu_ns.max(watcher_ns(child.0.id()));
        Ok(child.0.try_wait()?)
    })?;
    let trial = out.join("cases/default/1");
    let reported = || fs::read_to_string(dir.join("err")).unwrap_or_default();
    let text = fs::read_to_string(trial.join("summary.json"))
        .with_context(|| format!("no result: {}", reported()))?;
    let summary: Value = serde_json::from_str(&text)?;
    let late_ms = match summary["late_ms"]["p99"].as_f64() {
        Some(p99) => vec![p99],
        None => lates(&fs::read_to_string(trial.join("ticks.jsonl"))?)?,
    };
    Ok((late_ms, cpu_ns as f64 / 1e9 / args.seconds as f64))
}

/// The lateness of the single request in each tick.
fn lates(ticks: &str) -> Result<Vec<f64>> {
    let ticks = ticks.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    Ok(ticks.iter().filter_map(|tick| tick["late_ms"]["max"].as_f64()).collect())
}

/// CPU time, in nanoseconds, of the watcher's threads so far, as the kernel counts it.
fn watcher_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let mut sum = 0;
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").starts_with(WATCHER) {
            sum += read("schedstat").split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_a_second_is_pooled_and_a_hundred_are_not() {
        let seen = |late_ms: &[f64], cpu: f64| Seen { late_ms: late_ms.to_vec(), cpu: vec![cpu] };
        let many: Vec<f64> = (1..=200).map(f64::from).collect();
        let slow = [seen(&many, 0.0), seen(&many, 0.004)];
        let (text, is_much) =
            table(&[1, 100], &[slow, [seen(&[1.0, 3.0, 2.0], 0.0), seen(&[2.1, 2.1], 0.006)]]);
        assert!(text.contains("| 1/s | 198.0000 ms | 198.0000 ms | 1.000 | 0.40 % |"), "{text}");
        assert!(text.contains("| 100/s | 2.0000 ms | 2.1000 ms | 1.050 | 0.60 % |"), "{text}");
        assert!(!is_much);
        let slow = || [seen(&many, 0.0), seen(&many, 0.004)];
        assert!(table(&[1, 100], &[slow(), [seen(&[1.0], 0.0), seen(&[1.2], 0.0)]]).1);
        assert!(table(&[1, 100], &[slow(), [seen(&[1.0], 0.0), seen(&[1.0], 0.02)]]).1);
    }

    #[test]
    fn lateness_is_read_from_each_tick() {
        let ticks =
            "{\"late_ms\": {\"max\": 0.25}}\n{\"late_ms\": {\"max\": null}}\n{\"late_ms\": {\"max\": 1.5}}\n";
        assert_eq!(lates(ticks).unwrap(), [0.25, 1.5]);
        assert!(lates("{").is_err());
    }
}
