//! What the coordinator knows about its agents and the loads they send. Pure: times are passed in.

use std::collections::BTreeMap;

use crate::block::Block;
use crate::message::{Answer, Claim, Clock, OpenSlot};
use crate::ordered_load::{LastHeard, OrderedLoad, Sender};
use crate::reduce::{OrderedReport, ReportId};

pub use crate::ordered_load::{LostPart, Overdue};

/// An agent that was silent for longer than this is lost.
pub const LOST_AFTER_NS: u64 = 5_000_000_000;

/// An agent that was silent for longer than this has missed a heartbeat.
const QUIET_NS: u64 = 1_500_000_000;
/// An agent that was silent for longer than this and has no connection is no longer running. Before that it may only be
/// reconnecting.
pub const DEAD_NS: u64 = 15_000_000_000;

/// The agents of a run, by slot.
#[derive(Debug)]
pub struct Agents {
    states: Vec<SlotState>,
    loads: BTreeMap<u64, OrderedLoad>,
    /// Since when no agent can be heard because the coordinator has no connection.
    deaf_since_ns: Option<u64>,
    /// Since when the coordinator has heard itself without an interruption.
    hears_since_ns: u64,
    /// The last echo that the coordinator received of its own messages through the server. Agents silent since then may
    /// have sent something that the server, or the coordinator itself, has not processed yet.
    last_echo: Option<Echo>,
}

/// A message of the coordinator that came back to it through the server.
#[derive(Clone, Copy, Debug)]
struct Echo {
    /// When it was sent.
    said_ns: u64,
    /// When it arrived.
    at_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct SlotState {
    /// The slot's agent; `None` while the slot is free.
    claim: Option<Claim>,
    /// Number of agents that had the slot before.
    epoch: u32,
    /// Number of the first order that this agent follows.
    from_order: u64,
    /// When it was last heard from. Moved forward while the coordinator itself could not hear it.
    seen_ns: u64,
    /// When its last sign of life arrived.
    sign_ns: u64,
    /// Since when it has given signs of life without being lost.
    alive_since_ns: u64,
    /// When the server was found to have no connection to it any more.
    gone_ns: Option<u64>,
}

impl SlotState {
    fn last_heard(&self) -> LastHeard {
        LastHeard { seen_ns: self.seen_ns, gone_ns: self.gone_ns }
    }
}

/// Whether the agents are ready for a load.
#[derive(Clone, Debug, PartialEq)]
pub enum Readiness {
    /// The agents of these slots have not answered.
    Waiting(Vec<usize>),
    /// All are ready.
    Ready {
        /// Largest uncertainty of an agent's clock, in nanoseconds; see [`Clock::uncertainty_ns`].
        uncertainty_ns: u64,
    },
    /// An agent cannot send its part: its slot, and the reason.
    Refused(usize, String),
}

impl Agents {
    /// This many slots, all of them free.
    pub fn new(slots: usize) -> Self {
        Agents {
            states: vec![SlotState::default(); slots],
            loads: BTreeMap::new(),
            deaf_since_ns: None,
            hears_since_ns: 0,
            last_echo: None,
        }
    }

    /// Number of slots.
    pub fn slot_count(&self) -> usize {
        self.states.len()
    }

    /// Records that an agent took a slot, as the `epoch`-th.
    pub fn claim(&mut self, slot: usize, epoch: u32, claim: Claim, now_ns: u64) {
        let is_open = |state: &&mut SlotState| state.claim.is_none() && state.epoch == epoch;
        if let Some(state) = self.states.get_mut(slot).filter(is_open) {
            (state.claim, state.seen_ns, state.gone_ns) = (Some(claim), now_ns, None);
        }
    }

    /// Records a sign of life.
    pub fn seen(&mut self, slot: usize, epoch: u32, now_ns: u64) {
        if let Some(state) = self.states.get_mut(slot).filter(|state| state.epoch == epoch) {
            if now_ns.saturating_sub(state.seen_ns) > LOST_AFTER_NS {
                state.alive_since_ns = now_ns;
            }
            state.seen_ns = state.seen_ns.max(now_ns);
            state.sign_ns = now_ns;
            state.gone_ns = None;
        }
    }

    /// Whether a slot's agent gave a sign of life, or reported the end of its part, after `since_ns`.
    pub fn has_returned(&self, load: u64, slot: usize, since_ns: u64) -> bool {
        let has_ended = self.loads.get(&load).is_some_and(|load| load.ended.get(slot) == Some(&true));
        has_ended || self.states.get(slot).is_some_and(|state| state.sign_ns > since_ns)
    }

    /// Records that the server has no connection to a slot's agent any more.
    pub fn gone(&mut self, slot: usize, epoch: u32, now_ns: u64) {
        if let Some(state) = self.states.get_mut(slot).filter(|state| state.epoch == epoch) {
            state.gone_ns.get_or_insert(now_ns);
        }
    }

    /// Records whether the coordinator has a connection. While it has none, silence says nothing about agents.
    pub fn connected(&mut self, is_connected: bool, now_ns: u64) {
        if is_connected {
            // From now on it can receive its own echo again.
            if self.deaf_since_ns.take().is_some() && self.last_echo.is_some() {
                self.heard(now_ns, now_ns);
            }
        } else {
            self.hears_since_ns = now_ns;
            self.deaf_since_ns.get_or_insert(now_ns);
            self.states.iter_mut().for_each(|state| state.seen_ns = state.seen_ns.max(now_ns));
        }
    }

    /// Records that the coordinator received its own echo, sent at `said_ns`.
    pub fn heard(&mut self, said_ns: u64, now_ns: u64) {
        let before = self.last_echo.unwrap_or(Echo { said_ns, at_ns: now_ns });
        // What agents sent in the meantime arrives in any order relative to the coordinator's own echoes.
        if now_ns.saturating_sub(before.at_ns) > QUIET_NS {
            self.hears_since_ns = now_ns;
            self.states.iter_mut().for_each(|state| state.seen_ns = state.seen_ns.max(now_ns));
        }
        self.last_echo = Some(Echo { said_ns: said_ns.max(before.said_ns), at_ns: now_ns });
    }

    /// How long the coordinator has had no connection or has not received its own echo, in nanoseconds.
    pub fn deaf_for_ns(&self, now_ns: u64) -> u64 {
        let unheard = self.last_echo.map(|echo| echo.at_ns);
        let unheard = unheard.filter(|at_ns| now_ns.saturating_sub(*at_ns) > LOST_AFTER_NS);
        self.deaf_since_ns.or(unheard).map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Slots without an agent.
    pub fn open(&self) -> Vec<OpenSlot> {
        let open = |(slot, state): (usize, &SlotState)| {
            let is_open = state.claim.is_none();
            is_open.then_some(OpenSlot { slot, epoch: state.epoch, from_order: state.from_order })
        };
        self.states.iter().enumerate().filter_map(open).collect()
    }

    /// Slots and epochs of agents that have missed a heartbeat, so that the server should be asked about them.
    pub fn quiet(&self, now_ns: u64) -> Vec<(usize, u32)> {
        let is_quiet = |state: &SlotState| now_ns.saturating_sub(state.seen_ns) > QUIET_NS;
        let all = self.states.iter().enumerate();
        let quiet = all.filter(|(_, state)| state.claim.is_some() && is_quiet(state));
        quiet.map(|(slot, state)| (slot, state.epoch)).collect()
    }

    /// The name of a slot's agent.
    pub fn name(&self, slot: usize) -> &str {
        self.states.get(slot).and_then(|state| state.claim.as_ref()).map_or("nobody", |claim| &claim.agent)
    }

    /// The id of each slot's agent, as used in orders ([`Claim::id`]).
    pub fn ids(&self) -> Vec<String> {
        let id = |state: &SlotState| state.claim.as_ref().map_or_else(String::new, |claim| claim.id.clone());
        self.states.iter().map(id).collect()
    }

    /// Load threads of each slot: as many as the load wants on each agent or, if it does not say, the agent's own
    /// number.
    pub fn threads(&self, wanted: Option<u64>) -> Vec<u64> {
        let own = |state: &SlotState| state.claim.as_ref().map_or(1, |claim| claim.threads);
        self.states.iter().map(|state| wanted.unwrap_or_else(|| own(state)).max(1)).collect()
    }

    /// A slot's present agent as the sender of a part.
    fn sender_of(&self, slot: usize) -> Sender {
        let SlotState { epoch, seen_ns, .. } = self.states[slot];
        Sender { name: self.name(slot).to_owned(), epoch, reported_ns: seen_ns, ..Sender::default() }
    }

    /// Records that a load was ordered.
    pub fn ordered(&mut self, load: u64, order: u64) {
        let senders = (0..self.slot_count()).map(|slot| self.sender_of(slot)).collect();
        self.loads.insert(load, OrderedLoad::new(order, senders));
    }

    /// Records an agent's answer to an order to prepare, or its later report that it cannot continue.
    pub fn answered(&mut self, slot: usize, epoch: u32, answer: Answer) {
        let name = self.name(slot).to_owned();
        let Some(load) = self.loads.get_mut(&answer.load) else { return };
        if !load.is_sender(slot, epoch) {
            return;
        }
        let Some(answered) = load.answers.get_mut(slot) else { return };
        let is_first = answered.is_none();
        let takes_over = load.losses.iter().any(|lost| lost.slot == slot);
        // No one is waiting for a second answer, or for the answer of an agent that replaces a lost one.
        if let (Err(why), true) = (&answer.ready, !is_first || takes_over) {
            load.damage.get_or_insert_with(|| format!("agent {name} (slot {slot}): {why}"));
        }
        if is_first {
            let is_ready = answer.ready.is_ok();
            *answered = Some(answer.ready);
            load.senders[slot].reported_ns = self.states[slot].seen_ns;
            if is_ready && takes_over {
                load.joined(slot, answer.joins_ns);
            }
        }
    }

    /// Whether all agents are ready for a load.
    pub fn readiness(&self, load: u64) -> Readiness {
        let Some(load) = self.loads.get(&load) else { return Readiness::Waiting(Vec::new()) };
        let (mut waiting, mut uncertainty_ns) = (Vec::new(), 0);
        for (slot, answer) in load.answers.iter().enumerate() {
            match answer {
                // Whoever has the slot now has not been told of the load, or nobody has it.
                _ if self.states[slot].epoch != load.senders[slot].epoch => waiting.push(slot),
                None => waiting.push(slot),
                Some(Ok(clock)) => uncertainty_ns = uncertainty_ns.max(clock.uncertainty_ns),
                Some(Err(why)) => return Readiness::Refused(slot, why.clone()),
            }
        }
        if waiting.is_empty() { Readiness::Ready { uncertainty_ns } } else { Readiness::Waiting(waiting) }
    }

    /// The clock of a slot's agent as of its answer.
    pub fn clock(&self, load: u64, slot: usize) -> Option<Clock> {
        self.loads.get(&load)?.answers.get(slot)?.as_ref()?.as_ref().ok().copied()
    }

    /// Takes a report of what was counted, or of the end of a part.
    pub fn reported(&mut self, load: u64, id: ReportId, block: Block, now_ns: u64) {
        self.seen(id.slot, id.epoch, now_ns);
        if let Some(load) = self.loads.get_mut(&load) {
            load.take(id, block, now_ns);
        }
    }

    /// Agents that are alive, but whose next report of a load has been missing for too long: it was lost on the way, or
    /// they cannot send it. `begun_ns` is when the load began.
    pub fn overdue(&self, load: u64, begun_ns: u64, now_ns: u64) -> Vec<Overdue> {
        let Some(of) = self.loads.get(&load).filter(|_| self.deaf_for_ns(now_ns) == 0) else {
            return Vec::new();
        };
        let late = |slot: usize| {
            let state = self.states.get(slot).filter(|_| !self.is_silent(slot, now_ns))?;
            // Until it could report and be heard, nothing was missing.
            let since_ns = begun_ns.max(state.alive_since_ns).max(self.hears_since_ns);
            of.overdue(slot, since_ns, now_ns).filter(|overdue| overdue.epoch == state.epoch)
        };
        self.under_way(load).filter_map(late).collect()
    }

    /// Whether it is time to ask a slot's agent to send its reports again; remembers that it was asked.
    pub fn may_ask(&mut self, load: u64, slot: usize, now_ns: u64) -> bool {
        self.loads.get_mut(&load).is_some_and(|load| load.may_ask(slot, now_ns))
    }

    /// The next report in order; `None` if none is available now.
    pub fn next_report(&mut self, load: u64) -> Option<OrderedReport> {
        self.loads.get_mut(&load)?.reports.pop_front()
    }

    /// Whether all parts of a load have ended.
    pub fn is_over(&self, load: u64) -> bool {
        self.loads.get(&load).is_none_or(|load| load.reducer.is_over())
    }

    /// Records that a report of an agent cannot be used.
    pub fn damaged_by(&mut self, load: u64, slot: usize, epoch: u32, why: String) {
        if self.loads.get(&load).is_some_and(|load| load.is_sender(slot, epoch)) {
            self.damaged(load, why);
        }
    }

    /// Records that the reports of a load cannot be used.
    pub fn damaged(&mut self, load: u64, why: String) {
        if let Some(load) = self.loads.get_mut(&load) {
            load.damage.get_or_insert(why);
        }
    }

    /// Why a load's reports cannot be used, if so.
    pub fn damage(&self, load: u64) -> Option<&str> {
        self.loads.get(&load)?.damage.as_deref()
    }

    /// Slots whose agents have been silent for too long although their part of a load has not ended.
    pub fn lost(&self, load: u64, now_ns: u64) -> Vec<usize> {
        self.under_way(load).filter(|slot| self.is_silent(*slot, now_ns)).collect()
    }

    /// Whether all parts that have not ended belong to lost agents.
    pub fn are_others_lost(&self, load: u64, now_ns: u64) -> bool {
        let senders = self.loads.get(&load).map_or(&[][..], |load| &load.senders);
        // Whoever took a slot without being told to join never reports.
        let epoch_of = |slot: usize| self.states.get(slot).map(|state| state.epoch);
        let is_other = |slot: usize| epoch_of(slot) != senders.get(slot).map(|sender| sender.epoch);
        self.under_way(load).all(|slot| is_other(slot) || self.is_silent(slot, now_ns))
    }

    fn under_way(&self, load: u64) -> impl Iterator<Item = usize> {
        let ended = self.loads.get(&load).map_or(&[][..], |load| &load.ended);
        (0..ended.len()).filter(|slot| !ended[*slot])
    }

    fn is_silent(&self, slot: usize, now_ns: u64) -> bool {
        let until_ns = self.last_echo.map_or(now_ns, |echo| echo.said_ns.min(now_ns));
        self.states.get(slot).is_none_or(|state| until_ns.saturating_sub(state.seen_ns) > LOST_AFTER_NS)
    }

    /// Gives up a slot's agent: another agent may take the slot, and follows orders from this number on. Reports that
    /// the old agent sends from now on do not count. Returns false if the slot had no agent.
    pub fn vacate(&mut self, slot: usize, from_order: u64) -> bool {
        let Some(state) = self.states.get_mut(slot) else { return false };
        let Some(claim) = state.claim.take() else { return false };
        for load in self.loads.values_mut().filter(|load| load.senders[slot].epoch == state.epoch) {
            load.lose(slot, &claim.agent, state.last_heard());
        }
        (state.epoch, state.from_order) = (state.epoch + 1, from_order);
        true
    }

    /// Slots and epochs of agents that came after a load was ordered and have not been told to join it.
    pub fn joining(&mut self, load: u64) -> Vec<(usize, u32)> {
        let Some(load) = self.loads.get_mut(&load) else { return Vec::new() };
        let mut joining = Vec::new();
        for (slot, state) in self.states.iter().enumerate() {
            let Some(claim) = &state.claim else { continue };
            if load.ended[slot] || load.senders[slot].epoch >= state.epoch {
                continue;
            }
            while let Some((epoch, reports)) = load.reducer.replace(slot) {
                load.reports.extend(reports);
                if epoch == state.epoch {
                    break;
                }
                // That agent was lost before it could be told.
                load.reducer.lose(slot);
            }
            load.answers[slot] = None;
            let (name, epoch, reported_ns) = (claim.agent.clone(), state.epoch, state.seen_ns);
            load.senders[slot] = Sender { name, epoch, reported_ns, ..Sender::default() };
            if load.order < state.from_order {
                joining.push((slot, state.epoch));
            }
        }
        joining
    }

    /// Completes the seconds up to `until_ns`, on the load's clock, for parts that nobody sends at present.
    pub fn pass_vacant(&mut self, load: u64, until_ns: u64) {
        let Some(load) = self.loads.get_mut(&load) else { return };
        for slot in 0..load.senders.len() {
            load.reports.extend(load.reducer.pass(slot, until_ns));
        }
    }

    /// Stops waiting for agents that are no longer running: the other agents' seconds are complete without them.
    /// Returns their slots and epochs. One whose connection was merely cut still runs, and must be told.
    pub fn give_up_dead(&mut self, load: u64, now_ns: u64) -> Vec<(usize, u32)> {
        let mut given_up = Vec::new();
        let Some(load) = self.loads.get_mut(&load) else { return given_up };
        for (slot, state) in self.states.iter().enumerate() {
            let is_dead = state.gone_ns.is_some() && now_ns.saturating_sub(state.seen_ns) > DEAD_NS;
            if let (true, false, Some(claim)) = (is_dead, load.ended[slot], &state.claim) {
                load.lose(slot, &claim.agent, state.last_heard());
                load.reports.extend(load.reducer.finish_slot(slot));
                load.ended[slot] = true;
                load.senders[slot].is_given_up = true;
                given_up.push((slot, state.epoch));
            }
        }
        given_up
    }

    /// Stops waiting for a load's agents: requests that they had in flight stay in flight.
    pub fn finish(&mut self, load: u64) {
        let Some(load) = self.loads.get_mut(&load) else { return };
        for (slot, state) in self.states.iter().enumerate() {
            if let Some(claim) = &state.claim {
                load.lose(slot, &claim.agent, state.last_heard());
            }
        }
        load.reports.extend(load.reducer.finish());
    }

    /// The name of the agent that sends a part of a load, or sent it last.
    pub fn sender(&self, load: u64, slot: usize) -> &str {
        self.loads.get(&load).and_then(|load| load.senders.get(slot)).map_or("", |sender| &sender.name)
    }

    /// Whether a slot's agent has to send its part of another load, too.
    pub fn is_busy_elsewhere(&self, slot: usize, but: u64) -> bool {
        let epoch = self.states.get(slot).map_or(0, |state| state.epoch);
        let others = self.loads.iter().filter(|(load, _)| **load != but);
        others.into_iter().any(|(_, load)| load.is_sender(slot, epoch) && !load.ended[slot])
    }

    /// Agents that were lost before their part of a load had ended.
    pub fn losses(&self, load: u64) -> &[LostPart] {
        self.loads.get(&load).map_or(&[], |load| &load.losses)
    }

    /// Forgets a load.
    pub fn forget(&mut self, load: u64) {
        self.loads.remove(&load);
    }
}

#[cfg(test)]
mod tests;
