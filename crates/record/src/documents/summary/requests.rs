//! What became of requests: by outcome, as rates, by load, batch and tag, and what was accepted and never stored.

use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use crate::counts::load::{Counts, Stragglers, Window};
use crate::counts::outcome::Failures;

/// Requests by outcome. `due = started + dropped`, `started = ok + failed + in_flight`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Fell due.
    pub due: u64,
    /// Fell due and never started.
    pub dropped: u64,
    /// Had their first action.
    pub started: u64,
    /// Complete and good.
    pub ok: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Still in flight at the end.
    pub in_flight: u64,
    /// Upper bound of the requests that would have fallen due in the parts of lost agents. Absent if loadlab itself
    /// sent the loads, or if the number is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_offered: Option<u64>,
    /// As `not_offered`, but a lower bound: what an agent sent after its last report is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_offered_min: Option<u64>,
}

impl Requests {
    /// Requests that ended, in whatever way.
    pub fn ended(&self) -> u64 {
        self.ok + self.failed
    }
}

impl From<&Counts> for Requests {
    fn from(c: &Counts) -> Self {
        Requests {
            due: c.due,
            dropped: c.dropped,
            started: c.started,
            ok: c.ok,
            failed: c.failed(),
            in_flight: c.in_flight,
            not_offered: None,
            not_offered_min: None,
        }
    }
}

/// Rates over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Fell due per second.
    pub due: f64,
    /// Started per second.
    pub started: f64,
    /// Ended ok per second: the goodput.
    pub ok: f64,
    /// Standard deviation of `ok` over the whole ticks of the window.
    pub ok_stdev: Option<f64>,
    /// `ok` in the largest tick.
    pub ok_max: Option<f64>,
}

/// The result of one of several loads, or of one of several batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// From the start of its first window to the end of its last, on the trial's clock.
    pub window: Window,
    /// Requests in flight when it was over that still ended.
    #[serde(default)]
    pub stragglers: Stragglers,
    /// Requests by outcome.
    pub requests: Requests,
    /// Failures by kind.
    pub failures: Failures,
    /// Rates over its own windows.
    pub rate_per_s: Rates,
    /// end − due, censored ones included.
    pub response_ms: Distribution,
    /// end − due of ok outcomes.
    pub ok_response_ms: Distribution,
}

/// Requests of one tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TagSummary {
    /// By outcome.
    pub requests: Requests,
    /// Failures by kind.
    pub failures: Failures,
    /// end − due, censored ones included.
    pub response_ms: Distribution,
    /// end − due of ok outcomes.
    pub ok_response_ms: Distribution,
    /// end − due of failures.
    pub failed_response_ms: Distribution,
}

/// What was accepted and never stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Requests answered with success.
    pub accepted: u64,
    /// Requests sent but not answered.
    pub unanswered: u64,
    /// Distinct records stored.
    pub persisted_distinct: u64,
    /// Records stored more than once.
    pub doubled: u64,
    /// Lower bound of the lost.
    pub lost_min: u64,
    /// Upper bound of the lost.
    pub lost_max: u64,
    /// Whether loss was determined by ids, not by counts.
    pub by_id: bool,
}
