//! Without a plan: the process that answers is found, watched as a component, and named if it is the bottleneck.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::alone::alone;
use crate::common::{LOADLAB, bench, check_identities, ports, skip};
use crate::run_support::{Lab, component, eventually, plan, server};

/// A separate server, as if another user had started it.
struct Tier {
    child: Child,
    address: SocketAddr,
}

impl Tier {
    fn start(ways: &str) -> Tier {
        let address = ports::unused();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(server::ARGS).env("LAB_SERVER", format!("{{\"port\": {}, {ways}}}", address.port()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        eventually("a server", || TcpStream::connect(address).ok());
        Tier { child, address }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that handles one request at a time, 5 ms each, and another in front of it that forwards requests.
fn chain() -> (Tier, Tier) {
    let store = Tier::start("\"name\": \"store\", \"at_once\": 1, \"slow_ms\": 5");
    let web = Tier::start(&format!("\"name\": \"web\", \"upstream\": \"{}\"", store.url()));
    (web, store)
}

fn names(summary: &Value) -> Vec<&str> {
    summary["components"].as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn who_answers_is_found_and_whom_it_asks() {
    let _alone = alone();
    let (web, store) = chain();
    let url = format!("{}via", web.url());
    let ran = bench(&[&url, "-c", "20", "-d", "4s", "--json"]);
    let json = ran.json();
    check_identities(&json);
    assert_eq!(ran.code, 0, "{json:#}");
    let [first, second] = names(&json)[..] else { panic!("{:#}", json["components"]) };
    assert_eq!(format!("{first}-2"), second);
    for (name, tier) in [(first, &web), (second, &store)] {
        let named = format!("{name} (pid {})", tier.child.id());
        assert!(ran.stderr.contains(&named), "{named} in {}", ran.stderr);
    }
    let bottleneck = &json["bottleneck"];
    assert_eq!(
        (bottleneck["kind"].as_str(), bottleneck["component"].as_str()),
        (Some("limited_concurrency"), Some(second)),
        "{bottleneck:#}\n{:#}",
        json["pairs"]
    );
    // The text output names it too, and `--no-watch` reports no bottleneck.
    let text = bench(&[&url, "-c", "20", "-d", "4s"]).stdout;
    let (_, answer) = text.split_once("First bottleneck\n").expect("an answer");
    assert!(answer.lines().next().is_some_and(|line| line.contains(second)), "{text}");
    assert!(answer.contains(&format!("\n  {second}  CPU ")), "{text}");
    let unseen = bench(&[&url, "-c", "2", "-n", "40", "--no-watch"]);
    assert!(!unseen.stdout.contains("First bottleneck") && !unseen.stderr.contains("watching"), "{unseen:?}");
}

#[test]
fn a_search_at_a_url_names_the_first_bottleneck() {
    let _alone = alone();
    let (web, _store) = chain();
    let lab = Lab::new();
    let out = lab.run_name();
    let url = format!("{}via", web.url());
    let level = ["--level-duration", "3s", "--settle", "200ms", "--max-levels", "2"];
    let range = ["find", &url, "--expect", "p50 < 1ms", "--users", "20..21", "--quiet", "--out", &out];
    let ran = lab.loadlab(&[&range[..], &level].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let summary = lab.record().summary("users-20", 1);
    let found = names(&summary);
    assert_eq!(found.len(), 2, "{summary:#}");
    assert_eq!(summary["bottleneck"]["component"].as_str(), Some(found[1]), "{:#}", summary["bottleneck"]);
    let notes = lab.record().events("users-20", 1, "note");
    let is_reported = |note: &Value| note["text"].as_str().is_some_and(|text| text.starts_with("watching "));
    assert!(notes.iter().any(is_reported), "{notes:#?}");
    assert!(ran.out.contains(found[1]), "{}", ran.out);
}

#[test]
fn a_process_may_be_named_and_must_be_there() {
    let _alone = alone();
    let (store, beside) = (Tier::start("\"name\": \"store\""), Tier::start("\"name\": \"beside\""));
    let pid = beside.child.id().to_string();
    let args = [&store.url(), "-c", "1", "-n", "10", "--watch-pid", &pid, "--json"];
    let json = bench(&args).json();
    assert_eq!(names(&json).len(), 2, "the server, and the process that was named: {json:#}");
    let ran = bench(&[&store.url(), "-n", "1", "--watch-pid", "4000000000"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--watch-pid 4000000000: no such process\nhint: "), "{}", ran.stderr);
    // With `--no-watch` no process is looked for, but a named one is still watched and reported.
    let lab = Lab::new();
    let out = lab.run_name();
    let level =
        ["--level-duration", "1s", "--settle", "100ms", "--max-levels", "1", "--quiet", "--out", &out];
    let range =
        ["find", &store.url(), "--expect", "p50 < 10s", "--users", "1..2", "--no-watch", "--watch-pid"];
    let ran = lab.loadlab(&[&range[..], &[&pid], &level].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let notes = lab.record().events("users-2", 1, "note");
    let named = format!("(pid {pid})");
    let is_reported = |note: &Value| {
        note["text"].as_str().is_some_and(|t| t.starts_with("watching ") && t.ends_with(&named))
    };
    assert!(notes.iter().any(is_reported), "{notes:#?}");
    assert_eq!(names(&lab.record().summary("users-2", 1)).len(), 1);
    // A plan itself defines what is watched.
    let lab = Lab::new();
    lab.file("plan.yaml", &plan(&[component("web", "", &[])], ""));
    let ran = lab.loadlab(&["find", "plan.yaml", "--expect", "p50 < 1s", "--no-watch"]);
    ran.expect(2, &["`--watch-pid` and `--no-watch` are for URLs", "hint: add an `external` component"]);
}

/// A server in a separate network namespace, connected to this one by a link, like a container.
#[test]
fn who_is_asked_in_another_network_is_found() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return skip::skip("only root may make a network namespace");
    }
    let mut store = Command::new("unshare");
    store.arg("--net").arg(std::env::current_exe().unwrap()).args(server::ARGS);
    let ways = "{\"port\": 8080, \"name\": \"store\", \"at_once\": 1, \"slow_ms\": 5, \"everywhere\": true}";
    store.env("LAB_SERVER", ways).stdin(Stdio::null()).stdout(Stdio::null());
    let child = store.spawn().expect("unshare is there (util-linux)");
    let pid = child.id();
    // An address reserved for documentation, so nobody uses it; two checkouts may run this test at the same time.
    let (link, net) = (format!("vlab{pid}"), 4 * (std::process::id() % 64));
    let (here, there) = (format!("203.0.113.{}", net + 1), format!("203.0.113.{}", net + 2));
    let store = Tier { child, address: format!("{there}:8080").parse().unwrap() };
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    eventually("its network", || {
        std::fs::read_link(format!("/proc/{pid}/ns/net")).ok().filter(|other| *other != own)
    });
    // The link is removed with the network namespace.
    let set = format!(
        "ip link add {link} type veth peer name eth0 netns {pid} && ip addr add {here}/30 dev {link} && ip link set {link} up \
         && nsenter --target {pid} --net sh -c 'ip addr add {there}/30 dev eth0 && ip link set eth0 up'"
    );
    let done = Command::new("sh").args(["-c", &set]).status();
    assert!(done.is_ok_and(|status| status.success()), "`{set}` failed");
    eventually("a server", || TcpStream::connect(store.address).ok());
    let web = Tier::start(&format!("\"name\": \"web\", \"upstream\": \"{}\"", store.url()));
    let ran = bench(&[&format!("{}via", web.url()), "-c", "20", "-d", "4s", "--json"]);
    let json = ran.json();
    assert_eq!(ran.code, 0, "{json:#}");
    let [_, second] = names(&json)[..] else { panic!("{:#}", json["components"]) };
    assert!(ran.stderr.contains(&format!("{second} (pid {pid})")), "{}", ran.stderr);
    let bottleneck = &json["bottleneck"];
    assert_eq!(
        (bottleneck["kind"].as_str(), bottleneck["component"].as_str()),
        (Some("limited_concurrency"), Some(second)),
        "{bottleneck:#}\n{:#}",
        json["pairs"]
    );
}

/// Without permission to inspect other users' processes, the report says what was not seen, and the load continues.
#[test]
fn another_users_server_is_not_seen_and_that_is_said() {
    let _alone = alone();
    let program = "$|=1; $s=IO::Socket::INET->new(LocalAddr=>'127.0.0.1',Listen=>9) or die; print $s->sockport,\"\\n\"; \
        while($c=$s->accept){ while(<$c>){ print $c \"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi\" if /^\\r$/ } }";
    if !rustix::process::geteuid().is_root() {
        return skip::skip("it takes root to be another user");
    }
    let mut perl = Command::new("perl");
    perl.args(["-MIO::Socket::INET", "-e", program]).uid(65_534).gid(65_534).stdout(Stdio::piped());
    let mut child = perl.spawn().expect("perl is installed");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let tier = Tier { child, address: SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap())) };
    // Root without that permission: setpriv restricts the capabilities the program can gain.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_ptrace", LOADLAB, "bench", &tier.url(), "-c", "1", "-n", "20"]);
    let output = command.arg("--json").output().expect("setpriv is installed");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!((json["requests"]["ok"].as_u64(), names(&json).len()), (Some(20), 0), "{json:#}");
    let not_seen = json["bottleneck"]["not_seen"].to_string();
    assert!(not_seen.contains(&format!("the process that answers at {}", tier.address)), "{not_seen}");
}
