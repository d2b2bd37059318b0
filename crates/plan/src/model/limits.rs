//! What a component may use.

use loadlab_record::documents::figure::NumberKind;

use crate::model::journey::Place;

/// What a component may use; `None` is no limit but the one that a Compose file sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Cores.
    pub cpu_cores: Option<f64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Memory and swap together, bytes.
    pub memory_swap_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Bytes read per second from each disk.
    pub block_read_bytes_per_s: Option<u64>,
    /// Bytes written per second to each disk.
    pub block_write_bytes_per_s: Option<u64>,
    /// Reads per second from each disk.
    pub block_read_ops_per_s: Option<u64>,
    /// Writes per second to each disk.
    pub block_write_ops_per_s: Option<u64>,
    /// Bytes per second over its link, each way.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Added round-trip time of its link, nanoseconds.
    pub delay_ns: Option<u64>,
    /// Maximum variation of the delay, nanoseconds; not more than the delay.
    pub jitter_ns: Option<u64>,
    /// Share of the traffic on its link that is lost, 0 to 1.
    pub packet_loss: Option<f64>,
    /// Cores it may run on; empty: all.
    pub cpuset: Vec<usize>,
    /// Limits that are known only once an earlier case has run; the fields of these limits are `None`.
    pub measured: Vec<MeasuredLimit>,
}

/// One of the limits of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitName {
    /// CPU time, in cores.
    Cpu,
    /// Memory, in bytes.
    Memory,
    /// Memory and swap together, in bytes.
    MemorySwap,
    /// Processes and threads.
    Pids,
    /// Open files of each process.
    OpenFiles,
    /// Bytes read per second from each disk.
    BlockRead,
    /// Bytes written per second to each disk.
    BlockWrite,
    /// Reads per second from each disk.
    BlockReadOps,
    /// Writes per second to each disk.
    BlockWriteOps,
    /// Bytes per second over its link, each way.
    Bandwidth,
    /// Added round-trip time of its link, in nanoseconds.
    Delay,
    /// Maximum variation of the delay, in nanoseconds.
    Jitter,
    /// Share of the traffic on its link that is lost, 0 to 1.
    PacketLoss,
}

/// A limit that follows from what an earlier case measured: a figure times a factor.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredLimit {
    /// Which limit.
    pub limit: LimitName,
    /// The case that measured it.
    pub case: String,
    /// One of its components, or a group of replicas, which are averaged.
    pub component: String,
    /// Figure of the component, as in conditions: `memory.mean`.
    pub figure: String,
    /// Factor the figure is multiplied by.
    pub factor: f64,
    /// As written.
    pub text: String,
    /// Its place in the plan.
    pub at: Place,
}

impl LimitName {
    /// All limits, in the order of the language.
    pub const ALL: [LimitName; 13] = [
        LimitName::Cpu,
        LimitName::Memory,
        LimitName::MemorySwap,
        LimitName::Pids,
        LimitName::OpenFiles,
        LimitName::BlockRead,
        LimitName::BlockWrite,
        LimitName::BlockReadOps,
        LimitName::BlockWriteOps,
        LimitName::Bandwidth,
        LimitName::Delay,
        LimitName::Jitter,
        LimitName::PacketLoss,
    ];

    /// Its key in a plan.
    pub fn key(self) -> &'static str {
        match self {
            LimitName::Cpu => "cpu",
            LimitName::Memory => "memory",
            LimitName::MemorySwap => "memory_swap",
            LimitName::Pids => "pids",
            LimitName::OpenFiles => "open_files",
            LimitName::BlockRead => "block_read",
            LimitName::BlockWrite => "block_write",
            LimitName::BlockReadOps => "block_read_ops",
            LimitName::BlockWriteOps => "block_write_ops",
            LimitName::Bandwidth => "bandwidth",
            LimitName::Delay => "delay",
            LimitName::Jitter => "jitter",
            LimitName::PacketLoss => "packet_loss",
        }
    }

    /// Whether a relay on the component's link implements it.
    pub fn is_of_relay(self) -> bool {
        matches!(self, LimitName::Delay | LimitName::Jitter | LimitName::PacketLoss)
    }

    /// The kind of figure that can determine this limit; `None` if none can.
    pub(crate) fn figure(self) -> Option<NumberKind> {
        match self {
            LimitName::Cpu => Some(NumberKind::Percent),
            LimitName::Memory | LimitName::MemorySwap => Some(NumberKind::Bytes),
            LimitName::Pids | LimitName::OpenFiles => Some(NumberKind::Plain),
            _ => None,
        }
    }
}

impl Limits {
    /// Sets one limit, in the units of its field; `None` removes it.
    pub fn set(&mut self, name: LimitName, value: Option<f64>) {
        let whole = value.map(|v| v.round() as u64);
        match name {
            LimitName::Cpu => self.cpu_cores = value,
            LimitName::Memory => self.memory_bytes = whole,
            LimitName::MemorySwap => self.memory_swap_bytes = whole,
            LimitName::Pids => self.pids = whole,
            LimitName::OpenFiles => self.open_files = whole,
            LimitName::BlockRead => self.block_read_bytes_per_s = whole,
            LimitName::BlockWrite => self.block_write_bytes_per_s = whole,
            LimitName::BlockReadOps => self.block_read_ops_per_s = whole,
            LimitName::BlockWriteOps => self.block_write_ops_per_s = whole,
            LimitName::Bandwidth => self.bandwidth_bytes_per_s = whole,
            LimitName::Delay => self.delay_ns = whole,
            LimitName::Jitter => self.jitter_ns = whole,
            LimitName::PacketLoss => self.packet_loss = value,
        }
    }
}
