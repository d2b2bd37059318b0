//! The reports of a run. The written ones equal what `loadlab report` makes from the record, byte for byte and every
//! time; what they show of each case matches the record; and the page is self-contained.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::record::text;
use super::tables::{Table, shows};
use super::{Claims, Record, loadlab};
use crate::command::{captured, program};

/// Time limit for making one report.
const LONGEST: Duration = Duration::from_secs(120);

/// The page's own content security policy: nothing is loaded from outside, and only its own scripts run.
const LOADS_NOTHING: &str = "content=\"default-src 'none'; script-src 'sha256-";

/// Figures in every report: name, path in `summary.json`, and the factor from the record's unit to the report's.
const FIGURES: [(&str, &str, f64); 13] = [
    ("transactions", "statuses/*", 1.0),
    ("availability", "availability", 1.0),
    ("elapsed_time", "elapsed_s", 1.0),
    ("data_transferred", "bytes/received", 1.0),
    ("response_time", "response_ms/mean", 1.0),
    ("transaction_rate", "rate_per_s/ok", 1.0),
    ("concurrency", "concurrency_mean", 1.0),
    ("successful_transactions", "requests/ok", 1.0),
    ("failed_transactions", "requests/failed", 1.0),
    ("longest_transaction", "response_ms/max", 1.0),
    ("shortest_transaction", "response_ms/min", 1.0),
    ("goodput_max", "rate_per_s/ok_max", 1.0),
    ("p50", "response_ms/p50", 1.0),
];
/// Relative error that a number may gain as text.
const CLOSE: f64 = 1e-9;

/// Makes every format of report, twice, and checks them. `terminal` is what the run itself printed.
///
/// # Errors
/// A report cannot be made or read.
pub fn check(record: &Record, terminal: &str, claims: &mut Claims) -> Result<()> {
    let formats = ["text", "md", "html", "json", "csv"];
    let markdown = report(record, "md")?;
    let shown = Shown::read(record, &markdown, claims);
    check_usage(record, &markdown, claims);
    for format in formats {
        let first = report(record, format)?;
        let second = report(record, format)?;
        claims.claim(first == second, || format!("report --format {format} differs when made twice"));
        if format != "json" && format != "csv" {
            shown.is_in(format, &first, claims);
        }
        match format {
            "md" | "html" => {
                let path = record.dir.join(format!("report.{format}"));
                let written = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                claims.claim(written == first, || {
                    format!("{} is not what `loadlab report` makes", path.display())
                });
            }
            "json" => check_json(record, &first, claims),
            "csv" => {
                check_csv(&first, claims);
                check_figures(record, &first, claims);
            }
            _ => {}
        }
    }
    claims.claim(terminal.contains("report.html"), || "the run does not say where its report is".to_owned());
    // A browser refuses anything a page with this policy loads, and logs an error: `reports in a browser` checks for
    // that.
    let page = fs::read_to_string(record.dir.join("report.html"))?;
    claims.claim(page.contains(LOADS_NOTHING), || "report.html may load what is outside of it".to_owned());
    Ok(())
}

/// What the table of cases shows: a row for each case, with a cell for each of the plan's figures.
struct Shown(Vec<(String, Vec<String>)>);

impl Shown {
    /// Reads the Markdown report of a record with one trial per case. Cells must show the figures of its summaries, or
    /// not be empty where the record has none.
    fn read(record: &Record, markdown: &str, claims: &mut Claims) -> Shown {
        let table = Table::after(markdown, "\n## Cases\n");
        claims.claim(table.is_some(), || "report.md has no table of cases".to_owned());
        let figures = record.figures();
        claims.claim(!figures.is_empty(), || "the plan has no figures".to_owned());
        let mut rows = Vec::new();
        for trial in &record.trials {
            let name = record.row(trial).to_owned();
            let mut cells = Vec::new();
            for (figure, in_tables) in &figures {
                let cell = table.as_ref().and_then(|table| table.cell(&name, figure));
                let what = || format!("{}: report.md shows {cell:?} as `{figure}`", trial.case);
                match trial.figure(figure) {
                    Some(value) => {
                        claims.claim(shows(cell, value * in_tables), || format!("{}, not {value}", what()));
                    }
                    // A lower bound, an estimate, or a dash.
                    None => claims.claim(cell.is_some_and(|cell| !cell.is_empty()), what),
                }
                cells.extend(cell.map(|cell| cell.split(" (").next().unwrap_or(cell).to_owned()));
            }
            rows.push((name, cells));
        }
        Shown(rows)
    }

    /// Another format shows the same names and cells: each name's in its row, and in the same order.
    fn is_in(&self, format: &str, report: &str, claims: &mut Claims) {
        let plain = |cell: &String| cell.trim_start_matches('~').to_owned();
        let rows = match format {
            "html" => rows_of_page(report),
            "text" => rows_of_text(report),
            // Markdown is what the cells were read from.
            _ => return,
        };
        for (name, cells) in &self.0 {
            let cells: Vec<String> = cells.iter().map(plain).collect();
            let is_row = |row: &Vec<String>| {
                let mut rest = row.iter().skip(1);
                row.first() == Some(name) && cells.iter().all(|cell| rest.any(|text| text == cell))
            };
            claims.claim(rows.iter().any(is_row), || {
                format!("report --format {format} has no row of {name} with {cells:?} in this order")
            });
        }
    }
}

/// The rows of a page's tables that begin with a name: the texts between tags.
fn rows_of_page(page: &str) -> Vec<Vec<String>> {
    let rows = page.split("<tr>").filter_map(|row| row.split("</tr>").next());
    let rows = rows.filter(|row| row.starts_with("<th scope=\"row\""));
    let unescaped = |text: &str| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let texts = |row: &str| -> Vec<String> {
        let after_tags = row.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text.trim());
        after_tags
            .filter(|text| !text.is_empty())
            .map(|text| unescaped(text).trim_start_matches('~').to_owned())
            .collect()
    };
    rows.map(texts).collect()
}

/// The rows of a text's table of cases. A table that is too wide continues below, with its first heading and the names
/// once more.
fn rows_of_text(report: &str) -> Vec<Vec<String>> {
    let section = report.split_once("\nCases\n═").map_or("", |(_, rest)| rest);
    let (mut rows, mut heading): (Vec<Vec<String>>, Option<String>) = (Vec::new(), None);
    let mut is_first = true;
    // After the rest of the line below the title.
    for line in section.lines().skip(1) {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let mut cells = cells.map(|cell| cell.trim_start_matches('~').to_owned());
        match cells.next() {
            None => is_first = true,
            // A range over trials is below its figure.
            Some(_) if line.starts_with(' ') => {}
            Some(name) if is_first => {
                if heading.get_or_insert_with(|| name.clone()) != &name {
                    break;
                }
                is_first = false;
            }
            Some(name) => match rows.iter_mut().find(|row| row[0] == name) {
                Some(row) => row.extend(cells),
                None => rows.push([name].into_iter().chain(cells).collect()),
            },
        }
    }
    rows
}

/// The table of what each component used has a row for each component, which matches its summary.
fn check_usage(record: &Record, markdown: &str, claims: &mut Claims) {
    const COLUMNS: [(&str, &str, f64); 5] = [
        ("CPU %", "cpu_percent/mean", 1.0),
        ("CPU s", "cpu_s", 1e3),
        ("memory mean", "memory_bytes/mean", 1.0),
        ("pids", "pids_max", 1.0),
        ("open files", "open_files_max", 1.0),
    ];
    for trial in &record.trials {
        let case = &trial.case;
        let section = markdown.split_once(&format!("\n## {case} (")).map_or("", |(_, rest)| rest);
        let Some(table) = Table::after(section, "\n**Component usage during the load**\n") else {
            return claims.claim(false, || format!("{case}: report.md does not show what components used"));
        };
        let components = trial.summary["components"].as_object();
        claims.claim(components.is_some_and(|all| !all.is_empty()), || format!("{case}: no components"));
        for name in components.into_iter().flatten().map(|(name, _)| name) {
            for (column, path, unit) in COLUMNS {
                let value = trial.number(&format!("components/{name}/{path}"));
                let cell = table.cell(name, column);
                let holds = if value.is_nan() { cell == Some("–") } else { shows(cell, value * unit) };
                claims.claim(holds, || {
                    format!("{case}: report.md shows {cell:?} as `{column}` of {name}, not {value}")
                });
            }
        }
    }
}

/// The JSON report has each case with its values and verdict, in the record's order.
fn check_json(record: &Record, report: &str, claims: &mut Claims) {
    let report: Value = serde_json::from_str(report).unwrap_or_default();
    let cases = report["cases"].as_array().map_or(&[][..], Vec::as_slice);
    claims.same("cases of the JSON report", cases.len(), record.trials.len());
    for (case, trial) in cases.iter().zip(&record.trials) {
        claims.same("the JSON report: case", text(case, "/name"), trial.case.clone());
        claims.same(
            format!("the JSON report: {}: verdict", trial.case),
            text(case, "/verdict"),
            text(&trial.summary, "/verdict"),
        );
        for (axis, value) in &trial.values {
            claims.same(
                format!("the JSON report: {}: {axis}", trial.case),
                &*text(&case["values"], &format!("/{axis}")),
                value,
            );
        }
    }
}

/// The CSV report has the figures of every trial, equal to those in its summary.
fn check_figures(record: &Record, report: &str, claims: &mut Claims) {
    let rows: Vec<Vec<String>> = report.lines().map(fields).collect();
    let column = |name: &str| rows.first().and_then(|row| row.iter().position(|field| field == name));
    let (Some(case), Some(figure), Some(value)) = (column("case"), column("figure"), column("value")) else {
        return claims
            .claim(false, || "the CSV report has no columns `case`, `figure` and `value`".to_owned());
    };
    for trial in &record.trials {
        let of = |name: &str| {
            let row = rows.iter().find(|row| row[case] == trial.case && row[figure] == name);
            row.and_then(|row| row[value].parse::<f64>().ok())
        };
        let mut same = |name: &str, wanted: Option<f64>| {
            let is = of(name);
            let holds = match (is, wanted) {
                (Some(is), Some(wanted)) => (is - wanted).abs() <= CLOSE * wanted.abs(),
                (is, wanted) => is.is_none() && wanted.is_none(),
            };
            claims.claim(holds, || {
                format!("{}: the CSV report has {is:?} as `{name}`, not {wanted:?}", trial.case)
            });
        };
        // These do not apply to a load made by a program: its requests are only counted.
        for (name, path, unit) in FIGURES.iter().filter(|_| !trial.is_command()) {
            same(name, Some(trial.number(path) * unit).filter(|value| value.is_finite()));
        }
        for (name, _) in record.figures() {
            same(&name, trial.figure(&name));
        }
    }
}

/// Makes a record's report in one format.
///
/// # Errors
/// The report cannot be made.
pub fn report(record: &Record, format: &str) -> Result<String> {
    let mut command = program(loadlab());
    command.arg("report").arg(&record.dir).args(["--format", format]);
    let ran = captured(&mut command, LONGEST)?.ok(&format!("loadlab report --format {format}"))?;
    Ok(ran.stdout)
}

/// Every row has as many fields as the heading.
fn check_csv(text: &str, claims: &mut Claims) {
    let mut lines = text.lines().map(|line| fields(line).len());
    let heading = lines.next().unwrap_or_default();
    claims.claim(heading > 3, || "the CSV report has no heading".to_owned());
    claims.claim(lines.clone().count() > 10, || "the CSV report has hardly a row".to_owned());
    claims.claim(lines.all(|row| row == heading), || "rows of the CSV report differ in length".to_owned());
}

/// The fields of a CSV line; fields contain no line breaks.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is one").push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_found_in_its_row_and_not_within_another_number() {
        let row = "<tr><th scope=\"row\"><a href=\"#case-1\">10 &amp; more</a></th><td class=\"f\"><span class=\"v\">~110/s</span><small>1 … 2</small></td></tr>";
        let page = format!("<tr><th scope=\"col\">case</th></tr>{row}<tr><td>100/s</td></tr>");
        assert_eq!(rows_of_page(&page), [["10 & more", "110/s", "1 … 2"]]);
        let shown = |name: &str, cell: &str| {
            let mut claims = Claims::default();
            Shown(vec![(name.to_owned(), vec![cell.to_owned()])]).is_in("html", &page, &mut claims);
            claims.into_outcome("it").is_ok()
        };
        assert!(shown("10 & more", "110/s") && shown("10 & more", "~110/s"));
        assert!(!shown("10 & more", "10/s") && !shown("10 & more", "100/s") && !shown("10", "110/s"));
    }

    #[test]
    fn rows_of_a_text_have_their_own_cells() {
        let text = |first: &str, second: &str| {
            format!(
                "a run\n\nCases\n═════\n\ncase  verdict  goodput\na     PASS     {first}  ███\n              1 … 9/s\n\
                 b c   PASS     {second}  █\n\ncase  p50\na     ~3 ms\nb c   4 ms\nMedians of 2 trials.\n\nAfter the load\na  60/s\n"
            )
        };
        let shown = Shown(vec![
            ("a".to_owned(), vec!["50/s".to_owned(), "~3 ms".to_owned()]),
            ("b c".to_owned(), vec!["20/s".to_owned(), "4 ms".to_owned()]),
        ]);
        let holds = |text: &str| {
            let mut claims = Claims::default();
            shown.is_in("text", text, &mut claims);
            claims.into_outcome("it").is_ok()
        };
        assert!(holds(&text("50/s", "20/s")));
        assert!(!holds(&text("20/s", "50/s")), "rows are swapped");
        assert!(!holds(&text("150/s", "20/s")) && !holds("a run\n"));
        assert_eq!(rows_of_text(&text("1", "2"))[0], ["a", "PASS", "1", "███", "3 ms"]);
    }

    #[test]
    fn csv_fields_may_hold_commas() {
        let mut claims = Claims::default();
        check_csv(&format!("a,b,c,d\n{}", "\"1,2\",3,4,5\n".repeat(11)), &mut claims);
        assert!(claims.into_outcome("good").is_ok());
        let mut claims = Claims::default();
        check_csv(&format!("a,b,c,d\n{}1,2\n", "\"1,2\",3,4,5\n".repeat(11)), &mut claims);
        assert!(claims.into_outcome("short row").is_err());
    }
}
