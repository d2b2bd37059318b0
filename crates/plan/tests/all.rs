//! The integration tests of this crate in one program: it links once, and its tests run in parallel.

#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

mod common;

mod conversations;
mod journeys;
mod mistakes;
mod mistakes_beyond;
mod mistakes_models;
mod mistakes_other_tools;
mod mistakes_parts;
mod outside;
mod plans;
mod programs;
mod random;
mod reference;
mod schema;
