//! `loadlab run`: a plan → a record and its report.

use std::path::PathBuf;

use loadlab_analysis::Exit;
use loadlab_run::{How, RunResult, conduct, rfc3339_now};

use crate::args::RunArgs;
use crate::bench::default_threads;
use crate::check::{self, ReadPlan};
use crate::exit::{Ended, note, show};
use crate::report::write_reports;
use crate::view::View;
use crate::{output, signals};

/// The argument that turns this program into a run's guardian.
pub const GUARDIAN: &str = "__guardian";

/// Runs it.
pub fn command(args: &RunArgs) -> Ended {
    let read = match check::read_plan(&args.plan) {
        Ok(read) => read,
        Err(ended) => return ended,
    };
    if args.dry_run {
        output::print(&check::describe(&read.plan));
        return Ended::with(Exit::Ok);
    }
    let cancel = match signals::cancel_on_signal() {
        Ok(cancel) => cancel,
        Err(error) => return Ended::error(Exit::CouldNotRun, format!("cannot handle signals: {error}")),
    };
    let how = match how_of(args, &read) {
        Ok(how) => how,
        Err(ended) => return ended,
    };
    let view = View::new(args.quiet);
    for remark in &read.plan.notes {
        note(remark);
    }
    let result = conduct(&read.plan, &how, &cancel, &|event| view.event(&event));
    view.done();
    match result {
        Ok(result) => finish(args, &result),
        Err(error) => {
            // What there is of a record is still worth a report.
            if how.out.join("manifest.json").is_file() && write_reports(&how.out).is_ok() {
                note(&format!("the record so far is in {}", how.out.display()));
            }
            Ended::error(error.exit(), error)
        }
    }
}

fn how_of(args: &RunArgs, read: &ReadPlan) -> Result<How, Ended> {
    let exe = std::env::current_exe()
        .map_err(|e| Ended::error(Exit::CouldNotRun, format!("cannot find this program's file: {e}")))?;
    let mut options = read.options.clone();
    options.extend(args.allow_host.iter().map(|h| format!("--allow-host {h}")));
    Ok(How {
        plan_text: read.text.clone(),
        options,
        out: args.out.clone().unwrap_or_else(|| default_out(&read.plan.name)),
        exe,
        guardian_arg: GUARDIAN.to_owned(),
        allow_hosts: args.allow_host.clone(),
        threads: default_threads(&[]),
    })
}

/// `./loadlab-runs/NAME-TIME`, with a number behind it should that be there already.
fn default_out(name: &str) -> PathBuf {
    let name = loadlab_record::store::case_dir_name(name);
    let time: String = rfc3339_now().chars().filter(char::is_ascii_digit).collect();
    let (date, clock) = time.split_at(8.min(time.len()));
    let base = format!("{name}-{date}-{clock}");
    let runs = PathBuf::from("loadlab-runs");
    let numbered = (2..1000).map(|n| format!("{base}-{n}"));
    let free = std::iter::once(base.clone()).chain(numbered).find(|n| !runs.join(n).exists());
    runs.join(free.unwrap_or(base))
}

fn finish(args: &RunArgs, result: &RunResult) -> Ended {
    let written = write_reports(&result.dir);
    if args.json {
        output::print(&format!("{:#}\n", json_of(result)));
    } else if let Ok(run) = &written {
        let width = output::width(&std::io::stdout());
        let document = loadlab_report::compose(run);
        output::print(&loadlab_report::text(&document, width, output::out_has_colour()));
        let dir = result.dir.display();
        output::print(&format!("\nreport: {dir}/report.html\n        {dir}/report.md\n"));
    }
    if let Err(error) = written {
        show(&format!("no report: {error}"));
        return Ended::with(Exit::of([result.exit, Exit::CouldNotRun]));
    }
    Ended::with(result.exit)
}

/// The run's results as one document.
fn json_of(result: &RunResult) -> serde_json::Value {
    let trials: Vec<_> = result
        .trials
        .iter()
        .map(|t| {
            serde_json::json!({ "case": t.case, "trial": t.trial, "failure": t.failure, "summary": t.summary })
        })
        .collect();
    serde_json::json!({ "run_dir": result.dir, "ended": result.ended, "trials": trials })
}
