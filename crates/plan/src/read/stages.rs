//! Reads how a load changes over time: its stages, and the think times of its users.

use loadlab_record::spec::schedule::{Stage, Think};
use loadlab_record::text::units::{YEAR_NS, parse_rate_per_s};

use crate::keys::{self, MAX_USERS};
use crate::read::reader::{Fields, Reader, Scalar};
use crate::read::values::whole_number;
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Maximum number of stages of a load.
const MAX_STAGES: usize = 1000;

/// What the levels of stages count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelUnit {
    Users,
    Rate,
}

/// Stages of a load, and their unit.
pub(crate) struct Stages {
    pub list: Vec<Stage>,
    /// Whether the levels are rates; otherwise they are numbers of users.
    pub is_rate: bool,
    /// The highest level that is held.
    pub most: f64,
    /// Total length of all stages, nanoseconds.
    pub length_ns: u64,
}

/// A level as written: 0 fits either unit.
struct Level {
    value: f64,
    unit: Option<LevelUnit>,
    span: Span,
}

/// The levels' unit, and the first level that determines it.
#[derive(Default)]
struct Units {
    first: Option<(LevelUnit, Span)>,
    mixed: bool,
}

/// Reads `stages`; `None` if none of them can be used (already reported).
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Stages> {
    let node = fields.get("stages")?;
    let at = fields.key_span("stages");
    let items = r.list(node, "a list of stages such as `[{ to: 100, over: 10s }, { hold: 30s }]`");
    if items.len() > MAX_STAGES {
        r.push(Problem::new(at, format!("more than {MAX_STAGES} stages")));
        return None;
    }
    let mut units = Units::default();
    let mut list: Vec<Stage> = Vec::new();
    for item in items {
        let before = list.last().map_or(0.0, |s| s.to);
        list.push(read_stage(r, item, before, &mut units)?);
    }
    if units.mixed {
        return None;
    }
    let length_ns = list.iter().fold(0u64, |sum, s| sum.saturating_add(s.over_ns));
    let most = list.iter().filter(|s| s.over_ns > 0).map(|s| s.from.max(s.to)).fold(0.0, f64::max);
    let wrong = match () {
        () if items.is_empty() && !matches!(node.value, Value::List(_)) => return None,
        () if items.is_empty() => Some(("`stages` is empty", "add one such as `{ to: 100, over: 10s }`")),
        () if length_ns == 0 => Some(("these stages take no time", "add one that holds: `{ hold: 30s }`")),
        () if length_ns > YEAR_NS => Some(("these stages take longer than a year", "use shorter ones")),
        () if most == 0.0 => Some((
            "these stages send nothing: all levels are 0",
            "add a level such as `{ to: 100, over: 10s }`",
        )),
        () => None,
    };
    if let Some((message, hint)) = wrong {
        r.push(Problem::new(at, message).hint(hint));
        return None;
    }
    let is_rate = units.first.is_some_and(|(unit, _)| unit == LevelUnit::Rate);
    Some(Stages { list, is_rate, most, length_ns })
}

fn read_stage(r: &mut Reader<'_>, node: &Node, before: f64, units: &mut Units) -> Option<Stage> {
    let fields = r.fields(node, &keys::STAGE, node.span.point())?;
    let mut level = |r: &mut Reader<'_>, key: &str| -> Option<Option<f64>> {
        let Some(node) = fields.get(key) else { return Some(None) };
        let level = read_level(r, node)?;
        units.take(r, &level);
        Some(Some(level.value))
    };
    let from = level(r, "from")?.unwrap_or(before);
    let Some(to) = level(r, "to")? else {
        let over_ns = r.positive_duration(&fields, "hold")?;
        return Some(Stage { from, to: from, over_ns });
    };
    if fields.get("over").is_none() {
        if fields.get("hold").is_some() {
            return None;
        }
        let problem = Problem::new(fields.key_span("to"), "a stage with `to` needs `over`");
        r.push(problem.hint("how long it takes to get there; `over: 0s` is a jump"));
        return None;
    }
    Some(Stage { from, to, over_ns: r.duration(&fields, "over")? })
}

fn read_level(r: &mut Reader<'_>, node: &Node) -> Option<Level> {
    const WHAT: &str = "a number of users such as `100`, or a rate such as `1000/s`";
    let scalar = r.scalar(node, WHAT)?;
    let (value, unit) = match scalar.text.split_once('/') {
        // `0/s` is a rate here, though nothing can be sent at it.
        Some((zero, _))
            if zero.trim().chars().all(|c| matches!(c, '0' | '.')) && zero.trim().parse() == Ok(0.0) =>
        {
            parse_rate_per_s(&scalar.text.replacen(zero, "1", 1)).ok().map(|_| (0.0, Some(LevelUnit::Rate)))
        }
        Some(_) => parse_rate_per_s(&scalar.text).ok().map(|rate| (rate, Some(LevelUnit::Rate))),
        None => users(r, &scalar)?,
    }
    .or_else(|| {
        r.wrong(&scalar, format!("`{}` is not {WHAT}", shorten(&scalar.text)), None);
        None
    })?;
    Some(Level { value, unit, span: scalar.origin.unwrap_or(scalar.span) })
}

/// A number of users; the outer option is `None` if it is out of bounds (already reported).
fn users(r: &mut Reader<'_>, scalar: &Scalar) -> Option<Option<(f64, Option<LevelUnit>)>> {
    let Some(n) = whole_number(&scalar.text) else { return Some(None) };
    if n > MAX_USERS {
        r.wrong(scalar, format!("{n} users; there can be 0 to {MAX_USERS}"), None);
        return None;
    }
    Some(Some((n as f64, (n > 0).then_some(LevelUnit::Users))))
}

impl Units {
    fn take(&mut self, r: &mut Reader<'_>, level: &Level) {
        let Some(unit) = level.unit else { return };
        match self.first {
            None => self.first = Some((unit, level.span)),
            Some((first, at)) if first != unit && !self.mixed => {
                self.mixed = true;
                let unit_text = |unit| if unit == LevelUnit::Rate { "a rate" } else { "a number of users" };
                let message =
                    format!("this is {}, an earlier level is {}", unit_text(unit), unit_text(first));
                let problem = Problem::new(level.span, message).related("the earlier one", at);
                r.push(problem.hint("all levels of a load are users (`100`), or all are rates (`100/s`)"));
            }
            Some(_) => {}
        }
    }
}

/// Reads `think`.
pub(crate) fn read_think(r: &mut Reader<'_>, fields: &Fields<'_>) -> Think {
    let Some(node) = fields.get("think") else { return Think::None };
    if let Value::Scalar(..) = node.value {
        return constant(r.duration(fields, "think").unwrap_or(0));
    }
    let Some(fields) = r.fields(node, &keys::THINK, fields.key_span("think")) else { return Think::None };
    if let Some(mean_ns) = r.positive_duration(&fields, "exponential") {
        return Think::Exponential(mean_ns);
    }
    let Some(node) = fields.get("uniform") else { return Think::None };
    let items = r.list(node, "the shortest and the longest time: `uniform: [1s, 3s]`");
    let [low, high] = items else {
        if let Value::List(_) = node.value {
            let problem = Problem::new(fields.key_span("uniform"), "`uniform` takes two times");
            r.push(problem.hint("the shortest and the longest: `uniform: [1s, 3s]`"));
        }
        return Think::None;
    };
    let (Some(low_ns), Some(high_ns)) = (r.duration_of(low, "uniform"), r.duration_of(high, "uniform"))
    else {
        return Think::None;
    };
    if low_ns > high_ns {
        let problem = Problem::new(high.span, "the longest time is shorter than the shortest");
        r.push(problem.related("the shortest", low.span).hint("the shortest comes first"));
    }
    if low_ns == high_ns { constant(low_ns) } else { Think::Uniform(low_ns, high_ns) }
}

fn constant(ns: u64) -> Think {
    if ns == 0 { Think::None } else { Think::Constant(ns) }
}
