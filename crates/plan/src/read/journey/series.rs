//! Names the series of requests that have no series of their own: `GET /items`. A tag that several requests share does
//! not show which of them is slow.
//!
//! A name is method and path as in the plan. Names contain a space, so none is ever a tag, and `--tags` does not
//! select by them.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_record::secrets::Secrets;

use crate::model::journey::{Conversation, Step};
use crate::model::spec::LoadSpec;

/// Maximum number of requests of a case that are named, in the order of the plan: each series takes memory and a few
/// lines of the record each second.
pub(crate) const MAX_NAMED_REQUESTS: usize = 100;
/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 80;
/// Characters of the name reserved for the end of a long path: that is where paths differ.
const TAIL: usize = 24;

/// A request that is counted.
struct CountedRequest<'s> {
    load: &'s str,
    /// Number of the step, counted over all loads.
    step: usize,
    /// Method and path.
    base: String,
    /// Which part of a conversation it is.
    part: String,
    tags: Vec<&'s str>,
    series: &'s mut Option<String>,
}

/// Names the series of a case whose loads make more than one kind of request. Names are shown, so they contain no
/// secrets.
pub(crate) fn name(loads: &mut [LoadSpec], secrets: &Secrets) {
    let mut units = units(loads);
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for tag in units.iter().flat_map(|u| &u.tags) {
        *uses.entry(tag).or_default() += 1;
    }
    let is_alone = units.len() < 2;
    units.retain(|unit| !is_alone && !unit.tags.iter().any(|tag| uses[tag] == 1));
    units.truncate(MAX_NAMED_REQUESTS);
    for unit in &mut units {
        unit.base = secrets.mask(&unit.base).into_owned();
    }
    let mut loads_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for unit in &units {
        loads_of.entry(unit.base.clone()).or_default().insert(unit.load);
    }
    let mut taken = BTreeSet::new();
    let mut last: Option<(usize, String)> = None;
    for unit in units {
        let name = match last.take() {
            Some((step, name)) if step == unit.step => name,
            _ => {
                let of = match loads_of[&unit.base].len() {
                    1 => String::new(),
                    _ => format!(" of {}", unit.load),
                };
                distinct(&unit.base, &of, &mut taken)
            }
        };
        *unit.series = Some(format!("{name}{}", unit.part));
        last = Some((unit.step, name));
    }
}

/// The requests of all loads in the order of the plan; those of a step are consecutive.
fn units(loads: &mut [LoadSpec]) -> Vec<CountedRequest<'_>> {
    let (mut found, mut number) = (Vec::new(), 0);
    for load in loads {
        let script = &mut load.script;
        let steps = script.user_setup.iter_mut().chain(&mut load.journey).chain(&mut script.user_teardown);
        for step in steps {
            number += 1;
            let base = base_of(step);
            let Step { tags, series, websocket, .. } = step;
            let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
            let unit = |part: String, tags, series| CountedRequest {
                load: &load.name,
                step: number,
                base: base.clone(),
                part,
                tags,
                series,
            };
            found.push(unit(String::new(), tags.clone(), series));
            let Some(Conversation { messages, closing_series, .. }) = websocket else { continue };
            for (i, message) in messages.iter_mut().enumerate() {
                if message.is_pause() {
                    continue;
                }
                let mut own = tags.clone();
                own.extend(message.tags.iter().map(String::as_str).filter(|tag| !tags.contains(tag)));
                found.push(unit(format!(", message {}", i + 1), own, &mut message.series));
            }
            found.push(unit(", close".to_owned(), tags, closing_series));
        }
    }
    found
}

/// Method and path of a step.
fn base_of(step: &Step) -> String {
    let target = match &step.urls {
        Some(file) => format!("URLs of {}", file.rsplit('/').next().unwrap_or(file)),
        None => step.url.target_shown(),
    };
    let method = if step.websocket.is_some() { "WebSocket" } else { step.method };
    format!("{method} {target}")
}

/// A unique name, short enough to leave room for everything that may be appended.
fn distinct(base: &str, of: &str, taken: &mut BTreeSet<String>) -> String {
    // A condition puts a name in quotes of one kind.
    let other = if base.contains('"') && base.contains('\'') { '\'' } else { '"' };
    let plain = |c: char| match c {
        c if c.is_control() => ' ',
        '"' => other,
        c => c,
    };
    let base: String = base.chars().map(plain).collect();
    // Room for `, message 10000`.
    let room = if base.starts_with("WebSocket ") { MAX_NAME_CHARS - 15 } else { MAX_NAME_CHARS };
    let mut name = fitted(&base, of, room);
    let mut count = 1;
    while !taken.insert(name.clone()) {
        count += 1;
        name = fitted(&base, &format!("{of} ({count})"), room);
    }
    name
}

/// The text and its suffix, within `room` characters: the middle of a text that is too long is left out.
fn fitted(text: &str, more: &str, room: usize) -> String {
    let room = room.saturating_sub(more.chars().count()).max(TAIL + 8);
    let count = text.chars().count();
    if count <= room {
        return format!("{text}{more}");
    }
    let head: String = text.chars().take(room - TAIL - 1).collect();
    let tail: String = text.chars().skip(count - TAIL).collect();
    format!("{head}…{tail}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Plan, Reference};

    fn plan(loads: &str) -> Result<Plan, String> {
        let mut options = Options::default();
        for (name, value) in
            [("BASE", "http://127.0.0.1:1/secret-base"), ("KEY", "sesame-open"), ("WORD", "eel")]
        {
            options.outside.give(Reference::Env(name.to_owned()), Ok(value.to_owned()));
        }
        Plan::parse("plan.yaml", &format!("loadlab: 1\nname: n\n{loads}"), &options)
            .map_err(|e| e.to_string())
    }

    /// The series of all requests of the first case, load by load, each with its tags.
    fn names(loads: &str) -> Vec<String> {
        let plan = plan(loads).unwrap_or_else(|e| panic!("{e}"));
        let steps = plan.cases()[0].loads.iter().flat_map(LoadSpec::steps);
        steps.flat_map(Step::all_series).cloned().collect()
    }

    fn of_steps(steps: &[&str]) -> Vec<String> {
        let steps: String = steps.iter().map(|step| format!("    - {{ {step} }}\n")).collect();
        names(&format!("load:\n  users: 1\n  duration: 1s\n  journey:\n{steps}"))
    }

    #[test]
    fn each_request_without_its_own_tag_is_named_by_method_and_path() {
        let check = |steps: &[&str], expect: &[&str]| assert_eq!(of_steps(steps), expect, "{steps:?}");
        let at = "get: \"http://127.0.0.1:1";
        check(&[&format!("{at}/\"")], &[]);
        check(
            &[&format!("{at}/items\""), "post: \"http://127.0.0.1:1/items?a=b\"", &format!("{at}\"")],
            &["GET /items", "POST /items?a=b", "GET /"],
        );
        check(
            &[&format!("{at}/${{random(1, 500)}}\""), "get: \"unix:/run/x.sock:/y\"", &format!("{at}?q=1\"")],
            &["GET /${random(1, 500)}", "GET /y", "GET /?q=1"],
        );
        check(
            &[&format!("{at}/a\""), &format!("{at}/a\""), &format!("{at}/a\"")],
            &["GET /a", "GET /a (2)", "GET /a (3)"],
        );
        // A tag belongs to one request if no other request has it.
        check(
            &[&format!("{at}/a\", tags: [all, a]"), &format!("{at}/b\", tags: [all]"), &format!("{at}/c\"")],
            &["all", "a", "all", "GET /b", "GET /c"],
        );
        check(&[&format!("{at}/a\""), "urls: lists/pages.txt"], &["GET /a", "GET URLs of pages.txt"]);
    }

    #[test]
    fn parts_of_a_conversation_are_named_separately() {
        let conversation = "websocket: \"ws://127.0.0.1:1/chat\", messages: [{ pause: 1s }, { send: a, tags: [say] }, \
                    { send: b, expect: { contains: b } }]";
        assert_eq!(
            of_steps(&[conversation]),
            ["say", "WebSocket /chat", "WebSocket /chat, message 3", "WebSocket /chat, close"]
        );
        let twice = of_steps(&[conversation, conversation]);
        assert!(twice.contains(&"WebSocket /chat (2), close".to_owned()), "{twice:?}");
        let conversation = conversation.replace("/chat", &format!("/{}", "chat".repeat(40)));
        assert!(of_steps(&[&conversation]).iter().all(|name| name.chars().count() <= MAX_NAME_CHARS));
    }

    #[test]
    fn equal_requests_of_several_loads_are_named_with_their_load() {
        let load = |name: &str, path: &str| {
            format!(
                "  {name}:\n    users: 1\n    duration: 1s\n    journey: [get: \"http://127.0.0.1:1{path}\"]\n"
            )
        };
        let both = format!("loads:\n{}{}{}", load("cold", "/a"), load("warm", "/a"), load("third", "/b"));
        assert_eq!(names(&both), ["GET /a of cold", "GET /a of warm", "GET /b"]);
    }

    #[test]
    fn long_names_stay_apart_and_short() {
        let step = |end: &str| format!("get: \"http://127.0.0.1:1/{}{end}\"", "long/".repeat(40));
        let found = of_steps(&[&step("a"), &step("b"), &step("a")]);
        assert_eq!(found[0], format!("GET /{}…{}a", "long/".repeat(10), &"long/".repeat(5)[2..]));
        assert!(found.iter().all(|name| name.chars().count() <= MAX_NAME_CHARS), "{found:?}");
        assert!(found[1].ends_with("/b") && found[2].ends_with("/a (2)"), "{found:?}");
    }

    #[test]
    fn the_number_of_named_requests_is_limited() {
        let steps = vec!["get: \"http://127.0.0.1:1/\""; MAX_NAMED_REQUESTS + 20];
        assert_eq!(of_steps(&steps).len(), MAX_NAMED_REQUESTS);
    }

    #[test]
    fn no_secret_is_in_a_name() {
        let found = of_steps(&[
            "get: \"${env.BASE}/items\"",
            "get: \"http://127.0.0.1:1/a?key=${env.KEY}\"",
            "get: \"http://127.0.0.1:1/b/hard-coded-one\", headers: { x-api-key: hard-coded-one }",
            "get: \"http://127.0.0.1:1/${public:env.WORD}\"",
        ]);
        assert_eq!(found, ["GET ${env.BASE}/items", "GET /a?key=${env.KEY}", "GET /b/***", "GET /eel"]);
    }

    #[test]
    fn conditions_know_them_and_tags_do_not_select_by_them() {
        let text = "load:\n  users: 1\n  duration: 1s\n  journey:\n    - get: \"http://127.0.0.1:1/items.json\"\n    \
                    - { get: \"http://127.0.0.1:1/b\", tags: [b] }\n";
        let expect = "expect: [\"'tag.GET /items.json.p99' < 1s\", \"'tag.GET /items.json.failed' == 0\"]\n";
        let parsed = plan(&format!("{text}{expect}")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(parsed.cases()[0].expect.len(), 2);
        let wrong = plan(&format!("{text}expect: [\"'tag.GET /item.json.p99' < 1s\"]\n")).unwrap_err();
        assert!(wrong.contains("did you mean `tag.GET /items.json.p99`?"), "{wrong}");
        let chosen = |tag: &str| {
            let options = Options { tags: vec![tag.to_owned()], ..Options::default() };
            Plan::parse("plan.yaml", &format!("loadlab: 1\nname: n\n{text}{expect}"), &options)
        };
        assert!(chosen("GET /items.json").is_err());
        let plan = chosen("b").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((plan.cases()[0].expect.len(), plan.notes.len()), (0, 2));
    }
}
