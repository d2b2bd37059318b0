//! What a trial measured → its summary.
//!
//! A trial's data ([`crate::trial::input`]) is first added up ([`crate::trial::totals`]). Choices that the contract
//! leaves open are made here and documented where they are made. What the summary states about the measurement itself
//! is in [`crate::trial::doubts`], what it states about expectations in [`crate::trial::judge`].

use std::collections::{BTreeMap, BTreeSet};

use loadlab_record::Histogram;
use loadlab_record::counts::dependence::Dependence;
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::{Counts, Measured, TagMeasured, Tick, Window};
use loadlab_record::counts::numbers::NumberSummary;
use loadlab_record::documents::summary::{
    AgentSummary, Distribution, Ended, LoadSummary, Rates, Requests, Summary, TagSummary, Verdict,
};

use crate::trial::bottleneck::{Diagnosis, TrialData, diagnose};
use crate::trial::components;
use crate::trial::counter::During;
use crate::trial::doubts::{self, Grounds};
use crate::trial::event_doubts;
use crate::trial::input::{LoadRun, TrialInput};
use crate::trial::judge::{self, TrialNumbers};
use crate::trial::totals::Totals;

/// The summary of a trial: figures, then doubts about them, then what they mean for the expectations.
pub fn summarise(input: TrialInput<'_>) -> Summary {
    let mut totals = Totals::of(input.loads);
    totals.dependence = totals.dependence.or(of_seconds(input.intervals));
    let span = Span::of(input.loads);
    let mut summary = figures(&input, &totals, &span);
    for (name, component) in &mut summary.components {
        component.open_files_at_rest = input.planned.open_files_at_rest.get(name).copied();
    }
    let grounds = Grounds {
        measured: &totals,
        ticks: input.ticks,
        planned: &input.planned,
        load_s: span.asked_length_s,
        window_s: windows_s(input.loads),
    };
    let numbers = TrialNumbers::new(&summary, input.ticks, input.intervals, input.samples);
    let named = judge::figures(&input.planned.figures, &numbers);
    let expectations = judge::expectations(input.expect, &numbers);
    (summary.figures, summary.expectations) = (named, expectations);
    summary.doubts = doubts::doubts(&summary, &grounds);
    summary.doubts.extend(event_doubts::doubts_of(input.events));
    summary.verdict = judge::verdict(&summary);
    let trial = TrialData {
        summary: &summary,
        samples: input.samples,
        ticks: input.ticks,
        events: input.events,
        evidence: input.evidence,
        order: &input.planned.order,
        cores: input.planned.cores,
    };
    let Diagnosis { bottleneck, pairs, .. } = diagnose(&trial);
    (summary.bottleneck, summary.pairs) = (bottleneck, pairs);
    summary
}

/// How autocorrelated response times are from second to second, if there are histograms of seconds: the highest of
/// any load.
fn of_seconds(intervals: &[Interval]) -> Dependence {
    /// Values of a second, each with how often it was counted.
    type Counted = Vec<(u64, u64)>;
    let mut by_load: BTreeMap<Option<&str>, Vec<Counted>> = BTreeMap::new();
    for interval in intervals.iter().filter(|i| i.is("response")) {
        by_load.entry(interval.load.as_deref()).or_default().push(interval.values().collect());
    }
    by_load.values().map(|seconds| Dependence::of_stretches(seconds)).fold(Dependence::NONE, Dependence::or)
}

/// Everything but doubts, expectations and verdict.
fn figures(input: &TrialInput<'_>, totals: &Totals, span: &Span) -> Summary {
    let counts = &totals.counts;
    let series = &totals.series;
    let timed = |known: &Histogram| Distribution::dependent(known, &Histogram::new(), totals.dependence);
    let during = During { from_s: span.from_s, to_s: span.to_s };
    let asked = During { from_s: span.from_s, to_s: span.asked_to_s };
    Summary {
        loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        verdict: Verdict::None,
        ended: input.ended,
        doubts: Vec::new(),
        expectations: Vec::new(),
        load: input.facts.clone(),
        elapsed_s: span.to_s - span.from_s,
        window: window_of(input.loads),
        stragglers: totals.stragglers,
        requests: requests_of(counts, &input.agents),
        failures: counts.failures.clone(),
        statuses: totals.statuses.clone(),
        availability: availability(input),
        concurrency_mean: per_s(input.loads, |m| [m.busy_in_window_s])[0],
        rate_per_s: rates(input.loads, input.ticks),
        bytes: totals.bytes,
        response_ms: Distribution::dependent(
            &series.response_ok,
            &series.response_censored,
            totals.dependence,
        ),
        ok_response_ms: timed(&series.response_ok),
        // Timeouts are failures too, but their series also holds what was in flight or dropped, which are censored
        // values of `response_ms`; here are only the failures that did end.
        failed_response_ms: timed(&series.response_failed),
        service_ms: Distribution::dependent(&series.service_ok, &series.service_censored, totals.dependence),
        late_ms: timed(&series.late),
        blocked_ms: timed(&series.blocked),
        connect_ms: timed(&series.connect),
        tls_ms: timed(&series.tls),
        by_tag: totals
            .by_tag
            .iter()
            .map(|(tag, m)| (tag.clone(), tag_summary(m, totals.dependence)))
            .collect(),
        numbers: totals
            .numbers
            .iter()
            .map(|(name, n)| (name.clone(), NumberSummary::of(n, totals.dependence)))
            .collect(),
        by_load: by_load(input),
        by_batch: by_batch(input),
        connections: totals.connections,
        generator: input.generator.clone(),
        agents: input.agents.clone(),
        components: components::summaries(
            input.samples,
            input.events,
            &input.planned.cpu_limits,
            during,
            asked,
        ),
        probes: components::probes(input.samples, during),
        drain_s: input.drain_s,
        loss: input.loss,
        actions: components::actions(input.events),
        pairs: Vec::new(),
        figures: BTreeMap::new(),
        search: None,
        bottleneck: None,
    }
}

/// ok / (ok + failed) of the requests that loadlab sent: how a program's requests end, nobody sees.
fn availability(input: &TrialInput<'_>) -> Option<f64> {
    let sent = input.loads.iter().filter(|run| !input.facts.is_program(&run.load));
    let (mut ok, mut failed) = (0, 0);
    for counts in sent.map(|run| &run.measured.counts) {
        ok += counts.ok;
        failed += counts.failed();
    }
    (ok + failed > 0).then(|| ok as f64 / (ok + failed) as f64)
}

/// Requests, including those not offered because agents were lost: known only if known for every agent.
fn requests_of(counts: &Counts, agents: &[AgentSummary]) -> Requests {
    let sum = |of: fn(&Requests) -> Option<u64>| {
        let all: Option<u64> = agents.iter().map(|agent| of(&agent.requests)).sum();
        all.filter(|_| !agents.is_empty())
    };
    Requests {
        not_offered: sum(|requests| requests.not_offered),
        not_offered_min: sum(|requests| requests.not_offered_min),
        ..Requests::from(counts)
    }
}

fn tag_summary(measured: &TagMeasured, dependence: Dependence) -> TagSummary {
    let timed = |known: &Histogram| Distribution::dependent(known, &Histogram::new(), dependence);
    TagSummary {
        requests: Requests::from(&measured.counts),
        failures: measured.counts.failures.clone(),
        response_ms: Distribution::dependent(&measured.response_ok, &measured.response_censored, dependence),
        ok_response_ms: timed(&measured.response_ok),
        failed_response_ms: timed(&measured.response_failed),
    }
}

/// With several loads, each one's own figures; batches of one load are combined.
fn by_load(input: &TrialInput<'_>) -> BTreeMap<String, LoadSummary> {
    let names: BTreeSet<&str> = input.loads.iter().map(|run| run.load.as_str()).collect();
    if names.len() < 2 && input.facts.loads.is_empty() {
        return BTreeMap::new();
    }
    let summary = |name: &str| {
        let runs = input.loads.iter().filter(|run| run.load == name);
        let ticks = input.ticks.iter().filter(|t| t.load == name);
        (name.to_owned(), of_runs(&runs.cloned().collect::<Vec<_>>(), &ticks.cloned().collect::<Vec<_>>()))
    };
    names.into_iter().map(summary).collect()
}

/// With several batches, each one's own figures; loads that run in the same batch are combined. Empty for a trial that
/// was cut off, whose histograms do not separate batches.
fn by_batch(input: &TrialInput<'_>) -> BTreeMap<u32, LoadSummary> {
    let batches: BTreeSet<u32> = input.loads.iter().map(|run| run.batch).collect();
    if batches.len() < 2 || input.ended == Ended::Partial {
        return BTreeMap::new();
    }
    let summary = |batch: u32| {
        let runs = input.loads.iter().filter(|run| run.batch == batch);
        let ticks = input.ticks.iter().filter(|t| t.batch == batch);
        (batch + 1, of_runs(&runs.cloned().collect::<Vec<_>>(), &ticks.cloned().collect::<Vec<_>>()))
    };
    batches.into_iter().map(summary).collect()
}

/// The figures of some loads or batches of a trial.
fn of_runs(runs: &[LoadRun], ticks: &[Tick]) -> LoadSummary {
    let totals = Totals::of(runs);
    let series = &totals.series;
    LoadSummary {
        window: window_of(runs),
        stragglers: totals.stragglers,
        requests: Requests::from(&totals.counts),
        failures: totals.counts.failures.clone(),
        rate_per_s: rates(runs, ticks),
        response_ms: Distribution::dependent(
            &series.response_ok,
            &series.response_censored,
            totals.dependence,
        ),
        ok_response_ms: Distribution::dependent(&series.response_ok, &Histogram::new(), totals.dependence),
    }
}

/// When the load was on.
struct Span {
    /// Start of the first load, seconds on the trial's clock.
    from_s: f64,
    /// End of the last.
    to_s: f64,
    /// When the last load was over; after that only stragglers are awaited.
    asked_to_s: f64,
    /// Length of the time in which at least one load ran and was not over: pauses between batches excluded.
    asked_length_s: f64,
}

impl Span {
    fn of(loads: &[LoadRun]) -> Span {
        let intervals = loads.iter().map(|r| (r.at_s, r.at_s + r.measured.elapsed_s));
        let groups = overlapping(intervals.collect());
        let asked = overlapping(loads.iter().map(|r| (r.at_s, r.at_s + r.measured.window.to_s)).collect());
        Span {
            from_s: groups.first().map_or(0.0, |g| g.from_s),
            to_s: groups.iter().map(|g| g.to_s).fold(0.0, f64::max),
            asked_to_s: asked.iter().map(|g| g.to_s).fold(0.0, f64::max),
            asked_length_s: asked.iter().map(|g| g.to_s - g.from_s).sum(),
        }
    }
}

/// From the start of the first window to the end of the last, on the trial's clock.
fn window_of(loads: &[LoadRun]) -> Window {
    let groups = overlapping(loads.iter().map(window_interval).collect());
    match (groups.first(), groups.last()) {
        (Some(first), Some(last)) => Window { from_s: first.from_s, to_s: last.to_s },
        _ => Window::default(),
    }
}

fn window_interval(run: &LoadRun) -> (f64, f64) {
    let w = run.measured.window;
    (run.at_s + w.from_s, run.at_s + w.to_s.max(w.from_s))
}

/// Intervals that overlap, directly or through others.
struct Group {
    from_s: f64,
    to_s: f64,
    members: Vec<usize>,
}

/// Groups intervals in order of time. Touching is not overlapping: a batch may start as the last one ends.
fn overlapping(intervals: Vec<(f64, f64)>) -> Vec<Group> {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by(|a, b| intervals[*a].0.total_cmp(&intervals[*b].0));
    let mut groups: Vec<Group> = Vec::new();
    for i in order {
        let (from_s, to_s) = intervals[i];
        match groups.last_mut() {
            Some(group) if from_s < group.to_s => {
                group.to_s = group.to_s.max(to_s);
                group.members.push(i);
            }
            _ => groups.push(Group { from_s, to_s, members: vec![i] }),
        }
    }
    groups
}

/// Rates per second of the measured window.
fn rates(loads: &[LoadRun], ticks: &[Tick]) -> Rates {
    let [due, started, ok] = per_s(loads, |m| {
        let events = m.in_window;
        [events.due, events.started, events.ok].map(|n| n as f64)
    });
    let (ok_stdev, ok_max) = spread(loads, ticks);
    Rates { due, started, ok, ok_stdev, ok_max }
}

/// What loads counted within their windows, per second.
///
/// Loads that run at the same time add up, each over its own window and for as long as it ran; batches and loads that
/// run one after the other share the time. For one load and its batches that is Σ counted / Σ window lengths. A load
/// that begins later or ends earlier than another sent nothing meanwhile, which counts; what it sent in its warm-up
/// is not in the window, and is assumed to equal the rate after it.
fn per_s<const N: usize>(loads: &[LoadRun], counted: impl Fn(&Measured) -> [f64; N]) -> [f64; N] {
    let mut sums = [0.0; N];
    let mut length_s = 0.0;
    for group in overlapping(loads.iter().map(window_interval).collect()) {
        length_s += group.to_s - group.from_s;
        for &i in &group.members {
            let m = &loads[i].measured;
            let own_s = m.window.length_s();
            if own_s > 0.0 {
                for (sum, n) in sums.iter_mut().zip(counted(m)) {
                    *sum += n / own_s * present_s(&loads[i], &group);
                }
            }
        }
    }
    sums.map(|sum| if length_s > 0.0 { sum / length_s } else { 0.0 })
}

/// Length of the time in which at least one window was open.
fn windows_s(loads: &[LoadRun]) -> f64 {
    overlapping(loads.iter().map(window_interval).collect()).iter().map(|g| g.to_s - g.from_s).sum()
}

/// How long a load ran within a group's time, including its warm-up.
fn present_s(run: &LoadRun, group: &Group) -> f64 {
    let to_s = run.at_s + run.measured.window.to_s;
    (to_s.min(group.to_s) - run.at_s.max(group.from_s)).max(0.0)
}

/// Sample standard deviation and maximum of goodput over whole ticks of the window. A tick counts as whole
/// from 0.9 s; shorter ones would exaggerate both, and so would one in which the window ended long before it did.
fn spread(loads: &[LoadRun], ticks: &[Tick]) -> (Option<f64>, Option<f64>) {
    let reaches_beyond = |t: &Tick| {
        let own = loads.iter().filter(|r| r.load == t.load && r.batch == t.batch);
        own.map(|r| r.at_s + r.measured.window.to_s).any(|end_s| t.to_s > end_s + 0.1)
    };
    let whole = |t: &&Tick| t.in_window && t.to_s - t.from_s >= 0.9 && !reaches_beyond(t);
    let rates = goodput_by_second(ticks.iter().filter(whole));
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let square: f64 = rates.iter().map(|v| (v - mean).powi(2)).sum();
    let max = rates.iter().copied().reduce(f64::max);
    ((n >= 2.0).then(|| (square / (n - 1.0)).sqrt()), max)
}

/// Goodput of every tick; if several loads run at once, their ticks of the same second are added up. (With one load
/// each tick stands alone: a tick that drifts into its neighbour's second must not be added to it.)
fn goodput_by_second<'a>(ticks: impl Iterator<Item = &'a Tick> + Clone) -> Vec<f64> {
    let rate = |t: &Tick| t.counts.ok as f64 / (t.to_s - t.from_s);
    let loads: BTreeSet<&str> = ticks.clone().map(|t| t.load.as_str()).collect();
    if loads.len() < 2 {
        return ticks.map(rate).collect();
    }
    let mut by_second: BTreeMap<i64, f64> = BTreeMap::new();
    for tick in ticks {
        *by_second.entry(((tick.from_s + tick.to_s) / 2.0).floor() as i64).or_default() += rate(tick);
    }
    by_second.into_values().collect()
}
