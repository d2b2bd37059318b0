//! The load threads of this process: starting, binding and driving them, and what they used.

use std::sync::mpsc::{Receiver, Sender, channel};

use loadlab_record::documents::summary::Generator;

use super::{Control, LoadError};
use crate::io::Io;
use crate::io::epoll::{Epoll, now_ns};
use crate::io::uring::{Size, Uring};
use crate::measure::delta::{Delta, Sizes};
use crate::measure::own_usage::{self, Suspended, ThreadUse};
use crate::measure::recorder::{Recorder, Setup};
use crate::spec::{IoChoice, LoadSpec};
use crate::start::{Start, StartGuard};
use crate::worker::{Worker, WorkerEnd, drive, open_held};

/// Runs a load's threads to their end; `take` gets their counts, on the caller's thread.
///
/// # Errors
/// A thread cannot be started. How each thread ended is in the result.
pub(super) fn run(
    spec: &LoadSpec,
    control: &Control,
    start: &Start,
    take: &mut dyn FnMut(&mut Delta),
) -> Result<(Vec<Result<WorkerEnd, LoadError>>, Generator), LoadError> {
    let (full, deltas) = channel();
    let (throttled_before, suspended_before) = (own_usage::throttled_ns(), Suspended::now());
    let ends = std::thread::scope(|scope| {
        let mut empties = Vec::new();
        let mut threads = Vec::new();
        for slot in 0..spec.threads {
            let (give_back, empty) = channel();
            empties.push(give_back);
            let full = full.clone();
            let body = move || {
                let mut aborts = AbortsLoad(Some(control));
                let end = load_thread(spec, control, start, slot, Channels { full, empty });
                aborts.0 = aborts.0.filter(|_| end.is_err());
                end
            };
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
        for mut delta in &deltas {
            take(&mut delta);
            give_back(delta, &empties);
        }
        let ends = threads.into_iter().map(|t| t.join().unwrap_or(Err(LoadError::Panicked)));
        Ok(ends.collect::<Vec<_>>())
    })?;
    let good = || ends.iter().flatten();
    let uses: Vec<ThreadUse> = good().map(|e| e.used).collect();
    let backend = good().next().map_or("none", |e| e.backend);
    let throttled = own_usage::throttled_since(&throttled_before);
    let mut generator = own_usage::sum(backend, &bound_cpus(spec), &uses, throttled);
    generator.suspended_s = Some(Suspended::now().since_ns(suspended_before) as f64 / 1e9);
    Ok((ends.into_iter().map(|end| end.map(|end| end.end)).collect(), generator))
}

/// Aborts the load when dropped: if a thread fails or panics, the load is no longer the one that was asked for, and
/// without its reports no second is complete.
struct AbortsLoad<'c>(Option<&'c Control>);

impl Drop for AbortsLoad<'_> {
    fn drop(&mut self) {
        self.0.inspect(|control| control.abort());
    }
}

/// Empties a delta and returns it to the thread it came from.
pub(super) fn give_back(mut delta: Box<Delta>, empties: &[Sender<Box<Delta>>]) {
    let (worker, last) = (delta.worker, delta.last);
    delta.clear();
    if !last {
        // Its thread may have ended early.
        let _ = empties[worker].send(delta);
    }
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
    if !spec.sends_when_free() {
        own_usage::short_slices();
    }
    let guard = start.guard();
    let ready = bind(spec, slot).and_then(|()| uring(spec));
    let recorder = recorder_for(spec, slot, channels);
    let worker =
        Worker::new(spec, &control.0, spec.other_threads.before + slot as u64, start.first_id, recorder);
    match ready? {
        Some(mut io) => drive_from(&mut io, worker, start, guard),
        None => {
            let epoll = Epoll::new().map_err(|error| LoadError::Io { backend: <Epoll as Io>::NAME, error });
            drive_from(&mut epoll?, worker, start, guard)
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

/// An io_uring, unless the load wants none or the kernel offers none (blocked, as in most containers, or too old). The
/// record states which backend was used.
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

/// Drives a worker from the load's start.
fn drive_from<'r, I: Io<'r>>(
    io: &mut I,
    mut worker: Worker<'r>,
    start: &Start,
    guard: StartGuard<'_>,
) -> Result<ThreadEnd, LoadError> {
    let failed = |error| LoadError::Io { backend: I::NAME, error };
    worker.take_up(io.ops());
    let opened = open_held(io, &mut worker);
    guard.agree();
    opened.map_err(failed)?;
    let start_ns = start.at_ns();
    worker.begin_at(start_ns, Some(unix_ns_at(start_ns)));
    // Read before waiting: reading takes so long that the first request would be late.
    let before = ThreadUse::now();
    wait_until(start_ns, I::WAKE_EARLY_NS);
    let end = drive(io, &mut worker, || {}).map_err(failed)?;
    // A thread sleeps while it waits for stragglers, which would hide how busy it was.
    let used = end.stopped.map_or_else(ThreadUse::now, |end| end.used).since(before);
    worker.hand_over(io.ops());
    Ok(ThreadEnd { end, used, backend: I::NAME })
}

/// The wall clock at a time on the monotonic clock, nanoseconds since 1970. Of a few readings of both clocks, it uses
/// the least interrupted one.
fn unix_ns_at(at_ns: u64) -> u64 {
    let read = |_| {
        let before_ns = now_ns();
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unix_ns = unix.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        (now_ns() - before_ns, unix_ns, before_ns)
    };
    let (_, unix_ns, now_ns) = (0..READINGS).map(read).min().unwrap_or_default();
    unix_ns.saturating_add_signed(at_ns.cast_signed().saturating_sub(now_ns.cast_signed()))
}

/// Readings of the two clocks, of which the best is used.
const READINGS: usize = 5;

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

/// Channels that carry deltas to the caller's thread and back.
pub(super) struct Channels {
    pub full: Sender<Box<Delta>>,
    pub empty: Receiver<Box<Delta>>,
}

pub(super) fn recorder_for(spec: &LoadSpec, slot: usize, channels: Channels) -> Recorder {
    Recorder::new(Setup {
        sizes: Sizes {
            worker: slot,
            tags: spec.tags.len(),
            numbers: spec.journey.as_ref().map_or(0, |j| j.numbers.len()),
            warmup: spec.warmup_ns > 0,
        },
        window_from_ns: spec.warmup_ns,
        window_to_ns: spec.schedule_ns().unwrap_or(u64::MAX),
        sends_when_free: spec.sends_when_free(),
        full: channels.full,
        empty: channels.empty,
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use loadlab_record::text::time::SECOND_NS;

    use super::*;
    use crate::spec::request::RequestParts;
    use crate::{Model, Until};

    #[test]
    fn a_thread_that_fails_aborts_the_load() {
        let request = RequestParts { method: "GET".into(), path: "/".into(), ..RequestParts::default() };
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let until = Until::Elapsed(60 * SECOND_NS);
        let requests = vec![request.build().unwrap()];
        let mut spec = LoadSpec::new(Model::Closed { users: 2 }, until, requests, address);
        // There is no such core for the second thread.
        (spec.threads, spec.cpus, spec.io) = (2, vec![0, 1000], IoChoice::Epoll);
        let (control, start) = (Control::default(), Start::new(now_ns(), 0, None));
        let (ends, _) = run(&spec, &control, &start, &mut |_| {}).unwrap();
        assert!(matches!(ends[1], Err(LoadError::Thread(_))));
        assert!(control.is_aborted());
    }
}
