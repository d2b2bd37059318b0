//! Finds the owner of a socket: looks up its inode among the open files of the components' processes.
//!
//! Inspecting a process's open files takes a microsecond or two each, so it happens only when sockets with an unknown
//! owner appear, and at most five times a second.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::hash::Hash;
use std::io::ErrorKind;
use std::net::SocketAddr;

use loadlab_record::watch::names::GENERATOR;

use super::Members;
use crate::process;

/// Maximum number of open files that one look inspects, over all processes.
const MOST_FILES: usize = 50_000;

/// How often a socket of the same address is searched for among all processes: a search takes milliseconds.
const MOST_TRIES: u8 = 3;

/// Sockets by owner.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    components: Vec<String>,
    by_inode: HashMap<u32, Holder>,
    /// Sockets that were searched for but not found.
    strangers: HashSet<u32>,
    denied: BTreeSet<String>,
    of_load: LoadAddresses<SocketAddr>,
}

/// The holder of a socket.
#[derive(Clone, Copy, Debug)]
struct Holder {
    component: usize,
    /// The only process that holds it; `None` if there are several.
    pid: Option<u32>,
}

/// Addresses to which loadlab's own connections go.
///
/// The engine's sockets are not among any process's open files: io_uring keeps them in its own table. So one of the
/// sockets connected to an address is searched for among all processes; if no process has it, and it still exists when
/// the table of sockets is read again, the sockets to this address are the load's. If it is gone by then, it was merely
/// closed in the meantime.
#[derive(Debug)]
pub(crate) struct LoadAddresses<A> {
    of_load: HashSet<A>,
    /// Addresses to which other processes have connections.
    held: HashSet<A>,
    /// Sockets that no process was found to hold, by the address they are connected to.
    unheld: HashMap<A, u32>,
    /// Searches whose socket was closed in the meantime, by address.
    tries: HashMap<A, u8>,
}

impl<A> Default for LoadAddresses<A> {
    fn default() -> LoadAddresses<A> {
        LoadAddresses {
            of_load: HashSet::new(),
            held: HashSet::new(),
            unheld: HashMap::new(),
            tries: HashMap::new(),
        }
    }
}

impl<A: Eq + Hash + Clone> LoadAddresses<A> {
    /// The owner of sockets that are connected to an address and held by no known process: the load, if it has
    /// connections there.
    pub fn of_nobody<Q>(&self, address: &Q) -> Option<&'static str>
    where
        A: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.of_load.contains(address).then_some(GENERATOR)
    }

    /// Evaluates earlier searches, then searches for one socket of each address.
    pub fn look(&mut self, strangers: HashMap<A, u32>, is_alive: impl Fn(u32) -> bool) {
        for (address, inode) in std::mem::take(&mut self.unheld) {
            match is_alive(inode) {
                true => drop(self.of_load.insert(address)),
                false => *self.tries.entry(address).or_default() += 1,
            }
        }
        for (address, inode) in strangers {
            let is_open = !self.of_load.contains(&address) && !self.held.contains(&address);
            if !is_open || self.tries.get(&address).is_some_and(|tries| *tries >= MOST_TRIES) {
                continue;
            }
            match process::holder_of_socket(u64::from(inode)) {
                Some(_) => drop(self.held.insert(address)),
                None => drop(self.unheld.insert(address, inode)),
            }
        }
    }
}

impl Owners {
    /// The component that holds the socket.
    pub fn of(&self, inode: u32) -> Option<&str> {
        self.by_inode.get(&inode).and_then(|h| self.components.get(h.component)).map(String::as_str)
    }

    /// The process that holds the socket, if only one process of the components does.
    pub fn process_of(&self, inode: u32) -> Option<u32> {
        self.by_inode.get(&inode).and_then(|h| h.pid)
    }

    /// Whether its owner is unknown and it was not searched for yet.
    pub fn is_unknown(&self, inode: u32) -> bool {
        inode != 0 && !self.by_inode.contains_key(&inode) && !self.strangers.contains(&inode)
    }

    /// Whether it was searched for and no component has it.
    pub fn is_stranger(&self, inode: u32) -> bool {
        self.strangers.contains(&inode)
    }

    /// The owner of sockets that are connected to an address and held by no known process.
    pub fn of_nobody(&self, address: SocketAddr) -> Option<&'static str> {
        self.of_load.of_nobody(&address)
    }

    /// Searches for the load's own sockets, among those that no component holds.
    pub fn look_for_load(&mut self, strangers: HashMap<SocketAddr, u32>, alive: &HashSet<u32>) {
        self.of_load.look(strangers, |inode| alive.contains(&inode));
    }

    /// Searches for sockets with an unknown owner that existed before this look began.
    pub fn look(&mut self, members: &[Members], unknown: &HashSet<u32>) {
        let mut left = MOST_FILES;
        for component in members {
            let at = self.number_of(&component.component);
            for pid in &component.pids {
                if !self.look_at(*pid, at, &mut left) {
                    self.denied.insert(component.component.clone());
                }
            }
        }
        let not_found = unknown.iter().filter(|inode| !self.by_inode.contains_key(inode));
        self.strangers.extend(not_found);
    }

    fn number_of(&mut self, component: &str) -> usize {
        match self.components.iter().position(|name| name == component) {
            Some(at) => at,
            None => {
                self.components.push(component.to_owned());
                self.components.len() - 1
            }
        }
    }

    /// False if the process's files may not be seen. A process that has ended has none.
    fn look_at(&mut self, pid: u32, at: usize, left: &mut usize) -> bool {
        let files = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(files) => files,
            Err(e) => return e.kind() != ErrorKind::PermissionDenied,
        };
        for file in files.flatten().take(*left) {
            *left -= 1;
            let Ok(link) = fs::read_link(file.path()) else { continue };
            let inode =
                link.to_str().and_then(|l| l.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                let holder = self.by_inode.entry(inode).or_insert(Holder { component: at, pid: Some(pid) });
                holder.component = at;
                holder.pid = holder.pid.filter(|known| *known == pid);
            }
        }
        true
    }

    /// Called when components have other processes: sockets without an owner may belong to one of those.
    pub fn look_again(&mut self) {
        self.strangers.clear();
    }

    /// Forgets sockets that are gone: the kernel will reuse their inode numbers.
    pub fn keep(&mut self, alive: &HashSet<u32>) {
        self.by_inode.retain(|inode, _| alive.contains(inode));
        self.strangers.retain(|inode| alive.contains(inode));
    }

    /// Components whose sockets may not be seen.
    pub fn denied(&self) -> impl Iterator<Item = &str> {
        self.denied.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::fd::AsRawFd;

    #[test]
    fn sockets_are_found_by_the_processes_that_have_them() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let inode = rustix::fs::fstat(&listener).unwrap().st_ino as u32;
        let members = [Members { component: "web".into(), pids: vec![std::process::id()] }];
        let (mut owners, unknown) = (Owners::default(), HashSet::from([inode, u32::MAX]));
        assert!(owners.is_unknown(inode) && !owners.is_unknown(0));
        owners.look(&members, &unknown);
        assert_eq!(owners.of(inode), Some("web"), "{}", listener.as_raw_fd());
        assert!(owners.is_stranger(u32::MAX) && !owners.is_unknown(u32::MAX));
        assert_eq!(owners.denied().count(), 0);
        owners.look_again();
        assert!(owners.is_unknown(u32::MAX) && !owners.is_unknown(inode));
        owners.look(&members, &unknown);
        owners.keep(&HashSet::new());
        assert!(owners.is_unknown(inode) && owners.is_unknown(u32::MAX));
    }

    #[test]
    fn what_no_process_has_is_the_loads() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let had = rustix::fs::fstat(&listener).unwrap().st_ino as u32;
        let (of_load, of_other) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let gone = "127.0.0.1:3".parse().unwrap();
        let mut owners = Owners::default();
        let strangers = HashMap::from([(of_load, u32::MAX), (of_other, had), (gone, u32::MAX - 1)]);
        owners.look_for_load(strangers, &HashSet::new());
        assert_eq!(owners.of_nobody(of_load), None, "it may have been closed meanwhile");
        owners.look_for_load(HashMap::new(), &HashSet::from([u32::MAX, had]));
        let of = [of_load, of_other, gone].map(|address| owners.of_nobody(address));
        assert_eq!(of, [Some(GENERATOR), None, None]);
    }
}
