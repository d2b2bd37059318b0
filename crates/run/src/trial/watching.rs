//! What watches a trial: the watcher of components and probes, and the profiler; and where loads go, so that the
//! processes that answer are watched too.

use std::sync::Arc;

use loadlab_record::text::time::SECOND_NS;
use loadlab_system::{
    Answering, Emit, IdleReadings, Listening, ProfileSpec, Profiler, SampleTiming, TrialClock, Watcher,
};

use crate::running_system::RunningSystem;
use crate::state::TrialState;
use crate::trial::Trial;
use crate::trial::prepare::{LoadSource, PreparedLoad, PreparedTrial, together};
use crate::watch::{leaves_files, unseen};

/// How often components are read if the plan does not specify it.
const DEFAULT_SAMPLE_INTERVAL_NS: u64 = SECOND_NS;

/// What is watched, as it is before any load.
pub(super) struct IdleSystem {
    /// Where loads go, if the plan names no components.
    addresses: Vec<Listening>,
    /// The processes that answer there.
    found: Answering,
    /// One reading of all that is watched.
    pub(super) readings: IdleReadings,
}

/// What watches a trial while its loads run; each is `None` if it could not start or is not wanted.
pub(super) struct Watching {
    pub(super) watcher: Option<Watcher>,
    pub(super) profiler: Option<Profiler>,
}

impl Trial<'_> {
    /// Finds out what is to be watched, and reads it once.
    pub(super) fn read_idle(&self, running: &RunningSystem, ready: &PreparedTrial) -> IdleSystem {
        let addresses = self.addresses(ready);
        let found = match self.case.system.components.is_empty() {
            true => self.watch.find(&addresses),
            false => Answering::default(),
        };
        let readings = IdleReadings::read(found.targets().into_iter().chain(running.targets()).collect());
        IdleSystem { addresses, found, readings }
    }

    /// Starts the watcher, which also looks for further processes that answer, and the profiler.
    pub(super) fn start_watching(
        &self,
        running: &RunningSystem,
        idle: IdleSystem,
        state: &Arc<TrialState>,
        ready: &PreparedTrial,
        zero_ns: u64,
    ) -> Watching {
        let IdleSystem { addresses, found, readings } = idle;
        let mut watcher = self.watch(running, readings, state, ready, zero_ns);
        if let Some(text) = found.described(0) {
            state.record_note(text);
        }
        if let Some(unseen) = unseen(&found).filter(|_| !leaves_files()) {
            state.take_watch_event(unseen);
        } else if let Some(watcher) = watcher.as_mut().filter(|_| !addresses.is_empty())
            && let Err(error) = watcher.follow(addresses, found, hand_to(state))
        {
            state.record_note(format!("cannot follow who answers: {error}"));
        }
        let profiler = self.profiler(watcher.as_ref(), state);
        Watching { watcher, profiler }
    }

    /// Watches all components, the generator and the host once a second, or as often as the plan specifies, and the
    /// probes alongside. If the watcher cannot start, that is reported and the load runs without it.
    fn watch(
        &self,
        running: &RunningSystem,
        at_rest: IdleReadings,
        state: &Arc<TrialState>,
        ready: &PreparedTrial,
        zero_ns: u64,
    ) -> Option<Watcher> {
        let emit = hand_to(state);
        let clock = TrialClock { origin_ns: zero_ns };
        let facts = together(&ready.loads);
        let rhythm = SampleTiming {
            interval_ns: self.case.system.sample_interval_ns.unwrap_or(DEFAULT_SAMPLE_INTERVAL_NS),
            end_ns: facts.duration_s.map(|s| zero_ns + ((facts.start_s + s) * 1e9) as u64),
        };
        let started = Watcher::start_in(rhythm, clock, at_rest, ready.probes.clone(), emit.clone());
        let scraped = started.and_then(|mut watcher| {
            for scraper in running.externals.scrapers() {
                watcher.scrape(clock, scraper.clone(), emit.clone())?;
            }
            Ok(watcher)
        });
        match scraped {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                state.record_note(format!("cannot watch the system: {error}"));
                None
            }
        }
    }

    /// Where loads go, if the plan names no components; otherwise empty.
    fn addresses(&self, ready: &PreparedTrial) -> Vec<Listening> {
        if !self.case.system.components.is_empty() {
            return Vec::new();
        }
        let of = |load: &PreparedLoad| match &load.sends {
            LoadSource::Requests(spec) => self.watch.addresses(spec),
            LoadSource::Program(_) => Vec::new(),
        };
        ready.loads.iter().flat_map(of).collect()
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
        started.inspect_err(|error| state.record_note(format!("no profile: {error}"))).ok()
    }
}

/// Hands what is read to the trial's state.
fn hand_to(state: &Arc<TrialState>) -> Emit {
    let state = state.clone();
    Arc::new(move |watched| state.take_watch_event(watched))
}
