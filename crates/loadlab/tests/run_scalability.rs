//! Throughput over users, on a real server with a known capacity.

use serde_json::Value;

use crate::run_support::{Lab, component, plan};

/// Four at a time, 40 ms each: 25/s per user up to four users, 100/s beyond.
#[test]
fn a_curve_over_users_has_its_levels_its_knee_and_its_law() {
    let lab = Lab::new();
    let web = component("web", "\"slow_ms\": 40, \"at_once\": 4", &[]);
    let rest = "load:\n  users: ${case.users}\n  duration: 5s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n\
        matrix:\n  axes: { users: [1, 2, 4, 8, 16, 32] }\n";
    lab.run(&plan(&[web], rest), &["--quiet"]).expect(0, &[]);
    let report: Value = serde_json::from_str(&lab.record().report("json")).expect("a document");
    let curve = &report["scalability"][0];
    let levels = curve["levels"].as_array().unwrap_or_else(|| panic!("{curve:#}"));
    assert_eq!(
        levels.iter().map(|l| l["users"].as_u64().unwrap_or(0)).collect::<Vec<_>>(),
        [1, 2, 4, 8, 16, 32]
    );
    let goodput = |i: usize| levels[i]["goodput"][0].as_f64().expect("a rate");
    assert!(goodput(2) > 2.0 * goodput(0) && goodput(5) < 2.0 * goodput(2), "{curve:#}");
    let knee = curve["knee_users"].as_u64().unwrap_or_else(|| panic!("{curve:#}"));
    assert!((2..=16).contains(&knee), "{curve:#}");
    // a hard limit does not quite have the law's shape: the fit succeeds or is refused, and either is reported
    assert_ne!(curve["fit"].is_null(), curve["no_fit"].is_null(), "{curve:#}");
    let text = lab.record().report("text");
    assert!(text.contains("Throughput over users") && text.contains("knee"), "{text}");
}

#[test]
fn cases_that_differ_in_more_than_users_make_no_curve() {
    let lab = Lab::new();
    let rest = "load:\n  users: ${case.n}\n  requests: 40\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n\
        matrix:\n  - { name: few, n: 1, kind: a }\n  - { name: more, n: 2, kind: b }\n  - { name: most, n: 4, kind: c }\n";
    lab.run(&plan(&[component("web", "", &[])], rest), &["--quiet"]).expect(0, &[]);
    let report: Value = serde_json::from_str(&lab.record().report("json")).expect("a document");
    assert_eq!(report["scalability"], Value::Array(Vec::new()));
}
