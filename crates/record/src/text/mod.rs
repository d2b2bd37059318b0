//! How values are written and read, one reader for everyone.
//!
//! - [`units`]: durations, sizes, rates and CPU shares; [`time`]: calendar dates of days since 1970.
//! - [`url`]: URLs and references in their parts; [`hex`]: bytes in digits; [`cores`]: `0-1,3`; [`edit_distance`]: for "did you mean".

pub mod cores;
pub mod edit_distance;
pub mod hex;
pub mod time;
pub mod units;
pub mod url;

/// A message and what follows its first `hint:`, if it has one.
pub fn split_hint(message: &str) -> (&str, Option<&str>) {
    message.split_once("\nhint: ").map_or((message, None), |(what, hint)| (what, Some(hint)))
}

/// The first line of a message, which says what failed; its hints and what follows are left out.
pub fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}
