//! Reads a load's protocol settings, and the arrivals of users.

use loadlab_record::spec::schedule::Arrivals;

use crate::keys::journey::{SESSIONS, TLS};
use crate::model::journey::{Http, Protocol, Tls};
use crate::model::spec::Model;
use crate::read::journey::target;
use crate::read::reader::{Fields, Reader};
use crate::read::texts::in_folder;
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Reads protocol, proxy and TLS trust of a load.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Http {
    let protocol = match r.choice(fields, "protocol") {
        Some("http/2") => Protocol::Http2,
        Some("auto") => Protocol::Auto,
        _ => Protocol::Http1,
    };
    let streams = r.count(fields, "streams_per_connection").unwrap_or(1) as u32;
    if streams > 1 && protocol == Protocol::Http1 {
        let problem = Problem::new(
            fields.key_span("streams_per_connection"),
            "an HTTP/1.1 connection has one request at a time",
        );
        r.push(problem.hint("use `protocol: http/2`, or `auto`"));
    }
    let keeps = fields.get("keep_alive").is_none_or(|node| !is_false(node));
    if protocol != Protocol::Http1 && !keeps {
        let problem = Problem::new(fields.key_span("keep_alive"), "HTTP/2 always keeps its connections open");
        r.push(
            problem.related("`protocol` is here", fields.key_span("protocol")).hint("leave `keep_alive` out"),
        );
    }
    let proxy = fields.get("proxy").and_then(|n| target::read(r, n, target::UrlKind::Proxy));
    Http {
        protocol,
        streams_per_connection: streams,
        compression: r.flag(fields, "compression").unwrap_or(false),
        proxy,
        tls: read_tls(r, fields),
    }
}

fn read_tls(r: &mut Reader<'_>, fields: &Fields<'_>) -> Tls {
    let mut tls = Tls::default();
    let Some(node) = fields.get("tls") else { return tls };
    let Some(fields) = r.fields(node, &TLS, fields.key_span("tls")) else { return tls };
    let path = |r: &mut Reader<'_>, key: &str| r.text(&fields, key).map(|p| in_folder(r.plan_dir, &p));
    tls.ca = path(r, "ca");
    tls.identity = path(r, "cert").zip(path(r, "key"));
    tls.is_insecure = r.flag(&fields, "insecure").unwrap_or(false);
    tls.is_resumed = r.flag(&fields, "resumption").unwrap_or(true);
    if tls.is_insecure && tls.ca.is_some() {
        let problem =
            Problem::new(fields.key_span("ca"), "with `insecure`, no certificate is checked against `ca`");
        r.push(
            problem.related("`insecure` is here", fields.key_span("insecure")).hint("remove one of the two"),
        );
    }
    if fields.get("versions").is_some() {
        tls.versions = read_versions(r, &fields);
    }
    tls
}

fn read_versions(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<u8> {
    let mut versions = Vec::new();
    for version in r.texts(fields, "versions") {
        match version.text.as_str() {
            "1.2" => versions.push(12),
            "1.3" => versions.push(13),
            other => {
                let message = format!("unsupported TLS version `{}`", shorten(other));
                r.wrong(&version, message, Some("use `1.2` or `1.3`".to_owned()));
            }
        }
    }
    let node = fields.get("versions").map(|n| &n.value);
    if matches!(node, Some(Value::List(items)) if items.is_empty()) {
        r.push(Problem::new(fields.key_span("versions"), "no TLS version is listed"));
    }
    versions
}

/// Reads a load of users that arrive.
pub(crate) fn read_sessions(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Model> {
    const DEFAULT_MAX_USERS: u64 = 10_000;
    if let Value::Scalar(..) = node.value {
        let rate_per_s = r.rate(node)?;
        return Some(Model::Sessions {
            rate_per_s,
            arrivals: Arrivals::Constant,
            max_users: DEFAULT_MAX_USERS,
        });
    }
    let fields = r.fields(node, &SESSIONS, at)?;
    let arrivals = match r.choice(&fields, "arrivals") {
        Some("poisson") => Arrivals::Poisson,
        _ => Arrivals::Constant,
    };
    let max_users = r.count(&fields, "max_users").unwrap_or(DEFAULT_MAX_USERS);
    let rate_per_s = fields.get("rate").and_then(|n| r.rate(n))?;
    Some(Model::Sessions { rate_per_s, arrivals, max_users })
}

fn is_false(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(_, text) if text == "false")
}
