//! Starts a process so that it is confined from its first instruction.
//!
//! Between fork and exec the child joins its cgroups, takes its limits, and resets the signals it would inherit. Only
//! system calls are made there: another thread of this process may hold any lock.
//!
//! All processes are started by one thread that lives as long as the system, because the kernel sends the parent-death
//! signal when the *thread* that forked ends. The signal is an extra: it reaches only the first process of a component,
//! and only when loadlab is gone; the guardian and the cgroups do the real work.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::mpsc::{Sender, channel, sync_channel};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Error, Result};
use crate::spec::Command;

/// Everything a child needs; owned, since another thread starts it.
pub(crate) struct Launch {
    pub command: Command,
    pub dir: PathBuf,
    pub env: Vec<(String, String)>,
    pub stdout: File,
    pub stderr: File,
    /// Opened `cgroup.procs` files to join through.
    pub cgroup_procs: Vec<(File, PathBuf)>,
    pub open_files: Option<u64>,
    pub cpus: Vec<usize>,
    /// The network namespace to enter; `None`: loadlab's.
    pub network: Option<OwnedFd>,
    /// Standard input of the process; `None`: no input.
    pub stdin: Option<OwnedFd>,
}

/// What failed, in the child or before it existed.
#[derive(Debug)]
pub(crate) struct LaunchError {
    pub step: Step,
    pub source: io::Error,
}

/// The steps a child takes before it runs its program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The fork or exec itself.
    Exec,
    /// Joining the cgroup with this `cgroup.procs`.
    Join(PathBuf),
    OpenFiles(u64),
    Cpus(Vec<usize>),
    /// Entering its network namespace.
    Network,
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that starts processes.
#[derive(Debug)]
pub(crate) struct Spawner {
    jobs: Option<Sender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Spawner {
    pub fn start() -> Result<Spawner> {
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("loadlab-spawn".into())
            .spawn(move || queue.into_iter().for_each(|job| job()))
            .map_err(|source| Error::Os { doing: "start a thread", source })?;
        Ok(Spawner { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Starts a process as leader of its own group; returns its pid. The caller reaps it.
    pub fn launch(&self, launch: Launch) -> std::result::Result<u32, LaunchError> {
        let (send, receive) = sync_channel(1);
        let job: Job = Box::new(move || drop(send.send(launch_here(launch))));
        let gone =
            || LaunchError { step: Step::Exec, source: io::Error::other("the system is being taken down") };
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        receive.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends once the queue is closed; a panic in it has already been reported.
            let _ = thread.join();
        }
    }
}

/// Step numbers, as reported by the child: joining is `JOIN + index`.
const OPEN_FILES: u8 = 1;
const CPUS: u8 = 2;
const NETWORK: u8 = 3;
const JOIN: u8 = 16;

#[expect(
    unsafe_code,
    reason = "pre_exec: cgroup, cores, limits and signals are set in the child before it is a component"
)]
fn launch_here(launch: Launch) -> std::result::Result<u32, LaunchError> {
    let Launch { command, dir, env, stdout, stderr, cgroup_procs, open_files, cpus, network, stdin } = launch;
    let failed = |source| LaunchError { step: Step::Exec, source };
    let mut process = match &command {
        Command::Shell(line) => {
            let mut process = Process::new("/bin/sh");
            process.arg("-c").arg(in_place_of_shell(line, &env));
            process
        }
        Command::Argv(words) => {
            let program = words.first().ok_or_else(|| failed(io::Error::other("the command is empty")))?;
            let mut process = Process::new(absolute(program, &dir));
            process.args(&words[1..]);
            process
        }
    };
    process.current_dir(&dir).envs(env.iter().map(|(name, value)| (name, value))).process_group(0);
    process.stdin(stdin.map_or_else(Stdio::null, Stdio::from)).stdout(stdout).stderr(stderr);
    // Closed on exec, like everything std opens.
    let (mut report, reporter) = io::pipe().map_err(failed)?;
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    let child = Child {
        cgroup_procs: cgroup_procs
            .iter()
            .map(|(file, _)| file.try_clone())
            .collect::<io::Result<_>>()
            .map_err(failed)?,
        open_files: open_files
            .map(|limit| Rlimit { current: Some(limit), maximum: Some(limit) })
            .or_else(crate::process::open_files::given),
        cpus: (!cpus.is_empty()).then_some(set),
        network,
        reporter,
        parent: rustix::process::getpid(),
    };
    // SAFETY: `prepare` runs in the forked child of a process with threads, so it must be async-signal-safe: it
    // makes system calls only, and neither allocates, locks nor panics.
    unsafe { process.pre_exec(move || child.prepare()) };
    let spawned = process.spawn();
    // `process` holds the child's end of the pipe: drop it, so that reading the report ends.
    drop(process);
    spawned.map(|child| child.id()).map_err(|source| {
        let mut step = [0u8];
        let read = report.read(&mut step).unwrap_or(0);
        let step = match step[0] {
            _ if read == 0 => Step::Exec,
            OPEN_FILES => Step::OpenFiles(open_files.unwrap_or(0)),
            CPUS => Step::Cpus(cpus),
            NETWORK => Step::Network,
            n => match cgroup_procs.get(usize::from(n.saturating_sub(JOIN))) {
                Some((_, path)) => Step::Join(path.clone()),
                None => Step::Exec,
            },
        };
        LaunchError { step, source }
    })
}

/// Prefixes a line of one simple command with `exec`: otherwise dash would stay as the parent of what it starts, and be
/// the process that is signalled, watched and reported. Leaves the line unchanged when in doubt: a compound line, an
/// assignment, a keyword, or a builtin that no program in `PATH` replaces.
fn in_place_of_shell(line: &str, env: &[(String, String)]) -> String {
    let line = line.trim();
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| OsString::from(value));
    let path = path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let word = line.split([' ', '\t']).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@".contains(c);
    // `2>&1` does not join commands.
    let is_compound = line.replace(">&", ">").contains([';', '&', '|', '(', ')', '{', '}', '`', '\n']);
    let is_program = word.contains('/') || std::env::split_paths(&path).any(|dir| dir.join(word).is_file());
    match !word.is_empty() && word.chars().all(is_plain) && !is_compound && is_program {
        true => format!("exec {line}"),
        false => line.to_owned(),
    }
}

/// Resolves a relative program path against the folder the program runs in, not the caller's.
fn absolute(program: &str, dir: &Path) -> PathBuf {
    match program.contains('/') {
        true => dir.join(program),
        false => PathBuf::from(program),
    }
}

/// What the child does before exec.
struct Child {
    cgroup_procs: Vec<File>,
    open_files: Option<Rlimit>,
    cpus: Option<CpuSet>,
    network: Option<OwnedFd>,
    reporter: io::PipeWriter,
    parent: Pid,
}

impl Child {
    #[expect(unsafe_code, reason = "signal and close_range in the child, which no safe wrapper has")]
    #[expect(
        clippy::disallowed_methods,
        reason = "a component starts with default signals, whatever a shell has set"
    )]
    fn prepare(&self) -> io::Result<()> {
        for (i, procs) in self.cgroup_procs.iter().enumerate() {
            // "0" is the writer itself, in every pid namespace.
            rustix::io::write(procs, b"0").map_err(|e| self.report(JOIN.saturating_add(i as u8), e))?;
        }
        if let Some(limit) = &self.open_files {
            let limit = Rlimit { current: limit.current, maximum: limit.maximum };
            rustix::process::setrlimit(Resource::Nofile, limit).map_err(|e| self.report(OPEN_FILES, e))?;
        }
        if let Some(cpus) = &self.cpus {
            rustix::thread::sched_setaffinity(None, cpus).map_err(|e| self.report(CPUS, e))?;
        }
        if let Some(network) = &self.network {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| self.report(NETWORK, e))?;
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: signal(2) with SIG_DFL is async-signal-safe and runs no code of ours later. A shell starts
            // background jobs with SIGINT ignored, and that would be inherited.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Descriptors that loadlab inherited, from a terminal or a build tool, must not reach the component.
        // Everything std opens is closed on exec anyway. Before Linux 5.11 they stay open.
        // SAFETY: close_range(2) with this flag marks descriptors and closes none; nothing here is used after exec.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        // The parent may have died before the death signal was set.
        match rustix::process::getppid() {
            Some(parent) if parent == self.parent => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    fn report(&self, step: u8, error: rustix::io::Errno) -> io::Error {
        let _ = rustix::io::write(&self.reporter, &[step]);
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: Command) -> Launch {
        let null = || File::options().write(true).open("/dev/null").unwrap();
        Launch {
            command,
            dir: PathBuf::from("/"),
            env: Vec::new(),
            stdout: null(),
            stderr: null(),
            cgroup_procs: Vec::new(),
            open_files: None,
            cpus: Vec::new(),
            network: None,
            stdin: None,
        }
    }

    #[test]
    fn the_step_that_failed_is_reported() {
        let spawner = Spawner::start().unwrap();
        let command = || Command::Shell("exit 0".into());
        let nowhere = Command::Argv(vec!["/nonexistent/program".into()]);
        let error = spawner.launch(launch(nowhere)).unwrap_err();
        assert_eq!((error.step, error.source.kind()), (Step::Exec, io::ErrorKind::NotFound));

        // A descriptor opened read-only cannot be written to, like a locked procs file.
        let procs = (File::open("/dev/null").unwrap(), PathBuf::from("locked"));
        let open = (File::options().write(true).open("/dev/null").unwrap(), PathBuf::from("open"));
        let error =
            spawner.launch(Launch { cgroup_procs: vec![open, procs], ..launch(command()) }).unwrap_err();
        assert_eq!(error.step, Step::Join("locked".into()));

        let too_many = Launch { open_files: Some(u64::MAX - 1), ..launch(command()) };
        assert_eq!(spawner.launch(too_many).unwrap_err().step, Step::OpenFiles(u64::MAX - 1));

        let no_core = Launch { cpus: vec![1023], ..launch(command()) };
        assert_eq!(spawner.launch(no_core).unwrap_err().step, Step::Cpus(vec![1023]));
    }

    #[test]
    fn simple_lines_take_the_place_of_the_shell() {
        let env = [("PATH".to_owned(), "/nonexistent:/bin".to_owned())];
        for (line, exec) in [
            (" sleep 1", true),
            ("./app --port 1 > log 2>&1", true),
            ("sleep \"$N\"", true),
            ("/opt/a b", true),
            ("sleep 1; sleep 2", false),
            ("sleep 1 && sleep 2", false),
            ("sleep 1 | cat", false),
            ("sleep 1 &", false),
            ("sleep $(cat n)", false),
            ("A=1 sleep 1", false),
            ("cd /tmp", false),
            ("exec sleep 1", false),
            ("no-such-program", false),
            ("while :", false),
            ("'sleep' 1", false),
            ("", false),
        ] {
            let expect = if exec { format!("exec {}", line.trim()) } else { line.trim().to_owned() };
            assert_eq!(in_place_of_shell(line, &env), expect, "{line}");
        }
    }

    #[test]
    fn relative_programs_are_of_their_folder() {
        for (program, expect) in
            [("./app", "/srv/./app"), ("bin/app", "/srv/bin/app"), ("/bin/sh", "/bin/sh"), ("nginx", "nginx")]
        {
            assert_eq!(absolute(program, Path::new("/srv")), PathBuf::from(expect));
        }
    }
}
