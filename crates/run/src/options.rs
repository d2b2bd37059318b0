//! How a plan is to be run.

use std::path::PathBuf;
use std::sync::Arc;

use loadlab_load::target::Resolved;
use loadlab_load::{IoChoice, LoadSpec};
use loadlab_record::Secrets;
use loadlab_record::documents::manifest::{CommitFacts, RevisionFacts};

use crate::senders::Senders;
use crate::watch::Watch;

/// Where and how the load threads run; plans do not specify this.
#[derive(Clone, Debug, Default)]
pub struct Generator {
    /// Cores for the load threads; empty: any.
    pub cpus: Vec<usize>,
    /// I/O backend; `None`: the best the kernel allows.
    pub io: Option<IoChoice>,
}

impl Generator {
    /// Copies these settings into a load spec.
    pub fn apply(&self, spec: &mut LoadSpec) {
        spec.cpus.clone_from(&self.cpus);
        if let Some(io) = self.io {
            spec.io = io;
        }
    }
}

/// How a plan is to be run.
pub struct RunOptions {
    /// The plan's text exactly as in its file, for the recorded hash. The record shows
    /// [`loadlab_plan::Plan::shown_text`].
    pub plan_text: String,
    /// Command-line options as given, for the record.
    pub as_given: Vec<String>,
    /// The record's folder; must be empty or not exist unless the run is resumed.
    pub out: PathBuf,
    /// Resume an existing record of the same plan with the same options: run only the trials it lacks.
    pub resumes: bool,
    /// This executable, which acts as the guardian when started with [`RunOptions::guardian_arg`].
    pub exe: PathBuf,
    /// The argument that makes [`RunOptions::exe`] the guardian.
    pub guardian_arg: String,
    /// Hosts that may be loaded besides loopback, from the command line.
    pub allow_hosts: Vec<String>,
    /// Addresses, from the command line, to use for hosts instead of resolving their names.
    pub resolved: Vec<Resolved>,
    /// Number of load threads, if the plan does not specify it.
    pub threads: usize,
    /// Where and how these threads run.
    pub generator: Generator,
    /// The processes that send the loads, if not this one.
    pub senders: Option<Arc<dyn Senders>>,
    /// What to watch if the plan names no components.
    pub watch: Watch,
    /// Someone is watching the events live.
    pub has_viewer: bool,
    /// The commit the plan's repository is at, if the plan is in one.
    pub commit: Option<CommitFacts>,
    /// The revisions the plan compares, as checked out.
    pub revisions: Vec<RevisionFacts>,
    /// Everything the plan builds is already built.
    pub is_built: bool,
    /// Values that must not appear in the record or in events.
    pub secrets: Secrets,
}
