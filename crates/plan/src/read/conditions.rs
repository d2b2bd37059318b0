//! Conditions of a case: `expect`, `stop_when`, `drain`, and the figures that they may use. Their language is
//! `record`'s; here each is checked against the names that this plan defines (components, probes, tags, numbers), and
//! mistakes are reported at their place in the plan.

use loadlab_record::expr::{self, Expr, ExprError, Figure, Formula, NameRef};

use crate::keys;
use crate::model::spec::{
    Case, DrainSpec, DurabilitySpec, Expression, FigureSpec, FindSpec, LoadSpec, Persisted, Purpose,
    SystemSpec, planned_end_ns,
};
use crate::read::events;
use crate::read::figures::{self, Known, NameRequirement};
use crate::read::find;
use crate::read::load;
use crate::read::reader::{Fields, Reader, Scope};
use crate::text::node::Node;
use crate::text::shorten::shorten;

/// All conditions of a case.
#[derive(Default)]
pub(crate) struct Conditions {
    pub figures: Vec<FigureSpec>,
    pub stop_when: Vec<Expression>,
    pub drain: Option<DrainSpec>,
    pub expect: Vec<Expression>,
    pub find: Option<FindSpec>,
}

/// Reads the conditions of a case whose system and loads are known; `lacks_ids`, see [`events::lacks_ids`].
pub(crate) fn read(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    system: &SystemSpec,
    loads: &[LoadSpec],
    lacks_ids: bool,
) -> Conditions {
    let mut known = known(r, fields, system, loads, lacks_ids);
    let figures = figures::read(r, fields, known.as_mut());
    let find = find::read(r, fields, loads, &figures, &|r, node| {
        read_checked(r, node, Purpose::Expect, &|e| known.as_ref().map_or(Ok(()), |known| check(e, known)))
    });
    let capacity = find.as_ref().and_then(|find| find::capacity(find, &figures));
    let mut conditions = Conditions {
        // The figure that a search is for comes first.
        figures: capacity.into_iter().chain(figures).collect(),
        stop_when: read_list(r, fields, Purpose::StopWhen, known.as_ref()),
        drain: None,
        expect: read_list(r, fields, Purpose::Expect, known.as_ref()),
        find,
    };
    if let Some(node) = fields.get("drain")
        && let Some(drain) = r.fields(node, &keys::DRAIN, fields.key_span("drain"))
    {
        let at_most_ns = r.positive_duration(&drain, "at_most").unwrap_or(60_000_000_000);
        let until = drain.get("until").and_then(|n| read_one(r, n, Purpose::DrainUntil, known.as_ref()));
        conditions.drain = until.map(|until| DrainSpec { until, at_most_ns });
    }
    conditions
}

/// Names whose value `durability` finds out.
const STORED: [&str; 4] = ["unanswered", "lost", "doubled", "persisted"];

/// Names that have a value only with a section of the plan, which does something.
const NEEDS: [(&[&str], &str, &str); 3] = [
    (&STORED, "durability", "`durability` says where to read what was stored"),
    (&["drain"], "drain", "`drain` says what to wait for after the load"),
    (&["capacity"], "find", "`find` says what to search for"),
];

/// Whether a name has a value only in a plan with the section that finds it out.
pub fn needs_section(name: &str) -> bool {
    NEEDS.iter().any(|(names, ..)| names.contains(&name))
}

/// The names that have no value in this case.
fn missing(r: &Reader<'_>, fields: &Fields<'_>, lacks_ids: bool) -> Vec<NameRequirement> {
    let of = |(names, section, hint): (&'static [&'static str], &'static str, &'static str)| {
        if r.is_search && section == "find" {
            // Whether or not the plan has a search of its own.
            let why = "it is what the search finds".to_owned();
            let hint = "say what a level must meet: `p99 < 100ms`";
            return Some(NameRequirement { names, section, why, hint });
        }
        // `--case` is applied when all cases have been read: what it excludes is asked nothing.
        if let ("durability", true, Scope::Case(case)) = (section, lacks_ids, r.scope)
            && case.is_chosen
        {
            let why = format!("no step of case `{}` carries a `${{unique}}`", case.name);
            let hint = "put `${unique}` into its requests, or let the matrix say what each case expects";
            return Some(NameRequirement { names, section, why, hint });
        }
        let why = format!("the plan has no `{section}`");
        fields.get(section).is_none().then_some(NameRequirement { names, section, why, hint })
    };
    NEEDS.into_iter().filter_map(of).collect()
}

/// The names that conditions may use; `None` if something in the system or the loads is wrong, because a missing name
/// may be due to that.
fn known(
    r: &Reader<'_>,
    fields: &Fields<'_>,
    system: &SystemSpec,
    loads: &[LoadSpec],
    lacks_ids: bool,
) -> Option<Known> {
    let wanted = ["figures", "stop_when", "drain", "expect", "find"].iter().any(|k| fields.get(k).is_some());
    if !wanted || r.problems.count() > 0 || matches!(r.scope, Scope::Unknown) {
        return None;
    }
    let probes = system.probes.iter().map(|p| p.name.clone()).collect();
    let capacity = find::vary(fields).map(find::kind);
    let missing = missing(r, fields, lacks_ids);
    // A search has loads of its own: one batch each, as long as its levels.
    let is_search = capacity.is_some() || r.is_search;
    let batches = loads.iter().map(|load| load.batches).filter(|_| !is_search).max().unwrap_or(1);
    let end_s = planned_end_ns(loads).filter(|_| !is_search).map(|ns| ns as f64 / 1e9);
    Some(Known {
        names: names_of(system, loads),
        probes,
        figures: Vec::new(),
        capacity,
        missing,
        batches,
        is_search,
        end_s,
    })
}

/// Names that a case defines, besides the built-in ones.
pub(crate) fn names_of(system: &SystemSpec, loads: &[LoadSpec]) -> Vec<String> {
    let mut names: Vec<String> = system.probes.iter().flat_map(|p| expr::probe_names(&p.name)).collect();
    // A load's program is watched like a component.
    let programs = loads.iter().filter(|l| l.command().is_some()).map(|l| &l.name);
    names.extend(programs.flat_map(|name| expr::component_names(name)));
    names.extend(system.components.iter().flat_map(|c| expr::component_names(&c.name)));
    names.extend(load::series(loads).iter().flat_map(|t| expr::tag_names(t)));
    let numbers = loads.iter().flat_map(|l| &l.script.captures).filter(|c| c.is_number);
    names.extend(numbers.flat_map(|c| expr::number_names(&c.name)));
    names
}

fn read_list(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    purpose: Purpose,
    known: Option<&Known>,
) -> Vec<Expression> {
    let key = if purpose == Purpose::Expect { "expect" } else { "stop_when" };
    let Some(node) = fields.get(key) else { return Vec::new() };
    let items = r.list(node, "a list of conditions such as `[ \"p99 < 200ms\" ]`");
    items.iter().filter_map(|n| read_one(r, n, purpose, known)).collect()
}

fn read_one(r: &mut Reader<'_>, node: &Node, purpose: Purpose, known: Option<&Known>) -> Option<Expression> {
    // With `loadlab find`, what is expected is of each level, not of the plan's search as a whole.
    let is_search = known.is_some_and(|known| known.capacity.is_some()) && !r.is_search;
    read_checked(r, node, purpose, &|e| {
        known.map_or(Ok(()), |known| check(e, known))?;
        check_when(e, purpose, is_search, known.map_or(&[], |known| known.figures.as_slice()))
    })
}

fn read_checked(
    r: &mut Reader<'_>,
    node: &Node,
    purpose: Purpose,
    check: &dyn Fn(&Expr) -> Result<(), ExprError>,
) -> Option<Expression> {
    let scalar = r.scalar(node, "a condition such as `p99 < 200ms`")?;
    if let Err(error) = Expr::parse(&scalar.text).and_then(|e| check(&e)) {
        figures::wrong(r, node, &scalar, error);
        return None;
    }
    let spot = r.sources.spot(node.span);
    Some(Expression { text: scalar.text, purpose, file: spot.file, line: spot.line, column: spot.column })
}

fn check(expr: &Expr, known: &Known) -> Result<(), ExprError> {
    expr.check_names(&known.all_names())?;
    known.check_parts(&expr.names())?;
    known.check_needs(&asked(expr.names(), &known.figures))?;
    known.check_steady(&expr.steady_names())?;
    expr.check_kinds(&|name| known.kind(name))
}

/// The names that a condition asks for: instead of a figure of the plan those that it is computed from, at its place.
fn asked(names: Vec<NameRef>, figures: &[Figure]) -> Vec<NameRef> {
    let of_one = |name: NameRef| {
        // Figures are of whole trials: with a part, it is another name.
        let figure = figures.iter().find(|figure| name.part.is_none() && figure.name == name.text);
        match figure {
            Some(figure) => {
                let inner = figure.formula.names().into_iter();
                inner.map(|inner| NameRef { at: name.at, len: name.len, ..inner }).collect()
            }
            None => vec![name],
        }
    };
    names.into_iter().flat_map(of_one).collect()
}

/// Whether the value of a name is known only when the trial is over. Requests without an answer are counted all the time.
fn is_known_late(name: &str) -> bool {
    needs_section(name) && name != "unanswered"
}

/// Reports what is not known when the condition is evaluated: it could never hold.
fn check_when(expr: &Expr, purpose: Purpose, is_search: bool, figures: &[Figure]) -> Result<(), ExprError> {
    let error = |name: &NameRef, message: String, hint: &str| {
        Err(ExprError { message, at: name.at, len: name.len, hint: Some(hint.to_owned()) })
    };
    let names = asked(expr.names(), figures);
    let steady = expr.steady_names();
    let with_part = names.iter().find(|name| name.part.is_some());
    match purpose {
        Purpose::Expect if is_search => match with_part.or(steady.first()) {
            Some(name) => {
                let message = format!("of a whole search, `{}` is not known over time", shorten(&name.text));
                error(name, message, "put it into the search's own `expect`, which is for each level")
            }
            None => Ok(()),
        },
        Purpose::Expect => Ok(()),
        Purpose::StopWhen | Purpose::DrainUntil => {
            if let Some(name) = with_part {
                let message =
                    format!("`{}` of a part is known only when the trial is over", shorten(&name.text));
                return error(name, message, "put it into `expect`, or leave the part out");
            }
            match names.iter().find(|name| is_known_late(&name.text)) {
                Some(name) => {
                    let message = format!("`{}` is known only when the trial is over", shorten(&name.text));
                    error(
                        name,
                        message,
                        "put it into `expect`; a probe is read all the time: `stored == accepted`",
                    )
                }
                None => Ok(()),
            }
        }
    }
}

/// Said of what is left out because of `--tags`, behind "excludes".
const ITS_TAG: &str = "its tag";
const ALL_IDS: &str = "every step with `${unique}`";

/// Removes from a case what `--tags` took the ground from, with a remark for each: expectations about tags, and the
/// comparison of stored ids with what is expected of it.
pub(crate) fn drop_left_out(case: &mut Case) -> Vec<String> {
    let series = load::series(&case.loads);
    let mut notes = Vec::new();
    let is_by_ids = |durability: &DurabilitySpec| !matches!(durability.persisted, Persisted::Probe(_));
    let has_no_ids = case.durability.as_ref().is_some_and(is_by_ids) && !events::carry_ids(&case.loads);
    if has_no_ids {
        // Of no ids none would be lost, whatever the system does.
        case.durability = None;
        notes.push(format!("`durability` is ignored: `--tags` excludes {ALL_IDS}"));
    }
    // What is excluded that a name is about.
    let excluded = |name: &str| match name.strip_prefix("tag.") {
        Some(rest) => {
            let is_of = |tag: &String| rest.strip_prefix(tag).is_some_and(|after| after.starts_with('.'));
            (!series.iter().any(is_of)).then_some(ITS_TAG)
        }
        None => (has_no_ids && STORED.contains(&name)).then_some(ALL_IDS),
    };
    // Figures use the figures before them.
    let mut gone: Vec<(String, &'static str)> = Vec::new();
    let excluded_of = |names: Vec<NameRef>, gone: &[(String, &'static str)]| {
        names.iter().find_map(|name| excluded(&name.text).or_else(|| excluded_with(gone, &name.text)))
    };
    case.figures.retain(|figure| {
        let names = Formula::parse(&figure.value).map(|formula| formula.names()).unwrap_or_default();
        let what = excluded_of(names, &gone);
        if let Some(what) = what {
            notes.push(format!("figure `{}` is ignored: `--tags` excludes {what}", figure.name));
            gone.push((figure.name.clone(), what));
        }
        what.is_none()
    });
    let searched = case.find.as_mut().map(|find| &mut find.expect);
    for list in [&mut case.expect, &mut case.stop_when].into_iter().chain(searched) {
        list.retain(|e| {
            let names = Expr::parse(&e.text).map(|e| e.names()).unwrap_or_default();
            let what = excluded_of(names, &gone);
            notes.extend(what.map(|what| format!("`{}` is ignored: `--tags` excludes {what}", e.text)));
            what.is_none()
        });
    }
    notes
}

/// Why a figure is gone, if it is one of these.
fn excluded_with(gone: &[(String, &'static str)], name: &str) -> Option<&'static str> {
    gone.iter().find(|(own, _)| own == name).map(|(_, what)| *what)
}
