//! `loadlab ab`: a plan at two revisions of its repository → whether the change helped.

use loadlab_analysis::cases::case::TRIALS_FOR_DIFFERENCES;
use loadlab_analysis::comparison::compare::Comparison;
use loadlab_analysis::findings::findings;
use loadlab_analysis::{DiagnosedRun, Exit};
use loadlab_record::documents::manifest::short_commit;
use loadlab_report::{escape_markdown, terminal};
use loadlab_run::RunResult;
use serde_json::{Value, json};

use super::run::{self, Shown};
use super::{read_plan, verdict};
use crate::args::{AbArgs, AbFormat, RunArgs};
use crate::exit::{CommandEnd, note};
use crate::output;

/// Runs the command.
pub fn command(args: AbArgs) -> CommandEnd {
    let AbArgs { compared, run: mut args, format } = args;
    if args.plan.choice.revisions.is_some() {
        let why = "the revisions are named twice\nhint: leave --revisions out";
        return run::refused(&args, CommandEnd::error(Exit::BadPlan, why));
    }
    args.plan.choice.revisions = Some(compared);
    let mut read = match read_plan::read_plan(&args.plan) {
        Ok(read) => read,
        Err(ended) => return run::refused(&args, ended),
    };
    let plan = &read.plan;
    let is_for_a_look = plan.until_certain.is_none() && (plan.trials as usize) < TRIALS_FOR_DIFFERENCES;
    if is_for_a_look && args.plan.choice.trials.is_none() && !plan.quick {
        note(
            "the plan has too few trials for a verdict: running until it is certain; --trials sets a fixed number",
        );
        args.plan.choice.until_certain = true;
        read = match read_plan::read_plan(&args.plan) {
            Ok(read) => read,
            Err(ended) => return run::refused(&args, ended),
        };
    }
    if args.dry_run {
        return read_plan::dry_run(&read.plan);
    }
    run::perform(&args, &read, None, &|args, result, run| show(args, format, result, run))
}

/// Prints the verdict, and the figures behind it.
fn show(args: &RunArgs, format: AbFormat, result: &RunResult, run: &DiagnosedRun) -> Shown {
    let found = findings(run);
    let comparisons = &found.comparisons;
    let exit = verdict::exit(comparisons);
    if args.output.json {
        output::print_json(&document(result, run, comparisons, exit));
        return Shown { exit, is_document: true };
    }
    let document = loadlab_report::compared(comparisons);
    match (comparisons.as_slice(), format) {
        ([], _) => {
            let why = found.no_differences.as_deref().unwrap_or("Nothing was measured at both revisions.");
            output::print(&format!("Verdict: cannot tell: {why}\n"));
        }
        (all, AbFormat::Md) => {
            let revisions = run.manifest.revisions.iter();
            let named: Vec<String> = revisions
                .map(|r| {
                    let (name, subject) = (r.name.replace('`', "'"), escape_markdown(&r.subject));
                    format!("`{name}` is {} ({subject})", short_commit(&r.commit))
                })
                .collect();
            let words: Vec<&str> = all.iter().map(verdict::word).collect();
            output::print(&format!(
                "**{}: {}** – {}.\n\n{}",
                escape_markdown(&run.manifest.name),
                words.join(", ").replace('_', " "),
                named.join(", "),
                loadlab_report::markdown(&document)
            ));
        }
        (all, AbFormat::Text) => {
            for comparison in all {
                let mut lines = String::new();
                let line = verdict::line(comparison);
                terminal::hanging(&mut lines, "", line.trim_end(), output::out_width(), str::to_owned);
                output::print(&format!("{lines}\n"));
            }
            output::print(&loadlab_report::text(&document, output::out_width(), output::out_has_colour()));
        }
    }
    Shown { exit, is_document: format == AbFormat::Md }
}

fn document(result: &RunResult, run: &DiagnosedRun, comparisons: &[Comparison], exit: Exit) -> Value {
    let mut document = run::json_of(result);
    document["exit"] = json!(Exit::of([result.exit, exit]).code());
    document["revisions"] = json!(run.manifest.revisions);
    document["verdict"] = match comparisons {
        [] => json!("cannot_tell"),
        [one] => json!(verdict::word(one)),
        many => json!(many.iter().map(verdict::word).collect::<Vec<_>>()),
    };
    let compared: Value =
        serde_json::from_str(&loadlab_report::comparisons_json(comparisons)).unwrap_or(Value::Null);
    document["comparisons"] = compared["comparisons"].clone();
    document
}
