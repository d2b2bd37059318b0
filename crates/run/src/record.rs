//! The record of a run in progress: its folder, its manifest and its trials.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use loadlab_plan::{Case, Plan};
use loadlab_record::Secrets;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::manifest::{
    CommitFacts, Manifest, RunEnded, TrialKey, UntilCertain, UntilEnded,
};
use loadlab_record::documents::search::SearchFacts;
use loadlab_record::documents::summary::{Ended, Summary};
use loadlab_record::documents::why::WhyFacts;
use loadlab_record::store::{
    LOGS, Resumed, RunWriter, StoreError, TrialWriter, case_dir_name, read_summaries, resume,
};
use loadlab_record::watch::names::HOST;
use loadlab_system::Cancel;

use crate::host;
use crate::manifest::{case_facts, manifest_of};
use crate::options::RunOptions;
use crate::running_system::{Builds, RunningSystem};
use crate::state::TrialState;

/// Summaries of trials that already exist.
pub type TrialSummaries = BTreeMap<TrialKey, Summary>;

/// A record in progress: its writer and its manifest.
pub struct Record {
    writer: RunWriter,
    manifest: Manifest,
    /// The record's folder as an absolute path: components run in their own folders.
    pub dir: PathBuf,
    /// Builds not yet recorded with a trial.
    pub builds: Builds,
    /// Number of trials made of each level of a search, by case index.
    tried: Vec<u32>,
}

impl Record {
    /// Creates the folder. Until [`Record::end`], the manifest states that the run was cut off.
    ///
    /// # Errors
    /// The folder is not empty or cannot be created.
    pub fn begin(plan: &Plan, options: &RunOptions) -> Result<Record, StoreError> {
        Record::create(manifest_of(plan, options), options)
    }

    fn create(manifest: Manifest, options: &RunOptions) -> Result<Record, StoreError> {
        let writer = RunWriter::create_masking(&options.out, &manifest, &options.secrets)?;
        let dir = std::path::absolute(&options.out).unwrap_or_else(|_| options.out.clone());
        Ok(Record { writer, manifest, dir, builds: Builds::new(), tried: Vec::new() })
    }

    /// Reopens the record of a run that was cut off, to continue it. Returns the summaries of complete trials, by case
    /// and number; what incomplete trials left is moved aside.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn resume(plan: &Plan, options: &RunOptions) -> Result<(Record, TrialSummaries), StoreError> {
        let is_complete = |summary: &Summary| matches!(summary.ended, Ended::Complete | Ended::Stopped);
        let Manifest { started, until_certain, commit, .. } = read_summaries(&options.out)?.manifest;
        let Resumed { writer, kept } = resume(&options.out, &options.secrets, is_complete)?;
        // Cases continue in the order drawn originally.
        let until_certain = until_certain.map(|until| UntilCertain { ended: None, ..until });
        let present = manifest_of(plan, options);
        let commit = commit.map(|began| match &present.commit {
            Some(now) if now.commit != began.commit => CommitFacts { changed: true, ..began },
            _ => began,
        });
        let manifest = Manifest { started, until_certain, commit, ..present };
        writer.manifest(&manifest)?;
        let dir = std::path::absolute(&options.out).unwrap_or_else(|_| options.out.clone());
        Ok((Record { writer, manifest, dir, builds: Builds::new(), tried: Vec::new() }, kept))
    }

    /// Creates the record of a search: its levels become cases as they are measured.
    ///
    /// # Errors
    /// As [`Record::begin`].
    pub fn begin_search(plan: &Plan, options: &RunOptions, facts: SearchFacts) -> Result<Record, StoreError> {
        let mut manifest = manifest_of(plan, options);
        manifest.axes.retain(|axis| *axis != facts.vary.name());
        manifest.axes.push(facts.vary.name().to_owned());
        manifest.cases.clear();
        manifest.trials = 1;
        manifest.search = Some(facts);
        Record::create(manifest, options)
    }

    /// Creates the record of a proof by intervention: its loads become cases as they are run.
    ///
    /// # Errors
    /// As [`Record::begin`].
    pub fn begin_why(plan: &Plan, options: &RunOptions, facts: WhyFacts) -> Result<Record, StoreError> {
        let mut manifest = manifest_of(plan, options);
        manifest.axes.clear();
        manifest.cases.clear();
        manifest.expect.clear();
        manifest.trials = 1;
        manifest.why = Some(facts);
        Record::create(manifest, options)
    }

    /// Updates the findings of a proof; written with the next case and at the end.
    pub fn set_why(&mut self, facts: &WhyFacts) {
        self.manifest.why = Some(facts.clone());
    }

    /// The next trial of a search level's case, which is added when the level is first measured.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn begin_level(&mut self, case: &Case) -> Result<TrialKey, StoreError> {
        let index = match self.manifest.cases.iter().position(|c| c.name == case.name) {
            Some(index) => index,
            None => {
                let dir = case_dir_name(&case.name);
                self.manifest.cases.push(case_facts(case, &dir, &self.manifest.figures));
                self.tried.push(0);
                self.writer.manifest(&self.manifest)?;
                self.manifest.cases.len() - 1
            }
        };
        self.tried[index] += 1;
        Ok(TrialKey { case: index, trial: self.tried[index] })
    }

    /// Updates the progress of a search; written with the next case and at the end.
    pub fn set_search(&mut self, facts: &SearchFacts) {
        self.manifest.search = Some(facts.clone());
    }

    /// Records facts about the machine, once its capabilities are known.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn set_host(&mut self, cgroup: &str) -> Result<(), StoreError> {
        self.manifest.host = host::host(cgroup);
        self.writer.manifest(&self.manifest)
    }

    /// Creates a trial's folder.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn begin_trial(&self, key: TrialKey) -> Result<TrialWriter, StoreError> {
        self.writer.trial(self.case_dir(key.case), key.trial)
    }

    /// Creates the folder of the `measurement`-th level measurement (from 1) within a trial that searches.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn begin_level_of_trial(&self, key: TrialKey, measurement: u32) -> Result<TrialWriter, StoreError> {
        self.writer.level(self.case_dir(key.case), key.trial, measurement)
    }

    /// Makes a level's measurement the trial's own, with this summary if the search finished.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn adopt_level(
        &self,
        key: TrialKey,
        measurement: u32,
        summary: Option<&Summary>,
    ) -> Result<(), StoreError> {
        self.writer.adopt_level(self.case_dir(key.case), key.trial, measurement, summary)
    }

    /// The folder for the logs of a trial's components.
    pub fn logs_of_trial(&self, key: TrialKey) -> PathBuf {
        self.dir.join("cases").join(self.case_dir(key.case)).join(key.trial.to_string()).join(LOGS)
    }

    fn case_dir(&self, case: usize) -> &str {
        self.manifest.cases.get(case).map_or("", |c| c.dir.as_str())
    }

    /// Creates the state of a trial. Its record includes what was built before the trial and what this host lacks.
    pub fn state(
        &mut self,
        writer: TrialWriter,
        cancel: &Cancel,
        running: &RunningSystem,
    ) -> Arc<TrialState> {
        let state = TrialState::new(Some(writer), cancel.clone(), self.secrets().clone());
        std::mem::take(&mut self.builds)
            .into_iter()
            .for_each(|(at_ns, what)| state.record_event_at(at_ns, what));
        for missing in running.unavailable() {
            let (what, why) = (missing.what.clone(), missing.why.clone());
            state.record_event(EventKind::Unavailable { component: HOST.to_owned(), what, why });
        }
        Arc::new(state)
    }

    /// The manifest as it is now.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Sets why trials that run until it is certain how the cases differ ended; written when the run ends.
    pub fn set_rounds_end(&mut self, ended: Option<UntilEnded>) {
        if let Some(until) = &mut self.manifest.until_certain {
            until.ended = ended;
        }
    }

    /// Values that no part of the record may contain.
    pub fn secrets(&self) -> &Secrets {
        self.writer.secrets()
    }

    /// Records how the run ended.
    ///
    /// # Errors
    /// The manifest cannot be written; it then still states that the run was cut off.
    pub fn end(&mut self, how: RunEnded) -> Result<(), StoreError> {
        self.manifest.how = how;
        self.manifest.ended = Some(host::rfc3339_now());
        self.writer.manifest(&self.manifest)
    }
}
