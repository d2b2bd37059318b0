//! What a run provides to other programs and for later: JUnit XML, live metrics, the list of runs.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::server as counting;
use crate::run_support::{LONG, Lab, Ran, component, eventually, plan};

#[test]
fn expectations_as_junit() {
    let lab = Lab::new();
    let rest = "trials: 2\nexpect: [\"errors < 1%\", \"p50 < 0.001ms\"]\n";
    let ran = lab.run(&plan(&[component("web", "", &[])], rest), &["--junit", "junit.xml"]);
    assert!(matches!(ran.code, Some(1 | 4)), "{ran:?}");
    let xml = lab.read("junit.xml");
    assert!(
        xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"test\" tests=\""),
        "{xml}"
    );
    for test in ["errors &lt; 1% (trial 1)", "p50 &lt; 0.001ms (trial 2)"] {
        assert!(xml.contains(&format!("<testcase classname=\"default\" name=\"{test}\"")), "{xml}");
    }
    assert_eq!(xml.matches("<failure message=\"p50 &lt; 0.001ms (measured ").count(), 2, "{xml}");
}

#[test]
fn a_file_that_cannot_be_written_is_reported_and_the_record_stays() {
    let lab = Lab::new();
    let ran = lab.run(&plan(&[component("web", "", &[])], ""), &["--junit", "no/such/folder.xml"]);
    ran.expect(5, &["cannot write no/such/folder.xml"]);
    assert_eq!(lab.record().summary("default", 1)["ended"], "complete");
    // The document has the exit code, too.
    let lab = Lab::new();
    let ran = lab.run(&plan(&[component("web", "", &[])], ""), &["--junit", "no/such/folder.xml", "--json"]);
    ran.expect(5, &["cannot write no/such/folder.xml"]);
    let document: Value = serde_json::from_str(&ran.out).expect("one document");
    assert_eq!(document["exit"], 5, "{document:#}");
}

fn scrape(address: &str) -> Option<String> {
    scrape_with(address, "GET /metrics HTTP/1.1\r\nHost: localhost")
}

fn scrape_with(address: &str, head: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn metrics_while_it_goes_on() {
    let lab = Lab::new();
    let mut running = lab.start(&plan(&[component("web", "", &[])], LONG), &["--prometheus", "127.0.0.1:0"]);
    running.wait_for_output("metrics on http://");
    let reported = lab.read("stderr");
    let address =
        reported.split("metrics on http://").nth(1).and_then(|t| t.split('/').next()).unwrap().to_owned();
    let labels = "run=\"test\",trial=\"default, trial 1\"";
    let cpu_of_web = format!("loadlab_component_cpu_seconds_total{{{labels},component=\"web\"}} ");
    let text =
        eventually("the component's CPU time", || scrape(&address).filter(|t| t.contains(&cpu_of_web)));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    for line in [
        format!("loadlab_requests_total{{{labels},load=\"load\",outcome=\"ok\"}} "),
        format!("loadlab_component_memory_bytes{{{labels},component=\"web\"}} "),
        format!("loadlab_phase{{{labels},phase=\"loading\"}} 1"),
    ] {
        assert!(body.contains(&line), "no {line} in\n{body}");
    }
    for line in body.lines().filter(|l| !l.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(line.starts_with("loadlab_") && value.parse::<f64>().is_ok(), "{line}");
    }
    // Pages of other sites are refused, even if they use another name for this machine.
    for (head, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example", "403"),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example", "403"),
        ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: cross-site", "403"),
        ("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1", "405"),
        ("nonsense", "400"),
    ] {
        let text = scrape_with(&address, head).unwrap();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")) && !text.contains("loadlab_"),
            "{head}: {text}"
        );
    }
    running.signal(Signal::INT);
    running.end().expect(130, &[]);
}

#[test]
fn an_address_that_is_taken_is_reported_before_anything_runs() {
    let lab = Lab::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = lab.run(&plan(&[component("web", "", &[])], ""), &["--prometheus", &address]);
    ran.expect(2, &["--prometheus: cannot listen on"]);
    assert!(!lab.record().dir.exists());
}

#[test]
fn runs_are_listed_shown_and_followed() {
    let lab = Lab::new();
    let text = plan(&[component("web", "", &[])], "expect: [\"errors < 1%\"]\n");
    lab.file("plan.yaml", &text);
    let name = lab.run_name();
    for number in 1..=2 {
        let out = format!("loadlab-runs/{name}-{number}");
        let ran = lab.loadlab(&["run", "plan.yaml", "--out", &out, "--quiet"]);
        assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
        // A folder that is not a run is ignored.
        std::fs::create_dir(lab.path().join(format!("loadlab-runs/other-{number}"))).unwrap();
    }
    let list = lab.loadlab(&["list"]);
    list.expect(0, &[]);
    let rows: Vec<&str> = list.out.lines().filter(|l| l.starts_with(&name)).collect();
    assert!(
        rows[0].starts_with(&format!("{name}-2")) && rows[1].starts_with(&format!("{name}-1")),
        "{}",
        list.out
    );
    assert!(!list.out.contains("other-"), "{}", list.out);
    let json: Value = serde_json::from_str(&lab.loadlab(&["list", "--json", "--last", "1"]).out).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(1));
    lab.loadlab(&["list", "--last", "1"]).expect(0, &["1 older run is not shown; --last 2 shows it"]);
    assert_eq!((&json[0]["run"], &json[0]["name"]), (&format!("{name}-2").into(), &"test".into()));
    assert!(json[0]["cases"][0]["goodput_per_s"].as_f64() > Some(0.0), "{json}");
    let trend = lab.loadlab(&["list", "--trend", "goodput"]);
    trend.expect(0, &[]);
    // Oldest first: time runs down the page.
    let at = |number: u32| trend.out.find(&format!("{name}-{number}")).unwrap();
    assert!(trend.out.contains("default: goodput") && at(1) < at(2), "{}", trend.out);
    lab.loadlab(&["list", "--trend", "p12"]).expect(2, &["no figure is named `p12`", "hint: known figures:"]);
    lab.loadlab(&["list", "--trend", "p50", "--case", "zzz"])
        .expect(2, &["no case of these runs matches `zzz`", "hint: their cases are `default`"]);
    lab.loadlab(&["list", "--trend", "p50", "--case", "def*"]).expect(0, &[]);
    lab.loadlab(&["list", "nowhere"]).expect(2, &["cannot read nowhere"]);
    // The folder may be given as in the other commands, but not in both ways.
    lab.loadlab(&["list", "--runs-dir", "nowhere"]).expect(2, &["cannot read nowhere"]);
    assert_eq!(lab.loadlab(&["list", "--runs-dir", "loadlab-runs"]).out, list.out);
    lab.loadlab(&["list", "loadlab-runs", "--runs-dir", "loadlab-runs"])
        .expect(2, &["--runs-dir <DIR>", "cannot be used with", "[DIR]"]);
    // Other folders of the same name hide neither a run nor a case.
    for folder in ["last", "default", &format!("{name}-2")] {
        std::fs::create_dir(lab.path().join(folder)).unwrap();
    }
    lab.loadlab(&["show", "default"]).expect(0, &[]);
    for run in ["last", &format!("{name}-2"), &format!("loadlab-runs/{name}-2")] {
        let shown = lab.loadlab(&["show", run, "--full"]);
        shown.expect(0, &[]);
        let report = lab.loadlab(&["report", &format!("loadlab-runs/{name}-2")]);
        assert_eq!(shown.out, report.out);
    }
}

#[test]
fn a_run_is_pinned_and_later_ones_are_compared_with_it() {
    let lab = Lab::new();
    let name = lab.run_name();
    let rest = "load:\n  users: 2\n  requests: 24\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\ntrials: 5\n";
    let run = |number: u32, slow_ms: u32| {
        let web = component("web", &format!("\"slow_ms\": {slow_ms}"), &[]);
        lab.file("plan.yaml", &plan(&[web], rest));
        // Concurrent runs name their cgroups after themselves, so each needs a unique name.
        let out = format!("loadlab-runs/{name}-{number}");
        lab.loadlab(&["run", "plan.yaml", "--quiet", "--out", &out]).expect(0, &[]);
    };
    let (first, second) = (format!("{name}-1"), format!("{name}-2"));
    run(1, 2);
    let nothing = "`test` has no baseline in loadlab-runs";
    lab.loadlab(&["compare", &first, "--baseline"]).expect(2, &[nothing, "hint: `loadlab baseline RUN`"]);
    lab.loadlab(&["baseline", &first]).expect(0, &[]);
    // so much slower that it shows even on a busy machine
    run(2, 150);
    assert_eq!(lab.loadlab(&["baseline"]).out, format!("test: {first}\n"));
    // `last` is the newest run, and slower; its plan has changed, which is reported
    let compared = lab.loadlab(&["compare", "last", "--baseline", "--fail-on-worse"]);
    compared.expect(1, &["the plan has changed since the baseline"]);
    assert!(
        compared.out.contains(&format!("{second} against {first}")) && compared.out.contains("worse"),
        "{}",
        compared.out
    );
    // with a run by name instead of the pinned baseline, the first run is better; a server's memory may differ either
    // way
    let back = lab.loadlab(&[
        "compare",
        &first,
        &format!("--baseline={second}"),
        "--fail-on-worse",
        "--format",
        "json",
    ]);
    back.expect(if back.out.contains("\"worse\"") { 1 } else { 0 }, &[]);
    let figures: Value = serde_json::from_str(&back.out).unwrap();
    let figures = figures["comparisons"][0]["figures"].as_array().expect("figures").clone();
    let goodput = figures.iter().find(|f| f["figure"] == "goodput").expect("goodput");
    assert_eq!(goodput["verdict"], "better", "{}", back.out);
    lab.loadlab(&["compare", &first, "--baseline"]).expect(2, &["is the baseline itself"]);
    // Whichever way it is spelled.
    let whole = format!("--baseline={}", lab.path().join("loadlab-runs").join(&first).display());
    lab.loadlab(&["compare", &format!("loadlab-runs/{first}"), &whole])
        .expect(2, &["is the baseline itself"]);
    lab.loadlab(&["compare", "last", "default", "--baseline"]).expect(2, &["`default` is not a run"]);
    // lists and trends include the baseline, however old it is
    let json: Value = serde_json::from_str(&lab.loadlab(&["list", "--json"]).out).unwrap();
    assert_eq!((&json[0]["baseline"], &json[1]["baseline"]), (&false.into(), &true.into()));
    let trend = lab.loadlab(&[
        "list",
        "--trend",
        "p50,goodput",
        "--last",
        "1",
        "--format",
        "html",
        "-o",
        "trend.html",
    ]);
    trend.expect(0, &[]);
    let page = std::fs::read_to_string(lab.path().join("trend.html")).unwrap();
    assert_eq!(page.matches("<i class=\"dot s").count(), 4, "two figures of two runs");
    assert_eq!(page.matches("<span class=\"word above\"").count(), 2);
    lab.loadlab(&["list", "--format", "html"]).expect(2, &["--trend"]);
    lab.loadlab(&["baseline", &second, "--remove"]).expect(2, &[&format!("{second} is not a baseline in ")]);
    lab.loadlab(&["baseline", &first, "--remove"]).expect(0, &[]);
    assert_eq!(lab.loadlab(&["baseline"]).out, "no baseline in loadlab-runs\n");
    // A baseline whose run is gone, by its path and by its name.
    for gone in [format!("loadlab-runs/{first}"), second] {
        lab.loadlab(&["baseline", &gone]).expect(0, &[]);
        let folder = lab.path().join("loadlab-runs").join(gone.trim_start_matches("loadlab-runs/"));
        std::fs::remove_dir_all(folder).unwrap();
        lab.loadlab(&["baseline", &gone, "--remove"]).expect(0, &[]);
    }
}

/// Each trial is reported up to its end, however short it is, with the resource use of its components.
#[test]
fn a_collector_hears_of_every_trial() {
    let bodies = std::sync::Arc::new(std::sync::Mutex::new(Vec::<Value>::new()));
    let kept = bodies.clone();
    let collector = counting::Server::start(move |request: &counting::Request| {
        kept.lock().unwrap().push(serde_json::from_slice(&request.body).unwrap());
        vec![counting::send(counting::response(200, "{}"))]
    });
    let lab = Lab::new();
    let rest = "load:\n  users: 2\n  requests: 60\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\ntrials: 2\n";
    lab.file("plan.yaml", &plan(&[component("web", "", &[])], rest));
    let (out, url) = (lab.run_name(), collector.url(""));
    let mut command =
        lab.command(&["run", "plan.yaml", "--out", &out, "--otlp", &url, "--otlp-interval", "1h"]);
    // On a busy machine the thread that pushes, whose priority is low, may take long.
    command.env("OTEL_EXPORTER_OTLP_TIMEOUT", "60000");
    let ran = Ran::of(command.output().expect("loadlab starts"));
    ran.expect(0, &[]);
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    assert!(!ran.err.contains("--otlp"), "{}", ran.err);
    let bodies = bodies.lock().unwrap();
    let of = |trial: &str, metric: &str| -> Vec<f64> {
        let metrics = bodies
            .iter()
            .flat_map(|b| b["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap());
        let points =
            metrics.filter(|m| m["name"] == metric).flat_map(|m| m["sum"]["dataPoints"].as_array().unwrap());
        let of_trial = points.filter(|p| p["attributes"].to_string().contains(trial));
        of_trial.map(|p| p["asDouble"].as_f64().unwrap()).collect()
    };
    for trial in ["default, trial 1", "default, trial 2"] {
        assert_eq!(of(trial, "loadlab.requests").last(), Some(&60.0), "{bodies:#?}");
        assert!(of(trial, "loadlab.component.cpu").iter().all(|s| *s >= 0.0), "{bodies:#?}");
    }
    assert!(of("trial 2", "loadlab.component.cpu").iter().any(|s| *s > 0.0), "{bodies:#?}");
}
