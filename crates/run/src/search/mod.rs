//! A search for capacity: brings up one system and takes one measurement after another until its capacity is known.
//! [`loadlab_analysis::scaling::search`] chooses the next level; this module turns levels into loads, and loads into
//! outcomes.

mod early;
mod judge;

use loadlab_analysis::scaling::capacity::capacity;
use loadlab_analysis::scaling::search::{Answer, LevelOutcome, NextLevel, Outcome, Search};
use loadlab_analysis::{Exit, is_left_open};
use loadlab_load::target::Allowed;
use loadlab_plan::{self as plan, Case, Plan};
use loadlab_record::Failure;
use loadlab_record::documents::manifest::TrialKey;
use loadlab_record::documents::search::{
    Capacity, SearchFacts, SearchStep, SearchVariable, StepOutcome, most_measurements,
};
use loadlab_record::documents::summary::Summary;
use loadlab_record::expr::Expr;
use loadlab_record::store::{StoreError, TrialWriter};
use loadlab_system::{Cancel, clock};

use crate::event::RunEvent;
use crate::ids::Ids;
use crate::level::Level;
use crate::logs;
use crate::manifest::{figures_of_case, plan_dir};
use crate::options::RunOptions;
use crate::record::Record;
use crate::result::Trouble;
use crate::running_system::RunningSystem;
use crate::search::judge::{grown, judge, longer};
use crate::state::{EventSink, TrialState};
use crate::trial::carryover::Carried;
use crate::trial::{Conditions, Trial};

/// What to search for.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchRequest {
    /// What is varied.
    pub vary: SearchVariable,
    /// Lowest and highest level to try.
    pub range: (u64, u64),
    /// Maximum number of levels to measure, including repeats.
    pub max_levels: u32,
    /// Index of the load to vary.
    pub load: usize,
    /// Length of each measurement, in nanoseconds.
    pub level_ns: u64,
    /// Settling time before each measurement, in nanoseconds.
    pub settle_ns: u64,
}

impl SearchRequest {
    /// Maximum number of trials: each level, measured as many times as it may be repeated.
    pub fn most_trials(&self) -> u64 {
        most_measurements(self.max_levels)
    }

    /// Whether all requests of all trials can have unique ids, if ids are used to find out what was stored.
    pub fn ids_suffice(&self, case: &Case) -> bool {
        let by_ids =
            case.durability.as_ref().is_some_and(|loss| !matches!(loss.persisted, plan::Persisted::Probe(_)));
        let blocks = self.most_trials().saturating_mul(case.loads.len() as u64);
        !by_ids || blocks <= plan::ids::MOST_BLOCKS
    }

    /// The facts to record before anything is measured.
    pub fn facts(&self) -> SearchFacts {
        let (low, high) = self.range;
        SearchFacts { vary: self.vary, low, high, ..SearchFacts::default() }
    }
}

impl From<&plan::FindSpec> for SearchRequest {
    fn from(spec: &plan::FindSpec) -> SearchRequest {
        let plan::FindSpec { vary, range, load, level_ns, settle_ns, max_levels, .. } = *spec;
        SearchRequest { vary, range, max_levels, load, level_ns, settle_ns }
    }
}

/// A search, with everything it needs.
pub struct SearchTask<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The case whose load is varied.
    pub base: &'a Case,
    /// What is varied, and how.
    pub request: &'a SearchRequest,
    /// How the plan is run.
    pub options: &'a RunOptions,
    /// The case's conditions; `expect` holds what each level must meet.
    pub conditions: &'a Conditions,
    /// Where loads may go.
    pub allowed: &'a Allowed,
    /// Cancels the search.
    pub cancel: &'a Cancel,
    /// Where events go.
    pub emit: EventSink<'a>,
    /// How to assign request ids, over all measurements of the run.
    pub ids: Ids,
    /// Index of the search's first measurement among all measurements of the run.
    pub first_place: usize,
    /// The trial that the search belongs to; `None` if the whole record is one search.
    pub trial: Option<TrialKey>,
    /// Notes to record with the first measurement.
    pub notes: &'a [String],
}

/// The result of a search.
pub struct Searched {
    /// The search as recorded.
    pub facts: SearchFacts,
    /// The answer; `None` if it ended early.
    pub answer: Option<Answer>,
    /// Why it ended early.
    pub trouble: Option<Trouble>,
    /// The exit code for the search as a whole.
    pub exit: Exit,
    /// The measurement that represents the search, by number, and its summary: the one that stands for the level that
    /// was found or, if none was found, for the lowest level measured.
    pub chosen: Option<(u32, Summary)>,
    /// Number of the last measurement; `None` if there was none.
    pub last: Option<u32>,
    /// Part of the record could not be written.
    pub is_record_lost: bool,
}

impl SearchTask<'_> {
    /// Runs the search on a system that is brought up with the first level and stays up.
    pub fn run(&self, search: Search, record: &mut Record, running: &mut RunningSystem) -> Searched {
        running.is_searching = true;
        let is_up_anew = self.base.system.compose.is_some();
        let carried = Carried::for_loads(if is_up_anew { 0 } else { self.base.loads.len() });
        let run = SearchRun {
            task: self,
            carried,
            record,
            facts: self.request.facts(),
            outcomes: Vec::new(),
            summaries: Vec::new(),
            made: 0,
            last: None,
            is_record_lost: false,
            trouble: None,
        };
        run.run(search, running)
    }
}

/// Drops doubts: whether a level is too much is what a search tests, so it is an outcome, not a doubt.
fn without_doubts(emit: EventSink<'_>) -> impl Fn(RunEvent) + Sync {
    move |event| {
        if !matches!(event, RunEvent::Doubt { .. }) {
            emit(event);
        }
    }
}

/// A measurement of a level.
struct Measurement {
    summary: Summary,
    /// Its number in the record.
    number: u32,
    /// It was ended early because it was certain to miss an expectation.
    ended_early: bool,
}

impl Measurement {
    /// `early` are the conditions that end a level early.
    fn of(summary: Summary, number: u32, early: &[Expr]) -> Measurement {
        let ended_early = early::is_decided(early, &summary);
        Measurement { summary, number, ended_early }
    }
}

/// A search in progress.
struct SearchRun<'a> {
    task: &'a SearchTask<'a>,
    record: &'a mut Record,
    facts: SearchFacts,
    /// One for each step of the facts.
    outcomes: Vec<LevelOutcome>,
    /// One for each step of the facts.
    summaries: Vec<Summary>,
    /// What carries over from level to level.
    carried: Carried,
    /// Number of measurements so far: a repeated one decides no level, but still needs its own ids.
    made: usize,
    /// Number of the last measurement in its record.
    last: Option<u32>,
    is_record_lost: bool,
    /// Why the search ended early.
    trouble: Option<Trouble>,
}

impl SearchRun<'_> {
    fn run(mut self, mut search: Search, running: &mut RunningSystem) -> Searched {
        let answer = loop {
            if self.task.cancel.is_cancelled() || self.trouble.is_some() {
                break None;
            }
            match search.next() {
                NextLevel::Done(answer) => break Some(answer),
                NextLevel::Measure { level, again } => {
                    // A server assigns each accepted connection to one of its workers at random: a result obtained with
                    // one assignment must be confirmed with another.
                    if again {
                        self.carried.connect_anew(|_| true);
                    }
                    if let Some(outcome) = self.measure_level(running, level) {
                        search.add(level, outcome);
                    }
                }
            }
        };
        self.conclude(answer)
    }

    /// Measures one level; `None` if the measurement was inconclusive, which ends the search. A measurement that was
    /// too short is repeated with the length it needs.
    fn measure_level(&mut self, running: &mut RunningSystem, level: u64) -> Option<Outcome> {
        let (mut length_ns, mut again) = (self.task.request.level_ns, 0);
        loop {
            let Measurement { summary, number: trial, ended_early } =
                self.measure(running, level, length_ns)?;
            if self.task.cancel.is_cancelled() {
                return None;
            }
            // A longer measurement could not make up for what was missed.
            let longer = longer(&summary, &self.task.conditions.expect).filter(|_| !ended_early);
            let most = self.task.request.level_ns.saturating_mul(MOST_LONGER);
            if let Some(factor) = longer.filter(|_| length_ns < most && !self.task.cancel.is_cancelled()) {
                length_ns = grown(length_ns, factor, most);
                let text = format!(
                    "measuring {} again, for {}: a percentile needs more requests",
                    self.task.request.vary.level(level),
                    loadlab_record::text::units::format_duration_ns(length_ns as f64)
                );
                (self.task.emit)(RunEvent::Note(text));
                continue;
            }
            let (step_outcome, why) = judge(&summary, &self.task.conditions.expect, ended_early);
            let outcome = Outcome::from(step_outcome);
            if outcome != Outcome::Met {
                // The overloaded level opened more connections than a lower rate needs.
                self.carried.connect_anew(|load| self.is_open(load));
            }
            // Usually caused by another program on this machine: measure again.
            if outcome == Outcome::Invalid && again < INVALID_AGAIN && !self.task.cancel.is_cancelled() {
                again += 1;
                (self.task.emit)(RunEvent::Note(format!(
                    "measuring {} again: {why}",
                    self.task.request.vary.level(level)
                )));
                continue;
            }
            (self.task.emit)(RunEvent::Note(format!(
                "{}: {} ({why})",
                self.task.request.vary.level(level),
                step_outcome.word()
            )));
            let p = |name: &str| summary.response_ms.figure(name).flatten();
            self.facts.path.push(SearchStep {
                level,
                trial,
                outcome: step_outcome,
                why,
                goodput_per_s: Some(summary.rate_per_s.ok),
                p50_ms: p("p50"),
                p90_ms: p("p90"),
                p99_ms: p("p99"),
            });
            self.outcomes.push(LevelOutcome { level, outcome });
            if self.task.trial.is_none() {
                self.record.set_search(&self.facts);
            }
            if outcome != Outcome::Met {
                self.recover(&summary);
            }
            self.summaries.push(summary);
            return Some(outcome);
        }
    }

    /// Whether a load of the search follows a schedule (open model).
    fn is_open(&self, load: usize) -> bool {
        let varied = load == self.task.request.load;
        match self.task.base.loads[load].model {
            _ if varied => self.task.request.vary == SearchVariable::Rate,
            plan::Model::Closed { .. } => false,
            _ => true,
        }
    }

    /// Gives the system time to work off the backlog of a trial, so that the next trial does not pay for it.
    fn recover(&self, summary: &Summary) {
        let left = (summary.requests.in_flight + summary.failures.get(Failure::Timeout)) as f64;
        let wait_s = (left / summary.rate_per_s.ok.max(1.0)).min(MOST_RECOVERY_S);
        let until_ns = clock::now_ns().saturating_add((wait_s * 1e9) as u64);
        while clock::now_ns() < until_ns && !self.task.cancel.is_cancelled() {
            self.task.cancel.wait_until(until_ns);
        }
    }

    /// Takes one measurement of a level. Any failure ends the search, except a component that died: that is an answer.
    fn measure(&mut self, running: &mut RunningSystem, level: u64, length_ns: u64) -> Option<Measurement> {
        let level = Level {
            vary: self.task.request.vary,
            load: self.task.request.load,
            level,
            settle_ns: self.task.request.settle_ns,
            length_ns,
        };
        let task = self.task;
        let case = match task.trial {
            Some(_) => level.of_trial(task.base),
            None => level.case(task.base),
        };
        let opened = self.open(&case);
        self.is_record_lost |= opened.is_err();
        let (writer, number) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.give_up(error.to_string(), Exit::CouldNotRun),
        };
        self.last = Some(number);
        let state = self.record.state(writer, task.cancel, running);
        if self.made == 0 {
            task.notes.iter().for_each(|text| state.record_note(text.clone()));
        }
        let dir = plan_dir(task.plan);
        let mut conditions = task.conditions.clone();
        let early = early::conditions(&conditions.expect, &level, &case.loads);
        conditions.stop_when.extend(early.iter().cloned());
        let trial = Trial {
            index: task.trial.map_or(0, |key| key.case),
            place: task.first_place + self.made,
            ids: task.ids,
            case: &case,
            conditions: &conditions,
            plan_dir: &dir,
            allowed: task.allowed,
            threads: task.options.threads,
            generator: &task.options.generator,
            senders: task.options.senders.as_deref(),
            level: Some(&level),
            carried: Some(&self.carried),
            watch: &task.options.watch,
            restore: &[],
        };
        self.made += 1;
        let outcome = trial.run(running, &state, &without_doubts(task.emit)).masked(&task.options.secrets);
        self.is_record_lost |= state.unwritten().is_some();
        let left = self.end_level(running, trial.index, &case, &state);
        logs::mask_ended(&state, &running.open_logs(), task.emit);
        if task.trial.is_none() {
            (task.emit)(RunEvent::TrialEnded {
                figures: figures_of_case(&case),
                case: case.name,
                trial: number,
                summary: outcome.summary.clone().map(Box::new),
                failure: outcome.failure.clone(),
            });
        }
        if let Some(Trouble { why, exit }) = left.into_iter().next() {
            return self.give_up(why, exit);
        }
        match (outcome.summary, outcome.failure, outcome.exit) {
            (Some(_), Some(why), Exit::CouldNotRun | Exit::NotUp) => self.give_up(why, outcome.exit),
            (None, why, exit) => self.give_up(why.unwrap_or_else(|| "nothing was measured".into()), exit),
            (Some(summary), _, _) => Some(Measurement::of(summary, number, &early)),
        }
    }

    /// Takes down what does not live on; the rest stays up for the next level. Connections to what goes now, or before that
    /// level, are closed: a server that shuts down cleanly may wait for it.
    fn end_level(
        &self,
        running: &mut RunningSystem,
        index: usize,
        case: &Case,
        state: &TrialState,
    ) -> Vec<Trouble> {
        let next = (!self.task.cancel.is_cancelled()).then_some(index);
        if next.is_none() {
            self.carried.connect_anew(|_| true);
        }
        let left = running.end_trial(next, false, state);
        if running.will_restart_seeded(case) {
            self.carried.connect_anew(|_| true);
        }
        left
    }

    /// Opens the record of a measurement, and announces it if it is a trial in its own right. Also returns its number.
    fn open(&mut self, case: &Case) -> Result<(TrialWriter, u32), StoreError> {
        let task = self.task;
        if let Some(key) = task.trial {
            let number = self.made as u32 + 1;
            return Ok((self.record.begin_level_of_trial(key, number)?, number));
        }
        let key = self.record.begin_level(case)?;
        (task.emit)(RunEvent::TrialStarted {
            case: case.name.clone(),
            trial: key.trial,
            place: self.facts.path.len() + 1,
            of: task.request.max_levels as usize,
            at_most: true,
            cpu_limits: crate::limits::cpu_limits(case),
            figures: figures_of_case(case),
        });
        Ok((self.record.begin_trial(key)?, key.trial))
    }

    fn give_up<T>(&mut self, why: String, exit: Exit) -> Option<T> {
        self.trouble.get_or_insert(Trouble { why, exit });
        None
    }

    fn conclude(mut self, answer: Option<Answer>) -> Searched {
        // A server that shuts down cleanly may wait for its connections to close.
        self.carried.connect_anew(|_| true);
        // What decides the lowest level that did not meet the expectations, if it missed none for certain.
        let open = answer.as_ref().and_then(lowest_not_met).filter(|level| is_left_open(&self.facts, *level));
        let decided_by = open.map(|_| judge::what_decides(&self.task.conditions.expect));
        let exit = match (&answer, &self.trouble) {
            _ if self.task.cancel.is_cancelled() => Exit::Interrupted,
            (_, Some(trouble)) => trouble.exit,
            (Some(Answer::LessThan { .. }), None) if decided_by.is_some() => Exit::Undecided,
            (Some(answer), None) => exit_of(answer),
            (None, None) => Exit::CouldNotRun,
        };
        if let Some(answer) = &answer {
            self.facts.found = Some(describe_answer(answer, self.task.request.vary, decided_by));
            (self.facts.level, self.facts.above) = match *answer {
                Answer::Most { level, above, .. } => (Some(level), Some(above)),
                Answer::AtLeast { level, .. } => (Some(level), None),
                Answer::LessThan { level, .. } => (None, Some(level)),
                Answer::Generator { level, above } => (level, Some(above)),
            };
            self.facts.confirmed =
                matches!(answer, Answer::Most { confirmed: true, .. } | Answer::AtLeast { is_top: true, .. });
            let found = capacity_of(answer, &self.outcomes, decided_by.is_some());
            self.facts.capacity = found.map(|found| self.whole_users(found));
        }
        let above = self.facts.above.and_then(|level| standing_for(&self.facts.path, level, false));
        let sustained_not = above.filter(|_| decided_by.is_none());
        self.facts.bottleneck = sustained_not.and_then(|place| self.summaries[place].bottleneck.clone());
        let found = self.facts.level.and_then(|level| standing_for(&self.facts.path, level, true));
        // If loadlab itself was saturated above the level that was found, the system's limit was not reached.
        let doubts = match (&answer, found, above) {
            (Some(Answer::Generator { .. }), Some(_), Some(above)) => self.summaries[above].doubts.clone(),
            _ => Vec::new(),
        };
        let chosen = found.or(above).map(|place| {
            if found.is_some() {
                judge::all_met(&mut self.summaries[place]);
            }
            let mut summary =
                Summary { search: Some(self.facts.clone()), ..self.summaries.swap_remove(place) };
            summary.doubts.extend(doubts.into_iter().filter(|doubt| doubt.grave));
            (self.facts.path[place].trial, summary)
        });
        let SearchRun { facts, trouble, last, is_record_lost, .. } = self;
        Searched { facts, answer, trouble, exit, chosen, last, is_record_lost }
    }

    /// Rounds a capacity down to whole users.
    fn whole_users(&self, found: Capacity) -> Capacity {
        match self.task.request.vary {
            SearchVariable::Rate => found,
            SearchVariable::Users => {
                let Capacity { value, low, high } = found;
                Capacity { value: value.floor(), low: low.floor(), high: high.floor() }
            }
        }
    }
}

/// A trial that was too short grows to at most this many times its length.
const MOST_LONGER: u64 = 8;

/// How many times an INVALID trial is repeated before the level counts as INVALID.
const INVALID_AGAIN: u32 = 2;
/// A system without further load recovers within this time or not at all.
const MOST_RECOVERY_S: f64 = 10.0;

fn exit_of(answer: &Answer) -> Exit {
    match answer {
        Answer::Most { .. } | Answer::AtLeast { .. } => Exit::Ok,
        Answer::LessThan { is_bottom: true, .. } => Exit::Failed,
        // A lower level may meet the expectations.
        Answer::LessThan { is_bottom: false, .. } => Exit::Undecided,
        Answer::Generator { .. } => Exit::Invalid,
    }
}

/// The capacity, if a level met the expectations and one above it certainly did not.
fn capacity_of(answer: &Answer, outcomes: &[LevelOutcome], is_open: bool) -> Option<Capacity> {
    let is_between = matches!(answer, Answer::Most { .. }) && !is_open;
    is_between.then(|| capacity(outcomes)).flatten()
}

/// The lowest level that did not meet the expectations, above one that did or as the lowest measured.
fn lowest_not_met(answer: &Answer) -> Option<u64> {
    match *answer {
        Answer::Most { above, .. } => Some(above),
        Answer::LessThan { level, .. } => Some(level),
        Answer::AtLeast { .. } | Answer::Generator { .. } => None,
    }
}

/// The index of the measurement that stands for a level that met the expectations, or did not: the last one of that
/// outcome. One that certainly missed them outweighs those that could not be judged.
fn standing_for(path: &[SearchStep], level: u64, met: bool) -> Option<usize> {
    let outcomes: &[StepOutcome] = match met {
        true => &[StepOutcome::Met],
        false => &[StepOutcome::Missed, StepOutcome::Undecided, StepOutcome::Invalid],
    };
    let last =
        |outcome: &StepOutcome| path.iter().rposition(|step| step.level == level && step.outcome == *outcome);
    outcomes.iter().find_map(last)
}

/// The answer as a sentence without a full stop. `decided_by` is what decides the lowest level that did not meet the
/// expectations; `None` if it certainly missed one.
fn describe_answer(answer: &Answer, vary: SearchVariable, decided_by: Option<&str>) -> String {
    let shown = |level: u64| vary.level(level);
    match (*answer, decided_by) {
        (Answer::Most { level, above, .. }, Some(what)) => format!(
            "at least {}: at {} too few requests leave the expectations undecided; {what} decides them",
            shown(level),
            shown(above)
        ),
        (Answer::LessThan { level, .. }, Some(what)) => format!(
            "nothing: at {}, the lowest level measured, too few requests leave the expectations undecided; {what} \
             decides them",
            shown(level)
        ),
        (Answer::Most { level, above, confirmed }, _) => {
            let sure = match confirmed {
                true => "both measured twice",
                false => "not confirmed: the search ran out of levels; `--max-levels` allows more",
            };
            let meet = if vary == SearchVariable::Users && level == 1 { "meets" } else { "meet" };
            format!("{} {meet} the expectations, {} do not ({sure})", shown(level), shown(above))
        }
        (Answer::AtLeast { level, is_top: true }, _) => {
            format!("at least {}, the top of the range", shown(level))
        }
        (Answer::AtLeast { level, is_top: false }, _) => format!(
            "at least {}: no measured level failed before the search ran out of levels; `--max-levels` allows more",
            shown(level)
        ),
        (Answer::LessThan { level, is_bottom: true }, _) => {
            format!("less than {}: even the lowest level misses the expectations", shown(level))
        }
        (Answer::LessThan { level, is_bottom: false }, _) => format!(
            "less than {}: no level certainly met the expectations before the search ran out of levels; \
             `--max-levels` allows more",
            shown(level)
        ),
        (Answer::Generator { level: Some(level), above }, _) => format!(
            "at least {}: at {} loadlab itself, not the system, was saturated",
            shown(level),
            shown(above)
        ),
        (Answer::Generator { level: None, above }, _) => {
            format!("nothing: even at {} loadlab itself, not the system, was saturated", shown(above))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_undecided_is_not_said_to_miss_the_expectations() {
        let most = Answer::Most { level: 50, above: 51, confirmed: true };
        let of = |decided_by: Option<&str>| describe_answer(&most, SearchVariable::Rate, decided_by);
        assert_eq!(of(None), "50/s meet the expectations, 51/s do not (both measured twice)");
        assert_eq!(
            of(Some("a longer level duration")),
            "at least 50/s: at 51/s too few requests leave the expectations undecided; a longer level duration decides \
             them"
        );
        let all = Answer::AtLeast { level: 50, is_top: true };
        assert_eq!([lowest_not_met(&most), lowest_not_met(&all)], [Some(51), None]);
        let step = |level, outcome| LevelOutcome { level, outcome };
        let outcomes = [step(50, Outcome::Met), step(51, Outcome::Missed)];
        let is_known = |answer, is_open| capacity_of(answer, &outcomes, is_open).is_some();
        assert_eq!(
            [is_known(&most, false), is_known(&most, true), is_known(&all, false)],
            [true, false, false]
        );
    }

    /// Otherwise it would be chance whether a trial of a plan fails, is undecided or INVALID.
    #[test]
    fn a_trial_that_missed_the_expectations_stands_for_its_level() {
        use StepOutcome::{Invalid, Met, Missed, Undecided};
        let of = |outcomes: &[StepOutcome], met: bool| {
            let at =
                |level: u64, outcome: StepOutcome| SearchStep { level, outcome, ..SearchStep::default() };
            let other = [at(20, Met), at(22, Missed)];
            let path: Vec<SearchStep> = outcomes.iter().map(|one| at(21, *one)).chain(other).collect();
            standing_for(&path, 21, met)
        };
        assert_eq!(of(&[Missed, Missed], false), Some(1));
        assert_eq!(of(&[Missed, Met, Undecided], false), Some(0));
        assert_eq!(of(&[Missed, Invalid], false), Some(0));
        assert_eq!(of(&[Undecided, Invalid], false), Some(0));
        assert_eq!(of(&[Invalid, Invalid], false), Some(1));
        assert_eq!((of(&[Met, Missed, Met], true), of(&[Missed], true)), (Some(2), None));
    }

    /// How many times a trial that is too short is extended at most, by a tenth or more each time, until it is
    /// [`MOST_LONGER`] times as long.
    const GROWS: u32 = 22;

    #[test]
    fn a_search_makes_no_more_trials_than_it_has_ids_for() {
        // Worst case: only one sample is missing each time.
        for level_ns in [1, 2, 9, 1_000, 10_000_000_000, u64::MAX / MOST_LONGER] {
            for needed in [2u64, 100, 1_000_000] {
                let factor = needed as f64 / (needed - 1) as f64 * judge::LONGER_BY;
                let most = level_ns.saturating_mul(MOST_LONGER);
                let (mut length_ns, mut grows) = (level_ns, 0);
                while length_ns < most {
                    length_ns = grown(length_ns, factor, most);
                    grows += 1;
                }
                assert!(grows <= GROWS, "{level_ns} ns by {factor}: {grows}");
            }
        }
        let request = |max_levels| SearchRequest {
            vary: SearchVariable::Users,
            range: (1, 1000),
            max_levels,
            load: 0,
            level_ns: 1,
            settle_ns: 0,
        };
        // Each level: one trial, repeats of INVALID ones, and repeats of those that were too short.
        assert_eq!(request(100).most_trials(), 100 * u64::from(1 + INVALID_AGAIN + GROWS));
        let last = request(100).most_trials() - 1;
        let ids = Ids::for_blocks(request(100).most_trials(), 3);
        assert!(ids.first(last as usize, 2) > ids.first(last as usize, 1), "none is dealt twice");
        assert!(ids.first(last as usize, 2) < 1 << plan::ids::ID_BITS);
    }

    #[test]
    fn an_answer_of_a_single_user_is_about_one() {
        let answer =
            |vary, level, above| describe_answer(&Answer::Most { level, above, confirmed: true }, vary, None);
        let sure = "(both measured twice)";
        let users = SearchVariable::Users;
        assert_eq!(answer(users, 1, 2), format!("1 user meets the expectations, 2 users do not {sure}"));
        assert_eq!(answer(users, 7, 8), format!("7 users meet the expectations, 8 users do not {sure}"));
        let rates = answer(SearchVariable::Rate, 1, 2);
        assert_eq!(rates, format!("1/s meet the expectations, 2/s do not {sure}"));
        let none = describe_answer(&Answer::LessThan { level: 1, is_bottom: true }, users, None);
        assert_eq!(none, "less than 1 user: even the lowest level misses the expectations");
    }
}
