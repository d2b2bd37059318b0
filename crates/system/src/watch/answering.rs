//! Discovery without a plan: finds the processes of this machine that answer at an address, and those they call in
//! turn.
//!
//! A listening socket leads to the processes that hold it, and their connections lead to further processes. Each
//! becomes a component named after its program, and is watched like one of a plan.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;

use loadlab_record::text::time::SECOND_NS;
use loadlab_record::watch::evidence::Evidence;
use loadlab_record::watch::names::RESERVED;

use super::evidence::sockets::{Socket, SocketTable, Subset};
use super::evidence::unix::UnixSocket;
use super::{Emit, WatchEvent, Watcher};
use crate::clock;
use crate::error::Result;
use crate::process::{self, ProcessFamily, ProcessId, Stat};
use crate::watch::target::Target;

/// Maximum number of processes to follow.
const MAX_PROCESSES: usize = 8;
/// Maximum number of open sockets that one look inspects, over all processes.
const MOST_SOCKETS: usize = 50_000;
/// Maximum number of network namespaces to inspect: each takes a thread.
const MOST_NAMESPACES: usize = 32;
/// Hops from the first process: what it calls, what that calls, and so on.
const HOPS: usize = 3;
/// Connections to databases are opened with the first requests: look again after this many nanoseconds of load.
const LOOK_AGAIN_AFTER_NS: [u64; 3] = [SECOND_NS / 2, SECOND_NS, 2 * SECOND_NS];

/// A look that takes more CPU time than this would disturb the load.
const COSTLY_NS: u64 = SECOND_NS / 20;

/// Sockets of system services that nearly every process is connected to, and that answer no request.
const OF_THE_MACHINE: [&str; 4] = ["/run/systemd/", "/run/dbus/", "/var/run/dbus/", "@/tmp/.X11-unix/"];

/// Where a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listening {
    /// At a TCP address.
    Inet(SocketAddr),
    /// At a Unix socket, by the path of its file.
    Unix(String),
}

impl Listening {
    /// Whether the address is on this machine, in this network namespace.
    fn is_local(&self) -> bool {
        match self {
            Listening::Inet(address) => is_local(address.ip()),
            Listening::Unix(_) => true,
        }
    }
}

impl std::fmt::Display for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listening::Inet(address) => write!(f, "{address}"),
            Listening::Unix(path) => f.write_str(path),
        }
    }
}

/// A process that answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweringProcess {
    /// Its program's name; a second process of the same name is `name-2`.
    pub name: String,
    /// The root of its process tree.
    pub process: ProcessId,
}

/// The processes that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answering {
    /// Processes that answer, followed by those they call.
    pub processes: Vec<AnsweringProcess>,
    /// What could not be found, and why, as sentences.
    pub not_seen: Vec<String>,
}

impl Answering {
    /// What the watcher should read for each process.
    pub fn targets(&self) -> Vec<Target> {
        self.processes.iter().map(AnsweringProcess::target).collect()
    }

    /// Names, in the order in which the processes call one another.
    pub fn names(&self) -> Vec<String> {
        self.processes.iter().map(|p| p.name.clone()).collect()
    }

    /// A text such as `watching web (pid 4711), redis-server (pid 815)`: the processes from this index on; `None` if
    /// there are none.
    pub fn described(&self, from: usize) -> Option<String> {
        let all = self.processes.iter().skip(from);
        let named: Vec<String> = all.map(|p| format!("{} (pid {})", p.name, p.process.pid)).collect();
        (!named.is_empty()).then(|| format!("watching {}", named.join(", ")))
    }

    fn has(&self, pid: u32) -> bool {
        self.processes.iter().any(|p| p.process.pid == pid)
    }

    fn add(&mut self, process: ProcessId) {
        let program = fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        let program = program.trim().replace(|c: char| c.is_control() || c.is_whitespace(), "-");
        let program = if program.is_empty() { "process".to_owned() } else { program };
        // These names are taken by samples of the load itself and of the machine.
        let is_taken = |name: &str| RESERVED.contains(&name) || self.processes.iter().any(|p| p.name == name);
        let numbered = (2..).map(|n| format!("{program}-{n}"));
        let name = std::iter::once(program.clone()).chain(numbered).find(|name| !is_taken(name));
        self.processes.push(AnsweringProcess { name: name.unwrap_or(program), process });
    }
}

impl AnsweringProcess {
    /// Its cgroup if the process has one to itself, as a container does: that is where limits are. Else its process
    /// tree.
    fn target(&self) -> Target {
        let mut tree = Target::process_tree(&self.name, self.process);
        // Its processes must be known at once, not only after its first turn.
        tree.read_now();
        let family = ProcessFamily { leader: self.process, mark: String::new() };
        let own: BTreeSet<u32> = family.members(&process::snapshot()).iter().map(|s| s.pid).collect();
        let Some(mut group) = Target::cgroup_of(&self.name, self.process.pid) else { return tree };
        group.read_now();
        let members = group.members().pids;
        if !members.is_empty() && members.iter().all(|pid| own.contains(pid)) { group } else { tree }
    }
}

/// Whether the address belongs to this machine, in this network namespace.
pub fn is_local(ip: IpAddr) -> bool {
    // Only a local address can be bound.
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Finds the processes that answer at these addresses, the explicitly given ones, and those they call. Earlier finds
/// are kept.
pub fn find_answering(addresses: &[Listening], asked: &[ProcessId], mut found: Answering) -> Answering {
    if addresses.is_empty() && asked.is_empty() && found.processes.is_empty() {
        return found;
    }
    let look = match SocketOwners::now() {
        Ok(look) => look,
        Err(error) => {
            found.not_seen.push(format!("the processes that answer: the table of sockets: {error}"));
            return found;
        }
    };
    found.not_seen.clear();
    for process in asked.iter().filter(|p| p.is_alive()) {
        if !found.has(process.pid) {
            found.add(*process);
        }
    }
    for address in addresses.iter().filter(|address| address.is_local()) {
        let pids = match address {
            Listening::Inet(address) => look.listening(*address),
            Listening::Unix(path) => look.listening_at(path),
        };
        if pids.is_empty() {
            let who = format!("the process that answers at {address}: another user's, or behind a relay");
            found.not_seen.push(who);
        }
        pids.iter().for_each(|pids| look.add(&mut found, pids));
    }
    // Processes found in one hop are the callers of the next.
    let mut from = 0;
    for _ in 0..HOPS {
        let next = found.processes.len();
        let asking: Vec<ProcessId> =
            found.processes.get(from..).unwrap_or_default().iter().map(|p| p.process).collect();
        for process in asking {
            for pids in look.asked_by(process) {
                look.add(&mut found, &pids);
            }
        }
        from = next;
    }
    found
}

/// The processes holding sockets that listen at one address: those that share a socket are one server, such as a master
/// with its workers; the others are separate servers.
fn holding<'a>(held: impl Iterator<Item = &'a BTreeSet<u32>>) -> Vec<BTreeSet<u32>> {
    let mut groups: Vec<BTreeSet<u32>> = Vec::new();
    for pids in held {
        let (same, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|g| !g.is_disjoint(pids));
        groups = others;
        groups.push(same.iter().fold(pids.clone(), |all, group| &all | group));
    }
    groups.sort();
    groups
}

/// Sockets, and the processes that hold them.
struct SocketOwners {
    /// Sockets of this network namespace.
    sockets: Vec<Socket>,
    unix: Vec<UnixSocket>,
    holders: HashMap<u32, BTreeSet<u32>>,
    processes: Vec<Stat>,
    /// Processes that hold the ends of connections in other namespaces, such as containers'. Only read for a connection
    /// whose other end is not in this namespace: a machine may have many.
    elsewhere: OnceCell<HashMap<ConnectionEnds, BTreeSet<u32>>>,
}

/// The local and the remote address of one end.
type ConnectionEnds = (SocketAddr, SocketAddr);

/// The ends of connections, each with its inode.
fn ends_of(sockets: &[Socket]) -> impl Iterator<Item = (ConnectionEnds, u32)> {
    sockets.iter().filter(|s| !s.is_listener).map(|s| ((s.local, s.remote), s.inode))
}

/// The processes, except this one and its copies, that hold sockets with these inodes.
fn holders_of(processes: &[Stat], inodes: impl Iterator<Item = u32>) -> HashMap<u32, BTreeSet<u32>> {
    let wanted: HashSet<u32> = inodes.filter(|inode| *inode != 0).collect();
    let mut holders: HashMap<u32, BTreeSet<u32>> = HashMap::new();
    let mut left = MOST_SOCKETS;
    let is_own = |stat: &Stat| stat.pid == std::process::id() || process::is_copy_of_own(stat);
    for stat in processes.iter().filter(|stat| !is_own(stat)) {
        for inode in process::sockets_of(stat.pid).take(left) {
            left -= 1;
            if wanted.contains(&inode) {
                holders.entry(inode).or_default().insert(stat.pid);
            }
        }
    }
    holders
}

impl SocketOwners {
    fn now() -> std::io::Result<SocketOwners> {
        let (mut sockets, mut subset, mut unix) = (Vec::new(), Subset::default(), Vec::new());
        let mut own = SocketTable::here()?;
        own.read(&mut subset, &mut sockets)?;
        // A kernel may lack the table of Unix sockets.
        let _ = own.read_unix(&mut unix);
        let mut processes = process::snapshot();
        // Kernel threads hold no sockets, and are most of what runs on a small machine.
        processes.retain(|stat| !stat.is_of_kernel());
        let inodes = sockets.iter().map(|s| s.inode).chain(unix.iter().map(|s| s.inode));
        let holders = holders_of(&processes, inodes);
        Ok(SocketOwners { sockets, unix, holders, processes, elsewhere: OnceCell::new() })
    }

    fn elsewhere(&self) -> &HashMap<ConnectionEnds, BTreeSet<u32>> {
        self.elsewhere.get_or_init(|| {
            let (mut subset, mut of_one, mut sockets) = (Subset::default(), Vec::new(), Vec::new());
            for mut table in other_namespaces(&self.processes) {
                // A process that ends meanwhile has nothing to show.
                if table.read(&mut subset, &mut of_one).is_ok() {
                    sockets.append(&mut of_one);
                }
            }
            let holders = holders_of(&self.processes, sockets.iter().map(|s| s.inode));
            ends_of(&sockets).filter_map(|(end, inode)| Some((end, holders.get(&inode)?.clone()))).collect()
        })
    }

    /// Processes that hold a listener at the address; with several listeners (`SO_REUSEPORT`) one set for each, unless
    /// they are shared.
    fn listening(&self, address: SocketAddr) -> Vec<BTreeSet<u32>> {
        let at_port = || self.sockets.iter().filter(|s| s.is_listener && s.local.port() == address.port());
        let held = |is_at: &dyn Fn(IpAddr) -> bool| {
            let listeners = at_port().filter(|s| is_at(s.local.ip()));
            holding(listeners.filter_map(|s| self.holders.get(&s.inode)))
        };
        // A listener on the specific address takes precedence over one on all addresses.
        let of_address = held(&|ip| ip == address.ip());
        if of_address.is_empty() { held(&|ip| ip.is_unspecified()) } else { of_address }
    }

    /// As [`SocketOwners::listening`], for the path of a Unix socket.
    fn listening_at(&self, path: &str) -> Vec<BTreeSet<u32>> {
        // A server may have bound it by a relative path.
        let whole = fs::canonicalize(path).unwrap_or_default();
        let is_same = |s: &&UnixSocket| {
            let is_at = s.address == path || !s.address.is_empty() && whole.ends_with(&s.address);
            s.is_listener && is_at
        };
        holding(self.unix.iter().filter(is_same).filter_map(|s| self.holders.get(&s.inode)))
    }

    /// Processes that accepted connections over Unix sockets from the processes in `own`.
    fn asked_by_unix(&self, own: &BTreeSet<u32>) -> Vec<BTreeSet<u32>> {
        // An accepted socket has the path of its listener; the connecting end mostly has none.
        let named = |s: &&UnixSocket| {
            !s.is_listener
                && !s.address.is_empty()
                && !OF_THE_MACHINE.iter().any(|of| s.address.starts_with(of))
        };
        let is_theirs = |inode: u32| self.holders.get(&inode).is_some_and(|pids| !pids.is_disjoint(own));
        let accepted = self.unix.iter().filter(named).filter(|s| is_theirs(s.peer));
        let paths: BTreeMap<&str, u32> = accepted.map(|s| (s.address.as_str(), s.inode)).collect();
        paths.into_values().filter_map(|inode| self.holders.get(&inode).cloned()).collect()
    }

    /// Processes that a process tree has connections to.
    fn asked_by(&self, leader: ProcessId) -> Vec<BTreeSet<u32>> {
        let family = ProcessFamily { leader, mark: String::new() };
        let own: BTreeSet<u32> = family.members(&self.processes).iter().map(|s| s.pid).collect();
        // Connections made for one request live shorter than a look at all processes takes, so the tree's are read
        // anew, and their holders right after.
        let mut now = Vec::new();
        let read = |table: SocketTable| { table }.read(&mut Subset::default(), &mut now);
        if SocketTable::of_process(leader.pid).and_then(read).is_err() {
            now.clone_from(&self.sockets);
        }
        let held: HashSet<u32> = own.iter().flat_map(|pid| process::sockets_of(*pid)).collect();
        let is_own = |s: &&Socket| !s.is_listener && held.contains(&s.inode);
        // The other end of a connection shows who accepted it, in any namespace; a connection waiting in a listener's
        // queue has no holder yet.
        let here: HashMap<ConnectionEnds, u32> = ends_of(&self.sockets).collect();
        let accepted = |s: &Socket| {
            let end = (s.remote, s.local);
            let held_here = here.get(&end).map(|inode| self.holders.get(inode));
            held_here.unwrap_or_else(|| self.elsewhere().get(&end)).cloned()
        };
        // An accepting end does not call: something listens on its port.
        let listeners = self.sockets.iter().chain(&now).filter(|s| s.is_listener);
        let ports: HashSet<u16> = listeners.map(|s| s.local.port()).collect();
        let asks = |s: &&Socket| !ports.contains(&s.local.port()) || ports.contains(&s.remote.port());
        let mut listening: BTreeMap<SocketAddr, Vec<BTreeSet<u32>>> = BTreeMap::new();
        let mut accepting: BTreeMap<SocketAddr, BTreeSet<u32>> = BTreeMap::new();
        for socket in now.iter().filter(is_own).filter(asks) {
            let seen = listening.entry(socket.remote).or_insert_with(|| self.listening(socket.remote));
            if seen.is_empty()
                && let Some(pids) = accepted(socket)
            {
                accepting.entry(socket.remote).or_default().extend(pids);
            }
        }
        let by_inet = listening.into_values().flatten().chain(accepting.into_values());
        let asked = by_inet.chain(self.asked_by_unix(&own));
        asked.filter(|pids| pids.is_disjoint(&own)).collect()
    }

    /// Adds the first process of those that share a socket: a master comes before its workers.
    fn add(&self, found: &mut Answering, pids: &BTreeSet<u32>) {
        let parents: BTreeMap<u32, &Stat> = self.processes.iter().map(|s| (s.pid, s)).collect();
        let is_first = |pid: &&u32| parents.get(pid).is_some_and(|s| !pids.contains(&s.parent));
        let Some(stat) = pids.iter().find(is_first).and_then(|pid| parents.get(pid)) else { return };
        // A worker belongs to its master's tree.
        let mut above = Some(*stat);
        while let Some(at) = above {
            if found.has(at.pid) {
                return;
            }
            above = parents.get(&at.parent).copied().filter(|parent| parent.pid != at.pid);
        }
        if found.processes.len() < MAX_PROCESSES {
            found.add(ProcessId { pid: stat.pid, start_ticks: stat.start_ticks });
        }
    }
}

/// Socket tables of the network namespaces of other processes, as far as they may be read.
fn other_namespaces(processes: &[Stat]) -> Vec<SocketTable> {
    let namespace_of = |pid: u32| fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|m| m.ino());
    let mut seen: HashSet<u64> = namespace_of(std::process::id()).into_iter().collect();
    let others = processes.iter().filter(|stat| namespace_of(stat.pid).is_some_and(|n| seen.insert(n)));
    others.take(MOST_NAMESPACES).filter_map(|stat| SocketTable::of_process(stat.pid).ok()).collect()
}

impl Watcher {
    /// Looks again once the load runs, since connections to databases are often opened with the first requests, and
    /// watches whatever was added. What was not found is reported in the evidence.
    ///
    /// # Errors
    /// No thread can be created.
    pub fn follow(&mut self, addresses: Vec<Listening>, mut found: Answering, emit: Emit) -> Result<()> {
        let (stop, reader) = (self.stopper(), self.reader.clone());
        self.spawn("loadlab-follow", move || {
            for after_ns in LOOK_AGAIN_AFTER_NS {
                if stop.wait_until(reader.clock.origin_ns + after_ns) {
                    break;
                }
                let (before, began_ns) = (found.processes.len(), clock::thread_cpu_ns());
                found = find_answering(&addresses, &[], std::mem::take(&mut found));
                for process in found.processes.iter().skip(before) {
                    super::lock(&reader.turns).add(process.target());
                }
                if let Some(text) = found.described(before) {
                    emit(WatchEvent::Note(text));
                }
                // Do not scan a machine with a million sockets again.
                if clock::thread_cpu_ns() - began_ns > COSTLY_NS {
                    break;
                }
            }
            if !found.not_seen.is_empty() {
                let at_s = reader.clock.at_s(clock::now_ns());
                let not_seen = found.not_seen;
                emit(WatchEvent::Evidence(Box::new(Evidence {
                    from_s: at_s,
                    to_s: at_s,
                    not_seen,
                    ..Evidence::default()
                })));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::StoppedBeforeExec;
    use std::io::{BufRead, BufReader};
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Child, Command, Stdio};

    /// A program that listens, and connects to another port if one is given; it prints its port.
    fn server(next: Option<u16>) -> (Child, u16) {
        let program = "import socket,sys\n\
            s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen()\n\
            c=[socket.create_connection(('127.0.0.1',int(p))) for p in sys.argv[1:]]\n\
            print(s.getsockname()[1],flush=True)\n\
            sys.stdin.read()\n";
        let mut command = Command::new("python3");
        command.args(["-c", program]).args(next.map(|port| port.to_string()));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line.trim().parse().unwrap())
    }

    #[test]
    fn a_chain_of_processes_is_found_from_its_first() {
        let (mut back, back_port) = server(None);
        let (mut front, front_port) = server(Some(back_port));
        let address = Listening::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, front_port)));
        let found = find_answering(std::slice::from_ref(&address), &[], Answering::default());
        let pids: Vec<u32> = found.processes.iter().map(|p| p.process.pid).collect();
        assert_eq!((pids, &found.not_seen), (vec![front.id(), back.id()], &Vec::new()), "{found:?}");
        let names = found.names();
        assert!(names[0].starts_with("python") && names[1] == format!("{}-2", names[0]), "{names:?}");
        let described = format!("watching {} (pid {})", names[1], back.id());
        assert_eq!((found.described(1), found.described(2)), (Some(described), None));
        // A second look finds nothing twice.
        assert_eq!(find_answering(&[address], &[], found.clone()), found);
        for child in [&mut front, &mut back] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn servers_that_share_an_address_are_all_found() {
        let program = "import socket,sys\n\
            s=socket.socket(); s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEPORT,1)\n\
            s.bind(('127.0.0.1',int(sys.argv[1]))); s.listen()\n\
            print(s.getsockname()[1],flush=True)\n\
            sys.stdin.read()\n";
        let start = |port: &str| {
            let mut command = Command::new("python3");
            command.args(["-c", program, port]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("python3 is installed");
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            (child, line.trim().to_owned())
        };
        let (mut one, port) = start("0");
        let (mut two, _) = start(&port);
        let (mut front, front_port) = server(Some(port.parse().unwrap()));
        let find = |port: u16| {
            let address = Listening::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            let found = find_answering(&[address], &[], Answering::default());
            let pids: BTreeSet<u32> = found.processes.iter().map(|p| p.process.pid).collect();
            assert_eq!(found.not_seen, [""; 0]);
            pids
        };
        assert_eq!(find(port.parse().unwrap()), BTreeSet::from([one.id(), two.id()]));
        // The same when another process calls them.
        assert_eq!(find(front_port), BTreeSet::from([front.id(), one.id(), two.id()]));
        for child in [&mut one, &mut two, &mut front] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn those_that_share_a_socket_are_one_server() {
        let sets = [BTreeSet::from([1, 2]), BTreeSet::from([7]), BTreeSet::from([2, 3]), BTreeSet::new()];
        let groups = holding(sets.iter().filter(|pids| !pids.is_empty()));
        assert_eq!(groups, [BTreeSet::from([1, 2, 3]), BTreeSet::from([7])]);
    }

    #[test]
    fn servers_behind_a_unix_socket_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store").to_str().unwrap().to_owned();
        // One program listens, the other is connected to it, and waits until it is accepted.
        let program = |role: &str| {
            let program = "import socket,sys\n\
                s=socket.socket(socket.AF_UNIX)\n\
                if sys.argv[1]=='store': s.bind(sys.argv[2]); s.listen(); print('up',flush=True); c=s.accept(); c[0].sendall(b'!')\n\
                else: s.connect(sys.argv[2]); s.recv(1); t=socket.socket(); t.bind(('127.0.0.1',0)); t.listen(); print(t.getsockname()[1],flush=True)\n\
                sys.stdin.read()\n";
            let mut command = Command::new("python3");
            command.args(["-c", program, role, &path]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("python3 is installed");
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            (child, line.trim().to_owned())
        };
        let (mut store, _) = program("store");
        let (mut web, port) = program("web");
        let address = Listening::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap())));
        let of = |at: Listening| -> Vec<u32> {
            let found = find_answering(&[at], &[], Answering::default());
            found.processes.iter().map(|p| p.process.pid).collect()
        };
        assert_eq!(of(Listening::Unix(path)), [store.id()]);
        assert_eq!(of(address), [web.id(), store.id()]);
        for child in [&mut store, &mut web] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_process_being_started_answers_nothing() {
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, inode) = (own.local_addr().unwrap(), rustix::fs::fstat(&own).unwrap().st_ino as u32);
        let mut stopped = StoppedBeforeExec::new();
        let is_child = |stat: &&Stat| stat.parent == std::process::id();
        let has_listener = |stat: &Stat| process::sockets_of(stat.pid).any(|held| held == inode);
        let is_held = process::snapshot().iter().filter(is_child).any(has_listener);
        let found = find_answering(&[Listening::Inet(address)], &[], Answering::default());
        stopped.go_on();
        stopped.end();
        assert!(is_held && found.processes.is_empty(), "{found:?}");
    }

    #[test]
    fn who_is_not_found_is_said() {
        // This process itself is never watched as a component.
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = Listening::Inet(own.local_addr().unwrap());
        let found = find_answering(&[address], &[], Answering::default());
        assert!(found.processes.is_empty(), "{found:?}");
        assert!(found.not_seen[0].starts_with("the process that answers at 127.0.0.1:"), "{found:?}");
        // Other machines are not searched.
        let elsewhere =
            find_answering(&[Listening::Inet("192.0.2.1:80".parse().unwrap())], &[], Answering::default());
        assert_eq!(elsewhere, Answering::default());
    }
}
