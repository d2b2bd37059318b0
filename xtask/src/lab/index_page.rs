//! index-page's own assertions: every level of users was tried on stores that were filled once, the view counter
//! agrees with what was answered, siege's rows are present, and the tool reports where throughput stops growing or
//! why it cannot. How many users the page supports is a finding and not asserted.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::record::Trial;
use super::{Claims, Lab, Record, reports};

const USERS: [&str; 6] = ["10", "50", "100", "200", "500", "1000"];
/// The document's page has 3,093 bytes; ours is the same except for numbers.
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

/// Checks the record and the reports.
///
/// # Errors
/// A report cannot be read or made.
pub fn check(_: &Lab, record: &Record, claims: &mut Claims) -> Result<()> {
    let cases: Vec<_> = record.trials.iter().map(|t| t.value("users")).collect();
    claims.claim(cases == USERS, || format!("users of the cases: {cases:?}"));
    for trial in &record.trials {
        answered(trial, claims);
    }
    // The counter started at zero when the stores were filled, and lived on from case to case.
    let counted: f64 = record.trials.iter().map(|t| t.number("loss/persisted_distinct")).sum();
    let views = record.trials.iter().map(|t| t.number("probes/views/last")).fold(0.0, f64::max);
    claims.same("views counted in all cases", views, counted);
    let seeded = record.trials.iter().map(|t| t.commands("seed")).sum();
    claims.same("times the stores were filled", seeded, 1_usize);
    reported(&fs::read_to_string(record.dir.join("report.md"))?, claims);
    scalability(&reports::report(record, "json")?, claims)
}

/// Whole pages, as many at a time as there are users. Every answered page is a counted view; a view whose request was
/// cut off at the end may be counted.
fn answered(trial: &Trial, claims: &mut Claims) {
    let users = trial.value("users");
    let all = [
        &format!("{users} <= requests/ok"),
        &format!("{PAGE_BYTES} * requests/ok < bytes/received"),
        &format!("0.5 * {users} < concurrency_mean <= {users}"),
        "loss/accepted == requests/ok",
        "loss/unanswered == requests/in_flight",
        "loss/accepted <= loss/persisted_distinct <= loss/accepted + loss/unanswered",
        "loss/doubled == 0",
        "loss/lost_min == 0",
        "0 <= drain_s",
    ];
    trial.hold(claims, &all);
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

/// A level is named, or the reason why there is none.
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
