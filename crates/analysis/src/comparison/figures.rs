//! Which figures cases are compared by, which of them decide, and on what scale.

use crate::cases::metric::{self, Better, Metric, Unit};

/// On what scale a figure is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By the ratio: times, rates, sizes.
    Ratio,
    /// By the difference: shares that may well be zero.
    Difference,
}

/// The figures of every comparison, in the order they are reported.
const COMPARED: [&str; 9] =
    ["goodput", "p50", "p90", "p99", "cpu_per_request", "memory_peak", "errors", "drain", "loss"];

/// The figures cases are compared by: those named by the plan that have a better direction, then the usual ones.
pub(crate) fn compared(of_plan: &[Metric]) -> Vec<Metric> {
    let mut all: Vec<Metric> = of_plan.iter().filter(|m| m.better() != Better::Neither).cloned().collect();
    // Trials that search measure each case at its own capacity: only capacity and what the plan names can be compared.
    let searches = of_plan.iter().any(|m| m.stands_for("capacity"));
    let usual = COMPARED.iter().filter(|id| !searches && !of_plan.iter().any(|m| m.stands_for(id)));
    all.extend(usual.filter_map(|id| metric::named(id)));
    all
}

/// The figures that decide if the plan names none.
const DECIDING: [&str; 3] = ["goodput", "p50", "p99"];

/// Which of the [`compared`] figures decide: those that the plan names, if it names any.
pub(crate) fn deciding(of_plan: &[Metric], all: &[Metric]) -> Vec<bool> {
    let named = of_plan.iter().filter(|m| m.better() != Better::Neither).count();
    let decides = |(place, metric): (usize, &Metric)| match named {
        0 => DECIDING.contains(&&*metric.id),
        named => place < named,
    };
    all.iter().enumerate().map(decides).collect()
}

/// Shares are compared by their difference: they may well be zero.
pub(crate) fn scale_of(metric: &Metric) -> Scale {
    if metric.unit == Unit::Share { Scale::Difference } else { Scale::Ratio }
}
