//! What to run, under which limits, when it counts as up, and how to stop it.
//!
//! These are plain values, filled in by the caller from a plan. Nothing here touches the machine.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use loadlab_record::text::url::{Authority, Url};

/// A component to bring up as a local process.
#[derive(Clone, Debug)]
pub struct ComponentSpec {
    /// Its name, unique among the components that are up.
    pub name: String,
    /// What it runs.
    pub command: Command,
    /// The folder it runs in.
    pub dir: PathBuf,
    /// Variables added to loadlab's own environment, or replacing those of the same name.
    pub env: Vec<(String, String)>,
    /// When it counts as up.
    pub ready: Ready,
    /// Its resource limits.
    pub limits: Limits,
    /// How it is asked to end.
    pub stop: Stop,
    /// Where its output goes.
    pub logs: LogFiles,
    /// TCP ports it will listen on; each must be free before it starts.
    pub ports: Vec<u16>,
    /// Cores it may run on; empty means all.
    pub cpus: Vec<usize>,
    /// Where a relay sits between it and all other components; delay and loss limits on its link need one.
    pub relay: Option<RelayAt>,
}

/// Files to which output is appended; the two may be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFiles {
    /// For standard output.
    pub stdout: PathBuf,
    /// For standard error.
    pub stderr: PathBuf,
}

impl LogFiles {
    /// `NAME.out` and `NAME.err` in a folder.
    pub fn in_folder(folder: &Path, name: &str) -> LogFiles {
        LogFiles { stdout: folder.join(format!("{name}.out")), stderr: folder.join(format!("{name}.err")) }
    }
}

/// Where a relay sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayAt {
    /// Between the two ends of its link, for a component that has its own network namespace.
    Link,
    /// In front of loopback ports: each with the port clients connect to, and the one the component listens on.
    Ports(Vec<(u16, u16)>),
}

impl ComponentSpec {
    /// A component without limits that counts as up as soon as it is alive, logging to `NAME.out` and `NAME.err` in
    /// `logs_dir`.
    pub fn new(
        name: &str,
        command: impl Into<Command>,
        dir: impl Into<PathBuf>,
        logs_dir: impl Into<PathBuf>,
    ) -> Self {
        let logs_dir: PathBuf = logs_dir.into();
        ComponentSpec {
            name: name.to_owned(),
            command: command.into(),
            dir: dir.into(),
            env: Vec::new(),
            ready: Ready::Alive,
            limits: Limits::default(),
            stop: Stop::default(),
            logs: LogFiles::in_folder(&logs_dir, name),
            ports: Vec::new(),
            cpus: Vec::new(),
            relay: None,
        }
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line for `sh -c`. If it is one simple command, it replaces the shell.
    Shell(String),
    /// A program and its arguments, run without a shell.
    Argv(Vec<String>),
}

impl From<&str> for Command {
    fn from(line: &str) -> Self {
        Command::Shell(line.to_owned())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Shell(line) => f.write_str(line),
            Command::Argv(words) => f.write_str(&words.join(" ")),
        }
    }
}

/// When a component counts as up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Its process was started and has not ended within 50 ms.
    Alive,
    /// A GET of the URL is answered with a status below 400.
    Http {
        /// `http://…`.
        url: String,
        /// Time limit, nanoseconds since the component's start.
        timeout_ns: u64,
    },
    /// The address accepts a connection.
    Tcp {
        /// `127.0.0.1:6379`.
        addr: String,
        /// Time limit, nanoseconds since the component's start.
        timeout_ns: u64,
    },
    /// A container runs, and its health check, if it has one, reports healthy.
    Healthy {
        /// Time limit, nanoseconds since the component's start.
        timeout_ns: u64,
    },
    /// Its standard output or error contains this text.
    Log {
        /// A substring of what it writes.
        pattern: String,
        /// Time limit, nanoseconds since the component's start.
        timeout_ns: u64,
    },
}

impl Ready {
    /// The port of this machine that its readiness check uses, if any. `0.0.0.0` connects to this machine, too.
    pub(crate) fn port_here(&self) -> Option<u16> {
        let Authority { host, port, .. } = match self {
            Ready::Http { url, .. } => Url::parse(url).ok()?.authority,
            Ready::Tcp { addr, .. } => Authority::parse(addr).ok()?,
            Ready::Alive | Ready::Healthy { .. } | Ready::Log { .. } => return None,
        };
        let is_here = |address: IpAddr| address.is_loopback() || address.is_unspecified();
        let is_here = host.parse::<IpAddr>().is_ok_and(is_here) || host.eq_ignore_ascii_case("localhost");
        port.filter(|_| is_here)
    }
}

/// Resource limits of a component. `None`: unlimited, or as its engine limits it; see `Component::limits_with`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU time per time, in cores (0.01 is 1 % of one core).
    pub cpu_cores: Option<f64>,
    /// Memory, in bytes. Swap does not add to it unless `memory_swap_bytes` allows it.
    pub memory_bytes: Option<u64>,
    /// Memory and swap together, in bytes; at least `memory_bytes`, and ignored without it. [`Limits::ANY_SWAP`] does not
    /// limit swap.
    pub memory_swap_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Block I/O.
    pub block: BlockLimits,
    /// Its network link.
    pub link: LinkLimits,
}

impl Limits {
    /// As much swap as there is, beside a limit on memory.
    pub const ANY_SWAP: u64 = u64::MAX;

    /// Memory and swap together, where memory is limited.
    pub(crate) fn memory_with_swap(&self) -> Option<u64> {
        self.memory_bytes.map(|memory| self.memory_swap_bytes.unwrap_or(memory).max(memory))
    }

    /// These limits, and those of `others` where there are none. Links have only these.
    pub(crate) fn or(self, others: Limits) -> Limits {
        // A limit on swap belongs to the one on memory.
        let memory = if self.memory_bytes.is_some() { self } else { others };
        let (block, theirs) = (self.block, others.block);
        Limits {
            cpu_cores: self.cpu_cores.or(others.cpu_cores),
            memory_bytes: memory.memory_bytes,
            memory_swap_bytes: memory.memory_swap_bytes,
            pids: self.pids.or(others.pids),
            open_files: self.open_files.or(others.open_files),
            block: BlockLimits {
                read_bytes_per_s: block.read_bytes_per_s.or(theirs.read_bytes_per_s),
                write_bytes_per_s: block.write_bytes_per_s.or(theirs.write_bytes_per_s),
                read_ops_per_s: block.read_ops_per_s.or(theirs.read_ops_per_s),
                write_ops_per_s: block.write_ops_per_s.or(theirs.write_ops_per_s),
            },
            link: self.link,
        }
    }

    /// These limits without those that `others` set as well, to whatever value. Links have none.
    pub(crate) fn except(self, others: Limits) -> Limits {
        let only = |own: Option<u64>, theirs: Option<u64>| own.filter(|_| theirs.is_none());
        let memory = if others.memory_bytes.is_none() { self } else { Limits::default() };
        let (block, theirs) = (self.block, others.block);
        Limits {
            cpu_cores: self.cpu_cores.filter(|_| others.cpu_cores.is_none()),
            memory_bytes: memory.memory_bytes,
            memory_swap_bytes: memory.memory_swap_bytes,
            pids: only(self.pids, others.pids),
            open_files: only(self.open_files, others.open_files),
            block: BlockLimits {
                read_bytes_per_s: only(block.read_bytes_per_s, theirs.read_bytes_per_s),
                write_bytes_per_s: only(block.write_bytes_per_s, theirs.write_bytes_per_s),
                read_ops_per_s: only(block.read_ops_per_s, theirs.read_ops_per_s),
                write_ops_per_s: only(block.write_ops_per_s, theirs.write_ops_per_s),
            },
            link: LinkLimits::default(),
        }
    }
}

/// Limits on a component's network link. `None`: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkLimits {
    /// Bytes per second, each way.
    pub bytes_per_s: Option<u64>,
    /// Added to the round trip, nanoseconds: half of it each way.
    pub delay_ns: Option<u64>,
    /// Largest variation of the delay, nanoseconds; no more than the delay.
    pub jitter_ns: Option<u64>,
    /// Share of packets that are lost, 0 to 1.
    pub loss: Option<f64>,
}

/// Limits on a component's I/O to each disk. `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// Bytes read per second.
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written per second.
    pub write_bytes_per_s: Option<u64>,
    /// Reads per second.
    pub read_ops_per_s: Option<u64>,
    /// Writes per second.
    pub write_ops_per_s: Option<u64>,
}

/// What a container needs beyond what every component has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerSpec {
    /// Its image: `nginx:1.22`, or an id.
    pub image: String,
    /// Replaces the image's entrypoint; empty keeps it.
    pub entrypoint: Vec<String>,
    /// Replaces the image's command; empty keeps it.
    pub command: Vec<String>,
    /// Published ports: a port of this machine's loopback, and the container's port behind it.
    pub published: Vec<(u16, u16)>,
    /// `/folder:/in/container` or `name:/in/container`, either with `:ro`. Named volumes are made for the run and
    /// removed with it.
    pub volumes: Vec<String>,
    /// The network it is attached to.
    pub network: Network,
    /// Names it has on the run's network.
    pub aliases: Vec<String>,
    /// The engine's health check; `None` keeps the image's.
    pub health: Option<HealthCheck>,
    /// The user its processes run as.
    pub user: Option<String>,
}

/// The network a container is attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// A bridge made for the run, on which its containers reach each other by name.
    #[default]
    Run,
    /// This machine's own network.
    Host,
    /// No network.
    None,
    /// An existing network, by name.
    Named(String),
}

/// A command that the engine runs in the container repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// One line for the container's shell, or a list of words.
    pub command: Vec<String>,
    /// `command` is one line for the container's shell.
    pub is_shell: bool,
    /// Interval between two checks, nanoseconds.
    pub every_ns: u64,
    /// A check that takes longer than this, in nanoseconds, has failed.
    pub timeout_ns: u64,
    /// How many failures make the container unhealthy.
    pub retries: u32,
}

/// How to ask a component to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Signal sent to its process group.
    pub signal: Signal,
    /// Time it has to end before it is killed, nanoseconds.
    pub timeout_ns: u64,
}

impl Default for Stop {
    fn default() -> Self {
        Stop { signal: Signal::TERM, timeout_ns: 10_000_000_000 }
    }
}

/// A signal, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

/// Names of the signals people send, and of those that kill.
const SIGNALS: [(&str, i32); 21] = [
    ("SIGHUP", libc::SIGHUP),
    ("SIGINT", libc::SIGINT),
    ("SIGQUIT", libc::SIGQUIT),
    ("SIGILL", libc::SIGILL),
    ("SIGTRAP", libc::SIGTRAP),
    ("SIGABRT", libc::SIGABRT),
    ("SIGBUS", libc::SIGBUS),
    ("SIGFPE", libc::SIGFPE),
    ("SIGKILL", libc::SIGKILL),
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGSEGV", libc::SIGSEGV),
    ("SIGUSR2", libc::SIGUSR2),
    ("SIGPIPE", libc::SIGPIPE),
    ("SIGALRM", libc::SIGALRM),
    ("SIGTERM", libc::SIGTERM),
    ("SIGCONT", libc::SIGCONT),
    ("SIGSTOP", libc::SIGSTOP),
    ("SIGWINCH", libc::SIGWINCH),
    ("SIGXCPU", libc::SIGXCPU),
    ("SIGXFSZ", libc::SIGXFSZ),
    ("SIGSYS", libc::SIGSYS),
];

impl Signal {
    /// Asks the process to end.
    pub const TERM: Signal = Signal(libc::SIGTERM);
    /// Ends the process without asking.
    pub const KILL: Signal = Signal(libc::SIGKILL);
    /// Stops the process until [`Signal::CONT`].
    pub const STOP: Signal = Signal(libc::SIGSTOP);
    /// Continues a stopped process.
    pub const CONT: Signal = Signal(libc::SIGCONT);

    /// Parses `SIGTERM`, `TERM`, `term` or `15`. `None` if it is not a signal.
    pub fn parse(text: &str) -> Option<Signal> {
        let text = text.trim();
        if let Ok(number) = text.parse::<i32>() {
            return Signal::from_number(number);
        }
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        SIGNALS.iter().find(|(name, _)| &name[3..] == bare).map(|(_, number)| Signal(*number))
    }

    /// The signal with this number, 1 to 64.
    pub fn from_number(number: i32) -> Option<Signal> {
        (1..=64).contains(&number).then_some(Signal(number))
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIGNALS.iter().find(|(_, number)| *number == self.0) {
            Some((name, number)) => write!(f, "signal {number} ({name})"),
            None => write!(f, "signal {}", self.0),
        }
    }
}

/// Something this host cannot provide: a reading or a kind of isolation. Not an error; the record reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The affected component; empty if all of them are.
    pub component: String,
    /// What is missing.
    pub what: String,
    /// Why it is missing, in words.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_two_sources() {
        let file = Limits {
            cpu_cores: Some(0.5),
            memory_bytes: Some(64),
            memory_swap_bytes: Some(128),
            block: BlockLimits { read_ops_per_s: Some(7), ..BlockLimits::default() },
            ..Limits::default()
        };
        let plan = Limits { memory_bytes: Some(32), pids: Some(9), ..Limits::default() };
        let both = plan.or(file);
        assert_eq!(both, Limits { memory_bytes: Some(32), memory_swap_bytes: None, pids: Some(9), ..file });
        assert_eq!(file.or(plan), Limits { pids: Some(9), ..file });
        let rest = both.except(plan);
        assert_eq!(rest, Limits { memory_bytes: None, memory_swap_bytes: None, ..file });
        assert_eq!(plan.or(rest), both);
    }

    #[test]
    fn ports_here() {
        let http = |url: &str| Ready::Http { url: url.into(), timeout_ns: 1 }.port_here();
        assert_eq!(http("http://127.0.0.1:8080/health?x=1:2"), Some(8080));
        assert_eq!((http("http://localhost:80"), http("http://[::1]:81/")), (Some(80), Some(81)));
        assert_eq!((http("http://0.0.0.0:80"), http("http://[::]:81/")), (Some(80), Some(81)));
        assert_eq!((http("http://10.0.0.1:80/"), http("http://127.0.0.1/"), http("x")), (None, None, None));
        assert_eq!(Ready::Tcp { addr: "127.0.0.2:7".into(), timeout_ns: 1 }.port_here(), Some(7));
        assert_eq!(Ready::Alive.port_here(), None);
    }

    #[test]
    fn signals_by_name_and_number() {
        for (text, expect) in [
            ("SIGTERM", Some("signal 15 (SIGTERM)")),
            ("term", Some("signal 15 (SIGTERM)")),
            (" Quit ", Some("signal 3 (SIGQUIT)")),
            ("9", Some("signal 9 (SIGKILL)")),
            ("40", Some("signal 40")),
            ("0", None),
            ("65", None),
            ("-9", None),
            ("SIGNAL", None),
            ("", None),
        ] {
            assert_eq!(Signal::parse(text).map(|s| s.to_string()).as_deref(), expect, "{text}");
        }
    }
}
