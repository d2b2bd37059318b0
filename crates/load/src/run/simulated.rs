//! Loads on a simulated network, in no time: their threads' workers take turns on one clock. For tests of schedules and
//! accounts.

use std::sync::mpsc::channel;

use loadlab_record::summary::Generator;

use super::{Collector, Control, LoadError, LoadEvent, Origin, Outcome, recorder_for};
use crate::io::{self, Io, sim};
use crate::spec::LoadSpec;
use crate::start::Start;
use crate::worker::{Place, Worker, drive, open_held};

/// Runs a load on one simulated worker, in no time. For tests of schedules and accounts.
pub fn simulate<S: sim::Server>(
    spec: &LoadSpec,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<Outcome, LoadError> {
    simulate_share(spec, 0, control, io, observer)
}

/// The same for the share of one of the load's threads, from 0.
pub fn simulate_share<S: sim::Server>(
    spec: &LoadSpec,
    slot: u64,
    control: &Control,
    io: &mut sim::Sim<S>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> Result<Outcome, LoadError> {
    let (full, batches) = channel();
    let (give_back, empty) = channel();
    let origin = Origin { start_ns: 0, zero_ns: 0, batch: 0, first_id: 0 };
    let start = Start::new(origin.start_ns, origin.first_id, spec.held.as_ref().map(|_| spec.threads));
    let recorder = recorder_for(spec, 0, (full, empty));
    let place = Place { slot, slots: 1, start_ns: 0, first_id: 0 };
    let worker = Worker::new(spec, &control.0, place, recorder);
    let failed = |error| LoadError::Io { backend: "sim", error };
    let mut worker = worker;
    open_held(io, &mut worker).map_err(failed)?;
    let start_ns = io::Ops::now(io.ops());
    worker.begin_at(start_ns);
    let mut collector = Collector::new(spec, origin, &start);
    let empties = [give_back];
    // As the threads of a real load are read while they run: a long one would else be held in memory whole.
    let between = || batches.try_iter().for_each(|batch| collector.add(batch, &empties, observer));
    let end = drive(io, &mut worker, between).map_err(failed)?;
    drop(worker);
    collector.collect(&batches, &empties, observer);
    Ok(collector.outcome(vec![end], Generator { io: "sim".into(), threads: 1, ..Generator::default() }))
}
