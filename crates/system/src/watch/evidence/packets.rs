//! Exact times of some exchanges, by their packets.
