//! What watches a trial: the watcher of components and probes, and the profiler; and where loads go, so that the
//! processes that answer are watched too.

use std::sync::Arc;

use loadlab_record::documents::event::EventKind;
use loadlab_system::{IdleReadings, Listening, ProfileSpec, Profiler, SampleTiming, TrialClock, Watcher};

use crate::site::RunningSystem;
use crate::state::TrialState;
use crate::trial::Trial;
use crate::trial::prepare::{Prepare, Prepared, Sends, together};

/// How often components are read if the plan does not specify it.
const SAMPLE_NS: u64 = 1_000_000_000;

impl Trial<'_> {
    /// Watches all components, the generator and the host once a second, or as often as the plan specifies, and the
    /// probes alongside. If the watcher cannot start, that is reported and the load runs without it.
    pub(super) fn watch(
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
    pub(super) fn addresses(&self, ready: &Prepared) -> Vec<Listening> {
        if !self.case.system.components.is_empty() {
            return Vec::new();
        }
        let of = |load: &Prepare| match &load.sends {
            Sends::Requests(spec) => self.watch.addresses(spec),
            Sends::Program(_) => Vec::new(),
        };
        ready.loads.iter().flat_map(of).collect()
    }

    /// Starts sampling stacks, if the plan asks for a profile.
    pub(super) fn profiler(&self, watcher: Option<&Watcher>, state: &TrialState) -> Option<Profiler> {
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
}
