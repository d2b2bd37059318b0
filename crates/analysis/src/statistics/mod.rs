//! Statistics that the rest rests on. They know nothing of runs.
//!
//! - [`student`], [`trend`]: tests, intervals and slopes.
//! - [`hierarchy`]: one significance level for all tests of a comparison, spent first on the figures that matter.
//! - `random`: numbers for resampling.

pub mod hierarchy;
pub(crate) mod random;
pub mod student;
pub mod trend;
