//! The loop of one load thread, and the life of a request in it.
//!
//! A turn starts what has fallen due, abandons what has timed out and waits for the backend; its events
//! carry an exchange from step to step: `begin` → `connect` → `connected` → `transmit` → `received` →
//! `complete` or `fail` → `next`. The functions are named after the step the request is in.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use loadlab_record::example::{BODY_BYTES, Example, HEAD_BYTES};
use loadlab_record::outcome::{Failure, Outcome};

use crate::conn::{Conn, Phase, Stash};
use crate::deadline::Deadlines;
use crate::http1::{Fault, Memo};
use crate::io::{ConnId, Event, Io, Ops, Sink};
use crate::keeper::{Exchange, Keeper, Reason};
use crate::recorder::{Recorder, Times};
use crate::schedule::Schedule;
use crate::source::Request;
use crate::spec::{LoadSpec, Model, Order, Until, WhenBehind};

/// Requests started in one turn before events are looked at again.
const STARTS_PER_TURN: usize = 64;
/// Beginnings of responses kept at one time, in case they turn out slow or failed.
const STASHES: usize = 256;
/// Runs of waiting requests told apart by when they were noticed; above this, neighbours are joined.
const BACKLOG_RUNS: usize = 1 << 16;

/// Go on.
pub const RUN: u8 = 0;
/// End the schedule; what is in flight may finish within the grace.
pub const STOP: u8 = 1;
/// End at once.
pub const ABORT: u8 = 2;

/// One load thread's state.
pub struct Worker<'r> {
    spec: &'r LoadSpec,
    control: &'r AtomicU8,
    slot: u64,
    /// The load's start on the backend's clock.
    start_ns: u64,
    /// End of the schedule by time.
    end_ns: u64,
    conns: Vec<Conn>,
    deadlines: Deadlines,
    feed: Feed,
    memo: Memo,
    recorder: Recorder,
    keeper: Keeper,
    stashes: Vec<Box<Stash>>,
    stashed: usize,
    stopped_ns: Option<u64>,
}

/// Where requests come from.
enum Feed {
    Closed {
        /// Users begun so far.
        awake: u32,
        /// Requests that may still begin.
        budget: u64,
        /// Requests each user may begin.
        each: u64,
        /// Requests begun (for the shared order).
        begun: u64,
    },
    Open {
        /// Looks at what falls due.
        noticing: Schedule,
        /// The same sequence, at the first request that waits.
        starting: Schedule,
        /// How many wait, in runs: how many, noticed when.
        backlog: VecDeque<(u64, u64)>,
        waiting: u64,
        /// Places without a request.
        free: Vec<ConnId>,
        cap: usize,
        when_behind: WhenBehind,
    },
}

/// What a worker leaves.
pub struct WorkerEnd {
    /// When it ended, on the load's clock.
    pub ended_ns: u64,
    /// When its schedule was ended early or by time.
    pub stopped_ns: Option<u64>,
    /// Slow exchanges.
    pub slowest: Vec<Example>,
}

/// What follows a turn.
enum Next {
    Wait(u64),
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
}

/// Runs one worker's share of a load to its end.
pub fn drive<'r, I: Io<'r>>(io: &mut I, mut worker: Worker<'r>) -> std::io::Result<WorkerEnd> {
    loop {
        match worker.turn(io.ops()) {
            Next::Wait(until_ns) => io.poll(worker.start_ns.saturating_add(until_ns), &mut worker)?,
            Next::Done => break,
        }
    }
    let now = worker.now(io.ops());
    worker.recorder.finish(now);
    Ok(WorkerEnd {
        ended_ns: now,
        stopped_ns: worker.stopped_ns,
        slowest: worker.keeper.slowest(&worker.spec.requests),
    })
}

/// Which users or requests are a slot's, of so many: every `slots`-th.
pub fn share_of(total: u64, place: Place) -> u64 {
    total / place.slots + u64::from(place.slot < total % place.slots)
}

impl<'r> Worker<'r> {
    /// A worker at its start.
    pub fn new(spec: &'r LoadSpec, control: &'r AtomicU8, place: Place, recorder: Recorder) -> Self {
        let (feed, users) = Feed::new(spec, place);
        Worker {
            spec,
            control,
            slot: place.slot,
            start_ns: place.start_ns,
            end_ns: match spec.until {
                Until::Elapsed(ns) => ns,
                _ => u64::MAX,
            },
            conns: (0..users).map(|_| Conn::new()).collect(),
            deadlines: Deadlines::new(),
            feed,
            memo: Memo::default(),
            recorder,
            keeper: Keeper::new(&spec.name, &spec.tags),
            stashes: Vec::new(),
            stashed: 0,
            stopped_ns: None,
        }
    }

    /// Time on the load's clock.
    #[inline]
    fn now(&self, ops: &impl Ops<'r>) -> u64 {
        ops.now().saturating_sub(self.start_ns)
    }

    fn turn(&mut self, ops: &mut impl Ops<'r>) -> Next {
        let now = self.now(ops);
        self.recorder.roll(now);
        self.expire(ops, now);
        self.arrive(ops);
        let control = self.control.load(Ordering::Relaxed);
        let now = self.now(ops);
        if self.stopped_ns.is_none() && (now >= self.end_ns || control != RUN) {
            self.stop(ops, now.min(self.end_ns));
        }
        let grace_over = self.stopped_ns.is_some_and(|at| now >= at.saturating_add(self.spec.grace_ns))
            || control == ABORT;
        if self.recorder.in_flight == 0 && self.exhausted() {
            return Next::Done;
        }
        if grace_over {
            self.cut(ops, now);
            return Next::Done;
        }
        Next::Wait(self.next_ns(now))
    }

    /// When the next turn is needed, if nothing happens before.
    fn next_ns(&self, now: u64) -> u64 {
        let deadline = self.deadlines.first().map_or(u64::MAX, |id| self.conns[id as usize].link.at_ns);
        let end = match self.stopped_ns {
            None => self.end_ns,
            Some(at) => at.saturating_add(self.spec.grace_ns),
        };
        let feed = match &self.feed {
            Feed::Open { noticing, .. } => noticing.peek().unwrap_or(u64::MAX),
            Feed::Closed { awake, .. } => self.user_due(*awake).unwrap_or(u64::MAX),
        };
        self.recorder.next_ns().min(deadline).min(end).min(feed).max(now)
    }

    /// When a user begins, if it is one of this worker's and the load still runs.
    fn user_due(&self, user: u32) -> Option<u64> {
        let Model::Closed { users } = self.spec.model else { return None };
        if user as usize >= self.conns.len() || self.stopped_ns.is_some() {
            return None;
        }
        let number = self.user_number(user);
        Some((u128::from(self.spec.ramp_ns) * u128::from(number) / u128::from(users)) as u64)
    }

    fn user_number(&self, user: u32) -> u64 {
        self.slot + u64::from(user) * self.spec.threads as u64
    }

    /// Nothing more will begin.
    fn exhausted(&self) -> bool {
        match &self.feed {
            Feed::Closed { awake, budget, .. } => {
                self.stopped_ns.is_some() || *budget == 0 || *awake as usize == self.conns.len()
            }
            // A schedule bounded by time lasts until then, even if nothing more falls due.
            Feed::Open { .. } if self.end_ns != u64::MAX && self.stopped_ns.is_none() => false,
            Feed::Open { noticing, waiting, .. } => noticing.peek().is_none() && *waiting == 0,
        }
    }

    /// Begins what has fallen due.
    fn arrive(&mut self, ops: &mut impl Ops<'r>) {
        match self.feed {
            Feed::Closed { .. } => self.wake_users(ops),
            Feed::Open { .. } => {
                self.notice(ops, STARTS_PER_TURN, u64::MAX);
            }
        }
    }

    fn wake_users(&mut self, ops: &mut impl Ops<'r>) {
        loop {
            let Feed::Closed { awake, .. } = &mut self.feed else { return };
            let user = *awake;
            let now = self.now(ops);
            match self.user_due(user) {
                Some(due) if due <= now => {
                    if let Feed::Closed { awake, .. } = &mut self.feed {
                        *awake += 1;
                    }
                    self.next(ops, user, now);
                }
                _ => return,
            }
        }
    }

    /// Looks at up to `most` requests that have fallen due: starts each, lets it wait or drops it.
    fn notice(&mut self, ops: &mut impl Ops<'r>, most: usize, before_ns: u64) {
        for _ in 0..most {
            let now = self.now(ops);
            let Feed::Open { noticing, starting, backlog, waiting, free, cap, when_behind } = &mut self.feed
            else {
                return;
            };
            if noticing.peek().is_none_or(|due| due > now || due >= before_ns) {
                return;
            }
            let Some((number, due)) = noticing.take() else { return };
            let request = &self.spec.requests[(number % self.spec.requests.len() as u64) as usize];
            self.recorder.due(request, due, now);
            let place = match free.pop() {
                Some(id) => Some(id),
                None if self.conns.len() < *cap => {
                    self.conns.push(Conn::new());
                    Some(self.conns.len() as ConnId - 1)
                }
                None => None,
            };
            match place {
                Some(id) => {
                    starting.take();
                    self.begin(ops, id, number, due, now);
                }
                None if *when_behind == WhenBehind::Drop => {
                    starting.take();
                    self.recorder.dropped(request, due, now);
                }
                None => {
                    *waiting += 1;
                    push_run(backlog, now);
                }
            }
        }
    }

    /// Ends the schedule. What has fallen due and not been looked at still counts; what waits is dropped.
    fn stop(&mut self, ops: &mut impl Ops<'r>, at_ns: u64) {
        self.stopped_ns = Some(at_ns);
        self.recorder.end_window(at_ns);
        if let Feed::Open { .. } = self.feed {
            self.notice(ops, usize::MAX, at_ns);
        }
        let now = self.now(ops);
        let requests = &self.spec.requests;
        if let Feed::Open { noticing, starting, backlog, waiting, .. } = &mut self.feed {
            noticing.stop();
            for _ in 0..*waiting {
                if let Some((number, due)) = starting.take() {
                    let request = &requests[(number % requests.len() as u64) as usize];
                    self.recorder.dropped(request, due, now.max(due));
                }
            }
            *waiting = 0;
            backlog.clear();
        }
    }

    /// Ends the load with requests under way.
    fn cut(&mut self, ops: &mut impl Ops<'r>, now: u64) {
        if self.stopped_ns.is_none() {
            self.stop(ops, now);
        }
        for id in 0..self.conns.len() {
            let conn = &self.conns[id];
            if conn.in_flight() {
                let request = &self.spec.requests[conn.request as usize];
                let times = Times { due_ns: conn.due_ns, started_ns: conn.started_ns, end_ns: now };
                self.recorder.cut(request, times);
            }
            if conn.phase != Phase::Closed {
                self.shut(ops, id as ConnId);
            }
        }
    }

    /// Abandons what has been under way for too long.
    fn expire(&mut self, ops: &mut impl Ops<'r>, now: u64) {
        while let Some(id) = self.deadlines.first() {
            if self.conns[id as usize].link.at_ns > now {
                return;
            }
            self.fail(ops, id, Failure::Timeout, Reason::Words("no complete response within the timeout"));
        }
    }

    /// A place or user is free: what it does next.
    fn next(&mut self, ops: &mut impl Ops<'r>, id: ConnId, now: u64) {
        let requests = self.spec.requests.len() as u64;
        match &mut self.feed {
            Feed::Closed { budget, each, begun, .. } => {
                let conn = &mut self.conns[id as usize];
                if self.stopped_ns.is_some() || now >= self.end_ns || *budget == 0 || conn.begun >= *each {
                    return;
                }
                let number = match self.spec.order {
                    Order::Journey => conn.begun,
                    Order::Shared => self.slot + *begun * self.spec.threads as u64,
                };
                conn.begun += 1;
                *begun += 1;
                *budget -= 1;
                let request = &self.spec.requests[(number % requests) as usize];
                self.recorder.due(request, now, now);
                self.begin(ops, id, number, now, now);
            }
            Feed::Open { starting, backlog, waiting, free, .. } => {
                if *waiting == 0 || self.stopped_ns.is_some() || now >= self.end_ns {
                    free.push(id);
                    return;
                }
                *waiting -= 1;
                let noticed = pop_run(backlog).unwrap_or(now);
                if let Some((number, due)) = starting.take() {
                    self.begin(ops, id, number, due, noticed);
                }
            }
        }
    }

    /// The first action for a request.
    #[inline]
    fn begin(&mut self, ops: &mut impl Ops<'r>, id: ConnId, number: u64, due_ns: u64, noticed_ns: u64) {
        let now = match self.feed {
            // the user is free, and the clock has just been read
            Feed::Closed { .. } => noticed_ns,
            Feed::Open { .. } => self.now(ops),
        };
        let index = (number % self.spec.requests.len() as u64) as u32;
        let request = &self.spec.requests[index as usize];
        self.recorder.started(request, due_ns, noticed_ns, now);
        let conn = &mut self.conns[id as usize];
        (conn.request, conn.due_ns, conn.started_ns) = (index, due_ns, now);
        (conn.resent, conn.answered) = (false, false);
        let (phase, elsewhere) = (conn.phase, conn.host != request.host);
        self.deadlines.push(&mut self.conns, id, now.saturating_add(self.spec.timeout_ns));
        match phase {
            Phase::Idle if !elsewhere => self.transmit(ops, id),
            Phase::Idle => {
                self.shut(ops, id);
                self.connect(ops, id, now);
            }
            _ => self.connect(ops, id, now),
        }
    }

    fn connect(&mut self, ops: &mut impl Ops<'r>, id: ConnId, now: u64) {
        let number = self.user_number(id);
        let conn = &mut self.conns[id as usize];
        let host = self.spec.requests[conn.request as usize].host;
        let addresses = &self.spec.hosts[host as usize];
        // Each place goes through all addresses, and neighbours begin with different ones.
        conn.address = if conn.host == host { conn.address.wrapping_add(1) } else { number as u32 };
        (conn.host, conn.phase, conn.connect_ns) = (host, Phase::Connecting, now);
        let address = addresses[(number as usize + conn.address as usize) % addresses.len()];
        self.recorder.connecting();
        ops.connect(id, &address);
    }

    fn connected(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let now = self.now(ops);
        self.recorder.roll(now);
        let conn = &mut self.conns[id as usize];
        conn.served = 0;
        self.recorder.connected(conn.due_ns, now.saturating_sub(conn.connect_ns));
        self.transmit(ops, id);
    }

    #[inline]
    fn transmit(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        let conn = &mut self.conns[id as usize];
        conn.phase = Phase::Busy;
        conn.reader.reset();
        let bytes: &'r [u8] = &self.spec.requests[conn.request as usize].bytes;
        let sent = ops.send(id, bytes);
        conn.unsent = bytes.len() - sent;
        self.recorder.sent(sent);
    }

    #[inline]
    fn received(&mut self, ops: &mut impl Ops<'r>, id: ConnId, bytes: &[u8], last: bool) {
        let now = self.now(ops);
        self.recorder.roll(now);
        self.recorder.received(bytes.len());
        let conn = &mut self.conns[id as usize];
        if conn.phase != Phase::Busy {
            // Bytes nobody asked for: the connection cannot be trusted to answer the next request.
            return self.shut(ops, id);
        }
        conn.answered = true;
        let request: &'r Request = &self.spec.requests[conn.request as usize];
        match conn.reader.feed(bytes, request.answer_has_no_body, &mut self.memo) {
            Ok(fed) if fed.done => {
                let clean = fed.used == bytes.len() && !last;
                let whole = &bytes[..fed.used];
                if conn.stash.is_some() {
                    self.stash(id, whole, None);
                }
                self.complete(ops, id, now, clean, (whole, fed.head_end));
            }
            Ok(fed) => self.stash(id, bytes, fed.head_end),
            Err(fault) => {
                self.stash(id, bytes, None);
                let failure = match fault {
                    Fault::HeadTooLarge => Failure::TooLarge,
                    Fault::Malformed(_) => Failure::Protocol,
                };
                self.fail(ops, id, failure, Reason::Words(fault.words()));
            }
        }
    }

    /// The response is complete. `clean`: the connection may be used again, as far as its bytes say.
    #[inline]
    fn complete(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: ConnId,
        now: u64,
        clean: bool,
        response: (&[u8], Option<usize>),
    ) {
        let conn = &mut self.conns[id as usize];
        let request: &'r Request = &self.spec.requests[conn.request as usize];
        let Some(head) = conn.reader.head() else { return };
        let keep = clean && head.keep_alive && self.spec.keep_alive && conn.unsent == 0;
        conn.served += 1;
        if keep {
            conn.phase = Phase::Idle;
        } else {
            self.shut(ops, id);
        }
        self.recorder.status(head.status);
        let outcome = judge(request, head.status);
        self.finish(ops, id, now, outcome, (None, response));
    }

    /// The request ended otherwise.
    fn fail(&mut self, ops: &mut impl Ops<'r>, id: ConnId, failure: Failure, reason: Reason) {
        let now = self.now(ops);
        self.recorder.roll(now);
        self.shut(ops, id);
        self.finish(ops, id, now, Outcome::Failed(failure), (Some(reason), (&[], None)));
    }

    /// Counts and keeps, then goes on.
    #[inline]
    fn finish(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: ConnId,
        now: u64,
        outcome: Outcome,
        (error, response): (Option<Reason>, (&[u8], Option<usize>)),
    ) {
        self.deadlines.remove(&mut self.conns, id);
        let conn = &self.conns[id as usize];
        let request: &'r Request = &self.spec.requests[conn.request as usize];
        let times = Times { due_ns: conn.due_ns, started_ns: conn.started_ns, end_ns: now };
        self.recorder.ended(request, times, outcome);
        if self.keeper.wants(request, outcome, now - times.due_ns) {
            self.keep(
                id,
                Exchange {
                    request,
                    address: self.address_of(id),
                    times,
                    outcome,
                    error,
                    user: matches!(self.spec.model, Model::Closed { .. }).then(|| self.user_number(id)),
                    status: conn.reader.head().filter(|_| conn.answered).map(|h| h.status),
                    response,
                },
            );
        }
        self.unstash(id);
        self.next(ops, id, now);
    }

    #[cold]
    fn keep(&mut self, id: ConnId, exchange: Exchange<'_>) {
        let stash = self.conns[id as usize].stash.take();
        let response = stash.as_ref().map_or(exchange.response, |s| (&s.bytes, s.head_end));
        let exchange = Exchange { response, ..exchange };
        let number = self.conns[id as usize].request as usize;
        if let Some(example) = self.keeper.keep(&exchange, number) {
            self.recorder.example(example);
        }
        self.conns[id as usize].stash = stash;
    }

    fn address_of(&self, id: ConnId) -> Option<SocketAddr> {
        let conn = &self.conns[id as usize];
        let addresses = &self.spec.hosts[conn.host as usize];
        let index = self.user_number(id) as usize + conn.address as usize;
        addresses.get(index % addresses.len()).copied()
    }

    /// Keeps the beginning of a response that comes in pieces.
    fn stash(&mut self, id: ConnId, bytes: &[u8], head_end: Option<usize>) {
        let conn = &mut self.conns[id as usize];
        if conn.stash.is_none() {
            if self.stashed == STASHES {
                return;
            }
            self.stashed += 1;
            conn.stash = Some(self.stashes.pop().unwrap_or_default());
        }
        let Some(stash) = &mut conn.stash else { return };
        if stash.bytes.is_empty() {
            stash.head_end = head_end;
        }
        let room = (HEAD_BYTES + BODY_BYTES).saturating_sub(stash.bytes.len());
        stash.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if stash.head_end.is_none() {
            stash.head_end = memchr::memmem::find(&stash.bytes, b"\r\n\r\n").map(|at| at + 4);
        }
    }

    fn unstash(&mut self, id: ConnId) {
        if let Some(mut stash) = self.conns[id as usize].stash.take() {
            stash.bytes.clear();
            stash.head_end = None;
            self.stashed -= 1;
            self.stashes.push(stash);
        }
    }

    /// The peer will send no more (`None`), or the connection broke.
    fn ended(&mut self, ops: &mut impl Ops<'r>, id: ConnId, error: Option<i32>) {
        let conn = &self.conns[id as usize];
        let reason = error.map_or(Reason::Words("connection closed by the server"), Reason::Os);
        match conn.phase {
            Phase::Closed => {}
            Phase::Idle => self.shut(ops, id),
            Phase::Connecting => self.fail(ops, id, Failure::Connect, reason),
            Phase::Busy if error.is_none() && conn.reader.ends_with_connection() => {
                let now = self.now(ops);
                self.recorder.roll(now);
                self.complete(ops, id, now, false, (&[], None));
            }
            Phase::Busy if !conn.answered && conn.served > 0 && !conn.resent && ops.unseen(id) => {
                // The server had closed the idle connection before it saw the request.
                let now = self.now(ops);
                self.shut(ops, id);
                self.recorder.resent();
                self.conns[id as usize].resent = true;
                self.connect(ops, id, now);
            }
            Phase::Busy if conn.answered => self.fail(ops, id, Failure::Truncated, reason),
            Phase::Busy => self.fail(ops, id, Failure::Reset, reason),
        }
    }

    fn shut(&mut self, ops: &mut impl Ops<'r>, id: ConnId) {
        ops.close(id);
        self.conns[id as usize].phase = Phase::Closed;
        self.recorder.closed();
    }
}

/// Ok or not, by its status.
#[inline]
fn judge(request: &Request, status: u16) -> Outcome {
    let ok = match request.ok_statuses.as_slice() {
        [] => status < 400,
        statuses => statuses.contains(&status),
    };
    match status {
        _ if ok => Outcome::Ok,
        500.. => Outcome::Failed(Failure::Http5xx),
        400.. => Outcome::Failed(Failure::Http4xx),
        _ => Outcome::Failed(Failure::Check),
    }
}

impl Feed {
    /// A slot's share, and how many places it begins with.
    fn new(spec: &LoadSpec, place: Place) -> (Feed, u64) {
        match &spec.model {
            Model::Closed { users } => {
                let users = share_of(*users, place);
                let budget = match spec.until {
                    Until::Requests(n) => share_of(n, place),
                    _ => u64::MAX,
                };
                let each = match spec.until {
                    Until::Repeats(n) => n.saturating_mul(spec.requests.len() as u64),
                    _ => u64::MAX,
                };
                (Feed::Closed { awake: 0, budget, each, begun: 0 }, users)
            }
            Model::Open { rate_per_s, arrivals, when_behind, max_in_flight } => {
                let (end_ns, number) = match spec.until {
                    Until::Elapsed(ns) => (ns, u64::MAX),
                    Until::Requests(n) | Until::Repeats(n) => (u64::MAX, n),
                };
                let schedule = Schedule::new(*rate_per_s, spec.ramp_ns, *arrivals, spec.seed)
                    .until(end_ns, number)
                    .share(place.slot, place.slots);
                let feed = Feed::Open {
                    starting: schedule.clone(),
                    noticing: schedule,
                    backlog: VecDeque::new(),
                    waiting: 0,
                    free: Vec::new(),
                    cap: share_of(*max_in_flight, place).max(1) as usize,
                    when_behind: *when_behind,
                };
                (feed, 0)
            }
        }
    }
}

/// One more waits, noticed now.
fn push_run(backlog: &mut VecDeque<(u64, u64)>, noticed_ns: u64) {
    match backlog.back_mut() {
        Some((count, at)) if *at == noticed_ns => *count += 1,
        _ => {
            if backlog.len() >= BACKLOG_RUNS {
                join_runs(backlog);
            }
            backlog.push_back((1, noticed_ns));
        }
    }
}

/// Halves the runs: neighbours become one, noticed when the later one was (blocking is understated by their
/// distance, response times are not touched).
fn join_runs(backlog: &mut VecDeque<(u64, u64)>) {
    let joined = backlog.len() / 2;
    for i in 0..joined {
        let (a, b) = (backlog[2 * i], backlog[2 * i + 1]);
        backlog[i] = (a.0 + b.0, b.1);
    }
    if backlog.len() % 2 == 1 {
        backlog[joined] = backlog[backlog.len() - 1];
        backlog.truncate(joined + 1);
    } else {
        backlog.truncate(joined);
    }
}

/// The one that waits longest: when it was noticed.
fn pop_run(backlog: &mut VecDeque<(u64, u64)>) -> Option<u64> {
    let (count, at) = backlog.front_mut()?;
    let noticed = *at;
    *count -= 1;
    if *count == 0 {
        backlog.pop_front();
    }
    Some(noticed)
}

impl<'r, O: Ops<'r>> Sink<O> for Worker<'r> {
    #[inline]
    fn event(&mut self, ops: &mut O, event: Event<'_>) {
        match event {
            Event::Received { conn, bytes, last } => self.received(ops, conn, bytes, last),
            Event::Connected(conn) => self.connected(ops, conn),
            Event::Sent(conn, bytes) => {
                let unsent = &mut self.conns[conn as usize].unsent;
                *unsent = unsent.saturating_sub(bytes);
                self.recorder.sent(bytes);
            }
            Event::Closed(conn) => self.ended(ops, conn, None),
            Event::Failed(conn, error) => self.ended(ops, conn, Some(error)),
        }
    }
}
