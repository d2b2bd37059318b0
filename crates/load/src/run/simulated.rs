//! Loads on a simulated network, without waiting in real time: the workers of all threads take turns on one clock. For
//! tests of schedules and accounting.

use std::ops::Range;
use std::sync::mpsc::channel;

use loadlab_record::documents::summary::Generator;

use super::threads::{Channels, give_back, recorder_for};
use super::{Collector, Control, LoadError, LoadEvent, LoadResult, Origin};
use crate::io::{Io, Ops, Wait, sim};
use crate::measure::delta::Delta;
use crate::spec::LoadSpec;
use crate::start::Start;
use crate::worker::{Next, Worker, WorkerEnd, end, open_held};

/// Runs a load on simulated load threads, without waiting in real time. For tests of schedules and accounting.
///
/// # Errors
/// The load runs on without advancing its clock: a bug in loadlab.
pub fn simulate<S: sim::Server>(
    spec: &LoadSpec,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<LoadResult, LoadError> {
    let first = spec.other_threads.before;
    simulate_slots(spec, first..first + spec.threads as u64, control, io, observer)
}

/// As `simulate`, for the share of one load thread, numbered from 0.
///
/// # Errors
/// As for `simulate`.
pub fn simulate_share<S: sim::Server>(
    spec: &LoadSpec,
    slot: u64,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<LoadResult, LoadError> {
    simulate_slots(spec, slot..slot + 1, control, io, observer)
}

fn simulate_slots<S: sim::Server>(
    spec: &LoadSpec,
    slots: Range<u64>,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<LoadResult, LoadError> {
    let origin = Origin { start_ns: 0, zero_ns: 0, batch: 0, first_id: 0 };
    let start = Start::new(origin.start_ns, origin.first_id, None);
    let threads = slots.end - slots.start;
    let mut collector = Collector::new(spec, origin, &start, threads as usize);
    let ends = on_slots(spec, slots, control, io, &mut |delta| collector.add(delta, observer))?;
    collector.end(observer);
    Ok(collector.outcome(ends, Generator { io: "sim".into(), threads, ..Generator::default() }))
}

/// Runs the simulated load threads with these numbers to their end; `take` gets their counts.
///
/// # Errors
/// The load runs on without advancing its clock: a bug in loadlab.
pub(super) fn on_slots<S: sim::Server>(
    spec: &LoadSpec,
    slots: Range<u64>,
    control: &Control,
    io: &mut sim::Sim<S>,
    take: &mut dyn FnMut(&mut Delta),
) -> Result<Vec<WorkerEnd>, LoadError> {
    let (full, deltas) = channel();
    let (mut threads, mut empties) = (Vec::new(), Vec::new());
    for slot in slots {
        let (give_back, empty) = channel();
        let recorder = recorder_for(spec, threads.len(), Channels { full: full.clone(), empty });
        let worker = Worker::new(spec, &control.0, slot, 0, recorder);
        threads.push(Thread { worker, state: ThreadState::Begins });
        empties.push(give_back);
    }
    drop(full);
    let mut collect = |mut delta: Box<Delta>| {
        take(&mut delta);
        give_back(delta, &empties);
    };
    // Drained while the load runs, as for real threads: otherwise a long load would be held in memory whole.
    let ends = take_turns(io, &mut threads, || deltas.try_iter().for_each(&mut collect));
    drop(threads);
    deltas.iter().for_each(collect);
    ends.map_err(|error| LoadError::Io { backend: "sim", error })
}

/// A simulated load thread.
struct Thread<'r> {
    worker: Worker<'r>,
    state: ThreadState,
}

enum ThreadState {
    Begins,
    Waits(Wait),
    Ended,
}

/// Drives all workers to their end, always the one whose clock is furthest behind.
fn take_turns<'r, S: sim::Server>(
    io: &mut sim::Sim<S>,
    threads: &mut [Thread<'r>],
    mut between: impl FnMut(),
) -> std::io::Result<Vec<WorkerEnd>> {
    let mut start_ns = 0;
    for (index, thread) in threads.iter_mut().enumerate() {
        io.drive_thread(index);
        open_held(io, &mut thread.worker)?;
        start_ns = start_ns.max(io.ops().now());
    }
    threads.iter_mut().for_each(|thread| thread.worker.begin_at(start_ns, None));
    let mut ends: Vec<Option<WorkerEnd>> = threads.iter().map(|_| None).collect();
    let next_of = |io: &sim::Sim<S>, (index, thread): (usize, &Thread<'_>)| match thread.state {
        ThreadState::Begins => Some((0, index)),
        ThreadState::Waits(wait) => Some((io.next_ns(index, wait.until_ns), index)),
        ThreadState::Ended => None,
    };
    while let Some((_, index)) = threads.iter().enumerate().filter_map(|thread| next_of(io, thread)).min() {
        io.drive_thread(index);
        let Thread { worker, state } = &mut threads[index];
        if let ThreadState::Waits(wait) = *state {
            io.poll(wait, worker)?;
            if io.is_collected() {
                between();
            }
        }
        *state = match worker.turn(io.ops()) {
            Next::Wait(wait) => ThreadState::Waits(wait),
            Next::Done => {
                ends[index] = Some(end(io, worker)?);
                ThreadState::Ended
            }
        };
    }
    Ok(ends.into_iter().flatten().collect())
}
