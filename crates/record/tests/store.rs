//! Run directories: written, cut, damaged, and read back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::counts::load::{Series, TagMeasured, Tick};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::manifest::{CaseFacts, Manifest};
use loadlab_record::documents::search::SearchFacts;
use loadlab_record::documents::summary::Summary;
use loadlab_record::store::{
    RunWriter, StoreError, TrialWriter, case_dir_name, case_dir_names, read_run, read_summaries, resume,
};
use loadlab_record::watch::sample::Sample;
use loadlab_record::{Failure, Secrets};
use proptest::prelude::*;
use serde_json::json;

fn manifest() -> Manifest {
    let case = |name: &str| json!({"name": name, "dir": case_dir_name(name), "values": [["edge_cpu", name]], "users": 10, "rate_per_s": null});
    let value = json!({
        "record": 2, "loadlab": "0.1.0", "name": "edges", "plan_path": "plan.yaml", "plan_text": "loadlab: 1\n",
        "plan_sha256": "00", "options": [], "started": "2026-11-20T10:00:00Z", "ended": null, "how": "partial",
        "writer": {"pid": 1, "start_ticks": 2},
        "host": {"kernel": "Linux", "cpu": "x", "cores": 2, "memory_bytes": 1, "clock_source": "tsc", "cgroup": "v1"},
        "words": [], "components": [], "axes": ["edge_cpu"], "cases": [case("control"), case("1% CPU")],
        "trials": 1, "expect": ["p99 < 2s"], "quick": true
    });
    serde_json::from_value(value).unwrap()
}

fn summary() -> Summary {
    let distribution = json!({"count": 0, "censored": 0, "mean": null, "stdev": null, "within_stdev": null, "min": null, "p50": null,
        "p75": null, "p90": null, "p95": null, "p99": null, "p99_9": null, "p99_99": null, "max": null, "over_ms": {}});
    let value = json!({
        "loadlab": "0.1.0", "verdict": "pass", "ended": "complete", "doubts": [], "expectations": [],
        "load": {"model": "closed", "users": 10, "rate_per_s": null, "duration_s": 3.0, "requests": null, "ramp_s": 0.0, "keep_alive": true,
                 "protocol": "http/1.1", "url": "http://127.0.0.1:1/", "seed": 0},
        "elapsed_s": 3.1, "window": {"from_s": 1.0, "to_s": 3.0},
        "requests": {"due": 0, "dropped": 0, "started": 0, "ok": 0, "failed": 0, "in_flight": 0}, "failures": {}, "statuses": {"200": 7},
        "availability": null, "concurrency_mean": 0.1, "rate_per_s": {"due": 0.0, "started": 0.0, "ok": 0.0, "ok_stdev": null, "ok_max": null},
        "bytes": {"sent": 0, "received": 0}, "response_ms": distribution, "ok_response_ms": distribution, "failed_response_ms": distribution,
        "service_ms": distribution, "late_ms": distribution, "blocked_ms": distribution, "connect_ms": distribution, "tls_ms": distribution,
        "by_tag": {}, "connections": {"attempted": 0, "opened": 0, "requests_resent": 0, "peak": 0},
        "generator": {"io": "sim", "threads": 1, "cpus": [], "cpu_s": 0.0, "run_delay_s": null, "throttled_s": null, "peak_rss_bytes": 0, "connections_peak": 0},
        "components": {}, "probes": {}, "drain_s": null, "loss": null
    });
    serde_json::from_value(value).unwrap()
}

fn tick(second: u32) -> Tick {
    let mut tick = Tick {
        load: "main".to_owned(),
        from_s: f64::from(second),
        to_s: f64::from(second) + 1.0,
        in_window: second > 0,
        ..Tick::default()
    };
    tick.counts.failures.add(Failure::Timeout, u64::from(second));
    tick.response_ms.mean = Some(0.1 + 0.2);
    tick
}

fn sample(second: u32, component: &str) -> Sample {
    Sample {
        at_s: f64::from(second) / 3.0,
        component: component.to_owned(),
        cpu_s: Some(0.7),
        ..Sample::default()
    }
}

fn example(second: u32) -> Example {
    Example {
        kept: ExampleReason::Failed,
        outcome: "timeout".to_owned(),
        load: "main".to_owned(),
        tag: None,
        due_s: f64::from(second),
        response_ms: 30_000.1,
        service_ms: 30_000.0,
        user: Some(3),
        step: None,
        captured: BTreeMap::new(),
        address: "127.0.0.1:1".to_owned(),
        error: Some("no answer within 30 s".to_owned()),
        request: "GET /\n".to_owned(),
        request_head: "GET / HTTP/1.1\r\n\r\n".to_owned(),
        status: None,
        response_head: None,
        response_body: None,
    }
}

fn event(second: u32) -> Event {
    Event { at_s: f64::from(second), what: EventKind::Ready { component: "edge1".to_owned(), after_s: 0.5 } }
}

/// A second's values: 1 ms, but 5 ms in the first, which is outside the window.
fn series(second: u32) -> Series {
    let mut series = Series::default();
    let value_ns = if second == 0 { 5_000_000 } else { 1_000_000 };
    series.response_ok.record_n(value_ns, 100);
    series
}

/// Three seconds of a trial of the first case.
fn write_trial(dir: &Path) -> TrialWriter {
    let run = RunWriter::create(dir, &manifest()).unwrap();
    let trial = run.trial("control", 1).unwrap();
    let mut tag = TagMeasured::default();
    tag.response_ok.record_n(2_000_000, 40);
    let by_tag = BTreeMap::from([("page".to_owned(), tag)]);
    for second in 0..3 {
        trial.tick(&tick(second)).unwrap();
        trial.interval("main", f64::from(second), 1.0, &series(second), &by_tag).unwrap();
        trial.samples(&[sample(second, "edge1"), sample(second, "edge2")]).unwrap();
        trial.event(&event(second)).unwrap();
        trial.example(&example(second)).unwrap();
    }
    trial
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("runs").join("edges-1");
    (scratch, dir)
}

/// Resuming may still fail before anything is run: until then the record stays as it is.
#[test]
fn trials_that_are_made_again_are_moved_when_that_is_asked_for() {
    let (_scratch, dir) = scratch();
    write_trial(&dir).summary(&summary()).unwrap();
    let opened = |keeps: bool| resume(&dir, &Secrets::default(), |_| keeps).unwrap();
    let (trial, aside) = (dir.join("cases/control/1"), dir.join("cut-off/control-1-1"));
    let whole = opened(true);
    whole.cut_off.move_aside().unwrap();
    assert_eq!((whole.kept.len(), whole.manifest), (1, manifest()));
    assert!(trial.exists() && !dir.join("cut-off").exists());
    let again = opened(false);
    assert!(again.kept.is_empty() && trial.exists());
    again.cut_off.move_aside().unwrap();
    assert!(!trial.exists() && aside.join("ticks.jsonl").is_file());
}

#[test]
fn what_is_written_is_read() {
    let (_scratch, dir) = scratch();
    let trial = write_trial(&dir);
    trial.summary(&summary()).unwrap();
    fs::create_dir(dir.join("cases/1pct-CPU")).unwrap();
    let record = read_run(&dir).unwrap();
    assert_eq!((record.manifest, record.dir), (manifest(), dir.clone()));
    assert_eq!(record.notes, ["cases/1pct-CPU: 0 of 1 trials found"]);
    assert_eq!(record.cases.iter().map(|c| c.facts.name.as_str()).collect::<Vec<_>>(), ["control", "1% CPU"]);
    let read = &record.cases[0].trials[0];
    assert_eq!(
        (read.number, read.dir.clone(), read.summary.clone()),
        (1, trial.dir().to_owned(), Some(summary()))
    );
    assert_eq!(read.ticks, [tick(0), tick(1), tick(2)]);
    assert_eq!(read.samples.len(), 6);
    assert_eq!(read.samples.unpacked()[5], sample(2, "edge2"));
    assert_eq!(
        (read.events.clone(), read.examples.clone()),
        ((0..3).map(event).collect(), (0..3).map(example).collect())
    );
    assert_eq!(read.intervals.len(), 6);
    // the log contains the requests that fell due in the window, in whichever second they ended
    assert_eq!((read.series.response_ok.count(), read.series.response_ok.max_ns()), (300, Some(5_000_000)));
    assert_eq!((read.merged("tag.page.response").count(), read.merged("response").count()), (120, 300));
}

#[test]
fn the_manifest_is_replaced_and_nothing_is_left_beside_it() {
    let (_scratch, dir) = scratch();
    let run = RunWriter::create(&dir, &manifest()).unwrap();
    let mut later = manifest();
    later.ended = Some("2026-11-20T10:01:00Z".to_owned());
    run.manifest(&later).unwrap();
    assert_eq!(read_run(&dir).unwrap().manifest, later);
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["cases", "manifest.json"]);
}

/// Secrets that masking cannot know must stay readable to the user alone.
#[test]
fn a_folder_that_is_made_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_scratch, dir) = scratch();
    RunWriter::create(&dir, &manifest()).unwrap();
    let mode = |dir: &std::path::Path| fs::metadata(dir).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
}

#[test]
fn a_folder_that_holds_something_is_refused() {
    let (_scratch, dir) = scratch();
    let run = RunWriter::create(&dir, &manifest()).unwrap();
    let refused = RunWriter::create(&dir, &manifest());
    assert!(matches!(refused, Err(StoreError::Exists { ref path }) if *path == dir), "{refused:?}");
    run.trial("control", 1).unwrap();
    assert!(matches!(run.trial("control", 1), Err(StoreError::Exists { .. })));
    for bad in ["", "..", "a/b", ".hidden", "/etc"] {
        assert!(matches!(run.trial(bad, 1), Err(StoreError::Name { .. })), "{bad}");
    }
    let file = dir.join("manifest.json");
    assert!(RunWriter::create(&file, &manifest()).is_err());
    assert!(matches!(RunWriter::create(&file.join("x"), &manifest()), Err(StoreError::Write { .. })));
}

#[test]
fn an_empty_folder_is_taken_and_logs_have_a_place() {
    let (_scratch, dir) = scratch();
    fs::create_dir_all(&dir).unwrap();
    let trial = RunWriter::create(&dir, &manifest()).unwrap().trial("control", 7).unwrap();
    let (out, err) = trial.log_paths("load balancer/1");
    assert_eq!(
        (out.file_name().unwrap(), err.file_name().unwrap()),
        ("load-balancer-1.out".as_ref(), "load-balancer-1.err".as_ref())
    );
    fs::write(out, "hello").unwrap();
}

/// Cuts a file of a fresh trial at every byte of its last line and reads the run back.
fn cut_everywhere(
    name: &str,
    count: fn(&loadlab_record::store::TrialRecord) -> usize,
    whole: usize,
    of_a_line: usize,
) {
    let (_scratch, dir) = scratch();
    let path = write_trial(&dir).dir().join(name);
    let bytes = fs::read(&path).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    for cut in (last..=bytes.len()).rev() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let record = read_run(&dir).unwrap();
        let complete = cut + 1 >= bytes.len();
        let expected = if complete { whole } else { whole - of_a_line };
        assert_eq!(count(&record.cases[0].trials[0]), expected, "{name} cut at {cut}");
        let noted = record
            .notes
            .iter()
            .any(|n| n.starts_with(&format!("cases/control/1/{name}: line")) && n.contains("truncated"));
        assert_eq!(noted, !complete && cut > last, "{name} cut at {cut}: {:?}", record.notes);
    }
}

#[test]
fn a_last_line_cut_at_any_byte_is_left_out_and_noted() {
    cut_everywhere("ticks.jsonl", |t| t.ticks.len(), 3, 1);
    cut_everywhere("samples.jsonl", |t| t.samples.len(), 6, 1);
    cut_everywhere("events.jsonl", |t| t.events.len(), 3, 1);
    cut_everywhere("examples.jsonl", |t| t.examples.len(), 3, 1);
    cut_everywhere("latency.hlog", |t| t.intervals.len(), 6, 1);
}

#[test]
fn intervals_count_even_if_their_tick_was_lost() {
    let (_scratch, dir) = scratch();
    let trial = write_trial(&dir);
    let ticks = fs::read_to_string(trial.dir().join("ticks.jsonl")).unwrap();
    let two: String = ticks.lines().take(2).map(|l| format!("{l}\n")).collect();
    fs::write(trial.dir().join("ticks.jsonl"), two).unwrap();
    let record = read_run(&dir).unwrap();
    assert_eq!(record.cases[0].trials[0].series.response_ok.count(), 300);
}

#[test]
fn a_half_written_summary_is_left_out_and_noted() {
    let (_scratch, dir) = scratch();
    let trial = write_trial(&dir);
    trial.summary(&summary()).unwrap();
    let path = trial.dir().join("summary.json");
    let bytes = fs::read(&path).unwrap();
    for cut in (0..bytes.len() - 2).step_by(7) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let record = read_run(&dir).unwrap();
        assert_eq!(record.cases[0].trials[0].summary, None);
        assert!(
            record.notes[0].starts_with("cases/control/1/summary.json: truncated (EOF while parsing"),
            "{:?}",
            record.notes
        );
    }
    // what a writer killed while replacing it leaves
    fs::write(&path, &bytes).unwrap();
    fs::write(trial.dir().join("summary.json.tmp"), &bytes[..10]).unwrap();
    assert_eq!(read_run(&dir).unwrap().cases[0].trials[0].summary, Some(summary()));
    fs::remove_file(&path).unwrap();
    assert!(read_run(&dir).unwrap().notes.contains(&"cases/control/1/summary.json: missing".to_owned()));
}

/// The message for a run whose file was replaced, from the file's own name on.
fn damaged(name: &str, text: &str) -> String {
    let (_scratch, dir) = scratch();
    write_trial(&dir);
    fs::write(dir.join(name), text).unwrap();
    let error = read_run(&dir).unwrap_err().to_string();
    error.replace(&format!("{}/", dir.display()), "").replace(&dir.display().to_string(), "RUN_DIR")
}

#[test]
fn damage_is_an_error_that_names_the_place() {
    let good = serde_json::to_string(&tick(0)).unwrap();
    insta::assert_snapshot!(damaged("cases/control/1/ticks.jsonl", &format!("{good}\n{{\"load\": 3}}\n{good}\n")), @r#"
    cases/control/1/ticks.jsonl:2:10: invalid type: integer `3`, expected a string
    hint: the file is damaged here; delete this line to read the rest
    "#);
    insta::assert_snapshot!(damaged("cases/control/1/samples.jsonl", "\n"), @r"
    cases/control/1/samples.jsonl:1:1: EOF while parsing a value
    hint: the file is damaged here; delete this line to read the rest
    ");
    insta::assert_snapshot!(damaged("cases/control/1/latency.hlog", "Tag=response,1.0,x\n#\n"), @r"
    cases/control/1/latency.hlog:1:18: a length in seconds and `,` expected
    hint: the file is damaged here; delete this line to read the rest
    ");
    insta::assert_snapshot!(damaged("cases/control/1/summary.json", "{\n  \"loadlab\": 1}"), @r"
    cases/control/1/summary.json:2:14: invalid type: integer `1`, expected a string
    hint: delete the file to read the trial from its ticks
    ");
    insta::assert_snapshot!(damaged("manifest.json", "{\"record\": 1,"), @r"
    manifest.json:1:13: EOF while parsing a value
    hint: manifest.json describes the run; without it the folder cannot be read as a record
    ");
    let trials = serde_json::to_string(&Manifest { trials: 4_000_000_000, ..manifest() }).unwrap();
    insta::assert_snapshot!(damaged("manifest.json", &trials), @r"
    manifest.json:1:1: `trials` is 4000000000, and no plan has more than 10000
    hint: manifest.json describes the run; without it the folder cannot be read as a record
    ");
    insta::assert_snapshot!(damaged("manifest.json", "{\"record\": 9, \"anything\": []}"), @r"
    `manifest.json` is a record of format 9, but this loadlab reads format 2
    hint: read it with the loadlab that wrote it, or a later one
    ");
}

#[test]
fn a_folder_that_is_no_record_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let shown = |path: &Path| {
        read_run(path).unwrap_err().to_string().replace(&scratch.path().display().to_string(), "RUNS")
    };
    insta::assert_snapshot!(shown(scratch.path()), @r"
    `RUNS` is not a run directory: it has no manifest.json
    hint: choose a folder that `loadlab run` made, such as loadlab-runs/NAME-TIME
    ");
    insta::assert_snapshot!(shown(&scratch.path().join("none")), @r"
    cannot read `RUNS/none`: No such file or directory (os error 2)
    hint: check the path; it may have been removed during the run
    ");
}

#[test]
fn a_manifest_cannot_lead_out_of_its_folder() {
    let (_scratch, dir) = scratch();
    let mut escaping = manifest();
    escaping.cases = vec![CaseFacts { dir: "../../../etc".to_owned(), ..CaseFacts::default() }];
    RunWriter::create(&dir, &escaping).unwrap();
    assert!(matches!(read_run(&dir), Err(StoreError::Name { .. })));
}

#[test]
fn strangers_in_the_folder_are_noted() {
    let (_scratch, dir) = scratch();
    write_trial(&dir).summary(&summary()).unwrap();
    fs::create_dir_all(dir.join("cases/other")).unwrap();
    fs::create_dir_all(dir.join("cases/control/old")).unwrap();
    fs::remove_file(dir.join("cases/control/1/events.jsonl")).unwrap();
    assert_eq!(
        read_run(&dir).unwrap().notes,
        [
            "cases/control/old: not a trial, ignored",
            "cases/control/1/events.jsonl: missing",
            "cases/1pct-CPU: 0 of 1 trials found",
            "cases/other: not a case of the manifest, ignored"
        ]
    );
}

/// The manifest of a search has one trial of each level, and levels are measured again.
#[test]
fn a_level_that_a_search_measured_again_is_no_damage() {
    let (_scratch, dir) = scratch();
    let search = Some(SearchFacts::default());
    let run = RunWriter::create(&dir, &Manifest { search, ..manifest() }).unwrap();
    for (case, trial) in [("control", 1), ("control", 2), ("1pct-CPU", 1)] {
        run.trial(case, trial).unwrap().summary(&summary()).unwrap();
    }
    let record = read_run(&dir).unwrap();
    assert_eq!(record.notes, Vec::<String>::new());
    let read = read_summaries(&dir).unwrap();
    assert_eq!(read.notes, Vec::<String>::new());
    let counts: Vec<usize> = read.cases.iter().map(|case| case.trials.len()).collect();
    assert_eq!(counts, [2, 1]);
    assert!(read.cases.iter().flat_map(|case| &case.trials).all(|trial| trial.summary.is_some()));
}

#[test]
fn case_names_become_folder_names() {
    for (name, expect) in [
        ("control", "control"),
        ("1% CPU + 15MiB", "1pct-CPU-+-15MiB"),
        ("users=10, allocator=jemalloc", "users=10-allocator=jemalloc"),
        ("../../etc/passwd", "etc-passwd"),
        ("...", "case"),
        ("", "case"),
        ("a\0b\nc", "a-b-c"),
        ("größer $(rm) `x`", "größer-rm-x"),
        (".hidden.", "hidden"),
    ] {
        assert_eq!(case_dir_name(name), expect, "{name}");
    }
    assert_eq!(case_dir_names(&["a b", "a-b", "A B", "a-b-2", "c"]), ["a-b", "a-b-3", "A-B-4", "a-b-2", "c"]);
    assert_eq!(case_dir_names(&["1", "1%"]), ["1", "1pct"]);
}

/// A trial that a child process writes until it is killed.
#[test]
fn a_killed_writer_loses_nothing_it_had_written() {
    const CHILD: &str = "RECORD_TEST_WRITES_TO";
    if let Some(dir) = std::env::var_os(CHILD) {
        let run = RunWriter::create(Path::new(&dir), &manifest()).unwrap();
        let trial = run.trial("control", 1).unwrap();
        for second in 0.. {
            trial.tick(&tick(second)).unwrap();
            trial.interval("main", f64::from(second), 1.0, &series(second), &BTreeMap::new()).unwrap();
            println!("wrote {second}");
        }
    }
    let (_scratch, dir) = scratch();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["store::a_killed_writer_loses_nothing_it_had_written", "--exact", "--nocapture"])
        .env(CHILD, &dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let reported = lines.by_ref().map(|l| l.unwrap()).find(|l| l.contains("wrote 20")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let last = lines.map_while(Result::ok).last().unwrap_or(reported);
    let number: usize = last.trim_start_matches("wrote ").parse().unwrap_or(20);
    let record = read_run(&dir).unwrap();
    let trial = &record.cases[0].trials[0];
    assert!(trial.ticks.len() > number && trial.intervals.len() > number, "{number} {}", trial.ticks.len());
    assert!(record.notes.contains(&"cases/control/1/summary.json: missing".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn folder_names_are_plain_and_unique(names in prop::collection::vec(".{0,150}", 0..12)) {
        let dirs = case_dir_names(&names);
        let unique: std::collections::HashSet<_> = dirs.iter().map(|d| d.to_lowercase()).collect();
        prop_assert_eq!(unique.len(), names.len());
        for dir in &dirs {
            prop_assert!(!dir.is_empty() && dir.len() < 128 && !dir.starts_with('.'));
            prop_assert_eq!(Path::new(dir).components().count(), 1);
            prop_assert!(!dir.contains(|c: char| c.is_whitespace() || c.is_control() || "/\\:*?\"'<>|$`;&".contains(c)), "{}", dir);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        which in 0usize..7, bytes in prop::collection::vec(any::<u8>(), 0..400), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)
    ) {
        let (_scratch, dir) = scratch();
        write_trial(&dir).summary(&summary()).unwrap();
        let trial = dir.join("cases/control/1");
        let path = match which {
            0 => dir.join("manifest.json"),
            n => trial.join(["summary.json", "ticks.jsonl", "samples.jsonl", "events.jsonl", "examples.jsonl", "latency.hlog"][n - 1]),
        };
        let mut flipped = fs::read(&path).unwrap();
        for (at, byte) in &flips {
            let at = at.index(flipped.len());
            flipped[at] = *byte;
        }
        for damaged in [&flipped, &bytes] {
            fs::write(&path, damaged).unwrap();
            if let Err(error) = read_run(&dir) {
                prop_assert!(error.to_string().contains("\nhint: "), "{}", error);
            }
        }
    }
}

/// A search trial is a folder of levels until it is over; then the level that was found becomes the trial's own.
#[test]
fn the_level_that_was_found_becomes_the_trial() {
    let (_scratch, dir) = scratch();
    let run = RunWriter::create(&dir, &manifest()).unwrap();
    for level in 1..=3 {
        let writer = run.level("control", 1, level).unwrap();
        writer.tick(&tick(level)).unwrap();
        writer.event(&event(level)).unwrap();
        writer.summary(&Summary { elapsed_s: f64::from(level), ..summary() }).unwrap();
        assert_eq!(writer.logs(), dir.join("cases/control/1/logs"));
    }
    assert!(run.level("control", 1, 3).is_err(), "it is there");
    let record = read_run(&dir).unwrap();
    let trial = &record.cases[0].trials[0];
    assert!(trial.is_search && trial.summary.is_none() && trial.ticks.is_empty());
    assert_eq!(record.notes[0], "cases/control/1: the search was cut off; what it measured is in `levels`");

    let found = SearchFacts { level: Some(2), ..SearchFacts::default() };
    let of_trial = Summary { search: Some(found.clone()), elapsed_s: 2.0, ..summary() };
    run.adopt_level("control", 1, 2, Some(&of_trial)).unwrap();
    let record = read_run(&dir).unwrap();
    let trial = &record.cases[0].trials[0];
    assert_eq!(trial.summary.as_ref().unwrap().search, Some(found));
    assert_eq!(
        (trial.ticks.as_slice(), trial.events.as_slice()),
        ([tick(2)].as_slice(), [event(2)].as_slice())
    );
    let levels = |name: &str| dir.join("cases/control/1/levels").join(name).join("summary.json").is_file();
    assert_eq!([levels("1"), levels("2"), levels("3")], [true, false, true]);

    // A search that failed has the events of its last level, and no summary.
    let writer = run.level("control", 2, 1).unwrap();
    writer.event(&event(0)).unwrap();
    writer.summary(&summary()).unwrap();
    run.adopt_level("control", 2, 1, None).unwrap();
    let record = read_run(&dir).unwrap();
    let trial = &record.cases[0].trials[1];
    assert!(trial.summary.is_none() && trial.events == [event(0)]);
}
