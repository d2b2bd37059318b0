//! The command line. One table makes help, completions and manual.

pub mod given;
pub mod renamed;
pub mod serving;

use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};
use loadlab_record::units;

use given::{Header, ProxyGiven, header};
use serving::{Collector, Endpoint, Wanted};

/// Find out how much load a system takes, what its bottleneck is, and whether a change helped
#[derive(Debug, Parser)]
#[command(name = "loadlab", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 ok · 1 an expectation failed or a component died · 2 bad plan or usage · \
    3 the system did not come up · 4 INVALID: the measurement cannot be trusted · 5 the load could not run · \
    6 undecided: too few samples · 130 interrupted"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a plan: bring its system up, load it, watch it, take it down, for every case; leave a record and a report
    Run(Box<RunArgs>),
    /// Load one URL (or a list of them), no plan
    Bench(Box<BenchArgs>),
    /// Find the largest number of users, or the highest rate, that still meets the expectations
    Find(Box<FindArgs>),
    /// Make a report from a run's record, at any later time
    Report(ReportArgs),
    /// Compare cases of a run, or several runs: better, worse, the same, or cannot tell
    Compare(CompareArgs),
    /// List the runs under a folder, newest first
    List(ListArgs),
    /// Show a run's report on the terminal
    Show(ShowArgs),
    /// Make a run the baseline of its plan, which `compare --baseline` and trends use; without a run, list the baselines
    Baseline(BaselineArgs),
    /// Check a plan without running it, and with `--preflight` the machine
    Check(CheckArgs),
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

/// Who is watched beside loadlab, where no plan names components.
#[derive(Debug, Default, Arguments)]
pub struct WatchArgs {
    /// Watch this process as a component, beside those that answer; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub watch_pid: Vec<u32>,
    /// Do not watch the processes of this machine that answer, nor those that they ask
    #[arg(long)]
    pub no_watch: bool,
}

#[derive(Debug, Arguments)]
pub struct PlanArgs {
    /// The plan file
    pub plan: PathBuf,
    #[command(flatten)]
    pub choice: PlanChoice,
}

/// What is changed in a plan, and which part of it is meant.
#[derive(Debug, Arguments)]
pub struct PlanChoice {
    /// Apply one of the plan's profiles
    #[arg(long, requires = "plan", value_name = "NAME")]
    pub profile: Option<String>,
    /// Override a value of the plan, such as `load.duration=5s` or `load.journey.0.auth.bearer=${env.TOKEN}`; may be repeated
    #[arg(long, requires = "plan", value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Only cases whose name matches, `*` and `?` as in a shell
    #[arg(long, requires = "plan", value_name = "GLOB")]
    pub case: Option<String>,
    /// Only steps with one of these tags
    #[arg(long, requires = "plan", value_name = "A,B", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// Trials of each case, instead of the plan's number
    #[arg(long, requires = "plan", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub trials: Option<u32>,
}

/// The live page.
#[derive(Debug, Arguments)]
pub struct UiArgs {
    /// Show progress live in the browser, on loopback: on a free port, or on PORT or ADDR:PORT
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0",
          help_heading = "Result")]
    pub ui: Option<serving::Address>,
    /// How long to serve the page after the end [default: on a terminal until Ctrl-C, else until open pages have the
    /// report]
    #[arg(long, value_name = "T", value_parser = duration, requires = "ui", help_heading = "Result")]
    pub ui_wait: Option<u64>,
}

impl UiArgs {
    /// How long the page stays, where that is said.
    pub fn wait(&self) -> Option<std::time::Duration> {
        self.ui_wait.map(std::time::Duration::from_nanos)
    }
}

#[derive(Debug, Arguments)]
pub struct RunArgs {
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Folder for the record [default: ./loadlab-runs/NAME-TIME]
    #[arg(short, long, value_name = "DIR", value_parser = text_path)]
    pub out: Option<PathBuf>,
    /// Print the cases that would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the results as one JSON document on standard output
    #[arg(long)]
    pub json: bool,
    /// Suppress progress output
    #[arg(short, long)]
    pub quiet: bool,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR")]
    pub resolve: Vec<loadlab_load::target::Resolved>,
    /// Print progress line by line, also on a terminal
    #[arg(long, conflicts_with = "quiet")]
    pub plain: bool,
    /// Write expectations as JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
    /// Host other than loopback that may be loaded; may be repeated
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
}

/// Metrics for other programs.
#[derive(Debug, Arguments)]
pub struct MetricArgs {
    /// Serve metrics as Prometheus text on this address while it runs, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDR")]
    pub prometheus: Option<std::net::SocketAddr>,
    /// Push metrics to an OpenTelemetry collector while it runs (OTLP over HTTP or HTTPS), such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse)]
    pub otlp: Option<Endpoint>,
    /// Interval between pushes
    #[arg(long, value_name = "T", value_parser = positive_duration, default_value = "5s", requires = "otlp")]
    pub otlp_interval: u64,
    /// Certificates to trust with the collector instead of the system's, PEM
    #[arg(long, value_name = "FILE", requires = "otlp")]
    pub otlp_ca: Option<PathBuf>,
    /// Header of each push, such as credentials, or @FILE with one on each line; never shown; may be repeated
    #[arg(long = "otlp-header", value_name = "HEADER|@FILE", value_parser = header, requires = "otlp")]
    pub otlp_headers: Vec<Header>,
}

impl MetricArgs {
    /// Where they are wanted.
    ///
    /// # Errors
    /// In words: a file of headers cannot be read.
    pub fn wanted(&self) -> Result<Wanted, String> {
        let every = std::time::Duration::from_nanos(self.otlp_interval);
        let headers = given::headers(&self.otlp_headers, "--otlp-header", true)?;
        let collector = |endpoint: &Endpoint| Collector {
            endpoint: endpoint.clone(),
            every,
            ca: self.otlp_ca.clone(),
            headers: headers.clone(),
        };
        Ok(Wanted { prometheus: self.prometheus, otlp: self.otlp.as_ref().map(collector) })
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
    Md,
    Html,
    Json,
    Csv,
}

#[derive(Debug, Arguments)]
pub struct ReportArgs {
    /// The run's folder
    pub run_dir: PathBuf,
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
pub struct ShowArgs {
    /// A run's folder, its name in the list, or `last` for the newest
    pub run: PathBuf,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = RUNS)]
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    Text,
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
    /// Ratios that differ from 1 by at most this count as the same
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "2%")]
    pub equivalence_margin: f64,
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
    /// Condition that a level must meet, such as `p99 < 50ms`; may be repeated
    #[arg(long, required = true, value_name = "EXPR")]
    pub expect: Vec<String>,
    /// Range of users to search
    #[arg(long, value_name = "LO..HI", value_parser = users_range, conflicts_with = "rate")]
    pub users: Option<(u64, u64)>,
    /// Range of requests per second to search
    #[arg(long, value_name = "LO..HI", value_parser = rate_range)]
    pub rate: Option<(u64, u64)>,
    /// How long each level is measured [default: 10s, or the plan's own duration]
    #[arg(long, value_name = "T", value_parser = positive_duration)]
    pub level_duration: Option<u64>,
    /// How long each level settles before it is measured [default: a fifth of the duration, at most 5s]
    #[arg(long, value_name = "T", value_parser = duration)]
    pub settle: Option<u64>,
    /// Maximum number of levels to measure, repeats included
    #[arg(long, value_name = "N", default_value_t = loadlab_analysis::search::MAX_LEVELS,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub max_levels: u32,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Load of the plan to vary, where it has several
    #[arg(long, value_name = "NAME")]
    pub load: Option<String>,
    /// Apply one of the plan's profiles
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Override a value of the plan, such as `load.timeout=5s`; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The case of the plan, where it has several
    #[arg(long, value_name = "GLOB")]
    pub case: Option<String>,
    /// Folder for the record [default: ./loadlab-runs/find-NAME-TIME]
    #[arg(short, long, value_name = "DIR", value_parser = text_path)]
    pub out: Option<PathBuf>,
    /// Print the answer as one JSON document on standard output
    #[arg(long)]
    pub json: bool,
    /// Suppress progress output
    #[arg(short, long)]
    pub quiet: bool,
    /// Print progress line by line, also on a terminal
    #[arg(long, conflicts_with = "quiet")]
    pub plain: bool,
    #[command(flatten)]
    pub ui: UiArgs,
    /// Host other than loopback that may be loaded; may be repeated
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
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
#[command(after_help = "Examples:\n  loadlab bench http://127.0.0.1:8080/\n  \
    loadlab bench http://127.0.0.1:8080/ -c 100 -d 30s --expect 'p99 < 50ms' --expect 'errors < 0.1%'\n  \
    loadlab bench http://127.0.0.1:8080/ -r 1000/s -d 1m --arrivals poisson\n\n\
    In the closed model (-c) each user sends its next request when its last one has ended; in the open model (-r) \
    requests fall due on a schedule, whatever the system does, and response times run from when they were due.")]
pub struct BenchArgs {
    /// URL to load: `http://HOST[:PORT]/PATH`, https, or `unix:/PATH/TO.sock:/URL/PATH`
    #[arg(required_unless_present = "urls", conflicts_with = "urls")]
    pub url: Option<String>,

    /// Users, each on its own connection (closed model) [default: 50]
    #[arg(short = 'c', long, value_name = "N", conflicts_with = "rate", help_heading = "Load",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub users: Option<u64>,
    /// Requests per second, such as 1000/s (open model)
    #[arg(short = 'r', long, value_name = "RATE", value_parser = rate, help_heading = "Load")]
    pub rate: Option<f64>,
    /// Duration, such as 30s or 1m30s [default: 10s]
    #[arg(short = 'd', long, value_name = "T", value_parser = positive_duration, conflicts_with = "requests", help_heading = "Load")]
    pub duration: Option<u64>,
    /// Number of requests in all, instead of a duration
    #[arg(short = 'n', long, value_name = "N", help_heading = "Load", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Let users or rate grow evenly over this time, which is part of the duration
    #[arg(long, value_name = "T", value_parser = duration, default_value = "0s", help_heading = "Load")]
    pub ramp: u64,
    /// How requests of a rate are spaced
    #[arg(long, value_enum, default_value = "constant", requires = "rate", help_heading = "Load")]
    pub arrivals: ArrivalsArg,
    /// What happens to a request that falls due while no slot is free
    #[arg(long, value_enum, default_value = "queue", requires = "rate", help_heading = "Load")]
    pub when_behind: WhenBehindArg,
    /// Cap on requests in flight in the open model; reaching it raises a doubt
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "rate", help_heading = "Load",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub max_in_flight: u64,
    /// Open this many connections before the load and send on them in turn
    #[arg(long, value_name = "N", help_heading = "Load", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub connections: Option<u64>,
    /// Rate at which these connections are opened
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "20000/s", requires = "connections", help_heading = "Load")]
    pub connect_rate: f64,
    /// How long requests in flight at the end may still take
    #[arg(long, value_name = "T", value_parser = duration, default_value = "5s", help_heading = "Load")]
    pub grace: u64,
    /// End the load when this holds, such as `failed > 1024`; may be repeated
    #[arg(long, value_name = "EXPR", help_heading = "Load")]
    pub stop_when: Vec<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub method: Option<String>,
    /// Header `Name: value`, or @FILE with one on each line, which keeps credentials out of the process list; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER|@FILE", value_parser = header, help_heading = "Request")]
    pub headers: Vec<Header>,
    /// Body, or @FILE to read it from
    #[arg(short = 'b', long, value_name = "BODY|@FILE", help_heading = "Request")]
    pub body: Option<String>,
    /// File with a URL on each line, taken in turn
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub urls: Option<PathBuf>,
    /// Connect from these addresses in turn; on loopback, several are used automatically where one has too few ports
    #[arg(long, value_name = "ADDR[-ADDR]", value_parser = sources, help_heading = "Request")]
    pub source: Option<Sources>,
    /// A new connection for every request
    #[arg(long, help_heading = "Request")]
    pub no_keep_alive: bool,
    /// https: accept any certificate
    #[arg(long, help_heading = "TLS")]
    pub insecure: bool,
    /// https: trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure", help_heading = "TLS")]
    pub cacert: Option<PathBuf>,
    /// https: client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    pub cert: Option<PathBuf>,
    /// https: key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    pub key: Option<PathBuf>,
    /// https: offer only this version
    #[arg(long, value_name = "VERSION", value_parser = ["1.2", "1.3"], help_heading = "TLS")]
    pub tls_version: Option<String>,
    /// https: full handshake on every connection, no session resumption
    #[arg(long, help_heading = "TLS")]
    pub no_resumption: bool,
    /// Use HTTP/2: negotiated by ALPN over https, by prior knowledge otherwise
    #[arg(long, help_heading = "Request")]
    pub http2: bool,
    /// HTTP/2: concurrent requests on each connection; 200 users with 10 streams use 20 connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "http2", default_value_t = 1, help_heading = "Request")]
    pub streams: u32,
    /// Send through this proxy: a tunnel (CONNECT) for https and HTTP/2, absolute URLs for all else; @FILE contains its URL
    #[arg(long, value_name = "URL|@FILE", help_heading = "Request")]
    pub proxy: Option<ProxyGiven>,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Request")]
    pub resolve: Vec<loadlab_load::target::Resolved>,
    /// Fail a request after this time
    #[arg(long, value_name = "T", value_parser = positive_duration, default_value = "30s", help_heading = "Request")]
    pub timeout: u64,
    /// Host other than loopback that may be loaded; may be repeated
    #[arg(long, value_name = "HOST", help_heading = "Request")]
    pub allow_host: Vec<String>,

    /// Condition that must hold, such as `p99 < 50ms` or `errors < 0.1%`; may be repeated
    #[arg(long, value_name = "EXPR", help_heading = "Result")]
    pub expect: Vec<String>,
    /// Print the result as one JSON document on standard output
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    /// Suppress progress output
    #[arg(short, long, help_heading = "Result")]
    pub quiet: bool,
    /// Print progress line by line, also on a terminal
    #[arg(long, conflicts_with = "quiet", help_heading = "Result")]
    pub plain: bool,
    /// Write expectations as JUnit XML to this file
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub junit: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Result")]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub ui: UiArgs,
    #[command(flatten, next_help_heading = "System")]
    pub watch: WatchArgs,
    /// Write resource samples of loadlab, the host and what is watched to this file, as JSON Lines
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub samples: Option<PathBuf>,

    /// Load threads [default: half of the cores, at least one]
    #[arg(short = 't', long, value_name = "N", help_heading = "Generator", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,
    /// Cores for the load threads, such as 1,3 or 4-7
    #[arg(long, value_name = "LIST", value_parser = cpus, help_heading = "Generator")]
    pub cpus: Option<Cpus>,
    /// I/O backend
    #[arg(long, value_enum, default_value = "auto", help_heading = "Generator")]
    pub io: IoArg,
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

/// The path of a record, which names itself in JSON: text, or clap refuses it.
fn text_path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
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
    units::parse_rate_per_s(text).map_err(|e| e.to_string())
}

/// A share such as `2%` or `0.02`, below 1.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
    let value: f64 = number.parse().map_err(|_| format!("`{text}` is not a share such as `2%`"))?;
    let value = value / unit;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("must be at least 0 and below 100%".to_owned()) }
}

fn range<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<(T, T), String> {
    let (low, high) =
        text.split_once("..").ok_or_else(|| format!("`{text}` is not a range such as `1..500`"))?;
    Ok((read(low.trim())?, read(high.trim())?))
}

fn levels((low, high): (u64, u64)) -> Result<(u64, u64), String> {
    match (low, high) {
        (0, _) => Err("the lowest level must be at least 1".to_owned()),
        (low, high) if low > high => Err(format!("{low} is more than {high}")),
        (_, high) if high > 10_000_000 => Err("the highest level must be at most 10000000".to_owned()),
        levels => Ok(levels),
    }
}

fn users_range(text: &str) -> Result<(u64, u64), String> {
    levels(range(text, |n| n.parse().map_err(|_| format!("`{n}` is not a number of users")))?)
}

/// Rates in whole requests per second: what a search tells apart.
fn rate_range(text: &str) -> Result<(u64, u64), String> {
    let per_s = |n: &str| match n.parse::<u64>() {
        Ok(n) => Ok(n),
        Err(_) => rate(n).map(|per_s| per_s.round() as u64),
    };
    levels(range(text, per_s)?)
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
