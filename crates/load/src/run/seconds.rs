//! Seconds that are not complete yet: the reports of load threads are merged here.
//!
//! A thread whose deltas came back too late reports several seconds at once. These are merged into one for all
//! threads: the rates of a second that lacks one thread's requests would be wrong.

use std::collections::VecDeque;
use std::ops::Range;

use loadlab_record::counts::load::{TagMeasured, Tick};
use loadlab_record::text::time::SECOND_NS;

use super::Second;
use crate::measure::delta::{Delta, Gauges, Ids};

/// Counts of one second, or of several.
pub(super) trait Counted {
    /// Begins an empty interval at `ns`.
    fn begin_at(&mut self, ns: u64);
    /// Merges the counts of a later interval into this one; the caller clears `later`.
    fn join(&mut self, later: &mut Self);
    /// Empties it for reuse.
    fn clear(&mut self);
}

/// Seconds of one load, on its clock.
pub(super) struct Seconds<T> {
    /// Number of the first second that is not complete.
    first: u64,
    /// Pending intervals, in order and without gaps.
    pending: VecDeque<Pending<T>>,
    /// Emptied counts, for reuse.
    spare: Vec<T>,
    /// Each worker's requests in flight and open connections at the end of the last complete second.
    gauges: Vec<Gauges>,
}

struct Pending<T> {
    /// Number of the second after its last one.
    end: u64,
    what: T,
    /// Each worker's gauges when it last reported for this interval.
    gauges: Vec<Option<Gauges>>,
}

/// One or more complete seconds.
pub(super) struct Complete<T> {
    /// Number of the first second.
    pub number: u64,
    /// How many seconds.
    pub length: u64,
    /// What was counted in them.
    pub what: T,
    /// Gauges of all workers together at the end of the interval. Workers report at different times, so these are not
    /// their latest gauges.
    pub gauges: Gauges,
}

impl<T: Counted> Seconds<T> {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Self {
        let gauges = vec![Gauges::default(); workers];
        Seconds { first: 0, pending: VecDeque::new(), spare: Vec::new(), gauges }
    }

    /// For a load that is joined at `ns`: seconds before are others'.
    pub fn starting_at(self, ns: u64) -> Self {
        Seconds { first: ns / SECOND_NS, ..self }
    }

    /// The pending interval that contains `ns`, for a report of `worker`, which had these gauges at its end. `make`
    /// creates new counts.
    pub fn of(&mut self, ns: Range<u64>, worker: usize, gauges: Gauges, make: impl Fn() -> T) -> &mut T {
        let (first, last) = (ns.start / SECOND_NS, (ns.end.max(ns.start + 1) - 1) / SECOND_NS);
        while self.end() < first {
            self.push(self.end() + 1, &make);
        }
        if self.pending.back().is_none_or(|second| second.end <= first) {
            self.push((last + 1).max(self.end() + 1), &make);
        }
        let at = self.pending.partition_point(|second| second.end <= first);
        while self.pending[at].end <= last {
            let Some(mut later) = self.pending.remove(at + 1) else { break };
            let second = &mut self.pending[at];
            second.end = later.end;
            second.what.join(&mut later.what);
            second.gauges.iter_mut().zip(later.gauges).for_each(|(old, later)| *old = later.or(*old));
            self.give_back(later.what);
        }
        let second = &mut self.pending[at];
        second.end = (last + 1).max(second.end);
        second.gauges[worker] = Some(gauges);
        &mut second.what
    }

    /// Adds one interval from the last pending second up to `end`.
    fn push(&mut self, end: u64, make: impl Fn() -> T) {
        let from_ns = self.end() * SECOND_NS;
        let mut what = self.spare.pop().unwrap_or_else(make);
        what.begin_at(from_ns);
        self.pending.push_back(Pending { end, what, gauges: vec![None; self.gauges.len()] });
    }

    /// Number of the second after the last pending one.
    fn end(&self) -> u64 {
        self.pending.back().map_or(self.first, |second| second.end)
    }

    /// Whether no second is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The first interval, if it ended by `reported_ns`.
    pub fn complete(&mut self, reported_ns: u64) -> Option<Complete<T>> {
        let second = self.pending.pop_front_if(|second| second.end * SECOND_NS <= reported_ns)?;
        let (number, length) = (self.first, second.end - self.first);
        self.first = second.end;
        for (old, new) in self.gauges.iter_mut().zip(second.gauges) {
            *old = new.unwrap_or(*old);
        }
        let gauges = self.gauges.iter().copied().fold(Gauges::default(), Gauges::plus);
        Some(Complete { number, length, what: second.what, gauges })
    }

    /// Takes back counts that were reported.
    pub fn give_back(&mut self, mut second: T) {
        second.clear();
        self.spare.push(second);
    }
}

impl Counted for Second {
    fn begin_at(&mut self, ns: u64) {
        let from_s = ns as f64 / 1e9;
        (self.tick.from_s, self.tick.to_s) = (from_s, from_s);
    }

    fn join(&mut self, later: &mut Second) {
        let (tick, other) = (&mut self.tick, &later.tick);
        tick.counts.merge(&other.counts);
        tick.to_s = tick.to_s.max(other.to_s);
        tick.bytes.merge(other.bytes);
        for (status, n) in &other.statuses {
            *tick.statuses.entry(*status).or_default() += n;
        }
        self.window.merge(&later.window);
        self.before.merge(&later.before);
        for (tag, measured) in &later.by_tag {
            self.by_tag.entry(tag.clone()).or_default().merge(measured);
        }
        for (name, numbers) in &later.numbers {
            self.numbers.entry(name.clone()).or_default().merge(numbers);
        }
        self.ids.append(&mut later.ids);
    }

    /// Keeps the load's name and batch.
    fn clear(&mut self) {
        self.tick =
            Tick { load: std::mem::take(&mut self.tick.load), batch: self.tick.batch, ..Tick::default() };
        self.window.clear();
        self.before.clear();
        self.by_tag.values_mut().for_each(TagMeasured::clear);
        self.numbers.clear();
        self.ids = Ids::default();
    }
}

impl Counted for Delta {
    fn begin_at(&mut self, ns: u64) {
        (self.from_ns, self.until_ns) = (ns, ns);
    }

    fn join(&mut self, later: &mut Delta) {
        self.add(later);
    }

    fn clear(&mut self) {
        Delta::clear(self);
    }
}
