//! What is shown during a run: one state for both screen and page, changed only by events. Neither of them adds
//! anything up itself.
//!
//! A thread that reports an event waits for the state's lock and nothing else; a view copies the state and releases the
//! lock.

pub mod display;
pub mod state;
pub mod used;
pub mod wording;

use std::sync::Mutex;
use std::time::Instant;

use loadlab_record::sync::lock;
use loadlab_run::RunEvent;

use state::State;

/// The state, and when the run began.
pub struct Live {
    state: Mutex<State>,
    began: Instant,
}

impl Live {
    /// The state before any event.
    pub fn new(title: &str) -> Live {
        Live { state: Mutex::new(State::new(title)), began: Instant::now() }
    }

    /// Applies an event.
    pub fn on_event(&self, event: &RunEvent) {
        self.change(|state, now_s| state.on_event(now_s, event));
    }

    /// Adds a remark to the events.
    pub fn remark(&self, text: &str) {
        self.change(|state, now_s| state.remark(now_s, text));
    }

    /// Sets the URL of the live page.
    pub fn page(&self, url: &str) {
        self.change(|state, _| state.page = Some(url.to_owned()));
    }

    /// Reads the state; the second argument is the time since the run began, in seconds.
    pub fn read<T>(&self, read: impl FnOnce(&State, f64) -> T) -> T {
        let state = lock(&self.state);
        read(&state, self.began.elapsed().as_secs_f64())
    }

    fn change(&self, change: impl FnOnce(&mut State, f64)) {
        let now_s = self.began.elapsed().as_secs_f64();
        change(&mut lock(&self.state), now_s);
    }
}
