//! The files components write to: opened for appending, bounded in size, and tailed.
//!
//! Components write to them directly, so no loadlab thread copies their output during a load. The size must then be
//! watched from outside: a log that exceeds its bound is cut back to its first half. Since it is open for appending,
//! later output follows there, so the beginning and the newest part survive.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use loadlab_record::Secrets;

use crate::error::{Error, Result, Tail};

/// A log is cut once it exceeds this size.
pub const LOG_LIMIT_BYTES: u64 = 64 << 20;
/// How many bytes at the end of a log are read for its last lines.
const TAIL_BYTES: u64 = 16 << 10;
/// How many lines of each log are shown.
const TAIL_LINES: usize = 10;
/// Incomplete lines longer than this are discarded.
const LINE_BYTES: usize = 1 << 20;
/// How many characters of a line are shown.
const LINE_CHARS: usize = 400;

/// One log of a running component.
#[derive(Debug)]
pub(crate) struct Log {
    pub path: PathBuf,
    pub file: File,
    /// Size of the log when the component started: anything before belongs to an earlier component.
    pub from: u64,
    /// Secrets that no message about the log may quote.
    secrets: Secrets,
}

impl Log {
    /// Opens a log for appending, creating its folder if needed.
    pub fn open(path: &Path) -> Result<Log> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(Error::file("create", dir))?;
        }
        let file =
            OpenOptions::new().append(true).create(true).open(path).map_err(Error::file("open", path))?;
        let from = file.metadata().map_err(Error::file("read", path))?.len();
        Ok(Log { path: path.to_owned(), file, from, secrets: Secrets::default() })
    }

    /// The same log, with these secrets masked wherever it is quoted.
    pub fn masking(self, secrets: &Secrets) -> Log {
        Log { secrets: secrets.clone(), ..self }
    }

    /// Cuts the log if it is larger than the limit; `true` if it was.
    pub fn cut(&self, limit_bytes: u64) -> bool {
        let Ok(size) = self.file.metadata().map(|m| m.len()) else { return false };
        if size <= limit_bytes || self.file.set_len(limit_bytes / 2).is_err() {
            return false;
        }
        let note = format!("\n[loadlab: {} bytes were removed here]\n", size - limit_bytes / 2);
        // The note is a courtesy: a full disk must not keep the log from being cut.
        let _ = (&self.file).write_all(note.as_bytes());
        true
    }

    /// Reads what was written since `offset`, at most 1 MiB, and returns the offset after it.
    pub fn read_since(&self, offset: u64, into: &mut Vec<u8>) -> u64 {
        read_since(&self.path, offset, into).unwrap_or(offset)
    }
}

/// Reads what a log has after an offset, at most 1 MiB, and returns the offset after it.
fn read_since(path: &Path, offset: u64, into: &mut Vec<u8>) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    // If the log was cut in the meantime, read from its current end.
    let offset = offset.min(size);
    file.seek(SeekFrom::Start(offset))?;
    let read = file.take(1 << 20).read_to_end(into)?;
    Ok(offset + read as u64)
}

/// Counts the lines of a growing log that contain a text. If the log is cut, lines in the removed part that were not
/// counted yet are missed; the log notes the cut.
#[derive(Debug)]
pub(crate) struct LineCounter {
    path: PathBuf,
    offset: u64,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    lines: u64,
}

impl LineCounter {
    /// Counts only what is written from now on.
    pub fn from_now(path: &Path) -> LineCounter {
        let offset = std::fs::metadata(path).map_or(0, |m| m.len());
        LineCounter { path: path.to_owned(), offset, line: Vec::new(), lines: 0 }
    }

    /// Reads to the end of the log and returns the count so far. An incomplete line does not count yet.
    pub fn count(&mut self, text: &str) -> std::result::Result<u64, String> {
        loop {
            let mut bytes = std::mem::take(&mut self.line);
            let before = bytes.len();
            match read_since(&self.path, self.offset, &mut bytes) {
                Ok(offset) => self.offset = offset,
                Err(error) => {
                    // What was read before is part of a line that is still to be counted.
                    bytes.truncate(before);
                    self.line = bytes;
                    return Err(format!("cannot read {}: {error}", self.path.display()));
                }
            }
            let is_all = bytes.len() == before;
            let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            self.line = bytes.split_off(end);
            // Data without a line end is not a line and must not be kept forever.
            if self.line.len() > LINE_BYTES {
                self.line.clear();
            }
            let lines = bytes.split(|b| *b == b'\n');
            self.lines +=
                lines.filter(|l| l.windows(text.len().max(1)).any(|w| w == text.as_bytes())).count() as u64;
            if is_all {
                return Ok(self.lines);
            }
        }
    }
}

/// The last lines of some logs, each from its own offset. A file that is listed twice is shown once.
pub(crate) fn tail(logs: &[Log]) -> Tail {
    let mut shown: Vec<(PathBuf, Vec<String>)> = Vec::new();
    for log in logs {
        if shown.iter().any(|(path, _)| *path == log.path) {
            continue;
        }
        let lines = last_lines(&log.path, log.from, &log.secrets);
        if !lines.is_empty() {
            shown.push((log.path.clone(), lines));
        }
    }
    Tail { logs: shown }
}

fn last_lines(path: &Path, from: u64, secrets: &Secrets) -> Vec<String> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
    let size = file.metadata().map(|m| m.len()).unwrap_or(0);
    let start = from.min(size).max(size.saturating_sub(TAIL_BYTES));
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(start)).is_err() || file.take(TAIL_BYTES).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    if start > from && !secrets.is_empty() {
        // The rest of the first, incomplete line may be the tail of a secret.
        let line = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..line);
    }
    // Mask before truncating lines: otherwise part of a secret cut in two would be shown.
    let masked = secrets.mask_bytes(&bytes);
    let text = String::from_utf8_lossy(&masked);
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        // Terminal control sequences must not reach the reader's terminal.
        .map(|line| line.chars().filter(|c| !c.is_control() || *c == '\t').take(LINE_CHARS).collect())
        .collect();
    lines.drain(..lines.len().saturating_sub(TAIL_LINES));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_starts_where_this_component_did() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/a.out");
        let before = Log::open(&path).unwrap();
        (&before.file).write_all(b"of an earlier trial\n").unwrap();
        let log = Log::open(&path).unwrap();
        assert_eq!(tail(std::slice::from_ref(&log)).to_string(), "\nit wrote no output");
        (&log.file).write_all(b"one\n\n\x1b[31mtwo\nhalf a li").unwrap();
        assert_eq!(tail(&[log]).logs[0].1, ["one", "[31mtwo", "half a li"]);
    }

    #[test]
    fn a_line_is_counted_although_its_log_could_not_be_read_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("a.out"), dir.path().join("away"));
        let log = Log::open(&path).unwrap();
        let mut counter = LineCounter::from_now(&path);
        (&log.file).write_all(b"request do").unwrap();
        assert_eq!(counter.count("done"), Ok(0));
        std::fs::rename(&path, &away).unwrap();
        assert!(counter.count("done").is_err());
        std::fs::rename(&away, &path).unwrap();
        (&log.file).write_all(b"ne\n").unwrap();
        assert_eq!(counter.count("done"), Ok(1));
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(&dir.path().join("a")).unwrap();
        for i in 0..5000 {
            writeln!(&log.file, "line {i}").unwrap();
        }
        let lines = tail(&[log]).logs.remove(0).1;
        assert_eq!((lines.len(), lines[0].as_str(), lines[9].as_str()), (10, "line 4990", "line 4999"));
    }

    #[test]
    fn secrets_are_not_quoted_nor_parts_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut secrets = Secrets::default();
        secrets.add(b"s3cret+token").unwrap();
        let log = Log::open(&dir.path().join("a")).unwrap().masking(&secrets);
        writeln!(&log.file, "{}s3cret+token", "x".repeat(LINE_CHARS - 4)).unwrap();
        writeln!(&log.file, "login s3cret%2Btoken").unwrap();
        let lines = tail(&[log]).logs.remove(0).1;
        assert_eq!(lines, [format!("{}***", "x".repeat(LINE_CHARS - 4)), "login ***".to_owned()]);
        // The part that is read begins inside a secret.
        let log = Log::open(&dir.path().join("b")).unwrap().masking(&secrets);
        write!(&log.file, "s3cret+token{}\nend\n", "x".repeat(TAIL_BYTES as usize - 12)).unwrap();
        assert_eq!(tail(&[log]).logs.remove(0).1, ["end"]);
    }

    #[test]
    fn lines_are_counted_as_they_become_complete() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(&dir.path().join("a")).unwrap();
        (&log.file).write_all(b"error of an earlier trial\n").unwrap();
        let mut counted = LineCounter::from_now(&log.path);
        assert_eq!(counted.count("error"), Ok(0));
        (&log.file).write_all(b"error 1\nfine\nan error error\nerr").unwrap();
        assert_eq!(counted.count("error"), Ok(2));
        (&log.file).write_all(b"or 3").unwrap();
        assert_eq!(counted.count("error"), Ok(2));
        (&log.file).write_all(b"\n").unwrap();
        assert_eq!(counted.count("error"), Ok(3));
        for _ in 0..3 {
            (&log.file).write_all("an error\n".repeat(100_000).as_bytes()).unwrap();
        }
        assert_eq!(counted.count("error"), Ok(300_003));
    }

    #[test]
    fn a_large_log_is_cut_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(&dir.path().join("a")).unwrap();
        (&log.file).write_all(&[b'a'; 1000]).unwrap();
        assert!(!log.cut(1000));
        (&log.file).write_all(b"b").unwrap();
        assert!(log.cut(1000));
        (&log.file).write_all(b"newest").unwrap();
        let text = std::fs::read_to_string(&log.path).unwrap();
        assert_eq!(text, format!("{}\n[loadlab: 501 bytes were removed here]\nnewest", "a".repeat(500)));
        let mut read = Vec::new();
        assert_eq!(log.read_since(5000, &mut read), text.len() as u64);
        assert!(read.is_empty());
    }
}
