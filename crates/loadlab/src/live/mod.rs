//! What is shown while something runs: one state, changed only by events, for both screen and page. Neither adds
//! anything up itself.
//!
//! A thread that reports an event waits for this lock and for nothing else; a view takes a copy and releases it.

pub mod display;
pub mod state;
pub mod words;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use loadlab_run::RunEvent;

use state::State;

/// The state, and when it began.
pub struct Live {
    state: Mutex<State>,
    began: Instant,
}

impl Live {
    /// Nothing has happened yet.
    pub fn new(title: &str) -> Live {
        Live { state: Mutex::new(State::new(title)), began: Instant::now() }
    }

    /// Applies an event.
    pub fn event(&self, event: &RunEvent) {
        self.change(|state, now_s| state.event(now_s, event));
    }

    /// Adds a remark to the events.
    pub fn remark(&self, text: &str) {
        self.change(|state, now_s| state.remark(now_s, text));
    }

    /// Sets the URL at which a browser shows the same.
    pub fn page(&self, url: &str) {
        self.change(|state, _| state.page = Some(url.to_owned()));
    }

    /// Reads it; the second value is the time since its beginning, in seconds.
    pub fn look<T>(&self, read: impl FnOnce(&State, f64) -> T) -> T {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        read(&state, self.began.elapsed().as_secs_f64())
    }

    fn change(&self, change: impl FnOnce(&mut State, f64)) {
        let now_s = self.began.elapsed().as_secs_f64();
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), now_s);
    }
}
