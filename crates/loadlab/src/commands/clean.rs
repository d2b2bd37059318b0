//! `loadlab clean`: removes what killed runs left behind.

use loadlab_analysis::Exit;
use loadlab_record::text::units::plural;
use loadlab_system::ledger::{clean, state};

use crate::args::CleanArgs;
use crate::exit::{CommandEnd, note};
use crate::output;

/// Runs the command.
pub fn command(args: &CleanArgs) -> CommandEnd {
    let options = clean::Cleaning { dry_run: args.dry_run, forget: args.forget };
    let state_dir = state::default_dir();
    let items = match clean::clean(&state_dir, options) {
        Ok(items) => items,
        Err(error) => return CommandEnd::error(Exit::CouldNotRun, error),
    };
    // Leftovers without a state file. Leftovers that have one, and could not be removed, are not reported twice.
    let mut items = items;
    for stray in clean::clean_engines(options) {
        if !items.iter().any(|item| item.what == stray.what) {
            items.push(stray);
        }
    }
    let word = if args.dry_run { "would remove" } else { "removed" };
    let mut left = 0;
    for item in &items {
        match &item.result {
            Ok(()) => output::print(&format!("{word} {} of run {}\n", item.what, item.run_id)),
            Err(why) => {
                left += 1;
                note(&format!("{} of run {} still exists: {why}", item.what, item.run_id));
            }
        }
    }
    for run_id in clean::elsewhere(&state_dir) {
        note(&format!("run {run_id} was left alone: it belongs to another pid namespace"));
    }
    if items.is_empty() {
        output::print("nothing to clean\n");
    }
    if left > 0 && !args.forget {
        CommandEnd::error(Exit::Failed, format!("{} could not be removed", plural(left, "item", "items")))
    } else {
        CommandEnd::with(Exit::Ok)
    }
}
