//! A component that is a container: created with its limits, started, found as a process, stopped, removed.
//!
//! Once it runs it is a component as any other: its first process has a pid on this machine, which the keeper
//! watches and whose cgroups and network namespace the watcher reads. Only what the kernel leaves to the engine
//! goes through the engine: starting, signals, the exit status, health, the end. Everything that is made carries
//! the run's label, so that it is found when loadlab is gone.

mod again;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use loadlab_record::Secrets;
use rustix::process::{Pid, PidfdFlags, Resource, pidfd_open};
use serde_json::{Value, json};

use super::output::Follower;
use super::{CALL_NS, Call, Engine, EngineError, encoded};
use crate::cancel::Cancel;
use crate::cgroup::group::{Group, LimitError, disk_files};
use crate::cgroup::{Controller, Place, Version, place_of, tree};
use crate::clock;
use crate::component::{Component, Inner, Life, Origin, lock};
use crate::error::{Error, Result};
use crate::limits;
use crate::logs::{self, Log};
use crate::ports;
use crate::process::{self, Kin, ProcessId};
use crate::spec::{BlockLimits, ComponentSpec, Limits, Signal};
use crate::state;
use crate::system::{Down, How, System};

/// The label of everything that a run makes.
pub(crate) const RUN_LABEL: &str = "loadlab.run";
/// The period of CPU limits, and the kernel's smallest quota and longest period.
const PERIOD_US: f64 = 100_000.0;
const MIN_QUOTA_US: f64 = 1_000.0;
const MAX_PERIOD_US: f64 = 1_000_000.0;
/// Beyond the time that a container is given to stop.
const STOP_SLACK_NS: u64 = 30_000_000_000;
/// So long an engine may take to tell how a container has ended, for each of two questions.
const TELLS_NS: u64 = 5_000_000_000;
/// So long an engine may take to learn that a container has ended …
const LEARNS_NS: u64 = 2_000_000_000;
/// … and so often it is asked.
const LOOK_NS: u64 = 20_000_000;

/// What a container is made from, beside what any component has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerSpec {
    /// Its image: `nginx:1.22`, or an id.
    pub image: String,
    /// In place of the image's; empty leaves that.
    pub entrypoint: Vec<String>,
    /// In place of the image's; empty leaves that.
    pub command: Vec<String>,
    /// Ports of this machine's loopback, and the container's ports behind them.
    pub published: Vec<(u16, u16)>,
    /// `/folder:/in/container`, `name:/in/container`, either with `:ro`. Named ones are made for the run, and
    /// removed with it.
    pub volumes: Vec<String>,
    /// What it is connected to.
    pub network: Network,
    /// Names it has on the run's network.
    pub aliases: Vec<String>,
    /// How the engine tells whether it is well; `None` leaves what the image says.
    pub health: Option<HealthCheck>,
    /// The user its processes run as.
    pub user: Option<String>,
}

/// What a container is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// A bridge that is made for the run: its containers reach each other by name.
    #[default]
    Run,
    /// This machine's own network.
    Host,
    /// Nothing.
    None,
    /// A network that is there already.
    Named(String),
}

/// A command that the engine runs in the container again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// For the container's shell, or a list of words.
    pub command: Vec<String>,
    /// It is one line for the container's shell.
    pub is_shell: bool,
    /// From one to the next.
    pub every_ns: u64,
    /// One that takes longer has failed.
    pub timeout_ns: u64,
    /// So many failures make it unhealthy.
    pub retries: u32,
}

/// What only the engine knows of a running container.
#[derive(Debug)]
pub(crate) struct Held {
    pub engine: Engine,
    pub id: String,
    pub address: Option<IpAddr>,
    follower: Mutex<Option<Follower>>,
    /// What no message about it may quote.
    secrets: Secrets,
}

/// How a container is, by its own check.
pub(crate) enum Health {
    /// It has no check.
    Unchecked,
    Well,
    /// Not yet, or no more: in words.
    Not(String),
}

impl Held {
    /// Asks for it by its id; `None` when it is not there any more, or the engine does not answer.
    fn inspect(&self, within_ns: u64) -> Option<Value> {
        let call = Call::new("look at a container", "GET", format!("/containers/{}/json", self.id));
        self.engine.call(call.within(within_ns)).ok().filter(|a| a.status == 200).map(|a| a.body)
    }

    /// Exit status, and whether the kernel killed it for memory. Its first process has ended. An engine that does not
    /// answer is given up after ten seconds, so this is not for a thread that others wait for.
    pub fn ended(&self) -> (Option<i32>, bool) {
        // The engine hears of the end a moment after the kernel tells us.
        let wait = Call::new("wait for a container", "POST", format!("/containers/{}/wait", self.id));
        let waited = self.engine.call(wait.within(TELLS_NS)).ok();
        let status = waited.and_then(|a| a.body["StatusCode"].as_i64());
        let state = self.inspect(TELLS_NS).map(|found| found["State"].clone()).unwrap_or_default();
        let status = status.or(state["ExitCode"].as_i64()).and_then(|n| i32::try_from(n).ok());
        (status, state["OOMKilled"].as_bool().unwrap_or(false))
    }

    pub fn signal(&self, signal: Signal) -> bool {
        let path = format!("/containers/{}/kill?signal={}", self.id, signal.number());
        self.engine.call(Call::new("signal a container", "POST", path)).is_ok_and(|a| a.status < 400)
    }

    pub fn health(&self) -> Health {
        let Some(found) = self.inspect(CALL_NS) else {
            return Health::Not("it is not there any more".into());
        };
        let health = &found["State"]["Health"];
        match health["Status"].as_str() {
            // The engine begins with its checks a moment after the container.
            None | Some("" | "none") if has_check(&found["Config"]["Healthcheck"]) => {
                Health::Not("its check has not run yet".into())
            }
            None | Some("" | "none") => Health::Unchecked,
            Some("healthy") => Health::Well,
            Some(status) => {
                let last = health["Log"].as_array().and_then(|log| log.last());
                let said = last.and_then(|l| l["Output"].as_str()).unwrap_or_default().trim();
                let said = self.secrets.mask(said);
                let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
                let exit = last.and_then(|l| l["ExitCode"].as_i64());
                Health::Not(match exit {
                    Some(exit) => format!("`{status}`; its check ended with status {exit}: {said}"),
                    None => format!("`{status}`; its check has not run yet"),
                })
            }
        }
    }

    pub fn finish_logs(&self) {
        if let Some(mut follower) = lock(&self.follower).take() {
            follower.finish();
        }
    }

    fn remove(&self) -> super::Result<()> {
        remove(&self.engine, &self.id)
    }
}

fn remove(engine: &Engine, id: &str) -> super::Result<()> {
    let path = format!("/containers/{id}?force=1&v=1");
    engine.call(Call::new("remove a container", "DELETE", path)).map(drop)
}

impl System {
    /// Starts a container under its limits. As with [`System::up`] it is not ready then.
    ///
    /// # Errors
    /// No engine, no image, a refusal of the engine; a limit that is not what was asked for; a container that ends
    /// at once, with its last lines.
    pub fn up_container(&self, spec: &ComponentSpec, container: &ContainerSpec) -> Result<Component> {
        if let Some(same) = self.components().into_iter().find(|c| c.name() == spec.name) {
            return Err(Error::AlreadyUp { component: spec.name.clone(), pid: same.process().pid });
        }
        let told = |source: EngineError| Error::of_container(&spec.name, source);
        ports::check_free(&spec.name, &spec.ports)?;
        let engine = self.engine().map_err(told)?;
        self.remember_engine(&engine)?;
        let (socket, what) = (engine.socket().to_owned(), spec.name.clone());
        let asked = state::Resource::Asked { socket, label: self.engine_label(), what };
        let create = || self.create_container(spec, container, &engine);
        let is_answered = |error: &EngineError| !matches!(error, EngineError::Http { .. });
        let id = self.asking(asked, create, is_answered)?.map_err(told)?;
        let started = self.start_container(spec, &engine, &id, None);
        if started.is_err() {
            // The error at hand is the one to tell; the label finds what is left.
            let _ = remove(&engine, &id);
        }
        started
    }

    /// Makes a container with its network and volumes, and returns its id.
    fn create_container(
        &self,
        spec: &ComponentSpec,
        container: &ContainerSpec,
        engine: &Engine,
    ) -> super::Result<String> {
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
        let told = |source: EngineError| Error::of_container(&spec.name, source);
        let started_ns = clock::now_ns();
        let doing = "start the container";
        let call = Call::new(doing, "POST", format!("/containers/{id}/start")).within(120_000_000_000);
        engine.call(call).and_then(|a| a.found(doing)).map_err(told)?;
        self.adopt(spec, engine, id, (started_ns, logs_since_ns))
    }

    /// Takes a container that runs for a component: watched, kept, its logs copied.
    pub(crate) fn adopt(
        &self,
        spec: &ComponentSpec,
        engine: &Engine,
        id: &str,
        (started_ns, logs_since_ns): (u64, Option<u128>),
    ) -> Result<Component> {
        let told = |source: EngineError| Error::of_container(&spec.name, source);
        let doing = "look at the container";
        let call = Call::new(doing, "GET", format!("/containers/{id}/json"));
        let found = engine.call(call).and_then(|a| a.found(doing)).map_err(told)?;
        let open = |path: &Path| Log::open(path).map(|log| log.masking(&self.secrets));
        let logs = vec![open(&spec.logs.0)?, open(&spec.logs.1)?];
        let pid = found["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let stat = process::stat(pid).filter(|_| pid != 0);
        let first = stat.map(|s| ProcessId { pid, start_ticks: s.start_ticks });
        let lives = move || first.is_some_and(|first| first.is_alive());
        let mut follower = Follower::start(engine, id, &logs, (logs_since_ns, lives)).map_err(told)?;
        let pidfd = Pid::from_raw(pid as i32).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
        let (Some(stat), Some(pidfd)) = (stat, pidfd) else {
            return Err(gone(spec, engine, id, pid, (&mut follower, &logs)));
        };
        let group = Group { places: own_places(places_of(pid), id) };
        let (held_engine, id) = (engine.clone(), id.to_owned());
        let address = address_in(&found);
        let follower = Mutex::new(Some(follower));
        let secrets = self.secrets.clone();
        let held = Held { engine: held_engine, id, address, follower, secrets };
        let leader = ProcessId { pid, start_ticks: stat.start_ticks };
        let inner = Arc::new(Inner {
            spec: spec.clone(),
            id: leader,
            pidfd,
            kin: Kin { leader, mark: format!("LOADLAB_CONTAINER={}", held.id) },
            group,
            logs,
            started_ns,
            unavailable: Vec::new(),
            is_command: false,
            was_ready: Default::default(),
            is_asked: Default::default(),
            leaving: Default::default(),
            life: Mutex::new(Life { limits: spec.limits, ..Life::default() }),
            ended: Default::default(),
            origin: Origin::Container(Box::new(held)),
        });
        self.keep(inner.clone());
        let checked = check_limits(spec, &inner.group).and_then(|()| limits::check_cpus(&inner));
        if let Err(error) = checked {
            // The limit is what is wrong here.
            let _ = self.take_down(&inner, Some(0));
            return Err(error);
        }
        Ok(Component { inner })
    }

    /// Stops and removes a container: the engine sends its stop signal, and kills it after its time.
    pub(crate) fn take_down_container(
        &self,
        inner: &Arc<Inner>,
        held: &Held,
        within_ns: Option<u64>,
    ) -> Result<Down> {
        inner.leaving.store(true, Ordering::SeqCst);
        let begun_ns = clock::now_ns();
        let told = |source: EngineError| Error::of_container(&inner.spec.name, source);
        let within_ns = within_ns.unwrap_or(inner.spec.stop.within_ns);
        let mut how = How::Exited;
        if within_ns > 0 {
            self.stop_container(inner, held, within_ns)?;
            if clock::now_ns() - begun_ns >= within_ns {
                how = How::Killed;
            }
        } else if lock(&inner.life).ended.is_none() {
            how = How::Killed;
        }
        let removed = held.remove();
        if removed.is_ok() {
            inner.wait_reaped();
        }
        held.finish_logs();
        self.let_go(inner);
        removed.map_err(told)?;
        Ok(Down { how, left_over: 0, escaped: 0, took_s: (clock::now_ns() - begun_ns) as f64 / 1e9 })
    }

    /// It is asked to end, and killed after its time.
    fn stop_container(&self, inner: &Inner, held: &Held, within_ns: u64) -> Result<()> {
        let told = |source: EngineError| Error::of_container(&inner.spec.name, source);
        let path = format!("/containers/{}/stop?t={}", held.id, within_ns.div_ceil(1_000_000_000));
        let call = Call::new("stop the container", "POST", path);
        held.engine.call(call.within(within_ns.saturating_add(STOP_SLACK_NS))).map(drop).map_err(told)
    }

    /// The run's network, made when the first container wants it.
    fn network(&self, engine: &Engine) -> super::Result<()> {
        let mut boxes = lock(&self.boxes);
        if boxes.has_network {
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
        boxes.has_network = true;
        Ok(())
    }

    /// `source:target[:ro]` as the engine understands it; a volume by name is made for the run.
    fn volume(&self, engine: &Engine, volume: &str) -> super::Result<String> {
        let Some((source, rest)) = volume.split_once(':').filter(|(s, _)| !s.starts_with('/')) else {
            return Ok(volume.to_owned());
        };
        let name = self.name_for(source);
        let body = json!({ "Name": name, "Labels": self.labels("") });
        let doing = "create a volume";
        // One that is there already is taken as it is.
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

    /// What is sent to create the container.
    fn container_body(
        &self,
        spec: &ComponentSpec,
        container: &ContainerSpec,
        engine: &Engine,
    ) -> super::Result<Value> {
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
            // Bounded by itself: what a container writes must not fill the disk behind our back.
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

/// The image or the plan says how to tell whether it is well.
fn has_check(check: &Value) -> bool {
    let test = check["Test"].as_array().map_or(&[][..], Vec::as_slice);
    test.first().is_some_and(|first| first.as_str() != Some("NONE"))
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

/// Limits as the engine writes them into the container's groups.
pub(crate) fn limits_into(host: &mut Value, limits: &Limits) {
    if let Some(cores) = limits.cpu_cores {
        let (quota_us, period_us) = quota(cores);
        host["CpuQuota"] = quota_us.into();
        host["CpuPeriod"] = period_us.into();
    }
    if let Some(bytes) = limits.memory_bytes {
        host["Memory"] = bytes.into();
        // Both together: no swap is to make up for it, unless it is asked for.
        host["MemorySwap"] = limits.memory_swap_bytes.unwrap_or(bytes).into();
    }
    if let Some(pids) = limits.pids {
        host["PidsLimit"] = pids.into();
    }
    if let Some(files) = limits.open_files {
        host["Ulimits"] = json!([{ "Name": "nofile", "Soft": files, "Hard": files }]);
    }
}

/// Limits on block I/O as engines name them – `ReadBps`, `WriteBps`, `ReadIOps`, `WriteIOps` – with every disk's rate.
pub(crate) fn block_rates(limits: &BlockLimits) -> Vec<(&'static str, Vec<(String, u64)>)> {
    let values = [
        ("ReadBps", limits.read_bytes_per_s),
        ("WriteBps", limits.write_bytes_per_s),
        ("ReadIOps", limits.read_ops_per_s),
        ("WriteIOps", limits.write_ops_per_s),
    ];
    let of_all = |rate: u64| disk_files().into_iter().map(|disk| (disk, rate)).collect();
    values.into_iter().filter_map(|(key, rate)| Some((key, of_all(rate?)))).collect()
}

/// Podman raises limits of processes and open files as far as there are, and fails where it may not: those that
/// are not given stay as they are here. Of processes it has no more itself than the machine has pids.
fn keep_our_limits(host: &mut Value) {
    let mut limits = host["Ulimits"].as_array().cloned().unwrap_or_default();
    for (name, resource) in [("nofile", Resource::Nofile), ("nproc", Resource::Nproc)] {
        let pids = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
        let pids = pids.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
        let most = rustix::process::getrlimit(resource).maximum.map(|most| most.min(pids));
        if let Some(most) = most.filter(|_| !limits.iter().any(|l| l["Name"] == name)) {
            limits.push(json!({ "Name": name, "Soft": most, "Hard": most }));
        }
    }
    host["Ulimits"] = limits.into();
}

/// Quota and period, in microseconds, for so many cores; the period is stretched where the quota would be too small.
fn quota(cores: f64) -> (u64, u64) {
    let period_us = if cores * PERIOD_US < MIN_QUOTA_US { MAX_PERIOD_US } else { PERIOD_US };
    ((cores * period_us).round() as u64, period_us as u64)
}

/// The groups of a process that are not loadlab's own.
pub(crate) fn places_of(pid: u32) -> Vec<Place> {
    let root = Path::new("/");
    let own = tree::groups_of(root, std::process::id());
    tree::groups_of(root, pid).into_iter().filter(|p| !own.iter().any(|o| o.dir == p.dir)).collect()
}

/// Those of a container's groups that are its own: an engine names them after the container. Without root, and without a
/// delegated cgroup, Podman leaves its containers in the group that it is in itself, with whatever else the user runs:
/// that must neither be limited nor paused.
fn own_places(places: Vec<Place>, id: &str) -> Vec<Place> {
    let is_own = |dir: &Path| dir.iter().any(|part| part.to_string_lossy().contains(id));
    places.into_iter().filter(|place| !id.is_empty() && is_own(&place.dir)).collect()
}

/// Limits as the kernel has them: one that did not take is an error and not a surprise.
fn check_limits(spec: &ComponentSpec, group: &Group) -> Result<()> {
    let places = &group.places;
    let read = |controller: Controller, v1: &str, v2: &str| {
        let place = place_of(places, controller)?;
        let file = place.dir.join(if place.version == Version::V1 { v1 } else { v2 });
        std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
    };
    let off = |limit: &str, wanted: String, has: String| Error::Limit {
        component: spec.name.clone(),
        limit: format!("{limit} to {wanted}"),
        why: format!("its cgroup has {has}"),
        hint:
            "the engine took the limit and did not apply it: see its log, and whether its cgroup driver works"
                .into(),
    };
    for (controller, wanted) in [
        (Controller::Memory, spec.limits.memory_bytes.is_some()),
        (Controller::Pids, spec.limits.pids.is_some()),
        (Controller::Cpu, spec.limits.cpu_cores.is_some()),
    ] {
        if wanted {
            let limit = format!("its `{}`", controller.v1_name());
            group.place(controller, &limit).map_err(|LimitError { limit, hint, .. }| Error::Limit {
                component: spec.name.clone(),
                limit,
                why: "the engine has made it no cgroup of its own with that".into(),
                hint,
            })?;
        }
    }
    let page = rustix::param::page_size() as u64;
    if let Some(wanted) = spec.limits.memory_bytes
        && let Some(has) = read(Controller::Memory, "memory.limit_in_bytes", "memory.max")
        && has.parse::<u64>().ok() != Some(wanted / page * page)
    {
        return Err(off("memory", wanted.to_string(), has));
    }
    if let Some(wanted) = spec.limits.pids
        && let Some(has) = read(Controller::Pids, "pids.max", "pids.max")
        && has != wanted.to_string()
    {
        return Err(off("pids", wanted.to_string(), has));
    }
    if let Some(cores) = spec.limits.cpu_cores
        && let Some(has) = read(Controller::Cpu, "cpu.cfs_quota_us", "cpu.max")
    {
        let quota_us = has.split(' ').next().and_then(|q| q.parse::<f64>().ok());
        let period_us = match has.split_once(' ') {
            Some((_, period)) => period.parse::<f64>().ok(),
            None => read(Controller::Cpu, "cpu.cfs_period_us", "cpu.max").and_then(|p| p.parse().ok()),
        };
        let share = quota_us.zip(period_us).map(|(quota, period)| quota / period);
        if share.is_none_or(|share| (share / cores - 1.0).abs() > 0.01) {
            return Err(off("cpu", format!("{cores} cores"), has));
        }
    }
    let has = group.in_force();
    let block = &spec.limits.block;
    for (what, wanted, has) in [
        ("bytes read per second", block.read_bytes_per_s, has.block_read_bytes_per_s),
        ("bytes written per second", block.write_bytes_per_s, has.block_write_bytes_per_s),
        ("reads per second", block.read_ops_per_s, has.block_read_ops_per_s),
        ("writes per second", block.write_ops_per_s, has.block_write_ops_per_s),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| has != Some(*wanted)) {
            return Err(off(what, wanted.to_string(), has.map_or("none".to_owned(), |has| has.to_string())));
        }
    }
    Ok(())
}

/// Where the container can be reached from this machine.
fn address_in(found: &Value) -> Option<IpAddr> {
    if found["HostConfig"]["NetworkMode"].as_str() == Some("host") {
        return Some(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let networks = found["NetworkSettings"]["Networks"].as_object()?;
    networks.values().find_map(|n| n["IPAddress"].as_str()?.parse().ok())
}

/// States of a container before its first process, as Docker and Podman call them.
const NEVER_STARTED: [&str; 3] = ["created", "configured", "initialized"];

/// Why there is no process: it has ended, never began, or lives where we cannot see it.
fn gone(
    spec: &ComponentSpec,
    engine: &Engine,
    id: &str,
    pid: u32,
    (follower, logs): (&mut Follower, &[Log]),
) -> Error {
    let look = || {
        let call = Call::new("look at the container", "GET", format!("/containers/{id}/json"));
        engine.call(call).map(|a| a.body["State"].clone()).unwrap_or_default()
    };
    let runs = |state: &Value| state["Running"].as_bool() == Some(true);
    let mut state = look();
    // An engine learns of an end a little later than the kernel has it.
    let until_ns = clock::now_ns() + LEARNS_NS;
    while runs(&state) && clock::now_ns() < until_ns {
        Cancel::new().wait_until(clock::now_ns() + LOOK_NS);
        state = look();
    }
    if runs(&state) {
        let source = EngineError::Elsewhere {
            host: format!("{} (process {pid} of a container is not here)", engine.socket().display()),
        };
        return Error::of_container(&spec.name, source);
    }
    follower.finish();
    // Podman's Compose goes on where a container of it does not start, and says that all went well.
    if state["Status"].as_str().is_some_and(|status| NEVER_STARTED.contains(&status)) {
        let why = state["Error"].as_str().filter(|why| !why.is_empty());
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let status = format!("it was made and never started{why}");
        return Error::EndedEarly { component: spec.name.clone(), status, tail: logs::tail(logs) };
    }
    let exit = state["ExitCode"].as_i64().map_or("an unknown status".into(), |n| format!("exit status {n}"));
    let status = match state["OOMKilled"].as_bool() {
        Some(true) => format!("out of memory, {exit}"),
        _ => exit,
    };
    Error::EndedEarly { component: spec.name.clone(), status, tail: logs::tail(logs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_the_engine_has_them() {
        let mut host = json!({});
        let limits = Limits {
            cpu_cores: Some(0.01),
            memory_bytes: Some(15 << 20),
            pids: Some(9),
            open_files: Some(100),
            ..Limits::default()
        };
        limits_into(&mut host, &limits);
        insta::assert_snapshot!(host, @r#"{"CpuQuota":1000,"CpuPeriod":100000,"Memory":15728640,"MemorySwap":15728640,"PidsLimit":9,"Ulimits":[{"Name":"nofile","Soft":100,"Hard":100}]}"#);
        assert_eq!((quota(0.002), quota(2.5)), ((2000, 1_000_000), (250_000, 100_000)));
    }

    #[test]
    fn a_group_that_others_are_in_is_not_the_containers() {
        let id = "4f1c0b6d9a7e";
        let place = |dir: &str| Place { version: Version::V2, controllers: Vec::new(), dir: dir.into() };
        for (dir, expect) in [
            ("/sys/fs/cgroup/memory/docker/4f1c0b6d9a7e", true),
            ("/sys/fs/cgroup/system.slice/docker-4f1c0b6d9a7e.scope", true),
            ("/sys/fs/cgroup/machine.slice/libpod-4f1c0b6d9a7e.scope/container", true),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/podman.service", false),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", false),
            ("/sys/fs/cgroup/memory/docker/another", false),
            ("/sys/fs/cgroup", false),
        ] {
            assert_eq!(own_places(vec![place(dir)], id).len(), usize::from(expect), "{dir}");
        }
        // A limit that nothing enforces is an error and not a surprise.
        let dir = Path::new("/");
        let mut spec = ComponentSpec::new("web", "true", dir, dir);
        assert!(check_limits(&spec, &Group::default()).is_ok());
        spec.limits.memory_bytes = Some(16 << 20);
        let told = check_limits(&spec, &Group::default()).unwrap_err().to_string();
        assert!(told.contains("no cgroup of its own"), "{told}");
    }

    #[test]
    fn an_address_is_of_the_network_it_is_on() {
        let on = |networks: Value| {
            address_in(
                &json!({ "HostConfig": { "NetworkMode": "x" }, "NetworkSettings": { "Networks": networks } }),
            )
        };
        assert_eq!(on(json!({ "x": { "IPAddress": "172.18.0.2" } })), "172.18.0.2".parse().ok());
        assert_eq!(on(json!({ "none": { "IPAddress": "" } })), None);
        let host = json!({ "HostConfig": { "NetworkMode": "host" } });
        assert_eq!(address_in(&host), "127.0.0.1".parse().ok());
    }
}
