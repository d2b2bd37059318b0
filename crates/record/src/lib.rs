//! The narrow waist of loadlab: what a run is, in memory and on disk.
//!
//! Everything that loads, watches or starts a system produces values of this crate; everything that draws conclusions
//! or charts reads them. It contains no policy: it does not know how a load is sent, how a component is started, or
//! what a finding is.
//!
//! - [`histogram`], [`numbers`], [`outcome`], [`load`]: what the engine counts and times.
//! - [`quantile`]: what few samples say about a percentile; [`dependence`]: how autocorrelated requests are.
//! - [`sample`], [`event`], [`example`]: readings of components, events, and single exchanges kept whole
//!   ([`packed_samples`]: a trial's samples, packed); [`limits`] in force, [`ids`] of requests sent; [`evidence`] of
//!   which component waited for which.
//! - [`summary`]: the document of one trial, `summary.json` and `bench --json`.
//! - [`manifest`], [`store`]: a run directory, written while the run goes and readable at any time.
//! - [`figure`]: figures that a plan names.
//! - [`expr`]: expressions over all of this (expectations, stop and drain conditions).
//! - [`variable`]: values that change from request to request; [`escape`]: how they are escaped where they are
//!   inserted.
//! - [`bottleneck`]: what held a system back, by kind.
//! - [`bound`]: comparisons of numbers; [`schedule`]: what decides when requests fall due.
//! - [`search`]: searches for capacity; [`why`]: what limits cost, measured by changing them.
//! - [`compact`]: histograms in messages between processes.
//! - [`files`]: writing files so that no other user can redirect them.
//! - [`secrets`]: values that must not appear in any of this.
//! - [`url`]: where a URL goes: one parser, so that every reader sees the same host.
//! - [`time`]: calendar dates of days since 1970.
//! - [`units`]: durations, sizes, rates and CPU shares as people write them.

pub mod bottleneck;
pub mod bound;
pub mod compact;
pub mod dependence;
pub mod edit_distance;
pub mod escape;
pub mod event;
pub mod evidence;
pub mod example;
pub mod expr;
pub mod figure;
pub mod files;
pub mod histogram;
pub mod hlog;
pub mod ids;
pub mod limits;
pub mod load;
pub mod manifest;
pub mod numbers;
pub mod outcome;
pub mod packed_samples;
mod pprof;
pub mod profile;
pub mod quantile;
pub mod sample;
pub mod schedule;
pub mod search;
pub mod secrets;
pub mod store;
pub mod summary;
pub mod time;
pub mod units;
pub mod url;
pub mod variable;
pub mod why;

pub use histogram::Histogram;
pub use outcome::{Failure, Outcome};
pub use secrets::Secrets;
