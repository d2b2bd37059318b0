//! `loadlab run`: a plan → a record and its report.

use std::path::{Path, PathBuf};
use std::time::Duration;

use loadlab_analysis::{DiagnosedRun, Exit};
use loadlab_load::target::Resolved;
use loadlab_record::documents::manifest::{Manifest, RevisionFacts};
use loadlab_run::predictions::{Basis, predict};
use loadlab_run::preflight;
use loadlab_run::{
    ComparisonProgress, FigureProgress, Generator, RunError, RunOptions, RunResult, Watch, changed_since,
    conduct, rfc3339_now,
};
use loadlab_system::guardian;

use super::bench::default_threads;
use super::not_measured::Documents;
use super::read_plan::{self, ReadPlan};
use super::revisions::git;
#[cfg(feature = "swarm")]
use super::senders;
use super::session::{self, Session};
use super::{report, revisions};
use crate::args::RunArgs;
use crate::exit::{self, CommandEnd, note};
use crate::view::{OutputMode, View};
use crate::{mask, output, runs};

/// The argument that turns this program into a run's guardian.
pub const GUARDIAN: &str = "__guardian";

/// Runs the command.
pub fn command(args: &RunArgs) -> CommandEnd {
    let read = match read_plan::read_plan(&args.plan) {
        Ok(read) => read,
        Err(ended) => return refused(args, ended),
    };
    if args.dry_run {
        return read_plan::dry_run(&read.plan);
    }
    perform(args, &read, None, &show)
}

/// Ends a run whose plan or options are wrong, before anything began.
pub fn refused(args: &RunArgs, ended: CommandEnd) -> CommandEnd {
    // A dry run writes nothing.
    if args.dry_run {
        return ended;
    }
    let out = args.out.as_deref().unwrap_or(Path::new(""));
    documents(args, &args.plan.plan.display().to_string(), out).refused(ended)
}

/// Prints the result of a run.
pub type Show<'a> = &'a dyn Fn(&RunArgs, &RunResult, &DiagnosedRun) -> Shown;

/// What was printed.
pub struct Shown {
    /// The exit that the result calls for.
    pub exit: Exit,
    /// A document for other programs was printed: nothing may follow it.
    pub is_document: bool,
}

/// Runs a plan that was read; `recorded` is the manifest of the run to resume, if there is one. Revisions that the plan
/// compares are checked out before the run, and removed after it.
pub fn perform(args: &RunArgs, read: &ReadPlan, recorded: Option<&Manifest>, show: Show<'_>) -> CommandEnd {
    if read.plan.revisions.is_empty() {
        return perform_in(args, read, &[], recorded, show);
    }
    #[cfg(feature = "swarm")]
    if args.swarm.swarm.is_some() {
        let why = "agents cannot run revisions\nhint: without --swarm, this process sends the load";
        return refused(args, CommandEnd::error(Exit::BadPlan, why));
    }
    let spawned = own_exe().and_then(|exe| {
        guardian::spawn(&exe, GUARDIAN).map_err(|error| CommandEnd::error(Exit::NotUp, error.to_string()))
    });
    let checked_out = spawned
        .and_then(|guardian| revisions::check_out(read, &args.plan.choice, args.allow_dirty, guardian));
    let checked_out = match checked_out {
        Ok(checked_out) => checked_out,
        Err(ended) => return refused(args, ended),
    };
    checked_out.notes.iter().for_each(|text| note(text));
    let changed = recorded.filter(|recorded| recorded.revisions != checked_out.facts);
    let ended = match changed {
        Some(_) => {
            let why = "a revision is another commit now than when the run began\nhint: `loadlab run` starts a new run";
            refused(args, CommandEnd::error(Exit::BadPlan, why))
        }
        None => perform_in(args, &checked_out.read, &checked_out.facts, recorded, show),
    };
    checked_out.remove().iter().for_each(|text| note(text));
    ended
}

fn perform_in(
    args: &RunArgs,
    read: &ReadPlan,
    revisions: &[RevisionFacts],
    recorded: Option<&Manifest>,
    show: Show<'_>,
) -> CommandEnd {
    let serving = match args.output.serving.wanted() {
        Ok(serving) => serving,
        Err(message) => return refused(args, CommandEnd::error(Exit::BadPlan, message)),
    };
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended,
    };
    let mut options = match options_of(args, read) {
        Ok(options) => options,
        Err(ended) => return refused(args, ended),
    };
    options.revisions = revisions.to_vec();
    if let Some(recorded) = recorded {
        if let Some(changed) = changed_since(recorded, &read.plan, &options) {
            return refused(args, CommandEnd::error(Exit::BadPlan, mixed(&changed)));
        }
        (options.resumes, options.as_given) = (true, recorded.options.clone());
    }
    for remark in &read.plan.notes {
        note(remark);
    }
    // Only what follows from the number of requests: the report mentions too few trials, and only the run shows how
    // fast the system is.
    for prediction in predict(&read.plan).iter().filter(|f| f.basis == Basis::Requests) {
        note(&prediction.text);
    }
    #[cfg(feature = "swarm")]
    {
        let (hosts, resolved) = (&args.hosts.allow_host, &args.hosts.resolve);
        match senders::of(&args.swarm, read, hosts, resolved, args.output.progress.quiet, &cancel) {
            Ok(senders) => options.senders = senders,
            Err(none) => {
                return documents(args, &read.plan.name, &options.out).not_measured(none.exit, none.why);
            }
        }
    }
    let view = match View::new(OutputMode::of(&args.output.progress), &read.plan.name, serving) {
        Ok(view) => view,
        Err(ended) => return refused(args, ended),
    };
    // Agents on other machines have limits of their own.
    #[cfg(feature = "swarm")]
    let is_elsewhere = args.swarm.is_elsewhere();
    #[cfg(not(feature = "swarm"))]
    let is_elsewhere = false;
    if !is_elsewhere {
        view.remarks(fitness(read, options.threads));
    }
    let session = Session { view, cancel, wait: args.output.serving.ui.wait() };
    let out = options.out.clone();
    let work = |options: &RunOptions| {
        conduct(&read.plan, options, &session.cancel, &|event| session.view.on_event(&event))
    };
    session.record(options, work, |result| match result {
        Ok(result) => finish(args, &read.plan.name, result, show),
        Err(error) => never_began(args, &read.plan.name, &out, &error),
    })
}

/// Why a run is not resumed whose plan describes something else now, in words.
fn mixed(changed: &str) -> String {
    format!(
        "with the same text, the plan describes something else than when the run began: {changed}\nhint: set values from outside, \
         such as `${{env.NAME}}` and files that the plan reads, as they were; `loadlab run` starts a new run"
    )
}

/// Ends a run that measured nothing; its record, if there is one, states why.
fn never_began(args: &RunArgs, name: &str, out: &Path, error: &RunError) -> CommandEnd {
    // A record that already existed belongs to another run.
    let run = if error.is_other_record() { None } else { runs::read(out).ok() };
    let written = run.as_ref().is_some_and(|run| report::write_reports(run).is_ok());
    if written && !args.output.progress.quiet {
        note(&format!("the record so far is in {}", out.display()));
    }
    let mut documents = documents(args, name, out);
    // A resumed run has trials that were measured before.
    let has_trials =
        |run: &DiagnosedRun| run.cases.iter().flat_map(|case| &case.trials).any(|t| t.summary.is_some());
    if let Some(run) = run.filter(has_trials) {
        let junit = documents.junit.take().map(|path| output::write_file(path, &loadlab_report::junit(&run)));
        if let Some(Err(error)) = junit {
            note(&error);
        }
    }
    documents.not_measured(error.exit(), error)
}

/// The documents that the user asked for, for a plan with this name.
fn documents<'a>(args: &'a RunArgs, name: &'a str, out: &Path) -> Documents<'a> {
    let empty = || serde_json::json!({ "run_dir": out.display().to_string(), "trials": [] });
    Documents { name, junit: args.output.junit.as_deref(), json: args.output.json.then(empty) }
}

/// The path of this program, which is its own guardian.
///
/// # Errors
/// The path is unknown.
pub fn own_exe() -> Result<PathBuf, CommandEnd> {
    std::env::current_exe().map_err(|e| {
        CommandEnd::error(Exit::CouldNotRun, format!("cannot locate loadlab's own executable: {e}"))
    })
}

fn options_of(args: &RunArgs, read: &ReadPlan) -> Result<RunOptions, CommandEnd> {
    let out = args.out.clone().unwrap_or_else(|| default_out(&read.plan.name));
    let mut options = default_options(read, out, &args.hosts.allow_host, &args.hosts.resolve)?;
    #[cfg(feature = "swarm")]
    options.as_given.extend(args.swarm.as_given());
    options.has_viewer = !args.output.progress.quiet || args.output.serving.ui.ui.is_some();
    Ok(options)
}

/// The default options to run a plan: into the folder `out`, with these hosts allowed and these addresses for them.
///
/// # Errors
/// The path of this program is unknown.
pub fn default_options(
    read: &ReadPlan,
    out: PathBuf,
    allow_hosts: &[String],
    resolved: &[Resolved],
) -> Result<RunOptions, CommandEnd> {
    let mut as_given = read.options.clone();
    as_given.extend(allow_hosts.iter().map(|h| format!("--allow-host {h}")));
    as_given.extend(resolved.iter().map(|r| format!("--resolve {r}")));
    Ok(RunOptions {
        plan_text: read.text.clone(),
        as_given,
        out,
        resumes: false,
        exe: own_exe()?,
        guardian_arg: GUARDIAN.to_owned(),
        allow_hosts: allow_hosts.to_vec(),
        resolved: resolved.to_vec(),
        threads: default_threads(&[]),
        generator: Generator::default(),
        senders: None,
        watch: Watch::default(),
        commit: git::present(Path::new(&read.path)),
        revisions: Vec::new(),
        is_built: false,
        has_viewer: true,
        secrets: mask::secrets(),
    })
}

/// How this machine would affect the plan's loads, each finding once.
fn fitness(read: &ReadPlan, threads: usize) -> Vec<String> {
    let facts = preflight::read(Duration::ZERO);
    let mut notes: Vec<String> = Vec::new();
    let of_case = |case| Some(preflight::Demand::of_case(case, threads)?.isolated(read.plan.isolate));
    for planned in read.plan.cases().iter().filter_map(of_case) {
        for note in preflight::notes(&planned, &facts) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// `./loadlab-runs/NAME-TIME`, with a number appended if that already exists.
pub fn default_out(name: &str) -> PathBuf {
    let name = loadlab_record::store::case_dir_name(name);
    let time: String = rfc3339_now().chars().filter(char::is_ascii_digit).collect();
    let (date, clock) = time.split_at(8.min(time.len()));
    let base = format!("{name}-{date}-{clock}");
    let runs = PathBuf::from("loadlab-runs");
    let numbered = (2..1000).map(|n| format!("{base}-{n}"));
    let free = std::iter::once(base.clone()).chain(numbered).find(|n| !runs.join(n).exists());
    runs.join(free.unwrap_or(base))
}

/// Prints the run itself: as JSON, or in brief.
pub fn show(args: &RunArgs, result: &RunResult, run: &DiagnosedRun) -> Shown {
    match args.output.json {
        true => output::print_json(&json_of(result)),
        false => output::print(&report::brief(run)),
    }
    Shown { exit: Exit::Ok, is_document: args.output.json }
}

fn finish(args: &RunArgs, name: &str, mut result: RunResult, show: Show<'_>) -> CommandEnd {
    let run = match runs::read(&result.dir) {
        Ok(run) => run,
        Err(error) => {
            let exit = Exit::of([result.exit, Exit::CouldNotRun]);
            return documents(args, name, &result.dir).not_measured(exit, error);
        }
    };
    let junit = args.output.junit.as_ref().map(|path| output::write_file(path, &loadlab_report::junit(&run)));
    let written = report::write_reports(&run).and(junit.unwrap_or(Ok(())));
    // Before the document, which has the exit code.
    result.exit = exit::with_reports(result.exit, &written);
    if args.output.progress.quiet {
        report_failures(&result);
    }
    let shown = show(args, &result, &run);
    let exit = Exit::of([result.exit, shown.exit]);
    let has_failed = result.trials.iter().any(|trial| trial.failure.is_some());
    let is_quiet_failure = args.output.progress.quiet && exit == Exit::CouldNotRun && has_failed;
    match written {
        Ok(()) if shown.is_document || is_quiet_failure => CommandEnd::with(exit),
        Ok(()) => {
            let dir = result.dir.display();
            output::print(&format!(
                "\nreport: {dir}/report.html\n        {dir}/report.md\n        loadlab show {dir} --full\n"
            ));
            CommandEnd::with(exit)
        }
        Err(error) => CommandEnd::error(exit, error),
    }
}

/// Reports why trials failed, which a quiet run did not report while they ran. Several consequences of one cause are
/// reported once.
fn report_failures(result: &RunResult) {
    let mut reported: Vec<&str> = Vec::new();
    for trial in &result.trials {
        let Some(failure) = trial.failure.as_deref() else { continue };
        if reported.iter().any(|known| failure.contains(known)) {
            continue;
        }
        exit::show(&format!("{}, trial {}: {failure}", trial.case, trial.trial));
        reported.extend(failure.lines().next());
    }
}

/// The run's results as one document.
pub fn json_of(result: &RunResult) -> serde_json::Value {
    let trials: Vec<_> = result
        .trials
        .iter()
        .map(|t| {
            serde_json::json!({ "case": t.case, "trial": t.trial, "failure": t.failure, "summary": t.summary })
        })
        .collect();
    let mut document = serde_json::json!({
        "run_dir": result.dir.display().to_string(),
        "ended": result.ended,
        "exit": result.exit.code(),
        "trials": trials,
    });
    if !result.settled.is_empty() {
        document["settled"] = result.settled.iter().map(settled).collect();
    }
    document
}

/// A comparison for which trials continued, as JSON.
fn settled(comparison: &ComparisonProgress) -> serde_json::Value {
    let figure = |f: &FigureProgress| {
        serde_json::json!({
            "figure": f.name,
            "verdict": f.call.name(),
            "scale": if f.is_ratio { "ratio" } else { "difference" },
            "effect": f.effect,
        })
    };
    serde_json::json!({
        "base": comparison.base,
        "other": comparison.other,
        "settled": comparison.is_settled,
        "figures": comparison.figures.iter().map(figure).collect::<Vec<_>>(),
    })
}
