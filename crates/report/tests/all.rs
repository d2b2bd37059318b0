//! The integration tests of this crate in one program: it links once, and its tests run side by side.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "pages are files, opened in a browser"
)]
#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

mod support;

mod browser;
mod flame;
mod golden;
mod history;
mod large;
mod numeric;
mod over_time;
mod pages;
mod planes;
mod ratios;
mod trial;
