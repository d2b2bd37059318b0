//! Why the system is not up.

use std::path::PathBuf;

use crate::translate::error::TranslateError;

/// Why the system is not up.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The system's own error.
    #[error(transparent)]
    System(#[from] loadlab_system::Error),
    /// Invalid probe definition.
    #[error(transparent)]
    Probe(#[from] loadlab_system::ProbeError),
    /// An endpoint that does not provide anything.
    #[error(transparent)]
    Scrape(#[from] loadlab_system::ScrapeError),
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
    /// Something that the plan needs is missing.
    #[error("{0}")]
    Missing(String),
    /// Something happened before the load began.
    #[error("{0}")]
    BeforeLoad(String),
}
