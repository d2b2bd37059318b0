//! The messages that the coordinator and its agents exchange. Reports of what was counted are bytes ([`crate::block`]);
//! everything else is JSON.
//!
//! This crate knows only a load's number and how its threads are divided. The contents of the load matter only to the
//! program that conducts the run, and to the same program where an agent runs it; they are passed through as a JSON
//! value.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Protocol version: agents and coordinators with different versions cannot work together.
pub const VERSION: u32 = 4;

/// Announces a run that agents may take part in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// Protocol version; see [`VERSION`].
    pub version: u32,
    /// The run's id: letters and digits.
    pub run: String,
    /// Number of agents that take part.
    pub slots: usize,
    /// Slots that have no agent yet.
    pub open: Vec<OpenSlot>,
    /// Data that all loads of the run share.
    pub bundle: Value,
    /// Files that agents receive before the first load.
    pub files: Vec<FileOffer>,
}

/// Describes a file that agents receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOffer {
    /// File name without folders.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// A slot without an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSlot {
    /// Index of the slot.
    pub slot: usize,
    /// Number of agents that had the slot before.
    pub epoch: u32,
    /// Number of the first order that the slot's next agent follows.
    pub from_order: u64,
}

/// An instruction to all agents of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Get ready for a load, and answer.
    Prepare(LoadOrder),
    /// As `Prepare`, for an agent that replaces a lost one. Any agent that had the slot before must stop sending.
    Join(JoinOrder),
    /// Start the load.
    Begin {
        /// Number of the load.
        load: u64,
        /// Start time on the coordinator's monotonic clock, in nanoseconds.
        at_ns: u64,
    },
    /// Stop the load: nothing more falls due.
    Stop {
        /// Number of the load.
        load: u64,
    },
    /// End the load at once.
    Abort {
        /// Number of the load.
        load: u64,
    },
    /// Send a load's reports again from a number on: the coordinator does not have them.
    Resend {
        /// Number of the load.
        load: u64,
        /// The slot whose agent is meant.
        slot: usize,
        /// The epoch of that agent.
        epoch: u32,
        /// Number of the first report.
        number: u64,
    },
    /// End the load at once: it goes on without this agent, whose reports do not count any more.
    GiveUp {
        /// Number of the load.
        load: u64,
        /// The slot whose agent is meant.
        slot: usize,
        /// The epoch of that agent.
        epoch: u32,
    },
    /// The run is over.
    Over,
}

/// A load, as ordered by the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadOrder {
    /// Its number within the run, from 0.
    pub load: u64,
    /// First id of its requests.
    pub first_id: u64,
    /// Load threads of each slot.
    pub threads: Vec<u64>,
    /// The agent of each slot, by [`Claim::id`], so that orders of an earlier run cannot be replayed to other agents.
    pub agents: Vec<String>,
    /// The contents of the load.
    pub what: Value,
}

/// A load that other agents are ready for, or already send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinOrder {
    /// The slot whose agent is to join.
    pub slot: usize,
    /// The epoch of that agent.
    pub epoch: u32,
    /// The load to join.
    pub order: LoadOrder,
    /// When the load began, on the coordinator's monotonic clock, in nanoseconds; `None` if it has not begun.
    pub begun_ns: Option<u64>,
    /// Requests of this part that were started or dropped before.
    pub begun: u64,
}

/// How a load's threads are divided, as one slot sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadShare {
    /// Load threads of the slots before it.
    pub before: u64,
    /// Its own.
    pub own: u64,
    /// Those of the slots after it.
    pub after: u64,
}

impl LoadOrder {
    /// The share of a slot.
    pub fn share(&self, slot: usize) -> Option<ThreadShare> {
        let own = *self.threads.get(slot)?;
        let (before, after) = (self.threads.get(..slot)?, self.threads.get(slot + 1..)?);
        Some(ThreadShare { before: before.iter().sum(), own, after: after.iter().sum() })
    }
}

/// An order with its number, so that a replayed one is recognised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbered {
    /// The run's id.
    pub run: String,
    /// Number of the order, from 0 without gaps.
    pub number: u64,
    /// The order.
    pub order: Order,
}

/// An agent's claim to a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The agent's name, different from all others.
    pub agent: String,
    /// An id that is unique to the process and cannot be guessed beforehand: two agents may have been given the same
    /// name.
    pub id: String,
    /// Number of load threads, unless the load specifies it.
    pub threads: u64,
}

/// An agent's answer to [`Order::Prepare`] or [`Order::Join`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Number of the load.
    pub load: u64,
    /// The agent's clock, or in words why it is not ready.
    pub ready: Result<Clock, String>,
    /// When it starts sending a load that has already begun, on the load's clock, in nanoseconds.
    pub joins_ns: Option<u64>,
}

/// An agent's clock, compared with the coordinator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The coordinator's clock minus the agent's, in nanoseconds.
    pub offset_ns: i64,
    /// The true offset differs by at most this.
    pub uncertainty_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let order = LoadOrder { threads: vec![2, 1, 4], ..LoadOrder::default() };
        assert_eq!(order.share(0), Some(ThreadShare { before: 0, own: 2, after: 5 }));
        assert_eq!(order.share(1), Some(ThreadShare { before: 2, own: 1, after: 4 }));
        assert_eq!(order.share(2), Some(ThreadShare { before: 3, own: 4, after: 0 }));
        assert_eq!(order.share(3), None);
    }
}
