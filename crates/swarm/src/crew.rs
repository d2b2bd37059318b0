//! What the coordinator knows of its agents and of the loads that they send. Pure: times are given.

use std::collections::{BTreeMap, VecDeque};

use loadlab_load::run::{Part, PartReport};

use crate::message::{Answer, Claim, Clock};
use crate::reduce::{Reducer, ReportId};

/// An agent that was silent for so long is lost.
pub const LOST_NS: u64 = 5_000_000_000;

/// The agents of a run, by slot.
#[derive(Debug)]
pub struct Crew {
    members: Vec<Member>,
    loads: BTreeMap<u64, Load>,
    /// Since when nobody can be heard, because the coordinator has no connection.
    deaf_since_ns: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    claim: Option<Claim>,
    /// When it was last heard of.
    seen_ns: u64,
}

/// A load that was ordered.
#[derive(Debug)]
struct Load {
    answers: Vec<Option<Result<Clock, String>>>,
    reducer: Reducer,
    reports: VecDeque<PartReport>,
    /// Slots that have reported the end of their part.
    ended: Vec<bool>,
    /// Why its reports cannot be used.
    damage: Option<String>,
}

/// How ready the agents are for a load.
#[derive(Clone, Debug, PartialEq)]
pub enum Readiness {
    /// Some have not answered: these slots.
    Waiting(Vec<usize>),
    /// All are; the largest uncertainty of a clock, nanoseconds.
    Ready {
        /// See [`Clock::uncertainty_ns`].
        uncertainty_ns: u64,
    },
    /// A slot cannot send its part, and why.
    Refused(usize, String),
}

impl Crew {
    /// Of this many agents, none of which is here yet.
    pub fn new(slots: usize) -> Self {
        Crew { members: vec![Member::default(); slots], loads: BTreeMap::new(), deaf_since_ns: None }
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.members.len()
    }

    /// An agent has taken a slot.
    pub fn claim(&mut self, slot: usize, claim: Claim, now_ns: u64) {
        if let Some(member) = self.members.get_mut(slot).filter(|member| member.claim.is_none()) {
            *member = Member { claim: Some(claim), seen_ns: now_ns };
        }
    }

    /// A sign of life.
    pub fn seen(&mut self, slot: usize, now_ns: u64) {
        if let Some(member) = self.members.get_mut(slot) {
            member.seen_ns = member.seen_ns.max(now_ns);
        }
    }

    /// The coordinator has a connection, or has none: then silence says nothing about agents.
    pub fn connected(&mut self, is_connected: bool, now_ns: u64) {
        if is_connected {
            self.deaf_since_ns = None;
        } else {
            self.deaf_since_ns.get_or_insert(now_ns);
            self.members.iter_mut().for_each(|member| member.seen_ns = member.seen_ns.max(now_ns));
        }
    }

    /// For how long the coordinator has had no connection.
    pub fn deaf_for_ns(&self, now_ns: u64) -> u64 {
        self.deaf_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    /// Slots without an agent.
    pub fn vacant(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|slot| self.members[*slot].claim.is_none()).collect()
    }

    /// The name of a slot's agent.
    pub fn name(&self, slot: usize) -> &str {
        self.members.get(slot).and_then(|member| member.claim.as_ref()).map_or("nobody", |claim| &claim.agent)
    }

    /// Load threads of each slot, for a load that says nothing about them or that wants a number on each.
    pub fn threads(&self, wanted: Option<u64>) -> Vec<u64> {
        let own = |member: &Member| member.claim.as_ref().map_or(1, |claim| claim.threads);
        self.members.iter().map(|member| wanted.unwrap_or_else(|| own(member)).max(1)).collect()
    }

    /// A load was ordered.
    pub fn ordered(&mut self, load: u64) {
        let slots = self.slots();
        let load_state = Load {
            answers: vec![None; slots],
            reducer: Reducer::new(slots),
            reports: VecDeque::new(),
            ended: vec![false; slots],
            damage: None,
        };
        self.loads.insert(load, load_state);
    }

    /// An agent answers an order to get ready, or reports later that it cannot go on.
    pub fn answered(&mut self, slot: usize, answer: Answer) {
        let name = self.name(slot).to_owned();
        let Some(load) = self.loads.get_mut(&answer.load) else { return };
        match (load.answers.get_mut(slot), answer.ready) {
            (Some(first @ None), ready) => *first = Some(ready),
            (Some(_), Err(why)) => {
                load.damage.get_or_insert_with(|| format!("agent {name} (slot {slot}): {why}"));
            }
            _ => {}
        }
    }

    /// How ready the agents are.
    pub fn readiness(&self, load: u64) -> Readiness {
        let Some(load) = self.loads.get(&load) else { return Readiness::Waiting(Vec::new()) };
        let (mut waiting, mut uncertainty_ns) = (Vec::new(), 0);
        for (slot, answer) in load.answers.iter().enumerate() {
            match answer {
                None => waiting.push(slot),
                Some(Ok(clock)) => uncertainty_ns = uncertainty_ns.max(clock.uncertainty_ns),
                Some(Err(why)) => return Readiness::Refused(slot, why.clone()),
            }
        }
        if waiting.is_empty() { Readiness::Ready { uncertainty_ns } } else { Readiness::Waiting(waiting) }
    }

    /// A report of what was counted, or of the end of a part.
    pub fn reported(&mut self, load: u64, id: ReportId, part: Part) {
        let Some(load) = self.loads.get_mut(&load) else { return };
        for report in load.reducer.take(id, part) {
            if matches!(report.what, Part::Ended(_))
                && let Some(ended) = load.ended.get_mut(report.part)
            {
                *ended = true;
            }
            load.reports.push_back(report);
        }
    }

    /// The next report in order; `None` if there is none now.
    pub fn next_report(&mut self, load: u64) -> Option<PartReport> {
        self.loads.get_mut(&load)?.reports.pop_front()
    }

    /// Whether every part of a load has ended.
    pub fn is_over(&self, load: u64) -> bool {
        self.loads.get(&load).is_none_or(|load| load.reducer.is_over())
    }

    /// A report cannot be used.
    pub fn damaged(&mut self, load: u64, why: String) {
        if let Some(load) = self.loads.get_mut(&load) {
            load.damage.get_or_insert(why);
        }
    }

    /// Why the reports of a load cannot be used.
    pub fn damage(&self, load: u64) -> Option<&str> {
        self.loads.get(&load)?.damage.as_deref()
    }

    /// The first slot whose agent was silent for too long while its part of a load had not ended.
    pub fn lost(&self, load: u64, now_ns: u64) -> Option<usize> {
        self.under_way(load).find(|slot| self.is_silent(*slot, now_ns))
    }

    /// Whether all parts that have not ended are those of lost agents.
    pub fn are_others_lost(&self, load: u64, now_ns: u64) -> bool {
        self.under_way(load).all(|slot| self.is_silent(slot, now_ns))
    }

    fn under_way(&self, load: u64) -> impl Iterator<Item = usize> {
        let ended = self.loads.get(&load).map_or(&[][..], |load| &load.ended);
        (0..ended.len()).filter(|slot| !ended[*slot])
    }

    fn is_silent(&self, slot: usize, now_ns: u64) -> bool {
        self.members.get(slot).is_none_or(|member| now_ns.saturating_sub(member.seen_ns) > LOST_NS)
    }

    /// Nothing more is awaited of a load: what its agents had under way stays in flight.
    pub fn finish(&mut self, load: u64) {
        if let Some(load) = self.loads.get_mut(&load) {
            load.reports.extend(load.reducer.finish());
        }
    }

    /// A load is forgotten.
    pub fn forget(&mut self, load: u64) {
        self.loads.remove(&load);
    }
}

/// Puts a report together that was too large for one message.
#[derive(Debug, Default)]
pub struct Pieces {
    begun: BTreeMap<(u64, ReportId), Vec<Option<Vec<u8>>>>,
}

/// Pieces of one report; a load's largest has a few.
const MOST_PIECES: usize = 1_000;

impl Pieces {
    /// Takes a piece, and returns the report if it is now whole.
    pub fn take(
        &mut self,
        of: (u64, ReportId),
        piece: usize,
        pieces: usize,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        if pieces > MOST_PIECES || piece >= pieces {
            return None;
        }
        if pieces == 1 {
            return Some(bytes.to_vec());
        }
        let begun = self.begun.entry(of).or_insert_with(|| vec![None; pieces]);
        *begun.get_mut(piece)? = Some(bytes.to_vec());
        if begun.iter().any(Option::is_none) {
            return None;
        }
        Some(self.begun.remove(&of)?.into_iter().flatten().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(agent: &str) -> Claim {
        Claim { agent: agent.to_owned(), threads: 2 }
    }

    #[test]
    fn a_slot_has_one_agent() {
        let mut crew = Crew::new(2);
        crew.claim(1, claim("a"), 5);
        crew.claim(1, claim("b"), 6);
        crew.claim(7, claim("c"), 6);
        assert_eq!((crew.vacant(), crew.name(1), crew.name(0)), (vec![0], "a", "nobody"));
        assert_eq!((crew.threads(None), crew.threads(Some(4))), (vec![1, 2], vec![4, 4]));
    }

    #[test]
    fn a_load_begins_when_all_are_ready_and_not_if_one_refuses() {
        let mut crew = Crew::new(2);
        crew.ordered(3);
        let ready = |uncertainty_ns| Answer { load: 3, ready: Ok(Clock { offset_ns: 0, uncertainty_ns }) };
        assert_eq!(crew.readiness(3), Readiness::Waiting(vec![0, 1]));
        crew.answered(1, ready(7));
        crew.answered(9, ready(7));
        assert_eq!(crew.readiness(3), Readiness::Waiting(vec![0]));
        let mut refused = Crew::new(2);
        refused.ordered(3);
        refused.answered(0, Answer { load: 3, ready: Err("no".into()) });
        assert_eq!(refused.readiness(3), Readiness::Refused(0, "no".into()));
        crew.answered(0, ready(4));
        // The first answer counts.
        crew.answered(0, ready(40));
        assert_eq!(crew.readiness(3), Readiness::Ready { uncertainty_ns: 7 });
        assert_eq!(crew.damage(3), None);
        crew.answered(1, Answer { load: 3, ready: Err("the disk is full".into()) });
        assert_eq!(crew.damage(3), Some("agent nobody (slot 1): the disk is full"));
    }

    #[test]
    fn an_agent_is_lost_by_its_silence_until_its_part_has_ended() {
        let mut crew = Crew::new(2);
        crew.claim(0, claim("a"), 0);
        crew.claim(1, claim("b"), 0);
        crew.ordered(0);
        crew.seen(0, LOST_NS);
        assert_eq!(crew.lost(0, LOST_NS), None);
        assert_eq!(crew.lost(0, LOST_NS + 1), Some(1));
        let id = ReportId { slot: 1, epoch: 0, number: 0 };
        crew.reported(0, id, Part::Ended(Box::default()));
        assert_eq!(crew.lost(0, LOST_NS + 1), None);
        assert!(!crew.are_others_lost(0, LOST_NS + 1));
        assert_eq!(crew.lost(0, 3 * LOST_NS), Some(0));
        assert!(crew.are_others_lost(0, 3 * LOST_NS));
        crew.connected(false, 3 * LOST_NS);
        assert_eq!(crew.lost(0, 3 * LOST_NS), None);
        crew.connected(false, 3 * LOST_NS + 2);
        assert_eq!(crew.deaf_for_ns(3 * LOST_NS + 5), 5);
        crew.connected(true, 3 * LOST_NS + 5);
        assert_eq!(crew.deaf_for_ns(3 * LOST_NS + 5), 0);
        crew.damaged(0, "first".into());
        crew.damaged(0, "second".into());
        assert_eq!(crew.damage(0), Some("first"));
        assert!(!crew.is_over(0));
        crew.finish(0);
        assert!(crew.is_over(0));
        let parts: Vec<usize> =
            std::iter::from_fn(|| crew.next_report(0)).map(|report| report.part).collect();
        assert_eq!(parts, [1, 0]);
        crew.forget(0);
        assert!(crew.is_over(0) && crew.next_report(0).is_none());
    }

    #[test]
    fn pieces_make_a_report_in_any_order() {
        let id = ReportId { slot: 0, epoch: 0, number: 4 };
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take((0, id), 0, 1, b"whole"), Some(b"whole".to_vec()));
        assert_eq!(pieces.take((0, id), 2, 3, b"c"), None);
        assert_eq!(pieces.take((1, id), 0, 3, b"other"), None);
        assert_eq!(pieces.take((0, id), 0, 3, b"a"), None);
        assert_eq!(pieces.take((0, id), 0, 3, b"a"), None);
        assert_eq!(pieces.take((0, id), 1, 3, b"b"), Some(b"abc".to_vec()));
        assert_eq!(pieces.take((0, id), 3, 3, b"d"), None);
        assert_eq!(pieces.take((0, id), 0, usize::MAX, b"d"), None);
    }
}
