//! Components up under limits, watched, drained, down – as local processes.
//!
//! It knows no plan and no load: it is handed plain specs ([`spec`]) and hands out components, samples and
//! notices. It must not print, exit or handle signals; all waits take a [`Cancel`].
//!
//! - [`system`]: up, [`ready`], down, and [`command`]s in between; [`component`] is what is up.
//! - [`watch`]: samples of [`target`]s and [`probe`]s on the trial's [`clock`]; [`mod@drain`].
//! - [`guardian`] and [`state`]: what happens to a system whose loadlab was killed.
//! - `cgroup`, `process`, `ports`, `spawn`, `kill`, `logs`, [`http`]: what these are made of.
//!
//! A component's life: `up` makes its cgroups (v1, v2 or both), applies its limits and reads them back, and
//! starts its process so that it joins them before it runs; `ready` waits for it; the keeper thread reports its
//! death; `down` asks it to end, then ends whatever is left in its cgroup. Everything that is made is first
//! written to the run's ledger, which the guardian process and `clean` read.

pub mod cancel;
mod cgroup;
pub mod clock;
pub mod command;
pub mod component;
pub mod drain;
pub mod error;
pub mod guardian;
pub mod http;
pub mod keeper;
mod kill;
mod logs;
mod ports;
pub mod probe;
pub mod process;
pub mod ready;
mod spawn;
pub mod spec;
pub mod state;
pub mod system;
pub mod target;
pub mod watch;

pub use cancel::Cancel;
pub use clock::TrialClock;
pub use command::{CommandResult, CommandSpec};
pub use component::{Component, Ended, Status};
pub use drain::{Drained, drain};
pub use error::{Error, Result};
pub use guardian::Guardian;
pub use keeper::Notice;
pub use probe::{Probe, ProbeSpec};
pub use process::ProcessId;
pub use spec::{Command, ComponentSpec, Limits, Ready, Signal, Stop, Unavailable};
pub use state::CleanedItem;
pub use system::{Down, How, System, SystemSpec};
pub use target::Target;
pub use watch::{Watched, Watcher};
