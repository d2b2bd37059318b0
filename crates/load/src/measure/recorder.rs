//! What one worker counts, in deltas handed over ten times a second.
//!
//! A delta is filled by one thread and then owned by another: no write is shared. Deltas come back empty through a
//! second channel. There are at most [`DELTAS`] of them: if none has come back because the collector gets no CPU time,
//! the worker keeps filling the current delta, which then covers a longer interval. A load thread thus never waits, its
//! memory is bounded, and nothing is lost.

use std::sync::mpsc::{Receiver, Sender};

use loadlab_record::counts::dependence::InOrder;
use loadlab_record::counts::example::Example;
use loadlab_record::counts::load::{OwnLimit, Series};
use loadlab_record::counts::outcome::{Failure, Outcome};
use loadlab_record::text::time::SECOND_NS;

use crate::measure::delta::{DELTA_NS, Delta, Gaps, Gauges, Sizes};
use crate::spec::request::Request;

/// Deltas per worker: the collector may lag two seconds before intervals become longer.
const DELTAS: usize = 20;

/// A full delta waits at most this long for an idle turn.
const MAX_FLUSH_DELAY_NS: u64 = 20_000_000;

/// When a request fell due, was started and ended, on the load's clock.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it fell due.
    pub due_ns: u64,
    /// When its first action began.
    pub started_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// A worker's recorder.
pub struct Recorder {
    delta: Box<Delta>,
    sizes: Sizes,
    /// A complete delta, to be sent in an idle turn.
    waiting: Option<Box<Delta>>,
    next_ns: u64,
    window_from_ns: u64,
    window_to_ns: u64,
    /// Whether users send as soon as they are free: service time is then the response time, and lateness says nothing.
    sends_when_free: bool,
    full: Sender<Box<Delta>>,
    empty: Receiver<Box<Delta>>,
    /// Deltas that came back. The last one is used first: so the same few are used while the collector keeps up, and the
    /// others' histograms take no more memory.
    #[expect(clippy::vec_box, reason = "they move between threads as they are")]
    spare: Vec<Box<Delta>>,
    /// Deltas created so far.
    made: usize,
    /// Requests in flight.
    pub in_flight: u64,
    /// Open connections.
    pub open: u64,
    /// The maximum of both since the last delta.
    peaks: Gauges,
    last_start_ns: u64,
    last_end_ns: u64,
    gaps: Gaps,
    /// The first response times in the window. All its memory is allocated before the load begins.
    in_order: InOrder,
}

/// A recorder's settings.
pub struct Setup {
    /// Capacity of its deltas.
    pub sizes: Sizes,
    /// Start of the window.
    pub window_from_ns: u64,
    /// End of the window for counting events; `u64::MAX` if it ends with the last response.
    pub window_to_ns: u64,
    /// Whether users send as soon as they are free.
    pub sends_when_free: bool,
    /// Channel for full deltas.
    pub full: Sender<Box<Delta>>,
    /// Channel on which empty deltas come back.
    pub empty: Receiver<Box<Delta>>,
}

impl Recorder {
    /// Nothing counted yet.
    pub fn new(setup: Setup) -> Self {
        Recorder {
            delta: Box::new(Delta::new(setup.sizes)),
            sizes: setup.sizes,
            waiting: None,
            next_ns: DELTA_NS,
            window_from_ns: setup.window_from_ns,
            window_to_ns: setup.window_to_ns,
            sends_when_free: setup.sends_when_free,
            full: setup.full,
            empty: setup.empty,
            spare: Vec::with_capacity(DELTAS),
            made: 1,
            in_flight: 0,
            open: 0,
            peaks: Gauges::default(),
            last_start_ns: 0,
            last_end_ns: 0,
            gaps: Gaps::default(),
            in_order: InOrder::with_room(),
        }
    }

    /// When the next delta is due to be handed over.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The load has not begun: everything counted from now on belongs to its first interval.
    pub fn hold(&mut self) {
        self.next_ns = u64::MAX;
    }

    /// The load begins, at zero of its clock, or is joined at `at_ns`: earlier intervals are not reported.
    pub fn begin(&mut self, at_ns: u64) {
        self.delta.from_ns = at_ns / DELTA_NS * DELTA_NS;
        self.next_ns = self.delta.from_ns + DELTA_NS;
    }

    /// Hands over the delta if it is time. Call it before counting an event at `now_ns`.
    #[inline]
    pub fn roll(&mut self, now_ns: u64) {
        if now_ns >= self.next_ns {
            self.end_interval(now_ns);
        }
    }

    /// Ends the interval: hands over the delta if there is another to continue with.
    #[cold]
    fn end_interval(&mut self, now_ns: u64) {
        let from_ns = now_ns / DELTA_NS * DELTA_NS;
        if let Some(until_ns) = self.may_end_at(from_ns)
            && let Some(next) = self.empty_delta()
        {
            self.hand_over(until_ns, next, false);
            self.delta.from_ns = from_ns;
        } else {
            self.delta.is_long = true;
        }
        self.next_ns = from_ns + DELTA_NS;
    }

    /// Where the delta's interval may end, if it may end yet. A delta that extends past the end of its second runs to
    /// the end of a later one: so it merges whole seconds, and no second belongs to two such deltas.
    fn may_end_at(&self, from_ns: u64) -> Option<u64> {
        let is_within = self.delta.from_ns / SECOND_NS == (self.next_ns - 1) / SECOND_NS;
        // Nothing was counted since `next_ns`.
        let end_ns = from_ns / SECOND_NS * SECOND_NS;
        if is_within { Some(self.next_ns) } else { Some(end_ns).filter(|end_ns| *end_ns >= self.next_ns) }
    }

    /// A delta that came back, or a new one while below the limit.
    fn empty_delta(&mut self) -> Option<Box<Delta>> {
        self.spare.extend(self.empty.try_iter());
        self.spare.pop().or_else(|| (self.made < DELTAS).then(|| self.new_delta()))
    }

    fn new_delta(&mut self) -> Box<Delta> {
        self.made += 1;
        Box::new(Delta::new(self.sizes))
    }

    /// Hands over what is left, in the last delta.
    pub fn finish(&mut self, now_ns: u64) {
        let next = self.empty_delta().unwrap_or_else(|| self.new_delta());
        self.delta.in_order = std::mem::take(&mut self.in_order);
        // A load that is joined may be over before that moment.
        self.hand_over(now_ns.max(self.delta.from_ns), next, true);
        self.give_away();
    }

    #[cold]
    fn hand_over(&mut self, until_ns: u64, next: Box<Delta>, last: bool) {
        let mut full = std::mem::replace(&mut self.delta, next);
        full.until_ns = until_ns;
        full.in_flight = self.in_flight;
        full.open = self.open;
        (full.flight_peak, full.connections.peak) = (self.peaks.in_flight, self.peaks.open);
        self.peaks = Gauges { in_flight: self.in_flight, open: self.open };
        full.window_to_ns = self.window_to_ns;
        full.last_start_ns = self.last_start_ns;
        full.last_end_ns = self.last_end_ns;
        full.gaps = self.gaps;
        full.last = last;
        self.give_away();
        self.waiting = Some(full);
    }

    /// Sends the delta that was handed over, in an idle turn or else soon: waking the reader costs microseconds, which
    /// no request should wait for.
    #[inline]
    pub fn flush(&mut self, now_ns: u64, idle: bool) {
        if self
            .waiting
            .as_ref()
            .is_some_and(|full| idle || now_ns >= full.until_ns.saturating_add(MAX_FLUSH_DELAY_NS))
        {
            self.give_away();
        }
    }

    #[cold]
    fn give_away(&mut self) {
        let Some(full) = self.waiting.take() else { return };
        // The receiver is gone only while the load is being torn down; then nothing is left to read the delta.
        let _ = self.full.send(full);
    }

    /// Records that the worker did not run during this time.
    #[cold]
    pub fn gap(&mut self, from_ns: u64, to_ns: u64) {
        let length_ns = to_ns - from_ns;
        self.gaps.count += 1;
        self.gaps.sum_ns += length_ns;
        if length_ns > self.gaps.longest_ns {
            (self.gaps.longest_ns, self.gaps.longest_at_ns) = (length_ns, from_ns);
        }
    }

    /// Periods in which the worker did not run.
    pub fn gaps(&self) -> Gaps {
        self.gaps
    }

    /// Ends the window: nothing from `at_ns` on counts as inside it.
    pub fn end_window(&mut self, at_ns: u64) {
        self.window_to_ns = self.window_to_ns.min(at_ns);
    }

    #[inline]
    fn series(&mut self, due_ns: u64) -> &mut Series {
        match &mut self.delta.before {
            Some(before) if due_ns < self.window_from_ns => before,
            _ => &mut self.delta.window,
        }
    }

    #[inline]
    fn inside(&self, at_ns: u64) -> bool {
        at_ns >= self.window_from_ns && at_ns < self.window_to_ns
    }

    /// Records one of the first response times in the window: they show how autocorrelated the load's response times
    /// are.
    #[inline]
    fn in_order(&mut self, due_ns: u64, response_ns: u64) {
        if due_ns >= self.window_from_ns {
            self.in_order.record(due_ns, response_ns);
        }
    }

    /// Adds the time a request was in flight, and separately the part inside the window.
    #[inline]
    fn busy(&mut self, Times { started_ns, end_ns, .. }: Times) {
        self.delta.busy_ns += end_ns - started_ns;
        let (from_ns, to_ns) = (started_ns.max(self.window_from_ns), end_ns.min(self.window_to_ns));
        self.delta.busy_in_window_ns += to_ns.saturating_sub(from_ns);
    }

    /// Whether a request began before the window's end and ended after it.
    #[inline]
    fn is_straggler(&self, Times { started_ns, end_ns, .. }: Times) -> bool {
        end_ns >= self.window_to_ns && started_ns < self.window_to_ns
    }

    /// Counts a request that fell due and was noticed at `noticed_ns`.
    #[inline]
    pub fn due(&mut self, request: &Request, due_ns: u64, noticed_ns: u64) {
        self.due_unclassified(due_ns, noticed_ns);
        self.count_due_tags(request);
    }

    /// As `due`, while it is not yet known which request it will be.
    #[inline]
    pub fn due_unclassified(&mut self, due_ns: u64, noticed_ns: u64) {
        self.delta.counts.due += 1;
        self.delta.in_window.due += u64::from(self.inside(due_ns));
        if !self.sends_when_free {
            self.series(due_ns).late.record(noticed_ns.saturating_sub(due_ns));
        }
    }

    /// Counts the tags of a due request, once it is known which request it is.
    #[inline]
    pub fn count_due_tags(&mut self, request: &Request) {
        for tag in &request.tags {
            self.delta.by_tag[*tag as usize].counts.due += 1;
        }
    }

    /// Counts an arrival that finds no slot: it waits, or is dropped.
    pub fn held_back(&mut self) {
        self.delta.connections.held_back += 1;
    }

    /// Counts a dropped request.
    pub fn dropped(&mut self, request: &Request, due_ns: u64, now_ns: u64) {
        self.delta.counts.dropped += 1;
        let age = now_ns.saturating_sub(due_ns);
        self.series(due_ns).response_censored.record(age);
        for tag in &request.tags {
            let by_tag = &mut self.delta.by_tag[*tag as usize];
            by_tag.counts.dropped += 1;
            if due_ns >= self.window_from_ns {
                by_tag.response_censored.record(age);
            }
        }
    }

    /// Counts a started request, which had been noticed at `noticed_ns`.
    #[inline]
    pub fn started(&mut self, request: &Request, due_ns: u64, noticed_ns: u64, now_ns: u64) {
        self.delta.counts.started += 1;
        self.delta.in_window.started += u64::from(self.inside(now_ns));
        self.last_start_ns = now_ns;
        self.in_flight += 1;
        self.peaks.in_flight = self.peaks.in_flight.max(self.in_flight);
        if !self.sends_when_free {
            self.series(due_ns).blocked.record(now_ns.saturating_sub(noticed_ns));
        }
        for tag in &request.tags {
            self.delta.by_tag[*tag as usize].counts.started += 1;
        }
    }

    /// Counts an attempt to connect.
    pub fn connecting(&mut self) {
        self.delta.connections.attempted += 1;
        self.open += 1;
        self.peaks.open = self.peaks.open.max(self.open);
    }

    /// Counts an open connection taken over from the previous load.
    pub fn reused(&mut self) {
        self.delta.connections.reused += 1;
        self.open += 1;
        self.peaks.open = self.peaks.open.max(self.open);
    }

    /// Counts a connection that took this long to open, for a request that fell due at `due_ns`.
    pub fn connected(&mut self, due_ns: u64, took_ns: u64) {
        self.delta.connections.opened += 1;
        self.series(due_ns).connect.record(took_ns);
    }

    /// Records how long a TLS handshake took.
    pub fn secured(&mut self, due_ns: u64, took_ns: u64) {
        self.series(due_ns).tls.record(took_ns);
    }

    /// Counts a connection that could not be made because of a limit on this side.
    #[cold]
    pub fn own_limit(&mut self, limit: OwnLimit) {
        self.delta.connections.own_limits.add(limit);
    }

    /// Counts a request that is sent again on a new connection.
    pub fn resent(&mut self) {
        self.delta.connections.requests_resent += 1;
    }

    /// As `resent`, after a reset that does not show whether the server had read the request.
    pub fn resent_after_reset(&mut self) {
        self.resent();
        self.delta.connections.resent_after_reset += 1;
    }

    /// Counts a closed connection.
    pub fn connection_closed(&mut self) {
        self.open -= 1;
    }

    /// Counts bytes written.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.delta.bytes.sent += bytes as u64;
    }

    /// Counts bytes read.
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        self.delta.bytes.received += bytes as u64;
    }

    /// Counts a complete response with this status.
    #[inline]
    pub fn count_status(&mut self, status: u16) {
        self.delta.statuses[(status as usize).min(999)] += 1;
    }

    /// Records a number captured from the response to a request that fell due at `due_ns`.
    #[inline]
    pub fn number(&mut self, place: usize, value: f64, due_ns: u64) {
        if due_ns >= self.window_from_ns
            && let Some(numbers) = self.delta.numbers.get_mut(place)
        {
            numbers.record(value);
        }
    }

    /// Counts a request that ended.
    #[inline]
    pub fn ended(&mut self, request: &Request, times: Times, outcome: Outcome) {
        let Times { due_ns, started_ns, end_ns } = times;
        let (response, service) = (end_ns - due_ns, end_ns - started_ns);
        self.in_flight -= 1;
        self.busy(times);
        let (sends_when_free, straggler) = (self.sends_when_free, u64::from(self.is_straggler(times)));
        match outcome {
            Outcome::Ok => {
                self.delta.stragglers.ok += straggler;
                self.delta.counts.ok += 1;
                self.delta.in_window.ok += u64::from(self.inside(end_ns));
                self.last_end_ns = end_ns;
                self.in_order(due_ns, response);
                let series = self.series(due_ns);
                series.response_ok.record(response);
                if !sends_when_free {
                    series.service_ok.record(service);
                }
            }
            Outcome::Failed(failure) => {
                self.delta.stragglers.failed += straggler;
                self.delta.counts.failures.add(failure, 1);
                if failure == Failure::Timeout {
                    self.censored(due_ns, response, service);
                } else {
                    self.last_end_ns = end_ns;
                    self.series(due_ns).response_failed.record(response);
                }
            }
        }
        for tag in &request.tags {
            self.ended_by_tag(*tag, times, outcome);
        }
    }

    fn ended_by_tag(&mut self, tag: u16, times: Times, outcome: Outcome) {
        let in_window = times.due_ns >= self.window_from_ns;
        let response = times.end_ns - times.due_ns;
        let by_tag = &mut self.delta.by_tag[tag as usize];
        let histogram = match outcome {
            Outcome::Ok => {
                by_tag.counts.ok += 1;
                &mut by_tag.response_ok
            }
            Outcome::Failed(failure) => {
                by_tag.counts.failures.add(failure, 1);
                match failure {
                    Failure::Timeout => &mut by_tag.response_censored,
                    _ => &mut by_tag.response_failed,
                }
            }
        };
        if in_window {
            histogram.record(response);
        }
    }

    /// Counts a request that was cut off at the end, still in flight.
    pub fn cut(&mut self, request: &Request, times: Times) {
        let Times { due_ns, started_ns, end_ns } = times;
        self.delta.counts.in_flight += 1;
        self.in_flight -= 1;
        self.busy(times);
        self.censored(due_ns, end_ns - due_ns, end_ns - started_ns);
        for tag in &request.tags {
            let by_tag = &mut self.delta.by_tag[*tag as usize];
            by_tag.counts.in_flight += 1;
            if due_ns >= self.window_from_ns {
                by_tag.response_censored.record(end_ns - due_ns);
            }
        }
    }

    fn censored(&mut self, due_ns: u64, response_ns: u64, service_ns: u64) {
        let sends_when_free = self.sends_when_free;
        self.in_order(due_ns, response_ns);
        let series = self.series(due_ns);
        series.response_censored.record(response_ns);
        if !sends_when_free {
            series.service_censored.record(service_ns);
        }
    }

    /// Records the id of a request that ended: it was sent at least once.
    pub fn id(&mut self, id: u64, outcome: Outcome) {
        let ids = &mut self.delta.ids;
        match outcome {
            Outcome::Ok => ids.accepted.push(id),
            Outcome::Failed(Failure::Http4xx | Failure::Http5xx | Failure::Check) => ids.refused.push(id),
            Outcome::Failed(_) => ids.unanswered.push(id),
        }
    }

    /// Records the id of a request that was redirected, without following the redirect.
    pub fn redirected_id(&mut self, id: u64) {
        self.delta.ids.refused.push(id);
    }

    /// Records the id of a request that was cut off at the end.
    pub fn cut_id(&mut self, id: u64) {
        self.delta.ids.unanswered.push(id);
    }

    /// Keeps a failed exchange.
    pub fn example(&mut self, example: Example) {
        self.delta.examples.push(example);
    }
}
