//! A run's state: what it has made and not removed yet, and which process owns it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::process::{self, ProcessId};

/// A resource that a run has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A cgroup folder, with everything below it.
    Cgroup(PathBuf),
    /// A process that leads its own group.
    Group(ProcessId),
    /// A scratch folder.
    Dir(PathBuf),
    /// Everything that has this label at a container engine: containers, networks, volumes.
    Engine {
        /// The engine's socket.
        socket: PathBuf,
        /// `loadlab.run=…`.
        label: String,
    },
    /// Something with this label that the engine was asked to make and has not confirmed: it may still appear.
    Asked {
        /// The engine's socket.
        socket: PathBuf,
        /// `loadlab.run=…`.
        label: String,
        /// What was asked for: the component, or the Compose project.
        what: String,
    },
}

/// A message to the guardian, one per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Run(RunState),
    Made(Resource),
    Done(Resource),
}

/// A run's state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    /// The run's id.
    pub run_id: String,
    /// The loadlab process that owns it.
    pub owner: ProcessId,
    /// The boot that all pids refer to.
    pub boot_id: String,
    /// The folder of the run's record.
    pub run_dir: PathBuf,
    /// `NAME=value` in the environment of everything it started.
    pub mark: String,
    /// Its guardian, if it has one.
    pub guardian: Option<ProcessId>,
    /// What it has made and not removed yet.
    pub resources: Vec<Resource>,
    /// The path of this state file.
    pub file: PathBuf,
}

impl RunState {
    /// Whether the loadlab process that owns it is running, or may be: see [`RunState::is_elsewhere`].
    pub fn is_alive(&self) -> bool {
        self.is_elsewhere() || self.boot_id == process::boot_id() && self.owner.is_alive()
    }

    /// Whether its pids are those of another pid namespace of this boot, such as a container's that shares the state
    /// folder: they mean nothing here. The mark of an older loadlab names no namespace.
    pub fn is_elsewhere(&self) -> bool {
        let tag = self.mark.rsplit('/').next().and_then(parts_of);
        tag.is_some_and(|[_, _, namespace]| namespace != pid_namespace())
            && self.boot_id == process::boot_id()
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Run(state) => *self = state,
            Change::Made(resource) if !self.resources.contains(&resource) => self.resources.push(resource),
            Change::Made(_) => {}
            Change::Done(resource) => self.resources.retain(|r| *r != resource),
        }
    }

    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::File {
            doing: "write",
            path: self.file.clone(),
            source: e.into(),
        })?;
        let fresh = self.file.with_extension("json.new");
        fs::write(&fresh, text).map_err(Error::file("write", &fresh))?;
        fs::rename(&fresh, &self.file).map_err(Error::file("write", &self.file))
    }
}

/// The folder of state files: `/run/loadlab` for root, else `$XDG_RUNTIME_DIR/loadlab` or `/tmp/loadlab-UID`.
pub fn default_dir() -> PathBuf {
    let uid = rustix::process::geteuid();
    // Root in a user namespace may be someone else outside, to whom `/run` does not belong.
    let owns_run = fs::symlink_metadata("/run").is_ok_and(|run| run.uid() == uid.as_raw());
    if uid.is_root() && owns_run {
        return PathBuf::from("/run/loadlab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => Path::new(&dir).join("loadlab"),
        None => {
            let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            PathBuf::from(format!("/tmp/loadlab-{}", outer_id(&map, uid.as_raw())))
        }
    }
}

/// The id a user has outside this user namespace (`/proc/PID/uid_map`, user_namespaces(7)).
fn outer_id(map: &str, uid: u32) -> u32 {
    let of = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        let (inside, outside, length) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let at = uid.checked_sub(inside).filter(|at| *at < length)?;
        outside.checked_add(at)
    };
    map.lines().find_map(of).unwrap_or(uid)
}

/// Makes the folder private, or checks that it is: whatever its files name gets killed and removed.
pub(super) fn own_dir(dir: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::file("create", dir))?;
    let found = fs::symlink_metadata(dir).map_err(Error::file("read", dir))?;
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let source = std::io::Error::other("it is not a folder that only this user can write to");
    Err(Error::File { doing: "use the state folder", path: dir.to_owned(), source })
}

/// Identifies a process where only names are stored: its pid, its start time and its pid namespace, in hexadecimal.
pub(crate) fn tag(process: ProcessId) -> String {
    format!("{:x}-{:x}-{:x}", process.pid, process.start_ticks, pid_namespace())
}

/// The parts of a [`tag`]: pid, start time, pid namespace.
fn parts_of(tag: &str) -> Option<[u64; 3]> {
    let parts: Option<Vec<u64>> = tag.split('-').map(|part| u64::from_str_radix(part, 16).ok()).collect();
    parts?.try_into().ok()
}

/// Whether the process that a [`tag`] names is gone. Nothing can be known here about a process in another namespace.
pub(super) fn is_dead(tag: &str) -> bool {
    match parts_of(tag) {
        Some([pid, start_ticks, namespace]) if namespace == pid_namespace() => {
            u32::try_from(pid).is_ok_and(|pid| !ProcessId { pid, start_ticks }.is_alive())
        }
        _ => false,
    }
}

/// Inode of the pid namespace: a pid means nothing in another one. 0 if the kernel does not report it.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// Writes one change as a line.
pub(crate) fn write_line(into: &mut impl Write, change: &Change) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(change)?;
    line.push(b'\n');
    into.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_a_user_namespace() {
        let whole = "         0          0 4294967295\n";
        assert_eq!((outer_id(whole, 0), outer_id(whole, 1000)), (0, 1000));
        let mapped = "         0       1000          1\n";
        assert_eq!((outer_id(mapped, 0), outer_id(mapped, 5)), (1000, 5));
        let two = "0 1000 1\n1 100000 65536\n";
        assert_eq!((outer_id(two, 0), outer_id(two, 3), outer_id("", 7)), (1000, 100_002, 7));
    }
}
