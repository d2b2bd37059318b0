//! `record`: a run directory with arbitrary content in one file is read or refused, never a panic; and a good file
//! stays readable wherever it is cut off (all but the manifest, which is replaced as a whole).
//!
//! Input: byte 0 selects the file, byte 1 where it is cut, the rest is its content. The folder is in memory if the
//! machine has `/dev/shm`, and is left behind, one per process, because fuzzing ends by a signal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use loadlab_record::counts::hlog::{self, Encoder};
use loadlab_record::counts::load::Series;
use loadlab_record::store::{StoreError, read_run};

const TRIAL: &str = "cases/control/1";
const FILES: [&str; 8] = [
    "latency.hlog",
    "ticks.jsonl",
    "samples.jsonl",
    "events.jsonl",
    "examples.jsonl",
    "summary.json",
    "manifest.json",
    "evidence.jsonl",
];
const MANIFEST: usize = 6;
/// The manifest of a record with one case and one trial, valid when this was written. A field added later makes it
/// unreadable, which `tests/seeds.rs` detects.
const GOOD_MANIFEST: &[u8] = include_bytes!("../seeds/manifest.json");

/// This process's folder, with a good manifest and an empty trial.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("loadlab-fuzz-{}", std::process::id()));
        fs::create_dir_all(folder.join(TRIAL)).expect("a folder for the record");
        fs::write(folder.join("manifest.json"), GOOD_MANIFEST).expect("the manifest");
        folder
    })
}

/// Removes the folder, for callers that end by returning.
pub fn clean() {
    let _ = fs::remove_dir_all(folder());
}

/// Reads the folder with this content in one file: the number of notes, or the error's text.
fn read_with(file: usize, content: &[u8]) -> Result<usize, String> {
    let name = FILES[file];
    let path = match file {
        MANIFEST => folder().join(name),
        _ => folder().join(TRIAL).join(name),
    };
    fs::write(&path, content).expect("the file under test");
    let result = read_run(folder());
    match file {
        MANIFEST => fs::write(&path, GOOD_MANIFEST).expect("the manifest"),
        _ => fs::remove_file(&path).expect("the file under test"),
    }
    match result {
        Ok(run) => {
            // Missing files are noted: at least four of the other five.
            assert!(file == MANIFEST || run.notes.len() >= 4, "{:?}", run.notes);
            Ok(run.notes.len())
        }
        Err(error) => {
            if let StoreError::Garbled { line, .. } = &error {
                let lines = content.split(|b| *b == b'\n').count() as u64;
                assert!((1..=lines.max(1)).contains(line), "line {line} of {lines}: {error}");
            }
            let message = error.to_string();
            assert!(!message.is_empty());
            Err(message)
        }
    }
}

/// A log on its own: every interval merges, and what is written from it reads back.
fn log(content: &[u8]) {
    let Ok(log) = hlog::read(content, Path::new("latency.hlog")) else { return };
    for interval in &log.intervals {
        let histogram = interval.histogram();
        assert_eq!(histogram.count(), interval.count(), "{interval:?}");
        let (series, tag) = (interval.series(), interval.request_tag());
        assert!(tag.is_none_or(|t| t.len() + series.len() < interval.tag.len()));
        let all = Series { response_ok: histogram, ..Series::default() };
        let load = interval.load.as_deref().unwrap_or("main");
        let mut encoder = Encoder::new().expect("an encoder");
        let lines = encoder.interval(load, 0.0, 1.0, &all, &Default::default()).expect("an interval");
        let written = [hlog::HEADER.as_bytes(), lines].concat();
        let back = hlog::read(&written, Path::new("again.hlog")).expect("what was written");
        let count: u64 = back.intervals.iter().map(hlog::Interval::count).sum();
        assert_eq!(count, interval.count(), "{interval:?}");
        assert_eq!(back.torn_line, None);
        let load = back.intervals.first().and_then(|i| i.load.as_deref());
        assert!(load.is_none() || load == interval.load.as_deref().or(Some("main")), "{load:?}");
    }
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [which, cut, content @ ..] = data else { return };
    let file = usize::from(*which) % FILES.len();
    if file == 0 {
        log(content);
    }
    let whole = read_with(file, content);
    if file != MANIFEST && whole.is_ok() && !content.is_empty() {
        let end = content.len() * usize::from(*cut) / 256;
        let torn = read_with(file, &content[..end]);
        assert!(torn.is_ok(), "good as a whole, refused when cut off at {end}: {torn:?}");
    }
}
