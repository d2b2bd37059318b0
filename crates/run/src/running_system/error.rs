//! Why the system did not come up, or could not be removed.

use std::path::PathBuf;

use crate::translate::error::TranslateError;

/// Why the system did not come up, or could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum BringUpError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// An error of the system layer.
    #[error(transparent)]
    System(#[from] loadlab_system::Error),
    /// Invalid probe definition.
    #[error(transparent)]
    Probe(#[from] loadlab_system::ProbeError),
    /// A metrics endpoint cannot be read.
    #[error(transparent)]
    Scrape(#[from] loadlab_system::ScrapeError),
    /// No free port.
    #[error("cannot find a free port for `{component}`: {error}")]
    Port {
        /// Name of the component.
        component: String,
        /// The I/O error.
        error: std::io::Error,
    },
    /// A folder that is needed before anything is started cannot be created.
    #[error("cannot create {}: {error}", path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// Something that the plan needs is missing.
    #[error("{0}")]
    Missing(String),
    /// Something failed before the load started.
    #[error("{0}")]
    BeforeLoad(String),
}
