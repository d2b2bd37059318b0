//! Connections between components, from readings of the socket table: how many are established, and on how many of them
//! the connecting end waits for an answer.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

use loadlab_record::watch::evidence::{Listener, Pair};

use super::connection::{Connection, first_request, is_held, is_under_way, waits, written};
use super::key::PairKey;
use super::owners::Owners;
use super::rhythm::{Exchanges, Rhythm, Waits};
use super::socket_reading::SocketReading;
use super::sockets::{NamespacePart, Socket, Subset};

/// Sums over the readings of a line.
#[derive(Debug, Default)]
pub(crate) struct PairSums {
    readings: u32,
    /// How many connections each connection read stands for.
    each: u64,
    pairs: BTreeMap<PairKey, TcpSums>,
    listeners: BTreeMap<(String, String), Listener>,
    /// The reading of this line in which each listener was first seen.
    first_seen: HashMap<(String, String), u32>,
    /// Segments of each pair in this reading; `rhythms` holds what the last reading's segments showed.
    segments: HashMap<PairKey, Segments>,
    rhythms: HashMap<PairKey, Option<Rhythm>>,
    /// Segments that single exchanges of each pair took.
    exchanges: HashMap<PairKey, Exchanges>,
    /// The last component seen connecting to each address.
    usual: HashMap<SocketAddr, String>,
    /// For each address, one of the sockets connected to it that no component holds.
    strangers: HashMap<SocketAddr, u32>,
    /// Each connection as of the last reading, by the inode of the connecting end.
    last: HashMap<u32, Connection>,
    /// Pairs with too many unknowns in the last line.
    tied: HashSet<PairKey>,
    /// Connections of such pairs in this reading, if requested.
    noted: Option<Vec<Noted>>,
}

/// If more than one in this many connections is unknown, the table does not show who waits.
const TIED: u64 = 10;

/// A connection of a pair with too many unknowns.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub pair: PairKey,
    pub client: SocketAddr,
    pub listener: SocketAddr,
    /// Inode of the client's socket.
    pub inode: u32,
    pub waits: Waits,
    /// Time since the client last sent, by the kernel's coarse clock.
    pub since_sent_ms: u32,
}

/// Segments with data on a pair's connections.
#[derive(Debug, Default)]
struct Segments {
    sent: u64,
    received: u64,
    connections: u64,
}

#[derive(Debug, Default)]
struct TcpSums {
    open: u64,
    busy: u64,
    unknown: u64,
    unread: u64,
    in_transit: u64,
    held_by_from: u64,
    held_by_to: u64,
    connecting: u64,
    first_request: u64,
    rtt_us: u64,
    with_rtt: u64,
    retransmits: u64,
}

impl TcpSums {
    fn is_tied(&self) -> bool {
        self.unknown * TIED > self.open
    }
}

impl PairSums {
    /// Adds a reading of this subset of all connections.
    pub fn add(&mut self, sockets: &[Socket], parts: &[NamespacePart], subset: Subset, owners: &Owners) {
        self.readings += 1;
        self.each = u64::from(subset.one_in);
        let reading = SocketReading::of(sockets, parts);
        let mut dropped = HashMap::new();
        for socket in sockets {
            if socket.is_listener {
                self.add_listener(socket, owners, &mut dropped);
            } else if reading.asks(socket) {
                self.add_connection(socket, &reading, owners);
            } else if !reading.by_ends.contains_key(&(socket.remote, socket.local)) {
                self.add_unseen_client(socket, &reading, owners);
            }
        }
        let rhythm = |s: &Segments| Rhythm::of(s.sent, s.received, s.connections);
        let exchanges = &self.exchanges;
        let known = |key: &PairKey| exchanges.get(key).and_then(Exchanges::rhythm);
        let rhythms = self.segments.drain().map(|(key, s)| {
            let rhythm = known(&key).or_else(|| rhythm(&s));
            (key, rhythm)
        });
        self.rhythms = rhythms.collect();
    }

    /// `dropped`: what the listeners in this reading have dropped so far, by component and address.
    fn add_listener(
        &mut self,
        socket: &Socket,
        owners: &Owners,
        dropped: &mut HashMap<(String, String), u64>,
    ) {
        let Some(component) = owners.of(socket.inode) else { return };
        let address = socket.local.to_string();
        let key = (component.to_owned(), address.clone());
        let is_new = *self.first_seen.entry(key.clone()).or_insert(self.readings) == self.readings;
        // Several sockets may listen on one address (`SO_REUSEPORT`).
        let now = dropped.entry(key.clone()).or_default();
        *now += u64::from(socket.drops);
        let entry = self.listeners.entry(key).or_default();
        let drops = entry.drops.max(*now);
        *entry = Listener {
            component: component.to_owned(),
            address,
            queue_max: entry.queue_max.max(socket.unread),
            backlog: socket.unsent,
            drops,
            drops_before: if is_new { drops } else { entry.drops_before },
        };
    }

    fn add_connection(&mut self, client: &Socket, reading: &SocketReading<'_>, owners: &Owners) {
        let other = reading.by_ends.get(&(client.remote, client.local)).copied();
        let listener = reading.listener(client.remote);
        // Until it is accepted, a connection has no owner: it is in the listener's queue.
        let to = other.and_then(|o| owners.of(o.inode)).or_else(|| listener.and_then(|l| owners.of(l.inode)));
        let to = to.unwrap_or_default();
        let from = match owners.of(client.inode) {
            Some(from) => {
                // A connection made for one request is gone before its owner is searched for.
                if self.usual.get(&client.remote).is_none_or(|usual| usual != from) {
                    self.usual.insert(client.remote, from.to_owned());
                }
                from.to_owned()
            }
            // Traffic between other programs on this machine does not matter.
            None if to.is_empty() => return,
            None => {
                if owners.is_stranger(client.inode) {
                    self.strangers.insert(client.remote, client.inode);
                }
                let usual = || self.usual.get(&client.remote).cloned();
                owners.of_nobody(client.remote).map(str::to_owned).or_else(usual).unwrap_or_default()
            }
        };
        let last = self.last.get(&client.inode).copied();
        let key = PairKey { from, to: to.to_owned(), address: client.remote.to_string() };
        let waits = waits(client, other, self.rhythms.get(&key).copied().flatten(), last);
        let resent =
            u64::from(client.times.retransmits) + other.map_or(0, |o| u64::from(o.times.retransmits));
        let now = Connection {
            written: written(client),
            received: client.times.bytes_received,
            waits,
            resent,
            sent: client.times.segments_out.into(),
            came: client.times.segments_in.into(),
            first_request: last.and_then(|last| last.first_request).or_else(|| first_request(client)),
        };
        self.last.insert(client.inode, now);
        if let Some(exchanged) = last.and_then(|last| last.exchanged(&now)) {
            self.exchanges.entry(key.clone()).or_default().add(exchanged);
        }
        let segments = self.segments.entry(key.clone()).or_default();
        segments.sent += u64::from(client.times.segments_out);
        segments.received += u64::from(client.times.segments_in);
        segments.connections += 1;
        let is_tied = || self.tied.contains(&key) || self.pairs.get(&key).is_some_and(TcpSums::is_tied);
        if self.noted.is_some() && is_tied() {
            let (listener, inode, since_sent_ms) = (client.remote, client.inode, client.times.since_sent_ms);
            let noted =
                Noted { pair: key.clone(), client: client.local, listener, inode, waits, since_sent_ms };
            self.noted.get_or_insert_default().push(noted);
        }
        let each = self.each;
        let sums = self.pairs.entry(key).or_default();
        sums.open += each;
        match waits {
            Waits::Yes => sums.busy += each,
            Waits::No => {}
            Waits::Unknown => sums.unknown += each,
        }
        sums.unread += each * u64::from(other.is_some_and(|o| o.unread > 0));
        let under_way = is_under_way(client, other) || other.is_some_and(|o| is_under_way(o, Some(client)));
        sums.in_transit += each * u64::from(under_way);
        sums.held_by_from += each * u64::from(is_held(client, other));
        sums.held_by_to += each * u64::from(other.is_some_and(|o| is_held(o, Some(client))));
        sums.connecting += each * u64::from(client.is_connecting);
        let is_first = client.times.segments_out <= 1 || client.times.bytes_received == 0;
        sums.first_request += each * u64::from(is_first);
        if client.times.min_rtt_us > 0 {
            sums.rtt_us += each * u64::from(client.times.min_rtt_us);
            sums.with_rtt += each;
        }
        sums.retransmits += each * last.map_or(0, |last| resent.saturating_sub(last.resent));
    }

    /// Adds a connection of which only the accepting end is in a namespace that is read.
    fn add_unseen_client(&mut self, accepted: &Socket, reading: &SocketReading<'_>, owners: &Owners) {
        let owner = owners.of(accepted.inode);
        let listener = reading.listener(accepted.local);
        let Some(to) = owner.or_else(|| listener.and_then(|l| owners.of(l.inode))) else { return };
        let each = self.each;
        let sums = self.sums("", to, accepted.local);
        sums.open += each;
        // Seen from the accepting end, the client waits if this end received after it last sent.
        let t = accepted.times;
        match t.since_received_ms.cmp(&t.since_sent_ms) {
            _ if t.bytes_received == 0 => {}
            Ordering::Less => sums.busy += each,
            Ordering::Equal => sums.unknown += each,
            Ordering::Greater => {}
        }
        sums.unread += each * u64::from(accepted.unread > 0);
    }

    fn sums(&mut self, from: &str, to: &str, address: SocketAddr) -> &mut TcpSums {
        let key = PairKey { from: from.to_owned(), to: to.to_owned(), address: address.to_string() };
        self.pairs.entry(key).or_default()
    }

    /// Sets whether the next reading notes connections of tied pairs.
    pub fn note(&mut self, is_to: bool) {
        self.noted = is_to.then(Vec::new);
    }

    /// Takes the noted connections.
    pub fn take_noted(&mut self) -> Vec<Noted> {
        self.noted.take().unwrap_or_default()
    }

    /// Addresses to which sockets of no component are connected, each with one of these sockets, since the last call.
    pub fn take_strangers(&mut self) -> HashMap<SocketAddr, u32> {
        std::mem::take(&mut self.strangers)
    }

    /// The last component seen connecting to an address.
    pub fn usual_client(&self, address: SocketAddr) -> Option<&str> {
        self.usual.get(&address).map(String::as_str)
    }

    /// Forgets connections that are gone.
    pub fn keep(&mut self, alive: &HashSet<u32>) {
        self.last.retain(|inode, _| alive.contains(inode));
    }

    /// Number of readings since the last line.
    pub fn readings(&self) -> u32 {
        self.readings
    }

    /// Means over the readings so far, which are then reset.
    pub fn take(&mut self) -> (Vec<Pair>, Vec<Listener>) {
        let n = f64::from(self.readings.max(1));
        self.tied =
            self.pairs.iter().filter(|(_, sums)| sums.is_tied()).map(|(key, _)| key.clone()).collect();
        self.exchanges.retain(|key, _| self.pairs.contains_key(key));
        let mean = |(key, sums): (PairKey, TcpSums)| Pair {
            from: key.from,
            to: key.to,
            address: key.address,
            open: sums.open as f64 / n,
            busy: sums.busy as f64 / n,
            unknown: sums.unknown as f64 / n,
            unread: sums.unread as f64 / n,
            in_transit: sums.in_transit as f64 / n,
            held_by_from: sums.held_by_from as f64 / n,
            held_by_to: sums.held_by_to as f64 / n,
            connecting: sums.connecting as f64 / n,
            first_request: sums.first_request as f64 / n,
            rtt_ms: (sums.with_rtt > 0).then(|| sums.rtt_us as f64 / sums.with_rtt as f64 / 1e3),
            retransmits: sums.retransmits,
            ..Pair::default()
        };
        let pairs = std::mem::take(&mut self.pairs).into_iter().map(mean).collect();
        let listeners = std::mem::take(&mut self.listeners).into_values().collect();
        self.first_seen.clear();
        self.readings = 0;
        (pairs, listeners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_before_the_first_reading_are_counted_separately() {
        use super::super::Members;
        use super::super::sockets::{SocketTable, Subset};
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let members = [Members { component: "web".into(), pids: vec![std::process::id()] }];
        let (mut found, mut owners, mut sums) = (Vec::new(), Owners::default(), PairSums::default());
        SocketTable::here().unwrap().read(&mut Subset::default(), &mut found).unwrap();
        found.retain(|s| s.is_listener && s.local == address);
        owners.look(&members, &found.iter().map(|s| s.inode).collect());
        // Two sockets on one address.
        let both = |first, second| {
            let socket = |drops| Socket { drops, ..found[0].clone() };
            [socket(first), socket(second)]
        };
        let mut line = |readings: &[[Socket; 2]]| {
            readings.iter().for_each(|sockets| sums.add(sockets, &[], Subset::default(), &owners));
            let (_, listeners) = sums.take();
            (listeners[0].drops_before, listeners[0].drops)
        };
        assert_eq!(line(&[both(3, 7), both(3, 7), both(9, 7)]), (10, 16));
        assert_eq!(line(&[both(9, 8)]), (17, 17));
    }

    #[test]
    fn real_connections_are_busy_while_they_wait() {
        use super::super::Members;
        use super::super::sockets::{SocketTable, Subset};
        use std::io::{Read, Write};
        use std::net::{Ipv4Addr, TcpListener, TcpStream};
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut ends: Vec<(TcpStream, TcpStream)> =
            (0..4).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0)).collect();
        let members = [Members { component: "web".into(), pids: vec![std::process::id()] }];
        let (mut table, mut found) = (SocketTable::here().unwrap(), Vec::new());
        let (mut owners, mut sums) = (Owners::default(), PairSums::default());
        let mut reading = || {
            table.read(&mut Subset::default(), &mut found).unwrap();
            let unknown = found.iter().map(|s| s.inode).filter(|i| owners.is_unknown(*i)).collect();
            owners.look(&members, &unknown);
            sums.add(&found, &[], Subset::default(), &owners);
            let (pairs, listeners) = sums.take();
            let own = pairs.into_iter().find(|p| p.address == address.to_string()).unwrap();
            assert!(listeners.iter().any(|l| l.address == address.to_string() && l.component == "web"));
            (own.from, own.open, own.busy)
        };
        assert_eq!(reading(), ("web".to_owned(), 4.0, 0.0), "nobody has asked");
        for (client, other) in ends.iter_mut().take(3) {
            client.write_all(b"?").unwrap();
            other.read_exact(&mut [0]).unwrap();
        }
        assert_eq!(reading(), ("web".to_owned(), 4.0, 3.0), "three wait for their first answer");
        for (_, other) in ends.iter_mut().take(2) {
            other.write_all(b"!").unwrap();
        }
        assert_eq!(reading(), ("web".to_owned(), 4.0, 1.0), "two were answered, whatever the clock says");
    }
}
