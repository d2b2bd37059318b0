//! The loop of one load thread: a turn starts what has fallen due, abandons what has timed out, and waits for
//! the backend. What its events do to a request is in [`crate::worker::exchange`].

mod batching;
mod buffers;
mod conversation;
mod due;
mod exchange;
mod handover;
mod next;
pub(crate) mod pacer;
pub(crate) mod slots;
mod streams;
pub(crate) mod timeouts;
mod tls;
mod tunnels;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU8, Ordering};

use loadlab_record::example::Example;
use loadlab_record::outcome::Failure;

use self::tunnels::Tunnels;
use crate::io::{ConnId, Io, Ops, Wait};
use crate::journey::users;
use crate::measure::examples::{Keeper, Reason};
use crate::measure::own_usage::ThreadUse;
use crate::measure::recorder::{Gaps, Recorder, Times};
use crate::protocol::connect::STALLED;
use crate::protocol::http1::Memo;
use crate::spec::{LoadSpec, Until};
use crate::target::rotation::Addresses;
use crate::worker::batching::patience;
use crate::worker::conversation::Talks;
use crate::worker::due::STARTS_PER_TURN;
use crate::worker::pacer::{Feed, share_of};
use crate::worker::slots::{Conn, Exchange, Phase, Stash, Unwritten};
use crate::worker::streams::Multiplex;
use crate::worker::timeouts::{Deadlines, NONE};
use crate::worker::tls::Secure;

/// Connections being made at one time while many are opened to be held.
const OPENING_AT_ONCE: u64 = 1024;

/// A turn that comes so much later than it was asked for is a gap: no scheduler that has a core to give lets a
/// thread wait for so long, and turns are asked for at least that often.
const GAP_NS: u64 = 100_000_000;

/// Go on.
pub const RUN: u8 = 0;
/// End the schedule; what is in flight may finish within the grace.
pub const STOP: u8 = 1;
/// End at once.
pub const ABORT: u8 = 2;

/// One load thread's state.
pub struct Worker<'r> {
    pub(crate) spec: &'r LoadSpec,
    control: &'r AtomicU8,
    pub(crate) place: Place,
    /// Users send as soon as they are free.
    pub(crate) as_due: bool,
    /// End of the schedule by time.
    pub(crate) end_ns: u64,
    pub(crate) conns: Vec<Conn>,
    pub(crate) addresses: Addresses<'r>,
    pub(crate) exchanges: Vec<Exchange>,
    /// Connections are held and taken in turn: the next one. Else each exchange has its own.
    pub(crate) turn: Option<u32>,
    opening: u64,
    /// Moving mean of service times.
    pub(crate) service_ns: u64,
    pub(crate) deadlines: Deadlines,
    pub(crate) feed: Feed,
    /// Users of a journey, if there is one; a user has the number of its exchange.
    pub(crate) journey: Option<users::Users<'r>>,
    /// Streams, if requests share connections.
    pub(crate) multiplex: Option<Multiplex<'r>>,
    /// WebSockets, if users talk over them.
    pub(crate) talks: Option<Talks>,
    /// TLS, if some host is reached by it.
    pub(crate) secure: Option<Secure<'r>>,
    /// Tunnels, if there is a proxy.
    pub(crate) tunnels: Option<Tunnels<'r>>,
    /// Exchanges whose request could not be written, to be failed in the next turn.
    pub(crate) unwritten: Vec<Unwritten>,
    /// Room for what is said on a connection before it is closed.
    pub(crate) last: Vec<u8>,
    pub(crate) memo: Memo,
    pub(crate) recorder: Recorder,
    pub(crate) keeper: Keeper,
    // Boxes, since they wander into exchanges and back.
    #[allow(clippy::vec_box)]
    pub(crate) stashes: Vec<Box<Stash>>,
    pub(crate) stashed: usize,
    pub(crate) stopped_ns: Option<u64>,
    /// What its thread had used by then.
    used_at_stop: Option<ThreadUse>,
    /// When the next turn was asked for, on the load's clock.
    asked_ns: u64,
    /// What it was asked for is a request that falls due.
    due_next: bool,
}

/// What a worker leaves.
pub struct WorkerEnd {
    /// When it ended, on the load's clock.
    pub ended_ns: u64,
    /// When its schedule was ended early or by time.
    pub stopped_ns: Option<u64>,
    /// What its thread had used by then.
    pub used_at_stop: Option<ThreadUse>,
    /// Slow exchanges.
    pub slowest: Vec<Example>,
    /// What its first user had captured at the end, slot by slot.
    pub captured: Vec<Option<Vec<u8>>>,
    /// When it did not run.
    pub gaps: Gaps,
    /// Requests of each user that had as many as it could get.
    pub per_user: Vec<u64>,
    /// Users that left since a feed had no row for them.
    pub users_without_row: u64,
    /// Most users there at one time, where arrivals are users.
    pub users_peak: Option<u64>,
}

/// What follows a turn.
pub enum Next {
    /// Something may happen until then.
    Wait(Wait),
    /// The load is over.
    Done,
}

/// Which worker of how many, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// From 0.
    pub slot: u64,
    /// How many.
    pub slots: u64,
    /// The load's start on the backend's clock.
    pub start_ns: u64,
    /// Where ids of requests begin.
    pub first_id: u64,
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
/// time runs some 100 µs later, and later still when other threads keep the machine's caches busy.
#[derive(Default)]
struct Alarm {
    /// What it was set for, on the backend's clock.
    for_ns: u64,
}

impl Alarm {
    /// Polling may take at most one part in this many of a thread's time.
    const PART: u64 = 64;

    /// The wait for a request that falls due at its end: shorter, or none.
    fn early(&mut self, wait: Wait, now_ns: u64, early_ns: u64) -> Wait {
        let left_ns = wait.until_ns.saturating_sub(now_ns);
        if left_ns > early_ns * Self::PART {
            self.for_ns = wait.until_ns;
            return Wait { until_ns: wait.until_ns - early_ns, ..wait };
        }
        if wait.until_ns != self.for_ns {
            return wait;
        }
        // Something else may have ended the sleep.
        Wait { until_ns: if left_ns > early_ns { wait.until_ns - early_ns } else { now_ns }, ..wait }
    }
}

/// What is left to do when a worker's last turn is done.
pub fn end<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<WorkerEnd> {
    let now = worker.now(io.ops());
    handover::settle(io, worker)?;
    for id in worker.journey.iter_mut().flat_map(|j| j.stop_redirects()) {
        worker.recorder.redirected_id(id);
    }
    // What was said after the end was counted, and ends no earlier than that.
    let last = worker.now(io.ops());
    worker.recorder.finish(last);
    Ok(WorkerEnd {
        ended_ns: now,
        stopped_ns: worker.stopped_ns,
        used_at_stop: worker.used_at_stop,
        slowest: worker.keeper.slowest(&worker.spec.requests),
        captured: worker.journey.as_ref().map(|j| j.captured(0)).unwrap_or_default(),
        gaps: worker.recorder.gaps(),
        per_user: worker.per_user(now),
        users_without_row: worker.journey.as_ref().map_or(0, |j| j.without_row),
        // A place is made only when none is free.
        users_peak: worker
            .journey
            .as_ref()
            .filter(|j| matches!(worker.feed, Feed::Open(_)) && j.has_sessions())
            .map(|_| worker.exchanges.len() as u64),
    })
}

/// Opens the connections that are to be held, at their rate, before the load begins. Those that cannot be made
/// are made when their turn comes.
pub fn open_held<'r, I: Io<'r>>(io: &mut I, worker: &mut Worker<'r>) -> std::io::Result<()> {
    let Some(held) = &worker.spec.held else { return Ok(()) };
    let rate_per_s = held.rate_per_s / worker.place.slots as f64;
    let begun_ns = io.ops().now();
    worker.place.start_ns = begun_ns;
    let mut next = 0u64;
    loop {
        let now = worker.now(io.ops());
        let due = |k: u64| (k as f64 * 1e9 / rate_per_s) as u64;
        while next < worker.conns.len() as u64 && due(next) <= now && worker.opening < OPENING_AT_ONCE {
            if worker.conns[next as usize].phase == Phase::Closed {
                worker.opening += 1;
                worker.connect(io.ops(), next as u32, 0, now);
            }
            next += 1;
        }
        let all = next == worker.conns.len() as u64;
        let late = all && now > due(next).saturating_add(worker.spec.timeout_ns);
        if (all && worker.opening == 0) || late || worker.control.load(Ordering::Relaxed) != RUN {
            return Ok(());
        }
        let until = if all || worker.opening >= OPENING_AT_ONCE { now + 100_000_000 } else { due(next) };
        io.poll(Wait::until(begun_ns + until), worker)?;
    }
}

impl<'r> Worker<'r> {
    /// A worker at its start.
    pub fn new(spec: &'r LoadSpec, control: &'r AtomicU8, place: Place, recorder: Recorder) -> Self {
        let place = Place { slots: spec.busy_threads(), ..place };
        let feed = Feed::new(spec, place);
        let places = match &feed {
            Feed::Closed(users) => users.count,
            Feed::Open(_) => 0,
        };
        let held = spec.held.as_ref().map(|h| share_of(h.connections, place) as u32);
        let shares = (place.slot, place.slots);
        let journey = spec.journey.as_deref();
        let journey = journey.map(|j| {
            let mut users = users::Users::new(j, places as usize, spec.seed, shares);
            users.ids_from(place.first_id);
            users
        });
        let multiplex = spec.http2.as_ref().map(|h| Multiplex::new(h, spec.hosts.len()));
        let own = |id| match &multiplex {
            Some(multiplex) => multiplex.connection_of(id, 0),
            None if held.is_some() => NONE,
            None => id,
        };
        let connections = match (held, &multiplex, places) {
            (Some(held), _, _) => held,
            (None, Some(multiplex), 1..) => multiplex.connections_of(places - 1).end,
            (None, _, places) => places,
        };
        Worker {
            spec,
            control,
            place,
            as_due: spec.starts_as_due(),
            end_ns: match spec.until {
                Until::Elapsed(ns) => ns,
                _ => u64::MAX,
            },
            conns: (0..connections).map(|_| Conn::new()).collect(),
            addresses: Addresses::new(&spec.hosts),
            exchanges: (0..places).map(|id| Exchange::new(own(id))).collect(),
            turn: held.map(|_| 0),
            opening: 0,
            service_ns: 0,
            deadlines: Deadlines::new(),
            feed,
            journey,
            multiplex,
            talks: Talks::of(spec),
            secure: spec.tls.as_deref().map(Secure::new),
            tunnels: spec.proxy.as_deref().map(Tunnels::new),
            unwritten: Vec::new(),
            last: Vec::new(),
            memo: Memo::default(),
            recorder,
            keeper: Keeper::new(&spec.name, &spec.tags, &spec.secrets),
            stashes: Vec::new(),
            stashed: 0,
            stopped_ns: None,
            used_at_stop: None,
            asked_ns: 0,
            due_next: false,
        }
    }

    /// The load begins now, on the backend's clock.
    pub fn begin_at(&mut self, start_ns: u64) {
        self.addresses.clock_moves(start_ns.saturating_sub(self.place.start_ns));
        self.place.start_ns = start_ns;
    }

    /// Time on the load's clock.
    #[inline]
    pub(crate) fn now(&self, ops: &impl Ops<'r>) -> u64 {
        ops.now().saturating_sub(self.place.start_ns)
    }

    /// A connection that was opened to be held stands, or cannot be made.
    pub(crate) fn opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
    }

    /// Starts what has fallen due and abandons what has timed out.
    pub(crate) fn turn(&mut self, ops: &mut impl Ops<'r>) -> Next {
        let now = self.now(ops);
        self.look_for_gap(now);
        self.asked_ns = now;
        self.recorder.roll(now);
        self.expire(ops, now);
        self.fail_unwritten(ops);
        self.settle_talks(ops);
        let in_flight = self.recorder.in_flight;
        self.arrive(ops);
        self.recorder.tell(now, self.recorder.in_flight == in_flight);
        let control = self.control.load(Ordering::Relaxed);
        let now = self.now(ops);
        self.look_for_gap(now);
        if self.stopped_ns.is_none() && (now >= self.end_ns || control != RUN) {
            self.stop(ops, now.min(self.end_ns));
        }
        self.leave_some(ops);
        if self.recorder.in_flight == 0 && self.exhausted() {
            return Next::Done;
        }
        let over = self.stopped_ns.is_some_and(|at| now >= at.saturating_add(self.spec.grace_ns));
        if over || control == ABORT {
            self.cut(ops, now);
            return Next::Done;
        }
        self.asked_ns = self.next_ns(now);
        let until_ns = self.place.start_ns.saturating_add(self.asked_ns);
        // A schedule's answers are taken at once.
        Next::Wait(match self.as_due {
            true => patience(self.recorder.in_flight, self.recorder.open, self.service_ns, until_ns),
            false => Wait::until(until_ns),
        })
    }

    /// Whether this thread stood still. One comparison, twice a turn.
    #[inline]
    fn look_for_gap(&mut self, now: u64) {
        if now > self.asked_ns.saturating_add(GAP_NS) {
            self.gap(self.asked_ns, now);
        }
    }

    #[cold]
    fn gap(&mut self, from_ns: u64, to_ns: u64) {
        self.recorder.gap(from_ns, to_ns);
    }

    /// Requests each user began, of users that compete for answers; scaled to the whole load where one began later.
    fn per_user(&self, now: u64) -> Vec<u64> {
        let Feed::Closed(users) = &self.feed else { return Vec::new() };
        if users.each != u64::MAX || !self.spec.stages.is_empty() || self.journey.is_some() {
            return Vec::new();
        }
        let end_ns = self.stopped_ns.unwrap_or(now);
        let requests = (0..users.awake).filter_map(|user| {
            let from_ns = self.active_from(user, 0).unwrap_or(end_ns);
            let active_ns = end_ns.saturating_sub(from_ns);
            let begun = u128::from(self.exchanges[user as usize].begun);
            // One that began in the second half says little about the whole.
            let counts = active_ns > 0 && active_ns >= end_ns / 2;
            counts.then(|| (begun * u128::from(end_ns) / u128::from(active_ns)) as u64)
        });
        requests.collect()
    }

    /// When the next turn is needed, if nothing happens before.
    fn next_ns(&mut self, now: u64) -> u64 {
        self.due_next = false;
        let deadline = self
            .deadlines
            .first(&self.exchanges)
            .map_or(u64::MAX, |id| self.exchanges[id as usize].link.at_ns);
        let end = match self.stopped_ns {
            None => self.end_ns,
            Some(at) => at.saturating_add(self.spec.grace_ns),
        };
        if self.leaving().is_some() {
            return now;
        }
        let feed = match &self.feed {
            Feed::Open(open) => {
                let later = open.later.peek().map_or(u64::MAX, |Reverse((due, _))| *due);
                open.noticing.peek().unwrap_or(u64::MAX).min(later)
            }
            Feed::Closed(users) => {
                let later = users.later.peek().map_or(u64::MAX, |Reverse((due, _))| *due);
                self.user_due(users.awake).unwrap_or(u64::MAX).min(later)
            }
        };
        if !self.unwritten.is_empty() || self.talks.as_ref().is_some_and(Talks::has_settled) {
            return now;
        }
        let other = self.recorder.next_ns().min(deadline).min(end);
        self.due_next = feed <= other;
        other.min(feed).max(now)
    }

    /// When a user begins, if it is one of this worker's and the load still runs.
    pub(crate) fn user_due(&self, user: u32) -> Option<u64> {
        if user as usize >= self.exchanges.len() || self.stopped_ns.is_some() {
            return None;
        }
        self.active_from(user, 0).filter(|due| *due < self.end_ns)
    }

    /// When a user is active, from a time on. It rests while fewer are wanted than its number.
    #[inline]
    pub(crate) fn active_from(&self, user: u32, from_ns: u64) -> Option<u64> {
        let Feed::Closed(users) = &self.feed else { return None };
        users.level.active_from(self.number_of(user), from_ns)
    }

    /// The number of a user or connection over all workers.
    #[inline]
    pub(crate) fn number_of(&self, id: u32) -> u64 {
        self.place.slot + u64::from(id) * self.place.slots
    }

    /// Which request this is: of that number in a user's own order, in the shared one, or in the schedule's.
    #[inline]
    pub(crate) fn request_of(&self, id: u32, number: u64) -> u32 {
        match (&self.journey, &self.feed) {
            (None, _) => (number % self.spec.requests.len() as u64) as u32,
            (Some(journey), Feed::Closed(_)) => journey.request_of(id),
            (Some(journey), Feed::Open(_)) if journey.has_sessions() => {
                journey.course().first_of(number, self.spec.seed)
            }
            (Some(journey), Feed::Open(_)) => journey.course().of_number(number, self.spec.seed),
        }
    }

    /// Nothing more will begin.
    fn exhausted(&self) -> bool {
        match &self.feed {
            // What is bounded by time lasts until then, even if nothing more falls due.
            _ if self.end_ns != u64::MAX && self.stopped_ns.is_none() => false,
            Feed::Closed(users) if users.leaving.is_some() => false,
            Feed::Closed(users) => {
                let none_left = users.awake as usize == self.exchanges.len() && users.later.is_empty();
                self.stopped_ns.is_some() || users.budget == 0 || none_left
            }
            Feed::Open(open) => {
                open.noticing.peek().is_none() && open.backlog.len() == 0 && open.later.is_empty()
            }
        }
    }

    /// Makes places for connections up to this one, and leaves those that are there.
    pub(crate) fn make_places(&mut self, last: ConnId) {
        if self.conns.len() <= last as usize {
            self.conns.resize_with(last as usize + 1, Conn::new);
        }
    }

    /// Most connections this worker may have at one time.
    pub(crate) fn most_connections(&self) -> usize {
        match self.feed {
            Feed::Closed(_) => self.conns.len(),
            Feed::Open(_) if self.turn.is_some() => self.conns.len(),
            Feed::Open(_) => self.spec.connections_per_thread(),
        }
    }

    /// Its number among the load's threads.
    pub(crate) fn lane(&self) -> usize {
        self.place.slot as usize
    }

    /// Ends the schedule. What has fallen due and not been looked at still counts; what waits is dropped.
    fn stop(&mut self, ops: &mut impl Ops<'r>, at_ns: u64) {
        // What users are at has its times, and is in no rate: the load was asked for up to here.
        self.recorder.end_window(at_ns);
        self.used_at_stop = Some(ThreadUse::now());
        if let Feed::Open(_) = self.feed {
            self.stopped_ns = Some(at_ns);
            if let Feed::Open(open) = &mut self.feed {
                // Nor are connections by the thousand opened now.
                open.cap = open.cap.min(self.exchanges.len() + STARTS_PER_TURN);
            }
            self.notice(ops, (usize::MAX, STARTS_PER_TURN), at_ns);
        }
        self.stop_users(ops, at_ns);
        self.stopped_ns = Some(at_ns);
        let now = self.now(ops);
        let spec = self.spec;
        while let Feed::Open(open) = &mut self.feed {
            open.noticing.stop();
            let waiting = open.backlog.pop().and_then(|_| open.starting.take());
            let Some((number, due)) = waiting else { break };
            let index = self.request_of(NONE, number);
            self.recorder.dropped(&spec.requests[index as usize], due, now.max(due));
        }
    }

    /// The same for users: those who think or rest are left alone. Of paced ones, what fell due and was not looked
    /// at still counts, and what waits for its user is dropped.
    fn stop_users(&mut self, ops: &mut impl Ops<'r>, at_ns: u64) {
        while self.spec.pace_ns.is_some() {
            let Feed::Closed(users) = &mut self.feed else { return };
            let Some(Reverse((due, user))) = users.later.pop().filter(|Reverse((due, _))| *due < at_ns)
            else {
                break;
            };
            let now = self.now(ops);
            self.step_due(ops, user, due, now);
        }
        let Feed::Closed(users) = &mut self.feed else { return };
        users.later.clear();
        let now = self.now(ops);
        for user in 0..self.exchanges.len() as u32 {
            self.drop_waiting(user, now);
        }
        if let Feed::Closed(users) = &mut self.feed
            && self.journey.is_some()
        {
            users.leaving = Some(0);
        }
    }

    /// Lets users that are at nothing do what they do last; a few in a turn, or those who leave would keep each other
    /// waiting.
    fn leave_some(&mut self, ops: &mut impl Ops<'r>) {
        let Some(from) = self.leaving() else { return };
        let all = self.exchanges.len() as u32;
        let to = all.min(from.saturating_add(STARTS_PER_TURN as u32));
        for user in from..to {
            let now = self.now(ops);
            self.leave(ops, user, now);
        }
        if let Feed::Closed(users) = &mut self.feed {
            users.leaving = Some(to).filter(|to| *to < all);
        }
    }

    /// The next user to leave, while they do.
    fn leaving(&self) -> Option<u32> {
        match &self.feed {
            Feed::Closed(users) => users.leaving,
            Feed::Open(_) => None,
        }
    }

    /// The schedule is over for a user that is at nothing: it does what it does last.
    fn leave(&mut self, ops: &mut impl Ops<'r>, user: u32, now: u64) {
        let idle = !self.exchanges[user as usize].under_way;
        if idle && self.journey.as_ref().is_some_and(|j| !j.is_outside(user) && !j.is_gone(user)) {
            self.next(ops, user, now);
        }
    }

    /// Fails what could not be written; in a turn of its own, or users would fail without end within one.
    fn fail_unwritten(&mut self, ops: &mut impl Ops<'r>) {
        for Unwritten { id, request, started_ns, trouble } in std::mem::take(&mut self.unwritten) {
            let exchange = &self.exchanges[id as usize];
            // It may have ended otherwise in the meantime: what its user does now is another request.
            if exchange.under_way && (exchange.request, exchange.started_ns) == (request, started_ns) {
                self.fail(ops, id, Failure::Check, Reason::Script(trouble));
            }
        }
    }

    /// Ends the load with requests under way.
    fn cut(&mut self, ops: &mut impl Ops<'r>, now: u64) {
        if self.stopped_ns.is_none() {
            self.stop(ops, now);
        }
        // Stopping takes time, and may have begun what users do when they leave.
        let now = self.now(ops).max(now);
        for exchange in self.exchanges.iter().filter(|e| e.under_way) {
            let request = &self.spec.requests[exchange.request as usize];
            let times = Times { due_ns: exchange.due_ns, started_ns: exchange.started_ns, end_ns: now };
            self.recorder.cut(request, times);
            if let Some(id) = exchange.id {
                self.recorder.cut_id(id);
            }
        }
    }

    /// Closes a connection that is open.
    pub(crate) fn close(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        if self.conns[id as usize].phase != Phase::Closed {
            self.shut(ops, id);
        }
    }

    /// Abandons what has been under way for too long.
    fn expire(&mut self, ops: &mut impl Ops<'r>, now: u64) {
        while let Some(id) = self.deadlines.first(&self.exchanges) {
            if self.exchanges[id as usize].link.at_ns > now {
                return;
            }
            let conn = self.exchanges[id as usize].conn;
            let reason = match (self.tunnels.as_ref().is_some_and(|t| t.is_asked(conn)), &self.talks) {
                (true, _) => Reason::Words(STALLED),
                (false, Some(_)) => self.too_late(id),
                (false, None) => Reason::Words(self.overdue_words(id)),
            };
            if self.multiplex.is_some() {
                self.replace_stuck(ops, id, now);
            }
            self.fail(ops, id, Failure::Timeout, reason);
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
        // A short wait stays as it is.
        assert_eq!(until(64_000, 0), 64_000);
        // A long one ends early, also when events interrupt it; then there is no sleep until the due time.
        assert_eq!(until(100_000, 0), 99_000);
        assert_eq!(until(100_000, 90_000), 99_000);
        assert_eq!(until(100_000, 99_000), 99_000);
        assert_eq!(until(100_000, 99_500), 99_500);
        // What falls due next after a short wait is another matter.
        assert_eq!(until(102_000, 100_000), 102_000);
        // A simulated clock only moves while nothing is looked at: there, waits end exactly.
        assert_eq!(Alarm::default().early(Wait::until(100_000), 0, 0).until_ns, 100_000);
    }
}
