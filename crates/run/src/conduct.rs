//! The conductor: runs a plan from its builds to its last trial. [`conduct`] is the whole story of a run; that of a
//! single trial is in [`crate::trial`].

use std::time::Instant;

use loadlab_analysis::scaling::search::Search;
use loadlab_analysis::{Exit, conclude_search};
use loadlab_load::target::Allowed;
use loadlab_plan::{Case, FindSpec, Plan};
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::manifest::RunEnded;
use loadlab_record::documents::search::most_measurements;
use loadlab_record::expr::{Expr, Figure};
use loadlab_record::store::StoreError;
use loadlab_system::{Cancel, Isolation, Net, System, SystemSpec, guardian};

use crate::event::RunEvent;
use crate::manifest::{Record, TrialSummaries, figures_of_case, plan_dir};
use crate::options::RunOptions;
use crate::result::{RunResult, TrialEnd};
use crate::search::{SearchRequest, SearchTask, Searched};
use crate::settling::{Settling, rounds_in_random_order};
use crate::site::RunningSystem;
use crate::site::durability::Ids;
use crate::site::error::SiteError;
use crate::state::{EventSink, TrialState};
use crate::translate::error::TranslateError;
use crate::translate::{check_targets, journey, urls};
use crate::trial::{Conditions, Trial, TrialOutcome};
use crate::{limits, logs, needs, settling};

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The record cannot be created, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system cannot be prepared, or a build failed.
    #[error("{0}")]
    NotUp(String),
    /// A target may not be loaded or does not resolve.
    #[error(transparent)]
    Target(#[from] TranslateError),
    /// An expression in the plan is invalid.
    #[error("{file}:{line}:{column}: {error}")]
    Expression {
        /// Path of the plan file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong with the expression.
        error: loadlab_record::expr::ExprError,
    },
    /// A figure in the plan is invalid.
    #[error("figure `{name}`: {error}")]
    Figure {
        /// Name of the figure.
        name: String,
        /// What is wrong with its expression.
        error: loadlab_record::expr::ExprError,
    },
    /// Trials are to run until it is certain how the cases differ, but the allowed rounds cannot settle that.
    #[error("{0}")]
    NeverSettled(String),
    /// A file that the plan needs is missing or invalid.
    #[error(transparent)]
    Plan(#[from] loadlab_plan::PlanErrors),
    /// The run was interrupted before the first trial.
    #[error("interrupted before the first trial")]
    Interrupted,
}

impl RunError {
    /// The exit code this error calls for.
    pub fn exit(&self) -> Exit {
        match self {
            RunError::Expression { .. }
            | RunError::Figure { .. }
            | RunError::NeverSettled(_)
            | RunError::Plan(_) => Exit::BadPlan,
            RunError::Target(error) if !error.is_target() => Exit::BadPlan,
            RunError::Target(_) => Exit::CouldNotRun,
            RunError::Store(error) if error.is_in_the_way() => Exit::BadPlan,
            RunError::Store(_) => Exit::CouldNotRun,
            RunError::NotUp(_) => Exit::NotUp,
            RunError::Interrupted => Exit::Interrupted,
        }
    }
}

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
    settling::check(plan).map_err(RunError::NeverSettled)?;
    let (mut record, kept) = match options.resumes {
        true => Record::resume(plan, options)?,
        false => (Record::begin(plan, options)?, TrialSummaries::new()),
    };
    let schedule = match &record.manifest().until_certain {
        Some(until) => rounds_in_random_order(plan.cases().len(), plan.trials, until.seed),
        None => plan.schedule(),
    };
    let settling = Settling::of(record.manifest());
    let is_missing = |place: &usize| !kept.contains_key(&schedule[*place]);
    let missing: Vec<usize> = (0..schedule.len()).filter(is_missing).collect();
    let at_most = settling.is_some();
    emit(RunEvent::Recording { dir: options.out.clone(), trials: missing.len(), at_most });
    if options.resumes {
        let (there, all) = (schedule.len() - missing.len(), schedule.len());
        emit(RunEvent::Note(format!("{there} of {all} trials are there; the others are made now")));
    }

    let mut site = match prepare(plan, options, &mut record, cancel, emit) {
        Ok(site) => site,
        Err(error) => {
            let first = missing.first().map(|place| &schedule[*place]);
            return Err(never_began(&mut record, first, error, cancel));
        }
    };
    let has_kept = !kept.is_empty();
    let done = Done::before(plan, &schedule, kept);
    // The time budget starts here, so builds do not count.
    let began = Instant::now();
    let mut conductor =
        Conductor { plan, options, conditions, allowed, record, cancel, emit, done, settling, began };
    if has_kept {
        // Rounds in the resumed record may have settled some comparisons. Settled cases need no more trials, so the
        // next round may be a later one, made only for the other cases; or no round may be left.
        let before = |next: Option<&usize>| next.map_or(plan.trials, |place| schedule[*place].1 - 1);
        conductor.judge(before(missing.first()));
        let next = missing.iter().find(|place| conductor.wants(schedule[**place].0));
        if next != missing.first() {
            conductor.judge(before(next));
        }
    }
    for (number, place) in missing.iter().enumerate() {
        if cancel.is_cancelled() || conductor.done.is_record_lost {
            break;
        }
        let (case, round) = schedule[*place];
        if !conductor.wants(case) {
            continue;
        }
        let rest = &missing[number + 1..];
        let next = rest.iter().copied().find(|place| conductor.wants(schedule[*place].0));
        conductor.trial(&mut site, &schedule, *place, next);
        if !cancel.is_cancelled() && next.is_none_or(|place| schedule[place].1 > round) {
            conductor.round_made(round);
        }
    }
    Ok(conductor.end(site))
}

/// Where loads may go. Every target the plan names is checked against this before anything is created.
///
/// # Errors
/// A target may not be loaded or does not resolve, or a URL list is invalid.
pub fn allowed_of(plan: &Plan, options: &RunOptions) -> Result<Allowed, RunError> {
    let hosts = [plan.allow_hosts.as_slice(), &options.allow_hosts].concat();
    let allowed = Allowed { hosts, resolved: options.resolved.clone(), ..Allowed::default() };
    check_targets(plan.cases(), &allowed)?;
    urls::check(plan, &plan_dir(plan), &allowed)?;
    Ok(allowed)
}

/// Does everything that precedes the first trial: guardian, cgroups, scratch folder, builds.
///
/// # Errors
/// Something could not be prepared.
pub fn prepare(
    plan: &Plan,
    options: &RunOptions,
    record: &mut Record,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<RunningSystem, RunError> {
    if plan.isolate != loadlab_plan::Isolation::None {
        // Check this before anything is built.
        Net::check().map_err(SiteError::from)?;
    }
    let guardian = guardian::spawn(&options.exe, &options.guardian_arg).map_err(SiteError::from)?;
    let name = record.dir.file_name().map_or_else(|| plan.name.clone(), |n| n.to_string_lossy().into_owned());
    // Runs in different folders may share a name and run at the same time: the pid distinguishes them.
    let run_id = format!("{name}-{}", std::process::id());
    let spec = SystemSpec::new(&run_id, &record.dir, &record.dir.join("scratch"), Some(guardian));
    let spec = SystemSpec { exe: Some(options.exe.clone()), secrets: options.secrets.clone(), ..spec };
    let (system, notices) = System::new(spec).map_err(SiteError::from)?;
    let mut site = RunningSystem::new(system, notices, &record.dir);
    record.host(site.cgroup_version())?;
    for missing in site.unavailable() {
        emit(RunEvent::Note(format!("{}: {}", missing.what, missing.why)));
    }
    needs::check(plan, &site)?;
    if !options.is_built {
        site.build(plan.cases(), cancel, &mut record.builds, emit)?;
    }
    if let Some(net) = isolated(plan)? {
        site.isolate(net);
    }
    journey::check_feeds(plan, &plan_dir(plan))?;
    Ok(site)
}

/// Enters the run's own network, if the plan wants one. This thread moves into it, and so do all threads started from
/// here on: load, watcher and probes. Builds are done by then: they may need the outside network.
fn isolated(plan: &Plan) -> Result<Option<Net>, RunError> {
    let isolation = match plan.isolate {
        loadlab_plan::Isolation::None => return Ok(None),
        loadlab_plan::Isolation::Shared => Isolation::Shared,
        loadlab_plan::Isolation::Each => Isolation::Each,
    };
    Ok(Some(Net::enter(isolation).map_err(SiteError::from)?))
}

/// Records in the first trial's folder why not even that trial could start, so that a later report shows it.
pub fn never_began(
    record: &mut Record,
    first: Option<&(usize, u32)>,
    error: RunError,
    cancel: &Cancel,
) -> RunError {
    let error = if cancel.is_cancelled() { RunError::Interrupted } else { error };
    logs::mask_all(&record.dir, record.secrets(), &|_| {});
    if let Some(writer) = first.and_then(|(case, trial)| record.trial(*case, *trial).ok()) {
        let state = TrialState::new(Some(writer), cancel.clone(), record.secrets().clone());
        std::mem::take(&mut record.builds).into_iter().for_each(|(at_ns, what)| state.event_at(at_ns, what));
        state.settle_clock();
        state.event(EventKind::Failed { text: error.to_string() });
    }
    let ended = if cancel.is_cancelled() { RunEnded::Interrupted } else { RunEnded::Broken };
    match record.end(ended) {
        Err(unwritten) if !cancel.is_cancelled() => RunError::Store(unwritten),
        _ => error,
    }
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
    done: Done,
    /// Set if trials run until it is certain how the cases differ.
    settling: Option<Settling>,
    /// When the first trial was about to start.
    began: Instant,
}

/// Results of the trials so far.
#[derive(Default)]
struct Done {
    trials: Vec<TrialEnd>,
    exits: Vec<Exit>,
    /// Cases that failed to come up: retrying them would only wait for the same deadline.
    given_up: Vec<GivenUp>,
    is_record_lost: bool,
}

/// A case that is not tried again.
struct GivenUp {
    case: usize,
    why: String,
    exit: Exit,
}

impl Done {
    /// The trials kept from a resumed record, in schedule order.
    fn before(plan: &Plan, schedule: &[(usize, u32)], mut kept: TrialSummaries) -> Done {
        let mut done = Done::default();
        for (case, trial) in schedule {
            let Some(summary) = kept.remove(&(*case, *trial)) else { continue };
            done.exits.push(Exit::of_summary(&summary));
            let (case, summary) = (plan.cases()[*case].name.clone(), Some(summary));
            done.trials.push(TrialEnd { case, trial: *trial, summary, failure: None });
        }
        done
    }
}

impl Done {
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
        self.settling.as_ref().is_none_or(|settling| settling.wants(case))
    }

    fn round_made(&mut self, round: u32) {
        if let Some(settling) = &mut self.settling {
            settling.round_made();
        }
        self.judge(round);
    }

    /// After a round: reports how close the comparisons are and decides which cases need another round.
    fn judge(&mut self, round: u32) {
        let given_up = |case: usize| self.done.given_up.iter().any(|given_up| given_up.case == case);
        if let Some(settling) = &mut self.settling {
            let elapsed_s = self.began.elapsed().as_secs_f64();
            (self.emit)(settling.judge(round, elapsed_s, &self.done.trials, &given_up));
        }
    }

    /// Runs one trial, from creating its folder to the end of everything that lived for it.
    fn trial(
        &mut self,
        site: &mut RunningSystem,
        schedule: &[(usize, u32)],
        place: usize,
        next: Option<usize>,
    ) {
        let (index, number) = schedule[place];
        let case = &self.plan.cases()[index];
        let event = RunEvent::TrialStarted {
            case: case.name.clone(),
            trial: number,
            place: place + 1,
            of: schedule.len(),
            at_most: self.settling.is_some(),
            cpu_limits: limits::cpu_limits(case),
            figures: figures_of_case(case),
        };
        (self.emit)(event);
        let given_up = || self.done.given_up.iter().any(|given_up| given_up.case == index);
        if let Some(spec) = case.find.as_ref().filter(|_| !given_up()) {
            let next = next.map(|place| schedule[place].0);
            let (outcome, is_record_lost) = self.search(site, schedule, place, spec, next);
            return self.add(index, number, outcome, is_record_lost);
        }
        let writer = match self.record.trial(index, number) {
            Ok(writer) => writer,
            Err(error) => return self.add(index, number, lost(&error), true),
        };
        let state = self.record.state(writer, self.cancel, site);
        let given_up = self.done.given_up.iter().find(|given_up| given_up.case == index);
        let mut outcome = match (given_up, limits::settle(case, self.plan.cases(), &self.done.trials)) {
            (Some(given_up), _) => skipped(&state, given_up),
            (None, Err(why)) => unsettled(&state, why),
            (None, Ok(settled)) => {
                for line in settled.iter().flat_map(|s| &s.words) {
                    state.event(EventKind::Note { text: line.clone() });
                }
                let case = settled.as_ref().map_or(case, |s| &s.case);
                let (conditions, allowed) = (&self.conditions[index], &self.allowed);
                let (plan_dir, threads) = (&plan_dir(self.plan), self.options.threads);
                let ids = Ids::of(self.plan.cases(), schedule.len());
                let (carried, watch) = (None, &self.options.watch);
                let generator = &self.options.generator;
                let senders = self.options.senders.as_deref();
                let trial = Trial {
                    index,
                    place,
                    ids,
                    case,
                    conditions,
                    plan_dir,
                    allowed,
                    threads,
                    generator,
                    senders,
                    level: None,
                    carried,
                    watch,
                    restore: &[],
                };
                trial.run(site, &state, self.emit)
            }
        };
        let is_last = self.cancel.is_cancelled() || state.unwritten().is_some();
        let next = next.map(|place| schedule[place].0).filter(|_| !is_last);
        let failed = outcome.failure.is_some();
        outcome.and_then(site.end_trial(next, failed, &state));
        state.notices(&site.notices, self.emit);
        logs::mask_ended(&state, &site.open_logs(), self.emit);
        outcome.and_then(state.trouble().map(|t| (t.describe(), t.exit())));
        self.add(index, number, outcome, state.unwritten().is_some());
    }

    /// Runs a trial that searches for its case's capacity, starting near what the previous search found.
    fn search(
        &mut self,
        site: &mut RunningSystem,
        schedule: &[(usize, u32)],
        place: usize,
        spec: &FindSpec,
        next: Option<usize>,
    ) -> (TrialOutcome, bool) {
        let (index, number) = schedule[place];
        let case = &self.plan.cases()[index];
        let request = SearchRequest::from(spec);
        let settled = match limits::settle(case, self.plan.cases(), &self.done.trials) {
            Ok(settled) => settled,
            Err(why) => {
                return match self.record.trial(index, number) {
                    Ok(writer) => {
                        let state = self.record.state(writer, self.cancel, site);
                        (unsettled(&state, why), state.unwritten().is_some())
                    }
                    Err(error) => (lost(&error), true),
                };
            }
        };
        let notes: Vec<String> = settled.iter().flat_map(|s| &s.words).cloned().collect();
        let searches = self.plan.cases().iter().filter_map(|case| case.find.as_ref());
        let most = searches.map(|find| most_measurements(find.max_levels)).max().unwrap_or(1);
        let parts = self.plan.cases().iter().map(|case| case.loads.len() as u64).max().unwrap_or(1);
        let task = SearchTask {
            plan: self.plan,
            base: settled.as_ref().map_or(case, |s| &s.case),
            request: &request,
            options: self.options,
            conditions: &self.conditions[index].of_levels(),
            allowed: &self.allowed,
            cancel: self.cancel,
            emit: self.emit,
            ids: Ids::for_blocks(most.saturating_mul(schedule.len() as u64), parts),
            first_place: place * most as usize,
            trial: Some((index, number)),
            notes: &notes,
        };
        let search =
            Search::new(request.range.0, request.range.1, request.max_levels).dithered(u64::from(number));
        let search = match self.done.found_last(&case.name) {
            Some(level) => search.starting_at(level),
            None => search,
        };
        let searched = task.run(search, &mut self.record, site);
        let is_last = self.cancel.is_cancelled() || searched.is_record_lost;
        let (failed, is_unwritten) = (searched.trouble.is_some(), searched.is_record_lost);
        site.end_search(case);
        // Logs of components that end now belong to the trial; nothing else is recorded of their end but failures.
        let state = TrialState::new(None, self.cancel.clone(), self.record.secrets().clone());
        let left = site.end_trial(next.filter(|_| !is_last), failed, &state);
        let logs = self.record.logs_of_trial(index, number);
        for text in logs::mask_in(&logs, &self.options.secrets, &site.open_logs()) {
            (self.emit)(RunEvent::Note(text));
        }
        let (mut outcome, adopted) = self.concluded(index, searched);
        outcome.and_then(left);
        let stored = adopted.map_or(Ok(()), |measurement| {
            self.record.adopt_level(index, number, measurement, outcome.summary.as_ref())
        });
        let is_record_lost = is_unwritten || stored.is_err();
        outcome.and_then(stored.err().map(|error| (error.to_string(), Exit::CouldNotRun)));
        (outcome, is_record_lost)
    }

    /// The outcome of a trial that searched, and the measurement that becomes its record.
    fn concluded(&self, index: usize, searched: Searched) -> (TrialOutcome, Option<u32>) {
        let Searched { trouble, exit, chosen, last, answer, .. } = searched;
        if self.cancel.is_cancelled() {
            // Its levels stay as they are: no single one stands for the trial.
            let failure = Some("the search was interrupted".to_owned());
            return (TrialOutcome { summary: None, failure, exit }, None);
        }
        if trouble.is_some() || answer.is_none() {
            let failure = trouble.map_or_else(|| "nothing was measured".to_owned(), |(why, _)| why);
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

    fn add(&mut self, index: usize, trial: u32, outcome: TrialOutcome, is_record_lost: bool) {
        let TrialOutcome { summary, failure, exit } = outcome.masked(&self.options.secrets);
        let case = self.plan.cases()[index].name.clone();
        if let (None, Some(why)) = (&summary, &failure) {
            let why = why.lines().next().unwrap_or_default().to_owned();
            self.done.given_up.push(GivenUp { case: index, why, exit });
        }
        self.done.is_record_lost |= is_record_lost;
        self.done.exits.push(exit);
        let (reported, why) = (summary.clone().map(Box::new), failure.clone());
        let figures = figures_of_case(&self.plan.cases()[index]);
        let (name, summary_of) = (case.clone(), reported);
        (self.emit)(RunEvent::TrialEnded { case: name, trial, summary: summary_of, failure: why, figures });
        self.done.trials.push(TrialEnd { case, trial, summary, failure });
    }

    /// Takes the system down and closes the manifest.
    fn end(mut self, site: RunningSystem) -> RunResult {
        if let Err(error) = site.close() {
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
        let ended_by = self.settling.as_ref().and_then(Settling::ended);
        self.record.settled(ended_by);
        let settled = self.settling.take().map(Settling::into_latest).unwrap_or_default();
        if settled.iter().any(|comparison| !comparison.is_settled) {
            self.done.exits.push(Exit::Undecided);
        }
        if let Err(error) = self.record.end(ended) {
            self.done.exits.push(Exit::CouldNotRun);
            (self.emit)(RunEvent::Note(error.to_string()));
        }
        let Done { trials, exits, .. } = self.done;
        RunResult { dir: self.options.out.clone(), ended, trials, settled, exit: Exit::of(exits) }
    }
}

/// The outcome of a trial that is not run because it cannot be recorded.
fn lost(error: &StoreError) -> TrialOutcome {
    TrialOutcome { summary: None, failure: Some(error.to_string()), exit: Exit::CouldNotRun }
}

/// Records a trial that is skipped because its case was given up; it calls for the same exit as the original failure.
fn skipped(state: &TrialState, GivenUp { why, exit, .. }: &GivenUp) -> TrialOutcome {
    let text = format!("not run, because an earlier trial of this case failed: {why}");
    state.settle_clock();
    state.event(EventKind::Failed { text: text.clone() });
    TrialOutcome { summary: None, failure: Some(text), exit: *exit }
}

/// Records a trial whose limits depend on something that was not measured.
fn unsettled(state: &TrialState, why: String) -> TrialOutcome {
    state.settle_clock();
    state.event(EventKind::Failed { text: why.clone() });
    TrialOutcome { summary: None, failure: Some(why), exit: Exit::NotUp }
}

/// Parses the expressions of all cases.
///
/// # Errors
/// An expression or figure is invalid; the error says where.
pub fn conditions_of(plan: &Plan, options: &RunOptions) -> Result<Vec<Conditions>, RunError> {
    let parse = |e: &loadlab_plan::Expression| match Expr::parse(&e.text) {
        Ok(expr) => Ok(expr),
        Err(error) => Err(RunError::Expression {
            file: e.file.clone(),
            line: e.line,
            column: e.column + error.at,
            error,
        }),
    };
    let mut all = Vec::new();
    for case in plan.cases() {
        let figures = figures_of(case)?;
        let parse = |e| parse(e).map(|expr| expr.with_figures(&figures));
        all.push(Conditions {
            expect: case.expect.iter().map(parse).collect::<Result<_, _>>()?,
            stop_when: case.stop_when.iter().map(parse).collect::<Result<_, _>>()?,
            drain: case.drain.as_ref().map(|d| parse(&d.until)).transpose()?,
            find: case.find.iter().flat_map(|find| &find.expect).map(parse).collect::<Result<_, _>>()?,
            figures,
            is_watched: options.is_watched,
        });
    }
    Ok(all)
}

/// The figures of a case; each is computed from numbers alone.
fn figures_of(case: &Case) -> Result<Vec<Figure>, RunError> {
    let mut figures: Vec<Figure> = Vec::new();
    for spec in &case.figures {
        let figure = Figure::after(&figures, &spec.name, &spec.value, spec.kind);
        figures.push(figure.map_err(|error| RunError::Figure { name: spec.name.clone(), error })?);
    }
    Ok(figures)
}

impl From<SiteError> for RunError {
    fn from(error: SiteError) -> Self {
        RunError::NotUp(error.to_string())
    }
}
