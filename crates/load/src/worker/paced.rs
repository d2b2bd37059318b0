//! Paced users: their requests fall due at an interval, and wait or are dropped while their user is busy.

use loadlab_record::spec::schedule::WhenBehind;

use crate::io::Ops;
use crate::journey::order::Advance;
use crate::worker::Worker;
use crate::worker::pacer::Pacer;
use crate::worker::state::SlotId;
use crate::worker::state::slots::{Fact, SkippedRun};

impl<'r> Worker<'r> {
    /// A paced user's request falls due: it begins, waits for its user, or is dropped. The next one falls due one pace
    /// later, whatever happens to this one.
    pub(crate) fn handle_paced_due(&mut self, ops: &mut impl Ops<'r>, id: SlotId, due_ns: u64, now: u64) {
        let Pacer::Closed(users) = &mut self.pacer else { return };
        let (exchange, paced) = (&self.slots.exchanges[id as usize], &self.slots.paced[id as usize]);
        let number = exchange.begun + paced.waiting;
        if users.budget == 0 || number >= users.each {
            return;
        }
        if let Some(journey) = &mut self.journey {
            if journey.is_gone(id) || (journey.is_outside(id) && !journey.advance(id, Advance::On)) {
                return;
            }
            let at_work = u64::from(exchange.is(Fact::UnderWay)) + paced.waiting;
            if at_work >= journey.most_left(id) {
                // Everything the user has to do has fallen due, unless something fails and is retried.
                return self.skip_due(id, due_ns);
            }
        }
        users.budget -= 1;
        let index = self.request_of(id, number);
        let request = &self.spec.requests[index as usize];
        let (exchange, paced) = (&mut self.slots.exchanges[id as usize], &mut self.slots.paced[id as usize]);
        let free = !exchange.is(Fact::UnderWay) && paced.waiting == 0;
        // Which step of a journey it will be depends on how the earlier steps end.
        let unclassified = self.journey.is_some() && !free && self.spec.pace_when_behind == WhenBehind::Queue;
        self.measure.recorder.due_unclassified(due_ns, now);
        if !unclassified {
            self.measure.recorder.count_due_tags(request);
        }
        if free {
            exchange.begun += 1;
            paced.due_ns = due_ns;
            paced.skipped.clear();
            self.begin(ops, id, index, due_ns, now);
        } else if self.spec.pace_when_behind == WhenBehind::Drop {
            exchange.begun += 1;
            self.measure.recorder.dropped(request, due_ns, now);
        } else {
            paced.waiting += 1;
        }
        if let Some(due) = self.paced_after(id, due_ns) {
            self.schedule_user(id, due);
        }
    }

    /// Records that nothing falls due for a paced user at that time: waiting requests, now or later, must not be dated
    /// to it.
    fn skip_due(&mut self, id: SlotId, due_ns: u64) {
        let last_run = self.slots.paced[id as usize].skipped.last();
        let goes_on = last_run.is_some_and(|run| self.paced_after(id, run.last_ns) == Some(due_ns));
        let paced = &mut self.slots.paced[id as usize];
        match paced.skipped.last_mut() {
            Some(run) if goes_on => run.last_ns = due_ns,
            _ if paced.waiting == 0 => paced.due_ns = due_ns,
            _ => paced.skipped.push(SkippedRun { first_ns: due_ns, last_ns: due_ns }),
        }
        if let Some(due) = self.paced_after(id, due_ns) {
            self.schedule_user(id, due);
        }
    }

    /// When a paced user's next request falls due after one due at `due_ns`.
    fn paced_after(&self, id: SlotId, due_ns: u64) -> Option<u64> {
        self.active_from(id, due_ns.saturating_add(self.spec.pace_ns?))
    }

    /// Takes the oldest request waiting for a paced user: its number in the user's journey, and when it fell due.
    pub(crate) fn take_waiting(&mut self, id: SlotId) -> Option<(u64, u64)> {
        let paced = self.slots.paced.get(id as usize).filter(|paced| paced.waiting > 0)?;
        // Nothing is dropped while requests wait, so this one fell due right after the last one that began, apart from
        // the times skipped.
        let mut due = self.paced_after(id, paced.due_ns)?;
        if let Some(run) = paced.skipped.first()
            && run.first_ns == due
        {
            due = self.paced_after(id, run.last_ns)?;
            self.slots.paced[id as usize].skipped.remove(0);
        }
        let (exchange, paced) = (&mut self.slots.exchanges[id as usize], &mut self.slots.paced[id as usize]);
        paced.waiting -= 1;
        paced.due_ns = due;
        exchange.begun += 1;
        Some((exchange.begun - 1, due))
    }

    /// Drops the requests that wait for a user that will not send them any more.
    pub(crate) fn drop_waiting(&mut self, id: SlotId, now: u64) {
        while let Some((number, due)) = self.take_waiting(id) {
            // A user that is gone is past its last request.
            let index = (self.request_of(id, number) as usize).min(self.spec.requests.len() - 1);
            let request = &self.spec.requests[index];
            if self.journey.is_some() {
                self.measure.recorder.count_due_tags(request);
            }
            self.measure.recorder.dropped(request, due, now.max(due));
        }
    }
}
