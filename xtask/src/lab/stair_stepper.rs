//! stair-stepper's own assertions: each case ran on the allocator it names, and the lab's subject (resident and live
//! bytes over time) was watched. Which allocator did better is a finding and is not asserted.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Claims, Record};
use crate::command::{Ends, program};
use crate::peers::server::get;

/// Requests in each case, in two batches.
pub const REQUESTS: u64 = BATCHES as u64 * 128;
const BATCHES: usize = 2;
/// Allocators; each has a case and a build of the service.
pub(super) const ALLOCATORS: [&str; 3] = ["system", "jemalloc", "mimalloc"];
/// Bytes that are live at the peak, at least, for each request per second: each holds some 13 MB, its body parsed and
/// copied, while it waits for 0.45 s. Half of that.
const HELD_BYTES: f64 = 3e6;
/// How long the service sleeps before it answers.
const SLEEP_MS: f64 = 450.0;
/// Approximate size of a medium body, in bytes.
const BODY_BYTES: f64 = 590_000.0;
/// Time limit for a service to report where it listens, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks the record, and asks the build of each case which allocator it has.
///
/// # Errors
/// A build does not answer.
pub fn check(record: &Record, claims: &mut Claims) -> Result<()> {
    let mut cases: Vec<_> = record.trials.iter().map(|t| t.value("allocator")).collect();
    cases.sort_unstable();
    claims
        .claim(cases == ["jemalloc", "mimalloc", "system"], || format!("allocators of the cases: {cases:?}"));
    for trial in &record.trials {
        claims.same(format!("{}: size", trial.case), trial.value("size"), "medium");
        let all = [
            &format!("statuses/201 == {REQUESTS}"),
            &format!("by_tag/medium/requests/ok == {REQUESTS}"),
            &format!("{BODY_BYTES} * {REQUESTS} < bytes/sent"),
            &format!("{SLEEP_MS} <= response_ms/min"),
            &format!("{BODY_BYTES} < probes/live/max < probes/resident/max"),
            &format!("{HELD_BYTES} * rate_per_s/ok < probes/live/max"),
            // After the load.
            &format!("probes/live/last < {BODY_BYTES}"),
        ];
        trial.hold(claims, &all.map(String::as_str));
        let batches: Vec<&Value> = trial.events("load_ended").collect();
        claims.same(format!("{}: batches", trial.case), batches.len(), BATCHES);
        claims.claim(batches.iter().all(|batch| batch["how"] == "complete"), || {
            format!("{}: how its batches ended: {batches:?}", trial.case)
        });
        // Memory kept is what is resident after the drain, and was read then.
        let (live, resident) = (trial.number("probes/live/max"), trial.number("probes/resident/max"));
        for (figure, wanted) in [
            ("memory kept", trial.number("components/service/memory_bytes/last")),
            ("peak memory", trial.number("components/service/memory_bytes/max")),
            ("peak ÷ live", resident / live),
        ] {
            let is = trial.figure(figure).unwrap_or(f64::NAN);
            claims.same(format!("{}: {figure}", trial.case), is, wanted);
        }
        trial.hold(claims, &["probes/live/last < components/service/memory_bytes/last"]);
        // Means of the whole load would be equal.
        let [first, second] = ["batch 1", "batch 2"].map(|name| trial.figure(name).unwrap_or(f64::NAN));
        claims.claim(first != second, || format!("{}: both batches have a mean of {first}", trial.case));
        for batch in 1..=BATCHES as u64 {
            let is = trial.figure(&format!("batch {batch}")).unwrap_or(f64::NAN);
            let samples = trial.memory_of_batch("service", batch);
            claims.claim(samples.contains(&is), || {
                format!("{}: mean memory of batch {batch}: {is}, its samples are {samples:?}", trial.case)
            });
        }
    }
    for trial in &record.trials {
        let allocator = trial.value("allocator");
        let answer = memory_of(&record.lab(), allocator)?;
        let says = answer["allocator"].as_str().unwrap_or_default();
        claims.same(format!("the build for {allocator} says of itself"), says, allocator);
        let own = answer["jemalloc"]["allocated_bytes"].as_u64().is_some_and(|bytes| bytes > 0);
        claims.claim(own == (allocator == "jemalloc"), || {
            format!("{allocator}: jemalloc's own figures: {own}")
        });
    }
    Ok(())
}

/// The answer of a build of the service to `GET /memory`.
fn memory_of(lab: &Path, allocator: &str) -> Result<Value> {
    let binary = lab.join(format!("service/target/{allocator}/stair-stepper"));
    let mut command = program(&binary);
    command.args(["--host", "127.0.0.1", "--port", "0"]).stdout(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
    let mut service = Ends(child);
    let stdout = service.0.stdout.take().context("no standard output")?;
    let (sender, said) = channel();
    thread::spawn(move || {
        let mut line = String::new();
        sender.send(BufReader::new(stdout).read_line(&mut line).map(|_| line))
    });
    let line = said
        .recv_timeout(PATIENCE)
        .with_context(|| format!("{} does not say where it listens", binary.display()))??;
    let address = line.trim().rsplit("http://").next().unwrap_or_default();
    let answer = get(address, "/memory").with_context(|| format!("{} said `{line}`", binary.display()))?;
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    serde_json::from_str(body).with_context(|| format!("{}: {answer}", binary.display()))
}
