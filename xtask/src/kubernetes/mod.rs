//! `cargo xtask kubernetes`: agents as pods of a real cluster. API server, controllers, scheduler and kubelet are built
//! from source and run on this machine in separate namespaces, with Debian's etcd and containerd; the image contains
//! the program that `cargo xtask dist` makes. The steps of deploy/README.md are followed as written.

mod cluster;
mod image;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::cluster::{BUILT, Cluster, NODE, PLUGINS};
use crate::command::{Ends, Ran, captured, find, program, shown, soon};
use crate::dist::{self, Arch};
use crate::packages;
use crate::peers::measure::Cores;
use crate::peers::server::Server;
use crate::root::{root, target};
use crate::steps::Outcome;

/// The Kubernetes version that is built: see `xtask/kubernetes/go.mod`.
const VERSION: &str = "v1.34.4";
/// The pods' namespace, and the Secret and image that they use.
const NAMESPACE: &str = "load";
const SECRET: &str = "loadlab";
const IMAGE: &str = "loadlab:test";
/// Number of pods: a node of two cores has room for two.
const SLOTS: &str = "2";
const RATE: u64 = 200;
/// Time limits of the build, of a run, and of everything else.
const BUILD: Duration = Duration::from_secs(40 * 60);
const LONGEST: Duration = Duration::from_secs(240);
const QUICK: Duration = Duration::from_secs(60);
/// Prefix of the line in which the inner program prints its result.
const FOUND: &str = "found: ";

/// Options of `cargo xtask kubernetes`.
#[derive(clap::Args)]
pub struct Args {
    /// Use this static loadlab for the image, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Run only the cluster and the checks: this process is already in its own namespaces
    #[arg(long, hide = true, requires = "program")]
    inside: bool,
}

/// Runs the checks, and prints the result.
///
/// # Errors
/// Something is missing, or does not work.
pub fn run(args: &Args) -> Result<ExitCode> {
    match (&args.program, args.inside) {
        (Some(program), true) => println!("{FOUND}{}", inside(program)?),
        (given, _) => println!("{}", check(given.as_deref())?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds everything, and runs the checks.
///
/// # Errors
/// Those of [`run`].
pub fn long() -> Outcome {
    check(None)
}

fn check(given: Option<&Path>) -> Outcome {
    ensure!(rustix::process::geteuid().is_root(), "a node needs root");
    packages::ready(packages::FOR_KUBERNETES, true)?;
    if !Path::new(PLUGINS).join("bridge").is_file() {
        packages::install_packages(&["containernetworking-plugins"])?;
    }
    ensure!(groups().is_empty(), "this machine is a node of another cluster: {:?}", groups());
    fs::create_dir_all(dir())?;
    build()?;
    let made = match given {
        Some(program) => program.to_owned(),
        None => {
            let arch = Arch::of_this_machine()?;
            let releases = dist::make(&[arch], "dev", &dir().join("dist"), true)?;
            releases.first().context("nothing was made")?.program()
        }
    };
    // Whatever is still running when the first process of the namespaces ends is killed with it.
    let mut command = program("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(std::env::current_exe().context("this program's file")?);
    command.args(["kubernetes", "--inside", "--program"]).arg(made);
    let ran = shown(&mut command);
    remove_groups()?;
    let ran = ran?;
    ensure!(ran.status.success(), "{}", last_line(&ran.stdout));
    let found = ran.stdout.lines().find_map(|line| line.strip_prefix(FOUND));
    found.map(str::to_owned).context("nothing was found")
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it failed")
}

fn dir() -> PathBuf {
    target().join("xtask/kubernetes")
}

/// Existing control groups of pods.
fn groups() -> Vec<PathBuf> {
    let controllers =
        fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let roots = controllers.chain([PathBuf::from("/sys/fs/cgroup")]);
    roots.map(|root| root.join("kubepods")).filter(|group| group.is_dir()).collect()
}

/// Removes the pods' control groups: the kubelet leaves them behind, and their processes are gone.
fn remove_groups() -> Result<()> {
    fn remove(group: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(group)?.flatten().filter(|entry| entry.path().is_dir()) {
            remove(&entry.path())?;
        }
        fs::remove_dir(group)
    }
    let remove_all = || {
        groups().iter().for_each(|group| drop(remove(group)));
        Ok(groups().is_empty().then_some(()))
    };
    soon("the end of the pods' control groups", QUICK, remove_all)
}

/// Builds the cluster's programs, unless that was done before.
fn build() -> Result<()> {
    let programs = dir().join("programs");
    let stamp = programs.join(VERSION);
    if stamp.is_file() {
        return Ok(());
    }
    fs::create_dir_all(&programs)?;
    let version = VERSION.trim_start_matches('v').split('.').collect::<Vec<_>>();
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let flags = [
        "-s -w".to_owned(),
        set("gitVersion", VERSION),
        set("gitMajor", version[0]),
        set("gitMinor", version[1]),
    ];
    let mut go = program(find("go").context("go is not installed")?);
    go.current_dir(root().join("xtask/kubernetes"));
    go.args(["build", "-mod=readonly", "-trimpath", "-ldflags", &flags.join(" "), "-o"]);
    go.arg(&programs).args(BUILT.map(|name| format!("k8s.io/kubernetes/cmd/{name}")));
    captured(&mut go, BUILD)?.ok("go build")?;
    Ok(fs::write(stamp, "")?)
}

/// Starts the cluster and runs its checks.
fn inside(made: &Path) -> Outcome {
    let work = dir().join("run");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let busybox = find("busybox").context("busybox is not installed")?;
    let images = [
        image::archive(&work, "loadlab", made, &[])?,
        image::archive(&work, "pause", &busybox, &["sleep", "1000000"])?,
    ];
    let cluster = Cluster::start(&work, &dir().join("programs"), &images)?;
    let lab = Lab::new(cluster, made, &work)?;
    let found = [lab.launched()?, lab.replaced()?, lab.without_room()?, lab.by_overlay()?];
    Ok(format!("Kubernetes {VERSION}: {}", found.join("; ")))
}

/// The cluster, and what a user has beside it.
struct Lab {
    cluster: Cluster,
    loadlab: PathBuf,
    dir: PathBuf,
    server: Server,
    /// Public part of the key that signs orders.
    public_key: String,
    _nats: Ends,
}

impl Lab {
    /// Sets up the NATS server, keys and Secret of the runbook, a namespace that allows pods only what they need, and a
    /// user who may do only what launching takes.
    fn new(cluster: Cluster, loadlab: &Path, work: &Path) -> Result<Lab> {
        let dir = work.join("user");
        fs::create_dir_all(&dir)?;
        let deploy = root().join("deploy");
        let mut users = program(deploy.join("nats/users.sh"));
        captured(users.arg(SLOTS).arg(&dir).env("LOADLAB", loadlab), QUICK)?.ok("users.sh")?;
        let key =
            captured(program(loadlab).args(["agent", "--new-key"]).arg(dir.join("signing-key")), QUICK)?;
        let public_key = key.ok("loadlab agent --new-key")?.stdout.trim().to_owned();
        let mut openssl = program("openssl");
        openssl.current_dir(&dir).args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
        openssl.args([
            "-subj",
            "/CN=nats",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            &format!("subjectAltName=IP:{NODE}"),
        ]);
        captured(openssl.args(["-keyout", "server.key", "-out", "server.crt"]), QUICK)?.ok("openssl")?;
        fs::copy(dir.join("server.crt"), dir.join("ca.crt"))?;
        fs::copy(deploy.join("nats/nats.conf"), dir.join("nats.conf"))?;
        let mut command = program(find("nats-server").context("nats-server is not installed")?);
        command.current_dir(&dir).args(["-c", "nats.conf"]);
        let nats = Ends(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        soon("nats-server", QUICK, || Ok(std::net::TcpStream::connect((NODE, 4222)).ok()))?;

        cluster.asks(&["create", "namespace", NAMESPACE])?;
        let strict = "pod-security.kubernetes.io/enforce=restricted";
        cluster.asks(&["label", "namespace", NAMESPACE, strict])?;
        let role = root().join("deploy/kubernetes/role.yaml").display().to_string();
        cluster.asks(&["--namespace", NAMESPACE, "apply", "--filename", &role])?;
        let bound = ["--role=loadlab", "--user=loader"];
        cluster
            .asks(&[&["--namespace", NAMESPACE, "create", "rolebinding", "loader"], &bound[..]].concat())?;
        let mut secret = cluster.kubectl();
        secret.current_dir(&dir).args(["--namespace", NAMESPACE, "create", "secret", "generic", SECRET]);
        secret.arg(format!("--from-literal=url=tls://{NODE}:4222")).arg("--from-file=ca.crt");
        for slot in 0..SLOTS.parse::<u32>()? {
            secret.arg(format!("--from-file=slot-{slot}"));
        }
        captured(&mut secret, QUICK)?.ok("kubectl create secret")?;
        let server = Server::start_at(NODE, &Cores::choose()?, &dir)?;
        Ok(Lab { cluster, loadlab: loadlab.to_owned(), dir, server, public_key, _nats: nats })
    }

    /// A run that loads nginx for the given number of seconds.
    fn started(&self, name: &str, seconds: u64, slots: &str, more: &[&str]) -> Result<std::process::Command> {
        let url = format!("http://{}/128", self.server.address());
        let plan = format!(
            "loadlab: 1\nname: pods\nallow_hosts: [{NODE}]\nload:\n  rate: {RATE}\n  duration: {seconds}s\n  journey:\n    - get: {url}\n"
        );
        fs::write(self.dir.join("plan.yaml"), plan)?;
        let _ = fs::remove_dir_all(self.dir.join(name));
        let mut command = program(&self.loadlab);
        command.current_dir(&self.dir).args(["run", "plan.yaml", "--plain", "--out", name]);
        command.args([
            "--swarm",
            &format!("tls://{NODE}:4222"),
            "--slots",
            slots,
            "--swarm-key",
            "signing-key",
        ]);
        command.args(["--swarm-creds", "coordinator", "--swarm-ca", "ca.crt"]).args(more);
        // The user who may do only what launching takes.
        command.env("KUBECONFIG", self.cluster.access("loader"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = std::env::split_paths(&path).collect::<Vec<_>>();
        command.env("PATH", std::env::join_paths([vec![dir().join("programs")], programs].concat())?);
        Ok(command)
    }

    fn launch(&self, name: &str, seconds: u64, slots: &str, more: &[&str]) -> Result<std::process::Command> {
        let launch = ["--launch", "kubernetes", "--launch-image", IMAGE, "--launch-creds", SECRET];
        let to = format!("--launch-arg=--namespace={NAMESPACE}");
        self.started(name, seconds, slots, &[&launch[..], &[&to], more].concat())
    }

    fn summary(&self, name: &str, ran: &Ran) -> Result<Value> {
        let file = self.dir.join(name).join("cases/default/1/summary.json");
        let text = fs::read_to_string(&file).with_context(|| format!("{}\n{}", ran.stdout, ran.stderr))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until no Job and no pod is left.
    fn all_gone(&self) -> Result<()> {
        let left = ["--namespace", NAMESPACE, "get", "jobs,pods", "--output", "name"];
        soon("the end of the pods", QUICK, || Ok(self.cluster.asks(&left)?.trim().is_empty().then_some(())))
    }

    /// Launches pods, which send all of the load and are then removed.
    fn launched(&self) -> Outcome {
        let before = self.server.counts()?.0;
        let ran = captured(&mut self.launch("launched", 10, SLOTS, &[])?, LONGEST)?;
        let counted = self.server.counts()?.0 - before - 1;
        let summary = self.summary("launched", &ran)?;
        let (due, ok) = counts(&summary)?;
        ensure!(
            (due, ok, counted) == (RATE * 10, due, due),
            "{due} due, {ok} ok, {counted} counted by nginx"
        );
        let agents = summary["agents"].as_array().context("no agents")?;
        let names: Vec<&str> = agents.iter().filter_map(|agent| agent["agent"].as_str()).collect();
        ensure!(
            names.len() == 2 && names.iter().all(|name| name.starts_with("loadlab-")),
            "agents {names:?}"
        );
        self.all_gone()?;
        Ok(format!("{SLOTS} pods of a launched Job sent {due} requests, which nginx counted"))
    }

    /// Deletes a pod in the middle of a load: the Job makes another one, which takes over its slot.
    fn replaced(&self) -> Outcome {
        let mut command = self.launch("replaced", 40, SLOTS, &["--on-lost-agent", "replace"])?;
        let log = fs::File::create(self.dir.join("replaced.log"))?;
        let mut child = Ends(command.stdout(log.try_clone()?).stderr(log).spawn()?);
        let ticks = self.dir.join("replaced/cases/default/1/ticks.jsonl");
        soon("a second of load", LONGEST, || {
            ensure!(child.0.try_wait()?.is_none(), "{}", fs::read_to_string(self.dir.join("replaced.log"))?);
            Ok(fs::read_to_string(&ticks).ok().filter(|text| !text.is_empty()))
        })?;
        let pods = self.cluster.asks(&["--namespace", NAMESPACE, "get", "pods", "--output", "name"])?;
        let pod = pods.lines().next().context("no pod")?;
        let at_once = ["--grace-period=0", "--force", "--wait=false"];
        self.cluster.asks(&[&["--namespace", NAMESPACE, "delete", pod], &at_once[..]].concat())?;
        let status = soon("the end of the run", LONGEST, || Ok(child.0.try_wait()?))?;
        let text = fs::read_to_string(self.dir.join("replaced.log"))?;
        let ran = Ran { status, stdout: text, stderr: String::new() };
        let summary = self.summary("replaced", &ran)?;
        let lost: Vec<&Value> =
            summary["agents"].as_array().into_iter().flatten().filter_map(|a| a["lost"].get(0)).collect();
        let missing = summary["requests"]["not_offered"].as_u64().context("no account of what is missing")?;
        let (due, _) = counts(&summary)?;
        ensure!(summary["ended"] == "complete", "it ended {}: {}", summary["ended"], ran.stdout);
        ensure!(lost.len() == 1 && lost[0]["replaced_at_s"].is_f64(), "nobody was replaced: {lost:?}");
        ensure!(due + missing == RATE * 40, "{due} due and {missing} not offered are not {}", RATE * 40);
        self.all_gone()?;
        Ok(format!(
            "another pod took the place of one that was deleted, and {missing} of {} requests were not offered",
            RATE * 40
        ))
    }

    /// Launches more pods than there is room for: loadlab reports what the scheduler says.
    fn without_room(&self) -> Outcome {
        let mut command = self.launch("without-room", 5, "9", &["--launch-wait", "15s"])?;
        let ran = captured(&mut command, LONGEST)?;
        let said = format!("{}{}", ran.stdout, ran.stderr);
        ensure!(
            ran.status.code() == Some(5) && said.contains("Pending (Unschedulable)"),
            "{}: {said}",
            ran.status
        );
        self.all_gone()?;
        Ok("nine pods have no room, which is said".to_owned())
    }

    /// Applies the Job from an overlay, as the runbook does, and starts the run without `--launch`.
    fn by_overlay(&self) -> Outcome {
        let overlay = self.dir.join("overlay");
        fs::create_dir_all(&overlay)?;
        let runbook = fs::read_to_string(root().join("deploy/README.md"))?;
        let block = runbook.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        let mut text = block.context("the runbook has an overlay")?.to_owned();
        for (from, to) in [
            ("[../kubernetes]", "[base]"),
            ("registry.test/loadlab", "loadlab"),
            ("newTag: \"1\"", "newTag: test"),
            ("value: 40", &format!("value: {SLOTS}")),
            ("UAB…", &self.public_key),
            ("shop.test", NODE),
        ] {
            ensure!(text.contains(from), "the runbook's overlay has no {from}");
            text = text.replace(from, to);
        }
        fs::write(overlay.join("kustomization.yaml"), text)?;
        fs::create_dir_all(overlay.join("base"))?;
        for name in ["job.yaml", "kustomization.yaml"] {
            let (from, to) = (root().join("deploy/kubernetes").join(name), overlay.join("base").join(name));
            fs::copy(&from, &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o644))?;
        }
        let folder = overlay.display().to_string();
        let mut apply = self.cluster.kubectl();
        apply.args(["--namespace", NAMESPACE, "apply", "--kustomize", &folder]);
        let ran = captured(&mut apply, QUICK)?.ok("kubectl apply")?;
        ensure!(!ran.stderr.contains("Warning"), "{}", ran.stderr);
        let ready = format!("--for=jsonpath={{.status.ready}}={SLOTS}");
        self.cluster.asks(&["--namespace", NAMESPACE, "wait", &ready, "job/loadlab", "--timeout=50s"])?;
        let before = self.server.counts()?.0;
        let ran = captured(&mut self.started("by-overlay", 5, SLOTS, &[])?, LONGEST)?;
        let counted = self.server.counts()?.0 - before - 1;
        let (due, ok) = counts(&self.summary("by-overlay", &ran)?)?;
        ensure!((due, ok, counted) == (RATE * 5, due, due), "{due} due, {ok} ok, {counted} counted by nginx");
        let done = ["--for=condition=complete", "job/loadlab", "--timeout=50s"];
        self.cluster.asks(&[&["--namespace", NAMESPACE, "wait"], &done[..]].concat())?;
        self.cluster.asks(&["--namespace", NAMESPACE, "delete", "job", "loadlab"])?;
        self.all_gone()?;
        Ok("so does an overlay of the base without `--launch`".to_owned())
    }
}

/// Numbers of requests due and of requests answered successfully.
fn counts(summary: &Value) -> Result<(u64, u64)> {
    let of = |name: &str| summary["requests"][name].as_u64();
    match (of("due"), of("ok")) {
        (Some(due), Some(ok)) => Ok((due, ok)),
        _ => bail!("no requests: {summary}"),
    }
}
