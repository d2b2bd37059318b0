//! Converts the plan's limits to the system's, and computes those derived from an earlier case's measurements.

use std::collections::BTreeMap;

use loadlab_plan::{self as plan, Case, LimitName, MeasuredLimit};
use loadlab_record::documents::summary::Summary;
use loadlab_record::expr::{Known, NumberSource, SummaryNumbers};
use loadlab_record::text::units::{format_bytes, format_count};
use loadlab_system::{BlockLimits, Component, Limits, LinkLimits};

use crate::result::TrialEnd;

/// The limits of a component once all of them are known.
pub fn of_plan(limits: &plan::Limits) -> Limits {
    Limits {
        cpu_cores: limits.cpu_cores,
        memory_bytes: limits.memory_bytes,
        memory_swap_bytes: limits.memory_swap_bytes,
        pids: limits.pids,
        open_files: limits.open_files,
        block: BlockLimits {
            read_bytes_per_s: limits.block_read_bytes_per_s,
            write_bytes_per_s: limits.block_write_bytes_per_s,
            read_ops_per_s: limits.block_read_ops_per_s,
            write_ops_per_s: limits.block_write_ops_per_s,
        },
        link: LinkLimits {
            bytes_per_s: limits.bandwidth_bytes_per_s,
            delay_ns: limits.delay_ns,
            jitter_ns: limits.jitter_ns,
            loss: limits.packet_loss,
        },
    }
}

/// The limits of a component once an event has changed one of them.
pub fn after_event(component: &Component, name: LimitName, value: Option<f64>) -> Limits {
    let changed = with(component.limits(), name, value);
    if name == LimitName::Memory { component.without_own_swap(changed) } else { changed }
}

/// `limits` with one limit changed.
fn with(mut limits: Limits, name: LimitName, value: Option<f64>) -> Limits {
    let whole = value.map(|v| v.round() as u64);
    match name {
        LimitName::Cpu => limits.cpu_cores = value,
        LimitName::Memory => {
            limits.memory_bytes = whole;
            // Memory plus swap must not be less than memory alone.
            limits.memory_swap_bytes =
                limits.memory_swap_bytes.zip(whole).map(|(both, memory)| both.max(memory));
        }
        LimitName::MemorySwap => limits.memory_swap_bytes = whole,
        LimitName::Pids => limits.pids = whole,
        LimitName::OpenFiles => limits.open_files = whole,
        LimitName::BlockRead => limits.block.read_bytes_per_s = whole,
        LimitName::BlockWrite => limits.block.write_bytes_per_s = whole,
        LimitName::BlockReadOps => limits.block.read_ops_per_s = whole,
        LimitName::BlockWriteOps => limits.block.write_ops_per_s = whole,
        LimitName::Bandwidth => limits.link.bytes_per_s = whole,
        LimitName::Delay => limits.link.delay_ns = whole,
        LimitName::Jitter => limits.link.jitter_ns = whole,
        LimitName::PacketLoss => limits.link.loss = value,
    }
    limits
}

/// CPU limits of a case's components, in cores.
pub fn cpu_limits(case: &Case) -> BTreeMap<String, f64> {
    let components = case.system.components.iter();
    components.filter_map(|c| Some((c.name.clone(), c.limits.cpu_cores?))).collect()
}

/// A case whose limits are all known.
pub struct ResolvedCase {
    /// The case with values for the limits that were to be measured.
    pub case: Case,
    /// How each limit was derived, one line each.
    pub notes: Vec<String>,
}

/// Fills in limits measured by earlier cases; `None` if no limit depends on measurements.
///
/// # Errors
/// A needed figure was not measured; the reason in words.
pub fn resolve_limits(
    case: &Case,
    cases: &[Case],
    done: &[TrialEnd],
) -> Result<Option<ResolvedCase>, String> {
    if case.system.components.iter().all(|c| c.limits.measured.is_empty()) {
        return Ok(None);
    }
    let mut resolved = ResolvedCase { case: case.clone(), notes: Vec::new() };
    for component in &mut resolved.case.system.components {
        for measured in std::mem::take(&mut component.limits.measured) {
            let (value, figures) = value_of(&measured, cases, done)
                .map_err(|why| format!("limit `{}` of `{}`: {why}", measured.limit.key(), component.name))?;
            component.limits.set(measured.limit, Some(value));
            let line = format!(
                "{}: {} is limited to {}, by {} ({figures})",
                component.name,
                measured.limit.key(),
                limit_text(measured.limit, value),
                measured.text
            );
            resolved.notes.push(line);
        }
    }
    Ok(Some(resolved))
}

/// The value of a limit in its own unit, the mean over replicas and trials, and a description of where it came from.
fn value_of(measured: &MeasuredLimit, cases: &[Case], done: &[TrialEnd]) -> Result<(f64, String), String> {
    let MeasuredLimit { limit, case, component, figure, factor, .. } = measured;
    let components =
        cases.iter().find(|c| c.name == *case).map_or(&[][..], |c| c.system.components.as_slice());
    let names: Vec<&str> = components
        .iter()
        .filter(|c| c.name == *component || c.group == *component)
        .map(|c| c.name.as_str())
        .collect();
    let summaries: Vec<&Summary> = done
        .iter()
        .filter(|t| t.case == *case && t.failure.is_none())
        .filter_map(|t| t.summary.as_ref())
        .collect();
    if summaries.is_empty() {
        return Err(format!("no trial of case `{case}` succeeded, so nothing was measured"));
    }
    let mut values = Vec::new();
    for summary in &summaries {
        for name in &names {
            match SummaryNumbers::new(summary, &[]).number(&format!("{name}.{figure}"), None) {
                Known::Is(value, _) => values.push(value),
                Known::AtLeast(..) => {
                    return Err(format!("only a lower bound of `{name}.{figure}` is known"));
                }
                Known::Between(_) => {
                    return Err(format!("there are too few samples of `{name}.{figure}`"));
                }
                Known::Unknown(why) => return Err(format!("`{name}.{figure}` of case `{case}`: {why}")),
            }
        }
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    // CPU figures are in per cent of a core, limits in cores.
    let unit = if *limit == LimitName::Cpu { 0.01 } else { 1.0 };
    let value = mean * unit * factor;
    let value = if *limit == LimitName::Cpu { value } else { value.round() };
    if !(value.is_finite() && value > 0.0) {
        return Err(format!("it would be {value}, and nothing can run with that"));
    }
    let figures = format!(
        "mean {} over {} trials and {} components",
        limit_text(*limit, mean * unit),
        summaries.len(),
        names.len()
    );
    Ok((value, figures))
}

fn limit_text(limit: LimitName, value: f64) -> String {
    match limit {
        LimitName::Cpu => format!("{} % of a core", format_count(value * 100.0)),
        LimitName::Memory | LimitName::MemorySwap => format_bytes(value),
        _ => format_count(value),
    }
}
