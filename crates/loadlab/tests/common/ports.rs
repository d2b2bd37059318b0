//! Ports for servers of tests. A port that the kernel chooses is given to the next who asks as soon as its server is gone,
//! and tests run side by side: the load on a server that died would go to another test's. These are below the range from
//! which the kernel chooses, and none is given twice.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 21_000;
const COUNT: u32 = 10_000;

/// A port of 127.0.0.1 that nobody uses, and no other test of this program is given.
#[allow(dead_code, reason = "the tests of `load` start no other program")]
pub fn unused() -> SocketAddr {
    listener().local_addr().expect("an address")
}

/// Listens there. Where this program is to listen itself, it must not let go of the port: a process that another test
/// starts in that moment holds a copy until it is what it becomes.
pub fn listener() -> TcpListener {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time begin at different places.
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
