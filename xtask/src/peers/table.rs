//! Medians over the rounds, as figures and as ratios to wrk, in one table; and the page that keeps the last one.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::measure::Cores;
use super::tools::Tool;
use super::{CASES, Figures};
use crate::command::{captured, find, program};
use crate::root::root;

/// Where the last table is kept, relative to the repository.
pub const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- bench-peers: begin -->";
const END: &str = "<!-- bench-peers: end -->";
/// What all are compared with.
const REFERENCE: &str = "wrk";

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

/// The table, in Markdown.
pub fn table(tools: &[&Tool], runs: &[Run]) -> String {
    let mut out = String::from(
        "| case | tool | requests per CPU-second | × wrk | requests/s | × wrk | p50 | × wrk | peak memory | × wrk |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for case in CASES {
        for tool in tools {
            let _ =
                writeln!(out, "| {} | {} | {} |", case.name, tool.name, cells(runs, case.name, tool.name));
        }
    }
    out
}

/// A tool's cells in a case.
fn cells(runs: &[Run], case: &str, tool: &str) -> String {
    let of = |name: &'static str| move |r: &&Run| r.case == case && r.tool == name;
    let mine: Vec<_> = runs.iter().filter(|r| r.case == case && r.tool == tool).collect();
    if let Some(error) = mine.iter().find_map(|r| r.figures.as_ref().err()) {
        let text = error.to_string().lines().next().unwrap_or_default().replace('|', "/");
        return format!("error: {text} | | | | | | | ");
    }
    let reference: Vec<_> = runs.iter().filter(of(REFERENCE)).collect();
    // Within a round, then the median over rounds.
    let column = |figure: &dyn Fn(&Figures) -> Option<f64>| {
        let values = mine.iter().filter_map(|r| figure(r.figures.as_ref().ok()?)).collect();
        let ratios = mine.iter().filter_map(|r| {
            let other = reference.iter().find(|o| o.round == r.round)?;
            Some(figure(r.figures.as_ref().ok()?)? / figure(other.figures.as_ref().ok()?)?)
        });
        (median(values), ratio(median(ratios.collect())))
    };
    let whole = |v: Option<f64>| v.map_or("–".to_owned(), |v| thousands(v.round()));
    let (per_cpu, per_cpu_ratio) = column(&|f| Some(f.per_cpu_s()));
    let (rate, rate_ratio) = column(&|f| Some(f.told.rate_per_s));
    let (p50, p50_ratio) = column(&|f| f.told.p50.ms());
    let (peak, peak_ratio) = column(&|f| Some(f.used.peak_bytes as f64));
    let first = mine.iter().find_map(|r| r.figures.as_ref().ok());
    let p50 = match p50 {
        Some(ms) => format!("{ms:.3} ms"),
        None => first.map_or("–".to_owned(), |f| f.told.p50.to_string()),
    };
    let peak = peak.map_or("–".to_owned(), |p| format!("{:.1} MB", p / 1e6));
    format!(
        "{} | {per_cpu_ratio} | {} | {rate_ratio} | {p50} | {p50_ratio} | {peak} | {peak_ratio}",
        whole(per_cpu),
        whole(rate)
    )
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.3}"))
}

/// The one in the middle, or the mean of the two there.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

fn thousands(value: f64) -> String {
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

/// Puts the table on its page, with what it was made on; the page's name.
///
/// # Errors
/// The page cannot be read or written, or has no place for it.
pub fn keep(
    table: &str,
    tools: &[&Tool],
    (seconds, rounds): (u64, u64),
    cores: &Cores,
) -> Result<&'static str> {
    let mut versions: Vec<_> = tools.iter().map(|t| t.told_version()).collect();
    versions.push(nginx_version());
    let mut made = format!(
        "{}, {}, {} cores, {}. Medians of {rounds} rounds of {seconds} s; ratios to wrk are taken within each round.\n",
        line_of("date", &["-u", "+%Y-%m-%d"]),
        cpu_model(),
        std::thread::available_parallelism().map_or(0, usize::from),
        line_of("uname", &["-sr"])
    );
    if let Some(remark) = cores.remark() {
        let _ = writeln!(made, "{remark}.");
    }
    let text = format!("{made}\n{table}\nVersions: {}.\n", versions.join(" · "));
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
    fs::write(&path, replaced(&page, &text)?)?;
    Ok(PAGE)
}

/// A page with other text between its marks.
fn replaced(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no `{BEGIN}`"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} has no `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n{text}{END}{after}"))
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name"));
    let model = line.and_then(|l| l.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| "an unnamed CPU".to_owned())
}

fn nginx_version() -> String {
    let Some(path) = find("nginx") else { return "nginx".to_owned() };
    let ran = captured(program(path).arg("-v"), Duration::from_secs(10));
    let said = ran.map(|r| r.stderr).unwrap_or_default();
    said.trim().rsplit(": ").next().unwrap_or("nginx").to_owned()
}

fn line_of(name: &str, arguments: &[&str]) -> String {
    let ran = captured(program(name).args(arguments), Duration::from_secs(10));
    ran.map(|r| r.stdout.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::measure::Used;
    use crate::peers::parse::{P50, Told};

    fn run(tool: &'static str, round: u64, requests: f64, p50: P50) -> Run {
        let told = Told { requests, rate_per_s: requests / 10.0, p50 };
        let used = Used { cpu_s: 2.0, peak_bytes: 10_000_000 };
        Run { tool, case: CASES[0].name, round, figures: Ok(Figures { told, used }) }
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
        let found = cells(&runs, CASES[0].name, "loadlab");
        assert_eq!(found, "1,200 | 1.200 | 240 | 1.200 | 1.500 ms | 0.750 | 10.0 MB | 1.000");
        let found = cells(&runs, CASES[0].name, "wrk");
        assert_eq!(found, "1,000 | 1.000 | 200 | 1.000 | 2.000 ms | 1.000 | 10.0 MB | 1.000");
    }

    #[test]
    fn what_a_tool_does_not_tell_and_what_fails_is_shown() {
        let mut runs = vec![run("wrk", 0, 1000.0, P50::Ms(1.0)), run("siege", 0, 500.0, P50::Untold)];
        let found = cells(&runs, CASES[0].name, "siege");
        assert_eq!(found, "250 | 0.500 | 50 | 0.500 | untold | – | 10.0 MB | 1.000");
        runs[1].figures = Err(anyhow::anyhow!("siege's output cannot be read:\nxyz"));
        let found = cells(&runs, CASES[0].name, "siege");
        assert_eq!(found, "error: siege's output cannot be read: | | | | | | | ");
        assert_eq!(found.matches('|').count(), 7, "as many cells as others");
    }

    #[test]
    fn the_page_keeps_what_stands_around_the_table() {
        let page = format!("# Benchmarks\n\n{BEGIN}\nold\n{END}\n\nEnd.\n");
        let expect = format!("# Benchmarks\n\n{BEGIN}\nnew\n{END}\n\nEnd.\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), expect);
        assert!(replaced("# Benchmarks\n", "new").is_err());
    }

    #[test]
    fn medians_and_thousands() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!([0.0, 999.0, 1000.0, 1234567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
