//! The watcher: reads every component once a second (or more often), on the trial's clock, and every probe beside it.
//!
//! Readings are spread over the interval (`spread.rs`), at moments when no requests of a round rate are due, by a
//! thread with lower priority than the load's (`background.rs`): reading must not distort what is read. Each sample
//! carries the time at which it was read. All targets are read at once when that disturbs nothing and counters need it:
//! before the clock's zero, when the load's schedule ends, and on request. Each probe has its own thread, since a
//! system under load answers late, and that must not delay the samples. Everything read goes to one closure; nothing is
//! kept here.

pub mod answering;
pub(crate) mod drain;
pub(crate) mod evidence;
pub(crate) mod external;
mod members;
mod net;
pub mod probe;
pub(crate) mod profile;
pub(crate) mod scrape;
mod spread;
pub(crate) mod target;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use loadlab_record::sync::lock;
use loadlab_record::text::time::SECOND_NS;
use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::names::PROBES;
use loadlab_record::watch::sample::Sample;

use self::evidence::{EvidenceReader, Members};
use self::members::InnermostFirst;
use self::probe::Probe;
use self::profile::{ProfileSpec, Profiler};
use self::spread::Spread;
use self::target::{Round, Target};
use crate::cancel::Cancel;
use crate::clock::{self, TrialClock};
use crate::error::{Error, Result};
use crate::process::background;

/// A reading that starts later than this is reported.
const LATE_NS: u64 = 100_000_000;
/// How often the processes of the targets, as last read, are passed to the evidence reader.
const MEMBERS_NS: u64 = 200_000_000;
/// An idle reading older than this at the clock's zero is repeated.
const FRESH_NS: u64 = 200_000_000;
/// How long before zero the idle reading is repeated: by then load threads are waiting for zero.
const BEFORE_ZERO_NS: u64 = 40_000_000;

/// How often targets are read, and when all of them are read at once.
#[derive(Clone, Copy, Debug)]
pub struct SampleTiming {
    /// Interval between readings of a target, nanoseconds.
    pub interval_ns: u64,
    /// When the schedule of the trial's loads ends, nanoseconds of [`clock::now_ns`]: nothing is due any more, and
    /// counters are read to see what the load used.
    pub end_ns: Option<u64>,
}

impl Default for SampleTiming {
    /// Once a second.
    fn default() -> SampleTiming {
        SampleTiming { interval_ns: SECOND_NS, end_ns: None }
    }
}

/// What the watcher emits.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// Readings of targets, or of a probe (component `probes`), each with its own time.
    Samples(Vec<Sample>),
    /// What connections and threads did in about a second.
    Evidence(Box<Evidence>),
    /// Something a reader of the record should know: a reading was late, a probe fails.
    Note(String),
}

/// Receives everything the watcher emits. Called from several threads; must not block.
pub type Emit = Arc<dyn Fn(WatchEvent) + Send + Sync>;

/// The targets, each read once before any load: only then can it be seen what a component holds open by itself. They
/// are read before a trial's clock has its zero, so that no load waits for the readings.
pub struct IdleReadings {
    targets: Vec<Target>,
    readings: Vec<(u64, Sample)>,
    round: Round,
}

impl IdleReadings {
    /// Reads each target once.
    pub fn read(mut targets: Vec<Target>) -> IdleReadings {
        let mut round = Round::default();
        let readings = read_round(targets.iter_mut(), &mut round);
        IdleReadings { targets, readings, round }
    }

    /// Open files of each target by name, if known.
    pub fn open_files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.readings.iter().filter_map(|(_, sample)| Some((sample.component.as_str(), sample.open_files?)))
    }
}

impl std::fmt::Debug for IdleReadings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdleReadings").field("targets", &self.targets.len()).finish_non_exhaustive()
    }
}

/// Targets, and the turn of each.
struct TargetTurns {
    targets: Vec<Target>,
    /// The place of each target, numbered from 0. Targets that need a scan of all processes of the machine share one
    /// place, and the scan.
    places: Vec<usize>,
    count: usize,
    innermost: InnermostFirst,
}

impl TargetTurns {
    fn of(targets: Vec<Target>) -> TargetTurns {
        let (mut places, mut count, mut of_trees) = (Vec::new(), 0, None);
        for target in &targets {
            let place = of_trees.filter(|_| target.is_tree()).unwrap_or(count);
            if target.is_tree() {
                of_trees = Some(place);
            }
            count = count.max(place + 1);
            places.push(place);
        }
        let groups: Vec<_> = targets.iter().map(Target::dirs).collect();
        let innermost = InnermostFirst::of(&groups);
        TargetTurns { targets, places, count, innermost }
    }

    /// The processes of each target as of its last reading; each process is in one of the lists.
    fn members(&mut self) -> Vec<Members> {
        let mut members: Vec<Members> = self.targets.iter().map(Target::members).collect();
        self.innermost.settle(&mut members, std::process::id());
        members
    }

    fn spread(&self, interval_ns: u64) -> Spread {
        Spread::new(self.count, interval_ns)
    }

    /// Adds a target, replacing one of the same name.
    fn add(&mut self, target: Target) {
        let mut targets = std::mem::take(&mut self.targets);
        match targets.iter_mut().find(|t| t.name() == target.name()) {
            Some(same) => *same = target,
            None => targets.push(target),
        }
        *self = TargetTurns::of(targets);
    }

    /// The target with this name has other limits.
    fn set_limits(&mut self, name: &str, memory_bytes: Option<u64>) {
        if let Some(target) = self.targets.iter_mut().find(|t| t.name() == name) {
            target.set_limits(memory_bytes);
        }
    }

    /// The targets in this slot.
    fn in_slot(&mut self, slot: u64, spread: Spread) -> impl Iterator<Item = &mut Target> {
        let turns = self.targets.iter_mut().zip(&self.places);
        turns.filter(move |(_, place)| spread.slot_of(**place) == slot).map(|(target, _)| target)
    }
}

/// What the threads of a watcher share.
#[derive(Clone)]
struct TargetReader {
    turns: Arc<Mutex<TargetTurns>>,
    clock: TrialClock,
    emit: Emit,
}

impl TargetReader {
    /// Reads the targets of a slot, or all of them, and emits the readings under the lock, so that readings of one
    /// target come in order.
    fn read(&self, slot: Option<(u64, Spread)>, round: &mut Round) {
        let mut turns = lock(&self.turns);
        let readings = match slot {
            Some((slot, spread)) => read_round(turns.in_slot(slot, spread), round),
            None => read_round(turns.targets.iter_mut(), round),
        };
        let on_clock = |(ns, sample)| Sample { at_s: self.clock.at_s(ns), ..sample };
        (self.emit)(WatchEvent::Samples(readings.into_iter().map(on_clock).collect()));
    }

    /// Reads sockets and threads of the targets' processes until stopped.
    fn watch_evidence(&self, stop: &Cancel) {
        let mut reader = EvidenceReader::default();
        let mut members_at_ns = 0;
        loop {
            let now_ns = clock::now_ns();
            if now_ns - members_at_ns >= MEMBERS_NS || members_at_ns == 0 {
                members_at_ns = now_ns;
                let members = lock(&self.turns).members();
                reader.set_members(members);
            }
            let wait_ns = match reader.has_components() {
                true => reader.read(now_ns),
                false => SECOND_NS,
            };
            let is_last = stop.wait_until(spread::off_line(self.clock, clock::now_ns() + wait_ns));
            let at_s = |ns| self.clock.at_s(ns);
            if let Some(evidence) = reader.take(clock::now_ns(), is_last, at_s) {
                (self.emit)(WatchEvent::Evidence(Box::new(evidence)));
            }
            if is_last {
                break;
            }
        }
    }

    fn next(&self, interval_ns: u64, after: Option<u64>) -> (Spread, (u64, u64)) {
        let spread = lock(&self.turns).spread(interval_ns);
        let now_ns = clock::now_ns();
        let next = match after {
            Some(due_ns) => spread.after(self.clock, due_ns, now_ns),
            None => spread.next(self.clock, now_ns),
        };
        (spread, next)
    }

    /// Reads targets in turn until stopped, and all of them once more at that point. `marks` are moments at which all
    /// are read, in ascending order.
    fn watch(&self, interval_ns: u64, marks: &[u64], stop: &Cancel, round: &mut Round) {
        let (mut marks, mut was_late) = (marks.iter().copied().peekable(), false);
        let (mut spread, (mut slot, mut due_ns)) = self.next(interval_ns, None);
        loop {
            let mark_ns = marks.peek().copied().filter(|mark_ns| *mark_ns <= due_ns);
            if stop.wait_until(mark_ns.unwrap_or(due_ns)) {
                break self.read(None, round);
            }
            if mark_ns.is_some() {
                marks.next();
                self.read(None, round);
                continue;
            }
            let late_ns = clock::now_ns().saturating_sub(due_ns);
            // Reported once for as long as it lasts.
            if late_ns > LATE_NS && !was_late {
                let (at_s, late_ms) = (self.clock.at_s(due_ns), late_ns / 1_000_000);
                let text = format!("the sample at second {at_s:.2} was read {late_ms} ms late");
                (self.emit)(WatchEvent::Note(text));
            }
            was_late = late_ns > LATE_NS;
            self.read(Some((slot, spread)), round);
            (spread, (slot, due_ns)) = self.next(interval_ns, Some(due_ns));
        }
    }
}

/// Threads that read until stopped. Dropping the watcher stops them.
pub struct Watcher {
    reader: TargetReader,
    stop: Cancel,
    threads: Vec<JoinHandle<()>>,
    /// Number of probes and other readers so far: each has its own phase.
    beside: usize,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Watcher {
    /// Starts watching: reads at once, then once a second, and once more when stopped.
    pub fn start(clock: TrialClock, targets: Vec<Target>, probes: Vec<Probe>, emit: Emit) -> Result<Watcher> {
        Self::start_in(SampleTiming::default(), clock, IdleReadings::read(targets), probes, emit)
    }

    /// As [`Watcher::start`], with existing readings and at another interval; probes are read each second.
    pub fn start_in(
        rhythm: SampleTiming,
        clock: TrialClock,
        at_rest: IdleReadings,
        probes: Vec<Probe>,
        emit: Emit,
    ) -> Result<Watcher> {
        let IdleReadings { targets, readings, mut round } = at_rest;
        let SampleTiming { interval_ns, end_ns } = rhythm;
        let read_ns = readings.last().map_or(clock.origin_ns, |(ns, _)| *ns);
        let is_old = read_ns + FRESH_NS < clock.origin_ns;
        let before_zero = is_old.then(|| clock.origin_ns - BEFORE_ZERO_NS);
        let marks: Vec<u64> = before_zero.into_iter().chain(end_ns).collect();
        let first = readings.into_iter().map(|(ns, sample)| Sample { at_s: clock.at_s(ns), ..sample });
        emit(WatchEvent::Samples(first.collect()));
        let reader = TargetReader { turns: Arc::new(Mutex::new(TargetTurns::of(targets))), clock, emit };
        let mut watcher = Watcher { reader, stop: Cancel::new(), threads: Vec::new(), beside: 0 };
        let (reader, stop) = (watcher.reader.clone(), watcher.stop.clone());
        watcher.spawn("loadlab-watch", move || reader.watch(interval_ns, &marks, &stop, &mut round))?;
        let (reader, stop) = (watcher.reader.clone(), watcher.stop.clone());
        watcher.spawn("loadlab-evidence", move || reader.watch_evidence(&stop))?;
        for probe in probes {
            let (stop, out, ticker) =
                (watcher.stop.clone(), watcher.reader.emit.clone(), watcher.ticker(clock));
            watcher.spawn("loadlab-probe", move || watch_probe(&probe, ticker, &stop, &out))?;
        }
        Ok(watcher)
    }

    /// A token that stops readers running beside the watcher together with it.
    pub(crate) fn stopper(&self) -> Cancel {
        self.stop.clone()
    }

    /// The ticker for the next reader beside the watcher.
    pub(crate) fn ticker(&mut self, clock: TrialClock) -> SecondTicker {
        self.beside += 1;
        SecondTicker { clock, phase_ns: spread::phase_beside(self.beside, SECOND_NS) }
    }

    pub(crate) fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let body = move || {
            background::enter();
            run();
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        self.threads.push(thread.map_err(|source| Error::Os { doing: "start a thread", source })?);
        Ok(())
    }

    /// Watches another target, replacing one of the same name: a component that was started again.
    pub fn add(&self, target: Target) {
        lock(&self.reader.turns).add(target);
    }

    /// A component has other limits from now on, that on memory this one. It is the same target still: another one
    /// would know none of its processes until it is read, and evidence and profile would lack the component for up to a
    /// second.
    pub fn set_limits(&self, component: &str, memory_bytes: Option<u64>) {
        lock(&self.reader.turns).set_limits(component, memory_bytes);
    }

    /// Samples the stacks of targets' threads until the profiler is stopped.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn profile(&self, spec: ProfileSpec) -> Result<Profiler> {
        let turns = self.reader.turns.clone();
        let members = move || lock(&turns).members();
        Profiler::start(spec, self.reader.clock, members)
    }

    /// Reads every target now, beside the readings in turn: the loads are over, and what they used is to be counted.
    ///
    /// # Errors
    /// No thread can be created.
    pub fn read_all(&mut self) -> Result<()> {
        let reader = self.reader.clone();
        self.spawn("loadlab-watch-end", move || reader.read(None, &mut Round::default()))
    }

    /// Reads one last time, and returns once everything has been emitted.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.cancel();
        for thread in self.threads.drain(..) {
            // A panic in the closure is the caller's, and its thread has already reported it.
            let _ = thread.join();
        }
    }
}

/// One reading of each target that is up, and when it began.
fn read_round<'a>(targets: impl Iterator<Item = &'a mut Target>, round: &mut Round) -> Vec<(u64, Sample)> {
    round.next();
    let read = |target: &mut Target| {
        let ns = clock::now_ns();
        target.read(round).map(|sample| (ns, sample))
    };
    targets.filter_map(read).collect()
}

/// Ticks each second, at its own phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecondTicker {
    /// The trial's clock.
    pub clock: TrialClock,
    phase_ns: u64,
}

impl SecondTicker {
    /// Calls at once, then each second at its phase, and once more when stopped.
    pub fn each(self, stop: &Cancel, call: &mut dyn FnMut()) {
        let shifted = TrialClock { origin_ns: self.clock.origin_ns + self.phase_ns };
        call();
        // A call longer than a second skips the ticks it overlaps.
        let mut due_ns = shifted.next_tick(clock::now_ns(), SECOND_NS).1;
        while !stop.wait_until(due_ns) {
            call();
            due_ns = shifted.next_tick(clock::now_ns().max(due_ns + 1), SECOND_NS).1;
        }
        call();
    }
}

fn watch_probe(probe: &Probe, ticker: SecondTicker, stop: &Cancel, emit: &Emit) {
    let mut failing: Option<String> = None;
    ticker.each(stop, &mut || {
        let mut sample = Sample {
            at_s: ticker.clock.at_s(clock::now_ns()),
            component: PROBES.into(),
            ..Sample::default()
        };
        match probe.read(&mut || stop.is_cancelled()) {
            Ok(value) => {
                failing = None;
                sample.probes.insert(probe.name().to_owned(), value);
                emit(WatchEvent::Samples(vec![sample]));
            }
            Err(_) if stop.is_cancelled() => {}
            Err(error) => {
                // The record gets it each time; it is reported only once while it fails in the same way.
                let text = error.to_string();
                sample.probes_failed.insert(probe.name().to_owned(), text.clone());
                emit(WatchEvent::Samples(vec![sample]));
                if failing.as_ref() != Some(&text) {
                    emit(WatchEvent::Note(text.clone()));
                    failing = Some(text);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Resource, Rlimit};

    use super::*;
    use crate::process::ProcessId;

    #[test]
    fn another_limit_leaves_the_processes_known() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        let mut turns = TargetTurns::of(vec![Target::process_tree("web", process)]);
        let pids = |turns: &TargetTurns| turns.targets[0].members().pids;
        // Only a reading finds them.
        assert_eq!(pids(&turns), [0u32; 0]);
        assert!(turns.targets[0].read_now().is_some());
        let most = Rlimit { current: Some(64), maximum: Some(64) };
        rustix::process::prlimit(Pid::from_raw(process.pid as i32), Resource::Nofile, most).unwrap();
        turns.set_limits("web", Some(7));
        turns.set_limits("db", Some(9));
        assert_eq!(pids(&turns), [process.pid]);
        let sample = turns.targets[0].read_now().unwrap();
        assert_eq!(sample.memory_limit_bytes, Some(7));
        // The limit on open files is not read each time, but now it is.
        assert_eq!(sample.open_files_share, sample.open_files.map(|open| open as f64 / 64.0));
        assert!(sample.open_files_share > Some(0.0), "{sample:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
