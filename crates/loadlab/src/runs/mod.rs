//! Folders of runs: which runs exist, by name and age, and which of them are baselines.

pub mod baselines;

use std::path::{Path, PathBuf};

use loadlab_analysis::{DiagnosedRun, DiagnosedTrial};
use loadlab_record::documents::labels::Labels;
use loadlab_record::store::{StoreError, read_run_with, read_summaries};
use loadlab_report::history::Listed;

use crate::exit::note;
use baselines::Baselines;

/// Whether a folder holds a run: other folders may have the same name.
pub fn is_run(dir: &Path) -> bool {
    dir.join("manifest.json").is_file()
}

/// A run's folder by path, by its name in a folder of runs, or as the newest there.
///
/// # Errors
/// The reason in words: there is no run, or no such folder.
pub fn found(run: &Path, runs: &Path) -> Result<PathBuf, String> {
    let dir = named(run, runs)?;
    // A folder without a manifest has its own message.
    if dir.is_dir() {
        return Ok(dir);
    }
    let hint = "`loadlab list` shows the runs";
    Err(format!(
        "{} is not a run's folder\nhint: {hint} in {}; --runs-dir DIR names another folder",
        run.display(),
        runs.display()
    ))
}

/// As [`found`], for a run that may be gone.
///
/// # Errors
/// The reason in words: there is no newest run.
pub fn named(run: &Path, runs: &Path) -> Result<PathBuf, String> {
    let named = runs.join(run);
    if is_run(run) {
        return Ok(run.to_owned());
    }
    if is_run(&named) {
        return Ok(named);
    }
    if run != Path::new("last") {
        return Ok(if named.is_dir() && !run.is_dir() { named } else { run.to_owned() });
    }
    let newest = runs_in(runs, None)?.into_iter().next();
    newest.map(|listed| listed.run.dir.clone()).ok_or_else(|| {
        let hint = "`loadlab run` and `loadlab bench --save` make one";
        format!("no run in {}\nhint: {hint}; --runs-dir DIR names another folder", runs.display())
    })
}

/// Reads a run for reports and comparisons; each trial is diagnosed as soon as it is read.
///
/// # Errors
/// As [`loadlab_record::store::read_run`].
pub fn read(dir: &Path) -> Result<DiagnosedRun, StoreError> {
    let (record, diagnosed) = read_run_with(dir, DiagnosedTrial::take)?;
    Ok(DiagnosedRun::new(record, diagnosed))
}

/// The name of the case of a run that has this label in its report; `None` if no case has it, or if several do.
pub fn labelled<'r>(run: &'r DiagnosedRun, label: &str) -> Option<&'r str> {
    let cases = || run.cases.iter().map(|case| &case.facts);
    Labels::of(cases(), &run.manifest.axes).named(label, cases())
}

/// Runs in a folder, newest first. Runs that cannot be read are reported and left out; other folders are ignored.
pub fn runs_in(dir: &Path, name: Option<&str>) -> Result<Vec<Listed>, String> {
    let cannot = |e: std::io::Error| {
        format!(
            "cannot read {}: {e}\nhint: `loadlab run` writes its records to ./loadlab-runs",
            dir.display()
        )
    };
    let baselines = Baselines::of(dir)?;
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if !path.is_dir() {
            continue;
        }
        match read_summaries(&path) {
            Ok(run) if name.is_none_or(|name| name == run.manifest.name) => {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                let baseline = baselines.name_of(&run.manifest.name) == Some(&name);
                runs.push(Listed { name, run: run.into(), baseline });
            }
            Ok(_) | Err(StoreError::NoManifest { .. }) => {}
            Err(error) => note(&error.to_string()),
        }
    }
    runs.sort_by(|a, b| b.run.manifest.started.cmp(&a.run.manifest.started).then(b.name.cmp(&a.name)));
    Ok(runs)
}
