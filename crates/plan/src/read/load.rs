//! Reads loads and their journeys.

use std::collections::BTreeSet;

use loadlab_record::spec::schedule::{Arrivals, Think, Until, WhenBehind};
use loadlab_record::text::time::SECOND_NS;

use crate::keys;
use crate::model::journey::Step;
use crate::model::spec::{LoadSpec, Model};
use crate::read::batches::read_batches;
use crate::read::command_load as command;
use crate::read::journey::{conversation, http, step};
use crate::read::reader::{Fields, Reader};
use crate::read::stages::{self, Stages};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::span::Span;
use crate::text::suggest;

/// Reads one load; `None` if it lacks something required (already reported).
pub(crate) fn read(r: &mut Reader<'_>, name: &str, node: &Node, at: Span) -> Option<LoadSpec> {
    let fields = r.fields(node, &keys::LOAD, at)?;
    if fields.has("command") {
        return command::read(r, name, &fields);
    }
    let stages = stages::read(r, &fields);
    let model = read_model(r, &fields, stages.as_ref());
    let until = read_until(r, &fields, stages.as_ref());
    let (batches, pause_ns) = read_batches(r, &fields);
    let when_behind = match r.choice(&fields, "when_behind") {
        Some("drop") => WhenBehind::Drop,
        _ => WhenBehind::Queue,
    };
    let ramp_ns = r.duration(&fields, "ramp").unwrap_or(0);
    let (warmup_ns, is_warmup_found) = read_warmup(r, &fields, stages.is_some());
    let start_ns = r.duration(&fields, "start").unwrap_or(0);
    let think = read_think(r, &fields, stages.as_ref());
    let timeout_ns = r.positive_duration(&fields, "timeout").unwrap_or(30 * SECOND_NS);
    let grace_ns = r.duration(&fields, "grace").unwrap_or(5 * SECOND_NS);
    let keep_alive = r.flag(&fields, "keep_alive").unwrap_or(true);
    let threads = r.count(&fields, "threads").map(|n| n as u32);
    let seed = r.count(&fields, "seed").unwrap_or(1);
    fits_together(r, &fields, until, ramp_ns, warmup_ns);
    let http = http::read(r, &fields);
    conversation::fits_load(r, &fields, model.as_ref(), http.protocol);
    r.names.has_single_requests = matches!(model, Some(Model::Open { .. }));
    if r.names.has_single_requests {
        check_users_keys(r, &fields);
    }
    let journey = step::read_journey(r, &fields);
    let (journey, script) = journey?;
    let is_closed = matches!(model, Some(Model::Closed { .. }));
    if let (true, false, Some(Until::Requests(_))) = (is_closed, script.user_teardown.is_empty(), until) {
        let problem = Problem::new(
            fields.key_span("user_teardown"),
            "users of a load with `requests` have no last journey: it ends with its last request",
        );
        let problem = problem.related("`requests` is here", fields.key_span("requests"));
        r.push(problem.hint("bound it by `duration`, or by `repeats`, the number of journeys of each user"));
    }
    Some(LoadSpec {
        name: name.to_owned(),
        model: model?,
        until: until?,
        ramp_ns,
        warmup_ns,
        is_warmup_found,
        batches,
        pause_ns,
        start_ns,
        stages: stages.map_or_else(Vec::new, |s| s.list),
        think,
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

/// Reports keys that are about users in a load whose requests belong to none.
fn check_users_keys(r: &mut Reader<'_>, fields: &Fields<'_>) {
    for key in ["user_setup", "user_teardown", "cookies"] {
        let is_off = |node: &Node| matches!(&node.value, Value::Scalar(_, text) if text == "false");
        if fields.get(key).is_some_and(|node| !is_off(node)) {
            let message = format!("`{key}` is about users, and a rate sends single requests");
            let problem = Problem::new(fields.key_span(key), message);
            r.push(
                problem
                    .hint("use `users`, or `sessions: 5/s`: users that arrive, make one journey and leave"),
            );
        }
    }
}

/// The length of a warm-up, and whether its end is to be detected.
fn read_warmup(r: &mut Reader<'_>, fields: &Fields<'_>, has_stages: bool) -> (u64, bool) {
    let is_auto =
        fields.get("warmup").is_some_and(|n| matches!(&n.value, Value::Scalar(_, t) if t == "auto"));
    if !is_auto {
        return (r.duration(fields, "warmup").unwrap_or(0), false);
    }
    for (key, other) in [("stages", has_stages), ("batches", fields.get("batches").is_some())] {
        if other {
            let problem = Problem::new(
                fields.key_span("warmup"),
                format!("a warm-up cannot be detected in a load with `{key}`"),
            );
            let problem = problem.related(format!("`{key}` is here"), fields.key_span(key));
            r.push(problem.hint("set its length: `warmup: 10s`"));
        }
    }
    (0, true)
}

fn read_model(r: &mut Reader<'_>, fields: &Fields<'_>, stages: Option<&Stages>) -> Option<Model> {
    let users = r.count(fields, "users");
    let rate_per_s = fields.get("rate").and_then(|n| r.rate(n));
    let pace_ns = r.positive_duration(fields, "pace");
    let arrivals = match r.choice(fields, "arrivals") {
        Some("poisson") => Arrivals::Poisson,
        _ => Arrivals::Constant,
    };
    let max_in_flight = r.count(fields, "max_in_flight").unwrap_or(10_000);
    let has = |key: &str| fields.get(key).is_some();
    let staged_users = stages.is_some_and(|s| !s.is_rate);
    if (has("users") || staged_users) && has("when_behind") && !has("pace") {
        let problem = Problem::new(fields.key_span("when_behind"), "users without `pace` are never behind");
        r.push(problem.hint("leave it out, or give them a `pace`"));
    }
    if let Some(node) = fields.get("sessions") {
        return http::read_sessions(r, node, fields.key_span("sessions"));
    }
    if let Some(stages) = stages {
        of_the_other_kind(r, fields, stages);
    }
    match (has("users"), has("rate"), stages) {
        (true, false, None) => users.map(|users| Model::Closed { users, pace_ns }),
        (false, true, None) => {
            rate_per_s.map(|rate_per_s| Model::Open { rate_per_s, arrivals, max_in_flight })
        }
        (false, false, Some(stages)) if stages.is_rate => {
            Some(Model::Open { rate_per_s: stages.most, arrivals, max_in_flight })
        }
        (false, false, Some(stages)) => Some(Model::Closed { users: stages.most as u64, pace_ns }),
        _ => None,
    }
}

/// Reports keys that have no meaning with stages, or with stages of this kind.
fn of_the_other_kind(r: &mut Reader<'_>, fields: &Fields<'_>, stages: &Stages) {
    use keys::keys_hint::{ARRIVALS, MAX_IN_FLIGHT, PACE, THINK};
    let (others, kind) = match stages.is_rate {
        true => ([("pace", PACE), ("think", THINK)], "a rate"),
        false => ([("arrivals", ARRIVALS), ("max_in_flight", MAX_IN_FLIGHT)], "users"),
    };
    for (key, hint) in others.into_iter().filter(|(key, _)| fields.get(key).is_some()) {
        let problem =
            Problem::new(fields.key_span(key), format!("`{key}` does not apply to stages of {kind}"));
        r.push(problem.related("`stages` is here", fields.key_span("stages")).hint(hint));
    }
    if fields.get("ramp").is_some() {
        let problem = Problem::new(fields.key_span("ramp"), "`ramp` and `stages` cannot be combined");
        let problem = problem.related("`stages` is here", fields.key_span("stages"));
        r.push(problem.hint("a ramp is a stage: `{ to: 100, over: 10s }`"));
    }
}

/// Reads think times, for users without a pace.
fn read_think(r: &mut Reader<'_>, fields: &Fields<'_>, stages: Option<&Stages>) -> Think {
    let think = stages::read_think(r, fields);
    if think != Think::None && fields.get("pace").is_some() && !stages.is_some_and(|s| s.is_rate) {
        let problem = Problem::new(fields.key_span("think"), "`think` and `pace` cannot be combined");
        let problem = problem.related("`pace` is here", fields.key_span("pace"));
        r.push(problem.hint(
            "use `pace` for steps at fixed times, however long a response takes, and `think` for a pause after \
             each response",
        ));
    }
    think
}

fn read_until(r: &mut Reader<'_>, fields: &Fields<'_>, stages: Option<&Stages>) -> Option<Until> {
    let duration = r.positive_duration(fields, "duration").map(Until::Elapsed);
    let requests = r.count(fields, "requests").map(Until::Requests);
    let repeats = r.count(fields, "repeats").map(Until::Repeats);
    duration.or(requests).or(repeats).or(stages.map(|s| Until::Elapsed(s.length_ns)))
}

/// Checks times against each other.
fn fits_together(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    until: Option<Until>,
    ramp_ns: u64,
    warmup_ns: u64,
) {
    let Some(Until::Elapsed(duration_ns)) = until else { return };
    let key = if fields.get("duration").is_some() { "duration" } else { "stages" };
    let (duration, is_here) = (fields.key_span(key), format!("`{key}` is here"));
    if warmup_ns >= duration_ns && warmup_ns > 0 {
        let problem =
            Problem::new(fields.key_span("warmup"), "`warmup` leaves nothing of the load to measure");
        r.push(problem.related(&is_here, duration).hint("use a warm-up shorter than the load"));
    }
    if ramp_ns > duration_ns && key == "duration" {
        let problem = Problem::new(fields.key_span("ramp"), "`ramp` is longer than the load");
        r.push(problem.related(is_here, duration));
    }
}

/// Keeps the steps that have one of the tags, and the loads of each case that still have a step.
pub(crate) fn choose(loads: &mut Vec<LoadSpec>, tags: &[String]) {
    for load in loads.iter_mut() {
        load.journey.retain(|s| s.all_tags().any(|t| tags.contains(t)));
    }
    loads.retain(|l| !l.journey.is_empty());
}

/// The names of all series of some loads, sorted.
pub(crate) fn series(loads: &[LoadSpec]) -> BTreeSet<String> {
    loads.iter().flat_map(LoadSpec::steps).flat_map(Step::all_series).cloned().collect()
}

/// A hint for a tag that no step has.
pub(crate) fn tag_hint(tag: &str, known: &[&str]) -> Option<String> {
    if known.is_empty() {
        Some("no step of this plan has a tag".to_owned())
    } else {
        suggest::hint(tag, known)
    }
}
