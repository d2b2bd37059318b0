//! The run's manifest: the resolved plan, written when the run starts and again when it ends.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadlab_plan::{self as plan, Case, Plan};
use loadlab_record::Secrets;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::manifest::{
    CaseFacts, CommitFacts, ComponentFacts, DerivedFacts, FigureFacts, Host, Manifest, RunEnded, TrialKey,
    UntilCertain, UntilEnded,
};
use loadlab_record::documents::search::SearchFacts;
use loadlab_record::documents::summary::{Ended, Summary};
use loadlab_record::documents::why::WhyFacts;
use loadlab_record::store::{
    LOGS, RECORD_VERSION, Resumed, RunWriter, StoreError, TrialWriter, case_dir_name, case_dir_names,
    read_summaries, resume,
};
use loadlab_record::watch::names::HOST;
use loadlab_system::Cancel;

use crate::host;
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
    pub fn why(&mut self, facts: &WhyFacts) {
        self.manifest.why = Some(facts.clone());
    }

    /// The next trial of a search level's case, which is added when the level is first measured.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn level(&mut self, case: &Case) -> Result<TrialKey, StoreError> {
        let place = match self.manifest.cases.iter().position(|c| c.name == case.name) {
            Some(place) => place,
            None => {
                let dir = case_dir_name(&case.name);
                self.manifest.cases.push(case_facts(case, &dir, &self.manifest.figures));
                self.tried.push(0);
                self.writer.manifest(&self.manifest)?;
                self.manifest.cases.len() - 1
            }
        };
        self.tried[place] += 1;
        Ok(TrialKey { case: place, trial: self.tried[place] })
    }

    /// Updates the progress of a search; written with the next case and at the end.
    pub fn search(&mut self, facts: &SearchFacts) {
        self.manifest.search = Some(facts.clone());
    }

    /// Records facts about the machine, once its capabilities are known.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn host(&mut self, cgroup: &str) -> Result<(), StoreError> {
        self.manifest.host = host::host(cgroup);
        self.writer.manifest(&self.manifest)
    }

    /// Creates a trial's folder.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn trial(&self, key: TrialKey) -> Result<TrialWriter, StoreError> {
        self.writer.trial(self.case_dir(key.case), key.trial)
    }

    /// Creates the folder of the `measurement`-th level measurement (from 1) within a trial that searches.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn level_of_trial(&self, key: TrialKey, measurement: u32) -> Result<TrialWriter, StoreError> {
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
        std::mem::take(&mut self.builds).into_iter().for_each(|(at_ns, what)| state.event_at(at_ns, what));
        for missing in running.unavailable() {
            let (what, why) = (missing.what.clone(), missing.why.clone());
            state.event(EventKind::Unavailable { component: HOST.to_owned(), what, why });
        }
        Arc::new(state)
    }

    /// The manifest as it is now.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Sets why trials that run until it is certain how the cases differ ended; written when the run ends.
    pub fn settled(&mut self, ended: Option<UntilEnded>) {
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

/// The folder that a plan's relative paths refer to, as an absolute path.
pub fn plan_dir(plan: &Plan) -> PathBuf {
    std::path::absolute(&plan.dir).unwrap_or_else(|_| Path::new(&plan.dir).to_owned())
}

/// SHA-256 of a plan's text, in hexadecimal, as recorded.
pub fn plan_sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

fn manifest_of(plan: &Plan, options: &RunOptions) -> Manifest {
    let cases = plan.cases();
    let dirs = case_dir_names(&cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
    let components = cases.iter().flat_map(|c| &c.system.components);
    let figures = figures(plan);
    let facts = |c: &plan::ComponentSpec| ComponentFacts { name: c.name.clone(), run: c.part.text() };
    Manifest {
        record: RECORD_VERSION,
        loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        name: plan.name.clone(),
        plan_path: plan.path.clone(),
        plan_text: plan.shown_text.clone(),
        plan_sha256: plan_sha256(&options.plan_text),
        options: options.as_given.clone(),
        started: host::rfc3339_now(),
        ended: None,
        how: RunEnded::Partial,
        writer: host::writer(),
        host: Host::default(),
        words: plan.describe(),
        revisions: options.revisions.clone(),
        commit: options.commit.clone().filter(|_| options.revisions.is_empty()),
        components: first_of_each(components.map(facts), |c| c.name.clone()),
        axes: plan.axes.clone(),
        cases: cases.iter().zip(&dirs).map(|(case, dir)| case_facts(case, dir, &figures)).collect(),
        trials: plan.trials,
        until_certain: plan.until_certain.map(until_certain),
        expect: first_of_each(cases.iter().flat_map(expected).map(|e| e.text.clone()), String::clone),
        figures,
        layout: plan.layout.map(str::to_owned),
        derive: plan.derive.iter().map(derived_facts).collect(),
        quick: plan.quick,
        search: None,
        why: None,
    }
}

/// The expectations of a case: those of each search level and those of its trials.
fn expected(case: &Case) -> impl Iterator<Item = &plan::Expression> {
    case.find.iter().flat_map(|find| &find.expect).chain(&case.expect)
}

/// The figures that matter, each as defined by the first case that has it.
pub fn figures(plan: &Plan) -> Vec<FigureFacts> {
    let all = plan.cases().iter().flat_map(|c| &c.figures);
    first_of_each(all.map(figure_facts), |f| f.name.clone())
}

/// The manifest's form of this setting, with a freshly drawn seed that cannot be known in advance.
pub fn until_certain(until: plan::UntilCertain) -> UntilCertain {
    let random = RandomState::new().build_hasher().finish();
    UntilCertain {
        within: until.within,
        budget_s: until.budget_ns.map(|ns| ns as f64 / 1e9),
        // Integers below 2⁵³ are exact in JSON.
        seed: random >> 11,
        ended: None,
    }
}

/// The figures of a case, as records and events represent them.
pub fn figures_of_case(case: &Case) -> Vec<FigureFacts> {
    case.figures.iter().map(figure_facts).collect()
}

fn figure_facts(figure: &plan::FigureSpec) -> FigureFacts {
    let plan::FigureSpec { name, value, kind, unit, better, about } = figure.clone();
    FigureFacts { name, value, kind, unit, better, about }
}

fn derived_facts(derived: &plan::DerivedSpec) -> DerivedFacts {
    let plan::DerivedSpec { name, value, against } = derived.clone();
    DerivedFacts { name, value, against }
}

fn case_facts(case: &Case, dir: &str, figures: &[FigureFacts]) -> CaseFacts {
    let model = match case.loads.as_slice() {
        [load] => Some(&load.model),
        _ => None,
    };
    let (users, rate_per_s) = match model {
        Some(plan::Model::Closed { users, .. }) => (Some(*users), None),
        Some(plan::Model::Open { rate_per_s, .. }) => (None, Some(*rate_per_s)),
        // A rate of arriving users is not a rate of requests.
        Some(plan::Model::Sessions { .. } | plan::Model::Command(_)) | None => (None, None),
    };
    let differs =
        |f: &&plan::FigureSpec| figures.iter().any(|all| all.name == f.name && all.value != f.value);
    let own = case.figures.iter().filter(differs).map(|f| (f.name.clone(), f.value.clone()));
    CaseFacts {
        name: case.name.clone(),
        dir: dir.to_owned(),
        values: case.values.clone(),
        users,
        rate_per_s,
        figures: own.collect(),
        control_of: case.control_of.clone(),
    }
}

/// Keeps the first item with each key, in order.
fn first_of_each<T, K: Ord>(all: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = std::collections::BTreeSet::new();
    all.filter(|one| seen.insert(key(one))).collect()
}
