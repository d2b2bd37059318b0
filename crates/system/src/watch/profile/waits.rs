//! How long threads wait, and with which stacks: from leaving a core until being back on one.
//!
//! The kernel's records show neither what a thread waits for nor whether anybody waits for it. Its system call does: a
//! thread that receives on a connection its process accepted waits for the next request; one that receives on a
//! connection its process made waits for an answer. Likewise, a futex that is a contended mutex holds a characteristic
//! value, while idle workers wait on condition variables.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::super::evidence::sockets::{Socket, SocketTable, Subset};
use super::ring::Record;
use super::stacks::{Reason, Stacks};

/// Maximum number of files looked up per second; the rest count as unknown.
const MOST_LOOKUPS: u32 = 4_096;

/// Waits of components' threads.
#[derive(Debug, Default)]
pub(super) struct ThreadWaits {
    stacks: Stacks,
    sides: ConnectionSides,
    /// Moves that were read but not handled yet: one core's buffer may show a thread's return before another's shows
    /// that it left.
    switches: Vec<Switch>,
    /// Threads off their cores, by id.
    away: HashMap<u32, OffCpuThread>,
    /// How many threads each sampled thread stands for.
    each: f64,
    /// When sampling began in this second; `None` between seconds.
    since_ns: Option<u64>,
    /// Total time sampled, nanoseconds.
    sampled_ns: u64,
}

#[derive(Debug)]
struct Switch {
    at_ns: u64,
    tid: u32,
    what: SwitchKind,
}

#[derive(Debug)]
enum SwitchKind {
    Leave { pid: u32, period: u64, arguments: [u64; 3], chain: Box<[u64]> },
    Preempted,
    Return,
}

#[derive(Debug)]
struct OffCpuThread {
    since_ns: u64,
    pid: u32,
    period: u64,
    reason: Reason,
    chain: Box<[u64]>,
}

impl ThreadWaits {
    pub fn stacks(&mut self) -> &mut Stacks {
        &mut self.stacks
    }

    /// Begins a second in which each sampled thread stands for `each` threads.
    pub fn begin(&mut self, each: f64, at_ns: u64) {
        self.each = each;
        self.since_ns = Some(at_ns);
        self.sides.forget();
    }

    /// Takes a record. Records that arrive after the end of the second do not count.
    pub fn add(&mut self, record: Record<'_>) {
        if self.since_ns.is_none() {
            return;
        }
        match record {
            Record::Leave { pid, tid, at_ns, period, arguments, chain } => {
                let chain = chain.iter().collect();
                self.switches.push(Switch {
                    at_ns,
                    tid,
                    what: SwitchKind::Leave { pid, period, arguments, chain },
                });
            }
            Record::Preempted { tid, at_ns } => {
                self.switches.push(Switch { at_ns, tid, what: SwitchKind::Preempted })
            }
            Record::Return { tid, at_ns } => {
                self.switches.push(Switch { at_ns, tid, what: SwitchKind::Return })
            }
            // Returns may be among the lost records, so waits would seem too long: discard them all.
            Record::Lost(_) => {
                self.switches.clear();
                self.away.clear();
            }
            Record::Sample { .. } | Record::Fork { .. } => {}
        }
    }

    /// Handles the switches up to this time, in order.
    pub fn handle(&mut self, until_ns: u64) {
        // The sort is stable: records with the same time keep their order, leaving before returning.
        self.switches.sort_by_key(|one| one.at_ns);
        let end = self.switches.partition_point(|one| one.at_ns <= until_ns);
        let later = self.switches.split_off(end);
        for one in std::mem::replace(&mut self.switches, later) {
            match one.what {
                SwitchKind::Leave { pid, period, arguments, chain } => {
                    let reason = self.reason(pid, arguments);
                    self.away
                        .insert(one.tid, OffCpuThread { since_ns: one.at_ns, pid, period, reason, chain });
                }
                SwitchKind::Preempted => drop(self.away.remove(&one.tid)),
                SwitchKind::Return => {
                    if let Some(away) = self.away.remove(&one.tid) {
                        self.count(&away, one.at_ns);
                    }
                }
            }
        }
    }

    /// Ends the second, or the part of it that is sampled. Threads still off their cores count as having waited until
    /// now.
    pub fn end(&mut self, at_ns: u64) {
        self.handle(at_ns);
        self.sampled_ns += self.since_ns.take().map_or(0, |since_ns| at_ns.saturating_sub(since_ns));
        self.switches.clear();
        for (_, away) in std::mem::take(&mut self.away) {
            self.count(&away, at_ns);
        }
    }

    fn count(&mut self, away: &OffCpuThread, until_ns: u64) {
        let ns = until_ns.saturating_sub(away.since_ns) as f64;
        let us = ns / 1e3 * away.period.max(1) as f64 * self.each;
        self.stacks.add(away.pid, away.chain.iter().copied(), away.reason, us.round() as u64);
    }

    fn reason(&mut self, pid: u32, arguments: [u64; 3]) -> Reason {
        let [first, operation, value] = arguments;
        if is_contended_mutex(operation, value) {
            return Reason::Mutex;
        }
        let file = u32::try_from(first).ok().filter(|file| *file < 1 << 20);
        match file.and_then(|file| self.sides.is_accepted(pid, file)) {
            Some(true) => Reason::Accepted,
            _ => Reason::Other,
        }
    }

    /// The counted stacks, and the time sampled, nanoseconds.
    pub fn into_stacks(self) -> (Stacks, u64) {
        (self.stacks, self.sampled_ns)
    }
}

/// Whether a `futex(2)` with this operation and expected value belongs to a mutex: glibc, Go's runtime and Rust's
/// standard library use 2 for a mutex that others wait for; musl, and mutexes with priority inheritance, use the
/// owner's id and the highest bit. -1 is a parked Rust thread.
fn is_contended_mutex(operation: u64, value: u64) -> bool {
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    const LOCK_PI: [u64; 2] = [6, 13];
    /// `FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME`
    const FLAGS: u64 = 128 | 256;
    let (operation, value) = (operation & !FLAGS, value as u32);
    match operation {
        WAIT | WAIT_BITSET => value == 2 || (value > 1 << 31 && value != u32::MAX),
        _ => LOCK_PI.contains(&operation),
    }
}

/// Which connections a process accepted, and which it made.
#[derive(Debug, Default)]
struct ConnectionSides {
    files: HashMap<(u32, u32), Option<bool>>,
    lookups: u32,
    tables: HashMap<u64, Option<SocketTable>>,
    /// Whether the process accepted the connection, by inode; reset each second, like `files`.
    sockets: HashMap<u32, bool>,
    /// Namespaces read in this second, each with the number of the reading.
    read: HashSet<(u64, u32)>,
}

impl ConnectionSides {
    fn forget(&mut self) {
        self.files.clear();
        self.sockets.clear();
        self.read.clear();
        self.lookups = 0;
    }

    /// Whether the process accepted this connection. `None`: not a socket, or an unknown one.
    fn is_accepted(&mut self, pid: u32, file: u32) -> Option<bool> {
        /// Maximum number of readings of a table per second.
        const MOST_READINGS: u32 = 4;
        if let Some(known) = self.files.get(&(pid, file)) {
            return *known;
        }
        if self.lookups >= MOST_LOOKUPS {
            return None;
        }
        self.lookups += 1;
        let mut found = None;
        if let Some(inode) = socket_of(pid, file) {
            for reading in 0..MOST_READINGS {
                found = self.sockets.get(&inode).copied();
                if found.is_some() || !self.read_table(pid, reading) {
                    break;
                }
            }
        }
        self.files.insert((pid, file), found);
        found
    }

    /// Reads the table of the process's namespace. Returns whether anything was read.
    fn read_table(&mut self, pid: u32, reading: u32) -> bool {
        let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/net")).map(|found| found.ino()) else {
            return false;
        };
        if !self.read.insert((namespace, reading)) {
            return true;
        }
        let table = self.tables.entry(namespace).or_insert_with(|| SocketTable::of_process(pid).ok());
        let Some(table) = table else { return false };
        let (mut found, mut of_unix) = (Vec::<Socket>::new(), Vec::new());
        let is_read = table.read(&mut Subset::default(), &mut found).is_ok();
        let is_unix_read = table.read_unix(&mut of_unix).is_ok();
        let ports: HashSet<u16> = found.iter().filter(|s| s.is_listener).map(|s| s.local.port()).collect();
        let connections = found.iter().filter(|socket| !socket.is_listener);
        self.sockets.extend(connections.map(|socket| (socket.inode, ports.contains(&socket.local.port()))));
        // An accepted Unix socket has the path of its listener.
        let of_unix = of_unix.iter().filter(|socket| !socket.is_listener);
        self.sockets.extend(of_unix.map(|socket| (socket.inode, !socket.address.is_empty())));
        is_read || is_unix_read
    }
}

fn socket_of(pid: u32, file: u32) -> Option<u32> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{file}")).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::super::super::evidence::Members;
    use super::*;

    fn waits() -> ThreadWaits {
        let mut waits = ThreadWaits::default();
        waits.begin(2.0, 1_000_000);
        waits.stacks().set_members(&[Members { component: "api".into(), pids: vec![7] }]);
        waits
    }

    fn leave(waits: &mut ThreadWaits, tid: u32, at_ns: u64, period: u64, chain: &[u64]) {
        let what = SwitchKind::Leave { pid: 7, period, arguments: [u64::MAX; 3], chain: chain.into() };
        waits.switches.push(Switch { at_ns, tid, what });
    }

    fn come(waits: &mut ThreadWaits, tid: u32, at_ns: u64) {
        waits.add(Record::Return { tid, at_ns });
    }

    #[test]
    fn a_wait_is_from_leaving_a_core_to_having_one_again() {
        let mut waits = waits();
        // Thread 1's return was read before its leaving; thread 2 is preempted; thread 3 is still away at the end.
        come(&mut waits, 1, 5_000_000);
        leave(&mut waits, 1, 2_000_000, 1, &[0x11]);
        leave(&mut waits, 2, 1_000_000, 1, &[0x22]);
        waits.add(Record::Preempted { tid: 2, at_ns: 1_000_000 });
        come(&mut waits, 2, 9_000_000);
        leave(&mut waits, 3, 6_000_000, 10, &[0x33]);
        waits.handle(8_000_000);
        // Not handled yet: the other core's buffer may not have been read that far.
        assert_eq!(waits.switches.len(), 1);
        waits.end(10_000_000);
        assert_eq!(waits.stacks.weights(), [(0x11, 6_000), (0x33, 80_000)]);
        // The second ended early: nothing more is counted in it.
        come(&mut waits, 3, 11_000_000);
        waits.end(12_000_000);
        let (stacks, sampled_ns) = waits.into_stacks();
        assert_eq!((stacks.weights().len(), sampled_ns), (2, 9_000_000));
    }

    #[test]
    fn after_a_loss_no_wait_is_longer_than_it_was() {
        let mut waits = waits();
        leave(&mut waits, 1, 1_000_000, 1, &[0x11]);
        waits.handle(2_000_000);
        waits.add(Record::Lost(1));
        come(&mut waits, 1, 9_000_000);
        waits.end(10_000_000);
        assert_eq!(waits.stacks.weights(), []);
    }

    #[test]
    fn a_mutex_is_known_by_its_value() {
        let is = is_contended_mutex;
        assert!(is(0x80, 2) && is(0x89, 2) && is(0x80, 0x8000_0007) && is(0x86, 0));
        // A condition variable of glibc, a parked Rust thread, and a call that is no futex.
        assert!(!is(0x189, 0) && !is(0x189, 4) && !is(0x89, 0xffff_ffff) && !is(u64::MAX, u64::MAX));
        assert!(!is(0x81, 2), "waking waits for nothing");
    }

    #[test]
    fn who_accepted_a_connection_is_known() {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut sides = ConnectionSides::default();
        let mut is = |file: &dyn AsRawFd| sides.is_accepted(std::process::id(), file.as_raw_fd() as u32);
        assert_eq!((is(&accepted), is(&client)), (Some(true), Some(false)));
        assert_eq!((is(&here), is(&there), is(&file)), (Some(false), Some(false), None));
        drop((client, accepted));
        // The descriptor number now belongs to another connection; it is looked up again in the next second.
        sides.forget();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(sides.is_accepted(std::process::id(), client.as_raw_fd() as u32), Some(false));
        drop(client.take_error());
        let (mut accepted, _) = listener.accept().unwrap();
        drop(client);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    }
}
