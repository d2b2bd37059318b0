//! Profiles: stacks are sampled as the plan or the command line requests, and appear in the record and in every form of
//! the report. Whether they name the right functions is checked with planted ones: `cargo xtask test --only "planted
//! hot functions"`.

use serde_json::Value;

use crate::run_support;
use crate::run_support::{Lab, component, eventually};

const LOAD: &str = "load:\n  users: 2\n  pace: 10ms\n  duration: 8s\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";

fn plan(profile: &str) -> String {
    let web = component("web", "\"burn_us\": 2000", &[]);
    run_support::plan(&[web], &format!("{profile}{LOAD}"))
}

fn profile_of(lab: &Lab) -> Value {
    let text = std::fs::read_to_string(lab.record().dir.join("cases/default/1/profile.json"));
    serde_json::from_str(&text.expect("there is a profile")).expect("JSON")
}

#[test]
fn stacks_are_in_the_record_in_every_form_of_the_report_and_in_comparisons() {
    let lab = Lab::new();
    lab.run(&plan("profile: { components: [web], rate: 499, on: both }\n"), &["--quiet"]);
    let ran = lab.loadlab(&["report", &lab.run_name(), "--format", "json"]);
    let json: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}\n{}", ran.out, ran.err));
    let profile = profile_of(&lab);
    let windows = profile["windows"].as_array().expect("windows");
    // One second of every two is sampled. A load of eight seconds has at most four of them.
    let at = |window: &Value, end: &str| window[end].as_f64().expect("a second");
    let two = |window: &Value| (at(window, "from_s") / 2.0) as u64;
    assert!(
        !windows.is_empty() && windows.windows(2).all(|both| two(&both[0]) < two(&both[1])),
        "{windows:?}"
    );
    assert!(windows.iter().all(|window| at(window, "to_s") - at(window, "from_s") < 1.5), "{windows:?}");
    let web = &profile["components"][0];
    let samples = web["samples"].as_u64().expect("samples");
    assert!(web["component"] == "web" && samples > 0, "{profile:#}");
    let counted = |of: &Value| of["samples"].as_u64().expect("samples");
    let stacks = web["stacks"].as_array().expect("stacks");
    assert_eq!(stacks.iter().map(counted).sum::<u64>(), samples, "every sample is in one stack");
    let folded = lab.read(&format!("{}/cases/default/1/profile.folded", lab.run_name()));
    let last = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
    assert_eq!(folded.lines().filter_map(last).sum::<u64>(), samples, "{folded}");
    assert!(folded.lines().all(|line| line.starts_with("web;")), "{folded}");

    let dir = lab.record().dir.join("cases/default/1");
    for file in ["profile.pb.gz", "waits.pb.gz"] {
        let packed = std::fs::read(dir.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(packed.starts_with(&[0x1f, 0x8b]), "{file} is not gzip");
    }
    let waits = &profile["waits"][0];
    let waited_us: u64 = waits["idle"].as_array().expect("idle waits").iter().map(counted).sum();
    // A server with two users waits for their next requests, or for events, whenever it is idle.
    assert!(waits["component"] == "web" && waited_us > 0, "{waits:#}");
    let folded = std::fs::read_to_string(dir.join("waits.folded")).expect("folded waits");
    assert_eq!(folded.lines().filter_map(last).sum::<u64>(), counted(waits), "{folded}");
    assert!(profile["waits_s"].as_f64().is_some_and(|s| s > 0.0), "{profile:#}");

    let of = &json["cases"][0]["profile"];
    assert!(of["waits"][0]["component"] == "web" && of["waits_s"] == profile["waits_s"], "{of:#}");
    assert_eq!(counted(&of["components"][0]), samples, "{of:#}");
    let functions = of["components"][0]["functions"].as_array().expect("functions");
    let own = |function: &Value| function["own"].as_u64().expect("own");
    assert!(functions.is_sorted_by_key(|f| std::cmp::Reverse(own(f))), "{of:#}");
    let name = functions[0]["name"].as_str().expect("a name");
    let report = lab.read(&format!("{}/report.md", lab.run_name()));
    assert!(
        report.contains("CPU time of web by function") && report.contains("cost of sampling"),
        "{report}"
    );
    let page = lab.read(&format!("{}/report.html", lab.run_name()));
    assert!(page.contains("class=\"flame\"") && page.contains("CPU time of web by function"), "{name}");
    check_comparison(&lab);
}

/// Two runs are compared by function.
#[track_caller]
fn check_comparison(lab: &Lab) {
    let first = lab.run_name();
    let ran = lab.loadlab(&["compare", &first, &first, "--format", "html"]);
    assert!(
        ran.out.contains("id=\"comparison-1-flame-web\"") && ran.out.contains("a larger share than before"),
        "{}",
        ran.err
    );
    let ran = lab.loadlab(&["compare", &first, &first]);
    assert!(ran.out.contains("CPU time of web by function, against"), "{}", ran.out);
}

#[test]
fn the_command_line_asks_for_a_plan_that_does_not() {
    let lab = Lab::new();
    lab.run(&plan(""), &["--flame-graphs=web", "--set", "profile.on=both", "--quiet"]);
    let profile = profile_of(&lab);
    assert_eq!(profile["waits"][0]["component"], "web", "{profile:#}");
    assert!(profile["rate_per_s"] == 199 && profile["components"][0]["component"] == "web", "{profile:#}");
    let manifest = lab.record().manifest();
    assert!(manifest["options"].to_string().contains("--flame-graphs=web"), "{manifest:#}");

    let wrong = lab.loadlab(&["run", "plan.yaml", "--flame-graphs=db", "--dry-run"]);
    wrong.expect(2, &["there is no component `db`", "`web`"]);
}

#[test]
fn an_interrupted_trial_has_the_stacks_of_what_there_was() {
    let lab = Lab::new();
    let running = lab.start(&plan("profile: true\n").replace("duration: 8s", "duration: 60s"), &["--quiet"]);
    let folder = lab.record().dir.join("cases/default/1/ticks.jsonl");
    // Any two seconds of load contain one with samples, if the profiler has begun by then.
    eventually("six seconds of load", || {
        let ticks = std::fs::read_to_string(&folder).ok()?;
        (ticks.lines().count() >= 6).then_some(())
    });
    running.signal(rustix::process::Signal::INT);
    running.end();
    assert_eq!(lab.left_behind(), Vec::<String>::new());
    let profile = profile_of(&lab);
    assert!(profile["components"][0]["samples"].as_u64().is_some_and(|samples| samples > 0), "{profile:#}");
}
