//! Figures of the labs' longer runs, which no check makes: a committed file for each, taken from its record, and the
//! tables in READMEs, which are generated from these files. A house rule keeps the two in agreement.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::loadlab;
use super::record::text;
use crate::command::{LONGEST, captured, program};
use crate::root::root;

/// Marks a table in a README: `<!-- figures: PROFILE; COLUMN, COLUMN as HEADING -->` … `<!-- end -->`. A column is a
/// figure of the record, a component's (`edge1.cpu`, see [`OF_COMPONENTS`]), `ratio of` a figure (against the base
/// case, with the verdict), or `bottleneck`. `PROFILE across` gives each case a column and each figure a row. The
/// column `derived` alone makes a table of the figures derived from several cases. Where [`DOCUMENT`] has what the
/// source document published of a case under a heading, another row shows it.
const BEGIN: &str = "<!-- figures: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";
/// The name of the file with the source document's figures: by profile, case and heading, as text.
const DOCUMENT: &str = "document";
/// The column that asks for figures derived from several cases.
const DERIVED: &str = "derived";
/// What doubts are called, in summaries and in what is kept.
const DOUBTS: &str = "doubts";
/// A figure of a component: the name after the component's, where a summary has it, its unit, and how many of that unit
/// the summary's is.
type ComponentFigure = (&'static str, &'static str, &'static str, f64);
/// Figures of components that are kept if a README asks for them.
const OF_COMPONENTS: [ComponentFigure; 9] = [
    ("cpu", "/cpu_percent/mean", "share", 0.01),
    ("memory.mean", "/memory_bytes/mean", "bytes", 1.0),
    ("memory.max", "/memory_bytes/max", "bytes", 1.0),
    ("memory.limit", "/limits/memory_bytes", "bytes", 1.0),
    ("pids", "/pids_max", "count", 1.0),
    ("net.in", "/net_bytes/in", "bytes", 1.0),
    ("net.out", "/net_bytes/out", "bytes", 1.0),
    ("block.read", "/block_bytes/read", "bytes", 1.0),
    ("block.written", "/block_bytes/written", "bytes", 1.0),
];
/// Figures of the load that are kept if a README asks for them: name, where a summary has it, and unit.
const OF_LOAD: [(&str, &str, &str); 3] = [
    ("connect_p50", "/connect_ms/p50", "ms"),
    ("connections_peak", "/connections/peak", "count"),
    ("generator_memory", "/generator/peak_rss_bytes", "bytes"),
];
/// Significant digits of a figure that are kept, and that are shown.
const KEPT: usize = 6;
const SHOWN: usize = 3;

#[derive(clap::Args)]
pub struct Args {
    /// The record of a lab's run, whose figures to keep; without it, only remake the tables from the kept figures
    record: Option<PathBuf>,
}

/// Keeps the figures of a record, and remakes the tables of all labs' READMEs.
///
/// # Errors
/// The record is not from a lab's profile, or a README asks for a figure that no file has.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(record) = &args.record {
        let mut command = program(loadlab());
        let ran = captured(command.arg("report").arg(record).args(["--format", "json"]), LONGEST)?;
        let report: Value = serde_json::from_str(&ran.ok("loadlab report")?.stdout).context("the report")?;
        let manifest = fs::read_to_string(record.join("manifest.json")).context("manifest.json")?;
        let manifest: Value = serde_json::from_str(&manifest).context("manifest.json")?;
        let (lab, profile, mut kept) = kept(&manifest, &report)?;
        let page = root().join(format!("labs/{lab}/README.md"));
        let page = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        keep_what_is_asked(&mut kept, &report, &asked_for(&page, &profile))?;
        let file = root().join(file_of(&lab, &profile));
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(&file, format!("{kept:#}\n")).with_context(|| file.display().to_string())?;
        println!("{}", file.display());
    }
    for lab in super::LABS {
        let page = lab.dir().join("README.md");
        let old = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let file = |profile: &str| fs::read_to_string(root().join(file_of(lab.name, profile))).ok();
        let (new, _) = with_tables(&old, &file).with_context(|| page.display().to_string())?;
        if new != old {
            fs::write(&page, new).with_context(|| page.display().to_string())?;
            println!("{}", page.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Path of the file with the figures of a lab's profile.
pub fn file_of(lab: &str, profile: &str) -> String {
    format!("labs/{lab}/figures/{profile}.json")
}

/// What is kept of a record: its lab, its profile, and its figures.
fn kept(manifest: &Value, report: &Value) -> Result<(String, String, Value)> {
    let lab = text(manifest, "/name");
    ensure!(super::LABS.iter().any(|known| known.name == lab), "`{lab}` is no lab");
    ensure!(text(manifest, "/how") == "complete", "the run is not complete");
    let options: Vec<&str> =
        manifest["options"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Who sends a load does not change it.
    let of_plan: Vec<&str> = options.iter().copied().filter(|option| !is_of_swarm(option)).collect();
    let [option] = of_plan.as_slice() else { bail!("a profile as it stands is kept, not {options:?}") };
    let profile = option.strip_prefix("--profile ").with_context(|| format!("{option} is no profile"))?;
    let host = &manifest["host"];
    let of = format!(
        "{}, revision {:.12}{}, {} with {} cores, {}",
        text(manifest, "/started").split('T').next().unwrap_or_default(),
        text(manifest, "/commit/commit"),
        if manifest["commit"]["changed"] == true { " with uncommitted changes" } else { "" },
        text(host, "/cpu"),
        host["cores"],
        text(host, "/kernel"),
    );
    let cases = report["cases"].as_array().context("no cases")?;
    let cases: Vec<Value> = cases.iter().map(kept_of_case).collect();
    let compared = report["comparisons"].as_array().into_iter().flatten();
    let compared: Vec<Value> = compared
        .map(|of| {
            let figures = of["figures"].as_array().into_iter().flatten().map(|figure| {
                let number = |key: &str| figure[key].as_f64().map(rounded);
                let (effect, low, high) = (number("effect"), number("low"), number("high"));
                let name = text(figure, "/figure");
                let verdict = &figure["verdict"];
                (name, json!({ "ratio": effect, "low": low, "high": high, "verdict": verdict }))
            });
            let figures: Map<String, Value> = figures.collect();
            json!({ "base": of["base"], "other": of["other"], "figures": figures })
        })
        .collect();
    let derived = derived_of(report);
    let mut kept = json!({
        "profile": profile, "of": of, "trials": trials_of(report), "cases": cases, "comparisons": compared,
    });
    if !derived.is_empty() {
        kept[DERIVED] = derived.into();
    }
    Ok((lab, profile.to_owned(), kept))
}

/// What is kept of a case, except figures of components and of the load.
fn kept_of_case(case: &Value) -> Value {
    let figures = case["figures"].as_object().into_iter().flatten();
    let figures = figures.filter(|(_, figure)| figure["median"].is_number()).map(|(name, figure)| {
        let number = |key: &str| figure[key].as_f64().map(rounded);
        let (median, min, max) = (number("median"), number("min"), number("max"));
        let mut kept = json!({ "unit": figure["unit"], "median": median, "min": min, "max": max });
        let trials = figure["trials"].as_array().map_or(&[][..], Vec::as_slice);
        let known = trials.iter().filter(|trial| trial.is_number()).count();
        if known < trials.len() {
            kept["known_in"] = known.into();
        }
        (name.clone(), kept)
    });
    let mut kept = json!({
        "case": case["name"],
        "verdict": case["verdict"],
        "bottleneck": case["bottleneck"]["evidence"][0],
        "figures": figures.collect::<Map<String, Value>>(),
    });
    let doubts = doubts_of(case);
    if !doubts.is_empty() {
        kept[DOUBTS] = json!(doubts);
    }
    kept
}

/// The summaries of a case's trials that count.
fn counted(case: &Value) -> impl Iterator<Item = &Value> {
    let trials = case["trials"].as_array().into_iter().flatten().map(|trial| &trial["summary"]);
    trials.filter(|summary| text(summary, "/verdict") != "invalid")
}

/// In how many of these trials each kind of doubt was raised.
fn doubts_of(case: &Value) -> BTreeMap<String, u64> {
    let mut raised: BTreeMap<String, u64> = BTreeMap::new();
    for summary in counted(case) {
        let doubts = summary[DOUBTS].as_array().into_iter().flatten();
        let kinds: BTreeSet<String> = doubts.map(|doubt| text(doubt, "/kind")).collect();
        for kind in kinds {
            *raised.entry(kind).or_default() += 1;
        }
    }
    raised
}

/// The figures derived from several cases, as they are kept.
fn derived_of(report: &Value) -> Vec<Value> {
    let kept = |of: &Value| {
        let mut kept = json!({ "name": of["name"], "unit": of["unit"] });
        for key in ["value", "against", "ratio", "low", "high"] {
            kept[key] = of[key].as_f64().map(rounded).into();
        }
        kept
    };
    report["derived"].as_array().into_iter().flatten().map(kept).collect()
}

/// The number of trials of each case; in a plan that runs until it is certain, the largest.
fn trials_of(report: &Value) -> Value {
    let cases = report["cases"].as_array().into_iter().flatten();
    let most = cases.filter_map(|case| case["trials"].as_array().map(Vec::len)).max();
    most.map_or(report["trials"].clone(), Value::from)
}

fn is_of_swarm(option: &str) -> bool {
    ["--swarm ", "--slots ", "--on-lost-agent "].iter().any(|name| option.starts_with(name))
}

/// The columns of all tables of a profile in a README.
fn asked_for(page: &str, profile: &str) -> BTreeSet<String> {
    let tables = page.split(BEGIN).skip(1).filter_map(|table| table.split_once(CLOSE)?.0.split_once(';'));
    let of_profile = tables.filter(|(of, _)| of.strip_suffix(" across").unwrap_or(of) == profile);
    let columns = of_profile.flat_map(|(_, columns)| columns.split(',').map(str::trim));
    columns.map(|column| column.split_once(" as ").unwrap_or((column, "")).0.to_owned()).collect()
}

/// The component that a column is about, and which figure of it.
fn of_component(column: &str) -> Option<(&str, &'static ComponentFigure)> {
    OF_COMPONENTS.iter().find_map(|figure| {
        let component = column.strip_suffix(figure.0)?.strip_suffix('.')?;
        Some((component, figure))
    })
}

/// Adds figures of components and of the load that were asked for, over the trials that count.
fn keep_what_is_asked(kept: &mut Value, report: &Value, asked: &BTreeSet<String>) -> Result<()> {
    let cases = kept["cases"].as_array_mut().context("no cases")?.iter_mut();
    for (case, of) in cases.zip(report["cases"].as_array().context("no cases")?) {
        let counted: Vec<&Value> = counted(of).collect();
        for name in asked {
            let of_load = OF_LOAD.iter().find(|(of, ..)| of == name);
            let (pointer, unit, scale) = match (of_load, of_component(name)) {
                (Some((_, pointer, unit)), _) => ((*pointer).to_owned(), *unit, 1.0),
                (None, Some((component, (_, pointer, unit, scale)))) => {
                    // The names of components have no `/` or `~`.
                    (format!("/components/{component}{pointer}"), *unit, *scale)
                }
                (None, None) => continue,
            };
            let of_trial = |summary: &&Value| summary.pointer(&pointer)?.as_f64();
            let mut values: Vec<f64> =
                counted.iter().filter_map(of_trial).map(|value| value * scale).collect();
            values.sort_by(f64::total_cmp);
            let (Some(min), Some(max)) = (values.first(), values.last()) else { continue };
            let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
            case["figures"][name] = json!({
                "unit": unit, "median": rounded(middle), "min": rounded(*min), "max": rounded(*max),
            });
        }
    }
    Ok(())
}

/// A README with its tables remade, and the profiles they show; for the source document, each of its figures that a
/// table shows, as `document PROFILE CASE HEADING`. `file` returns the kept figures of a profile.
///
/// # Errors
/// A table has no end or no file, or asks for a figure that is not in the file.
pub fn with_tables(page: &str, file: &dyn Fn(&str) -> Option<String>) -> Result<(String, Vec<String>)> {
    let (mut made, mut rest, mut profiles) = (String::new(), page, Vec::new());
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (asked, after) = after.split_once(CLOSE).context("`figures` without an end")?;
        let (_, after) = after.split_once(END).with_context(|| format!("{asked}: no `{END}`"))?;
        let (profile, columns) = asked.split_once(';').with_context(|| format!("{asked}: no columns"))?;
        let (profile, is_across) =
            profile.strip_suffix(" across").map_or((profile, false), |profile| (profile, true));
        let figures = file(profile).with_context(|| format!("no figures of `{profile}` are kept"))?;
        let figures: Value = serde_json::from_str(&figures).with_context(|| profile.to_owned())?;
        let document =
            file(DOCUMENT).map(|text| serde_json::from_str(&text)).transpose().context(DOCUMENT)?;
        let document: Value = document.unwrap_or_default();
        let table = match columns.trim() {
            DERIVED => derived(&figures),
            _ => table(&figures, &document[profile], columns, is_across, &mut |case, heading| {
                profiles.push(format!("{DOCUMENT} {profile} {case} {heading}"));
            }),
        };
        let table = table.with_context(|| profile.to_owned())?;
        made.push_str(&format!("{before}{BEGIN}{asked}{CLOSE}\n\n{table}\n{END}"));
        profiles.push(profile.to_owned());
        rest = after;
    }
    made.push_str(rest);
    Ok((made, profiles))
}

fn table(
    kept: &Value,
    document: &Value,
    columns: &str,
    is_across: bool,
    shows: &mut dyn FnMut(&str, &str),
) -> Result<String> {
    let columns: Vec<(&str, &str)> = columns
        .split(',')
        .map(|column| column.trim())
        .map(|column| column.split_once(" as ").unwrap_or((column, column)))
        .collect();
    let headings: Vec<String> = columns.iter().map(|(_, heading)| (*heading).to_owned()).collect();
    let cases = kept["cases"].as_array().context("no cases")?;
    let names: Vec<String> = cases.iter().map(|case| text(case, "/case")).collect();
    let published = |case: &String, heading: &String| document[case][heading].as_str().map(str::to_owned);
    let (corner, of_columns, of_rows) =
        if is_across { ("", &names, &headings) } else { ("case", &headings, &names) };
    let mut rows = vec![[&[corner.to_owned()], of_columns.as_slice()].concat()];
    for (at, name) in of_rows.iter().enumerate() {
        let of = |other: usize| if is_across { (other, at) } else { (at, other) };
        let mut ours = vec![name.clone()];
        let mut theirs = vec![format!("*{name}, document*")];
        for (case, heading) in (0..of_columns.len()).map(of) {
            ours.push(cell(kept, &cases[case], columns[heading].0)?);
            let text = published(&names[case], &headings[heading]);
            if text.is_some() {
                shows(&names[case], &headings[heading]);
            }
            theirs.push(text.unwrap_or_default());
        }
        rows.push(ours);
        if theirs[1..].iter().any(|cell| !cell.is_empty()) {
            rows.push(theirs);
        }
    }
    Ok(drawn(&rows) + &below(kept)?)
}

/// The figures derived from several cases: value, what it is compared with, and their ratio with its interval.
fn derived(kept: &Value) -> Result<String> {
    let mut rows = vec![["", "", "compared with", "ratio"].map(str::to_owned).to_vec()];
    for of in kept[DERIVED].as_array().context("no derived figures are kept")? {
        let amount = |key: &str| -> Result<String> {
            let Some(value) = of[key].as_f64() else { return Ok("–".to_owned()) };
            let (scale, unit) = unit(&text(of, "/unit"), value)?;
            Ok(format!("{}{unit}", number(value / scale, SHOWN)))
        };
        let plain = |key: &str| of[key].as_f64().map(|value| number(value, SHOWN));
        let interval = plain("low").zip(plain("high"));
        let interval = interval.map_or(String::new(), |(low, high)| format!(" ({low} … {high})"));
        let ratio = plain("ratio").map_or("–".to_owned(), |ratio| format!("{ratio} ×{interval}"));
        rows.push(vec![text(of, "/name"), amount("value")?, amount("against")?, ratio]);
    }
    Ok(drawn(&rows) + &below(kept)?)
}

/// Rows as a Markdown table; the first one is its heading.
fn drawn(rows: &[Vec<String>]) -> String {
    let mut made = String::new();
    for (at, row) in rows.iter().enumerate() {
        made.push_str(&format!("| {} |\n", row.join(" | ")));
        if at == 0 {
            made.push_str(&format!("|{}\n", "---|".repeat(row.len())));
        }
    }
    made
}

/// What stands below a table: profile, trials, where the figures are from, and what speaks against them.
fn below(kept: &Value) -> Result<String> {
    let with_verdict = |verdict: &str| -> Option<String> {
        let cases = kept["cases"].as_array().into_iter().flatten();
        let cases = cases.filter(|case| text(case, "/verdict") == verdict);
        let names: Vec<String> = cases.map(|case| format!("`{}`", text(case, "/case"))).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let trials = kept["trials"].as_u64().context("no trials")?;
    let of = text(kept, "/of");
    let measured = match trials {
        1 => "one trial of each case".to_owned(),
        n => format!("{n} trials of each case: the median (smallest … largest)"),
    };
    let mut made = format!("\nProfile `{}`, {measured}. {of}.\n", text(kept, "/profile"));
    if let Some(invalid) = with_verdict("invalid") {
        made.push_str(&format!("A trial or more of {invalid} is INVALID and left out.\n"));
    }
    if let Some(failed) = with_verdict("fail") {
        let of = if trials == 1 { "" } else { "a trial or more of " };
        made.push_str(&format!("What the plan expects (`expect`) does not hold in {of}{failed}.\n"));
    }
    let doubts = doubts(kept);
    if !doubts.is_empty() {
        made.push_str(&format!("Doubts, by number of trials: {}.\n", doubts.join("; ")));
    }
    Ok(made)
}

/// Each kind of doubt, with the number of trials in each case that raised it.
fn doubts(kept: &Value) -> Vec<String> {
    let mut by_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for case in kept["cases"].as_array().into_iter().flatten() {
        for (kind, trials) in case[DOUBTS].as_object().into_iter().flatten() {
            by_kind.entry(kind).or_default().push(format!("{trials} of `{}`", text(case, "/case")));
        }
    }
    by_kind.into_iter().map(|(kind, cases)| format!("`{kind}` in {}", cases.join(", "))).collect()
}

fn cell(kept: &Value, case: &Value, column: &str) -> Result<String> {
    let name = text(case, "/case");
    if column == "bottleneck" {
        let found = text(case, "/bottleneck");
        return Ok(if found.is_empty() { "–".to_owned() } else { found.replace('|', "\\|") });
    }
    if let Some(figure) = column.strip_prefix("ratio of ") {
        let mut all = kept["comparisons"].as_array().into_iter().flatten();
        let is_base = all.clone().any(|of| of["base"] == name.as_str());
        // A case that is not compared, such as a control, has no ratio.
        let Some(of) = all.find(|of| of["other"] == name.as_str()) else {
            return Ok(if is_base { "1" } else { "–" }.to_owned());
        };
        let of = &of["figures"][figure];
        let number = |key: &str| of[key].as_f64().map(|value| number(value, SHOWN));
        let ratio = number("ratio").with_context(|| format!("{name}: no ratio of `{figure}`"))?;
        let verdict = text(of, "/verdict").replace('_', " ");
        let interval = number("low").zip(number("high"));
        let interval = interval.map_or(String::new(), |(low, high)| format!(" ({low} … {high})"));
        return Ok(format!("{ratio} ×{interval}, {verdict}"));
    }
    let figure = &case["figures"][column];
    // A percentile of too few requests is unknown in every trial.
    let Some(median) = figure["median"].as_f64() else {
        let is_of_others = kept["cases"].as_array().into_iter().flatten();
        let mut is_of_others = is_of_others.filter(|case| case["figures"][column].is_object());
        ensure!(is_of_others.next().is_some(), "no case has a figure `{column}`");
        return Ok("–".to_owned());
    };
    let (scale, unit) = unit(&text(figure, "/unit"), median)?;
    let shown = |value: f64| number(value / scale, SHOWN);
    let ends = figure["min"].as_f64().zip(figure["max"].as_f64()).filter(|(min, max)| min != max);
    let range = ends.map_or(String::new(), |(min, max)| format!(" ({} … {})", shown(min), shown(max)));
    // A median of only the trials that know it looks better than the figure was, so their number is shown.
    let known = figure["known_in"].as_u64().map_or(String::new(), |known| format!(", known in {known}"));
    Ok(format!("{}{unit}{range}{known}", shown(median)))
}

/// The unit in which an amount is shown: its size in units of the record, and its suffix.
fn unit(unit: &str, amount: f64) -> Result<(f64, &'static str)> {
    const KIB: f64 = 1024.0;
    Ok(match unit {
        "per_s" => (1.0, "/s"),
        "share" => (0.01, " %"),
        "percent_of_core" => (1.0, " %"),
        "s" => (1.0, " s"),
        "ms" if amount >= 1000.0 => (1000.0, " s"),
        "ms" => (1.0, " ms"),
        "bytes" if amount >= KIB * KIB => (KIB * KIB, " MiB"),
        "bytes" => (KIB, " KiB"),
        "bytes_per_s" if amount >= KIB * KIB => (KIB * KIB, " MiB/s"),
        "bytes_per_s" => (KIB, " KiB/s"),
        "count" | "number" => (1.0, ""),
        other => bail!("the unit `{other}` is not known here"),
    })
}

/// A number with `digits` significant digits, or with all digits before the point; thousands are separated.
fn number(value: f64, digits: usize) -> String {
    // Rounding may add a digit: 9.996 is 10.0.
    let exponent = format!("{value:.*e}", digits.saturating_sub(1));
    let before = exponent.rsplit_once('e').and_then(|(_, e)| e.parse::<f64>().ok()).unwrap_or(0.0) + 1.0;
    let decimals = if value.fract() == 0.0 { 0 } else { (digits as f64 - before).max(0.0) as usize };
    let plain = format!("{value:.decimals$}");
    let (whole, rest) =
        plain.split_once('.').map_or((plain.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut apart = String::new();
    for (place, digit) in whole.char_indices() {
        let left = whole.len() - place;
        if place > 0 && left % 3 == 0 && !apart.ends_with('-') {
            apart.push(',');
        }
        apart.push(digit);
    }
    rest.map_or(apart.clone(), |rest| format!("{apart}.{rest}"))
}

/// A number rounded to the digits that are kept.
fn rounded(value: f64) -> f64 {
    let digits = KEPT - 1;
    format!("{value:.digits$e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_of_two() -> Value {
        let manifest = json!({
            "name": "edge-tiers", "how": "complete", "options": ["--profile half"], "started": "2026-11-27T10:00:00Z",
            "commit": { "commit": "0123456789abcdef" }, "host": { "cpu": "A CPU", "cores": 2, "kernel": "Linux 6" },
        });
        let figure = |unit: &str, median: f64| json!({ "unit": unit, "median": median, "min": median / 2.0, "max": median * 2.0 });
        let case = |name: &str, goodput: f64| {
            let none = json!({ "unit": "ms", "median": null });
            let figures =
                json!({ "goodput": figure("per_s", goodput), "p50": figure("ms", 1234.5678), "p99_9": none });
            json!({ "name": name, "verdict": "none", "bottleneck": { "evidence": ["edge1: throttled"] }, "figures": figures })
        };
        let compared =
            json!([{ "figure": "goodput", "effect": 0.5, "low": 0.48, "high": 0.52, "verdict": "worse" }]);
        let report = json!({
            "trials": 5, "cases": [case("control", 12_345.678_9), case("40%", 6_000.0), case("control (control)", 12_000.0)],
            "comparisons": [{ "base": "control", "other": "40%", "figures": compared }],
        });
        let (lab, profile, kept) = kept(&manifest, &report).unwrap();
        assert_eq!((lab.as_str(), profile.as_str()), ("edge-tiers", "half"));
        let of = |options: Value| {
            super::kept(&json!({ "name": "edge-tiers", "how": "complete", "options": options }), &report)
        };
        assert!(of(json!([])).is_err() && of(json!(["--profile half", "--set load.users=1"])).is_err());
        kept
    }

    #[test]
    fn figures_of_components_are_kept_where_a_table_asks_for_them() {
        let page = "<!-- figures: half across; goodput, edge1.cpu as CPU, edge1.net.in -->\n<!-- end -->\n\
            <!-- figures: full; edge1.memory.max -->\n<!-- end -->\n";
        let asked = asked_for(page, "half");
        assert_eq!(
            asked.iter().map(String::as_str).collect::<Vec<_>>(),
            ["edge1.cpu", "edge1.net.in", "goodput"]
        );
        let trial = |percent: f64, verdict: &str| {
            let edge = json!({ "cpu_percent": { "mean": percent }, "net_bytes": { "in": percent * 1024.0 } });
            json!({ "summary": { "verdict": verdict, "components": { "edge1": edge } } })
        };
        let trials =
            json!([trial(3.5, "pass"), trial(1.5, "fail"), trial(50.0, "invalid"), trial(2.5, "pass")]);
        let report = json!({ "cases": [{ "trials": trials }] });
        let mut kept =
            json!({ "profile": "half", "trials": 3, "cases": [{ "case": "control", "figures": {} }] });
        keep_what_is_asked(&mut kept, &report, &asked).unwrap();
        let table =
            table(&kept, &Value::Null, "edge1.cpu as CPU, edge1.net.in", false, &mut |_, _| {}).unwrap();
        assert!(table.contains("| control | 2.50 % (1.50 … 3.50) | 2.50 KiB (1.50 … 3.50) |"), "{table}");
    }

    #[test]
    fn a_table_is_made_from_what_is_kept_of_a_record() {
        let kept = kept_of_two();
        assert!(kept["cases"][0]["figures"]["p99_9"].is_null(), "known in no trial");
        let page = "# A\n\n<!-- figures: half; goodput as ok/s, ratio of goodput as × control, p50, bottleneck -->\nold\n<!-- end -->\nB\n";
        let file = |profile: &str| (profile == "half").then(|| kept.to_string());
        let (made, profiles) = with_tables(page, &file).unwrap();
        assert_eq!(profiles, ["half"]);
        let rows: Vec<&str> = made.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(
            rows,
            [
                "| case | ok/s | × control | p50 | bottleneck |",
                "| control | 12,346/s (6,173 … 24,691) | 1 | 1.23 s (0.617 … 2.47) | edge1: throttled |",
                "| 40% | 6,000/s (3,000 … 12,000) | 0.500 × (0.480 … 0.520), worse | 1.23 s (0.617 … 2.47) | edge1: throttled |",
                "| control (control) | 12,000/s (6,000 … 24,000) | – | 1.23 s (0.617 … 2.47) | edge1: throttled |",
            ]
        );
        assert!(
            made.contains("5 trials of each case")
                && made.contains("2026-11-27, revision 0123456789ab, A CPU")
        );
        assert!(made.starts_with("# A\n") && made.ends_with("<!-- end -->\nB\n") && !made.contains("old"));
        assert!(!made.contains("INVALID"));
        let mut spoiled = kept.clone();
        spoiled["cases"][1]["verdict"] = json!("invalid");
        let spoiled = with_tables(page, &|_: &str| Some(spoiled.to_string())).unwrap().0;
        assert!(spoiled.contains("A trial or more of `40%` is INVALID and left out."), "{spoiled}");
        let mut failed = kept.clone();
        failed["cases"][1]["verdict"] = json!("fail");
        let failed = with_tables(page, &|_: &str| Some(failed.to_string())).unwrap().0;
        assert!(
            failed.contains("What the plan expects (`expect`) does not hold in a trial or more of `40%`."),
            "{failed}"
        );
        let across = page.replace("half;", "half across;").replace("old\n", "");
        let across = with_tables(&across, &file).unwrap().0;
        assert!(
            across.contains("|  | control | 40% | control (control) |\n|---|---|---|---|\n| ok/s | 12,346/s"),
            "{across}"
        );
        let mut partly = kept.clone();
        partly["cases"][1]["figures"]["p50"]["known_in"] = json!(2);
        let partly = with_tables(page, &|_: &str| Some(partly.to_string())).unwrap().0;
        assert!(partly.contains("| 1.23 s (0.617 … 2.47), known in 2 |"), "{partly}");
        let document = json!({ "half": { "40%": { "ok/s": "51/s" } } });
        let both = |name: &str| if name == DOCUMENT { Some(document.to_string()) } else { file(name) };
        let (beside, shown) = with_tables(page, &both).unwrap();
        assert_eq!(shown, ["document half 40% ok/s", "half"]);
        assert!(
            beside.contains(
                "worse | 1.23 s (0.617 … 2.47) | edge1: throttled |\n| *40%, document* | 51/s |  |  |  |\n"
            ),
            "{beside}"
        );
        let beside = with_tables(&page.replace("half;", "half across;"), &both).unwrap().0;
        assert!(beside.contains("\n| *ok/s, document* |  | 51/s |  |\n"), "{beside}");
        // Remaking it changes nothing.
        assert_eq!(with_tables(&made, &file).unwrap().0, made);
    }

    #[test]
    fn doubts_are_kept_and_shown_by_the_number_of_trials() {
        let trial = |verdict: &str, kinds: &[&str]| {
            let doubts: Vec<Value> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
            json!({ "summary": { "verdict": verdict, "doubts": doubts } })
        };
        let case = |name: &str, trials: Value| {
            let figures = json!({ "goodput": { "unit": "per_s", "median": 1.0, "min": 1.0, "max": 1.0 } });
            json!({ "name": name, "verdict": "pass", "figures": figures, "trials": trials })
        };
        let first = [
            trial("pass", &["warm_up", "drift", "drift"]),
            trial("fail", &["drift"]),
            trial("invalid", &["drift", "late"]),
        ];
        let cases =
            [case("a", json!(first)), case("b", json!([trial("pass", &["warm_up"])])), case("c", json!([]))];
        let cases: Vec<Value> = cases.iter().map(kept_of_case).collect();
        assert_eq!(cases[0]["doubts"], json!({ "drift": 2, "warm_up": 1 }));
        assert!(cases[2]["doubts"].is_null());
        let kept = json!({ "profile": "half", "of": "a machine", "trials": 3, "cases": cases });
        let page = "<!-- figures: half; goodput -->\n<!-- end -->\n";
        let (made, _) = with_tables(page, &|name: &str| (name == "half").then(|| kept.to_string())).unwrap();
        assert!(
            made.contains(
                "\nDoubts, by number of trials: `drift` in 2 of `a`; `warm_up` in 1 of `a`, 1 of `b`.\n"
            ),
            "{made}"
        );
    }

    #[test]
    fn derived_figures_are_kept_and_shown() {
        let of = |name: &str, ratio: Option<f64>| json!({ "name": name, "unit": "ms", "value": 2000.0, "against": 1000.0, "ratio": ratio, "low": ratio, "high": ratio });
        let report = json!({ "derived": [of("a / b", Some(2.0)), of("a / c", None)] });
        let kept = json!({ "profile": "half", "of": "a machine", "trials": 5, "cases": [], "derived": derived_of(&report) });
        let page = "<!-- figures: half; derived -->\n<!-- end -->\n";
        let (made, shown) =
            with_tables(page, &|name: &str| (name == "half").then(|| kept.to_string())).unwrap();
        assert_eq!(shown, ["half"]);
        assert!(
            made.contains("\n| a / b | 2 s | 1 s | 2 × (2 … 2) |\n| a / c | 2 s | 1 s | – |\n"),
            "{made}"
        );
    }

    #[test]
    fn what_is_not_kept_is_not_made_up() {
        let kept = kept_of_two();
        let file = |profile: &str| (profile == "half").then(|| kept.to_string());
        for asked in ["full; goodput", "half; speed", "half; ratio of p50", "half"] {
            let page = format!("<!-- figures: {asked} -->\n<!-- end -->\n");
            assert!(with_tables(&page, &file).is_err(), "{asked}");
        }
        assert!(with_tables("<!-- figures: half; goodput -->\n", &file).is_err());
    }

    #[test]
    fn numbers_have_three_digits_or_all_before_the_point() {
        let all = [
            (0.0, "0"),
            (0.0123, "0.0123"),
            (1.5, "1.50"),
            (12.0, "12"),
            (123.4, "123"),
            (1_234_567.8, "1,234,568"),
        ];
        for (value, shown) in all {
            assert_eq!(number(value, SHOWN), shown);
        }
        assert_eq!(number(-1234.5, SHOWN), "-1,234");
        assert_eq!(rounded(123_456.789), 123_457.0);
    }
}
