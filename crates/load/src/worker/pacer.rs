//! Source of a worker's requests: users who become free, or a schedule with its backlog. (Users with a *pace* are in
//! `paced.rs`.)

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use loadlab_record::spec::schedule::{Arrivals, Until, WhenBehind};

use crate::schedule::Schedule;
use crate::schedule::level::Level;
use crate::schedule::share::Share;
use crate::spec::{LoadSpec, Model};
use crate::worker::state::SlotId;

/// Most runs of waiting requests that are kept apart by when they were noticed; beyond this, neighbours are joined.
const BACKLOG_RUNS: usize = 1 << 16;

/// Source of requests.
#[expect(clippy::large_enum_variant, reason = "one per worker: its size does not matter")]
pub enum Pacer {
    /// Users, in the closed model.
    Closed(ClosedPacer),
    /// A schedule, in the open model.
    Open(OpenPacer),
}

/// Users of the closed model: they send when they are free and have thought, or at their pace.
pub struct ClosedPacer {
    /// Users of this worker.
    pub count: u32,
    /// Number of users that have begun.
    pub awake: u32,
    /// Number of requests that may still begin.
    pub budget: u64,
    /// Number of requests that each user may begin.
    pub each: u64,
    /// Number of the next request in the shared order.
    pub number: u64,
    /// How many of all users are active, over time.
    pub level: Level,
    /// Users whose next request falls due later because they think, have a pace, or rest, as due time and user. Each
    /// user is here at most once.
    pub later: BinaryHeap<Reverse<(u64, SlotId)>>,
    /// Once the schedule is over: the next user to leave.
    pub leaving: Option<SlotId>,
}

/// A schedule, and its requests that have fallen due and wait.
pub struct OpenPacer {
    /// Yields requests as they fall due.
    pub noticing: Schedule,
    /// The same sequence, positioned at the first waiting request.
    pub starting: Schedule,
    /// Waiting requests.
    pub backlog: Backlog,
    /// Slots without a request.
    pub free: Vec<SlotId>,
    /// Users that have arrived and whose next request falls due later, as due time and slot.
    pub later: BinaryHeap<Reverse<(u64, SlotId)>>,
    /// Most slots.
    pub cap: usize,
    /// What happens to requests that find no free slot.
    pub when_behind: WhenBehind,
}

impl Pacer {
    /// The share of one load thread.
    pub fn new(spec: &LoadSpec, share: Share) -> Pacer {
        match &spec.model {
            Model::Closed { users } => {
                let count = share.of(*users).min(u64::from(u32::MAX)) as u32;
                // In the shared order the shares lie end to end: with a number of requests each URL is reached equally,
                // and without one each worker cycles independently, from its own starting point.
                let number = match spec.until {
                    Until::Requests(n) => share.before(n),
                    _ => share.before(spec.requests.len() as u64),
                };
                let each = match spec.until {
                    // Rounds of a journey differ in length: its order counts them.
                    Until::Repeats(n) if spec.journey.is_none() => {
                        n.saturating_mul(spec.requests.len() as u64)
                    }
                    _ => u64::MAX,
                };
                let budget = match spec.until {
                    Until::Requests(n) => share.of(n),
                    _ if spec.joins.begun > 0 => each.saturating_mul(u64::from(count)),
                    _ => u64::MAX,
                };
                let budget = budget.saturating_sub(begun_before(spec, share));
                let later = BinaryHeap::new();
                let level = spec.level(*users as f64);
                Pacer::Closed(ClosedPacer {
                    count,
                    awake: 0,
                    budget,
                    each,
                    number,
                    level,
                    later,
                    leaving: None,
                })
            }
            Model::Open { rate_per_s, arrivals, when_behind, max_in_flight } => {
                let schedule = schedule_of(spec, *rate_per_s, *arrivals, share).not_before(spec.joins.at_ns);
                let held = spec.held.as_ref().map_or(u64::MAX, |h| share.of(h.connections));
                Pacer::Open(OpenPacer {
                    starting: schedule.clone(),
                    noticing: schedule,
                    backlog: Backlog::default(),
                    free: Vec::new(),
                    later: BinaryHeap::new(),
                    cap: share.of(*max_in_flight).min(held).max(1) as usize,
                    when_behind: *when_behind,
                })
            }
        }
    }

    /// The next user to leave, while users are leaving.
    pub fn leaving(&self) -> Option<SlotId> {
        match self {
            Pacer::Closed(users) => users.leaving,
            Pacer::Open(_) => None,
        }
    }
}

/// One load thread's share of a schedule.
fn schedule_of(spec: &LoadSpec, rate_per_s: f64, arrivals: Arrivals, share: Share) -> Schedule {
    let (end_ns, number) = match spec.until {
        Until::Elapsed(ns) => (ns, u64::MAX),
        Until::Requests(n) | Until::Repeats(n) => (u64::MAX, n),
    };
    let number = if share.thread < share.threads { number } else { 0 };
    let schedule = Schedule::new(spec.level(rate_per_s), arrivals, spec.seed);
    schedule.until(end_ns, number).share(share.thread, share.threads)
}

/// Number of requests that fall due in this process's part of a load, from one time on its clock to before another;
/// `None` if that depends on how fast they are answered.
pub fn due_between(spec: &LoadSpec, ns: Range<u64>) -> Option<u64> {
    let Model::Open { rate_per_s, arrivals, .. } = spec.model else { return None };
    if spec.journey.as_ref().is_some_and(|journey| journey.sessions) {
        return None;
    }
    let before = spec.other_threads.before;
    let threads = spec.busy_threads();
    let of = |thread| {
        let mut schedule =
            schedule_of(spec, rate_per_s, arrivals, Share { thread, threads }).not_before(ns.start);
        let mut due = 0;
        while schedule.peek().is_some_and(|at| at < ns.end) {
            schedule.take();
            due += 1;
        }
        due
    };
    Some((before..before + spec.threads as u64).map(of).sum())
}

/// Number of this thread's requests that were begun before its process joined. Which threads began them is unknown, so
/// they are divided evenly.
fn begun_before(spec: &LoadSpec, share: Share) -> u64 {
    let local = Share { thread: share.thread_after(spec.other_threads.before), threads: spec.threads as u64 };
    local.of(spec.joins.begun)
}

/// Waiting requests, first in, first out: how many, and when they were noticed. Memory is bounded however many wait:
/// runs noticed at about the same time are joined.
#[derive(Default)]
pub struct Backlog {
    runs: VecDeque<WaitingRun>,
    waiting: u64,
}

/// Waiting requests that were noticed at about the same time.
#[derive(Clone, Copy)]
struct WaitingRun {
    /// How many.
    count: u64,
    noticed_ns: u64,
}

impl Backlog {
    /// Number of waiting requests.
    #[inline]
    pub fn len(&self) -> u64 {
        self.waiting
    }

    /// Adds a request noticed now.
    pub fn push(&mut self, noticed_ns: u64) {
        self.waiting += 1;
        match self.runs.back_mut() {
            Some(run) if run.noticed_ns == noticed_ns => run.count += 1,
            _ => {
                if self.runs.len() >= BACKLOG_RUNS {
                    self.join();
                }
                self.runs.push_back(WaitingRun { count: 1, noticed_ns });
            }
        }
    }

    /// Takes the request that has waited longest; returns when it was noticed.
    pub fn pop(&mut self) -> Option<u64> {
        let run = self.runs.front_mut()?;
        let noticed_ns = run.noticed_ns;
        run.count -= 1;
        if run.count == 0 {
            self.runs.pop_front();
        }
        self.waiting -= 1;
        Some(noticed_ns)
    }

    /// Halves the number of runs: neighbours become one, dated to when the later one was noticed (blocking is
    /// understated by their distance, response times are unaffected).
    fn join(&mut self) {
        let joined = self.runs.len() / 2;
        for i in 0..joined {
            let (a, b) = (self.runs[2 * i], self.runs[2 * i + 1]);
            self.runs[i] = WaitingRun { count: a.count + b.count, noticed_ns: b.noticed_ns };
        }
        let odd = self.runs.len() % 2 == 1;
        if odd {
            self.runs[joined] = self.runs[self.runs.len() - 1];
        }
        self.runs.truncate(joined + usize::from(odd));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_first_in_first_out_and_bounded() {
        let mut backlog = Backlog::default();
        let n = 3 * BACKLOG_RUNS as u64 + 1;
        (0..n).for_each(|at| backlog.push(at));
        assert!(backlog.runs.len() <= BACKLOG_RUNS);
        assert_eq!(backlog.len(), n);
        let noticed: Vec<u64> = std::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(noticed.len() as u64, n);
        assert!(noticed.windows(2).all(|w| w[0] <= w[1]));
        // never dated before it was noticed
        assert!(noticed.iter().enumerate().all(|(i, at)| *at >= i as u64));
        assert_eq!(backlog.len(), 0);
    }
}
