//! Differences between cases: a table for each pair, and the document of `loadlab compare`.

use loadlab_analysis::comparison::compare::{Comparison, ConfidenceInterval, Row};
use loadlab_analysis::comparison::figures::Scale;
use loadlab_analysis::comparison::interval::{Call, Method};
use loadlab_record::documents::summary::Verdict;

use crate::document::{Block, Cell, Document, Fact, Ratio, Ratios, Remark, Section, Table, Weight};
use crate::figures::{self, NOTHING};
use crate::plane::RangedValue;
use crate::wording::capital;

use super::{profile, ranged, tables::drop_unknown_columns};

/// Comparisons as a separate document.
pub fn document(comparisons: &[Comparison]) -> Document {
    let title = match comparisons {
        [one] => format!("{} against {}", one.other, one.base),
        many => format!("{} comparisons", many.len()),
    };
    let found = match comparisons {
        [one] => vec![Fact::new("Found", describe_conclusions(one))],
        many => many.iter().map(|c| Fact::new(&c.other, describe_conclusions(c))).collect(),
    };
    let how = comparisons.first().map(|first| Fact::new("How", describe_method(first, comparisons)));
    let moved = |c: &Comparison| {
        let moved = c.moved.as_ref()?;
        Some(match comparisons {
            [_] => format!("{}.", capital(moved)),
            _ => format!("{}: {moved}.", c.other),
        })
    };
    let moved: Vec<String> = comparisons.iter().filter_map(moved).collect();
    let moved = (!moved.is_empty()).then(|| Fact::new("First bottleneck", moved.join(" ")));
    Document {
        is_brief: false,
        title,
        subtitle: "Ratios are second over first: 1.10 × is 10 % more".into(),
        answer: found.into_iter().chain(moved).chain(how).collect(),
        verdict: Verdict::None,
        cases: Vec::new(),
        sections: comparisons.iter().enumerate().map(|(i, c)| section(i, c, comparisons.len() > 1)).collect(),
    }
}

fn section(index: usize, comparison: &Comparison, one_of_many: bool) -> Section {
    let title = match one_of_many {
        true => format!("{} against {}", comparison.other, comparison.base),
        false => "Figures".to_owned(),
    };
    let mut blocks: Vec<Block> = ratios(comparison).map(Block::Ratios).into_iter().collect();
    blocks.push(Block::Table(table(comparison)));
    blocks.extend(details(comparison).map(Block::Table));
    blocks.extend(remarks(comparison).map(Block::Remarks));
    blocks.extend(profile::compared(index, comparison));
    Section { id: format!("comparison-{}", index + 1), title, case: None, is_folded: false, blocks }
}

/// Comparisons as a part of a run's report.
pub fn blocks(comparisons: &[Comparison]) -> Vec<Block> {
    let Some(first) = comparisons.first() else { return Vec::new() };
    let mut blocks =
        vec![Block::Heading("Differences".into()), Block::Paragraph(describe_method(first, comparisons))];
    for (index, comparison) in comparisons.iter().enumerate() {
        blocks.extend(ratios(comparison).map(Block::Ratios));
        blocks.push(Block::Table(table(comparison)));
        blocks.extend(details(comparison).map(Block::Table));
        blocks.extend(remarks(comparison).map(Block::Remarks));
        blocks.extend(profile::compared(index, comparison));
    }
    blocks
}

/// The conclusions of a comparison, worst first.
fn describe_conclusions(comparison: &Comparison) -> String {
    if let Some(why) = &comparison.why_not {
        return format!("cannot tell: {why}.");
    }
    let mut parts = Vec::new();
    for (call, word) in [(Call::Worse, "worse"), (Call::Better, "better")] {
        let names: Vec<String> = comparison.called(call).map(|r| format!("{} {}", label(r), by(r))).collect();
        if !names.is_empty() {
            parts.push(format!("{word}: {}", names.join(", ")));
        }
    }
    // What differs, followed by where.
    parts.extend(describe_differing_parts(comparison));
    let within = figures::percent(comparison.options.equivalence_margin);
    for (call, word) in
        [(Call::Same, format!("the same within {within}")), (Call::CannotTell, "cannot tell".into())]
    {
        let names: Vec<String> = comparison.called(call).map(label).collect();
        if !names.is_empty() {
            parts.push(format!("{word}: {}", names.join(", ")));
        }
    }
    if parts.is_empty() {
        return "nothing was measured in both.".to_owned();
    }
    format!("{}.", parts.join("; "))
}

/// Parts named where a case differs in many; the table has all.
const MOST_PARTS: usize = 6;

/// In which parts of the trial the cases differ, the largest differences first; `None` if in none that was tested.
pub fn describe_differing_parts(comparison: &Comparison) -> Option<String> {
    let mut differing: Vec<&Row> = comparison.differing_details().collect();
    if differing.is_empty() {
        return None;
    }
    let size = |row: &Row| match (row.effect, row.scale) {
        (None, _) => 0.0,
        (Some(effect), Scale::Ratio) => effect.value.ln().abs(),
        (Some(effect), Scale::Difference) => effect.value.abs(),
    };
    differing.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let more = differing.len().saturating_sub(MOST_PARTS);
    let named: Vec<String> =
        differing.iter().take(MOST_PARTS).map(|row| format!("{} {}", label(row), by(row))).collect();
    let more = if more > 0 { format!(" and {more} more in the table") } else { String::new() };
    Some(format!("where: {}{more}", named.join(", ")))
}

/// How the comparisons were judged, which is the same for all except the number of trials.
fn describe_method(comparison: &Comparison, all: &[Comparison]) -> String {
    let (_, other) = comparison.trials;
    let counts = || all.iter().map(|one| one.trials.0);
    let (least, base) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let from = if least < base { format!("{least} to ") } else { String::new() };
    if comparison.method == Method::Sequential {
        return format!(
            "trials in {} of random order, tested after each round: a randomisation test of the signs of the \
             differences of logarithms, its error level spent over the rounds. If the cases are equal, at most one run in {} raises a false alarm, \
             whenever it stops and however many figures it compares. Each trial counts once, not each request.",
            from + &figures::plural(base as u64, "round", "rounds"),
            false_alarms(comparison)
        ) + &describe_controls(all);
    }
    let method = match comparison.method {
        Method::Paired | Method::Sequential => format!(
            "trials paired by round ({}), Student's t on the differences of their logarithms",
            from + &figures::plural(base as u64, "round", "rounds")
        ),
        Method::Welch => format!(
            "{from}{base} against {}, unpaired, Welch's t on their logarithms",
            figures::plural(other as u64, "trial", "trials")
        ),
    };
    let family = if comparison.details.is_empty() { "figures (Holm)" } else { "figures and parts" };
    format!(
        "{method}; one false alarm in {} comparisons of equal cases at most, however many {family}. The trial is the \
         unit, never the request.",
        false_alarms(comparison)
    ) + &describe_controls(all)
}

/// The smallest differences that the controls show to be visible in all comparisons, or that there is no control.
fn describe_controls(all: &[Comparison]) -> String {
    let rows = || all.iter().flat_map(|one| &one.rows);
    let of_figure = |of: &Row| {
        let same = rows().filter(|row| row.metric.id == of.metric.id);
        same.filter_map(|row| row.visible.filter(|visible| visible.is_finite())).reduce(f64::max)
    };
    let visible = |row: &Row| {
        let visible = of_figure(row)?;
        let text = match row.scale {
            Scale::Ratio => figures::percent(visible),
            Scale::Difference => points(visible),
        };
        Some(format!("{} {text}", label(row)))
    };
    if rows().all(|row| row.visible.is_none()) {
        return " No control.".to_owned();
    }
    let mut all: Vec<String> = Vec::new();
    for text in rows().filter_map(visible) {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    match all.is_empty() {
        true => " The control has too few rounds to show how small a difference is visible.".to_owned(),
        false => format!(" Smallest visible difference, by the control: {}.", all.join(", ")),
    }
}

/// The number of comparisons of equal cases of which at most one raises an alarm.
fn false_alarms(comparison: &Comparison) -> String {
    figures::number((1.0 / (1.0 - comparison.options.confidence)).round())
}

fn label(row: &Row) -> String {
    row.metric.title()
}

/// The size of a difference, in words.
fn by(row: &Row) -> String {
    let Some(effect) = row.effect else { return String::new() };
    let value = match row.scale {
        Scale::Ratio => ratio(effect.value),
        Scale::Difference => points(effect.value),
    };
    match effect.interval {
        Some(around) => format!("{value} ({})", interval(row.scale, around)),
        None => value,
    }
}

fn ratio(value: f64) -> String {
    format!("{} ×", figures::number(figures::round(value, 3)))
}

fn points(value: f64) -> String {
    format!("{:+} points", figures::round(value * 100.0, 2))
}

/// Ratios beyond this, and below its inverse, are only reported as such: their digits mean nothing.
const FAR: f64 = 1000.0;

fn interval(scale: Scale, around: ConfidenceInterval) -> String {
    let end = |v: f64| match scale {
        Scale::Ratio if v > FAR => format!("> {}", figures::number(FAR)),
        Scale::Ratio if v < 1.0 / FAR => format!("< {}", 1.0 / FAR),
        Scale::Ratio => figures::number(figures::round(v, 3)),
        Scale::Difference => format!("{:+}", figures::round(v * 100.0, 2)),
    };
    match scale {
        // Only one end is known.
        Scale::Ratio if around.high.is_infinite() => format!("≥ {}", end(around.low)),
        Scale::Ratio if around.low <= 0.0 => format!("≤ {}", end(around.high)),
        _ => format!("{} … {}", end(around.low), end(around.high)),
    }
}

/// A drawing with one row per figure; `None` if no figure has an interval.
fn ratios(comparison: &Comparison) -> Option<Ratios> {
    let row = |r: &Row| {
        let (call, weight) = call_text(r.call);
        let around = r.effect.and_then(|e| {
            let interval = e.interval?;
            Some(RangedValue { value: e.value, low: interval.low, high: interval.high })
        });
        let drawn = around.filter(|a| r.scale == Scale::Ratio && a.low > 0.0 && a.high.is_finite());
        let instead = match (r.scale, drawn, around) {
            (Scale::Ratio, None, Some(_)) | (Scale::Difference, ..) => r.effect.map(|_| by(r)),
            (Scale::Ratio, ..) => None,
        };
        Ratio { name: label(r), call: call.to_owned(), weight, value: drawn, instead }
    };
    let within = figures::percent(comparison.options.equivalence_margin);
    comparison.rows.iter().any(|r| r.effect.is_some_and(|e| e.interval.is_some())).then(|| Ratios {
        title: format!("{} over {}, with intervals", comparison.other, comparison.base),
        equivalence_margin: comparison.options.equivalence_margin,
        rows: comparison.rows.iter().map(row).collect(),
        note: Some(format!(
            "The scale is logarithmic: half and double are equally far from 1. Ratios inside the band are the same \
             within {within}; an interval that excludes 1 shows a difference."
        )),
    })
}

fn row(r: &Row) -> Vec<Cell> {
    let (word, weight) = call_text(r.call);
    let effect = r.effect.map_or(NOTHING.to_owned(), |e| match r.scale {
        Scale::Ratio => ratio(e.value),
        Scale::Difference => points(e.value),
    });
    let around = r.effect.and_then(|e| e.interval);
    vec![
        Cell { detail: Some(r.metric.about.to_string()), ..Cell::new(label(r)) },
        ranged(&r.base, r.metric.unit),
        ranged(&r.other, r.metric.unit),
        Cell::new(effect),
        Cell {
            detail: around.map(|i| figures::percent(i.confidence)),
            ..Cell::new(around.map_or(NOTHING.to_owned(), |i| interval(r.scale, i)))
        },
        Cell::new(word).with_weight(weight),
    ]
}

/// Where the differing figures differ; `None` if nothing was tested.
fn details(comparison: &Comparison) -> Option<Table> {
    if comparison.details.is_empty() {
        return None;
    }
    let mut table = Table {
        caption: format!("Where {} differs from {}", comparison.other, comparison.base),
        head: ["part", &comparison.base, &comparison.other, "ratio", "interval", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        text_columns: vec![5],
        rows: comparison.details.iter().map(row).collect(),
        note: Some(
            "A figure that differs is looked for in the parts of the trial, at the level that it leaves: figures and parts \
             together raise no more false alarms than figures alone. Parts of figures that do not differ are not tested."
                .into(),
        ),
    };
    drop_unknown_columns(&mut table);
    Some(table)
}

/// One row per figure.
pub fn table(comparison: &Comparison) -> Table {
    let (ratio_head, of) = match comparison.method {
        Method::Paired => (
            "paired ratio",
            " The ratio is paired: the geometric mean of the ratios within each round, not one column divided by the other.",
        ),
        Method::Sequential => (
            "paired ratio",
            " The ratio is paired: the geometric mean of the ratios within each round, of which outliers count in part; not \
             one column divided by the other.",
        ),
        Method::Welch => (
            "ratio of means",
            " The ratio is of geometric means over trials, not one column divided by the other.",
        ),
    };
    let of = if comparison.rows.iter().any(|r| r.effect.is_some()) { of } else { "" };
    let columns =
        "Columns are medians over trials (of an even number, the worse of the middle two) with their ranges.";
    let mut table = Table {
        caption: format!("{} against {}", comparison.other, comparison.base),
        head: ["figure", &comparison.base, &comparison.other, ratio_head, "interval", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        text_columns: vec![5],
        rows: comparison.rows.iter().map(row).collect(),
        note: Some(format!("{columns}{of}")),
    };
    drop_unknown_columns(&mut table);
    table
}

fn call_text(call: Call) -> (&'static str, Weight) {
    match call {
        Call::Better => ("better", Weight::Good),
        Call::Worse => ("worse", Weight::Bad),
        Call::Same => ("same", Weight::Plain),
        Call::Changed => ("changed", Weight::Doubtful),
        Call::CannotTell => ("cannot tell", Weight::Plain),
    }
}

/// Why some things are unknown, how many trials are needed, and what was left out.
fn remarks(comparison: &Comparison) -> Option<Vec<Remark>> {
    let remark = |label: &str, text: String| Remark {
        weight: Weight::Doubtful,
        label: label.to_owned(),
        text,
        hint: None,
    };
    let mut all: Vec<Remark> =
        comparison.why_not.iter().map(|why| remark("cannot tell", format!("{why}."))).collect();
    for row in &comparison.rows {
        if let Some(note) = &row.note {
            all.push(remark(&label(row), format!("{note}.")));
        } else if row.call == Call::CannotTell && comparison.why_not.is_none() {
            let text = match row.trials_needed {
                Some(n) => format!("about {n} trials of each would settle it, if they vary as these do."),
                None => "no realistic number of trials would settle it.".to_owned(),
            };
            all.push(remark(&label(row), text));
        }
    }
    all.extend(comparison.left_out.iter().map(|text| remark("left out", format!("{text}."))));
    (!all.is_empty()).then_some(all)
}
