//! Proof by intervention: what a system's limits cost it, measured by changing them one at a time under load.

use serde::{Deserialize, Serialize};

/// Unless configured, a lever counts only if one step of it costs more than this share of the goodput.
pub const MARGIN: f64 = 0.05;

/// What `loadlab why` found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhyFacts {
    /// The plan's case.
    pub case: String,
    /// Seed for the order of the blocks; below 2⁵³.
    pub seed: u64,
    /// Length of a block, seconds; its first second is not counted.
    pub block_s: u64,
    /// A lever is called only if its whole interval is beyond this share of the goodput.
    pub margin: f64,
    /// Successful responses per second in the blocks without a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_per_s: Option<f64>,
    /// 99th percentile of the response times in the blocks without a change, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// What was changed, the most costly first.
    pub levers: Vec<LeverFacts>,
    /// The first lever's interval is apart from the second's.
    pub is_first_apart: bool,
    /// What was not changed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_tried: Vec<NotTried>,
    /// The next bottleneck, once the first lever is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextBottleneck>,
    /// The load during which the stacks of what holds the load back were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiled: Option<String>,
    /// The answer in a sentence; absent until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Every block, in order.
    pub blocks: Vec<BlockFacts>,
}

/// Something that was changed under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeverFacts {
    /// In words: `db CPU`, or as the plan calls it.
    pub name: String,
    /// The component it limits; absent for a lever of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// `cpu`, `delay`, `bandwidth`, `block_read` …, or `lever` for one of the plan.
    pub kind: String,
    /// As planned, in words: `50% CPU`.
    pub now: String,
    /// One step tighter, likewise.
    pub less: String,
    /// The tighter value as a share of the planned one.
    pub factor: f64,
    /// How much of the planned limit was used, 0 to 1, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<f64>,
    /// Goodput with the tighter value as a share of the goodput without a change, with an interval that holds for all
    /// levers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Effect>,
    /// How much of a change of the lever the goodput follows: ln of one ratio divided by ln of the other. 1: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elasticity: Option<Effect>,
    /// 99th percentile of the response times with the tighter value, milliseconds. Not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// What follows from the effect.
    pub call: LeverCall,
    /// The effect of raising it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raised: Vec<RaisedFacts>,
    /// Why it was not raised, if it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_raised: Option<String>,
}

/// What follows from the effect of a lever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeverCall {
    /// It holds the load back: its whole interval is beyond the margin.
    Binds,
    /// It does not: no part of its interval is beyond the margin.
    Free,
    /// Its interval contains the margin.
    #[default]
    CannotTell,
}

impl LeverCall {
    /// In words.
    pub const fn describe(self) -> &'static str {
        match self {
            LeverCall::Binds => "binds",
            LeverCall::Free => "does not bind",
            LeverCall::CannotTell => "cannot tell",
        }
    }
}

/// A ratio, or an elasticity, with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// One raise of a lever.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RaisedFacts {
    /// The raised value in words: `55% CPU`.
    pub to: String,
    /// The raised value as a share of the planned one.
    pub factor: f64,
    /// Goodput as a share of the goodput without a change, as predicted from the tighter value; only for the smallest
    /// raise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Effect>,
    /// Goodput as measured, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Effect>,
    /// Whether the measured goodput lies within the prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_as_predicted: Option<bool>,
    /// 99th percentile of the response times, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// How much each component used of its CPU limit, 0 to 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<(String, f64)>,
}

/// A limit that was not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTried {
    /// Its name in words: `web CPU`.
    pub name: String,
    /// Why it was not changed.
    pub why: String,
}

/// The next bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextBottleneck {
    /// Its name in words: `web CPU`; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Approximate goodput at that point, as a share of the present one.
    pub goodput: f64,
    /// How the next bottleneck is known.
    pub text: String,
}

/// A stretch of a load in which at most one thing was changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockFacts {
    /// The case of the record that contains it.
    pub case: String,
    /// Its round, from 1: each round has every change once, and blocks without a change.
    pub round: u32,
    /// What was changed: `db CPU 45%`; empty for nothing.
    pub change: String,
    /// Start of the part that counts, seconds on the load's clock.
    pub from_s: u64,
    /// End of the part that counts, seconds on the load's clock.
    pub to_s: u64,
    /// Successful responses per second; absent if any of its seconds is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_per_s: Option<f64>,
}
