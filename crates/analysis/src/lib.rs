//! Record → findings. Pure: no clock, no threads, no network, no files.
//!
//! - [`trial`]: one trial → its summary, doubts and verdict, and what held it back.
//! - [`cases`]: a case over its trials; the figures it is compared by.
//! - [`comparison`]: whether cases differ.
//! - [`scaling`]: how much a system takes: searches for capacity, throughput over users.
//! - [`mod@findings`]: what follows from a whole run, over cases and trials.
//! - [`bisect`]: the search for the revision that changed a figure.
//! - [`why`]: what a change of one limit does to the goodput.
//! - [`statistics`]: what all of these rest on.
//!
//! It renders no documents (`report` does) and runs nothing: a summary made right after a run and one made a year
//! later take the same path.

pub mod bisect;
pub mod cases;
pub mod comparison;
pub mod findings;
pub mod scaling;
pub mod statistics;
pub mod trial;
pub mod why;

pub use findings::{Findings, findings};
pub use trial::diagnosed::{DiagnosedRun, DiagnosedTrial};
pub use trial::input::{LoadRun, Planned, TrialInput};
pub use trial::judge::{Exit, conclude_search, is_left_open, verdict, verdict_of_search};
pub use trial::partial::partial;
pub use trial::summarise::summarise;
