//! Components up under limits, watched, drained, down – as local processes or containers.
//!
//! It knows no plan and no load: it is handed plain specs ([`spec`]) and hands out components, samples and
//! notices. It must not print, exit or handle signals; all waits take a [`Cancel`].
//!
//! - [`system`]: up, [`ready`], down, and [`command`]s in between; [`component`] is what is up.
//! - [`watch`]: samples of [`target`]s and [`probe`]s on the trial's [`clock`], `spread` over each
//!   second and in the [`background`]; [`mod@drain`].
//! - [`guardian`] and [`state`]: what happens to a system whose loadlab was killed.
//! - [`engine`] runs components that are containers, [`compose`] those of a Compose file; [`external`] finds those
//!   that run already, [`scrape`] reads what they tell.
//! - [`netns`] gives a run, and each process of it, a network of its own; a [`relay`] makes links slow and lossy.
//! - `limits`: a living component given other limits, or paused; [`output`]: what a short command prints.
//! - `cgroup`, `process`, `ports`, `spawn`, `kill`, `logs`, `net`, [`http`]: what these are made of.
//!
//! A component's life: `up` makes its cgroups (v1, v2 or both), applies its limits and reads them back, and
//! starts its process so that it joins them before it runs; `ready` waits for it; the keeper thread reports its
//! death; `down` asks it to end, then ends whatever is left in its cgroup. Everything that is made is first
//! written to the run's ledger, which the guardian process and `clean` read.

pub mod background;
mod boxes;
pub mod cancel;
mod cgroup;
pub mod clock;
pub mod command;
pub mod component;
pub mod compose;
pub mod drain;
pub mod engine;
pub mod error;
pub mod external;
pub mod guardian;
pub mod http;
pub mod keeper;
mod kill;
mod limits;
mod logs;
mod net;
pub mod netns;
pub mod open_files;
pub mod output;
mod ports;
pub mod probe;
pub mod process;
pub mod ready;
pub mod relay;
pub mod scrape;
mod spawn;
pub mod spec;
mod spread;
pub mod state;
pub mod system;
pub mod target;
pub mod tryout;
pub mod watch;

pub use cancel::Cancel;
pub use clock::TrialClock;
pub use command::{CommandResult, CommandSpec, RunningCommand};
pub use component::{Component, Ended, Status};
pub use compose::{ComposeSpec, Project, ServiceSpec};
pub use drain::{Drained, drain};
pub use engine::container::{ContainerSpec, HealthCheck, Network};
pub use engine::image::ImageBuild;
pub use engine::{Engine, EngineError};
pub use error::{Error, Result};
pub use external::{External, Seek};
pub use guardian::Guardian;
pub use keeper::Notice;
pub use netns::{Isolation, Net};
pub use output::OutputCommand;
pub use probe::{Probe, ProbeSource, ProbeSpec};
pub use process::ProcessId;
pub use relay::Counts;
pub use scrape::{ScrapeError, Scraper};
pub use spec::{
    BlockLimits, Command, ComponentSpec, Limits, LinkLimits, Ready, RelayAt, Signal, Stop, Unavailable,
};
pub use state::CleanedItem;
pub use system::{Down, How, System, SystemSpec};
pub use target::Target;
pub use watch::{AtRest, Rhythm, Watched, Watcher};
