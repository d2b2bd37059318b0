//! Record → findings. Pure: no clock, no threads, no network, no files.
//!
//! - [`input`], [`totals`]: what a trial leaves in memory, and its sums.
//! - [`mod@summarise`]: what a trial measured → its [`Summary`](loadlab_record::summary::Summary), including doubts,
//!   expectations and verdict.
//! - [`components`]: samples → what each component used, what each probe reported.
//! - [`counter`]: a counter that is sampled at intervals.
//! - [`doubts`]: the reasons not to trust a measurement, with thresholds and their origin.
//! - [`live`]: the doubts that can be judged while the load runs.
//! - [`judge`]: expectations, verdict, exit code.
//! - [`mod@partial`]: the summary of a trial that was cut off, reconstructed from what it had written.
//! - [`metric`]: the figures cases are compared by.
//! - [`case`]: one case over its trials; [`labels`]: how cases are distinguished.
//! - [`diagnosed`]: a run as reports need it, each trial diagnosed as it is read.
//! - [`mod@findings`]: what follows from a whole run, over cases and trials.
//! - [`mod@compare`], [`mod@pairs`], [`differences`]: whether two cases differ, and by how much; [`parts`]: and where;
//!   [`hierarchy`]: one significance level for all these tests, spent first on the figures that matter.
//! - `control`: which differences are no larger than chance.
//! - [`design`]: the same question after every round, until the answer is certain; [`sequential`]: the test that is
//!   valid at any stop.
//! - [`bottleneck`]: what saturated first.
//! - [`bisect`]: the search for the revision that changed a figure.
//! - [`changes`]: where a figure changed for good, over runs.
//! - [`search`]: the search for the highest load that meets the expectations.
//! - [`why`]: what a change of one limit does to the goodput.
//! - [`mod@derived`]: figures that the plan derives from the figures of its cases.
//! - [`usl`], [`mod@scalability`]: throughput over users, its peak and its knee.
//! - [`steady`]: warm-up, drift, a growing backlog.
//! - [`student`], [`trend`]: the statistics these rest on.
//!
//! It renders no documents (`report` does) and runs nothing: a summary made right after a run and one made a year
//! later take the same path.

pub mod bisect;
pub mod bottleneck;
pub mod capacity;
pub mod case;
pub mod changes;
pub mod compare;
pub mod components;
mod control;
pub mod counter;
pub mod derived;
pub mod design;
pub mod diagnosed;
pub mod differences;
pub mod doubts;
pub mod findings;
pub mod hierarchy;
pub mod input;
pub mod judge;
pub mod labels;
pub mod live;
pub mod metric;
mod names;
pub mod pairs;
pub mod partial;
pub mod parts;
pub mod profile;
mod random;
pub mod scalability;
pub mod search;
pub mod sequential;
pub mod steady;
pub mod student;
pub mod summarise;
pub mod totals;
pub mod trend;
pub mod usl;
pub mod why;

pub use diagnosed::{DiagnosedRun, DiagnosedTrial};
pub use findings::{Findings, findings};
pub use input::{LoadRun, Planned, TrialInput};
pub use judge::{Exit, conclude_search, verdict};
pub use partial::partial;
pub use summarise::summarise;
