//! All integration tests of this crate in one binary.

mod blocks;
mod reduce;
mod support;
