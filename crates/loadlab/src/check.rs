//! `loadlab check`, and reading a plan for whoever needs one.

use std::path::Path;

use loadlab_analysis::Exit;
use loadlab_plan::{Options, Plan};

use crate::args::{CheckArgs, PlanArgs};
use crate::exit::Ended;
use crate::output;

/// A plan, its text, and the options that changed it, in words.
pub struct ReadPlan {
    /// Checked and expanded.
    pub plan: Plan,
    /// As in the file.
    pub text: String,
    /// For the record.
    pub options: Vec<String>,
}

/// Reads and checks a plan with its options.
pub fn read_plan(args: &PlanArgs) -> Result<ReadPlan, Ended> {
    let path = &args.plan;
    let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        Ended::error(Exit::BadPlan, format!("{}:{line}: the plan is not UTF-8 text", path.display()))
    })?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let options = Options {
        profile: args.profile.clone(),
        set: args.set.clone(),
        tags: args.tags.clone(),
        cases_glob: args.case.clone(),
        trials: args.trials,
        plan_dir: Some(dir.display().to_string()),
    };
    let plan = Plan::parse(&path.display().to_string(), &text, &options)
        .map_err(|errors| Ended::error(Exit::BadPlan, errors))?;
    Ok(ReadPlan { plan, text, options: words_of(args) })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Ended {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => "\nhint: the path starts in the present folder",
        std::io::ErrorKind::IsADirectory => "\nhint: name the plan file in it",
        _ => "",
    };
    Ended::error(Exit::BadPlan, format!("cannot read the plan {}: {error}{hint}", path.display()))
}

fn words_of(args: &PlanArgs) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(args.profile.iter().map(|p| format!("--profile {p}")));
    words.extend(args.set.iter().map(|(path, value)| format!("--set {path}={value}")));
    words.extend(args.case.iter().map(|c| format!("--case {c}")));
    if !args.tags.is_empty() {
        words.push(format!("--tags {}", args.tags.join(",")));
    }
    words.extend(args.trials.iter().map(|n| format!("--trials {n}")));
    words
}

/// The experiment in words, and the trials in the order they would run.
pub fn describe(plan: &Plan) -> String {
    let mut out = String::new();
    for word in plan.words() {
        out.push_str(&format!("{word}\n"));
    }
    let schedule = plan.schedule();
    out.push_str(&format!("\n{} trials, in this order:\n", schedule.len()));
    for (place, (case, trial)) in schedule.iter().enumerate() {
        out.push_str(&format!("{:>5}. {}, trial {trial}\n", place + 1, plan.cases()[*case].name));
    }
    out
}

/// Runs it.
pub fn command(args: &CheckArgs) -> Ended {
    match read_plan(&args.plan) {
        Ok(read) => {
            let (cases, trials) = (read.plan.cases().len(), read.plan.schedule().len());
            let name = args.plan.plan.display();
            output::print(&format!("{name}: good – {cases} case(s), {trials} trial(s)\n"));
            for note in &read.plan.notes {
                crate::exit::note(note);
            }
            Ended::with(Exit::Ok)
        }
        Err(ended) => ended,
    }
}
