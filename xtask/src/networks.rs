//! Network namespaces joined by a bridge: for agents that reach a system as they would from other machines.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{Ends, captured, program};

/// The bridge's address.
pub const HERE: &str = "10.199.7.1";
/// Prefix of the names of namespaces and links.
const PREFIX: &str = "llswarm";
/// The namespace of the bridge, if it has a separate one.
const SYSTEM: &str = "llswarmsys";
/// How many addresses each agent's namespace has: one has ports for some 28,000 connections to the same server.
const ADDRESSES: usize = 16;
const QUICK: Duration = Duration::from_secs(20);

/// Removes the bridge and the namespaces that its arguments name, once its standard input has ended. Processes in them
/// are ended as well: without its name, a namespace would stay as long as they do.
const GUARD: &str = "trap '' INT TERM HUP
bridge=$1
shift
read -r end
for space; do
    for pid in $(ip netns pids $space); do kill $pid; done
    ip netns del $space
done
ip link del $bridge";

/// Where the bridge is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bridge {
    /// In this program's own namespace.
    Here,
    /// In a separate one, where connections are not tracked, and the kernel's settings may be changed.
    Separate,
}

/// Namespaces of agents, and the bridge between them; dropping this removes them.
pub struct Networks {
    bridge: Bridge,
    agents: usize,
    /// A signal that ends this program drops nothing: then this process removes them.
    _guard: Ends,
}

impl Networks {
    /// Makes the namespaces. Those that an earlier run left are removed first.
    ///
    /// # Errors
    /// Not root, or iproute2 is missing.
    pub fn new(bridge: Bridge, agents: usize) -> Result<Networks> {
        ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
        remove(agents);
        let networks = Networks { bridge, agents, _guard: guard(agents)? };
        if bridge == Bridge::Separate {
            ip(&format!("netns add {SYSTEM}"))?;
            networks.at_bridge("link set lo up")?;
        }
        let device = device();
        networks.at_bridge(&format!("link add {device} type bridge"))?;
        networks.at_bridge(&format!("addr add {HERE}/16 dev {device}"))?;
        networks.at_bridge(&format!("link set {device} up"))?;
        for agent in 0..agents {
            let (space, port) = (namespace(agent), format!("{PREFIX}v{agent}"));
            ip(&format!("netns add {space}"))?;
            networks.at_bridge(&format!("link add {port} type veth peer name eth0 netns {space}"))?;
            networks.at_bridge(&format!("link set {port} master {device} up"))?;
            for number in 1..=ADDRESSES {
                ip(&format!("-n {space} addr add {}/16 dev eth0", address(agent, number)))?;
            }
            ip(&format!("-n {space} link set eth0 up"))?;
            ip(&format!("-n {space} link set lo up"))?;
        }
        Ok(networks)
    }

    /// The number of agents' namespaces.
    pub fn agents(&self) -> usize {
        self.agents
    }

    /// A program in the bridge's namespace.
    pub fn system(&self, name: &Path) -> Command {
        match self.bridge {
            Bridge::Here => program(name),
            Bridge::Separate => within(SYSTEM, name),
        }
    }

    /// A program in an agent's namespace, and the addresses that it may connect from, as `--source` wants them.
    pub fn agent(&self, agent: usize, name: &Path) -> (Command, String) {
        let sources = format!("{}-{}", address(agent, 1), address(agent, ADDRESSES));
        (within(&namespace(agent), name), sources)
    }

    fn at_bridge(&self, words: &str) -> Result<()> {
        match self.bridge {
            Bridge::Here => ip(words),
            Bridge::Separate => ip(&format!("-n {SYSTEM} {words}")),
        }
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        remove(self.agents);
    }
}

/// Starts what removes the namespaces when this program has ended without doing so.
fn guard(agents: usize) -> Result<Ends> {
    let mut command = program("sh");
    command.args(["-c", GUARD, "guard"]).arg(device()).args(namespaces(agents));
    // In a process group of its own, which Ctrl-C does not reach.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Ends(command.spawn().context("cannot start sh")?))
}

/// The bridge's device.
fn device() -> String {
    format!("{PREFIX}br")
}

/// All namespaces, the bridge's included.
fn namespaces(agents: usize) -> impl Iterator<Item = String> {
    (0..agents).map(namespace).chain([SYSTEM.to_owned()])
}

fn namespace(agent: usize) -> String {
    format!("{PREFIX}{agent}")
}

fn address(agent: usize, number: usize) -> String {
    format!("10.199.{}.{number}", agent + 8)
}

/// A program in a network namespace. Not with `ip netns exec`, which hides the cgroups below /sys.
fn within(space: &str, name: &Path) -> Command {
    let mut command = program("nsenter");
    command.arg(format!("--net=/run/netns/{space}")).arg("--").arg(name);
    command
}

fn ip(words: &str) -> Result<()> {
    captured(program("ip").args(words.split(' ')), QUICK)?.ok(&format!("ip {words}")).map(drop)
}

/// Removes what this run made, or what an earlier one left.
fn remove(agents: usize) {
    for space in namespaces(agents) {
        if Path::new(&format!("/run/netns/{space}")).exists() {
            let _ = ip(&format!("netns del {space}"));
        }
    }
    let device = device();
    if Path::new(&format!("/sys/class/net/{device}")).exists() {
        let _ = ip(&format!("link del {device}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_removed_when_this_program_has_ended() {
        let ip = "ip() { [ \"$2\" = pids ] || echo \"$*\"; }";
        let mut command = program("sh");
        // Standard input is empty, as it is then.
        command.args(["-c", &format!("{ip}\n{GUARD}"), "guard", "bridge", "one", "two"]);
        let ran = captured(&mut command, QUICK).unwrap().ok("the guard").unwrap();
        assert_eq!(ran.stdout, "netns del one\nnetns del two\nlink del bridge\n");
    }
}
