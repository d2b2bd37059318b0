//! Tests that depend on timing, one at a time (`alone.rs`). `cargo xtask test` runs them after all others.

mod alone;
mod bench_doubts;
mod bench_truth;
mod bench_watch;
mod run_bottleneck;
