//! Links with a delay, loss and a bandwidth limit, by a relay and by the kernel: what the load sees, what the record
//! shows, and that nothing is left behind. Tests with a separate link need root.

use rustix::process::Signal;
use serde_json::Value;

use crate::run_support;
use crate::run_support::{Lab, eventually};

/// A load at this address; `rest` are further lines of the plan.
fn load(at: &str, rest: &str) -> String {
    format!("load:\n  users: 2\n  timeout: 20s\n  journey: [{{ get: \"http://{at}/\" }}]\n{rest}")
}

const BY_PORT: &str = "127.0.0.1:${components.web.port}";
const BY_ADDRESS: &str = "${components.web.address}:8080";
/// For a port that loadlab chooses.
const BY_NAME: &str = "${components.web.address}:${components.web.port}";
const CASES: &str = "matrix: [{ name: near, delay: none }, { name: far, delay: 40ms }]\n";

fn web(more: &[&str]) -> String {
    run_support::component("web", "", more)
}

/// As [`web`], on port 8080 of its own network.
fn web_apart(more: &[&str]) -> String {
    web_apart_at("port: 8080", more)
}

fn web_apart_at(port: &str, more: &[&str]) -> String {
    let ready = "ready: { http: \"http://${address}:${port}/health\" }";
    run_support::component("web", "\"everywhere\": true", &[&[port, ready], more].concat())
}

fn number(summary: &Value, pointer: &str) -> f64 {
    summary.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {summary:#}"))
}

/// Answers per second in the whole seconds between two moments, such as those of events, which may come late.
#[track_caller]
pub fn ok_per_s(ticks: &[Value], from_s: f64, to_s: f64) -> f64 {
    let time = |tick: &Value, key: &str| tick[key].as_f64().expect("a time");
    let inside = ticks.iter().filter(|t| time(t, "from_s") >= from_s && time(t, "to_s") <= to_s);
    let (mut ok, mut all_s) = (0, 0.0);
    for tick in inside {
        ok += tick["ok"].as_u64().expect("a count");
        all_s += time(tick, "to_s") - time(tick, "from_s");
    }
    assert!(all_s > 0.0, "no whole second from {from_s} to {to_s}: {ticks:#?}");
    ok as f64 / all_s
}

/// Checks both cases: near requests are quick, far ones take 40 ms more, and the relay's cost is reported separately.
#[track_caller]
fn far_takes_longer(lab: &Lab, kept: &str) {
    let (near, far) = (lab.record().summary("near", 1), lab.record().summary("far", 1));
    for summary in [&near, &far] {
        assert_eq!(number(summary, "/requests/failed"), 0.0, "{kept}: {summary:#}");
        // The relay exists in both cases: only the delay differs.
        assert!(number(summary, "/components/web-relay/cpu_s") >= 0.0, "{kept}");
        assert!(number(summary, "/components/web-relay/memory_bytes/max") > 0.0, "{kept}");
    }
    assert!(number(&near, "/response_ms/min") < 40.0, "{kept}: {near:#}");
    let least = if kept == "true" { 40.0 } else { 80.0 };
    assert!(number(&far, "/response_ms/min") >= least, "{kept}: {far:#}");
    // Even on a busy machine.
    assert!(number(&far, "/response_ms/p50") < 5_000.0, "{kept}: {far:#}");
    assert_eq!(far["components"]["web"]["limits"]["delay_ns"], 40_000_000, "{far:#}");
    assert!(near["components"]["web"]["limits"]["delay_ns"].is_null());
    let notes = lab.record().events("far", 1, "note");
    assert!(notes.iter().any(|n| n["text"].as_str().is_some_and(|t| t.contains("relay in front of `web`"))));
}

#[test]
fn a_delay_on_a_port() {
    for kept in ["true", "false"] {
        let lab = Lab::new();
        let rest = format!("  duration: 1500ms\n  keep_alive: {kept}\n{CASES}");
        let plan =
            run_support::plan(&[web(&["limits: { delay: \"${case.delay}\" }"])], &load(BY_PORT, &rest));
        lab.run(&plan, &[]).expect(0, &[]);
        far_takes_longer(&lab, kept);
    }
}

#[test]
fn a_delay_on_a_link() {
    for (kept, port, at) in [("true", "port: 8080", BY_ADDRESS), ("false", "port: auto", BY_NAME)] {
        let lab = Lab::new();
        let rest = format!("  duration: 1500ms\n  keep_alive: {kept}\nisolate: true\n{CASES}");
        let web = web_apart_at(port, &["limits: { delay: \"${case.delay}\" }"]);
        lab.run(&run_support::plan(&[web], &load(at, &rest)), &[]).expect(0, &[]);
        far_takes_longer(&lab, kept);
        // The link's bytes are counted as usual, at least those of the answers.
        let far = lab.record().summary("far", 1);
        assert!(
            number(&far, "/components/web/net_bytes/out") > number(&far, "/requests/ok") * 66.0,
            "{far:#}"
        );
    }
}

/// Delay and loss change in the middle of a load. The kernel retransmits what a link loses; a relay on a port delays
/// it.
#[test]
fn delay_and_loss_come_and_go() {
    let events = "events: [{ at: 3s, do: delay web 100ms }, { at: 3s, do: limit web jitter 20ms }, { at: 8s, do: delay web none }, \
                  { at: 9s, do: packet_loss web 20% }, { at: 14s, do: packet_loss web none }]\n";
    for (isolate, web, at) in [("", web(&[]), BY_PORT), ("isolate: true\n", web_apart(&[]), BY_ADDRESS)] {
        let lab = Lab::new();
        let rest = format!("  duration: 19s\n  think: 5ms\n{isolate}{events}");
        let ran = lab.run(&run_support::plan(&[web], &load(at, &rest)), &[]);
        ran.expect_however_busy(&[lab.record().summary("default", 1)], false);
        let ticks = lab.record().lines("default", 1, "ticks.jsonl");
        let acted = lab.record().events("default", 1, "action");
        let at: Vec<f64> = acted.iter().filter_map(|event| event["at_s"].as_f64()).collect();
        let [delayed, jittered, near_again, lossy, whole] = at[..] else { panic!("five events: {acted:?}") };
        // Two users whose round trips take at least 80 ms get at most 25 answers a second, and one more at an edge.
        let (near, far) = (ok_per_s(&ticks, 0.0, delayed), ok_per_s(&ticks, jittered, near_again));
        assert!(near > 50.0 && (1.0..=26.0).contains(&far), "{isolate}{near} and {far}");
        let (lossy, again) = (ok_per_s(&ticks, lossy, whole), ok_per_s(&ticks, whole, f64::INFINITY));
        assert!(lossy < near / 2.0 && again > lossy, "{isolate}{near}, {lossy} and {again}");
        let summary = lab.record().summary("default", 1);
        assert_eq!(number(&summary, "/requests/failed"), 0.0, "nothing of a stream is lost: {summary:#}");
        assert!(number(&summary, "/response_ms/max") >= 200.0, "sent again: {summary:#}");
        let limited = lab.record().events("default", 1, "limited");
        assert!(limited.iter().any(|e| e["limits"]["packet_loss"] == 0.2), "{limited:?}");
    }
}

#[test]
fn a_link_is_narrow_from_the_start() {
    let lab = Lab::new();
    let rest = "  duration: 2s\nisolate: true\nmatrix: [{ name: wide, width: none }, { name: narrow, width: 4kB/s }]\n";
    let web = web_apart(&["limits: { bandwidth: \"${case.width}\" }"]);
    lab.run(&run_support::plan(&[web], &load(BY_ADDRESS, rest)), &[]).expect(0, &[]);
    let (wide, narrow) = (lab.record().summary("wide", 1), lab.record().summary("narrow", 1));
    assert_eq!(narrow["components"]["web"]["limits"]["bandwidth_bytes_per_s"], 4_000, "{narrow:#}");
    assert!(wide["components"]["web"]["limits"].is_null(), "{wide:#}");
    assert!(narrow["components"]["web-relay"].is_null(), "the kernel does it: {narrow:#}");
    let ok = |summary: &Value| number(summary, "/requests/ok");
    // 8 kB, plus the burst, for answers of some hundred bytes with their heads.
    assert!(ok(&narrow) < 300.0 && ok(&narrow) > 0.0 && ok(&wide) > 2.0 * ok(&narrow), "{narrow:#}");
}

/// A relay that is killed cuts its component off the network, and the trial reports it.
#[test]
fn a_relay_that_dies_spoils_the_trial() {
    let lab = Lab::new();
    let running = lab.start(
        &run_support::plan(&[web(&["limits: { delay: 1ms }"])], &load(BY_PORT, "  duration: 10m\n")),
        &[],
    );
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    let up = lab.record().events("default", 1, "up");
    let relay = up.iter().find(|e| e["component"] == "web-relay").and_then(|e| e["pid"].as_u64());
    let pid = rustix::process::Pid::from_raw(relay.expect("a relay") as i32).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("it can be killed");
    running.end().expect(1, &["web-relay", "SIGKILL"]);
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

#[test]
fn killed_in_the_middle_no_relay_stays() {
    for (isolate, web, at) in [
        ("", web(&["limits: { delay: 1ms }"]), BY_PORT),
        ("isolate: true\n", web_apart(&["limits: { delay: 1ms }"]), BY_ADDRESS),
    ] {
        let lab = Lab::new();
        let running =
            lab.start(&run_support::plan(&[web], &load(at, &format!("  duration: 10m\n{isolate}"))), &[]);
        let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
        eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
        running.signal(Signal::KILL);
        let _ = running.end();
        eventually("the end of all of it", || lab.left_behind().is_empty().then_some(()));
    }
}

/// If the relay would be bypassed, or none is possible, the plan is refused.
#[test]
fn limits_on_links_that_cannot_be() {
    for (component, rest, says) in [
        (web(&["port: 8080", "limits: { delay: 1ms }"]), "", "clients with a fixed port number bypass it"),
        (web(&["limits: { bandwidth: 1MiB/s }"]), "", "there is no link to limit"),
        (
            web(&["port: 8080"]),
            "events: [{ at: 1s, do: packet_loss web 1% }]\n",
            "clients with a fixed port number bypass it",
        ),
        (web(&[]), "events: [{ at: 1s, do: bandwidth web 1MiB/s }]\n", "it does not have its own link"),
        (web(&["limits: { delay: 1ms, jitter: 2ms }"]), "", "`jitter` is more than `delay`"),
        (web(&["limits: { packet_loss: 1 }"]), "", "`1` is not a share such as `1%`"),
        (web(&["limits: { delay: 2m }"]), "", "a duration of a minute at most"),
    ] {
        let lab = Lab::new();
        let plan = run_support::plan(&[component], &load(BY_PORT, &format!("  requests: 1\n{rest}")));
        lab.run(&plan, &[]).expect(2, &[says]);
    }
}
