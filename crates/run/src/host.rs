//! Facts about the machine for the manifest, and small things the conductor needs.

use loadlab_record::expr::{Expr, ExprError};
use loadlab_record::manifest::{Host, Writer};
use loadlab_system::ProcessId;

/// The machine, as far as it tells.
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
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .trim()
            .to_owned(),
        cgroup: cgroup.to_owned(),
    }
}

/// This process, for the manifest.
pub fn writer() -> Writer {
    let own = ProcessId::own();
    Writer { pid: own.pid, start_ticks: own.start_ticks }
}

/// The wall clock in UTC, for people.
pub fn rfc3339_now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

/// Civil date from days since 1970 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", §days).
fn rfc3339(unix_s: u64) -> String {
    let (days, second) = ((unix_s / 86_400) as i64, unix_s % 86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

/// Parses expressions given as options.
///
/// # Errors
/// The first that is none, with its text.
pub fn parse_expressions(texts: &[String]) -> Result<Vec<Expr>, (String, ExprError)> {
    let parse = |text: &String| Expr::parse(text).map_err(|e| (text.clone(), e));
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_132_800), "2026-11-20T00:00:00Z");
    }
}
