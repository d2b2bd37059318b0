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
mod tests {
    use loadlab_load::measure::delta::{Delta, Sizes};
    use loadlab_load::run::PartContent;
    use loadlab_record::text::time::SECOND_NS;

    use super::*;
    use crate::block::pack_counted;

    fn claim(agent: &str) -> Claim {
        Claim { agent: agent.to_owned(), id: format!("id of {agent}"), threads: 2 }
    }

    #[test]
    fn a_slot_has_one_agent() {
        let mut agents = Agents::new(2);
        agents.claim(1, 0, claim("a"), 5);
        agents.claim(1, 0, claim("b"), 6);
        agents.claim(7, 0, claim("c"), 6);
        let open = OpenSlot { slot: 0, epoch: 0, from_order: 0 };
        assert_eq!((agents.open(), agents.name(1), agents.name(0)), (vec![open], "a", "nobody"));
        assert_eq!((agents.threads(None), agents.threads(Some(4))), (vec![1, 2], vec![4, 4]));
        assert_eq!(agents.ids(), ["", "id of a"]);
    }

    #[test]
    fn a_load_begins_when_all_are_ready_and_not_if_one_refuses() {
        let mut agents = Agents::new(2);
        agents.ordered(3, 0);
        let ready = |uncertainty_ns| Answer {
            load: 3,
            ready: Ok(Clock { offset_ns: 0, uncertainty_ns }),
            joins_ns: None,
        };
        assert_eq!(agents.readiness(3), Readiness::Waiting(vec![0, 1]));
        agents.answered(1, 0, ready(7));
        agents.answered(9, 0, ready(7));
        assert_eq!(agents.readiness(3), Readiness::Waiting(vec![0]));
        let mut refused = Agents::new(2);
        refused.ordered(3, 0);
        refused.answered(0, 0, Answer { load: 3, ready: Err("no".into()), joins_ns: None });
        assert_eq!(refused.readiness(3), Readiness::Refused(0, "no".into()));
        agents.answered(0, 0, ready(4));
        // Only the first answer counts.
        agents.answered(0, 0, ready(40));
        assert_eq!(agents.readiness(3), Readiness::Ready { uncertainty_ns: 7 });
        assert_eq!(agents.damage(3), None);
        agents.answered(1, 0, Answer { load: 3, ready: Err("the disk is full".into()), joins_ns: None });
        assert_eq!(agents.damage(3), Some("agent nobody (slot 1): the disk is full"));
    }

    /// All agents are silent while the server or the coordinator is stalled: their messages are still to come.
    #[test]
    fn no_agent_is_lost_while_the_coordinator_does_not_hear_itself() {
        let mut agents = Agents::new(1);
        agents.claim(0, 0, claim("a"), 0);
        agents.ordered(0, 0);
        agents.heard(LOST_AFTER_NS, LOST_AFTER_NS);
        assert_eq!(
            (agents.lost(0, 9 * LOST_AFTER_NS), agents.deaf_for_ns(9 * LOST_AFTER_NS)),
            (vec![], 8 * LOST_AFTER_NS)
        );
        // Everything it sent itself arrives before anything of the agent, which gets some time from then on.
        for said_ns in [2, 4, 8].map(|times| times * LOST_AFTER_NS) {
            agents.heard(said_ns, 9 * LOST_AFTER_NS);
            assert_eq!(
                (agents.lost(0, 9 * LOST_AFTER_NS), agents.deaf_for_ns(9 * LOST_AFTER_NS)),
                (vec![], 0)
            );
        }
        let mut now_ns = 9 * LOST_AFTER_NS;
        while now_ns < 10 * LOST_AFTER_NS {
            now_ns += QUIET_NS / 2;
            agents.heard(now_ns, now_ns);
            assert_eq!(agents.lost(0, now_ns), if now_ns > 10 * LOST_AFTER_NS { vec![0] } else { vec![] });
        }
        agents.heard(10 * LOST_AFTER_NS + 1, now_ns);
        assert_eq!(agents.lost(0, now_ns + 2), [0]);
        // A restored connection starts afresh.
        agents.connected(false, 20 * LOST_AFTER_NS);
        agents.connected(true, 21 * LOST_AFTER_NS);
        assert_eq!((agents.lost(0, 21 * LOST_AFTER_NS), agents.deaf_for_ns(21 * LOST_AFTER_NS)), (vec![], 0));
    }

    #[test]
    fn an_agent_is_lost_by_its_silence_until_its_part_has_ended() {
        let mut agents = Agents::new(2);
        agents.claim(0, 0, claim("a"), 0);
        agents.claim(1, 0, claim("b"), 0);
        agents.ordered(0, 0);
        agents.seen(0, 0, LOST_AFTER_NS);
        assert_eq!(agents.lost(0, LOST_AFTER_NS), [] as [usize; 0]);
        assert_eq!(agents.lost(0, LOST_AFTER_NS + 1), [1]);
        let id = ReportId { slot: 1, epoch: 0, number: 0 };
        agents.reported(0, id, Block::end(), 0);
        assert_eq!(agents.lost(0, LOST_AFTER_NS + 1), [] as [usize; 0]);
        assert!(!agents.are_others_lost(0, LOST_AFTER_NS + 1));
        assert_eq!(agents.lost(0, 3 * LOST_AFTER_NS), [0]);
        assert!(agents.are_others_lost(0, 3 * LOST_AFTER_NS));
        agents.connected(false, 3 * LOST_AFTER_NS);
        assert_eq!(agents.lost(0, 3 * LOST_AFTER_NS), [] as [usize; 0]);
        agents.connected(false, 3 * LOST_AFTER_NS + 2);
        assert_eq!(agents.deaf_for_ns(3 * LOST_AFTER_NS + 5), 5);
        agents.connected(true, 3 * LOST_AFTER_NS + 5);
        assert_eq!(agents.deaf_for_ns(3 * LOST_AFTER_NS + 5), 0);
        agents.damaged(0, "first".into());
        agents.damaged(0, "second".into());
        assert_eq!(agents.damage(0), Some("first"));
        assert!(!agents.is_over(0));
        agents.finish(0);
        assert!(agents.is_over(0));
        let parts: Vec<usize> =
            std::iter::from_fn(|| agents.next_report(0)).map(|report| report.part).collect();
        assert_eq!(parts, [1, 0]);
        agents.forget(0);
        assert!(agents.is_over(0) && agents.next_report(0).is_none());
    }

    fn counted(until_ns: u64, in_flight: u64) -> Block {
        let mut delta = Delta::new(Sizes { worker: 0, tags: 0, numbers: 0, warmup: false });
        (delta.until_ns, delta.in_flight, delta.counts.due) = (until_ns, in_flight, 2);
        Block::open(&pack_counted(&delta)).expect("it was packed here")
    }

    /// Another agent takes a lost one's slot: from then on only its reports count, it is told what was ordered before
    /// it came, and requests that the lost agent had in flight stay in flight.
    #[test]
    fn a_lost_agent_is_replaced() {
        let mut agents = Agents::new(1);
        agents.claim(0, 0, claim("a"), 0);
        agents.ordered(0, 4);
        let id = |epoch, number| ReportId { slot: 0, epoch, number };
        agents.reported(0, id(0, 0), counted(1_000, 3), 0);
        agents.seen(0, 0, 7);
        assert_eq!((agents.quiet(7 + QUIET_NS), agents.quiet(8 + QUIET_NS)), (vec![], vec![(0, 0)]));
        agents.gone(0, 0, 20);
        agents.gone(0, 0, 30);
        assert!(agents.vacate(0, 6) && !agents.vacate(0, 6));
        assert_eq!(agents.open(), [OpenSlot { slot: 0, epoch: 1, from_order: 6 }]);
        assert_eq!(agents.joining(0), []);
        // The agent was not dead after all, but its slot is taken.
        agents.reported(0, id(0, 1), counted(2_000, 9), 0);
        agents.claim(0, 0, claim("a"), 9);
        agents.claim(0, 1, claim("b"), 10);
        assert_eq!(agents.joining(0), [(0, 1)]);
        assert_eq!(agents.joining(0), []);
        agents.seen(0, 0, 100);
        agents.gone(0, 0, 101);
        agents.answered(0, 0, Answer { load: 0, ready: Err("late".into()), joins_ns: None });
        assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
        let clock = Clock { offset_ns: 0, uncertainty_ns: 2 };
        agents.answered(0, 1, Answer { load: 0, ready: Ok(clock), joins_ns: Some(5_000) });
        assert_eq!(agents.clock(0, 0), Some(clock));
        agents.reported(0, id(1, 0), counted(6_000, 0), 0);
        agents.reported(0, id(1, 1), Block::end(), 0);
        assert!(agents.is_over(0));
        let in_flight: Vec<u64> = std::iter::from_fn(|| agents.next_report(0))
            .map(|report| match report.block.into_content(None).0 {
                PartContent::Counted(delta) => delta.counts.in_flight,
                _ => 99,
            })
            .collect();
        assert_eq!(in_flight, [0, 3, 0, 99]);
        let lost = LostPart {
            slot: 0,
            agent: "a".into(),
            until_ns: 1_000,
            due: 2,
            seen_ns: 7,
            gone_ns: Some(20),
            joined_ns: Some(5_000),
        };
        assert_eq!(agents.losses(0), [lost]);
        // A load ordered later is among the orders that the new agent reads.
        agents.ordered(1, 6);
        assert_eq!(agents.joining(1), []);
        agents.reported(1, id(1, 0), Block::end(), 0);
        assert!(agents.is_over(1));
    }

    /// The coordinator that did not hear itself for a moment gives all agents time again, but has not heard them.
    #[test]
    fn only_a_sign_of_life_shows_that_an_agent_is_back() {
        let mut agents = Agents::new(2);
        (0..2).for_each(|slot| agents.claim(slot, 0, claim("a"), 0));
        agents.ordered(0, 0);
        agents.heard(0, 0);
        agents.heard(2 * LOST_AFTER_NS, 2 * LOST_AFTER_NS);
        let silent_ns = 4 * LOST_AFTER_NS;
        agents.heard(silent_ns, silent_ns);
        assert!(agents.lost(0, silent_ns).is_empty() && !agents.has_returned(0, 0, silent_ns));
        agents.seen(0, 0, silent_ns + 1);
        agents.reported(0, ReportId { slot: 1, epoch: 0, number: 0 }, Block::end(), 0);
        assert!(agents.has_returned(0, 0, silent_ns) && agents.has_returned(0, 1, silent_ns));
    }

    /// An agent that is merely silent may come back; one without a connection for long is no longer waited for.
    #[test]
    fn a_dead_agent_is_not_waited_for() {
        let mut agents = Agents::new(2);
        agents.claim(0, 0, claim("a"), 0);
        agents.claim(1, 0, claim("b"), 0);
        agents.ordered(0, 0);
        agents.give_up_dead(0, DEAD_NS + 1);
        assert_eq!(agents.losses(0), []);
        agents.gone(1, 0, 1);
        agents.give_up_dead(0, DEAD_NS);
        assert_eq!(agents.losses(0), []);
        assert_eq!(agents.give_up_dead(0, DEAD_NS + 1), [(1, 0)]);
        assert_eq!(agents.give_up_dead(0, DEAD_NS + 2), []);
        // What one reports that was given up is nobody's business any more.
        agents.damaged_by(0, 1, 0, "late".into());
        agents.answered(1, 0, Answer { load: 0, ready: Err("late".into()), joins_ns: None });
        agents.answered(1, 0, Answer { load: 0, ready: Err("later".into()), joins_ns: None });
        assert_eq!(agents.damage(0), None);
        assert_eq!(agents.losses(0).len(), 1);
        assert_eq!(agents.lost(0, DEAD_NS + 2), [0]);
        assert!(agents.next_report(0).is_some_and(|next| next.part == 1 && next.block.known().is_none()));
        assert!(agents.next_report(0).is_none() && !agents.is_over(0));
    }

    #[test]
    fn one_that_takes_a_slot_and_is_not_told_to_join_is_not_waited_for() {
        let mut agents = Agents::new(1);
        agents.claim(0, 0, claim("a"), 0);
        agents.ordered(0, 0);
        assert!(agents.vacate(0, 1));
        agents.claim(0, 1, claim("b"), 0);
        assert!(agents.are_others_lost(0, 0));
        assert_eq!(agents.joining(0), [(0, 1)]);
        assert!(!agents.are_others_lost(0, 0));
    }

    #[test]
    fn a_replacement_lost_before_it_joins_is_skipped() {
        let mut agents = Agents::new(1);
        agents.claim(0, 0, claim("a"), 0);
        agents.ordered(0, 0);
        assert!(agents.vacate(0, 1));
        agents.claim(0, 1, claim("b"), 0);
        assert!(agents.vacate(0, 2));
        agents.claim(0, 2, claim("c"), 0);
        assert_eq!(agents.joining(0), [(0, 2)]);
        agents.reported(0, ReportId { slot: 0, epoch: 1, number: 0 }, Block::end(), 0);
        assert!(!agents.is_over(0));
        agents.finish(0);
        let names: Vec<&str> = agents.losses(0).iter().map(|lost| lost.agent.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
    }

    /// An agent that is alive and whose next report does not come is asked to send it again, now and then.
    #[test]
    fn a_report_that_is_missing_for_long_is_asked_for() {
        let mut agents = Agents::new(2);
        (0..2).for_each(|slot| agents.claim(slot, 0, claim("a"), 0));
        agents.ordered(0, 0);
        let ready = Ok(Clock { offset_ns: 0, uncertainty_ns: 2 });
        let answer = Answer { load: 0, ready, joins_ns: None };
        (0..2).for_each(|slot| agents.answered(slot, 0, answer.clone()));
        let id = |slot, number| ReportId { slot, epoch: 0, number };
        let s = |s: u64| s * SECOND_NS;
        let overdue = |agents: &Agents, now_ns| -> Vec<(usize, u64, u64)> {
            let overdue = agents.overdue(0, s(100), now_ns).into_iter();
            overdue.map(|of| (of.slot, of.number, of.for_ns / SECOND_NS)).collect()
        };
        agents.reported(0, id(0, 0), counted(s(1), 0), s(101));
        for now in 101..=112 {
            agents.reported(0, id(1, now - 101), counted(s(now - 100), 0), s(now));
            // One is lost on the way; those that follow show that its agent is alive.
            agents.reported(0, id(0, now - 99), counted(s(now - 98), 0), s(now));
        }
        assert_eq!(overdue(&agents, s(111)), []);
        assert_eq!(overdue(&agents, s(112)), [(0, 1, 11)]);
        assert!(
            agents.may_ask(0, 0, s(112)) && !agents.may_ask(0, 0, s(113)) && agents.may_ask(0, 0, s(123))
        );
        assert_eq!(overdue(&agents, s(118)), [], "silent agents are lost, not overdue");
        // One that was silent has some time when it is back, and so has one that could not be heard.
        agents.seen(1, 0, s(119));
        assert_eq!((overdue(&agents, s(123)), overdue(&agents, s(124))), (vec![], vec![]));
        (120..=131).for_each(|now| agents.seen(1, 0, s(now)));
        assert_eq!(overdue(&agents, s(131)), [(1, 12, 12)]);
        agents.connected(false, s(132));
        agents.connected(true, s(133));
        agents.seen(1, 0, s(134));
        assert_eq!(overdue(&agents, s(134)), []);
        agents.reported(0, id(0, 1), counted(s(2), 0), s(134));
        let of_first = std::iter::from_fn(|| agents.next_report(0)).filter(|report| report.part == 0);
        assert_eq!(of_first.count(), 14);
    }

    /// A load does not begin while the agent that was ready for a part is gone, and nobody else is.
    #[test]
    fn a_slot_that_was_lost_after_it_was_ready_is_not_ready() {
        let mut agents = Agents::new(1);
        agents.claim(0, 0, claim("a"), 0);
        agents.ordered(0, 0);
        let ready = Ok(Clock { offset_ns: 0, uncertainty_ns: 2 });
        let answer = Answer { load: 0, ready, joins_ns: None };
        agents.answered(0, 0, answer.clone());
        assert_eq!(agents.readiness(0), Readiness::Ready { uncertainty_ns: 2 });
        assert!(!agents.is_busy_elsewhere(0, 0) && agents.is_busy_elsewhere(0, 1));
        assert!(agents.vacate(0, 1));
        assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
        agents.claim(0, 1, claim("b"), 0);
        assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
        assert_eq!(agents.joining(0), [(0, 1)]);
        assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
        agents.answered(0, 1, answer);
        assert_eq!(agents.readiness(0), Readiness::Ready { uncertainty_ns: 2 });
    }

    /// While nobody sends a part, the others' seconds go on, and what is reported of it later follows.
    #[test]
    fn seconds_go_on_without_a_vacant_part() {
        let mut agents = Agents::new(2);
        agents.claim(0, 0, claim("a"), 0);
        agents.claim(1, 0, claim("other"), 0);
        agents.ordered(0, 0);
        let id = |epoch| ReportId { slot: 0, epoch, number: 0 };
        agents.reported(0, id(0), counted(2 * SECOND_NS, 3), 0);
        agents.pass_vacant(0, 9 * SECOND_NS);
        assert!(agents.vacate(0, 1));
        agents.pass_vacant(0, 4 * SECOND_NS + 1);
        agents.pass_vacant(0, 3 * SECOND_NS);
        agents.claim(0, 1, claim("b"), 0);
        assert_eq!(agents.sender(0, 0), "a");
        assert_eq!(agents.joining(0), [(0, 1)]);
        agents.pass_vacant(0, 9 * SECOND_NS);
        agents.reported(0, id(1), counted(6 * SECOND_NS, 0), 0);
        assert!(agents.vacate(0, 2));
        agents.pass_vacant(0, 7 * SECOND_NS);
        // Once nobody else sends anything, no second is held up.
        agents.reported(0, ReportId { slot: 1, epoch: 0, number: 0 }, Block::end(), 0);
        agents.pass_vacant(0, 9 * SECOND_NS);
        let found: Vec<(u64, u64)> = std::iter::from_fn(|| agents.next_report(0))
            .map(|report| match report.block.into_content(None).0 {
                PartContent::Counted(delta) => (delta.until_ns / SECOND_NS, delta.counts.in_flight),
                PartContent::Ended(_) => (99, 99),
            })
            .collect();
        assert_eq!(found, [(2, 0), (2, 3), (3, 0), (4, 0), (6, 0), (7, 0), (99, 99)]);
        assert_eq!((agents.sender(0, 0), agents.losses(0)[0].until_ns), ("b", 2 * SECOND_NS));
    }

    /// If a replacement cannot send the part, that is noticed even though no one waits for its answer; and a part that
    /// was lost twice without being sent in between is missing only once.
    #[test]
    fn those_that_take_a_place_answer_too() {
        let mut agents = Agents::new(1);
        let answer = |ready, joins_ns| Answer { load: 0, ready, joins_ns };
        let clock = Clock { offset_ns: 0, uncertainty_ns: 2 };
        agents.claim(0, 0, claim("a"), 0);
        agents.ordered(0, 0);
        agents.answered(0, 0, answer(Ok(clock), None));
        let until = |agents: &Agents| -> Vec<(u64, Option<u64>)> {
            agents.losses(0).iter().map(|lost| (lost.until_ns, lost.joined_ns)).collect()
        };
        let next = |agents: &mut Agents, epoch: u32, name: &str| {
            assert!(agents.vacate(0, u64::from(epoch)));
            agents.claim(0, epoch, claim(name), 0);
            assert_eq!(agents.joining(0), [(0, epoch)]);
        };
        // Before the load has begun, nothing is missing.
        next(&mut agents, 1, "b");
        assert_eq!(until(&agents), [(0, None)]);
        agents.answered(0, 1, answer(Ok(clock), None));
        assert_eq!(until(&agents), []);
        agents.reported(0, ReportId { slot: 0, epoch: 1, number: 0 }, counted(9_000, 0), 0);
        next(&mut agents, 2, "c");
        next(&mut agents, 3, "d");
        agents.answered(0, 3, answer(Ok(clock), Some(12_000)));
        assert_eq!(until(&agents), [(9_000, Some(12_000)), (9_000, Some(12_000))]);
        assert_eq!(agents.damage(0), None);
        next(&mut agents, 4, "e");
        agents.answered(0, 4, answer(Err("not from here".to_owned()), None));
        assert_eq!(agents.damage(0), Some("agent e (slot 0): not from here"));
    }
}
