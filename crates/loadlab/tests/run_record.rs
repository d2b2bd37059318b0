//! The record of a run: written as long as there is disk space, readable whatever happens to it.

use serde_json::Value;

use crate::run_support;
use crate::run_support::{LONG, Lab, component, plan};

/// Runs a script in a separate mount namespace, where `disk` is a file system of this size.
fn on_small_disk(lab: &Lab, size: &str, script: &str) -> Option<run_support::Ran> {
    let can = std::process::Command::new("unshare").args(["--mount", "true"]).status();
    if !rustix::process::geteuid().is_root() || !can.is_ok_and(|s| s.success()) {
        run_support::skip::skip("it takes root and a mount namespace");
        return None;
    }
    std::fs::create_dir(lab.path().join("disk")).unwrap();
    // Copy out what is on the disk before the namespace, and the disk with it, is gone.
    let script = format!(
        "mount -t tmpfs -o size={size} none disk || exit 99\n{script}\ncode=$?; cp -r disk kept; exit $code"
    );
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .current_dir(lab.path())
        .env("LOADLAB", run_support::LOADLAB)
        .env("NAME", lab.run_name())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some(run_support::Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}

/// The disk fills up in the middle of the second trial: the first trial is complete, the second is there up to that
/// moment, the third is not attempted.
#[test]
fn a_disk_that_fills_up_under_the_load() {
    let lab = Lab::new();
    let filler = "    filler: { run: \"while test ! -s ${run.dir}/cases/default/2/ticks.jsonl; do sleep 0.05; done; \
                  cat /dev/zero > ${run.dir}/../ballast; exec sleep 1000\" }\n";
    // Long enough that the samples need another page of the disk during the load.
    let load = "trials: 3\nload:\n  users: 1\n  duration: \"8s\"\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    lab.file("plan.yaml", &plan(&[component("web", "", &[]), filler.to_owned()], load));
    let script = "\"$LOADLAB\" run plan.yaml --out disk/\"$NAME\"";
    let Some(ran) = on_small_disk(&lab, "600k", script) else { return };
    ran.expect(5, &["No space left on device", "hint: free space there"]);
    assert!(!ran.err.contains("trial 3"), "{}", ran.err);
    assert_eq!(lab.left_behind(), Vec::<String>::new());
    let record = run_support::Record { dir: lab.path().join("kept").join(lab.run_name()) };
    assert!(!record.dir.join("scratch").exists());
    assert_eq!(record.summary("default", 1)["ended"], "complete");
    assert!(!record.lines("default", 2, "ticks.jsonl").is_empty());
    // Which file needs the next page is chance; whatever the message says must be true.
    let (_, rest) = ran.err.split_once("cannot append to `").expect("the file that could not grow is named");
    let (path, rest) = rest.split_once('`').unwrap();
    let name = path.rsplit('/').next().unwrap();
    let safe = match record.lines("default", 2, name).len() {
        0 => "it was still empty; other files are safe".to_owned(),
        1 => "the line before it is safe".to_owned(),
        n => format!("the {n} lines before it are safe"),
    };
    assert!(rest.contains(&safe), "{safe} in: {}", ran.err);
    let report = record.report("md");
    assert!(report.contains("trial 2"), "{report}");
}

#[test]
fn a_disk_that_is_full_from_the_start() {
    let lab = Lab::new();
    lab.file("plan.yaml", &plan(&[component("web", "", &["build: touch built"])], ""));
    let script = "cat /dev/zero > disk/ballast 2> /dev/null; \"$LOADLAB\" run plan.yaml --out disk/\"$NAME\"";
    let Some(ran) = on_small_disk(&lab, "100k", script) else { return };
    ran.expect(5, &["No space left on device", "hint: free space there"]);
    assert_eq!(lab.left_behind(), Vec::<String>::new());
}

#[test]
fn reports_are_the_same_every_time() {
    let lab = Lab::new();
    lab.run(&plan(&[component("web", "", &[])], "trials: 2\nmatrix: { axes: { a: [x, y] } }\n"), &[])
        .expect(0, &[]);
    let record = lab.record();
    for format in ["text", "md", "html", "json", "csv"] {
        assert_eq!(record.report(format), record.report(format), "{format}");
    }
    for (format, name) in [("md", "report.md"), ("html", "report.html")] {
        assert_eq!(
            record.report(format),
            std::fs::read_to_string(record.dir.join(name)).unwrap(),
            "{format}"
        );
    }
    let file = lab.path().join("out.md");
    lab.loadlab(&["report", record.dir.to_str().unwrap(), "--format", "md", "-o", file.to_str().unwrap()])
        .expect(0, &[]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), record.report("md"));
    lab.loadlab(&["report", record.dir.to_str().unwrap(), "-o", "/nowhere/x"])
        .expect(5, &["cannot write /nowhere/x"]);
}

/// Damage that an interrupted write explains is left out and noted; other damage is an error that names the place.
#[test]
fn damaged_records() {
    let lab = Lab::new();
    lab.run(&plan(&[component("web", "", &[])], ""), &[]).expect(0, &[]);
    let trial = "cases/default/1";
    let broken = |name: &str, change: &dyn Fn(Vec<u8>) -> Option<Vec<u8>>| {
        let copy = tempfile::tempdir().unwrap();
        let to = copy.path().join("run");
        copy_folder(&lab.record().dir, &to);
        let file = to.join(name);
        match change(std::fs::read(&file).unwrap()) {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let ran = lab.loadlab(&["report", to.to_str().unwrap()]);
        (ran, copy)
    };
    let cut = |bytes: Vec<u8>| Some(bytes[..bytes.len() - 5].to_vec());
    let garbage = |_: Vec<u8>| Some(b"\xff\x00garbage\n{}\n".to_vec());
    let gone = |_: Vec<u8>| None;
    for name in
        ["ticks.jsonl", "samples.jsonl", "events.jsonl", "examples.jsonl", "latency.hlog", "summary.json"]
    {
        let file = format!("{trial}/{name}");
        let (ran, _copy) = broken(&file, &cut);
        ran.expect(0, &[]);
        let (ran, _copy) = broken(&file, &gone);
        ran.expect(0, &[]);
        let (ran, _copy) = broken(&file, &garbage);
        ran.expect(2, &[&format!("{file}:1:"), "hint:"]);
    }
    let (ran, _copy) = broken("manifest.json", &garbage);
    ran.expect(2, &["manifest.json:1:1", "hint:"]);
    let (ran, _copy) = broken("manifest.json", &cut);
    ran.expect(2, &["manifest.json:", "hint:"]);
    let (ran, _copy) = broken("manifest.json", &gone);
    ran.expect(2, &["is not a run directory", "hint:"]);
    for (format, hint) in
        [(99, "hint: read it with the loadlab that wrote it, or a later one"), (1, "or run its plan again")]
    {
        let (ran, _copy) = broken("manifest.json", &|bytes| {
            let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
            manifest["record"] = format.into();
            serde_json::to_vec(&manifest).ok()
        });
        ran.expect(2, &[&format!("is a record of format {format}, but this loadlab reads format 2"), hint]);
    }
    lab.loadlab(&["report", "nowhere"]).expect(2, &["nowhere is not a run's folder", "hint: `loadlab list`"]);
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A report of a run in progress: what there is so far, and the note that it is incomplete.
#[test]
fn a_report_while_it_runs() {
    let lab = Lab::new();
    let mut running = lab.start(&plan(&[component("web", "", &[])], LONG), &[]);
    running.wait_for_output("web ready");
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    run_support::eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    let report = lab.record().report("md");
    assert!(report.contains("cut off") || report.contains("still"), "{report}");
    running.signal(rustix::process::Signal::INT);
    running.end().expect(130, &[]);
}
