//! What a load thread counts and keeps: counts and times, examples of exchanges, and what the thread itself used.

pub(crate) mod examples;
pub mod own_usage;
pub(crate) mod recorder;
pub(crate) mod redact;
