//! What happened during a trial, on the trial's clock: one line of `events.jsonl` each.

use serde::{Deserialize, Serialize};

use crate::documents::summary::LoadFacts;
use crate::watch::limits::LimitsInForce;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event, seconds on the trial's clock (0 = first load's start; negative before it).
    pub at_s: f64,
    /// What happened.
    #[serde(flatten)]
    pub what: EventKind,
}

/// What happened; each variant documents its fields.
#[expect(missing_docs, reason = "each variant documents its fields")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A component's process was started.
    Up { component: String, pid: Option<u32> },
    /// A component answered its readiness check, this long after its start.
    Ready { component: String, after_s: f64 },
    /// A limit or a reading that this host cannot provide, and why.
    Unavailable { component: String, what: String, why: String },
    /// A command of the plan ran (seed, before_trial, after_trial).
    Command { name: String, command: String, exit: Option<i32>, took_s: f64 },
    /// The combined load of all loads, recorded early because a trial that is cut off has no summary.
    Planned { load: Box<LoadFacts> },
    /// A load began.
    LoadStarted { load: String, batch: u32 },
    /// A load ended: `complete`, `stopped` (with the condition), `interrupted`.
    LoadEnded { load: String, batch: u32, how: String },
    /// Draining began.
    DrainStarted { until: String },
    /// Draining ended; `done` is false if the deadline passed first.
    Drained { took_s: f64, done: bool },
    /// A component ended without being asked to. `status` in words (`exit status 1`, `signal 9 (SIGKILL)`, `out of
    /// memory`).
    Died { component: String, status: String },
    /// A component was stopped. `how`: `exited`, or `killed` if it did not respond to the termination signal.
    Down { component: String, how: String },
    /// The limits of a component, as read back from the kernel at its start and after every change.
    Limited { component: String, limits: LimitsInForce },
    /// The kernel OOM-killed a process of a component: number of kills since its start, and the limit in bytes.
    OutOfMemory { component: String, kills: u64, limit_bytes: Option<u64> },
    /// An event of the plan was carried out (`kill edge2`), or could not be.
    Action { what: String, components: Vec<String>, error: Option<String> },
    /// Events of the plan that never happened, because the load had ended.
    Skipped { events: Vec<String> },
    /// Accepted requests were compared with what was stored.
    Compared { accepted: u64, persisted: u64, lost_max: u64, missing: Vec<u64> },
    /// The load's host name resolved to other addresses after the load than before it. Connections went to the earlier
    /// addresses.
    NameMoved { host: String, before: Vec<String>, after: Vec<String> },
    /// Something worth reading (log truncated, sample late …).
    Note { text: String },
    /// Something that spoils the trial.
    Failed { text: String },
}
