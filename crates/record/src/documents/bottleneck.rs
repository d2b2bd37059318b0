//! What held a system back: the kinds, as a closed list, and the answer as it appears in `summary.json`.

use serde::{Deserialize, Serialize};

/// What was exhausted, or otherwise held the system back. The list is closed: docs/findings.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BottleneckKind {
    /// loadlab, or what its machine lets it send.
    Generator,
    /// A component ended unexpectedly.
    Died,
    /// A component was killed for memory, or was at its memory limit.
    Memory,
    /// A component was stopped by its CPU limit, or was at it.
    CpuLimit,
    /// A process had as many files open as its limit allows.
    OpenFiles,
    /// A component used all local ports available to it for one destination.
    Ports,
    /// The accept queue of a listener was full.
    AcceptQueue,
    /// Connections were refused, reset or lost.
    Refused,
    /// A component waited for a disk: block I/O, or calls such as fsync.
    Disk,
    /// A link between two components: its delay, bandwidth or losses.
    Link,
    /// A queue that a probe reads grew.
    Queue,
    /// One thread of a component kept a core busy.
    OneCore,
    /// All cores of the machine were busy with the system and the load.
    HostCpu,
    /// All cores of the machine were busy, mostly with other programs.
    Neighbours,
    /// All connections of a component's pool to another were busy.
    Pool,
    /// A component lets only a few requests through at a time, and is otherwise idle.
    LimitedConcurrency,
    /// The time is spent inside a component that has spare capacity.
    Latency,
    /// Nothing was saturated.
    Nothing,
}

impl BottleneckKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [BottleneckKind; 18] = [
        BottleneckKind::Generator,
        BottleneckKind::Died,
        BottleneckKind::Memory,
        BottleneckKind::CpuLimit,
        BottleneckKind::OpenFiles,
        BottleneckKind::Ports,
        BottleneckKind::AcceptQueue,
        BottleneckKind::Refused,
        BottleneckKind::Disk,
        BottleneckKind::Link,
        BottleneckKind::Queue,
        BottleneckKind::OneCore,
        BottleneckKind::HostCpu,
        BottleneckKind::Neighbours,
        BottleneckKind::Pool,
        BottleneckKind::LimitedConcurrency,
        BottleneckKind::Latency,
        BottleneckKind::Nothing,
    ];

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            BottleneckKind::Generator => "generator",
            BottleneckKind::Died => "died",
            BottleneckKind::Memory => "memory",
            BottleneckKind::CpuLimit => "cpu_limit",
            BottleneckKind::OpenFiles => "open_files",
            BottleneckKind::Ports => "ports",
            BottleneckKind::AcceptQueue => "accept_queue",
            BottleneckKind::Refused => "refused",
            BottleneckKind::Disk => "disk",
            BottleneckKind::Link => "link",
            BottleneckKind::Queue => "queue",
            BottleneckKind::OneCore => "one_core",
            BottleneckKind::HostCpu => "host_cpu",
            BottleneckKind::Neighbours => "neighbours",
            BottleneckKind::Pool => "pool",
            BottleneckKind::LimitedConcurrency => "limited_concurrency",
            BottleneckKind::Latency => "latency",
            BottleneckKind::Nothing => "nothing",
        }
    }

    /// The kind and the component in a few words: `app · CPU limit`.
    pub fn in_short(self, component: Option<&str>) -> String {
        let what = match self {
            BottleneckKind::Nothing | BottleneckKind::Latency => return "none saturated".to_owned(),
            BottleneckKind::CpuLimit => "CPU limit".to_owned(),
            BottleneckKind::HostCpu => "host CPU".to_owned(),
            kind => kind.name().replace('_', " "),
        };
        match component {
            Some(who) if !matches!(self, BottleneckKind::HostCpu | BottleneckKind::Generator) => {
                format!("{who} · {what}")
            }
            _ => what,
        }
    }
}

/// How certain the answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Inferred from outside, or from few readings.
    #[default]
    Low,
    /// Observed, but something contradicts it or could not be seen.
    Medium,
    /// Measured by the kernel's own counters, or by connections on both ends.
    High,
}

/// The bottleneck of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// Which component, probe, link (`web→db`) or machine (`host`); `null` if none can be named.
    pub component: Option<String>,
    /// What it was.
    pub kind: BottleneckKind,
    /// The evidence for it, a sentence each, strongest first.
    pub evidence: Vec<String>,
    /// How certain the answer is.
    pub confidence: Confidence,
    /// What could not be seen, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_seen: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_written_by_its_name() {
        for kind in BottleneckKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn a_short_text_names_the_component_unless_it_is_the_machine_or_loadlab() {
        let check = |kind: BottleneckKind, component, expect: &str| {
            assert_eq!(kind.in_short(component), expect);
        };
        check(BottleneckKind::CpuLimit, Some("app"), "app · CPU limit");
        check(BottleneckKind::OneCore, Some("app"), "app · one core");
        check(BottleneckKind::LimitedConcurrency, None, "limited concurrency");
        check(BottleneckKind::HostCpu, Some("host"), "host CPU");
        check(BottleneckKind::Generator, Some("loadlab"), "generator");
        check(BottleneckKind::Latency, Some("app"), "none saturated");
    }
}
