//! `loadlab baseline`: which run the runs of a plan are compared with.

use std::path::Path;

use loadlab_analysis::Exit;
use loadlab_record::store::read_summaries;

use crate::args::BaselineArgs;
use crate::exit::CommandEnd;
use crate::output;
use crate::runs::baselines::{Baselines, place_of};
use crate::runs::{found, is_run, named};

/// `loadlab baseline`.
pub fn command(args: &BaselineArgs) -> CommandEnd {
    match done(args) {
        Ok(text) => {
            output::print(&text);
            CommandEnd::with(Exit::Ok)
        }
        Err(error) => CommandEnd::error(Exit::BadPlan, error),
    }
}

fn done(args: &BaselineArgs) -> Result<String, String> {
    let Some(run) = &args.run else {
        let all = Baselines::of(&args.dir)?;
        if all.runs.is_empty() {
            return Ok(format!("no baseline in {}\n", args.dir.display()));
        }
        return Ok(all.runs.iter().map(|(plan, run)| format!("{plan}: {run}\n")).collect());
    };
    if args.remove {
        return remove(run, &args.dir);
    }
    let dir = found(run, &args.dir)?;
    let manifest = read_summaries(&dir).map_err(|e| e.to_string())?.manifest;
    let (folder, name) = place_of(&dir)?;
    let mut all = Baselines::of(&folder)?;
    all.runs.insert(manifest.name.clone(), name.clone());
    all.write()?;
    Ok(format!("{name} is the baseline of `{}`\n", manifest.name))
}

/// Uses only the name in the list: a run that cannot be read, or is gone, can still be removed from the list.
fn remove(run: &Path, runs: &Path) -> Result<String, String> {
    let dir = named(run, runs)?;
    let (folder, name) = match (dir.parent(), dir.file_name()) {
        _ if is_run(&dir) => place_of(&dir)?,
        (Some(above), Some(name)) if !above.as_os_str().is_empty() => {
            (above.to_owned(), name.to_string_lossy().into_owned())
        }
        _ => (runs.to_owned(), dir.to_string_lossy().into_owned()),
    };
    let mut all = Baselines::of(&folder)?;
    let plan = all.runs.iter().find(|(_, baseline)| **baseline == name).map(|(plan, _)| plan.clone());
    let plan = plan.ok_or_else(|| format!("{name} is not a baseline in {}", folder.display()))?;
    all.runs.remove(&plan);
    all.write()?;
    Ok(format!("`{plan}` no longer has a baseline\n"))
}
