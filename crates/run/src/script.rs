//! A load's steps → requests and, where they need more than that, the journey that the engine's users go through.
//!
//! A load whose requests are the same each time, and good by their status, needs none: it is sent the short way.

use std::path::Path;

use loadlab_load::course::{Course, Step as Way};
use loadlab_load::journey::capture::Slots;
use loadlab_load::journey::template::{Escape, Template};
use loadlab_load::script::{Deal, Journey, Message, Script};
use loadlab_load::source::{Request, RequestError};
use loadlab_load::target::{TargetError, Url};
use loadlab_plan as plan;

use crate::journey;
use crate::translate::{Hosts, Names, TranslateError, request_of};

/// Where a load's steps are put together.
pub struct Desk<'a> {
    /// The plan's folder.
    pub plan_dir: &'a Path,
    /// Values of names that only a run knows.
    pub names: Names<'a>,
    /// What was captured before the load.
    pub shared: &'a Slots,
}

/// What a load's users do.
pub struct Steps {
    /// What is sent, in the order before, journey, after.
    pub requests: Vec<Request>,
    /// What more there is to it.
    pub journey: Option<Box<Journey>>,
    /// Names of the tags that requests refer to.
    pub tags: Vec<String>,
    /// For the summary.
    pub first_url: String,
}

/// The steps of a load.
///
/// # Errors
/// See [`TranslateError`].
pub fn steps_of(
    load: &plan::LoadSpec,
    desk: &Desk<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<Steps, TranslateError> {
    let script = &load.script;
    let sections = [("before", &script.before), ("journey", &load.journey), ("after", &script.after)];
    let all = || {
        sections
            .iter()
            .flat_map(|(section, steps)| steps.iter().enumerate().map(move |(i, s)| (*section, i, s)))
    };
    let scripted = needs_script(load, all().map(|(_, _, step)| step));
    let (mut requests, mut scripts, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    let mut first_url = String::new();
    for (section, i, step) in all() {
        let part = if section == "journey" { String::new() } else { format!("`{section}`, ") };
        let what = format!("{part}step {} of `{}`", i + 1, load.name);
        let writes = scripted && must_be_written(load, step);
        let (request, message, url) = match writes {
            false => {
                let (request, url) = request_of(step, &what, load, desk, hosts)?;
                (request, None, url)
            }
            true => {
                let (request, message, url) = written(step, &what, load, desk, hosts)?;
                (request, Some(message), url)
            }
        };
        if first_url.is_empty() && section == "journey" {
            first_url = url;
        }
        if scripted {
            scripts.push(script_of(step, message, &what, (load, desk, request.host))?);
        }
        requests.push(Request { tags: indices(&step.tags, &mut tags), ..request });
    }
    let journey = if scripted { Some(Box::new(journey_of(load, scripts, desk, hosts)?)) } else { None };
    Ok(Steps { requests, journey, tags, first_url })
}

fn indices(of_step: &[String], tags: &mut Vec<String>) -> Vec<u16> {
    let index = |tag: &String| {
        let known = tags.iter().position(|t| t == tag).unwrap_or_else(|| {
            tags.push(tag.clone());
            tags.len() - 1
        });
        known as u16
    };
    of_step.iter().map(index).collect()
}

/// Whether users have to remember, choose or look at anything.
fn needs_script<'s>(load: &plan::LoadSpec, mut steps: impl Iterator<Item = &'s plan::Step>) -> bool {
    let script = &load.script;
    let around = !script.before.is_empty() || !script.after.is_empty() || script.is_mix;
    let keeps = script.cookies || script.redirects > 0 || !script.feeds.is_empty() || load.http.compressed;
    let sessions = matches!(load.model, plan::Model::Sessions { .. });
    around || keeps || sessions || steps.any(|s| is_special(s) || has_variables(s))
}

fn is_special(step: &plan::Step) -> bool {
    let goes_on = step.on_failure == plan::OnFailure::Continue;
    !step.captures.is_empty() || !step.checks.is_empty() || !goes_on
}

/// The engine has to write it anew each time.
fn must_be_written(load: &plan::LoadSpec, step: &plan::Step) -> bool {
    load.script.cookies || load.script.redirects > 0 || has_variables(step)
}

fn has_variables(step: &plan::Step) -> bool {
    let varies = |t: &plan::Template| t.variables().next().is_some();
    let body = match &step.body {
        plan::Body::Empty | plan::Body::File(_) => false,
        plan::Body::Text(text) | plan::Body::Json(text) | plan::Body::Form(text) => varies(text),
        plan::Body::Multipart(parts) => parts.iter().any(|part| match &part.content {
            plan::PartContent::Text(text) => varies(text),
            plan::PartContent::File(..) => false,
        }),
    };
    let auth = step.auth.as_ref().is_some_and(|auth| match auth {
        plan::Auth::Basic { user, password } => varies(user) || varies(password),
        plan::Auth::Bearer(token) => varies(token),
    });
    varies(&step.url) || step.headers.iter().any(|(_, value)| varies(value)) || body || auth
}

/// A step that is written anew for each request.
fn written(
    step: &plan::Step,
    what: &str,
    load: &plan::LoadSpec,
    desk: &Desk<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<(Request, Message, String), TranslateError> {
    let (url, target) = target_of(step, what, desk)?;
    let wrong = |error: TargetError| TranslateError::Target { what: what.to_owned(), error };
    let host = hosts.index(&url).map_err(wrong)?;
    let shown = step.url.to_string();
    let body = journey::body(&step.body, what, desk.plan_dir, desk.names)?;
    let fields = fields_of(step, what, (load, desk), body.as_ref().and_then(|(_, kind)| kind.as_deref()))?;
    let takes_body = matches!(step.method, "POST" | "PUT" | "PATCH");
    let body = body.map(|(text, _)| text).or_else(|| takes_body.then(Template::default));
    let path = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
    let path = path.find(['/', '?']).map_or("/", |at| &path[at..]);
    let request = Request {
        label: format!("{} {path}", step.method),
        bytes: Vec::new(),
        head_len: 0,
        answer_has_no_body: step.method == "HEAD",
        safe: matches!(step.method, "GET" | "HEAD" | "OPTIONS" | "TRACE"),
        host,
        ok_statuses: step.statuses.clone().unwrap_or_default(),
        tags: Vec::new(),
    };
    Ok((request, Message { method: step.method.into(), target, fields, body }, shown))
}

/// The host of a step's URL, and path and query behind it.
fn target_of(step: &plan::Step, what: &str, desk: &Desk<'_>) -> Result<(Url, Template), TranslateError> {
    let name = |error| TranslateError::Name { what: what.to_owned(), error };
    let wrong = |error: TargetError| TranslateError::Target { what: what.to_owned(), error };
    let mut segments = step.url.resolve(desk.names).map_err(name)?.into_iter().peekable();
    // What is fixed at the beginning has the host in it: variables stand behind it.
    let mut fixed = String::new();
    while let Some(plan::Segment::Text { text, .. }) =
        segments.next_if(|s| matches!(s, plan::Segment::Text { .. }))
    {
        fixed.push_str(&text);
    }
    let after_scheme = fixed.find("://").map_or(0, |at| at + 3);
    let path_at = fixed[after_scheme..].find(['/', '?', '#']).map_or(fixed.len(), |at| after_scheme + at);
    let url = Url::parse(&fixed[..path_at]).map_err(wrong)?;
    let mut target = Template::default();
    let path = fixed[path_at..].split('#').next().unwrap_or_default();
    // A whole path, or none and a variable that begins with its `/`.
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

/// Header fields, each with its line end.
fn fields_of(
    step: &plan::Step,
    what: &str,
    (load, desk): (&plan::LoadSpec, &Desk<'_>),
    content_type: Option<&str>,
) -> Result<Template, TranslateError> {
    let mut fields = Template::default();
    let mut field = |name: &str, value: Template| {
        fields.append(Template::fixed(format!("{name}: ").as_bytes()));
        fields.append(value);
        fields.append(Template::fixed(b"\r\n"));
    };
    let given = |name: &str| step.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if given("host") {
        return Err(TranslateError::NotYet {
            what: what.to_owned(),
            feature: "a `host` header beside variables is",
        });
    }
    if !load.keep_alive {
        field("Connection", Template::fixed(b"close"));
    }
    for (name, value) in &step.headers {
        field(name, journey::template(value, what, desk.names)?);
    }
    if let Some(auth) = &step.auth {
        field("Authorization", journey::authorization(auth, what, desk.names)?);
    }
    if let Some(kind) = content_type.filter(|_| !given("content-type")) {
        field("Content-Type", Template::fixed(kind.as_bytes()));
    }
    if load.http.compressed && !given("accept-encoding") {
        field("Accept-Encoding", Template::fixed(b"gzip, deflate"));
    }
    Ok(fields)
}

fn script_of(
    step: &plan::Step,
    message: Option<Message>,
    what: &str,
    (load, desk, host): (&plan::LoadSpec, &Desk<'_>, u16),
) -> Result<Script, TranslateError> {
    let bug = |words: String| TranslateError::Part { what: what.to_owned(), words };
    let mut captures = Vec::new();
    for capture in &step.captures {
        let (slot, capture) = journey::capture(capture).map_err(bug)?;
        // Slots of what was captured before come first, and are not the user's.
        captures.push((slot - desk.shared.count(), capture));
    }
    Ok(Script {
        message,
        checks: journey::checks(step.statuses.as_deref(), &step.checks).map_err(bug)?,
        captures,
        on_failure: match step.on_failure {
            plan::OnFailure::Continue => Way::On,
            plan::OnFailure::End => Way::EndRound,
            plan::OnFailure::Leave => Way::Leave,
        },
        host,
        redirects: u8::try_from(load.script.redirects).unwrap_or(u8::MAX),
        think: None,
    })
}

fn journey_of(
    load: &plan::LoadSpec,
    scripts: Vec<Script>,
    desk: &Desk<'_>,
    hosts: &Hosts<'_>,
) -> Result<Journey, TranslateError> {
    let script = &load.script;
    let (mut feeds, mut dealings) = (Vec::new(), Vec::new());
    for feed in &script.feeds {
        let what = format!("load `{}`", load.name);
        let read = journey::feed(feed, desk.plan_dir, load.seed);
        let (rows, dealing) = read.map_err(|words| TranslateError::Part { what, words })?;
        feeds.push(rows);
        dealings.push(Deal { dealing, per_user: feed.is_per_user });
    }
    let weights = load.journey.iter().scan(0, |sum, step| {
        *sum += u64::from(step.weight.unwrap_or(0));
        Some(*sum)
    });
    let sessions = matches!(load.model, plan::Model::Sessions { .. });
    Ok(Journey {
        course: Course {
            before: script.before.len() as u32,
            round: load.journey.len() as u32,
            after: script.after.len() as u32,
            weights: if script.is_mix { weights.collect() } else { Vec::new() },
            rounds: match load.until {
                _ if sessions => 1,
                plan::Until::Repeats(n) => n,
                _ => u64::MAX,
            },
        },
        scripts,
        sites: hosts.sites().collect(),
        cookies: script.cookies,
        feeds,
        dealings,
        shared: desk.shared.clone(),
        own: script.captures.len() as u16,
        sessions,
        unix_ns: unix_ns(),
    })
}

/// The wall clock, nanoseconds since 1970.
fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
