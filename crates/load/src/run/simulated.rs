//! Loads on a simulated network, in no time: the workers of their threads take turns on one clock. For tests of
//! schedules and accounts.

use std::ops::Range;
use std::sync::mpsc::channel;

use loadlab_record::summary::Generator;

use super::{Channels, Collector, Control, LoadError, LoadEvent, Origin, Outcome, recorder_for};
use crate::io::{Io, Ops, Wait, sim};
use crate::spec::LoadSpec;
use crate::start::Start;
use crate::worker::{Next, Worker, WorkerEnd, end, open_held};

/// Runs a load on simulated load threads, in no time. For tests of schedules and accounts.
///
/// # Errors
/// The load runs on without advancing its clock: a bug of ours.
pub fn simulate<S: sim::Server>(
    spec: &LoadSpec,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<Outcome, LoadError> {
    simulate_slots(spec, 0..spec.threads as u64, control, io, observer)
}

/// The same for one load thread's share, from 0.
///
/// # Errors
/// The same.
pub fn simulate_share<S: sim::Server>(
    spec: &LoadSpec,
    slot: u64,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<Outcome, LoadError> {
    simulate_slots(spec, slot..slot + 1, control, io, observer)
}

fn simulate_slots<S: sim::Server>(
    spec: &LoadSpec,
    slots: Range<u64>,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<Outcome, LoadError> {
    let (full, batches) = channel();
    let origin = Origin { start_ns: 0, zero_ns: 0, batch: 0, first_id: 0 };
    let start = Start::new(origin.start_ns, origin.first_id, spec.held.as_ref().map(|_| spec.threads));
    let (mut threads, mut empties) = (Vec::new(), Vec::new());
    for slot in slots {
        let (give_back, empty) = channel();
        let recorder = recorder_for(spec, threads.len(), Channels { full: full.clone(), empty });
        let worker = Worker::new(spec, &control.0, slot, origin.first_id, recorder);
        threads.push(Thread { worker, state: State::Begins });
        empties.push(give_back);
    }
    drop(full);
    let mut collector = Collector::new(spec, origin, &start);
    // Drained while the load runs, as for real threads: a long one would otherwise be held in memory whole.
    let between = || batches.try_iter().for_each(|batch| collector.add(batch, &empties, observer));
    let ends = take_turns(io, &mut threads, between);
    let ends = ends.map_err(|error| LoadError::Io { backend: "sim", error })?;
    let count = threads.len();
    drop(threads);
    collector.collect(&batches, &empties, observer);
    Ok(collector.outcome(ends, Generator { io: "sim".into(), threads: count as u64, ..Generator::default() }))
}

/// A simulated load thread.
struct Thread<'r> {
    worker: Worker<'r>,
    state: State,
}

enum State {
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
    for (lane, thread) in threads.iter_mut().enumerate() {
        io.drive_lane(lane);
        open_held(io, &mut thread.worker)?;
        start_ns = start_ns.max(io.ops().now());
    }
    threads.iter_mut().for_each(|thread| thread.worker.begin_at(start_ns));
    let mut ends: Vec<Option<WorkerEnd>> = threads.iter().map(|_| None).collect();
    let next_of = |io: &sim::Sim<S>, (lane, thread): (usize, &Thread<'_>)| match thread.state {
        State::Begins => Some((0, lane)),
        State::Waits(wait) => Some((io.next_ns(lane, wait.until_ns), lane)),
        State::Ended => None,
    };
    while let Some((_, lane)) = threads.iter().enumerate().filter_map(|thread| next_of(io, thread)).min() {
        io.drive_lane(lane);
        let Thread { worker, state } = &mut threads[lane];
        if let State::Waits(wait) = *state {
            io.poll(wait, worker)?;
            if io.is_collected() {
                between();
            }
        }
        *state = match worker.turn(io.ops()) {
            Next::Wait(wait) => State::Waits(wait),
            Next::Done => {
                ends[lane] = Some(end(io, worker)?);
                State::Ended
            }
        };
    }
    Ok(ends.into_iter().flatten().collect())
}
