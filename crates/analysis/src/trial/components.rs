//! Samples → what each component used during the load, and what each probe reported.
//!
//! For a counter the difference over the load is reported ([`crate::trial::counter`]); for a level, its mean over time
//! and its maximum during the load; for memory also the last reading after the drain. If a load is so short that no
//! reading fell into it, the levels of the first one after it are used.

use std::collections::BTreeMap;

use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::{
    ActionSummary, ComponentSummary, InOut, MeanMax, MemorySummary, ProbeSummary, ReadWritten,
};
use loadlab_record::watch::limits::LimitsInForce;
use loadlab_record::watch::names::{PROBES, RESERVED};
use loadlab_record::watch::sample::Sample;

use crate::trial::counter::{AT_REST_S, Counter, During};

/// What each component under test used, by name, from the first load's start to the last outcome; a mean covers only
/// the `asked` part of that, as rates do: a component idles while stragglers are awaited. A component that has only
/// events (it never came up far enough to be read) is listed too.
pub fn summaries(
    samples: &[Sample],
    events: &[Event],
    cpu_limits: &BTreeMap<String, f64>,
    during: During,
    asked: During,
) -> BTreeMap<String, ComponentSummary> {
    let mut by_name: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| !RESERVED.contains(&s.component.as_str())) {
        by_name.entry(&sample.component).or_default().push(sample);
    }
    for event in events {
        if let EventKind::Up { component, .. } | EventKind::Died { component, .. } = &event.what {
            by_name.entry(component).or_default();
        }
    }
    by_name
        .into_iter()
        .map(|(name, mut readings)| {
            readings.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
            let mut summary = of_component(&readings, during, asked);
            summary.limits = limits(name, events, during);
            // A Compose file's own limit, or that of one of several containers, is known only from what is in force.
            let limit = cpu_limits.get(name).copied().or(summary.limits.cpu_cores);
            // If the limit changed, its use cannot be compared with a single one.
            summary.cpu_limit = limit.filter(|_| !is_cpu_limit_changed(name, events, during));
            (summary.restarts, summary.died) = lives(name, events);
            summary.oom_kills_at_s = events.iter().filter_map(|e| oom_kill(name, e)).collect();
            (name.to_owned(), summary)
        })
        .collect()
}

/// What one component used in a part of a trial; its last memory reading is the last one of that part.
pub fn within(samples: &[Sample], component: &str, during: During) -> ComponentSummary {
    let mut readings: Vec<&Sample> = samples.iter().filter(|s| s.component == component).collect();
    readings.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let mut summary = of_component(&readings, during, during);
    let until = readings.partition_point(|s| s.at_s <= during.to_s);
    summary.memory_bytes.last = memory(&readings[..until], &[]).last;
    // Kills since the last reading before that part.
    let from = readings.partition_point(|s| s.at_s <= during.from_s).saturating_sub(1);
    summary.oom_kills = kills(&readings[from.min(until)..until]);
    summary
}

fn of_component(readings: &[&Sample], during: During, asked: During) -> ComponentSummary {
    let counter = |get: fn(&Sample) -> Option<f64>| Counter::of(readings.iter().copied(), get);
    let cpu = counter(cpu_s);
    let bytes = |get| counter(get).used(during).map(|v| v.round() as u64);
    let levels = levels(readings, during);
    let most = |get: fn(&Sample) -> Option<u64>| levels.iter().filter_map(|s| get(s)).max();
    ComponentSummary {
        cpu_percent: MeanMax {
            mean: cpu.per_s(asked).or_else(|| cpu.per_s(during)).map(|v| v * 100.0),
            max: cpu.largest_per_s(during).map(|v| v * 100.0),
        },
        cpu_s: cpu.used(during),
        throttled_s: counter(|s| s.throttled_s).used(during),
        memory_bytes: memory(readings, levels),
        net_bytes: InOut {
            received: bytes(|s| s.net_in_bytes.map(|v| v as f64)),
            sent: bytes(|s| s.net_out_bytes.map(|v| v as f64)),
        },
        block_bytes: ReadWritten {
            read: bytes(|s| s.block_read_bytes.map(|v| v as f64)),
            written: bytes(|s| s.block_written_bytes.map(|v| v as f64)),
        },
        pids_max: most(|s| s.pids),
        open_files_max: most(|s| s.open_files),
        // A kill is a single event: it counts fully, wherever in the trial it happened.
        oom_kills: kills(readings),
        ..ComponentSummary::default()
    }
}

/// Kills between the first reading and the last. A restarted component has a new cgroup, which counts from 0.
fn kills(readings: &[&Sample]) -> Option<u64> {
    let mut counts = readings.iter().filter_map(|s| s.oom_kills);
    let mut before = counts.next()?;
    let steps = counts.map(|now| {
        let more = if now < before { now } else { now - before };
        before = now;
        more
    });
    Some(steps.sum())
}

/// CPU time of a sample: the sum if the kernel reports it, else its parts.
pub fn cpu_s(sample: &Sample) -> Option<f64> {
    sample.cpu_s.or_else(|| Some(sample.cpu_user_s? + sample.cpu_system_s?))
}

/// The longest time between two readings of a component.
const READ_EVERY_S: f64 = 1.0;

/// The readings that show levels during the load. A load of milliseconds may contain none if the machine was busy:
/// then the first one after it counts, at most a second late.
fn levels<'a>(readings: &'a [&'a Sample], during: During) -> &'a [&'a Sample] {
    let from = readings.partition_point(|s| s.at_s < during.from_s);
    let to = readings.partition_point(|s| s.at_s <= during.to_s);
    // In a longer load a missing reading means that the component was down.
    let is_short = during.to_s - during.from_s < READ_EVERY_S;
    match readings.get(to) {
        Some(next) if from >= to && is_short && next.at_s <= during.to_s + READ_EVERY_S => &readings[to..=to],
        _ => &readings[from.min(to)..to],
    }
}

/// Memory over all readings, and over those of the load.
fn memory(readings: &[&Sample], levels: &[&Sample]) -> MemorySummary {
    let of = |s: &&Sample| s.memory_bytes.or(s.resident_bytes).map(|v| (s.at_s, v as f64));
    let loaded: Vec<(f64, f64)> = levels.iter().filter_map(of).collect();
    let max = loaded.iter().map(|(_, v)| *v).reduce(f64::max);
    // If events changed the limit, the one in force at the largest reading.
    let largest = |s: &&&Sample| of(s).map(|(_, v)| v) == max;
    let limit = match max.and_then(|_| levels.iter().find(largest)) {
        Some(sample) => sample.memory_limit_bytes,
        None => readings.iter().rev().find_map(|s| s.memory_limit_bytes),
    };
    let last = readings.iter().filter_map(of).next_back().map(|(_, v)| v);
    MemorySummary { mean: mean_over_time(&loaded), max, last, limit }
}

/// Mean of readings over time, by trapezoids, so that a burst of readings does not weigh more; the plain mean if all
/// are from one moment.
fn mean_over_time(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let length_s = last.0 - first.0;
    if length_s <= 0.0 {
        return Some(points.iter().map(|(_, v)| v).sum::<f64>() / points.len() as f64);
    }
    let area: f64 = points.windows(2).map(|p| (p[1].0 - p[0].0) * (p[0].1 + p[1].1) / 2.0).sum();
    Some(area / length_s)
}

/// The limits that were in force when the load began.
fn limits(name: &str, events: &[Event], during: During) -> LimitsInForce {
    let mut reported = events.iter().filter_map(|e| match &e.what {
        EventKind::Limited { component, limits } if component == name => Some((e.at_s, limits)),
        _ => None,
    });
    let before = reported.rfind(|(at_s, _)| *at_s <= during.from_s);
    before.map(|(_, limits)| limits.clone()).unwrap_or_default()
}

/// Whether an event of the plan changed a component's CPU limit during the load.
fn is_cpu_limit_changed(name: &str, events: &[Event], during: During) -> bool {
    events.iter().filter(|event| event.at_s > during.from_s && event.at_s < during.to_s).any(|event| {
        let EventKind::Action { what, components, error: None } = &event.what else { return false };
        let mut words = what.split_whitespace();
        let (does, limit) = (words.next(), words.nth(1));
        (does, limit) == (Some("limit"), Some("cpu")) && components.iter().any(|component| component == name)
    })
}

fn oom_kill(name: &str, event: &Event) -> Option<f64> {
    match &event.what {
        EventKind::OutOfMemory { component, .. } if component == name => Some(event.at_s),
        _ => None,
    }
}

/// Events of the plan, as carried out.
pub fn actions(events: &[Event]) -> Vec<ActionSummary> {
    let acted = events.iter().filter_map(|e| match &e.what {
        EventKind::Action { what, error, .. } => {
            Some(ActionSummary { at_s: e.at_s, what: what.clone(), error: error.clone() })
        }
        _ => None,
    });
    acted.collect()
}

/// How often a component was restarted after it had ended, and how it first died, if it did.
fn lives(name: &str, events: &[Event]) -> (u64, Option<String>) {
    let (mut ended, mut restarts, mut died) = (false, 0, None);
    for event in events {
        match &event.what {
            EventKind::Up { component, .. } if component == name => {
                restarts += u64::from(ended);
                ended = false;
            }
            EventKind::Died { component, status } if component == name => {
                ended = true;
                died.get_or_insert_with(|| status.clone());
            }
            EventKind::Down { component, .. } if component == name => ended = true,
            _ => {}
        }
    }
    (restarts, died)
}

/// What each probe reported. A probe of a component is named `component.probe`, the others by their own name.
pub fn probes(samples: &[Sample], during: During) -> BTreeMap<String, ProbeSummary> {
    let mut by_name: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    // When each probe last failed, and how often since the load began.
    let mut failures: BTreeMap<String, (f64, u64)> = BTreeMap::new();
    for sample in samples {
        for (probe, value) in &sample.probes {
            by_name.entry(probe_name(sample, probe)).or_default().push((sample.at_s, *value));
        }
        for probe in sample.probes_failed.keys() {
            let name = probe_name(sample, probe);
            by_name.entry(name.clone()).or_default();
            let failed = failures.entry(name).or_insert((f64::NEG_INFINITY, 0));
            failed.0 = failed.0.max(sample.at_s);
            failed.1 += u64::from(sample.at_s >= during.from_s);
        }
    }
    by_name
        .into_iter()
        .map(|(name, mut readings)| {
            readings.sort_by(|a, b| a.0.total_cmp(&b.0));
            // From the load on, including the drain, and its value when the load began; a probe that was only read
            // before keeps that value.
            let in_load = readings.partition_point(|r| r.0 < during.from_s);
            let at_rest = |rest: &usize| (-AT_REST_S..0.0).contains(&(readings[*rest].0 - during.from_s));
            let from = in_load.checked_sub(1).filter(at_rest).unwrap_or(in_load);
            let mut loaded: Vec<f64> = readings[from..].iter().map(|r| r.1).collect();
            if loaded.is_empty() {
                loaded = readings.iter().map(|r| r.1).collect();
            }
            let (failed_at_s, failed) = failures.get(&name).copied().unwrap_or((f64::NEG_INFINITY, 0));
            // One that failed at the end has no last value: its earlier value may be long outdated.
            let is_read = readings.last().is_some_and(|(at_s, _)| *at_s > failed_at_s);
            let summary = ProbeSummary {
                first: loaded.first().copied(),
                last: loaded.last().copied().filter(|_| is_read),
                failed,
                max: loaded.iter().copied().reduce(f64::max),
                mean: (!loaded.is_empty()).then(|| loaded.iter().sum::<f64>() / loaded.len() as f64),
            };
            (name, summary)
        })
        .collect()
}

/// A probe's full name.
pub fn probe_name(sample: &Sample, probe: &str) -> String {
    match sample.component.as_str() {
        PROBES => probe.to_owned(),
        component => format!("{component}.{probe}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURING: During = During { from_s: 0.0, to_s: 3.0 };

    #[test]
    fn a_probe_that_failed_in_the_end_has_no_last_value() {
        let read = |at_s: f64, value: Result<f64, &str>| {
            let mut sample = Sample { at_s, component: "probes".into(), ..Sample::default() };
            match value {
                Ok(value) => drop(sample.probes.insert("n".into(), value)),
                Err(why) => drop(sample.probes_failed.insert("n".into(), why.into())),
            }
            sample
        };
        let reported = |samples: &[Sample]| {
            let probe = probes(samples, DURING)["n"];
            (probe.first, probe.last, probe.failed)
        };
        let (one, two) = (read(0.0, Ok(1.0)), read(1.0, Ok(2.0)));
        assert_eq!(reported(&[one.clone(), two.clone()]), (Some(1.0), Some(2.0), 0));
        assert_eq!(reported(&[one.clone(), two, read(2.0, Err("gone"))]), (Some(1.0), None, 1));
        assert_eq!(reported(&[one, read(1.0, Err("gone")), read(2.0, Ok(3.0))]), (Some(1.0), Some(3.0), 1));
        assert_eq!(reported(&[read(-1.0, Err("early")), read(1.0, Err("gone"))]), (None, None, 1));
    }

    #[test]
    fn kills_are_counted_across_a_restart() {
        let killed = |counts: &[Option<u64>]| {
            let read = |oom_kills: &Option<u64>| Sample { oom_kills: *oom_kills, ..Sample::default() };
            let samples: Vec<Sample> = counts.iter().map(read).collect();
            kills(&samples.iter().collect::<Vec<_>>())
        };
        assert_eq!(killed(&[None, None]), None);
        assert_eq!(killed(&[Some(1), Some(1), None, Some(3)]), Some(2));
        // It has a new cgroup: killed once before the restart, and once after.
        assert_eq!(killed(&[Some(0), Some(1), Some(0), Some(1)]), Some(2));
        assert_eq!(killed(&[Some(2), Some(2), None, Some(0)]), Some(0));
    }

    #[test]
    fn what_is_used_is_counted_over_the_readings_own_times() {
        // Idle before the load; then one core and a bit, read at a separate phase, and when the schedule ends.
        let read = |at_s: f64| Sample {
            at_s,
            component: "web".into(),
            cpu_s: Some(7.0 + 1.25 * at_s.clamp(0.0, 10.0)),
            ..Sample::default()
        };
        let reported = |times: &[f64]| {
            let samples: Vec<Sample> = times.iter().map(|at_s| read(*at_s)).collect();
            let during = During { from_s: 0.0, to_s: 10.0 };
            let web = &summaries(&samples, &[], &BTreeMap::new(), during, during)["web"];
            let rounded = |v: Option<f64>| (v.unwrap() * 1e3).round() / 1e3;
            (rounded(web.cpu_s), rounded(web.cpu_percent.mean), rounded(web.cpu_percent.max))
        };
        for phase in [0.056, 0.37, 0.906] {
            let mut times = vec![-0.045];
            times.extend((0..10).map(|k| f64::from(k) + phase));
            times.extend([10.0, 10.9]);
            assert_eq!(reported(&times), (12.5, 125.0, 125.0), "{phase}");
        }
        // Irregular readings are no less exact.
        assert_eq!(reported(&[-0.03, 0.2, 0.9, 2.8, 3.1, 7.77, 10.0]), (12.5, 125.0, 125.0));
    }

    #[test]
    fn a_probe_begins_with_what_it_said_when_the_load_began() {
        let read = |at_s: f64, value: f64| Sample {
            at_s,
            component: "probes".into(),
            probes: BTreeMap::from([("n".to_owned(), value)]),
            ..Sample::default()
        };
        let first = |samples: &[Sample]| probes(samples, DURING)["n"].first;
        assert_eq!(first(&[read(-1.0, 1.0), read(-0.02, 2.0), read(0.4, 3.0)]), Some(2.0));
        assert_eq!(first(&[read(-0.6, 1.0), read(0.4, 3.0)]), Some(3.0), "that was long before");
        assert_eq!(first(&[read(-0.02, 1.0), read(0.0, 2.0)]), Some(1.0));
    }

    #[test]
    fn a_load_between_two_readings_has_the_levels_of_the_next_one() {
        let read = |at_s: f64, memory: u64| Sample {
            at_s,
            component: "web".into(),
            memory_bytes: Some(memory),
            memory_limit_bytes: Some(100),
            open_files: Some(memory / 10),
            ..Sample::default()
        };
        let reported = |samples: &[Sample], to_s: f64| {
            let during = During { from_s: 0.0, to_s };
            let web = &summaries(samples, &[], &BTreeMap::new(), during, during)["web"];
            let memory = &web.memory_bytes;
            (memory.mean, memory.max, memory.last, memory.limit, web.open_files_max)
        };
        let between = [read(-0.5, 10), read(0.1, 20), read(1.0, 90), read(2.0, 30)];
        assert_eq!(reported(&between, 0.01), (Some(20.0), Some(20.0), Some(30.0), Some(100), Some(2)));
        assert_eq!(reported(&between, 0.1), (Some(20.0), Some(20.0), Some(30.0), Some(100), Some(2)));
        assert_eq!(reported(&between, 1.0).1, Some(90.0));
        // A later reading does not count.
        let late = [read(-0.5, 10), read(1.2, 20)];
        assert_eq!(reported(&late, 0.01), (None, None, Some(20.0), Some(100), None));
        let down = [read(-0.5, 10), read(5.1, 20)];
        assert_eq!(reported(&down, 5.0).1, None, "it came back after the load");
        assert_eq!(reported(&late[..1], 0.01), (None, None, Some(10.0), Some(100), None));
    }

    #[test]
    fn limits_are_those_of_the_loads_beginning() {
        let limited = |at_s: f64, pids: u64| Event {
            at_s,
            what: EventKind::Limited {
                component: "web".into(),
                limits: LimitsInForce { pids: Some(pids), ..LimitsInForce::default() },
            },
        };
        let kill = EventKind::OutOfMemory { component: "web".into(), kills: 1, limit_bytes: None };
        let acted = EventKind::Action { what: "limit web pids 3".into(), components: vec![], error: None };
        let events = [
            limited(-2.0, 1),
            limited(-1.0, 2),
            limited(1.0, 3),
            Event { at_s: 1.0, what: acted },
            Event { at_s: 2.5, what: kill },
        ];
        assert_eq!(limits("web", &events, DURING).pids, Some(2));
        assert!(limits("other", &events, DURING).is_empty());
        let up = Event { at_s: -3.0, what: EventKind::Up { component: "web".into(), pid: None } };
        let all = [&[up][..], &events].concat();
        assert_eq!(summaries(&[], &all, &BTreeMap::new(), DURING, DURING)["web"].oom_kills_at_s, [2.5]);
        let acted = super::actions(&events);
        assert_eq!((acted[0].at_s, acted[0].what.as_str()), (1.0, "limit web pids 3"));
    }
}
