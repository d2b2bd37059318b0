//! The figures of swarms: four agents in network namespaces send exactly what was requested, a divided closed load
//! equals the whole one, merging a thousand agents takes less than a core, and one agent costs little compared with
//! none.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::agents::Agents;
use crate::command::{Ends, captured, cargo, program, shown, soon, sooner_or_later};
use crate::networks::{Bridge, HERE, Networks};
use crate::peers::measure::{Cores, measure};
use crate::peers::server::Server;
use crate::root::target;
use crate::steps::Outcome;

const AGENTS: usize = 4;
/// Requests per second of all four agents, and the length of the load.
const RATE: u64 = 8_000;
const LENGTH_S: u64 = 20;
/// The largest shares by which the count may differ, and that an agent may cost.
const MOST: (f64, f64) = (0.01, 0.03);
/// Number of pairs of loads with and without agents.
const PAIRS_OF_FOUR: usize = 8;
const PAIRS_OF_ONE: usize = 100;
/// The shortest tick whose rate counts as the rate of a second.
const SECOND_S: f64 = 0.9;
/// How often a load is sent if it leaves nothing to compare.
const MOST_TRIES: usize = 3;
/// How long after its end a second may be merged.
const LATEST_S: f64 = 1.0;
/// How often to check whether a second is merged.
const OFTEN: Duration = Duration::from_millis(10);
/// Time limit of long commands.
const LONGEST: Duration = Duration::from_secs(300);
const QUICK: Duration = Duration::from_secs(20);

/// Measures all figures.
///
/// # Errors
/// Something is missing, or a figure misses its limit.
pub fn long() -> Outcome {
    shown(&mut cargo(&["build", "--locked", "--release", "-p", "loadlab"]))?.ok("cargo build")?;
    let lab = Lab { loadlab: target().join("release/loadlab"), dir: target().join("xtask/swarm") };
    let _ = fs::remove_dir_all(&lab.dir);
    fs::create_dir_all(&lab.dir)?;
    let found = [lab.in_namespaces()?, lab.divided()?, merging()?];
    // The last one takes long, and may fail if the machine is too restless: its error includes the earlier figures.
    let last = lab.cost_of_an_agent().map_err(|error| anyhow::anyhow!("{error}; {}", found.join("; ")))?;
    Ok(format!("{}; {last}", found.join("; ")))
}

/// An hour of load: every request is counted, and the coordinator's memory grows by no more than what it keeps of each
/// second, as in any run: the summary is made from that.
///
/// # Errors
/// Those of [`long`].
pub fn hour() -> Outcome {
    shown(&mut cargo(&["build", "--locked", "--release", "-p", "loadlab"]))?.ok("cargo build")?;
    let lab = Lab { loadlab: target().join("release/loadlab"), dir: target().join("xtask/swarm-hour") };
    let _ = fs::remove_dir_all(&lab.dir);
    fs::create_dir_all(&lab.dir)?;
    let server = Server::start(&Cores::choose()?, &lab.dir)?;
    let before = server.counts()?.0;
    let (page, rate) = (format!("http://{}/128", server.address()), HOUR_RATE.to_string());
    let mut command = program(&lab.loadlab);
    command.args(["bench", &page, "-r", &rate, "-d", "60m", "--swarm", "local:4", "--no-watch", "--quiet"]);
    command.args(["--json", "--out"]).arg(lab.dir.join("record"));
    let printed = lab.dir.join("summary.json");
    let mut child = Ends(command.stdout(fs::File::create(&printed)?).stderr(Stdio::null()).spawn()?);
    let status_of = format!("/proc/{}/status", child.0.id());
    let mut kib = Vec::new();
    sooner_or_later("the end of the hour", Duration::from_secs(70 * 60), Duration::from_secs(10), || {
        let status = fs::read_to_string(&status_of).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        kib.extend(resident.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok()));
        Ok(child.0.try_wait()?)
    })?;
    let counted = server.counts()?.0 - before - 1;
    let summary: Value = serde_json::from_str(&fs::read_to_string(&printed)?).context("loadlab bench")?;
    let of = |name: &str| summary["requests"][name].as_u64();
    let wanted = Some(HOUR_RATE * 3600);
    ensure!((of("due"), of("ok")) == (wanted, wanted), "{}", summary["requests"]);
    ensure!(Some(counted) == wanted, "nginx counted {counted}");
    ensure!(kib.len() > 60, "only {} readings of its memory", kib.len());
    // Leave out the first minutes: memory still grows from the start.
    let tenth = kib.len() / 10;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (early, late) = (mean(&kib[tenth..2 * tenth]), mean(&kib[kib.len() - tenth..]));
    // From the middle of the one tenth to the middle of the other.
    let between_s = 0.8 * 3600.0;
    let bytes_per_s = (late - early) * 1024.0 / between_s;
    ensure!(
        bytes_per_s < HOUR_BYTES_PER_S,
        "the coordinator's memory grows by {bytes_per_s:.0} bytes a second"
    );
    Ok(format!(
        "four agents sent {counted} requests in an hour, as nginx counted; the coordinator had {:.1} MiB after its first minutes \
         and {:.1} MiB at the end: {bytes_per_s:.0} bytes for each second of load",
        early / 1024.0,
        late / 1024.0
    ))
}

/// The most that may be kept of a second of load with one series, in bytes.
const HOUR_BYTES_PER_S: f64 = 4096.0;
/// Requests per second of the hour's load.
const HOUR_RATE: u64 = 400;

struct Lab {
    loadlab: PathBuf,
    dir: PathBuf,
}

impl Lab {
    /// Runs a load on one URL, and returns its summary.
    fn bench(&self, args: &[&str]) -> Result<Value> {
        self.bench_on(None, args)
    }

    /// As [`Self::bench`], on the generator's core if `cores` is given.
    fn bench_on(&self, cores: Option<&Cores>, args: &[&str]) -> Result<Value> {
        let out = self.dir.join("record");
        let _ = fs::remove_dir_all(&out);
        let mut command = program(&self.loadlab);
        command.arg("bench").args(args).args(["--quiet", "--json", "--no-watch", "--out"]).arg(&out);
        let ran = match cores {
            Some(cores) => measure(command, cores, &self.dir, LONGEST)?.0,
            None => captured(&mut command, LONGEST)?,
        };
        let summary = serde_json::from_str(&ran.stdout);
        summary.with_context(|| format!("loadlab bench {}: {}{}", args.join(" "), ran.status, ran.stderr))
    }

    /// Four agents, each in its own network namespace, against one nginx, which counts the requests.
    fn in_namespaces(&self) -> Result<String> {
        let networks = Networks::new(Bridge::Here, AGENTS)?;
        let server = Server::start_at(HERE, &Cores::choose()?, &self.dir)?;
        let agents = Agents::start(&networks, &self.loadlab, &self.dir)?;
        let before = server.counts()?.0;
        let page = format!("http://{}/128", server.address());
        let (rate, length) = (RATE.to_string(), format!("{LENGTH_S}s"));
        let swarm = agents.options();
        let is_over = AtomicBool::new(false);
        let swarm: Vec<&str> = swarm.iter().map(String::as_str).chain(["--allow-host", HERE]).collect();
        let (summary, late) = thread::scope(|scope| {
            let late = scope.spawn(|| self.late(&server, before, &is_over));
            let summary = self.bench(&[&[&page, "-r", &rate, "-d", &length][..], &swarm].concat());
            is_over.store(true, Ordering::Relaxed);
            (summary, late.join())
        });
        let (summary, late) = (summary?, late.map_err(|_| anyhow::anyhow!("a thread failed"))??);
        // The first reading includes its own request, and each later one adds one.
        let counted = server.counts()?.0 - before - 1 - late.len() as u64;
        drop(agents);
        let due = summary["requests"]["due"].as_u64().context("no requests")?;
        let ok = summary["requests"]["ok"].as_u64().context("no requests")?;
        let by_s = counted as f64 / LENGTH_S as f64;
        ensure!(
            (by_s / RATE as f64 - 1.0).abs() <= MOST.0,
            "{by_s:.1}/s instead of {RATE}/s: {}",
            summary["doubts"]
        );
        ensure!(due == RATE * LENGTH_S && counted == ok, "{due} due, {ok} ok, {counted} counted by nginx");
        let clock = summary["agents"].as_array().into_iter().flatten();
        let clock_ms = clock.filter_map(|a| a["clock_uncertainty_ms"].as_f64()).fold(0.0, f64::max);
        ensure!(late.len() >= LENGTH_S as usize / 2, "only {} seconds were seen", late.len());
        let latest_s = late.iter().copied().fold(0.0, f64::max);
        ensure!(latest_s < LATEST_S, "a second was merged {latest_s:.2} s after its end");
        Ok(format!(
            "{AGENTS} agents in network namespaces: nginx counted {by_s:.1}/s of {RATE}/s, clocks known to within \
             {clock_ms:.2} ms, and each second merged at most {latest_s:.2} s after its end"
        ))
    }

    /// How long after their ends seconds appear in the record during a load, calculated from how much more nginx has
    /// counted by then.
    fn late(&self, server: &Server, before: u64, is_over: &AtomicBool) -> Result<Vec<f64>> {
        let ticks = self.dir.join("record/cases/default/1/ticks.jsonl");
        let (mut late, mut known) = (Vec::new(), 0);
        sooner_or_later("the end of the load", LONGEST, OFTEN, || {
            let text = fs::read_to_string(&ticks).unwrap_or_default();
            let whole: Vec<Value> = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
            // The last ones appear when the load is over.
            if whole.len() > known && (whole.len() as u64) < LENGTH_S {
                let counted = server.counts()?.0 - before - 1 - late.len() as u64;
                let merged: u64 = whole.iter().filter_map(|tick| tick["ok"].as_u64()).sum();
                late.push(counted.saturating_sub(merged) as f64 / RATE as f64);
            }
            known = whole.len();
            Ok(is_over.load(Ordering::Relaxed).then_some(()))
        })?;
        Ok(late)
    }

    /// A thousand users of one process, in turn with four agents of 250 users each, against a server that takes a
    /// quarter of a second.
    fn divided(&self) -> Result<String> {
        let port = free_port()?;
        let mut command = program(&self.loadlab);
        command.args(["demo", "--port", &port, "--workers", "1000", "--wait", "250ms"]);
        let _demo = Ends(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        soon("the demo", QUICK, || Ok(std::net::TcpStream::connect(format!("127.0.0.1:{port}")).ok()))?;
        let url = format!("http://127.0.0.1:{port}/");
        // A thousand connections at once would overflow the accept queue, and the retries take seconds.
        let load = [url.as_str(), "-c", "1000", "--ramp", "1s", "-d", "5s"];
        let ratio = self.in_turn(PAIRS_OF_FOUR, &load, &["--swarm", "local:4"], None)?;
        ensure!(ratio.low <= 1.01 && ratio.high >= 0.99, "4 × 250 users make {ratio} of what 1,000 make");
        Ok(format!("4 × 250 users of agents make {ratio} of what 1,000 users of one process make"))
    }

    /// Throughput of one thread with and without an agent around it, in turn. The generator, and with it the agent, the
    /// coordinator and the NATS server, has the core that nginx leaves: whatever they use is taken from the load.
    fn cost_of_an_agent(&self) -> Result<String> {
        let cores = Cores::choose()?;
        let server = Server::start(&cores, &self.dir)?;
        let page = format!("http://{}/128", server.address());
        let load = [page.as_str(), "-c", "50", "-t", "1", "-d", "6s"];
        let ratio = self.in_turn(PAIRS_OF_ONE, &load, &["--swarm", "local:1"], Some(&cores))?;
        ensure!(
            ratio.low >= 1.0 - MOST.1,
            "one agent has {ratio} of the throughput of a run without: that it costs at most {:.0} % is not certain",
            100.0 * MOST.1
        );
        Ok(format!("one agent has {ratio} of the throughput of a run without"))
    }

    /// Goodput with the options divided by goodput without, pair by pair. The upper quartile of a load's seconds
    /// counts: other virtual machines slow single seconds down by a fifth, with agents or without, whereas an agent
    /// costs something every second. The first second is left out: it is slower.
    fn in_turn(&self, pairs: usize, load: &[&str], with: &[&str], cores: Option<&Cores>) -> Result<Ratio> {
        let once = |more: &[&str]| -> Result<Option<f64>> {
            self.bench_on(cores, &[load, more].concat())?;
            let ticks = fs::read_to_string(self.dir.join("record/cases/default/1/ticks.jsonl"))?;
            let ticks: Vec<Value> = ticks.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            Ok(upper_quartile(ticks.iter().filter_map(rate_of_a_second).collect()))
        };
        // A machine that stalls may leave no second except the first.
        let again = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let rate = |more: &[&str]| -> Result<f64> {
            for _ in 0..MOST_TRIES {
                if let Some(rate) = once(more)? {
                    return Ok(rate);
                }
                again[usize::from(!more.is_empty())].fetch_add(1, Ordering::Relaxed);
            }
            anyhow::bail!("no answer after the first second in {MOST_TRIES} loads, {more:?}");
        };
        let mut logs = Vec::new();
        for pair in 0..pairs {
            let first_is_with = pair % 2 == 0;
            let first = rate(if first_is_with { with } else { &[] })?;
            let second = rate(if first_is_with { &[] } else { with })?;
            let ratio = if first_is_with { first / second } else { second / first };
            println!("pair {}: {ratio:.4}", pair + 1);
            logs.push(ratio.ln());
        }
        let [without, with] = again.map(AtomicUsize::into_inner);
        println!("sent again: {without} without agents, {with} with them");
        // The agents' loads that are left out might be the ones in which agents cost most.
        ensure!(with <= without + pairs / 20, "{with} loads with agents were sent again, {without} without");
        Ok(Ratio::of(&logs))
    }
}

/// Goodput of a second of the load; `None` for the first second and for ticks that do not count.
fn rate_of_a_second(tick: &Value) -> Option<f64> {
    let (from_s, to_s) = (tick["from_s"].as_f64()?, tick["to_s"].as_f64()?);
    let counts = from_s >= 1.0 && to_s - from_s >= SECOND_S && tick["in_window"] == true;
    let rate = tick["ok"].as_f64()? / (to_s - from_s);
    (counts && rate > 0.0).then_some(rate)
}

/// The upper quartile: a quarter of the values reach it.
fn upper_quartile(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * 3).div_ceil(4).checked_sub(1)?).copied()
}

/// A ratio with its 95 % interval.
struct Ratio {
    mid: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    /// From the logarithms of at least six pairs: the median of the means of any two (Hodges and Lehmann 1963), with
    /// the interval that belongs to Wilcoxon's signed ranks. A machine that stalls spoils single pairs, which here
    /// weigh no more than others.
    fn of(logs: &[f64]) -> Ratio {
        let mut means: Vec<f64> = (0..logs.len())
            .flat_map(|i| logs[i..].iter().map(move |other| (logs[i] + other) / 2.0))
            .collect();
        means.sort_by(f64::total_cmp);
        let n = logs.len() as f64;
        // The normal approximation of the rank sum, rounded so that the interval is the wider one.
        let (middle, deviation) = (n * (n + 1.0) / 4.0, (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt());
        let outside = (middle - 0.5 - 1.96 * deviation).floor() as usize;
        Ratio {
            mid: means[means.len() / 2].exp(),
            low: means[outside].exp(),
            high: means[means.len() - 1 - outside].exp(),
        }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} % ({:.1}–{:.1} %)", self.mid * 100.0, self.low * 100.0, self.high * 100.0)
    }
}

/// Measures merging, without a network.
fn merging() -> Result<String> {
    let args =
        ["run", "--locked", "--release", "--quiet", "-p", "loadlab-swarm", "--example", "reduce", "--"];
    let ran = captured(cargo(&args).args(["1000", "10", "60"]), LONGEST * 3)?.ok("the example reduce")?;
    let numbers: Vec<f64> = ran.stdout.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [cpu_s, halfway_mb, end_mb, bytes, _] = numbers[..] else { anyhow::bail!("{}", ran.stdout) };
    ensure!(cpu_s < 1.0, "merging takes {cpu_s} s of CPU per second");
    ensure!(end_mb < halfway_mb * 1.5, "memory grows from {halfway_mb} to {end_mb} MB");
    Ok(format!(
        "merging 1,000 agents with 10 series each: {:.0} % of a core, {bytes:.0} bytes per report, {halfway_mb:.0} MB halfway, \
         {end_mb:.0} MB at the end",
        cpu_s * 100.0
    ))
}

fn free_port() -> Result<String> {
    Ok(std::net::TcpListener::bind("0.0.0.0:0")?.local_addr()?.port().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_was_disturbed_changes_little() {
        let even: Vec<f64> = (-4..=4).map(|n| f64::from(n) / 100.0).collect();
        let quiet = Ratio::of(&even);
        // Of nine signed ranks, sums of 5 and less are outside the 95 %: the interval runs from the sixth smallest of
        // 45 means to the sixth largest.
        assert!((quiet.mid - 1.0).abs() < 1e-9, "{quiet}");
        assert!(
            (quiet.low - (-0.025f64).exp()).abs() < 1e-9 && (quiet.high - 0.025f64.exp()).abs() < 1e-9,
            "{quiet}"
        );
        let disturbed = Ratio::of(&[&even[1..], &[-1.5]].concat());
        assert!((disturbed.mid - 1.0).abs() < 0.01, "{disturbed}");
    }

    #[test]
    fn whole_seconds_after_the_first_count() {
        let tick = |from_s: f64, to_s: f64, in_window: bool, ok: u64| {
            rate_of_a_second(
                &serde_json::json!({ "from_s": from_s, "to_s": to_s, "in_window": in_window, "ok": ok }),
            )
        };
        assert_eq!(tick(0.0, 1.0, true, 5), None, "the first");
        assert_eq!(tick(1.0, 1.3, true, 5), None, "part of one");
        assert_eq!(tick(6.0, 7.0, false, 5), None, "after the load");
        assert_eq!(tick(2.0, 3.0, true, 0), None, "stalled");
        assert_eq!(tick(2.0, 4.0, true, 500), Some(250.0));
    }

    #[test]
    fn a_quarter_reaches_the_upper_quartile() {
        assert_eq!(upper_quartile(vec![]), None);
        assert_eq!(upper_quartile(vec![3.0]), Some(3.0));
        assert_eq!(upper_quartile(vec![4.0, 1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(upper_quartile(vec![5.0, 4.0, 1.0, 3.0, 2.0]), Some(4.0));
    }

    #[test]
    fn a_ratio_has_an_interval() {
        let ratio = Ratio::of(&[0.0, 0.02, -0.02, 0.01, -0.01, 0.0, 0.0, 0.0]);
        assert_eq!(ratio.to_string(), "100.0 % (99.0–101.0 %)");
    }
}
