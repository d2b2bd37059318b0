//! Takes components down: asks a component to end, kills it when its time is up, and removes whatever it left behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Ending, KILL_TIMEOUT_NS, System, Takedown};
use crate::cancel::{Cancel, WaitOutcome};
use crate::clock;
use crate::component::{Component, Inner, Origin};
use crate::error::{Error, Result};
use crate::ledger::state::Resource;
use crate::process::kill;

/// How long remaining processes may take once a component's first process has ended cleanly.
const STRAGGLERS_NS: u64 = 500_000_000;
/// Pause between checks for remaining processes.
const POLL_INTERVAL_NS: u64 = 5_000_000;

impl System {
    /// Takes a component down: sends the stop signal to its group, gives it time to obey, then kills everything in its
    /// cgroup (without one: in its process family), daemons included. If it has already ended, removes what it left.
    pub fn down(&self, component: &Component) -> Result<Takedown> {
        self.take_down(&component.inner, None)
    }

    /// Kills a component without asking it to end first.
    pub fn kill(&self, component: &Component) -> Result<Takedown> {
        self.take_down(&component.inner, Some(0))
    }

    /// Takes all components down, newest first. A failure does not stop the rest; the first error is returned.
    pub fn down_all(&self) -> Result<Vec<(Component, Takedown)>> {
        let mut downs = Vec::new();
        let mut failed = None;
        for inner in self.monitor.all().into_iter().rev() {
            match self.take_down(&inner, None) {
                Ok(down) => downs.push((Component { inner }, down)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(downs), Err)
    }

    /// `timeout_ns` replaces the time limit of the spec; 0 kills at once.
    pub(crate) fn take_down(&self, inner: &Arc<Inner>, timeout_ns: Option<u64>) -> Result<Takedown> {
        if let Origin::Container(handle) = &inner.origin {
            return self.take_down_container(inner, handle, timeout_ns);
        }
        inner.is_stopping.store(true, Ordering::SeqCst);
        let begun_ns = clock::now_ns();
        let until_ns = begun_ns.saturating_add(timeout_ns.unwrap_or(inner.spec.stop.timeout_ns));
        inner.group.lift_cpu();
        if timeout_ns != Some(0) {
            inner.send(inner.spec.stop.signal);
            // A stopped process could not act on the signal, and the first one may wait for others that have groups of
            // their own.
            inner.resume_to_stop();
            inner.send(crate::spec::Signal::CONT);
        }
        let ending = match Cancel::new().wait_for(Some(std::os::fd::AsFd::as_fd(&inner.pidfd)), until_ns) {
            WaitOutcome::Ready => Ending::Exited,
            _ => Ending::Killed,
        };
        let mut stragglers = 0;
        if ending == Ending::Exited {
            let patience_ns = if timeout_ns == Some(0) { 0 } else { STRAGGLERS_NS };
            stragglers = wait_for_none(inner, until_ns.min(clock::now_ns() + patience_ns));
        } else {
            // With a pidfd an unreaped child cannot be missed, even without a cgroup.
            inner.send(crate::spec::Signal::KILL);
        }
        let escaped = inner.escaped().len();
        self.end_all(inner)?;
        inner.wait_reaped();
        self.forget(inner)?;
        // Not earlier: until now the component may have had something to send.
        self.end_relay(&inner.spec.name)?;
        Ok(Takedown { ending, stragglers, escaped, took_s: (clock::now_ns() - begun_ns) as f64 / 1e9 })
    }

    fn end_all(&self, inner: &Inner) -> Result<()> {
        let until_ns = clock::now_ns() + KILL_TIMEOUT_NS;
        let ended = match inner.group.cgroups.is_empty() {
            false => kill::kill_groups(&inner.group.dirs(), until_ns).and_then(|killed| {
                // Processes that have left the group still belong to the component.
                kill::kill_until_none(until_ns, || inner.escaped()).map(|escaped| killed + escaped)
            }),
            true => kill::kill_until_none(until_ns, || inner.all_pids()),
        };
        ended.map(drop).map_err(|pids| Error::StillAlive {
            component: inner.spec.name.clone(),
            pids,
            waited_ns: KILL_TIMEOUT_NS,
        })
    }

    fn forget(&self, inner: &Arc<Inner>) -> Result<()> {
        self.monitor.forget(inner);
        // A folder that remains is below the run's folder, which is in the ledger.
        let _ = inner.group.remove(clock::now_ns() + KILL_TIMEOUT_NS);
        self.ledger.done(Resource::Group(inner.id))
    }
}

/// Waits until all processes are gone, at most until `until_ns`; returns how many are left.
fn wait_for_none(inner: &Inner, until_ns: u64) -> usize {
    let never = Cancel::new();
    loop {
        // The first process may be a zombie that is about to be reaped.
        let left = inner.all_pids().into_iter().filter(|pid| *pid != inner.id.pid).count();
        if left == 0 || clock::now_ns() >= until_ns {
            return left;
        }
        never.wait_until(until_ns.min(clock::now_ns() + POLL_INTERVAL_NS));
    }
}
