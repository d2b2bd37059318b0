//! Observed activity of connections and threads: which component waits for which, and for what.
//!
//! Samples ([`crate::watch::sample`]) record how much a component used. Evidence records where requests are: it is read
//! many times a second from the kernel's tables of sockets and threads, and summed into about one line per second.
//! Figures are means over that line's readings, so lines can be averaged weighted by their readings.

use serde::{Deserialize, Serialize};

use crate::omitted::is_default;

/// One line of `evidence.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// First reading, seconds on the trial's clock.
    pub from_s: f64,
    /// Last reading.
    pub to_s: f64,
    /// How often the table of sockets was read.
    pub socket_readings: u32,
    /// How often threads were read.
    pub thread_readings: u32,
    /// CPU time spent on reading, seconds.
    pub cpu_s: f64,
    /// Connections between two components, by listening address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Listening sockets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Local ports of components that use many of them for one destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Ports>,
    /// Threads of each component.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Threads>,
    /// What could not be seen, and why: `connections of db: another user's process`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_seen: Vec<String>,
}

impl Evidence {
    /// Frees spare capacity: readers keep a line for every second.
    pub fn shrink_to_fit(&mut self) {
        let Evidence { pairs, listeners, ports, threads, not_seen, .. } = self;
        pairs.shrink_to_fit();
        listeners.shrink_to_fit();
        ports.shrink_to_fit();
        threads.shrink_to_fit();
        not_seen.shrink_to_fit();
    }
}

/// Connections from one component to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pair {
    /// The connecting side: a component, or `loadlab`; empty where the process is not known.
    pub from: String,
    /// The accepting side; empty where the process is not known.
    pub to: String,
    /// Listening address: `127.0.0.1:8080`, or the path of a Unix socket.
    pub address: String,
    /// A Unix socket: it has queues but no times, so `busy` is what threads and queues show, and a lower bound.
    #[serde(skip_serializing_if = "is_default")]
    pub is_unix: bool,
    /// Connected UDP sockets, such as a resolver's for each query: `busy` are those of pairs whose sockets come and
    /// go.
    #[serde(skip_serializing_if = "is_default")]
    pub is_udp: bool,
    /// Open connections.
    pub open: f64,
    /// Open connections on which `from` waits: it sent after it last received.
    pub busy: f64,
    /// Open connections on which it is unknown whether `from` waits: the kernel's clock is too coarse, or gives no
    /// times.
    pub unknown: f64,
    /// Open connections with bytes that `to` has not read yet.
    pub unread: f64,
    /// Open connections with bytes of `from` that have not reached `to` yet.
    pub in_transit: f64,
    /// Open connections on which `from` holds back written bytes until earlier ones are acknowledged (Nagle).
    #[serde(skip_serializing_if = "is_default")]
    pub held_by_from: f64,
    /// As `held_by_from`, for `to`: the rest of an answer waits for the acknowledgement of its beginning.
    #[serde(skip_serializing_if = "is_default")]
    pub held_by_to: f64,
    /// Open connections whose connect has not been answered yet.
    #[serde(skip_serializing_if = "is_default")]
    pub connecting: f64,
    /// Open connections that carry their first request, or wait to: nearly all if each request has its own connection.
    #[serde(skip_serializing_if = "is_default")]
    pub first_request: f64,
    /// Minimum round-trip time seen by the kernel, mean over connections, milliseconds. The smoothed round-trip time
    /// includes delayed acknowledgements that wait for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Segments retransmitted, by both ends, during this line.
    #[serde(skip_serializing_if = "is_default")]
    pub retransmits: u64,
    /// `retransmits` per second, in a summary.
    #[serde(skip_serializing_if = "is_default")]
    pub retransmits_per_s: f64,
    /// New Unix and UDP sockets during this line: a lower bound, since a socket that lives for less than a reading
    /// interval may be missed.
    #[serde(skip_serializing_if = "is_default")]
    pub made: u64,
    /// `made` per second, in a summary.
    #[serde(skip_serializing_if = "is_default")]
    pub made_per_s: f64,
    /// Exact times of some exchanges, from their packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<Timed>,
}

/// Exchanges timed by their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timed {
    /// Answers that were seen to begin.
    pub exchanges: u64,
    /// Fraction of the time that a connection waited for an answer to begin, mean over the connections seen, 0 to 1.
    pub busy_share: f64,
    /// From a request's last byte to its answer's first, mean, milliseconds.
    pub wait_ms: f64,
}

/// A listening socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Its component; empty where the process is not known.
    pub component: String,
    /// Listening address: `0.0.0.0:8080`.
    pub address: String,
    /// Longest accept queue seen.
    pub queue_max: u32,
    /// Capacity of the accept queue.
    pub backlog: u32,
    /// Connections dropped since the listener was created.
    pub drops: u64,
    /// Connections of `drops` that were dropped before this line's first reading.
    pub drops_before: u64,
}

/// Local ports in use for one destination, at the last reading: a connection occupies one, and keeps it for a minute
/// after its end, in TIME_WAIT.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ports {
    /// The connecting component; empty where it is not known.
    pub component: String,
    /// Its source address.
    pub source: String,
    /// The destination: `10.0.0.3:8080`.
    pub address: String,
    /// Ports in use.
    pub taken: u32,
    /// Ports of `taken` left behind by a closed connection: TIME_WAIT.
    pub time_wait: u32,
    /// Ports available: `net.ipv4.ip_local_port_range` of its network namespace.
    pub range: u32,
}

/// What the threads of a component did: means over the readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Threads {
    /// The component.
    pub component: String,
    /// Number of threads.
    pub count: f64,
    /// Threads read each time.
    pub read: f64,
    /// Threads read that were on a core or ready for one.
    pub running: f64,
    /// In a lock (futex).
    pub lock: f64,
    /// In a disk call: fsync, a read or write of a file, uninterruptible sleep.
    pub disk: f64,
    /// In a receive, a connect or an accept on a socket.
    pub network: f64,
    /// In poll, select or epoll.
    pub poll: f64,
    /// In a sleep.
    pub sleep: f64,
    /// In anything else, or not known.
    pub other: f64,
    /// CPU of the busiest thread during this line, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_cores: Option<f64>,
    /// Name of the busiest thread.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub busiest_name: String,
    /// Id of the busiest thread, to distinguish lines about one thread from lines about several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_id: Option<u32>,
    /// Time threads were runnable but waited for a core, seconds per second, summed over all threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_delay_cores: Option<f64>,
    /// CPU of all threads during this line, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
}

impl Evidence {
    /// Whether nothing was read and nothing is known to be hidden.
    pub fn is_empty(&self) -> bool {
        self.socket_readings == 0 && self.thread_readings == 0 && self.not_seen.is_empty()
    }
}
