//! Why an engine did not do what it was asked.

use std::path::PathBuf;

use crate::http::HttpError;

/// Hint for an image that cannot be pulled.
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
        /// The sockets that were tried, each with its error.
        tried: Vec<String>,
    },
    /// The socket belongs to another user.
    #[error(
        "not permitted to use the container engine at {}\n\
         hint: run as root, or join the group that the socket belongs to (`usermod -aG docker $USER`, then log in \
         again); Podman without root has its own socket (`systemctl --user start podman.socket`)",
        socket.display()
    )]
    NotPermitted {
        /// The engine's socket.
        socket: PathBuf,
    },
    /// The engine is on another machine.
    #[error(
        "the container engine `{host}` cannot be used: its containers are not processes of this machine\nhint: \
         name a local socket, such as `unix:///var/run/docker.sock`, or `docker` or `podman`"
    )]
    Elsewhere {
        /// The engine's address, as given.
        host: String,
    },
    /// Engine and loadlab support no common API version.
    #[error(
        "the container engine at {} supports versions {least} to {most} of its API; loadlab supports 1.40 to \
         1.47\nhint: use Docker 19.03 or Podman 3.0, or later",
        socket.display()
    )]
    Version {
        /// The engine's socket.
        socket: PathBuf,
        /// The oldest API version it supports.
        least: String,
        /// The newest API version it supports.
        most: String,
    },
    /// The HTTP exchange with the engine failed.
    #[error("cannot {doing}: the container engine at {}: {source}", socket.display())]
    Http {
        /// What was being done, in words.
        doing: String,
        /// The engine's socket.
        socket: PathBuf,
        /// The HTTP error.
        source: HttpError,
    },
    /// The engine refused the request.
    #[error("cannot {doing}: {message} (status {status} of the container engine){}", hint_of(hint))]
    Refused {
        /// What was being done, in words.
        doing: String,
        /// HTTP status of the response.
        status: u16,
        /// The engine's message.
        message: String,
        /// What the user can do, if known; else empty.
        hint: &'static str,
    },
    /// Compose was asked to pull an image, and failed.
    #[error(
        "cannot pull the image `{image}`, which is not on this machine{}\nhint: {}",
        said_of(said),
        IMAGE_HINT
    )]
    NoImage {
        /// The image's name.
        image: String,
        /// What Compose reported; may be empty.
        said: String,
    },
    /// The engine's response lacks something.
    #[error("cannot {doing}: the container engine at {} answered without {missing}", socket.display())]
    Incomplete {
        /// What was being done, in words.
        doing: String,
        /// The engine's socket.
        socket: PathBuf,
        /// What is missing from the response.
        missing: &'static str,
    },
    /// A file for an image build cannot be read.
    #[error("cannot build the image `{image}`: cannot read {}: {source}", path.display())]
    Context {
        /// The image to be built.
        image: String,
        /// The file that cannot be read.
        path: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
}

fn said_of(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

impl EngineError {
    /// An image that Compose could not pull on our behalf, with what it reported.
    pub(crate) fn no_image(image: &str, said: &str) -> EngineError {
        EngineError::NoImage { image: image.to_owned(), said: said.to_owned() }
    }
}

fn hint_of(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("\nhint: {hint}") }
}

/// Result type of the engine module.
pub type Result<T> = std::result::Result<T, EngineError>;
