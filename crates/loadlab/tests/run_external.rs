//! Components that are already running: found, watched, and left alone.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command};

use crate::run_support::{LOAD, LONG, Lab, component, eventually, plan};

/// A process that loadlab did not start.
struct Other(Child);

impl Other {
    fn start() -> Other {
        Other(Command::new("sleep").arg("1000").spawn().expect("sleep starts"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An endpoint that answers every request with these metrics.
fn endpoint(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0u8; 4096]);
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
            let _ = stream.write_all(format!("{head}{text}").as_bytes());
        }
    });
    port
}

#[test]
fn what_runs_already_is_watched_and_left_alone() {
    let mut other = Other::start();
    let port = endpoint(
        "container_cpu_usage_seconds_total{name=\"db\"} 1.5\ncontainer_memory_working_set_bytes{name=\"db\"} 4096\n",
    );
    let externals = [
        format!("    other: {{ external: {{ pid: {} }} }}\n", other.0.id()),
        format!(
            "    db: {{ external: {{ prometheus: \"http://127.0.0.1:{port}/metrics\", match: {{ name: db }} }}, ready: {{ tcp: \"127.0.0.1:{port}\" }} }}\n"
        ),
    ];
    let lab = Lab::new();
    let text = plan(
        &[externals.concat(), component("web", "", &[])],
        &format!("{LOAD}expect: [\"other.memory < 1GiB\"]\n"),
    );
    lab.run(&text, &[]).expect(0, &[]);
    let samples = lab.record().lines("default", 1, "samples.jsonl");
    let of =
        |name: &str| samples.iter().rfind(|s| s["component"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(of("other")["pids"], 1);
    assert_eq!((&of("db")["cpu_s"], &of("db")["memory_bytes"]), (&1.5.into(), &4096.into()));
    assert!(other.0.try_wait().unwrap().is_none(), "it was not stopped");
}

#[test]
fn what_does_not_run_is_reported() {
    let port = endpoint("nothing 1\n");
    for (external, expect) in [
        ("pid: 4194999".to_owned(), "component `other`: no process has the pid 4194999"),
        (
            "command: no-such-program-here".to_owned(),
            "component `other`: no process runs `no-such-program-here`",
        ),
        ("cgroup: no/such/group".to_owned(), "component `other`: there is no control group `no/such/group`"),
        (format!("prometheus: \"http://127.0.0.1:{port}/\""), "it has no CPU or memory metrics"),
    ] {
        let lab = Lab::new();
        let other = format!("    other: {{ external: {{ {external} }} }}\n");
        lab.run(&plan(&[other, component("web", "", &[])], LOAD), &[]).expect(3, &[expect, "hint: "]);
    }
}

#[test]
fn one_that_ends_spoils_the_trial() {
    let (lab, other) = (Lab::new(), Other::start());
    let external = format!("    other: {{ external: {{ pid: {} }} }}\n", other.0.id());
    // Its end is looked for after the load, which lasts until this test says so.
    let probe = "  probes: { gone: { command: \"test -e gone && echo 1 || echo 0\" } }\n";
    let load = format!("{probe}stop_when: [\"gone > 0\"]\n{LONG}");
    let running = lab.start(&plan(&[external, component("web", "", &[])], &load), &[]);
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    drop(other);
    lab.file("gone", "");
    running.end().expect(1, &["other"]);
    let died = lab.record().events("default", 1, "died");
    assert_eq!((died.len(), &died[0]["component"]), (1, &"other".into()));
}
