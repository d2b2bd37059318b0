//! Reads a step's target, and its credentials.
//!
//! The host must come before any variable: which hosts a load may reach is decided before it starts.

use loadlab_record::spec::escape::Escape;
use loadlab_record::text::url::{ServerUrl, SocketUrl, Url, unix_socket, websocket_as_http};

use crate::keys::journey::{AUTH, BASIC};
use crate::model::journey::Auth;
use crate::model::template::{Template, path_at};
use crate::read::journey::request_fields::one_line;
use crate::read::reader::{Fields, Reader};
use crate::text::error::Problem;
use crate::text::node::Node;
use crate::url;

/// What a URL is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UrlKind {
    Http,
    WebSocket,
    Proxy,
}

/// Reads a URL that may still contain ports, and variables after its host.
pub(crate) fn read(r: &mut Reader<'_>, node: &Node, kind: UrlKind) -> Option<Template> {
    let template = match kind {
        UrlKind::Proxy => r.url_text(node)?,
        _ => r.request_text(node, "a URL", Escape::Url)?,
    };
    let (mut sample, first) = template.sample();
    let mut template = template;
    if let Some((at, escape)) = first
        && !has_path(&sample[..at])
    {
        if escape != Escape::UrlRaw || !has_host(&sample[..at]) {
            let problem = Problem::new(node.span, "the host must be known before the load starts");
            r.push(
                problem
                    .hint("write scheme, host and port; for a captured path `http://HOST:PORT${raw(next)}`"),
            );
            return None;
        }
        sample.insert(at, '/');
        template = template.starting_at_path();
    }
    match form(&sample, kind) {
        Ok(()) => Some(template),
        Err(error) => {
            r.push(Problem::new(node.span, error.message).maybe_hint(error.hint));
            None
        }
    }
}

/// Whether the beginning of a URL extends into its path or query, so that what follows cannot change the host.
pub(crate) fn has_path(beginning: &str) -> bool {
    path_at(beginning).is_some()
}

/// Whether the beginning of a URL contains the whole host.
fn has_host(beginning: &str) -> bool {
    match beginning.split_once("://") {
        Some((_, rest)) => !rest.is_empty() && !rest.ends_with(':'),
        None => unix_socket(beginning).is_some_and(|rest| rest.ends_with(':')),
    }
}

/// Whether a URL can be requested; `https` and similar schemes are checked as `http` is.
fn form(sample: &str, kind: UrlKind) -> Result<(), url::UrlError> {
    match kind {
        UrlKind::Http => unix_socket(sample).map_or_else(|| of_host(sample), of_socket),
        UrlKind::WebSocket => match websocket_as_http(sample) {
            Some(opening) => of_host(&opening),
            None => Err(url::UrlError {
                message: "expected a WebSocket URL".to_owned(),
                hint: Some("`ws://HOST:PORT/PATH`".to_owned()),
            }),
        },
        UrlKind::Proxy => {
            let server = ServerUrl::split(sample);
            // Whatever form user and password have, it matters only to the proxy. Without a scheme it is no URL, and is
            // quoted.
            let plain = server.scheme.map_or_else(|| server.masked(), |_| server.without_user());
            url::check(&plain)?;
            if Url::parse(&plain).is_ok_and(|url| url.target.trim_end_matches('/').is_empty()) {
                return Ok(());
            }
            let message = "a proxy has no path".to_owned();
            Err(url::UrlError { message, hint: Some("`http://HOST:PORT`".to_owned()) })
        }
    }
}

/// Checks a URL of a host; `https` as `http`, the only scheme that is allowed in other URLs of a plan.
fn of_host(text: &str) -> Result<(), url::UrlError> {
    match text.split_once("://") {
        Some((name, rest)) if name.eq_ignore_ascii_case("https") => url::check(&format!("http://{rest}")),
        _ => url::check(text),
    }
}

/// Checks `/PATH:/URI` after `unix:`. Unlike on a command line, the `/` of the URI must be written.
fn of_socket(rest: &str) -> Result<(), url::UrlError> {
    match SocketUrl::split(rest) {
        Ok(SocketUrl { target, .. }) if target.starts_with('/') => {
            url::check(&format!("http://localhost{target}"))
        }
        _ => Err(url::UrlError {
            message: "expected the path of a socket and the path to request there".to_owned(),
            hint: Some("`unix:/run/service.sock:/path`".to_owned()),
        }),
    }
}

/// Reads a step's credentials.
pub(crate) fn read_auth(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    headers: &[(String, Template)],
) -> Option<Auth> {
    let node = fields.get("auth")?;
    if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        let problem = Problem::new(fields.key_span("auth"), "there is also an `authorization` header");
        r.push(problem.hint("remove one of the two"));
    }
    let auth = r.fields(node, &AUTH, fields.key_span("auth"))?;
    if let Some(token) = auth.get("bearer") {
        let value = r.request_text(token, "a token", Escape::Header)?;
        one_line(r, token.span, &value);
        return Some(Auth::Bearer(value));
    }
    let basic = r.fields(auth.get("basic")?, &BASIC, auth.key_span("basic"))?;
    let user = basic.get("user").and_then(|n| r.request_text(n, "a text", Escape::Raw));
    let password = basic.get("password").and_then(|n| r.request_text(n, "a text", Escape::Raw));
    let user = user?;
    if user.to_string().contains(':') && user.as_text().is_some() {
        let span = basic.get("user").map_or(node.span, |n| n.span);
        r.push(
            Problem::new(span, "a user name cannot contain a colon here")
                .hint("the colon separates it from the password"),
        );
    }
    Some(Auth::Basic { user, password: password? })
}
