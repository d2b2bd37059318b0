//! Removes secrets from logs. Components write their logs directly, so logs are masked once nothing writes to them any
//! more: a trial's logs when it ends, all others at the end of the run.

use std::path::{Path, PathBuf};

use loadlab_record::Secrets;
use loadlab_record::store::LOGS;

use crate::event::RunEvent;
use crate::state::{EventSink, TrialState};

/// Masks a trial's logs, except those still open for writing.
pub fn mask_ended(state: &TrialState, open: &[PathBuf], emit: EventSink<'_>) {
    let Some(writer) = &state.writer else { return };
    for text in mask_in(writer.logs(), &state.secrets, open) {
        state.record_and_show(text, emit);
    }
}

/// Masks the logs in a folder, except those still open for writing. Returns a message for each log that could not be
/// masked.
pub fn mask_in(logs: &Path, secrets: &Secrets, open: &[PathBuf]) -> Vec<String> {
    if secrets.is_empty() {
        return Vec::new();
    }
    let ended = files_in(logs).into_iter().filter(|path| !open.contains(path));
    ended.filter_map(|path| unmasked(&path, secrets)).collect()
}

/// Masks all logs of a finished run: those of its trials and its builds.
pub fn mask_all(run_dir: &Path, secrets: &Secrets, emit: EventSink<'_>) {
    if secrets.is_empty() {
        return;
    }
    let mut folders = vec![run_dir.to_owned()];
    let scratch = run_dir.join("scratch");
    while let Some(folder) = folders.pop() {
        let is_logs = folder.ends_with(LOGS) || folder.ends_with("builds");
        for path in entries_in(&folder) {
            match std::fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() && path != scratch => folders.push(path),
                Ok(found) if found.is_file() && is_logs => {
                    if let Some(text) = unmasked(&path, secrets) {
                        emit(RunEvent::Note(text));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Masks one log; returns a message if it could not be masked.
fn unmasked(path: &Path, secrets: &Secrets) -> Option<String> {
    let error = secrets.mask_file(path).err()?;
    Some(format!("cannot mask secrets in the log {}: {error}", path.display()))
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = entries_in(folder);
    files.retain(|path| path.is_file());
    files
}

fn entries_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_logs_of_a_run_are_masked_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        write("cases/a/1/logs/web.out", "got s3cret%2Ftoken\n");
        write("cases/scratch/1/logs/web.out", "got s3cret/token\n");
        write("scratch/logs/web.out", "s3cret/token");
        write("builds/web-1.log", "using s3cret/token\n");
        write("notes.txt", "s3cret/token");
        let mut secrets = Secrets::default();
        secrets.add(b"s3cret/token").unwrap();
        let reported = std::sync::Mutex::new(Vec::new());
        mask_all(dir.path(), &secrets, &|event| reported.lock().unwrap().push(format!("{event:?}")));
        assert_eq!(read("cases/a/1/logs/web.out"), "got ***\n");
        assert_eq!(read("cases/scratch/1/logs/web.out"), "got ***\n");
        assert_eq!(read("scratch/logs/web.out"), "s3cret/token");
        assert_eq!(read("builds/web-1.log"), "using ***\n");
        assert_eq!(read("notes.txt"), "s3cret/token");
        assert_eq!(*reported.lock().unwrap(), Vec::<String>::new());
    }
}
