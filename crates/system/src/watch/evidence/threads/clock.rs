//! What reading costs.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread.
#[derive(Debug)]
pub(crate) struct CpuClock {
    start_ns: u64,
}

impl CpuClock {
    pub fn start() -> CpuClock {
        CpuClock { start_ns: CpuClock::now_ns() }
    }

    pub fn spent_ns(&self) -> u64 {
        CpuClock::now_ns().saturating_sub(self.start_ns)
    }

    fn now_ns() -> u64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
