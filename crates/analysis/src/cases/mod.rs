//! Cases over their trials.
//!
//! - [`metric`]: the figures cases are compared by; [`parts`]: the parts of each.
//! - [`case`]: one case over its trials; [`labels`]: how cases are distinguished; [`groups`]: which components are alike.

pub mod case;
pub mod groups;
pub mod labels;
pub mod metric;
pub mod parts;
