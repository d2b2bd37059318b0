//! `loadlab resume`: a run that was killed continues where it was.

use std::time::Duration;

use rustix::process::Signal;

use crate::run_support::{Lab, component, eventually, moment_of_a_fault, plan};

/// Two cases; the second lasts until there is a file `go`.
fn two() -> String {
    let probes = "  probes: { go: { command: \"ls go 2> /dev/null | wc -l\" } }\nstop_when: [\"go == 1\"]\n";
    let load = "load:\n  users: 1\n  requests: ${case.count}\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let cases = "matrix: [{ name: short, count: 100 }, { name: long, count: 1000000000 }]\n";
    plan(&[component("web", "", &[])], &format!("{probes}{load}{cases}"))
}

#[test]
fn a_run_that_was_killed_goes_on() {
    let lab = Lab::new();
    let text = two();
    let running = lab.start(&text, &["--trials", "2"]);
    let record = lab.record();
    moment_of_a_fault(&lab, "long", Duration::from_secs(1));
    running.signal(Signal::KILL);
    running.end();
    eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
    let summary = |case: &str, trial: u32| std::fs::read(record.trial(case, trial).join("summary.json")).ok();
    let made = [("short", 1), ("short", 2), ("long", 1), ("long", 2)];
    let before = made.map(|(case, trial)| summary(case, trial));
    let there = before.iter().filter(|summary| summary.is_some()).count();
    assert!((1..4).contains(&there), "{there} trials were complete");
    // Usually the trial whose ticks were seen; on a busy machine the kill may have hit a later one.
    let is_cut =
        |(case, trial): &&(&str, u32)| record.trial(case, *trial).exists() && summary(case, *trial).is_none();
    let cut: Vec<&(&str, u32)> = made.iter().filter(is_cut).collect();
    let started = record.manifest()["started"].clone();

    let name = lab.run_name();
    let changed = text.replace("users: 1", "users: 2");
    lab.file("plan.yaml", &changed);
    lab.loadlab(&["resume", &name]).expect(2, &["plan.yaml is not what it was when the run began"]);
    std::fs::remove_file(lab.path().join("plan.yaml")).expect("it is there");
    lab.loadlab(&["resume", &name]).expect(2, &["the plan plan.yaml does not exist", "--plan says where"]);
    lab.file("moved.yaml", &text);
    let other = ["resume", &name, "--plan", "moved.yaml", "--set", "load.users=2"];
    lab.loadlab(&other).expect(2, &["--set load.users=…: the run was not begun with a secret there"]);
    lab.file("go", "");
    let ran = lab.loadlab(&["resume", &name, "--plan", "moved.yaml"]);
    ran.expect(0, &[&format!("{there} of 4 trials are complete; running the others")]);
    for ((case, trial), before) in made.iter().zip(&before) {
        let now = summary(case, *trial).expect("it was made");
        assert!(before.as_ref().is_none_or(|before| *before == now), "{case}, trial {trial}");
    }
    let manifest = record.manifest();
    assert_eq!((&manifest["how"], &manifest["started"]), (&"complete".into(), &started));
    assert!(manifest["options"].to_string().contains("--trials 2"), "{manifest:#}");
    // What the killed trial had written is kept, but is not part of the results.
    for (case, trial) in cut {
        assert!(
            record.dir.join(format!("cut-off/{case}-{trial}-1/events.jsonl")).is_file(),
            "{case}, trial {trial}"
        );
    }
    let shown = lab.loadlab(&["show", &name]);
    shown.expect(0, &[]);
    assert!(shown.out.contains("2 trials each") && !shown.out.contains("not a case"), "{}", shown.out);
    assert_eq!(lab.left_behind(), Vec::<String>::new());
    // Nothing is left to do.
    lab.loadlab(&["resume", &name, "--plan", "moved.yaml"])
        .expect(0, &["4 of 4 trials are complete; nothing is left to run"]);
}

#[test]
fn a_run_that_goes_on_is_left_alone() {
    let lab = Lab::new();
    let running = lab.start(&two(), &["--case", "long"]);
    let ticks = lab.record().trial("long", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::read_to_string(&ticks).ok().filter(|text| !text.is_empty()));
    lab.loadlab(&["resume", &lab.run_name()]).expect(2, &["the run is still in progress: process "]);
    running.signal(Signal::INT);
    running.end().expect(130, &[]);
}

#[test]
fn what_is_not_a_run_is_not_resumed() {
    let lab = Lab::new();
    lab.loadlab(&["resume", "nowhere"]).expect(2, &["nowhere is not a run's folder"]);
    std::fs::create_dir(lab.path().join("empty")).expect("a folder can be made");
    lab.loadlab(&["resume", "empty"]).expect(2, &["it has no manifest.json"]);
}

#[test]
fn last_is_the_newest_run_that_is_not_complete() {
    let lab = Lab::new();
    let load = "load: { users: 1, requests: 10, timeout: \"${public:file:timeout.txt}\", journey: [{ get: \"http://127.0.0.1:${components.web.port}/\", headers: { X-Kind: \"${public:file:kind.txt}\" } }] }\n";
    let web = component("web", "\"slow_ms\": ${public:file:slow.txt}", &[]);
    for (file, text) in [("timeout.txt", "20s"), ("kind.txt", "a"), ("slow.txt", "1")] {
        lab.file(file, text);
    }
    lab.file("plan.yaml", &plan(&[web], load));
    let run = |name: &str| {
        lab.loadlab(&["run", "plan.yaml", "--quiet", "--out", name]).expect(0, &[]);
    };
    run("loadlab-runs/one");
    lab.loadlab(&["resume", "last"]).expect(2, &["no run in loadlab-runs was cut off"]);
    // One that cannot be resumed.
    let mut other: serde_json::Value =
        serde_json::from_str(&lab.read("loadlab-runs/one/manifest.json")).expect("JSON");
    other["how"] = "partial".into();
    other["plan_path"] = "bench".into();
    other["started"] = "2999-01-01T00:00:00Z".into();
    std::fs::create_dir(lab.path().join("loadlab-runs/bench")).expect("a folder can be made");
    lab.file("loadlab-runs/bench/manifest.json", &other.to_string());
    lab.loadlab(&["resume", "last"]).expect(2, &["loadlab-runs/bench: its plan was made from options"]);
    // As if loadlab had been killed before the trial's summary was written.
    let mut manifest: serde_json::Value =
        serde_json::from_str(&lab.read("loadlab-runs/one/manifest.json")).expect("JSON");
    manifest["how"] = "partial".into();
    lab.file("loadlab-runs/one/manifest.json", &manifest.to_string());
    let dir = manifest["cases"][0]["dir"].as_str().expect("a name");
    let summary = lab.path().join(format!("loadlab-runs/one/cases/{dir}/1/summary.json"));
    std::fs::remove_file(&summary).expect("it is there");
    run("loadlab-runs/two");
    // What the plan takes from outside has changed since.
    let recorded = lab.read("loadlab-runs/one/manifest.json");
    lab.file("timeout.txt", "21s");
    let changed =
        ["plan: `load: ", "timeout 21s, ", ", which was `load: ", "timeout 20s, ", "hint: set values"];
    lab.loadlab(&["resume", "last", "--quiet"]).expect(2, &changed);
    assert_eq!(lab.read("loadlab-runs/one/manifest.json"), recorded);
    lab.file("timeout.txt", "20s");
    // Of a header, and of a component's environment.
    for (file, before, now) in [("kind.txt", "a", "b"), ("slow.txt", "1", "2")] {
        lab.file(file, now);
        let changed = format!("file:{file}: `{now}`, which was `{before}`");
        lab.loadlab(&["resume", "last", "--quiet"]).expect(2, &[&changed]);
        lab.file(file, before);
    }
    // Nothing can be prepared: a file is in the way.
    let in_the_way = lab.file("loadlab-runs/one/scratch", "");
    lab.loadlab(&["resume", "last", "--quiet"]).expect(3, &["scratch"]);
    let restored: serde_json::Value =
        serde_json::from_str(&lab.read("loadlab-runs/one/manifest.json")).expect("JSON");
    assert_eq!(restored, manifest);
    assert!(!lab.path().join("loadlab-runs/one/cut-off").exists());
    std::fs::remove_file(in_the_way).expect("it is there");
    lab.loadlab(&["resume", "last", "--quiet"]).expect(0, &[]);
    assert!(summary.is_file());
    assert!(lab.read("loadlab-runs/one/manifest.json").contains("complete"));
    // Nothing is left to run.
    let recorded = lab.read("loadlab-runs/one/manifest.json");
    lab.loadlab(&["resume", "loadlab-runs/one", "--quiet"]).expect(0, &[]);
    assert_eq!(lab.read("loadlab-runs/one/manifest.json"), recorded);
}
