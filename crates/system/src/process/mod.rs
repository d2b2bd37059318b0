//! Processes as `/proc` shows them: identity, resource use, and which component they belong to.
//!
//! A pid alone is not a lasting identity: the kernel reuses it. A process that is remembered across two looks is
//! identified by pid and start time. Nothing here sends signals (see `kill`).

pub mod background;
pub(crate) mod kill;
pub mod open_files;
pub(crate) mod output;
pub(crate) mod ports;
pub(crate) mod runtime;
pub(crate) mod spawn;
pub(crate) mod task;
pub(crate) mod wait;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A process's lasting identity: its pid and when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The running process with this pid.
    pub fn of(pid: u32) -> Option<ProcessId> {
        stat(pid).filter(|s| !s.is_dead()).map(|s| ProcessId { pid, start_ticks: s.start_ticks })
    }

    /// This process.
    pub fn own() -> ProcessId {
        let pid = std::process::id();
        ProcessId { pid, start_ticks: stat(pid).map_or(0, |s| s.start_ticks) }
    }

    /// Whether it is running: not gone, not a zombie, and not another process under the same pid.
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|s| s.start_ticks == self.start_ticks && !s.is_dead())
    }
}

/// What this crate needs from `/proc/PID/stat`. Times are in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub pid: u32,
    pub state: u8,
    pub parent: u32,
    pub group: u32,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// CPU time of children it has waited for.
    pub children_user_ticks: u64,
    pub children_system_ticks: u64,
    pub threads: u64,
    pub start_ticks: u64,
    pub resident_pages: u64,
}

impl Stat {
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it is a kernel thread: no process group and no memory.
    pub fn is_of_kernel(&self) -> bool {
        self.group == 0 && self.resident_pages == 0
    }
}

/// Enough for the 52 fields of 64 bits and a name of 64 bytes.
const STAT_BYTES: usize = 2048;

/// Reads `/proc/PID/stat` in one go, since all processes of a machine are read several times before a load starts. The
/// name in it is chosen by the process and may not be valid text.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let mut line = [0; STAT_BYTES];
    let read = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    parse_stat(&String::from_utf8_lossy(line.get(..read)?))
}

/// Parses a line of `/proc/PID/stat`. The command's name may contain spaces and parentheses: fields are counted from
/// the last `)`.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    // proc_pid_stat(5) counts from 1; `fields[0]` is number 3.
    let number = |n: usize| fields.get(n - 3)?.parse::<i64>().ok().map(|v| v.max(0) as u64);
    Some(Stat {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: number(4)? as u32,
        group: number(5)? as u32,
        minor_faults: number(10)?,
        major_faults: number(12)?,
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        children_user_ticks: number(16)?,
        children_system_ticks: number(17)?,
        threads: number(20)?,
        start_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

/// Every process on the machine.
pub(crate) fn snapshot() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(stat).collect()
}

/// The processes of a component without a cgroup, known by descent and by mark.
#[derive(Clone, Debug)]
pub(crate) struct ProcessFamily {
    /// The component's first process, which leads its process group.
    pub leader: ProcessId,
    /// `NAME=value` in the environment of everything it started.
    pub mark: String,
}

impl ProcessFamily {
    /// Live members: the leader, its group, and the descendants of both.
    pub fn members(&self, all: &[Stat]) -> Vec<Stat> {
        self.members_by(all, |pid| has_mark(pid, &self.mark))
    }

    /// As `members`; `is_marked` decides whether a process has the mark.
    fn members_by(&self, all: &[Stat], is_marked: impl Fn(u32) -> bool) -> Vec<Stat> {
        let mut children: HashMap<u32, Vec<&Stat>> = HashMap::new();
        for stat in all {
            children.entry(stat.parent).or_default().push(stat);
        }
        // A group id stays taken while the group has members, but an empty group's id is reused. The leader shows whose
        // group it is; without a leader the group may be anyone's, and each member must carry the mark itself.
        let leader = all.iter().find(|s| s.pid == self.leader.pid);
        // If a program contains its own server and starts loadlab, loadlab must not count as the server's.
        let mut found = HashSet::from([std::process::id()]);
        let mut queue: Vec<&Stat> = match leader {
            Some(leader) if leader.start_ticks != self.leader.start_ticks => Vec::new(),
            Some(_) => all.iter().filter(|s| self.is_in_group(s)).collect(),
            None => all.iter().filter(|s| self.is_in_group(s) && is_marked(s.pid)).collect(),
        };
        let mut members = Vec::new();
        while let Some(stat) = queue.pop() {
            if found.insert(stat.pid) {
                members.push(*stat);
                queue.extend(children.get(&stat.pid).into_iter().flatten());
            }
        }
        members.retain(|s| !s.is_dead());
        members
    }

    fn is_in_group(&self, stat: &Stat) -> bool {
        (stat.pid == self.leader.pid || stat.group == self.leader.pid)
            && stat.start_ticks >= self.leader.start_ticks
    }

    /// Members, and every process that carries the mark: a daemon that left both group and parent still has its
    /// environment, unless it overwrote it. Reads every readable environment, so it is for taking down, not for
    /// sampling.
    pub fn members_and_marked(&self) -> Vec<Stat> {
        let all = snapshot();
        let mut members = self.members(&all);
        let known: HashSet<u32> = members.iter().map(|s| s.pid).collect();
        members.extend(
            all.into_iter()
                .filter(|s| !s.is_dead() && !known.contains(&s.pid) && has_mark(s.pid, &self.mark)),
        );
        members
    }
}

/// How long, and at least how many times, to look at a process that has no environment yet: the machine may stall
/// meanwhile.
const EXEC: (Duration, u32) = (Duration::from_millis(100), 1000);

/// Bytes of an environment, but for the longest.
const ENVIRON: usize = 64 * 1024;

/// Whether the process's environment has this entry (`NAME=value`).
pub(crate) fn has_mark(pid: u32, mark: &str) -> bool {
    let (began, mut looks) = (Instant::now(), 0);
    loop {
        // In one go: between two reads the program, and with it the environment, may become another.
        let mut environ = vec![0; ENVIRON];
        let Ok(mut file) = fs::File::open(format!("/proc/{pid}/environ")) else { return false };
        let Ok(length) = file.read(&mut environ) else { return false };
        environ.truncate(length);
        if length == ENVIRON && file.read_to_end(&mut environ).is_err() {
            return false;
        }
        if length > 0 {
            return environ.split(|b| *b == 0).any(|entry| entry == mark.as_bytes());
        }
        // In the middle of an exec a process has no environment yet, and what was opened before has none any more: it
        // would be missed, and survive.
        if is_without_environment(pid) || began.elapsed() > EXEC.0 && looks > EXEC.1 {
            return false;
        }
        looks += 1;
        std::thread::yield_now();
    }
}

/// Whether a process has no environment, and will have none: it was started without one, has ended, or is the kernel's.
fn is_without_environment(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    if parse_stat(&line).is_none_or(|stat| stat.is_dead() || stat.is_of_kernel()) {
        return true;
    }
    // Numbers 26, 50 and 51 of proc_pid_stat(5): `startcode`, `env_start` and `env_end`; the first here is number 3. The
    // first is set last in an exec, and is 0 before.
    let fields = line[line.rfind(')').map_or(0, |end| end + 1)..].split_ascii_whitespace();
    let [code, start, end] = [23, 47, 48].map(|place| fields.clone().nth(place));
    start == end && code != Some("0")
}

/// Set in a process's flags from its fork to the end of its first exec: the kernel's `PF_FORKNOEXEC`.
const FORKED_ONLY: u64 = 0x40;

/// Whether a process is a copy of this one: a child between fork and exec, which still holds all that is open here. One
/// that is not a copy when this is called is never one later.
pub(crate) fn is_copy_of_own(stat: &Stat) -> bool {
    if stat.parent != std::process::id() {
        return false;
    }
    // Read before the rest, since it is what an exec changes first. A child that this process has only adopted, such as
    // the worker of a server, is a copy of something else.
    let file_of =
        |pid: &str| fs::metadata(format!("/proc/{pid}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let has_own_program = file_of(&stat.pid.to_string()).is_some_and(|file| file_of("self") == Some(file));
    let line = fs::read(format!("/proc/{}/stat", stat.pid)).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    // Numbers 9 and 26 of proc_pid_stat(5): the flags, and `startcode`, which is 0 in an exec until files are closed.
    let fields = line[line.rfind(')').map_or(0, |end| end + 1)..].split_ascii_whitespace();
    let [flags, code] = [6, 23].map(|place| fields.clone().nth(place));
    let is_forked_only =
        flags.and_then(|flags| flags.parse().ok()).is_some_and(|flags: u64| flags & FORKED_ONLY != 0);
    // An exec changes program and flags before it closes files, so in the middle of one they do not count. A child that
    // runs another program in its place, as a shell does, is taken for a copy as well for that moment: it is missed
    // once, which is better than reporting a copy as a server.
    code == Some("0") || has_own_program && is_forked_only
}

/// All live processes whose environment has this entry.
pub(crate) fn marked(mark: &str) -> Vec<Stat> {
    snapshot().into_iter().filter(|s| !s.is_dead() && has_mark(s.pid, mark)).collect()
}

/// A process's command line, its words separated by spaces; empty for kernel threads.
pub(crate) fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
}

/// What a process runs, for display: its command line in at most 80 characters, else its name.
pub(crate) fn command_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let name = match line.trim() {
        "" => fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default(),
        line => line.to_owned(),
    };
    let clean: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    match clean.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

/// Id of this boot of the machine: pids and start times mean nothing across boots.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The process that holds the socket with this inode, among those we may inspect.
pub(crate) fn holder_of_socket(inode: u64) -> Option<u32> {
    let link = PathBuf::from(format!("socket:[{inode}]"));
    let entries = fs::read_dir("/proc").ok()?;
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == link))
    })
}

/// Inodes of the sockets a process has open; empty if they may not be seen.
pub(crate) fn sockets_of(pid: u32) -> impl Iterator<Item = u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| {
        let link = fs::read_link(file.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{PipeWriter, Write as _, pipe};
    use std::process::ExitStatus;
    use std::thread::JoinHandle;

    use super::*;

    /// A child between fork and exec: it still holds all that was open here when it was started.
    pub(crate) struct StoppedBeforeExec {
        go: PipeWriter,
        starts: JoinHandle<std::io::Result<ExitStatus>>,
    }

    impl StoppedBeforeExec {
        #[expect(unsafe_code, reason = "pre_exec: the process is stopped before its program begins")]
        pub(crate) fn new() -> StoppedBeforeExec {
            use std::os::unix::process::CommandExt as _;
            let ((mut forked, mut says), (mut waits, go)) = (pipe().unwrap(), pipe().unwrap());
            let starts = std::thread::spawn(move || {
                let mut command = std::process::Command::new("true");
                // SAFETY: the closure only reads and writes.
                unsafe {
                    command.pre_exec(move || says.write_all(b"x").and_then(|()| waits.read_exact(&mut [0])))
                };
                command.status()
            });
            forked.read_exact(&mut [0]).unwrap();
            StoppedBeforeExec { go, starts }
        }

        /// Lets it go on.
        pub(crate) fn go_on(&mut self) {
            self.go.write_all(b"x").unwrap();
        }

        /// Waits until it has ended, as it must.
        pub(crate) fn end(self) {
            assert!(self.starts.join().unwrap().unwrap().success());
        }
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_there() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        // A link, not a copy: a file just written cannot be run while a child of another test, forked meanwhile, still
        // has it open.
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let found = ProcessId::of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.map(|process| process.pid), Some(child.id()));
    }

    #[test]
    fn a_process_in_the_middle_of_an_exec_has_its_mark() {
        let mark = format!("LOADLAB_TEST_EXEC={}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut shell = std::process::Command::new("sh");
        // It does nothing but begin anew.
        shell.args(["-c", "eval \"$AGAIN\""]).env("AGAIN", "exec sh -c \"$AGAIN\"").env(name, value);
        let mut child = shell.spawn().unwrap();
        let missed = (0..20_000).filter(|_| !has_mark(child.id(), &mark)).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(missed, 0);
        assert!(!has_mark(child.id(), &mark), "it is gone");
    }

    const LINE: &str = "4711 (a ) (b) S 1 4700 4600 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 6 0 98765 1000 42 \
                        18446744073709551615 0 0";

    #[test]
    fn a_name_with_parentheses_does_not_shift_fields() {
        let stat = parse_stat(LINE).unwrap();
        assert_eq!((stat.pid, stat.state, stat.parent, stat.group), (4711, b'S', 1, 4700));
        assert_eq!((stat.user_ticks, stat.system_ticks), (150, 25));
        assert_eq!((stat.children_user_ticks, stat.children_system_ticks), (7, 8));
        assert_eq!((stat.threads, stat.start_ticks, stat.resident_pages), (6, 98765, 42));
        for bad in ["", "1", "1 (x", "1 (x)", "x (x) S 1 2 3", "1 (x) S 1 2"] {
            assert_eq!(parse_stat(bad), None, "{bad}");
        }
    }

    fn process(pid: u32, parent: u32, group: u32, start_ticks: u64) -> Stat {
        Stat { pid, parent, group, start_ticks, state: b'S', ..Stat::default() }
    }

    #[test]
    fn a_family_is_the_group_and_all_descendants() {
        let family = ProcessFamily { leader: ProcessId { pid: 10, start_ticks: 100 }, mark: String::new() };
        let zombie = Stat { state: b'Z', ..process(15, 10, 10, 108) };
        let all = [
            process(1, 0, 1, 1),
            process(10, 5, 10, 100),
            process(11, 10, 11, 105), // a child with its own group
            process(12, 11, 11, 106), // and its child
            process(13, 1, 10, 107),  // adopted by init, still in the group
            process(14, 1, 14, 108),  // someone else
            zombie,
        ];
        let marked = std::cell::Cell::new(true);
        let pids = |all: &[Stat]| {
            let mut pids: Vec<u32> = family.members_by(all, |_| marked.get()).iter().map(|s| s.pid).collect();
            pids.sort();
            pids
        };
        assert_eq!(pids(&all), [10, 11, 12, 13]);
        // The leader is gone, but its group is not.
        assert_eq!(pids(&[all[0], all[4], all[5]]), [13]);
        // A group that another program has since created with the same id, and whose leader is gone as well, does not
        // count.
        marked.set(false);
        assert_eq!(pids(&[all[0], all[4], all[5]]), [0u32; 0]);
        assert_eq!(pids(&all), [10, 11, 12, 13], "the leader answers for its group");
        // The pid belongs to another process now.
        assert_eq!(pids(&[process(10, 1, 10, 999), process(20, 10, 10, 1000)]), [0u32; 0]);
    }

    #[test]
    fn this_process_is_alive_and_another_at_its_pid_is_not() {
        let own = ProcessId::own();
        assert!(own.is_alive());
        assert!(!ProcessId { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        assert!(snapshot().iter().any(|s| s.pid == own.pid));
        assert!(!command_of(own.pid).is_empty());
    }
}
