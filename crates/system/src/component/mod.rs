//! A running component: its process, its cgroups, its logs, and how it ended.

pub(crate) mod limits;
pub(crate) mod monitor;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use loadlab_record::sync::{self, lock};
use loadlab_record::text::units::format_bytes;
use rustix::process::{Pid, Rlimit, WaitIdStatus};

use crate::cgroup::group::Group;
use crate::engine::container::ContainerHandle;
use crate::error::Tail;
use crate::logs::{self, Log};
use crate::process::{self, ProcessFamily, ProcessId};
use crate::spec::{ComponentSpec, Limits, LinkLimits, Signal, Unavailable};
use crate::watch::target::{Target, memory_limit};

/// A component that was brought up. Clones refer to the same component.
#[derive(Clone, Debug)]
pub struct Component {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub spec: ComponentSpec,
    pub id: ProcessId,
    pub pidfd: OwnedFd,
    pub family: ProcessFamily,
    pub group: Group,
    pub logs: Vec<Log>,
    pub started_ns: u64,
    pub unavailable: Vec<Unavailable>,
    /// Limits that its engine set although its spec does not ask for them, such as those of a Compose file. A process
    /// has none.
    pub own_limits: Limits,
    /// The limit on open files, likewise. A process began with loadlab's.
    pub own_open_files: Option<Rlimit>,
    /// Whether this is a command of the plan, not a component: its end is not reported.
    pub is_command: bool,
    /// Whether it has been ready: from then on its end is reported as a death. Before that, `ready` returns its end as
    /// an error.
    pub was_ready: AtomicBool,
    /// Whether it has ended and its engine is being asked how.
    pub is_status_requested: AtomicBool,
    /// Whether its end is intended.
    pub is_stopping: AtomicBool,
    pub life: Mutex<Life>,
    pub ended: Condvar,
    pub origin: Origin,
}

/// Who started it; decides how it is signalled and who knows how it ended.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Our own child.
    Process,
    /// A container of an engine.
    Container(Box<ContainerHandle>),
}

/// The mutable state of a component.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub ended: Option<Ended>,
    /// OOM kills reported while it lived.
    pub oom_kills: u64,
    /// OOM kills read after it ended.
    pub oom_kills_at_end: u64,
    /// Logs that were cut, by index.
    pub cut: Vec<usize>,
    /// Its current limits.
    pub limits: Limits,
    /// The limits on its link, as read back.
    pub link: LinkLimits,
    /// Whether `pause` has stopped all its processes.
    pub paused: bool,
}

/// How and when a component's first process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub status: Status,
    /// When it was noticed, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its exit status, if it exited.
    pub exit: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<Signal>,
    /// The kernel killed it or one of its processes for memory: at a limit of this many bytes (`Some(Some(_))`), or
    /// without a limit.
    pub out_of_memory: Option<Option<u64>>,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.out_of_memory {
            Some(Some(limit)) => write!(f, "out of memory (limit {}), ", format_bytes(limit as f64))?,
            Some(None) => f.write_str("out of memory, ")?,
            None => {}
        }
        match (self.exit, self.signal) {
            (Some(exit), _) => write!(f, "exit status {exit}"),
            (None, Some(signal)) => write!(f, "{signal}"),
            (None, None) => f.write_str("an unknown status"),
        }
    }
}

impl Component {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.spec.name
    }

    /// The spec it was brought up from.
    pub fn spec(&self) -> &ComponentSpec {
        &self.inner.spec
    }

    /// Its first process.
    pub fn process(&self) -> ProcessId {
        self.inner.id
    }

    /// When its process was started, nanoseconds of `CLOCK_MONOTONIC`.
    pub fn started_ns(&self) -> u64 {
        self.inner.started_ns
    }

    /// Where a container can be reached from here: its own address. `None` for a process, which is reached at the
    /// machine's address.
    pub fn address(&self) -> Option<std::net::IpAddr> {
        match &self.inner.origin {
            Origin::Process => None,
            Origin::Container(handle) => handle.address,
        }
    }

    /// Its container id, if it is a container.
    pub(crate) fn container(&self) -> Option<&String> {
        match &self.inner.origin {
            Origin::Process => None,
            Origin::Container(handle) => Some(&handle.id),
        }
    }

    /// Whether it is a container.
    pub fn is_container(&self) -> bool {
        matches!(self.inner.origin, Origin::Container(_))
    }

    /// Whether it has ended because it was asked to.
    pub fn ended_on_request(&self) -> bool {
        self.inner.is_leaving() && self.ended().is_some()
    }

    /// What this host cannot provide to it.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.inner.unavailable
    }

    /// How its first process ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        lock(&self.inner.life).ended.clone()
    }

    /// What the watcher should read for it.
    pub fn target(&self) -> Target {
        self.inner.target()
    }

    /// The limit on memory that its samples carry: the one in force, else the one last set.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        let asked = self.limits().memory_bytes;
        memory_limit(&self.inner.group.cgroups).or(asked)
    }

    /// Its live processes: those in its cgroup, or else its process family.
    pub fn pids(&self) -> Vec<u32> {
        self.inner.pids()
    }

    /// How many times the kernel has killed one of its processes for memory. `None` if unknown.
    pub fn oom_kills(&self) -> Option<u64> {
        self.inner.group.oom_kills()
    }

    /// Processes that have left its cgroup, found by the mark in their environment: they are neither limited nor
    /// counted. Scans every process on the machine, so do not call it in the middle of a load.
    pub fn escaped(&self) -> Vec<u32> {
        self.inner.escaped()
    }

    /// The last lines of its logs.
    pub fn tail(&self) -> Tail {
        logs::tail(&self.inner.logs)
    }

    /// It is about to be taken down: if it ends from now on, for example because its peers are gone, that is not reported
    /// as a death.
    pub fn expect_end(&self) {
        self.inner.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Sends a signal to its process group; `false` if its first process has ended. Does not wait for the signal to
    /// take effect; if the component ends, its end is reported as a death like any other.
    pub fn send(&self, signal: Signal) -> bool {
        self.inner.send(signal)
    }
}

impl Inner {
    /// What the watcher should read for it.
    pub fn target(&self) -> Target {
        let asked = lock(&self.life).limits.memory_bytes;
        Target::component(&self.spec.name, &self.group.cgroups, &self.family, asked)
    }

    /// Signals the group as long as its leader has not been reaped: until then the group id cannot be reused.
    #[expect(unsafe_code, reason = "killpg with signals that rustix has no names for")]
    pub fn send(&self, signal: Signal) -> bool {
        let life = lock(&self.life);
        if life.ended.is_some() {
            return false;
        }
        if let Origin::Container(handle) = &self.origin {
            // Release the lock: the monitor must be able to record its end in the meantime.
            drop(life);
            return handle.signal(signal);
        }
        let Some(group) = Pid::from_raw(self.id.pid as i32) else { return false };
        let Some(signal) = rustix::process::Signal::from_named_raw(signal.number()) else {
            // SAFETY: killpg(2) takes two integers and touches no memory; the group is ours, see above.
            return unsafe { libc::killpg(self.id.pid as i32, signal.number()) } == 0;
        };
        rustix::process::kill_process_group(group, signal).is_ok()
    }

    pub fn pids(&self) -> Vec<u32> {
        match self.group.cgroups.is_empty() {
            false => self.group.pids(),
            true => self.family.members(&process::snapshot()).iter().map(|s| s.pid).collect(),
        }
    }

    /// Everything that must be gone after `down`; without a cgroup this scans every process on the machine.
    pub fn all_pids(&self) -> Vec<u32> {
        match self.group.cgroups.is_empty() {
            false => self.group.pids(),
            true => self.family.members_and_marked().iter().map(|s| s.pid).collect(),
        }
    }

    pub fn escaped(&self) -> Vec<u32> {
        if self.group.cgroups.is_empty() {
            return Vec::new();
        }
        let marked = process::marked(&self.family.mark);
        // A process that is in the group by now was still being forked.
        let inside = self.group.pids();
        marked.iter().map(|s| s.pid).filter(|pid| !inside.contains(pid)).collect()
    }

    /// How many times the kernel has killed one of its processes for memory: read now, or the last known value if its
    /// cgroup is gone.
    pub fn count_oom_kills(&self, life: &mut Life) -> u64 {
        let kills = self.group.oom_kills().unwrap_or(0);
        life.oom_kills_at_end = life.oom_kills_at_end.max(life.oom_kills).max(kills);
        life.oom_kills_at_end
    }

    /// Reaps the first process if it has ended, and records how. `true` if it has ended since the last call.
    pub fn reap(&self, now_ns: u64, was_leaving: bool) -> bool {
        // Ask the engine before taking the lock, so that nothing else waits for its answer.
        let (ended, engine_reports_oom) = match &self.origin {
            Origin::Process => (None, false),
            Origin::Container(handle) => {
                let (exit, out_of_memory) = handle.ended();
                (Some((exit, None)), out_of_memory)
            }
        };
        let mut life = lock(&self.life);
        if life.ended.is_some() {
            return false;
        }
        let Some(status) = ended.or_else(|| wait(&self.pidfd)) else { return false };
        // The kernel counts an OOM kill before it sends the signal. An OOM kill counted earlier may have hit another
        // process of the component, unless this one was killed (which a shell reports as 137).
        let kills = self.count_oom_kills(&mut life);
        let was_killed = status.1 == Some(Signal::KILL) || status.0 == Some(128 + libc::SIGKILL);
        let is_counted = kills > life.oom_kills && status.0 != Some(0) || kills > 0 && was_killed;
        let is_oom = is_counted || engine_reports_oom;
        let out_of_memory = (is_oom && !was_leaving).then_some(life.limits.memory_bytes);
        life.ended =
            Some(Ended { status: Status { exit: status.0, signal: status.1, out_of_memory }, at_ns: now_ns });
        self.ended.notify_all();
        true
    }

    /// Waits for the monitor to reap it. The pidfd was readable, so this is quick; if an engine does not report how a
    /// container ended, it lasts until that question is given up.
    pub fn wait_reaped(&self) -> Ended {
        let mut life = lock(&self.life);
        loop {
            if let Some(ended) = &life.ended {
                return ended.clone();
            }
            life = sync::wait(&self.ended, life);
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

/// Reaps the process and returns its exit status or signal, if it has ended.
fn wait(pidfd: &OwnedFd) -> Option<(Option<i32>, Option<Signal>)> {
    use std::os::fd::AsFd;
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG;
    let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
    match rustix::process::waitid(id, options) {
        Ok(None) => None,
        Ok(Some(status)) => Some(exit_or_signal(&status)),
        Err(rustix::io::Errno::INTR) => None,
        // Something else reaped it (a host program that waits for any child): it has ended, but how is unknown.
        Err(_) => Some((None, None)),
    }
}

fn exit_or_signal(status: &WaitIdStatus) -> (Option<i32>, Option<Signal>) {
    match status.exit_status() {
        Some(exit) => (Some(exit), None),
        None => (None, status.terminating_signal().and_then(Signal::from_number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_in_words() {
        let exit = |exit| Status { exit: Some(exit), signal: None, out_of_memory: None };
        let killed = Status { exit: None, signal: Some(Signal::KILL), out_of_memory: None };
        for (status, expect) in [
            (exit(1), "exit status 1"),
            (killed, "signal 9 (SIGKILL)"),
            (
                Status { out_of_memory: Some(Some(15 << 20)), ..killed },
                "out of memory (limit 15.0 MiB), signal 9 (SIGKILL)",
            ),
            (Status { out_of_memory: Some(None), ..exit(137) }, "out of memory, exit status 137"),
        ] {
            assert_eq!(status.to_string(), expect);
        }
    }
}
