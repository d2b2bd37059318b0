//! index-page's own assertions: every level of users was tried on stores that were filled once, the view counter agrees
//! with the number of answers, siege's rows are present, and the tool reports where throughput stops growing or why it
//! cannot. How many users the page supports is a finding and is not asserted.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::claims::number;
use super::record::{Trial, text};
use super::tables::{Table, shows};
use super::{Claims, Record, reports};

const USERS: [&str; 6] = ["10", "50", "100", "200", "500", "1000"];
/// Bounds of the size of an answer with ten records of each store, and its headers: 3,227 to 3,236 bytes, depending on
/// the digits of the counter and of the time that Elasticsearch took. A record of MongoDB has 73 bytes, one of
/// Elasticsearch more.
const ANSWER_BYTES: (f64, f64) = (3200.0, 3260.0);
/// siege's rows, in its order and by its names: name, path in `summary.json`, and the factor that the table applies.
const SIEGE: [(&str, &str, f64); 12] = [
    ("transactions", "statuses/*", 1.0),
    ("availability", "availability", 100.0),
    ("elapsed_time", "elapsed_s", 1e3),
    ("data_transferred", "bytes/received", 1.0),
    ("response_time", "response_ms/mean", 1.0),
    ("transaction_rate", "rate_per_s/ok", 1.0),
    ("throughput", "", 1.0),
    ("concurrency", "concurrency_mean", 1.0),
    ("successful_transactions", "requests/ok", 1.0),
    ("failed_transactions", "requests/failed", 1.0),
    ("longest_transaction", "response_ms/max", 1.0),
    ("shortest_transaction", "response_ms/min", 1.0),
];

/// Checks the record and the reports.
///
/// # Errors
/// A report cannot be read or made.
pub fn check(record: &Record, claims: &mut Claims) -> Result<()> {
    let cases: Vec<_> = record.trials.iter().map(|t| t.value("users")).collect();
    claims.claim(cases == USERS, || format!("users of the cases: {cases:?}"));
    for trial in &record.trials {
        answered(trial, claims);
    }
    // The counter started at zero when the stores were filled, and was kept from case to case.
    let counted: f64 = record.trials.iter().map(|t| t.number("loss/persisted_distinct")).sum();
    let views = record.trials.iter().map(|t| t.number("probes/views/last")).fold(0.0, f64::max);
    claims.same("views counted in all cases", views, counted);
    let fills =
        |event: &&Value| event["name"] == "seed" && text(event, "/command").contains("index-page seed");
    let seeded = record.trials.iter().map(|t| t.events("command").filter(fills).count()).sum();
    claims.same("times the stores were filled", seeded, 1_usize);
    reported(&fs::read_to_string(record.dir.join("report.md"))?, &record.trials, claims);
    scalability(&reports::report(record, "json")?, &record.trials, claims)
}

/// Answers were whole pages, and about as many requests were in flight as there are users. Every answered page is a
/// counted view; a view whose request was cut off at the end may be counted.
fn answered(trial: &Trial, claims: &mut Claims) {
    let (users, (least, most)) = (trial.value("users"), ANSWER_BYTES);
    let all = [
        &format!("{users} <= requests/ok"),
        &format!("{least} * requests/ok < bytes/received < {most} * requests/ok"),
        &format!("0.5 * {users} < concurrency_mean <= {users}"),
        // A connection for each request.
        "requests/ok <= connections/opened",
        "loss/accepted == requests/ok",
        "loss/unanswered == requests/in_flight",
        "loss/accepted <= loss/persisted_distinct <= loss/accepted + loss/unanswered",
        "loss/doubled == 0",
        "loss/lost_min == 0",
        "0 <= drain_s",
    ];
    trial.hold(claims, &all);
}

/// siege's table has its rows, in order, with what the record contains for each level.
fn reported(report: &str, trials: &[Trial], claims: &mut Claims) {
    let table = Table::after(report, "\n**In siege's layout**\n");
    let names = table.as_ref().map(Table::names).unwrap_or_default();
    claims.claim(names == SIEGE.map(|(name, _, _)| name), || format!("siege's rows in report.md: {names:?}"));
    for trial in trials {
        for (name, path, unit) in SIEGE {
            let value = match (path, path.strip_prefix("response_ms/")) {
                ("", _) => trial.number("bytes/received") / trial.number("elapsed_s"),
                (_, Some(time)) => trial.time_ms(time),
                (path, None) => trial.number(path) * unit,
            };
            let cell = table.as_ref().and_then(|table| table.cell(name, trial.value("users")));
            claims.claim(shows(cell, value), || {
                format!("{}: siege's layout shows {cell:?} as `{name}`, not {value}", trial.case)
            });
        }
    }
    claims.claim(report.contains("Throughput over users"), || "report.md has no curve over users".to_owned());
}

/// The reported level is the one with the most throughput for its response time, which by Little's law is users over
/// throughput.
fn scalability(report: &str, trials: &[Trial], claims: &mut Claims) -> Result<()> {
    let report: Value = serde_json::from_str(report).context("the JSON report")?;
    let curve = &report["scalability"][0];
    let levels = curve["levels"].as_array().map_or(&[][..], Vec::as_slice);
    claims.same("levels of the curve", levels.len(), USERS.len());
    for (level, trial) in levels.iter().zip(trials) {
        claims.same("level", level["users"].to_string().as_str(), trial.value("users"));
        claims.same("goodput of a level", number(level, "goodput/0"), trial.number("rate_per_s/ok"));
        claims.same("p50 of a level", number(level, "p50_ms"), trial.number("response_ms/p50"));
    }
    let users_of = |trial: &Trial| trial.value("users").parse().unwrap_or(f64::NAN);
    let power = |trial: &Trial| trial.number("rate_per_s/ok").powi(2) / users_of(trial);
    let best = (0..trials.len()).max_by(|a, b| power(&trials[*a]).total_cmp(&power(&trials[*b])));
    let key = match best {
        Some(0) => "knee_at_most_users",
        Some(last) if last + 1 == trials.len() => "knee_at_least_users",
        _ => "knee_users",
    };
    let users = best.map_or("none", |best| trials[best].value("users"));
    for name in ["knee_users", "knee_at_most_users", "knee_at_least_users"] {
        let wanted = if name == key { users } else { "null" };
        claims.same(format!("the curve's {name}"), curve[name].to_string().as_str(), wanted);
    }
    claims.claim(curve["fit"].is_null() != curve["no_fit"].is_null(), || {
        format!("the law is neither fitted nor refused: {curve:#}")
    });
    Ok(())
}
