//! Which run the runs of a plan are compared with.
//!
//! A file in the folder of runs records it by the plan's name: the file can be moved together with the runs, and
//! deleting it deletes nothing else.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file's name in a folder of runs.
const FILE: &str = "baselines.json";

/// The baselines of a folder of runs.
pub struct Baselines {
    dir: PathBuf,
    /// Folder name of the baseline run, by the plan's name.
    pub runs: BTreeMap<String, String>,
}

impl Baselines {
    /// Reads the baselines of a folder of runs; none without a file.
    ///
    /// # Errors
    /// The reason in words: the file exists, but cannot be read.
    pub fn of(dir: &Path) -> Result<Baselines, String> {
        let file = dir.join(FILE);
        let runs = match std::fs::read_to_string(&file) {
            // Without the folder there are no baselines either; whoever reads the runs says so.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                BTreeMap::new()
            }
            Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
            Ok(text) => serde_json::from_str(&text).map_err(|e| {
                let hint =
                    "hint: the file maps plan names to run folders; delete it to start without baselines";
                format!("{} is not a baselines file: {e}\n{hint}", file.display())
            })?,
        };
        Ok(Baselines { dir: dir.to_owned(), runs })
    }

    /// The folder name of a plan's baseline.
    pub fn name_of(&self, plan: &str) -> Option<&str> {
        self.runs.get(plan).map(String::as_str)
    }

    /// The folder of a plan's baseline.
    ///
    /// # Errors
    /// The reason in words with a hint: there is none, or it is gone.
    pub fn run_of(&self, plan: &str) -> Result<PathBuf, String> {
        let hint = "hint: `loadlab baseline RUN` sets the baseline; `--baseline=RUN` uses any run";
        match self.name_of(plan).map(|name| self.dir.join(name)) {
            Some(run) if super::is_run(&run) => Ok(run),
            Some(run) => {
                Err(format!("the baseline of `{plan}`, {}, no longer exists\n{hint}", run.display()))
            }
            None => Err(format!("`{plan}` has no baseline in {}\n{hint}", self.dir.display())),
        }
    }

    /// Writes the file, atomically: another process may be reading it.
    ///
    /// # Errors
    /// The reason in words if it cannot be written.
    pub fn write(&self) -> Result<(), String> {
        let file = self.dir.join(FILE);
        let text = serde_json::to_string_pretty(&self.runs).map_err(|e| e.to_string())?;
        loadlab_record::store::files::replace(&file, (text + "\n").as_bytes())
            .map_err(|e| format!("cannot write {}: {e}", file.display()))
    }
}

/// The folder that contains a run, and the run's name in it. A run's baseline is recorded there, whatever the current
/// folder.
///
/// # Errors
/// The reason in words: it has no parent folder.
pub fn place_of(run: &Path) -> Result<(PathBuf, String), String> {
    let cannot = |e: std::io::Error| format!("cannot find {}: {e}", run.display());
    let whole = std::fs::canonicalize(run).map_err(cannot)?;
    match (run.parent(), whole.parent(), whole.file_name()) {
        // As typed, if the path has both parts: messages are shorter.
        (Some(above), Some(_), Some(name))
            if run.file_name() == Some(name) && !above.as_os_str().is_empty() =>
        {
            Ok((above.to_owned(), name.to_string_lossy().into_owned()))
        }
        (_, Some(above), Some(name)) => Ok((above.to_owned(), name.to_string_lossy().into_owned())),
        _ => Err(format!("{} is not inside a folder of runs", run.display())),
    }
}
