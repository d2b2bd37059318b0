//! The integration tests of this crate in one program.

mod blocks;
mod reduce;
mod support;
