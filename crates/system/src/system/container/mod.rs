//! A component that is a container: created with its limits, started, found as a process, stopped, removed.
//!
//! Once it runs it is a component like any other: its first process has a pid on this machine, which the monitor
//! watches and whose cgroups and network namespace the watcher reads. Only what the kernel cannot do goes through the
//! engine: starting, signals, the exit status, health, the end. Everything that is made carries the run's label, so
//! that it can be found when loadlab is gone.

mod limits;
mod restart;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use loadlab_record::sync::lock;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

pub(super) use self::limits::block_rates;
use self::limits::{
    cgroups_of_process, check_limits, check_wanted, keep_our_limits, limits_into, own_cgroups,
};
use super::{Ending, System, Takedown};
use crate::cancel::Cancel;
use crate::cgroup::group::Group;
use crate::clock;
use crate::component::limits::{check_cpus, open_files_limit_of};
use crate::component::{Component, Inner, Life, Origin};
use crate::engine::container::{self, ContainerHandle};
use crate::engine::leftovers::RUN_LABEL;
use crate::engine::logs::Follower;
use crate::engine::{self, Call, Engine, EngineError, encoded};
use crate::error::{Error, Result};
use crate::ledger::state::Resource;
use crate::logs::{self, Log};
use crate::process::{self, ProcessFamily, ProcessId, ports};
use crate::spec::{ComponentSpec, ContainerSpec, HealthCheck, Network};

/// Added to the time that a container has to stop.
const STOP_SLACK_NS: u64 = 30_000_000_000;
/// How long an engine may take to notice that a container has ended …
const LEARNS_NS: u64 = 2_000_000_000;
/// … and how often it is asked.
const POLL_INTERVAL_NS: u64 = 20_000_000;

impl System {
    /// Starts a container under its limits. As with [`System::up`] it is not ready yet.
    ///
    /// # Errors
    /// No engine, no image, a refusal by the engine; a limit in force that differs from the one requested; a container
    /// that ends at once, with its last lines.
    pub fn up_container(&self, spec: &ComponentSpec, container: &ContainerSpec) -> Result<Component> {
        if let Some(same) = self.components().into_iter().find(|c| c.name() == spec.name) {
            return Err(Error::AlreadyUp { component: spec.name.clone(), pid: same.process().pid });
        }
        let failed = |source: EngineError| Error::of_container(&spec.name, source);
        check_wanted(spec)?;
        ports::check_free(&spec.name, &spec.ports)?;
        let engine = self.engine().map_err(failed)?;
        self.remember_engine(&engine)?;
        let (socket, what) = (engine.socket().to_owned(), spec.name.clone());
        let asked = Resource::Asked { socket, label: self.engine_label(), what };
        let create = || self.create_container(spec, container, &engine);
        let is_answered = |error: &EngineError| !matches!(error, EngineError::Http { .. });
        let id = self.asking(asked, create, is_answered)?.map_err(failed)?;
        let started = self.start_container(spec, &engine, &id, None);
        if started.is_err() {
            // Report the first error; the label finds anything left.
            let _ = container::remove(&engine, &id);
        }
        started
    }

    /// Creates a container with its network and volumes, and returns its id.
    fn create_container(
        &self,
        spec: &ComponentSpec,
        container: &ContainerSpec,
        engine: &Engine,
    ) -> engine::Result<String> {
        if container.network == Network::Run {
            self.network(engine)?;
        }
        let body = self.container_body(spec, container, engine)?;
        let path = format!("/containers/create?name={}", encoded(&self.name_for(&spec.name)));
        let doing = "create the container";
        let found = engine.call(Call::new(doing, "POST", path).body(&body))?.found(doing)?;
        found["Id"].as_str().map(str::to_owned).ok_or_else(|| engine.missing(doing, "an id"))
    }

    fn start_container(
        &self,
        spec: &ComponentSpec,
        engine: &Engine,
        id: &str,
        logs_since_ns: Option<u128>,
    ) -> Result<Component> {
        let failed = |source: EngineError| Error::of_container(&spec.name, source);
        let started_ns = clock::now_ns();
        let doing = "start the container";
        let call = Call::new(doing, "POST", format!("/containers/{id}/start")).with_timeout(120_000_000_000);
        engine.call(call).and_then(|a| a.found(doing)).map_err(failed)?;
        self.adopt(spec, engine, id, started_ns, logs_since_ns)
    }

    /// Adopts a running container as a component: watched, tracked, its logs copied.
    pub(crate) fn adopt(
        &self,
        spec: &ComponentSpec,
        engine: &Engine,
        id: &str,
        started_ns: u64,
        logs_since_ns: Option<u128>,
    ) -> Result<Component> {
        let failed = |source: EngineError| Error::of_container(&spec.name, source);
        let doing = "inspect the container";
        let call = Call::new(doing, "GET", format!("/containers/{id}/json"));
        let found = engine.call(call).and_then(|a| a.found(doing)).map_err(failed)?;
        let open = |path: &Path| Log::open(path).map(|log| log.masking(&self.secrets));
        let logs = vec![open(&spec.logs.stdout)?, open(&spec.logs.stderr)?];
        let pid = found["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let stat = process::stat(pid).filter(|_| pid != 0);
        let first = stat.map(|s| ProcessId { pid, start_ticks: s.start_ticks });
        let lives = move || first.is_some_and(|first| first.is_alive());
        let files = [0, 1].map(|i: usize| logs[i].file.try_clone().ok());
        let mut follower = Follower::start(engine, id, files, logs_since_ns, lives).map_err(failed)?;
        let pidfd = Pid::from_raw(pid as i32).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        let (Some(stat), Some(pidfd)) = (stat, pidfd) else {
            return Err(gone(spec, engine, id, pid, &mut follower, &logs));
        };
        let mut group = Group { cgroups: own_cgroups(cgroups_of_process(pid), id), ..Group::default() };
        group.own_disks = group.disks_alone(spec.limits.block);
        let own_limits = group.settable().except(spec.limits);
        let (held_engine, id) = (engine.clone(), id.to_owned());
        let address = container::address_in(&found);
        let follower = Mutex::new(Some(follower));
        let secrets = self.secrets.clone();
        let handle = ContainerHandle { engine: held_engine, id, address, follower, secrets };
        let leader = ProcessId { pid, start_ticks: stat.start_ticks };
        let inner = Arc::new(Inner {
            spec: spec.clone(),
            id: leader,
            pidfd,
            family: ProcessFamily { leader, mark: format!("LOADLAB_CONTAINER={}", handle.id) },
            group,
            logs,
            started_ns,
            unavailable: Vec::new(),
            own_limits,
            own_open_files: open_files_limit_of(pid).filter(|_| spec.limits.open_files.is_none()),
            is_command: false,
            was_ready: Default::default(),
            is_status_requested: Default::default(),
            is_stopping: Default::default(),
            life: Mutex::new(Life { limits: spec.limits.or(own_limits), ..Life::default() }),
            ended: Default::default(),
            origin: Origin::Container(Box::new(handle)),
        });
        self.monitor.keep(inner.clone());
        let checked = check_limits(spec, &inner.group).and_then(|()| check_cpus(&inner));
        if let Err(error) = checked {
            // The limit's error is what matters here.
            let _ = self.take_down(&inner, Some(0));
            return Err(error);
        }
        Ok(Component { inner })
    }

    /// Stops and removes a container: the engine sends its stop signal, and kills it when its time is up.
    pub(crate) fn take_down_container(
        &self,
        inner: &Arc<Inner>,
        handle: &ContainerHandle,
        timeout_ns: Option<u64>,
    ) -> Result<Takedown> {
        inner.is_stopping.store(true, Ordering::SeqCst);
        let begun_ns = clock::now_ns();
        let failed = |source: EngineError| Error::of_container(&inner.spec.name, source);
        let timeout_ns = timeout_ns.unwrap_or(inner.spec.stop.timeout_ns);
        let mut ending = Ending::Exited;
        if timeout_ns > 0 {
            self.stop_container(inner, handle, timeout_ns)?;
            if clock::now_ns() - begun_ns >= timeout_ns {
                ending = Ending::Killed;
            }
        } else if lock(&inner.life).ended.is_none() {
            ending = Ending::Killed;
        }
        let removed = handle.remove();
        if removed.is_ok() {
            inner.wait_reaped();
        }
        handle.finish_logs();
        self.monitor.forget(inner);
        removed.map_err(failed)?;
        Ok(Takedown { ending, stragglers: 0, escaped: 0, took_s: (clock::now_ns() - begun_ns) as f64 / 1e9 })
    }

    /// Asks the container to end; the engine kills it when its time is up.
    fn stop_container(&self, inner: &Inner, handle: &ContainerHandle, timeout_ns: u64) -> Result<()> {
        let failed = |source: EngineError| Error::of_container(&inner.spec.name, source);
        inner.resume_to_stop();
        let path = format!("/containers/{}/stop?t={}", handle.id, timeout_ns.div_ceil(1_000_000_000));
        let call = Call::new("stop the container", "POST", path);
        handle
            .engine
            .call(call.with_timeout(timeout_ns.saturating_add(STOP_SLACK_NS)))
            .map(drop)
            .map_err(failed)
    }

    /// Makes the run's network, when the first container needs it.
    fn network(&self, engine: &Engine) -> engine::Result<()> {
        let mut engine_state = lock(&self.engine_state);
        if engine_state.has_network {
            return Ok(());
        }
        let body = json!({
            "Name": self.name_for("net"),
            "Driver": "bridge",
            "CheckDuplicate": true,
            "Labels": self.labels(""),
        });
        let doing = "create the run's network";
        engine.call(Call::new(doing, "POST", "/networks/create").body(&body))?.found(doing)?;
        engine_state.has_network = true;
        Ok(())
    }

    /// `source:target[:ro]` as the engine understands it; a named volume is made for the run.
    fn volume(&self, engine: &Engine, volume: &str) -> engine::Result<String> {
        let Some((source, rest)) = volume.split_once(':').filter(|(s, _)| !s.starts_with('/')) else {
            return Ok(volume.to_owned());
        };
        let name = self.name_for(source);
        let body = json!({ "Name": name, "Labels": self.labels("") });
        let doing = "create a volume";
        // An existing volume is used as it is.
        engine.call(Call::new(doing, "POST", "/volumes/create").body(&body))?.found(doing)?;
        Ok(format!("{name}:{rest}"))
    }

    fn labels(&self, component: &str) -> Value {
        let mut labels = json!({ RUN_LABEL: self.run_label() });
        if !component.is_empty() {
            labels["loadlab.component"] = component.into();
        }
        labels
    }

    /// The request body that creates the container.
    fn container_body(
        &self,
        spec: &ComponentSpec,
        container: &ContainerSpec,
        engine: &Engine,
    ) -> engine::Result<Value> {
        let network = match &container.network {
            Network::Run => self.name_for("net"),
            Network::Host => "host".to_owned(),
            Network::None => "none".to_owned(),
            Network::Named(name) => name.clone(),
        };
        let mut binds = Vec::new();
        for volume in &container.volumes {
            binds.push(self.volume(engine, volume)?);
        }
        let mut host = json!({ "NetworkMode": network, "Binds": binds });
        limits_into(&mut host, &spec.limits);
        for (key, rates) in block_rates(&spec.limits.block) {
            let rates: Vec<Value> =
                rates.into_iter().map(|(disk, rate)| json!({ "Path": disk, "Rate": rate })).collect();
            host[format!("BlkioDevice{key}")] = rates.into();
        }
        if !spec.cpus.is_empty() {
            let cpus: Vec<String> = spec.cpus.iter().map(usize::to_string).collect();
            host["CpusetCpus"] = cpus.join(",").into();
        }
        if engine.is_podman() {
            keep_our_limits(&mut host);
        } else {
            // The driver bounds the log: container output must not fill the disk behind our back.
            host["LogConfig"] = json!({ "Type": "local" });
        }
        let (mut exposed, mut bindings) = (json!({}), json!({}));
        for (outside, inside) in &container.published {
            let port = format!("{inside}/tcp");
            exposed[&port] = json!({});
            bindings[&port] = json!([{ "HostIp": "127.0.0.1", "HostPort": outside.to_string() }]);
        }
        host["PortBindings"] = bindings;
        let env: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut body = json!({
            "Image": container.image,
            "Env": env,
            "Labels": self.labels(&spec.name),
            "StopSignal": spec.stop.signal.number().to_string(),
            "ExposedPorts": exposed,
            "HostConfig": host,
        });
        if matches!(container.network, Network::Run) {
            body["Hostname"] = spec.name.clone().into();
            body["NetworkingConfig"] =
                json!({ "EndpointsConfig": { network: { "Aliases": container.aliases } } });
        }
        for (key, words) in [("Entrypoint", &container.entrypoint), ("Cmd", &container.command)] {
            if !words.is_empty() {
                body[key] = json!(words);
            }
        }
        if let Some(user) = &container.user {
            body["User"] = user.clone().into();
        }
        if let Some(health) = &container.health {
            body["Healthcheck"] = health_json(health);
        }
        Ok(body)
    }
}

fn health_json(health: &HealthCheck) -> Value {
    let kind = if health.is_shell { "CMD-SHELL" } else { "CMD" };
    let test: Vec<&str> = std::iter::once(kind).chain(health.command.iter().map(String::as_str)).collect();
    json!({
        "Test": test,
        "Interval": health.every_ns,
        "Timeout": health.timeout_ns,
        "Retries": health.retries,
    })
}

/// States of a container that has not had a process yet, as Docker and Podman name them.
const NEVER_STARTED: [&str; 3] = ["created", "configured", "initialized"];

/// Why a container has no process: it has ended, never started, or lives where we cannot see it.
fn gone(
    spec: &ComponentSpec,
    engine: &Engine,
    id: &str,
    pid: u32,
    follower: &mut Follower,
    logs: &[Log],
) -> Error {
    let look = || {
        let call = Call::new("inspect the container", "GET", format!("/containers/{id}/json"));
        engine.call(call).map(|a| a.body["State"].clone()).unwrap_or_default()
    };
    let runs = |state: &Value| state["Running"].as_bool() == Some(true);
    let mut state = look();
    // An engine learns of an end slightly later than the kernel.
    let until_ns = clock::now_ns() + LEARNS_NS;
    while runs(&state) && clock::now_ns() < until_ns {
        Cancel::new().wait_until(clock::now_ns() + POLL_INTERVAL_NS);
        state = look();
    }
    if runs(&state) {
        let source = EngineError::Elsewhere {
            host: format!(
                "{} (process {pid} of a container is not on this machine)",
                engine.socket().display()
            ),
        };
        return Error::of_container(&spec.name, source);
    }
    follower.finish();
    // Podman's Compose continues if one of its containers does not start, and reports success.
    if state["Status"].as_str().is_some_and(|status| NEVER_STARTED.contains(&status)) {
        let why = state["Error"].as_str().filter(|why| !why.is_empty());
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let status = format!("it was created but never started{why}");
        return Error::EndedEarly { component: spec.name.clone(), status, tail: logs::tail(logs) };
    }
    let exit = state["ExitCode"].as_i64().map_or("an unknown status".into(), |n| format!("exit status {n}"));
    let status = match state["OOMKilled"].as_bool() {
        Some(true) => format!("out of memory, {exit}"),
        _ => exit,
    };
    Error::EndedEarly { component: spec.name.clone(), status, tail: logs::tail(logs) }
}
