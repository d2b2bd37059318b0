//! Whether cases differ.
//!
//! - [`mod@compare`], [`mod@pairs`], [`differences`]: whether two cases differ, and by how much; [`figures`] has what is
//!   compared, [`interval`] the statistics.
//! - `moved`: whether they have different bottlenecks.
//! - `control`: which differences are no larger than chance; `resolution`: which differences of memory are smaller than
//!   the readings resolve.
//! - [`design`]: the same question after every round, until the answer is certain; [`sequential`]: the test that is
//!   valid at any stop.
//! - [`mod@derived`]: figures that the plan derives from the figures of its cases.
//! - [`changes`]: where a figure changed for good, over runs.

pub mod changes;
pub mod compare;
mod control;
pub mod derived;
pub mod design;
pub mod differences;
pub mod figures;
pub mod interval;
mod moved;
pub mod pairs;
mod resolution;
pub mod sequential;
