//! A NATS server beside a system, and agents in network namespaces, started by hand as a user would start them.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command::{Ends, captured, find, program, soon};
use crate::networks::{HERE, Networks};

const QUICK: Duration = Duration::from_secs(20);

/// The server and the agents; dropping this ends them.
pub struct Agents {
    url: String,
    key: String,
    agents: Vec<Ends>,
    _nats: Ends,
}

impl Agents {
    /// Starts the server at the bridge, and an agent with one load thread in each of the namespaces. Each serves one
    /// run.
    ///
    /// # Errors
    /// nats-server is missing, or one of them does not start.
    pub fn start(networks: &Networks, loadlab: &Path, dir: &Path) -> Result<Agents> {
        let key = dir.join("key");
        let public = captured(program(loadlab).args(["agent", "--new-key"]).arg(&key), QUICK)?;
        let public = public.ok("loadlab agent --new-key")?.stdout.trim().to_owned();
        let mut command = networks.system(&find("nats-server").context("nats-server is not installed")?);
        command.args(["-js", "-a", HERE, "-p", "-1", "-sd"]).arg(dir.join("streams"));
        command.arg("--ports_file_dir").arg(dir);
        let nats = Ends(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        // nsenter becomes the server, so its number stays.
        let ports = dir.join(format!("nats-server_{}.ports", nats.0.id()));
        let url = soon("nats-server", QUICK, || {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            let ports: Value = serde_json::from_str(&text).unwrap_or_default();
            Ok(ports["nats"][0].as_str().map(str::to_owned))
        })?;
        let agents: Result<Vec<Ends>> = (0..networks.agents())
            .map(|number| {
                let (mut command, sources) = networks.agent(number, loadlab);
                command.args(["agent", "--nats", &url, "--coordinator-key", &public, "--allow-host", HERE]);
                command.args(["--source", &sources, "--threads", "1", "--once"]);
                command.args(["--name", &format!("agent-{number}"), "--spool"]);
                command.arg(dir.join(format!("spool-{number}")));
                let log = fs::File::create(dir.join(format!("agent-{number}.log")))?;
                Ok(Ends(command.stdout(Stdio::null()).stderr(log).spawn()?))
            })
            .collect();
        Ok(Agents { url, key: key.display().to_string(), agents: agents?, _nats: nats })
    }

    /// The options with which a run uses the agents.
    pub fn options(&self) -> [String; 6] {
        let slots = self.agents.len().to_string();
        ["--swarm", &self.url, "--slots", &slots, "--swarm-key", &self.key].map(str::to_owned)
    }
}
