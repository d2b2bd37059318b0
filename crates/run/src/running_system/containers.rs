//! Components that are not our own processes: containers, services of a Compose file, and things that already run.
//!
//! Their definitions in the plan are converted for the system, and they come up and go down together with the others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_plan::{self as plan, Case, ComponentKind};
use loadlab_record::documents::event::EventKind;
use loadlab_system::{
    self as system, Cancel, Component, ComposeSpec, ContainerSpec, External, ExternalSelector, HealthCheck,
    ImageBuild, Network, Project, Scraper, ServiceSpec, Target, clock,
};

use crate::event::RunEvent;
use crate::limits;
use crate::running_system::error::BringUpError;
use crate::running_system::{Builds, RunningSystem, Up};
use crate::state::{AbortReason, EventSink, TrialState};
use crate::translate::component::{self, ready_of, words_of};
use crate::translate::error::{Names, TranslateError};

/// How long a container or service without a readiness check may take to become healthy.
const HEALTHY_NS: u64 = 60_000_000_000;

/// What exists besides the components started one by one.
#[derive(Default)]
pub struct Externals {
    /// The Compose file's project, if it is up.
    project: Option<Project>,
    /// Running things that were found for this trial.
    found: Vec<External>,
    scrapers: Vec<Scraper>,
    /// Names of components that are reached at this machine's address.
    here: Vec<String>,
}

impl Externals {
    /// The watcher's targets among the things that already run.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.found.iter().map(External::target)
    }

    /// Endpoints to read every second.
    pub fn scrapers(&self) -> &[Scraper] {
        &self.scrapers
    }

    /// Whether the component is reached at this machine's address, up or not.
    pub fn is_here(&self, component: &str) -> bool {
        self.here.iter().any(|name| name == component)
    }

    /// Forgets what an earlier trial found.
    pub fn begin(&mut self, case: &Case) {
        self.found.clear();
        self.scrapers.clear();
        let is_here =
            |kind: &ComponentKind| matches!(kind, ComponentKind::Process(_) | ComponentKind::External(_));
        let here = case.system.components.iter().filter(|c| is_here(&c.kind)).map(|c| c.name.clone());
        self.here = here.collect();
    }

    /// Checks whether something that already ran has ended, which aborts the trial like a component's death.
    pub fn check_ended(&self, state: &TrialState, emit: EventSink<'_>) {
        for gone in self.found.iter().filter(|f| f.is_gone()) {
            let (component, status) = (gone.name().to_owned(), "it no longer runs".to_owned());
            state.event(EventKind::Died { component: component.clone(), status: status.clone() });
            emit(RunEvent::Died { component: component.clone(), status: status.clone() });
            state.abort(AbortReason::Died { component, status });
        }
    }
}

/// Converts a container of the plan.
///
/// # Errors
/// A name has no value.
pub fn container(
    planned: &plan::ComponentSpec,
    container: &plan::ContainerSpec,
    names: Names<'_>,
) -> Result<ContainerSpec, TranslateError> {
    let what = format!("component `{}`", planned.name);
    let fill = |template: &plan::Template| {
        template.render(names).map_err(|error| TranslateError::Name { what: what.clone(), error })
    };
    let fill_all = |all: &[plan::Template]| all.iter().map(fill).collect::<Result<Vec<String>, _>>();
    let (mut entrypoint, mut command) = (fill_all(&container.entrypoint)?, Vec::new());
    match &container.command {
        None => {}
        Some(plan::Command::Words(words)) => command = fill_all(words)?,
        // As everywhere in a plan, a text is a shell command line; here it is run by the image's shell.
        Some(plan::Command::Shell(line)) => {
            if entrypoint.is_empty() {
                entrypoint = vec!["/bin/sh".to_owned(), "-c".to_owned()];
            }
            command = vec![fill(line)?];
        }
    }
    let is_published = !matches!(container.network, plan::Network::Host);
    let published = container.ports.iter().filter(|_| is_published).filter_map(|(variable, inner)| {
        let outside = names(variable)?.parse().ok()?;
        Some((outside, *inner))
    });
    let mut aliases = vec![planned.name.clone(), planned.group.clone()];
    aliases.dedup();
    let health = match &container.health {
        None => None,
        Some(health) => Some(HealthCheck {
            is_shell: matches!(health.command, plan::Command::Shell(_)),
            command: words_of(&health.command, &what, names)?,
            every_ns: health.interval_ns,
            timeout_ns: health.timeout_ns,
            retries: health.retries,
        }),
    };
    Ok(ContainerSpec {
        image: image_name(&planned.group, &container.image),
        entrypoint,
        command,
        published: published.collect(),
        volumes: fill_all(&container.volumes)?,
        network: match &container.network {
            plan::Network::Run => Network::Run,
            plan::Network::Host => Network::Host,
            plan::Network::None => Network::None,
            plan::Network::Named(name) => Network::Named(name.clone()),
        },
        aliases,
        health,
        user: container.user.clone(),
    })
}

/// The name of an image. A built image is named after its component and what it is built from, so that the next run
/// finds what the engine has cached.
fn image_name(group: &str, image: &plan::Image) -> String {
    match image {
        plan::Image::Named(name) => name.clone(),
        plan::Image::Built { context, dockerfile, args, target } => {
            let mut hasher = DefaultHasher::new();
            (context, dockerfile, args, target).hash(&mut hasher);
            format!("loadlab-build/{group}:{:016x}", hasher.finish())
        }
    }
}

/// When a container or a service counts as up.
///
/// # Errors
/// A name has no value.
pub fn ready(planned: &plan::ComponentSpec, names: Names<'_>) -> Result<system::Ready, TranslateError> {
    match &planned.ready {
        None => Ok(system::Ready::Healthy { within_ns: HEALTHY_NS }),
        Some(_) => ready_of(planned, names),
    }
}

impl RunningSystem {
    /// Ensures that all images are present, by building or pulling them.
    ///
    /// # Errors
    /// There is no engine, or an image cannot be obtained.
    pub(crate) fn images(
        &self,
        cases: &[Case],
        cancel: &Cancel,
        builds: &mut Builds,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let mut done: Vec<String> = Vec::new();
        for case in cases {
            self.system.use_engine(case.system.engine.as_deref());
            for planned in &case.system.components {
                let ComponentKind::Container(container) = &planned.kind else { continue };
                let image = image_name(&planned.group, &container.image);
                if !done.contains(&image) {
                    self.image(&planned.group, &container.image, cancel, builds, emit)?;
                    done.push(image);
                }
            }
            if let Some(compose) = &case.system.compose
                && !done.contains(&compose.file)
            {
                let spec = self.compose_spec(case, compose, &self.builds_dir()?.join("compose.log"))?;
                self.system.compose_build(&spec, cancel)?;
                done.push(compose.file.clone());
            }
        }
        Ok(())
    }

    fn image(
        &self,
        group: &str,
        image: &plan::Image,
        cancel: &Cancel,
        builds: &mut Builds,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let name = image_name(group, image);
        let component = |source| system::Error::of_container(group, source);
        let engine = self.system.engine().map_err(component)?;
        let plan::Image::Built { context, dockerfile, args, target } = image else {
            return Ok(engine.ensure_image(&name, cancel).map_err(component)?);
        };
        let what = format!("image of {group}");
        let command = format!("build {context}");
        emit(RunEvent::Building { what: what.clone(), command: command.clone() });
        let began_ns = clock::now_ns();
        let build = ImageBuild {
            image: name,
            context: PathBuf::from(context),
            dockerfile: dockerfile.clone(),
            args: args.clone(),
            target: target.clone(),
        };
        let path = self.builds_dir()?.join(format!("{group}-image.log"));
        let log = std::fs::File::options().append(true).create(true).open(&path);
        let mut log = log.map_err(|error| BringUpError::Folder { path, error })?;
        let built = engine.build_image(&build, self.system.scratch(), cancel, &mut log);
        let took_s = (clock::now_ns() - began_ns) as f64 / 1e9;
        let exit = Some(i32::from(built.is_err()));
        builds.push((clock::now_ns(), EventKind::Command { name: what.clone(), command, exit, took_s }));
        built.map_err(component)?;
        emit(RunEvent::Built { what, took_s });
        Ok(())
    }

    /// The Compose file of a case, with the plan's overrides for its services.
    fn compose_spec(
        &self,
        case: &Case,
        compose: &plan::ComposeSpec,
        log: &Path,
    ) -> Result<ComposeSpec, BringUpError> {
        let fill_env = |env: &[(String, plan::Template)], own: Option<&str>| {
            let names = |n: &str| self.name(n, own);
            component::env_of(env, "the Compose file", &names)
        };
        let mut services = BTreeMap::new();
        for planned in &case.system.components {
            if let ComponentKind::Service(service) = &planned.kind {
                let env = fill_env(&planned.env, Some(&planned.name))?;
                let (limits, cpus) = (limits::of_plan(&planned.limits), planned.limits.cpuset.clone());
                services.insert(service.clone(), ServiceSpec { env, limits, cpus });
            }
        }
        Ok(ComposeSpec {
            file: PathBuf::from(&compose.file),
            env: fill_env(&compose.env, None)?,
            services,
            within_ns: compose.timeout_ns,
            log: log.to_owned(),
        })
    }

    /// Brings the case's Compose file up, unless it is up already, and waits for its services.
    ///
    /// # Errors
    /// Compose failed, or a service is not in the file or does not become ready.
    pub(crate) fn compose(
        &mut self,
        index: usize,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let Some(compose) = &case.system.compose else { return Ok(()) };
        if self.is_whole(compose, state, emit)? {
            self.services_live_on(case, state)?;
            state.event(EventKind::Note {
                text: format!("{} is still up from an earlier trial", compose.file),
            });
            return Ok(());
        }
        self.seeded = None;
        let spec = self.compose_spec(case, compose, &self.log_files("compose", state).stdout)?;
        // A number after a component's name may belong to the component or to one of several containers, so its origin
        // is recorded rather than guessed.
        let services = RefCell::new(BTreeMap::new());
        let made = |service: &str, name: &str| {
            let planned = planned_service(case, service);
            // Named as in the plan; if there are several containers, their number is kept.
            let number = name.strip_prefix(service).unwrap_or_default();
            let name = planned.map_or(name.to_owned(), |p| format!("{}{number}", p.name));
            services.borrow_mut().insert(name.clone(), service.to_owned());
            let logs = self.log_files(&name, state);
            let limits = limits_of(planned);
            let cpus = planned.map(|p| p.limits.cpuset.clone()).unwrap_or_default();
            system::ComponentSpec { cpus, ..service_spec(name, service, &spec, limits, logs) }
        };
        let project = self.system.compose_up(&spec, &state.cancel, &made)?;
        let services = services.into_inner();
        let logs = state
            .writer
            .as_ref()
            .map_or_else(String::new, |w| crate::running_system::within_record(w.logs()));
        for component in project.components() {
            let name = component.name().to_owned();
            let service = services.get(&name).cloned().unwrap_or_default();
            state.abort_on_death(component.process());
            state.event(EventKind::Up { component: name, pid: Some(component.process().pid) });
            state.record_limits(component);
            self.up.push(Up {
                component: component.clone(),
                lifetime: compose.lifetime,
                case: index,
                is_ready: false,
                service: Some(service),
                ready: None,
                names_passed: Vec::new(),
                logs: logs.clone(),
            });
        }
        for done in &project.done {
            state.event(EventKind::Note { text: format!("{done} finished its work and ended") });
        }
        self.externals.project = Some(project.clone());
        self.services_are_there(case, &project)?;
        self.services_ready(case, state, emit)
    }

    /// Whether the Compose file is still up with all its services. A service ended by an event can only come back with
    /// the whole file, so the other services are taken down.
    fn is_whole(
        &mut self,
        compose: &plan::ComposeSpec,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<bool, BringUpError> {
        let Some(project) = &self.externals.project else { return Ok(false) };
        let is_up = |name: &str| self.up.iter().any(|up| up.service.is_some() && up.component.name() == name);
        let names = project.components().iter().map(Component::name);
        let ended: Vec<&str> = names.filter(|name| !is_up(name)).collect();
        if ended.is_empty() {
            return Ok(true);
        }
        let text = format!("{} is restarted: an event had ended {}", compose.file, ended.join(" and "));
        emit(RunEvent::Note(text.clone()));
        state.event(EventKind::Note { text });
        self.up.retain(|up| up.service.is_none());
        match self.compose_down(state) {
            None => Ok(false),
            Some((text, _)) => Err(BringUpError::BeforeLoad(text)),
        }
    }

    /// Applies the limits of the new case to services that stay up.
    fn services_live_on(&self, case: &Case, state: &TrialState) -> Result<(), BringUpError> {
        for up in &self.up {
            let Some(service) = &up.service else { continue };
            state.abort_on_death(up.component.process());
            self.change_limits(&up.component, &limits_of(planned_service(case, service)), state)?;
        }
        Ok(())
    }

    fn services_are_there(&self, case: &Case, project: &Project) -> Result<(), BringUpError> {
        let names: Vec<&str> = project.components().iter().map(|c| c.name()).collect();
        for planned in &case.system.components {
            let ComponentKind::Service(service) = &planned.kind else { continue };
            // If two components share a service, the second one's limits would have no effect.
            let is_first = planned_service(case, service).is_some_and(|first| first.name == planned.name);
            let is_up = is_first && self.up.iter().any(|up| up.service.as_ref() == Some(service));
            if !is_up && !project.done.contains(service) {
                let message = format!(
                    "component `{}`: the Compose file brought up no service `{service}`\nhint: it brought up {}",
                    planned.name,
                    names.join(", ")
                );
                return Err(BringUpError::BeforeLoad(message));
            }
        }
        Ok(())
    }

    fn services_ready(
        &mut self,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        for at in 0..self.up.len() {
            let Some(service) = &self.up[at].service else { continue };
            let planned = planned_service(case, service);
            let component = self.up[at].component.clone();
            let name = component.name().to_owned();
            let ready = match planned {
                Some(planned) => ready(planned, &|n| self.name(n, Some(&name)))?,
                None => system::Ready::Healthy { within_ns: HEALTHY_NS },
            };
            let after_s = self.system.ready_when(&component, &ready, &state.cancel)?;
            self.up[at].is_ready = true;
            self.up[at].ready = Some(ready);
            state.event(EventKind::Ready { component: name.clone(), after_s });
            emit(RunEvent::Ready { component: name, after_s });
        }
        Ok(())
    }

    /// Takes the project down and records the result. Returns a failure in words.
    pub(crate) fn compose_down(&mut self, state: &TrialState) -> Option<(String, Exit)> {
        let project = self.externals.project.take()?;
        match self.system.compose_down(&project) {
            Ok(down) => {
                for component in project.components() {
                    let (component, how) = (component.name().to_owned(), down.ending.as_str().to_owned());
                    state.event(EventKind::Down { component, how });
                }
                None
            }
            Err(error) => {
                let text = format!("cannot take down the services of the Compose file: {error}");
                state.event(EventKind::Failed { text: text.clone() });
                Some((text, Exit::Failed))
            }
        }
    }

    /// Finds a component that already runs, and waits until it answers.
    ///
    /// # Errors
    /// It does not exist or does not answer.
    pub(crate) fn find_external(
        &mut self,
        planned: &plan::ComponentSpec,
        external: &plan::External,
        case: &Case,
        state: &TrialState,
    ) -> Result<(), BringUpError> {
        let name = &planned.name;
        let names = |n: &str| self.name(n, Some(name));
        let seek = match external {
            plan::External::Pid(pid) => ExternalSelector::Pid(*pid),
            plan::External::Command(command) => ExternalSelector::Command(command.clone()),
            plan::External::Cgroup(path) => ExternalSelector::Cgroup(path.clone()),
            plan::External::Container(id) => ExternalSelector::Container(id.clone()),
            plan::External::Prometheus { url, labels } => {
                let what = format!("component `{name}`");
                let url = url.render(&names).map_err(|error| TranslateError::Name { what, error })?;
                let scraper = Scraper::new(name, &url, labels.clone())?;
                scraper.read(&mut || state.cancel.is_cancelled())?;
                self.externals.scrapers.push(scraper);
                return self.answers(planned, state);
            }
        };
        let found = External::find(name, &seek, case.system.engine.as_deref())?;
        state.event(EventKind::Note { text: format!("{name} runs already: {}", external.text()) });
        self.externals.found.push(found);
        self.answers(planned, state)
    }

    fn answers(&self, planned: &plan::ComponentSpec, state: &TrialState) -> Result<(), BringUpError> {
        if planned.ready.is_none() {
            return Ok(());
        }
        let ready = ready_of(planned, &|n| self.name(n, Some(&planned.name)))?;
        let after_s = system::ready::answers(&planned.name, &ready, &state.cancel)?;
        state.event(EventKind::Ready { component: planned.name.clone(), after_s });
        Ok(())
    }

    fn builds_dir(&self) -> Result<PathBuf, BringUpError> {
        let path = self.run_dir.join("builds");
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(BringUpError::Folder { path, error }),
        }
    }
}

/// The plan's component for a service of the Compose file.
fn planned_service<'a>(case: &'a Case, service: &str) -> Option<&'a plan::ComponentSpec> {
    let is_it = |kind: &ComponentKind| matches!(kind, ComponentKind::Service(name) if name == service);
    case.system.components.iter().find(|c| is_it(&c.kind))
}

/// The limits of a service. One that the plan does not mention keeps those in its file.
fn limits_of(planned: Option<&plan::ComponentSpec>) -> system::Limits {
    planned.map(|p| limits::of_plan(&p.limits)).unwrap_or_default()
}

/// A service as a component. Starting and stopping it is left to Compose.
fn service_spec(
    name: String,
    service: &str,
    compose: &ComposeSpec,
    limits: system::Limits,
    logs: system::LogFiles,
) -> system::ComponentSpec {
    let words = vec!["compose".to_owned(), "up".to_owned(), service.to_owned()];
    system::ComponentSpec {
        relay: None,
        name,
        command: system::Command::Argv(words),
        dir: compose.file.parent().unwrap_or(Path::new("/")).to_owned(),
        env: Vec::new(),
        ready: system::Ready::Alive,
        limits,
        stop: system::Stop::default(),
        logs,
        ports: Vec::new(),
        cpus: Vec::new(),
    }
}
