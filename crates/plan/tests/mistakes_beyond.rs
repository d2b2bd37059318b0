//! Mistakes beyond the system and the loads: the matrix, conditions, profiles, options.

use loadlab_plan::Options;

use crate::common::{HEAD, LOAD, briefly, mistakes, plain};

#[test]
fn matrices() {
    let matrix = |inside: &str| briefly(&format!("{HEAD}{LOAD}matrix: {inside}\n"), &Options::default());
    insta::assert_snapshot!(matrix("[]"), @r"
    plan.yaml:4:1: `matrix` has no cases
      hint: leave it out for a single case
    ");
    insta::assert_snapshot!(matrix("3"), @r"
    plan.yaml:4:9: expected a list of named cases or `axes` for `matrix`, found `3`
      hint: matrix: { axes: { size: [small, large] } }
    ");
    insta::assert_snapshot!(matrix("{ axes: {} }"), @r"
    plan.yaml:4:11: `axes` is empty
      hint: leave `matrix` out for a single case
    ");
    insta::assert_snapshot!(matrix("{ axes: { a: [], b: [1, 1], c: 3, name: [x], d-e: [[1]] } }"), @r"
    plan.yaml:4:19: axis `a` has no values
    plan.yaml:4:33: axis `b` has `1` twice
    plan.yaml:4:40: expected a list of values, found `3`
      hint: a list is written `[a, b]`, or one `- item` a line
    plan.yaml:4:43: `name` cannot be an axis: it is the name of the case
    plan.yaml:4:54: `d-e` is not a valid name for an axis
      hint: letters, digits and `_`, at most 64, not starting with a digit
    plan.yaml:4:60: expected a text or a number for `d-e`, found a list
    ");
    insta::assert_snapshot!(matrix("{ axis: { a: [1] } }"), @r"
    plan.yaml:4:11: unknown key `axis` in `matrix`
      hint: did you mean `axes`?
    ");
    insta::assert_snapshot!(matrix("{ axes: { a: [1] } }\ntrials: ${case.a}"), @r"
    plan.yaml:5:11: this is the same for all cases
      hint: `${case.…}` can be used in `system`, in loads and in conditions
    ");
    insta::assert_snapshot!(matrix("[ { name: a, x: 1 }, { name: a, y: 1 }, { x: 3 }, { name: b, x: ~ } ]"), @r"
    plan.yaml:4:38: case `a` has no `x`
      hint: every case must set the same values
    plan.yaml:4:38: two cases are named `a`
    plan.yaml:4:41: case `a` has `y`, but the first case does not
      hint: every case must set the same values
    plan.yaml:4:49: this case has no `name`
    plan.yaml:4:73: expected a text or a number for `x`, found nothing
      hint: write `none` for no limit
    ");
    insta::assert_snapshot!(matrix("{ axes: { a: [1, 2] }, exclude: [ { b: 1 } ], include: [ { c: 3 } ] }"), @r"
    plan.yaml:4:45: there is no axis `b`
      hint: only `a` is allowed here
    plan.yaml:4:66: case `to add` has no `a`
      hint: every case must set the same values
    plan.yaml:4:68: case `to add` has `c`, but the first case does not
      hint: every case must set the same values
    ");
    insta::assert_snapshot!(matrix("{ axes: { a: [\"${case.b}\"] } }"), @r"
    plan.yaml:4:23: values of the matrix are literal: this `${…}` is not expanded here
      hint: only `${env.NAME}` and `${file:PATH}` are
    ");
    let many: Vec<String> = (0..200).map(|i| i.to_string()).collect();
    let many = many.join(", ");
    insta::assert_snapshot!(matrix(&format!("{{ axes: {{ a: [{many}], b: [{many}] }} }}")), @r"
    plan.yaml:4:11: these axes make more than 10000 cases
      hint: fewer axes or values
    ");
    insta::assert_snapshot!(matrix(&format!("{{ axes: {{ a: [{many}] }} }}\ntrials: 51")), @r"
    plan.yaml:5:1: 200 cases with 51 trials each make 10200; at most 10000
      hint: fewer trials, values or axes
    ");
}

#[test]
fn a_profile_that_was_not_chosen_is_checked_too() {
    let text = format!("{HEAD}{LOAD}profiles: {{ full: {{ load.user: 5 }}, odd: {{ matrix: 3 }} }}\n");
    insta::assert_snapshot!(plain(&text), @r"
    plan.yaml:4:26: with profile `full`: unknown key `user` in a load
       |
     4 | profiles: { full: { load.user: 5 }, odd: { matrix: 3 } }
       |                          ^^^^
      hint: did you mean `users`?

    plan.yaml:4:52: with profile `odd`: expected a list of named cases or `axes` for `matrix`, found `3`
       |
     4 | profiles: { full: { load.user: 5 }, odd: { matrix: 3 } }
       |                                                    ^
      hint: matrix: { axes: { size: [small, large] } }
    ");
    let both = format!("{HEAD}{LOAD}profiles: {{ full: {{ load.duration: 5s, load.repeats: 3 }} }}\n");
    insta::assert_snapshot!(plain(&both), @r"
    plan.yaml:4:45: with profile `full`: `duration` and `repeats` cannot be combined
       |
     4 | profiles: { full: { load.duration: 5s, load.repeats: 3 } }
       |                                             ^^^^^^^
      `duration` is here: plan.yaml:4:26
       |
     4 | profiles: { full: { load.duration: 5s, load.repeats: 3 } }
       |                          ^^^^^^^^
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    ");
}

#[test]
fn options() {
    let text = format!("{HEAD}{LOAD}profiles: {{ quick: {{ trials: 2 }}, full: {{ trials: 5 }} }}\n");
    let set = |path: &str, value: &str| {
        mistakes(&text, &Options { set: vec![(path.to_owned(), value.to_owned())], ..Options::default() })
    };
    insta::assert_snapshot!(set("load.userz", "5"), @r"
    --set load.userz=5: unknown key `userz` in a load
       |
       | load.userz=5
       |      ^^^^^
      hint: did you mean `users`?
    ");
    insta::assert_snapshot!(set("load.users", "many"), @r"
    --set load.users=many: `many` is not a whole number
       |
       | load.users=many
       |            ^^^^
    ");
    insta::assert_snapshot!(set("load.users.x", "1"), @r"
    --set load.users.x=1: `load.users` is a single value: it has no `x`
       |
       | load.users.x=1
       |            ^
    ");
    insta::assert_snapshot!(set("load.journey.3.get", "x"), @r"
    --set load.journey.3.get=x: `load.journey` is a list of 1: it has no item `3`
       |
       | load.journey.3.get=x
       |              ^
      hint: items count from 0: `load.journey.0`; or set the whole list: `load.journey=[…]`
    ");
    insta::assert_snapshot!(set("load.users", "[1"), @r"
    --set load.users=[1: this is not YAML: unclosed bracket '['
       |
       | load.users=[1
       |            ^
    ");
    insta::assert_snapshot!(set("laod.users", "5"), @r"
    --set laod.users=5: unknown key `laod` in the plan
       |
       | laod.users=5
       | ^^^^
      hint: did you mean `load`?
    ");
    insta::assert_snapshot!(set("load..users", "5"), @r"
    --set load..users=5: `load..users` is not a path into the plan
       |
       | load..users=5
       | ^^^^^^^^^^^
      hint: separate keys with dots: `load.duration`
    ");
    insta::assert_snapshot!(set("profiles.quick.trials", "5"), @r"
    --set profiles.quick.trials=5: `profiles` cannot be overridden
       |
       | profiles.quick.trials=5
       | ^^^^^^^^^^^^^^^^^^^^^
    ");
    insta::assert_snapshot!(set("name", ""), @r"
    plan.yaml:1:1: the plan needs `name`
       |
     1 | loadlab: 1
       | ^^^^^^^
      hint: what the experiment is called, in reports and in the name of the run's folder
    ");
}

#[test]
fn options_that_choose() {
    let text = format!("{HEAD}{LOAD}profiles: {{ quick: {{ trials: 2 }}, full: {{ trials: 5 }} }}\n");
    insta::assert_snapshot!(mistakes(&text, &Options { profile: Some("quik".into()), ..Options::default() }), @r"
    --profile: this plan has no profile `quik`
      hint: did you mean `quick`? it has `quick`, `full`
    ");
    insta::assert_snapshot!(mistakes(&text, &Options { trials: Some(0), ..Options::default() }), @r"
    --trials 0: `trials` is 0; it must be from 1 to 10000
       |
       | 0
       | ^
    ");
    insta::assert_snapshot!(mistakes(&text, &Options { cases_glob: Some("defult".into()), ..Options::default() }), @r"
    --case: no case matches `defult`
      hint: did you mean `default`?
    ");
    insta::assert_snapshot!(mistakes(&text, &Options { tags: vec!["page".into()], ..Options::default() }), @r"
    --tags: no step has the tag `page`
      hint: no step of this plan has a tag
    ");
    let tagged = text.replace("{ get:", "{ tags: [page], get:");
    insta::assert_snapshot!(mistakes(&tagged, &Options { tags: vec!["pages".into()], ..Options::default() }), @r"
    --tags: no step has the tag `pages`
      hint: did you mean `page`?
    ");

    let several =
        format!("{HEAD}loads: {{ a: {{ users: 1, requests: 1, journey: [ {{ get: \"http://a/\" }} ] }} }}\n");
    let options = Options { set: vec![("load.users".into(), "5".into())], ..Options::default() };
    insta::assert_snapshot!(mistakes(&several, &options), @r"
    --set load.users=5: this plan has `loads`, not `load`
       |
       | load.users=5
       | ^^^^^^^^^^
      hint: say which one: `loads.a.users`
    ");
}

/// A plan with a component, a probe, a tag, and more.
fn with(inside: &str) -> String {
    format!(
        "{HEAD}{}system:\n  components: {{ db: {{ run: x }} }}\n  probes: {{ stored: {{ http: \"http://a/\", json: \"/n\" }} }}\n{inside}\n",
        LOAD.replace("{ get:", "{ tags: [page], get:")
    )
}

#[test]
fn plans_with_too_many_trials_for_distinct_request_ids_are_refused() {
    let plan = |trials: u32, batches: u32, durability: &str| {
        format!(
            "loadlab: 1\nname: n\ntrials: {trials}\nsystem: {{ components: {{ db: {{ run: x }} }}, probes: {{ stored: {{ http: \"http://a/\", json: \"/n\" }} }} }}\n\
             load:\n  users: 1\n  requests: 1\n  batches: {{ repeat: {batches} }}\n  journey: [ {{ get: \"http://127.0.0.1/${{unique}}\" }} ]\ndurability: {durability}\n"
        )
    };
    let by_ids = "{ http: \"http://127.0.0.1/ids\" }";
    assert_eq!(plain(&plan(10_000, 209, by_ids)), "no mistake");
    assert_eq!(plain(&plan(10_000, 210, "{ probe: stored }")), "no mistake", "counts need no ids");
    insta::assert_snapshot!(plain(&plan(10_000, 210, by_ids)), @r#"
    plan.yaml:10:1: request ids cannot distinguish 10000 trials of 210 loads and batches: at most 2097152 in all are possible
       |
    10 | durability: { http: "http://127.0.0.1/ids" }
       | ^^^^^^^^^^
      hint: use fewer trials, cases or batches, or count with `probe`
    "#);
}

#[test]
fn ids_suffice_for_the_requests_of_every_load_or_the_plan_is_refused() {
    let plan = |trials: u32, load: &str| {
        format!(
            "loadlab: 1\nname: n\ntrials: {trials}\nload:\n  {load}\n  batches: {{ repeat: 209 }}\n\
             \x20 journey: [ {{ get: \"http://127.0.0.1/${{unique}}\" }} ]\ndurability: {{ http: \"http://127.0.0.1/ids\" }}\n"
        )
    };
    let requests = |n: u64| format!("users: 1\n  requests: {n}");
    // The more trials there are, the fewer ids each has.
    for (trials, room) in [(1, 1 << 40), (10_000, 1 << 32)] {
        assert_eq!(plain(&plan(trials, &requests(room))), "no mistake");
        let refused = plain(&plan(trials, &requests(room + 1)));
        let expect = format!(
            "request ids cannot distinguish {} requests of load `load`: at most {room} in a batch",
            room + 1
        );
        assert!(refused.contains(&expect), "{refused}");
    }
    let lasting = |hours: u32| format!("rate: 1000000/s\n  duration: {hours}h");
    assert_eq!(plain(&plan(10_000, &lasting(1))), "no mistake");
    insta::assert_snapshot!(plain(&plan(10_000, &lasting(2))), @r#"
    plan.yaml:9:1: request ids cannot distinguish 7200000000 requests of load `load`: at most 4294967296 in a batch are possible
       |
     9 | durability: { http: "http://127.0.0.1/ids" }
       | ^^^^^^^^^^
      hint: use fewer requests, trials, cases or batches, or count with `probe`
    "#);
}

#[test]
fn conditions() {
    let text = with;
    let fine = "expect: [ p99 < 2s, tag.page.p99 < 1s, db.cpu < 90%, stored == 5 ]\ndrain: { until: \"steady(stored, 5s)\" }";
    assert_eq!(plain(&text(fine)), "no mistake");
    insta::assert_snapshot!(plain(&text("expect: [ \"p99 < 2\", 'errors', \"p99 <\" ]")), @r#"
    plan.yaml:7:12: cannot compare `p99` (a duration) and `2` (a plain number) in `p99 < 2`
       |
     7 | expect: [ "p99 < 2", 'errors', "p99 <" ]
       |            ^^^^^^^
      hint: write `2ms` or `2s`

    plan.yaml:7:23: `errors` is a number, not a condition
       |
     7 | expect: [ "p99 < 2", 'errors', "p99 <" ]
       |                       ^^^^^^
      hint: compare it, as in `p99 < 200ms`

    plan.yaml:7:38: expected a number or a name, found the end
       |
     7 | expect: [ "p99 < 2", 'errors', "p99 <" ]
       |                                      ^
    "#);
    insta::assert_snapshot!(plain(&text("stop_when: [ \"falied > 5\", \"dbs.cpu > 1%\" ]")), @r#"
    plan.yaml:7:15: unknown name `falied`
       |
     7 | stop_when: [ "falied > 5", "dbs.cpu > 1%" ]
       |               ^^^^^^
      hint: did you mean `failed`?

    plan.yaml:7:29: unknown name `dbs.cpu`
       |
     7 | stop_when: [ "falied > 5", "dbs.cpu > 1%" ]
       |                             ^^^^^^^
      hint: did you mean `db.cpu`?
    "#);
    insta::assert_snapshot!(plain(&text("drain: { until: \"steady(storde, 5s)\", at_most: 0s }")), @r#"
    plan.yaml:7:25: unknown name `storde`
       |
     7 | drain: { until: "steady(storde, 5s)", at_most: 0s }
       |                         ^^^^^^
      hint: did you mean `stored`?

    plan.yaml:7:48: `at_most` must be greater than zero
       |
     7 | drain: { until: "steady(storde, 5s)", at_most: 0s }
       |                                                ^^
    "#);
}

/// No trial could ever decide them.
#[test]
fn conditions_on_what_the_plan_lacks() {
    for (condition, error) in [
        ("lost == 0", "7:12: `lost` has no value: the plan has no `durability`"),
        ("ok > 1 and doubled == 0", "7:23: `doubled` has no value: the plan has no `durability`"),
        ("db.memory.max[drain] > 1MiB", "7:12: `db.memory.max` has no value: the plan has no `drain`"),
        ("drain < 5s", "7:12: `drain` has no value: the plan has no `drain`"),
        ("capacity > 5/s", "7:12: `capacity` has no value: the plan has no `find`"),
        ("ok[batch 2] > 1", "7:12: the load has only 1 batch"),
    ] {
        let said = plain(&with(&format!("expect: [ \"{condition}\" ]")));
        assert!(said.contains(error), "{said}");
    }
    // Also if a figure asks for them: at its place in the condition.
    for (figures, condition, error) in [
        ("gone: lost + 1", "ok > 1 and gone == 0", "8:23: `lost` has no value: the plan has no `durability`"),
        (
            "gone: lost, more: 2 * gone",
            "more == 0",
            "8:12: `lost` has no value: the plan has no `durability`",
        ),
        ("second: \"ok[batch 2]\"", "second > 1", "8:12: the load has only 1 batch"),
    ] {
        let said = plain(&with(&format!("figures: {{ {figures} }}\nexpect: [ \"{condition}\" ]")));
        assert!(said.contains(error), "{said}");
    }
    assert_eq!(plain(&with("figures: { gone: lost }")), "no mistake");
    let stored = "durability: { http: \"http://127.0.0.1/ids\" }\nexpect: [ \"lost == 0\" ]";
    assert!(!plain(&with(stored)).contains("has no value"));
}

#[test]
fn more_conditions() {
    let text = with;
    insta::assert_snapshot!(plain(&text("expect: [ \"stored < 5s\", \"\" ]")), @r#"
    plan.yaml:7:12: cannot compare `stored` (a plain number) and `5s` (a duration) in `stored < 5s`
       |
     7 | expect: [ "stored < 5s", "" ]
       |            ^^^^^^^^^^^

    plan.yaml:7:26: expected a condition such as `p99 < 200ms`, found the end
       |
     7 | expect: [ "stored < 5s", "" ]
       |                          ^^
    "#);
    insta::assert_snapshot!(
        plain(&text("expect: [ \"p99 < ${case.slo}\" ]\nmatrix: { axes: { slo: [200ms, fast] } }")), @r#"
    plan.yaml:7:11: unknown name `fast`
       |
     7 | expect: [ "p99 < ${case.slo}" ]
       |           ^^^^^^^^^^^^^^^^^^^
      this value is part of it: `fast`: plan.yaml:8:32
       |
     8 | matrix: { axes: { slo: [200ms, fast] } }
       |                                ^^^^
      hint: known besides the built-in names: `stored`, `stored.first`, `stored.last`, `stored.max`, `stored.mean`, `db.cpu`, `db.cpu.mean`, `db.cpu.max` …
    "#);
    insta::assert_snapshot!(plain(&text("").replace("stored", "ok")), @r#"
    plan.yaml:6:13: `ok` already has another meaning in conditions
       |
     6 |   probes: { ok: { http: "http://a/", json: "/n" } }
       |             ^^
      hint: rename the probe
    "#);
}
