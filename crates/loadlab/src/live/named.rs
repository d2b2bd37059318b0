//! The figures that a plan names, in words.

use loadlab_analysis::metric::{self, Metric};
use loadlab_record::figure::FigureValue;
use loadlab_record::manifest::FigureFacts;
use loadlab_record::summary::Summary;
use loadlab_report::figures;

/// Figures that matter which a line of text names.
pub const IN_LINE: usize = 3;

/// What a figure that matters came to: an estimate where samples are few, `–` while nothing is known.
pub fn figure(facts: &FigureFacts, value: &FigureValue) -> String {
    figures::in_cell(metric::of_figure(value, facts.kind), &Metric::of_plan(facts)).0
}

/// The first figures that matter, each with its name; `None` where the plan names none.
pub fn first_figures(facts: &[FigureFacts], summary: &Summary) -> Option<String> {
    let nothing = FigureValue::default();
    let words = |f: &FigureFacts| {
        format!("{} {}", f.name, figure(f, summary.figures.get(&f.name).unwrap_or(&nothing)))
    };
    let words: Vec<String> = facts.iter().take(IN_LINE).map(words).collect();
    (!words.is_empty()).then(|| words.join(", "))
}
