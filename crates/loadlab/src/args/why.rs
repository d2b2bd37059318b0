//! `loadlab why`.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::ProgressArgs;
use super::values::{assignment, counts, positive_duration, share, text_path};

#[derive(Debug, Arguments)]
#[command(
    after_help = "Examples:\n  loadlab why plan.yaml\n  loadlab why plan.yaml --case 'under load' --budget 10m\n\n\
    `--help` lists all options and the exit codes.",
    after_long_help = "Examples:\n  loadlab why plan.yaml\n  loadlab why plan.yaml --case 'under load' --budget 10m\n  \
    loadlab why plan.yaml --set load.users=200\n\n\
    loadlab brings the system up once, and loads it in blocks. Each block changes one lever, or nothing: CPU, \
    bandwidth and disk limits go down by a tenth, delays up by a tenth, the plan's levers by their own step. The cost \
    of each has an interval; the intervals hold for all levers together. loadlab restores every limit, even after an \
    interrupt.\n\n\
    Exit codes: 0 answered · 4 INVALID · 6 too few rounds to decide · else as for `run`."
)]
pub struct WhyArgs {
    /// The plan file
    pub plan: PathBuf,
    /// The case, if the plan has several
    ///
    /// Its name (`*`, `?`), or its label in reports: `400` for `rate=400`.
    #[arg(long, value_name = "GLOB", help_heading = "Plan")]
    pub case: Option<String>,
    /// Apply one of the plan's profiles
    #[arg(long, value_name = "NAME", help_heading = "Plan")]
    pub profile: Option<String>,
    /// Override a value of the plan
    ///
    /// Such as `load.users=200`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment, help_heading = "Plan")]
    pub set: Vec<(String, String)>,
    /// How long all loads together may take
    #[arg(long, value_name = "T", default_value = "5m", value_parser = positive_duration, help_heading = "Blocks")]
    pub budget: u64,
    /// Length of a block in seconds; the first second of each block does not count
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = counts(2, 600),
          help_heading = "Blocks")]
    pub block: u64,
    /// A lever binds if a step of it certainly costs more than this share of the goodput
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, help_heading = "Blocks")]
    pub margin: f64,
    /// Seed for the order of the blocks [default: a new one each time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 53), help_heading = "Blocks",
          hide_short_help = true)]
    pub seed: Option<u64>,
    /// Host other than loopback that may be loaded
    ///
    /// May be repeated.
    #[arg(long, value_name = "HOST", value_parser = super::values::host, help_heading = "Load", hide_short_help = true)]
    pub allow_host: Vec<String>,
    /// Folder for the record
    ///
    /// Default: ./loadlab-runs/why-NAME-TIME.
    #[arg(short, long, value_name = "DIR", value_parser = text_path, help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Print the answer as one JSON document
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressArgs,
}
