//! The record of a run in progress: its folder, its manifest and its trials.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use loadlab_analysis::trial::judge::was_never_connected;
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
    CutOff, LOGS, Resumed, RunWriter, StoreError, TrialWriter, case_dir_name, resume,
};
use loadlab_record::watch::names::HOST;
use loadlab_system::{Cancel, clock};

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
    /// Set while a run that is resumed has not gone on.
    found: Option<Found>,
    /// Nothing is left to run, and the manifest says so already: it stays as it is.
    is_settled: bool,
}

/// The record of a run that is resumed, as it was found.
struct Found {
    manifest: Manifest,
    cut_off: CutOff,
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
        Ok(Record::of(writer, manifest, options, None))
    }

    fn of(writer: RunWriter, manifest: Manifest, options: &RunOptions, found: Option<Found>) -> Record {
        let dir = std::path::absolute(&options.out).unwrap_or_else(|_| options.out.clone());
        let (builds, tried, is_settled) = (Builds::new(), Vec::new(), false);
        Record { writer, manifest, dir, builds, tried, found, is_settled }
    }

    /// Reopens the record of a run that was cut off, to continue it. Returns the summaries of the trials that are kept,
    /// by case and number. Nothing is written yet: [`Record::claim`] or [`Record::leave`] follows.
    ///
    /// # Errors
    /// The record cannot be read, or others could write to it.
    pub fn resume(plan: &Plan, options: &RunOptions) -> Result<(Record, TrialSummaries), StoreError> {
        let Resumed { writer, manifest: found, kept, cut_off } =
            resume(&options.out, &options.secrets, |summary| is_kept(summary, plan.until_certain.is_some()))?;
        let present = manifest_of(plan, options);
        // Cases continue in the order drawn originally.
        let until_certain = found.until_certain.clone().map(|until| UntilCertain { ended: None, ..until });
        let commit = found.commit.clone().map(|began| commit_of_all(began, present.commit.as_ref()));
        let manifest = Manifest { started: found.started.clone(), until_certain, commit, ..present };
        let found = Found { manifest: found, cut_off };
        Ok((Record::of(writer, manifest, options, Some(found)), kept))
    }

    /// Makes the record of a run that is resumed that of this process, so that no other resumes it. Until the run goes
    /// on, [`Record::give_back`] undoes that.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn claim(&self) -> Result<(), StoreError> {
        if self.found.is_some() { self.writer.manifest(&self.manifest) } else { Ok(()) }
    }

    /// Lets a run that is resumed go on: what incomplete trials left is moved aside. Returns in words what is different
    /// about this machine or loadlab, which the next trial also notes.
    ///
    /// # Errors
    /// Something cannot be moved.
    pub fn go_on(&mut self) -> Result<Option<String>, StoreError> {
        let Some(found) = &self.found else { return Ok(None) };
        found.cut_off.move_aside()?;
        let note = moved(&found.manifest, &self.manifest);
        self.found = None;
        if let Some(text) = note.clone() {
            self.builds.push((clock::now_ns(), EventKind::Note { text }));
        }
        Ok(note)
    }

    /// Restores the manifest of a run that was to be resumed and cannot go on; `None` if there is nothing to restore.
    pub fn give_back(&mut self) -> Option<Result<(), StoreError>> {
        let found = self.found.take()?;
        Some(self.writer.manifest(&found.manifest))
    }

    /// Leaves the record of a run that is resumed as it was found, since nothing is left to run. Only if it does not
    /// say that the run is complete, [`Record::end`] makes it.
    pub fn leave(&mut self) {
        if let Some(found) = self.found.take() {
            self.is_settled = found.manifest.how == RunEnded::Complete;
            self.manifest = found.manifest;
        }
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
        if self.is_settled {
            return Ok(());
        }
        self.manifest.how = how;
        self.manifest.ended = Some(host::rfc3339_now());
        self.writer.manifest(&self.manifest)
    }
}

/// Whether a run that is resumed keeps a trial: it ended as planned, and the target was there. Trials until it is certain
/// are all kept, since what they have settled is not measured again.
fn is_kept(summary: &Summary, is_until_certain: bool) -> bool {
    let has_ended = matches!(summary.ended, Ended::Complete | Ended::Stopped);
    has_ended && (is_until_certain || !was_never_connected(summary))
}

/// The commit of all trials of a run that began at one and goes on at another, or at an unknown one.
fn commit_of_all(began: CommitFacts, now: Option<&CommitFacts>) -> CommitFacts {
    let is_same = now.is_some_and(|now| !now.changed && now.commit == began.commit);
    CommitFacts { changed: began.changed || !is_same, ..began }
}

/// What is different about the machine or loadlab since the run began, in words. A record has these facts only once.
fn moved(began: &Manifest, now: &Manifest) -> Option<String> {
    let facts = |of: &Manifest| {
        let cores = if of.host.cores == 0 { String::new() } else { of.host.cores.to_string() };
        [
            ("loadlab", of.loadlab.clone()),
            ("kernel", of.host.kernel.clone()),
            ("CPU", of.host.cpu.clone()),
            ("cores", cores),
        ]
    };
    let both = facts(began).into_iter().zip(facts(now));
    let changed: Vec<String> = both
        // What was never recorded is unknown.
        .filter(|((_, then), (_, now))| !then.is_empty() && then != now)
        .map(|((what, then), (_, now))| format!("{what} `{then}`, now `{now}`"))
        .collect();
    let list = changed.join("; ");
    (!changed.is_empty()).then(|| format!("the run was resumed under other conditions: {list}"))
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::Failure;
    use loadlab_record::documents::manifest::Host;

    use super::*;

    #[test]
    fn trials_are_kept_if_they_ended_as_planned_and_the_target_was_there() {
        let ended = |how: Ended, ok: u64, failed: Option<Failure>| {
            let mut summary = summarise(TrialInput::default());
            summary.ended = how;
            summary.requests.ok = ok;
            if let Some(failure) = failed {
                summary.requests.failed = 3;
                summary.failures.add(failure, 3);
            }
            summary
        };
        for (what, summary, expect) in [
            ("complete", ended(Ended::Complete, 5, None), true),
            ("stopped", ended(Ended::Stopped, 5, None), true),
            ("interrupted", ended(Ended::Interrupted, 5, None), false),
            ("broken", ended(Ended::Broken, 5, None), false),
            ("all requests failed", ended(Ended::Complete, 0, Some(Failure::Timeout)), true),
            ("no such host", ended(Ended::Complete, 0, Some(Failure::Dns)), false),
            ("bad certificate", ended(Ended::Complete, 0, Some(Failure::Tls)), false),
            ("refused", ended(Ended::Stopped, 0, Some(Failure::Connect)), false),
        ] {
            assert_eq!(is_kept(&summary, false), expect, "{what}");
            assert_eq!(is_kept(&summary, true), !matches!(what, "interrupted" | "broken"), "{what}");
        }
    }

    #[test]
    fn a_run_is_of_one_commit_only_if_it_was_all_the_time() {
        let commit = |name: &str, changed: bool| {
            let (commit, subject) = (name.to_owned(), String::new());
            CommitFacts { commit, subject, changed }
        };
        for (began, now, changed) in [
            (commit("a", false), Some(commit("a", false)), false),
            (commit("a", true), Some(commit("a", false)), true),
            (commit("a", false), Some(commit("a", true)), true),
            (commit("a", false), Some(commit("b", false)), true),
            (commit("a", false), None, true),
        ] {
            let of_all = commit_of_all(began.clone(), now.as_ref());
            assert_eq!((of_all.commit.as_str(), of_all.changed), ("a", changed), "{began:?}, then {now:?}");
        }
    }

    #[test]
    fn another_machine_is_named_if_the_first_is_known() {
        let manifest = |loadlab: &str, host: Host| -> Manifest {
            let value = serde_json::json!({
                "record": 2, "loadlab": loadlab, "name": "test", "plan_path": "", "plan_text": "", "plan_sha256": "",
                "options": [], "started": "", "ended": null, "how": "partial", "writer": { "pid": 1, "start_ticks": 1 },
                "host": host, "words": [], "components": [], "axes": [], "trials": 1, "expect": [], "quick": false,
                "cases": [],
            });
            serde_json::from_value(value).expect("a manifest")
        };
        let host = |cores: u64| Host { kernel: "Linux 6".into(), cpu: "x".into(), cores, ..Host::default() };
        let now = manifest("1", host(2));
        assert_eq!(moved(&manifest("1", host(2)), &now), None);
        assert_eq!(moved(&manifest("1", Host::default()), &now), None);
        let said = moved(&manifest("0", host(4)), &now).expect("it moved");
        assert!(said.ends_with(": loadlab `0`, now `1`; cores `4`, now `2`"), "{said}");
    }
}
