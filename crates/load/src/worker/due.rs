//! What has fallen due in a turn: users that begin or go on, and a schedule's requests, each of which is started, waits or is
//! dropped.

use std::cmp::Reverse;

use crate::io::Ops;
use crate::spec::WhenBehind;
use crate::worker::Worker;
use crate::worker::pacer::Feed;
use crate::worker::slots::Exchange;
use crate::worker::timeouts::NONE;

/// Requests started in one turn before events are looked at again.
pub(crate) const STARTS_PER_TURN: usize = 64;
/// Connections opened in one turn because a schedule's request finds none at rest. Between them answers are looked at,
/// which set others free: whoever opens one for each that has fallen due meanwhile is behind by more of them afterwards.
const OPENS_PER_TURN: usize = 1;

impl<'r> Worker<'r> {
    /// Begins what has fallen due.
    pub(crate) fn arrive(&mut self, ops: &mut impl Ops<'r>) {
        match self.feed {
            Feed::Closed(_) => {
                self.wake_users(ops);
                self.resume_users(ops);
            }
            Feed::Open(_) => {
                self.resume_sessions(ops);
                self.notice(ops, (STARTS_PER_TURN, OPENS_PER_TURN), u64::MAX);
            }
        }
    }

    /// Goes on with users that have arrived and thought.
    fn resume_sessions(&mut self, ops: &mut impl Ops<'r>) {
        for _ in 0..STARTS_PER_TURN {
            let now = self.now(ops);
            let Feed::Open(open) = &mut self.feed else { return };
            if open.later.peek().is_none_or(|Reverse((due, _))| *due > now) {
                return;
            }
            let Some(Reverse((due, place))) = open.later.pop() else { return };
            self.session_begins(ops, place, due, now);
        }
    }

    /// Lets users begin; a few in a turn, or the answers of the first would wait for the connects of the last.
    fn wake_users(&mut self, ops: &mut impl Ops<'r>) {
        for _ in 0..STARTS_PER_TURN {
            let Feed::Closed(users) = &self.feed else { return };
            let user = users.awake;
            if user as usize == self.exchanges.len() {
                return;
            }
            let now = self.now(ops);
            let Some(due) = self.user_due(user).filter(|due| *due <= now) else { return };
            if let Feed::Closed(users) = &mut self.feed {
                users.awake += 1;
            }
            self.user_due_now(ops, user, due, now);
        }
    }

    /// Goes on with users whose next request has fallen due.
    fn resume_users(&mut self, ops: &mut impl Ops<'r>) {
        for _ in 0..STARTS_PER_TURN {
            let Feed::Closed(users) = &self.feed else { return };
            let Some(Reverse((due, _))) = users.later.peek() else { return };
            let now = self.now(ops);
            if *due > now {
                return;
            }
            let Feed::Closed(users) = &mut self.feed else { return };
            if let Some(Reverse((due, user))) = users.later.pop() {
                self.user_due_now(ops, user, due, now);
            }
        }
    }

    /// A user's next request has fallen due: a paced one may be busy, any other is free.
    fn user_due_now(&mut self, ops: &mut impl Ops<'r>, user: u32, due_ns: u64, now: u64) {
        if self.spec.pace_ns.is_some() {
            return self.step_due(ops, user, due_ns, now);
        }
        if now < self.end_ns {
            // Where users send as soon as they are free, due and started are one moment.
            let due_ns = if self.as_due { now } else { due_ns };
            self.user_begins(ops, user, due_ns, now);
        }
    }

    /// Looks at up to `most` requests that have fallen due: starts each, lets it wait or drops it. One that would be the
    /// next to open a connection after so many is left for the next turn, and is late until then.
    pub(crate) fn notice(
        &mut self,
        ops: &mut impl Ops<'r>,
        (most, mut opens): (usize, usize),
        before_ns: u64,
    ) {
        for _ in 0..most {
            let now = self.now(ops);
            let has_conns = self.turn.is_some() || self.multiplex.is_some();
            let Feed::Open(open) = &mut self.feed else { return };
            if open.noticing.peek().is_none_or(|due| due > now || due >= before_ns) {
                return;
            }
            let is_new = !has_conns && open.free.is_empty() && self.exchanges.len() < open.cap;
            if is_new && opens == 0 {
                return;
            }
            opens -= usize::from(is_new);
            let Some((number, due)) = open.noticing.take() else { return };
            let index = self.request_of(NONE, number);
            let request = &self.spec.requests[index as usize];
            self.recorder.due(request, due, now);
            let Feed::Open(open) = &mut self.feed else { return };
            // Nobody overtakes: at the schedule's end places get free while others still wait.
            let free = if open.backlog.len() == 0 { open.free.pop() } else { None };
            match free {
                Some(id) => {
                    open.starting.take();
                    self.arrives(id, number, index);
                    self.begin(ops, id, index, due, now);
                }
                None if self.exchanges.len() < open.cap => {
                    open.starting.take();
                    let id = self.new_place();
                    self.arrives(id, number, index);
                    self.begin(ops, id, index, due, now);
                }
                None if open.when_behind == WhenBehind::Drop => {
                    open.starting.take();
                    self.recorder.dropped(request, due, now);
                }
                None => open.backlog.push(now),
            }
        }
    }

    /// One more request may be in flight than ever before.
    fn new_place(&mut self) -> u32 {
        let id = self.exchanges.len() as u32;
        if let Some(multiplex) = &self.multiplex {
            let conns = multiplex.connections_of(id);
            self.exchanges.push(Exchange::new(conns.start));
            self.make_places(conns.end - 1);
        } else if self.turn.is_some() {
            self.exchanges.push(Exchange::new(NONE));
        } else {
            self.make_places(id);
            self.exchanges.push(Exchange::new(id));
        }
        let number = self.number_of(id);
        if let Some(journey) = &mut self.journey {
            journey.add(number);
        }
        id
    }
}
