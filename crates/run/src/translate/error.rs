//! Why a part of a plan cannot be carried out.

use std::path::PathBuf;

use loadlab_load::spec::request::RequestError;
use loadlab_load::target::TargetError;
use loadlab_plan as plan;

/// Looks up the values of `${names}`.
pub type Names<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Why a part of a plan cannot be carried out here and now.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// A name has no value.
    #[error("{what}: {error}")]
    Name {
        /// Where the name is used.
        what: String,
        /// The unknown name.
        error: plan::UnknownName,
    },
    /// A target is invalid, does not resolve or is not allowed.
    #[error("{what}: {error}")]
    Target {
        /// The step or setting it belongs to.
        what: String,
        /// What is wrong with the target.
        error: TargetError,
    },
    /// A request cannot be built.
    #[error("{what}: {error}")]
    Request {
        /// The step it belongs to.
        what: String,
        /// What is wrong with the request.
        error: RequestError,
    },
    /// The file of a body cannot be read.
    #[error(
        "{what}: cannot read the body {path}: {error}\nhint: relative paths start at the plan's folder; `seed` \
         and `build` commands may create the file"
    )]
    Body {
        /// The step it belongs to.
        what: String,
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// A part of a journey or load is unusable.
    #[error("{what}: {message}")]
    Part {
        /// The step or load it belongs to.
        what: String,
        /// What is wrong, in words.
        message: String,
    },
    /// The server's protocol could not be determined before the load.
    #[error(
        "{what}: cannot determine the server's protocol: {message}\n\
         hint: set `protocol: http/1.1` or `http/2`"
    )]
    Unlearned {
        /// The load it belongs to.
        what: String,
        /// What went wrong, in words.
        message: String,
    },
    /// Plans can express this, but the engine cannot do it. The plan reader normally reports it earlier, with its
    /// position.
    #[error("{what}: {feature} not supported yet")]
    NotYet {
        /// The step or load it belongs to.
        what: String,
        /// The unsupported feature, followed by `is` or `are`.
        feature: &'static str,
    },
}

impl TranslateError {
    /// Whether the target is at fault: it does not resolve or is not allowed.
    pub fn is_target(&self) -> bool {
        match self {
            TranslateError::Target { error, .. } => !error.is_usage(),
            TranslateError::Unlearned { .. } => true,
            _ => false,
        }
    }
}
