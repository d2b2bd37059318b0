//! What a thread waits for, judged by its system call or, if that may not be inspected, by the kernel function.
//!
//! A wait shows where a thread is, not whether that is bad: an idle worker waits for a lock, too.

use std::os::fd::OwnedFd;

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

use super::task::{TaskFiles, ThreadPosition};

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// On a core, or runnable.
    Running,
    /// Waits for a lock: of memory (futex), a file or a semaphore.
    Lock,
    /// Waits for a disk, or uninterruptibly for something else.
    Disk,
    /// Waits for a socket: for bytes, buffer space or a connection.
    Network,
    /// Waits for any of several events: poll, select, epoll, completions.
    Poll,
    /// Waits for time to pass.
    Sleep,
    /// Anything else: a pipe, a terminal, a child, a signal.
    Other,
}

impl Doing {
    /// Number of variants.
    pub const COUNT: usize = Doing::Other as usize + 1;
}

/// What was observed of a thread, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    /// Seen from its state or its system call.
    Clearly(Doing),
    /// Guessed from the kernel function it waits in: its call may not be inspected.
    ByFunction(Doing),
    /// It waits, and neither call nor function may be inspected. A thread that has just begun to wait looks the same.
    Hidden,
}

/// Inspects a thread now, through its open `syscall` file if there is one. Most inspections read one file, some two.
///
/// # Errors
/// The kernel's, when the thread is gone.
pub(crate) fn look(files: &mut TaskFiles, pid: u32, tid: u32, open: Option<&OwnedFd>) -> Result<Observation> {
    let place = match open {
        Some(file) => files.place_in(file),
        None => files.place(pid, tid),
    };
    let doing = match place {
        Ok(ThreadPosition::Running) => Doing::Running,
        Ok(ThreadPosition::Call { number, args }) => match by_call(number, args) {
            ByCall::Doing(doing) => doing,
            ByCall::File(fd) => match files.kind_of_file(pid, fd) {
                Some(FileType::RegularFile | FileType::BlockDevice | FileType::Directory) => Doing::Disk,
                Some(FileType::Socket) => Doing::Network,
                _ => by_state(files.state(pid, tid)?).unwrap_or(Doing::Other),
            },
            ByCall::Restarted => by_function(files.waits_in(pid, tid)?).unwrap_or(Doing::Other),
            ByCall::Unknown => by_state(files.state(pid, tid)?).unwrap_or(Doing::Other),
        },
        Ok(ThreadPosition::Elsewhere) => match by_state(files.state(pid, tid)?) {
            Some(doing) => doing,
            None => by_function(files.waits_in(pid, tid)?).unwrap_or(Doing::Other),
        },
        Err(Errno::SRCH) => return Err(Errno::SRCH),
        // The kernel may not have this file, or the thread is gone: its state decides.
        Err(_) => return look_without_call(files, pid, tid),
    };
    Ok(Observation::Clearly(doing))
}

/// As [`look`], for a thread that may not be traced.
///
/// # Errors
/// The kernel's, when the thread is gone.
pub(crate) fn look_without_call(files: &mut TaskFiles, pid: u32, tid: u32) -> Result<Observation> {
    if let Some(doing) = by_state(files.state(pid, tid)?) {
        return Ok(Observation::Clearly(doing));
    }
    Ok(by_function(files.waits_in(pid, tid)?).map_or(Observation::Hidden, Observation::ByFunction))
}

/// What a thread's state shows on its own.
fn by_state(state: u8) -> Option<Doing> {
    match state {
        b'R' => Some(Doing::Running),
        b'D' => Some(Doing::Disk),
        b'S' => None,
        _ => Some(Doing::Other),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByCall {
    Doing(Doing),
    /// A read or write: what it waits for depends on the kind of file.
    File(i32),
    /// It resumes another call, which this one does not name.
    Restarted,
    /// The call does not show it; the state may.
    Unknown,
}

// Calls that libc does not define for every architecture.
const FUTEX_WAITV: i64 = 449;
const FUTEX_WAIT: i64 = 455;
const EPOLL_PWAIT2: i64 = 441;
const CLONE3: i64 = 435;
#[cfg(target_arch = "x86_64")]
const SYNC_FILE_RANGE: i64 = 277;
#[cfg(not(target_arch = "x86_64"))]
const SYNC_FILE_RANGE: i64 = 84;
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: i64 = 333;
#[cfg(not(target_arch = "x86_64"))]
const IO_PGETEVENTS: i64 = 292;

fn by_call(number: i64, args: [u64; 6]) -> ByCall {
    // The kernel passes the arguments as registers; these are 32 bits wide.
    let int = |n: usize| args[n] as u32 as i32;
    let polls = |count: usize| ByCall::Doing(if args[count] == 0 { Doing::Sleep } else { Doing::Poll });
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => return polls(1),
        libc::SYS_select => return polls(0),
        libc::SYS_epoll_wait => return ByCall::Doing(Doing::Poll),
        // The parent sleeps uninterruptibly until the child has started its program: not a disk wait.
        libc::SYS_vfork => return ByCall::Doing(Doing::Other),
        _ => {}
    }
    match number {
        libc::SYS_futex | FUTEX_WAITV | FUTEX_WAIT | libc::SYS_flock => ByCall::Doing(Doing::Lock),
        libc::SYS_semop | libc::SYS_semtimedop => ByCall::Doing(Doing::Lock),
        libc::SYS_fcntl if matches!(int(1), libc::F_SETLKW | libc::F_OFD_SETLKW) => {
            ByCall::Doing(Doing::Lock)
        }
        libc::SYS_fsync | libc::SYS_fdatasync | SYNC_FILE_RANGE | libc::SYS_msync => {
            ByCall::Doing(Doing::Disk)
        }
        libc::SYS_sync | libc::SYS_syncfs => ByCall::Doing(Doing::Disk),
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        // `sendfile` waits for the file it sends to.
        | libc::SYS_sendfile => ByCall::File(int(0)),
        libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_connect
        | libc::SYS_accept
        | libc::SYS_accept4 => ByCall::Doing(Doing::Network),
        // Polling nothing is a common way to sleep.
        libc::SYS_ppoll => polls(1),
        libc::SYS_pselect6 => polls(0),
        libc::SYS_epoll_pwait | EPOLL_PWAIT2 | libc::SYS_io_uring_enter => ByCall::Doing(Doing::Poll),
        // A thread that waits for disk completions waits here when idle, too, so this is no proof of disk I/O.
        libc::SYS_io_getevents | IO_PGETEVENTS => ByCall::Doing(Doing::Poll),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => ByCall::Doing(Doing::Sleep),
        libc::SYS_clone | CLONE3 => ByCall::Doing(Doing::Other),
        libc::SYS_restart_syscall => ByCall::Restarted,
        _ => ByCall::Unknown,
    }
}

/// Which peer's bytes a blocked call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// No peer's.
    Nothing,
    /// A read or receive on this file.
    File(i32),
    /// Any of `count` files: an array of `struct pollfd` at this address in the process's memory.
    Poll { at: u64, count: u64 },
    /// Any of the files below `count` whose bits are set at this address in the process's memory.
    Select { at: u64, count: u64 },
    /// Any file of this epoll.
    Epoll(i32),
    /// Possibly a peer's bytes: this cannot be seen here.
    Hidden,
}

/// Which peer's bytes a thread in this call waits for.
pub(crate) fn awaits(number: i64, args: [u64; 6]) -> Awaits {
    let fd = args[0] as u32 as i32;
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => return Awaits::Poll { at: args[0], count: args[1] },
        libc::SYS_select => return Awaits::Select { at: args[1], count: args[0] },
        libc::SYS_epoll_wait => return Awaits::Epoll(fd),
        _ => {}
    }
    match number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => {
            Awaits::File(fd)
        }
        libc::SYS_ppoll => Awaits::Poll { at: args[0], count: args[1] },
        libc::SYS_pselect6 => Awaits::Select { at: args[1], count: args[0] },
        libc::SYS_epoll_pwait | EPOLL_PWAIT2 => Awaits::Epoll(fd),
        // The restarted call is mostly a poll.
        libc::SYS_io_uring_enter | libc::SYS_restart_syscall => Awaits::Hidden,
        _ => Awaits::Nothing,
    }
}

/// Name prefixes of the kernel functions that threads wait in; the first match wins.
const FUNCTIONS: &[(Doing, &[&str])] = &[
    (
        Doing::Lock,
        &["futex", "__futex", "do_semtimedop", "__do_semtimedop", "posix_lock_inode", "fcntl_setlk"],
    ),
    (Doing::Lock, &["locks_lock_inode", "flock_lock_inode", "rt_mutex", "rwsem_", "__mutex", "mutex_"]),
    (Doing::Poll, &["ep_poll", "do_epoll", "do_sys_poll", "do_poll", "poll_schedule", "do_select"]),
    (Doing::Poll, &["io_cqring_wait", "__io_cqring", "read_events", "schedule_hrtimeout"]),
    (Doing::Sleep, &["hrtimer_nanosleep", "do_nanosleep", "common_nsleep"]),
    (
        Doing::Network,
        &["inet_", "__inet_", "sk_", "__sk_", "skb_", "__skb_", "sock_", "tcp_", "udp_", "unix_"],
    ),
    (Doing::Network, &["wait_woken", "netlink_", "vsock_", "mptcp_"]),
    (
        Doing::Disk,
        &["jbd2_", "io_schedule", "folio_wait", "wait_on_page", "wait_on_buffer", "__wait_on_buffer"],
    ),
    (
        Doing::Disk,
        &["ext4_", "xfs_", "xlog_", "btrfs_", "nfs_", "rpc_wait", "request_wait_answer", "filemap_"],
    ),
    (
        Doing::Disk,
        &["blk_", "blkdev_", "submit_bio_wait", "balance_dirty", "writeback_", "wb_wait", "sync_inodes"],
    ),
];

/// `None` for `0`: the thread does not wait, or may not be inspected.
fn by_function(name: &str) -> Option<Doing> {
    if matches!(name, "" | "0") {
        return None;
    }
    let fits = |(_, starts): &&(Doing, &[&str])| starts.iter().any(|start| name.starts_with(start));
    Some(FUNCTIONS.iter().find(fits).map_or(Doing::Other, |(doing, _)| *doing))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;
    use crate::clock;

    const NO_ARGS: [u64; 6] = [0; 6];
    /// Long enough for a busy machine.
    const PATIENCE_NS: u64 = 60_000_000_000;

    #[test]
    fn system_calls_are_classified() {
        let check = |number: i64, args: [u64; 6], expect: ByCall| {
            assert_eq!(by_call(number, args), expect, "{number} {args:?}");
        };
        let doing = ByCall::Doing;
        check(libc::SYS_futex, NO_ARGS, doing(Doing::Lock));
        check(449, NO_ARGS, doing(Doing::Lock));
        check(libc::SYS_flock, NO_ARGS, doing(Doing::Lock));
        check(libc::SYS_fcntl, [3, libc::F_SETLKW as u64, 0, 0, 0, 0], doing(Doing::Lock));
        check(libc::SYS_fcntl, [3, libc::F_GETFL as u64, 0, 0, 0, 0], ByCall::Unknown);
        check(libc::SYS_semtimedop, NO_ARGS, doing(Doing::Lock));
        for number in
            [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_msync, libc::SYS_sync, libc::SYS_syncfs]
        {
            check(number, NO_ARGS, doing(Doing::Disk));
        }
        check(libc::SYS_read, [7, 0, 0, 0, 0, 0], ByCall::File(7));
        check(libc::SYS_pwrite64, [0xffff_ffff, 0, 0, 0, 0, 0], ByCall::File(-1));
        for number in [libc::SYS_recvfrom, libc::SYS_connect, libc::SYS_accept4, libc::SYS_sendmsg] {
            check(number, NO_ARGS, doing(Doing::Network));
        }
        check(libc::SYS_ppoll, [1, 2, 0, 0, 0, 0], doing(Doing::Poll));
        check(libc::SYS_ppoll, NO_ARGS, doing(Doing::Sleep));
        check(libc::SYS_pselect6, [8, 0, 0, 0, 0, 0], doing(Doing::Poll));
        check(libc::SYS_epoll_pwait, NO_ARGS, doing(Doing::Poll));
        check(libc::SYS_io_uring_enter, NO_ARGS, doing(Doing::Poll));
        check(libc::SYS_clock_nanosleep, NO_ARGS, doing(Doing::Sleep));
        check(libc::SYS_wait4, NO_ARGS, ByCall::Unknown);
        check(libc::SYS_restart_syscall, NO_ARGS, ByCall::Restarted);
    }

    #[test]
    fn whose_bytes_a_call_waits_for() {
        let check = |number: i64, args: [u64; 6], expect: Awaits| {
            assert_eq!(awaits(number, args), expect, "{number} {args:?}");
        };
        check(libc::SYS_recvfrom, [7, 0, 0, 0, 0, 0], Awaits::File(7));
        check(libc::SYS_read, [0xffff_ffff, 0, 0, 0, 0, 0], Awaits::File(-1));
        check(libc::SYS_ppoll, [4096, 1, 0, 0, 0, 0], Awaits::Poll { at: 4096, count: 1 });
        check(libc::SYS_pselect6, [8, 4096, 0, 0, 0, 0], Awaits::Select { at: 4096, count: 8 });
        check(libc::SYS_epoll_pwait, [5, 0, 0, 0, 0, 0], Awaits::Epoll(5));
        check(libc::SYS_io_uring_enter, NO_ARGS, Awaits::Hidden);
        check(libc::SYS_futex, NO_ARGS, Awaits::Nothing);
        check(libc::SYS_sendto, [7, 0, 0, 0, 0, 0], Awaits::Nothing);
    }

    #[test]
    fn kernel_functions_are_classified() {
        let check = |name: &str, expect: Option<Doing>| assert_eq!(by_function(name), expect, "{name}");
        check("0", None);
        check("", None);
        check("futex_wait_queue", Some(Doing::Lock));
        check("futex_do_wait", Some(Doing::Lock));
        check("do_epoll_wait", Some(Doing::Poll));
        check("ep_poll", Some(Doing::Poll));
        check("jbd2_log_wait_commit", Some(Doing::Disk));
        check("io_schedule", Some(Doing::Disk));
        check("folio_wait_bit_common", Some(Doing::Disk));
        check("inet_csk_accept", Some(Doing::Network));
        check("wait_woken", Some(Doing::Network));
        check("sk_wait_data", Some(Doing::Network));
        check("hrtimer_nanosleep", Some(Doing::Sleep));
        check("pipe_read", Some(Doing::Other));
        check("do_wait", Some(Doing::Other));
    }

    #[test]
    fn thread_states_are_classified() {
        assert_eq!(by_state(b'R'), Some(Doing::Running));
        assert_eq!(by_state(b'D'), Some(Doing::Disk));
        assert_eq!(by_state(b'S'), None);
        assert_eq!(by_state(b'Z'), Some(Doing::Other));
    }

    /// This thread's id.
    fn own_tid() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    /// Inspects a thread that runs `begin` until both methods have shown what is expected.
    fn shows(expect: Doing, begin: impl FnOnce(Sender<u32>) + Send + 'static) {
        let (sender, receiver) = channel();
        thread::spawn(|| begin(sender));
        let (pid, tid) = (std::process::id(), receiver.recv().unwrap());
        let mut files = TaskFiles::new();
        let mut wait_for = |what: fn(&mut TaskFiles, u32, u32) -> Result<Observation>| {
            let (mut seen, until_ns) = (None, clock::now_ns() + PATIENCE_NS);
            while seen != Some(expect) && clock::now_ns() < until_ns {
                seen = match what(&mut files, pid, tid).unwrap() {
                    Observation::Clearly(doing) | Observation::ByFunction(doing) => Some(doing),
                    Observation::Hidden => None,
                };
                thread::yield_now();
            }
            seen
        };
        assert_eq!(wait_for(|files, pid, tid| look(files, pid, tid, None)), Some(expect), "by call");
        let by_open_file: fn(&mut TaskFiles, u32, u32) -> Result<Observation> = |files, pid, tid| {
            let open = files.open_place(pid, tid)?;
            look(files, pid, tid, Some(&open))
        };
        assert_eq!(wait_for(by_open_file), Some(expect), "by call, in an open file");
        assert_eq!(wait_for(look_without_call), Some(expect), "by function");
    }

    #[test]
    fn a_lock_shows() {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let same = Arc::clone(&lock);
        shows(Doing::Lock, move |tid| {
            tid.send(own_tid()).unwrap();
            drop(same.lock());
        });
        drop(held);
    }

    #[test]
    fn an_accept_shows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        shows(Doing::Network, move |tid| {
            tid.send(own_tid()).unwrap();
            let _ = listener.accept();
        });
    }

    #[test]
    fn a_receive_shows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap();
        shows(Doing::Network, move |tid| {
            tid.send(own_tid()).unwrap();
            let _ = client.read(&mut [0]);
        });
        drop(server);
    }

    #[test]
    fn a_read_of_a_socket_shows() {
        let (mut one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        shows(Doing::Network, move |tid| {
            tid.send(own_tid()).unwrap();
            // Not `recv`, which the standard library calls.
            let _ = rustix::io::read(&mut one, &mut [0; 1]);
        });
        drop(other);
    }

    #[test]
    fn a_read_of_a_pipe_shows() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        shows(Doing::Other, move |tid| {
            tid.send(own_tid()).unwrap();
            let _ = reader.read(&mut [0]);
        });
        drop(writer);
    }

    #[test]
    fn a_poll_shows() {
        let (reader, writer) = std::io::pipe().unwrap();
        shows(Doing::Poll, move |tid| {
            tid.send(own_tid()).unwrap();
            let mut fds = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut fds, None);
        });
        drop(writer);
    }

    #[test]
    fn an_epoll_shows() {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let waiting = epoll.try_clone().unwrap();
        shows(Doing::Poll, move |tid| {
            tid.send(own_tid()).unwrap();
            let events: &mut [rustix::event::epoll::Event] = &mut [rustix::event::epoll::Event {
                flags: rustix::event::epoll::EventFlags::empty(),
                data: rustix::event::epoll::EventData::new_u64(0),
            }];
            let _ = rustix::event::epoll::wait(&waiting, events, None);
        });
    }

    #[test]
    fn a_sleep_shows() {
        shows(Doing::Sleep, move |tid| {
            tid.send(own_tid()).unwrap();
            let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 100_000, tv_nsec: 0 });
        });
    }

    #[test]
    fn a_spin_shows() {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let same = Arc::clone(&stop);
        shows(Doing::Running, move |tid| {
            tid.send(own_tid()).unwrap();
            while !same.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    #[test]
    fn a_thread_that_is_gone_is_an_error() {
        let tid = thread::spawn(own_tid).join().unwrap();
        let mut files = TaskFiles::new();
        // The thread may still be exiting after `join`.
        let until_ns = clock::now_ns() + PATIENCE_NS;
        while look(&mut files, std::process::id(), tid, None).is_ok() {
            assert!(clock::now_ns() < until_ns, "it is still there");
            thread::yield_now();
        }
    }
}
