//! What a trial comes to: how its load ended, the verdict, reasons to doubt it, and what was expected.

use serde::{Deserialize, Serialize};

use crate::counts::quantile::FewSamples;

/// A trial's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every expectation held.
    Pass,
    /// An expectation did not hold, or a component died that should not have.
    Fail,
    /// Nothing failed, but too few samples leave an expectation open.
    Undecided,
    /// The measurement cannot be trusted.
    Invalid,
    /// Nothing was expected.
    None,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// As planned.
    #[default]
    Complete,
    /// By a `stop_when` condition.
    Stopped,
    /// By Ctrl-C.
    Interrupted,
    /// loadlab was killed; this was assembled from what it had written.
    Partial,
    /// A component died, or the system did not come up.
    Broken,
}

/// A reason not to trust a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doubt {
    /// Short name: `late`, `littles_law`, `generator_cpu` …
    pub kind: String,
    /// Whether the doubt makes the trial INVALID.
    pub grave: bool,
    /// The figures it is based on.
    pub evidence: String,
    /// What to do about it.
    pub hint: String,
}

/// An expectation and whether it held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// As written.
    pub expr: String,
    /// `null`: undecided because there are too few samples (see `undecided`), or not known for another reason, in which
    /// case it counts as failed.
    pub holds: Option<bool>,
    /// The left-hand number of its first (or failing) comparison, in the unit it was written in.
    pub value: Option<f64>,
    /// The unit of `value`: `ms`, `s`, `%`, `MiB`, `/s`; empty for plain numbers.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unit: String,
    /// Why it could not be known, or which part failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// Set if too few samples leave it open; this many would decide it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undecided: Option<FewSamples>,
}

impl Expectation {
    /// Whether too few samples leave it open.
    pub fn is_undecided(&self) -> bool {
        self.holds.is_none() && self.undecided.is_some()
    }

    /// Whether it does not hold or cannot be known, and more samples would not help.
    pub fn is_missed(&self) -> bool {
        self.holds != Some(true) && !self.is_undecided()
    }
}
