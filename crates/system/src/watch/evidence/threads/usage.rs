//! CPU time of threads between two counts.

use std::time::Instant;

use crate::process::task::CpuUse;

/// A thread's CPU time when it was counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub at: Instant,
    pub cpu: CpuUse,
}

/// CPU time of a component's threads between two counts.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Minimum time between two counts of a thread.
    pub least_s: f64,
    pub threads: u32,
    pub cpu_cores: f64,
    pub delay_cores: f64,
    pub is_delay_unknown: bool,
    /// Whether threads are missing that existed the whole time.
    pub is_partial: bool,
    pub busiest: Option<Busiest>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Busiest {
    pub pid: u32,
    pub tid: u32,
    pub cores: f64,
}

impl Usage {
    pub fn add(&mut self, pid: u32, tid: u32, before: Counted, now: Counted) {
        let length = now.at.duration_since(before.at);
        // Counters only grow: a smaller value belongs to another thread with the same id.
        let Some(on_ns) = now.cpu.on_ns.checked_sub(before.cpu.on_ns) else { return };
        if length.is_zero() || length.as_secs_f64() < self.least_s {
            return;
        }
        let length_ns = length.as_nanos() as f64;
        let cores = on_ns as f64 / length_ns;
        self.threads += 1;
        self.cpu_cores += cores;
        match now.cpu.delay_ns.zip(before.cpu.delay_ns) {
            Some((now, before)) => self.delay_cores += now.saturating_sub(before) as f64 / length_ns,
            None => self.is_delay_unknown = true,
        }
        // The kernel counts in steps: a thread may show slightly more than one core.
        let cores = cores.min(1.0);
        if on_ns > 0 && self.busiest.is_none_or(|busiest| cores > busiest.cores) {
            self.busiest = Some(Busiest { pid, tid, cores });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn usage_is_of_threads_that_were_there_all_the_time() {
        let start = Instant::now();
        let counted = |ms: u64, on_ms: u64, delay_ms: Option<u64>| Counted {
            at: start + Duration::from_millis(ms),
            cpu: CpuUse { on_ns: on_ms * 1_000_000, delay_ns: delay_ms.map(|ms| ms * 1_000_000) },
        };
        let mut usage = Usage { least_s: 0.5, ..Usage::default() };
        usage.add(1, 10, counted(0, 100, Some(0)), counted(1000, 350, Some(100)));
        usage.add(1, 11, counted(0, 0, Some(0)), counted(1000, 750, Some(50)));
        // Another thread with the same id, one that is too young, and one that used no CPU time.
        usage.add(1, 12, counted(0, 900, Some(0)), counted(1000, 5, Some(0)));
        usage.add(1, 13, counted(900, 0, Some(0)), counted(1000, 100, Some(0)));
        usage.add(1, 14, counted(0, 7, Some(0)), counted(1000, 7, Some(0)));
        assert_eq!((usage.threads, usage.cpu_cores), (3, 1.0));
        assert!((usage.delay_cores - 0.15).abs() < 1e-9, "{usage:?}");
        assert_eq!(usage.busiest, Some(Busiest { pid: 1, tid: 11, cores: 0.75 }));
        assert!(!usage.is_delay_unknown);
        usage.add(1, 15, counted(0, 0, None), counted(1000, 1010, None));
        assert!(usage.is_delay_unknown);
        assert_eq!(usage.busiest.map(|b| (b.tid, b.cores)), Some((15, 1.0)));
    }
}
