//! A separate container engine for a test: `dockerd` without firewall rules, in a folder that also has its socket.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::eventually;

/// A running engine. Dropping it stops it and removes all its containers.
pub struct Engine {
    dir: tempfile::TempDir,
    child: Child,
}

impl Engine {
    /// Starts an engine. This needs root and the packages docker.io and busybox-static; without them the test fails.
    pub fn start() -> Engine {
        assert!(rustix::process::geteuid().is_root(), "dockerd needs root");
        let dir = tempfile::tempdir().expect("a folder can be made");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let pool = format!("base={},size=24", addresses());
        let log = std::fs::File::create(dir.path().join("log")).expect("a file can be made");
        let child = Command::new("dockerd")
            .args([
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-masq=false",
                "--ip-forward=false",
            ])
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--storage-driver", "vfs"])
            .args(["--default-address-pool", &pool])
            .args(["--data-root", &path("data"), "--exec-root", &path("exec"), "--pidfile", &path("pid")])
            .args(["--host", &format!("unix://{}", path("sock"))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("dockerd is installed (package docker.io)");
        let mut engine = Engine { dir, child };
        eventually("the engine", || {
            let ended = engine.child.try_wait().expect("it can be waited for");
            let log = || std::fs::read_to_string(engine.dir.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "dockerd ended: {}", log());
            engine.try_docker(&["version"])
        });
        engine
    }

    /// Its socket, as plans and DOCKER_HOST name it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }

    fn try_docker(&self, args: &[&str]) -> Option<String> {
        let output = Command::new("docker").env("DOCKER_HOST", self.host()).args(args).output();
        let output = output.expect("docker is installed (package docker.io)");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The output of `docker`.
    #[track_caller]
    pub fn docker(&self, args: &[&str]) -> String {
        self.try_docker(args).unwrap_or_else(|| panic!("docker {args:?} failed"))
    }

    /// Containers, networks and volumes other than the engine's default networks.
    pub fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        for list in [
            &["ps", "--all", "--format", "container {{.Names}}"][..],
            &["network", "ls", "--format", "network {{.Name}}"][..],
            &["volume", "ls", "--format", "volume {{.Name}}"][..],
        ] {
            left.extend(self.docker(list).lines().map(str::to_owned));
        }
        left.retain(|line| !matches!(line.as_str(), "network host" | "network none" | "network bridge"));
        left
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for id in self.try_docker(&["ps", "--all", "--quiet"]).unwrap_or_default().lines() {
            self.try_docker(&["rm", "--force", id]);
        }
        // Bridges left by a test that failed midway would outlive the engine.
        self.try_docker(&["network", "prune", "--force"]);
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _ = self.child.wait();
    }
}

/// The address range of one engine's networks, room for sixteen of them. By default an engine takes any range that no
/// route leads to; two engines choosing at the same moment would take the same one, and containers of one test would be
/// reached in place of another's.
fn addresses() -> String {
    static ENGINES: AtomicU32 = AtomicU32::new(0);
    let engine = ENGINES.fetch_add(1, Ordering::Relaxed);
    assert!(engine < 32, "more than 32 engines in one test program: their addresses would overlap");
    // Test programs of two checkouts may run at the same time.
    format!("10.{}.{}.0/20", 64 + std::process::id() % 64 * 2 + engine / 16, engine % 16 * 16)
}

/// A folder with a Dockerfile for an image of busybox alone, copied from this machine.
pub fn context(dir: &Path) -> PathBuf {
    let context = dir.join("image");
    std::fs::create_dir_all(context.join("bin")).expect("a folder can be made");
    std::fs::create_dir_all(context.join("tmp")).expect("a folder can be made");
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|p| Path::new(p).exists());
    let busybox = busybox.expect("busybox is installed (package busybox-static)");
    std::fs::copy(busybox, context.join("bin/busybox")).expect("it can be copied");
    for name in ["sh", "sleep", "httpd", "wget", "true", "cat"] {
        let _ = std::os::unix::fs::symlink("busybox", context.join("bin").join(name));
    }
    let mut file = std::fs::File::create(context.join("Dockerfile")).expect("a file can be made");
    file.write_all(b"FROM scratch\nARG GREETING=hello\nENV GREETING=$GREETING\nCOPY . /\nCMD [\"/bin/sleep\", \"1000\"]\n")
        .expect("it can be written");
    std::fs::write(context.join(".dockerignore"), "secret\n").expect("it can be written");
    std::fs::write(context.join("secret"), "not for the image\n").expect("it can be written");
    context
}
