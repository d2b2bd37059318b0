//! `loadlab bench` with a record: its options become a plan of one case, or with `--vs` of two whose trials take
//! turns, which is run like any other plan.

use std::path::Path;
use std::time::Duration;

use loadlab_analysis::comparison::compare::{Comparison, Options};
use loadlab_analysis::comparison::differences::pair;
use loadlab_analysis::findings::findings;
use loadlab_analysis::{DiagnosedRun, Exit};
use loadlab_load::target;
use loadlab_run::{Generator, RunOptions, RunResult, conduct, preflight};
use serde_json::{Value, json};

use super::bench::{default_threads, watch_of};
use super::not_measured::Documents;
use super::read_plan::ReadPlan;
use super::run::{default_options, default_out};
#[cfg(feature = "swarm")]
use super::senders;
use super::session::{self, Session};
use super::url_plan::{self, Keys, duration, literal};
use super::{bench, note_record, report, verdict};
use crate::args::{ArrivalsArg, BenchArgs, IoArg, PlanChoice, WhenBehindArg};
use crate::exit::{self, CommandEnd};
use crate::view::{OutputMode, View};
use crate::{mask, output, runs};

/// Runs the command.
pub fn command(args: &BenchArgs) -> CommandEnd {
    let (read, options) = match plan_and_options(args) {
        Ok(both) => both,
        Err(ended) => return documents(args).refused(ended),
    };
    loadlab_system::background::keep_off(&options.generator.cpus);
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended,
    };
    let serving = match args.serving.wanted() {
        Ok(serving) => serving,
        Err(message) => return documents(args).not_measured(Exit::BadPlan, message),
    };
    #[cfg(feature = "swarm")]
    let options = {
        let (hosts, resolved) = (&args.allow_host, &args.resolve);
        match senders::of(&args.swarm, &read, hosts, resolved, args.progress.quiet, &cancel) {
            Ok(senders) => RunOptions { senders, ..options },
            Err(none) => return documents(args).not_measured(none.exit, none.why),
        }
    };
    let title = title_of(args, &read);
    let view = match View::new(OutputMode::of(&args.progress), &title, serving) {
        Ok(view) => view,
        Err(ended) => return documents(args).refused(ended),
    };
    view.title(&title);
    let facts = preflight::read(Duration::ZERO);
    let planned = read.plan.cases().first().and_then(|c| preflight::Demand::of_case(c, options.threads));
    let planned = planned.map(|planned| planned.isolated(read.plan.isolate));
    // Agents on other machines have limits of their own.
    #[cfg(feature = "swarm")]
    let planned = planned.filter(|_| !args.swarm.is_elsewhere());
    view.remarks(planned.map(|planned| preflight::notes(&planned, &facts)).unwrap_or_default());
    let session = Session { view, cancel, wait: args.serving.ui.wait() };
    let out = options.out.clone();
    let work = |options: &RunOptions| {
        conduct(&read.plan, options, &session.cancel, &|event| session.view.on_event(&event))
    };
    session.record(options, work, |result| match result {
        Ok(result) => finish(args, &result),
        Err(error) => {
            note_record(&out, args.progress.quiet, &error);
            documents(args).not_measured(error.exit(), error)
        }
    })
}

/// The plan, and how it is run.
fn plan_and_options(args: &BenchArgs) -> Result<(ReadPlan, RunOptions), CommandEnd> {
    let usage = |message: String| CommandEnd::error(Exit::BadPlan, message);
    check_options(args).map_err(usage)?;
    bench::check_options(args).map_err(usage)?;
    let plan = plan_of(args).map_err(usage)?;
    let read = url_plan::read("bench", &plan, &PlanChoice::default())?;
    let out = args.out.clone().unwrap_or_else(|| default_out("bench"));
    let mut options = default_options(&read, out, &args.allow_host, &args.resolve)?;
    let cpus = args.cpus.as_ref().map(|c| c.0.clone()).unwrap_or_default();
    if !cpus.is_empty() {
        let named: Vec<String> = cpus.iter().map(usize::to_string).collect();
        options.as_given.push(format!("--cpus {}", named.join(",")));
    }
    #[cfg(feature = "swarm")]
    options.as_given.extend(args.swarm.as_given());
    options.threads = args.threads.map_or_else(|| default_threads(&cpus), |t| t as usize);
    options.generator = Generator { cpus, io: Some(bench::io_of(args.io)) };
    options.watch = watch_of(&args.watch)?;
    Ok((read, options))
}

/// Checks that a plan can express all options.
fn check_options(args: &BenchArgs) -> Result<(), String> {
    let unsayable = [(args.connections.is_some(), "--connections"), (args.source.is_some(), "--source")];
    if let Some((_, option)) = unsayable.iter().find(|(given, _)| *given) {
        let kept = match (args.has_agents(), args.vs.is_some()) {
            (true, _) => "--swarm",
            (false, true) => "--vs",
            (false, false) => "--save",
        };
        return Err(format!(
            "{option} cannot be combined with {kept}: a record contains a plan, and a plan cannot express it\nhint: without {kept}, `--json > FILE` keeps the result"
        ));
    }
    if args.has_agents() && (args.cpus.is_some() || args.io != IoArg::Auto) {
        let option = if args.cpus.is_some() { "--cpus" } else { "--io" };
        return Err(format!(
            "{option} is for load threads of this process, but agents send the load\nhint: without {option}; `taskset` \
             binds an agent to cores where it is started"
        ));
    }
    if args.until_certain && args.equivalence_margin <= 0.0 {
        return Err("--until-certain takes an --equivalence-margin above 0: two URLs are never the same to the last digit\n\
                    hint: --equivalence-margin 1%"
            .to_owned());
    }
    if args.samples.is_some() {
        return Err(
            "--samples writes what a record has anyway: `samples.jsonl` of the trial\nhint: leave it out"
                .to_owned(),
        );
    }
    if args.urls.is_some() && (args.request.method.is_some() || args.request.body.is_some()) {
        return Err("--urls with a method or a body cannot be recorded: a plan gets such URLs with GET\nhint: leave --save out, or write a plan with a step for each URL".to_owned());
    }
    Ok(())
}

/// The options as a plan.
fn plan_of(args: &BenchArgs) -> Result<Keys, String> {
    let mut plan = Keys::new();
    plan.insert("loadlab".to_owned(), json!(1));
    plan.insert("name".to_owned(), json!("bench"));
    plan.insert("load".to_owned(), Value::from(load_of(args)?));
    if let (Some(url), Some(other)) = (&args.url, &args.vs) {
        let [base, compared] = names(url, other);
        let case = |name: &str, url: String| json!({ "name": literal(name), "url": url });
        let cases = json!([case(&base, planned(url)?), case(&compared, planned(other)?)]);
        plan.insert("matrix".to_owned(), cases);
        let trials = match args.until_certain {
            true => json!({ "until": "certain", "within": format!("{} %", args.equivalence_margin * 100.0) }),
            // With two URLs, a control would take a third of all trials.
            false => json!({ "count": args.trials, "control": false }),
        };
        plan.insert("trials".to_owned(), trials);
    }
    for (key, conditions) in [("stop_when", &args.stop_when), ("expect", &args.expect)] {
        if !conditions.is_empty() {
            plan.insert(key.to_owned(), json!(conditions.iter().map(|c| literal(c)).collect::<Vec<_>>()));
        }
    }
    Ok(plan)
}

/// A URL of the command line as the plan has it.
fn planned(url: &str) -> Result<String, String> {
    let url = target::Url::parse(url).map_err(|error| error.to_string())?;
    Ok(literal(&url_plan::written(&url)))
}

/// The names of the two cases: their URLs, numbered if those are the same.
fn names(base: &str, other: &str) -> [String; 2] {
    let shown = |url: &str| mask::text(url).into_owned();
    match base == other {
        false => [shown(base), shown(other)],
        true => [format!("{} (first)", shown(base)), format!("{} (second)", shown(other))],
    }
}

fn load_of(args: &BenchArgs) -> Result<Keys, String> {
    let mut load = Keys::new();
    let mut set = |key: &str, value: Value| load.insert(key.to_owned(), value);
    match args.rate {
        None => {
            set("users", json!(args.users.unwrap_or(bench::DEFAULT_USERS)));
        }
        Some(rate_per_s) => {
            set("rate", json!(format!("{rate_per_s}/s")));
            let arrivals = if args.arrivals == ArrivalsArg::Poisson { "poisson" } else { "constant" };
            set("arrivals", json!(arrivals));
            let when_behind = if args.when_behind == WhenBehindArg::Drop { "drop" } else { "queue" };
            set("when_behind", json!(when_behind));
            set("max_in_flight", json!(args.max_in_flight));
        }
    }
    match args.requests {
        Some(requests) => set("requests", json!(requests)),
        None => set("duration", duration(args.duration.unwrap_or(bench::DEFAULT_DURATION_NS))),
    };
    if args.ramp > 0 {
        set("ramp", duration(args.ramp));
    }
    set("grace", duration(args.grace));
    set("seed", json!(args.seed));
    if let Some(threads) = args.threads {
        set("threads", json!(threads));
    }
    url_plan::of_request(&mut load, &args.request)?;
    let step = match (&args.urls, &args.vs, &args.url) {
        (Some(file), ..) => {
            let mut step = url_plan::step(&args.request, "")?;
            if let Some(keys) = step.as_object_mut() {
                keys.remove("get");
                keys.insert("urls".to_owned(), json!(literal(&url_plan::absolute(Path::new(file)))));
            }
            step
        }
        (None, Some(_), _) => url_plan::step(&args.request, "${case.url}")?,
        (None, None, url) => url_plan::step(&args.request, &planned(url.as_deref().unwrap_or_default())?)?,
    };
    load.insert("journey".to_owned(), json!([step]));
    Ok(load)
}

/// The line that is shown before the load begins.
fn title_of(args: &BenchArgs, read: &ReadPlan) -> String {
    let trials = read.plan.schedule().len();
    let what = match (&args.url, &args.vs) {
        (Some(url), Some(other)) if args.until_certain => {
            format!("{url} against {other}: until it is certain how they differ, at most {trials} trials")
        }
        (Some(url), Some(other)) => format!("{url} against {other}: {trials} trials in turn"),
        (Some(url), None) => url.clone(),
        (None, _) => "a list of URLs".to_owned(),
    };
    mask::text(&what).into_owned()
}

/// The documents that the user asked for.
fn documents(args: &BenchArgs) -> Documents<'_> {
    Documents { name: "bench", junit: args.junit.as_deref(), json: None }
}

fn finish(args: &BenchArgs, result: &RunResult) -> CommandEnd {
    let run = match runs::read(&result.dir) {
        Ok(run) => run,
        Err(error) => {
            let exit = Exit::of([result.exit, Exit::CouldNotRun]);
            return documents(args).not_measured(exit, error);
        }
    };
    let junit = args.junit.as_ref().map(|path| output::write_file(path, &loadlab_report::junit(&run)));
    let written = report::write_reports(&run).and(junit.unwrap_or(Ok(())));
    let trouble = result.trials.iter().find_map(|t| t.failure.as_deref());
    let compared = args.vs.as_ref().map(|_| compared(args, &run));
    let worse = args.fail_on_worse && compared.iter().flatten().any(Comparison::is_worse);
    let measured = Exit::of([result.exit, if worse { Exit::Failed } else { Exit::Ok }]);
    let exit = exit::with_reports(measured, &written);
    match compared {
        Some(comparison) => show_compared(args, result, exit, comparison),
        None => show_one(args, &run),
    }
    if !args.json {
        let dir = result.dir.display();
        output::print(&format!("\nrecord: {dir}\n        loadlab report {dir}\n"));
    }
    match (trouble, written) {
        (Some(trouble), _) if args.progress.quiet || measured == Exit::CouldNotRun => {
            CommandEnd::error(exit, trouble)
        }
        (_, Err(error)) => CommandEnd::error(exit, error),
        _ => CommandEnd::with(exit),
    }
}

/// Compares the second URL's trials with those of the first.
fn compared(args: &BenchArgs, run: &DiagnosedRun) -> Option<Comparison> {
    let all = findings(run);
    let options = Options { equivalence_margin: args.equivalence_margin, ..Options::default() };
    all.pairs.first().map(|(base, other)| pair(&all.cases, *base, *other, all.comparing(options)))
}

fn show_compared(args: &BenchArgs, result: &RunResult, exit: Exit, comparison: Option<Comparison>) {
    let all: Vec<Comparison> = comparison.into_iter().collect();
    if args.json {
        let text = loadlab_report::comparisons_json(&all);
        let compared: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let document = json!({
            "run_dir": result.dir.display().to_string(),
            "ended": result.ended,
            "exit": exit.code(),
            "verdict": all.first().map(verdict::word),
            "compared": compared,
        });
        return output::print_json(&document);
    }
    let mut lines = String::new();
    let line = all.first().map(verdict::line).unwrap_or_default();
    loadlab_report::terminal::hanging(&mut lines, "", line.trim_end(), output::out_width(), str::to_owned);
    output::print(&format!("{lines}\n"));
    let document = loadlab_report::compared(&all);
    output::print(&loadlab_report::text(&document, output::out_width(), output::out_has_colour()));
}

/// Prints what `bench` prints without a record.
fn show_one(args: &BenchArgs, run: &DiagnosedRun) {
    let Some(trial) = run.cases.iter().flat_map(|c| &c.trials).next() else { return };
    let Some(summary) = &trial.summary else { return };
    if args.json {
        return output::print_summary(summary);
    }
    if loadlab_analysis::trial::judge::was_never_connected(summary) {
        return;
    }
    let shown = loadlab_report::trial::Trial {
        summary,
        ok_responses: &trial.series.response_ok,
        examples: &trial.examples,
    };
    output::print(&loadlab_report::trial_text(shown, output::out_width(), output::out_has_colour()));
}
