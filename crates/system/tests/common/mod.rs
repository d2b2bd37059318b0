//! Helpers shared by the tests that run real processes.
#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "../../../loadlab/tests/common/ports.rs"]
mod ports;
#[path = "../../../loadlab/tests/common/skip.rs"]
pub mod skip;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use loadlab_system::{Cancel, ComponentSpec, Notice, ProcessId, Stop, System, SystemSpec, clock};

pub const FIXTURE: &str = env!("CARGO_BIN_EXE_system-fixture");
/// Far beyond anything that works: only a failing test takes this long.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// A folder on a disk, a system in it, and its notices.
pub struct Bench {
    // Fields drop in this order: the system goes while its folder still exists.
    pub system: System,
    pub dir: tempfile::TempDir,
    pub notices: Receiver<Notice>,
}

pub fn run_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

impl Bench {
    pub fn new() -> Bench {
        Self::with(|_| {})
    }

    /// As on a host without cgroups.
    pub fn without_cgroups() -> Bench {
        Self::with(|spec| spec.cgroup_root = spec.run_dir.join("no-root"))
    }

    pub fn with(change: impl FnOnce(&mut SystemSpec)) -> Bench {
        let dir = temp_dir();
        let mut spec = SystemSpec::new(&run_id(), dir.path(), &dir.path().join("scratch"), None);
        spec.state_dir = dir.path().join("state");
        change(&mut spec);
        let (system, notices) = System::new(spec).unwrap();
        Bench { dir, system, notices }
    }

    /// One bench on this host as it is, and one each as if it had only cgroup v1, only v2, or no cgroups.
    pub fn of_all_kinds() -> Vec<Bench> {
        let only = |kind: &'static str| {
            Self::with(move |spec| {
                let root = spec.run_dir.join("root");
                fs::create_dir_all(root.join("proc/self")).unwrap();
                std::os::unix::fs::symlink("/sys", root.join("sys")).unwrap();
                let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
                let kept: Vec<&str> = mounts.lines().filter(|line| line.contains(kind)).collect();
                fs::write(root.join("proc/self/mountinfo"), kept.join("\n")).unwrap();
                fs::copy("/proc/self/cgroup", root.join("proc/self/cgroup")).unwrap();
                spec.cgroup_root = root;
            })
        };
        vec![Self::new(), only(" - cgroup "), only(" - cgroup2 "), Self::without_cgroups()]
    }

    pub fn spec(&self, name: &str, command: &str) -> ComponentSpec {
        let spec = ComponentSpec::new(name, command, self.dir.path(), self.dir.path().join("logs"));
        // One that obeys must not be killed because a busy machine lets it wait.
        ComponentSpec { stop: Stop { timeout_ns: PATIENCE_NS, ..Stop::default() }, ..spec }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Whether limits can be applied here. Without root they usually cannot, which has its own test.
    pub fn has_limits(&self) -> bool {
        let missing: Vec<&str> = self.system.unavailable().iter().map(|u| u.what.as_str()).collect();
        !["cpu", "memory", "pids"]
            .iter()
            .any(|c| missing.contains(&format!("cgroup controller `{c}`").as_str()))
            && self.system.cgroup_version() != "none"
    }

    pub fn notice(&self) -> Notice {
        self.notices.recv_timeout(std::time::Duration::from_nanos(PATIENCE_NS)).unwrap()
    }
}

/// Read and write calls of this thread so far, as counted by the kernel; `None` if the kernel does not count them. The
/// number of calls is the same on every machine, however busy it is.
pub fn calls_of_thread() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((of("syscr:")?, of("syscw:")?))
}

/// Polls until there is a result.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until_ns = clock::now_ns() + PATIENCE_NS;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock::now_ns() < until_ns, "{what} did not happen");
        Cancel::new().wait_until(clock::now_ns() + 5_000_000);
    }
}

pub fn free_port() -> u16 {
    ports::unused().port()
}

/// Writes a program of this text. A child writes it: a file that this process had open for writing cannot be run while
/// a child of another test, forked meanwhile, still has it open.
pub fn write_program(path: &Path, text: &str) {
    let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let written = std::process::Command::new("/bin/sh").args(["-c", write]).arg(path).arg(text).status();
    assert!(written.unwrap().success(), "{}", path.display());
}

/// Whether the shell that this process began as has run its last program, `sleep`. In the middle of that exec a process
/// has no environment to find it by, and the program opens its libraries only afterwards.
pub fn has_become_sleep(pid: u32) -> bool {
    let is_sleep = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    is_sleep && fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| !environ.is_empty())
}

/// The process whose pid was written to a file, with its start time, once it is `sleep`.
pub fn pid_in(file: &Path) -> ProcessId {
    eventually(&format!("a pid of `sleep` in {}", file.display()), || {
        let pid: u32 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        if !has_become_sleep(pid) {
            return None;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start_ticks = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some(ProcessId { pid, start_ticks })
    })
}

/// Whether a process still runs. One that was killed runs nothing any more and is in no cgroup, but `/proc` shows it as
/// alive until the kernel has finished its exit.
pub fn runs(process: ProcessId) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 4;
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(6));
    let is_exiting =
        flags.and_then(|flags| flags.parse::<u64>().ok()).is_none_or(|flags| flags & EXITING != 0);
    process.is_alive() && !is_exiting
}

/// A command that starts a daemon the classic way – forked twice, in its own session, its pid in `file` – and keeps
/// running.
pub fn with_daemon(file: &str) -> String {
    format!("(setsid sh -c 'echo $$ > {file}; exec sleep 1000' &); exec sleep 1000")
}
