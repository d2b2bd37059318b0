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
    /// Periods of its CPU limit in which it ran.
    #[serde(default)]
    pub periods: Option<u64>,
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
    /// The most memory that was ever charged to it, page cache included.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// Page faults that took no reading from a disk.
    #[serde(default)]
    pub minor_faults: Option<u64>,
    /// Page faults that had to read from a disk.
    #[serde(default)]
    pub major_faults: Option<u64>,
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
    /// Processes.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Open file descriptors of its process tree.
    pub open_files: Option<u64>,
    /// Of the process that is nearest to its limit on open files: what it has open of what it may, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_share: Option<f64>,
    /// TCP of its network namespace: a component's own, or else of the host and on its line alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// Time in which some of its tasks waited for a core, memory, or a disk, where the kernel tells (PSI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// The machine's load average over the last minute; of the host alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Probes that belong to no component are samples of the component `probes`: name to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, f64>,
    /// Probes that could not be read, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes_failed: BTreeMap<String, String>,
}

/// TCP of a network namespace. Counters are totals since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// Connections that stand, or that the other side has closed.
    pub established: Option<u64>,
    /// Connections that ended and wait out their time.
    pub time_wait: Option<u64>,
    /// Sockets that no process has any more.
    pub orphaned: Option<u64>,
    /// Sockets by state, where there are few enough to look at them all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_state: BTreeMap<String, u64>,
    /// Connections that the kernel had made and threw away, since the program did not accept in time.
    pub accept_overflows: Option<u64>,
    /// Connection requests (SYN) that were thrown away.
    pub syn_drops: Option<u64>,
    /// Segments that were sent again.
    pub retransmits: Option<u64>,
}

/// Pressure: seconds in which some tasks stood still for want of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Of a core.
    pub cpu_s: Option<f64>,
    /// Of memory.
    pub memory_s: Option<f64>,
    /// Of a disk.
    pub io_s: Option<f64>,
}
