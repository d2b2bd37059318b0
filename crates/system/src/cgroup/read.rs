//! Reads a group's counters through files that stay open.
//!
//! With a file kept open a reading is one `pread`, a third of the cost of open, read and close; fifty components with a
//! dozen files each are read every second beside a load. Only the lists of processes in groups below, which few groups
//! have, are opened for each reading. A value that a file does not contain is `None`.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use loadlab_record::watch::sample::Pressure;

use super::{CgroupDir, Controller, Version, cgroup_of};

/// Half of the page in which the kernel writes these files (seq_file); none of their lines comes near this length.
const HALF_PAGE: usize = 2048;
/// Maximum number of groups below one whose processes are listed. A container with a service manager has some fifty.
const MOST_GROUPS: usize = 200;
/// Once this many processes are listed, no further groups below are read. A group such as `system.slice` may have any
/// number of them, and each is read beside a load. The processes of the group itself are always listed.
const MOST_PROCESSES: usize = 1_000;
/// The file systems of control groups: `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of linux/magic.h.
const OF_GROUPS: [u64; 2] = [0x0027_e0eb, 0x6367_7270];

/// A file that is read repeatedly from its beginning.
#[derive(Debug)]
pub(crate) struct CachedFile(Option<File>);

impl CachedFile {
    /// Opens the file; one that cannot be opened reads as `None`.
    pub fn open(path: &Path) -> CachedFile {
        CachedFile(File::open(path).ok())
    }

    /// The file's current text, read into the given buffer.
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        let file = self.0.as_ref()?;
        let mut length = 0;
        loop {
            if buffer.len() < length + 4096 {
                buffer.resize(length + 8192, 0);
            }
            match file.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(n) => {
                    length += n;
                    // The kernel fills its page before it returns: after less than half a page there is nothing more,
                    // and another read would double the cost of a reading.
                    if n < HALF_PAGE {
                        break;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        std::str::from_utf8(&buffer[..length]).ok()
    }

    /// Calls back with each line of the file's current text. A table of sockets grows with the machine's connections,
    /// so only a piece of it is in memory at a time.
    pub fn for_each_line(&self, buffer: &mut Vec<u8>, mut line: impl FnMut(&str)) -> Option<()> {
        let file = self.0.as_ref()?;
        let (mut offset, mut kept) = (0u64, 0);
        loop {
            if buffer.len() < kept + 4096 {
                buffer.resize(kept + 8192, 0);
            }
            let read = match file.read_at(&mut buffer[kept..], offset) {
                Ok(read) => read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            let filled = kept + read;
            offset += read as u64;
            // As in `read`.
            let is_last = read < HALF_PAGE;
            let end_of_line = buffer[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let end = if is_last { filled } else { end_of_line };
            std::str::from_utf8(&buffer[..end]).ok()?.lines().for_each(&mut line);
            if is_last {
                return Some(());
            }
            buffer.copy_within(end..filled, 0);
            kept = filled - end;
        }
    }

    fn number(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        self.read(buffer)?.trim().parse().ok()
    }
}

/// The number after a key in lines of `key number`.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A group's counters at one moment. Times in seconds, totals since the group was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GroupReading {
    pub cpu_s: Option<f64>,
    pub cpu_user_s: Option<f64>,
    pub cpu_system_s: Option<f64>,
    pub periods: Option<u64>,
    pub throttled_periods: Option<u64>,
    pub throttled_s: Option<f64>,
    /// Memory charged to the group, without page cache.
    pub memory_bytes: Option<u64>,
    /// The most memory ever charged to the group, page cache included.
    pub peak_bytes: Option<u64>,
    /// Page cache, which can be reclaimed; shared memory does not count.
    pub cache_bytes: Option<u64>,
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    /// Time stalled for lack of CPU, memory and disk.
    pub pressure: Option<Pressure>,
    pub oom_kills: Option<u64>,
    pub block_read_bytes: Option<u64>,
    pub block_written_bytes: Option<u64>,
    pub tasks: Option<u64>,
    pub processes: Option<Vec<u32>>,
}

/// Memory files of a group: usage, peak, `memory.stat`, and the file with OOM kills.
#[derive(Debug)]
struct MemoryFiles {
    version: Version,
    usage: CachedFile,
    peak: CachedFile,
    stat: CachedFile,
    oom: CachedFile,
}

impl MemoryFiles {
    fn open(version: Version, dir: &Path) -> MemoryFiles {
        let (usage, peak, oom) = match version {
            Version::V1 => ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
            Version::V2 => ("memory.current", "memory.peak", "memory.events"),
        };
        let open = |file: &str| CachedFile::open(&dir.join(file));
        MemoryFiles {
            version,
            usage: open(usage),
            peak: open(peak),
            stat: open("memory.stat"),
            oom: open(oom),
        }
    }
}

/// Pressure (PSI) files of a v2 group or of the machine.
#[derive(Debug)]
pub(crate) struct PressureFiles([CachedFile; 3]);

impl PressureFiles {
    /// Opens `cpu.pressure` and so on in a group's folder; the files in `/proc/pressure` have no such suffix.
    pub fn open(dir: &Path, ending: &str) -> Option<PressureFiles> {
        let files =
            ["cpu", "memory", "io"].map(|what| CachedFile::open(&dir.join(format!("{what}{ending}"))));
        files.iter().any(|kept| kept.0.is_some()).then_some(PressureFiles(files))
    }

    /// `None` if the kernel has none of them.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Option<Pressure> {
        let [cpu_s, memory_s, io_s] = self.0.each_ref().map(|kept| some_s(kept.read(buffer)?));
        (cpu_s.is_some() || memory_s.is_some() || io_s.is_some()).then_some(Pressure {
            cpu_s,
            memory_s,
            io_s,
        })
    }
}

/// Seconds from the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`, whose total is in microseconds.
fn some_s(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse::<u64>().ok().map(|us| us as f64 / 1e6)
}

/// The processes of a group, then those of groups below it. Its counters include the latter, too.
#[derive(Debug)]
struct ProcessList {
    own: CachedFile,
    dir: PathBuf,
    /// Whether the folder's links count the folders in it.
    counts_folders: bool,
}

impl ProcessList {
    fn open(dir: &Path) -> ProcessList {
        // Others, such as lxcfs, which shows groups to containers, may always report two links.
        let counts_folders =
            rustix::fs::statfs(dir).is_ok_and(|system| OF_GROUPS.contains(&(system.f_type as u64)));
        ProcessList { own: CachedFile::open(&dir.join("cgroup.procs")), dir: dir.to_owned(), counts_folders }
    }

    /// `None` if the group is gone.
    fn read(&self, buffer: &mut Vec<u8>) -> Option<Vec<u32>> {
        let mut pids = pids_in(self.own.read(buffer)?);
        let mut below = self.groups_in(&self.dir);
        let is_alone = below.is_empty();
        for _ in 0..MOST_GROUPS {
            if pids.len() >= MOST_PROCESSES {
                break;
            }
            let Some(dir) = below.pop() else { break };
            // A threaded group has no list: its processes are in that of the group above. One that is gone has none.
            if let Some(text) = CachedFile::open(&dir.join("cgroup.procs")).read(buffer) {
                let room = MOST_PROCESSES - pids.len();
                pids.extend(pids_in(text).into_iter().take(room));
            }
            below.extend(self.groups_in(&dir));
        }
        if !is_alone {
            // One may have changed its group meanwhile.
            let mut seen = HashSet::new();
            pids.retain(|pid| seen.insert(*pid));
        }
        Some(pids)
    }

    /// The groups right below one.
    fn groups_in(&self, dir: &Path) -> Vec<PathBuf> {
        // A folder has two links, and one for each folder in it. Most groups have none, and listing their files takes
        // long.
        if self.counts_folders && fs::metadata(dir).is_ok_and(|folder| folder.nlink() == 2) {
            return Vec::new();
        }
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
    }
}

/// The pids in a list, one in each line.
fn pids_in(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A group's files, kept open.
#[derive(Debug)]
pub(crate) struct GroupReader {
    /// v1 `cpuacct.usage` (ns) and `cpuacct.stat` (ticks), or v2 `cpu.stat` (µs).
    cpu: Option<(Version, CachedFile, CachedFile)>,
    /// `cpu.stat`.
    throttle: Option<(Version, CachedFile)>,
    memory: Option<MemoryFiles>,
    pressure: Option<PressureFiles>,
    io: Option<(Version, CachedFile, StackedDisks)>,
    tasks: Option<CachedFile>,
    processes: Option<ProcessList>,
}

impl GroupReader {
    /// Opens the files that exist.
    pub fn open(cgroups: &[CgroupDir]) -> GroupReader {
        Self::open_with(cgroups, Path::new("/sys/block"))
    }

    /// As [`GroupReader::open`], with the machine's disks in this folder.
    fn open_with(cgroups: &[CgroupDir], sys_block: &Path) -> GroupReader {
        let at = |controller| cgroup_of(cgroups, controller).map(|p| (p.version, p.dir.as_path()));
        GroupReader {
            cpu: at(Controller::Cpuacct).map(|(version, dir)| match version {
                Version::V1 => (
                    version,
                    CachedFile::open(&dir.join("cpuacct.usage")),
                    CachedFile::open(&dir.join("cpuacct.stat")),
                ),
                Version::V2 => (version, CachedFile(None), CachedFile::open(&dir.join("cpu.stat"))),
            }),
            throttle: at(Controller::Cpu)
                .map(|(version, dir)| (version, CachedFile::open(&dir.join("cpu.stat")))),
            memory: at(Controller::Memory).map(|(version, dir)| MemoryFiles::open(version, dir)),
            // Every v2 group has it, whatever its controllers.
            pressure: cgroups
                .iter()
                .find(|p| p.version == Version::V2)
                .and_then(|p| PressureFiles::open(&p.dir, ".pressure")),
            io: at(Controller::Io).map(|(version, dir)| {
                let file = match version {
                    Version::V1 => "blkio.throttle.io_service_bytes",
                    Version::V2 => "io.stat",
                };
                (version, CachedFile::open(&dir.join(file)), StackedDisks::of(sys_block))
            }),
            tasks: at(Controller::Pids).map(|(_, dir)| CachedFile::open(&dir.join("pids.current"))),
            // Every cgroup lists the same processes; v2's folder, if there is one, is always present.
            processes: cgroups.last().map(|p| ProcessList::open(&p.dir)),
        }
    }

    /// Leaves out the list of processes and pressure, for callers that do not need them.
    pub fn without_processes(self) -> GroupReader {
        GroupReader { processes: None, pressure: None, ..self }
    }

    /// Reads all counters.
    pub fn read(&self, buffer: &mut Vec<u8>) -> GroupReading {
        let mut r = GroupReading::default();
        if let Some((version, usage, stat)) = &self.cpu {
            match version {
                Version::V1 => {
                    r.cpu_s = usage.number(buffer).map(|ns| ns as f64 / 1e9);
                    if let Some(text) = stat.read(buffer) {
                        let ticks = rustix::param::clock_ticks_per_second() as f64;
                        r.cpu_user_s = keyed(text, "user").map(|t| t as f64 / ticks);
                        r.cpu_system_s = keyed(text, "system").map(|t| t as f64 / ticks);
                    }
                }
                Version::V2 => {
                    if let Some(text) = stat.read(buffer) {
                        let seconds = |key| keyed(text, key).map(|us| us as f64 / 1e6);
                        r.cpu_s = seconds("usage_usec");
                        r.cpu_user_s = seconds("user_usec");
                        r.cpu_system_s = seconds("system_usec");
                    }
                }
            }
        }
        if let Some((version, stat)) = &self.throttle
            && let Some(text) = stat.read(buffer)
        {
            r.periods = keyed(text, "nr_periods");
            r.throttled_periods = keyed(text, "nr_throttled");
            r.throttled_s = match version {
                Version::V1 => keyed(text, "throttled_time").map(|ns| ns as f64 / 1e9),
                Version::V2 => keyed(text, "throttled_usec").map(|us| us as f64 / 1e6),
            };
        }
        self.read_memory(&mut r, buffer);
        r.pressure = self.pressure.as_ref().and_then(|files| files.read(buffer));
        if let Some((version, io, stacked)) = &self.io
            && let Some(text) = io.read(buffer)
        {
            let [read, written] = match version {
                Version::V1 => v1_io_bytes(text),
                Version::V2 => v2_io_bytes(text),
            };
            r.block_read_bytes = Some(stacked.total(&read));
            r.block_written_bytes = Some(stacked.total(&written));
        }
        r.tasks = self.tasks.as_ref().and_then(|kept| kept.number(buffer));
        r.processes = self.processes.as_ref().and_then(|kept| kept.read(buffer));
        r
    }

    fn read_memory(&self, r: &mut GroupReading, buffer: &mut Vec<u8>) {
        let Some(MemoryFiles { version, usage, peak, stat, oom }) = &self.memory else { return };
        let usage = usage.number(buffer);
        r.peak_bytes = peak.number(buffer);
        if let Some(text) = stat.read(buffer) {
            // v1 has the group's own numbers and, with `total_`, those that include all groups below; `usage` includes
            // all groups below.
            let [inactive, active, major, all] = match version {
                Version::V1 => {
                    ["total_inactive_file", "total_active_file", "total_pgmajfault", "total_pgfault"]
                }
                Version::V2 => ["inactive_file", "active_file", "pgmajfault", "pgfault"],
            };
            // The kernel counts shared memory as cache, which cannot be reclaimed: it is on the anonymous lists, and
            // counts as memory here.
            let lists = keyed(text, inactive).zip(keyed(text, active));
            r.cache_bytes = lists.map(|(inactive, active)| inactive + active);
            r.memory_bytes = usage.map(|bytes| bytes.saturating_sub(r.cache_bytes.unwrap_or(0)));
            r.major_faults = keyed(text, major);
            // The kernel's total includes major faults.
            let all = keyed(text, all);
            r.minor_faults = all.zip(r.major_faults).map(|(all, major)| all.saturating_sub(major));
        }
        r.oom_kills = oom.read(buffer).and_then(|text| keyed(text, "oom_kill"));
    }
}

/// Bytes of each disk, given as `MAJOR:MINOR`.
type OfDisks<'a> = Vec<(&'a str, u64)>;

/// Bytes read and written, from lines such as `254:0 Read 4096`.
fn v1_io_bytes(text: &str) -> [OfDisks<'_>; 2] {
    ["Read", "Write"].map(|what| {
        let fields = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let of_disks = fields.filter(|f| f.len() == 3 && f[1] == what);
        of_disks.filter_map(|f| Some((f[0], f[2].parse().ok()?))).collect()
    })
}

/// Bytes read and written, from lines such as `254:0 rbytes=4096 wbytes=0 rios=…`.
fn v2_io_bytes(text: &str) -> [OfDisks<'_>; 2] {
    ["rbytes=", "wbytes="].map(|key| {
        let of_disks = text.lines().filter_map(|line| {
            let words = || line.split_ascii_whitespace();
            // Some kernels begin a line with disks that have nothing to report.
            let disk = words().take_while(|word| !word.contains('=')).last()?;
            Some((disk, words().find_map(|word| word.strip_prefix(key)?.parse().ok())?))
        });
        of_disks.collect()
    })
}

/// Disks that others are made of, as with LVM, RAID and encryption, each with the ones made of it. What goes to the
/// latter counts again at each disk below, as far as the kernel still knows whose it is: of encrypted writes it does
/// not.
#[derive(Debug, Default)]
struct StackedDisks(HashMap<String, Vec<String>>);

impl StackedDisks {
    fn of(sys_block: &Path) -> StackedDisks {
        let in_dir = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
        let mut stacked = StackedDisks::default();
        for above in in_dir(sys_block) {
            let Some(name) = number_of(&above) else { continue };
            for below in in_dir(&above.join("slaves")) {
                // Groups count disks, not their parts. The folder is a link to the disk's, or into it.
                let of_part = below.join("partition").exists().then(|| below.join(".."));
                if let Some(below) = number_of(&of_part.unwrap_or(below)) {
                    stacked.0.entry(below).or_default().push(name.clone());
                }
            }
        }
        stacked
    }

    /// The sum of all disks; what went to one by way of another counts once.
    fn total(&self, disks: &[(&str, u64)]) -> u64 {
        let own = |disk: &str, bytes: u64| {
            let above = self.0.get(disk).map_or(&[][..], Vec::as_slice);
            let of_above = disks.iter().filter(|(name, _)| above.iter().any(|above| above == name));
            bytes.saturating_sub(of_above.map(|(_, bytes)| bytes).sum::<u64>())
        };
        disks.iter().map(|(disk, bytes)| own(disk, *bytes)).sum()
    }
}

/// `MAJOR:MINOR` of a disk, given by its folder.
fn number_of(disk: &Path) -> Option<String> {
    Some(fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::fake;
    use super::*;

    #[test]
    fn a_long_file_is_read_line_by_line_in_little_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tcp");
        for lines in [0, 1, 2, 20, 27, 28, 29, 5000] {
            let text: String = (0..lines).map(|i| format!("{i:>149}\n")).collect();
            for text in [text.as_str(), text.trim_end()] {
                std::fs::write(&path, text).unwrap();
                let (mut buffer, mut found) = (Vec::new(), Vec::new());
                let read =
                    CachedFile::open(&path).for_each_line(&mut buffer, |line| found.push(line.to_owned()));
                assert_eq!((read, found), (Some(()), text.lines().map(str::to_owned).collect()), "{lines}");
                assert!(buffer.len() <= 16 << 10, "{}", buffer.len());
            }
        }
        std::fs::write(&path, b"a\n\xff\n").unwrap();
        assert_eq!(CachedFile::open(&path).for_each_line(&mut Vec::new(), |_| ()), None);
        assert_eq!(CachedFile::open(&dir.path().join("none")).for_each_line(&mut Vec::new(), |_| ()), None);
    }

    #[test]
    fn keys_are_whole_words() {
        let text = "oom 3\noom_kill 2\ntotal_cache 9\n";
        assert_eq!(keyed(text, "oom"), Some(3));
        assert_eq!(keyed(text, "oom_kill"), Some(2));
        assert_eq!(keyed(text, "cache"), None);
        assert_eq!(keyed(text, "kill"), None);
    }

    #[test]
    fn a_v2_group_is_read() {
        let root = fake(&[
            (
                "g/cpu.stat",
                "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 30\nnr_throttled 12\n\
                 throttled_usec 750000\n",
            ),
            ("g/memory.current", "1000000\n"),
            ("g/memory.peak", "1200000\n"),
            (
                "g/cpu.pressure",
                "some avg10=1.00 avg60=0.10 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n",
            ),
            ("g/io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n"),
            (
                "g/memory.stat",
                "anon 600000\nfile 300000\nshmem 0\ninactive_file 200000\nactive_file 100000\npgfault 100\npgmajfault 10\n",
            ),
            ("g/memory.events", "oom 1\noom_kill 1\n"),
            (
                "g/io.stat",
                "254:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:0 rbytes=1 wbytes=2 rios=1 wios=1\n",
            ),
            ("g/pids.current", "7\n"),
            ("g/cgroup.procs", "12\n34\n"),
        ]);
        let cgroup = CgroupDir {
            version: Version::V2,
            controllers: Controller::ALL.to_vec(),
            dir: root.path().join("g"),
        };
        assert_eq!(
            GroupReader::open_with(&[cgroup], &root.path().join("block")).read(&mut Vec::new()),
            GroupReading {
                cpu_s: Some(2.5),
                cpu_user_s: Some(2.0),
                cpu_system_s: Some(0.5),
                periods: Some(30),
                throttled_periods: Some(12),
                throttled_s: Some(0.75),
                memory_bytes: Some(700_000),
                peak_bytes: Some(1_200_000),
                cache_bytes: Some(300_000),
                minor_faults: Some(90),
                major_faults: Some(10),
                pressure: Some(Pressure { cpu_s: Some(1.5), memory_s: None, io_s: Some(0.25) }),
                oom_kills: Some(1),
                block_read_bytes: Some(11),
                block_written_bytes: Some(22),
                tasks: Some(7),
                processes: Some(vec![12, 34]),
            }
        );
    }

    #[test]
    fn a_v1_group_is_read_from_several_hierarchies() {
        let root = fake(&[
            ("cpuacct/cpuacct.usage", "1500000000\n"),
            ("cpuacct/cpuacct.stat", "user 100\nsystem 50\n"),
            ("cpu/cpu.stat", "nr_periods 30\nnr_throttled 4\nthrottled_time 250000000\n"),
            ("memory/memory.usage_in_bytes", "5000\n"),
            ("memory/memory.max_usage_in_bytes", "6000\n"),
            (
                "memory/memory.stat",
                "inactive_file 1\nactive_file 1\ntotal_cache 900\ntotal_inactive_file 600\ntotal_active_file 200\n\
                 total_pgfault 4\ntotal_pgmajfault 1\n",
            ),
            ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            (
                "blkio/blkio.throttle.io_service_bytes",
                "254:0 Read 40\n254:0 Write 80\n254:0 Total 120\nTotal 120\n",
            ),
        ]);
        let cgroup = |controller: Controller| CgroupDir {
            version: Version::V1,
            controllers: vec![controller],
            dir: root.path().join(controller.v1_name()),
        };
        let all = Controller::ALL.map(cgroup);
        assert_eq!(
            GroupReader::open_with(&all, &root.path().join("block")).read(&mut Vec::new()),
            GroupReading {
                cpu_s: Some(1.5),
                cpu_user_s: Some(1.0),
                cpu_system_s: Some(0.5),
                periods: Some(30),
                throttled_periods: Some(4),
                throttled_s: Some(0.25),
                memory_bytes: Some(4200),
                peak_bytes: Some(6000),
                cache_bytes: Some(800),
                minor_faults: Some(3),
                major_faults: Some(1),
                pressure: None,
                oom_kills: Some(3),
                block_read_bytes: Some(40),
                block_written_bytes: Some(80),
                tasks: None,
                processes: None,
            }
        );
    }

    #[test]
    fn what_goes_through_several_disks_counts_once() {
        // An encrypted volume (253:1) on one of LVM (253:0), on a part of a disk that has another part with files.
        let root = fake(&[
            ("disks/sda/dev", "8:0\n"),
            ("disks/sda/sda2/dev", "8:2\n"),
            ("disks/sda/sda2/partition", "2\n"),
            ("disks/dm-0/dev", "253:0\n"),
            ("disks/dm-1/dev", "253:1\n"),
            ("disks/dm-0/slaves/none", ""),
            ("disks/dm-1/slaves/none", ""),
            ("block/loop0/dev", "7:0\n"),
        ]);
        let link = |at: &str, to: &str| {
            std::os::unix::fs::symlink(root.path().join("disks").join(to), root.path().join(at)).unwrap();
        };
        for disk in ["sda", "dm-0", "dm-1"] {
            link(&format!("block/{disk}"), disk);
        }
        link("disks/dm-0/slaves/sda2", "sda/sda2");
        link("disks/dm-1/slaves/dm-0", "dm-0");
        let stacked = StackedDisks::of(&root.path().join("block"));
        for (sda, lvm, encrypted, expect) in [
            (100, 0, 0, 100),
            (100, 100, 0, 100),
            (100, 100, 100, 100),
            (107, 100, 70, 107),
            // Nobody knows whose the encrypted bytes are.
            (7, 0, 70, 77),
            (0, 0, 0, 0),
        ] {
            let disks = [("8:0", sda), ("253:0", lvm), ("253:1", encrypted), ("7:0", 1000)];
            assert_eq!(stacked.total(&disks), 1000 + expect, "{sda} {lvm} {encrypted}");
        }
        let v1 = "253:0 Read 40\n253:0 Write 80\n253:0 Total 120\n8:0 Read 40\n8:0 Write 81\nTotal 241\n";
        let v2 = "7:0 253:0 rbytes=40 wbytes=80 rios=1\n8:0 rbytes=40 wbytes=81 rios=1\n8:16 \n";
        for disks in [v1_io_bytes(v1), v2_io_bytes(v2)] {
            assert_eq!(disks.map(|bytes| stacked.total(&bytes)), [40, 81]);
        }
    }

    #[test]
    fn processes_of_groups_below_count() {
        let root = fake(&[
            ("g/cgroup.procs", "90\n80\n"),
            ("g/init.scope/cgroup.procs", "7\n"),
            ("g/system.slice/cgroup.procs", ""),
            ("g/system.slice/web.service/cgroup.procs", "12\n34\n"),
            // They moved while the lists were read.
            ("g/system.slice/db.service/cgroup.procs", "12\n80\n"),
            // A threaded group's list cannot be read, as little as this text.
            ("g/threads/cgroup.procs", ""),
        ]);
        let dir = root.path().join("g");
        std::fs::write(dir.join("threads/cgroup.procs"), b"\xff").unwrap();
        let cgroup = CgroupDir { version: Version::V2, controllers: Vec::new(), dir: dir.clone() };
        let reader = GroupReader::open(std::slice::from_ref(&cgroup));
        let processes = || reader.read(&mut Vec::new()).processes.unwrap_or_default();
        // Those of the group itself come first; the order of the others is that of folders on a disk.
        let mut found = processes();
        assert_eq!(found[..2], [90, 80]);
        found.sort_unstable();
        assert_eq!(found, [7, 12, 34, 80, 90]);
        // More groups than are read.
        for i in 0..=MOST_GROUPS {
            std::fs::create_dir(dir.join(format!("{i}"))).unwrap();
            std::fs::write(dir.join(format!("{i}/cgroup.procs")), format!("{}\n", 1000 + i)).unwrap();
        }
        let found = processes();
        assert!(found.len() > 100 && found.len() <= MOST_GROUPS + 4, "{}", found.len());
        // The group itself is gone.
        std::fs::remove_file(dir.join("cgroup.procs")).unwrap();
        assert_eq!(GroupReader::open(&[cgroup]).read(&mut Vec::new()).processes, None);
    }

    #[test]
    fn no_more_groups_below_are_read_than_it_takes_for_many_processes() {
        let many: String = (1..=2 * MOST_PROCESSES).map(|pid| format!("{pid}\n")).collect();
        for (own, below, expect) in [
            ("1\n", many.as_str(), MOST_PROCESSES),
            (many.as_str(), "5000\n", 2 * MOST_PROCESSES),
            ("1\n", "2\n", 2),
        ] {
            let root = fake(&[("g/cgroup.procs", own), ("g/a/cgroup.procs", below)]);
            let dir = root.path().join("g");
            let cgroup = CgroupDir { version: Version::V2, controllers: Vec::new(), dir };
            let found = GroupReader::open(&[cgroup]).read(&mut Vec::new()).processes.unwrap_or_default();
            assert!(found.len() <= expect && found.len() + 1 >= expect, "{} {expect}", found.len());
        }
    }

    #[test]
    fn a_long_file_is_read_whole() {
        let pids: String = (1..20_000).map(|pid| format!("{pid}\n")).collect();
        let root = fake(&[("procs", &pids)]);
        let mut buffer = Vec::new();
        assert_eq!(CachedFile::open(&root.path().join("procs")).read(&mut buffer), Some(pids.as_str()));
    }
}
