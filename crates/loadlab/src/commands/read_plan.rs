//! Reads a plan for a command, and puts it in words.

use std::path::Path;

use loadlab_analysis::Exit;
use loadlab_plan::{Options, Outside, Plan, Revision};
use loadlab_record::text::units::plural;
use loadlab_record::text::url;
use loadlab_run::needs;
use loadlab_run::predictions::predict;

use crate::args::given;
use crate::args::{PlanArgs, PlanChoice};
use crate::exit::CommandEnd;
use crate::{mask, output};

/// A plan as it was read, with its text and the options that changed it.
pub struct ReadPlan {
    /// The plan, checked and expanded.
    pub plan: Plan,
    /// The plan's text as in the file.
    pub text: String,
    /// The plan's name in messages.
    pub path: String,
    /// The options with which it was read.
    pub read_with: Options,
    /// The options that changed it in words, for the record.
    pub options: Vec<String>,
}

/// Reads and checks a plan with its options.
pub fn read_plan(args: &PlanArgs) -> Result<ReadPlan, CommandEnd> {
    read(&args.plan, &args.choice)
}

/// A dry run: what the plan would do, in words.
pub fn dry_run(plan: &Plan) -> CommandEnd {
    if let Err(why) = needs::check_files(plan) {
        return CommandEnd::error(Exit::BadPlan, why);
    }
    output::print(&describe(plan));
    CommandEnd::with(Exit::Ok)
}

/// As [`read_plan`], for the file at this path.
pub fn read(path: &Path, choice: &PlanChoice) -> Result<ReadPlan, CommandEnd> {
    let name = path.to_string_lossy();
    if url::is_url(&name) {
        let why = format!(
            "`{}` is a URL, not a plan\nhint: `loadlab bench` loads a URL, `loadlab init` writes a plan for it",
            url::masked(&name)
        );
        return Err(CommandEnd::error(Exit::BadPlan, why));
    }
    let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        CommandEnd::error(Exit::BadPlan, format!("{}:{line}: the plan is not UTF-8 text", path.display()))
    })?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut options = Options {
        profile: choice.profile.clone(),
        set: choice.set.clone(),
        tags: choice.tags.clone(),
        cases_glob: choice.case.clone(),
        trials: choice.trials,
        until_certain: choice.until_certain,
        is_search: choice.is_search,
        flame_graphs: choice.flame_graphs.as_ref().map(|names| names.0.clone()),
        revisions: choice.revisions.iter().flat_map(|r| &r.0).map(|name| revision(name)).collect(),
        plan_dir: Some(dir.display().to_string()),
        outside: Outside::default(),
    };
    options.outside = given::outside(&text, &options, &dir);
    parse(&path.display().to_string(), text, options, choice)
}

fn revision(name: &str) -> Revision {
    Revision { name: name.to_owned(), dir: None }
}

/// Parses a plan; `read_with` has everything that it takes from outside. Its secrets are masked from here on.
pub fn parse(
    path: &str,
    text: String,
    read_with: Options,
    choice: &PlanChoice,
) -> Result<ReadPlan, CommandEnd> {
    let plan =
        Plan::parse(path, &text, &read_with).map_err(|errors| CommandEnd::error(Exit::BadPlan, errors))?;
    mask::add_all(&plan.secrets);
    let options = option_texts(choice, &plan.shown_set);
    Ok(ReadPlan { plan, text, path: path.to_owned(), read_with, options })
}

fn unreadable(path: &Path, error: &std::io::Error) -> CommandEnd {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => "\nhint: the path is relative to the current folder",
        std::io::ErrorKind::IsADirectory => "\nhint: name the plan file inside it",
        _ => "",
    };
    CommandEnd::error(Exit::BadPlan, format!("cannot read the plan {}: {error}{hint}", path.display()))
}

fn option_texts(choice: &PlanChoice, set: &[String]) -> Vec<String> {
    let mut texts = Vec::new();
    texts.extend(choice.profile.iter().map(|p| format!("--profile {p}")));
    texts.extend(set.iter().map(|change| format!("--set {change}")));
    texts.extend(choice.case.iter().map(|c| format!("--case {c}")));
    if !choice.tags.is_empty() {
        texts.push(format!("--tags {}", choice.tags.join(",")));
    }
    texts.extend(choice.trials.iter().map(|n| format!("--trials {n}")));
    texts.extend(choice.revisions.iter().map(|revisions| format!("--revisions {revisions}")));
    texts.extend(choice.until_certain.then(|| "--until-certain".to_owned()));
    texts.extend(choice.flame_graphs.as_ref().map(ToString::to_string));
    texts
}

/// The experiment in words, and the trials in the order they would run.
fn describe(plan: &Plan) -> String {
    let mut out = String::new();
    for word in plan.describe() {
        out.push_str(&format!("{word}\n"));
    }
    for prediction in predict(plan) {
        out.push_str(&format!("note: {}\n", prediction.text));
    }
    if plan.until_certain.is_some() {
        let (cases, rounds) = (plan.cases().len(), plan.trials);
        out.push_str(&format!(
            "\nat most {rounds} rounds of {cases} cases; the order in each is drawn when the run begins\n"
        ));
        return out;
    }
    let schedule = plan.schedule();
    out.push_str(&format!("\n{}, in this order:\n", plural(schedule.len() as u64, "trial", "trials")));
    for (place, key) in schedule.iter().enumerate() {
        out.push_str(&format!("{:>5}. {}, trial {}\n", place + 1, plan.cases()[key.case].name, key.trial));
    }
    out
}
