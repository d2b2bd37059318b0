//! Runs the loads of a trial side by side, each from its own start and batch by batch, and the plan's events meanwhile.

use loadlab_load::run::Origin;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::Ended;
use loadlab_record::sync::lock;
use loadlab_system::{Cancel, clock};

use crate::event::RunEvent;
use crate::running_system::Changed;
use crate::senders::{RemoteLoad, Senders};
use crate::state::{AbortReason, TrialState};
use crate::trial::actions::TrialContext;
use crate::trial::measure::{LEAD_NS, LoadRequest, MeasuredLoad, measure};
use crate::trial::measurements::TrialMeasurements;
use crate::trial::prepare::{LoadSource, PreparedLoad, PreparedTrial};
use crate::trial::program::ProgramRequest;
use crate::trial::{Conditions, Trial};

impl Trial<'_> {
    /// Runs all loads, and carries out the plan's events meanwhile.
    pub(super) fn load_and_act(
        &self,
        context: &TrialContext<'_>,
        ready: &PreparedTrial,
    ) -> (TrialMeasurements, Changed) {
        let state = context.state;
        let load = || {
            let measured = load_all(self.conditions, ready, context);
            TrialMeasurements { ended_ns: clock::now_ns(), ..measured }
        };
        if self.case.events.is_empty() {
            return (load(), Changed::new());
        }
        let over = Cancel::new();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("loadlab-events".into());
            let acting = thread.spawn_scoped(scope, || context.carry_out(&self.case.events, &over));
            let acting = acting.map_err(|error| {
                state.abort(AbortReason::Load(format!(
                    "cannot start a thread for the plan's events: {error}"
                )));
            });
            let measured = load();
            over.cancel();
            let changed = acting.map(|thread| joined(thread.join(), "the one for the plan's events", state));
            (measured, changed.unwrap_or_default())
        })
    }
}

/// Runs all loads of the case, each from its own start, with its batches. A single load runs on this thread.
fn load_all(conditions: &Conditions, ready: &PreparedTrial, context: &TrialContext<'_>) -> TrialMeasurements {
    let one = |load| batches(conditions, load, context);
    let done: Vec<Vec<MeasuredLoad>> = match ready.loads.as_slice() {
        [load] => vec![one(load)],
        loads => std::thread::scope(|scope| {
            let threads: Vec<_> = loads.iter().map(|load| scope.spawn(move || one(load))).collect();
            let of = |load: &PreparedLoad| format!("the one for load `{}`", load.name());
            let ends = threads.into_iter().zip(loads);
            ends.map(|(thread, load)| joined(thread.join(), &of(load), context.state)).collect()
        }),
    };
    let mut measured = TrialMeasurements::default();
    for batches in done {
        measured.merge_concurrent(TrialMeasurements::of_batches(batches));
    }
    measured
}

/// The result of one of our threads. A thread that panicked did only part of its work: this must not look as if there
/// had been nothing to do.
fn joined<T: Default>(ended: std::thread::Result<T>, which: &str, state: &TrialState) -> T {
    ended.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
        state.abort(AbortReason::Load(format!("a thread of loadlab failed ({which}): {text}")));
        T::default()
    })
}

/// Runs a load repeatedly against the running system, with pauses in between.
fn batches(conditions: &Conditions, load: &PreparedLoad, context: &TrialContext<'_>) -> Vec<MeasuredLoad> {
    let &TrialContext { running, state, emit, zero_ns, senders, .. } = context;
    // While nothing is sent, deaths are noticed here.
    let wait = |until_ns: u64| {
        state.wait_until(until_ns, &state.cancel, || state.handle_notices(&running.notices, emit))
    };
    let mut done = Vec::new();
    let mut start_ns = zero_ns.saturating_add(load.start_ns);
    let ahead_ns = LEAD_NS + senders.map_or(0, Senders::lead_ns);
    if load.start_ns > 0 && wait(start_ns.saturating_sub(ahead_ns)) {
        return done;
    }
    for batch in 0..load.batches {
        let name = load.name().to_owned();
        state.record_event_at(start_ns, EventKind::LoadStarted { load: name.clone(), batch });
        emit(RunEvent::LoadStarted {
            load: name.clone(),
            batch: (batch, load.batches),
            planned_s: load.planned_s,
            // Of sessions the number is of users.
            planned_requests: load.facts.requests.filter(|_| !load.facts.sessions),
        });
        let first_id = load.first_ids.get(batch as usize).copied().unwrap_or(0);
        let origin = Origin { start_ns, zero_ns, batch, first_id };
        let Some(measured) = one_batch(conditions, load, origin, context) else { break };
        let how = measured.how.clone();
        state.record_event(EventKind::LoadEnded { load: name.clone(), batch, how: how.clone() });
        emit(RunEvent::LoadEnded { load: name, how });
        let complete = measured.ended == Ended::Complete;
        done.push(measured);
        let pause_to_ns = clock::now_ns().saturating_add(load.pause_ns);
        if !complete || batch + 1 == load.batches || wait(pause_to_ns) {
            break;
        }
        if let Some((senders, remote)) = senders.zip(load.remote.as_ref()) {
            let first_id = load.first_ids.get(batch as usize + 1).copied().unwrap_or(0);
            let next = RemoteLoad { first_id, ..remote.load.clone() };
            match senders.prepare(&next, &|| state.must_end()) {
                Ok(prepared) => *lock(&remote.ready) = Some(prepared),
                Err(why) => {
                    state.abort(AbortReason::Load(why));
                    break;
                }
            }
        }
        start_ns = clock::now_ns() + ahead_ns;
    }
    done
}

/// Runs one batch of a load.
fn one_batch(
    conditions: &Conditions,
    load: &PreparedLoad,
    origin: Origin,
    context: &TrialContext<'_>,
) -> Option<MeasuredLoad> {
    let (facts, stop_when) = (&load.facts, conditions.stop_when.as_slice());
    match &load.sends {
        LoadSource::Requests(spec) => {
            let (expect, is_warmup_found) = (conditions.expect.as_slice(), load.is_warmup_found);
            let figures = conditions.figures.as_slice();
            let has_viewer = conditions.has_viewer;
            let remote = load.remote.as_ref();
            let senders = remote.and_then(|r| lock(&r.ready).take());
            let request = LoadRequest {
                spec,
                facts,
                stop_when,
                expect,
                figures,
                has_viewer,
                is_warmup_found,
                origin,
                senders: senders.as_deref(),
            };
            measure(&request, context.state, Some(&context.running.notices), context.emit)
        }
        LoadSource::Program(program) => {
            let shown = (conditions.figures.as_slice(), conditions.has_viewer);
            ProgramRequest { program, facts, stop_when, shown, origin }.measure(context)
        }
    }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::Exit;
    use loadlab_record::Secrets;

    use super::*;

    #[test]
    fn a_thread_that_panicked_aborts_the_trial() {
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        assert_eq!(joined(Ok(7), "this one", &state), 7);
        assert!(state.abort_reason().is_none() && !state.must_end());
        let ended = std::thread::spawn(|| -> u32 { panic!("no {}", "way") }).join();
        assert_eq!(joined(ended, "the one for load `a`", &state), 0);
        let trouble = state.abort_reason().expect("it is reported");
        assert_eq!(trouble.describe(), "a thread of loadlab failed (the one for load `a`): no way");
        assert!(state.must_end() && trouble.exit() == Exit::CouldNotRun);
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        let ended = std::thread::spawn(|| -> u32 { panic!("in plain words") }).join();
        assert_eq!(joined(ended, "this one", &state), 0);
        assert!(state.abort_reason().expect("it is reported").describe().ends_with(": in plain words"));
    }
}
