//! Trials that continue until it is certain how the cases differ.

use rustix::process::Signal;
use serde_json::Value;

use crate::run_support::swarm::run_local;
use crate::run_support::{Lab, component, eventually, plan};
use crate::run_ui::driver::Browser;
use crate::run_ui::page_in;

/// Three cases whose requests take `ms` milliseconds; one figure decides.
fn three(trials: &str) -> String {
    let cases = "matrix: [{ name: base, ms: 20 }, { name: slow, ms: 60 }, { name: again, ms: 20 }]";
    let load = "load:\n  users: 4\n  requests: 40\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]";
    let web = component("web", "\"slow_ms\": ${case.ms}", &[]);
    plan(&[web], &format!("{load}\n{cases}\ntrials: {trials}\nfigures: {{ median: p50 }}\n"))
}

fn trials(lab: &Lab, case: &str) -> Vec<Value> {
    let record = lab.record();
    let made = (1..).take_while(|number| record.trial(case, *number).join("summary.json").exists());
    made.map(|number| record.summary(case, number)).collect()
}

fn all(lab: &Lab) -> Vec<Value> {
    ["base", "slow", "again", "base-control"].iter().flat_map(|case| trials(lab, case)).collect()
}

#[test]
fn a_run_ends_once_every_case_is_found_different_or_the_same() {
    let lab = Lab::new();
    let ran = lab.run(&three("{ until: certain, within: 50%, at_most: 20 }"), &["--json"]);
    ran.expect_however_busy(&all(&lab), false);
    let manifest = lab.record().manifest();
    assert_eq!(manifest["until_certain"]["ended"], "settled", "{}", ran.err);
    let settled = &serde_json::from_str::<Value>(&ran.out).expect("a document")["settled"];
    let verdict = |place: usize| {
        let one = &settled[place];
        (&one["other"], &one["settled"], &one["figures"][0]["figure"], &one["figures"][0]["verdict"])
    };
    let (yes, median) = (Value::from(true), Value::from("median"));
    assert_eq!(verdict(0), (&"slow".into(), &yes, &median, &"worse".into()));
    assert_eq!(verdict(1), (&"again".into(), &yes, &median, &"same".into()));
    let counts = ["base", "slow", "again"].map(|case| trials(&lab, case).len());
    // The base is measured for as long as the case that takes the most rounds, and so is its control.
    assert_eq!(counts[0], counts[1].max(counts[2]), "{counts:?}");
    assert_eq!(counts[0], trials(&lab, "base-control").len());
    assert!(counts.iter().all(|n| (6..=20).contains(n)), "{counts:?}");
    assert!(ran.err.contains("recording at most 80 trials"), "{}", ran.err);
    assert!(ran.err.contains(&format!("settled after {} rounds", counts[0])), "{}", ran.err);

    // The order within a round is random: neither always the plan's, nor rotated by one case each time.
    let started =
        ran.err.lines().filter_map(|line| line.strip_prefix('[')?.split_once("] ").map(|(_, what)| what));
    let mut orders = std::collections::BTreeMap::<&str, Vec<&str>>::new();
    for (case, round) in started.filter_map(|what| what.rsplit_once(", trial ")) {
        orders.entry(round).or_default().push(case);
    }
    let whole: std::collections::BTreeSet<_> =
        orders.into_values().filter(|order| order.len() == 4).collect();
    let cases = ["base", "slow", "again", "base (control)"];
    let is_turned = |order: &Vec<&str>| (0..4).any(|by| (0..4).all(|i| order[i] == cases[(i + by) % 4]));
    assert!(whole.len() >= 3 && !whole.iter().all(is_turned), "{whole:?}");

    // A report made later says the same.
    let name = lab.run_name();
    let compared = lab.loadlab(&["compare", &name, "--format", "json"]);
    compared.expect(0, &[]);
    let compared: Value = serde_json::from_str(&compared.out).expect("a document");
    for (place, other) in ["slow", "again"].iter().enumerate() {
        let comparison = &compared["comparisons"][place];
        assert_eq!(
            (&comparison["other"], &comparison["method"]),
            (&(*other).into(), &"sequential_signs".into())
        );
        assert_eq!(comparison["equivalence_margin"], 0.5);
        let (row, said) = (&comparison["figures"][0], &settled[place]["figures"][0]);
        assert_eq!((&row["figure"], &row["verdict"], &row["decides"]), (&median, &said["verdict"], &yes));
        // A factor of three is visible.
        assert!(row["visible"].as_f64().is_some_and(|visible| (0.0..2.0).contains(&visible)), "{row}");
    }
    let report = lab.record().report("md");
    assert!(report.contains("every comparison was settled"), "{report}");
}

#[test]
fn what_is_still_open_when_time_is_up_is_exit_6() {
    let lab = Lab::new();
    let ran = lab.run(&three("{ until: certain, budget: 1ms }"), &["--quiet"]);
    assert_eq!(["base", "slow", "again"].map(|case| trials(&lab, case).len()), [1, 1, 1]);
    let is_invalid = all(&lab).iter().any(|summary| summary["verdict"] == "invalid");
    ran.expect(if is_invalid { 4 } else { 6 }, &[]);
    assert_eq!(lab.record().manifest()["until_certain"]["ended"], "budget");
    assert_eq!(lab.record().manifest()["how"], "complete");
}

#[test]
fn rounds_that_can_settle_nothing_are_refused_before_the_first() {
    let lab = Lab::new();
    let text = three("{ until: certain, at_most: 4 }");
    let ran = lab.run(&text, &[]);
    ran.expect(2, &["4 rounds cannot settle anything", "raise `trials.at_most`"]);
    assert!(!lab.record().dir.exists());
    lab.loadlab(&["check", "plan.yaml"]).expect(0, &["4 rounds cannot settle anything"]);
    // A plain number of trials still means that number.
    lab.file("plan.yaml", &text);
    let described = lab.loadlab(&["run", "plan.yaml", "--trials", "2", "--dry-run"]);
    described.expect(0, &[]);
    assert!(described.out.contains("6 trials, in this order"), "{}", described.out);
    let described = lab.loadlab(&["run", "plan.yaml", "--set", "trials=5", "--until-certain", "--dry-run"]);
    described.expect(0, &[]);
    assert!(described.out.contains("5 trials of each case"), "{}", described.out);
}

#[test]
fn a_run_that_was_killed_goes_on_in_the_order_that_was_drawn() {
    let lab = Lab::new();
    let text = three("{ until: certain, within: 50%, at_most: 20 }");
    let mut running = lab.start(&text, &[]);
    running.wait_for_output("round 2 of at most 20");
    running.signal(Signal::KILL);
    running.end();
    eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
    let seed = lab.record().manifest()["until_certain"]["seed"].clone();
    let before = trials(&lab, "base");
    assert!(before.len() >= 2, "{before:?}");
    let ran = lab.loadlab(&["resume", &lab.run_name()]);
    ran.expect_however_busy(&all(&lab), false);
    let until = &lab.record().manifest()["until_certain"];
    assert_eq!((&until["seed"], &until["ended"]), (&seed, &"settled".into()));
    assert_eq!(trials(&lab, "base")[..before.len()], before[..]);
    assert!(trials(&lab, "base").len() <= 20);
}

/// With all rounds done, resuming leaves the result as it was.
#[test]
fn a_run_that_has_all_its_rounds_comes_out_as_before_when_it_is_resumed() {
    let lab = Lab::new();
    let ran = lab.run(&three("{ until: certain, within: 0.01%, at_most: 8 }"), &["--quiet"]);
    let ended = || lab.record().manifest()["until_certain"]["ended"].clone();
    let (code, before) = (ran.code, ended());
    assert!(matches!(code, Some(0 | 4 | 6)) && before.is_string(), "{code:?} {before} {}", ran.err);
    let rounds = trials(&lab, "base").len();
    let again = lab.loadlab(&["resume", &lab.run_name(), "--quiet"]);
    assert_eq!((ended(), trials(&lab, "base").len()), (before, rounds), "{}", again.err);
    // Doubts about the earlier trials still apply.
    assert!(code == Some(4) || again.code == code, "{code:?} then {:?}", again.code);
}

#[test]
fn the_page_shows_how_near_each_comparison_is() {
    let lab = Lab::new();
    let mut browser = Browser::start();
    // So close that it goes on until the page was seen.
    let mut running = lab.start(&three("{ until: certain, within: 0.01%, at_most: 200 }"), &["--ui"]);
    running.wait_for_output("live in the browser: http://127.0.0.1:");
    browser.visit(&page_in(&lab.read("stderr")));
    browser.until("document.querySelector('#settling li')?.textContent.includes('of at most 200')");
    let lines = browser.value("[...document.querySelectorAll('#settling li')].map((li) => li.textContent)");
    let lines: Vec<&str> = lines.as_array().expect("lines").iter().filter_map(Value::as_str).collect();
    assert!(lines.len() == 3 && lines[1].starts_with("“slow” against “base”: median "), "{lines:?}");
    assert!(lines[2].starts_with("“again” against “base”: median "), "{lines:?}");
    assert_eq!(browser.value("document.getElementById('settling').hidden"), false);
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
}

#[test]
fn agents_measure_the_control_as_well() {
    let lab = Lab::new();
    let ran = run_local(&lab, &three("{ until: certain, budget: 1ms }"), &["--swarm", "local:2"]);
    let names = ["base", "slow", "again", "base-control"];
    let ok = names.map(|case| lab.record().summary(case, 1)["requests"]["ok"].clone());
    assert!(ok.iter().all(|ok| *ok == 40), "{ok:?} {}", ran.err);
    let is_invalid = all(&lab).iter().any(|summary| summary["verdict"] == "invalid");
    ran.expect(if is_invalid { 4 } else { 6 }, &[]);
}
