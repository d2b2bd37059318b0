//! A load from start to end: threads, and the merging of what they hand over into ticks and totals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use loadlab_record::example::Example;
use loadlab_record::load::{Bytes, Connections, Counts, Measured, Series, TagMeasured, Tick};
use loadlab_record::numbers::Numbers;
use loadlab_record::summary::{Generator, Stalls};

use crate::io::Io;
use crate::io::epoll::{Epoll, now_ns};
use crate::io::uring::{Size, Uring};
use crate::measure::batch::{Batch, Ids, Sizes};
use crate::measure::own_usage::{self, ThreadUse};
use crate::measure::recorder::{Recorder, Setup};
use crate::run::collector::Collector;
use crate::spec::{IoChoice, LoadSpec};
use crate::start::{Start, StartGuard};
use crate::worker::{ABORT, RUN, STOP, Worker, WorkerEnd, drive, open_held};

mod collector;
mod peaks;
mod seconds;
mod simulated;

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
}

/// When a load begins, on the clock of [`now_ns`], and its place in its trial.
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
    let (full, batches) = channel();
    let start = Start::new(origin.start_ns, origin.first_id, spec.held.as_ref().map(|_| spec.threads));
    let (throttled_before, suspended_before) = (own_usage::throttled_ns(), own_usage::suspended_ns());
    let (collector, ends) = std::thread::scope(|scope| {
        let mut empties = Vec::new();
        let mut threads = Vec::new();
        for slot in 0..spec.threads {
            let (give_back, empty) = channel();
            empties.push(give_back);
            let (full, start) = (full.clone(), &start);
            let body = move || load_thread(spec, control, start, slot, Channels { full, empty });
            let thread = std::thread::Builder::new().name(format!("load-{slot}")).spawn_scoped(scope, body);
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    control.abort();
                    start.without(spec.threads - slot);
                    return Err(LoadError::Thread(error));
                }
            }
        }
        drop(full);
        let mut collector = Collector::new(spec, origin, &start);
        collector.collect(&batches, &empties, observer);
        let ends: Vec<_> =
            threads.into_iter().map(|t| t.join().unwrap_or(Err(LoadError::Panicked))).collect();
        Ok((collector, ends))
    })?;
    let ends: Vec<ThreadEnd> = ends.into_iter().collect::<Result<_, _>>()?;
    let throttled = own_usage::throttled_since(&throttled_before);
    let suspended_ns = own_usage::suspended_ns().saturating_sub(suspended_before);
    let uses: Vec<ThreadUse> = ends.iter().map(|e| e.used).collect();
    let backend = ends.first().map_or("none", |e| e.backend);
    let peak = collector.totals.connections.peak;
    let mut generator = own_usage::sum(backend, &bound_cpus(spec), &uses, throttled, peak);
    generator.suspended_s = Some(suspended_ns as f64 / 1e9);
    let ends: Vec<WorkerEnd> = ends.into_iter().map(|e| e.end).collect();
    Ok(collector.outcome(ends, generator))
}

/// How a load thread ended.
struct ThreadEnd {
    end: WorkerEnd,
    used: ThreadUse,
    backend: &'static str,
}

/// The body of a load thread: binds itself, chooses a backend, drives its worker.
fn load_thread(
    spec: &LoadSpec,
    control: &Control,
    start: &Start,
    slot: usize,
    channels: Channels,
) -> Result<ThreadEnd, LoadError> {
    if !spec.starts_as_due() {
        own_usage::short_slices();
    }
    let seat = start.seat();
    let ready = bind(spec, slot).and_then(|()| uring(spec));
    let recorder = recorder_for(spec, slot, channels);
    let worker = Worker::new(spec, &control.0, slot as u64, start.first_id, recorder);
    match ready? {
        Some(mut io) => drive_from(&mut io, worker, start, seat),
        None => {
            let epoll = Epoll::new().map_err(|error| LoadError::Io { backend: <Epoll as Io>::NAME, error });
            drive_from(&mut epoll?, worker, start, seat)
        }
    }
}

/// Binds the calling thread to its core, if the load names any.
fn bind(spec: &LoadSpec, slot: usize) -> Result<(), LoadError> {
    if spec.cpus.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(spec.cpus[slot % spec.cpus.len()]);
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| LoadError::Thread(e.into()))
}

/// An io_uring, unless the load wants none or the kernel offers none: blocked, as in most containers, or too old. The
/// record states which backend it was.
fn uring<'r>(spec: &LoadSpec) -> Result<Option<Uring<'r>>, LoadError> {
    if spec.io == IoChoice::Epoll {
        return Ok(None);
    }
    let size = Size {
        connections: spec.connections_per_thread(),
        in_flight: spec.in_flight_per_thread(),
        keep_alive: spec.keep_alive,
        sources: !spec.sources.is_empty(),
    };
    match Uring::new(size) {
        Ok(io) => Ok(Some(io)),
        Err(error) if spec.io == IoChoice::Uring => {
            Err(LoadError::Io { backend: <Uring as Io>::NAME, error })
        }
        Err(_) => Ok(None),
    }
}

/// Drives a worker from the load's start on.
fn drive_from<'r, I: Io<'r>>(
    io: &mut I,
    mut worker: Worker<'r>,
    start: &Start,
    seat: StartGuard<'_>,
) -> Result<ThreadEnd, LoadError> {
    let failed = |error| LoadError::Io { backend: I::NAME, error };
    worker.take_up(io.ops());
    let opened = open_held(io, &mut worker);
    seat.agree();
    opened.map_err(failed)?;
    let start_ns = start.at_ns();
    worker.begin_at(start_ns);
    // Reading it takes so long that the first request would be late.
    let before = ThreadUse::now();
    wait_until(start_ns, I::WAKE_EARLY_NS);
    let end = drive(io, &mut worker, || {}).map_err(failed)?;
    // A thread sleeps while it waits for stragglers, which would hide how busy it was.
    let used = end.stopped.map_or_else(ThreadUse::now, |end| end.used).since(before);
    worker.hand_over(io.ops());
    Ok(ThreadEnd { end, used, backend: I::NAME })
}

/// Sleeps until shortly before a time on the monotonic clock, then spins.
#[expect(clippy::disallowed_methods, reason = "the load begins at a time on the clock")]
fn wait_until(at_ns: u64, early_ns: u64) {
    let left_ns = at_ns.saturating_sub(now_ns());
    std::thread::sleep(std::time::Duration::from_nanos(left_ns.saturating_sub(early_ns)));
    while now_ns() < at_ns {
        std::hint::spin_loop();
    }
}

fn bound_cpus(spec: &LoadSpec) -> Vec<usize> {
    let mut cpus: Vec<usize> = spec.cpus.iter().copied().take(spec.threads).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// How batches go to the caller's thread, and come back.
struct Channels {
    full: Sender<Box<Batch>>,
    empty: Receiver<Box<Batch>>,
}

fn recorder_for(spec: &LoadSpec, slot: usize, channels: Channels) -> Recorder {
    Recorder::new(Setup {
        sizes: Sizes {
            worker: slot,
            tags: spec.tags.len(),
            numbers: spec.journey.as_ref().map_or(0, |j| j.numbers.len()),
            warmup: spec.warmup_ns > 0,
        },
        window_from_ns: spec.warmup_ns,
        window_to_ns: spec.schedule_ns().unwrap_or(u64::MAX),
        closed: spec.starts_as_due(),
        full: channels.full,
        empty: channels.empty,
    })
}
