//! Figures that matter: what kind of number each is, which direction is better, and their values in a trial.

use serde::{Deserialize, Serialize};

use crate::counts::quantile::FewSamples;

/// A number's kind. Each kind has one unit in records and in [`Known`](crate::expr::Known).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberKind {
    /// A count, or a number of unknown unit such as a probe's.
    Plain,
    /// A share, 0 to 1 (`errors`). Compares with `%`, of which 1 is 100.
    Fraction,
    /// Percent of one core, 100 being a whole core (`edge1.cpu`), and every literal with `%`.
    Percent,
    /// Milliseconds.
    Duration,
    /// Bytes.
    Bytes,
    /// Per second.
    Rate,
}

impl NumberKind {
    /// In words, with its article.
    pub const fn describe(self) -> &'static str {
        match self {
            NumberKind::Plain => "a plain number",
            NumberKind::Fraction => "a share",
            NumberKind::Percent => "a percentage",
            NumberKind::Duration => "a duration",
            NumberKind::Bytes => "a size",
            NumberKind::Rate => "a rate",
        }
    }

    /// The unit of records: `ms`, `B`, `/s`, `%`, or nothing.
    pub const fn unit(self) -> &'static str {
        match self {
            NumberKind::Plain | NumberKind::Fraction => "",
            NumberKind::Percent => "%",
            NumberKind::Duration => "ms",
            NumberKind::Bytes => "B",
            NumberKind::Rate => "/s",
        }
    }
}

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
    /// The value in `unit`; `null` if it is not known exactly.
    pub value: Option<f64>,
    /// Lower bound, if the value falls among requests that never ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Estimate, if a percentile in the figure has too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<f64>,
    /// Interval at 95 % confidence; an open end is `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[Option<f64>; 2]>,
    /// Largest sample, if a percentile in the figure has too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<f64>,
    /// How many samples there are, and how many are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub few: Option<FewSamples>,
    /// `ms`, `B`, `/s`, `%` of a core; empty for plain numbers and for shares, which are 0 to 1.
    pub unit: String,
    /// Why the value is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
