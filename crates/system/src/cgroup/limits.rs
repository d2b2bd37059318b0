//! Changes, lifts and reads back limits: the part of [`super::group`] that applies after a group was made.
//!
//! Reported limits are what the kernel's files contain, not what was written to them.

use std::fs;
use std::path::Path;

use loadlab_record::text::units::format_bytes;
use loadlab_record::watch::limits::LimitsInForce;

use super::group::{DiskLimit, Group, LimitError, UNLIMITED_BPS, disks, set};
use super::{CgroupDir, Controller, Version, cgroup_of, read};
use crate::spec::{BlockLimits, Limits, Unavailable};

/// A v1 memory limit above this means no limit: an unlimited group reads nearly 2^63.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// Names of the block limits in v1 and in v2.
const BLOCK: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "rbps"),
    ("blkio.throttle.write_bps_device", "wbps"),
    ("blkio.throttle.read_iops_device", "riops"),
    ("blkio.throttle.write_iops_device", "wiops"),
];

/// More than a limit allows, and than the kernel could take from its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBeyond {
    /// What it holds, in bytes.
    pub held_bytes: u64,
    /// The limit, in bytes.
    pub limit_bytes: u64,
    /// Both are of memory and swap together.
    pub with_swap: bool,
}

impl BlockLimits {
    /// The limits in the order of [`BLOCK`].
    fn values(self) -> [Option<u64>; 4] {
        [self.read_bytes_per_s, self.write_bytes_per_s, self.read_ops_per_s, self.write_ops_per_s]
    }
}

impl Group {
    /// Replaces limits one after another: `now` is always what is in force, even if one of them fails.
    pub fn change(&self, now: &mut Limits, new: &Limits) -> Result<Vec<Unavailable>, LimitError> {
        let cpu = |limits: &mut Limits| limits.cpu_cores = new.cpu_cores;
        let memory = |limits: &mut Limits| {
            (limits.memory_bytes, limits.memory_swap_bytes) = (new.memory_bytes, new.memory_swap_bytes);
        };
        let pids = |limits: &mut Limits| limits.pids = new.pids;
        let block = |limits: &mut Limits| limits.block = new.block;
        let mut unavailable = Vec::new();
        for take_over in [&cpu as &dyn Fn(&mut Limits), &memory, &pids, &block] {
            let mut next = *now;
            take_over(&mut next);
            match self.replace(now, &next) {
                Ok(missed) => unavailable.extend(missed),
                Err(error) => {
                    // It may have been written to one of several files. Report the first error.
                    let _ = self.replace(&next, now);
                    return Err(error);
                }
            }
            *now = next;
        }
        Ok(unavailable)
    }

    /// Lifts the limits that no longer apply; writes and reads back those that differ.
    fn replace(&self, old: &Limits, new: &Limits) -> Result<Vec<Unavailable>, LimitError> {
        if old.cpu_cores.is_some() && new.cpu_cores.is_none() {
            self.lift_cpu();
        }
        if old.memory_bytes.is_some() && new.memory_bytes.is_none() {
            self.lift_memory()?;
        }
        if let (Some(_), None, Some(cgroup)) =
            (old.pids, new.pids, cgroup_of(&self.cgroups, Controller::Pids))
        {
            set(&cgroup.dir.join("pids.max"), "max", "pids to none")?;
        }
        if old.block != new.block {
            self.lift_block(old.block, new.block)?;
        }
        let differs = Limits {
            cpu_cores: new.cpu_cores.filter(|_| old.cpu_cores != new.cpu_cores),
            memory_bytes: new.memory_bytes.filter(|_| {
                (old.memory_bytes, old.memory_swap_bytes) != (new.memory_bytes, new.memory_swap_bytes)
            }),
            memory_swap_bytes: new.memory_swap_bytes,
            pids: new.pids.filter(|_| old.pids != new.pids),
            open_files: None,
            block: if old.block == new.block { BlockLimits::default() } else { new.block },
            link: Default::default(),
        };
        self.limit(&differs)
    }

    fn lift_memory(&self) -> Result<(), LimitError> {
        let Some(cgroup) = cgroup_of(&self.cgroups, Controller::Memory) else { return Ok(()) };
        // Memory plus swap may not be limited to less than memory alone, so memory goes first.
        let files = match cgroup.version {
            Version::V1 => [("memory.memsw.limit_in_bytes", "-1"), ("memory.limit_in_bytes", "-1")],
            Version::V2 => [("memory.swap.max", "max"), ("memory.max", "max")],
        };
        let lifted = files.map(|(file, value)| {
            let path = cgroup.dir.join(file);
            if !path.exists() {
                return Ok(());
            }
            fs::write(&path, value).map_err(|e| LimitError {
                limit: "memory to none".into(),
                why: format!("cannot write {value} to {}: {e}", path.display()),
                hint: super::tree::HINT.to_owned(),
            })
        });
        // Failing to lift one does not stop the other from being lifted.
        lifted.into_iter().collect()
    }

    /// Limits memory alone, and memory plus swap, both in whole pages, the latter to nothing for [`Limits::ANY_SWAP`]. In
    /// v1 it must never be less than the former.
    pub fn set_memory(
        &self,
        cgroup: &CgroupDir,
        bytes: u64,
        with_swap: u64,
        limit: &str,
    ) -> Result<Option<Unavailable>, LimitError> {
        // The kernel rounds to whole pages.
        let page = rustix::param::page_size() as u64;
        let is_any = with_swap == Limits::ANY_SWAP;
        // This is how v1 reads without a limit.
        let with_swap = if is_any { i64::MAX as u64 } else { with_swap };
        let (bytes, with_swap) = (bytes - bytes % page, with_swap - with_swap % page);
        let (file, swap_file, swap) = match cgroup.version {
            Version::V1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", with_swap.to_string()),
            Version::V2 if is_any => ("memory.max", "memory.swap.max", "max".to_owned()),
            Version::V2 => ("memory.max", "memory.swap.max", (with_swap - bytes).to_string()),
        };
        let memory = || set(&cgroup.dir.join(file), &bytes.to_string(), limit);
        let swap_file = cgroup.dir.join(swap_file);
        if !swap_file.exists() {
            memory()?;
            let has_swap = fs::read_to_string("/proc/swaps").is_ok_and(|s| s.lines().count() > 1);
            return Ok(has_swap.then(|| Unavailable {
                component: String::new(),
                what: "a limit on swap".into(),
                why: format!(
                    "{} does not exist: the component may swap beyond its memory limit",
                    swap_file.display()
                ),
            }));
        }
        let both = || set(&swap_file, &swap, limit);
        let is_raised =
            cgroup.version == Version::V1 && number_in(&swap_file).is_some_and(|now| with_swap > now);
        if is_raised {
            both()?;
            memory()?;
        } else {
            memory()?;
            both()?;
        }
        Ok(None)
    }

    /// Limits what is read from and written to each disk.
    pub fn limit_block(&self, limits: BlockLimits) -> Result<Option<Unavailable>, LimitError> {
        let limit = block_text(limits);
        let cgroup = self.cgroup(Controller::Io, &limit)?;
        let disks = disks(Path::new("/sys/block"));
        if disks.is_empty() {
            return Err(LimitError {
                limit,
                why: "there is no disk in /sys/block".into(),
                hint: "remove the limits on block I/O".into(),
            });
        }
        for (kind, value) in limits.values().into_iter().enumerate() {
            let Some(value) = value else { continue };
            for disk in &disks {
                set_disk(cgroup, &DiskLimit { kind, disk: disk.clone(), value }, &limit)?;
            }
        }
        let writes = limits.write_bytes_per_s.is_some() || limits.write_ops_per_s.is_some();
        Ok((writes && cgroup.version == Version::V1).then(|| Unavailable {
            component: String::new(),
            what: "a limit on writes through the page cache".into(),
            why: "cgroup v1 limits direct and synchronous writes (O_DIRECT, O_SYNC), not what the kernel writes later"
                .into(),
        }))
    }

    /// Lifts what no longer applies to all disks; limits that the engine set on some of them apply again.
    fn lift_block(&self, old: BlockLimits, new: BlockLimits) -> Result<(), LimitError> {
        let Some(cgroup) = cgroup_of(&self.cgroups, Controller::Io) else { return Ok(()) };
        let gone = |i: usize| old.values()[i].is_some() && new.values()[i].is_none();
        for (i, (v1_file, v2_key)) in BLOCK.iter().enumerate().filter(|(i, _)| gone(*i)) {
            for disk in disks(Path::new("/sys/block")) {
                let (file, line) = match (cgroup.version, i) {
                    // Without a rule, v1 does not count.
                    (Version::V1, 0 | 1) => (*v1_file, format!("{disk} {UNLIMITED_BPS}")),
                    (Version::V1, _) => (*v1_file, format!("{disk} 0")),
                    (Version::V2, _) => ("io.max", format!("{disk} {v2_key}=max")),
                };
                let path = cgroup.dir.join(file);
                fs::write(&path, &line).map_err(|e| LimitError {
                    limit: "block I/O to none".into(),
                    why: format!("cannot write {line} to {}: {e}", path.display()),
                    hint: super::tree::HINT.to_owned(),
                })?;
            }
            for own in self.own_disks.iter().filter(|own| own.kind == i) {
                set_disk(cgroup, own, "block I/O of one disk as its engine did")?;
            }
        }
        Ok(())
    }

    /// What it holds beyond these limits, if they allow less than `now`, the present ones: of memory, or of memory and swap.
    pub fn memory_beyond(&self, now: &Limits, wanted: &Limits) -> Option<MemoryBeyond> {
        let memory = self.memory_held()?;
        let both = memory + self.swap_held();
        let beyond = |now: Option<u64>, wanted: Option<u64>, held_bytes: u64, with_swap: bool| {
            let limit_bytes = wanted.filter(|wanted| now.is_none_or(|now| now > *wanted))?;
            (held_bytes > limit_bytes).then_some(MemoryBeyond { held_bytes, limit_bytes, with_swap })
        };
        beyond(now.memory_bytes, wanted.memory_bytes, memory, false)
            .or_else(|| beyond(now.memory_with_swap(), wanted.memory_with_swap(), both, true))
    }

    /// Swap that it uses, as far as the kernel counts it.
    fn swap_held(&self) -> u64 {
        let Some(cgroup) = cgroup_of(&self.cgroups, Controller::Memory) else { return 0 };
        let read = |file: &str| number_in(&cgroup.dir.join(file));
        match cgroup.version {
            Version::V1 => read("memory.memsw.usage_in_bytes")
                .zip(read("memory.usage_in_bytes"))
                .map_or(0, |(both, memory)| both.saturating_sub(memory)),
            Version::V2 => read("memory.swap.current").unwrap_or(0),
        }
    }

    /// Memory that it uses, without what the kernel drops when a limit is lowered, such as files it has read or written.
    /// `None` if unknown.
    fn memory_held(&self) -> Option<u64> {
        let cgroup = cgroup_of(&self.cgroups, Controller::Memory)?;
        let (file, files) = match cgroup.version {
            Version::V1 => ("memory.usage_in_bytes", &["total_inactive_file", "total_active_file"][..]),
            Version::V2 => ("memory.current", &["inactive_file", "active_file", "slab_reclaimable"][..]),
        };
        let counts = fs::read_to_string(cgroup.dir.join("memory.stat")).ok()?;
        let dropped: u64 = files.iter().filter_map(|key| read::keyed(&counts, key)).sum();
        Some(number_in(&cgroup.dir.join(file))?.saturating_sub(dropped))
    }

    /// The limits in force, from the kernel's own files. Open files and cores are limited per process, not per group.
    pub fn in_force(&self) -> LimitsInForce {
        let at = |controller| cgroup_of(&self.cgroups, controller);
        let mut limits = LimitsInForce {
            cpu_cores: at(Controller::Cpu).and_then(cpu_cores),
            pids: at(Controller::Pids).and_then(|p| number_in(&p.dir.join("pids.max"))),
            ..LimitsInForce::default()
        };
        if let Some(cgroup) = at(Controller::Memory) {
            (limits.memory_bytes, limits.memory_swap_bytes) = memory(cgroup);
        }
        if let Some(cgroup) = at(Controller::Io) {
            // The smallest limit across disks.
            let smallest = |rates: Vec<(String, u64)>| rates.into_iter().map(|(_, rate)| rate).min();
            let [read, write, reads, writes] = block(cgroup).map(smallest);
            (limits.block_read_bytes_per_s, limits.block_write_bytes_per_s) = (read, write);
            (limits.block_read_ops_per_s, limits.block_write_ops_per_s) = (reads, writes);
        }
        limits
    }

    /// Limits on some disks alone, of the kinds that the plan does not set.
    pub fn disks_alone(&self, planned: BlockLimits) -> Vec<DiskLimit> {
        let Some(cgroup) = cgroup_of(&self.cgroups, Controller::Io) else { return Vec::new() };
        let planned = planned.values();
        block_of_some(cgroup, &disks(Path::new("/sys/block")), |kind| planned[kind].is_none())
    }

    /// The limits in force in the form in which they are set. Limits on block I/O are set for all disks alike, so those
    /// on some disks alone are left out; [`Group::disks_alone`] has them.
    pub fn settable(&self) -> Limits {
        let has = self.in_force();
        let io = cgroup_of(&self.cgroups, Controller::Io);
        let block = io.map(|cgroup| block_of_all(cgroup, &disks(Path::new("/sys/block"))));
        let [read_bytes_per_s, write_bytes_per_s, read_ops_per_s, write_ops_per_s] =
            block.unwrap_or_default();
        // Only memory is limited: nothing says so where limits are reported.
        let memory = has.memory_bytes.and(cgroup_of(&self.cgroups, Controller::Memory));
        let any_swap = memory.filter(|cgroup| is_swap_unlimited(cgroup)).map(|_| Limits::ANY_SWAP);
        Limits {
            cpu_cores: has.cpu_cores,
            memory_bytes: has.memory_bytes,
            memory_swap_bytes: has.memory_swap_bytes.or(any_swap),
            pids: has.pids,
            block: BlockLimits { read_bytes_per_s, write_bytes_per_s, read_ops_per_s, write_ops_per_s },
            ..Limits::default()
        }
    }
}

/// Limits of these kinds on some of the disks alone.
fn block_of_some(cgroup: &CgroupDir, disks: &[String], of_kind: impl Fn(usize) -> bool) -> Vec<DiskLimit> {
    let alike = block_of_all(cgroup, disks);
    let some =
        block(cgroup).into_iter().enumerate().filter(|(kind, _)| alike[*kind].is_none() && of_kind(*kind));
    some.flat_map(|(kind, rates)| rates.into_iter().map(move |(disk, value)| DiskLimit { kind, disk, value }))
        .collect()
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn cpu_cores(cgroup: &CgroupDir) -> Option<f64> {
    let (quota, period) = match cgroup.version {
        Version::V1 => {
            // -1 (unlimited) does not parse.
            (
                number_in(&cgroup.dir.join("cpu.cfs_quota_us"))?,
                number_in(&cgroup.dir.join("cpu.cfs_period_us"))?,
            )
        }
        Version::V2 => {
            let text = fs::read_to_string(cgroup.dir.join("cpu.max")).ok()?;
            let mut words = text.split_ascii_whitespace();
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
        }
    };
    (period > 0).then(|| quota as f64 / period as f64)
}

fn memory(cgroup: &CgroupDir) -> (Option<u64>, Option<u64>) {
    let read = |file: &str| number_in(&cgroup.dir.join(file)).filter(|n| *n < UNLIMITED_BYTES);
    match cgroup.version {
        Version::V1 => (read("memory.limit_in_bytes"), read("memory.memsw.limit_in_bytes")),
        Version::V2 => {
            let memory = read("memory.max");
            (memory, memory.zip(read("memory.swap.max")).map(|(memory, swap)| memory + swap))
        }
    }
}

/// Whether a group has a limit on swap, and it is none.
fn is_swap_unlimited(cgroup: &CgroupDir) -> bool {
    match cgroup.version {
        Version::V1 => number_in(&cgroup.dir.join("memory.memsw.limit_in_bytes"))
            .is_some_and(|with_swap| with_swap >= UNLIMITED_BYTES),
        Version::V2 => {
            fs::read_to_string(cgroup.dir.join("memory.swap.max")).is_ok_and(|text| text.trim() == "max")
        }
    }
}

/// The limits on each disk, given as `MAJOR:MINOR`, in the order of [`BLOCK`].
fn block(cgroup: &CgroupDir) -> [Vec<(String, u64)>; 4] {
    BLOCK.map(|(v1_file, v2_key)| {
        let file = if cgroup.version == Version::V1 { v1_file } else { "io.max" };
        let text = fs::read_to_string(cgroup.dir.join(file)).unwrap_or_default();
        let values = text.lines().filter_map(|line| {
            let (disk, rest) = line.split_once(' ')?;
            let value = match cgroup.version {
                Version::V1 => rest.trim().parse().ok(),
                Version::V2 => value_of(rest, v2_key),
            };
            Some((disk.to_owned(), value?))
        });
        values.filter(|(_, n)| *n < UNLIMITED_BPS).collect()
    })
}

/// The limits that all these disks have alike, in the order of [`BLOCK`].
fn block_of_all(cgroup: &CgroupDir, disks: &[String]) -> [Option<u64>; 4] {
    block(cgroup).map(|rates| {
        let of = |disk: &String| rates.iter().find(|(of, _)| of == disk).map(|(_, rate)| *rate);
        let first = of(disks.first()?)?;
        disks.iter().all(|disk| of(disk) == Some(first)).then_some(first)
    })
}

fn value_of(line: &str, key: &str) -> Option<u64> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// Limits one disk.
fn set_disk(cgroup: &CgroupDir, of: &DiskLimit, limit: &str) -> Result<(), LimitError> {
    let (v1_file, v2_key) = BLOCK[of.kind];
    match cgroup.version {
        Version::V1 => set_line(&cgroup.dir.join(v1_file), &of.disk, "", of.value, limit),
        Version::V2 => set_line(&cgroup.dir.join("io.max"), &of.disk, v2_key, of.value, limit),
    }
}

/// Writes one disk's limit and reads it back: the file has one line per disk.
fn set_line(file: &Path, disk: &str, key: &str, value: u64, limit: &str) -> Result<(), LimitError> {
    let line = match key {
        "" => format!("{disk} {value}"),
        key => format!("{disk} {key}={value}"),
    };
    let fail = |why: String| LimitError {
        limit: limit.to_owned(),
        why,
        hint: "does the disk's driver, or a group above, forbid it?".to_owned(),
    };
    fs::write(file, &line).map_err(|e| fail(format!("cannot write {line} to {}: {e}", file.display())))?;
    let text =
        fs::read_to_string(file).map_err(|e| fail(format!("cannot read {} back: {e}", file.display())))?;
    let of_disk = text.lines().find(|l| l.split(' ').next() == Some(disk));
    let back = of_disk.and_then(|l| match key {
        "" => l.split_once(' ')?.1.trim().parse().ok(),
        key => value_of(l, key),
    });
    match back {
        Some(back) if back == value => Ok(()),
        _ => Err(fail(format!(
            "{} contains `{}` after writing `{line}`",
            file.display(),
            of_disk.unwrap_or_default()
        ))),
    }
}

fn block_text(limits: BlockLimits) -> String {
    let bytes = |n: u64| format!("{}/s", format_bytes(n as f64));
    let texts = [
        limits.read_bytes_per_s.map(|n| format!("{} read", bytes(n))),
        limits.write_bytes_per_s.map(|n| format!("{} written", bytes(n))),
        limits.read_ops_per_s.map(|n| format!("{n} reads/s")),
        limits.write_ops_per_s.map(|n| format!("{n} writes/s")),
    ];
    format!("block I/O to {}", texts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::fake;
    use super::*;

    fn group(root: &Path, version: Version) -> Group {
        let cgroup = |dir: &str, controllers: &[Controller]| CgroupDir {
            version,
            controllers: controllers.to_vec(),
            dir: root.join(dir),
        };
        let all = [Controller::Cpu, Controller::Memory, Controller::Pids, Controller::Io];
        Group { cgroups: vec![cgroup("g", &all)], ..Group::default() }
    }

    #[test]
    fn limits_in_force_are_what_the_files_say() {
        let v1 = fake(&[
            ("g/cpu.cfs_quota_us", "1000\n"),
            ("g/cpu.cfs_period_us", "100000\n"),
            ("g/memory.limit_in_bytes", "15728640\n"),
            ("g/memory.memsw.limit_in_bytes", "31457280\n"),
            ("g/pids.max", "max\n"),
            ("g/blkio.throttle.read_bps_device", "254:0 1125899906842624\n8:0 1048576\n"),
            ("g/blkio.throttle.write_iops_device", "254:0 100\n"),
        ]);
        let shown = |root: &Path, version| group(root, version).in_force().describe().join("; ");
        assert_eq!(
            shown(v1.path(), Version::V1),
            "1 % of a core; 15.0 MiB of memory; 30.0 MiB of memory and swap; 1.00 MiB/s read from each disk; \
             100 writes/s of each disk"
        );
        let v2 = fake(&[
            ("g/cpu.max", "50000 100000\n"),
            ("g/memory.max", "15728640\n"),
            ("g/memory.swap.max", "0\n"),
            ("g/pids.max", "64\n"),
            ("g/io.max", "254:0 rbps=1048576 wbps=max riops=max wiops=7\n"),
        ]);
        assert_eq!(
            shown(v2.path(), Version::V2),
            "50 % of a core; 15.0 MiB of memory; 64 processes and threads; 1.00 MiB/s read from each disk; \
             7 writes/s of each disk"
        );
        let none = fake(&[
            ("g/cpu.cfs_quota_us", "-1\n"),
            ("g/cpu.cfs_period_us", "100000\n"),
            ("g/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert!(group(none.path(), Version::V1).in_force().is_empty());
    }

    #[test]
    fn a_limit_that_is_gone_is_let_go() {
        let root = fake(&[
            ("g/cpu.max", "50000 100000\n"),
            ("g/memory.max", "15728640\n"),
            ("g/memory.swap.max", "0\n"),
            ("g/pids.max", "64\n"),
        ]);
        let group = group(root.path(), Version::V2);
        let mut now = Limits {
            cpu_cores: Some(0.5),
            memory_bytes: Some(15 << 20),
            pids: Some(64),
            ..Limits::default()
        };
        let new = Limits { pids: Some(9), ..Limits::default() };
        assert_eq!(group.change(&mut now, &new), Ok(vec![]));
        assert_eq!(now, new);
        assert_eq!(group.in_force(), LimitsInForce { pids: Some(9), ..LimitsInForce::default() });
    }

    #[test]
    fn limits_that_were_there_before_are_there_again() {
        let root = fake(&[
            ("g/cpu.max", "25000 100000\n"),
            ("g/memory.max", "67108864\n"),
            ("g/memory.swap.max", "67108864\n"),
            ("g/pids.max", "64\n"),
        ]);
        let group = group(root.path(), Version::V2);
        // The plan limits processes, and a Compose file all else.
        let plan = Limits { pids: Some(64), ..Limits::default() };
        let file = group.settable().except(plan);
        let (before, mut now) = (group.in_force(), plan.or(file));
        let changed = Limits { cpu_cores: Some(0.5), memory_bytes: Some(15 << 20), pids: None, ..now };
        assert_eq!(group.change(&mut now, &changed), Ok(vec![]));
        assert_ne!(group.in_force(), before);
        assert_eq!(group.change(&mut now, &plan.or(file)), Ok(vec![]));
        assert_eq!(group.in_force(), before);
    }

    #[test]
    fn memory_that_only_holds_files_is_free_to_take() {
        let v1 = fake(&[
            ("g/memory.usage_in_bytes", "100\n"),
            ("g/memory.stat", "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 30\n"),
        ]);
        let v2 = fake(&[
            ("g/memory.current", "100\n"),
            ("g/memory.stat", "anon 7\ninactive_file 20\nactive_file 40\n"),
        ]);
        assert_eq!(group(v1.path(), Version::V1).memory_held(), Some(50));
        assert_eq!(group(v2.path(), Version::V2).memory_held(), Some(40));
        assert_eq!(group(v1.path(), Version::V2).memory_held(), None);
    }

    #[test]
    fn what_is_held_beyond_a_lower_limit_counts_swap() {
        let v1 = fake(&[
            ("g/memory.usage_in_bytes", "100\n"),
            ("g/memory.memsw.usage_in_bytes", "180\n"),
            ("g/memory.stat", "total_inactive_file 20\ntotal_active_file 20\n"),
        ]);
        let v2 = fake(&[
            ("g/memory.current", "100\n"),
            ("g/memory.swap.current", "80\n"),
            ("g/memory.stat", "inactive_file 20\nactive_file 20\n"),
        ]);
        let of = |memory: u64, both: Option<u64>| Limits {
            memory_bytes: Some(memory),
            memory_swap_bytes: both,
            ..Limits::default()
        };
        let none = Limits::default();
        for (now, wanted, expect) in [
            (none, of(50, Some(Limits::ANY_SWAP)), Some((60, 50, false))),
            (none, of(64, Some(Limits::ANY_SWAP)), None),
            (none, of(64, Some(128)), Some((140, 128, true))),
            // An event has lowered the limit on memory, or left it as it was, but allowed more swap.
            (of(60, Some(200)), of(64, None), Some((140, 64, true))),
            (of(64, Some(200)), of(64, None), Some((140, 64, true))),
            (of(64, Some(200)), of(64, Some(150)), None),
            // Nothing allows less than before.
            (of(64, Some(96)), of(64, Some(96)), None),
            (of(32, None), of(64, Some(128)), None),
            (none, none, None),
        ] {
            let expect = expect.map(|(held_bytes, limit_bytes, with_swap)| MemoryBeyond {
                held_bytes,
                limit_bytes,
                with_swap,
            });
            for (root, version) in [(&v1, Version::V1), (&v2, Version::V2)] {
                let beyond = group(root.path(), version).memory_beyond(&now, &wanted);
                assert_eq!(beyond, expect, "{now:?} {wanted:?}");
            }
        }
    }

    #[test]
    fn swap_that_was_not_limited_is_not_limited_again() {
        // The largest number in whole pages.
        let largest = i64::MAX as u64 / rustix::param::page_size() as u64 * rustix::param::page_size() as u64;
        let largest = largest.to_string();
        for (version, memory, swap, unlimited) in [
            (Version::V2, "memory.max", "memory.swap.max", "max"),
            (Version::V1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", largest.as_str()),
        ] {
            let (memory_file, swap_file) = (format!("g/{memory}"), format!("g/{swap}"));
            let root = fake(&[(memory_file.as_str(), "67108864\n"), (swap_file.as_str(), unlimited)]);
            let group = group(root.path(), version);
            let file = group.settable();
            assert_eq!((file.memory_bytes, file.memory_swap_bytes), (Some(64 << 20), Some(Limits::ANY_SWAP)));
            assert_eq!(group.in_force().memory_swap_bytes, None);
            let mut now = file;
            let less = Limits { memory_bytes: Some(32 << 20), memory_swap_bytes: None, ..file };
            assert_eq!(group.change(&mut now, &less), Ok(vec![]));
            assert_ne!(group.settable(), file);
            assert_eq!(group.change(&mut now, &file), Ok(vec![]));
            let read = |name: &str| fs::read_to_string(root.path().join(name)).unwrap();
            assert_eq!((read(&memory_file).as_str(), read(&swap_file).as_str()), ("67108864", unlimited));
        }
        // Without a limit on memory, or a file for swap, there is nothing to keep.
        let none = fake(&[("g/memory.max", "max\n"), ("g/memory.swap.max", "max\n")]);
        assert_eq!(group(none.path(), Version::V2).settable(), Limits::default());
        let alone = fake(&[("g/memory.max", "67108864\n")]);
        assert_eq!(group(alone.path(), Version::V2).settable().memory_swap_bytes, None);
    }

    #[test]
    fn a_limit_of_some_disks_alone_is_kept_apart() {
        let root = fake(&[(
            "g/io.max",
            "254:0 rbps=5 wbps=max riops=9 wiops=7\n8:0 rbps=5 wbps=max riops=8 wiops=max\n",
        )]);
        let group = group(root.path(), Version::V2);
        let cgroup = &group.cgroups[0];
        let disks = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let both = disks(&["254:0", "8:0"]);
        assert_eq!(block_of_all(cgroup, &both), [Some(5), None, None, None]);
        assert_eq!(block_of_all(cgroup, &disks(&["254:0", "8:16"])), [None; 4]);
        let on = |kind: usize, disk: &str, value: u64| DiskLimit { kind, disk: disk.to_owned(), value };
        let some = block_of_some(cgroup, &both, |_| true);
        assert_eq!(some, [on(2, "254:0", 9), on(2, "8:0", 8), on(3, "254:0", 7)]);
        assert_eq!(block_of_some(cgroup, &both, |kind| kind != 2), [on(3, "254:0", 7)]);
    }

    #[test]
    fn a_limit_of_some_disks_alone_holds_again() {
        let root = fake(&[
            ("g/io.max", "254:0 rbps=5 wbps=max riops=max wiops=max\n"),
            ("g/blkio.throttle.read_bps_device", "254:0 5\n"),
        ]);
        for (version, file, expect) in [
            (Version::V2, "g/io.max", "254:0 rbps=5"),
            (Version::V1, "g/blkio.throttle.read_bps_device", "254:0 5"),
        ] {
            let mut group = group(root.path(), version);
            group.own_disks = block_of_some(&group.cgroups[0], &[], |_| true);
            let old = BlockLimits { read_bytes_per_s: Some(9), ..BlockLimits::default() };
            // Each write replaces a file that is not the kernel's.
            group.lift_block(old, BlockLimits::default()).unwrap();
            assert_eq!(fs::read_to_string(root.path().join(file)).unwrap(), expect);
        }
    }

    #[test]
    fn limits_before_one_that_fails_are_known_to_be_in_force() {
        let root = fake(&[
            ("g/cpu.max", "max 100000\n"),
            ("g/memory.max", "max\n"),
            // A folder cannot be written to.
            ("g/memory.swap.max/x", ""),
            ("g/pids.max", "max\n"),
        ]);
        let group = group(root.path(), Version::V2);
        let new = Limits {
            cpu_cores: Some(0.5),
            memory_bytes: Some(15 << 20),
            pids: Some(64),
            ..Limits::default()
        };
        let mut now = Limits::default();
        assert!(group.change(&mut now, &new).unwrap_err().limit.starts_with("memory to"));
        assert_eq!(now, Limits { cpu_cores: Some(0.5), ..Limits::default() });
        let half = LimitsInForce { cpu_cores: Some(0.5), ..LimitsInForce::default() };
        assert_eq!(group.in_force(), half);
        // The next change starts from what is in force.
        assert_eq!(group.change(&mut now, &Limits::default()), Ok(vec![]));
        assert!(group.in_force().is_empty());
    }

    #[test]
    fn a_disk_that_keeps_another_limit_is_an_error() {
        let error = set_line(Path::new("/dev/null"), "8:0", "", 5, "block I/O to 5").unwrap_err();
        assert_eq!(error.why, "/dev/null contains `` after writing `8:0 5`");
    }
}
