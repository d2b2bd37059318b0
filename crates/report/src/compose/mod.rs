//! Record → document: the contents and order of a report, in any format.
//!
//! The answer comes first, then the drawing of the system, then all cases by the figures that matter, components,
//! steps, then each case, then every doubt, and last all figures and how the run was made. Pure: the same record
//! gives the same document.

mod agents;
mod case_section;
mod cases;
mod charts;
pub mod compared;
mod component_charts;
mod components;
mod differences;
mod distributions;
mod flat_lines;
mod load_charts;
mod marks;
pub(crate) mod numeric;
mod one_trial;
mod profile;
mod readings;
mod remarks;
mod scalability;
mod search;
mod setup;
mod sockets;
mod steps;
mod system;
mod tables;
mod why;

use loadlab_analysis::DiagnosedRun;
use loadlab_analysis::cases::case::{CaseFindings, Spread};
use loadlab_analysis::cases::metric::{self, Metric, Unit};
use loadlab_analysis::findings::{Findings, findings, severity};
use loadlab_record::documents::summary::Verdict;

use crate::document::{Block, CaseLink, Cell, Compare, Document, Fact, Point, Remark, Section, Table};
use crate::figures;

/// The report of a run.
pub fn compose(run: &DiagnosedRun) -> Document {
    let findings = findings(run);
    let m = &run.manifest;
    let order = PlanOrder(m.components.iter().map(|c| c.name.as_str()).collect());
    let mut sections = vec![the_system(&findings, run), side_by_side(&findings, &m.axes)];
    let components = components::table(&findings, &m.axes, &order, None).map(Block::Table);
    sections.extend(search::of_trials(&findings));
    sections.push(Section::new("components", "Components", components.into_iter().collect()));
    let steps = steps::table(&findings, &m.axes).map(Block::Table);
    sections.push(Section::new("steps", "Steps", steps.into_iter().collect()));
    sections.extend(scalability::section(&findings.scalability));
    sections
        .extend(findings.cases.iter().enumerate().map(|(i, case)| case_section::section(i, case, &order)));
    sections.extend(remarks::doubts(&findings));
    sections.push(all_figures(&findings, m.layout.as_deref()));
    sections.push(setup::section(run));
    sections.retain(|s| !s.blocks.is_empty());
    why::as_why_report(search::as_search_report(document(run, &findings, sections), m, &findings), m)
}

/// What fits on a terminal at the end of a run: the answer, the cases side by side, the components that matter, the
/// expectations, and the evidence against the result.
pub fn brief(run: &DiagnosedRun) -> Document {
    let findings = findings(run);
    let m = &run.manifest;
    // Readers of a search want its path, and those of a proof its levers; the loads are in the other formats.
    if m.is_one_question() {
        let mut document = compose(run);
        document.sections.retain(|s| ["search", "why", "doubts"].contains(&s.id.as_str()));
        document.cases.clear();
        return document;
    }
    let order = PlanOrder(m.components.iter().map(|c| c.name.as_str()).collect());
    let mut blocks = vec![Block::System(system::drawings(&findings, m).into_iter().take(1).collect())];
    blocks.extend(cases_of(&findings, &m.axes));
    blocks.extend(components::table(&findings, &m.axes, &order, Some(COMPONENTS_IN_BRIEF)).map(Block::Table));
    let troubles: Vec<Remark> = findings.cases.iter().flat_map(|c| remarks::troubles_of(c, true)).collect();
    blocks.extend((!troubles.is_empty()).then_some(Block::Remarks(troubles)));
    let failing = steps::failing(&findings);
    blocks.extend((!failing.is_empty()).then_some(Block::Remarks(failing)));
    let expected = remarks::expected(&findings);
    blocks.extend((!expected.is_empty()).then_some(Block::Remarks(expected)));
    let doubts = remarks::grouped_doubts(&findings, false);
    blocks.extend((!doubts.is_empty()).then_some(Block::Remarks(doubts)));
    blocks.retain(|b| !matches!(b, Block::System(drawings) if drawings.is_empty()));
    // The person who ran it knows the machine and the day.
    let subtitle = tested(run, &findings);
    Document { is_brief: true, subtitle, ..document(run, &findings, vec![Section::new("brief", "", blocks)]) }
}

/// Components that a terminal shows at the end of a run.
const COMPONENTS_IN_BRIEF: usize = 3;

fn document(run: &DiagnosedRun, findings: &Findings<'_>, sections: Vec<Section>) -> Document {
    let statement = &findings.statement;
    let mut answer = vec![Fact::new("Result", &statement.result)];
    answer.extend(differences::fact(findings));
    answer.push(Fact::new("First bottleneck", &statement.first_bottleneck));
    answer.push(Fact::new("Confidence", &statement.confidence));
    Document {
        title: run.manifest.name.clone(),
        subtitle: format!("{} {}", tested(run, findings), setup::subtitle(run)),
        answer,
        verdict: worst(findings.cases.iter().map(|c| c.verdict)),
        cases: findings.cases.iter().enumerate().map(|(i, case)| link(i, case, &findings.figures)).collect(),
        sections,
        is_brief: false,
    }
}

/// What was tested, with what all cases have in common.
fn tested(run: &DiagnosedRun, findings: &Findings<'_>) -> String {
    let tested = &findings.statement.tested;
    match cases::constant_axes(findings, &run.manifest.axes) {
        Some(constant) => format!("{tested} All with {constant}."),
        None => tested.clone(),
    }
}

fn the_system(findings: &Findings<'_>, run: &DiagnosedRun) -> Section {
    let drawings = system::drawings(findings, &run.manifest);
    let blocks = if drawings.is_empty() { Vec::new() } else { vec![Block::System(drawings)] };
    Section::new("system", "System", blocks)
}

/// The cases by the figures that matter.
fn cases_of(findings: &Findings<'_>, axes: &[String]) -> Vec<Block> {
    let mut blocks = Vec::new();
    match cases::grids(findings, axes) {
        // Their shape first, then the figures.
        Some(grids) => {
            blocks.extend(numeric::trends(findings, axes, "the grids below").map(Block::Trends));
            blocks.push(Block::Grids(grids));
        }
        None => {
            blocks.extend(cases::table(findings, axes).map(Block::Cases));
            blocks.extend(numeric::trends(findings, axes, "the table above").map(Block::Trends));
        }
    }
    blocks.extend(tables::derived(findings).map(Block::Table));
    blocks
}

/// Components in the plan's order, which follows a request's path more often than the alphabet does.
struct PlanOrder<'a>(Vec<&'a str>);

impl PlanOrder<'_> {
    /// Sorts by it; names not in the plan come last, in their original order.
    fn sort<T>(&self, items: &mut [T], name: impl Fn(&T) -> &str) {
        items.sort_by_key(|item| self.0.iter().position(|n| *n == name(item)).unwrap_or(usize::MAX));
    }
}

/// The id of a case's section: by index, since names may coincide when reduced to letters.
fn case_id(index: usize) -> String {
    format!("case-{}", index + 1)
}

pub(crate) fn worst(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    verdicts.min_by_key(severity).unwrap_or(Verdict::None)
}

fn link(index: usize, case: &CaseFindings<'_>, metrics: &[Metric]) -> CaseLink {
    let figure = |m: &Metric| format!("{} {}", m.title(), figures::in_cell(case.spread(m).median, m).0);
    let line = match case.summaries().next() {
        None => "nothing was measured".to_owned(),
        Some(_) => metrics.iter().take(IN_LINE).map(figure).collect::<Vec<_>>().join(" · "),
    };
    CaseLink { name: case.case.facts.name.clone(), verdict: case.verdict, section: case_id(index), line }
}

/// Figures in the line of a case.
const IN_LINE: usize = 4;

/// The section with all cases side by side.
fn side_by_side(findings: &Findings<'_>, axes: &[String]) -> Section {
    let mut blocks = Vec::new();
    if findings.cases.iter().any(|c| c.summaries().next().is_some()) {
        blocks = cases_of(findings, axes);
        let expected = remarks::expected(findings);
        blocks.extend((!expected.is_empty()).then_some(Block::Remarks(expected)));
        blocks.extend(closed_model_note(findings).map(Block::Paragraph));
        blocks.extend(tables::after(findings).map(Block::Table));
        blocks.extend(compared::blocks(&findings.comparisons));
        blocks.extend(findings.no_differences.clone().map(Block::Paragraph));
        if findings.cases.len() > 1 {
            blocks.push(compare(findings, "Response times", &["p50", "p95", "p99"]));
        }
        blocks.extend(distributions::curves(findings).map(Block::Chart));
    }
    let title = if findings.cases.len() > 1 { "Cases" } else { "Figures" };
    Section::new("figures", title, blocks)
}

/// All figures, and the layout of another tool if the plan asks for it.
fn all_figures(findings: &Findings<'_>, layout: Option<&str>) -> Section {
    let is_measured = findings.cases.iter().any(|c| c.summaries().next().is_some());
    let mut tables = Vec::new();
    if is_measured {
        tables.extend(layout.and_then(Layout::named).map(|layout| layout.table(findings)));
        tables.push(tables::figures(findings));
    }
    let blocks: Vec<Block> = tables.into_iter().map(Block::Table).collect();
    // A requested layout is not folded away.
    Section { is_folded: layout.is_none(), ..Section::new("all-figures", "All figures", blocks) }
}

/// The layout of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// siege's rows.
    Siege,
    /// wrk's columns.
    Wrk,
}

impl Layout {
    /// The layout with this name in plans.
    pub fn named(name: &str) -> Option<Layout> {
        match name {
            "siege" => Some(Layout::Siege),
            "wrk" => Some(Layout::Wrk),
            _ => None,
        }
    }

    fn table(self, findings: &Findings<'_>) -> Table {
        match self {
            Layout::Siege => tables::siege(findings),
            Layout::Wrk => tables::latency_block(findings),
        }
    }
}

/// A run's cases in the layout of another tool.
pub fn layout(run: &DiagnosedRun, layout: Layout) -> Table {
    layout.table(&findings(run))
}

fn closed_model_note(findings: &Findings<'_>) -> Option<String> {
    let loads = || findings.cases.iter().flat_map(CaseFindings::summaries).map(|s| &s.load);
    let thinking = if loads().any(crate::wording::thinks) { " and its think time is over" } else { "" };
    loads().any(crate::wording::has_coordinated_omission).then(|| {
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
        figures: metrics.iter().map(|m| m.title()).collect(),
        // Bars of a count must start at zero; times that span decades are only distinguishable on a logarithmic
        // scale.
        logarithmic: metrics.len() > 1 && least > 0.0 && most / least > 30.0,
        rows,
    })
}

fn point(case: &CaseFindings<'_>, metric: &Metric) -> Point {
    let spread = case.spread(metric);
    Point { median: spread.median, min: spread.min, max: spread.max }
}

/// A figure over trials as a cell: the median, and the range if there is more than one trial.
fn spread_cell(case: &CaseFindings<'_>, metric: &Metric) -> Cell {
    ranged(&case.spread(metric), metric.unit)
}

/// As `spread_cell`, for any spread.
pub(crate) fn ranged(spread: &Spread, unit: Unit) -> Cell {
    let detail = (spread.reported() > 1).then(|| figures::range(spread.min, spread.max, unit)).flatten();
    Cell { detail, ..Cell::new(figures::value(spread.median, unit)) }
}
