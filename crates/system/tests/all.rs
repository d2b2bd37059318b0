//! The integration tests of this crate in one program: it links once, and its tests run side by side. `figures` looks at the
//! memory of its process, so it is a separate program.

mod common;

mod components;
mod compose;
mod ends;
mod guarding;
mod isolated;
mod relays;
mod watching;
