//! Ports for test servers. Once its server is gone, a port chosen by the kernel goes to the next process that asks, and
//! tests run in parallel: the load on a dead server would reach another test's server. These ports are below the range
//! the kernel chooses from, and none is used twice.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 21_000;
const COUNT: u32 = 10_000;

/// A port of 127.0.0.1 that is unused and not given to any other test of this program. It is looked up, never bound: a
/// process that another test starts at that moment would hold a copy of the socket until its exec, and the port would
/// stay taken for that long.
#[allow(dead_code, reason = "some programs of tests only listen themselves")]
pub fn unused() -> SocketAddr {
    next().find(|address| !is_in_use(address.port())).expect("one of the ports is free")
}

/// A listener on such a port. If this program is to listen itself, it must not release the port in between.
#[allow(dead_code, reason = "some programs of tests start all their servers")]
pub fn listener() -> TcpListener {
    next().find_map(|address| TcpListener::bind(address).ok()).expect("one of the ports is free")
}

/// All candidate ports, each handed out once.
fn next() -> impl Iterator<Item = SocketAddr> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time start at different ports.
    let start = std::process::id().wrapping_mul(131);
    (0..COUNT).map(move |_| {
        let place = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(FIRST + place).expect("below 65,536")))
    })
}

/// Whether any IPv4 or IPv6 socket of this machine has this local port.
fn is_in_use(port: u16) -> bool {
    let local = format!(":{port:04X}");
    let has_it = |line: &str| line.split_ascii_whitespace().nth(1).is_some_and(|at| at.ends_with(&local));
    let table = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.lines().any(has_it));
    table("/proc/net/tcp") || table("/proc/net/tcp6")
}
