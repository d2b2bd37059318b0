//! One trial: bring up, load, drain, summarise, take down.

mod actions;
pub mod carryover;
mod conditions;
pub mod measure;
mod measured;
mod program;
mod setup;
mod shown;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use loadlab_analysis::{Exit, Planned, TrialInput, summarise};
use loadlab_load::LoadSpec;
use loadlab_load::run::Origin;
use loadlab_load::target::Allowed;
use loadlab_load::target::names::Names;
use loadlab_plan::{self as plan, Case};
use loadlab_record::Secrets;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::{Ended, Generator as GeneratorUse, LoadFacts, Loss, Summary};
use loadlab_record::expr::{Expr, Figure};
use loadlab_record::watch::sample::Sample;
use loadlab_system::{
    Answering, Cancel, IdleReadings, Listening, Notice, Probe, ProfileSpec, Profiler, SampleTiming,
    TrialClock, WatchEvent, Watcher, clock, drain,
};

use crate::event::RunEvent;
use crate::level::Level;
use crate::options::Generator;
use crate::senders::{ReadySenders, RemoteLoad, Senders};
use crate::site::durability::{self, Ids, Persisted};
use crate::site::error::SiteError;
use crate::site::{Changed, RunningSystem};
use crate::state::{AbortReason, EventSink, TrialState};
use crate::translate::{self, RequestContext, hosts};
use crate::trial::actions::Actor;
use crate::trial::carryover::Carried;
use crate::trial::conditions::LiveMetrics;
use crate::trial::measure::{LEAD_NS, LoadRequest, MeasuredLoad, facts_of, measure, planned_of};
use crate::trial::measured::{Measured, add};
use crate::trial::program::{Program, Run};
use crate::trial::setup::set_up;
use crate::unanswered::unanswered;
use crate::watch::{Watch, leaves_files, unseen};

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
    pub is_watched: bool,
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

    /// Adds later trouble: it spoils a trial that went well, and contributes to the exit code of one that did not.
    pub fn and_then(&mut self, troubles: impl IntoIterator<Item = (String, Exit)>) {
        for (text, exit) in troubles {
            self.failure.get_or_insert(text);
            self.exit = Exit::of([self.exit, exit]);
        }
    }
}

/// How often components are read if the plan does not specify it.
const SAMPLE_NS: u64 = 1_000_000_000;
/// How often to check for deaths while nothing is sent.
const NOTICE_NS: u64 = 100_000_000;

/// Loads and probes with all names filled in.
struct Prepared {
    loads: Vec<Prepare>,
    probes: Vec<Probe>,
    /// How to query what was stored.
    persisted: Option<Persisted>,
    /// The addresses that its host names resolved to.
    names: Names,
}

/// How a load is made.
enum Sends {
    /// The engine sends requests.
    Requests(Box<LoadSpec>),
    /// A user's program generates the load.
    Program(Box<Program>),
}

/// A load that is ready to be sent.
struct Prepare {
    sends: Sends,
    facts: LoadFacts,
    batches: u32,
    pause_ns: u64,
    /// Detect the warm-up and exclude it.
    is_warmup_found: bool,
    /// Delay from the start of the trial's loads to the start of this one.
    start_ns: u64,
    /// First request id of each batch.
    first_ids: Vec<u64>,
    /// Set if other processes send it in place of this one.
    remote: Option<Remote>,
}

/// A load sent by other processes.
struct Remote {
    load: RemoteLoad,
    /// Senders prepared for the next batch.
    ready: Mutex<Option<Box<dyn ReadySenders>>>,
}

impl Prepare {
    fn name(&self) -> &str {
        match &self.sends {
            Sends::Requests(spec) => &spec.name,
            Sends::Program(program) => &program.name,
        }
    }

    /// The length of its schedule in seconds, if bounded by time.
    fn planned_s(&self) -> Option<f64> {
        match &self.sends {
            Sends::Requests(spec) => spec.schedule_ns().map(|ns| ns as f64 / 1e9),
            Sends::Program(_) => None,
        }
    }

    /// The limits by which a summary judges this load.
    fn planned(&self) -> Planned {
        match &self.sends {
            Sends::Requests(spec) => planned_of(spec),
            Sends::Program(_) => Planned::default(),
        }
    }
}

impl Trial<'_> {
    /// Runs the whole trial. The caller takes down what is up.
    pub fn run(
        &self,
        site: &mut RunningSystem,
        state: &Arc<TrialState>,
        emit: EventSink<'_>,
    ) -> TrialOutcome {
        let prepared = self.prepare(site, state, emit);
        state.notices(&site.notices, emit);
        match (prepared, state.trouble()) {
            (Ok(_), _) if state.cancel.is_cancelled() => {
                self.not_up(&SiteError::BeforeLoad("interrupted before the load began".into()), state)
            }
            (Ok(ready), None) => self.go(site, state, emit, &ready),
            (Ok(_), Some(trouble)) => self.not_up(&SiteError::BeforeLoad(before_load(&trouble)), state),
            // If a command failed because a component had died, the death explains it.
            (Err(error), Some(trouble)) => {
                let text = format!("{}\nthen: {error}", before_load(&trouble));
                self.not_up(&SiteError::BeforeLoad(text), state)
            }
            (Err(error), None) => self.not_up(&error, state),
        }
    }

    /// Watches all components, the generator and the host once a second, or as often as the plan specifies, and the
    /// probes alongside. If the watcher cannot start, that is reported and the load runs without it.
    fn watch(
        &self,
        site: &RunningSystem,
        at_rest: IdleReadings,
        state: &Arc<TrialState>,
        ready: &Prepared,
        zero_ns: u64,
    ) -> Option<Watcher> {
        let onto = state.clone();
        let emit = Arc::new(move |watched| onto.watched(watched));
        let clock = TrialClock { origin_ns: zero_ns };
        let facts = together(&ready.loads);
        let rhythm = SampleTiming {
            interval_ns: self.case.system.sample_interval_ns.unwrap_or(SAMPLE_NS),
            end_ns: facts.duration_s.map(|s| zero_ns + ((facts.start_s + s) * 1e9) as u64),
        };
        let started = Watcher::start_in(rhythm, clock, at_rest, ready.probes.clone(), emit.clone());
        let scraped = started.and_then(|mut watcher| {
            for scraper in site.beside.scrapers() {
                watcher.scrape(clock, scraper.clone(), emit.clone())?;
            }
            Ok(watcher)
        });
        match scraped {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                state.event(EventKind::Note { text: format!("cannot watch the system: {error}") });
                None
            }
        }
    }

    /// Where loads go, if the plan names no components; otherwise empty.
    fn addresses(&self, ready: &Prepared) -> Vec<Listening> {
        if !self.case.system.components.is_empty() {
            return Vec::new();
        }
        let of = |load: &Prepare| match &load.sends {
            Sends::Requests(spec) => self.watch.addresses(spec),
            Sends::Program(_) => Vec::new(),
        };
        ready.loads.iter().flat_map(of).collect()
    }

    fn not_up(&self, error: &SiteError, state: &TrialState) -> TrialOutcome {
        let text = error.to_string();
        state.settle_clock();
        state.event(EventKind::Failed { text: text.clone() });
        let exit = match (error, state.trouble()) {
            _ if state.cancel.is_cancelled() => Exit::Interrupted,
            (_, Some(AbortReason::Store(_) | AbortReason::Load(_))) => Exit::CouldNotRun,
            (SiteError::Translate(e), _) if e.is_target() => Exit::CouldNotRun,
            (SiteError::Translate(_), _) => Exit::BadPlan,
            _ => Exit::NotUp,
        };
        TrialOutcome { summary: None, failure: Some(text), exit }
    }

    /// Brings the system up, seeds it, and prepares the loads for sending.
    fn prepare(
        &self,
        site: &mut RunningSystem,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<Prepared, SiteError> {
        site.bring_up(self.index, self.case, state, emit)?;
        site.seed(self.case, state, emit)?;
        site.commands("before_trial", &self.case.system.before_trial, &self.case.dir, state, emit)?;
        let asked = RefCell::new(BTreeMap::new());
        let names = |name: &str| {
            let value = site.name(name, None)?;
            asked.borrow_mut().insert(name.to_owned(), value.clone());
            Some(value)
        };
        let mut allowed = Allowed { names: Names::default(), ..self.allowed.clone() };
        allowed.addresses.extend(site.addresses());
        let shared = set_up(self.case, self.plan_dir, &names, &allowed, state)?;
        let shared_names: Vec<String> = self.case.setup.captures.iter().map(|c| c.name.clone()).collect();
        let (probes, persisted) = site.probes(self.case, state)?;
        let (mut loads, mut parts) = (Vec::new(), 0..);
        for planned in &self.case.loads {
            let plan::LoadSpec { batches, pause_ns, start_ns, is_warmup_found, .. } = *planned;
            let first_ids: Vec<u64> =
                parts.by_ref().take(batches as usize).map(|part| self.ids.first(self.place, part)).collect();
            let (sends, facts, remote) = match planned.command() {
                Some(command) => {
                    let program = Program::new(&planned.name, command, site, state, &probes)?;
                    let facts = program.facts();
                    (Sends::Program(Box::new(program)), facts, None)
                }
                None => {
                    let context = RequestContext {
                        load: planned,
                        plan_dir: self.plan_dir,
                        names: &names,
                        shared: &shared,
                        shared_names: &shared_names,
                    };
                    asked.borrow_mut().clear();
                    let (spec, facts) = self.requests(&context, &allowed, loads.len(), state)?;
                    (Sends::Requests(spec), facts, self.remote(planned, &first_ids, asked.take(), site))
                }
            };
            let facts = LoadFacts { start_s: start_ns as f64 / 1e9, ..facts };
            loads.push(Prepare {
                sends,
                facts,
                batches,
                pause_ns,
                start_ns,
                is_warmup_found,
                first_ids,
                remote,
            });
        }
        Ok(Prepared { loads, probes, persisted, names: allowed.names })
    }

    /// Prepares the `number`-th load of the case, which the engine sends.
    fn requests(
        &self,
        context: &RequestContext<'_>,
        allowed: &Allowed,
        number: usize,
        state: &TrialState,
    ) -> Result<(Box<LoadSpec>, LoadFacts), SiteError> {
        let (mut spec, url) = translate::load_spec(context, allowed, self.threads)?;
        self.generator.apply(&mut spec);
        spec.pool = self.carried.and_then(|carried| carried.of(number));
        spec.secrets = state.secrets.clone();
        if context.load.http.protocol == plan::Protocol::Auto {
            let spoken = if spec.http2.is_some() { "HTTP/2" } else { "HTTP/1.1" };
            let text = format!("`{}` uses {spoken}, as negotiated before the load", context.load.name);
            state.event(EventKind::Note { text });
        }
        let facts = facts_of(&spec, &url);
        Ok((Box::new(spec), facts))
    }

    /// Describes a load for the processes that send it, if there are any.
    fn remote(
        &self,
        planned: &plan::LoadSpec,
        first_ids: &[u64],
        names: BTreeMap<String, String>,
        site: &RunningSystem,
    ) -> Option<Remote> {
        self.senders?;
        let load = RemoteLoad {
            case: self.case.name.clone(),
            level: self.level.copied(),
            load: planned.name.clone(),
            first_id: first_ids.first().copied().unwrap_or(0),
            threads: planned.threads.map(u64::from),
            names,
            addresses: site.addresses(),
        };
        Some(Remote { load, ready: Mutex::new(None) })
    }

    /// Runs the loads, drains and summarises.
    fn go(
        &self,
        site: &mut RunningSystem,
        state: &Arc<TrialState>,
        emit: EventSink<'_>,
        ready: &Prepared,
    ) -> TrialOutcome {
        if let Some(carried) = self.carried {
            carried.trim(self.case);
        }
        if let Err(why) = self.get_senders_ready(ready, state) {
            state.spoil(AbortReason::Load(why.clone()));
            return self.not_up(&SiteError::BeforeLoad(why), state);
        }
        let addresses = self.addresses(ready);
        let found = match self.case.system.components.is_empty() {
            true => self.watch.find(&addresses),
            false => Answering::default(),
        };
        let at_rest = IdleReadings::read(found.targets().into_iter().chain(site.targets()).collect());
        let mut zero_ns = clock::now_ns() + 2 * LEAD_NS + self.senders.map_or(0, Senders::lead_ns);
        if let Some(carried) = self.carried {
            carried.note(&at_rest);
            zero_ns += carried.takes_ns();
        }
        state.set_clock(zero_ns);
        state.event_at(zero_ns, EventKind::Planned { load: Box::new(together(&ready.loads)) });
        let mut watcher = self.watch(site, at_rest, state, ready, zero_ns);
        if let Some(text) = found.described(0) {
            state.event(EventKind::Note { text });
        }
        if let Some(unseen) = unseen(&found).filter(|_| !leaves_files()) {
            state.watched(unseen);
        } else if let Some(watcher) = watcher.as_mut().filter(|_| !addresses.is_empty()) {
            let onto = state.clone();
            let followed = watcher.follow(addresses, found, Arc::new(move |watched| onto.watched(watched)));
            if let Err(error) = followed {
                state.event(EventKind::Note { text: format!("cannot follow who answers: {error}") });
            }
        }
        let profiler = self.profiler(watcher.as_ref(), state);
        let (watcher_of, senders) = (watcher.as_ref(), self.senders);
        let levers = (self.case.levers.as_slice(), self.case.dir.as_str());
        let actor = Actor { site: &*site, state, emit, watcher: watcher_of, zero_ns, senders, levers };
        let (measured, changed) = self.load_and_act(&actor, ready);
        let samples = profiler.map(Profiler::stop);
        actor.restore(self.restore);
        // Resource use of the load is counted up to here, before anything else happens.
        if let Some(Err(error)) = watcher.as_mut().map(Watcher::read_all) {
            state.event(EventKind::Note { text: format!("no samples at the end of the load: {error}") });
        }
        site.take_changed(changed);
        let drained_s = self.drain(state, ready, &measured, emit, &site.notices);
        drop(watcher);
        // Not until the work is done: this takes a while and uses CPU time.
        if let Some(samples) = samples {
            site.sampled(samples.processes(), state);
            state.profile(&samples.named());
        }
        ready.names.moved().into_iter().for_each(|moved| state.event(hosts::name_moved(moved)));
        site.report_escaped(state, emit);
        site.beside.look(state, emit);
        read_last(state, &ready.probes);
        let loss = self.compare(state, ready, &measured);
        self.after(site, state, emit);
        state.notices(&site.notices, emit);
        let summary = self.sum_up(state, ready, &measured, drained_s, loss);
        state.write(|w| w.summary(&summary));
        let trouble = state.trouble();
        let unwritten = state.unwritten();
        let lost = unwritten.as_ref().map(|_| Exit::CouldNotRun);
        let exits = [Some(Exit::of_summary(&summary)), trouble.as_ref().map(AbortReason::exit), lost];
        let failure = trouble.map(|t| t.describe()).or_else(|| unwritten.map(|error| error.to_string()));
        let failure = failure.or_else(|| {
            let why = unanswered(&summary, &measured.examples).filter(|_| !state.cancel.is_cancelled())?;
            state.event(EventKind::Failed { text: why.clone() });
            Some(why)
        });
        TrialOutcome { summary: Some(summary), failure, exit: Exit::of(exits.into_iter().flatten()) }
    }

    /// Starts sampling stacks, if the plan asks for a profile.
    fn profiler(&self, watcher: Option<&Watcher>, state: &TrialState) -> Option<Profiler> {
        let planned = self.case.profile.as_ref()?;
        let spec = ProfileSpec {
            components: planned.components.clone(),
            rate_per_s: planned.rate_per_s,
            on_cpu: planned.on_cpu,
            on_wait: planned.on_wait,
        };
        let started = watcher?.profile(spec);
        started
            .inspect_err(|error| state.event(EventKind::Note { text: format!("no profile: {error}") }))
            .ok()
    }

    /// Prepares the processes that send the loads in place of this one.
    fn get_senders_ready(&self, ready: &Prepared, state: &TrialState) -> Result<(), String> {
        let Some(senders) = self.senders else { return Ok(()) };
        for remote in ready.loads.iter().filter_map(|load| load.remote.as_ref()) {
            let prepared = senders.prepare(&remote.load, &|| state.must_end())?;
            state.event(EventKind::Note { text: prepared.described() });
            *remote.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
        }
        Ok(())
    }

    /// Runs all loads, and carries out the plan's events meanwhile.
    fn load_and_act(&self, actor: &Actor<'_>, ready: &Prepared) -> (Measured, Changed) {
        let state = actor.state;
        let load = || load_all(self.conditions, ready, actor);
        if self.case.events.is_empty() {
            return (load(), Changed::new());
        }
        let over = Cancel::new();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("loadlab-events".into());
            let acting = thread.spawn_scoped(scope, || actor.carry_out(&self.case.events, &over));
            let acting = acting.map_err(|error| {
                state.spoil(AbortReason::Load(format!(
                    "cannot start a thread for the plan's events: {error}"
                )));
            });
            let measured = load();
            over.cancel();
            let changed = acting.map(|thread| joined(thread.join(), "the one for the plan's events", state));
            (measured, changed.unwrap_or_default())
        })
    }

    /// What was accepted but is not stored. `None` if the plan does not measure that, or it cannot be determined.
    fn compare(&self, state: &TrialState, ready: &Prepared, measured: &Measured) -> Option<Loss> {
        let persisted = ready.persisted.as_ref()?;
        if state.must_end() {
            return None;
        }
        match durability::compare(persisted, state, self.ids, &measured.counts()) {
            Ok(loss) => Some(loss),
            Err(_) if state.must_end() => None,
            Err(why) => {
                let text = format!("durability: cannot read what was stored: {why}");
                state.event(EventKind::Failed { text: text.clone() });
                state.spoil(AbortReason::Command(text));
                None
            }
        }
    }

    /// Runs the plan's commands after the load. After a failed trial they may find nothing to work on and fail; after
    /// an interrupt they are stopped at once.
    fn after(&self, site: &RunningSystem, state: &TrialState, emit: EventSink<'_>) {
        if state.cancel.is_cancelled() {
            return;
        }
        if let Err(error) =
            site.commands("after_trial", &self.case.system.after_trial, &self.case.dir, state, emit)
        {
            if state.cancel.is_cancelled() {
                return;
            }
            state.event(EventKind::Failed { text: error.to_string() });
            state.spoil(AbortReason::Command(error.to_string()));
        }
    }

    /// Waits until the plan's drain condition holds. Returns how many seconds that took; `None` if the plan has no
    /// condition or its deadline passed, which the event reports.
    fn drain(
        &self,
        state: &TrialState,
        ready: &Prepared,
        measured: &Measured,
        emit: EventSink<'_>,
        notices: &Mutex<Receiver<Notice>>,
    ) -> Option<f64> {
        let (planned, until) = (self.case.drain.as_ref()?, self.conditions.drain.as_ref()?);
        let text = until.to_string();
        if state.must_end() {
            return None;
        }
        state.event(EventKind::DrainStarted { until: text.clone() });
        emit(RunEvent::Draining { until: text });
        let summary = self.sum_up(state, ready, measured, None, so_far(state, ready));
        let mut done = || {
            state.notices(notices, emit);
            if state.must_end() {
                return Some(true);
            }
            for probe in &ready.probes {
                match probe.read(&mut || state.must_end()) {
                    Ok(value) => state.read(probe.name(), value),
                    Err(error) => state.read_failed(probe.name(), &error.to_string()),
                }
            }
            let readings = state.readings();
            until.evaluate(&LiveMetrics { summary: &summary, readings: &readings }).holds
        };
        let drained = drain(&mut done, planned.at_most_ns, &state.cancel);
        let done = drained.done && !state.must_end();
        state.event(EventKind::Drained { took_s: drained.took_s, done });
        emit(RunEvent::Drained { took_s: drained.took_s, done });
        done.then_some(drained.took_s)
    }

    fn sum_up(
        &self,
        state: &TrialState,
        ready: &Prepared,
        measured: &Measured,
        drain_s: Option<f64>,
        loss: Option<Loss>,
    ) -> Summary {
        let (samples, events) = state.collected();
        let mut planned = match ready.loads.as_slice() {
            [load] => load.planned(),
            // Each load has its own cap; their sum applies to none of them.
            loads => Planned {
                drops_when_behind: loads.iter().any(|l| l.planned().drops_when_behind),
                ..Planned::default()
            },
        };
        planned.cpu_limits = cpu_limits(self.case);
        planned.open_files_at_rest = self.carried.map(Carried::own_files).unwrap_or_default();
        planned.order = self.case.system.components.iter().map(|c| c.name.clone()).collect();
        planned.cores = crate::host::cores();
        planned.figures.clone_from(&self.conditions.figures);
        let ended = match state.trouble() {
            _ if state.cancel.is_cancelled() => Ended::Interrupted,
            Some(_) => Ended::Broken,
            None => measured.ended.unwrap_or(Ended::Broken),
        };
        summarise(TrialInput {
            facts: together(&ready.loads),
            loads: &measured.loads,
            ticks: &measured.ticks,
            samples: &samples,
            events: &events,
            evidence: &state.evidence(),
            generator: GeneratorUse {
                machine_cores: crate::host::machine_cores(),
                ..measured.generator.clone()
            },
            agents: measured.agents.clone(),
            ended,
            expect: &self.conditions.expect,
            intervals: &measured.intervals,
            drain_s,
            loss,
            planned,
        })
    }
}

/// CPU limits of a case's components, in cores.
pub fn cpu_limits(case: &Case) -> BTreeMap<String, f64> {
    let components = case.system.components.iter();
    components.filter_map(|c| Some((c.name.clone(), c.limits.cpu_cores?))).collect()
}

/// What all loads of a case requested: users and rates are added up; per-load facts are listed separately.
fn together(loads: &[Prepare]) -> LoadFacts {
    let Some((first, others)) = loads.split_first() else { return LoadFacts::default() };
    let mut all = first.facts.clone();
    if others.is_empty() {
        return all;
    }
    all.loads = loads.iter().map(|l| (l.name().to_owned(), l.facts.clone())).collect();
    // From the start of the first load to the end of the last.
    let ends: Option<Vec<f64>> = all.loads.values().map(|l| l.duration_s.map(|s| l.start_s + s)).collect();
    all.start_s = all.loads.values().map(|l| l.start_s).fold(f64::INFINITY, f64::min);
    all.duration_s = ends.and_then(|e| e.into_iter().reduce(f64::max)).map(|end_s| end_s - all.start_s);
    all.stages = Vec::new();
    for load in others.iter().map(|l| &l.facts) {
        all.users = all.users.map_or(load.users, |users| Some(users + load.users.unwrap_or(0)));
        all.rate_per_s = add(all.rate_per_s, load.rate_per_s);
        all.requests = all.requests.zip(load.requests).map(|(a, b)| a + b);
        all.ramp_s = all.ramp_s.max(load.ramp_s);
        all.think_s = all.think_s.or(load.think_s);
        all.think = all.think.filter(|think| load.think == Some(*think));
        all.pace_s = all.pace_s.or(load.pace_s);
        all.keep_alive &= load.keep_alive;
        if all.model != load.model {
            all.model = "mixed".to_owned();
        }
    }
    all
}

/// What is known about the loss before draining ends: everything that was accepted may still be lost.
fn so_far(state: &TrialState, ready: &Prepared) -> Option<Loss> {
    ready.persisted.as_ref()?;
    let sent = state.sent_ids().ok().filter(|s| !s.accepted.is_empty())?;
    let accepted = sent.accepted.len();
    Some(Loss { accepted, unanswered: sent.unanswered.len(), lost_max: accepted, ..Loss::default() })
}

/// Reads every probe one last time: expectations about probes refer to the end, and the watcher's last reading may be a
/// second old.
fn read_last(state: &TrialState, probes: &[Probe]) {
    let (mut readings, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for probe in probes {
        if state.must_end() {
            return;
        }
        match probe.read(&mut || state.must_end()) {
            Ok(value) => drop(readings.insert(probe.name().to_owned(), value)),
            Err(error) => {
                failed.insert(probe.name().to_owned(), error.to_string());
                state.event(EventKind::Note { text: format!("no final reading: {error}") });
            }
        }
    }
    if !readings.is_empty() || !failed.is_empty() {
        let (at_s, component) = (state.now_s(), "probes".to_owned());
        let sample = Sample { at_s, component, probes: readings, probes_failed: failed, ..Sample::default() };
        state.watched(WatchEvent::Samples(vec![sample]));
    }
}

/// Describes trouble that occurred before the load.
fn before_load(trouble: &AbortReason) -> String {
    format!("{}, before the load began", trouble.describe())
}

/// Runs all loads of the case, each from its own start, with its batches. A single load runs on this thread.
fn load_all(conditions: &Conditions, ready: &Prepared, actor: &Actor<'_>) -> Measured {
    let one = |load| batches(conditions, load, actor);
    let done: Vec<Vec<MeasuredLoad>> = match ready.loads.as_slice() {
        [load] => vec![one(load)],
        loads => std::thread::scope(|scope| {
            let threads: Vec<_> = loads.iter().map(|load| scope.spawn(move || one(load))).collect();
            let of = |load: &Prepare| format!("the one for load `{}`", load.name());
            let ends = threads.into_iter().zip(loads);
            ends.map(|(thread, load)| joined(thread.join(), &of(load), actor.state)).collect()
        }),
    };
    let mut measured = Measured::default();
    for batches in done {
        measured.beside(Measured::of_batches(batches));
    }
    measured
}

/// The result of one of our threads. A thread that panicked did only part of its work: this must not look as if there
/// had been nothing to do.
fn joined<T: Default>(ended: std::thread::Result<T>, which: &str, state: &TrialState) -> T {
    ended.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
        state.spoil(AbortReason::Load(format!("a thread of loadlab failed ({which}): {words}")));
        T::default()
    })
}

/// Runs a load repeatedly against the running system, with pauses in between.
fn batches(conditions: &Conditions, load: &Prepare, actor: &Actor<'_>) -> Vec<MeasuredLoad> {
    let &Actor { site, state, emit, zero_ns, senders, .. } = actor;
    let notices = &site.notices;
    let mut done = Vec::new();
    let mut start_ns = zero_ns.saturating_add(load.start_ns);
    let ahead_ns = LEAD_NS + senders.map_or(0, Senders::lead_ns);
    if load.start_ns > 0 && wait(state, notices, start_ns.saturating_sub(ahead_ns), emit) {
        return done;
    }
    for batch in 0..load.batches {
        let name = load.name().to_owned();
        state.event_at(start_ns, EventKind::LoadStarted { load: name.clone(), batch });
        emit(RunEvent::LoadStarted {
            load: name.clone(),
            batch: (batch, load.batches),
            planned_s: load.planned_s(),
            planned_requests: load.facts.requests,
        });
        let first_id = load.first_ids.get(batch as usize).copied().unwrap_or(0);
        let origin = Origin { start_ns, zero_ns, batch, first_id };
        let Some(measured) = one_batch(conditions, load, origin, actor) else { break };
        let how = measured.how.clone();
        state.event(EventKind::LoadEnded { load: name.clone(), batch, how: how.clone() });
        emit(RunEvent::LoadEnded { load: name, how });
        let complete = measured.ended == Ended::Complete;
        done.push(measured);
        let pause_to_ns = clock::now_ns().saturating_add(load.pause_ns);
        if !complete || batch + 1 == load.batches || wait(state, notices, pause_to_ns, emit) {
            break;
        }
        if let Some((senders, remote)) = senders.zip(load.remote.as_ref()) {
            let first_id = load.first_ids.get(batch as usize + 1).copied().unwrap_or(0);
            let next = RemoteLoad { first_id, ..remote.load.clone() };
            match senders.prepare(&next, &|| state.must_end()) {
                Ok(prepared) => *remote.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared),
                Err(why) => {
                    state.spoil(AbortReason::Load(why));
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
    load: &Prepare,
    origin: Origin,
    actor: &Actor<'_>,
) -> Option<MeasuredLoad> {
    let (facts, stop_when) = (&load.facts, conditions.stop_when.as_slice());
    match &load.sends {
        Sends::Requests(spec) => {
            let (expect, is_warmup_found) = (conditions.expect.as_slice(), load.is_warmup_found);
            let figures = conditions.figures.as_slice();
            let is_watched = conditions.is_watched;
            let remote = load.remote.as_ref();
            let senders = remote.and_then(|r| r.ready.lock().unwrap_or_else(PoisonError::into_inner).take());
            let order = LoadRequest {
                spec,
                facts,
                stop_when,
                expect,
                figures,
                is_watched,
                is_warmup_found,
                origin,
                senders: senders.as_deref(),
            };
            measure(&order, actor.state, Some(&actor.site.notices), actor.emit)
        }
        Sends::Program(program) => {
            let shown = (conditions.figures.as_slice(), conditions.is_watched);
            Run { program, facts, stop_when, shown, origin }.measure(actor)
        }
    }
}

/// Waits until `until_ns` while no load is sending; returns true if the trial must end.
fn wait(state: &TrialState, notices: &Mutex<Receiver<Notice>>, until_ns: u64, emit: EventSink<'_>) -> bool {
    loop {
        state.notices(notices, emit);
        let now_ns = clock::now_ns();
        if state.must_end() || now_ns >= until_ns {
            return state.must_end();
        }
        state.cancel.wait_until(until_ns.min(now_ns + NOTICE_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panicked_spoils_the_trial() {
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        assert_eq!(joined(Ok(7), "this one", &state), 7);
        assert!(state.trouble().is_none() && !state.must_end());
        let ended = std::thread::spawn(|| -> u32 { panic!("no {}", "way") }).join();
        assert_eq!(joined(ended, "the one for load `a`", &state), 0);
        let trouble = state.trouble().expect("it is told");
        assert_eq!(trouble.describe(), "a thread of loadlab failed (the one for load `a`): no way");
        assert!(state.must_end() && trouble.exit() == Exit::CouldNotRun);
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        let ended = std::thread::spawn(|| -> u32 { panic!("in plain words") }).join();
        assert_eq!(joined(ended, "this one", &state), 0);
        assert!(state.trouble().expect("it is told").describe().ends_with(": in plain words"));
    }
}
