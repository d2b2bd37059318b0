//! Exact times of some exchanges, from their packets: if connections send and receive within one tick of the kernel's
//! clock, the socket table cannot show who waits.
//!
//! A few times a second, at random moments, the headers of some connections' packets are captured for a few hundredths
//! of a second. The time they spent waiting, divided by the time they were observed, is the busy share; divided by the
//! number of answers it is the mean wait, even if a wait is longer than a burst. It must not slow down what it
//! observes: connections are few, fewer if they are fast, and nothing is attached between bursts.

mod exchange;
mod segment;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use loadlab_record::watch::evidence::{Pair, Timed};
use rustix::time::{ClockId, clock_gettime};

use self::exchange::{ExchangeSums, Longest, PacketConnection, Read};
use self::segment::Segment;
use self::socket::{MOST_PACKETS, MOST_PORTS, PacketSocket, PortSample};
use super::Members;
use super::key::PairKey;
use super::netlink::in_namespace_of;
use super::pairs::Noted;
use super::random::Random;
use super::sockets::{NamespacePart, Socket};
use crate::clock;

/// A burst takes this long plus a random part of `BURST_MORE_NS`; the watcher rounds up to a moment when nothing is
/// due.
const BURST_NS: u64 = 25_000_000;
const BURST_MORE_NS: usize = 20_000_000;
/// Pause between bursts, likewise, with one group of connections; several groups share it.
const PAUSE_NS: u64 = 250_000_000;
const PAUSE_MORE_NS: usize = 500_000_000;
const SHORTEST_PAUSE_NS: u64 = 100_000_000;
/// Number of connections observed in a burst: at first, and at most.
const FIRST_CONNECTIONS: f64 = 4.0;
const MOST_CONNECTIONS: f64 = 16.0;
/// Packets per burst that are enough for exact times, and cost their senders little.
const ENOUGH_PACKETS: f64 = 800.0;
/// In a burst the clocks drift apart by far less: a larger step means that the date was set.
const CLOCK_STEP_NS: i128 = 1_000_000;

/// Where connections are observed: a network namespace, and in it the loopback device or the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Group {
    namespace: u64,
    is_loopback: bool,
}

/// Times exchanges in bursts.
#[derive(Debug)]
pub(super) struct PacketTimer {
    phase: Phase,
    /// When the next burst is due; 0 until the first reading.
    due_ns: u64,
    random: Random,
    /// How many connections of a group to observe.
    connections: HashMap<Group, f64>,
    sums: HashMap<PairKey, ExchangeSums>,
    longest: HashMap<PairKey, Longest>,
    /// Namespaces in which packets cannot be read.
    closed: HashSet<u64>,
    not_seen: BTreeSet<String>,
}

#[derive(Debug)]
enum Phase {
    Pause,
    /// Starts with the next reading.
    Chosen(Group, Vec<PortSample>),
    UnderWay(Box<Burst>),
}

#[derive(Debug)]
struct Burst {
    socket: PacketSocket,
    group: Group,
    samples: Vec<PortSample>,
    from: Moment,
    /// Connections by both ends, the client's first.
    connections: HashMap<(SocketAddr, SocketAddr), WatchedConnection>,
    /// The pair that a new connection to an address belongs to; `None` if there are several clients.
    pairs: HashMap<SocketAddr, Option<PairKey>>,
    /// Addresses from which connections to them come.
    clients: HashSet<IpAddr>,
}

#[derive(Debug)]
struct WatchedConnection {
    pair: PairKey,
    connection: PacketConnection,
}

/// One moment on the kernel's wall clock, which stamps packets, and on our clock.
#[derive(Clone, Copy, Debug)]
struct Moment {
    date_ns: u64,
    ns: u64,
}

impl Moment {
    fn now() -> Moment {
        let date = clock_gettime(ClockId::Realtime);
        let date_ns = date.tv_sec.unsigned_abs() * 1_000_000_000 + date.tv_nsec.unsigned_abs();
        Moment { date_ns, ns: clock::now_ns() }
    }

    /// Whether the date was not set in between.
    fn is_steady(self, until: Moment) -> bool {
        let dates_ns = i128::from(until.date_ns) - i128::from(self.date_ns);
        let own_ns = i128::from(until.ns) - i128::from(self.ns);
        (dates_ns - own_ns).abs() < CLOCK_STEP_NS
    }
}

impl Default for PacketTimer {
    fn default() -> PacketTimer {
        PacketTimer {
            phase: Phase::Pause,
            due_ns: 0,
            random: Random::new(clock::now_ns() ^ u64::from(std::process::id())),
            connections: HashMap::new(),
            sums: HashMap::new(),
            longest: HashMap::new(),
            closed: HashSet::new(),
            not_seen: BTreeSet::new(),
        }
    }
}

impl PacketTimer {
    /// Whether this reading of the socket table must note connections: a burst starts with it or with the next one.
    pub fn wants_notes(&self, now_ns: u64) -> bool {
        match self.phase {
            Phase::Pause => now_ns >= self.due_ns,
            Phase::Chosen(..) => false,
            Phase::UnderWay(_) => true,
        }
    }

    /// Starts the chosen burst. The capture starts before the table is read, so that everything after that reading is
    /// seen.
    pub fn begin(&mut self, members: &[Members]) {
        let Phase::Chosen(group, samples) = std::mem::replace(&mut self.phase, Phase::Pause) else { return };
        let open = || PacketSocket::start(open_in(group.namespace, members)?, &samples, group.is_loopback);
        match open() {
            Ok(socket) => {
                let burst = Burst {
                    socket,
                    group,
                    samples,
                    from: Moment::now(),
                    connections: HashMap::new(),
                    pairs: HashMap::new(),
                    clients: HashSet::new(),
                };
                self.phase = Phase::UnderWay(Box::new(burst));
            }
            // The processes in the namespace have ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        self.closed.insert(group.namespace);
                        "no right to read packets (CAP_NET_RAW)".to_owned()
                    }
                    // It may work the next time: a descriptor or memory may be free then.
                    _ => error.to_string(),
                };
                self.not_seen.insert(format!("exact times of connections: {why}"));
            }
        }
    }

    /// Takes the connections of tied pairs that a reading noted. Returns how long the current burst takes.
    pub fn see(
        &mut self,
        now_ns: u64,
        noted: Vec<Noted>,
        sockets: &[Socket],
        parts: &[NamespacePart],
        one_in: u32,
    ) -> Option<u64> {
        if self.due_ns == 0 {
            self.due_ns = now_ns + self.random.below(PAUSE_NS as usize) as u64;
        }
        let is_due = now_ns >= self.due_ns;
        match &mut self.phase {
            Phase::UnderWay(burst) => {
                let at_ns = Moment::now().date_ns;
                let of_group = by_group(noted, sockets, parts).remove(&burst.group).unwrap_or_default();
                burst.add_established(of_group, at_ns);
                Some(BURST_NS + self.random.below(BURST_MORE_NS) as u64)
            }
            Phase::Pause if is_due => {
                self.choose(now_ns, by_group(noted, sockets, parts), one_in);
                None
            }
            _ => None,
        }
    }

    /// Draws a group, some of its ports, and connections to them.
    fn choose(&mut self, now_ns: u64, mut groups: BTreeMap<Group, Vec<Noted>>, one_in: u32) {
        groups.retain(|group, _| !self.closed.contains(&group.namespace));
        let pause_ns = PAUSE_NS + self.random.below(PAUSE_MORE_NS) as u64;
        self.due_ns = now_ns + (pause_ns / groups.len().max(1) as u64).max(SHORTEST_PAUSE_NS);
        let drawn = self.random.below(groups.len());
        let Some((group, noted)) = groups.into_iter().nth(drawn) else { return };
        let mut clients: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for noted in noted {
            clients.entry(noted.listener.port()).or_default().push(noted.client.port());
        }
        let most = self.connections.get(&group).copied().unwrap_or(FIRST_CONNECTIONS) as usize;
        let number = clients.len().min(MOST_PORTS).min(most).max(1);
        let mut ports: Vec<u16> = clients.keys().copied().collect();
        while ports.len() > number {
            ports.swap_remove(self.random.below(ports.len()));
        }
        let mut samples = Vec::new();
        for port in ports {
            let from = clients.remove(&port).unwrap_or_default();
            samples.push(self.sample(port, &from, one_in, most / number));
        }
        self.phase = Phase::Chosen(group, samples);
    }

    /// Draws about this many of the connections to a port, by the ports they come from.
    fn sample(&mut self, port: u16, from: &[u16], one_in: u32, most: usize) -> PortSample {
        const TRIES: usize = 16;
        let most = most.max(1);
        let (mut all, mut mask) = (from.len() * one_in as usize, 0);
        while all > most && mask < 0xffff {
            all /= 2;
            mask = mask * 2 + 1;
        }
        let mut number = || self.random.below(u32::MAX as usize) as u32;
        let mut draw = || PortSample { port, factor: number() | 1, offset: number(), mask };
        let is_good = |s: &PortSample| (1..=most).contains(&from.iter().filter(|port| s.has(**port)).count());
        let first = draw();
        (1..TRIES).map(|_| draw()).chain([first]).find(is_good).unwrap_or(first)
    }

    /// Ends the current burst, if there is one.
    pub fn end(&mut self) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Pause) {
            Phase::UnderWay(burst) => {
                let (group, connections) = (burst.group, burst.connections.len().max(1) as f64);
                let packets = burst.add_up(&mut self.sums, &mut self.longest).max(1) as f64;
                let few = self.connections.entry(group).or_insert(FIRST_CONNECTIONS);
                // A burst in which little happened is a poor predictor of the next.
                *few = (connections * ENOUGH_PACKETS / packets).min(*few * 2.0).clamp(1.0, MOST_CONNECTIONS);
                true
            }
            other => {
                self.phase = other;
                false
            }
        }
    }

    /// Adds what was seen since the last call to the pairs of a line.
    pub fn fill(&mut self, pairs: &mut [Pair]) {
        self.longest.values_mut().for_each(Longest::fade);
        for (key, sums) in self.sums.drain() {
            let is_it = |p: &&mut Pair| p.from == key.from && p.to == key.to && p.address == key.address;
            if let Some(pair) = pairs.iter_mut().find(is_it) {
                pair.timed = timed(sums);
            }
        }
    }

    /// What could not be seen, and why.
    pub fn not_seen(&self) -> impl Iterator<Item = String> {
        self.not_seen.iter().cloned()
    }
}

/// By Little's law the mean wait is the time that connections waited, divided by the number of answers. Waits that
/// began before the burst or end after it count with the part inside it. Connections in an unknown state are assumed to
/// wait as often as the others.
fn timed(sums: ExchangeSums) -> Option<Timed> {
    if sums.watched_ns == 0 {
        return None;
    }
    let busy_share = (sums.busy_ns as f64 / sums.watched_ns as f64).clamp(0.0, 1.0);
    let waited_ms = busy_share * (sums.watched_ns + sums.unknown_ns) as f64 / 1e6;
    let wait_ms = if sums.exchanges > 0 { waited_ms / sums.exchanges as f64 } else { 0.0 };
    Some(Timed { exchanges: sums.exchanges, busy_share, wait_ms })
}

/// Groups connections by where they are observed.
fn by_group(noted: Vec<Noted>, sockets: &[Socket], parts: &[NamespacePart]) -> BTreeMap<Group, Vec<Noted>> {
    let mut groups: BTreeMap<Group, Vec<Noted>> = BTreeMap::new();
    if noted.is_empty() {
        return groups;
    }
    let by_inode: HashMap<u32, usize> = noted.iter().enumerate().map(|(i, n)| (n.inode, i)).collect();
    let by_other_end: HashMap<(SocketAddr, SocketAddr), usize> =
        noted.iter().enumerate().map(|(i, n)| ((n.listener, n.client), i)).collect();
    let mut places: Vec<(Option<u64>, Option<u64>)> = vec![(None, None); noted.len()];
    let mut begin = 0;
    for NamespacePart { namespace, end } in parts {
        let part = sockets.get(begin..*end).unwrap_or_default();
        begin = *end;
        for socket in part.iter().filter(|socket| !socket.is_listener) {
            if let Some(place) = by_inode.get(&socket.inode).and_then(|i| places.get_mut(*i)) {
                place.0 = Some(*namespace);
            }
            let ends = (socket.local, socket.remote);
            if let Some(place) = by_other_end.get(&ends).and_then(|i| places.get_mut(*i)) {
                place.1 = Some(*namespace);
            }
        }
    }
    for (noted, (namespace, other)) in noted.into_iter().zip(places) {
        if let Some(namespace) = namespace {
            let group = Group { namespace, is_loopback: other == Some(namespace) };
            groups.entry(group).or_default().push(noted);
        }
    }
    groups
}

/// A packet socket in a namespace that one of these members' processes is in.
fn open_in(namespace: u64, members: &[Members]) -> io::Result<std::os::fd::OwnedFd> {
    let is_in = |process: &str| {
        fs::metadata(format!("/proc/{process}/ns/net")).is_ok_and(|found| found.ino() == namespace)
    };
    if is_in("thread-self") {
        return PacketSocket::here();
    }
    let mut pids = members.iter().flat_map(|member| &member.pids);
    let pid = pids.find(|pid| is_in(&pid.to_string())).ok_or(io::ErrorKind::NotFound)?;
    in_namespace_of(*pid, PacketSocket::here)
}

impl Burst {
    /// Adds connections of the group, as in the current socket table.
    fn add_established(&mut self, noted: Vec<Noted>, at_ns: u64) {
        for noted in noted {
            let is_same = |pair: &Option<PairKey>| pair.as_ref() == Some(&noted.pair);
            let whose = self.pairs.entry(noted.listener).or_insert_with(|| Some(noted.pair.clone()));
            if !is_same(whose) {
                *whose = None;
            }
            self.clients.insert(noted.client.ip());
            let sample = self.samples.iter().find(|sample| sample.port == noted.listener.port());
            if sample.is_some_and(|sample| sample.has(noted.client.port())) {
                let since_sent_ns = u64::from(noted.since_sent_ms) * 1_000_000;
                let read = Read { at_ns, waits: noted.waits, since_sent_ns };
                let connection = PacketConnection::established(self.from.date_ns, read);
                let ends = (noted.client, noted.listener);
                self.connections.insert(ends, WatchedConnection { pair: noted.pair, connection });
            }
        }
    }

    /// Adds up what was seen. Returns the number of packets.
    fn add_up(
        mut self,
        sums: &mut HashMap<PairKey, ExchangeSums>,
        longest: &mut HashMap<PairKey, Longest>,
    ) -> usize {
        let until = Moment::now();
        let (mut segments, mut packets) = (Vec::new(), 0);
        let is_full = self.socket.read(|at_ns, head, length| {
            packets += 1;
            segments.extend(Segment::of(head, length).map(|segment| (at_ns, segment)));
        });
        if !self.from.is_steady(until) {
            return packets;
        }
        // CPUs stamp packets before they queue them, so they may be out of order.
        segments.sort_by_key(|(at_ns, _)| *at_ns);
        let last_ns = segments.last().map(|(at_ns, _)| *at_ns).filter(|_| is_full);
        let until_ns = last_ns.map_or(until.date_ns, |last_ns| last_ns.min(until.date_ns));
        for (at_ns, segment) in segments.iter().take_while(|(at_ns, _)| *at_ns <= until_ns) {
            self.add(*at_ns, segment);
        }
        let mut silent = Vec::new();
        for watched in self.connections.values_mut() {
            let longest = longest.entry(watched.pair.clone()).or_default();
            match watched.connection.end(until_ns, longest) {
                Some(seen) => sums.entry(watched.pair.clone()).or_default().add(seen),
                None => silent.push(&*watched),
            }
        }
        for watched in silent {
            let longest = longest.get(&watched.pair).copied().unwrap_or_default();
            if let Some(seen) = watched.connection.silent(until_ns, longest) {
                sums.entry(watched.pair.clone()).or_default().add(seen);
            }
        }
        // More packets than these would have arrived.
        packets.max(if is_full { 2 * MOST_PACKETS } else { 0 })
    }

    fn add(&mut self, at_ns: u64, segment: &Segment) {
        let ends = (segment.from, segment.to);
        if let Some(watched) = self.connections.get_mut(&ends) {
            return watched.connection.add(at_ns, true, segment);
        }
        if let Some(watched) = self.connections.get_mut(&(segment.to, segment.from)) {
            return watched.connection.add(at_ns, false, segment);
        }
        // A new connection from a known client. Traffic that only passes through, on a bridge, belongs to its end
        // points.
        let pair = self.pairs.get(&segment.to).cloned().flatten();
        if let Some(pair) = pair.filter(|_| segment.is_opening && self.clients.contains(&segment.from.ip())) {
            let mut connection = PacketConnection::opened(at_ns.max(self.from.date_ns));
            connection.add(at_ns, true, segment);
            self.connections.insert(ends, WatchedConnection { pair, connection });
        }
    }
}
