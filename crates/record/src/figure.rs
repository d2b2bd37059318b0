//! Figures that matter: which direction is better, and their values in a trial.

use serde::{Deserialize, Serialize};

use crate::quantile::FewSamples;

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better: the smaller of two is the worse one.
    More,
    /// Less is better: the larger of two is the worse one.
    Less,
    /// Neither: the larger of two is taken.
    #[default]
    #[serde(rename = "none")]
    Neither,
}

/// A figure's value in a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FigureValue {
    /// The number in `unit`; `null` where it is not known exactly.
    pub value: Option<f64>,
    /// It is at least this: it falls among requests that never ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Its estimate, if a percentile in it has too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<f64>,
    /// Its interval at 95 % confidence; `null` where an end is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[Option<f64>; 2]>,
    /// The largest sample of such a percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<f64>,
    /// How few samples there are, and how many it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub few: Option<FewSamples>,
    /// `ms`, `B`, `/s`, `%` of a core; empty for plain numbers and for shares, which are 0 to 1.
    pub unit: String,
    /// Why it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
