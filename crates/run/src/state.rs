//! The state of a trial in progress: its record, what was observed, and what ends it early. Shared by the load and
//! watcher threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard};

use loadlab_analysis::Exit;
use loadlab_record::Secrets;
use loadlab_record::counts::ids::{IdLine, SentIds};
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::summary::Ended;
use loadlab_record::store::{StoreError, TrialWriter};
use loadlab_record::sync::lock;
use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::packed_samples::{Packer, Position};
use loadlab_record::watch::profile::Profile;
use loadlab_record::watch::sample::Sample;
use loadlab_system::{Cancel, Component, Notice, ProcessId, TrialClock, WatchEvent, clock};

use crate::event::RunEvent;
use crate::readings::Readings;

/// Receives events. Called from several threads.
pub type EventSink<'a> = &'a (dyn Fn(RunEvent) + Sync);

/// How often to check while waiting whether the trial must end.
const POLL_INTERVAL_NS: u64 = 100_000_000;

/// A trial in progress.
pub struct TrialState {
    /// Its record; `None` if nothing is recorded.
    pub writer: Option<TrialWriter>,
    /// Cancelled by Ctrl-C.
    pub cancel: Cancel,
    /// Values to mask in everything recorded or reported here.
    pub secrets: Secrets,
    seen: Mutex<Observed>,
    is_aborted: AtomicBool,
    /// Whether an event of the plan has taken a component away, if only for a moment.
    is_disturbed: AtomicBool,
    /// Whether a load of the trial has had a connection.
    was_connected: AtomicBool,
}

/// What was observed during a trial.
#[derive(Default)]
struct Observed {
    clock: Option<TrialClock>,
    /// Events with their times, held until the clock's zero is known.
    waiting: Vec<(u64, EventKind)>,
    events: Vec<Event>,
    samples: Packer,
    evidence: Vec<Evidence>,
    /// Position behind the samples that were reported.
    reported: Position,
    readings: Readings,
    /// Reported number of OOM kills, by component.
    kills: HashMap<ProcessId, u64>,
    /// Processes whose death aborts this trial. Any other death came before the trial or is one we caused.
    vital_processes: Vec<ProcessId>,
    abort_reason: Option<AbortReason>,
    /// Set if the record could not be written, even if something else came first.
    unwritten: Option<Arc<StoreError>>,
}

/// Samples and events of a trial in progress, as far as they were collected.
#[derive(Debug, Default)]
pub struct Collected {
    /// The samples, in order of arrival.
    pub samples: Vec<Sample>,
    /// The events, in order of arrival.
    pub events: Vec<Event>,
    position: Position,
}

/// Why a trial ended early.
#[derive(Clone, Debug)]
pub enum AbortReason {
    /// A component died.
    Died {
        /// Name of the component.
        component: String,
        /// Its exit status, in words.
        status: String,
    },
    /// The record cannot be written.
    Store(Arc<StoreError>),
    /// The target could not be reached.
    Unreachable(String),
    /// The load threads failed.
    Load(String),
    /// A command of the plan failed.
    Command(String),
}

impl TrialState {
    /// A trial in which nothing has happened yet.
    pub fn new(writer: Option<TrialWriter>, cancel: Cancel, secrets: Secrets) -> Self {
        TrialState {
            writer,
            cancel,
            secrets,
            seen: Mutex::default(),
            is_aborted: AtomicBool::new(false),
            is_disturbed: AtomicBool::new(false),
            was_connected: AtomicBool::new(false),
        }
    }

    /// The state for what is taken down before this trial begins: in its record, an end would make a restart of the
    /// beginning.
    pub fn aside(&self) -> TrialState {
        TrialState::new(None, self.cancel.clone(), self.secrets.clone())
    }

    fn seen(&self) -> MutexGuard<'_, Observed> {
        // A panic elsewhere must not hide what was observed before it.
        lock(&self.seen)
    }

    /// Sets the trial's clock to zero at `origin_ns`; earlier events get negative times.
    pub fn set_clock(&self, origin_ns: u64) {
        let waiting = {
            let mut seen = self.seen();
            seen.clock = Some(TrialClock { origin_ns });
            std::mem::take(&mut seen.waiting)
        };
        for (at_ns, what) in waiting {
            self.record_event_at(at_ns, what);
        }
    }

    /// Sets the trial's clock to zero now, if it is not set yet.
    pub fn ensure_clock(&self) {
        if self.seen().clock.is_none() {
            self.set_clock(clock::now_ns());
        }
    }

    /// An event of the plan takes a component away: from now on, a target that refuses is what the plan asked for.
    pub fn disturb(&self) {
        self.is_disturbed.store(true, Ordering::Relaxed);
    }

    /// A load of the trial has connected to its target.
    pub fn connected(&self) {
        self.was_connected.store(true, Ordering::Relaxed);
    }

    /// Whether a target that refuses connections is what the plan asked for: it was there, until an event took a
    /// component away.
    pub fn expects_refusal(&self) -> bool {
        self.is_disturbed.load(Ordering::Relaxed) && self.was_connected.load(Ordering::Relaxed)
    }

    /// Records an event that happened now.
    pub fn record_event(&self, what: EventKind) {
        self.record_event_at(clock::now_ns(), what);
    }

    /// Records a note.
    pub fn record_note(&self, text: String) {
        self.record_event(EventKind::Note { text });
    }

    /// Records a note, and shows it while the run goes on.
    pub fn record_and_show(&self, text: String, emit: EventSink<'_>) {
        emit(RunEvent::Note(text.clone()));
        self.record_note(text);
    }

    /// Records an event that happened at `at_ns`, on the clock of [`clock::now_ns`].
    pub fn record_event_at(&self, at_ns: u64, what: EventKind) {
        let withheld =
            || EventKind::Failed { text: "an event could not be masked, so it is not recorded".to_owned() };
        let what = self.secrets.mask_value(what).unwrap_or_else(withheld);
        let event = {
            let mut seen = self.seen();
            let Some(clock) = seen.clock else { return seen.waiting.push((at_ns, what)) };
            let event = Event { at_s: clock.at_s(at_ns), what };
            seen.events.push(event.clone());
            event
        };
        self.write(|w| w.event(&event));
    }

    /// Writes to the record; a failure aborts the trial.
    pub fn write(&self, write: impl FnOnce(&TrialWriter) -> Result<(), StoreError>) {
        if let Some(Err(error)) = self.writer.as_ref().map(write) {
            let error = Arc::new(error);
            self.seen().unwritten.get_or_insert(error.clone());
            self.abort(AbortReason::Store(error));
        }
    }

    /// The error, if the record could not be written: then no further trial should start.
    pub fn unwritten(&self) -> Option<Arc<StoreError>> {
        self.seen().unwritten.clone()
    }

    /// From now on, this process's death aborts the trial.
    pub fn abort_on_death(&self, process: ProcessId) {
        self.seen().vital_processes.push(process);
    }

    /// Ends the trial early. Only the first reason is kept.
    pub fn abort(&self, reason: AbortReason) {
        let reason = reason.masked(&self.secrets);
        self.seen().abort_reason.get_or_insert(reason);
        self.is_aborted.store(true, Ordering::Release);
    }

    /// Why the trial ended early, if it did.
    pub fn abort_reason(&self) -> Option<AbortReason> {
        self.seen().abort_reason.clone()
    }

    /// How a load of this trial ended, and the same in words; `condition` is the one that stopped it, if one did.
    pub fn how_load_ended(&self, condition: Option<&str>) -> (Ended, String) {
        match (condition, self.abort_reason()) {
            _ if self.cancel.is_cancelled() => (Ended::Interrupted, "interrupted".to_owned()),
            (_, Some(reason)) => (Ended::Broken, reason.describe()),
            (Some(condition), None) => (Ended::Stopped, format!("stopped: {condition}")),
            (None, None) => (Ended::Complete, "complete".to_owned()),
        }
    }

    /// Whether the load must end now.
    pub fn must_end(&self) -> bool {
        self.is_aborted.load(Ordering::Acquire) || self.cancel.is_cancelled()
    }

    /// Waits until `until_ns`, and calls `meanwhile` ten times a second. Returns true if the load must end, or `over` is
    /// cancelled, first.
    pub fn wait_until(&self, until_ns: u64, over: &Cancel, meanwhile: impl Fn()) -> bool {
        loop {
            meanwhile();
            let now_ns = clock::now_ns();
            if self.must_end() || over.is_cancelled() {
                return true;
            }
            if now_ns >= until_ns {
                return false;
            }
            over.wait_until(until_ns.min(now_ns + POLL_INTERVAL_NS));
        }
    }

    /// Takes in what the watcher read.
    pub fn take_watch_event(&self, watched: WatchEvent) {
        match watched {
            WatchEvent::Samples(samples) => {
                let samples = self.secrets.mask_value(samples).unwrap_or_default();
                self.write(|w| w.samples(&samples));
                let mut seen = self.seen();
                let now_ns = clock::now_ns();
                for sample in &samples {
                    for (probe, value) in &sample.probes {
                        seen.readings.add(probe, now_ns, *value);
                    }
                    for (probe, why) in &sample.probes_failed {
                        seen.readings.fail(probe, why);
                    }
                }
                samples.into_iter().for_each(|sample| seen.samples.pack(sample));
            }
            WatchEvent::Evidence(evidence) => {
                let Some(evidence) = self.secrets.mask_value(*evidence) else { return };
                self.write(|w| w.evidence(&evidence));
                self.seen().evidence.push(evidence);
            }
            WatchEvent::Note(text) => {
                self.record_note(text);
            }
        }
    }

    /// Records the sampled stacks.
    pub fn record_profile(&self, profile: &Profile) {
        for what in &profile.not_seen {
            self.record_note(format!("profile: not sampled: {what}"));
        }
        self.write(|w| w.profile(profile));
    }

    /// Handles notices from the system; a death ends the trial.
    pub fn handle_notices(&self, notices: &Mutex<Receiver<Notice>>, emit: EventSink<'_>) {
        let Ok(receiver) = notices.try_lock() else { return };
        while let Ok(notice) = receiver.try_recv() {
            match notice {
                Notice::Died { component, .. }
                    if !self.seen().vital_processes.contains(&component.process()) => {}
                Notice::Died { component, status, at_ns } => {
                    if status.out_of_memory.is_some() {
                        self.out_of_memory(&component, at_ns);
                    }
                    let (component, status) = (component.name().to_owned(), status.to_string());
                    self.record_event_at(
                        at_ns,
                        EventKind::Died { component: component.clone(), status: status.clone() },
                    );
                    emit(RunEvent::Died { component: component.clone(), status: status.clone() });
                    self.abort(AbortReason::Died { component, status });
                }
                Notice::OutOfMemory { component, kills, at_ns } => {
                    let text = format!(
                        "the kernel killed processes of `{}` for memory ({kills} so far)",
                        component.name()
                    );
                    self.out_of_memory(&component, at_ns);
                    emit(RunEvent::Note(text));
                }
                Notice::LogCut { component, path, at_ns } => {
                    let text = format!(
                        "log {} of `{}` grew too large and was truncated",
                        path.display(),
                        component.name()
                    );
                    self.record_event_at(at_ns, EventKind::Note { text: text.clone() });
                    emit(RunEvent::Note(text));
                }
                _ => {}
            }
        }
        self.emit_samples(emit);
    }

    /// Reports the samples taken since the last call. The watcher thread itself must not wait for receivers.
    fn emit_samples(&self, emit: EventSink<'_>) {
        let mut new = Vec::new();
        {
            let Observed { samples, reported, .. } = &mut *self.seen();
            samples.so_far().unpack_after(reported, &mut new);
        }
        if !new.is_empty() {
            emit(RunEvent::Watched(new));
        }
    }

    fn out_of_memory(&self, component: &Component, at_ns: u64) {
        let kills = component.oom_kills().unwrap_or(0);
        // A kill may be noticed by its count and, a moment later, by the death it caused.
        let reported = self.seen().kills.insert(component.process(), kills);
        if reported.is_some_and(|reported| reported >= kills) {
            return;
        }
        let limit_bytes = component.limits().memory_bytes;
        self.record_event_at(
            at_ns,
            EventKind::OutOfMemory { component: component.name().to_owned(), kills, limit_bytes },
        );
    }

    /// Registers a relay started before its component: its exit aborts the trial just as the component's would.
    pub fn record_relay(&self, relay: &Component) {
        self.abort_on_death(relay.process());
        self.record_event(EventKind::Up {
            component: relay.name().to_owned(),
            pid: Some(relay.process().pid),
        });
    }

    /// Records the limits of a component that the kernel enforces now.
    pub fn record_limits(&self, component: &Component) {
        let limits = component.limits_in_force();
        if !limits.is_empty() {
            self.record_event(EventKind::Limited { component: component.name().to_owned(), limits });
        }
    }

    /// Records the ids of requests that ended in a given second. Without a record they are not needed.
    pub fn record_ids(&self, line: &IdLine) {
        self.write(|w| w.ids(line));
    }

    /// All ids recorded so far.
    ///
    /// # Errors
    /// The ids cannot be read back; the reason in words.
    pub fn sent_ids(&self) -> Result<SentIds, String> {
        match &self.writer {
            Some(writer) => writer.sent_ids().map_err(|e| e.to_string()),
            None => Ok(SentIds::default()),
        }
    }

    /// Records that a manual reading of a probe failed.
    pub fn add_failed_reading(&self, probe: &str, why: &str) {
        self.seen().readings.fail(probe, why);
    }

    /// Probe readings so far.
    pub fn readings(&self) -> Readings {
        self.seen().readings.clone()
    }

    /// Adds a manual reading of a probe.
    pub fn add_reading(&self, probe: &str, value: f64) {
        self.seen().readings.add(probe, clock::now_ns(), value);
    }

    /// The current time on the trial's clock; 0 before it is set.
    pub fn now_s(&self) -> f64 {
        self.seen().clock.map_or(0.0, |clock| clock.at_s(clock::now_ns()))
    }

    /// Appends the samples and events that arrived since the last call with the same collection.
    pub fn collect_into(&self, collected: &mut Collected) {
        let Collected { samples, events, position } = collected;
        let seen = self.seen();
        seen.samples.so_far().unpack_after(position, samples);
        events.extend_from_slice(seen.events.get(events.len()..).unwrap_or_default());
    }

    /// The evidence about connections and threads so far.
    pub fn evidence(&self) -> Vec<Evidence> {
        self.seen().evidence.clone()
    }

    /// All samples and events so far.
    pub fn collected(&self) -> (Vec<Sample>, Vec<Event>) {
        let seen = self.seen();
        (seen.samples.so_far().unpacked(), seen.events.clone())
    }
}

impl AbortReason {
    /// The exit code this reason calls for.
    pub fn exit(&self) -> Exit {
        match self {
            AbortReason::Died { .. } => Exit::Failed,
            AbortReason::Store(_) | AbortReason::Unreachable(_) | AbortReason::Load(_) => Exit::CouldNotRun,
            AbortReason::Command(_) => Exit::NotUp,
        }
    }

    /// This reason with secrets masked. Errors of the record's files contain none.
    fn masked(self, secrets: &Secrets) -> AbortReason {
        let text = |text: String| secrets.mask(&text).into_owned();
        match self {
            AbortReason::Died { component, status } => {
                AbortReason::Died { component: text(component), status: text(status) }
            }
            AbortReason::Store(error) => AbortReason::Store(error),
            AbortReason::Unreachable(why) => AbortReason::Unreachable(text(why)),
            AbortReason::Load(why) => AbortReason::Load(text(why)),
            AbortReason::Command(why) => AbortReason::Command(text(why)),
        }
    }

    /// The reason in words, for the record and the user.
    pub fn describe(&self) -> String {
        match self {
            AbortReason::Died { component, status } => format!("component `{component}` died: {status}"),
            AbortReason::Store(error) => error.to_string(),
            AbortReason::Unreachable(text) | AbortReason::Load(text) | AbortReason::Command(text) => {
                text.clone()
            }
        }
    }
}
