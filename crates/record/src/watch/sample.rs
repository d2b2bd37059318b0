//! One reading of a component (or of loadlab itself, or the host).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line of `samples.jsonl`: one reading of one component. Counters are totals since the component started; readers
/// take differences. What the host cannot report is `null`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the reading, seconds on the trial's clock (0 = first load's start; negative before it).
    pub at_s: f64,
    /// Component name (`edge1`), `loadlab` for the generator, `host` for the machine.
    pub component: String,
    /// CPU time used in user mode, seconds.
    pub cpu_user_s: Option<f64>,
    /// CPU time used in the kernel, seconds.
    pub cpu_system_s: Option<f64>,
    /// CPU time used in all, seconds (where the kernel reports only the sum, this alone is set).
    pub cpu_s: Option<f64>,
    /// Periods of its CPU limit in which it ran.
    #[serde(default)]
    pub periods: Option<u64>,
    /// Periods in which its CPU limit throttled it.
    pub throttled_periods: Option<u64>,
    /// Time its CPU limit throttled it, seconds.
    pub throttled_s: Option<f64>,
    /// Memory charged to it: the cgroup's use without page cache if there is a cgroup, otherwise resident.
    pub memory_bytes: Option<u64>,
    /// Resident memory of its process tree.
    pub resident_bytes: Option<u64>,
    /// Page cache charged to it.
    pub cache_bytes: Option<u64>,
    /// Its memory limit; absent if it has none.
    pub memory_limit_bytes: Option<u64>,
    /// The most memory ever charged to it, page cache included.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// Page faults that required no disk read.
    #[serde(default)]
    pub minor_faults: Option<u64>,
    /// Page faults that required a disk read.
    #[serde(default)]
    pub major_faults: Option<u64>,
    /// OOM kills of its processes.
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
    /// For the process closest to its limit on open files: its open files as a share of the limit, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_share: Option<f64>,
    /// TCP state of the component's own network namespace; without one, TCP is the host's and appears only on the
    /// host's line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Tcp>,
    /// Time in which some of its tasks waited for a core, memory, or a disk, where the kernel reports it (PSI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// The machine's load average over the last minute; for the host only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Values of probes by name. Probes that belong to no component are samples of the component `probes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes: BTreeMap<String, f64>,
    /// Probes that could not be read, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probes_failed: BTreeMap<String, String>,
}

/// TCP of a network namespace. Counters are totals since it was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    /// Open connections, including those that the other side has closed.
    pub established: Option<u64>,
    /// Connections that ended and wait in TIME_WAIT.
    pub time_wait: Option<u64>,
    /// Sockets that no longer belong to a process.
    pub orphaned: Option<u64>,
    /// Sockets by state, if there are few enough to read them all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_state: BTreeMap<String, u64>,
    /// Connections that the kernel completed and then dropped because the program did not accept them in time.
    pub accept_overflows: Option<u64>,
    /// Connection requests (SYN) dropped.
    pub syn_drops: Option<u64>,
    /// Segments retransmitted.
    pub retransmits: Option<u64>,
}

/// Pressure: seconds in which some tasks were stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Waiting for a core.
    pub cpu_s: Option<f64>,
    /// Waiting for memory.
    pub memory_s: Option<f64>,
    /// Waiting for a disk.
    pub io_s: Option<f64>,
}
