//! Reads journeys: what users do, one step after another.
//!
//! `step` reads a step and what surrounds the steps; `body`, `capture`, `check`, `feeds`, `http` and `conversation`
//! read one part each. Variables become numbers here (which feed, which column, which capture), so that nothing looks
//! up a name later.

pub(crate) mod body;
pub(crate) mod capture;
mod check;
pub(crate) mod conversation;
pub(crate) mod feeds;
pub(crate) mod http;
mod request_fields;
pub(crate) mod series;
pub(crate) mod step;
pub(crate) mod target;
