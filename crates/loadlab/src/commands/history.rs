//! `loadlab list` and `loadlab show`: the runs under a folder, and one of them.
//!
//! There is no index: a list reads each run's manifest and summaries. A thousand runs with three thousand trials take 0.6 s
//! of CPU, and an index would be one more thing that can be stale.

use loadlab_analysis::Exit;
use loadlab_analysis::metric;
use loadlab_analysis::metric::Metric;
use loadlab_record::store::read_run;
use loadlab_report::history::{Listed, list_json, list_text, metric_names, trend, trend_text};

use super::report;
use crate::args::{Format, ListArgs, ShowArgs, TrendFormat};
use crate::exit::{Ended, note};
use crate::output::{self, Form};
use crate::runs::{found, runs_in};

/// `loadlab list`.
pub fn list(args: &ListArgs) -> Ended {
    let reported = runs_in(&args.dir, args.name.as_deref()).and_then(|runs| {
        let metrics = metrics(&args.trend, &runs)?;
        let all = runs.len();
        // A trend is read against the baseline, however old that is.
        let is_shown = |i: usize, run: &Listed| i < args.last || run.baseline && !metrics.is_empty();
        let shown: Vec<Listed> =
            runs.into_iter().enumerate().filter(|(i, run)| is_shown(*i, run)).map(|(_, run)| run).collect();
        let text = match metrics.is_empty() {
            false => trend_of(args, &shown, &metrics),
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

/// Figures by their names: those of the plans of these runs, and those of every run.
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

fn trend_of(args: &ListArgs, runs: &[Listed], metrics: &[Metric]) -> String {
    let wanted = |name: &str| args.case.as_deref().is_none_or(|glob| loadlab_plan::glob(glob, name));
    let (width, colour) = match args.out {
        Some(_) => (100, false),
        None => (output::out_width(), output::out_has_colour()),
    };
    match args.format {
        TrendFormat::Text => metrics.iter().map(|m| trend_text(runs, m, &wanted, width, colour)).collect(),
        TrendFormat::Md => loadlab_report::markdown(&trend(runs, metrics, &wanted)),
        TrendFormat::Html => loadlab_report::html(&trend(runs, metrics, &wanted)),
    }
}

/// `loadlab show`.
pub fn show(args: &ShowArgs) -> Ended {
    let dir = match found(&args.run, &args.dir) {
        Ok(dir) => dir,
        Err(error) => return Ended::error(Exit::BadPlan, error),
    };
    match read_run(&dir) {
        Ok(run) => {
            output::print(&report::render(&run, Format::Text, false));
            Ended::with(Exit::Ok)
        }
        Err(error) => Ended::error(Exit::BadPlan, error),
    }
}
