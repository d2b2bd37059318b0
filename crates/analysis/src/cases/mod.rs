//! Cases over their trials.
//!
//! - [`metric`]: the figures cases are compared by; [`parts`]: the parts of each.
//! - [`case`]: one case over its trials; [`subset`]: some of the cases in words; [`groups`]: which components are alike.

pub mod case;
pub mod groups;
pub mod metric;
pub mod parts;
pub mod subset;
