//! `loadlab baseline`: which run the runs of a plan are compared with.

use loadlab_analysis::Exit;
use loadlab_record::store::read_summaries;

use crate::args::BaselineArgs;
use crate::exit::Ended;
use crate::output;
use crate::runs::baselines::{Baselines, place_of};
use crate::runs::found;

/// `loadlab baseline`.
pub fn command(args: &BaselineArgs) -> Ended {
    match done(args) {
        Ok(text) => {
            output::print(&text);
            Ended::with(Exit::Ok)
        }
        Err(error) => Ended::error(Exit::BadPlan, error),
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
    let dir = found(run, &args.dir)?;
    let manifest = read_summaries(&dir).map_err(|e| e.to_string())?.manifest;
    let (folder, name) = place_of(&dir)?;
    let mut all = Baselines::of(&folder)?;
    let text = match args.remove {
        false => {
            all.runs.insert(manifest.name.clone(), name.clone());
            format!("{name} is the baseline of `{}`\n", manifest.name)
        }
        true if all.name_of(&manifest.name) == Some(&name) => {
            all.runs.remove(&manifest.name);
            format!("`{}` has no baseline any more\n", manifest.name)
        }
        true => return Err(format!("{name} is not the baseline of `{}`", manifest.name)),
    };
    all.write()?;
    Ok(text)
}
