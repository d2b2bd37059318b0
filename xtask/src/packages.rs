//! What must be installed besides Rust: the programs the checks use, the Debian packages that contain them, and how to
//! install missing ones.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::command::{captured, cargo, find, program, shown};
use crate::steps::Outcome;

/// A program that something here starts.
pub struct Need {
    /// Its file name.
    pub program: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
    /// What it is used for.
    pub why: &'static str,
}

const fn need(program: &'static str, package: &'static str, why: &'static str) -> Need {
    Need { program, package, why }
}

/// What `cargo xtask test` uses.
pub const FOR_TESTS: &[Need] = &[
    need("bash", "bash", "the commands of README and book"),
    need("jq", "jq", "the same"),
    need("curl", "curl", "the CI action comments on a pull request"),
    need("python3", "python3", "the same"),
    need("cc", "build-essential", "linking, and the allocators of labs/stair-stepper"),
    need("make", "build-essential", "jemalloc, for labs/stair-stepper"),
    need("setpriv", "util-linux", "a test of `system` becomes somebody else"),
    need(
        "nginx",
        "nginx-light",
        "a real component under limits in the tests of `system`, and labs/edge-tiers",
    ),
    need("nghttpd", "nghttp2-server", "an HTTP/2 server of others in the tests of `load`"),
    need("openssl", "openssl", "a certificate for the https rows of the peers"),
    need("dockerd", "docker.io", "containers as components"),
    need("docker-compose", "docker-compose", "Compose files as systems"),
    need("node", "nodejs", "the servers of labs/message-inserts (20.19 or newer) and labs/trade-processor"),
    need("npm", "npm", "what these servers need"),
    need("busybox", "busybox-static", "images for both, of this machine's own files"),
    need("ip", "iproute2", "namespaces for components, joined by links"),
    need("tc", "iproute2", "a link that is narrowed"),
    need("mvn", "maven", "labs/parts: Elasticsearch and a stand-in for MongoDB"),
    need("javac", "default-jdk-headless", "the same"),
    need("java", "default-jre-headless", "the same"),
    need("tar", "tar", "reads what is sent to the engine, packs releases"),
    need("pip3", "python3-pip", "Zig, which compiles for static programs"),
    need("dpkg", "dpkg", "installs the Debian package in a root of its own"),
    need("chromium", "chromium", "opens a report and listens to its console"),
    need("rabbitmq-server", "rabbitmq-server", "the queue of labs/trade-processor"),
    need("redis-server", "redis-server", "the storage of labs/trade-processor"),
    need("redis-cli", "redis-tools", "empties it, and lists what it holds"),
    need("nats-server", "nats-server", "carries what the agents of a swarm say"),
    need("slurmctld", "slurmctld", "a scheduler that starts agents"),
    need("slurmd", "slurmd", "its node"),
    need("sbatch", "slurm-client", "submits the agents' job"),
    need("munged", "munge", "daemons of Slurm trust one another by it"),
    need("go", "golang-go", "servers of systems with a planted bottleneck"),
];

/// What `cargo xtask planted` uses.
pub const FOR_PLANTED: &[Need] = &[
    need("cc", "build-essential", "servers of planted systems"),
    need("nats-server", "nats-server", "carries what the agents of a swarm say"),
    need("go", "golang-go", "the same"),
    need("node", "nodejs", "the same"),
    need("java", "default-jdk-headless", "the same"),
    need("jcmd", "default-jdk-headless", "names of what Java has compiled"),
    need("python3", "python3", "the same"),
    need("ip", "iproute2", "namespaces for components, joined by links"),
    need("tc", "iproute2", "a link that is narrowed"),
];

/// What `cargo xtask kubernetes` uses.
pub const FOR_KUBERNETES: &[Need] = &[
    need("go", "golang-go", "builds the cluster's programs"),
    need("etcd", "etcd-server", "the API server's storage"),
    need("containerd", "containerd", "runs the pods"),
    need("runc", "runc", "the same"),
    need("busybox", "busybox-static", "the image of what holds a pod together"),
    need("unshare", "util-linux", "namespaces that the cluster runs in"),
    need("ip", "iproute2", "the node's network"),
    need("openssl", "openssl", "a certificate of the NATS server"),
    need("nats-server", "nats-server", "carries what the agents of a swarm say"),
    need("nginx", "nginx-light", "what the pods load"),
];

/// Components of the Rust toolchain that a minimal installation leaves out, and the cargo command that shows whether
/// each is present.
const RUST_PARTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// Ensures that everything is installed; with `install`, installs what is missing.
///
/// # Errors
/// Lists what is missing, what it is for, and the command that installs it.
pub fn ready(needs: &[Need], install: bool) -> Outcome {
    if install {
        install_packages(&missing(needs))?;
        install_rust_parts(&missing_rust_parts()?)?;
    }
    let mut lines = Vec::new();
    let absent = missing(needs);
    for need in needs.iter().filter(|n| find(n.program).is_none()) {
        lines.push(format!("{} is not installed: {}", need.program, need.why));
    }
    if !absent.is_empty() {
        lines.push(format!("hint: apt-get install {}   (or `--install`)", absent.join(" ")));
    }
    let parts = missing_rust_parts()?;
    if !parts.is_empty() {
        lines.push(format!("hint: rustup component add {}   (or `--install`)", parts.join(" ")));
    }
    ensure!(lines.is_empty(), "{}", lines.join("\n"));
    Ok(format!("{} programs, {} parts of Rust", needs.len(), RUST_PARTS.len()))
}

/// Packages of the missing programs, each once.
pub fn missing(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        needs.iter().filter(|n| find(n.program).is_none()).map(|n| n.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Installs Debian packages, as root or with sudo.
///
/// # Errors
/// There is no apt-get, or it fails.
pub fn install_packages(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if find("apt-get").is_none() {
        bail!("there is no apt-get here to install {}", packages.join(" "));
    }
    for args in [&["update"][..], &["install", "--yes", "--no-install-recommends"][..]] {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = program("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        } else {
            let mut command = program("sudo");
            command.args(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
            command
        };
        command.arg("--quiet").args(args);
        if args[0] == "install" {
            command.args(packages);
        }
        let ran = shown(&mut command)?;
        ensure!(ran.status.success(), "apt-get {}: {}", args[0], ran.status);
    }
    Ok(())
}

fn missing_rust_parts() -> Result<Vec<&'static str>> {
    let mut parts = Vec::new();
    for (part, command) in RUST_PARTS {
        let ran = captured(&mut cargo(&[command, "--version"]), Duration::from_secs(60))?;
        if !ran.status.success() {
            parts.push(*part);
        }
    }
    Ok(parts)
}

fn install_rust_parts(parts: &[&str]) -> Result<()> {
    if parts.is_empty() {
        return Ok(());
    }
    let ran = shown(program("rustup").args(["component", "add"]).args(parts))?;
    ensure!(ran.status.success(), "rustup component add: {}", ran.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package_and_reason() {
        let needs = [
            need("sh", "dash", "nothing"),
            need("no-such-program", "no-such-package", "to be missed"),
            need("no-such-program-2", "no-such-package", "to be missed as well"),
        ];
        assert_eq!(missing(&needs), ["no-such-package"]);
        let error = ready(&needs, false).unwrap_err().to_string();
        assert!(error.contains("no-such-program-2 is not installed: to be missed as well"), "{error}");
        assert!(error.contains("apt-get install no-such-package "), "{error}");
    }
}
