//! How `loadlab run` watches: limits that are read back and derived from measurements, probes of every kind, losses,
//! and events in the middle of a load. Every [`Lab::run`] checks that nothing is left behind.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::run_support::{LOAD, Lab, component, plan};

fn at(event: &Value) -> f64 {
    event["at_s"].as_f64().expect("an event has a time")
}

#[test]
fn limits_are_read_back_and_follow_from_an_earlier_case() {
    let lab = Lab::new();
    let web = component(
        "web",
        "",
        &["limits: { memory: \"${case.memory}\", pids: 40, open_files: 99, cpuset: \"0\" }"],
    );
    let matrix = "matrix:\n  - { name: control, memory: 200MiB }\n  - { name: twice, memory: \"${measured.control.web.memory.max * 20}\" }\n";
    let ran = lab.run(&plan(&[web], matrix), &[]);
    if ran.lacks_limits() {
        return;
    }
    ran.expect(0, &[]);
    let record = lab.record();
    let in_force = |case: &str| record.events(case, 1, "limited")[0]["limits"].clone();
    let control = in_force("control");
    assert_eq!(
        (&control["memory_bytes"], &control["pids"], &control["open_files"], &control["cpuset"]),
        (&json!(200 << 20), &json!(40), &json!(99), &json!("0"))
    );
    let measured = record.summary("control", 1)["components"]["web"]["memory_bytes"]["max"].as_f64().unwrap();
    let limit = in_force("twice")["memory_bytes"].as_f64().unwrap();
    // The kernel rounds to whole pages.
    assert!(limit <= measured * 20.0 && limit > measured * 20.0 - 65536.0, "{limit} of {measured}");
    assert_eq!(
        record.summary("twice", 1)["components"]["web"]["limits"]["memory_bytes"],
        json!(limit as u64)
    );
    let notes = record.events("twice", 1, "note");
    assert!(notes[0]["text"].as_str().unwrap().starts_with("web: memory is limited to "), "{notes:?}");
    assert!(record.report("html").contains("is limited to"), "the report says what was in force");
}

/// A limit that does not take effect is an error, and nothing is started.
#[test]
fn a_limit_that_the_kernel_refuses_starts_nothing() {
    let lab = Lab::new();
    let web = component("web", "", &["limits: { cpuset: \"900\" }"]);
    lab.run(&plan(&[web], ""), &[]).expect(3, &["component `web`: cannot limit cores to [900]", "hint:"]);
    let web = component("web", "", &["limits: { cpu: 0.01% }"]);
    Lab::new().run(&plan(&[web], ""), &[]).expect(3, &["component `web`: cannot limit cpu", "hint:"]);
}

/// A component that lives on gets the limits of the new case.
#[test]
fn limits_change_between_cases_on_what_lives_on() {
    let lab = Lab::new();
    let web = component("web", "", &["limits: { pids: \"${case.pids}\" }", "lifetime: experiment"]);
    let ran = lab.run(&plan(&[web], "matrix: { axes: { pids: [40, none, 50] } }\n"), &[]);
    if ran.lacks_limits() {
        return;
    }
    ran.expect(0, &[]);
    let record = lab.record();
    let limits = |case: &str| record.summary(case, 1)["components"]["web"]["limits"]["pids"].clone();
    assert_eq!(
        [limits("pids=40"), limits("pids=none"), limits("pids=50")],
        [json!(40), Value::Null, json!(50)]
    );
    assert!(record.events("pids=50", 1, "up").is_empty(), "it was up from before");
}

#[test]
fn probes_of_every_kind() {
    let lab = Lab::new();
    let redis = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = redis.local_addr().unwrap().port();
    // Answers LLEN with the number of queries so far.
    std::thread::spawn(move || {
        for (n, stream) in redis.incoming().flatten().enumerate() {
            let mut stream = stream;
            let mut asked = [0u8; 256];
            let length = stream.read(&mut asked).unwrap_or(0);
            assert_eq!(&asked[..length], b"*2\r\n$4\r\nLLEN\r\n$1\r\nq\r\n");
            let _ = stream.write_all(format!(":{}\r\n", n + 1).as_bytes());
        }
    });
    let web = component("web", "\"die_after\": 1000000", &[]);
    let probes = format!(
        "  probes:\n    stored: {{ http: \"http://127.0.0.1:${{components.web.port}}/stats\", json: /stored }}\n    \
         posted: {{ prometheus: \"http://127.0.0.1:${{components.web.port}}/metrics\", metric: posted, labels: {{ to: web }} }}\n    \
         depth: {{ redis: \"127.0.0.1:{port}\", llen: q }}\n    \
         lines: {{ command: \"wc -l < data\" }}\n    \
         said: {{ log: talker, contains: word }}\n    \
         gone: {{ command: \"test ! -e gone && echo 1\" }}\n"
    );
    let talker = "    talker: { run: \"while :; do echo a word; sleep 0.05; done\" }\n".to_owned();
    let load = "load:\n  users: 2\n  requests: 20\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/x\" }]\n";
    let rest = format!(
        "{probes}  before_trial: \"printf 'a\\nb\\n' > data; rm -f gone\"\n  after_trial: touch gone\n{load}trials: 2\n\
         drain: {{ until: \"stored == 20 and posted == 20 and lines == 2 and depth > 3 and said > 2\", at_most: 30s }}\n\
         expect: [\"posted == 20\", \"lines == 2\", \"gone == 1\"]\n"
    );
    lab.run(&plan(&[talker, web], &rest), &["--set", "trials=1"]).expect(0, &["pass"]);
    let probes = lab.record().summary("default", 1)["probes"].clone();
    assert_eq!(probes["posted"]["last"], 20.0, "{probes}");
    assert!(probes["said"]["last"].as_f64() > Some(2.0), "{probes}");
}

/// What runs already writes its output elsewhere: there is nothing to count in.
#[test]
fn the_log_of_what_runs_already_is_not_read() {
    let lab = Lab::new();
    let runs = format!("    old: {{ external: {{ pid: {} }} }}\n", std::process::id());
    let probes = "  probes: { faults: { log: old, contains: ERROR } }\n";
    let ran = lab
        .run(&plan(&[component("web", "", &[]), runs], &format!("{probes}expect: [\"faults == 0\"]\n")), &[]);
    ran.expect(2, &["probe `faults`: `old` runs already, so loadlab cannot read its output"]);
}

/// A probe that cannot be read has no value: it completes no drain, and no expectation on it holds.
#[test]
fn a_failing_probe_never_keeps_its_last_value() {
    let lab = Lab::new();
    let probes = "  probes:\n    n: { command: \"test ! -e gone && echo 5\" }\n    \
                  is_gone: { command: \"ls gone 2> /dev/null | wc -l\" }\n";
    let load = "stop_when: [\"is_gone == 1\"]\nload:\n  users: 1\n  duration: 10m\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let gone = "    ender: { run: \"until test -s ${run.dir}/cases/default/1/ticks.jsonl; do sleep 0.05; done; touch gone; exec sleep 1000\" }\n".to_owned();
    let rest = format!(
        "  before_trial: rm -f gone\n{probes}{load}drain: {{ until: \"steady(n, 200ms) or n == 5\", at_most: 1s }}\nexpect: [\"n == 5\"]\n"
    );
    lab.run(&plan(&[component("web", "", &[]), gone], &rest), &[]).expect(1, &["not drained after"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert_eq!((&summary["probes"]["n"]["last"], &summary["drain_s"]), (&Value::Null, &Value::Null));
    assert!(summary["probes"]["n"]["failed"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["expectations"][0]["holds"], Value::Null);
    let samples = record.lines("default", 1, "samples.jsonl");
    let failed = samples.iter().filter(|s| s["probes_failed"]["n"].is_string()).count();
    assert!(failed > 0, "each failure is in the record");
    assert!(
        record.events("default", 1, "note").iter().any(|e| e["text"].as_str().unwrap().contains("probe `n`"))
    );
}

#[test]
fn what_is_lost_is_reported_by_ids() {
    let lab = Lab::new();
    let web = component("web", "\"lose_every\": 7", &[]);
    let load = "load:\n  users: 3\n  requests: 70\n  batches: { repeat: 2 }\n  journey:\n    \
                - { post: \"http://127.0.0.1:${components.web.port}/items/${unique}\" }\n    \
                - { get: \"http://127.0.0.1:${components.web.port}/\" }\n";
    let rest = format!(
        "{load}drain: {{ until: \"steady(stored, 100ms)\", at_most: 10s }}\n\
         durability: {{ http: \"http://127.0.0.1:${{components.web.port}}/ids\", json: /ids }}\nexpect: [\"lost == 0\", \"errors == 0\"]\n"
    );
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let ran = lab.run(&plan(&[web], &format!("{probes}{rest}")), &[]);
    ran.expect(1, &[]);
    let record = lab.record();
    let loss = record.summary("default", 1)["loss"].clone();
    let n = |key: &str| loss[key].as_u64().unwrap();
    // Half of the 140 requests carry an id.
    let accepted = n("accepted");
    assert!((69..=72).contains(&accepted), "{loss}");
    assert_eq!((n("lost_min"), n("lost_max")), (accepted / 7, accepted / 7), "{loss}");
    assert_eq!(
        (n("persisted_distinct"), n("doubled"), n("unanswered")),
        (accepted - accepted / 7, 0, 0),
        "{loss}"
    );
    assert_eq!(loss["by_id"], true);
    let compared = &record.events("default", 1, "compared")[0];
    assert_eq!(compared["missing"].as_array().unwrap().len() as u64, accepted / 7);
    // The ids of both batches, as inclusive ranges.
    let ids = record.lines("default", 1, "ids.jsonl");
    let ranges: Vec<(u64, u64)> = ids
        .iter()
        .flat_map(|l| {
            l["accepted"].as_array().unwrap().iter().map(|r| (r[0].as_u64().unwrap(), r[1].as_u64().unwrap()))
        })
        .collect();
    assert_eq!(ranges.iter().map(|(from, to)| to - from + 1).sum::<u64>(), accepted);
    assert!(ids.iter().any(|l| l["batch"] == 0) && ids.iter().any(|l| l["batch"] == 1));
    for format in ["text", "md"] {
        assert!(record.report(format).contains("lost, at least"), "{format}");
    }
}

#[test]
fn what_is_lost_is_bounded_by_a_count() {
    let lab = Lab::new();
    let web = component("web", "\"lose_every\": 10", &[]);
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let load = "load:\n  users: 2\n  requests: 40\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/x\" }]\n";
    let rest = format!(
        "{probes}{load}durability: {{ probe: stored }}\nexpect: [\"lost <= 4\", \"accepted == 40\"]\n"
    );
    lab.run(&plan(&[web], &rest), &[]).expect(0, &["pass"]);
    let loss = lab.record().summary("default", 1)["loss"].clone();
    assert_eq!((&loss["lost_min"], &loss["lost_max"], &loss["by_id"]), (&json!(4), &json!(4), &json!(false)));
}

#[test]
fn what_cannot_be_compared_spoils_the_trial() {
    let lab = Lab::new();
    let load = "load:\n  users: 1\n  requests: 5\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/items/${unique}\" }]\n";
    let rest = format!("{load}durability: {{ command: \"echo the store is away >&2; exit 4\" }}\n");
    let ran = lab.run(&plan(&[component("web", "", &[])], &rest), &[]);
    ran.expect(3, &["cannot read what was stored", "the store is away"]);
    assert_eq!(lab.record().summary("default", 1)["loss"], Value::Null);
}

#[test]
fn events_happen_in_the_middle_of_a_load_and_are_no_deaths() {
    let lab = Lab::new();
    let web = component("web", "", &[]);
    let edge = component("edge", "", &["replicas: 2"]);
    let load = "load:\n  rate: 50/s\n  duration: 20s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let events = "events:\n  - { at: 200ms, do: kill edge2 }\n  - { at: 400ms, do: pause web }\n  - { at: 2400ms, do: resume web }\n  \
                  - { at: 2500ms, do: restart edge1 }\n  - { at: 1h, do: kill web }\n";
    let ran = lab.run(&plan(&[web, edge], &format!("{load}{events}expect: [\"errors == 0\"]\n")), &[]);
    // The pause is not the generator's fault, but a busy machine may make it late.
    assert!(matches!(ran.code, Some(0 | 4)), "{}", ran.err);
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert_eq!((&summary["ended"], &summary["requests"]["ok"]), (&json!("complete"), &json!(1000)));
    let acted: Vec<&str> =
        summary["actions"].as_array().unwrap().iter().filter_map(|a| a["what"].as_str()).collect();
    assert_eq!(acted, ["kill edge2", "pause web", "resume web", "restart edge1"]);
    assert!(record.events("default", 1, "died").is_empty());
    assert_eq!(summary["components"]["edge1"]["restarts"], 1);
    assert_eq!(summary["components"]["edge2"].get("died"), None);
    let events = record.events("default", 1, "action");
    // Nothing is answered during the pause; at 50/s a request fell due within 20 ms of its start. An event may be
    // recorded a moment after it happened.
    let still_ms = (at(&events[2]) - at(&events[1])) * 1e3;
    assert!(summary["response_ms"]["max"].as_f64().unwrap() > still_ms - 1000.0, "{still_ms}: {summary}");
    assert!(at(&events[0]) >= 0.2 && at(&events[3]) >= 2.5, "{events:?}");
    let down = record.events("default", 1, "down");
    assert_eq!(down.iter().filter(|e| e["component"] == "edge2").count(), 1, "taken down once: {down:?}");
    let skipped = record.events("default", 1, "skipped");
    assert!(skipped.iter().any(|e| e["events"] == json!(["kill web"])), "{skipped:?}");
    let doubts = summary["doubts"].as_array().unwrap();
    assert!(doubts.iter().any(|d| d["kind"] == "event_skipped" && d["grave"] == false), "{doubts:?}");
    for format in ["md", "html"] {
        assert!(record.report(format).contains("event: kill edge2"), "{format}");
    }
}

#[test]
fn a_limit_changes_in_the_middle_of_a_load() {
    let lab = Lab::new();
    let web = component("web", "", &["limits: { cpu: 50% }"]);
    let load = "load:\n  rate: 20/s\n  duration: 4s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let events = "events: [{ at: 200ms, do: limit web cpu 30% }, { at: 400ms, do: limit web pids 77 }, { at: 600ms, do: limit web cpu none }]\n";
    let ran = lab.run(&plan(&[web], &format!("{load}{events}")), &[]);
    if ran.lacks_limits() {
        return;
    }
    assert!(matches!(ran.code, Some(0 | 4)), "{}", ran.err);
    let limited = lab.record().events("default", 1, "limited");
    let of = |key: &str| limited.iter().map(|e| e["limits"][key].clone()).collect::<Vec<_>>();
    assert_eq!(of("cpu_cores"), [json!(0.5), json!(0.3), json!(0.3), Value::Null]);
    assert_eq!(of("pids"), [Value::Null, Value::Null, json!(77), json!(77)]);
}

#[test]
fn an_event_that_cannot_be_carried_out_spoils_the_trial() {
    let lab = Lab::new();
    let events = "events: [{ at: 0s, do: kill edge }, { at: 100ms, do: pause edge }]\n";
    let edge = "    edge: { run: sleep 1000 }\n".to_owned();
    let load = LOAD.replace("requests: 40", "duration: 10m");
    let ran = lab.run(&plan(&[component("web", "", &[]), edge], &format!("{load}{events}")), &[]);
    ran.expect(3, &["event `pause edge` failed: edge: it is not up"]);
}

/// The kernel's out-of-memory kill is reported with its time, next to the limit.
#[test]
fn a_kill_for_memory_has_its_time() {
    let lab = Lab::new();
    let web = component("web", "", &["limits: { memory: 60MiB }"]);
    let load = "load:\n  users: 1\n  duration: 10m\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/hog/8\" }]\n";
    let ran = lab.run(&plan(&[web], load), &[]);
    if ran.lacks_limits() {
        return;
    }
    ran.expect(1, &["web died: out of memory (limit 60.0 MiB)"]);
    let record = lab.record();
    let kill = &record.events("default", 1, "out_of_memory")[0];
    assert_eq!((&kill["component"], &kill["limit_bytes"]), (&json!("web"), &json!(60 << 20)));
    let died = &record.events("default", 1, "died")[0];
    // The kill may be seen a moment before the process is gone. The load, which caused it, began at 0.
    assert!(at(kill) > 0.0 && at(kill) <= at(died), "{kill} {died}");
    let summary = record.summary("default", 1);
    assert_eq!(summary["components"]["web"]["oom_kills_at_s"][0], kill["at_s"]);
}

/// Two runs at once on one machine: neither disturbs the other.
#[test]
fn two_runs_at_once() {
    let (one, two) = (Lab::new(), Lab::new());
    let load = "load:\n  users: 2\n  requests: 100\n  think: 20ms\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let text = plan(&[component("web", "", &["limits: { pids: 50 }"])], load);
    let first = one.start(&text, &[]);
    let second = two.run(&text, &[]);
    let first = first.end();
    assert_eq!(one.left_behind(), Vec::<String>::new());
    if second.lacks_limits() {
        return;
    }
    assert!(matches!((first.code, second.code), (Some(0 | 4), Some(0 | 4))), "{}\n{}", first.err, second.err);
    let ok = |lab: &Lab| lab.record().summary("default", 1)["requests"]["ok"].as_u64().unwrap();
    assert_eq!((ok(&one), ok(&two)), (100, 100));
    assert_eq!(two.record().summary("default", 1)["components"]["web"]["limits"]["pids"], 50);
}
