//! Every way a run of `loadlab bench` can end, compared with the server's records.
//!
//! If a run is cut off, the network hides at most what was in flight: a request that the load counts as in flight may
//! or may not have reached the server, and its answer may still be in transit. The server's counts therefore differ
//! from the load's by at most `in_flight`.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common;
use crate::common::nginx::Nginx;
use crate::common::server::{
    Counts, Request, Script, Server, Step, TIMEOUT, always, good, response, send, slow,
};
use crate::common::{
    Running, at, bench, check_identities, check_same, command, doubts, f, failures, measured, n, side_by_side,
};
use crate::on_every_backend;

on_every_backend! {
    a_stop_condition_ends_the_load
    interrupted_by_signal
    interrupted_when_one_thread_is_done
    a_second_signal_ends_it_at_once
    the_server_dies_in_the_middle
    timeouts_are_counted_when_they_are_due
    grace_cuts_off_what_is_still_in_flight
    stragglers_leave_the_rate_alone
    a_target_without_a_listener_is_an_error
    a_certificate_that_is_not_trusted
    every_request_fails
    refused_in_the_middle
    accepts_and_never_answers
    a_backlog_that_is_full
    endless_and_huge_bodies
    an_answer_before_the_request_was_read
    bytes_after_a_response
    behind_and_dropping
    behind_and_queueing
}

/// The server's counts differ by no more than what was in flight.
fn check_within(json: &Value, server: &Counts) {
    let (started, ok) = (n(json, "requests.started"), n(json, "requests.ok"));
    let (in_flight, connect) = (n(json, "requests.in_flight"), n(json, "failures.connect"));
    assert!(server.requests <= started, "{json:#}\n{server:?}");
    assert!(server.requests + in_flight + connect >= started, "{json:#}\n{server:?}");
    assert!(ok <= server.answered && server.answered <= ok + in_flight, "{json:#}\n{server:?}");
    assert!(n(json, "bytes.received") <= server.sent);
    assert!(server.received <= n(json, "bytes.sent"));
}

fn a_stop_condition_ends_the_load() {
    let server = Server::start(|r: &Request| match r.number % 10 {
        9 => vec![send(response(500, "no"))],
        _ => good(r),
    });
    // At this rate, what falls due while a busy machine has no core for loadlab can still be sent when the load ends.
    for load in [["-c", "4"], ["-r", "100/s"]] {
        let before = server.counts().requests;
        let mut args = vec!["--stop-when", "failed > 10", "-d", "50s", "--grace", "50s"];
        let url = server.url("/");
        args.extend(load);
        args.push(&url);
        let (json, code) = measured(&args);
        let counts = server.settled();
        assert_eq!(at(&json, "ended"), "stopped", "{json:#}");
        assert!(code == 0 || code == 4 && doubts(&json).contains(&"late".to_owned()), "{json:#}");
        assert!(doubts(&json).contains(&"ended_early".to_owned()));
        assert!(n(&json, "failures.http_5xx") > 10);
        assert_eq!((n(&json, "requests.in_flight"), n(&json, "requests.dropped")), (0, 0));
        assert_eq!(counts.requests - before, n(&json, "requests.started"));
        assert!(f(&json, "elapsed_s").unwrap() < 49.0);
    }
    // Rates cover the time so far; they are not zero.
    let steady = Server::start(slow(Duration::from_millis(2)));
    let url = steady.url("/");
    let (json, _) = measured(&[
        &url,
        "-c",
        "2",
        "-n",
        "300",
        "--stop-when",
        "ok > 0 and goodput < 0.1/s or ok > 0 and rate < 0.1/s",
    ]);
    assert_eq!((at(&json, "ended").as_str(), n(&json, "requests.ok")), (Some("complete"), 300), "{json:#}");
    let (json, _) = measured(&[&url, "-c", "2", "-d", "50s", "--stop-when", "rate > 1/s and ok > 20"]);
    assert_eq!(at(&json, "ended"), "stopped", "{json:#}");
    let (json, code) = measured(&[
        &server.url("/"),
        "-c",
        "2",
        "-d",
        "50s",
        "--stop-when",
        "failed > 3",
        "--expect",
        "errors < 1%",
    ]);
    assert_eq!((code, at(&json, "verdict").as_str()), (1, Some("fail")), "{json:#}");
}

fn interrupted(signal: i32, load: &[&str]) {
    let server = Server::start(slow(Duration::from_millis(5)));
    let url = server.url("/");
    let mut args = vec!["--json", &url];
    args.extend(load);
    let running = Running::start(command(&args));
    server.after(200);
    running.signal(signal);
    let ran = running.wait();
    let json = ran.json();
    check_identities(&json);
    assert_eq!(
        (ran.code, at(&json, "ended").as_str()),
        (130, Some("interrupted")),
        "{load:?} {}",
        ran.stderr
    );
    assert!(n(&json, "requests.started") >= 200);
    check_within(&json, &server.settled());
    assert!(f(&json, "rate_per_s.ok").unwrap() > 0.0, "{json:#}");
    assert!(f(&json, "ok_response_ms.p50").unwrap() >= 5.0, "{json:#}");
}

fn interrupted_by_signal() {
    for load in ["-d 50s -c 10", "-d 50s -c 10 -t 2", "-d 50s -r 500/s", "-n 1000000 -c 5"] {
        interrupted(libc::SIGINT, &load.split(' ').collect::<Vec<_>>());
    }
    interrupted(libc::SIGTERM, &["-d", "50s"]);
    // the text summary, too
    let server = Server::start(good);
    let running = Running::start(command(&[&server.url("/"), "-c", "2", "-d", "50s"]));
    server.after(100);
    running.signal(libc::SIGINT);
    let ran = running.wait();
    assert_eq!(ran.code, 130);
    assert!(ran.stdout.contains(" ok in ") && ran.stdout.contains("interrupted"), "{}", ran.stdout);
}

/// One load thread finishes long before the other; nothing waits because of that.
fn interrupted_when_one_thread_is_done() {
    let server = Server::start(|r: &Request| match r.number {
        0 => good(r),
        _ => vec![Step::Hang],
    });
    let args = ["--json", &server.url("/"), "-n", "2", "-c", "2", "-t", "2", "--timeout", "10m"];
    let running = Running::start(command(&args));
    server.after(2);
    // Both threads have started. A thread that is done reports before it ends.
    let until = Instant::now() + TIMEOUT;
    while load_threads(running.child.id()) > 1 {
        assert!(Instant::now() < until, "no load thread ended");
        std::thread::yield_now();
    }
    let asked = Instant::now();
    running.signal(libc::SIGINT);
    let ran = running.wait();
    let took = asked.elapsed();
    let json = ran.json();
    check_identities(&json);
    assert_eq!((ran.code, n(&json, "requests.in_flight")), (130, 1), "{json:#}");
    assert!(took < Duration::from_secs(60), "{took:?}, and the timeout is 10 min");
}

/// The number of load threads of a process.
fn load_threads(pid: u32) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.starts_with("load-")).count()
}

/// The first signal requests a stop, the second forces it.
fn a_second_signal_ends_it_at_once() {
    let server = Server::start(always(vec![Step::Hang]));
    let running = Running::start(command(&[&server.url("/"), "-c", "2", "-d", "50s"]));
    server.after(2);
    running.signal(libc::SIGINT);
    running.signal(libc::SIGINT);
    assert_eq!(running.wait().code, 130);
}

fn the_server_dies_in_the_middle() {
    let mut server = Server::start(slow(Duration::from_millis(2)));
    // The load goes on until it has met the dead server, however long this thread takes to let it die.
    let args = ["--json", &server.url("/"), "-c", "5", "-d", "50s", "--stop-when", "failed > 100"];
    let running = Running::start(command(&args));
    server.after(200);
    server.die();
    let ran = running.wait();
    let json = ran.json();
    check_identities(&json);
    let counts = server.settled();
    assert_eq!((ran.code, at(&json, "ended").as_str()), (0, Some("stopped")), "{}", ran.stderr);
    assert!(n(&json, "failures.connect") > 0, "{json:#}");
    // Whatever was in flight when the server died ended in one of two ways: connection closed, or truncated answer.
    let odd = n(&json, "failures.reset") + n(&json, "failures.truncated");
    assert!(odd <= 5, "{json:#}");
    let delivered = n(&json, "requests.started") - n(&json, "failures.connect");
    assert!(counts.requests <= delivered && delivered <= counts.requests + odd, "{json:#} {counts:?}");
    let ok = n(&json, "requests.ok");
    assert!(ok <= counts.answered && counts.answered <= ok + odd, "{json:#} {counts:?}");
}

fn timeouts_are_counted_when_they_are_due() {
    // Both only wait.
    let models: [fn(); 2] = [timeouts_of_users, timeouts_at_a_rate];
    side_by_side(models, |model| model());
}

fn timeouts_of_users() {
    let server = Server::start(|r: &Request| match r.number % 2 {
        0 => good(r),
        _ => vec![Step::Hang],
    });
    // Long enough for a good answer of a busy machine.
    let (json, code) = measured(&[&server.url("/"), "-n", "40", "-c", "40", "--timeout", "15s"]);
    let counts = server.settled_after(n(&json, "connections.opened"));
    assert_eq!((code, failures(&json)), (0, vec![("timeout".to_owned(), 20)]), "{json:#}");
    assert_eq!((n(&json, "requests.ok"), counts.requests), (20, 40));
    assert_eq!(n(&json, "response_ms.censored"), 20);
    // Half of the requests outlast the timeout: the median is the last known value, or beyond it.
    assert_eq!(f(&json, "response_ms.p75"), None);
    assert!(f(&json, "response_ms.over_ms.p75").unwrap() >= 15_000.0);
    assert_eq!(f(&json, "response_ms.max"), None);
    assert_eq!(n(&json, "ok_response_ms.count"), 20);
    assert_eq!(n(&json, "bytes.sent"), counts.received);
    assert_eq!(n(&json, "connections.opened"), counts.connections);
}

fn timeouts_at_a_rate() {
    let server = Server::start(|r: &Request| match r.number % 4 {
        3 => vec![Step::Hang],
        _ => good(r),
    });
    // Long enough for a good answer of a busy machine.
    let (json, _) = measured(&[&server.url("/"), "-r", "400/s", "-n", "200", "--timeout", "15s"]);
    let counts = server.settled_after(n(&json, "connections.opened"));
    assert_eq!(failures(&json), [("timeout".to_owned(), 50)], "{json:#}");
    assert_eq!((n(&json, "requests.ok"), counts.requests), (150, 200));
    // A timeout is censored at its age: it counts as at least that long.
    assert_eq!((n(&json, "response_ms.censored"), n(&json, "service_ms.censored")), (50, 50));
    assert_eq!((f(&json, "response_ms.p90"), f(&json, "response_ms.p95")), (None, None));
    assert!(f(&json, "response_ms.over_ms.p90").unwrap() >= 15_000.0);
}

fn grace_cuts_off_what_is_still_in_flight() {
    // They mostly wait, and have few enough requests that all can be sent at the end, if a busy machine has no core for
    // loadlab before.
    let loads: [fn(); 3] = [|| cut_off_after(["-c", "9"]), || cut_off_after(["-r", "30/s"]), cut_off_at_once];
    side_by_side(loads, |load| load());
}

fn cut_off_after(load: [&str; 2]) {
    // On every third connection the first request never ends; the others finish within the grace period.
    let server = Server::start(|r: &Request| match r.on_connection + r.connection % 3 {
        0 => vec![Step::Hang],
        _ => slow(Duration::from_millis(300))(r),
    });
    let url = server.url("/");
    let mut args = vec!["-d", "2s", "--grace", "4s", url.as_str()];
    args.extend(load);
    let (json, code) = measured(&args);
    let counts = server.settled_after(n(&json, "connections.opened"));
    assert!(code == 0 || code == 4 && doubts(&json).contains(&"late".to_owned()), "{json:#}");
    assert_eq!(at(&json, "ended"), "complete");
    assert!(n(&json, "requests.in_flight") >= 3, "{json:#}");
    assert_eq!(n(&json, "response_ms.censored"), n(&json, "requests.in_flight"));
    assert_eq!((n(&json, "requests.failed"), n(&json, "requests.dropped")), (0, 0));
    // Nothing is hidden: the server had read the requests that never ended long before, and answered the rest.
    assert_eq!(counts.requests, n(&json, "requests.started"));
    let elapsed = f(&json, "elapsed_s").unwrap();
    assert!((6.0..29.0).contains(&elapsed), "{elapsed}, and the timeout is 30 s");
}

/// No grace period at all.
fn cut_off_at_once() {
    let server = Server::start(always(vec![Step::Hang]));
    let (json, _) = measured(&[&server.url("/"), "-c", "3", "-d", "2s", "--grace", "0s", "--timeout", "50s"]);
    assert_eq!(n(&json, "requests.in_flight"), 3);
    assert!(f(&json, "elapsed_s").unwrap() < 49.0);
}

/// A server that answers the first `AT_ONCE` requests at once, and every later one only after the load is over.
fn stragglers_leave_the_rate_alone() {
    const AT_ONCE: u64 = 600;
    const USERS: u64 = 30;
    let server = Server::start(|r: &Request| match r.number {
        ..AT_ONCE => good(r),
        _ => std::iter::once(Step::Wait(Duration::from_secs(10))).chain(good(r)).collect(),
    });
    let url = server.url("/");
    let (json, code) = measured(&[&url, "-c", "30", "-d", "8s", "--grace", "50s"]);
    assert_eq!(code, 0, "{json:#}");
    let counts = server.settled();
    check_same(&json, &counts);
    // The server's own records: what it had answered eight seconds after its first request.
    let first = counts.log.iter().map(|(came, _)| *came).min().unwrap();
    let soon = |done: &Duration| *done < first + Duration::from_secs(8);
    let theirs = counts.log.iter().filter(|(_, done)| soon(done)).count() as f64 / 8.0;
    let ours = f(&json, "rate_per_s.ok").unwrap();
    assert!((ours / theirs - 1.0).abs() <= 0.02, "{ours}/s, and the server says {theirs}/s: {json:#}");
    assert_eq!((f(&json, "window.from_s"), f(&json, "window.to_s")), (Some(0.0), Some(8.0)));
    // The stragglers have their response times, and are reported as such.
    assert_eq!(n(&json, "requests.ok"), AT_ONCE + USERS);
    assert_eq!((n(&json, "stragglers.ok"), n(&json, "stragglers.failed")), (USERS, 0), "{json:#}");
    assert!(f(&json, "stragglers.tail_s").unwrap() > 1.0 - 0.01, "{json:#}");
    assert!(f(&json, "response_ms.max").unwrap() >= 10_000.0);
    let mean = f(&json, "concurrency_mean").unwrap();
    assert!(mean <= USERS as f64 + 1e-6, "{mean}");
    assert!(!doubts(&json).contains(&"littles_law".to_owned()), "{json:#}");
}

/// No handshake succeeded: exit code 5, with the reason and a remedy on standard error.
fn a_certificate_that_is_not_trusted() {
    let nginx = Nginx::start();
    let url = format!("https://{}/page", nginx.secure);
    for load in [&["-n", "20", "-c", "2"][..], &["-n", "4", "-c", "2", "--http2"], &["-n", "4", "--quiet"]] {
        let ran = bench(&[&[url.as_str()], load].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (5, ""), "{load:?} {}", ran.stderr);
        for said in
            ["error: no TLS connection with 127.0.0.1:", "self-signed", "hint:", "--cacert", "--insecure"]
        {
            assert!(ran.stderr.contains(said), "{load:?}: no `{said}` in {}", ran.stderr);
        }
    }
    // The document is still printed, with the reason next to it.
    let ran = bench(&[&url, "-n", "4", "--json"]);
    assert_eq!((ran.code, n(&ran.json(), "failures.tls")), (5, 4));
    assert!(ran.stderr.contains("self-signed"), "{}", ran.stderr);
    // If the server speaks something other than TLS, the message says so.
    let ran = bench(&[&format!("https://{}/page", nginx.plain), "-n", "4"]);
    assert_eq!(ran.code, 5);
    assert!(ran.stderr.contains("does not speak TLS") && ran.stderr.contains("http://"), "{}", ran.stderr);
    // The hint's remedy works.
    let (json, code) = measured(&[&url, "-n", "4", "--cacert", &nginx.certificate()]);
    assert_eq!((code, n(&json, "requests.ok")), (0, 4));
}

/// All requests are answered, and all with an error: the exit code is that of a load that ran, and the doubt describes
/// the failure.
fn every_request_fails() {
    let server = Server::start(always(vec![send(response(404, "nothing here"))]));
    let url = server.url("/");
    let (json, code) = measured(&[&url, "-n", "50", "-c", "2"]);
    let found = doubts(&json);
    assert_eq!((code, n(&json, "requests.failed")), (0, 50), "{json:#}");
    assert!(
        found.contains(&"all_failed".to_owned()) && !found.contains(&"few_samples".to_owned()),
        "{json:#}"
    );
    let ran = bench(&[&url, "-n", "50", "-c", "2"]);
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("all_failed: all 50 requests that ended failed: http_4xx 50, status 404"),
        "{said}"
    );
    assert!(said.contains("is the path right") && !said.contains("run longer"), "{said}");
    let (json, code) = measured(&[&url, "-n", "50", "-c", "2", "--expect", "errors < 1%"]);
    assert_eq!((code, at(&json, "verdict").as_str()), (1, Some("fail")), "{json:#}");
}

fn a_target_without_a_listener_is_an_error() {
    let url = {
        let server = Server::start(good);
        server.url("/")
    };
    for load in [["-c", "5"], ["-r", "50/s"], ["-n", "1"]] {
        let mut args = vec!["--json", url.as_str()];
        args.extend(load);
        let ran = bench(&args);
        assert_eq!(ran.code, 5, "{}", ran.stderr);
        check_identities(&ran.json());
        assert!(ran.stderr.contains("error: cannot connect to 127.0.0.1:"), "{}", ran.stderr);
        assert!(ran.stderr.contains("connection refused"), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
}

/// Once a server has been reachable, its refusal is an ordinary failure.
fn refused_in_the_middle() {
    let mut server = Server::start(|_: &Request| {
        vec![send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), Step::Finish]
    });
    // Most of the load is left when the server dies, however long this thread takes to let it.
    let running = Running::start(command(&["--json", &server.url("/"), "-r", "50/s", "-d", "8s"]));
    server.after(20);
    server.die();
    let ran = running.wait();
    let json = ran.json();
    check_identities(&json);
    assert_eq!(at(&json, "ended"), "complete", "{json:#}");
    assert!(n(&json, "failures.connect") > 0, "{json:#}");
    assert!(matches!(ran.code, 0 | 4), "{}", ran.stderr);
    // A connection that was in the backlog when the server died was established, but never served.
    let lost = n(&json, "failures.reset") + n(&json, "failures.truncated");
    let delivered = n(&json, "requests.started") - n(&json, "failures.connect");
    let counts = server.settled();
    assert!(counts.requests <= delivered && delivered <= counts.requests + lost, "{json:#} {counts:?}");
}

fn accepts_and_never_answers() {
    let server = Server::start(always(vec![Step::Hang]));
    let (json, code) =
        measured(&[&server.url("/"), "-c", "4", "-d", "3s", "--timeout", "2s", "--grace", "50s"]);
    // A request may have timed out before the server accepts its connection.
    let counts = server.settled_after(n(&json, "connections.opened"));
    assert_eq!((code, n(&json, "requests.ok")), (0, 0), "{json:#}");
    assert_eq!(n(&json, "requests.failed"), n(&json, "failures.timeout"));
    assert_eq!(
        (counts.requests, counts.connections),
        (n(&json, "requests.started"), n(&json, "requests.started"))
    );
    assert_eq!(f(&json, "ok_response_ms.p50"), None);
    assert_eq!(f(&json, "response_ms.p50"), None);
    assert_eq!(f(&json, "availability"), Some(0.0));
}

/// Nothing accepts, and the kernel's accept queue is full: connects get no answer, and time out.
#[expect(unsafe_code, reason = "listen again with a backlog of one")]
fn a_backlog_that_is_full() {
    use std::os::fd::AsRawFd;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: calling listen again on our own listening socket only changes its backlog.
    unsafe { libc::listen(listener.as_raw_fd(), 1) };
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (json, code) = measured(&[&url, "-c", "20", "-n", "20", "--timeout", "300ms"]);
    assert_eq!(n(&json, "requests.ok"), 0);
    assert_eq!(failures(&json), [("timeout".to_owned(), 20)], "{json:#}");
    assert!(n(&json, "connections.opened") < 20 && n(&json, "connections.attempted") == 20, "{json:#}");
    assert_eq!(code, 0);
}

/// An endless body is cut off by the timeout, a huge one is read and discarded: memory stays flat.
fn endless_and_huge_bodies() {
    const GIB: u64 = 1 << 30;
    let huge = format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n");
    let server = Server::start(always(vec![send(&huge), Step::Flood(GIB)]));
    let (json, code) = measured(&[&server.url("/"), "-n", "2", "-c", "2", "--timeout", "100s"]);
    assert_eq!((code, n(&json, "requests.ok")), (0, 2), "{json:#}");
    check_same(&json, &server.settled());
    assert_eq!(n(&json, "bytes.received"), 2 * (GIB + huge.len() as u64));
    assert!(n(&json, "generator.peak_rss_bytes") < 30 << 20, "{}", n(&json, "generator.peak_rss_bytes"));

    for head in
        ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"]
    {
        let server = Server::start(always(vec![send(head), Step::Flood(u64::MAX)]));
        let (json, _) = measured(&[&server.url("/"), "-n", "2", "-c", "2", "--timeout", "1s"]);
        assert_eq!(failures(&json), [("timeout".to_owned(), 2)], "{json:#}");
        assert!(n(&json, "generator.peak_rss_bytes") < 30 << 20);
        assert_eq!(server.settled_after(2).requests, 2);
    }
}

/// Answers after the head alone, does not read the body, and closes.
struct Early(Step);

impl Script for Early {
    fn head(&self, _: &Request) -> Vec<Step> {
        vec![
            send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig"),
            self.0.clone(),
        ]
    }
    fn answer(&self, _: &Request) -> Vec<Step> {
        Vec::new()
    }
}

fn an_answer_before_the_request_was_read() {
    let body = "x".repeat(4 << 20);
    let (_dir, path) = common::file(&body);
    let body = format!("@{}", path.display());
    // If the server keeps reading after its answer, nothing is lost.
    let server = Server::start(Early(Step::Finish));
    let (json, _) = measured(&[&server.url("/"), "-b", &body, "-n", "20", "-c", "2"]);
    assert_eq!(failures(&json), [("http_4xx".to_owned(), 20)], "{json:#}");
    let counts = server.settled();
    assert_eq!((counts.heads, counts.connections), (20, 20));
    // If the kernel resets the connection because of unread data, the answer is easily lost: it is in the client's
    // receive queue, and must be read before the failed send is reported.
    let server = Server::start(Early(Step::Close));
    let (json, _) = measured(&[&server.url("/"), "-b", &body, "-n", "20", "-c", "2"]);
    assert_eq!(server.settled().heads, 20);
    let (answered, reset) = (n(&json, "failures.http_4xx"), n(&json, "failures.reset"));
    assert_eq!(answered + reset + n(&json, "failures.truncated"), 20, "{json:#}");
    assert_eq!(answered, 20, "{json:#}");
}

/// Unsolicited bytes after a response belong to no request: the connection is not reused.
fn bytes_after_a_response() {
    let mut bytes = response(200, "hello");
    bytes.extend_from_slice(b"surplus");
    let server = Server::start(always(vec![Step::Send(bytes), Step::Finish]));
    let (json, code) = measured(&[&server.url("/"), "-n", "20", "-c", "2"]);
    let counts = server.settled();
    assert_eq!((code, n(&json, "requests.ok"), counts.requests), (0, 20, 20), "{json:#}");
    assert_eq!((counts.connections, n(&json, "connections.opened")), (20, 20));
}

/// One slot of 50 ms carries 20 of the 200 requests due per second.
const BEHIND: [&str; 6] = ["-r", "200/s", "-d", "2s", "--max-in-flight", "1"];

fn behind(extra: &[&str]) -> (Value, Counts) {
    let server = Server::start(slow(Duration::from_millis(50)));
    let url = server.url("/");
    let mut args = vec![url.as_str()];
    args.extend(BEHIND);
    args.extend(extra);
    let (json, _) = measured(&args);
    let counts = server.settled();
    assert_eq!(n(&json, "requests.due"), 400, "{json:#}");
    assert_eq!(n(&json, "requests.started"), counts.requests);
    assert_eq!(n(&json, "requests.ok"), counts.requests);
    assert!(n(&json, "requests.dropped") >= 340, "{json:#}");
    assert_eq!((counts.peak, n(&json, "connections.peak")), (1, 1), "at most one in flight");
    assert_eq!(n(&json, "response_ms.censored"), n(&json, "requests.dropped"));
    for kind in ["dropped", "in_flight_cap"] {
        assert!(doubts(&json).contains(&kind.to_owned()), "{json:#}");
    }
    (json, counts)
}

fn behind_and_dropping() {
    for extra in [&["--when-behind", "drop"][..], &["--when-behind", "drop", "-t", "2"]] {
        let (json, _) = behind(extra);
        assert!(f(&json, "blocked_ms.max").unwrap() < 40.0, "nobody waits for a slot: {json:#}");
    }
}

fn behind_and_queueing() {
    let ways: [&[&str]; 3] = [&["--when-behind", "queue"], &["-t", "2"], &[]];
    // They mostly wait.
    for (json, _) in side_by_side(ways, behind) {
        // The response time includes the wait for the slot, which is attributed to the slot.
        assert!(f(&json, "blocked_ms.max").unwrap() > 100.0, "{json:#}");
        assert!(f(&json, "ok_response_ms.max").unwrap() > 150.0, "{json:#}");
    }
}
