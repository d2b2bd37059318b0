//! Documents → text in various formats.

pub(crate) mod cases;
pub mod html;
pub mod markdown;
pub mod text;

use loadlab_record::documents::summary::Verdict;

use loadlab_analysis::cases::metric::Value;

use crate::document::{Heat, Line, Ratio, Ratios};
use crate::figures;
use crate::plane::Plane;
use crate::terminal::{cut, harmless, right, width_of};

/// A verdict as a single word.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Invalid => "INVALID",
        Verdict::Undecided => "UNDECIDED",
        Verdict::None => "no verdict",
    }
}

/// A line of a chart in figures: smallest, mean and largest.
struct LineFigures {
    min: f64,
    max: f64,
}

fn line_figures(line: &Line) -> Option<LineFigures> {
    let known: Vec<f64> = line.values.iter().flatten().copied().collect();
    if known.is_empty() {
        return None;
    }
    Some(LineFigures {
        min: known.iter().copied().fold(f64::INFINITY, f64::min),
        max: known.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// At most this many values: neighbours are merged, keeping the largest.
fn thinned(values: &[Option<f64>], most: usize) -> Vec<Option<f64>> {
    let step = values.len().div_ceil(most.max(1)).max(1);
    values.chunks(step).map(|c| c.iter().flatten().copied().reduce(f64::max)).collect()
}

/// A ratio in its interval as a line `columns` wide, 1 in the middle: `    ├──●───┤ ┆    `.
fn ratio_line(ratios: &Ratios, ratio: &Ratio, columns: usize) -> String {
    let at = |v: f64| (ratios.place(v) * columns.saturating_sub(1) as f64).round() as usize;
    let mut line = vec![' '; columns];
    let mut put = |place: usize, c: char| {
        if let Some(slot) = line.get_mut(place) {
            *slot = c;
        }
    };
    put(at(1.0), '┆');
    if let Some(v) = ratio.value {
        (at(v.low)..=at(v.high)).for_each(|place| put(place, '─'));
        put(at(v.low), '├');
        put(at(v.high), '┤');
        put(at(v.value), '●');
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

/// A heat map in shades of blocks, slow above fast: each line with the upper edge of its row. At most this many
/// columns and rows: neighbours are added up.
fn shades(heat: &Heat, columns: usize, rows: usize) -> Vec<(f64, String)> {
    let all = heat.edges.len().saturating_sub(1);
    let (across, down) =
        (heat.columns.len().div_ceil(columns.max(1)).max(1), all.div_ceil(rows.max(1)).max(1));
    let cells: Vec<Vec<u64>> = heat
        .columns
        .chunks(across)
        .map(|group| {
            let row_of =
                |row: usize| group.iter().map(|c| c[row..(row + down).min(all)].iter().sum::<u64>()).sum();
            (0..all).step_by(down).map(row_of).collect()
        })
        .collect();
    let most = cells.iter().flatten().copied().max().unwrap_or(0);
    let shade = |count: u64| match Heat::strength(count, most) {
        0.0 => ' ',
        s if s < 0.35 => '░',
        s if s < 0.6 => '▒',
        s if s < 0.85 => '▓',
        _ => '█',
    };
    let line = |row: usize| {
        let edge = heat.edges[((row + 1) * down).min(all)];
        (edge, cells.iter().map(|column| shade(column[row])).collect())
    };
    (0..all.div_ceil(down)).rev().map(line).collect()
}

/// Rows of a heat map drawn in blocks.
const HEAT_ROWS: usize = 12;
/// Signs of the groups of a drawing in text.
const SIGNS: [char; 4] = ['●', '○', '◆', '◇'];

/// A drawing of points as text, lines at most `width` columns wide: points over their ranges over curves over marks,
/// the axes' ends beside and below, and a legend of the signs at the end.
fn plane_lines(plane: &Plane, width: usize, rows: usize) -> Vec<String> {
    let (across, up) = plane.scales();
    let described = |v: f64, unit| figures::value(Value::Known(v), unit);
    let heights: Vec<(usize, String)> = up
        .labels(&plane.up)
        .into_iter()
        .map(|(v, text)| (rows - 1 - (up.place(v) * (rows - 1) as f64).round() as usize, text))
        .collect();
    let beside = heights.iter().map(|(_, t)| width_of(t)).max().unwrap_or(0);
    let columns = width.saturating_sub(beside + 3).max(8);
    let x = |v: f64| (across.place(v) * (columns - 1) as f64).round() as usize;
    let y = |v: f64| rows - 1 - (up.place(v) * (rows - 1) as f64).round() as usize;
    let mut grid = vec![vec![' '; columns]; rows];
    for mark in plane.marks.iter().filter(|m| across.holds(m.at)) {
        grid.iter_mut().for_each(|row| row[x(mark.at)] = '┆');
    }
    for mark in plane.heights.iter().filter(|m| up.holds(m.at)) {
        grid[y(mark.at)].fill('┄');
    }
    for (at, value) in plane.curves.iter().flat_map(|c| &c.line) {
        grid[y(value.value)][x(*at)] = '·';
    }
    for spot in plane.groups.iter().flat_map(|g| &g.spots) {
        (y(spot.up.high)..=y(spot.up.low)).for_each(|row| grid[row][x(spot.across.value)] = '│');
    }
    for (i, group) in plane.groups.iter().enumerate() {
        group.spots.iter().for_each(|s| grid[y(s.up.value)][x(s.across.value)] = SIGNS[i % SIGNS.len()]);
    }
    let label = |row: usize| heights.iter().find(|(at, _)| *at == row).map_or("", |(_, text)| text.as_str());
    let line = |(i, row): (usize, Vec<char>)| {
        format!("{} │{}", right(label(i), beside), row.into_iter().collect::<String>())
    };
    let mut lines: Vec<String> = grid.into_iter().enumerate().map(line).collect();
    let below: Vec<(usize, String)> =
        across.labels(&plane.across).into_iter().map(|(v, text)| (x(v), harmless(&text))).collect();
    lines.push(format!("{}  {}", " ".repeat(beside), labels_line(&below, columns)));
    lines.push(format!("{}  {}", " ".repeat(beside), legend_text(plane, &described)));
    lines.into_iter().map(|l| cut(l.trim_end(), width)).collect()
}

/// Labels below their positions unless they collide; the last one takes precedence, since readers look for it.
fn labels_line(labels: &[(usize, String)], columns: usize) -> String {
    let mut line = vec![' '; columns];
    for (at, text) in labels.iter().rev() {
        let text: Vec<char> = cut(text, columns / 2).chars().collect();
        let from = at.saturating_sub(text.len() / 2).min(columns.saturating_sub(text.len()));
        let around = from.saturating_sub(2)..(from + text.len() + 2).min(columns);
        if line[around].iter().all(|c| *c == ' ') {
            line.splice(from..from + text.len(), text);
        }
    }
    line.into_iter().collect()
}

/// `● goodput · law ┆ knee 12, over users`.
fn legend_text(
    plane: &Plane,
    described: &dyn Fn(f64, loadlab_analysis::cases::metric::Unit) -> String,
) -> String {
    let groups = plane
        .groups
        .iter()
        .enumerate()
        .map(|(i, g)| format!("{} {}", SIGNS[i % SIGNS.len()], harmless(&g.name)));
    let curves = plane.curves.iter().map(|c| format!("· {}", harmless(&c.name)));
    let marks = plane.marks.iter().map(|m| format!("┆ {}", harmless(&m.text)));
    let heights =
        plane.heights.iter().map(|m| format!("┄ {} {}", harmless(&m.text), described(m.at, plane.up.unit)));
    let all: Vec<String> = groups.chain(curves).chain(marks).chain(heights).collect();
    format!("{}, over {}", all.join("  "), harmless(&plane.across.name))
}
