//! `loadlab why` on a real system: every change is made and undone, however the run ends, and the answer is in the
//! record. Whether the answer is right is checked with planted limits: `cargo xtask test --only "planted levers"`.

use rustix::process::Signal;
use serde_json::Value;

use crate::run_support;
use crate::run_support::{Lab, component, eventually};

/// A plan with a lever that appends each of its values to a file.
fn plan() -> String {
    let web = component("web", "\"burn_us\": 1000", &["limits: { cpu: 10% }"]);
    run_support::plan(
        &[web],
        "levers:\n  pool: { now: 10, less: 9, more: [11], set: \"echo ${value} >> ${run.dir}/../set\" }\n\
         load:\n  users: 4\n  duration: 1s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n",
    )
}

#[test]
fn each_value_is_set_in_turn_and_the_planned_one_last() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan());
    let out = lab.run_name();
    let args =
        ["why", "plan.yaml", "--budget", "50s", "--block", "2", "--seed", "3", "--json", "--quiet", "--out"];
    let ran = lab.loadlab(&[args.as_slice(), &[&out, "--set", "profile=true"]].concat());
    let is_sampled = |load: &str| lab.record().dir.join(format!("cases/{load}/1/profile.json")).exists();
    assert_eq!(
        ["as-planned", "one-step-less"].map(is_sampled),
        [true, false],
        "where limits change nothing else does"
    );
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    // Whether a lever that does nothing is certain to cost nothing depends on how busy the machine is.
    assert!(matches!(ran.code, Some(0 | 4 | 6)), "{:?}\n{}\n{}", ran.code, ran.out, ran.err);
    let json: Value = serde_json::from_str(&ran.out).expect("JSON");
    let why = &json["why"];
    let levers = why["levers"].as_array().expect("levers");
    let named =
        |name: &str| levers.iter().find(|lever| lever["name"] == name).unwrap_or_else(|| panic!("{json:#}"));
    let cpu = named("web CPU");
    assert!(levers.len() == 2 && cpu["now"] == "10% CPU" && cpu["less"] == "9% CPU", "{json:#}");
    // At least four rounds of two changes, with a block without a change on either side of each.
    let blocks = why["blocks"].as_array().expect("blocks");
    assert!(blocks.len() >= 17 && (blocks.len() - 1).is_multiple_of(4), "{json:#}");
    for change in ["pool: 9", "web CPU: 9% CPU"] {
        let made = blocks.iter().filter(|block| block["change"] == change).count();
        assert_eq!(made * 4 + 1, blocks.len(), "{change}: {json:#}");
    }
    assert!(blocks.iter().step_by(2).all(|block| block["change"] == ""), "{json:#}");
    check_goodputs(&lab, blocks);
    for (lever, change) in [("pool", "pool: 9"), ("web CPU", "web CPU: 9% CPU")] {
        let (said, expected) = (named(lever)["goodput"]["value"].as_f64(), ratio(blocks, change));
        let is_same = said
            .zip(expected)
            .map_or(said == expected, |(said, expected)| (said / expected - 1.0).abs() < 1e-9);
        assert!(is_same, "{lever}: {said:?} is not {expected:?}: {json:#}");
    }
    let limits: Vec<f64> = lab
        .record()
        .events("one-step-less", 1, "limited")
        .iter()
        .filter_map(|event| event["limits"]["cpu_cores"].as_f64())
        .collect();
    assert!(limits.contains(&0.09) && limits.last() == Some(&0.1), "{limits:?}");
    let values = lab.lines("set");
    assert_eq!(values.last().map(String::as_str), Some("10"), "{values:?}");
    assert!(values.iter().any(|value| value == "9"), "{values:?}");
    // The record is that of a run: the manifest has the answer, and reports begin with it.
    assert_eq!(lab.record().manifest()["why"]["levers"], why["levers"]);
    for format in ["text", "md", "html"] {
        let report = lab.record().report(format);
        assert!(report.contains("What each limit costs") && report.contains("pool"), "{format}: {report}");
    }
    let events = lab.record().events("one-step-less", 1, "action");
    assert!(!events.is_empty() && events.iter().all(|event| event["error"].is_null()), "{events:?}");
    lab.loadlab(&["resume", &out]).expect(2, &["run `loadlab why` again"]);
}

/// Each block that counts has the goodput of its seconds, as recorded.
fn check_goodputs(lab: &Lab, blocks: &[Value]) {
    let ticks = lab.record().lines("one-step-less", 1, "ticks.jsonl");
    let mut counted = 0;
    for block in blocks {
        let Some(said) = block["goodput_per_s"].as_f64() else { continue };
        let (from_s, to_s) = (block["from_s"].as_f64().expect("s"), block["to_s"].as_f64().expect("s"));
        let middle = |tick: &&Value| {
            let middle_s = (tick["from_s"].as_f64().expect("s") + tick["to_s"].as_f64().expect("s")) / 2.0;
            (from_s..to_s).contains(&middle_s)
        };
        let ok: u64 = ticks.iter().filter(middle).map(|tick| tick["ok"].as_u64().expect("ok")).sum();
        assert!((said * (to_s - from_s) - ok as f64).abs() < 1e-6, "{block} but {ok} ok");
        counted += 1;
    }
    assert!(counted > 0, "no block counts: {blocks:?}");
}

/// The goodput under a change relative to the blocks beside it: the geometric mean, as one would work it out by hand.
/// `None` if fewer than two blocks with the change count.
fn ratio(blocks: &[Value], change: &str) -> Option<f64> {
    let rate = |block: &Value| block["goodput_per_s"].as_f64();
    let mut logs = Vec::new();
    for three in blocks.windows(3).filter(|three| three[1]["change"] == change) {
        let answered = [&three[0], &three[2]].into_iter().filter_map(rate).filter(|rate| *rate > 0.0);
        let beside: Vec<f64> = answered.map(f64::ln).collect();
        if let Some(own) = rate(&three[1]).filter(|_| !beside.is_empty()) {
            let control = (beside.iter().sum::<f64>() / beside.len() as f64).exp();
            logs.push((own / control).max(1e-6).ln());
        }
    }
    (logs.len() >= 2).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Starts `loadlab why` and waits until a tighter value has been set.
fn while_tightened(lab: &Lab) -> std::process::Child {
    let plan_file = lab.file("plan.yaml", &plan());
    let out = lab.run_name();
    let mut command =
        lab.command(&["why", &plan_file.display().to_string(), "--block", "2", "--json", "--out", &out]);
    let child = command.spawn().expect("loadlab starts");
    let set = lab.path().join("set");
    eventually("a tighter value", || std::fs::read_to_string(&set).ok().filter(|text| text.ends_with("9\n")));
    child
}

/// Number of the logs that Node leaves in its folder if functions are to have names.
fn node_logs(lab: &Lab) -> usize {
    let entries = std::fs::read_dir(lab.path()).expect("a folder").flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("isolate-0x")).count()
}

#[test]
fn an_interrupt_sets_the_planned_value_and_leaves_no_logs_of_a_profile() {
    let lab = Lab::new();
    let mut child = while_tightened(&lab);
    // With this budget, stacks of the limiting component would be sampled.
    assert_eq!(node_logs(&lab), 1);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).expect("it can be signalled");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(lab.lines("set").last().map(String::as_str), Some("10"));
    assert_eq!(lab.left_behind(), Vec::<String>::new());
    assert_eq!(node_logs(&lab), 0);
    assert_eq!(lab.record().manifest()["how"], "interrupted");
    assert!(lab.record().report("text").contains("nothing yet: the run did not finish"));
}

#[test]
fn a_kill_leaves_no_process_no_cgroup_and_a_record_that_can_be_read() {
    let lab = Lab::new();
    let mut child = while_tightened(&lab);
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    // The guardian takes the system down.
    eventually("the end of the system", || lab.left_behind().is_empty().then_some(()));
    assert_eq!(lab.record().manifest()["how"], "partial");
    assert!(lab.record().report("text").contains("nothing yet: the run did not finish"));
    let ticks = lab.record().lines("one-step-less", 1, "ticks.jsonl");
    assert!(!ticks.is_empty(), "the seconds until then are on disk");
}

#[test]
fn what_cannot_be_asked_is_said_before_anything_starts() {
    let lab = Lab::new();
    let web = component("web", "", &[]);
    let check = |rest: &str, args: &[&str], expect: &[&str]| {
        lab.file("plan.yaml", &run_support::plan(std::slice::from_ref(&web), rest));
        let out = lab.run_name();
        let all = [&["why", "plan.yaml", "--out", &out, "--quiet"], args].concat();
        lab.loadlab(&all).expect(2, expect);
        let _ = std::fs::remove_dir_all(lab.record().dir);
    };
    let load = "journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    check(
        &format!("matrix: [{{ name: a }}, {{ name: b }}]\nload:\n  users: 1\n  duration: 1s\n  {load}"),
        &[],
        &["2 cases", "--case names it: `a`, `b`"],
    );
    check(
        &format!("load:\n  stages: [{{ to: 5, over: 1s }}, {{ hold: 1s }}]\n  {load}"),
        &[],
        &["has stages"],
    );
    check(&format!("load:\n  users: 1\n  duration: 1s\n  {load}"), &["--block", "1"], &["1", "--block"]);
    check(
        &format!(
            "levers:\n  pool: {{ now: 10, less: 9, set: \"true ${{value}}\" }}\nload:\n  users: 1\n  duration: 1s\n  {load}"
        ),
        &["--budget", "20s"],
        &["need a budget of", "--budget"],
    );
}

#[test]
fn a_system_with_room_is_no_mistake() {
    let lab = Lab::new();
    let load = "load:\n  rate: 20/s\n  duration: 1s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    lab.file("plan.yaml", &run_support::plan(&[component("web", "", &[])], load));
    let ran = lab.loadlab(&["why", "plan.yaml", "--quiet", "--out", &lab.run_name()]);
    // 4: the machine was too busy for a valid measurement; 6: too busy for the server's threads to be read.
    assert!(matches!(ran.code, Some(0 | 4 | 6)), "{}\n{}", ran.out, ran.err);
    let is_known = !ran.out.contains("how busy its threads are is not known");
    assert!(is_known || ran.code != Some(0), "{}", ran.out);
    let answer = if is_known {
        ["no limit that could be raised", "no CPU limit"]
    } else {
        ["no lever could be tried"; 2]
    };
    for text in answer.into_iter().chain(["web CPU not tried"]) {
        assert!(ran.out.contains(text), "no `{text}` in:\n{}\n{}", ran.out, ran.err);
    }
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}
