//! The limits of a component as the kernel applies them: read back, not as requested.

use serde::{Deserialize, Serialize};

use crate::text::units::{format_bytes, format_count, format_duration_ns};

/// What a component may use; absent means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsInForce {
    /// CPU time per elapsed time, in cores (0.01 is 1 % of one core).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// Memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Memory and swap together, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Open files of each process, where the plan limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes read per second from each disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_read_bytes_per_s: Option<u64>,
    /// Bytes written per second to each disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_write_bytes_per_s: Option<u64>,
    /// Reads per second from each disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_read_ops_per_s: Option<u64>,
    /// Writes per second to each disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_write_ops_per_s: Option<u64>,
    /// Cores it may run on, where the plan names them: `0-1,3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Bytes per second over its link, each way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Added round-trip time of its link, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// Maximum variation of that delay, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
    /// Share of the traffic on its link that is lost, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_loss: Option<f64>,
}

impl LimitsInForce {
    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        *self == LimitsInForce::default()
    }

    /// In words, most important first: `1 % of a core`, `15.0 MiB of memory`.
    pub fn describe(&self) -> Vec<String> {
        let bytes = |n: u64| format_bytes(n as f64);
        let count = |n: u64| format_count(n as f64);
        let texts = [
            self.cpu_cores.map(|c| format!("{} % of a core", format_count(c * 100.0))),
            self.memory_bytes.map(|n| format!("{} of memory", bytes(n))),
            self.memory_swap_bytes
                .filter(|n| Some(*n) != self.memory_bytes)
                .map(|n| format!("{} of memory and swap", bytes(n))),
            self.pids.map(|n| format!("{} processes and threads", count(n))),
            self.open_files.map(|n| format!("{} open files", count(n))),
            self.block_read_bytes_per_s.map(|n| format!("{}/s read from each disk", bytes(n))),
            self.block_write_bytes_per_s.map(|n| format!("{}/s written to each disk", bytes(n))),
            self.block_read_ops_per_s.map(|n| format!("{} reads/s of each disk", count(n))),
            self.block_write_ops_per_s.map(|n| format!("{} writes/s of each disk", count(n))),
            self.cpuset.as_ref().map(|cores| format!("cores {cores}")),
            self.bandwidth_bytes_per_s.map(|n| format!("{}/s over its link each way", bytes(n))),
            self.delay_ns.map(|ns| self.describe_delay(ns)),
            self.packet_loss.map(|share| format!("{} % lost on its link", format_count(share * 100.0))),
        ];
        texts.into_iter().flatten().collect()
    }

    fn describe_delay(&self, delay_ns: u64) -> String {
        let duration = |ns: u64| format_duration_ns(ns as f64);
        let jitter = self.jitter_ns.map(|ns| format!(" ± {}", duration(ns))).unwrap_or_default();
        format!("round trips longer by {}{jitter}", duration(delay_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_limited_is_reported() {
        let limits = LimitsInForce {
            cpu_cores: Some(0.01),
            memory_bytes: Some(15 << 20),
            memory_swap_bytes: Some(15 << 20),
            block_write_bytes_per_s: Some(1 << 20),
            cpuset: Some("0-1".into()),
            delay_ns: Some(40_000_000),
            jitter_ns: Some(5_000_000),
            packet_loss: Some(0.01),
            ..LimitsInForce::default()
        };
        let described = limits.describe().join(", ");
        assert_eq!(
            described,
            "1 % of a core, 15.0 MiB of memory, 1.00 MiB/s written to each disk, cores 0-1, round trips longer by 40.0 ms ± 5.00 ms, 1 % lost on its link"
        );
        let text = serde_json::to_string(&LimitsInForce { pids: Some(4), ..Default::default() }).unwrap();
        assert_eq!(text, r#"{"pids":4}"#);
        assert!(LimitsInForce::default().is_empty() && !limits.is_empty());
    }
}
