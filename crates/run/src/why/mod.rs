//! `loadlab why`: what holds a system back, proven by changing one limit at a time under load.
//!
//! Runs up to four loads on one system that stays up. The first runs as planned and shows how much of each limit is
//! used. The second runs in blocks that each tighten one lever by a step, in random order and alternating with blocks
//! without a change ([`loadlab_analysis::why`]). Then either the lever that cost most is raised or, if nothing is
//! certain yet, the levers are tightened once more. Last, the stacks of the component that binds may be sampled. Each
//! kind of load is a case of the record.

mod answer;
mod blocks;
mod lever;

use loadlab_analysis::Exit;
use loadlab_analysis::trial::components::within;
use loadlab_analysis::trial::counter::During;
use loadlab_analysis::why::{Block, FEWEST_ROUNDS, call, effects, elasticity, predicted};
use loadlab_load::target::Allowed;
use loadlab_plan::{Case, EventSpec, Plan, ProfileSpec};
use loadlab_record::Histogram;
use loadlab_record::documents::manifest::{RunEnded, TrialKey};
use loadlab_record::documents::summary::Summary;
use loadlab_record::documents::why::{LeverCall, LeverFacts, WhyFacts};
use loadlab_record::store::{TrialRecord, read_run};
use loadlab_record::text::time::SECOND_NS;
use loadlab_record::text::units::format_duration_ns;
use loadlab_record::watch::evidence::Evidence;
use loadlab_system::Cancel;

use crate::begin::{allowed_of, never_began, prepare};
use crate::error::RunError;
use crate::event::{Recorded, RunEvent};
use crate::ids::Ids;
use crate::manifest::{figures_of_case, plan_dir};
use crate::options::RunOptions;
use crate::record::Record;
use crate::result::Trouble;
use crate::running_system::RunningSystem;
use crate::state::EventSink;
use crate::trial::carryover::Carried;
use crate::trial::{Conditions, Trial};
use crate::why::answer::{Headroom, found, headroom, is_apart, next_bottleneck, used};
use crate::why::blocks::{Blocks, Change, WARM_UP_S, as_load, rounds_s, rounds_within};
use crate::why::lever::{Lever, Levers, Usage, levers, with_limits_of_engine};
use crate::{host, logs};

/// Names of the loads in the record.
const AS_PLANNED: &str = "as planned";
const LESS: &str = "one step less";
const MORE: &str = "more of the first";
const FUNCTIONS: &str = "functions of the first";
/// Maximum number of loads: as planned; tightened; raised or tightened once more; and the one whose stacks are sampled.
const MOST_LOADS: u64 = 4;
/// How long the load as planned is measured.
const MEASURED_S: u64 = 6;
/// How long stacks of the component that binds are sampled, and the minimum budget that leaves time for it.
const PROFILED_S: u64 = 8;
const PROFILED_FROM_S: u64 = 120;
/// Share of the budget for tightening, if something can be raised.
const LESS_SHARE: f64 = 0.6;

/// The settings of a proof.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhyRequest {
    /// Time budget for all loads together.
    pub budget_ns: u64,
    /// Length of a block in seconds; at least 2.
    pub block_s: u64,
    /// See [`WhyFacts::margin`].
    pub margin: f64,
    /// See [`WhyFacts::seed`].
    pub seed: u64,
}

/// The result of a proof.
pub struct WhyResult {
    /// The record's folder.
    pub dir: std::path::PathBuf,
    /// How the run ended.
    pub ended: RunEnded,
    /// The findings as recorded.
    pub facts: WhyFacts,
    /// Why it ended early, if it did.
    pub trouble: Option<String>,
    /// The exit code for the run as a whole.
    pub exit: Exit,
}

/// Why a plan's loads cannot run in blocks, and a hint; `None` if they can.
pub fn unfit(case: &Case) -> Option<(String, &'static str)> {
    if let Some(load) = case.loads.iter().find(|load| load.command().is_some()) {
        let hint = "use a load that loadlab sends";
        return Some((format!("`{}` is made by a command, which cannot be held steady", load.name), hint));
    }
    let load = case.loads.iter().find(|load| !load.stages.is_empty())?;
    let hint = "a profile of the plan can give it constant `users` or a `rate`: --profile";
    Some((format!("`{}` has stages, but blocks are compared under a steady load", load.name), hint))
}

/// Measures what each lever of the plan's only case costs.
///
/// # Errors
/// Nothing could be measured: a target is not allowed, the record cannot be created, a build failed.
pub fn why(
    plan: &Plan,
    request: &WhyRequest,
    options: &RunOptions,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<WhyResult, RunError> {
    let emit: EventSink<'_> = &|event: RunEvent| emit(event.masked(&options.secrets));
    let Some(base) = plan.cases().first() else {
        return Err(RunError::NotUp("the plan has no case".to_owned()));
    };
    let allowed = allowed_of(plan, options)?;
    let facts = WhyFacts {
        case: base.name.clone(),
        seed: request.seed,
        block_s: request.block_s,
        margin: request.margin,
        ..WhyFacts::default()
    };
    let mut record = Record::begin_why(plan, options, facts.clone())?;
    emit(RunEvent::Recording {
        dir: options.out.clone(),
        count: MOST_LOADS as usize,
        of: Recorded::Loads,
        at_most: true,
    });
    let mut running = match prepare(plan, options, &mut record, cancel, emit) {
        Ok(running) => running,
        Err(error) => return Err(never_began(&mut record, None, error, cancel)),
    };
    let is_up_anew = base.system.compose.is_some();
    // If the load as planned is profiled already, no extra load is needed for that.
    let is_profiled = request.budget_ns >= PROFILED_FROM_S * SECOND_NS && base.profile.is_none();
    let mut proof = Proof {
        base,
        request,
        options,
        allowed: &allowed,
        plan_dir: plan_dir(plan),
        cancel,
        emit,
        ids: Ids::for_blocks(MOST_LOADS, base.loads.len() as u64),
        carried: Carried::for_loads(if is_up_anew { 0 } else { base.loads.len() }),
        facts,
        made: 0,
        exits: Vec::new(),
        trouble: None,
        profiled_s: if is_profiled { WARM_UP_S + PROFILED_S } else { 0 },
    };
    // Which component will be sampled is not known yet when they are started.
    running.is_all_profiled = proof.profiled_s > 0;
    proof.prove(&mut record, &mut running);
    // A server that shuts down cleanly may wait for its connections to close.
    proof.carried.connect_anew(|_| true);
    let Proof { facts, exits, trouble, .. } = proof;
    Ok(end(Proved { facts, exits, trouble }, running, record, options, cancel, emit))
}

/// What the blocks have shown.
struct Proved {
    facts: WhyFacts,
    exits: Vec<Exit>,
    /// Why it could not go on.
    trouble: Option<String>,
}

/// Takes the system down and closes the record.
fn end(
    proved: Proved,
    running: RunningSystem,
    mut record: Record,
    options: &RunOptions,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> WhyResult {
    let Proved { facts, mut exits, trouble } = proved;
    if let Err(error) = running.close() {
        emit(RunEvent::Note(format!("cleanup failed: {error}\nhint: try `loadlab clean`")));
    }
    logs::mask_all(&record.dir, &options.secrets, emit);
    let ended = match (&facts.found, &trouble) {
        _ if cancel.is_cancelled() => RunEnded::Interrupted,
        (Some(_), None) => RunEnded::Complete,
        _ => RunEnded::Broken,
    };
    if cancel.is_cancelled() {
        exits.push(Exit::Interrupted);
    }
    let is_open = facts.levers.iter().all(|lever| lever.call != LeverCall::Binds)
        && facts.levers.iter().any(|lever| lever.call == LeverCall::CannotTell);
    if facts.found.is_some() && is_open {
        exits.push(Exit::Undecided);
    }
    record.set_why(&facts);
    if let Err(error) = record.end(ended) {
        exits.push(Exit::CouldNotRun);
        emit(RunEvent::Note(error.to_string()));
    }
    WhyResult { dir: options.out.clone(), ended, facts, trouble, exit: Exit::of(exits) }
}

/// A proof in progress.
struct Proof<'a> {
    base: &'a Case,
    request: &'a WhyRequest,
    options: &'a RunOptions,
    allowed: &'a Allowed,
    plan_dir: std::path::PathBuf,
    cancel: &'a Cancel,
    emit: EventSink<'a>,
    ids: Ids,
    carried: Carried,
    facts: WhyFacts,
    /// Number of loads so far.
    made: usize,
    exits: Vec<Exit>,
    /// Why it ended early, if it did.
    trouble: Option<String>,
    /// Length of the load whose stacks are sampled, in seconds; 0 if there is no such load.
    profiled_s: u64,
}

/// A load that was measured to its end.
struct Loaded {
    trial: TrialRecord,
    summary: Summary,
}

/// A load in blocks that was measured to its end.
struct Part<'a> {
    blocks: Blocks<'a>,
    trial: TrialRecord,
    measured: Vec<Block>,
}

impl Proof<'_> {
    fn prove(&mut self, record: &mut Record, running: &mut RunningSystem) {
        running.is_searching = true;
        let as_planned = as_load(self.base, AS_PLANNED, WARM_UP_S + MEASURED_S);
        let Some(first) = self.load(record, running, as_planned, &[]) else { return };
        let cores = host::cores() as f64;
        let own_limit = |name: &str| running.component(name).and_then(|c| c.limits().cpu_cores);
        let base = with_limits_of_engine(self.base, own_limit);
        let usage = |name: &str| usage(&first, name);
        let all = levers(&base, &usage, cores);
        let Levers { found: levers, not_tried, others_have_room } = all;
        self.facts.not_tried = not_tried;
        if levers.is_empty() && self.facts.not_tried.is_empty() {
            let hint = "name what can be changed in `levers`";
            return self.give_up(format!("the plan has no components to change\nhint: {hint}"));
        }
        if levers.is_empty() {
            let (found, exit) = answer::nothing_tried(&self.facts.not_tried, others_have_room);
            self.facts.found = Some(found);
            self.exits.push(exit);
            return;
        }
        let most_raises = levers.iter().map(|lever| lever.more.len()).max().unwrap_or(0);
        let Some((rounds, left_s)) = self.rounds(levers.len(), most_raises) else { return };
        let Some((order, left_s)) = self.tighten(record, running, &levers, rounds, left_s) else { return };
        self.facts.found = Some(found(&self.facts));
        let next = headroom(&base, &usage, self.facts.levers.first());
        let raises = order.first().filter(|place| {
            self.facts.levers[0].call == LeverCall::Binds && !levers[**place].more.is_empty()
        });
        if let Some(place) = raises {
            self.raise(record, running, (&base, &levers[*place]), left_s, next);
        } else if self.facts.levers[0].call == LeverCall::Binds {
            let why = match self.facts.levers[0].kind.as_str() {
                "cpu" => {
                    "there is no limit to raise, it is as high as the machine, or one thread cannot use more"
                }
                "delay" => "a shorter delay would be less than its jitter",
                _ => "the plan names no higher value of it",
            };
            self.facts.levers[0].not_raised = Some(why.to_owned());
        }
        self.facts.found = Some(found(&self.facts));
        self.profile(record, running);
    }

    /// Profiles the component that binds, under the load as planned: where its CPU time goes, and where its threads
    /// wait.
    fn profile(&mut self, record: &mut Record, running: &mut RunningSystem) {
        // The system is then down or about to be.
        if self.cancel.is_cancelled() || self.trouble.is_some() {
            return;
        }
        let first = &self.facts.levers[0];
        let component = first.component.clone().filter(|_| first.call == LeverCall::Binds);
        let (Some(component), length_s @ 1..) = (component, self.profiled_s) else { return };
        let mut case = as_load(self.base, FUNCTIONS, length_s);
        case.profile = Some(ProfileSpec { on_wait: true, ..ProfileSpec::of(vec![component]) });
        // Whatever becomes of this load, what was proven remains valid.
        let (trouble, exits) = (self.trouble.clone(), self.exits.len());
        match self.load(record, running, case, &[]) {
            Some(_) => self.facts.profiled = Some(FUNCTIONS.to_owned()),
            None => self.trouble = trouble,
        }
        if !self.cancel.is_cancelled() {
            self.exits.truncate(exits);
        }
    }

    /// The number of rounds for tightening levers, and the seconds left for raising one; `None` if the budget is too
    /// small.
    fn rounds(&mut self, levers: usize, raises: usize) -> Option<(u32, u64)> {
        let overhead_s = 2 * WARM_UP_S + WARM_UP_S + MEASURED_S;
        let mut left_s = (self.request.budget_ns / SECOND_NS).saturating_sub(overhead_s);
        let block_s = self.request.block_s;
        let rounds_s = |changes: usize| rounds_s(u64::from(FEWEST_ROUNDS), changes, block_s);
        let fewest_s = rounds_s(levers);
        let raise_s = if raises > 0 { rounds_s(1) } else { 0 };
        // If time is short, raising the lever takes precedence over profiling it.
        if left_s < fewest_s + raise_s + self.profiled_s {
            self.profiled_s = 0;
        }
        left_s = left_s.saturating_sub(self.profiled_s);
        if left_s < fewest_s {
            let budget = format_duration_ns(((fewest_s + overhead_s) * SECOND_NS) as f64);
            self.give_up(format!(
                "{} in blocks of {} s need a budget of {budget} for {FEWEST_ROUNDS} rounds\nhint: --budget {}s",
                if levers == 1 { "changes of one lever".to_owned() } else { format!("changes of {levers} levers") },
                self.request.block_s,
                fewest_s + overhead_s
            ));
            return None;
        }
        // Finding out what binds takes precedence over what more of it would bring.
        let share = if raises > 0 { LESS_SHARE } else { 1.0 };
        let less_s = ((left_s as f64 * share) as u64).min(left_s.saturating_sub(raise_s)).max(fewest_s);
        let rounds = rounds_within(less_s, levers, block_s);
        Some((u32::try_from(rounds).unwrap_or(u32::MAX), left_s - less_s))
    }

    /// Tightens each lever in turn, and once more with the time that is left if nothing is certain yet. Returns the
    /// levers' indices, most costly first, and the seconds left.
    fn tighten(
        &mut self,
        record: &mut Record,
        running: &mut RunningSystem,
        levers: &[Lever],
        rounds: u32,
        left_s: u64,
    ) -> Option<(Vec<usize>, u64)> {
        let mut parts = vec![self.run_tightened_load(record, running, levers, 0, rounds)?];
        let order = self.conclude(levers, &parts);
        let again = rounds_within(left_s.saturating_sub(WARM_UP_S), levers.len(), self.request.block_s);
        let is_open = self.facts.levers.iter().any(|lever| lever.call == LeverCall::CannotTell)
            && self.facts.levers.iter().all(|lever| lever.call != LeverCall::Binds);
        if !is_open || again == 0 {
            return Some((order, left_s));
        }
        let again = u32::try_from(again).unwrap_or(u32::MAX);
        // This is known already, whatever becomes of the rest.
        self.facts.found = Some(found(&self.facts));
        parts.push(self.run_tightened_load(record, running, levers, rounds, again)?);
        Some((self.conclude(levers, &parts), 0))
    }

    /// Runs one load in blocks that each tighten one lever; `before` is the number of earlier rounds.
    fn run_tightened_load<'b>(
        &mut self,
        record: &mut Record,
        running: &mut RunningSystem,
        levers: &'b [Lever],
        before: u32,
        rounds: u32,
    ) -> Option<Part<'b>> {
        let changes = levers.iter().map(|lever| Change { lever, setting: &lever.less }).collect();
        let seed = self.request.seed.wrapping_add(u64::from(before));
        let blocks = Blocks::new(changes, rounds, self.request.block_s, seed).after(before);
        self.blocks(record, running, LESS, blocks)
    }

    /// Draws conclusions from the blocks so far. Returns the levers' indices, most costly first.
    fn conclude(&mut self, levers: &[Lever], parts: &[Part<'_>]) -> Vec<usize> {
        let measured: Vec<&[Block]> = parts.iter().map(|part| part.measured.as_slice()).collect();
        let controls = measured.iter().copied().flatten().filter(|block| block.change.is_none());
        let controls: Vec<f64> = controls.map(|block| block.goodput_per_s).collect();
        self.facts.goodput_per_s =
            (!controls.is_empty()).then(|| controls.iter().sum::<f64>() / controls.len() as f64);
        self.facts.p99_ms = p99_ms(parts, None);
        let effects = effects(&measured, levers.len());
        let mut found: Vec<(usize, LeverFacts)> =
            levers.iter().map(|l| l.facts.clone()).enumerate().collect();
        for ((place, facts), effect) in found.iter_mut().zip(effects) {
            facts.goodput = effect;
            facts.elasticity = effect.map(|effect| elasticity(effect, facts.factor));
            facts.p99_ms = p99_ms(parts, Some(*place));
            facts.call = effect.map_or(LeverCall::CannotTell, |e| call(e, self.request.margin));
        }
        // Levers that certainly bind come before levers that may cost more.
        let cost = |facts: &LeverFacts| facts.goodput.map_or(f64::INFINITY, |goodput| goodput.value);
        let binds = |facts: &LeverFacts| facts.call == LeverCall::Binds;
        found.sort_by(|(_, a), (_, b)| binds(b).cmp(&binds(a)).then(cost(a).total_cmp(&cost(b))));
        let (order, levers): (Vec<usize>, Vec<LeverFacts>) = found.into_iter().unzip();
        self.facts.is_first_apart = match levers.as_slice() {
            [first, others @ ..] => others.iter().all(|other| is_apart(first, other)),
            [] => true,
        };
        self.facts.levers = levers;
        order
    }

    /// Raises the lever that cost most.
    fn raise(
        &mut self,
        record: &mut Record,
        running: &mut RunningSystem,
        (base, lever): (&Case, &Lever),
        most_s: u64,
        next: Option<Headroom>,
    ) {
        let block_s = self.request.block_s;
        let fits = |raises: usize| rounds_s(u64::from(FEWEST_ROUNDS), raises, block_s) <= most_s;
        let Some(raises) = (1..=lever.more.len()).rev().find(|raises| fits(*raises)) else {
            self.facts.levers[0].not_raised = Some("the budget was too short".to_owned());
            return;
        };
        let settings = &lever.more[..raises];
        let changes = settings.iter().map(|setting| Change { lever, setting }).collect();
        let rounds = rounds_within(most_s, raises, self.request.block_s);
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        let blocks = Blocks::new(changes, rounds, self.request.block_s, self.request.seed ^ 1);
        let Some(part) = self.blocks(record, running, MORE, blocks) else { return };
        let effects = effects(&[&part.measured], raises);
        let samples = part.trial.samples.by_component();
        let less = &self.facts.levers[0];
        let of = |(place, effect): (usize, Option<loadlab_record::documents::why::Effect>)| {
            let mut raised = settings[place].raised();
            raised.goodput = effect;
            raised.p99_ms = p99_ms(std::slice::from_ref(&part), Some(place));
            raised.used = used(base, &part.blocks.cores(place, &samples), lever, raised.factor);
            if place == 0 {
                let most = next.as_ref().map(|next| next.goodput);
                let (factor, to) = (lever.less.factor, raised.factor);
                let predict = |goodput| predicted(goodput, factor, to, most, effect);
                raised.predicted = less.goodput.map(predict);
                let both = raised.predicted.zip(effect);
                raised.is_as_predicted =
                    both.map(|(predicted, e)| (predicted.low..=predicted.high).contains(&e.value));
            }
            raised
        };
        let raised = effects.into_iter().enumerate().map(of).collect();
        self.facts.levers[0].raised = raised;
        self.facts.next = next_bottleneck(&self.facts.levers[0], next);
    }

    /// Runs a load in blocks; afterwards everything is as planned again.
    fn blocks<'b>(
        &mut self,
        record: &mut Record,
        running: &mut RunningSystem,
        name: &str,
        mut blocks: Blocks<'b>,
    ) -> Option<Part<'b>> {
        let mut case = as_load(self.base, name, blocks.length_s);
        // Only the load as planned is profiled: here profiling would be one more change.
        case.profile = None;
        case.events = blocks.events();
        let Loaded { trial, .. } = self.load(record, running, case, &blocks.restore())?;
        let facts = blocks.measure(name, &trial, self.base.loads.len());
        let measured = blocks.measured(&facts);
        self.facts.blocks.extend(facts);
        Some(Part { blocks, trial, measured })
    }

    fn load(
        &mut self,
        record: &mut Record,
        running: &mut RunningSystem,
        case: Case,
        restore: &[EventSpec],
    ) -> Option<Loaded> {
        let opened = record.begin_level(&case).and_then(|key| Ok((record.begin_trial(key)?, key)));
        let (writer, key) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.exits.push(Exit::CouldNotRun);
                self.trouble = Some(error.to_string());
                return None;
            }
        };
        (self.emit)(RunEvent::TrialStarted {
            case: case.name.clone(),
            trial: key.trial,
            place: self.made + 1,
            of: MOST_LOADS as usize,
            at_most: true,
            cpu_limits: crate::limits::cpu_limits(&case),
            figures: figures_of_case(&case),
        });
        let state = record.state(writer, self.cancel, running);
        let conditions = Conditions { has_viewer: self.options.has_viewer, ..Conditions::default() };
        let trial = Trial {
            index: 0,
            place: self.made,
            ids: self.ids,
            case: &case,
            conditions: &conditions,
            plan_dir: &self.plan_dir,
            allowed: self.allowed,
            threads: self.options.threads,
            generator: &self.options.generator,
            senders: None,
            level: None,
            carried: Some(&self.carried),
            watch: &self.options.watch,
            restore,
        };
        self.made += 1;
        let outcome = trial.run(running, &state, &without_changes(self.emit)).masked(&self.options.secrets);
        let unwritten = state.unwritten();
        // The system stays up for the next load.
        let next = (!self.cancel.is_cancelled()).then_some(0);
        if next.is_none() {
            self.carried.connect_anew(|_| true);
        }
        let left = running.end_trial(next, false, &state);
        logs::mask_ended(&state, &running.open_logs(), self.emit);
        (self.emit)(RunEvent::TrialEnded {
            figures: figures_of_case(&case),
            case: case.name.clone(),
            trial: key.trial,
            summary: outcome.summary.clone().map(Box::new),
            failure: outcome.failure.clone(),
        });
        drop(state);
        self.exits.push(outcome.exit);
        if let Some(Trouble { why, exit }) = left.into_iter().next() {
            self.exits.push(exit);
            self.trouble = Some(why);
            return None;
        }
        match (outcome.summary, outcome.failure.or(unwritten.map(|e| e.to_string()))) {
            (Some(summary), None) if !self.cancel.is_cancelled() => self.read(record, key, summary),
            (_, why) => {
                self.trouble = why.filter(|_| !self.cancel.is_cancelled());
                None
            }
        }
    }

    /// Reads back what a load has recorded.
    fn read(&mut self, record: &Record, key: TrialKey, summary: Summary) -> Option<Loaded> {
        let read = read_run(&record.dir).map_err(|error| error.to_string());
        let trial = read.map(|mut run| {
            run.cases.swap_remove(key.case).trials.into_iter().find(|trial| trial.number == key.trial)
        });
        match trial {
            Ok(Some(trial)) => Some(Loaded { trial, summary }),
            Ok(None) => {
                self.exits.push(Exit::CouldNotRun);
                self.trouble = Some("the record lacks what was just measured".to_owned());
                None
            }
            Err(error) => {
                self.exits.push(Exit::CouldNotRun);
                self.trouble = Some(error);
                None
            }
        }
    }

    fn give_up(&mut self, why: String) {
        self.exits.push(Exit::BadPlan);
        self.trouble = Some(why);
    }
}

/// Drops events for successful changes: the user asked for a hundred of them, and only a failed one is news.
fn without_changes(emit: EventSink<'_>) -> impl Fn(RunEvent) + Sync {
    move |event| {
        if !matches!(event, RunEvent::Acted { error: None, .. }) {
            emit(event);
        }
    }
}

/// 99th percentile of all response times under a change, in milliseconds; `None` if it is unknown or lies among
/// requests that never ended.
fn p99_ms(parts: &[Part<'_>], change: Option<usize>) -> Option<f64> {
    let (mut all, mut censored) = (Histogram::new(), Histogram::new());
    for part in parts {
        part.blocks.times(change, &part.trial, &mut all, &mut censored);
    }
    let least_censored = censored.min_ns();
    all.merge(&censored);
    let p99_ns = all.quantile_ns(0.99)?;
    least_censored.is_none_or(|least| p99_ns < least).then_some(p99_ns as f64 / 1e6)
}

/// CPU use of a component and of its busiest thread in the seconds in which the load as planned is measured: while it
/// ramps up, less of every limit is used.
fn usage(as_planned: &Loaded, name: &str) -> Usage {
    let Loaded { trial, summary } = as_planned;
    let measured = During { from_s: WARM_UP_S as f64, to_s: (WARM_UP_S + MEASURED_S) as f64 };
    let of_load = || summary.components.get(name)?.cpu_percent.mean;
    let percent = within(&trial.samples.unpacked(), name, measured).cpu_percent.mean.or_else(of_load);
    let is_measured = |line: &&Evidence| measured.has(f64::midpoint(line.from_s, line.to_s));
    let lines = trial.evidence.iter().filter(is_measured);
    let threads = lines.flat_map(|line| line.threads.iter().filter(|threads| threads.component == name));
    let busiest: Vec<f64> = threads.filter_map(|threads| threads.busiest_cores).collect();
    let mean = (!busiest.is_empty()).then(|| busiest.iter().sum::<f64>() / busiest.len() as f64);
    Usage { cores: percent.map(|percent| percent / 100.0), busiest_cores: mean }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::watch::evidence::Threads;
    use loadlab_record::watch::sample::Sample;

    use super::*;

    /// A component that is idle while the load ramps up, and again once it is over.
    #[test]
    fn how_much_is_used_is_measured_once_the_load_has_warmed_up() {
        let (from_s, to_s) = (WARM_UP_S as f64, (WARM_UP_S + MEASURED_S) as f64);
        let mut trial = TrialRecord::empty(1, std::path::PathBuf::new());
        let sample = |at_s: f64| Sample {
            at_s,
            component: "web".to_owned(),
            cpu_s: Some(0.5 * (at_s.min(to_s) - from_s).max(0.0)),
            ..Sample::default()
        };
        trial.samples = (0..=to_s as u64 + 1).map(|second| sample(second as f64)).collect();
        let line = |second: u64| {
            let at_s = second as f64;
            let busiest = if (from_s..to_s).contains(&at_s) { 0.5 } else { 0.0 };
            let component = "web".to_owned();
            let threads = vec![Threads { component, busiest_cores: Some(busiest), ..Threads::default() }];
            Evidence { from_s: at_s, to_s: at_s + 1.0, threads, ..Evidence::default() }
        };
        trial.evidence = (0..=to_s as u64).map(line).collect();
        let loaded = Loaded { trial, summary: summarise(TrialInput::default()) };
        let used = usage(&loaded, "web");
        assert_eq!((used.cores, used.busiest_cores), (Some(0.5), Some(0.5)));
        assert_eq!(usage(&loaded, "db").cores, None);
    }
}
