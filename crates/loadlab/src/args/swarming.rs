//! Options of `--swarm` and of agents.

use std::path::PathBuf;

use clap::{Args as Arguments, ValueEnum};
use loadlab_swarm::nats::Server;

/// Where the agents that send the loads come from.
#[derive(Clone, Debug)]
pub enum AgentSource {
    /// This many agents on this machine, with a dedicated NATS server.
    Local(usize),
    /// Agents that the NATS server with this URL connects.
    Nats(String),
}

impl SwarmArgs {
    /// Whether agents on other machines may send the loads.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.swarm, Some(AgentSource::Nats(_)))
    }
}

impl std::str::FromStr for AgentSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str =
            "expected `local:N`, N agents on this machine, or a NATS server: `nats://HOST:PORT`";
        if let Some(number) = text.strip_prefix("local:") {
            return match number.parse() {
                Ok(agents @ 1..=64) => Ok(AgentSource::Local(agents)),
                _ => Err("expected `local:N` with 1 to 64 agents".to_owned()),
            };
        }
        match text.split_once("://") {
            Some(("nats" | "tls", host)) if !host.is_empty() => Ok(AgentSource::Nats(text.to_owned())),
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

/// What happens to a load when an agent is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LostAgentArg {
    /// End the load; the trial fails
    #[default]
    Fail,
    /// Continue with the others; the report says what was not offered
    Degrade,
    /// Continue, and let a spare agent take the lost one's place
    Replace,
}

/// Loads that agents send.
#[derive(Clone, Debug, Default, Arguments)]
#[command(next_help_heading = "Swarm")]
pub struct SwarmArgs {
    /// Have agents send the loads: N on this machine, or those connected to a NATS server
    #[arg(long, value_name = "local:N|URL", hide_short_help = true)]
    pub swarm: Option<AgentSource>,
    /// Number of agents that take part
    #[arg(long, value_name = "N", requires = "swarm", value_parser = slots, hide_short_help = true)]
    pub slots: Option<usize>,
    /// What to do when an agent is lost
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        requires = "swarm",
        default_value = "fail",
        hide_short_help = true
    )]
    pub on_lost_agent: LostAgentArg,
    /// Key to sign orders with; `loadlab agent --new-key FILE` makes one
    #[arg(long, value_name = "FILE", requires = "swarm", hide_short_help = true)]
    pub swarm_key: Option<PathBuf>,
    /// Credentials for the NATS server: a .creds file, or an NKEY's seed
    #[arg(long, value_name = "FILE", requires = "swarm", hide_short_help = true)]
    pub swarm_creds: Option<PathBuf>,
    /// PEM file of certificates to trust for the NATS server; requires TLS
    #[arg(long, value_name = "FILE", requires = "swarm", hide_short_help = true)]
    pub swarm_ca: Option<PathBuf>,
    /// Have a scheduler start the agents, and end them with the run; its commands must be installed here
    #[arg(long, value_enum, value_name = "SCHEDULER", requires = "swarm", hide_short_help = true)]
    pub launch: Option<LaunchArg>,
    /// Argument for `sbatch` or `kubectl`, such as --launch-arg=--partition=P; may be repeated
    #[arg(long, value_name = "ARG", requires = "launch", allow_hyphen_values = true, hide_short_help = true)]
    pub launch_arg: Vec<String>,
    /// Path of loadlab where the agents run [default: for Slurm, where this program is; for Kubernetes, /bin/loadlab]
    #[arg(long, value_name = "PATH", requires = "launch", hide_short_help = true)]
    pub launch_program: Option<PathBuf>,
    /// Credentials of the agents for the NATS server: a file on the nodes, where {slot} stands for the number of each,
    /// or a Kubernetes Secret
    #[arg(long, value_name = "FILE|SECRET", requires = "launch", hide_short_help = true)]
    pub launch_creds: Option<String>,
    /// An image with loadlab in it, for Kubernetes
    #[arg(long, value_name = "IMAGE", requires = "launch", hide_short_help = true)]
    pub launch_image: Option<String>,
    /// How long to wait for the agents, which may have to queue
    #[arg(long, value_name = "T", requires = "launch", default_value = "5m", value_parser = super::values::duration, hide_short_help = true)]
    pub launch_wait: u64,
}

/// The scheduler that starts agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaunchArg {
    /// Tasks of a job array, submitted with `sbatch`
    Slurm,
    /// Pods of an Indexed Job, applied with `kubectl`
    Kubernetes,
}

impl SwarmArgs {
    /// The options as a record keeps them: without credentials and files.
    pub fn as_given(&self) -> Vec<String> {
        let place = self.swarm.as_ref().map(|place| match place {
            AgentSource::Local(agents) => format!("--swarm local:{agents}"),
            AgentSource::Nats(url) => {
                format!("--swarm {}", Server { url: url.clone(), ..Server::default() }.shown())
            }
        });
        let slots = self.slots.map(|slots| format!("--slots {slots}"));
        let policy =
            self.on_lost_agent.to_possible_value().filter(|_| self.on_lost_agent != LostAgentArg::Fail);
        let policy = policy.map(|policy| format!("--on-lost-agent {}", policy.get_name()));
        let launch = self.launch.and_then(|launch| launch.to_possible_value());
        let launch = launch.map(|launch| format!("--launch {}", launch.get_name()));
        place.into_iter().chain(slots).chain(policy).chain(launch).collect()
    }
}

fn slots(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=10_000).contains(n)).ok_or("expected 1 to 10000".to_owned())
}

/// Options of `loadlab agent`.
#[derive(Debug, Arguments)]
#[command(after_help = "Example, on each machine that sends:\n  loadlab agent --nats nats://10.0.0.1:4222 \
    --coordinator-key UAB… --allow-host shop.test\n\nOn the machine that has the plan:\n  loadlab run plan.yaml --swarm \
    nats://10.0.0.1:4222 --slots 4 --swarm-key key")]
pub struct AgentArgs {
    /// The NATS server: nats://HOST:PORT, or tls://HOST:PORT
    #[arg(long, value_name = "URL", env = "LOADLAB_NATS", hide_env_values = true)]
    pub nats: Option<String>,
    /// Credentials for the NATS server: a .creds file, or an NKEY's seed
    #[arg(long, value_name = "FILE")]
    pub creds: Option<PathBuf>,
    /// PEM file of certificates to trust for the NATS server; requires TLS
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The public key of the coordinator whose orders are followed
    #[arg(long, value_name = "KEY")]
    pub coordinator_key: Option<String>,
    /// Host other than loopback that may be loaded, if the plan allows it, too; may be repeated
    #[arg(long, value_name = "HOST", value_parser = super::values::host)]
    pub allow_host: Vec<String>,
    /// Maximum rate of requests that this agent sends for a load
    #[arg(long, value_name = "RATE", value_parser = super::values::rate)]
    pub max_rate: Option<f64>,
    /// Maximum number of connections that this agent opens for a load
    #[arg(long, value_name = "N", value_parser = super::values::counts(1, u64::MAX))]
    pub max_connections: Option<u64>,
    /// Connect from these addresses in turn, if one address has too few ports
    #[arg(long, value_name = "ADDR[-ADDR]", value_parser = super::values::sources)]
    pub source: Option<super::values::Sources>,
    /// Load threads, unless the plan names their number [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Unique name of this agent [default: host name and process id]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Folder for reports that the coordinator does not have yet [default: in the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// The only slot that this agent takes, from 0: its credentials may allow it no other [default: any]
    #[arg(long, value_name = "N", value_parser = slot)]
    pub slot: Option<usize>,
    /// Exit after one run
    #[arg(long)]
    pub once: bool,
    /// Exit if no run is announced within this time
    #[arg(long, value_name = "T", value_parser = super::values::duration, hide = true)]
    pub leave_unannounced: Option<u64>,
    /// Write a new key for a coordinator to this file, print its public part, and exit
    #[arg(long, value_name = "FILE")]
    pub new_key: Option<PathBuf>,
    /// Allow every host that the plan allows, and use its folder: the coordinator is on this machine
    #[arg(long, hide = true)]
    pub trust_plan: bool,
}

fn slot(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n < 10_000).ok_or("expected 0 to 9999".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| (1..=1024).contains(n)).ok_or("expected 1 to 1024".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_agents() {
        assert!(matches!("local:4".parse(), Ok(AgentSource::Local(4))));
        for url in ["nats://a.test:4222", "tls://a.test:4222"] {
            assert!(matches!(url.parse(), Ok(AgentSource::Nats(text)) if text == url));
        }
        for wrong in ["", "local", "local:", "local:0", "local:65", "nats://", "http://a.test", "4"] {
            let why = wrong.parse::<AgentSource>().expect_err(wrong);
            assert!(why.starts_with("expected `local:N`"), "{wrong}: {why}");
        }
    }

    /// What `resume` needs is kept, and credentials are not.
    #[test]
    fn a_record_keeps_the_server_without_credentials() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            swarm: SwarmArgs,
        }
        for (given, kept) in [
            ("nats://a.test:4222", "--swarm nats://a.test:4222"),
            ("nats://me:s3cret@a.test:4222", "--swarm nats://a.test:4222"),
            ("tls://s3cret@a.test:4222", "--swarm tls://a.test:4222"),
        ] {
            let line = <Line as clap::Parser>::parse_from([
                "x",
                "--swarm",
                given,
                "--slots",
                "2",
                "--swarm-key",
                "k",
            ]);
            assert_eq!(line.swarm.as_given(), [kept, "--slots 2"]);
        }
    }
}
