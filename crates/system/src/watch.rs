//! The watcher: every component once a second, on the trial's clock, and every probe beside it.
//!
//! Reading k happens at t0 + k s, whatever the readings before took: its lines fall into the seconds of the
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
/// A second this near needs no reading before it.
const NEAR_NS: u64 = 200_000_000;

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
    /// Starts watching: at once (unless a whole second is near), then at each whole second of the trial's clock,
    /// and once more when it is stopped.
    pub fn start(clock: TrialClock, targets: Vec<Target>, probes: Vec<Probe>, emit: Emit) -> Result<Watcher> {
        let targets = Arc::new(Mutex::new(targets));
        let mut watcher = Watcher { targets: targets.clone(), stop: Cancel::new(), threads: Vec::new() };
        let (stop, out) = (watcher.stop.clone(), emit.clone());
        watcher.spawn("loadlab-watch", move || {
            let mut round = Round::default();
            each_second(clock, &stop, &mut |late| {
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

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
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
    round.next();
    let read = |target: &mut Target| {
        let at_s = clock.at_s(clock::now_ns());
        target.read(round).map(|sample| Sample { at_s, ..sample })
    };
    targets.iter_mut().filter_map(read).collect()
}

/// Calls at once, at each whole second, and when stopped; with a note when the call comes late or seconds were
/// missed.
fn each_second(clock: TrialClock, stop: &Cancel, call: &mut dyn FnMut(Option<String>)) {
    let (mut k, mut due_ns) = clock.next_second(clock::now_ns());
    if due_ns.saturating_sub(clock::now_ns()) > NEAR_NS {
        call(None);
        (k, due_ns) = clock.next_second(clock::now_ns());
    }
    while !stop.wait_until(due_ns) {
        let late_ns = clock::now_ns().saturating_sub(due_ns);
        let late_ms = late_ns / 1_000_000;
        call((late_ns > LATE_NS).then(|| format!("sample of second {k} was read {late_ms} ms late")));
        // One that took over a second leaves out those that it covered.
        (k, due_ns) = clock.next_second(clock::now_ns().max(due_ns + 1));
    }
    call(None);
}

fn watch_probe(probe: &Probe, clock: TrialClock, stop: &Cancel, emit: &Emit) {
    let mut failing: Option<String> = None;
    each_second(clock, stop, &mut |_| {
        let at_s = clock.at_s(clock::now_ns());
        match probe.read(&mut || stop.is_cancelled()) {
            Ok(value) => {
                failing = None;
                let probes = [(probe.name().to_owned(), value)].into();
                emit(Watched::Samples(vec![Sample {
                    at_s,
                    component: "probes".into(),
                    probes,
                    ..Sample::default()
                }]));
            }
            Err(_) if stop.is_cancelled() => {}
            Err(error) => {
                // Told once for as long as it fails in the same way.
                let text = error.to_string();
                if failing.as_ref() != Some(&text) {
                    emit(Watched::Note(text.clone()));
                    failing = Some(text);
                }
            }
        }
    });
}
