//! The narrow waist of loadlab: what a run is, in memory and on disk.
//!
//! Everything that loads, watches or starts a system produces values of this crate; everything that draws conclusions
//! or charts reads them. It contains no policy: it does not know how a load is sent, how a component is started, or
//! what a finding is.
//!
//! - [`histogram`], [`numbers`], [`outcome`], [`load`]: what the engine counts and times.
//! - [`quantile`]: what few samples say about a percentile; [`dependence`]: how autocorrelated requests are.
//! - [`sample`], [`event`], [`example`]: what was seen of the components and of single exchanges ([`packed_samples`]: a
//!   trial's, packed); [`limits`] that were in force, [`ids`] of what was sent; [`evidence`] of who waited for whom.
//! - [`summary`]: the document of one trial, `summary.json` and `bench --json`.
//! - [`manifest`], [`store`]: a run directory, written as the run goes and read at any time later.
//! - [`figure`]: figures that a plan names.
//! - [`expr`]: expressions over all of this (expectations, stop and drain conditions).
//! - [`variable`]: values that change from request to request; [`escape`]: how they are written in their places.
//! - [`bottleneck`]: what held a system back, by kind.
//! - [`bound`]: comparisons of numbers; [`schedule`]: what decides when requests fall due.
//! - [`search`]: searches for capacity; [`why`]: what limits cost, measured by changing them.
//! - [`compact`]: histograms in messages between processes.
//! - [`files`]: how files are written that others must not redirect.
//! - [`secrets`]: values that nothing of this may show.
//! - [`url`]: where a URL goes, read alike by everyone who asks.
//! - [`time`]: days and their dates.
//! - [`units`]: durations, sizes, rates and CPU shares as people write them.

pub mod bottleneck;
pub mod bound;
pub mod compact;
pub mod dependence;
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
