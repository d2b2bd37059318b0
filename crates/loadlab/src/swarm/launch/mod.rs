//! `--launch`: a scheduler starts the agents of a run. Its jobs are removed when the run ends; if this process is
//! killed before that, the agents exit by themselves.

mod kubernetes;
mod slurm;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loadlab_swarm::nats::SwarmError;
use loadlab_swarm::nats::coordinator::Coordinator;

use crate::args::{LaunchArg, SwarmArgs};
use kubernetes::KubernetesJob;
use slurm::SlurmJob;

/// Time between two polls of the scheduler's queue.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Has an agent exit if it hears of no run: it may start long after its run has ended.
const LEAVE_UNANNOUNCED: &str = "--leave-unannounced=60s";

/// How long agents have to exit once the run is over.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two polls at the end: agents exit within a second.
const LOOK_AT_END: Duration = Duration::from_millis(200);

/// What a scheduler is to start.
pub struct Launch<'a> {
    /// `--launch` and its options.
    pub args: &'a SwarmArgs,
    /// URL of the NATS server, with its credentials.
    pub url: &'a str,
    /// The run's id: letters and digits.
    pub run: &'a str,
    /// Number of agents to start.
    pub agents: usize,
    /// Public key of the coordinator whose orders they follow.
    pub public_key: &'a str,
    /// Hosts that they may load.
    pub allow_hosts: Vec<String>,
}

impl Launch<'_> {
    /// Path of the program on the agents' machines: that of this program here, unless `--launch-program` says
    /// otherwise.
    fn program(&self) -> Result<PathBuf, String> {
        match &self.args.launch_program {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe()
                .map_err(|error| format!("the path of this program is unknown: {error}")),
        }
    }

    /// Arguments of every agent.
    fn agent_args(&self) -> Vec<String> {
        let mut args = ["agent", "--once", LEAVE_UNANNOUNCED, "--coordinator-key", self.public_key]
            .map(str::to_owned)
            .to_vec();
        for host in &self.allow_hosts {
            args.extend(["--allow-host".to_owned(), host.clone()]);
        }
        args
    }
}

/// A scheduler's job, removed on drop.
enum Scheduled {
    Slurm(SlurmJob),
    Kubernetes(KubernetesJob),
}

impl Scheduled {
    fn queue(&self) -> Queue {
        match self {
            Scheduled::Slurm(job) => job.queue(),
            Scheduled::Kubernetes(job) => job.queue(),
        }
    }

    /// What to do if the job has ended before its agents joined.
    fn hint_of_ended(&self) -> &'static str {
        match self {
            Scheduled::Slurm(_) => {
                "--launch-arg --output=FILE keeps what they print; --launch-program PATH says where loadlab is on the \
                 nodes"
            }
            Scheduled::Kubernetes(_) => "`kubectl describe job` and `kubectl logs` say more while they wait",
        }
    }
}

/// Agents that a scheduler starts, removed on drop.
pub struct Launched {
    job: Scheduled,
    wait: Duration,
    /// Every slot had an agent.
    came: AtomicBool,
}

/// Why the requested agents cannot be launched, in words.
pub fn missing(args: &SwarmArgs, url: &str) -> Option<String> {
    match args.launch {
        Some(LaunchArg::Kubernetes) => kubernetes::asked(args, url).err(),
        Some(LaunchArg::Slurm) | None => None,
    }
}

impl Launched {
    /// Asks the scheduler for the agents; `None` if others start them.
    ///
    /// # Errors
    /// In words: the scheduler's commands are not installed, or it refuses.
    pub fn start(launch: &Launch<'_>) -> Result<Option<Launched>, String> {
        let job = match launch.args.launch {
            None => return Ok(None),
            Some(LaunchArg::Slurm) => Scheduled::Slurm(SlurmJob::submit(launch)?),
            Some(LaunchArg::Kubernetes) => Scheduled::Kubernetes(KubernetesJob::apply(launch)?),
        };
        Ok(Some(Launched {
            job,
            wait: Duration::from_nanos(launch.args.launch_wait),
            came: AtomicBool::new(false),
        }))
    }

    /// What was submitted, in words.
    pub fn described(&self) -> String {
        match &self.job {
            Scheduled::Slurm(job) => job.described(),
            Scheduled::Kubernetes(job) => job.described(),
        }
    }

    /// Waits until every slot has an agent.
    ///
    /// # Errors
    /// The scheduler has ended its job, the agents do not join in time, or `cancelled` is true.
    pub fn gather(&self, coordinator: &Coordinator, cancelled: &dyn Fn() -> bool) -> Result<(), SwarmError> {
        let began = Instant::now();
        loop {
            let left = self.wait.saturating_sub(began.elapsed());
            match coordinator.gather(left.min(POLL_INTERVAL), cancelled) {
                Err(SwarmError::Agents(_)) => {}
                ended => {
                    self.came.store(ended.is_ok(), Ordering::Relaxed);
                    return ended;
                }
            }
            let queue = self.job.queue();
            if began.elapsed() < self.wait && !queue.is_over {
                continue;
            }
            return Err(SwarmError::Agents(format!(
                "only {} of {} agents joined within {} s; {}\nhint: {}",
                coordinator.agents_here(),
                coordinator.slot_count(),
                began.elapsed().as_secs(),
                queue.text,
                if queue.is_over { self.job.hint_of_ended() } else { "--launch-wait waits longer" },
            )));
        }
    }
}

impl Drop for Launched {
    /// Agents that took part know that the run is over: waits until they have removed what they kept and exited.
    fn drop(&mut self) {
        let until = Instant::now() + EXIT_TIMEOUT;
        while *self.came.get_mut() && Instant::now() < until && !self.job.queue().is_over {
            pause();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a scheduler gives no sign when its queue changes")]
fn pause() {
    std::thread::sleep(LOOK_AT_END);
}

/// A scheduler's report on a job.
struct Queue {
    /// The report in words.
    text: String,
    /// Nothing is waiting or running any more.
    is_over: bool,
}

/// Runs a scheduler's program and returns what it printed.
///
/// # Errors
/// In words: it is not installed, or the first line of its errors.
fn run(command: &mut Command, input: &str, package: &str) -> Result<String, String> {
    let name = Path::new(command.get_program()).display().to_string();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed\nhint: {package}"),
        _ => format!("cannot start {name}: {error}"),
    })?;
    // The program may end before it has read everything; the reason is then in its error output.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let first = first.strip_prefix(&format!("{name}: ")).unwrap_or(first);
    let first = first.strip_prefix("error: ").unwrap_or(first);
    Err(match first {
        "" => format!("{name} failed: {}", output.status),
        why => format!("{name} failed: {why}"),
    })
}
