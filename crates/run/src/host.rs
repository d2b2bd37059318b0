//! Facts about the machine for the manifest, and small things the conductor needs.

use loadlab_record::expr::{Expr, ExprError};
use loadlab_record::manifest::{Host, Writer};
use loadlab_record::time;
use loadlab_system::ProcessId;

/// The machine, as far as can be determined.
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

/// Cores that this process may use.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

/// This process, for the manifest.
pub fn writer() -> Writer {
    let own = ProcessId::own();
    Writer { pid: own.pid, start_ticks: own.start_ticks }
}

/// The wall clock in UTC, for readers.
pub fn rfc3339_now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    time::rfc3339(since.as_secs())
}

/// Parses expressions given as options.
///
/// # Errors
/// The first invalid one, with its text.
pub fn parse_expressions(texts: &[String]) -> Result<Vec<Expr>, (String, ExprError)> {
    let parse = |text: &String| Expr::parse(text).map_err(|e| (text.clone(), e));
    texts.iter().map(parse).collect()
}
