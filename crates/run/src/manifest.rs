//! The run's manifest: what a plan comes to, written when the run begins and again when it ends.

use std::path::PathBuf;

use loadlab_plan::{self as plan, Case, Plan};
use loadlab_record::manifest::{CaseFacts, ComponentFacts, Host, Manifest, RunEnded};
use loadlab_record::store::{RECORD_VERSION, RunWriter, StoreError, TrialWriter, case_dir_names};

use crate::conduct::How;
use crate::host;

/// A record under way: its writer, and what its manifest says.
pub struct Record {
    writer: RunWriter,
    manifest: Manifest,
    /// Its folder, absolute: components run in folders of their own.
    pub dir: PathBuf,
}

impl Record {
    /// Makes the folder. Until [`Record::end`] its manifest says that the run was cut off.
    ///
    /// # Errors
    /// The folder holds something, or cannot be made.
    pub fn begin(plan: &Plan, how: &How) -> Result<Record, StoreError> {
        let manifest = manifest_of(plan, how);
        let writer = RunWriter::create(&how.out, &manifest)?;
        let dir = std::path::absolute(&how.out).unwrap_or_else(|_| how.out.clone());
        Ok(Record { writer, manifest, dir })
    }

    /// The machine, once it is known what it offers.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn host(&mut self, cgroup: &str) -> Result<(), StoreError> {
        self.manifest.host = host::host(cgroup);
        self.writer.manifest(&self.manifest)
    }

    /// A trial's folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn trial(&self, case: usize, trial: u32) -> Result<TrialWriter, StoreError> {
        let dir = self.manifest.cases.get(case).map_or("", |c| c.dir.as_str());
        self.writer.trial(dir, trial)
    }

    /// Says how the run ended.
    ///
    /// # Errors
    /// It cannot be written; the manifest then still says that the run was cut off.
    pub fn end(&mut self, how: RunEnded) -> Result<(), StoreError> {
        self.manifest.how = how;
        self.manifest.ended = Some(host::rfc3339_now());
        self.writer.manifest(&self.manifest)
    }
}

fn manifest_of(plan: &Plan, how: &How) -> Manifest {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(how.plan_text.as_bytes());
    let cases = plan.cases();
    let dirs = case_dir_names(&cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
    let components = cases.iter().flat_map(|c| &c.system.components);
    let facts = |c: &plan::ComponentSpec| ComponentFacts { name: c.name.clone(), run: run_text(&c.run) };
    Manifest {
        record: RECORD_VERSION,
        loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        name: plan.name.clone(),
        plan_path: plan.path.clone(),
        plan_text: how.plan_text.clone(),
        plan_sha256: digest.iter().map(|b| format!("{b:02x}")).collect(),
        options: how.options.clone(),
        started: host::rfc3339_now(),
        ended: None,
        how: RunEnded::Partial,
        writer: host::writer(),
        host: Host::default(),
        words: plan.words(),
        components: first_of_each(components.map(facts), |c| c.name.clone()),
        axes: plan.axes.clone(),
        cases: cases.iter().zip(&dirs).map(case_facts).collect(),
        trials: plan.trials,
        expect: first_of_each(cases.iter().flat_map(|c| &c.expect).map(|e| e.text.clone()), String::clone),
        quick: plan.quick,
    }
}

fn case_facts((case, dir): (&Case, &String)) -> CaseFacts {
    let model = match case.loads.as_slice() {
        [load] => Some(&load.model),
        _ => None,
    };
    let (users, rate_per_s) = match model {
        Some(plan::Model::Closed { users, .. }) => (Some(*users), None),
        Some(plan::Model::Open { rate_per_s, .. }) => (None, Some(*rate_per_s)),
        // A rate of users is none of requests.
        Some(plan::Model::Sessions { .. }) | None => (None, None),
    };
    CaseFacts { name: case.name.clone(), dir: dir.clone(), values: case.values.clone(), users, rate_per_s }
}

/// In order, without those whose key was there before.
fn first_of_each<T, K: Ord>(all: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = std::collections::BTreeSet::new();
    all.filter(|one| seen.insert(key(one))).collect()
}

/// A component's command for reading, its names left as they are.
fn run_text(command: &plan::Command) -> String {
    match command {
        plan::Command::Shell(line) => line.to_string(),
        plan::Command::Words(words) => words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}
