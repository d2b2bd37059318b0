//! Cases side by side by the figures that matter: one row per case, or, if two or more axes vary, one grid per
//! figure.

use loadlab_analysis::cases::case::{CaseFindings, Spread, without_controls};
use loadlab_analysis::cases::metric::{Metric, Value};
use loadlab_analysis::comparison::compare::Comparison;
use loadlab_analysis::comparison::interval::Call;
use loadlab_analysis::findings::Findings;
use loadlab_record::documents::labels::Labels;

use super::case_id;
use crate::document::{CaseRow, CaseTable, FigureCell, FigureHead, Grid, GridCell, Grids, Weight};
use crate::figures;

/// Fewer cases than this are shown as a table, however many axes they have.
const GRID_FROM: usize = 7;
/// A figure whose values span more than this factor is drawn on a logarithmic scale.
pub(super) const LOGARITHMIC_FROM: f64 = 30.0;
/// The most positions along an axis of a grid.
const MOST_ALONG: usize = 24;

/// Axes that have the same value in every case, in words; `None` if all vary.
pub(super) fn constant_axes(findings: &Findings<'_>, axes: &[String]) -> Option<String> {
    let labels = Labels::of(findings.cases.iter().map(|c| &c.case.facts), axes);
    if labels.axes.is_empty() {
        return None;
    }
    let first = &findings.cases.first()?.case.facts;
    let constant = first.values.iter().enumerate().filter(|(i, _)| !labels.axes.contains(i));
    let texts: Vec<String> = constant.map(|(_, (axis, value))| format!("{axis}={value}")).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// The table; `None` if nothing was measured.
pub(super) fn table(findings: &Findings<'_>, axes: &[String]) -> Option<CaseTable> {
    if findings.cases.iter().all(|c| c.summaries().next().is_none()) {
        return None;
    }
    let labels = Labels::of(findings.cases.iter().map(|c| &c.case.facts), axes);
    let mut bases: Vec<usize> = findings.pairs.iter().map(|(base, _)| *base).collect();
    bases.dedup();
    bases.retain(|_| !findings.comparisons.is_empty());
    let scales: Vec<FigureScale> = findings.figures.iter().map(|m| FigureScale::of(findings, m)).collect();
    let row = |(i, case): (usize, &CaseFindings<'_>)| {
        let compared = findings.comparisons.iter().find(|c| c.other == case.case.facts.name);
        let cell = |(m, scale): (&Metric, &FigureScale)| cell(&case.spread(m), m, scale, compared);
        CaseRow {
            labels: labels.row(&case.case.facts),
            section: case_id(i),
            verdict: case.verdict,
            is_base: bases.contains(&i),
            figures: findings.figures.iter().zip(&scales).map(cell).collect(),
            bottleneck: bottleneck(case),
        }
    };
    let rows: Vec<CaseRow> = findings.cases.iter().enumerate().map(row).collect();
    let head = |(m, scale): (&Metric, &FigureScale)| FigureHead {
        name: m.title(),
        about: m.about.to_string(),
        is_logarithmic: scale.is_logarithmic,
        has_bars: findings.cases.len() > 1,
    };
    Some(CaseTable {
        labels: labels.heads.clone(),
        figures: findings.figures.iter().zip(&scales).map(head).collect(),
        rows,
        note: note(findings, &bases),
    })
}

fn note(findings: &Findings<'_>, bases: &[usize]) -> Option<String> {
    let mut notes: Vec<String> = Vec::new();
    let trials = findings.cases.iter().map(|c| c.summaries().count()).max().unwrap_or(0);
    if trials > 1 {
        notes.push(format!("Medians of {trials} trials, below each the smallest … the largest."));
    }
    match bases {
        [] => {}
        [base] => notes.push(format!("Differences are relative to “{}”.", findings.cases[*base].label)),
        _ => notes.push("Differences are relative to the same case at the first revision.".to_owned()),
    }
    notes.extend(super::tables::left_out(findings));
    notes.extend(super::tables::not_measured(findings));
    (!notes.is_empty()).then(|| notes.join(" "))
}

/// What held a case back, in a few words.
pub(super) fn bottleneck(case: &CaseFindings<'_>) -> String {
    match &case.diagnosis.bottleneck {
        Some(found) => found.kind.in_short(found.component.as_deref()),
        None => figures::NOTHING.to_owned(),
    }
}

/// Maps the values of a figure over all cases to bar lengths.
struct FigureScale {
    least: f64,
    most: f64,
    is_logarithmic: bool,
}

impl FigureScale {
    fn of(findings: &Findings<'_>, metric: &Metric) -> FigureScale {
        let values = findings.cases.iter().filter_map(|c| match c.spread(metric).median {
            Value::Known(v) | Value::Over(v) => Some(v),
            Value::Between(few) if !few.is_unknown() => Some(few.likely()),
            _ => None,
        });
        let positive: Vec<f64> = values.filter(|v| *v > 0.0).collect();
        let least = positive.iter().copied().fold(f64::INFINITY, f64::min);
        let most = positive.iter().copied().fold(0.0, f64::max);
        FigureScale { least, most, is_logarithmic: least.is_finite() && most / least >= LOGARITHMIC_FROM }
    }

    fn share(&self, value: f64) -> f64 {
        match () {
            () if value <= 0.0 || self.most <= 0.0 => 0.0,
            // The smallest value keeps a tenth of the bar.
            () if self.is_logarithmic => {
                0.1 + 0.9 * (value / self.least).ln() / (self.most / self.least).ln()
            }
            () => value / self.most,
        }
    }
}

fn cell(spread: &Spread, metric: &Metric, scale: &FigureScale, compared: Option<&Comparison>) -> FigureCell {
    let (share, is_open) = match spread.median {
        Value::Known(v) => (Some(scale.share(v)), false),
        Value::Over(v) => (Some(scale.share(v)), true),
        Value::Between(few) if !few.is_unknown() => {
            (Some(scale.share(few.likely())), few.estimate.high.is_none())
        }
        _ => (None, false),
    };
    let (text, interval) = figures::in_cell(spread.median, metric);
    let range =
        (spread.reported() > 1).then(|| figures::range(spread.min, spread.max, metric.unit)).flatten();
    let row = compared.and_then(|c| c.rows.iter().find(|r| r.metric.id == metric.id));
    let difference = row.map(|r| {
        let (word, weight) = match r.call {
            Call::Better => ("better", Weight::Good),
            Call::Worse => ("worse", Weight::Bad),
            Call::Same => ("same", Weight::Plain),
            Call::Changed => ("changed", Weight::Plain),
            Call::CannotTell => ("cannot tell", Weight::Plain),
        };
        let ratio = r.effect.filter(|_| metric.unit != loadlab_analysis::cases::metric::Unit::Share);
        let text = ratio.map_or_else(
            || word.to_owned(),
            |e| format!("{} × · {word}", figures::number(figures::round(e.value, 3))),
        );
        (text, weight)
    });
    FigureCell { text, range: interval.or(range), share: share.map(|s| s.min(1.0)), is_open, difference }
}

/// Grids, if exactly two axes vary in enough cases; further axes become facets.
pub(super) fn grids(findings: &Findings<'_>, axes: &[String]) -> Option<Grids> {
    let labels = Labels::of(findings.cases.iter().map(|c| &c.case.facts), axes);
    if labels.axes.len() < 2 || without_controls(&findings.cases).count() < GRID_FROM {
        return None;
    }
    // The two longest axes span the grid; the longer one runs down.
    let values = |axis: usize| {
        let mut all: Vec<String> = Vec::new();
        for case in &findings.cases {
            let value = &case.case.facts.values[axis].1;
            if !all.contains(value) {
                all.push(value.clone());
            }
        }
        all
    };
    let mut by_length: Vec<usize> = labels.axes.clone();
    by_length.sort_by_key(|axis| std::cmp::Reverse(values(*axis).len()));
    let (down, across) = (by_length[0], by_length[1]);
    let facets: Vec<usize> = labels.axes.iter().copied().filter(|a| *a != down && *a != across).collect();
    let (rows, columns) = (values(down), values(across));
    if rows.len() > MOST_ALONG || columns.len() > MOST_ALONG {
        return None;
    }
    let facet_of = |case: &CaseFindings<'_>| -> String {
        let one = |axis: &usize| format!("{}={}", axes[*axis], case.case.facts.values[*axis].1);
        facets.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let mut names: Vec<String> = Vec::new();
    for case in &findings.cases {
        let name = facet_of(case);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut all = Vec::new();
    for metric in &findings.figures {
        let scale = FigureScale::of(findings, metric);
        for name in &names {
            let at = |row: &String, column: &String| {
                let found = findings.cases.iter().enumerate().find(|(_, c)| {
                    let v = &c.case.facts.values;
                    facet_of(c) == *name && v[down].1 == *row && v[across].1 == *column
                });
                found.map(|(i, case)| {
                    let spread = case.spread(metric);
                    let FigureCell { text, range, share, .. } = cell(&spread, metric, &scale, None);
                    GridCell { text, range, share, section: case_id(i), verdict: case.verdict }
                })
            };
            let cells =
                rows.iter().map(|row| columns.iter().map(|column| at(row, column)).collect()).collect();
            all.push(Grid { figure: metric.title(), facet: name.clone(), cells });
        }
    }
    Some(Grids { down: axes[down].clone(), across: axes[across].clone(), rows, columns, grids: all })
}
