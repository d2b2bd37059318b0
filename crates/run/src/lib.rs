//! Runs plans: the only place where plan, load and system meet.
//!
//! - [`bench()`]: one load against URLs, no system, no record.
//! - [`conduct()`]: a plan from its builds to its last trial, recorded as it runs.
//! - [`find()`]: the search for capacity.
//! - [`why()`]: proof by intervention: what each limit costs.
//! - [`event`]: what a run reports while in progress, as one closed enum; live views read nothing else.
//! - [`senders`]: other processes that send the loads in place of this one.
//! - [`journey`]: a plan's journeys in the form the engine needs.
//! - [`preflight`]: whether this machine is fit for a load, checked before the load runs.
//! - [`needs`]: what a plan needs of this machine, tried out before anything is built.
//! - [`predictions`]: what a run will not be able to decide, predicted from the plan.
//!
//! This crate prints nothing, handles no signals and never exits: it takes a cancel token and returns values.

mod begin;
mod bench;
mod conduct;
mod error;
mod find;
mod host;
mod ids;
mod level;
mod limits;
mod logs;
mod manifest;
mod options;
mod readings;
mod record;
mod result;
mod rounds;
mod running_system;
mod search;
pub mod senders;
mod state;
mod translate;
mod trial;
mod unanswered;
mod watch;
mod why;

pub mod event;
pub mod needs;
pub mod predictions;
pub mod preflight;

pub use begin::parse_expressions;
pub use bench::{Bench, BenchError, BenchResult, IdleProcesses, bench};
pub use conduct::conduct;
pub use error::RunError;
pub use event::{Recorded, RunEvent};
pub use find::{SearchResult, find};
pub use host::{host, rfc3339_now};
pub use manifest::{changed_since, figures_of_case, plan_sha256};
pub use options::{Generator, RunOptions};
pub use result::{ComparisonProgress, FigureProgress, RunResult, TrialEnd};
pub use search::SearchRequest;
pub use translate::hosts::Via;
pub use translate::journey;
pub use translate::tls::{TlsSettings, TrustError, tls_spec};
pub use translate::urls::{UrlListError, read_urls};
pub use translate::{Targets, UrlError, http2_heads, requests_for_urls};
pub use watch::Watch;
pub use why::{WhyRequest, WhyResult, unfit as unfit_for_why, why};
