//! Something that is watched – a component, loadlab itself, the host – and how a reading of it becomes a sample.
//!
//! If there is a cgroup, its counters are used: they include processes that have ended. Otherwise the process tree is
//! summed up: what processes used that end unreaped between two readings is lost, and totals are kept from falling.

mod host;
mod processes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadlab_record::watch::names::{GENERATOR, HOST};
use loadlab_record::watch::sample::Sample;

use self::host::HostFiles;
use self::processes::Processes;
use super::evidence::Members;
use super::net::NetReader;
use crate::cgroup::read::GroupReader;
use crate::cgroup::{CgroupDir, Controller, Version, cgroup_of, has_container_id, of_whole_container, tree};
use crate::clock;
use crate::process::{self, ProcessFamily, ProcessId, Stat};

/// Something to watch.
#[derive(Debug)]
pub struct Target {
    name: String,
    kind: TargetKind,
    /// Its first process, if there is one.
    first: Option<u32>,
    /// The folders of its groups, one for each hierarchy.
    dirs: Vec<PathBuf>,
    /// Groups that others may remove and make anew.
    others: Option<OthersGroups>,
    memory_limit_bytes: Option<u64>,
    processes: Processes,
    /// Totals so far: sums over processes fall when a process ends, totals must not.
    totals: RunningTotals,
    net: Net,
}

/// When groups that others made were found to be gone, nanoseconds of [`clock::now_ns`]; 0 as long as they are there.
pub(crate) type GoneAt = Arc<AtomicU64>;

/// Groups that others made, by their folders. Open files of a removed group stay useless when it is made anew.
#[derive(Debug)]
struct OthersGroups {
    dirs: Vec<PathBuf>,
    was_read: bool,
    gone_at: GoneAt,
    /// Readings that found some of the folders, not all.
    incomplete: u32,
}

/// Groups are made anew one after the other; after this many readings, those that are there are read without the
/// others.
const INCOMPLETE_READINGS: u32 = 2;

/// Whether groups, given by their folders, are there: the last has the list of processes that is read.
pub(crate) fn are_there(dirs: &[PathBuf]) -> bool {
    dirs.last().is_some_and(|dir| dir.join("cgroup.procs").exists())
}

/// The network namespace of a component: looked up once per first process.
#[derive(Debug, Default)]
struct Net {
    of_pid: Option<u32>,
    /// Its namespace, if it differs from loadlab's.
    own: Option<NetReader>,
}

#[derive(Debug)]
enum TargetKind {
    Group { reader: GroupReader, written_back_elsewhere: bool },
    Tree(ProcessFamily),
    Generator { own_group: GroupReader },
    Host(Box<HostFiles>),
}

#[derive(Debug, Default)]
struct RunningTotals {
    cpu_user_s: f64,
    cpu_system_s: f64,
    block_read: u64,
    block_written: u64,
    minor_faults: u64,
    major_faults: u64,
}

/// Buffers and the snapshot of all processes, shared by the targets of one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    buffer: Vec<u8>,
    snapshot: Option<Vec<Stat>>,
}

impl Round {
    /// Discards the snapshot of the last round.
    pub fn next(&mut self) {
        self.snapshot = None;
    }
}

impl Target {
    /// loadlab itself, as component `loadlab`.
    pub fn generator() -> Target {
        Target::new(
            GENERATOR,
            TargetKind::Generator {
                own_group: GroupReader::open(&tree::own_cpu_group(Path::new("/"))).without_processes(),
            },
        )
    }

    /// The machine, as component `host`. Its counters are totals since boot.
    pub fn host() -> Target {
        Target::new(HOST, TargetKind::Host(Box::new(HostFiles::open())))
    }

    /// A process that is already running, with its descendants and its process group.
    pub fn process_tree(name: &str, root: ProcessId) -> Target {
        let mut target =
            Target::new(name, TargetKind::Tree(ProcessFamily { leader: root, mark: String::new() }));
        target.first = Some(root.pid);
        target
    }

    /// The cgroups of a running process, or of the whole container whose first process it is. `None` if it has none, or
    /// loadlab itself is in them.
    pub fn cgroup_of(name: &str, pid: u32) -> Option<Target> {
        let root = Path::new("/");
        let own = tree::groups_of(root, std::process::id());
        let whole = |cgroup: CgroupDir| {
            let dir = of_whole_container(&cgroup.dir, has_container_id);
            CgroupDir { dir, ..cgroup }
        };
        let cgroups: Vec<CgroupDir> = tree::groups_of(root, pid)
            .into_iter()
            .map(whole)
            .filter(|p| !own.iter().any(|o| o.dir.starts_with(&p.dir)))
            .collect();
        if cgroups.is_empty() {
            return None;
        }
        let mut target = Target::new(name, Target::group_kind(&cgroups));
        target.memory_limit_bytes = memory_limit(&cgroups);
        target.dirs = cgroups.into_iter().map(|cgroup| cgroup.dir).collect();
        target.first = Some(pid);
        Some(target)
    }

    /// Control groups that others made, given by their folders, one for each hierarchy. `gone_at` is set when they are
    /// found to be gone; if they are made anew, they are read again.
    pub(crate) fn groups(name: &str, dirs: &[PathBuf], gone_at: GoneAt) -> Target {
        let cgroups = tree::cgroups_at(dirs);
        let mut target = Target::new(name, Target::group_kind(&cgroups));
        target.memory_limit_bytes = memory_limit(&cgroups);
        target.dirs = dirs.to_vec();
        target.others = Some(OthersGroups { dirs: dirs.to_vec(), was_read: false, gone_at, incomplete: 0 });
        target
    }

    fn group_kind(cgroups: &[CgroupDir]) -> TargetKind {
        TargetKind::Group {
            reader: GroupReader::open(cgroups),
            // v1 charges writes through the page cache to no group: kernel threads write them.
            written_back_elsewhere: cgroup_of(cgroups, Controller::Io)
                .is_none_or(|p| p.version == Version::V1),
        }
    }

    /// A component, by its groups, or else by its process family. `asked` is the configured memory limit; a Compose
    /// file may have set another.
    pub(crate) fn component(
        name: &str,
        cgroups: &[CgroupDir],
        family: &ProcessFamily,
        asked: Option<u64>,
    ) -> Target {
        let kind = match cgroups.is_empty() {
            true => TargetKind::Tree(family.clone()),
            false => Target::group_kind(cgroups),
        };
        let mut target = Target::new(name, kind);
        // The kernel rounds to whole pages.
        target.memory_limit_bytes = memory_limit(cgroups).or(asked);
        target.dirs = cgroups.iter().map(|cgroup| cgroup.dir.clone()).collect();
        target.first = Some(family.leader.pid);
        target
    }

    fn new(name: &str, kind: TargetKind) -> Target {
        Target {
            name: name.to_owned(),
            kind,
            first: None,
            dirs: Vec::new(),
            others: None,
            memory_limit_bytes: None,
            processes: Processes::default(),
            totals: RunningTotals::default(),
            net: Net::default(),
        }
    }

    /// Its limits are others from now on, that on memory this one.
    pub(crate) fn set_limits(&mut self, memory_bytes: Option<u64>) {
        self.memory_limit_bytes = memory_bytes;
        self.processes.read_limits_again();
    }

    /// The same target under another name.
    pub(crate) fn named(mut self, name: &str) -> Target {
        name.clone_into(&mut self.name);
        self
    }

    /// Whether reading it scans all processes of the machine.
    pub(crate) fn is_tree(&self) -> bool {
        matches!(self.kind, TargetKind::Tree(_))
    }

    /// The folders of its groups, one for each hierarchy.
    pub(crate) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Its processes as of the last reading; none for the host.
    pub(crate) fn members(&self) -> Members {
        Members { component: self.name.clone(), pids: self.processes.pids().to_vec() }
    }

    /// Its name in samples.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads it once, outside of any round. `at_s` of the sample is 0. `None` if it is gone.
    pub fn read_now(&mut self) -> Option<Sample> {
        self.read(&mut Round::default())
    }

    /// Reads it; the caller sets `at_s`. `None` if it is gone.
    pub(crate) fn read(&mut self, round: &mut Round) -> Option<Sample> {
        let sample = self.read_open(round);
        if sample.is_some() {
            if let Some(others) = &mut self.others {
                others.was_read = true;
            }
            return sample;
        }
        if self.open_again() { self.read_open(round) } else { None }
    }

    /// Groups of others cannot be read: notes that they are gone, and opens those that are there instead. `false` if
    /// there are none.
    fn open_again(&mut self) -> bool {
        let Some(others) = &mut self.others else { return false };
        // Only the first time counts.
        if others.was_read && others.gone_at.load(Ordering::Relaxed) == 0 {
            others.gone_at.store(clock::now_ns(), Ordering::Relaxed);
        }
        if !are_there(&others.dirs) {
            others.incomplete = 0;
            return false;
        }
        let dirs: Vec<PathBuf> =
            others.dirs.iter().filter(|dir| dir.join("cgroup.procs").exists()).cloned().collect();
        if dirs.len() < others.dirs.len() && others.incomplete < INCOMPLETE_READINGS {
            others.incomplete += 1;
            return false;
        }
        others.incomplete = 0;
        let cgroups = tree::cgroups_at(&dirs);
        self.kind = Target::group_kind(&cgroups);
        self.memory_limit_bytes = memory_limit(&cgroups);
        // The counters of these groups began at 0.
        self.totals = RunningTotals::default();
        true
    }

    /// Reads it from the files that are open.
    fn read_open(&mut self, round: &mut Round) -> Option<Sample> {
        let mut sample = Sample {
            component: self.name.clone(),
            memory_limit_bytes: self.memory_limit_bytes,
            ..Sample::default()
        };
        match &self.kind {
            TargetKind::Host(files) => files.read(&mut sample, &mut round.buffer)?,
            TargetKind::Generator { own_group } => {
                let own = own_group.read(&mut round.buffer);
                (sample.throttled_periods, sample.throttled_s) = (own.throttled_periods, own.throttled_s);
                let pid = std::process::id();
                add_usage(&mut sample);
                if let Some(stat) = process::stat(pid) {
                    sample.pids = Some(stat.threads);
                    (sample.minor_faults, sample.major_faults) =
                        (Some(stat.minor_faults), Some(stat.major_faults));
                }
                sample.processes = Some(1);
                let sums = self.processes.sum(&[pid], &mut round.buffer);
                sums.fill(&mut sample);
                sample.memory_bytes = sample.resident_bytes;
            }
            TargetKind::Group { reader, written_back_elsewhere } => {
                let r = reader.read(&mut round.buffer);
                let written_back_elsewhere = *written_back_elsewhere;
                let Some(processes) = r.processes else {
                    self.processes.forget();
                    return None;
                };
                let sums = self.processes.sum(&processes, &mut round.buffer);
                sums.fill(&mut sample);
                (sample.cpu_s, sample.cpu_user_s, sample.cpu_system_s) =
                    (r.cpu_s, r.cpu_user_s, r.cpu_system_s);
                (sample.throttled_periods, sample.throttled_s) = (r.throttled_periods, r.throttled_s);
                sample.periods = r.periods;
                sample.memory_bytes = r.memory_bytes.or(sample.resident_bytes);
                (sample.cache_bytes, sample.memory_peak_bytes) = (r.cache_bytes, r.peak_bytes);
                (sample.minor_faults, sample.major_faults) = (r.minor_faults, r.major_faults);
                sample.oom_kills = r.oom_kills;
                sample.pids = r.tasks.or(Some(processes.len() as u64));
                sample.processes = Some(processes.len() as u64);
                sample.pressure = r.pressure;
                self.read_net(&mut sample, &processes, &mut round.buffer);
                sample.block_read_bytes = r.block_read_bytes.or(sample.block_read_bytes);
                sample.block_written_bytes = match r.block_written_bytes {
                    Some(counted) if written_back_elsewhere => sample.block_written_bytes.max(Some(counted)),
                    Some(counted) => Some(counted),
                    None => sample.block_written_bytes,
                };
                self.keep_block_totals(&mut sample);
                if sample.cpu_s.is_none() {
                    self.add_tree(&mut sample, &processes);
                }
            }
            TargetKind::Tree(family) => {
                let members = family.members(round.snapshot.get_or_insert_with(process::snapshot));
                if members.is_empty() {
                    self.processes.forget();
                    return None;
                }
                let pids: Vec<u32> = members.iter().map(|s| s.pid).collect();
                let sums = self.processes.sum(&pids, &mut round.buffer);
                sums.fill(&mut sample);
                sample.memory_bytes = sample.resident_bytes;
                self.keep_block_totals(&mut sample);
                self.add_stats(&mut sample, &members);
                self.read_net(&mut sample, &pids, &mut round.buffer);
            }
        }
        Some(sample)
    }

    /// For a group that does not count CPU: times and threads of the given processes.
    fn add_tree(&mut self, sample: &mut Sample, pids: &[u32]) {
        let stats: Vec<Stat> = pids.iter().filter_map(|pid| process::stat(*pid)).collect();
        self.add_stats(sample, &stats);
    }

    fn add_stats(&mut self, sample: &mut Sample, stats: &[Stat]) {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        // A child's time moves to its parent's `children` time once it is reaped, so nothing is counted twice.
        let sum = |field: fn(&Stat) -> u64| stats.iter().map(field).sum::<u64>() as f64 / ticks;
        let totals = &mut self.totals;
        totals.cpu_user_s = totals.cpu_user_s.max(sum(|s| s.user_ticks + s.children_user_ticks));
        totals.cpu_system_s = totals.cpu_system_s.max(sum(|s| s.system_ticks + s.children_system_ticks));
        sample.cpu_user_s = Some(totals.cpu_user_s);
        sample.cpu_system_s = Some(totals.cpu_system_s);
        sample.cpu_s = Some(totals.cpu_user_s + totals.cpu_system_s);
        sample.pids = Some(stats.iter().map(|s| s.threads).sum());
        sample.processes = Some(stats.len() as u64);
        totals.minor_faults = totals.minor_faults.max(stats.iter().map(|s| s.minor_faults).sum());
        totals.major_faults = totals.major_faults.max(stats.iter().map(|s| s.major_faults).sum());
        sample.minor_faults = sample.minor_faults.or(Some(totals.minor_faults));
        sample.major_faults = sample.major_faults.or(Some(totals.major_faults));
    }

    /// TCP counters and links of its network namespace, if it has its own. The open files keep the namespace alive
    /// beyond its last process.
    fn read_net(&mut self, sample: &mut Sample, pids: &[u32], buffer: &mut Vec<u8>) {
        // Others may be in namespaces of their own, such as those of containers in a container.
        let first = self.first.filter(|first| pids.contains(first));
        if let Some(first) = first.or_else(|| pids.first().copied())
            && self.net.of_pid.is_none_or(|pid| !pids.contains(&pid))
        {
            self.net = Net { of_pid: Some(first), own: NetReader::of_other(first) };
        }
        if let Some(own) = &self.net.own {
            sample.tcp = own.tcp(buffer);
            (sample.net_in_bytes, sample.net_out_bytes) = own.link_bytes(buffer).unzip();
        }
    }

    fn keep_block_totals(&mut self, sample: &mut Sample) {
        let keep = |total: &mut Option<u64>, totals: &mut u64| {
            if let Some(total) = total {
                *totals = (*totals).max(*total);
                *total = *totals;
            }
        };
        keep(&mut sample.block_read_bytes, &mut self.totals.block_read);
        keep(&mut sample.block_written_bytes, &mut self.totals.block_written);
    }
}

/// A group's memory limit. v1 has a default of nearly 2^63.
pub(crate) fn memory_limit(cgroups: &[CgroupDir]) -> Option<u64> {
    let cgroup = cgroup_of(cgroups, Controller::Memory)?;
    let file = match cgroup.version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    let bytes: u64 = fs::read_to_string(cgroup.dir.join(file)).ok()?.trim().parse().ok()?;
    (bytes < 1 << 62).then_some(bytes)
}

/// CPU time of this process, to the microsecond.
#[expect(unsafe_code, reason = "getrusage for loadlab's own CPU time, to the microsecond")]
fn add_usage(sample: &mut Sample) {
    // SAFETY: an all-zero rusage is valid, and getrusage(2) writes one into it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &mut usage) != 0 {
            return;
        }
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let (user_s, system_s) = (seconds(usage.ru_utime), seconds(usage.ru_stime));
    sample.cpu_user_s = Some(user_s);
    sample.cpu_system_s = Some(system_s);
    sample.cpu_s = Some(user_s + system_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loadlab_and_the_host_read_themselves() {
        let own = Target::generator().read_now().unwrap();
        assert_eq!(own.component, "loadlab");
        assert!(
            own.cpu_s.is_some() && own.memory_bytes > Some(1 << 20) && own.open_files > Some(2),
            "{own:?}"
        );
        assert!(own.pids >= Some(2), "the test runs in a thread: {own:?}");
        let host = Target::host().read_now().unwrap();
        assert!(host.cpu_s > Some(0.0) && host.memory_bytes < host.memory_limit_bytes, "{host:?}");
        assert!(host.pids >= own.pids && host.open_files >= own.open_files, "{host:?}");
    }

    #[test]
    fn totals_do_not_fall_when_a_process_ends() {
        let mut target = Target::process_tree("x", ProcessId { pid: 1, start_ticks: 0 });
        let stat = |user_ticks| Stat { user_ticks, threads: 2, ..Stat::default() };
        let mut sample = Sample::default();
        target.add_stats(&mut sample, &[stat(300), stat(200)]);
        assert_eq!((sample.cpu_s, sample.pids), (Some(5.0), Some(4)));
        target.add_stats(&mut sample, &[stat(310)]);
        assert_eq!((sample.cpu_s, sample.pids), (Some(5.0), Some(2)));
    }
}
