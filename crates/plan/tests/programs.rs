//! Loads made by a program, loads of some cases, and figures computed from others: what is read, and the messages
//! people get.

use loadlab_plan::{Command, Model, Options, Plan, Revision};
use loadlab_record::documents::figure::Better;

use crate::common::{HEAD, briefly, plain};

const PROBES: &str = "system:\n  probes: { stored: { command: \"echo 1\" } }\n";

fn parse(text: &str) -> Plan {
    Plan::parse("lab/plan.yaml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// The mistakes in a load, in short.
fn load(inside: &str) -> String {
    briefly(&format!("{HEAD}{PROBES}load:\n{inside}\n"), &Options::default())
}

#[test]
fn a_program_is_read() {
    let plan = parse(&format!(
        "{HEAD}{PROBES}load:\n  start: 2s\n  batches: {{ repeat: 2, pause: 1s }}\n  command:\n    run: [./drive, --count, \"${{requests}}\", --to, \"${{run.dir}}\"]\n    \
         env: {{ N: \"${{requests}}\" }}\n    counted_by: stored\n    requests: 500\n    started_when_output: connected\n    timeout: 30s\n    dir: tools\n"
    ));
    let load = &plan.cases()[0].loads[0];
    let Model::Command(program) = &load.model else { panic!("{:?}", load.model) };
    let Command::Words(words) = &program.command else { panic!("{:?}", program.command) };
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["./drive", "--count", "500", "--to", "${run.dir}"]);
    assert_eq!((program.counted_by.as_str(), program.requests), ("stored", Some(500)));
    assert_eq!((program.timeout_ns, program.dir.as_str()), (30_000_000_000, "lab/tools"));
    assert_eq!(program.started_when_output.as_ref().and_then(|t| t.as_text()), Some("connected"));
    assert_eq!(program.env[0].1.as_text(), Some("500"));
    assert_eq!((load.start_ns, load.batches, load.pause_ns), (2_000_000_000, 2, 1_000_000_000));
    assert!(load.journey.is_empty());
    insta::assert_snapshot!(plan.describe()[3], @"load: after 2s: 500 requests made by `./drive --count 500 --to ${run.dir}`, starting at `connected` in its output, counted by probe stored, at most 30s, 2 times with pauses of 1s");
    // ten minutes, and any number of requests
    let least =
        parse(&format!("{HEAD}{PROBES}load: {{ command: {{ run: ./drive, counted_by: stored }} }}\n"));
    let program = least.cases()[0].loads[0].command().cloned();
    let program = program.expect("a command");
    assert_eq!(
        (program.timeout_ns, program.requests, program.started_when_output),
        (600_000_000_000, None, None)
    );
}

#[test]
fn what_is_wrong_with_a_program_is_reported() {
    insta::assert_snapshot!(plain(&format!("{HEAD}{PROBES}load:\n  command: {{ run: x, counted_by: store }}\n")), @r"
    plan.yaml:6:34: there is no probe `store`
       |
     6 |   command: { run: x, counted_by: store }
       |                                  ^^^^^
      hint: did you mean `stored`?
    ");
    insta::assert_snapshot!(load("  command: { run: x }"), @r"
    plan.yaml:6:3: `command` of a load needs `counted_by`
      hint: the probe that counts its requests, by how much it grows
    ");
    insta::assert_snapshot!(load("  users: 3\n  requests: 5\n  think: 1s\n  command: { run: x, counted_by: stored }"), @r"
    plan.yaml:8:3: `think` cannot be combined with `command`
      hint: the program decides what it sends, and how
    plan.yaml:9:3: `users` and `command` cannot be combined
      hint: a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, and a `command` makes its own load
    plan.yaml:9:3: `requests` and `command` cannot be combined
      hint: a load ends in one way; `stages` end with the last of them, a `command` when it exits
    ");
    insta::assert_snapshot!(load("  command: { run: \"x ${requests}\", counted_by: stored }"), @r"
    plan.yaml:6:24: unknown name `${requests}`
      hint: known here: `case.name`, `plan.dir`, `run.dir`; for the shell's own `${requests}` write `$${requests}`
    ");
    insta::assert_snapshot!(load("  command: { run: x, counted_by: stored, started_when_output: \"a\\nb\", timeout: 0 }"), @r"
    plan.yaml:6:63: expected part of a single line for `started_when_output`
    plan.yaml:6:80: `timeout` must be greater than zero
    ");
    let component =
        "system:\n  components: { load: { run: ./a } }\n  probes: { n: { command: \"echo 1\" } }\n";
    let text = format!("{HEAD}{component}load: {{ command: {{ run: x, counted_by: n }} }}\n");
    insta::assert_snapshot!(briefly(&text, &Options::default()), @r"
    plan.yaml:6:1: a load with a `command` cannot have the name of a component: `load`
      hint: the program is watched like a component, under the load's name: give the load another name in `loads`
    ");
    let no_probe = format!("{HEAD}load: {{ command: {{ run: x, counted_by: n }} }}\n");
    insta::assert_snapshot!(briefly(&no_probe, &Options::default()), @r"
    plan.yaml:3:40: there is no probe `n`
      hint: add one to `system.probes` that counts the requests
    ");
}

const TWO: &str = "matrix:\n  - { name: get one, n: 1 }\n  - { name: put one, n: 2 }\n";

fn of_cases(get: &str, put: &str) -> String {
    let load = |name: &str, cases: &str| {
        format!(
            "  {name}:\n    cases: {cases}\n    users: ${{case.n}}\n    requests: 1\n    journey: [ {{ get: \"http://127.0.0.1:1/\" }} ]\n"
        )
    };
    format!("{HEAD}{TWO}loads:\n{}{}", load("a", get), load("b", put))
}

#[test]
fn a_load_may_be_for_some_cases() {
    let names = |text: &str| -> Vec<Vec<String>> {
        parse(text).cases().iter().map(|c| c.loads.iter().map(|l| l.name.clone()).collect()).collect()
    };
    assert_eq!(names(&of_cases("get*", "put one")), [["a"], ["b"]]);
    assert_eq!(names(&of_cases("[\"get *\", \"put *\"]", "\"*\"")), [["a", "b"], ["a", "b"]]);
    insta::assert_snapshot!(briefly(&of_cases("get*", "got*"), &Options::default()), @r#"
    plan.yaml:5:13: case `put one` has no load
      hint: `cases` of a load lists the cases it is for, such as `[get, "insert *"]`
    "#);
    let plan = parse(&of_cases("\"* one\"", "got*"));
    assert_eq!(plan.notes, ["no case matches `got*` in `cases` of load `b`"]);
}

/// With revisions, too, cases are named as in the plan, or with their revision.
#[test]
fn a_load_may_be_for_some_cases_at_each_revision() {
    let names = |get: &str, put: &str| -> Vec<Vec<String>> {
        let revision = |name: &str| Revision { name: name.to_owned(), dir: None };
        let options = Options { revisions: vec![revision("v1"), revision("v2")], ..Options::default() };
        let plan = Plan::parse("lab/plan.yaml", &of_cases(get, put), &options);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        let own = |case: &loadlab_plan::Case| case.loads.iter().map(|l| l.name.clone()).collect();
        plan.cases().iter().filter(|case| case.control_of.is_none()).map(own).collect()
    };
    assert_eq!(names("get one", "\"put one\""), [["a"], ["a"], ["b"], ["b"]]);
    let both = [vec!["a", "b"], vec!["a"], vec!["b"], vec!["b"]];
    assert_eq!(names("get*", "[\"*revision=v1\", \"put*\"]"), both);
}

#[test]
fn a_case_is_chosen_with_or_without_its_revision() {
    let names = |glob: &str| -> Vec<String> {
        let revision = |name: &str| Revision { name: name.to_owned(), dir: None };
        let options = Options {
            revisions: vec![revision("v1"), revision("v2")],
            cases_glob: Some(glob.to_owned()),
            ..Options::default()
        };
        let plan = Plan::parse("lab/plan.yaml", &of_cases("get*", "put*"), &options);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        plan.own_cases().iter().map(|case| case.name.clone()).collect()
    };
    assert_eq!(names("get one"), ["get one, revision=v1", "get one, revision=v2"]);
    assert_eq!(names("get one, revision=v2"), ["get one, revision=v2"]);
    assert_eq!(names("*revision=v1"), ["get one, revision=v1", "put one, revision=v1"]);
    // The only case of a plan without a matrix is called `default` everywhere.
    let revisions = vec![Revision { name: "v1".to_owned(), dir: None }];
    let options = Options { revisions, cases_glob: Some("default".to_owned()), ..Options::default() };
    let single =
        format!("{HEAD}load: {{ users: 1, requests: 1, journey: [ {{ get: \"http://127.0.0.1:1/\" }} ] }}\n");
    let plan = Plan::parse("plan.yaml", &single, &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan.own_cases().iter().map(|case| case.name.as_str()).collect::<Vec<_>>(), ["v1"]);
}

/// Reports leave out what all cases share, and the axis if only one varies.
#[test]
fn a_case_is_chosen_by_its_label_in_reports() {
    let names = |sizes: &str, case: &str, revisions: &[&str]| -> Result<Vec<String>, String> {
        let get = "http://127.0.0.1:1/${case.rate}/${case.size}";
        let text = format!(
            "{HEAD}load: {{ users: 1, requests: 1, journey: [ {{ get: \"{get}\" }} ] }}\n\
             matrix: {{ axes: {{ rate: [200, 400], size: {sizes} }} }}\n"
        );
        let revision = |name: &&str| Revision { name: (*name).to_owned(), dir: None };
        let options = Options {
            revisions: revisions.iter().map(revision).collect(),
            cases_glob: Some(case.to_owned()),
            ..Options::default()
        };
        let plan = Plan::parse("plan.yaml", &text, &options).map_err(|errors| errors.to_string())?;
        Ok(plan.own_cases().iter().map(|case| case.name.clone()).collect())
    };
    let chosen = |sizes: &str, case: &str, revisions: &[&str]| {
        names(sizes, case, revisions).unwrap_or_else(|errors| panic!("{errors}"))
    };
    assert_eq!(chosen("[m]", "400", &[]), ["rate=400, size=m"]);
    assert_eq!(chosen("[m, l]", "400, l", &[]), ["rate=400, size=l"]);
    // At each revision, or at one of them.
    let both = ["rate=400, size=m, revision=v1", "rate=400, size=m, revision=v2"];
    assert_eq!(chosen("[m]", "400", &["v1", "v2"]), both);
    assert_eq!(chosen("[m]", "400, v2", &["v1", "v2"]), [both[1]]);
    // A value that several cases have is no label.
    let refused = names("[m, l]", "400", &[]).expect_err("it means two cases");
    let hint =
        "cases with that value: `rate=400, size=m`, `rate=400, size=l`; in a name, `*` matches any text";
    assert!(refused.contains("--case: no case matches `400`") && refused.contains(hint), "{refused}");
    let refused = names("[m, l]", "size=l", &[]).expect_err("it means two cases");
    assert!(refused.contains("cases with that value: `rate=200, size=l`, `rate=400, size=l`"), "{refused}");
}

/// More is better of `ok`, but not of a quotient by it.
#[test]
fn what_is_better_of_a_quotient_its_kind_decides() {
    let load =
        "load: { users: 1, duration: 1s, journey: [ { get: \"http://127.0.0.1:1/\", tags: [buy] } ] }\n";
    let figures = "figures:\n  each: web.cpu_time / tag.buy.ok\n  bought: tag.buy.ok\n  bad: timeout + reset\n  odd: ok + failed\n";
    let system = "system: { components: { web: { run: w } } }\n";
    let plan = parse(&format!("{HEAD}{system}{load}{figures}"));
    let better: Vec<_> = plan.cases()[0].figures.iter().map(|figure| figure.better).collect();
    assert_eq!(better, [Better::Less, Better::More, Better::Less, Better::Neither]);
}

#[test]
fn ids_are_missed_only_where_no_load_is_left_out() {
    let loss = "system:\n  probes: { n: { command: \"echo 1\" } }\ndurability: { command: \"cat ids\" }\n";
    let text = format!(
        "{}{loss}",
        of_cases("get*", "put*").replace("127.0.0.1:1/\" } ]\n  b", "127.0.0.1:1/${unique}\" } ]\n  b")
    );
    let plan = parse(&text);
    let has: Vec<bool> = plan.cases().iter().map(|c| c.durability.is_some()).collect();
    assert_eq!(has, [true, false]);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let none = "durability: none, since no step carries a `${unique}` (in put one)".to_owned();
    assert!(plan.describe().contains(&none), "{:#?}", plan.describe());
    // What is expected of ids could not be decided in the other case.
    let expect = format!("{text}expect: [\"ok > 0\", \"accepted == ok\", \"lost == 0\"]\n");
    let found = briefly(&expect, &Options::default());
    assert!(
        found.contains("`lost` has no value: no step of case `put one` carries a `${unique}`")
            && found.matches("has no value").count() == 1,
        "{found}"
    );
    // Unless that case is left out.
    let with = |glob: &str| Options { cases_glob: Some(glob.to_owned()), ..Options::default() };
    let plan = Plan::parse("plan.yaml", &expect, &with("get*")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plan.cases().iter().map(|case| case.expect.len()).collect::<Vec<_>>(), [3]);
    let found = briefly(&expect, &with("*one"));
    assert!(found.contains("no step of case `put one` carries a `${unique}`"), "{found}");
    // In no case anything is compared.
    let plan = parse(&format!("{}{loss}", of_cases("get*", "put*")));
    assert!(plan.cases().iter().all(|c| c.durability.is_none()));
    assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
    assert!(plan.notes[0].starts_with("`durability` compares nothing"), "{:?}", plan.notes);
}

#[test]
fn figures_are_worked_out_of_figures_of_cases() {
    let derive = |derive: &str| format!("{}derive:\n{derive}", of_cases("get*", "put*"));
    let plan = parse(&derive(
        "  both: \"'get one.elapsed' + 'put one.elapsed'\"\n  apart: { value: \"'get one.p99'\", against: \"2 * 'put one.p99'\" }\n",
    ));
    let found: Vec<(&str, &str, Option<&str>)> =
        plan.derive.iter().map(|d| (d.name.as_str(), d.value.as_str(), d.against.as_deref())).collect();
    assert_eq!(
        found,
        [
            ("both", "'get one.elapsed' + 'put one.elapsed'", None),
            ("apart", "'get one.p99'", Some("2 * 'put one.p99'")),
        ]
    );
    let brief = |text: &str| briefly(&derive(text), &Options::default());
    insta::assert_snapshot!(plain(&derive("  a: \"'get two.elapsed' + 1s\"\n")), @r#"
    plan.yaml:18:8: `get two.elapsed` is not a figure of a case
       |
    18 |   a: "'get two.elapsed' + 1s"
       |        ^^^^^^^^^^^^^^^
      hint: a name is a case, a dot and a figure; put it in quotes if it contains spaces: `'empty POST.elapsed'`
    "#);
    let part = brief("  a: \"'get one.p99'[1s..2s]\"\n");
    assert!(part.contains("what is derived is computed from whole trials"), "{part}");
    insta::assert_snapshot!(brief("  a: \"'get one.elapse'\"\n"), @"plan.yaml:18:8: case `get one` has no figure `elapse`");
    insta::assert_snapshot!(brief("  a: \"'get one.elapsed' + 'get one.ok'\"\n"), @"plan.yaml:18:6: cannot add `'get one.elapsed'` (a duration) and `'get one.ok'` (a plain number) in `'get one.elapsed' + 'get one.ok'`");
    insta::assert_snapshot!(brief("  a: { value: \"'get one.elapsed'\", against: \"'put one.ok'\" }\n"), @r"
    plan.yaml:18:45: a duration cannot be compared with a plain number
      hint: both sides must be of the same kind
    ");
    insta::assert_snapshot!(brief("  a: \"'get one.elapsed' < 1s\"\n"), @r"
    plan.yaml:18:6: `'get one.elapsed' < 1s` is a condition, not a number
      hint: join conditions with `and` or `or`
    ");
    insta::assert_snapshot!(brief("  a: { against: \"'get one.ok'\" }\n  b: [1]\n"), @r"
    plan.yaml:18:3: a figure in `derive` needs `value`
      hint: a sum, difference, product or quotient, such as `grouped.elapsed + grouped.drain`
    plan.yaml:19:6: expected a formula such as `a.elapsed + b.elapsed`, found a list
    ");
}

#[test]
fn figures_that_matter() {
    let with = |figures: &str| {
        format!(
            "{HEAD}{PROBES}load: {{ users: 1, duration: 1s, journey: [ {{ get: \"http://127.0.0.1:1/\" }} ] }}\n{figures}"
        )
    };
    let plan = parse(&with(
        "figures:\n  p99: p99\n  per second: goodput\n  share: { value: stored / ok, unit: \"%\" }\n  stored bytes: { value: stored, unit: KiB }\n  \
         documents: { value: stored, unit: documents, better: more, about: in the index }\n  twice: \"2 * 'stored bytes'\"\nexpect: [\"twice < 3MiB and 'per second' > 1/s\"]\n",
    ));
    let found: Vec<String> = plan.cases()[0]
        .figures
        .iter()
        .map(|f| format!("{} = {} ({:?}, {:?}, {:?})", f.name, f.value, f.kind, f.better, f.unit))
        .collect();
    insta::assert_snapshot!(found.join("\n"), @r#"
    p99 = p99 (Duration, Less, None)
    per second = goodput (Rate, More, None)
    share = stored / ok (Fraction, Less, None)
    stored bytes = (stored) * 1KiB (Bytes, Less, None)
    documents = stored (Plain, More, Some("documents"))
    twice = 2 * 'stored bytes' (Bytes, Less, None)
    "#);
    let brief = |text: &str| briefly(&with(&format!("figures:\n{text}")), &Options::default());
    insta::assert_snapshot!(plain(&with("figures:\n  much: stored.max + p98\n")), @r"
    plan.yaml:7:22: unknown name `p98`
       |
     7 |   much: stored.max + p98
       |                      ^^^
      hint: the percentiles are `p50`, `p75`, `p90`, `p95`, `p99`, `p99_9` and `p99_99`
    ");
    insta::assert_snapshot!(brief("  a: b\n  b: p99\n"), @r"
    plan.yaml:7:6: unknown name `b`
      hint: known besides the built-in names: `stored`, `stored.first`, `stored.last`, `stored.max`, `stored.mean`
    ");
    insta::assert_snapshot!(brief("  a: a + 1\n"), @r"
    plan.yaml:7:6: unknown name `a`
      hint: a figure may use only figures defined before it
    ");
    insta::assert_snapshot!(brief("  p99: p50\n  stored: ok\n"), @r"
    plan.yaml:7:3: `p99` already is a name in conditions
      hint: call the figure something else
    plan.yaml:8:3: `stored` already is a name in conditions
      hint: call the figure something else
    ");
    insta::assert_snapshot!(brief("  a: { value: p99, unit: MiB }\n  b: { value: ok, unit: 5 }\n  c: { value: ok, better: bigger }\n"), @r"
    plan.yaml:7:26: `p99` is a duration, not MiB
      hint: leave `unit` out: it is for numbers without a unit
    plan.yaml:8:25: `5` is not a unit
      hint: `ms`, `MiB`, `%`, or a word of at most 20 characters
    plan.yaml:9:27: `bigger` is not a value of `better`: use one of `more`, `less`, `none`
    ");
    insta::assert_snapshot!(brief("  a: p99 < 1s\n  b: p99 + ok\n  c: ok / 0\n"), @r"
    plan.yaml:7:6: `p99 < 1s` is a condition, not a number
      hint: join conditions with `and` or `or`
    plan.yaml:8:6: cannot add `p99` (a duration) and `ok` (a plain number) in `p99 + ok`
    plan.yaml:9:11: nothing can be divided by 0
    ");
    insta::assert_snapshot!(brief("  \"it's\": p99\n  \" a\": p99\n"), @r"
    plan.yaml:7:3: `it's` is not a valid name for a figure
      hint: one line of 1 to 80 characters, without quotes
    plan.yaml:8:3: ` a` is not a valid name for a figure
      hint: one line of 1 to 80 characters, without quotes
    ");
    insta::assert_snapshot!(brief("  a: p99\n  b: \"a[batch 1] + a\"\nexpect: [\"a[1s..2s] < 5s\", \"p99[1s..2s] < 5s\", \"steady(a, 5s)\", \"steady(p99, 5s) or steady(stored, 5s)\"]\n"), @r"
    plan.yaml:8:7: `a` is a figure of whole trials, not of parts
      hint: put the part behind the names in its definition
    plan.yaml:9:11: `a` is a figure of whole trials, not of parts
      hint: put the part behind the names in its definition
    plan.yaml:9:29: `p99` is asked for a time after the load
      hint: the load ends after 1.00 s
    plan.yaml:9:56: `steady` takes a probe, and `a` is not one
      hint: declared probes: `stored`
    plan.yaml:9:73: `steady` takes a probe, and `p99` is not one
      hint: declared probes: `stored`
    ");
    let doubled: Vec<String> = (1..12).map(|i| format!("  f{i}: f{0} + f{0}\n", i - 1)).collect();
    insta::assert_snapshot!(brief(&format!("  f0: p99\n{}", doubled.concat())), @r"
    plan.yaml:17:8: with the figures that it uses, this is longer than 1000 names and numbers
      hint: use fewer figures in one another
    ");
    insta::assert_snapshot!(briefly(&with("figures: { a: p99 }\nexpect: [a < 5MiB, aa < 1s]\n"), &Options::default()), @r"
    plan.yaml:7:10: cannot compare `a` (a duration) and `5MiB` (a size) in `a < 5MiB`
      hint: `5MiB` is 5242880 bytes
    plan.yaml:7:20: unknown name `aa`
      hint: did you mean `a`?
    ");
}
