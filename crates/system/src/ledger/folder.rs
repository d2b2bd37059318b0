//! A folder that is removed when its owner ends, however that happens.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Ledger;
use super::clean::{mark_scratch, remove_scratch};
use super::guardian::Guardian;
use super::state::{self, Resource};
use crate::error::{Error, Result};

/// A folder of this process that is removed with all its contents: by [`OwnFolder::remove`], when it is dropped, by its
/// guardian after a kill -9, or by `loadlab clean` if both were killed.
#[derive(Debug)]
pub struct OwnFolder {
    path: PathBuf,
    ledger: Option<Ledger>,
}

impl OwnFolder {
    /// Makes a new folder in `parent`, readable only by this user. `what` is a word for its name and for `loadlab
    /// clean`.
    ///
    /// # Errors
    /// It cannot be made, or cannot be recorded for others to remove.
    pub fn new(parent: &Path, what: &str, guardian: Guardian) -> Result<OwnFolder> {
        let pid = std::process::id();
        let names = (0..).map(|n| parent.join(format!("loadlab-{what}-{pid}-{n}")));
        let path = names.into_iter().find(|path| !path.exists()).unwrap_or_else(|| parent.join("loadlab"));
        let ledger = Ledger::open(&state::default_dir(), &format!("{what}-{pid}"), &path, Some(guardian))?;
        ledger.made(Resource::Dir(path.clone()))?;
        let folder = OwnFolder { path, ledger: Some(ledger) };
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder.path)
            .map_err(Error::file("create", &folder.path))?;
        mark_scratch(&folder.path, &folder.mark())?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn mark(&self) -> String {
        self.ledger.as_ref().map(Ledger::mark).unwrap_or_default()
    }

    /// Removes it now.
    ///
    /// # Errors
    /// Something in it cannot be removed; `loadlab clean` tries again.
    pub fn remove(mut self) -> Result<()> {
        self.remove_files()
    }

    fn remove_files(&mut self) -> Result<()> {
        let Some(ledger) = self.ledger.take() else { return Ok(()) };
        let removed = remove_scratch(&self.path, &ledger.mark());
        let done = match removed {
            Ok(()) => ledger.done(Resource::Dir(self.path.clone())),
            Err(error) => Err(Error::file("remove", &self.path)(error)),
        };
        done.and(ledger.close())
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // The ledger still has what cannot be removed now.
        let _ = self.remove_files();
    }
}
