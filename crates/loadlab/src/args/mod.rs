//! The command line. Help, completions and manual are all made from these definitions.

pub mod elsewhere;
pub mod given;
pub mod help;
pub mod renamed;
pub mod request;
pub mod revisions;
pub mod serving;
mod why;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Arguments, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use loadlab_record::search::SearchVariable;
use loadlab_record::units;

use given::{Header, header};
use request::RequestArgs;
pub use revisions::{AbArgs, AbFormat, BisectArgs, Revisions};
use serving::{Collector, Endpoint, MetricsTargets};
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
    /// Check a plan without running it, and the machine
    Check(CheckArgs),
    /// Load a URL, no plan
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
    /// Measures revisions until one of them is the first that shifts the figure, with a probability of 95 %. Those that do not
    /// build are skipped.
    Bisect(Box<BisectArgs>),
    /// Resume an interrupted run
    ///
    /// Runs the trials missing from its record, with the same plan and options.
    Resume(Box<ResumeArgs>),
    /// Find the most users, or the highest rate, that meets expectations
    Find(Box<FindArgs>),
    /// Prove which limit holds a plan's system back
    ///
    /// Under one load, in short blocks of random order, each limit is tightened by a step; then the one that cost most is
    /// raised.
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
    /// Connects to a NATS server and waits for runs that are signed with the coordinator's key. It loads this machine
    /// alone, and the hosts that its own command line allows.
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
    /// Watch this process as a component, beside those that answer; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub watch_pid: Vec<u32>,
    /// Do not watch the processes of this machine that answer, nor those that they ask
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
    /// Only cases whose name matches (`*`, `?`)
    #[arg(long, requires = "plan", value_name = "GLOB")]
    pub case: Option<String>,
    /// Only steps with one of these tags
    #[arg(long, requires = "plan", value_name = "A,B", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// Trials of each case, instead of the plan's number
    #[arg(long, requires = "plan", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub trials: Option<u32>,
    /// Trials until it is certain how the cases differ
    ///
    /// In rounds of all cases in random order, 30 at most; `--set trials.at_most=…`, `trials.within` and `trials.budget`
    /// change that. Exit code 6: not certain.
    #[arg(long, requires = "plan", conflicts_with = "trials")]
    pub until_certain: bool,
    /// Sample the stacks of components while loads run: flame graphs in the report
    ///
    /// In one second of every two; the others show what it costs. Of all components, or of those named.
    #[arg(long, requires = "plan", value_name = "A,B", num_args = 0..=1, require_equals = true, default_missing_value = "",
          hide_short_help = true)]
    pub flame_graphs: Option<Sampled>,
    /// Compare these revisions of the plan's repository: `main..HEAD`, or `v1,v2,HEAD`; see `loadlab ab`
    #[arg(long, requires = "plan", value_name = "A..B", value_parser = revisions::range, hide_short_help = true)]
    pub revisions: Option<Revisions>,
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
    /// On loopback: on a free port, or on PORT or ADDR:PORT.
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
    #[arg(long, help_heading = "Plan")]
    pub dry_run: bool,
    /// Compare revisions though the tree has changes that none of them has
    #[arg(long, help_heading = "Plan", hide_short_help = true)]
    pub allow_dirty: bool,
    /// Host other than loopback that may be loaded
    ///
    /// May be repeated.
    #[arg(long, value_name = "HOST", help_heading = "Request")]
    pub allow_host: Vec<String>,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Request", hide_short_help = true)]
    pub resolve: Vec<loadlab_load::target::Resolved>,
    /// Folder for the record [default: ./loadlab-runs/NAME-TIME]
    #[arg(short, long, value_name = "DIR", value_parser = text_path, help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Print the results as one JSON document
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Write expectations as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

#[cfg(feature = "swarm")]
mod swarming;
/// Options of `loadlab resume`.
#[derive(Debug, Arguments)]
#[command(after_help = "Example:\n  loadlab resume loadlab-runs/shop-20261125-101500")]
pub struct ResumeArgs {
    /// The run's folder
    pub run: PathBuf,
    /// The plan file, if it is no longer where it was; its text must be the same
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// A value of the first command line that the record does not keep, since it has a secret; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Compare revisions though the tree has changes that none of them has
    #[arg(long, hide_short_help = true)]
    pub allow_dirty: bool,
    /// Print the results as one JSON document
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Write expectations as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

#[cfg(feature = "swarm")]
pub use swarming::{AgentArgs, LaunchArg, LostAgentArg, SwarmArgs, SwarmPlace};

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

/// Metrics for other programs.
#[derive(Clone, Debug, Arguments)]
#[command(next_help_heading = "Metrics")]
pub struct MetricArgs {
    /// Serve metrics as Prometheus text on this address while it runs, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Push metrics to an OpenTelemetry collector while it runs (OTLP over HTTP or HTTPS), such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse, hide_short_help = true)]
    pub otlp: Option<Endpoint>,
    /// Interval between pushes
    #[arg(long, value_name = "T", value_parser = positive_duration, default_value = "5s", requires = "otlp", hide_short_help = true)]
    pub otlp_interval: u64,
    /// Certificates to trust with the collector instead of the system's, PEM
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
    pub fn wanted(&self) -> Result<MetricsTargets, String> {
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
    With --preflight the exit code is 5 if something makes the load impossible on this machine, and 0 if there are \
    only doubts.")]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    #[value(alias = "markdown")]
    Md,
    Html,
    Json,
    Csv,
    /// The rows of siege
    Siege,
    /// The columns of wrk
    Wrk,
}

#[derive(Debug, Arguments)]
pub struct ReportArgs {
    /// A run's folder, its name in the list, or `last` for the newest
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = RUNS)]
    pub dir: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Where `run` leaves its records.
pub const RUNS: &str = "loadlab-runs";

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab list\n  loadlab list --trend p99\n  \
    loadlab list --trend goodput --case '*10 users*' --last 50\n  \
    loadlab list --trend p50,p99,goodput --format html -o trend.html")]
pub struct ListArgs {
    /// The folder that contains the runs
    #[arg(default_value = RUNS)]
    pub dir: PathBuf,
    /// Show how figures of each case changed from run to run, such as goodput, p99 or errors
    #[arg(long, value_name = "FIGURE,…", value_delimiter = ',')]
    pub trend: Vec<String>,
    /// Trend: only cases whose name matches, `*` and `?` as in a shell
    #[arg(long, value_name = "GLOB", requires = "trend")]
    pub case: Option<String>,
    /// Only runs whose plan has this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of runs to list, newest first
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub last: usize,
    /// Print the list as one JSON document
    #[arg(long, conflicts_with = "trend")]
    pub json: bool,
    /// Trend: output format
    #[arg(long, value_enum, default_value = "text", requires = "trend")]
    pub format: TrendFormat,
    /// Trend: write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", requires = "trend")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrendFormat {
    Text,
    #[value(alias = "markdown")]
    Md,
    Html,
}

#[derive(Debug, Arguments)]
pub struct BaselineArgs {
    /// A run's folder, its name in the list, or `last` for the newest
    pub run: Option<PathBuf>,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = RUNS)]
    pub dir: PathBuf,
    /// Remove the baseline
    #[arg(long, requires = "run")]
    pub remove: bool,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab show last\n  loadlab show last --full\n  loadlab show last --brief\n  \
    loadlab show last '1% CPU'\n  loadlab show edges-20261125-101500 'cpu=*'"
)]
pub struct ShowArgs {
    /// A run's folder, its name in the list, or `last` for the newest; or a case of the newest run
    #[arg(value_name = "RUN|CASE", default_value = "last")]
    pub run: PathBuf,
    /// Only the case with this name (`*` and `?` as in a shell)
    #[arg(value_name = "CASE")]
    pub case: Option<String>,
    /// Print the whole report: each case, its examples, all figures, the setup
    #[arg(long, conflicts_with = "brief")]
    pub full: bool,
    /// Print one line a case
    #[arg(long)]
    pub brief: bool,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = RUNS)]
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    Text,
    #[value(alias = "markdown")]
    Md,
    Html,
    Json,
}

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab compare loadlab-runs/edges-1\n  \
    loadlab compare loadlab-runs/edges-1 control '1% CPU'\n  \
    loadlab compare loadlab-runs/before loadlab-runs/after --fail-on-worse\n  \
    loadlab compare last --baseline --fail-on-worse\n\n\
    With one run, its cases are compared with the first (or the one called `baseline` or `control`), trials paired by \
    round. With several, each is compared with the first, case by case. Below 5 trials the answer is always \
    \"cannot tell\".")]
pub struct CompareArgs {
    /// The folder of a run, its name in the list, or `last`; then more of them, or names of cases of the first
    #[arg(required = true, value_name = "RUN|CASE")]
    pub what: Vec<String>,
    /// Compare with the baseline of the plan (`loadlab baseline`), or with this run
    #[arg(long, value_name = "RUN", num_args = 0..=1, require_equals = true)]
    pub baseline: Option<Option<PathBuf>>,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = RUNS)]
    pub dir: PathBuf,
    /// Ratios that differ from 1 by at most this count as the same [default: 2%, or the plan's `within`]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub equivalence_margin: Option<f64>,
    /// Exit with 1 if anything is worse
    #[arg(long)]
    pub fail_on_worse: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    pub format: CompareFormat,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab find http://127.0.0.1:8080/ --expect 'p99 < 50ms' --users 1..500\n  \
    loadlab find plan.yaml --expect 'errors < 0.1%' --rate 100/s..5000/s\n\n\
    `--help` lists all options. Exit codes: `loadlab find --help`.",
    after_long_help = "Examples:\n  loadlab find http://127.0.0.1:8080/ --expect 'p99 < 50ms' --users 1..500\n  \
    loadlab find http://127.0.0.1:8080/ --expect 'p99 < 50ms' --rate 100/s..5000/s\n  \
    loadlab find plan.yaml --expect 'p99 < 200ms and errors < 0.1%' --users 10..1000 --level-duration 20s\n\n\
    The range is halved on a logarithmic scale; a level that does not meet the expectation, or falls behind, counts as \
    missed. Both ends of the answer are measured twice. Exit codes: 0 found · 1 not even the lowest level meets it · \
    4 loadlab itself was saturated · 6 too few requests to decide · else as for `run`."
)]
pub struct FindArgs {
    /// A plan, or a URL
    #[arg(value_name = "PLAN|URL")]
    pub target: String,
    /// Condition that a level must meet
    ///
    /// Such as `p99 < 50ms`; may be repeated.
    #[arg(long, required = true, value_name = "EXPR", help_heading = "Search")]
    pub expect: Vec<String>,
    /// Range of users to search
    #[arg(long, value_name = "LO..HI", value_parser = users_range, conflicts_with = "rate", help_heading = "Search")]
    pub users: Option<(u64, u64)>,
    /// Range of requests per second to search
    #[arg(long, value_name = "LO..HI", value_parser = rate_range, help_heading = "Search")]
    pub rate: Option<(u64, u64)>,
    /// How long each level is measured
    ///
    /// Default: 10s, or the plan's own duration.
    #[arg(long, value_name = "T", value_parser = positive_duration, help_heading = "Search")]
    pub level_duration: Option<u64>,
    /// How long each level settles before it is measured [default: a fifth of the duration, at most 5s]
    #[arg(long, value_name = "T", value_parser = duration, help_heading = "Search", hide_short_help = true)]
    pub settle: Option<u64>,
    /// Maximum number of levels to measure, repeats included
    #[arg(long, value_name = "N", default_value_t = loadlab_analysis::scaling::search::MAX_LEVELS, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Search")]
    pub max_levels: u32,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Load of the plan to vary, where it has several
    #[arg(long, value_name = "NAME", help_heading = "Plan", hide_short_help = true)]
    pub load: Option<String>,
    /// Apply one of the plan's profiles
    #[arg(long, value_name = "NAME", help_heading = "Plan", hide_short_help = true)]
    pub profile: Option<String>,
    /// Override a value of the plan
    ///
    /// Such as `load.timeout=5s`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment, help_heading = "Plan")]
    pub set: Vec<(String, String)>,
    /// The case of the plan, where it has several
    #[arg(long, value_name = "GLOB", help_heading = "Plan", hide_short_help = true)]
    pub case: Option<String>,
    /// Only steps with one of these tags
    #[arg(long, value_name = "A,B", value_delimiter = ',', help_heading = "Plan", hide_short_help = true)]
    pub tags: Vec<String>,
    #[command(flatten)]
    pub request: RequestArgs,
    /// Host other than loopback that may be loaded
    ///
    /// May be repeated.
    #[arg(long, value_name = "HOST", help_heading = "Request")]
    pub allow_host: Vec<String>,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Request", hide_short_help = true)]
    pub resolve: Vec<loadlab_load::target::Resolved>,
    /// Folder for the record
    ///
    /// Default: ./loadlab-runs/find-NAME-TIME.
    #[arg(short, long, value_name = "DIR", value_parser = text_path, help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Print the answer as one JSON document
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Write the answer as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Result", hide_short_help = true)]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab demo --work 1ms --workers 2 &\n  loadlab bench http://127.0.0.1:8080/\n\n\
    Pages: / · /items/N · /health · POST /login · POST /cart · POST /messages · /messages · /stats. All but /health, \
    /messages and /stats take a worker."
)]
pub struct DemoArgs {
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Number of requests served at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
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
    The plan passes `loadlab check`; change it and `loadlab run` it. The schema beside it lets editors complete keys.")]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArrivalsArg {
    /// Evenly spaced
    Constant,
    /// Independent arrivals, exponential gaps
    Poisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenBehindArg {
    /// They wait, and the wait counts
    Queue,
    /// They are dropped and counted
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoArg {
    /// The best the kernel allows
    Auto,
    /// io_uring; fail where it is not available
    Uring,
    /// epoll
    Epoll,
}

/// Load a URL.
#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab bench http://127.0.0.1:8080/ -r 1000/s -d 1m --expect 'p99 < 50ms'\n  \
    loadlab bench http://127.0.0.1:8080/ --vs http://127.0.0.1:8081/ -d 5s\n\n\
    `--help` lists all options: TLS, HTTP/2, connections, threads, output, metrics.",
    after_long_help = "Examples:\n  loadlab bench http://127.0.0.1:8080/\n  \
    loadlab bench http://127.0.0.1:8080/ -c 100 -d 30s --expect 'p99 < 50ms' --expect 'errors < 0.1%'\n  \
    loadlab bench http://127.0.0.1:8080/ -r 1000/s -d 1m --arrivals poisson --save\n  \
    loadlab bench http://127.0.0.1:8080/ --vs http://127.0.0.1:8081/ -d 5s --fail-on-worse\n\n\
    In the closed model (-c) each user sends its next request when its last one has ended; in the open model (-r) \
    requests fall due on a schedule, whatever the system does, and response times run from when they were due."
)]
pub struct BenchArgs {
    /// URL to load, such as http://127.0.0.1:8080/
    ///
    /// `http://HOST[:PORT]/PATH`, https, or `unix:/PATH/TO.sock:/URL/PATH`.
    #[arg(required_unless_present = "urls", conflicts_with = "urls")]
    pub url: Option<String>,

    /// Users, each on its own connection [default: 50]
    ///
    /// The closed model: each sends its next request when its last one has ended.
    #[arg(short = 'c', long, value_name = "N", conflicts_with = "rate", help_heading = "Load",
          value_parser = counts(1, 10_000_000))]
    pub users: Option<u64>,
    /// Requests per second, such as 1000/s
    ///
    /// The open model: requests fall due on a schedule, whatever the system does.
    #[arg(short = 'r', long, value_name = "RATE", value_parser = rate, help_heading = "Load")]
    pub rate: Option<f64>,
    /// Duration, such as 30s or 1m30s [default: 10s]
    #[arg(short = 'd', long, value_name = "T", value_parser = positive_duration, conflicts_with = "requests", help_heading = "Load")]
    pub duration: Option<u64>,
    /// Number of requests, instead of a duration
    #[arg(short = 'n', long, value_name = "N", help_heading = "Load", value_parser = counts(1, u64::MAX))]
    pub requests: Option<u64>,
    /// Let users or rate grow evenly over this time, which is part of the duration
    #[arg(long, value_name = "T", value_parser = duration, default_value = "0s", help_heading = "Load", hide_short_help = true)]
    pub ramp: u64,
    /// How requests of a rate are spaced
    #[arg(
        long,
        value_enum,
        default_value = "constant",
        requires = "rate",
        help_heading = "Load",
        hide_short_help = true
    )]
    pub arrivals: ArrivalsArg,
    /// What happens to requests that fall due while all slots are taken
    #[arg(
        long,
        value_enum,
        default_value = "queue",
        requires = "rate",
        help_heading = "Load",
        hide_short_help = true
    )]
    pub when_behind: WhenBehindArg,
    /// Cap on requests in flight in the open model; reaching it raises a doubt
    #[arg(long, value_name = "N", value_parser = counts(1, 10_000_000), default_value = "10000", requires = "rate", help_heading = "Load", hide_short_help = true)]
    pub max_in_flight: u64,
    /// Open this many connections before the load and send on them in turn
    #[arg(long, value_name = "N", help_heading = "Load", value_parser = counts(1, 10_000_000), hide_short_help = true)]
    pub connections: Option<u64>,
    /// Rate at which these connections are opened
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "20000/s", requires = "connections", help_heading = "Load", hide_short_help = true)]
    pub connect_rate: f64,
    /// How long requests in flight at the end may still take
    #[arg(long, value_name = "T", value_parser = duration, default_value = "5s", help_heading = "Load", hide_short_help = true)]
    pub grace: u64,
    /// End the load when this holds, such as `failed > 1024`; may be repeated
    #[arg(long, value_name = "EXPR", help_heading = "Load", hide_short_help = true)]
    pub stop_when: Vec<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load", hide_short_help = true)]
    pub seed: u64,

    #[command(flatten)]
    pub request: RequestArgs,
    /// File with a URL on each line, taken in turn
    #[arg(long, value_name = "FILE", help_heading = "Request", hide_short_help = true)]
    pub urls: Option<PathBuf>,
    /// Host other than loopback that may be loaded
    ///
    /// May be repeated.
    #[arg(long, value_name = "HOST", help_heading = "Request")]
    pub allow_host: Vec<String>,
    /// Connect from these addresses in turn; on loopback, several are used automatically where one has too few ports
    #[arg(long, value_name = "ADDR[-ADDR]", value_parser = sources, help_heading = "Request", hide_short_help = true)]
    pub source: Option<Sources>,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Request", hide_short_help = true)]
    pub resolve: Vec<loadlab_load::target::Resolved>,

    /// Condition that must hold; may be repeated
    ///
    /// Such as `p99 < 50ms` or `errors < 0.1%`; docs/conditions.md lists all names.
    #[arg(long, value_name = "EXPR", help_heading = "Result")]
    pub expect: Vec<String>,
    /// Compare with this URL, loading the two in turn
    ///
    /// Blocks of A B B A: each URL is loaded `--trials` times, for the duration each time. The verdict is that of
    /// `loadlab compare`. Keeps a record.
    #[arg(long, value_name = "URL", conflicts_with = "urls", help_heading = "Result")]
    pub vs: Option<String>,
    /// With `--vs`: go on until it is certain how the two differ, for 30 trials of each at most
    ///
    /// In rounds of both in random order. Exit code 6: not certain.
    #[arg(long, requires = "vs", conflicts_with = "trials", help_heading = "Result", hide_short_help = true)]
    pub until_certain: bool,
    /// Trials of each URL with `--vs`
    #[arg(long, value_name = "N", requires = "vs", value_parser = clap::value_parser!(u32).range(5..=1000),
          default_value_t = 5, help_heading = "Result", hide_short_help = true)]
    pub trials: u32,
    /// With `--vs`: ratios that differ from 1 by at most this count as the same
    #[arg(long, value_name = "SHARE", requires = "vs", value_parser = share, default_value = "2%", help_heading = "Result", hide_short_help = true)]
    pub equivalence_margin: f64,
    /// With `--vs`: exit with 1 if anything is worse
    #[arg(long, requires = "vs", help_heading = "Result", hide_short_help = true)]
    pub fail_on_worse: bool,
    /// Keep a record, as `run` does
    ///
    /// `report`, `show`, `compare` and `list` work on it.
    #[arg(long, help_heading = "Result")]
    pub save: bool,
    /// Folder for the record; implies --save
    ///
    /// Default: ./loadlab-runs/bench-TIME.
    #[arg(short, long, value_name = "DIR", value_parser = text_path, help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Print the result as one JSON document
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
    /// Write expectations as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Result", hide_short_help = true)]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Write resource samples of loadlab, the host and what is watched to this file, as JSON Lines
    #[arg(long, value_name = "FILE", help_heading = "Result", hide_short_help = true)]
    pub samples: Option<PathBuf>,

    /// Load threads [default: half of the cores, at least one]
    #[arg(short = 't', long, value_name = "N", help_heading = "Generator", value_parser = clap::value_parser!(u64).range(1..=1024), hide_short_help = true)]
    pub threads: Option<u64>,
    /// Cores for the load threads, such as 1,3 or 4-7
    #[arg(long, value_name = "LIST", value_parser = cpus, help_heading = "Generator", hide_short_help = true)]
    pub cpus: Option<Cpus>,
    /// I/O backend
    #[arg(long, value_enum, default_value = "auto", help_heading = "Generator", hide_short_help = true)]
    pub io: IoArg,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}

impl BenchArgs {
    /// Whether a record is asked for, or needed.
    pub fn keeps_record(&self) -> bool {
        self.save || self.out.is_some() || self.vs.is_some() || self.has_agents()
    }

    /// Whether agents send the load.
    pub fn has_agents(&self) -> bool {
        #[cfg(feature = "swarm")]
        return self.swarm.swarm.is_some();
        #[cfg(not(feature = "swarm"))]
        false
    }
}

/// A range of addresses.
#[derive(Clone, Debug)]
pub struct Sources(pub Vec<std::net::IpAddr>);

fn sources(text: &str) -> Result<Sources, String> {
    loadlab_load::target::parse_sources(text).map(Sources)
}

/// A list of cores.
#[derive(Clone, Debug)]
pub struct Cpus(pub Vec<usize>);

/// The path of a record, which names itself in JSON: clap refuses a path that is not text.
fn text_path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

/// A count in these bounds; `10k` and `1M` are understood.
fn counts(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let count =
            units::parse_count(text).ok_or("expected a whole number such as `50` or `10k`".to_owned())?;
        match count {
            n if (least..=most).contains(&n) => Ok(n),
            _ if most == u64::MAX => Err(format!("must be at least {least}")),
            _ => Err(format!("must be from {least} to {most}")),
        }
    }
}

/// Reads the number of requests at a time on a connection.
fn streams() -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    let count = counts(1, 10_000);
    move |text| count(text).map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

fn duration(text: &str) -> Result<u64, String> {
    units::parse_duration_ns(text).map_err(|e| e.to_string())
}

fn positive_duration(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0 => Err("must be greater than zero".to_owned()),
        ns => Ok(ns),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    units::parse_short_rate_per_s(text).map_err(|e| e.to_string())
}

/// A share such as `2%` or `0.02`, below 1.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
    let value: f64 = number.parse().map_err(|_| format!("`{text}` is not a share such as `2%`"))?;
    let value = value / unit;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("must be at least 0 and below 100%".to_owned()) }
}

fn users_range(text: &str) -> Result<(u64, u64), String> {
    SearchVariable::Users.range(text)
}

fn rate_range(text: &str) -> Result<(u64, u64), String> {
    SearchVariable::Rate.range(text)
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("expected PATH=VALUE, such as `load.duration=5s`")?;
    if path.trim().is_empty() {
        return Err("the path before `=` is empty".to_owned());
    }
    Ok((path.trim().to_owned(), value.to_owned()))
}

fn cpus(text: &str) -> Result<Cpus, String> {
    let bad = || format!("`{text}` is not a list of cores such as `1,3` or `4-7`");
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: usize = from.trim().parse().map_err(|_| bad())?;
        let to: usize = to.trim().parse().map_err(|_| bad())?;
        if from > to || to >= 1024 {
            return Err(bad());
        }
        cores.extend(from..=to);
    }
    Ok(Cpus(cores))
}
