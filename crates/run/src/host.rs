//! Facts about the machine and this process, for the manifest.

use loadlab_record::documents::manifest::{Host, Writer};
use loadlab_record::text::time;
use loadlab_system::ProcessId;

/// The machine, as far as it can be determined.
pub fn host(cgroup: &str) -> Host {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name));
        line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned()).unwrap_or_default()
    };
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal");
    let memory_kib = memory_kib.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    Host {
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        cpu: field(&read("/proc/cpuinfo"), "model name"),
        cores: cores(),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .trim()
            .to_owned(),
        cgroup: cgroup.to_owned(),
    }
}

/// Number of cores that this process may use.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

/// Number of online cores of the machine, which may be more; `None` if that cannot be read.
pub fn machine_cores() -> Option<u64> {
    online_in(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Counts the per-core lines of `/proc/stat`; the first line is their sum.
fn online_in(stat: &str) -> Option<u64> {
    let is_core = |line: &&str| {
        let number = line.strip_prefix("cpu").and_then(|rest| rest.chars().next());
        number.is_some_and(|c| c.is_ascii_digit())
    };
    Some(stat.lines().filter(is_core).count() as u64).filter(|cores| *cores > 0)
}

/// This process, for the manifest.
pub fn writer() -> Writer {
    let own = ProcessId::own();
    Writer { pid: own.pid, start_ticks: own.start_ticks }
}

/// The wall-clock time in UTC, RFC 3339.
pub fn rfc3339_now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    time::rfc3339(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_the_machine_are_those_that_its_counters_sum_up() {
        for (stat, expect) in [
            ("cpu  9 0 9 9\ncpu0 3 0 3 3\ncpu2 3 0 3 3\ncpu13 3 0 3 3\nintr 5\n", Some(3)),
            ("cpu  9 0 9 9\nintr 5\n", None),
            ("", None),
        ] {
            assert_eq!(online_in(stat), expect, "{stat}");
        }
        assert!(machine_cores().is_some_and(|all| all >= 1));
    }
}
