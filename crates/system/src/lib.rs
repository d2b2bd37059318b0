//! Brings components up under limits, watches, drains and takes them down – local processes or containers.
//!
//! It knows no plan and no load: it takes plain specs (`spec`) and returns components, samples and notices. It must
//! not print, exit or handle signals; all waits take a [`Cancel`].
//!
//! - [`system`]: the whole system up, [`ready`] and down, whatever its components are: processes, containers,
//!   services of a Compose file; commands, links and changed limits in between.
//! - `component`: what is up, its limits, and detecting its death. `cgroup`, [`process`] and `logs` are its parts.
//! - `engine` speaks to Docker or Podman; `netns` gives a run a network, and a [`relay`] makes links slow and lossy.
//! - `watch`: samples of targets and probes on the trial's [`clock`], spread over each second, in the [`background`];
//!   components that were already running, what they report about themselves, and [`drain()`].
//! - [`ledger`]: what was made, for the [`guardian`] and for `loadlab clean`, should loadlab be killed.
//!
//! A component's life: `up` makes its cgroups (v1, v2 or both), applies its limits and reads them back, and starts
//! its process so that it joins them before it runs; `ready` waits for it; the monitor thread reports its death;
//! `down` asks it to end, then ends whatever is left in its cgroup. Everything that is made is first written to the
//! run's ledger, which the guardian process and `clean` read.

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
mod sync;
pub mod system;
mod watch;

pub use cancel::Cancel;
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
pub use relay::Counts;
pub use spec::{
    BlockLimits, Command, ComponentSpec, ContainerSpec, HealthCheck, Limits, LinkLimits, Network, Ready,
    RelayAt, Signal, Stop, Unavailable,
};
pub use system::command::{CommandResult, CommandSpec, RunningCommand};
pub use system::compose::{ComposeSpec, Project, ServiceSpec};
pub use system::{Ending, System, SystemSpec, Takedown, host_check, ready};
pub use watch::answering::{Answering, Listening, find_answering, is_local};
pub use watch::drain::{Drained, drain};
pub use watch::external::{External, ExternalSelector};
pub use watch::probe::{Probe, ProbeError, ProbeSource, ProbeSpec};
pub use watch::profile::{ProfileSpec, Profiler, Samples};
pub use watch::scrape::{ScrapeError, Scraper};
pub use watch::target::Target;
pub use watch::{Emit, IdleReadings, SampleTiming, Watched, Watcher};
