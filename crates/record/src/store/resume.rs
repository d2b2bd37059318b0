//! Resuming a run that was cut off: its record is kept and continued.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::write::{RunWriter, make_or_check};
use super::{CASES, RunRecord, StoreError, read_summaries};
use crate::documents::manifest::{Manifest, TrialKey};
use crate::documents::summary::Summary;
use crate::secrets::Secrets;

/// The folder for what trials left behind that are made again. Readers ignore it.
const CUT_OFF: &str = "cut-off";

/// A record that is being continued.
#[derive(Debug)]
pub struct Resumed {
    /// Its writer.
    pub writer: RunWriter,
    /// The manifest as it was found.
    pub manifest: Manifest,
    /// The summaries of trials that are kept.
    pub kept: BTreeMap<TrialKey, Summary>,
    /// The other trials.
    pub cut_off: CutOff,
}

/// Trials of a record that are made again.
#[derive(Debug)]
pub struct CutOff {
    /// The record.
    dir: PathBuf,
    /// Each as the folder of its case and its number.
    trials: Vec<(String, u32)>,
}

impl CutOff {
    /// Moves their files aside, into a folder of the record.
    ///
    /// # Errors
    /// [`StoreError::Write`] if something cannot be moved.
    pub fn move_aside(&self) -> Result<(), StoreError> {
        let aside = self.dir.join(CUT_OFF);
        for (case, trial) in &self.trials {
            let from = self.dir.join(CASES).join(case).join(trial.to_string());
            fs::create_dir_all(&aside).map_err(|error| StoreError::write("create", &aside, error))?;
            let names = (1..).map(|n| aside.join(format!("{case}-{trial}-{n}")));
            let free = names.into_iter().find(|name| !name.exists());
            let onto = free.unwrap_or_else(|| aside.join("more"));
            fs::rename(&from, &onto).map_err(|error| StoreError::write("move", &from, error))?;
        }
        Ok(())
    }
}

impl RunRecord {
    /// The summaries that `keeps` accepts.
    fn kept(&self, keeps: impl Fn(&Summary) -> bool) -> BTreeMap<TrialKey, Summary> {
        let all = self.cases.iter().enumerate().flat_map(|(place, case)| {
            let key = move |trial| TrialKey { case: place, trial };
            case.trials.iter().filter_map(move |trial| Some((key(trial.number), trial.summary.clone()?)))
        });
        all.filter(|(_, summary)| keeps(summary)).collect()
    }
}

/// Opens a record to continue it. Trials whose summary `keeps` refuses, and those without one, are to be made again.
/// Nothing is changed yet: [`CutOff::move_aside`] makes room for them.
///
/// # Errors
/// Those of [`read_summaries`]; [`StoreError::NotOwn`] if others could write to it.
pub fn resume(
    dir: &Path,
    secrets: &Secrets,
    keeps: impl Fn(&Summary) -> bool,
) -> Result<Resumed, StoreError> {
    let record = read_summaries(dir)?;
    make_or_check(dir)?;
    let kept = record.kept(keeps);
    let mut trials = Vec::new();
    for (place, case) in record.cases.iter().enumerate() {
        let is_kept = |trial| kept.contains_key(&TrialKey { case: place, trial });
        let others = case.trials.iter().map(|trial| trial.number).filter(|number| !is_kept(*number));
        trials.extend(others.map(|number| (case.facts.dir.clone(), number)));
    }
    let cut_off = CutOff { dir: dir.to_owned(), trials };
    Ok(Resumed { writer: RunWriter::of_existing(dir, secrets), manifest: record.manifest, kept, cut_off })
}
