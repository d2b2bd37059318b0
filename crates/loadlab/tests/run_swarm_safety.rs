//! What agents of a swarm obey, receive and refuse, with a real NATS server.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::ports;
use crate::run_support::swarm::{Agent, Nats, counted, new_key, run_local};
use crate::run_support::{Lab, eventually};

/// Agents obey the key they were given and no other, serve one run after another, and load only what both the plan and
/// their own command line allow.
#[test]
fn agents_follow_one_coordinator_and_their_own_limits() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let (ours, theirs) = (new_key(&lab, "ours"), new_key(&lab, "theirs"));
    lab.loadlab(&["agent", "--new-key", "ours"]).expect(5, &["cannot write the key ours"]);
    let stranger = Agent::start(&lab, &nats, "stranger", &["--coordinator-key", &theirs]);
    let swarm = ["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "ours"];
    let start = || lab.start(&counted("  rate: 100\n  duration: 1s\n"), &swarm);
    let mut first = Some(start());
    // It hears of a run for as long as the run lacks agents.
    stranger.wait_for_output("not that of the coordinator's key");
    let agents: Vec<Agent> = (1..=2)
        .map(|n| {
            let more = ["--coordinator-key", &ours, "--threads", "1", "--max-rate", "300"];
            Agent::start(&lab, &nats, &format!("agent-{n}"), &more)
        })
        .collect();
    for name in ["first", "second"] {
        let ran = first.take().unwrap_or_else(start).end();
        let summary = lab.record().summary("default", 1);
        ran.expect_however_busy(std::slice::from_ref(&summary), false);
        assert_eq!(summary["probes"]["posted"]["last"], 100.0, "{name}: {:#}", summary["probes"]);
        std::fs::remove_dir_all(lab.record().dir).expect("it is there");
    }
    let refused = |text: &str, why: &str| {
        lab.run(text, &swarm).expect(5, &["agent agent-", " (slot ", why]);
        std::fs::remove_dir_all(lab.record().dir).expect("it is there");
    };
    refused(
        &counted("  rate: 1000\n  duration: 1s\n"),
        "its part is 500 requests/s, but this agent may send at most 300",
    );
    refused(&counted("  users: 2\n  duration: 1s\n"), "its users send as fast as they are answered");
    let elsewhere = counted("  rate: 10\n  duration: 1s\n")
        .replace("name: test\n", "name: test\nallow_hosts: [\"192.0.2.1\"]\n")
        .replace("post: \"http://127.0.0.1:${components.web.port}/", "post: \"http://192.0.2.1:9/");
    refused(&elsewhere, "192.0.2.1");
    drop(agents);
}

/// An agent connects from its own addresses, which a plan for all machines cannot name.
#[test]
fn an_agent_connects_from_the_addresses_that_it_is_given() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let (sender, peers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = sender.send(stream.peer_addr().expect("a peer").ip().to_string());
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let run = |source: &str| {
        let more = ["--coordinator-key", &key, "--threads", "1", "--source", source];
        let _agent = Agent::start(&lab, &nats, "agent", &more);
        let load = ["bench", &url, "-n", "4", "-c", "2", "--no-keep-alive", "--out", &lab.run_name()];
        lab.loadlab(&[&load[..], &["--swarm", &nats.url(), "--slots", "1", "--swarm-key", "key"]].concat())
    };
    let ran = run("127.0.9.1-127.0.9.2");
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["requests"]["ok"], 4, "{summary:#}");
    let seen: BTreeSet<String> = peers.try_iter().collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["127.0.9.1", "127.0.9.2"]);
    std::fs::remove_dir_all(lab.record().dir).expect("it is there");
    run("::1").expect(5, &["`127.0.0.1` has no IPv6 address, so nothing can be sent to it from ::1"]);
    assert_eq!(peers.try_iter().count(), 0);
}

/// An agent removes its temporary folder when it ends, unless it contains reports; also without --once.
#[test]
fn an_agent_leaves_no_empty_folder() {
    let lab = Lab::new();
    let key = new_key(&lab, "key");
    let temporary = lab.path().join("tmp");
    std::fs::create_dir(&temporary).expect("a folder can be made");
    let nobody = format!("nats://{}", ports::unused());
    let mut command = lab.command(&["agent", "--nats", &nobody, "--coordinator-key", &key]);
    let output = command.env("TMPDIR", &temporary).output().expect("loadlab starts");
    crate::run_support::Ran::of(output).expect(5, &[]);
    let left = std::fs::read_dir(&temporary).expect("it is there").count();
    assert_eq!(left, 0);
}

/// Bodies, feeds and lists of URLs reach agents that do not have the plan's folder, and are removed afterwards. Private
/// keys, and values that a plan reads from a file, are not sent.
#[test]
fn files_reach_agents() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1"];
    let agents = ["one", "two"].map(|name| Agent::start(&lab, &nats, name, &more));
    let swarm = ["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "key"];
    let journey = "  feeds: { orders: { file: orders.csv, once: true } }\n  journey:\n    - post: \
                   \"http://127.0.0.1:${components.web.port}/items/${unique}\"\n      headers: { X-Order: \"${orders.id}\" }\n      body: { file: body }\n";
    let plan_of = |more: &str| {
        let old = "  journey: [{ post: \"http://127.0.0.1:${components.web.port}/items/${unique}\" }]\n";
        let text = counted("  users: 2\n  requests: 200\n");
        assert!(text.contains(old), "{text}");
        text.replace(old, &format!("{journey}{more}"))
    };
    // Larger than one message.
    let body = "x".repeat(300_000);
    lab.file("body", &body);
    let rows: String = (1..=200).map(|id| format!("{id}\n")).collect();
    lab.file("orders.csv", &format!("id\n{rows}"));
    let ran = lab.run(&plan_of(""), &swarm);
    assert!(lab.record().trial("default", 1).join("summary.json").exists(), "{}", ran.err);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(
        (&summary["requests"]["ok"], &summary["agents"][1]["agent"].is_string()),
        (&200.into(), &true)
    );
    assert!(summary["bytes"]["sent"].as_u64() > Some(200 * 300_000), "{}", summary["bytes"]);
    assert_eq!(summary["probes"]["posted"]["last"], 200.0);
    let found = ["accepted", "lost_max", "doubled"].map(|name| summary["loss"][name].as_u64());
    assert_eq!(found, [Some(200), Some(0), Some(0)], "{}", summary["loss"]);
    for name in ["one", "two"] {
        let spool = lab.path().join(format!("spool-{name}"));
        eventually("its files are removed", || {
            std::fs::read_dir(&spool).ok()?.next().is_none().then_some(())
        });
    }
    std::fs::remove_dir_all(lab.record().dir).expect("it is there");

    std::fs::remove_file(lab.path().join("body")).expect("it is there");
    lab.run(&plan_of(""), &swarm)
        .expect(5, &["/body cannot be sent to agents: it does not exist", "hint: agents receive"]);
    lab.file("body", &body);
    lab.file("token", "a long secret");
    let of_file = plan_of("").replace("${orders.id}", "${orders.id} ${file:token}");
    lab.run(&of_file, &swarm).expect(2, &["takes a value from `${file:token}`, and such a file is not sent"]);
    lab.file("c.pem", "none");
    let tls = "  tls: { cert: c.pem, key: c.pem }\n";
    lab.run(&plan_of(tls), &swarm)
        .expect(2, &["a load needs the private key `", "keys are not sent to agents"]);
    // Agents on this machine have the plan's folder.
    let ran = run_local(&lab, &plan_of(""), &["--swarm", "local:2"]);
    ran.expect_however_busy(&[lab.record().summary("default", 1)], false);
    drop(agents);
}

/// Anyone who can change what an agent keeps could make it send something else.
#[test]
fn a_folder_that_others_can_write_to_is_not_used() {
    let lab = Lab::new();
    let open = lab.path().join("open");
    std::fs::create_dir(&open).expect("a folder can be made");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).expect("its mode");
    let key = new_key(&lab, "key");
    let ran =
        lab.loadlab(&["agent", "--nats", "nats://127.0.0.1:1", "--coordinator-key", &key, "--spool", "open"]);
    ran.expect(2, &["reports cannot be kept in open: others can write to it (mode 0777)", "hint: --spool"]);
}

/// A server configured as in `deploy/nats`: TLS, and keys that allow each slot's agent only its own subjects.
#[test]
fn a_server_with_tls_and_a_key_for_each_slot() {
    let lab = Lab::new();
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats");
    let mut users = Command::new(deploy.join("users.sh"));
    let made = users.arg("2").arg(lab.path()).env("LOADLAB", env!("CARGO_BIN_EXE_loadlab")).output();
    let made = made.expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).expect("a certificate");
    lab.file("server.crt", &certificate.cert.pem());
    lab.file("server.key", &certificate.signing_key.serialize_pem());
    let port = ports::unused().port();
    let config = std::fs::read_to_string(deploy.join("nats.conf")).expect("it is there");
    assert!(config.contains("listen: 0.0.0.0:4222"), "{config}");
    lab.file("nats.conf", &config.replace("0.0.0.0:4222", &format!("127.0.0.1:{port}")));
    let streams = lab.path().join("streams");
    let mut command = Command::new("nats-server");
    command.args(["-c", "nats.conf"]).current_dir(lab.path());
    let nats = Nats { child: Nats::listening(command, port), port, streams };

    let key = new_key(&lab, "key");
    let url = format!("tls://127.0.0.1:{}", nats.port);
    let agent = |name: &str, more: &[&str]| {
        let spool = format!("spool-{name}");
        let fixed = ["--coordinator-key", &key, "--threads", "1", "--ca", "server.crt", "--spool", &spool];
        Agent::start_at(&lab, &url, name, &[&fixed[..], more].concat())
    };
    lab.file("body", "text");
    let text = counted("  rate: 50\n  duration: 2s\n");
    let text = text.replace("/items/${unique}\" }", "/items/${unique}\", body: { file: body } }");
    let swarm = ["--swarm", &url, "--slots", "2", "--swarm-key", "key", "--swarm-ca", "server.crt"];
    let creds = ["--swarm-creds", "coordinator"];
    let running = lab.start(&text, &[&swarm[..], &creds].concat());
    // An agent with another slot's key takes no slot, and says why. The others come later: slot 0 must be free until
    // it has tried.
    let thief = agent("thief", &["--slot", "0", "--creds", "slot-1"]);
    thief.wait_for_output(
        "the NATS server denies a permission: Permissions Violation for Publish to \"loadlab.",
    );
    let agents =
        ["0", "1"].map(|n| agent(&format!("agent-{n}"), &["--slot", n, "--creds", &format!("slot-{n}")]));
    let ran = running.end();
    assert!(lab.record().trial("default", 1).join("summary.json").exists(), "{}", ran.err);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!((&summary["requests"]["due"], &summary["requests"]["ok"]), (&100.into(), &100.into()));
    let names: Vec<&str> =
        summary["agents"].as_array().expect("agents").iter().filter_map(|a| a["agent"].as_str()).collect();
    assert_eq!(names, ["agent-0", "agent-1"]);
    for agent in &agents {
        let log = std::fs::read_to_string(&agent.log).expect("its log");
        assert!(!log.contains("denies a permission"), "{log}");
    }
    std::fs::remove_dir_all(lab.record().dir).expect("it is there");

    // A slot's key does not work for a coordinator; nobody gets in without a key, or without trusting the server's
    // certificate.
    let of_slot = lab.run(&text, &[&swarm[..], &["--swarm-creds", "slot-0"]].concat());
    of_slot.expect(5, &["the NATS server denies a permission: Permissions Violation", "hint: deploy/nats"]);
    lab.run(&text, &swarm)
        .expect(5, &["cannot reach the NATS server tls://127.0.0.1:", "authorization violation"]);
    let trusts_nobody = lab.run(&text, &["--swarm", &url, "--slots", "2", "--swarm-key", "key"]);
    trusts_nobody.expect(5, &["cannot reach the NATS server tls://127.0.0.1:", "certificate"]);
    drop(agents);
}

/// A client of a NATS server with no restrictions: what an attacker who got into the network has.
pub struct Intruder {
    reader: BufReader<TcpStream>,
    subscriptions: usize,
}

/// A message that a NATS client receives.
pub struct Message {
    pub subject: String,
    pub reply: String,
    pub head: String,
    pub payload: String,
}

impl Intruder {
    pub fn at(nats: &Nats) -> Intruder {
        let stream = TcpStream::connect(("127.0.0.1", nats.port)).expect("the server");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
        let mut intruder = Intruder { reader: BufReader::new(stream), subscriptions: 0 };
        intruder.say("CONNECT {\"verbose\":false,\"headers\":true}\r\n");
        intruder
    }

    fn say(&mut self, text: &str) {
        self.reader.get_mut().write_all(text.as_bytes()).expect("it listens");
    }

    pub fn subscribe(&mut self, subject: &str) {
        self.subscriptions += 1;
        self.say(&format!("SUB {subject} {}\r\n", self.subscriptions));
    }

    pub fn publish(&mut self, subject: &str, reply: &str, payload: &str) {
        self.say(&format!("PUB {subject} {reply} {}\r\n{payload}\r\n", payload.len()));
    }

    /// Receives the next message.
    pub fn next(&mut self) -> Message {
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).expect("a line") > 0, "the server left");
            let words: Vec<&str> = line.split_whitespace().collect();
            let (subject, reply, sizes) = match words.as_slice() {
                ["PING"] => {
                    self.say("PONG\r\n");
                    continue;
                }
                ["MSG", subject, _, size] => (*subject, "", [0, number(size)]),
                ["MSG", subject, _, reply, size] => (*subject, *reply, [0, number(size)]),
                ["HMSG", subject, _, head, size] => (*subject, "", [number(head), number(size)]),
                ["HMSG", subject, _, reply, head, size] => (*subject, *reply, [number(head), number(size)]),
                _ => continue,
            };
            let (subject, reply) = (subject.to_owned(), reply.to_owned());
            let mut bytes = vec![0; sizes[1] + 2];
            self.reader.read_exact(&mut bytes).expect("its bytes");
            let text = |range| String::from_utf8_lossy(&bytes[range]).into_owned();
            return Message { subject, reply, head: text(0..sizes[0]), payload: text(sizes[0]..sizes[1]) };
        }
    }
}

/// What a coordinator signed.
pub fn text_of(signed: &str) -> Value {
    let signed: Value = serde_json::from_str(signed).expect("JSON");
    serde_json::from_str(signed["text"].as_str().expect("a text")).expect("JSON")
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// Replaying everything a coordinator signed in a run does not make any agent send anything.
#[test]
fn a_run_that_is_played_again_is_refused() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1"];
    let mut intruder = Intruder::at(&nats);
    intruder.subscribe("loadlab.announce");
    intruder.subscribe("loadlab.*.kept.orders");
    let agent = Agent::start(&lab, &nats, "one", &more);
    let swarm = ["--swarm", &nats.url(), "--slots", "1", "--swarm-key", "key"];
    let ran = lab.run(&counted("  rate: 50\n  duration: 1s\n"), &swarm);
    ran.expect_however_busy(&[lab.record().summary("default", 1)], false);
    drop(agent);
    let (mut announced, mut orders) = (String::new(), Vec::new());
    let run = loop {
        let Message { subject, payload, .. } = intruder.next();
        if subject == "loadlab.announce" {
            if announced.is_empty() {
                announced = payload;
            }
            continue;
        }
        let order = text_of(&payload);
        orders.push(payload);
        if order["order"] == "over" {
            break order["run"].as_str().expect("its run").to_owned();
        }
    };
    // Hold back the order that ended the run.
    orders.pop();
    let words: Vec<String> = orders.iter().map(|order| text_of(order)["order"].to_string()).collect();
    assert!(words[0].contains("prepare") && words[1].contains("begin"), "{words:?}");

    // Listen again where the load went.
    let target = text_of(&orders[0])["order"]["prepare"]["what"]["names"]["components.web.port"].clone();
    let target: u16 = target.as_str().expect("a port").parse().expect("a port");
    let listener = std::net::TcpListener::bind(("127.0.0.1", target)).expect("the port is free again");
    listener.set_nonblocking(true).expect("it can be asked");
    let stream = format!("LOADLAB_{run}");
    let made = json!({ "name": stream, "subjects": [format!("loadlab.{run}.kept.>")], "storage": "memory" });
    intruder.publish(&format!("$JS.API.STREAM.CREATE.{stream}"), "loadlab.made", &made.to_string());
    for order in &orders {
        intruder.publish(&format!("loadlab.{run}.kept.orders"), "", order);
    }
    intruder.subscribe(&format!("loadlab.{run}.time"));
    let other = Agent::start(&lab, &nats, "other", &more);
    other.wait_for_output("connected to ");
    intruder.publish("loadlab.announce", "", &announced);
    let refused = "an order was refused: it is for the agent of another run";
    eventually("it is refused", || {
        let Message { subject, reply, .. } = intruder.next();
        if subject.ends_with(".time") {
            intruder.publish(&reply, "", "[0,0]");
        }
        // The agent may not have been listening yet.
        intruder.publish("loadlab.announce", "", &announced);
        std::fs::read_to_string(&other.log).ok().filter(|log| log.contains(refused))
    });
    let came = listener.accept().map(|_| ()).expect_err("nothing was sent");
    assert_eq!(came.kind(), std::io::ErrorKind::WouldBlock);
    drop(other);
}

/// Reports larger than one message of the server are sent in pieces.
#[test]
fn reports_larger_than_a_message() {
    let lab = Lab::new();
    let (port, streams) = (ports::unused().port(), lab.path().join("streams"));
    let config = format!(
        "listen: 127.0.0.1:{port}\nmax_payload: 7000\njetstream {{ store_dir: \"{}\" }}\n",
        streams.display()
    );
    lab.file("nats.conf", &config);
    let mut command = Command::new("nats-server");
    command.args(["-c", "nats.conf"]).current_dir(lab.path());
    let nats = Nats { child: Nats::listening(command, port), port, streams };
    let key = new_key(&lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1", "--once"];
    let agents = ["one", "two"].map(|name| Agent::start(&lab, &nats, name, &more));
    let text = counted("  users: 2\n  requests: 1600\n");
    let swarm = ["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "key"];
    let mut listener = Intruder::at(&nats);
    listener.subscribe("loadlab.*.kept.slot.*.report.>");
    let ran = lab.run(&text, &swarm);
    assert!(lab.record().trial("default", 1).join("summary.json").exists(), "{}", ran.err);
    // The report's number, the number of this piece, and how many pieces there are.
    eventually("a report in pieces", || {
        let Message { head, .. } = listener.next();
        let numbers = head.lines().find_map(|line| line.strip_prefix("Loadlab-Report: "))?;
        numbers.split(' ').nth(2)?.parse::<u64>().ok().filter(|pieces| *pieces > 1)
    });
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["requests"]["ok"], 1600, "{}", summary["requests"]);
    assert_eq!(summary["probes"]["posted"]["last"], 1600.0);
    let found = ["accepted", "lost_max", "doubled"].map(|name| summary["loss"][name].as_u64());
    assert_eq!(found, [Some(1600), Some(0), Some(0)], "{}", summary["loss"]);
    drop(agents);
}
