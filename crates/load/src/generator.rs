//! What the generator itself used and waited for, from the kernel's own accounts.

use loadlab_record::summary::Generator;

/// CPU time and run-queue delay of the calling thread so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadUse {
    /// User and system time, nanoseconds.
    pub cpu_ns: u64,
    /// Time ready to run and waiting for a core; `None` where the kernel does not tell.
    pub run_delay_ns: Option<u64>,
}

impl ThreadUse {
    /// Of the calling thread, since it began.
    pub fn now() -> ThreadUse {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        ThreadUse { cpu_ns, run_delay_ns: run_delay_ns() }
    }

    /// What was used since an earlier reading.
    pub fn since(self, before: ThreadUse) -> ThreadUse {
        ThreadUse {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            run_delay_ns: self.run_delay_ns.zip(before.run_delay_ns).map(|(a, b)| a.saturating_sub(b)),
        }
    }
}

/// Second field of schedstat (Documentation/scheduler/sched-stats.rst).
fn run_delay_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Resident memory of this process now.
pub fn rss_bytes() -> u64 {
    status_kib("VmRSS:") * 1024
}

/// Peak resident memory of this process.
pub fn peak_rss_bytes() -> u64 {
    status_kib("VmHWM:") * 1024
}

/// A field of `/proc/self/status` in KiB; 0 where there is none.
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Time the calling process' own cgroup has been stopped by a CPU limit, nanoseconds since its creation;
/// `None` where it has none or the kernel does not tell.
pub fn throttled_ns() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (file, field, unit) = if controllers.split(',').any(|c| c == "cpu") {
            (format!("/sys/fs/cgroup/{controllers}{path}/cpu.stat"), "throttled_time ", 1)
        } else if controllers.is_empty() {
            (format!("/sys/fs/cgroup{path}/cpu.stat"), "throttled_usec ", 1000)
        } else {
            continue;
        };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(value) = text.lines().find_map(|l| l.strip_prefix(field)?.parse::<u64>().ok()) {
            return Some(value * unit);
        }
    }
    None
}

/// Puts the uses of all load threads together.
pub fn sum(io: &str, cpus: &[usize], uses: &[ThreadUse], throttled_ns: Option<u64>, peak: u64) -> Generator {
    let delays: Option<Vec<u64>> = uses.iter().map(|u| u.run_delay_ns).collect();
    Generator {
        io: io.to_owned(),
        threads: uses.len() as u64,
        cpus: cpus.iter().map(|c| *c as u64).collect(),
        cpu_s: uses.iter().map(|u| u.cpu_ns as f64 / 1e9).sum(),
        run_delay_s: delays.map(|d| d.iter().map(|ns| *ns as f64 / 1e9).sum()),
        throttled_s: throttled_ns.map(|ns| ns as f64 / 1e9),
        peak_rss_bytes: peak_rss_bytes(),
        connections_peak: peak,
    }
}
