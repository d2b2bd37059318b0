//! Other programs, started as a user would: from the repository's folder, without standard input, without the variables
//! cargo sets for this program, and with a time limit.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::root::root;

/// Time limit of a single command: ample on two slow cores in a fresh clone, so one that takes longer hangs.
pub const LONGEST: Duration = Duration::from_secs(25 * 60);
/// How long output may stay open after its command has ended.
const OUTPUT_GRACE: Duration = Duration::from_secs(10);

/// A command's output and exit.
pub struct Ran {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output; with [`shown`] standard error as well, if that is not a terminal.
    pub stdout: String,
    /// Standard error; empty with [`shown`].
    pub stderr: String,
}

impl Ran {
    /// Returns the command's output if it succeeded.
    ///
    /// # Errors
    /// The command failed; the error contains everything it printed.
    pub fn ok(self, what: &str) -> Result<Ran> {
        ensure!(self.status.success(), "{what}: {}\n{}{}", self.status, self.stdout, self.stderr);
        Ok(self)
    }
}

/// A program to run from the repository's folder.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    command
}

/// The cargo that runs this program, with arguments.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

thread_local! {
    /// Output held back on this thread while it works in the background.
    static HELD_BACK: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line, unless this thread works in the background.
pub fn say(line: &str) {
    HELD_BACK.with_borrow_mut(|held| match held {
        Some(text) => {
            text.push_str(line);
            text.push('\n');
        }
        None => println!("{line}"),
    });
}

/// Does work in the background: at the lowest priority, including commands it starts, and without printing. Also
/// returns what it would have printed.
pub fn in_background<T>(work: impl FnOnce() -> T) -> (T, String) {
    // Linux has a nice value per thread, which its children inherit. If it cannot be set the work is still done.
    let _ = rustix::process::nice(19);
    HELD_BACK.set(Some(String::new()));
    let done = work();
    (done, HELD_BACK.take().unwrap_or_default())
}

/// Runs a command whose output is for the reader: standard output is passed on line by line, and kept. Standard error
/// goes to the terminal; if it is not a terminal it is treated like standard output, so that a log has both in order.
///
/// # Errors
/// It cannot be started, or takes longer than [`LONGEST`].
#[expect(clippy::disallowed_methods, reason = "whether it is a terminal")]
pub fn shown(command: &mut Command) -> Result<Ran> {
    say(&format!("$ {}", line_of(command)));
    let (from, to) = std::io::pipe()?;
    let is_background = HELD_BACK.with_borrow(Option::is_some);
    if is_background || !std::io::stderr().is_terminal() {
        command.stderr(to.try_clone()?);
    }
    let child = start(command.stdout(to));
    // The command must not keep the pipe open once the child has ended.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child?;
    let stdout = reader(from, !is_background);
    let status = wait(&mut child, LONGEST)?;
    let stdout = text_of(Some(stdout))?;
    if is_background {
        say(&stdout);
    }
    Ok(Ran { status, stdout, stderr: String::new() })
}

/// Runs a command whose output is for this program.
///
/// # Errors
/// It cannot be started, or takes longer than `longest`.
pub fn captured(command: &mut Command, longest: Duration) -> Result<Ran> {
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = child.stdout.take().map(|out| reader(out, false));
    let stderr = child.stderr.take().map(|out| reader(out, false));
    let status = wait(&mut child, longest).with_context(|| line_of(command))?;
    Ok(Ran { status, stdout: text_of(stdout)?, stderr: text_of(stderr)? })
}

/// Path of a program: from `PATH`, or from where Debian puts programs for administrators.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// `PATH` with folders in front.
///
/// # Errors
/// A folder's name is not allowed in `PATH`.
pub fn path_with(folders: &[PathBuf]) -> Result<OsString> {
    let old = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(folders.iter().cloned().chain(env::split_paths(&old)))?)
}

/// A command as typed in a shell.
fn line_of(command: &Command) -> String {
    let envs = command.get_envs().filter_map(|(k, v)| Some(format!("{}={}", k.display(), v?.display())));
    let name = PathBuf::from(command.get_program());
    let name = name.file_name().map(|n| n.display().to_string());
    let args = command.get_args().map(|a| {
        let text = a.display().to_string();
        if text.contains(char::is_whitespace) { format!("'{text}'") } else { text }
    });
    envs.chain(name).chain(args).collect::<Vec<_>>().join(" ")
}

fn start(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| format!("cannot start `{}`", command.get_program().display()))
}

fn wait(child: &mut Child, longest: Duration) -> Result<ExitStatus> {
    let ended = soon("its end", longest, || Ok(child.try_wait()?));
    if ended.is_err() {
        kill_all_of(child)?;
        bail!("still ran after {} s and was killed", longest.as_secs());
    }
    ended
}

/// A child that is killed when its owner is dropped.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // Best effort: the child may already be gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Interval between checks for something expected soon.
const OFTEN: Duration = Duration::from_millis(10);

/// Checks until `look` returns a result.
///
/// # Errors
/// There is no result in time, or a check fails.
pub fn soon<T>(what: &str, within: Duration, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    sooner_or_later(what, within, OFTEN, look)
}

/// As [`soon`], with less frequent checks, for when checking would disturb what is measured.
///
/// # Errors
/// There is no result in time, or a check fails.
#[expect(clippy::disallowed_methods, reason = "between two looks, in a loop with an end")]
pub fn sooner_or_later<T>(
    what: &str,
    within: Duration,
    every: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(since.elapsed() <= within, "{what}: not within {} s", within.as_secs());
        thread::sleep(every);
    }
}

/// Kills a child and all its descendants. They are found through their parents, not through a separate process group,
/// so that a terminal's Ctrl-C still reaches them along with this program.
///
/// # Errors
/// The child itself cannot be killed.
pub fn kill_all_of(child: &mut Child) -> Result<()> {
    let mut family = vec![child.id()];
    let mut next = 0;
    while let Some(pid) = family.get(next).copied() {
        // A stopped process cannot start others that would be missed.
        signal(pid, Signal::STOP);
        family.extend(children_of(pid));
        next += 1;
    }
    family[1..].iter().for_each(|pid| signal(*pid, Signal::KILL));
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn signal(pid: u32, signal: Signal) {
    // Best effort: the process may already be gone.
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Reads `/proc/PID/stat`: the state and the parent follow the name in parentheses.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Reads to end of file on a separate thread.
#[expect(clippy::disallowed_methods, reason = "what a command prints is shown")]
fn reader(from: impl Read + Send + 'static, show: bool) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        let mut from = BufReader::new(from);
        loop {
            let before = all.len();
            match from.read_until(b'\n', &mut all) {
                Ok(1..) if show => drop(std::io::stdout().write_all(&all[before..])),
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        sender.send(String::from_utf8_lossy(&all).into_owned())
    });
    receiver
}

fn text_of(receiver: Option<Receiver<String>>) -> Result<String> {
    match receiver {
        None => Ok(String::new()),
        Some(receiver) => receiver
            .recv_timeout(OUTPUT_GRACE)
            .context("the command has ended, and something it left behind still holds its output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_and_failures_name_the_exit_status() {
        let ran = captured(program("sh").args(["-c", "echo out; echo err >&2; exit 3"]), LONGEST).unwrap();
        assert_eq!(
            (ran.stdout.as_str(), ran.stderr.as_str(), ran.status.code()),
            ("out\n", "err\n", Some(3))
        );
        assert!(ran.ok("it").err().unwrap().to_string().contains("exit status: 3\nout\nerr\n"));
        let ran = shown(program("sh").args(["-c", "printf 'one\\ntwo'; cat"])).unwrap();
        assert_eq!(ran.stdout, "one\ntwo", "and standard input is empty");
    }

    #[test]
    fn what_does_not_end_is_killed() {
        let error = captured(program("cat").stdin(Stdio::piped()), Duration::ZERO).err().unwrap();
        assert!(format!("{error:#}").contains("still ran after 0 s"), "{error:#}");
    }

    #[test]
    fn what_it_started_is_killed_with_it() {
        let mut command = program("sh");
        command.args(["-c", "(sleep 1000; true) & echo; wait"]).stdout(Stdio::piped());
        let mut child = start(&mut command).unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        kill_all_of(&mut child).unwrap();
        assert_eq!(text_of(Some(reader(stdout, false))).unwrap(), "", "nobody holds it any more");
    }

    #[test]
    fn work_in_the_background_prints_nothing() {
        let work = || shown(program("sh").args(["-c", "echo out; echo err >&2; nice"])).unwrap().stdout;
        let (ran, said) = thread::spawn(move || in_background(work)).join().unwrap();
        assert_eq!(ran, "out\nerr\n19\n");
        assert!(said.ends_with("out\nerr\n19\n\n") && said.starts_with("$ sh -c"), "{said}");
    }

    #[test]
    fn commands_are_shown_as_one_would_type_them() {
        let mut command = program("cargo");
        command.args(["doc", "a b"]).env("RUSTDOCFLAGS", "-Dwarnings");
        assert_eq!(line_of(&command), "RUSTDOCFLAGS=-Dwarnings cargo doc 'a b'");
    }
}
