//! Kills processes reliably, and only the right ones.
//!
//! Between reading a pid and signalling it, the process may end and its pid be reused. So a process is first pinned by
//! a pidfd, then checked again, then signalled through the pidfd. Used by `down`, the guardian and `clean`.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cancel::Cancel;
use crate::clock;
use crate::process::{self, ProcessId};

/// Pause between two rounds of killing.
const ROUND_NS: u64 = 5_000_000;

/// The processes of a cgroup folder and of all folders below it. Empty if it is gone.
pub(crate) fn processes_in(dir: &Path) -> Vec<u32> {
    let mut pids: Vec<u32> = fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        // A process of another pid namespace shows up as 0.
        .filter(|pid| *pid != 0)
        .collect();
    for child in folders_in(dir) {
        pids.extend(processes_in(&child));
    }
    pids
}

fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

fn pin(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()
}

/// Processes of a list that are still listed once pinned: each is the one that was meant.
pub(crate) fn pinned(first: Vec<u32>, list: impl Fn() -> Vec<u32>) -> Vec<(u32, OwnedFd)> {
    let pinned: Vec<(u32, OwnedFd)> = first.into_iter().filter_map(|pid| Some((pid, pin(pid)?))).collect();
    let second: std::collections::HashSet<u32> = list().into_iter().collect();
    pinned.into_iter().filter(|(pid, _)| second.contains(pid)).collect()
}

/// Whether a pinned process is still alive, and its pid its own.
pub(crate) fn is_there(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    // A pidfd becomes readable as soon as its process has ended.
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ended| ended == 0)
}

/// Kills everything in the folders until nothing is left. Returns how many were killed, or which are left at
/// `until_ns`.
pub(crate) fn kill_groups(dirs: &[PathBuf], until_ns: u64) -> Result<usize, Vec<u32>> {
    for dir in dirs {
        // v2 (5.14) kills a whole subtree at once; v1's pids controller stops further forks. Both are only shortcuts:
        // without them the rounds below do the work.
        if dir.join("cgroup.kill").exists() {
            let _ = fs::write(dir.join("cgroup.kill"), "1");
        } else if dir.join("pids.max").exists() {
            let _ = fs::write(dir.join("pids.max"), "0");
        }
    }
    kill_until_none(until_ns, || dirs.iter().flat_map(|dir| processes_in(dir)).collect())
}

/// Kills everything `list` returns until it returns nothing.
pub(crate) fn kill_until_none(until_ns: u64, list: impl Fn() -> Vec<u32>) -> Result<usize, Vec<u32>> {
    let mut killed = std::collections::HashSet::new();
    let never = Cancel::new();
    loop {
        let first = list();
        if first.is_empty() {
            return Ok(killed.len());
        }
        let pinned: Vec<(u32, OwnedFd)> = first.iter().filter_map(|pid| Some((*pid, pin(*pid)?))).collect();
        let second: std::collections::HashSet<u32> = list().into_iter().collect();
        for (pid, pidfd) in &pinned {
            if second.contains(pid) && pidfd_send_signal(pidfd, Signal::KILL).is_ok() {
                killed.insert(*pid);
            }
        }
        if clock::now_ns() >= until_ns {
            let left = list();
            return if left.is_empty() { Ok(killed.len()) } else { Err(left) };
        }
        never.wait_until(clock::now_ns() + ROUND_NS);
    }
}

/// Sends a signal to everything `list` returns, and to what those processes fork meanwhile. `false` if there was no
/// process.
///
/// # Errors
/// The pid of a process that this user may not signal. The others have been signalled.
pub(crate) fn signal_all(list: impl Fn() -> Vec<u32>, signal: Signal) -> Result<bool, u32> {
    signal_all_by(list, |pidfd| pidfd_send_signal(pidfd, signal))
}

fn signal_all_by(
    list: impl Fn() -> Vec<u32>,
    send: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
) -> Result<bool, u32> {
    let mut signalled = std::collections::HashSet::new();
    let mut refused = None;
    // A stopped process forks no more, so a few rounds reach all of them.
    for _ in 0..10 {
        let pinned: Vec<(u32, OwnedFd)> = list()
            .into_iter()
            .filter(|pid| !signalled.contains(pid) && refused != Some(*pid))
            .filter_map(|pid| Some((pid, pin(pid)?)))
            .collect();
        if pinned.is_empty() {
            break;
        }
        let second: std::collections::HashSet<u32> = list().into_iter().collect();
        for (pid, pidfd) in pinned.iter().filter(|(pid, _)| second.contains(pid)) {
            match send(pidfd) {
                Ok(()) => {
                    signalled.insert(*pid);
                }
                Err(rustix::io::Errno::PERM) => refused = Some(*pid),
                // It has ended.
                Err(_) => {}
            }
        }
    }
    refused.map_or(Ok(!signalled.is_empty()), Err)
}

/// Kills a process, if the pid still belongs to it.
pub(crate) fn kill_process(id: ProcessId) -> bool {
    let Some(pidfd) = pin(id.pid) else { return false };
    process::stat(id.pid).is_some_and(|s| s.start_ticks == id.start_ticks && !s.is_dead())
        && pidfd_send_signal(&pidfd, Signal::KILL).is_ok()
}

/// Removes a cgroup folder and everything below it. The kernel releases an emptied group a moment after its last
/// process ended, hence the retries. `true` if it is gone.
pub(crate) fn remove_groups(dir: &Path, until_ns: u64) -> bool {
    for child in folders_in(dir) {
        remove_groups(&child, until_ns);
    }
    let never = Cancel::new();
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return true,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return true,
            Err(_) if clock::now_ns() >= until_ns => return false,
            Err(_) => never.wait_until(clock::now_ns() + ROUND_NS),
        };
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_process_that_may_not_be_signalled_is_reported() {
        let own = std::process::id();
        let signalled =
            |list: &[u32], answer: rustix::io::Result<()>| signal_all_by(|| list.to_vec(), |_| answer);
        assert_eq!(signalled(&[own], Ok(())), Ok(true));
        assert_eq!(signalled(&[own], Err(Errno::PERM)), Err(own));
        assert_eq!(signalled(&[own], Err(Errno::SRCH)), Ok(false));
        assert_eq!(signalled(&[], Ok(())), Ok(false));
    }
}
