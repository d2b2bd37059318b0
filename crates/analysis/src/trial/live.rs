//! Doubts while a load runs: those that can be judged from the data so far, reported once, and again only when much
//! worse.
//!
//! They are the doubts of a trial ([`crate::trial::doubts`]) with the same thresholds, checked once a second. What
//! happens now and then by chance has to last some seconds before it is reported: the first seconds of a load include
//! its connects, and few requests. Counted events – a stop, a dropped request – are reported at once. The doubts over
//! the whole trial decide: one reported here may be gone at the end, and Little's law, drift and everything else that
//! needs the whole load are checked only there.

use loadlab_record::counts::load::{Counts, OwnLimits, Series};
use loadlab_record::documents::summary::{Doubt, LoadFacts, LoadModel, Stalls};

use crate::trial::doubt_kind;
use crate::trial::doubts::{
    client_limit_so_far, describe_stalls, doubt, dropped_so_far, has_due_times, late_is_grave, late_so_far,
    throttled_so_far,
};
use crate::trial::input::Planned;

/// Seconds in a row in which requests have to be late, by the figures so far.
const LATE_FOR: u32 = 3;
/// Seconds in a row with all slots taken: a stall of one second is the system's and may pass.
const CAPPED_FOR: u32 = 2;
/// Reported again when it has become this many times worse.
const WORSE: f64 = 10.0;

/// A load so far.
#[derive(Clone, Copy, Debug)]
pub struct SoFar<'a> {
    /// Seconds since its start.
    pub at_s: f64,
    /// What it counted; `in_flight` is the current number.
    pub counts: &'a Counts,
    /// Times of the window.
    pub series: &'a Series,
    /// Attempts to connect.
    pub attempted: u64,
    /// Those that failed on limits of loadlab's own machine.
    pub own_limits: OwnLimits,
    /// Arrivals that found all slots of their load thread taken.
    pub held_back: u64,
    /// Periods in which a load thread did not run.
    pub stalls: Stalls,
    /// Time loadlab was stopped by a CPU limit, seconds; `None` if unknown.
    pub throttled_s: Option<f64>,
}

/// The live doubts of one load, as reported so far.
#[derive(Clone, Debug, Default)]
pub struct LiveDoubts {
    late: HoldTimer,
    throttled: HoldTimer,
    stalls: HoldTimer,
    own_limits: HoldTimer,
    capped: HoldTimer,
    dropped: HoldTimer,
    /// Arrivals held back up to the last check.
    held_back_before: u64,
}

/// The state of one kind of doubt.
#[derive(Clone, Debug, Default)]
struct HoldTimer {
    /// Seconds in a row in which it was present.
    held: u32,
    /// How bad it was when it was reported, and whether it was grave.
    reported: Option<(f64, bool)>,
}

impl HoldTimer {
    /// Takes a doubt with its severity, or none, once a second; returns it once it has held for `hold` seconds and is
    /// news.
    fn check(&mut self, found: Option<(f64, Doubt)>, hold: u32) -> Option<Doubt> {
        let Some((size, doubt)) = found else {
            self.held = 0;
            return None;
        };
        self.held += 1;
        let is_news = match self.reported {
            None => true,
            Some((reported, grave)) => size >= reported * WORSE || doubt.grave && !grave,
        };
        if self.held < hold || !is_news {
            return None;
        }
        self.reported = Some((size, doubt.grave));
        Some(doubt)
    }
}

impl LiveDoubts {
    /// Checks a load, once a second; returns what is new.
    pub fn check(&mut self, load: &LoadFacts, planned: &Planned, now: &SoFar<'_>) -> Vec<Doubt> {
        let is_timed = has_due_times(load);
        let of = |size: f64| move |doubt: Doubt| (size, doubt);
        let late = is_timed.then(|| late_so_far(now.series)).flatten();
        let grave = is_timed && late_is_grave(now.series);
        let throttled = now.throttled_s.and_then(|s| throttled_so_far(s, now.at_s, load, grave));
        let own = now.own_limits;
        let dropped = (now.counts.dropped, now.counts.due);
        // A slot may be free again at the moment of the check, and other threads may have some left.
        let holds_back = now.held_back > std::mem::replace(&mut self.held_back_before, now.held_back);
        [
            self.late.check(late.map(of(1.0)), LATE_FOR),
            self.throttled.check(throttled.map(of(now.throttled_s.unwrap_or(0.0))), 1),
            self.stalls.check(stalls(now.stalls).map(of(now.stalls.total_s)), 1),
            self.own_limits.check(client_limit_so_far(own, now.attempted).map(of(own.total() as f64)), 1),
            self.capped.check(capped(load, planned, now, holds_back).map(of(1.0)), CAPPED_FOR),
            self.dropped
                .check(dropped_so_far(dropped.0, dropped.1, load, planned).map(of(dropped.0 as f64)), 1),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Only all requests together show whether it is grave.
fn stalls(still: Stalls) -> Option<Doubt> {
    doubt(
        doubt_kind::GENERATOR_STALLED,
        false,
        describe_stalls(still)?,
        "find what stops it: a signal, a suspended or migrated virtual machine, or other processes on its cores (`--cpus`)",
    )
}

fn capped(load: &LoadFacts, planned: &Planned, now: &SoFar<'_>, holds_back: bool) -> Option<Doubt> {
    let cap = planned.max_in_flight.filter(|_| load.model == LoadModel::Open)?;
    let is_reached = now.counts.in_flight >= cap;
    if !is_reached && !holds_back {
        return None;
    }
    let whose = if is_reached { "" } else { "a load thread's share of " };
    let cap = loadlab_record::text::units::format_count(cap as f64);
    doubt(
        doubt_kind::IN_FLIGHT_CAP,
        false,
        format!(
            "{whose}the cap of {cap} requests in flight is reached; requests due now wait for a slot or are dropped"
        ),
        "the system is behind, or the cap is too low (`--max-in-flight`); response times include the wait for a slot",
    )
}
