//! Runs as Markdown tables, with medians over the rounds, and loadlab's targets beside the measurements. A missed
//! target is shown, never left out.

use std::fmt::Write;

use anyhow::Result;

/// The tool that all others are compared with.
pub const REFERENCE: &str = "wrk";

/// One run of one tool.
pub struct Run {
    /// Title of the row.
    pub title: String,
    /// Name of the tool.
    pub tool: &'static str,
    /// Number of the round, from 0.
    pub round: u64,
    /// A figure for each column, or the error that prevented the run.
    pub figures: Result<Vec<Option<f64>>>,
}

/// How a column's figures are written.
#[derive(Clone, Copy)]
pub enum Unit {
    /// A whole number.
    Whole,
    /// Milliseconds.
    Ms,
    /// Milliseconds, as microseconds.
    Us,
    /// Bytes, as megabytes.
    Mb,
    /// One figure divided by another.
    Ratio,
}

impl Unit {
    /// Formats a figure; `None` is a dash.
    pub fn text(self, value: Option<f64>) -> String {
        let Some(value) = value else { return "–".to_owned() };
        match self {
            Unit::Whole => thousands(value),
            Unit::Ms => format!("{value:.3} ms"),
            Unit::Us => format!("{} µs", thousands(value * 1e3)),
            Unit::Mb => format!("{:.1} MB", value / 1e6),
            Unit::Ratio => format!("{value:.3}"),
        }
    }
}

/// Columns of a table: headings and units.
pub type Columns<'c> = &'c [(&'c str, Unit)];

/// A line for each tool of each row: medians, each followed by its ratio to the `reference`, if there is one.
pub fn table(first: &str, columns: Columns, reference: Option<&str>, runs: &[Run]) -> String {
    let mut out = format!("| {first} | tool |");
    for (heading, _) in columns {
        let _ = write!(out, " {heading} |{}", reference.map_or(String::new(), |name| format!(" × {name} |")));
    }
    let count = columns.len() * (1 + usize::from(reference.is_some()));
    let _ = writeln!(out, "\n|---|---|{}", "---:|".repeat(count));
    let mut seen = Vec::new();
    for run in runs {
        let row = (run.title.as_str(), run.tool);
        if seen.contains(&row) {
            continue;
        }
        seen.push(row);
        let _ = write!(out, "| {} | {} |", run.title, run.tool);
        let mine = runs.iter().filter(|r| (r.title.as_str(), r.tool) == row);
        if let Some(error) = mine.clone().find_map(|r| r.figures.as_ref().err()) {
            let text = error.to_string().lines().next().unwrap_or_default().replace('|', "/");
            let _ = writeln!(out, " error: {text} |{}", " |".repeat(count - 1));
            continue;
        }
        for (i, (_, unit)) in columns.iter().enumerate() {
            let _ = write!(out, " {} |", unit.text(median_of(runs, row, i)));
            if let Some(reference) = reference {
                let ratio = ratio_of(runs, row.0, (row.1, reference), i);
                let _ = write!(out, " {} |", Unit::Ratio.text(ratio));
            }
        }
        out.push('\n');
    }
    out
}

/// A tool's figure in a row, for each round that has it.
pub fn rounds<'r>(
    runs: &'r [Run],
    (title, tool): (&'r str, &'r str),
    figure: usize,
) -> impl Iterator<Item = (u64, f64)> {
    let mine = runs.iter().filter(move |r| r.title == title && r.tool == tool);
    mine.filter_map(move |r| Some((r.round, (*r.figures.as_ref().ok()?.get(figure)?)?)))
}

/// The median of a tool's figure over rounds.
pub fn median_of(runs: &[Run], row: (&str, &str), figure: usize) -> Option<f64> {
    median(rounds(runs, row, figure).map(|(_, value)| value).collect())
}

/// A figure of one tool divided by another's within each round; the median of these ratios over rounds.
pub fn ratio_of(runs: &[Run], title: &str, (tool, other): (&str, &str), figure: usize) -> Option<f64> {
    let others: Vec<_> = rounds(runs, (title, other), figure).collect();
    let of = |round: u64| others.iter().find(|(r, _)| *r == round).map(|(_, value)| *value);
    median(rounds(runs, (title, tool), figure).filter_map(|(round, v)| Some(v / of(round)?)).collect())
}

/// A figure's limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
}

/// A target for a figure of a row.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The tool.
    pub of: &'static str,
    /// Index of the figure.
    pub figure: usize,
    /// The tool whose figure divides it; empty if there is none.
    pub against: &'static str,
    /// The limit.
    pub bound: Bound,
}

/// A target with its measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Title of the row.
    pub title: String,
    /// What is compared.
    pub what: String,
    /// The target.
    pub target: String,
    /// The measurement; `None` if it was not measured.
    pub measured: Option<String>,
    /// Whether the target is met.
    pub reached: bool,
}

impl Check {
    /// Compares a value with a bound, which `text` formats; `of` names what the bound is a multiple of.
    pub fn new(
        title: &str,
        what: String,
        value: Option<f64>,
        bound: Bound,
        of: &str,
        text: impl Fn(f64) -> String,
    ) -> Check {
        let (sign, limit, reached) = match bound {
            Bound::AtLeast(least) => ("≥", least, value.is_some_and(|v| v >= least)),
            Bound::AtMost(most) => ("≤", most, value.is_some_and(|v| v <= most)),
        };
        let target = format!("{sign} {}{of}", if of.is_empty() { text(limit) } else { limit.to_string() });
        Check { title: title.to_owned(), what, target, measured: value.map(text), reached }
    }

    /// Checks a row's target.
    pub fn of(target: &Target, title: &str, columns: Columns, runs: &[Run]) -> Check {
        let (heading, unit) = columns[target.figure];
        let what = format!("{}, {heading}", target.of);
        if target.against.is_empty() {
            let value = median_of(runs, (title, target.of), target.figure);
            return Check::new(title, what, value, target.bound, "", |v| unit.text(Some(v)));
        }
        let value = ratio_of(runs, title, (target.of, target.against), target.figure);
        let of = format!(" × {}", target.against);
        Check::new(title, what, value, target.bound, &of, |v| format!("{v:.3}"))
    }
}

/// All checks as a table.
pub fn checks_table(checks: &[Check]) -> String {
    let mut out = String::from("| case | what | target | measured | |\n|---|---|---|---:|---|\n");
    for Check { title, what, target, measured, reached } in checks {
        let verdict = match (reached, measured) {
            (true, _) => "reached",
            (false, Some(_)) => "**MISSED**",
            (false, None) => "**not measured**",
        };
        let measured = measured.as_deref().unwrap_or("–");
        let _ = writeln!(out, "| {title} | {what} | {target} | {measured} | {verdict} |");
    }
    out
}

/// The middle value, or the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

/// A whole number with thousands separators.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: Columns = &[("requests/s", Unit::Whole), ("p50", Unit::Us), ("peak", Unit::Mb)];

    fn run(tool: &'static str, round: u64, rate: f64, p50_ms: Option<f64>) -> Run {
        Run { title: "GET".to_owned(), tool, round, figures: Ok(vec![Some(rate), p50_ms, Some(1e7)]) }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_medians_over_rounds() {
        let mut runs = vec![
            run("wrk", 0, 1000.0, Some(1.0)),
            run("loadlab", 0, 1100.0, Some(0.5)),
            run("loadlab", 1, 2400.0, Some(1.5)),
            run("wrk", 1, 2000.0, Some(2.0)),
            run("wrk", 2, 4000.0, Some(4.0)),
            run("loadlab", 2, 6000.0, None),
        ];
        assert_eq!(
            table("case", COLUMNS, Some(REFERENCE), &runs),
            "| case | tool | requests/s | × wrk | p50 | × wrk | peak | × wrk |\n\
             |---|---|---:|---:|---:|---:|---:|---:|\n\
             | GET | wrk | 2,000 | 1.000 | 2,000 µs | 1.000 | 10.0 MB | 1.000 |\n\
             | GET | loadlab | 2,400 | 1.200 | 1,000 µs | 0.625 | 10.0 MB | 1.000 |\n"
        );
        runs[1].figures = Err(anyhow::anyhow!("it a|b\nfailed"));
        let text = table("case", COLUMNS, None, &runs);
        assert!(text.ends_with("| GET | loadlab | error: it a/b | | |\n"), "{text}");
        assert_eq!(ratio_of(&runs, "GET", ("loadlab", "ab"), 0), None);
    }

    #[test]
    fn bounds_hold_at_their_edge_and_a_miss_is_loud() {
        let runs = [run("wrk", 0, 1000.0, Some(1.0)), run("loadlab", 0, 1120.0, None)];
        let of = |figure: usize, bound: Bound, against: &'static str| {
            Check::of(&Target { of: "loadlab", figure, bound, against }, "GET", COLUMNS, &runs)
        };
        let checks = [
            of(0, Bound::AtLeast(1.12), "wrk"),
            of(0, Bound::AtLeast(1.13), "wrk"),
            of(1, Bound::AtMost(1.05), "wrk"),
            of(2, Bound::AtMost(1e7), ""),
        ];
        assert_eq!(
            checks_table(&checks),
            "| case | what | target | measured | |\n|---|---|---|---:|---|\n\
             | GET | loadlab, requests/s | ≥ 1.12 × wrk | 1.120 | reached |\n\
             | GET | loadlab, requests/s | ≥ 1.13 × wrk | 1.120 | **MISSED** |\n\
             | GET | loadlab, p50 | ≤ 1.05 × wrk | – | **not measured** |\n\
             | GET | loadlab, peak | ≤ 10.0 MB | 10.0 MB | reached |\n"
        );
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([1.0, 999.6, 12_345.0, 1_234_567.0].map(thousands), ["1", "1,000", "12,345", "1,234,567"]);
        assert_eq!((median(vec![]), median(vec![3.0, 1.0])), (None, Some(2.0)));
    }
}
