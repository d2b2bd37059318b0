//! The command line. Help, completions and manual are all made from these definitions.

mod bench;
mod find;
pub mod given;
pub mod help;
pub mod other_tools;
mod records;
pub mod renamed;
pub mod request;
pub mod revisions;
pub mod serving;
#[cfg(feature = "swarm")]
mod swarming;
pub mod typed;
mod values;
mod why;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Arguments, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use bench::{ArrivalsArg, BenchArgs, IoArg, WhenBehindArg};
pub use find::FindArgs;
use given::{Header, header};
pub use records::{
    BaselineArgs, CompareArgs, CompareFormat, Format, ListArgs, ReportArgs, ShowArgs, TrendFormat,
};
pub use revisions::{AbArgs, AbFormat, BisectArgs, Revisions};
use serving::{Collector, Endpoint, MetricsTargets, Serving};
#[cfg(feature = "swarm")]
pub use swarming::{AgentArgs, AgentSource, LaunchArg, LostAgentArg, SwarmArgs};
use values::{assignment, duration, few, positive_duration, text_path};
pub use why::WhyArgs;

/// How much load a system takes, its bottleneck, and whether a change helped
#[derive(Debug, Parser)]
#[command(name = "loadlab", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "`loadlab COMMAND -h` shows the essentials of a command, `--help` everything.",
    after_long_help = "`loadlab COMMAND -h` shows the essentials of a command, `--help` everything.\n\n\
    Exit codes: 0 ok · 1 an expectation failed or a component died · 2 bad plan or usage · \
    3 the system did not come up · 4 INVALID: the measurement cannot be trusted · 5 the load could not run · \
    6 undecided: too few samples, or not certain yet · 130 interrupted"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// The command line, with its commands in groups.
pub fn whole() -> clap::Command {
    help::grouped(Args::command())
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// What clap reports: mistakes, and requests for help or the version.
pub fn parse_from(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Args, clap::Error> {
    let mut matches = whole().try_get_matches_from(words)?;
    Args::from_arg_matches_mut(&mut matches)
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a first plan: from a URL, a Compose file or an example
    Init(InitArgs),
    /// Check a plan and this machine, without running anything
    Check(CheckArgs),
    /// Load a single URL, without a plan
    Bench(Box<BenchArgs>),
    /// Run a plan: its system, its loads, every case; leave a record
    ///
    /// Brings the plan's system up, loads it, watches it and takes it down, for every case, and leaves a record and a
    /// report.
    Run(Box<RunArgs>),
    /// Run a plan at two revisions of its code: did the change help?
    ///
    /// Checks out and builds both, then alternates their trials.
    Ab(Box<AbArgs>),
    /// Find the revision that changed a figure
    ///
    /// Measures revisions until one of them is, with a probability of 95 %, the first that changed the figure. Skips
    /// those that do not build.
    Bisect(Box<BisectArgs>),
    /// Resume an interrupted run
    ///
    /// Runs the trials missing from its record, with the same plan and options.
    Resume(Box<ResumeArgs>),
    /// Find the most users, or the highest rate, that meet expectations
    Find(Box<FindArgs>),
    /// Prove which limit holds a plan's system back
    ///
    /// Loads the system in short blocks, in random order. A block tightens one limit by a step, or none; then the limit
    /// that cost most is raised.
    Why(Box<WhyArgs>),
    /// Show a run on the terminal, or one of its cases
    Show(ShowArgs),
    /// Make a report from a run's record: text, HTML, CSV …
    Report(ReportArgs),
    /// Compare cases or runs: better, worse, the same, cannot tell
    Compare(CompareArgs),
    /// List runs and their key figures, newest first
    List(ListArgs),
    /// Make a run the baseline of its plan, or list baselines
    ///
    /// `compare --baseline` and trends use it.
    Baseline(BaselineArgs),
    /// Serve a small web service to try loadlab on
    Demo(DemoArgs),
    /// Send parts of loads that a coordinator orders (`run --swarm`)
    ///
    /// Connects to a NATS server and waits for runs that are signed with the coordinator's key. It sends load
    /// only to this machine and to hosts that its own command line allows.
    #[cfg(feature = "swarm")]
    Agent(AgentArgs),
    /// Remove what killed runs left behind; live runs are not touched
    Clean(CleanArgs),
    /// Print the JSON Schema of plans, for editors
    Schema,
    /// Print a completion script
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
    /// Print the licences of everything loadlab contains
    Licenses,
}

/// Processes that are watched besides loadlab, if no plan names components.
#[derive(Debug, Default, Arguments)]
#[command(next_help_heading = "System")]
pub struct WatchArgs {
    /// Watch this process as a component, in addition to those found; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub watch_pid: Vec<u32>,
    /// Do not look for the local processes that serve the URL, or for those they call
    #[arg(long, hide_short_help = true)]
    pub no_watch: bool,
}

#[derive(Debug, Arguments)]
pub struct PlanArgs {
    /// The plan file
    pub plan: PathBuf,
    #[command(flatten)]
    pub choice: PlanChoice,
}

/// Changes to a plan, and which part of it to run.
#[derive(Clone, Debug, Default, Arguments)]
#[command(next_help_heading = "Plan")]
pub struct PlanChoice {
    /// Apply one of the plan's profiles
    #[arg(long, requires = "plan", value_name = "NAME")]
    pub profile: Option<String>,
    /// Override a value, such as `load.duration=5s`; may be repeated
    ///
    /// A value may be given from outside: `load.journey.0.auth.bearer=${env.TOKEN}`.
    #[arg(long, requires = "plan", value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Only cases whose name (`*`, `?`) or label matches
    ///
    /// The label is that of reports: `400` for `rate=400`.
    #[arg(long, requires = "plan", value_name = "GLOB")]
    pub case: Option<String>,
    /// Only steps with one of these tags
    #[arg(long, requires = "plan", value_name = "A,B", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// Trials of each case, instead of the plan's number
    #[arg(long, requires = "plan", value_name = "N", value_parser = few(1, 10_000))]
    pub trials: Option<u32>,
    /// Run trials until it is certain how the cases differ
    ///
    /// Each round runs every case once, in random order; at most 30 rounds. `--set trials.at_most=…`, `trials.within`
    /// and `trials.budget` change that. Exit code 6: not certain.
    #[arg(long, requires = "plan", conflicts_with = "trials")]
    pub until_certain: bool,
    /// Sample the stacks of components while loads run: flame graphs in the report
    ///
    /// Samples all components, or those named, in every other second; the seconds between show what that costs.
    #[arg(long, requires = "plan", value_name = "A,B", num_args = 0..=1, require_equals = true, default_missing_value = "",
          hide_short_help = true)]
    pub flame_graphs: Option<Sampled>,
    /// Compare these revisions of the plan's repository: `main..HEAD`, or `v1,v2,HEAD`; see `loadlab ab`
    #[arg(long, requires = "plan", value_name = "A..B", value_parser = revisions::range, hide_short_help = true)]
    pub revisions: Option<Revisions>,
    /// What is expected is of each level of a search that options describe
    #[arg(skip)]
    pub is_search: bool,
}

/// Components whose stacks are sampled; empty means all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled(pub Vec<String>);

impl std::str::FromStr for Sampled {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Sampled, Self::Err> {
        Ok(Sampled(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()))
    }
}

impl std::fmt::Display for Sampled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("--flame-graphs")?;
        if self.0.is_empty() { Ok(()) } else { write!(f, "={}", self.0.join(",")) }
    }
}

/// The live page.
#[derive(Clone, Debug, Arguments)]
pub struct UiArgs {
    /// Show progress live in the browser
    ///
    /// Served on loopback: on a free port, or on PORT or ADDR:PORT.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          help_heading = "Result", hide_short_help = true)]
    pub ui: Option<serving::Address>,
    /// How long to serve the page after the end [default: on a terminal until Ctrl-C, else until open pages have the
    /// report]
    #[arg(long, value_name = "T", value_parser = duration, requires = "ui", help_heading = "Result", hide_short_help = true)]
    pub ui_wait: Option<u64>,
}

impl UiArgs {
    /// How long the page is served after the end, if `--ui-wait` says so.
    pub fn wait(&self) -> Option<std::time::Duration> {
        self.ui_wait.map(std::time::Duration::from_nanos)
    }
}

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab run plan.yaml\n  \
    loadlab run plan.yaml --profile quick --set load.users=20\n  \
    loadlab run plan.yaml --junit results.xml --json > results.json\n\n\
    `--help` lists all options. Exit codes: `loadlab --help`.")]
pub struct RunArgs {
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Print the cases that would run, and run nothing
    #[arg(long, help_heading = "Plan", conflicts_with = "json")]
    pub dry_run: bool,
    /// Compare revisions even if the working tree has uncommitted changes
    #[arg(long, help_heading = "Plan", hide_short_help = true)]
    pub allow_dirty: bool,
    #[command(flatten)]
    pub hosts: HostArgs,
    /// Folder for the record [default: ./loadlab-runs/NAME-TIME]
    #[arg(short, long, value_name = "DIR", value_parser = text_path, help_heading = "Result")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// Options of `loadlab resume`.
#[derive(Debug, Arguments)]
#[command(after_help = "Example:\n  loadlab resume last")]
pub struct ResumeArgs {
    /// A run's folder, its name in `loadlab list`, or `last` for the newest that is not complete
    pub run: PathBuf,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = records::RUNS, hide_short_help = true)]
    pub dir: PathBuf,
    /// The plan file, if it is no longer where it was; its text must be the same
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// A `--set` of the original run that the record omits because it contains a secret; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Compare revisions even if the working tree has uncommitted changes
    #[arg(long, hide_short_help = true)]
    pub allow_dirty: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

/// Hosts that a plan or a search may load, and their addresses. `bench` has its own, with `--source` between them.
#[derive(Debug, Arguments)]
pub struct HostArgs {
    /// Host other than loopback that may be loaded
    ///
    /// May be repeated.
    #[arg(long, value_name = "HOST", value_parser = values::host, help_heading = "Request")]
    pub allow_host: Vec<String>,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Request", hide_short_help = true)]
    pub resolve: Vec<loadlab_load::target::Resolved>,
}

/// How a run is shown, and what it leaves besides its record: the same for a new run and a resumed one.
#[derive(Clone, Debug, Arguments)]
pub struct OutputArgs {
    /// Print the results as one JSON document
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Write expectations as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub serving: ServingArgs,
}

/// How progress is shown.
#[derive(Clone, Debug, Arguments)]
#[command(next_help_heading = "Result")]
pub struct ProgressArgs {
    /// Suppress progress output
    #[arg(short, long)]
    pub quiet: bool,
    /// Show progress on a single line instead of a screen
    #[arg(long, conflicts_with = "quiet", hide_short_help = true)]
    pub plain: bool,
}

/// Where a run can be watched from outside.
#[derive(Clone, Debug, Arguments)]
pub struct ServingArgs {
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
}

impl ServingArgs {
    /// Where metrics and the page are to be served.
    ///
    /// # Errors
    /// In words: a file of headers cannot be read.
    pub fn wanted(&self) -> Result<Serving, String> {
        Ok(Serving { metrics: self.metrics.wanted()?, page: self.ui.ui })
    }
}

/// Metrics for other programs.
#[derive(Clone, Debug, Arguments)]
#[command(next_help_heading = "Metrics")]
pub struct MetricArgs {
    /// Serve metrics as Prometheus text on this address while it runs, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Push metrics to an OpenTelemetry collector while it runs (OTLP over HTTP or HTTPS), such as
    /// http://127.0.0.1:4318
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse, hide_short_help = true)]
    pub otlp: Option<Endpoint>,
    /// Interval between pushes
    #[arg(long, value_name = "T", value_parser = positive_duration, default_value = "5s", requires = "otlp", hide_short_help = true)]
    pub otlp_interval: u64,
    /// PEM file of certificates to trust for the collector, instead of the system's
    #[arg(long, value_name = "FILE", requires = "otlp", hide_short_help = true)]
    pub otlp_ca: Option<PathBuf>,
    /// Header of each push, such as credentials, or @FILE with one on each line; never shown; may be repeated
    #[arg(long = "otlp-header", value_name = "HEADER|@FILE", value_parser = header, requires = "otlp", hide_short_help = true)]
    pub otlp_headers: Vec<Header>,
}

impl MetricArgs {
    /// Where metrics are to be served and pushed.
    ///
    /// # Errors
    /// In words: a file of headers cannot be read.
    fn wanted(&self) -> Result<MetricsTargets, String> {
        let every = std::time::Duration::from_nanos(self.otlp_interval);
        let headers = given::headers(&self.otlp_headers, "--otlp-header", true)?;
        let collector = |endpoint: &Endpoint| Collector {
            endpoint: endpoint.clone(),
            every,
            ca: self.otlp_ca.clone(),
            headers: headers.clone(),
        };
        Ok(MetricsTargets { prometheus: self.prometheus, otlp: self.otlp.as_ref().map(collector) })
    }
}

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab check plan.yaml\n  loadlab check plan.yaml --preflight\n  \
    loadlab check --preflight\n\n\
    A host that a run would not load without --allow-host is noted, and is no mistake.\n\
    With --preflight the exit code is 5 if this machine cannot generate the load, and 0 if there are only doubts.")]
pub struct CheckArgs {
    /// The plan file
    #[arg(required_unless_present = "preflight")]
    pub plan: Option<PathBuf>,
    #[command(flatten)]
    pub choice: PlanChoice,
    /// Check whether this machine can generate the plan's loads; without a plan, what it can generate
    #[arg(long)]
    pub preflight: bool,
}

#[derive(Debug, Arguments)]
pub struct CleanArgs {
    /// Only list what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Forget leftovers that can no longer be removed, such as containers of an engine that is gone for good
    #[arg(long)]
    pub forget: bool,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab demo --work 1ms --workers 2 &\n  loadlab bench http://127.0.0.1:8080/\n\n\
    Pages: / · /items/N · /health · POST /login · POST /cart · POST /messages · GET /messages · /stats. All but /health, \
    GET /messages and /stats occupy a worker."
)]
pub struct DemoArgs {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Number of requests served at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = few(1, 1000))]
    pub workers: u32,
    /// How long a request keeps a core busy
    #[arg(long, value_name = "T", default_value = "0s", value_parser = duration)]
    pub work: u64,
    /// How long a request waits, as for a database
    #[arg(long, value_name = "T", default_value = "0s", value_parser = duration)]
    pub wait: u64,
}

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab init http://127.0.0.1:8080/\n  \
    loadlab init compose.yaml -o load.yaml\n  loadlab init --example hello\n  loadlab init --list\n\n\
    The plan passes `loadlab check`. Change it, then run it: `loadlab run`. With the schema beside it, editors complete \
    keys.")]
pub struct InitArgs {
    /// A URL to load, or a Compose file whose services are the system
    #[arg(value_name = "URL|COMPOSE_FILE", required_unless_present_any = ["example", "list"],
          conflicts_with_all = ["example", "list"])]
    pub from: Option<String>,
    /// Write one of the examples, which run without anything else
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    pub example: Option<String>,
    /// List the examples
    #[arg(long)]
    pub list: bool,
    /// The plan file to write
    #[arg(short, long, value_name = "FILE", default_value = "plan.yaml")]
    pub out: PathBuf,
    /// Overwrite files that exist
    #[arg(long)]
    pub force: bool,
}
