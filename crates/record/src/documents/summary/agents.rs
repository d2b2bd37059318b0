//! The agents that sent a trial's loads in place of loadlab itself, and those that were lost.

use serde::{Deserialize, Serialize};

use super::requests::Requests;

/// A part of a trial's loads, and the agent that sent it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentSummary {
    /// Index of the part, from 0.
    pub slot: u64,
    /// The agent's name; the last agent's, if another was lost.
    pub agent: String,
    /// Number of its load threads.
    pub threads: u64,
    /// The coordinator's clock minus its own, as estimated, seconds.
    pub clock_offset_s: Option<f64>,
    /// The true offset differs by no more than this, milliseconds.
    pub clock_uncertainty_ms: Option<f64>,
    /// Requests of the part.
    pub requests: Requests,
    /// Agents that were lost while they sent this part.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub lost: Vec<LostAgent>,
}

impl AgentSummary {
    /// Adds the same part of another load.
    pub fn merge(&mut self, other: AgentSummary) {
        let Requests { due, dropped, started, ok, failed, in_flight, not_offered, not_offered_min } =
            other.requests;
        let own = &mut self.requests;
        own.due += due;
        own.dropped += dropped;
        own.started += started;
        own.ok += ok;
        own.failed += failed;
        own.in_flight += in_flight;
        own.not_offered = own.not_offered.zip(not_offered).map(|(a, b)| a + b);
        own.not_offered_min = own.not_offered_min.zip(not_offered_min).map(|(a, b)| a + b);
        self.lost.extend(other.lost);
        let latest = AgentSummary { requests: own.clone(), lost: std::mem::take(&mut self.lost), ..other };
        *self = latest;
    }
}

/// An agent that was lost in the middle of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LostAgent {
    /// Its name.
    pub agent: String,
    /// Name of the load.
    pub load: String,
    /// Repeat of the load, from 0.
    pub batch: u32,
    /// End of what it had reported, seconds on the trial's clock.
    pub reported_until_s: f64,
    /// When another agent took over its part, seconds on the trial's clock; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replaced_at_s: Option<f64>,
    /// Upper bound of the requests that would have fallen due between the two, or up to the end. Absent if their number
    /// depends on how fast they are answered.
    pub not_offered: Option<u64>,
    /// As `not_offered`, but a lower bound.
    pub not_offered_min: Option<u64>,
}
