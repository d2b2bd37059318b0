//! Which request a slot takes on, and when: what falls due in a turn, and what a free slot or user does next.
//! In the closed model a slot is a user: it thinks, keeps its pace, rests or leaves. In the open model a schedule's
//! arrivals take slots; an arrival that is a user keeps its slot to the end of its journey.

use std::cmp::Reverse;

use loadlab_record::counts::outcome::Outcome;
use loadlab_record::spec::schedule::{Think, WhenBehind};

use crate::io::Ops;
use crate::journey::failure::StepFailure;
use crate::journey::order::Advance;
use crate::measure::examples::Reason;
use crate::random::Random;
use crate::schedule::think;
use crate::spec::RequestOrder;
use crate::worker::Worker;
use crate::worker::pacer::Pacer;
use crate::worker::state::slots::Exchange;
use crate::worker::state::{Mode, NONE, SlotId};

/// Most requests started in one turn before events are handled again.
pub(crate) const STARTS_PER_TURN: usize = 64;
/// Most connections opened in one turn because a scheduled request finds none idle. Connecting costs more than a
/// request: one connection per overdue request would make the backlog grow, while responses free connections.
const OPENS_PER_TURN: usize = 1;

impl<'r> Worker<'r> {
    /// Starts requests that have fallen due.
    pub(crate) fn arrive(&mut self, ops: &mut impl Ops<'r>) {
        match self.pacer {
            Pacer::Closed(_) => {
                self.wake_users(ops);
                self.resume_users(ops);
            }
            Pacer::Open(_) => {
                self.resume_sessions(ops);
                self.notice(ops, STARTS_PER_TURN, OPENS_PER_TURN, u64::MAX);
            }
        }
    }

    /// Continues users that have arrived and finished thinking.
    fn resume_sessions(&mut self, ops: &mut impl Ops<'r>) {
        for _ in 0..STARTS_PER_TURN {
            let now = self.now(ops);
            let Pacer::Open(open) = &mut self.pacer else { return };
            if open.later.peek().is_none_or(|Reverse((due, _))| *due > now) {
                return;
            }
            let Some(Reverse((due, slot))) = open.later.pop() else { return };
            self.begin_session_request(ops, slot, due, now);
        }
    }

    /// Lets users begin; a few per turn, or the responses of the first would wait for the connects of the last.
    fn wake_users(&mut self, ops: &mut impl Ops<'r>) {
        for _ in 0..STARTS_PER_TURN {
            let Pacer::Closed(users) = &self.pacer else { return };
            let user = users.awake;
            if user as usize == self.slots.exchanges.len() {
                return;
            }
            let now = self.now(ops);
            let Some(due) = self.user_due(user).filter(|due| *due <= now) else { return };
            if let Pacer::Closed(users) = &mut self.pacer {
                users.awake += 1;
            }
            self.handle_user_due(ops, user, due, now);
        }
    }

    /// Continues users whose next request has fallen due.
    fn resume_users(&mut self, ops: &mut impl Ops<'r>) {
        for _ in 0..STARTS_PER_TURN {
            let Pacer::Closed(users) = &self.pacer else { return };
            let Some(Reverse((due, _))) = users.later.peek() else { return };
            let now = self.now(ops);
            if *due > now {
                return;
            }
            let Pacer::Closed(users) = &mut self.pacer else { return };
            if let Some(Reverse((due, user))) = users.later.pop() {
                self.handle_user_due(ops, user, due, now);
            }
        }
    }

    /// A user's next request has fallen due: a paced user may be busy, any other is free.
    fn handle_user_due(&mut self, ops: &mut impl Ops<'r>, user: u32, due_ns: u64, now: u64) {
        if self.spec.pace_ns.is_some() {
            return self.handle_paced_due(ops, user, due_ns, now);
        }
        if now < self.end_ns {
            // Where users send as soon as they are free, due and started are the same moment.
            let due_ns = if self.sends_when_free { now } else { due_ns };
            self.begin_user_request(ops, user, due_ns, now);
        }
    }

    /// Handles up to `most` requests that have fallen due: starts, queues or drops each. A request that would open a
    /// connection beyond the first `opens` is left for the next turn, and is late until then.
    pub(crate) fn notice(&mut self, ops: &mut impl Ops<'r>, most: usize, mut opens: usize, before_ns: u64) {
        for _ in 0..most {
            let now = self.now(ops);
            let has_conns = self.conns.round_robin.is_some() || self.mode == Mode::Http2;
            let Pacer::Open(open) = &mut self.pacer else { return };
            if open.noticing.peek().is_none_or(|due| due > now || due >= before_ns) {
                return;
            }
            let is_new = !has_conns && open.free.is_empty() && self.slots.exchanges.len() < open.cap;
            if is_new && opens == 0 {
                return;
            }
            opens -= usize::from(is_new);
            let Some((number, due)) = open.noticing.take() else { return };
            let index = self.request_of(NONE, number);
            let request = &self.spec.requests[index as usize];
            self.measure.recorder.due(request, due, now);
            let Pacer::Open(open) = &mut self.pacer else { return };
            // No overtaking: at the schedule's end slots become free while earlier arrivals still wait.
            let free = if open.backlog.len() == 0 { open.free.pop() } else { None };
            let is_full = free.is_none() && self.slots.exchanges.len() >= open.cap;
            // When the load stops there are fewer slots than the cap allows.
            if is_full && self.stopped.is_none() {
                self.measure.recorder.held_back();
            }
            if is_full && open.when_behind == WhenBehind::Queue {
                open.backlog.push(now);
                continue;
            }
            open.starting.take();
            if is_full {
                self.measure.recorder.dropped(request, due, now);
            } else {
                let slot = free.unwrap_or_else(|| self.new_slot());
                self.start_arrival(ops, slot, (number, index), due, now);
            }
        }
    }

    /// Starts the request of an arrival, given by its number and its index, in a free slot.
    #[inline]
    fn start_arrival(
        &mut self,
        ops: &mut impl Ops<'r>,
        slot: SlotId,
        (number, index): (u64, u32),
        due_ns: u64,
        noticed_ns: u64,
    ) {
        if let Some(journey) = &mut self.journey {
            journey.assign_arrival(slot, number, index);
        }
        self.begin(ops, slot, index, due_ns, noticed_ns);
    }

    /// Adds a slot, as one more request is in flight than ever before.
    fn new_slot(&mut self) -> u32 {
        let id = self.slots.exchanges.len() as u32;
        if self.mode == Mode::Http2 {
            let conns = self.streams.connections_of(id);
            self.slots.exchanges.push(Exchange::new(conns.start));
            self.conns.reserve(conns.end - 1);
        } else if self.conns.round_robin.is_some() {
            self.slots.exchanges.push(Exchange::new(NONE));
        } else {
            self.conns.reserve(id);
            self.slots.exchanges.push(Exchange::new(id));
        }
        if let Some(journey) = &mut self.journey {
            journey.add();
        }
        id
    }

    /// A slot or user is free: decides what it does next.
    pub(crate) fn next(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64) {
        let over = self.stopped.is_some() || now >= self.end_ns;
        match &mut self.pacer {
            Pacer::Closed(_) => self.user_next(ops, id, now, over),
            Pacer::Open(open) => {
                let none = over || open.backlog.len() == 0;
                match &self.journey {
                    None => {}
                    // A redirected request is not an arrival of the schedule.
                    Some(journey) if journey.redirected_to(id).is_some() => {
                        let index = self.slots.exchanges[id as usize].request;
                        self.measure.recorder.due(&self.spec.requests[index as usize], now, now);
                        return self.begin(ops, id, index, now, now);
                    }
                    Some(journey) if !journey.has_sessions() => {}
                    Some(journey) if !journey.is_gone(id) => return self.continue_session(ops, id, now),
                    Some(_) => self.end_session(ops, id),
                }
                self.reuse_slot(ops, id, now, none);
            }
        }
    }

    /// A slot is free, and takes the arrival that has waited longest, unless `none`.
    #[inline]
    fn reuse_slot(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64, none: bool) {
        let Pacer::Open(open) = &mut self.pacer else { return };
        if none {
            return open.free.push(id);
        }
        let noticed = open.backlog.pop().unwrap_or(now);
        if let Some((number, due)) = open.starting.take() {
            let index = self.request_of(id, number);
            self.start_arrival(ops, id, (number, index), due, noticed);
        }
    }

    /// A user that has arrived is free: its next request falls due once it has thought. It finishes its journey even if
    /// the schedule is over.
    fn continue_session(&mut self, ops: &mut impl Ops<'r>, slot: SlotId, now: u64) {
        let last = self.slots.exchanges[slot as usize].request;
        let due = now + self.think_ns(slot, last);
        let Pacer::Open(open) = &mut self.pacer else { return };
        if due > now {
            return open.later.push(Reverse((due, slot)));
        }
        self.begin_session_request(ops, slot, due, now);
    }

    /// Starts the next request of a user that has arrived.
    fn begin_session_request(&mut self, ops: &mut impl Ops<'r>, slot: SlotId, due_ns: u64, now: u64) {
        let Some(journey) = &self.journey else { return };
        let index = journey.request_of(slot);
        self.measure.recorder.due(&self.spec.requests[index as usize], due_ns, now);
        self.begin(ops, slot, index, due_ns, now);
    }

    /// A user that has arrived leaves and closes its connection: the next user in its slot opens another.
    fn end_session(&mut self, ops: &mut impl Ops<'r>, slot: SlotId) {
        if self.mode == Mode::Http2 {
            return self.leave_streams(ops, slot);
        }
        let conn = self.slots.exchanges[slot as usize].conn;
        if self.conns.round_robin.is_none() && !self.conns.table[conn as usize].is_closed() {
            self.close(ops, conn);
        }
    }

    /// How long a user thinks after a request: drawn from the user's own random numbers, so that the thread or machine
    /// it is on does not matter.
    fn think_ns(&mut self, id: SlotId, last: u32) -> u64 {
        let Some(journey) = &mut self.journey else {
            // Most users do not think, and need no random numbers.
            if self.spec.think == Think::None {
                return 0;
            }
            let user = Random::of(self.spec.seed ^ 0x5eed_0002, self.share.number_of(id));
            return think::draw(self.spec.think, &mut user.skip(self.slots.exchanges[id as usize].begun));
        };
        let think = journey.pause_of(id, last).unwrap_or(self.spec.think);
        think::draw(think, journey.random_of(id))
    }

    /// A user is free: its next request falls due once it has thought and is active.
    fn user_next(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64, over: bool) {
        if over {
            return self.send_user_away(ops, id, now);
        }
        if self.journey.as_ref().is_some_and(|j| j.is_gone(id)) {
            return self.drop_waiting(id, now);
        }
        if self.spec.pace_ns.is_some() {
            if let Some((number, due)) = self.take_waiting(id) {
                // Delayed by the system, not by the generator.
                let index = self.request_of(id, number);
                if self.journey.is_some() {
                    self.measure.recorder.count_due_tags(&self.spec.requests[index as usize]);
                }
                self.begin(ops, id, index, due, due);
            }
            return;
        }
        let last = self.slots.exchanges[id as usize].request;
        let Pacer::Closed(users) = &self.pacer else { return };
        if users.budget == 0 || self.slots.exchanges[id as usize].begun >= users.each {
            return;
        }
        let thought = match self.journey.as_ref().and_then(|j| j.redirected_to(id)) {
            Some(_) => now,
            None => now + self.think_ns(id, last),
        };
        match self.active_from(id, thought) {
            Some(due) if due <= now => self.begin_user_request(ops, id, due, due),
            Some(due) => self.schedule_user(id, due),
            // The user rests permanently.
            None => {}
        }
    }

    /// Schedules a user's next request, unless the schedule has ended by then.
    pub(crate) fn schedule_user(&mut self, id: SlotId, due_ns: u64) {
        if let Pacer::Closed(users) = &mut self.pacer
            && due_ns < self.end_ns
        {
            users.later.push(Reverse((due_ns, id)));
        }
    }

    /// Begins a user's next request, which fell due and was noticed at these times.
    pub(crate) fn begin_user_request(
        &mut self,
        ops: &mut impl Ops<'r>,
        id: SlotId,
        due_ns: u64,
        noticed_ns: u64,
    ) {
        let Pacer::Closed(users) = &mut self.pacer else { return };
        if users.budget == 0 {
            return;
        }
        if let Some(journey) = &mut self.journey
            && journey.is_outside(id)
            && !journey.advance(id, Advance::On)
        {
            return;
        }
        let exchange = &mut self.slots.exchanges[id as usize];
        let number = match self.spec.order {
            RequestOrder::Journey => exchange.begun,
            RequestOrder::Shared => users.number,
        };
        exchange.begun += 1;
        users.number += 1;
        users.budget -= 1;
        let index = self.request_of(id, number);
        self.measure.recorder.due(&self.spec.requests[index as usize], due_ns, noticed_ns);
        self.begin(ops, id, index, due_ns, noticed_ns);
    }

    /// A step of a journey has ended: advances its user accordingly.
    pub(crate) fn end_step(&mut self, id: SlotId, outcome: Outcome, error: Option<Reason>) {
        let has_conversation = self.has_conversation(id);
        let exchange = &mut self.slots.exchanges[id as usize];
        let Some(journey) = &mut self.journey else { return };
        if let Some(kept) = exchange.buffered.take() {
            journey.give_back(kept);
        }
        if outcome == Outcome::Ok && journey.redirected_to(id).is_some() {
            return;
        }
        if let Some(request_id) = journey.stop_redirect(id) {
            self.measure.recorder.redirected_id(request_id);
        }
        if matches!(self.pacer, Pacer::Open(_)) && !journey.has_sessions() {
            return;
        }
        let step = match (outcome, error) {
            (Outcome::Ok, _) => Advance::On,
            // Later steps may need the missing value.
            (
                _,
                Some(Reason::Script(
                    StepFailure::Unwritten(_) | StepFailure::NotText | StepFailure::Capture(..),
                )),
            ) => Advance::EndRound,
            _ => journey.script(exchange.request).on_failure,
        };
        let left = journey.conversation(exchange.request).map_or(0, |conversation| conversation.left);
        let step = match step {
            Advance::On if left > 0 && (outcome == Outcome::Ok || has_conversation) => Advance::Ahead(1),
            // Without a connection nothing more can be sent.
            Advance::On => Advance::Past(left),
            other => other,
        };
        journey.advance(id, step);
    }

    /// The index of a request: by its number in a user's own order, in the shared order, or in the schedule's.
    #[inline]
    pub(crate) fn request_of(&self, id: SlotId, number: u64) -> u32 {
        match (&self.journey, &self.pacer) {
            (None, _) => (number % self.spec.requests.len() as u64) as u32,
            (Some(journey), Pacer::Closed(_)) => journey.request_of(id),
            (Some(journey), Pacer::Open(_)) if journey.has_sessions() => {
                journey.step_order().first_of(number, self.spec.seed)
            }
            (Some(journey), Pacer::Open(_)) => journey.step_order().of_number(number, self.spec.seed),
        }
    }

    /// Schedules the paced users that began before this process joined the load: their next requests do not fall due in
    /// the order of users.
    pub(crate) fn join_paced(&mut self) {
        let joins_ns = self.spec.joins.at_ns;
        if self.spec.pace_ns.is_none() || joins_ns == 0 {
            return;
        }
        for user in 0..self.slots.exchanges.len() as u32 {
            if self.active_from(user, 0).is_none_or(|first_ns| first_ns >= joins_ns) {
                return;
            }
            if let Some(due) = self.user_due(user) {
                self.schedule_user(user, due);
            }
            if let Pacer::Closed(users) = &mut self.pacer {
                users.awake = user + 1;
            }
        }
    }

    /// When a user begins, if it is one of this worker's and the load is still running.
    pub(crate) fn user_due(&self, user: u32) -> Option<u64> {
        if user as usize >= self.slots.exchanges.len() || self.stopped.is_some() {
            return None;
        }
        let (first, joins_ns) = (self.active_from(user, 0)?, self.spec.joins.at_ns);
        let due = match self.spec.pace_ns {
            _ if first >= joins_ns => Some(first),
            // Its requests fall due as if it had been here from the start.
            Some(pace_ns) => self.active_from(user, first + (joins_ns - first).div_ceil(pace_ns) * pace_ns),
            None => self.active_from(user, joins_ns),
        };
        due.filter(|due| *due < self.end_ns)
    }

    /// When a user is next active, from `from_ns` on. A user rests while the level is not above its number.
    #[inline]
    pub(crate) fn active_from(&self, user: u32, from_ns: u64) -> Option<u64> {
        let Pacer::Closed(users) = &self.pacer else { return None };
        users.level.active_from(self.share.number_of(user), from_ns)
    }
}
