//! A container engine for planted systems that are Compose projects: `dockerd`, started here in a temporary folder
//! and without any firewall rules, and an image made of two servers. Nothing is downloaded. If it is not available,
//! its systems are not checked, which is reported and never counted as right.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::servers::static_servers;
use crate::command::{captured, find, program, soon};

/// The image's name in Compose files.
const IMAGE: &str = "planted-tiers";
/// The longest a command to the engine, or its start, takes.
const LONGEST: Duration = Duration::from_secs(60);

/// A running engine. Dropping it ends it, with all its containers.
pub struct Engine {
    dir: tempfile::TempDir,
    child: Child,
}

impl Engine {
    /// Starts one that has the image.
    ///
    /// # Errors
    /// Why there is none: not root, a program is missing, or it does not start.
    pub fn start() -> Result<Engine> {
        ensure!(geteuid().is_root(), "an engine needs root");
        for name in ["dockerd", "docker", "tar"] {
            ensure!(find(name).is_some(), "{name} is not installed");
        }
        let has_compose = find("docker-compose").is_some()
            || captured(program("docker").args(["compose", "version"]), LONGEST)?.status.success();
        ensure!(has_compose, "docker-compose is not installed");
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("log");
        let child = daemon(dir.path(), &log)?;
        let mut engine = Engine { dir, child };
        let answers = || {
            let is_up = engine.docker(&["version"]).is_ok();
            match engine.child.try_wait()? {
                Some(status) => bail!("dockerd: {status}"),
                None => Ok(is_up.then_some(())),
            }
        };
        soon("dockerd answers", LONGEST, answers).with_context(|| last_lines(&log))?;
        engine.make_image()?;
        Ok(engine)
    }

    /// Its socket, as `DOCKER_HOST` has it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }

    fn docker(&self, args: &[&str]) -> Result<String> {
        let ran = captured(program("docker").env("DOCKER_HOST", self.host()).args(args), LONGEST)?;
        Ok(ran.ok(&format!("docker {}", args.join(" ")))?.stdout)
    }

    fn make_image(&self) -> Result<()> {
        let root = self.dir.path().join("image");
        fs::create_dir_all(root.join("bin"))?;
        static_servers(&root.join("bin"))?;
        let archive: PathBuf = self.dir.path().join("image.tar");
        let mut tar = program("tar");
        tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
        captured(&mut tar, LONGEST)?.ok("tar")?;
        self.docker(&["import", &archive.display().to_string(), IMAGE])?;
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Leftovers of a failed run would outlive the engine. Failures to remove them do not matter here.
        let left = self.docker(&["ps", "--all", "--quiet"]).unwrap_or_default();
        for id in left.lines() {
            let _ = self.docker(&["rm", "--force", id]);
        }
        let _ = self.docker(&["network", "prune", "--force"]);
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Starts the engine in this folder.
fn daemon(dir: &Path, log: &Path) -> Result<Child> {
    let path = |name: &str| dir.join(name).display().to_string();
    // Sixteen networks; two checkouts may do this at the same time.
    let pool = format!("base=10.{}.0.0/20,size=24", 192 + std::process::id() % 32);
    let no_rules = ["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--ip-forward=false"];
    let mut command = program("dockerd");
    command
        .arg("--bridge=none")
        .args(no_rules)
        .args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--storage-driver", "vfs"])
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
