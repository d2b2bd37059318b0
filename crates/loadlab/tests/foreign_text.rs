//! Text from elsewhere – servers, components, other people's plans and records, arguments – is shown as plain text:
//! nothing controls the terminal, and nothing ends in a panic.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::server::{Request, Server, Step, send};
use crate::common::{LOADLAB, Ran};

/// Sets a title, clears the screen, hides and colours letters; a C1 control, direction overrides, a rewritten line.
const EVIL: &str = "A\x1b]0;owned\x07B\x1b[2J\x1b[8mC\x1b[31;1mD\u{9b}2JE\u{202e}F\u{2066}\u{85}G\rH\x08";

/// Runs `loadlab …` as if on a terminal with colours.
fn loadlab(dir: &Path, args: &[&OsStr]) -> Ran {
    let mut command = Command::new(LOADLAB);
    command
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        .env("CLICOLOR_FORCE", "1");
    let output = command.output().expect("the binary starts");
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn describe(dir: &Path, args: &[&str]) -> Ran {
    loadlab(dir, &args.iter().map(OsStr::new).collect::<Vec<_>>())
}

/// What remains without loadlab's own styles: weight, underline and the 16 colours.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (codes, rest) = piece.split_once('m').unwrap_or(("?", piece));
        match codes {
            "" | "0" | "1" | "2" | "4" | "31;1" => out.push_str(rest),
            _ if codes.len() == 2 && codes.starts_with(['3', '9']) && codes != "38" => out.push_str(rest),
            _ => out.push_str(&format!("\x1b[{piece}")),
        }
    }
    out
}

#[track_caller]
fn check_harmless(what: &str, ran: &Ran) {
    for (stream, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        let plain = without_colours(text);
        let harmful = |c: char| {
            c != '\n' && c.is_control()
                || matches!(c as u32, 0x2028 | 0x2029 | 0x202a..=0x202e | 0x2066..=0x2069)
        };
        let lines: Vec<&str> = plain.lines().filter(|l| l.contains(harmful)).collect();
        assert!(lines.is_empty(), "{what}, {stream}: {lines:#?}");
    }
}

/// Answers with text that must never be printed raw.
fn evil(request: &Request) -> Vec<Step> {
    let status = if request.target.contains("bad") { "500 Broken" } else { "200 OK" };
    vec![send(
        format!(
            "HTTP/1.1 {status}\r\nServer: {}\r\nContent-Length: {}\r\n\r\n{EVIL}",
            EVIL.replace('\r', ""),
            EVIL.len()
        )
        .into_bytes(),
    )]
}

#[test]
fn what_a_server_says_steers_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(evil);
    let ran = describe(dir.path(), &["bench", &server.url("/bad"), "-n", "20", "-c", "2"]);
    assert!(ran.stdout.contains("]0;owned"), "the answer is shown, made harmless: {}", ran.stdout);
    check_harmless("bench", &ran);
    let ran = describe(dir.path(), &["bench", &server.url("/"), "-n", "2", "--proxy", "http://127.0.0.1:1/"]);
    check_harmless("bench through nobody", &ran);
    let garbage = Server::start(|_: &Request| {
        vec![send(format!("HTTP/1.1 2\x1b[2J\u{9b}0 {EVIL}\r\n\r\n").into_bytes())]
    });
    check_harmless(
        "bench of garbage",
        &describe(dir.path(), &["bench", &garbage.url("/"), "-n", "5", "-c", "1"]),
    );
}

/// Text as a YAML string, where not every character is allowed unescaped.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        ' '..='~' if !matches!(c, '"' | '\\') => c.to_string(),
        c => format!("\\u{:04x}", c as u32),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// A plan whose names, component and server are full of such text.
fn plan(url: &str) -> String {
    let name = quoted("n\u{202e}x");
    let case = quoted("c\u{202e}\u{2066}x");
    let shell =
        serde_json::to_string("printf 'last words \\033]0;x\\007\\033[2J\\302\\2332J\\n' >&2; sleep 1000")
            .unwrap();
    format!(
        "loadlab: 1\nname: {name}\nsystem: {{ components: {{ talker: {{ run: {shell} }} }} }}\nmatrix: [ {{ name: {case} }} ]\n\
         loads: {{ one: {{ users: 1, requests: 5, journey: [ {{ get: \"{url}\", tags: [a], \
         check: {{ header: {{ Server: nothing }} }}, }} ] }} }}\nexpect: [\"errors < 1%\"]\n"
    )
}

#[test]
fn what_a_plan_and_its_components_say_steers_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(evil);
    std::fs::write(dir.path().join("plan.yaml"), plan(&server.url("/"))).unwrap();
    for args in [&["check", "plan.yaml"][..], &["run", "plan.yaml", "--dry-run"]] {
        let ran = describe(dir.path(), args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        check_harmless(&args.join(" "), &ran);
    }
    let ran = describe(dir.path(), &["run", "plan.yaml", "--plain", "--out", "loadlab-runs/one"]);
    assert_eq!(ran.code, 1, "{}\n{}", ran.stdout, ran.stderr);
    check_harmless("run", &ran);
    // Edit the record as if it came from another machine.
    let manifest = dir.path().join("loadlab-runs/one/manifest.json");
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    for key in ["name", "loadlab", "plan_path", "plan_text", "started"] {
        record[key] = EVIL.into();
    }
    record["words"] = vec![EVIL].into();
    record["host"]["cpu"] = EVIL.into();
    std::fs::write(&manifest, record.to_string()).unwrap();
    for args in [
        &["report", "loadlab-runs/one"][..],
        &["report", "loadlab-runs/one", "--format", "md"],
        &["report", "loadlab-runs/one", "--format", "json"],
        &["report", "loadlab-runs/one", "--format", "html"],
        &["show", "one", "--full"],
        &["list"],
        &["list", "--json"],
        &["list", "--trend", "p99"],
        &["compare", "one", "one"],
        &["baseline", "one"],
        &["baseline"],
        &["run", "plan.yaml", "--out", "loadlab-runs/two", "--json", "--quiet"],
    ] {
        let ran = describe(dir.path(), args);
        assert!(ran.code < 2, "{args:?}: {}", ran.stderr);
        check_harmless(&args.join(" "), &ran);
    }
    // A component that prints something before it dies, and errors that are shown with their lines.
    let dying = plan(&server.url("/")).replace("sleep 1000", "exit 3");
    let dying = dying.replace("talker: { run:", "talker: { ready: { log: never printed }, run:");
    let dying = dying.replace("requests: 5", "duration: 20s, think: 10ms");
    std::fs::write(dir.path().join("dying.yaml"), dying).unwrap();
    let ran = describe(dir.path(), &["run", "dying.yaml", "--plain", "--out", "three"]);
    assert!(ran.stderr.contains("last words"), "{}", ran.stderr);
    check_harmless("run of what dies", &ran);
    std::fs::write(dir.path().join("wrong.yaml"), format!("loadlab: 1\nname: x\n\"{EVIL}\": 1\n")).unwrap();
    check_harmless("check of what is wrong", &describe(dir.path(), &["check", "wrong.yaml"]));
    check_harmless("an unknown command", &describe(dir.path(), &[EVIL]));
    check_harmless("no such file", &describe(dir.path(), &["check", EVIL]));
}

#[test]
fn arguments_that_are_no_text_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let plan = "loadlab: 1\nname: x\nload: { users: 1, requests: 2, journey: [ { get: \"http://127.0.0.1:1/\" } ] }\n";
    std::fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    let odd = |text: &str| OsStr::from_bytes(&[text.as_bytes(), b"\xff"].concat()).to_owned();
    for line in [
        "?",
        "__guardian? x",
        "__relay ?",
        "run ?",
        "run plan.yaml --json --out ?",
        "run plan.yaml --out ? --quiet",
        "run plan.yaml --junit ?",
        "run plan.yaml --set ?=1",
        "bench http://127.0.0.1:1/?",
        "bench http://127.0.0.1:1/ -n 1 -H a:?",
        "bench http://127.0.0.1:1/ -n 1 --junit ?",
        "bench http://127.0.0.1:1/ -n 1 --samples ?",
        "bench --urls ?",
        "find ? --expect p99<1s",
        "find plan.yaml --expect p99<1s --users 1..2 --json --out found?",
        "report ?",
        "compare ?",
        "compare ? ?",
        "list ?",
        "list --json .",
        "show ?",
        "baseline ?",
        "check ?",
        "clean ?",
        "completions ?",
    ] {
        let args: Vec<_> = line
            .split(' ')
            .map(|word| match word.split_once('?') {
                Some((before, after)) => {
                    let mut w = odd(before);
                    w.push(after);
                    w
                }
                None => word.into(),
            })
            .collect();
        let ran = loadlab(dir.path(), &args.iter().map(|a| a.as_os_str()).collect::<Vec<_>>());
        assert!(
            !ran.stderr.contains("panicked") && ran.code != 101 && ran.code != -1,
            "{line}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.is_empty() || !ran.stdout.is_empty(), "{line} says nothing");
        assert!(ran.code != 0 || !line.contains('?'), "{line}: {}", ran.stdout);
    }
}
