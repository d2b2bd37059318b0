//! Metrics for other programs during a run, built from events alone: served to Prometheus, or pushed to an
//! OpenTelemetry collector. Counters restart with each trial, as their labels show.

mod families;
pub mod otlp;
mod prometheus;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use loadlab_record::sync::lock;
use loadlab_run::RunEvent;

use crate::args::serving::MetricsTargets;
use crate::exit::CommandEnd;
use crate::live::state::State;
use otlp::Pusher;

/// The state that metrics are made from.
pub struct Known {
    state: State,
    /// When counters last started at zero.
    since: SystemTime,
}

/// Metrics that are exported until the program ends.
pub struct Metrics {
    known: Arc<Mutex<Known>>,
    began: Instant,
    pusher: Option<Pusher>,
}

impl Metrics {
    /// Starts the export; `None` if no target is given.
    ///
    /// # Errors
    /// They cannot be served on the given address, or pushed as requested.
    pub fn start(wanted: MetricsTargets, title: &str) -> Result<Option<Metrics>, CommandEnd> {
        if wanted.prometheus.is_none() && wanted.otlp.is_none() {
            return Ok(None);
        }
        let known = Arc::new(Mutex::new(Known { state: State::new(title), since: SystemTime::now() }));
        if let Some(address) = wanted.prometheus {
            prometheus::serve(address, known.clone())?;
        }
        let pusher = wanted.otlp.map(|collector| Pusher::start(collector, known.clone())).transpose()?;
        Ok(Some(Metrics { known, began: Instant::now(), pusher }))
    }

    /// Applies an event. Never waits for readers.
    pub fn on_event(&self, event: &RunEvent) {
        let now_s = self.began.elapsed().as_secs_f64();
        let mut known = self.known();
        if matches!(event, RunEvent::TrialStarted { .. }) {
            known.since = SystemTime::now();
        }
        known.state.on_event(now_s, event);
        // The next trial starts at zero: without this push, the final values of this trial would never be reported.
        if let (Some(pusher), RunEvent::TrialEnded { .. }) = (&self.pusher, event) {
            pusher.push(&known);
        }
    }

    /// The first push error; returned once.
    pub fn fault(&self) -> Option<String> {
        self.pusher.as_ref()?.fault()
    }

    /// Pushes the final values, and briefly waits for the push.
    pub fn finish(&self) {
        if let Some(pusher) = &self.pusher {
            pusher.push_last(&self.known());
            // The thread may need what is known in the meantime.
            pusher.finish();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}
