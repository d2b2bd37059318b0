//! index-page's own assertions: every level of users was tried on stores that were filled once, the view counter
//! agrees with what was answered, siege's rows are there, and the tool says where throughput stops to grow or why
//! it cannot. How many users the page holds is a finding and not asserted.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::record::Trial;
use super::{Claims, Lab, Record, reports};

const USERS: [&str; 6] = ["10", "50", "100", "200", "500", "1000"];
/// The document's page has 3,093 bytes; ours is the same but for numbers.
const PAGE_BYTES: f64 = 3000.0;
/// siege's rows, in its order and by its names.
const SIEGE: [&str; 12] = [
    "transactions",
    "availability",
    "elapsed_time",
    "data_transferred",
    "response_time",
    "transaction_rate",
    "throughput",
    "concurrency",
    "successful_transactions",
    "failed_transactions",
    "longest_transaction",
    "shortest_transaction",
];

/// Looks at the record and the reports.
///
/// # Errors
/// A report cannot be read or made.
pub fn check(_: &Lab, record: &Record, claims: &mut Claims) -> Result<()> {
    let cases: Vec<_> = record.trials.iter().map(|t| t.value("users")).collect();
    claims.claim(cases == USERS, || format!("users of the cases: {cases:?}"));
    for trial in &record.trials {
        answered(trial, claims);
        counted(trial, claims);
    }
    // The counter began at nothing when the stores were filled, and lived on from case to case.
    let counted: f64 = record.trials.iter().map(|t| t.number("/loss/persisted_distinct")).sum();
    let views = record.trials.iter().map(|t| t.number("/probes/views/last")).fold(0.0, f64::max);
    claims.same("views counted in all cases", views, counted);
    let seeded = record.trials.iter().map(|t| t.commands("seed")).sum();
    claims.same("times the stores were filled", seeded, 1_usize);
    reported(&fs::read_to_string(record.dir.join("report.md"))?, claims);
    scalability(&reports::report(record, "json")?, claims)
}

/// Whole pages, and as many at a time as there are users.
fn answered(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    let users: f64 = trial.value("users").parse().unwrap_or(f64::NAN);
    let (ok, received) = (trial.number("/requests/ok"), trial.number("/bytes/received"));
    claims.claim(ok >= users, || format!("{case}: {ok} pages for {users} users"));
    claims.claim(received > PAGE_BYTES * ok, || format!("{case}: {received} bytes in {ok} pages"));
    let concurrency = trial.number("/concurrency_mean");
    claims.claim(concurrency > users / 2.0 && concurrency <= users, || {
        format!("{case}: {concurrency} of {users} users had a request under way")
    });
}

/// Every page that was answered is a view that was counted. A view whose request was cut off at the end may be counted.
fn counted(trial: &Trial, claims: &mut Claims) {
    let case = &trial.case;
    let loss = |name: &str| trial.number(&format!("/loss/{name}"));
    let (accepted, counted, unanswered) = (loss("accepted"), loss("persisted_distinct"), loss("unanswered"));
    claims.same(format!("{case}: accepted"), accepted, trial.number("/requests/ok"));
    claims.same(format!("{case}: unanswered"), unanswered, trial.number("/requests/in_flight"));
    claims.claim(accepted <= counted && counted <= accepted + unanswered, || {
        format!("{case}: {counted} views counted, {accepted} pages answered, {unanswered} cut off")
    });
    for none in ["doubled", "lost_min"] {
        claims.same(format!("{case}: {none}"), loss(none), 0.0);
    }
    claims.claim(trial.number("/drain_s") >= 0.0, || format!("{case}: it never drained"));
}

/// siege's table has its rows, in order.
fn reported(report: &str, claims: &mut Claims) {
    let mut lines = report.lines();
    for name in SIEGE {
        let found = lines.any(|line| line.starts_with(&format!("| {name} |")));
        claims.claim(found, || format!("no row `{name}` in its place in report.md"));
    }
    claims.claim(report.contains("Throughput over users"), || "report.md has no curve over users".to_owned());
}

/// A level is named, or why there is none.
fn scalability(report: &str, claims: &mut Claims) -> Result<()> {
    let report: Value = serde_json::from_str(report).context("the JSON report")?;
    let curve = &report["scalability"][0];
    let levels = curve["levels"].as_array().map_or(0, Vec::len);
    claims.same("levels of the curve", levels, USERS.len());
    let level = ["knee_users", "knee_at_most_users", "knee_at_least_users"];
    let level = level.iter().find_map(|name| curve[name].as_u64());
    claims.claim(level.is_some_and(|n| USERS.contains(&n.to_string().as_str())), || {
        format!("no level is named: {curve:#}")
    });
    claims.claim(curve["fit"].is_null() != curve["no_fit"].is_null(), || {
        format!("the law is neither fitted nor refused: {curve:#}")
    });
    Ok(())
}
