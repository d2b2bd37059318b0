//! The end of a schedule: due requests are counted, waiting ones are dropped, users run their final steps.

use std::cmp::Reverse;

use crate::io::Ops;
use crate::journey::order::Advance;
use crate::measure::own_usage::ThreadUse;
use crate::measure::recorder::Times;
use crate::worker::dispatch::STARTS_PER_TURN;
use crate::worker::pacer::Pacer;
use crate::worker::state::slots::Fact;
use crate::worker::state::{NONE, SlotId};
use crate::worker::{Stopped, Worker};

impl<'r> Worker<'r> {
    /// Whether nothing more will begin.
    pub(super) fn exhausted(&self) -> bool {
        match &self.pacer {
            // A load bounded by time lasts until then, even if nothing more falls due.
            _ if self.end_ns != u64::MAX && self.stopped.is_none() => false,
            Pacer::Closed(users) if users.leaving.is_some() => false,
            Pacer::Closed(users) => {
                let none_left = users.awake as usize == self.slots.exchanges.len() && users.later.is_empty();
                self.stopped.is_some() || users.budget == 0 || none_left
            }
            Pacer::Open(open) => {
                open.noticing.peek().is_none() && open.backlog.len() == 0 && open.later.is_empty()
            }
        }
    }

    /// Ends the schedule. Requests that have fallen due but were not handled yet still count; waiting ones are dropped.
    pub(super) fn stop(&mut self, ops: &mut impl Ops<'r>, at_ns: u64) {
        // Requests in flight have times, but are in no rate: the planned load ends here.
        self.measure.recorder.end_window(at_ns);
        let stopped = Some(Stopped { at_ns, used: ThreadUse::now() });
        if let Pacer::Open(open) = &mut self.pacer {
            self.stopped = stopped;
            // Do not open connections by the thousand now.
            open.cap = open.cap.min(self.slots.exchanges.len() + STARTS_PER_TURN);
            self.notice(ops, usize::MAX, STARTS_PER_TURN, at_ns);
        }
        self.stop_users(ops, at_ns);
        self.stopped = stopped;
        let now = self.now(ops);
        let spec = self.spec;
        while let Pacer::Open(open) = &mut self.pacer {
            open.noticing.stop();
            let waiting = open.backlog.pop().and_then(|_| open.starting.take());
            let Some((number, due)) = waiting else { break };
            let index = self.request_of(NONE, number);
            self.measure.recorder.dropped(&spec.requests[index as usize], due, now.max(due));
        }
    }

    /// As `stop`, for users: those who think or rest are left alone. For paced users, requests that have fallen due but
    /// were not handled yet still count, and those that wait for their user are dropped.
    fn stop_users(&mut self, ops: &mut impl Ops<'r>, at_ns: u64) {
        while self.spec.pace_ns.is_some() {
            let Pacer::Closed(users) = &mut self.pacer else { return };
            let Some(Reverse((due, user))) = users.later.pop().filter(|Reverse((due, _))| *due < at_ns)
            else {
                break;
            };
            let now = self.now(ops);
            self.handle_paced_due(ops, user, due, now);
        }
        let Pacer::Closed(users) = &mut self.pacer else { return };
        users.later.clear();
        let now = self.now(ops);
        for user in 0..self.slots.exchanges.len() as u32 {
            self.drop_waiting(user, now);
        }
        if let Pacer::Closed(users) = &mut self.pacer
            && self.journey.is_some()
        {
            users.leaving = Some(0);
        }
    }

    /// Lets idle users run their final steps; a few per turn, or users who leave would keep each other waiting.
    pub(super) fn leave_some(&mut self, ops: &mut impl Ops<'r>) {
        let Some(from) = self.pacer.leaving() else { return };
        let all = self.slots.exchanges.len() as u32;
        let to = all.min(from.saturating_add(STARTS_PER_TURN as u32));
        for user in from..to {
            let now = self.now(ops);
            self.leave(ops, user, now);
        }
        if let Pacer::Closed(users) = &mut self.pacer {
            users.leaving = Some(to).filter(|to| *to < all);
        }
    }

    /// Lets an idle user run its final steps.
    fn leave(&mut self, ops: &mut impl Ops<'r>, user: u32, now: u64) {
        let idle = !self.slots.exchanges[user as usize].is(Fact::UnderWay);
        if idle && self.journey.as_ref().is_some_and(|j| !j.is_outside(user) && !j.is_gone(user)) {
            self.next(ops, user, now);
        }
    }

    /// Ends the load, cutting off requests in flight.
    pub(super) fn cut(&mut self, ops: &mut impl Ops<'r>, now: u64) {
        if self.stopped.is_none() {
            self.stop(ops, now);
        }
        // Stopping takes time, and may have begun the users' final steps.
        let now = self.now(ops).max(now);
        for (slot, exchange) in (0..).zip(&self.slots.exchanges).filter(|(_, e)| e.is(Fact::UnderWay)) {
            let request = &self.spec.requests[exchange.request as usize];
            let times = Times { due_ns: exchange.due_ns, started_ns: exchange.started_ns, end_ns: now };
            self.measure.recorder.cut(request, times);
            if let Some(journey) = self.journey.as_ref().filter(|_| exchange.is(Fact::HasId)) {
                self.measure.recorder.cut_id(journey.id_of(slot));
            }
        }
    }

    /// The schedule is over: a user with final steps runs them now, without pauses.
    pub(super) fn send_user_away(&mut self, ops: &mut impl Ops<'r>, id: SlotId, now: u64) {
        let Some(journey) = &mut self.journey else { return };
        // A final step that was redirected goes on there.
        if journey.is_leaving(id) && journey.redirected_to(id).is_some() {
            return self.begin_user_request(ops, id, now, now);
        }
        if let Some(request_id) = journey.stop_redirect(id) {
            self.measure.recorder.redirected_id(request_id);
        }
        if !journey.is_leaving(id) && !journey.is_gone(id) {
            match journey.in_conversation(id) {
                None => journey.advance(id, Advance::Leave),
                // The user closes its conversation before it leaves.
                Some(left) => journey.advance(id, Advance::Ahead(left)),
            };
        }
        if !journey.is_gone(id) {
            self.begin_user_request(ops, id, now, now);
        }
    }
}
