//! What a component is: a process, a container, a service of a Compose file, or something that runs already.

use crate::model::template::Template;

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// For `/bin/sh -c`.
    Shell(Template),
    /// A program and its arguments, run as they are; at least one.
    Words(Vec<Template>),
}

/// How long a component lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Anew for each trial.
    #[default]
    Trial,
    /// Kept while trials of one case follow one another; two cases never run at a time.
    Case,
    /// Once.
    Experiment,
}

/// What a component is.
#[derive(Clone, Debug, PartialEq)]
pub enum ComponentKind {
    /// A process: what starts it.
    Process(Command),
    /// A container.
    Container(Box<ContainerSpec>),
    /// A service of the Compose file.
    Service(String),
    /// Something that runs already.
    External(External),
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpec {
    /// Its image.
    pub image: Image,
    /// In place of the image's command.
    pub command: Option<Command>,
    /// In place of the image's entry point.
    pub entrypoint: Vec<Template>,
    /// Ports of the component (as [`crate::PortSpec::variable`] names them) and the container's behind them.
    pub ports: Vec<(String, u16)>,
    /// `SOURCE:TARGET`, folders starting with the plan's unless they are absolute.
    pub volumes: Vec<Template>,
    /// What it is connected to.
    pub network: Network,
    /// How the engine tells whether it is well.
    pub health: Option<HealthSpec>,
    /// The user its processes run as.
    pub user: Option<String>,
}

/// Where a container's image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// It has this name.
    Named(String),
    /// It is built.
    Built {
        /// The folder, starting with the plan's unless it is absolute.
        context: String,
        /// From there on; `None` is `Dockerfile`.
        dockerfile: Option<String>,
        /// Values for its `ARG`s.
        args: Vec<(String, String)>,
        /// The stage to stop at.
        target: Option<String>,
    },
}

/// What a container is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// A bridge of the run's own.
    Run,
    /// The machine's own network.
    Host,
    /// Nothing.
    None,
    /// One that is there.
    Named(String),
}

/// A container's health check.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthSpec {
    /// What is run in the container.
    pub command: Command,
    /// From one to the next.
    pub interval_ns: u64,
    /// One that takes longer has failed.
    pub timeout_ns: u64,
    /// So many failures make it unhealthy.
    pub retries: u32,
}

/// A Compose file.
#[derive(Clone, Debug, PartialEq)]
pub struct ComposeSpec {
    /// Starting with the plan's folder unless it is absolute.
    pub file: String,
    /// For what is `${…}` in the file.
    pub env: Vec<(String, Template)>,
    /// How long all of it lives.
    pub lifetime: Lifetime,
    /// How long bringing it up may take.
    pub timeout_ns: u64,
}

/// How something that runs already is found.
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
    /// By what it tells itself.
    Prometheus {
        /// Where.
        url: Template,
        /// Labels that its metrics must have.
        labels: Vec<(String, String)>,
    },
}

/// Network namespaces of the run's own.
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
    /// What it runs, for reading.
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

    /// All texts in it that may have names left.
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
    /// Its name, or where it is built.
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
