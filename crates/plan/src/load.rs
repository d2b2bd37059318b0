//! Reads loads and their journeys.

use std::collections::BTreeSet;

use crate::error::Problem;
use crate::keys::{self, METHODS};
use crate::node::{Node, Value, shorten};
use crate::reader::{Fields, Reader};
use crate::source::Span;
use crate::spec::{Arrivals, Body, LoadSpec, Model, Step, Think, Until, WhenBehind};
use crate::stages::{self, Stages};
use crate::suggest;
use crate::system::{in_folder, json_template, read_url};
use crate::template::Template;
use crate::values::whole_number;

const SECOND_NS: u64 = 1_000_000_000;

/// Reads one load; `None` when it lacks what a load must have (which was said).
pub(crate) fn read(r: &mut Reader<'_>, name: &str, node: &Node, at: Span) -> Option<LoadSpec> {
    let fields = r.fields(node, &keys::LOAD, at)?;
    let stages = stages::read(r, &fields);
    let model = read_model(r, &fields, stages.as_ref());
    let until = read_until(r, &fields, stages.as_ref());
    let (batches, pause_ns) = read_batches(r, &fields);
    let when_behind = match r.choice(&fields, "when_behind") {
        Some("drop") => WhenBehind::Drop,
        _ => WhenBehind::Queue,
    };
    let ramp_ns = r.duration(&fields, "ramp").unwrap_or(0);
    let warmup_ns = r.duration(&fields, "warmup").unwrap_or(0);
    let start_ns = r.duration(&fields, "start").unwrap_or(0);
    let think = read_think(r, &fields, stages.as_ref());
    let timeout_ns = r.positive_duration(&fields, "timeout").unwrap_or(30 * SECOND_NS);
    let grace_ns = r.duration(&fields, "grace").unwrap_or(5 * SECOND_NS);
    let keep_alive = r.flag(&fields, "keep_alive").unwrap_or(true);
    let threads = r.count(&fields, "threads").map(|n| n as u32);
    let seed = r.count(&fields, "seed").unwrap_or(1);
    fits_together(r, &fields, until, (ramp_ns, warmup_ns));
    let journey = read_journey(r, &fields);
    Some(LoadSpec {
        name: name.to_owned(),
        model: model?,
        until: until?,
        ramp_ns,
        warmup_ns,
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
        journey: journey?,
    })
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

/// Keys that mean nothing with stages, or with stages of this kind.
fn of_the_other_kind(r: &mut Reader<'_>, fields: &Fields<'_>, stages: &Stages) {
    use keys::keys_hint::{ARRIVALS, MAX_IN_FLIGHT, PACE, THINK};
    let (others, kind) = match stages.is_rate {
        true => ([("pace", PACE), ("think", THINK)], "a rate"),
        false => ([("arrivals", ARRIVALS), ("max_in_flight", MAX_IN_FLIGHT)], "users"),
    };
    for (key, hint) in others.into_iter().filter(|(key, _)| fields.get(key).is_some()) {
        let problem =
            Problem::new(fields.key_span(key), format!("`{key}` has no meaning for stages of {kind}"));
        r.push(problem.related("`stages` is here", fields.key_span("stages")).hint(hint));
    }
    if fields.get("ramp").is_some() {
        let problem = Problem::new(fields.key_span("ramp"), "`ramp` and `stages` exclude each other");
        let problem = problem.related("`stages` is here", fields.key_span("stages"));
        r.push(problem.hint("a ramp is a stage: `{ to: 100, over: 10s }`"));
    }
}

/// Think times, of users without a pace.
fn read_think(r: &mut Reader<'_>, fields: &Fields<'_>, stages: Option<&Stages>) -> Think {
    let think = stages::read_think(r, fields);
    if think != Think::None && fields.get("pace").is_some() && !stages.is_some_and(|s| s.is_rate) {
        let problem = Problem::new(fields.key_span("think"), "`think` and `pace` exclude each other");
        let problem = problem.related("`pace` is here", fields.key_span("pace"));
        r.push(problem.hint(
            "take `pace` for steps at fixed times, however long an answer takes, `think` for a pause after each answer",
        ));
    }
    think
}

fn read_until(r: &mut Reader<'_>, fields: &Fields<'_>, stages: Option<&Stages>) -> Option<Until> {
    let duration = r.positive_duration(fields, "duration").map(Until::DurationNs);
    let requests = r.count(fields, "requests").map(Until::Requests);
    let repeats = r.count(fields, "repeats").map(Until::Repeats);
    duration.or(requests).or(repeats).or(stages.map(|s| Until::DurationNs(s.length_ns)))
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
    let key = if fields.get("duration").is_some() { "duration" } else { "stages" };
    let (duration, is_here) = (fields.key_span(key), format!("`{key}` is here"));
    if warmup_ns >= duration_ns && warmup_ns > 0 {
        let problem =
            Problem::new(fields.key_span("warmup"), "`warmup` leaves nothing of the load to measure");
        r.push(problem.related(&is_here, duration).hint("a warm-up shorter than the load"));
    }
    if ramp_ns > duration_ns && key == "duration" {
        let problem = Problem::new(fields.key_span("ramp"), "`ramp` is longer than the load");
        r.push(problem.related(is_here, duration));
    }
}

fn read_journey(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Vec<Step>> {
    let node = fields.get("journey")?;
    let items = r.list(node, "a list of steps such as `- { get: \"http://127.0.0.1:8080/\" }`");
    if items.is_empty() {
        if let Value::List(_) = node.value {
            r.push(Problem::new(fields.key_span("journey"), "`journey` has no step"));
        }
        return None;
    }
    let steps: Vec<Step> = items.iter().filter_map(|n| read_step(r, n)).collect();
    (steps.len() == items.len()).then_some(steps)
}

fn read_step(r: &mut Reader<'_>, node: &Node) -> Option<Step> {
    let fields = r.fields(node, &keys::STEP, node.span.point())?;
    let headers = read_headers(r, &fields);
    let body = match fields.get("body") {
        Some(node) => read_body(r, node, fields.key_span("body")),
        None => Some(Body::Empty),
    };
    let tags = read_tags(r, &fields);
    let statuses = fields.get("check").and_then(|n| read_check(r, n, fields.key_span("check")));
    let method = METHODS.iter().find(|m| fields.get(m).is_some())?;
    let url = fields.get(method).and_then(|n| read_url(r, n))?;
    Some(Step { method: in_capitals(method), url, headers, body: body?, tags, statuses })
}

fn in_capitals(method: &str) -> &'static str {
    const NAMES: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    NAMES.iter().find(|n| n.eq_ignore_ascii_case(method)).unwrap_or(&NAMES[0])
}

fn read_headers(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<(String, Template)> {
    let Some(node) = fields.get("headers") else { return Vec::new() };
    let mut headers = Vec::new();
    for entry in r.map(node, "a map of header fields") {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if entry.key.is_empty() || !entry.key.chars().all(token) {
            let message = format!("`{}` cannot be the name of a header field", shorten(&entry.key));
            r.push(Problem::new(entry.key_span, message));
        }
        let own = match entry.key.to_ascii_lowercase().as_str() {
            "content-length" | "transfer-encoding" => Some("it follows from the body"),
            "connection" => Some("use `keep_alive` of the load"),
            _ => None,
        };
        if let Some(hint) = own {
            r.push(Problem::new(entry.key_span, format!("`{}` is set by loadlab", entry.key)).hint(hint));
        }
        let Some(value) = r.template(&entry.value, "a text") else { continue };
        if value.to_string().contains(|c: char| c.is_control() && c != '\t') {
            r.push(Problem::new(entry.value.span, "a header field is one line"));
        }
        headers.push((entry.key.clone(), value));
    }
    headers
}

fn read_body(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Body> {
    if let Value::Scalar(..) = node.value {
        return r.template(node, "a text, `{file: …}` or `{json: …}`").map(Body::Text);
    }
    let fields = r.fields(node, &keys::BODY, at)?;
    if let Some(file) = fields.get("file") {
        let path = r.scalar(file, "a path")?;
        if path.text.is_empty() {
            r.wrong(&path, "expected a path, found an empty text", None);
            return None;
        }
        return Some(Body::File(in_folder(r.plan_dir, &path.text)));
    }
    let mut template = Template::default();
    json_template(r, fields.get("json")?, &mut template)?;
    Some(Body::Json(template))
}

fn read_tags(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for tag in r.texts(fields, "tags") {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if tag.text.is_empty() || tag.text.len() > 64 || !tag.text.chars().all(good) {
            let message = format!("`{}` cannot be a tag", shorten(&tag.text));
            r.wrong(&tag, message, Some("letters, digits, `-` and `_`, at most 64".to_owned()));
        } else if !tags.contains(&tag.text) {
            tags.push(tag.text);
        }
    }
    tags
}

fn read_check(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Vec<u16>> {
    let fields = r.fields(node, &keys::CHECK, at)?;
    let node = fields.get("status")?;
    let items = match &node.value {
        Value::List(items) if items.is_empty() => {
            r.push(Problem::new(node.span, "no status would be good"));
            return None;
        }
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut statuses = Vec::new();
    for item in items {
        let Some(scalar) = r.scalar(item, "a status such as `200`") else { continue };
        match whole_number(&scalar.text) {
            Some(n @ 100..=599) => statuses.push(n as u16),
            _ => {
                let message =
                    format!("`{}` is not a status: a number from 100 to 599", shorten(&scalar.text));
                r.wrong(&scalar, message, None);
            }
        }
    }
    Some(statuses)
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
    loads.iter().flat_map(|l| &l.journey).flat_map(|s| &s.tags).cloned().collect()
}

/// A hint for a tag that no step has.
pub(crate) fn tag_hint(tag: &str, known: &[&str]) -> Option<String> {
    if known.is_empty() {
        Some("no step of this plan has a tag".to_owned())
    } else {
        suggest::hint(tag, known)
    }
}
