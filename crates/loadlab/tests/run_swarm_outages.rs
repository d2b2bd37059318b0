//! Agents and coordinators that lose their server for a while, and what is lost on the way: what was counted meanwhile is
//! not, and nobody sends what does not count.

use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::run_support::swarm::{Agent, Nats, counted, new_key, record_notes, started};
use crate::run_support::{Lab, eventually, moment_of_a_fault};
use crate::run_swarm_safety::{Intruder, Message, text_of};

/// A connection to a NATS server that can break: it is closed, and no new one is made until it is mended.
struct Line {
    port: u16,
    /// `None` while it is broken.
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Line {
    fn to(nats: &Nats) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let (of_line, server) = (open.clone(), nats.port);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut open = of_line.lock().expect("no panic");
                let Some(streams) = &mut *open else { continue };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for (from, onto) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut onto) =
                        (from.try_clone().expect("one"), onto.try_clone().expect("one"));
                    std::thread::spawn(move || {
                        let _ = copy(&mut from, &mut onto);
                        let _ = onto.shutdown(Shutdown::Both);
                    });
                }
                streams.extend([client, server]);
            }
        });
        Line { port, open }
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn breaks(&self) {
        let streams = self.open.lock().expect("no panic").take();
        for stream in streams.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn is_mended(&self) {
        *self.open.lock().expect("no panic") = Some(Vec::new());
    }
}

/// A report that the server had stored and lost, while the coordinator was away, is sent again.
#[test]
fn a_report_that_the_server_lost_is_sent_again() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let line = Line::to(&nats);
    let key = new_key(&lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1", "--once"];
    let agents = ["one", "two"].map(|name| Agent::start(&lab, &nats, name, &more));
    let mut intruder = Intruder::at(&nats);
    let url = line.url();
    let running = lab.start(
        &counted("  rate: 20\n  duration: 24s\n"),
        &["--swarm", &url, "--slots", "2", "--swarm-key", "key"],
    );
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
    line.breaks();
    intruder.subscribe("loadlab.*.kept.slot.*.report.>");
    // The first that arrives may have been on its way to the coordinator before.
    let reports = [intruder.next(), intruder.next(), intruder.next()];
    let subject = &reports[2].subject;
    let run = subject.split('.').nth(1).expect("a run");
    let mut librarian = Intruder::at(&nats);
    librarian.subscribe("test.answer");
    let mut ask = |what: &str, question: serde_json::Value| -> serde_json::Value {
        let subject = format!("$JS.API.STREAM.MSG.{what}.LOADLAB_{run}");
        librarian.publish(&subject, "test.answer", &question.to_string());
        serde_json::from_str(&librarian.next().payload).expect("JSON")
    };
    let kept = ask("GET", json!({ "last_by_subj": subject }));
    let sequence = kept["message"]["seq"].as_u64().unwrap_or_else(|| panic!("{kept}"));
    let removed = ask("DELETE", json!({ "seq": sequence }));
    assert_eq!(removed["success"], true, "{removed}");
    let mut orders = Intruder::at(&nats);
    orders.subscribe("loadlab.*.kept.orders");
    line.is_mended();
    eventually("it is asked for again", || {
        let Message { payload, .. } = orders.next();
        text_of(&payload)["order"]["resend"].is_object().then_some(())
    });
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    let requests = &summary["requests"];
    let found = ["due", "ok", "not_offered"].map(|name| requests[name].as_u64());
    assert_eq!(found, [Some(480), Some(480), Some(0)], "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 480.0);
    drop(agents);
}

/// An agent without a connection is given up, and stops as soon as it has one again: what it sends does not count.
#[test]
fn an_agent_that_was_given_up_stops() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let line = Line::to(&nats);
    let key = new_key(&lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1", "--once"];
    let steady = Agent::start(&lab, &nats, "steady", &more);
    let spool = lab.path().join("spool-away").display().to_string();
    let away = Agent::start_at(&lab, &line.url(), "away", &[&more[..], &["--spool", &spool]].concat());
    let url = nats.url();
    let args = ["--swarm", &url, "--slots", "2", "--swarm-key", "key", "--on-lost-agent", "degrade"];
    let running = lab.start(&counted("  rate: 20\n  duration: 10m\n"), &args);
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
    line.breaks();
    eventually("it is given up", || record_notes(&lab).contains(" and was given up").then_some(()));
    line.is_mended();
    away.wait_for_output("the load goes on without this agent");
    running.signal(Signal::INT);
    running.end().expect(130, &[]);
    let summary = lab.record().summary("default", 1);
    let agents = summary["agents"].as_array().expect("agents");
    let lost: Vec<&str> = agents.iter().filter_map(|agent| agent["lost"][0]["agent"].as_str()).collect();
    assert_eq!(lost, ["away"], "{agents:#?}");
    drop(steady);
}

/// An agent that was lost in one trial fails that trial only, if another agent can take its place.
#[test]
fn a_spare_agent_takes_part_in_the_next_trial() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let text = counted("  rate: 20\n  duration: 15s\n").replace("name: test\n", "name: test\ntrials: 2\n");
    let (mut agents, running) = started(&lab, &nats, &text, &[]);
    agents.iter().for_each(|agent| agent.wait_for_output(": slot "));
    let key = std::fs::read_to_string(lab.path().join("key.public")).expect("it was written");
    let more = ["--coordinator-key", key.trim(), "--threads", "1", "--once"];
    let spare = Agent::start(&lab, &nats, "spare", &more);
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
    agents[1].child.kill().expect("it can be killed");
    running.end().expect(5, &["agent two (slot ", "was silent for 5 s"]);
    let [first, second] = [1, 2].map(|trial| lab.record().summary("default", trial));
    assert_eq!((&first["ended"], &second["ended"]), (&"broken".into(), &"complete".into()), "{second:#}");
    assert_eq!(second["requests"]["ok"], 300, "{}", second["requests"]);
    assert_eq!(second["probes"]["posted"]["last"], 300.0);
    let senders = second["agents"].as_array().expect("agents");
    assert!(senders.iter().any(|part| part["agent"] == "spare"), "{senders:#?}");
    drop(spare);
}
