//! Building blocks of steps and conversations: requests rendered anew each time, captures, and what happens after a
//! failure.

use std::path::Path;

use loadlab_load::journey::capture::{Capture, CaptureSlots};
use loadlab_load::journey::order::Advance;
use loadlab_load::journey::script::Message;
use loadlab_load::journey::template::Template;
use loadlab_load::spec::request::{Request, RequestError};
use loadlab_load::target::{TargetError, Url};
use loadlab_plan as plan;
use loadlab_record::spec::escape::Escape;
use loadlab_record::text::url::{self, as_http};

use crate::translate::error::{Names, TranslateError};
use crate::translate::hosts::Hosts;
use crate::translate::journey;

/// The context for converting a load's steps.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The load.
    pub load: &'a plan::LoadSpec,
    /// The plan's folder.
    pub plan_dir: &'a Path,
    /// Values of names that only a run knows.
    pub names: Names<'a>,
    /// Values captured before the load.
    pub shared: &'a CaptureSlots,
    /// Names of the slots in `shared`.
    pub shared_names: &'a [String],
}

/// Header fields of a step that is rendered anew each time, without `Host`, content length and cookies.
pub type Fields = Vec<(String, Template)>;

/// A step that is rendered anew for each request.
pub struct WrittenStep {
    /// The request as far as it is always the same.
    pub request: Request,
    /// What is rendered.
    pub message: Message,
    /// Its header fields, which `message` also contains.
    pub fields: Fields,
    /// Its URL as shown.
    pub url: String,
}

/// Converts a step that is rendered anew for each request.
///
/// # Errors
/// See [`TranslateError`].
pub fn written(
    step: &plan::Step,
    what: &str,
    context: &RequestContext<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<WrittenStep, TranslateError> {
    let (url, target) = target_of(step, what, context)?;
    let wrong = |error: TargetError| TranslateError::Target { what: what.to_owned(), error };
    let host = hosts.index_of(&url, step.websocket.is_some()).map_err(wrong)?;
    let shown = step.url.shown(context.names);
    let body = journey::body(&step.body, what, context.plan_dir, context.names)?;
    let fields = fields_of(step, what, context, body.as_ref().and_then(|(_, kind)| kind.as_deref()))?;
    let takes_body = matches!(step.method, "POST" | "PUT" | "PATCH");
    let body = body.map(|(text, _)| text).or_else(|| takes_body.then(Template::default));
    let request = Request {
        label: label_of(step.method, &shown),
        bytes: Vec::new(),
        head_len: 0,
        response_has_no_body: step.method == "HEAD",
        safe: matches!(step.method, "GET" | "HEAD" | "OPTIONS" | "TRACE"),
        host,
        ok_statuses: step.statuses.clone().unwrap_or_default(),
        tags: Vec::new(),
    };
    let mut lines = Template::default();
    for (name, value) in &fields {
        lines.append(Template::fixed(format!("{name}: ").as_bytes()));
        lines.append(value.clone());
        lines.append(Template::fixed(b"\r\n"));
    }
    let message = Message { method: step.method.into(), target, fields: lines, body };
    Ok(WrittenStep { request, message, fields, url: shown })
}

/// The URL of a step's host, and the target (path and query) after it.
fn target_of(
    step: &plan::Step,
    what: &str,
    context: &RequestContext<'_>,
) -> Result<(Url, Template), TranslateError> {
    let name = |error| TranslateError::Name { what: what.to_owned(), error };
    let wrong = |error: TargetError| TranslateError::Target { what: what.to_owned(), error };
    let mut segments = step.url.resolve(context.names).map_err(name)?.into_iter().peekable();
    // The fixed beginning contains the host: variables can only come after it.
    let mut fixed = String::new();
    while let Some(plan::Segment::Text { text, .. }) =
        segments.next_if(|s| matches!(s, plan::Segment::Text { .. }))
    {
        fixed.push_str(&text);
    }
    let path_at = url::path_at(&fixed).unwrap_or(fixed.len());
    let url = Url::parse(&as_http(&fixed[..path_at])).map_err(wrong)?;
    let mut target = Template::default();
    let path = fixed[path_at..].split('#').next().unwrap_or_default();
    // A whole path; or none, if a variable follows that begins with `/`.
    let path = match path.starts_with('?') || path.is_empty() && segments.peek().is_none() {
        true => format!("/{path}"),
        false => path.to_owned(),
    };
    let refused =
        |_| TranslateError::Request { what: what.to_owned(), error: RequestError::Path(path.clone()) };
    if path.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(TranslateError::Request { what: what.to_owned(), error: RequestError::Path(path) });
    }
    target.push_text(path.as_bytes(), Escape::Raw).map_err(refused)?;
    journey::append(&mut target, segments, what)?;
    Ok((url, target))
}

/// The label of a request: method, path and query, with names in place of secrets.
pub fn label_of(method: &str, shown: &str) -> String {
    let path = url::path_at(shown).map_or("/", |at| &shown[at..]);
    format!("{method} {path}")
}

/// The header fields of a step.
fn fields_of(
    step: &plan::Step,
    what: &str,
    context: &RequestContext<'_>,
    content_type: Option<&str>,
) -> Result<Fields, TranslateError> {
    let load = context.load;
    let mut fields = Fields::new();
    let mut field = |name: &str, value: Template| fields.push((name.to_owned(), value));
    let given = |name: &str| step.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if given("host") {
        return Err(TranslateError::NotYet {
            what: what.to_owned(),
            feature: "a `host` header together with variables is",
        });
    }
    if !load.keep_alive && step.websocket.is_none() && load.http.protocol == plan::Protocol::Http1 {
        field("Connection", Template::fixed(b"close"));
    }
    for (name, value) in &step.headers {
        field(name, journey::template(value, what, context.names)?);
    }
    if let Some(auth) = &step.auth {
        field("Authorization", journey::authorization(auth, what, context.names)?);
    }
    if let Some(kind) = content_type.filter(|_| !given("content-type")) {
        field("Content-Type", Template::fixed(kind.as_bytes()));
    }
    if load.http.compression && step.websocket.is_none() && !given("accept-encoding") {
        field("Accept-Encoding", Template::fixed(b"gzip, deflate"));
    }
    Ok(fields)
}

/// The captures, each with its slot among the user's own.
///
/// # Errors
/// A capture is invalid; the plan reader has already rejected such captures.
pub fn captures_of(
    captures: &[plan::Capture],
    what: &str,
    context: &RequestContext<'_>,
) -> Result<Vec<(u16, Capture)>, TranslateError> {
    let mut out = Vec::new();
    for capture in captures {
        let taken = journey::capture(capture);
        let (slot, capture) =
            taken.map_err(|message| TranslateError::Part { what: what.to_owned(), message })?;
        // Slots of values captured before the load come first and do not belong to the user.
        out.push((slot - context.shared.count(), capture));
    }
    Ok(out)
}

/// How a failure affects the rest of the user's journey.
pub fn advance_after(on_failure: plan::OnFailure) -> Advance {
    match on_failure {
        plan::OnFailure::Continue => Advance::On,
        plan::OnFailure::End => Advance::EndRound,
        plan::OnFailure::Leave => Advance::Leave,
    }
}
