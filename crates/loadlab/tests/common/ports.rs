//! Ports for servers of tests. A port chosen by the kernel is given to the next process that asks once its server is
//! gone, and tests run in parallel: the load on a dead server would go to another test's. These are below the range
//! from which the kernel chooses, and none is used twice.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 21_000;
const COUNT: u32 = 10_000;

/// A port of 127.0.0.1 that is unused, and not given to any other test of this program.
#[allow(dead_code, reason = "the tests of `load` start no other program")]
pub fn unused() -> SocketAddr {
    listener().local_addr().expect("an address")
}

/// Listens there. If this program itself is to listen, it must not release the port: a process that another test
/// starts at that moment holds a copy until its exec.
pub fn listener() -> TcpListener {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time start at different ports.
    let start = std::process::id().wrapping_mul(131);
    for _ in 0..COUNT {
        let place = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + place).expect("below 65,536");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if let Ok(listener) = TcpListener::bind(address) {
            return listener;
        }
    }
    panic!("none of {COUNT} ports is free");
}
