//! Steps and tags side by side: what each came to in each case.

use loadlab_analysis::case::{CaseFindings, Spread};
use loadlab_analysis::findings::Findings;
use loadlab_analysis::labels::Labels;
use loadlab_analysis::metric::{self, Better, Unit, Value};
use loadlab_record::summary::{Summary, TagSummary};

use super::ranged;
use crate::document::{Cell, Table, Weight};

/// Times of a step.
const TIMES: [&str; 5] = ["mean", "p50", "p95", "p99", "max"];

/// A row for each step, or tag, of each case; `None` where requests are not told apart.
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
            row.extend(figures(case, tag));
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
        words: if several { vec![1] } else { Vec::new() },
        rows,
        note: None,
    })
}

fn figures(case: &CaseFindings<'_>, tag: &str) -> Vec<Cell> {
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
        if is_failing { failed.weighing(Weight::Doubtful) } else { failed },
    ];
    cells.extend(
        TIMES.map(|name| ranged(&spread(&|t: &TagSummary| metric::figure(&t.response_ms, name)), Unit::Ms)),
    );
    cells
}
