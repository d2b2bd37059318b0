//! Agents, NATS servers and plans for loads that several processes send.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Lab, Ran, Running, component, eventually, moment_of_a_fault, plan, processes_with};
use crate::common::ports;

/// A plan that posts ids, which the server counts and keeps.
pub fn counted(load: &str) -> String {
    let probe =
        "  probes: { posted: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /posted } }\n";
    let journey = "  journey: [{ post: \"http://127.0.0.1:${components.web.port}/items/${unique}\" }]\n";
    let loss = "durability: { http: \"http://127.0.0.1:${components.web.port}/ids\", json: /ids }\n";
    // A server that is held up for a while still answers everything.
    let grace = "  grace: 60s\n";
    plan(&[component("web", "", &[])], &format!("{probe}load:\n{load}{grace}{journey}{loss}"))
}

/// Agents and servers of this lab's run, by the folder they were started with.
pub fn swarm_processes(lab: &Lab) -> Vec<u32> {
    processes_with(&lab.path().join("tmp").display().to_string())
}

/// Runs a plan with agents on this machine, with a temporary folder in the lab's own.
#[track_caller]
pub fn run_local(lab: &Lab, text: &str, args: &[&str]) -> Ran {
    std::fs::create_dir_all(lab.path().join("tmp")).expect("a folder can be made");
    lab.file("plan.yaml", text);
    let mut command = lab.command(&[&["run", "plan.yaml", "--out", &lab.run_name()], args].concat());
    command.env("TMPDIR", lab.path().join("tmp"));
    let ran = Ran::of(command.output().expect("loadlab starts"));
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    assert_eq!(swarm_processes(lab), Vec::<u32>::new(), "{}", ran.err);
    let left: Vec<_> = std::fs::read_dir(lab.path().join("tmp")).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    ran
}

/// A NATS server for one test.
pub struct Nats {
    pub child: Child,
    pub port: u16,
    pub streams: std::path::PathBuf,
}

impl Nats {
    pub fn start(lab: &Lab) -> Nats {
        let (port, streams) = (ports::unused().port(), lab.path().join("streams"));
        Nats { child: Nats::serve(port, &streams), port, streams }
    }

    fn serve(port: u16, streams: &std::path::Path) -> Child {
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(streams);
        Nats::listening(command, port)
    }

    pub fn listening(mut command: Command, port: u16) -> Child {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nats-server is installed (package nats-server)");
        eventually("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
        child
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// Starts the server again with what it had on disk.
    pub fn again(&mut self) {
        self.child = Nats::serve(self.port, &self.streams);
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent started by a test.
pub struct Agent {
    pub child: Child,
    pub log: std::path::PathBuf,
}

impl Agent {
    pub fn start(lab: &Lab, nats: &Nats, name: &str, more: &[&str]) -> Agent {
        let spool = lab.path().join(format!("spool-{name}")).display().to_string();
        Agent::start_at(lab, &nats.url(), name, &[more, &["--spool", &spool]].concat())
    }

    pub fn start_at(lab: &Lab, url: &str, name: &str, more: &[&str]) -> Agent {
        let log = lab.path().join(format!("{name}.log"));
        let mut command = lab.command(&["agent", "--nats", url, "--name", name]);
        command
            .args(more)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a file can be made"));
        Agent { child: command.spawn().expect("loadlab starts"), log }
    }

    pub fn wait_for_output(&self, text: &str) {
        eventually(text, || std::fs::read_to_string(&self.log).ok().filter(|log| log.contains(text)));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a key in a file that nobody else can read; returns its public part.
#[track_caller]
pub fn new_key(lab: &Lab, name: &str) -> String {
    let ran = lab.loadlab(&["agent", "--new-key", name]);
    ran.expect(0, &[]);
    let mode = std::fs::metadata(lab.path().join(name)).expect("the key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    ran.out.trim().to_owned()
}

/// Starts two agents and a load, and waits until it is under way.
pub fn under_way(lab: &Lab, nats: &Nats, load: &str, options: &[&str]) -> (Vec<Agent>, Running) {
    let both = started(lab, nats, &counted(load), options);
    moment_of_a_fault(lab, "default", Duration::from_secs(2));
    both
}

/// Starts two agents and a run that they take part in.
pub fn started(lab: &Lab, nats: &Nats, text: &str, options: &[&str]) -> (Vec<Agent>, Running) {
    let key = new_key(lab, "key");
    lab.file("key.public", &key);
    let more = ["--coordinator-key", &key, "--threads", "1", "--once"];
    let agents = ["one", "two"].map(|name| Agent::start(lab, nats, name, &more)).into();
    let url = nats.url();
    let args = [&["--swarm", &url, "--slots", "2", "--swarm-key", "key"], options].concat();
    (agents, lab.start(text, &args))
}

/// The notes of the first trial.
pub fn record_notes(lab: &Lab) -> String {
    let notes = lab.record().events("default", 1, "note");
    notes.iter().filter_map(|n| n["text"].as_str()).collect::<Vec<_>>().join("\n")
}
