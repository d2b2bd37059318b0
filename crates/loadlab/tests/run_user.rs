//! `loadlab run` as an ordinary user: less is watched, no limit is faked, and nothing is left behind.

use std::process::Command;

use crate::run_support;
use crate::run_support::{LONG, Lab, component, eventually, plan};

const NOBODY: u32 = 65534;

/// `loadlab` as the user `nobody`, in a folder which that user owns, with copies of the binaries which it can read.
fn as_nobody(lab: &Lab, text: &str, args: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/usr/bin/setpriv").exists() {
        run_support::skip::skip("it takes root and setpriv to become nobody");
        return None;
    }
    let server = lab.path().join("server");
    let own = std::env::current_exe().unwrap();

    // Copy in a separate process: while this one has a program open for writing, a parallel test may fork, and the file
    // would be busy.
    for (from, to) in [(own.as_path(), &server), (run_support::LOADLAB.as_ref(), &lab.path().join("program"))]
    {
        assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
    }
    lab.file("plan.yaml", &text.replace(&own.display().to_string(), &server.display().to_string()));
    std::os::unix::fs::chown(lab.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = lab.command(&[]);
    let mut own = Command::new("/usr/bin/setpriv");
    own.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(lab.path().join("program"))
        .args(args);
    own.current_dir(lab.path())
        .env("HOME", lab.path())
        .env("XDG_RUNTIME_DIR", lab.path())
        .env("NO_COLOR", "1");
    std::mem::swap(&mut command, &mut own);
    Some(command)
}

fn run(lab: &Lab, text: &str) -> Option<run_support::Ran> {
    let name = lab.run_name();
    let output = as_nobody(lab, text, &["run", "plan.yaml", "--out", &name])?.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some(run_support::Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}

#[test]
fn it_runs_and_says_what_is_missing() {
    let lab = Lab::new();
    let load = "load:\n  users: 2\n  duration: 5s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let web = component("web", "", &["limits: { open_files: 200 }"]);
    let Some(ran) = run(&lab, &plan(&[web], load)) else { return };
    ran.expect(0, &["cgroup controller `memory`: cannot create"]);
    let summary = lab.record().summary("default", 1);
    let web = &summary["components"]["web"];
    assert!(web["cpu_s"].as_f64().is_some_and(|s| s > 0.0), "the process tree is watched: {web}");
    assert!(web["memory_bytes"]["max"].as_f64().is_some_and(|b| b > 0.0), "{web}");
    assert_eq!(web["throttled_s"], serde_json::Value::Null, "what is unknown is not reported");
    assert_eq!(lab.record().manifest()["host"]["cgroup"], "none");
    let missing = lab.record().events("default", 1, "unavailable");
    assert!(missing.iter().any(|e| e["what"] == "cgroup controller `memory`"), "{missing:?}");
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

#[test]
fn limits_that_cannot_be_set_are_errors() {
    for (limit, words) in [("memory: 60MiB", "memory"), ("cpu: 50%", "cpu"), ("pids: 20", "pids")] {
        let lab = Lab::new();
        let web = component("web", "", &[&format!("limits: {{ {limit} }}")]);
        let Some(ran) = run(&lab, &plan(&[web], "")) else { return };
        ran.expect(3, &["component `web`: cannot limit", words, "hint:"]);
        assert_eq!(lab.left_behind(), Vec::<String>::new());
    }
}

/// The first case needs nothing that is missing, but is not measured for a run that cannot be completed.
#[test]
fn limits_of_a_later_case_are_known_before_anything_is_built() {
    let lab = Lab::new();
    let web = component("web", "", &["build: \"touch built\"", "limits: { cpu: \"${case.cpu}\" }"]);
    let cases = "matrix:\n  - { name: free, cpu: none }\n  - { name: limited, cpu: 50% }\n";
    let text = plan(&[web], cases);
    let name = lab.run_name();
    let args = ["run", "plan.yaml", "--out", &name, "--quiet"];
    let Some(mut command) = as_nobody(&lab, &text, &args) else { return };
    let ran = run_support::Ran::of(command.output().unwrap());
    ran.expect(3, &["error: component `web`: cannot limit cpu to 0.5 cores", "hint: "]);
    assert!(!lab.path().join("built").exists(), "{}", ran.err);
    let Some(mut command) = as_nobody(&lab, &text, &["check", "plan.yaml", "--preflight"]) else { return };
    let ran = run_support::Ran::of(command.output().unwrap());
    ran.expect(5, &[]);
    assert!(ran.out.contains("blocker  limits") && ran.out.contains("1 blocker,"), "{}", ran.out);
}

#[test]
fn killed_as_nobody() {
    let lab = Lab::new();
    let name = lab.run_name();
    let daemon = "    daemon: { run: \"sleep 1000 & wait\" }\n".to_owned();
    let text = plan(&[component("web", "", &[]), daemon], LONG);
    let Some(mut command) = as_nobody(&lab, &text, &["run", "plan.yaml", "--out", &name, "--quiet"]) else {
        return;
    };
    let mut child = command.spawn().unwrap();
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    assert!(!lab.left_behind().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
    assert!(lab.record().report("md").contains("killed"));
}
