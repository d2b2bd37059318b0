//! Other load generators' keys for what a plan expresses differently: hints for unknown keys. A key that the section
//! has is never looked up.

use crate::keys::shape::Section;

/// Sections (their `id`; none: everywhere), the words, and what to write instead.
const WORDS: &[(&[&str], &[&str], &str)] = &[
    // At the top of a plan.
    (&["plan"], &["scenarios", "executors", "tests"], "several loads by name are `loads`, one is `load`"),
    (
        &["plan"],
        &[
            "thresholds",
            "assert",
            "assertions",
            "ensure",
            "slo",
            "slos",
            "criteria",
            "pass_if",
            "expectations",
        ],
        "what must hold is `expect`, a list of conditions: `expect: [\"p99 < 200ms\"]`",
    ),
    (
        &["plan"],
        &[
            "vus",
            "users",
            "rate",
            "duration",
            "iterations",
            "stages",
            "concurrency",
            "threads",
            "think_time",
            "rps",
            "qps",
        ],
        "the load is set in `load`: `load: { users: 10, duration: 30s, journey: [ … ] }`",
    ),
    (
        &["plan"],
        &[
            "url", "urls", "get", "post", "target", "targets", "base_url", "requests", "steps", "journey",
            "flow", "host",
        ],
        "what is sent is the `journey` of `load`: `journey: [{ get: http://127.0.0.1:8080/ }]`",
    ),
    (
        &["plan"],
        &["services", "components", "containers"],
        "components are in `system`: `system: { components: { … } }`",
    ),
    (&["plan"], &["probes", "seed", "compose", "before_trial", "after_trial"], "it is a key of `system`"),
    (
        &["plan"],
        &["variables", "vars", "env", "params", "parameters"],
        "values that vary are axes of `matrix`, used as `${case.NAME}`; variables of the environment are `${env.NAME}`",
    ),
    (
        &["plan"],
        &["repetitions", "runs", "rounds", "repeat", "repeats"],
        "how often each case is repeated is `trials`",
    ),
    (
        &["plan"],
        &["options", "config"],
        "options are keys of the plan itself, such as `trials`, and of `load`",
    ),
    // How much is sent.
    (
        &["load"],
        &[
            "vus",
            "concurrency",
            "connections",
            "clients",
            "virtual_users",
            "user_count",
            "workers",
            "max_vus",
            "num_users",
            "u",
        ],
        "concurrent users are `users`",
    ),
    (
        &["load"],
        &[
            "rps",
            "qps",
            "tps",
            "arrival_rate",
            "requests_per_second",
            "req_rate",
            "throughput",
            "constant_arrival_rate",
        ],
        "requests per second are `rate`, as in `rate: 1000/s`",
    ),
    (
        &["load"],
        &["iterations", "loops", "max_iterations", "iteration_count"],
        "`requests` ends the load after that many requests in all, `repeats` after that many rounds by every user",
    ),
    (&["load"], &["loop_count"], "`repeats` ends the load after that many rounds by every user"),
    (
        &["load"],
        &["run_time", "length", "time", "hold_for", "hold"],
        "how long requests fall due is `duration`",
    ),
    (
        &["load"],
        &["ramp_up", "rampup", "ramp_time", "ramp_to", "spawn_rate", "ramping", "hatch_rate"],
        "users start evenly over `ramp`, as in `ramp: 30s`; for several levels use `stages`",
    ),
    (
        &["load"],
        &["phases", "steps_of_load", "schedule", "profile", "pattern"],
        "a number of users or a rate that changes is `stages`, as in `stages: [{ to: 100, over: 30s }, { hold: 1m }]`",
    ),
    (
        &["load"],
        &["think_time", "wait_time", "wait", "sleep", "pause", "delay"],
        "a user's pause after a response is `think`, as in `think: 1s`",
    ),
    (&["load"], &["pacing", "constant_pacing", "cycle"], "a fixed interval between a user's steps is `pace`"),
    (
        &["load"],
        &["steps", "flow", "scenario", "tasks", "requests_list", "script", "exec"],
        "what a user does is `journey`, a list of steps",
    ),
    (
        &["load"],
        &["url", "urls", "target", "targets", "get", "post", "base_url", "host", "method"],
        "what is sent is a step of `journey`, as in `journey: [{ get: http://127.0.0.1:8080/ }]`",
    ),
    (
        &["load"],
        &["expect", "thresholds", "assert", "assertions"],
        "what must hold is `expect` at the top of the plan",
    ),
    (
        &["load"],
        &["warm_up", "warmup_time", "warm_up_time"],
        "the first part that figures leave out is `warmup`",
    ),
    (
        &["load"],
        &["keepalive", "reuse_connections", "no_connection_reuse", "disable_keepalive"],
        "reusing connections is `keep_alive: true` (default) or `false`",
    ),
    (
        &["load"],
        &["insecure_skip_tls_verify", "insecure", "verify_ssl", "cacert"],
        "trust is `tls`, as in `tls: { insecure: true }` or `tls: { ca: ca.pem }`",
    ),
    (&["load"], &["http2", "h2", "http_version"], "the HTTP version is `protocol`, as in `protocol: http/2`"),
    (
        &["load"],
        &["data", "csv", "dataset", "feeder", "feed"],
        "rows of data are `feeds`, as in `feeds: { people: { file: people.csv } }`",
    ),
    (
        &["load"],
        &["on_start", "before", "login"],
        "steps of each user before its first journey are `user_setup`",
    ),
    (&["load"], &["on_stop", "teardown"], "steps of each user after its last journey are `user_teardown`"),
    (&["load"], &["start_time", "start_after"], "when a load begins is `start`, as in `start: 10s`"),
    (
        &["load"],
        &["graceful_stop", "graceful_ramp_down"],
        "how long requests in flight may still take is `grace`",
    ),
    (
        &["load"],
        &["pre_allocated_vus", "max_concurrency", "max_workers"],
        "the most requests of a rate at a time is `max_in_flight`",
    ),
    // Stages.
    (
        &["stage"],
        &["target", "users", "rate", "arrival_rate", "level"],
        "the level at the end of a stage is `to`: users (`100`) or a rate (`100/s`)",
    ),
    (
        &["stage"],
        &["duration", "time", "for"],
        "how long a stage takes to reach `to` is `over`; a stage that stays at its level is `hold: 1m`",
    ),
    // Steps.
    (
        &["step"],
        &["url", "uri", "request", "http", "path"],
        "the method is the key: `get: http://…`, `post: http://…`",
    ),
    (
        &["step"],
        &["method"],
        "the method is the key of the URL: `get`, `post`, `put`, `delete`, `patch`, `head` or `options`",
    ),
    (
        &["step"],
        &[
            "expect",
            "assert",
            "asserts",
            "assertions",
            "checks",
            "validate",
            "expect_status",
            "status",
            "response",
        ],
        "when a response counts as ok is `check`, as in `check: { status: 200 }`",
    ),
    (
        &["step"],
        &["extract", "save", "store", "set", "extractors", "captures"],
        "values taken from a response are `capture`, as in `capture: { token: { json: /token } }`",
    ),
    (
        &["step"],
        &["json", "data", "payload", "content"],
        "what is sent is `body`, as in `body: { json: { name: x } }`",
    ),
    (&["step"], &["header"], "header fields are `headers`, as in `headers: { accept: text/plain }`"),
    (
        &["step"],
        &["tag", "name", "label", "group", "id"],
        "series of a step are `tags`, as in `tags: [login]`",
    ),
    (
        &["step"],
        &["think", "think_time", "sleep", "wait", "pause", "delay"],
        "a user's pause after a response is `think` of the load",
    ),
    (&["step"], &["params", "query", "qs"], "a query is part of the URL: `get: http://…/?q=1`"),
    (
        &["step"],
        &["bearer", "basic", "token", "authorization"],
        "credentials are `auth`, as in `auth: { bearer: \"${token}\" }`",
    ),
    (
        &["step"],
        &["ratio", "probability", "percent"],
        "how often a step is taken compared with others is `weight`",
    ),
    (
        &["step"],
        &["cookies", "timeout", "redirects", "follow_redirects"],
        "it is a key of the load, for all its steps",
    ),
    // Checks.
    (&["check"], &["status_code", "code", "status_is"], "the status is `status`, as in `status: 200`"),
    (
        &["check"],
        &["body", "text", "body_contains", "matches", "substring"],
        "a text that the body must contain is `contains`",
    ),
    (
        &["check"],
        &["jsonpath", "json_path"],
        "values in the body are `json`, by JSON pointer: `json: { /id: 5 }`",
    ),
    (
        &["check"],
        &["duration", "max_time", "response_time", "latency", "under"],
        "the time is `time`, as in `time: \"< 200ms\"`",
    ),
    (&["check"], &["headers"], "header fields are `header`, as in `header: { content-type: text/html }`"),
    // Components.
    (&["component"], &["command", "cmd", "exec", "start", "entrypoint"], "what starts a process is `run`"),
    (&["component"], &["image"], "a container is `container: { image: … }`"),
    (&["component"], &["environment", "env_vars"], "environment variables are `env`"),
    (
        &["component"],
        &["healthcheck", "health", "wait_for", "ready_when", "readiness"],
        "when it is up is `ready`, as in `ready: { http: \"http://127.0.0.1:${port}/health\" }`",
    ),
    (
        &["component"],
        &["cpu", "cpus", "memory", "mem_limit", "mem", "resources"],
        "limits are `limits`, as in `limits: { cpu: 50%, memory: 64MiB }`",
    ),
    (&["component"], &["count", "scale", "instances"], "how many instances run is `replicas`"),
    (&["component"], &["working_dir", "workdir", "cwd"], "where it runs is `dir`"),
    (
        &["component"],
        &["pid", "cgroup"],
        "something that runs already is `external`, as in `external: { pid: 123 }`",
    ),
    (
        &["component"],
        &["depends_on"],
        "components start in the order of the plan, each once the one before is ready",
    ),
    (&["limits"], &["mem", "ram", "memory_limit", "mem_limit"], "the memory limit is `memory`"),
    (&["limits"], &["cpu_quota", "cores"], "the CPU limit is `cpu`: `50%` of a core, or `1.5` cores"),
    (&["ready"], &["url", "get"], "a URL that must answer is `http`"),
    (&["ready"], &["port", "connect"], "a port that must accept is `tcp: \"127.0.0.1:${port}\"`"),
    (&["drain"], &["timeout", "max", "for"], "the longest wait is `at_most`"),
    (
        &["capture"],
        &["jsonpath", "json_path", "path"],
        "a value of the JSON body is `json`, a JSON pointer such as `/token`",
    ),
    (
        &["matrix"],
        &["vary", "parameters", "combinations"],
        "values that vary are `axes`, as in `axes: { users: [10, 50] }`",
    ),
];

/// What to write instead of a key that other tools have and this section does not.
pub(crate) fn hint(section: &Section, key: &str) -> Option<&'static str> {
    let plain = snake(key);
    let found =
        WORDS.iter().find(|(ids, words, _)| ids.contains(&section.id) && words.contains(&plain.as_str()));
    found.map(|(.., hint)| *hint)
}

/// `thinkTime` and `think-time` as `think_time`.
fn snake(key: &str) -> String {
    let (mut out, mut before) = (String::new(), ' ');
    for c in key.chars().take(64) {
        if c.is_ascii_uppercase() && before.is_ascii_lowercase() {
            out.push('_');
        }
        out.push(if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() });
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SECTIONS;

    #[test]
    fn words_are_no_keys_and_have_one_meaning() {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (ids, words, hint) in WORDS {
            for id in *ids {
                let section = SECTIONS.iter().find(|s| s.id == *id).unwrap();
                for word in *words {
                    assert!(section.key(word).is_none(), "{id}.{word} is a key");
                    assert!(!seen.contains(&(id, word)), "{id}.{word} twice");
                    assert_eq!(snake(word), **word);
                    seen.push((id, word));
                    assert!(
                        hint.contains('`') || hint.contains("key of the load") || hint.contains("order"),
                        "{hint}"
                    );
                }
            }
        }
    }

    #[test]
    fn spellings() {
        for (typed, expect) in
            [("thinkTime", "think_time"), ("think-time", "think_time"), ("VUs", "vus"), ("rampUp", "ramp_up")]
        {
            assert_eq!(snake(typed), expect);
        }
    }
}
