//! The integration tests of this crate in one program: it links once, and its tests run side by side.

mod common;

mod journeys;
mod mistakes;
mod mistakes_beyond;
mod mistakes_models;
mod mistakes_parts;
mod outside;
mod plans;
mod programs;
mod random;
mod reference;
mod schema;
mod talks;
