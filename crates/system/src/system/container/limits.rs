//! The limits of a container: as passed to its engine, and as the kernel has them afterwards.

use std::path::Path;

use rustix::process::Resource;
use serde_json::{Value, json};

use crate::cgroup::group::{Group, LimitError, cpu_quota, disk_files};
use crate::cgroup::{CgroupDir, Controller, Version, cgroup_of, of_whole_container, tree};
use crate::error::Error;
use crate::spec::{BlockLimits, ComponentSpec, Limits};

/// Checks that the kernel has such limits; engines pass on whatever they are given.
///
/// # Errors
/// The CPU quota is too small.
pub(super) fn check_wanted(spec: &ComponentSpec) -> Result<(), Error> {
    let quota = spec.limits.cpu_cores.map(cpu_quota).transpose();
    let component = spec.name.clone();
    quota.map(drop).map_err(|LimitError { limit, why, hint }| Error::Limit { component, limit, why, hint })
}

/// Writes the limits in the form in which the engine applies them to the container's cgroups.
pub(crate) fn limits_into(host: &mut Value, limits: &Limits) {
    if let Some(Ok((quota_us, period_us))) = limits.cpu_cores.map(cpu_quota) {
        host["CpuQuota"] = quota_us.into();
        host["CpuPeriod"] = period_us.into();
    }
    if let Some(bytes) = limits.memory_bytes {
        host["Memory"] = bytes.into();
        // Set both together: swap does not add to memory unless requested.
        host["MemorySwap"] = limits.memory_swap_bytes.unwrap_or(bytes).into();
    }
    if let Some(pids) = limits.pids {
        host["PidsLimit"] = pids.into();
    }
    if let Some(files) = limits.open_files {
        host["Ulimits"] = json!([{ "Name": "nofile", "Soft": files, "Hard": files }]);
    }
}

/// Block I/O limits under the engines' names – `ReadBps`, `WriteBps`, `ReadIOps`, `WriteIOps` – with every disk's rate.
pub(crate) fn block_rates(limits: &BlockLimits) -> Vec<(&'static str, Vec<(String, u64)>)> {
    let values = [
        ("ReadBps", limits.read_bytes_per_s),
        ("WriteBps", limits.write_bytes_per_s),
        ("ReadIOps", limits.read_ops_per_s),
        ("WriteIOps", limits.write_ops_per_s),
    ];
    let of_all = |rate: u64| disk_files().into_iter().map(|disk| (disk, rate)).collect();
    values.into_iter().filter_map(|(key, rate)| Some((key, of_all(rate?)))).collect()
}

/// Podman raises the limits on processes and open files to the maximum, and fails if it may not: limits that are not
/// given stay as they are here. Podman itself has no more processes than the machine has pids.
pub(super) fn keep_our_limits(host: &mut Value) {
    let mut limits = host["Ulimits"].as_array().cloned().unwrap_or_default();
    for (name, resource) in [("nofile", Resource::Nofile), ("nproc", Resource::Nproc)] {
        let pids = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
        let pids = pids.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
        let most = rustix::process::getrlimit(resource).maximum.map(|most| most.min(pids));
        if let Some(most) = most.filter(|_| !limits.iter().any(|l| l["Name"] == name)) {
            limits.push(json!({ "Name": name, "Soft": most, "Hard": most }));
        }
    }
    host["Ulimits"] = limits.into();
}

/// The cgroups of a process, except loadlab's own.
pub(crate) fn cgroups_of_process(pid: u32) -> Vec<CgroupDir> {
    let root = Path::new("/");
    let own = tree::groups_of(root, std::process::id());
    tree::groups_of(root, pid).into_iter().filter(|p| !own.iter().any(|o| o.dir == p.dir)).collect()
}

/// The groups that belong to a container alone: an engine names them after the container. Without root and without a
/// delegated cgroup, Podman leaves its containers in its own group, together with whatever else the user runs; that
/// group must be neither limited nor paused. The first process may be in a group below, which a service manager in the
/// container made for it.
pub(super) fn own_cgroups(cgroups: Vec<CgroupDir>, id: &str) -> Vec<CgroupDir> {
    let is_own = |dir: &Path| dir.iter().any(|part| part.to_string_lossy().contains(id));
    let own = cgroups.into_iter().filter(|cgroup| !id.is_empty() && is_own(&cgroup.dir));
    let whole = |cgroup: CgroupDir| {
        let dir = of_whole_container(&cgroup.dir, |part| part.contains(id));
        CgroupDir { dir, ..cgroup }
    };
    own.map(whole).collect()
}

/// Checks the limits the kernel has: a limit that did not take effect is an error, not a surprise.
pub(super) fn check_limits(spec: &ComponentSpec, group: &Group) -> Result<(), Error> {
    let cgroups = &group.cgroups;
    let read = |controller: Controller, v1: &str, v2: &str| {
        let cgroup = cgroup_of(cgroups, controller)?;
        let file = cgroup.dir.join(if cgroup.version == Version::V1 { v1 } else { v2 });
        std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
    };
    let off = |limit: &str, wanted: String, has: String| Error::Limit {
        component: spec.name.clone(),
        limit: format!("{limit} to {wanted}"),
        why: format!("its cgroup has {has}"),
        hint: "the engine accepted it but did not apply it: see its log, and whether its cgroup driver works"
            .into(),
    };
    for (controller, wanted) in [
        (Controller::Memory, spec.limits.memory_bytes.is_some()),
        (Controller::Pids, spec.limits.pids.is_some()),
        (Controller::Cpu, spec.limits.cpu_cores.is_some()),
    ] {
        if wanted {
            let limit = format!("its `{}`", controller.v1_name());
            group.cgroup(controller, &limit).map_err(|LimitError { limit, hint, .. }| Error::Limit {
                component: spec.name.clone(),
                limit,
                why: "the engine did not give it its own cgroup with that controller".into(),
                hint,
            })?;
        }
    }
    let page = rustix::param::page_size() as u64;
    if let Some(wanted) = spec.limits.memory_bytes
        && let Some(has) = read(Controller::Memory, "memory.limit_in_bytes", "memory.max")
        && has.parse::<u64>().ok() != Some(wanted / page * page)
    {
        return Err(off("memory", wanted.to_string(), has));
    }
    if let Some(wanted) = spec.limits.pids
        && let Some(has) = read(Controller::Pids, "pids.max", "pids.max")
        && has != wanted.to_string()
    {
        return Err(off("pids", wanted.to_string(), has));
    }
    if let Some(cores) = spec.limits.cpu_cores
        && let Some(has) = read(Controller::Cpu, "cpu.cfs_quota_us", "cpu.max")
    {
        let quota_us = has.split(' ').next().and_then(|q| q.parse::<f64>().ok());
        let period_us = match has.split_once(' ') {
            Some((_, period)) => period.parse::<f64>().ok(),
            None => read(Controller::Cpu, "cpu.cfs_period_us", "cpu.max").and_then(|p| p.parse().ok()),
        };
        let share = quota_us.zip(period_us).map(|(quota, period)| quota / period);
        if share.is_none_or(|share| (share / cores - 1.0).abs() > 0.01) {
            return Err(off("cpu", format!("{cores} cores"), has));
        }
    }
    let has = group.in_force();
    let block = &spec.limits.block;
    for (what, wanted, has) in [
        ("bytes read per second", block.read_bytes_per_s, has.block_read_bytes_per_s),
        ("bytes written per second", block.write_bytes_per_s, has.block_write_bytes_per_s),
        ("reads per second", block.read_ops_per_s, has.block_read_ops_per_s),
        ("writes per second", block.write_ops_per_s, has.block_write_ops_per_s),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| has != Some(*wanted)) {
            return Err(off(what, wanted.to_string(), has.map_or("none".to_owned(), |has| has.to_string())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_the_engine_has_them() {
        let mut host = json!({});
        let limits = Limits {
            cpu_cores: Some(0.01),
            memory_bytes: Some(15 << 20),
            pids: Some(9),
            open_files: Some(100),
            ..Limits::default()
        };
        limits_into(&mut host, &limits);
        insta::assert_snapshot!(host, @r#"{"CpuQuota":1000,"CpuPeriod":100000,"Memory":15728640,"MemorySwap":15728640,"PidsLimit":9,"Ulimits":[{"Name":"nofile","Soft":100,"Hard":100}]}"#);
        let dir = Path::new("/");
        let mut spec = ComponentSpec::new("web", "true", dir, dir);
        spec.limits.cpu_cores = Some(0.0005);
        assert!(check_wanted(&spec).unwrap_err().to_string().contains("1 ms in 1 s"));
    }

    #[test]
    fn a_group_that_others_are_in_is_not_the_containers() {
        let id = "4f1c0b6d9a7e";
        let cgroup = |dir: &str| CgroupDir { version: Version::V2, controllers: Vec::new(), dir: dir.into() };
        for (dir, expect) in [
            ("/sys/fs/cgroup/memory/docker/4f1c0b6d9a7e", true),
            ("/sys/fs/cgroup/system.slice/docker-4f1c0b6d9a7e.scope", true),
            ("/sys/fs/cgroup/machine.slice/libpod-4f1c0b6d9a7e.scope/container", true),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/podman.service", false),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", false),
            ("/sys/fs/cgroup/memory/docker/another", false),
            ("/sys/fs/cgroup", false),
        ] {
            assert_eq!(own_cgroups(vec![cgroup(dir)], id).len(), usize::from(expect), "{dir}");
        }
        let own =
            own_cgroups(vec![cgroup("/sys/fs/cgroup/a.slice/docker-4f1c0b6d9a7e.scope/init.scope")], id);
        assert_eq!(own, [cgroup("/sys/fs/cgroup/a.slice/docker-4f1c0b6d9a7e.scope")]);
        // A limit that nothing enforces is an error, not a surprise.
        let dir = Path::new("/");
        let mut spec = ComponentSpec::new("web", "true", dir, dir);
        assert!(check_limits(&spec, &Group::default()).is_ok());
        spec.limits.memory_bytes = Some(16 << 20);
        let message = check_limits(&spec, &Group::default()).unwrap_err().to_string();
        assert!(message.contains("did not give it its own cgroup"), "{message}");
    }
}
