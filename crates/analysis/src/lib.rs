//! Record → findings. Pure: no clock, no threads, no network, no files.
//!
//! - [`mod@summarise`]: what a trial measured → its [`Summary`](loadlab_record::summary::Summary), doubts,
//!   expectations and verdict included.
//! - [`components`]: samples → what each component used, what each probe said.
//! - [`counter`]: a counter that is read now and then.
//! - [`doubts`]: the reasons not to trust a measurement, with thresholds and where they come from.
//! - [`judge`]: expectations, verdict, exit code.
//! - [`mod@partial`]: the summary of a trial that was cut off, from what it had written.
//! - [`metric`]: the figures cases are compared by.
//! - [`mod@findings`]: what follows from a whole run, over cases and trials.
//!
//! It draws no documents (that is `report`) and runs nothing: summarising right after a run and a year later
//! are one path.

pub mod components;
pub mod counter;
pub mod doubts;
pub mod findings;
pub mod judge;
pub mod metric;
pub mod partial;
pub mod summarise;

pub use findings::{Findings, findings};
pub use judge::{Exit, verdict};
pub use partial::partial;
pub use summarise::{LoadRun, Planned, TrialInput, summarise};
