//! message-inserts' own assertions: what each way of inserting accepted, stored and lost adds up by id, what was
//! measured of the raw inserts was measured, and what is worked out of several cases is what their records say. Which
//! way is faster, and how much a killed server takes with it, are findings and not asserted.

use anyhow::Result;
use serde_json::Value;

use super::record::{Trial, text};
use super::{Claims, Lab, Record, reports};

/// Requests of each case that is not ended by a kill.
const REQUESTS: f64 = 3000.0;
/// A second of a load's clock in the milliseconds of a figure, and how far rounding may take them apart.
const CLOSE: f64 = 1e-6;

/// Looks at every trial, and at the report's figures that are worked out of several.
///
/// # Errors
/// The report cannot be made.
pub fn check(_: &Lab, record: &Record, claims: &mut Claims) -> Result<()> {
    for trial in &record.trials {
        let case = trial.case.as_str();
        let is_killed = case.ends_with("killed");
        for figure in ["mongo/cpu_percent/mean", "server/memory_bytes/max"] {
            let value = trial.number(&format!("/components/{figure}"));
            claims.claim(value > 0.0 || trial.is_brief(), || format!("{case}: {figure} is {value}"));
        }
        let drain_s = trial.number("/drain_s");
        claims.claim(drain_s >= 0.0, || format!("{case}: it is not known when all was stored"));
        let failed = trial.number("/requests/failed");
        claims.claim((failed > 0.0) == is_killed, || format!("{case}: {failed} requests failed"));
        if !is_killed {
            claims.same(format!("{case}: due"), trial.number("/requests/due"), REQUESTS);
        }
        match () {
            () if case.starts_with("empty") => nothing_stored(trial, claims),
            () if case.starts_with("raw") => raw(trial, claims),
            () => lost(trial, is_killed, claims),
        }
    }
    derived(record, claims)
}

/// A case without a database stores nothing, and can lose nothing.
fn nothing_stored(trial: &Trial, claims: &mut Claims) {
    claims.same(format!("{}: stored", trial.case), trial.number("/probes/stored/max"), 0.0);
    claims.claim(trial.summary["loss"].is_null(), || format!("{}: loss of what is not stored", trial.case));
}

/// The program's requests are those that were stored, and it was watched.
fn raw(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    claims.claim(trial.is_command(), || format!("{case}: no program made its load"));
    claims.same(format!("{case}: ok"), trial.number("/requests/ok"), REQUESTS);
    claims.same(format!("{case}: stored"), trial.number("/probes/stored/last"), REQUESTS);
    for unreported in ["/response_ms/p50", "/response_ms/max", "/availability"] {
        let value = trial.number(unreported);
        claims.claim(value.is_nan(), || format!("{case}: {unreported} is {value}, and nobody measured it"));
    }
    let cpu_s = trial.number("/components/raw/cpu_s");
    claims.claim(cpu_s > 0.0, || format!("{case}: its program used {cpu_s} s of CPU"));
    let (ok, rate) = (trial.number("/requests/ok"), trial.number("/rate_per_s/ok"));
    let elapsed_s = trial.number("/elapsed_s");
    claims.claim((rate * elapsed_s - ok).abs() <= CLOSE * ok, || {
        format!("{case}: {ok} in {elapsed_s} s are not {rate}/s")
    });
}

/// Accepted, stored and lost fit one another, by id.
fn lost(trial: &Trial, is_killed: bool, claims: &mut Claims) {
    let case = &trial.case;
    let n = |name: &str| trial.number(&format!("/loss/{name}"));
    claims.claim(trial.summary["loss"]["by_id"] == true, || format!("{case}: its loss is not told by id"));
    claims.same(format!("{case}: accepted, and ok"), n("accepted"), trial.number("/requests/ok"));
    claims.claim(n("accepted") > 0.0, || format!("{case}: nothing was accepted"));
    claims.same(format!("{case}: lost at least, and at most"), n("lost_min"), n("lost_max"));
    claims.same(format!("{case}: stored twice"), n("doubled"), 0.0);
    // What was stored without an answer is stored and was not accepted.
    let missing = n("accepted") - n("persisted_distinct");
    claims.claim(missing <= n("lost_max") && n("lost_max") <= missing + n("unanswered"), || {
        format!(
            "{case}: lost {}, accepted and not stored {missing}, unanswered {}",
            n("lost_max"),
            n("unanswered")
        )
    });
    if !is_killed || case.starts_with("sync") {
        claims.same(format!("{case}: lost"), n("lost_max"), 0.0);
    }
    if !is_killed {
        claims.same(format!("{case}: stored"), trial.number("/probes/stored/last"), REQUESTS);
    }
}

/// The claim of the source document, and the others: each side is what the cases' summaries say.
fn derived(record: &Record, claims: &mut Claims) -> Result<()> {
    let report: Value = serde_json::from_str(&reports::report(record, "json")?)?;
    let all = report["derived"].as_array().map_or(&[][..], Vec::as_slice);
    claims.claim(!all.is_empty(), || "the report has no figure that is worked out".to_owned());
    for figure in all {
        let name = text(figure, "/name");
        let number = |key: &str| figure[key].as_f64().unwrap_or(f64::NAN);
        let (value, against, ratio) = (number("value"), number("against"), number("ratio"));
        claims.claim((value / against - ratio).abs() <= CLOSE * ratio, || {
            format!("{name}: {value} against {against} is not {ratio}")
        });
    }
    let of = |case: &str, pointer: &str| {
        let trial = record.trials.iter().find(|t| t.case == case);
        trial.map_or(f64::NAN, |t| t.number(pointer)) * 1e3
    };
    let together = of("grouped", "/elapsed_s") + of("grouped", "/drain_s");
    let apart = of("empty POST", "/elapsed_s") + of("raw insert, grouped", "/elapsed_s");
    let claim = all.iter().find(|d| d["name"] == "grouped / its parts");
    for (key, expect) in [("value", together), ("against", apart)] {
        let is = claim.and_then(|c| c[key].as_f64()).unwrap_or(f64::NAN);
        claims.claim((is - expect).abs() <= CLOSE * expect, || {
            format!("grouped / its parts: {key} is {is} ms, and the cases say {expect} ms")
        });
    }
    Ok(())
}
