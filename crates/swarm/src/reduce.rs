//! Puts the reports of all agents in order: those of each slot in the order they were counted, each once, whatever
//! order they arrive in and however often; and determines what is missing if an agent was lost.
//!
//! A slot is a part of the load. One agent has it at a time; if that agent is lost, another may take its place with the
//! next *epoch*. Reports of an epoch count only up to the moment its agent was given up: a lost agent that comes back
//! must not be counted along with its replacement.

use std::collections::BTreeMap;

use loadlab_record::text::time::SECOND_NS;

use crate::block::{Block, SecondHead};

/// Identifies a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportId {
    /// The part of the load.
    pub slot: usize,
    /// Number of agents that had the slot before.
    pub epoch: u32,
    /// Number of the report within the epoch, from 0.
    pub number: u64,
}

/// A report whose turn has come.
#[derive(Debug)]
pub struct OrderedReport {
    /// The part of the load.
    pub part: usize,
    /// The contents of the report.
    pub block: Block,
}

/// A slot whose agent is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The part of the load.
    pub slot: usize,
    /// The epoch that ended.
    pub epoch: u32,
    /// Up to when it had reported, on the load's clock. What it sent later is unknown.
    pub until_ns: u64,
    /// Requests in flight at that time: how they ended is unknown, so they count as in flight.
    pub in_flight: u64,
    /// Requests of the part reported as due, by all agents that had it.
    pub due: u64,
}

/// The reports of all slots.
#[derive(Debug)]
pub struct Reducer {
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    epoch: u32,
    /// Number of the next report expected in this epoch.
    next: u64,
    /// Reports that arrived before an earlier one.
    early: BTreeMap<(u32, u64), Block>,
    /// The facts of its last report.
    last: SecondHead,
    /// Number of requests reported as due.
    due: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Reporting,
    /// The agent is lost, and no other has taken its place.
    Vacant,
    Ended,
}

impl Reducer {
    /// A reducer for this many slots, none of which has reported.
    pub fn new(slots: usize) -> Self {
        Reducer { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// A reducer for slots that had agents before: `epochs` is their number, by slot.
    pub fn from_epochs(epochs: &[u32]) -> Self {
        Reducer { slots: epochs.iter().map(|epoch| Slot { epoch: *epoch, ..Slot::default() }).collect() }
    }

    /// Takes a report, and returns those that are now next in order: none if an earlier one is missing, if this one was
    /// taken already, or if its epoch was given up.
    pub fn take(&mut self, id: ReportId, block: Block) -> Vec<OrderedReport> {
        let Some(slot) = self.slots.get_mut(id.slot) else { return Vec::new() };
        let is_old = (id.epoch, id.number) < (slot.epoch, slot.next);
        if is_old || slot.state == State::Ended || (slot.state == State::Vacant && id.epoch <= slot.epoch) {
            return Vec::new();
        }
        slot.early.insert((id.epoch, id.number), block);
        slot.advance(id.slot)
    }

    /// Marks a slot's agent as lost: its reports so far count, later ones of its epoch do not. `None` if the slot has
    /// ended or has no agent.
    pub fn lose(&mut self, slot: usize) -> Option<Lost> {
        let of = self.slots.get_mut(slot).filter(|of| of.state == State::Reporting)?;
        let lost = Lost {
            slot,
            epoch: of.epoch,
            until_ns: of.last.until_ns,
            in_flight: of.last.in_flight,
            due: of.due,
        };
        of.state = State::Vacant;
        of.early.retain(|(epoch, _), _| *epoch > lost.epoch);
        Some(lost)
    }

    /// Lets another agent take a vacant slot; returns its epoch, and reports of it that had arrived already.
    pub fn replace(&mut self, slot: usize) -> Option<(u32, Vec<OrderedReport>)> {
        let of = self.slots.get_mut(slot).filter(|of| of.state == State::Vacant)?;
        (of.epoch, of.next, of.state) = (of.epoch + 1, 0, State::Reporting);
        let mut reports: Vec<OrderedReport> = of.cut_off(slot).into_iter().collect();
        reports.extend(of.advance(slot));
        Some((of.epoch, reports))
    }

    /// Completes a vacant slot's seconds up to `until_ns`, on the load's clock: nobody sends its part, so those of the
    /// others, if any are left, need not wait for it.
    pub fn pass(&mut self, slot: usize, until_ns: u64) -> Vec<OrderedReport> {
        if !self.slots.iter().any(|of| of.state == State::Reporting) {
            return Vec::new();
        }
        let is_vacant = |of: &&mut Slot| of.state == State::Vacant && !of.last.last;
        let Some(of) = self.slots.get_mut(slot).filter(is_vacant) else { return Vec::new() };
        let mut reports = Vec::new();
        loop {
            let second_ns = (of.last.until_ns / SECOND_NS + 1) * SECOND_NS;
            if second_ns > until_ns {
                return reports;
            }
            reports.extend(of.cut_off(slot));
            reports.push(OrderedReport { part: slot, block: Block::nothing(of.last, second_ns) });
            of.last.until_ns = second_ns;
        }
    }

    /// The number of the report that a slot's agent has yet to send.
    pub fn next_number(&self, slot: usize) -> u64 {
        self.slots.get(slot).map_or(0, |of| of.next)
    }

    /// Stops waiting: ends all slots that have not ended.
    pub fn finish(&mut self) -> Vec<OrderedReport> {
        (0..self.slots.len()).flat_map(|slot| self.finish_slot(slot)).collect()
    }

    /// Stops waiting for a slot: ends it, unless it has ended.
    pub fn finish_slot(&mut self, slot: usize) -> Vec<OrderedReport> {
        let Some(of) = self.slots.get_mut(slot).filter(|of| of.state != State::Ended) else {
            return Vec::new();
        };
        let cut_off = of.cut_off(slot);
        cut_off.into_iter().chain(of.end(slot, Block::end())).collect()
    }

    /// Whether every slot has ended.
    pub fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| slot.state == State::Ended)
    }
}

impl Slot {
    /// Takes all reports that are next in order.
    fn advance(&mut self, part: usize) -> Vec<OrderedReport> {
        let mut reports = Vec::new();
        while self.state == State::Reporting
            && let Some(block) = self.early.remove(&(self.epoch, self.next))
        {
            self.next += 1;
            match block.known() {
                Some(known) => {
                    self.due = self.due.saturating_add(known.due);
                    self.last = known;
                    reports.push(OrderedReport { part, block });
                }
                None => reports.extend(self.end(part, block)),
            }
        }
        reports
    }

    /// Requests that a lost agent had in flight stay in flight for good.
    fn cut_off(&mut self, part: usize) -> Option<OrderedReport> {
        let last = self.last;
        self.last.in_flight = 0;
        (last.in_flight > 0).then(|| OrderedReport { part, block: Block::cut_off(last) })
    }

    /// Marks the slot as ended.
    fn end(&mut self, part: usize, block: Block) -> Option<OrderedReport> {
        self.state = State::Ended;
        self.early.clear();
        Some(OrderedReport { part, block })
    }
}
