//! Memory: processes killed for lack of it, a limit that was reached, and pages that are continuously read from disk
//! because there is no room to keep them.

use loadlab_record::documents::summary::ComponentSummary;
use loadlab_record::text::units::{format_bytes, format_count, format_percent_whole};
use loadlab_record::watch::names::HOST;
use loadlab_record::watch::sample::Sample;

use super::{BottleneckKind, FULL_WEIGHT, Suspect, TrialData, during, is_short, parts, read_in};
use crate::trial::counter::Counter;

/// Memory above this share of its limit counts as full: the rest is less than the kernel needs to reclaim calmly.
const FULL_SHARE: f64 = 0.95;
/// Below this many pages a second, a program is just using a part of itself for the first time.
const FAULTS_PER_S: f64 = 50.0;
/// Faults must occur in this share of the time: at the start of a load, pages not used before are read once.
const FAULTS_SHARE: f64 = 0.6;
/// Memory and page cache above this share of the limit: the kernel makes room for each page by dropping another.
const CROWDED_SHARE: f64 = 0.9;
/// Some task waited for memory for this share of the time (the kernel's pressure).
const PRESSURE_SHARE: f64 = 0.2;

/// The suspect if a component was killed for lack of memory, is short of it, or is at its limit.
pub fn memory(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, own: &[&Sample]) -> Option<Suspect> {
    if let Some(kills) = c.oom_kills.filter(|n| *n > 0) {
        // A restarted component counts from 0.
        let is_killed = |(before, now): (u64, u64)| now != before && now > 0;
        let rises = |two: &&[&Sample]| two[0].oom_kills.zip(two[1].oom_kills).is_some_and(is_killed);
        let first = own.windows(2).find(rises).map(|two| two[1]);
        let times = if kills == 1 { "once".to_owned() } else { format!("{kills} times") };
        let text = format!("{name} ran out of memory: the kernel killed its processes {times}");
        return Some(suspect(name, first.map(|s| s.at_s), text, 1.0));
    }
    match (pressed(trial, name, own), at_limit(trial, name, own)) {
        (Some(pressed), Some(full)) => {
            Some(Suspect { share: pressed.share.max(full.share), evidence: vec![full.text], ..pressed })
        }
        (pressed, full) => pressed.or(full),
    }
}

fn suspect(name: &str, at_s: Option<f64>, text: String, share: f64) -> Suspect {
    Suspect {
        kind: BottleneckKind::Memory,
        component: Some(name.to_owned()),
        at_s,
        text,
        share,
        evidence: Vec::new(),
    }
}

fn at_limit(trial: &TrialData<'_>, name: &str, own: &[&Sample]) -> Option<Suspect> {
    // Each reading with the limit in force at that time: events change limits. `None` if there was none.
    let loaded: Vec<(f64, Option<(f64, f64)>)> = read_in(trial, own.iter(), |s, part| part.has(s.at_s))
        .into_iter()
        .map(|s| {
            let limit = s.memory_limit_bytes.filter(|l| *l > 0);
            let used = s.memory_bytes.or(s.resident_bytes);
            (s.at_s, used.zip(limit).map(|(used, limit)| (used as f64, limit as f64)))
        })
        .collect();
    let full: Vec<(f64, f64, f64)> = loaded
        .iter()
        .filter_map(|(at_s, reading)| reading.map(|(used, limit)| (*at_s, used, limit)))
        .filter(|(_, used, limit)| *used >= FULL_SHARE * limit)
        .collect();
    let (_, used, limit) = full.iter().copied().max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
    let at = full.first().map(|f| f.0);
    let share = full.len() as f64 / loaded.len().max(1) as f64;
    let text = format!(
        "{name} reached its memory limit: up to {} of {} (above {} of it for {} of the time)",
        format_bytes(used),
        format_bytes(limit),
        format_percent_whole(FULL_SHARE),
        format_percent_whole(share)
    );
    // Full does not mean slow: a component that is also at its CPU limit is held back by that.
    Some(suspect(name, at, text, share * FULL_WEIGHT))
}

/// A component that reads pages from disk all the time, near its limit or on a machine that is short of memory; or
/// that waits for memory, as the kernel counts it. The busy disk is a consequence.
fn pressed(trial: &TrialData<'_>, name: &str, own: &[&Sample]) -> Option<Suspect> {
    if is_short(trial) {
        return None;
    }
    let (load, sent) = (during(trial), parts(trial));
    let waited_by = |samples: &mut dyn Iterator<Item = &Sample>| {
        Counter::of(samples, |s| s.pressure.and_then(|p| p.memory_s)).per_s_in(&sent)
    };
    let is_high = |waited: &f64| *waited >= PRESSURE_SHARE;
    let waited = waited_by(&mut own.iter().copied()).filter(is_high);
    let of_host = || waited_by(&mut trial.samples.iter().filter(|s| s.component == HOST)).filter(is_high);
    let faults = Faults::of(trial, own);
    let crowded = own.iter().filter(|s| load.has(s.at_s)).filter_map(|s| crowded(s)).next_back();
    let why = match (crowded, waited, faults.as_ref().and_then(|_| of_host())) {
        (Some((used, limit)), ..) if faults.is_some() => format!(
            "its memory limit leaves no room for what it reads ({} of {}, page cache included)",
            format_bytes(used),
            format_bytes(limit)
        ),
        (_, Some(waited), _) => {
            format!("it waited for memory for {} of the time", format_percent_whole(waited.min(1.0)))
        }
        (_, _, Some(waited)) => format!(
            "the machine is short of memory: tasks waited for it for {} of the time",
            format_percent_whole(waited.min(1.0))
        ),
        _ => return None,
    };
    let text = match &faults {
        Some(faults) => format!(
            "{name} reads pages from a disk all the time, {} a second (major faults): {why}",
            format_count(faults.per_s.round())
        ),
        None => format!("{name} is short of memory: {why}"),
    };
    let share = faults.as_ref().map_or(0.0, |f| f.share).max(waited.unwrap_or(0.0).min(1.0));
    Some(suspect(name, faults.map(|f| f.at_s), text, share * FULL_WEIGHT))
}

/// Memory in use with page cache, and its limit, if that is nearly all of it.
fn crowded(sample: &Sample) -> Option<(f64, f64)> {
    let limit = sample.memory_limit_bytes.filter(|limit| *limit > 0)? as f64;
    let used = (sample.memory_bytes? + sample.cache_bytes.unwrap_or(0)) as f64;
    (used >= CROWDED_SHARE * limit).then_some((used, limit))
}

/// Pages that had to be read from a disk while the load ran.
struct Faults {
    per_s: f64,
    /// Share of the time with faults.
    share: f64,
    at_s: f64,
}

impl Faults {
    /// `None` if they are few, or soon over.
    fn of(trial: &TrialData<'_>, own: &[&Sample]) -> Option<Faults> {
        let counted = Counter::of(own.iter().copied(), |s| s.major_faults.map(|n| n as f64));
        let per_s = counted.per_s_in(&parts(trial)).filter(|n| *n >= FAULTS_PER_S)?;
        let load = during(trial);
        let (mut faulty_s, mut all_s, mut at_s) = (0.0, 0.0, None);
        for w in read_in(trial, own.windows(2), |w, part| part.has(w[1].at_s)) {
            let (from_s, length_s) = (w[0].at_s.max(load.from_s), w[1].at_s - w[0].at_s);
            let Some((before, after)) = w[0].major_faults.zip(w[1].major_faults) else { continue };
            all_s += length_s;
            if after.saturating_sub(before) as f64 >= FAULTS_PER_S * length_s {
                faulty_s += length_s;
                at_s = at_s.or(Some(from_s));
            }
        }
        let share = if all_s > 0.0 { faulty_s / all_s } else { 0.0 };
        at_s.filter(|_| share >= FAULTS_SHARE).map(|at_s| Faults { per_s, share, at_s })
    }
}
