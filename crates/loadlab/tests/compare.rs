//! `loadlab compare` on records of real runs, and on the committed record.

use std::path::PathBuf;

use serde_json::Value;

use crate::run_support::{Lab, component, plan};

fn committed() -> String {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../report/tests/golden/run");
    dir.display().to_string()
}

#[test]
fn two_trials_allow_no_verdict() {
    let lab = Lab::new();
    let ran = lab.loadlab(&["compare", &committed(), "--fail-on-worse"]);
    ran.expect(0, &[]);
    insta::assert_snapshot!(ran.out, @r"
    half a core & 64 MiB against free
    Ratios are second over first: 1.10 × is 10 % more

    Found  cannot tell: 1 round in common: too few for an interval or a verdict (at
           least 5 are needed).
    How    trials paired by round (1 round), Student's t on the differences of their
           logarithms; one false alarm in 20 comparisons of equal cases at most,
           however many figures (Holm). The trial is the unit, never the request. No
           control.

    Figures
    ═══════

    half a core & 64 MiB against free
    figure                  free  half a core & 64 …  verdict
    goodput               59.2/s              26.5/s  cannot tell
    p50                  7.99 ms             21.4 ms  cannot tell
    p90                  10.4 ms             34.4 ms  cannot tell
    p99              needs 1,000         needs 1,000  cannot tell
    CPU per request      14.9 ms             45.5 ms  cannot tell
    peak memory          425 MiB             158 MiB  cannot tell
    errors                   0 %               6.2 %  cannot tell
    drain                      –              2.40 s  cannot tell
    loss                       –               4.7 %  cannot tell
    Columns are medians over trials (of an even number, the worse of the middle two)
    with their ranges.
    cannot tell  1 round in common: too few for an interval or a verdict (at least 5
                 are needed).
    p99  p99 needs 1000 requests in each trial.
    drain  drain is not reported by every trial.
    loss  loss is not reported by every trial.
    left out  trial 2 of “half a core & 64 MiB” did not finish.
    ");
}

#[test]
fn mistakes_are_reported_with_what_there_is() {
    let lab = Lab::new();
    let run = committed();
    let check = |args: &[&str], holds: &[&str]| {
        lab.loadlab(&[&["compare"], args].concat()).expect(2, holds);
    };
    check(&["nowhere"], &["nowhere is not a run folder", "it has no `manifest.json`"]);
    check(
        &[&run, "other"],
        &["the run has no case `other`", "hint: its cases are `free`, `half a core & 64 MiB`"],
    );
    check(&[&run, "free"], &["`free` would be compared with itself"]);
    check(&[&run, &run, "free"], &["`free` is not a run folder"]);
    check(&[&run, "--equivalence-margin", "200%"], &["must be at least 0 and below 100%"]);
    check(&[&run, "--equivalence-margin", "some"], &["`some` is not a share such as `2%`"]);
}

/// Two cases, one so much slower than the other that a busy machine cannot hide it, nor a stall in one of the eight
/// rounds.
#[test]
fn a_real_difference_is_found_within_a_run_and_between_runs() {
    let lab = Lab::new();
    let web = component("web", "\"slow_ms\": ${case.slow}", &[]);
    let rest = "load:\n  users: 2\n  requests: 20\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n\
        matrix:\n  - { name: fast, slow: 2 }\n  - { name: slow, slow: 80 }\ntrials: 8\n";
    lab.run(&plan(&[web], rest), &["--quiet"]).expect(0, &[]);
    let run = lab.record().dir.display().to_string();
    let of = |args: &[&str], code: i32| -> Value {
        let ran = lab.loadlab(&[&["compare", &run], args, &["--format", "json", "--fail-on-worse"]].concat());
        ran.expect(code, &[]);
        serde_json::from_str(&ran.out).expect("a document")
    };
    let verdict = |json: &Value, id: &str| -> String {
        let figures = json["comparisons"][0]["figures"].as_array().expect("figures").clone();
        let row = figures.iter().find(|r| r["figure"] == id).unwrap_or_else(|| panic!("no {id} in {json:#}"));
        row["verdict"].as_str().expect("a word").to_owned()
    };
    let forth = of(&[], 1);
    assert_eq!(forth["comparisons"][0]["method"], "paired_t");
    assert_eq!((verdict(&forth, "p50").as_str(), verdict(&forth, "goodput").as_str()), ("worse", "worse"));
    // the other way round it is better, and exits with 0
    let back = lab.loadlab(&["compare", &run, "slow", "fast", "--format", "json"]);
    back.expect(0, &[]);
    let back: Value = serde_json::from_str(&back.out).expect("a document");
    assert_eq!(verdict(&back, "p50"), "better");
    // a run against itself: nothing is worse
    let itself = of(&[&run], 0);
    assert_eq!(itself["comparisons"][0]["method"], "welch_t");
    assert!(["same", "cannot_tell"].contains(&verdict(&itself, "p50").as_str()), "{itself:#}");
    // two folders of the same name are distinguished
    let (one, two) = (lab.path().join("main/edges"), lab.path().join("branch/edges"));
    for copy in [&one, &two] {
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("it can be made");
        std::os::unix::fs::symlink(lab.record().dir, copy).expect("a link");
    }
    let alike = lab.loadlab(&["compare", "main/edges", "branch/edges", "--format", "json"]);
    alike.expect(0, &[]);
    let alike: Value = serde_json::from_str(&alike.out).expect("a document");
    let names =
        ["base", "other"].map(|side| alike["comparisons"][0][side].as_str().expect("a name").to_owned());
    assert_eq!(names, ["fast in main/edges", "fast in branch/edges"]);
    // and the run's own report contains it too
    let text = lab.record().report("md");
    assert!(text.contains("### Differences") && text.contains("**slow against fast**"), "{text}");
}

/// Two of three steps request a component that takes three times as long in the second case.
#[test]
fn where_cases_differ_is_said() {
    let lab = Lab::new();
    let components =
        [component("web", "\"slow_ms\": 20", &[]), component("api", "\"slow_ms\": ${case.ms}", &[])];
    let step = |name: &str, of: &str| {
        format!("    - {{ tags: [{name}], get: \"http://127.0.0.1:${{components.{of}.port}}/\" }}\n")
    };
    let journey = [step("home", "web"), step("order", "api"), step("pay", "api")].concat();
    let load = format!("load:\n  users: 4\n  requests: 120\n  journey:\n{journey}");
    let cases = "matrix: [{ name: base, ms: 20 }, { name: slow, ms: 60 }]\ntrials: 6\n";
    let ran = lab.run(&plan(&components, &format!("{load}{cases}")), &[]);
    assert!(lab.path().join(lab.run_name()).join("manifest.json").exists(), "{}", ran.err);
    let trials = |case: &str| (1..=6).map(|trial| lab.record().summary(case, trial)).collect::<Vec<_>>();
    ran.expect_however_busy(&[trials("base"), trials("slow")].concat(), false);
    let out = lab.path().join(lab.run_name()).display().to_string();
    let compared = lab.loadlab(&["compare", &out, "--format", "json"]);
    compared.expect(0, &[]);
    let found: Value = serde_json::from_str(&compared.out).expect("JSON");
    let found = &found["comparisons"][0];
    let call = |rows: &str, figure: &str| {
        let all = found[rows].as_array().expect("a list");
        all.iter().find(|row| row["figure"] == figure).map(|row| row["verdict"].clone())
    };
    // A busy machine may have spoiled so many rounds that nothing can be judged.
    if found["why_not"].is_string() {
        assert!(found["details"].as_array().is_some_and(Vec::is_empty), "{found}");
        return;
    }
    assert_eq!(call("figures", "p50"), Some("worse".into()), "{found}");
    for step in ["tag.order.p50", "tag.pay.p50"] {
        assert_eq!(call("details", step), Some("worse".into()), "{step} in {found}");
    }
    assert!(call("details", "tag.home.p50").is_some(), "{found}");
    let text = lab.loadlab(&["compare", &out]);
    text.expect(0, &[]);
    let words = text.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("where: p50 of ") && words.contains("Where slow differs from base"),
        "{}",
        text.out
    );
}
