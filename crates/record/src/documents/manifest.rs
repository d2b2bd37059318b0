//! `manifest.json`: what a run is – enough to understand its folder without the plan or the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::documents::figure::{Better, NumberKind};
use crate::documents::search::SearchFacts;
use crate::documents::why::WhyFacts;

/// A run's manifest. Written when the run starts, and again whenever a trial or the run ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub record: u32,
    /// Version of loadlab that wrote it.
    pub loadlab: String,
    /// The plan's name.
    pub name: String,
    /// The plan file as given.
    pub plan_path: String,
    /// The plan's text.
    pub plan_text: String,
    /// SHA-256 of the text, hexadecimal.
    pub plan_sha256: String,
    /// Profile, `--set`, `--tags`, `--trials`, `--case` as given.
    pub options: Vec<String>,
    /// What the plan takes from outside and marks as public, by what asks for it: `env.NAME`, `file:PATH`. Of a long
    /// value, its hash.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, String>,
    /// Start, RFC 3339 in UTC. For people; nothing is computed from the wall clock.
    pub started: String,
    /// End, likewise; absent while it runs or when it was killed.
    pub ended: Option<String>,
    /// How it ended; `Partial` until known otherwise.
    pub how: RunEnded,
    /// The process that writes it: pid and start time in clock ticks since boot, so that a reader can recognize a live
    /// run.
    pub writer: Writer,
    /// The machine.
    pub host: Host,
    /// The experiment in words, one fact per line.
    pub words: Vec<String>,
    /// The revisions of the plan's repository that were compared, in order; empty if the run used the tree as it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<RevisionFacts>,
    /// The commit of the plan's repository when the run began; absent if the plan is in none, or if revisions were
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitFacts>,
    /// Names of the components in order.
    pub components: Vec<ComponentFacts>,
    /// The axes of the matrix, in order.
    pub axes: Vec<String>,
    /// The cases in order.
    pub cases: Vec<CaseFacts>,
    /// Trials planned for each case; the maximum if [`Manifest::until_certain`] is set.
    pub trials: u32,
    /// Set if trials continue until it is certain how the cases differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_certain: Option<UntilCertain>,
    /// What the plan expects, as written.
    pub expect: Vec<String>,
    /// The figures that the plan names; empty if it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigureFacts>,
    /// The tool whose layout the report shows next to its own: `siege` or `wrk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// What the plan derives from figures of its cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub derive: Vec<DerivedFacts>,
    /// `true`: a quick first look, without verdicts on differences.
    pub quick: bool,
    /// Set if the run is one search for capacity: its cases are levels, each measurement a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchFacts>,
    /// Set if the run is one proof by intervention: its cases are the loads made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<WhyFacts>,
}

impl Manifest {
    /// Whether its cases are parts of one search or one proof: they differ by design, and are not compared.
    pub fn is_one_question(&self) -> bool {
        self.search.is_some() || self.why.is_some()
    }

    /// Trials of each case in a complete run; `None` if that depends on what they measure.
    pub fn trials_of_each(&self) -> Option<u32> {
        // A search measures a level again where it has to.
        (self.until_certain.is_none() && self.search.is_none()).then_some(self.trials)
    }
}

/// A commit's abbreviated hash, for reading.
pub fn short_commit(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

/// The commit that a repository was at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitFacts {
    /// Its hash.
    pub commit: String,
    /// The first line of its message.
    pub subject: String,
    /// Whether tracked files differed from the commit, or a run that was cut off was resumed at another commit, at an
    /// unknown one, or with changed files.
    #[serde(default)]
    pub changed: bool,
}

/// The axis of the matrix that revisions are.
pub const REVISION_AXIS: &str = "revision";

/// A revision of the plan's repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionFacts {
    /// As the plan or the command line names it: the value of the axis `revision`.
    pub name: String,
    /// The commit it referred to at the time.
    pub commit: String,
    /// The first line of its message.
    pub subject: String,
}

/// Trials that continue until it is certain how the cases differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UntilCertain {
    /// Cases that differ by less than this share count as the same.
    pub within: f64,
    /// Time budget of all trials together, seconds; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<f64>,
    /// Seed for the order of the cases in each round, and for the sequences that the rounds are compared with; below
    /// 2⁵³.
    pub seed: u64,
    /// Why the trials ended; absent until then, and if the run was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<UntilEnded>,
}

/// Why the trials ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UntilEnded {
    /// Every comparison was settled.
    Settled,
    /// The maximum number of rounds was reached.
    AtMost,
    /// Another round would have taken longer than the budget.
    Budget,
    /// A case that the others depend on could not be measured.
    NotMeasured,
}

/// The most trials that a plan may have.
pub const MAX_TRIALS: u32 = 10_000;

/// Trials of each case needed to compare the cases. With fewer, the spread between trials is itself a guess: with four
/// trials of each of two equal cases, one order in 35 has all of one case before all of the other by chance alone.
pub const TRIALS_FOR_DIFFERENCES: usize = 5;

/// Names that mark a case as the one the others are compared with.
const BASES: [&str; 2] = ["baseline", "control"];

/// Index of the case that the others are compared with: the one called `baseline` or `control`, else the first.
pub fn base_among(cases: &[&str]) -> usize {
    let named = |name: &str| cases.iter().position(|case| case.eq_ignore_ascii_case(name));
    BASES.iter().find_map(|name| named(name)).unwrap_or(0)
}

/// A figure that a plan names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureFacts {
    /// Its name.
    pub name: String,
    /// How it is computed, in the first case that has it: a [`crate::expr::Formula`].
    pub value: String,
    /// Its kind.
    pub kind: NumberKind,
    /// What a plain number counts, in a word: `documents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Which direction is better.
    #[serde(default)]
    pub better: Better,
    /// Description for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

/// A figure that the plan derives from figures of its cases, each as `CASE.FIGURE`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DerivedFacts {
    /// Its name.
    pub name: String,
    /// A sum, difference or product, see [`crate::expr::Formula`].
    pub value: String,
    /// Another derived figure that it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnded {
    /// All trials of all cases were run.
    Complete,
    /// Some trials failed or never started (a component died, the system did not come up).
    Broken,
    /// By Ctrl-C.
    Interrupted,
    /// It is running, or was killed.
    Partial,
}

/// The process that writes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// The machine a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel name and release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Number of cores.
    pub cores: u64,
    /// Total memory, bytes.
    pub memory_bytes: u64,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// cgroup version in use: `v1`, `v2`, `hybrid`, `none`.
    pub cgroup: String,
}

/// A component as planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComponentFacts {
    /// Its name; replicas are numbered.
    pub name: String,
    /// What it runs.
    pub run: String,
}

/// One trial of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialKey {
    /// Index of its case among the run's.
    pub case: usize,
    /// Its number within the case, from 1; in interleaved order that of the round.
    pub trial: u32,
}

/// A case of the matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseFacts {
    /// Its name, for reading.
    pub name: String,
    /// The name of its folder under `cases/`.
    pub dir: String,
    /// Its value for every axis, in the manifest's order of axes.
    pub values: Vec<(String, String)>,
    /// Users in the closed model, if the case has one load.
    pub users: Option<u64>,
    /// Rate in the open model, if the case has one load.
    pub rate_per_s: Option<f64>,
    /// Figures that this case computes differently from the manifest, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, String>,
    /// The case that this one repeats under another name: any difference between the two is chance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_of: Option<String>,
}
