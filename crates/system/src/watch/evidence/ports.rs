//! Counts the local ports taken towards one destination.
//!
//! A program that opens a connection for each request takes a local port for it, which stays in TIME_WAIT for a minute.
//! Towards one destination only as many ports exist as the namespace's `net.ipv4.ip_local_port_range` allows; beyond
//! that connects fail. Such sockets are many and show nothing else, so they are left out of the other readings, and
//! inspected here only if a namespace has so many that it may matter, at most once a second.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::{fs, io};

use loadlab_record::text::time::SECOND_NS;
use loadlab_record::watch::evidence::Ports;

use super::netlink::in_namespace_of;
use super::owners::Owners;
use super::sockets::{SocketTable, TakenPort};
use crate::cgroup::read::CachedFile;
use crate::clock::thread_cpu_ns;
use crate::watch::net::sockets_in;

/// The interval between looks, as a multiple of their CPU cost: half of the budget of all evidence.
const BUDGET: u64 = 200;
/// With fewer sockets than this, a namespace's port range is not read: no range is that small.
const FEWEST_SOCKETS: u64 = 32;
/// If sockets take this share of the range they are inspected; if those towards one destination do, it is reported.
const MANY_SHARE: f64 = 0.5;
/// How long the kernel keeps a connection in TIME_WAIT (`TCP_TIMEWAIT_LEN`), milliseconds.
const TIME_WAIT_MS: u32 = 60_000;

/// Counts local ports by destination.
#[derive(Debug, Default)]
pub(crate) struct PortReader {
    spaces: HashMap<u64, Space>,
    found: BTreeMap<Towards, Count>,
    next_ns: u64,
    buffer: Vec<u8>,
}

/// A network namespace.
#[derive(Debug)]
struct Space {
    /// A process in the namespace.
    pid: u32,
    /// Components with a process in the namespace.
    components: BTreeSet<String>,
    sockets: CachedFile,
    is_used: bool,
}

/// Namespace, local address and destination of connections.
type Towards = (u64, IpAddr, SocketAddr);

#[derive(Clone, Debug, Default)]
struct Count {
    taken: u32,
    time_wait: u32,
    range: u32,
    /// Established connections by owner, as far as known.
    owners: BTreeMap<String, u32>,
}

/// What a namespace's settings say about its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    first: u16,
    last: u16,
    /// `tcp_tw_reuse`: 0 never, 1 always, 2 on loopback.
    reuse: u8,
    /// After how long in TIME_WAIT a port may be reused, if reuse is allowed, milliseconds.
    reuse_after_ms: u32,
}

impl Rules {
    /// Reads the settings of this thread's namespace.
    fn here() -> io::Result<Rules> {
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        let number = |name: &str| read(name).ok()?.trim().parse::<u32>().ok();
        let (first, last) = range(&read("ip_local_port_range")?)
            .ok_or_else(|| io::Error::other("ip_local_port_range is no range"))?;
        let has_timestamps = number("tcp_timestamps") != Some(0);
        let reuse = number("tcp_tw_reuse").filter(|_| has_timestamps).unwrap_or(0);
        let reuse_after_ms = number("tcp_tw_reuse_delay").unwrap_or(1_000);
        Ok(Rules { first, last, reuse: u8::try_from(reuse).unwrap_or(0), reuse_after_ms })
    }

    fn count(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// Whether a new connection to the same destination cannot use this connection's port.
    fn is_taken(self, port: &TakenPort) -> bool {
        let is_in_range = (self.first..=self.last).contains(&port.local.port());
        let may_reuse = match self.reuse {
            0 => false,
            1 => true,
            _ => port.local.ip().is_loopback() && port.remote.ip().is_loopback(),
        };
        let is_free = port
            .time_wait_left_ms
            .is_some_and(|left_ms| may_reuse && left_ms.saturating_add(self.reuse_after_ms) <= TIME_WAIT_MS);
        is_in_range && !is_free
    }
}

/// Parses a range: the first and the last port, separated by whitespace.
fn range(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (first, last) = (words.next()?.ok()?, words.next()?.ok()?);
    (first <= last).then_some((first, last))
}

impl PortReader {
    /// Begins an update of the members; [`PortReader::add_member`] follows for each.
    pub fn begin_members(&mut self) {
        for space in self.spaces.values_mut() {
            space.components.clear();
            space.is_used = false;
        }
    }

    /// Records that a component has a process in this namespace.
    pub fn add_member(&mut self, namespace: u64, pid: u32, component: &str) {
        let open = || Space {
            pid,
            components: BTreeSet::new(),
            sockets: CachedFile::open(Path::new(&format!("/proc/{pid}/net/sockstat"))),
            is_used: true,
        };
        let space = self.spaces.entry(namespace).or_insert_with(open);
        // The member named last still exists.
        (space.pid, space.is_used) = (pid, true);
        space.components.insert(component.to_owned());
    }

    /// Ends the update: namespaces without members are forgotten.
    pub fn end_members(&mut self) {
        self.spaces.retain(|_, space| space.is_used);
        self.found.retain(|(namespace, ..), _| self.spaces.contains_key(namespace));
    }

    /// Inspects all namespaces, if it is due.
    pub fn read(&mut self, now_ns: u64, tables: &mut HashMap<u64, SocketTable>, owners: &Owners) {
        if now_ns < self.next_ns {
            return;
        }
        let before = thread_cpu_ns();
        self.found.clear();
        for (namespace, space) in &self.spaces {
            let Some(table) = tables.get_mut(namespace) else { continue };
            let sockets = space.sockets.read(&mut self.buffer).and_then(sockets_in).unwrap_or(0);
            if sockets < FEWEST_SOCKETS {
                continue;
            }
            // The range is read each time: a start command may have just set it.
            let Ok(rules) = in_namespace_of(space.pid, Rules::here) else { continue };
            if (sockets as f64) < MANY_SHARE * f64::from(rules.count()) {
                continue;
            }
            let count = |port: TakenPort| count(&mut self.found, *namespace, rules, &port, owners);
            // A table that fails is read again next time.
            let _ = table.read_taken(count);
        }
        let is_many = |count: &Count| f64::from(count.taken) >= MANY_SHARE * f64::from(count.range);
        self.found.retain(|_, count| is_many(count));
        self.next_ns = now_ns + SECOND_NS.max((thread_cpu_ns() - before) * BUDGET);
    }

    /// The results of the last look. The client is the component that is alone in its namespace, else the one that has
    /// most of the established connections, else the one that `usual` knows to connect there.
    pub fn take<'a>(&self, usual: impl Fn(SocketAddr) -> Option<&'a str>) -> Vec<Ports> {
        let of = |((namespace, source, address), count): (&Towards, &Count)| {
            let inside = self.spaces.get(namespace).map(|space| &space.components);
            let alone = inside.filter(|all| all.len() == 1).and_then(BTreeSet::first).map(String::as_str);
            let most = || count.owners.iter().max_by_key(|(_, n)| **n).map(|(name, _)| name.as_str());
            Ports {
                component: alone.or_else(most).or_else(|| usual(*address)).unwrap_or_default().to_owned(),
                source: source.to_string(),
                address: address.to_string(),
                taken: count.taken,
                time_wait: count.time_wait,
                range: count.range,
            }
        };
        self.found.iter().map(of).collect()
    }
}

fn count(
    found: &mut BTreeMap<Towards, Count>,
    namespace: u64,
    rules: Rules,
    port: &TakenPort,
    owners: &Owners,
) {
    if !rules.is_taken(port) {
        return;
    }
    let count = found.entry((namespace, port.local.ip(), port.remote)).or_default();
    count.range = rules.count();
    count.taken += 1;
    count.time_wait += u32::from(port.time_wait_left_ms.is_some());
    if let Some(owner) = owners.of(port.inode) {
        match count.owners.get_mut(owner) {
            Some(n) => *n += 1,
            None => drop(count.owners.insert(owner.to_owned(), 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    const RULES: Rules = Rules { first: 40_000, last: 40_099, reuse: 2, reuse_after_ms: 1_000 };

    fn port(local: &str, remote: &str, time_wait_left_ms: Option<u32>) -> TakenPort {
        TakenPort {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            inode: 0,
            time_wait_left_ms,
        }
    }

    #[test]
    fn ranges_of_the_kernel_are_understood() {
        for (text, expect) in [
            ("32768\t60999\n", Some((32_768, 60_999))),
            ("7 7", Some((7, 7))),
            ("8 7", None),
            ("1", None),
            ("1 70000", None),
            ("", None),
        ] {
            assert_eq!(range(text), expect, "{text:?}");
        }
        let here = Rules::here().unwrap();
        assert!(here.first < here.last && here.count() > 1, "{here:?}");
    }

    #[test]
    fn ports_that_may_be_taken_again_are_free() {
        let far = |left_ms| port("10.0.0.2:40001", "10.0.0.3:80", left_ms);
        let near = |left_ms| port("127.0.0.1:40001", "127.0.0.1:80", left_ms);
        for (rules, port, expect, what) in [
            (RULES, far(None), true, "it stands"),
            (RULES, far(Some(100)), true, "a minute, all of it"),
            (RULES, near(Some(59_500)), true, "on loopback for a second"),
            (RULES, near(Some(58_500)), false, "and no longer"),
            (RULES, near(None), true, "it stands on loopback"),
            (Rules { reuse: 0, ..RULES }, near(Some(100)), true, "never again"),
            (Rules { reuse: 1, ..RULES }, far(Some(58_500)), false, "anywhere"),
            (RULES, self::port("10.0.0.2:8080", "10.0.0.3:40001", None), false, "a server's own port"),
        ] {
            assert_eq!(rules.is_taken(&port), expect, "{what}");
        }
    }

    #[test]
    fn each_destination_has_all_ports_again() {
        let (mut found, owners) = (BTreeMap::new(), Owners::default());
        for n in 0..60 {
            let local = format!("10.0.0.2:{}", 40_000 + n);
            let left_ms = (n % 2 == 0).then_some(30_000);
            count(&mut found, 1, RULES, &port(&local, "10.0.0.3:80", left_ms), &owners);
            count(&mut found, 2, RULES, &port(&local, "10.0.0.3:80", None), &owners);
            count(&mut found, 1, RULES, &port(&local, "10.0.0.3:81", None), &owners);
        }
        let counts: Vec<_> = found.values().map(|c| (c.taken, c.time_wait, c.range)).collect();
        assert_eq!(counts, [(60, 30, 100), (60, 0, 100), (60, 0, 100)]);
        let mut reader = PortReader { found, ..PortReader::default() };
        reader.begin_members();
        reader.add_member(1, std::process::id(), "web");
        reader.end_members();
        // Nothing is left of the namespace without members.
        let taken = reader.take(|_| None);
        let named: Vec<_> = taken.iter().map(|p| (p.component.as_str(), p.address.as_str())).collect();
        assert_eq!(named, [("web", "10.0.0.3:80"), ("web", "10.0.0.3:81")]);
        // With several components in a namespace, the client is the one known to connect there.
        reader.add_member(1, std::process::id(), "worker");
        let usual = |address: SocketAddr| (address.port() == 81).then_some("worker");
        let named: Vec<_> = reader.take(usual).into_iter().map(|p| p.component).collect();
        assert_eq!(named, ["", "worker"]);
    }

    #[test]
    fn ports_of_this_namespace_are_counted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        // The end that closes first keeps the port.
        let mut ended: Vec<SocketAddr> = Vec::new();
        for _ in 0..3 {
            let client = std::net::TcpStream::connect(to).unwrap();
            let (server, _) = listener.accept().unwrap();
            ended.push(client.local_addr().unwrap());
            // Not by `drop`: a child of another test, forked meanwhile, would keep the end open until its exec.
            client.shutdown(Shutdown::Both).unwrap();
            server.shutdown(Shutdown::Both).unwrap();
        }
        let connected = std::net::TcpStream::connect(to).unwrap();
        let mut table = SocketTable::here().unwrap();
        let mut found = Vec::new();
        table
            .read_taken(|port| {
                if port.remote == to || port.local == to {
                    found.push(port);
                }
            })
            .unwrap();
        let taken = found.iter().find(|p| p.local == connected.local_addr().unwrap()).unwrap();
        assert!(taken.inode != 0 && taken.time_wait_left_ms.is_none(), "{taken:?}");
        assert!(
            found.iter().all(|p| p.local != to),
            "accepted connections share their listener's port: {found:?}"
        );
        let waiting = found.iter().filter(|p| ended.contains(&p.local));
        let left: Vec<_> = waiting.map(|p| p.time_wait_left_ms).collect();
        assert_eq!(left.len(), 3, "{found:?}");
        assert!(left.iter().flatten().all(|ms| (1..=TIME_WAIT_MS + 1_000).contains(ms)), "{left:?}");
    }
}
