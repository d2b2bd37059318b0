//! `loadlab list`: the runs under a folder.
//!
//! There is no index: a list reads each run's manifest and summaries. A thousand runs with three thousand trials take
//! 0.6 s of CPU, and an index would be one more thing that can become stale.

use std::collections::BTreeSet;

use loadlab_analysis::Exit;
use loadlab_analysis::cases::metric;
use loadlab_analysis::cases::metric::Metric;
use loadlab_report::history::{Listed, list_json, list_text, metric_names, trend, trend_text};

use crate::args::{ListArgs, TrendFormat};
use crate::exit::{CommandEnd, note};
use crate::output::{self, Form};
use crate::runs::{labelled, runs_in};

/// Runs the command.
pub fn command(args: &ListArgs) -> CommandEnd {
    let reported = runs_in(args.folder(), args.name.as_deref()).and_then(|runs| {
        let metrics = metrics(&args.trend, &runs)?;
        let all = runs.len();
        // A trend is compared with the baseline, however old that is.
        let is_shown = |i: usize, run: &Listed| i < args.last as usize || run.baseline && !metrics.is_empty();
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
        Err(error) => return CommandEnd::error(Exit::BadPlan, error),
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
        note(&match all - shown {
            1 => format!("1 older run is not shown; --last {all} shows it"),
            older => format!("{older} older runs are not shown; --last {all} shows them"),
        });
    }
    CommandEnd::with(Exit::Ok)
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
/// In words: `--case` means no case.
fn trend_of(args: &ListArgs, runs: &[Listed], metrics: &[Metric]) -> Result<String, String> {
    let meant = args.case.as_deref().map(|text| cases_of(text, runs)).transpose()?;
    let wanted = |name: &str| meant.as_ref().is_none_or(|meant| meant.contains(name));
    let (width, colour) = match args.out {
        Some(_) => (100, false),
        None => (output::out_width(), output::out_has_colour()),
    };
    Ok(match args.format {
        TrendFormat::Text => trend_text(runs, metrics, &wanted, width, colour),
        TrendFormat::Md => loadlab_report::markdown(&trend(runs, metrics, &wanted)),
        TrendFormat::Html => loadlab_report::html(&trend(runs, metrics, &wanted)),
    })
}

/// Names of the cases that a text means: those whose name it matches, or else the one with this label.
///
/// # Errors
/// In words: it means none, or runs give the label to different cases.
fn cases_of<'r>(text: &str, runs: &'r [Listed]) -> Result<BTreeSet<&'r str>, String> {
    let cases =
        runs.iter().flat_map(|listed| &listed.run.cases).filter(|case| case.facts.control_of.is_none());
    let names: BTreeSet<&str> = cases.map(|case| case.facts.name.as_str()).collect();
    let matching: BTreeSet<&str> =
        names.iter().copied().filter(|name| loadlab_plan::glob(text, name)).collect();
    if names.is_empty() || !matching.is_empty() {
        return Ok(matching);
    }
    let of_runs = runs.iter().filter_map(|listed| labelled(&listed.run, text));
    let with_label: BTreeSet<&str> = of_runs.filter(|name| names.contains(name)).collect();
    let listed =
        |names: &BTreeSet<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match with_label.len() {
        1 => Ok(with_label),
        0 => Err(format!("no case of these runs matches `{text}`\nhint: their cases are {}", listed(&names))),
        _ => Err(format!(
            "`{text}` is a different case in different runs\nhint: write its whole name: {}",
            listed(&with_label)
        )),
    }
}
