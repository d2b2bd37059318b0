//! Loads that agents send, with a real NATS server: together they send what one process would.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::ports;
use crate::run_support::{Lab, component, eventually, plan, processes_with};

/// Posts ids, which the server counts and keeps.
fn counted(load: &str) -> String {
    let probe =
        "  probes: { posted: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /posted } }\n";
    let journey = "  journey: [{ post: \"http://127.0.0.1:${components.web.port}/items/${unique}\" }]\n";
    let loss = "durability: { http: \"http://127.0.0.1:${components.web.port}/ids\", json: /ids }\n";
    plan(&[component("web", "", &[])], &format!("{probe}load:\n{load}{journey}{loss}"))
}

/// Agents and servers of a run's own, by the folder they were started with.
fn swarm_processes(lab: &Lab) -> Vec<u32> {
    processes_with(&lab.path().join("tmp").display().to_string())
}

/// Runs a plan with agents on this machine, whose folder is the lab's own.
#[track_caller]
fn run_local(lab: &Lab, text: &str, args: &[&str]) -> crate::run_support::Ran {
    std::fs::create_dir_all(lab.path().join("tmp")).expect("a folder can be made");
    lab.file("plan.yaml", text);
    let mut command = lab.command(&[&["run", "plan.yaml", "--out", &lab.run_name()], args].concat());
    command.env("TMPDIR", lab.path().join("tmp"));
    let ran = crate::run_support::Ran::of(command.output().expect("loadlab starts"));
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    assert_eq!(swarm_processes(lab), Vec::<u32>::new(), "{}", ran.err);
    let left: Vec<_> = std::fs::read_dir(lab.path().join("tmp")).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    ran
}

/// Three agents with different numbers of threads in all send every request of the schedule once: the server has
/// exactly as many as were accepted, and the record is that of one load.
#[test]
fn agents_on_this_machine_send_one_load() {
    let lab = Lab::new();
    let text = counted("  rate: 200\n  duration: 2s\n");
    let ran = run_local(&lab, &text, &["--swarm", "local:3"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["requests"]["due"], 400, "{summary:#}");
    assert_eq!(summary["requests"]["ok"], 400, "{summary:#}");
    assert_eq!(summary["probes"]["posted"]["last"], 400.0, "{:#}", summary["probes"]);
    assert_eq!(summary["generator"]["threads"], 3);
    // Each id was used once, whichever agent used it.
    let loss = &summary["loss"];
    let found = ["accepted", "lost_max", "doubled"].map(|name| loss[name].as_u64());
    assert_eq!(found, [Some(400), Some(0), Some(0)], "{loss}");
    let due: u64 = record.lines("default", 1, "ticks.jsonl").iter().filter_map(|t| t["due"].as_u64()).sum();
    assert_eq!(due, 400);
    let notes = record.events("default", 1, "note");
    let is_sent =
        |n: &Value| n["text"].as_str().is_some_and(|text| text.starts_with("3 agents send the load"));
    assert!(notes.iter().any(is_sent), "{notes:?}");
    assert!(record.manifest()["options"].to_string().contains("--swarm local:3"));
}

/// A number of requests is divided, too, and ends the load.
#[test]
fn a_number_of_requests_is_divided() {
    let lab = Lab::new();
    let ran = run_local(&lab, &counted("  users: 6\n  requests: 601\n"), &["--swarm", "local:2"]);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(
        (&summary["requests"]["ok"], &summary["probes"]["posted"]["last"]),
        (&601.into(), &601.0.into())
    );
    assert_eq!(summary["load"]["users"], 6);
}

/// What an agent sent after its last report is unknown: the trial fails, and names it.
#[test]
fn a_lost_agent_fails_the_trial() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path().join("tmp")).expect("a folder can be made");
    lab.file("plan.yaml", &counted("  rate: 50\n  duration: 2m\n"));
    let mut command = lab.command(&["run", "plan.yaml", "--out", &lab.run_name(), "--swarm", "local:2"]);
    let child = command.env("TMPDIR", lab.path().join("tmp")).spawn().expect("loadlab starts");
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::read_to_string(&ticks).ok().filter(|text| !text.is_empty()));
    let agent = swarm_processes(&lab).into_iter().find(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("local-2")
    });
    let pid = agent.and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("an agent");
    kill_process(pid, Signal::KILL).expect("it can be killed");
    let ran = crate::run_support::Ran::of(child.wait_with_output().expect("it ends"));
    ran.expect(5, &["agent local-2 (slot ", "was silent for 5 s"]);
    assert_eq!(swarm_processes(&lab), Vec::<u32>::new());
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["ended"], "broken");
    assert!(summary["requests"]["ok"].as_u64() > Some(0), "what was reported is in the record");
}

#[test]
fn what_agents_cannot_send_is_refused_before_anything_runs() {
    let lab = Lab::new();
    let isolated =
        counted("  users: 1\n  requests: 1\n").replace("name: test\n", "name: test\nisolate: shared\n");
    let command = plan(
        &[component("web", "", &[])],
        "  probes: { n: { command: echo 1 } }\nload: { command: { run: /bin/true, counted_by: n } }\n",
    );
    for (text, why) in [(isolated, "`isolate`"), (command, "is a command, which only this machine runs")] {
        let ran = run_local(&lab, &text, &["--swarm", "local:2"]);
        ran.expect(2, &["--swarm: ", why]);
        assert!(!lab.record().dir.exists());
    }
    let text = counted("  users: 1\n  requests: 1\n");
    for (args, why) in [
        (&["--swarm", "local:0"][..], "expected `local:N` with 1 to 64 agents"),
        (&["--swarm", "nats://127.0.0.1:1"], "--swarm nats://… needs --slots N"),
        (&["--swarm", "nats://127.0.0.1:1", "--slots", "2"], "needs --swarm-key FILE"),
        (&["--slots", "2"], "--swarm"),
    ] {
        run_local(&lab, &text, args).expect(2, &[why]);
    }
}

#[test]
fn without_a_nats_server_the_package_is_named() {
    let lab = Lab::new();
    lab.file("plan.yaml", &counted("  users: 1\n  requests: 1\n"));
    let mut command = lab.command(&["run", "plan.yaml", "--out", &lab.run_name(), "--swarm", "local:2"]);
    let output = command.env("PATH", lab.path()).output().expect("loadlab starts");
    crate::run_support::Ran::of(output)
        .expect(5, &["nats-server is not installed", "in the package nats-server"]);
}

/// A NATS server of a test's own.
struct Nats {
    child: Child,
    port: u16,
    streams: std::path::PathBuf,
}

impl Nats {
    fn start(lab: &Lab) -> Nats {
        let (port, streams) = (ports::unused().port(), lab.path().join("streams"));
        Nats { child: Nats::serve(port, &streams), port, streams }
    }

    fn serve(port: u16, streams: &std::path::Path) -> Child {
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(streams);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nats-server is installed (package nats-server)");
        eventually("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        child
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    /// Started again with what it had on disk.
    fn again(&mut self) {
        self.child = Nats::serve(self.port, &self.streams);
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An agent that a test starts.
struct Agent {
    child: Child,
    log: std::path::PathBuf,
}

impl Agent {
    fn start(lab: &Lab, nats: &Nats, name: &str, more: &[&str]) -> Agent {
        let log = lab.path().join(format!("{name}.log"));
        let spool = lab.path().join(format!("spool-{name}")).display().to_string();
        let mut command = lab.command(&["agent", "--nats", &nats.url(), "--name", name, "--spool", &spool]);
        command
            .args(more)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a file can be made"));
        Agent { child: command.spawn().expect("loadlab starts"), log }
    }

    fn until_told(&self, text: &str) {
        eventually(text, || std::fs::read_to_string(&self.log).ok().filter(|log| log.contains(text)));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a key in a file that nobody else can read; returns its public part.
#[track_caller]
fn new_key(lab: &Lab, name: &str) -> String {
    let ran = lab.loadlab(&["agent", "--new-key", name]);
    ran.expect(0, &[]);
    let mode = std::fs::metadata(lab.path().join(name)).expect("the key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    ran.out.trim().to_owned()
}

/// Two agents and a load under way.
fn under_way(lab: &Lab, nats: &Nats, load: &str) -> (Vec<Agent>, crate::run_support::Running) {
    let key = new_key(lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1", "--once"];
    let agents = ["one", "two"].map(|name| Agent::start(lab, nats, name, &more)).into();
    let args = ["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "key"];
    let running = lab.start(&counted(load), &args);
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::read_to_string(&ticks).ok().filter(|text| !text.is_empty()));
    (agents, running)
}

/// A server that is killed and started again with its streams loses nothing: what was not acknowledged is sent again,
/// and nothing counts twice.
#[test]
fn a_nats_server_that_is_killed_and_started_again() {
    let lab = Lab::new();
    let mut nats = Nats::start(&lab);
    let (_agents, running) = under_way(&lab, &nats, "  rate: 100\n  duration: 6s\n");
    nats.kill();
    nats.again();
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["ended"], "complete");
    let requests = &summary["requests"];
    assert_eq!((&requests["due"], &requests["ok"]), (&600.into(), &600.into()), "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 600.0);
    let found = ["accepted", "lost_max", "doubled"].map(|name| summary["loss"][name].as_u64());
    assert_eq!(found, [Some(600), Some(0), Some(0)], "{}", summary["loss"]);
}

/// One that stays away keeps nobody from ending the run.
#[test]
fn a_nats_server_that_stays_away() {
    let lab = Lab::new();
    let mut nats = Nats::start(&lab);
    let (agents, running) = under_way(&lab, &nats, "  rate: 100\n  duration: 10m\n");
    nats.kill();
    running.signal(Signal::INT);
    let ran = running.end();
    ran.expect(130, &[]);
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["ended"], "interrupted");
    assert!(summary["requests"]["ok"].as_u64() > Some(0), "what was reported is in the record");
    drop(agents);
}

/// Agents follow the key they were given and no other, serve one run after another, and load only what both the plan
/// and their own command line allow.
#[test]
fn agents_follow_one_coordinator_and_their_own_limits() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let (ours, theirs) = (new_key(&lab, "ours"), new_key(&lab, "theirs"));
    lab.loadlab(&["agent", "--new-key", "ours"]).expect(5, &["cannot write the key ours"]);
    let stranger = Agent::start(&lab, &nats, "stranger", &["--coordinator-key", &theirs]);
    let agents: Vec<Agent> = (1..=2)
        .map(|n| {
            let more = ["--coordinator-key", &ours, "--threads", "1", "--max-rate", "300"];
            Agent::start(&lab, &nats, &format!("agent-{n}"), &more)
        })
        .collect();
    let swarm = ["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "ours"];
    for name in ["first", "second"] {
        let text = counted("  rate: 200\n  duration: 1s\n");
        let ran = lab.run(&text, &swarm);
        let summary = lab.record().summary("default", 1);
        ran.expect_however_busy(std::slice::from_ref(&summary), false);
        assert_eq!(summary["probes"]["posted"]["last"], 200.0, "{name}: {:#}", summary["probes"]);
        std::fs::remove_dir_all(lab.record().dir).expect("it is there");
    }
    stranger.until_told("not that of the coordinator's key");
    let refused = |text: &str, why: &str| {
        lab.run(text, &swarm).expect(5, &["agent agent-", " (slot ", why]);
        std::fs::remove_dir_all(lab.record().dir).expect("it is there");
    };
    refused(
        &counted("  rate: 1000\n  duration: 1s\n"),
        "its part is 500 requests a second, and it may send 300",
    );
    let elsewhere = counted("  rate: 10\n  duration: 1s\n")
        .replace("name: test\n", "name: test\nallow_hosts: [\"192.0.2.1\"]\n")
        .replace("post: \"http://127.0.0.1:${components.web.port}/", "post: \"http://192.0.2.1:9/");
    refused(&elsewhere, "192.0.2.1");
    let body = counted("  rate: 10\n  duration: 1s\n")
        .replace("/items/${unique}\" }", "/items/${unique}\", body: { file: body } }");
    lab.file("body", "text");
    let ran = lab.run(&body, &swarm);
    ran.expect(2, &["step 1 of `load` needs the file", "body`, and files do not travel to agents"]);
    // Agents on this machine have the plan's folder.
    let ran = run_local(&lab, &body, &["--swarm", "local:2"]);
    ran.expect_however_busy(&[lab.record().summary("default", 1)], false);
    drop(agents);
}
