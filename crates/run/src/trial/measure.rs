//! Measures one load: records the engine's seconds, checks conditions, and explains how the load ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use loadlab_analysis::trial::live::{LiveDoubts, SoFar};
use loadlab_analysis::trial::steady;
use loadlab_analysis::{LoadRun, Planned};
use loadlab_load::measure::own_usage;
use loadlab_load::run::{Control, LoadEvent, LoadResult, Origin, Second, Totals};
use loadlab_load::{LoadSpec, run};
use loadlab_record::counts::example::Example;
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::ids::{IdLine, IdSet};
use loadlab_record::counts::load::{Counts, InWindow, Measured, Series, TagMeasured, Tick, Window};
use loadlab_record::counts::numbers::Numbers;
use loadlab_record::documents::figure::NumberKind;
use loadlab_record::documents::summary::{AgentSummary, Ended, Generator, LoadFacts, LoadModel};
use loadlab_record::expr::{Expr, Figure, NameRef, kind_of};
use loadlab_record::{Failure, Histogram};
use loadlab_system::Notice;

use crate::event::{Progress, RunEvent};
use crate::senders::{ReadySenders, SenderNews};
use crate::state::{AbortReason, EventSink, TrialState};
use crate::trial::facts::planned_of;
use crate::trial::live_numbers::SystemFigures;
use crate::trial::running_load::RunningLoad;
use crate::trial::shown::{self, ShownFigures};

/// Time for the load threads to get ready before a load starts.
pub const LEAD_NS: u64 = 10_000_000;

/// A load to measure.
pub struct LoadRequest<'a> {
    /// The load.
    pub spec: &'a LoadSpec,
    /// Its description in the summary.
    pub facts: &'a LoadFacts,
    /// The load ends when any of these holds.
    pub stop_when: &'a [Expr],
    /// Expectations to evaluate afterwards.
    pub expect: &'a [Expr],
    /// Figures to evaluate afterwards.
    pub figures: &'a [Figure],
    /// Someone is watching, so figures are reported while it runs.
    pub has_viewer: bool,
    /// Detect the warm-up and exclude it.
    pub is_warmup_found: bool,
    /// Its start and position within the trial.
    pub origin: Origin,
    /// The processes that send it, if not this one.
    pub senders: Option<&'a dyn ReadySenders>,
}

/// The result of running a load.
pub struct MeasuredLoad {
    /// Its measurements.
    pub run: LoadRun,
    /// Resource use of the generator.
    pub generator: Generator,
    /// What each agent contributed, if other processes sent it.
    pub agents: Vec<AgentSummary>,
    /// One entry per second of load.
    pub ticks: Vec<Tick>,
    /// Its histograms for each second.
    pub intervals: Vec<Interval>,
    /// The exchanges that were kept.
    pub examples: Vec<Example>,
    /// How it ended.
    pub ended: Ended,
    /// How it ended in words: `complete`, or what ended it early.
    pub how: String,
}

/// Runs one load to its end. Trouble is recorded in the trial's state; measurements are returned.
pub fn measure(
    request: &LoadRequest<'_>,
    state: &TrialState,
    notices: Option<&Mutex<Receiver<Notice>>>,
    emit: EventSink<'_>,
) -> Option<MeasuredLoad> {
    let mut measuring = Measuring {
        request,
        state,
        control: Control::default(),
        ticks: Vec::new(),
        intervals: Vec::new(),
        numbers: Vec::new(),
        examples: Vec::new(),
        recent: VecDeque::new(),
        stopped_by: None,
        over_s: request.spec.schedule_ns().map(|ns| ns as f64 / 1e9),
        live: LiveDoubts::default(),
        planned: planned_of(request.spec),
        doubted_s: 0,
        throttled_before: own_usage::throttled_ns(),
        system: SystemFigures::of(request.stop_when),
        shown: ShownFigures::of(request.figures, request.has_viewer),
        stop: NeededSeries::of(request.stop_when.iter().flat_map(Expr::names)),
        figures: NeededSeries::of(shown::names(request.figures)),
        by_tag: BTreeMap::new(),
        asks_windows: request.asks_windows(),
    };
    let control = measuring.control.clone();
    let mut observer = |event: LoadEvent<'_>| {
        if let Some(notices) = notices {
            state.handle_notices(notices, emit);
        }
        measuring.take(event, emit);
    };
    let mut agents = Vec::new();
    let result = match request.senders {
        None => run(request.spec, &control, request.origin, &mut observer),
        Some(senders) => {
            // While an agent is silent, nothing is reported, but components may die.
            let cancelled = || {
                if let Some(notices) = notices {
                    state.handle_notices(notices, emit);
                }
                state.must_end()
            };
            let on_news = |news: SenderNews| match news {
                SenderNews::Note(text) => {
                    state.record_and_show(text, emit);
                }
                SenderNews::Agents(agents) => {
                    emit(RunEvent::Agents { load: request.spec.name.clone(), agents });
                }
            };
            let sent =
                senders.send(request.spec, &control, request.origin, &cancelled, &on_news, &mut observer);
            if let Some(why) = sent.trouble {
                state.abort(AbortReason::Load(why));
            }
            agents = sent.agents;
            Ok(sent.outcome)
        }
    };
    match result {
        Ok(outcome) => {
            // The last values shown must be the recorded ones.
            emit(RunEvent::Progress(measuring.last(&outcome)));
            Some(MeasuredLoad { agents, ..measuring.finish(outcome) })
        }
        Err(error) => {
            state.abort(AbortReason::Load(error.to_string()));
            None
        }
    }
}

/// How many requests had succeeded by a moment of the load.
#[derive(Clone, Copy, Default)]
struct Successes {
    at_s: f64,
    ok: u64,
}

struct Measuring<'a> {
    request: &'a LoadRequest<'a>,
    state: &'a TrialState,
    control: Control,
    ticks: Vec<Tick>,
    intervals: Vec<Interval>,
    /// Captured numbers of each second, by name, if a warm-up may have to be left out: when the second began, and what
    /// was captured.
    numbers: Vec<(f64, BTreeMap<String, Numbers>)>,
    examples: Vec<Example>,
    /// Successes over about the last second, for the current rate.
    recent: VecDeque<Successes>,
    stopped_by: Option<String>,
    /// When its schedule ends, in seconds from its start, if known.
    over_s: Option<f64>,
    live: LiveDoubts,
    planned: Planned,
    /// Last whole second in which doubts were checked.
    doubted_s: u64,
    /// How long CPU limits had throttled loadlab when the load started.
    throttled_before: Vec<u64>,
    /// What stop conditions need from the system.
    system: SystemFigures,
    /// The plan's figures, if they are shown.
    shown: Option<ShownFigures<'a>>,
    /// What stop conditions need from the load.
    stop: NeededSeries,
    /// What figures need from the load.
    figures: NeededSeries,
    /// Series of steps and tags up to the last whole second, if they are needed.
    by_tag: BTreeMap<String, TagMeasured>,
    /// An expectation or figure refers to a part of the load.
    asks_windows: bool,
}

impl LoadRequest<'_> {
    /// Whether an expression refers to a part of the load, which requires histograms for each second.
    fn asks_windows(&self) -> bool {
        let expected = self.expect.iter().flat_map(Expr::names);
        let names = expected.chain(self.figures.iter().flat_map(|f| f.formula.names()));
        names.into_iter().any(|name| name.part.is_some())
    }
}

/// What expressions need that costs time and memory.
#[derive(Clone, Copy, Debug, Default)]
struct NeededSeries {
    /// Durations. Unknown names may refer to durations, too.
    times: bool,
    /// The series of a step or tag.
    tags: bool,
}

impl NeededSeries {
    fn of(names: impl IntoIterator<Item = NameRef>) -> NeededSeries {
        let mut asks = NeededSeries::default();
        for name in names {
            asks.times |= kind_of(&name.text).is_none_or(|kind| kind == NumberKind::Duration);
            asks.tags |= name.text.starts_with("tag.");
        }
        asks
    }
}

impl<'a> Measuring<'a> {
    fn running_load(&self) -> RunningLoad<'a> {
        RunningLoad { name: &self.request.spec.name, facts: self.request.facts, state: self.state }
    }

    fn take(&mut self, event: LoadEvent<'_>, emit: EventSink<'_>) {
        match event {
            LoadEvent::Second(second) => {
                self.second(second);
                emit(RunEvent::Second(Box::new(second.tick.clone())));
            }
            LoadEvent::Example(example) => {
                self.state.write(|w| w.example(&example));
                self.examples.push(*example);
            }
            LoadEvent::Progress(totals) => {
                self.end_if_due(totals);
                // A line about the progress shows the figures too.
                self.show_figures(totals, emit);
                emit(RunEvent::Progress(self.progress(totals)));
                self.doubt(totals, emit);
            }
        }
    }

    fn second(&mut self, second: &Second) {
        let (from_s, length_s) = (second.tick.from_s, second.tick.to_s - second.tick.from_s);
        let name = &self.request.spec.name;
        self.state.write(|w| w.tick(&second.tick));
        self.state.write(|w| w.interval(name, from_s, length_s, &second.window, &second.by_tag));
        if !second.ids.is_empty() {
            self.state.record_ids(&IdLine {
                at_s: second.tick.to_s,
                load: name.clone(),
                batch: second.tick.batch,
                accepted: IdSet::of(second.ids.accepted.clone()),
                unanswered: IdSet::of(second.ids.unanswered.clone()),
                refused: IdSet::of(second.ids.refused.clone()),
            });
        }
        self.ticks.push(second.tick.clone());
        if self.stop.tags || self.shown.is_some() && self.figures.tags {
            for (tag, measured) in &second.by_tag {
                self.by_tag.entry(tag.clone()).or_default().merge(measured);
            }
        }
        if self.request.is_warmup_found && !second.numbers.is_empty() {
            self.numbers.push((from_s, second.numbers.clone()));
        }
        if !self.asks_windows && !self.request.is_warmup_found {
            return;
        }
        let mut keep = |series: &str, histogram: &Histogram| {
            if !histogram.is_empty() {
                self.intervals.push(Interval::of(Some(name), series, from_s, length_s, histogram));
            }
        };
        second.window.all().into_iter().for_each(|(series, histogram)| keep(series, histogram));
        for (tag, measured) in &second.by_tag {
            measured.all().into_iter().for_each(|(series, h)| keep(&format!("tag.{tag}.{series}"), h));
        }
    }

    /// Detects the warm-up and removes it from the window. Its seconds and histograms stay in the record. Requests that
    /// ended in a second are assumed to belong entirely to that second.
    fn leave_out_warm_up(&mut self, measured: &mut Measured, at_s: f64) {
        let mut facts = self.request.facts.clone();
        facts.start_s = at_s;
        let seconds = steady::seconds_of(&self.ticks, &facts);
        let Some(warm) = steady::warm_up(&seconds, facts.model == LoadModel::Open) else { return };
        let stays = |from_s: f64| from_s >= warm.until_s - 0.05;
        let intervals: Vec<&Interval> = self.intervals.iter().filter(|i| stays(i.from_s)).collect();
        let merged = |name: &str, into: &mut Histogram| {
            into.clear();
            intervals.iter().filter(|i| i.is(name)).for_each(|i| i.merge_into(into));
        };
        for (name, histogram) in measured.series.all_mut() {
            merged(name, histogram);
        }
        for (tag, of_tag) in &mut measured.by_tag {
            for (name, histogram) in of_tag.all_mut() {
                merged(&format!("tag.{tag}.{name}"), histogram);
            }
        }
        let captured = self.numbers.iter().filter(|(from_s, _)| stays(*from_s));
        measured.numbers = sum_of_numbers(captured.map(|(_, by_name)| by_name));
        measured.in_order.leave_out_before(((warm.until_s - at_s).max(0.0) * 1e9) as u64);
        // The warm-up's seconds lie before the window's end, with everything that happened in them.
        for tick in self.ticks.iter_mut().filter(|tick| tick.in_window && !stays(tick.from_s)) {
            tick.in_window = false;
            let inside = &mut measured.in_window;
            inside.due = inside.due.saturating_sub(tick.counts.due);
            inside.started = inside.started.saturating_sub(tick.counts.started);
            inside.ok = inside.ok.saturating_sub(tick.counts.ok);
            // Assumes that what was in flight at the end of a second was in flight throughout.
            let busy_s = tick.counts.in_flight as f64 * (tick.to_s - tick.from_s);
            measured.busy_in_window_s = (measured.busy_in_window_s - busy_s).max(0.0);
        }
        measured.window.from_s = warm.until_s - at_s;
        let text = format!(
            "warm-up detected: percentiles and rates leave out the first {:.0} s",
            measured.window.from_s
        );
        self.state.record_note(text);
    }

    /// Checks whether the load must end.
    fn end_if_due(&mut self, totals: &Totals) {
        if self.state.must_end() {
            return self.control.abort();
        }
        let refused = totals.counts.failures.get(Failure::Connect);
        let was_connected = totals.connections.opened + totals.connections.reused > 0;
        if was_connected {
            self.state.connected();
        }
        // A batch may begin while an event of the plan keeps its target down.
        if !was_connected && refused > 0 && !self.state.expects_refusal() {
            let error = self.examples.iter().find_map(|e| Some((e.address.clone(), e.error.clone()?)));
            let (address, why) = error.unwrap_or_default();
            let hint = match totals.connections.own_limits.total() {
                0 => hint_for(self.request.spec, &address),
                _ if !self.request.spec.sources.is_empty() => {
                    "are the source addresses those of this machine? `ip addr` shows them"
                }
                _ => {
                    "this is a limit of the machine loadlab runs on, not of the server: `loadlab check \
                     --preflight` shows which"
                }
            };
            self.state
                .abort(AbortReason::Unreachable(format!("cannot connect to {address}: {why}\nhint: {hint}")));
            return self.control.abort();
        }
        // A finished load cannot be ended early, and its rates fall while stragglers are awaited.
        let is_over = self.over_s.is_some_and(|over_s| totals.at_s >= over_s);
        if self.stopped_by.is_none() && !is_over && !self.request.stop_when.is_empty() {
            let measured = self.so_far(totals, self.stop);
            let load = self.running_load();
            self.stopped_by = load.reached(self.request.stop_when, &mut self.system, measured);
            if self.stopped_by.is_some() {
                self.control.stop();
            }
        }
    }

    /// Reports the doubts so far, at most once a second, since this goes over all durations.
    fn doubt(&mut self, totals: &Totals, emit: EventSink<'_>) {
        let second = totals.at_s as u64;
        if second <= self.doubted_s {
            return;
        }
        self.doubted_s = second;
        // Of what agents send, only their reports tell.
        let is_own = self.request.senders.is_none();
        let throttled_ns = own_usage::throttled_since(&self.throttled_before).filter(|_| is_own);
        let so_far = SoFar {
            at_s: totals.at_s,
            counts: &totals.counts,
            series: &totals.series,
            attempted: totals.connections.attempted,
            own_limits: totals.connections.own_limits,
            held_back: totals.connections.held_back,
            stalls: totals.stalls,
            throttled_s: throttled_ns.map(|ns| ns as f64 / 1e9),
        };
        for doubt in self.live.check(self.request.facts, &self.planned, &so_far) {
            emit(RunEvent::Doubt { load: self.request.spec.name.clone(), doubt });
        }
    }

    /// Reports the plan's current figures, if they are shown and due.
    fn show_figures(&mut self, totals: &Totals, emit: EventSink<'_>) {
        if !self.shown.as_mut().is_some_and(|shown| shown.is_due(totals.at_s)) {
            return;
        }
        let measured = self.so_far(totals, self.figures);
        let load = self.running_load();
        if let Some(shown) = &mut self.shown {
            load.show(shown, measured, emit);
        }
    }

    /// The measurements so far, as far as they are needed.
    fn so_far(&self, totals: &Totals, asks: NeededSeries) -> Measured {
        let counts = &totals.counts;
        Measured {
            counts: counts.clone(),
            // Copying the series ten times a second costs memory and time that conditions on counts do not need.
            series: if asks.times { totals.series.clone() } else { Series::default() },
            by_tag: if asks.tags { self.by_tag.clone() } else { BTreeMap::new() },
            numbers: totals.numbers.clone(),
            bytes: totals.bytes,
            in_window: InWindow { due: counts.due, started: counts.started, ok: counts.ok },
            window: Window { from_s: 0.0, to_s: totals.at_s },
            elapsed_s: totals.at_s,
            busy_s: totals.busy_s,
            busy_in_window_s: totals.busy_s,
            connections: totals.connections,
            ..Measured::default()
        }
    }

    fn progress(&mut self, totals: &Totals) -> Progress {
        self.recent.push_back(Successes { at_s: totals.at_s, ok: totals.counts.ok });
        while self.recent.len() > 2 && self.recent[1].at_s <= totals.at_s - 1.0 {
            self.recent.pop_front();
        }
        self.progress_at(totals.at_s, &totals.counts, &totals.series.response_ok, totals.open)
    }

    /// The load's progress when it ended. Keeps the last rate: later responses arrived in the grace period.
    fn last(&mut self, outcome: &LoadResult) -> Progress {
        let measured = &outcome.measured;
        if self.recent.is_empty() {
            self.recent.push_back(Successes { at_s: measured.elapsed_s, ok: measured.counts.ok });
        }
        self.progress_at(measured.elapsed_s, &measured.counts, &measured.series.response_ok, 0)
    }

    fn progress_at(&self, at_s: f64, counts: &Counts, ok: &Histogram, connections: u64) -> Progress {
        let now = self.recent.back().copied().unwrap_or_default();
        // Compare with the start if there is nothing in between.
        let first = self.recent.front().copied().filter(|_| self.recent.len() > 1);
        let then = first.unwrap_or_default();
        let passed_s = now.at_s - then.at_s;
        let ms = |q| ok.quantile_ns(q).map(|ns| ns as f64 / 1e6);
        Progress {
            load: self.request.spec.name.clone(),
            at_s,
            counts: counts.clone(),
            ok_per_s: if passed_s > 0.0 { now.ok.saturating_sub(then.ok) as f64 / passed_s } else { 0.0 },
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            connections,
        }
    }

    fn finish(mut self, outcome: LoadResult) -> MeasuredLoad {
        for example in &outcome.slowest {
            self.state.write(|w| w.example(example));
        }
        self.examples.extend(outcome.slowest);
        if let Err(broken) = outcome.measured.counts.balance() {
            // The doubt `accounting` makes the trial INVALID; the figures are kept for debugging.
            debug_assert!(false, "{broken}");
        }
        // A load shorter than a tenth of a second may end before it was ever checked.
        let opened = outcome.measured.connections.opened + outcome.measured.connections.reused;
        if opened == 0 && outcome.measured.counts.failures.get(Failure::Connect) > 0 {
            let totals = Totals {
                counts: outcome.measured.counts.clone(),
                connections: outcome.measured.connections,
                ..Totals::default()
            };
            self.end_if_due(&totals);
        }
        let (ended, how) = self.state.how_load_ended(self.stopped_by.as_deref());
        let at_s = outcome.at_s;
        let mut measured = outcome.measured;
        // A load by number has its window's end only now: with the last answer.
        let ends_s = at_s + measured.window.to_s;
        self.ticks.iter_mut().filter(|tick| tick.from_s >= ends_s).for_each(|tick| tick.in_window = false);
        if self.request.is_warmup_found {
            self.leave_out_warm_up(&mut measured, at_s);
        }
        MeasuredLoad {
            run: LoadRun {
                load: self.request.spec.name.clone(),
                batch: self.request.origin.batch,
                at_s,
                measured,
            },
            generator: outcome.generator,
            agents: Vec::new(),
            ticks: self.ticks,
            intervals: self.intervals,
            examples: self.examples,
            ended,
            how,
        }
    }
}

/// Captured numbers of several seconds together, by name.
fn sum_of_numbers<'a>(
    seconds: impl Iterator<Item = &'a BTreeMap<String, Numbers>>,
) -> BTreeMap<String, Numbers> {
    let mut sum: BTreeMap<String, Numbers> = BTreeMap::new();
    for (name, numbers) in seconds.flatten() {
        sum.entry(name.clone()).or_default().merge(numbers);
    }
    sum
}

/// A hint for when no connection can be made.
fn hint_for(spec: &LoadSpec, address: &str) -> &'static str {
    match address {
        _ if spec.proxy.is_some() => {
            "this is the proxy: is it up, is this its port, and does it accept you? \
             `http://USER:PASSWORD@HOST:PORT` sends credentials"
        }
        _ if address.starts_with("unix:") => {
            "is the server up, is this the socket it listens on, and may you write to the file?"
        }
        _ => "is the server up, and is this its port?",
    }
}
