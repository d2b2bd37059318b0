//! How a plan is to be run.

use std::path::PathBuf;

use loadlab_load::target::Resolved;
use loadlab_load::{IoChoice, LoadSpec};
use loadlab_record::Secrets;

use crate::watch::Watch;

/// Where and how the load's own threads work: no plan says that.
#[derive(Clone, Debug, Default)]
pub struct Generator {
    /// Cores of the load's threads; empty: any.
    pub cpus: Vec<usize>,
    /// How they send; `None`: the best the kernel allows.
    pub io: Option<IoChoice>,
}

impl Generator {
    /// Puts it into a load.
    pub fn apply(&self, spec: &mut LoadSpec) {
        spec.cpus.clone_from(&self.cpus);
        if let Some(io) = self.io {
            spec.io = io;
        }
    }
}

/// How a plan is to be run.
pub struct RunOptions {
    /// The plan's text as its file has it: its hash is recorded. The record shows [`loadlab_plan::Plan::shown_text`].
    pub plan_text: String,
    /// Options as given, for the record.
    pub options: Vec<String>,
    /// The record's folder; must not hold anything.
    pub out: PathBuf,
    /// This program, which serves as guardian when started with [`RunOptions::guardian_arg`].
    pub exe: PathBuf,
    /// See [`RunOptions::exe`].
    pub guardian_arg: String,
    /// Hosts that may be loaded beside loopback, from the command line.
    pub allow_hosts: Vec<String>,
    /// Addresses that hosts have, whatever names say, from the command line.
    pub resolved: Vec<Resolved>,
    /// Load threads, where the plan does not say.
    pub threads: usize,
    /// Where and how these threads work.
    pub generator: Generator,
    /// Who is watched where the plan names nobody.
    pub watch: Watch,
    /// Somebody sees the events while they come.
    pub is_watched: bool,
    /// What neither the record nor an event may show.
    pub secrets: Secrets,
}
