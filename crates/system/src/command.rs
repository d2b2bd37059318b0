//! Commands of the plan – build, seed, before and after a trial – run to their end, of which nothing survives.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::cancel::{Cancel, Woke};
use crate::clock;
use crate::component::Status;
use crate::error::{Error, Result, Tail};
use crate::logs;
use crate::spec::{Command, ComponentSpec, Limits, Ready, Stop};
use crate::system::System;

/// A command to be run once.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// `seed`, `build of backend`; for messages and for its cgroup.
    pub name: String,
    /// What is run.
    pub command: Command,
    /// Where.
    pub dir: PathBuf,
    /// Variables added to loadlab's own environment.
    pub env: Vec<(String, String)>,
    /// It is killed after so long; `None` waits.
    pub within_ns: Option<u64>,
    /// Its output and its errors are appended here.
    pub log: PathBuf,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct CommandResult {
    /// Its name.
    pub name: String,
    /// What ran.
    pub command: String,
    /// How it ended.
    pub status: Status,
    /// How long it took.
    pub took_s: f64,
    /// Its last lines.
    pub tail: Tail,
}

impl CommandResult {
    /// It exited with status 0.
    pub fn is_ok(&self) -> bool {
        self.status.exit == Some(0)
    }

    /// Itself, or the error that says how it failed.
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
    /// Runs a command to its end. Whatever it leaves running is killed with its cgroup.
    ///
    /// A status other than 0 is a result, not an error (see [`CommandResult::checked`]); errors are that it cannot
    /// be started, takes too long, or is cancelled.
    pub fn run_command(&self, spec: &CommandSpec, cancel: &Cancel) -> Result<CommandResult> {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let command = ComponentSpec {
            // Two commands of one name may run at the same time.
            name: format!("{} {number}", spec.name),
            command: spec.command.clone(),
            dir: spec.dir.clone(),
            env: spec.env.clone(),
            ready: Ready::Alive,
            limits: Limits::default(),
            stop: Stop::default(),
            logs: (spec.log.clone(), spec.log.clone()),
            ports: Vec::new(),
            cpus: Vec::new(),
        };
        let inner = self.start(&command, true)?;
        let until_ns =
            spec.within_ns.map_or(u64::MAX, |within_ns| inner.started_ns.saturating_add(within_ns));
        let woke = cancel.wait_for(Some(inner.pidfd.as_fd()), until_ns);
        let took_s = (clock::now_ns() - inner.started_ns) as f64 / 1e9;
        self.take_down(&inner, Some(0))?;
        let (name, text) = (spec.name.clone(), spec.command.to_string());
        let tail = logs::tail(&inner.logs);
        match (woke, spec.within_ns) {
            (Woke::Ready, _) => {
                Ok(CommandResult { name, command: text, status: inner.wait_reaped().status, took_s, tail })
            }
            (Woke::TimedOut, Some(within_ns)) => {
                Err(Error::CommandTimeout { name, command: text, within_ns, tail })
            }
            _ => Err(Error::Cancelled { doing: format!("running {name}: `{text}`") }),
        }
    }
}
