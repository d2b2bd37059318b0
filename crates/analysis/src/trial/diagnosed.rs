//! A run as reports need it: its record, and what was concluded from each trial while it was read.
//!
//! Most of a record serves only the conclusions about one trial: what connections and threads did, and the latency log
//! by step and kind. Each trial is diagnosed as soon as it is read, on all cores, and that part of it is dropped.

use std::collections::BTreeMap;
use std::ops::Deref;

use loadlab_record::documents::manifest::{CaseFacts, Manifest};
use loadlab_record::documents::summary::Summary;
use loadlab_record::store::{CaseRecord, RunRecord, TrialRecord};

use crate::trial::bottleneck::{Diagnosis, TrialData, diagnose};
use crate::trial::partial::partial;

/// A run, and what was concluded from each of its trials.
#[derive(Clone, Debug)]
pub struct DiagnosedRun {
    record: RunRecord,
    /// Keyed by the case's folder and the trial's number.
    trials: BTreeMap<(String, u32), DiagnosedTrial>,
}

/// What was concluded from a trial.
#[derive(Clone, Debug, Default)]
pub struct DiagnosedTrial {
    /// The summary of a trial that was cut off, from what it had written; `None` if the trial has a summary, or
    /// nothing to reconstruct one from.
    pub(crate) reconstructed: Option<Summary>,
    /// What held it back; `None` if nothing was measured.
    pub(crate) diagnosis: Option<Diagnosis>,
}

impl DiagnosedRun {
    /// Combines a record with what [`DiagnosedTrial::take`] made of its trials, by case and trial.
    pub fn new(record: RunRecord, diagnosed: Vec<Vec<DiagnosedTrial>>) -> DiagnosedRun {
        let of_case = |(case, diagnosed): (&CaseRecord, Vec<DiagnosedTrial>)| -> Vec<_> {
            let key = |trial: &TrialRecord| (case.facts.dir.clone(), trial.number);
            case.trials.iter().map(key).zip(diagnosed).collect()
        };
        let trials = record.cases.iter().zip(diagnosed).flat_map(of_case).collect();
        DiagnosedRun { record, trials }
    }

    /// Keeps the cases for which `keep` is true.
    pub fn retain_cases(&mut self, keep: impl FnMut(&CaseRecord) -> bool) {
        self.record.cases.retain(keep);
    }

    /// The conclusions from a trial; `None` if it never began.
    pub(crate) fn trial(&self, case: &CaseFacts, number: u32) -> Option<&DiagnosedTrial> {
        self.trials.get(&(case.dir.clone(), number))
    }
}

impl From<RunRecord> for DiagnosedRun {
    fn from(record: RunRecord) -> DiagnosedRun {
        let of_case = |case: &CaseRecord| {
            case.trials.iter().map(|trial| DiagnosedTrial::of(&record.manifest, &case.facts, trial)).collect()
        };
        let diagnosed = record.cases.iter().map(of_case).collect();
        DiagnosedRun::new(record, diagnosed)
    }
}

impl Deref for DiagnosedRun {
    type Target = RunRecord;

    fn deref(&self) -> &RunRecord {
        &self.record
    }
}

impl DiagnosedTrial {
    /// Diagnoses a trial and drops what reports do not draw; a callback for [`loadlab_record::store::read_run_with`].
    pub fn take(manifest: &Manifest, case: &CaseFacts, trial: &mut TrialRecord) -> DiagnosedTrial {
        let diagnosed = DiagnosedTrial::of(manifest, case, trial);
        trial.evidence = Vec::new();
        // Reports draw these over time; all others are in the summary.
        trial.intervals.retain(|interval| interval.is("response"));
        trial.intervals.shrink_to_fit();
        diagnosed
    }

    fn of(manifest: &Manifest, case: &CaseFacts, trial: &TrialRecord) -> DiagnosedTrial {
        // Without a second of load there is nothing to reconstruct a summary from.
        let is_cut_off = trial.summary.is_none() && !trial.ticks.is_empty();
        let reconstructed = is_cut_off.then(|| partial(trial, case, &manifest.figures));
        let order: Vec<String> = manifest.components.iter().map(|c| c.name.clone()).collect();
        let diagnosis = trial.summary.as_ref().or(reconstructed.as_ref()).map(|summary| {
            diagnose(&TrialData {
                summary,
                samples: &trial.samples.unpacked(),
                ticks: &trial.ticks,
                events: &trial.events,
                evidence: &trial.evidence,
                order: &order,
                cores: manifest.host.cores,
            })
        });
        DiagnosedTrial { reconstructed, diagnosis }
    }
}
