//! When nothing is saturated: conclusions drawn from outside, and marked as such. A few requests at a time, or the
//! component that the latency is inside.

use loadlab_record::documents::event::EventKind;
use loadlab_record::text::units::{format_count, format_duration_ns, significant};
use loadlab_record::watch::sample::Sample;

use super::flow::Flow;
use super::taken_down::taken_down;
use super::{BottleneckKind, FEW_SHARE, Suspect, TrialData, during, located, read_in, seconds};
use crate::statistics::trend::median;

/// Response times behind a queue vary by less than this (deviation over mean); those of a slow system vary by more.
const EVEN_SPREAD: f64 = 0.6;
/// A component that held connections for this share of the requests in flight counts as holding all of them.
const HOLDS_SHARE: f64 = 0.6;
/// Files a server has open for itself: standard streams, a listener, its poller, its log.
const OWN_FILES: f64 = 8.0;

/// Components that held a connection for most requests in flight, in the order of the plan, with how many each held.
fn holders(trial: &TrialData<'_>) -> Vec<(String, f64)> {
    let load = during(trial);
    let in_flight = trial.summary.concurrency_mean;
    let mut names: Vec<&String> =
        trial.order.iter().filter(|n| trial.summary.components.contains_key(*n)).collect();
    names.extend(components(trial).filter(|n| !trial.order.contains(n)));
    let held = names.into_iter().filter_map(|name| {
        // A reading at the very start has no connections, or hardly any.
        let is_loaded = |s: &&Sample| load.has(s.at_s) && s.at_s > load.from_s + 0.05;
        let readings = || trial.samples.iter().filter(|s| s.component == *name);
        let files = |of: Vec<&Sample>| -> Vec<f64> {
            of.into_iter().filter_map(|s| s.open_files.map(|n| n as f64)).collect()
        };
        let loaded = files(read_in(trial, readings().filter(is_loaded), |s, part| part.has(s.at_s)));
        // In a pause between batches connections stay open.
        let idle = files(readings().filter(|s| !is_loaded(s)).collect());
        let most = median(&mut loaded.clone())?;
        // Files open without a load are the component's own: read before the load (at rest), or after it, when
        // connections may still be closing. Without such a reading, assume the few of a small server.
        let least = |values: Vec<f64>| values.into_iter().reduce(f64::min);
        let reported =
            trial.summary.components.get(name).and_then(|c| c.open_files_at_rest).map(|n| n as f64);
        let own = reported.or_else(|| least(idle)).or_else(|| least(loaded).map(|n| n.min(OWN_FILES)))?;
        Some((name.clone(), (most - own).max(0.0)))
    });
    held.filter(|(_, n)| *n >= HOLDS_SHARE * in_flight.max(1.0)).collect()
}

/// Requests queue though nothing is busy: only a few are served at a time.
pub fn limited_concurrency(trial: &TrialData<'_>) -> Option<Suspect> {
    let s = trial.summary;
    let (fastest, middle) = (s.response_ms.min?, s.response_ms.p50.or(s.response_ms.mean)?);
    // How times spread of which some never ended is not known.
    let (mean, deviation) = (s.ok_response_ms.mean?, s.ok_response_ms.stdev?);
    let at_a_time = s.rate_per_s.ok * fastest / 1e3;
    let waits = s.concurrency_mean >= 2.0
        && at_a_time <= FEW_SHARE * s.concurrency_mean
        && fastest <= FEW_SHARE * middle;
    // Below a millisecond the generator's own delays and the scheduler's are of that size.
    if !waits || deviation > EVEN_SPREAD * mean || middle < 1.0 {
        return None;
    }
    let holder = holders(trial).pop().map(|(name, _)| name).or_else(|| only(trial));
    let inside = holder.as_deref().map_or("in the system".to_owned(), |name| format!("inside {name}"));
    Some(Suspect {
        kind: BottleneckKind::LimitedConcurrency,
        component: holder,
        at_s: None,
        text: format!(
            "requests wait {inside}: about {} of {} in flight are served at a time (throughput × the fastest response of {}), and no component is busy: a pool, a lock or a worker count is too small",
            significant(at_a_time.max(1.0), 2),
            format_count(s.concurrency_mean.round()),
            format_duration_ns(fastest * 1e6)
        ),
        share: 1.0 - at_a_time / s.concurrency_mean,
        evidence: Vec::new(),
    })
}

fn only(trial: &TrialData<'_>) -> Option<String> {
    let mut names = components(trial);
    names.next().filter(|_| names.next().is_none()).cloned()
}

/// The system's components, without the relays that loadlab puts in front of them.
fn components<'a>(trial: &'a TrialData<'_>) -> impl Iterator<Item = &'a String> {
    let all = &trial.summary.components;
    let is_relay = |name: &String| {
        let is_planned = trial.order.contains(name);
        !is_planned && name.strip_suffix("-relay").is_some_and(|component| all.contains_key(component))
    };
    all.keys().filter(move |name| !is_relay(name))
}

/// No saturated resource was found. The text adds what the plan did to the system on purpose, but for what took
/// components away for long: that is evidence of its own.
pub fn inside(trial: &TrialData<'_>, flow: Option<&Flow>) -> Suspect {
    let guessed = inside_whom(trial);
    let seen = flow.and_then(|flow| located::in_several_places(trial, flow, &guessed));
    let mut suspect = seen.unwrap_or(guessed);
    let load = during(trial);
    let taken = taken_down(trial);
    let is_evident = |what: &str| taken.iter().any(|taken| taken.event == what);
    let acts = trial.events.iter().filter_map(|e| match &e.what {
        EventKind::Action { what, error: None, .. } if load.has(e.at_s) && !is_evident(what) => {
            Some(format!("`{what}` at {}", seconds(e.at_s)))
        }
        _ => None,
    });
    let acts: Vec<String> = acts.collect();
    if !acts.is_empty() {
        suspect.text = format!("{}; during the load the plan did {}", suspect.text, acts.join(", "));
    }
    suspect
}

/// A rate, with as many digits as matter.
fn per_s(rate: f64) -> String {
    if rate >= 100.0 { format_count(rate.round()) } else { significant(rate, 3) }
}

fn inside_whom(trial: &TrialData<'_>) -> Suspect {
    if super::causes::keeps_up(trial) {
        let rate = &trial.summary.rate_per_s;
        let text = match super::causes::is_pausing(trial) {
            true => "nothing was saturated: users paused nearly always".to_owned(),
            false => format!(
                "nothing was saturated: {}/s of {}/s due were answered",
                per_s(rate.ok),
                per_s(rate.due)
            ),
        };
        return Suspect {
            kind: BottleneckKind::Nothing,
            component: None,
            at_s: None,
            text,
            share: 0.0,
            evidence: Vec::new(),
        };
    }
    if trial.summary.load.is_command() {
        let text = "no saturated resource found; what the programs waited for was not measured".to_owned();
        return Suspect {
            kind: BottleneckKind::Latency,
            component: None,
            at_s: None,
            text,
            share: 0.0,
            evidence: Vec::new(),
        };
    }
    let holder = holders(trial).pop();
    let in_flight = trial.summary.concurrency_mean;
    let (who, text) = match (holder, only(trial)) {
        (Some((name, held)), _) => {
            let text = format!(
                "no saturated resource found: the latency is inside {name}, which held about {} connections while {} requests were in flight",
                format_count(held.round()),
                if in_flight < 10.0 { significant(in_flight, 2) } else { format_count(in_flight.round()) }
            );
            (Some(name), text)
        }
        (None, Some(name)) => {
            let text =
                format!("no saturated resource found: the latency is inside {name}, the only component");
            (Some(name), text)
        }
        (None, None) => (None, "no saturated resource found".to_owned()),
    };
    Suspect {
        kind: BottleneckKind::Latency,
        component: who,
        at_s: None,
        text,
        share: 0.0,
        evidence: Vec::new(),
    }
}
