//! What `loadlab bench` reports when its own figures are not trustworthy: starved of CPU, stopped, out of files or
//! ports – and what it does not blame on itself. Verdicts are asserted, not times.
//!
//! CPU limits and network namespaces need root; without root, those tests report that they were skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::alone::alone;
use crate::common;
use crate::common::server::{Request, Server, good, send, slow};
use crate::common::{LOADLAB, OF_A_BUSY_MACHINE, Ran, Running, at, check_identities, command, doubts, f, n};
use crate::on_every_backend;

on_every_backend! {
    a_starved_generator_is_invalid_in_the_open_model
    a_starved_generator_is_a_note_in_the_closed_model
    a_frozen_server_is_not_held_against_the_generator
    ports_that_run_out_are_its_own_limit
    a_system_that_is_behind
}

/// Runs `loadlab bench --json …` to its end, started by a shell that first runs `first`.
fn bench_after(first: &str, args: &[&str]) -> Ran {
    Running::start(shell(first, args)).wait()
}

fn shell(first: &str, args: &[&str]) -> Command {
    let bench = command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\""), LOADLAB]).args(bench.get_args()).arg("--json");
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn doubt<'j>(json: &'j Value, kind: &str) -> &'j Value {
    let all = json["doubts"].as_array().expect("doubts");
    all.iter().find(|d| d["kind"] == kind).unwrap_or_else(|| panic!("no doubt `{kind}` in {json:#}"))
}

fn grave(json: &Value) -> Vec<&str> {
    let all = json["doubts"].as_array().expect("doubts");
    all.iter().filter(|d| d["grave"] == true).filter_map(|d| d["kind"].as_str()).collect()
}

/// A cgroup with a tenth of a core, removed when dropped.
struct Tenth(PathBuf);

impl Tenth {
    /// `None` if this user or host cannot create one.
    fn of_a_core() -> Option<Tenth> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("loadlab-test-tenth-{}-{number}", std::process::id());
        let limits: [(&str, &[(&str, &str)]); 4] = [
            ("/sys/fs/cgroup/cpu", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000")]),
            ("/sys/fs/cgroup/cpu,cpuacct", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000")]),
            ("/sys/fs/cgroup", &[("cpu.max", "10000 100000")]),
            ("/sys/fs/cgroup/unified", &[("cpu.max", "10000 100000")]),
        ];
        limits.iter().find_map(|(root, settings)| {
            // On v2 a group has a controller's files only if its ancestors pass the controller down.
            let _ = std::fs::write(Path::new(root).join("cgroup.subtree_control"), "+cpu");
            let dir = Path::new(root).join(&name);
            if !Path::new(root).join("cgroup.procs").exists() || std::fs::create_dir(&dir).is_err() {
                return None;
            }
            let group = Tenth(dir);
            let set = |(file, value): &(&str, &str)| {
                let path = group.0.join(file);
                path.exists() && std::fs::write(path, value).is_ok()
            };
            settings.iter().all(set).then_some(group)
        })
    }

    fn enter(&self) -> String {
        format!("echo $$ > '{}'", self.0.join("cgroup.procs").display())
    }
}

impl Drop for Tenth {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

const NO_LIMITS: &str = "this user or host gives no CPU limits";

/// Far more load than a tenth of a core can send, to a server with spare capacity.
fn a_starved_generator_is_invalid_in_the_open_model() {
    let _alone = alone();
    let Some(tenth) = Tenth::of_a_core() else { return common::skip::skip(NO_LIMITS) };
    let server = Server::start(good);
    let url = server.url("/");
    let args = [&url, "-r", "20000/s", "-d", "2s", "--max-in-flight", "20", "--grace", "1s"];
    let ran = bench_after(&tenth.enter(), &args);
    let json = ran.json();
    check_identities(&json);
    assert_eq!((ran.code, at(&json, "verdict").as_str()), (4, Some("invalid")), "{json:#}");
    assert!(grave(&json).contains(&"late") && grave(&json).contains(&"throttled"), "{json:#}");
    let evidence = doubt(&json, "throttled")["evidence"].as_str().unwrap();
    assert!(evidence.contains("throttled by a CPU limit for"), "{evidence}");
    assert!(f(&json, "generator.throttled_s").unwrap() > 0.2, "{json:#}");
}

/// Users wait for the generator, and the system is not reported as slow.
fn a_starved_generator_is_a_note_in_the_closed_model() {
    let _alone = alone();
    struct Case {
        expect: &'static str,
        verdict: (i32, &'static str),
        is_grave: bool,
    }
    let cases = [
        Case { expect: "", verdict: (0, "none"), is_grave: false },
        Case { expect: "errors < 1%", verdict: (0, "pass"), is_grave: false },
        Case { expect: "p90 < 1h", verdict: (4, "invalid"), is_grave: true },
        // A throughput that loadlab itself could not reach would be blamed on the system.
        Case { expect: "goodput > 1000000/s", verdict: (4, "invalid"), is_grave: true },
    ];
    let server = Server::start(good);
    let url = server.url("/");
    // Two at a time, each with its own tenth: server and machine have several times what these two can use.
    for pair in cases.chunks(2) {
        let tenths: Option<Vec<Tenth>> = pair.iter().map(|_| Tenth::of_a_core()).collect();
        let Some(tenths) = tenths else { return common::skip::skip(NO_LIMITS) };
        let started = pair.iter().zip(&tenths).map(|(case, tenth)| {
            let mut args = vec![url.as_str(), "-c", "4", "-d", "5s"];
            if !case.expect.is_empty() {
                args.extend(["--expect", case.expect]);
            }
            Running::start(shell(&tenth.enter(), &args))
        });
        let started: Vec<Running> = started.collect();
        let ended: Vec<Ran> = started.into_iter().map(Running::wait).collect();
        for (case, ran) in pair.iter().zip(ended) {
            let json = ran.json();
            check_identities(&json);
            let throttled = doubt(&json, "throttled");
            assert!(throttled["evidence"].as_str().unwrap().contains("lower bound"), "{json:#}");
            let (code, verdict) = case.verdict;
            assert_eq!((ran.code, at(&json, "verdict").as_str()), (code, Some(verdict)), "{json:#}");
            let is_grave = [throttled["grave"] == true, !grave(&json).is_empty()];
            assert_eq!(is_grave, [case.is_grave; 2], "{json:#}");
        }
    }
}

/// The generator has priority over other processes on this machine, so that it is not to blame. If it still sends late,
/// a busy machine gets more attempts.
#[expect(clippy::disallowed_methods, reason = "a server frozen for a known time is what is tested")]
fn a_frozen_server_is_not_held_against_the_generator() {
    let _alone = alone();
    let frozen = || {
        let server = Server::start(good);
        let args = [&server.url("/"), "-r", "200/s", "-d", "6s"];
        let running = Running::start(shell("renice -n -15 $$ > /dev/null 2>&1 || true", &args));
        server.after(200);
        server.freeze();
        std::thread::sleep(Duration::from_millis(1500));
        server.thaw();
        let ran = running.wait();
        let json = ran.json();
        check_identities(&json);
        assert!(f(&json, "response_ms.max").unwrap() > 1000.0, "{json:#}");
        (ran.code, json)
    };
    let (mut code, mut json) = frozen();
    let is_of_machine = |json: &Value| {
        let grave = grave(json);
        !grave.is_empty() && grave.iter().all(|kind| OF_A_BUSY_MACHINE.contains(kind))
    };
    for _ in 0..7 {
        if is_of_machine(&json) {
            (code, json) = frozen();
        }
    }
    assert_eq!((code, at(&json, "verdict").as_str(), grave(&json)), (0, Some("none"), vec![]), "{json:#}");
}

/// io_uring's sockets take no descriptors; epoll's do.
#[test]
fn files_that_run_out_are_its_own_limit() {
    common::on("epoll", || {
        let _alone = alone();
        let server = Server::start(slow(Duration::from_millis(5)));
        let url = server.url("/");
        for load in [["-c", "100"], ["-r", "20000/s"]] {
            let args = [&[&url, "-n", "2000"][..], &load].concat();
            let ran = bench_after("ulimit -n 40", &args);
            let json = ran.json();
            check_identities(&json);
            assert_eq!((ran.code, at(&json, "verdict").as_str()), (4, Some("invalid")), "{json:#}");
            assert!(n(&json, "requests.ok") > 0, "{json:#}");
            let (own, failed) = (n(&json, "connections.own_limits.open_files"), n(&json, "failures.connect"));
            assert!(own > 0 && own == failed, "{json:#}");
            assert_eq!(doubt(&json, "client_limit")["grave"], true);
            assert!(doubt(&json, "client_limit")["hint"].as_str().unwrap().contains("ulimit -n"), "{json:#}");
        }
    });
}

/// With fewer and fewer files, some limit leaves none for a connection: the message then must not point at the server.
#[test]
fn without_a_file_for_one_connection() {
    common::on("epoll", || {
        let _alone = alone();
        let server = Server::start(good);
        let said = (4..16).rev().find_map(|files| {
            let ran = bench_after(&format!("ulimit -n {files}"), &[&server.url("/"), "-c", "2", "-n", "20"]);
            (ran.code == 5).then_some(ran.stderr)
        });
        let said = said.expect("a limit too low for any connection");
        assert!(
            said.contains("too many open files\nhint: this is a limit of the machine loadlab runs on"),
            "{said}"
        );
    });
}

/// Fifty local ports, in the test's own network namespace.
fn ports_that_run_out_are_its_own_limit() {
    let _alone = alone();
    if !common::network::own() {
        return common::skip::skip("only root may make a network namespace");
    }
    let set = "echo 20000 20049 > /proc/sys/net/ipv4/ip_local_port_range";
    let done = Command::new("sh").args(["-c", set]).status();
    assert!(done.is_ok_and(|s| s.success()), "`{set}` failed");
    let server = Server::start(slow(Duration::from_millis(5)));
    let url = server.url("/");
    let ran = bench_after("true", &[&url, "-c", "200", "-n", "3000"]);
    let json = ran.json();
    check_identities(&json);
    assert_eq!((ran.code, at(&json, "verdict").as_str()), (4, Some("invalid")), "{json:#}");
    let (own, failed) = (n(&json, "connections.own_limits.ports"), n(&json, "failures.connect"));
    assert!(own > 0 && own == failed, "{json:#}");
    assert!(n(&json, "requests.ok") > 0 && n(&json, "connections.peak") >= 50, "{json:#}");
    assert!(doubt(&json, "client_limit")["evidence"].as_str().unwrap().contains("no local port"), "{json:#}");
}

/// Everything reported about a system that does not keep up; none of it is grave.
fn a_system_that_is_behind() {
    let _alone = alone();
    let server = Server::start(slow(Duration::from_millis(50)));
    let url = server.url("/");
    let start = |load: &[&str], more: &[&str]| {
        Running::start(shell("true", &[&[url.as_str()][..], load, more].concat()))
    };
    // 4 slots of 50 ms each carry 80 of the 400 requests due per second
    let load = ["-r", "400/s", "-d", "2s", "--max-in-flight", "4", "-t", "1"];
    // At the same time: all three leave nearly all of the machine idle.
    let queueing = start(&load, &[]);
    let dropping = start(&load, &["--when-behind", "drop"]);
    let held = start(&["-r", "100/s", "-d", "1s"], &["--max-in-flight", "30", "--connections", "40"]);
    let behind = |running: Running| {
        let json = running.wait().json();
        check_identities(&json);
        assert_eq!(f(&json, "connections.in_flight_peak"), Some(4.0), "{json:#}");
        for kind in ["in_flight_cap", "dropped"] {
            assert_eq!(doubt(&json, kind)["grave"], false, "{json:#}");
        }
        doubt(&json, "dropped")["evidence"].as_str().unwrap().to_owned()
    };
    assert!(behind(queueing).contains("still waiting for a slot when the load ended"));
    assert!(behind(dropping).contains("as the plan asks when the system is behind"));
    // Held connections are not requests, so the cap is far away.
    let json = held.wait().json();
    assert!(n(&json, "connections.peak") >= 40, "{json:#}");
    // On a busy machine they may reach it, or one load thread its share of it.
    let is_capped =
        n(&json, "connections.in_flight_peak") >= 30 || !json["connections"]["held_back"].is_null();
    assert_eq!(doubts(&json).contains(&"in_flight_cap".to_owned()), is_capped, "{json:#}");
}

/// A server that answers every tenth connection a hundred times slower, and one that is fair.
#[test]
fn a_server_that_starves_connections() {
    let _alone = alone();
    let unfair = Server::start(|r: &Request| {
        let by = if r.connection.is_multiple_of(10) { 200 } else { 2 };
        vec![
            common::server::Step::Wait(Duration::from_millis(by)),
            send(common::server::response(200, "hello")),
        ]
    });
    let ran = bench_after("true", &[&unfair.url("/"), "-c", "20", "-d", "4s"]);
    let json = ran.json();
    check_identities(&json);
    assert_eq!(n(&json, "connections.per_user.users"), 20, "{json:#}");
    // A machine too busy for 100 requests per user allows no judgement.
    if n(&json, "connections.per_user.median") >= 100 {
        assert_eq!(doubt(&json, "unfair")["grave"], false, "{json:#}");
        assert!(doubt(&json, "unfair")["hint"].as_str().unwrap().contains("SO_REUSEPORT"), "{json:#}");
    }
    let fair = Server::start(slow(Duration::from_millis(2)));
    // Long enough that a user whose thread gets no core for a second is not far behind.
    let ran = bench_after("true", &[&fair.url("/"), "-c", "20", "-d", "10s"]);
    let json = ran.json();
    assert!(!doubts(&json).contains(&"unfair".to_owned()), "{json:#}");
}
