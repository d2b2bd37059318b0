//! The same load from many machines: what an agent that sends a part of a load tells the coordinator, and how that is put
//! together again.
//!
//! - [`block`]: what an agent counted in a second, as bytes.
//! - [`reduce`]: the reports of all agents in order, each once; and what a lost agent leaves open.
//! - [`spool`]: an agent's reports on disk until they are counted.
//! - [`clock`]: how far an agent's clock is from the coordinator's.
//! - [`message`]: what else they say to one another; [`crew`]: what the coordinator makes of it.
//! - [`signed`]: orders that only the coordinator can give.
//! - [`nats`]: the two ends, on a NATS server. All of NATS is behind the feature `nats`.
//!
//! `load` divides a load and merges its parts ([`loadlab_load::run::run_part`], [`loadlab_load::run::merge`]); it knows
//! no network.

pub mod block;
pub mod clock;
pub mod crew;
pub mod message;
#[cfg(feature = "nats")]
pub mod nats;
pub mod reduce;
#[cfg(feature = "nats")]
pub mod signed;
pub mod spool;
