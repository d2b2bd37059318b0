//! Merges what load threads report into seconds and totals.

use loadlab_record::counts::example::{Example, MAX_EXAMPLES};
use loadlab_record::counts::load::{Measured, PerUser, TagMeasured, Tick, TickMs, Window};
use loadlab_record::counts::numbers::Numbers;
use loadlab_record::documents::summary::{Generator, Stalls};
use loadlab_record::text::time::SECOND_NS;

use crate::measure::delta::{Delta, Gaps, Gauges};
use crate::run::peaks::Peaks;
use crate::run::seconds::{Complete, Seconds};
use crate::run::{LoadEvent, LoadResult, Origin, Second, Totals};
use crate::spec::{LoadSpec, Model};
use crate::start::{ConnectPhase, Start};
use crate::worker::WorkerEnd;

/// Merges deltas into seconds and totals.
pub(super) struct Collector<'s> {
    spec: &'s LoadSpec,
    origin: Origin,
    start: &'s Start<'s>,
    pub totals: Measured,
    now: Totals,
    busy_ns: u128,
    busy_in_window_ns: u128,
    last_start_ns: u64,
    last_end_ns: u64,
    /// Requests that ended after the last answer so far.
    unanswered: Unanswered,
    /// End of the window for each worker, as far as known.
    window_to_ns: Vec<u64>,
    /// Seconds not yet complete.
    seconds: Seconds<Second>,
    /// Time covered by reports of several seconds in one, seconds.
    coarse_s: f64,
    /// Each worker's latest report.
    workers: Vec<WorkerReport>,
    peaks: Peaks,
    /// Peak of requests in flight and of connections open so far.
    most: Gauges,
    /// For each worker, the periods in which it did not run.
    gaps: Vec<Gaps>,
}

/// Requests that ended without an answer after the last one that was answered, by deltas.
#[derive(Clone, Copy, Default)]
struct Unanswered {
    requests: u128,
    /// Sum of the starts of the deltas in which they ended.
    from_ns: u128,
    /// How long they had been in flight within the window, which had no end then.
    busy_ns: u128,
}

impl Unanswered {
    fn add(&mut self, delta: &Delta) {
        let counts = &delta.counts;
        let requests = u128::from(counts.ok + counts.failed() + counts.in_flight);
        self.requests += requests;
        self.from_ns += requests * u128::from(delta.from_ns);
        self.busy_ns += u128::from(delta.busy_in_window_ns);
    }

    /// How long they were in flight after the last answer, to within the length of a delta each.
    fn after_ns(&self, answer_ns: u64) -> u128 {
        let after = self.from_ns.saturating_sub(self.requests * u128::from(answer_ns));
        after.min(self.busy_ns)
    }
}

/// What a worker reported last.
#[derive(Clone, Copy, Default)]
struct WorkerReport {
    /// Time up to which it has reported; `u64::MAX` once it has ended.
    until_ns: u64,
    /// Its gauges at that time.
    gauges: Gauges,
}

impl<'s> Collector<'s> {
    /// For `workers` workers: load threads of this process, or other processes that each send a part of the load.
    pub fn new(spec: &'s LoadSpec, origin: Origin, start: &'s Start<'s>, workers: usize) -> Self {
        Collector {
            spec,
            origin,
            start,
            totals: Measured::default(),
            now: Totals::default(),
            busy_ns: 0,
            busy_in_window_ns: 0,
            last_start_ns: 0,
            last_end_ns: 0,
            unanswered: Unanswered::default(),
            window_to_ns: vec![u64::MAX; workers],
            seconds: Seconds::new(workers),
            coarse_s: 0.0,
            workers: vec![WorkerReport::default(); workers],
            peaks: Peaks::new(workers),
            most: Gauges::default(),
            gaps: vec![Gaps::default(); workers],
        }
    }

    /// Time from zero of the trial's clock to the load's start, seconds.
    fn shift_s(&self) -> f64 {
        self.start.at_ns().saturating_sub(self.origin.zero_ns) as f64 / 1e9
    }

    /// Marks a worker as ended: it reports nothing more.
    pub fn worker_ended(&mut self, worker: usize, observer: &mut dyn FnMut(LoadEvent<'_>)) {
        self.workers[worker].until_ns = u64::MAX;
        self.peaks.ended(worker);
        self.sum_peaks();
        self.report_complete(observer);
    }

    fn sum_peaks(&mut self) {
        while let Some(tenth) = self.peaks.complete() {
            self.most = self.most.larger(tenth.peaks);
        }
        self.totals.connections.peak = self.most.open;
    }

    /// Marks every worker as ended.
    pub fn end(&mut self, observer: &mut dyn FnMut(LoadEvent<'_>)) {
        (0..self.workers.len()).for_each(|worker| self.worker_ended(worker, observer));
    }

    pub fn add(&mut self, delta: &mut Delta, observer: &mut dyn FnMut(LoadEvent<'_>)) {
        self.take(delta, observer);
        let (worker, last) = (delta.worker, delta.last);
        self.report_complete(observer);
        // The first worker still running sets the pace.
        let reported_ns = self.reported_ns();
        // Until every worker has reported something, it is unknown how long the load has lasted.
        let is_known = reported_ns > 0;
        if is_known && !last && self.workers.iter().position(|w| w.until_ns != u64::MAX) == Some(worker) {
            self.now.at_s = reported_ns as f64 / 1e9;
            let still = self.gaps.iter().map(|gaps| stalls(*gaps, self.shift_s()));
            self.now.stalls = still.fold(Stalls::default(), Stalls::merge_concurrent);
            observer(LoadEvent::Progress(&self.now));
        }
    }

    /// Time up to which every worker has reported.
    fn reported_ns(&self) -> u64 {
        self.workers.iter().map(|w| w.until_ns).min().unwrap_or(0)
    }

    fn take(&mut self, delta: &mut Delta, observer: &mut dyn FnMut(LoadEvent<'_>)) {
        for mut example in delta.examples.drain(..) {
            example.due_s += self.shift_s();
            observer(LoadEvent::Example(Box::new(example)));
        }
        let until_ns = if delta.last { u64::MAX } else { delta.until_ns };
        // Requests cut off at the end stay in flight permanently.
        let in_flight = delta.in_flight + delta.counts.in_flight;
        let gauges = Gauges { in_flight, open: delta.open };
        self.workers[delta.worker] = WorkerReport { until_ns, gauges };
        self.peaks.add(delta.worker, delta.from_ns..delta.until_ns, delta.peaks(), delta.at_end());
        if delta.last {
            self.peaks.ended(delta.worker);
        }
        self.sum_peaks();
        self.gaps[delta.worker] = delta.gaps;
        self.last_start_ns = self.last_start_ns.max(delta.last_start_ns);
        if delta.last_end_ns > self.last_end_ns {
            self.last_end_ns = delta.last_end_ns;
            self.unanswered = Unanswered::default();
        } else if delta.from_ns >= self.last_end_ns {
            // Other workers' answers of the same time are not among them.
            self.unanswered.add(delta);
        }
        self.window_to_ns[delta.worker] = delta.window_to_ns;
        self.busy_ns += u128::from(delta.busy_ns);
        self.busy_in_window_ns += u128::from(delta.busy_in_window_ns);
        let by_tag = named(&self.spec.tags, &delta.by_tag);
        self.add_to_totals(delta, &by_tag);
        let sum = self.workers.iter().map(|w| w.gauges).fold(Gauges::default(), Gauges::plus);
        (self.now.counts.in_flight, self.now.open) = (sum.in_flight, sum.open);
        // A thread's last delta counts toward the second it began in.
        let until_ns = if delta.is_long { delta.until_ns } else { delta.from_ns };
        let (name, batch) = (&self.spec.name, self.origin.batch);
        let tick = || Tick { load: name.clone(), batch, ..Tick::default() };
        let make = || Second { tick: tick(), ..Second::default() };
        let second = self.seconds.of(delta.from_ns..until_ns, delta.worker, gauges, make);
        add_to_second(second, delta, &by_tag);
        for (name, numbers) in captured(self.spec, delta) {
            second.numbers.entry(name.clone()).or_default().merge(numbers);
        }
        second.ids.append(&mut delta.ids);
        self.totals.in_order.merge(std::mem::take(&mut delta.in_order));
        second.tick.to_s = second.tick.to_s.max(delta.until_ns as f64 / 1e9);
    }

    fn add_to_totals(&mut self, delta: &Delta, by_tag: &[(String, &TagMeasured)]) {
        let totals = &mut self.totals;
        totals.counts.merge(&delta.counts);
        for (status, n) in statuses(delta) {
            *totals.statuses.entry(status).or_default() += n;
        }
        totals.bytes.merge(delta.bytes);
        totals.in_window.merge(delta.in_window);
        totals.stragglers.merge(delta.stragglers);
        totals.connections.add_made(&delta.connections);
        for (tag, measured) in by_tag {
            totals.by_tag.entry(tag.clone()).or_default().merge(measured);
        }
        for (name, numbers) in captured(self.spec, delta) {
            self.now.numbers.entry(name.clone()).or_default().merge(numbers);
        }
        self.now.series.merge(&delta.window);
        let in_flight = self.now.counts.in_flight;
        self.now.counts.merge(&delta.counts);
        self.now.counts.in_flight = in_flight;
        self.now.bytes = totals.bytes;
        self.now.busy_s = self.busy_ns as f64 / 1e9;
        self.now.connections = totals.connections;
    }

    /// Whether a second that every worker has passed lies in the window. By then the window's end is known, even if the
    /// load was stopped.
    fn in_window(&self, second: u64) -> bool {
        let from_ns = second * SECOND_NS;
        from_ns >= self.spec.warmup_ns && self.window_to_ns.iter().any(|end_ns| from_ns < *end_ns)
    }

    /// Reports the seconds that every worker has passed.
    fn report_complete(&mut self, observer: &mut dyn FnMut(LoadEvent<'_>)) {
        let shift_s = self.shift_s();
        while let Some(Complete { number, length, what: mut second, gauges }) =
            self.seconds.complete(self.reported_ns())
        {
            (second.tick.counts.in_flight, second.tick.connections) = (gauges.in_flight, gauges.open);
            second.tick.in_window = self.in_window(number);
            if length > 1 {
                self.coarse_s += second.tick.to_s - second.tick.from_s;
            }
            second.tick.from_s += shift_s;
            second.tick.to_s += shift_s;
            fill_times(&mut second);
            observer(LoadEvent::Second(&second));
            self.seconds.give_back(second);
        }
    }

    pub fn outcome(self, mut ends: Vec<WorkerEnd>, mut generator: Generator) -> LoadResult {
        let ended_ns = ends.iter().map(|e| e.ended_ns).max().unwrap_or(0);
        let stopped_ns = ends.iter().filter_map(|e| Some(e.stopped?.at_ns)).max();
        let planned_ns = self.spec.schedule_ns();
        let cut_short = match planned_ns {
            Some(planned) => stopped_ns.is_some_and(|at| at < planned),
            None => stopped_ns.is_some(),
        };
        // The planned end, or the actual one. A load bounded by a number of requests lasts until its last response; one
        // that never came does not extend it, unless none came at all.
        let bound_ns = if cut_short { stopped_ns } else { planned_ns };
        let to_ns = bound_ns.unwrap_or(match self.spec.model {
            Model::Open { .. } => ended_ns,
            Model::Closed { .. } if self.last_end_ns > 0 => self.last_end_ns,
            Model::Closed { .. } => ended_ns.max(1),
        });
        // When requests stopped starting: at the end of the planned time, or with the last request.
        let tail_from_ns = bound_ns.unwrap_or(self.last_start_ns);
        let from_ns = self.spec.warmup_ns.min(to_ns);
        let shift_s = self.shift_s();
        let mut measured = self.totals;
        (measured.series, measured.numbers) = (self.now.series, self.now.numbers);
        measured.window = Window { from_s: from_ns as f64 / 1e9, to_s: to_ns as f64 / 1e9 };
        measured.elapsed_s = ended_ns as f64 / 1e9;
        measured.busy_s = self.busy_ns as f64 / 1e9;
        // Where the window ends with the last answer, that was not known when later requests ended.
        let is_by_answer = bound_ns.is_none() && to_ns == self.last_end_ns;
        let after_ns = if is_by_answer { self.unanswered.after_ns(to_ns) } else { 0 };
        measured.busy_in_window_s = self.busy_in_window_ns.saturating_sub(after_ns) as f64 / 1e9;
        measured.stragglers.tail_s = self.last_end_ns.saturating_sub(tail_from_ns) as f64 / 1e9;
        if let Some(ConnectPhase { took_ns, grown_bytes }) = self.start.opened.get() {
            measured.connections.connect_phase_s = Some(*took_ns as f64 / 1e9);
            // Connections that were open before had already taken their memory.
            let held = self.spec.held.as_ref().filter(|_| measured.connections.reused == 0);
            measured.connections.bytes_per_connection =
                held.map(|h| *grown_bytes as f64 / h.connections.max(1) as f64);
        }
        let captured = ends.first().map(|e| e.captured.clone()).unwrap_or_default();
        let is_open = matches!(self.spec.model, Model::Open { .. });
        measured.connections.in_flight_peak = is_open.then_some(self.most.in_flight);
        measured.connections.users_peak = ends.iter().map(|e| e.users_peak).sum();
        let per_user = ends.iter_mut().flat_map(|e| std::mem::take(&mut e.per_user)).collect();
        measured.connections.per_user = PerUser::of(per_user);
        measured.connections.users_without_row = ends.iter().map(|e| e.users_without_row).sum();
        let still = ends.iter().map(|e| stalls(e.gaps, shift_s));
        generator.connections_peak = measured.connections.peak;
        generator.coarse_s = self.coarse_s;
        generator.stalls = still.fold(Stalls::default(), Stalls::merge_concurrent);
        let mut slowest: Vec<Example> = ends.into_iter().flat_map(|e| e.slowest).collect();
        slowest.iter_mut().for_each(|e| e.due_s += shift_s);
        LoadResult { measured, generator, slowest: keep_slowest(slowest), cut_short, at_s: shift_s, captured }
    }
}

/// A worker's gaps, on the trial's clock.
fn stalls(gaps: Gaps, shift_s: f64) -> Stalls {
    let seconds = |ns: u64| ns as f64 / 1e9;
    Stalls {
        count: gaps.count,
        total_s: seconds(gaps.sum_ns),
        max_s: seconds(gaps.longest_ns),
        max_at_s: if gaps.count > 0 { seconds(gaps.longest_at_ns) + shift_s } else { 0.0 },
    }
}

/// Statuses that occurred, with their counts.
fn statuses(delta: &Delta) -> impl Iterator<Item = (u16, u64)> + '_ {
    delta.statuses.iter().enumerate().filter(|(_, n)| **n > 0).map(|(status, n)| (status as u16, *n))
}

fn named<'b>(names: &[String], tags: &'b [TagMeasured]) -> Vec<(String, &'b TagMeasured)> {
    names.iter().cloned().zip(tags).collect()
}

/// Numbers that were captured, with their names.
fn captured<'a>(spec: &'a LoadSpec, delta: &'a Delta) -> impl Iterator<Item = (&'a String, &'a Numbers)> {
    let names = spec.journey.iter().flat_map(|j| &j.numbers).map(|(_, name)| name);
    names.zip(&delta.numbers).filter(|(_, numbers)| numbers.count() > 0)
}

fn add_to_second(second: &mut Second, delta: &Delta, by_tag: &[(String, &TagMeasured)]) {
    second.tick.counts.merge(&delta.counts);
    second.tick.bytes.merge(delta.bytes);
    for (status, n) in statuses(delta) {
        *second.tick.statuses.entry(status).or_default() += n;
    }
    second.window.merge(&delta.window);
    if let Some(before) = &delta.before {
        second.before.merge(before);
    }
    for (tag, measured) in by_tag {
        second.by_tag.entry(tag.clone()).or_default().merge(measured);
    }
}

/// A tick's times cover everything that happened in its second, in the window or not.
fn fill_times(second: &mut Second) {
    let pair = |a: &loadlab_record::Histogram, b: &loadlab_record::Histogram| {
        if b.is_empty() {
            return TickMs::from(a);
        }
        let mut both = a.clone();
        both.merge(b);
        TickMs::from(&both)
    };
    let (window, before) = (&second.window, &second.before);
    second.tick.response_ms = pair(&window.response_ok, &before.response_ok);
    second.tick.censored_ms = pair(&window.response_censored, &before.response_censored);
    second.tick.failed_ms = pair(&window.response_failed, &before.response_failed);
    second.tick.late_ms = pair(&window.late, &before.late);
    second.tick.blocked_ms = pair(&window.blocked, &before.blocked);
}

/// The slowest [`MAX_EXAMPLES`] of each outcome and tag over all workers, slowest first.
fn keep_slowest(mut examples: Vec<Example>) -> Vec<Example> {
    examples.sort_by(|a, b| {
        (&a.outcome, &a.tag).cmp(&(&b.outcome, &b.tag)).then(b.response_ms.total_cmp(&a.response_ms))
    });
    let mut kept: Vec<Example> = Vec::new();
    let mut same = 0;
    for example in examples {
        let alike = kept.last().is_some_and(|k| (&k.outcome, &k.tag) == (&example.outcome, &example.tag));
        same = if alike { same + 1 } else { 1 };
        if same <= MAX_EXAMPLES {
            kept.push(example);
        }
    }
    kept
}
