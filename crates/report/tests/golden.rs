//! One committed record, one golden file per format. `UPDATE_GOLDEN=1 cargo test -p loadlab-report` rewrites them
//! (and the record, if it is missing); review the difference by hand.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use loadlab_analysis::{DiagnosedRun, DiagnosedTrial};
use loadlab_record::store::{RunRecord, read_run, read_run_with};
use loadlab_record::sync::lock;
use loadlab_report::{csv, html, json, junit, markdown, text};

use crate::support::{Component, Spec, component, compose, run, spec, write_record};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1")
}

/// Two cases, two trials, four seconds: small, with a failure, a limit, a probe and a trial that was cut off.
fn small() -> RunRecord {
    let limited =
        Component { cpu_limit: Some(0.5), memory_limit: Some(64 << 20), ..component("app", 0.9, 63 << 20) };
    let specs = [
        Spec { seconds: 4, tags: vec!["page".into()], ..spec("free", 4, 60, 8.0) },
        Spec {
            seconds: 4,
            components: vec![limited, component("database", 0.2, 90 << 20)],
            fail_every: 12,
            probes: true,
            batches: 2,
            ..spec("half a core & 64 MiB", 4, 30, 21.0)
        },
    ];
    run("a page under limits", &specs, 2, &["p50 < 100ms", "errors < 1%"])
}

fn check(name: &str, got: &str) {
    let path = golden().join(name);
    if updating() {
        std::fs::write(&path, got).expect("golden files can be written");
        return;
    }
    let expect = std::fs::read_to_string(&path).unwrap_or_default();
    if expect == got {
        return;
    }
    let first = expect.lines().zip(got.lines()).position(|(a, b)| a != b).unwrap_or(0);
    let line = |text: &str| text.lines().nth(first).unwrap_or("(no such line)").to_owned();
    panic!(
        "{name} differs from line {} on:\n expected: {}\n      got: {}\nUPDATE_GOLDEN=1 writes it anew",
        first + 1,
        line(&expect),
        line(got)
    );
}

/// Tests run in parallel, and one of them must write the record first.
static WRITING: Mutex<()> = Mutex::new(());

fn record() -> RunRecord {
    let _alone = lock(&WRITING);
    let dir = golden().join("run");
    if updating() && !dir.exists() {
        write_record(&dir, &small(), |case, trial| (case, trial) == (1, 2));
    }
    let mut record = read_run(&dir).expect("the committed record");
    // notes contain file names, and the checkout's location differs
    for note in &mut record.notes {
        *note = note.replace(&*dir.to_string_lossy(), "RUN");
    }
    record
}

#[test]
fn every_format_is_as_committed() {
    let record = record();
    let document = compose(&record);
    check("report-40.txt", &text(&document, 40, false));
    check("report-80.txt", &text(&document, 80, false));
    check("report-200.txt", &text(&document, 200, false));
    check("report.md", &markdown(&document));
    let record = record.into();
    check("report.json", &json(&record));
    check("report.csv", &csv(&record));
    check("junit.xml", &junit(&record));
    // the chart library is committed once
    let library = include_str!("../assets/uplot/uPlot.iife.min.js");
    check("report.html", &html(&document).replace(library, "/* uPlot */"));
}

#[test]
fn a_record_read_back_makes_the_same_report() {
    let first = record();
    let again = record();
    assert_eq!(html(&compose(&first)), html(&compose(&again)));
    assert_eq!(json(&first.into()), json(&again.into()));
}

/// What is dropped once a trial is diagnosed appears in no report.
#[test]
fn a_run_diagnosed_while_it_is_read_makes_the_same_report() {
    let whole = DiagnosedRun::from(record());
    let (lean, diagnosed) = read_run_with(&golden().join("run"), DiagnosedTrial::take).expect("a record");
    let trials = || lean.cases.iter().flat_map(|case| &case.trials);
    assert!(trials().all(|trial| trial.intervals.iter().all(|i| i.is("response"))));
    let lean = DiagnosedRun::new(RunRecord { notes: whole.notes.clone(), ..lean }, diagnosed);
    assert_ne!(*lean, *whole, "something is dropped");
    for form in [json, csv, junit, |run: &DiagnosedRun| html(&loadlab_report::compose(run))] {
        assert_eq!(form(&lean), form(&whole));
    }
}
