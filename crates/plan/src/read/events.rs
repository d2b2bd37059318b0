//! Reads `events` (what happens to the system during the load) and `durability` (where to find out what was stored).

use loadlab_record::spec::variable::Variable;

use crate::keys::{self, renamed};
use crate::model::component_kind::{ComponentKind, Isolation};
use crate::model::journey::{Body, MessageContent, PartContent, Step};
use crate::model::limits::LimitName;
use crate::model::spec::{Action, DurabilitySpec, EventSpec, LoadSpec, Persisted, ProbeSpec};
use crate::read::probes::read_pointer;
use crate::read::reader::{Fields, Reader, Scalar};
use crate::read::texts::{place, read_command, read_url};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::suggest;

/// The possible events, as written in a plan.
const FORMS: &str = "`kill NAME`, `pause NAME`, `resume NAME`, `restart NAME`, `limit NAME cpu 5%`, and with `isolate: true` \
                     `disconnect NAME`, `reconnect NAME`, `bandwidth NAME 1MiB/s`; `delay NAME 40ms`, `packet_loss NAME 1%`";

pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<EventSpec> {
    let Some(node) = fields.get("events") else { return Vec::new() };
    let items = r.list(node, "a list of events such as `[{ at: 10s, do: kill edge2 }]`");
    if items.is_empty() && matches!(node.value, Value::List(_)) {
        r.push(Problem::new(fields.key_span("events"), "`events` is empty").hint("leave it out"));
    }
    let mut events: Vec<EventSpec> = items.iter().filter_map(|item| read_one(r, item)).collect();
    events.sort_by_key(|e| e.at_ns);
    events
}

fn read_one(r: &mut Reader<'_>, node: &Node) -> Option<EventSpec> {
    let fields = r.fields(node, &keys::EVENT, node.span)?;
    let at_ns = r.duration(&fields, "at");
    let scalar = r.scalar(fields.get("do")?, "an action such as `kill edge2`")?;
    let text = scalar.text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    // `none` is for a case without events.
    if text == "none" {
        return None;
    }
    let words: Vec<&str> = text.split(' ').collect();
    let (components, action) = match words.as_slice() {
        [verb @ ("kill" | "pause" | "resume" | "restart" | "disconnect" | "reconnect"), name] => {
            let action = match *verb {
                "kill" => Action::Kill,
                "pause" => Action::Pause,
                "resume" => Action::Resume,
                "disconnect" => Action::Disconnect,
                "reconnect" => Action::Reconnect,
                _ => Action::Restart,
            };
            (named(r, &scalar, name)?, action)
        }
        ["limit", name, limit, value] => (named(r, &scalar, name)?, limit_of(r, &scalar, limit, value)?),
        // The verb is the limit's key.
        [limit @ ("bandwidth" | "delay" | "packet_loss"), name, value] => {
            (named(r, &scalar, name)?, limit_of(r, &scalar, limit, value)?)
        }
        _ => {
            let message = match renamed::verb(words[0]) {
                Some(to) => format!("`{}` was renamed to `{to}`", words[0]),
                None => format!("unknown action `{}`", shorten(&text)),
            };
            r.wrong(&scalar, message, Some(FORMS.to_owned()));
            return None;
        }
    };
    Some(EventSpec { at_ns: at_ns?, text, components, action })
}

/// The replicas that a name refers to: a single one, or all of its group.
pub(crate) fn named(r: &mut Reader<'_>, scalar: &Scalar, name: &str) -> Option<Vec<String>> {
    let meant = r.instances.iter().filter(|i| i.name == name || i.group == name);
    let meant: Vec<String> = meant.map(|i| i.name.clone()).collect();
    if meant.is_empty() {
        let names: Vec<String> = r.instances.iter().map(|i| i.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!("there is no component `{}`", shorten(name));
        r.wrong(scalar, message, suggest::hint(name, &names));
        return None;
    }
    Some(meant)
}

fn limit_of(r: &mut Reader<'_>, scalar: &Scalar, limit: &str, value: &str) -> Option<Action> {
    let Some(limit) = LimitName::ALL.into_iter().find(|l| l.key() == limit) else {
        let keys: Vec<&str> = LimitName::ALL.iter().map(|l| l.key()).collect();
        let message = match renamed::key(&keys::LIMITS, limit) {
            Some(to) if keys.contains(&to) => format!("`{limit}` was renamed to `{to}`"),
            _ => format!("`{}` is not a limit that can be changed", shorten(limit)),
        };
        r.wrong(scalar, message, suggest::hint(limit, &keys));
        return None;
    };
    if value == "none" {
        return Some(Action::Limit { limit, value: None });
    }
    match limit.parse(value) {
        Ok(0.0) if limit == LimitName::Memory => {
            r.wrong(
                scalar,
                "nothing can run without memory".to_owned(),
                Some("`none` for no limit".to_owned()),
            );
            None
        }
        Ok(value) => Some(Action::Limit { limit, value: Some(value) }),
        Err(expected) => {
            let message = format!("`{}` is not {expected}", shorten(value));
            r.wrong(scalar, message, Some("`none` for no limit".to_owned()));
            None
        }
    }
}

/// What cannot be done to such a component, and what would work instead.
pub(crate) fn unfit(
    event: &EventSpec,
    kind: &ComponentKind,
    isolate: Isolation,
) -> Option<(&'static str, &'static str)> {
    match (event.action, kind) {
        (_, ComponentKind::External(_)) => {
            Some(("loadlab only watches components that run already", "name a component that loadlab starts"))
        }
        (Action::Disconnect | Action::Reconnect | Action::Limit { limit: LimitName::Bandwidth, .. }, _)
            if isolate != Isolation::Each =>
        {
            Some(("it does not have its own link", "`isolate: true` gives each component one"))
        }
        _ => None,
    }
}

/// Whether what the step sends carries a `${unique}`.
fn carries_id(step: &Step) -> bool {
    let body = match &step.body {
        Body::Text(text) | Body::Json(text) | Body::Form(text) => Some(text),
        Body::Empty | Body::File(_) | Body::Multipart(_) => None,
    };
    let parts = match &step.body {
        Body::Multipart(parts) => parts.as_slice(),
        _ => &[],
    };
    let parts = parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text),
        PartContent::File(..) => None,
    });
    let messages = step.websocket.iter().flat_map(|conversation| &conversation.messages);
    let sent = messages.filter_map(|message| match &message.send {
        Some(MessageContent::Text(text)) => Some(text),
        Some(MessageContent::Bytes(_) | MessageContent::File(_)) | None => None,
    });
    let texts =
        step.headers.iter().map(|(_, value)| value).chain([&step.url]).chain(body).chain(parts).chain(sent);
    texts.flat_map(|t| t.variables()).any(|variable| variable == Variable::Id)
}

/// Whether a step of these loads carries a `${unique}`.
pub(crate) fn carry_ids(loads: &[LoadSpec]) -> bool {
    loads.iter().flat_map(LoadSpec::steps).any(carries_id)
}

/// Whether the plan compares stored ids, but none of this case: its own loads carry none, though those that it leaves
/// out may.
pub(crate) fn lacks_ids(fields: &Fields<'_>, loads: &[LoadSpec], left_out: bool) -> bool {
    let is_by_ids = |node: &Node| node.get("http").is_some() || node.get("command").is_some();
    left_out && fields.get("durability").is_some_and(is_by_ids) && !carry_ids(loads)
}

pub(crate) fn read_durability(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    probes: &[ProbeSpec],
    loads: &[LoadSpec],
    left_out: bool,
) -> Option<DurabilitySpec> {
    let node = fields.get("durability")?;
    let at = fields.key_span("durability");
    let fields = r.fields(node, &keys::DURABILITY, fields.key_span("durability"))?;
    let persisted = if let Some(node) = fields.get("http") {
        let url = read_url(r, node);
        let json = fields.get("json").and_then(|n| read_pointer(r, n));
        Persisted::Http { url: url?, json_pointer: json }
    } else if let Some(node) = fields.get("command") {
        Persisted::Command(read_command(r, node)?)
    } else {
        let probe = r.scalar(fields.get("probe")?, "a probe")?;
        if !probes.iter().any(|p| p.name == probe.text) {
            let names: Vec<&str> = probes.iter().map(|p| p.name.as_str()).collect();
            let message = format!("there is no probe `{}`", shorten(&probe.text));
            r.wrong(&probe, message, suggest::hint(&probe.text, &names));
            return None;
        }
        return Some(DurabilitySpec { persisted: Persisted::Probe(probe.text), at: place(r, at) });
    };
    // If there are mistakes in the loads, a step may be missing because of them.
    let is_whole = r.problems.count() == 0 && !loads.is_empty();
    let carries_none = !carry_ids(loads);
    // A load for other cases may carry a `${unique}`.
    if carries_none && left_out {
        return None;
    }
    if is_whole && carries_none {
        let problem = Problem::new(at, "no step carries a `${unique}`, so stored ids cannot be matched");
        let hint = "put `${unique}` into the requests that are stored, or count with `probe`";
        r.push(problem.hint(hint));
    }
    Some(DurabilitySpec { persisted, at: place(r, at) })
}
