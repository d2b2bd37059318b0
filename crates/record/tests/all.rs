//! The integration tests of this crate in one program: it links once, and its tests run in parallel.

#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

mod conditions;
mod coverage;
mod expr;
mod hlog;
mod store;
