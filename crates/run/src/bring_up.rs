//! The system of a case: which components are to be up, which are, where, and for how long.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use loadlab_analysis::Exit;
use loadlab_plan::{self as plan, Case, Fresh};
use loadlab_record::event::What;
use loadlab_system::{Cancel, CommandSpec, Component, Down, Notice, Probe, System, Target, clock};

use crate::event::RunEvent;
use crate::ports::Ports;
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
    ports: Ports,
    /// Seed commands that were run for the longest-lived components that are up.
    seeded: Option<Vec<plan::Command>>,
}

/// A component that was started and not taken down.
struct Up {
    component: Component,
    fresh: Fresh,
    /// The case it was started for.
    case: usize,
    is_ready: bool,
    /// Names of other components' ports that it was started with.
    told: Vec<String>,
    /// Where its output goes: a folder of the trial it was started in, from the record's on.
    logs: String,
}

/// What was built: events with their time, for the first trial's record.
pub type Builds = Vec<(u64, What)>;

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
    /// A folder that is needed before anything is started.
    #[error("cannot create {}: {error}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Something happened before the load began.
    #[error("{0}")]
    BeforeLoad(String),
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
            ports: Ports::default(),
            seeded: None,
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
        self.ports.get(&full).map(|port| port.to_string())
    }

    /// Runs every build command of every case once, before the first trial.
    ///
    /// # Errors
    /// The first that fails, with its last lines. `builds` tells what ran, that one included.
    pub fn build(
        &self,
        cases: &[Case],
        cancel: &Cancel,
        builds: &mut Builds,
        tell: Tell<'_>,
    ) -> Result<(), SiteError> {
        let logs = self.run_dir.join("builds");
        let mut done: Vec<(String, String)> = Vec::new();
        for component in cases.iter().flat_map(|c| &c.system.components) {
            for build in &component.build {
                let names = |name: &str| self.name(name, None);
                let command = translate::command(build, &format!("build of `{}`", component.name), &names)?;
                let text = command.to_string();
                let key = (component.dir.clone(), text.clone());
                if done.contains(&key) {
                    continue;
                }
                done.push(key);
                let no_folder = |error| SiteError::Folder { path: logs.clone(), error };
                std::fs::create_dir_all(&logs).map_err(no_folder)?;
                let what = format!("build of {}", component.group);
                tell(RunEvent::Building { what: what.clone(), command: text.clone() });
                let spec = CommandSpec {
                    name: what.clone(),
                    command,
                    dir: PathBuf::from(&component.dir),
                    env: Vec::new(),
                    within_ns: None,
                    log: logs.join(format!("{}-{}.log", component.group, done.len())),
                };
                let result = self.system.run_command(&spec, cancel)?;
                let (exit, took_s) = (result.status.exit, result.took_s);
                builds.push((
                    clock::now_ns(),
                    What::Command { name: what.clone(), command: text, exit, took_s },
                ));
                result.checked()?;
                tell(RunEvent::Built { what, took_s });
            }
        }
        Ok(())
    }

    /// Brings up what a case needs and is not up, in the plan's order, each one ready before the next is started.
    ///
    /// # Errors
    /// What did not come up, and why. What is up stays up; see [`Site::end_trial`].
    pub fn bring_up(
        &mut self,
        index: usize,
        case: &Case,
        stage: &Stage,
        tell: Tell<'_>,
    ) -> Result<(), SiteError> {
        self.bury(stage, tell);
        self.find_ports(case)?;
        let longest = case.system.components.iter().map(|c| lifetime(c.fresh)).max();
        for planned in &case.system.components {
            if let Some(up) = self.up.iter().find(|u| u.component.name() == planned.name) {
                stage.member(up.component.process());
                let text = format!("{} is up from before; its logs are in {}", planned.name, up.logs);
                stage.event(What::Note { text });
                continue;
            }
            if Some(lifetime(planned.fresh)) == longest {
                self.seeded = None;
            }
            self.start(index, planned, stage, tell)?;
        }
        Ok(())
    }

    /// Takes away those that died since the last trial's load, so that they are started again. A death that the
    /// last trial told of is not told again.
    fn bury(&mut self, stage: &Stage, tell: Tell<'_>) {
        let mut untold = Vec::new();
        if let Ok(notices) = self.notices.lock() {
            untold.extend(notices.try_iter().filter_map(|notice| match notice {
                Notice::Died { component, .. } => Some(component.process()),
                _ => None,
            }));
        }
        for up in self.up.iter().filter(|u| u.is_ready) {
            let Some(ended) = up.component.ended() else { continue };
            let (component, status) = (up.component.name().to_owned(), ended.status.to_string());
            if untold.contains(&up.component.process()) {
                tell(RunEvent::Died { component: component.clone(), status: status.clone() });
                stage.event_at(ended.at_ns, What::Died { component, status });
            } else {
                let text =
                    format!("{component} is started again, having died after the last trial: {status}");
                tell(RunEvent::Note(text.clone()));
                stage.event(What::Note { text });
            }
        }
        self.take_down(stage, &|up| up.component.ended().is_none());
    }

    fn start(
        &mut self,
        case: usize,
        planned: &plan::ComponentSpec,
        stage: &Stage,
        tell: Tell<'_>,
    ) -> Result<(), SiteError> {
        let name = &planned.name;
        let logs = self.log_paths(name, stage);
        let own = |n: &str| self.name(n, Some(name));
        let spec = translate::component(planned, &own, self.ports.of(planned), logs)?;
        self.ports.release(planned);
        let component = self.system.up(&spec)?;
        stage.member(component.process());
        stage.event(What::Up { component: name.clone(), pid: Some(component.process().pid) });
        for missing in component.unavailable() {
            let (what, why) = (missing.what.to_string(), missing.why.to_string());
            stage.event(What::Unavailable { component: name.clone(), what, why });
        }
        // Registered before it is ready: whatever happens now, it is taken down with the rest.
        self.up.push(Up {
            component: component.clone(),
            fresh: planned.fresh,
            case,
            is_ready: false,
            told: translate::names_told(planned),
            logs: stage.writer.as_ref().map_or_else(String::new, |w| within_record(w.dir())),
        });
        let after_s = self.system.ready(&component, &stage.cancel)?;
        if let Some(up) = self.up.last_mut() {
            up.is_ready = true;
        }
        stage.event(What::Ready { component: name.clone(), after_s });
        tell(RunEvent::Ready { component: name.clone(), after_s });
        Ok(())
    }

    /// Where output goes: stdout, stderr.
    fn log_paths(&self, name: &str, stage: &Stage) -> (PathBuf, PathBuf) {
        match &stage.writer {
            Some(writer) => writer.log_paths(name),
            None => (self.run_dir.join(format!("{name}.out")), self.run_dir.join(format!("{name}.err"))),
        }
    }

    /// Finds the ports of all components that are not up before the first one is started, since each may be
    /// told the others'.
    fn find_ports(&mut self, case: &Case) -> Result<(), SiteError> {
        let Site { up, ports, .. } = self;
        let is_told = |name: &str| up.iter().any(|u| u.told.iter().any(|told| told == name));
        for component in &case.system.components {
            if !up.iter().any(|u| u.component.name() == component.name) {
                let failed = |error| SiteError::Port { component: component.name.clone(), error };
                ports.find(component, &is_told).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Runs the plan's seed commands, once for the components that live longest: with those, what was seeded
    /// is gone. Where seeds differ between cases, each case gets its own.
    ///
    /// # Errors
    /// One that fails.
    pub fn seed(&mut self, case: &Case, stage: &Stage, tell: Tell<'_>) -> Result<(), SiteError> {
        let seed = &case.system.seed;
        if self.seeded.as_ref() != Some(seed) {
            self.commands("seed", seed, stage, tell)?;
            self.seeded = Some(seed.clone());
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
            let text = command.to_string();
            let spec = CommandSpec {
                name: name.to_owned(),
                command,
                dir: self.plan_dir.clone(),
                env: Vec::new(),
                within_ns: None,
                log: self.log_paths(name, stage).0,
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

    /// Takes down what lives no longer than the trial that ended, the newest first. `next` is the case of the
    /// next trial, if there is one. After a failed trial only living components of the whole experiment stay.
    /// Returns what could not be taken down, in words, and what that asks for.
    pub fn end_trial(&mut self, next: Option<usize>, failed: bool, stage: &Stage) -> Vec<(String, Exit)> {
        self.take_down(stage, &|up| {
            let lives_on = match up.fresh {
                Fresh::Trial => false,
                Fresh::Case => !failed && next == Some(up.case),
                Fresh::Experiment => next.is_some(),
            };
            lives_on && up.is_ready && up.component.ended().is_none()
        })
    }

    fn take_down(&mut self, stage: &Stage, stays: &dyn Fn(&Up) -> bool) -> Vec<(String, Exit)> {
        let (stay, down): (Vec<Up>, Vec<Up>) = self.up.drain(..).partition(|u| stays(u));
        self.up = stay;
        let mut failed = Vec::new();
        for up in down.into_iter().rev() {
            let component = up.component.name().to_owned();
            match self.system.down(&up.component) {
                Ok(Down { how, .. }) => stage.event(What::Down { component, how: how.as_str().to_owned() }),
                Err(error) => {
                    let text = format!("cannot take down `{component}`: {error}");
                    stage.event(What::Failed { text: text.clone() });
                    failed.push((text, Exit::Failed));
                }
            }
        }
        failed
    }

    /// Takes down whatever is left and removes every trace.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn close(self) -> Result<(), SiteError> {
        Ok(self.system.close()?)
    }
}

/// `cases/CASE/TRIAL/logs` of a trial's folder.
fn within_record(trial: &Path) -> String {
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    };
    format!("cases/{}/{}/logs", name(trial.parent()), name(Some(trial)))
}

/// Lifetimes in order.
fn lifetime(fresh: Fresh) -> u8 {
    match fresh {
        Fresh::Trial => 0,
        Fresh::Case => 1,
        Fresh::Experiment => 2,
    }
}
