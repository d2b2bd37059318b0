//! Resuming a run that was cut off: its record is kept and continued.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::write::{RunWriter, make_or_check};
use super::{CASES, RunRecord, StoreError, read_summaries};
use crate::documents::manifest::TrialKey;
use crate::documents::summary::Summary;
use crate::secrets::Secrets;

/// The folder for what trials left behind that are made again. Readers ignore it.
const CUT_OFF: &str = "cut-off";

/// A record that is being continued.
#[derive(Debug)]
pub struct Resumed {
    /// Its writer.
    pub writer: RunWriter,
    /// The summaries of trials that are kept.
    pub kept: BTreeMap<TrialKey, Summary>,
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

/// Opens a record to continue it. Trials whose summary `keeps` refuses, and those without one, are made again: their
/// files are moved aside, into a folder of the record.
///
/// # Errors
/// Those of [`read_summaries`]; [`StoreError::NotOwn`] if others could write to it; [`StoreError::Write`] if something
/// cannot be moved.
pub fn resume(
    dir: &Path,
    secrets: &Secrets,
    keeps: impl Fn(&Summary) -> bool,
) -> Result<Resumed, StoreError> {
    let record = read_summaries(dir)?;
    make_or_check(dir)?;
    let kept = record.kept(keeps);
    for (place, case) in record.cases.iter().enumerate() {
        let is_kept = |trial| kept.contains_key(&TrialKey { case: place, trial });
        for trial in case.trials.iter().filter(|trial| !is_kept(trial.number)) {
            let from = dir.join(CASES).join(&case.facts.dir).join(trial.number.to_string());
            let aside = dir.join(CUT_OFF);
            fs::create_dir_all(&aside).map_err(|error| StoreError::write("create", &aside, error))?;
            let names = (1..).map(|n| aside.join(format!("{}-{}-{n}", case.facts.dir, trial.number)));
            let free = names.into_iter().find(|name| !name.exists());
            let onto = free.unwrap_or_else(|| aside.join("more"));
            fs::rename(&from, &onto).map_err(|error| StoreError::write("move", &from, error))?;
        }
    }
    Ok(Resumed { writer: RunWriter::of_existing(dir, secrets), kept })
}
