//! What the files of a run contain.
//!
//! - [`manifest`]: what a run is, and [`labels`]: what reports call its cases; [`event`]: what happened, one line each;
//!   [`summary`]: one trial, also `bench --json`.
//! - [`figure`]: figures that a plan names; [`bottleneck`]: what held a system back, by kind.
//! - [`search`]: searches for capacity; [`why`]: what limits cost, measured by changing them.

pub mod bottleneck;
pub mod event;
pub mod figure;
pub mod labels;
pub mod manifest;
pub mod search;
pub mod summary;
pub mod why;
