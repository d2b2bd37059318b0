//! One reading of all sockets, in which the other end of a connection and the listener at an address can be found.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::sockets::{NamespacePart, Socket};

/// One reading of all namespaces.
pub(super) struct SocketReading<'a> {
    /// Connections by their own and their other end's address.
    pub by_ends: HashMap<(SocketAddr, SocketAddr), &'a Socket>,
    /// Listeners by port, each with its namespace.
    listeners: HashMap<u16, Vec<(u64, &'a Socket)>>,
    /// The namespace an address is in, as far as sockets show it.
    homes: HashMap<IpAddr, u64>,
}

impl<'a> SocketReading<'a> {
    /// Sockets beyond the last part form another namespace.
    pub fn of(sockets: &'a [Socket], parts: &[NamespacePart]) -> SocketReading<'a> {
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
    pub fn listener(&self, at: SocketAddr) -> Option<&'a Socket> {
        let all = self.listeners.get(&at.port())?;
        let home = self.homes.get(&at.ip());
        let is_there = |namespace: &u64| at.ip().is_loopback() || home == Some(namespace);
        let exact = all.iter().find(|(_, s)| s.local.ip() == at.ip());
        let found = exact.or_else(|| all.iter().find(|(n, s)| is_wildcard(s.local.ip()) && is_there(n)));
        found.map(|(_, socket)| *socket)
    }

    /// Whether this end connected: something listens at the other end. If that does not decide, the end with the lower
    /// port counts as the server's.
    pub fn asks(&self, socket: &Socket) -> bool {
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

#[cfg(test)]
mod tests {
    use super::super::connection::tests::end;
    use super::*;

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
}
