//! How values are written and read, one reader for everyone.
//!
//! - [`units`]: durations, sizes, rates and CPU shares; [`time`]: calendar dates of days since 1970.
//! - [`url`]: URLs and references in their parts; [`edit_distance`]: for "did you mean".

pub mod edit_distance;
pub mod time;
pub mod units;
pub mod url;
