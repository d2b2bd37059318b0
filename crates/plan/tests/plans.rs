//! Valid plans, and what they become.

#![expect(clippy::disallowed_methods, reason = "the plans under test are files")]

use std::fs;
use std::path::Path;

use loadlab_plan::{
    Body, Command, ComponentKind, Lifetime, Model, Options, Plan, ReadySign, Stage, Think, Until, WhenBehind,
};

use crate::common;
use crate::common::plan;

#[test]
fn figures_of_a_load_have_no_values_after_it() {
    let check = |more: &str, wrong: Option<&str>| {
        let text = format!(
            "loadlab: 1\nname: x\nsystem: {{ components: {{ web: {{ run: sleep 9 }} }} }}\nload: {{ users: 1, duration: 10s, \
             journey: [{{ get: \"http://127.0.0.1:1/\", tags: [page] }}] }}\n{more}\n"
        );
        let read = Plan::parse("plan.yaml", &text, &Options::default());
        let message = read.err().map(|errors| errors.0[0].message.clone());
        assert_eq!(message.as_deref(), wrong, "{more}");
    };
    check("expect: [\"p99[10s..30s] < 1s\"]", Some("`p99` is asked for a time after the load"));
    check(
        "expect: [\"tag.page.p99[60s..90s] < 1s\"]",
        Some("`tag.page.p99` is asked for a time after the load"),
    );
    check("figures: { late: \"p99[60s..90s]\" }", Some("`p99` is asked for a time after the load"));
    check("expect: [\"p99[5s..30s] < 1s\"]", None);
    // Components go on after the load.
    check("expect: [\"web.cpu[60s..90s] < 90%\"]", None);
}

#[test]
fn an_event_after_the_load_is_noted() {
    let with = |at: &str, load: &str| {
        let text = format!(
            "loadlab: 1\nname: x\nsystem: {{ components: {{ web: {{ run: sleep 9 }} }} }}\nload: {{ users: 1, {load}, \
             journey: [{{ get: \"http://127.0.0.1:1/\" }}] }}\nevents: [{{ at: {at}, do: kill web }}]\n"
        );
        Plan::parse("plan.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}")).notes
    };
    let late = ["the event `kill web` is due after 20.0 s, but the load ends after 10.0 s"];
    assert_eq!(with("20s", "duration: 10s"), late);
    assert_eq!(with("9s", "duration: 10s"), Vec::<String>::new());
    // When so many requests are done is unknown.
    assert_eq!(with("20s", "requests: 10"), Vec::<String>::new());
}

#[test]
fn the_experiment_in_words() {
    insta::assert_snapshot!(plan("edges", &Options::default()).describe().join("\n"), @r#"
    edges under limits
    How a tier of caching proxies degrades
    when its nodes get little CPU and memory.
    3 cases: control; 1% CPU; 1% CPU + 15MiB
    5 trials of each case, cases in turn: 20 in all; a control shows what is chance
    load-balancer: `nginx -c lb.conf`
    load-balancer: restarted for each trial, ready when http://127.0.0.1:18080/health answers
    edge: 4 × `nginx -c edge1.conf -g 'pid ${run.dir}/edge1.pid;'`
    edge: restarted for each trial
    edge: at most 20,000 open files (in control)
    edge: at most 1% of one core, 20,000 open files (in 1% CPU)
    edge: at most 1% of one core, 15.0 MiB of memory, 20,000 open files (in 1% CPU + 15MiB)
    backend: 2 × `./backend --port ${port} --admin ${port.admin}`
    backend: restarted for each trial, ready when 127.0.0.1:${port} accepts
    seed: `./seed --records 100000`
    before each trial: `./empty-collection`, then `./warm ${run.dir}`
    probe stored: `/stored` of http://127.0.0.1:${components.backend1.port.admin}/stats
    load browse: 10 users, each sends when its last request has ended, for 1m, 3 times with pauses of 10s
    load browse: percentiles and rates leave out the first 5s; timeout 30s, grace 5s
    journey of browse: GET http://127.0.0.1:18080/ [page] → 200, then POST http://127.0.0.1:18080/widgets with JSON `{"eventType":"big","payload":[1,2.5,true,null,"a \"quoted\" …` [write] → 200 or 201, then PUT http://127.0.0.1:18080/file with bodies/large.json
    load trickle: 0.5 requests due per second, spread at random (Poisson), for 1m
    load trickle: requests that cannot start when due are dropped; a new connection for each request; timeout 500ms, grace 5s
    journey of trickle: HEAD http://127.0.0.1:18080/health
    ends early: when failed > 1024
    drain: until steady(stored, 5s), at most 1m
    expected: p99 < 2s
    expected: errors < 0.1%
    may load lab.example.org besides loopback
    "#);
    insta::assert_snapshot!(plan("axes", &Options { profile: Some("quick".into()), ..Options::default() }).describe().join("\n"), @r"
    allocators
    3 cases: allocator=system, size=medium; allocator=jemalloc, size=medium; allocator=mimalloc, size=medium
    one trial of each case (profile quick); a first look: no verdicts on differences
    service: `./target/release/service --port ${port}`
    service: restarted when the case changes, ready when http://127.0.0.1:${port}/health answers
    load: 16 users, each sends when its last request has ended, 3 rounds of the journey each, 3 times with pauses of 100ms
    load: ramp of 1s; timeout 30s, grace 5s
    journey: POST http://127.0.0.1:${components.service.port}/widgets with bodies/medium.json [medium] → 201
    note: `exclude` of allocator=mimalloc, size=tiny matches no combination
    ");
    let all = plan("axes", &Options::default()).describe();
    let varying: Vec<&str> = all.iter().map(String::as_str).filter(|l| l.contains("(in ")).collect();
    insta::assert_snapshot!(varying.join("\n"), @r"
    journey: POST http://127.0.0.1:${components.service.port}/widgets with bodies/tiny.json [tiny] → 201 (in size=tiny)
    journey: POST http://127.0.0.1:${components.service.port}/widgets with bodies/small.json [small] → 201 (in size=small)
    journey: POST http://127.0.0.1:${components.service.port}/widgets with bodies/medium.json [medium] → 201 (in size=medium)
    journey: POST http://127.0.0.1:${components.service.port}/widgets with bodies/large.json [large] → 201 (in size=large)
    ");
    insta::assert_snapshot!(plan("least", &Options::default()).describe().join("\n"), @r"
    the least there is
    one trial
    load: 100 requests due per second, spread evenly, until 1,000 requests are sent
    load: timeout 30s, grace 5s
    journey: GET http://127.0.0.1:8080/
    ");
}

#[test]
fn components_are_expanded_by_replica_and_case() {
    let plan = plan("edges", &Options { plan_dir: Some("/labs/edges".into()), ..Options::default() });
    let case = &plan.cases()[2];
    let names: Vec<&str> = case.system.components.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["load-balancer", "edge1", "edge2", "edge3", "edge4", "backend1", "backend2"]);
    let edge = &case.system.components[2];
    assert_eq!((edge.limits.cpu_cores, edge.limits.memory_bytes), (Some(0.01), Some(15 << 20)));
    assert_eq!((edge.limits.open_files, edge.ports[0].number), (Some(20_000), Some(19002)));
    let ComponentKind::Process(Command::Shell(line)) = &edge.kind else { panic!("a shell line") };
    assert_eq!(line.to_string(), "nginx -c /labs/edges/edge2.conf -g 'pid ${run.dir}/edge2.pid;'");
    assert_eq!(plan.cases()[0].system.components[1].limits.cpu_cores, None);

    let backend = &case.system.components[6];
    let known = |name: &str| match name {
        "port" => Some("1".to_owned()),
        "port.admin" => Some("2".to_owned()),
        "components.backend1.port.admin" => Some("3".to_owned()),
        _ => None,
    };
    let env: Vec<(String, String)> =
        backend.env.iter().map(|(k, v)| (k.clone(), v.render(&known).expect("known names"))).collect();
    let expect = [
        ("EDGE", "http://127.0.0.1:19002"),
        ("PEER", "http://127.0.0.1:3/"),
        ("SHELL_VARIABLE", "${HOME}"),
        ("WORKERS", "2"),
    ];
    assert_eq!(env, expect.map(|(k, v)| (k.to_owned(), v.to_owned())));
    let ComponentKind::Process(Command::Words(words)) = &backend.kind else { panic!("a list of words") };
    let words: Vec<String> = words.iter().map(|w| w.render(&known).expect("known names")).collect();
    assert_eq!(words, ["./backend", "--port", "1", "--admin", "2"]);
    assert_eq!(backend.dir, "/labs/edges/backend");
    assert_eq!(
        (backend.lifetime, backend.stop.signal.as_str(), backend.stop.timeout_ns),
        (Lifetime::Trial, "INT", 3_000_000_000)
    );
    assert!(
        matches!(&backend.ready, Some(r) if matches!(&r.sign, ReadySign::Tcp(_)) && r.timeout_ns == 30_000_000_000)
    );
}

#[test]
fn loads_become_numbers() {
    let plan = plan("edges", &Options::default());
    let [browse, trickle] = plan.cases()[1].loads.as_slice() else { panic!("two loads") };
    assert_eq!(
        (&browse.model, browse.until),
        (&Model::Closed { users: 10, pace_ns: None }, Until::Elapsed(60_000_000_000))
    );
    assert_eq!((browse.warmup_ns, browse.batches, browse.pause_ns), (5_000_000_000, 3, 10_000_000_000));
    assert_eq!(
        (browse.timeout_ns, browse.grace_ns, browse.keep_alive, browse.seed),
        (30_000_000_000, 5_000_000_000, true, 1)
    );
    assert!(
        matches!(trickle.model, Model::Open { rate_per_s, max_in_flight: 10_000, .. } if rate_per_s == 0.5)
    );
    assert_eq!(
        (trickle.when_behind, trickle.keep_alive, trickle.timeout_ns),
        (WhenBehind::Drop, false, 500_000_000)
    );

    let [page, write, file] = browse.journey.as_slice() else { panic!("three steps") };
    assert_eq!((page.method, page.url.as_text()), ("GET", Some("http://127.0.0.1:18080/")));
    assert_eq!(page.statuses.as_deref(), Some(&[200][..]));
    assert_eq!(write.headers[1].1.as_text(), Some("1% CPU"));
    let Body::Json(json) = &write.body else { panic!("JSON") };
    assert_eq!(
        json.as_text(),
        Some(r#"{"eventType":"big","payload":[1,2.5,true,null,"a \"quoted\" text"],"who":"1%"}"#)
    );
    assert_eq!(file.body, Body::File("lab/bodies/large.json".into()));
    let loadlab_plan::ProbeSource::Http { json_pointer, .. } = &plan.cases()[0].system.probes[0].source
    else {
        panic!("{:?}", plan.cases()[0].system.probes);
    };
    assert_eq!(json_pointer, "/stored");
    let conditions: Vec<&str> = plan.expressions().iter().map(|e| e.text.as_str()).collect();
    assert_eq!(conditions, ["p99 < 2s", "errors < 0.1%", "failed > 1024", "steady(stored, 5s)"]);
    assert_eq!((plan.expressions()[2].line, plan.expressions()[2].column), (73, 13));
}

#[test]
fn axes_make_every_combination() {
    let plan = plan("axes", &Options::default());
    assert_eq!(plan.axes, ["allocator", "size"]);
    let names: Vec<&str> = plan.cases().iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.len(), 11);
    assert_eq!(names[..2], ["allocator=system, size=tiny", "allocator=system, size=small"]);
    assert!(!names.contains(&"allocator=mimalloc, size=tiny"));
    let case = &plan.cases()[6];
    assert_eq!(case.name, "allocator=jemalloc, size=medium");
    assert_eq!(case.loads[0].journey[0].tags, ["medium"]);
    assert_eq!(case.loads[0].journey[0].body, Body::File("lab/bodies/medium.json".into()));
    let Command::Shell(build) = &case.system.components[0].build[0] else { panic!("a shell line") };
    assert_eq!(build.as_text(), Some("cargo build --release --features alloc-jemalloc"));
}

#[test]
fn trials_are_interleaved_and_rotated() {
    let text = |order: &str| {
        format!(
            "{}order: {order}\nmatrix: [{{ name: a }}, {{ name: b }}, {{ name: c }}]\ntrials: 2\n",
            common::GOOD[2].1
        )
    };
    let schedule = |order| {
        let plan = Plan::parse("p", &text(order), &Options::default())?;
        Ok::<_, loadlab_plan::PlanErrors>(plan.schedule().iter().map(|key| (key.case, key.trial)).collect())
    };
    assert_eq!(schedule("interleaved"), Ok(vec![(0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (0, 2)]));
    assert_eq!(schedule("sequential"), Ok(vec![(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]));
}

#[test]
fn options_change_and_choose() {
    let with = |set: &[(&str, &str)], profile: Option<&str>| Options {
        set: set.iter().map(|(p, v)| ((*p).to_owned(), (*v).to_owned())).collect(),
        profile: profile.map(str::to_owned),
        ..Options::default()
    };
    // A set value replaces keys that exclude it.
    let plan_ =
        plan("axes", &with(&[("load.rate", "50/s"), ("load.requests", "7"), ("load.batches", "")], None));
    let load = &plan_.cases()[0].loads[0];
    assert!(matches!(load.model, Model::Open { rate_per_s, .. } if rate_per_s == 50.0));
    assert_eq!((load.until, load.batches), (Until::Requests(7), 1));

    let quick = plan("axes", &with(&[("trials", "2")], Some("quick")));
    assert_eq!((quick.quick, quick.trials, quick.cases().len()), (true, 2, 3));
    assert_eq!(quick.cases()[0].loads[0].pause_ns, 100_000_000);

    let one = plan("axes", &with(&[("load.journey.0.check.status", "[200, 204]")], None));
    assert_eq!(one.cases()[0].loads[0].journey[0].statuses.as_deref(), Some(&[200, 204][..]));

    let chosen = plan(
        "axes",
        &Options {
            tags: vec!["small".into(), "large".into()],
            cases_glob: Some("*=jemalloc*".into()),
            trials: Some(4),
            ..Options::default()
        },
    );
    let names: Vec<&str> = chosen.cases().iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["allocator=jemalloc, size=small", "allocator=jemalloc, size=large"]);
    assert_eq!(chosen.schedule().len(), 8);

    let tagged = plan("edges", &Options { tags: vec!["page".into()], ..Options::default() });
    assert_eq!(tagged.cases()[0].loads.len(), 1);
    assert_eq!(tagged.cases()[0].loads[0].journey.len(), 1);
}

#[test]
fn what_is_expected_of_a_tag_goes_with_the_tag() {
    let text = "loadlab: 1\nname: n\nload: { users: 1, requests: 1, journey: [ { get: \"http://a/\", tags: [page] }, { get: \"http://b/\", tags: [api] } ] }\nexpect: [ \"tag.page.p99 < 1s\", \"tag.api.p99 < 1s and p50 < 1s\", \"errors == 0\" ]\n";
    let all = Plan::parse("plan.yaml", text, &Options::default()).expect("a plan");
    assert_eq!((all.expressions().len(), all.notes.len()), (3, 0));
    let options = Options { tags: vec!["page".into()], ..Options::default() };
    let some = Plan::parse("plan.yaml", text, &options).expect("a plan");
    let left: Vec<&str> = some.expressions().iter().map(|e| e.text.as_str()).collect();
    assert_eq!(left, ["tag.page.p99 < 1s", "errors == 0"]);
    assert_eq!(some.notes, ["`tag.api.p99 < 1s and p50 < 1s` is ignored: `--tags` excludes its tag"]);
    // Also if figures use the tag, however indirectly.
    let figures = "figures: { slowest api: tag.api.max, both: \"'slowest api' + p50\", all: max }\n";
    let expect = "expect: [ \"both < 1s\", \"all < 1s\" ]\n";
    let text = format!("{}{figures}{expect}", text.split_once("expect:").expect("it expects something").0);
    let some = Plan::parse("plan.yaml", &text, &options).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let left: Vec<&str> = some.cases()[0].expect.iter().map(|e| e.text.as_str()).collect();
    let named: Vec<&str> = some.cases()[0].figures.iter().map(|f| f.name.as_str()).collect();
    assert_eq!((left, named), (vec!["all < 1s"], vec!["all"]));
}

/// Of no ids none would be lost.
#[test]
fn what_is_expected_of_ids_goes_with_the_steps_that_carry_them() {
    let journey = "[ { get: \"http://a/\", tags: [page] }, { get: \"http://a/${unique}\", tags: [api] } ]";
    let text = format!(
        "loadlab: 1\nname: n\nload: {{ users: 1, requests: 1, journey: {journey} }}\n\
         durability: {{ command: \"cat ids\" }}\nfigures: {{ lost: lost, more: lost + 1, all: ok }}\n\
         expect: [ \"lost == 0\", \"more < 5\", \"accepted == ok\" ]\n"
    );
    let with = |tag: &str| {
        let options = Options { tags: vec![tag.to_owned()], ..Options::default() };
        Plan::parse("plan.yaml", &text, &options).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    };
    let api = with("api");
    let case = &api.cases()[0];
    assert_eq!((case.durability.is_some(), case.expect.len(), api.notes.len()), (true, 3, 0));
    let page = with("page");
    let case = &page.cases()[0];
    let left: Vec<&str> = case.expect.iter().map(|e| e.text.as_str()).collect();
    let named: Vec<&str> = case.figures.iter().map(|f| f.name.as_str()).collect();
    assert_eq!((case.durability.is_some(), left, named), (false, vec!["accepted == ok"], vec!["all"]));
    let why = "is ignored: `--tags` excludes every step with `${unique}`";
    let what = ["`durability`", "`lost == 0`", "`more < 5`", "figure `lost`", "figure `more`"];
    assert_eq!(page.notes, what.map(|what| format!("{what} {why}")));
}

/// Otherwise every level would meet it.
#[test]
fn something_is_left_of_what_a_search_by_options_expects() {
    let load = |case: &str, page: &str| {
        let steps = format!(
            "{{ get: \"http://a/{page}\", tags: [page] }}, {{ get: \"http://a/${{unique}}\", tags: [api] }}"
        );
        format!("  {case}: {{ cases: {case}, users: 1, duration: 5s, journey: [ {steps} ] }}\n")
    };
    let matrix =
        "matrix: [ { name: get, n: 1 }, { name: put, n: 2 } ]\ndurability: { command: \"cat ids\" }\n";
    let loads = format!("loads:\n{}{}", load("get", ""), load("put", "${unique}"));
    let text = format!("loadlab: 1\nname: n\n{matrix}{loads}");
    let with = |tag: &str, case: &str, expect: &str| {
        let options = Options {
            set: vec![("expect".to_owned(), expect.to_owned())],
            tags: vec![tag.to_owned()],
            cases_glob: Some(case.to_owned()),
            is_search: true,
            ..Options::default()
        };
        let read = Plan::parse("plan.yaml", &text, &options);
        read.map(|plan| plan.cases()[0].expect.len()).map_err(|errors| errors.to_string())
    };
    let lost = "[\"lost == 0\"]";
    let none = with("page", "get", lost).expect_err("nothing is left");
    assert!(none.contains("every level would meet what `--expect` asks: nothing of it is left"), "{none}");
    assert_eq!(with("page", "get", "[\"lost == 0\", \"p99 < 1s\"]"), Ok(1));
    assert_eq!(with("api", "get", lost), Ok(1));
    // The case that is left out does not matter.
    assert_eq!(with("page", "put", lost), Ok(1));
}

/// Which load a search varies does not depend on how many are left.
#[test]
fn a_search_varies_the_load_it_names_whatever_tags_are_chosen() {
    let load = |name: &str, tag: &str| {
        format!(
            "  {name}: {{ users: 1, duration: 5s, journey: [ {{ get: \"http://a/\", tags: [{tag}] }} ] }}\n"
        )
    };
    let find = "find: { load: main, users: 1..500, expect: [\"tag.a.p99 < 100ms\"] }\n";
    let text = format!("loadlab: 1\nname: n\nloads:\n{}{}{find}", load("beside", "b"), load("main", "a"));
    let with = |tags: &[&str]| {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        Plan::parse("plan.yaml", &text, &Options { tags, ..Options::default() })
    };
    for tags in [&[][..], &["a"], &["a", "b"]] {
        let plan = with(tags).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let case = &plan.cases()[0];
        let find = case.find.as_ref().expect("a search");
        assert_eq!(case.loads[find.load].name, "main", "{tags:?}");
    }
    let mistakes = with(&["b"]).expect_err("nothing of the search is left").to_string();
    assert!(mistakes.starts_with("--tags: the load that `find` varies has no step"), "{mistakes}");
}

/// The text of a lab does not matter, only that it is a plan, with every profile.
#[test]
fn labs_are_plans() {
    let labs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs");
    let folders = fs::read_dir(labs).expect("labs/ is there").map(|entry| entry.expect("an entry").path());
    let plans = folders.flat_map(|lab| ["plan.yaml", "compose-plan.yaml"].map(|name| lab.join(name)));
    let mut found = 0;
    for path in plans.filter(|path| path.is_file()) {
        let (name, text) = (path.display().to_string(), fs::read_to_string(&path).expect("a plan is text"));
        let with = |profile: Option<&String>| {
            let options = Options { profile: profile.cloned(), ..Options::default() };
            Plan::parse(&name, &text, &options).unwrap_or_else(|mistakes| panic!("{mistakes}"))
        };
        let all = with(None);
        assert!(all.profiles.contains(&"quick".to_owned()), "{name}");
        for profile in &all.profiles {
            let plan = with(Some(profile));
            assert!(!plan.cases().is_empty(), "{name}, {profile}");
            assert_eq!(plan.notes, Vec::<String>::new(), "{name}, {profile}");
        }
        found += 1;
    }
    assert!(found >= 5, "{found} plans in labs/");
}

#[test]
fn an_axis_that_nothing_uses_is_a_remark() {
    let text = format!("{}matrix: {{ axes: {{ copy: [1, 2] }} }}\n", common::GOOD[2].1);
    let plan = Plan::parse("plan.yaml", &text, &Options::default()).expect("a plan");
    assert_eq!(plan.notes, ["nothing uses `${case.copy}`: cases that differ only in `copy` are the same"]);
    assert_eq!(plan.cases()[0].loads, plan.cases()[1].loads);
}

#[test]
fn stages_think_times_and_starts() {
    let lines = plan("models", &Options::default()).describe();
    let loads: Vec<&str> = lines.iter().map(String::as_str).filter(|w| w.starts_with("load ")).collect();
    insta::assert_snapshot!(loads.join("\n"), @r"
    load visitors: up to 100 users in stages, each sends when its last request has ended and it has thought for 1s to 3s, for 1m50s
    load visitors: stages: 0 → 100 over 10s, 100 for 30s, 100 → 0 over 5s, 0 for 1m, at once to 20, 20 for 5s; percentiles and rates leave out the first 10s; timeout 30s, grace 5s (in again=20)
    load visitors: stages: 0 → 100 over 10s, 100 for 30s, 100 → 0 over 5s, 0 for 1m, at once to 40, 40 for 5s; percentiles and rates leave out the first 10s; timeout 30s, grace 5s (in again=40)
    load robots: after 10s: up to 1000 requests due per second, spread at random (Poisson), for 35s
    load robots: stages: 0.5/s → 1000/s over 10s, 1000/s for 20s, at once to 0/s, 0/s for 5s; requests that cannot start when due are dropped; at most 200 in flight; timeout 30s, grace 5s
    load meters: after 1m30s: up to 40 users in stages, each with a request due every 500ms, for 10s
    load meters: stages: 40 for 10s; requests that cannot start when due are dropped; timeout 30s, grace 5s
    load readers: 10 users, each sends when its last request has ended and it has thought for 2s on average (exponentially distributed), for 30s
    load readers: timeout 30s, grace 5s
    load scripts: 2 users, each sends when its last request has ended and it has thought for 2s, 5 rounds of the journey each
    load scripts: timeout 30s, grace 5s
    ");
    let all = plan("models", &Options::default());
    let [visitors, robots, meters, readers, scripts] = all.cases()[1].loads.as_slice() else {
        panic!("five loads")
    };
    let stage = |from: f64, to: f64, s: u64| Stage { from, to, over_ns: s * 1_000_000_000 };
    assert_eq!(
        visitors.stages,
        [
            stage(0.0, 100.0, 10),
            stage(100.0, 100.0, 30),
            stage(100.0, 0.0, 5),
            stage(0.0, 0.0, 60),
            stage(0.0, 40.0, 0),
            stage(40.0, 40.0, 5)
        ]
    );
    assert_eq!(
        (&visitors.model, visitors.until),
        (&Model::Closed { users: 100, pace_ns: None }, Until::Elapsed(110_000_000_000))
    );
    assert_eq!(visitors.think, Think::Uniform(1_000_000_000, 3_000_000_000));
    assert_eq!(robots.stages[0], stage(0.5, 1000.0, 10));
    assert!(
        matches!(robots.model, Model::Open { rate_per_s, max_in_flight: 200, .. } if rate_per_s == 1000.0)
    );
    assert_eq!((robots.start_ns, robots.when_behind), (10_000_000_000, WhenBehind::Drop));
    assert_eq!(meters.model, Model::Closed { users: 40, pace_ns: Some(500_000_000) });
    assert_eq!((meters.start_ns, meters.when_behind), (90_000_000_000, WhenBehind::Drop));
    assert_eq!(readers.think, Think::Exponential(2_000_000_000));
    assert_eq!((readers.stages.len(), scripts.think), (0, Think::Constant(2_000_000_000)));

    let with =
        |profile: &str| plan("models", &Options { profile: Some(profile.into()), ..Options::default() });
    assert_eq!(with("calm").cases()[0].loads[0].model, Model::Closed { users: 5, pace_ns: None });
    assert_eq!(with("short").cases()[0].loads[0].until, Until::Elapsed(1_000_000_000));
}
