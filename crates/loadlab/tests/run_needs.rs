//! A plan's requirements of the machine are checked before anything is built, and the reason why a run is impossible is
//! always reported.

use crate::run_support::{Lab, component, plan};

/// A component whose build leaves a file behind.
fn built(more: &[&str]) -> String {
    component("web", "", &[&["build: \"touch built\""][..], more].concat())
}

#[track_caller]
fn check_refused(text: &str, kind: &str, words: &[&str]) {
    let lab = Lab::new();
    lab.run(text, &["--quiet"]).expect(3, words);
    assert!(!lab.path().join("built").exists(), "nothing is built for what cannot run");
    let checked = lab.loadlab(&["check", "plan.yaml", "--preflight"]);
    checked.expect(5, &[]);
    let line = checked.out.lines().find(|l| l.starts_with("blocker")).unwrap_or_default();
    assert!(line.contains(kind), "{}", checked.out);
}

#[test]
fn a_program_that_is_not_there() {
    let odd = "    odd: { run: \"no-such-program-anywhere --port 1\" }\n".to_owned();
    let words = ["component `odd`: `no-such-program-anywhere` is not on PATH", "hint: "];
    check_refused(&plan(&[built(&[]), odd], ""), "programs", &words);
    let text = plan(&[built(&[])], "  before_trial: no-such-program-anywhere\n");
    check_refused(&text, "programs", &["`before_trial`: `no-such-program-anywhere` is not on PATH"]);
}

#[test]
fn a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("port: {}", taken.local_addr().unwrap().port());
    check_refused(&plan(&[built(&[&port])], ""), "ports", &["component `web`", "port", "hint: "]);
}

#[test]
fn what_is_given_is_reported_as_tried_out() {
    let lab = Lab::new();
    lab.file(
        "plan.yaml",
        &plan(&[built(&[])], "  seed: \"cd . && true\"\n  after_trial: [\"true\", \"ls\"]\n"),
    );
    let checked = lab.loadlab(&["check", "plan.yaml", "--preflight"]);
    checked.expect(0, &[]);
    assert!(checked.out.contains("programs") && checked.out.contains("tried out"), "{}", checked.out);
    assert!(!lab.path().join("built").exists());
}

#[test]
fn why_a_case_failed_is_said_however_quiet() {
    let lab = Lab::new();
    let text = plan(
        &[
            component("web", "", &[]),
            "    odd: { run: \"exit 7\", ready: { tcp: \"127.0.0.1:9\" } }\n".to_owned(),
        ],
        "trials: 2\n",
    );
    let ran = lab.run(&text, &["--quiet", "--json"]);
    ran.expect(3, &["error: default, trial 1: component `odd` ended before it was ready"]);
    assert_eq!(ran.err.matches("error: ").count(), 1, "once: {}", ran.err);
}
