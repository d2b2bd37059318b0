//! Runs side by side as time went on: a list with verdicts and key figures, and how one figure of each case moved.
//!
//! A run's figures are its cases' medians over trials, as everywhere; nothing is said here about whether a change
//! is more than chance.

use loadlab_analysis::findings::{CaseFindings, Findings, Spread, findings};
use loadlab_analysis::metric::{self, Metric, Unit, Value};
use loadlab_record::manifest::{Manifest, RunEnded};
use loadlab_record::store::RunRecord;
use loadlab_record::summary::Verdict;
use serde_json::{Value as Json, json};

use crate::compose::{ranged, worst};
use crate::document::{Around, Block, Cell, Document, Fact, Section, Table, Weight};
use crate::figures;
use crate::plane::{Axis, Group, Mark, Plane, Spot};
use crate::render::text::{self, scale};
use crate::render::verdict_word;
use crate::terminal::{Paint, Tone, bar, cut, left, right, width_of};

/// Behind the line of a baseline.
const BASELINE: &str = "  ← baseline";

/// A run and what it is called in a list: its folder.
pub struct Listed {
    /// Its folder, as a command takes it.
    pub name: String,
    /// Its record; summaries are enough.
    pub run: RunRecord,
    /// It is the one that the runs of its plan are compared with.
    pub baseline: bool,
}

/// The runs in the order given, as a table for a terminal so wide.
pub fn list_text(runs: &[Listed], width: usize, colour: bool) -> String {
    let rows: Vec<Vec<Cell>> = runs.iter().map(row).collect();
    let head =
        ["run", "started", "verdict", "cases", "ok", "p50", "p99", "errors"].map(str::to_owned).to_vec();
    let mut note = String::new();
    if runs.iter().any(|r| r.run.cases.len() > 1) {
        note.push_str("Figures are the least … the most of a run’s cases, each its median trial’s.");
    }
    for base in runs.iter().filter(|r| r.baseline) {
        let gap = if note.is_empty() { "" } else { " " };
        note.push_str(&format!("{gap}{} is the baseline of `{}`.", base.name, base.run.manifest.name));
    }
    let table = Table {
        caption: figures::plural(runs.len() as u64, "run", "runs"),
        head,
        words: vec![1, 2, 3],
        rows,
        note: (!note.is_empty()).then_some(note),
    };
    text::table(&table, width, colour).trim_start().to_owned()
}

/// The same for other programs.
pub fn list_json(runs: &[Listed]) -> String {
    let of = |listed: &Listed| {
        let findings = findings(&listed.run);
        let m = &listed.run.manifest;
        let cases: Vec<Json> = findings
            .cases
            .iter()
            .map(|case| {
                let figure = |id: &str| metric::named(id).and_then(|m| case.spread(&m).median.known());
                json!({
                    "name": case.case.facts.name,
                    "verdict": case.verdict,
                    "goodput_per_s": figure("goodput"),
                    "p50_ms": figure("p50"),
                    "p99_ms": figure("p99"),
                    "errors": figure("errors"),
                })
            })
            .collect();
        json!({
            "run": listed.name,
            "name": m.name,
            "baseline": listed.baseline,
            "started": m.started,
            "ended": m.ended,
            "how": m.how,
            "plan_sha256": m.plan_sha256,
            "verdict": worst(findings.cases.iter().map(|c| c.verdict)),
            "cases": cases,
        })
    };
    format!("{:#}\n", Json::Array(runs.iter().map(of).collect()))
}

fn row(listed: &Listed) -> Vec<Cell> {
    let findings = findings(&listed.run);
    let m = &listed.run.manifest;
    let mut row = vec![
        Cell::new(&listed.name),
        Cell::new(started(m)),
        verdict_cell(m.how, worst(findings.cases.iter().map(|c| c.verdict))),
        Cell::new(format!("{} × {}", m.cases.len(), m.trials)),
    ];
    row.extend(["goodput", "p50", "p99", "errors"].map(|id| over_cases(&findings, id)));
    row
}

/// Day and minute.
fn started(manifest: &Manifest) -> String {
    manifest.started.get(..16).unwrap_or(&manifest.started).replace('T', " ")
}

fn verdict_cell(how: RunEnded, verdict: Verdict) -> Cell {
    let (word, weight) = match (how, verdict) {
        (RunEnded::Interrupted, _) => ("interrupted", Weight::Doubtful),
        (RunEnded::Partial, _) => ("not ended", Weight::Doubtful),
        (_, v @ Verdict::Pass) => (verdict_word(v), Weight::Good),
        (_, v @ Verdict::None) => (verdict_word(v), Weight::Plain),
        (_, v) => (verdict_word(v), Weight::Bad),
    };
    Cell::new(word).weighing(weight)
}

/// The least and the most of a figure over the cases of a run.
fn over_cases(findings: &Findings<'_>, id: &str) -> Cell {
    let Some(metric) = metric::named(id) else { return Cell::new(figures::NOTHING) };
    let medians: Vec<Value> = findings.cases.iter().map(|c| c.spread(&metric).median).collect();
    let all = Spread::of(medians);
    match figures::range(all.min, all.max, metric.unit) {
        Some(range) => Cell::new(range),
        None => Cell::new(figures::value(all.median, metric.unit)),
    }
}

/// How a figure moved: for each case the runs that have it, oldest first, with bars. `runs` are newest first; `wanted`
/// says which cases.
pub fn trend_text(
    runs: &[Listed],
    metric: &Metric,
    wanted: &dyn Fn(&str) -> bool,
    (width, colour): (usize, bool),
) -> String {
    let paint = Paint { colour };
    let found = oldest_first(runs);
    let mut out = String::new();
    for name in cases_of(&found, wanted) {
        let points: Vec<(&Listed, Cell, Option<f64>)> = found
            .iter()
            .filter_map(|(run, f)| {
                let spread = case_of(f, name)?.spread(metric);
                Some((*run, ranged(&spread, metric.unit), spread.median.known()))
            })
            .collect();
        let title = format!("{name}: {}", figures::percentile_label_of(metric.id));
        out.push_str(&format!(
            "\n{}\n",
            paint.tone(Tone::Strong, &cut(&crate::terminal::harmless(&title), width))
        ));
        trend_of(&mut out, &points, width, paint);
    }
    out
}

/// Runs come newest first; time goes on the other way.
fn oldest_first(runs: &[Listed]) -> Vec<(&Listed, Findings<'_>)> {
    runs.iter().rev().map(|l| (l, findings(&l.run))).collect()
}

/// Cases by name, each once, in the order in which runs first had them.
fn cases_of<'a>(found: &'a [(&Listed, Findings<'_>)], wanted: &dyn Fn(&str) -> bool) -> Vec<&'a str> {
    let mut cases: Vec<&str> = Vec::new();
    for case in found.iter().flat_map(|(_, f)| &f.cases) {
        let name = case.case.facts.name.as_str();
        if wanted(name) && !cases.contains(&name) {
            cases.push(name);
        }
    }
    cases
}

fn case_of<'a, 'b>(findings: &'b Findings<'a>, name: &str) -> Option<&'b CaseFindings<'a>> {
    findings.cases.iter().find(|c| c.case.facts.name == name)
}

fn trend_of(out: &mut String, points: &[(&Listed, Cell, Option<f64>)], width: usize, paint: Paint) {
    let told = |cell: &Cell| match &cell.detail {
        Some(detail) if width >= 72 => format!("{} ({detail})", cell.text),
        _ => cell.text.clone(),
    };
    let names = points.iter().map(|(run, ..)| width_of(&run.name)).max().unwrap_or(0).min(width / 3);
    let values = points.iter().map(|(_, cell, _)| width_of(&told(cell))).max().unwrap_or(0).min(width / 3);
    let mark = if points.iter().any(|(run, ..)| run.baseline) { BASELINE } else { "" };
    let columns = width.saturating_sub(names + values + 4 + width_of(mark)).min(40);
    let scale = scale(points.iter().filter_map(|(.., value)| *value), false);
    for (run, cell, value) in points {
        let drawn = paint.tone(Tone::Bar, &bar(value.map_or(0.0, &scale), columns));
        let line = format!(
            "{}  {}  {drawn}",
            left(&cut(&run.name, names), names),
            right(&cut(&told(cell), values), values)
        );
        let line = if run.baseline { format!("{}{mark}", line.trim_end()) } else { line };
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// How figures moved, as a document: for each case a drawing of each figure over the runs that have it, with the
/// baseline’s height, and a table. `runs` are newest first; `wanted` says which cases.
pub fn trend(runs: &[Listed], metrics: &[Metric], wanted: &dyn Fn(&str) -> bool) -> Document {
    let found = oldest_first(runs);
    let cases = cases_of(&found, wanted);
    let names: Vec<String> = metrics.iter().map(|m| figures::percentile_label_of(m.id)).collect();
    let baselines = runs.iter().filter(|r| r.baseline);
    let told: Vec<String> = baselines.map(|r| format!("{} of `{}`", r.name, r.run.manifest.name)).collect();
    let section = |(i, name): (usize, &&str)| Section {
        id: format!("trend-{}", i + 1),
        title: (*name).to_owned(),
        case: None,
        blocks: trend_blocks(&found, name, metrics),
    };
    Document {
        title: format!("{} from run to run", names.join(", ")),
        subtitle: match (found.first(), found.last()) {
            (Some((first, _)), Some((last, _))) => format!(
                "{}, {} to {}",
                figures::plural(runs.len() as u64, "run", "runs"),
                started(&first.run.manifest),
                started(&last.run.manifest)
            ),
            _ => "no runs".to_owned(),
        },
        answer: vec![
            Fact::new("Baseline", if told.is_empty() { "none.".to_owned() } else { told.join(", ") + "." }),
            Fact::new(
                "How sure",
                "Points are medians over trials. Whether two runs differ by more than chance, `loadlab compare` tells.",
            ),
        ],
        verdict: Verdict::None,
        cases: Vec::new(),
        sections: cases.iter().enumerate().map(section).collect(),
    }
}

fn trend_blocks(found: &[(&Listed, Findings<'_>)], name: &str, metrics: &[Metric]) -> Vec<Block> {
    let of: Vec<(&Listed, &CaseFindings<'_>)> =
        found.iter().filter_map(|(run, f)| Some((*run, case_of(f, name)?))).collect();
    let mut blocks: Vec<Block> = metrics.iter().map(|m| Block::Plane(trend_plane(&of, m))).collect();
    blocks.push(Block::Table(trend_table(&of, name, metrics)));
    blocks
}

fn trend_plane(of: &[(&Listed, &CaseFindings<'_>)], metric: &Metric) -> Plane {
    let around = |case: &CaseFindings<'_>| Around::over(&case.spread(metric));
    let spot = |(i, (run, case)): (usize, &(&Listed, &CaseFindings<'_>))| {
        let verdict = verdict_cell(run.run.manifest.how, case.verdict);
        // What holds, or was not judged, needs no words.
        let doubted = match verdict.weight {
            Weight::Bad | Weight::Doubtful => format!(", {}", verdict.text),
            Weight::Plain | Weight::Good => String::new(),
        };
        Some(Spot {
            name: format!("{}{doubted}", run.name),
            label: None,
            across: Around::exact(i as f64),
            up: around(case)?,
        })
    };
    let name = figures::percentile_label_of(metric.id);
    let baseline = |(run, case): &(&Listed, &CaseFindings<'_>)| {
        let at = around(case).filter(|_| run.baseline)?;
        let between = (at.low < at.high).then_some((at.low, at.high));
        Some(Mark { at: at.value, between, text: "baseline".into() })
    };
    // The year is the same for most, and the minute tells apart what one day holds.
    let label = |run: &Listed| started(&run.run.manifest).get(5..).unwrap_or_default().to_owned();
    let names = of.iter().enumerate().map(|(i, (run, _))| (i as f64, label(run))).collect();
    Plane {
        title: format!("{name} from run to run"),
        across: Axis { names, ..Axis::of("runs", Unit::Count, false) },
        up: Axis::of(&name, metric.unit, false),
        groups: vec![Group {
            name,
            colour: 0,
            joined: true,
            spots: of.iter().enumerate().filter_map(spot).collect(),
        }],
        curves: Vec::new(),
        marks: Vec::new(),
        heights: of.iter().filter_map(baseline).collect(),
        behind: "the table below".into(),
        note: None,
    }
}

fn trend_table(of: &[(&Listed, &CaseFindings<'_>)], name: &str, metrics: &[Metric]) -> Table {
    let row = |(run, case): &(&Listed, &CaseFindings<'_>)| {
        let detail = run.baseline.then(|| "baseline".to_owned());
        let m = &run.run.manifest;
        let mut row = vec![
            Cell { detail, ..Cell::new(&run.name) },
            Cell::new(started(m)),
            verdict_cell(m.how, case.verdict),
            Cell::new(figures::count(case.whole().count() as u64)),
        ];
        row.extend(metrics.iter().map(|metric| ranged(&case.spread(metric), metric.unit)));
        row
    };
    let mut head = ["run", "started", "verdict", "trials"].map(str::to_owned).to_vec();
    head.extend(metrics.iter().map(|m| figures::percentile_label_of(m.id)));
    Table {
        caption: name.to_owned(),
        head,
        words: vec![1, 2],
        rows: of.iter().map(row).collect(),
        note: Some("Each figure is the median over the trials that were whole, with their range.".into()),
    }
}

/// Figures a trend can be asked of, for hints.
pub fn metric_names() -> String {
    let names: Vec<&str> = metric::all().iter().filter(|m| m.unit != Unit::Number).map(|m| m.id).collect();
    names.join(", ")
}
