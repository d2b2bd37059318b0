//! `loadlab find`.

use std::path::PathBuf;

use clap::Args as Arguments;

#[cfg(feature = "swarm")]
use super::SwarmArgs;
use super::request::RequestArgs;
use super::values::{assignment, duration, few, positive_duration, rate_range, text_path, users_range};
use super::{HostArgs, ProgressArgs, ServingArgs, WatchArgs};

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab find http://127.0.0.1:8080/ --expect 'p99 < 50ms' --users 1..500\n  \
    loadlab find plan.yaml --expect 'errors < 0.1%' --rate 100/s..5000/s\n\n\
    `--help` lists all options and the exit codes.",
    after_long_help = "Examples:\n  loadlab find http://127.0.0.1:8080/ --expect 'p99 < 50ms' --users 1..500\n  \
    loadlab find http://127.0.0.1:8080/ --expect 'p99 < 50ms' --rate 100/s..5000/s\n  \
    loadlab find plan.yaml --expect 'p99 < 200ms and errors < 0.1%' --users 10..1000 --level-duration 20s\n\n\
    Each step halves the range on a logarithmic scale. A level that does not meet the expectation, or falls behind, \
    counts as missed. The highest level that held and the lowest that was missed are each measured twice.\n\n\
    Exit codes: 0 found · 1 not even the lowest level meets the expectation · \
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
          value_parser = few(1, 100), help_heading = "Search")]
    pub max_levels: u32,
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Which of the plan's loads to vary, if it has several
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
    /// The case, if the plan has several
    ///
    /// Its name (`*`, `?`), or its label in reports: `400` for `rate=400`.
    #[arg(long, value_name = "GLOB", help_heading = "Plan", hide_short_help = true)]
    pub case: Option<String>,
    /// Only steps with one of these tags
    #[arg(long, value_name = "A,B", value_delimiter = ',', help_heading = "Plan", hide_short_help = true)]
    pub tags: Vec<String>,
    #[command(flatten)]
    pub request: RequestArgs,
    #[command(flatten)]
    pub hosts: HostArgs,
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
    pub serving: ServingArgs,
    #[cfg(feature = "swarm")]
    #[command(flatten)]
    pub swarm: SwarmArgs,
}
