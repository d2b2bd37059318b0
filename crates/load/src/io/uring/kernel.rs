//! What the kernel allows, and how it tells which of several rings has something to say.

use std::os::fd::OwnedFd;

use io_uring::IoUring;

/// Files kept free for the rest of the process when a ring's table is sized.
const RESERVED_FILES: u64 = 64;

/// Whether the kernel's release is at least this; not, if it cannot be told.
pub fn is_at_least((major, minor): (u32, u32)) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// How many sockets one ring's table may hold: the kernel bounds it by the limit on open files.
pub fn table_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX).clamp(1, 1 << 20)
}

/// One epoll instance over an event descriptor of each ring, which the kernel signals when the ring has something
/// to do. (Polling a ring's own descriptor loses wake-ups while its task work is deferred.)
pub fn watch(rings: &[&IoUring]) -> std::io::Result<(OwnedFd, Vec<OwnedFd>)> {
    use rustix::event::{EventfdFlags, epoll, eventfd};
    use std::os::fd::AsRawFd;
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut signals = Vec::new();
    for (i, ring) in rings.iter().enumerate() {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(signal.as_raw_fd())?;
        // Edge-triggered: each signal is an edge, and the count need never be read.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&ready, &signal, epoll::EventData::new_u64(i as u64), flags)?;
        signals.push(signal);
    }
    Ok((ready, signals))
}
