//! From a tree to cases: reads what is the same for all of them, expands the matrix, reads every case.

pub(crate) mod chosen;
pub(crate) mod link;
pub(crate) mod matrix;
pub(crate) mod overrides;

use std::collections::{BTreeMap, BTreeSet};

use loadlab_record::documents::manifest::REVISION_AXIS;
use loadlab_record::secrets::Secrets;
use loadlab_record::text::units::format_duration_ns;
use loadlab_record::text::url;

use crate::expand::matrix::Matrix;
use crate::keys::{self, MAX_EXPANDED, MAX_TRIALS};
use crate::model::case_values::CaseValues;
use crate::model::component_kind::{ComponentKind, Isolation, Lifetime};
use crate::model::journey::Setup;
use crate::model::plan::{Plan, TrialOrder};
use crate::model::spec::{
    Case, ComponentSpec, DurabilitySpec, EventSpec, LeverSpec, LoadSpec, ProfileSpec, SystemSpec,
    planned_end_ns,
};
use crate::read::conditions::{self, Conditions};
use crate::read::journey::{series, step};
use crate::read::reader::{Fields, Reader, Scope, SharedInputs};
use crate::read::{command_load, derive, events, levers, load, profile, revisions, system, trials};
use crate::text::error::{Problem, Problems};
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;

/// Maximum number of components over all cases.
const MAX_INSTANCES: usize = 20_000;
/// Maximum number of profiles.
const MAX_PROFILES: usize = 20;

/// The result of reading a tree: valid only if there are no problems.
pub(crate) struct Checked {
    pub plan: Plan,
    pub problems: Problems,
    /// Values that must not be shown.
    pub secrets: BTreeSet<String>,
    /// Names of the cases that `--case` means; of all if it is not given.
    pub chosen: BTreeSet<String>,
}

/// Checks a tree and expands it; `wanted` is what `--case` says.
pub(crate) fn check(root: &Node, from: SharedInputs<'_>, wanted: Option<&str>) -> Checked {
    let mut r = Reader::new(from, Scope::AllCases);
    let mut plan = empty();
    let at = root.entries().first().map_or(root.span.point(), |e| e.key_span);
    let Some(fields) = r.fields(root, &keys::PLAN, at) else {
        return Checked { plan, problems: r.problems, secrets: r.secrets, chosen: BTreeSet::new() };
    };
    read_head(&mut r, &fields, &mut plan);
    let matrix = match fields.get("matrix") {
        Some(node) => matrix::read(&mut r, node, fields.key_span("matrix")),
        None => Some(Matrix::single(at)),
    };
    let matrix = match plan.revisions.as_slice() {
        [] => matrix,
        all => matrix.and_then(|m| matrix::at_revisions(&mut r, m, all, fields.key_span("revisions"))),
    };
    let (mut problems, mut secrets) = (r.problems, r.secrets);
    let mut chosen = BTreeSet::new();
    match matrix {
        Some(mut matrix) => {
            chosen = matrix.choose(wanted);
            let fits = expansion_fits(root, &fields, &matrix, plan.trials, &mut problems);
            trials::check(&plan, matrix.cases.len(), &fields, &mut problems);
            plan.notes = unused_axes(&fields, &matrix);
            plan.notes.extend(command_load::without_a_case(&fields, &matrix.cases));
            plan.notes.extend(matrix.notes.iter().cloned());
            let cases = &matrix.cases[..if fits { matrix.cases.len() } else { 1 }];
            plan.cases = read_cases(cases, &fields, from, &mut problems, &mut secrets);
            isolation_fits(&plan, &fields, &mut problems);
            check_events(&plan, &fields, &mut problems);
            revisions::check(&plan, &fields, &mut problems);
            link::resolve(&mut plan, &fields, &mut problems);
            let mut r = Reader { problems, ..Reader::new(from, Scope::AllCases) };
            plan.derive = derive::read(&mut r, &fields, &plan.cases);
            problems = r.problems;
            secrets.extend(r.secrets);
            plan.axes = matrix.axes;
            plan.notes.extend(never_compared(&plan, &fields));
            plan.notes.extend(restarts(&plan));
            plan.notes.extend(late_events(&plan));
        }
        None => {
            let mut r = Reader::new(from, Scope::Unknown);
            read_case(&mut r, &fields);
            problems.append(r.problems);
            secrets.extend(r.secrets);
        }
    }
    Checked { plan, problems, secrets, chosen }
}

/// Reports components outside the run's own network, which cannot be reached from it.
fn isolation_fits(plan: &Plan, fields: &Fields<'_>, problems: &mut Problems) {
    let outside = |c: &ComponentSpec| match &c.kind {
        ComponentKind::Process(_) => None,
        ComponentKind::Container(_) | ComponentKind::Service(_) => {
            Some("a container already has its own network")
        }
        ComponentKind::External(_) => Some("it already runs, outside that network"),
    };
    let all = plan.cases.iter().flat_map(|c| &c.system.components);
    let found = all.filter_map(|c| Some((c, outside(c)?))).next();
    if let (Some((component, why)), true) = (found, plan.isolate != Isolation::None) {
        let message = format!("`{}` cannot join the networks of the run: {why}", component.group);
        problems.push(Problem::new(fields.key_span("isolate"), message).hint("leave `isolate` out"));
    }
}

/// Reports events that cannot happen to their components.
fn check_events(plan: &Plan, fields: &Fields<'_>, problems: &mut Problems) {
    let found = plan.cases.iter().find_map(|case| {
        let mut pairs = case.events.iter().flat_map(|e| e.components.iter().map(move |name| (e, name)));
        pairs.find_map(|(event, name)| {
            let component = case.system.components.iter().find(|c| c.name == *name)?;
            Some((event, events::unfit(event, &component.kind, plan.isolate)?))
        })
    });
    if let Some((event, (why, hint))) = found {
        let message = format!("`{}` is not possible: {why}", event.text);
        problems.push(Problem::new(fields.key_span("events"), message).hint(hint));
    }
}

fn empty() -> Plan {
    Plan {
        path: String::new(),
        dir: String::new(),
        name: String::new(),
        description: None,
        profile: None,
        quick: false,
        profiles: Vec::new(),
        revisions: Vec::new(),
        axes: Vec::new(),
        trials: 1,
        until_certain: None,
        has_control: false,
        order: TrialOrder::Interleaved,
        allow_hosts: Vec::new(),
        isolate: Isolation::None,
        notes: Vec::new(),
        layout: None,
        derive: Vec::new(),
        given: BTreeMap::new(),
        secrets: Secrets::default(),
        shown_text: String::new(),
        shown_set: Vec::new(),
        cases: Vec::new(),
    }
}

fn read_cases(
    matrix: &[CaseValues],
    fields: &Fields<'_>,
    from: SharedInputs<'_>,
    problems: &mut Problems,
    secrets: &mut BTreeSet<String>,
) -> Vec<Case> {
    let (mut instances, mut cost) = (0, 0);
    let mut cases = Vec::new();
    for values in matrix {
        if problems.is_full() {
            break;
        }
        let dir = values.dir.as_deref().unwrap_or(from.plan_dir).to_owned();
        let mut r = Reader::new(SharedInputs { plan_dir: &dir, ..from }, Scope::Case(values));
        let CaseParts { system, setup, loads, conditions, events, levers, profile, durability } =
            read_case(&mut r, fields);
        instances += system.components.len();
        cost += r.cost;
        problems.append(r.problems);
        secrets.append(&mut r.secrets);
        let Conditions { figures, stop_when, drain, expect, find } = conditions;
        let name = values.name.clone();
        let values = values.values.iter().map(|v| (v.axis.clone(), v.text.clone())).collect();
        cases.push(Case {
            name,
            values,
            dir,
            control_of: None,
            system,
            setup,
            loads,
            figures,
            stop_when,
            drain,
            expect,
            find,
            events,
            levers,
            profile,
            durability,
        });
        if instances > MAX_INSTANCES || cost > MAX_EXPANDED {
            let message = format!(
                "all cases together have more than {MAX_INSTANCES} components, or components that are too large"
            );
            let problem = Problem::new(fields.key_span("matrix"), message);
            problems.push(problem.hint("fewer cases or replicas"));
            break;
        }
    }
    cases
}

/// What is the same for all cases.
fn read_head(r: &mut Reader<'_>, fields: &Fields<'_>, plan: &mut Plan) {
    if let Some(node) = fields.get("loadlab")
        && let Some(version) = r.scalar(node, "the version of the plan language, `1`")
        && version.text != "1"
    {
        let message = format!("unknown version of the plan language: `{}`", shorten(&version.text));
        r.wrong(&version, message, Some("`loadlab: 1`".to_owned()));
    }
    r.used_secret = None;
    if let Some(name) = r.text(fields, "name") {
        if let Some(span) = r.used_secret {
            let problem = Problem::new(span, "`name` cannot contain a secret: folders are named after it");
            r.push(problem.hint("if it is not a secret, write `${public:env.NAME}`"));
        }
        if name.trim().is_empty() || name.chars().count() > 200 || name.chars().any(char::is_control) {
            let span = fields.get("name").map_or(fields.at, |n| n.span);
            r.push(Problem::new(span, "expected one line of 1 to 200 characters for `name`"));
        }
        plan.name = name;
    }
    plan.description = r.text(fields, "description");
    if let Some(profiles) = fields.get("profiles") {
        for (i, entry) in r.map(profiles, "a map of profiles by name").iter().enumerate() {
            r.check_name(&entry.key, entry.key_span, "a profile");
            r.map(&entry.value, "a map of paths to values such as `{ load.duration: 5s }`");
            if i == MAX_PROFILES {
                r.push(Problem::new(entry.key_span, format!("more than {MAX_PROFILES} profiles")));
                break;
            }
            plan.profiles.push(entry.key.clone());
        }
    }
    trials::read(r, fields, plan);
    plan.revisions = revisions::read(r, fields);
    plan.layout = r.choice(fields, "report");
    if r.choice(fields, "order") == Some("sequential") {
        plan.order = TrialOrder::Sequential;
    }
    for host in r.texts(fields, "allow_hosts") {
        if !url::is_bare_host(&host.text) {
            let message = format!("`{}` is not a host", shorten(&host.text));
            r.wrong(&host, message, Some("a name or an address, without a scheme, port or path".to_owned()));
        }
        plan.allow_hosts.push(host.text);
    }
    if let Some(node) = fields.get("isolate")
        && let Some(scalar) = r.scalar(node, "`true`, `false` or `shared`")
    {
        plan.isolate = match scalar.text.as_str() {
            "true" => Isolation::Each,
            "shared" => Isolation::Shared,
            "false" => Isolation::None,
            other => {
                let message = format!("`{}` is not `true`, `false` or `shared`", shorten(other));
                r.wrong(&scalar, message, None);
                Isolation::None
            }
        };
    }
}

fn expansion_fits(
    root: &Node,
    fields: &Fields<'_>,
    matrix: &Matrix,
    trials: u32,
    problems: &mut Problems,
) -> bool {
    let cases = matrix.cases.len();
    let total = cases as u64 * u64::from(trials);
    let at = fields.key_span(if fields.get("trials").is_some() { "trials" } else { "matrix" });
    if total > MAX_TRIALS {
        let message = format!("{cases} cases with {trials} trials each make {total}; at most {MAX_TRIALS}");
        problems.push(Problem::new(at, message).hint("fewer trials, values or axes"));
        return false;
    }
    let fits = cases * root.size() <= MAX_EXPANDED;
    if !fits {
        let message = format!("{cases} cases are too many to check in a plan of this size");
        problems
            .push(Problem::new(fields.key_span("matrix"), message).hint("fewer cases, or a shorter plan"));
    }
    fits
}

/// An axis that nothing uses makes identical cases: allowed (it shows the noise), but worth a remark.
fn unused_axes(fields: &Fields<'_>, matrix: &Matrix) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for key in [
        "system",
        "setup",
        "load",
        "loads",
        "figures",
        "expect",
        "find",
        "stop_when",
        "drain",
        "events",
        "levers",
        "profile",
        "durability",
    ] {
        if let Some(node) = fields.get(key) {
            node.each_text(&mut |text| {
                if text.contains("case.") {
                    texts.push(text.to_owned());
                }
            });
        }
    }
    let uses = |axis: &str| {
        texts.iter().any(|t| {
            crate::model::template::pieces(t).is_ok_and(|list| {
                list.iter().any(
                    |p| matches!(p, crate::model::template::Piece::Name(n) if n.strip_prefix("case.") == Some(axis)),
                )
            })
        })
    };
    let varies = |axis: &str| {
        let mut texts =
            matrix.cases.iter().filter_map(|c| c.values.iter().find(|v| v.axis == axis)).map(|v| &v.text);
        let first = texts.next();
        texts.any(|t| Some(t) != first)
    };
    let unused = matrix.axes.iter().filter(|a| *a != REVISION_AXIS && varies(a) && !uses(a));
    unused
        .map(|a| format!("nothing uses `${{case.{a}}}`: cases that differ only in `{a}` are the same"))
        .collect()
}

/// A remark if `durability` compares nothing in any case, since no load that a case has carries ids.
fn never_compared(plan: &Plan, fields: &Fields<'_>) -> Option<String> {
    let compares = plan.cases.iter().any(|case| case.durability.is_some());
    (fields.get("durability").is_some() && !compares).then(|| {
        "`durability` compares nothing: no step of any case carries a `${unique}`; put it into the requests that are \
         stored, or count with `probe`"
            .to_owned()
    })
}

/// A remark if a component has `lifetime: case`: it is kept while trials of one case follow one another, which
/// interleaving prevents.
fn restarts(plan: &Plan) -> Option<String> {
    let parts = plan.cases.iter().flat_map(|c| &c.system.components);
    let kept = parts.into_iter().find(|c| c.lifetime == Lifetime::Case)?;
    let in_turn = plan.order == TrialOrder::Interleaved && plan.cases.len() > 1 && plan.trials > 1;
    in_turn.then(|| {
        let group = &kept.group;
        format!(
            "`{group}` has `lifetime: case`, but cases run in turn, so it restarts for every trial; `order: \
                 sequential` keeps it longer"
        )
    })
}

/// Events that are due when the load is over.
fn late_events(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    for case in &plan.cases {
        // A search has loads of its own, as long as its levels.
        let end_ns = match &case.find {
            Some(find) => Some(find.settle_ns.saturating_add(find.level_ns)),
            None => planned_end_ns(&case.loads),
        };
        let Some(end_ns) = end_ns else { continue };
        for event in case.events.iter().filter(|event| event.at_ns >= end_ns) {
            let (at, end) = (format_duration_ns(event.at_ns as f64), format_duration_ns(end_ns as f64));
            let note = format!("the event `{}` is due after {at}, but the load ends after {end}", event.text);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Whether a load belongs to this case; sets `left_out` if it does not.
fn belongs(r: &mut Reader<'_>, node: &Node, left_out: &mut bool) -> bool {
    let own = command_load::belongs(r, node);
    *left_out |= !own;
    own
}

/// The parts of a case.
struct CaseParts {
    system: SystemSpec,
    setup: Setup,
    loads: Vec<LoadSpec>,
    conditions: Conditions,
    events: Vec<EventSpec>,
    levers: Vec<LeverSpec>,
    profile: Option<ProfileSpec>,
    durability: Option<DurabilitySpec>,
}

fn read_case(r: &mut Reader<'_>, fields: &Fields<'_>) -> CaseParts {
    let system = match fields.get("system") {
        Some(node) => system::read(r, node, fields.key_span("system")),
        None => SystemSpec::default(),
    };
    r.probes = system.probes.iter().map(|p| p.name.clone()).collect();
    let setup = step::read_setup(r, fields);
    let mut loads = Vec::new();
    let mut left_out = false;
    if let Some(node) = fields.get("load").filter(|node| belongs(r, node, &mut left_out)) {
        loads.extend(load::read(r, "load", node, fields.key_span("load")));
    }
    if let Some(node) = fields.get("loads") {
        let entries = r.map(node, "a map of loads by name");
        if entries.is_empty() && matches!(node.value, Value::Map(_)) {
            r.push(Problem::new(fields.key_span("loads"), "`loads` is empty"));
        }
        for entry in entries {
            r.check_name(&entry.key, entry.key_span, "a load");
            if !belongs(r, &entry.value, &mut left_out) {
                continue;
            }
            loads.extend(load::read(r, &entry.key, &entry.value, entry.key_span));
        }
    }
    if let (true, true, Scope::Case(case)) = (left_out, loads.is_empty(), r.scope) {
        let message = format!("case `{}` has no load", case.name);
        let problem = Problem::new(case.span, message);
        r.push(problem.hint("`cases` of a load lists the cases it is for, such as `[get, \"insert *\"]`"));
    }
    // A secret written out in the plan is known only once all of it is read.
    series::name(&mut loads, &Secrets::default());
    let lacks_ids = events::lacks_ids(fields, &loads, left_out);
    let conditions = conditions::read(r, fields, &system, &loads, lacks_ids);
    let events = events::read(r, fields);
    let levers = levers::read(r, fields);
    let profile = profile::read(r, fields);
    let durability = events::read_durability(r, fields, &system.probes, &loads, left_out);
    CaseParts { system, setup, loads, conditions, events, levers, profile, durability }
}
