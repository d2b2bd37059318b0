//! Connections over Unix sockets: how many are established, and on which of them the connecting end waits.
//!
//! Such sockets have no times and count no bytes. The evidence, most reliable first: bytes that were not read; threads
//! blocked in a receive on one end ([`super::waits`]); and connections that live shorter than the interval between
//! readings, since they are opened for one request. The others are reported as unknown: an idle pool looks like a busy
//! one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use loadlab_record::watch::evidence::{Listener, Pair};
use loadlab_record::watch::names::GENERATOR;

use super::key::PairKey;
use super::netlink::{Netlink, attributes, u32_at};
use super::owners::{LoadAddresses, Owners};
use super::turnover::Turnover;
use super::waits::{Attends, WaitInspector};

/// `UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN`.
const SHOWN: u32 = 0x1 | 0x4 | 0x8 | 0x10;
/// The attributes requested, in this order.
const NAME: u16 = 0;
const PEER: u16 = 2;
const PENDING: u16 = 3;
const QUEUES: u16 = 4;
/// States by the kernel's numbers.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// CPU budget for inspecting threads in one reading.
const WAITS_NS: u64 = 400_000;
/// If this share of the connections seen were new, and gone in the next reading, each is opened for one request.
const NEW_SHARE: f64 = 0.7;

/// One end of a connection, or a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnixSocket {
    pub is_listener: bool,
    /// Its inode; 0 if no process holds it (any more, or yet).
    pub inode: u32,
    /// Inode of the other end; 0 if that is closed, or not accepted yet.
    pub peer: u32,
    /// The path it is bound to, `@NAME` for an abstract one; empty if not bound. An accepted socket has its listener's.
    pub address: String,
    /// Bytes that arrived but were not read; for a listener, connections waiting to be accepted.
    pub unread: u32,
    /// Memory of what was written but not read by the other end; for a listener, the maximum queue length.
    pub unsent: u32,
    /// For a listener, inodes of the connections waiting to be accepted.
    pub pending: Vec<u32>,
}

/// Reads established connections and listeners of one namespace, and appends them to `into`.
///
/// # Errors
/// The kernel does not answer, or has no such table.
pub(crate) fn read(netlink: &mut Netlink, into: &mut Vec<UnixSocket>) -> io::Result<()> {
    // `struct unix_diag_req`
    let mut body = [0; 24];
    body[0] = libc::AF_UNIX as u8;
    body[4..8].copy_from_slice(&(1u32 << ESTABLISHED | 1 << LISTEN).to_ne_bytes());
    body[12..16].copy_from_slice(&SHOWN.to_ne_bytes());
    netlink.dump(&body, |rows| into.extend(rows.iter().filter_map(socket)))
}

/// Parses `struct unix_diag_msg` and its attributes; `None` for datagram sockets, which have no connections.
fn socket(body: &[u8]) -> Option<UnixSocket> {
    const HEAD: usize = 16;
    let (family, kind, state) = (*body.first()?, i32::from(*body.get(1)?), *body.get(2)?);
    let is_stream = matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET);
    if i32::from(family) != libc::AF_UNIX || !is_stream || body.len() < HEAD {
        return None;
    }
    let mut found = UnixSocket {
        is_listener: state == LISTEN,
        inode: u32_at(body, 4)?,
        peer: 0,
        address: String::new(),
        unread: 0,
        unsent: 0,
        pending: Vec::new(),
    };
    for (kind, value) in attributes(body.get(HEAD..).unwrap_or_default()) {
        match kind {
            NAME => found.address = address(value),
            PEER => found.peer = u32_at(value, 0).unwrap_or(0),
            PENDING => found.pending.extend((0..value.len()).step_by(4).map_while(|at| u32_at(value, at))),
            QUEUES => {
                (found.unread, found.unsent) = (u32_at(value, 0).unwrap_or(0), u32_at(value, 4).unwrap_or(0));
            }
            _ => {}
        }
    }
    Some(found)
}

/// A path, or `@` and the name after the leading zero byte for an abstract name. Control characters become `?`.
fn address(bytes: &[u8]) -> String {
    let (mark, name) = match bytes {
        [0, rest @ ..] => ("@", rest),
        path => ("", path.split(|byte| *byte == 0).next().unwrap_or_default()),
    };
    let clean = |c: char| if c.is_control() { '?' } else { c };
    mark.chars().chain(String::from_utf8_lossy(name).chars().map(clean)).collect()
}

/// Sums over the readings of a line.
#[derive(Debug, Default)]
struct UnixSums {
    open: u64,
    /// Decided by the queues: waiting, and answered.
    queued: u64,
    answered: u64,
    /// Decided by threads: waiting, and not.
    awaited: u64,
    idle: u64,
    unknown: u64,
    /// Connections whose threads were not inspected.
    skipped: u64,
    unread: u64,
    made: u64,
    gone: u64,
}

/// A connection, and the pair it belongs to.
struct UnixConnection<'a> {
    client: &'a UnixSocket,
    /// The accepted end; `None` while it waits to be accepted.
    other: Option<&'a UnixSocket>,
    key: PairKey,
}

/// Adds up who waits for whom.
#[derive(Debug, Default)]
pub(crate) struct UnixPairs {
    readings: u32,
    pairs: BTreeMap<PairKey, UnixSums>,
    listeners: BTreeMap<(String, String), Listener>,
    turnover: Turnover<PairKey>,
    /// The last component seen connecting to each address.
    usual: HashMap<String, String>,
    of_load: LoadAddresses<String>,
    waits: WaitInspector,
    /// Addresses whose accepted ends were each seen to have a thread or process that waits for the next request.
    served: HashSet<String>,
    /// Whether a component holds an end of a connection, or listens.
    is_used: bool,
}

/// One reading of all namespaces: a path can be connected to from any of them.
struct UnixReading<'a> {
    by_inode: HashMap<u32, &'a UnixSocket>,
    listeners: HashMap<&'a str, &'a UnixSocket>,
    pending: HashMap<u32, &'a UnixSocket>,
}

impl<'a> UnixReading<'a> {
    fn of(sockets: &'a [UnixSocket]) -> UnixReading<'a> {
        let mut reading =
            UnixReading { by_inode: HashMap::new(), listeners: HashMap::new(), pending: HashMap::new() };
        for socket in sockets {
            if socket.is_listener {
                reading.listeners.insert(&socket.address, socket);
                reading.pending.extend(socket.pending.iter().map(|inode| (*inode, socket)));
            } else if socket.inode != 0 {
                reading.by_inode.insert(socket.inode, socket);
            }
        }
        reading
    }

    /// The address an end connected to, and the accepted end; `None` if this is itself an accepted end, or unconnected.
    fn asks(&self, socket: &'a UnixSocket) -> Option<(&'a str, Option<&'a UnixSocket>)> {
        if socket.is_listener {
            return None;
        }
        if socket.peer == 0 {
            return self.pending.get(&socket.inode).map(|listener| (listener.address.as_str(), None));
        }
        let peer = self.by_inode.get(&socket.peer).copied()?;
        // A connecting socket need not have a name, and mostly has none.
        let is_accepted = |s: &UnixSocket| !s.address.is_empty();
        let listens = |s: &UnixSocket| self.listeners.contains_key(s.address.as_str());
        let asks = match (is_accepted(socket), is_accepted(peer)) {
            (false, true) => true,
            (true, true) => listens(peer) && !listens(socket),
            _ => false,
        };
        asks.then_some((peer.address.as_str(), Some(peer)))
    }
}

/// Whether the connecting end waits for an answer, as its threads and those of the other end show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Yes,
    No,
    Unknown,
    Skipped,
}

/// `serves_each`: the accepting end has a thread per connection, so that a connection on which no thread receives is
/// being worked on.
fn waiting(client: Attends, other: Attends, serves_each: bool) -> Waiting {
    match (client, other) {
        // They were inspected one after the other, and an answer came in between; or both wait for an event.
        (Attends::Awaits, Attends::Awaits) => Waiting::Unknown,
        (Attends::Awaits, _) => Waiting::Yes,
        // If only one of the two states can be seen, only the readings that show it would count.
        (Attends::Skipped, Attends::Awaits) if !serves_each => Waiting::Skipped,
        (_, Attends::Awaits) | (Attends::Not, _) => Waiting::No,
        (Attends::Hidden | Attends::Skipped, Attends::Not) if serves_each => Waiting::Yes,
        (Attends::Skipped, _) | (_, Attends::Skipped) => Waiting::Skipped,
        (Attends::Hidden, _) => Waiting::Unknown,
    }
}

impl UnixPairs {
    /// Inodes of the sockets in this reading whose owner matters: those connected to a listener, and listeners.
    pub fn relevant(sockets: &[UnixSocket]) -> impl Iterator<Item = u32> {
        let reading = UnixReading::of(sockets);
        let mut found: BTreeSet<u32> =
            sockets.iter().filter(|s| s.is_listener).map(|listener| listener.inode).collect();
        for socket in sockets {
            if let Some((_, other)) = reading.asks(socket) {
                found.extend([socket.inode, other.map_or(0, |other| other.inode)]);
            }
        }
        found.into_iter().filter(|inode| *inode != 0)
    }

    /// Whether a component has such a socket, as of the last reading.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// CPU time spent on inspecting threads in the last reading; it has its own budget.
    pub fn threads_ns(&self) -> u64 {
        self.waits.spent_ns()
    }

    /// Number of readings since the last line.
    pub fn readings(&self) -> u32 {
        self.readings
    }

    /// Adds a reading.
    pub fn add(&mut self, sockets: &[UnixSocket], owners: &Owners, now_ns: u64) {
        self.readings += 1;
        self.is_used = false;
        let reading = UnixReading::of(sockets);
        for socket in sockets.iter().filter(|socket| socket.is_listener) {
            self.add_listener(socket, owners);
        }
        let (mut connections, mut strangers) = (Vec::new(), HashMap::new());
        for socket in sockets {
            let Some((address, other)) = reading.asks(socket) else { continue };
            let key = self.key(socket, other, address, &reading, owners);
            if owners.is_stranger(socket.inode) && !key.to.is_empty() {
                strangers.insert(address.to_owned(), socket.inode);
            }
            let is_seen = !key.from.is_empty() || !key.to.is_empty();
            // A component's connections to itself do not count.
            if is_seen && key.from != key.to {
                connections.push(UnixConnection { client: socket, other, key });
            }
        }
        self.is_used |= !connections.is_empty();
        self.of_load.look(strangers, |inode| reading.by_inode.contains_key(&inode));
        self.look_at_threads(&connections, owners);
        let mut accepted: HashMap<u32, usize> = HashMap::new();
        for pid in connections.iter().filter_map(|c| owners.process_of(c.other?.inode)) {
            *accepted.entry(pid).or_default() += 1;
        }
        for connection in &connections {
            self.add_connection(connection, &accepted, owners, now_ns);
        }
        for (key, _) in self.turnover.end(now_ns) {
            self.pairs.entry(key).or_default().gone += 1;
        }
    }

    fn add_listener(&mut self, socket: &UnixSocket, owners: &Owners) {
        let Some(component) = owners.of(socket.inode) else { return };
        self.is_used = true;
        let key = (component.to_owned(), socket.address.clone());
        let entry = self.listeners.entry(key).or_default();
        *entry = Listener {
            component: component.to_owned(),
            address: socket.address.clone(),
            queue_max: entry.queue_max.max(socket.unread),
            backlog: socket.unsent,
            drops: 0,
            drops_before: 0,
        };
    }

    fn key(
        &mut self,
        client: &UnixSocket,
        other: Option<&UnixSocket>,
        address: &str,
        reading: &UnixReading<'_>,
        owners: &Owners,
    ) -> PairKey {
        let from = match owners.of(client.inode) {
            Some(from) => {
                // A connection made for one request is gone before its owner is searched for.
                if self.usual.get(address).is_none_or(|usual| usual != from) {
                    self.usual.insert(address.to_owned(), from.to_owned());
                }
                from.to_owned()
            }
            None => {
                let usual = || self.usual.get(address).cloned();
                self.of_load.of_nobody(address).map(str::to_owned).or_else(usual).unwrap_or_default()
            }
        };
        let listener =
            || reading.pending.get(&client.inode).or_else(|| reading.listeners.get(address)).map(|l| l.inode);
        let to = other.and_then(|o| owners.of(o.inode)).or_else(|| owners.of(listener()?));
        PairKey { from, to: to.unwrap_or_default().to_owned(), address: address.to_owned() }
    }

    /// Inspects the threads of the processes at either end, if the queues do not decide.
    fn look_at_threads(&mut self, connections: &[UnixConnection<'_>], owners: &Owners) {
        let mut ends: BTreeMap<u32, HashSet<u32>> = BTreeMap::new();
        for connection in connections.iter().filter(|c| by_queues(c).is_none()) {
            let own = Some(connection.client).filter(|_| connection.key.from != GENERATOR);
            for socket in own.into_iter().chain(connection.other) {
                if let Some(pid) = owners.process_of(socket.inode) {
                    ends.entry(pid).or_default().insert(socket.inode);
                }
            }
        }
        self.waits.look(&ends, WAITS_NS);
    }

    fn add_connection(
        &mut self,
        connection: &UnixConnection<'_>,
        accepted: &HashMap<u32, usize>,
        owners: &Owners,
        now_ns: u64,
    ) {
        let UnixConnection { client, other, key } = connection;
        let age = self.turnover.see(client.inode, key, now_ns);
        let attends = |socket: Option<&UnixSocket>| {
            let Some(inode) = socket.map(|s| s.inode) else { return Attends::Hidden };
            owners.process_of(inode).map_or(Attends::Hidden, |pid| self.waits.of(pid, inode))
        };
        let serves_each = other.and_then(|o| owners.process_of(o.inode)).is_some_and(|pid| {
            accepted.get(&pid).is_some_and(|connections| self.waits.threads(pid) >= *connections)
        });
        let own = Some(*client).filter(|_| key.from != GENERATOR);
        let (by_client, by_other) = (attends(own), attends(*other));
        if by_other == Attends::Awaits && !self.served.contains(&key.address) {
            self.served.insert(key.address.clone());
        }
        let serves_each = serves_each && self.served.contains(&key.address);
        let by_threads = || waiting(by_client, by_other, serves_each);
        let by_queues = by_queues(connection);
        let sums = self.pairs.entry(key.clone()).or_default();
        sums.open += 1;
        sums.made += u64::from(age.is_new);
        sums.unread += u64::from(by_queues == Some(true));
        match by_queues {
            Some(true) => sums.queued += 1,
            Some(false) => sums.answered += 1,
            None => match by_threads() {
                Waiting::Yes => sums.awaited += 1,
                Waiting::No => sums.idle += 1,
                Waiting::Unknown => sums.unknown += 1,
                Waiting::Skipped => sums.skipped += 1,
            },
        }
    }

    /// Means over the readings so far, which are then reset.
    pub fn take(&mut self) -> (Vec<Pair>, Vec<Listener>) {
        let n = f64::from(self.readings.max(1));
        let all = std::mem::take(&mut self.pairs).into_iter();
        let pairs = all.filter(|(_, sums)| sums.open > 0).map(|(key, sums)| sums.pair(key, n)).collect();
        let listeners = std::mem::take(&mut self.listeners).into_values().collect();
        self.readings = 0;
        (pairs, listeners)
    }
}

/// Whether the connecting end waits, if unread bytes show that.
fn by_queues(connection: &UnixConnection<'_>) -> Option<bool> {
    let is_unread = match connection.other {
        Some(other) => other.unread > 0,
        // The other end of an unaccepted connection is not in the table, but what was written to it is counted.
        None => connection.client.unsent > 0,
    };
    match (is_unread, connection.client.unread > 0) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

impl UnixSums {
    fn pair(&self, key: PairKey, readings: f64) -> Pair {
        let looked_at = (self.awaited + self.idle + self.unknown) as f64;
        let skipped = self.skipped as f64;
        // The set of inspected connections varies: the others are assumed to be like them.
        let each = if looked_at > 0.0 { (looked_at + skipped) / looked_at } else { 0.0 };
        let mut busy = self.queued as f64 + self.awaited as f64 * each;
        let mut unknown = if looked_at > 0.0 { self.unknown as f64 * each } else { skipped };
        if self.made.min(self.gone) as f64 >= NEW_SHARE * self.open as f64 {
            busy += std::mem::take(&mut unknown);
        }
        Pair {
            from: key.from,
            to: key.to,
            address: key.address,
            is_unix: true,
            open: self.open as f64 / readings,
            busy: busy / readings,
            unknown: unknown / readings,
            unread: self.unread as f64 / readings,
            made: self.made,
            ..Pair::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::{BY_FAMILY, Rows, message};
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    fn all() -> Vec<UnixSocket> {
        let (mut netlink, mut found) = (Netlink::here().unwrap(), Vec::new());
        read(&mut netlink, &mut found).unwrap();
        found
    }

    fn inode(of: &impl std::os::fd::AsFd) -> u32 {
        rustix::fs::fstat(of).unwrap().st_ino as u32
    }

    #[test]
    fn both_ends_the_listener_and_who_waits_in_its_queue_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let mut queued = UnixStream::connect(&path).unwrap();
        client.write_all(b"question").unwrap();
        queued.write_all(b"?").unwrap();
        let found = all();
        let of = |inode: u32| found.iter().find(|s| s.inode == inode).cloned().unwrap();
        let (here, there) = (of(inode(&client)), of(inode(&accepted)));
        assert_eq!((here.peer, there.peer), (there.inode, here.inode));
        assert_eq!((here.unread, there.unread, there.address.as_str()), (0, 8, path.to_str().unwrap()));
        assert!(here.unsent > 0 && here.address.is_empty());
        let listens = of(inode(&listener));
        assert!(listens.is_listener && listens.unsent > 0, "{listens:?}");
        assert_eq!((listens.unread, listens.pending), (1, vec![inode(&queued)]));
        let reading = UnixReading::of(&found);
        let (address, other) = reading.asks(&found[index(&found, here.inode)]).unwrap();
        assert_eq!((address, other), (path.to_str().unwrap(), Some(&there)));
        assert_eq!(reading.asks(&found[index(&found, there.inode)]), None);
        let waits = of(inode(&queued));
        assert_eq!(reading.asks(&found[index(&found, waits.inode)]), Some((path.to_str().unwrap(), None)));
        assert!(waits.unsent > 0);
        accepted.read_exact(&mut [0; 8]).unwrap();
        let found = all();
        assert_eq!(found[index(&found, here.inode)].unsent, 0);
    }

    fn index(found: &[UnixSocket], inode: u32) -> usize {
        found.iter().position(|s| s.inode == inode).unwrap()
    }

    #[test]
    fn abstract_names_and_those_of_pairs() {
        let name = format!("loadlab-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let (one, _other) = UnixStream::pair().unwrap();
        let found = all();
        assert_eq!(found[index(&found, inode(&listener))].address, format!("@{name}"));
        // An unconnected socket.
        assert_eq!(UnixReading::of(&found).asks(&found[index(&found, inode(&one))]), None);
        assert_eq!(address(b"\0a\0b"), "@a?b");
        assert_eq!(address(b"/run/\x1b[1m.sock\0"), "/run/?[1m.sock");
        assert_eq!((address(b""), address(b"\xff\0")), (String::new(), "\u{fffd}".to_owned()));
    }

    #[test]
    fn who_waits_is_inferred_from_threads() {
        use Attends::{Awaits, Hidden, Not, Skipped};
        let check = |client, other, serves_each, expect| {
            assert_eq!(waiting(client, other, serves_each), expect, "{client:?} {other:?} {serves_each}");
        };
        // A pool of blocking threads: all of them are seen.
        check(Awaits, Hidden, false, Waiting::Yes);
        check(Awaits, Not, false, Waiting::Yes);
        check(Not, Hidden, false, Waiting::No);
        check(Not, Not, true, Waiting::No);
        // A client with an event loop, and a server with a thread or process per connection.
        check(Hidden, Awaits, true, Waiting::No);
        check(Hidden, Not, true, Waiting::Yes);
        check(Hidden, Not, false, Waiting::Unknown);
        // Both wait: for an event, or an answer came between the two looks.
        check(Awaits, Awaits, true, Waiting::Unknown);
        check(Hidden, Hidden, true, Waiting::Unknown);
        check(Skipped, Hidden, true, Waiting::Skipped);
        check(Hidden, Skipped, true, Waiting::Skipped);
        check(Hidden, Awaits, false, Waiting::No);
        check(Skipped, Awaits, true, Waiting::No);
        check(Skipped, Not, true, Waiting::Yes);
        check(Skipped, Awaits, false, Waiting::Skipped);
        check(Skipped, Not, false, Waiting::Skipped);
    }

    #[test]
    fn sums_become_means() {
        let key = || PairKey { from: "web".into(), to: "store".into(), address: "/s".into() };
        let figures = |sums: UnixSums| {
            let pair = sums.pair(key(), 10.0);
            (pair.open, pair.busy, pair.unknown)
        };
        let plain =
            UnixSums { open: 40, queued: 5, answered: 5, awaited: 20, unknown: 10, ..UnixSums::default() };
        assert_eq!(figures(plain), (4.0, 2.5, 1.0));
        // Half of them were not inspected, and are assumed to be like the others.
        let skipped =
            UnixSums { open: 40, awaited: 5, idle: 10, unknown: 5, skipped: 20, ..UnixSums::default() };
        assert_eq!(figures(skipped), (4.0, 1.0, 1.0));
        assert_eq!(figures(UnixSums { open: 40, skipped: 40, ..UnixSums::default() }), (4.0, 0.0, 4.0));
        // Nearly all are new each time: each connection is made for one request.
        let short = UnixSums { open: 40, unknown: 40, made: 40, gone: 38, ..UnixSums::default() };
        assert_eq!(figures(short), (4.0, 4.0, 0.0));
        // A pool that was filled during this line.
        let filled = UnixSums { open: 40, unknown: 40, made: 40, ..UnixSums::default() };
        assert_eq!(figures(filled), (4.0, 0.0, 4.0));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let rows = message(BY_FAMILY, &bytes);
            let of_kind = [&[libc::AF_UNIX as u8, libc::SOCK_STREAM as u8], &bytes[..]].concat();
            let like = message(BY_FAMILY, &of_kind);
            let answers = [&bytes[..], &rows, &like];
            let found: Vec<UnixSocket> =
                answers.iter().flat_map(|answer| Rows::of(answer).iter().filter_map(socket)).collect();
            for socket in &found {
                prop_assert!(socket.pending.len() * 4 <= bytes.len());
                prop_assert!(!socket.address.chars().any(char::is_control));
            }
            // Whatever the sockets report about one another.
            let mut pairs = UnixPairs::default();
            pairs.add(&found, &Owners::default(), 1);
            prop_assert_eq!(pairs.take(), (Vec::new(), Vec::new()));
        }
    }
}
