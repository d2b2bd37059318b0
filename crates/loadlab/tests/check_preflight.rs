//! `loadlab check --preflight` as a process: with and without a plan, its table and exit codes.

use std::process::{Command, Output};

fn check(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadlab"));
    command.arg("check").args(args).env("NO_COLOR", "1");
    command.output().expect("loadlab starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Writes a plan with this load to a file and returns its path.
fn plan(dir: &tempfile::TempDir, load: &str) -> String {
    let path = dir.path().join("plan.yaml");
    let text = format!(
        "loadlab: 1\nname: n\nload: {{ {load}, duration: 1s, journey: [ {{ get: \"http://127.0.0.1:9/\" }} ] }}\n"
    );
    std::fs::write(&path, text).expect("the plan is written");
    path.display().to_string()
}

#[test]
fn without_a_plan_the_machines_limits_are_reported() {
    let output = check(&["--preflight"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for what in ["open files", "source ports", "accept queue", "connection tracking", "clock source"] {
        assert!(text.contains(what), "{what} is missing:\n{text}");
    }
    assert!(text.contains("0 blockers"), "{text}");
}

#[test]
fn a_plan_that_fits_and_one_that_cannot() {
    let dir = tempfile::tempdir().expect("a folder");
    let fits = check(&[&plan(&dir, "users: 1"), "--preflight"]);
    assert_eq!(fits.status.code(), Some(0), "{}", stdout(&fits));
    assert!(stdout(&fits).contains("good – 1 case, 1 trial"), "{}", stdout(&fits));
    assert!(stdout(&fits).contains("0 blockers"), "{}", stdout(&fits));

    // The IPv4 loopback network has enough addresses, and they are used automatically.
    let path = plan(&dir, "users: 1_000_000");
    let text = stdout(&check(&[&path, "--preflight"]));
    let sources = text.lines().find(|l| l.contains("source ports")).unwrap_or_default();
    assert!(sources.starts_with("ok ") && sources.contains(" sources"), "{text}");

    // IPv6 has one loopback address, and no machine has that many ports.
    let many = std::fs::read_to_string(&path).expect("the plan").replace("127.0.0.1:9", "[::1]:9");
    std::fs::write(&path, many).expect("the plan is written");
    let cannot = check(&[&path, "--preflight"]);
    let text = stdout(&cannot);
    assert_eq!(cannot.status.code(), Some(5), "{text}{}", stderr(&cannot));
    assert!(text.contains("blocker  source ports"), "{text}");
    // Without `--preflight`, the machine is not checked.
    assert_eq!(check(&[&path]).status.code(), Some(0));
}

#[test]
fn a_limit_on_open_files_is_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = plan(&dir, "users: 300");
    let exe = env!("CARGO_BIN_EXE_loadlab");
    let line = format!("ulimit -n 256 && exec '{exe}' check '{path}' --preflight");
    let output = Command::new("sh").args(["-c", &line]).env("NO_COLOR", "1").output().expect("a shell");
    let text = stdout(&output);
    // Where io_uring is allowed, loadlab's sockets take no descriptors, but a server's here would; otherwise it is a
    // blocker.
    let expect = if text.contains("io_uring              allowed") { Some(0) } else { Some(5) };
    assert_eq!(output.status.code(), expect, "{text}");
    assert!(text.contains("256 allowed"), "{text}");
    assert!(text.lines().any(|l| l.contains("open files") && !l.starts_with("ok")), "{text}");
}

/// Every command that sends a load first raises the limit as far as it may, so the raised limit counts.
#[test]
fn a_limit_that_a_run_would_raise_is_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = plan(&dir, "users: 300");
    let exe = env!("CARGO_BIN_EXE_loadlab");
    let line = format!("ulimit -Sn 256 && ulimit -Hn 2048 && exec '{exe}' check '{path}' --preflight");
    let output = Command::new("sh").args(["-c", &line]).env("NO_COLOR", "1").output().expect("a shell");
    let text = stdout(&output);
    let files = text.lines().find(|l| l.contains("open files")).unwrap_or_default();
    assert!(files.contains("2,048 allowed") && output.status.code() == Some(0), "{text}{}", stderr(&output));
    // Processes started by the run get the original limit.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let of_server = words.contains("a server process that may have 256 accepts 256 of 300");
    assert_eq!(of_server, text.contains("io_uring              allowed"), "{text}");
}

#[test]
fn usage() {
    let nothing = check(&[]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("PLAN"), "{}", stderr(&nothing));
    let choice = check(&["--preflight", "--profile", "quick"]);
    assert_eq!(choice.status.code(), Some(2), "{}", stdout(&choice));
    let dir = tempfile::tempdir().expect("a folder");
    let wrong = check(&[&plan(&dir, "userz: 1"), "--preflight"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!stdout(&wrong).contains("blocker"), "{}", stdout(&wrong));
}

/// A schedule determines how many requests there will be, and thus which percentiles remain undecided.
#[test]
fn what_a_plan_cannot_decide_is_said_beforehand() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = plan(&dir, "rate: 300/s");
    let with_expectation = std::fs::read_to_string(&path).expect("the plan") + "expect: [\"p99 < 1s\"]\n";
    std::fs::write(&path, with_expectation).expect("the plan is written");
    let said = "`p99 < 1s`: 300 requests are due, and p99 needs 1,000, which takes 3.33 s";
    for more in [&[][..], &["--preflight"]] {
        let output = check(&[&[path.as_str()][..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    let mut dry = Command::new(env!("CARGO_BIN_EXE_loadlab"));
    let dry = dry.args(["run", &path, "--dry-run"]).output().expect("loadlab starts");
    assert!(stdout(&dry).contains(&format!("note: {said}")), "{}", stdout(&dry));
    // Long enough, so nothing is reported.
    let output = check(&[&path, "--set", "load.duration=4s"]);
    assert!(!stderr(&output).contains("requests are due"), "{}", stderr(&output));
}
