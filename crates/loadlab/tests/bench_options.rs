//! What each option of `loadlab bench` does, as the server sees it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common;
use crate::common::demo::Demo;
use crate::common::server::{Request, Server, good, response, send, slow};
use crate::common::{
    Running, at, bench, check_same, doubts, f, failures, file, measured, n, ports, side_by_side,
};
use crate::on_every_backend;

on_every_backend! {
    method_headers_and_body_go_out_as_given
    a_body_from_a_file
    a_list_of_urls_is_gone_round_equally
    several_hosts_in_one_list
    no_keep_alive_is_a_connection_per_request
    localhost_reaches_a_server_on_ipv4_only
    localhost_reaches_a_server_on_ipv6_only
    an_ipv6_address
    samples_are_lines_of_json
    bound_to_cores
    fewer_connections_than_threads
    arrivals_are_the_seeds
    users_ramp_up_evenly
    more_users_than_a_shell_allows_files
    peak_memory_is_small_and_flat
}

fn method_headers_and_body_go_out_as_given() {
    let server = Server::start(good);
    let url = server.url("/path?q=1#fragment");
    let (json, _) = measured(&[
        &url,
        "-n",
        "10",
        "-c",
        "2",
        "-X",
        "PATCH",
        "-H",
        "X-One: 1",
        "-H",
        "content-type: text/x",
        "-b",
        "öl",
    ]);
    check_same(&json, &server.settled());
    let last = server.settled().last.unwrap();
    assert_eq!((last.method.as_str(), last.target.as_str()), ("PATCH", "/path?q=1"));
    assert_eq!(last.header("host"), Some(server.address.to_string().as_str()));
    assert_eq!((last.header("x-one"), last.header("content-type")), (Some("1"), Some("text/x")));
    assert_eq!((last.header("content-length"), last.body.as_slice()), (Some("3"), "öl".as_bytes()));

    // a body makes it a POST; an explicit Host header wins
    let (json, _) = measured(&[&server.url("/"), "-n", "1", "-c", "1", "-b", "", "-H", "Host: example.org"]);
    assert_eq!(n(&json, "requests.ok"), 1);
    let last = server.settled().last.unwrap();
    assert_eq!((last.method.as_str(), last.header("host")), ("POST", Some("example.org")));
    assert_eq!(last.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("host")).count(), 1);
}

fn a_body_from_a_file() {
    let body: Vec<u8> = (0..2_000_000u32).map(|i| (i % 251) as u8).collect();
    let (_dir, path) = file(&body);
    let expect = body.clone();
    let server = Server::start(move |r: &Request| match r.body == expect {
        true => vec![send(response(201, ""))],
        false => vec![send(response(400, "not what was meant"))],
    });
    let (json, _) =
        measured(&[&server.url("/"), "-n", "20", "-c", "4", "-b", &format!("@{}", path.display())]);
    check_same(&json, &server.settled());
    assert_eq!((n(&json, "requests.ok"), n(&json, "connections.opened")), (20, 4), "{json:#}");
}

fn a_list_of_urls_is_gone_round_equally() {
    for load in
        ["-n 90 -c 5 -t 1", "-n 90 -c 5 -t 2", "-n 90 -c 1 -t 2", "-n 90 -r 1000/s -t 2", "-d 2s -c 4 -t 2"]
    {
        let server = Server::start(good);
        let list = [
            "# three of them",
            "",
            &server.url("/a"),
            &format!("  {}  ", server.url("/b")),
            &server.url("/c"),
        ];
        let (_dir, path) = file(list.join("\n"));
        let path = path.display().to_string();
        let mut args = vec!["--urls", &path];
        args.extend(load.split(' '));
        let (json, _) = measured(&args);
        let counts = server.settled();
        check_same(&json, &counts);
        let hits: Vec<u64> = ["/a", "/b", "/c"].iter().map(|t| counts.targets[*t]).collect();
        let (least, most) = (hits.iter().min().unwrap(), hits.iter().max().unwrap());
        // Each thread cycles on its own: the counts differ by at most one request per thread.
        let slack = if load.starts_with("-n") { 0 } else { 2 };
        assert!(most - least <= slack, "{load}: {hits:?}");
    }
    // more URLs than a thread's share: together the threads reach every one
    let server = Server::start(good);
    let urls: Vec<String> = (0..40).map(|i| server.url(&format!("/{i}"))).collect();
    let (_dir, path) = file(urls.join("\n"));
    measured(&["--urls", &path.display().to_string(), "-n", "40", "-c", "7", "-t", "2"]);
    assert_eq!(server.settled().targets.len(), 40);
}

fn several_hosts_in_one_list() {
    let servers = [Server::start(good), Server::start(good), Server::at("[::1]:0", good)];
    let urls: Vec<String> = servers.iter().map(|s| s.url("/")).collect();
    let (_dir, path) = file(urls.join("\n"));
    let (json, code) = measured(&["--urls", &path.display().to_string(), "-n", "90", "-c", "4"]);
    assert_eq!((code, n(&json, "requests.ok")), (0, 90), "{json:#}");
    let counts: Vec<_> = servers.iter().map(Server::settled).collect();
    assert!(counts.iter().all(|c| c.requests == 30 && c.resets == 0), "{counts:?}");
    assert_eq!(n(&json, "bytes.sent"), counts.iter().map(|c| c.received).sum::<u64>());
    assert_eq!(n(&json, "connections.opened"), counts.iter().map(|c| c.connections).sum::<u64>());
}

fn no_keep_alive_is_a_connection_per_request() {
    // The server keeps the connection open: the load closes it, cleanly, after the whole answer.
    for load in [["-c", "6"], ["-r", "500/s"]] {
        let server = Server::start(good);
        let url = server.url("/");
        let mut args = vec![url.as_str(), "--no-keep-alive", "-n", "200"];
        args.extend(load);
        let (json, _) = measured(&args);
        let counts = server.settled();
        check_same(&json, &counts);
        assert_eq!((n(&json, "requests.ok"), counts.connections), (200, 200), "{json:#}");
        assert_eq!((counts.ended, counts.resets, counts.cut), (200, 0, 0), "an orderly end of each");
        assert_eq!(counts.last.unwrap().header("connection"), Some("close"));
        assert_eq!((n(&json, "connect_ms.count"), n(&json, "connections.requests_resent")), (200, 0));
    }
}

fn reaches(server: &Server, url: &str) {
    reaches_with(server, url, &[]);
}

fn reaches_with(server: &Server, url: &str, more: &[&str]) {
    for load in [["-c", "4"], ["-r", "500/s"]] {
        for extra in [&["-t", "2"][..], &["--no-keep-alive"]] {
            let before = server.settled().requests;
            let mut args = vec![url, "-n", "100"];
            args.extend(load);
            args.extend(extra);
            args.extend(more);
            let (json, code) = measured(&args);
            assert_eq!(failures(&json), [], "{args:?} {json:#}");
            assert!(code == 0 || doubts(&json).contains(&"late".to_owned()), "{json:#}");
            assert_eq!(server.settled().requests - before, 100);
        }
    }
}

fn localhost_reaches_a_server_on_ipv4_only() {
    let server = Server::start(good);
    reaches(&server, &format!("http://localhost:{}/", server.address.port()));
}

/// Independent of this machine's `localhost`: here it has both addresses, and nothing listens on the first: the kernel
/// gives this port to nobody, on neither.
fn localhost_reaches_a_server_on_ipv6_only() {
    let port = ports::unused().port();
    let server = Server::at(&format!("[::1]:{port}"), good);
    let [v4, v6] = ["127.0.0.1", "::1"].map(|address| format!("localhost:{port}:{address}"));
    reaches_with(&server, &format!("http://localhost:{port}/"), &["--resolve", &v4, "--resolve", &v6]);
}

fn an_ipv6_address() {
    let server = Server::at("[::1]:0", good);
    reaches(&server, &format!("http://[::1]:{}/", server.address.port()));
    assert_eq!(server.counts().last.unwrap().header("host"), Some(server.address.to_string().as_str()));
}

fn samples_are_lines_of_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("samples.jsonl");
    let server = Server::start(slow(Duration::from_millis(5)));
    let path_text = path.display().to_string();
    let (json, code) = measured(&[&server.url("/"), "-c", "2", "-d", "2500ms", "--samples", &path_text]);
    assert_eq!(code, 0, "{json:#}");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("a JSON line")).collect();
    let times: Vec<f64> = lines.iter().filter_map(|l| l["at_s"].as_f64()).collect();
    assert_eq!(times.len(), lines.len(), "{text}");
    assert!(times.iter().any(|t| *t < 1.0) && times.iter().any(|t| *t >= 2.0), "{times:?}");
}

fn bound_to_cores() {
    let server = Server::start(good);
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..1024).find(|c| set.is_set(*c)).unwrap().to_string();
    let (json, _) = measured(&[&server.url("/"), "-n", "100", "-c", "4", "--cpus", &core]);
    assert_eq!(at(&json, "generator.cpus").to_string(), format!("[{core}]"));
    assert_eq!(n(&json, "generator.threads"), 1);
    let ran = bench(&[&server.url("/"), "-n", "1", "--cpus", "1023"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("core 1023") && ran.stderr.contains("hint:"), "{}", ran.stderr);
}

/// Threads without a connection stay idle.
fn fewer_connections_than_threads() {
    let server = Server::start(good);
    let args = ["-r", "200/s", "-n", "40", "--connections", "1", "--threads", "3"];
    let (json, _) = measured(&[&[server.url("/").as_str()], &args[..]].concat());
    assert_eq!((n(&json, "requests.ok"), n(&json, "connections.opened")), (40, 1), "{json:#}");
    check_same(&json, &server.settled());
}

/// Gaps between the arrivals of one run's requests, in milliseconds. A request arrives after it is due and before its
/// answer: if the slowest response is fast enough, the arrivals are the schedule. A busy machine gets more attempts.
fn arrivals(args: &[&str]) -> Vec<f64> {
    let mut attempt = arrivals_of_one_run(args);
    for _ in 0..7 {
        if attempt.1 >= BLURRED_MS {
            attempt = arrivals_of_one_run(args);
        }
    }
    attempt.0
}

/// Gaps of two runs that differ by less are the same.
const BLURRED_MS: f64 = 60.0;

/// As [`arrivals`], of one attempt, and its slowest response in milliseconds.
fn arrivals_of_one_run(args: &[&str]) -> (Vec<f64>, f64) {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (noted, began) = (times.clone(), std::time::Instant::now());
    let server = Server::start(move |r: &Request| {
        noted.lock().unwrap().push(began.elapsed());
        good(r)
    });
    let url = server.url("/");
    let mut all = vec![url.as_str()];
    all.extend(args);
    let (json, _) = measured(&all);
    server.settled();
    let mut times = times.lock().unwrap().clone();
    times.sort();
    let gaps = times.windows(2).map(|w| (w[1] - w[0]).as_secs_f64() * 1e3).collect();
    (gaps, f(&json, "response_ms.max").unwrap_or(f64::INFINITY))
}

/// The same seed gives the same due times, another seed others. Gaps are long, so that a busy machine does not blur
/// them: most must agree to within a fraction of their length.
fn arrivals_are_the_seeds() {
    let load = ["-r", "6.25/s", "-n", "25", "--arrivals", "poisson", "--seed"];
    let with = |seed| arrivals(&[&load[..], &[seed]].concat());
    // They mostly wait.
    let [one, again, other] = side_by_side(["7", "7", "8"], with);
    let alike = |a: &[f64], b: &[f64]| a.iter().zip(b).filter(|(x, y)| (*x - *y).abs() < BLURRED_MS).count();
    assert!(alike(&one, &again) >= 18, "{one:?}\n{again:?}");
    assert!(alike(&one, &other) <= 16, "{one:?}\n{other:?}");
    // and they are not evenly spaced
    assert!(one.iter().filter(|gap| (*gap - 160.0).abs() > 40.0).count() >= 8, "{one:?}");
}

fn users_ramp_up_evenly() {
    let server = Server::start(slow(Duration::from_millis(10)));
    // Long enough that a second in which a busy machine starts no user changes little.
    let (json, _) = measured(&[&server.url("/"), "-c", "20", "-d", "10s", "--ramp", "10s"]);
    check_same(&json, &server.settled());
    assert_eq!(n(&json, "connections.opened"), 20);
    // Evenly from zero to twenty: ten on average.
    let mean = f(&json, "concurrency_mean").unwrap();
    assert!((8.0..=12.0).contains(&mean), "{mean}");
    assert_eq!(f(&json, "load.ramp_s"), Some(10.0));
}

/// A shell's limit on open files is not a failure of the system, as long as it can be raised.
fn more_users_than_a_shell_allows_files() {
    let server = Server::start(good);
    let bench = common::command(&["--json", &server.url("/"), "-c", "150", "-n", "600", "-q"]);
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "ulimit -S -n 100; exec \"$0\" \"$@\""])
        .arg(bench.get_program())
        .args(bench.get_args());
    let output = shell.output().expect("a shell");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    common::check_identities(&json);
    check_same(&json, &server.settled());
    assert_eq!((n(&json, "requests.ok"), n(&json, "connections.opened")), (600, 150), "{json:#}");
}

/// At 50 connections, and no more after four times as long. This measures memory, not time; and only private memory
/// outside the program's own files, since the code and tables of an unoptimised build are several times as large.
fn peak_memory_is_small_and_flat() {
    // Watching takes memory for every connection in the network namespace, including those of other tests.
    common::network::own();
    let demo = Demo::start(&["--workers", "50", "--wait", "2ms"]);
    let attempt = |args: &[&str]| {
        let mut own_kib = 0;
        let running = Running::start(common::command(args));
        let json = running.wait_looking(|pid| own_kib = own_kib.max(own_memory_kib(pid))).json();
        (json, own_kib)
    };
    let peak_kib = |duration, extra: &[&str], most_kib: u64| {
        let args =
            [&["--json", demo.url.as_str(), "-c", "50", "-t", "1", "-d", duration][..], extra].concat();
        let (mut json, mut own_kib) = attempt(&args);
        for _ in 0..7 {
            // Too few requests tell nothing about memory: a busy machine gets more attempts.
            if n(&json, "requests.ok") <= 1000 {
                (json, own_kib) = attempt(&args);
            }
        }
        common::check_identities(&json);
        assert!(json["components"]["demo"].is_object(), "the demo is not watched: {json:#}");
        assert!(n(&json, "requests.ok") > 1000 && own_kib > 256, "{own_kib} KiB: {json:#}");
        // Such a reading, see below, may come after the load, whose peak is reported.
        let is_in_peak = n(&json, "generator.peak_rss_bytes") >= own_kib << 10;
        assert!(is_in_peak || own_kib > most_kib, "{own_kib} KiB: {json:#}");
        own_kib
    };
    // A watcher reading that misses the peer of a new connection reads the tables of all namespaces, including other
    // tests' connections, so the least of three runs counts.
    let least_kib = |duration, extra: &[&str], most_kib: u64| {
        let first = peak_kib(duration, extra, most_kib);
        (0..2).fold(first, |least, _| {
            if least > most_kib { least.min(peak_kib(duration, extra, most_kib)) } else { least }
        })
    };
    // With 1.5 MiB of tables that is 4 MiB.
    let short = least_kib("2s", &[], 2560);
    assert!(short <= 2560, "{short} KiB");
    let long = least_kib("8s", &[], short + 768);
    assert!(long <= short + 768, "{short} KiB after 2 s, {long} KiB after 8 s");
    let looking = least_kib("2s", &["--stop-when", "failed > 10"], short + (5 << 10));
    assert!(looking <= short + (5 << 10), "{short} KiB, and {looking} KiB with a condition to look at");
}

/// A process's anonymous memory.
fn own_memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    (of("RssAnon:") + of("RssShmem:")).saturating_sub(tables_kib(pid))
}

/// Private memory that belongs to files: relocated tables of the program and its libraries, written at load time. They
/// are half of an unoptimised program's private memory.
fn tables_kib(pid: u32) -> u64 {
    let (mut sum, mut is_of_file) = (0, false);
    for line in std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default().lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some(kib)) if is_of_file => sum += kib.parse::<u64>().unwrap_or(0),
            (Some(range), Some(_)) if !range.ends_with(':') => {
                is_of_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
            }
            _ => {}
        }
    }
    sum
}

/// The same limit as in a plan, which `--save` produces.
#[test]
fn a_ramp_is_part_of_the_duration() {
    for more in [&["-d", "1s"][..], &["-d", "1s", "--save"]] {
        let mut command = common::command(&[&["http://127.0.0.1:1/", "--ramp", "2s"], more].concat());
        let out = command.output().expect("loadlab starts");
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains("--ramp 2.00 s is longer than the load: --duration is 1.00 s"), "{err}");
    }
}
