//! How a plan is to be run.

use std::path::PathBuf;
use std::sync::Arc;

use loadlab_load::target::Resolved;
use loadlab_load::{IoChoice, LoadSpec};
use loadlab_record::Secrets;
use loadlab_record::manifest::{CommitFacts, RevisionFacts};

use crate::senders::Senders;
use crate::watch::Watch;

/// Where and how the load's own threads work: plans do not specify that.
#[derive(Clone, Debug, Default)]
pub struct Generator {
    /// Cores of the load's threads; empty: any.
    pub cpus: Vec<usize>,
    /// How they send; `None`: the best the kernel allows.
    pub io: Option<IoChoice>,
}

impl Generator {
    /// Applies it to a load.
    pub fn apply(&self, spec: &mut LoadSpec) {
        spec.cpus.clone_from(&self.cpus);
        if let Some(io) = self.io {
            spec.io = io;
        }
    }
}

/// How a plan is to be run.
pub struct RunOptions {
    /// The plan's text exactly as in its file: its hash is recorded. The record shows
    /// [`loadlab_plan::Plan::shown_text`].
    pub plan_text: String,
    /// Options as given, for the record.
    pub options: Vec<String>,
    /// The record's folder; must be empty or not exist, unless the run is resumed.
    pub out: PathBuf,
    /// The record is there, of the same plan with the same options: only trials that it lacks are made.
    pub resumes: bool,
    /// This program, which serves as guardian when started with [`RunOptions::guardian_arg`].
    pub exe: PathBuf,
    /// See [`RunOptions::exe`].
    pub guardian_arg: String,
    /// Hosts that may be loaded besides loopback, from the command line.
    pub allow_hosts: Vec<String>,
    /// Addresses to use for hosts instead of resolving their names, from the command line.
    pub resolved: Vec<Resolved>,
    /// Load threads, if the plan does not specify them.
    pub threads: usize,
    /// Where and how these threads work.
    pub generator: Generator,
    /// Who sends the loads, if not this process.
    pub senders: Option<Arc<dyn Senders>>,
    /// What is watched if the plan names no components.
    pub watch: Watch,
    /// Someone is shown the events as they happen.
    pub is_watched: bool,
    /// The commit that the plan's repository is at, if it is in one.
    pub commit: Option<CommitFacts>,
    /// The revisions that the plan compares, as they were checked out.
    pub revisions: Vec<RevisionFacts>,
    /// What the plan builds is there already.
    pub is_built: bool,
    /// What neither the record nor an event may show.
    pub secrets: Secrets,
}
