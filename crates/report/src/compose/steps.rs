//! Steps and tags side by side: the results of each in each case.

use std::collections::BTreeMap;

use loadlab_analysis::cases::case::{CaseFindings, Spread};
use loadlab_analysis::cases::metric::{self, Better, Unit, Value};
use loadlab_analysis::findings::Findings;
use loadlab_record::counts::outcome::Failures;
use loadlab_record::documents::labels::Labels;
use loadlab_record::documents::summary::{Requests, Summary, TagSummary};

use super::ranged;
use crate::document::{Cell, Remark, Table, Weight};
use crate::figures;

/// Figures of a step's response times.
const TIMES: [&str; 5] = ["mean", "p50", "p95", "p99", "max"];

/// A row for each step, or tag, of each case; `None` if requests are not distinguished.
pub(super) fn table(findings: &Findings<'_>, axes: &[String]) -> Option<Table> {
    let mut tags: Vec<&str> = Vec::new();
    for tag in findings.cases.iter().flat_map(|c| c.summaries()).flat_map(|s| s.by_tag.keys()) {
        if !tags.contains(&tag.as_str()) {
            tags.push(tag);
        }
    }
    if tags.is_empty() {
        return None;
    }
    let labels = Labels::of(findings.cases.iter().map(|c| &c.case.facts), axes);
    let several = findings.cases.len() > 1;
    let mut rows = Vec::new();
    for tag in &tags {
        let of = findings.cases.iter().filter(|c| c.summaries().any(|s| s.by_tag.contains_key(*tag)));
        let of: Vec<&CaseFindings<'_>> = of.collect();
        for case in of {
            let mut row = vec![Cell::new(*tag)];
            if several {
                row.push(Cell::new(labels.text(&case.case.facts)));
            }
            row.extend(figures_of(case, tag));
            rows.push(row);
        }
    }
    let mut head = vec!["step"];
    if several {
        head.push("case");
    }
    head.extend(["requests", "failed"]);
    head.extend(TIMES);
    Some(Table {
        caption: String::new(),
        head: head.into_iter().map(str::to_owned).collect(),
        text_columns: if several { vec![1] } else { Vec::new() },
        rows,
        note: None,
    })
}

/// How many failing steps are named at the end of a run.
const FAILING_NAMED: usize = 3;

/// Steps that failed in some case, the worst first, unless all failed alike: the error rate does not show which one
/// it is.
pub(super) fn failing(findings: &Findings<'_>) -> Vec<Remark> {
    let mut all: BTreeMap<&str, (Requests, Failures)> = BTreeMap::new();
    for summary in findings.cases.iter().flat_map(|c| c.whole()) {
        for (tag, of) in &summary.by_tag {
            let (requests, failures) = all.entry(tag).or_default();
            requests.started += of.requests.started;
            requests.failed += of.requests.failed;
            failures.merge(&of.failures);
        }
    }
    let share = |of: &Requests| of.failed as f64 / (of.started as f64).max(1.0);
    let is_one_apart = all.values().any(|(requests, _)| requests.failed == 0);
    let mut failing: Vec<_> = all.into_iter().filter(|(_, (requests, _))| requests.failed > 0).collect();
    if !is_one_apart || failing.is_empty() {
        return Vec::new();
    }
    failing.sort_by(|(_, (a, _)), (_, (b, _))| share(b).total_cmp(&share(a)));
    let more = failing.len().saturating_sub(FAILING_NAMED);
    let remark = |(tag, (requests, failures)): (&str, (Requests, Failures))| {
        let kinds: Vec<&str> = failures.nonzero().map(|(kind, _)| kind.name()).collect();
        let (failed, of) = (figures::count(requests.failed), figures::count(requests.started));
        Remark {
            weight: Weight::Bad,
            label: "✘ failing".into(),
            text: format!("{tag}: {failed} of {of} failed ({})", kinds.join(", ")),
            hint: None,
        }
    };
    let mut remarks: Vec<Remark> = failing.into_iter().take(FAILING_NAMED).map(remark).collect();
    if let Some(last) = remarks.last_mut().filter(|_| more > 0) {
        last.text.push_str(&format!("; and {more} more"));
    }
    remarks
}

fn figures_of(case: &CaseFindings<'_>, tag: &str) -> Vec<Cell> {
    let spread = |read: &dyn Fn(&TagSummary) -> Value| {
        let of = |s: &Summary| s.by_tag.get(tag).map_or(Value::Nothing, read);
        Spread::of(case.whole().map(of).collect(), Better::Less)
    };
    let count = |read: fn(&TagSummary) -> u64| spread(&|t: &TagSummary| Value::Known(read(t) as f64));
    let failed = count(|t| t.requests.failed);
    let is_failing = failed.max.known().is_some_and(|v| v > 0.0);
    let failed = ranged(&failed, Unit::Count);
    let mut cells = vec![
        ranged(&count(|t| t.requests.started), Unit::Count),
        if is_failing { failed.with_weight(Weight::Doubtful) } else { failed },
    ];
    cells.extend(
        TIMES.map(|name| ranged(&spread(&|t: &TagSummary| metric::figure(&t.response_ms, name)), Unit::Ms)),
    );
    cells
}
