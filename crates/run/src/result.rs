//! The results of a run, and of each of its trials.

use std::path::PathBuf;

use loadlab_analysis::Exit;
use loadlab_record::manifest::RunEnded;
use loadlab_record::summary::Summary;

use crate::event::Settled;

/// The result of a run.
pub struct RunResult {
    /// The record's folder.
    pub dir: PathBuf,
    /// How it ended.
    pub ended: RunEnded,
    /// Its trials in the order they ran.
    pub trials: Vec<TrialEnd>,
    /// How its cases differ, if trials went on until that was certain; empty otherwise.
    pub settled: Vec<Settled>,
    /// The exit that all of it calls for.
    pub exit: Exit,
}

/// A trial's end.
pub struct TrialEnd {
    /// Its case.
    pub case: String,
    /// Its number.
    pub trial: u32,
    /// What it measured, if it got that far.
    pub summary: Option<Summary>,
    /// What spoiled it.
    pub failure: Option<String>,
}
