//! `loadlab bench`.

use std::path::PathBuf;

use clap::{Args as Arguments, ValueEnum};

#[cfg(feature = "swarm")]
use super::SwarmArgs;
use super::request::RequestArgs;
use super::values::{
    Cpus, Sources, counts, cpus, duration, few, positive_duration, rate, share, sources, text_path,
};
use super::{ProgressArgs, ServingArgs, WatchArgs};

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
    In the closed model (-c) each user sends its next request when its last one has ended. In the open model (-r) \
    requests fall due on a schedule, whatever the system does, and response times are measured from when a request was \
    due."
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
    /// What happens to requests that fall due while `--max-in-flight` is reached
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
    /// Rate at which `--connections` are opened
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
    #[arg(long, value_name = "HOST", value_parser = super::values::host, help_heading = "Request")]
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
    /// Loads them in blocks of A B B A: each URL `--trials` times, for the whole duration each time. The verdict is
    /// that of `loadlab compare`. Keeps a record.
    #[arg(long, value_name = "URL", conflicts_with = "urls", help_heading = "Result")]
    pub vs: Option<String>,
    /// With `--vs`: run trials until it is certain how the two differ
    ///
    /// Each round runs both once, in random order; at most 30 rounds. Exit code 6: not certain.
    #[arg(long, requires = "vs", conflicts_with = "trials", help_heading = "Result", hide_short_help = true)]
    pub until_certain: bool,
    /// Trials of each URL with `--vs`
    #[arg(long, value_name = "N", requires = "vs", value_parser = few(5, 1000),
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
    pub serving: ServingArgs,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Write resource samples of loadlab, the host and what is watched to this file, as JSON Lines
    #[arg(long, value_name = "FILE", help_heading = "Result", hide_short_help = true)]
    pub samples: Option<PathBuf>,

    /// Load threads [default: half of the cores, at least one]
    #[arg(short = 't', long, value_name = "N", help_heading = "Generator", value_parser = counts(1, 1024), hide_short_help = true)]
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
