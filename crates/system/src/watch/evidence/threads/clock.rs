//! What reading costs.

use crate::clock::thread_cpu_ns;

/// CPU time of the calling thread.
#[derive(Debug)]
pub(crate) struct CpuClock {
    start_ns: u64,
}

impl CpuClock {
    pub fn start() -> CpuClock {
        CpuClock { start_ns: thread_cpu_ns() }
    }

    pub fn spent_ns(&self) -> u64 {
        thread_cpu_ns().saturating_sub(self.start_ns)
    }
}
