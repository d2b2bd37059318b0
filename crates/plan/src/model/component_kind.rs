//! What a component is: a process, a container, a service of a Compose file, or something that already runs.

use crate::model::template::Template;

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// For `/bin/sh -c`.
    Shell(Template),
    /// A program and its arguments, run directly; at least one.
    Words(Vec<Template>),
}

/// How long a component lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Started anew for each trial.
    #[default]
    Trial,
    /// Kept while trials of one case follow one another; components of two cases never run at the same time.
    Case,
    /// Started once.
    Experiment,
}

/// What a component is.
#[derive(Clone, Debug, PartialEq)]
pub enum ComponentKind {
    /// A process: its command.
    Process(Command),
    /// A container.
    Container(Box<ContainerSpec>),
    /// A service of the Compose file.
    Service(String),
    /// Something that already runs.
    External(External),
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpec {
    /// Its image.
    pub image: Image,
    /// Replaces the image's command.
    pub command: Option<Command>,
    /// Replaces the image's entry point.
    pub entrypoint: Vec<Template>,
    /// Ports of the component (as named by [`crate::PortSpec::variable`]), and the container's port for each.
    pub ports: Vec<(String, u16)>,
    /// `SOURCE:TARGET`, folders relative to the plan's unless they are absolute.
    pub volumes: Vec<Template>,
    /// The network it is connected to.
    pub network: Network,
    /// How the engine checks its health.
    pub health: Option<HealthSpec>,
    /// The user its processes run as.
    pub user: Option<String>,
}

/// Where a container's image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// An image with this name.
    Named(String),
    /// An image that is built.
    Built {
        /// The folder, relative to the plan's unless it is absolute.
        context: String,
        /// The Dockerfile, relative to the context; `None` is `Dockerfile`.
        dockerfile: Option<String>,
        /// Values for its `ARG`s.
        args: Vec<(String, String)>,
        /// The stage to stop at.
        target: Option<String>,
    },
}

/// The network a container is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The run's own bridge.
    Run,
    /// The machine's own network.
    Host,
    /// No network.
    None,
    /// An existing network of this name.
    Named(String),
}

/// A container's health check.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthSpec {
    /// The command run in the container.
    pub command: Command,
    /// Interval between checks.
    pub interval_ns: u64,
    /// Time limit of a check; a check that takes longer has failed.
    pub timeout_ns: u64,
    /// Number of failures that make it unhealthy.
    pub retries: u32,
}

/// A Compose file.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposeSpec {
    /// Path of the file, relative to the plan's folder unless it is absolute.
    pub file: String,
    /// Values for `${…}` in the file.
    pub env: Vec<(String, Template)>,
    /// How long all its services live.
    pub lifetime: Lifetime,
    /// Time limit for bringing it up.
    pub timeout_ns: u64,
}

/// How something that already runs is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum External {
    /// By its pid.
    Pid(u32),
    /// By its program, or the beginning of its command line.
    Command(String),
    /// By its control group.
    Cgroup(String),
    /// By a container's name or id.
    Container(String),
    /// By the metrics it exports.
    Prometheus {
        /// URL of the metrics.
        url: Template,
        /// Labels that its metrics must have.
        labels: Vec<(String, String)>,
    },
}

/// The run's network namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// None: the machine's network.
    #[default]
    None,
    /// One for the whole run.
    Shared,
    /// One for the load and one for each component, joined by links.
    Each,
}

impl ComponentKind {
    /// Its description, for reading.
    pub fn text(&self) -> String {
        match self {
            ComponentKind::Process(command) => command_text(command),
            ComponentKind::Container(container) => {
                let command = container.command.as_ref().map(|c| format!(" {}", command_text(c)));
                format!("container {}{}", container.image.text(), command.unwrap_or_default())
            }
            ComponentKind::Service(service) => format!("service {service} of the Compose file"),
            ComponentKind::External(external) => format!("running already: {}", external.text()),
        }
    }

    /// All texts in it that may still contain names.
    pub fn templates(&self) -> Vec<&Template> {
        match self {
            ComponentKind::Process(command) => texts_of(command).collect(),
            ComponentKind::Container(container) => {
                let command = container.command.iter().flat_map(texts_of);
                command.chain(&container.entrypoint).chain(&container.volumes).collect()
            }
            ComponentKind::External(External::Prometheus { url, .. }) => vec![url],
            ComponentKind::Service(_) | ComponentKind::External(_) => Vec::new(),
        }
    }
}

impl Image {
    /// Its name, or its build folder.
    pub fn text(&self) -> String {
        match self {
            Image::Named(name) => name.clone(),
            Image::Built { context, .. } => format!("built from {context}"),
        }
    }
}

impl External {
    /// How it is found, in words.
    pub fn text(&self) -> String {
        match self {
            External::Pid(pid) => format!("pid {pid}"),
            External::Command(command) => format!("command `{command}`"),
            External::Cgroup(path) => format!("cgroup {path}"),
            External::Container(name) => format!("container {name}"),
            External::Prometheus { url, .. } => format!("metrics of {url}"),
        }
    }
}

fn texts_of(command: &Command) -> impl Iterator<Item = &Template> {
    let (line, words) = match command {
        Command::Shell(line) => (Some(line), &[][..]),
        Command::Words(words) => (None, words.as_slice()),
    };
    line.into_iter().chain(words)
}

fn command_text(command: &Command) -> String {
    texts_of(command).map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
