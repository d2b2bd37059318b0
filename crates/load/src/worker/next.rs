//! What a place or user that is free does next: the way from one request to the one that follows. A user thinks, keeps
//! its pace, rests or leaves; a schedule's arrival takes the place; a user that has arrived goes on.

use std::cmp::Reverse;

use loadlab_record::outcome::Outcome;

use crate::io::Ops;
use crate::journey::order::Step;
use crate::journey::script::Trouble;
use crate::measure::examples::Reason;
use crate::spec::{Order, WhenBehind};
use crate::worker::Worker;
use crate::worker::pacer::Feed;
use crate::worker::slots::Phase;

impl<'r> Worker<'r> {
    /// A place or user is free: what it does next.
    pub(crate) fn next(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64) {
        let over = self.stopped_ns.is_some() || now >= self.end_ns;
        match &mut self.feed {
            Feed::Closed(_) => self.user_next(ops, id, now, over),
            Feed::Open(open) => {
                let none = over || open.backlog.len() == 0;
                match &self.journey {
                    None => {}
                    // Where it was redirected to is no arrival of the schedule.
                    Some(journey) if journey.redirected_to(id).is_some() => {
                        let index = self.exchanges[id as usize].request;
                        self.recorder.due(&self.spec.requests[index as usize], now, now);
                        return self.begin(ops, id, index, now, now);
                    }
                    Some(journey) if !journey.has_sessions() => {}
                    Some(journey) if !journey.is_gone(id) => return self.session_next(ops, id, now),
                    Some(_) => self.session_ends(ops, id),
                }
                self.place_free(ops, id, now, none);
            }
        }
    }

    /// A place is free, and takes the arrival that has waited longest, unless there is `none`.
    #[inline]
    fn place_free(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64, none: bool) {
        let Feed::Open(open) = &mut self.feed else { return };
        if none {
            return open.free.push(id);
        }
        let noticed = open.backlog.pop().unwrap_or(now);
        if let Some((number, due)) = open.starting.take() {
            let index = self.request_of(id, number);
            self.arrives(id, number, index);
            self.begin(ops, id, index, due, noticed);
        }
    }

    /// What a schedule's arrival means for the place it has got: new rows for a request, or another user.
    #[inline]
    pub(crate) fn arrives(&mut self, place: u32, number: u64, index: u32) {
        match &mut self.journey {
            None => {}
            Some(journey) if journey.has_sessions() => journey.arrive(place, number, index),
            Some(journey) => journey.take_rows(place),
        }
    }

    /// A user that has arrived is free: its next request falls due when it has thought. It finishes its journey
    /// though the schedule may be over.
    fn session_next(&mut self, ops: &mut impl Ops<'r>, place: u32, now: u64) {
        let last = self.exchanges[place as usize].request;
        let own = self.journey.as_ref().and_then(|j| j.pause_of(place, last));
        let Feed::Open(open) = &mut self.feed else { return };
        let due = now + own.unwrap_or(self.spec.think).draw(&mut open.random);
        if due > now {
            return open.later.push(Reverse((due, place)));
        }
        self.session_begins(ops, place, due, now);
    }

    /// Its next request has fallen due.
    pub(crate) fn session_begins(&mut self, ops: &mut impl Ops<'r>, place: u32, due_ns: u64, now: u64) {
        let Some(journey) = &self.journey else { return };
        let index = journey.request_of(place);
        self.recorder.due(&self.spec.requests[index as usize], due_ns, now);
        self.begin(ops, place, index, due_ns, now);
    }

    /// It leaves, and takes its connection along: the next user in its place makes one of its own.
    fn session_ends(&mut self, ops: &mut impl Ops<'r>, place: u32) {
        if self.multiplex.is_some() {
            return self.leave_streams(ops, place);
        }
        let conn = self.exchanges[place as usize].conn;
        if self.turn.is_none() && self.conns[conn as usize].phase != Phase::Closed {
            self.shut(ops, conn);
        }
    }

    /// A user is free: its next request falls due when it has thought, and when it is active.
    fn user_next(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64, over: bool) {
        if over {
            return self.user_leaves(ops, id, now);
        }
        if self.journey.as_ref().is_some_and(|j| j.is_gone(id)) {
            return self.drop_waiting(id, now);
        }
        if self.spec.pace_ns.is_some() {
            if let Some((number, due)) = self.take_waiting(id) {
                // It was kept by the system, not by us.
                let index = self.request_of(id, number);
                if self.journey.is_some() {
                    self.recorder.due_as(&self.spec.requests[index as usize]);
                }
                self.begin(ops, id, index, due, due);
            }
            return;
        }
        let last = self.exchanges[id as usize].request;
        let own = self.journey.as_ref().and_then(|j| j.pause_of(id, last));
        let Feed::Closed(users) = &mut self.feed else { return };
        if users.budget == 0 || self.exchanges[id as usize].begun >= users.each {
            return;
        }
        let thought = match self.journey.as_ref().and_then(|j| j.redirected_to(id)) {
            Some(_) => now,
            None => now + own.unwrap_or(self.spec.think).draw(&mut users.random),
        };
        match self.active_from(id, thought) {
            Some(due) if due <= now => self.user_begins(ops, id, due, due),
            Some(due) => self.user_later(id, due),
            // It rests for good.
            None => {}
        }
    }

    /// The schedule is over: a user that has something to do when it leaves does it now, without pause.
    fn user_leaves(&mut self, ops: &mut impl Ops<'r>, id: u32, now: u64) {
        let Some(journey) = &mut self.journey else { return };
        if let Some(request_id) = journey.stop_redirect(id) {
            self.recorder.redirected_id(request_id);
        }
        if !journey.is_leaving(id) && !journey.is_gone(id) {
            match journey.in_conversation(id) {
                None => journey.advance(id, Step::Leave),
                // It says goodbye before it leaves.
                Some(left) => journey.advance(id, Step::Ahead(left)),
            };
        }
        if !journey.is_gone(id) {
            self.user_begins(ops, id, now, now);
        }
    }

    /// Something falls due for a user at that time, unless the schedule has ended by then.
    fn user_later(&mut self, id: u32, due_ns: u64) {
        if let Feed::Closed(users) = &mut self.feed
            && due_ns < self.end_ns
        {
            users.later.push(Reverse((due_ns, id)));
        }
    }

    /// A paced user's request falls due: it begins, waits for its user, or is dropped. The next one will fall due a
    /// pace later, whatever becomes of this one.
    pub(crate) fn step_due(&mut self, ops: &mut impl Ops<'r>, id: u32, due_ns: u64, now: u64) {
        let Feed::Closed(users) = &mut self.feed else { return };
        let exchange = &mut self.exchanges[id as usize];
        let number = exchange.begun + exchange.waiting;
        if users.budget == 0 || number >= users.each {
            return;
        }
        if let Some(journey) = &mut self.journey {
            if journey.is_gone(id) || (journey.is_outside(id) && !journey.advance(id, Step::On)) {
                return;
            }
            let at_work = u64::from(exchange.under_way) + exchange.waiting;
            if at_work >= journey.most_left(id) {
                // All that it has to do has fallen due, unless something fails and is tried again.
                return self.leave_out(id, due_ns);
            }
        }
        users.budget -= 1;
        let index = self.request_of(id, number);
        let request = &self.spec.requests[index as usize];
        let exchange = &mut self.exchanges[id as usize];
        let free = !exchange.under_way && exchange.waiting == 0;
        // Which step of a journey it will be depends on how those before it end.
        let untold = self.journey.is_some() && !free && self.spec.pace_when_behind == WhenBehind::Queue;
        self.recorder.due_untold(due_ns, now);
        if !untold {
            self.recorder.due_as(request);
        }
        if free {
            exchange.begun += 1;
            exchange.paced_ns = due_ns;
            exchange.left_out.clear();
            self.begin(ops, id, index, due_ns, now);
        } else if self.spec.pace_when_behind == WhenBehind::Drop {
            exchange.begun += 1;
            self.recorder.dropped(request, due_ns, now);
        } else {
            exchange.waiting += 1;
        }
        if let Some(due) = self.paced_after(id, due_ns) {
            self.user_later(id, due);
        }
    }

    /// Nothing falls due for a paced user at that time, which what waits or will wait must not be dated by.
    fn leave_out(&mut self, id: u32, due_ns: u64) {
        let last_run = self.exchanges[id as usize].left_out.last().map(|(_, last)| *last);
        let goes_on = last_run.is_some_and(|last| self.paced_after(id, last) == Some(due_ns));
        let exchange = &mut self.exchanges[id as usize];
        match exchange.left_out.last_mut() {
            Some((_, last)) if goes_on => *last = due_ns,
            _ if exchange.waiting == 0 => exchange.paced_ns = due_ns,
            _ => exchange.left_out.push((due_ns, due_ns)),
        }
        if let Some(due) = self.paced_after(id, due_ns) {
            self.user_later(id, due);
        }
    }

    /// When a paced user's request falls due after one that did then.
    fn paced_after(&self, id: u32, due_ns: u64) -> Option<u64> {
        self.active_from(id, due_ns.saturating_add(self.spec.pace_ns?))
    }

    /// Takes the oldest request that waits for a paced user: its number in the user's journey, and when it fell due.
    pub(crate) fn take_waiting(&mut self, id: u32) -> Option<(u64, u64)> {
        let exchange = &self.exchanges[id as usize];
        if exchange.waiting == 0 {
            return None;
        }
        // Nothing was dropped while something waits: it fell due right after the last one that began, but for what was left
        // out.
        let mut due = self.paced_after(id, exchange.paced_ns)?;
        if let Some((first, last)) = exchange.left_out.first()
            && *first == due
        {
            due = self.paced_after(id, *last)?;
            self.exchanges[id as usize].left_out.remove(0);
        }
        let exchange = &mut self.exchanges[id as usize];
        exchange.waiting -= 1;
        exchange.begun += 1;
        exchange.paced_ns = due;
        Some((exchange.begun - 1, due))
    }

    /// What waits for a user has nobody to do it any more.
    pub(crate) fn drop_waiting(&mut self, id: u32, now: u64) {
        while let Some((number, due)) = self.take_waiting(id) {
            // Whoever is gone is behind its last request.
            let index = (self.request_of(id, number) as usize).min(self.spec.requests.len() - 1);
            let request = &self.spec.requests[index];
            if self.journey.is_some() {
                self.recorder.due_as(request);
            }
            self.recorder.dropped(request, due, now.max(due));
        }
    }

    /// A user's next request, which fell due and was noticed at these times.
    pub(crate) fn user_begins(&mut self, ops: &mut impl Ops<'r>, id: u32, due_ns: u64, noticed_ns: u64) {
        let Feed::Closed(users) = &mut self.feed else { return };
        if users.budget == 0 {
            return;
        }
        if let Some(journey) = &mut self.journey
            && journey.is_outside(id)
            && !journey.advance(id, Step::On)
        {
            return;
        }
        let exchange = &mut self.exchanges[id as usize];
        let number = match self.spec.order {
            Order::Journey => exchange.begun,
            Order::Shared => users.number,
        };
        exchange.begun += 1;
        users.number += 1;
        users.budget -= 1;
        let index = self.request_of(id, number);
        self.recorder.due(&self.spec.requests[index as usize], due_ns, noticed_ns);
        self.begin(ops, id, index, due_ns, noticed_ns);
    }

    /// A step of a journey has ended: what it means for its user's way.
    pub(crate) fn end_step(&mut self, id: u32, outcome: Outcome, error: Option<Reason>) {
        let stands = self.talk_stands(id);
        let exchange = &mut self.exchanges[id as usize];
        let Some(journey) = &mut self.journey else { return };
        if let Some(kept) = exchange.kept.take() {
            journey.give_back(kept);
        }
        if outcome == Outcome::Ok && journey.redirected_to(id).is_some() {
            return;
        }
        if let Some(request_id) = journey.stop_redirect(id) {
            self.recorder.redirected_id(request_id);
        }
        if matches!(self.feed, Feed::Open(_)) && !journey.has_sessions() {
            return;
        }
        let step = match (outcome, error) {
            (Outcome::Ok, _) => Step::On,
            // What follows may need what is missing.
            (_, Some(Reason::Script(Trouble::Unwritten(_) | Trouble::NotText | Trouble::Capture(..)))) => {
                Step::EndRound
            }
            _ => journey.script(exchange.request).on_failure,
        };
        let left = journey.talk(exchange.request).map_or(0, |talk| talk.left);
        let step = match step {
            Step::On if left > 0 && (outcome == Outcome::Ok || stands) => Step::Ahead(1),
            // Without a connection nothing more can be said.
            Step::On => Step::Past(left),
            other => other,
        };
        journey.advance(id, step);
    }
}
