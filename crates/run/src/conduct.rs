//! The conductor: runs a plan from its builds to its last trial. [`conduct`] is the whole story of a run; that of a
//! single trial is in [`crate::trial`].

use std::path::Path;
use std::time::Instant;

use loadlab_analysis::scaling::search::Search;
use loadlab_analysis::trial::judge::was_target_gone;
use loadlab_analysis::{Exit, conclude_search};
use loadlab_load::target::Allowed;
use loadlab_plan::{Case, FindSpec, Plan};
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::manifest::{RunEnded, TrialKey};
use loadlab_record::documents::search::most_measurements;
use loadlab_record::documents::summary::Summary;
use loadlab_record::store::StoreError;
use loadlab_record::text::first_line;
use loadlab_system::Cancel;

use crate::begin::{allowed_of, conditions_of, never_began, prepare};
use crate::error::RunError;
use crate::event::{Recorded, RunEvent};
use crate::ids::Ids;
use crate::manifest::{figures_of_case, plan_dir};
use crate::options::RunOptions;
use crate::record::{Record, TrialSummaries};
use crate::result::{RunResult, TrialEnd, Trouble};
use crate::rounds::{Rounds, rounds_in_random_order};
use crate::running_system::RunningSystem;
use crate::search::{SearchRequest, SearchTask, Searched};
use crate::state::{EventSink, TrialState};
use crate::trial::{Conditions, Trial, TrialOutcome};
use crate::{limits, logs, rounds};

/// Runs a plan.
///
/// # Errors
/// Nothing could be measured: a target is not allowed, the record cannot be created, a build failed. Later failures are
/// in the result and in the record; the system is down either way.
pub fn conduct(
    plan: &Plan,
    options: &RunOptions,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<RunResult, RunError> {
    let emit: EventSink<'_> = &|event: RunEvent| emit(event.masked(&options.secrets));
    let conditions = conditions_of(plan, options)?;
    let allowed = allowed_of(plan, options)?;
    rounds::check(plan).map_err(RunError::NeverSettled)?;
    let (mut record, kept) = match options.resumes {
        true => Record::resume(plan, options)?,
        false => (Record::begin(plan, options)?, TrialSummaries::new()),
    };
    let schedule = match &record.manifest().until_certain {
        Some(until) => {
            let drawn = rounds_in_random_order(plan.cases().len(), plan.trials, until.seed);
            drawn.into_iter().map(|(case, trial)| TrialKey { case, trial }).collect()
        }
        None => plan.schedule(),
    };
    let rounds = Rounds::of(record.manifest());
    let is_missing = |place: &usize| !kept.contains_key(&schedule[*place]);
    let missing: Vec<usize> = (0..schedule.len()).filter(is_missing).collect();
    let at_most = rounds.is_some();
    emit(RunEvent::Recording {
        dir: options.out.clone(),
        count: missing.len(),
        of: Recorded::Trials,
        at_most,
    });
    if options.resumes {
        let (there, all) = (schedule.len() - missing.len(), schedule.len());
        let left = if missing.is_empty() { "nothing is left to run" } else { "running the others" };
        emit(RunEvent::Note(format!("{there} of {all} trials are complete; {left}")));
    }

    let mut running = None;
    if let Some(first) = missing.first() {
        match begin(plan, options, &mut record, cancel, emit) {
            Ok(begun) => running = Some(begun),
            Err(error) => return Err(never_began(&mut record, Some(schedule[*first]), error, cancel)),
        }
    } else {
        record.leave();
    }
    let has_kept = !kept.is_empty();
    let done = Results::before(plan, &schedule, kept);
    // The time budget starts here, so builds do not count.
    let began = Instant::now();
    let mut conductor =
        Conductor { plan, options, conditions, allowed, record, cancel, emit, done, rounds, began };
    if has_kept {
        // Rounds in the resumed record may have settled some comparisons. Settled cases need no more trials, so the
        // next round may be a later one, made only for the other cases; or no round may be left.
        let before = |next: Option<&usize>| next.map_or(plan.trials, |place| schedule[*place].trial - 1);
        conductor.judge_round(before(missing.first()));
        let next = missing.iter().find(|place| conductor.wants(schedule[**place].case));
        if next != missing.first() {
            conductor.judge_round(before(next));
        }
    }
    if let Some(running) = &mut running {
        conductor.run_missing(running, &schedule, &missing);
    }
    Ok(conductor.end(running))
}

/// Prepares the system. Only then does the record of a run that is resumed make room for the missing trials: what
/// cannot be prepared must not cost what is there.
fn begin(
    plan: &Plan,
    options: &RunOptions,
    record: &mut Record,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<RunningSystem, RunError> {
    record.claim()?;
    let running = prepare(plan, options, record, cancel, emit)?;
    if let Some(moved) = record.go_on()? {
        emit(RunEvent::Note(moved));
    }
    Ok(running)
}

/// A run in progress.
struct Conductor<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    /// One per case.
    conditions: Vec<Conditions>,
    allowed: Allowed,
    record: Record,
    cancel: &'a Cancel,
    emit: EventSink<'a>,
    done: Results,
    /// Set if trials run until it is certain how the cases differ.
    rounds: Option<Rounds>,
    /// When the first trial was about to start.
    began: Instant,
}

/// Results of the trials so far.
#[derive(Default)]
struct Results {
    trials: Vec<TrialEnd>,
    exits: Vec<Exit>,
    /// Cases that are not tried again: those that failed to come up, since retrying them would only wait for the same
    /// deadline, and those whose target could not be reached in two trials.
    given_up: Vec<GivenUp>,
    is_record_lost: bool,
}

/// A case that is not tried again.
struct GivenUp {
    case: usize,
    why: String,
    exit: Exit,
}

impl Results {
    /// The trials kept from a resumed record, in schedule order.
    fn before(plan: &Plan, schedule: &[TrialKey], mut kept: TrialSummaries) -> Results {
        let mut done = Results::default();
        for key in schedule {
            let Some(summary) = kept.remove(key) else { continue };
            done.exits.push(Exit::of_summary(&summary));
            let (case, summary) = (plan.cases()[key.case].name.clone(), Some(summary));
            done.trials.push(TrialEnd { case, trial: key.trial, summary, failure: None });
        }
        done
    }

    /// Whether a case whose latest trial has this summary reached its target in no trial, of at least two: in one, the
    /// target may just have been restarting.
    fn is_never_reached(&self, case: &str, latest: &Summary) -> bool {
        let mut earlier = self.trials.iter().filter(|trial| trial.case == case).peekable();
        let has_earlier = earlier.peek().is_some();
        let is_gone = |trial: &TrialEnd| trial.summary.as_ref().is_some_and(was_target_gone);
        has_earlier && was_target_gone(latest) && earlier.all(is_gone)
    }

    /// Why the case is not tried again, if it is not.
    fn given_up(&self, case: usize) -> Option<&GivenUp> {
        self.given_up.iter().find(|given_up| given_up.case == case)
    }

    /// The capacity found by the case's latest successful search.
    fn found_last(&self, case: &str) -> Option<u64> {
        let of_case = self.trials.iter().rev().filter(|trial| trial.case == case);
        let found = of_case.filter_map(|trial| trial.summary.as_ref()?.search.as_ref()?.capacity).next()?;
        Some(found.value.round() as u64)
    }
}

impl Conductor<'_> {
    /// Whether the case still needs trials.
    fn wants(&self, case: usize) -> bool {
        self.rounds.as_ref().is_none_or(|rounds| rounds.wants(case))
    }

    fn round_made(&mut self, round: u32) {
        if let Some(rounds) = &mut self.rounds {
            rounds.round_made();
        }
        self.judge_round(round);
    }

    /// After a round: reports how close the comparisons are and decides which cases need another round.
    fn judge_round(&mut self, round: u32) {
        let given_up = |case: usize| self.done.given_up(case).is_some();
        if let Some(rounds) = &mut self.rounds {
            let elapsed_s = self.began.elapsed().as_secs_f64();
            (self.emit)(rounds.judge(round, elapsed_s, &self.done.trials, &given_up));
        }
    }

    /// Runs the trials at these places of the schedule, as far as they are still needed.
    fn run_missing(&mut self, running: &mut RunningSystem, schedule: &[TrialKey], missing: &[usize]) {
        for (number, place) in missing.iter().enumerate() {
            if self.cancel.is_cancelled() || self.done.is_record_lost {
                break;
            }
            let TrialKey { case, trial: round } = schedule[*place];
            if !self.wants(case) {
                continue;
            }
            let rest = &missing[number + 1..];
            let next = rest.iter().copied().find(|place| self.wants(schedule[*place].case));
            self.run_trial(running, schedule, *place, next);
            if !self.cancel.is_cancelled() && next.is_none_or(|place| schedule[place].trial > round) {
                self.round_made(round);
            }
        }
    }

    /// Runs one trial, from creating its folder to the end of everything that lived for it.
    fn run_trial(
        &mut self,
        running: &mut RunningSystem,
        schedule: &[TrialKey],
        place: usize,
        next: Option<usize>,
    ) {
        let key = schedule[place];
        let case = &self.plan.cases()[key.case];
        let event = RunEvent::TrialStarted {
            case: case.name.clone(),
            trial: key.trial,
            place: place + 1,
            of: schedule.len(),
            at_most: self.rounds.is_some(),
            cpu_limits: limits::cpu_limits(case),
            figures: figures_of_case(case),
        };
        (self.emit)(event);
        if let Some(spec) = case.find.as_ref().filter(|_| self.done.given_up(key.case).is_none()) {
            let next = next.map(|place| schedule[place].case);
            let (outcome, is_record_lost) = self.run_search(running, schedule, place, spec, next);
            return self.add(key, outcome, is_record_lost);
        }
        let writer = match self.record.begin_trial(key) {
            Ok(writer) => writer,
            Err(error) => return self.add(key, not_recorded(&error), true),
        };
        let state = self.record.state(writer, self.cancel, running);
        let given_up = self.done.given_up(key.case);
        let resolved = limits::resolve_limits(case, self.plan.cases(), &self.done.trials);
        let mut outcome = match (given_up, resolved) {
            (Some(given_up), _) => record_skipped(&state, given_up),
            (None, Err(why)) => record_unknown_limits(&state, why),
            (None, Ok(resolved)) => {
                for line in resolved.iter().flat_map(|r| &r.notes) {
                    state.record_note(line.clone());
                }
                let case = resolved.as_ref().map_or(case, |r| &r.case);
                let plan_dir = plan_dir(self.plan);
                self.planned_trial(schedule, place, case, &plan_dir).run(running, &state, self.emit)
            }
        };
        // What has died by now is known before anything is taken down.
        self.take_notices(running, &state, &mut outcome);
        let is_last = self.cancel.is_cancelled() || state.unwritten().is_some();
        let next = next.map(|place| schedule[place].case).filter(|_| !is_last);
        let failed = outcome.failure.is_some();
        outcome.add_failures(running.end_trial(next, failed, &state));
        logs::mask_ended(&state, &running.open_logs(), self.emit);
        // What stays up may have died meanwhile.
        self.take_notices(running, &state, &mut outcome);
        self.add(key, outcome, state.unwritten().is_some());
    }

    /// Handles notices from the system: if something has died, a trial that went well has failed.
    fn take_notices(&self, running: &RunningSystem, state: &TrialState, outcome: &mut TrialOutcome) {
        state.handle_notices(&running.notices, self.emit);
        outcome.add_failures(state.abort_reason().map(|t| Trouble { why: t.describe(), exit: t.exit() }));
    }

    /// The trial at this place of the schedule; `case` is its case with values for all limits.
    fn planned_trial<'t>(
        &'t self,
        schedule: &[TrialKey],
        place: usize,
        case: &'t Case,
        plan_dir: &'t Path,
    ) -> Trial<'t> {
        let index = schedule[place].case;
        Trial {
            index,
            place,
            ids: Ids::of(self.plan.cases(), schedule.len()),
            case,
            conditions: &self.conditions[index],
            plan_dir,
            allowed: &self.allowed,
            threads: self.options.threads,
            generator: &self.options.generator,
            senders: self.options.senders.as_deref(),
            level: None,
            carried: None,
            watch: &self.options.watch,
            restore: &[],
        }
    }

    /// Runs a trial that searches for its case's capacity, starting near what the previous search found.
    fn run_search(
        &mut self,
        running: &mut RunningSystem,
        schedule: &[TrialKey],
        place: usize,
        spec: &FindSpec,
        next: Option<usize>,
    ) -> (TrialOutcome, bool) {
        let key = schedule[place];
        let case = &self.plan.cases()[key.case];
        let request = SearchRequest::from(spec);
        let resolved = match limits::resolve_limits(case, self.plan.cases(), &self.done.trials) {
            Ok(resolved) => resolved,
            Err(why) => {
                return match self.record.begin_trial(key) {
                    Ok(writer) => {
                        let state = self.record.state(writer, self.cancel, running);
                        (record_unknown_limits(&state, why), state.unwritten().is_some())
                    }
                    Err(error) => (not_recorded(&error), true),
                };
            }
        };
        let notes: Vec<String> = resolved.iter().flat_map(|r| &r.notes).cloned().collect();
        let searches = self.plan.cases().iter().filter_map(|case| case.find.as_ref());
        let most = searches.map(|find| most_measurements(find.max_levels)).max().unwrap_or(1);
        let parts = self.plan.cases().iter().map(|case| case.loads.len() as u64).max().unwrap_or(1);
        let task = SearchTask {
            plan: self.plan,
            base: resolved.as_ref().map_or(case, |r| &r.case),
            request: &request,
            options: self.options,
            conditions: &self.conditions[key.case].of_levels(),
            allowed: &self.allowed,
            cancel: self.cancel,
            emit: self.emit,
            ids: Ids::for_blocks(most.saturating_mul(schedule.len() as u64), parts),
            first_place: place * most as usize,
            trial: Some(key),
            notes: &notes,
        };
        let search =
            Search::new(request.range.0, request.range.1, request.max_levels).dithered(u64::from(key.trial));
        let search = match self.done.found_last(&case.name) {
            Some(level) => search.starting_at(level),
            None => search,
        };
        let searched = task.run(search, &mut self.record, running);
        let is_last = self.cancel.is_cancelled() || searched.is_record_lost;
        let (failed, is_unwritten) = (searched.trouble.is_some(), searched.is_record_lost);
        running.is_searching = false;
        // Logs of components that end now belong to the trial; nothing else is recorded of their end but failures.
        let state = TrialState::new(None, self.cancel.clone(), self.record.secrets().clone());
        let left = running.end_trial(next.filter(|_| !is_last), failed, &state);
        let logs = self.record.logs_of_trial(key);
        for text in logs::mask_in(&logs, &self.options.secrets, &running.open_logs()) {
            (self.emit)(RunEvent::Note(text));
        }
        let (mut outcome, adopted) = self.conclude_search_trial(key.case, searched);
        outcome.add_failures(left);
        let stored = adopted.map_or(Ok(()), |measurement| {
            self.record.adopt_level(key, measurement, outcome.summary.as_ref())
        });
        let is_record_lost = is_unwritten || stored.is_err();
        let unstored = |error: StoreError| Trouble { why: error.to_string(), exit: Exit::CouldNotRun };
        outcome.add_failures(stored.err().map(unstored));
        (outcome, is_record_lost)
    }

    /// The outcome of a trial that searched, and the measurement that becomes its record.
    fn conclude_search_trial(&self, index: usize, searched: Searched) -> (TrialOutcome, Option<u32>) {
        let Searched { trouble, exit, chosen, last, answer, .. } = searched;
        if self.cancel.is_cancelled() {
            // Its levels stay as they are: no single one stands for the trial.
            let failure = Some("the search was interrupted".to_owned());
            return (TrialOutcome { summary: None, failure, exit }, None);
        }
        if trouble.is_some() || answer.is_none() {
            let failure = trouble.map_or_else(|| "nothing was measured".to_owned(), |trouble| trouble.why);
            return (TrialOutcome { summary: None, failure: Some(failure), exit }, last);
        }
        let Some((measurement, mut summary)) = chosen else {
            let failure = Some("nothing was measured".to_owned());
            return (TrialOutcome { summary: None, failure, exit: Exit::CouldNotRun }, last);
        };
        let conditions = &self.conditions[index];
        conclude_search(&mut summary, &conditions.figures, &conditions.expect);
        let exit = Exit::of_summary(&summary);
        (TrialOutcome { summary: Some(summary), failure: None, exit }, Some(measurement))
    }

    fn add(&mut self, key: TrialKey, outcome: TrialOutcome, is_record_lost: bool) {
        let TrialOutcome { summary, failure, exit } = outcome.masked(&self.options.secrets);
        let TrialKey { case: index, trial } = key;
        let case = self.plan.cases()[index].name.clone();
        let is_hopeless = summary.as_ref().is_none_or(|summary| self.done.is_never_reached(&case, summary));
        if let Some(why) = failure.as_ref().filter(|_| is_hopeless) {
            self.done.given_up.push(GivenUp { case: index, why: first_line(why), exit });
        }
        self.done.is_record_lost |= is_record_lost;
        self.done.exits.push(exit);
        let (reported, why) = (summary.clone().map(Box::new), failure.clone());
        let figures = figures_of_case(&self.plan.cases()[index]);
        let (name, summary_of) = (case.clone(), reported);
        (self.emit)(RunEvent::TrialEnded { case: name, trial, summary: summary_of, failure: why, figures });
        self.done.trials.push(TrialEnd { case, trial, summary, failure });
    }

    /// Takes the system down, if there is one, and closes the manifest.
    fn end(mut self, running: Option<RunningSystem>) -> RunResult {
        if let Some(Err(error)) = running.map(RunningSystem::close) {
            let text = format!("cleanup failed: {error}\nhint: try `loadlab clean`");
            (self.emit)(RunEvent::Note(text));
        }
        // Components that outlived their trial have stopped writing by now.
        logs::mask_all(&self.record.dir, &self.options.secrets, self.emit);
        let ended = if self.cancel.is_cancelled() {
            self.done.exits.push(Exit::Interrupted);
            RunEnded::Interrupted
        } else if self.done.trials.iter().any(|t| t.failure.is_some()) {
            RunEnded::Broken
        } else {
            RunEnded::Complete
        };
        let ended_by = self.rounds.as_ref().and_then(Rounds::ended);
        self.record.set_rounds_end(ended_by);
        let settled = self.rounds.take().map(Rounds::into_latest).unwrap_or_default();
        if settled.iter().any(|comparison| !comparison.is_settled) {
            self.done.exits.push(Exit::Undecided);
        }
        if let Err(error) = self.record.end(ended) {
            self.done.exits.push(Exit::CouldNotRun);
            (self.emit)(RunEvent::Note(error.to_string()));
        }
        let Results { trials, exits, .. } = self.done;
        RunResult { dir: self.options.out.clone(), ended, trials, settled, exit: Exit::of(exits) }
    }
}

/// The outcome of a trial that is not run because it cannot be recorded.
fn not_recorded(error: &StoreError) -> TrialOutcome {
    TrialOutcome { summary: None, failure: Some(error.to_string()), exit: Exit::CouldNotRun }
}

/// Records a trial that is skipped because its case was given up; it calls for the same exit as the original failure.
fn record_skipped(state: &TrialState, GivenUp { why, exit, .. }: &GivenUp) -> TrialOutcome {
    let text = format!("not run, because an earlier trial of this case failed: {why}");
    state.ensure_clock();
    state.record_event(EventKind::Failed { text: text.clone() });
    TrialOutcome { summary: None, failure: Some(text), exit: *exit }
}

/// Records a trial whose limits depend on something that was not measured.
fn record_unknown_limits(state: &TrialState, why: String) -> TrialOutcome {
    state.ensure_clock();
    state.record_event(EventKind::Failed { text: why.clone() });
    TrialOutcome { summary: None, failure: Some(why), exit: Exit::NotUp }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::Failure;
    use loadlab_record::documents::summary::ComponentSummary;

    use super::*;

    fn trial(case: &str, summary: Option<Summary>) -> TrialEnd {
        TrialEnd { case: case.to_owned(), trial: 1, summary, failure: None }
    }

    fn refused() -> Summary {
        let mut summary = summarise(TrialInput::default());
        summary.requests.failed = 3;
        summary.failures.add(Failure::Connect, 3);
        summary
    }

    #[test]
    fn a_case_is_given_up_only_if_its_target_was_gone_in_every_trial_of_two_or_more() {
        let mut answered = summarise(TrialInput::default());
        (answered.requests.ok, answered.connections.opened) = (1, 1);
        let mut without_ports = refused();
        without_ports.connections.own_limits.ports = 3;
        let mut died = refused();
        let dead = ComponentSummary { died: Some("exit code 1".to_owned()), ..ComponentSummary::default() };
        died.components.insert("web".to_owned(), dead);

        let table = [
            ("two", vec![Some(refused())], refused(), true),
            ("three", vec![Some(refused()), Some(refused())], refused(), true),
            ("one alone", vec![], refused(), false),
            ("answered before", vec![Some(answered.clone()), Some(refused())], refused(), false),
            ("answered now", vec![Some(refused())], answered, false),
            ("no ports now", vec![Some(refused())], without_ports.clone(), false),
            ("no ports before", vec![Some(without_ports)], refused(), false),
            ("died now", vec![Some(refused())], died.clone(), false),
            ("died before", vec![Some(died)], refused(), false),
            ("not up before", vec![None], refused(), false),
        ];
        for (what, earlier, latest, is_given_up) in table {
            let mut done = Results::default();
            done.trials.push(trial("another", Some(refused())));
            done.trials.extend(earlier.into_iter().map(|summary| trial("case", summary)));
            assert_eq!(done.is_never_reached("case", &latest), is_given_up, "{what}");
        }
    }
}
