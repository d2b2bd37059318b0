//! Loads made by a program: counted by a probe, timed on the load's clock, watched, and gone when the trial is over –
//! however the program behaves.

use rustix::process::Signal;
use serde_json::Value;

use crate::run_support::{Lab, Ran, component, eventually, plan};

/// The count is in a file, so that the probe needs no server.
const COUNT: &str = "  probes: { done: { command: \"cat n 2>/dev/null || echo 0\" } }\n";

/// A plan whose load is this command; `more` are further keys of the command.
fn program(run: &str, more: &str) -> String {
    let run = serde_json::to_string(run).expect("text is JSON");
    format!(
        "loadlab: 1\nname: test\nsystem:\n{COUNT}loads:\n  driver:\n    command: {{ run: {run}, counted_by: done{more} }}\n"
    )
}

/// Runs a plan that must end with this exit code and these errors.
#[track_caller]
fn run(text: &str, code: i32, err_holds: &[&str]) -> (Lab, Ran) {
    let lab = Lab::new();
    let ran = lab.run(text, &[]);
    ran.expect(code, err_holds);
    (lab, ran)
}

fn requests(lab: &Lab) -> Value {
    lab.record().summary("default", 1)["requests"].clone()
}

#[test]
fn requests_are_counted_and_nothing_is_made_up() {
    // Five seconds, so that there are ticks, and more than two are left if its start is noticed late.
    let text = program(
        "echo set up; sleep 0.3; echo ready to go; for i in 1 2 3 4 5; do echo $((i * ${requests} / 5)) > n.new; mv n.new n; sleep 1; done",
        ", requests: 500, started_when_output: to go, timeout: 60s",
    );
    let rest = "expect: [\"accepted == 500\", \"elapsed > 2s\", \"done == 500\"]\n";
    let (lab, ran) = run(&format!("{text}{rest}"), 0, &["500 ok"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    let counts = ["due", "started", "ok"].map(|k| summary["requests"][k].clone());
    assert_eq!(counts, [500, 500, 500]);
    assert_eq!(summary["load"]["model"], "command");
    assert_eq!((&summary["load"]["requests"], &summary["availability"]), (&500.into(), &Value::Null));
    assert_eq!(summary["response_ms"]["count"], 0);
    assert_eq!(summary["response_ms"]["p99"], Value::Null);
    let elapsed_s = summary["elapsed_s"].as_f64().unwrap();
    let rate = summary["rate_per_s"]["ok"].as_f64().unwrap();
    assert!((rate * elapsed_s - 500.0).abs() < 1e-6, "{rate}/s for {elapsed_s} s");
    assert!(
        summary["window"]["from_s"].as_f64().unwrap() >= 0.3,
        "it begins when it says so: {}",
        summary["window"]
    );
    assert_eq!(summary["doubts"], Value::Array(Vec::new()), "nothing was to be timed");
    // It is watched alongside the components, and its output is a log of the trial.
    assert!(summary["components"]["driver"]["cpu_s"].as_f64().is_some(), "{}", summary["components"]);
    let log = std::fs::read_to_string(record.trial("default", 1).join("logs/driver.out")).unwrap();
    assert_eq!(log, "set up\nready to go\n");
    let ticks = record.lines("default", 1, "ticks.jsonl");
    assert!(ticks.len() >= 2, "{ticks:?}");
    assert_eq!(ticks.iter().map(|t| t["ok"].as_u64().unwrap()).sum::<u64>(), 500);
    // What was not measured is not reported as zero.
    assert!(!ran.out.contains("errors") && ran.out.contains("not measured"), "{}", ran.out);
    for (format, holds) in [
        ("md", "Programs make the load of default"),
        ("csv", "default,1,pass,goodput,"),
        ("json", "\"model\": \"command\""),
        ("html", "not measured"),
    ] {
        let report = record.report(format);
        assert!(report.contains(holds), "{format}: {report}");
    }
    assert!(!record.report("csv").contains(",failed_transactions,"), "{}", record.report("csv"));
}

#[test]
fn what_is_not_measured_cannot_be_expected() {
    let text = program("echo 3 > n", "");
    let (lab, _) = run(&format!("{text}expect: [\"errors == 0\", \"p99 < 1s\", \"ok == 3\"]\n"), 1, &[]);
    let held: Vec<Value> = lab.record().summary("default", 1)["expectations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["holds"].clone())
        .collect();
    assert_eq!(held, [Value::Null, Value::Null, Value::Bool(true)]);
}

#[test]
fn a_short_one_is_watched_too() {
    let (lab, _) = run(&program("echo 3 > n; for i in $(seq 200000); do :; done", ""), 0, &[]);
    let used = lab.record().summary("default", 1)["components"]["driver"]["cpu_s"].clone();
    assert!(used.as_f64().is_some_and(|s| s > 0.0), "{used}");
}

#[test]
fn one_that_fails_spoils_the_trial() {
    let (lab, _) = run(
        &program("echo 7 > n; echo cannot go on >&2; exit 3", ""),
        5,
        &["load `driver`", "exit status 3", "cannot go on"],
    );
    assert_eq!(requests(&lab)["ok"], 7, "what it did is counted all the same");
    assert_eq!(lab.record().summary("default", 1)["ended"], "broken");
    let (lab, _) = run(&program("echo 7 > n; kill -9 $$", ""), 5, &["signal 9 (SIGKILL)"]);
    assert_eq!(requests(&lab)["ok"], 7);
}

#[test]
fn one_that_hangs_is_killed_in_time() {
    let (lab, _) = run(
        &program("echo 7 > n; sleep 1000 & sleep 1000", ", timeout: 20s"),
        5,
        &["load `driver`: it had not ended after 20 s and was killed", "hint: allow more with `timeout`"],
    );
    assert_eq!(requests(&lab)["ok"], 7);
}

#[test]
fn one_that_forks_away_has_ended_and_nothing_of_it_is_left() {
    // `Lab::run` asserts that no process of the run is left behind.
    let (lab, _) = run(
        &program("(setsid sleep 1000 > /dev/null 2>&1 &) ; echo 7 > n", ", requests: 7"),
        0,
        &["1 processes outlived its command and were killed"],
    );
    assert_eq!(requests(&lab)["ok"], 7);
}

#[test]
fn one_that_cannot_be_started_is_named() {
    let run_of = "loadlab: 1\nname: test\nsystem:\n";
    let text =
        format!("{run_of}{COUNT}load: {{ command: {{ run: [./no-such-driver], counted_by: done }} }}\n");
    run(&text, 5, &["load `load`", "no-such-driver"]);
    run(&program("no-such-driver", ""), 5, &["exit status 127"]);
}

#[test]
fn it_makes_as_many_as_the_plan_says() {
    run(
        &program("echo 499 > n", ", requests: 500"),
        5,
        &["load `driver`: probe `done` counted 499 of the 500 planned requests"],
    );
    run(
        &program("echo 499 > n", ", started_when_output: ready"),
        5,
        &["it ended before `ready`, which starts its load, appeared in its output"],
    );
    // The counter must be readable before and after the load.
    let broken = program("echo 3 > n", "").replace("|| echo 0", "");
    run(&broken, 5, &["cannot read the probe that counts its requests before it starts"]);
    run(&program("echo many > n", ""), 5, &["load `driver`: cannot count its requests"]);
}

#[test]
fn one_that_begins_and_ends_between_two_looks_has_begun() {
    let count = "echo $(($(cat n 2>/dev/null || echo 0) + 5)) > n.new; mv n.new n";
    let text = program(&format!("{count}; echo go"), ", requests: 5, started_when_output: go");
    let text = text.replace("    command:", "    batches: { repeat: 10 }\n    command:");
    let (lab, _) = run(&text, 0, &[]);
    assert_eq!(requests(&lab)["ok"], 50);
    let summary = lab.record().summary("default", 1);
    assert!(summary["rate_per_s"]["ok"].as_f64() > Some(0.0), "each took some time: {summary:#}");
}

#[test]
fn batches_are_counted_separately() {
    let text = program("echo $(($(cat n 2>/dev/null || echo 0) + 5)) > n.new; mv n.new n", ", requests: 5");
    let text = text.replace("    command:", "    batches: { repeat: 3 }\n    command:");
    let (lab, _) = run(&text, 0, &[]);
    assert_eq!(requests(&lab)["ok"], 15);
    assert_eq!(lab.record().events("default", 1, "load_ended").len(), 3);
}

#[test]
fn conditions_end_it_early() {
    let text = program("echo 7 > n; sleep 1000", "");
    let (lab, _) = run(&format!("{text}stop_when: [\"done >= 7\"]\n"), 0, &["stopped: done >= 7"]);
    assert_eq!(requests(&lab)["ok"], 7);
    assert_eq!(lab.record().summary("default", 1)["ended"], "stopped");
}

#[test]
fn it_runs_beside_other_loads_and_dies_with_their_system() {
    let steps = "journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]";
    let users = format!("  users: {{ users: 2, requests: 40, {steps} }}\n");
    let driver = "  driver: { command: { run: \"echo 7 > n\", counted_by: done } }\n";
    let both = plan(&[component("web", "", &[])], &format!("{COUNT}loads:\n{users}{driver}"));
    let (lab, _) = run(&both, 0, &[]);
    let summary = lab.record().summary("default", 1);
    assert_eq!((&summary["requests"]["ok"], &summary["response_ms"]["count"]), (&47.into(), &40.into()));
    assert_eq!(summary["load"]["model"], "mixed");
    assert_eq!(summary["by_load"]["driver"]["requests"]["ok"], 7);

    let fragile = "    fragile: { run: \"while ! [ -e n ]; do sleep 0.01; done; exit 4\" }\n".to_owned();
    let driver = "load: { command: { run: \"echo 7 > n; sleep 1000\", counted_by: done } }\n";
    run(&plan(&[fragile], &format!("{COUNT}{driver}")), 1, &["component `fragile` died: exit status 4"]);
}

#[test]
fn it_goes_when_loadlab_goes() {
    for signal in [Signal::INT, Signal::KILL] {
        let lab = Lab::new();
        let running = lab.start(&program("echo 7 > n; setsid sleep 1000", ""), &[]);
        eventually("the program", || lab.path().join("n").exists().then_some(()));
        running.signal(signal);
        let ran = running.end();
        assert_eq!(ran.code, (signal == Signal::INT).then_some(130), "{}", ran.err);
        eventually("the end of all it started", || lab.left_behind().is_empty().then_some(()));
    }
}

#[test]
fn figures_of_cases_are_worked_out() {
    let driver = |name: &str, n: u32| {
        format!("  {name}: {{ cases: {name}, command: {{ run: \"echo {n} > n\", counted_by: done }} }}\n")
    };
    let text = format!(
        "loadlab: 1\nname: test\nmatrix: [{{ name: one }}, {{ name: two }}]\ntrials: 3\nsystem:\n  before_trial: rm -f n\n{COUNT}loads:\n{}{}derive:\n  \
         both: one.ok + two.ok\n  times: {{ value: two.ok, against: one.ok }}\n",
        driver("one", 10),
        driver("two", 30)
    );
    let (lab, ran) = run(&text, 0, &[]);
    assert!(ran.out.contains("Derived figures"), "{}", ran.out);
    let report: Value = serde_json::from_str(&lab.record().report("json")).unwrap();
    let derived = report["derived"].as_array().unwrap();
    assert_eq!((&derived[0]["name"], &derived[0]["value"]), (&"both".into(), &40.0.into()));
    assert_eq!(derived[1]["rounds"]["ratio"], serde_json::json!([3.0, 3.0, 3.0]));
    let interval = ["ratio", "low", "high"].map(|k| derived[1][k].as_f64().unwrap());
    assert!(interval.iter().all(|v| (v - 3.0).abs() < 1e-9), "{interval:?}");
    // If only some of the cases run, the known values are still reported.
    let lab = Lab::new();
    lab.run(&text, &["--case", "one"]).expect(0, &[]);
    let report: Value = serde_json::from_str(&lab.record().report("json")).unwrap();
    assert_eq!(report["derived"][0]["value"], Value::Null);
    assert_eq!(report["derived"][0]["why_not"], "`two.ok` is unknown: its case was not run");
}
