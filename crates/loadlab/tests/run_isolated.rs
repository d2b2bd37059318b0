//! Runs in their own network namespaces: bytes per link, no port clashes, nothing left behind whatever happens. They
//! need root, as in CI; without root only the error message is tested.

use rustix::process::Signal;

use crate::run_links::ok_per_s;
use crate::run_support;
use crate::run_support::{Lab, eventually};

/// A component that runs the test server on port 8080, which others may use as well.
fn server(name: &str, ready: &str) -> String {
    run_support::component(name, "\"everywhere\": true", &["port: 8080", ready])
}

fn plan(isolate: &str, components: &[String], load: &str) -> String {
    format!("isolate: {isolate}\n{}", run_support::plan(components, load))
}

const READY: &str = "ready: { http: \"http://${address}:8080/health\" }";
/// The number of requests that [`LOAD`] sends: so many that a component's attempts to be ready, which may take seconds,
/// hardly count beside them.
const REQUESTS: u64 = 2000;
const LOAD: &str =
    "load:\n  users: 2\n  requests: 2000\n  journey: [{ get: \"http://${components.web.address}:8080/\" }]\n";
const LONG: &str =
    "load:\n  users: 2\n  duration: 10m\n  journey: [{ get: \"http://${components.web.address}:8080/\" }]\n";

/// Header bytes per packet: Ethernet, IPv4, TCP. TCP adds at most this many bytes of options.
const HEADERS: u64 = 14 + 20 + 20;
const TCP_OPTIONS: u64 = 40;
/// Upper bound in bytes on a link's own traffic: address resolution, neighbour discovery, a readiness check.
const QUIET: u64 = 20_000;

/// Network namespaces of this machine, as `lsns` would list them.
fn namespaces() -> std::collections::BTreeSet<std::path::PathBuf> {
    let pids = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    pids.filter_map(|e| std::fs::read_link(e.path().join("ns/net")).ok()).collect()
}

#[test]
fn each_component_has_its_own_link() {
    let lab = Lab::new();
    // Both have port 8080, and a program on this machine may use it as well.
    let taken = std::net::TcpListener::bind("127.0.0.1:8080");
    let text = plan("true", &[server("web", READY), server("other", READY)], LOAD);
    lab.run(&text, &[]).expect(0, &["web ready", "other ready"]);
    drop(taken);
    let samples = lab.record().lines("default", 1, "samples.jsonl");
    let last = |name: &str| samples.iter().rfind(|s| s["component"] == name).expect("samples");
    let bytes = |name: &str, key: &str| last(name)[key].as_u64().unwrap_or_else(|| panic!("{name} {key}"));
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["requests"]["ok"], REQUESTS, "{summary}");
    // Its requests came in and its answers went out, each in its own packet: known to the byte, except for TCP options.
    // The rest is packets without payload, and the traffic of the link itself and of the readiness check.
    for (way, reported) in [("net_in_bytes", "sent"), ("net_out_bytes", "received")] {
        let messages = summary["bytes"][reported].as_u64().expect("bytes");
        let (on_link, least) = (bytes("web", way), messages + REQUESTS * HEADERS);
        let most = least + REQUESTS * 3 * (HEADERS + TCP_OPTIONS) + QUIET;
        assert!((least..=most).contains(&on_link), "{way}: {on_link}, not from {least} to {most}");
    }
    let of_web = bytes("web", "net_out_bytes");
    assert!(bytes("other", "net_out_bytes") < of_web / 4, "it answered only its readiness check");
    assert!(last("loadlab")["net_out_bytes"].is_null());
}

/// Nothing is answered while it is cut off, and everything is again afterwards.
#[test]
fn a_component_is_cut_off_and_joined_again() {
    let lab = Lab::new();
    let load = "load:\n  users: 4\n  duration: 17s\n  think: 5ms\n  timeout: 500ms\n  journey: [{ get: \"http://${components.web.address}:8080/\" }]\n";
    let events = "events: [{ at: 2s, do: disconnect web }, { at: 7s, do: reconnect web }, { at: 12s, do: bandwidth web 4kB/s }]\n";
    let text = format!("{events}{}", plan("true", &[server("web", READY)], load));
    let ran = lab.run(&text, &[]);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert!(summary["failures"]["timeout"].as_u64().expect("a count") >= 4, "{summary:#}");
    let ticks = lab.record().lines("default", 1, "ticks.jsonl");
    let acted = lab.record().events("default", 1, "action");
    let at: Vec<f64> = acted.iter().filter_map(|event| event["at_s"].as_f64()).collect();
    let [off, on, slow] = at[..] else { panic!("three events: {acted:?}") };
    let between = |from_s: f64, to_s: f64| ok_per_s(&ticks, from_s, to_s);
    let (before, cut, wide, narrow) =
        (between(0.0, off), between(off, on), between(on, slow), between(slow, f64::INFINITY));
    assert_eq!(cut, 0.0, "{before} {wide} {narrow}");
    assert!(before > 100.0 && wide > 100.0, "{before} {wide}");
    // 4 kB a second carry some forty of these answers, and other packets besides.
    assert!(narrow > 0.0 && narrow < wide, "{narrow} of {wide}");
}

/// A component that lives on is reconnected for the next trial.
#[test]
fn what_an_event_cut_off_is_not_cut_off_in_the_next_trial() {
    let lab = Lab::new();
    let load = "trials: 2\nload:\n  users: 4\n  duration: 3s\n  timeout: 500ms\n  journey: [{ get: \"http://${components.web.address}:8080/\" }]\n";
    let web = server("web", &format!("{READY}\n      lifetime: experiment"));
    let text = format!("events: [{{ at: 2s, do: disconnect web }}]\n{}", plan("true", &[web], load));
    lab.run(&text, &[]).expect(0, &[]);
    for trial in [1, 2] {
        let ticks = lab.record().lines("default", trial, "ticks.jsonl");
        // Once it is cut off, nothing is answered any more.
        let is_answered = ticks.iter().any(|tick| tick["ok"].as_u64() > Some(0));
        assert!(is_answered, "trial {trial}: {ticks:#?}");
    }
}

#[test]
fn one_network_for_all_of_them() {
    let lab = Lab::new();
    let ready = "ready: { http: \"http://127.0.0.1:${port}/health\" }";
    lab.run(&plan("shared", &[run_support::component("web", "", &[ready])], run_support::LOAD), &[])
        .expect(0, &[]);
    let samples = lab.record().lines("default", 1, "samples.jsonl");
    let web = samples.iter().rfind(|s| s["component"] == "web").expect("samples");
    assert!(web["net_out_bytes"].is_null(), "whose bytes they are nobody can tell: {web}");
}

#[test]
fn ended_in_the_middle_no_namespace_stays() {
    let lab = Lab::new();
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    for signal in [Signal::INT, Signal::KILL] {
        let _ = std::fs::remove_dir_all(lab.record().dir);
        let running = lab.start(&plan("true", &[server("web", READY)], LONG), &[]);
        eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
        let link = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("a namespace");
        let events = lab.record().events("default", 1, "up");
        let (own, theirs) =
            (link(running.child.id()), link(events[0]["pid"].as_u64().expect("a pid") as u32));
        assert_ne!(own, theirs);
        running.signal(signal);
        let ended = running.end();
        if signal == Signal::INT {
            ended.expect(130, &[]);
        }
        eventually("the end of all of it", || lab.left_behind().is_empty().then_some(()));
        eventually("the end of the namespaces", || {
            let all = namespaces();
            (!all.contains(&theirs)).then_some(())
        });
    }
}
