//! Runs side by side over time: a list with verdicts and key figures, and how one figure of each case changed.
//!
//! A run's figures are its cases' medians over trials, as everywhere. Where a figure changed for good is found over
//! the runs of a series ([`loadlab_analysis::comparison::changes`]); `loadlab compare` shows whether two runs differ.

use loadlab_analysis::DiagnosedRun;
use loadlab_analysis::cases::case::{CaseFindings, Spread, without_controls};
use loadlab_analysis::cases::metric::{self, Better, Metric, Unit, Value};
use loadlab_analysis::comparison::changes::{ChangePoint, change_points};
use loadlab_analysis::comparison::figures::Scale;
use loadlab_analysis::findings::{Findings, findings};
use loadlab_analysis::verdict_of_search;
use loadlab_record::documents::manifest::{CommitFacts, Manifest, RunEnded, short_commit};
use loadlab_record::documents::summary::{Ended, Verdict};
use serde_json::{Value as Json, json};

use crate::compose::numeric::{HOLLOW, height};
use crate::compose::{ranged, worst};
use crate::document::{Block, Cell, Document, Fact, Point, Section, Table, Weight};
use crate::figures;
use crate::plane::RangedValue;
use crate::plane::{Axis, Group, Plane, PlaneMark, Spot};
use crate::render::text::{self, open_scale};
use crate::render::verdict_word;
use crate::terminal::{Paint, Tone, cut, hanging, left, right, width_of};

/// Suffix of a baseline's line.
const BASELINE: &str = "  ← baseline";

/// A run and its name in a list: its folder.
pub struct Listed {
    /// Its folder, in the form commands accept.
    pub name: String,
    /// Its record; summaries are enough.
    pub run: DiagnosedRun,
    /// Whether it is the baseline of its plan's runs.
    pub baseline: bool,
}

/// The runs in the given order, as a table for a terminal of this width.
pub fn list_text(runs: &[Listed], width: usize, colour: bool) -> String {
    let rows: Vec<Vec<Cell>> = runs.iter().map(row).collect();
    let head =
        ["run", "started", "verdict", "cases", "ok", "p50", "p99", "errors"].map(str::to_owned).to_vec();
    let mut note = String::new();
    if runs.iter().any(|r| r.run.cases.len() > 1) {
        note.push_str(
            "Figures are the lowest … the highest of a run’s cases, each the median over its valid trials.",
        );
    }
    for base in runs.iter().filter(|r| r.baseline) {
        let gap = if note.is_empty() { "" } else { " " };
        note.push_str(&format!("{gap}{} is the baseline of `{}`.", base.name, base.run.manifest.name));
    }
    let table = Table {
        caption: figures::plural(runs.len() as u64, "run", "runs"),
        head,
        text_columns: vec![1, 2, 3],
        rows,
        note: (!note.is_empty()).then_some(note),
    };
    text::table(&table, width, colour).trim_start().to_owned()
}

/// The runs in the given order as JSON, for other programs.
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
            "commit": m.commit,
            "verdict": verdict(m, &findings),
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
        verdict_cell(m.how, verdict(m, &findings)),
        Cell::new(format!("{} × {}", without_controls(&findings.cases).count(), trials(&listed.run))),
    ];
    row.extend(["goodput", "p50", "p99", "errors"].map(|id| over_cases(&findings, id)));
    row
}

/// The worst of its cases; a search has its own verdict, since levels that missed are no failure.
fn verdict(manifest: &Manifest, findings: &Findings<'_>) -> Verdict {
    match &manifest.search {
        Some(facts) => verdict_of_search(facts),
        None => worst(findings.cases.iter().map(|c| c.verdict)),
    }
}

/// Number of trials of each case; if that depends on their results, of the case with most.
fn trials(run: &DiagnosedRun) -> usize {
    let most = || run.cases.iter().map(|case| case.trials.len()).max().unwrap_or(0);
    run.manifest.trials_of_each().map_or_else(most, |trials| trials as usize)
}

/// When the run began, to the minute.
fn started(manifest: &Manifest) -> String {
    manifest.started.get(..16).unwrap_or(&manifest.started).replace('T', " ")
}

fn verdict_cell(how: RunEnded, verdict: Verdict) -> Cell {
    let (word, weight) = match (how, verdict) {
        (RunEnded::Interrupted, _) => ("interrupted", Weight::Doubtful),
        (RunEnded::Partial, _) => ("not ended", Weight::Doubtful),
        (_, v @ Verdict::Pass) => (verdict_word(v), Weight::Good),
        (_, v @ Verdict::Undecided) => (verdict_word(v), Weight::Doubtful),
        (_, v @ Verdict::None) => (verdict_word(v), Weight::Plain),
        (_, v) => (verdict_word(v), Weight::Bad),
    };
    Cell::new(word).with_weight(weight)
}

/// The lowest and the highest value of a figure over the cases of a run.
fn over_cases(findings: &Findings<'_>, id: &str) -> Cell {
    let Some(metric) = metric::named(id) else { return Cell::new(figures::NOTHING) };
    let mut medians: Vec<Value> =
        without_controls(&findings.cases).map(|c| c.spread(&metric).median).collect();
    // Beside cases with a figure, one with an estimate is as likely to be the lowest or the highest.
    let is_known = |value: &Value| matches!(value, Value::Known(_) | Value::Over(_));
    let mut sign = "";
    if medians.iter().any(is_known) {
        for value in &mut medians {
            if let Value::Between(few) = *value {
                (*value, sign) = (Value::Known(few.likely()), "~");
            }
        }
    }
    let all = Spread::of(medians, metric.better());
    match figures::range(all.min, all.max, metric.unit) {
        Some(range) => Cell::new(format!("{sign}{range}")),
        None => Cell::new(figures::value(all.median, metric.unit)),
    }
}

/// How figures changed: for each case of each series the runs that have it, oldest first, with bars. `runs` are
/// newest first; `wanted` selects cases.
pub fn trend_text(
    runs: &[Listed],
    metrics: &[Metric],
    wanted: &dyn Fn(&str) -> bool,
    width: usize,
    colour: bool,
) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let paint = Paint { colour };
    let all = series(oldest_first(runs));
    let mut out = String::new();
    let cases: Vec<(&Series<'_>, &str)> = all
        .iter()
        .flat_map(|one| cases_of(&one.runs, wanted).into_iter().map(move |name| (one, name)))
        .collect();
    let looked_at = cases.len() * metrics.len();
    for metric in metrics {
        for (one, name) in cases.iter().copied() {
            let of = one.having(name);
            let changes = changes_of(&of, metric, looked_at);
            let points: Vec<TrendPoint<'_>> = of
                .iter()
                .map(|(run, case)| {
                    let spread = case.spread(metric);
                    TrendPoint { run, cell: ranged(&spread, metric.unit), median: spread.median }
                })
                .collect();
            let title = format!("{}: {}", one.titled(name, all.len()), metric.title());
            out.push_str(&format!(
                "\n{}\n",
                paint.tone(Tone::Strong, &cut(&crate::terminal::harmless(&title), width))
            ));
            trend_of(&mut out, &points, width, paint);
            for text in describe_changes(&of, metric, &changes) {
                hanging(&mut out, "▲ ", &text, width, |t| paint.tone(Tone::Strong, t));
            }
            if let Some(text) = one.without(name) {
                hanging(&mut out, "", &text, width, |t| paint.tone(Tone::Faint, t));
            }
        }
    }
    out
}

/// Runs that belong together: of one plan, with the same profile and the same `--set`.
struct Series<'a> {
    /// The plan's name, with the profile and settings it was run with.
    name: String,
    /// Oldest first.
    runs: Vec<(&'a Listed, Findings<'a>)>,
}

impl Series<'_> {
    /// The title of a case among this many series.
    fn titled(&self, case: &str, of: usize) -> String {
        if of > 1 { format!("{} / {case}", self.name) } else { case.to_owned() }
    }

    /// Its runs that have this case, and the case of each.
    fn having(&self, case: &str) -> Vec<(&Listed, &CaseFindings<'_>)> {
        self.runs.iter().filter_map(|(run, f)| Some((*run, case_of(f, case)?))).collect()
    }

    /// Runs without this case, in words.
    fn without(&self, case: &str) -> Option<String> {
        let without = self.runs.iter().filter(|(_, f)| case_of(f, case).is_none()).count();
        let runs = figures::plural(self.runs.len() as u64, "run", "runs");
        (without > 0).then(|| format!("Left out: {without} of {runs} without this case."))
    }
}

/// The probability that any change is reported among everything shown if nothing changed.
const CHANGE_LEVEL: f64 = 0.05;
/// Seed of the permutations that a history is compared with: the same history always has the same changes.
const CHANGE_SEED: u64 = 20_140_101;

/// A change in a series, by indices of its runs.
struct Change {
    /// The last run before, and the first after.
    between: (usize, usize),
    /// In logarithms, for figures on a ratio scale.
    point: ChangePoint,
    scale: Scale,
}

/// Where a figure of a case changed for good; `looked_at` is the number of cases and figures examined. Runs that did
/// not measure it, or cannot be trusted, are skipped.
fn changes_of(of: &[(&Listed, &CaseFindings<'_>)], metric: &Metric, looked_at: usize) -> Vec<Change> {
    let is_whole = |case: &CaseFindings<'_>| {
        let mut trials = case.summaries();
        trials.any(|s| s.verdict != Verdict::Invalid && matches!(s.ended, Ended::Complete | Ended::Stopped))
    };
    // A lower bound counts as the value.
    let value = |case: &CaseFindings<'_>| match case.spread(metric).median {
        Value::Known(value) | Value::Over(value) if is_whole(case) && value.is_finite() => Some(value),
        _ => None,
    };
    let mut known: Vec<(usize, f64)> =
        of.iter().enumerate().filter_map(|(place, (_, case))| Some((place, value(case)?))).collect();
    // A count that is zero at times has no ratio.
    let has_ratios = metric.unit != Unit::Share && known.iter().all(|(_, value)| *value > 0.0);
    let scale = if has_ratios { Scale::Ratio } else { Scale::Difference };
    if scale == Scale::Ratio {
        known.iter_mut().for_each(|(_, value)| *value = value.ln());
    }
    let values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let level = CHANGE_LEVEL / looked_at.max(1) as f64;
    let found = change_points(&values, level, CHANGE_SEED);
    let out = |value: f64| if scale == Scale::Ratio { value.exp() } else { value };
    // Changes of memory say nothing if they are smaller than what the two runs beside them resolve.
    let is_resolved = |change: &Change| {
        let beside = [change.between.0, change.between.1].into_iter().flat_map(|run| of[run].1.whole());
        let resolution = beside.map(|summary| metric.resolution(summary)).fold(0.0, f64::max);
        (out(change.point.after) - out(change.point.before)).abs() >= resolution
    };
    let change =
        |point: ChangePoint| Change { between: (known[point.at - 1].0, known[point.at].0), point, scale };
    found.into_iter().map(change).filter(is_resolved).collect()
}

/// Each change in words, oldest first.
fn describe_changes(of: &[(&Listed, &CaseFindings<'_>)], metric: &Metric, changes: &[Change]) -> Vec<String> {
    let sentence = |change: &Change| {
        let (before, after) = (of[change.between.0].0, of[change.between.1].0);
        let ChangePoint { before: from, after: to, chance, .. } = change.point;
        let (from, to, by) = match change.scale {
            Scale::Ratio => {
                (from.exp(), to.exp(), format!("{} ×", figures::number(figures::round((to - from).exp(), 3))))
            }
            Scale::Difference if metric.unit == Unit::Share => {
                (from, to, format!("{:+} points", figures::round((to - from) * 100.0, 2)))
            }
            Scale::Difference => {
                let by = figures::value(Value::Known((to - from).abs()), metric.unit);
                (from, to, format!("{} {by}", if to > from { "up" } else { "down" }))
            }
        };
        let direction = match (metric.better(), to > from) {
            (Better::Neither, _) => "",
            (Better::More, true) | (Better::Less, false) => ", better",
            (Better::More, false) | (Better::Less, true) => ", worse",
        };
        let shown = |value: f64| figures::value(Value::Known(value), metric.unit);
        format!(
            "{} changed at {}: {} → {} ({by}{direction}; p = {}){}",
            metric.title(),
            after.name,
            shown(from),
            shown(to),
            figures::round(chance, 2),
            describe_commits(before.run.manifest.commit.as_ref(), after.run.manifest.commit.as_ref())
        )
    };
    changes.iter().map(sentence).collect()
}

/// What was committed between two runs, as far as their records know it.
fn describe_commits(before: Option<&CommitFacts>, after: Option<&CommitFacts>) -> String {
    let Some(after) = after else { return String::new() };
    let changed = if after.changed { ", with uncommitted changes" } else { "" };
    let named = format!("{} “{}”{changed}", short_commit(&after.commit), after.subject);
    match before {
        Some(before) if before.commit == after.commit => format!(", at the same commit as before: {named}"),
        Some(before) => format!(", commits {}..{named}", short_commit(&before.commit)),
        None => format!(", commit {named}"),
    }
}

/// Whether two runs are of one plan: of the same name, and of the same text, or of the file at the same path, which
/// may have been edited in between. A search or a proof is not one of its plan's runs.
fn is_same_plan(a: &Manifest, b: &Manifest) -> bool {
    let same_file = a.plan_sha256 == b.plan_sha256 || a.plan_path == b.plan_path;
    let kind = |m: &Manifest| (m.search.is_some(), m.why.is_some());
    a.name == b.name && same_file && kind(a) == kind(b)
}

/// What was changed in the plan: a profile, and settings.
fn changes(manifest: &Manifest) -> Vec<&str> {
    let changes = |option: &&str| option.starts_with("--profile") || option.starts_with("--set");
    let mut all: Vec<&str> = manifest.options.iter().map(String::as_str).filter(changes).collect();
    all.sort_unstable();
    all
}

/// Runs by series, in the order of the series' first runs.
fn series<'a>(runs: Vec<(&'a Listed, Findings<'a>)>) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'a>> = Vec::new();
    for (listed, findings) in runs {
        let m = &listed.run.manifest;
        let belongs = |(run, _): &(&Listed, Findings<'_>)| {
            is_same_plan(&run.run.manifest, m) && changes(&run.run.manifest) == changes(m)
        };
        match all.iter_mut().find(|s| s.runs.iter().any(belongs)) {
            Some(series) => series.runs.push((listed, findings)),
            None => {
                let question = match (m.search.is_some(), m.why.is_some()) {
                    (true, _) => Some("search"),
                    (_, true) => Some("why"),
                    _ => None,
                };
                let parts: Vec<&str> =
                    std::iter::once(m.name.as_str()).chain(question).chain(changes(m)).collect();
                let mut name = parts.join(" ");
                // Two files of one name are distinguished by their paths.
                if all.iter().any(|s| s.name == name) {
                    name = format!("{name} ({})", m.plan_path);
                }
                all.push(Series { name, runs: vec![(listed, findings)] });
            }
        }
    }
    all
}

/// Runs come newest first; these are in order of time.
fn oldest_first(runs: &[Listed]) -> Vec<(&Listed, Findings<'_>)> {
    runs.iter().rev().map(|l| (l, findings(&l.run))).collect()
}

/// Cases by name, each once, in the order of first appearance.
fn cases_of<'a>(found: &'a [(&Listed, Findings<'_>)], wanted: &dyn Fn(&str) -> bool) -> Vec<&'a str> {
    let mut cases: Vec<&str> = Vec::new();
    for case in found.iter().flat_map(|(_, f)| without_controls(&f.cases)) {
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

/// A figure of a run.
struct TrendPoint<'r> {
    run: &'r Listed,
    /// Its value in words.
    cell: Cell,
    median: Value,
}

fn trend_of(out: &mut String, points: &[TrendPoint<'_>], width: usize, paint: Paint) {
    let described = |cell: &Cell| match &cell.detail {
        Some(detail) if width >= 72 => format!("{} ({detail})", cell.text),
        _ => cell.text.clone(),
    };
    let names = points.iter().map(|p| width_of(&p.run.name)).max().unwrap_or(0).min(width / 3);
    let values = points.iter().map(|p| width_of(&described(&p.cell))).max().unwrap_or(0).min(width / 3);
    let mark = if points.iter().any(|p| p.run.baseline) { BASELINE } else { "" };
    let columns = width.saturating_sub(names + values + 4 + width_of(mark)).min(40);
    let at = |value: Value| Point { median: value, min: None, max: value }.drawn();
    let drawn = open_scale(points.iter().map(|p| at(p.median)), false);
    for TrendPoint { run, cell, median } in points {
        let drawn = paint.tone(Tone::Bar, &drawn.bar(at(*median), columns));
        let line = format!(
            "{}  {}  {drawn}",
            left(&cut(&run.name, names), names),
            right(&cut(&described(cell), values), values)
        );
        let line = if run.baseline { format!("{}{mark}", line.trim_end()) } else { line };
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// How figures changed, as a document: for each case a drawing of each figure over the runs that have it, with the
/// baseline’s height, and a table. `runs` are newest first; `wanted` selects cases.
pub fn trend(runs: &[Listed], metrics: &[Metric], wanted: &dyn Fn(&str) -> bool) -> Document {
    let all = series(oldest_first(runs));
    let cases: Vec<(&Series<'_>, &str)> = all
        .iter()
        .flat_map(|one| cases_of(&one.runs, wanted).into_iter().map(move |case| (one, case)))
        .collect();
    let names: Vec<String> = metrics.iter().map(|m| m.title()).collect();
    let baselines = runs.iter().filter(|r| r.baseline);
    let described: Vec<String> =
        baselines.map(|r| format!("{} of `{}`", r.name, r.run.manifest.name)).collect();
    let section = |(i, (one, case)): (usize, &(&Series<'_>, &str))| Section {
        id: format!("trend-{}", i + 1),
        title: one.titled(case, all.len()),
        case: None,
        is_folded: false,
        blocks: trend_blocks(one, case, all.len(), metrics, cases.len() * metrics.len()),
    };
    Document {
        title: format!("{} by run", names.join(", ")),
        // The newest is the first.
        subtitle: match (runs.last(), runs.first()) {
            (Some(first), Some(last)) => format!(
                "{}, {} to {}",
                figures::plural(runs.len() as u64, "run", "runs"),
                started(&first.run.manifest),
                started(&last.run.manifest)
            ),
            _ => "no runs".to_owned(),
        },
        answer: vec![
            Fact::new(
                "Baseline",
                if described.is_empty() { "none.".to_owned() } else { described.join(", ") + "." },
            ),
            Fact::new(
                "Confidence",
                "Points are medians over valid trials. A series is one plan’s: runs of its name and of its text or its file, \
                 with the same profile and settings. Changes are found by energy distances and permutations (e-divisive), \
                 with one false alarm in twenty such pages if nothing changed. `loadlab compare` says whether two runs differ.",
            ),
        ],
        verdict: Verdict::None,
        cases: Vec::new(),
        sections: cases.iter().enumerate().map(section).collect(),
        is_brief: false,
    }
}

fn trend_blocks(
    one: &Series<'_>,
    case: &str,
    of_series: usize,
    metrics: &[Metric],
    looked_at: usize,
) -> Vec<Block> {
    let of = one.having(case);
    let mut blocks = Vec::new();
    for metric in metrics {
        let changes = changes_of(&of, metric, looked_at);
        blocks.push(Block::Plane(trend_plane(&of, metric, &changes)));
        blocks.extend(
            describe_changes(&of, metric, &changes).into_iter().map(|text| Block::Paragraph(text + ".")),
        );
    }
    blocks.push(Block::Table(trend_table(&of, &one.titled(case, of_series), metrics)));
    blocks.extend(one.without(case).map(Block::Paragraph));
    blocks
}

fn trend_plane(of: &[(&Listed, &CaseFindings<'_>)], metric: &Metric, changes: &[Change]) -> Plane {
    let around = |case: &CaseFindings<'_>| height(&case.spread(metric)).map(|(around, _)| around);
    let spot = |(i, (run, case)): (usize, &(&Listed, &CaseFindings<'_>))| {
        let verdict = verdict_cell(run.run.manifest.how, case.verdict);
        // Results that hold, or were not judged, need no words.
        let doubted = match verdict.weight {
            Weight::Bad | Weight::Doubtful => format!(", {}", verdict.text),
            Weight::Plain | Weight::Good => String::new(),
        };
        let (up, is_open) = height(&case.spread(metric))?;
        Some(Spot {
            name: format!("{}{doubted}", run.name),
            label: None,
            across: RangedValue::exact(i as f64),
            up,
            is_open,
            verdict: case.verdict,
            section: None,
        })
    };
    let name = metric.title();
    let baseline = |(run, case): &(&Listed, &CaseFindings<'_>)| {
        let at = around(case).filter(|_| run.baseline)?;
        let between = (at.low < at.high).then_some((at.low, at.high));
        Some(PlaneMark { at: at.value, between, text: "baseline".into() })
    };
    let mark = |change: &Change| PlaneMark {
        at: (change.between.0 + change.between.1) as f64 / 2.0,
        between: None,
        text: "changed".into(),
    };
    // The year is the same for most, and the minute distinguishes runs of one day.
    let label = |run: &Listed| started(&run.run.manifest).get(5..).unwrap_or_default().to_owned();
    let names = of.iter().enumerate().map(|(i, (run, _))| (i as f64, label(run))).collect();
    let spots: Vec<Spot> = of.iter().enumerate().filter_map(spot).collect();
    let note = spots.iter().any(|spot| spot.is_open).then(|| HOLLOW.to_owned());
    Plane {
        title: format!("{name} by run"),
        across: Axis { names, ..Axis::of("runs", Unit::Count, false) },
        up: Axis::of(&name, metric.unit, false),
        groups: vec![Group { name, colour: crate::colour::Colour::Nth(0), joined: true, spots }],
        curves: Vec::new(),
        marks: changes.iter().map(mark).collect(),
        heights: of.iter().filter_map(baseline).collect(),
        behind: "the table below".into(),
        note,
    }
}

fn trend_table(of: &[(&Listed, &CaseFindings<'_>)], name: &str, metrics: &[Metric]) -> Table {
    let has_commits = of.iter().any(|(run, _)| run.run.manifest.commit.is_some());
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
        if has_commits {
            let commit = m.commit.as_ref();
            row.push(Cell {
                detail: commit.filter(|c| c.changed).map(|_| "and changes".to_owned()),
                ..Cell::new(commit.map_or(figures::NOTHING, |c| short_commit(&c.commit)))
            });
        }
        row
    };
    let mut head = ["run", "started", "verdict", "trials"].map(str::to_owned).to_vec();
    head.extend(metrics.iter().map(|m| m.title()));
    if has_commits {
        head.push("commit".to_owned());
    }
    Table {
        caption: name.to_owned(),
        head,
        text_columns: if has_commits { vec![1, 2, 4 + metrics.len()] } else { vec![1, 2] },
        rows: of.iter().map(row).collect(),
        note: Some("Each figure is the median over the valid trials (of an even number, the worse of the middle two), with their range.".into()),
    }
}

/// Figures available for a trend, for hints.
pub fn metric_names() -> String {
    let all = metric::all();
    let names: Vec<&str> = all.iter().filter(|m| m.unit != Unit::Number).map(|m| &*m.id).collect();
    names.join(", ")
}
