//! The integration tests of this crate in one program: it links once, and its tests run side by side.

mod chance;

mod bisect;
mod bottleneck;
mod changes;
mod compare;
mod design;
mod details;
mod findings;
mod live;
mod search;
mod sequential;
mod steady;
mod summarise;
mod usl;
mod why;
