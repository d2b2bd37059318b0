//! What the coordinator knows of a load that its agents were ordered to send: their answers, their reports in order, and
//! which of them were lost. Pure: times are passed in.

use std::collections::VecDeque;

use crate::block::Block;
use crate::message::Clock;
use crate::reduce::{OrderedReport, Reducer, ReportId};

/// How long after its last report an agent is asked to send what it reported since once more, and how often.
const RESEND_AFTER_NS: u64 = 10_000_000_000;

/// A load that was ordered.
#[derive(Debug)]
pub(crate) struct OrderedLoad {
    /// Number of the order that prepared it.
    pub order: u64,
    pub answers: Vec<Option<Result<Clock, String>>>,
    pub reducer: Reducer,
    pub reports: VecDeque<OrderedReport>,
    /// By slot: who sends the part.
    pub senders: Vec<Sender>,
    /// By slot: whether the end of the part was reported.
    pub ended: Vec<bool>,
    /// Agents lost before their part had ended, in the order they were lost.
    pub losses: Vec<LostPart>,
    /// Why the load's reports cannot be used, if so.
    pub damage: Option<String>,
}

/// The agent that sends a part, or sent it last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sender {
    /// Its name.
    pub name: String,
    /// Its epoch.
    pub epoch: u32,
    /// When it was ready, or the last report that followed the one before arrived.
    pub reported_ns: u64,
    /// When it was last asked to send reports again.
    pub asked_ns: u64,
    /// The load goes on without it: what it says does not count any more.
    pub is_given_up: bool,
}

/// When an agent was last heard from, on the coordinator's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastHeard {
    pub seen_ns: u64,
    pub gone_ns: Option<u64>,
}

/// A part of a load whose agent was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// The slot, which is also the part.
    pub slot: usize,
    /// Name of the lost agent.
    pub agent: String,
    /// Up to when it had reported, on the load's clock.
    pub until_ns: u64,
    /// Requests of the part reported as due by then, by all agents that had it.
    pub due: u64,
    /// When it was last heard from, on the coordinator's clock.
    pub seen_ns: u64,
    /// When the server was found to have no connection to it any more, on the coordinator's clock: it had stopped
    /// running by then. Otherwise it may have continued to send for a while.
    pub gone_ns: Option<u64>,
    /// From when on another agent sent the part, on the load's clock.
    pub joined_ns: Option<u64>,
}

/// An agent that has not reported its part for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Its slot.
    pub slot: usize,
    /// Its epoch.
    pub epoch: u32,
    /// The number of the report that is missing.
    pub number: u64,
    /// How long it has been missing.
    pub for_ns: u64,
}

impl OrderedLoad {
    pub fn new(order: u64, senders: Vec<Sender>) -> Self {
        let slots = senders.len();
        let epochs: Vec<u32> = senders.iter().map(|sender| sender.epoch).collect();
        OrderedLoad {
            order,
            answers: vec![None; slots],
            reducer: Reducer::from_epochs(&epochs),
            reports: VecDeque::new(),
            senders,
            ended: vec![false; slots],
            losses: Vec::new(),
            damage: None,
        }
    }

    /// Takes a report that arrived at `now_ns`.
    pub fn take(&mut self, id: ReportId, block: Block, now_ns: u64) {
        for report in self.reducer.take(id, block) {
            if report.block.known().is_none()
                && let Some(ended) = self.ended.get_mut(report.part)
            {
                *ended = true;
            }
            if let Some(sender) = self.senders.get_mut(report.part) {
                sender.reported_ns = now_ns;
            }
            self.reports.push_back(report);
        }
    }

    /// Whether a part is this agent's.
    pub fn is_sender(&self, slot: usize, epoch: u32) -> bool {
        self.senders.get(slot).is_some_and(|sender| sender.epoch == epoch && !sender.is_given_up)
    }

    /// The report of a slot that is missing, and for how long, if its agent could report since `since_ns`.
    pub fn overdue(&self, slot: usize, since_ns: u64, now_ns: u64) -> Option<Overdue> {
        let is_ready = |_: &&Sender| self.answers[slot].is_some() && !self.ended[slot];
        let sender = self.senders.get(slot).filter(is_ready)?;
        let for_ns = now_ns.saturating_sub(sender.reported_ns.max(since_ns));
        let number = self.reducer.next_number(slot);
        (for_ns > RESEND_AFTER_NS).then_some(Overdue { slot, epoch: sender.epoch, number, for_ns })
    }

    /// Whether it is time to ask a slot's agent to send its reports again; remembers that it was asked.
    pub fn may_ask(&mut self, slot: usize, now_ns: u64) -> bool {
        let Some(sender) = self.senders.get_mut(slot) else { return false };
        let may_ask = now_ns.saturating_sub(sender.asked_ns) > RESEND_AFTER_NS;
        if may_ask {
            sender.asked_ns = now_ns;
        }
        may_ask
    }

    /// Records from when on another agent sends the part of those that were lost.
    pub fn joined(&mut self, slot: usize, joins_ns: Option<u64>) {
        match joins_ns {
            Some(_) => {
                let waiting = self.losses.iter_mut().filter(|lost| lost.slot == slot);
                waiting.for_each(|lost| lost.joined_ns = lost.joined_ns.or(joins_ns));
            }
            // The load has not begun, so nothing of it is missing.
            None => self.losses.retain(|lost| lost.slot != slot),
        }
    }

    /// Records that the agent of a part is lost, unless the part has ended.
    pub fn lose(&mut self, slot: usize, agent: &str, heard: LastHeard) {
        if let Some(lost) = self.reducer.lose(slot) {
            self.losses.push(LostPart {
                slot,
                agent: agent.to_owned(),
                until_ns: lost.until_ns,
                due: lost.due,
                seen_ns: heard.seen_ns,
                gone_ns: heard.gone_ns,
                joined_ns: None,
            });
        }
    }
}
