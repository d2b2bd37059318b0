//! Statistics that the rest rests on. They know nothing of runs.
//!
//! - `spread`: mean and variance.
//! - [`student`], [`trend`]: tests, intervals and slopes.
//! - [`hierarchy`]: one significance level for all tests of a comparison, spent first on the figures that matter.

pub mod hierarchy;
pub(crate) mod spread;
pub mod student;
pub mod trend;
