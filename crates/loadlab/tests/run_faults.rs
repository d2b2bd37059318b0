//! `loadlab run` when something fails: its messages, its exit code, what still continues, and that nothing is left
//! behind (checked by every [`Lab::run`]).

use std::net::TcpListener;

use crate::common::ports;
use crate::run_support;
use crate::run_support::{LOAD, LONG, Lab, component, plan};

/// A plan with the case `bad` between two good ones; `${case.broken}` is true only in `bad`, where `${case.wait}` is
/// this short.
fn three_cases(components: &[String], wait: &str, rest: &str) -> String {
    let matrix = format!(
        "matrix: [{{ name: one, broken: false, wait: 1m }}, {{ name: bad, broken: true, wait: {wait} }}, \
         {{ name: two, broken: false, wait: 1m }}]\n"
    );
    plan(components, &format!("{rest}{matrix}"))
}

/// Shell commands that wait until loadlab has noticed the end of the process whose number is in the file `pid`: until
/// then the process is there, if only as one that has ended.
const UNTIL_NOTICED: &str =
    "until test -s pid; do sleep 0.01; done; while kill -0 $(cat pid) 2> /dev/null; do sleep 0.01; done";

#[test]
fn a_build_that_fails_starts_nothing() {
    let lab = Lab::new();
    let build =
        "build: [echo fine, \"echo the compiler says no >&2; echo built > built; exit 3\", echo never]";
    let web = component("web", "", &[build]);
    let ran = lab.run(&plan(&[web], "  before_trial: echo started > started\ntrials: 2\n"), &[]);
    ran.expect(3, &["build of web failed with exit status 3", "| the compiler says no"]);
    assert!(lab.read("built") == "built\n" && lab.read("started").is_empty());
    let record = lab.record();
    assert_eq!(record.manifest()["how"], "broken");
    let exits: Vec<_> = record.events("default", 1, "command").iter().map(|e| e["exit"].clone()).collect();
    assert_eq!(exits, [0, 3]);
    // A later report shows why the run is empty.
    let report = record.report("md");
    assert!(report.contains("the compiler says no"), "{report}");
}

#[test]
fn a_program_that_is_not_there() {
    let lab = Lab::new();
    // A program given by path: a build might have made it. A program without a path is looked up on PATH before
    // anything is built.
    let web = "    web: { run: [./no-such-program, --x], port: auto }\n".to_owned();
    let ran = lab.run(&plan(&[web], ""), &[]);
    ran.expect(3, &["component `web`: cannot start `./no-such-program --x`", "no such program", "hint:"]);
}

#[test]
fn a_port_that_is_taken_names_its_owner() {
    let lab = Lab::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = component("web", "", &[&format!("port: {port}")]);
    let ran = lab.run(&plan(&[web], ""), &[]);
    let owner = format!("port {port} is already taken by pid {}", std::process::id());
    ran.expect(3, &["component `web`", &owner, "hint:"]);
    assert!(lab.record().report("md").contains(&owner));
}

/// As before a run: a list of URLs is checked before a search creates or starts anything.
#[test]
fn a_search_goes_nowhere_it_may_not() {
    let lab = Lab::new();
    lab.file("list.txt", "http://192.0.2.1/\n");
    let load = "load:\n  users: 1\n  duration: 1s\n  journey: [{ urls: list.txt }]\n";
    lab.file(
        "plan.yaml",
        &plan(&[component("web", "", &[])], &format!("  after_trial: echo x > after\n{load}")),
    );
    let out = lab.run_name();
    let ran = lab.loadlab(&["find", "plan.yaml", "--expect", "p50 < 1s", "--users", "1..2", "--out", &out]);
    ran.expect(5, &["192.0.2.1"]);
    assert!(!lab.record().dir.exists(), "{}", ran.err);
    assert!(lab.left_behind().is_empty() && lab.read("after").is_empty());
}

/// A foreign program would be mistaken for the component, although the plan does not declare this port as the
/// component's.
#[test]
fn a_stranger_where_readiness_is_asked() {
    let lab = Lab::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let web = format!("    web: {{ run: sleep 1000, ready: {{ tcp: \"127.0.0.1:{port}\" }} }}\n");
    let load =
        format!("load: {{ users: 1, requests: 1, journey: [{{ get: \"http://127.0.0.1:{port}/\" }}] }}\n");
    let ran = lab.run(&plan(&[web], &load), &[]);
    let owner = format!("port {port} is already taken by pid {}", std::process::id());
    ran.expect(3, &["component `web`", &owner, "hint:"]);
}

/// The case is given up; the others run.
#[test]
fn a_component_that_is_never_ready() {
    let lab = Lab::new();
    let ready = "ready: { http: \"http://127.0.0.1:${port}/health\", timeout: \"${case.wait}\" }";
    let web = component("web", "\"never_ready\": ${case.broken}", &[ready]);
    // Long enough that it has begun to listen, however busy the machine is.
    let ran = lab.run(&three_cases(&[web], "15s", "trials: 2\n"), &[]);
    let not_ready = "component `web` was not ready within 15.0 s";
    ran.expect(
        3,
        &[not_ready, "answered with status 503", "| web is listening", "not run, because an earlier trial"],
    );
    let record = lab.record();
    for (case, trial) in [("one", 1), ("two", 1), ("one", 2), ("two", 2)] {
        assert_eq!(record.summary(case, trial)["requests"]["ok"], 40, "{case} {trial}");
    }
    assert_eq!(record.manifest()["how"], "broken");
    assert!(record.events("bad", 1, "failed")[0]["text"].as_str().unwrap().starts_with(not_ready));
    let skipped = record.events("bad", 2, "failed");
    assert!(skipped[0]["text"].as_str().unwrap().contains(not_ready), "{skipped:?}");
    assert!(record.events("bad", 2, "up").is_empty());
    let report = record.report("text");
    assert!(report.contains("was not ready within 15.0 s"), "{report}");
}

#[test]
fn a_component_that_dies_while_it_starts() {
    let lab = Lab::new();
    let web = "    web: { run: \"echo no licence found >&2; exit 9\", port: auto, ready: { tcp: \"127.0.0.1:${port}\" } }\n";
    let ran = lab.run(&plan(&[web.to_owned()], ""), &[]);
    ran.expect(3, &["component `web` ended before it was ready: exit status 9", "| no licence found"]);
}

/// The death is noticed at once, although the load would last ten minutes. The other cases run.
#[test]
fn a_component_that_dies_in_the_middle() {
    let lab = Lab::new();
    let dies = "    frail:\n      run: \"test ${case.broken} = false || test -e now; while test ! -e die; do sleep 0.05; done; \
                rm die; exit 5\"\n";
    let web = component("web", "", &[]);
    let load = "load:\n  users: 2\n  duration: \"${case.time}\"\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let matrix = "matrix: [{ name: one, broken: false, time: 500ms }, { name: bad, broken: true, time: 10m }, \
                  { name: two, broken: false, time: 500ms }]\n";
    let text = plan(&[dies.to_owned(), web], &format!("{load}{matrix}"));
    let mut running = lab.start(&text, &[]);
    running.wait_for_output("bad, trial 1");
    // Wait until it is under load.
    let ticks = lab.record().trial("bad", 1).join("ticks.jsonl");
    run_support::eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    lab.file("die", "");
    let ran = running.end();
    ran.expect(1, &["frail died: exit status 5", "two, trial 1"]);
    let record = lab.record();
    let summary = record.summary("bad", 1);
    assert_eq!(summary["ended"], "broken");
    assert_eq!(summary["components"]["frail"]["died"], "exit status 5");
    let died = record.events("bad", 1, "died");
    let ended = record.events("bad", 1, "load_ended");
    let at = |event: &serde_json::Value| event["at_s"].as_f64().unwrap();
    assert!(at(&ended[0]) - at(&died[0]) < 60.0, "{died:?} {ended:?}");
    assert_eq!(ended[0]["how"], "component `frail` died: exit status 5");
    assert_eq!(record.summary("two", 1)["ended"], "complete");
    for format in ["md", "text", "html"] {
        assert!(record.report(format).contains("frail died"), "{format}");
    }
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

/// Stopped in the middle of a load and then continued: every format of the report mentions it.
#[test]
fn loadlab_is_stopped_under_load() {
    let lab = Lab::new();
    // The load lasts until this test has stopped and continued loadlab.
    let probe = "  probes: { enough: { command: \"test -e enough && echo 1 || echo 0\" } }\n";
    let load = "load:\n  rate: 200/s\n  duration: 10m\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let text = plan(&[component("web", "", &[])], &format!("{probe}stop_when: [\"enough > 0\"]\n{load}"));
    let running = lab.start(&text, &[]);
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    run_support::eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    running.signal(rustix::process::Signal::STOP);
    let stopped = std::time::Instant::now();
    run_support::eventually("half a second", || (stopped.elapsed().as_millis() > 500).then_some(()));
    running.signal(rustix::process::Signal::CONT);
    lab.file("enough", "");
    let ran = running.end();
    ran.expect(4, &["INVALID"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert!(summary["generator"]["stalls"]["max_s"].as_f64().unwrap() > 0.39, "{summary}");
    for format in ["text", "md", "html", "json"] {
        let report = record.report(format).replace("\\_", "_");
        assert!(report.contains("generator_stalled") && report.contains("loadlab stalled for"), "{format}");
    }
}

/// The server itself dies under load: its answers are counted, and what it did not answer is accounted for.
#[test]
fn the_server_dies_under_load() {
    let lab = Lab::new();
    let web = component("web", "\"die_after\": 50", &[]);
    // One user: with more, the server could die before it has answered the request before the last.
    let load = LONG.replace("users: 2", "users: 1");
    let ran = lab.run(&plan(&[web], &load), &[]);
    ran.expect(1, &["web died: exit status 7"]);
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["requests"]["ok"], 49);
    let n = |key: &str| summary["requests"][key].as_u64().unwrap();
    assert_eq!(n("started"), n("ok") + n("failed") + n("in_flight"));
    assert_eq!(summary["components"]["web"]["died"], "exit status 7");
}

#[test]
fn a_component_killed_for_its_memory() {
    let lab = Lab::new();
    let web = component("web", "", &["limits: { memory: 60MiB }"]);
    let load = "load:\n  users: 1\n  duration: 10m\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/hog/8\" }]\n";
    let ran = lab.run(&plan(&[web], load), &[]);
    if ran.lacks_limits() {
        return;
    }
    ran.expect(1, &["web died: out of memory (limit 60.0 MiB)"]);
    let summary = lab.record().summary("default", 1);
    assert!(summary["components"]["web"]["died"].as_str().unwrap().starts_with("out of memory"), "{summary}");
}

/// If a component that lives for the whole experiment dies after a trial's load is over, that trial fails; the
/// component is started and seeded again for the next one.
#[test]
fn a_component_that_dies_between_trials() {
    let store = "    store: { run: \"echo $$ > pid; while test ! -e die; do sleep 0.01; done; rm die; exit 4\", lifetime: experiment }\n";
    // It dies while the plan's last commands run, or while another component is taken down.
    let wait = format!("test -e once || {{ touch once die; {UNTIL_NOTICED}; }}");
    let after = format!("  after_trial: \"{wait}\"\n");
    let slow = format!(
        "    slow:\n      run: \"trap '{wait}; exit 0' TERM; echo armed; while :; do sleep 0.05; done\"\n      \
         ready: {{ log: armed }}\n      stop: {{ timeout: 10m }}\n"
    );
    for (slow, after) in [("", after.as_str()), (slow.as_str(), "")] {
        let lab = Lab::new();
        let rest = format!("  seed: echo seed >> story\n{after}trials: 2\n");
        let components = [store.to_owned(), component("web", "", &[]), slow.to_owned()];
        let ran = lab.run(&plan(&components, &rest), &[]);
        ran.expect(1, &["store died: exit status 4"]);
        assert_eq!(ran.err.matches("store died").count(), 1, "{}", ran.err);
        assert_eq!(lab.lines("story").len(), 2);
        let record = lab.record();
        assert_eq!(record.events("default", 1, "died").len(), 1);
        assert_eq!(record.summary("default", 2)["ended"], "complete");
        assert_eq!(record.events("default", 2, "died").len(), 0);
    }
}

/// Draining ends at once when it can no longer complete.
#[test]
fn a_component_that_dies_while_draining() {
    let lab = Lab::new();
    let frail = "    frail: { run: \"while test ! -s ${run.dir}/draining; do sleep 0.01; done; exit 8\" }\n";
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let drain = "drain: { until: \"stored == 1000000\", at_most: 10m }\n";
    let text = plan(&[frail.to_owned(), component("web", "", &[])], &format!("{probes}{drain}"));
    let mut running = lab.start(&text, &[]);
    running.wait_for_output("draining until");
    std::fs::write(lab.record().dir.join("draining"), "x").unwrap();
    running.end().expect(1, &["frail died: exit status 8"]);
    let summary = lab.record().summary("default", 1);
    assert_eq!((&summary["ended"], &summary["drain_s"]), (&"broken".into(), &serde_json::Value::Null));
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

/// If several exit codes apply, the most significant one wins: a case that did not come up over a failed expectation.
#[test]
fn several_things_that_fail() {
    let lab = Lab::new();
    let ready = "ready: { http: \"http://127.0.0.1:${port}/health\", timeout: \"${case.wait}\" }";
    let web = component("web", "\"never_ready\": ${case.broken}", &[ready]);
    let ran = lab.run(&three_cases(&[web], "1s", "expect: [\"ok < 1\"]\n"), &[]);
    ran.expect(3, &["FAIL: 40 ok"]);
}

/// Nothing to bring up: the target is already running, or it is not.
#[test]
fn a_plan_without_a_system() {
    let lab = Lab::new();
    let address = ports::unused();
    let port = address.port();
    let text = format!(
        "loadlab: 1\nname: bare\nload:\n  users: 1\n  requests: 30\n  journey: [{{ get: \"http://127.0.0.1:{port}/\" }}]\n"
    );
    lab.run(&text, &[]).expect(5, &["cannot connect to", "hint:"]);
    let lab = Lab::new();
    let listener = TcpListener::bind(address).unwrap();
    let served = std::thread::spawn(move || run_support::server::serve_one(&listener));
    lab.run(&text, &[]).expect(0, &[]);
    served.join().unwrap();
    assert_eq!(lab.record().summary("default", 1)["requests"]["ok"], 30);
}

#[test]
fn commands_that_fail() {
    for (key, code, measured) in [("seed", 3, false), ("before_trial", 3, false), ("after_trial", 3, true)] {
        let lab = Lab::new();
        let rest = format!("  {key}: [\"true\", \"echo no such table >&2; false\", touch never]\n");
        let ran = lab.run(&plan(&[component("web", "", &[])], &rest), &[]);
        ran.expect(code, &[&format!("{key} failed with exit status 1"), "| no such table"]);
        assert!(!lab.path().join("never").exists(), "{key}");
        let record = lab.record();
        assert_eq!(record.trial("default", 1).join("summary.json").exists(), measured, "{key}");
        let exits: Vec<_> =
            record.events("default", 1, "command").iter().map(|e| e["exit"].clone()).collect();
        assert_eq!(exits, [0, 1], "{key}");
        assert!(record.report("md").contains("no such table"), "{key}");
    }
}

/// If a command fails because a component died, the message says so.
#[test]
fn a_component_that_dies_before_the_load() {
    let lab = Lab::new();
    let frail =
        "    frail: { run: \"echo $$ > pid; while test ! -e die; do sleep 0.01; done; rm die; exit 6\" }\n";
    let rest = format!("  before_trial: \"touch die; {UNTIL_NOTICED}; sleep 0.2; false\"\n");
    let ran = lab.run(&plan(&[frail.to_owned(), component("web", "", &[])], &rest), &[]);
    ran.expect(
        3,
        &["component `frail` died: exit status 6, before the load began", "then: before_trial failed"],
    );
}

#[test]
fn targets_elsewhere_are_refused_before_anything_runs() {
    let lab = Lab::new();
    let load = "load:\n  users: 1\n  requests: 1\n  journey: [{ get: \"http://192.0.2.1/\" }]\n";
    let web = component("web", "", &["build: touch built"]);
    let ran = lab.run(&plan(&[web], load), &[]);
    ran.expect(5, &["`192.0.2.1` (192.0.2.1) is not loopback", "--allow-host 192.0.2.1"]);
    assert!(!lab.path().join("built").exists() && !lab.record().dir.exists());
}

/// As [`targets_elsewhere_are_refused_before_anything_runs`], for a target that is known only once the system is up;
/// the trials that are then skipped do not change the exit code.
#[test]
fn targets_elsewhere_behind_a_port_of_the_system() {
    let lab = Lab::new();
    let load = "trials: 2\nload:\n  users: 1\n  requests: 1\n  journey: [{ get: \"http://192.0.2.1:${components.web.port}/\" }]\n";
    let ran = lab.run(&plan(&[component("web", "", &[])], load), &[]);
    ran.expect(5, &["`192.0.2.1` (192.0.2.1) is not loopback", "not run, because an earlier trial"]);
}

#[test]
fn a_target_that_is_not_there() {
    let lab = Lab::new();
    let free = ports::unused().port();
    let load =
        format!("load:\n  users: 1\n  duration: 10m\n  journey: [{{ get: \"http://127.0.0.1:{free}/\" }}]\n");
    let ran = lab.run(&plan(&[component("web", "", &[])], &load), &[]);
    ran.expect(5, &["cannot connect to", "connection refused", "hint: is the server up"]);
}

#[test]
fn a_body_that_is_not_there() {
    let lab = Lab::new();
    let load = "load:\n  users: 1\n  requests: 1\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/\", body: { file: none.json } }]\n";
    let rest = format!("trials: 2\n{load}");
    let ran = lab.run(&plan(&[component("web", "", &[])], &rest), &[]);
    ran.expect(2, &["step 1 of `load`: cannot read the body", "none.json", "hint:"]);
}

/// A probe of a component that returns nothing useful is noted, and the run continues.
#[test]
fn a_probe_that_fails() {
    let lab = Lab::new();
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /other } }\n";
    let rest = format!("{probes}expect: [\"stored > 0\"]\n{LOAD}");
    lab.run(&plan(&[component("web", "", &[])], &rest), &[]).expect(1, &[]);
    let record = lab.record();
    let notes = record.events("default", 1, "note");
    assert!(
        notes.iter().any(|n| n["text"].as_str().unwrap().contains("there is nothing at `/other`")),
        "{notes:?}"
    );
    assert_eq!(record.summary("default", 1)["expectations"][0]["holds"], serde_json::Value::Null);
}

#[test]
fn folders_that_cannot_hold_a_record() {
    let lab = Lab::new();
    let plan = plan(&[component("web", "", &["build: touch built"])], "");
    std::fs::create_dir(lab.record().dir).unwrap();
    // An empty file counts as missing.
    lab.run(&plan, &[]).expect(0, &[]);
    std::fs::remove_file(lab.path().join("built")).unwrap();
    lab.run(&plan, &[])
        .expect(2, &["exists and is not an empty folder", "hint: choose another folder with --out"]);
    lab.file("file", "");
    lab.loadlab(&["run", "plan.yaml", "--out", "file"]).expect(2, &["exists and is not an empty folder"]);
    lab.loadlab(&["run", "plan.yaml", "--out", "/proc/nothing/run"]).expect(5, &["cannot create", "hint:"]);
    assert!(!lab.path().join("built").exists());
}
