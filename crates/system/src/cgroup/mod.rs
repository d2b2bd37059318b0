//! Control groups: finds, creates, limits, reads, empties and removes them on hosts with v1, v2, or both.
//!
//! A host may keep each controller in its own v1 hierarchy, all of them in the v2 tree, or some in each. So every
//! lookup goes by controller: where it lives, and which folder is ours there. [`tree`] finds the hierarchies and makes
//! `loadlab/RUN` in each, [`group`] makes, limits and removes one component's folders below that, [`limits`] changes
//! its limits and reads them back, [`read`] reads counters.
//!
//! Every function takes paths; none assumes `/sys/fs/cgroup`. Sources: cgroups(7), the kernel's
//! `admin-guide/cgroup-v1` and `admin-guide/cgroup-v2`.

pub(crate) mod group;
pub(crate) mod limits;
pub(crate) mod read;
pub(crate) mod tree;

use std::path::{Path, PathBuf};

/// The interface version of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// What a hierarchy can limit or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// Limits CPU time.
    Cpu,
    /// Counts CPU time (in v2 every group does).
    Cpuacct,
    Memory,
    Pids,
    /// `blkio` in v1.
    Io,
}

impl Controller {
    pub const ALL: [Controller; 5] =
        [Controller::Cpu, Controller::Cpuacct, Controller::Memory, Controller::Pids, Controller::Io];

    pub fn from_v1(name: &str) -> Option<Controller> {
        Self::ALL.into_iter().find(|c| c.v1_name() == name)
    }

    pub fn from_v2(name: &str) -> Option<Controller> {
        Self::ALL.into_iter().find(|c| c.v2_name() == Some(name))
    }

    pub fn v1_name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Cpuacct => "cpuacct",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Io => "blkio",
        }
    }

    /// The controller's name in v2; `None` if v2 needs no controller for it.
    pub fn v2_name(self) -> Option<&'static str> {
        match self {
            Controller::Cpu => Some("cpu"),
            Controller::Cpuacct => None,
            Controller::Memory => Some("memory"),
            Controller::Pids => Some("pids"),
            Controller::Io => Some("io"),
        }
    }
}

/// A folder in one hierarchy, and the controllers it covers there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupDir {
    pub version: Version,
    pub controllers: Vec<Controller>,
    pub dir: PathBuf,
}

/// The folder that covers a controller, among `cgroups`.
pub(crate) fn cgroup_of(cgroups: &[CgroupDir], controller: Controller) -> Option<&CgroupDir> {
    cgroups.iter().find(|p| p.controllers.contains(&controller))
}

/// The group of a whole container, given that of its first process, which a service manager moves into a group of its
/// own below it. `is_containers` recognises the part of the path that is named after the container; other groups below
/// that, such as Podman's `container`, hold the whole container.
pub(crate) fn of_whole_container(dir: &Path, is_containers: impl Fn(&str) -> bool) -> PathBuf {
    let (mut whole, mut is_below) = (PathBuf::new(), false);
    for part in dir {
        if is_below && part == "init.scope" {
            break;
        }
        is_below |= is_containers(&part.to_string_lossy());
        whole.push(part);
    }
    whole
}

/// Whether a part of a path is named after a container by an engine: with its id, 64 hexadecimal digits.
pub(crate) fn has_container_id(part: &str) -> bool {
    part.split(|c: char| !c.is_ascii_hexdigit()).any(|digits| digits.len() == 64)
}

/// Turns a name into a folder name: characters that could leave the folder or upset a shell become `_`.
pub(crate) fn folder_name(name: &str) -> String {
    let mut out: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' })
        .take(200)
        .collect();
    // `..`, and names that the kernel uses for its own files (`memory.max`, `tasks`).
    let is_file = matches!(out.as_str(), "tasks" | "notify_on_release" | "release_agent");
    if out.is_empty() || out.contains('.') || is_file {
        out = format!("_{out}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_first_process_may_be_in_a_group_of_its_own() {
        let id = "0123456789abcdef".repeat(4);
        for (dir, whole) in [
            ("/sys/fs/cgroup/system.slice/docker-ID.scope/init.scope", "system.slice/docker-ID.scope"),
            ("/sys/fs/cgroup/system.slice/docker-ID.scope", "system.slice/docker-ID.scope"),
            ("/sys/fs/cgroup/docker/ID/init.scope/a", "docker/ID"),
            (
                "/sys/fs/cgroup/machine.slice/libpod-ID.scope/container",
                "machine.slice/libpod-ID.scope/container",
            ),
            (
                "/sys/fs/cgroup/machine.slice/libpod-ID.scope/container/init.scope",
                "machine.slice/libpod-ID.scope/container",
            ),
            ("/sys/fs/cgroup/init.scope", "init.scope"),
            (
                "/sys/fs/cgroup/user.slice/user@1000.service/init.scope",
                "user.slice/user@1000.service/init.scope",
            ),
        ] {
            let dir = dir.replace("ID", &id);
            let whole = Path::new("/sys/fs/cgroup").join(whole.replace("ID", &id));
            assert_eq!(of_whole_container(Path::new(&dir), has_container_id), whole);
        }
        assert!(!has_container_id("docker-4f1c0b6d9a7e.scope") && !has_container_id(&format!("{id}0")));
    }
}
