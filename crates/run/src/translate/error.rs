//! Why a part of a plan cannot be carried out.

use std::path::PathBuf;

use loadlab_load::spec::request::RequestError;
use loadlab_load::target::TargetError;
use loadlab_plan as plan;

/// Puts values in for `${names}`.
pub type Names<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Why a part of a plan cannot be carried out here and now.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// A name without a value.
    #[error("{what}: {error}")]
    Name {
        /// Where it is used.
        what: String,
        /// Which.
        error: plan::UnknownName,
    },
    /// A target.
    #[error("{what}: {error}")]
    Target {
        /// Which step.
        what: String,
        /// Why.
        error: TargetError,
    },
    /// A request that cannot be written.
    #[error("{what}: {error}")]
    Request {
        /// Which step.
        what: String,
        /// Why.
        error: RequestError,
    },
    /// A body's file.
    #[error(
        "{what}: cannot read the body {path}: {error}\nhint: relative paths start at the plan's folder; `seed` \
         and `build` commands may create the file"
    )]
    Body {
        /// Which step.
        what: String,
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// An unusable part of a journey.
    #[error("{what}: {words}")]
    Part {
        /// Which step or load.
        what: String,
        /// Why.
        words: String,
    },
    /// The server's protocol could not be determined before the load.
    #[error(
        "{what}: cannot determine the server's protocol: {words}\nhint: set `protocol: http/1.1` or `http/2`"
    )]
    Unlearned {
        /// Which load.
        what: String,
        /// Why.
        words: String,
    },
    /// Something that plans can express and the engine cannot do. The plan reports it at its place before this.
    #[error("{what}: {feature} not supported yet")]
    NotYet {
        /// Which step or load.
        what: String,
        /// What, and `is` or `are`.
        feature: &'static str,
    },
}

impl TranslateError {
    /// The target is at fault: it does not resolve, or it is not allowed.
    pub fn is_target(&self) -> bool {
        match self {
            TranslateError::Target { error, .. } => !error.is_usage(),
            TranslateError::Unlearned { .. } => true,
            _ => false,
        }
    }
}
