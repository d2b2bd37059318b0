//! `loadlab run` with loads that change, think, keep a pace and start at different times.

use serde_json::{Value, json};

use crate::run_support::{Lab, component, plan};

const URL: &str = "\"http://127.0.0.1:${components.web.port}/\"";

/// Runs these loads. Lateness on a busy machine is not tested here, so the result may be INVALID.
#[track_caller]
fn go(lab: &Lab, loads: &str) {
    let ran = lab.run(&plan(&[component("web", "", &[])], loads), &[]);
    assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
    assert_eq!(lab.record().summary("default", 1)["requests"]["failed"], 0);
}

/// Number of requests of a load that fell due, over all its seconds.
fn due(ticks: &[Value], load: &str) -> u64 {
    ticks.iter().filter(|t| t["load"] == load).filter_map(|t| t["due"].as_u64()).sum()
}

#[test]
fn users_come_and_go_on_the_connections_they_have() {
    let lab = Lab::new();
    let load = format!(
        "load:\n  stages: [{{ to: 6, over: 500ms }}, {{ hold: 500ms }}, {{ to: 0, over: 200ms }}, {{ hold: 300ms }}, \
         {{ to: 4, over: 0s }}, {{ hold: 500ms }}]\n  think: {{ uniform: [5ms, 15ms] }}\n  threads: 2\n  journey: [{{ get: {URL} }}]\n"
    );
    go(&lab, &load);
    let record = lab.record();
    let summary = record.summary("default", 1);
    let load = &summary["load"];
    assert_eq!(
        (&load["model"], &load["users"], &load["duration_s"]),
        (&"closed".into(), &6.into(), &2.0.into())
    );
    assert_eq!(load["stages"][2], json!({ "from": 6.0, "to": 0.0, "over_s": 0.2 }));
    assert_eq!((&load["think_s"], &load["think"]), (&0.01.into(), &json!({ "uniform_s": [0.005, 0.015] })));
    // Six users, six connections, whatever the stages.
    let connections = &summary["connections"];
    assert_eq!((&connections["opened"], &connections["requests_resent"]), (&6.into(), &0.into()));
    assert_eq!(summary["requests"]["dropped"], 0);
    assert!(summary["window"]["to_s"].as_f64().is_some_and(|s| s >= 2.0), "{}", summary["window"]);
    assert!(summary["late_ms"]["count"].as_u64().is_some_and(|n| n > 0), "thinking users have due times");
    let report = record.report("md");
    for words in [
        "up to 6 users",
        "think 5.00 ms to 15.0 ms",
        "0 → 6 over 500 ms",
        "at once to 4",
        "its think time is over",
    ] {
        assert!(report.contains(words), "no `{words}` in:\n{report}");
    }
}

#[test]
fn loads_begin_at_their_own_times_on_one_clock() {
    let lab = Lab::new();
    let loads = format!(
        "loads:\n  first: {{ rate: 100/s, duration: 2s, journey: [{{ get: {URL} }}] }}\n  \
         second: {{ start: 1s, stages: [{{ to: 100/s, over: 1s }}, {{ hold: 2s }}], journey: [{{ post: {URL} }}] }}\n"
    );
    go(&lab, &loads);
    let record = lab.record();
    // Each load's thread writes its own.
    let mut started = record.events("default", 1, "load_started");
    started.sort_by(|a, b| a["at_s"].as_f64().partial_cmp(&b["at_s"].as_f64()).expect("times"));
    let at: Vec<(&Value, &Value)> = started.iter().map(|e| (&e["load"], &e["at_s"])).collect();
    assert_eq!(at, [(&"first".into(), &0.0.into()), (&"second".into(), &1.0.into())]);
    let ended = record.events("default", 1, "load_ended");
    assert_eq!(
        (ended.len(), &ended[1]["load"]),
        (2, &"second".into()),
        "the last one ends the trial's loads"
    );
    let ticks = record.lines("default", 1, "ticks.jsonl");
    // 0 → 100/s over a second is 50 requests, then 200 more in two seconds.
    assert_eq!((due(&ticks, "first"), due(&ticks, "second")), (200, 250));
    let of_second: Vec<f64> =
        ticks.iter().filter(|t| t["load"] == "second").filter_map(|t| t["from_s"].as_f64()).collect();
    assert_eq!(of_second.first(), Some(&1.0));

    let summary = record.summary("default", 1);
    assert_eq!(summary["window"], json!({ "from_s": 0.0, "to_s": 4.0 }));
    assert_eq!(summary["rate_per_s"]["due"], 450.0 / 4.0);
    assert_eq!(summary["load"]["duration_s"], 4.0);
    assert_eq!(summary["load"]["loads"]["second"]["start_s"], 1.0);
    let by_load = &summary["by_load"];
    assert_eq!(by_load["first"]["window"], json!({ "from_s": 0.0, "to_s": 2.0 }));
    assert_eq!(by_load["second"]["window"], json!({ "from_s": 1.0, "to_s": 4.0 }));
    assert_eq!(
        (&by_load["first"]["rate_per_s"]["due"], &by_load["second"]["requests"]["due"]),
        (&100.0.into(), &250.into())
    );
    for format in ["text", "md", "html"] {
        let report = record.report(format);
        for words in ["By load", "second begins", "stage 2: 100/s for 2.00 s"] {
            assert!(report.contains(words), "no `{words}` in {format}:\n{report}");
        }
    }
    let report = record.report("md");
    assert!(report.contains("up to 100/s") && report.contains("from 1.00 s on"), "{report}");
}

/// A step every 20 µs is more than a server on a socket can handle, so some are dropped.
#[test]
fn paced_users_drop_what_they_are_late_for() {
    let lab = Lab::new();
    let load = format!(
        "load:\n  users: 2\n  pace: 20us\n  duration: 500ms\n  when_behind: drop\n  journey: [{{ get: {URL} }}]\n"
    );
    go(&lab, &load);
    let summary = lab.record().summary("default", 1);
    let requests = |key: &str| summary["requests"][key].as_u64().unwrap_or(0);
    assert_eq!(requests("due"), 50_000);
    assert_eq!(requests("due"), requests("started") + requests("dropped"));
    assert!(requests("dropped") > 0 && requests("ok") > 0, "{}", summary["requests"]);
    let doubts = summary["doubts"].as_array().expect("a list");
    let dropped = doubts.iter().find(|d| d["kind"] == "dropped").expect("a doubt");
    assert!(
        dropped["evidence"]
            .as_str()
            .is_some_and(|e| e.ends_with("as the plan asks when the system is behind")),
        "{dropped}"
    );
    assert!(dropped["hint"].as_str().is_some_and(|h| h.contains("this pace")), "{dropped}");
}

/// If a run ends before one of its loads has begun, the record has nothing of that load.
#[test]
fn a_load_that_never_began() {
    let lab = Lab::new();
    let loads = format!(
        "loads:\n  first: {{ users: 1, duration: 20s, journey: [{{ get: {URL} }}] }}\n  \
         second: {{ start: 15s, users: 1, duration: 1s, journey: [{{ get: {URL} }}] }}\n"
    );
    let web = component("web", "\"die_after\": 50", &[]);
    lab.run(&plan(&[web], &loads), &[]).expect(1, &[]);
    let record = lab.record();
    assert_eq!(record.events("default", 1, "load_started").len(), 1);
    let by_load = &record.summary("default", 1)["by_load"];
    assert_eq!(by_load.as_object().map(|l| l.keys().cloned().collect()), Some(vec!["first".to_owned()]));
}
