//! Reads loads and their journeys.

use std::collections::BTreeSet;

use crate::error::Problem;
use crate::journey::{http, step};
use crate::keys;
use crate::node::Node;
use crate::reader::{Fields, Reader};
use crate::source::Span;
use crate::spec::{Arrivals, LoadSpec, Model, Until, WhenBehind};
use crate::suggest;

const SECOND_NS: u64 = 1_000_000_000;

/// Reads one load; `None` when it lacks what a load must have (which was said).
pub(crate) fn read(r: &mut Reader<'_>, name: &str, node: &Node, at: Span) -> Option<LoadSpec> {
    let fields = r.fields(node, &keys::LOAD, at)?;
    let model = read_model(r, &fields);
    let until = read_until(r, &fields);
    let (batches, pause_ns) = read_batches(r, &fields);
    let when_behind = match r.choice(&fields, "when_behind") {
        Some("drop") => WhenBehind::Drop,
        _ => WhenBehind::Queue,
    };
    let ramp_ns = r.duration(&fields, "ramp").unwrap_or(0);
    let warmup_ns = r.duration(&fields, "warmup").unwrap_or(0);
    if let Some(1..) = r.duration(&fields, "think") {
        let span = fields.get("think").map_or(at, |n| n.span);
        r.push(
            Problem::new(span, "`think` times are not supported yet")
                .hint("`0s`, or `pace` for a fixed interval"),
        );
    }
    let timeout_ns = r.positive_duration(&fields, "timeout").unwrap_or(30 * SECOND_NS);
    let grace_ns = r.duration(&fields, "grace").unwrap_or(5 * SECOND_NS);
    let keep_alive = r.flag(&fields, "keep_alive").unwrap_or(true);
    let threads = r.count(&fields, "threads").map(|n| n as u32);
    let seed = r.count(&fields, "seed").unwrap_or(1);
    fits_together(r, &fields, until, (ramp_ns, warmup_ns));
    let http = http::read(r, &fields);
    let journey = step::read_journey(r, &fields);
    let (journey, script) = journey?;
    Some(LoadSpec {
        name: name.to_owned(),
        model: model?,
        until: until?,
        ramp_ns,
        warmup_ns,
        batches,
        pause_ns,
        when_behind,
        timeout_ns,
        grace_ns,
        keep_alive,
        threads,
        seed,
        journey,
        script,
        http,
    })
}

fn read_model(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Model> {
    let users = r.count(fields, "users");
    let rate_per_s = fields.get("rate").and_then(|n| r.rate(n));
    let pace_ns = r.positive_duration(fields, "pace");
    let arrivals = match r.choice(fields, "arrivals") {
        Some("poisson") => Arrivals::Poisson,
        _ => Arrivals::Constant,
    };
    let max_in_flight = r.count(fields, "max_in_flight").unwrap_or(10_000);
    let has = |key: &str| fields.get(key).is_some();
    if has("users") && has("when_behind") && !has("pace") {
        let problem = Problem::new(fields.key_span("when_behind"), "users without `pace` are never behind");
        r.push(problem.hint("leave it out, or give them a `pace`"));
    }
    if let Some(node) = fields.get("sessions") {
        return http::read_sessions(r, node, fields.key_span("sessions"));
    }
    match (has("users"), has("rate")) {
        (true, false) => users.map(|users| Model::Closed { users, pace_ns }),
        (false, true) => rate_per_s.map(|rate_per_s| Model::Open { rate_per_s, arrivals, max_in_flight }),
        _ => None,
    }
}

fn read_until(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Until> {
    let duration = r.positive_duration(fields, "duration").map(Until::DurationNs);
    let requests = r.count(fields, "requests").map(Until::Requests);
    let repeats = r.count(fields, "repeats").map(Until::Repeats);
    duration.or(requests).or(repeats)
}

fn read_batches(r: &mut Reader<'_>, fields: &Fields<'_>) -> (u32, u64) {
    let Some(node) = fields.get("batches") else { return (1, 0) };
    let Some(fields) = r.fields(node, &keys::BATCHES, fields.key_span("batches")) else { return (1, 0) };
    let repeat = r.count(&fields, "repeat").unwrap_or(1) as u32;
    (repeat, r.duration(&fields, "pause").unwrap_or(0))
}

/// Times against each other.
fn fits_together(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    until: Option<Until>,
    (ramp_ns, warmup_ns): (u64, u64),
) {
    let Some(Until::DurationNs(duration_ns)) = until else { return };
    let duration = fields.key_span("duration");
    if warmup_ns >= duration_ns && warmup_ns > 0 {
        let problem =
            Problem::new(fields.key_span("warmup"), "`warmup` leaves nothing of the load to measure");
        r.push(problem.related("`duration` is here", duration).hint("a warm-up shorter than the load"));
    }
    if ramp_ns > duration_ns {
        let problem = Problem::new(fields.key_span("ramp"), "`ramp` is longer than the load");
        r.push(problem.related("`duration` is here", duration));
    }
}

/// Keeps the steps that have one of the tags, and of each case the loads that still have a step.
pub(crate) fn choose(loads: &mut Vec<LoadSpec>, tags: &[String]) {
    for load in loads.iter_mut() {
        load.journey.retain(|s| s.tags.iter().any(|t| tags.contains(t)));
    }
    loads.retain(|l| !l.journey.is_empty());
}

/// All tags of some loads, sorted.
pub(crate) fn tags(loads: &[LoadSpec]) -> BTreeSet<String> {
    loads.iter().flat_map(LoadSpec::steps).flat_map(|s| &s.tags).cloned().collect()
}

/// A hint for a tag that no step has.
pub(crate) fn tag_hint(tag: &str, known: &[&str]) -> Option<String> {
    if known.is_empty() {
        Some("no step of this plan has a tag".to_owned())
    } else {
        suggest::hint(tag, known)
    }
}
