//! Starts a process in its own cgroups, under its limits, recorded in the ledger, and watched.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{KILL_TIMEOUT_NS, Role, System};
use crate::cgroup::group::{Group, LimitError};
use crate::clock;
use crate::component::{Component, Inner, Life, Origin, limits};
use crate::error::{Error, Result};
use crate::ledger::state::Resource;
use crate::logs::Log;
use crate::netns::NetworkPlacement;
use crate::process::spawn::{Launch, LaunchError, Step};
use crate::process::{self, ProcessFamily, ProcessId, kill, ports};
use crate::spec::{ComponentSpec, Limits, LinkLimits, Unavailable};

impl System {
    /// Starts a component under its limits. It is not ready yet; see [`ready`](Self::ready).
    pub fn up(&self, spec: &ComponentSpec) -> Result<Component> {
        if let Some(same) = self.components().into_iter().find(|c| c.name() == spec.name) {
            return Err(Error::AlreadyUp { component: spec.name.clone(), pid: same.process().pid });
        }
        // In its own namespace, every port is free.
        if self.own_address(&spec.name).is_none() {
            ports::check_free(&spec.name, &spec.ports)?;
            self.check_ready_is_its_own(spec)?;
        }
        Ok(Component { inner: self.start(spec, Role::Component)? })
    }

    /// Checks that nothing outside the system listens where the component's readiness will be checked: it would be
    /// mistaken for the component, which finds its port taken and ends later, or never does.
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

    /// Starts a process in its own cgroups, under its limits, recorded in the ledger, and watched until it ends.
    pub(crate) fn start(&self, spec: &ComponentSpec, role: Role) -> Result<Arc<Inner>> {
        let (is_command, is_component) = (matches!(role, Role::Command), matches!(role, Role::Component));
        let placement = match &self.net {
            Some(net) if is_component => net.join(&spec.name, spec.relay.is_some())?,
            // Commands run in the load's namespace.
            Some(net) => NetworkPlacement { network: Some(net.common()?), ..NetworkPlacement::default() },
            None => NetworkPlacement::default(),
        };
        let link = if is_component { self.prepare_link(spec, &placement)? } else { LinkLimits::default() };
        let (group, mut unavailable) = Group::create(&self.groups.cgroups, &spec.name);
        let stdin = if let Role::Relay(stdin) = role { Some(stdin) } else { None };
        let started = self.start_in(spec, &group, &mut unavailable, placement.network, stdin);
        let StartedProcess { id, logs, started_ns } = match started {
            Ok(started) => started,
            Err(error) => {
                let dirs = group.dirs();
                let until_ns = clock::now_ns() + KILL_TIMEOUT_NS;
                // Report the first error; anything left here is removed with the run's folder.
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
            family: ProcessFamily { leader: id, mark: self.component_mark(&spec.name) },
            group,
            logs,
            started_ns,
            unavailable,
            own_limits: Limits::default(),
            own_open_files: None,
            is_command,
            was_ready: Default::default(),
            is_status_requested: Default::default(),
            is_stopping: Default::default(),
            life: Mutex::new(Life { limits: spec.limits, link, ..Life::default() }),
            ended: Default::default(),
            origin: Origin::Process,
        });
        // Track it before anything below can fail: dropping the system then takes it down.
        self.monitor.keep(inner.clone());
        self.ledger.made(Resource::Group(id))?;
        if let Err(error) = check_open_files(&inner).and_then(|()| limits::check_cpus(&inner)) {
            self.take_down(&inner, Some(0))?;
            return Err(error);
        }
        Ok(inner)
    }

    fn start_in(
        &self,
        spec: &ComponentSpec,
        group: &Group,
        unavailable: &mut Vec<Unavailable>,
        network: Option<OwnedFd>,
        stdin: Option<OwnedFd>,
    ) -> Result<StartedProcess> {
        let missed = group.limit(&spec.limits).map_err(|LimitError { limit, why, hint }| Error::Limit {
            component: spec.name.clone(),
            limit,
            why,
            hint,
        })?;
        unavailable.extend(missed.into_iter().map(|u| Unavailable { component: spec.name.clone(), ..u }));
        let open = |path: &Path| Log::open(path).map(|log| log.masking(&self.secrets));
        let logs = vec![open(&spec.logs.stdout)?, open(&spec.logs.stderr)?];
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
        let cgroup_procs = group.cgroup_procs().map_err(|(path, e)| {
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
            cgroup_procs,
            open_files: spec.limits.open_files,
            cpus: spec.cpus.clone(),
            network,
            stdin,
        };
        let started_ns = clock::now_ns();
        let pid = self.spawner.launch(launch).map_err(|error| launch_failed(spec, error))?;
        // It is our unreaped child, so the pid is still its own, even if it has ended.
        let start_ticks = process::stat(pid).map_or(0, |s| s.start_ticks);
        Ok(StartedProcess { id: ProcessId { pid, start_ticks }, logs, started_ns })
    }
}

/// A process that has just been started.
struct StartedProcess {
    id: ProcessId,
    logs: Vec<Log>,
    started_ns: u64,
}

/// Checks the limit on open files against the limit the kernel has for the process.
fn check_open_files(inner: &Inner) -> Result<()> {
    let Some(wanted) = inner.spec.limits.open_files else { return Ok(()) };
    match limits::open_files_of(inner.id.pid) {
        // It has already ended, and a zombie's limits are empty.
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
            "`isolate` needs root (the capability CAP_SYS_ADMIN)",
        ),
        Step::Join(path) => {
            start(format!("cannot join {}: {source}", path.display()), crate::cgroup::tree::HINT)
        }
        Step::Exec if source.kind() == std::io::ErrorKind::NotFound => start(
            "no such program".into(),
            "is it installed, and in PATH? relative paths start at the folder above",
        ),
        Step::Exec => start(source.to_string(), "run the command by hand in that folder"),
    }
}
