//! The kernel's table of TCP sockets (`sock_diag`), once per network namespace.
//!
//! One dump tells of every connection which end sent last, what it has not read, and which socket (inode) it is: a
//! microsecond a socket, where `/proc/net/tcp` takes ten and tells none of it.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Ends of a dump, and errors (`NLMSG_DONE`, `NLMSG_ERROR`).
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// Attributes of a socket: `INET_DIAG_INFO`, `INET_DIAG_SKMEMINFO`.
const INFO: u16 = 2;
const MEMORY: u16 = 7;
/// States by the kernel's numbers.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;
const STATES: u32 = 1 << ESTABLISHED | 1 << CLOSE_WAIT | 1 << LISTEN;

/// One end of a connection, or a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Socket {
    /// It listens.
    pub is_listener: bool,
    /// Its own address.
    pub local: SocketAddr,
    /// The other end's.
    pub remote: SocketAddr,
    /// Its inode; 0 where no process has it (any more, or yet).
    pub inode: u32,
    /// Bytes that came and were not read; of a listener, connections that wait to be accepted.
    pub unread: u32,
    /// Bytes that were written and not acknowledged; of a listener, how many may wait.
    pub unsent: u32,
    /// Connections it dropped, of a listener.
    pub drops: u32,
    /// What the kernel knows of its times.
    pub times: Times,
}

/// Times of a connection (`struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Since data was sent, milliseconds, in steps of the kernel's tick.
    pub since_sent_ms: u32,
    /// Since data came, likewise.
    pub since_received_ms: u32,
    /// The shortest round trip, microseconds; 0 if it is not known.
    pub min_rtt_us: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Bytes that the other end acknowledged.
    pub bytes_acked: u64,
    /// Bytes that came.
    pub bytes_received: u64,
    /// Segments with data that were sent, and that came; 0 if they are not known.
    pub segments_out: u32,
    pub segments_in: u32,
}

/// A netlink socket of one network namespace.
#[derive(Debug)]
pub(crate) struct SocketTable {
    netlink: OwnedFd,
    buffer: Vec<u8>,
    /// Readings until IPv6 is asked for again.
    without_v6: u32,
}

/// No more connections are kept of one reading; of more, every second, fourth, eighth … is.
const MOST_SOCKETS: usize = 8_192;

/// Which connections are kept: both ends of one, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subset {
    /// One in so many, a power of two.
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
        // The same from either end, and spread evenly over ports given in turn.
        let mixed = (a.min(b) << 16 | a.max(b)).wrapping_mul(0x9E37_79B9) >> 8;
        socket.is_listener || mixed & (self.one_in - 1) == 0
    }

    /// Halves it until what it leaves of these is few enough.
    fn narrow(&mut self, sockets: &mut Vec<Socket>) {
        while sockets.len() > MOST_SOCKETS && self.one_in < 1 << 20 {
            self.one_in *= 2;
            sockets.retain(|socket| self.has(socket));
        }
    }
}

/// Where there is no socket of IPv6, it is asked for again after so many readings: the kernel walks through its whole
/// table of connections for either family, which is most of the cost.
const V6_EVERY: u32 = 20;

impl SocketTable {
    /// Of the namespace that this thread is in.
    ///
    /// # Errors
    /// No such socket can be had.
    #[expect(unsafe_code, reason = "netlink sockets have no other way in")]
    pub fn here() -> io::Result<SocketTable> {
        // SAFETY: socket(2) takes numbers, and what it returns is ours alone.
        let fd = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened, and that nobody else has.
        let netlink = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(SocketTable { netlink, buffer: vec![0; 64 << 10], without_v6: 0 })
    }

    /// Of a process's namespace.
    ///
    /// # Errors
    /// The namespace may not be entered, or is gone.
    pub fn of_process(pid: u32) -> io::Result<SocketTable> {
        in_namespace_of(pid, SocketTable::here)
    }

    /// TCP connections that stand, those of the subset, and every listener. The subset is narrowed where there are too
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

    #[expect(unsafe_code, reason = "send and receive on a netlink socket")]
    fn dump(&mut self, family: u8, subset: &mut Subset, into: &mut Vec<Socket>) -> io::Result<()> {
        let request = request(family);
        // SAFETY: the buffer is as long as it is said to be.
        let sent = unsafe { libc::send(self.netlink.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            // SAFETY: the kernel writes no more than the buffer's length.
            let got = unsafe {
                libc::recv(self.netlink.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), 0)
            };
            let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
            let is_last = parse(self.buffer.get(..got).unwrap_or_default(), *subset, into)?;
            subset.narrow(into);
            if is_last {
                return Ok(());
            }
        }
    }
}

/// `struct nlmsghdr`, then `struct inet_diag_req_v2`, for a dump of one family.
fn request(family: u8) -> Vec<u8> {
    const LENGTH: u32 = 16 + 56;
    let mut bytes = Vec::with_capacity(LENGTH as usize);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    let asked = 1 << (INFO - 1) | 1 << (MEMORY - 1);
    bytes.extend([family, libc::IPPROTO_TCP as u8, asked as u8, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.resize(LENGTH as usize, 0);
    bytes
}

/// Sockets of one answer; true when it was the last. What is too short is left out.
fn parse(mut bytes: &[u8], subset: Subset, into: &mut Vec<Socket>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        if length < 16 || length > bytes.len() {
            // Cut off: an answer that ends nowhere would be waited for.
            return Ok(true);
        }
        let body = bytes.get(16..length).unwrap_or_default();
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = u32_at(body, 0).map_or(0, |n| n as i32);
                return Err(io::Error::from_raw_os_error(-code));
            }
            BY_FAMILY => into.extend(socket(body).filter(|s| subset.has(s))),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Opens something in a process's network namespace: a thread of its own goes there, opens it, and ends.
///
/// # Errors
/// The namespace may not be entered, or is gone.
pub(super) fn in_namespace_of<T: Send + 'static>(pid: u32, open: fn() -> io::Result<T>) -> io::Result<T> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    let there = move || -> io::Result<T> {
        #[expect(unsafe_code, reason = "a thread that ends at once enters the namespace")]
        // SAFETY: setns(2) changes this thread alone, which does nothing else afterwards.
        let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        if entered != 0 {
            return Err(io::Error::last_os_error());
        }
        open()
    };
    let thread = std::thread::Builder::new().name("loadlab-netns".into()).spawn(there)?;
    thread.join().map_err(|_| io::Error::other("the thread that entered the namespace failed"))?
}

/// `struct inet_diag_msg` and its attributes.
fn socket(body: &[u8]) -> Option<Socket> {
    const HEAD: usize = 72;
    let (family, state) = (*body.first()?, *body.get(1)?);
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let address = |at: usize| -> Option<IpAddr> {
        let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?));
        let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?));
        match i32::from(family) {
            libc::AF_INET => v4().map(IpAddr::V4),
            // What listens on `[::]` is connected to by IPv4 as well: both ends must be written alike.
            libc::AF_INET6 => v6().map(|v6| v6.to_canonical()),
            _ => None,
        }
    };
    let mut found = Socket {
        is_listener: state == LISTEN,
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        unread: u32_at(body, 56)?,
        unsent: u32_at(body, 60)?,
        inode: u32_at(body, 68)?,
        drops: 0,
        times: Times::default(),
    };
    let mut rest = body.get(HEAD..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        let Some(value) = rest.get(4..length.max(4)).filter(|_| length >= 4) else { break };
        match kind {
            INFO => found.times = times(value),
            MEMORY => found.drops = u32_at(value, 32).unwrap_or(0),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

/// `struct tcp_info`, which grows with the kernels: what is beyond its end is not known.
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
        // The kernel's word for "none yet" is all ones.
        min_rtt_us: Some(number(148)).filter(|us| *us != u32::MAX).unwrap_or(0),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
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
        let mut asker = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        asker.write_all(b"question").unwrap();
        let ends = (asker.local_addr().unwrap(), asker.peer_addr().unwrap());
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

    #[test]
    fn an_error_of_the_kernel_is_one() {
        let mut bytes = Vec::new();
        bytes.extend(20u32.to_ne_bytes());
        bytes.extend(ERROR.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend((-libc::EPERM).to_ne_bytes());
        let error = parse(&bytes, Subset::default(), &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut found = Vec::new();
            let _ = parse(&bytes, Subset::default(), &mut found);
            // The same as a message of a right head, cut off anywhere.
            let mut message = Vec::new();
            message.extend((16 + bytes.len() as u32).to_ne_bytes());
            message.extend(BY_FAMILY.to_ne_bytes());
            message.extend([0; 10]);
            message.extend(&bytes);
            let _ = parse(&message, Subset::default(), &mut found);
            for socket in found {
                prop_assert!(bytes.len() >= 72, "{socket:?}");
            }
        }
    }
}
