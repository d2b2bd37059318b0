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

use std::path::PathBuf;

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
