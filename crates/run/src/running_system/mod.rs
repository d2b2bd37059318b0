//! The system of a case: which components should be up, which are, where, and for how long.

mod compose;
pub mod containers;
pub mod durability;
pub mod error;
pub mod externals;
mod function_lists;
mod jvm;
mod ports;
pub mod probes;
mod take_down;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use loadlab_plan::{self as plan, Case, ComponentKind, Lifetime};
use loadlab_record::documents::event::EventKind;
use loadlab_system::{
    Cancel, CommandSpec, Component, Limits, LogFiles, Notice, Probe, Project, Ready, RelayAt, System, Target,
    clock,
};

use crate::event::RunEvent;
use crate::limits;
use crate::running_system::durability::Persisted;
use crate::running_system::error::BringUpError;
use crate::running_system::externals::Externals;
use crate::running_system::function_lists::FunctionLists;
use crate::running_system::ports::Ports;
use crate::running_system::probes::ProbeContext;
use crate::state::{EventSink, TrialState};
use crate::translate::component;

/// The system under test over the whole run. Components live for a trial, a case or the whole experiment.
pub struct RunningSystem {
    pub(crate) system: System,
    /// Notices from the system, for the code that runs a load.
    pub notices: Mutex<Receiver<Notice>>,
    pub(crate) run_dir: PathBuf,
    pub(crate) up: Vec<StartedComponent>,
    ports: Ports,
    /// The seed commands run for the longest-lived components that are up, with their folder.
    pub(crate) seeded: Option<(String, Vec<plan::Command>)>,
    /// A seed command has failed, so part of the data may be there.
    is_half_seeded: bool,
    /// Any component that is started may be profiled later.
    pub(crate) is_all_profiled: bool,
    /// Lists of functions for a profile.
    pub(crate) function_lists: FunctionLists,
    /// The Compose file's project, if it is up.
    project: Option<StartedProject>,
    /// Components stay up from level to level of a search, or from load to load of `why`, whatever their lifetime. Only a
    /// Compose project keeps its own.
    pub(crate) is_searching: bool,
    /// The Compose file whose images were built last, and the values for them: all cases' images share their names.
    compose_built: Option<(String, BuildValues)>,
    /// Components that already run.
    pub externals: Externals,
}

/// A component that was started and has not been taken down.
pub(crate) struct StartedComponent {
    pub component: Component,
    pub lifetime: Lifetime,
    /// The case it was started for.
    pub case: usize,
    pub is_ready: bool,
    /// Its service in the Compose file, whose services come and go as a whole.
    pub service: Option<String>,
    /// When a container counts as up; a process has this in its spec already.
    pub ready: Option<Ready>,
    /// Names of other components' ports that it was started with.
    pub names_passed: Vec<String>,
    /// Where its output goes: a folder of the trial it was started in, relative to the record.
    pub logs: String,
}

/// A Compose project that was brought up and has not been taken down. It may have no services that are up: all of them
/// may have finished their work, or an event may have ended them.
struct StartedProject {
    project: Project,
    lifetime: Lifetime,
    /// The case it was started for.
    case: usize,
}

/// Values for `${…}` in a Compose file while its images are built.
pub(crate) type BuildValues = Vec<(String, String)>;

/// What was built, as events with their times, to go into the first trial's record.
pub type Builds = Vec<(u64, EventKind)>;

/// Components changed by events, by name: the new process after a restart, `None` for one that was ended.
pub type Changed = BTreeMap<String, Option<Component>>;

impl RunningSystem {
    /// A system with nothing up.
    pub fn new(system: System, notices: Receiver<Notice>, run_dir: &Path) -> Self {
        RunningSystem {
            system,
            notices: Mutex::new(notices),
            run_dir: run_dir.to_owned(),
            up: Vec::new(),
            ports: Ports::default(),
            seeded: None,
            is_half_seeded: false,
            is_all_profiled: false,
            function_lists: FunctionLists::default(),
            project: None,
            is_searching: false,
            compose_built: None,
            externals: Externals::default(),
        }
    }

    /// From here on, components and commands run in the run's own network.
    pub fn isolate(&mut self, net: loadlab_system::Net) {
        self.system.isolate(net);
    }

    /// What the host cannot provide.
    pub fn unavailable(&self) -> &[loadlab_system::Unavailable] {
        self.system.unavailable()
    }

    /// `v1`, `v2`, `hybrid` or `none`.
    pub fn cgroup_version(&self) -> &'static str {
        self.system.cgroup_version()
    }

    /// The value of a template name; `own` is the component that the template belongs to, if any.
    pub fn name(&self, name: &str, own: Option<&str>) -> Option<String> {
        if name == "run.dir" {
            return Some(self.run_dir.display().to_string());
        }
        let full = match own {
            Some(own) if name == "port" || name.starts_with("port.") => format!("components.{own}.{name}"),
            _ => name.to_owned(),
        };
        if name == "address" {
            return self.address(own?);
        }
        // Other components go through the relay in front of the port, if there is one. A relay on a link leaves all
        // ports unchanged.
        let component = full.strip_prefix("components.").and_then(|rest| rest.split('.').next());
        let on_link = component.is_some_and(|component| self.system.own_address(component).is_some());
        let port = match name == full && !on_link {
            true => self.ports.outside(&full),
            false => self.ports.get(&full),
        };
        let port = port.map(|port| port.to_string());
        port.or_else(|| self.address(full.strip_prefix("components.")?.strip_suffix(".address")?))
    }

    /// The address at which a component is reached; `None` for a container that is not up yet.
    fn address(&self, component: &str) -> Option<String> {
        if let Some(own) = self.system.own_address(component).filter(|_| self.externals.is_here(component)) {
            return Some(own.to_string());
        }
        let up = self.up.iter().find(|u| u.component.name() == component);
        let own = up.and_then(|u| u.component.address()).or_else(|| self.externals.address(component));
        let own = own.map(|address| address.to_string());
        own.or_else(|| self.externals.is_here(component).then(|| "127.0.0.1".to_owned()))
    }

    /// Addresses that this run has created; they may be loaded.
    pub fn addresses(&self) -> Vec<std::net::IpAddr> {
        let of = |up: &StartedComponent| {
            up.component.address().or_else(|| self.system.own_address(up.component.name()))
        };
        self.up.iter().filter_map(of).collect()
    }

    /// Runs every build command of every case once, before the first trial.
    ///
    /// # Errors
    /// The first command that failed, with its last lines of output. `builds` lists what ran, including that command.
    pub fn build(
        &mut self,
        cases: &[Case],
        cancel: &Cancel,
        builds: &mut Builds,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let logs = self.run_dir.join("builds");
        let mut done: Vec<(String, String)> = Vec::new();
        let components = cases.iter().flat_map(|case| case.system.components.iter().map(move |c| (case, c)));
        for (case, component) in components {
            for build in &component.build {
                let names = |name: &str| self.name(name, None);
                let command = component::command(build, &format!("build of `{}`", component.name), &names)?;
                let text = command.to_string();
                let key = (component.dir.clone(), text.clone());
                if done.contains(&key) {
                    continue;
                }
                done.push(key);
                let no_folder = |error| BringUpError::Folder { path: logs.clone(), error };
                std::fs::create_dir_all(&logs).map_err(no_folder)?;
                let revision = case.values.iter().find(|(axis, _)| axis == plan::REVISION_AXIS);
                let at = revision.map_or(String::new(), |(_, revision)| format!(" at {revision}"));
                let what = format!("build of {}{at}", component.group);
                emit(RunEvent::Building { what: what.clone(), command: text.clone() });
                let spec = CommandSpec {
                    name: what.clone(),
                    command,
                    dir: PathBuf::from(&component.dir),
                    env: Vec::new(),
                    timeout_ns: None,
                    log: logs.join(format!("{}-{}.log", component.group, done.len())),
                };
                let result = self.system.run_command(&spec, cancel)?;
                let (exit, took_s) = (result.status.exit, result.took_s);
                builds.push((
                    clock::now_ns(),
                    EventKind::Command { name: what.clone(), command: text, exit, took_s },
                ));
                result.checked()?;
                emit(RunEvent::Built { what, took_s });
            }
        }
        self.build_images(cases, cancel, builds, emit)
    }

    /// Brings up the components of a case that are not up, in the plan's order, each ready before the next is started.
    /// Replicas of a component do not depend on each other and start together.
    ///
    /// # Errors
    /// Which component did not come up, and why. Components that are up stay up; see [`RunningSystem::end_trial`].
    pub fn bring_up(
        &mut self,
        index: usize,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        self.remove_dead(index, state, emit);
        // What is seeded with a Compose file depends on whether that goes on.
        self.keep_or_take_down(case, state, emit)?;
        self.restart_seeded(case, state, emit)?;
        self.system.use_engine(case.system.engine.as_deref());
        self.externals.begin(case);
        self.find_ports(case)?;
        self.find_containers(case, state)?;
        self.bring_up_compose(index, case, state, emit)?;
        let longest = longest_lifetime(case);
        let mut started: Vec<&plan::ComponentSpec> = Vec::new();
        for planned in &case.system.components {
            if started.last().is_some_and(|last| last.group != planned.group) {
                self.wait_for(std::mem::take(&mut started), state, emit)?;
            }
            match &planned.kind {
                ComponentKind::Service(_) => continue,
                ComponentKind::External(external) => {
                    self.find_external(planned, external, case, state)?;
                    continue;
                }
                ComponentKind::Process(_) | ComponentKind::Container(_) => {}
            }
            if let Some(up) = self.up.iter().find(|u| u.component.name() == planned.name) {
                state.abort_on_death(up.component.process());
                if let Some(relay) = self.system.relay_of(&planned.name) {
                    state.abort_on_death(relay.process());
                }
                self.change_limits(&up.component, &limits::of_plan(&planned.limits), state)?;
                let text = format!(
                    "{} is still up from an earlier trial; its logs are in {}",
                    planned.name, up.logs
                );
                state.record_note(text);
                continue;
            }
            if Some(lifetime(planned.lifetime)) == longest {
                self.seeded = None;
            }
            let of_case = case.profile.as_ref().is_some_and(|profile| profile.covers(&planned.name));
            let is_profiled = of_case || self.is_all_profiled;
            self.start(index, planned, is_profiled, state)?;
            started.push(planned);
        }
        self.wait_for(started, state, emit)
    }

    /// Waits until each of these components is ready.
    fn wait_for(
        &mut self,
        started: Vec<&plan::ComponentSpec>,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        for planned in started {
            let name = &planned.name;
            let Some(at) = self.up.iter().position(|u| u.component.name() == name) else { continue };
            let component = self.up[at].component.clone();
            let after_s = match planned.kind {
                // Its address is known only now.
                ComponentKind::Container(_) => {
                    let ready = containers::ready(planned, &|n| self.name(n, Some(name)))?;
                    self.up[at].ready = Some(ready.clone());
                    self.system.ready_when(&component, &ready, &state.cancel)?
                }
                _ => self.system.ready(&component, &state.cancel)?,
            };
            self.up[at].is_ready = true;
            state.record_event(EventKind::Ready { component: name.clone(), after_s });
            emit(RunEvent::Ready { component: name.clone(), after_s });
        }
        Ok(())
    }

    /// Removes components that died since the last trial's load, so that they are started again, and components kept
    /// for another case: planned trials may have become unnecessary. A death reported by the last trial is not reported
    /// again.
    fn remove_dead(&mut self, case: usize, state: &TrialState, emit: EventSink<'_>) {
        let mut unreported = Vec::new();
        if let Ok(notices) = self.notices.lock() {
            unreported.extend(notices.try_iter().filter_map(|notice| match notice {
                Notice::Died { component, .. } => Some(component.process()),
                _ => None,
            }));
        }
        for up in self.up.iter().filter(|u| u.is_ready) {
            let Some(ended) = up.component.ended() else { continue };
            let (component, status) = (up.component.name().to_owned(), ended.status.to_string());
            if unreported.contains(&up.component.process()) {
                emit(RunEvent::Died { component: component.clone(), status: status.clone() });
                state.record_event_at(ended.at_ns, EventKind::Died { component, status });
            } else {
                let text = format!("{component} is restarted: it died after the last trial: {status}");
                state.record_and_show(text, emit);
            }
        }
        let cut_off = self.cut_off();
        for component in &cut_off {
            state.record_and_show(format!("{component} is restarted: its relay died"), emit);
        }
        let lives_on = |lifetime: Lifetime, of_case: usize| lifetime != Lifetime::Case || of_case == case;
        let stays = |up: &StartedComponent| {
            let is_well = up.component.ended().is_none() && !cut_off.contains(up.component.name());
            is_well && lives_on(up.lifetime, up.case)
        };
        let project_stays = self.project.as_ref().is_none_or(|own| lives_on(own.lifetime, own.case));
        self.take_down(state, &stays, project_stays);
    }

    fn start(
        &mut self,
        case: usize,
        planned: &plan::ComponentSpec,
        is_profiled: bool,
        state: &TrialState,
    ) -> Result<(), BringUpError> {
        let name = &planned.name;
        let logs = self.log_files(name, state);
        let own = |n: &str| self.name(n, Some(name));
        let mut spec = component::component(planned, &own, self.ports.of(planned), logs)?;
        spec.relay = planned.is_relayed.then(|| match self.system.own_address(name) {
            Some(_) => RelayAt::Link,
            None => RelayAt::Ports(self.ports.before(planned)),
        });
        // A container gets its variables from its image.
        let is_listing = is_profiled && matches!(planned.kind, ComponentKind::Process(_));
        if is_listing {
            component::name_functions(&mut spec.env);
        }
        let container = match &planned.kind {
            ComponentKind::Container(container) => Some(containers::container(planned, container, &own)?),
            _ => None,
        };
        if is_listing {
            self.function_lists.ask(name);
        }
        self.ports.release(planned);
        let component = match &container {
            Some(container) => self.system.up_container(&spec, container)?,
            None => self.system.up(&spec)?,
        };
        if let Some(relay) = self.system.relay_of(name) {
            state.record_relay(&relay);
        }
        state.abort_on_death(component.process());
        state.record_event(EventKind::Up { component: name.clone(), pid: Some(component.process().pid) });
        for missing in component.unavailable() {
            let (what, why) = (missing.what.to_string(), missing.why.to_string());
            state.record_event(EventKind::Unavailable { component: name.clone(), what, why });
        }
        state.record_limits(&component);
        // Registered before it is ready: whatever happens next, it is taken down with the rest.
        self.up.push(StartedComponent {
            component: component.clone(),
            lifetime: planned.lifetime,
            case,
            is_ready: false,
            service: None,
            ready: None,
            names_passed: component::names_passed(planned),
            logs: state.writer.as_ref().map_or_else(String::new, |w| within_record(w.logs())),
        });
        Ok(())
    }

    /// Applies the new case's limits to a component that stays up, and resumes or reconnects it if an event paused or
    /// disconnected it. What the case does not limit is limited as it was when the component came up.
    pub(crate) fn change_limits(
        &self,
        component: &Component,
        asked: &Limits,
        state: &TrialState,
    ) -> Result<(), BringUpError> {
        if component.is_paused() {
            // One of its processes that this user may not signal was not paused either.
            let _ = component.resume();
        }
        match self.system.reconnect(component.name()) {
            // A component without its own link was never disconnected.
            Ok(()) | Err(loadlab_system::Error::NoLink { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let wanted = component.limits_with(asked);
        if component.limits() != wanted {
            for missing in self.system.limit(component, &wanted)? {
                let (what, why) = (missing.what, missing.why);
                state.record_event(EventKind::Unavailable {
                    component: component.name().to_owned(),
                    what,
                    why,
                });
            }
        }
        state.record_limits(component);
        Ok(())
    }

    /// A component that is up, or was until an event ended it.
    pub fn component(&self, name: &str) -> Option<Component> {
        self.up.iter().find(|u| u.component.name() == name).map(|u| u.component.clone())
    }

    /// When a container counts as up; `None` for other components.
    pub fn ready_of(&self, name: &str) -> Option<&Ready> {
        self.up.iter().find(|u| u.component.name() == name)?.ready.as_ref()
    }

    /// Reports components with processes that left their cgroups. Call this while nothing is being sent.
    pub fn report_escaped(&self, state: &TrialState, emit: EventSink<'_>) {
        for up in &self.up {
            let escaped = up.component.escaped();
            if !escaped.is_empty() {
                let text = format!(
                    "{} processes of `{}` have left its cgroup (pid {}): its limits do not apply to them, and \
                     what they use is not counted",
                    escaped.len(),
                    up.component.name(),
                    escaped[0]
                );
                state.record_and_show(text, emit);
            }
        }
    }

    /// Takes over changes made by events: components that are gone no longer have to be taken down.
    pub fn take_changed(&mut self, changed: Changed) {
        for (name, now) in changed {
            match now {
                None => self.up.retain(|u| u.component.name() != name),
                Some(component) => {
                    if let Some(up) = self.up.iter_mut().find(|u| u.component.name() == name) {
                        up.component = component;
                    }
                }
            }
        }
    }

    /// Log files of components that are still up.
    pub fn open_logs(&self) -> Vec<PathBuf> {
        let logs = self.up.iter().map(|up| up.component.spec().logs.clone());
        logs.flat_map(|logs| [logs.stdout, logs.stderr]).collect()
    }

    /// Files with the output of a component of the plan: of all containers if it is a service with several. `None` if it
    /// runs already, since its output goes elsewhere.
    fn logs_of(&self, case: &Case, name: &str) -> Option<Vec<PathBuf>> {
        let planned = case.system.components.iter().find(|c| c.name == name);
        let service = match planned.map(|c| &c.kind) {
            Some(ComponentKind::External(_)) => return None,
            Some(ComponentKind::Service(service)) => Some(service.as_str()),
            _ => None,
        };
        let is_meant = |up: &&StartedComponent| {
            up.component.name() == name || service.is_some() && up.service.as_deref() == service
        };
        let mut logs = Vec::new();
        for up in self.up.iter().filter(is_meant) {
            for log in [&up.component.spec().logs.stdout, &up.component.spec().logs.stderr] {
                if !logs.contains(log) {
                    logs.push(log.clone());
                }
            }
        }
        Some(logs)
    }

    /// Where the output of a component or command goes.
    pub(crate) fn log_files(&self, name: &str, state: &TrialState) -> LogFiles {
        let Some(writer) = &state.writer else { return LogFiles::in_folder(&self.run_dir, name) };
        let (stdout, stderr) = writer.log_paths(name);
        LogFiles { stdout, stderr }
    }

    /// Finds the ports of all components that are not up before the first one is started, since any component may be
    /// given the others' ports.
    fn find_ports(&mut self, case: &Case) -> Result<(), BringUpError> {
        let RunningSystem { up, ports, .. } = self;
        let is_in_use = |name: &str| up.iter().any(|u| u.names_passed.iter().any(|passed| passed == name));
        for component in &case.system.components {
            if !up.iter().any(|u| u.component.name() == component.name) {
                let failed = |error| BringUpError::Port { component: component.name.clone(), error };
                ports.find(component, &is_in_use).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Runs the plan's seed commands once for the longest-lived components: when they are taken down, the seeded data
    /// is gone too. If seeds differ between cases, each case is seeded separately.
    ///
    /// # Errors
    /// A seed command failed. Nothing outlives that trial, since a part of the data may be there.
    pub fn seed(&mut self, case: &Case, state: &TrialState, emit: EventSink<'_>) -> Result<(), BringUpError> {
        let seed = &case.system.seed;
        // Revisions have separate commands, even if their text is the same.
        let own = (case.dir.clone(), seed.clone());
        if self.seeded.as_ref() != Some(&own) {
            self.seeded = None;
            self.is_half_seeded = true;
            self.run_commands("seed", seed, &case.dir, state, emit)?;
            self.is_half_seeded = false;
            self.seeded = Some(own);
        }
        Ok(())
    }

    /// Runs commands of the plan in the given folder, one after another.
    ///
    /// # Errors
    /// The first command that failed, with its last lines of output.
    pub fn run_commands(
        &self,
        name: &str,
        commands: &[plan::Command],
        dir: &str,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        for planned in commands {
            let names = |n: &str| self.name(n, None);
            let command = component::command(planned, name, &names)?;
            let text = command.to_string();
            let spec = CommandSpec {
                name: name.to_owned(),
                command,
                dir: PathBuf::from(dir),
                env: Vec::new(),
                timeout_ns: None,
                log: self.log_files(name, state).stdout,
            };
            let result = self.system.run_command(&spec, &state.cancel)?;
            let (exit, took_s) = (result.status.exit, result.took_s);
            state.record_event(EventKind::Command { name: name.to_owned(), command: text, exit, took_s });
            result.checked()?;
            emit(RunEvent::Command { name: name.to_owned(), took_s });
        }
        Ok(())
    }

    /// What the watcher reads: all components, the generator and the host.
    pub fn targets(&self) -> Vec<Target> {
        let components = self.up.iter().map(|u| u.component.target());
        let relays = self.up.iter().filter_map(|u| self.system.relay_of(u.component.name()));
        components
            .chain(relays.map(|relay| relay.target()))
            .chain(self.externals.targets())
            .chain([Target::generator(), Target::host()])
            .collect()
    }

    /// The case's probes, and how to find out what was stored.
    ///
    /// # Errors
    /// A URL or pointer is invalid, or what was stored before the load cannot be read.
    pub fn probes(
        &self,
        case: &Case,
        state: &TrialState,
    ) -> Result<(Vec<Probe>, Option<Persisted>), BringUpError> {
        let names = |n: &str| self.name(n, None);
        let logs = |name: &str| self.logs_of(case, name);
        let around = ProbeContext {
            names: &names,
            plan_dir: Path::new(&case.dir),
            mark: self.system.mark(),
            logs: &logs,
            secrets: &state.secrets,
        };
        let mut probes = Vec::new();
        for planned in &case.system.probes {
            probes.push(Probe::new(probes::probe(planned, &around)?)?);
        }
        let Some(spec) = &case.durability else { return Ok((probes, None)) };
        let persisted =
            durability::prepare(spec, &around, &probes, state)?.map_err(BringUpError::BeforeLoad)?;
        Ok((probes, Some(persisted)))
    }
}

/// The path of a trial's logs within the record: `cases/CASE/TRIAL/logs`.
pub(crate) fn within_record(logs: &Path) -> String {
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let trial = logs.parent();
    format!("cases/{}/{}/logs", name(trial.and_then(Path::parent)), name(trial))
}

/// The longest lifetime of what a case starts; `None` if it starts nothing.
pub(crate) fn longest_lifetime(case: &Case) -> Option<u8> {
    let compose = case.system.compose.iter().map(|compose| compose.lifetime);
    // Services have the lifetime of their project.
    let is_started =
        |c: &&plan::ComponentSpec| matches!(c.kind, ComponentKind::Process(_) | ComponentKind::Container(_));
    let started = case.system.components.iter().filter(is_started).map(|c| c.lifetime);
    started.chain(compose).map(lifetime).max()
}

/// Ranks lifetimes from short to long.
fn lifetime(lifetime: Lifetime) -> u8 {
    match lifetime {
        Lifetime::Trial => 0,
        Lifetime::Case => 1,
        Lifetime::Experiment => 2,
    }
}
