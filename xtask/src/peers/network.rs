//! A separate network namespace for the measurements: no firewall tracks its connections, all ports are free, and
//! connections in TIME_WAIT disappear with it. A row with a connection for each request gets a new namespace for each
//! run: otherwise the second tool would run into the ports that the first one used.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rustix::thread::UnshareFlags;

use crate::command::{captured, find, program};

/// Its settings: all ports, long queues, and room for connections in TIME_WAIT.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_local_port_range", "1024 65535"),
    ("core/somaxconn", "65535"),
    ("ipv4/tcp_max_tw_buckets", "1000000"),
];

/// Moves this program, and everything it starts from now on, into a new network namespace. Earlier servers become
/// unreachable. If this is not permitted (it needs root), returns the reason and stays where it is.
///
/// # Errors
/// It moved, but loopback cannot be brought up there.
#[expect(unsafe_code, reason = "unshare: what is measured has a separate network")]
pub fn fresh() -> Result<Result<(), String>> {
    if find("ip").is_none() {
        return Ok(Err("ip is not installed (apt-get install iproute2)".to_owned()));
    }
    // SAFETY: only CLONE_NEWNET: memory, files and descriptors stay as they are, and no other thread is affected.
    if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
        return Ok(Err(format!("no network namespace of its own: {error}")));
    }
    captured(program("ip").args(["link", "set", "lo", "up"]), Duration::from_secs(10))?
        .ok("ip link set lo up")?;
    for (name, value) in SETTINGS {
        let path = Path::new("/proc/sys/net").join(name);
        if let Err(error) = fs::write(&path, value) {
            println!("{}: {error}", path.display());
        }
    }
    Ok(Ok(()))
}
