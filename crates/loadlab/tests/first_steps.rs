//! A new user's first steps: write a plan with `init` and run it, try the demo service, and look at the last run.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use crate::common::demo::Demo;
use crate::common::server::{Server, good};
use crate::run_support::{Lab, Ran};

const FIRST_LINE: &str = "# yaml-language-server: $schema=loadlab.schema.json";

/// Checks that `init` wrote a plan that passes `check`, with a schema beside it.
#[track_caller]
fn checked(lab: &Lab, ran: &Ran) {
    ran.expect(0, &[]);
    assert!(ran.out.contains("wrote plan.yaml"), "{}", ran.out);
    let plan = lab.read("plan.yaml");
    assert_eq!(plan.lines().next(), Some(FIRST_LINE), "{plan}");
    let schema: Value = serde_json::from_str(&lab.read("loadlab.schema.json")).expect("a schema");
    assert!(schema["properties"]["load"].is_object());
    lab.loadlab(&["check", "plan.yaml"]).expect(0, &[]);
}

/// The summaries of a run's trials.
fn summaries(ran: &Ran) -> Vec<Value> {
    let document: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
    let trials = document["trials"].as_array().expect("trials").clone();
    trials.into_iter().map(|trial| trial["summary"].clone()).collect()
}

#[test]
fn a_plan_from_a_url_runs() {
    let (lab, server) = (Lab::new(), Server::start(good));
    checked(&lab, &lab.loadlab(&["init", &server.url("/a?b=1")]));
    let ran = lab.loadlab(&["run", "plan.yaml", "--set", "load.duration=2s", "--json", "--quiet"]);
    let summaries = summaries(&ran);
    assert_eq!(summaries.len(), 1, "{}", ran.err);
    ran.expect_however_busy(&summaries, false);
    let ok = summaries[0]["requests"]["ok"].as_u64().unwrap();
    assert!(ok > 0 && server.settled().requests >= ok, "{ok}: {}", ran.err);
}

#[test]
fn nothing_is_overwritten() {
    let lab = Lab::new();
    lab.file("plan.yaml", "mine");
    let url = "http://127.0.0.1:1/";
    lab.loadlab(&["init", url]).expect(2, &["plan.yaml already exists", "hint: -o FILE writes another file"]);
    assert_eq!(lab.read("plan.yaml"), "mine");
    assert!(!lab.path().join("loadlab.schema.json").exists());
    lab.file("loadlab.schema.json", "my schema");
    lab.loadlab(&["init", url, "-o", "other.yaml"]).expect(0, &["loadlab.schema.json differs", "is kept"]);
    assert_eq!(lab.read("loadlab.schema.json"), "my schema");
    lab.loadlab(&["init", url, "--force"]).expect(0, &[]);
    assert!(lab.read("plan.yaml").starts_with(FIRST_LINE));
    assert!(lab.read("loadlab.schema.json").starts_with('{'));
    let compose = "services:\n  web:\n    image: web\n    ports: [\"8080:80\"]\n";
    lab.file("compose.yaml", compose);
    for (from, out, why) in [
        ("compose.yaml", "./compose.yaml", "is the Compose file that the plan is made from"),
        (url, "loadlab.schema.json", "is where the schema goes"),
        (url, ".", ". is a folder"),
    ] {
        lab.loadlab(&["init", from, "-o", out, "--force"]).expect(2, &[why, "hint: -o FILE"]);
    }
    assert_eq!(lab.read("compose.yaml"), compose);
    std::fs::create_dir(lab.path().join("sub")).unwrap();
    lab.loadlab(&["init", url, "-o", "sub/load.yaml"]).expect(0, &[]);
    assert!(lab.path().join("sub/loadlab.schema.json").exists());
}

#[test]
fn what_is_no_source_is_refused() {
    let lab = Lab::new();
    for (from, why) in [
        ("localhost:8080", "hint: write `http://localhost:8080/`"),
        ("nothing.yaml", "neither a URL nor a file"),
        ("http://:80/", "http://"),
    ] {
        lab.loadlab(&["init", from]).expect(2, &[why]);
        assert!(!lab.path().join("plan.yaml").exists(), "{from}");
    }
    lab.loadlab(&["init"]).expect(2, &["URL|COMPOSE_FILE"]);
    lab.loadlab(&["init", "--example", "helo"]).expect(2, &["there is no example `helo`", "`hello`"]);
}

#[test]
fn a_plan_from_a_compose_file_is_good() {
    let lab = Lab::new();
    lab.file(
        "compose.yaml",
        "services:\n  web: { image: \"nginx:stable\", ports: [\"8080:80\"], depends_on: [db] }\n  db:\n    image: postgres\n    \
         healthcheck: { test: pg_isready }\n",
    );
    checked(&lab, &lab.loadlab(&["init", "compose.yaml"]));
    let shown = lab.loadlab(&["run", "plan.yaml", "--dry-run"]);
    shown.expect(0, &[]);
    assert!(shown.out.contains("web") && shown.out.contains("db"), "{}", shown.out);
    // From another folder, the plan refers to the file by its path.
    std::fs::create_dir(lab.path().join("loads")).unwrap();
    lab.loadlab(&["init", "compose.yaml", "-o", "loads/plan.yaml"]).expect(0, &[]);
    let full = lab.path().join("compose.yaml");
    assert!(lab.read("loads/plan.yaml").contains(&format!("compose: \"{}\"", full.display())));
}

#[test]
fn every_example_runs() {
    let listed = Lab::new().loadlab(&["init", "--list"]);
    listed.expect(0, &[]);
    // Long enough that a busy machine sends something, and that a stall is not in most response times.
    let shorter = |name: &str| match name {
        "stages" => "load.stages=[{ to: 50/s, over: 500ms }, { hold: 1500ms }]",
        _ => "load.duration=2s",
    };
    let names: Vec<&str> =
        listed.out.lines().take_while(|l| !l.is_empty()).filter_map(|l| l.split(' ').next()).collect();
    assert!(names.len() >= 5, "{}", listed.out);
    for name in names {
        let lab = Lab::new();
        checked(&lab, &lab.loadlab(&["init", "--example", name]));
        let ran =
            lab.loadlab(&["run", "plan.yaml", "--trials", "1", "--set", shorter(name), "--json", "--quiet"]);
        let summaries = summaries(&ran);
        // At this duration, a load may have too few requests to decide.
        ran.expect_however_busy(&summaries, true);
        for summary in summaries {
            let of = |key: &str| summary["requests"][key].as_u64().unwrap();
            assert!(of("ok") > 0 && of("failed") == 0, "{name}: {summary}");
        }
    }
}

/// The responses to HTTP/1.0 requests, as ab sends them, on one connection: read to the end of the connection for a
/// single request, otherwise until each is answered.
fn old_request(url: &str, fields: &str, requests: usize) -> String {
    let mut stream =
        TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/')).expect("it listens");
    let mut responses = String::new();
    for _ in 0..requests {
        write!(stream, "GET /health HTTP/1.0\r\n{fields}\r\n").expect("it is sent");
        let mut response = BufReader::new(&stream);
        while requests == 1 || !responses.ends_with("}\n") {
            if response.read_line(&mut responses).expect("text") == 0 {
                break;
            }
        }
        responses.push('\n');
    }
    responses
}

#[test]
fn the_demo_can_be_loaded() {
    let lab = Lab::new();
    let demo = Demo::start(&["--workers", "2"]);
    let url = demo.url.as_str();
    let ran = lab.loadlab(&["bench", url, "-n", "40", "-c", "4", "--expect", "errors == 0", "--json", "-q"]);
    let missing = lab.loadlab(&["bench", &format!("{url}nothing"), "-n", "4", "-c", "1", "--json", "-q"]);
    let old = [old_request(url, "", 1), old_request(url, "Connection: Keep-Alive\r\n", 2)];
    assert!(old[0].contains("\r\nconnection: close\r\n"), "{}", old[0]);
    assert!(old[1].contains("\r\nconnection: keep-alive\r\n"), "{}", old[1]);
    assert_eq!(old.map(|responses| responses.matches("HTTP/1.1 200 OK").count()), [1, 2]);
    let document: Value = serde_json::from_str(&ran.out).expect("a document");
    assert_eq!(document["requests"]["ok"], 40, "{}", ran.err);
    assert!(
        document["components"]["demo"].is_object(),
        "it is found behind its port: {}",
        document["components"]
    );
    let document: Value = serde_json::from_str(&missing.out).expect("a document");
    assert_eq!(document["failures"]["http_4xx"], 4, "{}", missing.err);
}

/// A run of two cases.
fn two_cases(lab: &Lab, server: &Server) {
    lab.file(
        "plan.yaml",
        &format!(
            "loadlab: 1\nname: shop\nload:\n  users: \"${{case.users}}\"\n  requests: 20\n  journey: [{{ get: \"{}\" }}]\n\
             matrix:\n  - {{ name: one user, users: 1 }}\n  - {{ name: two users, users: 2 }}\nexpect: [\"errors == 0\"]\n",
            server.url("/")
        ),
    );
    let ran = lab.loadlab(&["run", "plan.yaml", "--quiet", "--json"]);
    ran.expect_however_busy(&summaries(&ran), false);
}

#[test]
fn the_last_run_and_its_cases_are_shown() {
    let (lab, server) = (Lab::new(), Server::start(good));
    lab.loadlab(&["show"]).expect(2, &["loadlab-runs", "hint: "]);
    two_cases(&lab, &server);
    let shown = |args: &[&str]| {
        let ran = lab.loadlab(args);
        ran.expect(0, &[]);
        ran.out
    };
    let brief = shown(&["show", "last", "--brief"]);
    let lines: Vec<&str> = brief.lines().collect();
    assert_eq!(lines.len(), 2, "{brief}");
    assert!(lines[0].contains("one user ") && lines[1].contains("two users"), "{brief}");
    assert_eq!(shown(&["show", "--brief"]), brief);
    for args in [&["show", "two users", "--brief"][..], &["show", "last", "two*", "--brief"]] {
        assert_eq!(shown(args).lines().collect::<Vec<_>>(), [lines[1]], "{args:?}");
    }
    let one = shown(&["show", "two users"]);
    assert!(one.contains("two users") && !one.contains("one user "), "{one}");
    let unknown = lab.loadlab(&["show", "three users"]);
    unknown.expect(2, &["neither a run nor a case", "`one user`, `two users`"]);
    let csv = shown(&["report", "last", "--format", "csv"]);
    assert!(csv.lines().count() > 2 && csv.contains("two users"), "{csv}");
    let run =
        std::fs::read_dir(lab.path().join("loadlab-runs")).unwrap().next().unwrap().unwrap().file_name();
    assert_eq!(shown(&["report", Path::new(&run).to_str().unwrap(), "--format", "csv"]), csv);
    assert!(shown(&["compare", "last", "one user", "two users"]).contains("two users"));
    assert!(shown(&["list"]).contains("shop"));
}

#[test]
fn flags_of_other_tools_are_explained_on_the_way_in() {
    let lab = Lab::new();
    let ran = lab.loadlab(&["bench", "http://127.0.0.1:1/", "-z", "10s"]);
    ran.expect(2, &["error: `loadlab bench` has no `-z`", "hint: the duration (oha and hey): `-d 10s`"]);
    assert_eq!(ran.out, "");
    lab.loadlab(&["run", "plan.yaml", "--vus", "5"]).expect(2, &["`--set load.users=50`"]);
    lab.loadlab(&["bench", "http://127.0.0.1:1/", "-d", "5"]).expect(2, &["5 seconds are `5s`"]);
    // The help is short by default, and complete on request.
    let short = lab.loadlab(&["bench", "-h"]);
    let long = lab.loadlab(&["bench", "--help"]);
    assert!(short.out.lines().count() <= 35 && long.out.contains("--no-resumption"), "{}", short.out);
}
