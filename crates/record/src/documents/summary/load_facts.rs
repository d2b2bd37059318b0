//! The load as planned, for readers of a result who do not have the plan.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::omitted::is_default;

/// How the next request of a load comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadModel {
    /// Users each wait for their last response.
    Closed,
    /// A schedule, whatever the responses.
    Open,
    /// Several loads that differ in this.
    #[default]
    #[serde(alias = "")]
    Mixed,
    /// A program makes the load, a probe counts its requests, and nothing else about them is measured.
    Command,
}

impl LoadModel {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            LoadModel::Closed => "closed",
            LoadModel::Open => "open",
            LoadModel::Mixed => "mixed",
            LoadModel::Command => "command",
        }
    }
}

/// A load as planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFacts {
    /// How the next request comes about.
    pub model: LoadModel,
    /// Users, in the closed model; with stages the maximum.
    pub users: Option<u64>,
    /// Rate, in the open model; with stages the maximum.
    pub rate_per_s: Option<f64>,
    /// The rate is of users, who arrive, make a journey and leave; otherwise of requests.
    #[serde(skip_serializing_if = "is_default", default)]
    pub sessions: bool,
    /// Delay from the start of the trial's loads to the start of this one, seconds.
    #[serde(skip_serializing_if = "is_default", default)]
    pub start_s: f64,
    /// How users or rate change.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stages: Vec<StageFacts>,
    /// Planned duration, if it is bounded by time.
    pub duration_s: Option<f64>,
    /// Planned requests, if it is bounded by number.
    pub requests: Option<u64>,
    /// Ramp at the start.
    pub ramp_s: f64,
    /// Mean think time between a user's requests, if there is any.
    #[serde(default)]
    pub think_s: Option<f64>,
    /// How think times are distributed, if there are any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub think: Option<ThinkFacts>,
    /// Interval at which a user's steps fall due, if users are paced (they then have their own due times).
    #[serde(default)]
    pub pace_s: Option<f64>,
    /// Connections are reused.
    pub keep_alive: bool,
    /// `http/1.1`.
    pub protocol: String,
    /// The first URL, for reading.
    pub url: String,
    /// All addresses that its connections go to: `127.0.0.1:8080`, `unix:/run/web.sock`. Empty if a program makes the
    /// load, and in older records.
    #[serde(skip_serializing_if = "BTreeSet::is_empty", default)]
    pub targets: BTreeSet<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Each load's own facts, if a trial has several; the rest is then the combined load.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub loads: BTreeMap<String, LoadFacts>,
}

impl LoadFacts {
    /// Whether programs make all of the load: requests are counted and the time is measured, but response times,
    /// failures, bytes and requests in flight were not measured, whatever their values here.
    pub fn is_command(&self) -> bool {
        self.model == LoadModel::Command
    }

    /// Whether a program makes the load of this name.
    pub fn is_program(&self, load: &str) -> bool {
        self.loads.get(load).map_or(self.is_command(), LoadFacts::is_command)
    }

    /// Whether programs make some of several loads, or all.
    pub fn has_programs(&self) -> bool {
        self.is_command() || self.loads.values().any(LoadFacts::is_command)
    }
}

/// A stage of a load: a straight line from one level to another. Levels are users, or requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageFacts {
    /// Level at its start.
    pub from: f64,
    /// Level at its end.
    pub to: f64,
    /// Duration, seconds; 0 is a jump.
    pub over_s: f64,
}

/// How think times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkFacts {
    /// Always this, seconds.
    ConstantS(f64),
    /// Uniformly between these, seconds.
    UniformS(f64, f64),
    /// Exponentially with this mean, seconds.
    ExponentialS(f64),
    /// Set by each step separately, with this mean over the steps, seconds.
    OfStepsS(f64),
}
