//! Incompatible stages, think times, paces and starts, and the messages people get.

use loadlab_plan::{Options, Plan};
use loadlab_record::documents::figure::NumberKind;

use crate::common;
use crate::common::{HEAD, briefly, mistakes, plain};

const J: &str = "  journey: [ { get: \"http://127.0.0.1:1/\" } ]\n";

/// The mistakes in a load, in short.
fn load(inside: &str) -> String {
    briefly(&format!("{HEAD}load:\n{inside}\n{J}"), &Options::default())
}

#[test]
fn stages_say_who_and_how_long_themselves() {
    let both = format!("{HEAD}load:\n  users: 5\n  stages: [{{ to: 100, over: 10s }}]\n  duration: 5s\n{J}");
    insta::assert_snapshot!(plain(&both), @r"
    plan.yaml:5:3: `users` and `stages` cannot be combined
       |
     5 |   stages: [{ to: 100, over: 10s }]
       |   ^^^^^^
      `users` is here: plan.yaml:4:3
       |
     4 |   users: 5
       |   ^^^^^
      hint: a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, and a `command` makes its own load

    plan.yaml:6:3: `stages` and `duration` cannot be combined
       |
     6 |   duration: 5s
       |   ^^^^^^^^
      `stages` is here: plan.yaml:5:3
       |
     5 |   stages: [{ to: 100, over: 10s }]
       |   ^^^^^^
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10/s, over: 10s }]\n  rate: 5/s\n  ramp: 5s"), @r"
    plan.yaml:5:3: `stages` and `rate` cannot be combined
      hint: a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, and a `command` makes its own load
    plan.yaml:6:3: `ramp` and `stages` cannot be combined
      hint: a ramp is a stage: `{ to: 100, over: 10s }`
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10, over: 10s }]\n  repeats: 3"), @r"
    plan.yaml:5:3: `stages` and `repeats` cannot be combined
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    plan.yaml:5:3: `repeats` needs `users`, which is missing
      hint: `requests` or `duration` end a `rate`
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10, over: 10s }]\n  warmup: 10s"), @r"
    plan.yaml:5:3: `warmup` leaves nothing of the load to measure
      hint: use a warm-up shorter than the load
    ");
}

#[test]
fn levels_have_one_unit() {
    let mixed = "  stages: [{ to: 10, over: 10s }, { to: 100/s, over: 1s }, { to: 5/s, over: 1s }]";
    insta::assert_snapshot!(plain(&format!("{HEAD}load:\n{mixed}\n{J}")), @r"
    plan.yaml:4:41: this is a rate, an earlier level is a number of users
       |
     4 |   stages: [{ to: 10, over: 10s }, { to: 100/s, over: 1s }, { to: 5/s, over: 1s }]
       |                                         ^^^^^
      the earlier one: plan.yaml:4:18
       |
     4 |   stages: [{ to: 10, over: 10s }, { to: 100/s, over: 1s }, { to: 5/s, over: 1s }]
       |                  ^^
      hint: all levels of a load are users (`100`), or all are rates (`100/s`)
    ");
    insta::assert_snapshot!(load("  stages: [{ from: 10/s, to: 10, over: 10s }]"), @r"
    plan.yaml:4:30: this is a number of users, an earlier level is a rate
      hint: all levels of a load are users (`100`), or all are rates (`100/s`)
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 1.5, over: 1s }]"), @"plan.yaml:4:18: `1.5` is not a number of users such as `100`, or a rate such as `1000/s`");
    insta::assert_snapshot!(load("  stages: [{ to: 10/fortnight, over: 1s }]"), @"plan.yaml:4:18: `10/fortnight` is not a number of users such as `100`, or a rate such as `1000/s`");
    insta::assert_snapshot!(load("  stages: [{ to: 20000000, over: 1s }]"), @"plan.yaml:4:18: 20000000 users; there can be 0 to 10000000");
    insta::assert_snapshot!(load("  stages: [{ to: -3, over: 1s }]"), @"plan.yaml:4:18: `-3` is not a number of users such as `100`, or a rate such as `1000/s`");
    insta::assert_snapshot!(load("  stages: [{ to: ./s, over: 1s }]"), @"plan.yaml:4:18: `./s` is not a number of users such as `100`, or a rate such as `1000/s`");
    for fine in
        ["[{ to: 0, over: 1s }, { to: 5/s, over: 1s }]", "[{ to: 0/s, over: 1s }, { to: 5/s, over: 1s }]"]
    {
        assert_eq!(load(&format!("  stages: {fine}")), "", "{fine}");
    }
}

#[test]
fn a_stage_is_one_thing() {
    insta::assert_snapshot!(load("  stages: [{ to: 10 }]"), @r"
    plan.yaml:4:14: a stage with `to` needs `over`
      hint: how long it takes to get there; `over: 0s` is a jump
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10, hold: 10s }]"), @r"
    plan.yaml:4:22: `to` and `hold` cannot be combined
      hint: a stage moves to a level, or holds the current one
    ");
    insta::assert_snapshot!(load("  stages: [{ over: 10s }]"), @r"
    plan.yaml:4:12: a stage needs one of `to`, `hold`
      hint: a stage moves to a level, or holds the current one
    plan.yaml:4:14: `over` needs `to`, which is missing
      hint: `hold` already says how long
    ");
    insta::assert_snapshot!(load("  stages: [{ hold: 10s, over: 10s }]"), @r"
    plan.yaml:4:3: these stages send nothing: all levels are 0
      hint: add a level such as `{ to: 100, over: 10s }`
    plan.yaml:4:25: `over` needs `to`, which is missing
      hint: `hold` already says how long
    ");
    insta::assert_snapshot!(load("  stages: [{ users: 10, over: 10s }]"), @r"
    plan.yaml:4:14: unknown key `users` in a stage
      hint: the level at the end of a stage is `to`: users (`100`) or a rate (`100/s`)
    ");
    insta::assert_snapshot!(load("  stages: { to: 10, over: 10s }"), @r"
    plan.yaml:4:11: expected a list of stages such as `[{ to: 100, over: 10s }, { hold: 30s }]`, found a map
      hint: a list is written `[a, b]`, or one `- item` a line
    ");
    insta::assert_snapshot!(load("  stages: [10, 20]"), @r"
    plan.yaml:4:12: expected a map for a stage, found `10`
      hint: its keys are `to`, `over`, `hold`, `from`
    ");
}

#[test]
fn stages_ask_for_something_and_take_time() {
    insta::assert_snapshot!(load("  stages: []"), @r"
    plan.yaml:4:3: `stages` is empty
      hint: add one such as `{ to: 100, over: 10s }`
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10, over: 0s }]"), @r"
    plan.yaml:4:3: these stages take no time
      hint: add one that holds: `{ hold: 30s }`
    ");
    insta::assert_snapshot!(load("  stages: [{ hold: 10s }]"), @r"
    plan.yaml:4:3: these stages send nothing: all levels are 0
      hint: add a level such as `{ to: 100, over: 10s }`
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10, over: 366d }, { hold: 1d }]"), @r"
    plan.yaml:4:3: these stages take longer than a year
      hint: use shorter ones
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10, over: 1s }, { hold: 0s }]"), @"plan.yaml:4:42: `hold` must be greater than zero");
}

#[test]
fn what_belongs_to_the_other_model() {
    insta::assert_snapshot!(load("  stages: [{ to: 10, over: 10s }]\n  arrivals: poisson\n  max_in_flight: 5\n  when_behind: drop"), @r"
    plan.yaml:5:3: `arrivals` does not apply to stages of users
      hint: users send when their last request has ended
    plan.yaml:6:3: `max_in_flight` does not apply to stages of users
      hint: each user has one request at a time
    plan.yaml:7:3: users without `pace` are never behind
      hint: leave it out, or give them a `pace`
    ");
    insta::assert_snapshot!(load("  stages: [{ to: 10/s, over: 10s }]\n  pace: 1s\n  think: 1s"), @r"
    plan.yaml:5:3: `pace` does not apply to stages of a rate
      hint: with a `rate`, requests fall due anyway
    plan.yaml:6:3: `think` does not apply to stages of a rate
      hint: with a `rate`, requests fall due whether or not a response has arrived
    ");
    insta::assert_snapshot!(load("  rate: 10/s\n  duration: 1s\n  think: 1s"), @r"
    plan.yaml:6:3: `think` needs `users`, which is missing
      hint: with a `rate`, requests fall due whether or not a response has arrived
    ");
}

#[test]
fn think_times() {
    let think = |text: &str| load(&format!("  users: 1\n  duration: 5s\n  think: {text}"));
    for fine in ["0s", "2s", "{ uniform: [1s, 3s] }", "{ uniform: [0s, 0s] }", "{ exponential: 2s }"] {
        assert_eq!(think(fine), "", "{fine}");
    }
    insta::assert_snapshot!(think("2"), @r"
    plan.yaml:6:10: `2` is not a duration such as `300ms`, `10s` or `1m30s`
      hint: add a unit: `2s`?
    ");
    insta::assert_snapshot!(think("[1s, 2s]"), @r"
    plan.yaml:6:10: expected a map for `think`, found a list
      hint: its keys are `uniform`, `exponential`
    ");
    insta::assert_snapshot!(think("{ uniform: 1s }"), @r"
    plan.yaml:6:21: expected the shortest and the longest time: `uniform: [1s, 3s]`, found `1s`
      hint: a list is written `[a, b]`, or one `- item` a line
    ");
    insta::assert_snapshot!(think("{ uniform: [1s] }"), @r"
    plan.yaml:6:12: `uniform` takes two times
      hint: the shortest and the longest: `uniform: [1s, 3s]`
    ");
    insta::assert_snapshot!(think("{ uniform: [3s, 1s] }"), @r"
    plan.yaml:6:26: the longest time is shorter than the shortest
      hint: the shortest comes first
    ");
    insta::assert_snapshot!(think("{ exponential: 0s }"), @"plan.yaml:6:25: `exponential` must be greater than zero");
    insta::assert_snapshot!(think("{ normal: 1s }"), @r"
    plan.yaml:6:12: unknown key `normal` in `think`
      hint: one of `uniform`, `exponential`
    ");
    let both = format!("{HEAD}load:\n  users: 1\n  duration: 5s\n  pace: 1s\n  think: 1s\n{J}");
    insta::assert_snapshot!(plain(&both), @r"
    plan.yaml:7:3: `think` and `pace` cannot be combined
       |
     7 |   think: 1s
       |   ^^^^^
      `pace` is here: plan.yaml:6:3
       |
     6 |   pace: 1s
       |   ^^^^
      hint: use `pace` for steps at fixed times, however long a response takes, and `think` for a pause after each response
    ");
}

#[test]
fn options_that_meet_stages() {
    let text = common::plan_text("models");
    let set = |path: &str, value: &str| {
        let options = Options { set: vec![(path.to_owned(), value.to_owned())], ..Options::default() };
        mistakes(text, &options)
    };
    insta::assert_snapshot!(set("loads.visitors.duration", "5s"), @r#"
    plan.yaml:10:5: `warmup` leaves nothing of the load to measure
       |
    10 |     warmup: 10s
       |     ^^^^^^
      `duration` is here: --set loads.visitors.duration=5s
       |
       | loads.visitors.duration=5s
       |                ^^^^^^^^
      hint: use a warm-up shorter than the load

    --set loads.visitors.duration=5s: `stages` and `duration` cannot be combined
       |
       | loads.visitors.duration=5s
       |                ^^^^^^^^
      `stages` is here: plan.yaml:8:5
       |
     8 |     stages: [{ to: 100, over: 10s }, { hold: 30s }, { to: 0, over: 5s }, { hold: 1m }, { to: "${case…
       |     ^^^^^^
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    "#);
    assert_eq!(set("loads.readers.stages", "[{ to: 3, over: 1s }]"), "no mistake");
    assert_eq!(set("loads.visitors.stages.0.over", "1s"), "no mistake");
}

/// The mistakes in a search, in short.
fn find(inside: &str) -> String {
    briefly(
        &format!(
            "{HEAD}load: {{ rate: 5/s, duration: 4s, journey: [ {{ get: \"http://127.0.0.1:1/\" }} ] }}\nfind: {inside}\n"
        ),
        &Options::default(),
    )
}

#[test]
fn a_search_says_what_it_varies_and_what_a_level_must_meet() {
    insta::assert_snapshot!(find("{ rate: 5..50 }"), @r"
    plan.yaml:4:1: `find` needs `expect`
      hint: what a level must meet, such as `p99 < 100ms`; it must also be steady
    ");
    insta::assert_snapshot!(find("{ expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:4:1: `find` needs one of `users`, `rate`
      hint: a search varies either users or a rate
    ");
    insta::assert_snapshot!(find("{ rate: 5..50, users: 1..5, expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:4:22: `rate` and `users` cannot be combined
      hint: a search varies either users or a rate
    ");
    insta::assert_snapshot!(find("{ rate: 50, expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:4:15: `50` is not a range such as `1..500`
    ");
    insta::assert_snapshot!(find("{ rate: 50..5, expect: [\"p99 < 5ms\"] }"), @"plan.yaml:4:15: 50 is more than 5");
    insta::assert_snapshot!(find("{ users: 0..5, expect: [\"p99 < 5ms\"] }"), @"plan.yaml:4:16: the lowest level must be at least 1");
    insta::assert_snapshot!(find("{ users: 1..99000000, expect: [\"p99 < 5ms\"] }"), @"plan.yaml:4:16: the highest level must be at most 10000000");
    insta::assert_snapshot!(find("{ rate: 5..50, expect: [] }"), @r#"
    plan.yaml:4:22: `expect` is empty: every level would meet it
      hint: say what a level must meet: `[ "p99 < 100ms", "errors < 1%" ]`
    "#);
    insta::assert_snapshot!(find("{ rate: 5..50, expect: [\"p98 < 5ms\"] }"), @r"
    plan.yaml:4:32: unknown name `p98`
      hint: the percentiles are `p50`, `p75`, `p90`, `p95`, `p99`, `p99_9` and `p99_99`
    ");
    insta::assert_snapshot!(find("{ rate: 5..50, load: other, expect: [\"p99 < 5ms\"], max_levels: 0 }"), @r"
    plan.yaml:4:28: there is no load `other`
      hint: its loads are `load`
    plan.yaml:4:70: `max_levels` is 0; it must be from 1 to 100
    ");
}

#[test]
fn a_search_varies_one_number_of_one_load() {
    let with =
        |loads: &str, find: &str| briefly(&format!("{HEAD}{loads}\nfind: {find}\n"), &Options::default());
    let journey = "journey: [ { get: \"http://127.0.0.1:1/\" } ]";
    let stages = format!("load: {{ stages: [{{ to: 5, over: 1s }}], {journey} }}");
    insta::assert_snapshot!(with(&stages, "{ users: 1..5, expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:4:1: `load` has stages, but a search varies one number
      hint: give it `users` or a `rate`, or name another load: `load`, or --load
    ");
    let thinks = format!("load: {{ users: 1, think: 1s, duration: 1s, {journey} }}");
    insta::assert_snapshot!(with(&thinks, "{ rate: 1..5, expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:4:1: the users of `load` have think time, but a rate has no users
      hint: search `users`, or take `think` away: --set load.think=0s
    ");
    let two = format!(
        "loads:\n  a: {{ users: 1, duration: 1s, {journey} }}\n  b: {{ users: 1, duration: 1s, {journey} }}"
    );
    insta::assert_snapshot!(with(&two, "{ rate: 1..5, expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:6:1: the plan has 2 loads, but a search varies one
      hint: choose it: `load: a`; there are `a`, `b`
    ");
    insta::assert_snapshot!(with(&two, "{ rate: 1..5, load: b, expect: [\"p99 < 5ms\"] }"), @"");
    // `loadlab find` ignores it.
    let options = Options { is_search: true, ..Options::default() };
    let find = "find: { users: 1..5, expect: [\"p99 < 5ms\"] }";
    assert_eq!(mistakes(&format!("{HEAD}{stages}\n{find}\n"), &options), "no mistake");
    let beside = two.replace("b: { users: 1, duration: 1s,", "b: { stages: [{ to: 5, over: 1s }],");
    insta::assert_snapshot!(with(&beside, "{ rate: 1..5, load: a, expect: [\"p99 < 5ms\"] }"), @r"
    plan.yaml:6:1: `b` has stages, but the loads beside the one that a search varies stay the same
      hint: give it constant `users` or a `rate`; a profile of the plan can do so: --profile
    ");
}

/// A search over a rate would send the requests of users without what only users have.
#[test]
fn a_rate_is_not_searched_where_users_log_in() {
    let step = "get: \"http://127.0.0.1:1/\"";
    let token = "capture: { token: { json: /t } }";
    let with = |more: &str, journey: &str, vary: &str| {
        let load = format!("load: {{ users: 1, duration: 1s, {more}journey: [ {journey} ] }}");
        let find = format!("find: {{ {vary}: 1..5, expect: [\"p99 < 5ms\"] }}");
        briefly(&format!("{HEAD}{load}\n{find}\n"), &Options::default())
    };
    let plain = format!("{{ {step} }}");
    let captured = format!("{{ {step}, {token} }}, {{ get: \"http://127.0.0.1:1/${{token}}\" }}");
    let talk = "{ websocket: \"ws://127.0.0.1:1/\" }";
    for (more, journey, what) in [
        (format!("user_setup: [ {plain} ], "), plain.as_str(), "have a `user_setup`"),
        (format!("user_teardown: [ {plain} ], "), &plain, "have a `user_teardown`"),
        ("cookies: true, ".to_owned(), &plain, "keep cookies"),
        (String::new(), &captured, "use what they capture"),
        (String::new(), talk, "hold conversations"),
    ] {
        let found = with(&more, journey, "rate");
        let expect = format!("the users of `load` {what}, but a rate sends single requests");
        assert!(found.contains(&expect), "{found}");
        assert_eq!(with(&more, journey, "users"), "");
    }
    // Captured for checks and figures only.
    assert_eq!(with("", &format!("{{ {step}, {token} }}"), "rate"), "");
}

/// What is known only at the end decides nothing before.
#[test]
fn conditions_ask_only_for_what_is_known_when_they_are_evaluated() {
    let with = |more: &str| {
        let load =
            "load: { users: 1, duration: 9s, journey: [ { get: \"http://127.0.0.1:1/${unique}\" } ] }\n";
        let system = "system: { probes: { stored: { command: \"echo 1\" } } }\n";
        let loss = "durability: { command: \"cat ids\" }\n";
        briefly(&format!("{HEAD}{system}{load}{loss}{more}\n"), &Options::default())
    };
    for (more, expect) in [
        ("stop_when: [\"p99[0s..5s] > 1s\"]", "`p99` of a part is known only when the trial is over"),
        ("stop_when: [\"lost > 0\"]", "`lost` is known only when the trial is over"),
        ("drain: { until: \"lost == 0\" }", "`lost` is known only when the trial is over"),
        (
            "figures: { gone: lost + doubled }\nstop_when: [\"gone > 0\"]",
            "`lost` is known only when the trial is over",
        ),
        (
            "find: { users: 1..5, expect: [\"p99 < 5ms\"] }\nexpect: [\"p99[0s..5s] < 1s\"]",
            "of a whole search, `p99` is not known over time",
        ),
        (
            "find: { users: 1..5, expect: [\"p99 < 5ms\"] }\nexpect: [\"steady(stored, 1s)\"]",
            "of a whole search, `stored` is not known over time",
        ),
    ] {
        let found = with(more);
        assert!(found.contains(expect), "{more}: {found}");
    }
    for more in [
        "stop_when: [\"errors > 5%\"]\ndrain: { until: \"stored == accepted and steady(stored, 1s)\" }\nexpect: [\"lost == 0\"]",
        "find: { users: 1..5, expect: [\"p99 < 5ms\"] }\nexpect: [\"capacity > 2\"]",
        "find: { users: 1..5, expect: [\"p99[0s..5s] < 5ms\"] }",
    ] {
        assert_eq!(with(more), "", "{more}");
    }
}

/// With `loadlab find` what is expected is of each level, whether or not the plan has a search of its own.
#[test]
fn what_a_search_by_options_expects_is_of_each_level() {
    let load = "load: { users: 1, duration: 9s, batches: { repeat: 2 }, journey: [ { get: \"http://127.0.0.1:1/\" } ] }";
    let system = "system: { probes: { stored: { command: \"echo 1\" } } }";
    for own in ["", "find: { users: 1..5, expect: [\"p99 < 5ms\"] }\nfigures: { most: capacity }"] {
        let text = format!("{HEAD}{system}\n{load}\n{own}\n");
        let check = |condition: &str, expect: &str| {
            let set = vec![("expect".to_owned(), format!("[\"{condition}\"]"))];
            let options = Options { set, is_search: true, ..Options::default() };
            let found = mistakes(&text, &options);
            assert!(found.contains(expect), "{own} {condition}: {found}");
        };
        check("p99[1s..5s] < 1s", "no mistake");
        check("steady(stored, 1s)", "no mistake");
        // Levels may be longer than the plan's load.
        check("p99[20s..30s] < 1s", "no mistake");
        check("capacity > 5", "`capacity` has no value: it is what the search finds");
        check("p51 < 5ms", "unknown name `p51`");
        check("ok[batch 1] > 1", "no mistake");
        check("ok[batch 2] > 1", "a level of a search has only 1 batch");
        if !own.is_empty() {
            check("most > 5", "`capacity` has no value: it is what the search finds");
        }
        let options = Options { is_search: true, ..Options::default() };
        let plan = Plan::parse("plan.yaml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
        let case = &plan.cases()[0];
        assert_eq!((case.find.is_none(), case.figures.len()), (true, 0));
    }
}

/// Of seconds after a level nothing is known, so no level would meet what is expected of them.
#[test]
fn what_a_level_must_meet_is_not_about_a_time_after_it() {
    let load = "load: { users: 1, duration: 9s, journey: [ { get: \"http://127.0.0.1:1/\" } ] }";
    let system = "system: { components: { web: { run: w } } }";
    let figures = "figures: { late: \"p99[8s..14s]\", later: 2 * late }";
    // A level lasts 8 s after settling for 2 s.
    let find = |condition: &str| {
        let find = format!(
            "find: {{ users: 1..5, settle: 2s, level_duration: 8s, expect: [ok > 1, \"{condition}\"] }}"
        );
        format!("{HEAD}{system}\n{load}\n{figures}\n{find}\n")
    };
    let check = |condition: &str, is_late: bool| {
        let found = briefly(&find(condition), &Options::default());
        let expect = "plan.yaml:6:71: `p99` is asked for a time after the level, which ends after 10.0 s\n  hint: make \
                      levels longer: `level_duration`";
        assert_eq!(found, if is_late { expect } else { "" }, "{condition}");
    };
    check("p99[10s..11s] < 1s", true);
    check("p99[5s..12s] < 1s", true);
    check("later < 1s", true);
    // The last second of the record may be short.
    check("p99[5s..11s] < 1s", false);
    // Components go on after the load.
    check("web.cpu[5s..12s] < 90%", false);
    // With `loadlab find` levels are as long as its options say.
    let options = Options { is_search: true, ..Options::default() };
    assert_eq!(mistakes(&find("p99[5s..12s] < 1s"), &options), "no mistake");
}

/// `capacity` is a number of users or a rate, depending on the search, and the first figure.
#[test]
fn what_is_searched_is_a_figure() {
    let load = "load: { rate: 5/s, warmup: 1s, duration: 4s, journey: [ { get: \"http://127.0.0.1:1/\" } ] }";
    let read = |rest: &str| Plan::parse("plan.yaml", &format!("{HEAD}{load}\n{rest}\n"), &Options::default());
    let plan = read("find: { rate: 5/s..2k, expect: [\"p99 < 5ms\"] }\nexpect: [\"capacity > 100/s\"]\nfigures: { p50: p50 }")
        .expect("it is valid");
    let case = &plan.cases()[0];
    let find = case.find.as_ref().expect("it searches");
    assert_eq!(
        (find.range, find.max_levels, find.level_ns, find.settle_ns),
        ((5, 2000), 15, 3_000_000_000, 1_000_000_000)
    );
    let figures: Vec<&str> = case.figures.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(figures, ["capacity", "p50"]);
    assert_eq!(case.figures[0].kind, NumberKind::Rate);
    let users = "find: { users: 1..50, settle: 0s, level_duration: 2s, expect: [\"p99 < 5ms\"] }";
    let plan = read(&format!("{users}\nexpect: [\"capacity > 20\"]")).expect("it is valid");
    let case = &plan.cases()[0];
    let find = case.find.as_ref().expect("it searches");
    assert_eq!((find.level_ns, find.settle_ns), (2_000_000_000, 0));
    assert_eq!((case.figures[0].kind, case.figures[0].unit.as_deref()), (NumberKind::Plain, Some("users")));
    // The plan's own name for it is enough.
    let plan = read(&format!("{users}\nfigures: {{ most users: capacity }}")).expect("it is valid");
    assert_eq!(plan.cases()[0].figures.len(), 1);
    assert!(
        plan.describe().contains(
            &"searched: in each trial, users from 1 to 50 for p99 < 5ms: at most 15 levels of 2s".to_owned()
        ),
        "{:#?}",
        plan.describe()
    );
}
