//! `loadlab bench` that keeps a record or compares two URLs; and `find` with the same request options.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use crate::common::proxy::Proxy;
use crate::common::server::{Request, Server, Step, good, response, slow};
use crate::run_support::{Lab, Ran};

fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err))
}

/// A server that records the requests it received.
fn noting() -> (Server, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&heard);
    let server = Server::start(move |request: &Request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let key = request.header("x-key").unwrap_or("-").to_owned();
        notes.lock().unwrap().push(format!("{} {} {key} {body}", request.method, request.target));
        vec![Step::Send(response(200, "hello"))]
    });
    (server, heard)
}

#[test]
fn a_record_is_kept_and_read_by_other_commands() {
    let (lab, (server, heard)) = (Lab::new(), noting());
    let url = server.url("/a?b=${c}");
    let options = [
        "-n",
        "20",
        "-c",
        "2",
        "-H",
        "X-Key: a${b}",
        "-b",
        "text",
        "--timeout",
        "20s",
        "--expect",
        "errors == 0",
    ];
    let ran = lab.loadlab(
        &[&["bench", &url, "-o", "kept", "--json", "--junit", "junit.xml", "-q"], &options[..]].concat(),
    );
    let kept = document(&ran);
    assert_eq!(
        (&kept["requests"]["ok"], &kept["requests"]["failed"]),
        (&20.into(), &0.into()),
        "{}",
        ran.err
    );
    assert!(lab.read("junit.xml").contains("errors == 0"));
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 20);
    assert!(heard.iter().all(|line| line == "POST /a?b=${c} a${b} text"), "{heard:?}");
    let summary: Value = serde_json::from_str(&lab.read("kept/cases/default/1/summary.json")).unwrap();
    assert_eq!(summary["requests"], kept["requests"]);
    for args in
        [&["report", "kept"][..], &["show", "kept", "--brief"], &["report", "kept", "--format", "csv"]]
    {
        lab.loadlab(args).expect(0, &[]);
    }
    // The text is that of a `bench` without a record, plus the path of the record.
    let text = lab.loadlab(&["bench", &url, "-n", "20", "-c", "1", "--save", "--io", "epoll", "-q"]);
    assert!(text.out.contains("epoll, 1 thread"), "{}", text.out);
    assert!(
        text.out.contains("20 requests ok in") && text.out.contains("record: loadlab-runs/bench-"),
        "{}",
        text.out
    );
    assert!(lab.loadlab(&["show", "last", "--brief"]).expect(0, &[]).out.contains("errors 0 %"));
    // Nothing is overwritten.
    let again = lab.loadlab(&["bench", &url, "-n", "1", "-c", "1", "-o", "kept", "-q"]);
    assert_eq!(again.code, Some(2), "{}", again.err);
}

#[test]
fn credentials_do_not_get_into_the_record() {
    let (lab, server) = (Lab::new(), Server::start(good));
    let ran = lab.loadlab(&[
        "bench",
        &server.url("/"),
        "-n",
        "4",
        "-c",
        "1",
        "-o",
        "kept",
        "-H",
        "Authorization: Bearer s3cret-token",
        "-q",
    ]);
    assert!([Some(0), Some(4)].contains(&ran.code), "{}", ran.err);
    assert_eq!(server.settled().requests, 4);
    for file in
        ["kept/manifest.json", "kept/report.md", "kept/report.html", "kept/cases/default/1/examples.jsonl"]
    {
        let text = lab.read(file);
        assert!(!text.contains("s3cret-token"), "{file}");
    }
    assert!(lab.read("kept/manifest.json").contains("***"));
}

/// Scheme and fragment of a URL, the scheme of a proxy, and the percent-encoding of its password.
#[test]
fn urls_that_bench_takes_are_taken_with_a_record_too() {
    let (lab, server) = (Lab::new(), Server::start(good));
    let proxy = Proxy::start(Some("Basic YWRhOnBhL3NzP3cwcmQ="));
    let url = format!("{}/x?y#top", server.address);
    let through = format!("ada:pa/ss?w0rd@{}", proxy.address);
    let ran = lab.loadlab(&["bench", &url, "--proxy", &through, "-n", "4", "-c", "1", "-o", "kept", "-q"]);
    assert!([Some(0), Some(4)].contains(&ran.code), "{}", ran.err);
    let counts = proxy.counts();
    let asked = counts.asked.get(&format!("http://{}/x?y", server.address));
    assert_eq!((asked, counts.refused), (Some(&4), 0), "{}", ran.err);
    for file in ["kept/manifest.json", "kept/report.html", "kept/cases/default/1/examples.jsonl"] {
        let text = lab.read(file);
        assert!(!text.contains("pa/ss") && !text.contains("YWRhOnBh"), "{file}: {text}");
    }
    assert!(lab.read("kept/manifest.json").contains("http://ada:***@"));
}

#[test]
fn what_a_plan_cannot_say_is_refused() {
    let lab = Lab::new();
    for (args, why) in [
        (&["--save", "--connections", "100"][..], "--connections cannot be combined with --save"),
        (&["--vs", "http://127.0.0.1:2/", "--source", "127.0.0.1"], "--source cannot be combined with --vs"),
        (&["--save", "--cpus", "1023"], "loadlab may not use core 1023"),
        (&["--save", "-X", "PURGE"], "--method PURGE: a plan cannot send it"),
        (&["--save", "-H", "a: 1", "-H", "A: 2"], "`A` is given twice"),
        (&["--save", "--samples", "x"], "`samples.jsonl` of the trial"),
        (&["--trials", "6"], "--vs <URL>"),
        (&["--vs", "http://127.0.0.1:2/", "--trials", "4"], "must be from 5 to 1000"),
        (&["--save", "--expect", "rps > 5"], "`goodput`"),
        (&["--vs", "ftp://127.0.0.1/"], "ftp"),
    ] {
        let ran = lab.loadlab(&[&["bench", "http://127.0.0.1:1/"], args].concat());
        ran.expect(2, &[why]);
        assert!(!lab.path().join("loadlab-runs").exists(), "{args:?}");
    }
}

#[test]
fn two_urls_are_loaded_in_turn_and_judged() {
    let lab = Lab::new();
    let fast = Server::start(slow(Duration::from_millis(10)));
    let slower = Server::start(slow(Duration::from_millis(150)));
    let (a, b) = (fast.url("/"), slower.url("/"));
    // The servers run in this process, whose memory and CPU use depend on the other tests. In eight rounds, a stall of
    // a busy machine in one of them does not hide the difference.
    let load = ["-c", "1", "-n", "8", "--no-watch", "--trials", "8"];
    let against = |args: &[&str]| lab.loadlab(&[&["bench", &a, "--vs", &b], &load[..], args].concat());
    let ran = against(&["--fail-on-worse", "--plain", "--json", "-o", "kept"]);
    let found = document(&ran);
    assert_eq!((&found["verdict"], ran.code), (&"worse".into(), Some(1)), "{} {}", ran.out, ran.err);
    let rows = found["compared"].to_string();
    assert!(rows.contains("\"goodput\"") && rows.contains("\"low\""), "{rows}");
    // A B B A A B B A A B B A A B B A.
    let order: Vec<bool> =
        ran.err.lines().filter(|l| l.starts_with('[')).map(|line| line.contains(&b)).collect();
    assert_eq!(order, [false, true, true, false].repeat(4), "{}", ran.err);
    assert_eq!((fast.settled().requests, slower.settled().requests), (64, 64));
    let again = lab.loadlab(&["compare", "kept", "--fail-on-worse"]);
    assert_eq!(again.code, Some(1), "{}", again.err);
    // Better is not a failure.
    let ran = lab.loadlab(&[&["bench", &b, "--vs", &a, "-q", "--fail-on-worse"], &load[..]].concat());
    assert!([Some(0), Some(4)].contains(&ran.code), "{}", ran.err);
    let first = ran.out.lines().take(3).collect::<Vec<_>>().join(" ");
    assert!(first.starts_with(&format!("Verdict: {a} is better:")) && first.contains("goodput "), "{first}");
    assert!(ran.out.contains("record: loadlab-runs/bench-"), "{}", ran.out);
}

#[test]
fn a_url_against_itself_has_two_names() {
    let (lab, server) = (Lab::new(), Server::start(slow(Duration::from_millis(2))));
    let url = server.url("/");
    let ran = lab.loadlab(&["bench", &url, "--vs", &url, "-c", "1", "-n", "5", "--json", "-q"]);
    let found = document(&ran);
    let compared = found["compared"].to_string();
    assert!(
        compared.contains(&format!("{url} (first)")) && compared.contains(&format!("{url} (second)")),
        "{compared}"
    );
    let unwritable = ["--json", "-q", "--junit", "no/such/folder.xml"];
    let ran = lab.loadlab(&[&["bench", &url, "--vs", &url, "-c", "1", "-n", "5"], &unwritable[..]].concat());
    let found = document(&ran);
    assert_eq!((&found["exit"], ran.code), (&5.into(), Some(5)), "{}", ran.err);
}

#[test]
fn find_sends_what_bench_sends() {
    let (lab, (server, heard)) = (Lab::new(), noting());
    let ran = lab.loadlab(&[
        "find",
        &server.url("/x"),
        "--expect",
        "errors == 0",
        "--users",
        "1..2",
        "--level-duration",
        "200ms",
        "-X",
        "PUT",
        "-H",
        "X-Key: k",
        "-b",
        "body",
        "--junit",
        "junit.xml",
        "-q",
    ]);
    let heard = heard.lock().unwrap().clone();
    assert!(!heard.is_empty() && heard.iter().all(|line| line == "PUT /x k body"), "{}", ran.err);
    let junit = lab.read("junit.xml");
    assert!(
        junit.contains("<testcase classname=\"find\" name=\"find\">") && junit.contains("tests=\"1\""),
        "{junit}"
    );
    lab.file(
        "plan.yaml",
        "loadlab: 1\nname: n\nload: { users: 1, requests: 1, journey: [{ get: \"http://127.0.0.1:1/\" }] }\n",
    );
    let refused = lab.loadlab(&["find", "plan.yaml", "--expect", "errors == 0", "-H", "a: b"]);
    refused.expect(2, &["`--header` is for URLs: a plan has its own"]);
    for option in [["--tags", "a"], ["--case", "b"], ["--profile", "quick"]] {
        let args = ["find", "http://127.0.0.1:1/", "--expect", "errors == 0", "--users", "1..2"];
        let refused = lab.loadlab(&[&args[..], &option].concat());
        refused.expect(2, &[&format!("`{}` is for plans", option[0])]);
    }
    // `find` takes every URL that `bench` takes.
    for (url, out) in [("unix:/nowhere/app.sock:/", "socket"), ("HTTP://127.0.0.1:1/", "upper")] {
        let search = ["--expect", "errors == 0", "--users", "1..2", "--out", out];
        lab.loadlab(&[&["find", url][..], &search].concat()).expect(5, &["cannot connect"]);
    }
}

#[test]
fn two_urls_are_loaded_until_it_is_certain_which_is_faster() {
    let lab = Lab::new();
    let waiting = |ms: u64| {
        Server::start(move |_: &Request| {
            vec![Step::Wait(Duration::from_millis(ms)), Step::Send(response(200, "hello"))]
        })
    };
    let (fast, slow) = (waiting(10), waiting(40));
    let [base, other] = [fast.url("/"), slow.url("/")];
    let words = [
        "bench",
        &base,
        "--vs",
        &other,
        "--until-certain",
        "-n",
        "24",
        "-c",
        "4",
        "-o",
        "kept",
        "--json",
        "-q",
    ];
    let ran = lab.loadlab(&words);
    let found = document(&ran);
    let row = &found["compared"]["comparisons"][0]["figures"][0];
    let rounds = found["compared"]["comparisons"][0]["trials"][0].as_u64().unwrap_or_default();
    if found["exit"] == 4 {
        // A busy machine spoiled a trial.
        return;
    }
    ran.expect(0, &[]);
    assert_eq!((&found["verdict"], &row["verdict"]), (&"worse".into(), &"worse".into()));
    assert!((7..=30).contains(&rounds) && row["visible"].is_number(), "{row}");
    let manifest: Value = serde_json::from_str(&lab.read("kept/manifest.json")).expect("JSON");
    assert_eq!(manifest["until_certain"]["ended"], "settled");
    let words = ["bench", &base, "--vs", &other, "--until-certain", "--equivalence-margin", "0%"];
    lab.loadlab(&words).expect(2, &["--until-certain takes an --equivalence-margin above 0"]);
    let words = ["bench", &base, "--vs", &other, "--until-certain", "--trials", "5"];
    lab.loadlab(&words).expect(2, &["--until-certain", "cannot be used with", "--trials"]);
}
