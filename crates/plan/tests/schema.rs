//! The schema agrees with the parser.

use jsonschema::Validator;
use loadlab_plan::{Options, Plan, schema};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common;

fn validator() -> Validator {
    jsonschema::validator_for(&schema()).expect("a schema")
}

/// YAML as an editor sees it.
fn as_json(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn parses(text: &str) -> Result<(), String> {
    let mut options = Options::default();
    for reference in Plan::asks_for(text, &options) {
        options.outside.give(reference, Ok("1234567890".to_owned()));
    }
    Plan::parse("plan.yaml", text, &options).map(drop).map_err(|e| e.to_string())
}

#[test]
fn good_plans_are_good_for_both() {
    let validator = validator();
    for (name, text) in common::GOOD {
        assert_eq!(parses(text), Ok(()), "{name}");
        let errors: Vec<String> =
            validator.iter_errors(&as_json(text)).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

/// Changes to a good plan, path and value (null: remove it), that make it wrong for both.
const BROKEN: &[(&str, &str)] = &[
    ("/loadlab", r#"2"#),
    ("/name", r#"null"#),
    ("/nam", r#""x""#),
    ("/trials", r#"0"#),
    ("/trials", r#"10001"#),
    ("/trials", r#""many""#),
    ("/order", r#""random""#),
    ("/isolate", r#""sometimes""#),
    ("/events", r#"[]"#),
    ("/events", r#"[{ "do": "kill edge1" }]"#),
    ("/events", r#"[{ "at": "soon", "do": "kill edge1" }]"#),
    ("/loss", r#"{}"#),
    ("/loss", r#"{ "command": "x", "probe": "stored" }"#),
    ("/loss", r#"{ "command": "x", "json": "/a" }"#),
    ("/setup", r#"[]"#),
    ("/expect", r#""p99 < 1s""#),
    ("/drain", r#"{ "at_most": "5s" }"#),
    ("/load", r#"{ "users": 1, "requests": 1, "journey": [{ "get": "http://a/" }] }"#),
    ("/matrix", r#"[]"#),
    ("/matrix", r#"[{ "edge_cpu": 1 }]"#),
    ("/matrix", r#"{ "axes": { "a": [] } }"#),
    ("/matrix", r#"{ "axes": { "a-b": [1] } }"#),
    ("/profiles", r#"{ "a..b": 3 }"#),
    ("/system/component", r#"{}"#),
    ("/system/compose", r#"{ "env": {} }"#),
    ("/system/components/Edge", r#"{ "run": "x" }"#),
    ("/system/components/edge", r#""nginx""#),
    ("/system/components/edge/run", r#"[]"#),
    ("/system/components/edge/image", r#""redis""#),
    ("/system/components/edge/container", r#"{}"#),
    ("/system/components/edge/replicas", r#"1001"#),
    ("/system/components/edge/port", r#"0"#),
    ("/system/components/edge/port", r#""any""#),
    ("/system/components/edge/lifetime", r#""never""#),
    ("/system/components/edge/limits/cpu", r#""lots""#),
    ("/system/components/edge/limits/cpu", r#"0"#),
    ("/system/components/edge/limits/memory", r#""15 furlongs""#),
    ("/system/components/edge/limits/pids", r#"0"#),
    ("/system/components/edge/limits/io", r#"1"#),
    ("/system/components/edge/limits/network", r#""1MiB""#),
    ("/system/components/edge/limits/delay", r#"40"#),
    ("/system/components/edge/limits/loss", r#"0.5"#),
    ("/system/components/edge/limits", r#"{ "jitter": "3ms" }"#),
    ("/system/components/edge/limits/block_read", r#""1MiB""#),
    ("/system/components/edge/limits", r#"{ "memory_swap": "30MiB" }"#),
    ("/system/components/load-balancer/ready", r#"{ "timeout": "3s" }"#),
    ("/system/components/load-balancer/ready/tcp", r#""127.0.0.1:1""#),
    ("/system/components/load-balancer/ready/within", r#"10"#),
    ("/system/components/backend/stop/signal", r#""SIGTERM""#),
    ("/system/components/backend/env", r#"["A=1"]"#),
    ("/system/probes/stored", r#"{ "http": "http://a/" }"#),
    ("/system/probes/stored", r#"{ "redis": "127.0.0.1:1" }"#),
    ("/system/probes/stored", r#"{ "command": "x", "json": "/a" }"#),
    ("/system/probes/stored", r#"{ "log": "edge1" }"#),
    ("/system/samples", r#""3/s""#),
    ("/system/probes/stored-rows", r#"{ "http": "http://a/", "json": "/a" }"#),
    ("/system/seed", r#"{}"#),
    ("/loads/browse/users", r#"0"#),
    ("/loads/browse/users", r#"1.5"#),
    ("/loads/browse/rate", r#""10/s""#),
    ("/loads/browse/requests", r#"5"#),
    ("/loads/browse/duration", r#""1""#),
    ("/loads/browse/duration", r#"10"#),
    ("/loads/browse/duration", r#"null"#),
    ("/loads/browse/think", r#""fast""#),
    ("/loads/browse/think", r#"{ "uniform": ["1s"] }"#),
    ("/loads/browse/think", r#"{ "uniform": ["1s", "2s"], "exponential": "1s" }"#),
    ("/loads/browse/think", r#"{ "normal": "1s" }"#),
    ("/loads/browse/stages", r#"[{ "to": 5, "over": "1s" }]"#),
    ("/loads/browse/start", r#""soon""#),
    ("/loads/trickle/think", r#""1s""#),
    ("/loads/browse/arrivals", r#""poisson""#),
    ("/loads/browse/max_in_flight", r#"5"#),
    ("/loads/browse/journey", r#"[]"#),
    ("/loads/browse/journey/0/get", r#"["http://a/"]"#),
    ("/loads/browse/journey/0/post", r#""http://a/""#),
    ("/loads/browse/journey/0/tags", r#""page""#),
    ("/loads/browse/journey/0/check", r#"{}"#),
    ("/loads/browse/journey/0/check/status", r#"[]"#),
    ("/loads/browse/journey/0/check/status", r#"99"#),
    ("/loads/browse/journey/0/check/body", r#""x""#),
    ("/loads/browse/journey/0/headers", r#"{ "a b": "c" }"#),
    ("/loads/browse/journey/0/capture", r#"{ "x": {} }"#),
    ("/loads/browse/journey/1/body", r#"{}"#),
    ("/loads/browse/journey/1/body/file", r#""x""#),
    ("/loads/browse/batches", r#"{ "pause": "1s" }"#),
    ("/loads/browse/keep_alive", r#""yes""#),
    ("/loads/trickle/pace", r#""1s""#),
    ("/loads/trickle/rate", r#"0"#),
    ("/loads/trickle/rate", r#""fast""#),
    ("/loads/trickle/when_behind", r#""cry""#),
    ("/loads/Trickle", r#"{}"#),
    ("/loads", r#"[]"#),
];

/// As [`BROKEN`], for the plan with containers and the like.
const BROKEN_CONTAINERS: &[(&str, &str)] = &[
    ("/system/components/web/container/image", r#""x""#),
    ("/system/components/db/container/image", r#"null"#),
    ("/system/components/db/container/port", r#"0"#),
    ("/system/components/db/container/health", r#"{ "every": "1s" }"#),
    ("/system/components/db/container/pull", r#"true"#),
    ("/system/components/db/run", r#""x""#),
    ("/system/components/cart/compose", r#"{}"#),
    ("/system/components/queue/external", r#"{}"#),
    ("/system/components/queue/external/pid", r#"7"#),
    ("/system/components/queue/external", r#"{ "pid": 7, "match": { "a": "b" } }"#),
    ("/system/compose/lifetime", r#""never""#),
];

/// As [`BROKEN`], for the plan with stages.
const BROKEN_STAGES: &[(&str, &str)] = &[
    ("/loads/visitors/stages", r#"[]"#),
    ("/loads/visitors/stages", r#"5"#),
    ("/loads/visitors/stages/0/to", r#"-1"#),
    ("/loads/visitors/stages/0/to", r#"1.5"#),
    ("/loads/visitors/stages/0/to", r#""many""#),
    ("/loads/visitors/stages/0/to", r#"10000001"#),
    ("/loads/visitors/stages/0/hold", r#""1s""#),
    ("/loads/visitors/stages/1/over", r#""1s""#),
    ("/loads/visitors/stages/1/hold", r#"30"#),
    ("/loads/visitors/stages/1", r#"{}"#),
    ("/loads/visitors/stages/1", r#"{ "from": 5 }"#),
    ("/loads/visitors/users", r#"5"#),
    ("/loads/visitors/duration", r#""5s""#),
    ("/loads/visitors/requests", r#"5"#),
    ("/loads/robots/rate", r#""5/s""#),
    ("/loads/readers/stages", r#"[{ "to": 5, "over": "1s" }]"#),
];

#[test]
fn broken_plans_are_refused_by_both() {
    let validator = validator();
    let base = as_json(common::GOOD[0].1);
    let staged = as_json(common::plan_text("models"));
    let containers = as_json(common::plan_text("containers"));
    let broken = BROKEN.iter().map(|b| (&base, b)).chain(BROKEN_STAGES.iter().map(|b| (&staged, b)));
    let broken = broken.chain(BROKEN_CONTAINERS.iter().map(|b| (&containers, b)));
    for (base, (path, value)) in broken {
        let value: Value = serde_json::from_str(value).expect("JSON");
        let mut broken = base.clone();
        put(&mut broken, path, value.clone());
        // JSON is YAML.
        let text = broken.to_string();
        assert!(parses(&text).is_err(), "the parser takes {path}: {value}");
        assert!(!validator.is_valid(&broken), "the schema takes {path}: {value}");
    }
}

/// Sets or removes (null) a value.
fn put(root: &mut Value, path: &str, value: Value) {
    let (parent, key) = path.rsplit_once('/').expect("a path");
    let parent = root.pointer_mut(parent).expect("a parent in the plan");
    if value.is_null() {
        parent.as_object_mut().expect("a map").remove(key);
    } else if parent.is_array() {
        parent[key.parse::<usize>().expect("an item's number")] = value;
    } else {
        parent[key] = value;
    }
}

#[test]
fn every_key_is_in_the_reference() {
    let reference = include_str!("../../../docs/plan.md");
    let schema = schema();
    let mut sections = vec![&schema];
    sections.extend(schema["$defs"].as_object().expect("sections").values());
    for section in sections {
        for key in section["properties"].as_object().expect("keys").keys() {
            assert!(reference.contains(&format!("`{key}`")), "docs/plan.md does not say `{key}`");
        }
    }
}

/// The examples of the reference and of other pages are plans, or parts that make one.
#[test]
fn examples_of_the_reference_are_right() {
    let reference = [
        include_str!("../../../docs/plan.md"),
        include_str!("../../../docs/how-to/secrets.md"),
        include_str!("../../../docs/systems.md"),
        include_str!("../../../docs/test-types.md"),
        include_str!("../../../docs/coming-from/locust.md"),
    ]
    .concat();
    let mut plans = 0;
    for block in reference.split("```yaml\n").skip(1) {
        let block = block.split("```").next().unwrap_or("");
        let mut text = block.to_owned();
        for (key, line) in [
            ("loadlab:", "loadlab: 1\n"),
            ("name:", "name: example\n"),
            ("load", "load: { users: 1, duration: 1m, journey: [ { get: \"http://127.0.0.1:8080/\" } ] }\n"),
        ] {
            if !block.lines().any(|l| {
                l.starts_with(key) && (key != "load" || l.starts_with("load:") || l.starts_with("loads:"))
            }) {
                text.insert_str(0, line);
            }
        }
        assert_eq!(parses(&text), Ok(()), "{text}");
        assert!(validator().is_valid(&as_json(&text)), "{text}");
        plans += 1;
    }
    assert!(plans >= 5, "the reference has examples");
}

/// Values that might occur anywhere.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!(["a"])),
        Just(json!({ "name": "a" })),
        any::<i32>().prop_map(|n| json!(n)),
        (0u32..200).prop_map(|n| json!(n)),
        (0.0f64..10.0).prop_map(|n| json!(n)),
        "[0-9]{1,3}(ms|s|m|%|MiB|/s|)".prop_map(|s| json!(s)),
        "[a-z]{0,8}".prop_map(|s| json!(s)),
        prop::sample::select(vec![
            "none",
            "auto",
            "poisson",
            "drop",
            "trial",
            "0s",
            "${case.edge_cpu}",
            "${env.VALUE}",
            "${public:file:value}",
            "http://a/"
        ])
        .prop_map(|s| json!(s)),
    ]
}

/// Every path of a plan.
fn paths(value: &Value, at: String, out: &mut Vec<String>) {
    if !at.is_empty() {
        out.push(at.clone());
    }
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| paths(v, format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), out)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| paths(v, format!("{at}/{i}"), out)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever the parser accepts, the schema accepts.
    #[test]
    fn accepted_plans_validate(which in 0usize..common::GOOD.len(), changes in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 1..3)) {
        thread_local!(static VALIDATOR: Validator = validator());
        let mut plan = as_json(common::GOOD[which].1);
        for (index, value) in changes {
            let mut all = Vec::new();
            paths(&plan, String::new(), &mut all);
            let path = &all[index.index(all.len())];
            if let Some(place) = plan.pointer_mut(path) {
                *place = value;
            }
        }
        let text = plan.to_string();
        if parses(&text).is_ok() {
            VALIDATOR.with(|v| {
                let errors: Vec<String> = v.iter_errors(&plan).map(|e| format!("{}: {e}", e.instance_path())).collect();
                prop_assert!(errors.is_empty(), "{errors:?}\n{text}");
                Ok(())
            })?;
        }
    }
}
