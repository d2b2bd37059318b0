//! Where `loadlab` writes: to its own folders and files, never through something that another user has put there.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::run_support;
use crate::run_support::{LOAD, Lab, component, plan};

const NOBODY: u32 = 65534;

fn simple() -> String {
    plan(&[component("web", "", &[])], LOAD)
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Number of entries in a folder.
fn entries(path: &Path) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

#[test]
fn a_folder_that_others_can_write_to_holds_no_record() {
    let lab = Lab::new();
    lab.file("plan.yaml", &simple());
    let shared = lab.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    for bits in [0o777, 0o775, 0o1777] {
        mode(&shared, bits);
        let ran = lab.loadlab(&["run", "plan.yaml", "--out", "shared", "--json"]);
        ran.expect(
            2,
            &["`shared` cannot be used for a record: others can write to it", "hint: ", "shared/run"],
        );
        assert_eq!(entries(&shared), 0);
    }
    // As the hint suggests, and in a private folder.
    lab.loadlab(&["run", "plan.yaml", "--out", "shared/run"]).expect(0, &[]);
    let own = lab.path().join("own");
    std::fs::create_dir(&own).unwrap();
    mode(&own, 0o755);
    lab.loadlab(&["run", "plan.yaml", "--out", "own"]).expect(0, &[]);
    assert!(own.join("report.html").is_file());
}

#[test]
fn a_folder_of_another_user_holds_no_record() {
    if !rustix::process::geteuid().is_root() {
        return run_support::skip::skip("it takes root to give a folder to somebody else");
    }
    let lab = Lab::new();
    lab.file("plan.yaml", &simple());
    let (theirs, link) = (lab.path().join("theirs"), lab.path().join("link"));
    std::fs::create_dir(&theirs).unwrap();
    mode(&theirs, 0o755);
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let ran = lab.loadlab(&["run", "plan.yaml", "--out", "theirs"]);
    ran.expect(2, &["it belongs to another user (uid 65534; loadlab runs as 0)", "hint: "]);
    assert_eq!(entries(&theirs), 0);
    let ran =
        lab.loadlab(&["find", "plan.yaml", "--expect", "p99 < 1s", "--users", "1..2", "--out", "theirs"]);
    ran.expect(2, &["it belongs to another user"]);
    assert_eq!(entries(&theirs), 0);

    let own = lab.path().join("own");
    std::fs::create_dir(&own).unwrap();
    mode(&own, 0o755);
    symlink("own", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    lab.loadlab(&["run", "plan.yaml", "--out", "link"]).expect(2, &["it is a symbolic link of another user"]);
    assert_eq!(entries(&own), 0);
}

/// A component that writes into the run's folder stands in for anyone who could.
#[test]
fn reports_and_documents_replace_links_and_follow_none() {
    let lab = Lab::new();
    let victim = lab.file("victim", "precious");
    let links = ["report.html", "report.md", "manifest.json.tmp", "report.html.tmp", "report.md.tmp"];
    let run = lab.path().join(lab.run_name());
    let plant: String =
        links.iter().map(|l| format!("ln -s {} {}/{l}; ", victim.display(), run.display())).collect();
    let text = plan(&[component("web", "", &[])], &format!("  before_trial: '{plant}true'\n{LOAD}"));
    lab.run(&text, &[]).expect(0, &[]);
    assert_eq!(lab.read("victim"), "precious");
    for name in ["report.html", "report.md", "manifest.json"] {
        assert!(std::fs::symlink_metadata(run.join(name)).unwrap().is_file(), "{name}");
    }
    assert!(lab.read(&format!("{}/report.html", lab.run_name())).contains("<html"));
}

#[test]
fn files_the_user_names_may_be_links_but_not_planted_ones() {
    let lab = Lab::new();
    let run = lab.run_name();
    lab.run(&simple(), &["--junit", "/dev/stderr"]).expect(0, &["<testsuite"]);
    let target = lab.file("target", "old");
    symlink(&target, lab.path().join("link")).unwrap();
    lab.loadlab(&["report", &run, "--format", "md", "-o", "link"]).expect(0, &[]);
    assert!(lab.read("target").starts_with("# "));
    if !rustix::process::geteuid().is_root() {
        return run_support::skip::skip("it takes root to plant what is somebody else's");
    }
    let everybody = lab.path().join("everybody");
    std::fs::create_dir(&everybody).unwrap();
    mode(&everybody, 0o1777);
    let victim = lab.file("victim", "precious");
    let planted = everybody.join("out");
    symlink(&victim, &planted).unwrap();
    std::os::unix::fs::lchown(&planted, Some(NOBODY), Some(NOBODY)).unwrap();
    let words = "there is a symbolic link of another user (uid 65534) in a world-writable folder";
    lab.loadlab(&["report", &run, "-o", "everybody/out"]).expect(5, &["cannot write everybody/out", words]);
    let bench = ["bench", "http://127.0.0.1:1/", "-n", "1"];
    lab.loadlab(&[&bench[..], &["--junit", "everybody/out"]].concat()).expect(5, &[words]);
    lab.loadlab(&[&bench[..], &["--samples", "everybody/out"]].concat()).expect(2, &[words]);
    assert_eq!(lab.read("victim"), "precious");
}

/// A file left by an earlier run would say that all is well, and a reader of standard output waits for a document.
#[test]
fn documents_say_that_nothing_was_measured() {
    let lab = Lab::new();
    lab.file("plan.yaml", &simple());
    std::fs::create_dir(lab.path().join("kept")).unwrap();
    lab.file("kept/notes", "precious");
    let url = "http://127.0.0.1:1/";
    let of_find = ["--expect", "p99 < 1s", "--users", "1..2"];
    for (command, name) in [
        (&["run", "plan.yaml"][..], "test"),
        (&[&["find", "plan.yaml"][..], &of_find].concat(), "test"),
        (&["bench", url, "-n", "1"], "bench"),
    ] {
        lab.file("junit.xml", "<testsuites errors=\"0\"/>");
        let ran = lab.loadlab(&[command, &["--out", "kept", "--junit", "junit.xml", "--json"]].concat());
        assert_eq!(ran.code, Some(2), "{command:?}: {}", ran.err);
        let junit = lab.read("junit.xml");
        let suite = format!("<testsuites name=\"{name}\" tests=\"1\" failures=\"0\" errors=\"1\">");
        assert!(junit.contains(&suite) && junit.contains("<error message=\""), "{command:?}: {junit}");
        // `bench` prints only what it measured, so it prints nothing.
        if name == "bench" {
            assert_eq!(ran.out, "");
            continue;
        }
        let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            (&json["exit"], &json["ended"], &json["run_dir"]),
            (&2.into(), &"broken".into(), &"kept".into())
        );
        assert!(json["error"].as_str().is_some_and(|why| ran.err.contains(why.lines().next().unwrap())));
    }
    // Without a record, what is missing is a file that the load needs.
    let ran = lab.loadlab(&["bench", url, "--samples", "no/such/file", "--junit", "junit.xml", "--json"]);
    assert_eq!(ran.out, "");
    let junit = lab.read("junit.xml");
    assert!(junit.contains("<testsuites name=\"loadlab bench\" tests=\"1\""), "{junit}");
    assert!(junit.contains("no/such/file"), "{junit}");
}

#[test]
fn junit_says_what_is_wrong_with_a_plan_or_an_option() {
    let lab = Lab::new();
    lab.file("plan.yaml", &simple());
    lab.file("wrong.yaml", "loadlab: 1\nname: wrong\nlod: {}\n");
    let url = "http://127.0.0.1:1/";
    for command in [
        &["run", "wrong.yaml"][..],
        &["run", "plan.yaml", "--set", "load.users=none"],
        &["ab", "a..b", "wrong.yaml"],
        &["find", "wrong.yaml", "--expect", "p99 < 1s", "--users", "1..2"],
        &["bench", url, "--expect", "p99 <"],
        &["bench", url, "--expect", "p99 <", "--save"],
        // Command lines that are not understood.
        &["run", "plan.yaml", "--trials", "0"],
        &["bench", url, "-d", "10"],
        &["bench", url, "--no-such-option"],
    ] {
        lab.file("junit.xml", "<testsuites errors=\"0\"/>");
        let ran = lab.loadlab(&[command, &["--junit", "junit.xml"]].concat());
        assert_eq!(ran.code, Some(2), "{command:?}: {}", ran.err);
        let junit = lab.read("junit.xml");
        let counts = "tests=\"1\" failures=\"0\" errors=\"1\"";
        assert!(junit.contains(counts) && junit.contains("<error message=\""), "{command:?}: {junit}");
        if command[0] != "bench" {
            let ran = lab.loadlab(&[command, &["--json"]].concat());
            let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            assert_eq!((ran.code, &json["exit"]), (Some(2), &2.into()), "{command:?}");
            assert!(json["error"].as_str().is_some_and(|why| !why.is_empty()), "{command:?}: {json}");
        }
    }
    // What cannot be resumed.
    let run = lab.run_name();
    lab.run(&simple(), &[]);
    lab.file("plan.yaml", &format!("{}# changed\n", simple()));
    for (record, why) in [(&*run, "plan.yaml is not what it was when the run began"), ("no-run", "no-run")] {
        lab.file("junit.xml", "<testsuites errors=\"0\"/>");
        lab.loadlab(&["resume", record, "--junit", "junit.xml"]).expect(2, &[why]);
        let junit = lab.read("junit.xml");
        assert!(junit.contains("errors=\"1\"") && junit.contains(why), "{record}: {junit}");
        let json: serde_json::Value =
            serde_json::from_str(&lab.loadlab(&["resume", record, "--json"]).out).unwrap();
        assert!(json["error"].as_str().is_some_and(|error| error.contains(why)), "{record}: {json}");
    }
    lab.file("junit.xml", "earlier");
    let ran = lab.loadlab(&["run", "wrong.yaml", "--dry-run", "--junit", "junit.xml"]);
    ran.expect(2, &["unknown key `lod`"]);
    assert_eq!(lab.read("junit.xml"), "earlier");
}

/// The reason is named once on standard error, and in the documents.
#[test]
fn a_target_that_refuses_is_the_reason() {
    let lab = Lab::new();
    let load = "load:\n  users: 2\n  duration: 10m\n  journey:\n    - get: http://127.0.0.1:1/\n";
    lab.file("plan.yaml", &format!("loadlab: 1\nname: refused\n{load}"));
    let ran = lab.loadlab(&["run", "plan.yaml", "--quiet", "--out", "kept", "--junit", "junit.xml"]);
    let why = "cannot connect to 127.0.0.1:1: connection refused";
    ran.expect(5, &[why]);
    assert_eq!(ran.err.matches(why).count(), 1, "{}", ran.err);
    let junit = lab.read("junit.xml");
    assert!(junit.contains(&format!("<error message=\"{why}")), "{junit}");
    // No core would have made a difference.
    let summary = lab.read("kept/cases/default/1/summary.json");
    assert!(summary.contains("all_failed") && !summary.contains("generator_cpu"), "{summary}");
}

/// After one trial it is not: the target may just have been restarting.
#[test]
fn a_case_whose_target_refuses_twice_is_given_up() {
    let lab = Lab::new();
    let load = "load:\n  users: 2\n  duration: 10m\n  journey:\n    - get: http://127.0.0.1:1/\n";
    lab.file("plan.yaml", &format!("loadlab: 1\nname: refused\ntrials: 4\n{load}"));
    lab.loadlab(&["run", "plan.yaml", "--quiet", "--out", "kept"]).expect(5, &["connection refused"]);
    for trial in [1, 2] {
        let summary = lab.read(&format!("kept/cases/default/{trial}/summary.json"));
        assert!(
            summary.contains("all_failed") && summary.contains("the target could not be reached"),
            "{summary}"
        );
    }
    for trial in [3, 4] {
        assert!(!lab.path().join(format!("kept/cases/default/{trial}/summary.json")).exists());
        let events = lab.read(&format!("kept/cases/default/{trial}/events.jsonl"));
        assert!(events.contains("not run, because an earlier trial of this case failed"), "{events}");
    }
    let report = lab.loadlab(&["show", "kept"]).out;
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = "is the server up, and is this its port? · its logs and events: cases/default/1";
    assert!(words.contains(&format!("connection refused {hint}")) && !words.contains("hint:"), "{report}");
}

#[test]
fn a_plan_and_a_url_each_have_their_command() {
    let lab = Lab::new();
    lab.file("plan.yaml", &simple());
    lab.loadlab(&["bench", "plan.yaml"]).expect(2, &["is a file, not a URL", "`loadlab run plan.yaml`"]);
    lab.loadlab(&["run", "http://127.0.0.1:1/"]).expect(2, &["is a URL, not a plan", "`loadlab bench`"]);
}
