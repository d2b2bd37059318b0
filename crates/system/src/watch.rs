//! The watcher: every component once a second (or more often), on the trial's clock, and every probe beside it.
//!
//! Reading k happens at t0 + k intervals, whatever the readings before took: its lines fall into the seconds of the
//! load's ticks. Each probe has a thread of its own, since a system under load answers late, and that must not
//! make the samples late. What is read goes to one closure; nothing is kept here.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use loadlab_record::sample::Sample;

use crate::cancel::Cancel;
use crate::clock::{self, TrialClock};
use crate::component::lock;
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::target::{Round, Target};

/// A reading that begins later than this is noted.
const LATE_NS: u64 = 100_000_000;
/// Probes are read this often.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// What the watcher hands out.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// One reading of every target, or of a probe (component `probes`).
    Samples(Vec<Sample>),
    /// Something a reader of the record should know: a reading was late, a probe fails.
    Note(String),
}

/// Where everything goes that is watched. It is called from several threads and must not block.
pub type Emit = Arc<dyn Fn(Watched) + Send + Sync>;

/// What is to be watched, and a reading of it before any load: what a component holds open by itself can be told only
/// then. It is taken before a trial's clock has its zero, so that no load waits for it.
pub struct AtRest {
    targets: Vec<Target>,
    readings: Vec<(u64, Sample)>,
    round: Round,
}

impl AtRest {
    /// Reads each once.
    pub fn read(mut targets: Vec<Target>) -> AtRest {
        let mut round = Round::default();
        let readings = read_round(&mut targets, &mut round);
        AtRest { targets, readings, round }
    }

    /// Open files of each that tells them, by name.
    pub fn open_files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.readings.iter().filter_map(|(_, sample)| Some((sample.component.as_str(), sample.open_files?)))
    }
}

impl std::fmt::Debug for AtRest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AtRest").field("targets", &self.targets.len()).finish_non_exhaustive()
    }
}

/// Threads that read until stopped. Dropping it stops them.
pub struct Watcher {
    targets: Arc<Mutex<Vec<Target>>>,
    stop: Cancel,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Starts watching: at once, then at each whole second of the trial's clock, and once more when it is stopped.
    pub fn start(clock: TrialClock, targets: Vec<Target>, probes: Vec<Probe>, emit: Emit) -> Result<Watcher> {
        Self::start_every(SECOND_NS, clock, AtRest::read(targets), probes, emit)
    }

    /// The same for what was read already, and with another interval between the readings of targets, in
    /// nanoseconds; probes are read each second.
    pub fn start_every(
        interval_ns: u64,
        clock: TrialClock,
        at_rest: AtRest,
        probes: Vec<Probe>,
        emit: Emit,
    ) -> Result<Watcher> {
        let AtRest { targets, readings, mut round } = at_rest;
        let first = readings.into_iter().map(|(ns, sample)| Sample { at_s: clock.at_s(ns), ..sample });
        emit(Watched::Samples(first.collect()));
        let targets = Arc::new(Mutex::new(targets));
        let mut watcher = Watcher { targets: targets.clone(), stop: Cancel::new(), threads: Vec::new() };
        let (stop, out) = (watcher.stop.clone(), emit.clone());
        watcher.spawn("loadlab-watch", move || {
            at_each_further((clock, interval_ns), &stop, &mut |late| {
                late.into_iter().for_each(|note| out(Watched::Note(note)));
                out(Watched::Samples(read_all(&mut lock(&targets), &mut round, clock)));
            });
        })?;
        for probe in probes {
            let (stop, out) = (watcher.stop.clone(), emit.clone());
            watcher.spawn("loadlab-probe", move || watch_probe(&probe, clock, &stop, &out))?;
        }
        Ok(watcher)
    }

    /// Whoever reads beside it ends with it.
    pub(crate) fn stopper(&self) -> Cancel {
        self.stop.clone()
    }

    pub(crate) fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(|source| Error::Os { doing: "start a thread", source })?);
        Ok(())
    }

    /// Watches one more, in place of one with the same name: a component that was started again.
    pub fn add(&self, target: Target) {
        let mut targets = lock(&self.targets);
        targets.retain(|t| t.name() != target.name());
        targets.push(target);
    }

    /// Reads a last time, and returns when everything was handed out.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A panic in the closure was the caller's, and is told by its thread.
            let _ = thread.join();
        }
    }
}

fn read_all(targets: &mut [Target], round: &mut Round, clock: TrialClock) -> Vec<Sample> {
    let readings = read_round(targets, round);
    readings.into_iter().map(|(ns, sample)| Sample { at_s: clock.at_s(ns), ..sample }).collect()
}

/// One reading of each that is up, and when it began.
fn read_round(targets: &mut [Target], round: &mut Round) -> Vec<(u64, Sample)> {
    round.next();
    let read = |target: &mut Target| {
        let ns = clock::now_ns();
        target.read(round).map(|sample| (ns, sample))
    };
    targets.iter_mut().filter_map(read).collect()
}

/// Calls at once, at each whole interval, and when stopped; with a note when the call comes late or some were
/// missed. An interval whose end is near (a fifth of it) needs no call before it.
pub(crate) fn at_each(
    (clock, interval_ns): (TrialClock, u64),
    stop: &Cancel,
    call: &mut dyn FnMut(Option<String>),
) {
    let now_ns = clock::now_ns();
    if clock.next_tick(now_ns, interval_ns).1.saturating_sub(now_ns) > interval_ns / 5 {
        call(None);
    }
    at_each_further((clock, interval_ns), stop, call);
}

/// The same without the call at once.
fn at_each_further(
    (clock, interval_ns): (TrialClock, u64),
    stop: &Cancel,
    call: &mut dyn FnMut(Option<String>),
) {
    let next = |ns| clock.next_tick(ns, interval_ns);
    let (mut k, mut due_ns) = next(clock::now_ns());
    while !stop.wait_until(due_ns) {
        let late_ns = clock::now_ns().saturating_sub(due_ns);
        let late_ms = late_ns / 1_000_000;
        let at_s = k as f64 * interval_ns as f64 / 1e9;
        call((late_ns > LATE_NS).then(|| format!("sample of second {at_s} was read {late_ms} ms late")));
        // One that took longer than the interval leaves out those that it covered.
        (k, due_ns) = next(clock::now_ns().max(due_ns + 1));
    }
    call(None);
}

fn watch_probe(probe: &Probe, clock: TrialClock, stop: &Cancel, emit: &Emit) {
    let mut failing: Option<String> = None;
    at_each((clock, SECOND_NS), stop, &mut |_| {
        let mut sample =
            Sample { at_s: clock.at_s(clock::now_ns()), component: "probes".into(), ..Sample::default() };
        match probe.read(&mut || stop.is_cancelled()) {
            Ok(value) => {
                failing = None;
                sample.probes.insert(probe.name().to_owned(), value);
                emit(Watched::Samples(vec![sample]));
            }
            Err(_) if stop.is_cancelled() => {}
            Err(error) => {
                // In the record each time, and told once for as long as it fails in the same way.
                let text = error.to_string();
                sample.probes_failed.insert(probe.name().to_owned(), text.clone());
                emit(Watched::Samples(vec![sample]));
                if failing.as_ref() != Some(&text) {
                    emit(Watched::Note(text.clone()));
                    failing = Some(text);
                }
            }
        }
    });
}
