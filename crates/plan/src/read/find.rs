//! Reads `find`: the search for the highest load that meets conditions.

use loadlab_record::documents::figure::{Better, NumberKind};
use loadlab_record::documents::search::{MAX_LEVELS, SearchVariable};
use loadlab_record::expr::{BEYOND_S, Expr, Figure, TrialPart};
use loadlab_record::spec::schedule::{Think, Until};
use loadlab_record::text::units::format_duration_ns;

use crate::keys;
use crate::model::spec::{Expression, FigureSpec, FindSpec, LoadSpec, Model};
use crate::read::figures;
use crate::read::reader::{Fields, Reader};
use crate::text::error::Problem;
use crate::text::node::Node;
use crate::text::shorten::shorten;
use crate::text::suggest::listed;

/// The name of the figure, and of the number in conditions.
const CAPACITY: &str = "capacity";
/// How long a level is measured if neither the search nor its load sets it.
const DEFAULT_LEVEL_NS: u64 = 10_000_000_000;
/// A level settles no longer than this unless the plan sets it.
const MOST_SETTLE_NS: u64 = 5_000_000_000;

/// Reads `find`, of a case whose loads and figures are known. `condition` reads a condition.
pub(crate) fn read(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    loads: &[LoadSpec],
    figures: &[FigureSpec],
    condition: &dyn Fn(&mut Reader<'_>, &Node) -> Option<Expression>,
) -> Option<FindSpec> {
    let at = fields.key_span("find");
    let own = r.fields(fields.get("find")?, &keys::FIND, at)?;
    let of_users = range(r, &own, SearchVariable::Users);
    let of_rate = range(r, &own, SearchVariable::Rate);
    let expect: Vec<(&Node, Expression)> = own.get("expect").map_or(Vec::new(), |node| {
        let items = r.list(node, "a list of conditions such as `[ \"p99 < 100ms\" ]`");
        items.iter().filter_map(|n| Some((n, condition(r, n)?))).collect()
    });
    if expect.is_empty() && own.has("expect") && r.problems.count() == 0 {
        let problem = Problem::new(own.key_span("expect"), "`expect` is empty: every level would meet it");
        r.push(problem.hint("say what a level must meet: `[ \"p99 < 100ms\", \"errors < 1%\" ]`"));
    }
    let level_ns = r.positive_duration(&own, "level_duration");
    let settle_ns = r.duration(&own, "settle");
    let max_levels = r.count(&own, "max_levels").map_or(MAX_LEVELS, |levels| levels as u32);
    let load = the_load(r, &own, loads, fields)?;
    let (vary, range) = of_users.or(of_rate)?;
    let varied = loads.get(load)?;
    // `loadlab find` has options for all of it, and ignores the plan's own search.
    let is_ignored = r.is_search;
    if !is_ignored
        && let Some((message, hint)) = unsearchable(varied, vary).or_else(|| unsteady_beside(loads, load))
    {
        r.push(Problem::new(at, message).hint(hint));
        return None;
    }
    let (level_ns, settle_ns) = level_times(varied, level_ns, settle_ns);
    let end_ns = settle_ns.saturating_add(level_ns);
    let late = |(node, e): &(&Node, Expression)| Some((node.span, beyond_level(&e.text, figures, end_ns)?));
    for (at, message) in expect.iter().filter(|_| !is_ignored).filter_map(late) {
        r.push(Problem::new(at, message).hint("make levels longer: `level_duration`"));
    }
    let expect = expect.into_iter().map(|(_, e)| e).collect();
    Some(FindSpec { vary, range, load, expect, level_ns, settle_ns, max_levels })
}

/// How long a level of a load is measured, and how long it settles before that, nanoseconds: as given, otherwise as the
/// load suggests.
pub fn level_times(load: &LoadSpec, level_ns: Option<u64>, settle_ns: Option<u64>) -> (u64, u64) {
    let own_ns = match load.until {
        Until::Elapsed(ns) => ns.saturating_sub(load.warmup_ns),
        _ => DEFAULT_LEVEL_NS,
    };
    let level_ns = level_ns.unwrap_or(own_ns).max(1);
    (level_ns, settle_ns.unwrap_or_else(|| load.warmup_ns.max((level_ns / 5).min(MOST_SETTLE_NS))))
}

/// Why no level can meet an expectation: it asks, itself or through one of these figures, for a time after the level.
/// `end_ns` is when a level ends, its settling included.
pub fn beyond_level(expect: &str, figures: &[FigureSpec], end_ns: u64) -> Option<String> {
    let mut known: Vec<Figure> = Vec::new();
    for spec in figures {
        let figure = Figure::after(&known, &spec.name, &spec.value, spec.kind);
        known.extend(figure.ok());
    }
    let end_s = end_ns as f64 / 1e9;
    let is_late = |part: Option<TrialPart>| match part {
        Some(TrialPart::Window(window)) => window.from_s >= end_s || window.to_s > end_s + BEYOND_S,
        _ => false,
    };
    let names = Expr::parse(expect).ok()?.with_figures(&known).names();
    let name = names.iter().find(|name| is_late(name.part) && figures::is_of_load(&name.text))?;
    Some(format!(
        "`{}` is asked for a time after the level, which ends after {}",
        shorten(&name.text),
        format_duration_ns(end_ns as f64)
    ))
}

/// Why a search cannot vary a load, and what to do instead.
pub fn unsearchable(load: &LoadSpec, vary: SearchVariable) -> Option<(String, String)> {
    let name = &load.name;
    if load.command().is_some() {
        let message = format!("`{name}` is made by a command, but a search varies users or a rate");
        return Some((message, "name another load: `load`, or --load".to_owned()));
    }
    if !load.stages.is_empty() || matches!(load.model, Model::Sessions { .. }) {
        let what = if load.stages.is_empty() { "sessions" } else { "stages" };
        let message = format!("`{name}` has {what}, but a search varies one number");
        return Some((
            message,
            "give it `users` or a `rate`, or name another load: `load`, or --load".to_owned(),
        ));
    }
    if vary == SearchVariable::Rate && load.think != Think::None {
        let message = format!("the users of `{name}` have think time, but a rate has no users");
        return Some((message, "search `users`, or take `think` away: --set load.think=0s".to_owned()));
    }
    if let (SearchVariable::Rate, Model::Closed { .. }, Some(what)) = (vary, &load.model, of_users(load)) {
        let message = format!("the users of `{name}` {what}, but a rate sends single requests");
        return Some((message, "search `users`".to_owned()));
    }
    None
}

/// Why the loads beside the one that a search varies are not the same throughout each level, and what to do instead.
pub fn unsteady_beside(loads: &[LoadSpec], varied: usize) -> Option<(String, String)> {
    let mut others = loads.iter().enumerate().filter(|(place, _)| *place != varied);
    let (_, load) = others.find(|(_, load)| !load.stages.is_empty())?;
    let name = &load.name;
    let message =
        format!("`{name}` has stages, but the loads beside the one that a search varies stay the same");
    let hint = "give it constant `users` or a `rate`; a profile of the plan can do so: --profile".to_owned();
    Some((message, hint))
}

/// What only users can do that a load's users do.
fn of_users(load: &LoadSpec) -> Option<&'static str> {
    let script = &load.script;
    let talks = load.steps().any(|step| step.websocket.is_some());
    [
        (!script.user_setup.is_empty(), "have a `user_setup`"),
        (!script.user_teardown.is_empty(), "have a `user_teardown`"),
        (script.cookies, "keep cookies"),
        (script.uses_captures, "use what they capture"),
        (talks, "hold conversations"),
    ]
    .into_iter()
    .find_map(|(does, what)| does.then_some(what))
}

/// The figure that a search yields, if the plan has no name for it.
pub(crate) fn capacity(find: &FindSpec, figures: &[FigureSpec]) -> Option<FigureSpec> {
    if figures.iter().any(is_capacity) {
        return None;
    }
    let (kind, unit) = match find.vary {
        SearchVariable::Users => (NumberKind::Plain, Some("users".to_owned())),
        SearchVariable::Rate => (NumberKind::Rate, None),
    };
    let expect: Vec<&str> = find.expect.iter().map(|e| e.text.as_str()).collect();
    let about = match find.vary {
        SearchVariable::Users => format!("the most users for whom {}", expect.join(" and ")),
        SearchVariable::Rate => format!("the highest rate at which {}", expect.join(" and ")),
    };
    let (name, value) = (CAPACITY.to_owned(), CAPACITY.to_owned());
    Some(FigureSpec { name, value, kind, unit, better: Better::More, about: Some(about) })
}

/// Whether a figure is what a search yields, under whatever name.
pub(crate) fn is_capacity(figure: &FigureSpec) -> bool {
    figure.value.trim() == CAPACITY
}

/// The kind of the number that conditions call `capacity`.
pub(crate) const fn kind(vary: SearchVariable) -> NumberKind {
    match vary {
        SearchVariable::Users => NumberKind::Plain,
        SearchVariable::Rate => NumberKind::Rate,
    }
}

/// What is varied, as far as that can be seen before everything is read.
pub(crate) fn vary(fields: &Fields<'_>) -> Option<SearchVariable> {
    let find = fields.get("find")?;
    match (find.get("users"), find.get("rate")) {
        (Some(_), _) => Some(SearchVariable::Users),
        (None, Some(_)) => Some(SearchVariable::Rate),
        (None, None) => None,
    }
}

fn range(r: &mut Reader<'_>, own: &Fields<'_>, vary: SearchVariable) -> Option<(SearchVariable, (u64, u64))> {
    let key = vary.name();
    let scalar = r.scalar(own.get(key)?, "a range of levels such as `1..500`")?;
    match vary.range(&scalar.text) {
        Ok(range) => Some((vary, range)),
        Err(message) => {
            r.wrong(&scalar, message, None);
            None
        }
    }
}

/// Index of the load that is varied.
fn the_load(r: &mut Reader<'_>, own: &Fields<'_>, loads: &[LoadSpec], plan: &Fields<'_>) -> Option<usize> {
    let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
    let Some(name) = r.text(own, "load") else {
        if loads.len() > 1 {
            let message = format!("the plan has {} loads, but a search varies one", loads.len());
            let hint = format!("choose it: `load: {}`; there are {}", names[0], listed(&names));
            r.push(Problem::new(plan.key_span("find"), message).hint(hint));
            return None;
        }
        return (loads.len() == 1).then_some(0);
    };
    let place = names.iter().position(|own| *own == name);
    if place.is_none() && !loads.is_empty() {
        let message = format!("there is no load `{}`", shorten(&name));
        let span = own.get("load").map_or(own.at, |node| node.span);
        r.push(Problem::new(span, message).hint(format!("its loads are {}", listed(&names))));
    }
    place
}
