//! One trial: what it left → its summary, the doubts about it, its verdict, and what held it back.
//!
//! - [`input`], [`totals`]: what a trial leaves in memory, and its sums.
//! - [`mod@summarise`]: what a trial measured → its [`Summary`](loadlab_record::documents::summary::Summary), including
//!   doubts, expectations and verdict.
//! - [`components`]: samples → what each component used, what each probe reported.
//! - [`counter`]: a counter that is sampled at intervals.
//! - [`doubts`]: the reasons not to trust a measurement, with thresholds and their origin; [`doubt_kind`]: the names of
//!   some.
//! - [`live`]: the doubts that can be judged while the load runs.
//! - [`steady`]: warm-up, drift, a growing backlog.
//! - [`judge`]: expectations, verdict, exit code.
//! - [`mod@partial`]: the summary of a trial that was cut off, reconstructed from what it had written.
//! - [`bottleneck`]: what saturated first.
//! - [`profile`]: what it cost to sample stacks, and the functions that took most.
//! - [`diagnosed`]: a run as reports need it, each trial diagnosed as it is read.

pub mod bottleneck;
pub mod components;
pub mod counter;
pub mod diagnosed;
pub mod doubt_kind;
pub mod doubts;
mod event_doubts;
pub mod input;
pub mod judge;
pub mod live;
pub mod partial;
pub mod profile;
pub mod steady;
pub mod summarise;
pub mod totals;
