//! Figures that matter: which way they are better, and what they came to in a trial.

use serde::{Deserialize, Serialize};

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// The more, the better: the smaller of two is the worse one.
    More,
    /// The less, the better: the larger of two is the worse one.
    Less,
    /// Neither: the larger of two is taken.
    #[default]
    #[serde(rename = "none")]
    Neither,
}

/// What a figure came to in a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FigureValue {
    /// The number in `unit`; `null` where it is not known exactly.
    pub value: Option<f64>,
    /// It is at least this: it falls among requests that never ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// `ms`, `B`, `/s`, `%` of a core; empty for plain numbers and for shares, which are 0 to 1.
    pub unit: String,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
