//! A search for capacity: the highest load that meets expectations, level by level.

use serde::{Deserialize, Serialize};

use crate::documents::bottleneck::Bottleneck;
use crate::text::units;

/// Default for the maximum number of levels a search measures, including repeats.
pub const MAX_LEVELS: u32 = 15;

/// The highest level that a search may have.
const HIGHEST: u64 = 10_000_000;
/// Maximum number of measurements of a level before it has an outcome: one, another if loadlab itself was saturated,
/// and longer ones where a percentile needs more samples.
const MEASUREMENTS_OF_A_LEVEL: u64 = 25;

/// Maximum number of measurements that a search of this many levels makes.
pub fn most_measurements(max_levels: u32) -> u64 {
    u64::from(max_levels) * MEASUREMENTS_OF_A_LEVEL
}

/// What a search varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchVariable {
    /// Users of the closed model.
    Users,
    /// Requests per second of the open model.
    #[default]
    Rate,
}

impl SearchVariable {
    /// Its name in plans and records.
    pub const fn name(self) -> &'static str {
        match self {
            SearchVariable::Users => "users",
            SearchVariable::Rate => "rate",
        }
    }

    /// Reads a range of levels, such as `1..500` or `50/s..2k`: rates are in whole requests per second, the resolution
    /// of a search.
    ///
    /// # Errors
    /// Why the range is invalid, in words.
    pub fn range(self, text: &str) -> Result<(u64, u64), String> {
        let one = |text: &str| {
            let text = text.trim();
            match self {
                SearchVariable::Users => {
                    units::parse_count(text).ok_or_else(|| format!("`{text}` is not a number of users"))
                }
                SearchVariable::Rate if text == "0" => Ok(0),
                SearchVariable::Rate => {
                    let rate = units::parse_short_rate_per_s(text).map_err(|e| e.to_string())?;
                    Ok(rate.round() as u64)
                }
            }
        };
        let ends = text.split_once("..");
        let (low, high) = ends.ok_or_else(|| format!("`{text}` is not a range such as `1..500`"))?;
        match (one(low)?, one(high)?) {
            (0, _) => Err("the lowest level must be at least 1".to_owned()),
            (low, high) if low > high => Err(format!("{low} is more than {high}")),
            (_, high) if high > HIGHEST => Err(format!("the highest level must be at most {HIGHEST}")),
            levels => Ok(levels),
        }
    }

    /// A level in words.
    pub fn level(self, level: u64) -> String {
        match self {
            SearchVariable::Users if level == 1 => "1 user".to_owned(),
            SearchVariable::Users => format!("{level} users"),
            SearchVariable::Rate => format!("{level}/s"),
        }
    }
}

/// A search for the highest load that meets the expectations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchFacts {
    /// What is varied: `users`, or `rate` in requests per second.
    pub vary: SearchVariable,
    /// The lowest level to try.
    pub low: u64,
    /// The highest level to try.
    pub high: u64,
    /// The answer in words; absent until there is one.
    pub found: Option<String>,
    /// The highest level that met the expectations.
    pub level: Option<u64>,
    /// The lowest level that did not meet them.
    pub above: Option<u64>,
    /// Whether both levels were measured twice, with the same result.
    pub confirmed: bool,
    /// The capacity estimated from all measured levels, with its 95 % interval; absent if no measured level met the
    /// expectations, all did, or too few requests left the one at `above` undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// What held the system back at the lowest level that it could not sustain; absent if `above` is undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// Every trial in order.
    pub path: Vec<SearchStep>,
}

/// The highest load that meets the expectations, as far as one search can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The most likely value: the capacity is as likely above it as below.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// The outcome of a trial of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The level met the expectations, and was steady.
    Met,
    /// It did not.
    Missed,
    /// Too few requests leave an expectation open.
    Undecided,
    /// The measurement cannot be trusted.
    #[default]
    Invalid,
}

impl StepOutcome {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            StepOutcome::Met => "met",
            StepOutcome::Missed => "missed",
            StepOutcome::Undecided => "undecided",
            StepOutcome::Invalid => "invalid",
        }
    }
}

/// A trial of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    /// The level: users, or requests per second.
    pub level: u64,
    /// Number of the trial within its case; in a search that is itself one trial, the number of the level.
    pub trial: u32,
    /// Whether the level met the expectations.
    pub outcome: StepOutcome,
    /// The reason, in words.
    pub why: String,
    /// Ok responses per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_per_s: Option<f64>,
    /// Median response time, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 90th percentile of the response times, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_ms: Option<f64>,
    /// 99th percentile of the response times, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}
