//! The narrow waist of loadlab: what a run is, in memory and on disk.
//!
//! Everything that loads, watches or starts a system produces values of this crate; everything that draws conclusions
//! or charts reads them. It contains no policy: it does not know how a load is sent, how a component is started, or
//! what a finding is.
//!
//! - [`counts`]: what the engine counts and times.
//! - [`watch`]: what was seen of components meanwhile.
//! - [`documents`]: what the files of a run contain; [`store`]: its folder, written while the run goes and readable
//!   at any time, and how files are written so that no other user can redirect them.
//! - [`expr`]: expressions over all of this (expectations, stop and drain conditions).
//! - [`secrets`]: values that must not appear in any of this.
//! - [`spec`]: types of a load that plans describe and the engine uses.
//! - [`text`]: how durations, sizes, dates and URLs are written, for everyone.
//! - [`random`]: numbers by seed; [`sync`]: locks; `omitted`: what is left out of JSON.

pub mod counts;
pub mod documents;
pub mod expr;
mod omitted;
pub mod random;
pub mod secrets;
pub mod spec;
pub mod store;
pub mod sync;
pub mod text;
pub mod watch;

pub use counts::histogram::Histogram;
pub use counts::outcome::{Failure, Outcome};
pub use secrets::Secrets;
