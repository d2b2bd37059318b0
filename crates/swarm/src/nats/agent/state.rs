//! What an agent keeps while it takes part in a run: the coordinator's clock, when the coordinator was last heard from,
//! and the loads in progress.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use loadlab_load::io::epoll::now_ns;
use loadlab_load::run::Control;
use loadlab_record::sync::{lock, wait_timeout};
use tokio::sync::Notify;

use crate::clock::Bounds;
use crate::message::Clock;

/// How often a waiting thread checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The shared state of an agent while it takes part in a run.
pub(super) struct RunState {
    pub(super) clock: Mutex<Bounds>,
    /// When the coordinator was last heard from.
    pub(super) heard_ns: AtomicU64,
    /// The coordinator is silent, and another run with its key was announced.
    pub(super) is_left: AtomicBool,
    /// The coordinator has given up this agent.
    pub(super) is_given_up: AtomicBool,
    /// Notified when one of these two flags is raised.
    pub(super) flagged: Notify,
    /// Loads in progress, by number.
    pub(super) loads: Mutex<BTreeMap<u64, Arc<AgentLoad>>>,
}

/// A load of which this agent sends a part.
#[derive(Default)]
pub(super) struct AgentLoad {
    pub(super) control: Control,
    /// When the load begins, on the coordinator's clock.
    begins: Mutex<Option<u64>>,
    changed: Condvar,
}

impl RunState {
    pub(super) fn silent_ns(&self) -> u64 {
        now_ns().saturating_sub(self.heard_ns.load(Ordering::Relaxed))
    }

    pub(super) fn raise(&self, flag: &AtomicBool) {
        flag.store(true, Ordering::Relaxed);
        self.flagged.notify_one();
    }

    pub(super) fn heard(&self) {
        self.heard_ns.fetch_max(now_ns(), Ordering::Relaxed);
    }

    pub(super) fn load(&self, number: u64) -> Option<Arc<AgentLoad>> {
        lock(&self.loads).get(&number).cloned()
    }

    pub(super) fn abort_all(&self) {
        let loads = lock(&self.loads);
        loads.values().for_each(|load| load.abort());
    }

    /// The offset of this agent's clock from the coordinator's, and its uncertainty.
    pub(super) fn clock(&self) -> Option<Clock> {
        let bounds = *lock(&self.clock);
        let offset = bounds.at(now_ns())?;
        Some(Clock { offset_ns: offset.estimate_ns, uncertainty_ns: offset.uncertainty_ns })
    }
}

impl AgentLoad {
    pub(super) fn abort(&self) {
        self.control.abort();
        self.changed.notify_all();
    }

    pub(super) fn begin(&self, at_ns: u64) {
        lock(&self.begins).get_or_insert(at_ns);
        self.changed.notify_all();
    }

    /// Waits for a change, for at most [`POLL_INTERVAL`].
    pub(super) fn wait(&self) {
        drop(wait_timeout(&self.changed, lock(&self.begins), POLL_INTERVAL));
    }

    /// Waits for the load's start time; `None` if the load is aborted first.
    pub(super) fn begins(&self) -> Option<u64> {
        let mut begins = lock(&self.begins);
        loop {
            if self.control.is_aborted() {
                return None;
            }
            if let Some(at_ns) = *begins {
                return Some(at_ns);
            }
            begins = wait_timeout(&self.changed, begins, POLL_INTERVAL);
        }
    }
}
