//! The system of a case: which components are to be up, which are, and where.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use loadlab_plan::{self as plan, Case, Fresh};
use loadlab_record::event::What;
use loadlab_system::{Cancel, CommandSpec, Component, Down, Notice, Probe, System, Target};

use crate::event::RunEvent;
use crate::stage::{Stage, Tell};
use crate::translate::{self, TranslateError};

/// The system under test over the whole run: components live for a trial, a case or the experiment.
pub struct Site {
    system: System,
    /// What the system notices, for whoever runs a load.
    pub notices: Mutex<Receiver<Notice>>,
    plan_dir: PathBuf,
    run_dir: PathBuf,
    up: Vec<Up>,
    /// Ports by the name templates use: `components.NAME.port`, `components.NAME.port.PORT`.
    ports: BTreeMap<String, u16>,
    seeded: bool,
}

struct Up {
    component: Component,
    fresh: Fresh,
    case: usize,
}

/// Why the system is not up.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The system says why.
    #[error(transparent)]
    System(#[from] loadlab_system::Error),
    /// A probe that is none.
    #[error(transparent)]
    Probe(#[from] loadlab_system::probe::ProbeError),
    /// No free port.
    #[error("cannot find a free port for `{component}`: {error}")]
    Port {
        /// For which component.
        component: String,
        /// Why.
        error: std::io::Error,
    },
}

impl Site {
    /// Nothing is up.
    pub fn new(system: System, notices: Receiver<Notice>, plan_dir: &Path, run_dir: &Path) -> Self {
        Site {
            system,
            notices: Mutex::new(notices),
            plan_dir: plan_dir.to_owned(),
            run_dir: run_dir.to_owned(),
            up: Vec::new(),
            ports: BTreeMap::new(),
            seeded: false,
        }
    }

    /// What the host lacks.
    pub fn unavailable(&self) -> &[loadlab_system::Unavailable] {
        self.system.unavailable()
    }

    /// `v1`, `v2`, `hybrid` or `none`.
    pub fn cgroup_version(&self) -> &'static str {
        self.system.cgroup_version()
    }

    /// A value for a template's name; `own` is the component it is for.
    pub fn name(&self, name: &str, own: Option<&str>) -> Option<String> {
        if name == "run.dir" {
            return Some(self.run_dir.display().to_string());
        }
        let full = match own {
            Some(own) if name == "port" || name.starts_with("port.") => format!("components.{own}.{name}"),
            _ => name.to_owned(),
        };
        self.ports.get(&full).map(u16::to_string)
    }

    /// Runs every build command of every case once, before the first trial.
    ///
    /// # Errors
    /// The first that fails, with its last lines.
    pub fn build(&self, cases: &[Case], cancel: &Cancel, tell: Tell<'_>) -> Result<(), SiteError> {
        let logs = self.run_dir.join("builds");
        let mut done: Vec<(String, String)> = Vec::new();
        let components = cases.iter().flat_map(|c| &c.system.components);
        for component in components {
            for build in &component.build {
                let names = |name: &str| self.name(name, None);
                let command = translate::command(build, &format!("build of `{}`", component.name), &names)?;
                let key = (component.dir.clone(), command.to_string());
                if done.contains(&key) {
                    continue;
                }
                done.push(key);
                std::fs::create_dir_all(&logs).ok();
                let what = format!("build of {}", component.group);
                tell(RunEvent::Building { what: what.clone(), command: command.to_string() });
                let spec = CommandSpec {
                    name: what.clone(),
                    command,
                    dir: PathBuf::from(&component.dir),
                    env: Vec::new(),
                    within_ns: None,
                    log: logs.join(format!("{}-{}.log", component.group, done.len())),
                };
                let result = self.system.run_command(&spec, cancel)?.checked()?;
                tell(RunEvent::Built { what, took_s: result.took_s });
            }
        }
        Ok(())
    }

    /// Brings up what a case needs and is not up, in the plan's order, each one ready before the next is started.
    ///
    /// # Errors
    /// What did not come up, and why. What is up stays up; see [`Site::clear`].
    pub fn bring_up(&mut self, index: usize, case: &Case, stage: &Stage, tell: Tell<'_>) -> Result<(), SiteError> {
        self.find_ports(case)?;
        for planned in &case.system.components {
            if self.up.iter().any(|u| u.component.name() == planned.name) {
                continue;
            }
            self.start(index, planned, stage, tell)?;
        }
        Ok(())
    }

    fn start(
        &mut self,
        case: usize,
        planned: &plan::ComponentSpec,
        stage: &Stage,
        tell: Tell<'_>,
    ) -> Result<(), SiteError> {
        let name = &planned.name;
        let logs = match &stage.writer {
            Some(writer) => writer.log_paths(name),
            None => (self.run_dir.join(format!("{name}.out")), self.run_dir.join(format!("{name}.err"))),
        };
        let own = |n: &str| self.name(n, Some(name));
        let ports = planned.ports.iter().filter_map(|p| self.port_of(name, p)).collect();
        let spec = translate::component(planned, &own, ports, logs)?;
        let component = self.system.up(&spec)?;
        stage.event(What::Up { component: name.clone(), pid: Some(component.process().pid) });
        for missing in component.unavailable() {
            stage.event(What::Unavailable {
                component: name.clone(),
                what: missing.what.to_string(),
                why: missing.why.to_string(),
            });
        }
        // Registered before it is ready: whatever happens now, it is taken down with the rest.
        self.up.push(Up { component: component.clone(), fresh: planned.fresh, case });
        let after_s = self.system.ready(&component, &stage.cancel)?;
        stage.event(What::Ready { component: name.clone(), after_s });
        tell(RunEvent::Ready { component: name.clone(), after_s });
        Ok(())
    }

    fn port_of(&self, component: &str, port: &plan::PortSpec) -> Option<u16> {
        port.number.or_else(|| self.ports.get(&format!("components.{component}.{}", port.variable())).copied())
    }

    /// Finds a free port for each component that wants one and has none. All are held until all are found, so
    /// that none is found twice.
    fn find_ports(&mut self, case: &Case) -> Result<(), SiteError> {
        let mut held = Vec::new();
        for component in &case.system.components {
            let is_up = self.up.iter().any(|u| u.component.name() == component.name);
            for port in component.ports.iter().filter(|_| !is_up) {
                let failed = |error| SiteError::Port { component: component.name.clone(), error };
                let number = match port.number {
                    Some(number) => number,
                    None => {
                        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
                        let number = listener.local_addr().map_err(failed)?.port();
                        held.push(listener);
                        number
                    }
                };
                self.ports.insert(format!("components.{}.{}", component.name, port.variable()), number);
            }
        }
        Ok(())
    }

    /// Runs the plan's seed commands, once for the experiment.
    ///
    /// # Errors
    /// One that fails.
    pub fn seed(&mut self, case: &Case, stage: &Stage, tell: Tell<'_>) -> Result<(), SiteError> {
        if !self.seeded {
            self.commands("seed", &case.system.seed, stage, tell)?;
            self.seeded = true;
        }
        Ok(())
    }

    /// Runs commands of the plan in its folder, one after another.
    ///
    /// # Errors
    /// The first that fails, with its last lines.
    pub fn commands(
        &self,
        name: &str,
        commands: &[plan::Command],
        stage: &Stage,
        tell: Tell<'_>,
    ) -> Result<(), SiteError> {
        for planned in commands {
            let names = |n: &str| self.name(n, None);
            let command = translate::command(planned, name, &names)?;
            let log = match &stage.writer {
                Some(writer) => writer.log_paths(name).0,
                None => self.run_dir.join(format!("{name}.out")),
            };
            let text = command.to_string();
            let spec = CommandSpec {
                name: name.to_owned(),
                command,
                dir: self.plan_dir.clone(),
                env: Vec::new(),
                within_ns: None,
                log,
            };
            let result = self.system.run_command(&spec, &stage.cancel)?;
            let (exit, took_s) = (result.status.exit, result.took_s);
            stage.event(What::Command { name: name.to_owned(), command: text, exit, took_s });
            result.checked()?;
            tell(RunEvent::Command { name: name.to_owned(), took_s });
        }
        Ok(())
    }

    /// What the watcher reads: every component, the generator, the host.
    pub fn targets(&self) -> Vec<Target> {
        let components = self.up.iter().map(|u| u.component.target());
        components.chain([Target::generator(), Target::host()]).collect()
    }

    /// The case's probes.
    ///
    /// # Errors
    /// A URL or pointer that is none.
    pub fn probes(&self, case: &Case) -> Result<Vec<Probe>, SiteError> {
        let names = |n: &str| self.name(n, None);
        let mut probes = Vec::new();
        for planned in &case.system.probes {
            probes.push(Probe::new(translate::probe(planned, &names)?)?);
        }
        Ok(probes)
    }

    /// Takes down what lives no longer than the trial that ended. `next` is the case of the next trial; `last`
    /// tells whether a case has no trial left.
    pub fn after_trial(&mut self, last: &dyn Fn(usize) -> bool, stage: &Stage) {
        self.take_down(stage, &|up| {
            let ended = up.component.ended().is_some();
            ended || up.fresh == Fresh::Trial || (up.fresh == Fresh::Case && last(up.case))
        });
    }

    /// Takes down what belongs to another case, so that `case` finds only what is its own or everyone's.
    pub fn before_case(&mut self, case: usize, stage: &Stage) {
        self.take_down(stage, &|up| up.fresh == Fresh::Case && up.case != case);
    }

    /// Takes down everything, the newest first.
    pub fn clear(&mut self, stage: &Stage) {
        self.take_down(stage, &|_| true);
    }

    fn take_down(&mut self, stage: &Stage, which: &dyn Fn(&Up) -> bool) {
        let (down, stay): (Vec<Up>, Vec<Up>) = self.up.drain(..).partition(|u| which(u));
        self.up = stay;
        for up in down.into_iter().rev() {
            let component = up.component.name().to_owned();
            match self.system.down(&up.component) {
                Ok(Down { how, .. }) => stage.event(What::Down { component, how: how.as_str().to_owned() }),
                Err(error) => {
                    let text = format!("cannot take down `{component}`: {error}");
                    stage.event(What::Failed { text });
                }
            }
        }
    }

    /// Takes down whatever is left and removes every trace.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn close(self) -> Result<(), SiteError> {
        Ok(self.system.close()?)
    }
}
