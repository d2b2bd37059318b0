//! edge-tiers' own assertions: limits took, what they stop was counted, caches answered what they may, and the
//! columns of `docker stats` and wrk's block are there. How much slower a limit makes the system is a finding and
//! not asserted, beyond what the limit itself says.

use std::fs;

use anyhow::Result;

use super::record::Trial;
use super::{Claims, Lab, Record};

const BALANCER: &str = "load-balancer";
const EDGES: [&str; 4] = ["edge1", "edge2", "edge3", "edge4"];
const BACKENDS: [&str; 2] = ["backend1", "backend2"];
const TAGS: [&str; 3] = ["popular", "rare", "search"];
const USERS: f64 = 10.0;
const MIB: f64 = 1_048_576.0;
/// What a limit of 1 % may measure: it is enforced in periods of 100 ms, of which a few seconds have few …
const ONE_PERCENT: f64 = 1.2;
/// … and charged by ticks: each core may run a process so far beyond its quota, in seconds, before it is stopped there.
const OVERRUN_S: f64 = 0.02;

/// Looks at the record and the report.
///
/// # Errors
/// The report cannot be read.
pub fn check(_: &Lab, record: &Record, claims: &mut Claims) -> Result<()> {
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
    let columns = ["CPU %", "memory mean", "memory max / limit", "memory %", "block read/written", "pids"];
    let wrk =
        ["avg", "stdev", "max", "50 %", "75 %", "90 %", "99 %", "connect errors", "timeouts", "not 2xx, 3xx"];
    for column in columns.iter().chain(&wrk) {
        claims.claim(report.contains(&format!("| {column} |")), || {
            format!("no column `{column}` in report.md")
        });
    }
    let scratch = record.dir.join("scratch");
    claims.claim(!scratch.exists(), || format!("{} was left behind", scratch.display()));
    Ok(())
}

/// Every kind of request was sent; searches reached a backend and most of the rest did not.
fn counts(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    let ok = |tag: &str| trial.number(&format!("/by_tag/{tag}/requests/ok"));
    let sum: f64 = TAGS.iter().map(|tag| ok(tag)).sum();
    claims.same(format!("{case}: ok of all tags"), sum, trial.number("/requests/ok"));
    for tag in TAGS {
        claims.claim(ok(tag) > 0.0, || format!("{case}: no answer to `{tag}`"));
    }
    let served = BACKENDS.map(|name| trial.number(&format!("/probes/{name}_served/last")));
    claims.claim(served.iter().all(|n| *n > 0.0), || format!("{case}: backends served {served:?}"));
    let served: f64 = served.iter().sum();
    claims.claim(ok("search") <= served && served < sum, || {
        format!("{case}: backends served {served} of {sum}, {} of them searches", ok("search"))
    });
    let concurrency = trial.number("/concurrency_mean");
    claims.claim(concurrency > USERS / 2.0 && concurrency <= USERS, || {
        format!("{case}: {concurrency} of {USERS} users had a request under way")
    });
}

/// Everything that `docker stats` would tell of it is known; the network is its own only in a namespace.
fn watched(trial: &Trial, name: &str, claims: &mut Claims) {
    for figure in
        ["cpu_percent/mean", "memory_bytes/mean", "block_bytes/read", "block_bytes/written", "pids_max"]
    {
        let value = trial.number(&format!("/components/{name}/{figure}"));
        claims.claim(value >= 0.0, || format!("{}: {figure} of {name} is not known", trial.case));
    }
    // Master and worker; where there is a cache its manager, and in the first minute its loader.
    let least = if EDGES.contains(&name) { 3.0 } else { 2.0 };
    let pids = trial.number(&format!("/components/{name}/pids_max"));
    claims.claim(pids >= least, || format!("{}: {pids} processes of {name}", trial.case));
}

/// The limits of a tier are those of its case, and held.
fn limited(trial: &Trial, names: &[&str], tier: &str, claims: &mut Claims) {
    let (cpu, memory) = (trial.value(&format!("{tier}_cpu")), trial.value(&format!("{tier}_memory")));
    let other = if tier == "edge" { "balancer_cpu" } else { "edge_cpu" };
    for name in names {
        let what = format!("{}: {name}", trial.case);
        let number = |path: &str| trial.number(&format!("/components/{name}/{path}"));
        let (used, stopped_s) = (number("cpu_percent/mean"), number("throttled_s"));
        let none = number("cpu_limit").is_nan();
        claims.same(format!("{what}: is not limited in CPU"), none, cpu == "none");
        if cpu == "1%" {
            let window_s = trial.number("/window/to_s") - trial.number("/window/from_s");
            let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            let most = ONE_PERCENT + 100.0 * cores * OVERRUN_S / window_s;
            claims.claim(used <= most, || format!("{what}: used {used} % of a core under a limit of 1 %"));
            claims.claim(stopped_s >= 0.0, || format!("{what}: its throttled time is not known"));
        }
        let (limit, max) = (number("memory_bytes/limit"), number("memory_bytes/max"));
        claims.same(format!("{what}: is not limited in memory"), limit.is_nan(), memory == "none");
        if memory != "none" {
            let wanted: f64 = memory.trim_end_matches("MiB").parse().unwrap_or(f64::NAN);
            claims.same(format!("{what}: limit of memory"), limit / MIB, wanted);
            claims.claim(max <= limit, || format!("{what}: {max} bytes under a limit of {limit}"));
            claims.claim(number("oom_kills") >= 0.0, || format!("{what}: kills for memory are not known"));
        }
    }
    // A tier that is limited alone is what the others wait for.
    let stopped_s: f64 = names.iter().map(|n| trial.number(&format!("/components/{n}/throttled_s"))).sum();
    match (cpu, trial.value(other)) {
        ("none", _) => claims.same(format!("{}: {tier} was stopped, s", trial.case), stopped_s, 0.0),
        (_, "none") => claims.claim(stopped_s > 0.0, || format!("{}: {tier} was never stopped", trial.case)),
        _ => {}
    }
}

/// Edges that used three times as much without a limit cannot do as much under it.
fn slower(record: &Record, claims: &mut Claims) {
    let of = |name: &str| record.trials.iter().find(|t| t.case == name);
    let (Some(control), Some(capped)) = (of("control"), of("edges 1% CPU")) else {
        claims.claim(false, || "no case `control` or `edges 1% CPU`".to_owned());
        return;
    };
    let used: f64 = EDGES.iter().map(|n| control.number(&format!("/components/{n}/cpu_percent/mean"))).sum();
    let (free, held) = (control.number("/rate_per_s/ok"), capped.number("/rate_per_s/ok"));
    claims.claim(used < 12.0 || held < free, || {
        format!("edges used {used} % in `control`; {free}/s there, and {held}/s at 1 % each")
    });
}
