//! Reads `limits`, and limits derived from what an earlier case measured.
//!
//! `${measured.CASE.COMPONENT.FIGURE / 2}` takes the place of a whole limit. The figure is known only once that case
//! has run, so the run puts it in; here it is checked that there will be one.

use loadlab_record::documents::figure::NumberKind;
use loadlab_record::expr;
use loadlab_record::text::cores::{MAX_IN_SET, parse_cores};
use loadlab_record::text::units;

use crate::keys;
use crate::model::journey::Place;
use crate::model::limits::{LimitName, Limits, MeasuredLimit};
use crate::model::plan::{Plan, TrialOrder};
use crate::model::spec::Case;
use crate::read::reader::{Reader, Scalar};
use crate::read::texts::place;
use crate::read::values::{is_measured, parse_count, share};
use crate::text::error::{PlanError, Problem};
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::text::suggest;

/// A longer delay no longer resembles a link, and traffic would be kept in memory for all that time.
const LONGEST_DELAY_NS: u64 = 60_000_000_000;

impl LimitName {
    /// Parses a value as in a plan: cores, bytes, a count, or any of these per second.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn parse(self, text: &str) -> Result<f64, &'static str> {
        let whole = |n: Result<u64, units::UnitError>| n.map(|n| n as f64).map_err(|e| e.expected);
        match self {
            LimitName::Cpu => units::parse_cpu_cores(text).map_err(|e| e.expected),
            LimitName::Memory | LimitName::MemorySwap => whole(units::parse_bytes(text)),
            LimitName::Pids | LimitName::OpenFiles => whole(parse_count(text)),
            LimitName::BlockRead | LimitName::BlockWrite | LimitName::Bandwidth => {
                let size =
                    text.trim().strip_suffix("/s").and_then(|size| units::parse_bytes(size.trim()).ok());
                size.filter(|n| *n > 0).map(|n| n as f64).ok_or("bytes per second such as `10MiB/s`")
            }
            LimitName::BlockReadOps | LimitName::BlockWriteOps => {
                let rate = units::parse_rate_per_s(text).map_err(|e| e.expected)?;
                if rate >= 1.0 && rate.fract() == 0.0 { Ok(rate) } else { Err("a whole number per second") }
            }
            LimitName::Delay | LimitName::Jitter => match units::parse_duration_ns(text) {
                Ok(ns) if ns <= LONGEST_DELAY_NS => Ok(ns as f64),
                Ok(_) => Err("a duration of a minute at most"),
                Err(e) => Err(e.expected),
            },
            LimitName::PacketLoss => {
                share(text).filter(|n| (0.0..1.0).contains(n)).ok_or("a share such as `1%`")
            }
        }
    }

    fn what(self) -> &'static str {
        match self {
            LimitName::Cpu => "a CPU limit such as `1%` or `0.5`, or `none`",
            LimitName::Memory | LimitName::MemorySwap => "a size such as `15MiB`, or `none`",
            LimitName::Pids | LimitName::OpenFiles => "a whole number, or `none`",
            LimitName::BlockRead | LimitName::BlockWrite => "bytes per second such as `10MiB/s`, or `none`",
            LimitName::BlockReadOps | LimitName::BlockWriteOps => {
                "a number per second such as `100/s`, or `none`"
            }
            LimitName::Bandwidth => "bytes per second such as `1MiB/s`, or `none`",
            LimitName::Delay | LimitName::Jitter => "a duration such as `40ms`, or `none`",
            LimitName::PacketLoss => "a share such as `1%`, or `none`",
        }
    }
}

pub(crate) fn read(r: &mut Reader<'_>, node: &Node, at: Span) -> Limits {
    let mut limits = Limits::default();
    let Some(fields) = r.fields(node, &keys::LIMITS, at) else { return limits };
    for name in LimitName::ALL {
        let Some(node) = fields.get(name.key()) else { continue };
        match read_one(r, node, name) {
            Some(Limit::Value(value)) => limits.set(name, Some(value)),
            Some(Limit::Measured(measured)) => limits.measured.push(*measured),
            None => {}
        }
    }
    let span_of = |key: &str| fields.get(key).map_or(at, |n| n.span);
    if limits.memory_bytes == Some(0) {
        let problem = Problem::new(span_of("memory"), "nothing can run without memory");
        r.push(problem.hint("`none` for no limit"));
    }
    if let (Some(memory), Some(both)) = (limits.memory_bytes, limits.memory_swap_bytes)
        && both < memory
    {
        let message = "`memory_swap` is memory and swap together, so it cannot be less than `memory`";
        r.push(Problem::new(span_of("memory_swap"), message).hint("set it to at least `memory`"));
    }
    // Without a delay there is nothing to vary.
    if limits.delay_ns.is_some() && limits.jitter_ns > limits.delay_ns {
        let message = "`jitter` is more than `delay`, but nothing can arrive before it was sent";
        r.push(Problem::new(span_of("jitter"), message).hint("use a `delay` that is at least as long"));
    }
    if let Some(node) = fields.get("cpuset") {
        let before = r.used_case.take();
        limits.cpuset = read_cpus(r, node).unwrap_or_default();
        r.used_case_for_cores = r.used_case;
        r.used_case = before.or(r.used_case);
    }
    limits
}

/// A limit as read.
enum Limit {
    Value(f64),
    Measured(Box<MeasuredLimit>),
}

fn read_one(r: &mut Reader<'_>, node: &Node, name: LimitName) -> Option<Limit> {
    // In the matrix such a value represents itself; here it may also be written directly.
    let direct = match &node.value {
        Value::Scalar(_, text) if is_measured(text) => Some(text.clone()),
        _ => None,
    };
    let scalar = match direct {
        Some(text) => {
            Scalar { text, kind: crate::text::node::ScalarKind::Text, span: node.span, origin: None }
        }
        None => r.scalar(node, name.what())?,
    };
    if scalar.text == "none" {
        return None;
    }
    if is_measured(&scalar.text) {
        let place = place(r, scalar.span);
        return match parse_measured(name, &scalar.text, place) {
            Ok(measured) => Some(Limit::Measured(Box::new(measured))),
            Err((message, hint)) => {
                r.wrong(&scalar, message, Some(hint));
                None
            }
        };
    }
    match name.parse(&scalar.text) {
        Ok(value) => Some(Limit::Value(value)),
        Err(expected) => {
            let message = format!("`{}` is not {expected}", shorten(&scalar.text));
            r.wrong(&scalar, message, Some("`none` for no limit".to_owned()));
            None
        }
    }
}

/// Reads `0-1,3`, or `none`.
fn read_cpus(r: &mut Reader<'_>, node: &Node) -> Option<Vec<usize>> {
    let scalar = r.scalar(node, "cores such as `0-1,3`, or `none`")?;
    if scalar.text == "none" {
        return None;
    }
    let cpus = parse_cores(&scalar.text, MAX_IN_SET);
    if cpus.is_none() {
        let message = format!("`{}` is not cores such as `0-1,3`", shorten(&scalar.text));
        r.wrong(&scalar, message, Some("`none` for all of them".to_owned()));
    }
    let mut cpus = cpus?;
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// The syntax of a measured limit.
const FORM: &str = "`${measured.CASE.COMPONENT.FIGURE / 2}`, such as `${measured.control.edge.memory.mean / \
                    2}`; put the name of a case in brackets if it is not a single word: `${measured[\"1% \
                    CPU\"].edge.cpu}`";

fn parse_measured(limit: LimitName, text: &str, at: Place) -> Result<MeasuredLimit, (String, String)> {
    let wrong = || (format!("`{}` is not a measured figure", shorten(text)), FORM.to_owned());
    let inner = text.trim().strip_prefix("${measured").and_then(|t| t.strip_suffix('}')).ok_or_else(wrong)?;
    let (case, rest) = case_of(inner).ok_or_else(wrong)?;
    let end = rest.find(['*', '/']).unwrap_or(rest.len());
    let (component, figure) = rest[..end].trim().split_once('.').ok_or_else(wrong)?;
    let factor = factor_of(&rest[end..]).ok_or_else(wrong)?;
    let kind = expr::kind_of(&format!("{component}.{figure}"));
    let is_figure = expr::component_names("x").iter().any(|n| n.strip_prefix("x.") == Some(figure));
    match limit.figure() {
        None => Err((
            format!("`{}` cannot be derived from a measured figure", limit.key()),
            "use a plain value".into(),
        )),
        Some(wanted) if !is_figure || kind != Some(wanted) => {
            let fitting = match wanted {
                NumberKind::Bytes => "`memory.mean`, `memory.max` or `memory.last`",
                NumberKind::Percent => "`cpu` or `cpu.max`",
                _ => "`pids` or `open_files`",
            };
            let message = format!("`{}` cannot be used as a limit on {}", shorten(figure), limit.key());
            Err((message, format!("use one of {fitting}")))
        }
        Some(_) => Ok(MeasuredLimit {
            limit,
            case,
            component: component.to_owned(),
            figure: figure.to_owned(),
            factor,
            text: text.trim().to_owned(),
            at,
        }),
    }
}

/// The name in `.control.` or `["1% CPU"].`, and what follows it.
fn case_of(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let (case, rest) = rest.split_once('.')?;
        return (!case.is_empty()).then(|| (case.to_owned(), rest));
    }
    let rest = text.strip_prefix('[')?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (case, rest) = rest[1..].split_once(quote)?;
    Some((case.to_owned(), rest.trim_start().strip_prefix("].")?))
}

/// The value of `/ 2 * 3`; 1 if empty.
fn factor_of(mut text: &str) -> Option<f64> {
    let mut factor = 1.0;
    loop {
        text = text.trim();
        let Some(op) = text.chars().next() else { break };
        let rest = &text[op.len_utf8()..];
        let end = rest.find(['*', '/']).unwrap_or(rest.len());
        let number: f64 = rest[..end].trim().parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0)?;
        match op {
            '*' => factor *= number,
            '/' => factor /= number,
            _ => return None,
        }
        text = &rest[end..];
    }
    Some(factor)
}

/// Checks that every figure that limits depend on will have been measured when it is needed. Call it once all cases are
/// known and chosen.
pub(crate) fn check_measured(plan: &Plan) -> Vec<PlanError> {
    let mut errors = Vec::new();
    let cases = plan.cases();
    for (i, case) in cases.iter().enumerate() {
        for component in &case.system.components {
            for measured in &component.limits.measured {
                let found = check_one(measured, cases, i).or_else(|| {
                    let in_turn = plan.order == TrialOrder::Interleaved && plan.trials > 1;
                    in_turn.then(|| {
                        let message =
                            "cases run in turn, so not all trials of the measured case come first".to_owned();
                        (message, "use `order: sequential`".to_owned())
                    })
                });
                let Some((message, hint)) = found else { continue };
                let Place { file, line, column, snippet } = measured.at.clone();
                let error =
                    PlanError { file, line, column, message, snippet, related: None, hint: Some(hint) };
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
    }
    errors
}

fn check_one(measured: &MeasuredLimit, cases: &[Case], own: usize) -> Option<(String, String)> {
    let names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    let Some(at) = names.iter().position(|n| *n == measured.case) else {
        let message = format!("there is no case `{}` to measure", shorten(&measured.case));
        let hint = suggest::hint(&measured.case, &names).unwrap_or_else(|| FORM.to_owned());
        return Some((message, format!("{hint}; `--case` may have excluded it")));
    };
    if at >= own {
        let message = format!(
            "case `{}` needs a figure of case `{}`, which does not run before it",
            shorten(names[own]),
            shorten(&measured.case)
        );
        return Some((message, "cases run in the order of the matrix".to_owned()));
    }
    let mut components = cases[at].system.components.iter();
    let known = components.any(|c| c.name == measured.component || c.group == measured.component);
    (!known).then(|| {
        let message =
            format!("case `{}` has no component `{}`", shorten(names[at]), shorten(&measured.component));
        let names: Vec<&str> = cases[at].system.components.iter().map(|c| c.name.as_str()).collect();
        (message, suggest::hint(&measured.component, &names).unwrap_or_else(|| FORM.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_limits_are_parsed() {
        for (limit, text, expect) in [
            (
                LimitName::Memory,
                "${measured.control.edge.memory.mean / 2}",
                Ok(("control", "edge", "memory.mean", 0.5)),
            ),
            (LimitName::Cpu, "${measured[\"1% CPU\"].edge1.cpu}", Ok(("1% CPU", "edge1", "cpu", 1.0))),
            (LimitName::Memory, "${measured['a.b'].x.memory.max*3/2}", Ok(("a.b", "x", "memory.max", 1.5))),
            (
                LimitName::Memory,
                "${measured.control.edge.cpu}",
                Err("`cpu` cannot be used as a limit on memory"),
            ),
            (LimitName::Pids, "${measured.a.edge.pid}", Err("`pid` cannot be used as a limit on pids")),
            (
                LimitName::BlockRead,
                "${measured.a.b.block.read}",
                Err("`block_read` cannot be derived from a measured figure"),
            ),
            (LimitName::Memory, "${measured.control}", Err("`${measured.control}` is not a measured figure")),
            (
                LimitName::Memory,
                "${measured.a.b.memory / 0}",
                Err("`${measured.a.b.memory / 0}` is not a measured figure"),
            ),
            (
                LimitName::Memory,
                "${measured.a.b.memory - 1}",
                Err("`memory - 1` cannot be used as a limit on memory"),
            ),
        ] {
            let got = parse_measured(limit, text, Place::default()).map_err(|(message, _)| message);
            let got =
                got.as_ref().map(|m| (m.case.as_str(), m.component.as_str(), m.figure.as_str(), m.factor));
            assert_eq!(got, expect.map_err(str::to_owned).as_ref().map(|e| *e), "{text}");
        }
    }

    #[test]
    fn values_of_every_limit() {
        for (limit, text, expect) in [
            (LimitName::Cpu, "1%", Some(0.01)),
            (LimitName::Memory, "15MiB", Some(15.0 * 1024.0 * 1024.0)),
            (LimitName::BlockRead, "10MiB/s", Some(10.0 * 1024.0 * 1024.0)),
            (LimitName::BlockWrite, "10MiB", None),
            (LimitName::BlockReadOps, "100/s", Some(100.0)),
            (LimitName::BlockReadOps, "30/m", None),
            (LimitName::Pids, "0", None),
            (LimitName::Bandwidth, "1MiB/s", Some(1024.0 * 1024.0)),
            (LimitName::Delay, "40ms", Some(4e7)),
            (LimitName::Jitter, "2m", None),
            (LimitName::PacketLoss, "0.5%", Some(0.005)),
            (LimitName::PacketLoss, "0.5", None),
            (LimitName::PacketLoss, "100%", None),
        ] {
            assert_eq!(limit.parse(text).ok(), expect, "{text}");
        }
    }
}
