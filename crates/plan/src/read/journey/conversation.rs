//! Reads conversations over WebSockets: what is sent, what is waited for, how long a connection is held, and whether
//! the load around them allows any.

use loadlab_record::spec::escape::Escape;
use loadlab_record::text::hex::from_hex;

use crate::keys::journey::{MESSAGE, WEBSOCKET_SEND};
use crate::model::journey::{Conversation, Message, MessageContent, Protocol};
use crate::model::spec::Model;
use crate::model::template::Template;
use crate::read::journey::{body, capture, check, request_fields};
use crate::read::reader::{Fields, Reader};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Maximum number of messages of one conversation, counting each repetition: each is a request of the engine.
const MAX_MESSAGES: u64 = 10_000;
/// Keys of requests that have no meaning in a conversation.
const OTHERS: [&str; 5] = ["body", "form", "multipart", "check", "capture"];

/// Reads the conversation of a step, if it is one.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Conversation> {
    fields.get("websocket")?;
    if let Some(entry) = OTHERS.iter().find_map(|k| fields.entry(k)) {
        let problem = Problem::new(entry.key_span, format!("a WebSocket step has no `{}`", entry.key));
        r.push(problem.hint("`messages` say what is sent, expected and captured"));
    }
    refuse_headers(r, fields);
    let repeat = r.count(fields, "repeat").unwrap_or(1);
    let messages = fields.get("messages").map(|node| read_messages(r, node)).unwrap_or_default();
    if repeat.saturating_mul(messages.len() as u64) > MAX_MESSAGES {
        let key = if fields.has("repeat") { "repeat" } else { "messages" };
        let problem =
            Problem::new(fields.key_span(key), format!("more than {MAX_MESSAGES} messages in one step"));
        r.push(problem.hint("use a shorter conversation, and open it more often"));
    }
    Some(Conversation {
        messages,
        repeat: repeat as u32,
        hold_ns: r.duration(fields, "hold").unwrap_or(0),
        subprotocols: read_subprotocols(r, fields),
        closing_series: None,
    })
}

fn read_subprotocols(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for name in r.texts(fields, "subprotocols") {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.text.is_empty() || !name.text.chars().all(token) {
            let message = format!("`{}` is not a valid name for a subprotocol", shorten(&name.text));
            r.wrong(&name, message, None);
        } else if !names.contains(&name.text) {
            names.push(name.text);
        }
    }
    names
}

/// Refuses headers of the opening that loadlab itself sets.
fn refuse_headers(r: &mut Reader<'_>, fields: &Fields<'_>) {
    for entry in fields.get("headers").map_or(&[][..], Node::entries) {
        let name = entry.key.to_ascii_lowercase();
        if name == "upgrade" || name.starts_with("sec-websocket-") {
            let problem = Problem::new(entry.key_span, format!("`{}` is set by loadlab", entry.key));
            let offers = name == "sec-websocket-protocol";
            r.push(problem.maybe_hint(offers.then(|| "set `subprotocols` of the step".to_owned())));
        }
    }
}

/// Reads messages in order, so that each sees the captures of the messages before it.
fn read_messages(r: &mut Reader<'_>, node: &Node) -> Vec<Message> {
    let items = r.list(node, "a list of messages such as `- { send: ping, expect: { contains: pong } }`");
    let mut messages = Vec::new();
    for item in items {
        messages.extend(read_message(r, item));
        for entry in item.get("capture").map_or(&[][..], Node::entries) {
            if let Some(slot) = r.names.slot(&entry.key) {
                r.names.captures[slot].is_visible = true;
            }
        }
    }
    messages
}

fn read_message(r: &mut Reader<'_>, node: &Node) -> Option<Message> {
    let fields = r.fields(node, &MESSAGE, node.span.point())?;
    let send = fields.get("send").and_then(|n| read_send(r, n, fields.key_span("send")));
    let expect = fields.get("expect").and_then(|n| check::read_message(r, n, fields.key_span("expect")));
    let (expect, echoes) = expect.unzip();
    let echoes = echoes.unwrap_or_default();
    for entry in fields.get("capture").map_or(&[][..], Node::entries) {
        if let Some(header) = entry.value.entries().iter().find(|e| e.key == "header") {
            let problem = Problem::new(header.key_span, "a message has no `header`");
            r.push(problem.hint("use `json`, `regex` or `body`"));
        }
    }
    let captures = capture::read(r, &fields);
    let waits = fields.has("expect") || fields.has("capture");
    for key in ["timeout", "on_unexpected"] {
        if let Some(entry) = fields.entry(key).filter(|_| !waits) {
            let problem = Problem::new(entry.key_span, format!("`{key}` needs `expect`, which is missing"));
            r.push(problem.hint("it applies to the expected reply"));
        }
    }
    if !waits && !fields.has("send") && !fields.has("pause") {
        let problem =
            Problem::new(node.span.point(), "a message needs `send`, `expect`, `capture` or `pause`");
        r.push(problem);
        return None;
    }
    Some(Message {
        pause_ns: r.duration(&fields, "pause").unwrap_or(0),
        send,
        // Without checks any message matches.
        expect: expect.or_else(|| waits.then(Default::default)),
        echoes,
        captures,
        skips_unexpected: r.choice(&fields, "on_unexpected") != Some("fail") && fields.has("expect"),
        timeout_ns: r.positive_duration(&fields, "timeout"),
        tags: request_fields::read_tags(r, &fields),
        series: None,
    })
}

fn read_send(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<MessageContent> {
    if let Value::Scalar(..) = node.value {
        let what = "a text, `{json: …}`, `{file: …}` or `{hex: …}`";
        return r.request_text(node, what, Escape::Raw).map(MessageContent::Text);
    }
    let fields = r.fields(node, &WEBSOCKET_SEND, at)?;
    if let Some(file) = fields.get("file") {
        return body::read_path(r, file).map(MessageContent::File);
    }
    if let Some(bytes) = fields.get("hex") {
        let scalar = r.scalar(bytes, "bytes such as `00 ff`")?;
        let digits: String = scalar.text.split_whitespace().collect();
        let read = from_hex(&digits);
        if read.is_none() {
            let message = format!("`{}` is not hexadecimal", shorten(&scalar.text));
            r.wrong(&scalar, message, Some("write two digits for each byte, such as `\"00 ff\"`".to_owned()));
        }
        return read.map(MessageContent::Bytes);
    }
    let mut template = Template::default();
    body::json_template(r, fields.get("json")?, &mut template)?;
    Some(MessageContent::Text(template))
}

/// Reports anything in a load that rules out conversations.
pub(crate) fn fits_load(r: &mut Reader<'_>, fields: &Fields<'_>, model: Option<&Model>, protocol: Protocol) {
    let lists = ["user_setup", "journey", "user_teardown"].into_iter().filter_map(|key| fields.get(key));
    let steps = lists.flat_map(|list| match &list.value {
        Value::List(items) => items.as_slice(),
        _ => &[],
    });
    let is_paced = matches!(model, Some(Model::Closed { pace_ns: Some(_), .. }));
    for step in steps {
        let Some(entry) = step.entries().iter().find(|e| e.key == "websocket") else { continue };
        if let Some(Model::Open { .. }) = model {
            let problem = Problem::new(entry.key_span, "a rate sends single requests, not conversations");
            r.push(problem.hint("use `users`, or `sessions: 5/s`: users that arrive, talk and leave"));
        }
        if protocol != Protocol::Http1 {
            let problem = Problem::new(entry.key_span, "WebSockets are opened over HTTP/1.1 only");
            let problem = problem.related("`protocol` is here", fields.key_span("protocol"));
            r.push(problem.hint("put users of WebSockets into a separate load without `protocol`"));
        }
        let messages = step.get("messages").map_or(&[][..], |node| match &node.value {
            Value::List(items) => items.as_slice(),
            _ => &[],
        });
        let pauses = messages.iter().flat_map(Node::entries).filter(|e| e.key == "pause");
        let holds = step.entries().iter().filter(|e| e.key == "hold");
        for pause in pauses.chain(holds).filter(|_| is_paced) {
            let message = format!("`{}` cannot be combined with `pace`", pause.key);
            let problem =
                Problem::new(pause.key_span, message).related("`pace` is here", fields.key_span("pace"));
            r.push(problem.hint("`pace` sets when each part of the conversation falls due"));
        }
    }
}

/// Refuses conversations in `setup`: a conversation belongs to one user, and `setup` to none.
pub(crate) fn refuse_in_setup(r: &mut Reader<'_>, node: Option<&Node>) {
    let Some(Value::List(items)) = node.map(|n| &n.value) else { return };
    for entry in items.iter().flat_map(Node::entries).filter(|e| e.key == "websocket") {
        let problem = Problem::new(entry.key_span, "`setup` cannot open a WebSocket");
        r.push(problem.hint("`user_setup` of a load can, for each of its users"));
    }
}
