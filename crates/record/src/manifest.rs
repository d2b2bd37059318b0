//! `manifest.json`: what a run is – enough to understand its folder without the plan or the machine.

use serde::{Deserialize, Serialize};

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
    /// Start, RFC 3339 in UTC. For people; nothing is computed from the wall clock.
    pub started: String,
    /// End, likewise; absent while it runs or when it was killed.
    pub ended: Option<String>,
    /// How it ended; `Partial` until something better is known.
    pub how: RunEnded,
    /// The process that writes it: pid and start time in clock ticks since boot, so that a reader can tell a living run.
    pub writer: Writer,
    /// The machine.
    pub host: Host,
    /// The experiment in words, one line a fact.
    pub words: Vec<String>,
    /// Names of the components in order.
    pub components: Vec<ComponentFacts>,
    /// The axes of the matrix, in order.
    pub axes: Vec<String>,
    /// The cases in order.
    pub cases: Vec<CaseFacts>,
    /// Trials planned for each case.
    pub trials: u32,
    /// What the plan expects, as written.
    pub expect: Vec<String>,
    /// `true`: made for a first look; it gives no verdicts on differences.
    pub quick: bool,
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
    /// It runs, or it was killed.
    Partial,
}

/// The process that writes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Process id.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// The machine a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel name and release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores.
    pub cores: u64,
    /// Memory.
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
}
