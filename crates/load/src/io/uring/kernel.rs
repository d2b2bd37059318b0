//! What the kernel supports, and how it signals which of several rings has completions.

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{IoUring, opcode};

/// Files kept free for the rest of the process, when a ring's table is sized and when open files are counted.
pub const RESERVED_FILES: u64 = 64;

/// Whether the kernel's release is at least this one; false if unknown.
pub fn is_at_least((major, minor): (u32, u32)) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Most sockets that one ring's table may hold: the kernel bounds it by the limit on open files.
pub fn table_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX).clamp(1, 1 << 20)
}

/// One epoll instance over one eventfd per ring, which the kernel signals when the ring has work. (Polling a ring's
/// own descriptor loses wake-ups while its task work is deferred.)
pub fn watch(rings: &[&IoUring]) -> std::io::Result<(OwnedFd, Vec<OwnedFd>)> {
    use rustix::event::{EventfdFlags, epoll, eventfd};
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut signals = Vec::new();
    for (i, ring) in rings.iter().enumerate() {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(signal.as_raw_fd())?;
        // Edge-triggered: each signal is an edge, and the count need not be read.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&ready, &signal, epoll::EventData::new_u64(i as u64), flags)?;
        signals.push(signal);
    }
    Ok((ready, signals))
}

/// Cancels all of a ring's pending sends, and waits at most a second for that. Sends only: for idle receives the kernel
/// searches from the start for each one, which takes minutes for a million of them.
///
/// # Errors
/// The kernel refuses. ENOENT (nothing to cancel) is not an error.
pub fn cancel_sends(ring: &IoUring) -> std::io::Result<()> {
    /// `struct io_uring_sync_cancel_reg` of `<linux/io_uring.h>`.
    #[repr(C)]
    struct Cancel {
        data: u64,
        file: i32,
        flags: u32,
        seconds: i64,
        nanoseconds: i64,
        operation: u8,
        reserved: [u8; 7],
        also_reserved: [u64; 3],
    }
    const REGISTER_SYNC_CANCEL: libc::c_ulong = 24;
    const ALL: u32 = 1;
    const BY_OPERATION: u32 = 1 << 5;
    let cancel = Cancel {
        data: 0,
        file: -1,
        flags: ALL | BY_OPERATION,
        seconds: 1,
        nanoseconds: 0,
        operation: opcode::Send::CODE,
        reserved: [0; 7],
        also_reserved: [0; 3],
    };
    // SAFETY: the kernel reads one such structure, of this frame.
    let result = unsafe {
        let from = std::ptr::addr_of!(cancel);
        // Variadic arguments are words: an `int` would leave the upper half undefined.
        let (file, count) = (libc::c_long::from(ring.as_raw_fd()), 1 as libc::c_ulong);
        libc::syscall(libc::SYS_io_uring_register, file, REGISTER_SYNC_CANCEL, from, count)
    };
    match result {
        0.. => Ok(()),
        _ => match std::io::Error::last_os_error() {
            none if none.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use io_uring::types::Fd;

    use super::*;

    #[test]
    fn sends_under_way_are_ended_and_receives_are_left() {
        for _ in 0..100 {
            let ring = match IoUring::new(8) {
                Ok(ring) => ring,
                // Not permitted here; tests/real.rs reports that.
                Err(error) => {
                    let is_forbidden = matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS));
                    return assert!(is_forbidden, "{error}");
                }
            };
            let ended = ended_by_cancelling(ring);
            // If the peer acknowledges late, there is room again, and the send goes out by itself.
            if !matches!(ended[..], [(1, taken)] if taken > 0) {
                return assert_eq!(ended, [(1, -libc::ECANCELED)]);
            }
        }
        panic!("there was room for each send");
    }

    /// What has ended once the sends are cancelled, of a send (1) for which there was no room and a receive (2).
    fn ended_by_cancelling(mut ring: IoUring) -> Vec<(u64, i32)> {
        assert!(cancel_sends(&ring).is_ok(), "none is under way");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut ours = TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens");
        let (_theirs, _) = listener.accept().expect("it connects");
        ours.set_nonblocking(true).expect("a flag");
        while ours.write(&[0; 65536]).is_ok() {}
        ours.set_nonblocking(false).expect("a flag");
        let (bytes, mut room) = ([0u8; 4096], [0u8; 64]);
        let file = Fd(ours.as_raw_fd());
        let send = opcode::Send::new(file, bytes.as_ptr(), bytes.len() as u32).build().user_data(1);
        let receive = opcode::Recv::new(file, room.as_mut_ptr(), room.len() as u32).build().user_data(2);
        // SAFETY: both point to memory of this frame, which outlives the ring's use of it.
        unsafe { ring.submission().push_multiple(&[send, receive]).expect("room for two") };
        ring.submit().expect("both are under way");
        cancel_sends(&ring).expect("it ends");
        // Cancelling has waited for the end: this call does not.
        ring.submit().expect("nothing more");
        let ended: Vec<_> = ring.completion().map(|c| (c.user_data(), c.result())).collect();
        drop(ours);
        let any = io_uring::types::CancelBuilder::any();
        ring.submitter().register_sync_cancel(None, any).expect("the receive ends as well");
        ended
    }
}
