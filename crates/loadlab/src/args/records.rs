//! Commands that read records: `report`, `list`, `baseline`, `show`, `compare`.

use std::path::{Path, PathBuf};

use clap::{Args as Arguments, ValueEnum};

use super::values::{few, share};

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
    /// A run's folder, its name in `loadlab list`, or `last` for the newest
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
    /// The same as DIR, spelled as in the other commands
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub runs_dir: Option<PathBuf>,
    /// Show how figures of each case changed from run to run, such as goodput, p99 or errors
    #[arg(long, value_name = "FIGURE,…", value_delimiter = ',')]
    pub trend: Vec<String>,
    /// Trend: only cases whose name (`*`, `?`) or label matches
    #[arg(long, value_name = "GLOB", requires = "trend")]
    pub case: Option<String>,
    /// Only runs whose plan has this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of runs to list, newest first
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = few(1, 1_000_000))]
    pub last: u32,
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

impl ListArgs {
    /// The folder that contains the runs, whichever way it was given.
    pub fn folder(&self) -> &Path {
        self.runs_dir.as_ref().unwrap_or(&self.dir)
    }
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
    /// A run's folder, its name in `loadlab list`, or `last` for the newest; without one, the baselines are listed
    pub run: Option<PathBuf>,
    /// The folder that contains the runs
    #[arg(long = "runs-dir", value_name = "DIR", default_value = RUNS)]
    pub dir: PathBuf,
    /// Remove this run from the baselines
    #[arg(long, requires = "run")]
    pub remove: bool,
}

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab show last\n  loadlab show last --full\n  loadlab show last --brief\n  \
    loadlab show last '1% CPU'\n  loadlab show edges-20261125-101500 'cpu=*'"
)]
pub struct ShowArgs {
    /// A run's folder, its name in `loadlab list`, or `last` for the newest; or a case of the newest run
    #[arg(value_name = "RUN|CASE", default_value = "last")]
    pub run: PathBuf,
    /// Only the case with this name (`*`, `?`) or label
    #[arg(value_name = "CASE")]
    pub case: Option<String>,
    /// Print the whole report: each case, its examples, all figures, the setup
    #[arg(long, conflicts_with = "brief")]
    pub full: bool,
    /// Print one line per case
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
    round. With several, each is compared with the first, case by case. Fewer than 5 trials always give \
    \"cannot tell\".")]
pub struct CompareArgs {
    /// A run's folder, its name in `loadlab list`, or `last`; then more of them, or cases of the first
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
