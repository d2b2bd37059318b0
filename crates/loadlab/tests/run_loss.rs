//! Loss counts when more than one trial asks for them: no two trials may use the same ids.

use serde_json::Value;

use crate::run_support::{Lab, component, plan};

/// Ids of a trial's requests, as inclusive ranges.
fn ids(lines: &[Value]) -> Vec<(u64, u64)> {
    let number = |v: &Value| v.as_u64().expect("an id is a number");
    let ranges = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let kinds = lines.iter().flat_map(|line| ["accepted", "unanswered", "refused"].map(|kind| &line[kind]));
    kinds.flat_map(ranges).map(|range| (number(&range[0]), number(&range[1]))).collect()
}

#[test]
fn a_repeated_trial_has_its_own_ids() {
    let lab = Lab::new();
    let web = component("web", "\"slow_ms\": 5", &[]);
    let load = "load:\n  users: 1\n  duration: 1s\n  journey: [{ post: \"http://127.0.0.1:${components.web.port}/items/${unique}\" }]\n";
    let loss = "durability: { http: \"http://127.0.0.1:${components.web.port}/ids\", json: /ids }\n";
    lab.file("plan.yaml", &plan(&[web], &format!("{load}{loss}")));
    // A short trial has too few requests to decide, however fast they are: it is repeated with a longer duration.
    let args = ["--expect", "p99 < max", "--users", "1..1", "--level-duration", "300ms", "--settle", "0s"];
    let out = lab.run_name();
    let ran = lab.loadlab(&[&["find", "plan.yaml", "--out", &out], &args[..]].concat());
    assert!(ran.err.contains("measuring 1 user again"), "{}", ran.err);
    // Whether it holds, is undecided or is in doubt depends on how fast this machine is.
    assert!([Some(0), Some(4), Some(6)].contains(&ran.code), "{:?}: {}", ran.code, ran.err);
    assert_eq!(lab.left_behind(), Vec::<String>::new());
    let record = lab.record();
    let trials: Vec<u32> = (1..).take_while(|trial| record.trial("users-1", *trial).exists()).collect();
    assert!(trials.len() > 1, "{}", ran.err);
    let mut all = Vec::new();
    for trial in &trials {
        let own = ids(&record.lines("users-1", *trial, "ids.jsonl"));
        assert!(!own.is_empty());
        all.extend(own.into_iter().map(|range| (range, *trial)));
        let loss = &record.summary("users-1", *trial)["loss"];
        assert_eq!((&loss["lost_max"], &loss["doubled"]), (&Value::from(0), &Value::from(0)), "{trial}");
    }
    all.sort_unstable();
    for pair in all.windows(2) {
        let [((_, to), _), ((from, _), _)] = pair else { continue };
        assert!(to < from, "the same ids twice: {pair:?}");
    }
}
