//! Wrong plans, and the messages people get.

use loadlab_plan::{Options, Plan, Revision};

use crate::common::{HEAD, LOAD, briefly, plain};

/// The mistakes in a load.
fn load(inside: &str) -> String {
    briefly(&format!("{HEAD}load:\n{inside}"), &Options::default())
}

/// The mistakes in a component.
fn component(inside: &str) -> String {
    briefly(&format!("{HEAD}{LOAD}system:\n  components:\n    db:\n{inside}"), &Options::default())
}

#[test]
fn everything_at_once() {
    let all = plain(include_str!("plans/broken.yaml"));
    assert_eq!(format!("{all}\n"), include_str!("plans/broken.txt"));
}

#[test]
fn mistakes_in_matrix_values_show_where_they_are_written_and_used() {
    insta::assert_snapshot!(plain(
        r#"loadlab: 1
name: edges
system:
  components:
    edge: { run: nginx, limits: { cpu: "${case.cpu}" } }
load: { users: "${case.userz}", duration: 1s, journey: [ { get: "http://127.0.0.1/" } ] }
matrix:
  - { name: control, cpu: none, users: 10 }
  - { name: small, cpu: "-1%", users: 10 }
"#
    ), @r#"
    plan.yaml:6:19: unknown name `${case.userz}`
       |
     6 | load: { users: "${case.userz}", duration: 1s, journey: [ { get: "http://127.0.0.1/" } ] }
       |                   ^^^^^^^^^^
      hint: did you mean `${case.users}`?

    plan.yaml:9:25: `-1%` is not a CPU limit such as `1%` (of one core), `50%` or `0.5` (cores)
       |
     9 |   - { name: small, cpu: "-1%", users: 10 }
       |                         ^^^^^
      used here, in case `small`: plan.yaml:5:40
       |
     5 |     edge: { run: nginx, limits: { cpu: "${case.cpu}" } }
       |                                        ^^^^^^^^^^^^^
      hint: `none` for no limit
    "#);
}

#[test]
fn the_file_itself() {
    for (text, expect) in [("", "found nothing"), ("hello", "found `hello`"), ("[1, 2]", "found a list")] {
        assert!(plain(text).starts_with("plan.yaml:1:1: expected a plan"), "{}", plain(text));
        assert!(plain(text).contains(expect), "{}", plain(text));
    }
    insta::assert_snapshot!(plain("{}"), @r"
    plan.yaml:1:1: the plan needs one of `load`, `loads`
       |
     1 | {}
       | ^
      hint: `load` is for one load, `loads` for several by name

    plan.yaml:1:1: the plan needs `loadlab`
       |
     1 | {}
       | ^
      hint: version of the plan language; always 1

    plan.yaml:1:1: the plan needs `name`
       |
     1 | {}
       | ^
      hint: what the experiment is called, in reports and in the name of the run's folder
    ");
    insta::assert_snapshot!(plain(&format!("{HEAD}{LOAD}name: again\n")), @r"
    plan.yaml:4:1: `name` appears twice in this map
       |
     4 | name: again
       | ^^^^
      hint: remove one of the two
    ");
    insta::assert_snapshot!(plain(&format!("{HEAD}{LOAD}loads: {{}}\n")), @r#"
    plan.yaml:4:1: `load` and `loads` cannot be combined
       |
     4 | loads: {}
       | ^^^^^
      `load` is here: plan.yaml:3:1
       |
     3 | load: { users: 1, requests: 1, journey: [ { get: "http://127.0.0.1:1/" } ] }
       | ^^^^
      hint: `load` is for one load, `loads` for several by name

    plan.yaml:4:1: `loads` is empty
       |
     4 | loads: {}
       | ^^^^^
    "#);
}

#[test]
fn loads() {
    const J: &str = "  journey: [ { get: \"http://127.0.0.1:1/\" } ]\n";
    insta::assert_snapshot!(load(J), @r"
    plan.yaml:3:1: a load needs one of `users`, `rate`, `stages`, `sessions`, `command`
      hint: a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, and a `command` makes its own load
    plan.yaml:3:1: a load needs one of `duration`, `requests`, `repeats`, `stages`, `command`
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    ");
    insta::assert_snapshot!(load(&format!("  users: 0\n  duration: 0s\n{J}")), @r"
    plan.yaml:4:10: `users` is 0; it must be from 1 to 10000000
    plan.yaml:5:13: `duration` must be greater than zero
    ");
    insta::assert_snapshot!(load(&format!("  users: 5\n  rate: 10/s\n  duration: 1s\n  requests: 5\n{J}")), @r"
    plan.yaml:5:3: `users` and `rate` cannot be combined
      hint: a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, and a `command` makes its own load
    plan.yaml:7:3: `duration` and `requests` cannot be combined
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    ");
    insta::assert_snapshot!(load(&format!("  rate: fast\n  duration: ten\n{J}")), @r"
    plan.yaml:4:9: `fast` is not a rate such as `1000/s` or `30/m`
    plan.yaml:5:13: `ten` is not a duration such as `300ms`, `10s` or `1m30s`
    ");
    insta::assert_snapshot!(load(&format!("  rate: 10\n  repeats: 5\n  pace: 1s\n  arrivals: random\n{J}")), @r"
    plan.yaml:5:3: `repeats` needs `users`, which is missing
      hint: `requests` or `duration` end a `rate`
    plan.yaml:6:3: `pace` needs `users`, which is missing
      hint: with a `rate`, requests fall due anyway
    plan.yaml:7:13: `random` is not a value of `arrivals`: use one of `constant`, `poisson`
    ");
    insta::assert_snapshot!(load(&format!("  users: 10\n  max_in_flight: 5\n  when_behind: drop\n  requests: 5\n{J}")), @r"
    plan.yaml:5:3: `max_in_flight` needs `rate`, which is missing
      hint: each user has one request at a time
    plan.yaml:6:3: users without `pace` are never behind
      hint: leave it out, or give them a `pace`
    ");
    insta::assert_snapshot!(load(&format!("  users: 1\n  duration: 5s\n  warmup: 5s\n  ramp: 6s\n{J}")), @r"
    plan.yaml:6:3: `warmup` leaves nothing of the load to measure
      hint: use a warm-up shorter than the load
    plan.yaml:7:3: `ramp` is longer than the load
    ");
    insta::assert_snapshot!(load(&format!("  feed: []\n  duration: 5s\n  keep-alive: no\n{J}")), @r"
    plan.yaml:4:3: unknown key `feed` in a load
      hint: rows of data are `feeds`, as in `feeds: { people: { file: people.csv } }`
    plan.yaml:6:3: unknown key `keep-alive` in a load
      hint: did you mean `keep_alive`?
    ");
    insta::assert_snapshot!(load(&format!("  users: 1.5\n  requests: 1e3\n  keep_alive: no\n  timeout: 0s\n{J}")), @r"
    plan.yaml:4:10: `1.5` is not a whole number
    plan.yaml:5:13: `1e3` is not a whole number
    plan.yaml:6:15: `no` is neither `true` nor `false`
    plan.yaml:7:12: `timeout` must be greater than zero
    ");
    insta::assert_snapshot!(load("  users: 1\n  requests: 1\n  journey: []\n"), @"plan.yaml:6:3: `journey` is empty");
    insta::assert_snapshot!(load("  users: 1\n  requests: 1\n  headers: {}\n"), @r"
    plan.yaml:6:3: unknown key `headers` in a load
      hint: `headers` is a key of a step
    ");
}

#[test]
fn steps() {
    let step = |inside: &str| load(&format!("  users: 1\n  requests: 1\n  journey:\n    - {inside}\n"));
    insta::assert_snapshot!(step("{ get: /widgets }"), @r"
    plan.yaml:7:14: `/widgets` is not a URL
      hint: write `http://HOST:PORT/PATH`
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", post: \"http://b/\" }"), @r"
    plan.yaml:7:27: `get` and `post` cannot be combined
      hint: a step makes one request
    ");
    insta::assert_snapshot!(step("{ tags: [page] }"), @r"
    plan.yaml:7:7: a step needs one of `get`, `post`, `put`, `delete`, `patch`, `head`, `options`, `urls`, `websocket`
      hint: a step makes one request
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", tags: page, check: { contains: x } }"), @r"
    plan.yaml:7:33: expected a list of texts, found `page`
      hint: a list is written `[a, b]`, or one `- item` a line
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", tags: [a b], check: { status: [] } }"), @r"
    plan.yaml:7:34: `a b` is not a valid tag
      hint: letters, digits, `-` and `_`, at most 64
    plan.yaml:7:57: an empty list accepts no status
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", headers: { content-length: 3, \"a b\": c, d: \"e\\nf\" } }"), @r"
    plan.yaml:7:38: `content-length` is set by loadlab
      hint: it is derived from the body
    plan.yaml:7:57: `a b` is not a valid name for a header field
    plan.yaml:7:70: a header field must be a single line
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", headers: { host: a, Host: b } }"), @r"
    plan.yaml:7:47: a request has only one `host`
      hint: leave one of the two out
    ");
    insta::assert_snapshot!(step("{ post: \"http://a/\", body: { file: x, json: y } }"), @r"
    plan.yaml:7:45: `file` and `json` cannot be combined
      hint: a request has one body
    ");
    insta::assert_snapshot!(step("{ post: \"http://a/\", body: [1], capture: {} }"), @r"
    plan.yaml:7:34: expected a map for `body`, found a list
      hint: its keys are `file`, `json`
    ");
    insta::assert_snapshot!(step("http://a/"), @r"
    plan.yaml:7:7: expected a map for a step, found `http://a/`
      hint: its keys are `get`, `post`, `put`, `delete`, `patch`, `head`, `options`, `urls`, `websocket`, `messages`, `repeat`, `hold`, `subprotocols`, `headers`, `auth`, `form`, `multipart`, `body`, `tags`, `check` and 3 more
    ");
    insta::assert_snapshot!(step("{ get: \"http://127.0.0.1:${port}/\" }"), @r"
    plan.yaml:7:34: unknown name `${port}`
      hint: known here: `case.name`, `plan.dir`, `run.dir`, `uuid`, `now`, `random(1, 6)`, `user`, `iteration`, `sequence`, `unique`
    ");
    insta::assert_snapshot!(step("{ post: \"http://a/\", body: { file: \"${run.dir}/x\" } }"), @"plan.yaml:7:45: `${run.dir}` is known only while the system runs, but this is needed earlier");
}

#[test]
fn components() {
    insta::assert_snapshot!(component("      replicas: 1001\n      run: [a]\n"), @"plan.yaml:7:17: `replicas` is 1001; it must be from 1 to 1000");
    insta::assert_snapshot!(component("      run: []\n      build: ''\n"), @r"
    plan.yaml:7:12: expected a command: a shell line, or a list of words, found an empty list
    plan.yaml:8:14: expected a command: a shell line, or a list of words, found an empty text
    ");
    insta::assert_snapshot!(component("      run: a\n      ready: { timeout: 3s }\n"), @r"
    plan.yaml:8:7: `ready` needs one of `http`, `tcp`, `log`, `health`
      hint: one condition is enough
    ");
    insta::assert_snapshot!(component("      run: a\n      ready: { http: \"http://x/\", tcp: \"127.0.0.1\" }\n"), @r"
    plan.yaml:8:35: `http` and `tcp` cannot be combined
      hint: one condition is enough
    ");
    insta::assert_snapshot!(component("      run: a\n      ready: { tcp: \"127.0.0.1\" }\n"), @r"
    plan.yaml:8:21: `127.0.0.1` has no port
      hint: `127.0.0.1:8080`
    ");
    insta::assert_snapshot!(component("      run: a\n      limits: { cpu_: 1, memory: 0, pids: -1, open_files: many }\n"), @r"
    plan.yaml:8:17: unknown key `cpu_` in `limits`
      hint: did you mean `cpu`?
    plan.yaml:8:34: nothing can run without memory
      hint: `none` for no limit
    plan.yaml:8:43: `-1` is not a whole number from 1
      hint: `none` for no limit
    plan.yaml:8:59: `many` is not a whole number from 1
      hint: `none` for no limit
    ");
    insta::assert_snapshot!(component("      run: a\n      lifetime: trials\n      stop: { signal: SIGTERM, timeout: x }\n"), @r"
    plan.yaml:8:17: `trials` is not a value of `lifetime`: use one of `trial`, `case`, `experiment`
      hint: did you mean `trial`?
    plan.yaml:9:23: `SIGTERM` is not a value of `signal`: use one of `TERM`, `INT`, `QUIT`, `HUP`, `KILL`, `USR1`, `USR2`
      hint: did you mean `TERM`?
    plan.yaml:9:41: `x` is not a duration such as `300ms`, `10s` or `1m30s`
    ");
    insta::assert_snapshot!(component("      run: a\n      port: 70000\n      ports: { admin: atuo }\n"), @r"
    plan.yaml:8:13: `70000` is not a port: `auto`, or a number from 1 to 65535
    plan.yaml:9:23: `atuo` is not a port: `auto`, or a number from 1 to 65535
    ");
}

#[test]
fn names_and_ports_of_components() {
    insta::assert_snapshot!(component("      run: a --port ${port} ${HOME} ${replika} ${case.x} ${components.bd.port}\n"), @r"
    plan.yaml:7:16: unknown name `${port}`
      hint: give the component `port: auto`, or a number
    plan.yaml:7:31: unknown name `${HOME}`
      hint: known here: `case.name`, `plan.dir`, `replica`, `address`, `run.dir`, `components.db.address`; for the shell's own `${HOME}` write `$${HOME}`
    plan.yaml:7:39: unknown name `${replika}`
      hint: did you mean `${replica}`?
    plan.yaml:7:50: unknown name `${case.x}`
      hint: known here: `case.name`, `plan.dir`, `replica`, `address`, `run.dir`, `components.db.address`
    plan.yaml:7:60: unknown name `${components.bd.port}`
      hint: known here: `case.name`, `plan.dir`, `replica`, `address`, `run.dir`, `components.db.address`
    ");
    insta::assert_snapshot!(component("      run: a ${\n      build: make ${port}\n      dir: ${run.dir}\n      port: auto\n"), @r"
    plan.yaml:7:14: `${` without a `}`
      hint: for a plain `${` write `$${`
    plan.yaml:8:21: `${port}` is known only while the system runs, but builds finish earlier
    plan.yaml:9:14: `${run.dir}` is known only while the system runs, but this is needed earlier
    ");
    insta::assert_snapshot!(component("      run: a ${components.db.port}\n      replicas: 2\n      port: 80\n"), @r"
    plan.yaml:7:16: unknown name `${components.db.port}`
      hint: there are several: choose one, such as `${components.db1.port}`
    plan.yaml:9:7: all replicas would have port 80
      hint: use `auto`, or put `${replica}` in it
    ");
    insta::assert_snapshot!(component("      run: a\n      replicas: 2\n    db1: { run: b }\n"), @r"
    plan.yaml:9:5: `db1` is also the name of a replica of `db`
      hint: rename one of the two
    ");
    insta::assert_snapshot!(component("      image: redis\n"), @r"
    plan.yaml:7:7: unknown key `image` in a component
      hint: a container is `container: { image: … }`
    ");
    insta::assert_snapshot!(component("      run: a\n  probes:\n    a-b: { http: \"http://x/\", json: stored.rows }\n    c: { http: \"http://x/\", json: /a~ }\n"), @r"
    plan.yaml:9:5: `a-b` is not a valid name for a probe
      hint: letters, digits and `_`, at most 64, not starting with a digit
    plan.yaml:9:37: `stored.rows` is not a JSON pointer: a pointer starts with `/`
      hint: `/stored/rows`
    plan.yaml:10:35: in a JSON pointer `~` is written `~0`
    ");
}

#[test]
fn probes() {
    let probe = |inside: &str| {
        let text = format!(
            "{HEAD}{LOAD}system: {{ components: {{ db: {{ run: a }} }}, probes: {{ a: {inside} }} }}\n"
        );
        briefly(&text, &Options::default())
    };
    for (inside, expect) in [
        ("{ redis: \"127.0.0.1:1\", llen: q }", "fine"),
        ("{ prometheus: \"http://127.0.0.1/m\", metric: up, labels: { job: x } }", "fine"),
        ("{ log: db, contains: error }", "fine"),
        ("{ command: echo 1 }", "fine"),
        ("{ redis: \"127.0.0.1:1\" }", "`redis` needs `get`, which is missing"),
        ("{ redis: \"nowhere\", llen: q }", "nowhere"),
        ("{ llen: q, command: x }", "`llen` needs `redis`, which is missing"),
        ("{ prometheus: \"http://127.0.0.1/m\" }", "`prometheus` needs `metric`, which is missing"),
        ("{ log: edge, contains: x }", "there is no component `edge`"),
        ("{ log: db, contains: \"\" }", "expected part of a single line for `contains`"),
        ("{ http: \"http://127.0.0.1/\", command: x, json: /a }", "`http` and `command` cannot be combined"),
        ("{}", "a probe needs one of `http`, `prometheus`, `redis`, `command`, `log`"),
    ] {
        let found = probe(inside);
        let found = if found.is_empty() { "fine".to_owned() } else { found };
        assert!(found.contains(expect), "{inside}: {found}");
    }
}

#[test]
fn what_was_renamed_is_refused_with_its_new_name() {
    let check = |text: &str, from: &str, to: &str| {
        let found = briefly(text, &Options::default());
        let expect = format!("was renamed to `{to}`");
        let shown = found.lines().find(|line| line.contains(&expect) && line.contains(&format!("`{from}`")));
        let placed = shown.is_some_and(|line| line.starts_with("plan.yaml:"));
        assert!(placed, "{from} → {to}:\n{text}\n{found}");
    };
    let component = |more: &str| {
        format!("{HEAD}{LOAD}isolate: true\nsystem: {{ components: {{ edge: {{ run: a, {more} }} }} }}\n")
    };
    let load = |more: &str| {
        format!(
            "{HEAD}load:\n  users: 1\n  duration: 1s\n  journey: [ {{ get: \"http://127.0.0.1/\" }} ]\n  {more}\n"
        )
    };
    let program = |more: &str| format!("{HEAD}load: {{ command: {{ run: a, {more} }} }}\n");
    let message = |more: &str| {
        load("").replace(
            "get: \"http",
            &format!("messages: [ {{ send: a, expect: {{ contains: b }}, {more} }} ], websocket: \"ws"),
        )
    };
    for (text, from, to) in [
        (format!("{HEAD}{LOAD}loss: {{ probe: n }}\n"), "loss", "durability"),
        (format!("{HEAD}{LOAD}system: {{ samples: 2/s }}\n"), "samples", "sample_rate"),
        (format!("{HEAD}{LOAD}system: {{ compose: {{ file: a, fresh: case }} }}\n"), "fresh", "lifetime"),
        (format!("{HEAD}{LOAD}system: {{ compose: {{ file: a, within: 1s }} }}\n"), "within", "timeout"),
        (component("fresh: case"), "fresh", "lifetime"),
        (component("ready: { log: a, within: 1s }"), "within", "timeout"),
        (component("stop: { within: 1s }"), "within", "timeout"),
        (component("limits: { cpus: \"0\" }"), "cpus", "cpuset"),
        (component("limits: { network: 1MiB/s }"), "network", "bandwidth"),
        (component("limits: { loss: 1% }"), "loss", "packet_loss"),
        (load("before: []"), "before", "user_setup"),
        (load("after: []"), "after", "user_teardown"),
        (load("compressed: true"), "compressed", "compression"),
        (load("streams: 2"), "streams", "streams_per_connection"),
        (load("sessions: { rate: 1/s, at_most: 2 }"), "at_most", "max_users"),
        (program("counts: n"), "counts", "counted_by"),
        (program("counted_by: n, begins: go"), "begins", "started_when_output"),
        (program("counted_by: n, within: 1s"), "within", "timeout"),
        (message("within: 1s"), "within", "timeout"),
        (message("others: fail"), "others", "on_unexpected"),
        (message("on_unexpected: pass"), "pass", "ignore"),
    ] {
        check(&text, from, to);
    }
    for (event, from, to) in [
        ("cut edge", "cut", "disconnect"),
        ("heal edge", "heal", "reconnect"),
        ("narrow edge 1MiB/s", "narrow", "bandwidth"),
        ("lose edge 1%", "lose", "packet_loss"),
        ("limit edge network 1MiB/s", "network", "bandwidth"),
        ("limit edge loss 1%", "loss", "packet_loss"),
    ] {
        let events = format!("{}events: [ {{ at: 1s, do: {event} }} ]\n", component("port: auto"));
        check(&events, from, to);
    }
}

#[test]
fn events_and_durability() {
    let with = |more: &str| {
        let text = format!(
            "{HEAD}{LOAD}system: {{ components: {{ edge: {{ run: a, replicas: 2 }} }}, probes: {{ n: {{ command: x }} }} }}\n{more}\n"
        );
        briefly(&text, &Options::default())
    };
    for (more, expect) in [
        ("events: [{ at: 1s, do: kill edge2 }, { at: 2s, do: restart edge }, { at: 3s, do: none }]", ""),
        ("events: [{ at: 1s, do: limit edge cpu 5% }, { at: 2s, do: limit edge memory none }]", ""),
        ("events: [{ at: 1s, do: kill edg }]", "there is no component `edg`"),
        ("events: [{ at: 1s, do: explode edge }]", "unknown action `explode edge`"),
        ("events: [{ at: 1s, do: limit edge cpus 1 }]", "`cpus` is not a limit that can be changed"),
        ("events: [{ at: 1s, do: limit edge cpu lots }]", "`lots` is not"),
        ("events: [{ at: 1s, do: limit edge memory 0 }]", "nothing can run without memory"),
        (
            "events: [{ at: 1s, do: disconnect edge1 }]",
            "`disconnect edge1` is not possible: it does not have its own link",
        ),
        ("isolate: true\nevents: [{ at: 1s, do: disconnect edge1 }, { at: 2s, do: reconnect edge }]", ""),
        (
            "isolate: true\nevents: [{ at: 1s, do: bandwidth edge 1MiB/s }, { at: 2s, do: bandwidth edge none }]",
            "",
        ),
        ("isolate: true\nevents: [{ at: 1s, do: bandwidth edge lots }]", "`lots` is not bytes per second"),
        ("events: []", "`events` is empty"),
        ("levers: { pool: { now: 10, less: 9, more: [11, 20], set: \"a ${value}\" } }", ""),
        ("levers: { interval: { now: 10, less: 11, more: [9, 5], set: [a, \"${value}\"] } }", ""),
        ("levers: { pool: { now: 10, less: 10, set: \"a ${value}\" } }", "`less` is the same as `now`"),
        (
            "levers: { pool: { now: 10, less: 9, more: [8], set: \"a ${value}\" } }",
            "`8` is not more of `pool`",
        ),
        (
            "levers: { pool: { now: 10, less: 9, more: [b], set: \"a ${value}\" } }",
            "`b` is not a whole number",
        ),
        ("levers: { pool: { now: 10, less: 9, set: a } }", "`set` is the same for every value"),
        ("levers: { pool: { now: 10, set: \"a ${value}\" } }", "a lever needs `less`"),
        ("levers: { pool: { now: 0, less: 9, set: \"a ${value}\" } }", "`now` is 0"),
        ("events: [{ at: 1s, do: \"limit edge cpu ${value}\" }]", "unknown"),
        ("durability: { probe: n }", ""),
        ("durability: { probe: m }", "there is no probe `m`"),
        ("durability: { command: x }", "no step carries a `${unique}`"),
    ] {
        let found = with(more);
        assert!(found.contains(expect) && found.is_empty() == expect.is_empty(), "{more}: {found}");
    }
}

#[test]
fn limits_from_what_was_measured() {
    let plan = |limit: &str, matrix: &str, more: &str| {
        let text = format!(
            "{HEAD}{LOAD}system: {{ components: {{ edge: {{ run: a, limits: {{ memory: {limit} }} }} }} }}\nmatrix: {matrix}\n{more}\n"
        );
        briefly(&text, &Options::default())
    };
    const CASES: &str =
        "[{ name: control, m: none }, { name: half, m: \"${measured.control.edge.memory.mean / 2}\" }]";
    let by_case = |more: &str| plan("\"${case.m}\"", CASES, more);
    insta::assert_snapshot!(by_case("trials: 1"), @"");
    // What is measured again under another name was measured, too.
    insta::assert_snapshot!(by_case("trials: { count: 5 }\norder: sequential"), @"");
    insta::assert_snapshot!(by_case("trials: 2\norder: sequential"), @"");
    insta::assert_snapshot!(by_case("trials: 2"), @r"
    plan.yaml:4:59: cases run in turn, so not all trials of the measured case come first
      hint: use `order: sequential`
    ");
    let direct = |text: &str| plan(&format!("'{text}'"), "[{ name: a, m: 1 }, { name: b, m: 2 }]", "");
    insta::assert_snapshot!(direct("${measured.b.edge.memory}"), @r"
    plan.yaml:4:59: case `a` needs a figure of case `b`, which does not run before it
      hint: cases run in the order of the matrix
    plan.yaml:4:59: case `b` needs a figure of case `b`, which does not run before it
      hint: cases run in the order of the matrix
    ");
    insta::assert_snapshot!(direct("${measured.x.edge.memory}"), @r"
    plan.yaml:4:59: there is no case `x` to measure
      hint: one of `a`, `b`; `--case` may have excluded it
    ");
    let other = "[{ name: a, m: none }, { name: b, m: \"${measured.a.db.memory}\" }]";
    insta::assert_snapshot!(plan("\"${case.m}\"", other, ""), @r"
    plan.yaml:4:59: case `a` has no component `db`
      hint: only `edge` is allowed here
    ");
    insta::assert_snapshot!(direct("${measured.a.edge.cpu}"), @r"
    plan.yaml:4:59: `cpu` cannot be used as a limit on memory
      hint: use one of `memory.mean`, `memory.max` or `memory.last`
    ");
}

#[test]
fn what_lives_through_the_experiment_cannot_differ() {
    let text = format!(
        "{HEAD}{LOAD}system: {{ components: {{ db: {{ run: \"a ${{case.x}}\", lifetime: experiment }} }} }}\nmatrix: {{ axes: {{ x: [1, 2] }} }}\n"
    );
    insta::assert_snapshot!(plain(&text), @r#"
    plan.yaml:4:36: `db` lives for the whole experiment, but this differs between cases
       |
     4 | system: { components: { db: { run: "a ${case.x}", lifetime: experiment } } }
       |                                    ^^^^^^^^^^^^^
      because of this: plan.yaml:4:51
       |
     4 | system: { components: { db: { run: "a ${case.x}", lifetime: experiment } } }
       |                                                   ^^^^^^^^
      hint: use `lifetime: case` or `lifetime: trial`
    "#);
}

/// At a rate, each request belongs to no one: what is about users would never be done, or pass from one to another.
#[test]
fn a_rate_has_no_users() {
    let with = |more: &str| {
        let journey = "journey: [{ get: \"http://127.0.0.1:1/\" }]";
        briefly(&format!("{HEAD}load: {{ rate: 5/s, duration: 1m, {journey}{more} }}\n"), &Options::default())
    };
    assert_eq!(with(""), "");
    assert_eq!(with(", cookies: false"), "");
    let step = "[{ get: \"http://127.0.0.1:1/\" }]";
    for (key, more) in [
        ("cookies", "cookies: true".to_owned()),
        ("user_setup", format!("user_setup: {step}")),
        ("user_teardown", format!("user_teardown: {step}")),
    ] {
        let found = with(&format!(", {more}"));
        assert!(
            found.contains(&format!("`{key}` is about users, and a rate sends single requests")),
            "{found}"
        );
    }
    let steps = "{ get: \"http://127.0.0.1:1/\", capture: { token: { json: /t } } }, { get: \"http://127.0.0.1:1/${token}\" }";
    let of = |load: &str| {
        briefly(&format!("{HEAD}load: {{ {load}, duration: 1m, journey: [{steps}] }}\n"), &Options::default())
    };
    let found = of("rate: 5/s");
    assert!(
        found.contains("`token` is captured only from a response, and a rate sends single requests"),
        "{found}"
    );
    assert_eq!(of("sessions: 5/s"), "");
}

/// Limits are changed while a component lives on; the cores that it may use are not.
#[test]
fn cores_of_what_lives_through_the_experiment_cannot_differ() {
    let with = |limits: &str| {
        let db = format!("{{ run: a, lifetime: experiment, limits: {{ {limits} }} }}");
        let matrix = "matrix: { axes: { x: [\"0\", \"0-1\"], y: [1, 2] } }";
        briefly(
            &format!("{HEAD}{LOAD}system: {{ components: {{ db: {db} }} }}\n{matrix}\n"),
            &Options::default(),
        )
    };
    assert_eq!(with("cpu: \"${case.y}\""), "");
    assert_eq!(with("cpu: \"${case.y}\", cpuset: \"0\""), "");
    let differs = "`db` lives for the whole experiment, but this differs between cases";
    assert!(with("cpuset: \"${case.x}\"").contains(differs), "{}", with("cpuset: \"${case.x}\""));
    assert!(with("cpu: \"${case.y}\", cpuset: \"${case.x}\"").contains(differs));
}

#[test]
fn links_that_cannot_be_limited() {
    for (system, says) in [
        ("{ a: { run: x, limits: { bandwidth: 1MiB/s } } }", "there is no link to limit"),
        ("{ a: { run: x, port: 80, limits: { delay: 1ms } } }", "clients with a fixed port number bypass it"),
        ("{ a: { run: x, limits: { packet_loss: 1% } } }", "it has no port"),
        (
            "{ a: { container: { image: x }, port: auto, limits: { delay: 1ms } } }",
            "only processes that loadlab starts",
        ),
        ("{ a: { run: x, limits: { jitter: 1ms } } }", "`jitter` needs `delay`"),
        (
            "{ a: { run: x, port: auto, limits: { delay: 0s } }, a-relay: { run: y } }",
            "`a-relay` is the name of another component's relay",
        ),
    ] {
        let all = plain(&format!("{HEAD}{LOAD}system: {{ components: {system} }}\n"));
        assert!(all.contains(says), "{system}: {all}");
    }
}

#[test]
fn many_mistakes_are_cut_off() {
    let keys: String = (0..5000).map(|i| format!("key{i}: 1\n")).collect();
    let all = plain(&format!("{HEAD}{LOAD}{keys}"));
    assert_eq!(all.matches("plan.yaml:").count(), 100);
    assert!(all.ends_with("more than 100 mistakes: only the first are shown"), "{all}");
}

#[test]
fn names_the_record_needs_are_no_components() {
    for name in ["host", "loadlab", "probes"] {
        let text = format!(
            "loadlab: 1\nname: x\nsystem:\n  components:\n    {name}: {{ run: sleep 1 }}\nload: {{ users: 1, requests: 1, journey: [{{ get: \"http://127.0.0.1:1/\" }}] }}\n"
        );
        let errors =
            loadlab_plan::Plan::parse("plan.yaml", &text, &loadlab_plan::Options::default()).unwrap_err();
        assert!(errors.to_string().contains("plan.yaml:5:5"), "{errors}");
        assert!(errors.to_string().contains("rename the component"), "{errors}");
    }
}

#[test]
fn trials_are_a_number_or_until_it_is_certain() {
    let trials = |trials: &str, rest: &str| {
        let matrix = "matrix: [{ name: a, m: 1 }, { name: b, m: 2 }]";
        briefly(&format!("{HEAD}{LOAD}{matrix}\ntrials: {trials}\n{rest}"), &Options::default())
    };
    for right in ["5", "{ count: 5 }", "{ count: 3, control: false }", "{ until: certain, at_most: 7 }"] {
        assert_eq!(trials(right, ""), "", "{right}");
    }
    insta::assert_snapshot!(trials("{}", ""), @r"
    plan.yaml:5:1: `trials` needs one of `until`, `count`
      hint: trials end when it is certain, or after a number
    ");
    insta::assert_snapshot!(trials("{ control: true }", ""), @r"
    plan.yaml:5:1: `trials` needs one of `until`, `count`
      hint: trials end when it is certain, or after a number
    ");
    insta::assert_snapshot!(trials("{ until: certain, count: 5 }", ""), @r"
    plan.yaml:5:27: `until` and `count` cannot be combined
      hint: trials end when it is certain, or after a number
    ");
    insta::assert_snapshot!(trials("{ until: sure }", ""), @r"
    plan.yaml:5:18: `sure` is not a value of `until`: use one of `certain`
    ");
    insta::assert_snapshot!(trials("{ count: 5, within: 1%, budget: 5m }", ""), @r"
    plan.yaml:5:21: `within` needs `until`, which is missing
      hint: a `count` of trials is judged by `--equivalence-margin`
    plan.yaml:5:33: `budget` needs `until`, which is missing
      hint: all trials of a `count` are made
    ");
    insta::assert_snapshot!(trials("{ count: 0 }", ""), @r"
    plan.yaml:5:18: `count` is 0; it must be from 1 to 10000
    ");
    insta::assert_snapshot!(trials("{ until: certain }", "order: sequential\n"), @r"
    plan.yaml:6:1: `order: sequential` cannot be combined with `until: certain`: what is certain rests on a random order
    ");
}

#[test]
fn a_control_is_the_first_case_once_more() {
    let cases = |trials: &str, options: Options| -> Vec<(String, Option<String>)> {
        let matrix = "matrix: [{ name: a, m: 1 }, { name: b, m: 2 }]";
        let text = format!("{HEAD}{LOAD}{matrix}\ntrials: {trials}\n");
        let plan = Plan::parse("plan.yaml", &text, &options).unwrap();
        assert_eq!(plan.trials, if trials.contains("until") { 30 } else { options.trials.unwrap_or(5) });
        plan.cases().iter().skip(2).map(|case| (case.name.clone(), case.control_of.clone())).collect()
    };
    let usual = Options::default;
    let control = vec![("a (control)".to_owned(), Some("a".to_owned()))];
    assert_eq!(cases("5", usual()), control);
    assert_eq!(cases("{ count: 5 }", usual()), control);
    assert_eq!(cases("{ until: certain }", usual()), control);
    assert_eq!(cases("{ count: 9 }", Options { trials: Some(6), ..usual() }), control);
    // Not wanted; it would show nothing; there is nothing to compare.
    assert_eq!(cases("{ count: 5, control: false }", usual()), []);
    let six = || Options { trials: Some(6), ..usual() };
    assert_eq!(cases("{ count: 9, control: false }", six()), [], "it stays so");
    assert_eq!(cases("5", Options { trials: Some(4), ..usual() }), []);
    assert_eq!(cases("{ count: 5 }", Options { trials: Some(4), ..usual() }), []);
    assert_eq!(cases("{ count: 5 }", Options { cases_glob: Some("a".to_owned()), ..usual() }), []);
    // A control's name differs from that of its base and from those of other cases.
    let named = |cases: &str| {
        let text = format!("{HEAD}{LOAD}matrix: [{cases}]\ntrials: 5\n");
        let plan = Plan::parse("plan.yaml", &text, &usual()).unwrap();
        let own = plan.own_cases().len();
        (own, plan.cases()[own..].iter().map(|case| case.name.clone()).collect::<Vec<_>>())
    };
    assert_eq!(
        named("{ name: b, m: 1 }, { name: control, m: 2 }"),
        (2, vec!["control (again)".to_owned()]),
        "what is called so is the base"
    );
    assert_eq!(named("{ name: a, m: 1 }, { name: a (control), m: 2 }"), (2, vec!["a (control)*".to_owned()]));
    let two =
        vec![Revision { name: "old".to_owned(), dir: None }, Revision { name: "new".to_owned(), dir: None }];
    let named =
        |case: &str| (format!("{case}, revision=old (control)"), Some(format!("{case}, revision=old")));
    let revisions = cases("5", Options { revisions: two.clone(), ..usual() });
    assert_eq!(revisions[2..], [named("a"), named("b")]);
    assert_eq!(cases("5", Options { revisions: two, trials: Some(1), ..usual() }).len(), 2);
}
