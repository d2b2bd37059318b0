//! The table of the closed rows: medians over the rounds, as figures and as ratios to wrk.

use std::fmt::Write;

use anyhow::Result;

use super::Figures;
use super::cases::Case;
use super::targets::{Check, Figure};
use super::tools::Tool;

/// What all are compared with.
pub const REFERENCE: &str = "wrk";
/// Columns behind the tool's name.
const COLUMNS: usize = 9;

/// One run of one tool.
pub struct Run {
    /// Which tool.
    pub tool: &'static str,
    /// Which case.
    pub case: &'static str,
    /// From 0.
    pub round: u64,
    /// What it gave, or why it did not.
    pub figures: Result<Figures>,
}

/// The table, in Markdown, with the reasons why a tool is not in a row below it.
pub fn table(cases: &[&Case], tools: &[&Tool], runs: &[Run]) -> String {
    let mut out = String::from(
        "| case | tool | requests per CPU-second | × wrk | MB per CPU-second | requests/s | × wrk | p50 | × wrk | \
         peak memory | × wrk |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut notes: Vec<&str> = Vec::new();
    for case in cases {
        for tool in tools.iter().filter(|t| !case.spares(t.name)) {
            let cells = match case.cannot(tool.name) {
                None => cells(runs, case, tool.name),
                Some(why) => {
                    let known = notes.iter().position(|n| *n == why);
                    let number = known.unwrap_or_else(|| {
                        notes.push(why);
                        notes.len() - 1
                    });
                    format!("– ({}){}", number + 1, " |".repeat(COLUMNS - 1))
                }
            };
            let _ = writeln!(out, "| {} | {} | {cells} |", case.title, tool.name);
        }
    }
    for (number, why) in notes.iter().enumerate() {
        let _ = write!(out, "{}({}) {why}. ", if number == 0 { "\n" } else { "" }, number + 1);
    }
    out.trim_end().to_owned() + "\n"
}

/// The targets of the rows, beside what was measured; those between tools that were `asked`.
pub fn checks(cases: &[&Case], asked: impl Fn(&str) -> bool, runs: &[Run]) -> Vec<Check> {
    let mut checks = Vec::new();
    for case in cases {
        for target in case.targets.iter().filter(|t| asked(t.of) && asked(t.against)) {
            let ratio = ratio_of(runs, case.name, (target.of, target.against), target.figure);
            checks.push(Check::of_ratio(case.title, target, ratio));
        }
    }
    checks
}

/// loadlab divided by its other revision, figure by figure; nothing where that did not run.
pub fn against_before(cases: &[&Case], runs: &[Run]) -> Option<String> {
    let mut out = String::from(
        "| × before | tool | requests per CPU-second | requests/s | p50 | peak memory |\n|---|---|---:|---:|---:|---:|\n",
    );
    let mut any = false;
    for case in cases {
        for pair in [("loadlab", "before"), ("loadlab-epoll", "before-epoll")] {
            let ratio = |figure: Figure| ratio_of(runs, case.name, pair, figure);
            if ratio(Figure::Rate).is_none() {
                continue;
            }
            any = true;
            let cell = |figure| ratio(figure).map_or("–".to_owned(), |v| format!("{v:.3}"));
            let [per_cpu, rate, p50, peak] =
                [Figure::PerCpu, Figure::Rate, Figure::P50, Figure::Peak].map(cell);
            let _ = writeln!(out, "| {} | {} | {per_cpu} | {rate} | {p50} | {peak} |", case.title, pair.0);
        }
    }
    any.then_some(out)
}

/// A figure of one tool divided by another's, within a round; the median over rounds.
fn ratio_of(runs: &[Run], case: &str, (tool, other): (&str, &str), figure: Figure) -> Option<f64> {
    let of = |tool: &str, round: u64| {
        let run = runs.iter().find(|r| r.case == case && r.tool == tool && r.round == round)?;
        figure.of(run.figures.as_ref().ok()?)
    };
    let rounds = runs.iter().filter(|r| r.case == case && r.tool == tool).map(|r| r.round);
    median(rounds.filter_map(|round| Some(of(tool, round)? / of(other, round)?)).collect())
}

/// A tool's cells in a case.
fn cells(runs: &[Run], case: &Case, tool: &str) -> String {
    let mine: Vec<_> = runs.iter().filter(|r| r.case == case.name && r.tool == tool).collect();
    if let Some(error) = mine.iter().find_map(|r| r.figures.as_ref().err()) {
        let text = error.to_string().lines().next().unwrap_or_default().replace('|', "/");
        return format!("error: {text}{}", " |".repeat(COLUMNS - 1));
    }
    let value =
        |figure: Figure| median(mine.iter().filter_map(|r| figure.of(r.figures.as_ref().ok()?)).collect());
    let ratio = |figure: Figure| {
        ratio_of(runs, case.name, (tool, REFERENCE), figure).map_or("–".to_owned(), |v| format!("{v:.3}"))
    };
    let whole = |v: Option<f64>| v.map_or("–".to_owned(), |v| thousands(v.round()));
    let per_cpu = value(Figure::PerCpu);
    let bytes = case.body_bytes.and_then(|bytes| Some(per_cpu? * bytes as f64 / 1e6));
    let p50 = match value(Figure::P50) {
        Some(ms) => format!("{ms:.3} ms"),
        None => mine
            .iter()
            .find_map(|r| r.figures.as_ref().ok())
            .map_or("–".to_owned(), |f| f.reported.p50.to_string()),
    };
    let peak = value(Figure::Peak).map_or("–".to_owned(), |p| format!("{:.1} MB", p / 1e6));
    format!(
        "{} | {} | {} | {} | {} | {p50} | {} | {peak} | {}",
        whole(per_cpu),
        ratio(Figure::PerCpu),
        whole(bytes),
        whole(value(Figure::Rate)),
        ratio(Figure::Rate),
        ratio(Figure::P50),
        ratio(Figure::Peak)
    )
}

/// The one in the middle, or the mean of the two there.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

/// A number as people read it.
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
    use crate::peers::cases::CASES;
    use crate::peers::measure::Used;
    use crate::peers::parse::{P50, Reported};

    fn run(tool: &'static str, round: u64, requests: f64, p50: P50) -> Run {
        let reported = Reported { requests, rate_per_s: requests / 10.0, p50 };
        let used = Used { cpu_s: 2.0, peak_bytes: 10_000_000 };
        Run { tool, case: CASES[0].name, round, figures: Ok(Figures { reported, used }) }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_medians_over_rounds() {
        let runs = [
            run("wrk", 0, 1000.0, P50::Ms(1.0)),
            run("wrk", 1, 2000.0, P50::Ms(2.0)),
            run("wrk", 2, 4000.0, P50::Ms(4.0)),
            run("loadlab", 0, 1100.0, P50::Ms(0.5)),
            run("loadlab", 1, 2400.0, P50::Ms(1.5)),
            run("loadlab", 2, 6000.0, P50::Ms(4.0)),
        ];
        assert_eq!(against_before(&[&CASES[0]], &runs), None);
        let found = cells(&runs, &CASES[0], "loadlab");
        assert_eq!(found, "1,200 | 1.200 | – | 240 | 1.200 | 1.500 ms | 0.750 | 10.0 MB | 1.000");
        let found = cells(&runs, &CASES[0], "wrk");
        assert_eq!(found, "1,000 | 1.000 | – | 200 | 1.000 | 2.000 ms | 1.000 | 10.0 MB | 1.000");
    }

    #[test]
    fn another_revision_is_compared_round_by_round() {
        let runs = [
            run("before", 0, 1000.0, P50::Ms(1.0)),
            run("before", 1, 2000.0, P50::Ms(2.0)),
            run("loadlab", 0, 1100.0, P50::Ms(1.0)),
            run("loadlab", 1, 2600.0, P50::Ms(1.0)),
        ];
        let found = against_before(&[&CASES[0]], &runs).expect("both ran");
        let line = found.lines().nth(2).expect("a row");
        assert_eq!(line, format!("| {} | loadlab | 1.200 | 1.200 | 0.750 | 1.000 |", CASES[0].title));
        assert_eq!(found.lines().count(), 3, "{found}");
    }

    #[test]
    fn what_a_tool_does_not_tell_and_what_fails_is_shown() {
        let mut runs = vec![run("wrk", 0, 1000.0, P50::Ms(1.0)), run("siege", 0, 500.0, P50::NotReported)];
        let found = cells(&runs, &CASES[0], "siege");
        assert_eq!(found, "250 | 0.500 | – | 50 | 0.500 | not reported | – | 10.0 MB | 1.000");
        runs[1].figures = Err(anyhow::anyhow!("siege's output cannot be read:\nxyz"));
        let found = cells(&runs, &CASES[0], "siege");
        assert_eq!(found, "error: siege's output cannot be read: | | | | | | | |");
        assert_eq!(found.matches('|').count(), 8, "as many cells as others");
    }

    #[test]
    fn medians_and_thousands() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!([0.0, 999.0, 1000.0, 1234567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
