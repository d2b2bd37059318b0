//! edge-tiers' own assertions: limits took effect, throttling was counted, caches answered what they may, and wrk's
//! block shows what the record contains. How much slower a limit makes the system is a finding and is not asserted,
//! beyond what the limit itself implies.

use std::fs;

use anyhow::Result;

use super::record::Trial;
use super::tables::{Table, shows};
use super::{Claims, Record};

const BALANCER: &str = "load-balancer";
const EDGES: [&str; 4] = ["edge1", "edge2", "edge3", "edge4"];
const BACKENDS: [&str; 2] = ["backend1", "backend2"];
const TAGS: [&str; 3] = ["popular", "rare", "search"];
/// CPU usage, in percent, that a limit of 1 % may show: the limit is enforced in periods of 100 ms, of which a few
/// seconds contain few …
const ONE_PERCENT: f64 = 1.2;
/// … and charged by ticks: each core may run a process this far beyond its quota, in seconds, before stopping it.
const OVERRUN_S: f64 = 0.02;

/// Checks the record and the report.
///
/// # Errors
/// The report cannot be read.
pub fn check(record: &Record, claims: &mut Claims) -> Result<()> {
    for trial in &record.trials {
        counts(trial, claims);
        for name in [BALANCER].iter().chain(&EDGES).chain(&BACKENDS) {
            watched(trial, name, claims);
        }
        limited(trial, &[BALANCER], "balancer", claims);
        limited(trial, &EDGES, "edge", claims);
    }
    slower(record, claims);
    let report = fs::read_to_string(record.dir.join("report.md"))?;
    for trial in &record.trials {
        wrk(trial, &report, claims);
    }
    Ok(())
}

/// Compares wrk's block in the report with the summary.
fn wrk(trial: &Trial, report: &str, claims: &mut Claims) {
    const TIMES: [(&str, &str); 7] = [
        ("avg", "mean"),
        ("stdev", "stdev"),
        ("max", "max"),
        ("50 %", "p50"),
        ("75 %", "p75"),
        ("90 %", "p90"),
        ("99 %", "p99"),
    ];
    let failed = |kinds: &[&str]| kinds.iter().map(|kind| trial.number(&format!("failures/{kind}"))).sum();
    let others = [
        ("± stdev", 100.0 * trial.number("response_ms/within_stdev")),
        ("ok/s avg", trial.number("rate_per_s/ok")),
        ("ok/s stdev", trial.number("rate_per_s/ok_stdev")),
        ("ok/s max", trial.number("rate_per_s/ok_max")),
        ("connect errors", failed(&["connect", "dns", "tls"])),
        ("read, write errors", failed(&["reset", "truncated", "protocol"])),
        ("timeouts", failed(&["timeout"])),
    ];
    let table = Table::after(report, "\n**In wrk's layout**\n");
    let times = TIMES.map(|(column, name)| (column, trial.time_ms(name)));
    for (column, value) in times.into_iter().chain(others) {
        let cell = table.as_ref().and_then(|table| table.cell(&trial.case, column));
        // With few requests, or some that never ended, not every value is known.
        let holds = if value.is_nan() { cell.is_some() } else { shows(cell, value) };
        claims.claim(holds, || {
            format!("{}: wrk's layout shows {cell:?} as `{column}`, not {value}", trial.case)
        });
    }
}

/// Every kind of request was sent; searches reached a backend and most of the rest did not.
fn counts(trial: &Trial, claims: &mut Claims) {
    let of_tag = |tag: &str| format!("by_tag/{tag}/requests/ok");
    let sum = TAGS.map(of_tag).join(" + ");
    for served in TAGS.map(of_tag).iter().chain(&BACKENDS.map(|name| format!("probes/{name}_served/last"))) {
        trial.hold(claims, &[&format!("0 < {served}")]);
    }
    let served = BACKENDS.map(|name| format!("probes/{name}_served/last")).join(" + ");
    let all = [
        &format!("{sum} == requests/ok"),
        &format!("by_tag/search/requests/ok <= {served} < {sum}"),
        "5 < concurrency_mean <= 10",
    ];
    trial.hold(claims, &all);
}

/// All values of `docker stats` are known for a component, except those of its network, which it has only in a
/// namespace.
fn watched(trial: &Trial, name: &str, claims: &mut Claims) {
    for figure in ["cpu_percent/mean", "memory_bytes/mean", "block_bytes/read", "block_bytes/written"] {
        trial.hold(claims, &[&format!("0 <= components/{name}/{figure}")]);
    }
    // Master and worker; with a cache also its manager, and in the first minute its loader.
    let least = if EDGES.contains(&name) { 3 } else { 2 };
    trial.hold(claims, &[&format!("{least} <= components/{name}/pids_max")]);
}

/// A tier has the limits of its case, and they were enforced.
fn limited(trial: &Trial, names: &[&str], tier: &str, claims: &mut Claims) {
    let (cpu, memory) = (trial.value(&format!("{tier}_cpu")), trial.value(&format!("{tier}_memory")));
    let other = if tier == "edge" { "balancer_cpu" } else { "edge_cpu" };
    for name in names {
        let what = format!("{}: {name}", trial.case);
        let number = |path: &str| trial.number(&format!("components/{name}/{path}"));
        let none = number("cpu_limit").is_nan();
        claims.same(format!("{what}: is not limited in CPU"), none, cpu == "none");
        if cpu == "1%" {
            let limit = number("cpu_limit");
            claims.claim((limit - 0.01).abs() < 1e-6, || format!("{what}: its CPU limit is {limit} cores"));
            let window_s = trial.number("window/to_s") - trial.number("window/from_s");
            let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            let most = ONE_PERCENT + 100.0 * cores * OVERRUN_S / window_s;
            let used = [
                &format!("components/{name}/cpu_percent/mean <= {most}"),
                &format!("0 <= components/{name}/throttled_s"),
            ];
            trial.hold(claims, &used.map(String::as_str));
        }
        let none = number("memory_bytes/limit").is_nan();
        claims.same(format!("{what}: is not limited in memory"), none, memory == "none");
        if memory != "none" {
            let mib = memory.trim_end_matches("MiB");
            let used = [
                &format!("components/{name}/memory_bytes/limit == 1048576 * {mib}"),
                &format!("components/{name}/memory_bytes/max <= components/{name}/memory_bytes/limit"),
                &format!("components/{name}/oom_kills == 0"),
            ];
            trial.hold(claims, &used.map(String::as_str));
        }
    }
    // If only this tier is limited, it is the bottleneck.
    let stopped_s: f64 = names.iter().map(|n| trial.number(&format!("components/{n}/throttled_s"))).sum();
    match (cpu, trial.value(other)) {
        ("none", _) => claims.same(format!("{}: {tier} was stopped, s", trial.case), stopped_s, 0.0),
        (_, "none") => claims.claim(stopped_s > 0.0, || format!("{}: {tier} was never stopped", trial.case)),
        _ => {}
    }
}

/// Edges that used three times as much CPU without a limit cannot do as much work with it.
fn slower(record: &Record, claims: &mut Claims) {
    let of = |name: &str| record.trials.iter().find(|t| t.case == name);
    let (Some(control), Some(capped)) = (of("control"), of("edges 1% CPU")) else {
        claims.claim(false, || "no case `control` or `edges 1% CPU`".to_owned());
        return;
    };
    let used: f64 = EDGES.iter().map(|n| control.number(&format!("components/{n}/cpu_percent/mean"))).sum();
    let (free, held) = (control.number("rate_per_s/ok"), capped.number("rate_per_s/ok"));
    claims.claim(used < 12.0 || held < free, || {
        format!("edges used {used} % in `control`; {free}/s there, and {held}/s at 1 % each")
    });
}
