//! Runs a load from start to end: its threads, and the merging of their counts into ticks and totals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use loadlab_record::counts::example::Example;
use loadlab_record::counts::load::{Bytes, Connections, Counts, Measured, Series, TagMeasured, Tick};
use loadlab_record::counts::numbers::Numbers;
use loadlab_record::documents::summary::{Generator, Stalls};

use crate::measure::delta::Ids;
use crate::run::collector::Collector;
use crate::spec::LoadSpec;
use crate::start::Start;
use crate::worker::{ABORT, RUN, STOP};

mod collector;
mod part;
mod peaks;
mod seconds;
mod simulated;
mod threads;

pub use crate::start::ConnectPhase;
pub use crate::worker::due_between;
pub use crate::worker::{Stopped, WorkerEnd};
pub use part::{PartContent, PartEnd, PartReport, merge, run_part, simulate_part};
pub use simulated::{simulate, simulate_share};

/// Ends a load early, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<AtomicU8>);

impl Control {
    /// Stops the load: nothing more falls due, and requests in flight may finish within the grace.
    pub fn stop(&self) {
        let _ = self.0.compare_exchange(RUN, STOP, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends the load within a tenth of a second; requests in flight are counted as in flight.
    pub fn abort(&self) {
        self.0.store(ABORT, Ordering::Relaxed);
    }

    /// Whether the load was stopped or aborted.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed) != RUN
    }

    /// Whether the load was aborted.
    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ABORT
    }
}

/// When a load begins, on the clock of [`crate::io::epoll::now_ns`], and its place in its trial.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// When this load begins; a few milliseconds ahead, so that its threads are ready in time.
    pub start_ns: u64,
    /// Zero of the trial's clock.
    pub zero_ns: u64,
    /// Which repeat of the load this is.
    pub batch: u32,
    /// First id of its requests; no two loads or batches of a trial may share an id.
    pub first_id: u64,
}

/// What a running load reports, on the caller's thread.
#[derive(Debug)]
pub enum LoadEvent<'a> {
    /// A second is complete.
    Second(&'a Second),
    /// One of the first failures of its kind, as it happens.
    Example(Box<Example>),
    /// Ten times a second: the totals so far.
    Progress(&'a Totals),
}

/// A complete second, or several in one if the merging thread fell behind ([`Generator::coarse_s`]).
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Its line in the record.
    pub tick: Tick,
    /// Times of requests due in the window.
    pub window: Series,
    /// Times of requests due before the window.
    pub before: Series,
    /// Measurements by tag.
    pub by_tag: BTreeMap<String, TagMeasured>,
    /// Numbers captured in this second from answers to requests due in the window, by name.
    pub numbers: BTreeMap<String, Numbers>,
    /// Ids of the requests that ended in this second.
    pub ids: Ids,
}

/// Totals so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Time up to which these totals count, seconds from the load's start.
    pub at_s: f64,
    /// Requests by outcome; `in_flight` is the current number.
    pub counts: Counts,
    /// Times of requests due in the window.
    pub series: Series,
    /// Captured numbers, by name.
    pub numbers: BTreeMap<String, Numbers>,
    /// Bytes transferred.
    pub bytes: Bytes,
    /// Total time in flight of the requests that have ended, seconds.
    pub busy_s: f64,
    /// Connections currently open.
    pub open: u64,
    /// Connections made.
    pub connections: Connections,
    /// Periods in which a load thread did not run.
    pub stalls: Stalls,
}

/// Result of a load.
#[derive(Debug)]
pub struct LoadResult {
    /// Everything it measured.
    pub measured: Measured,
    /// What the generator itself used.
    pub generator: Generator,
    /// The slowest exchanges of each outcome and tag.
    pub slowest: Vec<Example>,
    /// Whether the load ended before its schedule did.
    pub cut_short: bool,
    /// When it began, seconds on the trial's clock.
    pub at_s: f64,
    /// What the first user had captured by the end, by slot; useful if there is only one user.
    pub captured: Vec<Option<Vec<u8>>>,
}

/// Why a load could not run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A thread could not be started or bound.
    #[error("cannot start a load thread: {0}")]
    Thread(std::io::Error),
    /// The backend failed.
    #[error("the {backend} backend failed: {error}\nhint: try another one with --io")]
    Io {
        /// Name of the backend.
        backend: &'static str,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A load thread panicked: a bug in loadlab.
    #[error(
        "a load thread panicked\nhint: this is a bug in loadlab; what was measured before is in the record"
    )]
    Panicked,
}

/// Runs a load on its own threads and merges their counts on the caller's thread.
///
/// # Errors
/// A thread cannot be started, or a backend fails. What was reported before remains valid.
pub fn run(
    spec: &LoadSpec,
    control: &Control,
    origin: Origin,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<LoadResult, LoadError> {
    let start = Start::new(origin.start_ns, origin.first_id, spec.held.as_ref().map(|_| spec.threads));
    let mut collector = Collector::new(spec, origin, &start, spec.threads);
    let (ends, generator) = threads::run(spec, control, &start, &mut |delta| collector.add(delta, observer))?;
    collector.end(observer);
    let ends = ends.into_iter().collect::<Result<_, _>>()?;
    Ok(collector.outcome(ends, generator))
}
