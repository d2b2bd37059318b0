//! A load's steps → requests and, where they need more than that, the journey that the engine's users go through.
//!
//! A load whose requests are the same each time, and good by their status, needs none: it is sent the short way.

use std::path::Path;

use loadlab_load::course::{Course, Step as Way};
use loadlab_load::exhibit::Remembered;
use loadlab_load::journey::capture::{Capture, Slots};
use loadlab_load::journey::template::{Escape, Template, Variable};
use loadlab_load::script::{Deal, Journey, Message, Script};
use loadlab_load::source::{Request, RequestError};
use loadlab_load::target::{TargetError, Url};
use loadlab_plan as plan;

use crate::hosts::Hosts;
use crate::journey;
use crate::talk::parts_of;
use crate::translate::{Names, TranslateError, as_http, request_of};

/// Where a load's steps are put together.
pub struct Desk<'a> {
    /// The plan's folder.
    pub plan_dir: &'a Path,
    /// Values of names that only a run knows.
    pub names: Names<'a>,
    /// What was captured before the load.
    pub shared: &'a Slots,
    /// Names of its slots.
    pub shared_names: &'a [String],
}

/// What a load's users do.
pub struct Steps {
    /// What is sent, in the order before, journey, after.
    pub requests: Vec<Request>,
    /// What more there is to it.
    pub journey: Option<Box<Journey>>,
    /// Header fields of those that are written anew each time.
    pub fields: Vec<Option<Fields>>,
    /// Names of the tags that requests refer to.
    pub tags: Vec<String>,
    /// For the summary.
    pub first_url: String,
}

/// Header fields of a step that is written anew each time, without `Host`, length and cookies.
pub type Fields = Vec<(String, Template)>;

/// The steps of a load, in the order in which their requests lie; each with what it is called.
pub fn all_steps(load: &plan::LoadSpec) -> impl Iterator<Item = (&'static str, &plan::Step, String)> {
    let script = &load.script;
    let sections = [("before", &script.before), ("journey", &load.journey), ("after", &script.after)];
    sections.into_iter().flat_map(move |(section, steps)| {
        let part = if section == "journey" { String::new() } else { format!("`{section}`, ") };
        let what = move |i: usize| format!("{part}step {} of `{}`", i + 1, load.name);
        steps.iter().enumerate().map(move |(i, step)| (section, step, what(i)))
    })
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
    let scripted = needs_script(load, all_steps(load).map(|(_, step, _)| step));
    let (mut requests, mut scripts, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first_url, mut all_fields) = (String::new(), Vec::new());
    let mut shape = Shape::default();
    for (section, step, what) in all_steps(load) {
        if let Some(talk) = &step.websocket {
            let (parts, url) = parts_of(step, talk, &what, (load, desk), hosts)?;
            if first_url.is_empty() && section == "journey" {
                first_url = url;
            }
            shape.add(section, parts.len(), step.weight);
            for part in parts {
                let own = step.tags.iter().chain(part.tags.iter().filter(|tag| !step.tags.contains(tag)));
                requests.push(Request { tags: indices(own, &mut tags), ..part.request });
                scripts.push(part.script);
                all_fields.push(part.fields);
            }
            continue;
        }
        shape.add(section, 1, step.weight);
        let writes = scripted && must_be_written(load, step);
        let (request, message, url) = match writes {
            false => {
                let (request, url) = request_of(step, &what, load, desk, hosts)?;
                all_fields.push(None);
                (request, None, url)
            }
            true => {
                let (request, (message, fields), url) = written(step, &what, load, desk, hosts)?;
                all_fields.push(Some(fields));
                (request, Some(message), url)
            }
        };
        if first_url.is_empty() && section == "journey" {
            first_url = url;
        }
        if scripted {
            scripts.push(script_of(step, message, &what, (load, desk, request.host))?);
        }
        requests.push(Request { tags: indices(step.tags.iter(), &mut tags), ..request });
    }
    let remembered = remembered(load, desk, &all_fields);
    let journey = match scripted {
        true => Some(Box::new(journey_of(load, (scripts, shape, remembered), desk, hosts)?)),
        false => None,
    };
    Ok(Steps { requests, journey, fields: all_fields, tags, first_url })
}

/// How many requests each section has, and the weights of those of the journey, added up: a step that is several
/// requests is taken with its first.
#[derive(Default)]
struct Shape {
    before: u32,
    round: u32,
    after: u32,
    weights: Vec<u64>,
}

impl Shape {
    fn add(&mut self, section: &str, requests: usize, weight: Option<u32>) {
        let count = match section {
            "before" => &mut self.before,
            "after" => &mut self.after,
            _ => {
                let sum = self.weights.last().unwrap_or(&0) + u64::from(weight.unwrap_or(0));
                self.weights.extend(std::iter::repeat_n(sum, requests));
                &mut self.round
            }
        };
        *count += requests as u32;
    }
}

fn indices<'t>(of_step: impl Iterator<Item = &'t String>, tags: &mut Vec<String>) -> Vec<u16> {
    let index = |tag: &String| {
        let known = tags.iter().position(|t| t == tag).unwrap_or_else(|| {
            tags.push(tag.clone());
            tags.len() - 1
        });
        known as u16
    };
    of_step.map(index).collect()
}

/// Whether users have to remember, choose or look at anything.
pub(crate) fn needs_script<'s>(
    load: &plan::LoadSpec,
    mut steps: impl Iterator<Item = &'s plan::Step>,
) -> bool {
    let script = &load.script;
    let around = !script.before.is_empty() || !script.after.is_empty() || script.is_mix;
    let keeps = script.cookies || script.redirects > 0 || !script.feeds.is_empty() || load.http.compressed;
    let sessions = matches!(load.model, plan::Model::Sessions { .. });
    around || keeps || sessions || steps.any(|s| s.websocket.is_some() || is_special(s) || has_variables(s))
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
///
/// # Errors
/// See [`TranslateError`].
pub fn written(
    step: &plan::Step,
    what: &str,
    load: &plan::LoadSpec,
    desk: &Desk<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<(Request, (Message, Fields), String), TranslateError> {
    let (url, target) = target_of(step, what, desk)?;
    let wrong = |error: TargetError| TranslateError::Target { what: what.to_owned(), error };
    let host = hosts.index_of(&url, step.websocket.is_some()).map_err(wrong)?;
    let shown = step.url.shown(desk.names);
    let body = journey::body(&step.body, what, desk.plan_dir, desk.names)?;
    let fields = fields_of(step, what, (load, desk), body.as_ref().and_then(|(_, kind)| kind.as_deref()))?;
    let takes_body = matches!(step.method, "POST" | "PUT" | "PATCH");
    let body = body.map(|(text, _)| text).or_else(|| takes_body.then(Template::default));
    let request = Request {
        label: label_of(step.method, &shown),
        bytes: Vec::new(),
        head_len: 0,
        answer_has_no_body: step.method == "HEAD",
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
    Ok((request, (message, fields), shown))
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
    let path_at = path_at(&fixed).unwrap_or(fixed.len());
    let url = Url::parse(&as_http(&fixed[..path_at])).map_err(wrong)?;
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

/// What a request is called: method, path and query, with names in place of secrets.
pub fn label_of(method: &str, shown: &str) -> String {
    let path = path_at(shown).map_or("/", |at| &shown[at..]);
    format!("{method} {path}")
}

/// Where path and query of a URL begin, if it has them.
fn path_at(url: &str) -> Option<usize> {
    let host_at = match url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("unix:")) {
        // `unix:/PATH:/URI`
        true => 5 + url[5..].find(':')? + 1,
        false => url.find("://").map_or(0, |at| at + 3),
    };
    url[host_at..].find(['/', '?', '#']).map(|at| host_at + at)
}

/// Header fields.
fn fields_of(
    step: &plan::Step,
    what: &str,
    (load, desk): (&plan::LoadSpec, &Desk<'_>),
    content_type: Option<&str>,
) -> Result<Fields, TranslateError> {
    let mut fields = Fields::new();
    let mut field = |name: &str, value: Template| fields.push((name.to_owned(), value));
    let given = |name: &str| step.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if given("host") {
        return Err(TranslateError::NotYet {
            what: what.to_owned(),
            feature: "a `host` header beside variables is",
        });
    }
    if !load.keep_alive && step.websocket.is_none() && load.http.protocol == plan::Protocol::Http1 {
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
    if load.http.compressed && step.websocket.is_none() && !given("accept-encoding") {
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
    let captures = captures_of(&step.captures, what, desk)?;
    Ok(Script {
        has_id: message.as_ref().is_some_and(Message::has_id),
        message,
        checks: journey::checks(step.statuses.as_deref(), &step.checks).map_err(bug)?,
        expected: journey::expected(&step.checks, what, desk.names)?,
        captures,
        on_failure: way_of(step.on_failure),
        host,
        redirects: u8::try_from(load.script.redirects).unwrap_or(u8::MAX),
        think: None,
        talk: None,
    })
}

/// What is captured, and the user's own slots for it.
///
/// # Errors
/// A capture that cannot be made, which the plan's reader has kept out.
pub fn captures_of(
    captures: &[plan::Capture],
    what: &str,
    desk: &Desk<'_>,
) -> Result<Vec<(u16, Capture)>, TranslateError> {
    let mut out = Vec::new();
    for capture in captures {
        let taken = journey::capture(capture);
        let (slot, capture) = taken.map_err(|words| TranslateError::Part { what: what.to_owned(), words })?;
        // Slots of what was captured before come first, and are not the user's.
        out.push((slot - desk.shared.count(), capture));
    }
    Ok(out)
}

/// What a failure means for the user's way.
pub fn way_of(on_failure: plan::OnFailure) -> Way {
    match on_failure {
        plan::OnFailure::Continue => Way::On,
        plan::OnFailure::End => Way::EndRound,
        plan::OnFailure::Leave => Way::Leave,
    }
}

/// Fields whose values let others in.
const SECRET_FIELDS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
/// What a name says of values that do: any of these in it.
const SECRET_WORDS: [&str; 8] =
    ["token", "secret", "passw", "session", "csrf", "auth", "cookie", "credential"];

/// Names of captured values in the order of their slots. One is a secret if its name says so, or if a step sends it
/// where secrets are sent.
fn remembered(load: &plan::LoadSpec, desk: &Desk<'_>, fields: &[Option<Fields>]) -> Vec<Remembered> {
    let secret_fields = fields.iter().flatten().flatten();
    let secret_fields =
        secret_fields.filter(|(name, _)| SECRET_FIELDS.iter().any(|s| name.eq_ignore_ascii_case(s)));
    let sent: Vec<Variable> = secret_fields.flat_map(|(_, value)| value.variables()).collect();
    let own = load.script.captures.iter().map(|c| c.name.as_str());
    let names = desk.shared_names.iter().map(String::as_str).chain(own);
    let secret = |slot: usize, name: &str| {
        let name = name.to_ascii_lowercase();
        sent.contains(&Variable::Capture(slot as u16)) || SECRET_WORDS.iter().any(|w| name.contains(w))
    };
    names
        .enumerate()
        .map(|(slot, name)| Remembered { name: name.to_owned(), is_secret: secret(slot, name) })
        .collect()
}

fn journey_of(
    load: &plan::LoadSpec,
    (scripts, shape, remembered): (Vec<Script>, Shape, Vec<Remembered>),
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
    let sessions = matches!(load.model, plan::Model::Sessions { .. });
    let slots = script.captures.iter().enumerate();
    let numbers = slots.filter(|(_, c)| c.is_number).map(|(slot, c)| (slot as u16, c.name.clone()));
    Ok(Journey {
        course: Course {
            before: shape.before,
            round: shape.round,
            after: shape.after,
            weights: if script.is_mix { shape.weights } else { Vec::new() },
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
        remembered,
        numbers: numbers.collect(),
        sessions,
        unix_ns: unix_ns(),
    })
}

/// The wall clock, nanoseconds since 1970.
fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
