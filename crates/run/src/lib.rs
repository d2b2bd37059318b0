//! Conducts a run: the only place where plan, load and system meet.
//!
//! - [`bench()`]: one load against URLs, no system, no record.
//! - [`conduct()`]: a plan from its builds to its last trial, recorded as it goes.
//! - [`find()`]: the search for capacity.
//! - [`event`]: what is told while it runs, one closed enum; live views read nothing else.
//! - [`journey`]: journeys of the plan as the engine wants them.
//! - [`preflight`]: whether this machine is fit for a load, before it runs.
//!
//! It prints nothing, handles no signals and never exits: it takes a cancel token and returns values.

mod agree;
mod bench;
mod bring_up;
mod carried;
mod conduct;
mod events;
mod find;
mod gauge;
mod host;
mod hosts;
mod limits;
mod logs;
mod loss;
mod manifest;
mod measure;
mod parts;
mod ports;
mod probes;
mod program;
mod readings;
mod script;
mod setup;
mod stage;
mod talk;
mod translate;
mod trial;
mod trust;
mod unanswered;
mod urls;

pub mod event;
pub mod journey;
pub mod needs;
pub mod preflight;

pub use bench::{Bench, BenchError, BenchResult, bench};
pub use conduct::{How, RunError, RunResult, TrialEnd, conduct};
pub use event::RunEvent;
pub use find::{Found, Quest, Vary, find};
pub use host::{host, parse_expressions, rfc3339_now};
pub use hosts::Via;
pub use translate::{Targets, UrlError, http2_heads, requests_for_urls};
pub use trust::{TlsWords, TrustError, tls_spec};
pub use urls::{UrlListError, read_urls};
