//! What the engine counts and times.
//!
//! - [`load`]: totals and seconds of a load; [`outcome`]: how a request ended; [`ids`] of requests sent; [`example`]:
//!   single exchanges kept whole.
//! - [`histogram`] of durations, [`numbers`] that a plan captures; [`compact`] for messages between processes, [`hlog`]
//!   for other tools.
//! - [`quantile`]: what few samples say about a percentile; [`dependence`]: how autocorrelated requests are.

pub mod compact;
pub mod dependence;
pub mod example;
pub mod histogram;
pub mod hlog;
pub mod ids;
pub mod load;
pub mod numbers;
pub mod outcome;
pub mod quantile;
