//! Who waits for whom: reads sockets and threads of every component many times a second, and sums them up into one line
//! of evidence about once a second.
//!
//! [`sockets`] reads the kernel's table of sockets, [`owners`] finds the owner of each, and [`pairs`] adds up who waits
//! for whom; [`beside`] does so for Unix and UDP sockets; [`ports`] counts local ports where many are taken;
//! [`packets`] times some exchanges exactly where the kernel's clock is too coarse; [`threads`] reports what threads do
//! and wait for. All of it together may use a hundredth of a core: costly parts are read less often.

mod connection;
mod key;
pub(crate) mod netlink;
mod owners;
mod packets;
mod pairs;
mod ports;
pub(crate) mod random;
mod rhythm;
mod socket_reading;
pub(crate) mod sockets;
pub(crate) mod threads;
mod turnover;
mod udp;
pub(crate) mod unix;
mod unix_and_udp;
mod waits;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::names::GENERATOR;

use self::owners::Owners;
use self::packets::PacketTimer;
use self::pairs::PairSums;
use self::ports::PortReader;
use self::sockets::{NamespacePart, Socket, SocketTable, Subset};
use self::threads::ThreadReader;
use self::unix_and_udp::UnixAndUdp;
use crate::clock::thread_cpu_ns;

/// The processes of a component, as the watcher last saw them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// The component's name.
    pub component: String,
    /// Pids of its processes.
    pub pids: Vec<u32>,
}

/// The shortest and the longest interval between readings.
const SHORTEST_NS: u64 = 50_000_000;
const LONGEST_NS: u64 = 60_000_000_000;
/// The interval between readings, as a multiple of their CPU cost: a hundredth of a core.
const BUDGET: u64 = 100;
/// CPU budget for the threads in one reading.
const THREADS_NS: u64 = 500_000;
/// Approximate length of a line of evidence.
const LINE_NS: u64 = 1_000_000_000;
/// Interval between two searches for socket owners.
const POLL_INTERVAL_NS: u64 = 200_000_000;
/// Maximum number of namespaces to read: each costs a descriptor, and a dump per reading.
const MOST_NAMESPACES: usize = 64;

/// Reads sockets and threads, and adds them up.
#[derive(Debug, Default)]
pub(crate) struct EvidenceReader {
    members: Vec<Members>,
    /// The members without loadlab, whose threads the engine reports itself.
    components: Vec<Members>,
    /// Socket tables of the namespaces that components are in, by the namespace's inode.
    tables: HashMap<u64, SocketTable>,
    /// Namespaces that cannot be read, each with the component in it.
    closed: BTreeSet<(u64, String)>,
    owners: Owners,
    pairs: PairSums,
    beside: UnixAndUdp,
    packets: PacketTimer,
    ports: PortReader,
    threads: ThreadReader,
    thread_readings: u32,
    subset: Subset,
    sockets: Vec<Socket>,
    one_table: Vec<Socket>,
    /// Each namespace's part of `sockets`.
    parts: Vec<NamespacePart>,
    from_ns: u64,
    looked_ns: u64,
    spent_ns: u64,
    /// When the budget allows another reading.
    next_ns: u64,
}

impl EvidenceReader {
    /// Updates the components' processes. If they changed, owners are searched for again.
    pub fn set_members(&mut self, members: Vec<Members>) {
        let before = thread_cpu_ns();
        if members != self.members {
            self.components =
                members.iter().filter(|m| m.component != GENERATOR && !m.pids.is_empty()).cloned().collect();
            self.members = members;
            self.owners.look_again();
            self.open_tables();
        }
        self.spent_ns += thread_cpu_ns() - before;
    }

    /// Finds the owners of new sockets.
    fn look(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) < POLL_INTERVAL_NS {
            return;
        }
        let unknown: HashSet<u32> =
            self.sockets.iter().map(|s| s.inode).filter(|inode| self.owners.is_unknown(*inode)).collect();
        if !unknown.is_empty() {
            self.looked_ns = now_ns;
            self.owners.look(&self.members, &unknown);
        }
        let alive = self.sockets.iter().map(|s| s.inode).collect();
        self.owners.look_for_load(self.pairs.take_strangers(), &alive);
    }

    /// Whether there are components other than loadlab to read.
    pub fn has_components(&self) -> bool {
        !self.components.is_empty()
    }

    /// Opens a table for each namespace that a component is in, and closes those of namespaces without components.
    fn open_tables(&mut self) {
        let namespace_of = |pid: u32| fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|m| m.ino());
        let own = namespace_of(std::process::id());
        let mut used = HashSet::new();
        self.ports.begin_members();
        for component in &self.members {
            let mut seen = HashSet::new();
            for pid in &component.pids {
                let Some(namespace) = namespace_of(*pid).filter(|n| seen.insert(*n)) else { continue };
                used.insert(namespace);
                self.ports.add_member(namespace, *pid, &component.component);
                if self.tables.contains_key(&namespace) || self.tables.len() >= MOST_NAMESPACES {
                    continue;
                }
                let opened =
                    if own == Some(namespace) { SocketTable::here() } else { SocketTable::of_process(*pid) };
                match opened {
                    Ok(table) => drop(self.tables.insert(namespace, table)),
                    Err(error) => {
                        let text =
                            format!("connections of {}: its network namespace: {error}", component.component);
                        self.closed.insert((namespace, text));
                    }
                }
            }
        }
        self.tables.retain(|namespace, _| used.contains(namespace));
        self.ports.end_members();
        self.closed.retain(|(namespace, _)| used.contains(namespace));
    }

    /// Reads once. Returns how long to wait until the next reading, nanoseconds.
    pub fn read(&mut self, now_ns: u64) -> u64 {
        let before = thread_cpu_ns();
        if self.from_ns == 0 {
            self.from_ns = now_ns;
        }
        if self.packets.end() && now_ns < self.next_ns {
            let cost_ns = thread_cpu_ns() - before;
            self.spent_ns += cost_ns;
            self.next_ns += cost_ns * BUDGET;
            return self.next_ns - now_ns;
        }
        self.packets.begin(&self.members);
        self.sockets.clear();
        self.parts.clear();
        let mut failed = Vec::new();
        for (namespace, table) in &mut self.tables {
            match table.read(&mut self.subset, &mut self.one_table) {
                Ok(()) => {
                    self.sockets.append(&mut self.one_table);
                    self.parts.push(NamespacePart { namespace: *namespace, end: self.sockets.len() });
                }
                Err(error) => {
                    failed.push((*namespace, format!("connections: the kernel's table of sockets: {error}")))
                }
            }
        }
        self.closed.extend(failed);
        if self.subset.one_in > 1 {
            // A later table may have narrowed the subset.
            self.subset.keep(&mut self.sockets, &mut self.parts);
        }
        (0..).zip(&mut self.sockets).for_each(|(place, socket)| socket.place = place);
        self.look(now_ns);
        self.pairs.note(self.packets.wants_notes(now_ns));
        self.pairs.add(&self.sockets, &self.parts, self.subset, &self.owners);
        self.beside.read(now_ns, self.tables.values_mut(), &mut self.owners, &self.members);
        self.ports.read(now_ns, &mut self.tables, &self.owners);
        let noted = self.pairs.take_noted();
        let burst_ns = self.packets.see(now_ns, noted, &self.sockets, &self.parts, self.subset.one_in);
        self.threads.read(&self.components, THREADS_NS);
        self.thread_readings += 1;
        let cost_ns = thread_cpu_ns() - before;
        self.spent_ns += cost_ns;
        let wait_ns = (cost_ns * BUDGET).clamp(SHORTEST_NS, LONGEST_NS);
        self.next_ns = now_ns + wait_ns;
        // A burst must end before the next reading.
        burst_ns.map_or(wait_ns, |burst_ns| burst_ns.min(wait_ns))
    }

    /// The line of evidence, if one is due; `at_s` converts times to the trial's clock.
    pub fn take(&mut self, now_ns: u64, is_last: bool, at_s: impl Fn(u64) -> f64) -> Option<Evidence> {
        let is_due = now_ns.saturating_sub(self.from_ns) >= LINE_NS || is_last;
        if !is_due || self.pairs.readings() == 0 {
            return None;
        }
        let before = thread_cpu_ns();
        let socket_readings = self.pairs.readings();
        let (mut pairs, mut listeners) = self.pairs.take();
        self.packets.fill(&mut pairs);
        let mut not_seen: Vec<String> = self.closed.iter().map(|(_, why)| why.clone()).collect();
        not_seen.extend(
            self.owners.denied().map(|name| format!("connections of {name}: another user's process")),
        );
        self.beside.take(now_ns, &mut pairs, &mut listeners, &mut not_seen);
        not_seen.extend(self.packets.not_seen());
        let ports = self.ports.take(|address| self.pairs.usual_client(address));
        let length_s = now_ns.saturating_sub(self.from_ns) as f64 / 1e9;
        let threads = self.threads.take(length_s, &mut not_seen);
        let alive: HashSet<u32> = self.sockets.iter().map(|s| s.inode).collect();
        self.pairs.keep(&alive);
        self.owners.keep(&alive.into_iter().chain(self.beside.inodes()).collect());
        let from_ns = std::mem::replace(&mut self.from_ns, now_ns);
        let spent_ns = std::mem::take(&mut self.spent_ns) + thread_cpu_ns() - before;
        Some(Evidence {
            from_s: at_s(from_ns),
            to_s: at_s(now_ns),
            socket_readings,
            thread_readings: std::mem::take(&mut self.thread_readings),
            cpu_s: spent_ns as f64 / 1e9,
            pairs,
            listeners,
            ports,
            threads,
            not_seen,
        })
    }
}
