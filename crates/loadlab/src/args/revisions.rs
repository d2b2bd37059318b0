//! Arguments of the commands about revisions of the plan's repository.

use std::path::PathBuf;

use clap::{Args as Arguments, ValueEnum};

use super::RunArgs;
use super::values::{assignment, few, positive_duration, share, text_path};

/// Names of revisions, the base first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions(pub Vec<String>);

impl std::fmt::Display for Revisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Reads `A..B`, or a list `A,B,C`.
///
/// # Errors
/// In words: it is neither.
pub fn range(text: &str) -> Result<Revisions, String> {
    if text.contains("...") {
        return Err("`A...B` names no base; write `A..B`, or `$(git merge-base A B)..B`".to_owned());
    }
    let named = |name: &str| if name.is_empty() { "HEAD".to_owned() } else { name.to_owned() };
    match text.split_once("..").map(|(base, other)| (named(base), named(other))) {
        Some((base, other)) if base != other => Ok(Revisions(vec![base, other])),
        Some(_) => Err("both ends are the same revision".to_owned()),
        None if text.contains(',') => Ok(Revisions(text.split(',').map(str::to_owned).collect())),
        None => Err("expected a range such as `main..HEAD`, or a list such as `v1,v2,HEAD`".to_owned()),
    }
}

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab ab main..HEAD plan.yaml\n  \
    loadlab ab main..HEAD plan.yaml --until-certain --format md > comment.md\n\n\
    Exit codes: 0 better or the same · 1 worse · 6 not certain · else as for `run`.")]
pub struct AbArgs {
    /// Two revisions, `main..HEAD`; or a list, the base first
    #[arg(value_name = "A..B", value_parser = range)]
    pub compared: Revisions,
    #[command(flatten)]
    pub run: RunArgs,
    /// Output format; `md` is a comment for a pull request
    #[arg(
        long,
        value_enum,
        default_value = "text",
        conflicts_with = "json",
        help_heading = "Result",
        hide_short_help = true
    )]
    pub format: AbFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AbFormat {
    Text,
    #[value(alias = "markdown")]
    Md,
}

#[derive(Debug, Arguments)]
#[command(after_help = "Examples:\n  loadlab bisect v1.4..HEAD plan.yaml --figure p99\n  \
    loadlab bisect v1.4..HEAD plan.yaml --figure 'p99 of POST /order' --budget 30m\n  \
    git bisect run loadlab bisect --exec plan.yaml\n\n\
    Exit codes: 0 found · 6 not certain, or good and bad do not differ · else as for `run`. With --exec, those of \
    `git bisect run`: 0, 1, 125 for what cannot be measured, 128 to stop.")]
pub struct BisectArgs {
    /// A good revision and a later bad one; with --exec, the plan
    #[arg(value_name = "GOOD..BAD")]
    pub first: String,
    /// The plan file
    #[arg(required_unless_present = "exec", conflicts_with = "exec")]
    pub plan: Option<PathBuf>,
    /// What changed: `p99`, `p99 of POST /order`, a figure of the plan
    ///
    /// Or a formula of such figures, as in `figures`.
    #[arg(long, value_name = "FIGURE", default_value = "p50", conflicts_with = "exec")]
    pub figure: String,
    /// The case, if the plan has several
    ///
    /// Its name (`*`, `?`), or its label in reports: `400` for `rate=400`.
    #[arg(long, value_name = "GLOB", help_heading = "Plan")]
    pub case: Option<String>,
    /// Apply one of the plan's profiles
    #[arg(long, value_name = "NAME", help_heading = "Plan")]
    pub profile: Option<String>,
    /// Override a value, such as `load.duration=5s`; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment, help_heading = "Plan")]
    pub set: Vec<(String, String)>,
    /// Only steps with one of these tags
    #[arg(long, value_name = "A,B", value_delimiter = ',', help_heading = "Plan", hide_short_help = true)]
    pub tags: Vec<String>,
    /// Host other than loopback that may be loaded; may be repeated
    #[arg(long, value_name = "HOST", value_parser = super::values::host, help_heading = "Request", hide_short_help = true)]
    pub allow_host: Vec<String>,
    /// Address to use for a host, bypassing DNS; may be repeated
    #[arg(long, value_name = "HOST:PORT:ADDR", help_heading = "Request", hide_short_help = true)]
    pub resolve: Vec<loadlab_load::target::Resolved>,
    /// Maximum number of trials
    #[arg(long, value_name = "N", default_value_t = BisectArgs::AT_MOST, value_parser = few(8, 10_000))]
    pub at_most: u32,
    /// Time budget: no trial starts after it
    #[arg(long, value_name = "T", value_parser = positive_duration)]
    pub budget: Option<u64>,
    /// Required probability of the answer
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "95%", hide_short_help = true)]
    pub confidence: f64,
    /// Search even if the working tree has uncommitted changes
    #[arg(long, hide_short_help = true)]
    pub allow_dirty: bool,
    /// Measure the working tree once, for `git bisect run`
    ///
    /// What the plan expects decides whether it is good.
    #[arg(long)]
    pub exec: bool,
    /// Folder for records [default: ./loadlab-runs/NAME-bisect-TIME]
    ///
    /// With --exec: NAME-TIME.
    #[arg(short, long, value_name = "DIR", value_parser = text_path, help_heading = "Result")]
    pub out: Option<PathBuf>,
    /// Print the result as one JSON document
    #[arg(long, conflicts_with = "exec", help_heading = "Result")]
    pub json: bool,
    /// Suppress progress output
    #[arg(short, long, help_heading = "Result")]
    pub quiet: bool,
}

impl BisectArgs {
    /// The default of `--at-most`.
    const AT_MOST: u32 = 100;

    /// The first given option that is for a search, while `--exec` measures one tree. The parser does not refuse it:
    /// git would take the parser's exit code for a bad revision.
    pub fn not_with_exec(&self) -> Option<&'static str> {
        let given = [
            ("--budget", self.budget.is_some()),
            ("--at-most", self.at_most != Self::AT_MOST),
            ("--confidence", share("95%") != Ok(self.confidence)),
            ("--allow-dirty", self.allow_dirty),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_left_out_is_the_present_one() {
        let of = |text: &str| range(text).map(|found| found.0);
        assert_eq!(of("main.."), Ok(vec!["main".to_owned(), "HEAD".to_owned()]));
        assert_eq!(of("a,b,c").map(|all| all.len()), Ok(3));
        for same in ["main..main", "HEAD..", "..HEAD", ".."] {
            assert_eq!(of(same), Err("both ends are the same revision".to_owned()), "{same}");
        }
    }
}
