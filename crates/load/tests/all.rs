//! The integration tests of this crate in one program: it links once, and its tests run in parallel. `allocations`
//! counts the allocations of its process, so it is a separate program.

#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

#[allow(dead_code, reason = "the tests of `loadlab` use the rest of it")]
#[path = "../../loadlab/tests/common/chat.rs"]
mod chat;
#[path = "../../loadlab/tests/common/ports.rs"]
mod ports;
#[allow(dead_code, reason = "the tests of `loadlab` use the rest of it")]
#[path = "../../loadlab/tests/common/server.rs"]
mod server;
#[path = "../../loadlab/tests/common/skip.rs"]
mod skip;
mod support;

mod accounts;
mod collector;
mod connections;
mod conversations;
mod http2;
mod journeys;
mod pool;
mod real;
mod secured;
mod shares;
mod simulated;
mod staged;
