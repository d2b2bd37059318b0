//! Why an engine did not do what it was asked.

use std::path::PathBuf;

use crate::http::HttpError;

/// What to do about an image that cannot be pulled.
pub(super) const IMAGE_HINT: &str =
    "name an image that `docker images` lists, load one (`docker load`), or `build` it";

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No engine is listening.
    #[error(
        "no container engine responds; tried {}\nhint: start Docker (`systemctl start docker`) or Podman's \
         service (`systemctl start podman.socket`), or name the socket: \
         DOCKER_HOST=unix:///path/to/docker.sock, or `engine` in `system`",
        tried.join(", ")
    )]
    None {
        /// Sockets, each with its error.
        tried: Vec<String>,
    },
    /// The socket is another user's.
    #[error(
        "not permitted to use the container engine at {}\n\
         hint: run as root, or join the group that the socket belongs to (`usermod -aG docker $USER`, then log in \
         again); Podman without root has its own socket (`systemctl --user start podman.socket`)",
        socket.display()
    )]
    NotPermitted {
        /// Which.
        socket: PathBuf,
    },
    /// It is not on this machine.
    #[error(
        "the container engine `{host}` cannot be used: its containers are not processes of this machine\nhint: \
         name a local socket, such as `unix:///var/run/docker.sock`, or `docker` or `podman`"
    )]
    Elsewhere {
        /// As given.
        host: String,
    },
    /// There is no version of the API that both support.
    #[error(
        "the container engine at {} supports versions {least} to {most} of its API; loadlab supports 1.40 to \
         1.47\nhint: use Docker 19.03 or Podman 3.0, or later",
        socket.display()
    )]
    Version {
        /// Where.
        socket: PathBuf,
        /// Its oldest.
        least: String,
        /// Its newest.
        most: String,
    },
    /// The exchange failed.
    #[error("cannot {doing}: the container engine at {}: {source}", socket.display())]
    Http {
        /// What was asked.
        doing: String,
        /// At which engine.
        socket: PathBuf,
        /// Why.
        source: HttpError,
    },
    /// It answered with a refusal.
    #[error("cannot {doing}: {message} (status {status} of the container engine){}", hint_of(hint))]
    Refused {
        /// What was asked.
        doing: String,
        /// Its status.
        status: u16,
        /// Its message.
        message: String,
        /// What to do, if known.
        hint: &'static str,
    },
    /// Compose was asked to pull an image, and could not.
    #[error(
        "cannot pull the image `{image}`, which is not on this machine{}\nhint: {}",
        said_of(said),
        IMAGE_HINT
    )]
    NoImage {
        /// Which.
        image: String,
        /// What it reported; may be empty.
        said: String,
    },
    /// Its answer makes no sense.
    #[error("cannot {doing}: the container engine at {} answered without {missing}", socket.display())]
    Answer {
        /// What was asked.
        doing: String,
        /// From which engine.
        socket: PathBuf,
        /// What was looked for.
        missing: &'static str,
    },
    /// A file that an image is built from.
    #[error("cannot build the image `{image}`: cannot read {}: {source}", path.display())]
    Context {
        /// Which.
        image: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn said_of(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

impl EngineError {
    /// An image that could not be pulled on our behalf, with what was reported.
    pub(crate) fn no_image(image: &str, said: &str) -> EngineError {
        EngineError::NoImage { image: image.to_owned(), said: said.to_owned() }
    }
}

fn hint_of(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("\nhint: {hint}") }
}

/// Results of the engine.
pub type Result<T> = std::result::Result<T, EngineError>;
