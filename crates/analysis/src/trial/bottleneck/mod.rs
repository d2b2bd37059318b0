//! The first bottleneck: which part of the system, or of the measurement, was saturated. A ranked list of suspects,
//! each with the evidence against it.
//!
//! `suspects_in` asks each kind of evidence for suspects and sorts them by `rank`; `located` then puts what holds
//! requests back where they wait ahead of what is busy elsewhere. The ranks, from conclusive evidence to inference:
//!
//! - 0: the *generator*, if a doubt about loadlab itself (`GENERATOR_DOUBTS`) is grave: nothing else can be known;
//! - 1: a component that *died*, was killed for running out of memory, or had no *local port* for much of the load;
//! - 2: a component *at a limit*: CPU, memory (or constantly reading pages from disk), file descriptors, local ports;
//! - 3: a component that waited for its *disk* or saturated *one core*, a *machine* without an idle core; a *link* or
//!   a *pool*, if requests are seen to wait there;
//! - 4: a *queue* that grew while the load ran: a probe that rises, and falls once the load is over;
//! - 5: a full *accept queue*; a generator without reserve, though no result depends on it;
//! - 6: *refused* or reset connections, connects that took whole seconds (the kernel retransmits a lost SYN after 1, 3
//!   and 7 s), and limits reached only now and then;
//! - 7: nothing is saturated: *a few at a time* (throughput times the fastest response, Little's law, leaves room for
//!   only a few), or the component that holds the latency. If connections were not read, this is inferred from
//!   outside, and marked as such;
//! - 8: *neighbours*: other programs keep the machine busy, which explains nothing about the system.

mod answer;
mod causes;
mod cpu;
mod files;
pub mod flow;
mod inferred;
mod located;
mod memory;
mod ports;
mod queues;
mod refused;
mod taken_down;
mod targets;

use std::collections::BTreeMap;

use loadlab_record::counts::load::Tick;
pub use loadlab_record::documents::bottleneck::BottleneckKind;
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::{ComponentSummary, Doubt, Summary};
use loadlab_record::text::units::format_duration_ns;
use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::names::GENERATOR;
use loadlab_record::watch::sample::Sample;

pub use self::answer::{Diagnosis, answer_of_watched, diagnose};
use self::flow::Flow;
use crate::trial::counter::During;
use crate::trial::doubt_kind::{CLIENT_LIMIT, GENERATOR_CPU, GENERATOR_STALLED, LATE, THROTTLED, USERS_IDLE};

/// A component throttled by its CPU limit for this share of the time was held back by it.
const THROTTLED_SHARE: f64 = 0.05;
/// The weight of a full resource, relative to one that held the load back.
const FULL_WEIGHT: f64 = 0.8;
/// This share counts as most.
const MOST_SHARE: f64 = 0.5;
/// A load shorter than this, in seconds, does not show what was busy.
const SHORTEST_S: f64 = 2.0;
/// If at most this share of the waiting requests is worked on, the others wait for their turn: concurrency is limited.
const FEW_SHARE: f64 = 0.5;
/// If less than this share of a CPU limit is used, the limit is hit only in bursts.
const BURSTS_SHARE: f64 = 0.5;
/// At a limit for less than this share of the load: just a reading or two.
const HELD_SHARE: f64 = 0.2;

/// Something that was saturated, or may have been.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// What kind of bottleneck it is.
    pub kind: BottleneckKind,
    /// Which component, probe or machine; `None` if none can be named.
    pub component: Option<String>,
    /// When it first happened, seconds on the trial's clock, if known.
    pub at_s: Option<f64>,
    /// The statement about it, without a full stop.
    pub text: String,
    /// 0 to 1: the share of the load for which it held, or that it explains.
    pub share: f64,
    /// Further evidence for it, a sentence each without a full stop.
    pub evidence: Vec<String>,
}

/// The data of a trial.
#[derive(Clone, Copy, Debug)]
pub struct TrialData<'a> {
    /// The trial's summary.
    pub summary: &'a Summary,
    /// Samples of components, generator, host and probes.
    pub samples: &'a [Sample],
    /// Its load, second by second.
    pub ticks: &'a [Tick],
    /// Its events.
    pub events: &'a [Event],
    /// What connections and threads were seen to do; empty if they were not read.
    pub evidence: &'a [Evidence],
    /// Components in the plan's order, which is usually the path of a request.
    pub order: &'a [String],
    /// Cores of the machine; 0 if unknown.
    pub cores: u64,
}

/// All suspects, the most credible first. Never empty.
pub fn suspects(trial: TrialData<'_>) -> Vec<Suspect> {
    diagnose(&trial).suspects
}

fn suspects_in(trial: &TrialData<'_>, flow: Option<&Flow>) -> Vec<Suspect> {
    let mut found = generator(trial);
    found.extend(died(trial));
    found.extend(by_component(trial, memory::memory));
    found.extend(by_component(trial, cpu::cpu_limit));
    found.extend(by_component(trial, files::open_files));
    found.extend(flow.map(|flow| ports::ports(trial, flow)).unwrap_or_default());
    found.extend(by_component(trial, files::disk));
    found.extend(flow.map(|flow| refused::accept_queues(trial, flow)).unwrap_or_default());
    let has_queue = found.iter().any(|s| s.kind == BottleneckKind::AcceptQueue);
    found.extend(refused::refused(trial, flow, has_queue));
    found.extend(queues::queues(trial));
    found.extend(cpu::one_cores(trial, flow));
    found.extend(cpu::machine(trial));
    let by_weight = |a: &Suspect, b: &Suspect| {
        rank(a).cmp(&rank(b)).then(b.share.total_cmp(&a.share)).then(when(a).total_cmp(&when(b)))
    };
    found.sort_by(by_weight);
    if let Some(flow) = flow {
        located::locate(trial, flow, &mut found);
    }
    // Other programs on the machine explain something only if requests were seen waiting for a core.
    let decides = |found: &[Suspect]| {
        found.iter().any(|s| s.kind != BottleneckKind::Neighbours || !s.evidence.is_empty())
    };
    if !decides(&found) {
        let few = inferred::limited_concurrency(trial).filter(|_| !causes::keeps_up(trial));
        found.insert(0, few.unwrap_or_else(|| inferred::inside(trial, flow)));
    }
    replicas_together(trial, found)
}

/// Replicas of one component with the same problem are reported once, as the first of them. Other findings about the
/// same component stay, and so do addresses and probes, which may just happen to end in a number.
fn replicas_together(trial: &TrialData<'_>, sorted: Vec<Suspect>) -> Vec<Suspect> {
    let stem = |suspect: &Suspect| {
        let name =
            suspect.component.as_deref().filter(|name| trial.summary.components.contains_key(*name))?;
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (!stem.is_empty() && stem.len() < name.len()).then(|| stem.to_owned())
    };
    let mut reported: Vec<(Suspect, Vec<String>)> = Vec::new();
    for suspect in sorted {
        let like = |(first, _): &&mut (Suspect, Vec<String>)| {
            let are_replicas =
                stem(first).is_some_and(|own| stem(&suspect).is_some_and(|other| own == other));
            first.kind == suspect.kind && first.component != suspect.component && are_replicas
        };
        match (reported.iter_mut().find(like), &suspect.component) {
            (Some((_, others)), Some(name)) => {
                if !others.contains(name) {
                    others.push(name.clone());
                }
            }
            _ => reported.push((suspect, Vec::new())),
        }
    }
    let worded = reported.into_iter().map(|(mut first, mut others)| {
        if !others.is_empty() {
            others.sort();
            first.text = format!("{}; likewise {}", first.text, others.join(", "));
        }
        first
    });
    worded.collect()
}

/// Kinds that rule out the others come first; of the rest, the one that held for most of the load.
fn rank(suspect: &Suspect) -> u8 {
    match suspect.kind {
        BottleneckKind::Generator if suspect.share >= 1.0 => 0,
        BottleneckKind::Died => 1,
        // Killed for running out of memory: only that has the full share.
        BottleneckKind::Memory if suspect.share >= 1.0 => 1,
        // Without a port, requests fail at once; that does not hold back requests that wait elsewhere.
        BottleneckKind::Ports if suspect.share >= ports::DECIDES_SHARE => 1,
        // At a limit only now and then, which affects the tail but not the throughput.
        BottleneckKind::CpuLimit if suspect.share < BURSTS_SHARE => 6,
        BottleneckKind::Memory if suspect.share < HELD_SHARE * FULL_WEIGHT => 6,
        BottleneckKind::OpenFiles if suspect.share < HELD_SHARE => 6,
        // Held at a configured limit.
        BottleneckKind::Memory
        | BottleneckKind::CpuLimit
        | BottleneckKind::OpenFiles
        | BottleneckKind::Ports => 2,
        BottleneckKind::OneCore | BottleneckKind::HostCpu | BottleneckKind::Disk => 3,
        BottleneckKind::Link | BottleneckKind::Pool => 3,
        BottleneckKind::Queue => 4,
        BottleneckKind::Generator | BottleneckKind::AcceptQueue => 5,
        // Mostly a consequence: a saturated component refuses connections.
        BottleneckKind::Refused => 6,
        BottleneckKind::LimitedConcurrency | BottleneckKind::Latency | BottleneckKind::Nothing => 7,
        BottleneckKind::Neighbours => 8,
    }
}

fn when(suspect: &Suspect) -> f64 {
    suspect.at_s.unwrap_or(f64::INFINITY)
}

/// The load on the trial's clock, to the end of its window.
fn during(trial: &TrialData<'_>) -> During {
    let from_s = trial.ticks.iter().map(|t| t.from_s).fold(f64::INFINITY, f64::min);
    // After the window the load only waits for stragglers, and the system idles.
    let to_s = trial.ticks.iter().filter(|t| t.in_window).map(|t| t.to_s).fold(f64::NEG_INFINITY, f64::max);
    if to_s > from_s {
        During { from_s, to_s }
    } else {
        During { from_s: 0.0, to_s: trial.summary.elapsed_s }
    }
}

/// The load without its pauses, such as those between batches: what is idle then may be saturated in between.
fn parts(trial: &TrialData<'_>) -> Vec<During> {
    let mut runs: BTreeMap<(&str, u32), During> = BTreeMap::new();
    for tick in trial.ticks {
        let new = During { from_s: tick.from_s, to_s: f64::NEG_INFINITY };
        let run = runs.entry((tick.load.as_str(), tick.batch)).or_insert(new);
        run.from_s = run.from_s.min(tick.from_s);
        run.to_s = run.to_s.max(if tick.in_window { tick.to_s } else { f64::NEG_INFINITY });
    }
    let mut runs: Vec<During> = runs.into_values().filter(|run| run.to_s > run.from_s).collect();
    runs.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    let mut parts: Vec<During> = Vec::new();
    for run in runs {
        match parts.last_mut() {
            Some(last) if run.from_s <= last.to_s => last.to_s = last.to_s.max(run.to_s),
            _ => parts.push(run),
        }
    }
    if parts.is_empty() { vec![during(trial)] } else { parts }
}

fn length_s(parts: &[During]) -> f64 {
    parts.iter().map(|part| part.to_s - part.from_s).sum()
}

/// Whether requests were sent for too short a time to show what was busy.
fn is_short(trial: &TrialData<'_>) -> bool {
    length_s(&parts(trial)) < SHORTEST_S
}

/// The readings that lie in a part of the load, by `is_in`. Most come about once a second. If batches are so short that
/// none lies in one, those of the whole load tell more than nothing.
fn read_in<T>(
    trial: &TrialData<'_>,
    readings: impl Iterator<Item = T> + Clone,
    is_in: impl Fn(&T, During) -> bool,
) -> Vec<T> {
    let within = |parts: &[During]| -> Vec<T> {
        readings.clone().filter(|one| parts.iter().any(|part| is_in(one, *part))).collect()
    };
    let found = within(&parts(trial));
    if found.is_empty() { within(&[during(trial)]) } else { found }
}

/// Doubts about the generator: grave ones rule out everything else, the others are one suspect among many.
fn generator(trial: &TrialData<'_>) -> Vec<Suspect> {
    const GENERATOR_DOUBTS: [&str; 6] =
        [LATE, THROTTLED, GENERATOR_STALLED, CLIENT_LIMIT, GENERATOR_CPU, USERS_IDLE];
    let doubts = trial.summary.doubts.iter().filter(|d| GENERATOR_DOUBTS.contains(&d.kind.as_str()));
    // A generator without headroom is reported in the closed model even if nothing depends on it; hiccups and a moment
    // of throttling are not.
    let length_s = length_s(&parts(trial));
    let throttled_s = trial.summary.generator.throttled_s.unwrap_or(0.0);
    let is_throttled = length_s > 0.0 && throttled_s / length_s >= THROTTLED_SHARE;
    let had_none = |d: &Doubt| match d.kind.as_str() {
        GENERATOR_CPU => true,
        THROTTLED => is_throttled,
        _ => false,
    };
    let own: Vec<_> = doubts.filter(|d| d.grave || had_none(d)).collect();
    let Some(worst) = own.iter().find(|d| d.grave).or(own.first()) else { return Vec::new() };
    let limit = if worst.grave { "" } else { "; how much more the system could do is unknown" };
    vec![Suspect {
        kind: BottleneckKind::Generator,
        component: Some(GENERATOR.into()),
        at_s: None,
        text: format!("loadlab itself: {}{limit}", worst.evidence),
        share: if worst.grave { 1.0 } else { 0.9 },
        evidence: Vec::new(),
    }]
}

fn died(trial: &TrialData<'_>) -> Vec<Suspect> {
    let died = trial.events.iter().filter_map(|e| match &e.what {
        EventKind::Died { component, status } => Some(Suspect {
            kind: BottleneckKind::Died,
            component: Some(component.clone()),
            at_s: Some(e.at_s),
            text: format!("{component} died at {}: {status}", seconds(e.at_s)),
            share: 1.0,
            evidence: Vec::new(),
        }),
        _ => None,
    });
    died.collect()
}

fn seconds(value: f64) -> String {
    format_duration_ns(value.max(0.0) * 1e9)
}

type Look = fn(&TrialData<'_>, &str, &ComponentSummary, &[&Sample]) -> Option<Suspect>;

fn by_component(trial: &TrialData<'_>, look: Look) -> Vec<Suspect> {
    let mut samples: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in trial.samples {
        samples.entry(sample.component.as_str()).or_default().push(sample);
    }
    let all = trial.summary.components.iter().filter_map(|(name, summary)| {
        let mut own = samples.remove(name.as_str()).unwrap_or_default();
        own.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        look(trial, name, summary, &own)
    });
    all.collect()
}
