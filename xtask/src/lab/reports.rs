//! The reports of a run: those it wrote are those that `loadlab report` makes of its record, byte for byte and
//! every time, and the page is whole in itself.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Claims, Record, loadlab};
use crate::command::{captured, program};

/// How long making one report may take.
const LONGEST: Duration = Duration::from_secs(120);

/// Makes every form of report, twice. `terminal` is what the run itself printed.
///
/// # Errors
/// A report cannot be made or read.
pub fn check(record: &Record, terminal: &str, claims: &mut Claims) -> Result<()> {
    for format in ["text", "md", "html", "json", "csv"] {
        let first = report(record, format)?;
        let second = report(record, format)?;
        claims.claim(first == second, || format!("report --format {format} differs when made twice"));
        for trial in &record.trials {
            // Pages write it in their own way.
            let reports = |value: &str| first.contains(value) || first.contains(&value.replace('>', "&gt;"));
            let named = trial.values.iter().all(|(_, value)| reports(value)) && first.len() > 200;
            claims.claim(named, || format!("report --format {format} does not tell of {}", trial.case));
        }
        match format {
            "md" | "html" => {
                let path = record.dir.join(format!("report.{format}"));
                let written = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                claims.claim(written == first, || {
                    format!("{} is not what `loadlab report` makes", path.display())
                });
            }
            "json" => {
                let parsed = serde_json::from_str::<Value>(&first);
                claims
                    .claim(parsed.is_ok_and(|v| v.is_object()), || "the JSON report is no object".to_owned());
            }
            "csv" => check_csv(&first, claims),
            _ => {}
        }
    }
    let path = record.dir.join("report.html");
    claims.claim(terminal.contains("report.html"), || "the run does not say where its report is".to_owned());
    for what in loads(&fs::read_to_string(&path)?) {
        claims.claim(false, || format!("{} loads {what}", path.display()));
    }
    Ok(())
}

/// A form of report of a record.
///
/// # Errors
/// It cannot be made.
pub fn report(record: &Record, format: &str) -> Result<String> {
    let mut command = program(loadlab());
    command.arg("report").arg(&record.dir).args(["--format", format]);
    let ran = captured(&mut command, LONGEST)?.ok(&format!("loadlab report --format {format}"))?;
    Ok(ran.stdout)
}

/// Every row has as many fields as the heading.
fn check_csv(text: &str, claims: &mut Claims) {
    let fields = |line: &str| {
        let mut quoted = false;
        1 + line
            .chars()
            .filter(|c| {
                quoted ^= *c == '"';
                *c == ',' && !quoted
            })
            .count()
    };
    let mut lines = text.lines();
    let heading = lines.next().map_or(0, fields);
    claims.claim(heading > 3, || "the CSV report has no heading".to_owned());
    claims.claim(lines.clone().count() > 10, || "the CSV report has hardly a row".to_owned());
    claims
        .claim(lines.all(|l| fields(l) == heading), || "rows of the CSV report differ in length".to_owned());
}

/// What a page would fetch: values of attributes, style rules and scripts that name something outside of it. What stands
/// between tags is text: an answer that is shown may tell of any address.
pub fn loads(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let (tag, after) = rest[at..].split_at(end_of_tag(&rest[at..]));
        find_loads(tag, &mut found);
        rest = after;
        for name in ["style", "script"] {
            let inside = tag[1..].starts_with(name) && !tag.contains("application/json");
            if inside {
                let (raw, after) = rest.split_at(rest.find(&format!("</{name}")).unwrap_or(rest.len()));
                find_loads(raw, &mut found);
                rest = after;
            }
        }
    }
    found
}

/// Where the tag at the start of `text` ends: after the first `>` that stands in no quotes.
fn end_of_tag(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '>') => return at + 1,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn find_loads(text: &str, found: &mut Vec<String>) {
    let starts = [" src=", " srcset=", " href=", " action=", " data=", " poster=", "url(", "@import "];
    for start in starts {
        for (at, _) in text.match_indices(start) {
            let value = text[at + start.len()..].trim_start_matches(['"', '\'']);
            if !value.starts_with('#') && !value.starts_with("data:") {
                let value: String = value.chars().take_while(|c| !"\"'>) \n".contains(*c)).collect();
                found.push(format!("{}{value}", start.trim_start()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_would_fetch() {
        let check = |page: &str, expect: &[&str]| assert_eq!(loads(page), expect, "{page}");
        check("<a href=\"#case-1\">x</a><p>http://127.0.0.1/ is text</p>", &[]);
        check("<style>a { background: url(data:image/png;base64,AA) }</style>", &[]);
        check("<code>&lt;a href=&quot;/articles/7&quot;&gt;</code> <small> src=x</small>", &[]);
        check("<p title='a > b' data-x=\"<\"> href=y <img alt=\">\" src=p.png>", &["src=p.png"]);
        check("<script>a < b; new Image().x = \"<img src=q.png>\"</script>", &["src=q.png"]);
        check("<script type=\"application/json\">{\"body\": \"\\u003ca href=/x\"}</script>", &[]);
        check("<script src=\"chart.js\"></script>", &["src=chart.js"]);
        check("<link rel=stylesheet href=https://example.org/a.css>", &["href=https://example.org/a.css"]);
        check(
            "<style>@import 'a.css'; b { background: url('c.png') }</style>",
            &["url(c.png", "@import a.css"],
        );
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
