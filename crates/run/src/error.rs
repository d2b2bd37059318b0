//! Why a run could not start, and the exit code that calls for.

use loadlab_analysis::Exit;
use loadlab_record::store::StoreError;

use crate::running_system::error::BringUpError;
use crate::translate::error::TranslateError;

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The record cannot be created, read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system cannot be prepared, or a build failed.
    #[error("{0}")]
    NotUp(String),
    /// A target may not be loaded or does not resolve.
    #[error(transparent)]
    Target(#[from] TranslateError),
    /// An expression in the plan is invalid.
    #[error("{file}:{line}:{column}: {error}")]
    Expression {
        /// Path of the plan file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong with the expression.
        error: loadlab_record::expr::ExprError,
    },
    /// A figure in the plan is invalid.
    #[error("figure `{name}`: {error}")]
    Figure {
        /// Name of the figure.
        name: String,
        /// What is wrong with its expression.
        error: loadlab_record::expr::ExprError,
    },
    /// Trials are to run until it is certain how the cases differ, but the allowed rounds cannot settle that.
    #[error("{0}")]
    NeverSettled(String),
    /// A file that the plan needs is missing or invalid.
    #[error(transparent)]
    Plan(#[from] loadlab_plan::PlanErrors),
    /// The run was interrupted before the first trial.
    #[error("interrupted before the first trial")]
    Interrupted,
}

impl RunError {
    /// The exit code this error calls for.
    pub fn exit(&self) -> Exit {
        match self {
            RunError::Expression { .. }
            | RunError::Figure { .. }
            | RunError::NeverSettled(_)
            | RunError::Plan(_) => Exit::BadPlan,
            RunError::Target(error) if !error.is_target() => Exit::BadPlan,
            RunError::Target(_) => Exit::CouldNotRun,
            RunError::Store(_) if self.is_other_record() => Exit::BadPlan,
            RunError::Store(_) => Exit::CouldNotRun,
            RunError::NotUp(_) => Exit::NotUp,
            RunError::Interrupted => Exit::Interrupted,
        }
    }

    /// Whether the folder has the record of another run, or other files: nothing in it is of this run.
    pub fn is_other_record(&self) -> bool {
        matches!(self, RunError::Store(error) if error.is_in_the_way())
    }
}

impl From<BringUpError> for RunError {
    fn from(error: BringUpError) -> Self {
        RunError::NotUp(error.to_string())
    }
}
