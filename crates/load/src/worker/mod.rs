//! The loop of one load thread: a turn starts requests that are due, abandons those that timed out, and waits for
//! events.
//!
//! A request's path: [`dispatch`] decides which request is sent and when, [`connect`] opens a connection if there is
//! none, [`exchange`] sends, receives and counts. [`streams`] and [`conversation`] do the same for HTTP/2 and
//! WebSockets. The state they change is in [`state`], by owner.

mod batching;
mod connect;
mod conversation;
mod dispatch;
mod exchange;
mod handover;
mod paced;
mod pacer;
mod state;
mod stop;
mod streams;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU8, Ordering};

use loadlab_record::counts::example::Example;
use loadlab_record::counts::outcome::Failure;
use loadlab_record::spec::schedule::Until;

use crate::io::{Io, Ops, Wait};
use crate::journey::users::Users;
use crate::measure::Measure;
use crate::measure::delta::Gaps;
use crate::measure::examples::Reason;
use crate::measure::own_usage::ThreadUse;
use crate::measure::recorder::Recorder;
use crate::protocol::connect::STALLED;
use crate::schedule::share::Share;
use crate::spec::LoadSpec;
use crate::worker::batching::batch_wait;
use crate::worker::pacer::Pacer;
pub use crate::worker::pacer::due_between;
use crate::worker::state::connections::Connections;
use crate::worker::state::conversations::Conversations;
use crate::worker::state::slots::{Exchange, Fact, Slots, Unwritten};
use crate::worker::state::streams::Streams;
use crate::worker::state::timeouts::Expiry;
use crate::worker::state::{Mode, NONE};

pub use connect::open_held;

/// If a turn runs this much after its requested wake-up, the thread was descheduled or stopped: an idle core would
/// have run it sooner. Turns are requested at least this often.
const GAP_NS: u64 = 100_000_000;
/// Connections that a turn reads at least, if as many have received something: with io_uring two turns for each set of
/// receive buffers, with epoll far more.
const READ_PER_TURN: usize = 32;
/// Most turns without timeouts after a gap, however many connections there are.
const MOST_CATCHING_UP: usize = 1000;

/// Why a request timed out.
const NO_RESPONSE: &str = "no complete response within the timeout";
const NO_WINDOW: &str =
    "no complete response within the timeout: the server left no window to send the whole request";

/// Control value: continue.
pub const RUN: u8 = 0;
/// Control value: end the schedule; what is in flight may finish within the grace.
pub const STOP: u8 = 1;
/// Control value: end at once.
pub const ABORT: u8 = 2;

/// One load thread's state.
pub struct Worker<'r> {
    spec: &'r LoadSpec,
    control: &'r AtomicU8,
    share: Share,
    /// The load's start on the backend's clock.
    start_ns: u64,
    /// Whether users send as soon as they are free.
    sends_when_free: bool,
    /// End of the schedule, if bounded by time; otherwise `u64::MAX`.
    end_ns: u64,
    pacer: Pacer,
    /// Users of a journey, if there is one; a user has the same number as its slot.
    journey: Option<Users<'r>>,
    slots: Slots,
    conns: Connections<'r>,
    mode: Mode,
    /// What HTTP/2 needs; empty in other modes.
    streams: Streams,
    /// What WebSockets need; empty in other modes.
    conversations: Conversations,
    measure: Measure,
    /// Set once the schedule has ended.
    stopped: Option<Stopped>,
    /// When the next turn was requested, on the load's clock.
    asked_ns: u64,
    /// Whether the next turn was requested for a request that falls due.
    due_next: bool,
    /// Turns until requests may time out or be cut off again, after this thread did not run for a while. Not extended
    /// while it lasts, or a thread that is always late would have no timeouts.
    catches_up: usize,
}

/// The end of a worker's schedule, early or by time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopped {
    /// When it ended, on the load's clock.
    pub at_ns: u64,
    /// What the worker's thread had used by then.
    pub used: ThreadUse,
}

/// What a worker leaves behind.
#[derive(Clone, Debug, Default)]
pub struct WorkerEnd {
    /// When it ended, on the load's clock.
    pub ended_ns: u64,
    /// When its schedule was ended early or by time.
    pub stopped: Option<Stopped>,
    /// The slowest exchanges.
    pub slowest: Vec<Example>,
    /// What the worker's first user had captured by the end, by slot.
    pub captured: Vec<Option<Vec<u8>>>,
    /// Periods in which the worker did not run.
    pub gaps: Gaps,
    /// Number of requests of each user that sent as many as it could.
    pub per_user: Vec<u64>,
    /// Users that left because a feed had no row for them.
    pub users_without_row: u64,
    /// Most users present at one time, where arrivals are users.
    pub users_peak: Option<u64>,
}

/// What follows a turn.
pub enum Next {
    /// Wait for an event, or until a point in time.
    Wait(Wait),
    /// The load is over.
    Done,
}

/// Runs one worker's share of a load to its end; `between` is called after each turn.
pub fn drive<'r, I: Io<'r>>(
    io: &mut I,
    worker: &mut Worker<'r>,
    mut between: impl FnMut(),
) -> std::io::Result<WorkerEnd> {
    let mut alarm = Alarm::default();
    while let Next::Wait(wait) = worker.turn(io.ops()) {
        let wait = match worker.due_next {
            true => alarm.early(wait, io.ops().now(), I::WAKE_EARLY_NS),
            false => wait,
        };
        io.poll(wait, worker)?;
        between();
    }
    end(io, worker)
}

/// Ends sleep a little before a request falls due; from then on turns do not sleep. A thread that sleeps until the due
/// time runs some 100 µs late, and later still when other threads keep the machine's caches busy.
#[derive(Default)]
struct Alarm {
    /// Due time that it is set for, on the backend's clock.
    for_ns: u64,
}

impl Alarm {
    /// Polling may take at most 1/64 of a thread's time.
    const PART: u64 = 64;

    /// Shortens the wait before a request that falls due at the wait's end, or removes it.
    fn early(&mut self, wait: Wait, now_ns: u64, early_ns: u64) -> Wait {
        let left_ns = wait.until_ns.saturating_sub(now_ns);
        if left_ns > early_ns * Self::PART {
            self.for_ns = wait.until_ns;
            return Wait { until_ns: wait.until_ns - early_ns, ..wait };
        }
        if wait.until_ns != self.for_ns {
            return wait;
        }
        // Some other event may have ended the sleep.
        Wait { until_ns: if left_ns > early_ns { wait.until_ns - early_ns } else { now_ns }, ..wait }
    }
}

/// Does what is left after a worker's last turn.
pub fn end<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<WorkerEnd> {
    let now = worker.now(io.ops());
    handover::close_connections(io, worker)?;
    for id in worker.journey.iter_mut().flat_map(|j| j.stop_redirects()) {
        worker.measure.recorder.redirected_id(id);
    }
    // Bytes sent after the end were counted, so the delta must not end before them.
    let last = worker.now(io.ops());
    worker.measure.recorder.finish(last);
    Ok(WorkerEnd {
        ended_ns: now,
        stopped: worker.stopped,
        slowest: worker.measure.examples.slowest(&worker.spec.requests),
        captured: worker.journey.as_ref().map(|j| j.captured(0)).unwrap_or_default(),
        gaps: worker.measure.recorder.gaps(),
        per_user: worker.per_user(now),
        users_without_row: worker.journey.as_ref().map_or(0, |j| j.without_row),
        // A slot is created only when none is free.
        users_peak: worker
            .journey
            .as_ref()
            .filter(|j| matches!(worker.pacer, Pacer::Open(_)) && j.has_sessions())
            .map(|_| worker.slots.exchanges.len() as u64),
    })
}

impl<'r> Worker<'r> {
    /// A worker at its start. Requests that carry an id are numbered from `first_id`.
    pub fn new(
        spec: &'r LoadSpec,
        control: &'r AtomicU8,
        thread: u64,
        first_id: u64,
        recorder: Recorder,
    ) -> Self {
        let share = Share { thread, threads: spec.busy_threads() };
        let pacer = Pacer::new(spec, share);
        let count = match &pacer {
            Pacer::Closed(users) => users.count,
            Pacer::Open(_) => 0,
        };
        let held = spec.held.as_ref().map(|h| share.of(h.connections) as u32);
        let journey = spec.journey.as_deref().map(|journey| {
            let mut users = Users::new(journey, count as usize, spec.seed, share);
            users.set_first_id(first_id);
            users
        });
        let (mode, streams) = (Mode::of(spec), Streams::new(spec));
        let conn_of = |id| match mode {
            Mode::Http2 => streams.connection_of(id, 0),
            _ if held.is_some() => NONE,
            _ => id,
        };
        let connections = match (held, mode, count) {
            (Some(held), _, _) => held,
            (None, Mode::Http2, 1..) => streams.connections_of(count - 1).end,
            (None, ..) => count,
        };
        Worker {
            spec,
            control,
            share,
            start_ns: 0,
            sends_when_free: spec.sends_when_free(),
            end_ns: match spec.until {
                Until::Elapsed(ns) => ns,
                _ => u64::MAX,
            },
            pacer,
            journey,
            slots: Slots::new(
                (0..count).map(|id| Exchange::new(conn_of(id))).collect(),
                spec.pace_ns.is_some(),
            ),
            conns: Connections::new(spec, connections),
            mode,
            streams,
            conversations: Conversations::new(spec.seed),
            measure: Measure::new(spec, recorder),
            stopped: None,
            asked_ns: 0,
            due_next: false,
            catches_up: 0,
        }
    }

    /// Begins the load at `start_ns` on the backend's clock. `unix_ns` is the wall clock at that time, if there is one;
    /// the load may specify another.
    pub fn begin_at(&mut self, start_ns: u64, unix_ns: Option<u64>) {
        self.conns.addresses.move_clock(start_ns.saturating_sub(self.start_ns));
        self.start_ns = start_ns;
        // A load that is joined has been under way.
        self.asked_ns = self.spec.joins.at_ns;
        self.join_paced();
        self.measure.recorder.begin(self.spec.joins.at_ns);
        if let (Some(journey), Some(unix_ns)) = (&mut self.journey, unix_ns) {
            journey.set_start_unix_ns(unix_ns);
        }
    }

    /// Time on the load's clock.
    #[inline]
    pub(crate) fn now(&self, ops: &impl Ops<'r>) -> u64 {
        ops.now().saturating_sub(self.start_ns)
    }

    /// Starts requests that have fallen due and abandons those that have timed out.
    pub(crate) fn turn(&mut self, ops: &mut impl Ops<'r>) -> Next {
        let now = self.now(ops);
        let is_catching_up = self.catches_up > 0;
        self.catches_up = self.catches_up.saturating_sub(1);
        if self.look_for_gap(now) && !is_catching_up {
            self.catches_up = self.turns_to_read();
        }
        self.asked_ns = now;
        self.measure.recorder.roll(now);
        if self.catches_up == 0 {
            self.expire(ops, now);
        }
        self.fail_unwritten(ops);
        self.finish_ended_parts(ops);
        let in_flight = self.measure.recorder.in_flight;
        let control = self.control.load(Ordering::Relaxed);
        // A load that is aborted before it begins sends nothing.
        if control != ABORT {
            self.arrive(ops);
        }
        self.measure.recorder.flush(now, self.measure.recorder.in_flight == in_flight);
        let now = self.now(ops);
        if self.look_for_gap(now) && self.catches_up == 0 {
            self.catches_up = self.turns_to_read();
        }
        if self.stopped.is_none() && (now >= self.end_ns || control != RUN) {
            self.stop(ops, now.min(self.end_ns));
        }
        self.leave_some(ops);
        if self.measure.recorder.in_flight == 0 && self.exhausted() {
            return Next::Done;
        }
        let over = self.stopped.is_some_and(|end| now >= end.at_ns.saturating_add(self.spec.grace_ns));
        let has_read_all = self.catches_up == 0 && !ops.is_behind();
        if over && has_read_all || control == ABORT {
            self.cut(ops, now);
            return Next::Done;
        }
        self.asked_ns = self.next_ns(now);
        let until_ns = self.start_ns.saturating_add(self.asked_ns);
        // Responses to scheduled requests are taken at once.
        Next::Wait(match self.sends_when_free {
            true => batch_wait(
                self.measure.recorder.in_flight,
                self.measure.recorder.open,
                self.slots.service_ns,
                until_ns,
            ),
            false => Wait::until(until_ns),
        })
    }

    /// Checks whether this thread stalled. One comparison, twice a turn.
    #[inline]
    fn look_for_gap(&mut self, now: u64) -> bool {
        let has_stalled = now > self.asked_ns.saturating_add(GAP_NS);
        if has_stalled {
            self.measure.recorder.gap(self.asked_ns, now);
        }
        has_stalled
    }

    /// How many turns it takes to read what arrived while this thread did not run: it is read before anything times
    /// out.
    #[cold]
    fn turns_to_read(&self) -> usize {
        (1 + self.conns.table.len() / READ_PER_TURN).min(MOST_CATCHING_UP)
    }

    /// Number of requests that each user began, for users that compete for responses; scaled to the whole load for
    /// users that began later.
    fn per_user(&self, now: u64) -> Vec<u64> {
        let Pacer::Closed(users) = &self.pacer else { return Vec::new() };
        if users.each != u64::MAX || !self.spec.stages.is_empty() || self.journey.is_some() {
            return Vec::new();
        }
        let end_ns = self.stopped.map_or(now, |end| end.at_ns);
        let requests = (0..users.awake).filter_map(|user| {
            let from_ns = self.active_from(user, self.spec.joins.at_ns).unwrap_or(end_ns);
            let active_ns = end_ns.saturating_sub(from_ns);
            let begun = u128::from(self.slots.exchanges[user as usize].begun);
            // A user that began in the second half says little about the whole load.
            let counts = active_ns > 0 && active_ns >= end_ns / 2;
            counts.then(|| (begun * u128::from(end_ns) / u128::from(active_ns)) as u64)
        });
        requests.collect()
    }

    /// When the next turn is needed, if no event comes before.
    fn next_ns(&mut self, now: u64) -> u64 {
        self.due_next = false;
        let timeout = self.slots.first_timeout().map_or(u64::MAX, |expiry| expiry.at_ns);
        let end = match self.stopped {
            None => self.end_ns,
            Some(end) => end.at_ns.saturating_add(self.spec.grace_ns),
        };
        if self.pacer.leaving().is_some() {
            return now;
        }
        let due = match &self.pacer {
            Pacer::Open(open) => {
                let later = open.later.peek().map_or(u64::MAX, |Reverse((due, _))| *due);
                open.noticing.peek().unwrap_or(u64::MAX).min(later)
            }
            Pacer::Closed(users) => {
                let later = users.later.peek().map_or(u64::MAX, |Reverse((due, _))| *due);
                self.user_due(users.awake).unwrap_or(u64::MAX).min(later)
            }
        };
        if !self.slots.unwritten.is_empty() || self.conversations.has_ended_parts() {
            return now;
        }
        let other = self.measure.recorder.next_ns().min(timeout).min(end);
        self.due_next = due <= other;
        other.min(due).max(now)
    }

    /// Fails requests that could not be written; in a separate turn, or users could fail endlessly within one.
    fn fail_unwritten(&mut self, ops: &mut impl Ops<'r>) {
        for Unwritten { id, request, started_ns, failure } in std::mem::take(&mut self.slots.unwritten) {
            let exchange = &self.slots.exchanges[id as usize];
            // The request may have ended otherwise in the meantime, and its user may be at another one.
            if exchange.is(Fact::UnderWay) && (exchange.request, exchange.started_ns) == (request, started_ns)
            {
                self.fail(ops, id, Failure::Check, Reason::Script(failure));
            }
        }
    }

    /// Abandons requests that have been in flight for too long.
    fn expire(&mut self, ops: &mut impl Ops<'r>, now: u64) {
        while let Some(Expiry { id, at_ns }) = self.slots.first_timeout() {
            if at_ns > now {
                return;
            }
            let conn = self.slots.exchanges[id as usize].conn;
            // What was received may be the response. It is reported before anything else.
            if ops.has_unreported(conn) {
                return;
            }
            let reason = if self.conns.waits_for_tunnel(conn) {
                Reason::Text(STALLED)
            } else {
                match self.mode {
                    Mode::Http2 if self.streams.is_held_up(conn, id) => Reason::Text(NO_WINDOW),
                    Mode::Http1 | Mode::Http2 => Reason::Text(NO_RESPONSE),
                    Mode::WebSocket => self.part_overdue(id),
                }
            };
            self.fail(ops, id, Failure::Timeout, reason);
            if self.mode == Mode::Http2 {
                self.replace_stuck(ops, conn, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_early_before_what_falls_due_after_a_long_wait() {
        let mut alarm = Alarm::default();
        let mut until = |until_ns, now_ns| alarm.early(Wait::until(until_ns), now_ns, 1_000).until_ns;
        // A short wait is unchanged.
        assert_eq!(until(64_000, 0), 64_000);
        // A long one ends early, also when events interrupt it; then there is no sleep until the due time.
        assert_eq!(until(100_000, 0), 99_000);
        assert_eq!(until(100_000, 90_000), 99_000);
        assert_eq!(until(100_000, 99_000), 99_000);
        assert_eq!(until(100_000, 99_500), 99_500);
        // A wait for something else, due after a short time, is unaffected.
        assert_eq!(until(102_000, 100_000), 102_000);
        // A simulated clock only moves while the thread waits: there, waits end exactly.
        assert_eq!(Alarm::default().early(Wait::until(100_000), 0, 0).until_ns, 100_000);
    }
}
