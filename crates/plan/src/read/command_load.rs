//! Reads loads made by a program of the user's, and which cases a load belongs to.

use loadlab_record::spec::schedule::{Think, Until, WhenBehind};
use loadlab_record::text::time::SECOND_NS;
use loadlab_record::watch::names::RESERVED;

use crate::keys;
use crate::model::case_values::CaseValues;
use crate::model::journey::{Http, Script};
use crate::model::spec::{CommandLoad, LoadSpec, Model};
use crate::read::batches;
use crate::read::reader::{Fields, Reader, Scope};
use crate::read::texts::{in_folder, read_command, read_env};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::suggest;

/// Default time limit of a command.
const DEFAULT_COMMAND_TIMEOUT_NS: u64 = 600 * SECOND_NS;

/// Reads a load with a `command`.
pub(crate) fn read(r: &mut Reader<'_>, name: &str, fields: &Fields<'_>) -> Option<LoadSpec> {
    for entry in fields.entries().iter().filter(|e| keys::LOAD.key(&e.key).is_some()) {
        // Keys that exclude each other were already reported.
        let is_reported = keys::LOAD.groups.iter().any(|g| g.keys.contains(&entry.key.as_str()));
        if is_reported || keys::BESIDE_COMMAND.contains(&entry.key.as_str()) {
            continue;
        }
        let message = format!("`{}` cannot be combined with `command`", entry.key);
        let problem = Problem::new(entry.key_span, message);
        let problem = problem.related("`command` is here", fields.key_span("command"));
        r.push(problem.hint("the program decides what it sends, and how"));
    }
    taken(r, name, fields);
    let start_ns = r.duration(fields, "start").unwrap_or(0);
    let (batches, pause_ns) = batches::read_batches(r, fields);
    let command = read_section(r, fields)?;
    Some(LoadSpec {
        name: name.to_owned(),
        until: command.requests.map_or(Until::Elapsed(command.timeout_ns), Until::Requests),
        model: Model::Command(command),
        ramp_ns: 0,
        warmup_ns: 0,
        is_warmup_found: false,
        batches,
        pause_ns,
        start_ns,
        stages: Vec::new(),
        think: Think::None,
        when_behind: WhenBehind::Queue,
        timeout_ns: 30 * SECOND_NS,
        grace_ns: 5 * SECOND_NS,
        keep_alive: true,
        threads: None,
        seed: 1,
        journey: Vec::new(),
        script: Script::default(),
        http: Http::default(),
    })
}

/// Reports a name that a component has: a command is watched under the name of its load, like a component.
fn taken(r: &mut Reader<'_>, name: &str, fields: &Fields<'_>) {
    if r.instances.iter().any(|i| i.name == name) || RESERVED.contains(&name) {
        let message = format!("a load with a `command` cannot have the name of a component: `{name}`");
        let hint = "the program is watched like a component, under the load's name: give the load another name in `loads`";
        r.push(Problem::new(fields.at, message).hint(hint));
    }
}

fn read_section(r: &mut Reader<'_>, load: &Fields<'_>) -> Option<CommandLoad> {
    let node = load.get("command")?;
    let fields = r.fields(node, &keys::COMMAND_LOAD, load.key_span("command"))?;
    let counted_by = fields.get("counted_by").and_then(|node| read_probe(r, node));
    let requests = r.count(&fields, "requests");
    let timeout_ns = r.positive_duration(&fields, "timeout").unwrap_or(DEFAULT_COMMAND_TIMEOUT_NS);
    let dir = r.text(&fields, "dir").unwrap_or_default();
    r.requests = requests;
    let command = fields.get("run").and_then(|node| read_command(r, node));
    let env = read_env(r, &fields);
    r.requests = None;
    let started_when_output = fields.get("started_when_output").and_then(|node| {
        let text = r.template(node, "a text")?;
        if text.to_string().is_empty() || text.to_string().contains('\n') {
            r.push(Problem::new(node.span, "expected part of a single line for `started_when_output`"));
            return None;
        }
        Some(text)
    });
    let dir = in_folder(r.plan_dir, &dir);
    Some(CommandLoad {
        command: command?,
        counted_by: counted_by?,
        requests,
        started_when_output,
        timeout_ns,
        env,
        dir,
    })
}

/// Reads the name of a probe of this case.
fn read_probe(r: &mut Reader<'_>, node: &Node) -> Option<String> {
    let probe = r.scalar(node, "a probe")?;
    // Probes that could not be read were already reported.
    if !r.probes.contains(&probe.text) && r.problems.count() == 0 {
        let names: Vec<&str> = r.probes.iter().map(String::as_str).collect();
        let hint = match names.is_empty() {
            true => Some("add one to `system.probes` that counts the requests".to_owned()),
            false => suggest::hint(&probe.text, &names),
        };
        let message = format!("there is no probe `{}`", shorten(&probe.text));
        r.wrong(&probe, message, hint);
        return None;
    }
    Some(probe.text)
}

/// Whether a load belongs to this case; a load without `cases` does.
pub(crate) fn belongs(r: &mut Reader<'_>, node: &Node) -> bool {
    let Some(cases) = node.get("cases") else { return true };
    let globs = globs(r, cases);
    match r.scope {
        Scope::Case(case) => globs.iter().any(|glob| is_meant(glob, case)),
        Scope::AllCases | Scope::Unknown => true,
    }
}

/// Whether a glob matches a case, by its name in the plan or with its revision.
pub(crate) fn is_meant(glob: &str, case: &CaseValues) -> bool {
    suggest::glob(glob, &case.name) || suggest::glob(glob, case.own_name())
}

/// Names of cases, with `*` and `?`, as one text or a list.
fn globs(r: &mut Reader<'_>, node: &Node) -> Vec<String> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if items.is_empty() {
        r.push(Problem::new(node.span, "`cases` is empty").hint("leave it out if the load is for all cases"));
    }
    items.iter().filter_map(|n| r.scalar(n, "a case's name, with `*` for any text")).map(|s| s.text).collect()
}

/// Remarks about loads that belong to no case, one for each.
pub(crate) fn without_a_case(fields: &Fields<'_>, cases: &[CaseValues]) -> Vec<String> {
    let one = fields.get("load").map(|node| ("load", node));
    let loads = fields.get("loads").map_or(&[][..], Node::entries);
    let all = loads.iter().map(|e| (e.key.as_str(), &e.value)).chain(one);
    let mut notes = Vec::new();
    for (name, node) in all {
        let Some(wanted) = node.get("cases") else { continue };
        wanted.each_text(&mut |glob| {
            if !glob.contains("${") && !cases.iter().any(|c| is_meant(glob, c)) {
                notes.push(format!("no case matches `{}` in `cases` of load `{name}`", shorten(glob)));
            }
        });
    }
    notes
}
