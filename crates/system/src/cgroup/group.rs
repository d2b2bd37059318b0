//! One component's folders in every hierarchy: creates, limits, joins and removes them.
//!
//! A limit counts only if it reads back as written: the kernel rounds, caps and (in some containers) ignores limits.
//! The child joins by writing `0` to `cgroup.procs` between fork and exec, through files opened here, so no instruction
//! of the component ever runs outside its limits.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use loadlab_record::text::units::format_bytes;

use super::{CgroupDir, Controller, Version, cgroup_of, folder_name, read};
use crate::process::kill;
use crate::spec::{BlockLimits, Limits, Unavailable};

/// A limit on one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskLimit {
    /// Which of the limits on block I/O, by its place among them.
    pub kind: usize,
    /// `MAJOR:MINOR`.
    pub disk: String,
    pub value: u64,
}

/// A rate that v1 treats as "no limit on bytes per second" but still as a rule; without a rule it does not count.
pub(crate) const UNLIMITED_BPS: u64 = 1 << 50;

/// The kernel's smallest CPU quota.
const MIN_QUOTA_US: u64 = 1_000;
/// The usual period of CPU limits, and the longest the kernel accepts.
const PERIOD_US: u64 = 100_000;
const MAX_PERIOD_US: u64 = 1_000_000;

/// A component's folders.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub cgroups: Vec<CgroupDir>,
    /// Limits that its engine set on some disks alone: they hold where none is set on all of them.
    pub own_disks: Vec<DiskLimit>,
}

/// A limit that could not be applied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitError {
    pub limit: String,
    pub why: String,
    pub hint: String,
}

impl Group {
    /// Makes the folders of `name` below a run's folders. A hierarchy that refuses is returned as unavailable.
    pub fn create(run: &[CgroupDir], name: &str) -> (Group, Vec<Unavailable>) {
        let mut group = Group::default();
        let mut unavailable = Vec::new();
        for cgroup in run {
            let cgroup = CgroupDir { dir: cgroup.dir.join(folder_name(name)), ..cgroup.clone() };
            let made = match fs::create_dir(&cgroup.dir) {
                // Left over from an earlier component of this name.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    match kill::processes_in(&cgroup.dir).as_slice() {
                        [] => Ok(()),
                        pids => Err(format!("{} contains pid {}", cgroup.dir.display(), pids[0])),
                    }
                }
                made => made.map_err(|e| format!("cannot create {}: {e}", cgroup.dir.display())),
            };
            match made {
                Ok(()) => group.cgroups.push(cgroup),
                Err(why) => unavailable.push(Unavailable {
                    component: name.to_owned(),
                    what: format!("cgroup {}", cgroup.dir.display()),
                    why,
                }),
            }
        }
        unavailable.extend(group.count_io(name));
        (group, unavailable)
    }

    /// v1 counts block I/O only where a throttling rule exists, so each disk gets a rule that no disk can reach.
    fn count_io(&self, name: &str) -> Option<Unavailable> {
        let cgroup = cgroup_of(&self.cgroups, Controller::Io).filter(|p| p.version == Version::V1)?;
        let failed = disks(Path::new("/sys/block")).iter().find_map(|disk| {
            ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"].iter().find_map(|file| {
                fs::write(cgroup.dir.join(file), format!("{disk} {UNLIMITED_BPS}\n"))
                    .err()
                    .map(|e| format!("{file} of disk {disk}: {e}"))
            })
        });
        failed.map(|why| Unavailable {
            component: name.to_owned(),
            what: "block I/O counters of the cgroup".into(),
            why,
        })
    }

    /// Applies the limits and reads each back. Open files are not limited per group and are left out.
    pub fn limit(&self, limits: &Limits) -> Result<Vec<Unavailable>, LimitError> {
        let mut unavailable = Vec::new();
        if let Some(cores) = limits.cpu_cores {
            self.limit_cpu(cores)?;
        }
        if let Some((bytes, with_swap)) = limits.memory_bytes.zip(limits.memory_with_swap()) {
            let limit = format!("memory to {}", format_bytes(bytes as f64));
            let cgroup = self.cgroup(Controller::Memory, &limit)?;
            unavailable.extend(self.set_memory(cgroup, bytes, with_swap, &limit)?);
        }
        if let Some(pids) = limits.pids {
            let limit = format!("pids to {pids}");
            let cgroup = self.cgroup(Controller::Pids, &limit)?;
            set(&cgroup.dir.join("pids.max"), &pids.to_string(), &limit)?;
        }
        if limits.block != BlockLimits::default() {
            unavailable.extend(self.limit_block(limits.block)?);
        }
        Ok(unavailable)
    }

    fn limit_cpu(&self, cores: f64) -> Result<(), LimitError> {
        let limit = format!("cpu to {cores} cores");
        let cgroup = self.cgroup(Controller::Cpu, &limit)?;
        let (quota_us, period_us) = cpu_quota(cores)?;
        match cgroup.version {
            Version::V1 => {
                set(&cgroup.dir.join("cpu.cfs_period_us"), &period_us.to_string(), &limit)?;
                set(&cgroup.dir.join("cpu.cfs_quota_us"), &quota_us.to_string(), &limit)
            }
            Version::V2 => set(&cgroup.dir.join("cpu.max"), &format!("{quota_us} {period_us}"), &limit),
        }
    }

    pub(crate) fn cgroup(&self, controller: Controller, limit: &str) -> Result<&CgroupDir, LimitError> {
        cgroup_of(&self.cgroups, controller).ok_or_else(|| LimitError {
            limit: limit.to_owned(),
            why: format!("loadlab has no cgroup with the controller `{}` on this host", controller.v1_name()),
            hint: super::tree::HINT.to_owned(),
        })
    }

    /// Lifts the CPU limit, so that shutting down is not slowed by it.
    pub fn lift_cpu(&self) {
        if let Some(cgroup) = cgroup_of(&self.cgroups, Controller::Cpu) {
            // Best effort: if the limit stays, the component still ends, only later.
            let _ = match cgroup.version {
                Version::V1 => fs::write(cgroup.dir.join("cpu.cfs_quota_us"), "-1"),
                Version::V2 => fs::write(cgroup.dir.join("cpu.max"), "max"),
            };
        }
    }

    /// The `cgroup.procs` files for the child to join through, closed on exec.
    pub fn cgroup_procs(&self) -> Result<Vec<(File, PathBuf)>, (PathBuf, std::io::Error)> {
        self.cgroups
            .iter()
            .map(|cgroup| {
                let path = cgroup.dir.join("cgroup.procs");
                OpenOptions::new().write(true).open(&path).map(|f| (f, path.clone())).map_err(|e| (path, e))
            })
            .collect()
    }

    /// The folders in all hierarchies.
    pub fn dirs(&self) -> Vec<PathBuf> {
        self.cgroups.iter().map(|p| p.dir.clone()).collect()
    }

    /// Live processes in any of the folders.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.cgroups.iter().flat_map(|p| kill::processes_in(&p.dir)).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// How many times the kernel killed one of its processes for memory. `None` if unknown.
    pub fn oom_kills(&self) -> Option<u64> {
        let cgroup = cgroup_of(&self.cgroups, Controller::Memory)?;
        let file = match cgroup.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        read::keyed(&fs::read_to_string(cgroup.dir.join(file)).ok()?, "oom_kill")
    }

    /// Removes the folders; returns those that could not be removed.
    pub fn remove(&self, until_ns: u64) -> Vec<PathBuf> {
        self.dirs().into_iter().filter(|dir| !kill::remove_groups(dir, until_ns)).collect()
    }
}

/// Writes a value and reads it back.
pub(super) fn set(file: &Path, value: &str, limit: &str) -> Result<(), LimitError> {
    let name = file.display();
    let fail = |why: String, hint: &str| LimitError { limit: limit.to_owned(), why, hint: hint.to_owned() };
    fs::write(file, value).map_err(|e| {
        let hint = match e.raw_os_error() {
            Some(libc::EINVAL) => "a group above may have a smaller limit; choose less",
            _ => super::tree::HINT,
        };
        fail(format!("cannot write {value} to {name}: {e}"), hint)
    })?;
    let back = fs::read_to_string(file)
        .map_err(|e| fail(format!("cannot read {name} back: {e}"), super::tree::HINT))?;
    if back.trim() == value {
        return Ok(());
    }
    let why = format!("{name} contains {} after writing {value}", back.trim());
    Err(fail(why, "the kernel stored another value; choose one that it keeps"))
}

/// Quota and period for this many cores, in microseconds; the period is stretched if the quota would be too small.
///
/// # Errors
/// The quota is below the kernel's minimum in any period.
pub(crate) fn cpu_quota(cores: f64) -> Result<(u64, u64), LimitError> {
    let fitting = [PERIOD_US, MAX_PERIOD_US].into_iter().find_map(|period_us| {
        let quota_us = (cores * period_us as f64).round();
        (quota_us >= MIN_QUOTA_US as f64 && quota_us < 1e15).then_some((quota_us as u64, period_us))
    });
    fitting.ok_or_else(|| LimitError {
        limit: format!("cpu to {cores} cores"),
        why: "the kernel's smallest share is 1 ms in 1 s".into(),
        hint: "use 0.1% of a core or more".into(),
    })
}

/// Device files of this machine's disks, as engines expect them.
pub(crate) fn disk_files() -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    // An entry without a device number is a path to a disk that has another name as well.
    let disks = entries.filter(|e| e.path().join("dev").exists());
    let names = disks.map(|e| e.file_name().to_string_lossy().replace('!', "/"));
    names.filter(|name| is_disk(name)).map(|name| format!("/dev/{name}")).collect()
}

fn is_disk(name: &str) -> bool {
    !["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind))
}

/// `MAJOR:MINOR` of the disks; loop, ram and compressed-memory devices are left out.
pub(crate) fn disks(sys_block: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sys_block) else { return Vec::new() };
    let mut disks: Vec<String> = entries
        .flatten()
        .filter(|e| is_disk(&e.file_name().to_string_lossy()))
        .filter_map(|e| fs::read_to_string(e.path().join("dev")).ok())
        .map(|dev| dev.trim().to_owned())
        .collect();
    disks.sort();
    disks
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::fake;
    use super::*;

    #[test]
    fn quotas_the_kernel_takes() {
        for (cores, expect) in [
            (0.01, Some((1_000, 100_000))),
            (0.1, Some((10_000, 100_000))),
            (1.5, Some((150_000, 100_000))),
            (0.005, Some((5_000, 1_000_000))),
            (0.001, Some((1_000, 1_000_000))),
            (0.0001, None),
            (f64::NAN, None),
            (-1.0, None),
        ] {
            assert_eq!(cpu_quota(cores).ok(), expect, "{cores}");
        }
    }

    fn v2(root: &Path, controllers: &[Controller]) -> Group {
        let cgroup =
            CgroupDir { version: Version::V2, controllers: controllers.to_vec(), dir: root.join("run") };
        let (group, unavailable) = Group::create(&[cgroup], "db");
        assert_eq!(unavailable, []);
        group
    }

    #[test]
    fn limits_are_written_to_v2_files() {
        let root = fake(&[
            ("run/db/cgroup.procs", ""),
            ("run/db/cpu.max", "max 100000\n"),
            ("run/db/memory.max", "max\n"),
            ("run/db/memory.swap.max", "max\n"),
            ("run/db/pids.max", "max\n"),
            ("run/db/memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n"),
        ]);
        let group = v2(root.path(), &[Controller::Cpu, Controller::Memory, Controller::Pids]);
        let limits = Limits {
            cpu_cores: Some(0.25),
            memory_bytes: Some((15 << 20) + 5),
            pids: Some(64),
            ..Limits::default()
        };
        assert_eq!(group.limit(&limits), Ok(vec![]));
        let read = |file: &str| fs::read_to_string(root.path().join("run/db").join(file)).unwrap();
        assert_eq!(read("cpu.max"), "25000 100000");
        assert_eq!(read("memory.max"), (15 << 20).to_string());
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("pids.max"), "64");
        assert_eq!(group.oom_kills(), Some(2));
        group.lift_cpu();
        assert_eq!(read("cpu.max"), "max");
    }

    #[test]
    fn a_limit_without_its_controller_is_an_error_with_a_hint() {
        let root = fake(&[("run/db/cgroup.procs", "")]);
        let group = v2(root.path(), &[Controller::Pids]);
        let error = group.limit(&Limits { cpu_cores: Some(0.5), ..Limits::default() }).unwrap_err();
        assert_eq!(error.limit, "cpu to 0.5 cores");
        assert!(error.why.contains("`cpu`") && error.hint.contains("Delegate=yes"), "{error:?}");
    }

    #[test]
    fn a_limit_that_reads_back_differently_is_an_error() {
        // /dev/null accepts every write and reads back nothing.
        let error = set(Path::new("/dev/null"), "64", "pids to 64").unwrap_err();
        assert_eq!(error.why, "/dev/null contains  after writing 64");
    }

    #[test]
    fn a_group_in_use_is_not_shared() {
        let root = fake(&[("run/db/cgroup.procs", "4711\n")]);
        let cgroup = CgroupDir { version: Version::V2, controllers: vec![], dir: root.path().join("run") };
        let (group, unavailable) = Group::create(&[cgroup], "db");
        assert!(group.cgroups.is_empty());
        assert!(unavailable[0].why.ends_with("contains pid 4711"), "{unavailable:?}");
    }

    #[test]
    fn memory_devices_are_no_disks() {
        let root = fake(&[
            ("vda/dev", "254:0\n"),
            ("zram0/dev", "253:0\n"),
            ("loop3/dev", "7:3\n"),
            ("sda/dev", "8:0\n"),
        ]);
        assert_eq!(disks(root.path()), ["254:0", "8:0"]);
    }
}
