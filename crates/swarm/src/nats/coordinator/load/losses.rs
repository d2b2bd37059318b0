//! What follows when agents are lost during a load: whether it continues, and how many requests were never sent.

use std::collections::BTreeSet;

use loadlab_load::LoadSpec;
use loadlab_load::run::{Origin, due_between};
use loadlab_record::text::time::SECOND_NS;

use super::Sending;
use crate::agents::{Agents, DEAD_NS, LOST_AFTER_NS, LostPart, Overdue};
use crate::message::Order;
use crate::nats::agent::DEAD_MAN_NS;
use crate::nats::coordinator::LossPolicy;
use crate::nats::coordinator::replace::describe_silence;
use crate::nats::{HEARTBEAT_INTERVAL, SwarmError};

/// How long the server may be unreachable during a load.
const UNREACHABLE_TIMEOUT_NS: u64 = 60_000_000_000;
/// How long a load without a schedule waits for the replacement of the agent that was lost last.
const REPLACE_TIMEOUT_NS: u64 = 60_000_000_000;
/// How long an agent that is alive may report nothing: the server may be away for a minute, and then have much to store.
const REPORT_TIMEOUT_NS: u64 = 2 * UNREACHABLE_TIMEOUT_NS;

/// An agent that was lost, and what it left undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which agent was lost, and when.
    pub lost: LostPart,
    /// How many requests of its part were never sent; `None` if unknown because the number that falls due depends on
    /// how fast they are answered.
    pub not_offered: Option<NotOffered>,
}

/// The bounds of a number of requests that were never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOffered {
    /// At least this many.
    pub least: u64,
    /// At most this many.
    pub most: u64,
}

impl Sending<'_> {
    /// Deals with lost agents; returns messages about them.
    pub(super) fn look_for_lost(&mut self, agents: &mut Agents, now_ns: u64) -> Vec<String> {
        let load = self.ready.order.load;
        if self.ending.trouble.is_none() {
            self.ending.trouble = self.trouble(agents, now_ns).map(SwarmError::Agents);
        }
        if self.ending.trouble.is_some() || self.ending.is_aborted {
            return Vec::new();
        }
        self.ask_again(agents, now_ns);
        match self.ready.of.on_loss {
            LossPolicy::Fail => Vec::new(),
            LossPolicy::Degrade => {
                let mut notes = Vec::new();
                for (slot, epoch) in agents.give_up_dead(load, now_ns) {
                    self.ready.of.order(Order::GiveUp { load, slot, epoch });
                    let s = DEAD_NS / SECOND_NS;
                    notes.push(format!(
                        "agent {} (slot {slot}) had no connection for {s} s and was given up",
                        agents.name(slot)
                    ));
                }
                for slot in agents.lost(load, now_ns) {
                    self.silent.entry(slot).or_insert_with(|| {
                        notes.push(format!("{}; the others continue", describe_silence(agents, slot)));
                        now_ns
                    });
                }
                let is_given_up = |slot: &usize| agents.losses(load).iter().any(|loss| loss.slot == *slot);
                self.silent.retain(|slot, since_ns| {
                    let is_back = agents.has_returned(load, *slot, *since_ns) && !is_given_up(slot);
                    if is_back {
                        notes.push(format!("agent {} (slot {slot}) is back", agents.name(*slot)));
                    }
                    !is_back
                });
                notes
            }
            // Nobody is to begin what has been stopped.
            LossPolicy::Replace if self.ending.is_stopped => Vec::new(),
            LossPolicy::Replace => {
                self.ready.of.replace(agents, &self.ready.order, Some(self.begun_ns), &self.counted)
            }
        }
    }

    /// Has agents that are alive send reports again that have been missing for long: the server may have lost them.
    fn ask_again(&self, agents: &mut Agents, now_ns: u64) {
        let load = self.ready.order.load;
        for Overdue { slot, epoch, number, .. } in agents.overdue(load, self.begun_ns, now_ns) {
            if agents.may_ask(load, slot, now_ns) {
                self.ready.of.order(Order::Resend { load, slot, epoch, number });
            }
        }
    }

    /// Whether to stop waiting for reports.
    pub(super) fn is_given_up(&self, agents: &Agents, now_ns: u64) -> bool {
        if self.ending.until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            return true;
        }
        // Lost agents will never report, and without a connection no agent can.
        let is_alone = agents.are_others_lost(self.ready.order.load, now_ns);
        if self.ending.is_aborted {
            return is_alone || agents.deaf_for_ns(now_ns) > LOST_AFTER_NS;
        }
        is_alone
            && match self.ready.of.on_loss {
                LossPolicy::Fail => false,
                LossPolicy::Degrade => true,
                LossPolicy::Replace if self.ending.is_stopped => true,
                LossPolicy::Replace => {
                    let losses = agents.losses(self.ready.order.load).iter();
                    let last_ns = losses.map(|loss| loss.seen_ns).max().unwrap_or(0).max(self.begun_ns);
                    now_ns >= self.over_ns.unwrap_or(last_ns.saturating_add(REPLACE_TIMEOUT_NS))
                }
            }
    }

    /// Why the load cannot continue, in words.
    fn trouble(&self, agents: &Agents, now_ns: u64) -> Option<String> {
        let load = self.ready.order.load;
        if let Some(why) = agents.damage(load) {
            return Some(why.to_owned());
        }
        if agents.deaf_for_ns(now_ns) > UNREACHABLE_TIMEOUT_NS {
            return Some(format!(
                "the NATS server could not be reached for {} s: what agents sent meanwhile is unknown",
                UNREACHABLE_TIMEOUT_NS / SECOND_NS
            ));
        }
        let overdue = agents.overdue(load, self.begun_ns, now_ns);
        if let Some(Overdue { slot, number, .. }) = overdue.iter().find(|o| o.for_ns > REPORT_TIMEOUT_NS) {
            return Some(format!(
                "agent {} (slot {slot}) is alive, but its report {number} did not arrive within {} s: what it sent is \
                 unknown\nhint: can the NATS server store messages? Its log says why not",
                agents.name(*slot),
                REPORT_TIMEOUT_NS / SECOND_NS
            ));
        }
        let lost = agents.lost(load, now_ns);
        let first = lost.first()?;
        let what = "what it sent after its last report is unknown";
        match self.ready.of.on_loss {
            LossPolicy::Fail => Some(format!("{}: {what}", describe_silence(agents, *first))),
            LossPolicy::Degrade => {
                let given_up = agents.losses(load).iter().map(|loss| loss.slot);
                let all: BTreeSet<usize> = lost.iter().copied().chain(given_up).collect();
                (all.len() == agents.slot_count()).then(|| "all agents were lost".to_owned())
            }
            LossPolicy::Replace => None,
        }
    }
}

/// How many requests of a part were never sent up to `to_ns`, on the load's clock, in addition to those already missing
/// `before`. What the lost agent sent after its last report is unknown: it may have sent until its connection was found
/// to be gone or, if that is unknown, until it must have noticed that the coordinator is silent.
///
/// Due times do not show which requests were missing: what fell due at the end of its last report may have been noticed
/// only after it.
pub(super) fn not_offered(
    part: &LoadSpec,
    lost: &LostPart,
    before: u64,
    origin: Origin,
    to_ns: u64,
) -> Option<NotOffered> {
    let most = due_between(part, 0..to_ns)?.saturating_sub(lost.due.saturating_add(before));
    // Messages it sent before may have been in transit for a moment.
    let beat_ns = u64::try_from(HEARTBEAT_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
    let alive_ns = lost.gone_ns.unwrap_or(lost.seen_ns.saturating_add(DEAD_MAN_NS + 2 * beat_ns));
    let sent_until_ns = alive_ns.saturating_sub(origin.start_ns).max(lost.until_ns);
    let least = if sent_until_ns < to_ns { due_between(part, sent_until_ns..to_ns)? } else { 0 };
    Some(NotOffered { least: least.min(most), most })
}
