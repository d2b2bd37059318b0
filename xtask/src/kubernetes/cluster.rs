//! A cluster of one node: etcd, API server, controllers, scheduler, kubelet and containerd, in separate namespaces,
//! which end with them. Nothing is downloaded while it runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{Ends, captured, find, program, soon};

/// The node's address, on a dedicated bridge: pods and the programs beside them reach each other through it.
pub const NODE: &str = "10.199.8.1";
/// The folder of Debian's network plugins.
pub const PLUGINS: &str = "/usr/lib/cni";
/// The Kubernetes programs that are built here.
pub const BUILT: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];
/// Time limit for a part to start, and for a command to the API server.
const LONGEST: Duration = Duration::from_secs(60);
const API: &str = "https://127.0.0.1:6443";
const ADMIN: &str = "admin";

/// A running cluster. Dropping it stops its parts.
pub struct Cluster {
    dir: PathBuf,
    programs: PathBuf,
    parts: Vec<Ends>,
}

impl Cluster {
    /// Starts a cluster with these images, and its files in an empty folder.
    ///
    /// # Errors
    /// A part does not start.
    pub fn start(dir: &Path, programs: &Path, images: &[PathBuf]) -> Result<Cluster> {
        for folder in ["logs", "pods", "plugins", "networks"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let mut cluster = Cluster { dir: dir.to_owned(), programs: programs.to_owned(), parts: Vec::new() };
        apart(dir)?;
        cluster.control_plane()?;
        cluster.node(images)?;
        Ok(cluster)
    }

    /// `kubectl` with the administrator's access.
    pub fn kubectl(&self) -> Command {
        let mut command = program(self.programs.join("kubectl"));
        command.env("KUBECONFIG", self.access(ADMIN));
        command
    }

    /// Runs `kubectl` with these arguments, and returns what it prints.
    ///
    /// # Errors
    /// `kubectl` fails.
    pub fn asks(&self, words: &[&str]) -> Result<String> {
        Ok(captured(self.kubectl().args(words), LONGEST)?.ok(&format!("kubectl {}", words.join(" ")))?.stdout)
    }

    /// The kubeconfig file of a user: `admin`, or `loader`, which has only the rights it is granted.
    pub fn access(&self, user: &str) -> PathBuf {
        self.dir.join(format!("{user}.kubeconfig"))
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Starts a part, and sends its output to its own log.
    fn part(&mut self, file: &Path, args: &[String]) -> Result<()> {
        let name = file.file_name().context("a program has a name")?.display().to_string();
        let log = File::create(self.dir.join("logs").join(&name))?;
        let mut command = program(file);
        command.args(args).stdout(log.try_clone()?).stderr(log);
        let child = command.stdin(Stdio::null()).spawn().with_context(|| name.clone())?;
        self.parts.push(Ends(child));
        Ok(())
    }

    fn control_plane(&mut self) -> Result<()> {
        let key = self.path("accounts.key");
        captured(program("openssl").args(["genrsa", "-out", &key, "2048"]), LONGEST)?.ok("openssl")?;
        let users = [(ADMIN, "system:masters"), ("loader", "loaders")];
        let tokens = users.map(|(user, group)| format!("{user}-token,{user},{user},{group}\n")).concat();
        fs::write(self.dir.join("tokens.csv"), tokens)?;
        for (user, _) in users {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
                 clusters: [{{ name: here, cluster: {{ server: \"{API}\", insecure-skip-tls-verify: true }} }}]\n\
                 users: [{{ name: {user}, user: {{ token: {user}-token }} }}]\n\
                 contexts: [{{ name: here, context: {{ cluster: here, user: {user} }} }}]\n"
            );
            fs::write(self.access(user), text)?;
        }
        let etcd = find("etcd").context("etcd is not installed")?;
        let data = format!("--data-dir={}", self.path("etcd"));
        self.part(&etcd, &[data, "--unsafe-no-fsync".to_owned()])?;
        let server = [
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--advertise-address={NODE}"),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            format!("--cert-dir={}", self.path("certificates")),
            format!("--token-auth-file={}", self.path("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
            // This plugin waits for a controller that is not needed: pods mount no token.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        self.part(&self.programs.join(BUILT[0]), &server)?;
        let is_ready = || Ok(self.asks(&["get", "--raw", "/readyz"]).ok().filter(|text| text == "ok"));
        soon("the API server", LONGEST, is_ready).with_context(|| self.last_lines(BUILT[0]))?;
        let access = format!("--kubeconfig={}", self.access(ADMIN).display());
        let common = [access, "--leader-elect=false".to_owned(), "--bind-address=127.0.0.1".to_owned()];
        let own = format!("--service-account-private-key-file={key}");
        self.part(&self.programs.join(BUILT[1]), &[&common[..], &[own]].concat())?;
        self.part(&self.programs.join(BUILT[2]), &common)
    }

    fn node(&mut self, images: &[PathBuf]) -> Result<()> {
        let socket = self.path("containerd.sock");
        let settings = include_str!("containerd.toml").replace("{dir}", &self.dir.display().to_string());
        fs::write(self.dir.join("containerd.toml"), settings.replace("{plugins}", PLUGINS))?;
        let network = include_str!("network.conflist").replace("{dir}", &self.dir.display().to_string());
        fs::write(self.dir.join("networks/pods.conflist"), network)?;
        let containerd = find("containerd").context("containerd is not installed")?;
        self.part(&containerd, &["--config".to_owned(), self.path("containerd.toml")])?;
        let ctr = |words: &[&str]| {
            let mut ctr = program("ctr");
            ctr.args(["--address", &socket, "--namespace", "k8s.io"]).args(words);
            captured(&mut ctr, LONGEST)
        };
        let is_up = || Ok(ctr(&["version"])?.status.success().then_some(()));
        soon("containerd", LONGEST, is_up).with_context(|| self.last_lines("containerd"))?;
        for image in images {
            ctr(&["images", "import", "--snapshotter", "native", &image.display().to_string()])?.ok("ctr")?;
        }
        let settings = include_str!("kubelet.yaml").replace("{dir}", &self.dir.display().to_string());
        fs::write(self.dir.join("kubelet.yaml"), settings)?;
        let kubelet = [
            format!("--config={}", self.path("kubelet.yaml")),
            format!("--kubeconfig={}", self.access(ADMIN).display()),
            format!("--root-dir={}", self.path("kubelet")),
            format!("--cert-dir={}", self.path("certificates")),
            format!("--node-ip={NODE}"),
            "--hostname-override=node".to_owned(),
        ];
        self.part(&self.programs.join(BUILT[3]), &kubelet)?;
        let ready =
            ["get", "node", "node", "--output", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"];
        let is_ready = || Ok(self.asks(&ready).ok().filter(|text| text == "True"));
        soon("the node", LONGEST, is_ready).with_context(|| self.last_lines(BUILT[3])).map(drop)
    }

    fn last_lines(&self, part: &str) -> String {
        let text = fs::read_to_string(self.dir.join("logs").join(part)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

/// Isolates what is made from now on: this process already has its own mount and network namespaces.
fn apart(dir: &Path) -> Result<()> {
    let pods = dir.join("pods").display().to_string();
    for words in [
        "mount --make-rprivate /",
        "mount -t tmpfs tmpfs /run",
        &format!("mount --bind {pods} /var/log"),
        "ip link set lo up",
        "ip link add node0 type bridge",
        &format!("ip addr add {NODE}/24 dev node0"),
        "ip link set node0 up",
        // The kubelet requires a default route.
        &format!("ip route add default via {NODE} dev node0"),
    ] {
        let mut parts = words.split(' ');
        let mut command = program(parts.next().context("a program")?);
        captured(command.args(parts), LONGEST)?.ok(words)?;
    }
    ensure!(Path::new(PLUGINS).join("bridge").is_file(), "{PLUGINS} has no network plugins");
    Ok(())
}
