//! trade-processor's own assertions: every valid message that was accepted is stored once, whatever was killed
//! meanwhile; the live page in a real browser shows the same count, and is updated without polling; nothing outlives a
//! run, not even a run that is killed. How fast it was is a finding and is not asserted.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::claims::number;
use super::live_page;
use super::record::Trial;
use super::{Claims, Lab, Record, loadlab, members, service_tests};
use crate::command::{Ends, program, soon};

#[path = "../../../crates/loadlab/tests/common/ports.rs"]
mod ports;

const WORKER_KILLED: &str = "worker killed";
const ALL_WELL: &str = "all well";
/// In this case nothing listens for a while, so requests fail as fast as they are made.
const CONSUMER_KILLED: &str = "consumer killed";
const CONSUMER: &str = "consumer";
/// The component that each case kills and restarts.
const KILLED: [(&str, &str); 5] = [
    (WORKER_KILLED, "worker1"),
    ("storage killed", "storage"),
    ("Redis killed", "redis"),
    ("RabbitMQ killed", "rabbitmq"),
    (CONSUMER_KILLED, CONSUMER),
];
/// Time limit for a run to reach the awaited point, on a busy machine.
const LONGEST: Duration = Duration::from_secs(300);
/// Time limit for the guardian to stop a system after a kill.
const GUARDIAN: Duration = Duration::from_secs(30);

/// Checks the record.
///
/// # Errors
/// Never fails.
pub fn check(record: &Record, claims: &mut Claims) -> Result<()> {
    for trial in &record.trials {
        counts(trial, claims);
        killed(trial, claims);
    }
    Ok(())
}

/// Runs the service's own tests, and opens the live page in a browser.
///
/// # Errors
/// Tests fail, a run cannot be watched, or a file cannot be read.
pub fn beside(lab: &Lab, claims: &mut Claims) -> Result<()> {
    for name in ["trade", "outages"] {
        service_tests(&format!("labs/trade-processor/service/src/{name}.test.js"), claims)?;
    }
    watched(lab, claims)
}

/// What was accepted equals what was stored, kind by kind.
fn counts(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    claims.claim(trial.summary["loss"]["by_id"] == true, || format!("{case}: the loss is not counted by id"));
    let [valid, invalid] =
        ["by_tag/valid/requests/ok", "by_tag/not-json/requests/ok + by_tag/wrong-field/requests/ok"];
    // A message that got no answer, or was refused while RabbitMQ was down, may still be stored.
    let unanswered = "requests/failed + requests/in_flight";
    let (stored, dropped) = ("probes/stored/last", "probes/invalid/last");
    let all = [
        "0 < by_tag/valid/requests/ok",
        "0 < by_tag/not-json/requests/ok",
        "0 < by_tag/wrong-field/requests/ok",
        &format!("{valid} + {invalid} == requests/ok == statuses/204"),
        // A connection for each request.
        "requests/ok <= connections/opened",
        &format!("loss/accepted == {valid}"),
        "loss/lost_max == 0",
        "loss/doubled == 0",
        "0 <= drain_s",
        "probes/queue/last == 0",
        &format!("{stored} + {dropped} == probes/handled/last"),
        &format!("{valid} <= {stored} <= {valid} + {unanswered}"),
        &format!("{invalid} <= {dropped} <= {invalid} + {unanswered}"),
        &format!("loss/persisted_distinct == {stored}"),
    ];
    trial.hold(claims, &all);
}

/// Only the case's component was killed, and it came back.
fn killed(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    let acted = trial.summary["actions"].as_array().map_or(&[][..], Vec::as_slice);
    let reported: Vec<&str> = acted.iter().filter_map(|a| a["what"].as_str()).collect();
    let wanted: Vec<String> = match KILLED.iter().find(|(name, _)| name == case) {
        Some((_, component)) => vec![format!("kill {component}"), format!("restart {component}")],
        None => Vec::new(),
    };
    claims.claim(reported == wanted, || format!("{case}: {reported:?} was done, should be {wanted:?}"));
    claims
        .claim(acted.iter().all(|a| a["error"].is_null()), || format!("{case}: an event failed: {acted:?}"));
    if case == CONSUMER_KILLED {
        trial.hold(claims, &["0 < requests/failed"]);
        let accepted = trial.ok_after(&format!("restart {CONSUMER}"));
        claims.claim(accepted != Some(0), || format!("{case}: nothing was accepted once it was back"));
    } else {
        // While anything else is away, the endpoint holds messages for longer than that takes.
        trial.hold(claims, &["requests/failed == 0"]);
    }
    if case == WORKER_KILLED {
        // The one that came back takes messages again, as the other does.
        trial.hold(claims, &["probes/consumers/last == 2"]);
    }
    if wanted.is_empty() {
        claims.same("the case without a kill", case.as_str(), ALL_WELL);
    }
}

/// Two more trials: in the first, a browser has the page open until the system is down; the second is killed.
fn watched(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let out = lab.record_dir().with_extension("watched");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    // Below the ports that the kernel gives to the other components and to their connections, which come first.
    let port = ports::unused().port();
    let mut command = program(loadlab());
    command.args(["run", "labs/trade-processor/plan.yaml", "--profile", "quick", "--quiet", "--trials", "2"]);
    // Long enough to open the page, also if the load leaves the browser little of the machine.
    command.args(["--set", "load.duration=12s"]);
    command.args(["--case", ALL_WELL, "--set", &format!("system.components.frontend.port={port}"), "--out"]);
    command.arg(&out).stdout(Stdio::null());
    let start = || command.spawn().context("loadlab").map(Ends);
    let (run, seen, console) = live_page::watch(port, &out.with_extension("png"), start)?;
    let trial = |number: u32| out.join(format!("cases/all-well/{number}"));
    let summary = soon("the first trial's summary", LONGEST, || {
        let text = fs::read_to_string(trial(1).join("summary.json")).unwrap_or_default();
        Ok(serde_json::from_str::<Value>(&text).ok())
    })?;
    let accepted = number(&summary, "by_tag/valid/requests/ok");
    claims.hold("the page", &seen, &format!("last == {accepted}"));
    for assertion in ["3 <= updates", "streams <= 1", "asked == 0", "20 < countries", "10 < ribbons"] {
        claims.hold("the page", &seen, assertion);
    }
    claims.claim(console.is_empty(), || format!("the page's console: {console:?}"));
    soon("the second trial's load", LONGEST, || {
        let events = fs::read_to_string(trial(2).join("events.jsonl")).unwrap_or_default();
        Ok(events.contains("\"load_started\"").then_some(()))
    })?;
    let before = members(&out)?;
    for name in ["beam.smp", "epmd", "redis-server", "node"] {
        claims.claim(before.iter().any(|m| m.contains(name)), || format!("no {name} among {before:?}"));
    }
    drop(run);
    let gone =
        soon("the end of a killed run's system", GUARDIAN, || Ok(members(&out).ok().filter(Vec::is_empty)));
    claims.claim(gone.is_ok(), || format!("outlived loadlab: {:?}", members(&out)));
    Ok(())
}
