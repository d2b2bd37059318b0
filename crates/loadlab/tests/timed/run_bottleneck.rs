//! The first bottleneck, on real processes: bottlenecks are planted, and must be named. One test at a time: the answer
//! depends on how response times spread, and on two cores eight systems would disturb each other.

use serde_json::Value;

use super::alone::alone;
use crate::run_support::{Lab, component, plan};

/// A load of this many users on the edge's `/via`, long enough to collect samples.
fn load(users: u32) -> String {
    format!(
        "load:\n  users: {users}\n  duration: 4s\n  journey: [{{ get: \"http://127.0.0.1:${{components.web.port}}/via\" }}]\n"
    )
}

/// The suspects of the only case, the most credible first.
#[track_caller]
fn suspects(components: &[String], load: &str) -> Vec<Value> {
    let lab = Lab::new();
    let ran = lab.run(&plan(components, load), &["--quiet"]);
    ran.expect(0, &[]);
    suspects_of(&lab)
}

fn suspects_of(lab: &Lab) -> Vec<Value> {
    let report: Value = serde_json::from_str(&lab.record().report("json")).expect("a document");
    let case = &report["cases"][0];
    case["suspects"].as_array().expect("suspects").clone()
}

#[track_caller]
fn first(suspects: &[Value], kind: &str, who: &str) -> String {
    let first = &suspects[0];
    assert_eq!((first["kind"].as_str(), first["who"].as_str()), (Some(kind), Some(who)), "{suspects:#?}");
    first["text"].as_str().expect("words").to_owned()
}

#[test]
fn an_edge_with_little_cpu() {
    let _alone = alone();
    let web = component(
        "web",
        "\"burn_us\": 3000, \"upstream\": \"http://127.0.0.1:${components.db.port}/\"",
        &["limits: { cpu: 10% }"],
    );
    let db = component("db", "", &[]);
    let lab = Lab::new();
    let ran = lab.run(&plan(&[db, web], &load(4)), &["--quiet"]);
    if ran.lacks_limits() {
        return;
    }
    ran.expect(0, &[]);
    let text = first(&suspects_of(&lab), "cpu_limit", "web");
    assert!(text.contains("of its CPU limit of 0.10 cores"), "{text}");
}

#[test]
fn few_that_are_passed_on_at_a_time() {
    let _alone = alone();
    // Requests are forwarded two at a time, each over its own connection, and each takes 20 ms in the database, which
    // could take any number.
    let db = component("db", "\"slow_ms\": 20", &[]);
    let web =
        component("web", "\"at_once\": 2, \"upstream\": \"http://127.0.0.1:${components.db.port}/\"", &[]);
    let text = first(&suspects(&[web, db], &load(16)), "limited_concurrency", "web");
    assert!(text.contains("of 16 requests in flight wait there"), "{text}");
}

/// The first tier waits, and is not to blame.
#[test]
fn a_lock_behind_the_first_tier() {
    let _alone = alone();
    let store = component("store", "", &[]);
    let mid = component(
        "mid",
        "\"at_once\": 1, \"slow_ms\": 5, \"upstream\": \"http://127.0.0.1:${components.store.port}/\"",
        &[],
    );
    let web = component("web", "\"upstream\": \"http://127.0.0.1:${components.mid.port}/via\"", &[]);
    let lab = Lab::new();
    let ran = lab.run(&plan(&[web, mid, store], &load(20)), &["--quiet"]);
    ran.expect(0, &[]);
    let text = first(&suspects_of(&lab), "limited_concurrency", "mid");
    assert!(text.starts_with("mid: ") && text.contains("of 20 requests in flight wait there"), "{text}");
    let summary = lab.record().summary("default", 1);
    let bottleneck = &summary["bottleneck"];
    // How often a busy machine lets the watcher look varies, and so does its confidence.
    let readings = lab.record().lines("default", 1, "evidence.jsonl");
    let readings: u64 = readings.iter().filter_map(|line| line["socket_readings"].as_u64()).sum();
    let expected = if readings > 40 { "high" } else { bottleneck["confidence"].as_str().expect("a word") };
    assert_eq!(bottleneck["confidence"], expected, "{readings} readings: {bottleneck:#}");
    let pairs = summary["pairs"].as_array().expect("pairs");
    let busy = |from: &str, to: &str| -> f64 {
        let of = |p: &&Value| p["from"] == from && p["to"] == to;
        pairs.iter().filter(of).filter_map(|p| p["busy"].as_f64()).sum()
    };
    assert!(busy("web", "mid") > 10.0 && busy("mid", "store") < 5.0, "{pairs:#?}");
}

#[test]
fn a_slow_database() {
    let _alone = alone();
    let db = component("db", "\"slow_ms\": 40", &[]);
    let web = component("web", "\"upstream\": \"http://127.0.0.1:${components.db.port}/\"", &[]);
    let text = first(&suspects(&[web, db], &load(12)), "latency", "db");
    assert!(text.starts_with("no saturated resource found: the latency is inside db"), "{text}");
}

#[test]
fn a_slow_edge_is_not_blamed_on_its_database() {
    let _alone = alone();
    let db = component("db", "", &[]);
    let web =
        component("web", "\"slow_ms\": 40, \"upstream\": \"http://127.0.0.1:${components.db.port}/\"", &[]);
    first(&suspects(&[web, db], &load(12)), "latency", "web");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a generator stopped for a known time is what is tested")]
fn a_generator_that_stalled() {
    let _alone = alone();
    use rustix::process::Signal;
    let lab = Lab::new();
    let load = "load:\n  rate: 100/s\n  duration: 6s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let mut running = lab.start(&plan(&[component("web", "", &[])], load), &[]);
    running.wait_for_output("ok  0 failed");
    running.signal(Signal::STOP);
    // The sleep is the disturbance itself, not a wait for something.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    running.signal(Signal::CONT);
    let ran = running.end();
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    let text = first(&suspects_of(&lab), "generator", "loadlab");
    assert!(text.starts_with("loadlab itself: "), "{text}");
}

#[test]
fn a_lock_in_the_only_component() {
    let _alone = alone();
    let web = component("web", "\"at_once\": 1, \"slow_ms\": 5", &[]);
    let load = "load:\n  users: 10\n  duration: 3s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let text = first(&suspects(&[web], load), "limited_concurrency", "web");
    assert!(text.contains("of 10 requests in flight wait there"), "{text}");
}

/// Each connection takes two files; the others wait to be accepted, and the server retries as fast as it can.
#[test]
fn a_server_without_an_open_file_left() {
    let _alone = alone();
    let web = component("web", "", &["limits: { open_files: 32 }"]);
    let load = "load:\n  users: 60\n  duration: 4s\n  timeout: 2s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let text = first(&suspects(&[web], load), "open_files", "web");
    assert!(text.starts_with("web ran out of file descriptors: one of its processes"), "{text}");
}
