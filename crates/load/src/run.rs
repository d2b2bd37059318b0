//! A load from start to end: threads, and the merging of what they hand over into ticks and totals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use loadlab_record::example::Example;
use loadlab_record::load::{Bytes, Connections, Counts, Measured, Series, TagMeasured, Tick};
use loadlab_record::numbers::Numbers;
use loadlab_record::summary::{Generator, Stalls};

use crate::measure::batch::Ids;
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

pub use crate::worker::due_between;
pub use crate::worker::{Stopped, WorkerEnd};
pub use part::{Part, PartEnd, PartReport, merge, run_part, simulate_part};
pub use simulated::{simulate, simulate_share};

/// Ends a load early, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<AtomicU8>);

impl Control {
    /// Nothing more falls due; what is in flight may finish within the grace.
    pub fn stop(&self) {
        let _ = self.0.compare_exchange(RUN, STOP, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends within a tenth of a second; what is in flight is counted as in flight.
    pub fn abort(&self) {
        self.0.store(ABORT, Ordering::Relaxed);
    }

    /// Whether it was stopped or aborted.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed) != RUN
    }

    /// Whether it was aborted.
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
    /// Where the ids of its requests begin: no two loads or batches of a trial may share one.
    pub first_id: u64,
}

/// What a running load reports, on the caller's thread.
#[derive(Debug)]
pub enum LoadEvent<'a> {
    /// A second is complete.
    Second(&'a Second),
    /// The first failures of their kind, as they happen.
    Example(Box<Example>),
    /// Ten times a second: what was counted so far.
    Progress(&'a Totals),
}

/// A complete second; several if the merging thread had too little time ([`Generator::coarse_s`]).
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Its line in the record.
    pub tick: Tick,
    /// Times of what fell due in the window.
    pub window: Series,
    /// Times of what fell due before it.
    pub before: Series,
    /// By tag.
    pub by_tag: BTreeMap<String, TagMeasured>,
    /// Ids of the requests that ended in it.
    pub ids: Ids,
}

/// What was counted so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Up to when, seconds from the load's start.
    pub at_s: f64,
    /// `in_flight` is the present number.
    pub counts: Counts,
    /// Times of the window.
    pub series: Series,
    /// Captured numbers, by name.
    pub numbers: BTreeMap<String, Numbers>,
    /// Bytes.
    pub bytes: Bytes,
    /// Total time under way of the requests that have ended, seconds.
    pub busy_s: f64,
    /// Connections open.
    pub open: u64,
    /// Connections made.
    pub connections: Connections,
    /// Stretches of time in which a load thread did not run.
    pub stalls: Stalls,
}

/// A load's end.
#[derive(Debug)]
pub struct Outcome {
    /// All it measured.
    pub measured: Measured,
    /// What the generator used.
    pub generator: Generator,
    /// The slowest exchanges of every outcome and tag.
    pub slowest: Vec<Example>,
    /// It ended before its schedule did.
    pub cut_short: bool,
    /// When it began, seconds on the trial's clock.
    pub at_s: f64,
    /// What the first user had captured by the end, slot by slot: useful if there is only one user.
    pub captured: Vec<Option<Vec<u8>>>,
}

/// Why a load could not run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A thread could not be made or bound.
    #[error("cannot start a load thread: {0}")]
    Thread(std::io::Error),
    /// The backend gave up.
    #[error("the {backend} backend failed: {error}\nhint: try another one with --io")]
    Io {
        /// Which.
        backend: &'static str,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A bug of ours.
    #[error(
        "a load thread panicked\nhint: this is a bug in loadlab; what was measured before is in the record"
    )]
    Panicked,
}

/// Runs a load on threads of its own and merges what they count on the caller's.
///
/// # Errors
/// A thread that cannot be started, or a backend that fails. What was reported before remains valid.
pub fn run(
    spec: &LoadSpec,
    control: &Control,
    origin: Origin,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<Outcome, LoadError> {
    let start = Start::new(origin.start_ns, origin.first_id, spec.held.as_ref().map(|_| spec.threads));
    let mut collector = Collector::new(spec, origin, &start, spec.threads);
    let (ends, generator) = threads::run(spec, control, &start, &mut |batch| collector.add(batch, observer))?;
    collector.end(observer);
    let ends = ends.into_iter().collect::<Result<_, _>>()?;
    Ok(collector.outcome(ends, generator))
}
