//! Converts a load's steps to requests and, if they need more than that, to the journey of the engine's users.
//!
//! A load whose requests never change and are judged only by status needs no journey: it takes the fast path.

use loadlab_load::journey::example::CapturedName;
use loadlab_load::journey::order::StepOrder;
use loadlab_load::journey::script::{Deal, Journey, Message, Script};
use loadlab_load::spec::request::Request;
use loadlab_plan as plan;
use loadlab_plan::credentials::is_secret_name;
use loadlab_record::spec::variable::Variable;

use crate::translate::conversation::parts_of;
use crate::translate::error::TranslateError;
use crate::translate::hosts::Hosts;
use crate::translate::scripted::{has_variables, needs_script};
use crate::translate::writing::{Fields, RequestContext, WrittenStep, advance_after, captures_of, written};
use crate::translate::{journey, request_of};

/// What a load's users do.
pub struct Steps {
    /// All requests, in the order `user_setup`, journey, `user_teardown`.
    pub requests: Vec<Request>,
    /// The journey, if plain requests are not enough.
    pub journey: Option<Box<Journey>>,
    /// For each request that is rendered anew each time, its header fields.
    pub fields: Vec<Option<Fields>>,
    /// Names of the tags that requests refer to by index.
    pub tags: Vec<String>,
    /// The first URL, for the summary.
    pub first_url: String,
}

/// A step of a load, and where it is.
pub struct PlacedStep<'l> {
    /// The key of its section: `user_setup`, `journey` or `user_teardown`.
    pub section: &'static str,
    /// The step.
    pub step: &'l plan::Step,
    /// Where it is, in words.
    pub what: String,
}

/// The steps of a load in the order of their requests.
pub fn all_steps(load: &plan::LoadSpec) -> impl Iterator<Item = PlacedStep<'_>> {
    let script = &load.script;
    let sections = [
        ("user_setup", &script.user_setup),
        ("journey", &load.journey),
        ("user_teardown", &script.user_teardown),
    ];
    sections.into_iter().flat_map(move |(section, steps)| {
        let part = if section == "journey" { String::new() } else { format!("`{section}`, ") };
        let what = move |i: usize| format!("{part}step {} of `{}`", i + 1, load.name);
        steps.iter().enumerate().map(move |(i, step)| PlacedStep { section, step, what: what(i) })
    })
}

/// Converts the steps of a load.
///
/// # Errors
/// See [`TranslateError`].
pub fn steps_of(context: &RequestContext<'_>, hosts: &mut Hosts<'_>) -> Result<Steps, TranslateError> {
    let load = context.load;
    let scripted = needs_script(load, all_steps(load).map(|placed| placed.step));
    let (mut requests, mut scripts, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    let (mut first_url, mut all_fields) = (String::new(), Vec::new());
    let mut shape = Shape::default();
    for PlacedStep { section, step, what } in all_steps(load) {
        if let Some(conversation) = &step.websocket {
            let (parts, url) = parts_of(step, conversation, &what, context, hosts)?;
            if first_url.is_empty() && section == "journey" {
                first_url = url;
            }
            shape.add(section, parts.len(), step.weight);
            for part in parts {
                let own = step.tags.iter().chain(part.tags.iter().filter(|tag| !step.tags.contains(tag)));
                let own = own.chain(part.series);
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
                let (request, url) = request_of(step, &what, context, hosts)?;
                all_fields.push(None);
                (request, None, url)
            }
            true => {
                let WrittenStep { request, message, fields, url } = written(step, &what, context, hosts)?;
                all_fields.push(Some(fields));
                (request, Some(message), url)
            }
        };
        if first_url.is_empty() && section == "journey" {
            first_url = url;
        }
        if scripted {
            scripts.push(script_of(step, message, &what, context, request.host)?);
        }
        requests.push(Request { tags: indices(step.tags.iter().chain(&step.series), &mut tags), ..request });
    }
    let remembered = remembered(context, &all_fields);
    let journey = match scripted {
        true => Some(Box::new(journey_of(scripts, shape, remembered, context, hosts)?)),
        false => None,
    };
    Ok(Steps { requests, journey, fields: all_fields, tags, first_url })
}

/// How many requests each section has, and the journey's cumulative weights. A step with several requests is selected
/// by its first one.
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
            "user_setup" => &mut self.before,
            "user_teardown" => &mut self.after,
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

/// Whether the engine has to render the step's request anew each time.
fn must_be_written(load: &plan::LoadSpec, step: &plan::Step) -> bool {
    load.script.cookies || load.script.redirects > 0 || has_variables(step)
}

fn script_of(
    step: &plan::Step,
    message: Option<Message>,
    what: &str,
    context: &RequestContext<'_>,
    host: u16,
) -> Result<Script, TranslateError> {
    let bug = |why: String| TranslateError::Part { what: what.to_owned(), message: why };
    let captures = captures_of(&step.captures, what, context)?;
    Ok(Script {
        has_id: message.as_ref().is_some_and(Message::has_id),
        message,
        checks: journey::checks(step.statuses.as_deref(), &step.checks).map_err(bug)?,
        expected: journey::expected(&step.checks, what, context.names)?,
        captures,
        on_failure: advance_after(step.on_failure),
        host,
        redirects: u8::try_from(context.load.script.redirects).unwrap_or(u8::MAX),
        think: None,
        conversation: None,
    })
}

/// Words in the name of a captured value that suggest a secret, in addition to names that are those of secrets anywhere.
const SECRET_WORDS: [&str; 8] =
    ["token", "secret", "passw", "session", "csrf", "auth", "cookie", "credential"];

/// The names of captured values in slot order. A value is secret if its name suggests so, or if a step sends it in a
/// header field for secrets.
fn remembered(context: &RequestContext<'_>, fields: &[Option<Fields>]) -> Vec<CapturedName> {
    let secret_fields = fields.iter().flatten().flatten();
    let secret_fields = secret_fields.filter(|(name, _)| is_secret_name(name));
    let sent: Vec<u16> = secret_fields
        .flat_map(|(_, value)| value.variables())
        .filter_map(|variable| match variable {
            Variable::Capture { slot, .. } => Some(slot),
            _ => None,
        })
        .collect();
    let own = context.load.script.captures.iter().map(|c| c.name.as_str());
    let names = context.shared_names.iter().map(String::as_str).chain(own);
    let secret = |slot: usize, name: &str| {
        let is_suggested = |name: String| SECRET_WORDS.iter().any(|w| name.contains(w));
        sent.contains(&(slot as u16)) || is_secret_name(name) || is_suggested(name.to_ascii_lowercase())
    };
    names
        .enumerate()
        .map(|(slot, name)| CapturedName { name: name.to_owned(), is_secret: secret(slot, name) })
        .collect()
}

fn journey_of(
    scripts: Vec<Script>,
    shape: Shape,
    remembered: Vec<CapturedName>,
    context: &RequestContext<'_>,
    hosts: &Hosts<'_>,
) -> Result<Journey, TranslateError> {
    let load = context.load;
    let script = &load.script;
    let (mut feeds, mut dealings) = (Vec::new(), Vec::new());
    for feed in &script.feeds {
        let what = format!("load `{}`", load.name);
        let read = journey::feed(feed, context.plan_dir, load.seed);
        let (rows, dealing) = read.map_err(|message| TranslateError::Part { what, message })?;
        feeds.push(rows);
        dealings.push(Deal { dealing, per_user: feed.is_per_user });
    }
    let sessions = matches!(load.model, plan::Model::Sessions { .. });
    let slots = script.captures.iter().enumerate();
    let numbers = slots.filter(|(_, c)| c.is_number).map(|(slot, c)| (slot as u16, c.name.clone()));
    Ok(Journey {
        step_order: StepOrder {
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
        shared: context.shared.clone(),
        own: script.captures.len() as u16,
        remembered,
        numbers: numbers.collect(),
        sessions,
        unix_ns: None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use loadlab_load::journey::capture::CaptureSlots;
    use loadlab_load::target::Allowed;

    use super::*;
    use crate::translate::load_spec;

    #[test]
    fn captured_values_are_secret_by_their_names_and_by_where_they_are_sent() {
        let text = "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 1\n  journey:\n\
            \x20   - { get: \"http://127.0.0.1:1/\", capture: { a: { json: /a }, api_key: { json: /b }, id: { json: /c }, csrf2: { json: /d } } }\n\
            \x20   - { get: \"http://127.0.0.1:1/\", headers: { X-Api-Key: \"${a}\", X-Id: \"${id}\" } }\n";
        let plan = plan::Plan::parse("plan.yaml", text, &plan::Options::default());
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        let (load, shared) = (&plan.cases()[0].loads[0], CaptureSlots::new(0));
        let names = |_: &str| None;
        let context = RequestContext {
            load,
            plan_dir: Path::new(""),
            names: &names,
            shared: &shared,
            shared_names: &[],
        };
        let (spec, _) = load_spec(&context, &Allowed::default(), 1).unwrap();
        let remembered = &spec.journey.unwrap().remembered;
        let secret: Vec<&str> = remembered.iter().filter(|c| c.is_secret).map(|c| c.name.as_str()).collect();
        assert_eq!((remembered.len(), secret), (4, vec!["a", "api_key", "csrf2"]));
    }
}
