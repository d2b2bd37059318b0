//! What the generator itself used and waited for, from the kernel's own accounting; and two settings of this process
//! that keep the load undisturbed.

#![expect(unsafe_code, reason = "sched_setattr and its like, and mallopt, which no safe wrapper has")]

use loadlab_record::documents::summary::Generator;

/// CPU time and run-queue delay of the calling thread so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUse {
    /// User and system time, nanoseconds.
    pub cpu_ns: u64,
    /// Time spent runnable, waiting for a core; `None` where the kernel does not report it.
    pub run_delay_ns: Option<u64>,
    /// How often it got a core; `None` where the kernel does not report it.
    pub time_slices: Option<u64>,
}

impl ThreadUse {
    /// Usage of the calling thread since it began.
    pub fn now() -> ThreadUse {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        let (run_delay_ns, time_slices) = run_delay().unzip();
        ThreadUse { cpu_ns, run_delay_ns, time_slices }
    }

    /// What was used since an earlier reading.
    pub fn since(self, before: ThreadUse) -> ThreadUse {
        let since = |now: Option<u64>, then: Option<u64>| now.zip(then).map(|(a, b)| a.saturating_sub(b));
        ThreadUse {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            run_delay_ns: since(self.run_delay_ns, before.run_delay_ns),
            time_slices: since(self.time_slices, before.time_slices),
        }
    }
}

/// Second and third field of schedstat: time on a run queue, and the number of timeslices run
/// (Documentation/scheduler/sched-stats.rst).
fn run_delay() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().skip(1).map(|f| f.parse().ok());
    Some((fields.next()??, fields.next()??))
}

/// How long this machine has been suspended since it booted: a range, since two clocks cannot be read at one instant.
///
/// `CLOCK_BOOTTIME` counts while the machine is suspended, `CLOCK_MONOTONIC` does not. A thread may lose its core
/// between the two readings, for longer than many suspensions last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspended {
    least_ns: u64,
    most_ns: u64,
}

impl Suspended {
    /// Suspension so far, from the least interrupted of a few readings.
    pub fn now() -> Suspended {
        use rustix::time::{ClockId, clock_gettime};
        let ns = |id| {
            let t = clock_gettime(id);
            t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
        };
        Self::of_readings(|| [ns(ClockId::Monotonic), ns(ClockId::Boottime), ns(ClockId::Monotonic)])
    }

    /// From readings of three clock values each: without suspensions, with them, and without them again.
    fn of_readings(mut read: impl FnMut() -> [u64; 3]) -> Suspended {
        let mut range = || {
            let [before_ns, boot_ns, after_ns] = read();
            Suspended {
                least_ns: boot_ns.saturating_sub(after_ns),
                most_ns: boot_ns.saturating_sub(before_ns),
            }
        };
        let mut narrowest = range();
        for _ in 1..READINGS {
            let next = range();
            if next.most_ns - next.least_ns < narrowest.most_ns - narrowest.least_ns {
                narrowest = next;
            }
        }
        narrowest
    }

    /// Nanoseconds of suspension since an earlier reading, at least.
    pub fn since_ns(self, before: Suspended) -> u64 {
        self.least_ns.saturating_sub(before.most_ns)
    }
}

/// Readings of the clocks, of which the best is used.
const READINGS: usize = 5;

/// Current resident memory of this process.
pub fn rss_bytes() -> u64 {
    status_kib("VmRSS:") * 1024
}

/// Peak resident memory of this process.
pub fn peak_rss_bytes() -> u64 {
    status_kib("VmHWM:") * 1024
}

/// A field of `/proc/self/status` in KiB; 0 if missing.
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// How long a CPU limit has throttled this process's own cgroup and each of its ancestors, in nanoseconds since the
/// group's creation, innermost first; empty if there are none or the kernel does not report it. The limit may belong to
/// a whole container or session, and inner groups do not count its throttling.
pub fn throttled_ns() -> Vec<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of = |stat: CpuStat| {
        let text = std::fs::read_to_string(stat.path).ok()?;
        let value = text.lines().find_map(|l| l.strip_prefix(stat.field)?.parse::<u64>().ok())?;
        Some(value * stat.unit_ns)
    };
    cpu_stats(&groups).into_iter().filter_map(of).collect()
}

/// The largest increase in any one group; `None` if nothing is known.
pub fn throttled_since(before: &[u64]) -> Option<u64> {
    let now = throttled_ns();
    // A process that was moved in between has other groups around it, with other counts.
    (now.len() == before.len()).then(|| now.iter().zip(before).map(|(a, b)| a.saturating_sub(*b)).max())?
}

/// Where a group reports throttling.
#[derive(Debug)]
struct CpuStat {
    /// Path of its `cpu.stat`.
    path: String,
    /// What the line begins with.
    field: &'static str,
    /// The field's unit in nanoseconds.
    unit_ns: u64,
}

/// Files that report throttling, from the process's own group to the outermost. `groups` is `/proc/self/cgroup`
/// (cgroups(7)).
fn cpu_stats(groups: &str) -> Vec<CpuStat> {
    let mut parts = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let v1 = parts.clone().find(|(controllers, _)| controllers.split(',').any(|c| c == "cpu"));
    let (root, own, field, unit_ns) = match (v1, parts.find(|(controllers, _)| controllers.is_empty())) {
        (Some((controllers, path)), _) => {
            (format!("/sys/fs/cgroup/{controllers}"), path, "throttled_time ", 1)
        }
        (None, Some((_, path))) => ("/sys/fs/cgroup".to_owned(), path, "throttled_usec ", 1000),
        (None, None) => return Vec::new(),
    };
    let path = |dir: &std::path::Path| format!("{root}{}/cpu.stat", dir.display()).replace("//", "/");
    let around = std::path::Path::new(own).ancestors();
    around.map(|dir| CpuStat { path: path(dir), field, unit_ns }).collect()
}

/// Sums the usage of all load threads. Some may have no share of the load, so the busiest one is reported as well.
pub fn sum(io: &str, cpus: &[usize], uses: &[ThreadUse], throttled_ns: Option<u64>) -> Generator {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let delays: Option<Vec<u64>> = uses.iter().map(|u| u.run_delay_ns).collect();
    let slices: Option<Vec<u64>> = uses.iter().map(|u| u.time_slices).collect();
    Generator {
        io: io.to_owned(),
        threads: uses.len() as u64,
        cpus: cpus.iter().map(|c| *c as u64).collect(),
        cpu_s: uses.iter().map(|u| seconds(u.cpu_ns)).sum(),
        busiest_cpu_s: uses.iter().map(|u| u.cpu_ns).max().map(seconds),
        longest_run_delay_s: delays.as_ref().and_then(|d| d.iter().copied().max()).map(seconds),
        run_delay_s: delays.map(|d| d.into_iter().map(seconds).sum()),
        time_slices: slices.map(|s| s.iter().sum()),
        throttled_s: throttled_ns.map(seconds),
        peak_rss_bytes: peak_rss_bytes(),
        ..Generator::default()
    }
}

/// Lets the calling thread preempt another on its core as soon as it wakes: Linux (6.12 and later) preempts in favour
/// of a shorter slice. Where this is not permitted or not supported, nothing changes.
pub fn short_slices() {
    /// `struct sched_attr` of `<linux/sched/types.h>`, in its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    // SAFETY: both take numbers and touch no memory; 0 is the calling thread.
    let (policy, nice) = unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
    if policy != libc::SCHED_OTHER {
        // Already configured.
        return;
    }
    let attributes = Attributes {
        size: std::mem::size_of::<Attributes>() as u32,
        policy: 0,
        flags: 0,
        nice,
        priority: 0,
        runtime_ns: SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a structure in this frame; 0 is the calling thread.
    unsafe {
        let (thread, flags): (libc::c_long, libc::c_ulong) = (0, 0);
        libc::syscall(libc::SYS_sched_setattr, thread, std::ptr::addr_of!(attributes), flags)
    };
}

/// Makes glibc map large blocks separately: their pages stay untouched until used, and are returned when freed.
/// Otherwise, as soon as one has been freed, glibc starts to carve them from its heap and zeroes them: each histogram,
/// of which only a few pages are used, would take its whole 288 KiB. Applies to the whole process, so call it first.
pub fn large_blocks_apart() {
    // SAFETY: takes two numbers, and leaves existing allocations as they are.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
    }
}

/// The block size from which glibc maps separately: its initial default.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: libc::c_int = 128 * 1024;

/// The shortest slice the kernel accepts.
const SLICE_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_loses_its_core_between_two_clocks_is_no_suspension() {
        // Clock values of the readings, in turn; all five must be taken.
        let read = |times: &[[u64; 3]; READINGS]| {
            let mut times = times.iter();
            let got = Suspended::of_readings(|| *times.next().expect("no more readings than these"));
            assert_eq!(times.next(), None);
            got
        };
        let quick = [[1_000, 1_010, 1_020]; READINGS];
        let before = read(&quick);
        assert_eq!(before, Suspended { least_ns: 0, most_ns: 10 });
        // interrupted in each reading, on either side of the middle
        let late = 4_000_000;
        let (first, second) = ([2_000, 2_010 + late, 2_020 + late], [2_000, 2_010, 2_020 + late]);
        assert_eq!(read(&[first; READINGS]).since_ns(before), 0);
        assert_eq!(read(&[second; READINGS]).since_ns(before), 0);
        // one reading was not interrupted
        let mut mixed = [first; READINGS];
        mixed[3] = [9_000, 9_010 + 7_000, 9_020];
        assert_eq!(read(&mixed), Suspended { least_ns: 6_990, most_ns: 7_010 });
        // a suspension counts, however slow the readings are
        let slept = 50_000_000;
        let after = [first[0], first[1] + slept, first[2]];
        assert_eq!(read(&[after; READINGS]).since_ns(before), slept - 10 - 10);
        assert_eq!(before.since_ns(read(&[after; READINGS])), 0);
    }

    #[test]
    fn a_busy_thread_is_not_hidden_by_those_without_a_share() {
        let used = |cpu_ns: u64, run_delay_ns: u64| ThreadUse {
            cpu_ns,
            run_delay_ns: Some(run_delay_ns),
            time_slices: Some(10),
        };
        let uses = [used(1_000, 0), used(9_500_000_000, 400_000_000), used(2_000, 0), used(1_000, 0)];
        let generator = sum("sim", &[], &uses, None);
        assert_eq!((generator.threads, generator.time_slices), (4, Some(40)));
        assert_eq!((generator.busiest_s(), generator.longest_delay_s()), (Some(9.5), Some(0.4)));
        // Where the kernel reports no waits, there is no longest one.
        let unknown = ThreadUse { run_delay_ns: None, ..used(1_000, 0) };
        assert_eq!(sum("sim", &[], &[uses[1], unknown], None).longest_run_delay_s, None);
    }

    #[test]
    fn groups_around_this_process_by_version() {
        let check = |groups: &str, expect: &[&str], unit: u64| {
            let got = cpu_stats(groups);
            assert_eq!(got.iter().map(|stat| stat.path.as_str()).collect::<Vec<_>>(), expect);
            assert!(got.iter().all(|stat| stat.unit_ns == unit), "{got:?}");
        };
        let own = "/sys/fs/cgroup/a/b/cpu.stat";
        check("0::/a/b\n", &[own, "/sys/fs/cgroup/a/cpu.stat", "/sys/fs/cgroup/cpu.stat"], 1000);
        let hybrid = "9:cpuset:/x\n4:cpu,cpuacct:/a\n1:name=systemd:/y\n0::/z\n";
        let outer = "/sys/fs/cgroup/cpu,cpuacct/cpu.stat";
        check(hybrid, &["/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat", outer], 1);
        check("1:name=systemd:/y\n", &[], 1);
        check("", &[], 1);
    }
}
