//! Record → document: what a report says, in which order, whatever form it takes.
//!
//! The answer comes first, then all cases side by side, then each case, then every doubt, and last how the
//! run was made. Pure: the same record gives the same document.

mod case;
mod charts;
pub mod compared;
mod made;
mod remarks;
mod scalability;
mod search;
mod shapes;
mod sockets;
mod tables;

use loadlab_analysis::case::{CaseFindings, Spread};
use loadlab_analysis::findings::{Findings, findings};
use loadlab_analysis::metric::{self, Metric, Unit, Value};
use loadlab_record::store::RunRecord;
use loadlab_record::summary::Verdict;

use crate::document::{Block, CaseLink, Cell, Compare, Document, Fact, Point, Section};
use crate::figures;

/// The report of a run.
pub fn compose(run: &RunRecord) -> Document {
    let findings = findings(run);
    let statement = &findings.statement;
    let mut sections = vec![side_by_side(&findings)];
    sections.extend(scalability::section(&findings.scalability));
    let order = Order(run.manifest.components.iter().map(|c| c.name.as_str()).collect());
    sections.extend(findings.cases.iter().enumerate().map(|(i, case)| case::section(i, case, &order)));
    sections.extend(remarks::doubts(&findings));
    sections.push(made::section(run));
    sections.retain(|s| !s.blocks.is_empty());
    let document = Document {
        title: run.manifest.name.clone(),
        subtitle: made::subtitle(run),
        answer: vec![
            Fact::new("Tested", &statement.tested),
            Fact::new("Result", &statement.result),
            Fact::new("First bottleneck", &statement.first_bottleneck),
            Fact::new("Confidence", &statement.confidence),
        ],
        verdict: worst(findings.cases.iter().map(|c| c.verdict)),
        cases: findings.cases.iter().enumerate().map(|(i, case)| link(i, case)).collect(),
        sections,
    };
    search::described(document, &run.manifest, &findings)
}

/// Components as the plan names them, which is the way of a request more often than the alphabet is.
struct Order<'a>(Vec<&'a str>);

impl Order<'_> {
    /// Sorts by it; names the plan does not have come last, as they were.
    fn sort<T>(&self, items: &mut [T], name: impl Fn(&T) -> &str) {
        items.sort_by_key(|item| self.0.iter().position(|n| *n == name(item)).unwrap_or(usize::MAX));
    }
}

/// The id of a case's section: by place, since names may be alike when reduced to letters.
fn case_id(index: usize) -> String {
    format!("case-{}", index + 1)
}

pub(crate) fn worst(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let rank = |v: &Verdict| match v {
        Verdict::Invalid => 0,
        Verdict::Fail => 1,
        Verdict::Undecided => 2,
        Verdict::None => 3,
        Verdict::Pass => 4,
    };
    verdicts.min_by_key(rank).unwrap_or(Verdict::None)
}

fn link(index: usize, case: &CaseFindings<'_>) -> CaseLink {
    let figure = |id: &str| metric::named(id).map(|m| value_text(case.spread(&m).median, &m));
    let line = match case.summaries().count() {
        0 => "nothing was measured".to_owned(),
        _ => {
            let parts = [("goodput", ""), ("p50", "p50 "), ("p99", "p99 "), ("errors", "errors ")];
            let described = parts.map(|(id, name)| format!("{name}{}", figure(id).unwrap_or_default()));
            described.join(" · ")
        }
    };
    CaseLink { name: case.case.facts.name.clone(), verdict: case.verdict, section: case_id(index), line }
}

/// All cases.
fn side_by_side(findings: &Findings<'_>) -> Section {
    let mut blocks = Vec::new();
    if findings.cases.iter().any(|c| c.summaries().next().is_some()) {
        if findings.cases.len() > 1 {
            blocks.extend([
                compare(findings, "Goodput: ok responses per second", &["goodput"]),
                compare(findings, "Share of failed requests", &["errors"]),
                compare(findings, "Response times", &["p50", "p95", "p99"]),
            ]);
        }
        blocks.extend(shapes::curves(findings).map(Block::Chart));
        blocks.push(Block::Table(tables::figures(findings)));
        blocks.push(Block::Table(tables::latency_block(findings)));
        blocks.extend(tables::after(findings).map(Block::Table));
        blocks.extend(tables::derived(findings).map(Block::Table));
        blocks.extend(closed_model_note(findings).map(Block::Paragraph));
        blocks.extend(compared::blocks(&findings.comparisons));
        blocks.extend(findings.no_differences.clone().map(Block::Paragraph));
    }
    let title = if findings.cases.len() > 1 { "All cases" } else { "Figures" };
    Section { id: "figures".into(), title: title.into(), case: None, blocks }
}

fn closed_model_note(findings: &Findings<'_>) -> Option<String> {
    let loads = || findings.cases.iter().flat_map(CaseFindings::summaries).map(|s| &s.load);
    let thinking = if loads().any(crate::trial::thinks) { " and its think time is over" } else { "" };
    loads().any(crate::trial::waits_unseen).then(|| {
        format!(
            "Response times of users without pacing hold only for that many users: each sends its next request when \
             its last one has ended{thinking}, which hides the waiting a slow answer would have caused."
        )
    })
}

fn compare(findings: &Findings<'_>, title: &str, ids: &[&str]) -> Block {
    let metrics: Vec<Metric> = ids.iter().filter_map(|id| metric::named(id)).collect();
    let rows: Vec<(String, Vec<Point>)> = findings
        .cases
        .iter()
        .map(|case| (case.case.facts.name.clone(), metrics.iter().map(|m| point(case, m)).collect()))
        .collect();
    let known = || rows.iter().flat_map(|(_, points)| points).filter_map(|p| Some(p.drawn()?.0));
    let (least, most) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    Block::Compare(Compare {
        title: title.to_owned(),
        unit: metrics.first().map_or(Unit::Number, |m| m.unit),
        figures: metrics.iter().map(|m| figures::percentile_label(m.id)).collect(),
        // Bars of a count must start at zero; times that span decades are told apart only by a logarithm.
        logarithmic: metrics.len() > 1 && least > 0.0 && most / least > 30.0,
        rows,
    })
}

fn point(case: &CaseFindings<'_>, metric: &Metric) -> Point {
    let spread = case.spread(metric);
    Point { median: spread.median, min: spread.min, max: spread.max }
}

/// A value in words.
fn value_text(value: Value, metric: &Metric) -> String {
    figures::value(value, metric.unit)
}

/// A figure over trials as a cell: the median, and the range when there is more than one trial.
fn spread_cell(case: &CaseFindings<'_>, metric: &Metric) -> Cell {
    ranged(&case.spread(metric), metric.unit)
}

/// The same for any spread.
pub(crate) fn ranged(spread: &Spread, unit: Unit) -> Cell {
    let detail = (spread.reported() > 1).then(|| figures::range(spread.min, spread.max, unit)).flatten();
    Cell { detail, ..Cell::new(figures::value(spread.median, unit)) }
}
