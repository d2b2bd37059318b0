//! Options of `loadlab run`, and the commands around it: `check`, `schema`, `clean`, `completions`, `man`.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run_support::{LOAD, LONG, Lab, Ran, component, plan};

fn two_axes() -> String {
    let rest = "matrix: { axes: { size: [small, large], kind: [x, y] } }\ntrials: 2\nprofiles:\n  quick: { trials: 1, load.requests: 20 }\n\
                load:\n  users: 2\n  requests: 40\n  journey:\n    - { get: \"http://127.0.0.1:${components.web.port}/\", tags: [a] }\n    \
                - { get: \"http://127.0.0.1:${components.web.port}/b\", tags: [b] }\n";
    plan(&[component("web", "", &[])], rest)
}

/// Cases of the record, with the number of trials of each.
fn cases(lab: &Lab) -> Vec<(String, usize)> {
    let manifest = lab.record().manifest();
    let names = manifest["cases"].as_array().unwrap().iter();
    names
        .map(|case| {
            let dir = lab.record().dir.join("cases").join(case["dir"].as_str().unwrap());
            (case["name"].as_str().unwrap().to_owned(), std::fs::read_dir(dir).unwrap().count())
        })
        .collect()
}

#[test]
fn case_trials_set_tags_and_profile() {
    let lab = Lab::new();
    lab.run(
        &two_axes(),
        &["--case", "size=small*", "--trials", "1", "--set", "load.requests=10", "--tags", "b"],
    )
    .expect(0, &[]);
    assert_eq!(cases(&lab), [("size=small, kind=x".to_owned(), 1), ("size=small, kind=y".to_owned(), 1)]);
    let record = lab.record();
    let summary = record.summary("size=small-kind=x", 1);
    assert_eq!(summary["requests"]["ok"], 10);
    let tags: Vec<&String> = summary["by_tag"].as_object().unwrap().keys().collect();
    assert_eq!(tags, ["b"]);
    let options: Vec<Value> =
        ["--set load.requests=10", "--case size=small*", "--tags b", "--trials 1"].map(Value::from).into();
    assert_eq!(record.manifest()["options"], Value::from(options));
    // Reports call these cases `x` and `y`, since they differ in nothing else.
    let run = lab.run_name();
    for args in [&["show", run.as_str(), "y", "--brief"][..], &["list", ".", "--trend", "p50", "--case", "y"]]
    {
        let shown = lab.loadlab(args);
        shown.expect(0, &[]);
        assert!(shown.out.contains("kind=y") && !shown.out.contains("kind=x"), "{args:?}: {}", shown.out);
    }
    lab.loadlab(&["compare", &run, "x", "y"]).expect(0, &[]);

    let lab = Lab::new();
    lab.run(&two_axes(), &["--profile", "quick", "--case", "*y"]).expect(0, &[]);
    let manifest = lab.record().manifest();
    assert_eq!((&manifest["quick"], &manifest["trials"]), (&true.into(), &1.into()));
    assert_eq!(lab.record().summary("size=large-kind=y", 1)["requests"]["ok"], 20);
}

/// Each connection takes a file descriptor: loadlab raises its own limit as far as it may, and its children keep the
/// shell's.
#[test]
fn more_users_than_the_shell_allows_files() {
    let lab = Lab::new();
    let web = component("web", "", &["limits: { open_files: 1000 }"]);
    let load = LOAD.replace("users: 2", "users: 200").replace("requests: 40", "requests: 2000");
    lab.file("plan.yaml", &plan(&[web], &format!("  before_trial: ulimit -Sn > limit\n{load}")));
    let mut command = Command::new("prlimit");
    let whole = lab.command(&["run", "plan.yaml", "--out", &lab.run_name()]);
    command.arg("--nofile=150:").arg(whole.get_program()).args(whole.get_args());
    command.current_dir(lab.path()).stdin(Stdio::null());
    let ran = Ran::of(command.output().expect("prlimit starts"));
    ran.expect(0, &[]);
    let summary = lab.record().summary("default", 1);
    assert_eq!((&summary["requests"]["ok"], lab.read("limit").trim()), (&2000.into(), "150"), "{}", ran.err);
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

#[test]
fn a_dry_run_runs_nothing() {
    let lab = Lab::new();
    lab.file("plan.yaml", &two_axes());
    let ran = lab.loadlab(&["run", "plan.yaml", "--dry-run", "--trials", "1"]);
    ran.expect(0, &[]);
    assert!(
        ran.out.contains("4 trials, in this order") && ran.out.contains("size=large, kind=y, trial 1"),
        "{}",
        ran.out
    );
    assert!(!lab.path().join("loadlab-runs").exists());
}

#[test]
fn without_out_each_run_has_its_own_folder() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan(&[component("web", "", &[])], ""));
    for _ in 0..2 {
        lab.loadlab(&["run", "plan.yaml", "--quiet"]).expect(0, &[]);
    }
    let names: Vec<_> = std::fs::read_dir(lab.path().join("loadlab-runs")).unwrap().flatten().collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|n| n.file_name().to_string_lossy().starts_with("test-2")), "{names:?}");
}

/// Standard output is one document, whatever happens to the run.
#[test]
fn json_is_one_document() {
    let lab = Lab::new();
    let failing = plan(&[component("web", "\"die_after\": 30", &[])], LONG);
    let ran = lab.run(&failing, &["--json", "--quiet"]);
    ran.expect(1, &[]);
    let reported: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out));
    assert_eq!((&reported["ended"], &reported["exit"]), (&"broken".into(), &1.into()));
    assert_eq!(reported["trials"][0]["failure"], "component `web` died: exit status 7");

    let lab = Lab::new();
    let unbuilt = plan(&[component("web", "", &["build: \"echo no; false\""])], "");
    let ran = lab.run(&unbuilt, &["--json", "--quiet"]);
    ran.expect(3, &["build of web failed"]);
    let reported: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out));
    assert_eq!(
        (&reported["ended"], &reported["exit"], &reported["trials"]),
        (&"broken".into(), &3.into(), &Value::Array(vec![]))
    );
    assert!(reported["error"].as_str().unwrap().contains("build of web failed"), "{reported}");
}

#[test]
fn check_finds_a_file_that_a_load_lacks() {
    let lab = Lab::new();
    let journey = "  journey:\n    - post: http://127.0.0.1:1/\n      body: { file: order.json }\n";
    let plan = format!("loadlab: 1\nname: orders\nload:\n  users: 1\n  requests: 1\n{journey}");
    lab.file("plan.yaml", &plan);
    let missing =
        ["plan.yaml:7:7: step 1 of `load`: there is no file", "order.json", "hint: paths are relative"];
    lab.loadlab(&["check", "plan.yaml"]).expect(2, &missing);
    lab.file("order.json", "{}");
    lab.loadlab(&["check", "plan.yaml"]).expect(0, &[]);
    // A command of the plan may make it.
    std::fs::remove_file(lab.path().join("order.json")).unwrap();
    lab.file("plan.yaml", &format!("{plan}system:\n  before_trial: echo {{}} > order.json\n"));
    lab.loadlab(&["check", "plan.yaml"]).expect(0, &[]);
}

#[test]
fn check_reads_feeds_and_url_lists() {
    let lab = Lab::new();
    let plan = "loadlab: 1\nname: orders\nload:\n  users: 1\n  requests: 1\n  feeds: { a: { file: rows.jsonl } }\n  \
                journey: [{ get: \"http://127.0.0.1:1/${a.id}/${a.city}\" }, { urls: list }]\n";
    lab.file("plan.yaml", plan);
    let missing = ["plan.yaml:7:", "there is no file", "/list", "plan.yaml:6:", "/rows.jsonl"];
    lab.loadlab(&["check", "plan.yaml"]).expect(2, &missing);
    lab.file("rows.jsonl", "{\"id\": 1}\n");
    lab.file("list", "http://127.0.0.1:1/\nftp://b\n");
    for command in [&["check", "plan.yaml"][..], &["run", "plan.yaml", "--dry-run"]] {
        lab.loadlab(command).expect(2, &["plan.yaml:7:", "feed `a` has no column `city`"]);
    }
    lab.file("rows.jsonl", "{\"id\": 1, \"city\": \"x\"}\n");
    lab.loadlab(&["check", "plan.yaml"]).expect(2, &["list:2:1: `ftp://b` is not a URL"]);
    lab.file("list", "http://127.0.0.1:1/\n");
    lab.loadlab(&["check", "plan.yaml"]).expect(0, &[]);
}

#[test]
fn check_notes_a_host_that_a_run_refuses() {
    let lab = Lab::new();
    let journey = "  journey:\n    - get: http://203.0.113.5/\n";
    let plan = format!("loadlab: 1\nname: shop\nload:\n  users: 1\n  requests: 1\n{journey}");
    lab.file("plan.yaml", &plan);
    let words = ["note:", "a run would refuse this", "`203.0.113.5`", "is not loopback", "allow_hosts"];
    lab.loadlab(&["check", "plan.yaml"]).expect(0, &words);
    lab.file("plan.yaml", &format!("{plan}allow_hosts: [203.0.113.5]\n"));
    let allowed = lab.loadlab(&["check", "plan.yaml"]);
    allowed.expect(0, &[]);
    assert!(!allowed.err.contains("refuse"), "{}", allowed.err);
}

#[test]
fn plans_with_mistakes() {
    let lab = Lab::new();
    let good = two_axes();
    lab.file("plan.yaml", &good);
    let ran = lab.loadlab(&["check", "plan.yaml"]);
    ran.expect(0, &[]);
    assert_eq!(ran.out, "plan.yaml: good – 4 cases, 8 trials\n");
    for (from, to, holds) in [
        ("requests: 40", "request: 40", ["plan.yaml:", "request", "hint:"]),
        ("users: 2", "users: two", ["plan.yaml:", "two", "-->"]),
        ("port: auto", "port: 99999", ["plan.yaml:", "99999", "-->"]),
        ("${components.web.port}", "${components.wob.port}", ["plan.yaml:", "wob", "hint:"]),
        ("trials: 2", "trials: 2\nexpect: [\"p98 < 2s\"]", ["plan.yaml:", "p98", "hint:"]),
        ("trials: 2", "trials: 2\ndrain: { until: \"steady(none, 5s)\" }", ["plan.yaml:", "none", "hint:"]),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        lab.file("plan.yaml", &bad);
        for command in [&["check", "plan.yaml"][..], &["run", "plan.yaml", "--out", "never"]] {
            let ran = lab.loadlab(command);
            assert_eq!(ran.code, Some(2), "{}", ran.err);
            let missing: Vec<_> = holds.iter().filter(|t| **t != "-->" && !ran.err.contains(**t)).collect();
            assert!(missing.is_empty(), "no {missing:?} in:\n{}", ran.err);
            let place = ran.err.split("plan.yaml:").nth(1).unwrap_or_default();
            assert!(place.starts_with(|c: char| c.is_ascii_digit()), "no line in:\n{}", ran.err);
        }
        assert!(!lab.path().join("never").exists());
    }
    lab.file("plan.yaml", &good);
    lab.loadlab(&["run", "plan.yaml", "--profile", "quik"])
        .expect(2, &["no profile `quik`", "did you mean `quick`"]);
    lab.loadlab(&["run", "plan.yaml", "--case", "none*"]).expect(2, &["no case matches", "hint:"]);
    lab.loadlab(&["run", "plan.yaml", "--tags", "c"]).expect(2, &["no step has the tag `c`", "hint:"]);
    lab.loadlab(&["run", "plan.yaml", "--set", "load.user=3"]).expect(2, &["--set", "user"]);
    lab.loadlab(&["run", "plan.yaml", "--set", "load"]).expect(2, &["PATH=VALUE"]);
    lab.loadlab(&["run", "nowhere.yaml"]).expect(2, &["cannot read the plan nowhere.yaml", "hint:"]);
    lab.loadlab(&["check", "."]).expect(2, &["cannot read the plan .", "hint:"]);
    std::fs::write(lab.path().join("latin.yaml"), b"loadlab: 1\nname: caf\xe9\n").unwrap();
    lab.loadlab(&["check", "latin.yaml"]).expect(2, &["latin.yaml:2:", "not UTF-8"]);
}

#[test]
fn clean_finds_nothing_of_a_run_that_ended() {
    let lab = Lab::new();
    lab.run(&plan(&[component("web", "", &[])], ""), &[]).expect(0, &[]);
    let ran = lab.loadlab(&["clean", "--dry-run"]);
    assert!(!ran.out.contains(&lab.run_name()), "{}", ran.out);
}

#[test]
fn schema_completions_and_manual_are_printed() {
    let lab = Lab::new();
    let schema = lab.loadlab(&["schema"]);
    schema.expect(0, &[]);
    let schema: Value = serde_json::from_str(&schema.out).expect("JSON");
    assert!(
        schema["$schema"].as_str().is_some_and(|s| s.starts_with("https://json-schema.org/")),
        "{schema}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let ran = lab.loadlab(&["completions", shell]);
        ran.expect(0, &[]);
        assert!(ran.out.contains("dry-run"), "{shell}");
    }
    let man = lab.loadlab(&["man"]);
    man.expect(0, &[]);
    assert!(man.out.starts_with(".ie") || man.out.contains(".TH loadlab 1"), "{}", man.out);
    lab.loadlab(&[]).expect(2, &["Usage: loadlab"]);
    lab.loadlab(&["run"]).expect(2, &["<PLAN>"]);
}

#[test]
fn licences_are_reported_of_what_is_in_the_program() {
    let ran = Lab::new().loadlab(&["licenses"]);
    ran.expect(0, &[]);
    for text in ["rustls ", "uPlot", "Apache License", "Permission is hereby granted"] {
        assert!(ran.out.contains(text), "{text}");
    }
}
