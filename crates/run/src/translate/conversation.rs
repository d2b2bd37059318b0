//! Converts a WebSocket step to the requests of its conversation: the opening, each message, the close.

use loadlab_load::journey::check::Checks;
use loadlab_load::journey::script::{ConversationAction, ConversationStep, Script, Wait};
use loadlab_load::journey::template::Template;
use loadlab_load::protocol::websocket::MessageType;
use loadlab_load::protocol::websocket::opening::Opening;
use loadlab_load::spec::request::Request;
use loadlab_plan as plan;
use loadlab_record::spec::schedule::Think;
use loadlab_record::spec::variable::Variable;

use crate::translate::error::TranslateError;
use crate::translate::hosts::Hosts;
use crate::translate::journey;
use crate::translate::writing::{Fields, RequestContext, WrittenStep, advance_after, captures_of, written};

/// A request of a conversation.
pub struct PartOf<'s> {
    /// The request as it is counted and shown.
    pub request: Request,
    /// What the request does.
    pub script: Script,
    /// Tags it counts for besides those of its step.
    pub tags: &'s [String],
    /// The series that it alone counts for, if any.
    pub series: Option<&'s String>,
    /// Header fields of the opening request, which may contain secrets.
    pub fields: Option<Fields>,
}

/// The parts of a step's conversation, in order, and the step's URL.
///
/// # Errors
/// See [`TranslateError`].
pub fn parts_of<'s>(
    step: &'s plan::Step,
    conversation: &'s plan::Conversation,
    what: &str,
    context: &RequestContext<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<(Vec<PartOf<'s>>, String), TranslateError> {
    let WrittenStep { request, mut message, fields, url } = written(step, what, context, hosts)?;
    let path = request.label.split_once(' ').map_or("", |(_, path)| path).to_owned();
    let named =
        |more: &str| Request { label: format!("WebSocket {path}{more}"), safe: false, ..request.clone() };
    let opening = Opening::new(nonce(context.load.seed, what), conversation.subprotocols.clone());
    for (name, value) in opening.headers() {
        message.fields.append(Template::fixed(format!("{name}: {value}\r\n").as_bytes()));
    }
    let script = |part: ConversationAction| Script {
        host: request.host,
        on_failure: advance_after(step.on_failure),
        conversation: Some(Box::new(ConversationStep { part, left: 0 })),
        ..Script::plain()
    };
    // A message that is expected without sending anything first may arrive early.
    let keeps = conversation.messages.iter().any(|m| m.send.is_none() && m.expect.is_some());
    let mut parts = vec![PartOf {
        request: named(""),
        script: Script {
            has_id: message.has_id(),
            message: Some(message),
            checks: Checks { statuses: vec![101], ..Checks::default() },
            ..script(ConversationAction::Open { opening, keeps })
        },
        tags: &[],
        series: step.series.as_ref(),
        fields: Some(fields),
    }];
    let mut pauses = Vec::new();
    let mut pause_ns = 0;
    for message in (0..conversation.repeat).flat_map(|_| &conversation.messages) {
        pause_ns += message.pause_ns;
        if message.is_pause() {
            continue;
        }
        pauses.push(std::mem::take(&mut pause_ns));
        let number = 1 + conversation.messages.iter().take_while(|m| !std::ptr::eq(*m, message)).count();
        let what = format!("{what}, message {number}");
        let script = message_of(message, &what, context, &script)?;
        let request = named(&format!(", message {number}"));
        let (tags, series) = (&message.tags, message.series.as_ref());
        parts.push(PartOf { request, script, tags, series, fields: None });
    }
    pauses.push(pause_ns + conversation.hold_ns);
    let (request, series) = (named(", close"), conversation.closing_series.as_ref());
    parts.push(PartOf {
        request,
        script: script(ConversationAction::Close),
        tags: &[],
        series,
        fields: None,
    });
    Ok((strung(parts, &pauses), url))
}

/// One message: what is sent, what is expected, and what is captured.
fn message_of(
    message: &plan::Message,
    what: &str,
    context: &RequestContext<'_>,
    script: &dyn Fn(ConversationAction) -> Script,
) -> Result<Script, TranslateError> {
    let send = message.send.as_ref().map(|content| content_of(content, what, context)).transpose()?;
    let wait = message
        .expect
        .as_ref()
        .map(|_| Wait { timeout_ns: message.timeout_ns, skips_unexpected: message.skips_unexpected });
    let bug = |why: String| TranslateError::Part { what: what.to_owned(), message: why };
    let echoes = message.echoes.iter().map(|text| journey::template(text, what, context.names));
    let echoes = echoes.collect::<Result<Vec<_>, _>>()?;
    let checks = message.expect.as_ref().map(|checks| journey::checks(None, checks));
    Ok(Script {
        checks: checks.transpose().map_err(bug)?.unwrap_or_default(),
        captures: captures_of(&message.captures, what, context)?,
        has_id: send.as_ref().is_some_and(|(_, text)| text.variables().contains(&Variable::Id)),
        ..script(ConversationAction::Message { send, wait, echoes })
    })
}

/// Links the parts: each gets the number of parts that follow it and the pause after it; after the last part, the
/// load's own pause applies.
fn strung<'s>(mut parts: Vec<PartOf<'s>>, pauses: &[u64]) -> Vec<PartOf<'s>> {
    let last = parts.len().saturating_sub(1);
    for (i, part) in parts.iter_mut().enumerate() {
        if let Some(conversation) = &mut part.script.conversation {
            conversation.left = (last - i) as u32;
        }
        part.script.think = pauses.get(i).map(|ns| match ns {
            0 => Think::None,
            ns => Think::Constant(*ns),
        });
    }
    parts
}

fn content_of(
    content: &plan::MessageContent,
    what: &str,
    context: &RequestContext<'_>,
) -> Result<(MessageType, Template), TranslateError> {
    Ok(match content {
        plan::MessageContent::Text(text) => {
            (MessageType::Text, journey::template(text, what, context.names)?)
        }
        plan::MessageContent::Bytes(bytes) => (MessageType::Binary, Template::fixed(bytes)),
        plan::MessageContent::File(path) => {
            let path = context.plan_dir.join(path);
            let read = std::fs::read(&path);
            let bytes = read.map_err(|error| TranslateError::Body { what: what.to_owned(), path, error })?;
            (MessageType::Binary, Template::fixed(&bytes))
        }
    })
}

/// Sixteen bytes that differ between steps. They need not be unpredictable: they only distinguish a server that
/// understands the handshake from one that merely echoes it.
fn nonce(seed: u64, what: &str) -> [u8; 16] {
    // FNV-1a.
    let hash = what.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&hash.to_le_bytes());
    nonce[8..].copy_from_slice(&hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    nonce
}
