//! A small process that takes a system down once loadlab is gone, however it ended.
//!
//! It is loadlab's own binary, started again with a hidden argument, in its own session and in none of the components'
//! cgroups, so that neither Ctrl-C, nor a kill of loadlab's process group, nor a component's memory limit reaches it.
//! It reads what the run makes from a pipe, one JSON object per line; the kernel closes the pipe when loadlab ends for
//! any reason, and the guardian then removes what is left. It must not print, and does nothing while loadlab lives.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::clean::{self, Cleaning};
use super::state::{self, Change, RunState};
use crate::error::{Error, Result};
use crate::process::{self, ProcessId};

/// Signals that are meant for loadlab and must not end its guardian.
const IGNORED: [i32; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE];

/// Our end of the pipe. Dropping it makes the guardian act.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    pipe: Option<ChildStdin>,
    id: ProcessId,
}

/// Starts the guardian: `exe arg`, where the binary must call [`main`] for that argument.
#[expect(unsafe_code, reason = "pre_exec, to detach the guardian")]
pub fn spawn(exe: &Path, arg: &str) -> Result<Guardian> {
    let failed = |source| Error::Guardian { exe: exe.to_owned(), source };
    let mut command = Command::new(exe);
    command.arg(arg).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: `detach` runs in the forked child; it makes two kinds of system calls and nothing else.
    unsafe { command.pre_exec(detach) };
    let mut child = command.spawn().map_err(failed)?;
    let pipe = child.stdin.take();
    let pid = child.id();
    let start_ticks = process::stat(pid).map_or(0, |s| s.start_ticks);
    Ok(Guardian { child, pipe, id: ProcessId { pid, start_ticks } })
}

/// Gives it its own session, and ignores the signals across exec: Ctrl-C cannot reach it at any moment.
fn detach() -> std::io::Result<()> {
    ignore_signals();
    rustix::process::setsid().map(drop).map_err(Into::into)
}

#[expect(unsafe_code, reason = "signal, to detach the guardian")]
#[expect(
    clippy::disallowed_methods,
    reason = "Ctrl-C between fork and exec must not end the guardian: it has to outlive what it guards"
)]
fn ignore_signals() {
    for signal in IGNORED {
        // SAFETY: signal(2) with SIG_IGN is async-signal-safe and installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

impl Guardian {
    /// The guardian's process.
    pub fn process(&self) -> ProcessId {
        self.id
    }

    /// Sends it a change. An error means that the guardian is gone.
    pub(crate) fn send(&mut self, change: &Change) -> std::io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => state::write_line(pipe, change),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Closes the pipe and waits until the guardian has removed what was left: nothing after an orderly end.
    pub fn finish(mut self) {
        self.pipe = None;
        // It ends by itself within the time limits of taking down.
        let _ = self.child.wait();
    }
}

/// Runs the guardian: reads changes until the pipe closes, then takes down what is left. Returns the process's exit
/// status. The binary calls this before anything else.
pub fn main(pipe: impl Read) -> i32 {
    ignore_signals();
    match follow(pipe) {
        Some(state) if !state.resources.is_empty() => {
            let items = clean::take_down(&state, Cleaning::default());
            i32::from(items.iter().any(|i| i.result.is_err()))
        }
        Some(state) => {
            // After an orderly end the file is already gone.
            let _ = std::fs::remove_file(&state.file);
            0
        }
        None => 0,
    }
}

/// What a run has made by the time its pipe closed. A truncated last line does not count.
fn follow(pipe: impl Read) -> Option<RunState> {
    let mut run: Option<RunState> = None;
    for line in BufReader::new(pipe).split(b'\n') {
        let Ok(line) = line else { break };
        match (serde_json::from_slice(&line), &mut run) {
            (Ok(Change::Run(state)), _) => run = Some(state),
            (Ok(change), Some(state)) => state.apply(change),
            _ => {}
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::state::Resource;

    #[test]
    fn what_is_left_is_what_was_made_and_not_done() {
        let run = RunState {
            run_id: "r".into(),
            owner: ProcessId { pid: 1, start_ticks: 2 },
            boot_id: String::new(),
            run_dir: "/r".into(),
            mark: "LOADLAB_RUN=r".into(),
            guardian: None,
            resources: Vec::new(),
            file: "/nonexistent/r.json".into(),
        };
        let a = Resource::Dir("/a".into());
        let b = Resource::Group(ProcessId { pid: 3, start_ticks: 4 });
        let mut lines = Vec::new();
        let changes = [
            Change::Run(run),
            Change::Made(a.clone()),
            Change::Made(b.clone()),
            Change::Made(a.clone()),
            Change::Done(a),
        ];
        changes.iter().for_each(|c| state::write_line(&mut lines, c).unwrap());
        lines.extend(b"{\"made\":{\"dir\":\"/half");
        assert_eq!(follow(lines.as_slice()).unwrap().resources, [b]);
        assert_eq!(main(&b""[..]), 0);
    }
}
