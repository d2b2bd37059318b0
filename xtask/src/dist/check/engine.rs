//! A container engine for one check: `dockerd` without any firewall rules; its data and its socket are in a temporary
//! folder.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{captured, find, program, soon};
use crate::dist::QUICK;

/// How long the engine may take to start.
const READY: Duration = Duration::from_secs(60);

/// A running engine; dropping it stops it and removes all its data.
pub struct Engine {
    dir: tempfile::TempDir,
    child: Child,
}

impl Engine {
    /// Starts an engine, which needs root, and waits until it answers.
    ///
    /// # Errors
    /// `dockerd` is not installed, or does not start.
    pub fn start() -> Result<Engine> {
        ensure!(rustix::process::geteuid().is_root(), "dockerd needs root");
        let dir = tempfile::Builder::new().prefix("loadlab-engine").tempdir()?;
        let path = |name: &str| dir.path().join(name);
        let dockerd = find("dockerd").context("dockerd is not installed\nhint: apt-get install docker.io")?;
        let mut command = program(dockerd);
        let no_network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"];
        command.args(no_network).args(["--ip-forward=false", "--storage-driver", "vfs"]);
        command.args(["--exec-opt", "native.cgroupdriver=cgroupfs"]);
        for (option, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(option).arg(path(name));
        }
        command.arg("--host").arg(host(dir.path()));
        command.stdout(Stdio::null()).stderr(File::create(path("log"))?);
        let child = command.spawn().context("dockerd")?;
        let mut engine = Engine { dir, child };
        soon("dockerd", READY, || {
            if engine.child.try_wait()?.is_some() {
                bail!("dockerd ended: {}", fs::read_to_string(engine.dir.path().join("log"))?);
            }
            Ok(captured(engine.docker().arg("version"), QUICK)?.status.success().then_some(()))
        })?;
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

    /// The `docker` command, set up for this engine.
    pub fn docker(&self) -> Command {
        let mut command = program("docker");
        // The engine's built-in builder: BuildKit is a plugin that may be missing.
        command.env("DOCKER_HOST", host(self.dir.path())).env("DOCKER_BUILDKIT", "0");
        command.env_remove("DOCKER_CONTEXT");
        command
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // On SIGTERM the engine stops its containers and unmounts its mounts.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
        // It keeps the namespace that containers on the host's network share, and its folder cannot be removed.
        let _ = captured(program("umount").arg(self.dir.path().join("exec/netns/default")), QUICK);
    }
}

fn host(dir: &Path) -> String {
    format!("unix://{}", dir.join("sock").display())
}
