//! The run directory: everything a run leaves on disk, written while it runs and readable at any time.
//!
//! ```text
//! RUN_DIR/manifest.json                  replaced as a whole, never half
//!        /cases/CASE/TRIAL/summary.json  likewise, when the trial ends
//!                         /ticks.jsonl /samples.jsonl /events.jsonl /examples.jsonl /latency.hlog
//!                         /evidence.jsonl if something was watched
//!                         /ids.jsonl if the plan checks what is lost
//!                         /profile.json /profile.folded /profile.pb.gz if stacks were sampled
//!                         /waits.folded /waits.pb.gz    if stacks of waiting threads were
//!                         /logs/COMPONENT.{out,err}
//!                         /levels/N/…     if the trial is a search: its other levels, with the same files
//!        /cut-off/CASE-TRIAL-N           files of trials that were made again when the run was resumed
//! ```
//!
//! Files that grow are opened for appending, and each append reaches the kernel in one write: a writer killed at any
//! moment loses nothing it had written, and leaves at most one torn last line, which readers leave out and report. A
//! full disk costs only the line that did not fit; the lines before it stay whole.
//!
//! [`RunWriter`] and [`TrialWriter`] write, [`read_run`] reads. Neither knows what a finding is, and the
//! reader never changes a directory. [`case_dir_names`] names the folders of cases. [`files`] writes single files, also
//! those outside of a run directory, so that no other user can redirect them.

mod error;
pub mod files;
mod names;
mod read;
mod resume;
mod write;

pub use error::StoreError;
pub use names::{case_dir_name, case_dir_names};
pub use read::{CaseRecord, RunRecord, TrialRecord, read_run, read_run_with, read_summaries};
pub use resume::{CutOff, Resumed, resume};
pub use write::{RunWriter, TrialWriter};

/// Version of the format of a run directory, in [`crate::documents::manifest::Manifest::record`].
pub const RECORD_VERSION: u32 = 2;

/// The manifest.
const MANIFEST: &str = "manifest.json";
/// Folders of cases.
const CASES: &str = "cases";
/// The document of a trial.
const SUMMARY: &str = "summary.json";
/// One line per load and second.
const TICKS: &str = "ticks.jsonl";
/// One line per reading of a component.
const SAMPLES: &str = "samples.jsonl";
/// Events of the trial.
const EVENTS: &str = "events.jsonl";
/// Ids of requests by outcome, one line per load and second.
const IDS: &str = "ids.jsonl";
/// Activity of connections and threads, one line per second; only if something was watched.
const EVIDENCE: &str = "evidence.jsonl";
/// Sampled stacks, if the plan asks for a profile.
const PROFILE: &str = "profile.json";
/// The profile as folded stacks, for other tools.
const FOLDED: &str = "profile.folded";
/// The profile in the format of pprof.
const PPROF: &str = "profile.pb.gz";
/// Waits as folded stacks, and in the format of pprof.
const FOLDED_WAITS: &str = "waits.folded";
const PPROF_WAITS: &str = "waits.pb.gz";
/// Exchanges kept whole.
const EXAMPLES: &str = "examples.jsonl";
/// Interval histograms.
const LATENCY: &str = "latency.hlog";
/// The subfolder of a search trial, with a folder for every level but the one that was found.
const LEVELS: &str = "levels";
/// The subfolder of a trial with the output of the components.
pub const LOGS: &str = "logs";
