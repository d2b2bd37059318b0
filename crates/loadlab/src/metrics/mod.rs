//! Metrics for other programs while a run goes on, from events alone: served to Prometheus, pushed to a collector of
//! OpenTelemetry. Counters begin anew with each trial, as its labels say.

mod families;
pub mod otlp;
mod prometheus;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use loadlab_run::RunEvent;

use crate::args::serving::Wanted;
use crate::exit::Ended;
use crate::live::state::State;
use otlp::Pusher;

/// What metrics are made of.
pub struct Known {
    state: State,
    /// When counters began.
    since: SystemTime,
}

/// Metrics that go out until the program ends.
pub struct Metrics {
    known: Arc<Mutex<Known>>,
    began: Instant,
    pusher: Option<Pusher>,
}

impl Metrics {
    /// Begins; none where none are wanted.
    ///
    /// # Errors
    /// They cannot be served on the address given, or pushed as asked.
    pub fn start(wanted: Wanted, title: &str) -> Result<Option<Metrics>, Ended> {
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

    /// Takes an event in. Never waits for who reads.
    pub fn event(&self, event: &RunEvent) {
        let now_s = self.began.elapsed().as_secs_f64();
        let mut known = self.known();
        if matches!(event, RunEvent::TrialStarted { .. }) {
            known.since = SystemTime::now();
        }
        known.state.event(now_s, event);
        // The next trial begins anew: what this one came to would never be reported.
        if let (Some(pusher), RunEvent::TrialEnded { .. }) = (&self.pusher, event) {
            pusher.push(&known);
        }
    }

    /// What went wrong with whoever is pushed to; told once.
    pub fn fault(&self) -> Option<String> {
        self.pusher.as_ref()?.fault()
    }

    /// Pushes what is known for the last time, and waits for that a little.
    pub fn finish(&self) {
        if let Some(pusher) = &self.pusher {
            pusher.finish(&self.known());
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
