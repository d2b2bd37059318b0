//! After the loads: waits until the work is done, reads probes one last time, determines what was lost, and runs the
//! plan's commands.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::Loss;
use loadlab_record::watch::names::PROBES;
use loadlab_record::watch::sample::Sample;
use loadlab_system::{Notice, Probe, UNHURRIED_READ_TIMEOUT_NS, WatchEvent, clock, drain};

use crate::event::RunEvent;
use crate::running_system::{RunningSystem, durability};
use crate::state::{AbortReason, EventSink, TrialState};
use crate::trial::Trial;
use crate::trial::live_numbers::LiveNumbers;
use crate::trial::measurements::TrialMeasurements;
use crate::trial::prepare::PreparedTrial;

impl Trial<'_> {
    /// Waits until the plan's drain condition holds. Returns how many seconds after the end of the loads that was; `None`
    /// if the plan has no condition or its deadline passed, which the event reports.
    pub(super) fn drain(
        &self,
        state: &TrialState,
        ready: &PreparedTrial,
        measured: &TrialMeasurements,
        emit: EventSink<'_>,
        notices: &Mutex<Receiver<Notice>>,
    ) -> Option<f64> {
        let (planned, until) = (self.case.drain.as_ref()?, self.conditions.drain.as_ref()?);
        let text = until.to_string();
        if state.must_end() {
            return None;
        }
        state.record_event(EventKind::DrainStarted { until: text.clone() });
        emit(RunEvent::Draining { until: text });
        let summary = self.sum_up(state, ready, measured, None, so_far(state, ready));
        let mut done = || {
            state.handle_notices(notices, emit);
            if state.must_end() {
                return Some(true);
            }
            for probe in &ready.probes {
                match probe.read(&mut || state.must_end()) {
                    Ok(value) => state.add_reading(probe.name(), value),
                    Err(error) => state.add_failed_reading(probe.name(), &error.to_string()),
                }
            }
            let readings = state.readings();
            until.evaluate(&LiveNumbers { summary: &summary, readings: &readings }).holds
        };
        let drained = drain(&mut done, planned.at_most_ns, &state.cancel);
        let took_s = clock::now_ns().saturating_sub(measured.ended_ns) as f64 / 1e9;
        let done = drained && !state.must_end();
        state.record_event(EventKind::Drained { took_s, done });
        emit(RunEvent::Drained { took_s, done });
        done.then_some(took_s)
    }

    /// What was accepted but is not stored. `None` if the plan does not measure that, or it cannot be determined.
    pub(super) fn compare(
        &self,
        state: &TrialState,
        ready: &PreparedTrial,
        measured: &TrialMeasurements,
    ) -> Option<Loss> {
        let persisted = ready.persisted.as_ref()?;
        if state.must_end() {
            return None;
        }
        match durability::compare(persisted, state, self.ids, &measured.counts()) {
            Ok(loss) => Some(loss),
            Err(_) if state.must_end() => None,
            Err(why) => {
                let text = format!("durability: cannot read what was stored: {why}");
                state.record_event(EventKind::Failed { text: text.clone() });
                state.abort(AbortReason::Command(text));
                None
            }
        }
    }

    /// Runs the plan's commands after the load. After a failed trial they may find nothing to work on and fail; after
    /// an interrupt they are stopped at once.
    pub(super) fn after(&self, running: &RunningSystem, state: &TrialState, emit: EventSink<'_>) {
        if state.cancel.is_cancelled() {
            return;
        }
        if let Err(error) =
            running.run_commands("after_trial", &self.case.system.after_trial, &self.case.dir, state, emit)
        {
            if state.cancel.is_cancelled() {
                return;
            }
            state.record_event(EventKind::Failed { text: error.to_string() });
            state.abort(AbortReason::Command(error.to_string()));
        }
    }
}

/// What is known about the loss before draining ends: everything that was accepted may still be lost.
fn so_far(state: &TrialState, ready: &PreparedTrial) -> Option<Loss> {
    ready.persisted.as_ref()?;
    let sent = state.sent_ids().ok().filter(|s| !s.accepted.is_empty())?;
    let accepted = sent.accepted.len();
    Some(Loss { accepted, unanswered: sent.unanswered.len(), lost_max: accepted, ..Loss::default() })
}

/// Reads every probe one last time: expectations about probes refer to the end, and the watcher's last reading may be a
/// second old.
pub(super) fn read_last(state: &TrialState, probes: &[Probe]) {
    let (mut readings, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for probe in probes {
        if state.must_end() {
            return;
        }
        match probe.read_within(UNHURRIED_READ_TIMEOUT_NS, &mut || state.must_end()) {
            Ok(value) => drop(readings.insert(probe.name().to_owned(), value)),
            Err(error) => {
                failed.insert(probe.name().to_owned(), error.to_string());
                state.record_note(format!("no final reading: {error}"));
            }
        }
    }
    if !readings.is_empty() || !failed.is_empty() {
        let (at_s, component) = (state.now_s(), PROBES.to_owned());
        let sample = Sample { at_s, component, probes: readings, probes_failed: failed, ..Sample::default() };
        state.take_watch_event(WatchEvent::Samples(vec![sample]));
    }
}
