//! How much a system takes.
//!
//! - [`search`]: the search for the highest load that meets the expectations; [`capacity`]: its interval.
//! - [`usl`], [`mod@scalability`]: throughput over users, its peak and its knee.

pub mod capacity;
pub mod scalability;
pub mod search;
pub mod usl;
