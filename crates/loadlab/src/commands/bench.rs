//! `loadlab bench`: options → a load, its result → text or JSON.

use std::path::Path;
use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_load::protocol::tls::Versions;
use loadlab_load::spec::request::RequestParts;
use loadlab_load::spec::{HeldConnections, Http2, JoinPoint, KnownEnd, OtherThreads, RequestOrder};
use loadlab_load::target::{self, Allowed};
use loadlab_load::{Arrivals, IoChoice, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::documents::summary::Ended;
use loadlab_record::expr::{Expr, ExprError, NameRef, TrialPart};
use loadlab_record::spec::schedule::Think;
use loadlab_record::text::units::format_duration_ns;
use loadlab_report::figures;
use loadlab_run::preflight;
use loadlab_run::{
    Bench, BenchError, BenchResult, Targets, TlsSettings, Via, Watch, bench, http2_heads, parse_expressions,
    read_urls, requests_for_urls, tls_spec,
};
use loadlab_system::ProcessId;

use super::not_measured::Documents;
use super::session;
use crate::args::given::{self, ProxyGiven};
use crate::args::{ArrivalsArg, BenchArgs, IoArg, WatchArgs, WhenBehindArg};
use crate::exit::CommandEnd;
use crate::view::{OutputMode, View};
use crate::{mask, output, ui};

/// The default number of users.
pub const DEFAULT_USERS: u64 = 50;
/// The default length of a load.
pub const DEFAULT_DURATION_NS: u64 = 10_000_000_000;

/// Runs the command.
pub fn command(args: &BenchArgs) -> CommandEnd {
    let watch = match watch_of(&args.watch) {
        Ok(watch) => watch,
        Err(ended) => return documents(args).refused(ended),
    };
    let order = match bench_of(args, watch) {
        Ok(order) => order,
        Err((exit, why)) => return documents(args).not_measured(exit, why),
    };
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended,
    };
    let title = title_of(&order, args);
    loadlab_system::background::keep_off(&order.spec.cpus);
    let serving = match args.serving.wanted() {
        Ok(serving) => serving,
        Err(message) => return documents(args).not_measured(Exit::BadPlan, message),
    };
    let view = match View::new(OutputMode::of(&args.progress), &title, serving) {
        Ok(view) => view,
        Err(ended) => return documents(args).refused(ended),
    };
    view.title(&title);
    if args.connections.is_some() && args.users.is_none() && args.rate.is_none() {
        let text = "--connections holds connections open; concurrent users, as --connections of wrk and autocannon, \
                    are `-c N`";
        view.remarks(vec![text.to_owned()]);
    }
    let (before, facts) = std::thread::scope(|scope| {
        let before = scope.spawn(|| order.read_idle());
        let facts = preflight::read(Duration::ZERO);
        (before.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), facts)
    });
    view.remarks(preflight::notes(&preflight::Demand::of(&order.spec), &facts));
    let result = bench(&order, before, &cancel, &|event| view.on_event(&event));
    view.done();
    let (ended, result) = match result {
        Ok(result) => (finish(args, &result), Some(result)),
        Err(error) => {
            let is_usage = match &error {
                BenchError::Target(error) => error.is_usage(),
                error => matches!(error, BenchError::Samples { .. }),
            };
            let exit = if is_usage { Exit::BadPlan } else { Exit::CouldNotRun };
            (documents(args).not_measured(exit, error), None)
        }
    };
    let page = || result.map(|result| ui::bench::page(&title, &args.expect, result));
    view.serve_report(ended, args.serving.ui.wait(), &cancel, page)
}

fn finish(args: &BenchArgs, result: &BenchResult) -> CommandEnd {
    if args.json {
        output::print_summary(&result.summary);
    } else if !loadlab_analysis::trial::judge::was_never_connected(&result.summary) {
        // If nothing ever answered, the error says enough.
        let trial = loadlab_report::trial::Trial {
            summary: &result.summary,
            ok_responses: &result.series.response_ok,
            examples: &result.examples,
        };
        let width = output::out_width();
        output::print(&loadlab_report::trial::trial_text(trial, width, output::out_has_colour()));
    }
    let mut exit = Exit::of_summary(&result.summary);
    if let Some(path) = &args.junit {
        let name = mask::text(args.url.as_deref().unwrap_or("URLs"));
        let text = loadlab_report::junit_of(&name, &result.summary, result.trouble.as_deref());
        if let Err(error) = output::write_file(path, &text) {
            return CommandEnd::error(Exit::of([exit, Exit::CouldNotRun]), error);
        }
    }
    match &result.trouble {
        Some(trouble) if result.summary.ended != Ended::Interrupted => {
            exit = Exit::of([exit, Exit::CouldNotRun]);
            CommandEnd::error(exit, trouble)
        }
        _ => CommandEnd::with(exit),
    }
}

/// The line that is shown before the load begins, so that a mistyped load is noticed at once.
fn title_of(order: &Bench, args: &BenchArgs) -> String {
    let what = match args.urls {
        Some(_) => figures::plural(order.spec.requests.len() as u64, "URL", "URLs"),
        None => order.url.clone(),
    };
    mask::text(&format!("{what}: {}", load_of(&order.spec.model, order.spec.until))).into_owned()
}

/// Who sends requests, and for how long, in words.
fn load_of(model: &Model, until: Until) -> String {
    let who = match model {
        Model::Closed { users } => figures::plural(*users, "user", "users"),
        Model::Open { rate_per_s, .. } => format!("{} requests/s", figures::number(*rate_per_s)),
    };
    let long = match until {
        Until::Elapsed(ns) => format!("for {}", format_duration_ns(ns as f64)),
        Until::Requests(n) | Until::Repeats(n) => {
            format!("until {}", figures::plural(n, "request", "requests"))
        }
    };
    format!("{who} {long}")
}

/// What is watched. Explicitly named processes must exist.
pub fn watch_of(args: &WatchArgs) -> Result<Watch, CommandEnd> {
    let process = |pid: &u32| {
        ProcessId::of(*pid).ok_or_else(|| {
            let hint = "`pgrep -f NAME` finds the number of a process that runs";
            CommandEnd::error(Exit::BadPlan, format!("--watch-pid {pid}: no such process\nhint: {hint}"))
        })
    };
    let processes = args.watch_pid.iter().map(process).collect::<Result<_, _>>()?;
    Ok(Watch { finds: !args.no_watch, processes })
}

/// The documents that the user asked for.
fn documents(args: &BenchArgs) -> Documents<'_> {
    Documents { name: "loadlab bench", junit: args.junit.as_deref(), json: None }
}

/// Connections held open during the load, if a number of them was given.
fn held_of(args: &BenchArgs) -> Option<HeldConnections> {
    let rate_per_s = args.connect_rate;
    args.connections.map(|connections| HeldConnections { connections, rate_per_s })
}

/// The bench that the options define.
fn bench_of(args: &BenchArgs, watch: Watch) -> Result<Bench, (Exit, String)> {
    let usage = |message: String| (Exit::BadPlan, message);
    let urls = urls_of(args).map_err(usage)?;
    let body = body_of(args.request.body.as_deref()).map_err(usage)?;
    let method = args.request.method();
    let expect = expressions("--expect", &args.expect).map_err(usage)?;
    let stop_when = expressions("--stop-when", &args.stop_when).map_err(usage)?;
    check_ramp(args).map_err(usage)?;
    check_connections(args).map_err(usage)?;
    check_http2(args).map_err(usage)?;
    let cpus = args.cpus.as_ref().map(|c| c.0.clone()).unwrap_or_default();
    check_cpus(&cpus).map_err(usage)?;
    let headers = given::headers(&args.request.headers, "-H", false).map_err(usage)?;
    let proxy = args.request.proxy.as_ref().map(ProxyGiven::read).transpose().map_err(usage)?;
    // The input has been checked; from here on only the environment can fail.
    let keep_alive = !args.request.no_keep_alive;
    let parts = RequestParts { method, headers, body, keep_alive, ..RequestParts::default() };
    let allowed = allowed_of(args);
    let via = proxy.as_ref().map(|proxy| Via { proxy, tunnels_all: args.request.http2 });
    let targets = requests_for_urls(&urls, &parts, &allowed, via).map_err(|error| {
        let exit = if error.is_usage() { Exit::BadPlan } else { Exit::CouldNotRun };
        (exit, error.to_string())
    })?;
    let Targets { requests, hosts, sites, proxy } = targets;
    let http2 = http2_of(args, &urls, &parts).map_err(usage)?;
    let tls = tls_spec(&tls_settings(args), &sites, args.request.http2)
        .map_err(|error| usage(error.to_string()))?;
    let sources = sources_of(args, &hosts);
    let threads = args.threads.map_or_else(|| default_threads(&cpus), |t| t as usize);
    Ok(Bench {
        url: urls.first().cloned().unwrap_or_default(),
        expect,
        stop_when,
        names: allowed.names,
        samples: args.samples.clone(),
        watch,
        spec: LoadSpec {
            name: "bench".to_owned(),
            model: model_of(args),
            until: until_of(args),
            ramp_ns: args.ramp,
            stages: Vec::new(),
            warmup_ns: 0,
            grace_ns: args.grace,
            pace_ns: None,
            pace_when_behind: WhenBehind::Queue,
            think: Think::None,
            timeout_ns: args.request.timeout_ns(),
            keep_alive,
            requests,
            journey: None,
            tls,
            http2,
            order: RequestOrder::Shared,
            hosts,
            proxy,
            tags: Vec::new(),
            pool: None,
            held: held_of(args),
            sources,
            threads,
            other_threads: OtherThreads::default(),
            joins: JoinPoint::default(),
            cpus,
            io: io_of(args.io),
            seed: args.seed,
            secrets: mask::secrets(),
            known_end: KnownEnd::default(),
        },
    })
}

/// When the load ends.
fn until_of(args: &BenchArgs) -> Until {
    match args.requests {
        Some(n) => Until::Requests(n),
        None => Until::Elapsed(args.duration.unwrap_or(DEFAULT_DURATION_NS)),
    }
}

/// What may be loaded, and how it is reached.
fn allowed_of(args: &BenchArgs) -> Allowed {
    Allowed {
        hosts: args.allow_host.clone(),
        resolved: args.resolve.clone(),
        source: args.source.as_ref().and_then(|sources| sources.0.first().copied()),
        ..Allowed::default()
    }
}

/// Addresses to connect from.
fn sources_of(args: &BenchArgs, hosts: &[Vec<target::Address>]) -> Vec<std::net::IpAddr> {
    match &args.source {
        Some(given) => given.0.clone(),
        None => target::sources_for(hosts, args.connections.unwrap_or(0).max(args.users.unwrap_or(0))),
    }
}

/// Reports what no bench can know, or not while it runs.
fn check_known(expr: &Expr, is_live: bool) -> Result<(), ExprError> {
    let names = expr.names();
    if let Some(name) = names.iter().find(|name| is_live && name.part.is_some()) {
        let message = format!("`{}` of a part is known only when the bench is over", name.text);
        let hint = Some("put it into --expect, or leave the part out".to_owned());
        return Err(ExprError { message, at: name.at, len: name.len, hint });
    }
    let is_of_plans = |name: &&NameRef| {
        let is_of_plans = matches!(name.part, Some(TrialPart::Drain | TrialPart::Batch(_)));
        is_of_plans || loadlab_plan::needs_section(&name.text)
    };
    let Some(name) = names.into_iter().find(|name| is_of_plans(&name)) else { return Ok(()) };
    let part = match name.part {
        Some(TrialPart::Drain) => " of a drain",
        Some(TrialPart::Batch(_)) => " of a batch",
        _ => "",
    };
    let message = format!("`{}`{part} has no value in a bench", name.text);
    let hint = Some("it is for plans, which say how to find it out: docs/plan.md".to_owned());
    Err(ExprError { message, at: name.at, len: name.len, hint })
}

/// Expressions over what a bench can know: it has no tags, components or probes.
fn expressions(option: &str, texts: &[String]) -> Result<Vec<Expr>, String> {
    let message = |text: &str, error: ExprError| format!("{option} '{text}': {error}");
    let exprs = parse_expressions(texts).map_err(|(text, error)| message(&text, error))?;
    for (expr, text) in exprs.iter().zip(texts) {
        expr.check_names::<&str>(&[])
            .and_then(|()| check_known(expr, option == "--stop-when"))
            .map_err(|error| message(text, error))?;
    }
    Ok(exprs)
}

/// Checks conditions, and that no options exclude each other.
///
/// # Errors
/// The reason in words.
pub fn check_options(args: &BenchArgs) -> Result<(), String> {
    expressions("--expect", &args.expect)?;
    expressions("--stop-when", &args.stop_when)?;
    check_ramp(args)?;
    check_connections(args)?;
    check_cpus(args.cpus.as_ref().map(|c| c.0.as_slice()).unwrap_or_default())?;
    check_http2(args)
}

/// Checks that the ramp is no longer than the load, of which it is part, as in a plan.
fn check_ramp(args: &BenchArgs) -> Result<(), String> {
    let duration_ns = args.duration.unwrap_or(DEFAULT_DURATION_NS);
    if args.requests.is_some() || args.ramp <= duration_ns {
        return Ok(());
    }
    let [ramp, duration] = [args.ramp, duration_ns].map(|ns| format_duration_ns(ns as f64));
    let default = if args.duration.is_none() { " by default" } else { "" };
    Err(format!(
        "--ramp {ramp} is longer than the load: --duration is {duration}{default}\nhint: the ramp is part of the duration"
    ))
}

/// Checks that there are enough connections: each request in flight needs its own.
fn check_connections(args: &BenchArgs) -> Result<(), String> {
    let Some(connections) = args.connections else { return Ok(()) };
    let users = args.users.unwrap_or(DEFAULT_USERS);
    if args.rate.is_none() && connections < users {
        return Err(format!(
            "{users} users need {users} connections, but --connections opens {connections}\nhint: for concurrent users as in wrk and autocannon write `-c {connections}` instead: each user then has its own connection"
        ));
    }
    if args.request.no_keep_alive {
        return Err(
            "--connections keeps connections open, but --no-keep-alive closes each after one request"
                .to_owned(),
        );
    }
    Ok(())
}

/// The I/O backend that `--io` chooses.
pub fn io_of(io: IoArg) -> IoChoice {
    match io {
        IoArg::Auto => IoChoice::Auto,
        IoArg::Uring => IoChoice::Uring,
        IoArg::Epoll => IoChoice::Epoll,
    }
}

fn http2_of(args: &BenchArgs, urls: &[String], parts: &RequestParts) -> Result<Option<Http2>, String> {
    if !args.request.http2 {
        return Ok(None);
    }
    let heads = http2_heads(urls, parts).map_err(|error| error.to_string())?;
    Ok(Some(Http2 { heads, written: Vec::new(), streams: args.request.streams() }))
}

fn tls_settings(args: &BenchArgs) -> TlsSettings {
    TlsSettings {
        ca: args.request.cacert.clone(),
        identity: args.request.cert.clone().zip(args.request.key.clone()),
        is_insecure: args.request.insecure,
        versions: match args.request.tls_version.as_deref() {
            Some("1.2") => Versions::Only12,
            Some(_) => Versions::Only13,
            None => Versions::Both,
        },
        is_resumed: !args.request.no_resumption,
    }
}

/// Refuses options that do not go with HTTP/2, which shares connections in its own way.
fn check_http2(args: &BenchArgs) -> Result<(), String> {
    let other = match (args.request.http2, args.connections, args.request.no_keep_alive) {
        (true, Some(_), _) => "--connections keeps a connection per request",
        (true, _, true) => "--no-keep-alive closes each connection after one request",
        _ => return Ok(()),
    };
    Err(format!("--http2 shares connections, but {other}\nhint: --streams says how many requests share one"))
}

fn model_of(args: &BenchArgs) -> Model {
    match args.rate {
        None => Model::Closed { users: args.users.unwrap_or(DEFAULT_USERS) },
        Some(rate_per_s) => Model::Open {
            rate_per_s,
            arrivals: match args.arrivals {
                ArrivalsArg::Constant => Arrivals::Constant,
                ArrivalsArg::Poisson => Arrivals::Poisson,
            },
            when_behind: match args.when_behind {
                WhenBehindArg::Queue => WhenBehind::Queue,
                WhenBehindArg::Drop => WhenBehind::Drop,
            },
            max_in_flight: args.max_in_flight,
        },
    }
}

/// The default number of load threads. The system under test is most likely on this machine as well: it is left half of
/// the cores.
pub fn default_threads(cpus: &[usize]) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    if cpus.is_empty() { (cores / 2).max(1) } else { cpus.len() }
}

fn check_cpus(cpus: &[usize]) -> Result<(), String> {
    let set = rustix::thread::sched_getaffinity(None).map_err(|e| format!("--cpus: {e}"))?;
    match cpus.iter().find(|c| !set.is_set(**c)) {
        Some(cpu) => Err(format!(
            "--cpus: loadlab may not use core {cpu}\nhint: `nproc --all` and `taskset -p $$` show which there are"
        )),
        None => Ok(()),
    }
}

fn urls_of(args: &BenchArgs) -> Result<Vec<String>, String> {
    match &args.urls {
        None => args.url.iter().map(|url| not_a_plan(url).map(|()| url.clone())).collect(),
        Some(path) => read_urls(path).map_err(|error| error.to_string()),
    }
}

/// Checks that a URL is not a plan's file.
fn not_a_plan(url: &str) -> Result<(), String> {
    let is_named_so = [".yaml", ".yml"].iter().any(|end| url.ends_with(end));
    match is_named_so && Path::new(url).is_file() {
        true => Err(format!("`{url}` is a file, not a URL\nhint: `loadlab run {url}` runs a plan")),
        false => Ok(()),
    }
}

fn body_of(body: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match body.map(|b| (b, b.strip_prefix('@'))) {
        None => Ok(None),
        Some((_, Some(path))) => {
            let read = std::fs::read(Path::new(path));
            Ok(Some(read.map_err(|e| format!("cannot read the body from {path}: {e}"))?))
        }
        Some((text, None)) => Ok(Some(text.as_bytes().to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_described_as_one_would_say_it() {
        let open = |rate_per_s| Model::Open {
            rate_per_s,
            arrivals: Arrivals::Constant,
            when_behind: WhenBehind::Queue,
            max_in_flight: 1,
        };
        for (model, until, expect) in [
            (Model::Closed { users: 1 }, Until::Requests(1), "1 user until 1 request"),
            (Model::Closed { users: 50 }, Until::Requests(2000), "50 users until 2,000 requests"),
            (open(12_345.0), Until::Elapsed(600_000_000_000), "12,345 requests/s for 10m"),
            // As `-r 100/m` and `-r 2/h` say it.
            (open(100.0 / 60.0), Until::Requests(5), "1.667 requests/s until 5 requests"),
            (open(2.0 / 3600.0), Until::Requests(5), "0.0005556 requests/s until 5 requests"),
        ] {
            assert_eq!(load_of(&model, until), expect);
        }
    }
}
