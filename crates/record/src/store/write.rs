//! Writing a run directory so that, whatever happens to the writer, what it wrote can be read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Serialize;

use super::names::is_plain;
use super::{
    CASES, EVENTS, EVIDENCE, EXAMPLES, FOLDED, FOLDED_WAITS, IDS, LATENCY, LEVELS, LOGS, MANIFEST, PPROF,
    PPROF_WAITS, PROFILE, SAMPLES, SUMMARY, StoreError, TICKS, case_dir_name, files,
};
use crate::counts::example::Example;
use crate::counts::hlog::{self, Encoder};
use crate::counts::ids::{IdLine, SentIds};
use crate::counts::load::{Series, TagMeasured, Tick};
use crate::documents::event::Event;
use crate::documents::manifest::Manifest;
use crate::documents::summary::Summary;
use crate::secrets::Secrets;
use crate::sync::lock;
use crate::watch::evidence::Evidence;
use crate::watch::pprof;
use crate::watch::profile::Profile;
use crate::watch::sample::Sample;

type Result<T> = std::result::Result<T, StoreError>;

/// Writes a run directory.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    secrets: Secrets,
}

impl RunWriter {
    /// Creates the directory, including its parents, and writes the manifest.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if it exists and is not empty (or another run took it at the same moment);
    /// [`StoreError::NotOwn`] if it exists and others could write to it; [`StoreError::Write`] for any disk error.
    pub fn create(dir: &Path, manifest: &Manifest) -> Result<RunWriter> {
        RunWriter::create_masking(dir, manifest, &Secrets::default())
    }

    /// As [`RunWriter::create`], with these secrets masked in the record.
    ///
    /// # Errors
    /// As [`RunWriter::create`].
    pub fn create_masking(dir: &Path, manifest: &Manifest, secrets: &Secrets) -> Result<RunWriter> {
        make_or_check(dir)?;
        let mut entries = fs::read_dir(dir).map_err(|e| StoreError::read(dir, e))?;
        if entries.next().is_some() {
            return Err(StoreError::Exists { path: dir.to_owned() });
        }
        // If two runs both found it empty, only one can create this folder.
        fs::create_dir(dir.join(CASES)).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists { path: dir.to_owned() },
            _ => StoreError::write("create", &dir.join(CASES), e),
        })?;
        let writer = RunWriter { dir: dir.to_owned(), secrets: secrets.clone() };
        writer.manifest(manifest)?;
        Ok(writer)
    }

    /// Continues in an existing directory.
    pub(super) fn of_existing(dir: &Path, secrets: &Secrets) -> RunWriter {
        RunWriter { dir: dir.to_owned(), secrets: secrets.clone() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The secrets masked in the record.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Replaces the manifest: a reader sees the old one or the new one, whatever happens in between.
    ///
    /// # Errors
    /// [`StoreError::Write`]; the old manifest is then unchanged.
    pub fn manifest(&self, manifest: &Manifest) -> Result<()> {
        replace(&self.dir.join(MANIFEST), manifest, &self.secrets)
    }

    /// Starts a trial's folder. `case_dir` is a name from [`super::case_dir_names`], `trial` counts from 1.
    ///
    /// # Errors
    /// [`StoreError::Name`] if `case_dir` is not a plain name, [`StoreError::Exists`] if the trial exists,
    /// [`StoreError::Write`] for any disk error.
    pub fn trial(&self, case_dir: &str, trial: u32) -> Result<TrialWriter> {
        let dir = self.trial_dir(case_dir, trial)?;
        let case = self.dir.join(CASES).join(case_dir);
        fs::create_dir_all(&case).map_err(|e| StoreError::write("create", &case, e))?;
        fs::create_dir(&dir).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists { path: dir.clone() },
            _ => StoreError::write("create", &dir, e),
        })?;
        let logs = dir.join(LOGS);
        TrialWriter::create(dir, logs, &self.secrets)
    }

    /// Starts the folder of a level of a search trial: `levels/LEVEL` in the trial's own folder. Components run through
    /// all levels, and write to the logs of the trial.
    ///
    /// # Errors
    /// As [`RunWriter::trial`].
    pub fn level(&self, case_dir: &str, trial: u32, level: u32) -> Result<TrialWriter> {
        let trial = self.trial_dir(case_dir, trial)?;
        let levels = trial.join(LEVELS);
        fs::create_dir_all(&levels).map_err(|e| StoreError::write("create", &levels, e))?;
        let dir = levels.join(level.to_string());
        fs::create_dir(&dir).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Exists { path: dir.clone() },
            _ => StoreError::write("create", &dir, e),
        })?;
        TrialWriter::create(dir, trial.join(LOGS), &self.secrets)
    }

    /// Makes a level's measurements the trial's own, once the search is over: the level's files move up, the summary
    /// last, since a trial that has one is complete. Nothing may be written to the level any more. `summary` replaces
    /// the level's, if the search came to an end.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn adopt_level(
        &self,
        case_dir: &str,
        trial: u32,
        level: u32,
        summary: Option<&Summary>,
    ) -> Result<()> {
        let trial = self.trial_dir(case_dir, trial)?;
        let level = trial.join(LEVELS).join(level.to_string());
        const OF_PROFILE: [&str; 5] = [PROFILE, FOLDED, PPROF, FOLDED_WAITS, PPROF_WAITS];
        let others = [TICKS, SAMPLES, EVENTS, EVIDENCE, EXAMPLES, IDS, LATENCY];
        for name in others.into_iter().chain(OF_PROFILE) {
            let to = trial.join(name);
            match fs::rename(level.join(name), &to) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                moved => moved.map_err(|e| StoreError::write("create", &to, e))?,
            }
        }
        let own = level.join(SUMMARY);
        match fs::remove_file(&own) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(|e| StoreError::write("replace", &own, e))?,
        }
        fs::remove_dir(&level).map_err(|e| StoreError::write("replace", &level, e))?;
        summary.map_or(Ok(()), |summary| replace(&trial.join(SUMMARY), summary, &self.secrets))
    }

    fn trial_dir(&self, case_dir: &str, trial: u32) -> Result<PathBuf> {
        let cases = self.dir.join(CASES);
        if !is_plain(case_dir) {
            return Err(StoreError::Name { name: case_dir.to_owned(), path: cases });
        }
        Ok(cases.join(case_dir).join(trial.to_string()))
    }
}

/// Makes a folder for a record; an existing one must belong to the user.
pub(super) fn make_or_check(dir: &Path) -> Result<()> {
    let failed = |e| StoreError::write("create", dir, e);
    if let Some(above) = dir.parent() {
        fs::create_dir_all(above).map_err(failed)?;
    }
    // A record may contain secrets that masking cannot know.
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(failed),
    }
    if !dir.is_dir() {
        return Err(StoreError::Exists { path: dir.to_owned() });
    }
    match files::why_untrusted(dir).map_err(|e| StoreError::read(dir, e))? {
        None => Ok(()),
        Some(why) => Err(StoreError::NotOwn { path: dir.to_owned(), why }),
    }
}

/// Writes one trial's folder. Ticks, samples, events and examples may come from different threads.
pub struct TrialWriter {
    dir: PathBuf,
    /// For the output of components.
    logs: PathBuf,
    secrets: Secrets,
    ticks: Mutex<Appender<File>>,
    samples: Mutex<Appender<File>>,
    events: Mutex<Appender<File>>,
    examples: Mutex<Appender<File>>,
    latency: Mutex<(Encoder, Appender<File>)>,
    /// Created with its first line: most plans have no ids.
    ids: Mutex<Option<Appender<File>>>,
    /// Likewise: not every load is watched.
    evidence: Mutex<Option<Appender<File>>>,
}

impl std::fmt::Debug for TrialWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrialWriter({})", self.dir.display())
    }
}

impl TrialWriter {
    fn create(dir: PathBuf, logs: PathBuf, secrets: &Secrets) -> Result<TrialWriter> {
        fs::create_dir_all(&logs).map_err(|e| StoreError::write("create", &logs, e))?;
        let open = |name: &str| Appender::create(dir.join(name));
        let mut latency = open(LATENCY)?;
        latency.append(hlog::HEADER.as_bytes())?;
        let encoder = Encoder::new().map_err(|e| StoreError::write("create", &latency.path, e))?;
        Ok(TrialWriter {
            ticks: Mutex::new(open(TICKS)?),
            samples: Mutex::new(open(SAMPLES)?),
            events: Mutex::new(open(EVENTS)?),
            examples: Mutex::new(open(EXAMPLES)?),
            latency: Mutex::new((encoder, latency)),
            ids: Mutex::new(None),
            evidence: Mutex::new(None),
            dir,
            logs,
            secrets: secrets.clone(),
        })
    }

    /// The trial's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder for the output of components.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Appends a second of load.
    ///
    /// # Errors
    /// [`StoreError::Write`], which describes what is safely on disk. All methods below return the same error.
    pub fn tick(&self, tick: &Tick) -> Result<()> {
        self.append(&self.ticks, std::slice::from_ref(tick))
    }

    /// Appends the histograms of one load's second, which began at `from_s` on the trial's clock.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn interval(
        &self,
        load: &str,
        from_s: f64,
        length_s: f64,
        series: &Series,
        by_tag: &BTreeMap<String, TagMeasured>,
    ) -> Result<()> {
        let mut latency = lock(&self.latency);
        let (encoder, appender) = &mut *latency;
        let lines = encoder
            .interval(&self.secrets.mask(load), from_s, length_s, series, by_tag)
            .map_err(|e| StoreError::write("append to", &appender.path, e))?;
        appender.append(lines)
    }

    /// Appends readings, all of them in one write.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn samples(&self, samples: &[Sample]) -> Result<()> {
        self.append(&self.samples, samples)
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn event(&self, event: &Event) -> Result<()> {
        self.append(&self.events, std::slice::from_ref(event))
    }

    /// Appends an exchange.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn example(&self, example: &Example) -> Result<()> {
        self.append(&self.examples, std::slice::from_ref(example))
    }

    /// Appends the ids of a second.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn ids(&self, line: &IdLine) -> Result<()> {
        self.append_to_own(&self.ids, IDS, line)
    }

    /// Appends the observed activity of connections and threads.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn evidence(&self, line: &Evidence) -> Result<()> {
        self.append_to_own(&self.evidence, EVIDENCE, line)
    }

    /// Writes the sampled stacks, also as folded stacks and for pprof.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn profile(&self, profile: &Profile) -> Result<()> {
        let write = |name: &str, bytes: &[u8]| {
            let path = self.dir.join(name);
            files::replace(&path, bytes).map_err(|e| StoreError::write("replace", &path, e))
        };
        // On one line: it is mostly numbers.
        let path = self.dir.join(PROFILE);
        let text = self.secrets.json(profile).map_err(|e| StoreError::write("replace", &path, e.into()))?;
        write(PROFILE, &text)?;
        let mask = |name: &str| self.secrets.mask(name).into_owned();
        if profile.waits.is_empty() || !profile.components.is_empty() {
            write(FOLDED, mask(&profile.folded()).as_bytes())?;
            write(PPROF, &pprof::cpu(profile, &mask))?;
        }
        if !profile.waits.is_empty() {
            write(FOLDED_WAITS, mask(&profile.folded_waits()).as_bytes())?;
            write(PPROF_WAITS, &pprof::waits(profile, &mask))?;
        }
        Ok(())
    }

    /// Appends to a file that is created with its first line.
    fn append_to_own<T: Serialize>(
        &self,
        to: &Mutex<Option<Appender<File>>>,
        file: &str,
        line: &T,
    ) -> Result<()> {
        let mut made = lock(to);
        let appender = match &mut *made {
            Some(appender) => appender,
            none => none.insert(Appender::create(self.dir.join(file))?),
        };
        append_lines(appender, std::slice::from_ref(line), &self.secrets)
    }

    /// All ids written so far, by outcome.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    pub fn sent_ids(&self) -> Result<SentIds> {
        let path = self.dir.join(IDS);
        let _whole = lock(&self.ids);
        SentIds::read(&path).map_err(|e| StoreError::read(&path, e))
    }

    /// Writes the trial's document, as a whole or not at all, after everything appended has reached the disk.
    ///
    /// # Errors
    /// [`StoreError::Write`]; everything appended before is then still there.
    pub fn summary(&self, summary: &Summary) -> Result<()> {
        for lines in [&self.ticks, &self.samples, &self.events, &self.examples] {
            lock(lines).sync()?;
        }
        lock(&self.latency).1.sync()?;
        for made in [&self.ids, &self.evidence] {
            if let Some(lines) = &*lock(made) {
                lines.sync()?;
            }
        }
        replace(&self.dir.join(SUMMARY), summary, &self.secrets)
    }

    fn append<T: Serialize>(&self, to: &Mutex<Appender<File>>, values: &[T]) -> Result<()> {
        append_lines(&mut lock(to), values, &self.secrets)
    }

    /// Where a component's output belongs: `(stdout, stderr)`. The folder exists, the files are not created.
    pub fn log_paths(&self, component: &str) -> (PathBuf, PathBuf) {
        let name = case_dir_name(component);
        (self.logs.join(format!("{name}.out")), self.logs.join(format!("{name}.err")))
    }
}

/// What an appender writes to. A trait, so that tests can simulate a disk that fills up in the middle of a line.
trait Sink: Write {
    /// Truncates it to a length.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

impl Sink for File {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// A file that only grows, by whole lines.
struct Appender<S> {
    path: PathBuf,
    sink: S,
    /// Number of whole lines so far, and their bytes.
    lines: u64,
    bytes: u64,
    /// A torn line could not be removed: nothing may follow it.
    torn: bool,
}

impl Appender<File> {
    fn create(path: PathBuf) -> Result<Appender<File>> {
        match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(sink) => Ok(Appender { path, sink, lines: 0, bytes: 0, torn: false }),
            Err(e) => Err(StoreError::write("create", &path, e)),
        }
    }

    fn sync(&self) -> Result<()> {
        self.sink.sync_all().map_err(|e| StoreError::write("append to", &self.path, e))
    }
}

impl<S: Sink> Appender<S> {
    /// Appends whole lines in one write. If the disk fills up, the kernel may take only part of it: that part is
    /// removed, so that later lines still start on a line of their own.
    fn append(&mut self, lines: &[u8]) -> Result<()> {
        if self.torn {
            return Err(self.failed(io::Error::other("an earlier partial line could not be removed")));
        }
        let mut rest = lines;
        while !rest.is_empty() {
            let error = match self.sink.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    rest = rest.get(n..).unwrap_or_default();
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => e,
            };
            self.torn = rest.len() < lines.len() && self.sink.cut(self.bytes).is_err();
            return Err(self.failed(error));
        }
        self.bytes += lines.len() as u64;
        self.lines += lines.iter().filter(|b| **b == b'\n').count() as u64;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> StoreError {
        let safe = match self.lines {
            0 => "it was still empty; other files are safe".to_owned(),
            1 => "the line before it is safe".to_owned(),
            n => format!("the {n} lines before it are safe"),
        };
        StoreError::Write { action: "append to", path: self.path.clone(), safe, source }
    }
}

fn append_lines<T: Serialize>(appender: &mut Appender<File>, values: &[T], secrets: &Secrets) -> Result<()> {
    let mut lines = Vec::new();
    for value in values {
        let line = secrets.json(value);
        lines.extend(line.map_err(|e| StoreError::write("append to", &appender.path, e.into()))?);
        lines.push(b'\n');
    }
    appender.append(&lines)
}

/// Writes a document as a whole or not at all.
fn replace<T: Serialize>(path: &Path, value: &T, secrets: &Secrets) -> Result<()> {
    let failed = |e| StoreError::write("replace", path, e);
    let mut text = secrets.json_pretty(value).map_err(|e| failed(e.into()))?;
    text.push(b'\n');
    files::replace(path, &text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for this many bytes that may refuse to be truncated.
    struct Disk {
        held: Vec<u8>,
        room: usize,
        can_cut: bool,
        writes: u32,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes += 1;
            let n = bytes.len().min(self.room - self.held.len());
            self.held.extend(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Disk {
        fn cut(&mut self, bytes: u64) -> io::Result<()> {
            if !self.can_cut {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            self.held.truncate(bytes as usize);
            Ok(())
        }
    }

    fn on(room: usize, can_cut: bool) -> Appender<Disk> {
        let sink = Disk { held: Vec::new(), room, can_cut, writes: 0 };
        Appender { path: "ticks.jsonl".into(), sink, lines: 0, bytes: 0, torn: false }
    }

    #[test]
    fn a_full_disk_costs_the_line_that_did_not_fit() {
        let mut appender = on(10, true);
        appender.append(b"one\n").unwrap();
        appender.append(b"two\n").unwrap();
        assert_eq!(appender.sink.writes, 2, "one write each");
        let error = appender.append(b"three\n").unwrap_err();
        insta::assert_snapshot!(error, @r"
        cannot append to `ticks.jsonl`: no storage space; the 2 lines before it are safe
        hint: free space there, or choose a folder on another disk with --out
        ");
        assert_eq!(appender.sink.held, b"one\ntwo\n");
        appender.sink.room = 100;
        appender.append(b"four\n").unwrap();
        assert_eq!(appender.sink.held, b"one\ntwo\nfour\n");
    }

    #[test]
    fn nothing_follows_a_torn_line_that_could_not_be_taken_back() {
        let mut appender = on(6, false);
        appender.append(b"one\n").unwrap();
        assert!(appender.append(b"two\n").is_err());
        appender.sink.room = 100;
        let error = appender.append(b"three\n").unwrap_err().to_string();
        assert!(error.contains("partial line") && error.contains("the line before it is safe"), "{error}");
        assert_eq!(appender.sink.held, b"one\ntw");
    }

    #[test]
    fn the_kernels_own_full_disk_is_reported_by_path() {
        let sink = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut appender = Appender { path: "/dev/full".into(), sink, lines: 0, bytes: 0, torn: false };
        let error = appender.append(b"one\n").unwrap_err();
        let StoreError::Write { source, path, .. } = &error else { panic!("{error}") };
        assert_eq!((source.kind(), path.as_path()), (io::ErrorKind::StorageFull, Path::new("/dev/full")));
        assert!(error.to_string().contains("it was still empty"), "{error}");
    }
}
