//! The system of a run: brings components up, waits until they are ready, takes them down, and runs commands in
//! between.
//!
//! Everything is written to the ledger before it is made, so that the guardian or `clean` can remove it at any moment.
//! Dropping the system kills whatever is still up: an error, a panic and an early return all end the same way.

pub(crate) mod command;
pub(crate) mod compose;
pub(crate) mod container;
mod engine;
pub mod host_check;
mod limits;
mod network;
pub mod ready;
mod relay;
mod start;
mod take_down;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};

use loadlab_record::Secrets;
use loadlab_record::sync::lock;

use self::engine::EngineState;
use self::relay::Relays;
use crate::cgroup::tree::RunGroups;
use crate::clock;
use crate::component::Component;
use crate::component::monitor::{Monitor, Notice};
use crate::engine::leftovers;
use crate::error::{Error, Result};
use crate::ledger::guardian::Guardian;
use crate::ledger::state::{self, Resource};
use crate::ledger::{Ledger, clean};
use crate::logs::LOG_LIMIT_BYTES;
use crate::netns::Net;
use crate::process::spawn::Spawner;
use crate::process::{self, ProcessId, kill};
use crate::spec::Unavailable;

/// How long killed processes may take to disappear.
const KILL_TIMEOUT_NS: u64 = 10_000_000_000;

/// Parameters of a system.
#[derive(Debug)]
pub struct SystemSpec {
    /// The run's id: names cgroups and the state file.
    pub run_id: String,
    /// Where the run's record is; for readers of the state file.
    pub run_dir: PathBuf,
    /// A folder for the components' data. It is made if missing, and then removed with all its contents when the system
    /// is closed. One that a killed run left behind is removed first.
    pub scratch: PathBuf,
    /// The folder of state files; see [`state::default_dir`].
    pub state_dir: PathBuf,
    /// Takes the system down when loadlab is gone.
    pub guardian: Option<Guardian>,
    /// Where `/proc/self/mountinfo` and the cgroup mounts are looked up: `/`. Tests use another folder; an empty one
    /// stands for a host without cgroups.
    pub cgroup_root: PathBuf,
    /// A log is cut when it exceeds this size.
    pub log_limit_bytes: u64,
    /// A program that calls [`crate::relay::main`] when its first argument is [`crate::relay::ARG`]; without one,
    /// relays are not available.
    pub exe: Option<PathBuf>,
    /// Secrets in the components' logs that no message may quote.
    pub secrets: Secrets,
}

impl SystemSpec {
    /// A spec for this host, with the usual bounds.
    pub fn new(run_id: &str, run_dir: &Path, scratch: &Path, guardian: Option<Guardian>) -> SystemSpec {
        SystemSpec {
            run_id: run_id.to_owned(),
            run_dir: run_dir.to_owned(),
            scratch: scratch.to_owned(),
            state_dir: state::default_dir(),
            guardian,
            cgroup_root: PathBuf::from("/"),
            log_limit_bytes: LOG_LIMIT_BYTES,
            exe: None,
            secrets: Secrets::default(),
        }
    }

    /// The guardian of a killed run that has yet to remove the scratch folder: [`System::new`] waits for it, at most
    /// [`clean::GUARDIAN_TIMEOUT_NS`].
    pub fn awaited_guardian(&self) -> Option<ProcessId> {
        let guardians = clean::guardians_of(&self.scratch, &self.state_dir);
        guardians.into_iter().next().filter(|_| self.scratch.exists())
    }
}

/// How a component was taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It obeyed the signal, or had already ended.
    Exited,
    /// It did not end in time, and was killed.
    Killed,
}

impl Ending {
    /// The word used in the record: `exited` or `killed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Exited => "exited",
            Ending::Killed => "killed",
        }
    }
}

/// The result of taking a component down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Takedown {
    /// How its first process ended.
    pub ending: Ending,
    /// Processes that stayed behind after the first one ended, and were killed.
    pub stragglers: usize,
    /// Processes that had left its cgroup, and were killed.
    pub escaped: usize,
    /// How long it took.
    pub took_s: f64,
}

/// The system of a run.
#[derive(Debug)]
pub struct System {
    // Declared first, so dropped first: processes that die with the spawner's thread must not be reported as deaths.
    monitor: Monitor,
    spawner: Spawner,
    ledger: Ledger,
    groups: RunGroups,
    scratch: PathBuf,
    /// Whether the scratch folder is ours to remove.
    owns_scratch: bool,
    unavailable: Vec<Unavailable>,
    pub(crate) commands: AtomicU64,
    run_id: String,
    pub(crate) engine_state: Mutex<EngineState>,
    /// The run's own network namespaces.
    pub(crate) net: Option<Net>,
    pub(crate) exe: Option<PathBuf>,
    pub(crate) secrets: Secrets,
    pub(crate) relays: Relays,
    closed: bool,
}

/// The role of a started process.
pub(crate) enum Role {
    /// A component of the plan.
    Component,
    /// A command of the plan: its end is not reported.
    Command,
    /// A relay in front of a component, with its standard input.
    Relay(OwnedFd),
}

impl System {
    /// Prepares the host: state file, scratch folder, cgroups. [`unavailable`](Self::unavailable) lists what the host
    /// lacks; the receiver gets what components do on their own.
    pub fn new(spec: SystemSpec) -> Result<(System, Receiver<Notice>)> {
        let (send, notices) = channel();
        let monitor = Monitor::start(spec.log_limit_bytes, send)?;
        let spawner = Spawner::start()?;
        let ledger = Ledger::open(&spec.state_dir, &spec.run_id, &spec.run_dir, spec.guardian)?;
        let mut system = System {
            monitor,
            spawner,
            ledger,
            groups: RunGroups::plan(&spec.cgroup_root, &spec.run_id),
            scratch: spec.scratch,
            owns_scratch: false,
            unavailable: Vec::new(),
            commands: AtomicU64::new(0),
            run_id: spec.run_id,
            engine_state: Mutex::default(),
            net: None,
            exe: spec.exe,
            secrets: spec.secrets,
            relays: Relays::default(),
            closed: false,
        };
        clean::remove_left(&system.scratch, &spec.state_dir)?;
        system.make_scratch()?;
        for cgroup in &system.groups.cgroups {
            system.ledger.made(Resource::Cgroup(cgroup.dir.clone()))?;
        }
        let planned: Vec<PathBuf> = system.groups.cgroups.iter().map(|p| p.dir.clone()).collect();
        system.groups.create();
        for dir in planned.into_iter().filter(|dir| !system.groups.cgroups.iter().any(|p| p.dir == *dir)) {
            system.ledger.done(Resource::Cgroup(dir))?;
        }
        system.unavailable = system.groups.unavailable.clone();
        if !system.ledger.is_guarded() {
            system.unavailable.push(Unavailable {
                component: String::new(),
                what: "a guardian".into(),
                why: "none was started: after a kill -9 of loadlab the system stays up until `loadlab clean`"
                    .into(),
            });
        }
        Ok((system, notices))
    }

    fn make_scratch(&mut self) -> Result<()> {
        // A folder that already exists is used and not removed.
        self.owns_scratch = !self.scratch.exists();
        if self.owns_scratch {
            self.ledger.made(Resource::Dir(self.scratch.clone()))?;
        }
        fs::create_dir_all(&self.scratch).map_err(Error::file("create", &self.scratch))?;
        match self.owns_scratch {
            true => clean::mark_scratch(&self.scratch, &self.ledger.mark()),
            false => Ok(()),
        }
    }

    pub(crate) fn cgroups(&self) -> &[crate::cgroup::CgroupDir] {
        &self.groups.cgroups
    }

    /// What this host cannot provide to any component.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// The interface that provides limits and counters: `v1`, `v2`, `hybrid` or `none`.
    pub fn cgroup_version(&self) -> &'static str {
        self.groups.version()
    }

    /// The folder for the components' data.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// All components not taken down yet, dead ones included, oldest first.
    pub fn components(&self) -> Vec<Component> {
        let kept = self.monitor.all();
        kept.into_iter().filter(|c| !c.is_command).map(|inner| Component { inner }).collect()
    }

    /// Components that ended without being asked to.
    pub fn died(&self) -> Vec<Component> {
        self.components().into_iter().filter(|c| c.ended().is_some() && !c.inner.is_leaving()).collect()
    }

    /// Name and value of an environment variable for anything else that is started for the run: the guardian and
    /// `clean` find it by this mark.
    pub fn mark(&self) -> (String, String) {
        let mark = self.ledger.mark();
        mark.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap_or_default()
    }

    /// The `NAME=value` entry in the environment of a component's processes.
    fn component_mark(&self, component: &str) -> String {
        format!("LOADLAB_COMPONENT={component}@{}", self.ledger.mark().replace("LOADLAB_RUN=", ""))
    }

    /// Takes everything down in order and removes what the run made. Dropping the system does the same, but kills at
    /// once.
    pub fn close(mut self) -> Result<()> {
        let down = self.down_all().map(drop);
        let removed = self.remove();
        self.closed = true;
        down.and(removed)
    }

    /// Removes what an engine was asked for and has not confirmed, in case it still appears.
    fn await_asked(&self, resource: Resource) -> Result<()> {
        let Resource::Asked { socket, label, .. } = &resource else { return Ok(()) };
        let settled_ns = clock::now_ns() + clean::SETTLES_NS;
        let tried = leftovers::remove_until(socket, label, &mut || clock::now_ns() >= settled_ns)?;
        match tried.into_iter().find_map(|(_, error)| error) {
            Some(error) => Err(error.into()),
            None => self.ledger.done(resource),
        }
    }

    /// Removes everything; a failure does not stop the rest.
    fn remove(&self) -> Result<()> {
        let until_ns = clock::now_ns() + KILL_TIMEOUT_NS;
        let mut results = Vec::new();
        // Processes left behind by a probe's command are in no cgroup of the run.
        let mark = self.ledger.mark();
        let own = std::process::id();
        let left = || process::marked(&mark).iter().map(|stat| stat.pid).filter(|pid| *pid != own).collect();
        if let Err(pids) = kill::kill_until_none(until_ns, left) {
            let component = "what commands of the plan started".to_owned();
            results.push(Err(Error::StillAlive { component, pids, waited_ns: KILL_TIMEOUT_NS }));
        }
        let (made, asked) = {
            let mut engine_state = lock(&self.engine_state);
            (std::mem::take(&mut engine_state.made), std::mem::take(&mut engine_state.asked))
        };
        for resource in made {
            if let Resource::Engine { socket, label } = &resource {
                results.push(match leftovers::remove_all(socket, label) {
                    Ok(()) => self.ledger.done(resource),
                    Err(error) => Err(error.into()),
                });
            }
        }
        for resource in asked {
            results.push(self.await_asked(resource));
        }
        for cgroup in &self.groups.cgroups {
            if clean::remove_run_group(&cgroup.dir, until_ns) {
                results.push(self.ledger.done(Resource::Cgroup(cgroup.dir.clone())));
            }
        }
        if self.owns_scratch {
            let removed = clean::remove_scratch(&self.scratch, &self.ledger.mark());
            results.push(match removed {
                Ok(()) => self.ledger.done(Resource::Dir(self.scratch.clone())),
                Err(e) => Err(Error::file("remove", &self.scratch)(e)),
            });
        }
        results.push(self.ledger.close());
        results.into_iter().collect()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        // Anything that fails here is in the ledger; the guardian takes over when it is dropped.
        for inner in self.monitor.all().into_iter().rev() {
            let _ = self.take_down(&inner, Some(0));
        }
        let _ = self.remove();
    }
}
