//! Why an operation on the system failed: what, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

use loadlab_record::text::units::format_duration_ns;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong while a system is brought up, watched or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A component's port was in use before the component started.
    #[error(
        "component `{component}`: port {port} is already taken{by}\nhint: stop that program, or give the \
         component another port; `loadlab clean` removes what a killed run left behind"
    )]
    PortTaken {
        /// The component that was to use the port.
        component: String,
        /// The port in use.
        port: u16,
        /// ` by pid 7 (nginx: master)`, or empty when the owner cannot be seen.
        by: String,
    },

    /// A limit could not be applied, or reads back as something else.
    #[error("component `{component}`: cannot limit {limit}: {why}\nhint: {hint}")]
    Limit {
        /// The component to be limited.
        component: String,
        /// The limit, such as `cpu to 0.01 cores`.
        limit: String,
        /// Why it could not be applied.
        why: String,
        /// What the user can do.
        hint: String,
    },

    /// A process could not be started.
    #[error("component `{component}`: cannot start `{command}` in {}: {why}\nhint: {hint}", dir.display())]
    Start {
        /// The component to be started.
        component: String,
        /// The command to be run.
        command: String,
        /// The folder it was to run in.
        dir: PathBuf,
        /// What failed, in words.
        why: String,
        /// What the user can do.
        hint: String,
    },

    /// A component of this name is already up.
    #[error("component `{component}` is already up, as pid {pid}\nhint: take it down first")]
    AlreadyUp {
        /// The component's name.
        component: String,
        /// Pid of its first process.
        pid: u32,
    },

    /// A component ended before it was ready.
    #[error("component `{component}` ended before it was ready: {status}{tail}{}", ended_hint(status))]
    EndedEarly {
        /// The component that ended.
        component: String,
        /// How it ended, in words.
        status: String,
        /// The last lines of its logs.
        tail: Tail,
    },

    /// A component was not ready before its deadline.
    #[error(
        "component `{component}` was not ready within {}: {waited_for}: {last}{tail}\nhint: {}",
        format_duration_ns(*timeout_ns as f64),
        not_ready_hint(*oom_kills)
    )]
    NotReady {
        /// The component that was not ready.
        component: String,
        /// Its time limit, nanoseconds.
        timeout_ns: u64,
        /// The readiness check, such as `GET http://…`.
        waited_for: String,
        /// Result of the last attempt.
        last: String,
        /// How many of its processes the kernel killed for memory in the meantime.
        oom_kills: u64,
        /// The last lines of its logs.
        tail: Tail,
    },

    /// The wait was cancelled.
    #[error("interrupted while {doing}")]
    Cancelled {
        /// What was being done, such as `waiting for component `db``.
        doing: String,
    },

    /// A command of the plan exceeded its time limit.
    #[error(
        "{name} did not finish within {}: `{command}`{tail}\nhint: allow more time, or check what it is waiting for",
        format_duration_ns(*timeout_ns as f64)
    )]
    CommandTimeout {
        /// The command's name, such as `seed`.
        name: String,
        /// The command that ran.
        command: String,
        /// Its time limit, nanoseconds.
        timeout_ns: u64,
        /// The last lines of its output.
        tail: Tail,
    },

    /// A command of the plan failed.
    #[error("{name} failed with {status}: `{command}`{tail}")]
    CommandFailed {
        /// The command's name, such as `seed`.
        name: String,
        /// The command that ran.
        command: String,
        /// How it ended, in words.
        status: String,
        /// The last lines of its output.
        tail: Tail,
    },

    /// Processes survived SIGKILL.
    #[error(
        "component `{component}`: still running {} after SIGKILL: pid {}\nhint: they hang in the kernel, \
         probably on a disk or a network file system; run `loadlab clean` later to try again",
        format_duration_ns(*waited_ns as f64),
        list(pids)
    )]
    StillAlive {
        /// The component they belong to.
        component: String,
        /// The surviving processes.
        pids: Vec<u32>,
        /// How long we waited after SIGKILL, nanoseconds.
        waited_ns: u64,
    },

    /// A component has a process that this user may not signal.
    #[error(
        "component `{component}`: not permitted to signal its process {pid}, which belongs to another user\n\
         hint: run loadlab as root"
    )]
    NotSignalled {
        /// The component it belongs to.
        component: String,
        /// The process.
        pid: u32,
    },

    /// A file or folder could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was being done: `create`, `read` …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },

    /// The run's network namespace cannot be created.
    #[error(
        "cannot put the run in its own network namespace: {source}\n\
         hint: this needs root (the capability CAP_SYS_ADMIN); without it, run all of loadlab in one: \
         `unshare -rn sh -c 'ip link set lo up && exec loadlab run …'`, without `isolate`"
    )]
    Isolate {
        /// The underlying OS error.
        source: std::io::Error,
    },

    /// A link could not be made or changed.
    #[error("cannot {doing}: {why}\nhint: {hint}")]
    Network {
        /// What was being done, in words.
        doing: String,
        /// Why it failed.
        why: String,
        /// What the user can do.
        hint: &'static str,
    },

    /// The operation needs a component with a network link.
    #[error(
        "cannot {doing} component `{component}`: it is not up, or has no network link\n\
         hint: `isolate: true` in the plan gives each process component one"
    )]
    NoLink {
        /// The component the operation was for.
        component: String,
        /// `cut off`.
        doing: &'static str,
    },

    /// A component that should already be running was not found.
    #[error("component `{component}`: {what}\nhint: {hint}")]
    NotThere {
        /// The component's name.
        component: String,
        /// What was looked for.
        what: String,
        /// What the user can do.
        hint: &'static str,
    },

    /// No Compose tool is installed.
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
        /// The name that is taken.
        name: String,
        /// What the user can do.
        hint: &'static str,
    },

    /// It cannot be determined what Compose would create from its file.
    #[error("cannot determine what {} would create: {why}", file.display())]
    ComposeConfig {
        /// The Compose file.
        file: PathBuf,
        /// Why not, perhaps with a hint.
        why: String,
    },

    /// The image of a Compose file's service cannot be obtained.
    #[error("service `{service}` of {}: {source}", file.display())]
    ServiceImage {
        /// The Compose file.
        file: PathBuf,
        /// The service whose image it is.
        service: String,
        /// Why it cannot be obtained.
        source: Box<crate::engine::EngineError>,
    },

    /// The container engine failed on a component.
    #[error("component `{component}`: {source}")]
    Container {
        /// The component's name.
        component: String,
        /// The engine's error.
        source: Box<crate::engine::EngineError>,
    },

    /// The container engine failed on something that is not a component.
    #[error(transparent)]
    Engine(Box<crate::engine::EngineError>),

    /// The guardian could not be started.
    #[error("cannot start the guardian `{}`: {source}", exe.display())]
    Guardian {
        /// The program that was to be run.
        exe: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },

    /// The OS refused a thread or another basic resource.
    #[error("cannot {doing}: {source}")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// The underlying OS error.
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

    /// Makes the closure for `map_err` on file operations.
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

/// Without a mistake, a server ends because it went to the background.
fn ended_hint(status: &str) -> &'static str {
    match status {
        "exit status 0" => {
            "\nhint: a component must go on running: start a server in the foreground, as with \
             `nginx -g \"daemon off;\"`"
        }
        _ => "",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_goes_to_the_background_is_told_to_stay() {
        let ended = |status: &str| {
            let (component, status) = ("web".to_owned(), status.to_owned());
            Error::EndedEarly { component, status, tail: Tail::default() }.to_string()
        };
        insta::assert_snapshot!(ended("exit status 0"), @r#"
        component `web` ended before it was ready: exit status 0
        it wrote no output
        hint: a component must go on running: start a server in the foreground, as with `nginx -g "daemon off;"`
        "#);
        assert!(!ended("exit status 1").contains("hint"));
    }
}
