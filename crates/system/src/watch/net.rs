//! Counters of a network namespace: TCP, and the bytes on its links, which are exact if a component has its own
//! namespace. Loopback is left out: its traffic never leaves the component.
//!
//! Counters belong to a namespace, not to a process. Components that share the host's namespace have none of their own;
//! the host's line covers them all. Files stay open, and a missing file reads as `None`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use loadlab_record::watch::sample::Tcp;

use crate::cgroup::read::CachedFile;

/// Sockets are inspected one by one if there are no more than this: each costs the kernel a line of text.
const MOST_BY_STATE: u64 = 2_000;

/// TCP states by the kernel's number (include/net/tcp_states.h), from 1.
const STATES: [&str; 12] = [
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
    "new_syn_recv",
];

/// A namespace's files.
#[derive(Debug)]
pub(crate) struct NetReader {
    snmp: CachedFile,
    netstat: CachedFile,
    sockstat: [CachedFile; 2],
    tcp: [CachedFile; 2],
    dev: CachedFile,
}

impl NetReader {
    /// Opens the files in a folder such as `/proc/PID/net`.
    pub fn open(dir: &Path) -> NetReader {
        let open = |file: &str| CachedFile::open(&dir.join(file));
        NetReader {
            snmp: open("snmp"),
            netstat: open("netstat"),
            sockstat: [open("sockstat"), open("sockstat6")],
            tcp: [open("tcp"), open("tcp6")],
            dev: open("dev"),
        }
    }

    /// The namespace of a process, if it differs from this thread's, which may have entered a separate one.
    pub fn of_other(pid: u32) -> Option<NetReader> {
        let link = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
        let (own, other) = (link("thread-self")?, link(&pid.to_string())?);
        (own != other).then(|| NetReader::open(Path::new(&format!("/proc/{pid}/net"))))
    }

    /// The current TCP counters.
    pub fn tcp(&self, buffer: &mut Vec<u8>) -> Option<Tcp> {
        let mut tcp = Tcp::default();
        let snmp = self.snmp.read(buffer)?;
        tcp.established = paired(snmp, "Tcp:", "CurrEstab");
        tcp.retransmits = paired(snmp, "Tcp:", "RetransSegs");
        if let Some(netstat) = self.netstat.read(buffer) {
            tcp.accept_overflows = paired(netstat, "TcpExt:", "ListenOverflows");
            tcp.syn_drops = paired(netstat, "TcpExt:", "ListenDrops");
        }
        let mut sockets = None;
        if let Some(text) = self.sockstat[0].read(buffer) {
            tcp.time_wait = after(text, "TCP:", "tw");
            tcp.orphaned = after(text, "TCP:", "orphan");
            sockets = sockets_in(text);
        }
        // Sockets of servers that listen on `[::]` are counted only here.
        let more = self.sockstat[1].read(buffer).and_then(|text| after(text, "TCP6:", "inuse"));
        if sockets.is_some_and(|n| n + more.unwrap_or(0) <= MOST_BY_STATE) {
            // For each of the two files the kernel walks its whole table of connections: half a million slots, full or
            // empty, which takes milliseconds. With no IPv6 socket and none in TIME_WAIT, the second has nothing to
            // find.
            let is_v4_alone = more == Some(0) && tcp.time_wait == Some(0);
            for kept in self.tcp.iter().take(if is_v4_alone { 1 } else { 2 }) {
                // Without IPv6 there is no such file.
                let _ = kept.for_each_line(buffer, |line| count_state(line, &mut tcp.by_state));
            }
        }
        Some(tcp)
    }

    /// Bytes received and sent over all links except loopback.
    pub fn link_bytes(&self, buffer: &mut Vec<u8>) -> Option<(u64, u64)> {
        Some(link_bytes(self.dev.read(buffer)?))
    }
}

/// A number from a pair of lines `Tcp: NAME NAME …` and `Tcp: 1 2 …`.
fn paired(text: &str, prefix: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|n| n == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// IPv4 sockets that belong to a process, including listening ones, plus those of both families in TIME_WAIT.
pub(super) fn sockets_in(sockstat: &str) -> Option<u64> {
    Some(after(sockstat, "TCP:", "inuse")? + after(sockstat, "TCP:", "tw")?)
}

/// A number of the line `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 1`.
fn after(text: &str, prefix: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix(prefix))?.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// Counts a line of `/proc/net/tcp` by its fourth column, a state in two hexadecimal digits. The heading has no number
/// there.
fn count_state(line: &str, states: &mut BTreeMap<String, u64>) {
    let state = line.split_ascii_whitespace().nth(3).and_then(|s| usize::from_str_radix(s, 16).ok());
    if let Some(name) = state.and_then(|s| STATES.get(s.checked_sub(1)?)) {
        *states.entry((*name).to_owned()).or_default() += 1;
    }
}

fn link_bytes(text: &str) -> (u64, u64) {
    let links = text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo");
    links.fold((0, 0), |(received, sent), (_, numbers)| {
        let number = |n: usize| numbers.split_ascii_whitespace().nth(n).and_then(|w| w.parse::<u64>().ok());
        (received + number(0).unwrap_or(0), sent + number(8).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn files_of_the_kernel_are_understood() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: RtoMin CurrEstab RetransSegs\nTcp: 200 7 99\n";
        assert_eq!(paired(snmp, "Tcp:", "CurrEstab"), Some(7));
        assert_eq!(paired(snmp, "Tcp:", "RetransSegs"), Some(99));
        assert_eq!(paired(snmp, "Tcp:", "Other"), None);
        let sockstat = "sockets: used 9\nTCP: inuse 5 orphan 1 tw 2 alloc 7 mem 3\nUDP: inuse 8 mem 1\n";
        assert_eq!((sockets_in(sockstat), after(sockstat, "TCP:", "x")), (Some(7), None));
        let dev = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n    \
            lo: 9000       9    0    0    0     0          0         0     9000       9    0    0    0     0\n  \
            eth0: 1000       5    0    0    0     0          0         0      300       4    0    0    0     0\n  \
            eth1:7 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(link_bytes(dev), (1007, 305));
    }

    #[test]
    fn sockets_are_only_looked_at_where_they_are_few() {
        let states = |inuse: u64, inuse6: Option<u64>| {
            let dir = tempfile::tempdir().unwrap();
            let put = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
            put("snmp", "Tcp: CurrEstab\nTcp: 1\n");
            put("sockstat", &format!("TCP: inuse {inuse} orphan 0 tw 1 alloc 1 mem 1\n"));
            put("tcp", "  sl  local_address\n   0: 0100007F:0016 00000000:0000 0A\n");
            if let Some(inuse) = inuse6 {
                put("sockstat6", &format!("TCP6: inuse {inuse}\nUDP6: inuse 9999\n"));
            }
            NetReader::open(dir.path()).tcp(&mut Vec::new()).unwrap().by_state.len()
        };
        let most = MOST_BY_STATE - 1;
        for (inuse, inuse6, expect) in [
            (most, None, 1),
            (most + 1, None, 0),
            (most - 5, Some(5), 1),
            (most - 5, Some(6), 0),
            (0, Some(most + 1), 0),
        ] {
            assert_eq!(states(inuse, inuse6), expect, "{inuse}, {inuse6:?}");
        }
    }

    #[test]
    fn sockets_of_this_namespace_are_seen() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let reader = NetReader::open(Path::new("/proc/self/net"));
        let tcp = reader.tcp(&mut Vec::new()).unwrap();
        assert!(tcp.established >= Some(2) && tcp.retransmits.is_some(), "{tcp:?}");
        assert!(tcp.accept_overflows.is_some() && tcp.syn_drops.is_some(), "{tcp:?}");
        if !tcp.by_state.is_empty() {
            assert!(tcp.by_state["listen"] >= 1 && tcp.by_state["established"] >= 2, "{tcp:?}");
        }
        assert!(NetReader::of_other(std::process::id()).is_none());
        drop(client);
    }
}
