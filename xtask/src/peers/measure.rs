//! Runs a generator on its core: starts it there, waits for it, and reads its CPU time and memory as the kernel counted
//! them.

#![expect(unsafe_code, reason = "wait4, for the CPU time and memory of one child")]

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::command::{Ran, kill_all_of, sooner_or_later};

/// The cores of the server and of the generator, by number.
pub struct Cores {
    /// The core of nginx.
    pub server: usize,
    /// The core of the generator.
    pub generator: usize,
}

impl Cores {
    /// The first and the last core that this program may use.
    ///
    /// # Errors
    /// The kernel does not report the usable cores.
    pub fn choose() -> Result<Cores> {
        let set = sched_getaffinity(None).context("which cores may be used")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
        let server = cores.next().context("no core may be used")?;
        Ok(Cores { server, generator: cores.next_back().unwrap_or(server) })
    }

    /// A remark about the cores, if one is needed.
    pub fn remark(&self) -> Option<&'static str> {
        (self.server == self.generator)
            .then_some("one core only: server and generator share it, and throughput says little")
    }
}

/// Resources that a process and its children used.
pub struct Used {
    /// User and system time, in seconds.
    pub cpu_s: f64,
    /// Peak resident memory.
    pub peak_bytes: u64,
}

/// Starts a command on a core.
///
/// # Errors
/// The command cannot be started there.
pub fn start_on(core: usize, command: &mut Command) -> Result<Child> {
    // A child inherits the cores of the thread that starts it.
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("core {core}"))?;
    let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()));
    sched_setaffinity(None, &before)?;
    child
}

/// Runs a generator on its core until it ends.
///
/// # Errors
/// The generator cannot be started, or does not end in time.
pub fn measure(command: Command, cores: &Cores, scratch: &Path, longest: Duration) -> Result<(Ran, Used)> {
    measure_from(command, scratch, longest, |command| start_on(cores.generator, command))
}

/// Runs a command on any cores until it ends.
///
/// # Errors
/// The command cannot be started, or does not end in time.
pub fn measure_on_all(command: Command, scratch: &Path, longest: Duration) -> Result<(Ran, Used)> {
    measure_from(command, scratch, longest, |command| Ok(command.spawn()?))
}

fn measure_from(
    mut command: Command,
    scratch: &Path,
    longest: Duration,
    start: impl FnOnce(&mut Command) -> Result<Child>,
) -> Result<(Ran, Used)> {
    let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let own_peak = peak_bytes("self");
    let mut child = start(&mut command)?;
    let (status, used) = wait(&mut child, longest, own_peak)?;
    let text = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((Ran { status, stdout: text(&out)?, stderr: text(&err)? }, used))
}

fn wait(child: &mut Child, longest: Duration, own_peak: u64) -> Result<(ExitStatus, Used)> {
    let mut seen = 0;
    let pid = libc::pid_t::try_from(child.id())?;
    let ended = sooner_or_later("its end", longest, Duration::from_millis(20), || {
        let mut status = 0;
        // SAFETY: all bytes zero are a value of this plain C structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to variables of this frame; the pid is that of a child that nothing else waits
        // for.
        let got = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if got < 0 {
            return Err(io::Error::last_os_error()).context("wait4");
        }
        seen = seen.max(peak_bytes(&pid.to_string()));
        Ok((got == pid).then(|| (ExitStatus::from_raw(status), used(&usage, own_peak, seen))))
    });
    if ended.is_err() {
        kill_all_of(child)?;
    }
    ended
}

/// The peak that the kernel reports at the end includes this program's own, which the child had until exec. If it is no
/// larger than that, `seen`, the peak last read while the child ran, is more accurate.
fn used(usage: &libc::rusage, own_peak: u64, seen: u64) -> Used {
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let reported = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    let peak_bytes = if reported > own_peak || seen == 0 { reported } else { seen };
    Used { cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime), peak_bytes }
}

/// How busy all cores are during a time in which this program does nothing, from 0 to 1.
///
/// # Errors
/// The kernel does not report it.
#[expect(clippy::disallowed_methods, reason = "how busy the cores are shows over a time")]
pub fn busy_share(time: Duration) -> Result<f64> {
    let before = ticks(&fs::read_to_string("/proc/stat")?)?;
    thread::sleep(time);
    let after = ticks(&fs::read_to_string("/proc/stat")?)?;
    let (busy, all) = (after.0 - before.0, after.1 - before.1);
    Ok(if all == 0 { 0.0 } else { busy as f64 / all as f64 })
}

/// Busy ticks of all cores, and all ticks, from the first line of `/proc/stat`.
fn ticks(stat: &str) -> Result<(u64, u64)> {
    let line =
        stat.lines().next().and_then(|l| l.strip_prefix("cpu ")).context("/proc/stat: no line `cpu`")?;
    let fields: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    // user nice system idle iowait irq softirq steal; the rest is already included in user.
    let all: u64 = fields.iter().take(8).sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    Ok((all - idle, all))
}

/// The peak resident memory of a process since its last exec; 0 if the kernel does not report it.
fn peak_bytes(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let number = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_ticks_are_not_busy() {
        assert_eq!(ticks("cpu  10 1 20 60 4 2 3 0 5 0\ncpu0 1 1\n").unwrap(), (36, 100));
        assert!(ticks("intr 1 2 3").is_err());
    }

    #[test]
    fn a_small_peak_is_not_hidden_by_this_programs_own() {
        // SAFETY: all bytes zero are a value of this plain C structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        usage.ru_maxrss = 6000;
        assert_eq!(used(&usage, 5000 * 1024, 4000 * 1024).peak_bytes, 6000 * 1024);
        assert_eq!(used(&usage, 6000 * 1024, 4000 * 1024).peak_bytes, 4000 * 1024);
    }

    #[test]
    fn a_process_is_run_on_its_core_and_its_use_counted() {
        let dir = tempfile::tempdir().unwrap();
        let cores = Cores::choose().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; grep Cpus_allowed_list /proc/self/status; exit 3"]);
        let (ran, used) = measure(command, &cores, dir.path(), Duration::from_secs(60)).unwrap();
        assert_eq!(ran.status.code(), Some(3));
        assert_eq!(ran.stdout.trim(), format!("Cpus_allowed_list:\t{}", cores.generator));
        assert!(used.cpu_s > 0.0 && used.peak_bytes > 0);
        let after = sched_getaffinity(None).unwrap();
        assert!(
            after.is_set(cores.server) && after.is_set(cores.generator),
            "this thread has its cores again"
        );
    }
}
