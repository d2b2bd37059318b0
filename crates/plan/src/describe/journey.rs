//! Journeys in words: everything beyond a plain request.

use loadlab_record::text::units::format_count;
use loadlab_record::text::url::ServerUrl;

use crate::model::journey::{Body, Step};
use crate::model::journey::{Checks, FeedSpec, Http, OnFailure, PartContent, Protocol, Script};
use crate::model::spec::LoadSpec;
use crate::text::shorten::shorten_to;

/// What a step sends, preceded by a blank; `within` shortens paths.
pub(crate) fn body(body: &Body, within: &dyn Fn(&str) -> String) -> String {
    match body {
        Body::Empty => String::new(),
        Body::Text(text) => format!(" with `{}`", shorten_to(&text.to_string(), 60)),
        Body::File(path) => format!(" with {}", within(path)),
        Body::Json(text) => format!(" with JSON `{}`", shorten_to(&text.to_string(), 60)),
        Body::Form(text) => format!(" with the form `{}`", shorten_to(&text.to_string(), 60)),
        Body::Multipart(parts) => {
            let part = |p: &crate::model::journey::FormPart| match &p.content {
                PartContent::Text(_) => p.name.clone(),
                PartContent::File(path, _) => format!("{} ({})", p.name, within(path)),
            };
            format!(" with the parts {}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
        }
    }
}

/// What is checked and captured, and what happens on failure.
pub(crate) fn more(step: &Step, names: &dyn Fn(u16) -> String) -> String {
    let mut out = String::new();
    let checks = checks(&step.checks);
    if !checks.is_empty() {
        out.push_str(&format!(", checks {checks}"));
    }
    let messages = step.websocket.iter().flat_map(|conversation| &conversation.messages);
    let captures: Vec<_> = step.captures.iter().chain(messages.flat_map(|m| &m.captures)).collect();
    if !captures.is_empty() {
        let names: Vec<String> = captures.iter().map(|c| names(c.slot)).collect();
        out.push_str(&format!(", captures {}", names.join(", ")));
    }
    if let Some(weight) = step.weight {
        out.push_str(&format!(", weight {}", format_count(f64::from(weight))));
    }
    match step.on_failure {
        OnFailure::Continue => {}
        OnFailure::End => out.push_str(", a failure ends the journey"),
        OnFailure::Leave => out.push_str(", a failure makes the user leave"),
    }
    out
}

fn checks(checks: &Checks) -> String {
    let mut kinds = Vec::new();
    for (kind, count) in [
        ("headers", checks.headers.len()),
        ("text", checks.contains.len() + checks.contains_written.len()),
        ("JSON", checks.json.len()),
        ("size", checks.size.len()),
        ("time", checks.time.len()),
    ] {
        if count > 0 {
            kinds.push(kind);
        }
    }
    kinds.join(", ")
}

/// What surrounds a load's journey, and its protocol settings.
pub(crate) fn around(load: &LoadSpec) -> Option<String> {
    let Script { feeds, is_mix, cookies, redirects, .. } = &load.script;
    let mut lines: Vec<String> = feeds.iter().map(feed).collect();
    if *is_mix {
        lines.push("each round takes one step, chosen by weight".to_owned());
    }
    if *cookies {
        lines.push("users keep cookies".to_owned());
    }
    if *redirects > 0 {
        lines.push(format!("follows up to {redirects} redirects"));
    }
    let Http { protocol, streams_per_connection: streams, compression, proxy, tls } = &load.http;
    match protocol {
        Protocol::Http1 => {}
        Protocol::Http2 => lines.push(format!("HTTP/2, {streams} at a time on each connection")),
        Protocol::Auto => lines.push("HTTP/2 where the server offers it".to_owned()),
    }
    if *compression {
        lines.push("requests compressed responses".to_owned());
    }
    lines.extend(proxy.iter().map(|p| format!("through the proxy {}", masked(&p.to_string()))));
    if tls.is_insecure {
        lines.push("accepts any certificate".to_owned());
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn feed(feed: &FeedSpec) -> String {
    let order = if feed.is_shuffled { ", shuffled" } else { "" };
    let once = if feed.is_once { ", each row once" } else { "" };
    let per = if feed.is_per_user { "user" } else { "journey" };
    format!("a row of `{}` for each {per}{order}{once}", feed.name)
}

/// A proxy's URL without user and password.
fn masked(url: &str) -> String {
    let server = ServerUrl::split(url);
    // Without a scheme it is a name that stands for the whole URL, such as `${file:a@b}`.
    server.scheme.map_or(url.to_owned(), |_| server.masked())
}
