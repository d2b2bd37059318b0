//! trade-processor at the source document's 360,000 connections, from four agents in network namespaces.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::agents::Agents;
use crate::command::{captured, kill_all_of, program, shown, sooner_or_later};
use crate::networks::{Bridge, Networks};
use crate::root::{root, target};
use crate::steps::Outcome;

const AGENTS: usize = 4;
const PLAN: &str = "labs/trade-processor/plan.yaml";
/// The profile whose endpoint listens on the bridge.
const PROFILE: &str = "swarm-agents";
const REQUESTS: u64 = 2_000_000;
/// The least number of connections that must be open at a time: of 360,000 users some may not have begun when the first
/// leave.
const CONNECTIONS: u64 = 350_000;
/// Time limit of the run. On two cores it takes ten minutes.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often to see whether it has ended.
const OFTEN: Duration = Duration::from_secs(1);
const QUICK: Duration = Duration::from_secs(60);

/// What the plan builds, and what downloads packages for it: the namespaces reach nothing but each other.
const BUILD: &str = "labs/trade-processor/prepare.sh";

/// Runs the profile: every request is answered, and every accepted message is stored once.
///
/// # Errors
/// The run fails, or not all of that holds.
pub fn long() -> Outcome {
    let loadlab = super::built()?;
    let built = shown(&mut program(root().join(BUILD)))?;
    ensure!(built.status.success(), "{BUILD}: {}", built.status);
    let dir = target().join("xtask/swarm-of-lab");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let networks = Networks::new(Bridge::Separate, AGENTS)?;
    let agents = Agents::start(&networks, &loadlab, &dir)?;
    let record = dir.join("record");
    let mut command = networks.system(&loadlab);
    command.args(["run", PLAN, "--profile", PROFILE]).args(agents.options());
    // The cores are busy throughout: an agent may be silent for a while, and nothing is lost by it.
    command.args(["--on-lost-agent", "degrade", "--out"]).arg(&record);
    let log = dir.join("run.log");
    let file = fs::File::create(&log)?;
    let mut child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
    let ended = sooner_or_later("the end of the run", LONGEST, OFTEN, || Ok(child.try_wait()?));
    if ended.is_err() {
        kill_all_of(&mut child)?;
    }
    let ended = ended?;
    drop(agents);
    ensure!(ended.success(), "{ended}: see {}", log.display());
    let mut report = program(&loadlab);
    let report = captured(report.arg("report").arg(&record).args(["--format", "json"]), QUICK)?;
    let report: Value = serde_json::from_str(&report.ok("loadlab report")?.stdout).context("the report")?;
    judge(&report["cases"][0]["trials"][0]["summary"])
}

fn judge(summary: &Value) -> Result<String> {
    let number = |pointer: &str| {
        summary
            .pointer(pointer)
            .and_then(Value::as_u64)
            .with_context(|| format!("the summary lacks {pointer}"))
    };
    let (ok, peak) = (number("/requests/ok")?, number("/connections/peak")?);
    ensure!(ok == REQUESTS, "{ok} of {REQUESTS} requests were answered: {}", summary["requests"]);
    ensure!(peak >= CONNECTIONS, "{peak} connections at most were open at the same time");
    let (lost, doubled) = (number("/loss/lost_max")?, number("/loss/doubled")?);
    ensure!((lost, doubled) == (0, 0) && summary["loss"]["by_id"] == true, "{}", summary["loss"]);
    let agents = summary["agents"].as_array().context("no agents")?;
    ensure!(agents.len() == AGENTS, "{} agents", agents.len());
    let is_whole =
        |agent: &Value| agent["requests"]["ok"] == REQUESTS / AGENTS as u64 && agent["lost"].is_null();
    ensure!(
        agents.iter().all(is_whole),
        "agents did not send the same number of requests, or were lost: {agents:?}"
    );
    let rate = summary["rate_per_s"]["ok"].as_f64().context("no rate")?;
    Ok(format!(
        "{AGENTS} agents in network namespaces: {ok} requests answered at {rate:.0}/s, {peak} connections at most, no \
         message lost or stored twice"
    ))
}
