//! Requests over UDP, such as to a resolver: glibc, Go and c-ares open a connected socket for each query, which lives
//! as long as the query.
//!
//! A UDP socket counts no bytes and has no times. So a socket counts as waiting for an answer while it is young and
//! nothing has arrived, if other sockets of its pair came and went before. A long-lived socket (statsd, QUIC) shows
//! nothing about requests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use loadlab_record::watch::evidence::Pair;
use loadlab_record::watch::names::GENERATOR;

use super::key::PairKey;
use super::owners::Owners;
use super::sockets::Socket;
use super::turnover::Turnover;

/// The longest life of a query: resolvers give up, or ask again, after five seconds.
const YOUNG_NS: u64 = 6_000_000_000;
/// A pair's sockets count as short-lived if one of them has gone within this time.
const TURNED_NS: u64 = 15_000_000_000;

/// Sums over the readings of a line.
#[derive(Debug, Default)]
struct UdpSums {
    open: u64,
    /// Young sockets on which nothing has arrived.
    asking: u64,
    /// Long-lived sockets.
    staying: u64,
    /// Readings in which the asked end had not read everything that arrived: at least one query. The kernel reports the
    /// memory that queries take, not their number.
    unread: u64,
    unread_at: u32,
    made: u64,
}

/// Adds up who asks whom.
#[derive(Debug, Default)]
pub(crate) struct UdpPairs {
    readings: u32,
    pairs: BTreeMap<PairKey, UdpSums>,
    turnover: Turnover<PairKey>,
    /// When a young socket of the pair last went away.
    turned_ns: HashMap<PairKey, u64>,
    /// The last component seen asking each address.
    usual: HashMap<SocketAddr, String>,
    is_used: bool,
}

/// Sockets that others may ask.
struct Bound<'a> {
    by_port: HashMap<u16, Vec<&'a Socket>>,
    /// Local addresses of the sockets seen.
    homes: HashSet<IpAddr>,
}

impl<'a> Bound<'a> {
    fn of(sockets: &'a [Socket]) -> Bound<'a> {
        let mut by_port: HashMap<u16, Vec<&Socket>> = HashMap::new();
        for socket in sockets.iter().filter(|s| is_bound(s)) {
            by_port.entry(socket.local.port()).or_default().push(socket);
        }
        Bound { by_port, homes: sockets.iter().map(|s| s.local.ip()).collect() }
    }

    fn at(&self, at: SocketAddr) -> impl Iterator<Item = &'a Socket> {
        let all = self.by_port.get(&at.port()).into_iter().flatten().copied();
        // An address on another machine does not mean this machine's socket with the same port.
        let is_here = is_near(at.ip()) || self.homes.contains(&at.ip());
        all.filter(move |s| s.local.ip() == at.ip() || is_here && s.local.ip().is_unspecified())
    }
}

/// Whether this is an address of the kind containers have.
fn is_near(ip: IpAddr) -> bool {
    ip.is_loopback()
        || match ip {
            IpAddr::V4(v4) => v4.is_private() || v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
        }
}

fn is_bound(socket: &Socket) -> bool {
    socket.remote.port() == 0
}

impl UdpPairs {
    /// Inodes of the sockets in this reading whose owner matters: those that are asked, and those that ask them.
    pub fn relevant(sockets: &[Socket]) -> impl Iterator<Item = u32> {
        let bound = Bound::of(sockets);
        let is_relevant = move |s: &&Socket| is_bound(s) || bound.at(s.remote).next().is_some();
        sockets.iter().filter(is_relevant).map(|s| s.inode).filter(|inode| *inode != 0)
    }

    /// Whether, as of the last reading, a component is bound to a port and so may be asked.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Number of readings since the last line.
    pub fn readings(&self) -> u32 {
        self.readings
    }

    /// Adds a reading.
    pub fn add(&mut self, sockets: &[Socket], owners: &Owners, now_ns: u64) {
        self.readings += 1;
        let bound = Bound::of(sockets);
        self.is_used = sockets.iter().any(|s| is_bound(s) && owners.of(s.inode).is_some());
        for socket in sockets.iter().filter(|s| !is_bound(s) && s.inode != 0) {
            let Some((asked, to)) = bound.at(socket.remote).find_map(|s| Some((s, owners.of(s.inode)?)))
            else {
                continue;
            };
            let from = owners.of(socket.inode).map(str::to_owned);
            if let Some(from) = from.as_ref().filter(|f| self.usual.get(&socket.remote) != Some(f)) {
                self.usual.insert(socket.remote, from.clone());
            }
            // A socket that lives for one query is gone before its owner is searched for.
            let from = from.or_else(|| self.usual.get(&socket.remote).cloned()).unwrap_or_default();
            if from == to || from == GENERATOR {
                continue;
            }
            let key = PairKey { from, to: to.to_owned(), address: socket.remote.to_string() };
            let age = self.turnover.see(socket.inode, &key, now_ns);
            let is_young = age.age_ns.is_some_and(|age_ns| age_ns < YOUNG_NS);
            let sums = self.pairs.entry(key).or_default();
            sums.open += 1;
            sums.made += u64::from(age.is_new);
            // Answers are read at once, so a socket with something to read has been answered.
            sums.asking += u64::from(is_young && socket.unread == 0);
            sums.staying += u64::from(!is_young);
            if asked.unread > 0 && std::mem::replace(&mut sums.unread_at, self.readings) != self.readings {
                sums.unread += 1;
            }
        }
        for (key, age_ns) in self.turnover.end(now_ns) {
            if age_ns.is_some_and(|age_ns| age_ns < YOUNG_NS) {
                self.turned_ns.insert(key, now_ns);
            }
        }
    }

    /// Means over the readings so far, which are then reset.
    pub fn take(&mut self, now_ns: u64) -> Vec<Pair> {
        let n = f64::from(self.readings.max(1));
        self.readings = 0;
        self.turned_ns.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < TURNED_NS);
        let pair = |(key, sums): (PairKey, UdpSums)| {
            let turns = self.turned_ns.contains_key(&key);
            let (busy, unknown) =
                if turns { (sums.asking, sums.staying) } else { (0, sums.asking + sums.staying) };
            Pair {
                from: key.from,
                to: key.to,
                address: key.address,
                is_udp: true,
                open: sums.open as f64 / n,
                busy: busy as f64 / n,
                unknown: unknown as f64 / n,
                unread: sums.unread as f64 / n,
                made: sums.made,
                ..Pair::default()
            }
        };
        std::mem::take(&mut self.pairs).into_iter().map(pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Members;
    use super::super::netlink::{BY_FAMILY, Rows, message};
    use super::super::sockets::{SocketTable, socket};
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;

    /// A resolver in this process, and another process that asks it; readings are modified by hand.
    struct Fixture {
        owners: Owners,
        resolver: Socket,
        client: Socket,
        pairs: UdpPairs,
    }

    fn made() -> Fixture {
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let asking = UdpSocket::bind("127.0.0.1:0").unwrap();
        asking.connect(bound.local_addr().unwrap()).unwrap();
        asking.send(b"query").unwrap();
        let (mut table, mut found) = (SocketTable::here().unwrap(), Vec::new());
        table.read_udp(&mut found).unwrap();
        let at = |at: SocketAddr| found.iter().find(|s| s.local == at).cloned().unwrap();
        let (resolver, client) = (at(bound.local_addr().unwrap()), at(asking.local_addr().unwrap()));
        assert!(is_bound(&resolver) && resolver.unread > 0, "{resolver:?}");
        assert_eq!((client.remote, client.unread), (resolver.local, 0));
        let mut owners = Owners::default();
        let own = [Members { component: "dns".into(), pids: vec![std::process::id()] }];
        owners.look(&own, &HashSet::from([resolver.inode]));
        // The client's socket is open in this process, too: another inode makes it another process's.
        let client = Socket { inode: u32::MAX, ..client };
        Fixture { owners, resolver, client, pairs: UdpPairs::default() }
    }

    impl Fixture {
        fn read(&mut self, clients: &[Socket], now_s: u64) {
            let all: Vec<Socket> = clients.iter().chain([&self.resolver]).cloned().collect();
            self.pairs.add(&all, &self.owners, now_s * 1_000_000_000);
        }

        fn take(&mut self, now_s: u64) -> (f64, f64, f64) {
            let pairs = self.pairs.take(now_s * 1_000_000_000);
            assert!(pairs.iter().all(|p| p.is_udp && p.to == "dns"), "{pairs:?}");
            pairs.first().map_or((0.0, 0.0, 0.0), |p| (p.open, p.busy, p.unknown))
        }
    }

    #[test]
    fn queries_come_and_go() {
        let mut made = made();
        let query = |inode: u32| Socket { inode: u32::MAX - inode, ..made.client.clone() };
        let queries: Vec<Socket> = (0..8).map(query).collect();
        made.read(&[], 1);
        made.read(&queries[..2], 2);
        // Both may stay.
        assert_eq!(made.take(2), (1.0, 0.0, 1.0));
        made.read(&queries[2..4], 3);
        made.read(&queries[4..6], 4);
        assert_eq!(made.take(4), (2.0, 2.0, 0.0));
        // One query was answered, and its answer is not read yet.
        let answered = Socket { unread: 100, ..queries[6].clone() };
        made.read(&[answered, queries[7].clone()], 5);
        assert_eq!(made.take(5), (2.0, 1.0, 0.0));
    }

    #[test]
    fn sockets_that_stay_ask_nothing() {
        let mut made = made();
        let statsd = made.client.clone();
        // One socket that existed before, and one that came later and stayed.
        let later = Socket { inode: 1 << 31, ..statsd.clone() };
        for now_s in 1..20 {
            let all = [statsd.clone(), later.clone()];
            made.read(if now_s > 3 { &all } else { &all[..1] }, now_s);
            let (open, busy, unknown) = made.take(now_s);
            assert_eq!((busy, unknown), (0.0, open));
        }
        assert!(made.pairs.is_used());
        // Requests to something other than a component do not count.
        made.read(&[Socket { remote: "127.0.0.1:1".parse().unwrap(), ..statsd }], 21);
        assert_eq!(made.take(21), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_client_of_a_component_that_listens_everywhere_is_found() {
        let mut made = made();
        made.resolver.local = format!("0.0.0.0:{}", made.resolver.local.port()).parse().unwrap();
        let client = made.client.clone();
        let all = [made.resolver.clone(), client.clone()];
        assert_eq!(UdpPairs::relevant(&all).count(), 2);
        made.read(&[], 1);
        made.read(&[client], 2);
        let pairs = made.pairs.take(2_000_000_000);
        assert_eq!((pairs.len(), pairs[0].made, pairs[0].unread), (1, 1, 0.5), "{pairs:?}");
    }

    #[test]
    fn the_same_port_of_a_machine_elsewhere_is_not_meant() {
        let fixture = made();
        let everywhere = Socket {
            local: format!("0.0.0.0:{}", fixture.resolver.local.port()).parse().unwrap(),
            ..fixture.resolver.clone()
        };
        let home = Socket { local: "203.0.113.7:9".parse().unwrap(), ..fixture.client.clone() };
        let all = [everywhere, home];
        let bound = Bound::of(&all);
        let is_asked = |ip: &str| bound.at(SocketAddr::new(ip.parse().unwrap(), all[0].local.port())).count();
        assert_eq!(is_asked("8.8.8.8"), 0);
        // Addresses of this machine, or of a container that has not connected to anyone yet.
        assert_eq!((is_asked("127.0.0.1"), is_asked("172.17.0.2"), is_asked("203.0.113.7")), (1, 1, 1));
    }

    proptest! {
        #[test]
        fn no_table_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let rows = message(BY_FAMILY, &[&[libc::AF_INET as u8, 1][..], &bytes].concat());
            let found: Vec<Socket> = Rows::of(&rows).iter().filter_map(socket).collect();
            prop_assert_eq!(found.is_empty(), bytes.len() < 70);
            let mut pairs = UdpPairs::default();
            pairs.add(&found, &Owners::default(), 1);
            prop_assert!(UdpPairs::relevant(&found).count() <= 1);
            prop_assert_eq!(pairs.take(2), Vec::new());
        }
    }
}
