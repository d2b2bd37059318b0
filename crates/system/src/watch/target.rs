//! Something that is watched – a component, loadlab itself, the host – and how a reading of it becomes a sample.
//!
//! If there is a cgroup, its counters are used: they include processes that have ended. Otherwise the process tree is
//! summed up: what processes used that end unreaped between two readings is lost, and totals are kept from falling.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use loadlab_record::watch::names::{GENERATOR, HOST};
use loadlab_record::watch::sample::Sample;
use rustix::fs::{Mode, OFlags};

use super::evidence::Members;
use super::net::NetReader;
use crate::cgroup::read::{CachedFile, GroupReader, PressureFiles, keyed};
use crate::cgroup::{CgroupDir, Controller, Version, place_of, tree};
use crate::process::{self, ProcessFamily, ProcessId, Stat};

/// Maximum number of processes of one target whose files are kept open; files of further processes are opened for each
/// reading. Loadlab needs its descriptors for connections.
const CACHED_PROCESSES: usize = 64;
/// The limit on open files, which hardly ever changes, is read again after this many readings: the kernel writes
/// sixteen lines for it.
const LIMITS_EVERY: u32 = 10;

/// Something to watch.
#[derive(Debug)]
pub struct Target {
    name: String,
    kind: TargetKind,
    memory_limit_bytes: Option<u64>,
    files: HashMap<u32, ProcessFiles>,
    /// Totals so far: sums over processes fall when a process ends, totals must not.
    totals: RunningTotals,
    net: Net,
    /// Its processes as of the last reading.
    pids: Vec<u32>,
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

/// Files of the machine, kept open.
#[derive(Debug)]
struct HostFiles {
    stat: CachedFile,
    memory: CachedFile,
    events: CachedFile,
    loads: CachedFile,
    open_files: CachedFile,
    net: NetReader,
    pressure: Option<PressureFiles>,
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
        let open = |path: &str| CachedFile::open(Path::new(path));
        let files = HostFiles {
            stat: open("/proc/stat"),
            memory: open("/proc/meminfo"),
            events: open("/proc/vmstat"),
            loads: open("/proc/loadavg"),
            open_files: open("/proc/sys/fs/file-nr"),
            net: NetReader::open(Path::new("/proc/self/net")),
            pressure: PressureFiles::open(Path::new("/proc/pressure"), ""),
        };
        Target::new(HOST, TargetKind::Host(Box::new(files)))
    }

    /// A process that is already running, with its descendants and its process group.
    pub fn process_tree(name: &str, root: ProcessId) -> Target {
        Target::new(name, TargetKind::Tree(ProcessFamily { leader: root, mark: String::new() }))
    }

    /// The cgroups of a running process, such as a container's by its first process. `None` if it has none, or loadlab
    /// itself is in them.
    pub fn cgroup_of(name: &str, pid: u32) -> Option<Target> {
        let root = Path::new("/");
        let own = tree::groups_of(root, std::process::id());
        let places: Vec<CgroupDir> =
            tree::groups_of(root, pid).into_iter().filter(|p| !own.iter().any(|o| o.dir == p.dir)).collect();
        if places.is_empty() {
            return None;
        }
        let mut target = Target::new(name, Target::group_kind(&places));
        target.memory_limit_bytes = memory_limit(&places);
        Some(target)
    }

    /// Control groups given by their folders, one for each hierarchy.
    pub(crate) fn groups(name: &str, dirs: &[std::path::PathBuf]) -> Target {
        let places = tree::places_at(dirs);
        let mut target = Target::new(name, Target::group_kind(&places));
        target.memory_limit_bytes = memory_limit(&places);
        target
    }

    fn group_kind(places: &[CgroupDir]) -> TargetKind {
        TargetKind::Group {
            reader: GroupReader::open(places),
            // v1 charges writes through the page cache to no group: kernel threads write them.
            written_back_elsewhere: place_of(places, Controller::Io).is_none_or(|p| p.version == Version::V1),
        }
    }

    /// A component, by its groups, or else by its process family. `asked` is the configured memory limit.
    pub(crate) fn component(
        name: &str,
        places: &[CgroupDir],
        family: &ProcessFamily,
        asked: Option<u64>,
    ) -> Target {
        let kind = match places.is_empty() {
            true => TargetKind::Tree(family.clone()),
            false => Target::group_kind(places),
        };
        let mut target = Target::new(name, kind);
        // The kernel rounds to whole pages.
        target.memory_limit_bytes = asked.and_then(|asked| memory_limit(places).or(Some(asked)));
        target
    }

    fn new(name: &str, kind: TargetKind) -> Target {
        Target {
            name: name.to_owned(),
            kind,
            memory_limit_bytes: None,
            files: HashMap::new(),
            totals: RunningTotals::default(),
            net: Net::default(),
            pids: Vec::new(),
        }
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

    /// Its processes as of the last reading; none for the host.
    pub(crate) fn members(&self) -> Members {
        Members { component: self.name.clone(), pids: self.pids.clone() }
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
        let mut sample = Sample {
            component: self.name.clone(),
            memory_limit_bytes: self.memory_limit_bytes,
            ..Sample::default()
        };
        match &self.kind {
            TargetKind::Host(files) => read_host(&mut sample, files, &mut round.buffer)?,
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
                let sums = self.sum_files(&[pid], &mut round.buffer);
                sums.fill(&mut sample);
                sample.memory_bytes = sample.resident_bytes;
            }
            TargetKind::Group { reader, written_back_elsewhere } => {
                let r = reader.read(&mut round.buffer);
                let written_back_elsewhere = *written_back_elsewhere;
                let processes = r.processes?;
                let sums = self.sum_files(&processes, &mut round.buffer);
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
                    return None;
                }
                let pids: Vec<u32> = members.iter().map(|s| s.pid).collect();
                let sums = self.sum_files(&pids, &mut round.buffer);
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
        if let Some(first) = pids.first().copied()
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

    /// Sums up over the processes what only `/proc/PID` reports.
    fn sum_files(&mut self, pids: &[u32], buffer: &mut Vec<u8>) -> ProcessSums {
        self.files.retain(|pid, _| pids.contains(pid));
        pids.clone_into(&mut self.pids);
        let mut sums = ProcessSums {
            resident: Some(0),
            open_files: Some(0),
            files_share: None,
            read: Some(0),
            written: Some(0),
        };
        for &pid in pids {
            if let Some(files) = self.files.get_mut(&pid)
                && files.add_to(&mut sums, buffer)
            {
                continue;
            }
            // A new process, or another one that has the pid now.
            let mut files = ProcessFiles::open(pid);
            files.add_to(&mut sums, buffer);
            if self.files.len() < CACHED_PROCESSES {
                self.files.insert(pid, files);
            }
        }
        sums
    }
}

/// Files of one process, kept open. They stay bound to that process even if its pid is reused.
#[derive(Debug)]
struct ProcessFiles {
    pid: u32,
    memory: CachedFile,
    io: CachedFile,
    limits: CachedFile,
    /// The limit on open files, and readings since it was last read.
    files_limit: (Option<u64>, u32),
    descriptors: Option<OwnedFd>,
}

/// Sums over processes; a value is `None` as soon as one of them may not be read.
#[derive(Debug)]
struct ProcessSums {
    resident: Option<u64>,
    open_files: Option<u64>,
    /// The highest share of its limit on open files among the processes.
    files_share: Option<f64>,
    read: Option<u64>,
    written: Option<u64>,
}

impl ProcessSums {
    fn fill(&self, sample: &mut Sample) {
        sample.resident_bytes = self.resident;
        sample.open_files = self.open_files;
        sample.open_files_share = self.files_share;
        sample.block_read_bytes = self.read;
        sample.block_written_bytes = self.written;
    }
}

impl ProcessFiles {
    fn open(pid: u32) -> ProcessFiles {
        let dir = format!("/proc/{pid}");
        let dir = Path::new(&dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        ProcessFiles {
            pid,
            memory: CachedFile::open(&dir.join("statm")),
            io: CachedFile::open(&dir.join("io")),
            limits: CachedFile::open(&dir.join("limits")),
            files_limit: (None, 0),
            descriptors: rustix::fs::open(dir.join("fd"), flags, Mode::empty()).ok(),
        }
    }

    /// Adds this process; `false` if it has ended.
    fn add_to(&mut self, sums: &mut ProcessSums, buffer: &mut Vec<u8>) -> bool {
        let Some(pages) = self.memory.read(buffer).and_then(|t| t.split(' ').nth(1)?.parse::<u64>().ok())
        else {
            return false;
        };
        add(&mut sums.resident, Some(pages * rustix::param::page_size() as u64));
        let open = self.open_files();
        add(&mut sums.open_files, open);
        let (limit, age) = &mut self.files_limit;
        if *age == 0 {
            *limit = self.limits.read(buffer).and_then(files_limit);
        }
        *age = (*age + 1) % LIMITS_EVERY;
        let share = open.zip(*limit);
        let share = share.filter(|(_, limit)| *limit > 0).map(|(open, limit)| open as f64 / limit as f64);
        sums.files_share = share.map(|s| s.max(sums.files_share.unwrap_or(0.0))).or(sums.files_share);
        let io = self.io.read(buffer);
        add(&mut sums.read, io.and_then(|text| keyed(text, "read_bytes:")));
        add(&mut sums.written, io.and_then(|text| keyed(text, "write_bytes:")));
        true
    }

    fn open_files(&self) -> Option<u64> {
        let descriptors = self.descriptors.as_ref()?;
        // Since Linux 6.2 the folder's size is the number of descriptors; before that, it is 0.
        match rustix::fs::fstat(descriptors).map(|s| s.st_size) {
            Ok(size) if size > 0 => Some(size as u64),
            _ => Some(fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?.count() as u64),
        }
    }
}

/// The soft limit on open files in `/proc/PID/limits`; `None` if unlimited.
fn files_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// A group's memory limit. v1 has a default of nearly 2^63.
fn memory_limit(places: &[CgroupDir]) -> Option<u64> {
    let place = place_of(places, Controller::Memory)?;
    let file = match place.version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    let bytes: u64 = fs::read_to_string(place.dir.join(file)).ok()?.trim().parse().ok()?;
    (bytes < 1 << 62).then_some(bytes)
}

fn add(sum: &mut Option<u64>, value: Option<u64>) {
    *sum = sum.zip(value).map(|(sum, value)| sum + value);
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

fn read_host(sample: &mut Sample, files: &HostFiles, buffer: &mut Vec<u8>) -> Option<()> {
    if let Some((user_s, system_s)) = files.stat.read(buffer).and_then(host_cpu_s) {
        (sample.cpu_user_s, sample.cpu_system_s) = (Some(user_s), Some(system_s));
        sample.cpu_s = Some(user_s + system_s);
    }
    if let Some(text) = files.memory.read(buffer) {
        let total = kib(text, "MemTotal:");
        sample.memory_bytes = total.zip(kib(text, "MemAvailable:")).map(|(t, a)| t.saturating_sub(a));
        sample.cache_bytes = kib(text, "Cached:");
        sample.memory_limit_bytes = total;
    }
    if let Some(text) = files.events.read(buffer) {
        sample.block_read_bytes = keyed(text, "pgpgin").map(|kib| kib * 1024);
        sample.block_written_bytes = keyed(text, "pgpgout").map(|kib| kib * 1024);
        sample.oom_kills = keyed(text, "oom_kill");
        sample.major_faults = keyed(text, "pgmajfault");
        let all = keyed(text, "pgfault");
        sample.minor_faults = all.zip(sample.major_faults).map(|(all, major)| all.saturating_sub(major));
    }
    sample.tcp = files.net.tcp(buffer);
    (sample.net_in_bytes, sample.net_out_bytes) = files.net.link_bytes(buffer).unzip();
    sample.pressure = files.pressure.as_ref().and_then(|p| p.read(buffer));
    let loads = files.loads.read(buffer).unwrap_or_default();
    sample.load_average = loads.split(' ').next().and_then(|n| n.parse().ok());
    sample.pids = loads.split(['/', ' ']).nth(4).and_then(|n| n.parse().ok());
    let open = files.open_files.read(buffer).unwrap_or_default();
    sample.open_files = open.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
    sample.cpu_s.or(sample.memory_bytes.map(|b| b as f64)).map(drop)
}

/// CPU seconds in user and kernel mode since boot. Idle, iowait and stolen time is not used by anyone.
fn host_cpu_s(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_ascii_whitespace().filter_map(|f| f.parse().ok()).collect();
    let [user, nice, system, _idle, _wait, irq, soft_irq, ..] = fields[..] else { return None };
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some(((user + nice) as f64 / ticks, (system + irq + soft_irq) as f64 / ticks))
}

/// Bytes, from a line such as `MemTotal:  1024 kB`.
fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_times_leave_idle_out() {
        let text = "cpu  100 50 25 9999 9999 5 20 7777 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(host_cpu_s(text), Some((1.5, 0.5)));
        assert_eq!(host_cpu_s("cpu 1 2\n"), None);
        assert_eq!(kib("MemTotal:       2 kB\nCached: 1 kB\n", "Cached:"), Some(1024));
    }

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
    fn a_limit_on_open_files_is_read() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(files_limit(text), expect, "{text}");
        let head = "Limit                     Soft Limit           Hard Limit           Units     \n";
        check(
            &format!(
                "{head}Max open files            1024                 524288               files     \n"
            ),
            Some(1024),
        );
        check(
            &format!(
                "{head}Max open files            unlimited            unlimited            files     \n"
            ),
            None,
        );
        check(head, None);
    }

    #[test]
    fn open_files_are_counted_as_they_are() {
        let files = ProcessFiles::open(std::process::id());
        let dir = fs::read_dir("/proc/self/fd").unwrap();
        // Other tests in this process open and close files meanwhile: the count is bounded, not exact.
        assert!(files.open_files().unwrap() > 2 && dir.count() > 2);
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
