//! `loadlab resume`: the record of an interrupted run → the trials that it lacks.

use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_record::documents::manifest::{Manifest, RunEnded};
use loadlab_record::secrets::MASK;
use loadlab_record::store::read_summaries;
use loadlab_record::text::first_line;
use loadlab_run::plan_sha256;
use loadlab_system::ProcessId;

use super::not_measured::Documents;
use super::read_plan;
use super::run;
use crate::args::{self, Command, ResumeArgs, RunArgs};
use crate::exit::CommandEnd;
use crate::runs;

/// Runs the command.
pub fn command(args: &ResumeArgs) -> CommandEnd {
    let found = found(args);
    let dir = found.as_ref().unwrap_or(&args.run);
    let name = dir.display().to_string();
    let json = args.output.json.then(|| serde_json::json!({ "run_dir": name, "trials": [] }));
    let documents = Documents { name: &name, junit: args.output.junit.as_deref(), json };
    let read = found
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|dir| read_summaries(dir).map_err(|error| error.to_string()));
    let manifest = match read {
        Ok(record) => record.manifest,
        Err(why) => return documents.refused(CommandEnd::error(Exit::BadPlan, why)),
    };
    let wrong = |why: String| documents.refused(CommandEnd::error(Exit::BadPlan, format!("{name}: {why}")));
    if let Some(why) = not_resumed(&manifest) {
        return wrong(why);
    }
    let run_args = match run_args(args, dir, &manifest) {
        Ok(run_args) => run_args,
        Err(why) => return wrong(why),
    };
    let read = match read_plan::read_plan(&run_args.plan) {
        Ok(read) => read,
        Err(ended) => return documents.refused(ended),
    };
    let is_same = read.plan.cases().iter().map(|case| &case.name).eq(manifest.cases.iter().map(|c| &c.name));
    if plan_sha256(&read.text) != manifest.plan_sha256 || !is_same || read.plan.trials != manifest.trials {
        let plan = run_args.plan.plan.display();
        let hint = "a changed plan is another experiment: `loadlab run` makes a record of it";
        return wrong(format!("{plan} is not what it was when the run began\nhint: {hint}"));
    }
    run::perform(&run_args, &read, Some(&manifest), &run::show)
}

/// The run's folder; of `last` that of the newest run that is not complete and can be resumed.
///
/// # Errors
/// In words: there is none, or why the newest that is not complete cannot be resumed.
fn found(args: &ResumeArgs) -> Result<PathBuf, String> {
    if args.run != Path::new("last") || runs::is_run(&args.run) {
        return runs::found(&args.run, &args.dir);
    }
    let mut of_newest = None;
    for listed in runs::runs_in(&args.dir, None)? {
        let (manifest, dir) = (&listed.run.manifest, &listed.run.dir);
        if manifest.how == RunEnded::Complete {
            continue;
        }
        match not_resumed(manifest) {
            // Another load beside it would spoil what it measures.
            Some(why) if is_in_progress(manifest) => return Err(format!("{}: {why}", dir.display())),
            None => return Ok(dir.clone()),
            Some(why) if of_newest.is_none() => of_newest = Some(format!("{}: {why}", dir.display())),
            Some(_) => {}
        }
    }
    Err(of_newest.unwrap_or_else(|| {
        format!("no run in {} was cut off\nhint: `loadlab list` shows how each ended", args.dir.display())
    }))
}

fn is_in_progress(manifest: &Manifest) -> bool {
    let writer = ProcessId { pid: manifest.writer.pid, start_ticks: manifest.writer.start_ticks };
    writer.is_alive() && writer != ProcessId::own()
}

/// Why the run cannot be resumed, in words.
fn not_resumed(manifest: &Manifest) -> Option<String> {
    if is_in_progress(manifest) {
        return Some(format!("the run is still in progress: process {} writes it", manifest.writer.pid));
    }
    if manifest.search.is_some() {
        return Some(
            "a search cannot be resumed, since each level depends on those before: run `loadlab find` again"
                .to_owned(),
        );
    }
    if manifest.why.is_some() {
        return Some("its blocks are compared under one load: run `loadlab why` again".to_owned());
    }
    if !Path::new(&manifest.plan_path).is_file() && manifest.plan_path == "bench" {
        return Some("its plan was made from options: run `loadlab bench` again".to_owned());
    }
    None
}

/// Whether an assignment `PATH=VALUE` is to this path.
fn is_of(path: &str, assignment: &str) -> bool {
    assignment.strip_prefix(path).is_some_and(|value| value.starts_with('='))
}

/// Whether the recorded options set this path to a value with a secret.
fn is_secret(path: &str, options: &[String]) -> bool {
    let sets = options.iter().filter_map(|option| option.strip_prefix("--set "));
    sets.filter(|assignment| is_of(path, assignment)).any(|assignment| assignment.contains(MASK))
}

/// The command line that began the run in the folder `dir`, with what is different this time.
fn run_args(args: &ResumeArgs, dir: &Path, manifest: &Manifest) -> Result<RunArgs, String> {
    let plan = args.plan.clone().unwrap_or_else(|| manifest.plan_path.clone().into());
    if !plan.is_file() {
        return Err(format!(
            "the plan {} does not exist\nhint: its path is relative to the folder where the run was begun; --plan says where \
             it is",
            plan.display()
        ));
    }
    if let Some((path, _)) = args.set.iter().find(|(path, _)| !is_secret(path, &manifest.options)) {
        return Err(format!(
            "--set {path}=…: the run was not begun with a secret there\nhint: other values are those of the record; a change \
             is another experiment, for `loadlab run`"
        ));
    }
    let mut words = vec!["loadlab".into(), "run".into(), plan.into_os_string()];
    for option in &manifest.options {
        let (name, value) = option.split_once(' ').unwrap_or((option, ""));
        if name == "--set" && args.set.iter().any(|(path, _)| is_of(path, value)) {
            continue;
        }
        if value.contains(MASK) {
            return Err(format!(
                "the record does not keep the secret in `{option}`\nhint: give the value again, with --set"
            ));
        }
        // Some options have no value: `--until-certain`. As one word, a value may begin with a dash.
        words.push(if option.contains(' ') { format!("{name}={value}").into() } else { name.into() });
    }
    let parsed = args::parse_from(words).map_err(|error| {
        format!("the options of its record are not understood: {}", first_line(&error.to_string()))
    })?;
    let Command::Run(mut run) = parsed.command else {
        return Err("its record is not that of a run".to_owned());
    };
    run.plan.choice.set.extend(args.set.iter().cloned());
    run.out = Some(dir.to_owned());
    run.allow_dirty = args.allow_dirty;
    run.output = args.output.clone();
    #[cfg(feature = "swarm")]
    if args.swarm.swarm.is_some() {
        run.swarm = args.swarm.clone();
    }
    Ok(*run)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_those_of_the_record_with_and_without_a_value() {
        let plan = std::env::current_exe().expect("a file");
        let manifest: Manifest = serde_json::from_value(json!({
            "record": 2, "loadlab": "0", "name": "test", "plan_path": plan, "plan_text": "", "plan_sha256": "",
            "options": ["--case -a*", "--until-certain", "--flame-graphs=web,db", "--set load.users=3 4"],
            "started": "", "ended": null, "how": "interrupted", "writer": { "pid": 1, "start_ticks": 1 },
            "host": { "kernel": "", "cpu": "", "cores": 2, "memory_bytes": 1, "clock_source": "", "cgroup": "" },
            "words": [], "components": [], "axes": [], "trials": 30, "expect": [], "quick": false, "cases": [],
        }))
        .expect("a manifest");
        let words = ["loadlab", "resume", "run", "--allow-dirty"].map(std::ffi::OsString::from);
        let Ok(Command::Resume(args)) = args::parse_from(words.to_vec()).map(|parsed| parsed.command) else {
            panic!("resume is a command")
        };
        let run = run_args(&args, &args.run, &manifest).expect("options of `run`");
        let choice = &run.plan.choice;
        assert_eq!(
            (choice.case.as_deref(), choice.until_certain, run.allow_dirty),
            (Some("-a*"), true, true)
        );
        assert_eq!(
            choice.flame_graphs.as_ref().map(ToString::to_string).as_deref(),
            Some("--flame-graphs=web,db")
        );
        assert_eq!(choice.set, [("load.users".to_owned(), "3 4".to_owned())]);
    }
}
