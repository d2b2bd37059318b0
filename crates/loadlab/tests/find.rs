//! `loadlab find` on real servers whose capacity is known.

use serde_json::Value;

use crate::common::OF_A_BUSY_MACHINE;
use crate::common::nginx::Nginx;
use crate::run_support;
use crate::run_support::{Lab, component};

/// A plan whose server works on two requests at a time, 10 ms each: with N users a response takes 5 · N ms.
fn plan() -> String {
    let web = component("web", "\"at_once\": 2, \"slow_ms\": 10", &[]);
    run_support::plan(
        &[web],
        "load:\n  users: 1\n  duration: 1s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n",
    )
}

fn answer(lab: &Lab, args: &[&str]) -> (Value, Option<i32>, String) {
    let out = lab.run_name();
    let ran = lab.loadlab(&[&["find"], args, &["--json", "--out", &out, "--quiet"]].concat());
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    let json = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}\n{}", ran.out, ran.err));
    (json, ran.code, ran.err)
}

/// A search of two levels that take little time.
const BRIEF: [&str; 6] = ["--users", "1..2", "--level-duration", "200ms", "--settle", "0s"];

#[test]
fn the_users_a_plan_takes_are_found() {
    let lab = Lab::new();
    // Slow enough that a busy machine adds little to it.
    lab.file(
        "plan.yaml",
        &plan()
            .replace("\\\"slow_ms\\\": 10", "\\\"slow_ms\\\": 40")
            .replace("\"slow_ms\": 10", "\"slow_ms\": 40"),
    );
    let args = [
        "plan.yaml",
        "--expect",
        "p50 < 320ms",
        "--users",
        "1..64",
        "--level-duration",
        "1s",
        "--settle",
        "200ms",
    ];
    let (json, code, err) = answer(&lab, &args);
    assert_eq!(code, Some(0), "{json:#}\n{err}");
    // 16 users wait 320 ms on an idle machine; on a busy one a little longer
    let level = json["answer"]["level"].as_u64().unwrap_or_else(|| panic!("{json:#}"));
    assert!((8..=16).contains(&level), "{json:#}");
    let path = json["search"]["path"].as_array().expect("a path");
    assert!(path.len() <= 15 && path[0]["level"] == 8, "{json:#}");
    // the system was brought up once, and the record can be reported
    let ups = path.iter().map(|step| {
        let case = format!("users-{}", step["level"]);
        lab.record().events(&case, step["trial"].as_u64().expect("a number") as u32, "up").len()
    });
    assert_eq!(ups.sum::<usize>(), 1);
    let text = lab.record().report("text");
    assert!(text.contains("Found") && text.contains("users meet the expectations"), "{text}");
    let manifest = lab.record().manifest();
    assert_eq!(manifest["search"]["level"], level);
}

/// Users keep their connections from level to level, over any protocol, and open new ones when a level is confirmed: as
/// many as the highest level has, each time.
#[test]
fn connections_are_kept_from_level_to_level() {
    let nginx = Nginx::start();
    let tls = format!("  tls: {{ ca: \"{}\" }}\n", nginx.certificate());
    for (url, ways, protocol, connections) in [
        (format!("http://{}/page", nginx.plain), String::new(), "HTTP/1.1", 2 * 16),
        (format!("https://{}/page", nginx.secure), tls.clone(), "HTTP/1.1", 4 * 16),
        (
            format!("https://{}/page", nginx.secure),
            format!("{tls}  protocol: http/2\n  streams_per_connection: 4\n"),
            "HTTP/2.0",
            2 * 4,
        ),
    ] {
        let lab = Lab::new();
        lab.file(
            "plan.yaml",
            &format!(
                "loadlab: 1\nname: kept\nload:\n  users: 1\n  duration: 1s\n  threads: 1\n{ways}  journey: [{{ get: \"{url}\" }}]\n"
            ),
        );
        let args = [
            "plan.yaml",
            "--expect",
            "errors == 0",
            "--users",
            "2..16",
            "--level-duration",
            "1s",
            "--settle",
            "0s",
        ];
        let (json, code, err) = answer(&lab, &args);
        assert_eq!((code, &json["answer"]["level"]), (Some(0), &Value::from(16)), "{json:#}\n{err}");
        // nginx logs after it answers.
        let all = || (nginx.connections(protocol) >= connections).then_some(());
        run_support::eventually("all connections in the log", all);
        assert_eq!(nginx.connections(protocol), connections, "{protocol}: {json:#}");
        let path = json["search"]["path"].as_array().expect("a path");
        let reused = |step: &Value| {
            let case = format!("users-{}", step["level"]);
            let summary = lab.record().summary(&case, step["trial"].as_u64().expect("a number") as u32);
            summary["connections"]["reused"].as_u64().unwrap_or(0)
        };
        let (last, between) = path[1..].split_last().expect("a way");
        assert!(between.len() > 1 && reused(&path[0]) + reused(last) == 0, "{protocol}: {json:#}");
        assert!(between.iter().all(|step| reused(step) > 0), "{protocol}: {json:#}");
    }
}

#[test]
fn what_no_level_meets_is_said() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan());
    let args = [
        "plan.yaml",
        "--expect",
        "p50 < 5ms",
        "--users",
        "4..64",
        "--level-duration",
        "1s",
        "--settle",
        "0s",
    ];
    let (json, code, err) = answer(&lab, &args);
    assert_eq!((code, &json["answer"]["found"]), (Some(1), &Value::from("less_than")), "{json:#}\n{err}");
}

#[test]
fn the_document_has_the_exit_code_if_a_file_cannot_be_written() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan());
    let args = ["plan.yaml", "--expect", "errors == 0", "--junit", "no/such/folder.xml"];
    let (json, code, err) = answer(&lab, &[&args[..], &BRIEF].concat());
    assert_eq!((code, &json["exit"]), (Some(5), &Value::from(5)), "{json:#}\n{err}");
}

/// Few requests give p99.99 no upper bound, so it may be arbitrarily large, however long they took.
#[test]
fn what_too_few_requests_leave_open_is_not_missed() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan());
    let args = [&["plan.yaml", "--expect", "p99_99 > 1h"], &BRIEF[..]].concat();
    // A level during which loadlab itself got no core says nothing.
    let invalid = |(json, code, _): &(Value, Option<i32>, String)| {
        let last = json["search"]["path"].as_array().and_then(|path| path.last()?["why"].as_str());
        *code == Some(4) && last.is_some_and(|why| OF_A_BUSY_MACHINE.iter().any(|kind| why.starts_with(kind)))
    };
    let mut found = answer(&lab, &args);
    for _ in 0..7 {
        if invalid(&found) {
            std::fs::remove_dir_all(lab.record().dir).expect("it is there");
            found = answer(&lab, &args);
        }
    }
    let (json, code, err) = found;
    assert_eq!((code, &json["answer"]["found"]), (Some(6), &Value::from("less_than")), "{json:#}\n{err}");
    let path = json["search"]["path"].as_array().cloned().unwrap_or_default();
    let outcomes: Vec<&Value> = path.iter().map(|step| &step["outcome"]).collect();
    assert!(!outcomes.is_empty() && outcomes.iter().all(|outcome| **outcome == "undecided"), "{json:#}");
    assert!(json["search"]["bottleneck"].is_null(), "nothing is known to hold it back: {json:#}");
}

#[test]
fn a_rate_is_searched_on_a_url_until_the_backlog_grows() {
    // two at a time, 40 ms each: 50/s, and a little less because of thread scheduling
    let mut server = run_support::Served::start("\"at_once\": 2, \"slow_ms\": 40");
    let url = server.url("/");
    let args = [
        url.as_str(),
        "--expect",
        "errors < 1%",
        "--rate",
        "20/s..120/s",
        // At 53/s the backlog grows by 15 requests: enough to be told from chance, which it is not in 2 s.
        "--level-duration",
        "5s",
        "--settle",
        "200ms",
    ];
    let search = || answer(&Lab::new(), &args);
    let (mut json, mut code, mut err) = search();
    for _ in 0..2 {
        // A machine that was too busy to send requests on time, or to answer them, gets two more attempts. The answer is
        // then too low, never too high.
        let is_low = json["answer"]["level"].as_u64().is_none_or(|level| level < 25);
        if code == Some(4) || is_low {
            (json, code, err) = search();
        }
    }
    server.stop();
    assert_eq!(code, Some(0), "{json:#}\n{err}");
    let level = json["answer"]["level"].as_u64().unwrap_or_else(|| panic!("{json:#}"));
    assert!((25..=52).contains(&level), "{json:#}");
    let path = json["search"]["path"].as_array().expect("a path");
    let missed = path.iter().find(|s| s["outcome"] == "missed").expect("some level was too much");
    let why = missed["why"].as_str().expect("words");
    assert!(why.contains("cannot keep up"), "{json:#}");
}

#[test]
fn mistakes_are_reported_before_anything_runs() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan());
    let two = format!("{}matrix:\n  axes: {{ size: [1, 2] }}\n", plan());
    lab.file("two.yaml", &two);
    let stages = plan().replace("  users: 1\n  duration: 1s\n", "  stages: [{ to: 5, over: 1s }]\n");
    lab.file("stages.yaml", &stages);
    let check = |args: &[&str], holds: &[&str]| {
        lab.loadlab(&[&["find"], args].concat()).expect(2, holds);
    };
    check(&["plan.yaml"], &["--expect <EXPR>"]);
    check(&["plan.yaml", "--expect", "p50 <"], &["expect"]);
    check(&["plan.yaml", "--expect", "p51 < 5ms"], &["p51"]);
    check(&["plan.yaml", "--expect", "p50[2s..3s] < 5ms"], &["a time after the level, which ends after 1.2"]);
    check(&["plan.yaml", "--expect", "p50[1s..3s] < 5ms"], &["a time after the level, which ends after 1.2"]);
    check(&["plan.yaml", "--expect", "p50 < 5ms", "--users", "9..3"], &["9 is more than 3"]);
    check(
        &["plan.yaml", "--expect", "p50 < 5ms", "--users", "0..3"],
        &["the lowest level must be at least 1"],
    );
    check(&["two.yaml", "--expect", "p50 < 5ms"], &["the plan has 2 cases", "hint: --case names it"]);
    check(&["stages.yaml", "--expect", "p50 < 5ms"], &["`load` has stages", "hint:"]);
    check(
        &["plan.yaml", "--expect", "p50 < 5ms", "--load", "other"],
        &["no load `other`", "its loads are `load`"],
    );
    check(&["http://127.0.0.1:9/ /", "--expect", "p50 < 5ms"], &["127.0.0.1:9"]);
}

#[test]
fn a_target_that_is_not_there_is_no_answer() {
    let lab = Lab::new();
    let out = lab.run_name();
    let ran = lab.loadlab(&[
        "find",
        "http://127.0.0.1:9/",
        "--expect",
        "p50 < 5ms",
        "--level-duration",
        "1s",
        "--out",
        &out,
    ]);
    ran.expect(5, &["cannot connect to 127.0.0.1:9"]);
}

/// A server that serves this many users and refuses the others, however fast this machine is. A level lasts long
/// enough for all of its users to begin, however busy the machine is.
fn searches(served: &str, rest: &str) -> String {
    let web = component("web", &format!("\"users\": {served}"), &[]);
    run_support::plan(
        &[web],
        &format!(
            "load:\n  users: 1\n  duration: 1s\n  journey: [{{ get: \"http://127.0.0.1:${{components.web.port}}/user/${{user}}\" }}]\n\
             find: {{ users: 1..40, expect: [\"errors == 0\"], settle: 0s }}\n{rest}"
        ),
    )
}

#[test]
fn each_trial_of_a_plan_searches() {
    let lab = Lab::new();
    let plan = searches(
        "${case.served}",
        "matrix: { axes: { served: [5, 12] } }\ntrials: 2\nexpect: [\"capacity >= 5\"]\n",
    );
    let ran = lab.run(&plan, &["--junit", "junit.xml"]);
    let record = lab.record();
    let trials = [("served=5", 1), ("served=5", 2), ("served=12", 1), ("served=12", 2)];
    let summaries = trials.map(|(case, trial)| record.summary(case, trial));
    ran.expect_however_busy(&summaries, false);
    let mut all_known = true;
    for (summary, (case, trial)) in summaries.iter().zip(trials) {
        let search = &summary["search"];
        let path = search["path"].as_array().expect("a path");
        // The level that was found is stored as the trial itself, the others have their own folders.
        let level = |number: &Value| {
            record.trial(case, trial).join("levels").join(number.to_string()).join("summary.json").is_file()
        };
        let own = path.iter().filter(|step| !level(&step["trial"])).count();
        assert_eq!(own, 1, "{case}, {trial}: {search:#}");
        assert_eq!(summary["load"]["users"], search["level"], "{search:#}");
        if summary["verdict"] == "invalid" {
            all_known = false;
            continue;
        }
        let served: u64 = case["served=".len()..].parse().expect("a number");
        assert_eq!(
            (&search["level"], &search["above"]),
            (&served.into(), &(served + 1).into()),
            "{search:#}"
        );
        assert_eq!(search["capacity"]["value"].as_f64(), Some(served as f64), "{search:#}");
        assert_eq!(summary["figures"]["capacity"]["value"].as_f64(), Some(served as f64));
        let [low, high] = ["low", "high"].map(|end| search["capacity"][end].as_f64().expect("an interval"));
        assert!(low <= served as f64 && served as f64 <= high, "{search:#}");
    }
    if all_known {
        // The second trial of a case starts where the first one ended.
        let first = |summary: &Value| summary["search"]["path"][0]["level"].clone();
        assert_eq!([first(&summaries[0]), first(&summaries[1])], [Value::from(6), Value::from(5)]);
        assert_eq!(first(&summaries[3]), 12);
        let text = record.report("text");
        for part in ["What each search found", "All 2 expectations held in every case."] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let junit = lab.read("junit.xml");
        assert!(junit.contains("<property name=\"capacity\" value=\"12"), "{junit}");
    }
}

#[test]
fn a_search_without_a_level_that_holds_fails_its_trial() {
    let lab = Lab::new();
    let ran = lab.run(&searches("0", "expect: [\"capacity > 1\"]\n"), &["--quiet"]);
    let summary = lab.record().summary("default", 1);
    if summary["verdict"] == "invalid" {
        return ran.expect_however_busy(&[summary], false);
    }
    ran.expect(1, &[]);
    assert_eq!(
        (&summary["search"]["above"], &summary["search"]["level"]),
        (&1.into(), &Value::Null),
        "{summary:#}"
    );
    let missed: Vec<&Value> =
        summary["expectations"].as_array().expect("a list").iter().map(|e| &e["holds"]).collect();
    assert_eq!(missed, [&Value::Bool(false), &Value::Null], "{summary:#}");
}

/// What the search had measured when loadlab was killed is kept, and the trial is repeated.
#[test]
fn a_search_that_was_killed_goes_on() {
    let lab = Lab::new();
    let mut running = lab.start(&searches("5", "expect: [\"capacity >= 5\"]\n"), &["--plain"]);
    running.wait_for_output("6 users:");
    running.signal(rustix::process::Signal::KILL);
    running.child.wait().expect("it ends");
    let name = lab.run_name();
    lab.loadlab(&["show", &name, "--runs-dir", "."]).expect(0, &[]);
    let text = lab.record().report("text");
    assert!(text.contains("the search was cut off"), "{text}");
    run_support::eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
    let ran = lab.loadlab(&["resume", &name]);
    assert!([Some(0), Some(4)].contains(&ran.code), "{}", ran.err);
    let summary = lab.record().summary("default", 1);
    let is_known = summary["verdict"] != "invalid";
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert!(!is_known || summary["search"]["level"] == 5, "{summary:#}");
    let cut_off = lab.record().dir.join("cut-off/default-1-1/levels/1/summary.json");
    assert!(cut_off.is_file(), "{}", cut_off.display());
}

/// As for any trial, the record says why nothing was measured.
#[test]
fn a_system_that_does_not_come_up_fails_the_search() {
    let lab = Lab::new();
    let ready = "ready: { http: \"http://127.0.0.1:${port}/health\", timeout: 300ms }";
    let web = component("web", "\"never_ready\": true", &[ready]);
    let rest = "load:\n  rate: 5/s\n  duration: 300ms\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n\
                find: { rate: 1..40, expect: [\"errors == 0\"] }\n";
    lab.run(&run_support::plan(&[web], rest), &[]).expect(3, &[]);
    let failed = lab.record().events("default", 1, "failed");
    let text = failed[0]["text"].as_str().expect("words");
    assert!(text.contains("was not ready within 300 ms"), "{text}");
    assert!(!lab.record().trial("default", 1).join("summary.json").exists());
    assert!(lab.record().report("text").contains("was not ready within 300 ms"));
}

/// A level may have too few requests for a percentile: if even the slowest of them meets the condition, the level does,
/// and the trial then passes. Nothing above it was tried, so the capacity is at least that level.
#[test]
fn a_level_that_even_its_slowest_request_meets_passes() {
    let lab = Lab::new();
    let web = component("web", "\"slow_ms\": 20", &[]);
    let rest = "load:\n  users: 1\n  duration: 1s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n\
                find: { users: 1..2, expect: [\"p99 < 1h\"], settle: 0s }\nexpect: [\"capacity >= 2\"]\n";
    let ran = lab.run(&run_support::plan(&[web], rest), &[]);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    if summary["verdict"] == "pass" {
        let holds: Vec<&Value> =
            summary["expectations"].as_array().expect("a list").iter().map(|e| &e["holds"]).collect();
        assert_eq!(holds, [&Value::Bool(true), &Value::Bool(true)], "{summary:#}");
        let capacity = &summary["figures"]["capacity"];
        assert_eq!((&capacity["value"], &capacity["at_least"]), (&Value::Null, &2.0.into()), "{summary:#}");
    }
}
