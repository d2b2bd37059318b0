//! The results of a run, and of each of its trials.

use std::path::PathBuf;

use loadlab_analysis::Exit;
use loadlab_analysis::compare::Call;
use loadlab_record::manifest::RunEnded;
use loadlab_record::summary::Summary;

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

/// How near a comparison of two cases is to being settled.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The case it is compared with.
    pub base: String,
    /// The case that is compared.
    pub other: String,
    /// It needs no more rounds.
    pub is_settled: bool,
    /// The figures that decide.
    pub figures: Vec<SettledFigure>,
}

/// How near a figure of two cases is to being settled.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledFigure {
    /// Its name for readers.
    pub name: String,
    /// The verdict so far.
    pub call: Call,
    /// More rounds may settle it.
    pub is_open: bool,
    /// The effect is a ratio, not a difference of shares.
    pub is_ratio: bool,
    /// The other over the base, or the difference; `None` if no round has it.
    pub effect: Option<f64>,
    /// About how many more rounds it takes; `None` if that cannot be predicted, or is more than there may be.
    pub more: Option<usize>,
}
