//! The services of a Compose file: they come up and go down together, and are watched as components of the plan.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_plan::{self as plan, Case, ComponentKind};
use loadlab_record::documents::event::EventKind;
use loadlab_record::text::units::format_bytes;
use loadlab_system::{self as system, Component, ComposeSpec, MemoryBeyond, Project, ServiceSpec};

use crate::event::RunEvent;
use crate::limits;
use crate::result::Trouble;
use crate::running_system::containers::{HEALTHY_TIMEOUT_NS, ready};
use crate::running_system::error::BringUpError;
use crate::running_system::{
    BuildValues, RunningSystem, StartedComponent, StartedProject, lifetime, longest_lifetime, within_record,
};
use crate::state::{EventSink, TrialState};
use crate::translate::component;

impl RunningSystem {
    /// The Compose file of a case, with the plan's overrides for its services.
    pub(super) fn compose_spec(
        &self,
        case: &Case,
        compose: &plan::ComposeSpec,
        log: &Path,
    ) -> Result<ComposeSpec, BringUpError> {
        self.compose_spec_with(case, compose, log, &|n, own| self.name(n, own))
    }

    /// As for bringing it up, before ports and addresses are known: builds do not depend on them, and get zeros.
    pub(super) fn compose_spec_to_build(
        &self,
        case: &Case,
        compose: &plan::ComposeSpec,
        log: &Path,
    ) -> Result<ComposeSpec, BringUpError> {
        let name = |n: &str, own: Option<&str>| {
            let parts: Vec<&str> = n.split('.').collect();
            let is_later = |part: &str| part == "port" || part == "address";
            match parts.as_slice() {
                [first, ..] if is_later(first) => Some("0".to_owned()),
                ["components", _, of, ..] if is_later(of) => Some("0".to_owned()),
                _ => self.name(n, own),
            }
        };
        self.compose_spec_with(case, compose, log, &name)
    }

    fn compose_spec_with(
        &self,
        case: &Case,
        compose: &plan::ComposeSpec,
        log: &Path,
        name: &dyn Fn(&str, Option<&str>) -> Option<String>,
    ) -> Result<ComposeSpec, BringUpError> {
        let fill_env = |env: &[(String, plan::Template)], own: Option<&str>| {
            component::env_of(env, "the Compose file", &|n: &str| name(n, own))
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
            timeout_ns: compose.timeout_ns,
            log: log.to_owned(),
        })
    }

    /// Builds the images once more if those that are there were built from another file, or with other values, for
    /// another case. All images were built before the first trial, so the engine has all parts of them.
    fn rebuild(
        &mut self,
        case: &Case,
        compose: &plan::ComposeSpec,
        log: &Path,
        state: &TrialState,
    ) -> Result<(), BringUpError> {
        let spec = self.compose_spec_to_build(case, compose, log)?;
        let is_other = |(file, built): &(String, BuildValues)| *file != compose.file || *built != spec.env;
        if self.compose_built.as_ref().is_some_and(is_other) {
            self.system.compose_build(&spec, &state.cancel)?;
            self.compose_built = Some((compose.file.clone(), spec.env));
        }
        Ok(())
    }

    /// Brings the case's Compose file up, unless it is up already, and waits for its services.
    ///
    /// # Errors
    /// Compose failed, or a service is not in the file or does not become ready.
    pub(crate) fn bring_up_compose(
        &mut self,
        index: usize,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let Some(compose) = &case.system.compose else { return Ok(()) };
        if self.project.is_some() {
            state.record_event(EventKind::Note {
                text: format!("{} is still up from an earlier trial", compose.file),
            });
            return Ok(());
        }
        if Some(lifetime(compose.lifetime)) == longest_lifetime(case) {
            self.seeded = None;
        }
        let spec = self.compose_spec(case, compose, &self.log_files("compose", state).stdout)?;
        self.rebuild(case, compose, &spec.log, state)?;
        // A number after a component's name may belong to the component or to one of several containers, so its origin
        // is recorded rather than guessed.
        let services = RefCell::new(BTreeMap::new());
        let is_service = |c: &&plan::ComponentSpec| matches!(c.kind, ComponentKind::Service(_));
        let planned = case.system.components.iter().filter(is_service);
        let mut names_passed: Vec<String> = planned.flat_map(component::names_passed).collect();
        names_passed.extend(component::names_in(compose.env.iter().map(|(_, value)| value)));
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
        let logs = state.writer.as_ref().map_or_else(String::new, |w| within_record(w.logs()));
        for component in project.components() {
            let name = component.name().to_owned();
            let service = services.get(&name).cloned().unwrap_or_default();
            state.abort_on_death(component.process());
            state.record_event(EventKind::Up { component: name, pid: Some(component.process().pid) });
            state.record_limits(component);
            self.up.push(StartedComponent {
                component: component.clone(),
                lifetime: compose.lifetime,
                case: index,
                is_ready: false,
                service: Some(service),
                ready: None,
                names_passed: names_passed.clone(),
                logs: logs.clone(),
            });
        }
        for done in &project.done {
            state.record_note(format!("{done} finished its work and ended"));
        }
        let started = StartedProject { project: project.clone(), lifetime: compose.lifetime, case: index };
        self.project = Some(started);
        self.services_are_there(case, &project)?;
        self.services_ready(case, state, emit)
    }

    /// Gives the services of a Compose file that is still up the limits of this case, or takes the file down if it cannot
    /// go on.
    ///
    /// # Errors
    /// It cannot be taken down, or a service cannot be reconnected.
    pub(super) fn keep_or_take_down(
        &mut self,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let Some(compose) = case.system.compose.as_ref().filter(|_| self.project.is_some()) else {
            return Ok(());
        };
        let why = match self.unfit(case) {
            Some(why) => why,
            None => match self.services_live_on(case, state) {
                Ok(()) => return Ok(()),
                // What cannot be limited while it runs may come up under this limit.
                Err(BringUpError::System(system::Error::Limit { component, limit, why, .. })) => {
                    format!("{component}: cannot limit {limit} while it runs: {why}")
                }
                Err(error) => return Err(error),
            },
        };
        let text = format!("{} is restarted: {why}", compose.file);
        state.record_and_show(text, emit);
        self.up.retain(|up| up.service.is_none());
        self.compose_down(&state.aside()).map_or(Ok(()), |left| Err(BringUpError::BeforeLoad(left.why)))
    }

    /// Why the services that are up cannot go on in this case; `None` if they can. A service that an event ended can
    /// only come back with the whole file, and so can a limit that another case replaced. Memory that a service holds
    /// cannot be taken from it: the kernel would refuse the limit, or kill the service.
    fn unfit(&self, case: &Case) -> Option<String> {
        let StartedProject { project, .. } = self.project.as_ref()?;
        let is_up = |name: &str| self.up.iter().any(|up| up.service.is_some() && up.component.name() == name);
        let names = project.components().iter().map(Component::name);
        let ended: Vec<&str> = names.filter(|name| !is_up(name)).collect();
        if !ended.is_empty() {
            return Some(format!("an event had ended {}", ended.join(" and ")));
        }
        let mut unlike = Vec::new();
        let mut too_large = None;
        for up in &self.up {
            let Some(service) = &up.service else { continue };
            let asked = limits_of(planned_service(case, service));
            if !project.can_have(service, &asked) {
                unlike.push(up.component.name());
            }
            let wanted = up.component.limits_with(&asked);
            let beyond = up.component.memory_beyond(&wanted);
            too_large = too_large.or(beyond.map(|beyond| (up.component.name(), beyond)));
        }
        if !unlike.is_empty() {
            return Some(format!("this case leaves limits of {} to the file", unlike.join(" and ")));
        }
        too_large.map(|(name, MemoryBeyond { held_bytes, limit_bytes, with_swap })| {
            let (held, limit) = (format_bytes(held_bytes as f64), format_bytes(limit_bytes as f64));
            let what = if with_swap { "memory and swap" } else { "memory" };
            format!("{name} holds {held} of {what}, and this trial limits it to {limit}")
        })
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
                None => system::Ready::Healthy { timeout_ns: HEALTHY_TIMEOUT_NS },
            };
            let after_s = self.system.ready_when(&component, &ready, &state.cancel)?;
            self.up[at].is_ready = true;
            self.up[at].ready = Some(ready);
            state.record_event(EventKind::Ready { component: name.clone(), after_s });
            emit(RunEvent::Ready { component: name, after_s });
        }
        Ok(())
    }

    /// Takes the project down and records the result. Returns a failure.
    pub(crate) fn compose_down(&mut self, state: &TrialState) -> Option<Trouble> {
        let StartedProject { project, .. } = self.project.take()?;
        match self.system.compose_down(&project) {
            Ok(down) => {
                for component in project.components() {
                    let (component, how) = (component.name().to_owned(), down.ending.as_str().to_owned());
                    state.record_event(EventKind::Down { component, how });
                }
                None
            }
            Err(error) => {
                let why = format!("cannot take down the services of the Compose file: {error}");
                state.record_event(EventKind::Failed { text: why.clone() });
                Some(Trouble { why, exit: Exit::Failed })
            }
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::Receiver;

    use loadlab_plan::{Options, Plan};
    use loadlab_record::Secrets;
    use loadlab_system::{Cancel, Notice, System, SystemSpec};

    use super::*;
    use crate::running_system::take_down::tests::notes;

    /// An engine that has no container: all of them have ended and were removed.
    fn answer(mut stream: UnixStream) {
        let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let asked = lines.next().unwrap_or_default();
        lines.take_while(|line| !line.is_empty()).for_each(drop);
        let body = match asked.split(' ').nth(1).unwrap_or_default() {
            path if path.ends_with("/version") => r#"{"ApiVersion":"1.41","MinAPIVersion":"1.24"}"#,
            path if path.contains("/volumes") => r#"{"Volumes":[]}"#,
            _ => "[]",
        };
        let length = body.len();
        let _ =
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    }

    /// An engine without containers and a Compose that notes each `up` in the file `ups`, in a folder.
    fn tools(dir: &Path) -> (System, Receiver<Notice>) {
        let path = |name: &str| dir.join(name);
        let listener = UnixListener::bind(path("engine.sock")).unwrap();
        std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
        std::fs::write(path("compose.yml"), "services: {}\n").unwrap();
        std::fs::create_dir(path("bin")).unwrap();
        let ups = path("ups");
        let script = format!("#!/bin/sh\ncase \"$*\" in *' up '*) echo up >> {};; esac\n", ups.display());
        // A child writes it: while a child of another test has a file open for writing, it cannot be run.
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut shell = std::process::Command::new("/bin/sh");
        let written = shell.args(["-c", write]).arg(path("bin/docker")).arg(script).status();
        assert!(written.unwrap().success());
        let mut spec = SystemSpec::new("jobs", dir, &path("scratch"), None);
        (spec.state_dir, spec.cgroup_root) = (path("state"), path("no-root"));
        System::new(spec).unwrap()
    }

    /// A plan with the folder's engine and Compose file, and more of its `system`.
    fn plan_in(dir: &Path, lifetime: &str, rest: &str) -> Plan {
        let here = dir.display();
        let text = format!(
            "loadlab: 1\nname: test\nsystem:\n  engine: {here}/engine.sock\n  \
             compose: {{ file: {here}/compose.yml, lifetime: {lifetime}, env: {{ PATH: \"{here}/bin:/bin:/usr/bin\" }} }}\n\
             {rest}load: {{ users: 1, requests: 1, journey: [{{ get: \"http://127.0.0.1:1/\" }}] }}\n"
        );
        let path = dir.join("plan.yaml").display().to_string();
        Plan::parse(&path, &text, &Options::default()).unwrap()
    }

    /// How often Compose brings a file up for two trials of one case.
    fn ups(lifetime: &str) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let (system, notices) = tools(dir.path());
        let plan = plan_in(dir.path(), lifetime, "");
        let mut running = RunningSystem::new(system, notices, dir.path());
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        for next in [Some(0), None] {
            running.bring_up(0, &plan.cases()[0], &state, &|_| {}).unwrap();
            assert_eq!(running.end_trial(next, false, &state).len(), 0);
        }
        running.close().unwrap();
        std::fs::read_to_string(dir.path().join("ups")).unwrap().lines().count()
    }

    #[test]
    fn a_file_whose_services_have_all_ended_lives_as_long_as_it_says() {
        assert_eq!(["trial", "case", "experiment"].map(ups), [2, 1, 1]);
    }

    /// That it must be restarted shows only when the kernel refuses the new limit of a service.
    #[test]
    fn what_is_seeded_with_a_file_is_restarted_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let (system, notices) = tools(dir.path());
        let run = "run: \"exec sleep 1000\", lifetime: experiment";
        let with = |web: &str| {
            let rest = format!(
                "  components: {{ db: {{ {run} }}, web: {{ {web} }} }}\n  seed: echo seed >> story\n"
            );
            plan_in(dir.path(), "experiment", &rest)
        };
        let (before, after) = (with(run), with("compose: web, limits: { memory: 64MiB }"));
        let mut running = RunningSystem::new(system, notices, dir.path());
        let state = || TrialState::new(None, Cancel::new(), Secrets::default());
        let first = state();
        running.bring_up(0, &before.cases()[0], &first, &|_| {}).unwrap();
        running.seed(&before.cases()[0], &first, &|_| {}).unwrap();
        // The engine has no container, so a process is taken for the service. It has no cgroup to limit.
        running.up.iter_mut().filter(|up| up.component.name() == "web").for_each(|up| {
            up.service = Some("web".to_owned());
        });
        let second = state();
        // Compose does not bring the service up, of course.
        let error = running.bring_up(0, &after.cases()[0], &second, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("brought up no service `web`"), "{error}");
        assert!(running.component("db").is_none(), "it would be seeded a second time");
        let notes = notes(&second);
        let [restarted, together] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(
            restarted.contains("compose.yml is restarted: web: cannot limit memory to 64"),
            "{restarted}"
        );
        assert!(together.contains("compose.yml must start anew, and so must db: "), "{together}");
        running.close().unwrap();
    }
}
