//! The integration tests of this crate in one program: it links once, and its tests run side by side.

mod expr;
mod hlog;
mod store;
