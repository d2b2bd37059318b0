//! Threads as `/proc/PID/task` shows them: state, system call, CPU time.
//!
//! Read many times a second beside a load, so paths and text use reused buffers. It reports what the kernel shows and
//! judges nothing.

use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::{Errno, Result};

/// What a thread is doing right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadPosition {
    /// On a core, or runnable.
    Running,
    /// Blocked in a system call.
    Call {
        /// The call's number, in the machine's own (64-bit) table.
        number: i64,
        /// Its six arguments.
        args: [u64; 6],
    },
    /// Blocked outside a call (a page fault), or in a call of another table, as in a 32-bit program.
    Elsewhere,
}

/// CPU time of a thread since it began, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuUse {
    /// Time on a core.
    pub on_ns: u64,
    /// Time runnable but waiting for a core; `None` if the kernel does not count it.
    pub delay_ns: Option<u64>,
}

/// Identifies a file by device and inode, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// How often a process's threads are listed if others end meanwhile.
const LISTS_MAX: u32 = 3;

/// Reused buffers for reading.
#[derive(Debug)]
pub(crate) struct TaskFiles {
    path: String,
    text: [u8; 1024],
    entries: Vec<MaybeUninit<u8>>,
    tick_ns: u64,
}

impl TaskFiles {
    pub fn new() -> TaskFiles {
        TaskFiles {
            path: String::with_capacity(64),
            text: [0; 1024],
            entries: vec![MaybeUninit::uninit(); 32 * 1024],
            tick_ns: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
        }
    }

    /// Where the thread is. Needs permission to trace it.
    ///
    /// # Errors
    /// `ACCESS` or `PERM` without the right, `NOENT` or `SRCH` when the thread is gone.
    pub fn place(&mut self, pid: u32, tid: u32) -> Result<ThreadPosition> {
        parse_place(self.read(pid, tid, "syscall")?).ok_or(Errno::INVAL)
    }

    /// Opens the file of this thread for [`TaskFiles::place_in`]; keeping it open costs a third of opening it each
    /// time.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_place(&mut self, pid: u32, tid: u32) -> Result<OwnedFd> {
        self.set_path(format_args!("/proc/{pid}/task/{tid}/syscall"));
        rustix::fs::open(self.path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Where the thread of this open file is.
    ///
    /// # Errors
    /// As of [`TaskFiles::place`]; never about another thread with the same id.
    pub fn place_in(&mut self, file: &OwnedFd) -> Result<ThreadPosition> {
        let length = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut self.text, 0))?;
        let text = std::str::from_utf8(&self.text[..length]).map_err(|_| Errno::INVAL)?;
        parse_place(text).ok_or(Errno::INVAL)
    }

    /// The letter of its state: `R`, `S`, `D`, …
    ///
    /// # Errors
    /// The kernel's.
    pub fn state(&mut self, pid: u32, tid: u32) -> Result<u8> {
        let text = self.read(pid, tid, "stat")?;
        after_name(text).and_then(|rest| rest.bytes().next()).ok_or(Errno::INVAL)
    }

    /// The kernel function it waits in; `0` if it does not wait or may not be inspected.
    ///
    /// # Errors
    /// The kernel's.
    pub fn waits_in(&mut self, pid: u32, tid: u32) -> Result<&str> {
        self.read(pid, tid, "wchan")
    }

    /// The CPU time it used, from the exact counters of the scheduler, or else in clock ticks.
    ///
    /// # Errors
    /// The kernel's.
    pub fn cpu(&mut self, pid: u32, tid: u32) -> Result<CpuUse> {
        // A kernel that does not count has no such file, or one with three zeros.
        if let Some(cpu) = self.read(pid, tid, "schedstat").ok().and_then(parse_schedstat) {
            return Ok(cpu);
        }
        let tick_ns = self.tick_ns;
        let ticks = parse_ticks(self.read(pid, tid, "stat")?).ok_or(Errno::INVAL)?;
        Ok(CpuUse { on_ns: ticks * tick_ns, delay_ns: None })
    }

    /// Its name, without terminal control characters; empty if it is gone.
    pub fn name(&mut self, pid: u32, tid: u32) -> String {
        self.read(pid, tid, "comm").unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
    }

    /// Number of threads of a process, without listing them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&mut self, pid: u32) -> Result<u32> {
        self.set_path(format_args!("/proc/{pid}/task"));
        // A folder has a link for itself, one in its parent, and one for each subfolder.
        let status = rustix::fs::statx(CWD, self.path.as_str(), AtFlags::STATX_DONT_SYNC, StatxFlags::NLINK)?;
        Ok(status.stx_nlink.saturating_sub(2))
    }

    /// Appends the ids of the process's threads. Returns whether they are as many as it has: if a thread ends while the
    /// kernel lists it, others may be missing, even after some repetitions.
    ///
    /// # Errors
    /// The kernel's.
    pub fn list(&mut self, pid: u32, tids: &mut Vec<u32>) -> Result<bool> {
        let before = tids.len();
        for _ in 0..LISTS_MAX {
            tids.truncate(before);
            self.list_once(pid, tids)?;
            // Counted afterwards: a list of as many as there are now can lack one only if it has one that has ended.
            if tids.len() - before == self.count(pid)? as usize {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn list_once(&mut self, pid: u32, tids: &mut Vec<u32>) -> Result<()> {
        self.set_path(format_args!("/proc/{pid}/task"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(self.path.as_str(), flags, Mode::empty())?;
        let mut entries = RawDir::new(folder, &mut self.entries);
        while let Some(entry) = entries.next() {
            tids.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(())
    }

    /// The type of the file a process has open as this descriptor.
    pub fn kind_of_file(&mut self, pid: u32, fd: i32) -> Option<FileType> {
        self.set_path(format_args!("/proc/{pid}/fd/{fd}"));
        // Without asking the server: a hanging file system must not hang the reader.
        let status =
            rustix::fs::statx(CWD, self.path.as_str(), AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
        Some(FileType::from_raw_mode(status.stx_mode.into()))
    }

    /// The inode of the socket a process has open as this descriptor, if it is a socket.
    pub fn socket(&mut self, pid: u32, fd: i32) -> Option<u32> {
        self.set_path(format_args!("/proc/{pid}/fd/{fd}"));
        let wanted = StatxFlags::TYPE | StatxFlags::INO;
        let status = rustix::fs::statx(CWD, self.path.as_str(), AtFlags::STATX_DONT_SYNC, wanted).ok()?;
        let is_socket = FileType::from_raw_mode(status.stx_mode.into()) == FileType::Socket;
        // The kernel gives sockets 32-bit inode numbers.
        is_socket.then_some(status.stx_ino as u32)
    }

    /// Reads the process's memory into the buffer. Needs permission to trace it.
    ///
    /// # Errors
    /// The kernel's; `FAULT` if less than that is mapped.
    pub fn memory(&mut self, pid: u32, at: u64, into: &mut [u8]) -> Result<()> {
        self.set_path(format_args!("/proc/{pid}/mem"));
        let file = rustix::fs::open(self.path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let wanted = into.len();
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut *into, at))?;
        if read == wanted { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// Files that an epoll instance waits for, each with its events.
    ///
    /// # Errors
    /// The kernel's; `TOOBIG` if there are more than a few dozen.
    pub fn epoll_set(&mut self, pid: u32, fd: i32) -> Result<Vec<(i32, u32)>> {
        const MOST_BYTES: usize = 8 << 10;
        self.set_path(format_args!("/proc/{pid}/fdinfo/{fd}"));
        let file = rustix::fs::open(self.path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let (mut text, mut length) = (vec![0; MOST_BYTES], 0);
        loop {
            let rest = &mut text[length..];
            if rest.is_empty() {
                return Err(Errno::TOOBIG);
            }
            match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut *rest))? {
                0 => break,
                more => length += more,
            }
        }
        let text = std::str::from_utf8(&text[..length]).map_err(|_| Errno::INVAL)?;
        Ok(text.lines().filter_map(parse_epoll_target).collect())
    }

    /// The program file of the process: device and inode. Needs permission to inspect it.
    pub fn program(&mut self, pid: u32) -> Option<FileId> {
        self.set_path(format_args!("/proc/{pid}/exe"));
        let status =
            rustix::fs::statx(CWD, self.path.as_str(), AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
        Some(FileId {
            device: (u64::from(status.stx_dev_major) << 32) | u64::from(status.stx_dev_minor),
            inode: status.stx_ino,
        })
    }

    fn set_path(&mut self, path: std::fmt::Arguments) {
        self.path.clear();
        // Writing to a `String` cannot fail.
        let _ = self.path.write_fmt(path);
    }

    fn read(&mut self, pid: u32, tid: u32, file: &str) -> Result<&str> {
        self.set_path(format_args!("/proc/{pid}/task/{tid}/{file}"));
        let fd = rustix::fs::open(self.path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut self.text))?;
        let text = &self.text[..length];
        // A name may be cut within a character; everything else is ASCII.
        let text = std::str::from_utf8(text).or_else(|e| std::str::from_utf8(&text[..e.valid_up_to()]));
        text.map(str::trim_end).map_err(|_| Errno::INVAL)
    }
}

/// Parses `running`, `-1 SP PC`, or `NUMBER ARG0 … ARG5 SP PC`.
fn parse_place(text: &str) -> Option<ThreadPosition> {
    if text.starts_with("running") {
        return Some(ThreadPosition::Running);
    }
    let mut words = text.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    if number < 0 {
        return Some(ThreadPosition::Elsewhere);
    }
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = hex(words.next()?)?;
    }
    // Stacks of 64-bit programs are above 4 GiB; a program with a stack below that uses another call table.
    let is_narrow = hex(words.next()?)? <= u64::from(u32::MAX);
    Some(if is_narrow && cfg!(target_pointer_width = "64") {
        ThreadPosition::Elsewhere
    } else {
        ThreadPosition::Call { number, args }
    })
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Parses `tfd: FD events: HEX data: …`, a line of an epoll's `fdinfo`.
fn parse_epoll_target(line: &str) -> Option<(i32, u32)> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != "tfd:" {
        return None;
    }
    let fd = words.next()?.parse().ok()?;
    let events = words.nth(1)?;
    Some((fd, u32::from_str_radix(events, 16).ok()?))
}

/// Parses `ON_NS DELAY_NS SLICES`; `None` if all are zero.
fn parse_schedstat(text: &str) -> Option<CpuUse> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (on_ns, delay_ns, slices) = (numbers.next()??, numbers.next()??, numbers.next()??);
    (on_ns > 0 || delay_ns > 0 || slices > 0).then_some(CpuUse { on_ns, delay_ns: Some(delay_ns) })
}

/// Sum of user and system time in a line of `stat`.
fn parse_ticks(text: &str) -> Option<u64> {
    // Fields 14 and 15; the state is number 3.
    let mut fields = after_name(text)?.split_ascii_whitespace().skip(14 - 3).map(|f| f.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

/// The rest of a line of `stat` after the name, from the state on: the name may contain spaces and parentheses.
fn after_name(text: &str) -> Option<&str> {
    text.rsplit_once(") ").map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed() {
        let check =
            |text: &str, expect: Option<ThreadPosition>| assert_eq!(parse_place(text), expect, "{text}");
        check("running", Some(ThreadPosition::Running));
        check("-1 0x7ffd00000000 0x7f0000000000", Some(ThreadPosition::Elsewhere));
        check(
            "202 0x1 0x80 0x2 0x0 0x0 0xffffffff 0x7ffd00000000 0x7f0000000000",
            Some(ThreadPosition::Call { number: 202, args: [1, 0x80, 2, 0, 0, 0xffff_ffff] }),
        );
        // A 32-bit program's futex.
        check("240 0x1 0x80 0x2 0x0 0x0 0x0 0xffb01000 0xf7f00000", Some(ThreadPosition::Elsewhere));
        for bad in ["", "x", "202", "202 0x1 0x2", "202 1 2 3 4 5 6 7 8"] {
            check(bad, None);
        }
    }

    #[test]
    fn counters_are_parsed() {
        assert_eq!(parse_schedstat("12 34 5"), Some(CpuUse { on_ns: 12, delay_ns: Some(34) }));
        for bad in ["0 0 0", "", "1 2", "a b c"] {
            assert_eq!(parse_schedstat(bad), None, "{bad}");
        }
        let line = "4711 (a ) (b) S 1 4700 4600 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 6 0 98765";
        assert_eq!(parse_ticks(line), Some(175));
        assert_eq!(after_name(line).map(|rest| &rest[..1]), Some("S"));
        for bad in ["", "1", "1 (x", "1 (x) S 1 2"] {
            assert_eq!(parse_ticks(bad), None, "{bad}");
        }
    }

    #[test]
    fn sockets_memory_and_epolls_are_read() {
        use rustix::event::epoll;
        use std::os::fd::AsRawFd;
        let (pid, mut files) = (std::process::id(), TaskFiles::new());
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let inode = rustix::fs::fstat(&one).unwrap().st_ino as u32;
        assert_eq!(files.socket(pid, one.as_raw_fd()), Some(inode));
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!((files.socket(pid, pipe.as_raw_fd()), files.socket(pid, -1)), (None, None));

        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        assert_eq!(files.epoll_set(pid, set.as_raw_fd()), Ok(Vec::new()));
        epoll::add(&set, &one, epoll::EventData::new_u64(7), epoll::EventFlags::IN).unwrap();
        let found = files.epoll_set(pid, set.as_raw_fd()).unwrap();
        assert_eq!((found.len(), found[0].0, found[0].1 & 1), (1, one.as_raw_fd(), 1));
        for bad in ["", "pos:\t0", "tfd:", "tfd: x events: 1", "tfd: 3 events: x"] {
            assert_eq!(parse_epoll_target(bad), None, "{bad}");
        }

        let (there, mut here) = (*b"what stands there", [0; 17]);
        files.memory(pid, there.as_ptr().addr() as u64, &mut here).unwrap();
        assert_eq!(here, there);
        assert!(files.memory(pid, 8, &mut here).is_err());
    }

    #[test]
    fn own_threads_are_listed_and_counted() {
        let pid = std::process::id();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut files = TaskFiles::new();
        let mut tids = Vec::new();
        // A list may lack a thread if others end meanwhile.
        let is_listed = (0..1_000).any(|_| {
            tids.clear();
            files.list(pid, &mut tids).unwrap();
            tids.contains(&own)
        });
        assert!(is_listed, "{tids:?}");
        assert!(files.count(pid).unwrap() >= 1);
        // The kernel updates a thread's time when it inspects the thread, not at once.
        assert!((0..10_000_000).any(|_| files.cpu(pid, own).unwrap().on_ns > 0));
        assert!(!files.name(pid, own).is_empty());
    }

    #[test]
    fn one_thread_is_counted_as_one() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (mut files, mut tids) = (TaskFiles::new(), vec![1]);
        let (count, listed) = (files.count(child.id()), files.list(child.id(), &mut tids));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((count, listed, tids), (Ok(1), Ok(true), vec![1, child.id()]));
        assert!(files.list(child.id(), &mut Vec::new()).is_err());
    }

    #[test]
    fn kinds_of_files_are_distinguished() {
        use std::os::fd::AsRawFd;
        let pid = std::process::id();
        let mut files = TaskFiles::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(files.kind_of_file(pid, listener.as_raw_fd()), Some(FileType::Socket));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(files.kind_of_file(pid, file.as_raw_fd()), Some(FileType::RegularFile));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(files.kind_of_file(pid, reader.as_raw_fd()), Some(FileType::Fifo));
        assert_eq!(files.kind_of_file(pid, -1), None);
    }
}
