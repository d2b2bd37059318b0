//! Loads sent by agents, with a real NATS server: together they send what one process would.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::demo::Demo;
use crate::run_support::swarm::{
    Agent, Nats, counted, new_key, record_notes, run_local, started, swarm_processes, under_way,
};
use crate::run_support::{Lab, component, eventually, hold_back, moment_of_a_fault, plan};
use crate::run_ui::driver::Browser;
use crate::run_ui::page_in;

// Rates are low, so that an agent that is held up at the end of a schedule has no more requests left than it may begin
// at once.

/// Three agents with different thread counts send every request of the schedule exactly once: the server has as many as
/// were accepted, and the record is that of a single load.
#[test]
fn agents_on_this_machine_send_one_load() {
    let lab = Lab::new();
    let text = counted("  rate: 60\n  duration: 2s\n");
    let ran = run_local(&lab, &text, &["--swarm", "local:3"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["requests"]["due"], 120, "{summary:#}");
    assert_eq!(summary["requests"]["ok"], 120, "{summary:#}");
    assert_eq!(summary["probes"]["posted"]["last"], 120.0, "{:#}", summary["probes"]);
    assert_eq!(summary["generator"]["threads"], 3);
    // Each id was used once, whichever agent used it.
    let loss = &summary["loss"];
    let found = ["accepted", "lost_max", "doubled"].map(|name| loss[name].as_u64());
    assert_eq!(found, [Some(120), Some(0), Some(0)], "{loss}");
    let due: u64 = record.lines("default", 1, "ticks.jsonl").iter().filter_map(|t| t["due"].as_u64()).sum();
    assert_eq!(due, 120);
    let notes = record.events("default", 1, "note");
    let is_sent =
        |n: &Value| n["text"].as_str().is_some_and(|text| text.starts_with("3 agents send the load"));
    assert!(notes.iter().any(is_sent), "{notes:?}");
    assert!(record.manifest()["options"].to_string().contains("--swarm local:3"));
}

/// A total number of requests is divided among the agents, too, and ends the load.
#[test]
fn a_number_of_requests_is_divided() {
    let lab = Lab::new();
    let ran = run_local(&lab, &counted("  users: 6\n  requests: 6001\n"), &["--swarm", "local:2"]);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(
        (&summary["requests"]["ok"], &summary["probes"]["posted"]["last"]),
        (&6001.into(), &6001.0.into())
    );
    assert_eq!(summary["load"]["users"], 6);
}

/// What an agent sent after its last report is unknown: the trial fails, and names the agent.
#[test]
fn a_lost_agent_fails_the_trial() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path().join("tmp")).expect("a folder can be made");
    lab.file("plan.yaml", &counted("  rate: 50\n  duration: 2m\n"));
    let mut command = lab.command(&["run", "plan.yaml", "--out", &lab.run_name(), "--swarm", "local:2"]);
    let child = command.env("TMPDIR", lab.path().join("tmp")).spawn().expect("loadlab starts");
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
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

/// The page has a row for each agent, and says which agent is missing.
#[test]
fn the_page_shows_each_agent() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let options = ["--on-lost-agent", "degrade", "--ui"];
    let (mut agents, mut running) = under_way(&lab, &nats, "  rate: 100\n  duration: 10m\n", &options);
    running.wait_for_output("live in the browser: ");
    let mut browser = Browser::start();
    browser.visit(&page_in(&lab.read("stderr")));
    let shown = "[...document.querySelectorAll('#agents tbody tr')].map((row) => row.children[0].textContent + ': ' + row.children[1].textContent)";
    browser.until(&format!(
        "{shown}.filter((row) => /^(one|two) \\(slot [01]\\): [1-9][0-9.,]*\\/s$/.test(row)).length === 2"
    ));
    browser.until("document.querySelectorAll('#agents .spark path[d*=L]').length === 2");
    agents[1].child.kill().expect("it can be killed");
    // Missing agents are listed first.
    browser.until(&format!(
        "/^two \\(slot [01]\\): missing$/.test({shown}[0]) && /^one .*[0-9]\\/s$/.test({shown}[1])"
    ));
    // The last figures on the page are those recorded for each agent.
    let rows = "[...document.querySelectorAll('#agents tbody tr')].map((row) => [0, 2, 3, 4].map((i) => row.children[i].textContent.replace(',', '')))";
    browser.value(&format!(
        "addEventListener('pagehide', () => sessionStorage.setItem('agents', JSON.stringify({rows})))"
    ));
    running.signal(Signal::INT);
    running.end().expect(130, &[]);
    browser.until_report();
    let last = browser.value("sessionStorage.getItem('agents')");
    let last: Vec<[String; 4]> = serde_json::from_str(last.as_str().expect("rows")).expect("texts");
    let summary = lab.record().summary("default", 1);
    for part in summary["agents"].as_array().expect("agents") {
        let name = format!("{} (slot {})", part["agent"].as_str().expect("a name"), part["slot"]);
        let counts = ["ok", "failed", "in_flight"].map(|kind| part["requests"][kind].to_string());
        assert!(
            last.contains(&[&[name], &counts[..]].concat().try_into().expect("four")),
            "{last:?} {part:#}"
        );
    }
    assert!(summary["requests"]["ok"].as_u64() > Some(0) && last.len() == 2, "{last:?}");
    browser.is_silent();
}

/// A server that is killed and restarted with its streams loses nothing: what was not acknowledged is sent again, and
/// nothing counts twice.
#[test]
fn a_nats_server_that_is_killed_and_started_again() {
    let lab = Lab::new();
    let mut nats = Nats::start(&lab);
    let (_agents, running) = under_way(&lab, &nats, "  rate: 20\n  duration: 6s\n", &[]);
    nats.kill();
    nats.again();
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["ended"], "complete");
    let requests = &summary["requests"];
    assert_eq!((&requests["due"], &requests["ok"]), (&120.into(), &120.into()), "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 120.0);
    let found = ["accepted", "lost_max", "doubled"].map(|name| summary["loss"][name].as_u64());
    assert_eq!(found, [Some(120), Some(0), Some(0)], "{}", summary["loss"]);
}

/// A server that is stopped says nothing about the agents: none of them is given up, and no part of the load is lost.
#[test]
fn a_stalled_nats_server_loses_no_agent_and_no_request() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let (_agents, running) = under_way(&lab, &nats, "  rate: 8\n  duration: 14s\n", &[]);
    let pid = Pid::from_raw(nats.child.id().cast_signed()).expect("a number");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    hold_back(Duration::from_secs(8));
    kill_process(pid, Signal::CONT).expect("it can go on");
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["ended"], "complete", "{}", ran.err);
    let requests = &summary["requests"];
    assert_eq!((&requests["due"], &requests["ok"]), (&112.into(), &112.into()), "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 112.0);
}

/// A server that stays away does not keep the run from ending.
#[test]
fn a_nats_server_that_stays_away() {
    let lab = Lab::new();
    let mut nats = Nats::start(&lab);
    let (agents, running) = under_way(&lab, &nats, "  rate: 100\n  duration: 10m\n", &[]);
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

/// The slot of an agent, that is, its part of the load, from its log.
fn slot_of(agent: &Agent) -> u64 {
    let log = std::fs::read_to_string(&agent.log).expect("its log");
    let slot = log.split(": slot ").nth(1).and_then(|rest| rest.split(' ').next());
    slot.and_then(|slot| slot.parse().ok()).expect("it has a slot")
}

/// The requests due plus those not offered make up the schedule; the server has what was offered, and possibly what the
/// lost agent sent after its last report.
#[track_caller]
fn check_coverage(summary: &Value, schedule: u64) {
    let requests = &summary["requests"];
    let number = |name: &str| requests[name].as_u64().unwrap_or_else(|| panic!("{name}: {requests}"));
    let (due, most, least) = (number("due"), number("not_offered"), number("not_offered_min"));
    assert_eq!(due + most, schedule, "{requests}");
    assert!(most > 0 && least <= most, "{requests}");
    let posted = summary["probes"]["posted"]["last"].as_f64().expect("a number") as u64;
    assert!((number("ok")..=schedule - least).contains(&posted), "{posted} of {requests}");
    let agents = summary["agents"].as_array().expect("agents");
    let sum: u64 = agents.iter().filter_map(|agent| agent["requests"]["due"].as_u64()).sum();
    assert_eq!(sum, due, "{agents:#?}");
    let doubts = summary["doubts"].as_array().expect("doubts");
    assert!(doubts.iter().any(|d| d["kind"] == "agents_lost" && d["grave"] == false), "{doubts:#?}");
}

/// The others continue without a lost agent, and the record says what was not offered, and by whom.
#[test]
fn the_others_go_on_without_a_lost_agent() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let load = "  rate: 20\n  duration: 30s\n";
    let (mut agents, running) = under_way(&lab, &nats, load, &["--on-lost-agent", "degrade"]);
    agents[1].child.kill().expect("it can be killed");
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["ended"], "complete", "{}", ran.err);
    check_coverage(&summary, 600);
    let lost = &summary["agents"][slot_of(&agents[1]) as usize]["lost"][0];
    assert_eq!((&lost["agent"], &lost["replaced_at_s"]), (&"two".into(), &Value::Null), "{summary:#}");
    let notes = record_notes(&lab);
    assert!(notes.contains("agent two (slot ") && notes.contains("; the others continue"), "{notes}");
}

/// An agent without a part takes over from a lost one, in the middle of the load.
#[test]
fn another_agent_takes_the_place_of_a_lost_one() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let text = counted("  rate: 20\n  duration: 30s\n");
    let text =
        text.replace("  probes:", "  before_trial: \"until test -e go; do sleep 0.05; done\"\n  probes:");
    let (mut agents, running) = started(&lab, &nats, &text, &["--on-lost-agent", "replace"]);
    agents.iter().for_each(|agent| agent.wait_for_output(": slot "));
    let key = std::fs::read_to_string(lab.path().join("key.public")).expect("it was written");
    let spare =
        Agent::start(&lab, &nats, "spare", &["--coordinator-key", key.trim(), "--threads", "1", "--once"]);
    let slot = slot_of(&agents[1]);
    spare.wait_for_output("all slots are taken");
    lab.file("go", "");
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
    agents[1].child.kill().expect("it can be killed");
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["ended"], "complete", "{}", ran.err);
    check_coverage(&summary, 600);
    let part = &summary["agents"][slot as usize];
    assert_eq!((&part["agent"], slot_of(&spare)), (&"spare".into(), slot), "{summary:#}");
    let lost = &part["lost"][0];
    assert_eq!(lost["agent"], "two");
    assert!(lost["replaced_at_s"].as_f64() > lost["reported_until_s"].as_f64(), "{lost}");
    let notes = record_notes(&lab);
    assert!(notes.contains("agent two (slot ") && notes.contains("agent spare takes slot "), "{notes}");
    // If there can be no spare agent, this is reported beforehand.
    let replaced = ["--swarm", "local:2", "--on-lost-agent", "replace"];
    std::fs::remove_dir_all(lab.record().dir).expect("it is there");
    let text = counted("  users: 1\n  requests: 1\n");
    run_local(&lab, &text, &replaced)
        .expect(2, &["--on-lost-agent replace: with `local:N` there is no spare agent"]);
}

/// An agent that was given up takes its place again if no other agent can.
#[test]
fn an_agent_takes_the_place_that_it_lost() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let load = "  rate: 20\n  duration: 30s\n";
    let (agents, running) = under_way(&lab, &nats, load, &["--on-lost-agent", "replace"]);
    let pid = Pid::from_raw(agents[1].child.id().cast_signed()).expect("a number");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    eventually("it is given up", || {
        record_notes(&lab).contains(", and another may take its place").then_some(())
    });
    kill_process(pid, Signal::CONT).expect("it can go on");
    agents[1].wait_for_output(" is free again, because the coordinator did not hear from this agent");
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["ended"], "complete", "{}", ran.err);
    check_coverage(&summary, 600);
    let part = &summary["agents"][slot_of(&agents[1]) as usize];
    assert_eq!((&part["agent"], &part["lost"][0]["agent"]), (&"two".into(), &"two".into()), "{summary:#}");
    assert!(part["lost"][0]["replaced_at_s"].is_f64(), "{part:#}");
    assert!(record_notes(&lab).contains("agent two takes slot "), "{}", record_notes(&lab));
}

/// A spare agent that may not send the lost agent's part ends the trial: otherwise nobody would send it, and nobody
/// would say so.
#[test]
fn an_agent_that_refuses_the_place_of_a_lost_one() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let load = "  rate: 100\n  duration: 10m\n";
    let (mut agents, running) = under_way(&lab, &nats, load, &["--on-lost-agent", "replace"]);
    let key = std::fs::read_to_string(lab.path().join("key.public")).expect("it was written");
    let more = ["--coordinator-key", key.trim(), "--threads", "1", "--once", "--max-rate", "1"];
    let _spare = Agent::start(&lab, &nats, "spare", &more);
    agents[1].child.kill().expect("it can be killed");
    running.end().expect(5, &["agent spare (slot ", "--max-rate"]);
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["ended"], "broken");
    assert!(summary["requests"]["ok"].as_u64() > Some(0), "what was reported is in the record");
}

/// Ctrl-C in a terminal signals everything that loadlab has started. What its agents have sent still counts.
#[test]
fn ctrl_c_in_a_terminal_loses_no_agent() {
    let lab = Lab::new();
    let running = lab.start(&counted("  rate: 100\n  duration: 10m\n"), &["--swarm", "local:2"]);
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
    running.signal_group(Signal::INT);
    running.end().expect(130, &[]);
    let summary = lab.record().summary("default", 1);
    let requests = &summary["requests"];
    assert_eq!(
        (&summary["ended"], &requests["not_offered"]),
        (&"interrupted".into(), &0.into()),
        "{summary:#}"
    );
    let agents = summary["agents"].as_array().expect("agents");
    let has_lost = |agent: &Value| agent["lost"].as_array().is_some_and(|lost| !lost.is_empty());
    assert!(agents.len() == 2 && !agents.iter().any(has_lost), "{agents:#?}");
    let [ok, due, in_flight] =
        ["ok", "due", "in_flight"].map(|name| requests[name].as_u64().expect("a number"));
    assert!(ok > 0 && ok + in_flight == due, "{requests}");
}

/// A network link between an agent and its server: it delays what the server sends back, and can be cut.
struct Link {
    port: u16,
    is_cut: Arc<(Mutex<bool>, Condvar)>,
}

impl Link {
    fn to(server: u16, delay: Duration) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let is_cut = Arc::new((Mutex::new(false), Condvar::new()));
        let cut = is_cut.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
                let both = (client.try_clone(), server.try_clone());
                let (Ok(client_too), Ok(server_too)) = both else { return };
                forward(client, server_too, Duration::ZERO, cut.clone());
                forward(server, client_too, delay, cut.clone());
            }
        });
        Link { port, is_cut }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn cut(&self, is_cut: bool) {
        *self.is_cut.0.lock().expect("no panic") = is_cut;
        self.is_cut.1.notify_all();
    }
}

fn forward(mut from: TcpStream, mut onto: TcpStream, delay: Duration, is_cut: Arc<(Mutex<bool>, Condvar)>) {
    let (pass, passed) = std::sync::mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            let _ = pass.send((Instant::now(), bytes[..read].to_vec()));
        }
    });
    std::thread::spawn(move || {
        for (came, bytes) in passed {
            hold_back((came + delay).saturating_duration_since(Instant::now()));
            let cut = is_cut.0.lock().expect("no panic");
            drop(is_cut.1.wait_while(cut, |cut| *cut));
            if onto.write_all(&bytes).is_err() {
                return;
            }
        }
    });
}

/// An agent that was stopped for longer than the others wait, and one whose network was cut for half a minute, come
/// back: their reports then count, and no part of the load is missing. Both have the same name, which must not cause
/// confusion.
#[test]
fn agents_that_come_back_are_counted() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let link = Link::to(nats.port, Duration::ZERO);
    let key = new_key(&lab, "key");
    let more = |spool: &str| {
        let spool = lab.path().join(spool).display().to_string();
        ["--coordinator-key", &key, "--threads", "1", "--once", "--spool", &spool].map(str::to_owned)
    };
    let start = |url: &str, name: &str, spool: &str| {
        Agent::start_at(&lab, url, name, &more(spool).each_ref().map(String::as_str))
    };
    let steady = start(&nats.url(), "steady", "spool-steady");
    let still = start(&nats.url(), "twin", "spool-twins");
    let away = start(&link.url(), "twin", "spool-twins");
    let url = nats.url();
    let args = ["--swarm", &url, "--slots", "3", "--swarm-key", "key", "--on-lost-agent", "degrade"];
    let running = lab.start(&counted("  rate: 12\n  duration: 54s\n"), &args);
    moment_of_a_fault(&lab, "default", Duration::from_secs(2));
    let pid = Pid::from_raw(still.child.id().cast_signed()).expect("a number");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    link.cut(true);
    let cut = Instant::now();
    eventually("both are missed", || {
        (record_notes(&lab).matches("agent twin (slot ").count() == 2).then_some(())
    });
    kill_process(pid, Signal::CONT).expect("it can go on");
    hold_back(Duration::from_secs(30).saturating_sub(cut.elapsed()));
    link.cut(false);
    let ran = running.end();
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    let requests = &summary["requests"];
    let found = ["due", "ok", "not_offered"].map(|name| requests[name].as_u64());
    assert_eq!(found, [Some(648), Some(648), Some(0)], "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 648.0);
    let found = ["accepted", "lost_max", "doubled"].map(|name| summary["loss"][name].as_u64());
    assert_eq!(found, [Some(648), Some(0), Some(0)], "{}", summary["loss"]);
    assert_eq!(record_notes(&lab).matches(" is back").count(), 2, "{}", record_notes(&lab));
    drop([steady, still, away]);
}

/// The agents' clocks are minutes apart, and one agent's messages take longer in one direction than in the other: the
/// offsets are known to within the stated uncertainty, and all agents start at the same moment.
#[test]
fn clocks_of_agents_may_differ() {
    const OFFSETS_S: [i32; 3] = [0, 500, -400];
    if !rustix::process::geteuid().is_root() || !crate::run_killed::can_unshare() {
        return crate::run_support::skip::skip("it takes root and time namespaces");
    }
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let slow = Link::to(nats.port, Duration::from_millis(20)).url();
    let url = nats.url();
    let agents = OFFSETS_S.map(|offset_s| {
        let name = format!("at{offset_s}");
        let (nats, offset) = (if offset_s == 500 { &slow } else { &url }, offset_s.to_string());
        let spool = lab.path().join(format!("spool-{name}")).display().to_string();
        let agent = lab.command(&["agent", "--nats", nats, "--name", &name, "--spool", &spool]);
        let mut command = Command::new("unshare");
        command.args(["--time", "--monotonic", &offset, "--fork", "--kill-child", "--"]);
        command.arg(agent.get_program()).args(agent.get_args());
        command.args(["--coordinator-key", &key, "--threads", "1", "--once"]);
        command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let log = lab.path().join(format!("{name}.log"));
        command.current_dir(lab.path()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).expect("a file can be made"));
        Agent { child: command.spawn().expect("unshare is there (util-linux)"), log }
    });
    let args = ["--swarm", &url, "--slots", "3", "--swarm-key", "key"];
    let ran = lab.run(&counted("  rate: 60\n  duration: 2s\n"), &args);
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!(summary["requests"]["ok"], 120, "{summary:#}");
    for part in summary["agents"].as_array().expect("agents") {
        let name = part["agent"].as_str().expect("a name");
        let truth_s: f64 = name.strip_prefix("at").and_then(|s| s.parse().ok()).expect("an offset");
        let (offset_s, uncertainty_ms) =
            (part["clock_offset_s"].as_f64(), part["clock_uncertainty_ms"].as_f64());
        let error_ms = (offset_s.expect("an offset") + truth_s).abs() * 1e3;
        let uncertainty_ms = uncertainty_ms.expect("an uncertainty");
        assert!(error_ms <= uncertainty_ms + 1e-6, "{name}: {error_ms} ms is more than {uncertainty_ms} ms");
        // Half of the delay of the slow direction counts as uncertainty.
        assert!(name != "at500" || uncertainty_ms >= 10.0, "{name}: {uncertainty_ms} ms");
    }
    drop(agents);
}

/// An agent whose disk is full cannot keep its reports: the trial fails, and says why.
#[test]
fn an_agent_whose_disk_is_full() {
    if !rustix::process::geteuid().is_root() || !crate::run_killed::can_unshare() {
        return crate::run_support::skip::skip("it takes root and a mount namespace");
    }
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    std::fs::create_dir(lab.path().join("small")).expect("a folder can be made");
    let more = ["--coordinator-key", &key, "--threads", "1", "--once"];
    let whole = Agent::start(&lab, &nats, "whole", &more);
    let agent = lab.command(&["agent", "--nats", &nats.url(), "--name", "full", "--spool", "small"]);
    let mut command = Command::new("unshare");
    // Room for a few reports; the file system goes with the namespace.
    let script = "mount -t tmpfs -o size=8k,mode=0700 none small && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(agent.get_program()).args(agent.get_args());
    command.args(more).envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let log = lab.path().join("full.log");
    command.current_dir(lab.path()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&log).expect("a file can be made"));
    let full = Agent { child: command.spawn().expect("unshare is there (util-linux)"), log };
    let swarm = ["--swarm", &nats.url(), "--slots", "2", "--swarm-key", "key"];
    let ran = lab.run(&counted("  rate: 100\n  duration: 5m\n"), &swarm);
    ran.expect(5, &["agent full (slot ", "cannot keep reports in ", "No space left on device"]);
    let summary = lab.record().summary("default", 1);
    assert_eq!(summary["ended"], "broken");
    let ok = summary["requests"]["ok"].as_u64();
    assert!(ok > Some(0), "what was reported is in the record");
    assert_eq!(lab.left_behind(), Vec::<String>::new(), "{}", ran.err);
    drop((whole, full));
}

/// `bench` and `find` have agents, too: the agents get what these make of a URL or a plan.
#[test]
fn agents_of_a_bench_and_a_search() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path().join("tmp")).expect("a folder can be made");
    let demo = Demo::start(&[]);
    let run = |args: &[&str]| {
        let mut command = lab.command(&[args, &["--swarm", "local:2", "--out", &lab.run_name()]].concat());
        command.env("TMPDIR", lab.path().join("tmp"));
        let ran = crate::run_support::Ran::of(command.output().expect("loadlab starts"));
        assert_eq!(swarm_processes(&lab), Vec::<u32>::new(), "{}", ran.err);
        ran
    };
    let url = &demo.url;
    let ran = run(&["bench", url, "-n", "301", "-c", "4"]);
    let record = lab.record();
    let summary = record.summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    assert_eq!((&summary["requests"]["ok"], &summary["load"]["users"]), (&301.into(), &4.into()));
    assert_eq!(summary["agents"].as_array().map(Vec::len), Some(2));
    std::fs::remove_dir_all(record.dir).expect("it is there");
    run(&["bench", url, "--cpus", "0"]).expect(2, &["--cpus is for load threads of this process"]);
    run(&["bench", url, "--connections", "60"]).expect(2, &["--connections cannot be combined with --swarm"]);
    let search = ["--rate", "40..41", "--expect", "errors < 50%", "--level-duration", "1s", "--settle", "0s"];
    let ran = run(&[&["find", url][..], &search].concat());
    // A busy machine may make a level INVALID, which ends the search.
    assert!(
        ran.code == Some(4) || ran.out.contains("at least 41/s, the top of the range"),
        "{}{}",
        ran.out,
        ran.err
    );
    let record = lab.record();
    let levels: Vec<u64> =
        [40, 41].into_iter().filter(|n| record.trial(&format!("rate-{n}"), 1).exists()).collect();
    assert!(!levels.is_empty());
    for level in levels {
        let summary = record.summary(&format!("rate-{level}"), 1);
        let load = (&summary["requests"]["due"], &summary["load"]["rate_per_s"]);
        assert_eq!(load, (&level.into(), &(level as f64).into()));
        assert_eq!(summary["agents"].as_array().map(Vec::len), Some(2), "{level}");
    }
}

/// A coordinator that was killed: agents leave its run as soon as another with the same key is announced, and `resume`
/// repeats the trial.
#[test]
fn a_coordinator_that_was_killed_is_resumed() {
    let lab = Lab::new();
    let nats = Nats::start(&lab);
    let key = new_key(&lab, "key");
    let more = ["--coordinator-key", &key, "--threads", "1"];
    let agents = ["one", "two"].map(|name| Agent::start(&lab, &nats, name, &more));
    let url = nats.url();
    let swarm = ["--swarm", &url, "--slots", "2", "--swarm-key", "key"];
    // Its first second is reported after a while, and the kill must come before its end.
    let running = lab.start(&counted("  rate: 6\n  duration: 16s\n"), &swarm);
    moment_of_a_fault(&lab, "default", Duration::from_secs(1));
    running.signal(Signal::KILL);
    running.end();
    eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
    let name = lab.run_name();
    lab.loadlab(&["resume", &name]).expect(2, &["--swarm nats://… needs --swarm-key FILE"]);
    let ran = lab.loadlab(&[&["resume", &name][..], &swarm].concat());
    let summary = lab.record().summary("default", 1);
    ran.expect_however_busy(std::slice::from_ref(&summary), false);
    let requests = &summary["requests"];
    assert_eq!((&requests["due"], &requests["ok"]), (&96.into(), &96.into()), "{requests}");
    assert_eq!(summary["probes"]["posted"]["last"], 96.0);
    assert!(lab.record().dir.join("cut-off/default-1-1/ticks.jsonl").is_file());
    agents.iter().for_each(|agent| agent.wait_for_output("no message from the coordinator for "));
}
