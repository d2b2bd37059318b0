//! The integration tests of this crate in one program: it links once, and its tests run side by side.

mod support;

mod browser;
mod golden;
mod history;
mod large;
mod pages;
mod planes;
mod ratios;
mod trial;
