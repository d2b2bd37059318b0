//! Whether a TCP port is free and, if not, which process holds it.
//!
//! A component that finds its port taken often continues without it, or fails with a message that hides the real cause:
//! a program left running an hour ago. So the port is checked first and its owner named.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::clock;
use crate::error::{Error, Result};
use crate::process;

/// `LISTEN` in the kernel's tables.
const LISTEN: u8 = 0x0A;

/// One line of `/proc/net/tcp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    port: u16,
    state: u8,
    inode: u64,
}

/// How long a child of this process may take to release its copies of our sockets. It holds them until its exec.
const STARTING_NS: u64 = 1_000_000_000;

/// Checks that every port is free; the error names the first that is not, and its owner.
pub(crate) fn check_free(component: &str, ports: &[u16]) -> Result<()> {
    for &port in ports {
        // The table has a line for every connection of the machine, thousands after a load; it is read only to name
        // owners.
        if can_be_had(port) {
            continue;
        }
        if let Some(owner) = once_started(STARTING_NS, || owner_of(port)) {
            let by = owner.map(by_whom).unwrap_or_default();
            return Err(Error::PortTaken { component: component.to_owned(), port, by });
        }
    }
    Ok(())
}

/// Checks that nothing listens on the port, except a process that `is_ours`.
pub(crate) fn check_no_stranger(component: &str, port: u16, is_ours: &dyn Fn(u32) -> bool) -> Result<()> {
    if can_be_had(port) {
        return Ok(());
    }
    let stranger_now = || {
        let listening = table().into_iter().find(|r| r.port == port && r.state == LISTEN);
        listening.and_then(|r| process::holder_of_socket(r.inode)).filter(|pid| !is_ours(*pid)).map(Some)
    };
    match once_started(STARTING_NS, stranger_now).flatten() {
        None => Ok(()),
        Some(pid) => Err(Error::PortTaken { component: component.to_owned(), port, by: by_whom(pid) }),
    }
}

/// The port's owner: `None` if it has none, `Some(None)` if it cannot be determined.
fn owner_of(port: u16) -> Option<Option<u32>> {
    let rows = table();
    let owner = rows.iter().find(|r| r.port == port && r.state == LISTEN);
    if owner.is_none() && !bind_fails(port) {
        return None;
    }
    let owner = owner.or_else(|| rows.iter().find(|r| r.port == port && r.inode != 0));
    Some(owner.and_then(|r| process::holder_of_socket(r.inode)))
}

fn by_whom(pid: u32) -> String {
    format!(" by pid {pid} ({})", process::command_of(pid))
}

/// The owner of a port, as [`owner_of`] finds it. A process that another thread is starting has copies of our sockets
/// until its exec, so a child of ours is waited for. So is an unknown owner: during an exec no process can be seen to
/// hold the descriptors being closed.
fn once_started(timeout_ns: u64, mut owner_now: impl FnMut() -> Option<Option<u32>>) -> Option<Option<u32>> {
    let since_ns = clock::now_ns();
    let us = std::process::id();
    // The kernel shows 0 as the parent of a process that is just ending.
    let is_child =
        |pid: u32| pid != us && process::stat(pid).is_none_or(|stat| [us, 0].contains(&stat.parent));
    loop {
        let owner = owner_now()?;
        if owner.is_some_and(|pid| !is_child(pid)) || clock::now_ns() - since_ns >= timeout_ns {
            return Some(owner);
        }
        std::thread::yield_now();
    }
}

/// Whether the port is free on every address, IPv4 and IPv6. If that cannot be tested, `false`: the caller looks it up.
fn can_be_had(port: u16) -> bool {
    let bound = || -> rustix::io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
        sockopt::set_ipv6_v6only(&socket, false)?;
        // Connections in TIME_WAIT do not prevent listening.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))
    };
    bound().is_ok()
}

/// Whether the port cannot be bound although nothing listens: an outgoing connection of another program uses it.
fn bind_fails(port: u16) -> bool {
    matches!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)), Err(e) if e.kind() == ErrorKind::AddrInUse)
}

fn table() -> Vec<Row> {
    let texts = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    texts.iter().flat_map(|text| text.lines().skip(1).filter_map(parse_row)).collect()
}

fn parse_row(line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let port = fields.get(1)?.rsplit(':').next()?;
    Some(Row {
        port: u16::from_str_radix(port, 16).ok()?,
        state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

#[cfg(test)]
#[path = "../../../loadlab/tests/common/ports.rs"]
mod of_tests;

#[cfg(test)]
mod tests {
    use super::of_tests::listener;
    use super::*;
    use crate::process::tests::StoppedBeforeExec;

    #[test]
    fn rows_of_both_families() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100";
        let v6 = "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 01 00000000:00000000 \
                  00:00000000 00000000     0        0 77 1 0";
        assert_eq!(parse_row(v4), Some(Row { port: 8080, state: LISTEN, inode: 4242 }));
        assert_eq!(parse_row(v6), Some(Row { port: 80, state: 1, inode: 77 }));
        assert_eq!(parse_row("  sl  local_address"), None);
    }

    #[test]
    fn a_taken_port_names_its_owner() {
        let listener = listener();
        let port = listener.local_addr().unwrap().port();
        let message = check_free("db", &[port]).unwrap_err().to_string();
        let expect = format!("component `db`: port {port} is already taken by pid {} (", std::process::id());
        assert!(message.starts_with(&expect), "{message}");
        drop(listener);
        becomes_free(|| check_free("db", &[port]).is_ok());
    }

    /// This port is free again, once no child between fork and exec has a copy of its socket.
    #[track_caller]
    fn becomes_free(is_free: impl Fn() -> bool) {
        let since = std::time::Instant::now();
        while !is_free() {
            assert!(since.elapsed().as_secs() < 60, "the port never becomes free");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_being_started_is_no_owner() {
        let listener = listener();
        let port = listener.local_addr().unwrap().port();
        let mut stopped = StoppedBeforeExec::new();
        drop(listener);
        let mut owners = Vec::new();
        let owner = once_started(60 * STARTING_NS, || {
            let owner = owner_of(port);
            if owners.is_empty() {
                stopped.go_on();
            }
            owners.push(owner);
            owner
        });
        assert!(matches!(owners[0], Some(Some(pid)) if pid != std::process::id()), "{owners:?}");
        assert_eq!(owner, None);
        stopped.end();
    }

    #[test]
    fn an_unknown_owner_is_looked_for_again() {
        let after = |looks: &[Option<Option<u32>>]| {
            let mut looks = looks.iter().copied();
            once_started(60 * STARTING_NS, || looks.next().unwrap())
        };
        let us = Some(std::process::id());
        assert_eq!(after(&[Some(None), None]), None);
        assert_eq!(after(&[Some(None), Some(None), Some(us)]), Some(us));
        assert_eq!(after(&[Some(us)]), Some(us));
        assert_eq!(once_started(0, || Some(None)), Some(None), "nobody waits for longer");
    }

    #[test]
    fn only_processes_of_the_system_may_listen() {
        let listener = listener();
        let port = listener.local_addr().unwrap().port();
        let us = std::process::id();
        check_no_stranger("db", port, &|pid| pid == us).unwrap();
        let message = check_no_stranger("db", port, &|_| false).unwrap_err().to_string();
        assert!(message.contains(&format!("port {port} is already taken by pid {us}")), "{message}");
        drop(listener);
        becomes_free(|| check_no_stranger("db", port, &|_| false).is_ok());
    }

    #[test]
    fn a_port_of_an_outgoing_connection_is_taken_too() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let out = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = out.local_addr().unwrap().port();
        let message = check_free("db", &[port]).unwrap_err().to_string();
        assert!(message.contains(&format!("by pid {}", std::process::id())), "{message}");
    }
}
