//! Connections between components, from readings of the socket table: how many are established, and on how many of them
//! the connecting end waits for an answer.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use loadlab_record::watch::evidence::{Listener, Pair};

use super::key::PairKey;
use super::owners::Owners;
use super::sockets::{NamespacePart, Socket, Subset, Times};

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
    last: HashMap<u32, Last>,
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

/// One reading of all namespaces.
struct SocketReading<'a> {
    by_ends: HashMap<(SocketAddr, SocketAddr), &'a Socket>,
    /// Listeners by port, each with its namespace.
    listeners: HashMap<u16, Vec<(u64, &'a Socket)>>,
    /// The namespace an address is in, as far as sockets show it.
    homes: HashMap<IpAddr, u64>,
}

impl<'a> SocketReading<'a> {
    /// Sockets beyond the last part form another namespace.
    fn of(sockets: &'a [Socket], parts: &[NamespacePart]) -> SocketReading<'a> {
        let (by_ends, listeners, homes) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut reading = SocketReading { by_ends, listeners, homes };
        let mut begin = 0;
        let last = NamespacePart { namespace: 0, end: sockets.len() };
        for NamespacePart { namespace, end } in parts.iter().copied().chain([last]) {
            for socket in sockets.get(begin..end).unwrap_or_default() {
                reading.homes.insert(socket.local.ip(), namespace);
                if socket.is_listener {
                    reading.listeners.entry(socket.local.port()).or_default().push((namespace, socket));
                } else {
                    reading.by_ends.insert((socket.local, socket.remote), socket);
                }
            }
            begin = begin.max(end);
        }
        reading
    }

    /// The listener at an address. A listener on all addresses counts only in the namespace of the address: another
    /// machine or container may use the same port.
    fn listener(&self, at: SocketAddr) -> Option<&'a Socket> {
        let all = self.listeners.get(&at.port())?;
        let home = self.homes.get(&at.ip());
        let is_there = |namespace: &u64| at.ip().is_loopback() || home == Some(namespace);
        let exact = all.iter().find(|(_, s)| s.local.ip() == at.ip());
        let found = exact.or_else(|| all.iter().find(|(n, s)| is_wildcard(s.local.ip()) && is_there(n)));
        found.map(|(_, socket)| *socket)
    }

    /// Whether this end connected: something listens at the other end. If that does not decide, the end with the lower
    /// port counts as the server's.
    fn asks(&self, socket: &Socket) -> bool {
        match (self.listener(socket.remote), self.listener(socket.local)) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            _ => socket.remote.port() < socket.local.port(),
        }
    }
}

fn is_wildcard(ip: IpAddr) -> bool {
    ip.is_unspecified()
}

/// Whether the connecting end waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    Yes,
    No,
    /// It sent and received within one tick of the kernel's clock.
    #[default]
    Unknown,
}

/// A connection as of its last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Last {
    /// Bytes the connecting end wrote.
    written: u64,
    /// Bytes the connecting end received.
    received: u64,
    waits: Waits,
    /// Segments retransmitted by either end.
    resent: u64,
    /// Segments with data that the connecting end sent and received.
    sent: u64,
    came: u64,
    /// How many segments its first request took, if it was read before the answer came.
    first_request: Option<u64>,
}

/// What one reading shows of a connection. `client` connected, `other` accepted, if it was seen. The evidence, most
/// reliable first: bytes that were not read or did not arrive; bytes that were not acknowledged, since acknowledgements
/// wait up to some 40 ms for the answer, or for the next request; the times of the last bytes either way, unless they
/// are within one tick; whether there were as many answers as requests, counted in segments; and the state at the last
/// reading of this connection.
fn waits(client: &Socket, other: Option<&Socket>, rhythm: Option<Rhythm>, last: Option<Last>) -> Waits {
    let t = client.times;
    let (written, received) = (written(client), t.bytes_received);
    if client.is_connecting {
        return Waits::Yes;
    }
    if written == 0 {
        return Waits::No;
    }
    let is_unread = other.is_some_and(|other| other.unread > 0);
    if received == 0
        || is_unread
        || is_under_way(client, other)
        || is_held(client, other)
        || other.is_some_and(|o| is_under_way(o, Some(client)) || is_held(o, Some(client)))
    {
        return Waits::Yes;
    }
    match (client.unsent > 0, other.is_some_and(|o| o.unsent > 0)) {
        (true, false) if other.is_some() => return Waits::Yes,
        (false, true) => return Waits::No,
        _ => {}
    }
    match t.since_sent_ms.cmp(&t.since_received_ms) {
        Ordering::Less => Waits::Yes,
        Ordering::Greater => Waits::No,
        // The other end saw the same bytes a moment earlier or later, perhaps in another tick.
        Ordering::Equal => match other.map(|o| o.times.since_received_ms.cmp(&o.times.since_sent_ms)) {
            Some(Ordering::Less) => Waits::Yes,
            Some(Ordering::Greater) => Waits::No,
            _ => match rhythm.map_or(Waits::Unknown, |rhythm| rhythm.waits(t)) {
                Waits::Unknown => last.map_or(Waits::Unknown, |last| last.then(written, received)),
                known => known,
            },
        },
    }
}

/// How many segments a request and its answer take on a pair's connections, if that is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rhythm {
    request: u64,
    answer: u64,
}

impl Rhythm {
    /// From all segments of a pair's connections since they were opened. The few connections that wait blur it by one
    /// exchange each.
    fn of(sent: u64, received: u64, connections: u64) -> Option<Rhythm> {
        /// With at least this many exchanges per connection, adjacent numbers of segments can be told apart.
        const MIN_EXCHANGES: u64 = 5;
        const MOST_SEGMENTS: u64 = 4;
        let mut all = (1..=MOST_SEGMENTS)
            .flat_map(|request| (1..=MOST_SEGMENTS).map(move |answer| Rhythm { request, answer }));
        all.find(|r| {
            let (asked, answered) = (sent / r.request, received / r.answer);
            asked >= MIN_EXCHANGES * connections && (answered..=answered + connections + 1).contains(&asked)
        })
    }

    /// Whether a connection waits: all requests are answered, or all but one.
    fn waits(self, t: Times) -> Waits {
        let (out, came) = (u64::from(t.segments_out), u64::from(t.segments_in));
        if out == 0 || out % self.request != 0 || came % self.answer != 0 {
            return Waits::Unknown;
        }
        match (out / self.request).checked_sub(came / self.answer) {
            Some(0) => Waits::No,
            Some(1) => Waits::Yes,
            _ => Waits::Unknown,
        }
    }
}

/// How many segments a request and its answer took, from single connections between two readings. Where answers take
/// long, this is known several exchanges earlier than from the sums over all connections.
#[derive(Debug, Default)]
struct Exchanges {
    /// How often each combination was seen; exchanges that fit none are in `others`.
    seen: BTreeMap<(u64, u64), u64>,
    others: u64,
}

impl Exchanges {
    /// With this many exchanges, nearly all alike, the next is assumed to be like them.
    const MIN_EXCHANGES: u64 = 5;
    const ALIKE_PERCENT: u64 = 90;
    const MOST_KINDS: usize = 16;

    /// Adds what a connection that had been answered before exchanged since it was last read. If it is in the same
    /// state as then, waiting or not, these are whole exchanges. If the state has changed, they match no others.
    fn add(&mut self, exchanged: Exchanged) {
        let Exchanged { request, sent, received } = exchanged;
        let answer =
            (received * request).checked_div(sent).filter(|a| *a > 0 && a * sent == received * request);
        let Some(answer) = answer.filter(|_| sent.is_multiple_of(request)) else {
            self.others += 1;
            return;
        };
        let kind = (request, answer);
        match self.seen.contains_key(&kind) || self.seen.len() < Self::MOST_KINDS {
            true => *self.seen.entry(kind).or_default() += 1,
            false => self.others += 1,
        }
    }

    fn rhythm(&self) -> Option<Rhythm> {
        let all = self.others + self.seen.values().sum::<u64>();
        let ((request, answer), most) = self.seen.iter().max_by_key(|(_, n)| **n)?;
        let is_sure = *most >= Self::MIN_EXCHANGES && most * 100 >= all * Self::ALIKE_PERCENT;
        is_sure.then_some(Rhythm { request: *request, answer: *answer })
    }
}

/// Segments that a connection exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exchanged {
    /// Of its first request.
    request: u64,
    /// Sent since the last reading.
    sent: u64,
    /// Received since then.
    received: u64,
}

impl Last {
    /// What this connection exchanged since the last reading, if it had been answered before and its first request was
    /// seen.
    fn exchanged(&self, now: &Last) -> Option<Exchanged> {
        let request = self.first_request.filter(|_| self.received > 0 && now.resent == 0)?;
        let (sent, received) = (now.sent.checked_sub(self.sent)?, now.came.checked_sub(self.came)?);
        (sent > 0 && received > 0).then_some(Exchanged { request, sent, received })
    }

    /// The state that follows from this one, given the bytes written and received by now.
    fn then(self, written: u64, received: u64) -> Waits {
        match (written == self.written, received == self.received) {
            (true, true) => self.waits,
            (false, true) => Waits::Yes,
            (true, false) => Waits::No,
            (false, false) => Waits::Unknown,
        }
    }
}

/// Segments of a first request that has arrived and is not answered yet.
fn first_request(client: &Socket) -> Option<u64> {
    let t = client.times;
    let has_arrived = t.bytes_received == 0 && client.unsent == 0;
    (has_arrived && t.segments_out > 0).then(|| t.segments_out.into())
}

/// Bytes that an end wrote. The handshake counts as one acknowledged byte.
fn written(socket: &Socket) -> u64 {
    (socket.times.bytes_acked + u64::from(socket.unsent)).saturating_sub(1)
}

/// Whether bytes that one end wrote have not reached the other, which has read everything that arrived. Reading all
/// sockets takes a fraction of a millisecond: if the other end was read first, the bytes must be older than that.
fn is_under_way(from: &Socket, to: Option<&Socket>) -> bool {
    let Some(to) = to.filter(|to| to.unread == 0) else { return false };
    let is_seen_in_order = from.place <= to.place || from.times.since_sent_ms > 0;
    is_seen_in_order && from.unsent > 0 && to.times.bytes_received < written(from) && !is_held(from, Some(to))
}

/// Whether less than a segment is held back by its writer although everything it sent has arrived and been read: it
/// waits for an acknowledgement first (Nagle), and the other end delays that.
fn is_held(from: &Socket, to: Option<&Socket>) -> bool {
    let (not_sent, sent) = (from.times.not_sent, written(from).saturating_sub(from.times.not_sent.into()));
    let is_small = not_sent > 0 && not_sent < from.times.segment_bytes;
    is_small && to.is_some_and(|to| to.unread == 0 && to.times.bytes_received >= sent)
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
        let now = Last {
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

    fn end(sent_ms: u32, received_ms: u32, written: u64, received: u64) -> Socket {
        let at = "127.0.0.1:1".parse().unwrap();
        let times = Times {
            since_sent_ms: sent_ms,
            since_received_ms: received_ms,
            // The handshake counts as one byte.
            bytes_acked: written + 1,
            bytes_received: received,
            ..Times::default()
        };
        Socket {
            is_listener: false,
            is_connecting: false,
            place: 0,
            local: at,
            remote: at,
            inode: 7,
            unread: 0,
            unsent: 0,
            drops: 0,
            times,
        }
    }

    #[test]
    fn who_sent_last_waits() {
        use Waits::{No, Unknown, Yes};
        let answered = |sent, received| Some(end(sent, received, 50, 10));
        let check = |client: Socket, other: Option<Socket>, last: Option<Last>, expect: Waits, what: &str| {
            assert_eq!(waits(&client, other.as_ref(), None, last), expect, "{what}");
        };
        check(end(4, 100, 10, 50), None, None, Yes, "sent 4 ms ago, received 100 ms ago");
        check(end(100, 4, 10, 50), None, None, No, "received last");
        check(end(900, 900, 0, 0), None, None, No, "a pool's connection that was never used");
        check(end(8, 8, 10, 0), None, None, Yes, "asked, and never answered");
        check(end(8, 8, 10, 50), answered(8, 8), None, Unknown, "a tie at both ends");
        check(end(8, 8, 10, 50), answered(12, 8), None, Yes, "the other end received after it sent");
        check(end(8, 8, 10, 50), answered(8, 12), None, No, "the other end sent after it received");
        let unread = Socket { unread: 10, ..end(8, 8, 50, 0) };
        check(end(8, 8, 10, 50), Some(unread), None, Yes, "the question was not read");
        let acked = |client: u32, other: u32| {
            (
                Socket { unsent: client, ..end(8, 8, 10, 50) },
                Some(Socket { unsent: other, ..end(8, 8, 50, 10 + u64::from(client)) }),
            )
        };
        let (client, other) = acked(10, 0);
        check(client, other, None, Yes, "the question waits for its acknowledgement");
        let last = |written, received, waits| Some(Last { written, received, waits, ..Last::default() });
        check(end(8, 8, 10, 50), None, last(10, 50, Yes), Yes, "nothing has changed");
        check(end(8, 8, 10, 50), None, last(0, 50, No), Yes, "it has asked since");
        check(end(8, 8, 10, 50), None, last(10, 0, Yes), No, "it was answered since");
        check(end(8, 8, 10, 50), None, last(0, 0, No), Unknown, "both");
    }

    #[test]
    fn bytes_under_way_are_waited_for() {
        // Ten bytes were written, and four have arrived.
        let client = Socket { unsent: 10, ..end(8, 8, 0, 50) };
        let other = end(8, 8, 50, 4);
        assert!(is_under_way(&client, Some(&other)));
        assert_eq!(waits(&client, Some(&other), None, None), Waits::Yes);
        assert!(!is_under_way(&client, Some(&end(8, 8, 50, 10))));
        // Bytes that arrived but were not read are not in flight.
        assert!(!is_under_way(&client, Some(&Socket { unread: 4, ..other.clone() })));
        // Written just now, after the other end was read.
        let quick = Socket { unsent: 10, place: 9, ..end(0, 8, 0, 50) };
        assert!(
            !is_under_way(&quick, Some(&other)) && is_under_way(&Socket { place: 0, ..quick }, Some(&other))
        );
    }

    #[test]
    fn a_rhythm_shows_which_connections_await_an_answer() {
        // Ten connections, 28 exchanges each, of one segment there and two back; nine of ten wait.
        let rhythm = Rhythm::of(10 * 28 + 9, 10 * 56, 10).unwrap();
        assert_eq!(rhythm, Rhythm { request: 1, answer: 2 });
        let of =
            |segments_out, segments_in| rhythm.waits(Times { segments_out, segments_in, ..Times::default() });
        assert_eq!((of(28, 56), of(29, 56)), (Waits::No, Waits::Yes));
        assert_eq!((of(29, 57), of(31, 56), of(0, 0)), (Waits::Unknown, Waits::Unknown, Waits::Unknown));
        // Too few exchanges to be sure; answers of varying length; more answers than requests.
        assert_eq!(Rhythm::of(30, 60, 10), None);
        assert_eq!(Rhythm::of(280, 1711, 10), None);
    }

    #[test]
    fn a_few_slow_exchanges_show_what_one_takes() {
        let rhythm = |all: &[(u64, u64, u64)]| {
            let mut exchanges = Exchanges::default();
            for &(request, sent, received) in all {
                exchanges.add(Exchanged { request, sent, received });
            }
            exchanges.rhythm().map(|r| (r.request, r.answer))
        };
        assert_eq!(rhythm(&[(1, 1, 1); 5]), Some((1, 1)));
        assert_eq!(rhythm(&[(1, 1, 2), (1, 1, 2), (1, 3, 6), (1, 2, 4), (1, 1, 2)]), Some((1, 2)));
        assert_eq!(rhythm(&[(2, 2, 1); 5]), Some((2, 1)));
        assert_eq!(rhythm(&[(1, 1, 1); 4]), None, "too few");
        // A connection that waited no longer does when it is read again: two answers to one request, and vice versa.
        let mixed = [[(1, 1, 2); 5], [(1, 2, 1); 5]].concat();
        assert_eq!(rhythm(&mixed), None);
        assert_eq!(rhythm(&[[(1, 1, 1); 9].as_slice(), &[(1, 1, 2)]].concat()), Some((1, 1)));
        // Answers of varying length, and requests unlike the first.
        assert_eq!(rhythm(&(1..40).map(|n| (1, 1, n)).collect::<Vec<_>>()), None);
        assert_eq!(rhythm(&[(2, 3, 3); 5]), None);
    }

    #[test]
    fn exchanges_are_counted_from_the_second_answer_on() {
        let at = |received, sent, came| Last { received, sent, came, ..Last::default() };
        let first = Last { first_request: Some(1), ..at(50, 2, 1) };
        let expect = Exchanged { request: 1, sent: 1, received: 1 };
        assert_eq!(first.exchanged(&at(100, 3, 2)), Some(expect));
        // Only one of the two has changed; something was retransmitted; the first request was not seen, or is the last.
        assert_eq!(first.exchanged(&at(50, 3, 1)), None);
        assert_eq!(first.exchanged(&Last { resent: 1, ..at(100, 3, 2) }), None);
        assert_eq!(at(50, 2, 1).exchanged(&at(100, 3, 2)), None);
        assert_eq!(Last { first_request: Some(1), ..at(0, 1, 0) }.exchanged(&at(100, 3, 2)), None);
    }

    #[test]
    fn a_listener_on_all_addresses_is_meant_only_where_the_address_is() {
        let socket = |local: &str, remote: &str, is_listener: bool, inode: u32| Socket {
            is_listener,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            inode,
            ..end(8, 8, 0, 0)
        };
        let listener = |local: &str, inode| socket(local, "0.0.0.0:0", true, inode);
        // Two containers, each with a server on port 80 of all addresses; an accepted connection shows where an address
        // is.
        let sockets = [
            listener("0.0.0.0:80", 1),
            socket("10.0.0.2:80", "10.0.0.9:5000", false, 2),
            listener("0.0.0.0:80", 3),
            listener("10.0.0.3:443", 4),
            listener("0.0.0.0:443", 5),
            socket("10.0.0.3:80", "10.0.0.9:5001", false, 6),
            socket("10.0.0.3:5002", "203.0.113.5:80", false, 7),
        ];
        let parts = [(11, 2), (12, 7)].map(|(namespace, end)| NamespacePart { namespace, end });
        let reading = SocketReading::of(&sockets, &parts);
        let at = |at: &str| reading.listener(at.parse().unwrap()).map(|s| s.inode);
        assert_eq!((at("10.0.0.2:80"), at("10.0.0.3:80")), (Some(1), Some(3)));
        assert_eq!(at("10.0.0.3:443"), Some(4), "the one at the address itself");
        assert_eq!(at("203.0.113.5:80"), None, "another machine");
        assert_eq!(at("127.0.0.1:80"), Some(1), "somebody here");
        assert!(reading.asks(&sockets[6]) && !reading.asks(&sockets[1]));
    }

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
