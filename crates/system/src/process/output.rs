//! Captures the output of a short command: for probes, and for lists of what was stored.
//!
//! It runs beside the load repeatedly, so it gets no cgroup and no ledger entry; it carries the run's mark in its
//! environment, by which the guardian and `clean` find it. Its output is kept in memory and bounded.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use loadlab_record::Secrets;

use crate::cancel::{Cancel, WaitOutcome};
use crate::clock;
use crate::process::open_files;
use crate::spec::Command;

/// How long a wait blocks before it checks whether to continue.
const SLICE_NS: u64 = 20_000_000;
/// How much of a failed command's standard error is read, in bytes.
const ERROR_BYTES: u64 = 4096;

/// A command run for its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputCommand {
    /// What to run.
    pub command: Command,
    /// The folder it runs in.
    pub dir: PathBuf,
    /// Variables added to loadlab's own environment; the run's mark should be among them.
    pub env: Vec<(String, String)>,
    /// Secrets that no message about it may quote.
    pub secrets: Secrets,
}

impl OutputCommand {
    /// Runs the command and returns its standard output. It is killed, with its process group, at `until_ns`, when
    /// `stop` returns true, or once it has printed more than `most_bytes`.
    ///
    /// # Errors
    /// In words: it cannot be started, fails, takes too long, or prints too much.
    pub fn run(
        &self,
        until_ns: u64,
        most_bytes: u64,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<u8>, String> {
        let memory = || {
            let fd = rustix::fs::memfd_create("loadlab-output", MemfdFlags::CLOEXEC);
            fd.map(File::from).map_err(|e| format!("cannot allocate memory for its output: {e}"))
        };
        let (mut output, mut errors) = (memory()?, memory()?);
        let own = |file: &File| {
            file.try_clone().map_err(|e| format!("cannot get a descriptor for its output: {e}"))
        };
        let mut process = match &self.command {
            Command::Shell(line) => {
                let mut process = Process::new("/bin/sh");
                process.arg("-c").arg(line);
                process
            }
            Command::Argv(words) => {
                let (program, rest) = words.split_first().ok_or("the command is empty")?;
                let mut process = Process::new(program);
                process.args(rest);
                process
            }
        };
        process.current_dir(&self.dir).envs(self.env.iter().map(|(n, v)| (n, v))).process_group(0);
        process.stdin(Stdio::null()).stdout(own(&output)?).stderr(own(&errors)?);
        let mut child = process.spawn().map_err(|e| format!("cannot start it: {e}"))?;
        // Set from here: in the child before it execs, it would take a fork of this process and all its memory.
        open_files::give(child.id());
        let ended = wait(&mut child, until_ns, &mut || match stop() {
            true => Some("interrupted".to_owned()),
            false => {
                let size = output.metadata().map_or(0, |m| m.len());
                (size > most_bytes).then(|| format!("it printed more than {most_bytes} bytes"))
            }
        });
        // Kill anything it left running, and the command itself if it did not end.
        if let Some(group) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let status = child.wait().map_err(|e| format!("cannot wait for it: {e}"))?;
        ended?;
        if !status.success() {
            return Err(format!("it failed with {status}: {}", self.last_error_line(&mut errors)));
        }
        let mut bytes = Vec::new();
        let read = output
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&output).take(most_bytes + 1).read_to_end(&mut bytes));
        read.map_err(|e| format!("cannot read its output: {e}"))?;
        match bytes.len() as u64 > most_bytes {
            true => Err(format!("it printed more than {most_bytes} bytes")),
            false => Ok(bytes),
        }
    }
}

impl OutputCommand {
    /// The last line of its standard error, or of the part of it that is read.
    fn last_error_line(&self, errors: &mut File) -> String {
        let mut bytes = Vec::new();
        let _ = errors
            .seek(SeekFrom::Start(0))
            .and_then(|_| (&*errors).take(ERROR_BYTES).read_to_end(&mut bytes));
        let is_whole = errors.metadata().is_ok_and(|m| m.len() <= ERROR_BYTES);
        let masked = match is_whole {
            true => self.secrets.mask_bytes(&bytes),
            false => self.secrets.mask_beginning(&bytes),
        };
        let text = String::from_utf8_lossy(&masked);
        text.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or("it printed no error").to_owned()
    }
}

/// Waits until it has ended, without reaping it, or must be ended.
fn wait(
    child: &mut Child,
    until_ns: u64,
    must_end: &mut dyn FnMut() -> Option<String>,
) -> Result<(), String> {
    let pid = Pid::from_raw(child.id() as i32).ok_or("it has no pid")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| format!("cannot watch it: {e}"))?;
    let never = Cancel::new();
    loop {
        if let Some(why) = must_end() {
            return Err(why);
        }
        let now_ns = clock::now_ns();
        if now_ns >= until_ns {
            return Err("it did not finish in time".into());
        }
        if never.wait_for(Some(pidfd.as_fd()), until_ns.min(now_ns + SLICE_NS)) == WaitOutcome::Ready {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, most: u64) -> Result<String, String> {
        let command = OutputCommand {
            command: Command::Shell(line.into()),
            dir: "/".into(),
            env: vec![("A".into(), "b".into())],
            secrets: secrets(),
        };
        let patience_ns = clock::now_ns() + 60_000_000_000;
        command.run(patience_ns, most, &mut || false).map(|b| String::from_utf8_lossy(&b).into_owned())
    }

    #[test]
    fn what_it_prints_is_what_is_had() {
        assert_eq!(run("echo $A; pwd", 100).as_deref(), Ok("b\n/\n"));
        assert_eq!(
            run("echo no luck >&2; exit 3", 100).unwrap_err(),
            "it failed with exit status: 3: no luck"
        );
        assert_eq!(run("exit 3", 100).unwrap_err(), "it failed with exit status: 3: it printed no error");
        assert_eq!(run("echo 12345", 3).unwrap_err(), "it printed more than 3 bytes");
        assert_eq!(run("yes", 1 << 20).unwrap_err(), "it printed more than 1048576 bytes");
    }

    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        secrets.add(b"s3cret+token").unwrap();
        secrets
    }

    #[test]
    fn what_it_says_holds_no_secret_nor_a_part_of_one() {
        let failed = |said: &str| run(&format!("{said} >&2; exit 1"), 100).unwrap_err();
        assert_eq!(failed("echo no s3cret%2Btoken"), "it failed with exit status: 1: no ***");
        // Wherever the end of the part that is read cuts the secret.
        for before in ERROR_BYTES - 13..ERROR_BYTES {
            let said = failed(&format!("printf '%{before}s s3cret+token and more' x"));
            assert!(said.ends_with("x") || said.ends_with("x ***"), "{before}: {said}");
        }
        assert_eq!(failed("printf 'not \\377 text'"), "it failed with exit status: 1: not \u{fffd} text");
    }

    #[test]
    fn one_that_takes_too_long_is_killed_with_all_it_started() {
        let command = OutputCommand {
            command: Command::Shell("sleep 1000 & sleep 1000".into()),
            dir: "/".into(),
            env: vec![("LOADLAB_TEST_OUTPUT".into(), std::process::id().to_string())],
            secrets: Secrets::default(),
        };
        let why = command.run(clock::now_ns() + 1, 10, &mut || false).unwrap_err();
        assert_eq!(why, "it did not finish in time");
        assert_eq!(command.run(u64::MAX, 10, &mut || true).unwrap_err(), "interrupted");
        let mark = format!("LOADLAB_TEST_OUTPUT={}", std::process::id());
        let until_ns = clock::now_ns() + 60_000_000_000;
        while !crate::process::marked(&mark).is_empty() {
            assert!(clock::now_ns() < until_ns, "somebody is left");
        }
    }
}
