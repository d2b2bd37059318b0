//! Changes to a running component: its limits, and whether it may run at all.
//!
//! Limits are applied to the cgroups and to every process of the component, and read back; a limit the kernel did not
//! take is an error. Nothing here starts or ends a process.

use std::fs;

use loadlab_record::sync::lock;
use loadlab_record::text::cores::{MAX_OF_KERNEL, parse_cores};
use loadlab_record::watch::limits::LimitsInForce;
use rustix::process::{Pid, Resource, Rlimit, Signal};

use super::{Component, Inner};
use crate::cgroup::group::LimitError;
use crate::cgroup::limits::MemoryBeyond;
use crate::error::{Error, Result};
use crate::process::{kill, open_files};
use crate::spec::Limits;

impl Component {
    /// The limits last set, by loadlab or by its engine.
    pub fn limits(&self) -> Limits {
        lock(&self.inner.life).limits
    }

    /// The limits it has if the plan asks for these: where it asks for none, those that its engine set apply again,
    /// such as a Compose file's.
    pub fn limits_with(&self, asked: &Limits) -> Limits {
        asked.or(self.inner.own_limits)
    }

    /// Its limits once an event has changed the one on memory to that of `changed`: swap that its engine allows beside
    /// its own limit on memory does not add to another one.
    pub fn without_own_swap(&self, changed: Limits) -> Limits {
        without_own_swap(changed, self.limits(), self.inner.own_limits)
    }

    /// What it holds of memory, or of memory and swap, if these limits allow less, and less than its present ones. What the
    /// kernel can take from it at once, such as cached files, does not count.
    pub fn memory_beyond(&self, limits: &Limits) -> Option<MemoryBeyond> {
        self.inner.group.memory_beyond(&self.limits(), limits)
    }

    /// The limits in force, read back from the kernel.
    pub fn limits_in_force(&self) -> LimitsInForce {
        let mut limits = self.inner.group.in_force();
        let pid = self.inner.id.pid;
        if self.limits().open_files.is_some() {
            limits.open_files = open_files_of(pid);
        }
        if !self.inner.spec.cpus.is_empty() {
            limits.cpuset = cpus_of(pid);
        }
        let link = lock(&self.inner.life).link;
        limits.bandwidth_bytes_per_s = link.bytes_per_s;
        (limits.delay_ns, limits.jitter_ns, limits.packet_loss) = (link.delay_ns, link.jitter_ns, link.loss);
        limits
    }

    /// Stops all its processes until [`Component::resume`]. `false` if there were none.
    ///
    /// # Errors
    /// One of them may not be signalled by this user; the others are stopped.
    pub fn pause(&self) -> Result<bool> {
        lock(&self.inner.life).paused = true;
        self.signal_all(Signal::STOP)
    }

    /// Resumes all its processes. `false` if there were none.
    ///
    /// # Errors
    /// As for [`Component::pause`].
    pub fn resume(&self) -> Result<bool> {
        lock(&self.inner.life).paused = false;
        self.signal_all(Signal::CONT)
    }

    fn signal_all(&self, signal: Signal) -> Result<bool> {
        kill::signal_all(|| self.inner.pids(), signal)
            .map_err(|pid| Error::NotSignalled { component: self.name().to_owned(), pid })
    }

    /// Whether it was paused and has not been resumed.
    pub fn is_paused(&self) -> bool {
        lock(&self.inner.life).paused
    }
}

impl Inner {
    /// Resumes a paused component that is about to be asked to end: it would see that signal only when its time is up.
    pub(crate) fn resume_to_stop(&self) {
        if std::mem::take(&mut lock(&self.life).paused) {
            // One that this user may not signal was not paused either.
            let _ = kill::signal_all(|| self.pids(), Signal::CONT);
        }
    }
}

/// `now` are the limits before the one on memory was changed, `own` those that its engine set.
fn without_own_swap(changed: Limits, now: Limits, own: Limits) -> Limits {
    let of = |limits: Limits| (limits.memory_bytes, limits.memory_swap_bytes);
    // Swap that the plan or an event asked for stays.
    let is_owns = of(now) == of(own) && changed.memory_bytes != own.memory_bytes;
    Limits { memory_swap_bytes: changed.memory_swap_bytes.filter(|_| !is_owns), ..changed }
}

/// Applies the limit to every process that exists now; new ones inherit it.
pub(crate) fn limit_open_files(inner: &Inner, most: Option<u64>) -> std::result::Result<(), LimitError> {
    let limit = most.map_or("open files to none".to_owned(), |n| format!("open files to {n}"));
    // A process without an explicit limit started with loadlab's, as it was before loadlab raised it; a container with
    // its engine's. That one is not known if the plan set another when the container came up: it then gets loadlab's.
    let wanted = match most {
        Some(n) => Rlimit { current: Some(n), maximum: Some(n) },
        None => inner
            .own_open_files
            .or_else(open_files::given)
            .unwrap_or_else(|| rustix::process::getrlimit(Resource::Nofile)),
    };
    let pids = inner.pids();
    for (pid, pidfd) in kill::pinned(pids, || inner.pids()) {
        let is_there = || kill::is_there(&pidfd);
        let done = limit_one(pid, wanted, &is_there);
        // A process that has ended in the meantime opens no more files.
        let failed = done.err().filter(|e| *e != rustix::io::Errno::SRCH);
        let back = open_files_of(pid).filter(|_| is_there());
        let why = match (failed, back, wanted.current) {
            (Some(error), ..) => format!("process {pid}: {error}"),
            (None, Some(has), Some(wanted)) if has != wanted => {
                format!("process {pid} has a limit of {has}")
            }
            _ => continue,
        };
        let hint = "more than the hard limit needs the capability CAP_SYS_RESOURCE; choose less";
        return Err(LimitError { limit, why, hint: hint.to_owned() });
    }
    Ok(())
}

/// Limits one process, then checks that it is still there. The kernel takes a bare pid here, which may have been reused
/// in the meantime: that process gets its own limits back.
fn limit_one(pid: u32, wanted: Rlimit, is_there: &dyn Fn() -> bool) -> rustix::io::Result<()> {
    if !is_there() {
        return Err(rustix::io::Errno::SRCH);
    }
    let before = rustix::process::prlimit(Pid::from_raw(pid as i32), Resource::Nofile, wanted)?;
    if !is_there() {
        // The pid may be free by now.
        let _ = rustix::process::prlimit(Pid::from_raw(pid as i32), Resource::Nofile, before);
        return Err(rustix::io::Errno::SRCH);
    }
    Ok(())
}

/// The soft limit on open files of a process; `None` if the process is gone or has no limit.
pub(crate) fn open_files_of(pid: u32) -> Option<u64> {
    open_files_limit_of(pid)?.current
}

/// The limit on open files of a process; `None` if the process is gone.
pub(crate) fn open_files_limit_of(pid: u32) -> Option<Rlimit> {
    open_files::parsed(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// The cores a process may run on, such as `0-1,3`.
fn cpus_of(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(|list| list.trim().to_owned())
}

/// Checks the configured cores against what the kernel reports for the first process.
pub(crate) fn check_cpus(inner: &Inner) -> Result<()> {
    let mut wanted = inner.spec.cpus.clone();
    wanted.sort_unstable();
    wanted.dedup();
    // A process that has already ended has no core list.
    let Some(list) = cpus_of(inner.id.pid).filter(|_| !wanted.is_empty()) else { return Ok(()) };
    if parse_cores(&list, MAX_OF_KERNEL).as_ref() == Some(&wanted) {
        return Ok(());
    }
    Err(Error::Limit {
        component: inner.spec.name.clone(),
        limit: format!("cores to {wanted:?}"),
        why: format!("the process may run on {list}"),
        hint: "does the command set its own cores, or is one of them offline or not allowed for loadlab?"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_pid_of_one_that_is_gone_keeps_its_limits() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (pid, before) = (child.id(), open_files_of(child.id()));
        let wanted =
            Rlimit { current: Some(7), maximum: rustix::process::getrlimit(Resource::Nofile).maximum };
        // The process exists at the first look only, or not even then.
        for there in [1, 0] {
            let looked = std::cell::Cell::new(0);
            let is_there = || {
                looked.set(looked.get() + 1);
                looked.get() <= there
            };
            assert_eq!(limit_one(pid, wanted, &is_there), Err(rustix::io::Errno::SRCH));
            assert_eq!((looked.get(), open_files_of(pid)), (there + 1, before));
        }
        assert_eq!((limit_one(pid, wanted, &|| true), open_files_of(pid)), (Ok(()), Some(7)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn swap_goes_with_the_memory_it_was_allowed_for() {
        let of = |memory, swap| Limits {
            memory_bytes: Some(memory),
            memory_swap_bytes: swap,
            ..Limits::default()
        };
        let own = of(64, Some(128));
        for (changed, now, expect) in [
            (of(32, Some(128)), own, None),
            (of(32, Some(Limits::ANY_SWAP)), of(64, Some(Limits::ANY_SWAP)), Some(Limits::ANY_SWAP)),
            (of(64, Some(128)), own, Some(128)),
            // As much as the engine allows, but asked for.
            (of(48, Some(128)), of(32, Some(128)), Some(128)),
            (of(48, Some(96)), of(64, Some(96)), Some(96)),
            (of(32, None), own, None),
        ] {
            assert_eq!(without_own_swap(changed, now, own).memory_swap_bytes, expect, "{changed:?}");
        }
        let own = of(64, Some(Limits::ANY_SWAP));
        assert_eq!(without_own_swap(of(32, own.memory_swap_bytes), own, own), of(32, None));
        // A process has no limits but the plan's.
        let planned = of(32, Some(96));
        assert_eq!(without_own_swap(planned, of(64, Some(96)), Limits::default()), planned);
    }

    #[test]
    fn lists_of_cores() {
        let own = parse_cores(&cpus_of(std::process::id()).unwrap(), MAX_OF_KERNEL);
        assert!(own.is_some_and(|cores| !cores.is_empty()));
        assert!(open_files_of(std::process::id()) > Some(0));
    }
}
