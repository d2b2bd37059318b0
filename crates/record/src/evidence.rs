//! What connections and threads were seen to do: who waits for whom, and what for.
//!
//! Samples ([`crate::sample`]) say how much a component used. Evidence says where requests are: it is read many times a
//! second from the kernel's tables of sockets and threads, and added up to one line about once a second. Figures are means
//! over the readings of that line, so that lines can be averaged by their readings.

use serde::{Deserialize, Serialize};

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
    /// CPU time that reading took, seconds.
    pub cpu_s: f64,
    /// Connections between two components, by who listens where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Sockets that listen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Local ports of those who use many of them towards one destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Ports>,
    /// Threads of each component.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Threads>,
    /// What could not be seen, and why: `connections of db: another user's process`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_seen: Vec<String>,
}

/// Connections from one component to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pair {
    /// Who connected: a component, or `loadlab`; empty where the process is not known.
    pub from: String,
    /// Who accepted; empty where the process is not known.
    pub to: String,
    /// Where it listens: `127.0.0.1:8080`, or the path of a Unix socket.
    pub address: String,
    /// A Unix socket: it has queues and no times, so that `busy` is what threads and queues show, and the least it can be.
    #[serde(skip_serializing_if = "is_false")]
    pub is_unix: bool,
    /// Connected UDP sockets, as resolvers have one for each query: `busy` are those of pairs whose sockets come and go.
    #[serde(skip_serializing_if = "is_false")]
    pub is_udp: bool,
    /// Connections that stand.
    pub open: f64,
    /// Of those, the ones on which `from` waits: it sent after it last received.
    pub busy: f64,
    /// Of those, the ones of which that is not known: the kernel's clock is too coarse, or has nothing to say.
    pub unknown: f64,
    /// Of those, the ones with bytes that `to` has not read yet.
    pub unread: f64,
    /// Of those, the ones with bytes of `from` that have not reached `to` yet.
    pub in_transit: f64,
    /// Of those, the ones on which `from` holds back written bytes until earlier ones are acknowledged (Nagle).
    #[serde(skip_serializing_if = "is_zero_rate")]
    pub held_by_from: f64,
    /// The same of `to`: the rest of an answer waits for the acknowledgement of its beginning.
    #[serde(skip_serializing_if = "is_zero_rate")]
    pub held_by_to: f64,
    /// Of those, the ones whose connect has not been answered yet.
    #[serde(skip_serializing_if = "is_zero_rate")]
    pub connecting: f64,
    /// Of those, the ones that carry their first request, or wait to: nearly all where each request has a connection.
    #[serde(skip_serializing_if = "is_zero_rate")]
    pub first_request: f64,
    /// The shortest round-trip time the kernel has seen, mean over connections, milliseconds: the smoothed one has
    /// acknowledgements in it that wait for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Segments that were sent again, by both ends, in this line's time.
    #[serde(skip_serializing_if = "is_zero")]
    pub retransmits: u64,
    /// The same a second, in a summary.
    #[serde(skip_serializing_if = "is_zero_rate")]
    pub retransmits_per_s: f64,
    /// Unix and UDP sockets that were new, in this line's time: the least, since one that lives for less than a reading's
    /// time may not be seen.
    #[serde(skip_serializing_if = "is_zero")]
    pub made: u64,
    /// The same a second, in a summary.
    #[serde(skip_serializing_if = "is_zero_rate")]
    pub made_per_s: f64,
    /// Exact times of some exchanges, by their packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<Timed>,
}

/// Exchanges that were timed by their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timed {
    /// How many answers were seen to begin.
    pub exchanges: u64,
    /// Share of the time in which a connection waited for an answer to begin, mean over the connections seen, 0 to 1.
    pub busy_share: f64,
    /// From a request's last byte to its answer's first, mean, milliseconds.
    pub wait_ms: f64,
}

/// A socket that listens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Whose; empty where the process is not known.
    pub component: String,
    /// `0.0.0.0:8080`.
    pub address: String,
    /// The longest its queue was seen.
    pub queue_max: u32,
    /// The most it holds.
    pub backlog: u32,
    /// Connections it dropped since it was made.
    pub drops: u64,
    /// Of these, those before it was first read for this line.
    pub drops_before: u64,
}

/// Local ports that are taken towards one destination, as they were last looked at: a connection takes one, and for a
/// minute after its end in TIME_WAIT, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ports {
    /// Who connects; empty where it is not known.
    pub component: String,
    /// From which of its addresses.
    pub source: String,
    /// Where to: `10.0.0.3:8080`.
    pub address: String,
    /// How many are taken.
    pub taken: u32,
    /// Of those, the ones that a connection left behind: TIME_WAIT.
    pub time_wait: u32,
    /// How many there are: `net.ipv4.ip_local_port_range` of its network namespace.
    pub range: u32,
}

/// What the threads of a component did: means over the readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Threads {
    /// Whose.
    pub component: String,
    /// How many there are.
    pub count: f64,
    /// How many were read each time.
    pub read: f64,
    /// Of those read: on a core or ready for one.
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
    /// CPU of the busiest thread over this line's time, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_cores: Option<f64>,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub busiest_name: String,
    /// Its id, so that lines of one thread can be told from those of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_id: Option<u32>,
    /// Time that threads were ready and waited for a core, seconds a second, over all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_delay_cores: Option<f64>,
    /// CPU of all threads over this line's time, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
}

impl Evidence {
    /// Nothing was read, and nothing is known to be hidden.
    pub fn is_empty(&self) -> bool {
        self.socket_readings == 0 && self.thread_readings == 0 && self.not_seen.is_empty()
    }
}

// serde's `skip_serializing_if` hands over a reference.
fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_zero_rate(value: &f64) -> bool {
    *value == 0.0
}
