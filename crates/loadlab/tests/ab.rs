//! `loadlab ab` and `loadlab bisect`: a plan at revisions of a real repository.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run_support::{LOADLAB, Lab, Ran, component, eventually, plan};

/// Slow enough that a busy machine adds little to it.
const FAST_MS: &str = "40";
const SLOW_MS: &str = "120";

/// A folder with a repository of two commits: `v1` is fast, the later one takes three times as long.
struct Shop {
    lab: Lab,
}

impl Shop {
    fn new() -> Shop {
        let shop = Shop { lab: Lab::new() };
        for folder in ["repository/load", "temporary"] {
            std::fs::create_dir_all(shop.lab.path().join(folder)).expect("a folder");
        }
        shop.git(&["init", "--quiet"]);
        shop.commit("ms", FAST_MS, "A shop");
        shop.git(&["tag", "v1"]);
        shop.commit("ms", SLOW_MS, "Ask the stock twice");
        // The plan is newer than both commits, as plans are; so is the file it names.
        shop.file("load/plan.yaml", &Shop::plan("trials: 5\n"));
        shop.file("load/pages.txt", "http://127.0.0.1:1/\n");
        shop
    }

    /// The server takes as many milliseconds as the file `ms` of its revision says.
    fn plan(rest: &str) -> String {
        let web = component("web", "\"slow_ms\": WAIT", &["build: cp ../ms built && ls pages.txt"]);
        // The shell reads the file that the build wrote.
        let (before, run) = web.split_once("run: [").expect("a command");
        let (words, after) = run.split_once(']').expect("its end");
        let words: Vec<&str> = words.split(", ").collect();
        let env = after.lines().find(|line| line.contains("LAB_SERVER")).expect("its way");
        let way = env.split('\'').nth(1).expect("JSON");
        let way = way.replace("WAIT", "'\"$(cat built)\"'");
        let line = format!("LAB_SERVER='{way}' exec {}", words.join(" "));
        let rest_of_it = after.replace(env, "");
        let web = format!("{before}run: {}{rest_of_it}", serde_json::json!(line));
        let load = "load:\n  users: 4\n  requests: 40\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
        plan(&[web], &format!("{load}figures: {{ median: p50 }}\n{rest}"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.lab.path().join("repository")
    }

    fn git(&self, words: &[&str]) -> String {
        let user = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"];
        let mut command = Command::new("git");
        command.arg("-C").arg(self.path()).args(user).args(words).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().expect("git starts");
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("a file can be written");
    }

    fn commit(&self, name: &str, text: &str, message: &str) {
        self.file(name, text);
        self.git(&["add", name]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(LOADLAB);
        command.args(words).current_dir(self.path()).stdin(std::process::Stdio::null());
        command.env("NO_COLOR", "1").env("TMPDIR", self.lab.path().join("temporary"));
        command
    }

    fn out(&self) -> String {
        self.lab.path().join(self.lab.run_name()).display().to_string()
    }

    /// Runs `loadlab ab` and checks that it leaves nothing but its record.
    #[track_caller]
    fn ab(&self, words: &[&str]) -> Ran {
        let out = self.out();
        let words = [&["ab"], words, &["load/plan.yaml", "--out", &out]].concat();
        let ran = Ran::of(self.command(&words).output().expect("loadlab starts"));
        self.nothing_is_left(&ran.err);
        ran
    }

    #[track_caller]
    fn nothing_is_left(&self, said: &str) {
        assert_eq!(self.lab.left_behind(), Vec::<String>::new(), "{said}");
        assert_eq!(self.checked_out(), Vec::<String>::new(), "{said}");
        assert_eq!(self.git(&["worktree", "list"]).lines().count(), 1);
        assert_eq!(self.git(&["status", "--porcelain"]), "?? load/");
    }

    /// Entries of the folder for temporary files.
    fn checked_out(&self) -> Vec<String> {
        let all = std::fs::read_dir(self.lab.path().join("temporary")).expect("the folder");
        all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Summaries of the trials of both revisions and of the control.
    fn summaries(&self) -> Vec<Value> {
        let record = self.lab.record();
        let is_there = |case: &&str| record.trial(case, 1).exists();
        let cases = ["v1", "HEAD", "v1-control", "HEAD-control"].into_iter().filter(is_there);
        let all = cases.flat_map(|case| (1..=5).map(move |n| (case, n)));
        all.map(|(case, n)| record.summary(case, n)).collect()
    }
}

/// A trial spoiled by the machine leaves four rounds, which are too few.
fn is_spoiled(summaries: &[Value]) -> bool {
    summaries.iter().any(|summary| summary["verdict"] == "invalid")
}

#[test]
fn the_slower_revision_is_worse() {
    let shop = Shop::new();
    let ran = shop.ab(&["v1..HEAD", "--json"]);
    let result: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.err));
    let revisions = &result["revisions"];
    for (place, name, subject) in [(0, "v1", "A shop"), (1, "HEAD", "Ask the stock twice")] {
        assert_eq!(revisions[place]["name"], name);
        assert_eq!(revisions[place]["commit"], shop.git(&["rev-parse", &format!("{name}^{{commit}}")]));
        assert_eq!(revisions[place]["subject"], subject);
        let trials = (1..=5).map(|n| shop.lab.record().summary(name, n)["requests"]["ok"].clone());
        assert!(trials.into_iter().all(|ok| ok == 40), "{name}");
    }
    // The first revision is measured a second time: any difference between the two is chance.
    assert!(shop.lab.record().trial("v1-control", 5).join("summary.json").exists(), "{}", ran.err);
    let figures = result["comparisons"][0]["figures"].as_array().expect("figures");
    let median = figures.iter().find(|figure| figure["figure"] == "median").expect("it is named");
    assert!(median["visible"].is_number() || is_spoiled(&shop.summaries()), "{median}");
    assert!(ran.err.contains("`v1` has no pages.txt: taken from the working tree"), "{}", ran.err);
    if is_spoiled(&shop.summaries()) {
        ran.expect_however_busy(&shop.summaries(), false);
        return;
    }
    ran.expect(1, &["build of web at v1", "build of web at HEAD"]);
    // By chance a figure that is equal may be called better.
    assert!(result["verdict"] == "worse" || result["verdict"] == "mixed", "{}", result["verdict"]);
    let row = &result["comparisons"][0]["figures"][0];
    assert_eq!((&row["figure"], &row["verdict"]), (&"median".into(), &"worse".into()));
    assert!(row["effect"].as_f64().is_some_and(|ratio| (2.0..4.0).contains(&ratio)), "{row}");
}

#[test]
fn the_other_way_round_it_is_better_and_a_comment_for_a_pull_request_says_so() {
    let shop = Shop::new();
    let ran = shop.ab(&["HEAD..v1", "--format", "md"]);
    if is_spoiled(&shop.summaries()) {
        ran.expect_however_busy(&shop.summaries(), false);
        return;
    }
    let first = ran.out.lines().next().unwrap_or_default();
    // By chance a figure that is equal, such as CPU per request, may be called worse.
    let is_mixed = first.starts_with("**test: mixed** – `HEAD` is ");
    ran.expect(i32::from(is_mixed), &[]);
    assert!(is_mixed || first.starts_with("**test: better** – `HEAD` is "), "{first}");
    assert!(first.contains("(A shop)") && !ran.out.contains("report.html"), "{}", ran.out);
    let rows = |name: &str| -> Vec<&str> {
        ran.out.lines().filter(|line| line.starts_with(&format!("| {name} |"))).collect()
    };
    assert!(rows("median").iter().any(|row| row.contains("better")), "{}", ran.out);
    // What the kernel charges ahead is no difference of memory.
    let is_called = |row: &&str| row.contains("better") || row.contains("worse");
    assert!(!rows("peak memory").iter().any(is_called), "{}", ran.out);
}

#[test]
fn what_cannot_be_compared_is_refused_with_a_reason() {
    let shop = Shop::new();
    shop.ab(&["v1..nowhere"]).expect(2, &["there is no revision `nowhere` in "]);
    shop.ab(&["v1...HEAD"]).expect(2, &["`A...B` names no base"]);
    shop.ab(&["v1"]).expect(2, &["expected a range such as `main..HEAD`"]);
    shop.ab(&["v1..HEAD", "--revisions", "v1..HEAD"]).expect(2, &["the revisions are named twice"]);
    // A mistake in the plan is reported before anything is checked out.
    shop.ab(&["v1..HEAD", "--set", "load.users=none"]).expect(2, &["--set load.users=none"]);
    shop.file("load/plan.yaml", &Shop::plan("trials: 5\n").replace("cp ../ms", "cp ../price"));
    shop.ab(&["v1..HEAD"]).expect(3, &["build of web at v1 failed", "../price"]);

    let elsewhere = Lab::new();
    elsewhere.file("plan.yaml", &Shop::plan("trials: 5\n"));
    let ran = elsewhere.loadlab(&["ab", "v1..HEAD", "plan.yaml"]);
    ran.expect(2, &["is in no git repository", "move the plan into the repository of what it tests"]);

    shop.git(&["-c", "protocol.file.allow=always", "clone", "--quiet", ".", "part"]);
    shop.git(&["add", "part"]);
    shop.git(&["commit", "--quiet", "--message", "A part of its own"]);
    shop.ab(&["v1..HEAD"]).expect(2, &["`HEAD` has the submodule part"]);
}

#[test]
fn changes_that_no_revision_has_are_not_compared_by_mistake() {
    let shop = Shop::new();
    shop.file("ms", "500");
    let out = shop.out();
    let words = ["ab", "v1..HEAD", "load/plan.yaml", "--out", &out];
    let ran = Ran::of(shop.command(&words).output().expect("loadlab starts"));
    ran.expect(2, &["the tree has changes in 1 file that `HEAD` does not have: ms", "--allow-dirty"]);
    assert!(!Path::new(&out).exists());
    let words = [&words[..], &["--allow-dirty", "--trials", "1", "--quiet"]].concat();
    let ran = Ran::of(shop.command(&words).output().expect("loadlab starts"));
    // One trial decides nothing.
    let code = if is_spoiled(&[("v1", 1), ("HEAD", 1)].map(|(c, n)| shop.lab.record().summary(c, n))) {
        4
    } else {
        6
    };
    ran.expect(code, &["they are left out"]);
    let median = shop.lab.record().summary("HEAD", 1)["response_ms"]["p50"].clone();
    assert!(median.as_f64().is_some_and(|ms| ms < 400.0), "{median}");
}

#[test]
fn a_kill_leaves_no_tree_behind() {
    let shop = Shop::new();
    let long = Shop::plan("trials: 5\n").replace("requests: 40", "duration: 10m");
    shop.file("load/plan.yaml", &long);
    let out = shop.out();
    let said = std::fs::File::create(shop.lab.path().join("said")).expect("a file");
    let mut command = shop.command(&["ab", "v1..HEAD", "load/plan.yaml", "--out", &out]);
    let mut child = command.stderr(said).spawn().expect("loadlab starts");
    eventually("the first load", || shop.lab.read("said").contains("web ready").then_some(()));
    assert_eq!(shop.checked_out().len(), 1);
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let is_gone = || shop.lab.left_behind().is_empty() && shop.checked_out().is_empty();
    eventually("the guardians' work", || is_gone().then_some(()));
    shop.nothing_is_left("killed");
}

/// Revisions after `v1`: from the 42nd on they are three times as slow, and every ninth does not build.
const REVISIONS: usize = 64;
const SLOW: usize = 42;

fn long_history(rest: &str, slow_ms: &str) -> Shop {
    let shop = Shop { lab: Lab::new() };
    for folder in ["repository/load", "temporary"] {
        std::fs::create_dir_all(shop.lab.path().join(folder)).expect("a folder");
    }
    shop.git(&["init", "--quiet"]);
    shop.file("pages.txt", "x");
    shop.git(&["add", "pages.txt"]);
    shop.commit("ms", FAST_MS, "A shop");
    shop.git(&["tag", "v1"]);
    for number in 1..=REVISIONS {
        shop.file("ms", if number < SLOW { FAST_MS } else { slow_ms });
        let builds = number % 9 != 0;
        shop.file("pages.txt", if builds { "x" } else { "" });
        shop.file("number", &number.to_string());
        shop.git(&["add", "."]);
        shop.git(&["commit", "--quiet", "--message", &format!("Change {number}")]);
    }
    let plan = Shop::plan(rest).replace("ls pages.txt", "test -s ../pages.txt");
    shop.file("load/plan.yaml", &plan.replace("requests: 40", "requests: 24"));
    shop
}

#[test]
fn bisect_names_the_revision_that_made_it_slower() {
    let shop = long_history("", SLOW_MS);
    let out = shop.out();
    let words = ["bisect", "v1..HEAD", "load/plan.yaml", "--figure", "median", "--out", &out, "--json"];
    let ran = Ran::of(shop.command(&words).output().expect("loadlab starts"));
    shop.nothing_is_left(&ran.err);
    if ran.code == Some(4) {
        assert!(ran.err.contains("trials in a row are INVALID"), "{}", ran.err);
        return;
    }
    ran.expect(0, &["64 revisions to search, for what changed median"]);
    let found: Value = serde_json::from_str(&ran.out).expect("a document");
    assert_eq!((&found["verdict"], &found["revisions"]), (&"found".into(), &64.into()));
    let first_bad = found["first_bad"].as_array().expect("a list");
    assert_eq!(first_bad.len(), 1, "{found:#}");
    assert_eq!(first_bad[0]["subject"], format!("Change {SLOW}"), "{found:#}");
    assert!(first_bad[0]["probability"].as_f64().is_some_and(|p| p >= 0.95));
    assert!(found["effect"].as_f64().is_some_and(|ratio| (2.0..4.0).contains(&ratio)), "{found:#}");
    let trials = found["trials"].as_array().expect("a list");
    // Plain bisection with five trials per revision takes forty.
    assert!(trials.len() < 40, "{}", trials.len());
    for skipped in found["skipped"].as_array().expect("a list") {
        let subject = skipped["subject"].as_str().expect("a text");
        let number: usize = subject.trim_start_matches("Change ").parse().expect("a number");
        assert_eq!(number % 9, 0, "{skipped}");
        assert!(skipped["why"].as_str().is_some_and(|why| why.contains("build of web at")), "{skipped}");
    }
    // Each trial has a record like any other run, and each revision is built once.
    let records = trials.iter().map(|trial| trial["record"].as_str().expect("a path"));
    let built: Vec<&str> = records.filter(|record| Path::new(record).join("builds").exists()).collect();
    let mut revisions: Vec<&str> =
        trials.iter().map(|trial| trial["commit"].as_str().expect("a commit")).collect();
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(built.len(), revisions.len());
    let written: Value =
        serde_json::from_str(&shop.lab.read(&format!("{}/bisect.json", shop.lab.run_name()))).expect("JSON");
    assert_eq!(written, found);
}

#[test]
fn bisect_refuses_what_it_cannot_search() {
    let shop = Shop::new();
    let number = std::cell::Cell::new(0);
    let bisect = |words: &[&str]| {
        // Which end is measured first is random, so each run has its own folder.
        number.set(number.get() + 1);
        let out = format!("{}-{}", shop.out(), number.get());
        let words = [&["bisect"], words, &["--out", &out]].concat();
        let ran = Ran::of(shop.command(&words).output().expect("loadlab starts"));
        shop.nothing_is_left(&ran.err);
        ran
    };
    bisect(&["HEAD..v1", "load/plan.yaml"]).expect(2, &["`HEAD` is not before `v1`"]);
    shop.git(&["tag", "same"]);
    bisect(&["same..HEAD", "load/plan.yaml"]).expect(2, &["are the same commit"]);
    bisect(&["v1..HEAD", "load/plan.yaml", "--figure", "p99 of GET /nowhere"])
        .expect(2, &["tag.GET /nowhere"]);
    bisect(&["v1..HEAD", "load/plan.yaml", "--figure", "speed"]).expect(2, &["speed"]);
    bisect(&["v1..HEAD"]).expect(2, &["PLAN"]);
    // Otherwise git would take every revision for a good one.
    bisect(&["--exec", "load/plan.yaml"])
        .expect(128, &["the plan expects nothing", "hint: give it `expect`"]);
    shop.file("load/plan.yaml", &Shop::plan("trials: 5\n").replace("cp ../ms", "cp ../price"));
    let ran = bisect(&["v1..HEAD", "load/plan.yaml", "--figure", "median"]);
    ran.expect(3, &[" end ", "cannot be measured: build of web at"]);
    // Answers from before the server died are not a measurement.
    let dying = Shop::plan("").replace("\\\"slow_ms\\\": ", "\\\"die_after\\\": 20, \\\"slow_ms\\\": ");
    assert!(dying.contains("die_after"), "{dying}");
    shop.file("load/plan.yaml", &dying);
    let ran = bisect(&["v1..HEAD", "load/plan.yaml", "--figure", "median"]);
    ran.expect(3, &[" end ", "cannot be measured: component `web` died"]);
    let two = Shop::plan("matrix: [{ name: a, x: 1 }, { name: b, x: 2 }]\n");
    shop.file("load/plan.yaml", &two);
    bisect(&["v1..HEAD", "load/plan.yaml"]).expect(2, &["the plan has 2 cases", "--case names it: `a`, `b`"]);
    // `--case` takes the plan's name for a case, although the trials of a revision have it only as part of theirs.
    shop.file("load/plan.yaml", &two.replace("cp ../ms", "cp ../price"));
    bisect(&["v1..HEAD", "load/plan.yaml", "--case", "a"])
        .expect(3, &["cannot be measured: build of web at"]);
    shop.file("load/plan.yaml", &Shop::plan("revisions: [v1, HEAD]\nexpect: [\"p50 < 1s\"]\n"));
    let why = "the plan compares revisions, but `loadlab bisect` does not";
    bisect(&["v1..HEAD", "load/plan.yaml"]).expect(2, &[why, "hint: leave them out"]);
    bisect(&["--exec", "load/plan.yaml"]).expect(128, &[why]);
    for option in ["--budget=1m", "--at-most=9", "--confidence=90%", "--allow-dirty"] {
        bisect(&["--exec", "load/plan.yaml", option])
            .expect(128, &["is for a search, and --exec measures one tree"]);
    }
}

#[test]
fn git_bisect_run_is_driven_by_what_the_plan_expects() {
    let shop = long_history("expect: [\"p50 < 150ms\"]\n", "300");
    let plan = shop.lab.path().join("plan.yaml");
    // git needs a clean tree, so the plan comes from elsewhere.
    let text = std::fs::read_to_string(shop.path().join("load/plan.yaml")).expect("the plan");
    let text = text.replace("../ms", "ms").replace("../pages.txt", "pages.txt");
    let dir = format!("dir: {}\n      build:", serde_json::json!(shop.path().display().to_string()));
    std::fs::write(&plan, text.replacen("build:", &dir, 1)).expect("a file");
    std::fs::remove_dir_all(shop.path().join("load")).expect("it is there");
    shop.file(".git/info/exclude", "built\nloadlab-runs\n");
    shop.git(&["bisect", "start", "HEAD", "v1"]);
    let said = shop.git(&["bisect", "run", LOADLAB, "bisect", "--exec", &plan.display().to_string()]);
    assert!(said.contains("is the first bad commit") && said.contains(&format!("Change {SLOW}")), "{said}");
    shop.git(&["bisect", "reset"]);
}

#[test]
fn a_history_of_runs_names_the_commit_that_changed_a_figure() {
    let shop = Shop::new();
    shop.git(&["checkout", "--quiet", "v1"]);
    shop.file("load/plan.yaml", &Shop::plan("trials: 1\n"));
    let runs = shop.lab.path().join("history");
    let mut spoiled = false;
    for number in 0..10 {
        if number == 5 {
            shop.git(&["checkout", "--quiet", "-"]);
        }
        if number == 9 {
            shop.file("ms", "121");
        }
        let out = runs.join(format!("run-{number}"));
        let words =
            ["run", "load/plan.yaml", "--quiet", "--out", &out.display().to_string()].map(str::to_owned);
        let ran =
            Ran::of(shop.command(&words.each_ref().map(String::as_str)).output().expect("loadlab starts"));
        assert!(out.join("manifest.json").exists(), "{}", ran.err);
        let summary =
            std::fs::read_to_string(out.join("cases/default/1/summary.json")).expect("it was measured");
        spoiled |= serde_json::from_str::<Value>(&summary).expect("JSON")["verdict"] == "invalid";
    }
    let list = |words: &[&str]| {
        let folder = runs.display().to_string();
        let ran = Ran::of(shop.command(&[&["list", &folder], words].concat()).output().expect("it starts"));
        ran.expect(0, &[]);
        ran.out
    };
    let json: Value = serde_json::from_str(&list(&["--json"])).expect("JSON");
    let commits: Vec<(&str, bool)> = json
        .as_array()
        .expect("a list")
        .iter()
        .rev()
        .map(|run| (run["commit"]["commit"].as_str().expect("a commit"), run["commit"]["changed"] == true))
        .collect();
    let (before, after) = (shop.git(&["rev-parse", "v1"]), shop.git(&["rev-parse", "HEAD"]));
    let expect = (0..10).map(|number| (if number < 5 { &*before } else { &*after }, number == 9));
    assert_eq!(commits, expect.collect::<Vec<_>>());
    if spoiled {
        return;
    }
    let text = list(&["--trend", "median"]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = format!("commits {}..{} “Ask the stock twice”", &before[..10], &after[..10]);
    assert!(words.contains("▲ median changed at") && words.contains(&named), "{text}");
    assert!(words.contains(", worse; p = 0.0"), "{text}");
}
