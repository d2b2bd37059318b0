//! A run that is ended from outside, in every phase: by Ctrl-C, and by `kill -9` of loadlab, of its process group, and
//! of its guardian too. Everything measured stays readable, and nothing is left behind.

use rustix::process::Signal;

use crate::run_support;
use crate::run_support::{LONG, Lab, Ran, Record, Running, component, eventually, has_answers, plan};

/// The phase in which a run is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Building,
    Starting,
    Preparing,
    Loading,
    Pausing,
    Draining,
    Finishing,
    TakingDown,
}

const PHASES: [Phase; 8] = [
    Phase::Building,
    Phase::Starting,
    Phase::Preparing,
    Phase::Loading,
    Phase::Pausing,
    Phase::Draining,
    Phase::Finishing,
    Phase::TakingDown,
];

/// A component that notes when it is asked to end, but does not end until the test lets it go.
const STUBBORN: &str = "    stubborn:\n      \
                        run: \"trap 'touch at' TERM; echo armed; until test -e let_go; do sleep 0.05; done\"\n      \
                        ready: { log: armed }\n      stop: { timeout: 10m }\n";

impl Phase {
    /// Starts a run that reaches this phase and stays in it.
    fn start(self, lab: &Lab) -> Running {
        let hang = "touch at; exec sleep 1000";
        let web = |more: &[&str]| component("web", "", more);
        let probes = "  probes: { stored: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored } }\n";
        let text = match self {
            Phase::Building => plan(&[web(&[&format!("build: {hang}")])], ""),
            Phase::Starting => plan(
                &[
                    web(&[]),
                    format!(
                        "    slow: {{ run: \"{hang}\", port: auto, ready: {{ tcp: \"127.0.0.1:${{port}}\", timeout: 10m }} }}\n"
                    ),
                ],
                "",
            ),
            Phase::Preparing => plan(&[web(&[])], &format!("  before_trial: {hang}\n")),
            Phase::Loading => plan(&[web(&[])], LONG),
            Phase::Pausing => {
                let load = "load:\n  users: 2\n  requests: 40\n  batches: { repeat: 2, pause: 10m }\n  \
                            journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
                plan(&[web(&[])], load)
            }
            Phase::Draining => plan(
                &[web(&[])],
                &format!("{probes}drain: {{ until: \"stored == 1000000\", at_most: 10m }}\n"),
            ),
            Phase::Finishing => plan(&[web(&[])], &format!("  after_trial: {hang}\n")),
            Phase::TakingDown => plan(&[web(&[]), STUBBORN.to_owned()], ""),
        };
        let running = lab.start(&text, &[]);
        let record = lab.record();
        let holds = |name: &str, text: &str| {
            let file = record.trial("default", 1).join(name);
            std::fs::read_to_string(file).ok().filter(|t| t.contains(text)).map(drop)
        };
        eventually(&format!("{self:?}"), || match self {
            Phase::Loading => has_answers(&record.trial("default", 1).join("ticks.jsonl")).then_some(()),
            Phase::Pausing => holds("events.jsonl", "load_ended"),
            Phase::Draining => holds("events.jsonl", "drain_started"),
            _ => lab.path().join("at").exists().then_some(()),
        });
        running
    }

    /// Whether the load has begun in this phase.
    fn has_load(self) -> bool {
        !matches!(self, Phase::Building | Phase::Starting | Phase::Preparing)
    }

    /// Whether the trial's summary is on disk although the run was killed.
    fn has_summary(self) -> bool {
        self == Phase::TakingDown
    }
}

/// Number of successful requests, from the JSON report.
fn ok_of(record: &Record) -> u64 {
    let csv = record.report("json");
    let report: serde_json::Value = serde_json::from_str(&csv).expect("the report is JSON");
    let found = find(&report, "requests").and_then(|r| r["ok"].as_u64());
    found.unwrap_or_else(|| panic!("no requests in {csv}"))
}

fn find<'a>(value: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    match value {
        serde_json::Value::Object(map) => map.get(key).or_else(|| map.values().find_map(|v| find(v, key))),
        serde_json::Value::Array(list) => list.iter().find_map(|v| find(v, key)),
        _ => None,
    }
}

fn ticks_of(record: &Record) -> u64 {
    let ticks = record.lines("default", 1, "ticks.jsonl");
    ticks.iter().filter_map(|t| find(t, "ok")?.as_u64()).sum()
}

#[test]
fn killed_in_every_phase() {
    for (phase, whole_group) in PHASES.into_iter().zip([false, true].into_iter().cycle()) {
        let lab = Lab::new();
        let running = phase.start(&lab);
        match whole_group {
            false => running.signal(Signal::KILL),
            true => running.signal_group(Signal::KILL),
        }
        assert_eq!(running.end().code, None, "{phase:?}");
        eventually(&format!("the guardian's work ({phase:?})"), || {
            lab.left_behind().is_empty().then_some(())
        });
        let record = lab.record();
        assert_eq!(record.manifest()["how"], "partial", "{phase:?}");
        assert_eq!(
            record.trial("default", 1).join("summary.json").exists(),
            phase.has_summary(),
            "{phase:?}"
        );
        let report = record.report("md");
        assert!(report.contains("killed") || report.contains("cut off"), "{phase:?}: {report}");
        if phase.has_load() {
            assert!(ok_of(&record) > 0 && ok_of(&record) == ticks_of(&record), "{phase:?}");
        }
        // The state file goes last, after everything listed in it.
        eventually(&format!("the end of its ledger ({phase:?})"), || {
            (!lab.loadlab(&["clean", "--dry-run"]).out.contains(&lab.run_name())).then_some(())
        });
    }
}

/// Whether this process ignores SIGHUP: signal 1, the lowest bit of the mask.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn interrupted_in_every_phase() {
    // Under nohup, under which these tests may run too, loadlab does not end with its terminal.
    let third = if hangups_are_ignored() { Signal::INT } else { Signal::HUP };
    for (phase, signal) in PHASES.into_iter().zip([Signal::INT, Signal::TERM, third].into_iter().cycle()) {
        let lab = Lab::new();
        let running = phase.start(&lab);
        running.signal(signal);
        lab.file("let_go", "");
        let ran = running.end();
        ran.expect(130, &[]);
        assert_eq!(lab.left_behind(), Vec::<String>::new(), "{phase:?}");
        let record = lab.record();
        assert_eq!(record.manifest()["how"], "interrupted", "{phase:?}");
        assert!(record.manifest()["ended"].is_string());
        assert_eq!(record.trial("default", 1).join("summary.json").exists(), phase.has_load(), "{phase:?}");
        if phase.has_load() && phase != Phase::TakingDown {
            assert_eq!(record.summary("default", 1)["ended"], "interrupted", "{phase:?}");
        }
        assert!(record.dir.join("report.html").exists(), "{phase:?}: {}", ran.err);
        assert!(record.report("md").contains("interrupted"), "{phase:?}");
    }
}

/// The first signal waits for a component that does not stop; the second ends loadlab at once, and the guardian does
/// the rest.
#[test]
fn interrupted_twice() {
    let lab = Lab::new();
    let mut running = lab.start(&plan(&[component("web", "", &[]), STUBBORN.to_owned()], LONG), &[]);
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    running.signal(Signal::INT);
    eventually("the stop signal", || lab.path().join("at").exists().then_some(()));
    assert!(running.child.try_wait().unwrap().is_none());
    running.signal(Signal::INT);
    running.end().expect(130, &["stopped at once"]);
    eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
    assert_eq!(lab.record().summary("default", 1)["ended"], "interrupted");
}

/// Trials that an interrupted run did not reach are not run, and this is reported.
#[test]
fn trials_after_an_interruption() {
    let lab = Lab::new();
    let mut running = lab.start(&plan(&[component("web", "", &[])], &format!("trials: 3\n{LONG}")), &[]);
    running.wait_for_output("web ready");
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    running.signal(Signal::INT);
    running.end().expect(130, &[]);
    let record = lab.record();
    assert!(!record.trial("default", 2).exists());
    assert!(record.report("md").contains("never began"), "{}", record.report("md"));
}

/// Records of the same name are made in two folders at the same moment: each run has its own cgroups.
#[test]
fn two_runs_of_one_name() {
    let (lab, other) = (Lab::new(), Lab::new());
    let text = plan(&[component("web", "", &["limits: { memory: 200MiB }"])], "");
    for dir in [&lab, &other] {
        dir.file("plan.yaml", &text);
    }
    let name = lab.run_name();
    let start = |lab: &Lab| lab.command(&["run", "plan.yaml", "--out", &name]).spawn().unwrap();
    let runs = [start(&lab), start(&other)];
    let ran = runs.map(|run| Ran::of(run.wait_with_output().unwrap()));
    assert_eq!(lab.left_behind(), Vec::<String>::new());
    // Both are refused alike if the host provides no limits.
    if ran[0].code == ran[1].code && ran[0].lacks_limits() {
        return;
    }
    for ran in &ran {
        ran.expect(0, &[]);
    }
}

/// Concurrent runs share nothing: one is killed, the other continues to its end.
#[test]
fn two_runs_at_once() {
    let (one, two) = (Lab::new(), Lab::new());
    let load = LONG.replace("duration: 10m", "requests: 600\n  think: 5ms");
    let text = plan(&[component("web", "", &[])], &load);
    let killed = Phase::Loading.start(&one);
    let mut other = two.start(&text, &[]);
    other.wait_for_output("web ready");
    killed.signal_group(Signal::KILL);
    killed.end();
    let ran = other.end();
    ran.expect_however_busy(&[two.record().summary("default", 1)], false);
    assert_eq!(two.left_behind(), Vec::<String>::new());
    eventually("the guardian's work", || one.left_behind().is_empty().then_some(()));
}

/// With the guardian killed too, everything stays until `loadlab clean`, which spares what is alive. The test has its
/// own `/run`, so that no other run on this machine is affected.
#[test]
fn clean_removes_what_a_killed_guardian_left() {
    if !rustix::process::geteuid().is_root() || !can_unshare() {
        return run_support::skip::skip("it takes root and a mount namespace");
    }
    let lab = Lab::new();
    // The kernel kills a component's first process along with loadlab; what that process started survives.
    let daemon = "    daemon: { run: \"sleep 1000 & wait\" }\n".to_owned();
    lab.file("plan.yaml", &plan(&[component("web", "", &[]), daemon], LONG));
    let name = lab.run_name();
    // Both runs, the kills and `clean` share one namespace; what is left is listed in between.
    let script = r#"
        mount -t tmpfs none /run || exit 99
        "$LOADLAB" run plan.yaml --out "$NAME" --quiet > /dev/null & dying=$!
        "$LOADLAB" run plan.yaml --out "$NAME-alive" --quiet > /dev/null & alive=$!
        until test -s "$NAME/cases/default/1/ticks.jsonl" && test -s "$NAME-alive/cases/default/1/ticks.jsonl"; do sleep 0.05; done
        guardian=$(sed -n '/"guardian"/,/}/s/.*"pid": *\([0-9]*\).*/\1/p' /run/loadlab/"$NAME"-$dying-[0-9]*.json)
        kill -9 $guardian $dying; wait $dying
        "$LOADLAB" clean --dry-run > dry; test -d "$NAME/scratch" || echo "scratch went too early" >> dry
        "$LOADLAB" clean > cleaned; echo "exit $?" >> cleaned
        "$LOADLAB" clean > again
        kill -0 $alive && kill -INT $alive; wait $alive; echo $? > alive
    "#;
    let status = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .current_dir(lab.path())
        .env("LOADLAB", run_support::LOADLAB)
        .env("NAME", &name)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let (dry, cleaned) = (lab.read("dry"), lab.read("cleaned"));
    for what in ["process ", "folder ", "state file "] {
        assert!(dry.contains(&format!("would remove {what}")), "{dry}");
        assert!(cleaned.contains(&format!("removed {what}")), "{cleaned}");
    }
    assert!(cleaned.ends_with("exit 0\n") && !cleaned.contains("-alive"), "{cleaned}");
    assert_eq!(lab.read("again"), "nothing to clean\n");
    assert_eq!(lab.read("alive"), "130\n", "the other run was not disturbed");
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

pub fn can_unshare() -> bool {
    let tried = std::process::Command::new("unshare").args(["--mount", "true"]).status();
    tried.is_ok_and(|status| status.success())
}
