//! Parts of WebSocket conversations.

use base64::Engine as _;
use loadlab_load::journey::check::{Checks, Text};
use loadlab_load::journey::script::{ConversationAction, ConversationStep, Message, Script, Wait};
use loadlab_load::protocol::websocket::MessageType;
use loadlab_load::protocol::websocket::opening::Opening;
use loadlab_record::spec::schedule::Think;
use sha1::{Digest, Sha1};

use super::steps::template;

/// The accept key for an opening handshake (RFC 6455 §4.2.2).
pub fn accept_of(head: &str) -> String {
    let key = head.split("Sec-WebSocket-Key: ").nth(1).and_then(|rest| rest.lines().next()).expect("a key");
    let hash = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    base64::engine::general_purpose::STANDARD.encode(hash)
}

pub fn part(part: ConversationAction) -> Script {
    // `left` is set once the parts are known.
    Script {
        conversation: Some(Box::new(ConversationStep { part, left: 0 })),
        think: Some(Think::None),
        ..Script::plain()
    }
}

pub fn open() -> Script {
    open_at("/chat")
}

pub fn open_at(path: &str) -> Script {
    let opening = Opening::new([7; 16], vec![]);
    let headers = opening.headers().into_iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect::<String>();
    let message =
        Message { method: "GET".into(), target: template(path), fields: template(&headers), body: None };
    let checks = Checks { statuses: vec![101], ..Checks::default() };
    Script { message: Some(message), checks, ..part(ConversationAction::Open { opening, keeps: false }) }
}

pub fn say(what: &str) -> Script {
    part(ConversationAction::Message {
        send: Some((MessageType::Text, template(what))),
        wait: None,
        echoes: vec![],
    })
}

pub const WAIT: Wait = Wait { timeout_ns: None, skips_unexpected: true };

pub fn contains(text: &str) -> Checks {
    Checks { contains: vec![Text::new(text.as_bytes())], ..Checks::default() }
}

pub fn ask(what: &str, expect: &str) -> Script {
    Script {
        checks: contains(expect),
        ..part(ConversationAction::Message {
            send: Some((MessageType::Text, template(what))),
            wait: Some(WAIT),
            echoes: vec![],
        })
    }
}

pub fn strict(script: Script) -> Script {
    waiting(script, Wait { skips_unexpected: false, ..WAIT })
}

pub fn within(script: Script, timeout_ns: u64) -> Script {
    waiting(script, Wait { timeout_ns: Some(timeout_ns), ..WAIT })
}

pub fn waiting(mut script: Script, wait: Wait) -> Script {
    if let Some(ConversationAction::Message { wait: of, .. }) =
        script.conversation.as_mut().map(|t| &mut t.part)
    {
        *of = Some(wait);
    }
    script
}

pub fn listen(expect: &str) -> Script {
    Script {
        checks: contains(expect),
        ..part(ConversationAction::Message { send: None, wait: Some(WAIT), echoes: vec![] })
    }
}

pub fn pause(script: Script, ns: u64) -> Script {
    Script { think: Some(Think::Constant(ns)), ..script }
}

/// Completes the parts of one conversation: adds the close and sets `left`.
pub fn conversation(mut parts: Vec<Script>) -> Vec<Script> {
    parts.push(part(ConversationAction::Close));
    let listens = parts.iter().any(|s| {
        matches!(
            s.conversation.as_ref().map(|t| &t.part),
            Some(ConversationAction::Message { send: None, wait: Some(_), .. })
        )
    });
    let last = parts.len() - 1;
    for (i, script) in parts.iter_mut().enumerate() {
        let conversation = script.conversation.as_mut().unwrap();
        conversation.left = (last - i) as u32;
        if let ConversationAction::Open { keeps, .. } = &mut conversation.part {
            *keeps = listens;
        }
    }
    parts[last].think = None;
    parts
}
