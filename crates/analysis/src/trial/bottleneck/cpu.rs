//! CPU as a bottleneck: a component at its CPU limit, one that kept a single core busy, and a machine without an idle
//! core.

use loadlab_record::documents::summary::ComponentSummary;
use loadlab_record::text::units::{format_count, format_percent_whole, significant};
use loadlab_record::watch::names::{GENERATOR, HOST};
use loadlab_record::watch::sample::Sample;

use super::flow::Flow;
use super::{
    BURSTS_SHARE, BottleneckKind, Suspect, THROTTLED_SHARE, TrialData, by_component, causes, during,
    is_short, length_s, located, parts, read_in, seconds,
};
use crate::trial::components::cpu_s;
use crate::trial::counter::Counter;
use crate::trial::doubts::BUSY_SHARE;

/// A fully used core, as far as CPU time can be measured.
const WHOLE_SHARE: f64 = 1.05;
/// CPU of one thread that does all the work plus the threads that clean up after it (a garbage collector, a compiler):
/// in such servers these take a tenth or two.
const BESIDE_SHARE: f64 = 1.2;
/// Readings above this many cores show that a component uses several, whatever it used on average.
const SEVERAL_CORES: f64 = 1.5;
/// For this share of the load they are no outliers.
const SEVERAL_SHARE: f64 = 0.2;

pub fn cpu_limit(
    trial: &TrialData<'_>,
    name: &str,
    c: &ComponentSummary,
    own: &[&Sample],
) -> Option<Suspect> {
    let (load, sent) = (during(trial), parts(trial));
    let length_s = length_s(&sent);
    let throttled = Counter::of(own.iter().copied(), |s| s.throttled_s);
    // For the load only: the summary's counter continues while stragglers are awaited. Summed over cores: a component
    // throttled on four cores for a second accrues four seconds.
    let throttled_s = throttled.used_in(&sent);
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

/// Components that kept one core busy, either with one thread or with all threads together, such as those of an
/// interpreter with a global lock, which take turns.
pub fn one_cores(trial: &TrialData<'_>, flow: Option<&Flow>) -> Vec<Suspect> {
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

/// A component that cannot use a second core, however many there are.
fn one_core(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, own: &[&Sample]) -> Option<Suspect> {
    let used = c.cpu_percent.mean? / 100.0;
    if used_several(trial, own) {
        return None;
    }
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

/// Whether a component used several cores for a part of the load, such as one that works in bursts: its mean does not
/// show how many it can use.
fn used_several(trial: &TrialData<'_>, own: &[&Sample]) -> bool {
    let (mut several_s, mut all_s) = (0.0, 0.0);
    for pair in read_in(trial, own.windows(2), |pair, part| pair.iter().all(|s| part.has(s.at_s))) {
        let length_s = pair[1].at_s - pair[0].at_s;
        if let (Some(before_s), Some(after_s)) = (cpu_s(pair[0]), cpu_s(pair[1])) {
            all_s += length_s;
            several_s += if after_s - before_s > SEVERAL_CORES * length_s { length_s } else { 0.0 };
        }
    }
    several_s > 0.0 && several_s >= SEVERAL_SHARE * all_s
}

/// Every core of the machine was busy.
pub fn machine(trial: &TrialData<'_>) -> Option<Suspect> {
    let sent = parts(trial);
    let host = || trial.samples.iter().filter(|s| s.component == HOST);
    // The host's counters cover all cores, of which loadlab may be allowed only some. Older records know only the
    // latter.
    let cores = trial.summary.generator.machine_cores.unwrap_or(trial.cores);
    let used = Counter::of(host(), cpu_s).per_s_in(&sent)? / cores.max(1) as f64;
    // Within a second or two anything can be busy.
    if cores == 0 || used < BUSY_SHARE || is_short(trial) {
        return None;
    }
    let own = trial.summary.generator.cpu_s / length_s(&sent).max(f64::MIN_POSITIVE);
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
