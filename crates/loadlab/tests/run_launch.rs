//! Agents started by a scheduler: Slurm's own daemons, in a folder of the test.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::ports;
use crate::run_support::swarm::{Nats, counted, new_key};
use crate::run_support::{Lab, eventually, processes_with};

/// A cluster of one node. Its daemons keep everything in their folder, and end when this is dropped.
struct Slurm {
    dir: tempfile::TempDir,
    daemons: Vec<(&'static str, Child)>,
}

impl Slurm {
    fn start() -> Slurm {
        let dir = tempfile::tempdir().expect("a folder can be made");
        // munged refuses a socket that other users cannot reach.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("its mode");
        let mut slurm = Slurm { dir, daemons: Vec::new() };
        let at = |name: &str| slurm.dir.path().join(name).display().to_string();
        std::fs::write(at("munge.key"), random_bytes()).expect("a file can be written");
        std::fs::set_permissions(at("munge.key"), std::fs::Permissions::from_mode(0o400)).expect("its mode");
        for name in ["state", "spool"] {
            std::fs::create_dir(at(name)).expect("a folder can be made");
        }
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = name.split('.').next().expect("a name").to_owned();
        let (controller, node) = (ports::unused().port(), ports::unused().port());
        let config = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             SlurmctldPort={controller}\nSlurmdPort={node}\nAuthType=auth/munge\nCredType=cred/munge\n\
             AuthInfo=socket={socket}\nStateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldPidFile={dir}/c.pid\n\
             SlurmdPidFile={dir}/d.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n\
             SlurmdParameters=config_overrides\nNodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8\n\
             PartitionName=all Nodes=n1 Default=YES MaxTime=10\n\
             PartitionName=down Nodes=n1 MaxTime=10 State=DOWN\n",
            socket = at("munge.sock"),
            state = at("state"),
            spool = at("spool"),
            dir = slurm.dir.path().display(),
        );
        std::fs::write(slurm.config(), config).expect("a file can be written");
        let files = [
            ("--key-file", "munge.key"),
            ("--socket", "munge.sock"),
            ("--pid-file", "m.pid"),
            ("--log-file", "m.log"),
            ("--seed-file", "m.seed"),
        ];
        let files = files.map(|(option, name)| format!("{option}={}", at(name)));
        let mut munge = vec!["--foreground", "--force"];
        munge.extend(files.iter().map(String::as_str));
        slurm.serve("munged", "munge", &munge);
        eventually("munged", || slurm.dir.path().join("munge.sock").exists().then_some(()));
        slurm.serve("slurmctld", "slurmctld", &["-D", "-i"]);
        slurm.serve("slurmd", "slurmd", &["-D", "-N", "n1"]);
        eventually("an idle node", || {
            (slurm.said("sinfo", &["-h", "-o", "%T"]).contains("idle")).then_some(())
        });
        slurm
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("slurm.conf")
    }

    fn serve(&mut self, name: &'static str, package: &str, args: &[&str]) {
        let mut command = Command::new(format!("/usr/sbin/{name}"));
        let log = std::fs::File::create(self.dir.path().join(format!("{name}.log"))).expect("a file");
        command.args(args).env("SLURM_CONF", self.config()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file")).stderr(log);
        let started = command.spawn().unwrap_or_else(|error| panic!("{name} (package {package}): {error}"));
        self.daemons.push((name, started));
    }

    fn said(&self, program: &str, args: &[&str]) -> String {
        let mut command = Command::new(program);
        let output = command.args(args).env("SLURM_CONF", self.config()).output().expect("it is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a plan with agents that this cluster starts.
    fn run(&self, lab: &Lab, nats: &Nats, text: &str, args: &[&str]) -> crate::run_support::Ran {
        lab.file("plan.yaml", text);
        let url = nats.url();
        let run = ["run", "plan.yaml", "--out", &lab.run_name(), "--swarm", &url, "--swarm-key", "key"];
        let mut command = lab.command(&[&run[..], &["--launch", "slurm"], args].concat());
        let tmp = lab.path().join("tmp");
        std::fs::create_dir_all(&tmp).expect("a folder can be made");
        command.env("SLURM_CONF", self.config()).env("TMPDIR", &tmp);
        crate::run_support::Ran::of(command.output().expect("loadlab starts"))
    }

    /// Waits until no job is queued or running.
    #[track_caller]
    fn is_empty(&self) {
        eventually("an empty queue", || self.said("squeue", &["-h"]).trim().is_empty().then_some(()));
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.said("scancel", &["--user", "root"]);
        // In reverse order of start, since each depends on those before it; each daemon ends what it started.
        for (name, mut daemon) in self.daemons.drain(..).rev() {
            let _ = kill_process(Pid::from_child(&daemon), Signal::TERM);
            if name == "slurmd" {
                // slurmd reacts to a signal at once, unless it is still starting.
                let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
                while std::time::Instant::now() < until && matches!(daemon.try_wait(), Ok(None)) {
                    std::thread::yield_now();
                }
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn random_bytes() -> Vec<u8> {
    use std::io::Read;
    let mut bytes = vec![0; 1024];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .expect("random bytes");
    bytes
}

/// Slurm starts three agents, which send every request once; nothing of theirs is left when the run is over. What
/// cannot work fails with a helpful message.
#[test]
fn slurm_starts_the_agents() {
    let (lab, slurm) = (Lab::new(), Slurm::start());
    let nats = Nats::start(&lab);
    new_key(&lab, "key");
    let text = counted("  rate: 60\n  duration: 2s\n");
    let ran = slurm.run(&lab, &nats, &text, &["--slots", "3"]);
    assert!(ran.err.contains("waiting for 3 agents, submitted as Slurm job "), "{}", ran.err);
    assert!(lab.record().trial("default", 1).join("summary.json").exists(), "{}", ran.err);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    let requests = &summary["requests"];
    assert_eq!((&requests["due"], &requests["ok"]), (&120.into(), &120.into()), "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 120.0, "{:#}", summary["probes"]);
    let mut names: Vec<&str> =
        summary["agents"].as_array().expect("agents").iter().filter_map(|a| a["agent"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 3, "{names:?}");
    for (task, name) in names.iter().enumerate() {
        assert!(name.starts_with("slurm-") && name.ends_with(&format!("-{task}")), "{names:?}");
    }
    assert!(lab.record().manifest()["options"].to_string().contains("--launch slurm"));
    slurm.is_empty();
    let left: Vec<_> = std::fs::read_dir(lab.path().join("tmp")).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "agents leave nothing: {left:?}");

    let refused = |args: &[&str], code: i32, holds: &[&str]| {
        let _ = std::fs::remove_dir_all(lab.record().dir);
        slurm.run(&lab, &nats, &text, &[&["--slots", "2"], args].concat()).expect(code, holds);
        slurm.is_empty();
    };
    refused(
        &["--launch-arg=--partition=none"],
        5,
        &["--launch: sbatch failed: invalid partition specified: none"],
    );
    // A pending job: its reason is reported, and the run waits no longer than requested.
    let waits = ["0 of 2 agents joined within ", "2 PENDING (", "hint: --launch-wait"];
    refused(&["--launch-arg", "--partition=down", "--launch-wait", "1s"], 5, &waits);
    // A job that cannot run is not waited for.
    let ends = ["0 of 2 agents joined within ", "2 FAILED (", "hint: --launch-arg --output=FILE"];
    refused(&["--launch-program", "/nonexistent/loadlab", "--launch-wait", "10m"], 5, &ends);
    let place = slurm.dir.path().display().to_string();
    assert!(!processes_with(&place).is_empty(), "its daemons run");
    drop(slurm);
    eventually("its daemons to end", || processes_with(&place).is_empty().then_some(()));
}

/// How `kubectl` is called, with a stand-in for it: the stand-in takes the manifest, reports that no node has room, and
/// records its arguments. It cannot show that an API server accepts the Job.
#[test]
fn kubectl_applies_looks_and_deletes() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let stand_in = lab.file(
        "stand-in",
        "#!/bin/sh\necho \"$*\" >> calls\ncase $1 in\n  apply) cat > job.yaml; [ ! -e refuse ] || { echo 'error: no \
         such namespace' >&2; exit 1; } ;;\n  get) echo '{\"items\": [{\"kind\": \"Pod\", \"status\": {\"phase\": \
         \"Pending\", \"conditions\": [{\"status\": \"False\", \"reason\": \"Unschedulable\"}]}}]}' ;;\nesac\n",
    );
    // By another process: while this one has a program open for writing, a parallel test may fork, and the program
    // would be busy.
    let mut install = Command::new("install");
    let installed = install.arg(&stand_in).arg(lab.path().join("kubectl")).status();
    assert!(installed.expect("install is there (coreutils)").success());
    lab.file("plan.yaml", &counted("  users: 1\n  requests: 1\n"));
    let path = format!("{}:/usr/bin:/bin", lab.path().display());
    let name = lab.run_name();
    let run = |url: &str, more: &[&str]| {
        let swarm = ["--swarm", url, "--slots", "3", "--swarm-key", "key", "--launch", "kubernetes"];
        let args = [&["run", "plan.yaml", "--out", &name][..], &swarm, more].concat();
        let output = lab.command(&args).env("PATH", &path).output().expect("loadlab starts");
        crate::run_support::Ran::of(output)
    };
    run(&nats.url(), &[]).expect(2, &["--launch: kubernetes needs --launch-image IMAGE"]);
    let secret = nats.url().replace("://", "://me:pass@");
    run(&secret, &["--launch-image", "i"])
        .expect(2, &["others can read a Job", "hint: --launch-creds SECRET"]);
    assert_eq!(lab.lines("calls"), Vec::<String>::new());

    let more = [
        "--launch-image",
        "registry.test/loadlab:1",
        "--launch-arg=--namespace=load",
        "--allow-host",
        "shop.test",
    ];
    let ran = run(&nats.url(), &[&more[..], &["--launch-wait", "1s"]].concat());
    ran.expect(5, &["0 of 3 agents joined within ", "pods of Job loadlab-", ": 1 Pending (Unschedulable)"]);
    let (calls, job) = (lab.lines("calls"), lab.read("job.yaml"));
    let instance =
        calls[1].rsplit_once('=').and_then(|_| calls[1].split("instance=").nth(1)).expect("a label");
    let instance = instance.split(' ').next().expect("a name");
    assert_eq!(calls.first().map(String::as_str), Some("apply --filename - --namespace=load"));
    let deletes = format!("delete job {instance} --ignore-not-found --wait=false --namespace=load");
    assert_eq!(calls.last(), Some(&deletes), "{calls:?}");
    for words in [
        format!("name: \"{instance}\""),
        format!("COORDINATOR_KEY, value: \"{key}\""),
        format!("LOADLAB_NATS, value: \"{}\"", nats.url()),
        "completions: 3".to_owned(),
        "parallelism: 3".to_owned(),
        "image: \"registry.test/loadlab:1\"".to_owned(),
        "- \"--allow-host=shop.test\"".to_owned(),
    ] {
        assert!(job.contains(&words), "no {words} in:\n{job}");
    }
    lab.file("refuse", "");
    run(&nats.url(), &more).expect(5, &["--launch: kubectl failed: no such namespace"]);
    let last = lab.lines("calls").pop().unwrap_or_default();
    assert!(last.starts_with("delete job loadlab-"), "what may be there is deleted: {last}");
}

/// An agent that the scheduler starts after its run is over does not wait for another run.
#[test]
fn an_agent_of_a_run_that_is_over_leaves() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let url = nats.url();
    let args = ["agent", "--once", "--nats", &url, "--coordinator-key", &key, "--spool", "spool"];
    let ran = lab.loadlab(&[&args[..], &["--leave-unannounced", "200ms"]].concat());
    ran.expect(0, &["connected to nats://127.0.0.1:", "no run was announced within 0.2 s"]);
}

/// If a requirement is missing, neither the run nor a job begins.
#[test]
fn what_launches_need_is_checked_first() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    new_key(&lab, "key");
    let text = counted("  users: 1\n  requests: 1\n");
    lab.file("plan.yaml", &text);
    let run = |args: &[&str]| {
        let name = lab.run_name();
        let args = [&["run", "plan.yaml", "--out", &name, "--launch", "slurm"], args].concat();
        let output = lab.command(&args).env("PATH", lab.path()).output().expect("loadlab starts");
        crate::run_support::Ran::of(output)
    };
    run(&["--swarm", "local:2"]).expect(2, &["--launch: `local:N` starts its own agents", "hint: --swarm"]);
    run(&[]).expect(2, &["--swarm"]);
    let local = |args: &[&str]| {
        let name = lab.run_name();
        lab.loadlab(&[&["run", "plan.yaml", "--out", &name, "--swarm", "local:2"], args].concat())
    };
    local(&["--slots", "3"]).expect(2, &["--slots 3: `local:2` has 2 agents", "hint: --swarm local:3"]);
    for option in ["--swarm-key", "--swarm-creds", "--swarm-ca"] {
        let why = format!("{option}: `local:N` starts its own NATS server with its own key");
        local(&["--slots", "2", option, "key"]).expect(2, &[&why]);
    }
    run(&["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "key"])
        .expect(5, &["--launch: sbatch is not installed", "in the package slurm-client"]);
}
