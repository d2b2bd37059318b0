//! The kernel's socket tables (`sock_diag`), once per network namespace; here those of TCP and UDP.
//!
//! One dump shows for every connection which end sent last, what it has not read, and which socket (inode) it is: a
//! microsecond per socket, where `/proc/net/tcp` takes ten and shows none of it.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::netlink::{Netlink, Rows, attributes, u32_at};
use super::unix::{self, UnixSocket};

/// Attributes of a socket: `INET_DIAG_INFO`, `INET_DIAG_SKMEMINFO`.
const INFO: u16 = 2;
const MEMORY: u16 = 7;
/// States by the kernel's numbers.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;
const TIME_WAIT: u8 = 6;
/// FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING.
const ENDING: u32 = 1 << 4 | 1 << 5 | 1 << 9 | 1 << 11;
/// States of connections that take a local port.
const TAKING: u32 = 1 << ESTABLISHED | 1 << SYN_SENT | 1 << TIME_WAIT | 1 << CLOSE_WAIT | ENDING;
const STATES: u32 = 1 << ESTABLISHED | 1 << SYN_SENT | 1 << CLOSE_WAIT | 1 << LISTEN;

/// One end of a connection, or a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Socket {
    /// Whether it listens.
    pub is_listener: bool,
    /// Whether the other end has not answered its connect yet.
    pub is_connecting: bool,
    /// Its position in the reading: one end of a connection is read before the other.
    pub place: u32,
    /// Its own address.
    pub local: SocketAddr,
    /// The other end's address.
    pub remote: SocketAddr,
    /// Its inode; 0 if no process holds it (any more, or yet).
    pub inode: u32,
    /// Bytes that arrived but were not read; for a listener, connections waiting to be accepted.
    pub unread: u32,
    /// Bytes that were written but not acknowledged; for a listener, the maximum queue length.
    pub unsent: u32,
    /// For a listener, the number of connections dropped.
    pub drops: u32,
    /// Times and counters the kernel keeps for it.
    pub times: Times,
}

/// A connection that takes a local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenPort {
    /// Its own address.
    pub local: SocketAddr,
    /// The other end's address.
    pub remote: SocketAddr,
    /// Its inode; 0 if no process holds it any more.
    pub inode: u32,
    /// If it is in TIME_WAIT, how many milliseconds are left.
    pub time_wait_left_ms: Option<u32>,
}

/// Times and counters of a connection (`struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Time since data was last sent, milliseconds, in steps of the kernel's tick.
    pub since_sent_ms: u32,
    /// Time since data last arrived, likewise.
    pub since_received_ms: u32,
    /// The shortest round trip, microseconds; 0 if unknown.
    pub min_rtt_us: u32,
    /// Retransmitted segments.
    pub retransmits: u32,
    /// Bytes that the other end acknowledged.
    pub bytes_acked: u64,
    /// Bytes that arrived.
    pub bytes_received: u64,
    /// Segments with data sent, and received; 0 if unknown.
    pub segments_out: u32,
    pub segments_in: u32,
    /// Bytes that were written but not sent yet.
    pub not_sent: u32,
    /// Bytes that fit into one segment.
    pub segment_bytes: u32,
}

/// The table of one network namespace.
#[derive(Debug)]
pub(crate) struct SocketTable {
    netlink: Netlink,
    /// Readings left until IPv6 is read again.
    without_v6: u32,
}

/// Maximum number of connections kept in one reading; beyond that only every second, fourth, eighth … is.
const MOST_SOCKETS: usize = 8_192;

/// The sockets of a namespace within those of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespacePart {
    pub namespace: u64,
    /// Index behind its last socket; its first one follows the part before.
    pub end: usize,
}

/// Which connections are kept: for each connection, both ends or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subset {
    /// One in this many, a power of two.
    pub one_in: u32,
}

impl Default for Subset {
    fn default() -> Subset {
        Subset { one_in: 1 }
    }
}

impl Subset {
    fn has(self, socket: &Socket) -> bool {
        let (a, b) = (u32::from(socket.local.port()), u32::from(socket.remote.port()));
        // The same from either end, and spread evenly over consecutive ports.
        let mixed = (a.min(b) << 16 | a.max(b)).wrapping_mul(0x9E37_79B9) >> 8;
        socket.is_listener || mixed & (self.one_in - 1) == 0
    }

    /// Keeps the sockets in the subset.
    pub fn keep(self, sockets: &mut Vec<Socket>, parts: &mut [NamespacePart]) {
        let (mut begin, mut kept) = (0, 0);
        for NamespacePart { end, .. } in parts {
            let part = sockets.get(begin..*end).unwrap_or_default();
            kept += part.iter().filter(|socket| self.has(socket)).count();
            (begin, *end) = (*end, kept);
        }
        sockets.retain(|socket| self.has(socket));
    }

    /// Halves the subset until few enough of these sockets are left.
    fn narrow(&mut self, sockets: &mut Vec<Socket>) {
        while sockets.len() > MOST_SOCKETS && self.one_in < 1 << 20 {
            self.one_in *= 2;
            sockets.retain(|socket| self.has(socket));
        }
    }
}

/// If there are no IPv6 sockets, IPv6 is read again after this many readings: for either family the kernel walks its
/// whole table of connections, which is most of the cost.
const V6_EVERY: u32 = 20;

impl SocketTable {
    /// The table of this thread's namespace.
    ///
    /// # Errors
    /// No netlink socket can be created.
    pub fn here() -> io::Result<SocketTable> {
        Ok(SocketTable { netlink: Netlink::here()?, without_v6: 0 })
    }

    /// The table of a process's namespace.
    ///
    /// # Errors
    /// The namespace may not be entered, or is gone.
    pub fn of_process(pid: u32) -> io::Result<SocketTable> {
        Ok(SocketTable { netlink: Netlink::of_process(pid)?, without_v6: 0 })
    }

    /// Reads the established TCP connections in the subset, and every listener. Narrows the subset if there are too
    /// many.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses.
    pub fn read(&mut self, subset: &mut Subset, into: &mut Vec<Socket>) -> io::Result<()> {
        into.clear();
        self.dump(libc::AF_INET as u8, subset, into)?;
        if self.without_v6 > 0 {
            self.without_v6 -= 1;
            return Ok(());
        }
        let before = into.len();
        self.dump(libc::AF_INET6 as u8, subset, into)?;
        if into.len() == before {
            self.without_v6 = V6_EVERY;
        }
        Ok(())
    }

    /// Reads connections in all states, except those opened from outside, with a minimum of data about each: their
    /// local ports are taken. Accepted connections share the port of their listener, and are left out.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses.
    pub fn read_taken(&mut self, mut take: impl FnMut(TakenPort)) -> io::Result<()> {
        let families =
            if self.without_v6 > 0 { &[libc::AF_INET][..] } else { &[libc::AF_INET, libc::AF_INET6] };
        let mut listeners = HashSet::new();
        for family in families {
            let request = |states| request(*family as u8, libc::IPPROTO_TCP as u8, states, 0);
            let listening = |row: &[u8]| socket(row).filter(|s| s.is_listener).map(|s| s.local.port());
            self.netlink.dump(&request(1 << LISTEN), |rows| {
                listeners.extend(rows.iter().filter_map(listening));
            })?;
            self.netlink.dump(&request(TAKING), |rows| {
                let taken = rows.iter().filter_map(taken_port);
                taken.filter(|port| !listeners.contains(&port.local.port())).for_each(&mut take);
            })?;
        }
        Ok(())
    }

    /// UDP sockets, bound and connected. The remote port of an unconnected socket is 0.
    ///
    /// # Errors
    /// The kernel does not answer, or has no such table.
    pub fn read_udp(&mut self, into: &mut Vec<Socket>) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = request(family as u8, libc::IPPROTO_UDP as u8, u32::MAX, 0);
            self.netlink.dump(&request, |rows| into.extend(rows.iter().filter_map(socket)))?;
        }
        Ok(())
    }

    /// Unix sockets.
    ///
    /// # Errors
    /// The kernel does not answer, or has no such table.
    pub fn read_unix(&mut self, into: &mut Vec<UnixSocket>) -> io::Result<()> {
        unix::read(&mut self.netlink, into)
    }

    fn dump(&mut self, family: u8, subset: &mut Subset, into: &mut Vec<Socket>) -> io::Result<()> {
        const ASKED: u8 = 1 << (INFO - 1) | 1 << (MEMORY - 1);
        self.netlink.dump(&request(family, libc::IPPROTO_TCP as u8, STATES, ASKED), |rows| {
            parse(rows, *subset, into);
            subset.narrow(into);
        })
    }
}

/// `struct inet_diag_req_v2`, for a dump of one address family.
fn request(family: u8, protocol: u8, states: u32, asked: u8) -> [u8; 56] {
    let mut bytes = [0; 56];
    bytes[..4].copy_from_slice(&[family, protocol, asked, 0]);
    bytes[4..8].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// Parses the sockets in one answer. Rows that are too short are left out.
fn parse(rows: Rows<'_>, subset: Subset, into: &mut Vec<Socket>) {
    into.extend(rows.iter().filter_map(socket).filter(|s| subset.has(s)));
}

/// Parses `struct inet_diag_msg` and its attributes.
pub(super) fn socket(body: &[u8]) -> Option<Socket> {
    const HEAD: usize = 72;
    let (family, state) = (*body.first()?, *body.get(1)?);
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| -> Option<IpAddr> {
        let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?));
        let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?));
        match i32::from(family) {
            libc::AF_INET => v4().map(IpAddr::V4),
            // A listener on `[::]` also accepts IPv4: both ends must use the same notation.
            libc::AF_INET6 => v6().map(|v6| v6.to_canonical()),
            _ => None,
        }
    };
    let mut found = Socket {
        is_listener: state == LISTEN,
        is_connecting: state == SYN_SENT,
        place: 0,
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        unread: u32_at(body, 56)?,
        unsent: u32_at(body, 60)?,
        inode: u32_at(body, 68)?,
        drops: 0,
        times: Times::default(),
    };
    for (kind, value) in attributes(body.get(HEAD..).unwrap_or_default()) {
        match kind {
            INFO => found.times = times(value),
            MEMORY => found.drops = u32_at(value, 32).unwrap_or(0),
            _ => {}
        }
    }
    Some(found)
}

/// Parses the same row, for what port counting needs.
fn taken_port(body: &[u8]) -> Option<TakenPort> {
    let (state, left_ms) = (*body.get(1)?, u32_at(body, 52)?);
    let Socket { local, remote, inode, .. } = socket(body)?;
    Some(TakenPort { local, remote, inode, time_wait_left_ms: (state == TIME_WAIT).then_some(left_ms) })
}

/// Parses `struct tcp_info`, which has grown with kernel versions: anything beyond its end is unknown.
fn times(info: &[u8]) -> Times {
    let number = |at: usize| u32_at(info, at).unwrap_or(0);
    let long = |at: usize| info.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Times {
        since_sent_ms: number(44),
        since_received_ms: number(52),
        retransmits: number(100),
        bytes_acked: long(120),
        bytes_received: long(128),
        segments_in: number(152),
        segments_out: number(156),
        not_sent: number(144),
        segment_bytes: number(16),
        // The kernel's "none yet" is all ones.
        min_rtt_us: Some(number(148)).filter(|us| *us != u32::MAX).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::netlink::{BY_FAMILY, message};
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn read() -> Vec<Socket> {
        let (mut table, mut found) = (SocketTable::here().unwrap(), Vec::new());
        table.read(&mut Subset::default(), &mut found).unwrap();
        found
    }

    #[test]
    fn both_ends_of_a_connection_are_seen_with_what_was_not_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        client.write_all(b"question").unwrap();
        let ends = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let of = |found: &[Socket], local, remote| {
            found.iter().find(|s| !s.is_listener && s.local == local && s.remote == remote).cloned().unwrap()
        };
        let found = read();
        let (here, there) = (of(&found, ends.0, ends.1), of(&found, ends.1, ends.0));
        assert_eq!((there.unread, there.times.bytes_received, there.times.segments_in), (8, 8, 1));
        assert_eq!((here.unread, here.times.segments_out, here.times.bytes_received), (0, 1, 0));
        let mut buffer = [0; 8];
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(of(&read(), ends.1, ends.0).unread, 0);
        let listens = found.iter().find(|s| s.is_listener && s.local == ends.1).unwrap();
        assert!(listens.inode != 0 && listens.unsent > 0 && listens.drops == 0, "{listens:?}");
    }

    #[test]
    fn a_smaller_subset_holds_for_what_was_read_before() {
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let template = read().into_iter().next().expect("a socket of this machine");
        let connection = |port: u16| Socket {
            is_listener: false,
            local: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 80)),
            ..template.clone()
        };
        let all: Vec<Socket> = (1000..1400).map(connection).collect();
        let of = |parts: [(u64, usize); 3]| parts.map(|(namespace, end)| NamespacePart { namespace, end });
        let (mut sockets, mut parts) = (all.clone(), of([(11, 100), (12, 100), (13, 400)]));
        let subset = Subset { one_in: 4 };
        subset.keep(&mut sockets, &mut parts);
        let kept = |all: &[Socket]| all.iter().filter(|socket| subset.has(socket)).count();
        let ends = [kept(&all[..100]), kept(&all[..100]), sockets.len()];
        assert_eq!(parts, of([(11, ends[0]), (12, ends[1]), (13, ends[2])]));
        assert!(sockets.len() == kept(&all) && (60..140).contains(&sockets.len()), "{}", sockets.len());
    }

    #[test]
    fn what_listens_on_ipv6_is_seen_by_ipv4_addresses_as_well() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let found = read();
        let is = |s: &&Socket, a, b| !s.is_listener && s.local == a && s.remote == b;
        assert!(found.iter().any(|s| is(&s, local, remote)) && found.iter().any(|s| is(&s, remote, local)));
    }

    #[test]
    fn of_very_many_connections_some_are_kept_with_both_their_ends() {
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let end = |local: u16, remote: u16| Socket {
            is_listener: false,
            is_connecting: false,
            place: 0,
            local: at(local),
            remote: at(remote),
            inode: 1,
            unread: 0,
            unsent: 0,
            drops: 0,
            times: Times::default(),
        };
        let mut all: Vec<Socket> =
            (10_000..60_000).flat_map(|port| [end(port, 8080), end(8080, port)]).collect();
        all.push(Socket { is_listener: true, ..end(8080, 0) });
        let mut subset = Subset::default();
        subset.narrow(&mut all);
        assert_eq!(subset.one_in, 16);
        let asking = all.iter().filter(|s| s.remote == at(8080)).count();
        let answering = all.iter().filter(|s| s.local == at(8080) && !s.is_listener).count();
        assert_eq!((asking, all.iter().filter(|s| s.is_listener).count()), (answering, 1));
        // One in sixteen of 50,000, within a tenth.
        assert!((2_800..3_450).contains(&asking), "{asking}");
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut found = Vec::new();
            parse(Rows::of(&bytes), Subset::default(), &mut found);
            // Parses the same bytes in a message with a correct header.
            parse(Rows::of(&message(BY_FAMILY, &bytes)), Subset::default(), &mut found);
            for socket in found {
                prop_assert!(bytes.len() >= 72, "{socket:?}");
            }
        }
    }
}
