//! `loadlab bench` compared with a server's own records: every way a run can end and every way an exchange can fail.
//! Nothing here depends on the speed of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::server::{Request, Script, Server, Step, always, good, response, send, slow};
use crate::common::{check_same, doubts, f, failures, measured, n, side_by_side, status};
use crate::on_every_backend;

on_every_backend! {
    a_number_of_requests_is_exact_whatever_users_and_threads
    a_number_of_requests_at_a_rate_is_exact
    a_rate_for_a_duration_is_exact
    users_for_a_duration_finish_what_they_are_at
    a_rate_that_counts_what_its_window_holds
    bodies_of_every_framing_are_counted_to_the_byte
    head_has_no_body_whatever_its_length_says
    every_status_is_counted
    each_fault_has_its_own_name
    a_reset_inside_a_body_is_truncated
    a_request_that_was_read_and_not_answered_is_never_sent_again
    closing_after_some_answers_costs_nothing_when_it_is_said
    closing_an_idle_connection_unannounced_is_no_failure
    a_reset_that_may_have_come_before_reading_is_reported_as_sent_again_or_failed
    what_is_not_safe_to_repeat_is_not_repeated
}

const SOON: Duration = Duration::from_millis(20);

/// A load whose requests, bytes and connections must match the server's exactly.
fn exact<S: Script>(args: &[&str], script: impl Fn() -> S, requests: u64) {
    let attempt = || {
        let server = Server::start(script());
        let url = server.url("/");
        let (json, code) = measured(&[&[url.as_str()], args].concat());
        (json, code, server.settled())
    };
    let (mut json, mut code, mut counts) = attempt();
    for _ in 0..7 {
        // A loadlab that had no core when the load ended drops what was due by then, rather than open hundreds of
        // connections at once.
        if code == 4 && n(&json, "requests.dropped") > 0 {
            (json, code, counts) = attempt();
        }
    }
    // A machine too busy to keep the schedule is reported as late, and as nothing else.
    assert!(code == 0 || code == 4 && doubts(&json).contains(&"late".to_owned()), "{json:#}");
    assert_eq!(n(&json, "requests.ok"), requests, "{args:?} {json:#}");
    assert_eq!(n(&json, "requests.due"), requests);
    check_same(&json, &counts);
    assert_eq!(counts.resets, 0, "{args:?}");
}

fn a_number_of_requests_is_exact_whatever_users_and_threads() {
    for args in [
        ["-n", "1", "-c", "1", "-t", "1"],
        ["-n", "1", "-c", "50", "-t", "2"],
        ["-n", "7", "-c", "50", "-t", "1"],
        ["-n", "7", "-c", "3", "-t", "2"],
        ["-n", "10", "-c", "1", "-t", "2"],
        ["-n", "10", "-c", "2", "-t", "5"],
        ["-n", "1000", "-c", "8", "-t", "2"],
        ["-n", "1001", "-c", "7", "-t", "1"],
    ] {
        exact(&args, || good, args[1].parse().unwrap());
    }
}

fn a_number_of_requests_at_a_rate_is_exact() {
    exact(&["-n", "1", "-r", "100/s"], || good, 1);
    exact(&["-n", "300", "-r", "1000/s", "-t", "2"], || good, 300);
    exact(&["-n", "300", "-r", "1000/s", "--arrivals", "poisson", "--ramp", "100ms"], || good, 300);
}

fn a_rate_for_a_duration_is_exact() {
    exact(&["-d", "500ms", "-r", "1000/s", "--grace", "50s"], || good, 500);
    exact(&["-d", "1s", "-r", "400/s", "--ramp", "1s", "--grace", "50s"], || good, 200);
    exact(&["-d", "300ms", "-r", "100/s", "-t", "2", "--grace", "50s"], || slow(SOON), 30);
}

fn users_for_a_duration_finish_what_they_are_at() {
    // They mostly wait.
    side_by_side(["1", "2"], |threads| {
        let server = Server::start(slow(Duration::from_millis(30)));
        // Long enough that every user begins, on however busy a machine.
        let all = [&server.url("/"), "-d", "4s", "-c", "10", "-t", threads, "--grace", "50s"];
        let (json, code) = measured(&all);
        check_same(&json, &server.settled());
        assert_eq!((code, n(&json, "requests.in_flight")), (0, 0));
        assert_eq!(n(&json, "requests.ok"), n(&json, "requests.due"));
        assert_eq!(n(&json, "connections.opened"), 10);
        assert_eq!(n(&json, "connections.requests_resent"), 0);
    });
}

fn a_rate_that_counts_what_its_window_holds() {
    // 10 users, 300 ms per request: the last of them end after the requested second
    let server = Server::start(slow(Duration::from_millis(300)));
    let (json, _) = measured(&[&server.url("/"), "-c", "10", "-d", "1s"]);
    let (rate, ok) = (f(&json, "rate_per_s.ok").unwrap(), n(&json, "requests.ok") as f64);
    let window = f(&json, "window.to_s").unwrap() - f(&json, "window.from_s").unwrap();
    if (rate * window - ok).abs() > 0.5 {
        // what ended after the window does not count in its rate; the window must then end with the schedule
        assert!((window - 1.0).abs() < 0.05, "{rate} × {window} is not {ok}: {json:#}");
    }
}

fn bodies_of_every_framing_are_counted_to_the_byte() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;name=value\r\nhello\r\n0006\r\n world\r\n0\r\nTrailer: x\r\n\r\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let scripts: Vec<(&str, Vec<Step>)> = vec![
        ("length", vec![send(response(200, "hello"))]),
        ("empty", vec![send(response(200, ""))]),
        ("chunked", vec![send(chunked)]),
        ("interim", vec![send(interim), send(response(201, "made"))]),
        ("trickled", vec![Step::Trickle(response(200, "slowly"))]),
        ("trickled chunks", vec![Step::Trickle(chunked.into())]),
        ("no content", vec![send("HTTP/1.1 204 No Content\r\n\r\n")]),
        ("not modified", vec![send("HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n")]),
        ("large", vec![send(response(200, &"y".repeat(300_000)))]),
        ("1.0 kept", vec![send("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")]),
        ("1.0", vec![send("HTTP/1.0 200 OK\r\n\r\nuntil the end"), Step::Finish]),
        ("until close", vec![send("HTTP/1.1 200 OK\r\n\r\nuntil the end"), Step::Finish]),
        (
            "close said",
            vec![send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), Step::Finish],
        ),
    ];
    for (what, steps) in scripts {
        let server = Server::start(always(steps));
        let (json, code) = measured(&[&server.url("/"), "-n", "40", "-c", "4"]);
        let counts = server.settled();
        assert_eq!((code, n(&json, "requests.ok")), (0, 40), "{what}: {json:#}");
        check_same(&json, &counts);
        assert_eq!((counts.resets, counts.cut), (0, 0), "{what}");
        assert_eq!(n(&json, "connections.requests_resent"), 0, "{what}");
        let per_request = what.starts_with("1.0") && what != "1.0 kept" || what.contains("close");
        assert_eq!(counts.connections, if per_request { 40 } else { 4 }, "{what}");
    }
}

fn head_has_no_body_whatever_its_length_says() {
    let server = Server::start(always(vec![send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")]));
    let (json, code) = measured(&[&server.url("/"), "-X", "HEAD", "-n", "40", "-c", "4"]);
    let counts = server.settled();
    assert_eq!((code, n(&json, "requests.ok"), counts.methods["HEAD"]), (0, 40, 40));
    check_same(&json, &counts);
}

fn every_status_is_counted() {
    let server = Server::start(|r: &Request| {
        vec![send(response([200, 404, 500, 302, 503][r.number as usize % 5], "text"))]
    });
    let (json, code) = measured(&[&server.url("/"), "-n", "100", "-c", "4"]);
    check_same(&json, &server.settled());
    assert_eq!(code, 0, "nothing was expected");
    assert_eq!(n(&json, "requests.ok"), 40);
    assert_eq!(failures(&json), [("http_4xx".into(), 20), ("http_5xx".into(), 40)]);
    for s in [200, 404, 500, 302, 503] {
        assert_eq!(status(&json, s), 20);
    }
    assert_eq!(f(&json, "availability"), Some(0.4));
    assert_eq!((n(&json, "ok_response_ms.count"), n(&json, "failed_response_ms.count")), (40, 60));
}

/// Each fault has its own name, and the server counts as many requests as the load.
fn each_fault_has_its_own_name() {
    let head = "HTTP/1.1 200 OK\r\n";
    let sent = |text: &str| vec![send(format!("{head}{text}")), Step::Finish];
    let faults: Vec<(&str, &str, Vec<Step>)> = vec![
        ("closed without an answer", "reset", vec![Step::Close]),
        ("ended without an answer", "reset", vec![Step::Finish]),
        ("reset without an answer", "reset", vec![Step::Reset]),
        ("ended in the head", "truncated", sent("Content-Le")),
        ("ended in the body", "truncated", sent("Content-Length: 10\r\n\r\nhal")),
        ("ended in a chunk", "truncated", sent("Transfer-Encoding: chunked\r\n\r\n5\r\nhe")),
        (
            "ended before the last chunk",
            "truncated",
            sent("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        ),
        ("garbage", "protocol", vec![send("SSH-2.0-OpenSSH_9.2\r\n"), Step::Hang]),
        ("chunk size overflows", "protocol", sent("Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n")),
        ("chunk size is no number", "protocol", sent("Transfer-Encoding: chunked\r\n\r\nzz\r\n")),
        ("two lengths", "protocol", sent("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello")),
        (
            "length and chunks",
            "protocol",
            sent("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        ("negative length", "protocol", sent("Content-Length: -5\r\n\r\n")),
        ("head without end", "too_large", vec![send(head), Step::Flood(1 << 20)]),
        ("header without end", "too_large", vec![send(format!("{head}X: ")), Step::Flood(1 << 20)]),
        ("switching unasked", "protocol", vec![send("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Step::Hang]),
    ];
    for (what, name, steps) in faults {
        let server = Server::start(always(steps));
        let (json, code) = measured(&[&server.url("/"), "-n", "20", "-c", "2"]);
        let counts = server.settled();
        assert_eq!(failures(&json), [(name.to_owned(), 20)], "{what}: {json:#}");
        assert_eq!((counts.requests, counts.connections), (20, 20), "{what}");
        assert_eq!(n(&json, "bytes.sent"), counts.received, "{what}");
        assert_eq!(n(&json, "connections.requests_resent"), 0, "{what}");
        assert_eq!(code, 0, "{what}: nothing was expected");
    }
}

fn a_reset_inside_a_body_is_truncated() {
    // Wait, so that the reset does not overtake the data: the client would then discard it unread.
    let wait = Step::Wait(Duration::from_millis(200));
    let steps = vec![send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal"), wait, Step::Reset];
    let server = Server::start(always(steps));
    let (json, _) = measured(&[&server.url("/"), "-n", "10", "-c", "2"]);
    assert_eq!(failures(&json), [("truncated".to_owned(), 10)], "{json:#}");
    assert_eq!(server.settled().requests, 10);
}

/// Mixes faults with good answers, on connections that were used before. Returns the document, and the server's counts
/// of requests and of faults.
fn faults_on_used_connections(fault: Step, method: &str) -> (serde_json::Value, u64, u64) {
    let faults = Arc::new(AtomicU64::new(0));
    let counted = faults.clone();
    let server = Server::start(move |r: &Request| match r.on_connection % 3 {
        2 => {
            counted.fetch_add(1, Ordering::SeqCst);
            vec![fault.clone()]
        }
        _ => good(r),
    });
    let (json, _) = measured(&[&server.url("/"), "-X", method, "-n", "300", "-c", "3"]);
    let faults = faults.load(Ordering::SeqCst);
    assert!(faults >= 90, "{faults}");
    (json, server.settled().requests, faults)
}

fn a_request_that_was_read_and_not_answered_is_never_sent_again() {
    for (fault, method) in [
        (Step::Close, "GET"),
        (Step::Finish, "GET"),
        (Step::Close, "POST"),
        (Step::Finish, "POST"),
        (Step::Reset, "POST"),
    ] {
        let (json, requests, faults) = faults_on_used_connections(fault.clone(), method);
        let what = format!("{method} {fault:?}");
        assert_eq!(requests, n(&json, "requests.started"), "{what}: {json:#}");
        assert_eq!(failures(&json), [("reset".to_owned(), faults)], "{what}: {json:#}");
        assert_eq!(n(&json, "connections.requests_resent"), 0, "{what}");
    }
}

/// On the network, a reset right after the request was read looks like one that discarded the request unread (the
/// acknowledgement was still held back). A request that is safe to repeat is then sent again, and reported as resent.
fn a_reset_that_may_have_come_before_reading_is_reported_as_sent_again_or_failed() {
    let (json, requests, faults) = faults_on_used_connections(Step::Reset, "GET");
    let (failed, again) = (n(&json, "requests.failed"), n(&json, "connections.requests_resent"));
    assert_eq!(failed + again, faults, "{json:#}");
    assert_eq!(requests, n(&json, "requests.started") + again, "{json:#}");
    // The document and a doubt also say how many more requests may have failed.
    assert_eq!(json["connections"]["resent_after_reset"].as_u64().unwrap_or(0), again, "{json:#}");
    let doubts = json["doubts"].as_array().expect("doubts");
    let doubt = doubts.iter().find(|doubt| doubt["kind"] == "resent_after_reset");
    assert_eq!(doubt.is_some(), again > 0, "{json:#}");
    assert!(doubt.is_none_or(|doubt| doubt["grave"] == false), "nothing was expected: {json:#}");
}

fn closing_after_some_answers_costs_nothing_when_it_is_said() {
    let server = Server::start(|r: &Request| match r.on_connection {
        4 => vec![send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"), Step::Finish],
        _ => good(r),
    });
    let (json, _) = measured(&[&server.url("/"), "-n", "500", "-c", "5"]);
    let counts = server.settled();
    check_same(&json, &counts);
    assert_eq!(n(&json, "requests.ok"), 500);
    // five requests each, and up to one unfinished connection per user
    assert!((100..=105).contains(&counts.connections), "{}", counts.connections);
    assert_eq!(n(&json, "connections.requests_resent"), 0);
}

/// The server closes idle connections without notice, as soon as it has answered: the worst possible race.
fn closing_an_idle_connection_unannounced_is_no_failure() {
    for (what, every) in [("each", 1), ("every fifth", 5)] {
        let server = Server::start(move |r: &Request| match (r.on_connection + 1) % every {
            0 => vec![send(response(200, "hello")), Step::Close],
            _ => good(r),
        });
        let (json, code) = measured(&[&server.url("/"), "-n", "2000", "-c", "8"]);
        let counts = server.settled();
        assert_eq!(failures(&json), [], "{what}: {json:#}");
        assert_eq!((code, n(&json, "requests.ok")), (0, 2000), "{what}");
        assert_eq!(counts.requests, 2000, "{what}: none was seen twice");
        // The server closed each user's connections except the last.
        assert!(n(&json, "connections.requests_resent") <= counts.connections, "{what}");
    }
}

/// The same race with requests that must not be repeated: the server's kernel may have discarded some of them unread,
/// which cannot be detected. Those count as failures; the server sees none twice.
fn what_is_not_safe_to_repeat_is_not_repeated() {
    let server = Server::start(|_: &Request| vec![send(response(200, "hello")), Step::Close]);
    let (json, _) = measured(&[&server.url("/"), "-b", "x=1", "-n", "2000", "-c", "8"]);
    let counts = server.settled();
    assert_eq!(n(&json, "requests.ok"), counts.requests, "{json:#}");
    assert_eq!(n(&json, "requests.failed"), n(&json, "failures.reset"));
    assert_eq!(n(&json, "requests.ok") + n(&json, "failures.reset"), 2000);
    assert_eq!(counts.methods["POST"], counts.requests);
}
