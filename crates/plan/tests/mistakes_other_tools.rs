//! Keys that other load generators have: each is refused with what to write instead.

use loadlab_plan::Options;

use crate::common::{HEAD, LOAD, briefly};

/// A plan with an unknown key in one of its maps.
fn plan_with(section: &str, key: &str) -> String {
    let step = |inside: &str| {
        format!(
            "load: {{ users: 1, requests: 1, journey: [ {{ get: \"http://127.0.0.1:1/\", {inside} }} ] }}\n"
        )
    };
    let system =
        |inside: &str| format!("{LOAD}system: {{ components: {{ web: {{ run: x, {inside} }} }} }}\n");
    let rest = match section {
        "plan" => format!("{LOAD}{key}: 1\n"),
        "load" => LOAD.replacen("{ users", &format!("{{ {key}: 1, users"), 1),
        "stage" => {
            LOAD.replacen("users: 1, requests: 1", &format!("stages: [ {{ to: 5, over: 1s, {key}: 1 }} ]"), 1)
        }
        "step" => step(&format!("{key}: 1")),
        "check" => step(&format!("check: {{ {key}: 1 }}")),
        "capture" => step(&format!("capture: {{ id: {{ {key}: 1 }} }}")),
        "component" => system(&format!("{key}: 1")),
        "limits" => system(&format!("limits: {{ {key}: 1 }}")),
        "ready" => system(&format!("ready: {{ {key}: 1 }}")),
        "drain" => format!("{LOAD}drain: {{ until: \"ok > 1\", {key}: 1 }}\n"),
        "matrix" => format!("{LOAD}matrix: {{ {key}: 1 }}\n"),
        other => panic!("{other}"),
    };
    format!("{HEAD}{rest}")
}

#[test]
fn keys_of_other_tools_are_hinted() {
    for (section, key, meant) in [
        ("plan", "scenarios", "`loads`"),
        ("plan", "thresholds", "`expect: ["),
        ("plan", "assert", "`expect: ["),
        ("plan", "slo", "`expect: ["),
        ("plan", "vus", "`load: { users: 10"),
        ("plan", "users", "`load: { users: 10"),
        ("plan", "duration", "`load: { users: 10"),
        ("plan", "iterations", "`load: { users: 10"),
        ("plan", "stages", "`load: { users: 10"),
        ("plan", "url", "`journey: [{ get:"),
        ("plan", "steps", "`journey: [{ get:"),
        ("plan", "services", "`system: { components"),
        ("plan", "probes", "key of `system`"),
        ("plan", "env", "`${env.NAME}`"),
        ("plan", "repeat", "`trials`"),
        ("plan", "options", "keys of the plan itself"),
        ("load", "vus", "`users`"),
        ("load", "concurrency", "`users`"),
        ("load", "clients", "`users`"),
        ("load", "rps", "`rate: 1000/s`"),
        ("load", "qps", "`rate: 1000/s`"),
        ("load", "arrivalRate", "`rate: 1000/s`"),
        ("load", "iterations", "`requests` ends"),
        ("load", "loops", "`repeats` after"),
        ("load", "run-time", "`duration`"),
        ("load", "ramp_up", "`ramp: 30s`"),
        ("load", "rampUp", "`ramp: 30s`"),
        ("load", "spawn_rate", "`ramp: 30s`"),
        ("load", "phases", "`stages: ["),
        ("load", "think_time", "`think: 1s`"),
        ("load", "sleep", "`think: 1s`"),
        ("load", "wait_time", "`think: 1s`"),
        ("load", "pacing", "`pace`"),
        ("load", "steps", "`journey`"),
        ("load", "scenario", "`journey`"),
        ("load", "url", "`journey: [{ get:"),
        ("load", "headers", "key of a step"),
        ("load", "expect", "top of the plan"),
        ("load", "keepalive", "`keep_alive: true`"),
        ("load", "insecure", "`tls: { insecure: true }`"),
        ("load", "http2", "`protocol: http/2`"),
        ("load", "csv", "`feeds:"),
        ("load", "on_start", "`user_setup`"),
        ("load", "startTime", "`start: 10s`"),
        ("load", "gracefulStop", "`grace`"),
        ("load", "preAllocatedVUs", "`max_in_flight`"),
        ("stage", "target", "`to`"),
        ("stage", "duration", "`over`"),
        ("step", "url", "`get: http"),
        ("step", "method", "the key of the URL"),
        ("step", "expect", "`check: { status: 200 }`"),
        ("step", "assert", "`check: { status: 200 }`"),
        ("step", "extract", "`capture:"),
        ("step", "json", "`body: { json:"),
        ("step", "header", "`headers:"),
        ("step", "name", "`tags: [login]`"),
        ("step", "sleep", "`think` of the load"),
        ("step", "params", "part of the URL"),
        ("step", "token", "`auth:"),
        ("step", "probability", "`weight`"),
        ("step", "timeout", "key of the load"),
        ("check", "status_code", "`status: 200`"),
        ("check", "body", "`contains`"),
        ("check", "jsonpath", "by JSON pointer"),
        ("check", "duration", "`time: \"< 200ms\"`"),
        ("component", "command", "`run`"),
        ("component", "image", "`container: { image"),
        ("component", "environment", "`env`"),
        ("component", "healthcheck", "`ready:"),
        ("component", "memory", "`limits:"),
        ("component", "scale", "`replicas`"),
        ("component", "cwd", "`dir`"),
        ("component", "pid", "`external: { pid"),
        ("component", "depends_on", "in the order of the plan"),
        ("limits", "mem", "`memory`"),
        ("limits", "cores", "`cpu`"),
        ("ready", "url", "`http`"),
        ("ready", "port", "`tcp:"),
        ("drain", "timeout", "`at_most`"),
        ("capture", "jsonpath", "JSON pointer"),
        ("matrix", "vary", "`axes"),
    ] {
        let all = briefly(&plan_with(section, key), &Options::default());
        assert!(all.contains(&format!("unknown key `{key}`")), "{section}.{key}: {all}");
        let hint = all.lines().find(|line| line.contains("hint:")).unwrap_or_default();
        assert!(hint.contains(meant), "{section}.{key}: {all}");
    }
}

#[test]
fn counts_with_a_letter_are_written_out() {
    let plan = format!("{HEAD}{}", LOAD.replacen("users: 1", "users: 10k", 1));
    let all = briefly(&plan, &Options::default());
    assert!(all.contains("`10k` is not a whole number") && all.contains("hint: write `10000`"), "{all}");
}
