//! The results of a run and of each of its trials.

use std::path::PathBuf;

use loadlab_analysis::Exit;
use loadlab_analysis::comparison::interval::Call;
use loadlab_record::documents::manifest::RunEnded;
use loadlab_record::documents::summary::Summary;

/// The result of a run.
pub struct RunResult {
    /// The record's folder.
    pub dir: PathBuf,
    /// How the run ended.
    pub ended: RunEnded,
    /// The trials, in the order they ran.
    pub trials: Vec<TrialEnd>,
    /// How the cases differ, if trials ran until that was certain; empty otherwise.
    pub settled: Vec<ComparisonProgress>,
    /// The exit code for the run as a whole.
    pub exit: Exit,
}

/// How a trial ended.
pub struct TrialEnd {
    /// Name of its case.
    pub case: String,
    /// Its number within the case, from 1.
    pub trial: u32,
    /// Its measurements, if it got that far.
    pub summary: Option<Summary>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Something that did not go well.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What it was, in words.
    pub why: String,
    /// The exit code that it calls for.
    pub exit: Exit,
}

/// How close a comparison of two cases is to being settled.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonProgress {
    /// Name of the base case.
    pub base: String,
    /// Name of the case compared with the base.
    pub other: String,
    /// The comparison needs no more rounds.
    pub is_settled: bool,
    /// The figures that decide the comparison.
    pub figures: Vec<FigureProgress>,
}

/// How close one figure of two cases is to being settled.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureProgress {
    /// Display name.
    pub name: String,
    /// The verdict so far.
    pub call: Call,
    /// More rounds may settle it.
    pub is_open: bool,
    /// No rounds settle it: the difference is smaller than what the readings resolve.
    pub is_unresolved: bool,
    /// The effect is a ratio, not a difference of shares.
    pub is_ratio: bool,
    /// Other over base for a ratio, otherwise their difference; `None` if no round has the figure.
    pub effect: Option<f64>,
    /// Roughly how many more rounds are needed; `None` if that cannot be predicted or exceeds the rounds left.
    pub more: Option<usize>,
}
