//! The first bottleneck: which part of the system, or of the measurement, was saturated. A ranked list of suspects,
//! each with the evidence against it.
//!
//! `suspects_in` asks each kind of evidence for suspects and sorts them by `rank`; `located` then puts what holds
//! requests back where they wait ahead of what is busy elsewhere. The ranks, from conclusive evidence to inference:
//!
//! - 0: the *generator*, if a doubt about loadlab itself (`OWN`) is grave: nothing else can be known;
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
pub mod flow;
mod inferred;
mod located;
mod memory;
mod ports;
mod taken_down;
mod targets;

use std::collections::BTreeMap;

use loadlab_record::Failure;
use loadlab_record::counts::load::Tick;
pub use loadlab_record::documents::bottleneck::BottleneckKind;
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::{ComponentSummary, Doubt, Summary};
use loadlab_record::text::units::{
    format_bytes, format_count, format_duration_ns, format_percent_whole, significant,
};
use loadlab_record::watch::evidence::{Evidence, Listener};
use loadlab_record::watch::names::{GENERATOR, HOST};
use loadlab_record::watch::sample::Sample;

pub use self::answer::{Diagnosis, answer_of_watched, diagnose};
use self::flow::Flow;
use crate::statistics::trend::{stretches, trend};
use crate::trial::counter::{Counter, During};
use crate::trial::doubts::BUSY_SHARE;

/// A component throttled by its CPU limit for this share of the time was held back by it.
const THROTTLED_SHARE: f64 = 0.05;
/// A fully used core, as far as CPU time can be measured.
const WHOLE_SHARE: f64 = 1.05;
/// CPU of one thread that does all the work plus the threads that clean up after it (a garbage collector, a compiler):
/// in such servers these take a tenth or two.
const BESIDE_SHARE: f64 = 1.2;
/// The weight of a full resource, relative to one that held the load back.
const FULL_WEIGHT: f64 = 0.8;
/// This share counts as most.
const MOST_SHARE: f64 = 0.5;
/// A load shorter than this, in seconds, does not show what was busy.
const SHORTEST_S: f64 = 2.0;
/// If at most this share of the waiting requests is worked on, the others wait for their turn: concurrency is limited.
const FEW_SHARE: f64 = 0.5;
/// Refused, reset or timed-out connections count above this share of the requests started.
const REFUSED_SHARE: f64 = 0.001;
/// A lost SYN is retransmitted after this long: no server is that slow to accept.
const SYN_AGAIN_MS: f64 = 990.0;
/// Fewest connections dropped by full accept queues: fewer may have other causes.
const FEWEST_OVERFLOWS: f64 = 10.0;
/// Open files above this share of the limit count as all: a process that closes some to accept others is sampled in
/// between.
const FILES_SHARE: f64 = 0.97;
/// Disk-bound: some task waited for block I/O for this share of the time. Background writeback also waits now and
/// then.
const DISK_SHARE: f64 = 0.6;
/// A probe whose value falls by this share of its maximum once the load is over is a queue; one that stays is a
/// count.
const FALLS_SHARE: f64 = 0.2;
/// If less than this share of a CPU limit is used, the limit is hit only in bursts.
const BURSTS_SHARE: f64 = 0.5;
/// At a limit for less than this share of the load: just a reading or two.
const HELD_SHARE: f64 = 0.2;
/// Words in the names of probes that are queues, whatever they do once the load is over.
const QUEUE_WORDS: [&str; 7] = ["queue", "backlog", "depth", "lag", "pending", "waiting", "ready"];

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
    found.extend(by_component(trial, cpu_limit));
    found.extend(by_component(trial, open_files));
    found.extend(flow.map(|flow| ports::ports(trial, flow)).unwrap_or_default());
    found.extend(by_component(trial, disk));
    found.extend(flow.map(|flow| accept_queues(trial, flow)).unwrap_or_default());
    let has_queue = found.iter().any(|s| s.kind == BottleneckKind::AcceptQueue);
    found.extend(refused(trial, flow, has_queue));
    found.extend(queues(trial));
    found.extend(one_cores(trial, flow));
    found.extend(machine(trial));
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

/// Components that kept one core busy, either with one thread or with all threads together, such as those of an
/// interpreter with a global lock, which take turns.
fn one_cores(trial: &TrialData<'_>, flow: Option<&Flow>) -> Vec<Suspect> {
    let mut found = flow.map(|flow| located::one_thread(trial, flow)).unwrap_or_default();
    // If the load is answered as it arrives, the CPU it needs is no limit, even at about one core.
    let by_use = if causes::keeps_up(trial) { Vec::new() } else { by_component(trial, one_core) };
    let by_use = by_use.into_iter().filter_map(|mut suspect| {
        let who = suspect.component.as_deref()?;
        if found.iter().any(|s| s.component.as_deref() == Some(who)) {
            return None;
        }
        let threads = flow.and_then(|flow| flow.threads.get(who)).map(|t| &t.means);
        if let Some((threads, busiest)) = threads.and_then(|t| Some((t, t.busiest_cores?))) {
            let all = format_count(threads.count.round().max(1.0));
            let used = format_percent_whole(busiest.min(1.0));
            let is_most = threads.cpu_cores.is_some_and(|cores| busiest >= 0.5 * cores);
            let how = match is_most {
                true => format!(
                    "mostly one of its {all} threads (`{}`), which had {used} of it",
                    threads.busiest_name
                ),
                false => format!(
                    "the busiest of its {all} threads had {used} of it: they take turns, as under one lock"
                ),
            };
            suspect.text = format!("{}; {how}", suspect.text);
        }
        Some(suspect)
    });
    let by_use: Vec<Suspect> = by_use.collect();
    found.extend(by_use);
    found
}

/// Listeners that dropped connections: the cause of resets and of connects that take whole seconds.
fn accept_queues(trial: &TrialData<'_>, flow: &Flow) -> Vec<Suspect> {
    let started = trial.summary.requests.started.max(1) as f64;
    let enough = (REFUSED_SHARE * started).max(FEWEST_OVERFLOWS);
    let full = flow.listeners.iter().filter(|l| l.drops as f64 >= enough && l.component != GENERATOR);
    let suspect = |l: &Listener| {
        let who = if l.component.is_empty() { l.address.clone() } else { l.component.clone() };
        Suspect {
            kind: BottleneckKind::AcceptQueue,
            at_s: None,
            text: format!(
                "the accept queue of {who} ({}) was full: {} connections were dropped, because the server accepts too slowly or its backlog of {} is too short",
                l.address,
                format_count(l.drops as f64),
                format_count(f64::from(l.backlog))
            ),
            component: Some(who),
            share: (l.drops as f64 / started).min(1.0),
            evidence: Vec::new(),
        }
    };
    full.map(suspect).collect()
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

/// Doubts about the generator: grave ones rule out everything else, the others are one suspect among many.
fn generator(trial: &TrialData<'_>) -> Vec<Suspect> {
    const OWN: [&str; 6] =
        ["late", "throttled", "generator_stalled", "client_limit", "generator_cpu", "users_idle"];
    let doubts = trial.summary.doubts.iter().filter(|d| OWN.contains(&d.kind.as_str()));
    // A generator without headroom is reported in the closed model even if nothing depends on it; hiccups and a moment
    // of throttling are not.
    let length_s = during(trial).to_s - during(trial).from_s;
    let throttled_s = trial.summary.generator.throttled_s.unwrap_or(0.0);
    let is_throttled = length_s > 0.0 && throttled_s / length_s >= THROTTLED_SHARE;
    let had_none = |d: &Doubt| match d.kind.as_str() {
        "generator_cpu" => true,
        "throttled" => is_throttled,
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

fn cpu_limit(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, own: &[&Sample]) -> Option<Suspect> {
    let load = during(trial);
    let length_s = load.to_s - load.from_s;
    let throttled = Counter::of(own.iter().copied(), |s| s.throttled_s);
    // For the load only: the summary's counter continues while stragglers are awaited. Summed over cores: a component
    // throttled on four cores for a second accrues four seconds.
    let throttled_s = throttled.used(load);
    let stopped = throttled_s.filter(|_| length_s > 0.0).map(|s| s / length_s).unwrap_or(0.0);
    let used = c.cpu_limit.filter(|l| *l > 0.0).zip(c.cpu_percent.mean).map(|(l, p)| p / 100.0 / l);
    let at_limit = used.is_some_and(|u| u >= BUSY_SHARE);
    if stopped < THROTTLED_SHARE && !at_limit {
        return None;
    }
    // Throttled now and then while it used half of its limit: bursts, which affect the tail but not the throughput.
    let bursts = used.is_some_and(|u| u < BURSTS_SHARE);
    let first = own.windows(2).find(|w| {
        let in_load = load.has(w[1].at_s);
        let length_s = w[1].at_s - w[0].at_s;
        let more = throttled.at(w[1].at_s).zip(throttled.at(w[0].at_s)).map_or(0.0, |(b, a)| b - a);
        in_load && length_s > 0.0 && more / length_s >= THROTTLED_SHARE
    });
    let of = match (c.cpu_limit, used) {
        (Some(limit), Some(used)) => {
            format!(" used {} of its CPU limit of {}", format_percent_whole(used), cores(limit))
        }
        _ => " has a CPU limit".to_owned(),
    };
    let counted = |get: fn(&Sample) -> Option<u64>| {
        Counter::of(own.iter().copied(), |s| get(s).map(|n| n as f64)).used(load).filter(|n| *n > 0.0)
    };
    let was = match (counted(|s| s.throttled_periods).zip(counted(|s| s.periods)), throttled_s) {
        (Some((throttled, all)), _) => {
            format!(
                " and was throttled in {} of its periods",
                format_percent_whole((throttled / all).min(1.0))
            )
        }
        (None, Some(s)) if s > 0.0 => {
            format!(" and was throttled, for {} over all cores in {}", seconds(s), seconds(length_s))
        }
        _ => String::new(),
    };
    let share = used.unwrap_or(0.0).max(if bursts { 0.0 } else { stopped.min(1.0) });
    Some(Suspect {
        kind: BottleneckKind::CpuLimit,
        component: Some(name.to_owned()),
        at_s: first.map(|w| w[0].at_s.max(load.from_s)),
        text: format!("{name}{of}{was}"),
        share: share.min(1.0),
        evidence: Vec::new(),
    })
}

fn cores(limit: f64) -> String {
    if limit < 0.1 {
        return format!("{} % of a core", significant(limit * 100.0, 2));
    }
    format!("{} {}", significant(limit, 2), if limit == 1.0 { "core" } else { "cores" })
}

/// A process at its limit of open files: it accepts no more, and new connections wait. How it reacts, by retrying at
/// once or closing other connections, is a consequence.
fn open_files(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, own: &[&Sample]) -> Option<Suspect> {
    let load = during(trial);
    let loaded: Vec<(f64, f64)> =
        own.iter().filter(|s| load.has(s.at_s)).filter_map(|s| Some((s.at_s, s.open_files_share?))).collect();
    let full: Vec<f64> =
        loaded.iter().filter(|(_, share)| *share >= FILES_SHARE).map(|(at, _)| *at).collect();
    let at_s = *full.first()?;
    let share = full.len() as f64 / loaded.len() as f64;
    let most = c.open_files_max.map_or(String::new(), |n| format!(", {} in total", format_count(n as f64)));
    Some(Suspect {
        kind: BottleneckKind::OpenFiles,
        component: Some(name.to_owned()),
        at_s: Some(at_s),
        text: format!(
            "{name} ran out of file descriptors: one of its processes was at its limit (`ulimit -n`) for {} of the time{most}",
            format_percent_whole(share)
        ),
        share,
        evidence: Vec::new(),
    })
}

/// A component with some task waiting for block I/O nearly all the time (the kernel's pressure, \"some\").
fn disk(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, own: &[&Sample]) -> Option<Suspect> {
    let load = during(trial);
    let waited = Counter::of(own.iter().copied(), |s| s.pressure.and_then(|p| p.io_s)).per_s(load)?;
    if waited < DISK_SHARE || load.to_s - load.from_s < SHORTEST_S {
        return None;
    }
    let bytes = |v: Option<u64>| v.map_or("–".to_owned(), |v| format_bytes(v as f64));
    Some(Suspect {
        kind: BottleneckKind::Disk,
        component: Some(name.to_owned()),
        at_s: None,
        text: format!(
            "{name} waited for its disk for {} of the time (read {}, written {})",
            format_percent_whole(waited.min(1.0)),
            bytes(c.block_bytes.read),
            bytes(c.block_bytes.written)
        ),
        share: waited.min(1.0),
        evidence: Vec::new(),
    })
}

/// A component that cannot use a second core, however many there are.
fn one_core(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, _own: &[&Sample]) -> Option<Suspect> {
    let used = c.cpu_percent.mean? / 100.0;
    // Well above one core it does use several; whether more were available depends on the machine.
    let one =
        (BUSY_SHARE..=BESIDE_SHARE).contains(&used) && c.cpu_limit.is_none_or(|l| l > used / BUSY_SHARE);
    let text = match used <= WHOLE_SHARE {
        true => format!(
            "{name} kept one core busy for {} of the time: it does not use a second one",
            format_percent_whole(used.min(1.0))
        ),
        false => format!(
            "{name} used {} cores: apparently one thread was always busy, and the others did little",
            significant(used, 2)
        ),
    };
    (one && trial.cores != 1).then(|| Suspect {
        kind: BottleneckKind::OneCore,
        component: Some(name.to_owned()),
        at_s: None,
        text,
        share: used.min(1.0),
        evidence: Vec::new(),
    })
}

/// Every core of the machine was busy.
fn machine(trial: &TrialData<'_>) -> Option<Suspect> {
    let load = during(trial);
    let host = || trial.samples.iter().filter(|s| s.component == HOST);
    // The host's counters cover all cores, of which loadlab may be allowed only some. Older records know only the
    // latter.
    let cores = trial.summary.generator.machine_cores.unwrap_or(trial.cores);
    let used = Counter::of(host(), crate::trial::components::cpu_s).per_s(load)? / cores.max(1) as f64;
    // Within a second or two anything can be busy.
    if cores == 0 || used < BUSY_SHARE || load.to_s - load.from_s < SHORTEST_S {
        return None;
    }
    let own = trial.summary.generator.cpu_s / (load.to_s - load.from_s).max(f64::MIN_POSITIVE);
    let components = trial.summary.components.iter();
    let mut shares: Vec<(&str, f64)> = components
        .filter_map(|(n, c)| Some((n.as_str(), c.cpu_percent.mean? / 100.0)))
        .chain([(GENERATOR, own)])
        .collect();
    let ours: f64 = shares.iter().map(|(_, s)| s).sum();
    let others = (used * cores as f64 - ours).max(0.0);
    // A machine kept busy by other programs explains nothing about this system; it is reported, but decides nothing.
    let is_ours = ours >= others;
    shares.push(("others", others));
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let texts: Vec<String> =
        shares.iter().take(3).map(|(n, s)| format!("{n} {}", significant(*s, 2))).collect();
    Some(Suspect {
        kind: if is_ours { BottleneckKind::HostCpu } else { BottleneckKind::Neighbours },
        component: Some(HOST.into()),
        at_s: None,
        text: format!(
            "the machine: its {cores} cores were busy for {} of the time (in cores: {})",
            format_percent_whole(used.min(1.0)),
            texts.join(", ")
        ),
        share: used.min(1.0),
        evidence: Vec::new(),
    })
}

fn refused(trial: &TrialData<'_>, flow: Option<&Flow>, has_queue: bool) -> Vec<Suspect> {
    let s = trial.summary;
    let started = s.requests.started.max(1) as f64;
    let own = s.connections.own_limits.total();
    let connect = s.failures.get(Failure::Connect).saturating_sub(own);
    let reset = s.failures.get(Failure::Reset);
    let at = trial.ticks.iter().find(|t| {
        let f = &t.counts.failures;
        f.get(Failure::Connect) + f.get(Failure::Reset) > 0
    });
    let mut found = Vec::new();
    let host = targets::socket_of(&s.load.url).or_else(|| s.load.url.split('/').nth(2));
    let host = host.filter(|host| !host.is_empty()).unwrap_or("the target");
    let host = flow.and_then(|flow| flow.listens_at(&s.load.url)).unwrap_or(host);
    let mut say = |share: f64, text: String| {
        found.push(Suspect {
            kind: BottleneckKind::Refused,
            component: Some(host.to_owned()),
            at_s: at.map(|t| t.from_s),
            text,
            share: share.min(1.0),
            evidence: Vec::new(),
        });
    };
    let share = (connect + reset) as f64 / started;
    if share > REFUSED_SHARE {
        let n = |v: u64| format_count(v as f64);
        say(
            share,
            format!(
                "{host} rejected connections: {} refused, {} reset ({} of all requests)",
                n(connect),
                n(reset),
                significant(share * 100.0, 2) + " %"
            ),
        );
    }
    let slow = s.connect_ms.max.or(s.connect_ms.over_ms.get("max").copied()).unwrap_or(0.0);
    if slow >= SYN_AGAIN_MS && s.connect_ms.p50.is_none_or(|p50| p50 < SYN_AGAIN_MS / 2.0) {
        say(
            0.0,
            format!(
                "connects to {host} took up to {}: the first packet was lost and sent again, because the accept queue was full or the network dropped it",
                format_duration_ns(slow * 1e6)
            ),
        );
    }
    if let Some((turned_away, whose)) = turned_away(trial, slow >= SYN_AGAIN_MS)
        && !has_queue
        && turned_away >= (REFUSED_SHARE * started).max(FEWEST_OVERFLOWS)
    {
        say(
            REFUSED_SHARE,
            format!(
                "the accept queue of {whose} was full: {} connections were dropped, because the server accepts too slowly or its backlog (`listen`) is too short",
                format_count(turned_away)
            ),
        );
    }
    found
}

/// Connections dropped by full accept queues during the load, and where. A component in its own network has its own
/// counter; the machine's counter covers everything, and is used only if connects of this load took whole seconds.
fn turned_away(trial: &TrialData<'_>, has_slow_connects: bool) -> Option<(f64, String)> {
    let load = during(trial);
    let of = |name: &str| {
        let own = trial.samples.iter().filter(|s| s.component == name);
        let count = Counter::of(own, |s| Some(s.tcp.as_ref()?.accept_overflows? as f64));
        Some(count.at(load.to_s)? - count.at(load.from_s)?).filter(|n| *n > 0.0)
    };
    let own = trial.summary.components.keys().filter_map(|name| Some((of(name)?, name.clone())));
    own.max_by(|a, b| a.0.total_cmp(&b.0)).or_else(|| {
        let host = of(HOST).filter(|_| has_slow_connects)?;
        Some((host, "the target, or of another server on this machine,".to_owned()))
    })
}

/// The words of a name such as `queueDepth` or `messages_ready`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// Probes that rise while the load runs and fall once it is over.
fn queues(trial: &TrialData<'_>) -> Vec<Suspect> {
    let load = during(trial);
    let found = trial.summary.probes.keys().filter_map(|name| {
        let mut points: Vec<(f64, f64)> = trial
            .samples
            .iter()
            .flat_map(|s| {
                s.probes.iter().map(move |(p, v)| (s.at_s, crate::trial::components::probe_name(s, p), *v))
            })
            .filter(|(_, p, _)| p == name)
            .map(|(at_s, _, v)| (at_s, v))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let loaded: Vec<(f64, f64)> = points.iter().copied().filter(|p| load.has(p.0)).collect();
        let grew = trend(&stretches(&loaded, 10))?;
        let (first, last) = (loaded.first()?.1, loaded.last()?.1);
        let most = points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
        let falls = points.last()?.1 <= most - FALLS_SHARE * (most - first.min(most));
        // By the beginnings of words: `already_sent` is no queue, though it contains `ready`.
        let named = words_of(name).iter().any(|word| QUEUE_WORDS.iter().any(|queue| word.starts_with(queue)));
        let grows = grew.tau > 0.6 && last > first.max(1.0) * 1.5;
        if !grows || !falls && !named {
            return None;
        }
        let at = loaded.iter().find(|p| p.1 > first.max(1.0) * 1.5).map(|p| p.0);
        Some(Suspect {
            kind: BottleneckKind::Queue,
            component: Some(name.clone()),
            at_s: at,
            text: format!(
                "{name} grew from {} to {} during the load: its consumer cannot keep up",
                format_count(first.round()),
                format_count(last.round())
            ),
            share: grew.tau,
            evidence: Vec::new(),
        })
    });
    found.collect()
}
