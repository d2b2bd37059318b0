//! The reports of a run: the written ones equal those that `loadlab report` makes from its record, byte for byte and
//! every time, and the page is self-contained.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Claims, Record, loadlab};
use crate::command::{captured, program};

/// How long making one report may take.
const LONGEST: Duration = Duration::from_secs(120);

/// The page's own content security policy: nothing is loaded from outside, and only its own scripts run.
const LOADS_NOTHING: &str = "content=\"default-src 'none'; script-src 'sha256-";

/// Makes every format of report, twice. `terminal` is what the run itself printed.
///
/// # Errors
/// A report cannot be made or read.
pub fn check(record: &Record, terminal: &str, claims: &mut Claims) -> Result<()> {
    for format in ["text", "md", "html", "json", "csv"] {
        let first = report(record, format)?;
        let second = report(record, format)?;
        claims.claim(first == second, || format!("report --format {format} differs when made twice"));
        for trial in &record.trials {
            // HTML escapes it.
            let escaped = |value: &str| value.replace('<', "&lt;").replace('>', "&gt;");
            let reports = |value: &str| first.contains(value) || first.contains(&escaped(value));
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
    claims.claim(terminal.contains("report.html"), || "the run does not say where its report is".to_owned());
    // A browser refuses anything a page with this policy loads, and complains: `reports in a browser` listens.
    let page = fs::read_to_string(record.dir.join("report.html"))?;
    claims.claim(page.contains(LOADS_NOTHING), || "report.html may load what is outside of it".to_owned());
    Ok(())
}

/// A record's report in one format.
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

#[cfg(test)]
mod tests {
    use super::*;

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
