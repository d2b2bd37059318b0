//! Seconds that are not complete yet: what load threads report of them is merged here.
//!
//! A thread whose batches came back too late reports several seconds at once. They are then merged into one for all
//! threads: the rates of a second that lacks one thread's requests would be wrong.

use std::collections::VecDeque;
use std::ops::Range;

use loadlab_record::load::{TagMeasured, Tick};

use super::Second;

pub(super) const SECOND_NS: u64 = 1_000_000_000;
use crate::measure::batch::Ids;

/// Seconds of one load, on its clock.
#[derive(Default)]
pub(super) struct Seconds {
    /// The number of the first that is not complete.
    first: u64,
    /// In order and without gaps, each with the number after its last second.
    pending: VecDeque<(u64, Second)>,
    /// Emptied ones.
    spare: Vec<Second>,
}

impl Seconds {
    /// The one that contains an interval. A new one begins with what `tick` returns.
    pub fn of(&mut self, ns: Range<u64>, tick: impl Fn() -> Tick) -> &mut Second {
        let (first, last) = (ns.start / SECOND_NS, (ns.end.max(ns.start + 1) - 1) / SECOND_NS);
        while self.end() < first {
            self.push(self.end() + 1, &tick);
        }
        if self.pending.back().is_none_or(|(end, _)| *end <= first) {
            self.push((last + 1).max(self.end() + 1), &tick);
        }
        let at = self.pending.partition_point(|(end, _)| *end <= first);
        while self.pending[at].0 <= last {
            let Some((end, mut later)) = self.pending.remove(at + 1) else { break };
            self.pending[at].0 = end;
            merge(&mut self.pending[at].1, &mut later);
            self.give_back(later);
        }
        let (end, second) = &mut self.pending[at];
        *end = (last + 1).max(*end);
        second
    }

    /// Everything up to that number becomes one.
    fn push(&mut self, end: u64, tick: impl Fn() -> Tick) {
        let from_s = self.end() as f64;
        let mut second = self.spare.pop().unwrap_or_default();
        second.tick = Tick { from_s, to_s: from_s, ..tick() };
        self.pending.push_back((end, second));
    }

    /// The number after the last.
    fn end(&self) -> u64 {
        self.pending.back().map_or(self.first, |(end, _)| *end)
    }

    /// The first, if it ended by then: its number, and how many seconds it covers.
    pub fn complete(&mut self, reported_ns: u64) -> Option<(u64, u64, Second)> {
        let (end, _) = self.pending.front().filter(|(end, _)| *end * SECOND_NS <= reported_ns)?;
        let (number, length) = (self.first, end - self.first);
        self.first = *end;
        self.pending.pop_front().map(|(_, second)| (number, length, second))
    }

    /// Takes back one that was reported.
    pub fn give_back(&mut self, mut second: Second) {
        second.window.clear();
        second.before.clear();
        second.by_tag.values_mut().for_each(TagMeasured::clear);
        second.ids = Ids::default();
        self.spare.push(second);
    }
}

/// Levels at the end of a second are those of the later one.
fn merge(second: &mut Second, later: &mut Second) {
    let (tick, other) = (&mut second.tick, &later.tick);
    tick.counts.merge(&other.counts);
    (tick.counts.in_flight, tick.connections) = (other.counts.in_flight, other.connections);
    tick.to_s = tick.to_s.max(other.to_s);
    tick.bytes.sent += other.bytes.sent;
    tick.bytes.received += other.bytes.received;
    for (status, n) in &other.statuses {
        *tick.statuses.entry(*status).or_default() += n;
    }
    second.window.merge(&later.window);
    second.before.merge(&later.before);
    for (tag, measured) in &later.by_tag {
        second.by_tag.entry(tag.clone()).or_default().merge(measured);
    }
    second.ids.append(&mut later.ids);
}
