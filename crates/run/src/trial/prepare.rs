//! Before the clock: brings the system up and seeds it, fills in names, and makes each load ready to be sent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use loadlab_analysis::Planned;
use loadlab_load::LoadSpec;
use loadlab_load::target::Allowed;
use loadlab_load::target::names::Names;
use loadlab_plan as plan;
use loadlab_record::documents::summary::{LoadFacts, LoadModel, sum_of_known};
use loadlab_record::sync::lock;
use loadlab_system::Probe;

use crate::running_system::RunningSystem;
use crate::running_system::durability::Persisted;
use crate::running_system::error::BringUpError;
use crate::senders::{ReadySenders, RemoteLoad};
use crate::state::{EventSink, TrialState};
use crate::translate::{self, RequestContext};
use crate::trial::Trial;
use crate::trial::facts::{facts_of, planned_of};
use crate::trial::program::Program;
use crate::trial::setup::set_up;

/// A trial whose system is up: its loads and probes, with all names filled in.
pub(super) struct PreparedTrial {
    pub(super) loads: Vec<PreparedLoad>,
    pub(super) probes: Vec<Probe>,
    /// How to query what was stored.
    pub(super) persisted: Option<Persisted>,
    /// The addresses that its host names resolved to.
    pub(super) names: Names,
}

/// How a load is made.
pub(super) enum LoadSource {
    /// The engine sends requests.
    Requests(Box<LoadSpec>),
    /// A user's program generates the load.
    Program(Box<Program>),
}

/// A load that is ready to be sent.
pub(super) struct PreparedLoad {
    pub(super) sends: LoadSource,
    /// The length of its schedule in seconds, if bounded by time, or by a number of requests at a rate.
    pub(super) planned_s: Option<f64>,
    pub(super) facts: LoadFacts,
    pub(super) batches: u32,
    pub(super) pause_ns: u64,
    /// Detect the warm-up and exclude it.
    pub(super) is_warmup_found: bool,
    /// Delay from the start of the trial's loads to the start of this one.
    pub(super) start_ns: u64,
    /// First request id of each batch.
    pub(super) first_ids: Vec<u64>,
    /// Set if other processes send it in place of this one.
    pub(super) remote: Option<Remote>,
}

/// A load sent by other processes.
pub(super) struct Remote {
    pub(super) load: RemoteLoad,
    /// Senders prepared for the next batch.
    pub(super) ready: Mutex<Option<Box<dyn ReadySenders>>>,
}

impl LoadSource {
    fn planned_s(&self) -> Option<f64> {
        match self {
            LoadSource::Requests(spec) => spec.schedule_ns().map(|ns| ns as f64 / 1e9),
            LoadSource::Program(_) => None,
        }
    }
}

impl PreparedLoad {
    pub(super) fn name(&self) -> &str {
        match &self.sends {
            LoadSource::Requests(spec) => &spec.name,
            LoadSource::Program(program) => &program.name,
        }
    }

    /// The limits by which a summary judges this load.
    pub(super) fn planned(&self) -> Planned {
        match &self.sends {
            LoadSource::Requests(spec) => planned_of(spec),
            LoadSource::Program(_) => Planned::default(),
        }
    }
}

impl Trial<'_> {
    /// Brings the system up, seeds it, and prepares the loads for sending.
    pub(super) fn prepare(
        &self,
        running: &mut RunningSystem,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<PreparedTrial, BringUpError> {
        running.bring_up(self.index, self.case, state, emit)?;
        running.seed(self.case, state, emit)?;
        running.run_commands("before_trial", &self.case.system.before_trial, &self.case.dir, state, emit)?;
        let asked = RefCell::new(BTreeMap::new());
        let names = |name: &str| {
            let value = running.name(name, None)?;
            asked.borrow_mut().insert(name.to_owned(), value.clone());
            Some(value)
        };
        let mut allowed = Allowed { names: Names::default(), ..self.allowed.clone() };
        allowed.addresses.extend(running.addresses());
        let shared = set_up(self.case, self.plan_dir, &names, &allowed, state)?;
        let shared_names: Vec<String> = self.case.setup.captures.iter().map(|c| c.name.clone()).collect();
        let (probes, persisted) = running.probes(self.case, state)?;
        let (mut loads, mut parts) = (Vec::new(), 0..);
        for planned in &self.case.loads {
            let plan::LoadSpec { batches, pause_ns, start_ns, is_warmup_found, .. } = *planned;
            let first_ids: Vec<u64> =
                parts.by_ref().take(batches as usize).map(|part| self.ids.first(self.place, part)).collect();
            let (sends, facts, remote) = match planned.command() {
                Some(command) => {
                    let program = Program::new(&planned.name, command, running, state, &probes)?;
                    let facts = program.facts();
                    (LoadSource::Program(Box::new(program)), facts, None)
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
                    (
                        LoadSource::Requests(spec),
                        facts,
                        self.remote(planned, &first_ids, asked.take(), running),
                    )
                }
            };
            let facts = LoadFacts { start_s: start_ns as f64 / 1e9, ..facts };
            loads.push(PreparedLoad {
                // Now, and not when the load is about to begin: of millions of random arrivals this takes long.
                planned_s: sends.planned_s(),
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
        Ok(PreparedTrial { loads, probes, persisted, names: allowed.names })
    }

    /// Prepares the `number`-th load of the case, which the engine sends.
    fn requests(
        &self,
        context: &RequestContext<'_>,
        allowed: &Allowed,
        number: usize,
        state: &TrialState,
    ) -> Result<(Box<LoadSpec>, LoadFacts), BringUpError> {
        let (mut spec, url) = translate::load_spec(context, allowed, self.threads)?;
        self.generator.apply(&mut spec);
        spec.pool = self.carried.and_then(|carried| carried.of(number));
        spec.secrets = state.secrets.clone();
        if context.load.http.protocol == plan::Protocol::Auto {
            let spoken = if spec.http2.is_some() { "HTTP/2" } else { "HTTP/1.1" };
            let text = format!("`{}` uses {spoken}, as negotiated before the load", context.load.name);
            state.record_note(text);
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
        running: &RunningSystem,
    ) -> Option<Remote> {
        self.senders?;
        let load = RemoteLoad {
            case: self.case.name.clone(),
            level: self.level.copied(),
            load: planned.name.clone(),
            first_id: first_ids.first().copied().unwrap_or(0),
            threads: planned.threads.map(u64::from),
            names,
            addresses: running.addresses(),
        };
        Some(Remote { load, ready: Mutex::new(None) })
    }

    /// Prepares the processes that send the loads in place of this one.
    pub(super) fn get_senders_ready(&self, ready: &PreparedTrial, state: &TrialState) -> Result<(), String> {
        let Some(senders) = self.senders else { return Ok(()) };
        for remote in ready.loads.iter().filter_map(|load| load.remote.as_ref()) {
            let prepared = senders.prepare(&remote.load, &|| state.must_end())?;
            state.record_note(prepared.described());
            *lock(&remote.ready) = Some(prepared);
        }
        Ok(())
    }
}

/// What all loads of a case requested: users and rates are added up; per-load facts are listed separately.
pub(super) fn together(loads: &[PreparedLoad]) -> LoadFacts {
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
        all.rate_per_s = sum_of_known(all.rate_per_s, load.rate_per_s);
        all.requests = all.requests.zip(load.requests).map(|(a, b)| a + b);
        all.ramp_s = all.ramp_s.max(load.ramp_s);
        all.think_s = all.think_s.or(load.think_s);
        all.think = all.think.filter(|think| load.think == Some(*think));
        all.pace_s = all.pace_s.or(load.pace_s);
        all.keep_alive &= load.keep_alive;
        all.targets.extend(load.targets.iter().cloned());
        if all.model != load.model {
            all.model = LoadModel::Mixed;
        }
    }
    all
}
