//! The container image: built from the release folder by an engine without any other image, then used.

use std::fs;

use anyhow::ensure;

use super::{answers_all, bench_args, server};
use crate::command::captured;
use crate::dist::{QUICK, Release};
use crate::engine::Engine;
use crate::steps::Outcome;

const IMAGE: &str = "loadlab-check";
/// A plan without a system: the image has no shell that could start one.
const PLAN: &str = "loadlab: 1\nname: mounted\nload:\n  users: 2\n  requests: 40\n  journey:\n    - get: URL\n\
                    expect: [\"errors == 0\"]\n";

/// Checks the image.
///
/// # Errors
/// The engine does not start or does not build the image, or a container fails.
pub fn check(release: &Release) -> Outcome {
    let scratch = tempfile::tempdir()?;
    let server = server(scratch.path())?;
    let url = format!("http://{}/128", server.address());
    let engine = Engine::start()?;
    engine.build(&release.folder, IMAGE)?;
    let run = || {
        let mut command = engine.docker();
        command.args(["run", "--rm", "--network", "host"]);
        command
    };
    answers_all(run().arg(IMAGE).args(bench_args(&url)))?;
    let work = tempfile::tempdir()?;
    fs::write(work.path().join("plan.yaml"), PLAN.replace("URL", &url))?;
    let mount = format!("{}:/work", work.path().display());
    let mut plan = run();
    plan.args(["--volume", &mount, IMAGE, "run", "plan.yaml", "--out", "record"]);
    captured(&mut plan, QUICK)?.ok("loadlab run in a container")?;
    ensure!(work.path().join("record/report.html").is_file(), "the run in the container leaves no report");
    engine.end()?;
    Ok("the engine builds the image, which benches nginx and runs a mounted plan".to_owned())
}
