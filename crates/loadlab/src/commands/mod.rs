//! The implementation of each command.

pub mod ab;
pub mod about;
#[cfg(feature = "swarm")]
pub mod agent;
pub mod baseline;
pub mod bench;
pub mod bisect;
pub mod check;
pub mod clean;
pub mod compare;
pub mod demo;
pub mod find;
pub mod history;
pub mod init;
pub mod report;
pub mod resume;
mod revisions;
pub mod run;
pub mod saved;
#[cfg(feature = "swarm")]
mod senders;
pub mod url_plan;
pub mod verdict;
pub mod why;

use std::path::Path;

use loadlab_analysis::Exit;

use crate::exit::Ended;
use crate::output;

/// Writes to the file that the user named, or else to standard output.
///
/// # Errors
/// The reason in words if it cannot be written.
pub fn deliver(to: Option<&Path>, form: output::Form, text: &str) -> Result<(), Ended> {
    let Some(path) = to else {
        output::print_as(form, text);
        return Ok(());
    };
    output::write_file(path, text).map_err(|error| Ended::error(Exit::CouldNotRun, error))
}
