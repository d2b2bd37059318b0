//! The implementation of each command.

pub mod ab;
pub mod about;
#[cfg(feature = "swarm")]
pub mod agent;
pub mod baseline;
pub mod bench;
pub mod bench_saved;
pub mod bisect;
pub mod check;
pub mod clean;
pub mod compare;
pub mod demo;
pub mod find;
pub mod init;
pub mod list;
pub mod not_measured;
pub mod read_plan;
pub mod report;
pub mod resume;
mod revisions;
pub mod run;
#[cfg(feature = "swarm")]
mod senders;
mod session;
pub mod show;
pub mod url_plan;
pub mod verdict;
pub mod why;

use std::path::Path;

use loadlab_analysis::Exit;
use loadlab_plan::{Case, Plan};
use loadlab_run::RunError;

use crate::exit::{CommandEnd, note};
use crate::output;

/// Reports where the record of a run that measured nothing is, if there is one: it states why.
fn note_record(out: &Path, is_quiet: bool, error: &RunError) {
    if !error.is_other_record() && out.join("manifest.json").is_file() && !is_quiet {
        note(&format!("the record so far is in {}", out.display()));
    }
}

/// The only case of a plan, for a command that takes exactly one.
///
/// # Errors
/// In words, with the names of the cases: there are several.
fn only_case<'a>(plan: &'a Plan, command: &str) -> Result<&'a Case, String> {
    let [case] = plan.cases() else {
        let names: Vec<String> = plan.cases().iter().map(|c| format!("`{}`", c.name)).collect();
        let (count, names) = (names.len(), names.join(", "));
        return Err(format!(
            "the plan has {count} cases, but `loadlab {command}` takes one\nhint: --case names it: {names}"
        ));
    };
    Ok(case)
}

/// Refuses a plan that compares revisions, for a command that does not.
fn without_revisions(plan: &Plan, command: &str) -> Result<(), String> {
    if plan.revisions.is_empty() {
        return Ok(());
    }
    let hint = "leave them out of the plan: --set revisions=null";
    Err(format!("the plan compares revisions, but `loadlab {command}` does not\nhint: {hint}"))
}

/// Writes to the file that the user named, or else to standard output.
///
/// # Errors
/// The reason in words if it cannot be written.
pub fn deliver(to: Option<&Path>, form: output::Form, text: &str) -> Result<(), CommandEnd> {
    let Some(path) = to else {
        output::print_as(form, text);
        return Ok(());
    };
    output::write_file(path, text).map_err(|error| CommandEnd::error(Exit::CouldNotRun, error))
}
