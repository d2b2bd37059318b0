//! `loadlab find`: a plan or a URL with its expectations → the highest load that meets them.

use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_plan::{self as plan, Plan, SearchVariable};
use loadlab_record::text::units::format_duration_ns;
use loadlab_record::text::url::is_url;
use loadlab_run::{RunOptions, SearchRequest, SearchResult, Watch, find};
use serde_json::{Value, json};

use super::bench::watch_of;
use super::not_measured::Documents;
use super::read_plan::{self, ReadPlan};
use super::report;
use super::run::{default_options, default_out};
#[cfg(feature = "swarm")]
use super::senders;
use super::session::{self, Session};
use super::url_plan::{self, Keys};
use super::{note_record, only_case, without_revisions};
use crate::args::{FindArgs, PlanArgs, PlanChoice};
use crate::exit::{self, CommandEnd};
use crate::view::{OutputMode, View};
use crate::{output, runs};

/// Default ranges of a search: users, and requests per second.
const USERS: (u64, u64) = (1, 1000);
const RATE: (u64, u64) = (1, 10_000);

/// Runs the command.
pub fn command(args: &FindArgs) -> CommandEnd {
    let refused = |ended: CommandEnd| documents(args, &args.target, Path::new("")).refused(ended);
    let read = match read_target(args) {
        Ok(read) => read,
        Err(ended) => return refused(ended),
    };
    let request = match request_of(args, &read.plan) {
        Ok(request) => request,
        Err(message) => return refused(CommandEnd::error(Exit::BadPlan, message)),
    };
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended,
    };
    let options = match options_of(args, &read) {
        Ok(options) => options,
        Err(ended) => return refused(ended),
    };
    let serving = match args.serving.wanted() {
        Ok(serving) => serving,
        Err(message) => return refused(CommandEnd::error(Exit::BadPlan, message)),
    };
    #[cfg(feature = "swarm")]
    let options = {
        let (hosts, resolved) = (&args.hosts.allow_host, &args.hosts.resolve);
        match senders::of(&args.swarm, &read, hosts, resolved, args.progress.quiet, &cancel) {
            Ok(senders) => RunOptions { senders, ..options },
            Err(none) => {
                return documents(args, &read.plan.name, &options.out).not_measured(none.exit, none.why);
            }
        }
    };
    let title = title_of(args, &request);
    let view = match View::new(OutputMode::of(&args.progress), &title, serving) {
        Ok(view) => view,
        Err(ended) => return refused(ended),
    };
    view.title(&title);
    let session = Session { view, cancel, wait: args.serving.ui.wait() };
    let out = options.out.clone();
    let work = |options: &RunOptions| {
        find(&read.plan, &request, options, &session.cancel, &|event| session.view.on_event(&event))
    };
    session.record(options, work, |result| match result {
        Ok(found) => finish(args, &read.plan.name, &found),
        Err(error) => {
            note_record(&out, args.progress.quiet, &error);
            documents(args, &read.plan.name, &out).not_measured(error.exit(), error)
        }
    })
}

/// The line that is shown before the search begins.
fn title_of(args: &FindArgs, request: &SearchRequest) -> String {
    let (low, high) = request.range;
    format!(
        "{}: {} {low} to {high} for {}, at most {} levels of {}",
        args.target,
        request.vary.name(),
        args.expect.join(" and "),
        request.max_levels,
        format_duration_ns((request.level_ns + request.settle_ns) as f64)
    )
}

/// The plan, or one made from a URL, with the expectations added.
fn read_target(args: &FindArgs) -> Result<ReadPlan, CommandEnd> {
    let expect: Vec<String> =
        args.expect.iter().map(|e| serde_json::Value::from(e.as_str()).to_string()).collect();
    let mut set = args.set.clone();
    set.push(("expect".to_owned(), format!("[{}]", expect.join(", "))));
    let choice = PlanChoice {
        profile: args.profile.clone(),
        set,
        case: args.case.clone(),
        tags: args.tags.clone(),
        // The levels of a search are not trials of cases.
        trials: Some(1),
        is_search: true,
        ..PlanChoice::default()
    };
    if !is_url(&args.target) {
        if let Some(option) = args.request.first_given() {
            let hint = format!("`loadlab run PLAN {option}` names the plan's key for it");
            return Err(CommandEnd::error(
                Exit::BadPlan,
                format!("`{option}` is for URLs: a plan has its own\nhint: {hint}"),
            ));
        }
        return read_plan::read_plan(&PlanArgs { plan: PathBuf::from(&args.target), choice });
    }
    let usage = |message: String| CommandEnd::error(Exit::BadPlan, message);
    let given = [
        ("--profile", args.profile.is_some()),
        ("--case", args.case.is_some()),
        ("--tags", !args.tags.is_empty()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(usage(format!("`{option}` is for plans: a URL has no such parts")));
    }
    let url = loadlab_load::target::Url::parse(&args.target).map_err(|error| usage(error.to_string()))?;
    let mut load = Keys::new();
    load.insert("users".to_owned(), json!(1));
    load.insert("duration".to_owned(), json!("10s"));
    url_plan::of_request(&mut load, &args.request).map_err(usage)?;
    let target = url_plan::literal(&url_plan::written(&url));
    let step = url_plan::step(&args.request, &target).map_err(usage)?;
    load.insert("journey".to_owned(), json!([step]));
    let mut plan = Keys::new();
    plan.insert("loadlab".to_owned(), json!(1));
    plan.insert("name".to_owned(), json!("find"));
    plan.insert("load".to_owned(), Value::from(load));
    url_plan::read("find", &plan, &choice)
}

/// What is varied, in which range, and how long each trial takes.
fn request_of(args: &FindArgs, plan: &Plan) -> Result<SearchRequest, String> {
    without_revisions(plan, "find")?;
    let case = only_case(plan, "find")?;
    let load = load_of(args, case)?;
    let varied = &case.loads[load];
    let is_open = matches!(varied.model, plan::Model::Open { .. });
    let (vary, range) = match (args.users, args.rate) {
        (Some(range), _) => (SearchVariable::Users, range),
        (None, Some(range)) => (SearchVariable::Rate, range),
        (None, None) if is_open => (SearchVariable::Rate, RATE),
        (None, None) => (SearchVariable::Users, USERS),
    };
    let unsteady = || plan::unsteady_beside(&case.loads, load);
    if let Some((message, hint)) = plan::unsearchable(varied, vary).or_else(unsteady) {
        return Err(format!("{message}\nhint: {hint}"));
    }
    let (level_ns, settle_ns) = plan::level_times(varied, args.level_duration, args.settle);
    let request = SearchRequest { vary, range, max_levels: args.max_levels, load, level_ns, settle_ns };
    if !request.ids_suffice(case) {
        return Err(format!(
            "`durability` matches request ids, and there are too few of them for {} trials of {} loads\nhint: lower --max-levels, or count with `probe`",
            request.most_trials(),
            case.loads.len()
        ));
    }
    match beyond_level(case, &request) {
        Some(why) => Err(why),
        None => Ok(request),
    }
}

/// Why an expectation could not be met by any level, if it is about a time after it.
fn beyond_level(case: &plan::Case, request: &SearchRequest) -> Option<String> {
    let end_ns = request.settle_ns.saturating_add(request.level_ns);
    let mut expected = case.expect.iter();
    let why = expected.find_map(|expect| plan::beyond_level(&expect.text, &case.figures, end_ns))?;
    Some(format!("{why}\nhint: make levels longer: --level-duration"))
}

fn load_of(args: &FindArgs, case: &plan::Case) -> Result<usize, String> {
    let names = || case.loads.iter().map(|l| format!("`{}`", l.name)).collect::<Vec<_>>().join(", ");
    match (&args.load, case.loads.len()) {
        (None, 1) => Ok(0),
        (None, n) => Err(format!(
            "the plan has {n} loads, but a search varies one\nhint: choose it with --load: {}",
            names()
        )),
        (Some(name), _) => case
            .loads
            .iter()
            .position(|l| l.name == *name)
            .ok_or_else(|| format!("the plan has no load `{name}`\nhint: its loads are {}", names())),
    }
}

/// For a URL, whatever answers is watched; a plan names its components itself.
fn watch_at(args: &FindArgs) -> Result<Watch, CommandEnd> {
    let is_given = args.watch.no_watch || !args.watch.watch_pid.is_empty();
    match is_url(&args.target) {
        true => watch_of(&args.watch),
        false if is_given => {
            let text = "`--watch-pid` and `--no-watch` are for URLs: a plan names what is watched";
            let hint = "add an `external` component with that `pid` to the plan";
            Err(CommandEnd::error(Exit::BadPlan, format!("{text}\nhint: {hint}")))
        }
        false => Ok(Watch::default()),
    }
}

fn options_of(args: &FindArgs, read: &ReadPlan) -> Result<RunOptions, CommandEnd> {
    let name = if is_url(&args.target) { "url" } else { &read.plan.name };
    let out = args.out.clone().unwrap_or_else(|| default_out(&format!("find-{name}")));
    let mut options = default_options(read, out, &args.hosts.allow_host, &args.hosts.resolve)?;
    #[cfg(feature = "swarm")]
    options.as_given.extend(args.swarm.as_given());
    options.watch = watch_at(args)?;
    options.has_viewer = !args.progress.quiet || args.serving.ui.ui.is_some();
    Ok(options)
}

/// The documents that the user asked for, for a plan with this name.
fn documents<'a>(args: &'a FindArgs, name: &'a str, out: &Path) -> Documents<'a> {
    let json = args.json.then(|| json!({ "run_dir": out.display().to_string(), "answer": null }));
    Documents { name, junit: args.junit.as_deref(), json }
}

fn finish(args: &FindArgs, name: &str, found: &SearchResult) -> CommandEnd {
    let read = runs::read(&found.dir).map_err(|e| e.to_string());
    let read = read.inspect_err(|why| documents(args, name, &found.dir).junit(why));
    let written = read.and_then(|run| {
        let junit =
            args.junit.as_ref().map(|path| output::write_file(path, &loadlab_report::junit_of_search(&run)));
        let written = report::write_reports(&run).and(junit.unwrap_or(Ok(())));
        // If nothing was measured, the error says enough.
        if !args.json && !found.facts.path.is_empty() {
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
            "answer": found.answer,
            "search": found.facts,
            "trouble": found.trouble,
        });
        output::print_json(&document);
    }
    match (&found.trouble, written) {
        (Some(trouble), _) => CommandEnd::error(exit, trouble),
        (None, Err(error)) => CommandEnd::error(exit, error),
        (None, Ok(())) if found.answer.is_none() && exit == Exit::CouldNotRun => CommandEnd::error(
            exit,
            "the search found no answer\nhint: the record has its levels and how each ended",
        ),
        (None, Ok(())) => CommandEnd::with(exit),
    }
}
