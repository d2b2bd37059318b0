//! Control groups: found, created, limited, read, emptied, removed – v1, v2, and hosts with both.
//!
//! A host may keep each controller in a v1 hierarchy of its own, all of them in the v2 tree, or some here and
//! some there. So every question goes by controller: where does it live, and what is our folder there.
//! [`tree`] finds the hierarchies and makes `loadlab/RUN` in each, [`group`] makes, limits and removes one
//! component's folders below that, [`limits`] changes its limits and reads them back, [`read`] reads counters.
//!
//! Every function takes paths; none assumes `/sys/fs/cgroup`. Sources: cgroups(7), the kernel's
//! `admin-guide/cgroup-v1` and `admin-guide/cgroup-v2`.

pub(crate) mod group;
pub(crate) mod limits;
pub(crate) mod read;
pub(crate) mod tree;

use std::path::PathBuf;

/// Which interface a folder has.
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

    /// `None` for what needs no controller in v2.
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

/// A folder in one hierarchy, and what it stands for there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub version: Version,
    pub controllers: Vec<Controller>,
    pub dir: PathBuf,
}

/// Where a controller is, among places.
pub(crate) fn place_of(places: &[Place], controller: Controller) -> Option<&Place> {
    places.iter().find(|p| p.controllers.contains(&controller))
}

/// A name as a folder's name: what could leave the folder or upset a shell becomes `_`.
pub(crate) fn folder_name(name: &str) -> String {
    let mut out: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' })
        .take(200)
        .collect();
    // `..`, and what the kernel has files of that name for (`memory.max`, `tasks`).
    let is_file = matches!(out.as_str(), "tasks" | "notify_on_release" | "release_agent");
    if out.is_empty() || out.contains('.') || is_file {
        out = format!("_{out}");
    }
    out
}
