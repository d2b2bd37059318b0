//! Brings up a Compose file with the installed Compose tool; its containers become components.
//!
//! What the file means is up to Compose (`config.rs`). Limits and variables go into a second file that Compose merges
//! over it, the project gets a name unique to the run, and its containers are found by the labels Compose sets. So
//! everything Compose understands works, and is removed by the same labels and by nothing else: a name in the file may
//! belong to another project, whose volumes must never be removed.

mod config;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loadlab_record::sync::lock;
use loadlab_record::text::time::SECOND_NS;
use serde_json::{Value, json};

use self::config::LimitKinds;
use super::container::block_rates;
use crate::cancel::Cancel;
use crate::clock;
use crate::component::{Component, Inner, Origin};
use crate::engine::leftovers::{PROJECT, PROJECT_LABEL, remove_all};
use crate::engine::{Call, Engine, EngineError, labelled};
use crate::error::{Error, Result};
use crate::ledger::state::Resource;
use crate::spec::{Command, ComponentSpec, Limits, Stop};
use crate::system::command::{CommandResult, CommandSpec};
use crate::system::{Ending, System, Takedown};

/// Time limit for asking a tool for its version: one of them is a large program in an interpreted language.
const VERSION_TIMEOUT_NS: u64 = 120_000_000_000;
/// How long stopping a project may take beyond its containers' own limits.
const DOWN_TIMEOUT_NS: u64 = 120_000_000_000;
/// How long pulling an image may take.
const PULL_TIMEOUT_NS: u64 = 3_600_000_000_000;

/// How to bring up a Compose file.
#[derive(Clone, Debug)]
pub struct ComposeSpec {
    /// The file.
    pub file: PathBuf,
    /// Values for `${…}` in the file.
    pub env: Vec<(String, String)>,
    /// Overrides for its services, by their name.
    pub services: BTreeMap<String, ServiceSpec>,
    /// Time limit for bringing it up, nanoseconds.
    pub timeout_ns: u64,
    /// File to which Compose's output is appended.
    pub log: PathBuf,
}

/// Overrides for one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceSpec {
    /// Variables of its processes.
    pub env: Vec<(String, String)>,
    /// Resource limits of its containers.
    pub limits: Limits,
    /// Cores it may run on; empty means all.
    pub cpus: Vec<usize>,
}

/// A project that is up.
#[derive(Clone, Debug)]
pub struct Project {
    name: String,
    spec: ComposeSpec,
    /// The words every command begins with: tool, project, files.
    words: Vec<String>,
    components: Vec<Component>,
    /// Which limits the file itself sets, by service.
    limited: BTreeMap<String, LimitKinds>,
    /// One-off services that finished with status 0.
    pub done: Vec<String>,
}

impl Project {
    /// Its containers, in the order of their services' names; if a service has several, a number follows the name.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Whether a service can have these limits while it is up. It cannot if they leave out one that the file sets and
    /// that was replaced when the service came up: only Compose knows its value.
    pub fn can_have(&self, service: &str, limits: &Limits) -> bool {
        let of_file = self.limited.get(service).copied().unwrap_or_default();
        let replaced = self.spec.services.get(service).map(|over| LimitKinds::of(&over.limits));
        !of_file.need(replaced.unwrap_or_default(), LimitKinds::of(limits))
    }
}

/// A container of a project, found by its labels.
struct ProjectContainer {
    id: String,
    service: String,
    number: u32,
}

impl System {
    /// Prepares a Compose file: builds the images that need building, and pulls missing ones.
    ///
    /// # Errors
    /// No Compose, no engine; a name in the file that is taken ([`Error::Taken`]); a build that fails, with its last
    /// lines; an image that cannot be obtained.
    pub fn compose_build(&self, spec: &ComposeSpec, cancel: &Cancel) -> Result<()> {
        let engine = self.engine()?;
        let file = self.file_words(spec, &engine, cancel)?;
        let words = self.overlaid(&file, spec)?;
        let config = self.compose_config(&file, spec, cancel)?;
        self.check_names(&config, spec, &engine, &self.project_name())?;
        self.compose(&words, &["build"], spec, u64::MAX, cancel)?;
        let mut seen = Vec::new();
        for (service, image) in config.images() {
            if !seen.contains(&image) && !engine.has_image(image)? {
                self.compose_pull(&words, spec, &engine, service, image, cancel)?;
            }
            seen.push(image);
        }
        Ok(())
    }

    /// Pulls a service's image: through Docker's Compose, which knows the registries the user is logged in to, or
    /// through Podman's engine, which knows them itself.
    fn compose_pull(
        &self,
        words: &[String],
        spec: &ComposeSpec,
        engine: &Engine,
        service: &str,
        image: &str,
        cancel: &Cancel,
    ) -> Result<()> {
        let failed =
            |source| Error::ServiceImage { file: spec.file.clone(), service: service.to_owned(), source };
        if is_podmans(words) {
            return engine.ensure_image(image, cancel).map_err(|e| failed(Box::new(e)));
        }
        match self.compose(words, &["pull", service], spec, PULL_TIMEOUT_NS, cancel) {
            Ok(()) if engine.has_image(image)? => Ok(()),
            Err(Error::Cancelled { doing }) => Err(Error::Cancelled { doing }),
            pulled => {
                let said = pulled.err().map_or(String::new(), |e| e.to_string());
                Err(failed(Box::new(EngineError::no_image(image, &said))))
            }
        }
    }

    /// Brings a Compose file up. `component` turns a container of a service into a component, given its component name;
    /// containers are running when this returns, but not yet ready.
    ///
    /// # Errors
    /// No Compose, no engine; Compose's complaints about the file; a name in it that is taken ([`Error::Taken`]), in
    /// which case nothing has been brought up; a container that has already failed.
    pub fn compose_up(
        &self,
        spec: &ComposeSpec,
        cancel: &Cancel,
        component: &dyn Fn(&str, &str) -> ComponentSpec,
    ) -> Result<Project> {
        let engine = self.engine()?;
        let file = self.file_words(spec, &engine, cancel)?;
        let words = self.overlaid(&file, spec)?;
        let name = self.project_name();
        let config = self.compose_config(&file, spec, cancel)?;
        self.check_names(&config, spec, &engine, &name)?;
        self.remember(self.project_resource(&engine))?;
        let (spec, limited) = (spec.clone(), config.limited());
        let (components, done) = (Vec::new(), Vec::new());
        let mut project = Project { name, spec, words, components, limited, done };
        match self.bring_up(&mut project, &engine, cancel, component) {
            Ok(()) => Ok(project),
            Err(error) => {
                // Report the first error; anything left carries the project's label.
                let _ = self.compose_down(&project);
                Err(error)
            }
        }
    }

    fn bring_up(
        &self,
        project: &mut Project,
        engine: &Engine,
        cancel: &Cancel,
        component: &dyn Fn(&str, &str) -> ComponentSpec,
    ) -> Result<()> {
        let timeout_ns = project.spec.timeout_ns;
        let up = || self.compose(&project.words, &["up", "-d"], &project.spec, timeout_ns, cancel);
        let (socket, label) = (engine.socket().to_owned(), self.project_label());
        let asked = Resource::Asked { socket, label, what: project.name.clone() };
        // If Compose is killed midway, its pending requests have no one waiting for them.
        let is_answered = |e: &Error| !matches!(e, Error::CommandTimeout { .. } | Error::Cancelled { .. });
        self.asking(asked, up, is_answered)??;
        // Services are waited for from now on; how long Compose itself may take, its own time limit says.
        let started_ns = clock::now_ns();
        let found = self.containers_of(engine, &project.name)?;
        for one in &found {
            let several = found.iter().filter(|f| f.service == one.service).count() > 1;
            let name = if several { format!("{}{}", one.service, one.number) } else { one.service.clone() };
            let stop = stop_of(engine, &one.id);
            let spec = ComponentSpec { stop, ..component(&one.service, &name) };
            match self.adopt(&spec, engine, &one.id, started_ns, None) {
                Ok(component) => project.components.push(component),
                // A service that only prepares something has finished, before or after the list was made.
                Err(Error::EndedEarly { status, .. }) if status == "exit status 0" => {
                    project.done.push(name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes a project down, with its networks and volumes: Compose stops its services in order, and everything with
    /// the project's label is removed. Compose itself would remove by name.
    ///
    /// # Errors
    /// Something could not be removed.
    pub fn compose_down(&self, project: &Project) -> Result<Takedown> {
        let begun_ns = clock::now_ns();
        // A restarted component is another component of the same container.
        let of_project = |inner: &Inner| match &inner.origin {
            Origin::Container(handle) => project.components.iter().any(|c| c.container() == Some(&handle.id)),
            Origin::Process => false,
        };
        let present: Vec<Arc<Inner>> =
            self.monitor.all().into_iter().filter(|inner| of_project(inner)).collect();
        for inner in &present {
            inner.is_stopping.store(true, Ordering::SeqCst);
            inner.resume_to_stop();
        }
        let engine = self.engine()?;
        // Podman's tool also makes a pod, which lacks the label we search for.
        let verb = if is_podmans(&project.words) { "down" } else { "stop" };
        let never = Cancel::new();
        // One may wait for the end of another.
        let own_ns = present.iter().map(|inner| inner.spec.stop.timeout_ns);
        let timeout_ns = own_ns.fold(DOWN_TIMEOUT_NS, u64::saturating_add);
        let stopped = self.compose(&project.words, &[verb], &project.spec, timeout_ns, &never);
        // Whatever Compose reported, nothing of the project may stay.
        let removed = remove_all(engine.socket(), &format!("{PROJECT_LABEL}={}", project.name));
        for inner in &present {
            if removed.is_ok() {
                inner.wait_reaped();
            }
            if let Origin::Container(handle) = &inner.origin {
                handle.finish_logs();
            }
            self.monitor.forget(inner);
        }
        removed?;
        stopped?;
        Ok(Takedown {
            ending: Ending::Exited,
            stragglers: 0,
            escaped: 0,
            took_s: (clock::now_ns() - begun_ns) as f64 / 1e9,
        })
    }

    fn project_name(&self) -> String {
        // Projects of two runs must never coincide, and two runs may have the same name: the owner's tag sets them
        // apart.
        let name = self.name_for(&self.owner_tag()).to_ascii_lowercase().replace('.', "_");
        debug_assert!(name.starts_with(PROJECT));
        name
    }

    fn project_resource(&self, engine: &Engine) -> Resource {
        Resource::Engine { socket: engine.socket().to_owned(), label: self.project_label() }
    }

    fn project_label(&self) -> String {
        format!("{PROJECT_LABEL}={}", self.project_name())
    }

    /// The words that a command on the file alone begins with: the tool, the project and the file.
    fn file_words(&self, spec: &ComposeSpec, engine: &Engine, cancel: &Cancel) -> Result<Vec<String>> {
        if !spec.file.is_file() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Error::File { doing: "read the Compose file", path: spec.file.clone(), source });
        }
        let mut words = self.tool(spec, engine, cancel)?;
        let path = spec.file.display().to_string();
        words.extend(["-p".to_owned(), self.project_name(), "-f".to_owned(), path]);
        Ok(words)
    }

    /// The words every other command begins with: those for the file alone, and the file that is merged over it.
    fn overlaid(&self, file: &[String], spec: &ComposeSpec) -> Result<Vec<String>> {
        let mut words = file.to_vec();
        if let Some(over) = overlay(&spec.services) {
            let path = self.scratch().join("compose-overlay.yml");
            // JSON is YAML.
            fs::write(&path, over.to_string()).map_err(Error::file("write", &path))?;
            words.extend(["-f".to_owned(), path.display().to_string()]);
        }
        Ok(words)
    }

    /// The installed Compose: the Docker plugin, the standalone program, or Podman's.
    fn tool(&self, spec: &ComposeSpec, engine: &Engine, cancel: &Cancel) -> Result<Vec<String>> {
        if let Some(words) = lock(&self.engine_state).compose.clone() {
            return Ok(words);
        }
        let mut tools = vec![vec!["docker", "compose"], vec!["docker-compose"], vec!["podman-compose"]];
        if engine.is_podman() {
            tools.rotate_right(1);
        }
        for tool in tools {
            let words: Vec<String> = tool.iter().map(|word| (*word).to_owned()).collect();
            let spec = ComposeSpec { log: self.scratch().join("compose-tools.log"), ..spec.clone() };
            match self.compose(&words, &["version"], &spec, VERSION_TIMEOUT_NS, cancel) {
                Ok(()) => {
                    lock(&self.engine_state).compose = Some(words.clone());
                    return Ok(words);
                }
                // A tool that exists but hangs is no reason to use another.
                Err(error @ (Error::Cancelled { .. } | Error::CommandTimeout { .. })) => return Err(error),
                Err(_) => {}
            }
        }
        Err(Error::NoCompose { file: spec.file.clone() })
    }

    fn compose(
        &self,
        words: &[String],
        arguments: &[&str],
        spec: &ComposeSpec,
        timeout_ns: u64,
        cancel: &Cancel,
    ) -> Result<()> {
        let command = [words, &arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()].concat();
        self.compose_command(command, spec, timeout_ns, cancel)?.checked().map(drop)
    }

    /// Runs a command as Compose is run: in the file's folder, with its variables and the engine's address.
    fn compose_command(
        &self,
        command: Vec<String>,
        spec: &ComposeSpec,
        timeout_ns: u64,
        cancel: &Cancel,
    ) -> Result<CommandResult> {
        let engine = self.engine()?;
        let mut env = spec.env.clone();
        env.push(("DOCKER_HOST".to_owned(), format!("unix://{}", engine.socket().display())));
        let dir = spec.file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("/"));
        self.run_command(
            &CommandSpec {
                name: "compose".to_owned(),
                command: Command::Argv(command),
                dir: dir.to_owned(),
                env,
                timeout_ns: Some(timeout_ns),
                log: spec.log.clone(),
            },
            cancel,
        )
    }

    fn containers_of(&self, engine: &Engine, project: &str) -> Result<Vec<ProjectContainer>> {
        let filters = labelled(&format!("{PROJECT_LABEL}={project}"));
        let call = Call::new(
            "list the project's containers",
            "GET",
            format!("/containers/json?all=1&filters={filters}"),
        );
        let list = engine.call(call)?.body;
        let mut found: Vec<ProjectContainer> =
            list.as_array().into_iter().flatten().filter_map(found_in).collect();
        found.sort_by(|a, b| (&a.service, a.number).cmp(&(&b.service, b.number)));
        Ok(found)
    }
}

/// How a service is asked to end: in the time that the file gives it (`stop_grace_period`). The signal is up to the
/// engine.
fn stop_of(engine: &Engine, id: &str) -> Stop {
    let call = Call::new("inspect the container", "GET", format!("/containers/{id}/json"));
    // If it cannot be inspected, the caller's next step reports that.
    let timeout_s = engine.call(call).ok().and_then(|found| found.body["Config"]["StopTimeout"].as_u64());
    let usual = Stop::default();
    Stop { timeout_ns: timeout_s.map_or(usual.timeout_ns, |s| s.saturating_mul(SECOND_NS)), ..usual }
}

/// Whether this is Podman's own Compose rather than Docker's.
fn is_podmans(words: &[String]) -> bool {
    words.first().is_some_and(|tool| tool == "podman-compose")
}

fn found_in(container: &Value) -> Option<ProjectContainer> {
    let label = |name: &str| container["Labels"][format!("com.docker.compose.{name}")].as_str();
    // Skip containers of `compose run`.
    if label("oneoff").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return None;
    }
    Some(ProjectContainer {
        id: container["Id"].as_str()?.to_owned(),
        service: label("service")?.to_owned(),
        number: label("container-number").and_then(|n| n.parse().ok()).unwrap_or(1),
    })
}

/// The overrides as a Compose file; `None` if there are none.
fn overlay(services: &BTreeMap<String, ServiceSpec>) -> Option<Value> {
    let mut over = serde_json::Map::new();
    for (name, service) in services {
        let mut keys = serde_json::Map::new();
        let limits = &service.limits;
        if let Some(cores) = limits.cpu_cores {
            keys.insert("cpus".into(), json!(cores));
        }
        if let Some(bytes) = limits.memory_bytes {
            keys.insert("mem_limit".into(), json!(bytes));
            // Set both together: swap does not add to memory unless requested.
            keys.insert("memswap_limit".into(), json!(limits.memory_swap_bytes.unwrap_or(bytes)));
        }
        if let Some(pids) = limits.pids {
            keys.insert("pids_limit".into(), json!(pids));
        }
        if let Some(files) = limits.open_files {
            keys.insert("ulimits".into(), json!({ "nofile": { "soft": files, "hard": files } }));
        }
        let blkio: serde_json::Map<String, Value> = block_rates(&limits.block)
            .into_iter()
            .map(|(key, rates)| {
                let key = match key {
                    "ReadBps" => "device_read_bps",
                    "WriteBps" => "device_write_bps",
                    "ReadIOps" => "device_read_iops",
                    _ => "device_write_iops",
                };
                let rates: Vec<Value> =
                    rates.into_iter().map(|(disk, rate)| json!({ "path": disk, "rate": rate })).collect();
                (key.to_owned(), Value::from(rates))
            })
            .collect();
        if !blkio.is_empty() {
            keys.insert("blkio_config".into(), blkio.into());
        }
        if !service.cpus.is_empty() {
            let cpus: Vec<String> = service.cpus.iter().map(usize::to_string).collect();
            keys.insert("cpuset".into(), cpus.join(",").into());
        }
        if !service.env.is_empty() {
            let env = service.env.iter().map(|(name, value)| (name.clone(), json!(value.replace('$', "$$"))));
            keys.insert("environment".into(), Value::Object(env.collect()));
        }
        if !keys.is_empty() {
            over.insert(name.clone(), Value::Object(keys));
        }
    }
    (!over.is_empty()).then(|| json!({ "services": over }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_laid_over() {
        let limits = Limits { cpu_cores: Some(0.01), memory_bytes: Some(15 << 20), ..Limits::default() };
        let service = ServiceSpec { env: vec![("A".into(), "$x".into())], limits, cpus: vec![0, 1] };
        let mut services = BTreeMap::from([("db".to_owned(), ServiceSpec::default())]);
        assert_eq!(overlay(&services), None);
        services.insert("web".to_owned(), service);
        insta::assert_snapshot!(overlay(&services).unwrap(), @r#"{"services":{"web":{"cpus":0.01,"mem_limit":15728640,"memswap_limit":15728640,"cpuset":"0,1","environment":{"A":"$$x"}}}}"#);
    }

    #[test]
    fn containers_are_known_by_their_labels() {
        let container = |oneoff: &str| {
            json!({ "Id": "abc", "Labels": {
                "com.docker.compose.service": "web",
                "com.docker.compose.container-number": "2",
                "com.docker.compose.oneoff": oneoff,
            } })
        };
        let found = found_in(&container("False")).unwrap();
        assert_eq!((found.service.as_str(), found.number), ("web", 2));
        assert!(found_in(&container("True")).is_none());
        assert!(found_in(&json!({ "Id": "x", "Labels": {} })).is_none());
    }
}
