//! `loadlab show`: one run, or one case of it, in the terminal.

use std::path::{Path, PathBuf};

use loadlab_analysis::{DiagnosedRun, Exit};
use loadlab_record::documents::manifest::CaseFacts;
use loadlab_report::document::CaseLink;
use loadlab_report::terminal::{self, Paint};

use super::report;
use crate::args::{Format, ShowArgs};
use crate::exit::CommandEnd;
use crate::output;
use crate::runs::{self, found, is_run};

/// Runs the command.
pub fn command(args: &ShowArgs) -> CommandEnd {
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
            CommandEnd::with(Exit::Ok)
        }
        Err(error) => CommandEnd::error(Exit::BadPlan, error),
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
    let labelled = runs::labelled(run, case).map(str::to_owned);
    let ways: [&dyn Fn(&CaseFacts) -> bool; 3] = [
        &|facts: &CaseFacts| facts.name == case || facts.dir == case,
        &|facts: &CaseFacts| loadlab_plan::glob(case, &facts.name),
        &|facts: &CaseFacts| labelled.as_ref() == Some(&facts.name),
    ];
    let Some(is_meant) = ways.into_iter().find(|way| run.cases.iter().any(|c| way(&c.facts))) else {
        let names: Vec<String> = run.cases.iter().map(|c| format!("`{}`", c.facts.name)).collect();
        return Err(format!(
            "`{case}` is neither a run nor a case of {}\nhint: its cases are {}; `loadlab list` lists runs",
            run.dir.display(),
            names.join(", ")
        ));
    };
    run.retain_cases(|c| is_meant(&c.facts));
    Ok(())
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
