//! Types of a load that plans describe and the engine uses.
//!
//! - [`schedule`]: what decides when requests fall due; [`bound`]: comparisons of numbers.
//! - [`variable`]: values that change from request to request; [`escape`]: how they are escaped where they are
//!   inserted.

pub mod bound;
pub mod escape;
pub mod schedule;
pub mod variable;
