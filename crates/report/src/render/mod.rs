//! Documents → text in one form or another.

pub mod html;
pub mod markdown;
pub mod text;

use loadlab_record::summary::Verdict;

use crate::document::Line;

/// A verdict in a word.
pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Invalid => "INVALID",
        Verdict::None => "no verdict",
    }
}

/// A line of a chart in figures: smallest, mean and largest.
struct LineFigures {
    min: f64,
    mean: f64,
    max: f64,
}

fn line_figures(line: &Line) -> Option<LineFigures> {
    let known: Vec<f64> = line.values.iter().flatten().copied().collect();
    if known.is_empty() {
        return None;
    }
    Some(LineFigures {
        min: known.iter().copied().fold(f64::INFINITY, f64::min),
        mean: known.iter().sum::<f64>() / known.len() as f64,
        max: known.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// At most so many values: neighbours together, the largest standing for them.
fn thinned(values: &[Option<f64>], most: usize) -> Vec<Option<f64>> {
    let step = values.len().div_ceil(most.max(1)).max(1);
    values.chunks(step).map(|c| c.iter().flatten().copied().reduce(f64::max)).collect()
}
