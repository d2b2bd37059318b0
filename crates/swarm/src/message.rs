//! What the coordinator and its agents say to one another. Reports of what was counted are bytes ([`crate::block`]);
//! everything else is JSON.
//!
//! Of a load this crate knows only its number and how its threads are divided. What it consists of is for the program
//! that conducts the run, and for the same program where an agent runs it: both see it as a JSON value.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Agents and coordinators with different numbers do not understand one another.
pub const VERSION: u32 = 3;

/// A run that agents may take part in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// See [`VERSION`].
    pub version: u32,
    /// The run's id: letters and digits.
    pub run: String,
    /// How many agents take part.
    pub slots: usize,
    /// Slots that have no agent.
    pub open: Vec<OpenSlot>,
    /// What all loads of the run have in common.
    pub bundle: Value,
    /// Files that agents receive before the first load.
    pub files: Vec<FileOffer>,
}

/// A file that agents receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOffer {
    /// Its name, without folders.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Hexadecimal.
    pub sha256: String,
}

/// A slot without an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSlot {
    /// Which.
    pub slot: usize,
    /// How many agents had it before.
    pub epoch: u32,
    /// The number of the first order that its agent follows.
    pub from_order: u64,
}

/// What all agents of a run are to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Get ready for a load, and answer.
    Prepare(LoadOrder),
    /// The same for the agent that takes a lost one's place. Whoever had the slot before sends nothing more.
    Join(JoinOrder),
    /// The load begins.
    Begin {
        /// Which.
        load: u64,
        /// When, on the coordinator's monotonic clock, nanoseconds.
        at_ns: u64,
    },
    /// Nothing more falls due.
    Stop {
        /// In which load.
        load: u64,
    },
    /// The load ends at once.
    Abort {
        /// Which.
        load: u64,
    },
    /// The run is over.
    Over,
}

/// A load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadOrder {
    /// Its number in the run, from 0.
    pub load: u64,
    /// Where the ids of its requests begin.
    pub first_id: u64,
    /// Load threads of each slot.
    pub threads: Vec<u64>,
    /// The agent of each slot, as its claim says ([`Claim::id`]): orders of an earlier run are of no use to anybody.
    pub agents: Vec<String>,
    /// What it consists of.
    pub what: Value,
}

/// A load that others are ready for, or send already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinOrder {
    /// For the agent of this slot.
    pub slot: usize,
    /// With this number.
    pub epoch: u32,
    /// The load.
    pub order: LoadOrder,
    /// When it began, on the coordinator's monotonic clock, nanoseconds; `None` if it has not.
    pub begun_ns: Option<u64>,
    /// Requests of this part that were begun or dropped before.
    pub begun: u64,
}

impl LoadOrder {
    /// Load threads of the slots before one, its own, and those of the slots after it.
    pub fn share(&self, slot: usize) -> Option<(u64, u64, u64)> {
        let own = *self.threads.get(slot)?;
        let (before, after) = (self.threads.get(..slot)?, self.threads.get(slot + 1..)?);
        Some((before.iter().sum(), own, after.iter().sum()))
    }
}

/// An order with its place: a replayed one is recognised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbered {
    /// Which run.
    pub run: String,
    /// From 0, without gaps.
    pub number: u64,
    /// What is to be done.
    pub order: Order,
}

/// An agent takes a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// A name that no other agent has.
    pub agent: String,
    /// What no other process has, and nobody could know before: two agents may have been given one name.
    pub id: String,
    /// How many load threads it runs unless the load says so.
    pub threads: u64,
}

/// What an agent answers to [`Order::Prepare`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Which load.
    pub load: u64,
    /// `Err` has the reason in words.
    pub ready: Result<Clock, String>,
    /// From when on it sends a load that had begun, on the load's clock, nanoseconds.
    pub joins_ns: Option<u64>,
}

/// An agent's clock, compared with the coordinator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The coordinator's minus the agent's, nanoseconds.
    pub offset_ns: i64,
    /// The truth differs by no more than this.
    pub uncertainty_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let order = LoadOrder { threads: vec![2, 1, 4], ..LoadOrder::default() };
        assert_eq!(order.share(0), Some((0, 2, 5)));
        assert_eq!(order.share(1), Some((2, 1, 4)));
        assert_eq!(order.share(2), Some((3, 4, 0)));
        assert_eq!(order.share(3), None);
    }
}
