//! One trial: bring up, load, drain, summarise, take down.

mod actions;
pub mod carryover;
mod drain;
pub mod facts;
mod live_numbers;
mod loads;
pub mod measure;
mod measurements;
mod prepare;
mod program;
mod running_load;
mod setup;
mod shown;
mod sum_up;
mod watching;

use std::path::Path;
use std::sync::Arc;

use loadlab_analysis::Exit;
use loadlab_load::resident;
use loadlab_load::target::Allowed;
use loadlab_plan::{self as plan, Case};
use loadlab_record::Secrets;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::Summary;
use loadlab_record::expr::{Expr, Figure};
use loadlab_system::{Profiler, Watcher, clock};

use crate::ids::Ids;
use crate::level::Level;
use crate::options::Generator;
use crate::result::Trouble;
use crate::running_system::RunningSystem;
use crate::running_system::error::BringUpError;
use crate::senders::Senders;
use crate::state::{AbortReason, EventSink, TrialState};
use crate::translate::hosts;
use crate::trial::actions::TrialContext;
use crate::trial::carryover::Carried;
use crate::trial::drain::read_last;
use crate::trial::measure::LEAD_NS;
use crate::trial::prepare::{PreparedTrial, together};
use crate::trial::watching::Watching;
use crate::unanswered::unanswered;
use crate::watch::Watch;

/// The parsed conditions of a case.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Expectations that must hold.
    pub expect: Vec<Expr>,
    /// A load ends when any of these holds.
    pub stop_when: Vec<Expr>,
    /// The work is done when this holds.
    pub drain: Option<Expr>,
    /// The expectations a level must meet, if the trials search.
    pub find: Vec<Expr>,
    /// The figures that matter; each is computed from numbers alone.
    pub figures: Vec<Figure>,
    /// Someone is watching, so figures are reported while loads run.
    pub has_viewer: bool,
}

impl Conditions {
    /// The conditions for a level of a search.
    pub fn of_levels(&self) -> Conditions {
        Conditions { expect: self.find.clone(), find: Vec::new(), ..self.clone() }
    }
}

/// A trial, with everything it needs.
pub struct Trial<'a> {
    /// Index of its case.
    pub index: usize,
    /// Index of the trial among the run's trials.
    pub place: usize,
    /// How request ids are assigned.
    pub ids: Ids,
    /// Its case.
    pub case: &'a Case,
    /// The case's conditions.
    pub conditions: &'a Conditions,
    /// The plan's folder.
    pub plan_dir: &'a Path,
    /// Where loads may go.
    pub allowed: &'a Allowed,
    /// Number of load threads, if the plan does not specify it.
    pub threads: usize,
    /// Where and how these threads run.
    pub generator: &'a Generator,
    /// The processes that send its loads, if not this one.
    pub senders: Option<&'a dyn Senders>,
    /// The level of a search that its case is run at.
    pub level: Option<&'a Level>,
    /// Connections and readings carried over from earlier trials of a search.
    pub carried: Option<&'a Carried>,
    /// What to watch if the plan names no components.
    pub watch: &'a Watch,
    /// Actions that undo what the trial's events changed; carried out when its loads are over, however they ended.
    pub restore: &'a [plan::EventSpec],
}

/// The outcome of a trial.
pub struct TrialOutcome {
    /// Its measurements, if it got that far.
    pub summary: Option<Summary>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The exit code this calls for.
    pub exit: Exit,
}

impl TrialOutcome {
    /// This outcome with secrets masked.
    pub fn masked(self, secrets: &Secrets) -> TrialOutcome {
        let summary = self.summary.and_then(|summary| secrets.mask_value(summary));
        TrialOutcome { summary, failure: self.failure.map(|f| secrets.mask(&f).into_owned()), ..self }
    }

    /// Adds later failures: with one a trial that went well has failed, and it contributes to the exit code of one that did not.
    pub fn add_failures(&mut self, troubles: impl IntoIterator<Item = Trouble>) {
        for Trouble { why, exit } in troubles {
            self.failure.get_or_insert(why);
            self.exit = Exit::of([self.exit, exit]);
        }
    }
}

impl Trial<'_> {
    /// Runs the whole trial. The caller takes down what is up.
    pub fn run(
        &self,
        running: &mut RunningSystem,
        state: &Arc<TrialState>,
        emit: EventSink<'_>,
    ) -> TrialOutcome {
        let ready = self.prepare(running, state, emit);
        state.handle_notices(&running.notices, emit);
        match (ready, state.abort_reason()) {
            (Ok(_), _) if state.cancel.is_cancelled() => self.fail_before_load(
                &BringUpError::BeforeLoad("interrupted before the load began".into()),
                state,
            ),
            (Ok(ready), None) => self.go(running, state, emit, &ready),
            (Ok(_), Some(trouble)) => {
                self.fail_before_load(&BringUpError::BeforeLoad(before_load(&trouble)), state)
            }
            // If a command failed because a component had died, the death explains it.
            (Err(error), Some(trouble)) => {
                let text = format!("{}\nthen: {error}", before_load(&trouble));
                self.fail_before_load(&BringUpError::BeforeLoad(text), state)
            }
            (Err(error), None) => self.fail_before_load(&error, state),
        }
    }

    fn fail_before_load(&self, error: &BringUpError, state: &TrialState) -> TrialOutcome {
        let text = error.to_string();
        state.ensure_clock();
        state.record_event(EventKind::Failed { text: text.clone() });
        let exit = match (error, state.abort_reason()) {
            _ if state.cancel.is_cancelled() => Exit::Interrupted,
            (_, Some(AbortReason::Store(_) | AbortReason::Load(_))) => Exit::CouldNotRun,
            (BringUpError::Translate(e), _) if e.is_target() => Exit::CouldNotRun,
            (BringUpError::Translate(_), _) => Exit::BadPlan,
            _ => Exit::NotUp,
        };
        TrialOutcome { summary: None, failure: Some(text), exit }
    }

    /// Runs the loads, drains and summarises.
    fn go(
        &self,
        running: &mut RunningSystem,
        state: &Arc<TrialState>,
        emit: EventSink<'_>,
        ready: &PreparedTrial,
    ) -> TrialOutcome {
        if let Some(carried) = self.carried {
            carried.trim(self.case);
        }
        if let Err(why) = self.get_senders_ready(ready, state) {
            state.abort(AbortReason::Load(why.clone()));
            return self.fail_before_load(&BringUpError::BeforeLoad(why), state);
        }
        let idle = self.read_idle(running, ready);
        // Bringing a system up takes code that its load does not.
        resident::leave_start_behind();
        let mut zero_ns = clock::now_ns() + 2 * LEAD_NS + self.senders.map_or(0, Senders::lead_ns);
        if let Some(carried) = self.carried {
            carried.note(&idle.readings);
            zero_ns += carried.takes_ns();
        }
        state.set_clock(zero_ns);
        state.record_event_at(zero_ns, EventKind::Planned { load: Box::new(together(&ready.loads)) });
        let Watching { mut watcher, profiler } = self.start_watching(running, idle, state, ready, zero_ns);
        let (watcher_of, senders) = (watcher.as_ref(), self.senders);
        let levers = (self.case.levers.as_slice(), self.case.dir.as_str());
        let context =
            TrialContext { running: &*running, state, emit, watcher: watcher_of, zero_ns, senders, levers };
        let (measured, changed) = self.load_and_act(&context, ready);
        let samples = profiler.map(Profiler::stop);
        context.restore(self.restore);
        // Resource use of the load is counted up to here, before anything else happens.
        if let Some(Err(error)) = watcher.as_mut().map(Watcher::read_all) {
            state.record_note(format!("no samples at the end of the load: {error}"));
        }
        running.take_changed(changed);
        let drained_s = self.drain(state, ready, &measured, emit, &running.notices);
        drop(watcher);
        // Not until the work is done: this takes a while and uses CPU time.
        if let Some(samples) = samples {
            running.function_lists.sampled(samples.processes(), state);
            state.record_profile(&samples.named());
        }
        ready.names.moved().into_iter().for_each(|moved| state.record_event(hosts::name_moved(moved)));
        running.report_escaped(state, emit);
        running.externals.check_ended(state, emit);
        read_last(state, &ready.probes);
        let loss = self.compare(state, ready, &measured);
        self.after(running, state, emit);
        state.handle_notices(&running.notices, emit);
        let summary = self.sum_up(state, ready, &measured, drained_s, loss);
        state.write(|w| w.summary(&summary));
        let trouble = state.abort_reason();
        let unwritten = state.unwritten();
        let lost = unwritten.as_ref().map(|_| Exit::CouldNotRun);
        let exits = [Some(Exit::of_summary(&summary)), trouble.as_ref().map(AbortReason::exit), lost];
        let failure = trouble.map(|t| t.describe()).or_else(|| unwritten.map(|error| error.to_string()));
        let failure = failure.or_else(|| {
            let why = unanswered(&summary, &measured.examples).filter(|_| !state.cancel.is_cancelled())?;
            state.record_event(EventKind::Failed { text: why.clone() });
            Some(why)
        });
        TrialOutcome { summary: Some(summary), failure, exit: Exit::of(exits.into_iter().flatten()) }
    }
}

/// Describes trouble that occurred before the load.
fn before_load(trouble: &AbortReason) -> String {
    format!("{}, before the load began", trouble.describe())
}
