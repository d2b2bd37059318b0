//! Errors of a run directory, in words that name the file and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use crate::counts::hlog::HlogError;

/// Why a run directory could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder exists and is not empty: its content would be mixed with the new record.
    #[error(
        "`{}` exists and is not an empty folder\nhint: choose another folder with --out, or remove this one",
        .path.display()
    )]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The folder already existed, and other users could put their files or links into the record.
    #[error(
        "`{}` cannot be used for a record: {why}\nhint: choose a folder that does not exist yet, such as {}; \
         loadlab creates it",
        .path.display(), .path.join("run").display()
    )]
    NotOwn {
        /// The folder.
        path: PathBuf,
        /// Why the folder cannot be used, in words.
        why: String,
    },
    /// A name that must be a plain folder or file name is not one.
    #[error(
        "`{name}` is not a valid name in `{}`\nhint: it must not be empty, begin with a dot or contain a separator",
        .path.display()
    )]
    Name {
        /// The name.
        name: String,
        /// The folder it was to be created in.
        path: PathBuf,
    },
    /// Writing failed.
    #[error("cannot {action} `{}`: {source}; {safe}\nhint: {}", .path.display(), hint_of(.source))]
    Write {
        /// `create`, `append to`, `replace`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What is safely on disk, in words.
        safe: String,
        /// The system's error.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read `{}`: {source}\nhint: {}", .path.display(), hint_of(.source))]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder is not a run directory.
    #[error(
        "`{}` is not a run directory: it has no manifest.json\nhint: choose a folder that `loadlab run` made, \
         such as loadlab-runs/NAME-TIME",
        .path.display()
    )]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// The record has another format version.
    #[error(
        "`{}` is a record of format {found}, but this loadlab reads format {known}\nhint: read it with the \
         loadlab that wrote it, or {}",
        .path.display(),
        if *found > u64::from(*known) { "a later one" } else { "run its plan again" }
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// Its format version.
        found: u64,
        /// The version this loadlab reads.
        known: u32,
    },
    /// A file has invalid content.
    #[error("{}:{line}:{column}: {message}\nhint: {hint}", .path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        /// What is wrong there.
        message: String,
        /// What to do about it.
        hint: &'static str,
    },
}

impl StoreError {
    /// Whether what was there before does not belong to this run; nothing was changed.
    pub fn is_in_the_way(&self) -> bool {
        matches!(self, StoreError::Exists { .. } | StoreError::NotOwn { .. })
    }

    pub(super) fn write(action: &'static str, path: &Path, source: io::Error) -> StoreError {
        let safe = "everything written before is safe".to_owned();
        StoreError::Write { action, path: path.to_owned(), safe, source }
    }

    pub(super) fn read(path: &Path, source: io::Error) -> StoreError {
        StoreError::Read { path: path.to_owned(), source }
    }

    /// From serde_json's error; `line` is the line of the file at which the parsed text begins.
    pub(super) fn json(path: &Path, line: u64, error: &serde_json::Error, hint: &'static str) -> StoreError {
        StoreError::Garbled {
            path: path.to_owned(),
            line: line + (error.line() as u64).saturating_sub(1),
            column: (error.column() as u64).max(1),
            message: json_message(error),
            hint,
        }
    }
}

impl From<HlogError> for StoreError {
    fn from(e: HlogError) -> Self {
        let HlogError { path, line, column, message, hint } = e;
        StoreError::Garbled { path, line, column, message, hint }
    }
}

/// serde_json's message without the position, which our message begins with.
pub(super) fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn hint_of(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, or choose a folder on another disk with --out"
        }
        io::ErrorKind::PermissionDenied => "check who owns it, or choose another folder with --out",
        io::ErrorKind::ReadOnlyFilesystem => "choose a folder on a writable disk with --out",
        io::ErrorKind::NotFound => "check the path; it may have been removed during the run",
        io::ErrorKind::InvalidFilename => "a name in it is too long or not allowed here; shorten it",
        _ => "check the disk and the path",
    }
}
