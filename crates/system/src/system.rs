//! The system of a run: components up, ready, down, and commands in between.
//!
//! What is made is written to the ledger first, so that the guardian or `clean` can remove it at any moment.
//! Dropping the system kills whatever is still up: an error, a panic and an early return all end the same way.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use loadlab_record::Secrets;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::boxes::Boxes;
use crate::cancel::{Cancel, Woke};
use crate::cgroup::group::{Group, LimitError};
use crate::cgroup::tree::RunGroups;
use crate::clock;
use crate::component::{Component, Inner, Life, Origin, lock};
use crate::engine::Engine;
use crate::engine::leavings;
use crate::error::{Error, Result};
use crate::guardian::Guardian;
use crate::keeper::{Keeper, Notice};
use crate::kill;
use crate::limits;
use crate::logs::{LOG_LIMIT_BYTES, Log};
use crate::netns::{Joined, Net};
use crate::ports;
use crate::process::{self, Kin, ProcessId};
use crate::relay::hold::Relays;
use crate::spawn::{Launch, LaunchError, Spawner, Step};
use crate::spec::{ComponentSpec, LinkLimits, Unavailable};
use crate::state::{self, Ledger, Resource};

/// How long processes that were killed may take to be gone.
const KILLED_NS: u64 = 10_000_000_000;
/// How long those that stay behind when a component's first process has ended in order may take.
const STRAGGLERS_NS: u64 = 500_000_000;
/// Pause between looks at who is left.
const LOOK_NS: u64 = 5_000_000;

/// What a system is made for and where.
#[derive(Debug)]
pub struct SystemSpec {
    /// The run: names cgroups and the state file.
    pub run_id: String,
    /// Where the run's record is, for whoever finds the state file.
    pub run_dir: PathBuf,
    /// A folder for the components' data. It is made, and removed with all it holds when the system is closed.
    pub scratch: PathBuf,
    /// The folder of state files; see [`state::default_dir`].
    pub state_dir: PathBuf,
    /// Takes the system down when loadlab is gone.
    pub guardian: Option<Guardian>,
    /// Where `/proc/self/mountinfo` and the cgroup mounts are looked for: `/`. Tests give another folder; one
    /// that is empty stands for a host without cgroups.
    pub cgroup_root: PathBuf,
    /// A log is cut when it is larger.
    pub log_limit_bytes: u64,
    /// A program that calls [`crate::relay::main`] when its first argument is [`crate::relay::ARG`]; without one there
    /// are no relays.
    pub exe: Option<PathBuf>,
    /// What no message may quote of the components' logs.
    pub secrets: Secrets,
}

impl SystemSpec {
    /// On this host, with the usual bounds.
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
}

/// How a component was taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It followed the signal, or had ended before.
    Exited,
    /// It did not, and was killed.
    Killed,
}

impl How {
    /// As the record has it: `exited` or `killed`.
    pub fn as_str(self) -> &'static str {
        match self {
            How::Exited => "exited",
            How::Killed => "killed",
        }
    }
}

/// What taking down came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Down {
    /// How its first process ended.
    pub how: How,
    /// Processes that stayed behind after its first one ended, and were killed.
    pub left_over: usize,
    /// Processes that had left its cgroup, and were killed.
    pub escaped: usize,
    /// How long it took.
    pub took_s: f64,
}

/// The system of a run.
#[derive(Debug)]
pub struct System {
    // Declared first, so dropped first: it must not see the spawner's end as deaths.
    keeper: Keeper,
    spawner: Spawner,
    ledger: Ledger,
    groups: RunGroups,
    scratch: PathBuf,
    /// The scratch folder is ours to remove.
    owns_scratch: bool,
    unavailable: Vec<Unavailable>,
    pub(crate) commands: AtomicU64,
    run_id: String,
    pub(crate) boxes: Mutex<Boxes>,
    /// Network namespaces of the run's own.
    pub(crate) net: Option<Net>,
    pub(crate) exe: Option<PathBuf>,
    pub(crate) secrets: Secrets,
    pub(crate) relays: Relays,
    closed: bool,
}

/// What is started, beside what its spec says.
pub(crate) enum Role {
    /// A component of the plan.
    Component,
    /// A command of the plan: nobody is told of its end.
    Command,
    /// A relay before a component, with its standard input.
    Relay(OwnedFd),
}

impl System {
    /// Prepares the host: state file, scratch folder, cgroups. What the host lacks is in
    /// [`unavailable`](Self::unavailable). What components do unasked comes through the receiver.
    pub fn new(spec: SystemSpec) -> Result<(System, Receiver<Notice>)> {
        let (send, notices) = channel();
        let keeper = Keeper::start(spec.log_limit_bytes, send)?;
        let spawner = Spawner::start()?;
        let ledger = Ledger::open(&spec.state_dir, &spec.run_id, &spec.run_dir, spec.guardian)?;
        let mut system = System {
            keeper,
            spawner,
            ledger,
            groups: RunGroups::plan(&spec.cgroup_root, &spec.run_id),
            scratch: spec.scratch,
            owns_scratch: false,
            unavailable: Vec::new(),
            commands: AtomicU64::new(0),
            run_id: spec.run_id,
            boxes: Mutex::default(),
            net: None,
            exe: spec.exe,
            secrets: spec.secrets,
            relays: Relays::default(),
            closed: false,
        };
        system.make_scratch()?;
        for place in &system.groups.places {
            system.ledger.made(Resource::Cgroup(place.dir.clone()))?;
        }
        let planned: Vec<PathBuf> = system.groups.places.iter().map(|p| p.dir.clone()).collect();
        system.groups.create();
        for dir in planned.into_iter().filter(|dir| !system.groups.places.iter().any(|p| p.dir == *dir)) {
            system.ledger.done(Resource::Cgroup(dir))?;
        }
        system.unavailable = system.groups.unavailable.clone();
        if !system.ledger.is_guarded() {
            system.unavailable.push(Unavailable {
                component: String::new(),
                what: "a guardian".into(),
                why: "none was started: after a kill -9 of loadlab the system stays until `loadlab clean`"
                    .into(),
            });
        }
        Ok((system, notices))
    }

    fn make_scratch(&mut self) -> Result<()> {
        // A folder that was there before is used and not removed.
        self.owns_scratch = !self.scratch.exists();
        if self.owns_scratch {
            self.ledger.made(Resource::Dir(self.scratch.clone()))?;
        }
        fs::create_dir_all(&self.scratch).map_err(Error::file("create", &self.scratch))?;
        match self.owns_scratch {
            true => state::mark_scratch(&self.scratch, &self.ledger.mark()),
            false => Ok(()),
        }
    }

    pub(crate) fn places(&self) -> &[crate::cgroup::Place] {
        &self.groups.places
    }

    /// What this host cannot give any component.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Where limits and counters come from: `v1`, `v2`, `hybrid` or `none`.
    pub fn cgroup_version(&self) -> &'static str {
        self.groups.version()
    }

    /// The folder for the components' data.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// All components that are up or died and were not taken down, oldest first.
    pub fn components(&self) -> Vec<Component> {
        let kept = self.keeper.all();
        kept.into_iter().filter(|c| !c.is_command).map(|inner| Component { inner }).collect()
    }

    /// Components that ended though nobody asked them to.
    pub fn died(&self) -> Vec<Component> {
        self.components().into_iter().filter(|c| c.ended().is_some() && !c.inner.is_leaving()).collect()
    }

    /// Starts a component under its limits. It is not ready then; see [`ready`](Self::ready).
    pub fn up(&self, spec: &ComponentSpec) -> Result<Component> {
        if let Some(same) = self.components().into_iter().find(|c| c.name() == spec.name) {
            return Err(Error::AlreadyUp { component: spec.name.clone(), pid: same.process().pid });
        }
        // In a namespace of its own every port is free.
        if self.own_address(&spec.name).is_none() {
            ports::check_free(&spec.name, &spec.ports)?;
            self.check_ready_is_its_own(spec)?;
        }
        Ok(Component { inner: self.start(spec, Role::Component)? })
    }

    /// Nobody outside of the system listens where the component will be asked whether it is ready: it would be taken
    /// for the component, which finds its port taken and ends later, or never does.
    fn check_ready_is_its_own(&self, spec: &ComponentSpec) -> Result<()> {
        let Some(port) = spec.ready.port_here().filter(|port| !spec.ports.contains(port)) else {
            return Ok(());
        };
        let others = self.components();
        if others.iter().any(|c| c.spec().ports.contains(&port)) {
            return Ok(());
        }
        ports::check_no_stranger(&spec.name, port, &|pid| others.iter().any(|c| c.pids().contains(&pid)))
    }

    /// Starts a process in groups of its own, under its limits, in the ledger, kept.
    pub(crate) fn start(&self, spec: &ComponentSpec, role: Role) -> Result<Arc<Inner>> {
        let (is_command, is_component) = (matches!(role, Role::Command), matches!(role, Role::Component));
        let joined = match &self.net {
            Some(net) if is_component => net.join(&spec.name, spec.relay.is_some())?,
            // Commands are where the load is.
            Some(net) => Joined { network: Some(net.common()?), ..Joined::default() },
            None => Joined::default(),
        };
        let link = if is_component { self.prepare_link(spec, &joined)? } else { LinkLimits::default() };
        let (group, mut unavailable) = Group::create(&self.groups.places, &spec.name);
        let stdin = if let Role::Relay(stdin) = role { Some(stdin) } else { None };
        let started = self.start_in(spec, &group, (&mut unavailable, joined.network, stdin));
        let (id, logs, started_ns) = match started {
            Ok(started) => started,
            Err(error) => {
                let dirs = group.dirs();
                let until_ns = clock::now_ns() + KILLED_NS;
                // The error at hand is the one to tell; what is left here goes with the run's folder.
                let _ = kill::kill_groups(&dirs, until_ns);
                let _ = group.remove(until_ns);
                let _ = self.end_relay(&spec.name);
                return Err(error);
            }
        };
        let pid = Pid::from_raw(id.pid as i32).ok_or(rustix::io::Errno::SRCH);
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())).map_err(|e| Error::Os {
            doing: "watch a process (Linux 5.4 or newer is needed)",
            source: e.into(),
        });
        let pidfd = match pidfd {
            Ok(pidfd) => pidfd,
            Err(error) => {
                kill::kill_process(id);
                let _ = self.end_relay(&spec.name);
                return Err(error);
            }
        };
        let inner = Arc::new(Inner {
            spec: spec.clone(),
            id,
            pidfd,
            kin: Kin { leader: id, mark: self.component_mark(&spec.name) },
            group,
            logs,
            started_ns,
            unavailable,
            is_command,
            was_ready: Default::default(),
            is_asked: Default::default(),
            leaving: Default::default(),
            life: Mutex::new(Life { limits: spec.limits, link, ..Life::default() }),
            ended: Default::default(),
            origin: Origin::Process,
        });
        // Kept before anything below can fail: dropping the system then takes it down.
        self.keeper.keep(inner.clone());
        self.ledger.made(Resource::Group(id))?;
        if let Err(error) = check_open_files(&inner).and_then(|()| limits::check_cpus(&inner)) {
            self.take_down(&inner, Some(0))?;
            return Err(error);
        }
        Ok(inner)
    }

    /// Name and value for the environment of whatever else is started for the run: the guardian and `clean` find it by
    /// this.
    pub fn mark(&self) -> (String, String) {
        let mark = self.ledger.mark();
        mark.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap_or_default()
    }

    /// `NAME=value` in the environment of a component's processes.
    fn component_mark(&self, component: &str) -> String {
        format!("LOADLAB_COMPONENT={component}@{}", self.ledger.mark().replace("LOADLAB_RUN=", ""))
    }

    fn start_in(
        &self,
        spec: &ComponentSpec,
        group: &Group,
        (unavailable, network, stdin): (&mut Vec<Unavailable>, Option<OwnedFd>, Option<OwnedFd>),
    ) -> Result<(ProcessId, Vec<Log>, u64)> {
        let missed = group.limit(&spec.limits).map_err(|LimitError { limit, why, hint }| Error::Limit {
            component: spec.name.clone(),
            limit,
            why,
            hint,
        })?;
        unavailable.extend(missed.into_iter().map(|u| Unavailable { component: spec.name.clone(), ..u }));
        let open = |path: &Path| Log::open(path).map(|log| log.masking(&self.secrets));
        let logs = vec![open(&spec.logs.0)?, open(&spec.logs.1)?];
        let cannot = |why: String, hint: &str| Error::Start {
            component: spec.name.clone(),
            command: spec.command.to_string(),
            dir: spec.dir.clone(),
            why,
            hint: hint.to_owned(),
        };
        if !spec.dir.is_dir() {
            return Err(cannot("the folder does not exist".into(), "create it, or name another one"));
        }
        let doors = group.doors().map_err(|(path, e)| {
            cannot(format!("cannot open {}: {e}", path.display()), crate::cgroup::tree::HINT)
        })?;
        let mut env = spec.env.clone();
        for mark in [self.ledger.mark(), self.component_mark(&spec.name)] {
            env.extend(mark.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let own = |log: &Log| log.file.try_clone().map_err(Error::file("open", &log.path));
        let launch = Launch {
            command: spec.command.clone(),
            dir: spec.dir.clone(),
            env,
            stdout: own(&logs[0])?,
            stderr: own(&logs[1])?,
            doors,
            open_files: spec.limits.open_files,
            cpus: spec.cpus.clone(),
            network,
            stdin,
        };
        let started_ns = clock::now_ns();
        let pid = self.spawner.launch(launch).map_err(|error| launch_failed(spec, error))?;
        // It is our child and not reaped: the pid is its own, even if it has ended.
        let start_ticks = process::stat(pid).map_or(0, |s| s.start_ticks);
        Ok((ProcessId { pid, start_ticks }, logs, started_ns))
    }

    /// Takes a component down: the stop signal to its group, time to follow it, then the end of everything in its
    /// cgroup (without one: of its kin), daemons and all. Taking down one that has ended removes what it left.
    pub fn down(&self, component: &Component) -> Result<Down> {
        self.take_down(&component.inner, None)
    }

    /// Kills a component without asking it first.
    pub fn kill(&self, component: &Component) -> Result<Down> {
        self.take_down(&component.inner, Some(0))
    }

    /// Takes all components down, the newest first. One that fails does not keep the others up; the first error
    /// is returned.
    pub fn down_all(&self) -> Result<Vec<(Component, Down)>> {
        let mut downs = Vec::new();
        let mut failed = None;
        for inner in self.keeper.all().into_iter().rev() {
            match self.take_down(&inner, None) {
                Ok(down) => downs.push((Component { inner }, down)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(downs), Err)
    }

    /// `within_ns` replaces the spec's; 0 kills at once.
    pub(crate) fn take_down(&self, inner: &Arc<Inner>, within_ns: Option<u64>) -> Result<Down> {
        if let Origin::Container(held) = &inner.origin {
            return self.take_down_container(inner, held, within_ns);
        }
        inner.leaving.store(true, Ordering::SeqCst);
        let begun_ns = clock::now_ns();
        let until_ns = begun_ns.saturating_add(within_ns.unwrap_or(inner.spec.stop.within_ns));
        inner.group.lift_cpu();
        if within_ns != Some(0) {
            inner.send(inner.spec.stop.signal);
            // One that stands still could not follow it.
            inner.send(crate::spec::Signal::CONT);
        }
        let how = match Cancel::new().wait_for(Some(std::os::fd::AsFd::as_fd(&inner.pidfd)), until_ns) {
            Woke::Ready => How::Exited,
            _ => How::Killed,
        };
        let mut left_over = 0;
        if how == How::Exited {
            let patience_ns = if within_ns == Some(0) { 0 } else { STRAGGLERS_NS };
            left_over = wait_for_none(inner, until_ns.min(clock::now_ns() + patience_ns));
        } else {
            // With a pidfd unreaped children cannot be missed even where there is no cgroup.
            inner.send(crate::spec::Signal::KILL);
        }
        let escaped = inner.escaped().len();
        self.end_all(inner)?;
        inner.wait_reaped();
        self.forget(inner)?;
        // Until now it may have had something to say.
        self.end_relay(&inner.spec.name)?;
        Ok(Down { how, left_over, escaped, took_s: (clock::now_ns() - begun_ns) as f64 / 1e9 })
    }

    fn end_all(&self, inner: &Inner) -> Result<()> {
        let until_ns = clock::now_ns() + KILLED_NS;
        let ended = match inner.group.places.is_empty() {
            false => kill::kill_groups(&inner.group.dirs(), until_ns).and_then(|killed| {
                // Those that have left the group are still its own.
                kill::kill_until_none(until_ns, || inner.escaped()).map(|escaped| killed + escaped)
            }),
            true => kill::kill_until_none(until_ns, || inner.all_pids()),
        };
        ended.map(drop).map_err(|pids| Error::StillAlive {
            component: inner.spec.name.clone(),
            pids,
            waited_ns: KILLED_NS,
        })
    }

    fn forget(&self, inner: &Arc<Inner>) -> Result<()> {
        self.keeper.forget(inner);
        // A folder that stays is below the run's, which the ledger has.
        let _ = inner.group.remove(clock::now_ns() + KILLED_NS);
        self.ledger.done(Resource::Group(inner.id))
    }

    /// From here on whatever has the run's label at the engine goes with the run.
    pub(crate) fn remember_engine(&self, engine: &Engine) -> Result<()> {
        self.remember(Resource::Engine { socket: engine.socket().to_owned(), label: self.engine_label() })
    }

    /// The label of all that the run makes at an engine itself.
    pub(crate) fn engine_label(&self) -> String {
        format!("{}={}", crate::engine::container::RUN_LABEL, self.run_label())
    }

    /// Puts something into the ledger once, for as long as the system lives.
    pub(crate) fn remember(&self, resource: Resource) -> Result<()> {
        let mut boxes = lock(&self.boxes);
        if !boxes.made.contains(&resource) {
            boxes.made.push(resource.clone());
            return self.ledger.made(resource);
        }
        Ok(())
    }

    /// Has the engine make something, which is in the ledger until it has answered: what it was asked for comes even
    /// when loadlab is gone.
    pub(crate) fn asking<T, E>(
        &self,
        resource: Resource,
        ask: impl FnOnce() -> std::result::Result<T, E>,
        is_answered: impl FnOnce(&E) -> bool,
    ) -> Result<std::result::Result<T, E>> {
        self.ledger.made(resource.clone())?;
        let made = ask();
        match &made {
            Err(error) if !is_answered(error) => lock(&self.boxes).asked.push(resource),
            _ => self.ledger.done(resource)?,
        }
        Ok(made)
    }

    /// The value of the label of all that the run makes.
    pub(crate) fn run_label(&self) -> String {
        self.ledger.mark().replace("LOADLAB_RUN=", "")
    }

    /// A name at the engine, unlike that of any other run.
    pub(crate) fn name_for(&self, part: &str) -> String {
        format!("loadlab-{}-{part}", crate::cgroup::folder_name(&self.run_id).trim_start_matches('_'))
    }

    /// The tag of the process that the run belongs to.
    pub(crate) fn owner_tag(&self) -> String {
        state::tag(self.ledger.owner())
    }

    pub(crate) fn keep(&self, inner: Arc<Inner>) {
        self.keeper.keep(inner);
    }

    pub(crate) fn kept(&self) -> Vec<Arc<Inner>> {
        self.keeper.all()
    }

    pub(crate) fn let_go(&self, inner: &Arc<Inner>) {
        self.keeper.forget(inner);
    }

    /// Takes everything down in order and removes what the run made. Dropping the system does the same, but kills.
    pub fn close(mut self) -> Result<()> {
        let down = self.down_all().map(drop);
        let removed = self.remove();
        self.closed = true;
        down.and(removed)
    }

    /// Removes what an engine was asked for and gave no answer to, should it come yet.
    fn await_asked(&self, resource: Resource) -> Result<()> {
        let Resource::Asked { socket, label, .. } = &resource else { return Ok(()) };
        let settled_ns = clock::now_ns() + state::SETTLES_NS;
        let tried = leavings::remove_until(socket, label, &mut || clock::now_ns() >= settled_ns)?;
        match tried.into_iter().find_map(|(_, error)| error) {
            Some(error) => Err(error.into()),
            None => self.ledger.done(resource),
        }
    }

    /// Removes all there is to remove; one thing that fails does not keep the others.
    fn remove(&self) -> Result<()> {
        let until_ns = clock::now_ns() + KILLED_NS;
        let mut results = Vec::new();
        let (made, asked) = {
            let mut boxes = lock(&self.boxes);
            (std::mem::take(&mut boxes.made), std::mem::take(&mut boxes.asked))
        };
        for resource in made {
            if let Resource::Engine { socket, label } = &resource {
                results.push(match leavings::remove_all(socket, label) {
                    Ok(()) => self.ledger.done(resource),
                    Err(error) => Err(error.into()),
                });
            }
        }
        for resource in asked {
            results.push(self.await_asked(resource));
        }
        for place in &self.groups.places {
            if state::remove_run_group(&place.dir, until_ns) {
                results.push(self.ledger.done(Resource::Cgroup(place.dir.clone())));
            }
        }
        if self.owns_scratch {
            let removed = state::remove_scratch(&self.scratch, &self.ledger.mark());
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
        // What fails here is in the ledger, and the guardian takes over when it is dropped.
        for inner in self.keeper.all().into_iter().rev() {
            let _ = self.take_down(&inner, Some(0));
        }
        let _ = self.remove();
    }
}

/// Waits until nobody is left, at most until then; returns how many are.
fn wait_for_none(inner: &Inner, until_ns: u64) -> usize {
    let never = Cancel::new();
    loop {
        // The first process may be a zombie that is about to be reaped.
        let left = inner.all_pids().into_iter().filter(|pid| *pid != inner.id.pid).count();
        if left == 0 || clock::now_ns() >= until_ns {
            return left;
        }
        never.wait_until(until_ns.min(clock::now_ns() + LOOK_NS));
    }
}

/// The limit of open files as the kernel has it for the process.
fn check_open_files(inner: &Inner) -> Result<()> {
    let Some(wanted) = inner.spec.limits.open_files else { return Ok(()) };
    match limits::open_files_of(inner.id.pid) {
        // It has ended already, and a zombie's limits are empty.
        None => Ok(()),
        Some(has) if has == wanted => Ok(()),
        Some(has) => Err(Error::Limit {
            component: inner.spec.name.clone(),
            limit: format!("open files to {wanted}"),
            why: format!("the process has a limit of {has}"),
            hint: "does the command set `ulimit -n` itself?".into(),
        }),
    }
}

fn launch_failed(spec: &ComponentSpec, error: LaunchError) -> Error {
    let LaunchError { step, source } = error;
    let limit = |limit: String, hint: &str| Error::Limit {
        component: spec.name.clone(),
        limit,
        why: source.to_string(),
        hint: hint.to_owned(),
    };
    let start = |why: String, hint: &str| Error::Start {
        component: spec.name.clone(),
        command: spec.command.to_string(),
        dir: spec.dir.clone(),
        why,
        hint: hint.to_owned(),
    };
    match &step {
        Step::OpenFiles(n) => limit(
            format!("open files to {n}"),
            "more than the hard limit (`ulimit -Hn`) needs the capability CAP_SYS_RESOURCE; choose less or raise it",
        ),
        Step::Cpus(cpus) => {
            limit(format!("cores to {cpus:?}"), "name cores that `nproc` and `taskset -p $$` show")
        }
        Step::Network => start(
            format!("cannot enter its network namespace: {source}"),
            "`isolate` takes root (the capability CAP_SYS_ADMIN)",
        ),
        Step::Join(path) => {
            start(format!("cannot join {}: {source}", path.display()), crate::cgroup::tree::HINT)
        }
        Step::Exec if source.kind() == std::io::ErrorKind::NotFound => start(
            "no such program".into(),
            "is it installed, and in PATH? a relative path is meant from the folder above",
        ),
        Step::Exec => start(source.to_string(), "run the command by hand in that folder"),
    }
}
