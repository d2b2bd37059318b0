//! What screen, page and metrics show of a run, built from events. It has no clock: every change comes with its time.

use std::collections::{BTreeMap, VecDeque};

use loadlab_analysis::trial::components::{cpu_s, probe_name};
use loadlab_record::counts::load::{Counts, Tick};
use loadlab_record::documents::figure::FigureValue;
use loadlab_record::documents::manifest::{FigureFacts, UntilEnded};
use loadlab_record::documents::summary::{Summary, Verdict};
use loadlab_record::text::units::{format_count, parse_cpu_cores};
use loadlab_record::watch::names::PROBES;
use loadlab_record::watch::sample::Sample;
use loadlab_report::figures;
use loadlab_run::event::Progress;
use loadlab_run::senders::AgentNow;
use loadlab_run::{ComparisonProgress, RunEvent};

use super::used::Used;
use super::wording::{
    bottleneck_text, describe, describe_doubt, describe_rounds, describe_settled, first_figures, place_text,
};

/// How many seconds of a line are kept, for the screen's sparklines and the page's charts.
pub const SECONDS_KEPT: usize = 900;
/// As [`SECONDS_KEPT`], for agents, of which there may be a thousand: no more than a small chart shows.
const KEPT_OF_AGENTS: usize = 120;
/// How many events are kept; more do not fit on any screen.
const EVENTS: usize = 200;
/// How many finished cases and trials are kept.
const DONE: usize = 200;

/// The significance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Plain,
    Good,
    Doubtful,
    Bad,
}

/// Everything on the screen.
#[derive(Clone, Default)]
pub struct State {
    pub title: String,
    /// Index of the trial and the number of trials: `3/15`.
    pub place: Option<String>,
    /// Case and trial, `CASE, trial N`; empty before the first one.
    pub trial: String,
    pub phase: String,
    pub phase_since_s: f64,
    /// Loads of this trial, in the order they began.
    pub loads: Vec<Load>,
    pub components: Vec<Component>,
    pub probes: Vec<Probe>,
    /// Agents of a swarm, one for each load and slot.
    pub agents: Vec<Agent>,
    /// The figures that matter of each load, in the plan's order.
    pub figures: Vec<Figure>,
    /// The figures over the whole trial. Empty until the trial is over.
    pub results: Vec<FigureResult>,
    /// The plan's definitions of the figures, for the current case.
    facts: Vec<FigureFacts>,
    /// How close each comparison is to being settled, if trials continue until it is.
    pub settling: Vec<(Weight, String)>,
    /// Finished trials.
    pub done: VecDeque<(Weight, String)>,
    pub events: VecDeque<EventLine>,
    /// Why trials are not, or not fully, trustworthy.
    pub doubts: VecDeque<(Weight, String)>,
    /// URL of the live page.
    pub page: Option<String>,
    /// Trials begun so far: if it has changed, loads and components have been replaced.
    pub trials: u64,
    limits: BTreeMap<String, f64>,
}

/// A load of the current trial.
#[derive(Clone, Default)]
pub struct Load {
    pub name: String,
    pub batch: (u32, u32),
    pub planned_s: Option<f64>,
    pub planned_requests: Option<u64>,
    pub progress: Progress,
    /// Counts of its earlier batches in this trial: each batch starts counting at zero.
    pub before: Counts,
    pub running: bool,
    /// Seconds reported so far; the last of them are kept below.
    pub seconds: u64,
    /// When each of these seconds ended, on the trial's clock.
    pub at_s: VecDeque<Option<f64>>,
    pub ok_per_s: VecDeque<Option<f64>>,
    pub failed_per_s: VecDeque<Option<f64>>,
    pub p50_ms: VecDeque<Option<f64>>,
    pub p99_ms: VecDeque<Option<f64>>,
}

/// A component as last read.
#[derive(Clone, Default)]
pub struct Component {
    pub name: String,
    /// Cores used over about the last second.
    pub cores: Option<f64>,
    pub cpu_limit: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    /// How much a CPU limit throttled it over about the last second.
    pub throttled: Option<Throttled>,
    /// Bytes received and sent per second, together.
    pub net_per_s: Option<f64>,
    /// Readings so far; of the last of them, `at_s` has the time on the trial's clock, and `cpu` the cores used.
    pub readings: u64,
    pub at_s: VecDeque<Option<f64>>,
    pub cpu: VecDeque<Option<f64>>,
    /// The last reading.
    pub last: Option<Sample>,
    /// What it has used since the first one.
    pub used: Used,
}

/// How much a CPU limit throttled a component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Throttled {
    /// Share of the limit's periods in which it was throttled, 0 to 1.
    OfPeriods(f64),
    /// Throttled seconds per second, where periods are unknown: a sum over cores, which may exceed 1.
    OfOneCore(f64),
}

/// An agent that sends a part of a load.
#[derive(Clone, Default)]
pub struct Agent {
    pub load: String,
    /// As last reported.
    pub now: AgentNow,
    /// Reports so far; of the last of them, `ok_per_s` has the successful responses per second.
    pub reports: u64,
    pub ok_per_s: VecDeque<Option<f64>>,
}

/// A probe's readings.
#[derive(Clone, Default)]
pub struct Probe {
    pub name: String,
    /// Readings so far; the last of them are kept.
    pub readings: u64,
    pub values: VecDeque<Option<f64>>,
}

/// A figure that matters, of one load.
#[derive(Clone)]
pub struct Figure {
    pub load: String,
    pub facts: FigureFacts,
    /// Its latest value.
    pub value: FigureValue,
    /// Values so far; the last of them are kept.
    pub count: u64,
    pub values: VecDeque<Option<f64>>,
}

/// A figure over a whole trial.
#[derive(Clone)]
pub struct FigureResult {
    pub name: String,
    pub unit: String,
    pub value: f64,
}

/// An event as a line of text.
#[derive(Clone)]
pub struct EventLine {
    /// Seconds since the run began.
    pub at_s: f64,
    pub weight: Weight,
    pub text: String,
}

fn keep<T>(list: &mut VecDeque<T>, value: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(value);
}

impl State {
    pub fn new(title: &str) -> State {
        State { title: title.to_owned(), phase: "getting ready".into(), ..State::default() }
    }

    pub fn remark(&mut self, now_s: f64, text: &str) {
        self.say(now_s, Weight::Doubtful, text);
    }

    fn say(&mut self, now_s: f64, weight: Weight, text: &str) {
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
            keep(&mut self.events, EventLine { at_s: now_s, weight, text: line.to_owned() }, EVENTS);
        }
    }

    fn phase(&mut self, now_s: f64, text: impl Into<String>) {
        self.phase = text.into();
        self.phase_since_s = now_s;
    }

    pub fn on_event(&mut self, now_s: f64, event: &RunEvent) {
        match event {
            RunEvent::TrialStarted { case, trial, place, of, at_most, cpu_limits, figures } => {
                self.place = Some(place_text(*place, *of, *at_most));
                self.trials += 1;
                self.trial = format!("{case}, trial {trial}");
                self.limits.clone_from(cpu_limits);
                (self.loads, self.components, self.probes, self.figures) = Default::default();
                self.agents.clear();
                self.results.clear();
                self.facts.clone_from(figures);
                self.phase(now_s, "bringing the system up");
                return;
            }
            RunEvent::Acted { what, error: None } => self.apply_limit(what),
            RunEvent::Building { what, .. } => self.phase(now_s, format!("building {what}")),
            RunEvent::Draining { until } => self.phase(now_s, format!("draining until {until}")),
            RunEvent::LoadStarted { load, batch, planned_s, planned_requests } => {
                self.phase(now_s, "loading");
                let known = self.loads.iter().position(|l| l.name == *load);
                let at = known.unwrap_or_else(|| {
                    self.loads.push(Load { name: load.clone(), ..Load::default() });
                    self.figures.extend(self.facts.iter().map(|facts| Figure::of(load, facts)));
                    self.loads.len() - 1
                });
                let own = &mut self.loads[at];
                if known.is_some() {
                    own.before.merge(&std::mem::take(&mut own.progress).counts);
                }
                (own.batch, own.planned_s, own.planned_requests) = (*batch, *planned_s, *planned_requests);
                own.running = true;
                return;
            }
            RunEvent::Progress(progress) => {
                if let Some(load) = self.loads.iter_mut().find(|l| l.name == progress.load) {
                    load.progress = progress.clone();
                }
                return;
            }
            RunEvent::Figures { load, values } => return self.update_figures(load, values),
            RunEvent::Second(tick) => return self.second(tick),
            RunEvent::Agents { load, agents } => return self.agents(load, agents),
            RunEvent::RoundEnded { .. } => return self.show_settling(now_s, event),
            RunEvent::Watched(samples) => return samples.iter().for_each(|s| self.sample(s)),
            RunEvent::LoadEnded { load, how } => {
                self.loads.iter_mut().filter(|l| l.name == *load).for_each(|l| l.running = false);
                if self.loads.iter().all(|l| !l.running) {
                    self.phase(now_s, "between loads");
                }
                let weight = if how == "complete" { Weight::Plain } else { Weight::Bad };
                return self.say(now_s, weight, &format!("load {load} ended: {how}"));
            }
            RunEvent::TrialEnded { summary, failure, .. } => {
                self.trial_ended(now_s, summary.as_deref(), failure.as_deref())
            }
            _ => {}
        }
        let weight = match event {
            RunEvent::Died { .. } => Weight::Bad,
            RunEvent::Doubt { doubt, .. } if doubt.grave => Weight::Bad,
            RunEvent::Drained { done: false, .. } | RunEvent::Note(_) | RunEvent::Doubt { .. } => {
                Weight::Doubtful
            }
            RunEvent::TrialEnded { failure: Some(_), .. } => Weight::Bad,
            _ => Weight::Plain,
        };
        if let Some(text) = describe(event) {
            self.say(now_s, weight, &text);
        }
    }

    fn update_figures(&mut self, load: &str, values: &[(String, FigureValue)]) {
        for (name, value) in values {
            let mut all = self.figures.iter_mut();
            if let Some(figure) = all.find(|f| f.load == load && f.facts.name == *name) {
                figure.update(value);
            }
        }
    }

    fn show_settling(&mut self, now_s: f64, event: &RunEvent) {
        let RunEvent::RoundEnded { round, at_most, left_s, comparisons, ended } = event else { return };
        let rounds = describe_rounds(*round, *at_most, *left_s, *ended);
        let line = |c: &ComparisonProgress| {
            let weight = if c.is_settled { Weight::Good } else { Weight::Plain };
            (weight, describe_settled(c))
        };
        self.settling = comparisons.iter().map(line).collect();
        self.settling.insert(0, (Weight::Plain, rounds.clone()));
        let is_short = ended.is_some_and(|ended| ended != UntilEnded::Settled);
        self.say(now_s, if is_short { Weight::Doubtful } else { Weight::Plain }, &rounds);
    }

    fn agents(&mut self, load: &str, agents: &[AgentNow]) {
        for now in agents {
            let known = self.agents.iter().position(|a| a.load == load && a.now.slot == now.slot);
            let at = known.unwrap_or_else(|| {
                self.agents.push(Agent { load: load.to_owned(), ..Agent::default() });
                self.agents.len() - 1
            });
            let agent = &mut self.agents[at];
            agent.reports += 1;
            keep(&mut agent.ok_per_s, Some(now.ok_per_s).filter(|_| !now.is_missing), KEPT_OF_AGENTS);
            agent.now = now.clone();
        }
    }

    fn second(&mut self, tick: &Tick) {
        let Some(load) = self.loads.iter_mut().find(|l| l.name == tick.load) else { return };
        let length_s = tick.to_s - tick.from_s;
        // The last few milliseconds of a load yield no rate.
        if length_s < 0.1 {
            return;
        }
        load.seconds += 1;
        keep(&mut load.at_s, Some(tick.to_s), SECONDS_KEPT);
        keep(&mut load.ok_per_s, Some(tick.counts.ok as f64 / length_s), SECONDS_KEPT);
        keep(&mut load.failed_per_s, Some(tick.counts.failed() as f64 / length_s), SECONDS_KEPT);
        keep(&mut load.p50_ms, tick.response_ms.p50, SECONDS_KEPT);
        keep(&mut load.p99_ms, tick.response_ms.p99, SECONDS_KEPT);
    }

    fn sample(&mut self, sample: &Sample) {
        for (probe, value) in &sample.probes {
            let name = probe_name(sample, probe);
            let known = self.probes.iter().position(|p| p.name == name);
            let at = known.unwrap_or_else(|| {
                self.probes.push(Probe { name, ..Probe::default() });
                self.probes.len() - 1
            });
            self.probes[at].readings += 1;
            keep(&mut self.probes[at].values, Some(*value), SECONDS_KEPT);
        }
        // A probe that could not be read has no current value.
        for probe in sample.probes_failed.keys() {
            let name = probe_name(sample, probe);
            if let Some(known) = self.probes.iter_mut().find(|known| known.name == name) {
                known.readings += 1;
                keep(&mut known.values, None, SECONDS_KEPT);
            }
        }
        if sample.component == PROBES {
            return;
        }
        let known = self.components.iter().position(|c| c.name == sample.component);
        let at = known.unwrap_or_else(|| {
            let cpu_limit = self.limits.get(&sample.component).copied();
            self.components.push(Component {
                name: sample.component.clone(),
                cpu_limit,
                ..Component::default()
            });
            self.components.len() - 1
        });
        self.components[at].read(sample);
    }

    /// Applies a CPU limit that an event of the plan has changed: `limit edge cpu 5%`.
    fn apply_limit(&mut self, what: &str) {
        let words: Vec<&str> = what.split(' ').collect();
        let ["limit", name, "cpu", value] = words[..] else { return };
        // `name` is one component, or all its replicas, which are numbered.
        let is_one = self.components.iter().any(|c| c.name == name);
        let is_meant = |c: &&mut Component| match c.name.strip_prefix(name) {
            Some("") => true,
            Some(number) => !is_one && number.bytes().all(|b| b.is_ascii_digit()),
            None => false,
        };
        // `none` is not a number: it removes the limit.
        let limit = parse_cpu_cores(value).ok();
        self.components.iter_mut().filter(is_meant).for_each(|c| c.cpu_limit = limit);
    }

    /// Adds the line of a trial, and its doubts to the events.
    fn trial_ended(&mut self, now_s: f64, summary: Option<&Summary>, failure: Option<&str>) {
        self.phase(now_s, "taking down");
        let Some(s) = summary else {
            let why = failure.and_then(|f| f.lines().next()).unwrap_or("nothing was measured");
            return keep(&mut self.done, (Weight::Bad, format!("✘ {}: {why}", self.trial)), DONE);
        };
        let known = |facts: &FigureFacts| {
            let figure = s.figures.get(&facts.name)?;
            Some(FigureResult { name: facts.name.clone(), unit: figure.unit.clone(), value: figure.value? })
        };
        self.results = self.facts.iter().filter_map(known).collect();
        let (weight, mark) = match s.verdict {
            Verdict::Pass => (Weight::Good, "✔"),
            Verdict::Fail => (Weight::Bad, "✘"),
            Verdict::Invalid => (Weight::Bad, "⚠"),
            Verdict::Undecided => (Weight::Doubtful, "?"),
            Verdict::None => (Weight::Plain, "–"),
        };
        let times = || {
            let of = |name| figures::short_figure(&s.response_ms, name);
            format!("p50 {}, p99 {}", of("p50"), of("p99"))
        };
        let line = format!(
            "{mark} {}: {}/s, {}, {} failed{}",
            self.trial,
            format_count(s.rate_per_s.ok),
            first_figures(&self.facts, s).unwrap_or_else(times),
            format_count(s.requests.failed as f64),
            bottleneck_text(s)
        );
        if let Some(first) = s.bottleneck.as_ref().and_then(|b| b.evidence.first()) {
            self.say(now_s, Weight::Plain, &format!("first bottleneck: {first}"));
        }
        keep(&mut self.done, (weight, line), DONE);
        for doubt in &s.doubts {
            let weight = if doubt.grave { Weight::Bad } else { Weight::Doubtful };
            let line = describe_doubt(doubt);
            self.say(now_s, weight, &line);
            keep(&mut self.doubts, (weight, format!("{}: {line}", self.trial)), EVENTS);
        }
    }
}

impl Figure {
    fn of(load: &str, facts: &FigureFacts) -> Figure {
        Figure {
            load: load.to_owned(),
            facts: facts.clone(),
            value: FigureValue::default(),
            count: 0,
            values: VecDeque::new(),
        }
    }

    fn update(&mut self, value: &FigureValue) {
        self.count += 1;
        keep(&mut self.values, value.value.or(value.estimate).or(value.at_least), SECONDS_KEPT);
        self.value = value.clone();
    }
}

impl Component {
    fn read(&mut self, sample: &Sample) {
        if let Some(last) = &self.last {
            let passed_s = sample.at_s - last.at_s;
            let rate = |read: fn(&Sample) -> Option<f64>| {
                let grown = read(sample)? - read(last)?;
                (passed_s > 0.0).then(|| (grown / passed_s).max(0.0))
            };
            self.cores = rate(cpu_s);
            let grown = |read: fn(&Sample) -> Option<u64>| Some(read(sample)?.saturating_sub(read(last)?));
            // The kernel sums throttled time over cores: only periods give a share.
            self.throttled = match grown(|s| s.throttled_periods).zip(grown(|s| s.periods)) {
                Some((_, 0)) => Some(Throttled::OfPeriods(0.0)),
                Some((throttled, all)) => {
                    Some(Throttled::OfPeriods((throttled as f64 / all as f64).min(1.0)))
                }
                None => rate(|s| s.throttled_s).map(Throttled::OfOneCore),
            };
            self.net_per_s = rate(|s| Some((s.net_in_bytes? + s.net_out_bytes?) as f64));
            self.readings += 1;
            keep(&mut self.at_s, Some(sample.at_s), SECONDS_KEPT);
            keep(&mut self.cpu, self.cores, SECONDS_KEPT);
        }
        self.memory_bytes = sample.memory_bytes.or(sample.resident_bytes);
        self.memory_limit_bytes = sample.memory_limit_bytes.or(self.memory_limit_bytes);
        self.used.read(sample);
        self.last = Some(sample.clone());
    }
}
