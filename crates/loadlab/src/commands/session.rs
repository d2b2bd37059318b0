//! What commands that measure do alike: they prepare this process, show a run while it makes its record, and serve the
//! report afterwards.

use std::time::Duration;

use loadlab_load::resident;
use loadlab_run::{RunError, RunOptions};
use loadlab_system::{Cancel, open_files};

use super::report;
use crate::exit::CommandEnd;
use crate::signals;
use crate::view::View;

/// Prepares this process for a load: it may open as many files as its hard limit allows, it gives back the memory of
/// its start, and Ctrl-C cancels the token.
///
/// # Errors
/// The signals cannot be handled: how the command ends.
pub fn prepare_process() -> Result<Cancel, CommandEnd> {
    // A limit that cannot be raised stays as it is; the preflight reports the consequences.
    let _ = open_files::raise();
    resident::leave_start_behind();
    signals::cancel_on_signal()
}

/// A run with a record, as the user sees it.
pub struct Session {
    /// Shows what happens.
    pub view: View,
    /// Ends the run, and the serving of its report.
    pub cancel: Cancel,
    /// How long the report is served if nobody closes it; `None` for ever.
    pub wait: Option<Duration>,
}

impl Session {
    /// Does the `work`, which makes the record, and ends with what `finish` makes of the result.
    pub fn record<T>(
        &self,
        mut options: RunOptions,
        work: impl FnOnce(&RunOptions) -> Result<T, RunError>,
        finish: impl FnOnce(Result<T, RunError>) -> CommandEnd,
    ) -> CommandEnd {
        let result = work(&options);
        // Releases the agents.
        options.senders = None;
        self.view.done();
        // A record that already existed belongs to another run.
        let is_ours = !result.as_ref().is_err_and(RunError::is_other_record);
        let ended = finish(result);
        let page = || is_ours.then(|| report::page_of(&options.out)).flatten();
        self.view.serve_report(ended, self.wait, &self.cancel, page)
    }
}
