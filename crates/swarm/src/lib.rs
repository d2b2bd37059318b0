//! The same load from many machines: what an agent that sends a part of a load tells the coordinator, and how that is put
//! together again.
//!
//! - [`block`]: what an agent counted in a second, as bytes.
//! - [`reduce`]: the reports of all agents in order, each once; and what a lost agent leaves open.
//! - [`spool`]: an agent's reports on disk until they are counted.
//! - [`clock`]: how far an agent's clock is from the coordinator's.
//!
//! `load` divides a load and merges its parts ([`loadlab_load::run::run_part`], [`loadlab_load::run::merge`]); it knows
//! no network.

pub mod block;
pub mod clock;
pub mod reduce;
pub mod spool;
