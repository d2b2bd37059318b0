//! Reading a run directory, however its writer ended.
//!
//! What is missing, or was cut off when the writer ended, is left out and noted; any other damage is an error that
//! names the place. Nothing on disk is changed.

use std::fs;
use std::io;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::json_message;
use super::names::is_plain;
use super::{
    CASES, EVENTS, EVIDENCE, EXAMPLES, LATENCY, LEVELS, MANIFEST, PROFILE, RECORD_VERSION, SAMPLES, SUMMARY,
    StoreError, TICKS,
};
use crate::counts::example::Example;
use crate::counts::histogram::Histogram;
use crate::counts::hlog::{self, Interval};
use crate::counts::load::{Series, Tick, Window};
use crate::documents::event::Event;
use crate::documents::manifest::{CaseFacts, MAX_TRIALS, Manifest};
use crate::documents::summary::Summary;
use crate::watch::evidence::Evidence;
use crate::watch::packed_samples::{PackedSamples, Packer};
use crate::watch::profile::Profile;
use crate::watch::sample::Sample;

type Result<T> = std::result::Result<T, StoreError>;

/// A run as read from its directory.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The directory.
    pub dir: PathBuf,
    /// What the run is.
    pub manifest: Manifest,
    /// Its cases, in the manifest's order.
    pub cases: Vec<CaseRecord>,
    /// What is missing or was cut off, one sentence each, naming the file. Empty for a complete record.
    pub notes: Vec<String>,
}

/// A case and its trials.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseRecord {
    /// The case as planned.
    pub facts: CaseFacts,
    /// Its trials, by number.
    pub trials: Vec<TrialRecord>,
}

/// A trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRecord {
    /// From 1.
    pub number: u32,
    /// Its folder.
    pub dir: PathBuf,
    /// Whether it was a search, whose other levels have separate folders.
    pub is_search: bool,
    /// Its document; absent if the run ended before the trial did.
    pub summary: Option<Summary>,
    /// Seconds of load, in the order they were written.
    pub ticks: Vec<Tick>,
    /// Readings of components, likewise.
    pub samples: PackedSamples,
    /// Events, likewise.
    pub events: Vec<Event>,
    /// Activity of connections and threads, likewise; empty if nothing was watched.
    pub evidence: Vec<Evidence>,
    /// Sampled stacks; `None` if none were asked for.
    pub profile: Option<Profile>,
    /// Exchanges kept whole.
    pub examples: Vec<Example>,
    /// The intervals of the measured window, merged over seconds, batches and loads. An interval is in the window if
    /// the tick of its load that starts with it is. Precise to 0.2 % or 1 µs, as the log is.
    pub series: Series,
    /// Every interval of every series and tag.
    pub intervals: Vec<Interval>,
}

impl TrialRecord {
    /// A trial of which only the number and folder are known.
    pub fn empty(number: u32, dir: PathBuf) -> TrialRecord {
        TrialRecord {
            number,
            dir,
            is_search: false,
            summary: None,
            ticks: Vec::new(),
            samples: PackedSamples::default(),
            events: Vec::new(),
            evidence: Vec::new(),
            profile: None,
            examples: Vec::new(),
            series: Series::default(),
            intervals: Vec::new(),
        }
    }

    /// All values of one series inside the measured window, in nanoseconds. `tag` is as in [`Interval::tag`]:
    /// `response`, `tag.NAME.response_censored`.
    pub fn merged(&self, tag: &str) -> Histogram {
        let mut histogram = Histogram::new();
        self.intervals.iter().filter(|i| i.is(tag)).for_each(|i| i.merge_into(&mut histogram));
        histogram
    }
}

/// Reads a run directory: of a run that ended, was killed, or is still running.
///
/// # Errors
/// [`StoreError::NoManifest`], [`StoreError::Version`], [`StoreError::Read`], and [`StoreError::Garbled`] for damage
/// that an ended writer does not explain.
pub fn read_run(dir: &Path) -> Result<RunRecord> {
    Ok(read_run_with(dir, |_, _, _| ())?.0)
}

/// Like [`read_run`], but calls `conclude` with each trial as soon as it is read, on all cores. `conclude` may empty
/// the parts of a trial that its result replaces, so that memory does not grow with everything a run has written.
/// Returns the results by case and trial.
///
/// # Errors
/// As [`read_run`].
pub fn read_run_with<T: Send + Sync>(
    dir: &Path,
    conclude: impl Fn(&Manifest, &CaseFacts, &mut TrialRecord) -> T + Sync,
) -> Result<(RunRecord, Vec<Vec<T>>)> {
    let mut notes = Notes { dir, texts: Vec::new() };
    let manifest = read_manifest(dir)?;
    let mut found = Vec::new();
    for facts in &manifest.cases {
        if !is_plain(&facts.dir) {
            return Err(StoreError::Name { name: facts.dir.clone(), path: dir.join(CASES) });
        }
        found.push(trials_in(&dir.join(CASES).join(&facts.dir), dir)?);
    }
    let of_cases = manifest.cases.iter().zip(&found);
    let all: Vec<(&CaseFacts, &Found)> =
        of_cases.flat_map(|(facts, (trials, _))| trials.iter().map(move |found| (facts, found))).collect();
    let mut read = at_once(&all, |(facts, (number, path))| {
        let mut notes = Notes { dir, texts: Vec::new() };
        let mut trial = read_trial(*number, path.clone(), &mut notes)?;
        let concluded = conclude(&manifest, facts, &mut trial);
        Ok(((trial, concluded), notes.texts))
    })
    .into_iter();
    let (mut cases, mut conclusions) = (Vec::new(), Vec::new());
    for (facts, (trials, texts)) in manifest.cases.iter().zip(&found) {
        notes.texts.extend_from_slice(texts);
        let trials: Result<Vec<_>> = read.by_ref().take(trials.len()).collect();
        let (trials, texts): (Vec<_>, Vec<Vec<String>>) = trials?.into_iter().unzip();
        let (trials, concluded): (Vec<TrialRecord>, Vec<T>) = trials.into_iter().unzip();
        notes.texts.extend(texts.into_iter().flatten());
        conclusions.push(concluded);
        if let Some(planned) =
            manifest.trials_of_each().filter(|planned| trials.len() as u64 != u64::from(*planned))
        {
            let what = format!("{} of {planned} trials found", trials.len());
            notes.add(&dir.join(CASES).join(&facts.dir), &what);
        }
        cases.push(CaseRecord { facts: facts.clone(), trials });
    }
    for name in folder(&dir.join(CASES), &mut notes)? {
        if !manifest.cases.iter().any(|case| case.dir == name) {
            notes.add(&dir.join(CASES).join(&name), "not a case of the manifest, ignored");
        }
    }
    Ok((RunRecord { dir: dir.to_owned(), manifest, cases, notes: notes.texts }, conclusions))
}

/// Reads a run's manifest and its trials' summaries, without the data of single seconds: enough for lists of many runs.
/// Trials without a summary are empty.
///
/// # Errors
/// As [`read_run`].
pub fn read_summaries(dir: &Path) -> Result<RunRecord> {
    let mut notes = Notes { dir, texts: Vec::new() };
    let manifest = read_manifest(dir)?;
    let mut cases = Vec::new();
    for facts in &manifest.cases {
        if !is_plain(&facts.dir) {
            return Err(StoreError::Name { name: facts.dir.clone(), path: dir.join(CASES) });
        }
        let case_dir = dir.join(CASES).join(&facts.dir);
        let mut trials = Vec::new();
        let (found, texts) = trials_in(&case_dir, dir)?;
        notes.texts.extend(texts);
        for (number, dir) in found.into_iter().filter(|(_, dir)| dir.is_dir()) {
            let summary = read_summary(&dir.join(SUMMARY), &mut notes)?;
            trials.push(TrialRecord { summary, ..TrialRecord::empty(number, dir) });
        }
        cases.push(CaseRecord { facts: facts.clone(), trials });
    }
    Ok(RunRecord { dir: dir.to_owned(), manifest, cases, notes: notes.texts })
}

/// Collects notes about what is missing or was cut off, so that none goes unreported.
struct Notes<'a> {
    dir: &'a Path,
    texts: Vec<String>,
}

impl Notes<'_> {
    /// Adds a sentence about a file, named relative to the run directory.
    fn add(&mut self, path: &Path, what: &str) {
        let path = path.strip_prefix(self.dir).unwrap_or(path);
        self.texts.push(format!("{}: {what}", path.display()));
    }
}

fn read_manifest(dir: &Path) -> Result<Manifest> {
    /// The part common to all versions of a manifest.
    #[derive(Deserialize)]
    struct Versioned {
        record: u64,
    }
    const HINT: &str = "manifest.json describes the run; without it the folder cannot be read as a record";
    let path = dir.join(MANIFEST);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound && dir.is_dir() => {
            return Err(StoreError::NoManifest { path: dir.to_owned() });
        }
        Err(e) if dir.is_dir() => return Err(StoreError::read(&path, e)),
        Err(e) => return Err(StoreError::read(dir, e)),
    };
    let version: Versioned =
        serde_json::from_slice(&text).map_err(|e| StoreError::json(&path, 1, &e, HINT))?;
    if version.record != u64::from(RECORD_VERSION) {
        return Err(StoreError::Version { path, found: version.record, known: RECORD_VERSION });
    }
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|e| StoreError::json(&path, 1, &e, HINT))?;
    // Reports have room for each planned trial: a damaged number must not make them ask for all memory.
    if manifest.trials > MAX_TRIALS {
        let message = format!("`trials` is {}, and no plan has more than {MAX_TRIALS}", manifest.trials);
        return Err(StoreError::Garbled { path, line: 1, column: 1, message, hint: HINT });
    }
    Ok(manifest)
}

/// Names in a folder, sorted; a missing one is noted and empty.
fn folder(path: &Path, notes: &mut Notes<'_>) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            notes.add(path, "missing");
            return Ok(Vec::new());
        }
        Err(e) => return Err(StoreError::read(path, e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| StoreError::read(path, e))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// A trial's number and folder.
type Found = (u32, PathBuf);

/// A case's trials in order, and notes about its folder.
fn trials_in(case: &Path, run: &Path) -> Result<(Vec<Found>, Vec<String>)> {
    let mut notes = Notes { dir: run, texts: Vec::new() };
    let mut trials = Vec::new();
    // A case that never got its turn has no folder; the caller reports how many trials there are.
    let names = if case.exists() { folder(case, &mut notes)? } else { Vec::new() };
    for name in names {
        match name.parse::<u32>() {
            Ok(number) if number.to_string() == name => trials.push((number, case.join(&name))),
            _ => notes.add(&case.join(&name), "not a trial, ignored"),
        }
    }
    trials.sort_by_key(|(number, _)| *number);
    Ok((trials, notes.texts))
}

/// Applies `work` to each item, on all cores; the results are in the order of the items.
fn at_once<T: Sync, R: Send + Sync>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Vec<OnceLock<R>> = all.iter().map(|_| OnceLock::new()).collect();
    let some = || {
        while let Some((one, place)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            all.get(at).zip(done.get(at))
        } {
            let _ = place.set(work(one));
        }
    };
    std::thread::scope(|scope| {
        let helpers = std::thread::available_parallelism().map_or(1, usize::from).min(all.len());
        for _ in 1..helpers {
            // If no thread can be started, this one does all the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, some);
        }
        some();
    });
    done.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn read_trial(number: u32, dir: PathBuf, notes: &mut Notes<'_>) -> Result<TrialRecord> {
    let is_search = dir.join(LEVELS).is_dir();
    if is_search && !dir.join(TICKS).exists() {
        notes.add(&dir, "the search was cut off; what it measured is in `levels`");
        return Ok(TrialRecord { is_search, ..TrialRecord::empty(number, dir) });
    }
    let mut trial = TrialRecord {
        number,
        is_search,
        summary: read_summary(&dir.join(SUMMARY), notes)?,
        ticks: read_lines(&dir.join(TICKS), notes)?,
        samples: read_samples(&dir.join(SAMPLES), notes)?,
        events: read_lines(&dir.join(EVENTS), notes)?,
        evidence: read_evidence(&dir.join(EVIDENCE), notes)?,
        profile: read_profile(&dir.join(PROFILE), notes)?,
        examples: read_lines(&dir.join(EXAMPLES), notes)?,
        series: Series::default(),
        intervals: read_intervals(&dir.join(LATENCY), notes)?,
        dir,
    };
    // The log contains only requests that fell due in the window, in whichever second they ended, and a warm-up that was
    // found afterwards.
    let warm_up = leave_out_warm_up(&mut trial);
    let mut series = Series::default();
    let is_warm_up = |interval: &Interval| {
        let is_load = |load: &str| interval.load.as_deref().is_none_or(|own| own == load);
        warm_up.iter().any(|(load, from_s)| is_load(load) && (interval.from_s - from_s).abs() < SLACK_S)
    };
    for interval in trial.intervals.iter().filter(|interval| !is_warm_up(interval)) {
        if let Some((_, merged)) = series.all_mut().into_iter().find(|(name, _)| interval.is(name)) {
            interval.merge_into(merged);
        }
    }
    trial.series = series;
    Ok(trial)
}

/// What times read from a file may differ by, in seconds.
const SLACK_S: f64 = 0.05;

/// Takes seconds outside the summary's window out of it: ticks were written before a warm-up was found, or before a load
/// by number had its last answer. Returns those of the warm-up: the load of each and when it began.
fn leave_out_warm_up(trial: &mut TrialRecord) -> Vec<(String, f64)> {
    let Some(summary) = &trial.summary else { return Vec::new() };
    let window = |tick: &Tick| {
        let of_batch = summary.by_batch.get(&(tick.batch + 1)).map(|batch| batch.window);
        let of_load = summary.by_load.get(&tick.load).map(|load| load.window);
        // Of several loads with several batches, the window of both together is not recorded: it lies in these two.
        match (of_batch, of_load) {
            (Some(batch), Some(load)) => {
                Window { from_s: batch.from_s.max(load.from_s), to_s: batch.to_s.min(load.to_s) }
            }
            (batch, load) => batch.or(load).unwrap_or(summary.window),
        }
    };
    let mut left_out = Vec::new();
    for tick in trial.ticks.iter_mut().filter(|tick| tick.in_window) {
        let window = window(tick);
        if tick.to_s <= window.from_s + SLACK_S {
            left_out.push((tick.load.clone(), tick.from_s));
        }
        tick.in_window = tick.to_s > window.from_s + SLACK_S && tick.from_s < window.to_s;
    }
    left_out
}

/// There is no evidence if nothing was watched, nor in older records.
fn read_evidence(path: &Path, notes: &mut Notes<'_>) -> Result<Vec<Evidence>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for_each_line(path, notes, |mut line: Evidence| {
        line.shrink_to_fit();
        lines.push(line);
    })?;
    lines.shrink_to_fit();
    Ok(lines)
}

/// There is no profile if none was asked for.
fn read_profile(path: &Path, notes: &mut Notes<'_>) -> Result<Option<Profile>> {
    if !path.exists() {
        return Ok(None);
    }
    read_document(path, "delete the file to read the trial without it", notes)
}

/// The bytes of a file; a missing one is noted.
fn bytes_of(path: &Path, notes: &mut Notes<'_>) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            notes.add(path, "missing");
            Ok(None)
        }
        Err(e) => Err(StoreError::read(path, e)),
    }
}

fn read_summary(path: &Path, notes: &mut Notes<'_>) -> Result<Option<Summary>> {
    read_document(path, "delete the file to read the trial from its ticks", notes)
}

/// Reads a file that is one document; a truncated one is noted.
fn read_document<T: DeserializeOwned>(
    path: &Path,
    hint: &'static str,
    notes: &mut Notes<'_>,
) -> Result<Option<T>> {
    let Some(bytes) = bytes_of(path, notes)? else {
        return Ok(None);
    };
    match serde_json::from_slice(&bytes) {
        Ok(document) => Ok(Some(document)),
        // It is replaced as a whole, so loadlab never leaves it half written, but a power loss or a copy may.
        Err(e) if e.is_eof() => {
            notes.add(path, &format!("truncated ({}), ignored", json_message(&e)));
            Ok(None)
        }
        Err(e) => Err(StoreError::json(path, 1, &e, hint)),
    }
}

fn read_samples(path: &Path, notes: &mut Notes<'_>) -> Result<PackedSamples> {
    let mut packer = Packer::default();
    for_each_line(path, notes, |sample: Sample| packer.pack(sample))?;
    Ok(packer.packed())
}

fn read_lines<T: DeserializeOwned>(path: &Path, notes: &mut Notes<'_>) -> Result<Vec<T>> {
    let mut values = Vec::new();
    for_each_line(path, notes, |value| values.push(value))?;
    values.shrink_to_fit();
    Ok(values)
}

/// A missing file is noted, and so is a truncated last line.
fn for_each_line<T: DeserializeOwned>(
    path: &Path,
    notes: &mut Notes<'_>,
    mut take: impl FnMut(T),
) -> Result<()> {
    const HINT: &str = "the file is damaged here; delete this line to read the rest";
    let mut file = match fs::File::open(path) {
        Ok(file) => BufReader::with_capacity(64 << 10, file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            notes.add(path, "missing");
            return Ok(());
        }
        Err(e) => return Err(StoreError::read(path, e)),
    };
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        if file.read_until(b'\n', &mut line).map_err(|e| StoreError::read(path, e))? == 0 {
            break;
        }
        // Without its end: serde_json would report what is missing there on the next line.
        let whole = line.strip_suffix(b"\n");
        match serde_json::from_slice(whole.unwrap_or(&line)) {
            Ok(value) => take(value),
            Err(_) if whole.is_none() => {
                notes.add(path, &format!("line {number} was truncated when its writer ended, ignored"));
            }
            Err(e) => return Err(StoreError::json(path, number, &e, HINT)),
        }
    }
    Ok(())
}

fn read_intervals(path: &Path, notes: &mut Notes<'_>) -> Result<Vec<Interval>> {
    let Some(bytes) = bytes_of(path, notes)? else {
        return Ok(Vec::new());
    };
    let log = hlog::read(&bytes, path)?;
    if let Some(line) = log.torn_line {
        notes.add(path, &format!("line {line} was truncated when its writer ended, ignored"));
    }
    Ok(log.intervals)
}
