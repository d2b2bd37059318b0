//! On which sockets threads wait for bytes: shows who waits for whom on sockets without times.
//!
//! A thread blocked in a receive on one socket waits for an answer if its process connected, and for a request if its
//! process accepted. If a program waits for many sockets at once (epoll, poll, io_uring), its threads show nothing
//! about any of them: such sockets are determined as well, and reported as unknown. A single-threaded process whose
//! epoll has no other socket, like each of PostgreSQL's servers, waits for that one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::clock::thread_cpu_ns;
use crate::process::task::{TaskFiles, ThreadPosition};
use crate::process::wait::{Awaits, awaits};

/// A process's open files are inspected again after at least this long, or a multiple of their cost; sooner if new
/// sockets appear.
const OPEN_EVERY: Duration = Duration::from_secs(5);
const NEW_EVERY: Duration = Duration::from_millis(200);
const EVERY_COSTS: u32 = 400;
/// For how many readings the open files of a process with nothing to look for are kept.
const KEPT_READINGS: u32 = 100;
/// A process's threads are inspected again after this multiple of their cost, and at least this often whatever the
/// cost: every line must have them.
const LOOK_COSTS: u32 = 250;
const LOOK_LONGEST: Duration = Duration::from_millis(900);
/// Processes with more threads than this are not judged.
const MOST_THREADS: usize = 1_000;
/// Processes with more open files than this are not searched.
const MOST_FILES: usize = 20_000;
/// If more files than this are polled at once, they are not identified.
const MOST_POLLED: u64 = 64;
const MOST_SELECTED: u64 = 1024;

/// What the process at one end of a connection does with that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attends {
    /// A thread waits for bytes there, in a call for that socket alone.
    Awaits,
    /// None of its threads waits there.
    Not,
    /// What its threads wait for cannot be seen.
    Hidden,
    /// Not inspected this time: the budget was used up.
    Skipped,
}

/// Inspects the threads of processes that hold such sockets.
#[derive(Debug)]
pub(crate) struct WaitInspector {
    files: TaskFiles,
    processes: HashMap<u32, Process>,
    reading: u32,
    /// Where to start the next look.
    turn: usize,
    spent_ns: u64,
}

#[derive(Debug, Default)]
struct Process {
    open: Option<Open>,
    tids: Vec<u32>,
    threads: usize,
    reading: u32,
    due: Option<Instant>,
    /// Whether all its threads were seen, and none waits for something that cannot be seen.
    is_clear: bool,
    /// Whether a thread was seen waiting for several such sockets at once.
    polls_many: bool,
    awaited: HashSet<u32>,
}

/// What a process has open.
#[derive(Debug)]
struct Open {
    at: Instant,
    cost: Duration,
    sockets: HashSet<u32>,
    /// Sockets in an epoll; true if that epoll has no other socket.
    in_epoll: HashMap<u32, bool>,
    /// Whether it may wait in ways that cannot be inspected.
    is_opaque: bool,
}

impl Default for WaitInspector {
    fn default() -> WaitInspector {
        WaitInspector { files: TaskFiles::new(), processes: HashMap::new(), reading: 0, turn: 0, spent_ns: 0 }
    }
}

impl WaitInspector {
    /// Inspects the threads of these processes for waits on these sockets of theirs, in about this much CPU time. If
    /// that does not suffice, the processes take turns.
    pub fn look(&mut self, ends: &BTreeMap<u32, HashSet<u32>>, budget_ns: u64) {
        self.reading = self.reading.wrapping_add(1);
        let reading = self.reading;
        self.processes.retain(|pid, process| {
            ends.contains_key(pid) || reading.wrapping_sub(process.reading) < KEPT_READINGS
        });
        let from_ns = thread_cpu_ns();
        let order = ends.iter().cycle().skip(self.turn % ends.len().max(1)).take(ends.len());
        let (now, mut passed) = (Instant::now(), 0);
        for (pid, sockets) in order {
            passed += 1;
            let process = self.processes.entry(*pid).or_default();
            if process.due.is_some_and(|due| now < due) {
                continue;
            }
            let before_ns = thread_cpu_ns();
            process.reading = self.reading;
            process.look(&mut self.files, *pid, sockets);
            let after_ns = thread_cpu_ns();
            let wait = Duration::from_nanos(after_ns - before_ns) * LOOK_COSTS;
            process.due = Some(now + wait.min(LOOK_LONGEST));
            if after_ns - from_ns >= budget_ns {
                break;
            }
        }
        self.spent_ns = thread_cpu_ns() - from_ns;
        self.turn = (self.turn + passed) % ends.len().max(1);
    }

    /// What a process does with its end, according to the last look.
    pub fn of(&self, pid: u32, inode: u32) -> Attends {
        match self.processes.get(&pid).filter(|process| process.reading == self.reading) {
            None => Attends::Skipped,
            Some(process) => process.attends(inode),
        }
    }

    /// CPU time of the last look.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// How many threads a process has.
    pub fn threads(&self, pid: u32) -> usize {
        self.processes.get(&pid).map_or(0, |process| process.threads)
    }
}

impl Process {
    fn attends(&self, inode: u32) -> Attends {
        if self.awaited.contains(&inode) {
            return Attends::Awaits;
        }
        let Some(open) = self.open.as_ref().filter(|open| !open.is_opaque) else { return Attends::Hidden };
        let is_seen = match open.in_epoll.get(&inode) {
            // Nothing else in the process can wait for the socket.
            Some(is_alone) => *is_alone && self.threads == 1,
            None => open.sockets.contains(&inode),
        };
        if self.is_clear && !self.polls_many && is_seen { Attends::Not } else { Attends::Hidden }
    }

    fn look(&mut self, files: &mut TaskFiles, pid: u32, sockets: &HashSet<u32>) {
        self.awaited.clear();
        self.look_at_files(files, pid, sockets);
        self.is_clear = self.list(files, pid);
        if self.threads > MOST_THREADS {
            self.is_clear = false;
            return;
        }
        for tid in std::mem::take(&mut self.tids) {
            let is_seen = match files.place(pid, tid) {
                Ok(ThreadPosition::Running) => true,
                Ok(ThreadPosition::Call { number, args }) => {
                    self.wait(files, pid, sockets, awaits(number, args))
                }
                Ok(ThreadPosition::Elsewhere) => false,
                // The thread has ended, and another process may have taken its pid.
                Err(Errno::SRCH | Errno::NOENT) => {
                    self.is_clear = false;
                    continue;
                }
                Err(_) => false,
            };
            self.is_clear &= is_seen;
            self.tids.push(tid);
        }
    }

    /// Lists its threads; false if they cannot be listed, or some are missing. If as many are missing as have ended,
    /// that shows when these are looked at.
    fn list(&mut self, files: &mut TaskFiles, pid: u32) -> bool {
        let count = files.count(pid).unwrap_or(0) as usize;
        let mut is_whole = true;
        if count == 1 {
            self.tids.clear();
            self.tids.push(pid);
        } else if count != self.tids.len() {
            self.tids.clear();
            is_whole = files.list(pid, &mut self.tids).unwrap_or_else(|_| {
                self.tids.clear();
                false
            });
        }
        // One thread in a list that lacks others is not all that could wait.
        self.threads = count.max(self.tids.len());
        is_whole && !self.tids.is_empty()
    }

    /// Inspects its open files now and then, and when new sockets appear.
    fn look_at_files(&mut self, files: &mut TaskFiles, pid: u32, sockets: &HashSet<u32>) {
        if let Some(open) = &self.open {
            let is_known = open.is_opaque || sockets.is_subset(&open.sockets);
            let good_for = if is_known { OPEN_EVERY } else { NEW_EVERY }.max(open.cost * EVERY_COSTS);
            if open.at.elapsed() < good_for {
                return;
            }
        }
        self.open = Some(Open::of(files, pid));
    }

    /// Records a thread's wait. False if it may wait for something that cannot be seen.
    fn wait(&mut self, files: &mut TaskFiles, pid: u32, sockets: &HashSet<u32>, awaits: Awaits) -> bool {
        let polled = match awaits {
            Awaits::Nothing => return true,
            Awaits::Hidden => return false,
            Awaits::File(fd) => {
                self.awaited.extend(files.socket(pid, fd).filter(|inode| sockets.contains(inode)));
                return true;
            }
            Awaits::Epoll(fd) => return self.wait_in_epoll(files, pid, sockets, fd),
            Awaits::Poll { at, count } => polled(files, pid, at, count),
            Awaits::Select { at, count } => selected(files, pid, at, count),
        };
        let Some(polled) = polled else { return false };
        let found: Vec<u32> = polled
            .iter()
            .filter_map(|fd| files.socket(pid, *fd))
            .filter(|inode| sockets.contains(inode))
            .collect();
        match (&found[..], polled.len()) {
            ([], _) => {}
            ([inode], 1) => drop(self.awaited.insert(*inode)),
            _ => self.polls_many = true,
        }
        true
    }

    fn wait_in_epoll(&mut self, files: &mut TaskFiles, pid: u32, sockets: &HashSet<u32>, epoll: i32) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| !open.is_opaque) else { return false };
        // Reading a large set costs more than it is worth; the inspection of open files treats such sets alike.
        let Ok(set) = files.epoll_set(pid, epoll) else { return false };
        let inodes: Vec<(u32, u32)> =
            set.iter().filter_map(|(fd, events)| Some((files.socket(pid, *fd)?, *events))).collect();
        let is_alone = inodes.len() == 1;
        for (inode, events) in inodes.into_iter().filter(|(inode, _)| sockets.contains(inode)) {
            let is_its = is_alone && (set.len() == 1 || self.threads == 1);
            match is_its && events & libc::EPOLLIN as u32 != 0 {
                true => drop(self.awaited.insert(inode)),
                false => drop(open.in_epoll.entry(inode).or_insert(false)),
            }
        }
        true
    }
}

impl Open {
    fn of(files: &mut TaskFiles, pid: u32) -> Open {
        let before_ns = thread_cpu_ns();
        let mut open = Open {
            at: Instant::now(),
            cost: Duration::ZERO,
            sockets: HashSet::new(),
            in_epoll: HashMap::new(),
            is_opaque: false,
        };
        let (mut by_fd, mut epolls) = (HashMap::new(), Vec::new());
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        open.is_opaque = entries.is_err();
        for (n, entry) in entries.into_iter().flatten().flatten().enumerate() {
            let name = entry.file_name();
            let Some(fd) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            match link.to_str().unwrap_or_default() {
                "anon_inode:[eventpoll]" => epolls.push(fd),
                "anon_inode:[io_uring]" => open.is_opaque = true,
                other => {
                    let inode = other.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
                    if let Some(inode) = inode.and_then(|inode| inode.parse::<u32>().ok()) {
                        by_fd.insert(fd, inode);
                    }
                }
            }
            open.is_opaque |= n >= MOST_FILES;
            if open.is_opaque {
                break;
            }
        }
        for epoll in epolls {
            let Ok(set) = files.epoll_set(pid, epoll) else {
                open.is_opaque = true;
                break;
            };
            let inodes: Vec<u32> = set.iter().filter_map(|(fd, _)| by_fd.get(fd).copied()).collect();
            let is_alone = inodes.len() == 1;
            for inode in inodes {
                *open.in_epoll.entry(inode).or_insert(is_alone) &= is_alone;
            }
        }
        open.sockets = by_fd.into_values().collect();
        open.cost = Duration::from_nanos(thread_cpu_ns() - before_ns);
        open
    }
}

/// Files on which a poll waits for bytes; `None` if they cannot be determined.
fn polled(files: &mut TaskFiles, pid: u32, at: u64, count: u64) -> Option<Vec<i32>> {
    /// Length of `struct pollfd`: the file, the events requested, and the events that occurred.
    const LENGTH: usize = 8;
    if count > MOST_POLLED {
        return None;
    }
    let mut bytes = vec![0; count as usize * LENGTH];
    if count > 0 {
        files.memory(pid, at, &mut bytes).ok()?;
    }
    let entry = |entry: &[u8]| {
        let fd = i32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
        let events = i16::from_ne_bytes(entry.get(4..6)?.try_into().ok()?);
        (fd >= 0 && events & libc::POLLIN != 0).then_some(fd)
    };
    Some(bytes.chunks_exact(LENGTH).filter_map(entry).collect())
}

/// As [`polled`], for a select: one bit per file.
fn selected(files: &mut TaskFiles, pid: u32, at: u64, count: u64) -> Option<Vec<i32>> {
    if count > MOST_SELECTED {
        return None;
    }
    if count == 0 || at == 0 {
        return Some(Vec::new());
    }
    // Whole words, as in the kernel.
    let mut bytes = vec![0; (count as usize).div_ceil(64) * 8];
    files.memory(pid, at, &mut bytes).ok()?;
    let is_set = |fd: &i32| {
        let (word, bit) = (*fd as usize / 64, *fd as usize % 64);
        let word = bytes.get(word * 8..word * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
        word.is_some_and(|word| word >> bit & 1 == 1)
    };
    Some((0..count as i32).filter(is_set).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, epoll, poll};
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    /// Long enough for a busy machine.
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn inode(of: &UnixStream) -> u32 {
        rustix::fs::fstat(of).unwrap().st_ino as u32
    }

    /// Inspects a process until it does what is expected with a socket.
    #[track_caller]
    fn until(pid: u32, inode: u32, expect: Attends) -> WaitInspector {
        let (mut waits, ends) = (WaitInspector::default(), BTreeMap::from([(pid, HashSet::from([inode]))]));
        let looks = std::iter::repeat_with(|| {
            waits.look(&ends, 1_000_000_000);
            thread::yield_now();
            waits.of(pid, inode)
        });
        let begin = Instant::now();
        let is_seen = looks.take_while(|_| begin.elapsed() < TIMEOUT).any(|seen| seen == expect);
        assert!(is_seen, "never {expect:?}, but {:?}", waits.of(pid, inode));
        waits
    }

    #[test]
    fn a_thread_in_a_receive_or_a_poll_of_one_socket_awaits_it() {
        let pid = std::process::id();
        let waits_in: [fn(UnixStream); 2] = [
            |mut stream| drop(stream.read(&mut [0])),
            |stream| assert!(poll(&mut [PollFd::new(&stream, PollFlags::IN)], None).is_ok()),
        ];
        for wait in waits_in {
            let (client, other) = UnixStream::pair().unwrap();
            let end = inode(&client);
            let thread = thread::spawn(move || wait(client));
            let waits = until(pid, end, Attends::Awaits);
            assert!(waits.threads(pid) >= 2);
            drop(other);
            thread.join().unwrap();
        }
    }

    #[test]
    fn who_waits_for_a_socket_in_a_shared_epoll_is_hidden() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (two, _another) = UnixStream::pair().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for stream in [&one, &two] {
            epoll::add(&set, stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        }
        // Independent of what the threads of other tests do.
        until(std::process::id(), inode(&one), Attends::Hidden);
    }

    /// A Python program that runs this text and has printed `ready`, with the inodes of its sockets.
    fn python(text: &str) -> (Child, Vec<u32>) {
        let mut child = Command::new("python3")
            .args(["-c", text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect())
    }

    #[test]
    fn programs_show_what_they_wait_for() {
        let begin = "import os,select,socket,sys,time\n\
            a,b=socket.socketpair()\n\
            c,d=socket.socketpair()\n\
            print(*[os.fstat(s.fileno()).st_ino for s in (a,c)],flush=True)\n";
        let check = |text: &str, first: Attends, second: Attends| {
            let (mut child, inodes) = python(&format!("{begin}{text}"));
            until(child.id(), inodes[0], first);
            until(child.id(), inodes[1], second);
            child.kill().unwrap();
            child.wait().unwrap();
        };
        check("a.recv(1)", Attends::Awaits, Attends::Not);
        check("a.settimeout(1e5); a.recv(1)", Attends::Awaits, Attends::Not);
        check("select.select([c],[],[])", Attends::Not, Attends::Awaits);
        check("time.sleep(1e5)", Attends::Not, Attends::Not);
        check("select.select([a,c],[],[])", Attends::Hidden, Attends::Hidden);
        // One thread, one socket in its epoll, and a pipe beside it, like PostgreSQL's servers.
        let one = "e=select.epoll(); e.register(a,select.EPOLLIN); e.register(os.pipe()[0],select.EPOLLIN)\n";
        check(&format!("{one}e.poll()"), Attends::Awaits, Attends::Not);
        check(&format!("{one}time.sleep(1e5)"), Attends::Not, Attends::Not);
        check(&format!("{one}e.register(c,select.EPOLLIN); e.poll()"), Attends::Hidden, Attends::Hidden);
    }

    #[test]
    fn who_was_not_looked_at_has_its_turn() {
        let (mut waits, sockets) = (WaitInspector::default(), HashSet::from([1]));
        let sleepers: Vec<Child> =
            (0..3).map(|_| Command::new("sleep").arg("100000").spawn().unwrap()).collect();
        let ends: BTreeMap<u32, HashSet<u32>> = sleepers.iter().map(|s| (s.id(), sockets.clone())).collect();
        let mut seen = HashSet::new();
        for _ in 0..3 {
            waits.look(&ends, 0);
            let looked: Vec<u32> =
                ends.keys().copied().filter(|pid| waits.of(*pid, 1) != Attends::Skipped).collect();
            assert_eq!(looked.len(), 1);
            seen.extend(looked);
        }
        assert_eq!(seen.len(), 3);
        for mut sleeper in sleepers {
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        }
    }
}
