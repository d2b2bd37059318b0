//! The integration tests of this crate in one program: it links once, and its tests run in parallel. `figures` inspects
//! the memory of its process, so it is a separate program.

#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

mod common;

mod components;
mod compose;
mod ends;
mod guarding;
mod isolated;
mod relays;
mod watching;
