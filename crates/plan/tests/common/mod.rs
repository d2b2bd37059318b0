//! Shared test helpers: plans by name, and a short way to parse.

use loadlab_plan::{Options, Plan};

/// Plans that must be accepted.
pub const GOOD: [(&str, &str); 8] = [
    ("edges", include_str!("../plans/edges.yaml")),
    ("axes", include_str!("../plans/axes.yaml")),
    ("least", include_str!("../plans/least.yaml")),
    ("models", include_str!("../plans/models.yaml")),
    ("edge-tiers", include_str!("../../../../labs/edge-tiers/plan.yaml")),
    ("containers", include_str!("../plans/containers.yaml")),
    ("message-inserts", include_str!("../../../../labs/message-inserts/plan.yaml")),
    ("stair-stepper", include_str!("../../../../labs/stair-stepper/plan.yaml")),
];

/// The text of a plan of the table above.
pub fn plan_text(name: &str) -> &'static str {
    GOOD.iter().find(|(n, _)| *n == name).expect("a plan of the table").1
}

/// Parses a plan of the table above.
pub fn plan(name: &str, options: &Options) -> Plan {
    match Plan::parse("lab/plan.yaml", plan_text(name), options) {
        Ok(plan) => plan,
        Err(errors) => panic!("{errors}"),
    }
}

/// The mistakes in a plan, as a person sees them.
pub fn mistakes(text: &str, options: &Options) -> String {
    match Plan::parse("plan.yaml", text, options) {
        Ok(_) => "no mistake".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

/// The mistakes in a plan without options.
pub fn plain(text: &str) -> String {
    mistakes(text, &Options::default())
}

/// First lines and hints only, for tables.
pub fn briefly(text: &str, options: &Options) -> String {
    let all = mistakes(text, options);
    let kept =
        all.lines().filter(|l| l.starts_with("plan.yaml") || l.starts_with("--") || l.contains("hint:"));
    kept.collect::<Vec<_>>().join("\n")
}

/// What every plan begins with.
pub const HEAD: &str = "loadlab: 1\nname: n\n";

/// A valid load.
pub const LOAD: &str = "load: { users: 1, requests: 1, journey: [ { get: \"http://127.0.0.1:1/\" } ] }\n";
