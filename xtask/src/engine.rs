//! A container engine: `dockerd`, started here in a temporary folder and without any firewall rules. Its images are made
//! from this machine's files: nothing is downloaded.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::command::{captured, find, program, soon};

/// Time limit for the engine to start, and for a command to it.
const LONGEST: Duration = Duration::from_secs(60);
/// Time limit for making an image, of half a gigabyte.
const IMAGE: Duration = Duration::from_secs(300);

/// A running engine. Dropping it stops it and all its containers.
pub struct Engine {
    dir: tempfile::TempDir,
    child: Child,
}

impl Engine {
    /// Starts an engine without images.
    ///
    /// # Errors
    /// The caller is not root, a program is missing, or the engine does not start.
    pub fn start() -> Result<Engine> {
        ensure!(geteuid().is_root(), "dockerd needs root");
        for name in ["dockerd", "docker"] {
            ensure!(find(name).is_some(), "{name} is not installed\nhint: apt-get install docker.io");
        }
        let dir = tempfile::Builder::new().prefix("loadlab-engine").tempdir()?;
        let log = dir.path().join("log");
        let child = daemon(dir.path(), &log)?;
        let mut engine = Engine { dir, child };
        let answers = || {
            let is_up = engine.ran(&["version"], LONGEST).is_ok();
            match engine.child.try_wait()? {
                Some(status) => bail!("dockerd: {status}"),
                None => Ok(is_up.then_some(())),
            }
        };
        soon("dockerd answers", LONGEST, answers).with_context(|| last_lines(&log))?;
        Ok(engine)
    }

    /// Stops the engine.
    ///
    /// # Errors
    /// Its folder cannot be removed.
    pub fn end(self) -> Result<()> {
        let dir = self.dir.path().to_owned();
        drop(self);
        ensure!(!dir.exists(), "the engine's folder {} cannot be removed", dir.display());
        Ok(())
    }

    /// The engine's socket, in the form of `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }

    /// The `docker` command, set up for this engine.
    pub fn docker(&self) -> Command {
        let mut command = program("docker");
        // The engine's built-in builder: BuildKit is a separate program that may not be installed.
        command.env("DOCKER_HOST", self.host()).env("DOCKER_BUILDKIT", "0");
        command.env_remove("DOCKER_CONTEXT");
        command
    }

    /// What a command prints.
    fn ran(&self, args: &[&str], longest: Duration) -> Result<String> {
        let ran = captured(self.docker().args(args), longest)?;
        Ok(ran.ok(&format!("docker {}", args.join(" ")))?.stdout)
    }

    /// Makes an image from files in a folder. The file `list` names them, each name followed by a NUL; `changes` are
    /// lines of a Dockerfile.
    ///
    /// # Errors
    /// A file cannot be read, or the engine rejects the image.
    pub fn import(&self, dir: &Path, list: &Path, image: &str, changes: &[&str]) -> Result<()> {
        let archive = self.dir.path().join("image.tar");
        let mut tar = program("tar");
        tar.arg("-C").arg(dir).args(["--no-recursion", "--null", "-T"]).arg(list).arg("-cf").arg(&archive);
        captured(&mut tar, IMAGE)?.ok("tar")?;
        let file = archive.display().to_string();
        let changes = changes.iter().flat_map(|change| ["--change", change]);
        let args: Vec<&str> = ["import"].into_iter().chain(changes).chain([file.as_str(), image]).collect();
        self.ran(&args, IMAGE)?;
        Ok(fs::remove_file(archive)?)
    }

    /// Builds an image from a folder that has a Dockerfile.
    ///
    /// # Errors
    /// The engine's error message.
    pub fn build(&self, dir: &Path, image: &str) -> Result<()> {
        self.ran(&["build", "--tag", image, &dir.display().to_string()], IMAGE).map(drop)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Containers and networks left by a failed run would outlive the engine. Failure to remove them does not matter
        // here.
        let left = self.ran(&["ps", "--all", "--quiet"], LONGEST).unwrap_or_default();
        for id in left.lines() {
            let _ = self.ran(&["rm", "--force", id], LONGEST);
        }
        let _ = self.ran(&["network", "prune", "--force"], LONGEST);
        // On SIGTERM the engine unmounts its mounts.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        // But it keeps the namespace that containers on the host's network share: then its folder cannot be removed.
        let _ = captured(program("umount").arg(self.dir.path().join("exec/netns/default")), LONGEST);
    }
}

/// Ensures that there is a command for Compose projects.
///
/// # Errors
/// There is none.
pub fn ensure_compose() -> Result<()> {
    let has_compose = find("docker-compose").is_some()
        || find("docker").is_some()
            && captured(program("docker").args(["compose", "version"]), LONGEST)?.status.success();
    ensure!(has_compose, "docker-compose is not installed\nhint: apt-get install docker-compose");
    Ok(())
}

/// Starts the engine in this folder.
fn daemon(dir: &Path, log: &Path) -> Result<Child> {
    let path = |name: &str| dir.join(name).display().to_string();
    // Sixteen networks. The base depends on the process ID, since two checkouts may do this at the same time.
    let pool = format!("base=10.{}.0.0/20,size=24", 192 + std::process::id() % 32);
    let no_rules = ["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--ip-forward=false"];
    let mut command = program(find("dockerd").context("dockerd is not installed")?);
    command
        .arg("--bridge=none")
        .args(no_rules)
        .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
        .args(["--default-address-pool", &pool])
        .args(["--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")])
        .args(["--host", &format!("unix://{}", path("sock"))])
        .stdout(Stdio::null())
        .stderr(File::create(log)?);
    command.spawn().context("cannot start dockerd")
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(3)..].join("\n")
}
