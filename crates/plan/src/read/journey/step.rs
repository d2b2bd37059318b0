//! Reads journeys: `setup`, the steps of users, and what surrounds them.

use loadlab_record::spec::escape::Escape;

use crate::keys::{self, METHODS};
use crate::model::journey::Step;
use crate::model::journey::{CapturedName, OnFailure, Script, Setup};
use crate::model::template::Template;
use crate::read::journey::request_fields::{one_line, read_tags};
use crate::read::journey::{body, capture, check, conversation, feeds, target};
use crate::read::names::{KnownCapture, Names, StepOwner};
use crate::read::reader::{Fields, Reader};
use crate::read::texts::{in_folder, place};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Reads the steps before all loads. Their captures are known to all loads read afterwards.
pub(crate) fn read_setup(r: &mut Reader<'_>, fields: &Fields<'_>) -> Setup {
    r.names = Names { place: StepOwner::Setup, ..Names::default() };
    let node = fields.get("setup");
    r.note_captures(node);
    let steps = node.and_then(|n| read_steps(r, n, fields.key_span("setup"))).unwrap_or_default();
    refuse_choices(r, node);
    conversation::refuse_in_setup(r, node);
    r.names.shared = r.names.captures.len();
    Setup { steps, captures: r.names.captures.iter().map(slot).collect() }
}

fn slot(known: &KnownCapture) -> CapturedName {
    CapturedName { name: known.name.clone(), is_number: known.is_number }
}

/// Reads a load's journey and what surrounds it; `None` if there is no journey (already reported).
pub(crate) fn read_journey(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<(Vec<Step>, Script)> {
    r.names.place = StepOwner::Load;
    r.names.captures.truncate(r.names.shared);
    r.names.captures.iter_mut().for_each(|c| c.is_visible = true);
    r.names.feeds.clear();
    r.names.uses_own_captures = false;
    let mut found = feeds::read(r, fields);
    for key in ["user_setup", "journey", "user_teardown"] {
        r.note_captures(fields.get(key));
    }
    let around = |r: &mut Reader<'_>, key: &str| {
        let steps = fields.get(key).map(|n| read_steps(r, n, fields.key_span(key)));
        refuse_choices(r, fields.get(key));
        steps.unwrap_or(Some(Vec::new()))
    };
    let user_setup = around(r, "user_setup");
    let is_mix = is_mix(r, fields.get("journey"));
    let journey = fields.get("journey").and_then(|n| read_steps(r, n, fields.key_span("journey")));
    // A user that leaves may have captured any of these values.
    r.names.captures.iter_mut().for_each(|c| c.is_visible = true);
    let user_teardown = around(r, "user_teardown");
    feeds::add_columns(r, &mut found);
    let script = Script {
        user_setup: user_setup?,
        user_teardown: user_teardown?,
        is_mix,
        feeds: found,
        captures: r.names.captures.iter().skip(r.names.shared).map(slot).collect(),
        uses_captures: r.names.uses_own_captures,
        cookies: r.flag(fields, "cookies").unwrap_or(false),
        redirects: r.count(fields, "redirects").unwrap_or(0) as u32,
    };
    Some((journey?, script))
}

/// Reads steps in order, so that each sees the captures of the steps before it, except in a mix, where the previous
/// step is unknown, and at a rate, where it belongs to another request.
fn read_steps(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Vec<Step>> {
    let items = r.list(node, "a list of steps such as `- { get: \"http://127.0.0.1:8080/\" }`");
    if items.is_empty() {
        if let Value::List(_) = node.value {
            r.push(Problem::new(at, format!("`{}` is empty", r.sources.slice(at))));
        }
        return None;
    }
    let mut steps = Vec::new();
    for item in items {
        let known: Vec<bool> = r.names.captures.iter().map(|c| c.is_visible).collect();
        let step = read_step(r, item);
        let in_order = step.as_ref().is_none_or(|s| s.weight.is_none()) && !r.names.has_single_requests;
        if !in_order {
            // Captures of its messages are known only inside it.
            r.names.captures.iter_mut().zip(known).for_each(|(c, known)| c.is_visible = known);
        }
        for entry in item.get("capture").map_or(&[][..], Node::entries).iter().filter(|_| in_order) {
            if let Some(slot) = r.names.slot(&entry.key) {
                r.names.captures[slot].is_visible = true;
            }
        }
        steps.extend(step);
    }
    (steps.len() == items.len()).then_some(steps)
}

/// Whether steps have weights: all of them, or none.
fn is_mix(r: &mut Reader<'_>, node: Option<&Node>) -> bool {
    let Some(Value::List(items)) = node.map(|n| &n.value) else { return false };
    let with = items.iter().find_map(|i| i.entries().iter().find(|e| e.key == "weight"));
    let without = items.iter().find(|i| i.get("weight").is_none());
    if let (Some(with), Some(without)) = (with, without) {
        let problem = Problem::new(without.span.point(), "this step has no `weight`, but others do");
        let problem = problem.related("a step with a weight is here", with.key_span);
        r.push(
            problem.hint("give all steps of a journey a weight (each round then takes one of them), or none"),
        );
    }
    with.is_some() && without.is_none()
}

/// Reports keys that choose between steps: steps around a journey run once each, so there is nothing to choose.
fn refuse_choices(r: &mut Reader<'_>, node: Option<&Node>) {
    let Some(Value::List(items)) = node.map(|n| &n.value) else { return };
    for entry in items.iter().flat_map(Node::entries) {
        let hint = match entry.key.as_str() {
            "weight" => "a `weight` belongs to the steps of a `journey`",
            "urls" => "a list of URLs belongs to the steps of a `journey`",
            _ => continue,
        };
        let problem = Problem::new(entry.key_span, "all of these steps are taken, one after another");
        r.push(problem.hint(hint));
    }
}

fn read_step(r: &mut Reader<'_>, node: &Node) -> Option<Step> {
    let fields = r.fields(node, &keys::STEP, node.span.point())?;
    let headers = read_headers(r, &fields);
    let auth = target::read_auth(r, &fields, &headers);
    let body = body::read(r, &fields);
    let tags = read_tags(r, &fields);
    let (statuses, checks) = check::read(r, &fields);
    let captures = capture::read(r, &fields);
    let weight = r.count(&fields, "weight").map(|n| n as u32);
    let websocket = conversation::read(r, &fields);
    let keeps = !captures.is_empty()
        || websocket
            .iter()
            .flat_map(|conversation| &conversation.messages)
            .any(|message| !message.captures.is_empty());
    let on_failure = match r.choice(&fields, "on_failure") {
        Some("continue") => OnFailure::Continue,
        Some("end") => OnFailure::End,
        Some("leave") => OnFailure::Leave,
        // A later step would lack the captured value.
        _ if keeps => OnFailure::End,
        _ => OnFailure::Continue,
    };
    let StepTarget { method, url, urls } = read_target(r, &fields)?;
    let at = place(r, node.span.point());
    let body = body?;
    Some(Step {
        method,
        url,
        headers,
        body,
        tags,
        series: None,
        statuses,
        checks,
        captures,
        weight,
        auth,
        on_failure,
        urls,
        websocket,
        at,
    })
}

/// What a step requests.
struct StepTarget {
    method: &'static str,
    /// Empty with a list of URLs.
    url: Template,
    /// The file of a list of URLs.
    urls: Option<String>,
}

fn read_target(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<StepTarget> {
    if let Some(node) = fields.get("urls") {
        let path = r.scalar(node, "a path")?;
        let urls = Some(in_folder(r.plan_dir, &path.text));
        return Some(StepTarget { method: "GET", url: Template::default(), urls });
    }
    if let Some(node) = fields.get("websocket") {
        let url = target::read(r, node, target::UrlKind::WebSocket)?;
        return Some(StepTarget { method: "GET", url, urls: None });
    }
    let method = METHODS.iter().find(|m| fields.get(m).is_some())?;
    let url = fields.get(method).and_then(|n| target::read(r, n, target::UrlKind::Http))?;
    Some(StepTarget { method: in_capitals(method), url, urls: None })
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
            let message = format!("`{}` is not a valid name for a header field", shorten(&entry.key));
            r.push(Problem::new(entry.key_span, message));
        }
        let own = match entry.key.to_ascii_lowercase().as_str() {
            "content-length" | "transfer-encoding" => Some("it is derived from the body"),
            "connection" => Some("set `keep_alive` of the load"),
            _ => None,
        };
        if let Some(hint) = own {
            r.push(Problem::new(entry.key_span, format!("`{}` is set by loadlab", entry.key)).hint(hint));
        }
        let is_host = |name: &str| name.eq_ignore_ascii_case("host");
        if is_host(&entry.key) && headers.iter().any(|(name, _): &(String, _)| is_host(name)) {
            r.push(
                Problem::new(entry.key_span, "a request has only one `host`")
                    .hint("leave one of the two out"),
            );
        }
        let Some(value) = r.request_text(&entry.value, "a text", Escape::Header) else { continue };
        one_line(r, entry.value.span, &value);
        headers.push((entry.key.clone(), value));
    }
    headers
}
