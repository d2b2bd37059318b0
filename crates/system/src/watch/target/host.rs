//! The machine's own counters.

use std::path::Path;

use loadlab_record::watch::sample::Sample;

use crate::cgroup::read::{CachedFile, PressureFiles, keyed};
use crate::watch::net::NetReader;

/// Files of the machine, kept open.
#[derive(Debug)]
pub(super) struct HostFiles {
    stat: CachedFile,
    memory: CachedFile,
    events: CachedFile,
    loads: CachedFile,
    open_files: CachedFile,
    net: NetReader,
    pressure: Option<PressureFiles>,
}

impl HostFiles {
    pub(super) fn open() -> HostFiles {
        let open = |path: &str| CachedFile::open(Path::new(path));
        HostFiles {
            stat: open("/proc/stat"),
            memory: open("/proc/meminfo"),
            events: open("/proc/vmstat"),
            loads: open("/proc/loadavg"),
            open_files: open("/proc/sys/fs/file-nr"),
            net: NetReader::open(Path::new("/proc/self/net")),
            pressure: PressureFiles::open(Path::new("/proc/pressure"), ""),
        }
    }

    /// Reads the counters into a sample; `None` if nothing can be read.
    pub(super) fn read(&self, sample: &mut Sample, buffer: &mut Vec<u8>) -> Option<()> {
        if let Some((user_s, system_s)) = self.stat.read(buffer).and_then(host_cpu_s) {
            (sample.cpu_user_s, sample.cpu_system_s) = (Some(user_s), Some(system_s));
            sample.cpu_s = Some(user_s + system_s);
        }
        if let Some(text) = self.memory.read(buffer) {
            let total = kib(text, "MemTotal:");
            sample.memory_bytes = total.zip(kib(text, "MemAvailable:")).map(|(t, a)| t.saturating_sub(a));
            sample.cache_bytes = kib(text, "Cached:");
            sample.memory_limit_bytes = total;
        }
        if let Some(text) = self.events.read(buffer) {
            sample.block_read_bytes = keyed(text, "pgpgin").map(|kib| kib * 1024);
            sample.block_written_bytes = keyed(text, "pgpgout").map(|kib| kib * 1024);
            sample.oom_kills = keyed(text, "oom_kill");
            sample.major_faults = keyed(text, "pgmajfault");
            let all = keyed(text, "pgfault");
            sample.minor_faults = all.zip(sample.major_faults).map(|(all, major)| all.saturating_sub(major));
        }
        sample.tcp = self.net.tcp(buffer);
        (sample.net_in_bytes, sample.net_out_bytes) = self.net.link_bytes(buffer).unzip();
        sample.pressure = self.pressure.as_ref().and_then(|p| p.read(buffer));
        let loads = self.loads.read(buffer).unwrap_or_default();
        sample.load_average = loads.split(' ').next().and_then(|n| n.parse().ok());
        sample.pids = loads.split(['/', ' ']).nth(4).and_then(|n| n.parse().ok());
        let open = self.open_files.read(buffer).unwrap_or_default();
        sample.open_files = open.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
        sample.cpu_s.or(sample.memory_bytes.map(|b| b as f64)).map(drop)
    }
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
}
