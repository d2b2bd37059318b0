//! `warmup: auto` on a real server that warms up.

use serde_json::Value;

use crate::run_support::{Lab, component, plan};

fn load(warmup: &str) -> String {
    format!(
        "load:\n  users: 4\n  duration: 20s\n  warmup: {warmup}\n  journey: [{{ get: \"http://127.0.0.1:${{components.web.port}}/\", tags: [page], capture: {{ size: {{ header: content-length, number: true }} }} }}]\n"
    )
}

/// A run in which a warm-up was found. A machine that stalls for a moment makes the start uneven: then none is found,
/// which is correct, so there are six attempts.
fn warmed_up(warmup: &str, is_found: impl Fn(&Value) -> bool) -> (Lab, Value) {
    let text = plan(&[component("web", "\"slow_ms\": 40, \"warm_s\": 5", &[])], &load(warmup));
    let mut uneven = Vec::new();
    for _ in 0..6 {
        let lab = Lab::new();
        lab.run(&text, &["--quiet"]).expect(0, &[]);
        let summary = lab.record().summary("default", 1);
        if is_found(&summary) {
            return (lab, summary);
        }
        let each = |t: &Value| format!("{}: {} in {}", t["from_s"], t["ok"], t["response_ms"]["p50"]);
        uneven.push(lab.record().lines("default", 1, "ticks.jsonl").iter().map(each).collect::<Vec<_>>());
    }
    panic!("no warm-up in six runs: {uneven:#?}")
}

#[test]
fn a_warm_up_is_found_left_out_and_reported() {
    let from_s = |summary: &Value| summary["window"]["from_s"].as_f64().expect("a window");
    let (lab, summary) = warmed_up("auto", |summary| (3.0..=7.0).contains(&from_s(summary)));
    let from_s = from_s(&summary);
    let record = lab.record();
    let notes = record.events("default", 1, "note");
    assert!(
        notes.iter().any(|n| n["text"].as_str().is_some_and(|t| t.starts_with("warm-up detected"))),
        "{notes:?}"
    );
    // Counts cover the whole load; times, rates and captured numbers cover only the part after the warm-up, including
    // those of tags.
    let of = |path: &str| summary.pointer(path).and_then(serde_json::Value::as_u64).expect("a count");
    let (ok, timed) = (of("/requests/ok"), of("/response_ms/count"));
    assert!(timed < ok, "{summary:#}");
    assert_eq!(timed, of("/by_tag/page/response_ms/count"));
    assert_eq!(timed, of("/numbers/size/count"));
    let ticks = record.lines("default", 1, "ticks.jsonl");
    let after = ticks.iter().filter(|t| t["from_s"].as_f64().is_some_and(|s| s >= from_s - 0.05));
    assert_eq!(timed, after.filter_map(|t| t["ok"].as_u64()).sum::<u64>());
    let doubts = summary["doubts"].as_array().expect("doubts");
    assert!(doubts.iter().all(|d| d["kind"] != "warm_up"), "{doubts:?}");
    // The charts of the report leave it out as well, and mark it.
    let read = loadlab_record::store::read_run(&record.dir).expect("a record");
    let trial = &read.cases[0].trials[0];
    assert_eq!(trial.series.response_ok.count() + trial.series.response_censored.count(), timed);
    let to_s = summary["window"]["to_s"].as_f64().expect("a window");
    let in_load = || trial.ticks.iter().filter(|t| t.from_s < to_s - 0.05);
    assert!(in_load().any(|t| !t.in_window), "{:?}", trial.ticks);
    assert!(in_load().all(|t| t.in_window == (t.from_s >= from_s - 0.05)), "{:?}", trial.ticks);
}

#[test]
fn what_is_not_asked_for_stays_in_and_is_doubted() {
    let doubt_of = |summary: &Value| {
        let doubts = summary["doubts"].as_array().expect("doubts");
        doubts.iter().find(|d| d["kind"] == "warm_up").cloned()
    };
    let (_, summary) = warmed_up("0s", |summary| doubt_of(summary).is_some());
    assert_eq!(summary["window"]["from_s"], 0.0);
    assert_eq!(summary["requests"]["ok"], summary["response_ms"]["count"]);
    let doubt = doubt_of(&summary).expect("a doubt");
    assert_eq!(doubt["grave"], false);
    assert!(doubt["hint"].as_str().is_some_and(|h| h.contains("`warmup: auto`")), "{doubt}");
}

#[test]
fn no_warm_up_is_found_in_what_changes_by_plan() {
    let lab = Lab::new();
    let check = |more: &str, holds: &[&str]| {
        let text = load("auto").replace("  users: 4\n  duration: 20s\n", more);
        lab.file("plan.yaml", &plan(&[component("web", "", &[])], &text));
        lab.loadlab(&["check", "plan.yaml"]).expect(2, holds);
    };
    check(
        "  stages: [{ to: 5, over: 9s }]\n",
        &["a warm-up cannot be detected in a load with `stages`", "hint: set its length"],
    );
    check(
        "  users: 1\n  duration: 9s\n  batches: { repeat: 2 }\n",
        &["a warm-up cannot be detected in a load with `batches`"],
    );
}
