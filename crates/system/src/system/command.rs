//! Commands of the plan (build, seed, before and after a trial), run to completion; none of their processes survives.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cancel::{Cancel, WaitOutcome};
use crate::clock;
use crate::component::{Inner, Status};
use crate::error::{Error, Result, Tail};
use crate::logs;
use crate::spec::{Command, ComponentSpec, Limits, LogFiles, Ready, Stop};
use crate::system::{Role, System};
use crate::watch::target::Target;

/// A command to run once.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// Name for messages and for its cgroup: `seed`, `build of backend`.
    pub name: String,
    /// What to run.
    pub command: Command,
    /// The folder it runs in.
    pub dir: PathBuf,
    /// Variables added to loadlab's own environment.
    pub env: Vec<(String, String)>,
    /// Time limit, nanoseconds, after which it is killed; `None` waits indefinitely.
    pub timeout_ns: Option<u64>,
    /// File to which its standard output and standard error are appended.
    pub log: PathBuf,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct CommandResult {
    /// The command's name.
    pub name: String,
    /// The command that ran.
    pub command: String,
    /// How it ended.
    pub status: Status,
    /// How long it took.
    pub took_s: f64,
    /// When it had ended, nanoseconds of `CLOCK_MONOTONIC`.
    pub ended_ns: u64,
    /// Processes of it that were still running, and were killed.
    pub stragglers: usize,
    /// The last lines of its output.
    pub tail: Tail,
}

/// A running command. The caller that began it ends it, see [`System::end_command`]; otherwise it ends with the system.
#[derive(Debug)]
pub struct RunningCommand {
    inner: Arc<Inner>,
    name: String,
    command: String,
}

impl RunningCommand {
    /// When its process was started, nanoseconds of `CLOCK_MONOTONIC`.
    pub fn started_ns(&self) -> u64 {
        self.inner.started_ns
    }

    /// Waits until it has ended (`true`), `until_ns` is reached, or `cancel` is triggered.
    pub fn wait(&self, until_ns: u64, cancel: &Cancel) -> bool {
        cancel.wait_for(Some(self.inner.pidfd.as_fd()), until_ns) == WaitOutcome::Ready
    }

    /// What the watcher should read for it, under a name of the caller's choice.
    pub fn target(&self, name: &str) -> Target {
        self.inner.target().named(name)
    }

    /// Whether a text is in the first MiB of what it has written so far.
    pub fn has_written(&self, text: &str) -> bool {
        let mut written = Vec::new();
        for log in &self.inner.logs {
            log.read_since(log.from, &mut written);
        }
        written.windows(text.len().max(1)).any(|part| part == text.as_bytes())
    }
}

impl CommandResult {
    /// Whether it exited with status 0.
    pub fn is_ok(&self) -> bool {
        self.status.exit == Some(0)
    }

    /// Returns the result itself, or an error that says how the command failed.
    pub fn checked(self) -> Result<CommandResult> {
        if self.is_ok() {
            return Ok(self);
        }
        Err(Error::CommandFailed {
            name: self.name,
            command: self.command,
            status: self.status.to_string(),
            tail: self.tail,
        })
    }
}

impl System {
    /// Runs a command to completion. Anything it leaves running is killed with its cgroup.
    ///
    /// A status other than 0 is a result, not an error (see [`CommandResult::checked`]); a command that cannot be
    /// started, exceeds its time limit, or is cancelled is an error.
    pub fn run_command(&self, spec: &CommandSpec, cancel: &Cancel) -> Result<CommandResult> {
        let running = self.begin_command(spec)?;
        let until_ns =
            spec.timeout_ns.map_or(u64::MAX, |timeout_ns| running.started_ns().saturating_add(timeout_ns));
        let woke = cancel.wait_for(Some(running.inner.pidfd.as_fd()), until_ns);
        let result = self.end_command(&running)?;
        match (woke, spec.timeout_ns) {
            (WaitOutcome::Ready, _) => Ok(result),
            (WaitOutcome::TimedOut, Some(timeout_ns)) => {
                let CommandResult { name, command, tail, .. } = result;
                Err(Error::CommandTimeout { name, command, timeout_ns, tail })
            }
            _ => Err(Error::Cancelled { doing: format!("running {}: `{}`", result.name, result.command) }),
        }
    }

    /// Starts a command. Enforcing the spec's `timeout_ns` is up to the caller.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn begin_command(&self, spec: &CommandSpec) -> Result<RunningCommand> {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let command = ComponentSpec {
            // Two commands of the same name may run at once.
            name: format!("{} {number}", spec.name),
            command: spec.command.clone(),
            dir: spec.dir.clone(),
            env: spec.env.clone(),
            ready: Ready::Alive,
            limits: Limits::default(),
            stop: Stop::default(),
            logs: LogFiles { stdout: spec.log.clone(), stderr: spec.log.clone() },
            ports: Vec::new(),
            cpus: Vec::new(),
            relay: None,
        };
        let inner = self.start(&command, Role::Command)?;
        Ok(RunningCommand { inner, name: spec.name.clone(), command: spec.command.to_string() })
    }

    /// Returns how a command ended. If it is still running, it is killed, as is anything it left running.
    ///
    /// # Errors
    /// Some of its processes cannot be killed.
    pub fn end_command(&self, running: &RunningCommand) -> Result<CommandResult> {
        let RunningCommand { inner, name, command } = running;
        let asked_ns = clock::now_ns();
        let stragglers = self.take_down(inner, Some(0))?.stragglers;
        let ended = inner.wait_reaped();
        let ended_ns = ended.at_ns.min(asked_ns);
        Ok(CommandResult {
            name: name.clone(),
            command: command.clone(),
            status: ended.status,
            took_s: ended_ns.saturating_sub(inner.started_ns) as f64 / 1e9,
            ended_ns,
            stragglers,
            tail: logs::tail(&inner.logs),
        })
    }
}
