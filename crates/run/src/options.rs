//! How a plan is to be run.

use std::path::PathBuf;

use loadlab_load::target::Resolved;
use loadlab_record::Secrets;

use crate::watch::Watch;

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
    /// Who is watched where the plan names nobody.
    pub watch: Watch,
    /// What neither the record nor an event may show.
    pub secrets: Secrets,
}
