//! What each component used, by case: during the load, and what it kept until the work was done.

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::cases::metric::{ReadComponent, Unit};
use loadlab_analysis::findings::Findings;
use loadlab_record::documents::labels::Labels;
use loadlab_record::documents::summary::Summary;

use super::tables::drop_unknown_columns;
use super::{PlanOrder, ranged};
use crate::document::{Cell, Table, Weight};
use crate::figures;

/// Columns after the component and the case.
const COLUMNS: [(&str, Unit, ReadComponent); 10] = [
    ("CPU mean", Unit::CpuPercent, |c| c.cpu_percent.mean),
    ("CPU max", Unit::CpuPercent, |c| c.cpu_percent.max),
    ("CPU time", Unit::S, |c| c.cpu_s),
    ("throttled", Unit::S, |c| c.throttled_s),
    ("memory mean", Unit::Bytes, |c| c.memory_bytes.mean),
    ("memory max", Unit::Bytes, |c| c.memory_bytes.max),
    ("of its limit", Unit::Share, |c| {
        Some(c.memory_bytes.max? / c.memory_bytes.limit.filter(|l| *l > 0)? as f64)
    }),
    ("memory at the end", Unit::Bytes, |c| c.memory_bytes.last),
    ("network in", Unit::Bytes, |c| c.net_bytes.received.map(|v| v as f64)),
    ("disk written", Unit::Bytes, |c| c.block_bytes.written.map(|v| v as f64)),
];
/// Columns of the short form.
const SHORT: [&str; 5] = ["CPU mean", "CPU max", "memory mean", "memory max", "memory at the end"];

/// A table of all components by case; `None` without components. With `most`, only that many components, those that
/// matter most, in few columns.
pub(super) fn table(
    findings: &Findings<'_>,
    axes: &[String],
    order: &PlanOrder<'_>,
    most: Option<usize>,
) -> Option<Table> {
    let mut names: Vec<&str> = Vec::new();
    for name in findings.cases.iter().flat_map(|c| c.summaries()).flat_map(|s| s.components.keys()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    order.sort(&mut names, |name| name);
    let all = names.len();
    if let Some(most) = most {
        names = those_that_matter(findings, names, most);
    }
    let labels = Labels::of(findings.cases.iter().map(|c| &c.case.facts), axes);
    let several = findings.cases.len() > 1;
    let columns: Vec<&(&str, Unit, ReadComponent)> =
        COLUMNS.iter().filter(|(name, ..)| most.is_none() || SHORT.contains(name)).collect();
    let mut rows = Vec::new();
    for name in &names {
        for (i, case) in findings.cases.iter().enumerate() {
            // A name appears once, above its cases.
            let mut row = vec![Cell::new(if i == 0 { *name } else { "" })];
            if several {
                row.push(Cell::new(labels.text(&case.case.facts)));
            }
            row.extend(columns.iter().map(|(head, unit, read)| cell(case, name, head, *unit, *read)));
            rows.push(row);
        }
    }
    let mut head = vec!["component".to_owned()];
    head.extend(several.then(|| labels.heads.join(", ")));
    head.extend(columns.iter().map(|c| c.0.to_owned()));
    let left_out = all - names.len();
    let mut table = Table {
        caption: String::new(),
        head,
        text_columns: if several { vec![1] } else { Vec::new() },
        rows,
        note: match most {
            None => Some(
                "During the load; CPU is of one core. Memory at the end is that of the last reading, after the drain."
                    .to_owned(),
            ),
            Some(_) => (left_out > 0).then(|| {
                format!("{} that used less: `loadlab show --full`.", figures::plural(left_out as u64, "component", "components"))
            }),
        },
    };
    drop_unknown_columns(&mut table);
    Some(table)
}

fn cell(case: &CaseFindings<'_>, name: &str, head: &str, unit: Unit, read: ReadComponent) -> Cell {
    let spread = case.component_spread(name, read);
    // Most components are never throttled and write nothing.
    if ["throttled", "disk written"].contains(&head) && spread.max.known() == Some(0.0) {
        return Cell::new(figures::NOTHING);
    }
    let cell = ranged(&spread, unit);
    let is_full = head == "of its limit" && spread.median.known().is_some_and(|v| v > 0.95);
    let is_stopped = head == "throttled" && spread.median.known().is_some_and(|v| v > 0.0);
    if is_full || is_stopped { cell.with_weight(Weight::Doubtful) } else { cell }
}

/// The bottlenecks of the cases first, then those that used most CPU, in their original order.
fn those_that_matter<'a>(findings: &Findings<'_>, names: Vec<&'a str>, most: usize) -> Vec<&'a str> {
    let blamed = |name: &str| {
        let culprits =
            findings.cases.iter().filter_map(|c| c.diagnosis.bottleneck.as_ref()?.component.as_deref());
        culprits.into_iter().any(|c| c.split([',', ' ', '→']).any(|n| n == name))
    };
    let cpu_s = |name: &str| {
        let of = |s: &Summary| s.components.get(name).and_then(|c| c.cpu_s);
        findings.cases.iter().flat_map(|c| c.summaries()).filter_map(of).fold(0.0, f64::max)
    };
    let mut ranked = names.clone();
    ranked.sort_by(|a, b| blamed(b).cmp(&blamed(a)).then(cpu_s(b).total_cmp(&cpu_s(a))));
    ranked.truncate(most);
    names.into_iter().filter(|name| ranked.contains(name)).collect()
}
