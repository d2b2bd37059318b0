//! The system during the load: what its components used, what probes read, and the plan's events.

use serde::{Deserialize, Serialize};

use crate::omitted::is_default;
use crate::watch::limits::LimitsInForce;

/// What a component used during the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentSummary {
    /// Percent of one core, over the load; the mean excludes the wait for stragglers.
    pub cpu_percent: MeanMax,
    /// CPU seconds over the load.
    pub cpu_s: Option<f64>,
    /// Time throttled by its CPU limit, seconds.
    pub throttled_s: Option<f64>,
    /// Memory.
    pub memory_bytes: MemorySummary,
    /// Network link bytes over the load; `null` unless it has its own namespace.
    pub net_bytes: InOut,
    /// Block I/O over the load.
    pub block_bytes: ReadWritten,
    /// Most processes and threads.
    pub pids_max: Option<u64>,
    /// Most open files.
    pub open_files_max: Option<u64>,
    /// Open files before any load, if the trial's own samples do not show it: a search keeps connections open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_at_rest: Option<u64>,
    /// OOM kills.
    pub oom_kills: Option<u64>,
    /// Times it was started again.
    pub restarts: u64,
    /// How it died, in words, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub died: Option<String>,
    /// CPU limit in cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_limit: Option<f64>,
    /// Its limits when the load began, as read back from the kernel.
    #[serde(skip_serializing_if = "LimitsInForce::is_empty", default)]
    pub limits: LimitsInForce,
    /// When its processes were OOM-killed, seconds on the trial's clock.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub oom_kills_at_s: Vec<f64>,
}

/// Mean and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeanMax {
    /// Mean over time.
    pub mean: Option<f64>,
    /// Largest reading.
    pub max: Option<f64>,
}

/// Memory of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySummary {
    /// Mean over time.
    pub mean: Option<f64>,
    /// Largest reading.
    pub max: Option<f64>,
    /// Last reading, after the drain.
    pub last: Option<f64>,
    /// The limit in force at the largest reading.
    pub limit: Option<u64>,
}

/// Network bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InOut {
    /// Received.
    #[serde(rename = "in")]
    pub received: Option<u64>,
    /// Sent.
    #[serde(rename = "out")]
    pub sent: Option<u64>,
}

/// Block I/O bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadWritten {
    /// Read.
    pub read: Option<u64>,
    /// Written.
    pub written: Option<u64>,
}

/// A probe over the load and the drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeSummary {
    /// First reading of the load.
    pub first: Option<f64>,
    /// Last reading, after the drain.
    pub last: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Mean of the readings.
    pub mean: Option<f64>,
    /// Readings that failed.
    #[serde(skip_serializing_if = "is_default", default)]
    pub failed: u64,
}

/// An event of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionSummary {
    /// Time of the event, seconds on the trial's clock.
    pub at_s: f64,
    /// The event as in the plan: `kill edge2`.
    pub what: String,
    /// Why the event could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}
