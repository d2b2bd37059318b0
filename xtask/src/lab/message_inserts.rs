//! message-inserts' own assertions: for each way of inserting, accepted, stored and lost add up by id, the raw inserts
//! have their measurements, and figures derived from several cases match their records. Which way is faster, and how
//! much a killed server loses, are findings and are not asserted.

use anyhow::Result;
use serde_json::Value;

use super::record::{Trial, text};
use super::{Claims, Lab, Record, reports, service_tests};

/// Requests in each case that is not ended by a kill.
const REQUESTS: u64 = 3000;
/// Milliseconds per second of a load's clock, and the tolerance for rounding.
const CLOSE: f64 = 1e-6;

/// Checks every trial, and the report's figures derived from several cases.
///
/// # Errors
/// The report cannot be made.
pub fn check(record: &Record, claims: &mut Claims) -> Result<()> {
    for trial in &record.trials {
        let case = trial.case.as_str();
        // A server that is restarted refuses requests for a while, but stores what it has accepted.
        let is_killed = case.ends_with("killed") || case.ends_with("restarted");
        if !trial.is_brief() {
            // With Docker it is a service named `mongo`.
            let mongo = "components/mongo-stand-in/cpu_percent/mean|components/mongo/cpu_percent/mean";
            trial.hold(claims, &[&format!("0 < {mongo}"), "0 < components/server/memory_bytes/max"]);
        }
        // The time at which everything was stored is known.
        trial.hold(claims, &["0 <= drain_s"]);
        acted(trial, is_killed, claims);
        match is_killed {
            true => trial.hold(claims, &["0 < requests/failed"]),
            false => trial.hold(claims, &["requests/failed == 0", &format!("requests/due == {REQUESTS}")]),
        }
        match () {
            // A case without a database stores nothing, and can lose nothing.
            () if case.starts_with("empty") => {
                trial.hold(claims, &["probes/stored/max == 0"]);
                claims
                    .claim(trial.summary["loss"].is_null(), || format!("{case}: loss of what is not stored"));
            }
            () if case.starts_with("raw") => raw(trial, claims),
            () => lost(trial, is_killed, claims),
        }
    }
    derived(record, claims)
}

/// Runs the service's own tests.
///
/// # Errors
/// The tests fail.
pub fn beside(_: &Lab, claims: &mut Claims) -> Result<()> {
    service_tests("labs/message-inserts/service/messages.test.js", claims)
}

/// What the plan did to the server: killed it or restarted it, once, as the case's name has it.
fn acted(trial: &Trial, is_killed: bool, claims: &mut Claims) {
    let case = &trial.case;
    let acted = trial.summary["actions"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted = match (is_killed, case.ends_with("killed")) {
        (true, true) => &["kill server"][..],
        (true, false) => &["restart server"],
        (false, _) => &[],
    };
    let did: Vec<&str> = acted.iter().filter_map(|action| action["what"].as_str()).collect();
    claims.claim(did == wanted && acted.iter().all(|action| action["error"].is_null()), || {
        format!("{case}: {acted:?} was done, should be {wanted:?}")
    });
}

/// The program's requests equal the stored ones, and the program was watched.
fn raw(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    claims.claim(trial.is_command(), || format!("{case}: no program made its load"));
    let all = [
        &format!("requests/ok == {REQUESTS}"),
        &format!("probes/stored/last == {REQUESTS}"),
        "0 < components/raw/cpu_s",
        &format!(
            "-{CLOSE} * requests/ok <= rate_per_s/ok * elapsed_s - requests/ok <= {CLOSE} * requests/ok"
        ),
    ];
    trial.hold(claims, &all);
    for unreported in ["response_ms/p50", "response_ms/max", "availability"] {
        let value = trial.number(unreported);
        claims.claim(value.is_nan(), || format!("{case}: {unreported} is {value}, and nobody measured it"));
    }
}

/// Accepted, stored and lost are consistent, by id.
fn lost(trial: &Trial, is_killed: bool, claims: &mut Claims) {
    let by_id = trial.summary["loss"]["by_id"] == true;
    claims.claim(by_id, || format!("{}: its loss is not counted by id", trial.case));
    let all = [
        "0 < loss/accepted == requests/ok",
        "loss/lost_min == loss/lost_max",
        "loss/doubled == 0",
        // A request that got no answer may be stored, but does not count as accepted.
        "loss/accepted - loss/persisted_distinct <= loss/lost_max",
        "loss/lost_max <= loss/accepted - loss/persisted_distinct + loss/unanswered",
    ];
    trial.hold(claims, &all);
    if !is_killed || trial.case.starts_with("sync") || trial.case.ends_with("restarted") {
        trial.hold(claims, &["loss/lost_max == 0"]);
    }
    if trial.case.starts_with("bounded") {
        trial.hold(claims, &["loss/lost_max <= 2000"]);
    }
    if !is_killed {
        trial.hold(claims, &[&format!("probes/stored/last == {REQUESTS}")]);
    }
    // A group is stored once messages stop coming, which they had not; and inserts that nobody awaits are slower than
    // requests. What was accepted by then is lost.
    if is_killed
        && ["grouped, server killed", "async", "bounded"].iter().any(|way| trial.case.starts_with(way))
    {
        trial.hold(claims, &["0 < loss/lost_min"]);
    }
}

/// Figures derived from several cases, computed here from the cases' summaries: name, value, and what it is compared
/// with.
const DERIVED: [(&str, &[Part], &[Part]); 13] = [
    ("grouped / its parts", &GROUPED, &[("empty POST", ELAPSED), ("raw insert, grouped", ELAPSED)]),
    ("grouped / #2 + #4", &GROUPED, &[("empty POST", ELAPSED), ("raw insert, pool of 100", ELAPSED)]),
    (
        "sync / its parts",
        &[("sync, pool of 100", ELAPSED)],
        &[("empty POST", ELAPSED), ("raw insert, pool of 100", ELAPSED)],
    ),
    ("sync / grouped, HTTP", &[("sync, pool of 5", ELAPSED)], &[("grouped", ELAPSED)]),
    ("sync / grouped, stored", &[("sync, pool of 5", ELAPSED), ("sync, pool of 5", DRAIN)], &GROUPED),
    (
        "sync, pool of 100 / grouped, stored",
        &[("sync, pool of 100", ELAPSED), ("sync, pool of 100", DRAIN)],
        &GROUPED,
    ),
    (
        "async / sync, pool of 5, stored",
        &[("async, pool of 5", ELAPSED), ("async, pool of 5", DRAIN)],
        &[("sync, pool of 5", ELAPSED), ("sync, pool of 5", DRAIN)],
    ),
    (
        "async / sync, pool of 100, stored",
        &[("async, pool of 100", ELAPSED), ("async, pool of 100", DRAIN)],
        &[("sync, pool of 100", ELAPSED), ("sync, pool of 100", DRAIN)],
    ),
    ("raw/s, pool of 100 / 1", &[("raw insert, pool of 100", RATE)], &[("raw insert, 1 connection", RATE)]),
    ("sync/s, pool of 100 / 5", &[("sync, pool of 100", RATE)], &[("sync, pool of 5", RATE)]),
    ("raw/s, pool of 100 / 5", &[("raw insert, pool of 100", RATE)], &[("raw insert, pool of 5", RATE)]),
    ("memory, grouped / POST", &[("grouped", MEMORY)], &[("empty POST", MEMORY)]),
    ("memory, async / POST", &[("async, pool of 100", MEMORY)], &[("empty POST", MEMORY)]),
];
/// A case, and a number of its summary: path and factor.
type Part = (&'static str, (&'static str, f64));
const GROUPED: [Part; 2] = [("grouped", ELAPSED), ("grouped", DRAIN)];
const ELAPSED: (&str, f64) = ("elapsed_s", 1e3);
const DRAIN: (&str, f64) = ("drain_s", 1e3);
const RATE: (&str, f64) = ("rate_per_s/ok", 1.0);
const MEMORY: (&str, f64) = ("components/server/memory_bytes/max", 1.0);

/// Checks the derived figures, among them the claim of the source document: each side is the sum of the cases' own
/// numbers, and the ratio is that of the two sums.
fn derived(record: &Record, claims: &mut Claims) -> Result<()> {
    let report: Value = serde_json::from_str(&reports::report(record, "json")?)?;
    let all = report["derived"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<String> = all.iter().map(|figure| text(figure, "/name")).collect();
    claims.claim(names == DERIVED.map(|(name, _, _)| name), || format!("derived figures: {names:?}"));
    let sum = |parts: &[Part]| -> f64 {
        let of = |(case, (path, factor)): &Part| {
            let trial = record.trials.iter().find(|trial| trial.case == *case);
            trial.map_or(f64::NAN, |trial| trial.number(path) * factor)
        };
        parts.iter().map(of).sum()
    };
    for (figure, (name, value, against)) in all.iter().zip(DERIVED) {
        let (value, against) = (sum(value), sum(against));
        for (key, wanted) in [("value", value), ("against", against), ("ratio", value / against)] {
            let assertion = format!("-{CLOSE} * {wanted} <= {key} - {wanted} <= {CLOSE} * {wanted}");
            claims.hold(name, figure, &assertion);
        }
    }
    Ok(())
}
