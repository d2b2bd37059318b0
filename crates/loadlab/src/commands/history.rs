//! `loadlab list` and `loadlab show`: the runs under a folder, and one of them.
//!
//! There is no index: a list reads each run's manifest and summaries. A thousand runs with three thousand trials take
//! 0.6 s of CPU, and an index would be one more thing that can become stale.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use loadlab_analysis::cases::metric;
use loadlab_analysis::cases::metric::Metric;
use loadlab_analysis::{DiagnosedRun, Exit};
use loadlab_report::document::CaseLink;
use loadlab_report::history::{Listed, list_json, list_text, metric_names, trend, trend_text};

use loadlab_report::terminal::{self, Paint};

use super::report;
use crate::args::{Format, ListArgs, ShowArgs, TrendFormat};
use crate::exit::{Ended, note};
use crate::output::{self, Form};
use crate::runs::{self, found, is_run, runs_in};

/// `loadlab list`.
pub fn list(args: &ListArgs) -> Ended {
    let reported = runs_in(args.folder(), args.name.as_deref()).and_then(|runs| {
        let metrics = metrics(&args.trend, &runs)?;
        let all = runs.len();
        // A trend is compared with the baseline, however old that is.
        let is_shown = |i: usize, run: &Listed| i < args.last || run.baseline && !metrics.is_empty();
        let shown: Vec<Listed> =
            runs.into_iter().enumerate().filter(|(i, run)| is_shown(*i, run)).map(|(_, run)| run).collect();
        let text = match metrics.is_empty() {
            false => trend_of(args, &shown, &metrics)?,
            true if args.json => list_json(&shown),
            true => list_text(&shown, output::out_width(), output::out_has_colour()),
        };
        Ok((text, all, shown.len()))
    });
    let (text, all, shown) = match reported {
        Ok(reported) => reported,
        Err(error) => return Ended::error(Exit::BadPlan, error),
    };
    let form = match args.format {
        _ if args.json => Form::Json,
        TrendFormat::Text | TrendFormat::Md => Form::Text,
        TrendFormat::Html => Form::Data,
    };
    if let Err(ended) = super::deliver(args.out.as_deref(), form, &text) {
        return ended;
    }
    if all > shown && !args.json {
        note(&format!("{} older runs are not shown; --last {all} shows them", all - shown));
    }
    Ended::with(Exit::Ok)
}

/// Looks figures up by name: those that the plans of these runs define, and those that every run has.
fn metrics(names: &[String], runs: &[Listed]) -> Result<Vec<Metric>, String> {
    let of_plans = || runs.iter().flat_map(|r| &r.run.manifest.figures);
    let named = |id: &String| {
        let own = of_plans().find(|f| f.name == *id).map(Metric::of_plan);
        let unknown = || {
            let mut known: Vec<String> = Vec::new();
            for figure in of_plans().filter(|f| metric::named(&f.name).is_none()) {
                if !known.contains(&figure.name) {
                    known.push(figure.name.clone());
                }
            }
            known.push(metric_names());
            format!("no figure is named `{id}`\nhint: known figures: {}", known.join(", "))
        };
        own.or_else(|| metric::named(&id.replace('.', "_"))).ok_or_else(unknown)
    };
    names.iter().map(named).collect()
}

/// # Errors
/// In words: no case matches `--case`.
fn trend_of(args: &ListArgs, runs: &[Listed], metrics: &[Metric]) -> Result<String, String> {
    let wanted = |name: &str| args.case.as_deref().is_none_or(|glob| loadlab_plan::glob(glob, name));
    let (width, colour) = match args.out {
        Some(_) => (100, false),
        None => (output::out_width(), output::out_has_colour()),
    };
    if let Some(glob) = &args.case {
        none_matches(glob, runs, &wanted)?;
    }
    Ok(match args.format {
        TrendFormat::Text => trend_text(runs, metrics, &wanted, width, colour),
        TrendFormat::Md => loadlab_report::markdown(&trend(runs, metrics, &wanted)),
        TrendFormat::Html => loadlab_report::html(&trend(runs, metrics, &wanted)),
    })
}

/// Refuses a pattern that no case of the runs matches.
fn none_matches(glob: &str, runs: &[Listed], wanted: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let cases =
        runs.iter().flat_map(|listed| &listed.run.cases).filter(|case| case.facts.control_of.is_none());
    let names: BTreeSet<&str> = cases.map(|case| case.facts.name.as_str()).collect();
    if names.is_empty() || names.iter().any(|name| wanted(name)) {
        return Ok(());
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    Err(format!("no case of these runs matches `{glob}`\nhint: their cases are {}", names.join(", ")))
}

/// `loadlab show`.
pub fn show(args: &ShowArgs) -> Ended {
    let shown = chosen(args).and_then(|(dir, case)| {
        let mut run = runs::read(&dir).map_err(|e| e.to_string())?;
        if let Some(case) = &case {
            only(&mut run, case)?;
        }
        Ok(match () {
            () if args.brief => brief(&run),
            // A user who names a case wants to see it.
            () if args.full || case.is_some() => report::render(&run, Format::Text, false),
            () => report::brief(&run),
        })
    });
    match shown {
        Ok(text) => {
            output::print(&text);
            Ended::with(Exit::Ok)
        }
        Err(error) => Ended::error(Exit::BadPlan, error),
    }
}

/// The run to show, and the case of it. A word that does not name a run names a case of the newest run.
fn chosen(args: &ShowArgs) -> Result<(PathBuf, Option<String>), String> {
    let is_run = args.run == Path::new("last") || is_run(&args.run) || is_run(&args.dir.join(&args.run));
    match is_run || args.case.is_some() || args.run.components().count() > 1 {
        true => Ok((found(&args.run, &args.dir)?, args.case.clone())),
        false => Ok((found(Path::new("last"), &args.dir)?, Some(args.run.display().to_string()))),
    }
}

/// Keeps one case of a run, or those that a pattern matches.
fn only(run: &mut DiagnosedRun, case: &str) -> Result<(), String> {
    let names: Vec<String> = run.cases.iter().map(|c| format!("`{}`", c.facts.name)).collect();
    let is_exact = run.cases.iter().any(|c| c.facts.name == case || c.facts.dir == case);
    run.retain_cases(|c| match is_exact {
        true => c.facts.name == case || c.facts.dir == case,
        false => loadlab_plan::glob(case, &c.facts.name),
    });
    match run.cases.is_empty() {
        false => Ok(()),
        true => Err(format!(
            "`{case}` is neither a run nor a case of {}\nhint: its cases are {}; `loadlab list` lists runs",
            run.dir.display(),
            names.join(", ")
        )),
    }
}

/// A line for each case: verdict, name, figures.
fn brief(run: &DiagnosedRun) -> String {
    let paint = Paint { colour: output::out_has_colour() };
    let cases = loadlab_report::compose(run).cases;
    let name = cases.iter().map(|c| terminal::width_of(&c.name)).max().unwrap_or(0);
    let line = |case: &CaseLink| {
        let (word, tone) = loadlab_report::wording::verdict_and_tone(case.verdict);
        let word = paint.tone(tone, &terminal::left(word, 7));
        format!("{word}  {}  {}\n", terminal::left(&case.name, name), case.line)
    };
    cases.iter().map(line).collect()
}
