//! message-inserts' own assertions: for each way of inserting, accepted, stored and lost add up by id, the raw
//! inserts have their measurements, and figures derived from several cases match their records. Which way is faster,
//! and how much a killed server loses, are findings and not asserted.

use anyhow::Result;
use serde_json::Value;

use super::record::{Trial, text};
use super::{Claims, Lab, Record, reports, service_tests};

/// Requests of each case that is not ended by a kill.
const REQUESTS: u64 = 3000;
/// Milliseconds per second of a load's clock, and the tolerance for rounding.
const CLOSE: f64 = 1e-6;

/// Checks every trial, and the report's figures that are derived from several cases.
///
/// # Errors
/// The report cannot be made.
pub fn check(_: &Lab, record: &Record, claims: &mut Claims) -> Result<()> {
    for trial in &record.trials {
        let case = trial.case.as_str();
        // One that is restarted refuses requests for a while, but stores what it has accepted.
        let is_killed = case.ends_with("killed") || case.ends_with("restarted");
        if !trial.is_brief() {
            trial.hold(
                claims,
                &["0 < components/mongo/cpu_percent/mean", "0 < components/server/memory_bytes/max"],
            );
        }
        // The time at which everything was stored is known.
        trial.hold(claims, &["0 <= drain_s"]);
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
    service_tests("labs/message-inserts/service/messages.test.js", claims)?;
    derived(record, claims)
}

/// The program's requests equal the stored ones, and it was watched.
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
    claims.claim(by_id, || format!("{}: its loss is not told by id", trial.case));
    let all = [
        "0 < loss/accepted == requests/ok",
        "loss/lost_min == loss/lost_max",
        "loss/doubled == 0",
        // Requests stored without an answer are stored but were not accepted.
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
}

/// The claim of the source document, and the others: each side matches the cases' summaries.
fn derived(record: &Record, claims: &mut Claims) -> Result<()> {
    let report: Value = serde_json::from_str(&reports::report(record, "json")?)?;
    let all = report["derived"].as_array().map_or(&[][..], Vec::as_slice);
    claims.claim(!all.is_empty(), || "the report has no figure that is worked out".to_owned());
    let close = |is: &str, to: &str| format!("-{CLOSE} * {to} <= {is} - {to} <= {CLOSE} * {to}");
    for figure in all {
        claims.hold(&text(figure, "/name"), figure, &close("value", "ratio * against"));
    }
    let of = |case: &str, path: &str| {
        let trial = record.trials.iter().find(|t| t.case == case);
        trial.map_or(f64::NAN, |t| t.number(path)) * 1e3
    };
    let together = of("grouped", "elapsed_s") + of("grouped", "drain_s");
    let apart = of("empty POST", "elapsed_s") + of("raw insert, grouped", "elapsed_s");
    let name = "grouped / its parts";
    let claim = all.iter().find(|d| d["name"] == name).unwrap_or(&Value::Null);
    for (key, expect) in [("value", together), ("against", apart)] {
        claims.hold(name, claim, &close(key, &expect.to_string()));
    }
    Ok(())
}
