//! The same load from many machines: what an agent that sends a part of a load reports to the coordinator, and how the
//! reports are put together again.
//!
//! - [`block`]: what an agent counted in one second, as bytes.
//! - [`pieces`]: reports that were too large for one message, put together.
//! - [`reduce`]: the reports of all agents in order, each once; and what a lost agent leaves open.
//! - [`spool`]: an agent's reports on disk until the run is over.
//! - [`clock`]: how far an agent's clock is from the coordinator's.
//! - [`message`]: the other messages they exchange; [`agents`]: what the coordinator knows from them, and
//!   `ordered_load` of each load.
//! - [`signed`]: orders that only the coordinator can give.
//! - [`nats`]: both ends, on a NATS server. Everything about NATS is behind the feature `nats`.
//!
//! The crate `loadlab_load` divides a load and merges its parts ([`loadlab_load::run::run_part`],
//! [`loadlab_load::run::merge`]); it knows nothing of the network.

pub mod agents;
pub mod block;
pub mod clock;
pub mod message;
#[cfg(feature = "nats")]
pub mod nats;
mod ordered_load;
pub mod pieces;
pub mod reduce;
#[cfg(feature = "nats")]
pub mod signed;
pub mod spool;
