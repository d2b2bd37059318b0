//! Brings components up under limits, watches, drains and takes them down – local processes or containers.
//!
//! The crate knows nothing of plans or load: it takes plain specs (`spec`) and returns components, samples and notices.
//! It must not print, exit or handle signals; all waits take a [`Cancel`].
//!
//! - [`system`]: brings the whole system up, waits until it is [`ready`] and takes it down, whether its components are
//!   processes, containers or services of a Compose file; runs commands, changes links and limits in between.
//! - `component`: a running component, its limits, and detection of its death. `cgroup`, [`process`] and `logs` are its
//!   parts.
//! - `engine` talks to Docker or Podman; `netns` gives a run its own network, and a [`relay`] makes links slow and
//!   lossy.
//! - `watch`: samples targets and probes on the trial's [`clock`], spread over each second, in the [`background`]; also
//!   components that were already running, what they report about themselves, and [`drain()`].
//! - [`ledger`]: records what a run made, so that the [`guardian`] and `loadlab clean` can remove it if loadlab is
//!   killed.
//!
//! A component's life: `up` makes its cgroups (v1, v2 or both), applies its limits and reads them back, and starts its
//! process so that it joins them before it runs; `ready` waits for it; the monitor thread reports its death; `down`
//! asks it to end, then kills whatever is left in its cgroup. Everything is written to the run's ledger before it is
//! made; the guardian process and `clean` read the ledger.

pub mod cancel;
mod cgroup;
pub mod clock;
mod component;
mod engine;
mod error;
pub mod http;
pub mod ledger;
mod logs;
mod netns;
pub mod process;
pub mod relay;
mod spec;
pub mod system;
mod watch;

pub use cancel::Cancel;
pub use cgroup::limits::MemoryBeyond;
pub use clock::TrialClock;
pub use component::monitor::Notice;
pub use component::{Component, Ended, Status};
pub use engine::image::ImageBuild;
pub use engine::{Engine, EngineError};
pub use error::{Error, Result};
pub use ledger::clean::CleanedItem;
pub use ledger::folder::OwnFolder;
pub use ledger::guardian::{self, Guardian};
pub use netns::{Isolation, Net};
pub use process::output::OutputCommand;
pub use process::{ProcessId, background, open_files};
pub use relay::RelayCounts;
pub use spec::{
    BlockLimits, Command, ComponentSpec, ContainerSpec, HealthCheck, Limits, LinkLimits, LogFiles, Network,
    Ready, RelayAt, Signal, Stop, Unavailable,
};
pub use system::command::{CommandResult, CommandSpec, RunningCommand};
pub use system::compose::{ComposeSpec, Project, ServiceSpec};
pub use system::{Ending, System, SystemSpec, Takedown, host_check, ready};
pub use watch::answering::{Answering, Listening, find_answering, is_local};
pub use watch::drain::drain;
pub use watch::external::{External, ExternalSelector};
pub use watch::probe::{Probe, ProbeError, ProbeSource, ProbeSpec, UNHURRIED_READ_TIMEOUT_NS};
pub use watch::profile::{ProfileSpec, Profiler, Samples};
pub use watch::scrape::{ScrapeError, Scraper};
pub use watch::target::Target;
pub use watch::{Emit, IdleReadings, SampleTiming, WatchEvent, Watcher};
