//! What a generator is asked for, and where it leaves what it does not print.

use std::path::{Path, PathBuf};

use super::cases::Case;
use crate::root::target;

/// What a tool is asked to do.
pub struct Order<'o> {
    /// The case.
    pub case: &'o Case,
    /// How long.
    pub seconds: u64,
    /// The server's URL for the case.
    pub url: String,
    /// The server, as ADDRESS:PORT.
    pub server: String,
    /// The file with the body that is posted.
    pub body: &'o Path,
    /// The core it is started on.
    pub core: usize,
    /// A folder for its files.
    pub scratch: &'o Path,
}

/// One of our own programs, built with optimisation.
pub fn built(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// Where ab writes its percentiles: what it prints has whole milliseconds only.
pub fn ab_percentiles(order: &Order<'_>) -> PathBuf {
    order.scratch.join("ab.csv")
}

/// Where k6 writes its summary.
pub fn k6_summary(order: &Order) -> PathBuf {
    order.scratch.join("k6.json")
}
