//! `loadlab run` when all goes well: what is brought up, for how long, in which order, and what is recorded.

use crate::common::ports;
use crate::run_support;
use crate::run_support::{LOAD, Lab, component, plan};

/// The `CASE, trial T` parts of the `[N/M] CASE, trial T` lines, in the order they were reported.
fn reported_trials(err: &str) -> Vec<&str> {
    err.lines().filter_map(|l| l.strip_prefix('[')?.split_once("] ").map(|(_, trial)| trial)).collect()
}

#[test]
fn one_component_one_case() {
    let lab = Lab::new();
    let ran = lab.run(&plan(&[component("web", "", &[])], "expect: [\"errors == 0\"]\n"), &[]);
    ran.expect(0, &["[1/1] default, trial 1", "web ready after", "pass: 40 ok"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert_eq!((&summary["requests"]["ok"], &summary["verdict"]), (&40.into(), &"pass".into()));
    assert_eq!(record.manifest()["how"], "complete");
    let events = record.lines("default", 1, "events.jsonl");
    // On a busy machine a sample may be late, which is noted.
    let is_late = |e: &serde_json::Value| e["text"].as_str().is_some_and(|text| text.ends_with(" ms late"));
    let kinds: Vec<&str> =
        events.iter().filter(|e| !is_late(e)).filter_map(|e| e["event"].as_str()).collect();
    assert_eq!(kinds, ["up", "ready", "planned", "load_started", "load_ended", "down"]);
    assert_eq!(events[2]["at_s"], 0.0, "the load's start is the clock's zero");
    for file in ["report.md", "report.html", "cases/default/1/logs/web.out"] {
        assert!(record.dir.join(file).is_file(), "{file}");
    }
    assert!(ran.out.contains("report.html"), "{}", ran.out);
    let log = std::fs::read_to_string(record.trial("default", 1).join("logs/web.out")).unwrap();
    assert!(log.contains("web is listening"), "{log}");
}

/// Replicas, environment, named ports, a component that gets another's port before that one is up, and every way to be
/// ready.
#[test]
fn a_system_of_several_components() {
    let lab = Lab::new();
    let web = component(
        "web",
        "\"upstream\": \"http://127.0.0.1:${components.back2.port}/via\"",
        &["ready: { log: \"is listening\", timeout: 20s }"],
    );
    // `/via` of the second back end forwards to its own `/stats`.
    let back = component(
        "back",
        "\"upstream\": \"http://127.0.0.1:${port}/stats\"",
        &["replicas: 2", "ports: { admin: auto }", "ready: { tcp: \"127.0.0.1:${port}\" }"],
    );
    let ports = "  before_trial: echo ${components.web.port} ${components.back1.port} ${components.back1.port.admin} \
                 ${components.back2.port.admin} ${run.dir} ${plan.dir} ${case.name} > names\n";
    let load = "load:\n  users: 2\n  requests: 40\n  journey:\n    - { get: \"http://127.0.0.1:${components.web.port}/via\" }\n";
    lab.run(&plan(&[web, back], &format!("{ports}{load}expect: [\"errors == 0\"]\n")), &[]).expect(0, &[]);
    let record = lab.record();
    assert_eq!(record.summary("default", 1)["requests"]["ok"], 40);
    let names: Vec<String> = describe(&lab.read("names"));
    let mut ports: Vec<&String> = names[..4].iter().collect();
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), 4, "{names:?}");
    let here = lab.path().canonicalize().unwrap();
    assert_eq!(
        names[4..],
        [here.join(lab.run_name()), here, "default".into()].map(|p| p.display().to_string())
    );
    let components: Vec<String> =
        record.summary("default", 1)["components"].as_object().map(|c| c.keys().cloned().collect()).unwrap();
    assert_eq!(components, ["back1", "back2", "web"]);
}

fn describe(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A real nginx from Debian in front of the test server, under all four limits.
#[test]
fn nginx_under_limits() {
    if !std::path::Path::new("/usr/sbin/nginx").exists() {
        return run_support::skip::skip("nginx is not installed");
    }
    let lab = Lab::new();
    // The port, folder and upstream are passed on the command line, since a plan's file cannot contain templates.
    let script = "mkdir -p \"$2\"\ncat > \"$2/nginx.conf\" <<E\ndaemon off; worker_processes 1; pid $2/pid; error_log stderr;\n\
        events { worker_connections 200; }\nhttp { access_log off; client_body_temp_path $2/a; proxy_temp_path $2/b; \
        fastcgi_temp_path $2/c; uwsgi_temp_path $2/d; scgi_temp_path $2/e;\n\
        server { listen 127.0.0.1:$1; location / { proxy_pass http://127.0.0.1:$3; } } }\nE\n\
        exec nginx -c \"$2/nginx.conf\" -p \"$2\"\n";
    lab.file("nginx.sh", script);
    let edge = "    edge:\n      run: [/bin/sh, nginx.sh, \"${port}\", \"${run.dir}/scratch/edge\", \"${components.web.port}\"]\n      \
                port: auto\n      ready: { http: \"http://127.0.0.1:${port}/health\" }\n      \
                limits: { cpu: 50%, memory: 100MiB, pids: 20, open_files: 500 }\n";
    let load = "load:\n  users: 2\n  duration: 5s\n  journey: [{ get: \"http://127.0.0.1:${components.edge.port}/\" }]\n";
    let expect = "expect: [\"errors == 0\", \"edge.cpu < 60%\", \"edge.memory < 100MiB\"]\n";
    let ran = lab.run(&plan(&[component("web", "", &[]), edge.to_owned()], &format!("{load}{expect}")), &[]);
    if ran.lacks_limits() {
        return;
    }
    ran.expect(0, &[]);
    let edge = &lab.record().summary("default", 1)["components"]["edge"];
    assert_eq!(edge["memory_bytes"]["limit"], 100 << 20, "{edge}");
    assert_eq!(edge["cpu_limit"], 0.5);
    assert!(edge["cpu_s"].as_f64().is_some_and(|s| s > 0.0), "{edge}");
    assert!(edge["pids_max"].as_u64().is_some_and(|n| n >= 2), "{edge}");
    assert!(edge["open_files_max"].as_u64().is_some_and(|n| n > 5), "{edge}");
}

/// How often components of each lifetime are started, and when the plan's commands run.
#[test]
fn lifetimes_and_commands() {
    let lab = Lab::new();
    let started = |name: &str, lifetime: &str| {
        let mut text = component(name, "", &[&format!("lifetime: {lifetime}")]);
        // Each component notes its start in the story.
        let (head, args) = text.split_once("run: [").unwrap();
        text = format!(
            "{head}run: [/bin/sh, -c, 'echo up {name} >> $0/story; exec \"$@\"', \"${{plan.dir}}\", {args}"
        );
        text
    };
    let components = [started("web", "trial"), started("cache", "case"), started("store", "experiment")];
    let rest = "  seed: [echo seed >> story, \"test -n \\\"$HOME\\\"\"]\n  before_trial: echo before ${case.name} >> story\n  \
                after_trial: echo after >> story\nmatrix: [{ name: a }, { name: b }]\ntrials: 2\norder: sequential\n";
    lab.run(&plan(&components, rest), &[]).expect(0, &[]);
    let trial = |starts: &[&str], case: &str| {
        let starts = starts.iter().map(|s| format!("up {s}"));
        starts.chain([format!("before {case}"), "after".to_owned()]).collect::<Vec<_>>()
    };
    let mut expect = vec!["up web".to_owned(), "up cache".into(), "up store".into(), "seed".into()];
    expect.extend(trial(&[], "a"));
    expect.extend(trial(&["web"], "a"));
    expect.extend(trial(&["web", "cache"], "b"));
    expect.extend(trial(&["web"], "b"));
    assert_eq!(lab.lines("story"), expect);
    let record = lab.record();
    // What a trial takes down is reported in that trial, and does not look like a restart in the next.
    let down = |case: &str, trial: u32| -> Vec<String> {
        let downs = record.events(case, trial, "down");
        downs.iter().filter_map(|e| e["component"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(down("a", 1), ["web"]);
    assert_eq!(down("a", 2), ["web", "cache"]);
    assert_eq!(down("b", 2), ["web", "cache", "store"], "the newest first");
    for (case, trial) in [("a", 1), ("a", 2), ("b", 1), ("b", 2)] {
        for (name, component) in record.summary(case, trial)["components"].as_object().unwrap() {
            assert_eq!(component["restarts"], 0, "{name} in {case} {trial}");
        }
    }
    let notes = record.events("a", 2, "note");
    assert_eq!(notes[0]["text"], "cache is still up from an earlier trial; its logs are in cases/a/1/logs");
}

/// Two consecutive trials of a case share what lives for the case, whatever the order of the cases.
#[test]
fn lifetimes_of_interleaved_cases() {
    let lab = Lab::new();
    let cache = "    cache: { run: \"echo ${case.name} >> ${plan.dir}/story; echo up; exec sleep 1000\", lifetime: case, ready: { log: up } }\n";
    let rest = "matrix: [{ name: a }, { name: b }]\ntrials: 2\n";
    lab.run(&plan(&[cache.to_owned(), component("web", "", &[])], rest), &[]).expect(0, &[]);
    assert_eq!(lab.lines("story"), ["a", "b", "a"], "the order is a b, b a");
}

/// Data goes with the component that holds it.
#[test]
fn a_system_made_anew_is_seeded_anew() {
    let lab = Lab::new();
    let rest = "  seed: echo seed >> story\ntrials: 3\n";
    lab.run(&plan(&[component("web", "", &[])], rest), &[]).expect(0, &[]);
    assert_eq!(lab.lines("story").len(), 3);
}

/// A component that lives on does not keep the outdated port of one that is restarted.
#[test]
fn ports_that_a_living_component_knows_are_kept() {
    let lab = Lab::new();
    let web = component(
        "web",
        "\"upstream\": \"http://127.0.0.1:${components.back.port}/stats\"",
        &["lifetime: experiment"],
    );
    let back = component("back", "", &[]);
    let load = "trials: 3\nload:\n  users: 1\n  requests: 10\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/via\" }]\n";
    let expect = "expect: [\"errors == 0\"]\n";
    lab.run(&plan(&[web, back], &format!("{load}{expect}")), &[]).expect(0, &[]);
}

#[test]
fn all_builds_are_done_before_the_first_trial_and_each_once() {
    let lab = Lab::new();
    let build = "build: [\"echo build ${case.kind} >> story\", echo common >> story]";
    let rest =
        "  before_trial: echo trial ${case.kind} >> story\nmatrix: { axes: { kind: [x, y] } }\ntrials: 2\n";
    let ran = lab.run(&plan(&[component("web", "", &[build])], rest), &[]);
    ran.expect(0, &["build of web: echo build x", "build of web: done in"]);
    let story = lab.lines("story");
    assert_eq!(story[..3], ["build x", "common", "build y"]);
    assert_eq!(
        story[3..],
        ["trial x", "trial y", "trial y", "trial x"],
        "interleaved, each round one case later"
    );
    assert_eq!(
        reported_trials(&ran.err),
        ["kind=x, trial 1", "kind=y, trial 1", "kind=y, trial 2", "kind=x, trial 2"]
    );
    let built = lab.record().events("kind=x", 1, "command");
    let exits: Vec<_> = built.iter().filter(|e| e["name"] == "build of web").map(|e| &e["exit"]).collect();
    assert_eq!(exits, [0, 0, 0], "the first trial's record holds the builds");
    assert!(built[0]["at_s"].as_f64().unwrap() < 0.0);
}

#[test]
fn batches_pauses_and_warm_up() {
    let lab = Lab::new();
    let load = "load:\n  users: 2\n  duration: 1s\n  warmup: 500ms\n  batches: { repeat: 2, pause: 500ms }\n  \
                journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    lab.run(&plan(&[component("web", "", &[])], load), &[]).expect(0, &[]);
    let record = lab.record();
    let started = record.events("default", 1, "load_started");
    let ended = record.events("default", 1, "load_ended");
    let at = |event: &serde_json::Value| event["at_s"].as_f64().unwrap();
    assert_eq!((started.len(), ended.len()), (2, 2));
    assert!(at(&started[1]) >= at(&ended[0]) + 0.5, "{started:?} {ended:?}");
    let summary = record.summary("default", 1);
    let timed = summary["response_ms"]["count"].as_u64().unwrap();
    let started = summary["requests"]["started"].as_u64().unwrap();
    assert!(timed < started, "the warm-up is counted, not timed: {timed} of {started}");
    assert!(record.lines("default", 1, "ticks.jsonl").iter().any(|t| t["batch"] == 1));
}

#[test]
fn several_loads_at_once() {
    let lab = Lab::new();
    let url = "\"http://127.0.0.1:${components.web.port}/\"";
    let loads = format!(
        "loads:\n  closed: {{ users: 2, repeats: 200, journey: [{{ get: {url}, tags: [page] }}] }}\n  \
         open: {{ rate: 50/s, duration: 1s, journey: [{{ post: {url}, tags: [item], body: {{ json: {{ n: 1 }} }} }}] }}\n"
    );
    let ran = lab.run(&plan(&[component("web", "", &[])], &loads), &[]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    // On a busy machine the open load is late, which is reported; the counts are the same.
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["by_tag"]["item"]["requests"]["due"], 50);
    let load = &summary["load"];
    assert_eq!(
        (&load["model"], &load["users"], &load["rate_per_s"]),
        (&"mixed".into(), &2.into(), &50.0.into())
    );
    let doubts = summary["doubts"].as_array().unwrap();
    assert!(!doubts.iter().any(|d| d["kind"] == "littles_law"), "{doubts:?}");
    let of = |tag: &str| summary["by_tag"][tag]["requests"]["ok"].as_u64().unwrap();
    assert_eq!(summary["requests"]["ok"], of("page") + of("item"));
    assert_eq!(summary["generator"]["threads"].as_u64().unwrap() % 2, 0, "each has threads of its own");
    // The core count that the readings of `host` refer to.
    assert!(summary["generator"]["machine_cores"].as_u64().is_some_and(|cores| cores >= 1), "{summary}");
    let mut loads: Vec<_> = record.events("default", 1, "load_started");
    loads.sort_by_key(|e| e["load"].to_string());
    assert_eq!((&loads[0]["load"], &loads[1]["load"]), (&"closed".into(), &"open".into()));
}

/// The drain waits for late storing, and expectations about the end are judged at the end.
#[test]
fn probes_and_drain() {
    let lab = Lab::new();
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let load = "load:\n  users: 2\n  requests: 40\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/\", body: x }]\n";
    let drain = "drain: { until: \"stored == accepted\", at_most: 60s }\n";
    let expect = "expect: [\"stored == accepted\", \"stored == 40\", \"drain > 300ms\", \"drain < 60s\"]\n";
    let web = component("web", "\"lag_ms\": 6000", &[]);
    let ran = lab.run(&plan(&[web], &format!("{probes}{load}{drain}{expect}")), &[]);
    ran.expect(0, &["draining until stored == accepted", "drained in"]);
    let record = lab.record();
    assert_eq!(record.summary("default", 1)["probes"]["stored"]["last"], 40.0);
    assert_eq!(record.events("default", 1, "drained")[0]["done"], true);
}

/// `PROBE.last` is the same as the probe's name alone, also while it drains.
#[test]
fn the_last_reading_ends_the_drain() {
    let lab = Lab::new();
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let load = "load:\n  users: 2\n  requests: 40\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/\", body: x }]\n";
    let drain = "drain: { until: \"stored.last == 40\", at_most: 60s }\nexpect: [\"stored.last == 40\", \"drain > 300ms\"]\n";
    let web = component("web", "\"lag_ms\": 6000", &[]);
    lab.run(&plan(&[web], &format!("{probes}{load}{drain}")), &[]).expect(0, &["drained in"]);
}

#[test]
fn a_steady_probe_ends_the_drain() {
    let lab = Lab::new();
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let load = "load:\n  users: 2\n  requests: 40\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/\", body: x }]\n";
    let drain = "drain: { until: \"steady(stored, 6s)\", at_most: 40s }\nexpect: [\"drain >= 6s\", \"stored == 30\"]\n";
    let web = component("web", "\"lag_ms\": 1500, \"lose_every\": 4", &[]);
    lab.run(&plan(&[web], &format!("{probes}{load}{drain}")), &[]).expect(0, &[]);
}

/// The wait counts from the end of the load, also when an event takes longer than the load: here a component restarts
/// until three seconds after it.
#[test]
fn a_drain_counts_from_the_end_of_the_load() {
    let lab = Lab::new();
    let slow = "    slow:\n      ready: { log: up }\n      \
                run: \"if test -e begun; then until grep -q load_ended ${run.dir}/cases/default/1/events.jsonl; \
                do sleep 0.05; done; sleep 3; fi; touch begun; echo up; exec sleep 1000\"\n"
        .to_owned();
    let load = "load:\n  rate: 20/s\n  duration: 5s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let rest =
        "events: [{ at: 0s, do: restart slow }]\ndrain: { until: \"ok == 100\" }\nexpect: [\"drain > 1s\"]\n";
    let ran = lab.run(&plan(&[component("web", "", &[]), slow], &format!("{load}{rest}")), &[]);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["expectations"][0]["holds"], true, "{summary:#}");
}

/// The deadline comes first: every report says so, and no time is given for a drain that never completed.
#[test]
fn a_drain_that_does_not_end() {
    let lab = Lab::new();
    let probes =
        "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
    let load = "load:\n  users: 2\n  requests: 40\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/\", body: x }]\n";
    let drain = "drain: { until: \"stored == accepted\", at_most: 500ms }\nexpect: [\"stored == accepted\", \"drain < 1m\"]\n";
    let web = component("web", "\"lose_every\": 10", &[]);
    let ran = lab.run(&plan(&[web], &format!("{probes}{load}{drain}")), &[]);
    ran.expect(1, &["not drained after"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    assert_eq!(summary["drain_s"], serde_json::Value::Null);
    let held: Vec<_> =
        summary["expectations"].as_array().unwrap().iter().map(|e| e["holds"].clone()).collect();
    assert_eq!(held, [false.into(), serde_json::Value::Null]);
    assert_eq!(record.events("default", 1, "drained")[0]["done"], false);
    assert!(record.report("md").contains("not drained"), "{}", record.report("md"));
}

#[test]
fn expectations_set_the_exit_code() {
    let lab = |expect: &str| {
        let lab = Lab::new();
        let rest = format!("expect: [\"{expect}\"]\n");
        (lab.run(&plan(&[component("web", "", &[])], &rest), &[]), lab)
    };
    let (ran, _lab) = lab("ok == 40");
    ran.expect(0, &["pass: "]);
    let (ran, _lab) = lab("ok < 40");
    ran.expect(1, &["FAIL: "]);
    // 40 samples give the 99th percentile no upper bound, which is known before they are sent.
    let (ran, lab) = lab("p99 < 1h");
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), true);
    if ran.code == Some(4) {
        return;
    }
    ran.expect(6, &["undecided: "]);
    assert_eq!(
        (&summary["verdict"], &summary["expectations"][0]["holds"]),
        (&"undecided".into(), &serde_json::Value::Null)
    );
    assert!(lab.record().report("md").contains("Undecided, too few samples: “default”"));
    let csv = lab.record().report("csv");
    assert!(csv.lines().any(|l| l.contains(",undecided,p99,,ms,estimate ")), "{csv}");
}

#[test]
fn a_condition_stops_the_load() {
    let lab = Lab::new();
    let load = "stop_when: [\"ok > 100\"]\nload:\n  users: 2\n  duration: 10m\n  batches: { repeat: 3 }\n  \
                journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let ran = lab.run(&plan(&[component("web", "", &[])], load), &[]);
    ran.expect(0, &[]);
    let record = lab.record();
    assert_eq!(record.summary("default", 1)["ended"], "stopped");
    let ended = record.events("default", 1, "load_ended");
    assert_eq!((ended.len(), &ended[0]["how"]), (1, &"stopped: ok > 100".into()));
}

#[test]
fn the_record_is_the_same_document_as_the_json_output() {
    let lab = Lab::new();
    let ran = lab.run(&plan(&[component("web", "", &[])], LOAD), &["--json", "--quiet"]);
    ran.expect(0, &[]);
    assert_eq!(ran.err, "", "quiet");
    let reported: serde_json::Value = serde_json::from_str(&ran.out).expect("one JSON document");
    assert_eq!(reported["ended"], "complete");
    assert_eq!(reported["trials"][0]["summary"], lab.record().summary("default", 1));
    assert_eq!(reported["exit"], 0);
}

/// If the seed command differs between cases, components that live on are seeded for each case.
#[test]
fn seeds_that_differ_between_cases() {
    let lab = Lab::new();
    let store = "    store: { run: \"echo up >> ${plan.dir}/story; echo up; exec sleep 1000\", lifetime: experiment, ready: { log: up } }\n";
    let rest = "  seed: echo seed ${case.kind} >> story\nmatrix: { axes: { kind: [x, y] } }\ntrials: 2\norder: sequential\n";
    lab.run(&plan(&[store.to_owned(), component("web", "", &[])], rest), &[]).expect(0, &[]);
    assert_eq!(lab.lines("story"), ["up", "seed x", "seed y"]);
}

#[test]
fn a_plan_in_another_folder() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path().join("sub/app")).unwrap();
    let rest = "  before_trial: pwd > where\n";
    let web =
        component("web", "", &["dir: app", "build: pwd > built", "port: 0"]).replace("port: 0", "port: auto");
    lab.file("sub/plan.yaml", &plan(&[web], rest));
    lab.loadlab(&["run", "sub/plan.yaml", "--out", &lab.run_name()]).expect(0, &[]);
    let sub = lab.path().canonicalize().unwrap().join("sub");
    assert_eq!(lab.read("sub/where").trim(), sub.display().to_string());
    assert_eq!(lab.read("sub/app/built").trim(), sub.join("app").display().to_string());
}

/// A port fixed by the plan is free again for the next trial, whatever state its old connections are in.
#[test]
fn a_given_port_over_several_trials() {
    let lab = Lab::new();
    let free = ports::unused().port();
    let rest = "trials: 3\nload:\n  users: 2\n  requests: 40\n  keep_alive: false\n  \
                journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    lab.run(&plan(&[component("web", "", &[&format!("port: {free}")])], rest), &[]).expect(0, &[]);
}
