//! Why something of the system failed: what, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

use loadlab_record::units::format_duration_ns;

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What may go wrong while a system is brought up, watched, or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A component's port is in use before it was started.
    #[error(
        "component `{component}`: port {port} is already taken{by}\nhint: stop that program, or give the \
         component another port; `loadlab clean` removes what a killed run left behind"
    )]
    PortTaken {
        /// Which component wants it.
        component: String,
        /// Which.
        port: u16,
        /// ` by pid 7 (nginx: master)`, or empty when the owner cannot be seen.
        by: String,
    },

    /// A limit could not be applied, or reads back as something else.
    #[error("component `{component}`: cannot limit {limit}: {why}\nhint: {hint}")]
    Limit {
        /// Whose.
        component: String,
        /// `cpu to 0.01 cores`.
        limit: String,
        /// Why not.
        why: String,
        /// What to do.
        hint: String,
    },

    /// A process could not be started.
    #[error("component `{component}`: cannot start `{command}` in {}: {why}\nhint: {hint}", dir.display())]
    Start {
        /// Which.
        component: String,
        /// What was to be run.
        command: String,
        /// Where.
        dir: PathBuf,
        /// What failed.
        why: String,
        /// What to do.
        hint: String,
    },

    /// A component of this name is up.
    #[error("component `{component}` is already up, as pid {pid}\nhint: take it down first")]
    AlreadyUp {
        /// Which.
        component: String,
        /// Its process.
        pid: u32,
    },

    /// A component ended while it was waited for.
    #[error("component `{component}` ended before it was ready: {status}{tail}")]
    EndedEarly {
        /// Which.
        component: String,
        /// How it ended, in words.
        status: String,
        /// The last lines it wrote.
        tail: Tail,
    },

    /// A component was not ready in time.
    #[error(
        "component `{component}` was not ready within {}: {waited_for}: {last}{tail}\nhint: {}",
        format_duration_ns(*within_ns as f64),
        not_ready_hint(*oom_kills)
    )]
    NotReady {
        /// Which.
        component: String,
        /// How long it had.
        within_ns: u64,
        /// `GET http://…`.
        waited_for: String,
        /// Result of the last attempt.
        last: String,
        /// How many of its processes the kernel killed for memory meanwhile.
        oom_kills: u64,
        /// The last lines it wrote.
        tail: Tail,
    },

    /// The wait was cancelled.
    #[error("interrupted while {doing}")]
    Cancelled {
        /// `waiting for component `db``.
        doing: String,
    },

    /// A command of the plan took too long.
    #[error(
        "{name} did not finish within {}: `{command}`{tail}\nhint: allow more time, or check what it is waiting for",
        format_duration_ns(*within_ns as f64)
    )]
    CommandTimeout {
        /// `seed`.
        name: String,
        /// What ran.
        command: String,
        /// How long it had.
        within_ns: u64,
        /// Its last lines.
        tail: Tail,
    },

    /// A command of the plan failed.
    #[error("{name} failed with {status}: `{command}`{tail}")]
    CommandFailed {
        /// `seed`.
        name: String,
        /// What ran.
        command: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        tail: Tail,
    },

    /// Processes that survive being killed.
    #[error(
        "component `{component}`: still running {} after SIGKILL: pid {}\nhint: they hang in the kernel, \
         probably on a disk or a network file system; run `loadlab clean` later to try again",
        format_duration_ns(*waited_ns as f64),
        list(pids)
    )]
    StillAlive {
        /// Whose.
        component: String,
        /// Which.
        pids: Vec<u32>,
        /// How long we waited.
        waited_ns: u64,
    },

    /// A file or folder could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// `create`, `read` …
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },

    /// No network namespace can be created.
    #[error(
        "cannot put the run in its own network namespace: {source}\n\
         hint: this needs root (the capability CAP_SYS_ADMIN); without it, run all of loadlab in one: \
         `unshare -rn sh -c 'ip link set lo up && exec loadlab run …'`, without `isolate`"
    )]
    Isolate {
        /// Why.
        source: std::io::Error,
    },

    /// A link could not be made or changed.
    #[error("cannot {doing}: {why}\nhint: {hint}")]
    Network {
        /// What.
        doing: String,
        /// Why.
        why: String,
        /// What to do.
        hint: &'static str,
    },

    /// A component without a network of its own.
    #[error(
        "cannot {doing} component `{component}`: it is not up, or has no network link\n\
         hint: `isolate: true` in the plan gives each process component one"
    )]
    NoLink {
        /// Which.
        component: String,
        /// `cut off`.
        doing: &'static str,
    },

    /// Something that should already be running.
    #[error("component `{component}`: {what}\nhint: {hint}")]
    NotThere {
        /// Which.
        component: String,
        /// What was looked for.
        what: String,
        /// What to do.
        hint: &'static str,
    },

    /// No Compose is installed.
    #[error(
        "no Compose tool is installed to bring {} up\n\
         hint: install Docker's plugin (`docker compose version` must work), `docker-compose`, or `podman-compose`",
        file.display()
    )]
    NoCompose {
        /// The Compose file.
        file: PathBuf,
    },

    /// A Compose file names something that already exists and does not belong to the run.
    #[error(
        "{} would take the {kind} `{name}`, which already exists and does not belong to this run\nhint: {hint}",
        file.display()
    )]
    Taken {
        /// The Compose file.
        file: PathBuf,
        /// `volume`, `network` or `container`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What to do.
        hint: &'static str,
    },

    /// What Compose makes of its file cannot be determined.
    #[error("cannot determine what {} would create: {why}", file.display())]
    ComposeConfig {
        /// The Compose file.
        file: PathBuf,
        /// Why not, perhaps with a hint.
        why: String,
    },

    /// An image of a Compose file's service.
    #[error("service `{service}` of {}: {source}", file.display())]
    ServiceImage {
        /// The Compose file.
        file: PathBuf,
        /// Whose image.
        service: String,
        /// Why it cannot be obtained.
        source: Box<crate::engine::EngineError>,
    },

    /// A container's engine.
    #[error("component `{component}`: {source}")]
    Container {
        /// Which.
        component: String,
        /// Why.
        source: Box<crate::engine::EngineError>,
    },

    /// The container engine, for something that is not a component.
    #[error(transparent)]
    Engine(Box<crate::engine::EngineError>),

    /// The guardian could not be started.
    #[error("cannot start the guardian `{}`: {source}", exe.display())]
    Guardian {
        /// What was to be run.
        exe: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// The kernel refused a thread or another thing every process may have.
    #[error("cannot {doing}: {source}")]
    Os {
        /// What.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl From<crate::engine::EngineError> for Error {
    fn from(error: crate::engine::EngineError) -> Error {
        Error::Engine(Box::new(error))
    }
}

impl Error {
    /// Wraps an engine's error about a component.
    pub fn of_container(component: &str, source: crate::engine::EngineError) -> Error {
        Error::Container { component: component.to_owned(), source: Box::new(source) }
    }

    /// For `map_err` on file operations.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { doing, path, source }
    }
}

fn not_ready_hint(oom_kills: u64) -> &'static str {
    match oom_kills {
        0 => "check that it listens where `ready` looks, or allow more time",
        1 => "the kernel killed one of its processes for lack of memory: give it more",
        _ => "the kernel killed some of its processes for lack of memory: give it more",
    }
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The last lines of some logs, as an indented block after a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Each log with its last lines; logs with none are left out.
    pub logs: Vec<(PathBuf, Vec<String>)>,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.logs.is_empty() {
            return f.write_str("\nit wrote no output");
        }
        for (path, lines) in &self.logs {
            write!(f, "\nlast lines of {}:", path.display())?;
            for line in lines {
                write!(f, "\n  | {line}")?;
            }
        }
        Ok(())
    }
}
