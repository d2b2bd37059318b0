//! What a host can provide: tried out and undone at once, so that gaps are known before anything is built.

use std::path::Path;

use super::System;
use crate::cgroup::CgroupDir;
use crate::cgroup::group::{Group, LimitError};
use crate::cgroup::tree::RunGroups;
use crate::clock;
use crate::error::{Error, Result};
use crate::process::ports;
use crate::spec::{BlockLimits, Limits};

/// Time within which an empty group disappears, nanoseconds.
const REMOVE_TIMEOUT_NS: u64 = 1_000_000_000;

impl System {
    /// Checks whether these limits can be applied to components, in groups of the run.
    ///
    /// # Errors
    /// [`Error::Limit`]: the first limit that cannot, as it would be reported when that component starts.
    pub fn check_limits<'a>(&self, wanted: impl IntoIterator<Item = (&'a str, &'a Limits)>) -> Result<()> {
        wanted.into_iter().try_for_each(|(component, limits)| try_limits(self.cgroups(), component, limits))
    }
}

/// As [`System::check_limits`], but without a run: the groups are made temporarily.
///
/// # Errors
/// As [`System::check_limits`].
pub fn check_limits<'a>(wanted: impl IntoIterator<Item = (&'a str, &'a Limits)>) -> Result<()> {
    let mut groups = RunGroups::plan(Path::new("/"), &format!("check-{}", std::process::id()));
    groups.create();
    let checked = wanted.into_iter().try_for_each(|(c, limits)| try_limits(&groups.cgroups, c, limits));
    for cgroup in &groups.cgroups {
        // The folder of all runs is removed with the last run.
        let _ = std::fs::remove_dir(&cgroup.dir);
        let _ = cgroup.dir.parent().map(std::fs::remove_dir);
    }
    checked
}

fn try_limits(cgroups: &[CgroupDir], component: &str, limits: &Limits) -> Result<()> {
    // Open files and links are not limited by cgroups.
    let is_free = limits.cpu_cores.is_none() && limits.memory_bytes.is_none() && limits.pids.is_none();
    if is_free && limits.block == BlockLimits::default() {
        return Ok(());
    }
    let (group, _) = Group::create(cgroups, component);
    let limited = group.limit(limits).map(drop);
    let _ = group.remove(clock::now_ns() + REMOVE_TIMEOUT_NS);
    let component = component.to_owned();
    limited.map_err(|LimitError { limit, why, hint }| Error::Limit { component, limit, why, hint })
}

/// Checks whether a component can have its ports.
///
/// # Errors
/// [`Error::PortTaken`]: the first port that is in use.
pub fn check_ports(component: &str, ports: &[u16]) -> Result<()> {
    ports::check_free(component, ports)
}
