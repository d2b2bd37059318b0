//! What was read of a component (or of loadlab itself, or the host) at one moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line of `samples.jsonl`: one reading of one component. Counters are totals since the component
/// started; a reader takes differences. What the host cannot tell is `null`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in seconds on the trial's clock (0 = first load's start; negative before it).
    pub at_s: f64,
    /// Component name (`edge1`), `loadlab` for the generator, `host` for the machine.
    pub component: String,
    /// CPU time used in user mode, seconds.
    pub cpu_user_s: Option<f64>,
    /// CPU time used in the kernel, seconds.
    pub cpu_system_s: Option<f64>,
    /// CPU time used in all, seconds (where the kernel only tells the sum, this alone is set).
    pub cpu_s: Option<f64>,
    /// Periods in which the CPU limit stopped it.
    pub throttled_periods: Option<u64>,
    /// Time it was stopped by its CPU limit, seconds.
    pub throttled_s: Option<f64>,
    /// Memory charged to it: the cgroup's use without page cache where there is a cgroup, else resident.
    pub memory_bytes: Option<u64>,
    /// Resident memory of its process tree.
    pub resident_bytes: Option<u64>,
    /// Page cache charged to it.
    pub cache_bytes: Option<u64>,
    /// Its memory limit; absent when it has none.
    pub memory_limit_bytes: Option<u64>,
    /// Times the kernel killed a process of it for memory.
    pub oom_kills: Option<u64>,
    /// Bytes read from block devices.
    pub block_read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub block_written_bytes: Option<u64>,
    /// Bytes received on its network link (own namespace only).
    pub net_in_bytes: Option<u64>,
    /// Bytes sent on its network link (own namespace only).
    pub net_out_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open file descriptors of its process tree.
    pub open_files: Option<u64>,
    /// Probes that belong to no component are samples of the component `probes`: name to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, f64>,
}
