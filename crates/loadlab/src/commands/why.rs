//! `loadlab why`: a plan → what holds its system back, proven by changing one limit at a time.

use std::hash::{BuildHasher, Hasher, RandomState};

use loadlab_analysis::Exit;
use loadlab_plan::{Case, Plan};
use loadlab_run::{RunOptions, WhyRequest, WhyResult, unfit_for_why, why};

use super::read_plan::{self, ReadPlan};
use super::report;
use super::run::{default_options, default_out};
use super::session::{self, Session};
use super::{note_record, only_case, without_revisions};
use crate::args::serving::Serving;
use crate::args::{PlanArgs, PlanChoice, WhyArgs};
use crate::exit::{self, CommandEnd};
use crate::view::{OutputMode, View};
use crate::{output, runs};

/// Runs the command.
pub fn command(args: &WhyArgs) -> CommandEnd {
    let read = match read_plan(args) {
        Ok(read) => read,
        Err(ended) => return ended,
    };
    let case = match the_case(&read.plan) {
        Ok(case) => case,
        Err(message) => return CommandEnd::error(Exit::BadPlan, message),
    };
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended,
    };
    let out = args.out.clone().unwrap_or_else(|| default_out(&format!("why-{}", read.plan.name)));
    let mut options = match default_options(&read, out, &args.allow_host, &[]) {
        Ok(options) => options,
        Err(ended) => return ended,
    };
    options.has_viewer = !args.progress.quiet;
    let request = WhyRequest {
        budget_ns: args.budget,
        block_s: args.block,
        margin: args.margin,
        // JSON numbers are exact below 2⁵³.
        seed: args.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 11),
    };
    let budget = loadlab_record::text::units::format_duration_ns(args.budget as f64);
    let title = format!("{}: which limit holds “{}” back, in {budget}", read.plan.name, case.name);
    let view = match View::new(OutputMode::of(&args.progress), &title, Serving::default()) {
        Ok(view) => view,
        Err(ended) => return ended,
    };
    view.title(&title);
    // There is no page: nothing is served.
    let session = Session { view, cancel, wait: None };
    let out = options.out.clone();
    let work = |options: &RunOptions| {
        why(&read.plan, &request, options, &session.cancel, &|event| session.view.on_event(&event))
    };
    session.record(options, work, |result| match result {
        Ok(found) => finish(args, &found),
        Err(error) => {
            note_record(&out, args.progress.quiet, &error);
            CommandEnd::error(error.exit(), error)
        }
    })
}

fn read_plan(args: &WhyArgs) -> Result<ReadPlan, CommandEnd> {
    let choice = PlanChoice {
        profile: args.profile.clone(),
        set: args.set.clone(),
        case: args.case.clone(),
        // The blocks are not trials of cases.
        trials: Some(1),
        ..PlanChoice::default()
    };
    let read = read_plan::read_plan(&PlanArgs { plan: args.plan.clone(), choice })?;
    Ok(ReadPlan { plan: read.plan.without_search(), ..read })
}

/// The only case of the plan, if its loads can be held steady.
fn the_case(plan: &Plan) -> Result<&Case, String> {
    without_revisions(plan, "why")?;
    let case = only_case(plan, "why")?;
    match unfit_for_why(case) {
        Some((message, hint)) => Err(format!("{message}\nhint: {hint}")),
        None => Ok(case),
    }
}

fn finish(args: &WhyArgs, found: &WhyResult) -> CommandEnd {
    let written = runs::read(&found.dir).map_err(|e| e.to_string()).and_then(|run| {
        let written = report::write_reports(&run);
        // If nothing was measured, the error says enough.
        if !args.json && found.facts.found.is_some() {
            output::print(&report::brief(&run));
            output::print(&format!("\nrecord: {}\n", found.dir.display()));
        }
        written
    });
    let exit = exit::with_reports(found.exit, &written);
    if args.json {
        let document = serde_json::json!({
            "run_dir": found.dir.display().to_string(),
            "ended": found.ended,
            "exit": exit.code(),
            "why": found.facts,
            "trouble": found.trouble,
        });
        output::print_json(&document);
    }
    match (&found.trouble, written) {
        (Some(trouble), _) => CommandEnd::error(exit, trouble),
        (None, Err(error)) => CommandEnd::error(exit, error),
        (None, Ok(())) => CommandEnd::with(exit),
    }
}
